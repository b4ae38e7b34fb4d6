/* SPDX-License-Identifier: Apache-2.0
 *
 * Altering checkpoint files: apply a fault list to a copy or in place, write the record ahead, read
 * back, undo. kill -9 at any moment leaves the old file, the new file, or one that undo restores.
 *
 * In place: lock, record synced (and its folder), patch, sync, read back, "verified". Copy: the
 * record first, then a temporary file beside the output, patched, synced, read back and renamed.
 */
#ifndef SDC_ALTER_H
#define SDC_ALTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/fault.h"
#include "sdc/record.h"
#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sdc_alter_options {
    const char *output;      /* path of the copy; NULL: in place */
    bool replace;            /* an existing output may be replaced */
    const char *record_path; /* NULL: FILE.sdc.jsonl beside the altered file (FILE.2.sdc.jsonl, ...
                                if it exists: an existing record is never overwritten) */
    bool no_record;
    bool no_sync;
    bool whole_digest; /* identity includes the digest of the whole file */
    bool dry_run;      /* plan only; nothing is written */
    uint64_t seed;     /* with block and trial: the stream of the sites */
    uint32_t block, trial;
    const struct sdc_fault_list *list; /* not NULL: these faults (tensor = index in the checkpoint)
                                          instead of drawing; choice is only recorded */
};

struct sdc_alter_result {
    uint64_t support_sites; /* size of the support */
    uint64_t planned;       /* distinct sites planned */
    uint64_t altered;       /* elements that differ from before, as read back */
    uint64_t altered_bits;  /* bits that differ from before, as read back */
    uint64_t unchanged;     /* planned elements whose value was already the new one (--op value) */
    char *record;           /* path of the record; NULL if none; free with sdc_text_free */
    struct sdc_record_change *changes; /* owned; n_changes */
    size_t n_changes;
};

SDC_API void sdc_alter_result_release(struct sdc_alter_result *r);

/* `--flips 0` and an empty support are results: the output is byte-identical. On failure nothing is
 * lost or half written: the input is unchanged or the record says how to restore it. */
SDC_API enum sdc_status sdc_alter(const char *path, const struct sdc_choice *choice,
                                  const struct sdc_alter_options *options,
                                  struct sdc_alter_result *result,
                                  struct sdc_error *err) SDC_MUST_CHECK;

struct sdc_undo_result {
    uint64_t restored; /* elements that held the new bytes and now hold the old */
    uint64_t already;  /* elements that held the old bytes already */
    char *file;        /* the file that was restored; free with sdc_text_free */
};

/* Restores the file named in the record, or `path` if not NULL. At each site old or new bytes are
 * accepted; a third value is SDC_MISMATCH and nothing is changed. So are another size or identity.
 */
SDC_API enum sdc_status sdc_undo(const char *record_path, const char *path, bool no_sync,
                                 struct sdc_undo_result *result,
                                 struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
