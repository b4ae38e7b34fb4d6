/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimators against published tables and hand-worked examples, and their coverage by simulation.
 */
#include "test.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "sdc/rng.h"
#include "stat/stat.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static void near(double got, double want, double within, const char *what, int line) {
    if (!(fabs(got - want) <= within))
        fail_msg("line %d: %s: got %.10g, expected %.10g within %g", line, what, got, want, within);
}

#define assert_near(got, want, within) near((got), (want), (within), #got, __LINE__)

/* Functions that need GSL say so in a build without it; then there is nothing more to test. */
#define NEEDS_GSL()                                                                                \
    do {                                                                                           \
        if (!sdc__stat_have_gsl()) {                                                               \
            print_message("skipped: built without GSL\n");                                         \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

static void normal_quantile_inverts_the_cdf(void **state) {
    (void)state;
    /* Abramowitz and Stegun, table 26.5 and usual tables */
    assert_near(sdc__stat_normal_quantile(0.975), 1.959963984540054, 1e-14);
    assert_near(sdc__stat_normal_quantile(0.5), 0, 1e-16);
    assert_near(sdc__stat_normal_quantile(0.8), 0.841621233572914, 1e-14);
    assert_near(sdc__stat_normal_quantile(1e-10), -6.361340902404056, 1e-12);
    for (double p = 1e-12; p < 0.5; p *= 1.7)
        assert_near(sdc__stat_normal_cdf(sdc__stat_normal_quantile(p)) / p, 1, 1e-12);
    assert_true(isnan(sdc__stat_normal_quantile(0)));
    assert_true(isnan(sdc__stat_normal_quantile(1)));
    assert_true(isnan(sdc__stat_normal_quantile(NAN)));
}

static void t_quantile_matches_tables(void **state) {
    (void)state;
    struct sdc_error err;
    double t;
    NEEDS_GSL();
    static const struct {
        double p, df, t;
    } table[] = {
        /* Student's table: any textbook */
        {0.975, 1, 12.706205}, {0.975, 2, 4.302653}, {0.975, 19, 2.093024},
        {0.995, 19, 2.860935}, {0.95, 10, 1.812461}, {0.025, 19, -2.093024},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_ok(sdc__stat_t_quantile(table[i].p, table[i].df, &t, &err));
        assert_near(t, table[i].t, 1e-6);
    }
    assert_ok(sdc__stat_t_two_sided(2.093024, 19, &t, &err));
    assert_near(t, 0.05, 1e-7);
    assert_status(SDC_USAGE, sdc__stat_t_quantile(1, 5, &t, &err));
    assert_status(SDC_USAGE, sdc__stat_t_quantile(0.5, 0, &t, &err));
}

static void without_gsl_says_so(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_interval i;
    struct sdc_stat_pairs pairs = {1, 2, 3, 4};
    double v;
    if (sdc__stat_have_gsl()) {
        print_message("skipped: about a build without GSL\n");
        skip();
    }
    assert_status(SDC_UNSUPPORTED, sdc__stat_t_quantile(0.9, 5, &v, &err));
    assert_message_has("SDC_GSL=OFF");
    assert_status(SDC_UNSUPPORTED, sdc__stat_clopper_pearson(0, 5, 0.95, &i, &err));
    assert_status(SDC_UNSUPPORTED, sdc__stat_mcnemar(&pairs, &v, NULL, &err));
    assert_ok(sdc__stat_wilson(0, 5, 0.95, &i, &err));
}

/* Newcombe, Statistics in Medicine 17:857-872 (1998), table I; 0 and 9 of 180 worked by hand. */
static void wilson_matches_newcombes_table(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_interval i;
    static const struct {
        uint64_t x, n;
        double low, high;
    } table[] = {
        {81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611},
        {1, 29, 0.0061, 0.1718},   {0, 180, 0, 0.0209},       {9, 180, 0.0265, 0.0923},
    };
    for (size_t k = 0; k < COUNT(table); k++) {
        assert_ok(sdc__stat_wilson(table[k].x, table[k].n, 0.95, &i, &err));
        assert_near(i.low, table[k].low, 5.1e-5);
        assert_near(i.high, table[k].high, 5.1e-5);
    }
    /* n of n is exactly 1; the mirror image of 0 of n */
    assert_ok(sdc__stat_wilson(20, 20, 0.95, &i, &err));
    assert_true(i.high == 1);
    assert_near(i.low, 1 - 0.1611, 5.1e-5);
    assert_ok(sdc__stat_wilson(0, 0, 0.95, &i, &err));
    assert_true(i.low == 0 && i.high == 1);
    assert_status(SDC_USAGE, sdc__stat_wilson(2, 1, 0.95, &i, &err));
    assert_status(SDC_USAGE, sdc__stat_wilson(1, 2, 1, &i, &err));
    assert_status(SDC_USAGE, sdc__stat_wilson(1, 2, NAN, &i, &err));
}

/* The same table, method 5. */
static void clopper_pearson_matches_newcombes_table(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_interval i;
    NEEDS_GSL();
    static const struct {
        uint64_t x, n;
        double low, high;
    } table[] = {
        {81, 263, 0.2527, 0.3676},
        {15, 148, 0.0578, 0.1617},
        {0, 20, 0, 0.1684},
        {1, 29, 0.0009, 0.1776},
    };
    for (size_t k = 0; k < COUNT(table); k++) {
        assert_ok(sdc__stat_clopper_pearson(table[k].x, table[k].n, 0.95, &i, &err));
        assert_near(i.low, table[k].low, 5.1e-5);
        assert_near(i.high, table[k].high, 5.1e-5);
    }
    /* none of n: 1 - (alpha / 2)^(1 / n), also for a large n */
    assert_ok(sdc__stat_clopper_pearson(0, 1000000, 0.99, &i, &err));
    assert_near(i.high, -expm1(log(0.005) / 1e6), 1e-15);
}

/* Newcombe, Statistics in Medicine 17:873-890 (1998), table II, method 10. */
static void newcombe_matches_the_paper(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_interval i;
    double diff;
    static const struct {
        uint64_t x1, n1, x2, n2;
        double low, high;
    } table[] = {
        {56, 70, 48, 80, 0.0524, 0.3339}, {9, 10, 3, 10, 0.1705, 0.8090},
        {6, 7, 2, 7, 0.0582, 0.8062},     {5, 56, 0, 29, -0.0381, 0.1926},
        {0, 10, 0, 20, -0.1611, 0.2775},  {0, 10, 0, 10, -0.2775, 0.2775},
        {10, 10, 0, 20, 0.6791, 1.0},     {10, 10, 0, 10, 0.6075, 1.0},
    };
    for (size_t k = 0; k < COUNT(table); k++) {
        assert_ok(sdc__stat_newcombe(table[k].x1, table[k].n1, table[k].x2, table[k].n2, 0.95,
                                     &diff, &i, &err));
        assert_near(i.low, table[k].low, 5.1e-5);
        assert_near(i.high, table[k].high, 5.1e-5);
    }
    assert_ok(sdc__stat_newcombe(0, 0, 1, 5, 0.95, &diff, &i, &err));
    assert_true(isnan(diff) && i.low == -1 && i.high == 1);
}

/* Newcombe, Statistics in Medicine 17:2635-2650 (1998): 20, 12, 2, 16, method 10. */
static void newcombe_paired_matches_the_paper(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_interval i;
    struct sdc_stat_pairs pairs = {.both = 20, .b_only = 12, .a_only = 2, .neither = 16};
    double diff;
    assert_ok(sdc__stat_newcombe_paired(&pairs, 0.95, &diff, &i, &err));
    assert_near(diff, 0.2, 1e-15);
    assert_near(i.low, 0.0562, 5.1e-5);
    assert_near(i.high, 0.3292, 5.1e-5);
    /* the arms exchanged: the mirror image */
    struct sdc_stat_pairs mirrored = {.both = 20, .b_only = 2, .a_only = 12, .neither = 16};
    struct sdc_stat_interval j;
    assert_ok(sdc__stat_newcombe_paired(&mirrored, 0.95, &diff, &j, &err));
    assert_near(j.low, -i.high, 1e-15);
    assert_near(j.high, -i.low, 1e-15);
    /* an empty margin: phi is 0, so both Wilson intervals of 0 of 10 enter at right angles */
    struct sdc_stat_pairs none = {.neither = 10};
    assert_ok(sdc__stat_newcombe_paired(&none, 0.95, &diff, &i, &err));
    assert_near(i.high, 0.2775, 5.1e-5);
    struct sdc_stat_pairs empty = {0};
    assert_ok(sdc__stat_newcombe_paired(&empty, 0.95, &diff, &i, &err));
    assert_true(isnan(diff) && i.low == -1 && i.high == 1);
}

static void mcnemar_matches_the_paper(void **state) {
    (void)state;
    struct sdc_error err;
    double p, mid;
    NEEDS_GSL();
    /* Fagerland, Lydersen, Laake, BMC Medical Research Methodology 13:91 (2013): airway
     * hyper-responsiveness, exact p 0.070, mid-p 0.039; by hand 18/256 and 10/256 */
    struct sdc_stat_pairs airway = {.both = 1, .b_only = 1, .a_only = 7, .neither = 12};
    assert_ok(sdc__stat_mcnemar(&airway, &p, &mid, &err));
    assert_near(p, 18.0 / 256, 1e-14);
    assert_near(mid, 10.0 / 256, 1e-14);
    /* as many one way as the other, and none at all: no evidence */
    struct sdc_stat_pairs even = {.b_only = 4, .a_only = 4}, none = {.both = 9};
    assert_ok(sdc__stat_mcnemar(&even, &p, &mid, &err));
    assert_true(p == 1);
    assert_near(mid, 1, 1e-14);
    assert_ok(sdc__stat_mcnemar(&none, &p, &mid, &err));
    assert_true(p == 1 && mid == 1);
}

/* Darwin's maize, the example of Fisher's Design of Experiments (1935), section 21: 15 pairs in
 * eighths of an inch; t = 2.148, and 1726 of the 32768 sign patterns are at least as extreme. */
static void sign_flip_matches_fishers_count(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_cluster_test r;
    static const double maize[] = {49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48};
    NEEDS_GSL();
    assert_ok(sdc__stat_clusters(maize, COUNT(maize), 0.95, 0, &r, &err));
    assert_int_equal(r.k, 15);
    assert_near(r.mean, 314.0 / 15, 1e-12);
    assert_near(r.p_sign_flip, 1726.0 / 32768, 1e-15);
    assert_true(r.sign_flip_exact);
    assert_int_equal(r.n_flips, 32768);
    assert_near(r.p_t, 0.0497, 5e-5);
    assert_near(r.mean / (r.sd / sqrt(15)), 2.148, 5e-4);
    assert_near(r.interval.low, 0.0312, 5e-3); /* just above 0, as p_t just below 0.05 */
}

static void sign_flip_by_sampling_agrees_with_the_count(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_cluster_test exact, sampled, again;
    double values[21] = {0};
    NEEDS_GSL();
    /* a 21st value of 0 changes no sum, so its exact p is that of the first 20 */
    for (int i = 0; i < 20; i++)
        values[i] = (i % 5) - 1.4;
    assert_ok(sdc__stat_clusters(values, 20, 0.95, 7, &exact, &err));
    assert_ok(sdc__stat_clusters(values, 21, 0.95, 7, &sampled, &err));
    assert_ok(sdc__stat_clusters(values, 21, 0.95, 7, &again, &err));
    assert_false(sampled.sign_flip_exact);
    assert_near(sampled.p_sign_flip, exact.p_sign_flip, 4 * sqrt(0.25 / 99999));
    assert_true(sampled.p_sign_flip == again.p_sign_flip);
}

static void clusters_count_nan_and_handle_few(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_cluster_test r;
    double values[] = {0.5, NAN, -0.25, NAN};
    NEEDS_GSL();
    assert_ok(sdc__stat_clusters(values, 4, 0.95, 0, &r, &err));
    assert_int_equal(r.k, 2);
    assert_int_equal(r.n_nan, 2);
    assert_near(r.mean, 0.125, 1e-15);
    assert_near(r.p_sign_flip, 1, 1e-15); /* 2 of 4 patterns have |sum| 0.75, 2 have 0.25 */
    assert_ok(sdc__stat_clusters(values, 1, 0.95, 0, &r, &err));
    assert_true(isnan(r.sd) && isnan(r.p_t) && isinf(r.interval.high));
    assert_ok(sdc__stat_clusters(values, 0, 0.95, 0, &r, &err));
    assert_true(r.k == 0 && isnan(r.mean) && r.p_sign_flip == 1);
    values[0] = INFINITY;
    assert_status(SDC_USAGE, sdc__stat_clusters(values, 4, 0.95, 0, &r, &err));
}

/* Shrout and Fleiss, Psychological Bulletin 86:420 (1979), table 2: ICC(1,1) = 0.17. */
static void icc_matches_shrout_and_fleiss(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_icc r;
    static const double ratings[] = {9, 2, 5, 8, 6,  1, 3, 2, 8, 4, 6, 8,
                                     7, 1, 2, 6, 10, 5, 6, 9, 6, 2, 4, 7};
    static const size_t sizes[] = {4, 4, 4, 4, 4, 4};
    assert_ok(sdc__stat_icc(ratings, sizes, 6, &r, &err));
    assert_near(r.ms_between, 11.24, 5e-3);
    assert_near(r.ms_within, 6.26, 5e-3);
    assert_near(r.icc, 0.17, 5e-3);
    assert_near(r.n0, 4, 1e-12);
    /* unequal sizes, by hand: n0 = (5 - (4 + 9)/5)/1 = 2.4; means 1 and 4, grand 2.8;
     * between 2 * 1.8^2 + 3 * 1.2^2 = 10.8; within 2 + 2 = 4, over 3; icc 9.4667/12.6667 */
    static const double uneven[] = {0, 2, 3, 4, 5};
    static const size_t two[] = {2, 3};
    assert_ok(sdc__stat_icc(uneven, two, 2, &r, &err));
    assert_near(r.n0, 2.4, 1e-12);
    assert_near(r.icc, (10.8 - 4.0 / 3) / (10.8 + 1.4 * 4.0 / 3), 1e-12);
    assert_ok(sdc__stat_icc(uneven, two, 1, &r, &err));
    assert_true(isnan(r.icc));
    double with_nan[] = {0, NAN, 3, 4, 5};
    assert_ok(sdc__stat_icc(with_nan, two, 2, &r, &err));
    assert_true(r.n_nan == 1 && isnan(r.icc));
}

/* The usual example: 0.01, 0.04, 0.03, 0.005 at 5 %. */
static void holm_by_hand(void **state) {
    (void)state;
    struct sdc_error err;
    static const double p[] = {0.01, 0.04, 0.03, 0.005};
    static const double want[] = {0.03, 0.06, 0.06, 0.02};
    double adjusted[4], levels[4];
    assert_ok(sdc__stat_holm(p, 4, adjusted, &err));
    for (int i = 0; i < 4; i++)
        assert_near(adjusted[i], want[i], 1e-15);
    /* 0.005 <= 0.05/4; 0.01 <= 0.05/3; 0.03 > 0.05/2 stops, and 0.04 keeps that level */
    assert_ok(sdc__stat_holm_levels(p, 4, 0.05, levels, &err));
    assert_near(levels[3], 1 - 0.05 / 4, 1e-15);
    assert_near(levels[0], 1 - 0.05 / 3, 1e-15);
    assert_near(levels[2], 1 - 0.05 / 2, 1e-15);
    assert_near(levels[1], 1 - 0.05 / 2, 1e-15);
    /* a test without a p value still counts in the family */
    double missing[] = {NAN, 0.03};
    assert_ok(sdc__stat_holm(missing, 2, adjusted, &err));
    assert_near(adjusted[0], 1, 1e-15);
    assert_near(adjusted[1], 0.06, 1e-15);
    double wrong[] = {1.5};
    assert_status(SDC_USAGE, sdc__stat_holm(wrong, 1, adjusted, &err));
}

static void quantiles_are_type_7(void **state) {
    (void)state;
    struct sdc_error err;
    /* numpy.quantile of the same */
    static const double ten[] = {10, 1, 9, 2, 8, 3, 7, 4, 6, 5};
    static const double probs[] = {0, 0.25, 0.5, 0.9, 1};
    static const double want[] = {1, 3.25, 5.5, 9.1, 10};
    double got[5];
    size_t n_nan;
    assert_ok(sdc__stat_quantiles(ten, 10, probs, 5, got, &n_nan, &err));
    for (int i = 0; i < 5; i++)
        assert_near(got[i], want[i], 1e-14);
    double odd[] = {NAN, INFINITY, 1, INFINITY, -INFINITY};
    assert_ok(sdc__stat_quantiles(odd, 5, probs, 5, got, &n_nan, &err));
    assert_int_equal(n_nan, 1);
    assert_true(got[0] == -INFINITY && got[1] == 1 && got[2] == INFINITY && isnan(got[3]));
    assert_ok(sdc__stat_quantiles(odd, 0, probs, 1, got, &n_nan, &err));
    assert_true(isnan(got[0]));
    double bad = 1.5;
    assert_status(SDC_USAGE, sdc__stat_quantiles(ten, 10, &bad, 1, got, NULL, &err));
    sdc__alloc_fail_at(1);
    assert_status(SDC_NO_MEMORY, sdc__stat_quantiles(ten, 10, probs, 1, got, NULL, &err));
}

static void distances_keep_identical_and_non_finite(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_stat_distances d;
    double values[] = {0, 0, 0.5, 1, NAN, INFINITY, 0};
    assert_ok(sdc__stat_distances(values, 7, &d, &err));
    assert_int_equal(d.n, 7);
    assert_int_equal(d.n_identical, 3);
    assert_int_equal(d.n_nonfinite, 2);
    assert_true(d.q25 == 0 && d.median == 0.5 && d.q75 == INFINITY);
}

static void sizes_match_published_tables(void **state) {
    (void)state;
    struct sdc_error err;
    uint64_t n;
    /* Leveugle et al. 2009: 5 % and 1 % at 95 %, 99 % */
    assert_ok(sdc__stat_n_for_margin(0.5, 0.05, 0.95, 760000000, &n, &err));
    assert_int_equal(n, 385);
    assert_ok(sdc__stat_n_for_margin(0.5, 0.01, 0.95, 760000000, &n, &err));
    assert_int_equal(n, 9604);
    assert_ok(sdc__stat_n_for_margin(0.5, 0.05, 0.99, 760000000, &n, &err));
    assert_int_equal(n, 664);
    /* the correction matters when the population is small: 1000 / (1 + 0.0025 * 999 / 0.96036) */
    assert_ok(sdc__stat_n_for_margin(0.5, 0.05, 0.95, 1000, &n, &err));
    assert_int_equal(n, 278);
    /* Fleiss, Statistical Methods for Rates and Proportions, the formula worked by hand */
    assert_ok(sdc__stat_n_two_arms(0.05, 0.04, 0.95, 0.8, &n, &err));
    assert_in_range(n, 6744, 6746);
    assert_ok(sdc__stat_n_two_arms(0.10, 0.15, 0.95, 0.8, &n, &err));
    assert_int_equal(n, 686);
    /* Connor 1987: discordant 2 % against 1 %, and 5 % against 3 % */
    assert_ok(sdc__stat_n_pairs(0.02, 0.01, 0.95, 0.8, &n, &err));
    assert_in_range(n, 2352, 2353);
    assert_ok(sdc__stat_n_pairs(0.05, 0.03, 0.95, 0.8, &n, &err));
    assert_in_range(n, 1567, 1568);
    assert_status(SDC_LIMIT, sdc__stat_n_pairs(0.02, 0.02, 0.95, 0.8, &n, &err));
    assert_status(SDC_USAGE, sdc__stat_n_for_margin(0.5, 0, 0.95, 0, &n, &err));
}

static void clusters_for_a_margin(void **state) {
    (void)state;
    struct sdc_error err;
    uint64_t k;
    NEEDS_GSL();
    /* sd = 2 margins: normal 4 (1.95996 + 1.28155)^2 = 42.03; with t(42 df) = 2.018082 and 44
     * clusters 2 (2.0167 + 1.2816) = 6.5966 <= sqrt(44) = 6.633, with 43: 6.5993 > 6.557 */
    assert_ok(sdc__stat_k_for_margin(0.04, 0.02, 0.95, 0.8, &k, &err));
    assert_int_equal(k, 44);
    assert_ok(sdc__stat_k_for_margin(0, 0.02, 0.95, 0.8, &k, &err));
    assert_int_equal(k, 2);
    assert_status(SDC_USAGE, sdc__stat_k_for_margin(NAN, 0.02, 0.95, 0.8, &k, &err));
}

static void tolerance_facts(void **state) {
    (void)state;
    /* Wilks 1941: 59 for 95 %/95 %, 299 for 99 %/95 % */
    assert_int_equal(sdc__stat_tolerance_n(0.95, 0.95), 59);
    assert_int_equal(sdc__stat_tolerance_n(0.99, 0.95), 299);
    assert_near(sdc__stat_tolerance_confidence(59, 0.95), 0.9515, 5e-5);
    assert_true(sdc__stat_tolerance_confidence(58, 0.95) < 0.95);
    /* 3 replicas: 0.05^(1/3) */
    assert_near(sdc__stat_tolerance_coverage(3, 0.95), 0.368403149864, 1e-11);
    assert_near(sdc__stat_tolerance_confidence(0, 0.95), 0, 1e-15);
    assert_int_equal(sdc__stat_tolerance_n(1, 0.95), 0);
}

static void null_curve(void **state) {
    (void)state;
    assert_near(sdc__stat_null_curve(1.0 / 32, 0), 0, 0);
    assert_near(sdc__stat_null_curve(1.0 / 32, 1), 1.0 / 32, 1e-16);
    assert_near(sdc__stat_null_curve(1.0 / 32, 2), 1 - 31.0 * 31 / 1024, 1e-15);
    assert_near(sdc__stat_null_curve(1.0 / 32, 100), 0.9582004552834, 1e-12);
    assert_near(sdc__stat_null_curve(1, 3), 1, 0);
}

/* ---- coverage, with fixed seeds ---- */

static uint64_t draw_binomial(struct sdc_rng *rng, uint64_t n, double p) {
    uint64_t x = 0;
    for (uint64_t i = 0; i < n; i++)
        x += sdc_rng_unit(rng) < p ? 1 : 0;
    return x;
}

static void proportion_intervals_cover(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_rng rng;
    int wilson = 0, exact = 0, newcombe = 0, runs = 4000;
    sdc_rng_init(&rng, 11, SDC_RNG_TEST, 1, 0);
    for (int i = 0; i < runs; i++) {
        struct sdc_stat_interval w, c = {0, 1}, d;
        double diff;
        uint64_t x = draw_binomial(&rng, 180, 0.1), y = draw_binomial(&rng, 120, 0.25);
        assert_ok(sdc__stat_wilson(x, 180, 0.95, &w, &err));
        if (sdc__stat_have_gsl())
            assert_ok(sdc__stat_clopper_pearson(x, 180, 0.95, &c, &err));
        assert_ok(sdc__stat_newcombe(x, 180, y, 120, 0.95, &diff, &d, &err));
        wilson += w.low <= 0.1 && 0.1 <= w.high;
        exact += c.low <= 0.1 && 0.1 <= c.high;
        newcombe += d.low <= -0.15 && -0.15 <= d.high;
    }
    assert_in_range(wilson, 0.935 * runs, 0.97 * runs);
    assert_in_range(exact, 0.95 * runs, runs);
    assert_in_range(newcombe, 0.935 * runs, 0.97 * runs);
}

static void paired_interval_covers(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_rng rng;
    int covered = 0, runs = 4000;
    sdc_rng_init(&rng, 12, SDC_RNG_TEST, 2, 0);
    for (int i = 0; i < runs; i++) {
        struct sdc_stat_pairs t = {0};
        struct sdc_stat_interval d;
        double diff;
        for (int j = 0; j < 150; j++) { /* both 10 %, A only 5 %, B only 15 % */
            double u = sdc_rng_unit(&rng);
            if (u < 0.10)
                t.both++;
            else if (u < 0.15)
                t.a_only++;
            else if (u < 0.30)
                t.b_only++;
            else
                t.neither++;
        }
        assert_ok(sdc__stat_newcombe_paired(&t, 0.95, &diff, &d, &err));
        covered += d.low <= 0.10 && 0.10 <= d.high;
    }
    assert_in_range(covered, 0.935 * runs, 0.985 * runs);
}

static void cluster_limits_cover_where_pairs_do_not(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_rng rng;
    int clusters = 0, pairs = 0, rejected = 0, runs = 2000;
    NEEDS_GSL();
    sdc_rng_init(&rng, 13, SDC_RNG_TEST, 3, 0);
    for (int i = 0; i < runs; i++) {
        struct sdc_stat_pairs t = {0};
        struct sdc_stat_interval d;
        struct sdc_stat_cluster_test r;
        double mean[12], diff;
        for (int k = 0; k < 12; k++) {
            /* each cluster leans to one arm: the true mean difference is 0, pairs are correlated */
            double lean = sdc_rng_unit(&rng) * 0.3;
            uint64_t a = draw_binomial(&rng, 30, 0.15), b = draw_binomial(&rng, 30, lean);
            t.a_only += a;
            t.b_only += b;
            t.neither += 60 - a - b;
            mean[k] = ((double)b - (double)a) / 30;
        }
        assert_ok(sdc__stat_clusters(mean, 12, 0.95, 0, &r, &err));
        assert_ok(sdc__stat_newcombe_paired(&t, 0.95, &diff, &d, &err));
        clusters += r.interval.low <= 0 && 0 <= r.interval.high;
        rejected += r.p_sign_flip <= 0.05;
        pairs += d.low <= 0 && 0 <= d.high;
    }
    assert_in_range(clusters, 0.93 * runs, 0.97 * runs);
    assert_in_range(rejected, 0.03 * runs, 0.065 * runs);
    assert_true(pairs < 0.90 * runs); /* why the pair-level interval is secondary */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_quantile_inverts_the_cdf),
        cmocka_unit_test(t_quantile_matches_tables),
        cmocka_unit_test(without_gsl_says_so),
        cmocka_unit_test(wilson_matches_newcombes_table),
        cmocka_unit_test(clopper_pearson_matches_newcombes_table),
        cmocka_unit_test(newcombe_matches_the_paper),
        cmocka_unit_test(newcombe_paired_matches_the_paper),
        cmocka_unit_test(mcnemar_matches_the_paper),
        cmocka_unit_test(sign_flip_matches_fishers_count),
        cmocka_unit_test(sign_flip_by_sampling_agrees_with_the_count),
        cmocka_unit_test(clusters_count_nan_and_handle_few),
        cmocka_unit_test(icc_matches_shrout_and_fleiss),
        cmocka_unit_test(holm_by_hand),
        cmocka_unit_test(quantiles_are_type_7),
        cmocka_unit_test(distances_keep_identical_and_non_finite),
        cmocka_unit_test(sizes_match_published_tables),
        cmocka_unit_test(clusters_for_a_margin),
        cmocka_unit_test(tolerance_facts),
        cmocka_unit_test(null_curve),
        cmocka_unit_test(proportion_intervals_cover),
        cmocka_unit_test(paired_interval_covers),
        cmocka_unit_test(cluster_limits_cover_where_pairs_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
