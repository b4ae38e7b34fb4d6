/* SPDX-License-Identifier: Apache-2.0
 *
 * One row per trial, as CSV and as JSON, with the same names in both.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/json.h"
#include "camp/results.h"

enum value_type { VALUE_TEXT, VALUE_INT, VALUE_REAL, VALUE_NONE };

struct value {
    enum value_type type;
    const char *text;
    int64_t integer;
    double real;
};

static struct value text_value(const char *text) {
    return (struct value){.type = text ? VALUE_TEXT : VALUE_NONE, .text = text};
}
static struct value int_value(uint64_t v) {
    return (struct value){.type = VALUE_INT, .integer = (int64_t)v};
}
static struct value real_value(double v) {
    return (struct value){.type = isnan(v) ? VALUE_NONE : VALUE_REAL, .real = v};
}

/* In the order of columns[]; names are part of the export's contract. */
static const char *const columns[] = {
    "trial",          "kind",          "cell",       "index",         "cluster",    "block",
    "group",          "checkpoint",    "result",     "exposure",      "numeric",    "trajectory",
    "quality",        "replicas",      "collapse",   "collapse_step", "kept_ranks", "altered_ranks",
    "support",        "planned",       "delivered",  "altered_bits",  "new_nan",    "new_inf",
    "new_extreme",    "end_step",      "end_reason", "end_loss",      "eval_loss",  "accuracy",
    "accuracy_worst", "accuracy_twin", "distance",   "control",       "platform",   "attempts",
    "seconds",        "finished",      "message",
};
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

const char *const *sdc__export_columns(size_t *n) {
    *n = N_COLUMNS;
    return columns;
}

/* "0" or "0,2,3" */
static void ranks_text(uint64_t mask, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (unsigned r = 0; r < 64 && used + 4 < size; r++)
        if (mask >> r & 1)
            used += (size_t)snprintf(text + used, size - used, "%s%u", used ? "," : "", r);
}

/* altered: buffer for the text of the ranks. */
static void fill_row(const struct sdc_plan *plan, const struct sdc_store_trial *t,
                     struct value row[N_COLUMNS], char *altered, size_t size) {
    bool is_cell = t->kind == SDC_TRIAL_CELL && t->cell < plan->n_cells;
    const struct sdc_plan_cell *cell = is_cell ? &plan->cells[t->cell] : NULL;
    const struct sdc_plan_group *group = t->group < plan->n_groups ? &plan->groups[t->group] : NULL;
    const struct sdc_plan_trial *planned = sdc__plan_find(plan, t->id);
    ranks_text(planned ? planned->altered : 0, altered, size);
    struct value *v = row;
    *v++ = text_value(t->id);
    *v++ = text_value(sdc__trial_kind_name(t->kind));
    *v++ = text_value(cell ? cell->id : NULL);
    *v++ = int_value(t->index);
    *v++ = int_value(t->cluster);
    *v++ = cell ? int_value(plan->blocks[cell->block].key) : (struct value){.type = VALUE_NONE};
    *v++ = text_value(group ? group->id : NULL);
    *v++ = group ? int_value(group->checkpoint) : (struct value){.type = VALUE_NONE};
    for (int a = 0; a < SDC_AXIS_COUNT; a++)
        *v++ = text_value(
            sdc_label_text((enum sdc_axis)a, sdc_outcome_get(&t->outcome, (enum sdc_axis)a)));
    *v++ = int_value(sdc_outcome_is_collapse(&t->outcome));
    *v++ = t->collapse_step >= 0 ? int_value((uint64_t)t->collapse_step)
                                 : (struct value){.type = VALUE_NONE};
    *v++ = int_value(t->kept_ranks);
    *v++ = text_value(altered);
    *v++ = int_value(t->support);
    *v++ = int_value(t->planned);
    *v++ = int_value(t->delivered);
    *v++ = int_value(t->altered_bits);
    *v++ = int_value(t->n_nan);
    *v++ = int_value(t->n_inf);
    *v++ = int_value(t->n_extreme);
    *v++ = int_value(t->end_step);
    *v++ = text_value(t->end_reason);
    *v++ = real_value(t->end_loss);
    *v++ = real_value(t->eval_loss);
    *v++ = real_value(t->accuracy);
    *v++ = real_value(t->accuracy_worst);
    *v++ = real_value(t->accuracy_golden);
    *v++ = real_value(t->distance);
    *v++ = t->control >= 0 ? int_value((uint64_t)t->control) : (struct value){.type = VALUE_NONE};
    *v++ = int_value((uint64_t)t->platform);
    *v++ = int_value(t->attempts);
    *v++ = real_value(t->seconds);
    *v++ = text_value(t->finished);
    *v++ = text_value(t->message);
}

static void csv_text(struct sdc_buf *out, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        sdc__buf_puts(out, text);
        return;
    }
    sdc__buf_putc(out, '"');
    for (; *text; text++) {
        if (*text == '"')
            sdc__buf_putc(out, '"');
        sdc__buf_putc(out, *text);
    }
    sdc__buf_putc(out, '"');
}

static void csv_value(struct sdc_buf *out, const struct value *v) {
    if (v->type == VALUE_TEXT)
        csv_text(out, v->text);
    else if (v->type == VALUE_INT)
        sdc__buf_printf(out, "%" PRId64, v->integer);
    else if (v->type == VALUE_REAL)
        sdc__buf_printf(out, "%.17g", v->real);
}

static void json_value(struct sdc_jw *w, const struct value *v) {
    if (v->type == VALUE_TEXT)
        sdc__jw_str(w, v->text);
    else if (v->type == VALUE_INT)
        sdc__jw_i64(w, v->integer);
    else if (v->type == VALUE_REAL)
        sdc__jw_f64(w, v->real);
    else
        sdc__jw_null(w);
}

static const char *level_of(const struct sdc_plan *plan, const struct sdc_store_trial *t,
                            size_t factor) {
    if (t->kind != SDC_TRIAL_CELL || t->cell >= plan->n_cells)
        return NULL;
    return plan->spec->factors[factor].levels[plan->cells[t->cell].level[factor]].text;
}

static void release_trials(struct sdc_store_trial *trials, size_t n) {
    for (size_t i = 0; i < n; i++)
        sdc__store_trial_release(&trials[i]);
    sdc__free(trials);
}

enum sdc_status sdc__export_csv(struct sdc_store *store, const struct sdc_plan *plan,
                                struct sdc_buf *out, struct sdc_error *err) {
    struct sdc_store_trial *trials = NULL;
    size_t n = 0;
    SDC_TRY(sdc__store_list_trials(store, &trials, &n, err));
    for (size_t c = 0; c < N_COLUMNS; c++)
        sdc__buf_printf(out, "%s%s", c ? "," : "", columns[c]);
    for (size_t f = 0; f < plan->spec->n_factors; f++)
        sdc__buf_printf(out, ",factor.%s", plan->spec->factors[f].path);
    sdc__buf_putc(out, '\n');
    for (size_t i = 0; i < n; i++) {
        struct value row[N_COLUMNS];
        char altered[256];
        fill_row(plan, &trials[i], row, altered, sizeof altered);
        for (size_t c = 0; c < N_COLUMNS; c++) {
            if (c)
                sdc__buf_putc(out, ',');
            csv_value(out, &row[c]);
        }
        for (size_t f = 0; f < plan->spec->n_factors; f++) {
            const char *level = level_of(plan, &trials[i], f);
            sdc__buf_putc(out, ',');
            csv_text(out, level ? level : "");
        }
        sdc__buf_putc(out, '\n');
    }
    release_trials(trials, n);
    return out->failed ? SDC_NOMEM(err, "the export") : SDC_OK;
}

enum sdc_status sdc__export_json(struct sdc_store *store, const struct sdc_plan *plan,
                                 struct sdc_buf *out, struct sdc_error *err) {
    struct sdc_store_trial *trials = NULL;
    size_t n = 0;
    SDC_TRY(sdc__store_list_trials(store, &trials, &n, err));
    sdc__buf_puts(out, "{\"schema\":\"sdclab.export/1\",\"campaign\":");
    struct sdc_jw w = sdc__jw(out);
    sdc__jw_str(&w, plan->spec->name);
    sdc__buf_printf(out, ",\"spec\":%s,\"trials\":[", plan->spec->resolved);
    for (size_t i = 0; i < n; i++) {
        struct value row[N_COLUMNS];
        char altered[256];
        fill_row(plan, &trials[i], row, altered, sizeof altered);
        sdc__buf_puts(out, i ? ",\n" : "\n");
        w = sdc__jw(out);
        sdc__jw_obj(&w);
        for (size_t c = 0; c < N_COLUMNS; c++) {
            sdc__jw_key(&w, columns[c]);
            json_value(&w, &row[c]);
        }
        sdc__jw_key(&w, "factors");
        sdc__jw_obj(&w);
        for (size_t f = 0; f < plan->spec->n_factors; f++)
            sdc__jw_kstr(&w, plan->spec->factors[f].path, level_of(plan, &trials[i], f));
        sdc__jw_obj_end(&w);
        sdc__jw_obj_end(&w);
    }
    sdc__buf_puts(out, "\n]}\n");
    release_trials(trials, n);
    return out->failed ? SDC_NOMEM(err, "the export") : SDC_OK;
}
