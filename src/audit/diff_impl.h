/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing two arrays piece by piece; used by the comparison of arrays and of files.
 */
#ifndef SDC_AUDIT_DIFF_IMPL_H
#define SDC_AUDIT_DIFF_IMPL_H

#include "sdc/audit.h"

/* What was found in some run of elements of a tensor; joined in order. */
struct sdc_diff_part {
    struct sdc_diff_tensor t;  /* counts and sites alone */
    long double sq_diff, sq_a; /* wider than double: the square of a double may be beyond it */
    bool nonfinite;            /* some difference is not finite */
    /* How often each byte value was seen in the exclusive or, by place of the byte; folded into
     * counts of bits. Four to eight increments an element instead of one for each bit. */
    uint32_t seen[8][256];
    bool any_seen;
};

struct sdc_diff_rule {
    size_t max_sites;
    double rtol, atol;
};

/* Empties it, sites kept for reuse. */
void sdc__diff_part_reset(struct sdc_diff_part *p, enum sdc_dtype dtype);
/* Adds n elements (below 2^32), the first of which has index `first`. */
enum sdc_status sdc__diff_add(struct sdc_diff_part *p, const void *a, const void *b, uint64_t first,
                              uint64_t n, const struct sdc_diff_rule *rule, struct sdc_error *err);
/* What follows `to`. */
enum sdc_status sdc__diff_join(struct sdc_diff_part *to, struct sdc_diff_part *more,
                               const struct sdc_diff_rule *rule, struct sdc_error *err);
/* Distances from the sums. */
void sdc__diff_finish(struct sdc_diff_part *p);

#endif
