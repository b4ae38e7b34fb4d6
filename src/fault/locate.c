/* SPDX-License-Identifier: Apache-2.0
 *
 * From the numbers of drawn sites to their places.
 */
#include "fault/support.h"

/* The number of bit b among those of mask. */
static uint64_t index_of(uint64_t mask, unsigned b) {
    return (unsigned)__builtin_popcountll(mask & (((uint64_t)1 << b) - 1));
}

static uint64_t place_of(const struct sdc_support_tensor *t, uint64_t elem, unsigned b) {
    return t->first + elem * t->width + (t->mask ? index_of(t->mask, b) : 0);
}

/* Numbers of one group, all of whose sites are left. */
static void locate_whole(const struct sdc_support_tensor *t, const struct sdc_group *g,
                         uint64_t *numbers, size_t n) {
    if (g->mask == t->mask) {
        for (size_t i = 0; i < n; i++)
            numbers[i] = t->first + (numbers[i] - g->first);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t rank = numbers[i] - g->first;
        numbers[i] =
            place_of(t, rank / g->width, sdc__bit_at(g->mask, (unsigned)(rank % g->width)));
    }
}

/* The last block that begins at or before this rank. */
static uint64_t find_block(const struct sdc_group *g, uint64_t n_blocks, uint64_t rank) {
    uint64_t low = 0, high = n_blocks;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (g->before[middle] <= rank)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Numbers of one group some of whose sites were taken out: looks through the blocks that hold
 * them. */
static enum sdc_status locate_left(const struct sdc_support *s, const struct sdc_group *g,
                                   struct sdc_values *v, uint64_t *numbers, size_t n,
                                   struct sdc_error *err) {
    const struct sdc_support_tensor *t = &s->tensors[g->tensor];
    const enum sdc_dtype dtype = s->descs[t->tensor]->dtype;
    const uint64_t n_blocks = (t->n_elems + t->block - 1) / t->block;
    for (size_t i = 0; i < n;) {
        uint64_t block = find_block(g, n_blocks, numbers[i] - g->first);
        uint64_t rank = g->before[block], elem = block * t->block;
        uint64_t end = block + 1 < n_blocks ? g->before[block + 1] : g->sites;
        for (; i < n && numbers[i] - g->first < end; elem++) {
            uint64_t raw;
            SDC_TRY(sdc__values_get(v, t->tensor, elem, &raw, err));
            uint64_t allowed = s->rule.elements
                                   ? sdc__allowed_element(&s->rule, dtype, t->named, raw)
                                   : sdc__allowed_bits(&s->rule, dtype, t->mask, raw) & g->mask;
            uint64_t next = rank + (unsigned)__builtin_popcountll(allowed);
            for (; i < n && numbers[i] - g->first < next; i++)
                numbers[i] = place_of(
                    t, elem, sdc__bit_at(allowed, (unsigned)(numbers[i] - g->first - rank)));
            rank = next;
        }
    }
    return SDC_OK;
}

enum sdc_status sdc__locate(const struct sdc_support *s, uint64_t *numbers, size_t n,
                            struct sdc_error *err) {
    struct sdc_values v = {0};
    enum sdc_status st = SDC_OK;
    if (s->reduced)
        SDC_TRY(sdc__values_init(&v, s, err));
    const struct sdc_group *g = s->groups;
    for (size_t i = 0, end; st == SDC_OK && i < n; i = end) {
        while (numbers[i] - g->first >= g->sites)
            g++;
        size_t low = i + 1, high = n; /* the first number beyond the group */
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (numbers[middle] - g->first < g->sites)
                low = middle + 1;
            else
                high = middle;
        }
        end = low;
        if (s->reduced)
            st = locate_left(s, g, &v, numbers + i, end - i, err);
        else
            locate_whole(&s->tensors[g->tensor], g, numbers + i, end - i);
    }
    sdc__values_release(&v);
    return st;
}
