/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/ckpt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt.h"

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

/* Every element of an alterable tensor in one piece must lie inside the file. */
static enum sdc_status finish_entry(const struct sdc_ckpt *ckpt, struct sdc_ckpt_entry *e,
                                    struct sdc_error *err) {
    struct sdc_tensor_desc *d = &e->desc;
    const char *path = ckpt->file.path;
    if (!d->dtype_known)
        SDC_TRY(sdc__entry_lock(e, err, "type %s: not alterable yet", e->dtype_text));
    if (e->in_one_piece && !e->locked) {
        uint64_t bytes = d->n_elems;
        if (!sdc__mul_u64(&bytes, sdc_dtype_bytes(d->dtype)))
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: overflow of its size in bytes", path,
                           e->name);
        if (!sdc__range_inside(e->offset, bytes, ckpt->file.size))
            return SDC_ERR_AT(err, SDC_INVALID, e->offset,
                              "%s: tensor %s: %llu bytes at %llu are not inside the file of %llu "
                              "bytes",
                              path, e->name, (unsigned long long)bytes,
                              (unsigned long long)e->offset, (unsigned long long)ckpt->file.size);
    }
    d->name = e->name;
    d->dtype_text = e->dtype_text;
    d->shape = e->shape;
    d->locked = e->locked;
    sdc_tensor_classify(d->name, d->dtype, d->rank, &d->part, &d->role);
    return SDC_OK;
}

static enum sdc_status finish(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    size_t n_names = ckpt->n;
    if (ckpt->n > 1)
        qsort(ckpt->entries, ckpt->n, sizeof *ckpt->entries, by_name);
    for (size_t i = 0; i < ckpt->n; i++) {
        SDC_TRY(finish_entry(ckpt, &ckpt->entries[i], err));
        n_names += ckpt->entries[i].n_aliases;
    }
    ckpt->names = sdc__alloc(n_names, sizeof *ckpt->names);
    if (!ckpt->names)
        return SDC_NOMEM(err, ckpt->file.path);
    for (size_t i = 0; i < ckpt->n; i++) {
        const struct sdc_ckpt_entry *e = &ckpt->entries[i];
        ckpt->names[ckpt->n_names++] = (struct sdc_ckpt_name){e->name, i};
        for (size_t a = 0; a < e->n_aliases; a++)
            ckpt->names[ckpt->n_names++] = (struct sdc_ckpt_name){e->aliases[a], i};
    }
    if (n_names > 1)
        qsort(ckpt->names, n_names, sizeof *ckpt->names, by_any_name);
    return SDC_OK;
}

enum sdc_status sdc_ckpt_open(const char *path, struct sdc_ckpt **ckpt, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    struct sdc_ckpt *c = sdc__calloc(1, sizeof *c);
    if (!c)
        return SDC_NOMEM(err, path);
    c->file = (struct sdc_file)SDC_FILE_INIT;
    SDC_TRY_OUT(st, sdc__file_open(path, SDC_FILE_READ, &c->file, err));

    unsigned char head[64];
    size_t n_head = c->file.size < sizeof head ? (size_t)c->file.size : sizeof head;
    SDC_TRY_OUT(st, sdc__file_read(&c->file, 0, head, n_head, err));
    size_t n;
    const struct sdc_ckpt_fmt_ops *const *table = sdc__ckpt_fmt_table(&n);
    for (size_t i = 0; i < n && !c->ops; i++)
        if (table[i]->sniff(&c->file, head, n_head))
            c->ops = table[i];
    if (!c->ops) {
        st = sdc__ckpt_unrecognised(&c->file, head, n_head, err);
        goto out;
    }
    SDC_TRY_OUT(st, c->ops->open(c, err));
    st = finish(c, err);
out:
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
    sdc__file_close(&ckpt->file);
    sdc__free(ckpt);
}

/* ---- inspecting ---- */

const char *sdc_ckpt_path(const struct sdc_ckpt *ckpt) {
    return ckpt->file.path;
}

const char *sdc_ckpt_format(const struct sdc_ckpt *ckpt) {
    return ckpt->ops->name;
}

uint64_t sdc_ckpt_file_size(const struct sdc_ckpt *ckpt) {
    return ckpt->file.size;
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

uint64_t sdc_ckpt_stored_size(const struct sdc_ckpt *ckpt, size_t i) {
    return ckpt->entries[i].stored_size;
}

/* ---- elements ---- */

enum sdc_status sdc_ckpt_map(struct sdc_ckpt *ckpt, size_t tensor, uint64_t elem,
                             struct sdc_span *span, struct sdc_error *err) {
    const char *path = ckpt->file.path;
    if (tensor >= ckpt->n)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %zu of %zu", path, tensor, ckpt->n);
    const struct sdc_ckpt_entry *e = &ckpt->entries[tensor];
    if (e->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s: %s", path, e->name, e->locked);
    if (elem >= e->desc.n_elems)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: element %llu of %llu", path, e->name,
                       (unsigned long long)elem, (unsigned long long)e->desc.n_elems);
    unsigned size = sdc_dtype_bytes(e->desc.dtype);
    uint64_t offset = e->offset + elem * size; /* finish_entry checked the whole range */
    if (!e->in_one_piece)
        SDC_TRY(ckpt->ops->map(ckpt, e, elem, &offset, err));
    if (!sdc__range_inside(offset, size, ckpt->file.size))
        return SDC_ERR_AT(err, SDC_INVALID, offset,
                          "%s: tensor %s: element %llu is not inside the file", path, e->name,
                          (unsigned long long)elem);
    *span = (struct sdc_span){.offset = offset, .size = size, .big_endian = e->big_endian};
    return SDC_OK;
}

enum sdc_status sdc_ckpt_read(struct sdc_ckpt *ckpt, size_t tensor, uint64_t first, uint64_t n,
                              void *elements, struct sdc_error *err) {
    const char *path = ckpt->file.path;
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
    enum sdc_status st = e->in_one_piece ? sdc__file_read(&ckpt->file, e->offset + first * size,
                                                          elements, (size_t)bytes, err)
                                         : ckpt->ops->read(ckpt, e, first, n, elements, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "tensor %s", e->name);
        return st;
    }
    if (size > 1 && e->big_endian != sdc__host_big_endian())
        sdc__swap_elements(elements, n, size);
    return SDC_OK;
}
