/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/ckpt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/files.h"

/* ---- opening ---- */

static int by_name(const void *a, const void *b) {
    const struct sdc_ckpt_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int by_any_name(const void *a, const void *b) {
    const struct sdc_ckpt_name *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : (x->entry > y->entry) - (x->entry < y->entry);
}

static enum sdc_status finish_entry(const struct sdc_ckpt *ckpt, struct sdc_ckpt_entry *e,
                                    struct sdc_error *err) {
    struct sdc_tensor_desc *d = &e->desc;
    if (!d->dtype_known)
        SDC_TRY(sdc__entry_lock(e, err, "type %s: not alterable", e->dtype_text));
    d->shape = e->shape; /* pieces that are boxes are checked against it */
    SDC_TRY(sdc__layout_check(ckpt, e, err));
    d->name = e->name;
    d->dtype_text = e->dtype_text;
    d->locked = e->locked;
    d->shared = e->shared;
    d->aliases = (const char *const *)e->aliases;
    d->n_aliases = e->n_aliases;
    sdc_tensor_classify(d->name, d->dtype, d->rank, &d->part, &d->role);
    /* a key such as "optimizer/_variables/1" says nothing where the tensor's own name does */
    for (size_t i = 0; d->role == SDC_ROLE_OTHER && i < e->n_aliases; i++) {
        enum sdc_part part;
        enum sdc_role role;
        sdc_tensor_classify(e->aliases[i], d->dtype, d->rank, &part, &role);
        if (role != SDC_ROLE_OTHER && (d->part == SDC_PART_NONE || part == d->part)) {
            d->part = part;
            d->role = role;
        }
    }
    return SDC_OK;
}

/* Most files have their tensors in order, and moving a million entries takes a while. */
static void sort(void *items, size_t n, size_t size, int (*compare)(const void *, const void *)) {
    const char *p = items;
    size_t i = 1;
    while (i < n && compare(p + (i - 1) * size, p + i * size) <= 0)
        i++;
    if (i < n)
        qsort(items, n, size, compare);
}

static enum sdc_status finish(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    size_t n_names = ckpt->n;
    if (!ckpt->name)
        SDC_TRY(sdc__ckpt_set_name(ckpt, ckpt->path, "", err));
    sort(ckpt->entries, ckpt->n, sizeof *ckpt->entries, by_name);
    for (size_t i = 0; i < ckpt->n; i++) {
        SDC_TRY(finish_entry(ckpt, &ckpt->entries[i], err));
        n_names += ckpt->entries[i].n_aliases;
    }
    ckpt->names = sdc__alloc(n_names, sizeof *ckpt->names);
    if (!ckpt->names)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < ckpt->n; i++) {
        const struct sdc_ckpt_entry *e = &ckpt->entries[i];
        ckpt->names[ckpt->n_names++] = (struct sdc_ckpt_name){e->name, i};
        for (size_t a = 0; a < e->n_aliases; a++)
            ckpt->names[ckpt->n_names++] = (struct sdc_ckpt_name){e->aliases[a], i};
    }
    sort(ckpt->names, n_names, sizeof *ckpt->names, by_any_name);
    return sdc__ckpt_note_links(ckpt, err);
}

/* Opens what path names, if it is a file, and reads its head. */
static enum sdc_status look(const char *path, struct sdc_file *file, unsigned char head[64],
                            struct sdc_ckpt_source *source, struct sdc_error *err) {
    *source = (struct sdc_ckpt_source){.path = path, .head = head};
    if (sdc__path_is_dir(path)) {
        source->is_folder = true;
        return SDC_OK;
    }
    enum sdc_status st = sdc__file_open(path, SDC_FILE_READ, file, err);
    if (st == SDC_NOT_FOUND) /* perhaps the prefix of a set */
        return SDC_OK;
    if (st != SDC_OK)
        return st;
    source->file = file;
    source->n_head = file->size < 64 ? (size_t)file->size : 64;
    return sdc__file_read(file, 0, head, source->n_head, err);
}

static enum sdc_status open_as(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                               struct sdc_file *file, struct sdc_error *err) {
    size_t n;
    const struct sdc_ckpt_fmt_ops *const *table = sdc__ckpt_fmt_table(&n);
    for (size_t i = 0; i < n && !ckpt->ops; i++)
        if (table[i]->sniff(source))
            ckpt->ops = table[i];
    if (!ckpt->ops)
        return sdc__ckpt_unrecognised(source, err);
    struct sdc_ckpt_source given = *source;
    if (!ckpt->ops->is_set) {
        SDC_TRY(sdc__ckpt_adopt(ckpt, file, err));
        given.file = ckpt->file;
    }
    SDC_TRY(ckpt->ops->open(ckpt, &given, err));
    return finish(ckpt, err);
}

enum sdc_status sdc_ckpt_open(const char *path, const struct sdc_ckpt_options *options,
                              struct sdc_ckpt **ckpt, struct sdc_error *err) {
    static const struct sdc_ckpt_options plain = {0};
    struct sdc_file file = SDC_FILE_INIT;
    struct sdc_ckpt_source source;
    unsigned char head[64];
    struct sdc_ckpt *c = sdc__calloc(1, sizeof *c);
    if (!c)
        return SDC_NOMEM(err, path);
    (void)pthread_mutex_init(&c->lock, NULL); /* cannot fail on Linux */
    (void)pthread_mutex_init(&c->member_lock, NULL);
    c->options = options ? options : &plain;
    c->path = sdc__strdup(path);
    enum sdc_status st = c->path ? look(path, &file, head, &source, err) : SDC_NOMEM(err, path);
    if (st == SDC_OK)
        st = open_as(c, &source, &file, err);
    c->options = NULL;
    sdc__file_close(&file);
    if (st == SDC_OK)
        *ckpt = c;
    else
        sdc_ckpt_close(c);
    return st;
}

void sdc_ckpt_close(struct sdc_ckpt *ckpt) {
    if (!ckpt)
        return;
    if (ckpt->ops && ckpt->ops->close)
        ckpt->ops->close(ckpt);
    for (size_t i = 0; i < ckpt->n; i++)
        sdc__entry_release(&ckpt->entries[i]);
    sdc__free(ckpt->entries);
    sdc__free(ckpt->names);
    sdc__ckpt_release_files(ckpt);
    (void)pthread_mutex_destroy(&ckpt->lock);
    (void)pthread_mutex_destroy(&ckpt->member_lock);
    sdc__free(ckpt->path);
    sdc__free(ckpt->name);
    sdc__free(ckpt);
}

/* ---- inspecting ---- */

const char *sdc_ckpt_path(const struct sdc_ckpt *ckpt) {
    return ckpt->path;
}

const char *sdc_ckpt_name(const struct sdc_ckpt *ckpt) {
    return ckpt->name;
}

const char *sdc_ckpt_format(const struct sdc_ckpt *ckpt) {
    return ckpt->ops->name;
}

uint64_t sdc_ckpt_file_size(const struct sdc_ckpt *ckpt) {
    uint64_t size = 0;
    for (size_t i = 0; i < ckpt->n_members; i++)
        size += ckpt->members[i]->size;
    return size;
}

size_t sdc_ckpt_count(const struct sdc_ckpt *ckpt) {
    return ckpt->n;
}

const struct sdc_tensor_desc *sdc_ckpt_tensor(const struct sdc_ckpt *ckpt, size_t i) {
    return &ckpt->entries[i].desc;
}

bool sdc_ckpt_find(const struct sdc_ckpt *ckpt, const char *name, size_t *i) {
    size_t lo = 0, hi = ckpt->n_names;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(ckpt->names[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == ckpt->n_names || strcmp(ckpt->names[lo].name, name) != 0)
        return false;
    *i = ckpt->names[lo].entry;
    return true;
}

const char *const *sdc_ckpt_aliases(const struct sdc_ckpt *ckpt, size_t i, size_t *n) {
    *n = ckpt->entries[i].n_aliases;
    return (const char *const *)ckpt->entries[i].aliases;
}

const char *sdc_ckpt_storage(const struct sdc_ckpt *ckpt, size_t i) {
    return ckpt->entries[i].storage;
}

const char *sdc_ckpt_recoded(const struct sdc_ckpt *ckpt, size_t i) {
    return ckpt->entries[i].recoded;
}

unsigned sdc_ckpt_recoded_file(const struct sdc_ckpt *ckpt, size_t i) {
    const struct sdc_ckpt_entry *e = &ckpt->entries[i];
    return e->recoded && ckpt->ops->member_of ? ckpt->ops->member_of(ckpt, e) : 0;
}

enum sdc_status sdc_ckpt_recode(struct sdc_ckpt *ckpt, unsigned file,
                                const struct sdc_ckpt_edit *edits, size_t n, const char *to,
                                bool stale, uint64_t *n_stale, struct sdc_error *err) {
    struct sdc_file f;
    if (!ckpt->ops->recode)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: storage of %s cannot be written anew", ckpt->path,
                       ckpt->ops->name);
    SDC_TRY(sdc__file_open(to, SDC_FILE_UPDATE, &f, err));
    (void)pthread_mutex_lock(&ckpt->lock);
    ckpt->keep_sums = stale;
    ckpt->n_kept_sums = 0;
    enum sdc_status st = ckpt->ops->recode(ckpt, file, edits, n, &f, err);
    *n_stale = ckpt->n_kept_sums;
    (void)pthread_mutex_unlock(&ckpt->lock);
    sdc__file_close(&f);
    return st;
}

uint64_t sdc_ckpt_stored_size(const struct sdc_ckpt *ckpt, size_t i) {
    return ckpt->entries[i].stored_size;
}

/* ---- elements ---- */

enum sdc_status sdc_ckpt_map(struct sdc_ckpt *ckpt, size_t tensor, uint64_t elem,
                             struct sdc_span *span, struct sdc_error *err) {
    const char *path = ckpt->path;
    if (tensor >= ckpt->n)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %zu of %zu", path, tensor, ckpt->n);
    const struct sdc_ckpt_entry *e = &ckpt->entries[tensor];
    if (e->locked || e->recoded)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s: %s%s", path, e->name,
                       e->locked ? e->locked : e->recoded,
                       e->locked ? "" : ": its elements have no bytes of their own");
    if (elem >= e->desc.n_elems)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: element %llu of %llu", path, e->name,
                       (unsigned long long)elem, (unsigned long long)e->desc.n_elems);
    if (e->n_pieces > 0)
        return sdc__layout_map(ckpt, e, elem, span, err); /* inside: layout_check saw all of it */
    struct sdc_span s = {.size = sdc_dtype_bytes(e->desc.dtype), .big_endian = e->big_endian};
    (void)pthread_mutex_lock(&ckpt->lock);
    enum sdc_status st = ckpt->ops->map(ckpt, e, elem, &s, err);
    (void)pthread_mutex_unlock(&ckpt->lock);
    if (st != SDC_OK)
        return st;
    if (s.file >= ckpt->n_members ||
        !sdc__range_inside(s.offset, s.size, ckpt->members[s.file]->size))
        return SDC_ERR_AT(err, SDC_INVALID, s.offset,
                          "%s: tensor %s: element %llu is not inside the file", path, e->name,
                          (unsigned long long)elem);
    *span = s;
    return SDC_OK;
}

enum sdc_status sdc_ckpt_read(struct sdc_ckpt *ckpt, size_t tensor, uint64_t first, uint64_t n,
                              void *elements, struct sdc_error *err) {
    const char *path = ckpt->path;
    if (tensor >= ckpt->n)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %zu of %zu", path, tensor, ckpt->n);
    const struct sdc_ckpt_entry *e = &ckpt->entries[tensor];
    if (!sdc__range_inside(first, n, e->desc.n_elems))
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: %llu elements from %llu on, it has %llu",
                       path, e->name, (unsigned long long)n, (unsigned long long)first,
                       (unsigned long long)e->desc.n_elems);
    if (!e->desc.dtype_known || e->unreadable)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s: %s", path, e->name, e->locked);
    if (n == 0)
        return SDC_OK;
    unsigned size = sdc_dtype_bytes(e->desc.dtype);
    uint64_t bytes = n;
    if (!sdc__mul_u64(&bytes, size) || bytes > SIZE_MAX)
        return SDC_ERR(err, SDC_LIMIT, "%s: tensor %s: too large to read at once", path, e->name);
    enum sdc_status st;
    if (e->n_pieces > 0) {
        st = sdc__layout_read(ckpt, e, first, n, elements, err);
    } else {
        (void)pthread_mutex_lock(&ckpt->lock);
        st = ckpt->ops->read(ckpt, e, first, n, elements, err);
        (void)pthread_mutex_unlock(&ckpt->lock);
    }
    if (st != SDC_OK) {
        sdc_error_prefix(err, "tensor %s", e->name);
        return st;
    }
    if (size > 1 && e->big_endian != sdc__host_big_endian())
        sdc__swap_elements(elements, n, size);
    return SDC_OK;
}
