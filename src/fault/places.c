/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/places.h"

#include "base/alloc.h"
#include "base/sort.h"

/* sites in one list */
#define MAX_SITES 100000000u

bool sdc__op_flips(enum sdc_op op) {
    return op == SDC_OP_FLIP || op == SDC_OP_MASK || op == SDC_OP_BURST;
}

/* ---- lists in the making ---- */

enum sdc_status sdc__list_room(struct sdc_fault_list *list, size_t n, struct sdc_error *err) {
    list->faults = sdc__alloc(n, sizeof *list->faults);
    sdc__alloc_dense(list->faults, n, sizeof *list->faults);
    return list->faults ? SDC_OK : SDC_NOMEM(err, "the list of faults");
}

enum sdc_status sdc__check_sites(uint64_t sites, struct sdc_error *err) {
    if (sites > MAX_SITES)
        return SDC_ERR(err, SDC_LIMIT, "%llu sites, expected at most %u in one list",
                       (unsigned long long)sites, MAX_SITES);
    return SDC_OK;
}

static double weight_of(const struct sdc_building *b, const struct sdc_support_tensor *t,
                        unsigned bit) {
    if (!b->weights)
        return 0;
    size_t g = t->first_group;
    while (t->mask && !(b->s->groups[g].mask >> bit & 1))
        g++;
    return b->weights[g];
}

void sdc__append_site(struct sdc_building *b, const struct sdc_support_tensor *t, uint64_t elem,
                      unsigned bit) {
    struct sdc_fault_list *list = b->list;
    const struct sdc_rule *rule = &b->s->rule;
    struct sdc_fault f = sdc__fault_of(rule, b->s->descs[t->tensor]->dtype, bit);
    struct sdc_fault *last = list->n > 0 ? &list->faults[list->n - 1] : NULL;
    f.weight = weight_of(b, t, bit);
    list->n_sites++;
    if (last && last->tensor == t->tensor && last->elem == elem) {
        last->bits = b->attempts && sdc__op_flips(f.op) ? last->bits ^ f.bits : last->bits | f.bits;
        last->weight += f.weight;
        return;
    }
    f.tensor = t->tensor;
    f.elem = elem;
    if (rule->op == SDC_OP_FLIP && rule->elements)
        f.value = 1; /* sets of bits to draw */
    list->faults[list->n++] = f;
}

enum sdc_status sdc__to_places(const struct sdc_support *s, uint64_t *numbers, uint64_t *room,
                               size_t n, struct sdc_error *err) {
    SDC_TRY(sdc__locate(s, numbers, n, err));
    if (s->n_groups > s->n_tensors) /* numbers go by group, places by element */
        sdc__sort_u64(numbers, n, room);
    return SDC_OK;
}

/* ---- drawing ---- */

static double *stratum_weights(const struct sdc_support *s, const uint64_t *draws, size_t n) {
    double *weights = sdc__alloc(s->n_groups, sizeof *weights);
    /* with fewer draws than strata each of these has a chance of n in n_groups */
    double chance = n < s->n_groups ? (double)n / (double)s->n_groups : 1.0;
    for (size_t g = 0; weights && g < s->n_groups; g++)
        weights[g] = draws[g] ? (double)s->groups[g].sites / (double)draws[g] / chance : 0.0;
    return weights;
}

static enum sdc_status draw_flips(const struct sdc_support *s, const struct sdc_choice *choice,
                                  struct sdc_rng *rng, struct sdc_places *p,
                                  struct sdc_error *err) {
    if (s->sites == 0 || choice->flips == 0)
        return SDC_OK;
    if (choice->flips > s->sites)
        return SDC_ERR(err, SDC_USAGE,
                       "%llu distinct sites were asked for, but the support holds %llu (%zu "
                       "tensor%s)",
                       (unsigned long long)choice->flips, (unsigned long long)s->sites,
                       s->n_tensors, s->n_tensors == 1 ? "" : "s");
    SDC_TRY(sdc__check_sites(choice->flips, err));
    bool strata = choice->sample == SDC_SAMPLE_STRATIFIED, by_group = s->n_groups > s->n_tensors;
    size_t n = (size_t)choice->flips;
    p->numbers = sdc__alloc(n, sizeof *p->numbers);
    p->n = n;
    uint64_t *room = by_group ? sdc__alloc(n, sizeof *room) : NULL;
    uint64_t *draws = strata ? sdc__calloc(s->n_groups, sizeof *draws) : NULL;
    enum sdc_status st = SDC_OK;
    if (!p->numbers || (by_group && !room) || (strata && !draws)) {
        st = SDC_NOMEM(err, "the drawn sites");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__sample(s, choice, rng, p->numbers, n, draws, err));
    if (strata && !(p->weights = stratum_weights(s, draws, n))) {
        st = SDC_NOMEM(err, "the strata");
        goto out;
    }
    st = sdc__to_places(s, p->numbers, room, n, err);
out:
    sdc__free(room);
    sdc__free(draws);
    return st;
}

static enum sdc_status draw_rate(const struct sdc_support *s, const struct sdc_choice *choice,
                                 struct sdc_rng *rng, struct sdc_places *p, struct sdc_error *err) {
    uint64_t *room = NULL;
    SDC_TRY(sdc__sample_rate(s, choice->rate, rng, MAX_SITES, &p->numbers, &p->n, err));
    if (s->n_groups > s->n_tensors && !(room = sdc__alloc(p->n, sizeof *room)))
        return SDC_NOMEM(err, "the drawn sites");
    enum sdc_status st = sdc__to_places(s, p->numbers, room, p->n, err);
    sdc__free(room);
    return st;
}

bool sdc__places_serve(const struct sdc_support *s, const struct sdc_choice *choice) {
    switch (choice->mode) {
    case SDC_CHOICE_FLIPS:
        return choice->sample != SDC_SAMPLE_ATTEMPTS;
    case SDC_CHOICE_RATE:
        return true;
    case SDC_CHOICE_EXHAUSTIVE:
        return !s->reduced;
    case SDC_CHOICE_AT:
        break;
    }
    return false;
}

enum sdc_status sdc__places_draw(const struct sdc_support *s, const struct sdc_choice *choice,
                                 struct sdc_rng *rng, struct sdc_places *places,
                                 struct sdc_error *err) {
    struct sdc_places p = {.s = s};
    enum sdc_status st = SDC_OK;
    if (choice->mode == SDC_CHOICE_FLIPS)
        st = draw_flips(s, choice, rng, &p, err);
    else if (choice->mode == SDC_CHOICE_RATE)
        st = draw_rate(s, choice, rng, &p, err);
    else
        st = sdc__check_sites(s->sites, err);
    if (choice->mode == SDC_CHOICE_EXHAUSTIVE)
        p.n = (size_t)s->sites;
    if (st == SDC_OK)
        *places = p;
    else
        sdc__places_release(&p);
    return st;
}

void sdc__places_release(struct sdc_places *places) {
    sdc__free(places->numbers);
    sdc__free(places->weights);
    *places = (struct sdc_places){0};
}

/* ---- runs ---- */

static uint64_t place_at(const struct sdc_places *p, size_t i) {
    return p->numbers ? p->numbers[i] : i;
}

/* The tensor that a place is in; those of a support that has been reduced leave gaps. */
static const struct sdc_support_tensor *tensor_of(const struct sdc_places *p, uint64_t place) {
    size_t low = 0, high = p->s->n_tensors; /* the last that begins at or before it */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->s->tensors[middle].first <= place)
            low = middle;
        else
            high = middle;
    }
    return &p->s->tensors[low];
}

/* The first number from `at` on whose place is not below `end`. */
static size_t first_from(const struct sdc_places *p, size_t at, size_t high, uint64_t end) {
    while (at < high) {
        size_t middle = at + (high - at) / 2;
        if (place_at(p, middle) < end)
            at = middle + 1;
        else
            high = middle;
    }
    return at;
}

size_t sdc__places_cut(const struct sdc_places *p, size_t at, size_t n) {
    if (at >= p->n)
        return p->n;
    const struct sdc_support_tensor *t = tensor_of(p, place_at(p, at));
    const uint64_t step = sdc_dtype_bits(p->s->descs[t->tensor]->dtype) < 8 ? 8 : 1;
    size_t end = n < p->n - at ? at + n : p->n;
    end = first_from(p, at, end, t->first + t->n_elems * t->width);
    if (end == p->n)
        return end;
    /* the place after the element, or after the eight */
    uint64_t elems = ((place_at(p, end - 1) - t->first) / t->width / step + 1) * step;
    elems = elems < t->n_elems ? elems : t->n_elems;
    while (end < p->n && place_at(p, end) < t->first + elems * t->width)
        end++;
    return end;
}

void sdc__places_faults(const struct sdc_places *p, size_t first, size_t end,
                        struct sdc_fault_list *list) {
    if (first >= end)
        return;
    struct sdc_building b = {
        .s = p->s, .list = list, .attempts = p->attempts, .weights = p->weights};
    const struct sdc_support_tensor *t = tensor_of(p, place_at(p, first));
    for (size_t i = first; i < end; i++) {
        const uint64_t place = place_at(p, i);
        while (place - t->first >= t->n_elems * t->width)
            t++;
        uint64_t within = place - t->first, elem = within / t->width;
        unsigned bit = t->mask ? sdc__bit_at(t->mask, (unsigned)(within - elem * t->width)) : 0;
        sdc__append_site(&b, t, elem, bit);
    }
}
