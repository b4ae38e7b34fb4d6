/* SPDX-License-Identifier: Apache-2.0
 *
 * Inner loops over short runs of elements: histograms over exponents and sums. Results depend on
 * the elements alone, never on the instruction set: lanes are fixed, integers are counted, nothing
 * is fused.
 *
 * Histograms: below 2^32 elements a call, and some thousands, or clearing the tables costs more
 * than counting. Sums and conversions: SDC_KERNEL_MAX elements at most, so that a run stays in the
 * first-level cache between two passes over it. Elements are aligned to their size.
 */
#ifndef SDC_AUDIT_KERNELS_H
#define SDC_AUDIT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SDC_KERNEL_MAX 4096

/* Sums over finite values. */
struct sdc_moments {
    uint64_t n;
    double mean;
    long double m2, sq; /* of (x - mean)^2 and of x^2 */
    double min, max;    /* zeros without a sign */
};

/* Adds to bins[exponent << 1 | (mantissa == 0)]: 64 of F16, 512 of F32 and BF16, 4,096 of F64. */
void sdc__hist_f16(const void *elements, size_t n, uint64_t *bins);
void sdc__hist_bf16(const void *elements, size_t n, uint64_t *bins);
void sdc__hist_f32(const void *elements, size_t n, uint64_t *bins);
void sdc__hist_f64(const void *elements, size_t n, uint64_t *bins);
/* Adds to bins[byte]. */
void sdc__hist_bytes(const void *elements, size_t n, uint64_t *bins);

/* Integers of 2, 4 and 8 bytes: adds to bins[bits of the magnitude] (65), widens to x, and finds
 * the ends as ordered keys: unsigned values themselves, signed ones with bit 63 of their 64-bit
 * form turned. n at least 1. */
struct sdc_ends {
    uint64_t min, max;
};
typedef void sdc__ints_fn(const void *elements, size_t n, double *x, uint64_t *bins,
                          struct sdc_ends *ends);
sdc__ints_fn sdc__ints_i16, sdc__ints_i32, sdc__ints_i64, sdc__ints_u16, sdc__ints_u32,
    sdc__ints_u64;

/* n at least 1, all finite. Blocks are combined by sdc__moments_join. */
void sdc__moments_f32(const float *x, size_t n, struct sdc_moments *m);
void sdc__moments_f64(const double *x, size_t n, struct sdc_moments *m);
/* to becomes the sums of both (Chan, Golub and LeVeque, 1979); order matters in the last bits. */
void sdc__moments_join(struct sdc_moments *to, const struct sdc_moments *more);

/* Sum of squares of the finite ones; the others are counted. Any n that the cache likes. */
double sdc__squares_f32(const float *x, size_t n, uint64_t *nonfinite);
long double sdc__squares_f64(const double *x, size_t n, uint64_t *nonfinite);

/* The first group of 64 bytes from `from` (a multiple of 64) on in which a and b differ; n: none.
 * The last group may be shorter. */
size_t sdc__next_difference(const unsigned char *a, const unsigned char *b, size_t from, size_t n);

/* Widens; exact, infinities and NaN stay what they are. */
void sdc__widen_f16(const void *elements, size_t n, float *x);
void sdc__widen_bf16(const void *elements, size_t n, float *x);
/* Moves the finite ones to the front of `to` (which may be x); returns how many. */
size_t sdc__finite_f32(const float *x, size_t n, float *to);
size_t sdc__finite_f64(const double *x, size_t n, double *to);

#endif
