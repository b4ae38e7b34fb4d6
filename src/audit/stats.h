/* SPDX-License-Identifier: Apache-2.0
 *
 * What one pass over the elements of a tensor can tell: a histogram over exponents, sums, the
 * largest elements and those that are not finite. Sums depend in their last bits on where the
 * elements were cut into runs, so these cuts are fixed: see audit/walk.h.
 *
 * The histogram: of floats of 16 bits and more by exponent << 1 | (mantissa is zero); of integers
 * of 16 bits and more by the number of bits of the magnitude; of smaller types by the raw value.
 */
#ifndef SDC_AUDIT_STATS_H
#define SDC_AUDIT_STATS_H

#include "audit/kernels.h"
#include "sdc/num.h"
#include "sdc/status.h"

struct sdc_stat_site {
    uint64_t elem, raw;
    uint64_t size; /* |x| as a number that orders the values of one type */
};

struct sdc_stats {
    enum sdc_dtype dtype;
    bool sums;        /* moments and sites are wanted, not the histogram alone */
    size_t max_sites; /* of each list */
    uint64_t n;
    uint64_t *bins; /* owned, SDC_STAT_BINS */
    struct sdc_moments moments;
    bool has_ends; /* integers over 8 bits */
    struct sdc_ends ends;
    struct sdc_stat_site *largest;   /* finite ones, largest first, then by index; owned */
    struct sdc_stat_site *nonfinite; /* by index; owned */
    size_t n_largest, n_nonfinite;
    double *scratch; /* SDC_KERNEL_MAX; owned */
};

#define SDC_STAT_BINS 4096

enum sdc_status sdc__stats_init(struct sdc_stats *s, bool sums, size_t max_sites,
                                struct sdc_error *err) SDC_MUST_CHECK;
void sdc__stats_release(struct sdc_stats *s);
/* Forgets everything; the next elements are of this type. */
void sdc__stats_reset(struct sdc_stats *s, enum sdc_dtype dtype);
/* n elements in native order, as sdc_ckpt_read gives them, aligned to their size, the first of
 * which has this index; below 2^32. */
void sdc__stats_add(struct sdc_stats *s, const void *elements, uint64_t first, uint64_t n);
/* What follows `to` in the tensor. */
void sdc__stats_join(struct sdc_stats *to, const struct sdc_stats *more);
/* Completes the moments of types that are summed by their histogram. */
void sdc__stats_finish(struct sdc_stats *s);

struct sdc_stat_counts {
    uint64_t nan, inf, zero, subnormal, finite;
};
struct sdc_stat_counts sdc__stats_counts(const struct sdc_stats *s);

/* Order of magnitude: floor(log2 |x|) of floats (all subnormals of 16-bit types and wider count as
 * one below the smallest normal), number of bits of integers. False for zero, NaN, infinity. */
bool sdc__scale_of(enum sdc_dtype dtype, uint64_t raw, int *scale);
/* How many elements have each scale, from SDC_SCALE_MIN on. */
#define SDC_SCALE_MIN   (-1100)
#define SDC_SCALE_COUNT 2200
void sdc__stats_scales(const struct sdc_stats *s, uint64_t counts[SDC_SCALE_COUNT]);

/* Is the type counted by its exponent field? */
bool sdc__stats_by_exponent(enum sdc_dtype dtype);
/* Is it counted by its raw value? */
bool sdc__stats_by_value(enum sdc_dtype dtype);

#endif
