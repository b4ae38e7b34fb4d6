/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "camp/exec_internal.h"
#include "io/io.h"

#define DEFAULT_CHECK_EVERY 50
#define CLEAN_TRIES         2

const char *sdc__exec_phase_text(enum sdc_exec_phase phase) {
    switch (phase) {
    case SDC_EXEC_CHECK:
        return "checking the whole path";
    case SDC_EXEC_TRAIN:
        return "training";
    case SDC_EXEC_CLEAN:
        return "clean restarts";
    case SDC_EXEC_CONTROLS:
        return "controls";
    case SDC_EXEC_TRIALS:
        return "trials";
    }
    return "";
}

static int stop_requests(const struct sdc_exec *x) {
    return x->options->stop ? (int)*x->options->stop : 0;
}

bool sdc__exec_stopping(const struct sdc_exec *x) {
    return stop_requests(x) > 0;
}

static void report(struct sdc_exec *x, const char *note) {
    if (!x->options->progress)
        return;
    double minutes = (double)(sdc__now_ns() - x->phase_began) / 60e9;
    double rate = x->phase_now && minutes > 0 ? (double)x->phase_now / minutes : 0;
    struct sdc_exec_progress p = {
        .phase = x->phase,
        .done = x->phase_done,
        .total = x->phase_total,
        .per_minute = rate,
        .seconds_left = rate > 0 ? (double)(x->phase_total - x->phase_done) / rate * 60 : -1,
        .n_judged = x->n_judged,
        .n_collapsed = x->n_collapsed,
        .note = note,
    };
    x->options->progress(x->options->user, &p);
}

void sdc__exec_begin(struct sdc_exec *x, enum sdc_exec_phase phase, size_t done, size_t total) {
    x->phase = phase;
    x->phase_done = done;
    x->phase_total = total;
    x->phase_now = 0;
    x->phase_began = sdc__now_ns();
    x->cursor = 0;
    report(x, NULL);
}

void sdc__exec_note(struct sdc_exec *x, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    report(x, text);
}

void sdc__exec_again(struct sdc_exec *x, struct sdc_exec_job *job) {
    job->next_again = NULL;
    *x->again_end = job;
    x->again_end = &job->next_again;
}

static struct sdc_exec_job *take_again(struct sdc_exec *x) {
    struct sdc_exec_job *job = x->again;
    if (!job)
        return NULL;
    x->again = job->next_again;
    if (!x->again)
        x->again_end = &x->again;
    job->next_again = NULL;
    return job;
}

/* ---- trials per worker, until golden was repeated ---- */

static enum sdc_status worker_of(struct sdc_exec *x, uint64_t number, struct sdc_exec_worker **w,
                                 struct sdc_error *err) {
    for (size_t i = 0; i < x->n_workers; i++)
        if (x->workers[i].number == number) {
            *w = &x->workers[i];
            return SDC_OK;
        }
    if (x->n_workers == x->cap_workers) {
        size_t cap = x->cap_workers ? 2 * x->cap_workers : 8;
        struct sdc_exec_worker *more = sdc__realloc(x->workers, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the list of workers");
        x->workers = more;
        x->cap_workers = cap;
    }
    *w = &x->workers[x->n_workers++];
    **w = (struct sdc_exec_worker){.number = number};
    return SDC_OK;
}

static void forget_worker(struct sdc_exec *x, uint64_t number) {
    for (size_t i = 0; i < x->n_workers; i++)
        if (x->workers[i].number == number) {
            sdc__free(x->workers[i].trials);
            x->workers[i] = x->workers[--x->n_workers];
            return;
        }
}

static enum sdc_status remember_trial(struct sdc_exec *x, uint64_t number,
                                      const struct sdc_plan_trial *trial, struct sdc_error *err) {
    struct sdc_exec_worker *w;
    SDC_TRY(worker_of(x, number, &w, err));
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        const struct sdc_plan_trial **more = sdc__realloc(w->trials, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the trials of a worker");
        w->trials = more;
        w->cap = cap;
    }
    w->trials[w->n++] = trial;
    w->group = trial->group;
    return SDC_OK;
}

static enum sdc_status new_verify(struct sdc_exec *x, uint32_t group, uint64_t worker,
                                  struct sdc_exec_job **job, struct sdc_error *err) {
    /* one folder a purpose: two of them never run at once in one worker */
    char *folder = worker
                       ? sdc__asprintf("%s/trials/verify-%llu", x->dir, (unsigned long long)worker)
                       : sdc__asprintf("%s/trials/verify-%llu-fresh", x->dir,
                                       (unsigned long long)sdc__now_ns());
    char *id = sdc__asprintf("%s-again", x->plan->groups[group].id);
    SDC_TRY(sdc__exec_job_new(x, SDC_JOB_VERIFY, id, folder, job, err));
    (*job)->group = group;
    (*job)->worker = worker;
    return SDC_OK;
}

/* Repeats golden in workers that have run `most` trials since the last time. */
static enum sdc_status verify_workers(struct sdc_exec *x, size_t most, struct sdc_error *err) {
    for (size_t i = 0; i < x->n_workers; i++) {
        struct sdc_exec_worker *w = &x->workers[i];
        if (w->verifying || w->n < most || w->n == 0)
            continue;
        struct sdc_exec_job *job;
        SDC_TRY(new_verify(x, w->group, w->number, &job, err));
        w->verifying = true;
        SDC_TRY(sdc__exec_submit(x, job, SDC_POOL_PINNED, w->number, err));
    }
    return SDC_OK;
}

/* Trials of a worker that is not sound never were. */
static enum sdc_status redo_trials(struct sdc_exec *x, uint64_t number, struct sdc_error *err) {
    struct sdc_exec_worker *w;
    SDC_TRY(worker_of(x, number, &w, err));
    for (size_t i = 0; i < w->n; i++) {
        const struct sdc_plan_trial *t = w->trials[i];
        SDC_TRY(sdc__store_forget_trial(x->store, t->id, err));
        size_t at = (size_t)(t - x->plan->trials);
        x->done[at] = false;
        x->cursor = at < x->cursor ? at : x->cursor;
        x->phase_done--;
        x->phase_now--;
        x->summary->n_now--;
    }
    forget_worker(x, number);
    return SDC_OK;
}

static bool is_golden(struct sdc_exec *x, const struct sdc_exec_job *job, char *why, size_t size) {
    struct sdc_event_list events;
    struct sdc_error err;
    if (sdc__exec_events(job->folder, &events, &err) != SDC_OK) {
        snprintf(why, size, "%.200s", err.message);
        return false;
    }
    bool same = sdc__runs_identical(&x->groups[job->group].golden, &events, why, size);
    sdc_events_release(&events);
    return same;
}

/* After golden was repeated in a fresh worker for a trial that failed: the trial goes into the same
 * worker, or is given up as the laboratory's failure. */
static enum sdc_status verified_fresh(struct sdc_exec *x, struct sdc_exec_job *job,
                                      const struct sdc_pool_result *r, bool same, const char *why,
                                      struct sdc_error *err) {
    struct sdc_exec_job *trial = job->after;
    job->after = NULL;
    sdc__exec_job_free(job);
    if (sdc__exec_stopping(x)) {
        sdc__exec_job_free(trial);
        return SDC_OK;
    }
    if (same)
        return sdc__exec_submit(x, trial, SDC_POOL_PINNED, r->worker, err);
    char *message = sdc__asprintf("the trial %s, and so did its clean twin in a fresh worker: %s",
                                  trial->first_message ? trial->first_message : "failed", why);
    if (!message) {
        sdc__exec_job_free(trial);
        return SDC_NOMEM(err, "a message");
    }
    enum sdc_status st = sdc__exec_trial_failed(x, trial, SDC_RESULT_HARNESS_ERROR, message, err);
    sdc__free(message);
    return st;
}

static enum sdc_status verify_done(struct sdc_exec *x, struct sdc_exec_job *job,
                                   const struct sdc_pool_result *r, struct sdc_error *err) {
    char why[256] = "";
    bool same = false;
    if (r->end == SDC_POOL_DONE && r->status == SDC_OK)
        same = is_golden(x, job, why, sizeof why);
    else
        snprintf(why, sizeof why, "%s", r->message ? r->message : "it did not come to its end");
    if (!x->keep_files)
        SDC_TRY(sdc__remove_tree(job->folder, err));
    if (job->after)
        return verified_fresh(x, job, r, same, why, err);
    uint64_t number = job->worker;
    sdc__exec_job_free(job);
    if (same || r->end == SDC_POOL_GONE) { /* gone: ended for another reason, seen there */
        forget_worker(x, number);
        return SDC_OK;
    }
    x->summary->n_replaced++;
    sdc__exec_note(x, "a worker no longer computes golden (%s); its last trials are run again",
                   why);
    SDC_TRY(redo_trials(x, number, err));
    return sdc__pool_replace(x->pool, number, err);
}

/* ---- ends of runs ---- */

/* Statuses of the machine, not of the run: nothing else would go better. */
static bool is_environment(enum sdc_status st) {
    return st == SDC_IO || st == SDC_NO_MEMORY || st == SDC_NOT_FOUND || st == SDC_BUSY ||
           st == SDC_USAGE;
}

static enum sdc_status fail_run(const struct sdc_exec_job *job, const struct sdc_pool_result *r,
                                struct sdc_error *err) {
    enum sdc_status st = r->end == SDC_POOL_DONE   ? r->status
                         : r->end == SDC_POOL_HUNG ? SDC_TIMEOUT
                                                   : SDC_PEER;
    if (r->end == SDC_POOL_DONE)
        return SDC_ERR(err, st, "%s: %s", job->id,
                       r->message ? r->message : sdc_status_text(r->status));
    return SDC_ERR(err, st, "%s: the worker %s%s%s (log: %s)", job->id,
                   r->end == SDC_POOL_HUNG ? "hangs: " : "", r->message ? r->message : "ended", "",
                   r->log ? r->log : "none");
}

/* A clean run that crashed is tried once more. */
static enum sdc_status clean_ended(struct sdc_exec *x, struct sdc_exec_job *job,
                                   const struct sdc_pool_result *r, struct sdc_error *err) {
    enum sdc_status st;
    if (r->end == SDC_POOL_DONE && r->status == SDC_OK)
        return sdc__exec_clean_done(x, job, err);
    if (r->end == SDC_POOL_DONE || job->attempts >= CLEAN_TRIES) {
        st = fail_run(job, r, err);
        sdc__exec_job_free(job);
        return st;
    }
    sdc__exec_note(x, "%s: the worker %s; tried again", job->id, r->message ? r->message : "ended");
    sdc__exec_again(x, job);
    return SDC_OK;
}

static enum sdc_status trial_ended(struct sdc_exec *x, struct sdc_exec_job *job,
                                   const struct sdc_pool_result *r, struct sdc_error *err) {
    /* a file that the trainer refuses is refused in every worker */
    bool sound =
        r->end == SDC_POOL_DONE && (r->status == SDC_OK || r->status == SDC_INVALID ||
                                    r->status == SDC_MISMATCH || r->status == SDC_UNSUPPORTED);
    if (r->end == SDC_POOL_DONE && is_environment(r->status)) {
        enum sdc_status st = fail_run(job, r, err);
        sdc__exec_job_free(job);
        return st;
    }
    if (sound || (job->failed_before && r->end != SDC_POOL_GONE)) {
        if (r->worker && r->end == SDC_POOL_DONE)
            SDC_TRY(remember_trial(x, r->worker, job->trial, err));
        else
            forget_worker(x, r->worker); /* ended by its trial, not found unsound */
        return sdc__exec_trial_done(x, job, r, err);
    }
    forget_worker(x, r->worker);
    if (sdc__exec_stopping(x)) {
        sdc__exec_job_free(job);
        return SDC_OK;
    }
    if (r->end != SDC_POOL_GONE) {
        sdc__free(job->first_message);
        job->first_message = r->message ? sdc__strdup(r->message) : NULL;
        job->first_end = r->end;
        job->failed_before = true;
    }
    sdc__exec_note(x, "%s: %s; tried again in a fresh worker", job->id,
                   r->message ? r->message : "the worker ended");
    struct sdc_exec_job *verify;
    enum sdc_status st = new_verify(x, job->group, 0, &verify, err);
    if (st != SDC_OK) {
        sdc__exec_job_free(job);
        return st;
    }
    verify->after = job;
    return sdc__exec_submit(x, verify, SDC_POOL_FRESH, 0, err);
}

static enum sdc_status take_result(struct sdc_exec *x, const struct sdc_pool_result *r,
                                   struct sdc_error *err) {
    struct sdc_exec_job *job = r->user;
    if (job->kind == SDC_JOB_TRIAL)
        return trial_ended(x, job, r, err);
    if (job->kind == SDC_JOB_VERIFY)
        return verify_done(x, job, r, err);
    return clean_ended(x, job, r, err);
}

/* ---- driving ---- */

static void drain_wake(const struct sdc_exec *x) {
    char c[64];
    if (x->options->wake_fd >= 0 && stop_requests(x) > 0)
        while (read(x->options->wake_fd, c, sizeof c) == (ssize_t)sizeof c)
            ;
}

/* Frees the jobs that no worker has begun. */
static enum sdc_status drop_queued(struct sdc_exec *x, struct sdc_error *err) {
    size_t n = sdc__pool_pending(x->pool);
    void **users = sdc__alloc(n, sizeof *users);
    if (!users)
        return SDC_NOMEM(err, "jobs");
    n = sdc__pool_drop_queued(x->pool, users);
    for (size_t i = 0; i < n; i++) {
        struct sdc_exec_job *job = users[i];
        sdc__exec_job_free(job->after);
        sdc__exec_job_free(job);
    }
    sdc__free(users);
    for (struct sdc_exec_job *job; (job = take_again(x)) != NULL;)
        sdc__exec_job_free(job);
    return SDC_OK;
}

/* Keeps the pool busy: a job for each worker, and one more each so that none waits. */
static enum sdc_status feed(struct sdc_exec *x, sdc_exec_next_fn next, struct sdc_error *err) {
    while (sdc__pool_pending(x->pool) < 2 * (size_t)x->options->workers) {
        struct sdc_exec_job *job = take_again(x);
        if (!job)
            SDC_TRY(next(x, &job, err));
        if (!job)
            break;
        SDC_TRY(sdc__exec_submit(x, job, SDC_POOL_ANY, 0, err));
    }
    if (x->trial_out) /* a repetition outside the store */
        return SDC_OK;
    if (x->phase == SDC_EXEC_TRIALS || x->phase == SDC_EXEC_CONTROLS)
        SDC_TRY(verify_workers(
            x, x->options->check_every ? x->options->check_every : DEFAULT_CHECK_EVERY, err));
    /* nothing left to run: every trial must be covered before the phase is over */
    if (sdc__pool_pending(x->pool) == 0)
        SDC_TRY(verify_workers(x, 1, err));
    return SDC_OK;
}

enum sdc_status sdc__exec_drive(struct sdc_exec *x, enum sdc_exec_phase phase, size_t done,
                                size_t total, sdc_exec_next_fn next, struct sdc_error *err) {
    bool dropped = false;
    sdc__exec_begin(x, phase, done, total);
    for (;;) {
        int requests = stop_requests(x);
        if (requests > 1)
            return SDC_ERR(err, SDC_CANCELLED, "stopped at once");
        if (requests && !dropped) {
            SDC_TRY(drop_queued(x, err));
            dropped = true;
            sdc__exec_note(x, "finishing what is in flight; once more to stop at once");
        }
        if (!requests)
            SDC_TRY(feed(x, next, err));
        if (sdc__pool_pending(x->pool) == 0)
            break;
        struct sdc_pool_result r = {0};
        bool got;
        SDC_TRY(sdc__pool_wait(x->pool, 1000, &r, &got, err));
        drain_wake(x);
        if (!got)
            continue;
        enum sdc_status st = take_result(x, &r, err);
        sdc__pool_result_release(&r);
        SDC_TRY(st);
        report(x, NULL);
    }
    return dropped ? SDC_ERR(err, SDC_CANCELLED, "stopped after what was in flight") : SDC_OK;
}
