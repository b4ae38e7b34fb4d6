/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the trainer share: run descriptions with small defaults, their events, the
 * states that runs leave, and altered copies of checkpoints.
 */
#ifndef SDC_TESTS_TRAIN_KIT_H
#define SDC_TESTS_TRAIN_KIT_H

#include "test.h"

#include "sdc/events.h"
#include "sdc/run.h"
#include "train/files.h"
#include "train/train.h"

/* A run of `ranks` ranks on synthetic data, mlp, ref kernels, batch 8, momentum 0.9, output in a
 * fresh folder NAME.out; no evaluation. Asserts that the recipe exists. */
void kit_run(struct sdc_run *run, const char *name, const char *recipe, uint32_t ranks,
             uint64_t from, uint64_t to);
void kit_set(char **text, const char *value);
/* All ranks load this file. */
void kit_load(struct sdc_run *run, const char *path);
void kit_load_rank(struct sdc_run *run, unsigned rank, const char *path);
void kit_snapshot(struct sdc_run *run, uint64_t step);
void kit_save(struct sdc_run *run, const char *path, const char *format);

/* Carries it out; the status must be `want`. Events are read back (release with
 * sdc_events_release). err of the run is left in *err. */
void kit_train(struct sdc_trainer *t, const struct sdc_run *run, enum sdc_status want,
               struct sdc_event_list *events, struct sdc_error *err);
const struct sdc_event *kit_last(const struct sdc_event_list *events, enum sdc_event_kind kind);

/* A checkpoint of this run's model made by `steps` steps of single. */
void kit_checkpoint(struct sdc_trainer *t, const char *path, const char *model, uint64_t steps,
                    double momentum, double weight_decay);

/* Changes element `elem` of a flat tensor of a safetensors file; the rest is copied. */
void kit_alter(const char *from, const char *to, const char *tensor, uint64_t elem, float value);

/* Elements of model (part 0) or optimizer (part 1) tensors whose bits differ between two
 * safetensors files with the same tensors. */
uint64_t kit_differing(const char *a, const char *b, unsigned part);
/* The snapshot a run wrote. */
const char *kit_snapshot_path(const struct sdc_run *run, uint64_t step, unsigned rank);

bool kit_same_digests(const struct sdc_rank_digests *a, const struct sdc_rank_digests *b);

#endif
