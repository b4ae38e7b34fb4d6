/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing two arrays piece by piece; used by the comparison of arrays and of files.
 */
#ifndef SDC_AUDIT_DIFF_IMPL_H
#define SDC_AUDIT_DIFF_IMPL_H

#include "sdc/audit.h"

struct sdc_diff_sums {
    long double sq_diff, sq_a; /* wider than double: the square of a double may be beyond it */
    bool nonfinite;            /* some difference is not finite */
};

/* Adds n elements, the first of which has index `first`. */
enum sdc_status sdc__diff_add(enum sdc_dtype dtype, const void *a, const void *b, uint64_t first,
                              uint64_t n, size_t max_sites, struct sdc_diff_tensor *t,
                              struct sdc_diff_sums *sums, struct sdc_error *err);
void sdc__diff_finish(struct sdc_diff_tensor *t, const struct sdc_diff_sums *sums);

#endif
