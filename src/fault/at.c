/* SPDX-License-Identifier: Apache-2.0
 *
 * Sites that are listed by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "fault/support.h"

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

/* The bit that is named; 0 where the operator takes whole elements. */
static enum sdc_status resolve_bit(const struct sdc_tensor_desc *desc,
                                   const struct sdc_support_tensor *t, bool elements,
                                   const struct sdc_at *at, const char *text, uint64_t *bit,
                                   struct sdc_error *err) {
    *bit = 0;
    if (elements) {
        if (at->has_bit)
            return SDC_ERR(err, SDC_USAGE,
                           "site %s: a bit is named, but the operator takes whole "
                           "elements",
                           text);
        return SDC_OK;
    }
    if (!at->has_bit)
        return SDC_ERR(err, SDC_USAGE, "site %s: no bit is named, expected one such as %s@lsb:%u",
                       text, text,
                       sdc_dtype_bits(desc->dtype) > 1 ? sdc_dtype_bits(desc->dtype) - 2 : 0);
    *bit = sdc_bits_mask(&at->bit, 1, desc->dtype);
    if (*bit == 0)
        return SDC_ERR(err, SDC_USAGE, "site %s: %s has no such bit (it has %u bits)", text,
                       sdc_dtype_name(desc->dtype), sdc_dtype_bits(desc->dtype));
    if (*bit & ~t->mask)
        return SDC_ERR(err, SDC_USAGE, "site %s: the bit is not in the support, see --bits", text);
    return SDC_OK;
}

/* A site that is asked for by name and must not be altered so. */
static enum sdc_status check_result(const struct sdc_support *s, const struct sdc_support_tensor *t,
                                    uint64_t elem, uint64_t bit, const char *text,
                                    struct sdc_error *err) {
    const enum sdc_dtype dtype = s->descs[t->tensor]->dtype;
    struct sdc_values v;
    uint64_t raw;
    SDC_TRY(sdc__values_init(&v, s, err));
    enum sdc_status st = sdc__values_get(&v, t->tensor, elem, &raw, err);
    sdc__values_release(&v);
    if (st != SDC_OK)
        return st;
    if (s->rule.elements ? sdc__allowed_element(&s->rule, dtype, t->named, raw)
                         : sdc__allowed_bits(&s->rule, dtype, bit, raw) != 0)
        return SDC_OK;
    return SDC_ERR(err, SDC_USAGE, "site %s: would become what not-result leaves out", text);
}

static enum sdc_status find_desc(const struct sdc_support *s, const char *name, size_t *index,
                                 struct sdc_error *err) {
    size_t start = *index; /* often the one of the site before */
    for (size_t k = 0; k < s->n_descs; k++) {
        *index = start + k < s->n_descs ? start + k : start + k - s->n_descs;
        if (strcmp(s->descs[*index]->name, name) == 0)
            return SDC_OK;
    }
    *index = 0;
    return no_such_tensor(s, name, err);
}

static enum sdc_status resolve(const struct sdc_support *s, const struct sdc_at *at, size_t *desc_i,
                               struct sdc_fault *fault, uint64_t *bit, struct sdc_error *err) {
    char text[512];
    SDC_TRY(find_desc(s, at->tensor, desc_i, err));
    at_text(at, text, sizeof text);
    const struct sdc_tensor_desc *desc = s->descs[*desc_i];
    uint64_t elem;
    enum sdc_status st = sdc_tensor_flat_index(desc, at->index, at->n_index, &elem, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "site %s", text);
        return st;
    }
    if (desc->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "site %s: the tensor cannot be altered: %s", text,
                       desc->locked);
    const struct sdc_support_tensor *t = find_in_support(s, *desc_i);
    if (!t)
        return SDC_ERR(err, SDC_USAGE,
                       "site %s is not in the support: name, role, part, type or bits leave the "
                       "tensor out",
                       text);
    SDC_TRY(resolve_bit(desc, t, s->rule.elements, at, text, bit, err));
    if (s->rule.not_result)
        SDC_TRY(check_result(s, t, elem, *bit, text, err));
    *fault = sdc__fault_of(&s->rule, desc->dtype, *bit ? (unsigned)__builtin_ctzll(*bit) : 0);
    fault->tensor = t->tensor;
    fault->elem = elem;
    if (s->rule.op == SDC_OP_FLIP && s->rule.elements)
        fault->value = 1; /* sets of bits to draw */
    return SDC_OK;
}

/* A site on its way. */
struct named {
    struct sdc_fault fault;
    uint64_t bit;
};

static int compare_named(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    if (x->fault.tensor != y->fault.tensor)
        return x->fault.tensor < y->fault.tensor ? -1 : 1;
    return (x->fault.elem > y->fault.elem) - (x->fault.elem < y->fault.elem);
}

/* Joins the sites of one element. Named twice: flipped twice would be nothing, and once is not what
 * was written. */
static enum sdc_status join(const struct sdc_support *s, const struct named *named, size_t n,
                            struct sdc_fault_list *list, struct sdc_error *err) {
    uint64_t bits = 0; /* of the element so far */
    for (size_t i = 0; i < n; i++) {
        const struct sdc_fault *f = &named[i].fault;
        if (i == 0 || compare_named(&named[i - 1], &named[i]) != 0) {
            list->faults[list->n++] = *f;
            bits = named[i].bit;
        } else if (named[i].bit && !(named[i].bit & bits)) {
            list->faults[list->n - 1].bits |= f->bits;
            bits |= named[i].bit;
        } else {
            char index[256];
            sdc_tensor_index_text(s->descs[f->tensor], f->elem, index, sizeof index);
            return SDC_ERR(err, SDC_USAGE, "site %s%s is named twice", s->descs[f->tensor]->name,
                           index);
        }
        list->n_sites++;
    }
    return SDC_OK;
}

enum sdc_status sdc__resolve_at(const struct sdc_support *s, const struct sdc_choice *choice,
                                struct sdc_fault_list *list, struct sdc_error *err) {
    struct named *named = sdc__calloc(choice->n_at, sizeof *named);
    list->faults = sdc__calloc(choice->n_at, sizeof *list->faults);
    enum sdc_status st = named && list->faults ? SDC_OK : SDC_NOMEM(err, "the named sites");
    size_t desc = 0;
    for (size_t i = 0; st == SDC_OK && i < choice->n_at; i++)
        st = resolve(s, &choice->at[i], &desc, &named[i].fault, &named[i].bit, err);
    if (st == SDC_OK) {
        qsort(named, choice->n_at, sizeof *named, compare_named);
        st = join(s, named, choice->n_at, list, err);
    }
    sdc__free(named);
    return st;
}
