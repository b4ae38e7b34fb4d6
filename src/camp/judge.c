/* SPDX-License-Identifier: Apache-2.0 */
#include "camp/judge.h"

#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "base/limits.h"

void sdc__thresholds_init(struct sdc_thresholds *t) {
    *t = (struct sdc_thresholds){
        .degraded = 0.05, .chance = 0.02, .classes = 10, .now_steps = 2, .soon_steps = 100};
}

/* What one pass over the events finds. */
struct walk {
    const struct sdc_clean *clean;
    uint64_t cut;                                                     /* last step that counts */
    const struct sdc_event *start, *last_step, *eval, *end, *digests; /* last of each */
    int64_t collapse;                 /* steps after the restart; -1: none */
    bool identical;                   /* so far, in all that was written */
    bool finite_loss;                 /* there was one */
    bool left;                        /* a loss was outside the spread */
    uint64_t outside_at;              /* last step with a loss outside */
    bool ranks_differed;              /* replicas that golden has equal were not */
    bool ranks_differ;                /* ... when last looked at */
    bool twin_differed, twin_differs; /* some rank from golden's same rank */
};

static bool same(const struct sdc_state_digest *a, const struct sdc_state_digest *b) {
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* One part of the state over ranks: equal in golden but not here. */
static bool part_differs(const struct sdc_state_digest *const *run,
                         const struct sdc_state_digest *const *golden, uint32_t ranks) {
    bool equal = true, equal_in_golden = true;
    for (uint32_t r = 1; r < ranks; r++) {
        equal &= same(run[0], run[r]);
        equal_in_golden &= same(golden[0], golden[r]);
    }
    return equal_in_golden && !equal;
}

/* Compares the digests of all ranks with golden's at the same place. */
static void compare_digests(struct walk *w, const struct sdc_rank_digests *run,
                            const struct sdc_rank_digests *golden) {
    uint32_t ranks = w->clean->ranks;
    const struct sdc_state_digest *a[3][SDC_MAX_RANKS], *b[3][SDC_MAX_RANKS];
    bool twin = false;
    for (uint32_t r = 0; r < ranks; r++) {
        if (!run[r].valid || !golden[r].valid)
            return;
        a[0][r] = &run[r].parameters;
        a[1][r] = &run[r].buffers;
        a[2][r] = &run[r].optimizer;
        b[0][r] = &golden[r].parameters;
        b[1][r] = &golden[r].buffers;
        b[2][r] = &golden[r].optimizer;
        twin |= !same(&run[r].state, &golden[r].state);
    }
    w->ranks_differ = false;
    for (int part = 0; part < 3; part++)
        w->ranks_differ |= part_differs(a[part], b[part], ranks);
    w->ranks_differed |= w->ranks_differ;
    w->twin_differs = twin;
    w->twin_differed |= twin;
}

static void at_start(struct walk *w, const struct sdc_event *e) {
    struct sdc_rank_digests run[SDC_MAX_RANKS], golden[SDC_MAX_RANKS];
    w->start = e;
    for (uint32_t r = 0; r < e->ranks; r++) {
        run[r] = e->start[r].started;
        golden[r] = w->clean->start->start[r].started;
    }
    compare_digests(w, run, golden);
}

static void collapse_at(struct walk *w, uint64_t step) {
    if (w->collapse < 0)
        w->collapse = (int64_t)(step - w->clean->from_step);
}

static void at_step(struct walk *w, const struct sdc_event *e) {
    const struct sdc_event *g = w->clean->steps[e->step - w->clean->from_step - 1];
    w->last_step = e;
    for (uint32_t r = 0; r < e->ranks; r++) {
        if (!isfinite(e->loss[r])) {
            collapse_at(w, e->step);
            w->identical = false;
            w->left = true;
            w->outside_at = e->step;
            continue;
        }
        w->finite_loss = true;
        if (memcmp(&e->loss[r], &g->loss[r], sizeof e->loss[r]) != 0)
            w->identical = false;
        if (fabs((double)e->loss[r] - (double)g->loss[r]) >
            sdc__clean_limit(w->clean, e->step, r)) {
            w->left = true;
            w->outside_at = e->step;
        }
    }
    if (e->digests && g->digests) {
        w->digests = e;
        compare_digests(w, e->digests, g->digests);
    }
}

static void at_eval(struct walk *w, const struct sdc_event *e) {
    if (e->step == w->cut)
        w->eval = e;
    for (uint32_t r = 0; r < e->ranks; r++)
        if (!isfinite(e->eval_loss[r])) {
            collapse_at(w, e->step);
            w->identical = false;
        }
    const struct sdc_event *g = w->clean->eval;
    if (g && g->step == e->step && g->ranks == e->ranks)
        for (uint32_t r = 0; r < e->ranks; r++)
            if (memcmp(&g->eval_loss[r], &e->eval_loss[r], sizeof e->eval_loss[r]) != 0 ||
                g->eval_correct[r] != e->eval_correct[r])
                w->identical = false;
}

static enum sdc_status walk_events(struct walk *w, const struct sdc_event_list *events,
                                   struct sdc_error *err) {
    const struct sdc_clean *c = w->clean;
    for (size_t i = 0; i < events->n; i++) {
        const struct sdc_event *e = &events->items[i];
        bool per_rank = e->kind == SDC_EVENT_START || e->kind == SDC_EVENT_STEP;
        if (c->ranks > SDC_MAX_RANKS || (per_rank && e->ranks != c->ranks))
            return SDC_ERR(err, SDC_INVALID, "event %zu has %u ranks, golden has %u", i + 1,
                           e->ranks, c->ranks);
        if (e->step < c->from_step || e->step > c->to_step ||
            (e->kind == SDC_EVENT_STEP && e->step == c->from_step))
            return SDC_ERR(err, SDC_INVALID,
                           "event %zu is of step %llu, expected one between %llu and %llu", i + 1,
                           (unsigned long long)e->step, (unsigned long long)c->from_step,
                           (unsigned long long)c->to_step);
        if (e->step > w->cut)
            continue;
        if (e->kind == SDC_EVENT_START)
            at_start(w, e);
        else if (e->kind == SDC_EVENT_STEP)
            at_step(w, e);
        else if (e->kind == SDC_EVENT_EVAL)
            at_eval(w, e);
        else if (e->kind == SDC_EVENT_END)
            w->end = e;
    }
    return SDC_OK;
}

/* ---- the axes ---- */

static enum sdc_exposure judge_exposure(const struct walk *w, const struct sdc_judge_trial *t,
                                        struct sdc_judge_detail *d) {
    if (!w->start)
        return t->altered ? SDC_EXPOSURE_NOT_READ : SDC_EXPOSURE_NONE;
    bool all_same = true;
    const struct sdc_start_rank *first = NULL;
    for (uint32_t r = 0; r < w->clean->ranks; r++) {
        const struct sdc_start_rank *run = &w->start->start[r];
        const struct sdc_start_rank *golden = &w->clean->start->start[r];
        d->loaded_ranks += run->loaded.valid && golden->loaded.valid &&
                           !same(&run->loaded.state, &golden->loaded.state);
        if (!run->started.valid || !golden->started.valid ||
            same(&run->started.state, &golden->started.state))
            continue;
        d->kept_ranks++;
        if (first)
            all_same &= same(&first->started.parameters, &run->started.parameters) &&
                        same(&first->started.buffers, &run->started.buffers) &&
                        same(&first->started.optimizer, &run->started.optimizer);
        else
            first = run;
    }
    if (!t->altered)
        return SDC_EXPOSURE_NONE;
    if (d->kept_ranks == w->clean->ranks && all_same)
        return SDC_EXPOSURE_SPREAD;
    if (d->kept_ranks)
        return SDC_EXPOSURE_KEPT;
    return d->loaded_ranks ? SDC_EXPOSURE_ERASED : SDC_EXPOSURE_NOT_READ;
}

static enum sdc_numeric judge_numeric(const struct walk *w, const struct sdc_thresholds *th,
                                      const struct sdc_judge_trial *t) {
    if (w->collapse >= 0)
        return (uint64_t)w->collapse <= th->now_steps    ? SDC_NUMERIC_NONFINITE_NOW
               : (uint64_t)w->collapse <= th->soon_steps ? SDC_NUMERIC_NONFINITE_SOON
                                                         : SDC_NUMERIC_NONFINITE_LATE;
    if (t->end == SDC_TRIAL_CRASHED)
        return SDC_NUMERIC_CRASH;
    if (t->end == SDC_TRIAL_HUNG)
        return SDC_NUMERIC_HANG;
    if (w->end && w->end->reason == SDC_END_REJECTED)
        return SDC_NUMERIC_REJECTED;
    return t->snapshots && !t->cut && (t->extreme || t->nonfinite) ? SDC_NUMERIC_EXTREME
                                                                   : SDC_NUMERIC_FINITE;
}

static enum sdc_trajectory judge_trajectory(const struct walk *w, const struct sdc_judge_trial *t,
                                            bool equal_at_end) {
    if (!w->finite_loss)
        return SDC_TRAJECTORY_NO_LOSS;
    if (w->identical && !w->twin_differed)
        return SDC_TRAJECTORY_IDENTICAL;
    if (w->left) {
        /* back, if the last tenth of the window is inside; a run that ended early because it
         * equals golden is inside from there on */
        uint64_t tenth = (w->cut - w->clean->from_step) / 10;
        bool back = equal_at_end || (w->collapse < 0 && w->last_step->step == w->cut &&
                                     w->outside_at + (tenth ? tenth : 1) <= w->cut);
        return back ? SDC_TRAJECTORY_SPIKE_RECOVER : SDC_TRAJECTORY_DEGRADE;
    }
    if (w->collapse >= 0)
        return SDC_TRAJECTORY_DEGRADE; /* only the evaluation was not finite */
    bool drift = t->snapshots && !t->cut && !(t->distance <= sdc__clean_distance_limit(w->clean));
    return drift && !equal_at_end ? SDC_TRAJECTORY_DRIFT : SDC_TRAJECTORY_INSIDE;
}

static double accuracy_of(const struct sdc_event *eval, bool worst) {
    if (!eval || !eval->samples || !eval->ranks)
        return NAN;
    uint64_t correct = eval->eval_correct[0];
    for (uint32_t r = 1; worst && r < eval->ranks; r++)
        correct = eval->eval_correct[r] < correct ? eval->eval_correct[r] : correct;
    return (double)correct / (double)eval->samples;
}

static enum sdc_quality judge_quality(const struct sdc_clean *clean,
                                      const struct sdc_thresholds *th, double accuracy,
                                      double golden) {
    const double slack = 1e-9; /* accuracies are ratios of whole numbers: no such difference */
    if (isnan(accuracy) || isnan(golden))
        return SDC_QUALITY_UNKNOWN;
    double below = golden - accuracy;
    if (accuracy == golden ||
        (clean->spread.n_e1 && fabs(below) <= clean->spread.deviation_e1 + slack))
        return SDC_QUALITY_UNCHANGED;
    if (below > 0 && accuracy <= 1.0 / th->classes + th->chance + slack)
        return SDC_QUALITY_FAILED;
    if (below > th->degraded + slack)
        return SDC_QUALITY_DEGRADED;
    if (!clean->spread.n_e1)
        return SDC_QUALITY_UNKNOWN;
    return below > 0 ? SDC_QUALITY_SLIGHT : SDC_QUALITY_BETTER;
}

static enum sdc_replicas judge_replicas(const struct walk *w, bool reached, bool equal_at_end) {
    if (equal_at_end)
        return w->twin_differed ? SDC_REPLICAS_HEALED : SDC_REPLICAS_EQUAL;
    if (!reached)
        return SDC_REPLICAS_UNKNOWN;
    if (w->ranks_differ)
        return SDC_REPLICAS_DIVERGED;
    if (w->ranks_differed)
        return SDC_REPLICAS_HEALED;
    if (w->twin_differs)
        return SDC_REPLICAS_POISONED;
    return w->twin_differed ? SDC_REPLICAS_HEALED : SDC_REPLICAS_EQUAL;
}

static double mean_loss(const struct sdc_event *step) {
    double sum = 0;
    for (uint32_t r = 0; r < step->ranks; r++)
        sum += (double)step->loss[r];
    double mean = sum / step->ranks;
    return isfinite(mean) ? mean : NAN;
}

static void fill_detail(const struct walk *w, const struct sdc_thresholds *th, bool equal_at_end,
                        bool all_nonfinite, struct sdc_judge_detail *d) {
    const struct sdc_clean *clean = w->clean;
    const struct sdc_event *last = w->last_step, *eval = w->eval;
    d->collapse_step = w->collapse;
    d->end_step = w->end ? w->end->step : last ? last->step : clean->from_step;
    d->has_reason = w->end != NULL;
    d->reason = w->end ? w->end->reason : SDC_END_FAILED;
    if (equal_at_end) { /* what comes is golden's */
        last = clean->steps[w->cut - clean->from_step - 1];
        if (clean->eval && clean->eval->step == w->cut)
            eval = clean->eval;
    }
    d->end_loss = last && !all_nonfinite ? mean_loss(last) : NAN;
    d->eval_loss = eval && eval->ranks ? eval->eval_loss[0] : NAN;
    d->accuracy = accuracy_of(eval, false);
    d->accuracy_worst = accuracy_of(eval, true);
    d->accuracy_golden =
        clean->eval && clean->eval->step == w->cut ? accuracy_of(clean->eval, false) : NAN;
    if (all_nonfinite && !eval && !isnan(d->accuracy_golden)) {
        /* all logits are NaN: no class is told from another */
        d->accuracy = d->accuracy_worst = 1.0 / th->classes;
    }
    d->identical = w->identical && !w->twin_differed;
}

enum sdc_status sdc__judge(const struct sdc_clean *clean, const struct sdc_thresholds *th,
                           const struct sdc_judge_trial *trial, struct sdc_outcome *outcome,
                           struct sdc_judge_detail *detail, struct sdc_error *err) {
    struct walk w = {.clean = clean,
                     .cut = trial->cut ? trial->cut : clean->to_step,
                     .collapse = -1,
                     .identical = true};
    *detail = (struct sdc_judge_detail){.collapse_step = -1};
    SDC_TRY(walk_events(&w, trial->events, err));
    bool whole = trial->end == SDC_TRIAL_ENDED;
    bool equal_at_end = whole && w.end && w.end->reason == SDC_END_EQUAL_TO_GOLDEN;
    bool all_nonfinite = whole && w.end && w.end->reason == SDC_END_ALL_NONFINITE;
    if (all_nonfinite && w.collapse < 0 && w.end->step < w.cut)
        collapse_at(&w, w.end->step + 1); /* the next loss cannot be finite */
    /* the state at the end of the window is known */
    bool reached = whole && (all_nonfinite || (w.digests && w.digests->step == w.cut) ||
                             (w.cut == clean->from_step && w.start));
    *outcome = (struct sdc_outcome){
        .result = SDC_RESULT_DONE,
        .exposure = judge_exposure(&w, trial, detail),
        .numeric = judge_numeric(&w, th, trial),
        .trajectory = judge_trajectory(&w, trial, equal_at_end),
        .replicas = judge_replicas(&w, reached, equal_at_end),
    };
    if (all_nonfinite)
        outcome->trajectory = w.finite_loss ? SDC_TRAJECTORY_DEGRADE : SDC_TRAJECTORY_NO_LOSS;
    fill_detail(&w, th, equal_at_end, all_nonfinite, detail);
    outcome->quality = judge_quality(clean, th, detail->accuracy, detail->accuracy_golden);
    return SDC_OK;
}
