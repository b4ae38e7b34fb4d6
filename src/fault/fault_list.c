/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/set.h"
#include "base/str.h"
#include "fault/support.h"

/* sites in one list */
#define MAX_SITES 100000000u

/* ---- a growing list ---- */

struct building {
    struct sdc_fault_list *list;
    size_t cap;
};

/* Adds a site after all earlier ones in (tensor, elem); the same element gets one more bit. */
static enum sdc_status append(struct building *b, const struct sdc_fault *f,
                              struct sdc_error *err) {
    struct sdc_fault_list *list = b->list;
    if (list->n > 0) {
        struct sdc_fault *last = &list->faults[list->n - 1];
        if (last->tensor == f->tensor && last->elem == f->elem) {
            last->bits |= f->bits;
            return SDC_OK;
        }
    }
    if (list->n == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 16;
        struct sdc_fault *grown = sdc__realloc(list->faults, cap, sizeof *grown);
        if (!grown)
            return SDC_NOMEM(err, "the list of faults");
        list->faults = grown;
        b->cap = cap;
    }
    list->faults[list->n++] = *f;
    return SDC_OK;
}

static struct sdc_fault fault_of(const struct sdc_support *s, const struct sdc_support_tensor *t,
                                 const struct sdc_choice *choice, uint64_t elem, uint64_t bits) {
    struct sdc_fault f = {.tensor = t->tensor, .elem = elem, .op = choice->op};
    if (choice->op == SDC_OP_VALUE)
        f.value = sdc_num_from_double(s->descs[t->tensor]->dtype, choice->value);
    else
        f.bits = bits;
    return f;
}

/* ---- drawing ---- */

static enum sdc_status from_numbers(const struct sdc_support *s, const struct sdc_choice *choice,
                                    const uint64_t *numbers, size_t n, struct sdc_fault_list *list,
                                    struct sdc_error *err) {
    struct building b = {.list = list};
    const struct sdc_support_tensor *t = s->tensors;
    for (size_t i = 0; i < n; i++) {
        while (numbers[i] - t->first >= t->n_elems * t->width)
            t++;
        uint64_t within = numbers[i] - t->first;
        uint64_t bits =
            t->mask ? (uint64_t)1 << sdc__bit_at(t->mask, (unsigned)(within % t->width)) : 0;
        struct sdc_fault f = fault_of(s, t, choice, within / t->width, bits);
        SDC_TRY(append(&b, &f, err));
    }
    list->n_sites = n;
    return SDC_OK;
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

struct open_tensor {
    const struct sdc_support_tensor *tensor;
    uint64_t left; /* sites not drawn yet */
};

/* Three draws a try: tensor, element, bit. A site drawn before is rejected and all three are drawn
 * again; a tensor of which every site is drawn is no longer among those to draw from, which gives
 * the same distribution as rejecting it and ends also when the list takes the whole support. */
static void draw_by_tensor(struct open_tensor *open, size_t n_open, struct sdc_set *drawn,
                           struct sdc_rng *rng, uint64_t *numbers, size_t n) {
    for (size_t found = 0; found < n;) {
        size_t pick = (size_t)sdc_rng_below(rng, n_open);
        const struct sdc_support_tensor *t = open[pick].tensor;
        uint64_t elem = sdc_rng_below(rng, t->n_elems);
        uint64_t number = t->first + elem * t->width + sdc_rng_below(rng, t->width);
        if (!sdc__set_insert(drawn, number))
            continue;
        numbers[found++] = number;
        if (--open[pick].left == 0) {
            n_open--;
            memmove(&open[pick], &open[pick + 1], (n_open - pick) * sizeof *open);
        }
    }
}

static enum sdc_status sample_tensors(const struct sdc_support *s, struct sdc_rng *rng,
                                      uint64_t *numbers, size_t n, struct sdc_error *err) {
    struct open_tensor *open = sdc__calloc(s->n_tensors, sizeof *open);
    if (!open)
        return SDC_NOMEM(err, "the tensors to draw from");
    for (size_t i = 0; i < s->n_tensors; i++)
        open[i] = (struct open_tensor){.tensor = &s->tensors[i],
                                       .left = s->tensors[i].n_elems * s->tensors[i].width};
    struct sdc_set drawn;
    enum sdc_status st = sdc__set_init(&drawn, n, err);
    if (st == SDC_OK) {
        draw_by_tensor(open, s->n_tensors, &drawn, rng, numbers, n);
        sdc__set_release(&drawn);
        qsort(numbers, n, sizeof *numbers, compare_numbers);
    }
    sdc__free(open);
    return st;
}

static enum sdc_status check_limit(uint64_t sites, struct sdc_error *err) {
    if (sites > MAX_SITES)
        return SDC_ERR(err, SDC_LIMIT, "%llu sites, expected at most %u in one list",
                       (unsigned long long)sites, MAX_SITES);
    return SDC_OK;
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
    size_t n = (size_t)choice->flips;
    uint64_t *numbers = sdc__alloc(n, sizeof *numbers);
    if (!numbers)
        return SDC_NOMEM(err, "the drawn sites");
    enum sdc_status st = choice->sample == SDC_SAMPLE_TENSORS
                             ? sample_tensors(s, rng, numbers, n, err)
                             : sdc_rng_sample(rng, s->sites, n, numbers, err);
    if (st == SDC_OK)
        st = from_numbers(s, choice, numbers, n, list, err);
    sdc__free(numbers);
    return st;
}

static enum sdc_status enumerate(const struct sdc_support *s, const struct sdc_choice *choice,
                                 struct sdc_fault_list *list, struct sdc_error *err) {
    SDC_TRY(check_limit(s->sites, err));
    struct building b = {.list = list};
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct sdc_support_tensor *t = &s->tensors[i];
        for (uint64_t elem = 0; elem < t->n_elems; elem++) {
            struct sdc_fault f = fault_of(s, t, choice, elem, t->mask);
            SDC_TRY(append(&b, &f, err));
        }
    }
    list->n_sites = s->sites;
    return SDC_OK;
}

/* ---- named sites ---- */

static enum sdc_status no_such_tensor(const struct sdc_support *s, const char *name,
                                      struct sdc_error *err) {
    const char *best = NULL;
    unsigned best_distance = (unsigned)(strlen(name) / 3 + 1);
    for (size_t i = 0; i < s->n_descs; i++) {
        unsigned distance = sdc__edit_distance(name, s->descs[i]->name);
        if (distance < best_distance) {
            best = s->descs[i]->name;
            best_distance = distance;
        }
    }
    /* "conv1.weight" for "model/conv1.weight" */
    for (size_t i = 0; !best && i < s->n_descs; i++)
        if (*name && strstr(s->descs[i]->name, name))
            best = s->descs[i]->name;
    if (best)
        return SDC_ERR(err, SDC_USAGE, "no tensor is named '%s' (did you mean '%s'?)", name, best);
    return SDC_ERR(err, SDC_USAGE, "no tensor is named '%s' (there are %zu)", name, s->n_descs);
}

/* "TENSOR[i,j]" for messages */
static void at_text(const struct sdc_at *at, char *text, size_t size) {
    size_t len = (size_t)snprintf(text, size, "%s[", at->tensor);
    for (unsigned i = 0; i < at->n_index && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%llu", i ? "," : "",
                                (unsigned long long)at->index[i]);
    if (len < size)
        snprintf(text + len, size - len, "]");
}

static const struct sdc_support_tensor *find_in_support(const struct sdc_support *s, size_t desc) {
    for (size_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].tensor == desc)
            return &s->tensors[i];
    return NULL;
}

static enum sdc_status resolve_bits(const struct sdc_tensor_desc *desc,
                                    const struct sdc_support_tensor *t,
                                    const struct sdc_choice *choice, const struct sdc_at *at,
                                    const char *text, uint64_t *bits, struct sdc_error *err) {
    *bits = 0;
    if (choice->op != SDC_OP_FLIP) {
        if (at->has_bit)
            return SDC_ERR(err, SDC_USAGE,
                           "site %s: a bit is named, but the operator takes whole "
                           "elements",
                           text);
        return SDC_OK;
    }
    if (!at->has_bit)
        return SDC_ERR(err, SDC_USAGE, "site %s: no bit is named, expected one such as %s@lsb:%u",
                       text, text, sdc_dtype_bits(desc->dtype) - 2);
    *bits = sdc_bits_mask(&at->bit, 1, desc->dtype);
    if (*bits == 0)
        return SDC_ERR(err, SDC_USAGE, "site %s: %s has no such bit (it has %u bits)", text,
                       sdc_dtype_name(desc->dtype), sdc_dtype_bits(desc->dtype));
    if (*bits & ~t->mask)
        return SDC_ERR(err, SDC_USAGE, "site %s: the bit is not in the support, see --bits", text);
    return SDC_OK;
}

static enum sdc_status resolve(const struct sdc_support *s, const struct sdc_choice *choice,
                               const struct sdc_at *at, struct sdc_fault *fault,
                               struct sdc_error *err) {
    size_t i = 0;
    while (i < s->n_descs && strcmp(s->descs[i]->name, at->tensor) != 0)
        i++;
    if (i == s->n_descs)
        return no_such_tensor(s, at->tensor, err);
    char text[512];
    at_text(at, text, sizeof text);
    const struct sdc_tensor_desc *desc = s->descs[i];
    uint64_t elem, bits;
    enum sdc_status st = sdc_tensor_flat_index(desc, at->index, at->n_index, &elem, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "site %s", text);
        return st;
    }
    if (desc->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "site %s: the tensor cannot be altered: %s", text,
                       desc->locked);
    const struct sdc_support_tensor *t = find_in_support(s, i);
    if (!t)
        return SDC_ERR(err, SDC_USAGE,
                       "site %s is not in the support: name, role, part, type or bits leave the "
                       "tensor out",
                       text);
    SDC_TRY(resolve_bits(desc, t, choice, at, text, &bits, err));
    *fault = fault_of(s, t, choice, elem, bits);
    return SDC_OK;
}

static int compare_faults(const void *a, const void *b) {
    const struct sdc_fault *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->elem > y->elem) - (x->elem < y->elem);
}

/* Named twice: flipped twice would be nothing, and once is not what was written. */
static enum sdc_status check_twice(const struct sdc_support *s, const struct sdc_fault *a,
                                   const struct sdc_fault *b, struct sdc_error *err) {
    if (compare_faults(a, b) != 0 || (a->op == SDC_OP_FLIP && !(a->bits & b->bits)))
        return SDC_OK;
    char index[256];
    sdc_tensor_index_text(s->descs[a->tensor], a->elem, index, sizeof index);
    return SDC_ERR(err, SDC_USAGE, "site %s%s is named twice", s->descs[a->tensor]->name, index);
}

static enum sdc_status resolve_all(const struct sdc_support *s, const struct sdc_choice *choice,
                                   struct sdc_fault_list *list, struct sdc_error *err) {
    struct sdc_fault *named = sdc__calloc(choice->n_at, sizeof *named);
    if (!named)
        return SDC_NOMEM(err, "the named sites");
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < choice->n_at; i++)
        st = resolve(s, choice, &choice->at[i], &named[i], err);
    if (st == SDC_OK)
        qsort(named, choice->n_at, sizeof *named, compare_faults);
    struct building b = {.list = list};
    for (size_t i = 0; st == SDC_OK && i < choice->n_at; i++) {
        if (list->n > 0)
            st = check_twice(s, &list->faults[list->n - 1], &named[i], err);
        if (st == SDC_OK)
            st = append(&b, &named[i], err);
        list->n_sites +=
            choice->op == SDC_OP_FLIP ? (unsigned)__builtin_popcountll(named[i].bits) : 1u;
    }
    sdc__free(named);
    return st;
}

/* ---- public ---- */

enum sdc_status sdc_fault_list_draw(const struct sdc_support *support,
                                    const struct sdc_choice *choice, struct sdc_rng *rng,
                                    struct sdc_fault_list *list, struct sdc_error *err) {
    struct sdc_fault_list drawn = {0};
    enum sdc_status st = SDC_OK;
    switch (choice->mode) {
    case SDC_CHOICE_FLIPS:
        st = draw_flips(support, choice, rng, &drawn, err);
        break;
    case SDC_CHOICE_EXHAUSTIVE:
        st = enumerate(support, choice, &drawn, err);
        break;
    case SDC_CHOICE_AT:
        st = resolve_all(support, choice, &drawn, err);
        break;
    }
    if (st != SDC_OK) {
        sdc_fault_list_release(&drawn);
        return st;
    }
    *list = drawn;
    return SDC_OK;
}

void sdc_fault_list_release(struct sdc_fault_list *list) {
    sdc__free(list->faults);
    *list = (struct sdc_fault_list){0};
}

uint64_t sdc_fault_apply(const struct sdc_fault *fault, enum sdc_dtype dtype, uint64_t raw) {
    (void)dtype; /* masks and values are made for the type when the fault is drawn */
    return fault->op == SDC_OP_VALUE ? fault->value : raw ^ fault->bits;
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
