/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimators, intervals, tests and verdicts: pure functions over numbers. Not for reading results
 * from anywhere and not for printing; the campaign fills the inputs, the report shows the outputs.
 *
 * No function draws from a hidden generator, keeps state or changes its inputs: equal inputs give
 * equal outputs on every platform with the same libm and GSL. All are thread-safe.
 *
 * NaN is counted, never dropped: where an input may be NaN the result says how many were. A level
 * is a confidence level between 0 and 1 exclusive, such as 0.95; anything else is SDC_USAGE.
 *
 * A build with -DSDC_GSL=OFF has no beta and t distributions: the functions marked [GSL] then
 * return SDC_UNSUPPORTED and name the option. Wilson, Newcombe, quantiles and the rest work in
 * every build.
 *
 *     struct sdc_stat_claim_input in[2];       one per claim of the spec, filled by the campaign
 *     struct sdc_stat_claim out[2];
 *     SDC_TRY(sdc__stat_claims(in, 2, 0.05, out, err));
 *     sdc__stat_claim_sentence(&out[0], &buf);
 */
#ifndef SDC_STAT_STAT_H
#define SDC_STAT_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "sdc/status.h"

struct sdc_stat_interval {
    double low;
    double high;
};

/* Whether the functions marked [GSL] work in this build. */
bool sdc__stat_have_gsl(void);

/* ---- distributions ---- */

/* Quantile of the standard normal distribution, 0 < p < 1; NaN outside. Newton steps on erfc, so
 * the relative error is that of libm's erfc. */
double sdc__stat_normal_quantile(double p);
/* P(Z <= z). */
double sdc__stat_normal_cdf(double z);
/* [GSL] Quantile of Student's t with df > 0 degrees of freedom, 0 < p < 1. */
enum sdc_status sdc__stat_t_quantile(double p, double df, double *out,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* [GSL] P(|T| >= |t|); 0 for an infinite t, NaN for NaN. */
enum sdc_status sdc__stat_t_two_sided(double t, double df, double *p,
                                      struct sdc_error *err) SDC_MUST_CHECK;

/* ---- one proportion: x events in n, x <= n else SDC_USAGE; n = 0 gives [0, 1] ---- */

/* Score interval (Wilson 1927) without continuity correction; Newcombe 1998a, method 3. */
enum sdc_status sdc__stat_wilson(uint64_t x, uint64_t n, double level,
                                 struct sdc_stat_interval *out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* [GSL] Exact interval (Clopper and Pearson 1934), for guarantees. */
enum sdc_status sdc__stat_clopper_pearson(uint64_t x, uint64_t n, double level,
                                          struct sdc_stat_interval *out,
                                          struct sdc_error *err) SDC_MUST_CHECK;

/* ---- two proportions ---- */

/* x1/n1 - x2/n2 of independent samples with its interval from the two Wilson intervals (Newcombe,
 * Statistics in Medicine 17:873-890, 1998, method 10). n of 0 gives NaN and [-1, 1]. */
enum sdc_status sdc__stat_newcombe(uint64_t x1, uint64_t n1, uint64_t x2, uint64_t n2, double level,
                                   double *diff, struct sdc_stat_interval *out,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* Pairs of yes/no results, arm A and arm B. */
struct sdc_stat_pairs {
    uint64_t both;
    uint64_t a_only;
    uint64_t b_only;
    uint64_t neither;
};

/* Share in B minus share in A for paired samples, with its interval (Newcombe, Statistics in
 * Medicine 17:2635-2650, 1998, method 10: Wilson intervals and the phi coefficient with its
 * continuity correction). No pairs give NaN and [-1, 1]. */
enum sdc_status sdc__stat_newcombe_paired(const struct sdc_stat_pairs *pairs, double level,
                                          double *diff, struct sdc_stat_interval *out,
                                          struct sdc_error *err) SDC_MUST_CHECK;
/* [GSL] McNemar's exact test, two-sided (twice the smaller binomial tail, at most 1), and its mid-p
 * (twice the tail minus the probability of the observed table). No discordant pair: both 1. Each
 * output may be NULL. */
enum sdc_status sdc__stat_mcnemar(const struct sdc_stat_pairs *pairs, double *p, double *mid_p,
                                  struct sdc_error *err) SDC_MUST_CHECK;

/* ---- clusters ---- */

struct sdc_stat_cluster_test {
    size_t k;     /* clusters with a value */
    size_t n_nan; /* clusters without one (NaN), not in k */
    double mean;  /* of the k values, each cluster counting the same; NaN for k = 0 */
    double sd;    /* standard deviation of the k values; NaN for k < 2 */
    struct sdc_stat_interval interval; /* t with k - 1; [-inf, inf] for k < 2 */
    double p_t;                        /* two-sided, mean against 0; NaN for k < 2 */
    double p_sign_flip;                /* two-sided; 1 for k = 0 */
    bool sign_flip_exact;              /* all 2^k flips counted, else Monte Carlo */
    uint64_t n_flips;                  /* sign assignments looked at */
};

/* [GSL] Values are one per cluster, such as the mean over its pairs of B minus A. Sign-flip
 * permutation test of a distribution symmetric about 0: exact for k <= 20, else 99,999 random flips
 * (Philox, purpose SDC_RNG_STATISTICS, key seed) and p = (1 + as extreme) / 100,000. A standard
 * deviation of 0 gives the interval [mean, mean] and p_t 0, or 1 for a mean of 0: see
 * sdc__stat_claims, which does not trust that. */
enum sdc_status sdc__stat_clusters(const double *values, size_t n, double level, uint64_t seed,
                                   struct sdc_stat_cluster_test *out,
                                   struct sdc_error *err) SDC_MUST_CHECK;

struct sdc_stat_icc {
    double icc; /* may be negative; NaN where undefined (k < 2, or no variation at all) */
    double ms_between;
    double ms_within;
    double n0;    /* mean cluster size, corrected for imbalance */
    size_t n_nan; /* values that were NaN: they make icc NaN */
};

/* Intraclass correlation by the one-way analysis of variance (Donner 1986; Shrout and Fleiss 1979,
 * ICC(1,1)). values holds the clusters one after another, sizes[i] values each. */
enum sdc_status sdc__stat_icc(const double *values, const size_t *sizes, size_t k,
                              struct sdc_stat_icc *out, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- many tests ---- */

/* Holm's step-down adjusted p values (Holm 1979), at most 1. A NaN counts in the family and is
 * taken as 1. */
enum sdc_status sdc__stat_holm(const double *p, size_t m, double *adjusted,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Confidence level of each test's limits at Holm's step: 1 - alpha / (m - i) for the i-th smallest
 * p (from 0), and for all after the first one not rejected, the level of that one. */
enum sdc_status sdc__stat_holm_levels(const double *p, size_t m, double alpha, double *levels,
                                      struct sdc_error *err) SDC_MUST_CHECK;

/* ---- order statistics ---- */

/* Quantiles by linear interpolation of the order statistics at (n - 1) p (Hyndman and Fan 1996,
 * type 7; the default of R and NumPy). +inf orders as a value, NaN after it; a quantile that
 * touches a NaN is NaN. n = 0 gives NaN. n_nan may be NULL. */
enum sdc_status sdc__stat_quantiles(const double *values, size_t n, const double *probs,
                                    size_t n_probs, double *out, size_t *n_nan,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* Relative distances of one layer over trials. */
struct sdc_stat_distances {
    size_t n;
    size_t n_identical; /* exactly 0 */
    size_t n_nonfinite; /* infinite or NaN, both counted as +inf in the quartiles */
    double q25;
    double median;
    double q75;
};

enum sdc_status sdc__stat_distances(const double *values, size_t n, struct sdc_stat_distances *out,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* ---- sizes and limits ---- */

/* Trials for a two-sided interval of half-width margin around a proportion near p, drawn without
 * replacement from population sites (0: unlimited): N / (1 + e^2 (N - 1) / (z^2 p (1 - p)))
 * (Leveugle et al., DATE 2009), rounded up. */
enum sdc_status sdc__stat_n_for_margin(double p, double margin, double level, uint64_t population,
                                       uint64_t *n, struct sdc_error *err) SDC_MUST_CHECK;
/* Trials per arm, independent arms, to see p1 against p2 (normal approximation, pooled variance
 * under the null), rounded up. */
enum sdc_status sdc__stat_n_two_arms(double p1, double p2, double level, double power, uint64_t *n,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Pairs for McNemar's test to see shares of discordant pairs a_only against b_only (Connor 1987),
 * rounded up. */
enum sdc_status sdc__stat_n_pairs(double a_only, double b_only, double level, double power,
                                  uint64_t *n, struct sdc_error *err) SDC_MUST_CHECK;
/* [GSL] Clusters for the two-sided t limits at this level to lie inside +-margin with the given
 * power when the true difference is 0: the smallest K >= 2 with
 * (t(1 - (1 - level)/2, K - 1) + z(1 - (1 - power)/2)) sd / sqrt(K) <= margin. */
enum sdc_status sdc__stat_k_for_margin(double sd, double margin, double level, double power,
                                       uint64_t *k, struct sdc_error *err) SDC_MUST_CHECK;

/* Confidence that the largest of n values exceeds the `coverage` quantile: 1 - coverage^n (Wilks
 * 1941): 59 replicas give 95 % confidence of 95 % coverage. */
double sdc__stat_tolerance_confidence(uint64_t n, double coverage);
/* Coverage reached by the largest of n values with this confidence: (1 - confidence)^(1/n). */
double sdc__stat_tolerance_coverage(uint64_t n, double confidence);
/* Smallest n for both; 0 if an argument is not inside (0, 1). */
uint64_t sdc__stat_tolerance_n(double coverage, double confidence);

/* 1 - (1 - q)^n, the chance of at least one event among n independent faults. */
double sdc__stat_null_curve(double q, double n);

/* ---- claims: the verdict rules of a confirmatory risk difference ---- */

/* name, word */
#define SDC_STAT_VERDICT_MAP(X)                                                                    \
    X(SUPPORTED, "supported")                                                                      \
    X(CONTRADICTED, "contradicted")                                                                \
    X(EQUIVALENT, "equivalent")                                                                    \
    X(UNDECIDED, "undecided")

enum sdc_stat_verdict {
#define SDC_STAT_VERDICT_ENUM(name, word) SDC_VERDICT_##name,
    SDC_STAT_VERDICT_MAP(SDC_STAT_VERDICT_ENUM)
#undef SDC_STAT_VERDICT_ENUM
};

/* Why a verdict is undecided; the first that applies. */
#define SDC_STAT_REASON_MAP(X)                                                                     \
    X(NONE, "decided")                                                                             \
    X(NO_DATA, "no complete pair")                                                                 \
    X(TOO_FEW_CLUSTERS, "too few clusters")                                                        \
    X(EMPTY_CLUSTERS, "clusters without a complete pair")                                          \
    X(WIDE, "the limits are too wide for the margin")                                              \
    X(MISSING_PAIRS, "missing pairs could change the verdict")

enum sdc_stat_reason {
#define SDC_STAT_REASON_ENUM(name, word) SDC_REASON_##name,
    SDC_STAT_REASON_MAP(SDC_STAT_REASON_ENUM)
#undef SDC_STAT_REASON_ENUM
};

struct sdc_stat_claim_input {
    const double *diff;      /* k cluster means of (event in B) - (event in A); NaN: no pair */
    const double *diff_low;  /* the same with each missing pair counted -1; NULL: none missing */
    const double *diff_high; /* the same with each missing pair counted +1; NULL: none missing */
    size_t k;
    struct sdc_stat_pairs pairs; /* complete pairs over all clusters */
    uint64_t n_missing;          /* pairs removed by harness errors */
    int direction;               /* -1: the claim is B < A; +1: the claim is B > A */
    double margin;               /* > 0, of the risk difference */
    size_t k_required;           /* 20 for confirmatory claims */
    uint64_t seed;               /* of the permutation test, where it is not exact */
};

struct sdc_stat_claim {
    enum sdc_stat_verdict verdict;
    enum sdc_stat_reason reason;
    bool inside_margin;                /* the limits lie inside +-margin, whatever the verdict */
    int direction;                     /* copied */
    double margin;                     /* copied */
    size_t k_required;                 /* copied */
    double level;                      /* of the limits: Holm's */
    struct sdc_stat_cluster_test test; /* effect (mean), limits, p values; at level; limits of two
                                          and more clusters are cut at -1 and 1 */
    bool limits_from_pairs; /* no pair disagreed: test.interval is the exact bound of 0 discordant
                               pairs, since a t interval of width 0 would claim too much */
    double p_adjusted;      /* Holm, of p_t; 1 where there is none */
    uint64_t n_pairs;
    uint64_t n_discordant;
    uint64_t n_missing;
    /* given these checkpoints (clusters taken as fixed): secondary, no verdict */
    double mcnemar_p;
    double mcnemar_mid_p;
    double pair_diff;
    struct sdc_stat_interval pair_interval; /* Newcombe's, 95 % */
    /* for the margin, never for the observed effect; 0: not known (fewer than 2 clusters) */
    uint64_t k_needed;     /* clusters, 80 % power, at least k_required */
    uint64_t pairs_needed; /* k_needed times the mean number of pairs of a cluster, rounded up */
};

/* [GSL] Judges the m claims of a spec as one family at error rate alpha (0.05). Supported: the
 * limits lie on the claimed side of 0; contradicted: on the other; equivalent: inside +-margin
 * (checked last; it also contradicts a directed claim); else undecided, and always undecided with
 * fewer than k_required clusters, with an empty cluster, or where missing pairs at their worst
 * would give another verdict. Limits are t with K - 1 at Holm's level. */
enum sdc_status sdc__stat_claims(const struct sdc_stat_claim_input *in, size_t m, double alpha,
                                 struct sdc_stat_claim *out, struct sdc_error *err) SDC_MUST_CHECK;

const char *sdc__stat_verdict_name(enum sdc_stat_verdict verdict); /* "supported", ... */
const char *sdc__stat_reason_text(enum sdc_stat_reason reason);
/* One or two plain sentences: why the verdict is what it is, what is missing, and how many clusters
 * and pairs the margin needs. Appends to out. */
void sdc__stat_claim_sentence(const struct sdc_stat_claim *claim, struct sdc_buf *out);

/* "GSL built VERSION, running VERSION" of the library behind this layer; says so where it was left
 * out. */
void sdc__stat_library(char *text, size_t size);

#endif
