/* SPDX-License-Identifier: Apache-2.0 */
#include "camp/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "camp/exec_internal.h"
#include "io/io.h"

/* ---- making and ending ---- */

static void exec_release(struct sdc_exec *x) {
    sdc__pool_free(x->pool);
    while (x->jobs)
        sdc__exec_job_free(x->jobs);
    for (size_t i = 0; x->bases && i < x->plan->n_trainings * x->spec->n_checkpoints; i++) {
        sdc__free(x->bases[i].path);
        sdc_ckpt_close(x->bases[i].ckpt);
    }
    for (size_t i = 0; x->groups && i < x->plan->n_groups; i++) {
        struct sdc_exec_group *g = &x->groups[i];
        sdc__clean_release(&g->clean);
        sdc_events_release(&g->golden);
        for (size_t k = 0; k < g->n_layers; k++)
            sdc__free(g->layers[k].name);
        sdc__free(g->layers);
        sdc__free(g->folder);
    }
    for (size_t i = 0; i < x->n_workers; i++)
        sdc__free(x->workers[i].trials);
    sdc__free(x->workers);
    sdc__free(x->bases);
    sdc__free(x->groups);
    sdc__free(x->done);
    sdc__plan_free(x->plan);
}

static enum sdc_status make_folder(const char *dir, const char *name, struct sdc_error *err) {
    char *path = sdc__path_join(dir, name);
    if (!path)
        return SDC_NOMEM(err, "a path");
    enum sdc_status st = sdc__make_dirs(path, err);
    sdc__free(path);
    return st;
}

static enum sdc_status make_pool(struct sdc_exec *x, bool alone, struct sdc_error *err) {
    char *logs = sdc__path_join(x->dir, "log");
    char *leftovers = sdc__path_join(x->dir, "workers.json");
    enum sdc_status st;
    if (!logs || !leftovers) {
        st = SDC_NOMEM(err, "a path");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__make_dirs(logs, err));
    struct sdc_pool_options options = {
        .argv = x->options->worker,
        .workers = x->options->workers,
        .log_folder = logs,
        .leftovers = alone ? leftovers : NULL,
        .wake_fd = x->options->wake_fd,
    };
    st = sdc__pool_new(&options, &x->pool, err);
out:
    sdc__free(logs);
    sdc__free(leftovers);
    return st;
}

static enum sdc_status exec_init(struct sdc_exec *x, struct sdc_store *store,
                                 const struct sdc_exec_options *options,
                                 struct sdc_exec_summary *summary, struct sdc_error *err) {
    *x = (struct sdc_exec){.store = store, .options = options, .summary = summary};
    *summary = (struct sdc_exec_summary){0};
    x->again_end = &x->again;
    x->spec = sdc__store_spec(store);
    x->dir = sdc__store_dir(store);
    sdc__thresholds_init(&x->thresholds);
    x->thresholds.degraded = x->spec->thresholds.degraded;
    x->thresholds.chance = x->spec->thresholds.chance;
    SDC_TRY(sdc__plan_new(x->spec, &x->plan, err));
    x->bases = sdc__calloc(x->plan->n_trainings * x->spec->n_checkpoints, sizeof *x->bases);
    x->groups = sdc__calloc(x->plan->n_groups, sizeof *x->groups);
    x->done = sdc__calloc(x->plan->n_trials, sizeof *x->done);
    return x->bases && x->groups && x->done ? SDC_OK : SDC_NOMEM(err, "a campaign");
}

static enum sdc_status versions_json(const struct sdc_worker_message *hello, struct sdc_buf *out,
                                     struct sdc_error *err) {
    struct sdc_jw w = sdc__jw(out);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "trainer", hello->trainer);
    for (size_t i = 0; i < hello->n_versions; i++)
        sdc__jw_kstr(&w, hello->versions[i].key, hello->versions[i].value);
    sdc__jw_obj_end(&w);
    return out->failed ? SDC_NOMEM(err, "the versions of a worker") : SDC_OK;
}

/* Which platform this is, by the first worker's hello. */
static enum sdc_status find_platform(struct sdc_exec *x, struct sdc_error *err) {
    const struct sdc_worker_message *hello;
    struct sdc_buf versions = SDC_BUF_INIT;
    SDC_TRY(sdc__pool_hello(x->pool, &hello, err));
    enum sdc_status st = versions_json(hello, &versions, err);
    if (st == SDC_OK)
        st = sdc__store_platform(x->store, hello->platform, versions.data, &x->platform, err);
    sdc__buf_release(&versions);
    return st;
}

/* ---- pairs across platforms ---- */

/* A trial by what its pair has in common. */
struct arm {
    uint32_t block, index;
    size_t at; /* in the plan */
};

static int by_pair(const void *a, const void *b) {
    const struct arm *p = a, *q = b;
    if (p->block != q->block)
        return p->block < q->block ? -1 : 1;
    if (p->index != q->index)
        return p->index < q->index ? -1 : 1;
    return p->at < q->at ? -1 : p->at > q->at;
}

static bool same_pair(const struct arm *a, const struct arm *b) {
    return a->block == b->block && a->index == b->index;
}

/* Forgets the finished arms (made elsewhere) of a pair whose other arms are still to come. */
static enum sdc_status forget_half_pair(struct sdc_exec *x, const struct arm *arms, size_t n,
                                        const int64_t *platform, struct sdc_error *err) {
    bool open = false;
    for (size_t i = 0; i < n; i++)
        open |= !x->done[arms[i].at];
    for (size_t i = 0; i < n && open; i++) {
        size_t t = arms[i].at;
        if (!x->done[t] || platform[t] == x->platform)
            continue;
        SDC_TRY(sdc__store_forget_trial(x->store, x->plan->trials[t].id, err));
        x->done[t] = false;
    }
    return SDC_OK;
}

static enum sdc_status forget_half_pairs(struct sdc_exec *x, const int64_t *platform,
                                         struct sdc_error *err) {
    size_t first = x->plan->n_controls, n = x->plan->n_trials - first;
    struct arm *arms = sdc__alloc(n, sizeof *arms);
    if (!arms)
        return SDC_NOMEM(err, "pairs");
    for (size_t i = 0; i < n; i++) {
        const struct sdc_plan_trial *t = &x->plan->trials[first + i];
        arms[i] = (struct arm){.block = t->block_key, .index = t->index, .at = first + i};
    }
    qsort(arms, n, sizeof *arms, by_pair);
    enum sdc_status st = SDC_OK;
    for (size_t i = 0, end; i < n && st == SDC_OK; i = end) {
        for (end = i + 1; end < n && same_pair(&arms[end], &arms[i]);)
            end++;
        st = forget_half_pair(x, arms + i, end - i, platform, err);
    }
    sdc__free(arms);
    return st;
}

/* A pair never crosses platforms. */
static enum sdc_status settle_pairs(struct sdc_exec *x, struct sdc_error *err) {
    struct sdc_store_trial *list = NULL;
    size_t n = 0;
    bool elsewhere = false;
    SDC_TRY(sdc__store_list_trials(x->store, &list, &n, err));
    int64_t *platform = sdc__calloc(x->plan->n_trials, sizeof *platform);
    for (size_t i = 0; i < n; i++) {
        const struct sdc_plan_trial *t = sdc__plan_find(x->plan, list[i].id);
        if (t && platform)
            platform[t - x->plan->trials] = list[i].platform;
        elsewhere |= list[i].platform != x->platform;
        sdc__store_trial_release(&list[i]);
    }
    sdc__free(list);
    enum sdc_status st = !platform   ? SDC_NOMEM(err, "pairs")
                         : elsewhere ? forget_half_pairs(x, platform, err)
                                     : SDC_OK;
    sdc__free(platform);
    return st;
}

/* ---- the phases ---- */

static size_t count_done(const struct sdc_exec *x, size_t first, size_t end) {
    size_t n = 0;
    for (size_t i = first; i < end; i++)
        n += x->done[i];
    return n;
}

/* Controls that failed in an earlier call count too. */
static enum sdc_status known_failures(struct sdc_exec *x, struct sdc_error *err) {
    for (size_t i = 0; i < x->plan->n_controls; i++) {
        if (!x->done[i])
            continue;
        struct sdc_store_trial t = {0};
        SDC_TRY(sdc__store_get_trial(x->store, x->plan->trials[i].id, &t, err));
        if (t.control == 0 && !x->summary->n_failed_controls++)
            snprintf(x->summary->failed_control, sizeof x->summary->failed_control, "%s: %.400s",
                     t.id, t.message ? t.message : "it failed");
        sdc__store_trial_release(&t);
    }
    return SDC_OK;
}

static enum sdc_status clean_phases(struct sdc_exec *x, struct sdc_error *err) {
    size_t trainings, runs;
    size_t all = x->plan->n_groups * (2 + x->spec->clean_e0 + x->spec->clean_e1);
    SDC_TRY(sdc__exec_bases_load(x, &trainings, err));
    SDC_TRY(sdc__exec_groups_load(x, &runs, err));
    if (trainings || runs) {
        sdc__exec_begin(x, SDC_EXEC_CHECK, 0, 1);
        SDC_TRY(sdc__exec_dry_path(x, err));
    }
    size_t n = x->plan->n_trainings;
    if (trainings)
        SDC_TRY(sdc__exec_drive(x, SDC_EXEC_TRAIN, n - trainings, n, sdc__exec_next_training, err));
    SDC_TRY(sdc__exec_check_supports(x, err));
    if (runs)
        SDC_TRY(sdc__exec_drive(x, SDC_EXEC_CLEAN, all - runs, all, sdc__exec_next_clean, err));
    return sdc__exec_pool_spreads(x, err);
}

static enum sdc_status trial_phases(struct sdc_exec *x, struct sdc_error *err) {
    size_t nc = x->plan->n_controls, n = x->plan->n_trials;
    size_t done = count_done(x, 0, nc);
    if (done < nc)
        SDC_TRY(sdc__exec_drive(x, SDC_EXEC_CONTROLS, done, nc, sdc__exec_next_trial, err));
    if (x->summary->n_failed_controls)
        return SDC_OK;
    done = count_done(x, nc, n);
    if (done < n - nc)
        SDC_TRY(sdc__exec_drive(x, SDC_EXEC_TRIALS, done, n - nc, sdc__exec_next_trial, err));
    return SDC_OK;
}

static enum sdc_status put_rate(struct sdc_exec *x, struct sdc_error *err) {
    double minutes = (double)(sdc__now_ns() - x->phase_began) / 60e9;
    if (x->phase != SDC_EXEC_TRIALS || !x->phase_now || !(minutes > 0))
        return SDC_OK;
    char text[32];
    snprintf(text, sizeof text, "%.1f", (double)x->phase_now / minutes);
    return sdc__store_put_meta(x->store, "trials_per_minute", text, err);
}

static enum sdc_status run_phases(struct sdc_exec *x, struct sdc_error *err) {
    SDC_TRY(make_folder(x->dir, "golden", err));
    SDC_TRY(make_folder(x->dir, "trials", err));
    SDC_TRY(sdc__store_done(x->store, x->plan, x->done, err));
    SDC_TRY(known_failures(x, err));
    x->summary->n_trials = x->plan->n_trials;
    x->summary->n_before = count_done(x, 0, x->plan->n_trials);
    if (x->summary->n_before == x->plan->n_trials || x->summary->n_failed_controls)
        return SDC_OK; /* nothing to run: no worker is started */
    SDC_TRY(make_pool(x, true, err));
    SDC_TRY(find_platform(x, err));
    SDC_TRY(settle_pairs(x, err));
    x->summary->n_before = count_done(x, 0, x->plan->n_trials);
    SDC_TRY(clean_phases(x, err));
    SDC_TRY(trial_phases(x, err));
    return put_rate(x, err);
}

enum sdc_status sdc__exec_run(struct sdc_store *store, const struct sdc_exec_options *options,
                              struct sdc_exec_summary *summary, struct sdc_error *err) {
    struct sdc_exec x;
    struct sdc_error e;
    char now[32];
    enum sdc_status st = exec_init(&x, store, options, summary, &e);
    if (st == SDC_OK)
        st = run_phases(&x, &e);
    summary->complete = st == SDC_OK && summary->n_before + summary->n_now == summary->n_trials;
    sdc__wall_utc(now);
    if (st == SDC_OK || st == SDC_CANCELLED) {
        enum sdc_status put = sdc__store_put_meta(
            store, st == SDC_OK && summary->complete ? "finished" : "interrupted", now,
            st == SDC_OK ? &e : NULL);
        st = st == SDC_OK ? put : st;
    }
    exec_release(&x);
    if (st != SDC_OK && err)
        *err = e;
    return st;
}

/* ---- one trial again ---- */

static enum sdc_status repeat(struct sdc_exec *x, const struct sdc_plan_trial *trial,
                              struct sdc_error *err) {
    size_t ignored;
    SDC_TRY(make_pool(x, false, err));
    SDC_TRY(find_platform(x, err));
    SDC_TRY(sdc__exec_bases_load(x, &ignored, err));
    SDC_TRY(sdc__exec_groups_load(x, &ignored, err));
    if (!x->groups[trial->group].ready)
        return SDC_ERR(err, SDC_NOT_FOUND,
                       "golden %s of trial %s is not in %s for this platform; run the campaign "
                       "there first",
                       x->plan->groups[trial->group].id, trial->id, x->dir);
    SDC_TRY(sdc__exec_pool_spreads(x, err));
    for (size_t i = 0; i < x->plan->n_trials; i++)
        x->done[i] = &x->plan->trials[i] != trial;
    enum sdc_exec_phase phase = trial->kind == SDC_TRIAL_CELL ? SDC_EXEC_TRIALS : SDC_EXEC_CONTROLS;
    return sdc__exec_drive(x, phase, 0, 1, sdc__exec_next_trial, err);
}

enum sdc_status sdc__exec_repeat(struct sdc_store *store, const char *id, const char *folder,
                                 const struct sdc_exec_options *options,
                                 struct sdc_store_trial *trial, struct sdc_error *err) {
    struct sdc_exec x;
    struct sdc_exec_summary summary;
    *trial = (struct sdc_store_trial){0};
    enum sdc_status st = exec_init(&x, store, options, &summary, err);
    if (st == SDC_OK) {
        const struct sdc_plan_trial *t = sdc__plan_find(x.plan, id);
        x.keep_files = true;
        x.trial_folder = folder;
        x.trial_out = trial;
        st = t ? repeat(&x, t, err)
               : SDC_ERR(err, SDC_USAGE, "there is no trial '%s' in the plan of %s", id, x.dir);
    }
    exec_release(&x);
    return st;
}
