/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy arrays: from a header to tensors, and the format of single files (.npy). Its tensor is
 * called "array"; fields of structured types are tensors of their own, array:field.
 */
#include "ckpt/fmt/npy.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* ---- types ---- */

static bool number_of(char kind, uint64_t size, enum sdc_dtype *dtype) {
    static const struct {
        char kind;
        unsigned size;
        enum sdc_dtype dtype;
    } rows[] = {
        {'f', 2, SDC_DTYPE_F16}, {'f', 4, SDC_DTYPE_F32},  {'f', 8, SDC_DTYPE_F64},
        {'i', 1, SDC_DTYPE_I8},  {'i', 2, SDC_DTYPE_I16},  {'i', 4, SDC_DTYPE_I32},
        {'i', 8, SDC_DTYPE_I64}, {'u', 1, SDC_DTYPE_U8},   {'u', 2, SDC_DTYPE_U16},
        {'u', 4, SDC_DTYPE_U32}, {'u', 8, SDC_DTYPE_U64},  {'b', 1, SDC_DTYPE_BOOL},
        {'c', 8, SDC_DTYPE_F32}, {'c', 16, SDC_DTYPE_F64}, /* each part */
        {'M', 8, SDC_DTYPE_I64}, {'m', 8, SDC_DTYPE_I64},  /* counts of their unit */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].kind == kind && rows[i].size == size) {
            *dtype = rows[i].dtype;
            return true;
        }
    return false;
}

static enum sdc_status lock_field(struct sdc_ckpt_entry *e, const struct sdc_npy_field *f,
                                  struct sdc_error *err) {
    switch (f->kind) {
    case 'S':
    case 'U':
        return sdc__entry_lock(e, err, "strings");
    case 'O':
        return sdc__entry_lock(e, err, "objects, stored as a pickle");
    case 'V':
        return sdc__entry_lock(e, err, "type %s: %llu bytes of unknown meaning%s", f->descr,
                               (unsigned long long)f->size,
                               f->size == 2   ? "; bf16 degrades to this"
                               : f->size == 1 ? "; fp8 types degrade to this"
                                              : "");
    case 'f':
    case 'c':
        return sdc__entry_lock(e, err, "type %s: extended precision", f->descr);
    default:
        return sdc__entry_lock(e, err, "type %s is none of NumPy's", f->descr);
    }
}

/* ---- entries ---- */

/* Shape and strides (in bytes) of one field over the whole array. */
static unsigned lay_out(const struct sdc_npy *npy, const struct sdc_npy_field *f, bool complex_,
                        uint64_t *shape, uint64_t *strides) {
    unsigned rank = npy->rank;
    uint64_t step = npy->itemsize;
    for (unsigned k = 0; k < rank; k++) {
        unsigned d = npy->fortran ? k : rank - 1 - k;
        shape[d] = npy->shape[d];
        strides[d] = step;
        step *= npy->shape[d]; /* at most npy->size, or all of it is empty */
    }
    for (unsigned k = 0; k < f->rank; k++, rank++) {
        shape[rank] = f->dims[k];
        strides[rank] = f->strides[k];
    }
    if (complex_) {
        shape[rank] = 2;
        strides[rank++] = f->size / 2;
    }
    return rank;
}

static enum sdc_status add_walk(struct sdc_ckpt_entry *e, const struct sdc_npy *npy,
                                const struct sdc_npy_field *f, unsigned rank,
                                const uint64_t *strides, struct sdc_error *err) {
    struct sdc_npy_walk *w = sdc__calloc(1, sizeof *w);
    if (!w)
        return SDC_NOMEM(err, e->name);
    e->layout = w;
    w->start = npy->data + f->offset;
    w->rank = rank;
    memcpy(w->strides, strides, rank * sizeof *strides);
    uint64_t step = sdc_dtype_bytes(e->desc.dtype);
    w->packed = true;
    for (unsigned k = rank; k-- > 0;) {
        w->packed = w->packed && (e->shape[k] < 2 || strides[k] == step);
        step *= e->shape[k];
    }
    return SDC_OK;
}

static enum sdc_status add_piece(struct sdc_ckpt_entry *e, const struct sdc_npy_walk *w,
                                 const struct sdc_npy_place *place, struct sdc_error *err) {
    uint64_t bits[SDC_NPY_MAX_RANK], bit = place->start;
    for (unsigned k = 0; k < w->rank; k++) {
        bits[k] = w->strides[k];
        if (!sdc__mul_u64(&bits[k], 8))
            bits[k] = UINT64_MAX; /* refused below, unless there is but one */
    }
    if (__builtin_add_overflow(bit, w->start, &bit) || !sdc__mul_u64(&bit, 8))
        return SDC_ERR_AT(err, SDC_INVALID, place->start, "%s: out of bounds", e->name);
    struct sdc_ckpt_piece piece = {
        .file = place->file, .bit = bit, .n_dims = w->rank, .dims = e->shape, .strides = bits};
    return sdc__entry_piece(e, &piece, err);
}

static enum sdc_status add_entry(struct sdc_ckpt *ckpt, const char *name, const struct sdc_npy *npy,
                                 const struct sdc_npy_field *f, const struct sdc_npy_place *place,
                                 struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    uint64_t shape[SDC_NPY_MAX_RANK + SDC_MAX_RANK], strides[SDC_NPY_MAX_RANK + SDC_MAX_RANK];
    enum sdc_dtype dtype = SDC_DTYPE_U8;
    bool known = number_of(f->kind, f->size, &dtype);
    SDC_TRY(sdc__ckpt_add(ckpt, name, &e, err));
    if (f->kind == 'V' && f->size <= 8)
        known = sdc__ckpt_as(ckpt, e->name, (unsigned)f->size * 8, &dtype);
    unsigned rank = lay_out(npy, f, f->kind == 'c' && known, shape, strides);
    SDC_TRY(sdc__entry_set_shape(e, ckpt->path, rank, shape, err));
    SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", f->descr));
    SDC_TRY(sdc__entry_text(&e->storage, err, "%s%s", place->storage,
                            npy->fortran && npy->rank > 1 ? ", Fortran order" : ""));
    if (place->recoded)
        SDC_TRY(sdc__entry_text(&e->recoded, err, "%s", place->recoded));
    e->key = place->key;
    e->big_endian = f->big_endian;
    e->stored_size = npy->itemsize ? npy->size / npy->itemsize * f->size : 0;
    for (unsigned k = 0; k < f->rank; k++)
        e->stored_size *= f->dims[k]; /* at most npy->size */
    if (!known || npy->has_object) {
        e->unreadable = true;
        return npy->has_object && f->kind != 'O'
                   ? sdc__entry_lock(e, err, "stored as a pickle, beside objects")
                   : lock_field(e, f, err);
    }
    SDC_TRY(sdc__entry_set_dtype(e, dtype, err));
    SDC_TRY(add_walk(e, npy, f, rank, strides, err));
    if (place->in_file)
        SDC_TRY(add_piece(e, e->layout, place, err));
    return SDC_OK;
}

static enum sdc_status check_size(struct sdc_ckpt *ckpt, const char *name,
                                  const struct sdc_npy *npy, const struct sdc_npy_place *place,
                                  struct sdc_error *err) {
    const uint64_t have = place->total - npy->data;
    if (npy->has_object) /* its size says nothing */
        return SDC_OK;
    if (npy->size > have)
        return SDC_ERR_AT(err, SDC_INVALID, place->in_file ? place->start + place->total : 0,
                          "%s: %s: truncated: the elements need %llu bytes after the header of "
                          "%llu, found %llu",
                          ckpt->path, name, (unsigned long long)npy->size,
                          (unsigned long long)npy->data, (unsigned long long)have);
    if (npy->size < have)
        return sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                  "%s: %llu bytes after the last element", name,
                                  (unsigned long long)(have - npy->size));
    return SDC_OK;
}

static int by_field_name(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static enum sdc_status check_names(const struct sdc_ckpt *ckpt, const char *name,
                                   const struct sdc_npy *npy, struct sdc_error *err) {
    const char **names = sdc__alloc(npy->n_fields, sizeof *names);
    enum sdc_status st = SDC_OK;
    if (!names)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < npy->n_fields; i++)
        names[i] = npy->fields[i].name;
    if (npy->n_fields > 1)
        qsort(names, npy->n_fields, sizeof *names, by_field_name);
    for (size_t i = 1; st == SDC_OK && i < npy->n_fields; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            st = SDC_ERR(err, SDC_INVALID, "%s: %s: two fields called \"%s\"", ckpt->path, name,
                         names[i]);
    sdc__free(names);
    return st;
}

enum sdc_status sdc__npy_add(struct sdc_ckpt *ckpt, const char *name, const struct sdc_npy *npy,
                             const struct sdc_npy_place *place, struct sdc_error *err) {
    SDC_TRY(check_size(ckpt, name, npy, place, err));
    SDC_TRY(check_names(ckpt, name, npy, err));
    if (npy->called)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%s: its header has a call around a number, which NumPy's "
                                   "reader refuses",
                                   name));
    if (npy->n_fields == 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err, "%s: elements without fields", name));
    for (size_t i = 0; i < npy->n_fields; i++) {
        const struct sdc_npy_field *f = &npy->fields[i];
        char *full = f->name[0] ? sdc__asprintf("%s:%s", name, f->name) : sdc__strdup(name);
        if (!full)
            return SDC_NOMEM(err, ckpt->path);
        enum sdc_status st = add_entry(ckpt, full, npy, f, place, err);
        sdc__free(full);
        SDC_TRY(st);
    }
    return SDC_OK;
}

uint64_t sdc__npy_offset(const struct sdc_npy_walk *walk, const struct sdc_ckpt_entry *e,
                         uint64_t elem) {
    uint64_t at = walk->start;
    for (unsigned k = walk->rank; k-- > 0;) {
        at += elem % e->shape[k] * walk->strides[k];
        elem /= e->shape[k];
    }
    return at;
}

/* ---- the format ---- */

static bool npy_sniff(const struct sdc_ckpt_source *source) {
    return source->file && sdc__npy_is(source->head, source->n_head);
}

static enum sdc_status npy_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                struct sdc_error *err) {
    const struct sdc_file *f = ckpt->file;
    uint64_t len = 0;
    struct sdc_npy npy = {0};
    SDC_TRY(sdc__npy_header_len(source->head, source->n_head, f->size, ckpt->options->max_header,
                                ckpt->path, &len, err));
    unsigned char *head = sdc__alloc((size_t)len, 1);
    if (!head)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = sdc__file_read(f, 0, head, (size_t)len, err);
    if (st == SDC_OK)
        st = sdc__npy_parse(head, (size_t)len, ckpt->path, &npy, err);
    if (st == SDC_OK)
        st = sdc__npy_add(
            ckpt, "array", &npy,
            &(struct sdc_npy_place){.in_file = true, .total = f->size, .storage = "contiguous"},
            err);
    sdc__npy_release(&npy);
    sdc__free(head);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_npy = {
    .name = "npy",
    .summary = "NumPy array",
    .sniff = npy_sniff,
    .open = npy_open,
};
