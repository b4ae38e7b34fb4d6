/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts per cell, controls, points of the collapse curve.
 */
#include "camp/results.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/results_internal.h"

const char *sdc__claim_statement(enum sdc_claim claim) {
    return claim == SDC_CLAIM_H1A
               ? "Horovod's recipe collapses less often than DDP's"
               : "faults in the model collapse more often than the same faults in "
                 "the optimizer";
}

const char *sdc__control_expectation(enum sdc_trial_kind kind) {
    switch (kind) {
    case SDC_TRIAL_PLACEBO:
        return "nothing altered: equals the clean twin bit for bit";
    case SDC_TRIAL_ONE_LSB:
        return "one lowest bit: differs from the clean twin, and stays inside the clean spread";
    case SDC_TRIAL_ALL_NAN:
        return "all weights NaN on all ranks: collapses";
    case SDC_TRIAL_CELL:
        break;
    }
    return "";
}

static bool is_reached(const struct sdc_outcome *o) {
    return o->result == SDC_RESULT_DONE &&
           (o->exposure == SDC_EXPOSURE_KEPT || o->exposure == SDC_EXPOSURE_SPREAD);
}

static enum sdc_status count_cells(struct sdc_results *r, const struct sdc_plan *plan,
                                   struct sdc_error *err) {
    r->cells = sdc__calloc(plan->n_cells, sizeof *r->cells);
    if (!r->cells)
        return SDC_NOMEM(err, "results");
    for (size_t c = 0; c < plan->n_cells; c++)
        r->cells[c].n_planned = plan->spec->trials;
    r->n_controls_planned = plan->n_controls;
    r->n_planned = plan->n_trials - plan->n_controls;
    for (size_t i = 0; i < r->n_trials; i++) {
        const struct sdc_store_trial *t = &r->trials[i];
        bool error = t->outcome.result == SDC_RESULT_HARNESS_ERROR;
        r->n_errors += error;
        if (t->kind != SDC_TRIAL_CELL) {
            r->n_controls++;
            continue;
        }
        if (t->cell >= plan->n_cells)
            return SDC_ERR(err, SDC_INVALID, "trial %s is of no cell of the plan", t->id);
        struct sdc_results_cell *c = &r->cells[t->cell];
        r->n_stored++;
        c->n_stored++;
        c->n_errors += error;
        c->n_done += t->outcome.result == SDC_RESULT_DONE;
        c->n_reached += is_reached(&t->outcome);
        c->n_collapse += sdc_outcome_is_collapse(&t->outcome);
    }
    for (size_t c = 0; c < plan->n_cells; c++)
        SDC_TRY(sdc__stat_wilson(r->cells[c].n_collapse, r->cells[c].n_done, 0.95,
                                 &r->cells[c].collapse, err));
    return SDC_OK;
}

static void count_controls(struct sdc_results *r, const struct sdc_plan *plan) {
    for (int k = 0; k < 3; k++)
        r->controls[k].kind = (enum sdc_trial_kind)(SDC_TRIAL_PLACEBO + k);
    for (size_t i = 0; i < plan->n_controls; i++)
        r->controls[plan->trials[i].kind - SDC_TRIAL_PLACEBO].n_planned++;
    for (size_t i = 0; i < r->n_trials; i++) {
        const struct sdc_store_trial *t = &r->trials[i];
        if (t->kind == SDC_TRIAL_CELL)
            continue;
        struct sdc_results_control *c = &r->controls[t->kind - SDC_TRIAL_PLACEBO];
        if (t->control == 1) {
            c->n_passed++;
            continue;
        }
        c->n_failed++;
        if (!c->first_failure)
            c->first_failure = t->message ? t->message : "no reason was stored";
    }
}

/* ---- collapse by delivered faults ---- */

static const char *level_text(const struct sdc_plan *plan, uint32_t cell, enum sdc_key key) {
    return sdc__spec_value(plan->spec, plan->cells[cell].level, key)->text;
}

/* The null curve is about flips of any bit; cells of other bits or operators have another. */
static bool on_curve(const struct sdc_choice *c) {
    if (c->op != SDC_OP_FLIP)
        return false;
    for (size_t i = 0; i < c->n_bits; i++)
        if (c->bits[i].kind == SDC_BITS_ANY)
            return true;
    return c->n_bits == 0;
}

static int point_order(const void *a, const void *b) {
    const struct sdc_results_point *x = a, *y = b;
    int order = strcmp(x->recipe, y->recipe);
    if (order == 0)
        order = strcmp(x->part, y->part);
    if (order == 0)
        order = (x->delivered > y->delivered) - (x->delivered < y->delivered);
    return order;
}

static enum sdc_status make_points(struct sdc_results *r, const struct sdc_plan *plan,
                                   struct sdc_error *err) {
    r->points = sdc__calloc(r->n_trials, sizeof *r->points);
    if (!r->points)
        return SDC_NOMEM(err, "results");
    size_t n = 0;
    for (size_t i = 0; i < r->n_trials; i++) {
        const struct sdc_store_trial *t = &r->trials[i];
        if (t->kind != SDC_TRIAL_CELL || t->outcome.result != SDC_RESULT_DONE ||
            !on_curve(&plan->cells[t->cell].setting.choice))
            continue;
        r->points[n++] =
            (struct sdc_results_point){.recipe = level_text(plan, t->cell, SDC_KEY_RECIPE),
                                       .part = level_text(plan, t->cell, SDC_KEY_PART),
                                       .delivered = t->delivered,
                                       .n = 1,
                                       .n_collapse = sdc_outcome_is_collapse(&t->outcome)};
    }
    qsort(r->points, n, sizeof *r->points, point_order);
    for (size_t i = 0; i < n; i++) {
        struct sdc_results_point *last = r->n_points ? &r->points[r->n_points - 1] : NULL;
        if (last && point_order(last, &r->points[i]) == 0) {
            last->n++;
            last->n_collapse += r->points[i].n_collapse;
        } else {
            r->points[r->n_points++] = r->points[i];
        }
    }
    return SDC_OK;
}

/* ---- distances per layer ---- */

/* The worst rank of one trial's layer at its last step. */
struct sample {
    char *layer; /* owned */
    const char *recipe, *part;
    double distance;
};

struct samples {
    const struct sdc_results *results;
    const struct sdc_plan *plan;
    struct sample *items;
    size_t n, cap;
    char trial[32]; /* of the last row */
    char *layer;    /* of the last row; owned by items */
    uint64_t step;  /* of the last sample */
};

static const struct sdc_store_trial *find_trial(const struct sdc_results *r, const char *id) {
    size_t low = 0, high = r->n_trials;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(r->trials[middle].id, id);
        if (order == 0)
            return &r->trials[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static enum sdc_status add_sample(struct samples *s, const struct sdc_store_trial *t,
                                  const struct sdc_store_propagation *row, struct sdc_error *err) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 256;
        struct sample *grown = sdc__realloc(s->items, cap, sizeof *grown);
        if (!grown)
            return SDC_NOMEM(err, "results");
        s->items = grown;
        s->cap = cap;
    }
    char *layer = sdc__strdup(row->layer);
    if (!layer)
        return SDC_NOMEM(err, "results");
    s->items[s->n++] = (struct sample){layer, level_text(s->plan, t->cell, SDC_KEY_RECIPE),
                                       level_text(s->plan, t->cell, SDC_KEY_PART), row->distance};
    s->layer = layer;
    s->step = row->step;
    return SDC_OK;
}

static enum sdc_status take_row(void *user, const char *trial,
                                const struct sdc_store_propagation *row, struct sdc_error *err) {
    struct samples *s = user;
    if (row->part != SDC_PART_MODEL)
        return SDC_OK;
    const struct sdc_store_trial *t = find_trial(s->results, trial);
    if (!t || t->kind != SDC_TRIAL_CELL || t->cell >= s->plan->n_cells || !is_reached(&t->outcome))
        return SDC_OK;
    bool same = s->layer && strcmp(s->trial, trial) == 0 && strcmp(s->layer, row->layer) == 0;
    memcpy(s->trial, t->id, sizeof s->trial);
    if (!same)
        return add_sample(s, t, row, err);
    struct sample *last = &s->items[s->n - 1];
    if (row->step > s->step) {
        s->step = row->step;
        last->distance = row->distance;
    } else if (row->step == s->step && !(row->distance <= last->distance)) {
        last->distance = row->distance; /* NaN counts as worst */
    }
    return SDC_OK;
}

static int sample_order(const void *a, const void *b) {
    const struct sample *x = a, *y = b;
    int order = strcmp(x->layer, y->layer);
    if (order == 0)
        order = strcmp(x->recipe, y->recipe);
    return order ? order : strcmp(x->part, y->part);
}

static enum sdc_status sum_layers(struct sdc_results *r, struct samples *s, struct sdc_error *err) {
    double *values = sdc__alloc(s->n, sizeof *values);
    r->layers = sdc__calloc(s->n, sizeof *r->layers);
    enum sdc_status st = values && r->layers ? SDC_OK : SDC_NOMEM(err, "results");
    for (size_t i = 0, end; i < s->n && st == SDC_OK; i = end) {
        for (end = i; end < s->n && sample_order(&s->items[i], &s->items[end]) == 0; end++)
            values[end - i] = s->items[end].distance;
        struct sdc_results_layer *l = &r->layers[r->n_layers];
        *l = (struct sdc_results_layer){.recipe = s->items[i].recipe, .part = s->items[i].part};
        l->layer = sdc__strdup(s->items[i].layer);
        if (!l->layer) {
            st = SDC_NOMEM(err, "results");
            break;
        }
        r->n_layers++;
        st = sdc__stat_distances(values, end - i, &l->d, err);
    }
    sdc__free(values);
    return st;
}

static enum sdc_status make_layers(struct sdc_store *store, struct sdc_results *r,
                                   const struct sdc_plan *plan, struct sdc_error *err) {
    struct samples s = {.results = r, .plan = plan};
    enum sdc_status st = sdc__store_each_propagation(store, take_row, &s, err);
    if (st == SDC_OK && s.n) {
        qsort(s.items, s.n, sizeof *s.items, sample_order);
        st = sum_layers(r, &s, err);
    }
    for (size_t i = 0; i < s.n; i++)
        sdc__free(s.items[i].layer);
    sdc__free(s.items);
    return st;
}

/* ---- whole ---- */

enum sdc_status sdc__results_new(struct sdc_store *store, const struct sdc_plan *plan,
                                 struct sdc_results **results, struct sdc_error *err) {
    struct sdc_results *r = sdc__calloc(1, sizeof *r);
    enum sdc_status st;
    *results = NULL;
    if (!r)
        return SDC_NOMEM(err, "results");
    SDC_TRY_OUT(st, sdc__store_list_trials(store, &r->trials, &r->n_trials, err));
    SDC_TRY_OUT(st, count_cells(r, plan, err));
    count_controls(r, plan);
    SDC_TRY_OUT(st, sdc__results_claims(r, plan, err));
    SDC_TRY_OUT(st, make_points(r, plan, err));
    SDC_TRY_OUT(st, make_layers(store, r, plan, err));
out:
    if (st != SDC_OK)
        sdc__results_free(r);
    else
        *results = r;
    return st;
}

void sdc__results_free(struct sdc_results *results) {
    if (!results)
        return;
    for (size_t i = 0; i < results->n_trials; i++)
        sdc__store_trial_release(&results->trials[i]);
    for (size_t i = 0; i < results->n_layers; i++)
        sdc__free(results->layers[i].layer);
    sdc__free(results->trials);
    sdc__free(results->cells);
    sdc__free(results->points);
    sdc__free(results->layers);
    sdc__free(results->no_claims);
    sdc__free(results);
}
