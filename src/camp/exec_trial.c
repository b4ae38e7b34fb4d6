/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/exec_internal.h"
#include "io/io.h"
#include "sdc/num.h"

enum sdc_status sdc__exec_next_trial(struct sdc_exec *x, struct sdc_exec_job **job,
                                     struct sdc_error *err) {
    *job = NULL;
    size_t first = x->phase == SDC_EXEC_CONTROLS ? 0 : x->plan->n_controls;
    size_t end = x->phase == SDC_EXEC_CONTROLS ? x->plan->n_controls : x->plan->n_trials;
    x->cursor = x->cursor < first ? first : x->cursor;
    while (x->cursor < end &&
           (x->done[x->cursor] || !x->groups[x->plan->trials[x->cursor].group].ready))
        x->cursor++;
    if (x->cursor == end)
        return SDC_OK;
    const struct sdc_plan_trial *trial = &x->plan->trials[x->cursor];
    char *folder = x->trial_folder ? sdc__strdup(x->trial_folder)
                                   : sdc__asprintf("%s/trials/%s", x->dir, trial->id);
    SDC_TRY(sdc__exec_job_new(x, SDC_JOB_TRIAL, sdc__strdup(trial->id), folder, job, err));
    (*job)->trial = trial;
    (*job)->group = trial->group;
    x->done[x->cursor++] = true; /* taken */
    return SDC_OK;
}

/* ---- what came out ---- */

/* A trial while it is judged. */
struct verdict {
    const struct sdc_plan_trial *trial;
    const struct sdc_exec_group *g;
    const struct sdc_exec_job *job;
    struct sdc_event_list events;
    const struct sdc_event *start; /* NULL: it did not get so far */
    struct sdc_judge_trial facts;
    struct sdc_judge_detail detail;
    struct sdc_store_trial row; /* what it points to is owned */
};

static const struct sdc_switches *switches_of(const struct sdc_exec *x, uint32_t group) {
    return &x->plan->settings[x->plan->groups[group].setting].recipe->switches;
}

/* Does this rank take this part from its file? As it reported, else as its recipe says. */
static bool takes(const struct sdc_exec *x, const struct verdict *v, uint32_t rank,
                  enum sdc_part part) {
    if (v->start) {
        const struct sdc_start_rank *s = &v->start->start[rank];
        return s->file && (part == SDC_PART_MODEL ? s->read_model : s->read_optimizer);
    }
    const struct sdc_switches *sw = switches_of(x, v->trial->group);
    enum sdc_who who = part == SDC_PART_MODEL ? sw->read_model : sw->read_optimizer;
    return who == SDC_WHO_ALL || rank == 0;
}

static bool is_planned(const struct verdict *v, uint32_t rank) {
    return v->trial->altered >> rank & 1;
}

static unsigned count_bits(uint64_t v) {
    unsigned n = 0;
    for (; v; v &= v - 1)
        n++;
    return n;
}

static bool changed(const struct sdc_record_change *c) {
    return c->old_raw != c->new_raw;
}

static bool delivered(const struct sdc_exec *x, const struct verdict *v,
                      const struct sdc_record_change *c) {
    for (uint32_t r = 0; r < v->g->clean.ranks; r++)
        if (is_planned(v, r) && takes(x, v, r, c->part))
            return true;
    return false;
}

static void classify_change(const struct sdc_exec *x, const struct sdc_exec_group *g,
                            const struct sdc_record_change *c, struct sdc_store_trial *row) {
    if (!changed(c) || sdc_dtype_kind(c->dtype) != SDC_KIND_FLOAT)
        return;
    enum sdc_num_class class = sdc_num_class(c->dtype, c->new_raw);
    double clean = c->part == SDC_PART_MODEL ? g->max_model : g->max_optimizer;
    row->n_nan += class == SDC_CLASS_NAN;
    row->n_inf += class == SDC_CLASS_INF;
    row->n_extreme +=
        class != SDC_CLASS_NAN && class != SDC_CLASS_INF &&
        fabs(sdc_num_to_double(c->dtype, c->new_raw)) > x->spec->thresholds.extreme * clean;
}

static enum sdc_status fill_faults(const struct sdc_exec *x, struct verdict *v,
                                   struct sdc_error *err) {
    const struct sdc_exec_faults *f = &v->job->faults;
    struct sdc_store_trial *row = &v->row;
    size_t n = f->result.n_changes;
    row->support = f->support;
    row->planned = f->planned;
    row->altered_bits = f->result.altered_bits;
    row->faults =
        sdc__calloc(n < SDC_STORE_MAX_FAULTS ? n : SDC_STORE_MAX_FAULTS, sizeof *row->faults);
    if (!row->faults)
        return SDC_NOMEM(err, "faults");
    for (size_t i = 0; i < n; i++) {
        const struct sdc_record_change *c = &f->result.changes[i];
        bool reached = changed(c) && delivered(x, v, c);
        classify_change(x, v->g, c, row);
        bool by_bit = c->op == SDC_OP_FLIP || c->op == SDC_OP_SET0 || c->op == SDC_OP_SET1;
        row->delivered += !reached ? 0 : by_bit ? count_bits(c->old_raw ^ c->new_raw) : 1;
        if (i >= SDC_STORE_MAX_FAULTS)
            continue;
        struct sdc_store_fault *slot = &row->faults[row->n_faults++];
        *slot = (struct sdc_store_fault){.tensor = sdc__strdup(c->tensor),
                                         .index = sdc__strdup(c->index ? c->index : ""),
                                         .elem = c->elem,
                                         .dtype = c->dtype,
                                         .part = c->part,
                                         .role = c->role,
                                         .op = c->op,
                                         .bits = c->bits,
                                         .old_raw = c->old_raw,
                                         .new_raw = c->new_raw,
                                         .delivered = reached};
        if (!slot->tensor || !slot->index)
            return SDC_NOMEM(err, "faults");
    }
    return SDC_OK;
}

static void digest_text(const struct sdc_rank_digests *d, char text[33]) {
    text[0] = '\0';
    if (d->valid)
        sdc_state_digest_text(&d->state, text);
}

static enum sdc_status fill_exposure(const struct sdc_exec *x, struct verdict *v,
                                     struct sdc_error *err) {
    uint32_t ranks = v->g->clean.ranks;
    const struct sdc_exec_faults *f = &v->job->faults;
    bool in_model = false, in_others = false;
    for (size_t i = 0; i < f->result.n_changes; i++) {
        in_model |= changed(&f->result.changes[i]) && f->result.changes[i].part == SDC_PART_MODEL;
        in_others |= changed(&f->result.changes[i]) && f->result.changes[i].part != SDC_PART_MODEL;
    }
    v->row.exposures = sdc__calloc(ranks, sizeof *v->row.exposures);
    if (!v->row.exposures)
        return SDC_NOMEM(err, "exposure");
    v->row.n_exposures = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        struct sdc_store_exposure *e = &v->row.exposures[r];
        e->rank = r;
        e->planned = is_planned(v, r);
        e->read = e->planned && ((in_model && takes(x, v, r, SDC_PART_MODEL)) ||
                                 (in_others && takes(x, v, r, SDC_PART_OPTIMIZER)));
        if (!v->start)
            continue;
        const struct sdc_start_rank *own = &v->start->start[r];
        const struct sdc_start_rank *clean = &v->g->clean.start->start[r];
        digest_text(&own->loaded, e->loaded);
        digest_text(&own->started, e->started);
        e->altered_loaded =
            memcmp(&own->loaded.state, &clean->loaded.state, sizeof own->loaded.state) != 0;
        e->altered_started =
            memcmp(&own->started.state, &clean->started.state, sizeof own->started.state) != 0;
    }
    return SDC_OK;
}

/* ---- the state at the end of the window ---- */

static const struct sdc_event *last_event(const struct sdc_event_list *events) {
    return events->n ? &events->items[events->n - 1] : NULL;
}

static bool ended_as(const struct verdict *v, enum sdc_end_reason reason) {
    const struct sdc_event *e = last_event(&v->events);
    return e && e->kind == SDC_EVENT_END && e->reason == reason;
}

/* A rank whose whole state has golden's digest need not be compared. */
static bool rank_is_golden(const struct verdict *v, uint32_t rank) {
    const struct sdc_clean *c = &v->g->clean;
    const struct sdc_event *own = sdc__exec_find_event(&v->events, SDC_EVENT_STEP, c->to_step);
    const struct sdc_event *clean = c->steps[c->to_step - c->from_step - 1];
    return own && own->digests && own->digests[rank].valid && clean->digests &&
           memcmp(&own->digests[rank].state, &clean->digests[rank].state,
                  sizeof own->digests[rank].state) == 0;
}

static enum sdc_status compare_rank(struct sdc_exec *x, struct verdict *v,
                                    const struct sdc_event *snapshot, uint32_t rank,
                                    struct sdc_exec_compared *c, struct sdc_error *err) {
    const struct sdc_exec_group *g = v->g;
    uint64_t step = g->clean.to_step;
    if (ended_as(v, SDC_END_EQUAL_TO_GOLDEN) || (snapshot && rank_is_golden(v, rank)))
        return sdc__exec_compare_known(g, rank, step, false, c, err);
    if (ended_as(v, SDC_END_ALL_NONFINITE) && !snapshot)
        return sdc__exec_compare_known(g, rank, step, true, c, err);
    char *golden_folder = sdc__asprintf("%s/golden-0", g->folder);
    char *a = golden_folder ? sdc__exec_path(golden_folder, g->snapshot->paths[rank]) : NULL;
    char *b = sdc__exec_path(v->job->folder, snapshot->paths[rank]);
    const struct sdc_alter_result *f = &v->job->faults.result;
    enum sdc_status st = a && b ? sdc__exec_compare(g, a, b, rank, step, f->changes, f->n_changes,
                                                    x->spec->thresholds.extreme, c, err)
                                : SDC_NOMEM(err, "a path");
    sdc__free(golden_folder);
    sdc__free(a);
    sdc__free(b);
    return st;
}

static enum sdc_status fill_propagation(struct sdc_exec *x, struct verdict *v,
                                        struct sdc_error *err) {
    const struct sdc_exec_group *g = v->g;
    uint32_t ranks = g->clean.ranks;
    const struct sdc_event *snapshot =
        sdc__exec_find_event(&v->events, SDC_EVENT_SNAPSHOT, g->clean.to_step);
    v->row.distance = NAN;
    if (snapshot && snapshot->n_paths != ranks)
        return SDC_ERR(err, SDC_INVALID,
                       "the snapshot has %zu files, expected one for each of %u "
                       "ranks",
                       snapshot->n_paths, ranks);
    if (!snapshot && !ended_as(v, SDC_END_EQUAL_TO_GOLDEN) && !ended_as(v, SDC_END_ALL_NONFINITE))
        return SDC_OK;
    v->row.propagation = sdc__calloc(ranks * g->n_layers, sizeof *v->row.propagation);
    if (!v->row.propagation)
        return SDC_NOMEM(err, "propagation");
    v->facts.snapshots = true;
    for (uint32_t r = 0; r < ranks; r++) {
        struct sdc_exec_compared c = {0};
        enum sdc_status st = compare_rank(x, v, snapshot, r, &c, err);
        for (size_t i = 0; i < g->n_layers && st == SDC_OK; i++) {
            struct sdc_store_propagation *slot = &v->row.propagation[v->row.n_propagation++];
            *slot = c.rows[i];
            if (!(slot->layer = sdc__strdup(c.rows[i].layer)))
                st = SDC_NOMEM(err, "propagation");
        }
        if (st == SDC_OK && r == 0)
            v->row.distance = c.distance;
        v->facts.extreme |= c.extreme;
        v->facts.nonfinite |= c.nonfinite;
        v->facts.distance = fmax(v->facts.distance, c.distance);
        sdc__free(c.rows);
        SDC_TRY(st);
    }
    return SDC_OK;
}

/* ---- labels ---- */

/* Without a word from the ranks: what the plan and the recipe say. */
static void expose_by_plan(const struct verdict *v, struct sdc_outcome *o, uint32_t *kept) {
    if (v->start || !v->facts.altered)
        return;
    *kept = 0;
    for (size_t r = 0; r < v->row.n_exposures; r++)
        *kept += v->row.exposures[r].read;
    if (*kept)
        o->exposure = SDC_EXPOSURE_KEPT;
}

static enum sdc_status fill_horizons(struct sdc_exec *x, struct verdict *v, struct sdc_error *err) {
    static const uint64_t after[] = {1, 100};
    size_t n = sizeof after / sizeof after[0];
    v->row.horizons = sdc__calloc(n, sizeof *v->row.horizons);
    if (!v->row.horizons)
        return SDC_NOMEM(err, "horizons");
    for (size_t i = 0; i < n; i++) {
        if (after[i] >= v->g->clean.to_step - v->g->clean.from_step)
            continue;
        struct sdc_judge_trial facts = v->facts;
        struct sdc_judge_detail d;
        facts.cut = v->g->clean.from_step + after[i];
        struct sdc_store_horizon *h = &v->row.horizons[v->row.n_horizons++];
        h->after = after[i];
        SDC_TRY(sdc__judge(&v->g->clean, &x->thresholds, &facts, &h->outcome, &d, err));
        expose_by_plan(v, &h->outcome, &d.kept_ranks);
    }
    return SDC_OK;
}

static enum sdc_status label(struct sdc_exec *x, struct verdict *v, struct sdc_error *err) {
    struct sdc_store_trial *row = &v->row;
    struct sdc_judge_detail *d = &v->detail;
    SDC_TRY(sdc__judge(&v->g->clean, &x->thresholds, &v->facts, &row->outcome, d, err));
    row->kept_ranks = d->kept_ranks;
    expose_by_plan(v, &row->outcome, &row->kept_ranks);
    row->collapse_step = d->collapse_step;
    row->end_step = d->end_step;
    const char *reason = d->has_reason                       ? sdc_end_reason_name(d->reason)
                         : v->facts.end == SDC_TRIAL_CRASHED ? "crash"
                                                             : "hang";
    snprintf(row->end_reason, sizeof row->end_reason, "%s", reason);
    row->end_loss = d->end_loss;
    row->eval_loss = d->eval_loss;
    row->accuracy = d->accuracy;
    row->accuracy_worst = d->accuracy_worst;
    row->accuracy_golden = d->accuracy_golden;
    const struct sdc_event *last = last_event(&v->events);
    row->seconds = last ? last->elapsed : 0;
    SDC_TRY(fill_horizons(x, v, err));
    return sdc__exec_points(&v->events, v->g->clean.from_step, v->g->clean.to_step, &row->points,
                            &row->n_points, err);
}

/* ---- controls ---- */

static bool all_equal(const struct verdict *v) {
    for (size_t i = 0; i < v->row.n_propagation; i++)
        if (v->row.propagation[i].n_differ)
            return false;
    return true;
}

/* "" where the control shows what it must. */
static void check_control(const struct verdict *v, char *why, size_t size) {
    const struct sdc_outcome *o = &v->row.outcome;
    char what[256];
    why[0] = '\0';
    switch (v->trial->kind) {
    case SDC_TRIAL_CELL:
        break;
    case SDC_TRIAL_PLACEBO:
        if (!sdc__runs_identical(&v->g->golden, &v->events, what, sizeof what))
            snprintf(why, size, "nothing was altered, and yet it differs from golden: %s", what);
        else if (!v->row.n_propagation || !all_equal(v))
            snprintf(why, size,
                     "nothing was altered, and yet its last state differs from golden's");
        break;
    case SDC_TRIAL_ONE_LSB:
        if (v->detail.identical && all_equal(v))
            snprintf(why, size,
                     "one altered bit made no difference to golden: it did not reach "
                     "the training");
        else if (v->g->clean.spread.n_e0 && o->trajectory != SDC_TRAJECTORY_INSIDE)
            snprintf(why, size, "one lowest bit left the clean spread (%s)",
                     sdc_label_text(SDC_AXIS_TRAJECTORY, (int)o->trajectory));
        break;
    case SDC_TRIAL_ALL_NAN:
        if (!sdc_outcome_is_collapse(o))
            snprintf(why, size,
                     "all weights are NaN on all ranks, and it did not collapse (%s): "
                     "NaN does not travel through this training",
                     sdc_label_text(SDC_AXIS_NUMERIC, (int)o->numeric));
        break;
    }
}

static enum sdc_status count_control(struct sdc_exec *x, const struct sdc_store_trial *row,
                                     struct sdc_error *err) {
    if (row->control != 0)
        return SDC_OK;
    if (x->summary->n_failed_controls++)
        return SDC_OK;
    snprintf(x->summary->failed_control, sizeof x->summary->failed_control, "%s: %.400s", row->id,
             row->message ? row->message : "it could not be run");
    return x->trial_out ? SDC_OK
                        : sdc__store_put_meta(x->store, "invalid", x->summary->failed_control, err);
}

/* ---- into the store ---- */

static void begin_row(struct sdc_exec *x, const struct sdc_exec_job *job,
                      struct sdc_store_trial *row) {
    const struct sdc_plan_trial *t = job->trial;
    *row = (struct sdc_store_trial){.kind = t->kind,
                                    .cell = t->cell,
                                    .index = t->index,
                                    .cluster = t->cluster,
                                    .group = t->group,
                                    .collapse_step = -1,
                                    .control = t->kind == SDC_TRIAL_CELL ? -1 : 1,
                                    .platform = x->platform,
                                    .attempts = job->attempts,
                                    .end_loss = NAN,
                                    .eval_loss = NAN,
                                    .accuracy = NAN,
                                    .accuracy_worst = NAN,
                                    .accuracy_golden = NAN,
                                    .distance = NAN};
    snprintf(row->id, sizeof row->id, "%s", t->id);
}

/* Stores the row, or hands it over (repetition); the files go afterwards. */
static enum sdc_status put_row(struct sdc_exec *x, const struct sdc_exec_job *job,
                               struct sdc_store_trial *row, struct sdc_error *err) {
    x->phase_done++;
    x->phase_now++;
    bool judged = row->kind == SDC_TRIAL_CELL && row->outcome.result == SDC_RESULT_DONE;
    x->n_judged += judged;
    x->n_collapsed += judged && sdc_outcome_is_collapse(&row->outcome);
    x->summary->n_harness_errors += row->outcome.result == SDC_RESULT_HARNESS_ERROR;
    SDC_TRY(count_control(x, row, err));
    if (x->trial_out) {
        *x->trial_out = *row;
        *row = (struct sdc_store_trial){0};
        return SDC_OK;
    }
    SDC_TRY(sdc__store_put_trial(x->store, row, err));
    x->summary->n_now++;
    return x->keep_files ? SDC_OK : sdc__remove_tree(job->folder, err);
}

static enum sdc_status judge_row(struct sdc_exec *x, struct verdict *v,
                                 const struct sdc_pool_result *r, struct sdc_error *err) {
    begin_row(x, v->job, &v->row);
    v->row.worker = (uint32_t)r->worker;
    v->facts = (struct sdc_judge_trial){
        .events = &v->events,
        .end = r->end == SDC_POOL_CRASHED ? SDC_TRIAL_CRASHED
               : r->end == SDC_POOL_HUNG  ? SDC_TRIAL_HUNG
                                          : SDC_TRIAL_ENDED,
        .altered = v->job->faults.result.altered,
    };
    SDC_TRY(fill_faults(x, v, err));
    SDC_TRY(fill_exposure(x, v, err));
    if (v->facts.end == SDC_TRIAL_ENDED)
        SDC_TRY(fill_propagation(x, v, err));
    SDC_TRY(label(x, v, err));
    char why[512];
    check_control(v, why, sizeof why);
    if (why[0]) {
        v->row.control = 0;
        if (!(v->row.message = sdc__strdup(why)))
            return SDC_NOMEM(err, "a message");
    } else if (r->end != SDC_POOL_DONE && r->message &&
               !(v->row.message = sdc__strdup(r->message))) {
        return SDC_NOMEM(err, "a message");
    }
    return SDC_OK;
}

/* Why a run that the worker calls done is no result; NULL if it is one. */
static const char *not_a_result(const struct verdict *v, const struct sdc_pool_result *r) {
    const struct sdc_event *last = last_event(&v->events);
    if (r->end != SDC_POOL_DONE)
        return NULL;
    if (!last || last->kind != SDC_EVENT_END)
        return r->message ? r->message : "its events have no end";
    if (last->reason == SDC_END_FAILED || (r->status != SDC_OK && last->reason != SDC_END_REJECTED))
        return r->message ? r->message : last->message ? last->message : "it failed";
    return NULL;
}

enum sdc_status sdc__exec_trial_done(struct sdc_exec *x, struct sdc_exec_job *job,
                                     const struct sdc_pool_result *r, struct sdc_error *err) {
    struct verdict v = {.trial = job->trial, .g = &x->groups[job->group], .job = job};
    struct sdc_error e;
    enum sdc_status st = sdc__exec_events(job->folder, &v.events, &e);
    if (st == SDC_OK) {
        v.start = v.events.n && v.events.items[0].kind == SDC_EVENT_START &&
                          v.events.items[0].ranks == v.g->clean.ranks
                      ? &v.events.items[0]
                      : NULL;
        const char *why = not_a_result(&v, r);
        if (why) {
            st = sdc__exec_trial_failed(x, job, SDC_RESULT_HARNESS_ERROR, why, err);
            sdc_events_release(&v.events);
            return st;
        }
        st = judge_row(x, &v, r, &e);
    }
    sdc_events_release(&v.events);
    if (st == SDC_INVALID || st == SDC_MISMATCH || st == SDC_NOT_FOUND) {
        /* what the run wrote cannot be used: the laboratory's failure, not the trial's outcome */
        sdc__store_trial_release(&v.row);
        return sdc__exec_trial_failed(x, job, SDC_RESULT_HARNESS_ERROR, e.message, err);
    }
    if (st == SDC_OK)
        st = put_row(x, job, &v.row, err);
    else if (err)
        *err = e;
    sdc__store_trial_release(&v.row);
    sdc__exec_job_free(job);
    return st;
}

enum sdc_status sdc__exec_trial_failed(struct sdc_exec *x, struct sdc_exec_job *job,
                                       enum sdc_result result, const char *message,
                                       struct sdc_error *err) {
    struct sdc_store_trial row;
    begin_row(x, job, &row);
    row.outcome = (struct sdc_outcome){.result = result,
                                       .exposure = SDC_EXPOSURE_NONE,
                                       .numeric = SDC_NUMERIC_FINITE,
                                       .trajectory = SDC_TRAJECTORY_NO_LOSS,
                                       .quality = SDC_QUALITY_UNKNOWN,
                                       .replicas = SDC_REPLICAS_UNKNOWN};
    row.support = job->faults.support;
    row.planned = job->faults.planned;
    row.end_step = x->plan->groups[job->group].checkpoint;
    snprintf(row.end_reason, sizeof row.end_reason, "%s", sdc_end_reason_name(SDC_END_FAILED));
    if (row.kind != SDC_TRIAL_CELL)
        row.control = 0;
    row.message = sdc__strdup(message ? message : "it failed");
    sdc__exec_note(x, "%s: %s: %s", job->id, sdc_label_text(SDC_AXIS_RESULT, (int)result),
                   message ? message : "it failed");
    enum sdc_status st = row.message ? put_row(x, job, &row, err) : SDC_NOMEM(err, "a message");
    sdc__store_trial_release(&row);
    sdc__exec_job_free(job);
    return st;
}
