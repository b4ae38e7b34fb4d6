/* SPDX-License-Identifier: Apache-2.0
 *
 * Altering on a copy: of a file under a temporary name beside the output, of a set in a temporary
 * folder; whole, synced and read back before it gets its name.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "alter/job.h"
#include "base/alloc.h"

/* The trailing slashes of a folder are no part of its name. */
static char *trimmed(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return sdc__strndup(path, n);
}

enum sdc_status sdc__job_check_output(const struct sdc_job *job, struct sdc_error *err) {
    const char *output = job->options->output;
    if (!output)
        return SDC_OK;
    for (size_t i = 0; i < job->n_files; i++)
        if (sdc__stamp_names(&job->plan.stamps[i], output))
            return SDC_ERR(err, SDC_USAGE,
                           "%s and %s are the same file; alter it in place, or name "
                           "another output",
                           job->path, output);
    if ((!job->options->replace || job->plan.is_set) && sdc__path_exists(output))
        return SDC_ERR(err, SDC_EXISTS, "%s: exists already%s", output,
                       job->options->replace ? "; a folder of files is never replaced" : "");
    return SDC_OK;
}

/* The record first, then the name; without the name there is no record. commit gives the name. */
typedef enum sdc_status commit_fn(struct sdc_job *job, void *state, struct sdc_error *err);

static enum sdc_status publish(struct sdc_job *job, const char *output, commit_fn *commit,
                               void *state, bool (*is_there)(void *state, const char *output),
                               struct sdc_error *err) {
    SDC_TRY(sdc__job_write_record(job, output, err));
    struct stat a, b;
    if (job->record && stat(job->record, &a) == 0 && stat(output, &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
        sdc__job_drop_record(job);
        return SDC_ERR(err, SDC_USAGE, "%s: is the output and the record", output);
    }
    enum sdc_status st = commit(job, state, err);
    if (st == SDC_OK)
        return sdc__job_finish_record(job, err);
    if (!is_there(state, output)) /* else it is there, but its folder was not synced */
        sdc__job_drop_record(job);
    return st;
}

/* ---- a file ---- */

struct file_copy {
    struct sdc_file from;
    struct sdc_replace to;
    struct sdc_stamp stamp; /* of the temporary */
    const char *output;
};

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

/* The whole altered copy, under its temporary name. */
static enum sdc_status fill_file(struct sdc_job *job, struct file_copy *c, struct sdc_error *err) {
    const char *temporary = c->to.file.path;
    const bool recoded = job->plan.n_recoded > 0;
    struct sdc_file *to;
    job->targets[0] = sdc__strdup(temporary);
    if (!job->targets[0])
        return SDC_NOMEM(err, "the alteration");
    SDC_TRY(narrow_mode(&c->from, &c->to, err));
    SDC_TRY(sdc__file_copy(&c->from, &c->to.file, err));
    SDC_TRY(sdc__stamp_check(&c->from, &job->plan.stamps[0], err));
    if (job->plan.bulk) {
        SDC_TRY(sdc__job_bulk(job, err));
        return sdc__stamp_take(&c->to.file, &c->stamp, err);
    }
    SDC_TRY(sdc__job_recoded_values(job, err));
    SDC_TRY(sdc__job_recode(job, temporary, err));
    SDC_TRY(sdc__job_values(job, err));
    SDC_TRY(sdc__job_identities(job, recoded ? &c->from : NULL, err));
    SDC_TRY(sdc__job_patch(job, temporary, err));
    if (recoded) {
        SDC_TRY(sdc__job_target(job, 0, &to, err));
        SDC_TRY(sdc__patches_identity(NULL, 0, to, job->options->whole_digest, &job->after, err));
        job->has_after = true;
    }
    return sdc__stamp_take(&c->to.file, &c->stamp, err);
}

static bool file_is_there(void *state, const char *output) {
    const struct file_copy *c = state;
    return sdc__stamp_names(&c->stamp, output);
}

static enum sdc_status commit_file(struct sdc_job *job, void *state, struct sdc_error *err) {
    struct file_copy *c = state;
    char *kept = NULL;
    if (job->options->keep_original && job->in_place)
        SDC_TRY(sdc__keep_original(job->path, &kept, err));
    enum sdc_status st = sdc__replace_commit(&c->to, !job->options->no_sync, err);
    if (st != SDC_OK && kept && !file_is_there(c, c->output)) {
        enum sdc_status removed = sdc__remove_file(kept, NULL);
        (void)removed; /* a second name of a file that is as it was */
    }
    sdc__free(kept);
    return st;
}

static enum sdc_status copy_file(struct sdc_job *job, struct sdc_error *err) {
    struct file_copy c = {.from = SDC_FILE_INIT, .to = SDC_REPLACE_INIT};
    const bool in_place = job->in_place; /* storage is written anew: on a copy all the same */
    enum sdc_status st;
    c.output = in_place ? job->path : job->options->output;
    SDC_TRY_OUT(st,
                sdc__file_open(sdc_ckpt_file(job->plan.ckpt, 0).path, SDC_FILE_READ, &c.from, err));
    SDC_TRY_OUT(st, sdc__lock_where_possible(&c.from, in_place, err));
    SDC_TRY_OUT(st, sdc__stamp_check(&c.from, &job->plan.stamps[0], err));
    SDC_TRY_OUT(st, sdc__replace_begin(c.output, in_place || job->options->replace, &c.to, err));
    job->in_place = false; /* from here on the target is the temporary */
    st = fill_file(job, &c, err);
    job->in_place = in_place;
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", c.output); /* the messages name the temporary */
    else
        st = publish(job, c.output, commit_file, &c, file_is_there, err);
out:
    sdc__replace_abandon(&c.to);
    sdc__file_close(&c.from);
    return st;
}

/* ---- a set ---- */

struct set_copy {
    struct sdc_new_folder to;
    char *reopen; /* what to open in it */
};

/* One file of the set into the temporary folder, with the permissions of the original. */
static enum sdc_status copy_one(void *state, const char *path, const char *name,
                                struct sdc_error *err) {
    struct set_copy *c = state;
    struct sdc_file from = SDC_FILE_INIT, to = SDC_FILE_INIT;
    struct stat s;
    enum sdc_status st = SDC_OK;
    char *target = sdc__path_join(c->to.path, name), *dir = target ? sdc__path_dir(target) : NULL;
    if (!dir) {
        st = SDC_NOMEM(err, path);
        goto out;
    }
    SDC_TRY_OUT(st, sdc__make_dirs(dir, err));
    SDC_TRY_OUT(st, sdc__file_open(path, SDC_FILE_READ, &from, err));
    SDC_TRY_OUT(st, sdc__file_open(target, SDC_FILE_NEW, &to, err));
    SDC_TRY_OUT(st, sdc__file_copy(&from, &to, err));
    if (fstat(from.fd, &s) != 0 || fchmod(to.fd, (s.st_mode & 0777) | 0600) != 0)
        st = SDC_ERR_SYS(err, SDC_IO, errno, "%s: copy the permissions", target);
    if (st == SDC_OK && c->to.sync)
        st = sdc__file_sync(&to, err);
out:
    sdc__file_close(&from);
    sdc__file_close(&to);
    sdc__free(target);
    sdc__free(dir);
    return st;
}

/* Of a folder every file, so that what loads the one loads the other; else the set's own files. */
static enum sdc_status copy_all(struct sdc_job *job, struct set_copy *c, struct sdc_error *err) {
    if (sdc__path_is_dir(job->path))
        return sdc__list_files(job->path, true, copy_one, c, err);
    for (size_t i = 0; i < job->n_files; i++) {
        const struct sdc_ckpt_file f = sdc_ckpt_file(job->plan.ckpt, i);
        SDC_TRY(copy_one(c, f.path, f.name, err));
    }
    return SDC_OK;
}

static enum sdc_status check_stamps(const struct sdc_job *job, struct sdc_error *err) {
    for (size_t i = 0; i < job->n_files; i++) {
        struct sdc_file f;
        SDC_TRY(sdc__file_open(sdc_ckpt_file(job->plan.ckpt, i).path, SDC_FILE_READ, &f, err));
        enum sdc_status st = sdc__stamp_check(&f, &job->plan.stamps[i], err);
        sdc__file_close(&f);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

static enum sdc_status fill_set(struct sdc_job *job, struct set_copy *c, struct sdc_error *err) {
    SDC_TRY(copy_all(job, c, err));
    SDC_TRY(check_stamps(job, err));
    for (size_t i = 0; i < job->n_files; i++) {
        job->targets[i] = sdc__path_join(c->to.path, sdc_ckpt_file(job->plan.ckpt, i).name);
        if (!job->targets[i])
            return SDC_NOMEM(err, "the alteration");
    }
    c->reopen = sdc__path_is_dir(job->path) ? sdc__strdup(c->to.path)
                                            : sdc__path_join(c->to.path, sdc__path_base(job->path));
    if (!c->reopen)
        return SDC_NOMEM(err, "the alteration");
    SDC_TRY(sdc__job_recoded_values(job, err));
    SDC_TRY(sdc__job_recode(job, c->reopen, err));
    SDC_TRY(sdc__job_values(job, err));
    SDC_TRY(sdc__job_identities(job, NULL, err));
    return sdc__job_patch(job, c->reopen, err);
}

static enum sdc_status commit_set(struct sdc_job *job, void *state, struct sdc_error *err) {
    struct set_copy *c = state;
    (void)job;
    return sdc__new_folder_commit(&c->to, err);
}

static bool set_is_there(void *state, const char *output) {
    const struct set_copy *c = state;
    return !c->to.path && sdc__path_exists(output); /* path is given up when it gets its name */
}

static enum sdc_status copy_set(struct sdc_job *job, struct sdc_error *err) {
    struct set_copy c = {.to = SDC_NEW_FOLDER_INIT};
    char *output = job->in_place ? NULL : trimmed(job->options->output);
    enum sdc_status st;
    if (job->in_place)
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: some of it is compressed and has to be written anew, which is done for "
                       "a set of files on a copy only: expected -o",
                       job->path);
    if (!output)
        return SDC_NOMEM(err, "the alteration");
    SDC_TRY_OUT(st, sdc__new_folder_begin(output, !job->options->no_sync, &c.to, err));
    st = fill_set(job, &c, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", output);
    else
        st = publish(job, output, commit_set, &c, set_is_there, err);
out:
    sdc__new_folder_abandon(&c.to);
    sdc__free(c.reopen);
    sdc__free(output);
    return st;
}

enum sdc_status sdc__job_copy(struct sdc_job *job, struct sdc_error *err) {
    SDC_TRY(sdc__job_check_output(job, err));
    return job->plan.is_set ? copy_set(job, err) : copy_file(job, err);
}
