/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference with clusters as the unit: t interval, sign-flip permutation test, intraclass
 * correlation.
 */
#include "stat/stat.h"

#include <math.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "sdc/rng.h"
#include "stat/stat_internal.h"

#define EXACT_K      20
#define RANDOM_FLIPS 99999

/* Sums that are equal on paper differ by rounding; a tie counts as extreme. */
static double tie_margin(const double *values, size_t k) {
    double sum = 0;
    for (size_t i = 0; i < k; i++)
        sum += fabs(values[i]);
    return 1e-10 * sum;
}

/* All sign patterns with the first sign fixed (the others are their mirror images), in Gray code
 * order, so that each differs from the one before in one sign. */
static void flip_exact(const double *values, size_t k, double observed,
                       struct sdc_stat_cluster_test *out) {
    uint64_t patterns = UINT64_C(1) << (k - 1), extreme = 0, negative = 0;
    double sum = 0, least = fabs(observed) - tie_margin(values, k);
    for (size_t i = 0; i < k; i++)
        sum += values[i];
    for (uint64_t i = 0;;) {
        extreme += fabs(sum) >= least ? 1 : 0;
        if (++i == patterns)
            break;
        size_t bit = (size_t)__builtin_ctzll(i);
        negative ^= UINT64_C(1) << bit;
        double change = 2 * values[bit + 1];
        sum += (negative >> bit) & 1 ? -change : change;
    }
    out->p_sign_flip = (double)extreme / (double)patterns;
    out->sign_flip_exact = true;
    out->n_flips = 2 * patterns;
}

static void flip_random(const double *values, size_t k, double observed, uint64_t seed,
                        struct sdc_stat_cluster_test *out) {
    struct sdc_rng rng;
    uint64_t extreme = 0;
    double least = fabs(observed) - tie_margin(values, k);
    sdc_rng_init(&rng, seed, SDC_RNG_STATISTICS, 0, 0);
    for (int flip = 0; flip < RANDOM_FLIPS; flip++) {
        double sum = 0;
        uint32_t bits = 0;
        for (size_t i = 0; i < k; i++) {
            if (i % 32 == 0)
                bits = sdc_rng_u32(&rng);
            sum += bits & 1 ? values[i] : -values[i];
            bits >>= 1;
        }
        extreme += fabs(sum) >= least ? 1 : 0;
    }
    out->p_sign_flip = (1 + (double)extreme) / (1 + (double)RANDOM_FLIPS);
    out->sign_flip_exact = false;
    out->n_flips = RANDOM_FLIPS;
}

static enum sdc_status t_limits(double level, struct sdc_stat_cluster_test *out,
                                struct sdc_error *err) {
    double df = (double)out->k - 1, se = out->sd / sqrt((double)out->k), t;
    SDC_TRY(sdc__stat_t_quantile(1 - (1 - level) / 2, df, &t, err));
    out->interval = (struct sdc_stat_interval){out->mean - t * se, out->mean + t * se};
    if (se > 0)
        return sdc__stat_t_two_sided(out->mean / se, df, &out->p_t, err);
    out->p_t = out->mean == 0;
    return SDC_OK;
}

enum sdc_status sdc__stat_clusters(const double *values, size_t n, double level, uint64_t seed,
                                   struct sdc_stat_cluster_test *out, struct sdc_error *err) {
    struct sdc_stat_cluster_test r = {.mean = NAN,
                                      .sd = NAN,
                                      .p_t = NAN,
                                      .p_sign_flip = 1,
                                      .interval = {-INFINITY, INFINITY},
                                      .sign_flip_exact = true};
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    double *kept = sdc__alloc(n, sizeof *kept), sum = 0, squares = 0;
    if (!kept)
        return SDC_NOMEM(err, "cluster values");
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; i < n; i++) {
        if (isinf(values[i])) {
            st = SDC_ERR(err, SDC_USAGE, "value of cluster %zu is infinite, expected a finite one",
                         i);
            goto out;
        }
        if (isnan(values[i])) {
            r.n_nan++;
            continue;
        }
        kept[r.k++] = values[i];
        sum += values[i];
    }
    if (r.k > 0) {
        r.mean = sum / (double)r.k;
        if (r.k <= EXACT_K)
            flip_exact(kept, r.k, sum, &r);
        else
            flip_random(kept, r.k, sum, seed, &r);
    }
    if (r.k > 1) {
        for (size_t i = 0; i < r.k; i++)
            squares += (kept[i] - r.mean) * (kept[i] - r.mean);
        r.sd = sqrt(squares / ((double)r.k - 1));
        if (r.sd <= 1e-14 * fabs(r.mean)) /* equal values, whose mean was rounded */
            r.sd = 0;
        SDC_TRY_OUT(st, t_limits(level, &r, err));
    }
    *out = r;
out:
    sdc__free(kept);
    return st;
}

enum sdc_status sdc__stat_icc(const double *values, const size_t *sizes, size_t k,
                              struct sdc_stat_icc *out, struct sdc_error *err) {
    struct sdc_stat_icc r = {.icc = NAN, .ms_between = NAN, .ms_within = NAN, .n0 = NAN};
    double total = 0, squares = 0, sum = 0, within = 0, between = 0;
    const double *v = values;
    for (size_t i = 0; i < k; i++) {
        if (sizes[i] == 0)
            return SDC_ERR(err, SDC_USAGE, "cluster %zu is empty", i);
        total += (double)sizes[i];
        squares += (double)sizes[i] * (double)sizes[i];
        for (size_t j = 0; j < sizes[i]; j++, v++) {
            r.n_nan += isnan(*v) ? 1 : 0;
            sum += *v;
        }
    }
    double kk = (double)k;
    if (k >= 2 && total > kk) {
        double grand = sum / total;
        v = values;
        for (size_t i = 0; i < k; i++) {
            double mean = 0;
            for (size_t j = 0; j < sizes[i]; j++)
                mean += v[j];
            mean /= (double)sizes[i];
            between += (double)sizes[i] * (mean - grand) * (mean - grand);
            for (size_t j = 0; j < sizes[i]; j++, v++)
                within += (*v - mean) * (*v - mean);
        }
        r.n0 = (total - squares / total) / (kk - 1);
        r.ms_between = between / (kk - 1);
        r.ms_within = within / (total - kk);
        double scale = r.ms_between + (r.n0 - 1) * r.ms_within;
        r.icc = scale > 0 ? (r.ms_between - r.ms_within) / scale : NAN;
    }
    *out = r;
    return SDC_OK;
}
