/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of faults from drawn or enumerated sites.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "fault/support.h"

/* sites in one list */
#define MAX_SITES 100000000u

static bool flips(enum sdc_op op) {
    return op == SDC_OP_FLIP || op == SDC_OP_MASK || op == SDC_OP_BURST;
}

/* ---- from places ---- */

/* A list in the making, with room for as many faults as it can get. */
struct building {
    const struct sdc_support *s;
    struct sdc_fault_list *list;
    bool attempts;         /* what is flipped twice is as it was */
    const double *weights; /* by group; NULL: none */
};

static enum sdc_status make_room(struct sdc_fault_list *list, size_t n, struct sdc_error *err) {
    list->faults = sdc__alloc(n, sizeof *list->faults);
    sdc__alloc_dense(list->faults, n, sizeof *list->faults);
    return list->faults ? SDC_OK : SDC_NOMEM(err, "the list of faults");
}

static double weight_of(const struct building *b, const struct sdc_support_tensor *t,
                        unsigned bit) {
    if (!b->weights)
        return 0;
    size_t g = t->first_group;
    while (t->mask && !(b->s->groups[g].mask >> bit & 1))
        g++;
    return b->weights[g];
}

/* Adds a site after all earlier ones in (tensor, elem); the same element gets one more bit. */
static void append(struct building *b, const struct sdc_support_tensor *t, uint64_t elem,
                   unsigned bit) {
    struct sdc_fault_list *list = b->list;
    const struct sdc_rule *rule = &b->s->rule;
    struct sdc_fault f = sdc__fault_of(rule, b->s->descs[t->tensor]->dtype, bit);
    struct sdc_fault *last = list->n > 0 ? &list->faults[list->n - 1] : NULL;
    f.weight = weight_of(b, t, bit);
    list->n_sites++;
    if (last && last->tensor == t->tensor && last->elem == elem) {
        last->bits = b->attempts && flips(f.op) ? last->bits ^ f.bits : last->bits | f.bits;
        last->weight += f.weight;
        return;
    }
    f.tensor = t->tensor;
    f.elem = elem;
    if (rule->op == SDC_OP_FLIP && rule->elements)
        f.value = 1; /* sets of bits to draw */
    list->faults[list->n++] = f;
}

static void from_places(struct building *b, const uint64_t *places, size_t n) {
    const struct sdc_support_tensor *t = b->s->tensors;
    for (size_t i = 0; i < n; i++) {
        while (places[i] - t->first >= t->n_elems * t->width)
            t++;
        uint64_t within = places[i] - t->first, elem = within / t->width;
        unsigned bit = t->mask ? sdc__bit_at(t->mask, (unsigned)(within - elem * t->width)) : 0;
        append(b, t, elem, bit);
    }
}

/* Numbers, ascending, to the list. */
static enum sdc_status from_numbers(struct building *b, uint64_t *numbers, uint64_t *room, size_t n,
                                    struct sdc_error *err) {
    SDC_TRY(sdc__locate(b->s, numbers, n, err));
    if (b->s->n_groups > b->s->n_tensors) /* numbers go by group, places by element */
        sdc__sort_u64(numbers, n, room);
    SDC_TRY(make_room(b->list, n, err));
    from_places(b, numbers, n);
    return SDC_OK;
}

/* ---- drawing ---- */

static enum sdc_status check_limit(uint64_t sites, struct sdc_error *err) {
    if (sites > MAX_SITES)
        return SDC_ERR(err, SDC_LIMIT, "%llu sites, expected at most %u in one list",
                       (unsigned long long)sites, MAX_SITES);
    return SDC_OK;
}

static double *stratum_weights(const struct sdc_support *s, const uint64_t *draws, size_t n) {
    double *weights = sdc__alloc(s->n_groups, sizeof *weights);
    /* with fewer draws than strata each of these has a chance of n in n_groups */
    double chance = n < s->n_groups ? (double)n / (double)s->n_groups : 1.0;
    for (size_t g = 0; weights && g < s->n_groups; g++)
        weights[g] = draws[g] ? (double)s->groups[g].sites / (double)draws[g] / chance : 0.0;
    return weights;
}

static enum sdc_status draw_flips(const struct sdc_support *s, const struct sdc_choice *choice,
                                  struct sdc_rng *rng, struct sdc_fault_list *list,
                                  struct sdc_error *err) {
    if (s->sites == 0 || choice->flips == 0)
        return SDC_OK;
    if (choice->flips > s->sites)
        return SDC_ERR(err, SDC_USAGE,
                       "%llu distinct sites were asked for, but the support holds %llu (%zu "
                       "tensor%s)",
                       (unsigned long long)choice->flips, (unsigned long long)s->sites,
                       s->n_tensors, s->n_tensors == 1 ? "" : "s");
    SDC_TRY(check_limit(choice->flips, err));
    bool strata = choice->sample == SDC_SAMPLE_STRATIFIED, by_group = s->n_groups > s->n_tensors;
    size_t n = (size_t)choice->flips;
    uint64_t *numbers = sdc__alloc(n, sizeof *numbers);
    uint64_t *room = by_group ? sdc__alloc(n, sizeof *room) : NULL;
    uint64_t *draws = strata ? sdc__calloc(s->n_groups, sizeof *draws) : NULL;
    double *weights = NULL;
    enum sdc_status st = SDC_OK;
    if (!numbers || (by_group && !room) || (strata && !draws)) {
        st = SDC_NOMEM(err, "the drawn sites");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__sample(s, choice, rng, numbers, n, draws, err));
    if (strata && !(weights = stratum_weights(s, draws, n))) {
        st = SDC_NOMEM(err, "the strata");
        goto out;
    }
    struct building b = {.s = s, .list = list, .weights = weights};
    st = from_numbers(&b, numbers, room, n, err);
out:
    sdc__free(numbers);
    sdc__free(room);
    sdc__free(draws);
    sdc__free(weights);
    return st;
}

/* Of sites that were hit several times, sorted: those hit an odd number of times where the operator
 * flips, else each once. times: how often, where several bits are yet to be drawn. */
static size_t settle(const struct sdc_rule *rule, uint64_t *numbers, size_t n, uint64_t *times) {
    size_t kept = 0;
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && numbers[next] == numbers[i];)
            next++;
        bool drawn_later = rule->op == SDC_OP_FLIP && rule->elements;
        if (flips(rule->op) && !drawn_later && (next - i) % 2 == 0)
            continue;
        times[kept] = next - i;
        numbers[kept++] = numbers[i];
    }
    return kept;
}

static enum sdc_status draw_attempts(const struct sdc_support *s, const struct sdc_choice *choice,
                                     struct sdc_rng *rng, struct sdc_fault_list *list,
                                     struct sdc_error *err) {
    SDC_TRY(check_limit(choice->flips, err));
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
        struct building b = {.s = s, .list = list, .attempts = true};
        sdc__sort_u64(numbers, n, times);
        n = settle(&s->rule, numbers, n, times);
        st = from_numbers(&b, numbers, NULL, n, err);
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
        if (!flips(list->faults[i].op) || list->faults[i].bits)
            list->faults[kept++] = list->faults[i];
    list->n = kept;
}

static enum sdc_status draw_rate(const struct sdc_support *s, const struct sdc_choice *choice,
                                 struct sdc_rng *rng, struct sdc_fault_list *list,
                                 struct sdc_error *err) {
    uint64_t *numbers = NULL;
    size_t n = 0;
    SDC_TRY(sdc__sample_rate(s, choice->rate, rng, MAX_SITES, &numbers, &n, err));
    struct building b = {.s = s, .list = list};
    enum sdc_status st = from_numbers(&b, numbers, NULL, n, err);
    sdc__free(numbers);
    return st;
}

/* ---- every site ---- */

static void append_bits(struct building *b, const struct sdc_support_tensor *t, uint64_t elem,
                        uint64_t bits) {
    for (; bits; bits &= bits - 1)
        append(b, t, elem, (unsigned)__builtin_ctzll(bits));
}

static enum sdc_status enumerate(const struct sdc_support *s, struct sdc_fault_list *list,
                                 struct sdc_error *err) {
    struct sdc_values v = {0};
    struct building b = {.s = s, .list = list};
    enum sdc_status st = SDC_OK;
    uint64_t elems = 0, raw;
    SDC_TRY(check_limit(s->sites, err));
    for (size_t i = 0; i < s->n_tensors; i++)
        elems += s->tensors[i].n_elems;
    SDC_TRY(make_room(list, (size_t)(elems < s->sites ? elems : s->sites), err));
    if (s->reduced)
        SDC_TRY(sdc__values_init(&v, s, err));
    for (size_t i = 0; st == SDC_OK && i < s->n_tensors; i++) {
        const struct sdc_support_tensor *t = &s->tensors[i];
        const enum sdc_dtype dtype = s->descs[t->tensor]->dtype;
        for (uint64_t elem = 0; st == SDC_OK && elem < t->n_elems; elem++) {
            uint64_t bits = t->mask;
            bool is_site = true;
            if (s->reduced) {
                st = sdc__values_get(&v, t->tensor, elem, &raw, err);
                if (st != SDC_OK)
                    break;
                is_site = !s->rule.elements || sdc__allowed_element(&s->rule, dtype, t->named, raw);
                bits = sdc__allowed_bits(&s->rule, dtype, t->mask, raw);
            }
            if (!s->rule.elements)
                append_bits(&b, t, elem, bits);
            else if (is_site)
                append(&b, t, elem, 0);
        }
    }
    sdc__values_release(&v);
    return st;
}

/* ---- public ---- */

static enum sdc_status draw(const struct sdc_support *support, const struct sdc_choice *choice,
                            struct sdc_rng *rng, struct sdc_fault_list *list,
                            struct sdc_error *err) {
    bool attempts = choice->sample == SDC_SAMPLE_ATTEMPTS;
    if (choice->not_result && !support->read)
        return SDC_ERR(err, SDC_USAGE, "not-result: the values to look at were not given");
    switch (choice->mode) {
    case SDC_CHOICE_FLIPS:
        return attempts ? draw_attempts(support, choice, rng, list, err)
                        : draw_flips(support, choice, rng, list, err);
    case SDC_CHOICE_EXHAUSTIVE:
        return enumerate(support, list, err);
    case SDC_CHOICE_AT:
        return sdc__resolve_at(support, choice, list, err);
    case SDC_CHOICE_RATE:
        return draw_rate(support, choice, rng, list, err);
    }
    return SDC_OK;
}

enum sdc_status sdc_fault_list_draw(const struct sdc_support *support,
                                    const struct sdc_choice *choice, struct sdc_rng *rng,
                                    struct sdc_fault_list *list, struct sdc_error *err) {
    struct sdc_fault_list drawn = {0};
    const struct sdc_rng stream = *rng;
    enum sdc_status st = draw(support, choice, rng, &drawn, err);
    if (st == SDC_OK)
        st = sdc__draw_values(support, &stream, &drawn, err);
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
