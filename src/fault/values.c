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

enum sdc_status sdc__drawing_init(struct sdc_drawing *d, const struct sdc_support *s,
                                  const struct sdc_rng *sites, struct sdc_error *err) {
    *d = (struct sdc_drawing){.s = s, .rng = *sites}; /* the same seed, block and trial */
    d->several = s->rule.op == SDC_OP_FLIP && s->rule.elements;
    d->needed = d->several || s->rule.op == SDC_OP_RANDOM || s->rule.op == SDC_OP_SWAP;
    d->look = s->rule.not_result != 0;
    d->rng.counter[0] = SDC_RNG_FAULT_VALUES;
    d->rng.counter[3] = 0;
    d->rng.used = 4;
    if (d->needed && d->look)
        SDC_TRY(sdc__values_init(&d->values, s, err));
    return SDC_OK;
}

void sdc__drawing_release(struct sdc_drawing *d) {
    sdc__values_release(&d->values);
}

enum sdc_status sdc__drawing_add(struct sdc_drawing *d, struct sdc_fault *faults, size_t n,
                                 struct sdc_error *err) {
    const struct sdc_support *s = d->s;
    for (size_t i = 0; d->needed && i < n; i++) {
        struct sdc_fault *f = &faults[i];
        const struct sdc_tensor_desc *desc = s->descs[f->tensor];
        uint64_t times = f->value, raw = 0;
        while (s->tensors[d->tensor].tensor != f->tensor)
            d->tensor++;
        if (d->look)
            SDC_TRY(sdc__values_get(&d->values, f->tensor, f->elem, &raw, err));
        do
            draw_once(s, &d->rng, desc, s->tensors[d->tensor].named, times, f);
        while (d->look &&
               sdc__refused(&s->rule, desc->dtype, sdc_fault_apply(f, desc->dtype, raw, 0)));
        if (d->several)
            f->value = 0;
    }
    return SDC_OK;
}
