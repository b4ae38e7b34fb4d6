/* SPDX-License-Identifier: Apache-2.0
 *
 * Getting rows back. Labels and names are stored as texts; an unknown one means a damaged store.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "camp/store_internal.h"

static void bad_text(struct sdc_stmt *q, const char *what, const char *text) {
    if (q->st == SDC_OK)
        q->st = SDC_ERR(q->err, SDC_INVALID, "%s: unknown %s '%s' in the store", q->store->path,
                        what, text ? text : "");
}

/* ---- releasing ---- */

void sdc__store_trial_release(struct sdc_store_trial *t) {
    for (size_t i = 0; i < t->n_faults; i++) {
        sdc__free(t->faults[i].tensor);
        sdc__free(t->faults[i].index);
    }
    for (size_t i = 0; i < t->n_propagation; i++)
        sdc__free(t->propagation[i].layer);
    sdc__free(t->faults);
    sdc__free(t->exposures);
    sdc__free(t->points);
    sdc__free(t->propagation);
    sdc__free(t->horizons);
    sdc__free(t->message);
    t->message = NULL;
    t->faults = NULL;
    t->exposures = NULL;
    t->points = NULL;
    t->propagation = NULL;
    t->horizons = NULL;
    t->n_faults = t->n_exposures = t->n_points = t->n_propagation = t->n_horizons = 0;
}

void sdc__store_golden_release(struct sdc_store_golden *g) {
    sdc__free(g->message);
    sdc__free(g->points);
    g->message = NULL;
    g->points = NULL;
    g->n_points = 0;
}

void sdc__store_replica_release(struct sdc_store_replica *r) {
    sdc__free(r->points);
    r->points = NULL;
    r->n_points = 0;
}

/* ---- trials ---- */

enum sdc_status sdc__store_done(struct sdc_store *store, const struct sdc_plan *plan, bool *done,
                                struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "SELECT 1 FROM trial WHERE id=?", err);
    for (size_t i = 0; i < plan->n_trials && q.st == SDC_OK; i++) {
        sdc__stmt_text(&q, plan->trials[i].id);
        done[i] = sdc__stmt_row(&q);
        sdc__stmt_reset(&q);
    }
    return sdc__stmt_end(&q);
}

static void read_kind(struct sdc_stmt *q, struct sdc_store_trial *t) {
    const char *text = sdc__stmt_get_text(q);
    for (int k = SDC_TRIAL_CELL; k <= SDC_TRIAL_ALL_NAN; k++)
        if (text && strcmp(sdc__trial_kind_name((enum sdc_trial_kind)k), text) == 0) {
            t->kind = (enum sdc_trial_kind)k;
            return;
        }
    bad_text(q, "kind of trial", text);
}

static void read_outcome(struct sdc_stmt *q, struct sdc_outcome *o) {
    int value[SDC_AXIS_COUNT] = {0};
    for (int a = 0; a < SDC_AXIS_COUNT; a++) {
        const char *text = sdc__stmt_get_text(q);
        if (!text || !sdc_label_parse((enum sdc_axis)a, text, &value[a]))
            bad_text(q, "label", text);
    }
    o->result = (enum sdc_result)value[SDC_AXIS_RESULT];
    o->exposure = (enum sdc_exposure)value[SDC_AXIS_EXPOSURE];
    o->numeric = (enum sdc_numeric)value[SDC_AXIS_NUMERIC];
    o->trajectory = (enum sdc_trajectory)value[SDC_AXIS_TRAJECTORY];
    o->quality = (enum sdc_quality)value[SDC_AXIS_QUALITY];
    o->replicas = (enum sdc_replicas)value[SDC_AXIS_REPLICAS];
}

#define GET_N32(q, member)                                                                         \
    do {                                                                                           \
        if (sdc__stmt_is_null(q))                                                                  \
            member = SDC_PLAN_NONE;                                                                \
        else                                                                                       \
            member = (uint32_t)sdc__stmt_get_i64(q);                                               \
    } while (0)
#define GET_I64(q, member) member = (__typeof__(member))sdc__stmt_get_i64(q)
#define GET_F64(q, member) member = sdc__stmt_get_f64(q)
#define GET_STR(q, member) sdc__stmt_copy_text(q, member, sizeof member)

#define COLUMN_NAME(type, member) ", t.\"" #member "\""
#define SELECT_TRIAL                                                                               \
    "SELECT t.id, t.kind" SDC_STORE_TRIAL_MAP(COLUMN_NAME) ", t.message, o.result, o.exposure,"    \
                                                           " o.numeric, o.trajectory, o.quality, " \
                                                           "o.replicas FROM trial t JOIN "         \
                                                           "outcome o ON o.trial=t.id AND "        \
                                                           "o.after=-1 "

static void read_trial(struct sdc_stmt *q, struct sdc_store_trial *t) {
    sdc__stmt_copy_text(q, t->id, sizeof t->id);
    read_kind(q, t);
#define GET(type, member) GET_##type(q, t->member);
    SDC_STORE_TRIAL_MAP(GET)
#undef GET
    t->message = sdc__stmt_take_text(q);
    read_outcome(q, &t->outcome);
}

enum sdc_status sdc__store_list_trials(struct sdc_store *store, struct sdc_store_trial **trials,
                                       size_t *n, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, SELECT_TRIAL "ORDER BY t.id", err);
    *trials = NULL;
    *n = 0;
    while (sdc__stmt_row(&q)) {
        struct sdc_store_trial *t = sdc__store_more((void **)trials, n, sizeof *t, err);
        if (!t) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        read_trial(&q, t);
    }
    enum sdc_status st = sdc__stmt_end(&q);
    if (st != SDC_OK) {
        for (size_t i = 0; i < *n; i++)
            sdc__store_trial_release(&(*trials)[i]);
        sdc__free(*trials);
        *trials = NULL;
        *n = 0;
    }
    return st;
}

static enum sdc_status get_horizons(struct sdc_store *store, struct sdc_store_trial *t,
                                    struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  "SELECT after, result, exposure, numeric, trajectory, quality, "
                                  "replicas FROM outcome WHERE trial=? AND after>=0 ORDER BY after",
                                  err);
    sdc__stmt_text(&q, t->id);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_horizon *h =
            sdc__store_more((void **)&t->horizons, &t->n_horizons, sizeof *h, err);
        if (!h) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        h->after = (uint64_t)sdc__stmt_get_i64(&q);
        read_outcome(&q, &h->outcome);
    }
    return sdc__stmt_end(&q);
}

static uint64_t get_hex(struct sdc_stmt *q) {
    const char *text = sdc__stmt_get_text(q);
    char prefixed[40];
    unsigned long long raw = 0;
    snprintf(prefixed, sizeof prefixed, "0x%.30s", text ? text : "");
    if (!sdc__parse_u64(prefixed, &raw))
        bad_text(q, "bits", text);
    return raw;
}

static void read_fault(struct sdc_stmt *q, struct sdc_store_fault *f) {
    f->tensor = sdc__stmt_take_text(q);
    f->index = sdc__stmt_take_text(q);
    f->elem = (uint64_t)sdc__stmt_get_i64(q);
    const char *text = sdc__stmt_get_text(q);
    if (!text || !sdc_dtype_parse(text, &f->dtype))
        bad_text(q, "type", text);
    text = sdc__stmt_get_text(q);
    f->part = SDC_PART_NONE;
    if (!text || (!sdc_part_parse(text, &f->part) && strcmp(text, "none") != 0))
        bad_text(q, "part", text);
    text = sdc__stmt_get_text(q);
    if (!text || !sdc_role_parse(text, &f->role))
        bad_text(q, "role", text);
    text = sdc__stmt_get_text(q);
    int op = 0;
    while (op < SDC_OP_COUNT && (!text || strcmp(text, sdc_op_name((enum sdc_op)op)) != 0))
        op++;
    if (op == SDC_OP_COUNT)
        bad_text(q, "operator", text);
    f->op = op == SDC_OP_COUNT ? SDC_OP_FLIP : (enum sdc_op)op;
    f->bits = get_hex(q);
    f->old_raw = get_hex(q);
    f->new_raw = get_hex(q);
    f->delivered = sdc__stmt_get_i64(q) != 0;
}

static enum sdc_status get_faults(struct sdc_store *store, struct sdc_store_trial *t,
                                  struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(
        store,
        "SELECT tensor, \"index\", elem, dtype, part, role, op, bits, old, new, delivered "
        "FROM fault WHERE trial=? ORDER BY number",
        err);
    sdc__stmt_text(&q, t->id);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_fault *f =
            sdc__store_more((void **)&t->faults, &t->n_faults, sizeof *f, err);
        if (!f) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        read_fault(&q, f);
    }
    return sdc__stmt_end(&q);
}

static enum sdc_status get_exposures(struct sdc_store *store, struct sdc_store_trial *t,
                                     struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  "SELECT rank, planned, read, altered_loaded, altered_started, "
                                  "loaded, started FROM exposure WHERE trial=? ORDER BY rank",
                                  err);
    sdc__stmt_text(&q, t->id);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_exposure *e =
            sdc__store_more((void **)&t->exposures, &t->n_exposures, sizeof *e, err);
        if (!e) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        e->rank = (uint32_t)sdc__stmt_get_i64(&q);
        e->planned = sdc__stmt_get_i64(&q) != 0;
        e->read = sdc__stmt_get_i64(&q) != 0;
        e->altered_loaded = sdc__stmt_get_i64(&q) != 0;
        e->altered_started = sdc__stmt_get_i64(&q) != 0;
        sdc__stmt_copy_text(&q, e->loaded, sizeof e->loaded);
        sdc__stmt_copy_text(&q, e->started, sizeof e->started);
    }
    return sdc__stmt_end(&q);
}

enum sdc_status sdc__points_get(struct sdc_store *store, const char *owner,
                                struct sdc_store_point **points, size_t *n, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  "SELECT kind, step, rank, loss, accuracy, gradient_norm FROM "
                                  "series WHERE owner=? ORDER BY kind DESC, step, rank",
                                  err);
    sdc__stmt_text(&q, owner);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_point *p = sdc__store_more((void **)points, n, sizeof *p, err);
        if (!p) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        const char *kind = sdc__stmt_get_text(&q);
        p->kind = kind && strcmp(kind, "eval") == 0 ? SDC_SERIES_EVAL : SDC_SERIES_LOSS;
        p->step = (uint64_t)sdc__stmt_get_i64(&q);
        p->rank = (uint32_t)sdc__stmt_get_i64(&q);
        p->loss = sdc__stmt_get_f64(&q);
        p->accuracy = sdc__stmt_get_f64(&q);
        p->gradient_norm = sdc__stmt_get_f64(&q);
    }
    return sdc__stmt_end(&q);
}

static void read_propagation(struct sdc_stmt *q, struct sdc_store_propagation *p) {
    const char *part = sdc__stmt_get_text(q);
    p->part = SDC_PART_NONE;
    if (!part || (!sdc_part_parse(part, &p->part) && strcmp(part, "none") != 0))
        bad_text(q, "part", part);
    p->rank = (uint32_t)sdc__stmt_get_i64(q);
    p->step = (uint64_t)sdc__stmt_get_i64(q);
    p->n_elems = (uint64_t)sdc__stmt_get_i64(q);
    p->n_differ = (uint64_t)sdc__stmt_get_i64(q);
    p->n_altered = (uint64_t)sdc__stmt_get_i64(q);
    p->distance = sdc__stmt_get_f64(q);
    p->distance_altered = sdc__stmt_get_f64(q);
}

#define PROPAGATION_COLUMNS                                                                        \
    "part, rank, step, n_elems, n_differ, n_altered, distance, distance_altered"

static enum sdc_status get_propagation(struct sdc_store *store, struct sdc_store_trial *t,
                                       struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store,
                  "SELECT layer, " PROPAGATION_COLUMNS
                  " FROM propagation WHERE trial=? ORDER BY layer, part, rank, step",
                  err);
    sdc__stmt_text(&q, t->id);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_propagation *p =
            sdc__store_more((void **)&t->propagation, &t->n_propagation, sizeof *p, err);
        if (!p) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        p->layer = sdc__stmt_take_text(&q);
        read_propagation(&q, p);
    }
    return sdc__stmt_end(&q);
}

static enum sdc_status get_rows(struct sdc_store *store, struct sdc_store_trial *t,
                                struct sdc_error *err) {
    SDC_TRY(get_horizons(store, t, err));
    SDC_TRY(get_faults(store, t, err));
    SDC_TRY(get_exposures(store, t, err));
    SDC_TRY(sdc__points_get(store, t->id, &t->points, &t->n_points, err));
    return get_propagation(store, t, err);
}

enum sdc_status sdc__store_get_trial(struct sdc_store *store, const char *id,
                                     struct sdc_store_trial *t, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, SELECT_TRIAL "WHERE t.id=?", err);
    bool found = false;
    *t = (struct sdc_store_trial){0};
    sdc__stmt_text(&q, id);
    if (sdc__stmt_row(&q)) {
        read_trial(&q, t);
        found = true;
    }
    enum sdc_status st = sdc__stmt_end(&q);
    if (st == SDC_OK && !found)
        st = SDC_ERR(err, SDC_NOT_FOUND, "%s: there is no finished trial '%s'", store->dir, id);
    if (st == SDC_OK)
        st = get_rows(store, t, err);
    if (st != SDC_OK)
        sdc__store_trial_release(t);
    return st;
}

enum sdc_status sdc__store_each_propagation(struct sdc_store *store, sdc_store_propagation_fn fn,
                                            void *user, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  "SELECT trial, layer, " PROPAGATION_COLUMNS
                                  " FROM propagation ORDER BY layer, part, trial, rank, step",
                                  err);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_propagation row = {0};
        char trial[32];
        sdc__stmt_copy_text(&q, trial, sizeof trial);
        row.layer = sdc__stmt_take_text(&q);
        read_propagation(&q, &row);
        if (q.st == SDC_OK)
            q.st = fn(user, trial, &row, err);
        sdc__free(row.layer);
    }
    return sdc__stmt_end(&q);
}

/* ---- goldens and replicas ---- */

static void read_golden(struct sdc_stmt *q, struct sdc_store_golden *g) {
    sdc__stmt_copy_text(q, g->group, sizeof g->group);
    g->platform = sdc__stmt_get_i64(q);
    g->passed = sdc__stmt_get_i64(q) != 0;
    g->message = sdc__stmt_take_text(q);
    g->accuracy = sdc__stmt_get_f64(q);
    g->eval_loss = sdc__stmt_get_f64(q);
    g->eval_samples = (uint64_t)sdc__stmt_get_i64(q);
    g->end_loss = sdc__stmt_get_f64(q);
    g->max_parameter = sdc__stmt_get_f64(q);
    g->step_seconds = sdc__stmt_get_f64(q);
    g->params = (uint64_t)sdc__stmt_get_i64(q);
    sdc__stmt_copy_text(q, g->state, sizeof g->state);
}

/* group NULL: all; platform 0: all. */
static enum sdc_status list_goldens(struct sdc_store *store, const char *group, int64_t platform,
                                    struct sdc_store_golden **list, size_t *n,
                                    struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  "SELECT * FROM golden WHERE (?1 IS NULL OR \"group\"=?1) AND "
                                  "(?2=0 OR platform=?2) ORDER BY length(\"group\"), \"group\", "
                                  "platform",
                                  err);
    *list = NULL;
    *n = 0;
    sdc__stmt_text(&q, group);
    sdc__stmt_i64(&q, platform);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_golden *g = sdc__store_more((void **)list, n, sizeof *g, err);
        if (!g) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        read_golden(&q, g);
    }
    enum sdc_status st = sdc__stmt_end(&q);
    for (size_t i = 0; i < *n && st == SDC_OK; i++) {
        char owner[64];
        sdc__golden_owner((*list)[i].group, (*list)[i].platform, owner, sizeof owner);
        st = sdc__points_get(store, owner, &(*list)[i].points, &(*list)[i].n_points, err);
    }
    if (st != SDC_OK) {
        for (size_t i = 0; i < *n; i++)
            sdc__store_golden_release(&(*list)[i]);
        sdc__free(*list);
        *list = NULL;
        *n = 0;
    }
    return st;
}

enum sdc_status sdc__store_list_goldens(struct sdc_store *store, struct sdc_store_golden **list,
                                        size_t *n, struct sdc_error *err) {
    return list_goldens(store, NULL, 0, list, n, err);
}

enum sdc_status sdc__store_get_golden(struct sdc_store *store, const char *group, int64_t platform,
                                      struct sdc_store_golden *g, struct sdc_error *err) {
    struct sdc_store_golden *list = NULL;
    size_t n = 0;
    SDC_TRY(list_goldens(store, group, platform, &list, &n, err));
    if (n == 0) {
        sdc__free(list);
        return SDC_ERR(err, SDC_NOT_FOUND, "%s: no golden of %s on platform %" PRId64, store->dir,
                       group, platform);
    }
    *g = list[0];
    for (size_t i = 1; i < n; i++)
        sdc__store_golden_release(&list[i]);
    sdc__free(list);
    return SDC_OK;
}

static void read_replica(struct sdc_stmt *q, struct sdc_store_replica *r) {
    sdc__stmt_copy_text(q, r->group, sizeof r->group);
    r->platform = sdc__stmt_get_i64(q);
    const char *kind = sdc__stmt_get_text(q);
    r->kind = kind && strcmp(kind, "E1") == 0 ? SDC_SPREAD_E1 : SDC_SPREAD_E0;
    r->replica = (uint32_t)sdc__stmt_get_i64(q);
    r->held_out = sdc__stmt_get_i64(q) != 0;
    r->false_alarm = sdc__stmt_get_i64(q) != 0;
    r->max_deviation = sdc__stmt_get_f64(q);
    r->end_loss = sdc__stmt_get_f64(q);
    r->eval_loss = sdc__stmt_get_f64(q);
    r->accuracy = sdc__stmt_get_f64(q);
    r->distance = sdc__stmt_get_f64(q);
}

enum sdc_status sdc__store_list_replicas(struct sdc_store *store, const char *group,
                                         int64_t platform, struct sdc_store_replica **list,
                                         size_t *n, struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store,
                                  "SELECT * FROM spread WHERE (?1 IS NULL OR \"group\"=?1) AND "
                                  "(?2=0 OR platform=?2) ORDER BY length(\"group\"), \"group\", "
                                  "platform, kind, replica",
                                  err);
    *list = NULL;
    *n = 0;
    sdc__stmt_text(&q, group);
    sdc__stmt_i64(&q, platform);
    while (sdc__stmt_row(&q)) {
        struct sdc_store_replica *r = sdc__store_more((void **)list, n, sizeof *r, err);
        if (!r) {
            q.st = SDC_NO_MEMORY;
            break;
        }
        read_replica(&q, r);
    }
    enum sdc_status st = sdc__stmt_end(&q);
    for (size_t i = 0; i < *n && st == SDC_OK; i++) {
        char owner[64];
        sdc__replica_owner(&(*list)[i], owner, sizeof owner);
        st = sdc__points_get(store, owner, &(*list)[i].points, &(*list)[i].n_points, err);
    }
    if (st != SDC_OK) {
        for (size_t i = 0; i < *n; i++)
            sdc__store_replica_release(&(*list)[i]);
        sdc__free(*list);
        *list = NULL;
        *n = 0;
    }
    return st;
}
