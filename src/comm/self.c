/* SPDX-License-Identifier: Apache-2.0
 *
 * A group of one rank: every collective is local, but an abort still ends it.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/backend.h"

struct self {
    struct sdc_comm base;
    atomic_bool aborted;
};

static enum sdc_status self_check(struct sdc_comm *comm, struct sdc_error *err) {
    struct self *self = (struct self *)comm;
    if (atomic_load(&self->aborted))
        return SDC_ERR(err, SDC_PEER, "the group of ranks was given up");
    return SDC_OK;
}

static enum sdc_status self_group_new(unsigned ranks, size_t max_bytes, unsigned timeout_ms,
                                      struct sdc_comm **ends, struct sdc_error *err) {
    (void)ranks;
    (void)timeout_ms;
    struct self *self = sdc__calloc(1, sizeof *self);
    if (!self)
        return SDC_NOMEM(err, "a group of one rank");
    self->base = (struct sdc_comm){.ops = &sdc_comm_self, .size = 1, .max_bytes = max_bytes};
    atomic_init(&self->aborted, false);
    ends[0] = &self->base;
    return SDC_OK;
}

static void self_free(struct sdc_comm *comm) {
    sdc__free(comm);
}

static enum sdc_status self_broadcast(struct sdc_comm *comm, unsigned root, void *data, size_t size,
                                      struct sdc_error *err) {
    (void)root;
    (void)data;
    (void)size;
    return self_check(comm, err);
}

static enum sdc_status self_allreduce(struct sdc_comm *comm, enum sdc_sum sum, enum sdc_dtype type,
                                      void *data, size_t n, struct sdc_error *err) {
    (void)sum;
    (void)type;
    (void)data;
    (void)n;
    return self_check(comm, err);
}

static enum sdc_status self_gather(struct sdc_comm *comm, const void *mine, size_t size, void *all,
                                   struct sdc_error *err) {
    SDC_TRY(self_check(comm, err));
    memmove(all, mine, size);
    return SDC_OK;
}

static void self_abort(struct sdc_comm *comm) {
    struct self *self = (struct self *)comm;
    atomic_store(&self->aborted, true);
}

const struct sdc_comm_ops sdc_comm_self = {
    .name = "self",
    .summary = "one rank",
    .max_ranks = 1,
    .group_new = self_group_new,
    .end_free = self_free,
    .barrier = self_check,
    .broadcast = self_broadcast,
    .allreduce = self_allreduce,
    .gather = self_gather,
    .abort = self_abort,
};
