/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/support.h"

#include "base/alloc.h"

unsigned sdc__bit_at(uint64_t mask, unsigned k) {
    while (k--)
        mask &= mask - 1;
    return (unsigned)__builtin_ctzll(mask);
}

/* Appends the tensor if it holds a site. */
static enum sdc_status add(struct sdc_support *s, uint32_t index, const struct sdc_choice *choice,
                           struct sdc_error *err) {
    const struct sdc_tensor_desc *t = s->descs[index];
    if (t->n_elems == 0 || !sdc_choice_admits(choice, t))
        return SDC_OK;
    struct sdc_support_tensor entry = {
        .tensor = index, .first = s->sites, .n_elems = t->n_elems, .width = 1};
    if (choice->op == SDC_OP_FLIP) {
        entry.mask = sdc_bits_mask(choice->bits, choice->n_bits, t->dtype);
        entry.width = (unsigned)__builtin_popcountll(entry.mask);
        if (entry.width == 0)
            return SDC_OK;
    }
    uint64_t sites;
    if (__builtin_mul_overflow(entry.n_elems, entry.width, &sites) ||
        __builtin_add_overflow(s->sites, sites, &s->sites) || s->sites == UINT64_MAX)
        return SDC_ERR(err, SDC_LIMIT, "tensor %s: more sites than a 64-bit number counts",
                       t->name);
    s->tensors[s->n_tensors++] = entry;
    return SDC_OK;
}

enum sdc_status sdc_support_new(const struct sdc_tensor_desc *const descs[], size_t n,
                                const struct sdc_choice *choice, struct sdc_support **support,
                                struct sdc_error *err) {
    if (n > UINT32_MAX)
        return SDC_ERR(err, SDC_LIMIT, "%zu tensors, at most %u can be altered", n, UINT32_MAX);
    struct sdc_support *s = sdc__calloc(1, sizeof *s);
    if (!s)
        return SDC_NOMEM(err, "the support");
    s->descs = descs;
    s->n_descs = n;
    s->tensors = sdc__calloc(n, sizeof *s->tensors);
    enum sdc_status st = s->tensors ? SDC_OK : SDC_NOMEM(err, "the support");
    for (size_t i = 0; st == SDC_OK && i < n; i++)
        st = add(s, (uint32_t)i, choice, err);
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
    sdc__free(support);
}

uint64_t sdc_support_sites(const struct sdc_support *support) {
    return support->sites;
}

size_t sdc_support_tensors(const struct sdc_support *support) {
    return support->n_tensors;
}
