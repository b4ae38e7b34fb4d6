/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/alter.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "alter/alter_plan.h"
#include "alter/alter_record.h"
#include "alter/alter_sites.h"
#include "base/alloc.h"

/* One alteration on its way. */
struct job {
    const char *path;
    const struct sdc_choice *choice;
    const struct sdc_alter_options *options;
    struct sdc_plan plan;
    struct sdc_sites sites; /* over plan.changes */
    uint64_t *now;          /* by_offset, as last read; owned */
    struct sdc_file_identity identity;
    char *record; /* path once it is written; owned */
    uint64_t n_altered, n_bits;
};

void sdc_alter_result_release(struct sdc_alter_result *r) {
    sdc_text_free(r->record);
    sdc__free(r->changes); /* the texts are in the same block */
    *r = (struct sdc_alter_result){0};
}

static void job_release(struct job *job) {
    sdc__sites_release(&job->sites);
    sdc__plan_release(&job->plan);
    sdc__free(job->now);
    sdc__free(job->record);
}

/* Reads the old values from f and works out the new ones. */
static enum sdc_status load_values(struct job *job, const struct sdc_file *f,
                                   struct sdc_error *err) {
    struct sdc_plan *plan = &job->plan;
    SDC_TRY(sdc__sites_init(&job->sites, plan->changes, plan->n_changes, f->size, err));
    job->now = sdc__alloc(plan->n_changes, sizeof *job->now);
    if (!job->now)
        return SDC_NOMEM(err, "the values of the sites");
    SDC_TRY(sdc__sites_read(&job->sites, f, job->now, err));
    for (size_t i = 0; i < job->sites.n; i++) {
        struct sdc_record_change *c = &plan->changes[job->sites.by_offset[i] - plan->changes];
        struct sdc_fault fault = {.op = c->op, .bits = c->bits, .value = c->new_raw};
        c->old_raw = job->now[i];
        c->new_raw = sdc_fault_apply(&fault, c->dtype, c->old_raw, c->new_raw);
    }
    return SDC_OK;
}

/* Writes the new values, syncs, and counts what is read back. */
static enum sdc_status patch(struct job *job, struct sdc_file *f, struct sdc_error *err) {
    SDC_TRY(sdc__sites_write(&job->sites, f, SDC_SIDE_NEW, job->now, err));
    if (!job->options->no_sync && job->sites.n > 0)
        SDC_TRY(sdc__file_sync(f, err));
    SDC_TRY(sdc__sites_read(&job->sites, f, job->now, err));
    job->n_altered = job->n_bits = 0;
    for (size_t i = 0; i < job->sites.n; i++) {
        const struct sdc_record_change *c = job->sites.by_offset[i];
        if (job->now[i] != c->new_raw) {
            char text[SDC_SITE_TEXT];
            sdc__site_text(c, text);
            return SDC_ERR_AT(err, SDC_IO, c->offset,
                              "%s: %s was written as %#llx and reads back as %#llx", f->path, text,
                              (unsigned long long)c->new_raw, (unsigned long long)job->now[i]);
        }
        job->n_altered += c->new_raw != c->old_raw;
        job->n_bits += (unsigned)__builtin_popcountll(c->new_raw ^ c->old_raw);
    }
    return SDC_OK;
}

static enum sdc_status write_record(struct job *job, const char *file, struct sdc_error *err) {
    if (job->options->no_record)
        return SDC_OK;
    struct sdc_record_header header = {
        .tool = (char *)(uintptr_t) "sdclab " SDC_VERSION,
        .seed = job->options->seed,
        .choice = *job->choice,
        .support_bits = job->plan.support_sites,
        .removed_bits = job->plan.removed_sites,
        .planned = job->plan.n_sites,
        .elements = job->plan.n_changes,
        .attempts = job->plan.attempts,
        .happened = job->plan.happened,
        .source = (char *)(uintptr_t)job->path,
        .file = (char *)(uintptr_t)file,
        .format = job->plan.format,
        .identity = job->identity,
        .synced = !job->options->no_sync,
        .origin = (char *)(uintptr_t)job->options->origin,
    };
    return sdc__record_create(job->options->record_path, &header, job->plan.changes,
                              job->plan.n_changes, job->plan.stamp.mode, !job->options->no_sync,
                              &job->record, err);
}

static enum sdc_status finish_record(struct job *job, struct sdc_error *err) {
    if (!job->record)
        return SDC_OK;
    enum sdc_status st = sdc__record_finish(job->record, job->plan.n_changes, job->n_bits,
                                            !job->options->no_sync, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "the file is altered and its record complete but for the last line");
    return st;
}

static void drop_record(struct job *job) {
    enum sdc_status st = job->record ? sdc__remove_file(job->record, NULL) : SDC_OK;
    (void)st; /* the failure that led here is the one to report */
}

/* ---- in place ---- */

/* Puts the old values back after a failure; true if the file is as before. */
static bool restore(struct job *job, struct sdc_file *f) {
    if (sdc__sites_read(&job->sites, f, job->now, NULL) != SDC_OK ||
        sdc__sites_write(&job->sites, f, SDC_SIDE_OLD, job->now, NULL) != SDC_OK ||
        (!job->options->no_sync && sdc__file_sync(f, NULL) != SDC_OK) ||
        sdc__sites_read(&job->sites, f, job->now, NULL) != SDC_OK)
        return false;
    for (size_t i = 0; i < job->sites.n; i++)
        if (job->now[i] != job->sites.by_offset[i]->old_raw)
            return false;
    return true;
}

static enum sdc_status in_place(struct job *job, struct sdc_error *err) {
    struct sdc_file f = SDC_FILE_INIT;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__file_open(job->path, SDC_FILE_UPDATE, &f, err));
    SDC_TRY_OUT(st, sdc__lock_where_possible(&f, true, err));
    SDC_TRY_OUT(st, sdc__stamp_check(&f, &job->plan.stamp, err));
    SDC_TRY_OUT(st, load_values(job, &f, err));
    SDC_TRY_OUT(
        st, sdc__sites_identity(&job->sites, &f, job->options->whole_digest, &job->identity, err));
    SDC_TRY_OUT(st, write_record(job, job->path, err));
    st = patch(job, &f, err);
    if (st == SDC_OK) {
        st = finish_record(job, err);
    } else if (restore(job, &f)) {
        drop_record(job);
        sdc_error_prefix(err, "nothing was changed");
    } else if (job->record) {
        sdc_error_prefix(err, "altered in part, undo %s restores it", job->record);
    } else {
        sdc_error_prefix(err, "altered in part, and there is no record");
    }
out:
    sdc__file_close(&f);
    return st;
}

/* ---- copy ---- */

static enum sdc_status check_output(const struct job *job, struct sdc_error *err) {
    const char *output = job->options->output;
    if (sdc__stamp_names(&job->plan.stamp, output))
        return SDC_ERR(err, SDC_USAGE,
                       "%s and %s are the same file; alter it in place, or name "
                       "another output",
                       job->path, output);
    if (!job->options->replace && sdc__path_exists(output))
        return SDC_ERR(err, SDC_EXISTS, "%s: exists already", output);
    return SDC_OK;
}

/* Nobody may read the copy who may not read the original. */
static enum sdc_status narrow_mode(const struct sdc_file *from, struct sdc_replace *to,
                                   struct sdc_error *err) {
    struct stat a, b;
    if (fstat(from->fd, &a) != 0 || fstat(to->file.fd, &b) != 0 ||
        fchmod(to->file.fd, a.st_mode & b.st_mode & 0777) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: copy the permissions", to->file.path);
    to->withheld = ~a.st_mode & 07777;
    return SDC_OK;
}

/* The record first, then the name; without the name there is no record. */
static enum sdc_status publish(struct job *job, struct sdc_replace *r, struct sdc_error *err) {
    struct sdc_stamp stamp;
    const char *output = job->options->output;
    enum sdc_status st = sdc__stamp_take(&r->file, &stamp, err);
    if (st == SDC_OK)
        st = write_record(job, output, err);
    if (st != SDC_OK) {
        sdc__replace_abandon(r);
        return st;
    }
    struct stat a, b;
    if (job->record && stat(job->record, &a) == 0 && stat(output, &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
        sdc__replace_abandon(r);
        drop_record(job);
        return SDC_ERR(err, SDC_USAGE, "%s: is the output and the record", output);
    }
    st = sdc__replace_commit(r, !job->options->no_sync, err);
    if (st == SDC_OK)
        return finish_record(job, err);
    if (!sdc__stamp_names(&stamp, output)) /* else it is there, but its folder was not synced */
        drop_record(job);
    return st;
}

/* The whole altered copy, under its temporary name. */
static enum sdc_status fill_copy(struct job *job, const struct sdc_file *from,
                                 struct sdc_replace *r, struct sdc_error *err) {
    struct sdc_file *to = &r->file;
    SDC_TRY(narrow_mode(from, r, err));
    SDC_TRY(sdc__file_copy(from, to, err));
    SDC_TRY(sdc__stamp_check(from, &job->plan.stamp, err));
    SDC_TRY(load_values(job, to, err));
    SDC_TRY(sdc__sites_identity(&job->sites, to, job->options->whole_digest, &job->identity, err));
    return patch(job, to, err);
}

static enum sdc_status copy(struct job *job, struct sdc_error *err) {
    struct sdc_file from = SDC_FILE_INIT;
    struct sdc_replace r = SDC_REPLACE_INIT;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__file_open(job->path, SDC_FILE_READ, &from, err));
    SDC_TRY_OUT(st, sdc__lock_where_possible(&from, false, err));
    SDC_TRY_OUT(st, sdc__stamp_check(&from, &job->plan.stamp, err));
    SDC_TRY_OUT(st, sdc__replace_begin(job->options->output, job->options->replace, &r, err));
    st = fill_copy(job, &from, &r, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", job->options->output); /* the messages name the temporary */
    else
        st = publish(job, &r, err);
out:
    sdc__replace_abandon(&r);
    sdc__file_close(&from);
    return st;
}

/* Only the values, for showing what would be done. */
static enum sdc_status look(struct job *job, struct sdc_error *err) {
    struct sdc_file f;
    SDC_TRY(sdc__file_open(job->path, SDC_FILE_READ, &f, err));
    enum sdc_status st = load_values(job, &f, err);
    sdc__file_close(&f);
    return st;
}

static void hand_over(struct job *job, struct sdc_alter_result *result) {
    uint64_t unchanged = 0;
    for (size_t i = 0; i < job->plan.n_changes; i++)
        unchanged += job->plan.changes[i].old_raw == job->plan.changes[i].new_raw;
    *result = (struct sdc_alter_result){
        .support_sites = job->plan.support_sites,
        .removed_sites = job->plan.removed_sites,
        .planned = job->plan.n_sites,
        .attempts = job->plan.attempts,
        .happened = job->plan.happened,
        .altered = job->n_altered,
        .altered_bits = job->n_bits,
        .unchanged = unchanged,
        .record = job->record,
        .changes = job->plan.changes,
        .n_changes = job->plan.n_changes,
    };
    job->record = NULL;
    job->plan.changes = NULL;
}

enum sdc_status sdc_alter(const char *path, const struct sdc_choice *choice,
                          const struct sdc_alter_options *options, struct sdc_alter_result *result,
                          struct sdc_error *err) {
    struct job job = {.path = path, .choice = choice, .options = options};
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__plan_make(path, choice, options, &job.plan, err));
    if (options->output)
        SDC_TRY_OUT(st, check_output(&job, err));
    if (options->dry_run)
        st = look(&job, err);
    else
        st = options->output ? copy(&job, err) : in_place(&job, err);
    if (st == SDC_OK)
        hand_over(&job, result);
out:
    job_release(&job);
    return st;
}
