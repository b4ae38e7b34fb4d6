/* SPDX-License-Identifier: Apache-2.0
 *
 * The distributions that GSL computes, behind functions that exist in every build. Not for use
 * outside src/stat. Without GSL each returns SDC_UNSUPPORTED. Thread-safe: GSL's error handler,
 * which would abort the process, is switched off once.
 */
#ifndef SDC_STAT_STAT_GSL_H
#define SDC_STAT_STAT_GSL_H

#include <stdint.h>

#include "sdc/status.h"

/* Quantile of the beta distribution, 0 < p < 1, a and b > 0. */
enum sdc_status sdc__gsl_beta_quantile(double p, double a, double b, double *out,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* For X binomial (n, 1/2): P(X <= x) and P(X = x). */
enum sdc_status sdc__gsl_binomial_half(uint64_t x, uint64_t n, double *tail, double *point,
                                       struct sdc_error *err) SDC_MUST_CHECK;

#endif
