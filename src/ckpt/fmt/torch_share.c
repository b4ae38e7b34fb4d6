/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensors have bytes in common. Of those of one storage, tensors of the same layout are one
 * tensor with several names; one of which a byte belongs to a tensor before it is a view; what
 * belongs to none is counted. Large tensors without gaps come first, so that slices are views of
 * the whole and not the other way round.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/fmt/torch.h"

#define MAP_LIMIT                                                                                  \
    (UINT64_C(512) * 1024 * 1024) /* bytes of a storage that are mapped one by one                 \
                                   */
#define NOTES 10u

/* A tensor that is a candidate: its bytes lie in [begin, end) of its storage. */
struct extent {
    size_t storage, tensor;
    uint64_t begin, end;
    bool dense;
};

static uint64_t elements(const struct sdc_torch_tensor *x) {
    uint64_t n = 1;
    for (unsigned d = 0; d < x->rank; d++)
        n *= x->shape[d];
    return n;
}

/* Dimensions of more than one step, the smallest stride first. */
static unsigned by_stride(const struct sdc_torch_tensor *x, uint64_t *dims, uint64_t *strides) {
    unsigned n = 0;
    for (unsigned d = 0; d < x->rank; d++) {
        if (x->shape[d] < 2)
            continue;
        unsigned at = n++;
        for (; at > 0 && strides[at - 1] > x->strides[d]; at--) {
            dims[at] = dims[at - 1];
            strides[at] = strides[at - 1];
        }
        dims[at] = x->shape[d];
        strides[at] = x->strides[d];
    }
    return n;
}

/* Do two of its elements have the same bytes? */
static bool meets_itself(const struct sdc_torch_tensor *x, bool *expanded) {
    uint64_t dims[SDC_MAX_RANK], strides[SDC_MAX_RANK], reach = 0;
    unsigned n = by_stride(x, dims, strides);
    *expanded = n > 0 && strides[0] == 0;
    for (unsigned i = 0; i < n; i++) {
        if (strides[i] <= reach)
            return true;
        reach += (dims[i] - 1) * strides[i]; /* inside the storage */
    }
    return false;
}

static struct extent extent_of(const struct sdc_torch_tensor *x, size_t i) {
    uint64_t last = x->offset;
    for (unsigned d = 0; d < x->rank; d++)
        last += (x->shape[d] - 1) * x->strides[d];
    struct extent e = {.storage = x->storage, .tensor = i};
    e.begin = x->offset * x->type.bits / 8;
    e.end = ((last + 1) * x->type.bits + 7) / 8;
    e.dense = last - x->offset + 1 == elements(x);
    return e;
}

/* ---- the same layout ---- */

static int compare_u64(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int compare_layout(const struct sdc_torch_tensor *x, const struct sdc_torch_tensor *y) {
    int c = compare_u64(x->storage, y->storage);
    c = c ? c : compare_u64(x->offset, y->offset);
    c = c ? c : strcmp(x->type.text, y->type.text);
    c = c ? c : compare_u64(x->rank, y->rank);
    for (unsigned d = 0; !c && d < 2 * x->rank; d++)
        c = compare_u64(x->shape[d], y->shape[d]); /* strides follow the shape */
    return c;
}

struct ranked {
    const struct sdc_torch_tensor *x;
    size_t i;
};

static int by_layout(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    int c = compare_layout(x->x, y->x);
    return c ? c : compare_u64(x->i, y->i);
}

static bool has_bytes(const struct sdc_torch *t, const struct sdc_torch_tensor *x) {
    return !x->why && elements(x) > 0 &&
           (x->is_inline || (x->storage != SDC_TORCH_NOWHERE && t->storages[x->storage].placed));
}

static enum sdc_status find_aliases(struct sdc_torch *t, struct sdc_error *err) {
    struct ranked *r = sdc__alloc(t->n, sizeof *r);
    size_t n = 0;
    if (!r)
        return SDC_NOMEM(err, t->ckpt->path);
    for (size_t i = 0; i < t->n; i++)
        if (has_bytes(t, &t->tensors[i]))
            r[n++] = (struct ranked){&t->tensors[i], i};
    if (n > 1)
        qsort(r, n, sizeof *r, by_layout);
    for (size_t i = 0, k; i < n; i = k)
        for (k = i + 1; k < n && compare_layout(r[i].x, r[k].x) == 0; k++)
            t->tensors[r[k].i].alias_of = r[i].i;
    sdc__free(r);
    return SDC_OK;
}

/* ---- views ---- */

/* In a storage: without gaps before others, larger before smaller, then by place and order. */
static int by_rank(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    int c = compare_u64(x->storage, y->storage);
    c = c ? c : compare_u64(y->dense, x->dense);
    c = c ? c : compare_u64(y->end - y->begin, x->end - x->begin);
    c = c ? c : compare_u64(x->begin, y->begin);
    return c ? c : compare_u64(x->tensor, y->tensor);
}

static int by_begin(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    int c = compare_u64(x->begin, y->begin);
    c = c ? c : compare_u64(y->end, x->end);
    return c ? c : compare_u64(x->tensor, y->tensor);
}

static enum sdc_status mark(struct sdc_torch *t, size_t i, const char *how, size_t of,
                            struct sdc_error *err) {
    struct sdc_torch_tensor *x = &t->tensors[i];
    if (x->shared)
        return SDC_OK;
    x->shared = of == SDC_TORCH_NOWHERE ? sdc__strdup(how)
                                        : sdc__asprintf("%s %.200s", how, t->tensors[of].name);
    return x->shared ? SDC_OK : SDC_NOMEM(err, t->ckpt->path);
}

/* All without gaps: one pass in order of place. covered: bytes of any of them. */
static enum sdc_status sweep(struct sdc_torch *t, struct extent *e, size_t n, uint64_t *covered,
                             struct sdc_error *err) {
    size_t last = SDC_TORCH_NOWHERE;
    uint64_t end = 0;
    *covered = 0;
    if (n > 1)
        qsort(e, n, sizeof *e, by_begin);
    for (size_t i = 0; i < n; i++) {
        if (last != SDC_TORCH_NOWHERE && e[i].begin < end)
            SDC_TRY(mark(t, e[i].tensor, e[i].end <= end ? "view of" : "overlaps", e[last].tensor,
                         err));
        uint64_t from = e[i].begin > end ? e[i].begin : end;
        if (e[i].end > from)
            *covered += e[i].end - from;
        if (e[i].end > end || last == SDC_TORCH_NOWHERE) {
            end = e[i].end;
            last = i;
        }
    }
    return SDC_OK;
}

/* Sets the bytes from begin to end; returns how many were set before. */
static uint64_t map_range(uint64_t begin, uint64_t end, unsigned char *map) {
    uint64_t before = 0;
    for (uint64_t b = begin; b < end; b++) {
        before += map[b / 8] >> b % 8 & 1;
        map[b / 8] = (unsigned char)(map[b / 8] | 1u << b % 8);
    }
    return before;
}

/* The same for the bytes of a tensor; of one that has more elements than bytes, or elements that
 * share bytes, for all it reaches over. */
static uint64_t map_bytes(const struct sdc_torch_tensor *x, const struct extent *e,
                          unsigned char *map) {
    uint64_t coord[SDC_MAX_RANK] = {0}, at = x->offset, before = 0;
    const unsigned size = x->type.bits / 8;
    bool expanded;
    if (e->dense || size == 0 || meets_itself(x, &expanded))
        return map_range(e->begin, e->end, map);
    for (;;) {
        before += map_range(at * size, (at + 1) * size, map);
        unsigned d = x->rank;
        while (d > 0 && ++coord[d - 1] == x->shape[d - 1]) {
            d--;
            at -= (x->shape[d] - 1) * x->strides[d];
            coord[d] = 0;
        }
        if (d == 0)
            return before;
        at += x->strides[d - 1];
    }
}

/* With gaps: byte by byte, or where that is too much by extents alone. */
static enum sdc_status compare_bytes(struct sdc_torch *t, struct extent *e, size_t n,
                                     uint64_t *covered, struct sdc_error *err) {
    const uint64_t size = t->storages[e->storage].size;
    unsigned char *map = size <= MAP_LIMIT ? sdc__calloc((size_t)(size / 8) + 1, 1) : NULL;
    enum sdc_status st = SDC_OK;
    if (!map && size <= MAP_LIMIT)
        return SDC_NOMEM(err, t->ckpt->path);
    *covered = 0;
    qsort(e, n, sizeof *e, by_rank);
    for (size_t i = 0; st == SDC_OK && i < n; i++) {
        size_t k = 0; /* the first before it that it may meet */
        while (k < i && (e[k].begin >= e[i].end || e[k].end <= e[i].begin))
            k++;
        const uint64_t before = map ? map_bytes(&t->tensors[e[i].tensor], &e[i], map) : k < i;
        if (before > 0)
            st = mark(t, e[i].tensor,
                      e[k].begin <= e[i].begin && e[i].end <= e[k].end && e[k].dense ? "view of"
                                                                                     : "overlaps",
                      e[k < i ? k : 0].tensor, err);
    }
    for (uint64_t b = 0; map && b < size / 8 + 1; b++)
        *covered += (unsigned)__builtin_popcount(map[b]);
    if (!map)
        *covered = size; /* not known */
    sdc__free(map);
    return st;
}

static enum sdc_status share_storage(struct sdc_torch *t, struct extent *e, size_t n,
                                     unsigned *notes, struct sdc_error *err) {
    const struct sdc_torch_storage *s = &t->storages[e->storage];
    bool dense = true;
    uint64_t covered = 0;
    for (size_t i = 0; i < n; i++)
        dense = dense && e[i].dense;
    if (n == 1 && !dense) {
        bool expanded; /* its elements are all it covers, if each has bytes of its own */
        const struct sdc_torch_tensor *x = &t->tensors[e->tensor];
        covered = meets_itself(x, &expanded) ? e->end - e->begin : elements(x) * x->type.bits / 8;
    } else if (dense) {
        SDC_TRY(sweep(t, e, n, &covered, err));
    } else {
        SDC_TRY(compare_bytes(t, e, n, &covered, err));
    }
    if (covered >= s->size || ++*notes > NOTES)
        return SDC_OK;
    return sdc__ckpt_add_note(t->ckpt, SDC_NOTE_INFO, err,
                              "storage %.80s: %llu of its %llu bytes belong to no tensor", s->key,
                              (unsigned long long)(s->size - covered), (unsigned long long)s->size);
}

static int by_storage(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    int c = compare_u64(x->storage, y->storage);
    return c ? c : compare_u64(x->tensor, y->tensor);
}

enum sdc_status sdc__torch_share(struct sdc_torch *t, struct sdc_error *err) {
    size_t n = 0;
    unsigned notes = 0;
    enum sdc_status st;
    struct extent *e = NULL;
    SDC_TRY_OUT(st, find_aliases(t, err));
    e = sdc__alloc(t->n, sizeof *e);
    if (!e)
        return SDC_NOMEM(err, t->ckpt->path);
    for (size_t i = 0; i < t->n; i++) {
        bool expanded;
        const struct sdc_torch_tensor *x = &t->tensors[i];
        if (!has_bytes(t, x) || x->alias_of != i || x->is_inline)
            continue;
        if (meets_itself(x, &expanded))
            SDC_TRY_OUT(st, mark(t, i,
                                 expanded ? "expanded: several elements are the same bytes"
                                          : "several of its elements are the same bytes",
                                 SDC_TORCH_NOWHERE, err));
        e[n++] = extent_of(x, i);
    }
    if (n > 1)
        qsort(e, n, sizeof *e, by_storage);
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && e[k].storage == e[i].storage; k++)
            continue;
        SDC_TRY_OUT(st, share_storage(t, e + i, k - i, &notes, err));
    }
    if (notes > NOTES)
        st = sdc__ckpt_add_note(t->ckpt, SDC_NOTE_INFO, err,
                                "%u more storages hold bytes that belong to no tensor",
                                notes - NOTES);
out:
    sdc__free(e);
    return st;
}
