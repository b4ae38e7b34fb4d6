/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "camp/exec_internal.h"
#include "io/io.h"
#include "sdc/choice.h"

#define DEFAULT_HANG_FIRST 120000

enum sdc_status sdc__exec_job_new(struct sdc_exec *x, enum sdc_exec_kind kind, char *id,
                                  char *folder, struct sdc_exec_job **out, struct sdc_error *err) {
    struct sdc_exec_job *job = sdc__calloc(1, sizeof *job);
    *out = job;
    if (!job || !id || !folder) {
        sdc__free(id);
        sdc__free(folder);
        sdc__free(job);
        *out = NULL;
        return SDC_NOMEM(err, "a run");
    }
    job->kind = kind;
    job->id = id;
    job->folder = folder;
    job->owner = x;
    job->older = x->jobs;
    if (x->jobs)
        x->jobs->newer = job;
    x->jobs = job;
    return SDC_OK;
}

void sdc__exec_job_free(struct sdc_exec_job *job) {
    if (!job)
        return;
    if (job->newer)
        job->newer->older = job->older;
    else
        job->owner->jobs = job->older;
    if (job->older)
        job->older->newer = job->newer;
    sdc__exec_faults_release(&job->faults);
    sdc__free(job->first_message);
    sdc__free(job->id);
    sdc__free(job->folder);
    sdc__free(job);
}

enum sdc_status sdc__exec_set(char **slot, const char *text, struct sdc_error *err) {
    char *copy = text ? sdc__strdup(text) : NULL;
    if (text && !copy)
        return SDC_NOMEM(err, "a run description");
    sdc__free(*slot);
    *slot = copy;
    return SDC_OK;
}

struct sdc_exec_base *sdc__exec_base_of(struct sdc_exec *x, uint32_t group) {
    const struct sdc_plan_group *g = &x->plan->groups[group];
    size_t c = 0;
    while (x->spec->checkpoints[c] != g->checkpoint)
        c++;
    return &x->bases[g->training * x->spec->n_checkpoints + c];
}

enum sdc_status sdc__exec_base_open(struct sdc_exec_base *base, struct sdc_error *err) {
    return base->ckpt ? SDC_OK : sdc_ckpt_open(base->path, NULL, &base->ckpt, err);
}

/* ---- run descriptions ---- */

static enum sdc_status set_steps(uint64_t **slot, size_t *n, const uint64_t *steps, size_t n_steps,
                                 struct sdc_error *err) {
    uint64_t *copy = sdc__alloc(n_steps, sizeof *copy);
    if (!copy)
        return SDC_NOMEM(err, "a run description");
    memcpy(copy, steps, n_steps * sizeof *copy);
    sdc__free(*slot);
    *slot = copy;
    *n = n_steps;
    return SDC_OK;
}

static enum sdc_status describe_training(struct sdc_exec *x, const struct sdc_exec_job *job,
                                         struct sdc_run *run, struct sdc_error *err) {
    SDC_TRY(sdc__plan_training_run(x->plan, job->training, run, err));
    char *path = sdc__path_join(job->folder, "step-{step}.h5");
    if (!path)
        return SDC_NOMEM(err, "a run description");
    sdc__free(run->save.path);
    run->save.path = path;
    SDC_TRY(sdc__exec_set(&run->save.format, "hdf5", err));
    return set_steps(&run->save.steps, &run->save.n_steps, x->spec->checkpoints,
                     x->spec->n_checkpoints, err);
}

/* Every rank gets a file: the altered one where its bit is set, else the clean one. */
static enum sdc_status set_load(struct sdc_run *run, const char *clean, const char *altered,
                                uint64_t mask, struct sdc_error *err) {
    run->load = sdc__calloc(run->ranks, sizeof *run->load);
    if (!run->load)
        return SDC_NOMEM(err, "a run description");
    run->n_load = run->ranks;
    for (uint32_t r = 0; r < run->ranks; r++)
        SDC_TRY(sdc__exec_set(&run->load[r].path, altered && mask >> r & 1 ? altered : clean, err));
    return SDC_OK;
}

/* Golden's states, so that a trial may end where it certainly equals golden. */
static enum sdc_status set_golden(const struct sdc_exec_group *g, struct sdc_run *run,
                                  struct sdc_error *err) {
    size_t n = (size_t)(g->clean.to_step - g->clean.from_step);
    run->golden = sdc__calloc(n, sizeof *run->golden);
    if (!run->golden)
        return SDC_NOMEM(err, "a run description");
    for (size_t i = 0; i < n; i++) {
        const struct sdc_event *e = g->clean.steps[i];
        /* the first step too: what start-up erased, or no rank read, is known there */
        bool due = i == 0 || run->digest_every == 0 || e->step % run->digest_every == 0;
        if (!e->digests || !due)
            continue;
        struct sdc_run_golden *slot = &run->golden[run->n_golden++];
        slot->step = e->step;
        slot->state = sdc__calloc(run->ranks, sizeof *slot->state);
        if (!slot->state)
            return SDC_NOMEM(err, "a run description");
        for (uint32_t r = 0; r < run->ranks; r++) {
            char text[SDC_STATE_DIGEST_TEXT];
            sdc_state_digest_text(&e->digests[r].state, text);
            SDC_TRY(sdc__exec_set(&slot->state[r], text, err));
        }
    }
    return SDC_OK;
}

static enum sdc_status describe_restart(struct sdc_exec *x, const struct sdc_exec_job *job,
                                        struct sdc_run *run, struct sdc_error *err) {
    SDC_TRY(sdc__plan_group_run(x->plan, job->group, run, err));
    const char *clean = sdc__exec_base_of(x, job->group)->path;
    uint64_t mask = job->kind == SDC_JOB_E0      ? UINT64_MAX
                    : job->kind == SDC_JOB_TRIAL ? job->trial->altered
                                                 : 0;
    SDC_TRY(set_load(run, clean, job->faults.path, mask, err));
    SDC_TRY(set_steps(&run->snapshot_steps, &run->n_snapshot_steps, &run->to_step, 1, err));
    if (job->kind == SDC_JOB_E1)
        run->seed_data =
            sdc__plan_spread_seed(x->plan, x->plan->groups[job->group].cluster, job->replica);
    /* controls go the whole way: what they show must not rest on the early end */
    bool cell = job->kind == SDC_JOB_TRIAL && job->trial->kind == SDC_TRIAL_CELL;
    if (!cell)
        run->digest_every = 1;
    if (cell)
        SDC_TRY(set_golden(&x->groups[job->group], run, err));
    return SDC_OK;
}

static enum sdc_status write_run(struct sdc_exec *x, const struct sdc_exec_job *job,
                                 const char *path, struct sdc_error *err) {
    struct sdc_run run;
    enum sdc_status st;
    sdc_run_init(&run);
    SDC_TRY_OUT(st, job->kind == SDC_JOB_TRAINING ? describe_training(x, job, &run, err)
                                                  : describe_restart(x, job, &run, err));
    SDC_TRY_OUT(st, sdc__exec_set(&run.trial, job->id, err));
    SDC_TRY_OUT(st, sdc__exec_set(&run.output, job->folder, err));
    SDC_TRY_OUT(st, sdc_run_check(&run, err));
    st = sdc_run_write(path, &run, err);
out:
    sdc_run_release(&run);
    return st;
}

/* ---- submitting ---- */

static enum sdc_status prepare(struct sdc_exec *x, struct sdc_exec_job *job,
                               struct sdc_error *err) {
    sdc__exec_faults_release(&job->faults);
    SDC_TRY(sdc__remove_tree(job->folder, err));
    SDC_TRY(sdc__make_dirs(job->folder, err));
    if (job->kind == SDC_JOB_E0)
        return sdc__exec_alter_e0(x, job->group, job->replica, job->folder, &job->faults, err);
    if (job->kind == SDC_JOB_TRIAL)
        return sdc__exec_alter_trial(x, job->trial, job->folder, &job->faults, err);
    return SDC_OK;
}

enum sdc_status sdc__exec_submit(struct sdc_exec *x, struct sdc_exec_job *job,
                                 enum sdc_pool_place place, uint64_t worker,
                                 struct sdc_error *err) {
    char *path = sdc__path_join(job->folder, "run.json");
    char *events = sdc__path_join(job->folder, "events.jsonl");
    enum sdc_status st;
    if (!path || !events) {
        st = SDC_NOMEM(err, "a run");
        goto out;
    }
    SDC_TRY_OUT(st, prepare(x, job, err));
    if (job->faults.not_injected) { /* nothing to run */
        sdc__free(path);
        sdc__free(events);
        return sdc__exec_trial_failed(x, job, SDC_RESULT_NOT_INJECTED, job->faults.why, err);
    }
    SDC_TRY_OUT(st, write_run(x, job, path, err));
    unsigned first = x->options->hang_first_ms ? x->options->hang_first_ms : DEFAULT_HANG_FIRST;
    bool has_golden = job->kind == SDC_JOB_TRIAL || job->kind == SDC_JOB_VERIFY;
    struct sdc_pool_job p = {
        .trial = job->id,
        .path = path,
        .events = events,
        .hang_ms =
            has_golden && x->groups[job->group].ready ? x->groups[job->group].hang_ms : first,
        .place = place,
        .worker = worker,
        .user = job,
    };
    job->attempts++;
    job->began = sdc__now_ns();
    st = sdc__pool_submit(x->pool, &p, err);
out:
    sdc__free(path);
    sdc__free(events);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s", job->id);
        sdc__exec_job_free(job);
    }
    return st;
}

/* ---- results of runs ---- */

enum sdc_status sdc__exec_events(const char *folder, struct sdc_event_list *events,
                                 struct sdc_error *err) {
    char *path = sdc__path_join(folder, "events.jsonl");
    *events = (struct sdc_event_list){0};
    if (!path)
        return SDC_NOMEM(err, "a path");
    enum sdc_status st = SDC_OK;
    if (sdc__path_exists(path))
        st = sdc_events_read(path, events, err);
    sdc__free(path);
    return st;
}

char *sdc__exec_path(const char *folder, const char *path) {
    /* a trainer names its files as it opened them, or within its output folder */
    return sdc__path_exists(path) ? sdc__strdup(path)
                                  : sdc__path_join(folder, sdc__path_base(path));
}

const struct sdc_event *sdc__exec_find_event(const struct sdc_event_list *events,
                                             enum sdc_event_kind kind, uint64_t step) {
    for (size_t i = 0; i < events->n; i++)
        if (events->items[i].kind == kind && events->items[i].step == step)
            return &events->items[i];
    return NULL;
}
