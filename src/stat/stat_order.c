/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics, and the step-down adjustment, which orders p values.
 */
#include "stat/stat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "stat/stat_internal.h"

/* NaN last, so that it is a value of the sample like any other. */
static int compare_f64(const void *a, const void *b) {
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

static double type7(const double *sorted, size_t n, double prob) {
    double at = (double)(n - 1) * prob;
    size_t lower = (size_t)floor(at);
    double part = at - (double)lower;
    if (lower + 1 >= n || part == 0)
        return sorted[lower];
    double a = sorted[lower], b = sorted[lower + 1];
    if (a == b) /* also two infinities, whose difference would be NaN */
        return a;
    return a + part * (b - a);
}

enum sdc_status sdc__stat_quantiles(const double *values, size_t n, const double *probs,
                                    size_t n_probs, double *out, size_t *n_nan,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < n_probs; i++)
        if (!(probs[i] >= 0 && probs[i] <= 1))
            return SDC_ERR(err, SDC_USAGE, "quantile %g, expected a number from 0 to 1", probs[i]);
    size_t nan_count = 0;
    if (n == 0) {
        for (size_t i = 0; i < n_probs; i++)
            out[i] = NAN;
    } else {
        double *sorted = sdc__alloc(n, sizeof *sorted);
        if (!sorted)
            return SDC_NOMEM(err, "quantiles");
        memcpy(sorted, values, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, compare_f64);
        for (size_t i = 0; i < n; i++)
            nan_count += isnan(values[i]) ? 1 : 0;
        for (size_t i = 0; i < n_probs; i++)
            out[i] = type7(sorted, n, probs[i]);
        sdc__free(sorted);
    }
    if (n_nan)
        *n_nan = nan_count;
    return SDC_OK;
}

enum sdc_status sdc__stat_distances(const double *values, size_t n, struct sdc_stat_distances *out,
                                    struct sdc_error *err) {
    static const double probs[3] = {0.25, 0.5, 0.75};
    struct sdc_stat_distances got = {.n = n};
    double *copy = sdc__alloc(n, sizeof *copy), q[3];
    if (!copy)
        return SDC_NOMEM(err, "distances of a layer");
    for (size_t i = 0; i < n; i++) {
        copy[i] = isnan(values[i]) ? INFINITY : values[i];
        got.n_identical += values[i] == 0 ? 1 : 0;
        got.n_nonfinite += isfinite(values[i]) ? 0 : 1;
    }
    enum sdc_status st = sdc__stat_quantiles(copy, n, probs, 3, q, NULL, err);
    sdc__free(copy);
    if (st != SDC_OK)
        return st;
    got.q25 = q[0];
    got.median = q[1];
    got.q75 = q[2];
    *out = got;
    return SDC_OK;
}

struct ranked {
    double p;
    size_t index;
};

static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->p != y->p)
        return x->p < y->p ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static enum sdc_status rank_p(const double *p, size_t m, struct ranked **out,
                              struct sdc_error *err) {
    struct ranked *r = sdc__alloc(m, sizeof *r);
    if (!r)
        return SDC_NOMEM(err, "a family of tests");
    for (size_t i = 0; i < m; i++) {
        if (p[i] < 0 || p[i] > 1) {
            sdc__free(r);
            return SDC_ERR(err, SDC_USAGE, "p value %g of test %zu, expected 0 to 1", p[i], i);
        }
        r[i] = (struct ranked){isnan(p[i]) ? 1 : p[i], i};
    }
    qsort(r, m, sizeof *r, compare_ranked);
    *out = r;
    return SDC_OK;
}

enum sdc_status sdc__stat_holm(const double *p, size_t m, double *adjusted, struct sdc_error *err) {
    struct ranked *r;
    SDC_TRY(rank_p(p, m, &r, err));
    double largest = 0;
    for (size_t i = 0; i < m; i++) {
        largest = fmax(largest, fmin(1, (double)(m - i) * r[i].p));
        adjusted[r[i].index] = largest;
    }
    sdc__free(r);
    return SDC_OK;
}

enum sdc_status sdc__stat_holm_levels(const double *p, size_t m, double alpha, double *levels,
                                      struct sdc_error *err) {
    struct ranked *r;
    SDC_TRY(sdc__stat_check_unit("error rate", alpha, err));
    SDC_TRY(rank_p(p, m, &r, err));
    bool stopped = false;
    double each = 0;
    for (size_t i = 0; i < m; i++) {
        if (!stopped)
            each = alpha / (double)(m - i);
        stopped = stopped || r[i].p > each;
        levels[r[i].index] = 1 - each;
    }
    sdc__free(r);
    return SDC_OK;
}
