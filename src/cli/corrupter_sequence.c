/* SPDX-License-Identifier: Apache-2.0
 *
 * The injector's saved sequences.
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

#define MAX_ENTRIES 10000000u

struct entry {
    const char *location; /* borrowed from the document */
    uint64_t bits;        /* from the sign: bit n of the value is entry bit n of this set */
    bool has_index;
    uint64_t index[SDC_MAX_RANK];
    unsigned n_index;
};

struct sequence {
    const char *path;
    const struct sdc_ckpt *ckpt;
    uint64_t seed;
    const struct sdc_tensor_desc **descs; /* owned */
    struct sdc_fault *faults;             /* owned */
    size_t n, cap;
    uint32_t number; /* of the entry */
};

/* ---- one entry ---- */

static enum sdc_status read_bit(const struct sdc_json *v, const char *where, struct entry *e,
                                struct sdc_error *err) {
    uint64_t bit;
    SDC_TRY(sdc__json_as_u64(v, where, &bit, err));
    if (bit > 63)
        return SDC_ERR(err, SDC_INVALID, "%s: expected a bit, 0 (the sign) to 63, found %llu",
                       where, (unsigned long long)bit);
    if (e->bits >> bit & 1)
        return SDC_ERR(err, SDC_INVALID, "%s: bit %llu is named twice", where,
                       (unsigned long long)bit);
    e->bits |= (uint64_t)1 << bit;
    return SDC_OK;
}

/* A number or a list of them. */
static enum sdc_status read_bits(const struct sdc_json *v, const char *where, struct entry *e,
                                 struct sdc_error *err) {
    if (sdc__json_type(v) != SDC_JSON_ARRAY)
        return read_bit(v, where, e, err);
    if (sdc__json_count(v) == 0)
        return SDC_ERR(err, SDC_INVALID, "%s: no bit is named", where);
    for (size_t i = 0; i < sdc__json_count(v); i++)
        SDC_TRY(read_bit(sdc__json_at(v, i), where, e, err));
    return SDC_OK;
}

static enum sdc_status read_index(const struct sdc_json *v, const char *where, struct entry *e,
                                  struct sdc_error *err) {
    if (sdc__json_type(v) == SDC_JSON_NULL)
        return SDC_OK;
    e->has_index = true;
    if (sdc__json_type(v) != SDC_JSON_ARRAY) {
        e->n_index = 1;
        return sdc__json_as_u64(v, where, &e->index[0], err);
    }
    if (sdc__json_count(v) > SDC_MAX_RANK)
        return SDC_ERR(err, SDC_INVALID, "%s: more than %d dimensions", where, SDC_MAX_RANK);
    for (size_t i = 0; i < sdc__json_count(v); i++)
        SDC_TRY(sdc__json_as_u64(sdc__json_at(v, i), where, &e->index[e->n_index++], err));
    return SDC_OK;
}

/* {"bit": 1} or {"bits": [1, 2]}, with "index" or without, with "location" if none is known; or
 * the bits alone. */
static enum sdc_status read_entry(const struct sdc_json *v, const char *location, const char *where,
                                  struct entry *e, struct sdc_error *err) {
    static const char *const keys[] = {"bit", "bits", "index", "location"};
    char place[SDC_MAX_NAME + 128];
    *e = (struct entry){.location = location};
    if (sdc__json_type(v) != SDC_JSON_OBJECT)
        return read_bits(v, where, e, err);
    SDC_TRY(sdc__json_only(v, where, keys, location ? 3 : 4, err));
    const struct sdc_json *bit = sdc__json_get(v, "bit"), *bits = sdc__json_get(v, "bits");
    const struct sdc_json *index = sdc__json_get(v, "index");
    const struct sdc_json *own = sdc__json_get(v, "location");
    if (!bit == !bits)
        return SDC_ERR(err, SDC_INVALID, "%s: expected bit or bits", where);
    snprintf(place, sizeof place, "%s: %s", where, bit ? "bit" : "bits");
    SDC_TRY(read_bits(bit ? bit : bits, place, e, err));
    snprintf(place, sizeof place, "%s: index", where);
    if (index)
        SDC_TRY(read_index(index, place, e, err));
    if (own)
        SDC_TRY(sdc__json_as_str(own, where, &e->location, err));
    if (!e->location)
        return SDC_ERR(err, SDC_INVALID, "%s: no location is named", where);
    return SDC_OK;
}

/* ---- faults ---- */

static enum sdc_status append(struct sequence *s, const struct sdc_fault *f,
                              struct sdc_error *err) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct sdc_fault *grown = sdc__realloc(s->faults, cap, sizeof *grown);
        if (!grown)
            return SDC_NOMEM(err, "a sequence");
        s->faults = grown;
        s->cap = cap;
    }
    s->faults[s->n++] = *f;
    return SDC_OK;
}

/* From the sign's side to masks of a type. */
static enum sdc_status raw_bits(const struct entry *e, const struct sdc_tensor_desc *t,
                                const char *where, uint64_t *raw, struct sdc_error *err) {
    unsigned width = sdc_dtype_bits(t->dtype);
    *raw = 0;
    if (width < 64 && e->bits >> width)
        return SDC_ERR(err, SDC_INVALID, "%s: bit %u, but tensor %s is %s, whose bits are 0 to %u",
                       where, 63u - (unsigned)__builtin_clzll(e->bits), t->name,
                       sdc_dtype_name(t->dtype), width - 1);
    for (unsigned b = 0; b < width; b++)
        if (e->bits >> b & 1)
            *raw |= (uint64_t)1 << (width - 1 - b);
    return SDC_OK;
}

/* The tensor of a location with an index: itself, or the one of the group in which the index is. */
static enum sdc_status find_tensor(const struct sequence *s, const struct entry *e,
                                   const char *name, bool exact, const char *where, size_t *tensor,
                                   uint64_t *elem, struct sdc_error *err) {
    size_t found = 0, len = strlen(name);
    if (exact)
        return sdc_tensor_flat_index(s->descs[*tensor], e->index, e->n_index, elem, err);
    for (size_t i = 0; i < sdc_ckpt_count(s->ckpt); i++)
        if (strncmp(s->descs[i]->name, name, len) == 0 && !s->descs[i]->shared &&
            sdc_tensor_flat_index(s->descs[i], e->index, e->n_index, elem, NULL) == SDC_OK) {
            *tensor = i;
            found++;
        }
    if (found == 1)
        return sdc_tensor_flat_index(s->descs[*tensor], e->index, e->n_index, elem, err);
    return SDC_ERR(err, SDC_INVALID,
                   "%s: %zu tensors of group %s have an element of this index: name the tensor",
                   where, found, name);
}

static enum sdc_status add_named(struct sequence *s, const struct entry *e, const char *name,
                                 bool exact, size_t tensor, const char *where,
                                 struct sdc_error *err) {
    struct sdc_fault f = {.op = SDC_OP_FLIP};
    enum sdc_status st = find_tensor(s, e, name, exact, where, &tensor, &f.elem, err);
    if (st == SDC_USAGE) {
        if (err)
            err->status = SDC_INVALID;
        sdc_error_prefix(err, "%s", where);
        return SDC_INVALID;
    }
    SDC_TRY(st);
    const struct sdc_tensor_desc *t = s->descs[tensor];
    if (!t->dtype_known || t->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s cannot be altered: %s", where, t->name,
                       t->locked ? t->locked : t->dtype_text);
    f.tensor = (uint32_t)tensor;
    SDC_TRY(raw_bits(e, t, where, &f.bits, err));
    return append(s, &f, err);
}

/* Tensor and element drawn alike among those of the location that have the bits. */
static enum sdc_status draw(struct sequence *s, const struct entry *e, const char *pattern,
                            struct sdc_choice *choice, struct sdc_fault_list *list,
                            struct sdc_error *err) {
    struct sdc_support *support = NULL;
    struct sdc_rng rng;
    char bits[16];
    /* the lowest bit makes the draw, since types that have it have the others too */
    snprintf(bits, sizeof bits, "msb:%u", 63u - (unsigned)__builtin_clzll(e->bits));
    SDC_TRY(sdc_choice_set(choice, "sample", "attempts", err));
    SDC_TRY(sdc_choice_set(choice, "tensors", pattern, err));
    SDC_TRY(sdc_choice_set(choice, "bits", bits, err));
    sdc_rng_init(&rng, s->seed, SDC_RNG_FAULT_SITES, 0, s->number);
    enum sdc_status st = sdc_support_new(s->descs, sdc_ckpt_count(s->ckpt), choice, &support, err);
    if (st == SDC_OK)
        st = sdc_fault_list_draw(support, choice, &rng, list, err);
    sdc_support_free(support);
    return st;
}

static enum sdc_status add_drawn(struct sequence *s, const struct entry *e, const char *name,
                                 bool exact, const char *where, struct sdc_error *err) {
    struct sdc_fault_list list = {0};
    struct sdc_choice choice;
    sdc_choice_init(&choice);
    char *pattern = exact ? sdc__strdup(name) : sdc__asprintf("%s*", name);
    enum sdc_status st =
        pattern ? draw(s, e, pattern, &choice, &list, err) : SDC_NOMEM(err, "a sequence");
    if (st == SDC_OK && list.n != 1)
        st = SDC_ERR(err, SDC_INVALID, "%s: no tensor of %s that can be altered has bit %u", where,
                     name, 63u - (unsigned)__builtin_clzll(e->bits));
    if (st == SDC_OK) {
        struct sdc_fault f = list.faults[0];
        st = raw_bits(e, s->descs[f.tensor], where, &f.bits, err);
        if (st == SDC_OK)
            st = append(s, &f, err);
    }
    sdc_fault_list_release(&list);
    sdc_choice_release(&choice);
    sdc__free(pattern);
    return st;
}

static enum sdc_status add_entry(struct sequence *s, const struct sdc_json *v, const char *location,
                                 const char *where, struct sdc_error *err) {
    struct entry e;
    char *name;
    bool exact;
    size_t tensor;
    if (s->number >= MAX_ENTRIES)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %u entries", s->path, MAX_ENTRIES);
    SDC_TRY(read_entry(v, location, where, &e, err));
    enum sdc_status st = sdc_corrupter_location(s->ckpt, e.location, &name, &exact, &tensor, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s", where);
        return st;
    }
    st = e.has_index ? add_named(s, &e, name, exact, tensor, where, err)
                     : add_drawn(s, &e, name, exact, where, err);
    sdc__free(name);
    s->number++;
    return st;
}

/* ---- the document ---- */

static enum sdc_status add_list(struct sequence *s, const struct sdc_json *list,
                                const char *location, struct sdc_error *err) {
    char where[SDC_MAX_NAME + 64];
    if (sdc__json_type(list) != SDC_JSON_ARRAY)
        return SDC_ERR(err, SDC_INVALID, "%s: %s: expected a list of entries, found %s", s->path,
                       location, sdc__json_type_name(list));
    for (size_t i = 0; i < sdc__json_count(list); i++) {
        snprintf(where, sizeof where, "%s: %s[%zu]", s->path, location ? location : "", i);
        SDC_TRY(add_entry(s, sdc__json_at(list, i), location, where, err));
    }
    return SDC_OK;
}

static enum sdc_status add_document(struct sequence *s, const struct sdc_json *root,
                                    struct sdc_error *err) {
    if (sdc__json_type(root) == SDC_JSON_ARRAY)
        return add_list(s, root, NULL, err);
    if (sdc__json_type(root) != SDC_JSON_OBJECT)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: expected an object of locations or a list of entries, found %s",
                       s->path, sdc__json_type_name(root));
    for (const char *key = sdc__json_next_key(root, NULL); key; key = sdc__json_next_key(root, key))
        SDC_TRY(add_list(s, sdc__json_get(root, key), key, err));
    return SDC_OK;
}

static int compare_faults(const void *a, const void *b) {
    const struct sdc_fault *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->elem > y->elem) - (x->elem < y->elem);
}

/* One fault an element; a bit flipped twice is as it was. */
static void merge(struct sequence *s, struct sdc_fault_list *list) {
    size_t n = 0;
    if (s->n)
        qsort(s->faults, s->n, sizeof *s->faults, compare_faults);
    for (size_t i = 0; i < s->n; i++) {
        if (n > 0 && compare_faults(&s->faults[n - 1], &s->faults[i]) == 0)
            s->faults[n - 1].bits ^= s->faults[i].bits;
        else
            s->faults[n++] = s->faults[i];
        if (s->faults[n - 1].bits == 0 &&
            (i + 1 == s->n || compare_faults(&s->faults[n - 1], &s->faults[i + 1]) != 0))
            n--;
    }
    *list = (struct sdc_fault_list){
        .faults = s->faults, .n = n, .attempts = s->number, .happened = s->number};
    for (size_t i = 0; i < n; i++)
        list->n_sites += (unsigned)__builtin_popcountll(list->faults[i].bits);
    s->faults = NULL;
}

enum sdc_status sdc_corrupter_sequence(const char *path, const struct sdc_ckpt *ckpt, uint64_t seed,
                                       struct sdc_fault_list *list, struct sdc_error *err) {
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
    st = add_document(&s, root, err);
    if (st == SDC_OK)
        merge(&s, list);
out:
    sdc__free(s.faults);
    sdc__free(s.descs);
    sdc__json_free(root);
    sdc__buf_release(&text);
    return st;
}
