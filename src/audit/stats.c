/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/stats.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"

static bool is_float(enum sdc_dtype dtype) {
    return sdc_dtype_kind(dtype) == SDC_KIND_FLOAT;
}

bool sdc__stats_by_value(enum sdc_dtype dtype) {
    return sdc_dtype_bits(dtype) <= 8;
}

bool sdc__stats_by_exponent(enum sdc_dtype dtype) {
    return is_float(dtype) && !sdc__stats_by_value(dtype);
}

enum sdc_status sdc__stats_init(struct sdc_stats *s, bool sums, size_t max_sites,
                                struct sdc_error *err) {
    *s = (struct sdc_stats){.sums = sums, .max_sites = max_sites};
    s->bins = sdc__calloc(SDC_STAT_BINS, sizeof *s->bins);
    s->scratch = sdc__alloc(SDC_KERNEL_MAX, sizeof *s->scratch);
    s->largest = sdc__alloc(max_sites, sizeof *s->largest);
    s->nonfinite = sdc__alloc(max_sites, sizeof *s->nonfinite);
    if (s->bins && s->scratch && s->largest && s->nonfinite)
        return SDC_OK;
    sdc__stats_release(s);
    return SDC_NOMEM(err, "statistics");
}

void sdc__stats_release(struct sdc_stats *s) {
    sdc__free(s->bins);
    sdc__free(s->scratch);
    sdc__free(s->largest);
    sdc__free(s->nonfinite);
    *s = (struct sdc_stats){0};
}

static size_t bins_of(enum sdc_dtype dtype) {
    if (sdc__stats_by_value(dtype))
        return 256;
    return is_float(dtype) ? (size_t)2 << sdc_dtype_exponent_bits(dtype) : 65;
}

void sdc__stats_reset(struct sdc_stats *s, enum sdc_dtype dtype) {
    s->dtype = dtype;
    memset(s->bins, 0, bins_of(dtype) * sizeof *s->bins);
    s->n = 0;
    s->moments = (struct sdc_moments){0};
    s->has_ends = false;
    s->n_largest = s->n_nonfinite = 0;
}

/* ---- lists of elements ---- */

static uint64_t size_of(enum sdc_dtype dtype, uint64_t raw) {
    if (sdc__stats_by_exponent(dtype))
        return raw & ~sdc_num_field_mask(dtype, SDC_FIELD_SIGN);
    if (!sdc__stats_by_value(dtype)) {
        uint64_t sign = sdc_num_field_mask(dtype, SDC_FIELD_SIGN);
        return raw & sign ? (0 - raw) & (sign | (sign - 1)) : raw;
    }
    double value = fabs(sdc_num_to_double(dtype, raw));
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits); /* positive doubles have the order of their bits */
    return bits;
}

static bool larger(const struct sdc_stat_site *a, const struct sdc_stat_site *b) {
    return a->size != b->size ? a->size > b->size : a->elem < b->elem;
}

static bool earlier(const struct sdc_stat_site *a, const struct sdc_stat_site *b) {
    return a->elem < b->elem;
}

/* Into a list sorted by this order, of at most max; the last falls out. False: it did not fit. */
static bool insert(struct sdc_stat_site *list, size_t *n, size_t max,
                   const struct sdc_stat_site *site,
                   bool before(const struct sdc_stat_site *, const struct sdc_stat_site *)) {
    if (max == 0 || (*n == max && !before(site, &list[max - 1])))
        return false;
    size_t at = *n < max ? (*n)++ : max - 1;
    for (; at > 0 && before(site, &list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = *site;
    return true;
}

static bool add_site(struct sdc_stats *s, uint64_t elem, uint64_t raw) {
    struct sdc_stat_site site = {.elem = elem, .raw = raw};
    if (!sdc_num_is_finite(s->dtype, raw))
        return insert(s->nonfinite, &s->n_nonfinite, s->max_sites, &site, earlier);
    site.size = size_of(s->dtype, raw);
    return insert(s->largest, &s->n_largest, s->max_sites, &site, larger);
}

/* Would an element of this size come into the list of the largest? */
static bool wanted(const struct sdc_stats *s, uint64_t size) {
    return s->max_sites > 0 &&
           (s->n_largest < s->max_sites || size > s->largest[s->max_sites - 1].size);
}

/* The least size that such an element has, or that of infinity if those are still looked for. */
static uint64_t size_wanted(const struct sdc_stats *s) {
    const uint64_t infinity = sdc_num_field_mask(s->dtype, SDC_FIELD_EXPONENT);
    uint64_t cut = s->n_largest < s->max_sites ? 0 : s->largest[s->max_sites - 1].size + 1;
    bool open = infinity && s->n_nonfinite < s->max_sites;
    return open && infinity < cut ? infinity : cut;
}

static inline uint64_t load(const unsigned char *p, unsigned width) {
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (width) {
    case 2:
        memcpy(&u16, p, sizeof u16);
        return u16;
    case 4:
        memcpy(&u32, p, sizeof u32);
        return u32;
    default:
        memcpy(&u64, p, sizeof u64);
        return u64;
    }
}

/* Looks at each element of a run that holds one for a list. The size of an element of these types
 * is at most that of its bits without the sign, so most are passed by with one comparison. */
static void search(struct sdc_stats *s, const unsigned char *p, uint64_t first, size_t n) {
    const unsigned width = sdc_dtype_bytes(s->dtype);
    const uint64_t sign = sdc_num_field_mask(s->dtype, SDC_FIELD_SIGN);
    const uint64_t flip = is_float(s->dtype) ? 0 : UINT64_MAX >> (64 - 8 * width);
    uint64_t cut = size_wanted(s);
    for (size_t i = 0; i < n; i++) {
        uint64_t raw = load(p + i * width, width);
        uint64_t size = (raw & sign ? raw ^ flip : raw) & ~sign;
        if (size + 1 < cut) /* the size of a negative integer is one more */
            continue;
        (void)add_site(s, first + i, raw);
        cut = size_wanted(s);
    }
}

/* ---- runs ---- */

static void count_exponents(enum sdc_dtype dtype, const void *elements, size_t n, uint64_t *bins) {
    switch (sdc_dtype_bits(dtype)) {
    case 64:
        sdc__hist_f64(elements, n, bins);
        return;
    case 32:
        sdc__hist_f32(elements, n, bins);
        return;
    default:
        if (sdc_dtype_exponent_bits(dtype) == 5)
            sdc__hist_f16(elements, n, bins);
        else
            sdc__hist_bf16(elements, n, bins);
    }
}

static uint64_t nonfinite_count(const struct sdc_stats *s) {
    const uint64_t *top = s->bins + bins_of(s->dtype) - 2;
    return top[0] + top[1];
}

/* The moments of a run of floats; finite: all of them are. */
static void float_moments(struct sdc_stats *s, const unsigned char *p, size_t n, bool finite,
                          struct sdc_moments *m) {
    const unsigned bits = sdc_dtype_bits(s->dtype);
    m->n = 0;
    if (bits == 64) {
        const double *x = (const double *)(const void *)p;
        if (!finite) {
            n = sdc__finite_f64(x, n, s->scratch);
            x = s->scratch;
        }
        if (n > 0)
            sdc__moments_f64(x, n, m);
        return;
    }
    float *scratch = (float *)s->scratch;
    const float *x = scratch;
    if (bits == 32)
        x = (const float *)(const void *)p;
    else if (sdc_dtype_exponent_bits(s->dtype) == 5)
        sdc__widen_f16(p, n, scratch);
    else
        sdc__widen_bf16(p, n, scratch);
    if (!finite) {
        n = sdc__finite_f32(x, n, scratch);
        x = scratch;
    }
    if (n > 0)
        sdc__moments_f32(x, n, m);
}

static void add_floats(struct sdc_stats *s, const unsigned char *p, uint64_t first, size_t n,
                       bool all_finite) {
    struct sdc_moments m;
    float_moments(s, p, n, all_finite, &m);
    sdc__moments_join(&s->moments, &m);
    double most = m.n > 0 ? fmax(fabs(m.min), fabs(m.max)) : 0;
    if ((m.n < n && s->n_nonfinite < s->max_sites) ||
        (m.n > 0 && wanted(s, size_of(s->dtype, sdc_num_from_double(s->dtype, most)))))
        search(s, p, first, n);
}

static uint64_t size_of_key(uint64_t key, bool is_signed) {
    uint64_t wide = is_signed ? key ^ UINT64_C(1) << 63 : key;
    return is_signed && wide >> 63 ? 0 - wide : wide;
}

static void add_ints(struct sdc_stats *s, const unsigned char *p, uint64_t first, size_t n) {
    static sdc__ints_fn *const kernels[2][3] = {{sdc__ints_u16, sdc__ints_u32, sdc__ints_u64},
                                                {sdc__ints_i16, sdc__ints_i32, sdc__ints_i64}};
    const unsigned width = sdc_dtype_bytes(s->dtype);
    const bool is_signed = sdc_dtype_kind(s->dtype) == SDC_KIND_SINT;
    struct sdc_ends ends;
    struct sdc_moments m;
    kernels[is_signed][width == 2 ? 0 : width == 4 ? 1 : 2](p, n, s->scratch, s->bins, &ends);
    if (!s->sums)
        return;
    sdc__moments_f64(s->scratch, n, &m);
    sdc__moments_join(&s->moments, &m);
    s->ends.min = s->has_ends && s->ends.min < ends.min ? s->ends.min : ends.min;
    s->ends.max = s->has_ends && s->ends.max > ends.max ? s->ends.max : ends.max;
    s->has_ends = true;
    uint64_t low = size_of_key(ends.min, is_signed), high = size_of_key(ends.max, is_signed);
    if (wanted(s, low > high ? low : high))
        search(s, p, first, n);
}

/* ---- small types: by value ---- */

static void find_value(struct sdc_stats *s, const unsigned char *p, uint64_t first, size_t n,
                       unsigned value) {
    for (const unsigned char *at = p; at < p + n; at++) {
        at = memchr(at, (int)value, (size_t)(p + n - at));
        if (!at || !add_site(s, first + (uint64_t)(at - p), value))
            return; /* those after it are no better */
    }
}

static void add_bytes(struct sdc_stats *s, const unsigned char *p, uint64_t first, size_t n) {
    uint64_t seen[256] = {0};
    sdc__hist_bytes(p, n, seen);
    for (unsigned v = 0; v < 256; v++) {
        s->bins[v] += seen[v];
        if (s->sums && seen[v] > 0 &&
            (sdc_num_is_finite(s->dtype, v) ? wanted(s, size_of(s->dtype, v))
                                            : s->n_nonfinite < s->max_sites))
            find_value(s, p, first, n, v);
    }
}

/* ---- the whole ---- */

void sdc__stats_add(struct sdc_stats *s, const void *elements, uint64_t first, uint64_t n) {
    const unsigned char *p = elements;
    const unsigned width = sdc_dtype_bytes(s->dtype);
    s->n += n;
    if (sdc__stats_by_value(s->dtype)) {
        add_bytes(s, p, first, (size_t)n);
        return;
    }
    const bool floats = is_float(s->dtype);
    const uint64_t before = floats ? nonfinite_count(s) : 0;
    if (floats)
        count_exponents(s->dtype, p, (size_t)n, s->bins);
    if (floats && !s->sums)
        return;
    const bool all_finite = floats && nonfinite_count(s) == before;
    for (uint64_t at = 0; at < n; at += SDC_KERNEL_MAX) {
        size_t m = n - at < SDC_KERNEL_MAX ? (size_t)(n - at) : SDC_KERNEL_MAX;
        if (floats)
            add_floats(s, p + at * width, first + at, m, all_finite);
        else
            add_ints(s, p + at * width, first + at, m);
    }
}

void sdc__stats_join(struct sdc_stats *to, const struct sdc_stats *more) {
    const size_t n = bins_of(to->dtype);
    for (size_t i = 0; i < n; i++)
        to->bins[i] += more->bins[i];
    to->n += more->n;
    sdc__moments_join(&to->moments, &more->moments);
    if (more->has_ends) {
        to->ends.min =
            to->has_ends && to->ends.min < more->ends.min ? to->ends.min : more->ends.min;
        to->ends.max =
            to->has_ends && to->ends.max > more->ends.max ? to->ends.max : more->ends.max;
        to->has_ends = true;
    }
    for (size_t i = 0; i < more->n_largest; i++)
        (void)insert(to->largest, &to->n_largest, to->max_sites, &more->largest[i], larger);
    for (size_t i = 0; i < more->n_nonfinite; i++)
        (void)insert(to->nonfinite, &to->n_nonfinite, to->max_sites, &more->nonfinite[i], earlier);
}

void sdc__stats_finish(struct sdc_stats *s) {
    struct sdc_moments *m = &s->moments;
    long double sum = 0;
    if (!sdc__stats_by_value(s->dtype))
        return;
    *m = (struct sdc_moments){0};
    for (unsigned v = 0; v < 256; v++) {
        if (s->bins[v] == 0 || !sdc_num_is_finite(s->dtype, v))
            continue;
        double x = sdc_num_to_double(s->dtype, v) + 0.0;
        m->min = m->n == 0 || x < m->min ? x : m->min;
        m->max = m->n == 0 || x > m->max ? x : m->max;
        m->n += s->bins[v];
        sum += (long double)s->bins[v] * (long double)x;
        m->sq += (long double)s->bins[v] * (long double)x * (long double)x;
    }
    if (m->n == 0)
        return;
    long double mean = sum / (long double)m->n;
    m->mean = (double)mean;
    for (unsigned v = 0; v < 256; v++) {
        if (s->bins[v] == 0 || !sdc_num_is_finite(s->dtype, v))
            continue;
        long double d = (long double)sdc_num_to_double(s->dtype, v) - mean;
        m->m2 += (long double)s->bins[v] * d * d;
    }
}

struct sdc_stat_counts sdc__stats_counts(const struct sdc_stats *s) {
    struct sdc_stat_counts c = {0};
    if (sdc__stats_by_value(s->dtype)) {
        for (unsigned v = 0; v < 256; v++) {
            if (s->bins[v] == 0)
                continue;
            enum sdc_num_class class = sdc_num_class(s->dtype, v);
            c.nan += class == SDC_CLASS_NAN ? s->bins[v] : 0;
            c.inf += class == SDC_CLASS_INF ? s->bins[v] : 0;
            c.zero += class == SDC_CLASS_ZERO ? s->bins[v] : 0;
            c.subnormal += class == SDC_CLASS_SUBNORMAL ? s->bins[v] : 0;
        }
    } else if (is_float(s->dtype)) {
        const uint64_t *top = s->bins + bins_of(s->dtype) - 2;
        c = (struct sdc_stat_counts){
            .nan = top[0], .inf = top[1], .zero = s->bins[1], .subnormal = s->bins[0]};
    } else {
        c.zero = s->bins[0];
    }
    c.finite = s->n - c.nan - c.inf;
    return c;
}

/* ---- orders of magnitude ---- */

bool sdc__scale_of(enum sdc_dtype dtype, uint64_t raw, int *scale) {
    enum sdc_num_class class = sdc_num_class(dtype, raw);
    if (class == SDC_CLASS_ZERO || class == SDC_CLASS_INF || class == SDC_CLASS_NAN)
        return false;
    if (!is_float(dtype)) {
        uint64_t sign = sdc_num_field_mask(dtype, SDC_FIELD_SIGN);
        uint64_t size = raw & sign ? (0 - raw) & (sign | (sign - 1)) : raw;
        *scale = 64 - __builtin_clzll(size);
    } else if (sdc__stats_by_value(dtype)) {
        *scale = ilogb(sdc_num_to_double(dtype, raw));
    } else {
        unsigned e = sdc_dtype_exponent_bits(dtype), m = sdc_dtype_mantissa_bits(dtype);
        *scale = (int)(raw >> m & (((uint64_t)1 << e) - 1)) - ((1 << (e - 1)) - 1);
    }
    return true;
}

void sdc__stats_scales(const struct sdc_stats *s, uint64_t counts[SDC_SCALE_COUNT]) {
    const size_t n = bins_of(s->dtype);
    memset(counts, 0, SDC_SCALE_COUNT * sizeof *counts);
    if (sdc__stats_by_value(s->dtype)) {
        for (unsigned v = 0; v < 256; v++) {
            int scale;
            if (s->bins[v] > 0 && sdc__scale_of(s->dtype, v, &scale))
                counts[scale - SDC_SCALE_MIN] += s->bins[v];
        }
    } else if (is_float(s->dtype)) {
        int bias = (1 << (sdc_dtype_exponent_bits(s->dtype) - 1)) - 1;
        counts[-bias - SDC_SCALE_MIN] += s->bins[0];
        for (size_t e = 1; e + 1 < n / 2; e++)
            counts[(int)e - bias - SDC_SCALE_MIN] += s->bins[2 * e] + s->bins[2 * e + 1];
    } else {
        for (size_t bits = 1; bits < n; bits++)
            counts[(int)bits - SDC_SCALE_MIN] += s->bins[bits];
    }
}
