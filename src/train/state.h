/* SPDX-License-Identifier: Apache-2.0
 *
 * One replica: parameters, optimizer state, and the loop's counters, as tensors with names and as
 * flat vectors to compute with. Not its gradients, and nothing about other ranks.
 *
 * The model part: its parameters, then its buffers, named as in train/model.h.
 *
 * The optimizer part, with PyTorch's names of what torch.optim keeps, once there is any:
 *   optimizer/NAME/momentum                 as the parameter; of SGD with momentum
 *   optimizer/NAME/exp_avg, .../exp_avg_sq  as the parameter; of Adam and AdamW
 *   optimizer/NAME/step                     f32 []; of Adam and AdamW, one a parameter
 *
 * The loop part, which a restart needs to see the same batches:
 *   loop/step    i64 []   steps done
 *   loop/epoch   i64 []   epochs begun before this one
 *   loop/cursor  i64 []   batches done in this epoch
 *   loop/rng     u32 [4]  counter of the data order's Philox stream (purpose, block, epoch whose
 *                         permutation is in use, draw); its key is the run's data seed
 * and, as far as the learning rate's schedule has a use for them (train/schedule.h):
 *   loop/lr                         f64 []  current learning rate; else it is the run's
 *   loop/schedule/last_epoch        i64 []  steps of the schedule
 *   loop/warmup/last_epoch          i64 []  steps of the warm-up
 *   loop/schedule/best, .../loss    f64 []  of plateau, as the next two
 *   loop/schedule/num_bad_epochs, .../cooldown_counter   i64 []
 * An epoch that begins sets the third word of loop/rng to loop/epoch, as set_epoch of PyTorch's
 * sampler does. A cursor before the epoch's first batch counts as 0, one past its end ends it.
 */
#ifndef SDC_TRAIN_STATE_H
#define SDC_TRAIN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/events.h"
#include "sdc/status.h"
#include "sdc/tensor.h"
#include "train/model.h"
#include "train/schedule.h"

#define SDC_STATE_LOOP_TENSORS 11 /* at most */
#define SDC_STATE_NAME_SIZE    (SDC_MODEL_NAME_SIZE + 24)

struct sdc_loop_state {
    int64_t step, epoch, cursor;
    uint32_t rng[4];
    struct sdc_schedule_state schedule;
};

/* What the optimizer keeps for every parameter. */
enum sdc_state_keeps {
    SDC_KEEPS_NOTHING,
    SDC_KEEPS_MOMENTUM,
    SDC_KEEPS_MOMENTS /* two, and a counter */
};

#define SDC_STATE_MAX_SLOTS 2 /* tensors of the parameter's shape */

struct sdc_train_state {
    const struct sdc_model *model; /* borrowed */
    enum sdc_state_keeps keeps;
    unsigned schedule;                 /* SDC_SCHEDULE_HAS_... */
    size_t n_loop;                     /* tensors of the loop */
    float *params;                     /* flat; owned */
    float *buffers;                    /* model->buffer_flat; owned */
    int64_t *counters;                 /* model->n_counters, of the buffers; owned */
    float *slots[SDC_STATE_MAX_SLOTS]; /* flat; owned; momentum, or exp_avg and exp_avg_sq; NULL
                                          where the optimizer does not keep it */
    float *steps;                      /* [n_params]; owned; with MOMENTS */
    bool has_optimizer; /* the optimizer's state exists: loaded, or made by a first step */
    struct sdc_loop_state loop;
    /* parameters, buffers, loop, optimizer in this order, so that the present ones are a prefix */
    struct sdc_tensor_view *views;
    char (*names)[SDC_STATE_NAME_SIZE]; /* of the optimizer's tensors */
    size_t n_optimizer;
};

/* Memory for one replica of this model, all zero. schedule: SDC_SCHEDULE_HAS_.... The model is
 * borrowed, and the struct must stay where it is: its views point into it. SDC_NO_MEMORY. */
enum sdc_status sdc_train_state_init(struct sdc_train_state *s, const struct sdc_model *model,
                                     enum sdc_state_keeps keeps, unsigned schedule,
                                     struct sdc_error *err) SDC_MUST_CHECK;
void sdc_train_state_release(struct sdc_train_state *s);

/* Fresh weights of this seed, fresh buffers, no optimizer state, loop and schedule at their
 * beginning. */
void sdc_train_state_fresh(struct sdc_train_state *s, uint64_t seed_init,
                           const struct sdc_schedule *schedule);
/* Takes over the parameters and buffers of another replica of the same model. */
void sdc_train_state_copy_model(struct sdc_train_state *s, const struct sdc_train_state *from);
/* Takes over the optimizer's state of another replica of the same model and optimizer. */
void sdc_train_state_copy_optimizer(struct sdc_train_state *s, const struct sdc_train_state *from);

/* The loop state of a fresh start. */
struct sdc_loop_state sdc_loop_state_fresh(void);
/* Moves on by one batch and says which: *step is the global step (of sdc/data.h) whose batch it is,
 * given the steps of an epoch. */
void sdc_loop_state_next(struct sdc_loop_state *loop, uint64_t steps_per_epoch, uint64_t *step);

/* The tensors there are now, *n of them, borrowed. */
const struct sdc_tensor_view *sdc_train_state_views(const struct sdc_train_state *s, size_t *n);
/* How many of them are the model's; they come first. */
size_t sdc_train_state_n_model(const struct sdc_train_state *s);
/* Those of the optimizer alone: none where there is no state yet. */
const struct sdc_tensor_view *sdc_train_state_optimizer_views(const struct sdc_train_state *s,
                                                              size_t *n);

/* All digests. SDC_NO_MEMORY. */
enum sdc_status sdc_train_state_digests(const struct sdc_train_state *s,
                                        struct sdc_rank_digests *digests,
                                        struct sdc_error *err) SDC_MUST_CHECK;

#endif
