/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/support.h"

#include "base/alloc.h"

unsigned sdc__bit_at(uint64_t mask, unsigned k) {
    unsigned low = (unsigned)__builtin_ctzll(mask);
    if (!((mask >> low) & ((mask >> low) + 1))) /* no gap between its bits */
        return low + k;
    while (k--)
        mask &= mask - 1;
    return (unsigned)__builtin_ctzll(mask);
}

uint64_t sdc__low_bits(unsigned n) {
    return n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1;
}

/* The parts of an element's bits that are drawn from apart; returns how many, none of them 0. */
static size_t split(enum sdc_sample sample, enum sdc_dtype dtype, uint64_t mask,
                    uint64_t parts[8]) {
    size_t n = 0;
    uint64_t all[8] = {mask};
    if (sample == SDC_SAMPLE_BYTES) {
        for (unsigned i = 0; i < 8; i++)
            all[i] = mask & (uint64_t)0xff << 8 * i;
    } else if (sample == SDC_SAMPLE_STRATIFIED) {
        int top = sdc_num_top_exponent_bit(dtype);
        uint64_t exponent = sdc_num_field_mask(dtype, SDC_FIELD_EXPONENT);
        uint64_t highest = top < 0 ? 0 : (uint64_t)1 << top;
        all[0] = mask & (sdc_num_field_mask(dtype, SDC_FIELD_MANTISSA) |
                         sdc_num_field_mask(dtype, SDC_FIELD_INTEGER));
        all[1] = mask & exponent & ~highest;
        all[2] = mask & highest;
        all[3] = mask & sdc_num_field_mask(dtype, SDC_FIELD_SIGN);
    }
    for (unsigned i = 0; i < 8; i++)
        if (all[i])
            parts[n++] = all[i];
    return n;
}

/* Appends the tensor if it holds a site. */
static enum sdc_status add(struct sdc_support *s, uint32_t index, const struct sdc_choice *choice,
                           uint64_t *places, struct sdc_error *err) {
    const struct sdc_tensor_desc *t = s->descs[index];
    uint64_t parts[8] = {0}, sites;
    if (t->n_elems == 0 || !sdc_choice_admits(choice, t) ||
        (choice->op == SDC_OP_SWAP && t->n_elems < 2))
        return SDC_OK;
    struct sdc_support_tensor entry = {.tensor = index,
                                       .first = *places,
                                       .n_elems = t->n_elems,
                                       .named = sdc_choice_bits(choice, t->dtype),
                                       .width = sdc_choice_sites(choice, t->dtype),
                                       .first_group = s->n_groups,
                                       .n_groups = 1};
    if (entry.width == 0)
        return SDC_OK;
    if (__builtin_mul_overflow(entry.n_elems, entry.width, &sites) ||
        __builtin_add_overflow(*places, sites, places) || *places == UINT64_MAX)
        return SDC_ERR(err, SDC_LIMIT, "tensor %s: more sites than a 64-bit number counts",
                       t->name);
    if (!s->rule.elements) {
        entry.mask = entry.named;
        entry.n_groups = split(choice->sample, t->dtype, entry.mask, parts);
    }
    for (size_t i = 0; i < entry.n_groups; i++) {
        unsigned width = parts[i] ? (unsigned)__builtin_popcountll(parts[i]) : 1;
        s->groups[s->n_groups++] = (struct sdc_group){.tensor = (uint32_t)s->n_tensors,
                                                      .mask = parts[i],
                                                      .width = width,
                                                      .first = s->sites,
                                                      .sites = entry.n_elems * width};
        s->sites += entry.n_elems * width;
    }
    s->tensors[s->n_tensors++] = entry;
    return SDC_OK;
}

enum sdc_status sdc_support_new(const struct sdc_tensor_desc *const descs[], size_t n,
                                const struct sdc_choice *choice, struct sdc_support **support,
                                struct sdc_error *err) {
    if (choice->op == SDC_OP_MASK ? choice->mask == 0 : choice->count < 1 || choice->count > 64)
        return SDC_ERR(err, SDC_USAGE, "op %s without a bit", sdc_op_name(choice->op));
    if (n > UINT32_MAX)
        return SDC_ERR(err, SDC_LIMIT, "%zu tensors, at most %u can be altered", n, UINT32_MAX);
    struct sdc_support *s = sdc__calloc(1, sizeof *s);
    if (!s)
        return SDC_NOMEM(err, "the support");
    size_t parts = choice->sample == SDC_SAMPLE_BYTES        ? 8
                   : choice->sample == SDC_SAMPLE_STRATIFIED ? 4
                                                             : 1;
    s->descs = descs;
    s->n_descs = n;
    s->rule = (struct sdc_rule){.op = choice->op,
                                .elements = sdc_choice_takes_elements(choice),
                                .listed = choice->mode == SDC_CHOICE_AT,
                                .not_result = choice->not_result,
                                .value = choice->value,
                                .mask = choice->mask,
                                .count = choice->count};
    s->tensors = sdc__calloc(n, sizeof *s->tensors);
    s->groups = sdc__calloc(n, parts * sizeof *s->groups);
    enum sdc_status st = s->tensors && s->groups ? SDC_OK : SDC_NOMEM(err, "the support");
    uint64_t places = 0;
    for (size_t i = 0; st == SDC_OK && i < n; i++)
        st = add(s, (uint32_t)i, choice, &places, err);
    if (st != SDC_OK) {
        sdc_support_free(s);
        return st;
    }
    *support = s;
    return SDC_OK;
}

void sdc_support_free(struct sdc_support *support) {
    if (!support)
        return;
    sdc__free(support->tensors);
    sdc__free(support->groups);
    sdc__free(support->counts);
    sdc__free(support);
}

uint64_t sdc_support_sites(const struct sdc_support *support) {
    return support->sites;
}

size_t sdc_support_tensors(const struct sdc_support *support) {
    return support->n_tensors;
}

uint64_t sdc_support_removed(const struct sdc_support *support) {
    return support->removed;
}
