/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/campaign_text.h"
#include "cli/commands.h"

#define SHOWN_FAULTS 20

struct show_args {
    bool json, all;
};

static void print_number(FILE *out, const char *name, double v) {
    if (isnan(v))
        fprintf(out, "%-16s -\n", name);
    else
        fprintf(out, "%-16s %.9g\n", name, v);
}

/* What the plan says, whether the trial has run or not. */
static void print_plan(FILE *out, const struct sdc_plan *plan, const struct sdc_plan_trial *t,
                       const char *dir) {
    const struct sdc_plan_group *g = &plan->groups[t->group];
    const struct sdc_setting *s = &plan->settings[g->setting];
    struct sdc_buf b = SDC_BUF_INIT;
    fprintf(out, "%-16s %s (%s %u)\n", "trial", t->id, sdc__trial_kind_name(t->kind), t->index);
    if (t->cell != SDC_PLAN_NONE)
        fprintf(out, "%-16s %s: %s\n", "cell", plan->cells[t->cell].id, plan->cells[t->cell].label);
    fprintf(out, "%-16s %s, %s, %u ranks, cluster %u, steps %llu to %llu\n", "clean twin", g->id,
            s->recipe->name, s->ranks, t->cluster, (unsigned long long)g->checkpoint,
            (unsigned long long)g->to_step);
    fprintf(out, "%-16s seed %llu, block %08x, trial %u\n", "stream",
            (unsigned long long)plan->spec->seed, t->block_key, t->index);
    sdc__ranks_text(t->altered, &b);
    fprintf(out, "%-16s %s\n", "altered ranks", b.data ? b.data : "");
    sdc__buf_clear(&b);
    sdc__replay_text(dir, t->id, &b);
    fprintf(out, "%-16s %s\n", "repeat with", b.data ? b.data : "");
    sdc__buf_release(&b);
}

static void print_labels(FILE *out, const struct sdc_store_trial *t) {
    fputs("\nlabels at the end of the window\n", out);
    for (int a = 0; a < SDC_AXIS_COUNT; a++) {
        int v = sdc_outcome_get(&t->outcome, (enum sdc_axis)a);
        fprintf(out, "  %-12s %-22s %s\n", sdc_axis_name((enum sdc_axis)a),
                sdc_label_text((enum sdc_axis)a, v), sdc_label_meaning((enum sdc_axis)a, v));
    }
    for (size_t i = 0; i < t->n_horizons; i++) {
        fprintf(out, "  after %llu steps:", (unsigned long long)t->horizons[i].after);
        for (int a = SDC_AXIS_EXPOSURE; a < SDC_AXIS_COUNT; a++)
            fprintf(out, " %s",
                    sdc_label_text((enum sdc_axis)a,
                                   sdc_outcome_get(&t->horizons[i].outcome, (enum sdc_axis)a)));
        fputc('\n', out);
    }
    if (t->control >= 0)
        fprintf(out, "  %-12s %s\n", "control", t->control ? "passed" : "FAILED");
    if (t->message)
        fprintf(out, "  %-12s %s\n", "message", t->message);
}

static void print_measures(FILE *out, const struct sdc_store_trial *t) {
    fputs("\nmeasures\n", out);
    fprintf(out, "%-16s %llu planned, %llu delivered, %llu bits changed, support %llu\n", "sites",
            (unsigned long long)t->planned, (unsigned long long)t->delivered,
            (unsigned long long)t->altered_bits, (unsigned long long)t->support);
    fprintf(out, "%-16s %llu NaN, %llu infinite, %llu extreme\n", "new values",
            (unsigned long long)t->n_nan, (unsigned long long)t->n_inf,
            (unsigned long long)t->n_extreme);
    if (t->collapse_step >= 0)
        fprintf(out, "%-16s %lld steps after the restart\n", "collapse",
                (long long)t->collapse_step);
    fprintf(out, "%-16s step %llu, %s\n", "end", (unsigned long long)t->end_step, t->end_reason);
    print_number(out, "training loss", t->end_loss);
    print_number(out, "eval loss", t->eval_loss);
    print_number(out, "accuracy", t->accuracy);
    print_number(out, "  worst rank", t->accuracy_worst);
    print_number(out, "  clean twin", t->accuracy_golden);
    print_number(out, "distance", t->distance);
    fprintf(out, "%-16s %u, %.3f s, %s\n", "attempts", t->attempts, t->seconds, t->finished);
}

/* A rank that did not get so far has no digest. */
static const char *state_word(const char *digest, bool altered) {
    return *digest ? (altered ? "altered" : "clean") : "-";
}

static void print_rows(FILE *out, const struct sdc_store_trial *t, bool all) {
    struct sdc_buf b = SDC_BUF_INIT;
    fputs("\nexposure         read  after load  after start-up\n", out);
    for (size_t i = 0; i < t->n_exposures; i++)
        fprintf(out, "  rank %-9u  %-4s  %-10s  %s%s\n", t->exposures[i].rank,
                t->exposures[i].read ? "yes" : "no",
                state_word(t->exposures[i].loaded, t->exposures[i].altered_loaded),
                state_word(t->exposures[i].started, t->exposures[i].altered_started),
                t->exposures[i].planned ? "  (planned)" : "");
    size_t shown = all || t->n_faults < SHOWN_FAULTS ? t->n_faults : SHOWN_FAULTS;
    fputs("\nfaults\n", out);
    for (size_t i = 0; i < shown; i++) {
        sdc__buf_clear(&b);
        sdc__fault_text(&t->faults[i], &b);
        fprintf(out, "  %s  %s%s\n", b.data ? b.data : "", sdc_role_name(t->faults[i].role),
                t->faults[i].delivered ? "" : "  (no rank read it)");
    }
    if (shown < t->n_faults)
        fprintf(out, "  ... %zu more, --all shows them\n", t->n_faults - shown);
    if (t->n_points)
        fputs("\nstep   rank  loss            accuracy  gradient norm\n", out);
    for (size_t i = 0; i < t->n_points; i++) {
        const struct sdc_store_point *p = &t->points[i];
        fprintf(out, "%-6llu %-5u %-14.9g  ", (unsigned long long)p->step, p->rank, p->loss);
        if (p->kind == SDC_SERIES_EVAL)
            fprintf(out, "%.4f    evaluation\n", p->accuracy);
        else if (isnan(p->gradient_norm) && p->rank != 0)
            fputs("\n", out);
        else
            fprintf(out, "%-8s  %.6g\n", "", p->gradient_norm);
    }
    if (t->n_propagation)
        fputs("\nlayer            part       rank  step    differ       of  distance  (altered "
              "elements)\n",
              out);
    for (size_t i = 0; i < t->n_propagation; i++) {
        const struct sdc_store_propagation *p = &t->propagation[i];
        fprintf(out, "%-16s %-10s %-5u %-7llu %6llu %8llu  %-9.3g %.3g\n", p->layer,
                sdc_part_name(p->part), p->rank, (unsigned long long)p->step,
                (unsigned long long)p->n_differ, (unsigned long long)p->n_elems, p->distance,
                p->distance_altered);
    }
    sdc__buf_release(&b);
}

/* ---- JSON ---- */

static void json_labels(struct sdc_jw *w, const struct sdc_outcome *o) {
    for (int a = 0; a < SDC_AXIS_COUNT; a++)
        sdc__jw_kstr(w, sdc_axis_name((enum sdc_axis)a),
                     sdc_label_text((enum sdc_axis)a, sdc_outcome_get(o, (enum sdc_axis)a)));
}

static void json_faults(struct sdc_jw *w, const struct sdc_store_trial *t) {
    sdc__jw_key(w, "faults");
    sdc__jw_arr(w);
    for (size_t i = 0; i < t->n_faults; i++) {
        const struct sdc_store_fault *f = &t->faults[i];
        char old[48], new[48];
        sdc_num_text(f->dtype, f->old_raw, old, sizeof old);
        sdc_num_text(f->dtype, f->new_raw, new, sizeof new);
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "tensor", f->tensor);
        sdc__jw_kstr(w, "index", f->index);
        sdc__jw_ku64(w, "elem", f->elem);
        sdc__jw_kstr(w, "dtype", sdc_dtype_name(f->dtype));
        sdc__jw_kstr(w, "part", sdc_part_name(f->part));
        sdc__jw_kstr(w, "role", sdc_role_name(f->role));
        sdc__jw_ku64(w, "bits", f->bits);
        sdc__jw_ku64(w, "old_raw", f->old_raw);
        sdc__jw_ku64(w, "new_raw", f->new_raw);
        sdc__jw_kstr(w, "old", old);
        sdc__jw_kstr(w, "new", new);
        sdc__jw_kbool(w, "delivered", f->delivered);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_rows(struct sdc_jw *w, const struct sdc_store_trial *t) {
    json_faults(w, t);
    sdc__jw_key(w, "exposure_of_ranks");
    sdc__jw_arr(w);
    for (size_t i = 0; i < t->n_exposures; i++) {
        const struct sdc_store_exposure *e = &t->exposures[i];
        sdc__jw_obj(w);
        sdc__jw_ku64(w, "rank", e->rank);
        sdc__jw_kbool(w, "planned", e->planned);
        sdc__jw_kbool(w, "read", e->read);
        sdc__jw_kbool(w, "altered_loaded", e->altered_loaded);
        sdc__jw_kbool(w, "altered_started", e->altered_started);
        sdc__jw_kstr(w, "loaded", *e->loaded ? e->loaded : NULL);
        sdc__jw_kstr(w, "started", *e->started ? e->started : NULL);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "series");
    sdc__jw_arr(w);
    for (size_t i = 0; i < t->n_points; i++) {
        const struct sdc_store_point *p = &t->points[i];
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "kind", p->kind == SDC_SERIES_EVAL ? "eval" : "loss");
        sdc__jw_ku64(w, "step", p->step);
        sdc__jw_ku64(w, "rank", p->rank);
        sdc__jw_kf64(w, "loss", p->loss);
        sdc__jw_kf64(w, "accuracy", p->accuracy);
        sdc__jw_kf64(w, "gradient_norm", p->gradient_norm);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "propagation");
    sdc__jw_arr(w);
    for (size_t i = 0; i < t->n_propagation; i++) {
        const struct sdc_store_propagation *p = &t->propagation[i];
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "layer", p->layer);
        sdc__jw_kstr(w, "part", sdc_part_name(p->part));
        sdc__jw_ku64(w, "rank", p->rank);
        sdc__jw_ku64(w, "step", p->step);
        sdc__jw_ku64(w, "n_elems", p->n_elems);
        sdc__jw_ku64(w, "n_differ", p->n_differ);
        sdc__jw_kf64(w, "distance", p->distance);
        sdc__jw_kf64(w, "distance_altered", p->distance_altered);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static enum sdc_status print_json(FILE *out, const struct sdc_plan_trial *plan, const char *dir,
                                  const struct sdc_store_trial *t, struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT, replay = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    sdc__replay_text(dir, plan->id, &replay);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.trial/1");
    sdc__jw_kstr(&w, "trial", plan->id);
    sdc__jw_kstr(&w, "kind", sdc__trial_kind_name(plan->kind));
    sdc__jw_kbool(&w, "finished", t != NULL);
    sdc__jw_ku64(&w, "index", plan->index);
    sdc__jw_ku64(&w, "cluster", plan->cluster);
    sdc__jw_ku64(&w, "block", plan->block_key);
    sdc__jw_ku64(&w, "altered_ranks", plan->altered);
    sdc__jw_kstr(&w, "replay", replay.data);
    if (t) {
        json_labels(&w, &t->outcome);
        sdc__jw_ku64(&w, "planned", t->planned);
        sdc__jw_ku64(&w, "delivered", t->delivered);
        sdc__jw_ki64(&w, "collapse_step", t->collapse_step);
        sdc__jw_kf64(&w, "accuracy", t->accuracy);
        sdc__jw_kf64(&w, "accuracy_twin", t->accuracy_golden);
        sdc__jw_kf64(&w, "distance", t->distance);
        sdc__jw_kstr(&w, "message", t->message);
        json_rows(&w, t);
    }
    sdc__jw_obj_end(&w);
    enum sdc_status st =
        b.failed || replay.failed ? SDC_ERR(err, SDC_NO_MEMORY, "no memory for a trial") : SDC_OK;
    if (st == SDC_OK)
        fprintf(out, "%s\n", b.data);
    sdc__buf_release(&b);
    sdc__buf_release(&replay);
    return st;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct show_args *a = args;
    const char *dir = cli->operands.items[0], *id = cli->operands.items[1];
    struct sdc_error err;
    struct sdc_store *store = NULL;
    struct sdc_plan *plan = NULL;
    struct sdc_store_trial t = {0};
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__store_open_read(dir, &store, &err));
    SDC_TRY_OUT(st, sdc__plan_new(sdc__store_spec(store), &plan, &err));
    const struct sdc_plan_trial *planned = sdc__plan_find(plan, id);
    if (!planned) {
        st = SDC_ERR(&err, SDC_NOT_FOUND, "%s: no trial is called '%s', expected such as %s or %s",
                     dir, id, plan->trials[plan->n_controls].id, plan->trials[0].id);
        goto out;
    }
    st = sdc__store_get_trial(store, id, &t, &err);
    bool finished = st == SDC_OK;
    if (st == SDC_NOT_FOUND)
        st = SDC_OK;
    if (st != SDC_OK)
        goto out;
    if (a->json) {
        st = print_json(cli->out, planned, dir, finished ? &t : NULL, &err);
        goto out;
    }
    print_plan(cli->out, plan, planned, dir);
    if (finished) {
        print_labels(cli->out, &t);
        print_measures(cli->out, &t);
        print_rows(cli->out, &t, a->all);
    } else {
        fputs("not run yet\n", cli->out);
    }
out:
    sdc__store_trial_release(&t);
    sdc__plan_free(plan);
    sdc__store_close(store);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPT_JSON(struct show_args, json),
    {SDC_OPT_FLAG, "all", 0, offsetof(struct show_args, all), NULL, NULL,
     "every fault, not only the first 20", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_campaign_show = {
    .name = "show",
    .group = "Experiments",
    .summary = "show everything about one trial, with the command that repeats it",
    .operands = "DIR TRIAL",
    .details = "Faults with old and new values, exposure of each rank, labels with their meaning,\n"
               "losses, distances per layer. Of a trial that has not run, what the plan says.",
    .examples = "  sdclab campaign show paper-small.sdcrun c012-0003",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .args_size = sizeof(struct show_args),
    .run = run,
};
