/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/kernels.h"

#include <math.h>
#include <string.h>

#include "base/guard.h"

/* One version of a function for each of these instruction sets, the best taken at load time. They
 * compute the same bits: -ffp-contract=off, no fast-math. Sanitizers do not go with the resolvers
 * that run before them. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&      \
    defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));
typedef double f64x8 __attribute__((vector_size(64)));

/* ---- histograms ---- */

/* Neighbours often have the same exponent; counted in the same table each increment would wait for
 * the one before it. */
#define TABLES 8

/* Is there an element whose mantissa is zero? Rare but in tensors of zeros. */
CLONES static bool round_f32(const unsigned char *p, size_t n) {
    i32x16 any = {0};
    int32_t lanes[16], found = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        u32x16 v;
        memcpy(&v, p + 4 * i, sizeof v);
        any |= (i32x16)((v & 0x7fffffu) == 0);
    }
    memcpy(lanes, &any, sizeof lanes);
    for (int k = 0; k < 16; k++)
        found |= lanes[k];
    for (; i < n; i++) {
        uint32_t raw;
        memcpy(&raw, p + 4 * i, sizeof raw);
        found |= (raw & 0x7fffffu) == 0;
    }
    return found != 0;
}

/* Exponents of F32 alone, two elements a load. */
static void exponents_f32(const unsigned char *p, size_t n, uint64_t *bins) {
    uint32_t t[TABLES][256] = {{0}};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w[4];
        memcpy(w, p + 4 * i, sizeof w);
        t[0][w[0] >> 23 & 0xff]++;
        t[1][w[0] >> 55 & 0xff]++;
        t[2][w[1] >> 23 & 0xff]++;
        t[3][w[1] >> 55 & 0xff]++;
        t[4][w[2] >> 23 & 0xff]++;
        t[5][w[2] >> 55 & 0xff]++;
        t[6][w[3] >> 23 & 0xff]++;
        t[7][w[3] >> 55 & 0xff]++;
    }
    for (; i < n; i++) {
        uint32_t raw;
        memcpy(&raw, p + 4 * i, sizeof raw);
        t[0][raw >> 23 & 0xff]++;
    }
    for (size_t k = 0; k < 256; k++)
        for (size_t j = 0; j < TABLES; j++)
            bins[2 * k] += t[j][k];
}

#define F32_BIN(raw) (((raw) >> 22 & 0x1feu) | (((raw)&0x7fffffu) == 0))

void sdc__hist_f32(const void *elements, size_t n, uint64_t *bins) {
    const unsigned char *p = elements;
    if (!round_f32(p, n)) {
        exponents_f32(p, n, bins);
        return;
    }
    uint32_t t[4][512] = {{0}};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32_t v[4];
        memcpy(v, p + 4 * i, sizeof v);
        t[0][F32_BIN(v[0])]++;
        t[1][F32_BIN(v[1])]++;
        t[2][F32_BIN(v[2])]++;
        t[3][F32_BIN(v[3])]++;
    }
    for (; i < n; i++) {
        uint32_t raw;
        memcpy(&raw, p + 4 * i, sizeof raw);
        t[0][F32_BIN(raw)]++;
    }
    for (size_t k = 0; k < 512; k++)
        bins[k] += (uint64_t)t[0][k] + t[1][k] + t[2][k] + t[3][k];
}

void sdc__hist_f64(const void *elements, size_t n, uint64_t *bins) {
    const unsigned char *p = elements;
    for (size_t i = 0; i < n; i++) {
        uint64_t raw;
        memcpy(&raw, p + 8 * i, sizeof raw);
        bins[(raw >> 51 & 0xffe) | ((raw & 0xfffffffffffffu) == 0)]++;
    }
}

#define SHORT_BIN(raw, m, top)                                                                     \
    (((raw) >> ((m)-1) & ((top) << 1)) | (((raw) & ((1u << (m)) - 1)) == 0))

#define HIST_SHORT(name, m, top)                                                                   \
    void name(const void *elements, size_t n, uint64_t *bins) {                                    \
        const unsigned char *p = elements;                                                         \
        uint32_t t[4][2 * (top) + 2] = {{0}};                                                      \
        size_t i = 0;                                                                              \
        for (; i + 4 <= n; i += 4) {                                                               \
            uint16_t v[4];                                                                         \
            memcpy(v, p + 2 * i, sizeof v);                                                        \
            t[0][SHORT_BIN(v[0], m, top)]++;                                                       \
            t[1][SHORT_BIN(v[1], m, top)]++;                                                       \
            t[2][SHORT_BIN(v[2], m, top)]++;                                                       \
            t[3][SHORT_BIN(v[3], m, top)]++;                                                       \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            uint16_t raw;                                                                          \
            memcpy(&raw, p + 2 * i, sizeof raw);                                                   \
            t[0][SHORT_BIN(raw, m, top)]++;                                                        \
        }                                                                                          \
        for (size_t k = 0; k < 2 * (top) + 2; k++)                                                 \
            bins[k] += (uint64_t)t[0][k] + t[1][k] + t[2][k] + t[3][k];                            \
    }

HIST_SHORT(sdc__hist_f16, 10, 31u)
HIST_SHORT(sdc__hist_bf16, 7, 255u)

void sdc__hist_bytes(const void *elements, size_t n, uint64_t *bins) {
    const unsigned char *p = elements;
    uint32_t t[4][256] = {{0}};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        t[0][p[i]]++;
        t[1][p[i + 1]]++;
        t[2][p[i + 2]]++;
        t[3][p[i + 3]]++;
    }
    for (; i < n; i++)
        t[0][p[i]]++;
    for (size_t k = 0; k < 256; k++)
        bins[k] += (uint64_t)t[0][k] + t[1][k] + t[2][k] + t[3][k];
}

#define INTS(name, type, turn)                                                                     \
    void name(const void *elements, size_t n, double *x, uint64_t *bins, struct sdc_ends *ends) {  \
        const unsigned char *p = elements;                                                         \
        *ends = (struct sdc_ends){UINT64_MAX, 0};                                                  \
        for (size_t i = 0; i < n; i++) {                                                           \
            type v;                                                                                \
            memcpy(&v, p + sizeof v * i, sizeof v);                                                \
            uint64_t wide = (uint64_t)v, key = wide ^ (turn);                                      \
            uint64_t size = (turn) != 0 && wide >> 63 ? 0 - wide : wide;                           \
            bins[size ? 64 - __builtin_clzll(size) : 0]++;                                         \
            x[i] = (double)v;                                                                      \
            ends->min = key < ends->min ? key : ends->min;                                         \
            ends->max = key > ends->max ? key : ends->max;                                         \
        }                                                                                          \
    }

#define SIGNED (UINT64_C(1) << 63)
INTS(sdc__ints_i16, int16_t, SIGNED)
INTS(sdc__ints_i32, int32_t, SIGNED)
INTS(sdc__ints_i64, int64_t, SIGNED)
INTS(sdc__ints_u16, uint16_t, UINT64_C(0))
INTS(sdc__ints_u32, uint32_t, UINT64_C(0))
INTS(sdc__ints_u64, uint64_t, UINT64_C(0))

/* ---- sums ---- */

static double fold(const f64x8 *v) {
    double s[8];
    memcpy(s, v, sizeof s);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* x where the mask is set, else y */
#define SELECT(mask, x, y, type, ints) ((type)(((ints)(x) & (mask)) | ((ints)(y) & ~(mask))))

CLONES static void sums_f32(const float *x, size_t n, double *sum, double *sq, float *min,
                            float *max) {
    f64x8 s[2] = {{0}, {0}}, q[2] = {{0}, {0}};
    f32x16 low, high;
    float lows[16], highs[16];
    size_t i = 0;
    for (size_t k = 0; k < 16; k++)
        lows[k] = x[0];
    memcpy(&low, lows, sizeof low);
    high = low;
    for (; i + 16 <= n; i += 16) {
        f32x16 v;
        f32x8 a, b;
        memcpy(&v, x + i, sizeof v);
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + 8, sizeof b);
        f64x8 da = __builtin_convertvector(a, f64x8), db = __builtin_convertvector(b, f64x8);
        s[0] += da;
        s[1] += db;
        q[0] += da * da;
        q[1] += db * db;
        low = SELECT(v < low, v, low, f32x16, i32x16);
        high = SELECT(v > high, v, high, f32x16, i32x16);
    }
    s[0] += s[1];
    q[0] += q[1];
    *sum = fold(&s[0]);
    *sq = fold(&q[0]);
    memcpy(lows, &low, sizeof lows);
    memcpy(highs, &high, sizeof highs);
    *min = lows[0];
    *max = highs[0];
    for (size_t k = 1; k < 16; k++) {
        *min = lows[k] < *min ? lows[k] : *min;
        *max = highs[k] > *max ? highs[k] : *max;
    }
    for (; i < n; i++) {
        *sum += (double)x[i];
        *sq += (double)x[i] * (double)x[i];
        *min = x[i] < *min ? x[i] : *min;
        *max = x[i] > *max ? x[i] : *max;
    }
}

CLONES static double spread_f32(const float *x, size_t n, double mean) {
    f64x8 m[2] = {{0}, {0}};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        f32x8 a, b;
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + 8, sizeof b);
        f64x8 da = __builtin_convertvector(a, f64x8) - mean;
        f64x8 db = __builtin_convertvector(b, f64x8) - mean;
        m[0] += da * da;
        m[1] += db * db;
    }
    m[0] += m[1];
    double m2 = fold(&m[0]);
    for (; i < n; i++)
        m2 += ((double)x[i] - mean) * ((double)x[i] - mean);
    return m2;
}

void sdc__moments_f32(const float *x, size_t n, struct sdc_moments *m) {
    double sum, sq;
    float min, max;
    sums_f32(x, n, &sum, &sq, &min, &max);
    double mean = sum / (double)n;
    *m = (struct sdc_moments){.n = n,
                              .mean = mean,
                              .m2 = (long double)spread_f32(x, n, mean),
                              .sq = (long double)sq,
                              .min = (double)min + 0.0,
                              .max = (double)max + 0.0};
}

CLONES static void sums_f64(const double *x, size_t n, double *sum, double *sq, double *min,
                            double *max) {
    f64x8 s = {0}, q = {0}, low, high;
    double lows[8], highs[8];
    size_t i = 0;
    for (size_t k = 0; k < 8; k++)
        lows[k] = x[0];
    memcpy(&low, lows, sizeof low);
    high = low;
    for (; i + 8 <= n; i += 8) {
        f64x8 v;
        memcpy(&v, x + i, sizeof v);
        s += v;
        q += v * v;
        low = SELECT(v < low, v, low, f64x8, i64x8);
        high = SELECT(v > high, v, high, f64x8, i64x8);
    }
    *sum = fold(&s);
    *sq = fold(&q);
    memcpy(lows, &low, sizeof lows);
    memcpy(highs, &high, sizeof highs);
    *min = lows[0];
    *max = highs[0];
    for (size_t k = 1; k < 8; k++) {
        *min = lows[k] < *min ? lows[k] : *min;
        *max = highs[k] > *max ? highs[k] : *max;
    }
    for (; i < n; i++) {
        *sum += x[i];
        *sq += x[i] * x[i];
        *min = x[i] < *min ? x[i] : *min;
        *max = x[i] > *max ? x[i] : *max;
    }
}

CLONES static double spread_f64(const double *x, size_t n, double mean) {
    f64x8 m = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f64x8 v;
        memcpy(&v, x + i, sizeof v);
        v -= mean;
        m += v * v;
    }
    double m2 = fold(&m);
    for (; i < n; i++)
        m2 += (x[i] - mean) * (x[i] - mean);
    return m2;
}

/* Values whose squares or sums are beyond double. */
static void wide_f64(const double *x, size_t n, struct sdc_moments *m) {
    long double sum = 0;
    m->sq = m->m2 = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (long double)x[i];
        m->sq += (long double)x[i] * (long double)x[i];
    }
    long double mean = sum / (long double)n;
    for (size_t i = 0; i < n; i++)
        m->m2 += ((long double)x[i] - mean) * ((long double)x[i] - mean);
    m->mean = (double)mean;
}

void sdc__moments_f64(const double *x, size_t n, struct sdc_moments *m) {
    double sum, sq, min, max;
    sums_f64(x, n, &sum, &sq, &min, &max);
    *m = (struct sdc_moments){.n = n, .min = min + 0.0, .max = max + 0.0};
    if (!isfinite(sum) || !isfinite(sq)) {
        wide_f64(x, n, m);
        return;
    }
    m->mean = sum / (double)n;
    m->m2 = (long double)spread_f64(x, n, m->mean);
    m->sq = (long double)sq;
}

void sdc__moments_join(struct sdc_moments *to, const struct sdc_moments *more) {
    if (more->n == 0)
        return;
    if (to->n == 0) {
        *to = *more;
        return;
    }
    long double na = (long double)to->n, nb = (long double)more->n, n = na + nb;
    long double delta = (long double)more->mean - (long double)to->mean;
    to->m2 += more->m2 + delta * delta * (na / n) * nb;
    to->mean = (double)((long double)to->mean + delta * (nb / n));
    to->sq += more->sq;
    to->n += more->n;
    to->min = more->min < to->min ? more->min : to->min;
    to->max = more->max > to->max ? more->max : to->max;
}

CLONES double sdc__squares_f32(const float *x, size_t n, uint64_t *nonfinite) {
    f64x8 q[2] = {{0}, {0}};
    i32x16 bad = {0}; /* lanes count downwards; n is far below 2^35 */
    int32_t lanes[16];
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        u32x16 raw;
        f32x8 a, b;
        memcpy(&raw, x + i, sizeof raw);
        i32x16 is_bad = (i32x16)((raw & 0x7f800000u) == 0x7f800000u);
        bad += is_bad;
        raw &= ~(u32x16)is_bad;
        memcpy(&a, &raw, sizeof a);
        memcpy(&b, (const char *)&raw + sizeof a, sizeof b);
        f64x8 da = __builtin_convertvector(a, f64x8), db = __builtin_convertvector(b, f64x8);
        q[0] += da * da;
        q[1] += db * db;
    }
    q[0] += q[1];
    double sum = fold(&q[0]);
    memcpy(lanes, &bad, sizeof lanes);
    for (size_t k = 0; k < 16; k++)
        *nonfinite += (uint64_t)(uint32_t)-lanes[k];
    for (; i < n; i++) {
        if (isfinite(x[i]))
            sum += (double)x[i] * (double)x[i];
        else
            ++*nonfinite;
    }
    return sum;
}

CLONES static double fast_squares_f64(const double *x, size_t n) {
    f64x8 q = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        f64x8 v;
        memcpy(&v, x + i, sizeof v);
        q += v * v;
    }
    double sum = fold(&q);
    for (; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

long double sdc__squares_f64(const double *x, size_t n, uint64_t *nonfinite) {
    double fast = fast_squares_f64(x, n);
    if (isfinite(fast))
        return (long double)fast;
    long double sum = 0; /* something is not finite, or beyond the root of the largest double */
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            sum += (long double)x[i] * (long double)x[i];
        else
            ++*nonfinite;
    }
    return sum;
}

/* ---- differences ---- */

/* Skips groups of 256 equal bytes. */
CLONES static size_t skip_equal(const unsigned char *a, const unsigned char *b, size_t from,
                                size_t n) {
    for (; from + 256 <= n; from += 256) {
        i64x8 x[4], y[4];
        int64_t lanes[8], any = 0;
        memcpy(x, a + from, sizeof x);
        memcpy(y, b + from, sizeof y);
        i64x8 d = ((x[0] ^ y[0]) | (x[1] ^ y[1])) | ((x[2] ^ y[2]) | (x[3] ^ y[3]));
        memcpy(lanes, &d, sizeof lanes);
        for (size_t k = 0; k < 8; k++)
            any |= lanes[k];
        if (any)
            break;
    }
    return from;
}

size_t sdc__next_difference(const unsigned char *a, const unsigned char *b, size_t from, size_t n) {
    from = skip_equal(a, b, from, n);
    for (; from + 64 <= n; from += 64) {
        uint64_t x[8], y[8], any = 0;
        memcpy(x, a + from, sizeof x);
        memcpy(y, b + from, sizeof y);
        for (size_t k = 0; k < 8; k++)
            any |= x[k] ^ y[k];
        if (any)
            return from;
    }
    return from < n && memcmp(a + from, b + from, n - from) != 0 ? from : n;
}

/* ---- conversions ---- */

void sdc__widen_bf16(const void *elements, size_t n, float *x) {
    const unsigned char *p = elements;
    for (size_t i = 0; i < n; i++) {
        uint16_t raw;
        memcpy(&raw, p + 2 * i, sizeof raw);
        uint32_t wide = (uint32_t)raw << 16;
        memcpy(x + i, &wide, sizeof wide);
    }
}

/* The fields move to their places, which makes the value 2^112 times too small, subnormals
 * included; a multiplication by a power of two mends that exactly. */
void sdc__widen_f16(const void *elements, size_t n, float *x) {
    const unsigned char *p = elements;
    for (size_t i = 0; i < n; i++) {
        uint16_t raw;
        memcpy(&raw, p + 2 * i, sizeof raw);
        uint32_t wide = ((uint32_t)raw & 0x7fffu) << 13, sign = ((uint32_t)raw & 0x8000u) << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        value *= 0x1p112f;
        memcpy(&wide, &value, sizeof wide);
        wide = (raw & 0x7c00u) == 0x7c00u ? 0x7f800000u | ((uint32_t)raw & 0x3ffu) << 13 : wide;
        wide |= sign;
        memcpy(x + i, &wide, sizeof wide);
    }
}

size_t sdc__finite_f32(const float *x, size_t n, float *to) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            to[kept++] = x[i];
    return kept;
}

size_t sdc__finite_f64(const double *x, size_t n, double *to) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]))
            to[kept++] = x[i];
    return kept;
}
