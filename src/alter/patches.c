/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/patches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "sdc/num.h"

#define BLOCK SDC_PATCHES_BLOCK
#define AHEAD 16                  /* sites whose memory is asked for before they are looked at */
#define GAP   4096                /* patches nearer than this are read together */
#define JOIN  4096                /* changed bytes nearer than this are written together */
#define EDGE  ((size_t)64 * 1024) /* bytes of head and tail in an identity */

/* ---- one patch ---- */

struct sdc_patch sdc__patch_of_change(const struct sdc_record_change *c, unsigned file) {
    return (struct sdc_patch){.offset = c->offset,
                              .old_raw = c->old_raw,
                              .new_raw = c->new_raw,
                              .file = file,
                              .size = (unsigned char)sdc_dtype_bytes(c->dtype),
                              .shift = (unsigned char)c->shift,
                              .bits = (unsigned char)sdc_dtype_bits(c->dtype),
                              .big_endian = c->big_endian,
                              .change = c};
}

struct sdc_patch sdc__patch_of_mended(const struct sdc_record_mended *m, unsigned file) {
    return (struct sdc_patch){.offset = m->offset,
                              .old_raw = m->old_raw,
                              .new_raw = m->new_raw,
                              .now = m->old_raw,
                              .file = file,
                              .size = 4,
                              .bits = 32,
                              .mended = m};
}

void sdc__patch_text(const struct sdc_patch *p, char text[SDC_SITE_TEXT]) {
    if (p->change)
        snprintf(text, SDC_SITE_TEXT, "%s%s", p->change->tensor,
                 p->change->index ? p->change->index : "");
    else if (p->mended)
        snprintf(text, SDC_SITE_TEXT, "the %s of %s", p->mended->kind, p->mended->what);
    else
        snprintf(text, SDC_SITE_TEXT, "the element at byte %llu", (unsigned long long)p->offset);
}

uint64_t sdc__patch_value(const struct sdc_patch *p, enum sdc_side side) {
    return side == SDC_SIDE_OLD ? p->old_raw : p->new_raw;
}

static uint64_t mask_of(const struct sdc_patch *p) {
    return p->bits == 64 ? UINT64_MAX : (UINT64_C(1) << p->bits) - 1;
}

static uint64_t load_bytes(const struct sdc_patch *p, const unsigned char *bytes) {
    uint64_t v = 0;
    for (unsigned i = 0; i < p->size; i++)
        v |= (uint64_t)bytes[p->big_endian ? p->size - 1 - i : i] << 8 * i;
    return v;
}

static uint64_t load(const struct sdc_patch *p, const unsigned char *bytes) {
    return load_bytes(p, bytes) >> p->shift & mask_of(p);
}

static void store(const struct sdc_patch *p, uint64_t value, unsigned char *bytes) {
    uint64_t v = (load_bytes(p, bytes) & ~(mask_of(p) << p->shift)) | value << p->shift;
    for (unsigned i = 0; i < p->size; i++)
        bytes[p->big_endian ? p->size - 1 - i : i] = (unsigned char)(v >> 8 * i);
}

enum sdc_status sdc__lock_where_possible(struct sdc_file *f, bool exclusive,
                                         struct sdc_error *err) {
    struct sdc_error local;
    enum sdc_status st = sdc__file_lock(f, exclusive, &local);
    if (st == SDC_UNSUPPORTED)
        return SDC_OK;
    if (st != SDC_OK && err)
        *err = local;
    return st;
}

/* ---- the list ---- */

enum sdc_status sdc__patches_reserve(struct sdc_patches *list, size_t n, struct sdc_error *err) {
    size_t need;
    if (__builtin_add_overflow(list->n, n, &need))
        return SDC_NOMEM(err, "the altered sites");
    if (need <= list->cap)
        return SDC_OK;
    struct sdc_patch *more = sdc__realloc(list->items, need, sizeof *more);
    if (!more)
        return SDC_NOMEM(err, "the altered sites");
    list->items = more;
    list->cap = need;
    return SDC_OK;
}

enum sdc_status sdc__patches_add(struct sdc_patches *list, const struct sdc_patch *p,
                                 struct sdc_error *err) {
    if (list->n == list->cap)
        SDC_TRY(sdc__patches_reserve(list, list->n ? list->n : 64, err));
    list->items[list->n++] = *p;
    return SDC_OK;
}

void sdc__patches_release(struct sdc_patches *list) {
    sdc__free(list->items);
    *list = (struct sdc_patches){0};
}

static int compare(const void *a, const void *b) {
    const struct sdc_patch *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->shift > y->shift) - (x->shift < y->shift);
}

/* Small elements may share a byte, bits may not be shared. */
static bool overlap(const struct sdc_patch *a, const struct sdc_patch *b) {
    if (a->file != b->file || b->offset - a->offset >= a->size)
        return false;
    return a->size > 1 || b->size > 1 || a->shift + a->bits > b->shift;
}

bool sdc__patches_overlap(const struct sdc_patches *list, const struct sdc_patch **a,
                          const struct sdc_patch **b) {
    for (size_t i = 1; i < list->n; i++)
        if (overlap(&list->items[i - 1], &list->items[i])) {
            *a = &list->items[i - 1];
            *b = &list->items[i];
            return true;
        }
    return false;
}

enum sdc_status sdc__patches_sort(struct sdc_patches *list, struct sdc_error *err) {
    bool sorted = true; /* as drawn lists over one file mostly are */
    for (size_t i = 1; sorted && i < list->n; i++)
        sorted = compare(&list->items[i - 1], &list->items[i]) <= 0;
    if (!sorted)
        qsort(list->items, list->n, sizeof *list->items, compare);
    const struct sdc_patch *a, *b;
    if (!sdc__patches_overlap(list, &a, &b))
        return SDC_OK;
    char text[2][SDC_SITE_TEXT];
    sdc__patch_text(a, text[0]);
    sdc__patch_text(b, text[1]);
    return SDC_ERR_AT(err, SDC_INVALID, b->offset,
                      "%s: its bytes at %llu are those of another site too, %s", text[1],
                      (unsigned long long)b->offset, text[0]);
}

struct sdc_patch *sdc__patches_of(const struct sdc_patches *list, unsigned file, size_t *n) {
    size_t lo = 0, hi = list->n, first;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (list->items[mid].file < file)
            lo = mid + 1;
        else
            hi = mid;
    }
    first = lo;
    for (hi = list->n; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        if (list->items[mid].file <= file)
            lo = mid + 1;
        else
            hi = mid;
    }
    *n = lo - first;
    return *n ? list->items + first
              : NULL; /* without any, items is NULL, to which nothing is added */
}

enum sdc_status sdc__patches_inside(const struct sdc_patch *p, size_t n, uint64_t size,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < n; i++)
        if (p[i].size > size || p[i].offset > size - p[i].size) {
            char text[SDC_SITE_TEXT];
            sdc__patch_text(&p[i], text);
            return SDC_ERR_AT(err, SDC_INVALID, p[i].offset,
                              "%s: its offset %llu is outside the file of %llu bytes", text,
                              (unsigned long long)p[i].offset, (unsigned long long)size);
        }
    return SDC_OK;
}

/* ---- reading and writing ---- */

#define SLICE ((size_t)1 << 16) /* patches that one thread takes at a time */

/* Reads or writes of many patches, by slices that have no byte in common. */
struct transfer {
    struct sdc_patch *p;
    const struct sdc_patch *from; /* the same, for writing */
    size_t n;
    struct sdc_file *f;
    const struct sdc_file *source; /* the same, for reading */
    enum sdc_side side;
    bool known;
    const unsigned char *view; /* memory that shows the file, or NULL */
};

static size_t slice_start(const struct transfer *t, uint64_t task) {
    size_t i = task * SLICE < t->n ? (size_t)(task * SLICE) : t->n;
    while (i > 0 && i < t->n && t->from[i].offset < t->from[i - 1].offset + t->from[i - 1].size)
        i++;
    return i;
}

/* One slice is done by the calling thread. */
static enum sdc_status in_slices(struct transfer *t,
                                 enum sdc_status (*work)(void *user, void *slot, uint64_t task,
                                                         struct sdc_error *err),
                                 struct sdc_error *err) {
    const uint64_t n_tasks = t->n / SLICE + 1;
    char slots[SDC_MAX_THREADS];
    struct sdc_parallel run = {.n_tasks = n_tasks,
                               .threads = sdc__parallel_threads(0, n_tasks),
                               .work = work,
                               .user = t,
                               .slots = slots,
                               .slot_size = 1};
    return sdc__parallel_run(&run, err);
}

/* End (exclusive) of the patches from i on that are read together, and of their bytes. */
static size_t group(const struct sdc_patch *p, size_t n, size_t i, uint64_t *end) {
    const uint64_t from = p[i].offset;
    *end = from + p[i].size;
    size_t next = i + 1;
    for (; next < n; next++) {
        uint64_t e = p[next].offset + p[next].size;
        if ((p[next].offset > *end && p[next].offset - *end > GAP) || e - from > BLOCK)
            break;
        *end = e > *end ? e : *end;
    }
    return next;
}

static enum sdc_status read_slice(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct transfer *t = user;
    const size_t n = slice_start(t, task + 1);
    struct sdc_patch *p = t->p;
    (void)slot;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, "reading the sites");
    enum sdc_status st = SDC_OK;
    for (size_t i = slice_start(t, task), next; st == SDC_OK && i < n; i = next) {
        uint64_t end;
        next = group(p, n, i, &end);
        st = sdc__file_read(t->source, p[i].offset, block, (size_t)(end - p[i].offset), err);
        for (size_t k = i; st == SDC_OK && k < next; k++)
            p[k].now = load(&p[k], block + (p[k].offset - p[i].offset));
    }
    sdc__free(block);
    return st;
}

enum sdc_status sdc__patches_read(struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                  struct sdc_error *err) {
    struct transfer t = {.p = p, .from = p, .n = n, .source = f};
    return in_slices(&t, read_slice, err);
}

void sdc__patches_look(struct sdc_patch *p, size_t n, const unsigned char *view) {
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(view + p[i + AHEAD].offset);
        p[i].now = load(&p[i], view + p[i].offset);
    }
}

/* A group whose bytes are in block: sets the values and writes runs of what differs. */
static enum sdc_status write_group(const struct sdc_patch *p, size_t n, struct sdc_file *f,
                                   enum sdc_side side, unsigned char *block,
                                   struct sdc_error *err) {
    const uint64_t from = p[0].offset;
    uint64_t first = 0, end = 0; /* of the run that waits */
    for (size_t k = 0; k < n; k++) {
        unsigned char *bytes = block + (p[k].offset - from);
        uint64_t value = sdc__patch_value(&p[k], side);
        if (load(&p[k], bytes) == value)
            continue;
        if (end > 0 && p[k].offset > end && p[k].offset - end > JOIN) {
            SDC_TRY(sdc__file_write(f, first, block + (first - from), (size_t)(end - first), err));
            end = 0;
        }
        store(&p[k], value, bytes);
        if (end == 0)
            first = p[k].offset;
        if (p[k].offset + p[k].size > end)
            end = p[k].offset + p[k].size;
    }
    if (end == 0)
        return SDC_OK;
    return sdc__file_write(f, first, block + (first - from), (size_t)(end - first), err);
}

/* Is patch i all of its bytes, and no other near enough to be written with it? */
static bool stands_alone(const struct sdc_patch *p, size_t n, size_t i) {
    return p[i].bits == 8 * p[i].size &&
           (i == 0 || p[i].offset > p[i - 1].offset + p[i - 1].size + JOIN) &&
           (i + 1 == n || p[i + 1].offset > p[i].offset + p[i].size + JOIN);
}

static enum sdc_status write_alone(const struct sdc_patch *p, struct sdc_file *f,
                                   enum sdc_side side, struct sdc_error *err) {
    unsigned char bytes[8] = {0};
    if (p->now == sdc__patch_value(p, side))
        return SDC_OK;
    store(p, sdc__patch_value(p, side), bytes);
    return sdc__file_write(f, p->offset, bytes, p->size, err);
}

static enum sdc_status write_slice(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct transfer *t = user;
    const struct sdc_patch *p = t->from;
    const size_t n = slice_start(t, task + 1);
    (void)slot;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, "writing the sites");
    enum sdc_status st = SDC_OK;
    for (size_t i = slice_start(t, task), next; st == SDC_OK && i < n; i = next) {
        uint64_t end;
        next = i + 1;
        if (t->known && stands_alone(p, t->n, i)) {
            st = write_alone(&p[i], t->f, t->side, err);
            continue;
        }
        next = group(p, n, i, &end);
        if (t->view)
            memcpy(block, t->view + p[i].offset, (size_t)(end - p[i].offset));
        else
            st = sdc__file_read(t->f, p[i].offset, block, (size_t)(end - p[i].offset), err);
        if (st == SDC_OK)
            st = write_group(p + i, next - i, t->f, t->side, block, err);
    }
    sdc__free(block);
    return st;
}

enum sdc_status sdc__patches_write(const struct sdc_patch *p, size_t n, struct sdc_file *f,
                                   enum sdc_side side, bool known, struct sdc_error *err) {
    struct transfer t = {.from = p, .n = n, .f = f, .side = side, .known = known};
    return in_slices(&t, write_slice, err);
}

enum sdc_status sdc__patches_write_viewed(const struct sdc_patch *p, size_t n, struct sdc_file *f,
                                          enum sdc_side side, const unsigned char *view,
                                          struct sdc_error *err) {
    struct transfer t = {.from = p, .n = n, .f = f, .side = side, .known = true, .view = view};
    return in_slices(&t, write_slice, err);
}

enum sdc_status sdc__patches_check(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                   enum sdc_side side, struct sdc_error *err) {
    for (size_t i = 0; i < n; i++)
        if (p[i].now != sdc__patch_value(&p[i], side)) {
            char text[SDC_SITE_TEXT];
            sdc__patch_text(&p[i], text);
            return SDC_ERR_AT(err, SDC_IO, p[i].offset,
                              "%s: %s was written as %#llx and reads back as %#llx", f->path, text,
                              (unsigned long long)sdc__patch_value(&p[i], side),
                              (unsigned long long)p[i].now);
        }
    return SDC_OK;
}

static void load_all(struct sdc_patch *p, size_t n, const unsigned char *block) {
    for (size_t k = 0; k < n; k++)
        p[k].now = load(&p[k], block + (p[k].offset - p[0].offset));
}

enum sdc_status sdc__patches_change(struct sdc_patch *p, size_t n, struct sdc_file *f,
                                    unsigned char *block, sdc__patches_seen *seen, void *user,
                                    struct sdc_error *err) {
    for (size_t i = 0, next; i < n; i = next) {
        uint64_t end;
        next = group(p, n, i, &end);
        const size_t len = (size_t)(end - p[i].offset);
        SDC_TRY(sdc__file_read(f, p[i].offset, block, len, err));
        load_all(p + i, next - i, block);
        seen(user, p, i, next - i);
        SDC_TRY(write_group(p + i, next - i, f, SDC_SIDE_NEW, block, err));
        SDC_TRY(sdc__file_read(f, p[i].offset, block, len, err));
        load_all(p + i, next - i, block);
        SDC_TRY(sdc__patches_check(p + i, next - i, f, SDC_SIDE_NEW, err));
    }
    return SDC_OK;
}

/* ---- identity ---- */

void sdc__patches_put(const struct sdc_patch *p, size_t n, enum sdc_side side,
                      unsigned char *memory, uint64_t from, size_t len) {
    size_t lo = 0, hi = n; /* the first that may reach into the range */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (p[mid].offset + 8 <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t i = lo; i < n && p[i].offset < from + len; i++) {
        unsigned char bytes[8] = {0};
        uint64_t at = p[i].offset;
        for (unsigned k = 0; k < p[i].size; k++) /* what lies outside the range is not looked at */
            if (at + k >= from && at + k - from < len)
                bytes[k] = memory[at + k - from];
        store(&p[i], sdc__patch_value(&p[i], side), bytes);
        for (unsigned k = 0; k < p[i].size; k++)
            if (at + k >= from && at + k - from < len)
                memory[at + k - from] = bytes[k];
    }
}

static enum sdc_status edge_hash(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                 uint64_t from, size_t len, unsigned char *block, uint64_t *hash,
                                 struct sdc_error *err) {
    SDC_TRY(sdc__file_read(f, from, block, len, err));
    sdc__patches_put(p, n, SDC_SIDE_OLD, block, from, len);
    *hash = sdc__xxh3_64(block, len);
    return SDC_OK;
}

static enum sdc_status whole_digest(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                    unsigned char *block, unsigned char digest[16],
                                    struct sdc_error *err) {
    struct sdc_hasher *h = sdc__hasher_new();
    if (!h)
        return SDC_NOMEM(err, "the file's digest");
    enum sdc_status st = SDC_OK;
    for (uint64_t at = 0; st == SDC_OK && at < f->size;) {
        size_t len = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;
        st = sdc__file_read(f, at, block, len, err);
        if (st == SDC_OK) {
            sdc__patches_put(p, n, SDC_SIDE_OLD, block, at, len);
            sdc__hasher_update(h, block, len);
        }
        at += len;
    }
    struct sdc_digest d = sdc__hasher_finish(h);
    memcpy(digest, d.bytes, sizeof d.bytes);
    return st;
}

enum sdc_status sdc__patches_identity(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                      bool whole, struct sdc_file_identity *identity,
                                      struct sdc_error *err) {
    struct sdc_file_identity id = {.size = f->size, .has_whole = whole};
    size_t edge = f->size < EDGE ? (size_t)f->size : EDGE;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, "the file's identity");
    enum sdc_status st = edge_hash(p, n, f, 0, edge, block, &id.head, err);
    if (st == SDC_OK)
        st = edge_hash(p, n, f, f->size - edge, edge, block, &id.tail, err);
    if (st == SDC_OK && whole)
        st = whole_digest(p, n, f, block, id.whole, err);
    sdc__free(block);
    if (st == SDC_OK)
        *identity = id;
    return st;
}

bool sdc__identity_equal(const struct sdc_file_identity *a, const struct sdc_file_identity *b) {
    return a->size == b->size && a->head == b->head && a->tail == b->tail &&
           (!a->has_whole || !b->has_whole || memcmp(a->whole, b->whole, sizeof a->whole) == 0);
}
