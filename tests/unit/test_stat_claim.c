/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts: each way a claim can end, and that a family of true nulls is rarely claimed.
 */
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "base/str.h"
#include "sdc/rng.h"
#include "stat/stat.h"

#define K 24

/* Differences around `centre` that alternate by `swing`. */
static void fill(double diff[K], double centre, double swing) {
    for (int i = 0; i < K; i++)
        diff[i] = centre + (i % 2 ? swing : -swing);
}

static struct sdc_stat_claim_input input(const double *diff) {
    return (struct sdc_stat_claim_input){.diff = diff,
                                         .k = K,
                                         .pairs = {100, 20, 30, 330},
                                         .direction = -1,
                                         .margin = 0.02,
                                         .k_required = 20};
}

static struct sdc_stat_claim judge(const struct sdc_stat_claim_input *in) {
    struct sdc_error err;
    struct sdc_stat_claim c;
    assert_ok(sdc__stat_claims(in, 1, 0.05, &c, &err));
    return c;
}

static void sentence_has(const struct sdc_stat_claim *c, const char *text) {
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__stat_claim_sentence(c, &b);
    assert_false(b.failed);
    if (!strstr(b.data, text))
        fail_msg("sentence '%s' lacks '%s'", b.data, text);
    sdc__buf_release(&b);
}

/* Two clusters of -0.25 and 0: half the t interval is 12.706 * 0.125 = 1.588, and no difference of
 * shares is below -1 or above 1. */
static void limits_stay_within_the_range(void **state) {
    (void)state;
    const double diff[2] = {-0.25, 0};
    struct sdc_stat_claim_input in = input(diff);
    in.k = 2;
    struct sdc_stat_claim c = judge(&in);
    assert_true(c.test.interval.low == -1 && c.test.interval.high == 1);
    assert_false(c.inside_margin);
    assert_int_equal(c.verdict, SDC_VERDICT_UNDECIDED);
}

static void each_verdict(void **state) {
    (void)state;
    double diff[K] = {0};
    struct sdc_stat_claim_input in = input(diff);

    fill(diff, -0.10, 0.05);
    struct sdc_stat_claim c = judge(&in);
    assert_string_equal(sdc__stat_verdict_name(c.verdict), "supported");
    assert_int_equal(c.reason, SDC_REASON_NONE);
    /* by hand: sd = 0.05 sqrt(24/23), t(0.975, 23) = 2.068658 */
    double half = 2.0686576 * 0.05 * sqrt(24.0 / 23) / sqrt(24);
    assert_true(fabs(c.test.interval.low - (-0.10 - half)) < 1e-8);
    assert_int_equal(c.n_pairs, 480);
    assert_int_equal(c.n_discordant, 50);
    assert_false(c.inside_margin);

    fill(diff, 0.10, 0.05);
    assert_int_equal(judge(&in).verdict, SDC_VERDICT_CONTRADICTED);
    in.direction = 1; /* the same numbers under the opposite claim */
    assert_int_equal(judge(&in).verdict, SDC_VERDICT_SUPPORTED);
    in.direction = -1;

    fill(diff, 0.001, 0.02);
    c = judge(&in);
    assert_int_equal(c.verdict, SDC_VERDICT_EQUIVALENT);
    assert_true(c.inside_margin);
    sentence_has(&c, "inside the margin of 2 points");

    fill(diff, -0.005, 0.004); /* real, and too small to matter */
    c = judge(&in);
    assert_int_equal(c.verdict, SDC_VERDICT_SUPPORTED);
    assert_true(c.inside_margin);
    sentence_has(&c, "too small");

    fill(diff, -0.01, 0.2);
    c = judge(&in);
    assert_int_equal(c.verdict, SDC_VERDICT_UNDECIDED);
    assert_int_equal(c.reason, SDC_REASON_WIDE);
    assert_true(c.k_needed > 1000 && c.k_needed < 1200); /* (3.2415 * 0.2043 / 0.02)^2 = 1096 */
    assert_int_equal(c.pairs_needed, c.k_needed * 20);
    sentence_has(&c, "clusters");
}

static void few_clusters_are_undecided_however_clear(void **state) {
    (void)state;
    double diff[K] = {0};
    struct sdc_stat_claim_input in = input(diff);
    fill(diff, -0.5, 0.01);
    in.k = 19;
    struct sdc_stat_claim c = judge(&in);
    assert_int_equal(c.verdict, SDC_VERDICT_UNDECIDED);
    assert_int_equal(c.reason, SDC_REASON_TOO_FEW_CLUSTERS);
    assert_true(c.test.interval.high < 0); /* the numbers are still reported */
    assert_int_equal(c.k_needed, 20);
    sentence_has(&c, "19 independent training seeds");
    in.k = 1;
    c = judge(&in);
    assert_int_equal(c.reason, SDC_REASON_TOO_FEW_CLUSTERS);
    assert_int_equal(c.k_needed, 0);
    sentence_has(&c, "not known");
    in.k = 0;
    assert_int_equal(judge(&in).reason, SDC_REASON_NO_DATA);
}

static void missing_data_cannot_help_a_claim(void **state) {
    (void)state;
    double diff[K] = {0}, low[K], high[K];
    struct sdc_error err;
    struct sdc_stat_claim c;
    struct sdc_stat_claim_input in = input(diff);
    fill(diff, -0.03, 0.05);
    assert_int_equal(judge(&in).verdict, SDC_VERDICT_SUPPORTED);
    /* two pairs of twenty missing in every cluster: at their worst +0.1 */
    for (int i = 0; i < K; i++) {
        low[i] = diff[i] * 0.9 - 0.1;
        high[i] = diff[i] * 0.9 + 0.1;
    }
    in.n_missing = 2 * K;
    in.diff_low = low;
    in.diff_high = high;
    c = judge(&in);
    assert_int_equal(c.verdict, SDC_VERDICT_UNDECIDED);
    assert_int_equal(c.reason, SDC_REASON_MISSING_PAIRS);
    sentence_has(&c, "48 pairs are missing");
    for (int i = 0; i < K; i++)
        high[i] = diff[i] + 0.001;
    assert_int_equal(judge(&in).verdict, SDC_VERDICT_SUPPORTED);
    in.diff_low = NULL;
    assert_status(SDC_USAGE, sdc__stat_claims(&in, 1, 0.05, &c, &err));
    /* a cluster without any complete pair */
    in = input(diff);
    diff[3] = NAN;
    c = judge(&in);
    assert_int_equal(c.reason, SDC_REASON_EMPTY_CLUSTERS);
    assert_int_equal(c.test.n_nan, 1);
}

static void no_disagreement_needs_enough_pairs(void **state) {
    (void)state;
    double diff[K] = {0};
    struct sdc_stat_claim_input in = input(diff);
    in.pairs = (struct sdc_stat_pairs){.both = 10, .neither = 38};
    struct sdc_stat_claim c = judge(&in);
    assert_true(c.limits_from_pairs);
    /* none in 48: 1 - 0.025^(1/48) = 0.0740 */
    assert_true(fabs(c.test.interval.high - 0.0740) < 5e-5);
    assert_int_equal(c.verdict, SDC_VERDICT_UNDECIDED);
    assert_int_equal(c.pairs_needed, 184); /* ln 0.025 / ln 0.98 = 182.6, in clusters of two */
    sentence_has(&c, "No pair disagreed");
    in.pairs.neither = 2000;
    assert_int_equal(judge(&in).verdict, SDC_VERDICT_EQUIVALENT);
}

static void a_family_shares_its_error_rate(void **state) {
    (void)state;
    double a[K] = {0}, b[K] = {0};
    struct sdc_error err;
    struct sdc_stat_claim c[2];
    struct sdc_stat_claim_input in[2] = {input(a), input(b)};
    fill(a, -0.05, 0.05);
    fill(b, -0.022,
         0.05); /* t = -2.11, p = 0.046: alone supported, second in the family still at 5 % */
    assert_ok(sdc__stat_claims(in, 2, 0.05, c, &err));
    assert_true(fabs(c[0].level - 0.975) < 1e-12 && fabs(c[1].level - 0.95) < 1e-12);
    assert_true(fabs(c[0].p_adjusted - 2 * c[0].test.p_t) < 1e-15);
    fill(a, 0.001, 0.05); /* now b is first, at 97.5 % */
    assert_ok(sdc__stat_claims(in, 2, 0.05, c, &err));
    assert_int_equal(c[1].verdict, SDC_VERDICT_UNDECIDED);
    assert_true(fabs(c[1].level - 0.975) < 1e-12);
    assert_int_equal(judge(&in[1]).verdict, SDC_VERDICT_SUPPORTED);
}

static void wrong_inputs_are_refused(void **state) {
    (void)state;
    double diff[K] = {0};
    struct sdc_error err;
    struct sdc_stat_claim c;
    struct sdc_stat_claim_input in = input(diff);
    in.direction = 0;
    assert_status(SDC_USAGE, sdc__stat_claims(&in, 1, 0.05, &c, &err));
    assert_message_has("direction 0");
    in = input(diff);
    in.margin = 0;
    assert_status(SDC_USAGE, sdc__stat_claims(&in, 1, 0.05, &c, &err));
    in = input(diff);
    assert_status(SDC_USAGE, sdc__stat_claims(&in, 1, 0, &c, &err));
}

/* 20 clusters of 20 pairs, no true difference, clusters that lean: false claims of a direction stay
 * at the error rate of the family of two. */
static void true_nulls_are_rarely_claimed(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_rng rng;
    int claimed = 0, runs = 1000;
    sdc_rng_init(&rng, 21, SDC_RNG_TEST, 4, 0);
    for (int run = 0; run < runs; run++) {
        double diff[2][20];
        struct sdc_stat_claim_input in[2];
        struct sdc_stat_claim c[2];
        for (int f = 0; f < 2; f++) {
            in[f] = input(diff[f]);
            in[f].k = 20;
            for (int k = 0; k < 20; k++) {
                double lean = 0.1 * sdc_rng_unit(&rng), sum = 0;
                for (int i = 0; i < 20; i++)
                    sum += (sdc_rng_unit(&rng) < lean) - (sdc_rng_unit(&rng) < 0.05);
                diff[f][k] = sum / 20;
            }
        }
        assert_ok(sdc__stat_claims(in, 2, 0.05, c, &err));
        bool any = false;
        for (int f = 0; f < 2; f++)
            any = any || c[f].verdict == SDC_VERDICT_SUPPORTED ||
                  c[f].verdict == SDC_VERDICT_CONTRADICTED;
        claimed += any;
    }
    assert_in_range(claimed, 0.02 * runs, 0.07 * runs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_stay_within_the_range),
        cmocka_unit_test(each_verdict),
        cmocka_unit_test(few_clusters_are_undecided_however_clear),
        cmocka_unit_test(missing_data_cannot_help_a_claim),
        cmocka_unit_test(no_disagreement_needs_enough_pairs),
        cmocka_unit_test(a_family_shares_its_error_rate),
        cmocka_unit_test(wrong_inputs_are_refused),
        cmocka_unit_test(true_nulls_are_rarely_claimed),
    };
    return sdc__stat_have_gsl() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
