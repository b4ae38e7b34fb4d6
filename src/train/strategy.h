/* SPDX-License-Identifier: Apache-2.0
 *
 * How the gradients of the ranks become one mean: a table of functions per strategy. Not who loads
 * what at start; that is train/startup.h.
 *
 *   single    one rank; the gradient is the mean already
 *   ddp       PyTorch DistributedDataParallel 1.13.1 on a CPU: buckets, each gradient multiplied by
 *             fl(1/N) while it is copied into its bucket, then Gloo's ring sum. The first step of a
 *             run uses one bucket in registration order, later ones the order in which gradients
 *             get ready: the layout's history starts again with every run.
 *             With fp16 compression or gradients as bucket views it divides by N instead.
 *   horovod   Horovod 0.28.1 over Open MPI 4.1.4 with everything that is ready fused in the order
 *             of submission (so that runs repeat, unlike with Horovod's clock): sum by Open MPI's
 *             choice for the fused size, then multiplied by fl(1/N), then copied out. Or with drawn
 *             cycles, which decide what is fused; how a run's bits then vary is Horovod's doing.
 */
#ifndef SDC_TRAIN_STRATEGY_H
#define SDC_TRAIN_STRATEGY_H

#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "train/bucket.h"
#include "train/model.h"

struct sdc_probe;

/* One rank's view of a reduction. */
struct sdc_reduction {
    const struct sdc_model *model;
    struct sdc_comm *comm;
    const struct sdc_averaging *options; /* borrowed; checked by sdc_run_check */
    void *buffer;                        /* model->n_elems floats: bucket or fusion buffer */
    struct sdc_buckets first, later;
    struct sdc_probe *probe; /* of a fault that may be due in this step; else NULL; borrowed */
};

/* Which step is meant: of this run, from 0, which decides DDP's layout; and of the training. */
struct sdc_step_number {
    uint64_t of_run, number;
};

struct sdc_strategy_ops {
    const char *name;
    /* Fills r->first (the layout of a run's first step) and r->later. */
    void (*plan)(struct sdc_reduction *r, unsigned ranks);
    /* Turns the rank's own gradients (flat) into the mean over the ranks. Collective. */
    enum sdc_status (*average)(struct sdc_reduction *r, const struct sdc_step_number *step,
                               float *grads, struct sdc_error *err);
};

const struct sdc_strategy_ops *sdc_strategy_find(enum sdc_strategy strategy);

#endif
