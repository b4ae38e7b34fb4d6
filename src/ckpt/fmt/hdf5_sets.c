/* SPDX-License-Identifier: Apache-2.0
 *
 * From what a dataset's header says to entries: one for each leaf of its type, with pieces where
 * its elements are in one place, else with a part of a dataset that is kept for map and read.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"

#define MAX_CHUNKS (UINT64_C(1) << 23)
#define BOMB_BYTES (UINT64_C(4) << 30) /* Keras's limits for shapes beyond what is stored */
#define BOMB_RATIO 1000

/* What all entries of one dataset have in common. */
struct plan {
    struct sdc_ckpt *ckpt;
    struct sdc_h5_state *state;
    struct sdc_h5_found *found;
    struct sdc_h5_set *set;
    uint64_t bytes; /* of all elements */
    char storage[512], locked[512], recoded[256];
    bool unreadable;
    bool placed; /* elements in C order from `at` of a file on */
    unsigned file;
    uint64_t at;
    bool keep; /* for map and read */
    uint64_t stored;
};

static enum sdc_status invalid(const struct plan *p, const char *what, struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, p->set->addr, "%s: tensor %s: %s", p->ckpt->path,
                      p->found->names[0], what);
}

/* Positions are then not those of member 0. */
static bool is_inflated(const struct plan *p) {
    return p->state->f.file != p->ckpt->file;
}

/* ---- the kinds of storage ---- */

static void never_written(struct plan *p) {
    (void)snprintf(p->locked, sizeof p->locked, "never written, nothing is stored");
    p->keep = true;
}

static enum sdc_status plan_contiguous(struct plan *p, struct sdc_error *err) {
    const struct sdc_h5_set *set = p->set;
    (void)snprintf(p->storage, sizeof p->storage, "contiguous");
    if (p->bytes == 0)
        return SDC_OK;
    if (set->data_addr == SDC_H5_UNDEFINED) {
        never_written(p);
        return SDC_OK;
    }
    const uint64_t said = set->data_size ? set->data_size : p->bytes;
    if (said < p->bytes || !sdc__h5_position(&p->state->f, set->data_addr, said, &p->at))
        return SDC_ERR_AT(err, SDC_INVALID, set->data_addr,
                          "%s: tensor %s: truncated, or out of bounds: %llu bytes at %llu for "
                          "elements of %llu bytes do not fit the file of %llu bytes",
                          p->ckpt->path, p->found->names[0], (unsigned long long)said,
                          (unsigned long long)set->data_addr, (unsigned long long)p->bytes,
                          (unsigned long long)p->state->f.size);
    p->placed = true;
    p->stored = p->bytes;
    return SDC_OK;
}

/* The checksum of a header block; no two datasets share one. */
static enum sdc_status add_header_sum(struct plan *p, const struct sdc_h5_block *b,
                                      struct sdc_error *err) {
    struct sdc_h5_state *s = p->state;
    char what[160];
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_LOOKUP3, .what = what, .n_places = 1};
    if (s->n_summed == s->cap_summed) {
        const size_t cap = s->cap_summed ? s->cap_summed * 2 : 16;
        uint64_t *more = sdc__realloc(s->summed, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, p->ckpt->path);
        s->summed = more;
        s->cap_summed = cap;
    }
    s->summed[s->n_summed++] = b->addr;
    (void)snprintf(what, sizeof what, "object header at address %llu of tensor %.80s",
                   (unsigned long long)b->addr, p->found->names[0]);
    sum.offset = s->f.start + s->f.base + b->addr;
    sum.size = b->size - 4;
    sum.places[0].offset = sum.offset + sum.size;
    return sdc__ckpt_add_sum(p->ckpt, &sum, err);
}

static enum sdc_status plan_compact(struct plan *p, struct sdc_error *err) {
    const struct sdc_h5_set *set = p->set;
    (void)snprintf(p->storage, sizeof p->storage, "compact");
    if (p->bytes == 0)
        return SDC_OK;
    if (set->data_size != p->bytes)
        return SDC_ERR_AT(
            err, SDC_INVALID, set->addr,
            "%s: tensor %s: out of bounds: compact storage of %llu bytes for elements "
            "of %llu bytes",
            p->ckpt->path, p->found->names[0], (unsigned long long)set->data_size,
            (unsigned long long)p->bytes);
    p->placed = true;
    p->at = set->compact_at;
    p->stored = p->bytes;
    return p->found->header->version == 1 || is_inflated(p)
               ? SDC_OK
               : add_header_sum(p, &p->found->header->blocks[set->compact_block], err);
}

/* Only files of the folder of the checkpoint are looked at. */
static bool is_safe(const char *name) {
    if (*name == '/' || *name == '\0')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

/* The member of this name, added if it is new. SDC_INVALID: it is not there. */
static enum sdc_status get_member(struct plan *p, const char *name, unsigned *index,
                                  struct sdc_error *err) {
    struct sdc_ckpt *ckpt = p->ckpt;
    for (size_t i = 1; i < ckpt->n_members; i++)
        if (strcmp(ckpt->members[i]->name, name) == 0) {
            *index = (unsigned)i;
            return SDC_OK;
        }
    char *dir = sdc__path_dir(ckpt->path);
    char *path = dir ? sdc__path_join(dir, name) : NULL;
    enum sdc_status st =
        path ? sdc__ckpt_add_member(ckpt, name, path, index, err) : SDC_NOMEM(err, ckpt->path);
    sdc__free(path);
    sdc__free(dir);
    return st;
}

static enum sdc_status plan_external(struct plan *p, unsigned **members, struct sdc_error *err) {
    const struct sdc_h5_set *set = p->set;
    uint64_t covered = 0;
    (void)snprintf(p->storage, sizeof p->storage, "external, %zu segment%s", set->n_segments,
                   set->n_segments == 1 ? "" : "s");
    for (size_t i = 0; i < set->n_segments; i++)
        if (!is_safe(set->segments[i].name) || p->state->in_archive) {
            p->unreadable = true;
            (void)snprintf(p->locked, sizeof p->locked,
                           "external: unsafe path: \"%.200s\" is not below the file's folder",
                           set->segments[i].name);
            return sdc__ckpt_add_note(p->ckpt, SDC_NOTE_SECURITY, err,
                                      "tensor %s has its elements in the file \"%.500s\", which is "
                                      "not below the folder of this one: not looked at",
                                      p->found->names[0], set->segments[i].name);
        }
    *members = sdc__alloc(set->n_segments, sizeof **members);
    if (!*members)
        return SDC_NOMEM(err, p->ckpt->path);
    for (size_t i = 0; i < set->n_segments; i++) {
        struct sdc_h5_segment *s = &set->segments[i];
        SDC_TRY(get_member(p, s->name, &(*members)[i], err));
        const uint64_t size = p->ckpt->members[(*members)[i]]->size;
        /* the last may be without a limit */
        const uint64_t want = s->size == SDC_H5_UNDEFINED || s->size > p->bytes - covered
                                  ? p->bytes - covered
                                  : s->size;
        if (!sdc__range_inside(s->offset, want, size))
            return SDC_ERR_AT(err, SDC_INVALID, s->offset,
                              "%s: tensor %s: truncated: %llu bytes from %llu on of the external "
                              "file %s, which has %llu",
                              p->ckpt->path, p->found->names[0], (unsigned long long)want,
                              (unsigned long long)s->offset, s->name, (unsigned long long)size);
        s->size = want;
        covered += want;
        if (want % set->fields.size && covered < p->bytes) {
            p->unreadable = true;
            (void)snprintf(p->locked, sizeof p->locked,
                           "external: an element lies across two files");
        }
    }
    if (covered < p->bytes)
        return invalid(p, "truncated: its external files hold less than its elements", err);
    p->stored = p->bytes;
    p->placed = set->n_segments == 1 || set->segments[0].size == p->bytes;
    p->keep = !p->placed;
    if (p->placed) {
        p->file = (*members)[0];
        p->at = set->segments[0].offset;
    }
    return SDC_OK;
}

static void add_text(char *text, size_t size, const char *before, const char *piece) {
    const size_t len = strlen(text);
    (void)snprintf(text + len, size - len, "%s%s", before, piece);
}

/* "chunked 10x10, shuffle, gzip"; the filters' part is copied to `list`. Takes no memory: a text
 * that were lost for want of it would say that there are no filters. */
static void chunk_text(struct plan *p, char *list, size_t size) {
    const struct sdc_h5_set *set = p->set;
    char text[64];
    list[0] = '\0';
    (void)snprintf(p->storage, sizeof p->storage, "chunked ");
    for (unsigned i = 0; i < set->rank; i++) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)set->chunk[i]);
        add_text(p->storage, sizeof p->storage, i ? "x" : "", text);
    }
    for (unsigned i = 0; i < set->n_filters; i++)
        add_text(list, size, i ? ", " : "",
                 sdc__h5_filter_name(&set->filters[i], text, sizeof text));
    if (set->n_filters)
        add_text(p->storage, sizeof p->storage, ", ", list);
}

static enum sdc_status plan_grid(struct plan *p, struct sdc_h5_kept *k, struct sdc_error *err) {
    const struct sdc_h5_set *set = p->set;
    k->n_chunks = 1;
    k->chunk_bytes = set->fields.size;
    for (unsigned i = 0; i < set->rank; i++) {
        k->grid[i] = set->dims[i] / set->chunk[i] + (set->dims[i] % set->chunk[i] != 0);
        if (!sdc__mul_u64(&k->n_chunks, k->grid[i]) ||
            !sdc__mul_u64(&k->chunk_bytes, set->chunk[i]))
            return invalid(p, "overflow of its chunks", err);
    }
    return SDC_OK;
}

static enum sdc_status plan_chunked(struct plan *p, struct sdc_h5_kept *k, struct sdc_error *err) {
    const struct sdc_h5_found *found = p->found;
    char list[256];
    if (p->set->rank == 0)
        return invalid(p, "chunks of a scalar", err);
    chunk_text(p, list, sizeof list);
    p->stored = found->stored;
    SDC_TRY(plan_grid(p, k, err));
    if (p->bytes == 0)
        return SDC_OK;
    k->coding = sdc__h5_coding(p->set);
    p->keep = !found->beyond;
    if (found->beyond) {
        p->unreadable = true;
        (void)snprintf(p->locked, sizeof p->locked,
                       "chunked in a form of HDF5 2.0, which the libhdf5 in use does not read");
        return SDC_OK;
    }
    if (k->coding == SDC_H5_UNKNOWN || k->coding == SDC_H5_ASKED) {
        (void)snprintf(p->locked, sizeof p->locked, "chunked with filter%s %s: not alterable%s",
                       strchr(list, ',') ? "s" : "", list,
                       k->coding == SDC_H5_UNKNOWN ? ", nor readable here" : "");
        p->unreadable = k->coding == SDC_H5_UNKNOWN;
    } else if (found->n_chunks == 0) {
        never_written(p);
    } else if (k->n_chunks > MAX_CHUNKS) {
        p->unreadable = true;
        (void)snprintf(p->locked, sizeof p->locked, "%llu chunks, the limit is %llu",
                       (unsigned long long)k->n_chunks, (unsigned long long)MAX_CHUNKS);
    } else if (found->n_chunks < k->n_chunks) {
        (void)snprintf(p->locked, sizeof p->locked,
                       "not fully allocated: %llu of %llu chunks are stored",
                       (unsigned long long)found->n_chunks, (unsigned long long)k->n_chunks);
    } else if (k->coding == SDC_H5_DECODED && p->state->in_archive) {
        (void)snprintf(p->locked, sizeof p->locked,
                       "%s inside of an archive: not alterable, take the HDF5 file out first",
                       list);
    } else if (k->coding == SDC_H5_DECODED) {
        (void)snprintf(p->recoded, sizeof p->recoded, "%s", list);
    }
    return SDC_OK;
}

/* ---- entries ---- */

static enum sdc_status name_entry(struct plan *p, const struct sdc_h5_field *leaf,
                                  struct sdc_ckpt_entry **e, struct sdc_error *err) {
    const struct sdc_h5_found *found = p->found;
    for (size_t i = 0; i < found->n_names; i++) {
        char *joined = NULL;
        const char *name = found->names[i];
        if (leaf && leaf->name) {
            name = joined = sdc__asprintf("%s:%s", name, leaf->name);
            if (!joined)
                return SDC_NOMEM(err, p->ckpt->path);
        }
        enum sdc_status st =
            i == 0 ? sdc__ckpt_add(p->ckpt, name, e, err) : sdc__entry_alias(*e, name, err);
        sdc__free(joined);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

static enum sdc_status shape_entry(struct plan *p, const struct sdc_h5_field *leaf,
                                   struct sdc_ckpt_entry *e, struct sdc_error *err) {
    static const uint64_t none = 0;
    uint64_t shape[2 * SDC_MAX_RANK];
    const struct sdc_h5_set *set = p->set;
    unsigned rank = set->rank;
    memcpy(shape, set->dims, rank * sizeof *shape);
    for (unsigned i = 0; leaf && i < leaf->rank; i++)
        shape[rank++] = leaf->dims[i];
    if (set->is_null)
        return sdc__entry_set_shape(e, p->ckpt->path, 1, &none, err);
    return sdc__entry_set_shape(e, p->ckpt->path, rank, shape, err);
}

/* Its type, which an attribute or the caller may know where the file's own type does not say. */
static enum sdc_status type_entry(struct plan *p, const struct sdc_h5_field *leaf,
                                  struct sdc_ckpt_entry *e, struct sdc_error *err) {
    enum sdc_dtype dtype = leaf->dtype;
    bool is = leaf->known;
    const unsigned bits = leaf->size <= 8 ? (unsigned)leaf->size * 8 : 0;
    SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", leaf->text));
    e->big_endian = leaf->big_endian;
    if (leaf->class == SDC_H5_OPAQUE && sdc_dtype_parse(p->found->label, &dtype) &&
        sdc_dtype_bits(dtype) == bits) {
        is = true;
        SDC_TRY(
            sdc__entry_text(&e->dtype_text, err, "%s, labelled %s", leaf->text, p->found->label));
    }
    if (leaf->retype && bits && sdc__ckpt_as(p->ckpt, e->name, bits, &dtype)) {
        is = true;
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s, taken as %s", leaf->text,
                                sdc_dtype_name(dtype)));
    }
    if (is)
        return sdc__entry_set_dtype(e, dtype, err);
    return sdc__entry_lock(e, err, "type %s: not alterable%s", e->dtype_text,
                           leaf->retype ? " unless its type is given" : "");
}

static enum sdc_status place_entry(struct plan *p, const struct sdc_h5_field *leaf,
                                   struct sdc_ckpt_entry *e, struct sdc_error *err) {
    const struct sdc_h5_set *set = p->set;
    uint64_t dims[2 * SDC_MAX_RANK], strides[2 * SDC_MAX_RANK];
    uint64_t step = set->fields.size * 8;
    if (set->fields.n == 1 && leaf->offset == 0 && leaf->size * leaf->count == set->fields.size)
        return sdc__entry_contiguous(e, p->file, p->at, err);
    for (unsigned i = set->rank; i-- > 0;) {
        dims[i] = set->dims[i];
        strides[i] = step;
        step *= dims[i]; /* no overflow: the bytes are inside the file */
    }
    for (unsigned i = 0; i < leaf->rank; i++) {
        dims[set->rank + i] = leaf->dims[i];
        strides[set->rank + i] = leaf->strides[i] * 8;
    }
    const struct sdc_ckpt_piece piece = {.file = p->file,
                                         .bit = (p->at + leaf->offset) * 8,
                                         .n_dims = set->rank + leaf->rank,
                                         .dims = dims,
                                         .strides = strides};
    return sdc__entry_piece(e, &piece, err);
}

static enum sdc_status keep_entry(struct plan *p, const struct sdc_h5_field *leaf,
                                  struct sdc_ckpt_entry *e, struct sdc_error *err) {
    struct sdc_h5_part *part = sdc__calloc(1, sizeof *part);
    if (!part)
        return SDC_NOMEM(err, p->ckpt->path);
    part->kept = p->state->n_kept; /* it is about to be added */
    part->offset = leaf->offset;
    part->count = leaf->count;
    part->rank = leaf->rank;
    memcpy(part->dims, leaf->dims, sizeof part->dims);
    memcpy(part->strides, leaf->strides, sizeof part->strides);
    e->layout = part;
    return SDC_OK;
}

static enum sdc_status add_entry(struct plan *p, const struct sdc_h5_field *leaf,
                                 struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    const struct sdc_h5_set *set = p->set;
    SDC_TRY(name_entry(p, leaf, &e, err));
    e->key = set->addr;
    SDC_TRY(sdc__entry_text(&e->storage, err, "%s", p->storage));
    SDC_TRY(shape_entry(p, leaf, e, err));
    if (set->is_null)
        SDC_TRY(sdc__entry_lock(e, err, "empty: it has no elements at all"));
    if (p->unreadable)
        SDC_TRY(sdc__entry_lock(e, err, "%s", p->locked));
    if (leaf)
        SDC_TRY(type_entry(p, leaf, e, err));
    else
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "unknown"));
    if (p->locked[0])
        SDC_TRY(sdc__entry_lock(e, err, "%s", p->locked));
    if (p->state->f.unclean)
        SDC_TRY(sdc__entry_lock(e, err, "the file was not closed by its writer"));
    e->unreadable = p->unreadable;
    if (p->recoded[0])
        SDC_TRY(sdc__entry_text(&e->recoded, err, "%s", p->recoded));
    e->stored_size = p->stored;
    if (leaf && set->fields.n > 1 && set->fields.size) /* its share */
        e->stored_size = (uint64_t)((double)p->stored * (double)(leaf->size * leaf->count) /
                                    (double)set->fields.size);
    if (!leaf || !e->desc.dtype_known || e->desc.n_elems == 0 || p->unreadable)
        return SDC_OK;
    if (p->placed)
        return place_entry(p, leaf, e, err);
    return p->keep ? keep_entry(p, leaf, e, err) : SDC_OK;
}

/* Shapes far beyond what is stored exhaust a reader that trusts them. */
static enum sdc_status note_bomb(struct plan *p, struct sdc_error *err) {
    if (p->bytes <= BOMB_BYTES || p->bytes / BOMB_RATIO <= p->stored || p->unreadable)
        return SDC_OK;
    return sdc__ckpt_add_note(p->ckpt, SDC_NOTE_SECURITY, err,
                              "tensor %s claims %llu bytes of elements, of which %llu are stored",
                              p->found->names[0], (unsigned long long)p->bytes,
                              (unsigned long long)p->stored);
}

static enum sdc_status plan_storage(struct plan *p, struct sdc_h5_kept *k, struct sdc_error *err) {
    struct sdc_h5_set *set = p->set;
    if (set->unknown[0]) {
        p->unreadable = true;
        (void)snprintf(p->storage, sizeof p->storage, "unknown");
        (void)snprintf(p->locked, sizeof p->locked, "written by a later HDF5: %s", set->unknown);
        return SDC_OK;
    }
    if (set->layout == SDC_H5_VIRTUAL) {
        p->unreadable = true;
        (void)snprintf(p->storage, sizeof p->storage, "virtual");
        (void)snprintf(p->locked, sizeof p->locked, "virtual: its elements are in other datasets");
        return sdc__ckpt_add_note(p->ckpt, SDC_NOTE_SECURITY, err,
                                  "tensor %s is virtual, its elements are in datasets of other "
                                  "files: not followed",
                                  p->found->names[0]);
    }
    if (set->n_segments > 0)
        return plan_external(p, &k->members, err);
    return set->layout == SDC_H5_COMPACT      ? plan_compact(p, err)
           : set->layout == SDC_H5_CONTIGUOUS ? plan_contiguous(p, err)
                                              : plan_chunked(p, k, err);
}

static enum sdc_status keep_set(struct plan *p, struct sdc_h5_kept *k, struct sdc_error *err) {
    struct sdc_h5_state *s = p->state;
    if (s->n_kept == s->cap_kept) {
        const size_t cap = s->cap_kept ? s->cap_kept * 2 : 16;
        struct sdc_h5_kept *more = sdc__realloc(s->kept, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, p->ckpt->path);
        s->kept = more;
        s->cap_kept = cap;
    }
    k->name = sdc__strdup(p->found->names[0]);
    if (!k->name)
        return SDC_NOMEM(err, p->ckpt->path);
    k->set = *p->set;
    sdc__h5_fields_release(&k->set.fields); /* but its size */
    k->set.fields.size = p->set->fields.size;
    *p->set = (struct sdc_h5_set){0};
    s->kept[s->n_kept++] = *k;
    *k = (struct sdc_h5_kept){0};
    return SDC_OK;
}

enum sdc_status sdc__h5_add_set(struct sdc_ckpt *ckpt, struct sdc_h5_found *found,
                                struct sdc_error *err) {
    struct plan *p = sdc__calloc(1, sizeof *p);
    struct sdc_h5_kept k = {0};
    if (!p)
        return SDC_NOMEM(err, ckpt->path);
    p->ckpt = ckpt;
    p->state = ckpt->priv;
    p->found = found;
    p->set = found->set;
    p->bytes = p->set->is_null ? 0 : p->set->n_elems * p->set->fields.size; /* checked before */
    enum sdc_status st = plan_storage(p, &k, err);
    if (is_inflated(p)) {
        k.at = p->at;
        p->keep = p->keep || p->placed;
        p->placed = false;
        p->recoded[0] = '\0';
        if (!p->locked[0])
            (void)snprintf(p->locked, sizeof p->locked,
                           "deflated inside of an archive: not alterable, store it instead");
    }
    const struct sdc_h5_fields *fields = &p->set->fields;
    if (st == SDC_OK && (fields->n == 0 || p->set->unknown[0]))
        st = add_entry(p, fields->n ? &fields->all[0] : NULL, err);
    else
        for (size_t i = 0; st == SDC_OK && i < fields->n; i++)
            st = add_entry(p, &fields->all[i], err);
    if (st == SDC_OK)
        st = note_bomb(p, err);
    if (st == SDC_OK && p->keep)
        st = keep_set(p, &k, err);
    sdc__free(k.members);
    sdc__free(k.name);
    sdc__free(p);
    return st;
}
