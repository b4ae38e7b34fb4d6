/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/diff_impl.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"

#define BLOCK 4096 /* elements compared as memory before they are looked at one by one */

static enum sdc_status add_site(struct sdc_diff_tensor *t, size_t max_sites, uint64_t elem,
                                uint64_t a, uint64_t b, struct sdc_error *err) {
    if (t->n_sites >= max_sites)
        return SDC_OK;
    if ((t->n_sites & (t->n_sites - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        struct sdc_diff_site *more =
            sdc__realloc(t->sites, t->n_sites ? t->n_sites * 2 : 1, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the differing elements");
        t->sites = more;
    }
    t->sites[t->n_sites++] = (struct sdc_diff_site){.elem = elem, .a = a, .b = b};
    return SDC_OK;
}

static void add_bits(struct sdc_diff_tensor *t, uint64_t bits) {
    t->n_bits += (uint64_t)__builtin_popcountll(bits);
    for (; bits; bits &= bits - 1)
        t->bit_counts[__builtin_ctzll(bits)]++;
}

/* The integers' own difference: doubles lose it above 2^53. */
static long double difference(enum sdc_dtype dtype, uint64_t a, uint64_t b) {
    if (sdc_dtype_kind(dtype) == SDC_KIND_FLOAT)
        return (long double)sdc_num_to_double(dtype, b) - sdc_num_to_double(dtype, a);
    return (long double)sdc_num_ulp_distance(dtype, a, b);
}

static void add_difference(enum sdc_dtype dtype, uint64_t a, uint64_t b, struct sdc_diff_tensor *t,
                           struct sdc_diff_sums *sums) {
    bool nan = sdc_num_class(dtype, a) == SDC_CLASS_NAN || sdc_num_class(dtype, b) == SDC_CLASS_NAN;
    if (!nan) {
        uint64_t ulps = sdc_num_ulp_distance(dtype, a, b);
        if (ulps > t->max_ulps)
            t->max_ulps = ulps;
    }
    if (!sdc_num_is_finite(dtype, a) || !sdc_num_is_finite(dtype, b)) {
        sums->nonfinite = true;
        t->max_relative = INFINITY;
        return;
    }
    long double d = fabsl(difference(dtype, a, b));
    long double size = fabsl((long double)sdc_num_to_double(dtype, a));
    sums->sq_diff += d * d;
    double relative = d == 0 ? 0 : size == 0 ? INFINITY : (double)(d / size);
    if (relative > t->max_relative)
        t->max_relative = relative;
}

/* What equal elements add. */
static void add_equal(enum sdc_dtype dtype, const unsigned char *a, uint64_t n,
                      struct sdc_diff_tensor *t, struct sdc_diff_sums *sums) {
    unsigned size = sdc_dtype_bytes(dtype);
    uint64_t nonfinite = 0;
    double sum = 0; /* of one block: exact enough for a few thousand squares of narrow types */
    long double wide = 0;
    for (uint64_t i = 0; i < n; i++) {
        double v;
        if (dtype == SDC_DTYPE_F32) { /* by far the commonest; the compiler makes a tight loop */
            float f;
            memcpy(&f, a + i * 4, sizeof f);
            v = (double)f;
        } else {
            v = sdc_num_to_double(dtype, sdc_num_load(dtype, a + i * size, false));
        }
        if (!isfinite(v))
            nonfinite++;
        else if (dtype == SDC_DTYPE_F64)
            wide += (long double)v * v;
        else
            sum += v * v;
    }
    sums->sq_a += wide + sum;
    t->n_nonfinite_a += nonfinite;
    t->n_nonfinite_b += nonfinite;
}

enum sdc_status sdc__diff_add(enum sdc_dtype dtype, const void *a, const void *b, uint64_t first,
                              uint64_t n, size_t max_sites, struct sdc_diff_tensor *t,
                              struct sdc_diff_sums *sums, struct sdc_error *err) {
    const unsigned char *pa = a, *pb = b;
    const unsigned size = sdc_dtype_bytes(dtype);
    const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        uint64_t m = n - at < BLOCK ? n - at : BLOCK;
        const unsigned char *qa = pa + at * size, *qb = pb + at * size;
        if (memcmp(qa, qb, (size_t)m * size) == 0) {
            add_equal(dtype, qa, m, t, sums);
            continue;
        }
        for (uint64_t i = 0; i < m; i++) {
            uint64_t ra = sdc_num_load(dtype, qa + i * size, big);
            uint64_t rb = sdc_num_load(dtype, qb + i * size, big);
            bool finite = sdc_num_is_finite(dtype, ra);
            if (finite) {
                long double v = (long double)sdc_num_to_double(dtype, ra);
                sums->sq_a += v * v;
            }
            t->n_nonfinite_a += !finite;
            t->n_nonfinite_b += !sdc_num_is_finite(dtype, rb);
            if (ra == rb)
                continue;
            t->n_differ++;
            add_bits(t, ra ^ rb);
            add_difference(dtype, ra, rb, t, sums);
            SDC_TRY(add_site(t, max_sites, first + at + i, ra, rb, err));
        }
    }
    t->n_elems += n;
    return SDC_OK;
}

void sdc__diff_finish(struct sdc_diff_tensor *t, const struct sdc_diff_sums *sums) {
    t->sum_sq_diff = sums->nonfinite ? INFINITY : (double)sums->sq_diff;
    t->sum_sq_a = (double)sums->sq_a;
    if (sums->nonfinite)
        t->distance = INFINITY;
    else if (sums->sq_diff == 0)
        t->distance = 0;
    else if (sums->sq_a == 0)
        t->distance = INFINITY;
    else
        t->distance = (double)(sqrtl(sums->sq_diff) / sqrtl(sums->sq_a));
}

enum sdc_status sdc_diff_arrays(enum sdc_dtype dtype, const void *a, const void *b, uint64_t n,
                                size_t max_sites, struct sdc_diff_tensor *t,
                                struct sdc_error *err) {
    struct sdc_diff_sums sums = {0};
    struct sdc_diff_tensor fresh = {
        .name = t->name, .why = t->why, .part = t->part, .role = t->role, .dtype = dtype};
    enum sdc_status st = sdc__diff_add(dtype, a, b, 0, n, max_sites, &fresh, &sums, err);
    if (st != SDC_OK) {
        sdc__free(fresh.sites);
        return st;
    }
    sdc__diff_finish(&fresh, &sums);
    *t = fresh;
    return SDC_OK;
}

void sdc_diff_tensor_release(struct sdc_diff_tensor *t) {
    sdc__free(t->name);
    sdc__free(t->why);
    sdc__free(t->sites);
    *t = (struct sdc_diff_tensor){0};
}
