/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizers: SGD, Adam and AdamW of PyTorch 1.13 (single tensor, foreach=False) over a
 * replica. The learning rate's course is train/schedule.h's.
 */
#ifndef SDC_TRAIN_OPTIMIZER_H
#define SDC_TRAIN_OPTIMIZER_H

#include "nn/nn.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "train/schedule.h"
#include "train/state.h"

struct sdc_optimizer {
    enum sdc_state_keeps keeps; /* MOMENTS: it is Adam or AdamW */
    struct sdc_nn_sgd sgd;      /* of its rate: the base rate, as in adam */
    struct sdc_nn_adam adam;
    struct sdc_schedule schedule;
};

/* SDC_UNSUPPORTED lists the known ones. */
enum sdc_status sdc_optimizer_make(const struct sdc_run *run, struct sdc_optimizer *o,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* One update of the replica's parameters and optimizer state with its learning rate; makes the
 * state if there is none yet. grads: flat. The replica keeps what optimizer and
 * schedule need. SDC_INVALID:
 * a step counter of Adam's is such that PyTorch stops with an exception too. */
enum sdc_status sdc_optimizer_step(const struct sdc_optimizer *o, struct sdc_nn_engine *engine,
                                   struct sdc_train_state *s, const float *grads,
                                   struct sdc_error *err) SDC_MUST_CHECK;

#endif
