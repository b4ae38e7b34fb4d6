/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/json.h"
#include "cli/campaign_text.h"
#include "cli/commands.h"

struct status_args {
    bool json;
};

struct facts {
    const char *state; /* "running", "finished", "interrupted", "unfinished" */
    long writer;
    char *created, *finished, *invalid;
    double per_minute; /* 0: not known */
    double minutes;    /* remaining; 0: not known */
};

static enum sdc_status read_facts(const struct sdc_campaign *c, struct facts *f,
                                  struct sdc_error *err) {
    char *rate = NULL, *interrupted = NULL;
    const struct sdc_results *r = c->results;
    uint64_t left = r->n_planned + r->n_controls_planned - r->n_stored - r->n_controls;
    enum sdc_status st;
    *f = (struct facts){.writer = sdc__store_writer(sdc__store_dir(c->store))};
    SDC_TRY_OUT(st, sdc__store_get_meta(c->store, "created", &f->created, err));
    SDC_TRY_OUT(st, sdc__store_get_meta(c->store, "finished", &f->finished, err));
    SDC_TRY_OUT(st, sdc__store_get_meta(c->store, "invalid", &f->invalid, err));
    SDC_TRY_OUT(st, sdc__store_get_meta(c->store, "interrupted", &interrupted, err));
    SDC_TRY_OUT(st, sdc__store_get_meta(c->store, "trials_per_minute", &rate, err));
    f->state = f->writer     ? "running"
               : left == 0   ? "finished"
               : interrupted ? "interrupted"
                             : "unfinished";
    if (rate && sdc__parse_f64(rate, &f->per_minute) && f->per_minute > 0)
        f->minutes = (double)left / f->per_minute;
out:
    sdc__free(rate);
    sdc__free(interrupted);
    return st;
}

static void release_facts(struct facts *f) {
    sdc__free(f->created);
    sdc__free(f->finished);
    sdc__free(f->invalid);
}

static void print_controls(const struct sdc_results *r, FILE *out) {
    for (int k = 0; k < 3; k++) {
        const struct sdc_results_control *c = &r->controls[k];
        fprintf(out, "control    %-8s %llu of %llu passed", sdc__trial_kind_name(c->kind),
                (unsigned long long)c->n_passed, (unsigned long long)c->n_planned);
        if (c->n_failed)
            fprintf(out, ", %llu FAILED: %s", (unsigned long long)c->n_failed, c->first_failure);
        fputc('\n', out);
    }
}

static void print_cells(const struct sdc_campaign *c, FILE *out) {
    size_t width = 6;
    for (size_t i = 0; i < c->plan->n_cells; i++)
        if (strlen(c->plan->cells[i].label) > width)
            width = strlen(c->plan->cells[i].label);
    fprintf(out, "\n%-6s %-*s %9s %8s %9s  %s\n", "cell", (int)width, "levels", "trials", "reached",
            "collapse", "share, 95 % interval");
    for (size_t i = 0; i < c->plan->n_cells; i++) {
        const struct sdc_results_cell *cell = &c->results->cells[i];
        fprintf(out, "%-6s %-*s %4llu/%-4llu %8llu %9llu  ", c->plan->cells[i].id, (int)width,
                c->plan->cells[i].label, (unsigned long long)cell->n_stored,
                (unsigned long long)cell->n_planned, (unsigned long long)cell->n_reached,
                (unsigned long long)cell->n_collapse);
        if (cell->n_done)
            fprintf(out, "%.3f [%.3f, %.3f]\n", (double)cell->n_collapse / (double)cell->n_done,
                    cell->collapse.low, cell->collapse.high);
        else
            fputs("-\n", out);
    }
}

static enum sdc_status print_text(const struct sdc_campaign *c, const struct facts *f, FILE *out,
                                  struct sdc_error *err) {
    const struct sdc_results *r = c->results;
    const struct sdc_spec *s = c->plan->spec;
    fprintf(out, "campaign   %s, seed %llu, spec %s\n", s->name, (unsigned long long)s->seed,
            s->hash);
    fprintf(out, "state      %s", f->state);
    if (f->writer)
        fprintf(out, " (process %ld)", f->writer);
    fprintf(out, ", begun %s%s%s\n", f->created ? f->created : "?",
            f->finished ? ", finished " : "", f->finished ? f->finished : "");
    if (f->invalid)
        fprintf(out, "INVALID    %s\n", f->invalid);
    fprintf(out, "trials     %llu of %llu, controls %llu of %llu, harness errors %llu\n",
            (unsigned long long)r->n_stored, (unsigned long long)r->n_planned,
            (unsigned long long)r->n_controls, (unsigned long long)r->n_controls_planned,
            (unsigned long long)r->n_errors);
    if (f->minutes > 0)
        fprintf(out, "rate       %.1f trials a minute, about %.1f minutes left\n", f->per_minute,
                f->minutes);
    print_controls(r, out);
    print_cells(c, out);
    struct sdc_buf text = SDC_BUF_INIT;
    sdc__claims_text(r, &text);
    if (text.failed)
        return SDC_ERR(err, SDC_NO_MEMORY, "no memory for the claims");
    fprintf(out, "\n%s", text.data);
    sdc__buf_release(&text);
    return SDC_OK;
}

static void json_claims(struct sdc_jw *w, const struct sdc_results *r) {
    sdc__jw_key(w, "claims");
    sdc__jw_arr(w);
    for (int c = 0; c < SDC_CLAIM_COUNT; c++) {
        const struct sdc_results_claim *claim = &r->claims[c];
        if (!claim->asked || r->no_claims)
            continue;
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "id", sdc__claim_name((enum sdc_claim)c));
        sdc__jw_kstr(w, "verdict", sdc__stat_verdict_name(claim->stat.verdict));
        sdc__jw_kstr(w, "reason", sdc__stat_reason_text(claim->stat.reason));
        sdc__jw_kf64(w, "effect", claim->stat.test.mean);
        sdc__jw_kf64(w, "low", claim->stat.test.interval.low);
        sdc__jw_kf64(w, "high", claim->stat.test.interval.high);
        sdc__jw_ku64(w, "pairs", claim->n_complete);
        sdc__jw_ku64(w, "pairs_with_errors", claim->n_errors);
        sdc__jw_ku64(w, "pairs_pending", claim->n_pending);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static enum sdc_status print_json(const struct sdc_campaign *c, const struct facts *f, FILE *out,
                                  struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    const struct sdc_results *r = c->results;
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.status/1");
    sdc__jw_kstr(&w, "campaign", c->plan->spec->name);
    sdc__jw_kstr(&w, "spec_hash", c->plan->spec->hash);
    sdc__jw_kstr(&w, "state", f->state);
    sdc__jw_kstr(&w, "invalid", f->invalid);
    sdc__jw_ku64(&w, "trials", r->n_stored);
    sdc__jw_ku64(&w, "trials_planned", r->n_planned);
    sdc__jw_ku64(&w, "controls", r->n_controls);
    sdc__jw_ku64(&w, "controls_planned", r->n_controls_planned);
    sdc__jw_ku64(&w, "controls_failed", sdc__controls_failed(r));
    sdc__jw_ku64(&w, "harness_errors", r->n_errors);
    sdc__jw_kf64(&w, "trials_per_minute", f->per_minute);
    sdc__jw_kf64(&w, "minutes_left", f->minutes);
    sdc__jw_key(&w, "cells");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < c->plan->n_cells; i++) {
        const struct sdc_results_cell *cell = &r->cells[i];
        sdc__jw_obj(&w);
        sdc__jw_kstr(&w, "id", c->plan->cells[i].id);
        sdc__jw_kstr(&w, "label", c->plan->cells[i].label);
        sdc__jw_ku64(&w, "planned", cell->n_planned);
        sdc__jw_ku64(&w, "stored", cell->n_stored);
        sdc__jw_ku64(&w, "done", cell->n_done);
        sdc__jw_ku64(&w, "reached", cell->n_reached);
        sdc__jw_ku64(&w, "collapse", cell->n_collapse);
        sdc__jw_kf64(&w, "low", cell->collapse.low);
        sdc__jw_kf64(&w, "high", cell->collapse.high);
        sdc__jw_obj_end(&w);
    }
    sdc__jw_arr_end(&w);
    json_claims(&w, r);
    sdc__jw_obj_end(&w);
    enum sdc_status st =
        b.failed ? SDC_ERR(err, SDC_NO_MEMORY, "no memory for the status") : SDC_OK;
    if (st == SDC_OK)
        fprintf(out, "%s\n", b.data);
    sdc__buf_release(&b);
    return st;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct status_args *a = args;
    struct sdc_error err;
    struct sdc_campaign c;
    struct facts facts = {0};
    enum sdc_status st = sdc__campaign_open(cli->operands.items[0], &c, &err);
    if (st == SDC_OK)
        st = read_facts(&c, &facts, &err);
    if (st == SDC_OK)
        st = a->json ? print_json(&c, &facts, cli->out, &err)
                     : print_text(&c, &facts, cli->out, &err);
    int code = SDC_EXIT_DONE;
    if (st != SDC_OK)
        code = sdc_cli_fail(cli, &err);
    else if (facts.invalid || sdc__controls_failed(c.results))
        code = SDC_EXIT_FOUND;
    release_facts(&facts);
    sdc__campaign_close(&c);
    return code;
}

static const struct sdc_opt options[] = {
    SDC_OPT_JSON(struct status_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_campaign_status = {
    .name = "status",
    .group = "Experiments",
    .summary = "show progress, controls and current intervals of a campaign",
    .operands = "DIR",
    .details = "Works while the campaign runs. Exits 1 if a control has failed.",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct status_args),
    .run = run,
};
