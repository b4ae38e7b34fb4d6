/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's batches: which samples, gathered and changed. A thread gathers the next batch while the
 * rank computes, into memory of its own; where it guessed wrong (after a restart, in another run)
 * or could not be started, the batch is gathered in the call. What comes out is a function of the
 * arguments alone.
 *
 * One thread per object besides its own.
 */
#ifndef SDC_TRAIN_FEED_H
#define SDC_TRAIN_FEED_H

#include <stdint.h>

#include "sdc/data.h"
#include "sdc/status.h"

struct sdc_feed;

/* SDC_INVALID: too few samples for one step; SDC_NO_MEMORY. */
enum sdc_status sdc_feed_new(const struct sdc_sharding *sharding, uint32_t rank,
                             struct sdc_feed **out, struct sdc_error *err) SDC_MUST_CHECK;
void sdc_feed_free(struct sdc_feed *feed); /* accepts NULL */
const struct sdc_sharding *sdc_feed_sharding(const struct sdc_feed *feed);

/* The batch of this global step (of sdc_sampler_batch): images (batch, channels, height, width) and
 * labels (batch). Then the one of `next` is begun, from the same set, which must stay until
 * sdc_feed_rest. */
enum sdc_status sdc_feed_batch(struct sdc_feed *feed, const struct sdc_dataset *set,
                               const struct sdc_augment *augment, uint64_t step, uint64_t next,
                               float *images, int32_t *labels,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Forgets what was begun; the data set is not used any more. Accepts NULL. */
void sdc_feed_rest(struct sdc_feed *feed);

#endif
