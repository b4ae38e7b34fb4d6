/* SPDX-License-Identifier: Apache-2.0
 *
 * The injector's saved sequences: an object whose keys are locations, each with a list of entries.
 * Since January 2022 an entry is [indexes, bits], with [] for indexes that were not saved; from May
 * 2021 on it was the bits alone, and in April 2021 one bit. Bits are a list, from the sign; a
 * number where an integer was altered, which is a place in the digits of its magnitude, from the
 * leading one; null where an attempt did not happen. Found by reading and running version 676c62a.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/corrupter.h"
#include "io/io.h"
#include "sdc/num.h"

#define MAX_ENTRIES 10000000u

enum change {
    NOTHING, /* the attempt did not happen */
    BITS,    /* from the sign */
    DIGIT    /* of an integer's magnitude, from the leading one */
};

struct entry {
    enum change change;
    uint64_t bits;  /* BITS: bit n from the sign is bit n of this set */
    uint64_t digit; /* DIGIT */
    bool has_index;
    uint64_t index[SDC_MAX_RANK];
    unsigned n_index;
};

/* What happens to an element at one entry. */
struct step {
    uint32_t tensor, number; /* number: of the entry, which orders the steps of an element */
    uint64_t elem;
    bool digit;
    uint64_t value; /* bits of the type, or the digit */
};

struct sequence {
    const char *path;
    struct sdc_ckpt *ckpt;
    uint64_t seed;
    const struct sdc_tensor_desc **descs; /* owned */
    struct step *steps;                   /* owned */
    size_t n, cap;
    uint32_t number; /* of the entry */
    uint64_t happened;
    bool plain; /* every entry is one number: April 2021 */
    size_t doubtful;
};

/* The location of some entries. */
struct location {
    const char *name; /* borrowed: without slashes before it */
    bool exact;       /* a tensor's name: that of number tensor */
    size_t tensor;
};

/* ---- one entry ---- */

static enum sdc_status read_bit(const struct sdc_json *v, const char *where, uint64_t *bit,
                                struct sdc_error *err) {
    SDC_TRY(sdc__json_as_u64(v, where, bit, err));
    if (*bit > 63)
        return SDC_ERR(err, SDC_INVALID, "%s: expected a bit, 0 (the sign) to 63, found %llu",
                       where, (unsigned long long)*bit);
    return SDC_OK;
}

static enum sdc_status read_number(const struct sequence *s, const struct sdc_json *v,
                                   const char *where, struct entry *e, struct sdc_error *err) {
    int64_t n;
    uint64_t bit;
    if (s->plain) {
        SDC_TRY(sdc__json_as_i64(v, where, &n, err));
        if (n == -1) /* what April 2021 wrote for nothing */
            return SDC_OK;
    }
    SDC_TRY(read_bit(v, where, &bit, err));
    e->change = s->plain ? BITS : DIGIT;
    e->bits = (uint64_t)1 << bit;
    e->digit = bit;
    return SDC_OK;
}

static enum sdc_status read_change(const struct sequence *s, const struct sdc_json *v,
                                   const char *where, struct entry *e, struct sdc_error *err) {
    uint64_t bit;
    if (sdc__json_type(v) == SDC_JSON_NULL)
        return SDC_OK;
    if (sdc__json_type(v) != SDC_JSON_ARRAY)
        return read_number(s, v, where, e, err);
    if (sdc__json_count(v) == 0)
        return SDC_ERR(err, SDC_INVALID, "%s: no bit is named", where);
    e->change = BITS;
    for (size_t i = 0; i < sdc__json_count(v); i++) {
        SDC_TRY(read_bit(sdc__json_at(v, i), where, &bit, err));
        e->bits ^= (uint64_t)1 << bit; /* it may be there twice, and was flipped twice then */
    }
    return SDC_OK;
}

static enum sdc_status read_index(const struct sdc_json *v, const char *where, struct entry *e,
                                  struct sdc_error *err) {
    if (sdc__json_count(v) > SDC_MAX_RANK)
        return SDC_ERR(err, SDC_INVALID, "%s: more than %d dimensions", where, SDC_MAX_RANK);
    for (size_t i = 0; i < sdc__json_count(v); i++)
        SDC_TRY(sdc__json_as_u64(sdc__json_at(v, i), where, &e->index[e->n_index++], err));
    e->has_index = e->n_index > 0;
    return SDC_OK;
}

static enum sdc_status read_entry(const struct sequence *s, const struct sdc_json *v,
                                  const char *where, struct entry *e, struct sdc_error *err) {
    const struct sdc_json *indexes = sdc__json_at(v, 0);
    *e = (struct entry){0};
    if (sdc__json_type(v) != SDC_JSON_ARRAY || sdc__json_count(v) == 0 ||
        sdc__json_type(indexes) != SDC_JSON_ARRAY)
        return read_change(s, v, where, e, err);
    if (sdc__json_count(v) != 2)
        return SDC_ERR(err, SDC_INVALID, "%s: expected [indexes, bits], found a list of %zu", where,
                       sdc__json_count(v));
    SDC_TRY(read_index(indexes, where, e, err));
    return read_change(s, sdc__json_at(v, 1), where, e, err);
}

/* ---- steps ---- */

static enum sdc_status append(struct sequence *s, const struct step *step, struct sdc_error *err) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct step *grown = sdc__realloc(s->steps, cap, sizeof *grown);
        if (!grown)
            return SDC_NOMEM(err, "a sequence");
        s->steps = grown;
        s->cap = cap;
    }
    s->steps[s->n++] = *step;
    return SDC_OK;
}

static bool is_integer(const struct sdc_tensor_desc *t) {
    enum sdc_dtype_kind kind = sdc_dtype_kind(t->dtype);
    return kind == SDC_KIND_SINT || kind == SDC_KIND_UINT;
}

/* An element of the tensor at the entry's indexes, which are [0] where there is no dimension. */
static enum sdc_status flat_index(const struct sdc_tensor_desc *t, const struct entry *e,
                                  uint64_t *elem, struct sdc_error *err) {
    bool scalar = t->rank == 0 && e->n_index == 1 && e->index[0] == 0;
    return sdc_tensor_flat_index(t, e->index, scalar ? 0 : e->n_index, elem, err);
}

/* What happens to an element of the tensor, from the sign's side to bits of the type. */
static enum sdc_status change_of(const struct entry *e, const struct sdc_tensor_desc *t,
                                 const char *where, struct step *step, struct sdc_error *err) {
    if (!t->dtype_known || t->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s cannot be altered: %s", where, t->name,
                       t->locked ? t->locked : t->dtype_text);
    unsigned width = sdc_dtype_bits(t->dtype);
    step->digit = e->change == DIGIT;
    step->value = e->digit;
    if (step->digit && is_integer(t))
        return SDC_OK;
    if (step->digit)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: a number is a digit of an integer, but tensor %s is %s, whose bits are "
                       "a list",
                       where, t->name, sdc_dtype_name(t->dtype));
    if (width < 64 && e->bits >> width)
        return SDC_ERR(err, SDC_INVALID, "%s: bit %u, but tensor %s is %s, whose bits are 0 to %u",
                       where, 63u - (unsigned)__builtin_clzll(e->bits), t->name,
                       sdc_dtype_name(t->dtype), width - 1);
    step->value = 0;
    for (unsigned b = 0; b < width; b++)
        if (e->bits >> b & 1)
            step->value |= (uint64_t)1 << (width - 1 - b);
    return SDC_OK;
}

/* Tensors in which the entry can have been made. The injector writes not the tensor but what its
 * name begins with, and numbers for integers alone. */
static size_t find_tensors(const struct sequence *s, const struct entry *e,
                           const struct location *at, struct step *step, const char *where) {
    size_t found = 0, len = strlen(at->name);
    uint64_t elem;
    for (size_t i = 0; i < sdc_ckpt_count(s->ckpt); i++) {
        const struct sdc_tensor_desc *t = s->descs[i];
        struct step found_step = {.tensor = (uint32_t)i, .number = s->number};
        if (strncmp(t->name, at->name, len) != 0 || t->shared ||
            flat_index(t, e, &elem, NULL) != SDC_OK ||
            change_of(e, t, where, &found_step, NULL) != SDC_OK ||
            found_step.digit != is_integer(t))
            continue;
        found_step.elem = elem;
        *step = found_step;
        found++;
    }
    return found;
}

/* The tensor whose name the location is, where the indexes fit; else the one that they fit. */
static enum sdc_status add_named(struct sequence *s, const struct entry *e,
                                 const struct location *at, const char *where,
                                 struct sdc_error *err) {
    struct step step = {0};
    size_t found = find_tensors(s, e, at, &step, where);
    uint64_t elem;
    if (!at->exact && found != 1)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: %zu tensors whose names begin with %s have an element of this index "
                       "that can be altered so: name one",
                       where, found, at->name);
    if (at->exact && (found != 1 || flat_index(s->descs[at->tensor], e, &elem, NULL) == SDC_OK)) {
        s->doubtful += found > 1;
        step = (struct step){.tensor = (uint32_t)at->tensor, .number = s->number};
        enum sdc_status st = flat_index(s->descs[at->tensor], e, &step.elem, err);
        if (st != SDC_OK) {
            if (err)
                err->status = SDC_INVALID;
            sdc_error_prefix(err, "%s", where);
            return SDC_INVALID;
        }
        SDC_TRY(change_of(e, s->descs[at->tensor], where, &step, err));
    }
    return append(s, &step, err);
}

/* Tensor and element drawn alike among those of the location that have the bits; of integers the
 * bit too. */
static enum sdc_status draw(struct sequence *s, const struct entry *e, const char *location,
                            struct sdc_choice *choice, struct sdc_fault_list *list,
                            struct sdc_error *err) {
    struct sdc_support *support = NULL;
    struct sdc_rng rng;
    char bits[16];
    SDC_TRY(sdc_choice_set(choice, "sample", "attempts", err));
    SDC_TRY(sdc_corrupter_locate(s->ckpt, location, choice, err));
    if (e->change == DIGIT) {
        for (int d = 0; d < SDC_DTYPE_COUNT; d++)
            if (sdc_dtype_kind((enum sdc_dtype)d) == SDC_KIND_SINT ||
                sdc_dtype_kind((enum sdc_dtype)d) == SDC_KIND_UINT)
                choice->dtypes |= (uint32_t)1 << d;
    } else {
        /* the lowest bit makes the draw, since types that have it have the others too */
        snprintf(bits, sizeof bits, "msb:%u", 63u - (unsigned)__builtin_clzll(e->bits));
        SDC_TRY(sdc_choice_set(choice, "bits", bits, err));
    }
    sdc_rng_init(&rng, s->seed, SDC_RNG_FAULT_SITES, 0, s->number);
    enum sdc_status st = sdc_support_new(s->descs, sdc_ckpt_count(s->ckpt), choice, &support, err);
    if (st == SDC_OK)
        st = sdc_fault_list_draw(support, choice, &rng, list, err);
    sdc_support_free(support);
    return st;
}

static enum sdc_status add_drawn(struct sequence *s, const struct entry *e, const char *location,
                                 const char *where, struct sdc_error *err) {
    struct sdc_fault_list list = {0};
    struct sdc_choice choice;
    if (e->change == BITS && e->bits == 0) /* each was there twice */
        return SDC_OK;
    sdc_choice_init(&choice);
    enum sdc_status st = draw(s, e, location, &choice, &list, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", where);
    else if (list.n != 1 && e->change == DIGIT)
        st = SDC_ERR(err, SDC_INVALID, "%s: no integers of %s can be altered", where, location);
    else if (list.n != 1)
        st = SDC_ERR(err, SDC_INVALID, "%s: no tensor of %s that can be altered has bit %u", where,
                     location, 63u - (unsigned)__builtin_clzll(e->bits));
    if (st == SDC_OK) {
        const struct sdc_fault *f = &list.faults[0];
        struct step step = {.tensor = f->tensor, .number = s->number, .elem = f->elem};
        step.value = f->bits;
        if (e->change == BITS)
            st = change_of(e, s->descs[f->tensor], where, &step, err);
        if (st == SDC_OK)
            st = append(s, &step, err);
    }
    sdc_fault_list_release(&list);
    sdc_choice_release(&choice);
    return st;
}

/* ---- the document ---- */

static enum sdc_status add_entry(struct sequence *s, const struct sdc_json *v,
                                 const struct location *at, const char *where,
                                 struct sdc_error *err) {
    struct entry e;
    if (s->number >= MAX_ENTRIES)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %u entries", s->path, MAX_ENTRIES);
    SDC_TRY(read_entry(s, v, where, &e, err));
    if (e.change != NOTHING) {
        SDC_TRY(e.has_index ? add_named(s, &e, at, where, err)
                            : add_drawn(s, &e, at->name, where, err));
        s->happened++;
    }
    s->number++;
    return SDC_OK;
}

static enum sdc_status add_list(struct sequence *s, const struct sdc_json *list, const char *key,
                                struct sdc_error *err) {
    char where[SDC_MAX_NAME + 64];
    struct location at = {.name = key + strspn(key, "/")};
    at.exact = sdc_ckpt_find(s->ckpt, at.name, &at.tensor);
    for (size_t i = 0; i < sdc__json_count(list); i++) {
        snprintf(where, sizeof where, "%s: %s[%zu]", s->path, key, i);
        SDC_TRY(add_entry(s, sdc__json_at(list, i), &at, where, err));
    }
    return SDC_OK;
}

static enum sdc_status add_document(struct sequence *s, const struct sdc_json *root,
                                    struct sdc_error *err) {
    if (sdc__json_type(root) != SDC_JSON_OBJECT)
        return SDC_ERR(err, SDC_INVALID, "%s: expected an object of locations, found %s", s->path,
                       sdc__json_type_name(root));
    s->plain = true;
    for (const char *key = sdc__json_next_key(root, NULL); key;
         key = sdc__json_next_key(root, key)) {
        const struct sdc_json *list = sdc__json_get(root, key);
        if (sdc__json_type(list) != SDC_JSON_ARRAY)
            return SDC_ERR(err, SDC_INVALID, "%s: %s: expected a list of entries, found %s",
                           s->path, key, sdc__json_type_name(list));
        for (size_t i = 0; s->plain && i < sdc__json_count(list); i++)
            s->plain = sdc__json_type(sdc__json_at(list, i)) == SDC_JSON_INT;
    }
    for (const char *key = sdc__json_next_key(root, NULL); key; key = sdc__json_next_key(root, key))
        SDC_TRY(add_list(s, sdc__json_get(root, key), key, err));
    return SDC_OK;
}

/* ---- steps to faults ---- */

static int compare_steps(const void *a, const void *b) {
    const struct step *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    if (x->elem != y->elem)
        return x->elem < y->elem ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* A digit of the magnitude, whose sign stays: the one change of integers that the injector has. */
static enum sdc_status flip_digit(const struct sequence *s, const struct step *step, uint64_t *raw,
                                  struct sdc_error *err) {
    const struct sdc_tensor_desc *t = s->descs[step->tensor];
    unsigned width = sdc_dtype_bits(t->dtype);
    uint64_t all = width < 64 ? ((uint64_t)1 << width) - 1 : UINT64_MAX;
    bool negative = sdc_dtype_kind(t->dtype) == SDC_KIND_SINT && *raw >> (width - 1) & 1;
    uint64_t magnitude = (negative ? 0 - *raw : *raw) & all;
    unsigned digits = magnitude ? 64u - (unsigned)__builtin_clzll(magnitude) : 1;
    if (step->value >= digits)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: entry %u: digit %llu of element %llu of tensor %s, whose value has %u: "
                       "the sequence is not of this file",
                       s->path, step->number, (unsigned long long)step->value,
                       (unsigned long long)step->elem, t->name, digits);
    magnitude ^= (uint64_t)1 << (digits - 1 - step->value);
    *raw = (negative ? 0 - magnitude : magnitude) & all;
    return SDC_OK;
}

/* The bits in which an element differs after n steps. */
static enum sdc_status bits_of(const struct sequence *s, const struct step *steps, size_t n,
                               uint64_t *bits, struct sdc_error *err) {
    unsigned char memory[16];
    uint64_t before = 0, raw;
    bool digit = false;
    for (size_t i = 0; i < n; i++)
        digit = digit || steps[i].digit;
    if (digit) { /* which depends on the value */
        SDC_TRY(sdc_ckpt_read(s->ckpt, steps->tensor, steps->elem, 1, memory, err));
        before = sdc_num_load(s->descs[steps->tensor]->dtype, memory, false);
    }
    raw = before;
    for (size_t i = 0; i < n; i++) {
        if (steps[i].digit)
            SDC_TRY(flip_digit(s, &steps[i], &raw, err));
        else
            raw ^= steps[i].value;
    }
    *bits = raw ^ before;
    return SDC_OK;
}

/* One fault an element. */
static enum sdc_status merge(struct sequence *s, struct sdc_fault_list *list,
                             struct sdc_error *err) {
    struct sdc_fault_list made = {.attempts = s->number, .happened = s->happened};
    if (s->n) {
        qsort(s->steps, s->n, sizeof *s->steps, compare_steps);
        made.faults = sdc__calloc(s->n, sizeof *made.faults);
        if (!made.faults)
            return SDC_NOMEM(err, "a sequence");
    }
    for (size_t i = 0, n; i < s->n; i += n) {
        const struct step *first = &s->steps[i];
        struct sdc_fault *f = &made.faults[made.n];
        for (n = 1;
             i + n < s->n && first[n].tensor == first->tensor && first[n].elem == first->elem;)
            n++;
        *f = (struct sdc_fault){.op = SDC_OP_FLIP, .tensor = first->tensor, .elem = first->elem};
        enum sdc_status st = bits_of(s, first, n, &f->bits, err);
        if (st != SDC_OK) {
            sdc_fault_list_release(&made);
            return st;
        }
        made.n_sites += (unsigned)__builtin_popcountll(f->bits);
        made.n += f->bits != 0;
    }
    *list = made;
    return SDC_OK;
}

enum sdc_status sdc_corrupter_sequence(const char *path, struct sdc_ckpt *ckpt, uint64_t seed,
                                       struct sdc_fault_list *list, size_t *doubtful,
                                       struct sdc_error *err) {
    struct sequence s = {.path = path, .ckpt = ckpt, .seed = seed};
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_json *root = NULL;
    size_t n = sdc_ckpt_count(ckpt);
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__read_whole(path, SDC_MAX_JSON, &text, err));
    SDC_TRY_OUT(st, sdc__json_parse(text.data ? text.data : "", text.len, path, &root, err));
    s.descs = sdc__calloc(n, sizeof *s.descs);
    if (!s.descs) {
        st = SDC_NOMEM(err, "a sequence");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        s.descs[i] = sdc_ckpt_tensor(ckpt, i);
    SDC_TRY_OUT(st, add_document(&s, root, err));
    SDC_TRY_OUT(st, merge(&s, list, err));
    *doubtful = s.doubtful;
out:
    sdc__free(s.steps);
    sdc__free(s.descs);
    sdc__json_free(root);
    sdc__buf_release(&text);
    return st;
}
