/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins what the store holds (camp) with the page (report); no other file includes both.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "cli/campaign_text.h"
#include "cli/commands.h"
#include "io/io.h"
#include "report/report.h"

#define SHOWN_SITES 4
#define N_FACTS     16

struct report_args {
    const char *output;
};

/* Everything that the report borrows. */
struct joined {
    struct sdc_campaign campaign;
    struct sdc_report report;
    struct sdc_report_claim claims[SDC_CLAIM_COUNT];
    struct sdc_report_control controls[3];
    const char **factors;
    struct sdc_report_cell *cells;
    const char **values; /* n_cells * n_factors */
    struct sdc_report_point *points;
    struct sdc_report_layer *layers;
    struct sdc_report_spread *spreads;
    struct sdc_report_trial *trials;
    struct sdc_report_fact facts[N_FACTS];
    char **texts; /* owned texts of all of these */
    size_t n_texts, cap_texts;
};

/* Takes the text of the buffer; NULL: no memory. */
static const char *keep(struct joined *j, struct sdc_buf *b) {
    char *text = sdc__buf_take(b);
    if (!text)
        return NULL;
    if (j->n_texts == j->cap_texts) {
        size_t cap = j->cap_texts ? j->cap_texts * 2 : 256;
        char **grown = sdc__realloc(j->texts, cap, sizeof *grown);
        if (!grown) {
            sdc__free(text);
            return NULL;
        }
        j->texts = grown;
        j->cap_texts = cap;
    }
    return j->texts[j->n_texts++] = text;
}

static const char *keep_meta(struct joined *j, const char *key) {
    struct sdc_error ignored;
    struct sdc_buf b = SDC_BUF_INIT;
    char *value = NULL;
    if (sdc__store_get_meta(j->campaign.store, key, &value, &ignored) != SDC_OK || !value)
        return NULL;
    sdc__buf_puts(&b, value);
    sdc__free(value);
    return keep(j, &b);
}

static enum sdc_status join_cells(struct joined *j, struct sdc_error *err) {
    const struct sdc_plan *plan = j->campaign.plan;
    const struct sdc_results *r = j->campaign.results;
    const struct sdc_spec *spec = plan->spec;
    /* several checkpoints are one more factor, before the others */
    size_t first = spec->n_checkpoints > 1, nf = spec->n_factors + first;
    j->factors = sdc__calloc(nf, sizeof *j->factors);
    j->cells = sdc__calloc(plan->n_cells, sizeof *j->cells);
    j->values = sdc__calloc(plan->n_cells * nf, sizeof *j->values);
    if (!j->factors || !j->cells || !j->values)
        return SDC_NOMEM(err, "a report");
    if (first)
        j->factors[0] = "checkpoint";
    for (size_t f = 0; f < spec->n_factors; f++)
        j->factors[first + f] = spec->factors[f].path;
    for (size_t c = 0; c < plan->n_cells; c++) {
        const char **values = j->values + c * nf;
        struct sdc_buf step = SDC_BUF_INIT;
        if (first) {
            sdc__buf_printf(&step, "%llu",
                            (unsigned long long)spec->checkpoints[plan->cells[c].checkpoint]);
            values[0] = keep(j, &step);
            if (!values[0])
                return SDC_NOMEM(err, "a report");
        }
        for (size_t f = 0; f < spec->n_factors; f++)
            values[first + f] = spec->factors[f].levels[plan->cells[c].level[f]].text;
        j->cells[c] = (struct sdc_report_cell){
            .label = plan->cells[c].label, .values = values, .n_planned = r->cells[c].n_planned};
    }
    for (size_t i = 0; i < r->n_trials; i++)
        if (r->trials[i].kind == SDC_TRIAL_CELL)
            sdc__report_cell_add(&j->cells[r->trials[i].cell], &r->trials[i].outcome);
    j->report.factors = j->factors;
    j->report.n_factors = nf;
    j->report.cells = j->cells;
    j->report.n_cells = plan->n_cells;
    return SDC_OK;
}

static void join_claims(struct joined *j) {
    const struct sdc_results *r = j->campaign.results;
    j->report.no_claims = r->no_claims;
    j->report.claims = j->claims;
    for (int c = 0; c < SDC_CLAIM_COUNT; c++)
        if (r->claims[c].asked && !r->no_claims)
            j->claims[j->report.n_claims++] =
                (struct sdc_report_claim){.id = sdc__claim_name((enum sdc_claim)c),
                                          .statement = sdc__claim_statement((enum sdc_claim)c),
                                          .effect = r->claims[c].effect,
                                          .result = r->claims[c].stat};
    for (int k = 0; k < 3; k++)
        j->controls[k] = (struct sdc_report_control){
            .name = sdc__trial_kind_name(r->controls[k].kind),
            .expectation = sdc__control_expectation(r->controls[k].kind),
            .n_passed = r->controls[k].n_passed,
            .n_failed = r->controls[k].n_failed,
            .first_failure = r->controls[k].first_failure};
    j->report.controls = j->controls;
    j->report.n_controls = 3;
}

static enum sdc_status join_curves(struct joined *j, struct sdc_error *err) {
    const struct sdc_results *r = j->campaign.results;
    j->points = sdc__calloc(r->n_points, sizeof *j->points);
    j->layers = sdc__calloc(r->n_layers, sizeof *j->layers);
    if (!j->points || !j->layers)
        return SDC_NOMEM(err, "a report");
    for (size_t i = 0; i < r->n_points; i++) {
        const struct sdc_results_point *p = &r->points[i];
        struct sdc_buf b = SDC_BUF_INIT;
        sdc__buf_printf(&b, "%s, %s", p->recipe, p->part);
        const char *series = keep(j, &b);
        if (!series)
            return SDC_NOMEM(err, "a report");
        j->points[i] = (struct sdc_report_point){series, (double)p->delivered, p->n, p->n_collapse};
    }
    for (size_t i = 0; i < r->n_layers; i++)
        j->layers[i] = (struct sdc_report_layer){r->layers[i].layer, r->layers[i].recipe,
                                                 r->layers[i].part, r->layers[i].d};
    j->report.points = j->points;
    j->report.n_points = r->n_points;
    j->report.layers = j->layers;
    j->report.n_layers = r->n_layers;
    return SDC_OK;
}

/* A fact whose text is in the buffer; left out where there is no room or no text. */
static void add_fact(struct joined *j, const char *name, struct sdc_buf *b) {
    const char *text = b->len ? keep(j, b) : NULL;
    sdc__buf_release(b);
    if (text && j->report.n_facts < N_FACTS)
        j->facts[j->report.n_facts++] = (struct sdc_report_fact){name, text};
}

/* Which clean restarts repeated, and the notes of their gates. */
static void gate_fact(struct joined *j, const struct sdc_store_golden *goldens, size_t n) {
    struct sdc_buf b = SDC_BUF_INIT;
    size_t passed = 0;
    const char *note = NULL;
    for (size_t i = 0; i < n; i++) {
        passed += goldens[i].passed;
        if (goldens[i].message && (!note || !goldens[i].passed))
            note = goldens[i].message;
    }
    sdc__buf_printf(&b, "%zu of %zu clean restarts repeated bit for bit, with equal replicas",
                    passed, n);
    if (note)
        sdc__buf_printf(&b, "; %s", note);
    add_fact(j, "gate", &b);
}

static void platform_facts(struct joined *j) {
    struct sdc_error ignored;
    for (int64_t id = 1;; id++) {
        char *text = NULL, *versions = NULL;
        struct sdc_buf b = SDC_BUF_INIT;
        if (sdc__store_get_platform(j->campaign.store, id, &text, &versions, &ignored) != SDC_OK)
            break;
        sdc__buf_puts(&b, text);
        add_fact(j, "platform", &b);
        sdc__buf_puts(&b, versions ? versions : "");
        add_fact(j, "versions", &b);
        sdc__free(text);
        sdc__free(versions);
    }
}

/* Replicas of one kind over all goldens. */
struct spread_sum {
    uint64_t n, alarms;
    double deviation; /* largest of losses */
    double accuracy;  /* largest |accuracy - golden's| */
};

static void add_replica(struct spread_sum *s, const struct sdc_store_replica *r,
                        const struct sdc_store_golden *goldens, size_t n) {
    s->n++;
    s->alarms += r->false_alarm;
    if (r->max_deviation > s->deviation)
        s->deviation = r->max_deviation;
    for (size_t g = 0; g < n; g++)
        if (strcmp(goldens[g].group, r->group) == 0 && goldens[g].platform == r->platform &&
            fabs(r->accuracy - goldens[g].accuracy) > s->accuracy)
            s->accuracy = fabs(r->accuracy - goldens[g].accuracy);
}

static enum sdc_status sum_replicas(struct joined *j, struct spread_sum sums[2],
                                    struct sdc_error *err) {
    struct sdc_store_golden *goldens = NULL;
    struct sdc_store_replica *replicas = NULL;
    size_t n_goldens = 0, n = 0;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__store_list_goldens(j->campaign.store, &goldens, &n_goldens, err));
    SDC_TRY_OUT(st, sdc__store_list_replicas(j->campaign.store, NULL, 0, &replicas, &n, err));
    for (size_t i = 0; i < n; i++)
        add_replica(&sums[replicas[i].kind], &replicas[i], goldens, n_goldens);
    gate_fact(j, goldens, n_goldens);
out:
    for (size_t i = 0; i < n_goldens; i++)
        sdc__store_golden_release(&goldens[i]);
    for (size_t i = 0; i < n; i++)
        sdc__store_replica_release(&replicas[i]);
    sdc__free(goldens);
    sdc__free(replicas);
    return st;
}

static enum sdc_status join_spreads(struct joined *j, struct sdc_error *err) {
    static const char *const names[] = {"E0", "E1"};
    static const char *const meanings[] = {"same order, half of all lowest mantissa bits flipped",
                                           "another data order from the checkpoint on"};
    struct spread_sum sums[2] = {{0}, {0}};
    SDC_TRY(sum_replicas(j, sums, err));
    j->spreads = sdc__calloc(2, sizeof *j->spreads);
    if (!j->spreads)
        return SDC_NOMEM(err, "a report");
    for (int k = 0; k < 2; k++) {
        struct sdc_buf b = SDC_BUF_INIT;
        sdc__buf_printf(&b,
                        "largest difference from the clean twin: loss %.3g, accuracy %.2f points",
                        sums[k].deviation, 100 * sums[k].accuracy);
        sdc__buf_printf(&b, "; %llu of %llu would be outside limits made of the others",
                        (unsigned long long)sums[k].alarms, (unsigned long long)sums[k].n);
        j->spreads[k] = (struct sdc_report_spread){names[k], meanings[k], sums[k].n, keep(j, &b)};
    }
    j->report.spreads = j->spreads;
    j->report.n_spreads = 2;
    return SDC_OK;
}

static const char *sites_text(struct joined *j, const struct sdc_store_trial *full) {
    struct sdc_buf b = SDC_BUF_INIT;
    for (size_t i = 0; i < full->n_faults && i < SHOWN_SITES; i++) {
        sdc__buf_puts(&b, i ? "; " : "");
        sdc__fault_text(&full->faults[i], &b);
    }
    if (full->planned > SHOWN_SITES && full->n_faults > SHOWN_SITES)
        sdc__buf_printf(&b, "; ... %llu sites", (unsigned long long)full->planned);
    return keep(j, &b);
}

static enum sdc_status join_trial(struct joined *j, const struct sdc_store_trial *t,
                                  struct sdc_report_trial *out, struct sdc_error *err) {
    struct sdc_store_trial full;
    struct sdc_buf b = SDC_BUF_INIT;
    SDC_TRY(sdc__store_get_trial(j->campaign.store, t->id, &full, err));
    const char *sites = sites_text(j, &full);
    sdc__store_trial_release(&full);
    const struct sdc_plan_trial *planned = sdc__plan_find(j->campaign.plan, t->id);
    sdc__ranks_text(planned ? planned->altered : 0, &b);
    const char *ranks = keep(j, &b);
    sdc__replay_text(sdc__store_dir(j->campaign.store), t->id, &b);
    const char *replay = keep(j, &b);
    if (!sites || !ranks || !replay)
        return SDC_NOMEM(err, "a report");
    *out = (struct sdc_report_trial){.id = t->id,
                                     .kind = sdc__trial_kind_name(t->kind),
                                     .cell = t->kind == SDC_TRIAL_CELL ? t->cell : SIZE_MAX,
                                     .cluster = t->cluster,
                                     .index = t->index,
                                     .sites = sites,
                                     .ranks = ranks,
                                     .n_delivered = t->delivered,
                                     .outcome = t->outcome,
                                     .accuracy = t->accuracy,
                                     .golden_accuracy = t->accuracy_golden,
                                     .collapse_step = t->collapse_step,
                                     .message = t->message,
                                     .replay = replay};
    return SDC_OK;
}

static enum sdc_status join_trials(struct joined *j, struct sdc_error *err) {
    const struct sdc_results *r = j->campaign.results;
    j->trials = sdc__calloc(r->n_trials, sizeof *j->trials);
    if (!j->trials)
        return SDC_NOMEM(err, "a report");
    for (size_t i = 0; i < r->n_trials; i++)
        SDC_TRY(join_trial(j, &r->trials[i], &j->trials[i], err));
    j->report.trials = j->trials;
    j->report.n_trials = r->n_trials;
    return SDC_OK;
}

static void join_facts(struct joined *j) {
    const struct sdc_spec *s = j->campaign.plan->spec;
    struct sdc_buf b = SDC_BUF_INIT;
    j->report.campaign = s->name;
    j->report.seed = s->seed;
    j->report.spec_yaml = keep_meta(j, "spec_source");
    j->report.started = keep_meta(j, "created");
    j->report.finished = keep_meta(j, "finished");
    sdc__buf_printf(&b,
                    "%s on %s, %u independent trainings, %zu cells of %u trials, %llu steps each",
                    s->fixed[SDC_KEY_MODEL].text, s->fixed[SDC_KEY_DATA_NAME].text, s->clusters,
                    j->campaign.plan->n_cells, s->trials, (unsigned long long)s->window_steps);
    j->report.summary = keep(j, &b);
    const char *invalid = keep_meta(j, "invalid");
    struct sdc_report_fact facts[] = {
        {"made by", keep_meta(j, "tool")},
        {"spec", s->hash},
        {"INVALID", invalid},
    };
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (facts[i].value)
            j->facts[j->report.n_facts++] = facts[i];
    j->report.facts = j->facts;
    platform_facts(j);
}

static void release(struct joined *j) {
    for (size_t i = 0; i < j->n_texts; i++)
        sdc__free(j->texts[i]);
    sdc__free(j->texts);
    sdc__free(j->factors);
    sdc__free(j->cells);
    sdc__free(j->values);
    sdc__free(j->points);
    sdc__free(j->layers);
    sdc__free(j->spreads);
    sdc__free(j->trials);
    sdc__campaign_close(&j->campaign);
}

static enum sdc_status join(struct joined *j, const char *dir, struct sdc_error *err) {
    SDC_TRY(sdc__campaign_open(dir, &j->campaign, err));
    join_facts(j);
    join_claims(j);
    SDC_TRY(join_cells(j, err));
    SDC_TRY(join_curves(j, err));
    SDC_TRY(join_spreads(j, err));
    return join_trials(j, err);
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct report_args *a = args;
    const char *dir = cli->operands.items[0];
    struct sdc_error err;
    struct joined j = {0};
    struct sdc_buf text = SDC_BUF_INIT;
    char *out = NULL;
    enum sdc_status st;
    SDC_TRY_OUT(st, join(&j, dir, &err));
    out = a->output ? sdc__strdup(a->output) : sdc__path_join(dir, "report");
    st = out ? sdc__report_write(&j.report, out, &err) : SDC_NOMEM(&err, "a path");
    if (st != SDC_OK)
        goto out;
    sdc__claims_text(j.campaign.results, &text);
    fprintf(cli->out, "%sreport     %s/report.html\n", text.data ? text.data : "", out);
out:;
    int code = SDC_EXIT_DONE;
    if (st != SDC_OK) {
        code = sdc_cli_fail(cli, &err);
    } else if (sdc__controls_failed(j.campaign.results)) {
        sdc_cli_say(cli, "a control failed: the results of this campaign are invalid\n");
        code = SDC_EXIT_FOUND;
    }
    sdc__buf_release(&text);
    sdc__free(out);
    release(&j);
    return code;
}

static const struct sdc_opt options[] = {
    SDC_OPT_OUTPUT(struct report_args, output, "OUT",
                   "folder of the report, DIR/report if not given"),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_report = {
    .name = "report",
    .group = "Experiments",
    .summary = "write the page, figures and data of a campaign",
    .operands = "DIR",
    .details =
        "OUT/report.html needs no network; OUT/figures holds the figures as SVG, OUT/data their\n"
        "numbers as CSV, OUT/results.json everything. Prints the claims. Exits 1 if a control\n"
        "has failed.",
    .examples = "  sdclab report paper-small.sdcrun",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct report_args),
    .run = run,
};
