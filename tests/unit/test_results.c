/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of planted stores, against numbers worked out by hand.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "camp/results.h"
#include "io/io.h"
#include "test.h"

static struct sdc_error err;

struct planted {
    struct sdc_spec *spec;
    struct sdc_plan *plan;
    struct sdc_store *store;
};

static struct planted plant(const char *dir, const char *text) {
    struct planted p = {0};
    assert_ok(sdc__remove_tree(dir, &err));
    assert_ok(sdc__spec_parse(text, strlen(text), "s.yaml", &p.spec, &err));
    assert_ok(sdc__plan_new(p.spec, &p.plan, &err));
    assert_ok(sdc__store_open(dir, p.spec, &p.store, &err));
    return p;
}

static void uproot(struct planted *p) {
    sdc__store_close(p->store);
    sdc__plan_free(p->plan);
    sdc__spec_free(p->spec);
}

/* How a planted trial ends: '.' without effect, 'C' collapse, 'E' harness error, 'X' erased. */
static struct sdc_store_trial trial(const struct planted *p, const char *id, char how) {
    const struct sdc_plan_trial *planned = sdc__plan_find(p->plan, id);
    assert_non_null(planned);
    struct sdc_store_trial t = {.kind = planned->kind,
                                .cell = planned->cell,
                                .index = planned->index,
                                .cluster = planned->cluster,
                                .group = planned->group,
                                .collapse_step = how == 'C' ? 1 : -1,
                                .control = -1,
                                .delivered = how == 'X' ? 0 : 1,
                                .platform = 1};
    snprintf(t.id, sizeof t.id, "%s", id);
    t.outcome.result = how == 'E' ? SDC_RESULT_HARNESS_ERROR : SDC_RESULT_DONE;
    t.outcome.exposure = how == 'X' ? SDC_EXPOSURE_ERASED : SDC_EXPOSURE_SPREAD;
    t.outcome.numeric = how == 'C' ? SDC_NUMERIC_NONFINITE_NOW : SDC_NUMERIC_FINITE;
    return t;
}

static void put(const struct planted *p, const char *id, char how) {
    struct sdc_store_trial t = trial(p, id, how);
    assert_ok(sdc__store_put_trial(p->store, &t, &err));
}

static void put_cell(const struct planted *p, unsigned cell, const char *how) {
    for (unsigned i = 0; how[i]; i++) {
        char id[32];
        snprintf(id, sizeof id, "c%03u-%04u", cell, i);
        if (how[i] != ' ')
            put(p, id, how[i]);
    }
}

#define H1A                                                                                        \
    "campaign: x\nbaseline: {seeds: 2}\ntrials: 4\npair_over: [recipe]\nclaims: [H1a]\nfactors:\n" \
    "  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]\n"

static void near(double found, double expected) {
    if (!(fabs(found - expected) < 1e-4))
        fail_msg("found %.6f, expected %.6f", found, expected);
}

static void pairs_are_counted_by_cluster(void **state) {
    (void)state;
    struct planted p = plant("pairs", H1A);
    struct sdc_results *r = NULL;
    put_cell(&p, 0, "CC.C"); /* DDP */
    put_cell(&p, 1, ".C.."); /* Horovod */
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    assert_int_equal(r->cells[0].n_done, 4);
    assert_int_equal(r->cells[0].n_collapse, 3);
    /* Wilson, 3 of 4, z = 1.959964: centre 0.62754, half-width 0.32689 */
    near(r->cells[0].collapse.low, 0.30064);
    near(r->cells[0].collapse.high, 0.95443);
    const struct sdc_results_claim *c = &r->claims[SDC_CLAIM_H1A];
    assert_true(c->asked);
    assert_false(r->claims[SDC_CLAIM_H3].asked);
    assert_int_equal(c->n_complete, 4);
    assert_int_equal(c->n_errors, 0);
    assert_int_equal(c->n_pending, 0);
    if (!r->no_claims) {
        /* pairs -1, 0, 0, -1; clusters 0, 1, 0, 1: means -0.5 and -0.5 */
        near(c->stat.test.mean, -0.5);
        assert_int_equal(c->stat.test.k, 2);
        assert_int_equal(c->stat.n_pairs, 4);
        assert_int_equal(c->stat.n_discordant, 2);
        assert_int_equal(c->stat.n_missing, 0);
        /* exact McNemar, 2 against 0: 2 * (1/2)^2 */
        near(c->stat.mcnemar_p, 0.5);
        assert_int_equal(c->stat.direction, -1);
        assert_int_equal(c->stat.verdict, SDC_VERDICT_UNDECIDED);
        assert_int_equal(c->stat.reason, SDC_REASON_TOO_FEW_CLUSTERS);
    }
    sdc__results_free(r);
    uproot(&p);
}

static void harness_errors_remove_the_pair(void **state) {
    (void)state;
    struct planted p = plant("errors", H1A);
    struct sdc_results *r = NULL;
    put_cell(&p, 0, "CC.C");
    put_cell(&p, 1, ".C E"); /* index 2 is still to come, 3 failed */
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    const struct sdc_results_claim *c = &r->claims[SDC_CLAIM_H1A];
    assert_int_equal(c->n_complete, 2);
    assert_int_equal(c->n_errors, 1);
    assert_int_equal(c->n_pending, 1);
    assert_int_equal(r->n_errors, 1);
    assert_int_equal(r->cells[1].n_done, 2);
    if (!r->no_claims) {
        /* cluster 0: pair 0 is -1; cluster 1: pair 1 is 0 */
        near(c->stat.test.mean, -0.5);
        assert_int_equal(c->stat.n_missing, 2);
    }
    sdc__results_free(r);
    uproot(&p);
}

static void pairs_do_not_cross_platforms(void **state) {
    (void)state;
    struct planted p = plant("platforms", H1A);
    struct sdc_results *r = NULL;
    put(&p, "c000-0000", 'C');
    struct sdc_store_trial t = trial(&p, "c001-0000", '.');
    t.platform = 2;
    assert_ok(sdc__store_put_trial(p.store, &t, &err));
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    assert_int_equal(r->claims[SDC_CLAIM_H1A].n_complete, 0);
    assert_int_equal(r->claims[SDC_CLAIM_H1A].n_errors, 1);
    assert_int_equal(r->claims[SDC_CLAIM_H1A].n_pending, 3);
    sdc__results_free(r);
    uproot(&p);
}

/* altered_ranks (2) x part (2) x recipe (2), the last fastest */
static void partners_differ_in_one_factor(void **state) {
    (void)state;
    struct planted p =
        plant("both", "campaign: x\nbaseline: {seeds: 2, checkpoints: [10, 20]}\ntrials: 2\n"
                      "pair_over: [recipe, part]\nclaims: [H1a, H3]\nfactors:\n"
                      "  recipe: [horovod/rank0-broadcast, ddp/after-wrap-all]\n"
                      "  part: [model, optimizer]\n  altered_ranks: [one, all]\n");
    struct sdc_results *r = NULL;
    for (unsigned c = 0; c < 16; c++) {
        /* model collapses in the first of two; DDP's model in both */
        bool model = p.plan->cells[c].level[1] == 0, ddp = p.plan->cells[c].level[2] == 1;
        put_cell(&p, c, !model ? ".." : ddp ? "CC" : "C.");
    }
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    assert_int_equal(r->claims[SDC_CLAIM_H1A].n_complete, 16);
    assert_int_equal(r->claims[SDC_CLAIM_H3].n_complete, 16);
    if (!r->no_claims) {
        /* H1a, cluster 0 (index 0): no pair differs; cluster 1: of 8 pairs the 4 of the model are
         * -1: mean (0 - 0.5) / 2 */
        near(r->claims[SDC_CLAIM_H1A].stat.test.mean, -0.25);
        /* H3, cluster 0: all 8 are +1; cluster 1: DDP's 4 are +1: mean (1 + 0.5) / 2 */
        near(r->claims[SDC_CLAIM_H3].stat.test.mean, 0.75);
        assert_int_equal(r->claims[SDC_CLAIM_H3].stat.direction, 1);
    }
    sdc__results_free(r);
    uproot(&p);
}

/* A third recipe is compared with nothing by H1a: the first of each library are the arms. */
static void first_recipe_of_each_library_is_compared(void **state) {
    (void)state;
    struct planted p = plant("three", "campaign: x\ntrials: 2\npair_over: [recipe]\n"
                                      "claims: [H1a]\nfactors:\n"
                                      "  recipe: [ddp/after-wrap-all, ddp/before-wrap-all, "
                                      "horovod/rank0-broadcast]\n");
    struct sdc_results *r = NULL;
    put_cell(&p, 0, "CC");
    put_cell(&p, 1, "..");
    put_cell(&p, 2, "C.");
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    const struct sdc_results_claim *claim = &r->claims[SDC_CLAIM_H1A];
    assert_int_equal(claim->n_complete, 2);
    assert_string_equal(claim->effect,
                        "risk of collapse, horovod/rank0-broadcast minus ddp/after-wrap-all");
    if (!r->no_claims)
        near(claim->stat.test.mean, -0.5);
    sdc__results_free(r);
    uproot(&p);
}

static void curve_counts_delivered_faults(void **state) {
    (void)state;
    /* bits is the first factor: the last two cells flip signs alone and are no part of the curve */
    struct planted p =
        plant("curve", "campaign: x\ntrials: 4\nfactors: {bits: [any, sign], flips: [1, 10]}\n");
    struct sdc_results *r = NULL;
    put_cell(&p, 0, ".CX.");
    put_cell(&p, 1, "C");
    put_cell(&p, 2, "CCCC");
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    /* delivered 0 (the erased one, planted so): 0 of 1; delivered 1: 2 of 4 */
    assert_int_equal(r->n_points, 2);
    assert_int_equal(r->points[0].delivered, 0);
    assert_int_equal(r->points[0].n, 1);
    assert_int_equal(r->points[1].n, 4);
    assert_int_equal(r->points[1].n_collapse, 2);
    assert_string_equal(r->points[1].part, "model");
    assert_int_equal(r->cells[0].n_reached, 3);
    sdc__results_free(r);
    uproot(&p);
}

static void layers_take_the_worst_rank_at_the_last_step(void **state) {
    (void)state;
    struct planted p = plant("layers", "campaign: x\ntrials: 4\n");
    struct sdc_results *r = NULL;
    char conv[] = "conv1", fc[] = "fc1";
    static const double worst[4] = {0.5, 0.0, INFINITY, 0.25};
    for (unsigned i = 0; i < 4; i++) {
        char id[32];
        snprintf(id, sizeof id, "c000-%04u", i);
        struct sdc_store_trial t = trial(&p, id, i == 3 ? 'X' : '.');
        struct sdc_store_propagation rows[5] = {
            {.layer = conv,
             .part = SDC_PART_MODEL,
             .rank = 0,
             .step = 340,
             .distance = worst[i] / 2},
            {.layer = conv, .part = SDC_PART_MODEL, .rank = 1, .step = 340, .distance = worst[i]},
            {.layer = conv, .part = SDC_PART_MODEL, .rank = 0, .step = 301, .distance = 99},
            {.layer = conv, .part = SDC_PART_OPTIMIZER, .rank = 0, .step = 340, .distance = 77},
            {.layer = fc, .part = SDC_PART_MODEL, .rank = 0, .step = 340, .distance = 1 + i},
        };
        t.propagation = rows;
        t.n_propagation = 5;
        assert_ok(sdc__store_put_trial(p.store, &t, &err));
    }
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    /* the fourth was erased at start and does not count */
    assert_int_equal(r->n_layers, 2);
    assert_string_equal(r->layers[0].layer, "conv1");
    assert_int_equal(r->layers[0].d.n, 3);
    assert_int_equal(r->layers[0].d.n_identical, 1);
    assert_int_equal(r->layers[0].d.n_nonfinite, 1);
    near(r->layers[0].d.median, 0.5);
    near(r->layers[1].d.median, 2);
    near(r->layers[1].d.q25, 1.5);
    sdc__results_free(r);
    uproot(&p);
}

static void controls_are_counted_apart(void **state) {
    (void)state;
    struct planted p = plant("controls", "campaign: x\nbaseline: {seeds: 2}\n");
    struct sdc_results *r = NULL;
    char why[] = "loss of step 301 differs";
    struct sdc_store_trial t = trial(&p, "g0-placebo-0", '.');
    t.control = 1;
    assert_ok(sdc__store_put_trial(p.store, &t, &err));
    t = trial(&p, "g1-placebo-0", '.');
    t.control = 0;
    t.message = why;
    assert_ok(sdc__store_put_trial(p.store, &t, &err));
    assert_ok(sdc__results_new(p.store, p.plan, &r, &err));
    assert_int_equal(r->controls[0].n_planned, 2);
    assert_int_equal(r->controls[0].n_passed, 1);
    assert_int_equal(r->controls[0].n_failed, 1);
    assert_string_equal(r->controls[0].first_failure, why);
    assert_int_equal(r->n_controls, 2);
    assert_int_equal(r->n_stored, 0);
    assert_int_equal(r->cells[0].n_stored, 0);
    sdc__results_free(r);
    uproot(&p);
}

static void exports_have_the_same_columns(void **state) {
    (void)state;
    struct planted p = plant("export", "campaign: x\nfactors: {flips: [1, 2]}\n");
    struct sdc_buf csv = SDC_BUF_INIT, json = SDC_BUF_INIT;
    struct sdc_json *root = NULL;
    char message[] = "a, \"b\"\nc";
    struct sdc_store_trial t = trial(&p, "c001-0000", 'C');
    t.message = message;
    t.accuracy = NAN;
    t.end_loss = INFINITY;
    assert_ok(sdc__store_put_trial(p.store, &t, &err));
    assert_ok(sdc__export_csv(p.store, p.plan, &csv, &err));
    assert_non_null(
        strstr(csv.data, "trial,kind,cell,index,cluster,block,group,checkpoint,result,"));
    assert_non_null(strstr(csv.data, "\nc001-0000,trial,c001,0,0,"));
    assert_non_null(strstr(csv.data, ",done,spread-to-all,non-finite-immediate,"));
    assert_non_null(strstr(csv.data, ",\"a, \"\"b\"\"\nc\",2\n"));
    assert_ok(sdc__export_json(p.store, p.plan, &json, &err));
    assert_ok(sdc__json_parse(json.data, json.len, "export", &root, &err));
    const struct sdc_json *row = sdc__json_at(sdc__json_get(root, "trials"), 0);
    size_t n;
    const char *const *names = sdc__export_columns(&n);
    for (size_t i = 0; i < n; i++)
        assert_non_null(sdc__json_get(row, names[i]));
    assert_int_equal(sdc__json_count(row), n + 1);
    assert_int_equal(sdc__json_type(sdc__json_get(row, "accuracy")), SDC_JSON_NULL);
    assert_int_equal(sdc__json_type(sdc__json_get(row, "end_loss")), SDC_JSON_STRING);
    sdc__json_free(root);
    sdc__buf_release(&csv);
    sdc__buf_release(&json);
    uproot(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_counted_by_cluster),
        cmocka_unit_test(harness_errors_remove_the_pair),
        cmocka_unit_test(pairs_do_not_cross_platforms),
        cmocka_unit_test(partners_differ_in_one_factor),
        cmocka_unit_test(first_recipe_of_each_library_is_compared),
        cmocka_unit_test(curve_counts_delivered_faults),
        cmocka_unit_test(layers_take_the_worst_rank_at_the_last_step),
        cmocka_unit_test(controls_are_counted_apart),
        cmocka_unit_test(exports_have_the_same_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
