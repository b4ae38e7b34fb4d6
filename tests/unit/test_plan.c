/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: counts worked out by hand, pairs that share their streams, ids that stay.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "camp/plan.h"
#include "sdc/fault.h"
#include "test.h"

static struct sdc_error err;

struct planned {
    struct sdc_spec *spec;
    struct sdc_plan *plan;
};

static struct planned make(const char *text) {
    struct planned p = {0};
    assert_ok(sdc__spec_parse(text, strlen(text), "s.yaml", &p.spec, &err));
    assert_ok(sdc__plan_new(p.spec, &p.plan, &err));
    return p;
}

static void unmake(struct planned *p) {
    sdc__plan_free(p->plan);
    sdc__spec_free(p->spec);
}

/* 3 clusters; 2 recipes, 2 ranks, 2 parts, 3 flips, 2 altered_ranks = 48 cells; paired 4 by 4 = 12
 * blocks; 3 * 2 trainings; 3 * 2 * 2 goldens with 3 controls each. */
#define SMALL                                                                                      \
    "campaign: small\nseed: 2022\nbaseline: {seeds: 3, checkpoints: [300]}\n"                      \
    "window: {steps: 40}\ntrials: 6\npair_over: [recipe, part]\nclaims: [H1a, H3]\nfactors:\n"
#define FACTORS_A                                                                                  \
    "  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]\n  ranks: [2, 4]\n"                   \
    "  part: [model, optimizer]\n  flips: [1, 10, 100]\n  altered_ranks: [one, all]\n"
#define FACTORS_B                                                                                  \
    "  altered_ranks: [one, all]\n  flips: [1, 10, 100]\n  part: [model, optimizer]\n"             \
    "  ranks: [2, 4]\n  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]\n"

static void counts_are_the_product_of_levels(void **state) {
    (void)state;
    struct planned p = make(SMALL FACTORS_A);
    assert_int_equal(p.plan->n_cells, 48);
    assert_int_equal(p.plan->n_blocks, 12);
    assert_int_equal(p.plan->n_settings, 4);
    assert_int_equal(p.plan->n_clusters, 3);
    assert_int_equal(p.plan->n_trainings, 6);
    assert_int_equal(p.plan->n_groups, 12);
    assert_int_equal(p.plan->n_controls, 36);
    assert_int_equal(p.plan->n_trials, 36 + 288);
    for (size_t i = 0; i < p.plan->n_groups; i++) {
        const struct sdc_plan_group *g = &p.plan->groups[i];
        const struct sdc_plan_training *t = &p.plan->trainings[g->training];
        assert_int_equal(t->cluster, g->cluster);
        assert_int_equal(g->to_step, 340);
        /* trained by the first recipe, with the same numbers */
        assert_string_equal(p.plan->settings[t->setting].recipe->name, "ddp/after-wrap-all");
        assert_int_equal(p.plan->settings[t->setting].ranks, p.plan->settings[g->setting].ranks);
    }
    for (size_t i = p.plan->n_controls; i < p.plan->n_trials; i++) {
        const struct sdc_plan_trial *t = &p.plan->trials[i];
        const struct sdc_plan_cell *c = &p.plan->cells[t->cell];
        assert_int_equal(t->cluster, t->index % 3);
        const struct sdc_plan_group *g = &p.plan->groups[t->group];
        assert_int_equal(g->cluster, t->cluster);
        assert_ptr_equal(p.plan->settings[g->setting].recipe, c->setting.recipe);
        assert_int_equal(p.plan->settings[g->setting].ranks, c->setting.ranks);
    }
    unmake(&p);
}

static void arms_of_a_pair_share_their_streams(void **state) {
    (void)state;
    struct planned p = make(SMALL FACTORS_A);
    size_t pairs = 0;
    for (size_t a = 0; a < p.plan->n_cells; a++)
        for (size_t b = 0; b < p.plan->n_cells; b++) {
            const struct sdc_plan_cell *x = &p.plan->cells[a], *y = &p.plan->cells[b];
            /* sorted: altered_ranks, flips, part, ranks, recipe */
            bool same = x->level[0] == y->level[0] && x->level[1] == y->level[1] &&
                        x->level[3] == y->level[3];
            assert_int_equal(same, x->block == y->block);
            if (!same)
                continue;
            pairs++;
            for (uint32_t i = 0; i < 6; i++) {
                char id[32];
                snprintf(id, sizeof id, "%s-%04u", x->id, i);
                const struct sdc_plan_trial *t = sdc__plan_find(p.plan, id);
                snprintf(id, sizeof id, "%s-%04u", y->id, i);
                const struct sdc_plan_trial *u = sdc__plan_find(p.plan, id);
                assert_non_null(t);
                assert_int_equal(t->block_key, u->block_key);
                assert_int_equal(t->index, u->index);
                assert_true(t->altered == u->altered);
                assert_int_equal(t->cluster, u->cluster);
            }
            /* the same draw: over parameters, in both arms */
            assert_int_equal(x->draw_choice.parts, 1u << SDC_PART_MODEL);
            assert_int_equal(x->draw_choice.roles, y->draw_choice.roles);
            assert_int_equal(x->map_to_optimizer, x->level[2] == 1);
        }
    assert_int_equal(pairs, 12 * 4 * 4);
    unmake(&p);
}

static void order_of_factors_does_not_matter(void **state) {
    (void)state;
    struct planned a = make(SMALL FACTORS_A), b = make(SMALL FACTORS_B);
    assert_int_equal(a.plan->n_trials, b.plan->n_trials);
    for (size_t i = 0; i < a.plan->n_trials; i++) {
        const struct sdc_plan_trial *t = &a.plan->trials[i], *u = &b.plan->trials[i];
        assert_string_equal(t->id, u->id);
        assert_int_equal(t->block_key, u->block_key);
        assert_true(t->altered == u->altered);
        assert_int_equal(t->group, u->group);
    }
    for (size_t c = 0; c < a.plan->n_cells; c++)
        assert_string_equal(a.plan->cells[c].label, b.plan->cells[c].label);
    unmake(&a);
    unmake(&b);
}

/* Ids and keys are written into stores and papers: these values must never change. */
static void ids_and_keys_stay(void **state) {
    (void)state;
    struct planned p = make(SMALL FACTORS_A);
    assert_string_equal(p.plan->trials[0].id, "g0-placebo-0");
    assert_string_equal(p.plan->trials[1].id, "g0-lsb-0");
    assert_string_equal(p.plan->trials[2].id, "g0-nan-0");
    assert_string_equal(p.plan->trials[36].id, "c000-0000");
    assert_string_equal(p.plan->trials[37].id, "c001-0000");
    assert_string_equal(p.plan->trials[36 + 48].id, "c000-0001");
    assert_string_equal(p.plan->blocks[0].text,
                        "altered_ranks=one\ncheckpoint=300\nflips=1\nranks=2\n");
    /* the low half of xxHash 0.8.1's XXH3_64bits of that text */
    assert_int_equal(p.plan->blocks[0].key, 0xea772d82);
    assert_null(sdc__plan_find(p.plan, "c000-0006"));
    assert_null(sdc__plan_find(p.plan, "c048-0000"));
    assert_null(sdc__plan_find(p.plan, "c0-0"));
    assert_null(sdc__plan_find(p.plan, "g12-nan-0"));
    assert_null(sdc__plan_find(p.plan, ""));
    assert_int_equal(sdc__plan_find(p.plan, "g11-nan-0")->kind, SDC_TRIAL_ALL_NAN);
    unmake(&p);
}

static void seeds_come_from_the_campaign(void **state) {
    (void)state;
    struct planned a = make("campaign: x\nseed: 1\n"),
                   b = make("campaign: y\nseed: 1\ntrials: 9\n"),
                   c = make("campaign: x\nseed: 2\n");
    for (size_t k = 0; k < 3; k++) {
        assert_true(a.plan->clusters[k].seed_init == b.plan->clusters[k].seed_init);
        assert_true(a.plan->clusters[k].seed_data != a.plan->clusters[k].seed_init);
        assert_true(a.plan->clusters[k].seed_init != c.plan->clusters[k].seed_init);
        assert_true(a.plan->clusters[k].seed_init <= INT64_MAX);
    }
    assert_true(a.plan->clusters[0].seed_init != a.plan->clusters[1].seed_init);
    assert_true(sdc__plan_spread_seed(a.plan, 0, 0) != sdc__plan_spread_seed(a.plan, 0, 1));
    assert_true(sdc__plan_spread_seed(a.plan, 0, 0) != sdc__plan_spread_seed(a.plan, 1, 0));
    unmake(&a);
    unmake(&b);
    unmake(&c);
}

static void altered_ranks_are_drawn(void **state) {
    (void)state;
    struct planned p = make("campaign: x\nranks: 4\ntrials: 400\nfactors:\n"
                            "  altered_ranks: [one, 'k:3', half, all, 'rank:2']\n");
    unsigned hits[4] = {0};
    for (uint32_t i = 0; i < 400; i++) {
        const struct sdc_plan_trial *t = &p.plan->trials[p.plan->n_controls + i * 5];
        assert_int_equal(__builtin_popcountll(t[0].altered), 1);
        assert_int_equal(__builtin_popcountll(t[1].altered), 3);
        assert_int_equal(__builtin_popcountll(t[2].altered), 2);
        assert_true(t[3].altered == 0xf);
        assert_true(t[4].altered == 4);
        assert_true(t[0].altered < 16);
        hits[__builtin_ctzll(t[0].altered)]++;
    }
    /* binomial(400, 1/4): 100, standard deviation 8.7 */
    for (int r = 0; r < 4; r++)
        assert_in_range(hits[r], 60, 140);
    unmake(&p);
}

static void checkpoints_cross_with_cells(void **state) {
    (void)state;
    struct planned p = make("campaign: x\nbaseline: {seeds: 2, checkpoints: [10, 20]}\nfactors:\n"
                            "  flips: [1, 2]\n  optimizer.momentum: [0.0, 0.9]\n");
    assert_int_equal(p.plan->n_cells, 8);
    assert_int_equal(p.plan->n_blocks, 8);
    assert_int_equal(p.plan->n_trainings, 4);
    assert_int_equal(p.plan->n_groups, 8);
    assert_int_equal(p.plan->trainings[0].steps, 20);
    assert_string_equal(p.plan->cells[4].label, "checkpoint=20 flips=1 optimizer.momentum=0.0");
    const struct sdc_plan_trial *t = sdc__plan_find(p.plan, "c004-0001");
    assert_int_equal(p.plan->groups[t->group].checkpoint, 20);
    assert_int_equal(p.plan->groups[t->group].cluster, 1);
    unmake(&p);
}

static void unused_clusters_are_not_trained(void **state) {
    (void)state;
    struct planned p = make("campaign: x\nbaseline: {seeds: 20}\ntrials: 2\n");
    assert_int_equal(p.plan->n_clusters, 20);
    assert_int_equal(p.plan->n_trainings, 2);
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__plan_warnings(p.plan, &b);
    assert_non_null(strstr(b.data, "2 trials per cell use only the first 2 of 20 clusters"));
    sdc__buf_release(&b);
    unmake(&p);
}

static void run_descriptions_follow_the_setting(void **state) {
    (void)state;
    struct planned p = make(SMALL FACTORS_A);
    struct sdc_run run;
    sdc_run_init(&run);
    const struct sdc_plan_trial *t = sdc__plan_find(p.plan, "c003-0002"); /* 4 ranks, horovod */
    assert_ok(sdc__plan_group_run(p.plan, t->group, &run, &err));
    assert_string_equal(run.model, "lenet5");
    assert_int_equal(run.ranks, 4);
    assert_int_equal(run.strategy, SDC_STRATEGY_HOROVOD);
    assert_int_equal(run.from_step, 300);
    assert_int_equal(run.to_step, 340);
    assert_true(run.seed_data == p.plan->clusters[2].seed_data);
    assert_null(run.data.path);
    sdc_run_release(&run);
    sdc_run_init(&run);
    assert_ok(sdc__plan_training_run(p.plan, p.plan->groups[t->group].training, &run, &err));
    assert_int_equal(run.strategy, SDC_STRATEGY_DDP);
    assert_int_equal(run.from_step, 0);
    assert_int_equal(run.to_step, 300);
    sdc_run_release(&run);
    unmake(&p);
}

static void null_share_follows_the_bits(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
        double q;
    } cases[] = {
        {"bits", "any", 1.0 / 32}, {"bits", "top-exponent", 1},       {"bits", "exponent", 1.0 / 8},
        {"bits", "mantissa", 0},   {"bits", "lsb:30,lsb:0", 1.0 / 2}, {"op", "value=nan", 1},
        {"op", "value=0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        sdc_choice_init(&c);
        if (strcmp(cases[i].value, "any") != 0)
            assert_ok(sdc_choice_set(&c, cases[i].key, cases[i].value, &err));
        if (fabs(sdc__plan_null_q(&c) - cases[i].q) > 1e-15)
            fail_msg("%s %s: %g", cases[i].key, cases[i].value, sdc__plan_null_q(&c));
        sdc_choice_release(&c);
    }
}

static void too_many_trials_are_refused(void **state) {
    (void)state;
    struct sdc_spec *spec = NULL;
    struct sdc_plan *plan = NULL;
    const char *text = "campaign: x\ntrials: 1000000\nfactors: {flips: [1, 2]}\n";
    assert_ok(sdc__spec_parse(text, strlen(text), "s.yaml", &spec, &err));
    assert_status(SDC_LIMIT, sdc__plan_new(spec, &plan, &err));
    assert_message_has("s.yaml");
    sdc__spec_free(spec);
}

static void texts_name_the_plan(void **state) {
    (void)state;
    struct planned p = make(SMALL FACTORS_A);
    struct sdc_buf b = SDC_BUF_INIT;
    assert_ok(sdc__plan_print(p.plan, 100, &b, &err));
    assert_non_null(strstr(b.data, "cells      48 in 12 blocks; pairs over part, recipe"));
    assert_non_null(strstr(b.data, "undecided: too few clusters"));
    assert_non_null(strstr(b.data, "about 3.2 minutes"));
    /* 1 - (31/32)^10 = 27.2 % */
    assert_non_null(strstr(b.data, "27.2%"));
    sdc__buf_release(&b);
    unmake(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_the_product_of_levels),
        cmocka_unit_test(arms_of_a_pair_share_their_streams),
        cmocka_unit_test(order_of_factors_does_not_matter),
        cmocka_unit_test(ids_and_keys_stay),
        cmocka_unit_test(seeds_come_from_the_campaign),
        cmocka_unit_test(altered_ranks_are_drawn),
        cmocka_unit_test(checkpoints_cross_with_cells),
        cmocka_unit_test(unused_clusters_are_not_trained),
        cmocka_unit_test(run_descriptions_follow_the_setting),
        cmocka_unit_test(null_share_follows_the_bits),
        cmocka_unit_test(too_many_trials_are_refused),
        cmocka_unit_test(texts_name_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
