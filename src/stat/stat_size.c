/* SPDX-License-Identifier: Apache-2.0
 *
 * How many trials, pairs, clusters or replicas a question needs.
 */
#include "stat/stat.h"

#include <math.h>

#include "base/guard.h"
#include "stat/stat_internal.h"

#define MAX_COUNT                                                                                  \
    1e15 /* above it a size is an answer nobody can use, and doubles lose integers                 \
          */

static enum sdc_status round_up(const char *what, double n, uint64_t *out, struct sdc_error *err) {
    if (!(n <= MAX_COUNT))
        return SDC_ERR(err, SDC_LIMIT, "%s: %g, over the limit of %g", what, n, MAX_COUNT);
    *out = (uint64_t)ceil(n - 1e-9 * n); /* 385.0000000001 is 385 */
    return SDC_OK;
}

static double upper_z(double two_sided_level) {
    return -sdc__stat_normal_quantile((1 - two_sided_level) / 2);
}

enum sdc_status sdc__stat_n_for_margin(double p, double margin, double level, uint64_t population,
                                       uint64_t *n, struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    SDC_TRY(sdc__stat_check_unit("proportion", p, err));
    SDC_TRY(sdc__stat_check_unit("margin", margin, err));
    double z = upper_z(level), unlimited = z * z * p * (1 - p) / (margin * margin);
    if (population == 0)
        return round_up("trials for the margin", unlimited, n, err);
    double all = (double)population;
    return round_up("trials for the margin", all / (1 + (all - 1) / unlimited), n, err);
}

enum sdc_status sdc__stat_n_two_arms(double p1, double p2, double level, double power, uint64_t *n,
                                     struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    SDC_TRY(sdc__stat_check_unit("power", power, err));
    SDC_TRY(sdc__stat_check_unit("proportion", p1, err));
    SDC_TRY(sdc__stat_check_unit("proportion", p2, err));
    double mean = (p1 + p2) / 2, diff = p1 - p2;
    double root = upper_z(level) * sqrt(2 * mean * (1 - mean)) +
                  sdc__stat_normal_quantile(power) * sqrt(p1 * (1 - p1) + p2 * (1 - p2));
    return round_up("trials of each arm", root * root / (diff * diff), n, err);
}

enum sdc_status sdc__stat_n_pairs(double a_only, double b_only, double level, double power,
                                  uint64_t *n, struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    SDC_TRY(sdc__stat_check_unit("power", power, err));
    if (!(a_only >= 0 && b_only >= 0 && a_only + b_only > 0 && a_only + b_only <= 1))
        return SDC_ERR(err, SDC_USAGE, "shares %g and %g of discordant pairs, expected 0 to 1",
                       a_only, b_only);
    double discordant = a_only + b_only, diff = a_only - b_only;
    double root = upper_z(level) * sqrt(discordant) +
                  sdc__stat_normal_quantile(power) * sqrt(discordant - diff * diff);
    return round_up("pairs", root * root / (diff * diff), n, err);
}

enum sdc_status sdc__stat_k_for_margin(double sd, double margin, double level, double power,
                                       uint64_t *k, struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("confidence level", level, err));
    SDC_TRY(sdc__stat_check_unit("power", power, err));
    if (!(sd >= 0) || isinf(sd) || !(margin > 0) || isinf(margin))
        return SDC_ERR(err, SDC_USAGE,
                       "standard deviation %g and margin %g, expected finite and positive numbers",
                       sd, margin);
    double ratio = sd / margin, reach = -sdc__stat_normal_quantile((1 - power) / 2);
    double z = upper_z(level), start = (z + reach) * (z + reach) * ratio * ratio;
    uint64_t n;
    SDC_TRY(round_up("clusters for the margin", start, &n, err));
    /* t exceeds z, so the answer is not below the start, and above 10^5 clusters they agree */
    for (n = n < 2 ? 2 : n; start < 1e5; n++) {
        double t;
        SDC_TRY(sdc__stat_t_quantile(1 - (1 - level) / 2, (double)(n - 1), &t, err));
        if ((t + reach) * ratio <= sqrt((double)n))
            break;
    }
    *k = n;
    return SDC_OK;
}

double sdc__stat_tolerance_confidence(uint64_t n, double coverage) {
    return -expm1((double)n * log(coverage));
}

double sdc__stat_tolerance_coverage(uint64_t n, double confidence) {
    return n == 0 ? 0 : exp(log1p(-confidence) / (double)n);
}

uint64_t sdc__stat_tolerance_n(double coverage, double confidence) {
    if (!(coverage > 0 && coverage < 1 && confidence > 0 && confidence < 1))
        return 0;
    double n = ceil(log1p(-confidence) / log(coverage) - 1e-9);
    return n < 1 ? 1 : (uint64_t)fmin(n, MAX_COUNT);
}

double sdc__stat_null_curve(double q, double n) {
    return n == 0 ? 0 : -expm1(n * log1p(-q));
}
