/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"
#include "num/shortest.h"
#include "contract/names.h"

static const char *const part_names[] = {
#define PART_NAME(name, text) [SDC_PART_##name] = text,
    SDC_PART_MAP(PART_NAME)};
static const char *const role_names[] = {
#define ROLE_NAME(name, text) [SDC_ROLE_##name] = text,
    SDC_ROLE_MAP(ROLE_NAME)};

const char *sdc_part_name(enum sdc_part part) {
    return part_names[part];
}

const char *sdc_role_name(enum sdc_role role) {
    return role_names[role];
}

bool sdc_part_parse(const char *name, enum sdc_part *part) {
    for (int i = 0; i < SDC_PART_NONE; i++) {
        if (strcmp(part_names[i], name) == 0) {
            *part = (enum sdc_part)i;
            return true;
        }
    }
    return false;
}

bool sdc_role_parse(const char *name, enum sdc_role *role) {
    for (int i = 0; i < SDC_ROLE_COUNT; i++) {
        if (strcmp(role_names[i], name) == 0) {
            *role = (enum sdc_role)i;
            return true;
        }
    }
    return false;
}

static bool any_is(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool any_matches(const char *name, const char *const *patterns, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(patterns[i], name) == 0 || sdc__glob_match(patterns[i], name))
            return true;
    return false;
}

bool sdc_tensor_matches(const struct sdc_tensor_desc *t, const char *const *patterns, size_t n) {
    bool matches = any_matches(t->name, patterns, n);
    for (size_t i = 0; i < t->n_aliases && !matches; i++)
        matches = any_matches(t->aliases[i], patterns, n);
    return matches;
}

bool sdc_tensor_is_named(const struct sdc_tensor_desc *t, const char *const *names, size_t n) {
    bool is = any_is(t->name, names, n);
    for (size_t i = 0; i < t->n_aliases && !is; i++)
        is = any_is(t->aliases[i], names, n);
    return is;
}

const char *sdc_tensor_unmatched(const struct sdc_tensor_desc *const descs[], size_t n_descs,
                                 const char *const *patterns, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < n_descs && !sdc_tensor_matches(descs[k], &patterns[i], 1))
            k++;
        if (k == n_descs)
            return patterns[i];
    }
    return NULL;
}

const char *sdc_tensor_missing(const struct sdc_tensor_desc *const descs[], size_t n_descs,
                               const char *const *patterns, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strpbrk(patterns[i], "*?[") && sdc_tensor_unmatched(descs, n_descs, &patterns[i], 1))
            return patterns[i];
    return NULL;
}

enum sdc_status sdc_tensor_flat_index(const struct sdc_tensor_desc *t, const uint64_t *index,
                                      unsigned n, uint64_t *elem, struct sdc_error *err) {
    if (n != t->rank)
        return SDC_ERR(err, SDC_USAGE, "tensor %s: an index of %u dimensions, the tensor has %u",
                       t->name, n, t->rank);
    uint64_t flat = 0;
    for (unsigned d = 0; d < n; d++)
        if (t->shape[d] == 0)
            return SDC_ERR(err, SDC_USAGE, "tensor %s has no elements: its dimension %u is 0",
                           t->name, d);
    for (unsigned d = 0; d < n; d++) {
        if (index[d] >= t->shape[d])
            return SDC_ERR(
                err, SDC_USAGE, "tensor %s: index %llu in dimension %u, expected less than %llu",
                t->name, (unsigned long long)index[d], d, (unsigned long long)t->shape[d]);
        flat = flat * t->shape[d] + index[d];
    }
    *elem = flat;
    return SDC_OK;
}

size_t sdc_tensor_index_text(const struct sdc_tensor_desc *t, uint64_t elem, char *text,
                             size_t size) {
    char number[20];
    size_t used = 0;
    uint64_t stride = t->n_elems;
    if (size == 0)
        return 0;
    for (unsigned d = 0; d < t->rank; d++) {
        stride = t->shape[d] ? stride / t->shape[d] : 0;
        const uint64_t i = stride ? elem / stride : 0;
        if (stride)
            elem -= i * stride;
        const size_t len = sdc__u64_text(i, number);
        if (len + 1 >= size - used)
            break;
        text[used++] = d ? ',' : '[';
        memcpy(text + used, number, len);
        used += len;
    }
    for (const char *end = t->rank ? "]" : "[]"; *end && used + 1 < size; end++)
        text[used++] = *end;
    text[used] = '\0';
    return used;
}

/* ---- digest ---- */

struct entry {
    const struct sdc_tensor_view *view;
    char *name; /* owned; without wrappers' prefixes */
};

static int compare_entries(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0)
        order = strcmp(x->view->desc.name, y->view->desc.name);
    if (order == 0) /* one name twice: at least in a fixed order, that of the views */
        order = (x->view > y->view) - (x->view < y->view);
    return order;
}

static void hash_u64(struct sdc_hasher *h, uint64_t value) {
    unsigned char bytes[8];
    sdc_num_store(SDC_DTYPE_U64, value, bytes, false);
    sdc__hasher_update(h, bytes, sizeof bytes);
}

/* Elements as little-endian bytes: as they lie in memory, or swapped in small pieces. */
static void hash_elements(struct sdc_hasher *h, const struct sdc_tensor_view *view) {
    size_t width = sdc_dtype_bytes(view->desc.dtype);
    size_t n = (size_t)view->desc.n_elems;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (n)
        sdc__hasher_update(h, view->data, n * width);
#else
    const unsigned char *data = view->data;
    unsigned char piece[512];
    for (size_t i = 0; i < n;) {
        size_t used = 0;
        for (; i < n && used + width <= sizeof piece; i++, used += width)
            sdc_num_store(view->desc.dtype, sdc_num_load(view->desc.dtype, data + i * width, true),
                          piece + used, false);
        sdc__hasher_update(h, piece, used);
    }
#endif
}

static void hash_entry(struct sdc_hasher *h, const struct entry *e) {
    const struct sdc_tensor_desc *t = &e->view->desc;
    const char *type = sdc_dtype_name(t->dtype);
    sdc__hasher_update(h, e->name, strlen(e->name) + 1);
    sdc__hasher_update(h, type, strlen(type) + 1);
    hash_u64(h, t->rank);
    for (unsigned d = 0; d < t->rank; d++)
        hash_u64(h, t->shape[d]);
    hash_elements(h, e->view);
}

enum sdc_status sdc_state_digest(const struct sdc_tensor_view *views, size_t n,
                                 struct sdc_state_digest *digest, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    struct sdc_hasher *h = NULL;
    struct entry *entries = sdc__calloc(n, sizeof *entries);
    if (!entries)
        return SDC_NOMEM(err, "a state digest");
    for (size_t i = 0; i < n; i++) {
        const struct sdc_tensor_desc *t = &views[i].desc;
        if (!t->dtype_known) {
            st = SDC_ERR(err, SDC_UNSUPPORTED, "tensor %s: type %s has no digest", t->name,
                         t->dtype_text);
            goto out;
        }
        entries[i].view = &views[i];
        entries[i].name = sdc__name_unwrapped(t->name);
        if (!entries[i].name) {
            st = SDC_NOMEM(err, "a state digest");
            goto out;
        }
    }
    qsort(entries, n, sizeof *entries, compare_entries);
    h = sdc__hasher_new();
    if (!h) {
        st = SDC_NOMEM(err, "a state digest");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        hash_entry(h, &entries[i]);
    struct sdc_digest d = sdc__hasher_finish(h);
    memcpy(digest->bytes, d.bytes, sizeof digest->bytes);
out:
    for (size_t i = 0; i < n; i++)
        sdc__free(entries[i].name);
    sdc__free(entries);
    return st;
}

void sdc_state_digest_text(const struct sdc_state_digest *d, char text[SDC_STATE_DIGEST_TEXT]) {
    sdc__hex_encode(d->bytes, sizeof d->bytes, text);
}

bool sdc_state_digest_parse(const char *text, struct sdc_state_digest *d) {
    struct sdc_state_digest parsed;
    if (!sdc__hex_decode(text, sizeof parsed.bytes, parsed.bytes))
        return false;
    *d = parsed;
    return true;
}
