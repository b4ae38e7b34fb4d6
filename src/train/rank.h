/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank computes with: its engine, networks, replica, gradients and its place in the data.
 * Stays between runs of the same shape, so that a run starts in milliseconds. Local work only, but
 * for the averaging inside sdc_rank_step. One thread at a time.
 */
#ifndef SDC_TRAIN_RANK_H
#define SDC_TRAIN_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "nn/nn.h"
#include "sdc/data.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "train/feed.h"
#include "train/net.h"
#include "train/optimizer.h"
#include "train/state.h"
#include "train/strategy.h"

/* What makes a rank's memory and plans fit a run. */
struct sdc_rank_shape {
    const struct sdc_model *model; /* borrowed; stays as long as the rank is used with it */
    const struct sdc_nn_ops *kernels;
    uint32_t batch;
    enum sdc_state_keeps keeps;
    unsigned schedule; /* SDC_SCHEDULE_HAS_... */
};

struct sdc_rank {
    unsigned rank;
    struct sdc_rank_shape shape; /* model NULL: nothing is prepared */
    struct sdc_nn_engine *engine;
    struct sdc_net *net;
    struct sdc_net *eval_net;  /* made at the first evaluation */
    struct sdc_net *eval_rest; /* for the last, smaller batch; of its size */
    struct sdc_train_state state;
    float *grads; /* flat */
    struct sdc_reduction reduction;
    struct sdc_feed *feed;
    struct sdc_augment augment;
    bool sync_buffers; /* rank 0's go to all before each training forward */
};

/* Makes everything fit, reusing what fits already. Statuses of nn, and SDC_NO_MEMORY. */
enum sdc_status sdc_rank_prepare(struct sdc_rank *r, const struct sdc_rank_shape *shape,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* The data order of a run, and what is done to its samples. SDC_INVALID: too few for one step. */
enum sdc_status sdc_rank_order(struct sdc_rank *r, const struct sdc_sharding *sharding,
                               const struct sdc_augment *augment,
                               struct sdc_error *err) SDC_MUST_CHECK;
void sdc_rank_release(struct sdc_rank *r);

/* After a run: its data sets may go. */
void sdc_rank_rest(struct sdc_rank *r);

struct sdc_step_result {
    float loss;           /* of this rank's batch, before the update */
    double gradient_norm; /* of the mean gradient; rank 0 only */
    uint64_t nonfinite_gradients, nonfinite_parameters;
};

/* One training step; step is the one to be done. Where r->sync_buffers says so, it begins with
 * rank 0's buffers for all (DistributedDataParallel's broadcast_buffers; an evaluation does not
 * pass through the wrapper, so its flag is never cleared). Collective: a local failure does not
 * keep a rank from taking part in the averaging. *local is that failure (SDC_OK if none, with err
 * set), to be shared by the caller; the returned status is of the collective itself, and final. */
enum sdc_status sdc_rank_step(struct sdc_rank *r, const struct sdc_dataset *set,
                              const struct sdc_strategy_ops *strategy,
                              const struct sdc_optimizer *optimizer,
                              const struct sdc_step_number *step, struct sdc_step_result *result,
                              enum sdc_status *local, struct sdc_error *err) SDC_MUST_CHECK;

struct sdc_eval_result {
    double loss; /* mean over the samples, summed in double */
    uint64_t
        correct; /* class with the greatest output; a NaN counts as the greatest, as in torch */
};

/* The replica's loss and hits over the first `samples` of the set. *beat is moved on as it goes. */
enum sdc_status sdc_rank_evaluate(struct sdc_rank *r, const struct sdc_dataset *set,
                                  uint64_t samples, _Atomic unsigned *beat,
                                  struct sdc_eval_result *result,
                                  struct sdc_error *err) SDC_MUST_CHECK;

#endif
