/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/diff_impl.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"

#define BLOCK 4096 /* elements compared as memory before they are looked at one by one */

static enum sdc_status add_site(struct sdc_diff_tensor *t, uint64_t elem, uint64_t a, uint64_t b,
                                struct sdc_error *err) {
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

/* How often each byte value was seen in the exclusive or, by place of the byte; folded into counts
 * of bits once a block. Four to eight increments an element instead of one for each bit. */
struct bytes_seen {
    uint32_t n[8][256];
    unsigned places;
};

static void fold_bits(struct sdc_diff_tensor *t, const struct bytes_seen *seen) {
    for (unsigned place = 0; place < seen->places; place++)
        for (unsigned value = 1; value < 256; value++)
            for (unsigned bits = value, n = seen->n[place][value]; n && bits; bits &= bits - 1)
                t->bit_counts[8 * place + (unsigned)__builtin_ctz(bits)] += n;
}

/* The same as sdc_num_load and sdc_num_to_double, without a call for the commonest types. */
static inline uint64_t load(enum sdc_dtype dtype, const unsigned char *p) {
    if (dtype == SDC_DTYPE_F32) {
        uint32_t raw;
        memcpy(&raw, p, sizeof raw);
        return raw;
    }
    return sdc_num_load(dtype, p, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static inline double to_double(enum sdc_dtype dtype, uint64_t raw) {
    if (dtype == SDC_DTYPE_F32) {
        uint32_t bits = (uint32_t)raw;
        float f;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    return sdc_num_to_double(dtype, raw);
}

struct element {
    uint64_t raw;
    double value;
    bool finite;
};

static void add_difference(enum sdc_dtype dtype, const struct element *a, const struct element *b,
                           struct sdc_diff_tensor *t, struct sdc_diff_sums *sums) {
    uint64_t ulps = 0;
    if (!isnan(a->value) && !isnan(b->value)) {
        ulps = sdc_num_ulp_distance(dtype, a->raw, b->raw);
        if (ulps > t->max_ulps)
            t->max_ulps = ulps;
    }
    if (!a->finite || !b->finite) {
        sums->nonfinite = true;
        t->max_relative = INFINITY;
        return;
    }
    /* of integers the exact difference, which doubles lose above 2^53 */
    long double d = sdc_dtype_kind(dtype) == SDC_KIND_FLOAT
                        ? fabsl((long double)b->value - (long double)a->value)
                        : (long double)ulps;
    sums->sq_diff += d * d;
    double relative = d == 0          ? 0
                      : a->value == 0 ? INFINITY
                                      : (double)(d / fabsl((long double)a->value));
    if (relative > t->max_relative)
        t->max_relative = relative;
}

/* Sum of squares of the finite ones of n floats, in eight interleaved sums added in a fixed order:
 * the compiler may then use vectors without changing the result. */
static double square_sum_f32(const unsigned char *p, uint64_t n, uint64_t *nonfinite) {
    double sum[8] = {0};
    uint32_t bad[8] = {0}; /* n is at most BLOCK */
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (unsigned k = 0; k < 8; k++) {
            uint32_t raw;
            float f;
            memcpy(&raw, p + 4 * (i + k), sizeof raw);
            bool is_bad = (raw & 0x7f800000u) == 0x7f800000u;
            bad[k] += is_bad;
            raw = is_bad ? 0 : raw;
            memcpy(&f, &raw, sizeof f);
            sum[k] += (double)f * (double)f;
        }
    for (; i < n; i++) {
        float f;
        memcpy(&f, p + 4 * i, sizeof f);
        if (isfinite(f))
            sum[0] += (double)f * (double)f;
        else
            bad[0]++;
    }
    for (unsigned k = 0; k < 8; k++)
        *nonfinite += bad[k];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* What equal elements add. */
static void add_equal(enum sdc_dtype dtype, const unsigned char *a, uint64_t n,
                      struct sdc_diff_tensor *t, struct sdc_diff_sums *sums) {
    unsigned size = sdc_dtype_bytes(dtype);
    uint64_t nonfinite = 0;
    if (dtype == SDC_DTYPE_F32) {
        sums->sq_a += (long double)square_sum_f32(a, n, &nonfinite);
    } else {
        for (uint64_t i = 0; i < n; i++) {
            double v = to_double(dtype, load(dtype, a + i * size));
            if (isfinite(v))
                sums->sq_a += (long double)v * (long double)v;
            else
                nonfinite++;
        }
    }
    t->n_nonfinite_a += nonfinite;
    t->n_nonfinite_b += nonfinite;
}

/* A block in which something differs. */
static enum sdc_status add_differing(enum sdc_dtype dtype, const unsigned char *a,
                                     const unsigned char *b, uint64_t first, uint64_t n,
                                     size_t max_sites, struct sdc_diff_tensor *t,
                                     struct sdc_diff_sums *sums, struct sdc_error *err) {
    const unsigned size = sdc_dtype_bytes(dtype);
    struct bytes_seen seen = {.places = size};
    for (uint64_t i = 0; i < n; i++) {
        struct element x = {.raw = load(dtype, a + i * size)},
                       y = {.raw = load(dtype, b + i * size)};
        x.value = to_double(dtype, x.raw);
        x.finite = isfinite(x.value);
        if (x.finite)
            sums->sq_a += (long double)x.value * (long double)x.value;
        t->n_nonfinite_a += !x.finite;
        if (x.raw == y.raw) {
            t->n_nonfinite_b += !x.finite;
            continue;
        }
        y.value = to_double(dtype, y.raw);
        y.finite = isfinite(y.value);
        t->n_nonfinite_b += !y.finite;
        t->n_differ++;
        uint64_t bits = x.raw ^ y.raw;
        t->n_bits += (uint64_t)__builtin_popcountll(bits);
        for (unsigned place = 0; place < size; place++)
            seen.n[place][bits >> 8 * place & 0xff]++;
        add_difference(dtype, &x, &y, t, sums);
        if (t->n_sites < max_sites)
            SDC_TRY(add_site(t, first + i, x.raw, y.raw, err));
    }
    fold_bits(t, &seen);
    return SDC_OK;
}

enum sdc_status sdc__diff_add(enum sdc_dtype dtype, const void *a, const void *b, uint64_t first,
                              uint64_t n, size_t max_sites, struct sdc_diff_tensor *t,
                              struct sdc_diff_sums *sums, struct sdc_error *err) {
    const unsigned char *pa = a, *pb = b;
    const unsigned size = sdc_dtype_bytes(dtype);
    for (uint64_t at = 0; at < n; at += BLOCK) {
        uint64_t m = n - at < BLOCK ? n - at : BLOCK;
        const unsigned char *qa = pa + at * size, *qb = pb + at * size;
        if (memcmp(qa, qb, (size_t)m * size) == 0)
            add_equal(dtype, qa, m, t, sums);
        else
            SDC_TRY(add_differing(dtype, qa, qb, first + at, m, max_sites, t, sums, err));
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
