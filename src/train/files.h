/* SPDX-License-Identifier: Apache-2.0
 *
 * A replica's state in checkpoint files: reading all of it at once, saving, snapshots. Formats are
 * sdc/ckpt.h's business. Nothing here talks to other ranks.
 */
#ifndef SDC_TRAIN_FILES_H
#define SDC_TRAIN_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "sdc/status.h"
#include "train/state.h"

/* Reads a whole checkpoint into *s (initialised; its old values are lost). Everything the model
 * has must be there in its type and shape, and nothing else: else SDC_MISMATCH with tensor, found,
 * expected; so it is if loop/step is not `step`. The optimizer's state must be there if
 * it keeps any, but may be missing at step 0. SDC_INVALID: a damaged file, or a generator state
 * that is none of the data order's. Of sdc_ckpt_open: SDC_NOT_FOUND, SDC_IO, SDC_UNSUPPORTED.
 * digest (NULL: not asked): of all tensors of the file. */
enum sdc_status sdc_train_load(const char *path, uint64_t step, struct sdc_train_state *s,
                               struct sdc_state_digest *digest,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* The loop's counters alone, without a schedule's. Statuses as above. */
enum sdc_status sdc_train_load_loop(const char *path, struct sdc_loop_state *loop,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* Writes all of it; an existing file is replaced, at once. SDC_IO (a full disk among it). */
enum sdc_status sdc_train_save(const struct sdc_train_state *s, const char *path,
                               const char *format, struct sdc_error *err) SDC_MUST_CHECK;

/* The pattern with its first {step} replaced; NULL: no memory. Free with sdc__free. */
char *sdc_train_save_path(const char *pattern, uint64_t step) SDC_MUST_CHECK;
/* Would a save there at this step find a folder that takes files, and no folder in its own place?
 * Tried with a temporary file, which is removed. SDC_IO, SDC_NOT_FOUND, SDC_EXISTS. */
enum sdc_status sdc_train_check_save(const char *pattern, uint64_t step,
                                     struct sdc_error *err) SDC_MUST_CHECK;

/* FOLDER/snapshot-STEP-rank-RANK.safetensors; NULL: no memory. Free with sdc__free. */
char *sdc_train_snapshot_path(const char *folder, uint64_t step, unsigned rank) SDC_MUST_CHECK;
/* Model and optimizer into that file; not synced. */
enum sdc_status sdc_train_snapshot(const struct sdc_train_state *s, const char *folder,
                                   unsigned rank, struct sdc_error *err) SDC_MUST_CHECK;

#endif
