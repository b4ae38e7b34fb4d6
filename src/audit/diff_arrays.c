/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "audit/diff_impl.h"
#include "audit/kernels.h"
#include "base/alloc.h"
#include "base/guard.h"

#define RUN SDC_KERNEL_MAX /* elements whose squares are summed at once */

static enum sdc_status add_site(struct sdc_diff_tensor *t, const struct sdc_diff_site *site,
                                struct sdc_error *err) {
    if ((t->n_sites & (t->n_sites - 1)) == 0) { /* 0, 1, 2, 4, ...: full, or was once */
        struct sdc_diff_site *more =
            sdc__realloc(t->sites, t->n_sites ? t->n_sites * 2 : 1, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the differing elements");
        t->sites = more;
    }
    t->sites[t->n_sites++] = *site;
    return SDC_OK;
}

static void fold_bits(struct sdc_diff_part *p) {
    if (!p->any_seen)
        return;
    for (unsigned place = 0; place < sdc_dtype_bytes(p->t.dtype); place++)
        for (unsigned value = 1; value < 256; value++)
            for (unsigned bits = value, n = p->seen[place][value]; n && bits; bits &= bits - 1)
                p->t.bit_counts[8 * place + (unsigned)__builtin_ctz(bits)] += n;
    memset(p->seen, 0, sizeof p->seen);
    p->any_seen = false;
}

void sdc__diff_part_reset(struct sdc_diff_part *p, enum sdc_dtype dtype) {
    struct sdc_diff_site *sites = p->t.sites;
    p->t = (struct sdc_diff_tensor){.dtype = dtype, .sites = sites};
    p->sq_diff = p->sq_a = 0;
    p->nonfinite = false;
    if (p->any_seen)
        memset(p->seen, 0, sizeof p->seen);
    p->any_seen = false;
}

/* ---- one element ---- */

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

/* Both finite. */
static void add_distance(struct sdc_diff_part *p, double x, double y, uint64_t ulps,
                         const struct sdc_diff_rule *rule) {
    struct sdc_diff_tensor *t = &p->t;
    const long double size = fabsl((long double)x);
    /* of integers the exact difference, which doubles lose above 2^53 */
    long double d = sdc_dtype_kind(t->dtype) == SDC_KIND_FLOAT
                        ? fabsl((long double)y - (long double)x)
                        : (long double)ulps;
    p->sq_diff += d * d;
    if (d == 0) {
        t->n_zero_signs++;
        return;
    }
    t->n_values++;
    t->n_beyond += d > (long double)rule->atol + (long double)rule->rtol * size;
    double relative = x == 0 ? INFINITY : (double)(d / size);
    if (relative > t->max_relative)
        t->max_relative = relative;
    if ((double)d > t->max_absolute)
        t->max_absolute = (double)d;
}

static enum sdc_status add_element(struct sdc_diff_part *p, uint64_t elem, uint64_t a, uint64_t b,
                                   const struct sdc_diff_rule *rule, struct sdc_error *err) {
    struct sdc_diff_tensor *t = &p->t;
    const double x = to_double(t->dtype, a), y = to_double(t->dtype, b);
    const uint64_t bits = a ^ b;
    uint64_t ulps = 0;
    if (t->n_differ++ == 0)
        t->first_elem = elem;
    t->n_bits += (uint64_t)__builtin_popcountll(bits);
    p->any_seen = true;
    for (unsigned place = 0; place < sdc_dtype_bytes(t->dtype); place++)
        p->seen[place][bits >> 8 * place & 0xff]++;
    t->n_nonfinite_b += (uint64_t)!isfinite(y) - (uint64_t)!isfinite(x); /* a's are counted */
    if (!isnan(x) && !isnan(y)) {
        ulps = sdc_num_ulp_distance(t->dtype, a, b);
        t->max_ulps = ulps > t->max_ulps ? ulps : t->max_ulps;
    }
    if (isfinite(x) && isfinite(y)) {
        add_distance(p, x, y, ulps, rule);
    } else {
        p->nonfinite = true;
        t->max_relative = t->max_absolute = INFINITY;
        bool nan = isnan(x) && isnan(y);
        t->n_nan_bits += nan;
        t->n_values += !nan;
        t->n_beyond += !nan;
    }
    if (t->n_sites < rule->max_sites)
        return add_site(t, &(struct sdc_diff_site){.elem = elem, .a = a, .b = b}, err);
    return SDC_OK;
}

/* ---- runs ---- */

/* Of types of 8 bits and less: by how often each value occurs. */
static long double squares_by_value(enum sdc_dtype dtype, const unsigned char *a, size_t n,
                                    uint64_t *nonfinite) {
    uint64_t seen[256] = {0};
    long double sum = 0;
    sdc__hist_bytes(a, n, seen);
    for (unsigned v = 0; v < 256; v++) {
        if (seen[v] == 0)
            continue;
        double x = sdc_num_to_double(dtype, v);
        if (isfinite(x))
            sum += (long double)seen[v] * (long double)x * (long double)x;
        else
            *nonfinite += seen[v];
    }
    return sum;
}

/* Sum of squares of the finite ones of at most RUN elements. */
static long double squares(enum sdc_dtype dtype, const unsigned char *a, size_t n,
                           uint64_t *nonfinite) {
    static sdc__ints_fn *const ints[2][3] = {{sdc__ints_u16, sdc__ints_u32, sdc__ints_u64},
                                             {sdc__ints_i16, sdc__ints_i32, sdc__ints_i64}};
    const unsigned size = sdc_dtype_bytes(dtype);
    const bool is_signed = sdc_dtype_kind(dtype) == SDC_KIND_SINT;
    union {
        float f32[RUN];
        double f64[RUN];
    } wide;
    if (size == 1)
        return squares_by_value(dtype, a, n, nonfinite);
    if (sdc_dtype_kind(dtype) != SDC_KIND_FLOAT) {
        uint64_t bins[65];
        struct sdc_ends ends;
        memset(bins, 0, sizeof bins);
        ints[is_signed][size == 2 ? 0 : size == 4 ? 1 : 2](a, n, wide.f64, bins, &ends);
        return sdc__squares_f64(wide.f64, n, nonfinite);
    }
    const bool aligned = (uintptr_t)a % size == 0;
    if (size == 8)
        return sdc__squares_f64(aligned ? (const double *)(const void *)a
                                        : memcpy(wide.f64, a, n * sizeof(double)),
                                n, nonfinite);
    if (size == 4)
        return (long double)sdc__squares_f32(aligned ? (const float *)(const void *)a
                                                     : memcpy(wide.f32, a, n * sizeof(float)),
                                             n, nonfinite);
    if (sdc_dtype_exponent_bits(dtype) == 5)
        sdc__widen_f16(a, n, wide.f32);
    else
        sdc__widen_bf16(a, n, wide.f32);
    return (long double)sdc__squares_f32(wide.f32, n, nonfinite);
}

static enum sdc_status add_differing(struct sdc_diff_part *p, const unsigned char *a,
                                     const unsigned char *b, uint64_t first, size_t bytes,
                                     const struct sdc_diff_rule *rule, struct sdc_error *err) {
    const enum sdc_dtype dtype = p->t.dtype;
    const unsigned size = sdc_dtype_bytes(dtype);
    for (size_t at = sdc__next_difference(a, b, 0, bytes); at < bytes;
         at = sdc__next_difference(a, b, at, bytes)) {
        size_t end = bytes - at < 64 ? bytes : at + 64;
        for (; at < end; at += size) {
            uint64_t x = load(dtype, a + at), y = load(dtype, b + at);
            if (x != y)
                SDC_TRY(add_element(p, first + at / size, x, y, rule, err));
        }
    }
    return SDC_OK;
}

enum sdc_status sdc__diff_add(struct sdc_diff_part *p, const void *a, const void *b, uint64_t first,
                              uint64_t n, const struct sdc_diff_rule *rule, struct sdc_error *err) {
    const unsigned char *pa = a, *pb = b;
    const unsigned size = sdc_dtype_bytes(p->t.dtype);
    for (uint64_t at = 0; at < n; at += RUN) {
        size_t m = n - at < RUN ? (size_t)(n - at) : RUN;
        uint64_t nonfinite = 0;
        p->sq_a += squares(p->t.dtype, pa + at * size, m, &nonfinite);
        p->t.n_nonfinite_a += nonfinite;
        p->t.n_nonfinite_b += nonfinite;
        SDC_TRY(add_differing(p, pa + at * size, pb + at * size, first + at, m * size, rule, err));
    }
    p->t.n_elems += n;
    return SDC_OK;
}

enum sdc_status sdc__diff_join(struct sdc_diff_part *to, struct sdc_diff_part *more,
                               const struct sdc_diff_rule *rule, struct sdc_error *err) {
    struct sdc_diff_tensor *t = &to->t;
    const struct sdc_diff_tensor *m = &more->t;
    fold_bits(more);
    if (t->n_differ == 0)
        t->first_elem = m->first_elem;
    t->n_elems += m->n_elems;
    t->n_differ += m->n_differ;
    t->n_values += m->n_values;
    t->n_nan_bits += m->n_nan_bits;
    t->n_zero_signs += m->n_zero_signs;
    t->n_beyond += m->n_beyond;
    t->n_bits += m->n_bits;
    t->n_nonfinite_a += m->n_nonfinite_a;
    t->n_nonfinite_b += m->n_nonfinite_b;
    for (unsigned bit = 0; m->n_bits && bit < 64; bit++)
        t->bit_counts[bit] += m->bit_counts[bit];
    t->max_ulps = m->max_ulps > t->max_ulps ? m->max_ulps : t->max_ulps;
    t->max_relative = m->max_relative > t->max_relative ? m->max_relative : t->max_relative;
    t->max_absolute = m->max_absolute > t->max_absolute ? m->max_absolute : t->max_absolute;
    to->sq_diff += more->sq_diff;
    to->sq_a += more->sq_a;
    to->nonfinite |= more->nonfinite;
    for (size_t i = 0; i < m->n_sites && t->n_sites < rule->max_sites; i++)
        SDC_TRY(add_site(t, &m->sites[i], err));
    return SDC_OK;
}

void sdc__diff_finish(struct sdc_diff_part *p) {
    struct sdc_diff_tensor *t = &p->t;
    fold_bits(p);
    t->sum_sq_diff = p->nonfinite ? INFINITY : (double)p->sq_diff;
    t->sum_sq_a = (double)p->sq_a;
    if (p->nonfinite)
        t->distance = INFINITY;
    else if (p->sq_diff == 0)
        t->distance = 0;
    else if (p->sq_a == 0)
        t->distance = INFINITY;
    else
        t->distance = (double)(sqrtl(p->sq_diff) / sqrtl(p->sq_a));
}

enum sdc_status sdc_diff_arrays(enum sdc_dtype dtype, const void *a, const void *b, uint64_t n,
                                size_t max_sites, struct sdc_diff_tensor *t,
                                struct sdc_error *err) {
    const struct sdc_diff_rule rule = {.max_sites = max_sites};
    struct sdc_diff_part p = {.t = {.dtype = dtype}};
    const unsigned size = sdc_dtype_bytes(dtype);
    enum sdc_status st = SDC_OK;
    for (uint64_t at = 0; st == SDC_OK && at < n; at += UINT32_MAX & ~(uint64_t)(RUN - 1)) {
        uint64_t m = n - at, most = UINT32_MAX & ~(uint64_t)(RUN - 1);
        st = sdc__diff_add(&p, (const char *)a + at * size, (const char *)b + at * size, at,
                           m < most ? m : most, &rule, err);
        fold_bits(&p); /* before its counters are full */
    }
    if (st != SDC_OK) {
        sdc__free(p.t.sites);
        return st;
    }
    sdc__diff_finish(&p);
    p.t.name = t->name;
    p.t.name_b = t->name_b;
    p.t.why = t->why;
    p.t.part = t->part;
    p.t.role = t->role;
    *t = p.t;
    return SDC_OK;
}

void sdc_diff_tensor_release(struct sdc_diff_tensor *t) {
    sdc__free(t->name);
    sdc__free(t->name_b);
    sdc__free(t->why);
    sdc__free(t->sites);
    *t = (struct sdc_diff_tensor){0};
}
