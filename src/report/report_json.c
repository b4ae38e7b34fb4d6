/* SPDX-License-Identifier: Apache-2.0
 *
 * results.json: everything of the report but the drawings, for programs.
 */
#include "report/report_internal.h"

#include "base/guard.h"
#include "base/json.h"

#define SCHEMA "sdclab.results/1"

static void interval(struct sdc_jw *w, const char *key, struct sdc_stat_interval i) {
    sdc__jw_key(w, key);
    sdc__jw_arr(w);
    sdc__jw_f64(w, i.low);
    sdc__jw_f64(w, i.high);
    sdc__jw_arr_end(w);
}

static void claim(struct sdc_jw *w, const struct sdc_report_claim *in) {
    const struct sdc_stat_claim *c = &in->result;
    struct sdc_buf sentence = SDC_BUF_INIT;
    sdc__stat_claim_sentence(c, &sentence);
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "id", in->id);
    sdc__jw_kstr(w, "statement", in->statement);
    sdc__jw_kstr(w, "effect_is", in->effect);
    sdc__jw_kstr(w, "verdict", sdc__stat_verdict_name(c->verdict));
    sdc__jw_kstr(w, "reason", sdc__stat_reason_text(c->reason));
    sdc__jw_kstr(w, "sentence", sentence.data);
    sdc__jw_kf64(w, "effect", c->test.mean);
    interval(w, "limits", c->test.interval);
    sdc__jw_kf64(w, "level", c->level);
    sdc__jw_kbool(w, "limits_from_pairs", c->limits_from_pairs);
    sdc__jw_kf64(w, "margin", c->margin);
    sdc__jw_kbool(w, "inside_margin", c->inside_margin);
    sdc__jw_kf64(w, "p_t", c->test.p_t);
    sdc__jw_kf64(w, "p_adjusted", c->p_adjusted);
    sdc__jw_kf64(w, "p_sign_flip", c->test.p_sign_flip);
    sdc__jw_kbool(w, "sign_flip_exact", c->test.sign_flip_exact);
    sdc__jw_ku64(w, "clusters", c->test.k);
    sdc__jw_ku64(w, "clusters_without_pairs", c->test.n_nan);
    sdc__jw_ku64(w, "clusters_required", c->k_required);
    sdc__jw_kf64(w, "sd_between_clusters", c->test.sd);
    sdc__jw_ku64(w, "pairs", c->n_pairs);
    sdc__jw_ku64(w, "pairs_discordant", c->n_discordant);
    sdc__jw_ku64(w, "pairs_missing", c->n_missing);
    sdc__jw_ku64(w, "clusters_needed", c->k_needed);
    sdc__jw_ku64(w, "pairs_needed", c->pairs_needed);
    sdc__jw_key(w, "given_these_checkpoints");
    sdc__jw_obj(w);
    sdc__jw_kf64(w, "difference", c->pair_diff);
    interval(w, "limits", c->pair_interval);
    sdc__jw_kf64(w, "mcnemar_p", c->mcnemar_p);
    sdc__jw_kf64(w, "mcnemar_mid_p", c->mcnemar_mid_p);
    sdc__jw_obj_end(w);
    sdc__jw_obj_end(w);
    sdc__buf_release(&sentence);
}

static void controls(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_controls; i++) {
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "name", r->controls[i].name);
        sdc__jw_kstr(w, "expectation", r->controls[i].expectation);
        sdc__jw_ku64(w, "passed", r->controls[i].n_passed);
        sdc__jw_ku64(w, "failed", r->controls[i].n_failed);
        sdc__jw_kstr(w, "first_failure", r->controls[i].first_failure);
        sdc__jw_obj_end(w);
    }
}

static void factors(struct sdc_jw *w, const struct sdc_report *r, const struct sdc_report_cell *c) {
    sdc__jw_key(w, "factors");
    sdc__jw_obj(w);
    for (size_t f = 0; f < r->n_factors; f++)
        sdc__jw_kstr(w, r->factors[f], c->values[f]);
    sdc__jw_obj_end(w);
}

static void cells(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_cells; i++) {
        const struct sdc_report_cell *c = &r->cells[i];
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "cell", c->label);
        factors(w, r, c);
        sdc__jw_ku64(w, "planned", c->n_planned);
        sdc__jw_ku64(w, "collapsed", c->n_collapse);
        for (int axis = 0; axis < SDC_AXIS_COUNT; axis++) {
            sdc__jw_key(w, sdc_axis_name((enum sdc_axis)axis));
            sdc__jw_obj(w);
            for (int v = 0; v < sdc_axis_count((enum sdc_axis)axis); v++)
                sdc__jw_ku64(w, sdc_label_text((enum sdc_axis)axis, v), c->counts[axis][v]);
            sdc__jw_obj_end(w);
        }
        sdc__jw_obj_end(w);
    }
}

static void points(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_points; i++) {
        const struct sdc_report_point *p = &r->points[i];
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "series", p->series);
        sdc__jw_kf64(w, "delivered", p->n_delivered);
        sdc__jw_ku64(w, "trials", p->n);
        sdc__jw_ku64(w, "collapsed", p->n_collapse);
        sdc__jw_obj_end(w);
    }
}

static void layers(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_layers; i++) {
        const struct sdc_report_layer *l = &r->layers[i];
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "layer", l->layer);
        sdc__jw_kstr(w, "recipe", l->recipe);
        sdc__jw_kstr(w, "part", l->part);
        sdc__jw_ku64(w, "trials", l->d.n);
        sdc__jw_ku64(w, "identical", l->d.n_identical);
        sdc__jw_ku64(w, "non_finite", l->d.n_nonfinite);
        sdc__jw_kf64(w, "q25", l->d.q25);
        sdc__jw_kf64(w, "median", l->d.median);
        sdc__jw_kf64(w, "q75", l->d.q75);
        sdc__jw_obj_end(w);
    }
}

static void spreads(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_spreads; i++) {
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "name", r->spreads[i].name);
        sdc__jw_kstr(w, "meaning", r->spreads[i].meaning);
        sdc__jw_ku64(w, "replicas", r->spreads[i].n_replicas);
        sdc__jw_kstr(w, "value", r->spreads[i].value);
        sdc__jw_obj_end(w);
    }
}

static void trials(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_trials; i++) {
        const struct sdc_report_trial *t = &r->trials[i];
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "id", t->id);
        sdc__jw_kstr(w, "kind", t->kind);
        sdc__jw_kstr(w, "cell", t->cell < r->n_cells ? r->cells[t->cell].label : NULL);
        sdc__jw_ku64(w, "cluster", t->cluster);
        sdc__jw_ku64(w, "index", t->index);
        sdc__jw_kstr(w, "sites", t->sites);
        sdc__jw_kstr(w, "ranks", t->ranks);
        sdc__jw_ku64(w, "delivered", t->n_delivered);
        for (int axis = 0; axis < SDC_AXIS_COUNT; axis++) {
            int v = sdc_outcome_get(&t->outcome, (enum sdc_axis)axis);
            bool judged = axis == SDC_AXIS_RESULT || t->outcome.result == SDC_RESULT_DONE;
            sdc__jw_kstr(w, sdc_axis_name((enum sdc_axis)axis),
                         judged ? sdc_label_text((enum sdc_axis)axis, v) : NULL);
        }
        sdc__jw_kf64(w, "accuracy", t->accuracy);
        sdc__jw_kf64(w, "golden_accuracy", t->golden_accuracy);
        sdc__jw_key(w, "collapse_step");
        if (t->collapse_step >= 0)
            sdc__jw_i64(w, t->collapse_step);
        else
            sdc__jw_null(w);
        sdc__jw_kstr(w, "message", t->message);
        sdc__jw_kstr(w, "replay", t->replay);
        sdc__jw_obj_end(w);
    }
}

static void claims(struct sdc_jw *w, const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_claims; i++)
        claim(w, &r->claims[i]);
}

static enum sdc_status write_json(const struct sdc_report *r,
                                  const struct sdc_report_figure *figures, size_t n_figures,
                                  const char *dir, struct sdc_error *err) {
    static const struct {
        const char *key;
        void (*fill)(struct sdc_jw *w, const struct sdc_report *r);
    } lists[] = {{"claims", claims},   {"controls", controls}, {"cells", cells},
                 {"collapse", points}, {"layers", layers},     {"spreads", spreads},
                 {"trials", trials}};
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    (void)figures, (void)n_figures;
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", SCHEMA);
    sdc__jw_kstr(&w, "campaign", r->campaign);
    sdc__jw_kstr(&w, "summary", r->summary);
    sdc__jw_ku64(&w, "seed", r->seed);
    sdc__jw_kstr(&w, "started", r->started);
    sdc__jw_kstr(&w, "finished", r->finished);
    sdc__jw_kbool(&w, "frozen", r->frozen);
    sdc__jw_kbool(&w, "frozen_kept", r->frozen_kept);
    sdc__jw_key(&w, "facts");
    sdc__jw_obj(&w);
    for (size_t i = 0; i < r->n_facts; i++)
        sdc__jw_kstr(&w, r->facts[i].name, r->facts[i].value);
    sdc__jw_obj_end(&w);
    sdc__jw_kstr(&w, "spec", r->spec_yaml);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        sdc__jw_key(&w, lists[i].key);
        sdc__jw_arr(&w);
        lists[i].fill(&w, r);
        sdc__jw_arr_end(&w);
    }
    sdc__jw_obj_end(&w);
    sdc__buf_putc(&b, '\n');
    enum sdc_status st = sdc__report_put(dir, NULL, "results.json", &b, err);
    sdc__buf_release(&b);
    return st;
}

const struct sdc_report_writer_ops sdc_report_writer_json = {
    .name = "json",
    .summary = "results.json: everything for programs",
    .write = write_json,
};
