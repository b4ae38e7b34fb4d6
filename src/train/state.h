/* SPDX-License-Identifier: Apache-2.0
 *
 * One replica: parameters, momentum, and the loop's counters, as tensors with names and as flat
 * vectors to compute with. Not its gradients, and nothing about other ranks.
 *
 * The loop part, which a restart needs to see the same batches:
 *   loop/step    i64 []   steps done
 *   loop/epoch   i64 []   epochs begun before this one
 *   loop/cursor  i64 []   batches done in this epoch
 *   loop/rng     u32 [4]  counter of the data order's Philox stream (purpose, block, epoch whose
 *                         permutation is in use, draw); its key is the run's data seed
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

#define SDC_STATE_LOOP_TENSORS 4

struct sdc_loop_state {
    int64_t step, epoch, cursor;
    uint32_t rng[4];
};

struct sdc_train_state {
    const struct sdc_model *model; /* borrowed */
    float *params;                 /* flat; owned */
    float *momentum;               /* flat; owned */
    bool keeps_momentum;           /* the optimizer has momentum at all */
    bool has_optimizer; /* the optimizer's state exists: loaded, or made by a first step */
    struct sdc_loop_state loop;
    /* model, loop, momentum in this order, so that the present ones are a prefix */
    struct sdc_tensor_view views[2 * SDC_MODEL_MAX_PARAMS + SDC_STATE_LOOP_TENSORS];
};

/* Memory for one replica of this model, all zero. The model is borrowed, and the struct must stay
 * where it is: its views point into it. SDC_NO_MEMORY. */
enum sdc_status sdc_train_state_init(struct sdc_train_state *s, const struct sdc_model *model,
                                     struct sdc_error *err) SDC_MUST_CHECK;
void sdc_train_state_release(struct sdc_train_state *s);

/* Fresh weights of this seed, no optimizer state, loop at its beginning. */
void sdc_train_state_fresh(struct sdc_train_state *s, uint64_t seed_init, bool keeps_momentum);

/* The loop state of a fresh start. */
struct sdc_loop_state sdc_loop_state_fresh(void);
/* Moves on by one batch and says which: *step is the global step (of sdc/data.h) whose batch it is,
 * given the steps of an epoch. */
void sdc_loop_state_next(struct sdc_loop_state *loop, uint64_t steps_per_epoch, uint64_t *step);

/* The tensors there are now, *n of them, borrowed. */
const struct sdc_tensor_view *sdc_train_state_views(const struct sdc_train_state *s, size_t *n);
/* Only those of the model and the optimizer, for snapshots: into views[] (room for
 * 2 * SDC_MODEL_MAX_PARAMS); returns how many. */
size_t sdc_train_state_snapshot_views(const struct sdc_train_state *s,
                                      struct sdc_tensor_view *views);

/* All digests. SDC_NO_MEMORY. */
enum sdc_status sdc_train_state_digests(const struct sdc_train_state *s,
                                        struct sdc_rank_digests *digests,
                                        struct sdc_error *err) SDC_MUST_CHECK;

#endif
