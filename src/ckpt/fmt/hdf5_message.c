/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a dataset's object header (HDF5 File Format Specification 3.0, IV.A.2).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"

#define SHARED 2 /* flag of a message whose contents are elsewhere */

struct reader { /* of one message */
    struct sdc_h5_file *f;
    const struct sdc_h5_header *h;
    struct sdc_h5_set *set;
    struct sdc_wire w;
};

static uint64_t get_addr(struct reader *r) {
    const unsigned char *p = sdc__wire_bytes(&r->w, r->f->O);
    return p ? sdc__h5_little(p, r->f->O) : SDC_H5_UNDEFINED;
}

static uint64_t get_length(struct reader *r) {
    const unsigned char *p = sdc__wire_bytes(&r->w, r->f->L);
    return p ? sdc__h5_little(p, r->f->L) : 0;
}

static enum sdc_status bad(const struct reader *r, const char *what, struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, r->h->addr,
                      "%s: damaged object header at address %llu: its %s", r->f->path,
                      (unsigned long long)r->h->addr, what);
}

static void unknown(struct sdc_h5_set *set, const char *what, unsigned n) {
    if (!set->unknown[0])
        (void)snprintf(set->unknown, sizeof set->unknown, "%s %u is not known", what, n);
}

bool sdc__h5_is_set(const struct sdc_h5_header *h) {
    return sdc__h5_find(h, SDC_H5_LAYOUT) ||
           (sdc__h5_find(h, SDC_H5_DATASPACE) && sdc__h5_find(h, SDC_H5_DATATYPE));
}

bool sdc__h5_is_group(const struct sdc_h5_header *h) {
    return sdc__h5_find(h, SDC_H5_SYMBOL_TABLE) || sdc__h5_find(h, SDC_H5_LINK_INFO) ||
           sdc__h5_find(h, SDC_H5_GROUP_INFO);
}

/* ---- shape and type ---- */

static enum sdc_status read_space(struct reader *r, struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    const unsigned version = (unsigned)sdc__wire_get(&r->w, 1);
    const unsigned rank = (unsigned)sdc__wire_get(&r->w, 1);
    (void)sdc__wire_get(&r->w, 1);
    const unsigned type = (unsigned)sdc__wire_get(&r->w, 1);
    if (version == 1)
        (void)sdc__wire_bytes(&r->w, 4);
    else if (version != 2)
        return bad(r, "dataspace is of no known version", err);
    if (rank > SDC_MAX_RANK)
        return bad(r, "dataspace has too many dimensions", err);
    set->is_null = version == 2 && type == 2;
    set->rank = rank;
    set->n_elems = 1;
    for (unsigned i = 0; i < rank; i++) {
        set->dims[i] = get_length(r);
        if (!sdc__mul_u64(&set->n_elems, set->dims[i]))
            return bad(r, "dataspace: overflow of the shape's product", err);
    }
    return r->w.bad ? bad(r, "dataspace is cut short", err) : SDC_OK;
}

/* A datatype that has a name of its own: the address of its header. */
static enum sdc_status read_committed(struct reader *r, struct sdc_error *err) {
    const unsigned version = (unsigned)sdc__wire_get(&r->w, 1);
    const unsigned type = (unsigned)sdc__wire_get(&r->w, 1);
    if (version == 1)
        (void)sdc__wire_bytes(&r->w, 6);
    if (version == 0 || version > 3 || (version == 3 && type == 1)) {
        unknown(r->set, "a datatype in the table of shared messages, version", version);
        return SDC_OK;
    }
    const uint64_t addr = get_addr(r);
    if (r->w.bad)
        return bad(r, "shared datatype is cut short", err);
    struct sdc_h5_header h = {0};
    enum sdc_status st = sdc__h5_header_read(r->f, addr, &h, err);
    if (st == SDC_OK) {
        const struct sdc_h5_message *m = sdc__h5_find(&h, SDC_H5_DATATYPE);
        st = m && !(m->flags & SHARED)
                 ? sdc__h5_type(r->f, h.text + m->at, m->len, &r->set->fields, err)
                 : bad(r, "shared datatype is not where it should be", err);
    }
    sdc__h5_header_release(&h);
    return st;
}

/* ---- layout ---- */

static enum sdc_status read_chunk_dims(struct reader *r, unsigned n, unsigned width,
                                       struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    if (n != set->rank + 1 || width > 8)
        return bad(r, "chunks are of another rank than its dataspace", err);
    for (unsigned i = 0; i < n; i++) {
        const uint64_t d = sdc__wire_get(&r->w, width); /* the last is the element's size */
        if (d == 0 && !r->w.bad)
            return bad(r, "chunks have a size of 0", err);
        if (i < set->rank)
            set->chunk[i] = d;
        else if (d != set->fields.size && !r->w.bad && !set->unknown[0])
            return bad(r, "chunks are of elements of another size than its datatype", err);
    }
    return SDC_OK;
}

/* The elements are here, in the header. */
static enum sdc_status at_compact(struct reader *r, const struct sdc_h5_message *m, uint64_t size,
                                  struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    const struct sdc_h5_block *b = &r->h->blocks[m->block];
    const uint64_t inside = m->at + r->w.at - b->at;
    if (r->w.bad || size > r->w.len - r->w.at)
        return bad(r, "compact data are longer than the header's message", err);
    set->data_size = size;
    set->compact_block = m->block;
    if (!sdc__h5_position(r->f, b->addr + inside, size, &set->compact_at))
        return bad(r, "compact data are not inside the file", err);
    return SDC_OK;
}

static enum sdc_status read_old_layout(struct reader *r, const struct sdc_h5_message *m,
                                       struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    const unsigned n = (unsigned)sdc__wire_get(&r->w, 1), class = (unsigned)sdc__wire_get(&r->w, 1);
    (void)sdc__wire_bytes(&r->w, 5);
    if (class > SDC_H5_CHUNKED)
        return bad(r, "layout is of no known class", err);
    set->layout = (enum sdc_h5_layout) class;
    if (set->layout != SDC_H5_COMPACT)
        set->data_addr = get_addr(r);
    if (set->layout == SDC_H5_CHUNKED) /* rank sizes, then the element's */
        return read_chunk_dims(r, n, 4, err);
    (void)sdc__wire_bytes(&r->w, 4 * (size_t)n);
    if (set->layout == SDC_H5_COMPACT)
        return at_compact(r, m, sdc__wire_get(&r->w, 4), err);
    return SDC_OK;
}

static enum sdc_status read_layout(struct reader *r, const struct sdc_h5_message *m,
                                   struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    const unsigned version = (unsigned)sdc__wire_get(&r->w, 1);
    if (version == 1 || version == 2)
        return read_old_layout(r, m, err);
    const unsigned class = (unsigned)sdc__wire_get(&r->w, 1);
    if (version < 3 || version > 5 || class > SDC_H5_VIRTUAL) {
        unknown(set, "layout version", version);
        return r->w.bad ? bad(r, "layout is cut short", err) : SDC_OK;
    }
    set->layout = (enum sdc_h5_layout) class;
    if (set->layout == SDC_H5_COMPACT)
        return at_compact(r, m, sdc__wire_get(&r->w, 2), err);
    if (set->layout == SDC_H5_CONTIGUOUS) {
        set->data_addr = get_addr(r);
        set->data_size = get_length(r);
    } else if (set->layout == SDC_H5_CHUNKED && version == 3) {
        const unsigned n = (unsigned)sdc__wire_get(&r->w, 1);
        set->data_addr = get_addr(r);
        SDC_TRY(read_chunk_dims(r, n, 4, err));
    } else if (set->layout == SDC_H5_CHUNKED) {
        set->plain_edges = sdc__wire_get(&r->w, 1) & 1;
        const unsigned n = (unsigned)sdc__wire_get(&r->w, 1);
        const unsigned width = (unsigned)sdc__wire_get(&r->w, 1);
        SDC_TRY(read_chunk_dims(r, n, width, err));
    }
    return r->w.bad ? bad(r, "layout is cut short", err) : SDC_OK;
}

/* ---- filters, fill value, external files ---- */

static enum sdc_status read_filters(struct reader *r, struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    const unsigned version = (unsigned)sdc__wire_get(&r->w, 1);
    const unsigned n = (unsigned)sdc__wire_get(&r->w, 1);
    if (version == 1)
        (void)sdc__wire_bytes(&r->w, 6);
    if (version < 1 || version > 2 || n > SDC_H5_MAX_FILTERS)
        return bad(r, "filters are of no known version, or too many", err);
    set->filters = sdc__calloc(n, sizeof *set->filters);
    if (!set->filters)
        return SDC_NOMEM(err, r->f->path);
    for (unsigned i = 0; i < n; i++) {
        struct sdc_h5_filter *f = &set->filters[i];
        f->id = (unsigned)sdc__wire_get(&r->w, 2);
        size_t len = version == 1 || f->id >= 256 ? (size_t)sdc__wire_get(&r->w, 2) : 0;
        f->flags = (unsigned)sdc__wire_get(&r->w, 2);
        f->n_values = (unsigned)sdc__wire_get(&r->w, 2);
        const unsigned char *name = sdc__wire_bytes(&r->w, version == 1 ? (len + 7) / 8 * 8 : len);
        for (size_t k = 0; name && k < len && k + 1 < sizeof f->name && name[k]; k++)
            f->name[k] = (char)(name[k] >= ' ' && name[k] < 127 ? name[k] : '?');
        for (unsigned k = 0; k < f->n_values && !r->w.bad; k++) {
            const uint32_t v = (uint32_t)sdc__wire_get(&r->w, 4);
            if (k < SDC_H5_MAX_VALUES)
                f->values[k] = v;
        }
        if (version == 1 && f->n_values % 2)
            (void)sdc__wire_bytes(&r->w, 4);
    }
    set->n_filters = n;
    return r->w.bad ? bad(r, "filters are cut short", err) : SDC_OK;
}

static enum sdc_status read_fill(struct reader *r, bool old, struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    uint64_t size = 0;
    if (old) {
        size = sdc__wire_get(&r->w, 4);
    } else {
        const unsigned version = (unsigned)sdc__wire_get(&r->w, 1);
        if (version == 1 || version == 2) {
            (void)sdc__wire_bytes(&r->w, 2);
            const bool defined = sdc__wire_get(&r->w, 1) != 0;
            if (version == 1 || defined)
                size = sdc__wire_get(&r->w, 4);
        } else if (version == 3) {
            if (sdc__wire_get(&r->w, 1) & 0x20)
                size = sdc__wire_get(&r->w, 4);
        }
    }
    const unsigned char *value = sdc__wire_bytes(&r->w, (size_t)size);
    if (r->w.bad)
        return bad(r, "fill value is cut short", err);
    if (size == 0 || size != set->fields.size)
        return SDC_OK;
    set->fill = sdc__alloc((size_t)size, 1);
    if (!set->fill)
        return SDC_NOMEM(err, r->f->path);
    memcpy(set->fill, value, (size_t)size);
    return SDC_OK;
}

/* A name in a local heap. */
static enum sdc_status heap_name(struct reader *r, uint64_t heap, uint64_t offset, char **name,
                                 struct sdc_error *err) {
    unsigned char p[32], c = 0;
    char text[SDC_MAX_NAME];
    SDC_TRY(sdc__h5_bytes(r->f, heap, p, 8 + 2 * (size_t)r->f->L + r->f->O, err));
    const uint64_t size = sdc__h5_little(p + 8, r->f->L);
    const uint64_t data = sdc__h5_little(p + 8 + 2 * r->f->L, r->f->O);
    if (memcmp(p, "HEAP", 4) != 0 || offset >= size || data > UINT64_MAX / 2)
        return bad(r, "names of external files are not where they should be", err);
    for (size_t i = 0;; i++) {
        if (i == sizeof text || offset + i >= size)
            return bad(r, "name of an external file has no end", err);
        SDC_TRY(sdc__h5_bytes(r->f, data + offset + i, &c, 1, err));
        text[i] = (char)c;
        if (c == 0)
            break;
    }
    *name = sdc__strdup(text);
    return *name ? SDC_OK : SDC_NOMEM(err, r->f->path);
}

static enum sdc_status read_external(struct reader *r, struct sdc_error *err) {
    struct sdc_h5_set *set = r->set;
    (void)sdc__wire_bytes(&r->w, 4);
    (void)sdc__wire_get(&r->w, 2);
    const size_t n = (size_t)sdc__wire_get(&r->w, 2);
    const uint64_t heap = get_addr(r);
    if (r->w.bad || n > (r->w.len - r->w.at) / (3 * (size_t)r->f->L))
        return bad(r, "list of external files is cut short", err);
    set->segments = sdc__calloc(n, sizeof *set->segments);
    if (!set->segments)
        return SDC_NOMEM(err, r->f->path);
    set->n_segments = n;
    for (size_t i = 0; i < n; i++) {
        struct sdc_h5_segment *s = &set->segments[i];
        const uint64_t name = get_length(r);
        s->offset = get_length(r);
        s->size = get_length(r);
        SDC_TRY(heap_name(r, heap, name, &s->name, err));
    }
    return SDC_OK;
}

/* ---- all of it ---- */

void sdc__h5_set_release(struct sdc_h5_set *set) {
    sdc__h5_fields_release(&set->fields);
    for (size_t i = 0; i < set->n_segments; i++)
        sdc__free(set->segments[i].name);
    sdc__free(set->segments);
    sdc__free(set->filters);
    sdc__free(set->fill);
    *set = (struct sdc_h5_set){0};
}

static enum sdc_status read_one(struct reader *r, const struct sdc_h5_message *m,
                                struct sdc_error *err) {
    r->w = (struct sdc_wire){.data = r->h->text + m->at, .len = m->len};
    if (m->flags & SHARED) {
        if (m->type == SDC_H5_DATATYPE)
            return read_committed(r, err);
        unknown(r->set, "a shared message of type", m->type);
        return SDC_OK;
    }
    switch (m->type) {
    case SDC_H5_DATASPACE:
        return read_space(r, err);
    case SDC_H5_DATATYPE:
        return sdc__h5_type(r->f, r->w.data, r->w.len, &r->set->fields, err);
    case SDC_H5_LAYOUT:
        return read_layout(r, m, err);
    case SDC_H5_FILTERS:
        return read_filters(r, err);
    case SDC_H5_FILL:
    case SDC_H5_OLD_FILL:
        return read_fill(r, m->type == SDC_H5_OLD_FILL, err);
    default:
        return read_external(r, err);
    }
}

enum sdc_status sdc__h5_set_read(struct sdc_h5_file *f, const struct sdc_h5_header *h,
                                 struct sdc_h5_set *set, struct sdc_error *err) {
    /* in this order: chunks and fill values need shape and type */
    static const unsigned order[] = {SDC_H5_DATASPACE, SDC_H5_DATATYPE, SDC_H5_LAYOUT,
                                     SDC_H5_FILTERS,   SDC_H5_FILL,     SDC_H5_EXTERNAL};
    struct reader r = {.f = f, .h = h, .set = set};
    set->addr = h->addr;
    set->data_addr = SDC_H5_UNDEFINED;
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const struct sdc_h5_message *m = sdc__h5_find(h, order[i]);
        if (!m && order[i] == SDC_H5_FILL)
            m = sdc__h5_find(h, SDC_H5_OLD_FILL);
        if (m)
            st = read_one(&r, m, err);
        else if (i < 3)
            st = bad(&r,
                     i == 0   ? "dataspace is missing"
                     : i == 1 ? "datatype is missing"
                              : "layout is missing",
                     err);
        if (st != SDC_OK)
            return st;
    }
    uint64_t bytes = set->n_elems;
    if (!set->unknown[0] && !sdc__mul_u64(&bytes, set->fields.size))
        return SDC_ERR(err, SDC_INVALID, "%s: overflow of the size in bytes of the dataset at %llu",
                       f->path, (unsigned long long)h->addr);
    return SDC_OK;
}
