/* SPDX-License-Identifier: Apache-2.0
 *
 * What operators draw besides sites: values, elements to take them from, several bits at once.
 */
#include "fault/support.h"

/* `count` of the bits of mask, each set of them alike (Floyd's method). */
static uint64_t some_bits(struct sdc_rng *rng, uint64_t mask, unsigned count) {
    unsigned width = (unsigned)__builtin_popcountll(mask);
    uint64_t chosen = 0, bits = 0; /* chosen: by number among those of mask */
    for (unsigned j = width - count; j < width; j++) {
        uint64_t x = (uint64_t)1 << sdc_rng_below(rng, j + 1);
        chosen |= chosen & x ? (uint64_t)1 << j : x;
    }
    for (; chosen; chosen &= chosen - 1)
        bits |= (uint64_t)1 << sdc__bit_at(mask, (unsigned)__builtin_ctzll(chosen));
    return bits;
}

static void draw_once(const struct sdc_support *s, struct sdc_rng *rng,
                      const struct sdc_tensor_desc *t, uint64_t named, uint64_t times,
                      struct sdc_fault *f) {
    switch (s->rule.op) {
    case SDC_OP_FLIP:
        for (f->bits = 0; times > 0; times--)
            f->bits ^= some_bits(rng, named, s->rule.count);
        break;
    case SDC_OP_RANDOM:
        f->value = sdc_rng_below(rng, sdc__low_bits(sdc_dtype_bits(t->dtype)));
        break;
    default:
        f->value = sdc_rng_below(rng, t->n_elems - 1);
        f->value += f->value >= f->elem;
    }
}

enum sdc_status sdc__draw_values(const struct sdc_support *s, const struct sdc_rng *sites,
                                 struct sdc_fault_list *list, struct sdc_error *err) {
    struct sdc_rng rng = *sites; /* the same seed, block and trial */
    struct sdc_values v = {0};
    enum sdc_status st = SDC_OK;
    const bool look = s->rule.not_result != 0;
    bool several = s->rule.op == SDC_OP_FLIP && s->rule.elements;
    if (!several && s->rule.op != SDC_OP_RANDOM && s->rule.op != SDC_OP_SWAP)
        return SDC_OK;
    rng.counter[0] = SDC_RNG_FAULT_VALUES;
    rng.counter[3] = 0;
    rng.used = 4;
    if (look)
        SDC_TRY(sdc__values_init(&v, s, err));
    const struct sdc_support_tensor *t = s->tensors;
    for (size_t i = 0; st == SDC_OK && i < list->n; i++) {
        struct sdc_fault *f = &list->faults[i];
        const struct sdc_tensor_desc *d = s->descs[f->tensor];
        uint64_t times = f->value, raw = 0;
        while (t->tensor != f->tensor)
            t++;
        if (look)
            st = sdc__values_get(&v, f->tensor, f->elem, &raw, err);
        if (st != SDC_OK)
            break;
        do
            draw_once(s, &rng, d, t->named, times, f);
        while (look && sdc__refused(&s->rule, d->dtype, sdc_fault_apply(f, d->dtype, raw, 0)));
        if (several)
            f->value = 0;
    }
    sdc__values_release(&v);
    return st;
}
