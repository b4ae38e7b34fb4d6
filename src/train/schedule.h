/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of the learning rate: what torch.optim.lr_scheduler of PyTorch 1.13 does, in its
 * chained form: each scheduler changes the current rate, by a counter of its own, in f64. (The
 * closed form, of PyTorch's step(epoch), rounds differently.)
 *
 *   step        StepLR(step_size, gamma)
 *   multi-step  MultiStepLR(milestones, gamma)
 *   cosine      CosineAnnealingLR(t_max, eta_min); beyond t_max it rises again, as there
 *   plateau     ReduceLROnPlateau(factor, patience, threshold, cooldown, min_lr), mode min,
 * relative threshold, eps 1e-8; its metric is the mean training loss of all ranks and steps since
 * it was last looked at warm-up     LinearLR(warmup_factor, total_iters = warmup_steps), before
 * each of these and constant: it is stepped after every training step, and they after that, at the
 * end of an epoch or after every step, as the unit says
 *
 * State stands in a replica's loop part (train/state.h), so it is saved, restored, sent and altered
 * with it. Any number that an alteration left in it is computed with; cos is of the C library.
 */
#ifndef SDC_TRAIN_SCHEDULE_H
#define SDC_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "sdc/run.h"
#include "sdc/status.h"

enum sdc_schedule_kind {
    SDC_SCHEDULE_CONSTANT,
    SDC_SCHEDULE_STEP,
    SDC_SCHEDULE_MULTI_STEP,
    SDC_SCHEDULE_COSINE,
    SDC_SCHEDULE_PLATEAU
};

struct sdc_schedule {
    enum sdc_schedule_kind kind;
    double base_lr;
    const struct sdc_run_schedule *options; /* borrowed from the run */
};

/* What a schedule remembers; what it has no use for stays 0. */
struct sdc_schedule_state {
    double lr;                     /* current */
    int64_t last_epoch, warmed_up; /* PyTorch's last_epoch of the schedule, of the warm-up */
    double best, loss; /* plateau: least metric; sum of the losses of this unit so far */
    int64_t bad_epochs, cooldown;
};

/* Parts of the state that are in use, as flags. */
#define SDC_SCHEDULE_HAS_LR      1u
#define SDC_SCHEDULE_HAS_COUNT   2u
#define SDC_SCHEDULE_HAS_WARMUP  4u
#define SDC_SCHEDULE_HAS_PLATEAU 8u

/* SDC_UNSUPPORTED lists the known ones. */
enum sdc_status sdc_schedule_make(const struct sdc_run *run, struct sdc_schedule *s,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* 0: the rate is constant and there is no state. */
unsigned sdc_schedule_parts(const struct sdc_schedule *s);
/* The state before the first step. */
struct sdc_schedule_state sdc_schedule_start(const struct sdc_schedule *s);
/* After a training step. loss: mean over the ranks (plateau alone looks at it). ends_epoch: it was
 * the last of an epoch of steps_per_epoch steps. */
void sdc_schedule_after_step(const struct sdc_schedule *s, struct sdc_schedule_state *state,
                             double loss, bool ends_epoch, uint64_t steps_per_epoch);

#endif
