/* SPDX-License-Identifier: Apache-2.0
 *
 * One alteration on its way, in place or on a copy: the plan, the files that hold the changes
 * ("targets"), what is written into them, and the record.
 */
#ifndef SDC_ALTER_JOB_H
#define SDC_ALTER_JOB_H

#include "alter/alter_plan.h"
#include "alter/mend.h"
#include "alter/patches.h"
#include "sdc/alter.h"

struct sdc_job {
    const char *path;
    const struct sdc_choice *choice;
    const struct sdc_alter_options *options;
    struct sdc_plan plan;
    bool in_place; /* targets are the checkpoint's own files: locked, and checked for changes */
    /* By number of the checkpoint's file. */
    size_t n_files;
    struct sdc_file_pool *pool;
    char **targets;         /* paths; owned; NULL: the checkpoint's own */
    struct sdc_file *files; /* opened when needed; owned */
    struct sdc_file_identity *identities;
    struct sdc_map *views; /* of those with many sites, where the options allow it; else empty */
    struct sdc_ckpt
        *rewritten; /* the copy whose storage was written anew; NULL: plan.ckpt counts */
    struct sdc_patches patches;
    struct sdc_mending mending;
    uint64_t n_stale; /* checksums of storage that was written anew, left as they were */
    bool has_after;
    struct sdc_file_identity after;
    char *record; /* path once it is written; owned */
    uint64_t n_elements, n_altered, n_bits;
    struct sdc_mappers mappers; /* of files that are altered in place */
};

enum sdc_status sdc__job_init(struct sdc_job *job, const char *path,
                              const struct sdc_choice *choice,
                              const struct sdc_alter_options *options,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc__job_release(struct sdc_job *job);
/* The target of this number, open for reading and writing. */
enum sdc_status sdc__job_target(struct sdc_job *job, unsigned i, struct sdc_file **f,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* Old and new values of elements in storage that is written anew, from the checkpoint. */
enum sdc_status sdc__job_recoded_values(struct sdc_job *job, struct sdc_error *err) SDC_MUST_CHECK;
/* Writes that storage anew in the targets and finds where everything else is then. */
enum sdc_status sdc__job_recode(struct sdc_job *job, const char *reopen,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Old and new values of the other elements, from the targets, and the checksums they change. */
enum sdc_status sdc__job_values(struct sdc_job *job, struct sdc_error *err) SDC_MUST_CHECK;
/* Identities of the targets as they were, or, for one that was written anew, of `from`. */
enum sdc_status sdc__job_identities(struct sdc_job *job, const struct sdc_file *from,
                                    struct sdc_error *err) SDC_MUST_CHECK;
/* Writes, syncs, reads back. reopen: path of the copy, to read what was written anew; or NULL. */
enum sdc_status sdc__job_patch(struct sdc_job *job, const char *reopen,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* All of it for a plan without a list. */
enum sdc_status sdc__job_bulk(struct sdc_job *job, struct sdc_error *err) SDC_MUST_CHECK;
/* Puts the old values back after a failure in place; true if the files are as before. */
bool sdc__job_restore(struct sdc_job *job);
/* file: name of what holds the changes. */
enum sdc_status sdc__job_write_record(struct sdc_job *job, const char *file,
                                      struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__job_finish_record(struct sdc_job *job, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__job_drop_record(struct sdc_job *job);

/* copy.c: the whole alteration on a copy that gets the output's name, or replaces the file where
 * storage is written anew in place. */
/* SDC_USAGE and SDC_EXISTS for an output that must not be. */
enum sdc_status sdc__job_check_output(const struct sdc_job *job,
                                      struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__job_copy(struct sdc_job *job, struct sdc_error *err) SDC_MUST_CHECK;

#endif
