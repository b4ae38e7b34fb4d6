/* SPDX-License-Identifier: Apache-2.0
 *
 * What `campaign plan` shows, as text and as JSON.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/json.h"
#include "camp/plan.h"

static uint64_t support_bound(const struct sdc_plan *plan, const struct sdc_plan_cell *cell) {
    return sdc__setting_support(&cell->setting, sdc__spec_pairs_parts(plan->spec));
}

static bool restricted(const struct sdc_plan_cell *cell) {
    const struct sdc_choice *c = &cell->setting.choice;
    return c->n_tensors || c->n_not_tensors || c->roles || c->dtypes;
}

/* Expected share of collapses if every fault were read and each hit the fatal bit with chance q. */
static double null_share(const struct sdc_plan_cell *cell) {
    return 1.0 -
           pow(1.0 - sdc__plan_null_q(&cell->setting.choice), (double)cell->setting.choice.flips);
}

void sdc__plan_warnings(const struct sdc_plan *plan, struct sdc_buf *out) {
    const struct sdc_spec *s = plan->spec;
    bool any_claim = s->claims[SDC_CLAIM_H1A] || s->claims[SDC_CLAIM_H3];
    if (any_claim && s->clusters < 20)
        sdc__buf_printf(out,
                        "%u clusters: claims need 20, verdicts will be \"undecided: too few "
                        "clusters\"\n",
                        s->clusters);
    if (s->trials < s->clusters)
        sdc__buf_printf(out, "%u trials per cell use only the first %u of %u clusters\n", s->trials,
                        s->trials, s->clusters);
    else if (s->trials % s->clusters != 0)
        sdc__buf_printf(out, "%u trials per cell are not balanced over %u clusters\n", s->trials,
                        s->clusters);
    if (s->clean_e0 < 59 || s->clean_e1 < 59)
        sdc__buf_printf(out,
                        "clean spreads of %u and %u replicas: limits come from few runs, "
                        "95 %% limits at 95 %% confidence need 59\n",
                        s->clean_e0, s->clean_e1);
    for (size_t c = 0; c < plan->n_cells; c++)
        if (plan->cells[c].setting.choice.parts == 1u << SDC_PART_OPTIMIZER &&
            plan->cells[c].setting.momentum == 0) {
            sdc__buf_printf(out,
                            "%s: momentum 0 leaves the optimizer without state, so its "
                            "trials alter nothing\n",
                            plan->cells[c].id);
            break;
        }
    if (s->eval_samples == 0)
        sdc__buf_puts(out, "window.eval_samples is 0: no quality labels\n");
}

/* Steps that all runs together take, for an idea of the cost. */
static uint64_t total_steps(const struct sdc_plan *plan) {
    const struct sdc_spec *s = plan->spec;
    uint64_t steps = 0;
    for (size_t t = 0; t < plan->n_trainings; t++)
        steps += plan->trainings[t].steps;
    uint64_t clean = 2 + (uint64_t)s->clean_e0 + s->clean_e1;
    return steps + (plan->n_groups * clean + plan->n_trials) * s->window_steps;
}

static void print_cells(const struct sdc_plan *plan, struct sdc_buf *out) {
    size_t width = 4;
    for (size_t c = 0; c < plan->n_cells; c++)
        if (strlen(plan->cells[c].label) > width)
            width = strlen(plan->cells[c].label);
    sdc__buf_printf(out, "\n%-6s %-*s %7s %10s %9s\n", "cell", (int)width, "levels", "trials",
                    "support", "null");
    for (size_t c = 0; c < plan->n_cells; c++) {
        const struct sdc_plan_cell *cell = &plan->cells[c];
        char support[32];
        snprintf(support, sizeof support, "%s%llu", restricted(cell) ? "<=" : "",
                 (unsigned long long)support_bound(plan, cell));
        sdc__buf_printf(out, "%-6s %-*s %7u %10s %8.1f%%\n", cell->id, (int)width, cell->label,
                        plan->spec->trials, support, 100 * null_share(cell));
    }
    sdc__buf_puts(out,
                  "\nsupport: bits (elements for op value) that a fault can hit. null: share of "
                  "collapses\nif every fault were read and each were fatal with the chance of "
                  "the top exponent bit.\n");
}

enum sdc_status sdc__plan_print(const struct sdc_plan *plan, double per_minute, struct sdc_buf *out,
                                struct sdc_error *err) {
    const struct sdc_spec *s = plan->spec;
    sdc__buf_printf(out, "campaign   %s, seed %llu, spec %s\n", s->name,
                    (unsigned long long)s->seed, s->hash);
    sdc__buf_printf(out, "trainings  %zu (%u clusters), to step %llu\n", plan->n_trainings,
                    s->clusters, (unsigned long long)s->checkpoints[s->n_checkpoints - 1]);
    sdc__buf_printf(out, "goldens    %zu, each twice, with %u + %u clean replicas\n",
                    plan->n_groups, s->clean_e0, s->clean_e1);
    sdc__buf_printf(out, "cells      %zu in %zu blocks", plan->n_cells, plan->n_blocks);
    for (size_t f = 0, n = 0; f < s->n_factors; f++)
        if (s->factors[f].paired)
            sdc__buf_printf(out, "%s%s", n++ ? ", " : "; pairs over ", s->factors[f].path);
    sdc__buf_printf(out, "\ntrials     %zu, and %zu controls, %llu steps each\n",
                    plan->n_trials - plan->n_controls, plan->n_controls,
                    (unsigned long long)s->window_steps);
    sdc__buf_printf(out, "steps      %llu in all\n", (unsigned long long)total_steps(plan));
    if (per_minute > 0)
        sdc__buf_printf(out, "time       about %.1f minutes at %.1f trials a minute\n",
                        (double)plan->n_trials / per_minute, per_minute);
    print_cells(plan, out);
    struct sdc_buf warnings = SDC_BUF_INIT;
    sdc__plan_warnings(plan, &warnings);
    if (warnings.len) {
        sdc__buf_puts(out, "\nwarnings\n");
        char line[300];
        const char *rest = warnings.data;
        for (const char *end; (end = strchr(rest, '\n')) != NULL; rest = end + 1) {
            snprintf(line, sizeof line, "%.*s", (int)(end - rest), rest);
            sdc__buf_printf(out, "  %s\n", line);
        }
    }
    sdc__buf_release(&warnings);
    return out->failed ? SDC_ERR(err, SDC_NO_MEMORY, "no memory for the plan's text") : SDC_OK;
}

static void json_cell(struct sdc_jw *w, const struct sdc_plan *plan,
                      const struct sdc_plan_cell *cell) {
    const struct sdc_spec *s = plan->spec;
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "id", cell->id);
    sdc__jw_ku64(w, "checkpoint", s->checkpoints[cell->checkpoint]);
    sdc__jw_key(w, "levels");
    sdc__jw_obj(w);
    for (size_t f = 0; f < s->n_factors; f++)
        sdc__jw_kstr(w, s->factors[f].path, s->factors[f].levels[cell->level[f]].text);
    sdc__jw_obj_end(w);
    sdc__jw_ku64(w, "block", plan->blocks[cell->block].key);
    sdc__jw_ku64(w, "trials", s->trials);
    sdc__jw_ku64(w, "support_at_most", support_bound(plan, cell));
    sdc__jw_kf64(w, "null_collapse", null_share(cell));
    sdc__jw_obj_end(w);
}

enum sdc_status sdc__plan_json(const struct sdc_plan *plan, double per_minute, struct sdc_buf *out,
                               struct sdc_error *err) {
    struct sdc_jw w = sdc__jw(out);
    const struct sdc_spec *s = plan->spec;
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.plan/1");
    sdc__jw_kstr(&w, "campaign", s->name);
    sdc__jw_ku64(&w, "seed", s->seed);
    sdc__jw_kstr(&w, "spec_hash", s->hash);
    sdc__jw_ku64(&w, "clusters", s->clusters);
    sdc__jw_ku64(&w, "trainings", plan->n_trainings);
    sdc__jw_ku64(&w, "goldens", plan->n_groups);
    sdc__jw_ku64(&w, "blocks", plan->n_blocks);
    sdc__jw_ku64(&w, "trials", plan->n_trials - plan->n_controls);
    sdc__jw_ku64(&w, "controls", plan->n_controls);
    sdc__jw_ku64(&w, "steps", total_steps(plan));
    sdc__jw_key(&w, "minutes");
    if (per_minute > 0)
        sdc__jw_f64(&w, (double)plan->n_trials / per_minute);
    else
        sdc__jw_null(&w);
    sdc__jw_key(&w, "cells");
    sdc__jw_arr(&w);
    for (size_t c = 0; c < plan->n_cells; c++)
        json_cell(&w, plan, &plan->cells[c]);
    sdc__jw_arr_end(&w);
    struct sdc_buf warnings = SDC_BUF_INIT;
    sdc__plan_warnings(plan, &warnings);
    sdc__jw_key(&w, "warnings");
    sdc__jw_arr(&w);
    char line[300];
    const char *rest = warnings.len ? warnings.data : "";
    for (const char *end; (end = strchr(rest, '\n')) != NULL; rest = end + 1) {
        snprintf(line, sizeof line, "%.*s", (int)(end - rest), rest);
        sdc__jw_str(&w, line);
    }
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    sdc__buf_release(&warnings);
    return out->failed ? SDC_ERR(err, SDC_NO_MEMORY, "no memory for the plan's text") : SDC_OK;
}
