/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/reduce.h"

#include <string.h>

#include "base/guard.h"

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

/* Elements of all chunks but the last: gloo/allreduce.cc, ring(). */
static size_t gloo_chunk(unsigned ranks, size_t n) {
    size_t bytes = n * sizeof(float);
    size_t segments = ceil_div(bytes, GLOO_SEGMENT_BYTES);
    if (segments < 2 * (size_t)ranks)
        segments = 2 * (size_t)ranks;
    segments = ceil_div(segments, ranks) * ranks;
    size_t segment = ceil_div(ceil_div(bytes, segments), sizeof(float)); /* elements */
    return segment * (segments / ranks);
}

/* Block b of n elements in `parts` nearly equal blocks, the first n % parts one longer. */
static size_t even_block(size_t n, unsigned parts, size_t b) {
    return n / parts * b + min_size(b, n % parts);
}

/* Where block b starts; b may be `ranks` (then n). Both rings sum by blocks. */
static size_t block_start(enum sdc_sum sum, unsigned ranks, size_t n, unsigned b) {
    if (sum == SDC_SUM_GLOO_RING)
        return min_size(n, gloo_chunk(ranks, n) * b);
    return even_block(n, ranks, b);
}

void sdc_sum_part(enum sdc_sum sum, unsigned ranks, size_t n, unsigned rank, size_t *first,
                  size_t *end) {
    if (sdc_sum_redundant(sum)) {
        *first = 0;
        *end = n;
        return;
    }
    /* Open MPI's ring finishes block b on rank b - 1 */
    bool ring = sum == SDC_SUM_OMPI_RING || sum == SDC_SUM_OMPI_SEGMENTED_RING;
    unsigned block = ring ? (rank + 1) % ranks : rank;
    *first = block_start(sum, ranks, n, block);
    *end = block_start(sum, ranks, n, block + 1);
}

/* ---- sums ---- */

/* acc = own + acc, as each hop of a ring does with what it received. */
static void add_own(size_t n, const float *restrict own, float *restrict acc) {
    for (size_t i = 0; i < n; i++)
        acc[i] = own[i] + acc[i];
}

/* Elements [first, end), all of block b, around the ring. Gloo goes downwards from rank b - 1,
 * Open MPI upwards from rank b. */
static void ring_block(enum sdc_sum sum, unsigned ranks, const float *const in[], unsigned b,
                       size_t first, size_t end, float *out) {
    bool gloo = sum == SDC_SUM_GLOO_RING;
    for (size_t at = first; at < end; at += BLOCK) {
        size_t n = min_size(BLOCK, end - at);
        unsigned r = gloo ? (b + ranks - 1) % ranks : b;
        memcpy(out + at, in[r] + at, n * sizeof(float));
        for (unsigned hop = 1; hop < ranks; hop++) {
            r = gloo ? (r + ranks - 1) % ranks : (r + 1) % ranks;
            add_own(n, in[r] + at, out + at);
        }
    }
}

static void ring_sum(enum sdc_sum sum, unsigned ranks, const float *const in[], size_t n,
                     size_t first, size_t end, float *out) {
    for (unsigned b = 0; b < ranks; b++) {
        size_t from = block_start(sum, ranks, n, b), to = block_start(sum, ranks, n, b + 1);
        from = from < first ? first : from;
        to = min_size(to, end);
        if (from < to)
            ring_block(sum, ranks, in, b, from, to, out);
    }
}

/* Pairs, then pairs of pairs. With r ranks more than a power of two, the first 2 r ranks are paired
 * beforehand: virtual rank v < r stands for ranks 2 v and 2 v + 1, the others for v + r. The
 * partial sums are kept as the digits of a binary counter: level k holds 2^k virtual ranks. */
static void tree_block(unsigned ranks, const float *const in[], size_t at, size_t n, float *out) {
    float level[MAX_LEVELS][BLOCK];
    unsigned pof2 = 1;
    while (pof2 * 2 <= ranks)
        pof2 *= 2;
    unsigned extra = ranks - pof2;
    for (unsigned v = 0; v < pof2; v++) {
        float leaf[BLOCK];
        if (v < extra) {
            memcpy(leaf, in[2 * v + 1] + at, n * sizeof(float));
            add_own(n, in[2 * v] + at, leaf);
        } else {
            memcpy(leaf, in[v + extra] + at, n * sizeof(float));
        }
        unsigned k = 0;
        for (; v >> k & 1u; k++)
            add_own(n, level[k], leaf);
        memcpy(level[k], leaf, n * sizeof(float));
        if (v + 1 == pof2)
            memcpy(out, leaf, n * sizeof(float));
    }
}

void sdc_sum_compute(enum sdc_sum sum, unsigned ranks, const float *const in[], size_t n,
                     size_t first, size_t end, float *out) {
    if (sum == SDC_SUM_OMPI_RECURSIVE_DOUBLING || sum == SDC_SUM_OMPI_RABENSEIFNER) {
        for (size_t at = first; at < end; at += BLOCK)
            tree_block(ranks, in, at, min_size(BLOCK, end - at), out + at);
        return;
    }
    ring_sum(sum, ranks, in, n, first, end, out);
}
