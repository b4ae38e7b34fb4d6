/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of faults from drawn or enumerated sites.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "fault/places.h"

/* ---- attempts ---- */

/* Of sites that were hit several times, sorted: those hit an odd number of times where the operator
 * flips, else each once. times: how often, where several bits are yet to be drawn. */
static size_t settle(const struct sdc_rule *rule, uint64_t *numbers, size_t n, uint64_t *times) {
    size_t kept = 0;
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && numbers[next] == numbers[i];)
            next++;
        bool drawn_later = rule->op == SDC_OP_FLIP && rule->elements;
        if (sdc__op_flips(rule->op) && !drawn_later && (next - i) % 2 == 0)
            continue;
        times[kept] = next - i;
        numbers[kept++] = numbers[i];
    }
    return kept;
}

static enum sdc_status draw_attempts(const struct sdc_support *s, const struct sdc_choice *choice,
                                     struct sdc_rng *rng, struct sdc_fault_list *list,
                                     struct sdc_error *err) {
    SDC_TRY(sdc__check_sites(choice->flips, err));
    list->attempts = choice->flips;
    if (s->sites == 0)
        return SDC_OK;
    size_t n = 0;
    for (uint64_t i = 0; i < choice->flips; i++)
        n += choice->rate >= 1.0 || sdc_rng_unit(rng) < choice->rate;
    list->happened = n;
    uint64_t *numbers = sdc__alloc(n, sizeof *numbers), *times = sdc__alloc(n, sizeof *times);
    enum sdc_status st = numbers && times ? SDC_OK : SDC_NOMEM(err, "the attempts");
    if (st == SDC_OK)
        st = sdc__sample(s, choice, rng, numbers, n, NULL, err);
    if (st == SDC_OK) {
        sdc__sort_u64(numbers, n, times);
        n = settle(&s->rule, numbers, n, times);
        st = sdc__to_places(s, numbers, NULL, n, err); /* a tensor is one group */
        if (st == SDC_OK)
            st = sdc__list_room(list, n, err);
        const struct sdc_places places = {.s = s, .numbers = numbers, .n = n, .attempts = true};
        if (st == SDC_OK)
            sdc__places_faults(&places, 0, n, list);
        /* An element is a site then; with not-result, whose draws are repeated until one is
         * allowed, it is hit once. */
        if (st == SDC_OK && s->rule.op == SDC_OP_FLIP && s->rule.elements && !s->reduced)
            for (size_t i = 0; i < list->n; i++)
                list->faults[i].value = times[i];
    }
    sdc__free(numbers);
    sdc__free(times);
    return st;
}

/* Takes out what cancelled itself. */
static void drop_unchanged(struct sdc_fault_list *list) {
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++)
        if (!sdc__op_flips(list->faults[i].op) || list->faults[i].bits)
            list->faults[kept++] = list->faults[i];
    list->n = kept;
}

/* ---- places ---- */

/* Faults that this many sites make at most. */
static size_t most_faults(const struct sdc_support *s, uint64_t sites) {
    uint64_t elems = 0;
    for (size_t i = 0; i < s->n_tensors && elems < sites; i++)
        elems += s->tensors[i].n_elems;
    return (size_t)(elems < sites ? elems : sites);
}

static enum sdc_status draw_places(const struct sdc_support *s, const struct sdc_choice *choice,
                                   struct sdc_rng *rng, struct sdc_fault_list *list,
                                   struct sdc_error *err) {
    struct sdc_places places;
    SDC_TRY(sdc__places_draw(s, choice, rng, &places, err));
    enum sdc_status st = sdc__list_room(list, most_faults(s, places.n), err);
    if (st == SDC_OK)
        sdc__places_faults(&places, 0, places.n, list);
    sdc__places_release(&places);
    return st;
}

/* ---- every site that is left of a reduced support ---- */

static void append_bits(struct sdc_building *b, const struct sdc_support_tensor *t, uint64_t elem,
                        uint64_t bits) {
    for (; bits; bits &= bits - 1)
        sdc__append_site(b, t, elem, (unsigned)__builtin_ctzll(bits));
}

static enum sdc_status enumerate(const struct sdc_support *s, struct sdc_fault_list *list,
                                 struct sdc_error *err) {
    struct sdc_values v = {0};
    struct sdc_building b = {.s = s, .list = list};
    enum sdc_status st = SDC_OK;
    uint64_t raw;
    SDC_TRY(sdc__check_sites(s->sites, err));
    SDC_TRY(sdc__list_room(list, most_faults(s, s->sites), err));
    SDC_TRY(sdc__values_init(&v, s, err));
    for (size_t i = 0; st == SDC_OK && i < s->n_tensors; i++) {
        const struct sdc_support_tensor *t = &s->tensors[i];
        const enum sdc_dtype dtype = s->descs[t->tensor]->dtype;
        for (uint64_t elem = 0; st == SDC_OK && elem < t->n_elems; elem++) {
            st = sdc__values_get(&v, t->tensor, elem, &raw, err);
            if (st != SDC_OK)
                break;
            if (!s->rule.elements)
                append_bits(&b, t, elem, sdc__allowed_bits(&s->rule, dtype, t->mask, raw));
            else if (sdc__allowed_element(&s->rule, dtype, t->named, raw))
                sdc__append_site(&b, t, elem, 0);
        }
    }
    sdc__values_release(&v);
    return st;
}

/* ---- public ---- */

static enum sdc_status draw(const struct sdc_support *support, const struct sdc_choice *choice,
                            struct sdc_rng *rng, struct sdc_fault_list *list,
                            struct sdc_error *err) {
    if (choice->not_result && !support->read)
        return SDC_ERR(err, SDC_USAGE, "not-result: the values to look at were not given");
    if (sdc__places_serve(support, choice))
        return draw_places(support, choice, rng, list, err);
    switch (choice->mode) {
    case SDC_CHOICE_FLIPS:
        return draw_attempts(support, choice, rng, list, err);
    case SDC_CHOICE_EXHAUSTIVE:
        return enumerate(support, list, err);
    case SDC_CHOICE_AT:
        return sdc__resolve_at(support, choice, list, err);
    case SDC_CHOICE_RATE:
        break;
    }
    return SDC_OK;
}

enum sdc_status sdc_fault_list_draw(const struct sdc_support *support,
                                    const struct sdc_choice *choice, struct sdc_rng *rng,
                                    struct sdc_fault_list *list, struct sdc_error *err) {
    struct sdc_fault_list drawn = {0};
    const struct sdc_rng stream = *rng;
    struct sdc_drawing values;
    enum sdc_status st = draw(support, choice, rng, &drawn, err);
    if (st == SDC_OK) {
        st = sdc__drawing_init(&values, support, &stream, err);
        if (st == SDC_OK)
            st = sdc__drawing_add(&values, drawn.faults, drawn.n, err);
        sdc__drawing_release(&values);
    }
    if (st != SDC_OK) {
        sdc_fault_list_release(&drawn);
        return st;
    }
    if (drawn.attempts)
        drop_unchanged(&drawn);
    if (drawn.n == 0) { /* an empty list holds nothing to release */
        sdc__free(drawn.faults);
        drawn.faults = NULL;
    }
    *list = drawn;
    return SDC_OK;
}

void sdc_fault_list_release(struct sdc_fault_list *list) {
    sdc__free(list->faults);
    *list = (struct sdc_fault_list){0};
}

static int compare_faults(const void *a, const void *b) {
    const struct sdc_fault *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->elem > y->elem) - (x->elem < y->elem);
}

enum sdc_status sdc_fault_list_map(struct sdc_fault_list *list, const uint32_t *map, size_t n_map,
                                   struct sdc_error *err) {
    for (size_t i = 0; i < list->n; i++)
        if (list->faults[i].tensor >= n_map || map[list->faults[i].tensor] >= n_map)
            return SDC_ERR(err, SDC_USAGE, "tensor %u has no counterpart to map its faults to",
                           list->faults[i].tensor);
    for (size_t i = 0; i < list->n; i++)
        list->faults[i].tensor = map[list->faults[i].tensor];
    qsort(list->faults, list->n, sizeof *list->faults, compare_faults);
    for (size_t i = 1; i < list->n; i++)
        if (compare_faults(&list->faults[i - 1], &list->faults[i]) == 0)
            return SDC_ERR(err, SDC_USAGE, "two faults map to element %llu of tensor %u",
                           (unsigned long long)list->faults[i].elem, list->faults[i].tensor);
    return SDC_OK;
}
