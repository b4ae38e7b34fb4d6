/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF, the format of llama.cpp and its relatives. Floats and integers are tensors as they are;
 * quantised ones are listed as the parts of their blocks, NAME:scale, NAME:quants and so on, so
 * that a fault says whether it hits one weight or the scale of a block. Models that are split over
 * several files are opened whole.
 */
#include "ckpt/fmt/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

static bool gguf_sniff(const struct sdc_ckpt_source *source) {
    return source->n_head >= 4 && memcmp(source->head, "GGUF", 4) == 0;
}

/* ---- tensors ---- */

/* name:part, or the name alone if part is NULL */
static enum sdc_status add(struct sdc_ckpt *ckpt, const struct sdc_gguf_tensor *t, const char *part,
                           struct sdc_ckpt_entry **e, struct sdc_error *err) {
    char *name = sdc__asprintf("%s%s%s", t->name, part ? ":" : "", part ? part : "");
    if (!name)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = sdc__ckpt_add(ckpt, name, e, err);
    if (st == SDC_OK && t->name[0] == '\0')
        st = sdc__entry_lock(*e, err, "its name is empty");
    sdc__free(name);
    return st;
}

/* An unknown type, whose bytes are all that is known. */
static enum sdc_status add_bytes(struct sdc_ckpt *ckpt, unsigned file,
                                 const struct sdc_gguf_tensor *t, struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    SDC_TRY(add(ckpt, t, "bytes", &e, err));
    SDC_TRY(sdc__entry_set_shape(e, ckpt->path, 1, &t->size, err));
    SDC_TRY(sdc__entry_set_dtype(e, SDC_DTYPE_U8, err));
    SDC_TRY(sdc__entry_text(&e->storage, err, "type %u, unknown", t->type));
    e->stored_size = t->size;
    return sdc__entry_contiguous(e, file, t->offset, err);
}

static enum sdc_status add_plain(struct sdc_ckpt *ckpt, unsigned file, bool big_endian,
                                 const struct sdc_gguf_tensor *t, const struct sdc_gguf_type *type,
                                 struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    enum sdc_dtype dtype;
    SDC_TRY(add(ckpt, t, NULL, &e, err));
    SDC_TRY(sdc__entry_set_shape(e, ckpt->path, t->rank, t->shape, err));
    if (!sdc_dtype_parse(type->dtype, &dtype))
        return SDC_ERR(err, SDC_INTERNAL, "no type %s", type->dtype);
    SDC_TRY(sdc__entry_set_dtype(e, dtype, err));
    SDC_TRY(sdc__entry_text(&e->storage, err, "contiguous"));
    e->big_endian = big_endian;
    e->stored_size = t->size;
    return sdc__entry_contiguous(e, file, t->offset, err);
}

/* Shape of a part: the tensor's own, or that with blocks instead of weights and, where a block has
 * several, axes of them. */
static unsigned part_shape(const struct sdc_gguf_tensor *t, const struct sdc_gguf_type *type,
                           const struct sdc_gguf_part *part, uint64_t *shape) {
    unsigned rank = t->rank;
    memcpy(shape, t->shape, sizeof t->shape);
    if (rank == 0)
        shape[rank++] = 1;
    if (part->weights)
        return rank;
    shape[rank - 1] /= type->weights;
    for (unsigned i = 0; i < part->n; i++)
        shape[rank++] = part->dims[i];
    return rank;
}

static enum sdc_status add_part(struct sdc_ckpt *ckpt, unsigned file, bool big_endian,
                                const struct sdc_gguf_tensor *t, const struct sdc_gguf_type *type,
                                const struct sdc_gguf_part *part, struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    enum sdc_dtype dtype;
    uint64_t shape[SDC_GGUF_DIMS + 4], dims[5] = {t->n_elems / type->weights},
                                       strides[5] = {(uint64_t)type->bytes * 8};
    SDC_TRY(add(ckpt, t, part->name, &e, err));
    SDC_TRY(sdc__entry_set_shape(e, ckpt->path, part_shape(t, type, part, shape), shape, err));
    SDC_TRY(sdc__entry_text(&e->storage, err, "%s, %u weights in %u bytes", type->name,
                            type->weights, type->bytes));
    e->big_endian = big_endian;
    if (!sdc_dtype_parse(part->dtype, &dtype)) {
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", part->dtype));
        return sdc__entry_lock(e, err, "type %s is unknown", part->dtype);
    }
    SDC_TRY(sdc__entry_set_dtype(e, dtype, err));
    if (part->word && big_endian) {
        e->unreadable = true;
        return sdc__entry_lock(e, err, "bits of a big-endian number have no regular places");
    }
    uint64_t bits = e->desc.n_elems; /* cannot overflow: the elements are in the file */
    e->stored_size = (bits * sdc_dtype_bits(dtype) + 7) / 8;
    for (unsigned i = 0; i < part->n; i++) {
        dims[1 + i] = part->dims[i];
        strides[1 + i] = part->strides[i];
    }
    struct sdc_ckpt_piece piece = {.file = file,
                                   .bit = t->offset * 8 + part->at,
                                   .n_dims = 1 + part->n,
                                   .dims = dims,
                                   .strides = strides};
    return sdc__entry_piece(e, &piece, err);
}

static enum sdc_status add_tensors(struct sdc_ckpt *ckpt, unsigned file,
                                   const struct sdc_gguf_header *h, struct sdc_error *err) {
    for (size_t i = 0; i < h->n; i++) {
        const struct sdc_gguf_tensor *t = &h->tensors[i];
        const struct sdc_gguf_type *type = sdc__gguf_type(t->type);
        if (!type) {
            SDC_TRY(add_bytes(ckpt, file, t, err));
            SDC_TRY(
                sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                                   "tensor %s has the unknown type %u; its bytes, with padding, "
                                   "are listed as %s:bytes",
                                   t->name, t->type, t->name));
        } else if (type->dtype) {
            SDC_TRY(add_plain(ckpt, file, h->big_endian, t, type, err));
        }
        for (size_t k = 0; type && k < SDC_GGUF_MAX_PART && type->parts[k].name; k++)
            SDC_TRY(add_part(ckpt, file, h->big_endian, t, type, &type->parts[k], err));
    }
    return SDC_OK;
}

static enum sdc_status add_notes(struct sdc_ckpt *ckpt, const struct sdc_file *f,
                                 const struct sdc_gguf_header *h, struct sdc_error *err) {
    uint64_t over = h->end % h->alignment, padded = over ? h->end + (h->alignment - over) : h->end;
    if (h->n > 0 && f->size < padded)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%s ends without the padding of its last tensor, which some "
                                   "readers demand",
                                   f->path));
    else if (f->size > padded)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%s: %llu trailing bytes after the last tensor", f->path,
                                   (unsigned long long)(f->size - padded)));
    if (h->long_name)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%s: names over 64 bytes, which llama.cpp refuses", f->path));
    return SDC_OK;
}

/* Names of tensors are distinct in a file and in a set. */
static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum sdc_status check_names(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    const char **names = sdc__alloc(ckpt->n, sizeof *names);
    if (!names)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < ckpt->n; i++)
        names[i] = ckpt->entries[i].name;
    if (ckpt->n > 1)
        qsort(names, ckpt->n, sizeof *names, by_name);
    for (size_t i = 1; st == SDC_OK && i < ckpt->n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            st = SDC_ERR(err, SDC_INVALID, "%s: tensor %s occurs twice", ckpt->path, names[i]);
    sdc__free(names);
    return st;
}

/* ---- models split over several files ---- */

/* What a shard's header says of the set must be what the file's name says. */
static enum sdc_status check_shard(const char *path, const struct sdc_gguf_header *h, uint64_t no,
                                   uint64_t count, uint64_t total, struct sdc_error *err) {
    if (h->split_count != count)
        return SDC_ERR(err, SDC_INVALID, "%s: split.count is %lld, by its name it is one of %llu",
                       path, (long long)h->split_count, (unsigned long long)count);
    if (h->split_no != UINT64_MAX && h->split_no != no - 1)
        return SDC_ERR(err, SDC_INVALID, "%s: split.no is %llu, by its name it is %llu", path,
                       (unsigned long long)h->split_no, (unsigned long long)(no - 1));
    if (h->split_tensors != total)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: split.tensors.count differs from that of another part", path);
    return SDC_OK;
}

static enum sdc_status add_shard(struct sdc_ckpt *ckpt, const char *name, uint64_t no,
                                 uint64_t count, uint64_t total, size_t *n, struct sdc_error *err) {
    const struct sdc_file *f;
    struct sdc_gguf_header h;
    unsigned file;
    char *dir = sdc__path_dir(ckpt->path), *path = dir ? sdc__path_join(dir, name) : NULL;
    enum sdc_status st =
        path ? sdc__ckpt_add_member(ckpt, name, path, &file, err) : SDC_NOMEM(err, ckpt->path);
    if (st == SDC_OK)
        st = sdc__ckpt_member(ckpt, file, &f, err);
    if (st == SDC_OK && (st = sdc__gguf_read_header(f, &h, err)) == SDC_OK) {
        st = check_shard(path, &h, no, count, total, err);
        if (st == SDC_OK)
            st = add_tensors(ckpt, file, &h, err);
        if (st == SDC_OK)
            st = add_notes(ckpt, f, &h, err);
        *n += h.n;
        sdc__gguf_header_release(&h);
    }
    sdc__free(path);
    sdc__free(dir);
    return st;
}

static enum sdc_status name_set(struct sdc_ckpt *ckpt, size_t stem, uint64_t count,
                                struct sdc_error *err) {
    char *dir = sdc__path_dir(ckpt->path);
    char *name = sdc__asprintf("%.*s-00001-of-%05llu.gguf", (int)stem, sdc__path_base(ckpt->path),
                               (unsigned long long)count);
    enum sdc_status st =
        dir && name ? sdc__ckpt_set_name(ckpt, dir, name, err) : SDC_NOMEM(err, ckpt->path);
    sdc__free(name);
    sdc__free(dir);
    return st;
}

/* All other parts of the set that the open file, with this header, is one of. */
static enum sdc_status add_shards(struct sdc_ckpt *ckpt, const struct sdc_gguf_header *h,
                                  struct sdc_error *err) {
    const char *base = sdc__path_base(ckpt->path);
    size_t stem, n = h->n;
    uint64_t no, count;
    if (!sdc__shard_name(base, ".gguf", &stem, &no, &count))
        return SDC_ERR(err, SDC_INVALID,
                       "%s: incomplete set: one of %llu parts, whose names are known only from one "
                       "like NAME-00001-of-%05llu.gguf",
                       ckpt->path, (unsigned long long)h->split_count,
                       (unsigned long long)h->split_count);
    SDC_TRY(check_shard(ckpt->path, h, no, count, h->split_tensors, err));
    SDC_TRY(name_set(ckpt, stem, count, err));
    for (uint64_t i = 1; i <= count; i++) {
        if (i == no)
            continue;
        char *name = sdc__asprintf("%.*s-%05llu-of-%05llu.gguf", (int)stem, base,
                                   (unsigned long long)i, (unsigned long long)count);
        enum sdc_status st = name ? add_shard(ckpt, name, i, count, h->split_tensors, &n, err)
                                  : SDC_NOMEM(err, ckpt->path);
        sdc__free(name);
        if (st != SDC_OK)
            return st;
    }
    if (h->split_tensors != UINT64_MAX && h->split_tensors != n)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: incomplete set: split.tensors.count is %llu, its parts have %zu",
                       ckpt->path, (unsigned long long)h->split_tensors, n);
    return SDC_OK;
}

static enum sdc_status gguf_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                 struct sdc_error *err) {
    struct sdc_gguf_header h;
    SDC_TRY(sdc__gguf_read_header(source->file, &h, err));
    enum sdc_status st = add_tensors(ckpt, 0, &h, err);
    if (st == SDC_OK)
        st = add_notes(ckpt, source->file, &h, err);
    if (st == SDC_OK && h.is_split)
        st = add_shards(ckpt, &h, err);
    if (st == SDC_OK)
        st = check_names(ckpt, err);
    sdc__gguf_header_release(&h);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_gguf = {
    .name = "gguf",
    .summary = "GGUF of llama.cpp",
    .sniff = gguf_sniff,
    .open = gguf_open,
};
