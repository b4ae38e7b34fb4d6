/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file that includes GSL. Every result is checked by its inverse, since a quantile search
 * that failed to converge looks like any other number.
 */
#include "stat/stat_gsl.h"

#include <math.h>
#include <stdio.h>

#include "base/guard.h"
#include "stat/stat.h"

#if SDC_HAVE_GSL

#include <limits.h>
#include <pthread.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_version.h>

static pthread_once_t handler_once = PTHREAD_ONCE_INIT;

static void handler_off(void) {
    gsl_set_error_handler_off();
}

static void prepare(void) {
    pthread_once(&handler_once, handler_off);
}

/* back is the probability at the quantile found for p. */
static bool round_trip(double back, double p) {
    double scale = fmin(p, 1 - p);
    return fabs(back - p) <= 1e-8 * scale + 1e-300;
}

bool sdc__stat_have_gsl(void) {
    return true;
}

enum sdc_status sdc__stat_t_quantile(double p, double df, double *out, struct sdc_error *err) {
    if (!(p > 0 && p < 1) || !(df > 0) || isinf(df))
        return SDC_ERR(
            err, SDC_USAGE,
            "quantile of Student's t: p %g and %g degrees of freedom, expected 0 < p < 1 "
            "and a positive finite number",
            p, df);
    prepare();
    double q = p < 0.5 ? gsl_cdf_tdist_Pinv(p, df) : gsl_cdf_tdist_Qinv(1 - p, df);
    double back = p < 0.5 ? gsl_cdf_tdist_P(q, df) : 1 - gsl_cdf_tdist_Q(q, df);
    if (!isfinite(q) || !round_trip(back, p))
        return SDC_ERR(
            err, SDC_INTERNAL,
            "quantile of Student's t at %.17g with %g degrees of freedom: GSL gave %.17g, "
            "whose probability is %.17g",
            p, df, q, back);
    *out = q;
    return SDC_OK;
}

enum sdc_status sdc__stat_t_two_sided(double t, double df, double *p, struct sdc_error *err) {
    if (!(df > 0) || isinf(df))
        return SDC_ERR(err, SDC_USAGE,
                       "Student's t with %g degrees of freedom, expected a positive finite number",
                       df);
    prepare();
    if (isnan(t))
        *p = NAN;
    else if (isinf(t))
        *p = 0;
    else
        *p = fmin(1, 2 * gsl_cdf_tdist_Q(fabs(t), df));
    return SDC_OK;
}

enum sdc_status sdc__gsl_beta_quantile(double p, double a, double b, double *out,
                                       struct sdc_error *err) {
    prepare();
    double q = gsl_cdf_beta_Pinv(p, a, b);
    double back = gsl_cdf_beta_P(q, a, b);
    if (!isfinite(q) || !round_trip(back, p))
        return SDC_ERR(err, SDC_INTERNAL,
                       "quantile of beta(%g, %g) at %.17g: GSL gave %.17g, whose probability is "
                       "%.17g",
                       a, b, p, q, back);
    *out = q;
    return SDC_OK;
}

enum sdc_status sdc__gsl_binomial_half(uint64_t x, uint64_t n, double *tail, double *point,
                                       struct sdc_error *err) {
    if (x > n || n > UINT_MAX)
        return SDC_ERR(err, SDC_LIMIT, "binomial of %llu in %llu: over the limit of %u trials",
                       (unsigned long long)x, (unsigned long long)n, UINT_MAX);
    prepare();
    unsigned k = (unsigned)x, m = (unsigned)n;
    double lower = gsl_cdf_binomial_P(k, 0.5, m), upper = gsl_cdf_binomial_Q(k, 0.5, m);
    if (!(fabs(lower + upper - 1) <= 1e-9))
        return SDC_ERR(err, SDC_INTERNAL,
                       "binomial of %u in %u: GSL's tails %g and %g do not add up", k, m, lower,
                       upper);
    *tail = lower;
    *point = gsl_ran_binomial_pdf(k, 0.5, m);
    return SDC_OK;
}

void sdc__stat_library(char *text, size_t size) {
    snprintf(text, size, "GSL built %s, running %s", GSL_VERSION, gsl_version);
}

#else

static enum sdc_status without(const char *what, struct sdc_error *err) {
    return SDC_ERR(err, SDC_UNSUPPORTED,
                   "%s needs GSL, and this program was built without it (-DSDC_GSL=OFF)", what);
}

bool sdc__stat_have_gsl(void) {
    return false;
}

enum sdc_status sdc__stat_t_quantile(double p, double df, double *out, struct sdc_error *err) {
    (void)p, (void)df, (void)out;
    return without("the quantile of Student's t", err);
}

enum sdc_status sdc__stat_t_two_sided(double t, double df, double *p, struct sdc_error *err) {
    (void)t, (void)df, (void)p;
    return without("Student's t test", err);
}

enum sdc_status sdc__gsl_beta_quantile(double p, double a, double b, double *out,
                                       struct sdc_error *err) {
    (void)p, (void)a, (void)b, (void)out;
    return without("the exact interval of a proportion", err);
}

enum sdc_status sdc__gsl_binomial_half(uint64_t x, uint64_t n, double *tail, double *point,
                                       struct sdc_error *err) {
    (void)x, (void)n, (void)tail, (void)point;
    return without("McNemar's exact test", err);
}

void sdc__stat_library(char *text, size_t size) {
    snprintf(text, size, "GSL left out: no claims");
}

#endif
