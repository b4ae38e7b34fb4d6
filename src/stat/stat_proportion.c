/* SPDX-License-Identifier: Apache-2.0
 *
 * Proportions: one, two independent, two paired.
 */
#include "stat/stat.h"

#include <math.h>

#include "base/guard.h"
#include "stat/stat_gsl.h"
#include "stat/stat_internal.h"

#define SQRT1_2 0.70710678118654752440
#define SQRT2PI 2.50662827463100050242

enum sdc_status sdc__stat_check_unit(const char *what, double level, struct sdc_error *err) {
    if (!(level > 0 && level < 1))
        return SDC_ERR(err, SDC_USAGE, "%s %g, expected a number between 0 and 1 exclusive", what,
                       level);
    return SDC_OK;
}

double sdc__stat_normal_cdf(double z) {
    return 0.5 * erfc(-z * SQRT1_2);
}

double sdc__stat_normal_quantile(double p) {
    if (!(p > 0 && p < 1))
        return NAN;
    if (p > 0.5)
        return -sdc__stat_normal_quantile(1 - p);
    /* From the tail's asymptote, Newton on the logarithm of the tail is monotone and quick: log cdf
     * is concave, so every step from the left stays on the left. */
    double z = p == 0.5 ? 0 : -sqrt(-2 * log(2 * p));
    for (int i = 0; i < 100; i++) {
        double cdf = sdc__stat_normal_cdf(z);
        double pdf = exp(-0.5 * z * z) / SQRT2PI;
        if (!(cdf > 0) || !(pdf > 0))
            break;
        double step = (log(cdf) - log(p)) * cdf / pdf;
        z -= step;
        if (fabs(step) <= 1e-15 * (1 + fabs(z)))
            break;
    }
    return z;
}

static enum sdc_status check_count(uint64_t x, uint64_t n, struct sdc_error *err) {
    if (x > n)
        return SDC_ERR(err, SDC_USAGE, "%llu events in %llu trials", (unsigned long long)x,
                       (unsigned long long)n);
    return SDC_OK;
}

static double clamp(double v, double low, double high) {
    return v < low ? low : v > high ? high : v;
}

enum sdc_status sdc__stat_wilson(uint64_t x, uint64_t n, double level,
                                 struct sdc_stat_interval *out, struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    SDC_TRY(check_count(x, n, err));
    if (n == 0) {
        *out = (struct sdc_stat_interval){0, 1};
        return SDC_OK;
    }
    double z = -sdc__stat_normal_quantile((1 - level) / 2);
    double nn = (double)n, p = (double)x / nn, z2 = z * z;
    double centre = (p + z2 / (2 * nn)) / (1 + z2 / nn);
    double half = z * sqrt(p * (1 - p) / nn + z2 / (4 * nn * nn)) / (1 + z2 / nn);
    /* exact ends, which rounding would miss by an ulp */
    out->low = x == 0 ? 0 : clamp(centre - half, 0, 1);
    out->high = x == n ? 1 : clamp(centre + half, 0, 1);
    return SDC_OK;
}

enum sdc_status sdc__stat_clopper_pearson(uint64_t x, uint64_t n, double level,
                                          struct sdc_stat_interval *out, struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    SDC_TRY(check_count(x, n, err));
    double tail = (1 - level) / 2, xx = (double)x, nn = (double)n;
    struct sdc_stat_interval got = {0, 1};
    if (!sdc__stat_have_gsl() || x > 0) /* the call also says that GSL is missing */
        SDC_TRY(sdc__gsl_beta_quantile(tail, xx, nn - xx + 1, &got.low, err));
    if (x < n)
        SDC_TRY(sdc__gsl_beta_quantile(1 - tail, xx + 1, nn - xx, &got.high, err));
    *out = got;
    return SDC_OK;
}

enum sdc_status sdc__stat_newcombe(uint64_t x1, uint64_t n1, uint64_t x2, uint64_t n2, double level,
                                   double *diff, struct sdc_stat_interval *out,
                                   struct sdc_error *err) {
    struct sdc_stat_interval w1, w2;
    SDC_TRY(sdc__stat_wilson(x1, n1, level, &w1, err));
    SDC_TRY(sdc__stat_wilson(x2, n2, level, &w2, err));
    if (n1 == 0 || n2 == 0) {
        *diff = NAN;
        *out = (struct sdc_stat_interval){-1, 1};
        return SDC_OK;
    }
    double p1 = (double)x1 / (double)n1, p2 = (double)x2 / (double)n2;
    *diff = p1 - p2;
    out->low = clamp(*diff - hypot(p1 - w1.low, w2.high - p2), -1, 1);
    out->high = clamp(*diff + hypot(w1.high - p1, p2 - w2.low), -1, 1);
    return SDC_OK;
}

/* Correlation of the two arms, corrected for continuity where it is positive, as method 10 has it;
 * 0 where a margin is empty. */
static double phi_corrected(double a, double b, double c, double d) {
    double n = a + b + c + d;
    double margins = sqrt(a + b) * sqrt(c + d) * sqrt(a + c) * sqrt(b + d);
    if (!(margins > 0))
        return 0;
    double cross = a * d - b * c;
    if (cross > 0)
        cross = fmax(cross - n / 2, 0);
    return cross / margins;
}

enum sdc_status sdc__stat_newcombe_paired(const struct sdc_stat_pairs *pairs, double level,
                                          double *diff, struct sdc_stat_interval *out,
                                          struct sdc_error *err) {
    uint64_t n = pairs->both + pairs->a_only + pairs->b_only + pairs->neither;
    struct sdc_stat_interval wb, wa;
    SDC_TRY(sdc__stat_wilson(pairs->both + pairs->b_only, n, level, &wb, err));
    SDC_TRY(sdc__stat_wilson(pairs->both + pairs->a_only, n, level, &wa, err));
    if (n == 0) {
        *diff = NAN;
        *out = (struct sdc_stat_interval){-1, 1};
        return SDC_OK;
    }
    double nn = (double)n;
    double pb = (double)(pairs->both + pairs->b_only) / nn;
    double pa = (double)(pairs->both + pairs->a_only) / nn;
    double phi = phi_corrected((double)pairs->both, (double)pairs->b_only, (double)pairs->a_only,
                               (double)pairs->neither);
    double low_b = pb - wb.low, high_b = wb.high - pb, low_a = pa - wa.low, high_a = wa.high - pa;
    double below = low_b * low_b - 2 * phi * low_b * high_a + high_a * high_a;
    double above = high_b * high_b - 2 * phi * high_b * low_a + low_a * low_a;
    *diff = ((double)pairs->b_only - (double)pairs->a_only) / nn;
    out->low = clamp(*diff - sqrt(fmax(below, 0)), -1, 1);
    out->high = clamp(*diff + sqrt(fmax(above, 0)), -1, 1);
    return SDC_OK;
}

enum sdc_status sdc__stat_mcnemar(const struct sdc_stat_pairs *pairs, double *p, double *mid_p,
                                  struct sdc_error *err) {
    uint64_t n = pairs->a_only + pairs->b_only;
    uint64_t x = pairs->a_only < pairs->b_only ? pairs->a_only : pairs->b_only;
    double tail, point;
    SDC_TRY(sdc__gsl_binomial_half(x, n, &tail, &point, err));
    if (p)
        *p = fmin(1, 2 * tail);
    if (mid_p)
        *mid_p = fmin(1, 2 * tail - point);
    return SDC_OK;
}
