/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/reduce.h"

#include <string.h>

#include "base/guard.h"
#include "num/half.h"

#define GLOO_SEGMENT_BYTES ((size_t)1024 * 1024)
#define BLOCK              512 /* elements summed at a time, so that partial sums stay in cache */
#define MAX_LEVELS         8   /* log2 of the most ranks, and one */

const char *sdc_sum_name(enum sdc_sum sum) {
    static const char *const names[] = {
#define SDC_SUM_TEXT(name, text, redundant) text,
        SDC_SUM_MAP(SDC_SUM_TEXT)
#undef SDC_SUM_TEXT
    };
    return names[sum];
}

bool sdc_sum_redundant(enum sdc_sum sum) {
    static const bool redundants[] = {
#define SDC_SUM_REDUNDANT(name, text, redundant) redundant,
        SDC_SUM_MAP(SDC_SUM_REDUNDANT)
#undef SDC_SUM_REDUNDANT
    };
    return redundants[sum];
}

/* ---- Open MPI's choice ---- */

struct choice {
    size_t below; /* bytes; SIZE_MAX: any */
    enum sdc_sum sum;
};

static const struct choice up_to_3[] = {
    {8, SDC_SUM_OMPI_RING},
    {4096, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
    {8192, SDC_SUM_OMPI_RING},
    {16384, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
    {65536, SDC_SUM_OMPI_RING},
    {262144, SDC_SUM_OMPI_SEGMENTED_RING},
    {SIZE_MAX, SDC_SUM_OMPI_RABENSEIFNER},
};
static const struct choice up_to_7[] = {
    {16, SDC_SUM_OMPI_RING},
    {8192, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
    {SIZE_MAX, SDC_SUM_OMPI_RABENSEIFNER},
};
static const struct choice up_to_15[] = {
    {8192, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
    {SIZE_MAX, SDC_SUM_OMPI_RABENSEIFNER},
};
static const struct choice up_to_31[] = {
    {64, SDC_SUM_OMPI_SEGMENTED_RING},
    {4096, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
    {SIZE_MAX, SDC_SUM_OMPI_RABENSEIFNER},
};
static const struct choice up_to_63[] = {
    {128, SDC_SUM_OMPI_SEGMENTED_RING},
    {SIZE_MAX, SDC_SUM_OMPI_RABENSEIFNER},
};
static const struct choice up_to_127[] = {
    {262144, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
    {SIZE_MAX, SDC_SUM_OMPI_RABENSEIFNER},
};

static const struct {
    unsigned ranks;
    const struct choice *choices;
} choices_by_ranks[] = {
    {3, up_to_3}, {7, up_to_7}, {15, up_to_15}, {31, up_to_31}, {63, up_to_63}, {127, up_to_127},
};

enum sdc_sum sdc_sum_ompi_choice(unsigned ranks, size_t n, size_t elem_size) {
    size_t row = 0;
    while (row + 1 < sizeof choices_by_ranks / sizeof choices_by_ranks[0] &&
           ranks > choices_by_ranks[row].ranks)
        row++;
    const struct choice *c = choices_by_ranks[row].choices;
    while (c->below != SIZE_MAX && n * elem_size >= c->below)
        c++;
    /* the rings cannot work with an empty block and hand over */
    bool ring = c->sum == SDC_SUM_OMPI_RING || c->sum == SDC_SUM_OMPI_SEGMENTED_RING;
    return ring && n < ranks ? SDC_SUM_OMPI_RECURSIVE_DOUBLING : c->sum;
}

/* ---- geometry ---- */

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t ceil_div(size_t a, size_t b) {
    return (a + b - 1) / b;
}

/* Elements, of es bytes, of all chunks but the last: gloo/allreduce.cc, ring(). */
static size_t gloo_chunk(size_t es, unsigned ranks, size_t n) {
    size_t bytes = n * es;
    size_t segments = ceil_div(bytes, GLOO_SEGMENT_BYTES);
    if (segments < 2 * (size_t)ranks)
        segments = 2 * (size_t)ranks;
    segments = ceil_div(segments, ranks) * ranks;
    size_t segment = ceil_div(ceil_div(bytes, segments), es); /* elements */
    return segment * (segments / ranks);
}

/* Block b of n elements in `parts` nearly equal blocks, the first n % parts one longer. */
static size_t even_block(size_t n, unsigned parts, size_t b) {
    return n / parts * b + min_size(b, n % parts);
}

/* Where block b starts; b may be `ranks` (then n). Both rings sum by blocks. */
static size_t block_start(enum sdc_sum sum, size_t es, unsigned ranks, size_t n, unsigned b) {
    if (sum == SDC_SUM_GLOO_RING)
        return min_size(n, gloo_chunk(es, ranks, n) * b);
    return even_block(n, ranks, b);
}

void sdc_sum_part(enum sdc_sum sum, enum sdc_dtype type, unsigned ranks, size_t n, unsigned rank,
                  size_t *first, size_t *end) {
    if (sdc_sum_redundant(sum)) {
        *first = 0;
        *end = n;
        return;
    }
    /* Open MPI's ring finishes block b on rank b - 1 */
    bool ring = sum == SDC_SUM_OMPI_RING || sum == SDC_SUM_OMPI_SEGMENTED_RING;
    unsigned block = ring ? (rank + 1) % ranks : rank;
    size_t es = sdc_sum_size(type);
    *first = block_start(sum, es, ranks, n, block);
    *end = block_start(sum, es, ranks, n, block + 1);
}

/* ---- sums ---- */

size_t sdc_sum_size(enum sdc_dtype type) {
    bool known = type == SDC_DTYPE_F32 || type == SDC_DTYPE_F64 || type == SDC_DTYPE_F16;
    return known ? sdc_dtype_bits(type) / 8 : 0;
}

/* acc = own + acc, as each hop of a ring does with what it received; one for each type. */
typedef void adder(size_t n, const void *own, void *acc);

static void add_f32(size_t n, const void *own, void *acc) {
    const float *restrict a = own;
    float *restrict b = acc;
    for (size_t i = 0; i < n; i++)
        b[i] = a[i] + b[i];
}

static void add_f64(size_t n, const void *own, void *acc) {
    const double *restrict a = own;
    double *restrict b = acc;
    for (size_t i = 0; i < n; i++)
        b[i] = a[i] + b[i];
}

static void add_f16(size_t n, const void *own, void *acc) {
    const uint16_t *restrict a = own;
    uint16_t *restrict b = acc;
    for (size_t i = 0; i < n; i++)
        b[i] = sdc__float_to_half(sdc__half_to_float(a[i]) + sdc__half_to_float(b[i]));
}

/* Gloo's float16 (gloo/types.h) assigns a sum only if it differs from the old value, and compares
 * with the old value's bits taken as a whole number: where the sum happens to be that number
 * rounded to F16, the old value stays and the received one is lost. It happens to about one in
 * 75,000 sums of random bits; seen in torch 1.13.1. */
static void add_f16_gloo(size_t n, const void *own, void *acc) {
    const uint16_t *restrict a = own;
    uint16_t *restrict b = acc;
    for (size_t i = 0; i < n; i++) {
        uint16_t sum = sdc__float_to_half(sdc__half_to_float(a[i]) + sdc__half_to_float(b[i]));
        b[i] = sum == sdc__float_to_half((float)a[i]) ? a[i] : sum;
    }
}

/* The vectors of a sum. */
struct vectors {
    adder *add;
    size_t es; /* bytes of an element */
    unsigned ranks;
    size_t base; /* element that in[] and out point to */
    const void *const *in;
    unsigned char *out;
};

static const unsigned char *in_at(const struct vectors *v, unsigned rank, size_t at) {
    return (const unsigned char *)v->in[rank] + (at - v->base) * v->es;
}

static unsigned char *out_at(const struct vectors *v, size_t at) {
    return v->out + (at - v->base) * v->es;
}

/* Elements [first, end), all of block b, around the ring. Gloo goes downwards from rank b - 1,
 * Open MPI upwards from rank b. */
static void ring_block(enum sdc_sum sum, const struct vectors *v, unsigned b, size_t first,
                       size_t end) {
    bool gloo = sum == SDC_SUM_GLOO_RING;
    for (size_t at = first; at < end; at += BLOCK) {
        size_t n = min_size(BLOCK, end - at);
        unsigned char *out = out_at(v, at);
        unsigned r = gloo ? (b + v->ranks - 1) % v->ranks : b;
        memcpy(out, in_at(v, r, at), n * v->es);
        for (unsigned hop = 1; hop < v->ranks; hop++) {
            r = gloo ? (r + v->ranks - 1) % v->ranks : (r + 1) % v->ranks;
            v->add(n, in_at(v, r, at), out);
        }
    }
}

static void ring_sum(enum sdc_sum sum, const struct vectors *v, size_t n, size_t first,
                     size_t end) {
    for (unsigned b = 0; b < v->ranks; b++) {
        size_t from = block_start(sum, v->es, v->ranks, n, b);
        size_t to = min_size(block_start(sum, v->es, v->ranks, n, b + 1), end);
        from = from < first ? first : from;
        if (from < to)
            ring_block(sum, v, b, from, to);
    }
}

/* Pairs, then pairs of pairs. With r ranks more than a power of two, the first 2 r ranks are paired
 * beforehand: virtual rank v < r stands for ranks 2 v and 2 v + 1, the others for v + r. The
 * partial sums are kept as the digits of a binary counter: level k holds 2^k virtual ranks. */
static void tree_block(const struct vectors *v, size_t at, size_t n) {
    double level[MAX_LEVELS][BLOCK], leaf[BLOCK]; /* room for any type */
    size_t size = n * v->es;
    unsigned pof2 = 1;
    while (pof2 * 2 <= v->ranks)
        pof2 *= 2;
    unsigned extra = v->ranks - pof2;
    for (unsigned node = 0; node < pof2; node++) {
        if (node < extra) {
            memcpy(leaf, in_at(v, 2 * node + 1, at), size);
            v->add(n, in_at(v, 2 * node, at), leaf);
        } else {
            memcpy(leaf, in_at(v, node + extra, at), size);
        }
        unsigned k = 0;
        for (; node >> k & 1u; k++)
            v->add(n, level[k], leaf);
        memcpy(level[k], leaf, size);
        if (node + 1 == pof2)
            memcpy(out_at(v, at), leaf, size);
    }
}

static void compute(enum sdc_sum sum, enum sdc_dtype type, struct vectors *v, size_t n,
                    size_t first, size_t end) {
    adder *half = sum == SDC_SUM_GLOO_RING ? add_f16_gloo : add_f16;
    v->add = type == SDC_DTYPE_F64 ? add_f64 : type == SDC_DTYPE_F16 ? half : add_f32;
    v->es = sdc_sum_size(type);
    if (sum == SDC_SUM_OMPI_RECURSIVE_DOUBLING || sum == SDC_SUM_OMPI_RABENSEIFNER) {
        for (size_t at = first; at < end; at += BLOCK)
            tree_block(v, at, min_size(BLOCK, end - at));
        return;
    }
    ring_sum(sum, v, n, first, end);
}

void sdc_sum_compute(enum sdc_sum sum, enum sdc_dtype type, unsigned ranks, const void *const in[],
                     size_t n, size_t first, size_t end, void *out) {
    struct vectors v = {.ranks = ranks, .in = in, .out = out};
    compute(sum, type, &v, n, first, end);
}

void sdc_sum_compute_range(enum sdc_sum sum, enum sdc_dtype type, unsigned ranks,
                           const void *const in[], size_t n, size_t first, size_t end, void *out) {
    struct vectors v = {.ranks = ranks, .base = first, .in = in, .out = out};
    compute(sum, type, &v, n, first, end);
}
