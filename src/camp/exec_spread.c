/* SPDX-License-Identifier: Apache-2.0
 *
 * Clean spreads: measuring the replicas of a golden group, and pooling those of all groups of one
 * setting (clusters and recipes), since a few replicas of one group say too little.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/exec_internal.h"

/* Largest distance over ranks of a replica's parameters from golden's. */
static enum sdc_status replica_distance(struct sdc_exec *x, uint32_t group,
                                        const struct sdc_event_list *events, const char *folder,
                                        double *distance, struct sdc_error *err) {
    const struct sdc_exec_group *g = &x->groups[group];
    const struct sdc_event *s = sdc__exec_find_event(events, SDC_EVENT_SNAPSHOT, g->clean.to_step);
    char *golden_folder = sdc__exec_run_folder(g, "golden", 0);
    enum sdc_status st = golden_folder ? SDC_OK : SDC_NOMEM(err, "a path");
    *distance = 0;
    if (st == SDC_OK && (!s || s->n_paths != g->snapshot->n_paths))
        st = SDC_ERR(err, SDC_INVALID, "the clean replica in %s has no snapshot of every rank",
                     folder);
    for (uint32_t r = 0; st == SDC_OK && r < g->clean.ranks; r++) {
        struct sdc_exec_compared c = {0};
        char *a = sdc__exec_path(golden_folder, g->snapshot->paths[r]);
        char *b = sdc__exec_path(folder, s->paths[r]);
        st = a && b ? sdc__exec_compare(g, a, b, r, g->clean.to_step, NULL, 0, 0, &c, err)
                    : SDC_NOMEM(err, "a path");
        if (st == SDC_OK)
            *distance = fmax(*distance, c.distance);
        sdc__free(c.rows);
        sdc__free(a);
        sdc__free(b);
    }
    sdc__free(golden_folder);
    return st;
}

static enum sdc_status measure_replica(struct sdc_exec *x, uint32_t group,
                                       enum sdc_spread_kind kind, uint32_t replica,
                                       struct sdc_event_list *events, struct sdc_store_replica *row,
                                       struct sdc_error *err) {
    struct sdc_exec_group *g = &x->groups[group];
    char *folder = sdc__exec_run_folder(g, kind == SDC_SPREAD_E0 ? "e0" : "e1", replica);
    enum sdc_status st = folder ? SDC_OK : SDC_NOMEM(err, "a path");
    if (st == SDC_OK)
        st = sdc__exec_events(folder, events, err);
    *row = (struct sdc_store_replica){.platform = x->platform,
                                      .kind = kind,
                                      .replica = replica,
                                      .end_loss = NAN,
                                      .eval_loss = NAN,
                                      .accuracy = NAN};
    snprintf(row->group, sizeof row->group, "%s", x->plan->groups[group].id);
    if (st == SDC_OK)
        st = replica_distance(x, group, events, folder, &row->distance, err);
    if (st == SDC_OK)
        st = sdc__exec_points(events, g->clean.from_step, g->clean.to_step, &row->points,
                              &row->n_points, err);
    sdc__free(folder);
    if (st != SDC_OK)
        return st;
    row->max_deviation = sdc__clean_max_deviation(&g->clean, events);
    struct sdc_judge_trial t = {.events = events, .altered = 1};
    struct sdc_outcome o;
    struct sdc_judge_detail d;
    SDC_TRY(sdc__judge(&g->clean, &x->thresholds, &t, &o, &d, err));
    row->end_loss = d.end_loss;
    row->eval_loss = d.eval_loss;
    row->accuracy = d.accuracy;
    return SDC_OK;
}

enum sdc_status sdc__exec_measure_spreads(struct sdc_exec *x, uint32_t group,
                                          struct sdc_error *err) {
    uint32_t n_e0 = x->spec->clean_e0, n = n_e0 + x->spec->clean_e1;
    enum sdc_status st = SDC_OK;
    for (uint32_t i = 0; i < n && st == SDC_OK; i++) {
        struct sdc_event_list events = {0};
        struct sdc_store_replica row = {0};
        st = measure_replica(x, group, i < n_e0 ? SDC_SPREAD_E0 : SDC_SPREAD_E1,
                             i < n_e0 ? i : i - n_e0, &events, &row, err);
        if (st == SDC_OK)
            st = sdc__store_put_replica(x->store, &row, err);
        sdc_events_release(&events);
        sdc__free(row.points);
    }
    return st;
}

/* ---- pooling ---- */

/* A replica in the pool of its setting. */
struct member {
    uint32_t group;
    struct sdc_store_replica row; /* owned */
    double *d;                    /* E0: deviations by step; owned */
    double accuracy;              /* E1: deviation */
};

struct pool {
    size_t n_steps;
    struct member *items; /* owned */
    size_t n;
};

static void pool_release(struct pool *p) {
    for (size_t i = 0; i < p->n; i++) {
        sdc__store_replica_release(&p->items[i].row);
        sdc__free(p->items[i].d);
    }
    sdc__free(p->items);
    *p = (struct pool){0};
}

/* Clusters and recipes of one numeric setting, restarted from one step. */
static bool same_setting(const struct sdc_exec *x, uint32_t a, uint32_t b) {
    const struct sdc_plan_group *p = &x->plan->groups[a], *q = &x->plan->groups[b];
    return p->checkpoint == q->checkpoint &&
           x->plan->trainings[p->training].setting == x->plan->trainings[q->training].setting;
}

static enum sdc_status read_member(const struct sdc_exec *x, struct member *m,
                                   struct sdc_error *err) {
    const struct sdc_exec_group *g = &x->groups[m->group];
    bool e0 = m->row.kind == SDC_SPREAD_E0;
    char *folder = sdc__exec_run_folder(g, e0 ? "e0" : "e1", m->row.replica);
    struct sdc_event_list events = {0};
    enum sdc_status st = folder ? sdc__exec_events(folder, &events, err) : SDC_NOMEM(err, "a path");
    if (st == SDC_OK && e0) {
        m->d = sdc__alloc(g->clean.spread.n_steps, sizeof *m->d);
        st = m->d ? sdc__clean_deviations(&g->clean, &events, m->d, err)
                  : SDC_NOMEM(err, "the clean spread");
    } else if (st == SDC_OK) {
        m->accuracy = sdc__clean_accuracy_deviation(&g->clean, &events);
    }
    sdc_events_release(&events);
    sdc__free(folder);
    return st;
}

static enum sdc_status add_group(struct sdc_exec *x, uint32_t group, struct pool *p,
                                 struct sdc_error *err) {
    struct sdc_store_replica *list = NULL;
    size_t n = 0;
    SDC_TRY(
        sdc__store_list_replicas(x->store, x->plan->groups[group].id, x->platform, &list, &n, err));
    struct member *more = sdc__realloc(p->items, p->n + n, sizeof *more);
    enum sdc_status st = more ? SDC_OK : SDC_NOMEM(err, "the clean spread");
    p->items = more ? more : p->items;
    for (size_t i = 0; i < n; i++) {
        if (st != SDC_OK) {
            sdc__store_replica_release(&list[i]);
            continue;
        }
        p->items[p->n] = (struct member){.group = group, .row = list[i]};
        st = read_member(x, &p->items[p->n++], err);
    }
    sdc__free(list);
    return st;
}

/* The spread of all members but one (SIZE_MAX: of all), into s. */
static void fill_spread(const struct pool *p, size_t without, struct sdc_spread *s) {
    for (size_t i = 0; i < p->n; i++) {
        const struct member *m = &p->items[i];
        if (i == without)
            continue;
        if (m->row.kind == SDC_SPREAD_E0)
            sdc__spread_add_e0(s, m->d, m->row.distance);
        else
            sdc__spread_add_e1(s, m->accuracy);
    }
}

static bool outside(const struct sdc_clean *clean, const struct member *m,
                    const struct sdc_spread *s) {
    if (m->row.kind == SDC_SPREAD_E1)
        return s->n_e1 && m->accuracy > s->deviation_e1;
    for (size_t t = 0; t < s->n_steps && s->n_e0; t++) {
        double floor_ = SDC_CLEAN_FLOOR * fabs((double)clean->steps[t]->loss[0]);
        if (m->d[t] > fmax(floor_, sdc__spread_limit(s, t)))
            return true;
    }
    return s->n_e0 && m->row.distance > fmax(SDC_CLEAN_FLOOR, sdc__spread_distance_limit(s));
}

/* Each replica against limits made of all the others: the false-alarm rate of the limits. */
static enum sdc_status leave_one_out(struct sdc_exec *x, struct pool *p, struct sdc_error *err) {
    for (size_t i = 0; i < p->n; i++) {
        struct member *m = &p->items[i];
        struct sdc_spread others;
        SDC_TRY(sdc__spread_init(&others, p->n_steps, err));
        fill_spread(p, i, &others);
        bool alarm = outside(&x->groups[m->group].clean, m, &others);
        sdc__spread_release(&others);
        if (alarm == m->row.false_alarm || x->trial_out)
            continue;
        m->row.false_alarm = alarm;
        SDC_TRY(sdc__store_put_replica(x->store, &m->row, err));
    }
    return SDC_OK;
}

static enum sdc_status pool_setting(struct sdc_exec *x, uint32_t first, struct sdc_error *err) {
    struct pool p = {.n_steps = x->groups[first].clean.spread.n_steps};
    enum sdc_status st = SDC_OK;
    for (uint32_t g = first; g < x->plan->n_groups && st == SDC_OK; g++)
        if (x->groups[g].ready && same_setting(x, first, g))
            st = add_group(x, g, &p, err);
    if (st == SDC_OK)
        st = leave_one_out(x, &p, err);
    for (uint32_t g = first; g < x->plan->n_groups && st == SDC_OK; g++) {
        if (!x->groups[g].ready || !same_setting(x, first, g))
            continue;
        struct sdc_spread *s = &x->groups[g].clean.spread;
        sdc__spread_release(s);
        st = sdc__spread_init(s, p.n_steps, err);
        if (st == SDC_OK)
            fill_spread(&p, SIZE_MAX, s);
    }
    pool_release(&p);
    return st;
}

enum sdc_status sdc__exec_pool_spreads(struct sdc_exec *x, struct sdc_error *err) {
    for (uint32_t g = 0; g < x->plan->n_groups; g++) {
        bool first = x->groups[g].ready;
        for (uint32_t before = 0; before < g && first; before++)
            first = !x->groups[before].ready || !same_setting(x, before, g);
        if (first)
            SDC_TRY(pool_setting(x, g, err));
    }
    return SDC_OK;
}
