/* SPDX-License-Identifier: Apache-2.0
 *
 * What an implementation of comm/comm.h provides. For src/comm only.
 *
 * The wrappers in comm.c check arguments; nobody else touches ops. A backend embeds struct sdc_comm
 * as its first member.
 */
#ifndef SDC_COMM_BACKEND_H
#define SDC_COMM_BACKEND_H

#include "comm/comm.h"

struct sdc_comm {
    const struct sdc_comm_ops *ops;
    unsigned rank, size;
    size_t max_bytes;
    atomic_bool lost; /* kept by comm.c */
    const atomic_bool *hurry;
};

struct sdc_comm_ops {
    const char *name;
    const char *summary;
    unsigned max_ranks;
    enum sdc_status (*group_new)(unsigned ranks, size_t max_bytes, unsigned timeout_ms,
                                 struct sdc_comm **ends, struct sdc_error *err);
    void (*end_free)(struct sdc_comm *comm); /* called for each end, rank 0 last */
    enum sdc_status (*barrier)(struct sdc_comm *comm, struct sdc_error *err);
    enum sdc_status (*broadcast)(struct sdc_comm *comm, unsigned root, void *data, size_t size,
                                 struct sdc_error *err);
    enum sdc_status (*allreduce)(struct sdc_comm *comm, enum sdc_sum sum, enum sdc_dtype type,
                                 void *data, size_t n, struct sdc_error *err);
    enum sdc_status (*gather)(struct sdc_comm *comm, const void *mine, size_t size, void *all,
                              struct sdc_error *err);
    void (*abort)(struct sdc_comm *comm);
    /* where ranks are processes, else NULL */
    enum sdc_status (*start)(unsigned timeout_ms, unsigned *rank, unsigned *size,
                             struct sdc_error *err);
    void (*finish)(bool orderly, int exit_code);
    const char *(*library)(void);
};

extern const struct sdc_comm_ops sdc_comm_self;
extern const struct sdc_comm_ops sdc_comm_threads;
extern const struct sdc_comm_ops sdc_comm_mpi; /* with SDC_HAVE_MPI */

#endif
