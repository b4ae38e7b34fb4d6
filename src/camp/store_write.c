/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting rows: a trial in one transaction, goldens and clean replicas.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "camp/store_internal.h"

/* "trial_id", ... of the columns after id and kind */
#define COLUMN_NAME(type, member) ", \"" #member "\""
#define COLUMN_MARK(type, member) ",?"

static void bind_N32(struct sdc_stmt *q, uint32_t v) {
    if (v == SDC_PLAN_NONE)
        sdc__stmt_null(q);
    else
        sdc__stmt_i64(q, v);
}

#define BIND_N32(q, member) bind_N32(q, member)
#define BIND_I64(q, member) sdc__stmt_i64(q, (int64_t)(member))
#define BIND_F64(q, member) sdc__stmt_f64(q, member)
#define BIND_STR(q, member) sdc__stmt_text(q, member)

static enum sdc_status put_head(struct sdc_store *store, const struct sdc_store_trial *t,
                                struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store,
                  "INSERT INTO trial(id, kind" SDC_STORE_TRIAL_MAP(
                      COLUMN_NAME) ", message) VALUES(?,?" SDC_STORE_TRIAL_MAP(COLUMN_MARK) ",?)",
                  err);
    sdc__stmt_text(&q, t->id);
    sdc__stmt_text(&q, sdc__trial_kind_name(t->kind));
#define BIND(type, member) BIND_##type(&q, t->member);
    SDC_STORE_TRIAL_MAP(BIND)
#undef BIND
    sdc__stmt_text(&q, t->message);
    sdc__stmt_run(&q);
    return sdc__stmt_end(&q);
}

static void bind_outcome(struct sdc_stmt *q, const char *trial, int64_t after,
                         const struct sdc_outcome *o) {
    sdc__stmt_text(q, trial);
    sdc__stmt_i64(q, after);
    for (int a = 0; a < SDC_AXIS_COUNT; a++)
        sdc__stmt_text(q, sdc_label_text((enum sdc_axis)a, sdc_outcome_get(o, (enum sdc_axis)a)));
    sdc__stmt_run(q);
}

static enum sdc_status put_outcomes(struct sdc_store *store, const struct sdc_store_trial *t,
                                    struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "INSERT INTO outcome VALUES(?,?,?,?,?,?,?,?)", err);
    bind_outcome(&q, t->id, -1, &t->outcome);
    for (size_t i = 0; i < t->n_horizons; i++)
        bind_outcome(&q, t->id, (int64_t)t->horizons[i].after, &t->horizons[i].outcome);
    return sdc__stmt_end(&q);
}

static void bind_hex(struct sdc_stmt *q, uint64_t raw, unsigned bytes) {
    char text[24];
    snprintf(text, sizeof text, "%0*" PRIx64, (int)(2 * bytes), raw);
    sdc__stmt_text(q, text);
}

static enum sdc_status put_faults(struct sdc_store *store, const struct sdc_store_trial *t,
                                  struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store, "INSERT INTO fault VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", err);
    for (size_t i = 0; i < t->n_faults && i < SDC_STORE_MAX_FAULTS; i++) {
        const struct sdc_store_fault *f = &t->faults[i];
        unsigned bytes = sdc_dtype_bytes(f->dtype);
        char text[48];
        sdc__stmt_text(&q, t->id);
        sdc__stmt_i64(&q, (int64_t)i);
        sdc__stmt_text(&q, f->tensor);
        sdc__stmt_text(&q, f->index);
        sdc__stmt_i64(&q, (int64_t)f->elem);
        sdc__stmt_text(&q, sdc_dtype_name(f->dtype));
        sdc__stmt_text(&q, sdc_part_name(f->part));
        sdc__stmt_text(&q, sdc_role_name(f->role));
        sdc__stmt_text(&q, sdc_op_name(f->op));
        bind_hex(&q, f->bits, bytes);
        bind_hex(&q, f->old_raw, bytes);
        bind_hex(&q, f->new_raw, bytes);
        sdc_num_text(f->dtype, f->old_raw, text, sizeof text);
        sdc__stmt_text(&q, text);
        sdc_num_text(f->dtype, f->new_raw, text, sizeof text);
        sdc__stmt_text(&q, text);
        sdc__stmt_i64(&q, f->delivered);
        sdc__stmt_run(&q);
    }
    return sdc__stmt_end(&q);
}

static enum sdc_status put_exposures(struct sdc_store *store, const struct sdc_store_trial *t,
                                     struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "INSERT INTO exposure VALUES(?,?,?,?,?,?,?,?)", err);
    for (size_t i = 0; i < t->n_exposures; i++) {
        const struct sdc_store_exposure *e = &t->exposures[i];
        sdc__stmt_text(&q, t->id);
        sdc__stmt_i64(&q, e->rank);
        sdc__stmt_i64(&q, e->planned);
        sdc__stmt_i64(&q, e->read);
        sdc__stmt_i64(&q, e->altered_loaded);
        sdc__stmt_i64(&q, e->altered_started);
        sdc__stmt_text(&q, e->loaded);
        sdc__stmt_text(&q, e->started);
        sdc__stmt_run(&q);
    }
    return sdc__stmt_end(&q);
}

static enum sdc_status put_points(struct sdc_store *store, const char *owner,
                                  const struct sdc_store_point *points, size_t n,
                                  struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store, "INSERT OR REPLACE INTO series VALUES(?,?,?,?,?,?,?)", err);
    for (size_t i = 0; i < n; i++) {
        sdc__stmt_text(&q, owner);
        sdc__stmt_text(&q, points[i].kind == SDC_SERIES_EVAL ? "eval" : "loss");
        sdc__stmt_i64(&q, (int64_t)points[i].step);
        sdc__stmt_i64(&q, points[i].rank);
        sdc__stmt_f64(&q, points[i].loss);
        sdc__stmt_f64(&q, points[i].accuracy);
        sdc__stmt_f64(&q, points[i].gradient_norm);
        sdc__stmt_run(&q);
    }
    return sdc__stmt_end(&q);
}

/* Of a golden or a clean replica, which may be put again. */
static enum sdc_status replace_points(struct sdc_store *store, const char *owner,
                                      const struct sdc_store_point *points, size_t n,
                                      struct sdc_error *err) {
    struct sdc_stmt q = sdc__stmt(store, "DELETE FROM series WHERE owner=?", err);
    sdc__stmt_text(&q, owner);
    sdc__stmt_run(&q);
    SDC_TRY(sdc__stmt_end(&q));
    return put_points(store, owner, points, n, err);
}

static enum sdc_status put_propagation(struct sdc_store *store, const struct sdc_store_trial *t,
                                       struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store, "INSERT INTO propagation VALUES(?,?,?,?,?,?,?,?,?,?)", err);
    for (size_t i = 0; i < t->n_propagation; i++) {
        const struct sdc_store_propagation *p = &t->propagation[i];
        sdc__stmt_text(&q, t->id);
        sdc__stmt_text(&q, p->layer);
        sdc__stmt_text(&q, sdc_part_name(p->part));
        sdc__stmt_i64(&q, p->rank);
        sdc__stmt_i64(&q, (int64_t)p->step);
        sdc__stmt_i64(&q, (int64_t)p->n_elems);
        sdc__stmt_i64(&q, (int64_t)p->n_differ);
        sdc__stmt_i64(&q, (int64_t)p->n_altered);
        sdc__stmt_f64(&q, p->distance);
        sdc__stmt_f64(&q, p->distance_altered);
        sdc__stmt_run(&q);
    }
    return sdc__stmt_end(&q);
}

static enum sdc_status put_rows(struct sdc_store *store, const struct sdc_store_trial *t,
                                struct sdc_error *err) {
    SDC_TRY(put_head(store, t, err));
    SDC_TRY(put_outcomes(store, t, err));
    SDC_TRY(put_faults(store, t, err));
    SDC_TRY(put_exposures(store, t, err));
    SDC_TRY(put_points(store, t->id, t->points, t->n_points, err));
    return put_propagation(store, t, err);
}

enum sdc_status sdc__store_put_trial(struct sdc_store *store, const struct sdc_store_trial *t,
                                     struct sdc_error *err) {
    struct sdc_store_trial stamped = *t;
    if (!stamped.finished[0])
        sdc__wall_utc(stamped.finished);
    SDC_TRY(sdc__store_begin(store, err));
    enum sdc_status st = sdc__store_end(store, put_rows(store, &stamped, err), err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "trial %s", t->id);
    return st;
}

static enum sdc_status forget_rows(struct sdc_store *store, const char *id, struct sdc_error *err) {
    static const char *const statements[] = {
        "DELETE FROM outcome WHERE trial=?",     "DELETE FROM fault WHERE trial=?",
        "DELETE FROM exposure WHERE trial=?",    "DELETE FROM series WHERE owner=?",
        "DELETE FROM propagation WHERE trial=?", "DELETE FROM trial WHERE id=?",
    };
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        struct sdc_stmt q = sdc__stmt(store, statements[i], err);
        sdc__stmt_text(&q, id);
        sdc__stmt_run(&q);
        SDC_TRY(sdc__stmt_end(&q));
    }
    return SDC_OK;
}

enum sdc_status sdc__store_forget_trial(struct sdc_store *store, const char *id,
                                        struct sdc_error *err) {
    SDC_TRY(sdc__store_begin(store, err));
    return sdc__store_end(store, forget_rows(store, id, err), err);
}

/* ---- goldens and replicas ---- */

static enum sdc_status golden_rows(struct sdc_store *store, const struct sdc_store_golden *g,
                                   const char *owner, struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store, "INSERT OR REPLACE INTO golden VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", err);
    sdc__stmt_text(&q, g->group);
    sdc__stmt_i64(&q, g->platform);
    sdc__stmt_i64(&q, g->passed);
    sdc__stmt_text(&q, g->message);
    sdc__stmt_f64(&q, g->accuracy);
    sdc__stmt_f64(&q, g->eval_loss);
    sdc__stmt_i64(&q, (int64_t)g->eval_samples);
    sdc__stmt_f64(&q, g->end_loss);
    sdc__stmt_f64(&q, g->max_parameter);
    sdc__stmt_f64(&q, g->step_seconds);
    sdc__stmt_i64(&q, (int64_t)g->params);
    sdc__stmt_text(&q, g->state);
    sdc__stmt_run(&q);
    SDC_TRY(sdc__stmt_end(&q));
    return replace_points(store, owner, g->points, g->n_points, err);
}

void sdc__golden_owner(const char *group, int64_t platform, char *text, size_t size) {
    snprintf(text, size, "golden:%s:%" PRId64, group, platform);
}

void sdc__replica_owner(const struct sdc_store_replica *r, char *text, size_t size) {
    snprintf(text, size, "%s:%s:%" PRId64 ":%u", r->kind == SDC_SPREAD_E0 ? "e0" : "e1", r->group,
             r->platform, r->replica);
}

enum sdc_status sdc__store_put_golden(struct sdc_store *store, const struct sdc_store_golden *g,
                                      struct sdc_error *err) {
    char owner[64];
    sdc__golden_owner(g->group, g->platform, owner, sizeof owner);
    SDC_TRY(sdc__store_begin(store, err));
    return sdc__store_end(store, golden_rows(store, g, owner, err), err);
}

static enum sdc_status replica_rows(struct sdc_store *store, const struct sdc_store_replica *r,
                                    const char *owner, struct sdc_error *err) {
    struct sdc_stmt q =
        sdc__stmt(store, "INSERT OR REPLACE INTO spread VALUES(?,?,?,?,?,?,?,?,?,?,?)", err);
    sdc__stmt_text(&q, r->group);
    sdc__stmt_i64(&q, r->platform);
    sdc__stmt_text(&q, r->kind == SDC_SPREAD_E0 ? "E0" : "E1");
    sdc__stmt_i64(&q, r->replica);
    sdc__stmt_i64(&q, r->held_out);
    sdc__stmt_i64(&q, r->false_alarm);
    sdc__stmt_f64(&q, r->max_deviation);
    sdc__stmt_f64(&q, r->end_loss);
    sdc__stmt_f64(&q, r->eval_loss);
    sdc__stmt_f64(&q, r->accuracy);
    sdc__stmt_f64(&q, r->distance);
    sdc__stmt_run(&q);
    SDC_TRY(sdc__stmt_end(&q));
    return replace_points(store, owner, r->points, r->n_points, err);
}

enum sdc_status sdc__store_put_replica(struct sdc_store *store, const struct sdc_store_replica *r,
                                       struct sdc_error *err) {
    char owner[64];
    sdc__replica_owner(r, owner, sizeof owner);
    SDC_TRY(sdc__store_begin(store, err));
    return sdc__store_end(store, replica_rows(store, r, owner, err), err);
}
