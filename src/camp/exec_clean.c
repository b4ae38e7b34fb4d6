/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/limits.h"
#include "camp/exec_internal.h"
#include "io/io.h"

#define DEFAULT_HANG_LEAST 30000
#define MAX_POINTS         100 /* of a curve: longer windows are thinned */

/* ---- trainings ---- */

static enum sdc_status file_digest(const char *path, char text[SDC_DIGEST_TEXT_SIZE],
                                   struct sdc_error *err) {
    struct sdc_file f = SDC_FILE_INIT;
    struct sdc_map map = {0};
    SDC_TRY(sdc__file_open(path, SDC_FILE_READ, &f, err));
    enum sdc_status st = sdc__file_map(&f, &map, err);
    if (st == SDC_OK) {
        struct sdc_digest d = sdc__xxh3_128(map.data ? (const void *)map.data : "", map.size);
        sdc__digest_text(&d, text);
        sdc__file_unmap(&map);
    }
    sdc__file_close(&f);
    return st;
}

static enum sdc_status base_key(struct sdc_exec *x, size_t training, size_t checkpoint, char **key,
                                struct sdc_error *err) {
    *key = sdc__asprintf("baseline.%s.%llu", x->plan->trainings[training].id,
                         (unsigned long long)x->spec->checkpoints[checkpoint]);
    return *key ? SDC_OK : SDC_NOMEM(err, "a key");
}

/* Takes the file into use, if it is there and is the one the store knows (or the store knows none
 * and `record`). */
static enum sdc_status base_load(struct sdc_exec *x, size_t training, size_t checkpoint,
                                 bool record, struct sdc_error *err) {
    struct sdc_exec_base *base = &x->bases[training * x->spec->n_checkpoints + checkpoint];
    char *key = NULL, *known = NULL, digest[SDC_DIGEST_TEXT_SIZE];
    enum sdc_status st;
    SDC_TRY_OUT(st, base_key(x, training, checkpoint, &key, err));
    SDC_TRY_OUT(st, sdc__store_get_meta(x->store, key, &known, err));
    if (!sdc__path_exists(base->path) || (!known && !record))
        goto out;
    SDC_TRY_OUT(st, file_digest(base->path, digest, err));
    if (known && strcmp(known, digest) != 0) {
        st = SDC_ERR(err, SDC_MISMATCH,
                     "the baseline checkpoint %s has digest %s, the store's results were made from "
                     "%s; they cannot be continued",
                     base->path, digest, known);
        goto out;
    }
    if (!known)
        SDC_TRY_OUT(st, sdc__store_put_meta(x->store, key, digest, err));
    memcpy(base->digest, digest, sizeof digest);
out:
    sdc__free(key);
    sdc__free(known);
    return st;
}

static bool has_all_bases(const struct sdc_exec *x, size_t training) {
    size_t n = x->spec->n_checkpoints;
    for (size_t c = 0; c < n; c++)
        if (!x->bases[training * n + c].digest[0])
            return false;
    return true;
}

enum sdc_status sdc__exec_bases_load(struct sdc_exec *x, size_t *missing, struct sdc_error *err) {
    *missing = 0;
    for (size_t t = 0; t < x->plan->n_trainings; t++) {
        for (size_t c = 0; c < x->spec->n_checkpoints; c++) {
            struct sdc_exec_base *base = &x->bases[t * x->spec->n_checkpoints + c];
            base->path =
                sdc__asprintf("%s/golden/%s/step-%llu.h5", x->dir, x->plan->trainings[t].id,
                              (unsigned long long)x->spec->checkpoints[c]);
            if (!base->path)
                return SDC_NOMEM(err, "a path");
            SDC_TRY(base_load(x, t, c, false, err));
        }
        *missing += !has_all_bases(x, t);
    }
    return SDC_OK;
}

enum sdc_status sdc__exec_next_training(struct sdc_exec *x, struct sdc_exec_job **job,
                                        struct sdc_error *err) {
    *job = NULL;
    while (x->cursor < x->plan->n_trainings && has_all_bases(x, x->cursor))
        x->cursor++;
    if (x->cursor == x->plan->n_trainings)
        return SDC_OK;
    const char *id = x->plan->trainings[x->cursor].id;
    SDC_TRY(sdc__exec_job_new(x, SDC_JOB_TRAINING, sdc__strdup(id),
                              sdc__asprintf("%s/golden/%s", x->dir, id), job, err));
    (*job)->training = (uint32_t)x->cursor++;
    return SDC_OK;
}

static enum sdc_status check_end(const struct sdc_exec_job *job,
                                 const struct sdc_event_list *events, struct sdc_error *err) {
    const struct sdc_event *end = events->n ? &events->items[events->n - 1] : NULL;
    if (!end || end->kind != SDC_EVENT_END)
        return SDC_ERR(err, SDC_INVALID, "%s: the run is done, but its events in %s have no end",
                       job->id, job->folder);
    if (end->reason != SDC_END_COMPLETED)
        return SDC_ERR(err, SDC_INVALID, "%s: the clean run ended as %s: %s", job->id,
                       sdc_end_reason_name(end->reason),
                       end->message ? end->message : "no reason given");
    return SDC_OK;
}

static enum sdc_status training_done(struct sdc_exec *x, const struct sdc_exec_job *job,
                                     struct sdc_error *err) {
    struct sdc_event_list events;
    SDC_TRY(sdc__exec_events(job->folder, &events, err));
    enum sdc_status st = check_end(job, &events, err);
    sdc_events_release(&events);
    for (size_t c = 0; c < x->spec->n_checkpoints && st == SDC_OK; c++)
        st = base_load(x, job->training, c, true, err);
    if (st == SDC_OK && !has_all_bases(x, job->training))
        st =
            SDC_ERR(err, SDC_INVALID, "%s: the training is done, but not all checkpoints are in %s",
                    job->id, job->folder);
    return st;
}

/* ---- curves ---- */

static size_t count_points(const struct sdc_event_list *events) {
    size_t n = 0;
    for (size_t i = 0; i < events->n; i++)
        if (events->items[i].kind == SDC_EVENT_STEP || events->items[i].kind == SDC_EVENT_EVAL)
            n += events->items[i].ranks;
    return n;
}

static bool has_nonfinite(const struct sdc_event *e) {
    for (uint32_t r = 0; r < e->ranks; r++)
        if (e->kind == SDC_EVENT_STEP ? !isfinite(e->loss[r]) : !isfinite(e->eval_loss[r]))
            return true;
    return false;
}

enum sdc_status sdc__exec_points(const struct sdc_event_list *events, uint64_t from, uint64_t to,
                                 struct sdc_store_point **points, size_t *n,
                                 struct sdc_error *err) {
    uint64_t every = (to - from + MAX_POINTS - 1) / MAX_POINTS;
    bool met_nonfinite = false;
    *n = 0;
    *points = sdc__alloc(count_points(events), sizeof **points);
    if (!*points)
        return SDC_NOMEM(err, "a curve");
    for (size_t i = 0; i < events->n; i++) {
        const struct sdc_event *e = &events->items[i];
        bool step = e->kind == SDC_EVENT_STEP;
        if (!step && e->kind != SDC_EVENT_EVAL)
            continue;
        bool first_bad = !met_nonfinite && has_nonfinite(e);
        met_nonfinite |= first_bad;
        if (step && e->step != to && !first_bad && (e->step - from) % every != 0)
            continue;
        for (uint32_t r = 0; r < e->ranks; r++)
            (*points)[(*n)++] = (struct sdc_store_point){
                .kind = step ? SDC_SERIES_LOSS : SDC_SERIES_EVAL,
                .step = e->step,
                .rank = r,
                .loss = step ? (double)e->loss[r] : e->eval_loss[r],
                .accuracy =
                    step || !e->samples ? NAN : (double)e->eval_correct[r] / (double)e->samples,
                .gradient_norm = step && r == 0 ? e->gradient_norm : NAN};
    }
    return SDC_OK;
}

/* ---- golden groups ---- */

/* Ten times the longest pause between two events of golden. */
static unsigned hang_limit(const struct sdc_exec *x, const struct sdc_event_list *golden) {
    double longest = 0;
    for (size_t i = 1; i < golden->n; i++)
        longest = fmax(longest, golden->items[i].elapsed - golden->items[i - 1].elapsed);
    double ms = longest * 1000 * 10;
    unsigned least = x->options->hang_least_ms ? x->options->hang_least_ms : DEFAULT_HANG_LEAST;
    return ms > least ? (unsigned)fmin(ms, 86400e3) : least;
}

char *sdc__exec_run_folder(const struct sdc_exec_group *g, const char *kind, uint32_t replica) {
    return sdc__asprintf("%s/%s-%u", g->folder, kind, replica);
}

/* Golden's events and what follows from them. */
static enum sdc_status take_golden(struct sdc_exec *x, uint32_t group, uint64_t *params,
                                   struct sdc_error *err) {
    struct sdc_exec_group *g = &x->groups[group];
    const struct sdc_plan_group *p = &x->plan->groups[group];
    char *folder = sdc__exec_run_folder(g, "golden", 0), *path = NULL;
    enum sdc_status st = folder ? SDC_OK : SDC_NOMEM(err, "a path");
    if (st == SDC_OK)
        st = sdc__exec_events(folder, &g->golden, err);
    if (st == SDC_OK)
        st = sdc__clean_init(&g->clean, &g->golden, p->checkpoint, p->to_step, err);
    if (st == SDC_OK) {
        g->snapshot = sdc__exec_find_event(&g->golden, SDC_EVENT_SNAPSHOT, p->to_step);
        const struct sdc_event *last = g->clean.steps[p->to_step - p->checkpoint - 1];
        if (!g->snapshot || g->snapshot->n_paths != g->clean.ranks || !last->digests)
            st = SDC_ERR(err, SDC_INVALID,
                         "the clean restart in %s lacks a snapshot of every rank or digests at its "
                         "last step",
                         folder);
    }
    if (st == SDC_OK && !(path = sdc__exec_path(folder, g->snapshot->paths[0])))
        st = SDC_NOMEM(err, "a path");
    if (st == SDC_OK)
        st = sdc__exec_layers(g, path, params, err);
    g->hang_ms = hang_limit(x, &g->golden);
    sdc__free(folder);
    sdc__free(path);
    return st;
}

static void drop_golden(struct sdc_exec_group *g) {
    sdc__clean_release(&g->clean);
    sdc_events_release(&g->golden);
    g->golden = (struct sdc_event_list){0};
    for (size_t i = 0; i < g->n_layers; i++)
        sdc__free(g->layers[i].name);
    sdc__free(g->layers);
    g->layers = NULL;
    g->n_layers = 0;
    g->snapshot = NULL;
}

static void end_state(const struct sdc_exec_group *g, char text[SDC_STATE_DIGEST_TEXT]) {
    const struct sdc_event *last = g->clean.steps[g->clean.to_step - g->clean.from_step - 1];
    sdc_state_digest_text(&last->digests[0].state, text);
}

/* Are the events of a clean replica still there, and whole? */
static bool has_replica(const struct sdc_exec_group *g, const struct sdc_store_replica *r) {
    char *folder = sdc__exec_run_folder(g, r->kind == SDC_SPREAD_E0 ? "e0" : "e1", r->replica);
    struct sdc_event_list events = {0};
    struct sdc_error err;
    double *d = sdc__alloc(g->clean.spread.n_steps, sizeof *d);
    bool ok = folder && d && sdc__exec_events(folder, &events, &err) == SDC_OK &&
              sdc__clean_deviations(&g->clean, &events, d, &err) == SDC_OK;
    sdc__free(d);
    sdc_events_release(&events);
    sdc__free(folder);
    return ok;
}

/* Any failure here means that the files are not whole any more; they are made again. */
static bool take_up_group(struct sdc_exec *x, uint32_t group) {
    struct sdc_exec_group *g = &x->groups[group];
    const char *id = x->plan->groups[group].id;
    struct sdc_store_golden row = {0};
    struct sdc_store_replica *list = NULL;
    size_t n = 0, n_e0 = 0, n_e1 = 0;
    uint64_t params;
    struct sdc_error err;
    char state[SDC_STATE_DIGEST_TEXT];
    if (sdc__store_get_golden(x->store, id, x->platform, &row, &err) != SDC_OK)
        return false;
    bool ok = row.passed && take_golden(x, group, &params, &err) == SDC_OK;
    if (ok) {
        end_state(g, state);
        ok = strcmp(state, row.state) == 0 &&
             sdc__store_list_replicas(x->store, id, x->platform, &list, &n, &err) == SDC_OK;
    }
    for (size_t i = 0; i < n && ok; i++) {
        if (list[i].held_out)
            continue;
        ok = has_replica(g, &list[i]);
        n_e0 += list[i].kind == SDC_SPREAD_E0;
        n_e1 += list[i].kind == SDC_SPREAD_E1;
    }
    ok = ok && n_e0 == x->spec->clean_e0 && n_e1 == x->spec->clean_e1;
    for (size_t i = 0; i < n; i++)
        sdc__store_replica_release(&list[i]);
    sdc__free(list);
    sdc__store_golden_release(&row);
    if (!ok)
        drop_golden(g);
    return ok;
}

enum sdc_status sdc__exec_groups_load(struct sdc_exec *x, size_t *missing, struct sdc_error *err) {
    *missing = 0;
    for (uint32_t i = 0; i < x->plan->n_groups; i++) {
        struct sdc_exec_group *g = &x->groups[i];
        if (!g->folder &&
            !(g->folder = sdc__asprintf("%s/golden/%s", x->dir, x->plan->groups[i].id)))
            return SDC_NOMEM(err, "a path");
        g->ready = take_up_group(x, i);
        g->n_missing = g->ready ? 0 : 2 + x->spec->clean_e0 + x->spec->clean_e1;
        *missing += g->n_missing;
    }
    return SDC_OK;
}

enum sdc_status sdc__exec_next_clean(struct sdc_exec *x, struct sdc_exec_job **job,
                                     struct sdc_error *err) {
    *job = NULL;
    size_t each = 2 + x->spec->clean_e0 + x->spec->clean_e1;
    while (x->cursor < each * x->plan->n_groups && x->groups[x->cursor / each].ready)
        x->cursor += each;
    if (x->cursor >= each * x->plan->n_groups)
        return SDC_OK;
    uint32_t group = (uint32_t)(x->cursor / each), at = (uint32_t)(x->cursor % each);
    x->cursor++;
    enum sdc_exec_kind kind = SDC_JOB_GOLDEN;
    const char *name = "golden";
    if (at >= 2 + x->spec->clean_e0) {
        kind = SDC_JOB_E1;
        name = "e1";
        at -= 2 + x->spec->clean_e0;
    } else if (at >= 2) {
        kind = SDC_JOB_E0;
        name = "e0";
        at -= 2;
    }
    SDC_TRY(sdc__exec_job_new(x, kind,
                              sdc__asprintf("%s-%s-%u", x->plan->groups[group].id, name, at),
                              sdc__exec_run_folder(&x->groups[group], name, at), job, err));
    (*job)->group = group;
    (*job)->replica = at;
    return SDC_OK;
}

/* ---- the gate ---- */

/* Names the first tensor in which the snapshots of two clean restarts differ. */
static enum sdc_status name_difference(const struct sdc_event_list *a, const char *folder_a,
                                       const struct sdc_event_list *b, const char *folder_b,
                                       uint64_t step, char *text, size_t size,
                                       struct sdc_error *err) {
    const struct sdc_event *sa = sdc__exec_find_event(a, SDC_EVENT_SNAPSHOT, step);
    const struct sdc_event *sb = sdc__exec_find_event(b, SDC_EVENT_SNAPSHOT, step);
    char first[SDC_MAX_NAME + 64];
    text[0] = '\0';
    for (size_t r = 0; sa && sb && r < sa->n_paths && r < sb->n_paths; r++) {
        char *pa = sdc__exec_path(folder_a, sa->paths[r]);
        char *pb = sdc__exec_path(folder_b, sb->paths[r]);
        enum sdc_status st = pa && pb ? SDC_OK : SDC_NOMEM(err, "a path");
        if (st == SDC_OK)
            st = sdc__exec_first_difference(pa, pb, first, sizeof first, err);
        sdc__free(pa);
        sdc__free(pb);
        SDC_TRY(st);
        if (first[0]) {
            snprintf(text, size, "; first tensor: %.200s on rank %zu", first, r);
            return SDC_OK;
        }
    }
    return SDC_OK;
}

/* Both clean restarts must agree in everything and replicas must be equal after start-up. *why is
 * "" if so. */
static enum sdc_status gate(struct sdc_exec *x, uint32_t group, char *why, size_t size,
                            struct sdc_error *err) {
    const struct sdc_exec_group *g = &x->groups[group];
    char *first = sdc__exec_run_folder(g, "golden", 0),
         *again = sdc__exec_run_folder(g, "golden", 1);
    struct sdc_event_list second = {0};
    char what[256], tensor[300];
    enum sdc_status st;
    why[0] = '\0';
    if (!first || !again) {
        st = SDC_NOMEM(err, "a path");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__exec_events(again, &second, err));
    uint64_t to = x->plan->groups[group].to_step;
    bool same = sdc__runs_identical(&g->golden, &second, what, sizeof what);
    SDC_TRY_OUT(st,
                name_difference(&g->golden, first, &second, again, to, tensor, sizeof tensor, err));
    if (!same || tensor[0])
        snprintf(why, size, "two clean restarts differ: %.150s%s",
                 same ? "the states at the end of the window" : what, tensor);
    else if (!sdc__replicas_equal_at_start(&g->golden, what, sizeof what))
        snprintf(why, size, "replicas of the clean restart: %.200s", what);
out:
    sdc_events_release(&second);
    sdc__free(first);
    sdc__free(again);
    return st;
}

/* ---- a finished group ---- */

static double mean_step_seconds(const struct sdc_clean *c) {
    uint64_t n = c->to_step - c->from_step;
    return n < 2 ? NAN : (c->steps[n - 1]->elapsed - c->steps[0]->elapsed) / (double)(n - 1);
}

static enum sdc_status put_golden(struct sdc_exec *x, uint32_t group, const char *why,
                                  uint64_t params, struct sdc_error *err) {
    struct sdc_exec_group *g = &x->groups[group];
    struct sdc_store_golden row = {.platform = x->platform,
                                   .passed = !why[0],
                                   .message = why[0] ? (char *)(uintptr_t)why : NULL,
                                   .accuracy = NAN,
                                   .eval_loss = NAN,
                                   .end_loss = NAN,
                                   .max_parameter = g->max_model,
                                   .step_seconds = NAN,
                                   .params = params};
    snprintf(row.group, sizeof row.group, "%s", x->plan->groups[group].id);
    enum sdc_status st = SDC_OK;
    if (g->clean.steps) {
        const struct sdc_clean *c = &g->clean;
        const struct sdc_event *last = c->steps[c->to_step - c->from_step - 1];
        row.end_loss = 0;
        for (uint32_t r = 0; r < c->ranks; r++)
            row.end_loss += (double)last->loss[r] / c->ranks;
        row.step_seconds = mean_step_seconds(c);
        if (last->digests)
            end_state(g, row.state);
        if (c->eval && c->eval->samples) {
            row.eval_samples = c->eval->samples;
            row.eval_loss = c->eval->eval_loss[0];
            row.accuracy = (double)c->eval->eval_correct[0] / (double)c->eval->samples;
        }
        st =
            sdc__exec_points(&g->golden, c->from_step, c->to_step, &row.points, &row.n_points, err);
    }
    if (st == SDC_OK)
        st = sdc__store_put_golden(x->store, &row, err);
    sdc__free(row.points);
    return st;
}

/* A golden that the store already knows for this platform must come out the same again. */
static enum sdc_status check_known(struct sdc_exec *x, uint32_t group, struct sdc_error *err) {
    struct sdc_store_golden row = {0};
    const char *id = x->plan->groups[group].id;
    struct sdc_error none;
    if (sdc__store_get_golden(x->store, id, x->platform, &row, &none) != SDC_OK)
        return SDC_OK;
    char state[SDC_STATE_DIGEST_TEXT];
    end_state(&x->groups[group], state);
    enum sdc_status st = SDC_OK;
    if (row.passed && strcmp(row.state, state) != 0)
        st = SDC_ERR(err, SDC_MISMATCH,
                     "golden %s ends in state %s now, the store's results were judged by %s; they "
                     "cannot be continued",
                     id, state, row.state);
    sdc__store_golden_release(&row);
    return st;
}

/* Snapshots of everything but golden are not needed any more. */
static void tidy_group(struct sdc_exec *x, uint32_t group) {
    const struct sdc_exec_group *g = &x->groups[group];
    struct sdc_error err;
    size_t n = x->spec->clean_e0 + x->spec->clean_e1;
    char *again = sdc__exec_run_folder(g, "golden", 1);
    enum sdc_status st = again ? sdc__remove_tree(again, &err) : SDC_OK;
    sdc__free(again);
    for (size_t i = 0; i < n && st == SDC_OK; i++) {
        bool e0 = i < x->spec->clean_e0;
        char *folder =
            sdc__exec_run_folder(g, e0 ? "e0" : "e1", (uint32_t)(e0 ? i : i - x->spec->clean_e0));
        struct sdc_event_list events = {0};
        if (folder && sdc__exec_events(folder, &events, &err) == SDC_OK)
            for (size_t e = 0; e < events.n; e++)
                for (size_t p = 0; p < events.items[e].n_paths; p++) {
                    char *path = sdc__exec_path(folder, events.items[e].paths[p]);
                    if (path && st == SDC_OK)
                        st = sdc__remove_file(path, &err);
                    sdc__free(path);
                }
        sdc_events_release(&events);
        sdc__free(folder);
    }
}

/* A spread that is not finite, or a golden that is not whole, refuses the cell as the gate does. */
static bool refuses(enum sdc_status st) {
    return st == SDC_INVALID;
}

static enum sdc_status finish_group(struct sdc_exec *x, uint32_t group, struct sdc_error *err) {
    struct sdc_exec_group *g = &x->groups[group];
    const struct sdc_plan_group *p = &x->plan->groups[group];
    char why[512] = "";
    uint64_t params = 0;
    struct sdc_error e;
    enum sdc_status st = take_golden(x, group, &params, &e);
    if (st == SDC_OK)
        st = gate(x, group, why, sizeof why, &e);
    if (st == SDC_OK && !why[0])
        st = check_known(x, group, &e);
    if (st == SDC_OK && !why[0])
        st = sdc__exec_measure_spreads(x, group, &e);
    if (refuses(st))
        snprintf(why, sizeof why, "%.400s", e.message);
    else if (st != SDC_OK) {
        if (err)
            *err = e;
        return st;
    }
    SDC_TRY(put_golden(x, group, why, params, err));
    if (!why[0]) {
        g->ready = true;
        tidy_group(x, group);
        return SDC_OK;
    }
    g->refused = true;
    if (!x->summary->n_refused++)
        snprintf(x->summary->refused, sizeof x->summary->refused,
                 "%s (recipe %s, %u ranks): %.300s", p->id,
                 x->plan->settings[p->setting].recipe->name, x->plan->settings[p->setting].ranks,
                 why);
    sdc__exec_note(x, "golden %s does not pass the gate: %s", p->id, why);
    return SDC_OK;
}

enum sdc_status sdc__exec_clean_done(struct sdc_exec *x, struct sdc_exec_job *job,
                                     struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    uint32_t group = job->group;
    bool training = job->kind == SDC_JOB_TRAINING;
    if (training)
        st = training_done(x, job, err);
    else if (job->faults.path)
        st = sdc__remove_file(job->faults.path, err);
    sdc__exec_job_free(job);
    x->phase_done++;
    x->phase_now++;
    if (st == SDC_OK && !training && --x->groups[group].n_missing == 0)
        st = finish_group(x, group, err);
    return st;
}
