/* SPDX-License-Identifier: Apache-2.0
 *
 * Altering checkpoint files: apply a fault list to a copy or in place, write the record ahead, read
 * back, undo. kill -9 at any moment leaves the old file, the new file, or one that undo restores.
 *
 * In place: lock, record synced (and its folder), patch, sync, read back, "verified". Copy: a
 * temporary file beside the output, patched, synced, read back; then the record, synced; then the
 * temporary gets the output's name; "verified". A record appears under its name complete or not at
 * all, and before the file it speaks of is touched or named.
 *
 *     struct sdc_alter_options options = {.output = "b.h5", .seed = 1};
 *     struct sdc_alter_result result;
 *     sdc_alter("a.h5", &choice, &options, &result, &err);
 *     printf("%llu altered, see %s", (unsigned long long)result.altered, result.record);
 *     sdc_alter_result_release(&result);
 *
 * Only bytes of planned sites are ever written. Altering in place reads and writes these and the
 * first and last 64 KiB, however large the file is. A file is never truncated, so that a process
 * that maps it goes on; one that is replaced (recoded storage, copies) stays as it is for who has
 * it open. Functions may be called from several threads on different files.
 */
#ifndef SDC_ALTER_H
#define SDC_ALTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/ckpt.h"
#include "sdc/fault.h"
#include "sdc/name_map.h"
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
    bool keep_original; /* in place, where storage is written anew: the file stays as FILE.orig */
    bool whole_digest;  /* identity includes the digest of the whole file */
    bool dry_run;       /* plan and values only; nothing is written, altered is 0 */
    uint64_t seed;      /* with block and trial: the stream of the sites */
    uint32_t block, trial;
    const struct sdc_ckpt_options *open; /* how the checkpoint is opened; may be NULL */
    const struct sdc_fault_list *list; /* not NULL: these faults (tensor = index in the checkpoint)
                                          instead of drawing; choice is only recorded */
    const char *origin;                /* for the record: where the list is from; may be NULL */
    unsigned threads;                  /* 0: one for each processor; results are the same */
    bool may_map; /* a file with many sites may be mapped to look at them, which is faster; should
                     another program shorten it meanwhile, or the disk fail to give a page, the
                     process gets SIGBUS. Like any death of it that leaves the old file, the new
                     one, or one that the record restores */
    size_t max_changes; /* not 0: the result need not list more changes than these. With no_record
                           many sites are then altered without any list of them */
};

struct sdc_alter_result {
    uint64_t support_sites;      /* size of the support */
    uint64_t removed_sites;      /* that not_result took out of it */
    uint64_t planned;            /* distinct sites planned */
    uint64_t attempts, happened; /* of sample attempts, see struct sdc_fault_list; else 0 */
    uint64_t altered;            /* elements that differ from before, as read back */
    uint64_t altered_bits;       /* bits that differ from before, as read back */
    uint64_t unchanged;          /* planned elements whose value was already the new one */
    uint64_t mended;             /* stored checksums changed with what they cover, each place */
    uint64_t stale_sums;         /* checksums that are wrong now, as choice.checksum asked for */
    const char *stale_readers;   /* who notices, where stale_sums > 0; static */
    uint64_t unknown_sums;       /* checksums that the file's writer left out, and stay so */
    uint64_t wrong_sums; /* checksums that were wrong before and stay so, where that is known */
    uint64_t moved_sums; /* of them, those that were changed and are wrong by the same difference */
    uint64_t unchecked_sums; /* mended, and not compared with what they covered before: they cover
                                more bytes than are read for that, 16 MiB in all */
    uint64_t recoded;        /* elements whose storage was written anew */
    uint64_t mappers;  /* in place: other processes seen to map the file, who see each change at
                          once (of the same user, to root of all; not looked for with no_sync) */
    uint64_t mapper;   /* the lowest process id of them */
    char *record;      /* path of the record; NULL if none; free with sdc_text_free */
    uint64_t elements; /* planned; of each the result lists a change, but see max_changes */
    struct sdc_record_change *changes; /* by tensor and element; owned with their texts */
    size_t n_changes;
};

SDC_API void sdc_alter_result_release(struct sdc_alter_result *r);

/* No flips and an empty support are results: the output is byte-identical. On failure nothing is
 * lost or half written: the input is unchanged or, where putting the old values back failed as
 * well, the record says how to restore it. SDC_USAGE where input and output are the same file,
 * SDC_EXISTS, SDC_BUSY where another process holds a lock or changed the file meanwhile, and what
 * sdc_ckpt_open, sdc_ckpt_map and sdc_fault_list_draw return. result is untouched on failure; else
 * release it. */
SDC_API enum sdc_status sdc_alter(const char *path, const struct sdc_choice *choice,
                                  const struct sdc_alter_options *options,
                                  struct sdc_alter_result *result,
                                  struct sdc_error *err) SDC_MUST_CHECK;

struct sdc_undo_result {
    uint64_t restored; /* elements that held the new bytes and now hold the old */
    uint64_t already;  /* elements that held the old bytes already */
    bool bytes_differ; /* storage was written anew: the values are as before, the bytes are not */
    char *file;        /* the file that was restored; free with sdc_text_free */
};

/* Restores the file of the record, or `path` if not NULL: beside a record of the usual name (as
 * record_path above) the file of that name; else the file as it was named when it was altered, or
 * if that is not there the one beside the record or of the record's name. SDC_INVALID for a record
 * that was cut short, SDC_MISMATCH where another record beside the file has to be undone first. At
 * each site old or new bytes are accepted, and an element torn at a block boundary by a crash; a
 * third value is SDC_MISMATCH and nothing is changed. So are another size or identity. May be
 * repeated, also after a crash of its own. result is untouched on failure; else free its file. */
SDC_API enum sdc_status sdc_undo(const char *record_path, const char *path, bool no_sync,
                                 struct sdc_undo_result *result,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* ---- the same faults elsewhere ---- */

struct sdc_replay_options {
    struct sdc_alter_options alter; /* seed, block, trial, list and origin are not looked at */
    const struct sdc_name_map *map; /* which tensor is which (sdc/name_map.h); NULL: by name */
    const char *from;  /* the checkpoint that the record speaks of, for the shapes of its tensors;
                          NULL: those that it tells, else worked out from the other side's */
    bool exact;        /* refuse unless every element holds the value that the record found there */
    bool skip_missing; /* leave out changes of tensors that have no counterpart; else refuse */
};

struct sdc_replay_result {
    struct sdc_alter_result alter;
    uint64_t changes; /* in the record */
    uint64_t skipped; /* of them, by skip_missing */
};

/* Does to the checkpoint at path what a record says was done to another: each change's operator on
 * the same element's own value, under the map. Bits need an element of the same type; a value is
 * rounded to the type, a factor multiplies any, a random value is drawn by the same number. The new
 * record has the choice and seed of the old one and names it as its origin; its support is the one
 * that the choice has here. SDC_MISMATCH naming the tensor where one has no counterpart, another
 * type, or a shape in which the record's element is elsewhere, where exact fails, and for a record
 * that was cut short; else as sdc_alter. result is untouched on failure; else release
 * result->alter. */
SDC_API enum sdc_status sdc_replay(const char *record_path, const char *path,
                                   const struct sdc_replay_options *options,
                                   struct sdc_replay_result *result,
                                   struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
