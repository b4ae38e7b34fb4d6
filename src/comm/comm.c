/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/comm.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "comm/backend.h"

static const struct sdc_comm_ops *const backends[] = {
    &sdc_comm_threads,
    &sdc_comm_self,
#if SDC_HAVE_MPI
    &sdc_comm_mpi,
#endif
};

#define N_BACKENDS (sizeof backends / sizeof backends[0])

const struct sdc_comm_ops *sdc_comm_at(size_t i) {
    return i < N_BACKENDS ? backends[i] : NULL;
}

const struct sdc_comm_ops *sdc_comm_find(const char *name) {
    for (size_t i = 0; i < N_BACKENDS; i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

const char *sdc_comm_name(const struct sdc_comm_ops *ops) {
    return ops->name;
}

const char *sdc_comm_summary(const struct sdc_comm_ops *ops) {
    return ops->summary;
}

bool sdc_comm_is_processes(const struct sdc_comm_ops *ops) {
    return ops->start != NULL;
}

enum sdc_status sdc_comm_start(const struct sdc_comm_ops *ops, unsigned timeout_ms, unsigned *rank,
                               unsigned *size, struct sdc_error *err) {
    return ops->start(timeout_ms ? timeout_ms : SDC_COMM_TIMEOUT_MS, rank, size, err);
}

void sdc_comm_finish(const struct sdc_comm_ops *ops, bool orderly, int exit_code) {
    ops->finish(orderly, exit_code);
}

const char *sdc_comm_library(const struct sdc_comm_ops *ops) {
    return ops->library ? ops->library() : "";
}

enum sdc_status sdc_comm_group_new(const struct sdc_comm_ops *ops, unsigned ranks, size_t max_bytes,
                                   unsigned timeout_ms, struct sdc_comm **ends,
                                   struct sdc_error *err) {
    if (ranks < 1 || ranks > ops->max_ranks)
        return SDC_ERR(err, SDC_UNSUPPORTED, "comm %s: %u ranks asked for, expected 1 to %u",
                       ops->name, ranks, ops->max_ranks);
    return ops->group_new(ranks, max_bytes, timeout_ms ? timeout_ms : SDC_COMM_TIMEOUT_MS, ends,
                          err);
}

void sdc_comm_group_free(struct sdc_comm **ends, unsigned ranks) {
    for (unsigned r = ranks; r-- > 0;) {
        if (ends[r])
            ends[r]->ops->end_free(ends[r]);
        ends[r] = NULL;
    }
}

unsigned sdc_comm_rank(const struct sdc_comm *comm) {
    return comm->rank;
}

unsigned sdc_comm_size(const struct sdc_comm *comm) {
    return comm->size;
}

/* Any failure of an implementation's call is the end of the group for this rank. */
static enum sdc_status kept(struct sdc_comm *comm, enum sdc_status st) {
    if (st != SDC_OK)
        atomic_store(&comm->lost, true);
    return st;
}

enum sdc_status sdc_comm_barrier(struct sdc_comm *comm, struct sdc_error *err) {
    return kept(comm, comm->ops->barrier(comm, err));
}

enum sdc_status sdc_comm_broadcast(struct sdc_comm *comm, unsigned root, void *data, size_t size,
                                   struct sdc_error *err) {
    if (root >= comm->size)
        return SDC_ERR(err, SDC_INTERNAL, "broadcast from rank %u, of %u ranks", root, comm->size);
    return kept(comm, comm->ops->broadcast(comm, root, data, size, err));
}

enum sdc_status sdc_comm_allreduce(struct sdc_comm *comm, enum sdc_sum sum, enum sdc_dtype type,
                                   void *data, size_t n, struct sdc_error *err) {
    size_t size = sdc_sum_size(type);
    if (size == 0)
        return SDC_ERR(err, SDC_INTERNAL, "sum of %s, expected F32, F64 or F16",
                       sdc_dtype_name(type));
    if (n > comm->max_bytes / size)
        return SDC_ERR(err, SDC_INTERNAL, "sum of %zu elements of %zu bytes, the group allows %zu",
                       n, size, comm->max_bytes);
    return kept(comm, comm->ops->allreduce(comm, sum, type, data, n, err));
}

enum sdc_status sdc_comm_gather(struct sdc_comm *comm, const void *mine, size_t size, void *all,
                                struct sdc_error *err) {
    return kept(comm, comm->ops->gather(comm, mine, size, all, err));
}

/* The message of `who` to everyone, as err. Collective. */
static enum sdc_status share_error(struct sdc_comm *comm, unsigned who, enum sdc_status worst,
                                   const struct sdc_error *own, struct sdc_error *err) {
    char text[SDC_ERROR_MESSAGE_SIZE] = {0};
    if (comm->rank == who && own)
        memcpy(text, own->message, sizeof text);
    SDC_TRY(sdc_comm_broadcast(comm, who, text, sizeof text, err));
    text[sizeof text - 1] = '\0';
    return SDC_ERR(err, worst, "rank %u: %.*s", who, (int)(sizeof text - 16),
                   text[0] ? text : sdc_status_text(worst));
}

enum sdc_status sdc_comm_agree(struct sdc_comm *comm, enum sdc_status status,
                               const struct sdc_error *own, unsigned *rank, struct sdc_error *err) {
    uint32_t mine = (uint32_t)status, all[SDC_MAX_RANKS];
    unsigned who = 0;
    SDC_TRY(sdc_comm_gather(comm, &mine, sizeof mine, all, err));
    for (unsigned r = 1; r < comm->size; r++)
        if (all[r] > all[who])
            who = r;
    if (rank)
        *rank = who;
    if (all[who] == SDC_OK)
        return SDC_OK;
    return share_error(comm, who, (enum sdc_status)all[who], own, err);
}

void sdc_comm_abort(struct sdc_comm *comm) {
    atomic_store(&comm->lost, true);
    comm->ops->abort(comm);
}

bool sdc_comm_lost(const struct sdc_comm *comm) {
    return atomic_load(&comm->lost);
}

void sdc_comm_set_hurry(struct sdc_comm *comm, const atomic_bool *hurry) {
    comm->hurry = hurry;
}
