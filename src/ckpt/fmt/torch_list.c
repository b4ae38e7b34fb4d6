/* SPDX-License-Identifier: Apache-2.0
 *
 * The storages and tensors that the pickles of a file name, and what becomes of them in the list of
 * the checkpoint.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/fmt/torch.h"

/* ---- storages ---- */

static bool grow_slots(struct sdc_torch *t) {
    size_t n = t->n_slots ? t->n_slots * 2 : 64;
    uint32_t *slots = sdc__calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < t->n_storages; i++) {
        const char *key = t->storages[i].key;
        size_t at = sdc__xxh3_64(key, strlen(key)) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    sdc__free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    return true;
}

bool sdc__torch_find_storage(const struct sdc_torch *t, const char *key, size_t *index) {
    if (t->n_slots == 0)
        return false;
    size_t at = sdc__xxh3_64(key, strlen(key)) & (t->n_slots - 1);
    for (; t->slots[at]; at = (at + 1) & (t->n_slots - 1))
        if (strcmp(t->storages[t->slots[at] - 1].key, key) == 0) {
            *index = t->slots[at] - 1;
            return true;
        }
    return false;
}

enum sdc_status sdc__torch_storage(struct sdc_torch *t, const char *key, uint64_t numel,
                                   unsigned item, size_t *index, struct sdc_error *err) {
    uint64_t size = numel;
    if (!sdc__mul_u64(&size, item))
        return SDC_ERR(err, SDC_INVALID, "%s: storage %s: overflow of its size", t->ckpt->path,
                       key);
    if (sdc__torch_find_storage(t, key, index)) {
        struct sdc_torch_storage *s = &t->storages[*index];
        if (size > s->size) { /* the same bytes under a class of other elements */
            s->size = size;
            s->numel = numel;
            s->item = item;
        }
        return SDC_OK;
    }
    if (t->n_storages >= SDC_MAX_TENSORS)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %d storages", t->ckpt->path, SDC_MAX_TENSORS);
    if (t->n_storages == t->cap_storages) {
        size_t cap = t->cap_storages ? t->cap_storages * 2 : 32;
        struct sdc_torch_storage *more = sdc__realloc(t->storages, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, t->ckpt->path);
        t->storages = more;
        t->cap_storages = cap;
    }
    if (2 * t->n_storages >= t->n_slots && !grow_slots(t))
        return SDC_NOMEM(err, t->ckpt->path);
    struct sdc_torch_storage *s = &t->storages[t->n_storages];
    *s = (struct sdc_torch_storage){.numel = numel, .item = item, .size = size};
    s->key = sdc__strdup(key);
    if (!s->key)
        return SDC_NOMEM(err, t->ckpt->path);
    size_t at = sdc__xxh3_64(key, strlen(key)) & (t->n_slots - 1);
    while (t->slots[at])
        at = (at + 1) & (t->n_slots - 1);
    *index = t->n_storages++;
    t->slots[at] = (uint32_t)t->n_storages;
    return SDC_OK;
}

/* ---- tensors ---- */

enum sdc_status sdc__torch_add(struct sdc_torch *t, const char *name, unsigned rank,
                               struct sdc_torch_tensor **tensor, struct sdc_error *err) {
    if (t->n >= SDC_MAX_TENSORS)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %d tensors", t->ckpt->path, SDC_MAX_TENSORS);
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 32;
        struct sdc_torch_tensor *more = sdc__realloc(t->tensors, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, t->ckpt->path);
        t->tensors = more;
        t->cap = cap;
    }
    struct sdc_torch_tensor *x = &t->tensors[t->n];
    *x = (struct sdc_torch_tensor){.storage = SDC_TORCH_NOWHERE, .rank = rank, .alias_of = t->n};
    x->name = sdc__strdup(name);
    x->shape = sdc__calloc(2 * (size_t)rank + 1, sizeof *x->shape);
    if (!x->name || !x->shape) {
        sdc__free(x->name);
        sdc__free(x->shape);
        return SDC_NOMEM(err, t->ckpt->path);
    }
    x->strides = x->shape + rank;
    t->n++;
    *tensor = x;
    return SDC_OK;
}

unsigned sdc__torch_layout(const struct sdc_torch_tensor *x, uint64_t *dims, uint64_t *strides) {
    unsigned n = x->rank;
    for (unsigned d = 0; d < n; d++) {
        dims[d] = x->shape[d];
        strides[d] = x->strides[d] * x->type.bits; /* sdc__torch_check saw that they are small */
    }
    if (x->type.components > 1) {
        dims[n] = x->type.components;
        strides[n++] = x->type.bits / x->type.components;
    }
    return n;
}

enum sdc_status sdc__torch_check(const struct sdc_torch *t, const struct sdc_torch_tensor *x,
                                 struct sdc_error *err) {
    uint64_t last = x->offset, bits;
    bool fits = true, empty = false;
    for (unsigned d = 0; d < x->rank; d++)
        empty = empty || x->shape[d] == 0;
    for (unsigned d = 0; d < x->rank; d++) {
        if (x->shape[d] < 2 || empty)
            x->strides[d] = 0; /* says nothing, and may be anything */
        uint64_t reach = x->shape[d] ? x->shape[d] - 1 : 0;
        fits = fits && sdc__mul_u64(&reach, x->strides[d]) &&
               !__builtin_add_overflow(last, reach, &last);
    }
    const struct sdc_torch_storage *s = &t->storages[x->storage];
    bits = last;
    fits = fits && !__builtin_add_overflow(bits, 1, &bits) && sdc__mul_u64(&bits, x->type.bits) &&
           s->size <= UINT64_MAX / 8 && bits <= s->size * 8;
    if (fits || empty)
        return SDC_OK;
    return SDC_ERR(
        err, SDC_INVALID,
        "%s: tensor %s: out of bounds: its offset, shape and strides reach over the %llu "
        "bytes of storage %s",
        t->ckpt->path, x->name, (unsigned long long)s->size, s->key);
}

/* ---- names ---- */

struct named {
    const char *name;
    size_t i;
};

static int by_name(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : (x->i > y->i) - (x->i < y->i);
}

/* Names that two tensors have, such as of the keys 1 and "1": the later ones get a number. */
static enum sdc_status number_names(struct sdc_torch *t, struct sdc_error *err) {
    struct named *names = sdc__alloc(t->n, sizeof *names);
    enum sdc_status st = SDC_OK;
    if (!names)
        return SDC_NOMEM(err, t->ckpt->path);
    for (size_t i = 0; i < t->n; i++)
        names[i] = (struct named){t->tensors[i].name, i};
    if (t->n > 1)
        qsort(names, t->n, sizeof *names, by_name);
    for (size_t i = 0, k; i < t->n && st == SDC_OK; i = k)
        for (k = i + 1; k < t->n && strcmp(names[i].name, names[k].name) == 0; k++) {
            struct sdc_torch_tensor *x = &t->tensors[names[k].i];
            char *name = sdc__asprintf("%s#%zu", names[i].name, k - i + 1);
            if (!name) {
                st = SDC_NOMEM(err, t->ckpt->path);
                break;
            }
            sdc__free(x->name); /* names[i] stays: the first of the run keeps its name */
            x->name = name;
            names[k].name = names[i].name;
        }
    sdc__free(names);
    return st;
}

/* ---- entries ---- */

static enum sdc_status add_layout(struct sdc_ckpt_entry *e, const struct sdc_torch_tensor *x,
                                  const struct sdc_torch_storage *s, struct sdc_error *err) {
    uint64_t dims[SDC_MAX_RANK + 1], strides[SDC_MAX_RANK + 1];
    const unsigned n = sdc__torch_layout(x, dims, strides);
    struct sdc_torch_layout *layout = sdc__alloc(1, sizeof *layout + 2 * n * sizeof *dims);
    if (!layout)
        return SDC_NOMEM(err, e->name);
    layout->zip_member = s->zip_member;
    layout->bit = x->offset * x->type.bits;
    layout->n_dims = n;
    memcpy(layout->dims_strides, dims, n * sizeof *dims);
    memcpy(layout->dims_strides + n, strides, n * sizeof *dims);
    e->layout = layout;
    return sdc__entry_text(&e->recoded, err, "deflate");
}

static enum sdc_status add_piece(const struct sdc_torch *t, struct sdc_ckpt_entry *e,
                                 const struct sdc_torch_tensor *x, struct sdc_error *err) {
    uint64_t dims[SDC_MAX_RANK + 1], strides[SDC_MAX_RANK + 1];
    struct sdc_ckpt_piece piece = {.file = t->pickle_file, .dims = dims, .strides = strides};
    piece.n_dims = sdc__torch_layout(x, dims, strides);
    uint64_t first = x->is_inline ? x->offset : x->offset * x->type.bits / 8;
    if (!x->is_inline) {
        piece.file = t->storages[x->storage].file;
        if (__builtin_add_overflow(first, t->storages[x->storage].at, &first))
            first = UINT64_MAX;
    }
    if (first > UINT64_MAX / 16)
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: out of bounds", t->ckpt->path, x->name);
    piece.bit = first * 8 + (x->is_inline ? 0 : x->offset * x->type.bits % 8);
    return sdc__entry_piece(e, &piece, err);
}

static bool is_c_order(const struct sdc_torch_tensor *x) {
    uint64_t step = 1;
    for (unsigned d = x->rank; d-- > 0; step *= x->shape[d])
        if (x->shape[d] > 1 && x->strides[d] != step)
            return false;
    return true;
}

static enum sdc_status add_storage(const struct sdc_torch *t, struct sdc_ckpt_entry *e,
                                   const struct sdc_torch_tensor *x, struct sdc_error *err) {
    if (x->is_inline) {
        SDC_TRY(sdc__entry_text(&e->storage, err, "inside the pickle"));
        return e->desc.n_elems == 0 ? SDC_OK : add_piece(t, e, x, err);
    }
    const struct sdc_torch_storage *s = &t->storages[x->storage];
    SDC_TRY(sdc__entry_text(&e->storage, err, "%s, storage %s%s",
                            is_c_order(x) ? "contiguous" : "strided", s->key,
                            s->deflated ? ", deflated" : ""));
    if (!s->placed && e->desc.n_elems > 0) {
        e->unreadable = true;
        return sdc__entry_lock(e, err, "%s", s->why ? s->why : "its storage is missing");
    }
    if (!e->desc.dtype_known || e->desc.n_elems == 0)
        return SDC_OK;
    return s->deflated ? add_layout(e, x, s, err) : add_piece(t, e, x, err);
}

static enum sdc_status add_entry(struct sdc_torch *t, struct sdc_torch_tensor *x,
                                 struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    uint64_t shape[SDC_MAX_RANK + 1];
    unsigned rank = x->rank;
    SDC_TRY(sdc__ckpt_add(t->ckpt, x->name, &e, err));
    x->entry = t->ckpt->n - 1;
    memcpy(shape, x->shape, rank * sizeof *shape);
    if (x->type.components > 1)
        shape[rank++] = x->type.components;
    SDC_TRY(sdc__entry_set_shape(e, t->ckpt->path, rank, shape, err));
    e->big_endian = x->big_endian;
    if (x->type.known && (x->type.components > 1 || *x->type.text == 'q'))
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", x->type.text));
    if (x->type.known)
        SDC_TRY(sdc__entry_set_dtype(e, x->type.dtype, err));
    else
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", x->type.text));
    if (x->shared)
        SDC_TRY(sdc__entry_text(&e->shared, err, "%s", x->shared));
    if (x->why || (x->storage == SDC_TORCH_NOWHERE && !x->is_inline)) {
        e->unreadable = true;
        SDC_TRY(sdc__entry_text(&e->storage, err, "none"));
        return sdc__entry_lock(e, err, "%s", x->why ? x->why : "no storage");
    }
    uint64_t bits = e->desc.n_elems, per = x->type.bits / x->type.components;
    if (!x->shared && sdc__mul_u64(&bits, per))
        e->stored_size = (bits + 7) / 8;
    return add_storage(t, e, x, err);
}

enum sdc_status sdc__torch_finish(struct sdc_torch *t, struct sdc_error *err) {
    SDC_TRY(number_names(t, err));
    SDC_TRY(sdc__torch_share(t, err));
    for (size_t i = 0; i < t->n; i++)
        if (t->tensors[i].alias_of == i)
            SDC_TRY(add_entry(t, &t->tensors[i], err));
    for (size_t i = 0; i < t->n; i++)
        if (t->tensors[i].alias_of != i)
            SDC_TRY(sdc__entry_alias(&t->ckpt->entries[t->tensors[t->tensors[i].alias_of].entry],
                                     t->tensors[i].name, err));
    return sdc__torch_name_states(t, err);
}

void sdc__torch_drop_names(struct sdc_torch *t) {
    for (uint64_t i = 0; t->param_names && i < t->n_params; i++)
        sdc__free(t->param_names[i]);
    sdc__free(t->param_names);
    t->param_names = NULL;
}

void sdc__torch_release(struct sdc_torch *t) {
    for (size_t i = 0; i < t->n_storages; i++)
        sdc__free(t->storages[i].key);
    for (size_t i = 0; i < t->n; i++) {
        sdc__free(t->tensors[i].name);
        sdc__free(t->tensors[i].shape);
        sdc__free(t->tensors[i].shared);
    }
    sdc__torch_drop_names(t);
    sdc__free(t->optimizer);
    sdc__free(t->storages);
    sdc__free(t->slots);
    sdc__free(t->tensors);
    *t = (struct sdc_torch){0};
}
