/* SPDX-License-Identifier: Apache-2.0
 *
 * Datatype messages (HDF5 File Format Specification 3.0, IV.A.2.d; version 5 as HDF5 2.0 writes
 * it) as a list of leaves. Types are told by their properties and never by comparison with named
 * ones, so that a bfloat16 of any library is found.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"

#define MAX_DEPTH  16
#define MAX_LEAVES 4096

/* sign position, exponent position and size, mantissa position and size, bias */
static const struct float_layout {
    enum sdc_dtype dtype;
    uint64_t size;
    unsigned spos, epos, esize, mpos, msize;
    uint32_t bias;
    const char *word;
} floats[] = {{SDC_DTYPE_F64, 8, 63, 52, 11, 0, 52, 1023, "H5T_IEEE_F64"},
              {SDC_DTYPE_F32, 4, 31, 23, 8, 0, 23, 127, "H5T_IEEE_F32"},
              {SDC_DTYPE_F16, 2, 15, 10, 5, 0, 10, 15, "H5T_IEEE_F16"},
              {SDC_DTYPE_BF16, 2, 15, 7, 8, 0, 7, 127, "H5T_FLOAT_BFLOAT16"}};

/* Where in an element the type being parsed is. */
struct place {
    char name[SDC_MAX_NAME];
    uint64_t offset;
    unsigned rank;
    uint64_t dims[SDC_MAX_RANK], strides[SDC_MAX_RANK];
};

struct parser {
    struct sdc_wire w;
    struct sdc_h5_fields *fields;
    struct place place; /* changed and restored on the way down */
    bool silent;        /* leaves are of no interest: inside of a variable-length type */
    bool no_memory, too_much;
};

struct head { /* of one datatype */
    unsigned version, class, flags;
    uint64_t size;
};

void sdc__h5_fields_release(struct sdc_h5_fields *fields) {
    for (size_t i = 0; i < fields->n; i++)
        sdc__free(fields->all[i].name);
    sdc__free(fields->all);
    *fields = (struct sdc_h5_fields){0};
}

/* A leaf at the current place; NULL if it is not wanted or not possible. */
static struct sdc_h5_field *add_leaf(struct parser *p, const struct head *h, const char *word) {
    struct sdc_h5_fields *f = p->fields;
    if (p->silent || p->no_memory)
        return NULL;
    if (f->n >= MAX_LEAVES) {
        p->too_much = true;
        return NULL;
    }
    if (f->n == f->cap) {
        const size_t cap = f->cap ? f->cap * 2 : 1;
        struct sdc_h5_field *more = sdc__realloc(f->all, cap, sizeof *more);
        if (!more) {
            p->no_memory = true;
            return NULL;
        }
        f->all = more;
        f->cap = cap;
    }
    struct sdc_h5_field *leaf = &f->all[f->n];
    *leaf = (struct sdc_h5_field){.offset = p->place.offset,
                                  .rank = p->place.rank,
                                  .count = 1,
                                  .size = h->size,
                                  .class = (enum sdc_h5_class)h->class};
    if (p->place.name[0] && !(leaf->name = sdc__strdup(p->place.name))) {
        p->no_memory = true;
        return NULL;
    }
    for (unsigned i = 0; i < leaf->rank; i++) {
        leaf->dims[i] = p->place.dims[i];
        leaf->strides[i] = p->place.strides[i];
        if (!sdc__mul_u64(&leaf->count, leaf->dims[i]))
            p->too_much = true;
    }
    (void)snprintf(leaf->text, sizeof leaf->text, "%s of %llu bytes", word,
                   (unsigned long long)h->size);
    f->n++;
    return leaf;
}

static void is_known(struct sdc_h5_field *leaf, enum sdc_dtype dtype, bool big, const char *word) {
    leaf->known = true;
    leaf->dtype = dtype;
    leaf->big_endian = big && sdc_dtype_bytes(dtype) > 1;
    (void)snprintf(leaf->text, sizeof leaf->text, "%s%s", word, big ? "BE" : "LE");
}

/* ---- the classes ---- */

static void parse_integer(struct parser *p, const struct head *h) {
    static const enum sdc_dtype known[2][4] = {
        {SDC_DTYPE_U8, SDC_DTYPE_U16, SDC_DTYPE_U32, SDC_DTYPE_U64},
        {SDC_DTYPE_I8, SDC_DTYPE_I16, SDC_DTYPE_I32, SDC_DTYPE_I64}};
    static const char *const words[2][4] = {
        {"H5T_STD_U8", "H5T_STD_U16", "H5T_STD_U32", "H5T_STD_U64"},
        {"H5T_STD_I8", "H5T_STD_I16", "H5T_STD_I32", "H5T_STD_I64"}};
    const uint64_t offset = sdc__wire_get(&p->w, 2), precision = sdc__wire_get(&p->w, 2);
    const unsigned is_signed = h->flags >> 3 & 1;
    struct sdc_h5_field *leaf = add_leaf(p, h, "integer of unusual layout");
    for (int i = 0; leaf && i < 4; i++)
        if (h->size == (uint64_t)1 << i && offset == 0 && precision == h->size * 8) {
            is_known(leaf, known[is_signed][i], h->flags & 1, words[is_signed][i]);
            leaf->retype = !is_signed;
        }
}

static void parse_float(struct parser *p, const struct head *h) {
    const uint64_t offset = sdc__wire_get(&p->w, 2), precision = sdc__wire_get(&p->w, 2);
    struct float_layout l = {.size = h->size, .spos = h->flags >> 8 & 0xff};
    l.epos = (unsigned)sdc__wire_get(&p->w, 1);
    l.esize = (unsigned)sdc__wire_get(&p->w, 1);
    l.mpos = (unsigned)sdc__wire_get(&p->w, 1);
    l.msize = (unsigned)sdc__wire_get(&p->w, 1);
    l.bias = (uint32_t)sdc__wire_get(&p->w, 4);
    struct sdc_h5_field *leaf = add_leaf(p, h, "floating-point number of unknown layout");
    if (!leaf)
        return;
    const bool vax = (h->flags & 0x40) != 0, big = h->flags & 1;
    const bool whole = offset == 0 && precision == h->size * 8 && (h->flags >> 4 & 3) == 2 && !vax;
    leaf->retype = !vax;
    leaf->big_endian = big;
    for (size_t i = 0; whole && i < sizeof floats / sizeof *floats; i++) {
        const struct float_layout *k = &floats[i];
        if (k->size == l.size && k->spos == l.spos && k->epos == l.epos && k->esize == l.esize &&
            k->mpos == l.mpos && k->msize == l.msize && k->bias == l.bias) {
            is_known(leaf, k->dtype, big, k->word);
            leaf->retype = false;
        }
    }
}

static void parse(struct parser *p, unsigned depth, struct head *h);

/* A name that ends in NUL, padded to a multiple of 8 in the older versions. Not NULL, but "" where
 * there is none. */
static const char *get_name(struct parser *p, bool padded) {
    const unsigned char *from = p->w.data + p->w.at;
    const size_t left = p->w.len - p->w.at;
    const unsigned char *nul = p->w.bad ? NULL : memchr(from, 0, left);
    size_t n = nul ? (size_t)(nul - from) + 1 : left + 1;
    if (padded)
        n = (n + 7) / 8 * 8;
    return sdc__wire_bytes(&p->w, n) ? (const char *)from : "";
}

/* As h5py stores booleans: an enumeration over int8 with FALSE = 0 and TRUE = 1. */
static void parse_enum(struct parser *p, unsigned depth, const struct head *h) {
    const unsigned n = h->flags & 0xffff;
    struct head base = {0};
    unsigned right = 0;
    const bool was = p->silent;
    p->silent = true;
    parse(p, depth + 1, &base);
    p->silent = was;
    for (unsigned i = 0; i < n && !p->w.bad; i++) {
        const char *name = get_name(p, h->version < 3);
        right += n == 2 && strcmp(name, i == 0 ? "FALSE" : "TRUE") == 0;
    }
    for (unsigned i = 0; i < n && !p->w.bad; i++) {
        const unsigned char *value = sdc__wire_bytes(&p->w, (size_t)base.size);
        right += n == 2 && value && base.size == 1 && value[0] == i;
    }
    struct sdc_h5_field *leaf = add_leaf(p, h, "enumeration");
    if (leaf && right == 4 && base.class == SDC_H5_INTEGER && h->size == 1) {
        leaf->known = true;
        leaf->dtype = SDC_DTYPE_BOOL;
        (void)snprintf(leaf->text, sizeof leaf->text, "enum FALSE, TRUE");
    }
}

/* Adds axes behind those of the place; their elements are of `size` bytes, C order. */
static void add_axes(struct parser *p, unsigned rank, const uint64_t *dims, uint64_t size) {
    struct place *at = &p->place;
    if (at->rank + rank > SDC_MAX_RANK) {
        p->too_much = true;
        return;
    }
    for (unsigned i = rank; i-- > 0;) {
        at->dims[at->rank + i] = dims[i];
        at->strides[at->rank + i] = size;
        if (!sdc__mul_u64(&size, dims[i]))
            p->too_much = true;
    }
    at->rank += rank;
}

/* Size of the type that begins at the reader's place. */
static uint64_t peek_size(const struct parser *p) {
    struct sdc_wire w = p->w;
    (void)sdc__wire_bytes(&w, 4);
    return sdc__wire_get(&w, 4);
}

static void parse_array(struct parser *p, unsigned depth, const struct head *h) {
    uint64_t dims[SDC_MAX_RANK];
    const unsigned before = p->place.rank, rank = (unsigned)sdc__wire_get(&p->w, 1);
    if (rank > SDC_MAX_RANK) {
        p->w.bad = true;
        return;
    }
    if (h->version < 3)
        (void)sdc__wire_bytes(&p->w, 3);
    uint64_t bytes = 1;
    for (unsigned i = 0; i < rank; i++) {
        dims[i] = sdc__wire_get(&p->w, 4);
        p->too_much |= !sdc__mul_u64(&bytes, dims[i]);
    }
    if (h->version < 3)
        (void)sdc__wire_bytes(&p->w, 4 * (size_t)rank); /* permutations, never used */
    struct head base = {0};
    const uint64_t size = peek_size(p);
    p->too_much |= !sdc__mul_u64(&bytes, size);
    if (bytes != h->size)
        p->w.bad = true;
    add_axes(p, rank, dims, size);
    parse(p, depth + 1, &base);
    p->place.rank = before;
}

static void parse_complex(struct parser *p, unsigned depth, const struct head *h) {
    static const uint64_t two = 2;
    struct head base = {0};
    const unsigned before = p->place.rank;
    if (peek_size(p) != h->size / 2)
        p->w.bad = true;
    add_axes(p, 1, &two, h->size / 2);
    parse(p, depth + 1, &base);
    p->place.rank = before;
}

/* Complex numbers as h5py, PyTables and Julia store them: members r and i of the same type. The
 * two leaves become one with an axis of 2. */
static void merge_complex(struct parser *p, size_t first, size_t name_len) {
    struct sdc_h5_fields *f = p->fields;
    if (p->silent || f->n != first + 2)
        return;
    struct sdc_h5_field *r = &f->all[first], *i = &f->all[first + 1];
    const size_t at = name_len ? name_len + 1 : 0;
    if (!r->name || !i->name || strcmp(r->name + at, "r") != 0 || strcmp(i->name + at, "i") != 0 ||
        r->class != SDC_H5_FLOAT || i->class != SDC_H5_FLOAT || !r->known || !i->known ||
        r->dtype != i->dtype || r->big_endian != i->big_endian || r->rank != p->place.rank ||
        i->rank != r->rank || i->offset <= r->offset || r->rank == SDC_MAX_RANK)
        return;
    r->dims[r->rank] = 2;
    r->strides[r->rank++] = i->offset - r->offset;
    p->too_much |= !sdc__mul_u64(&r->count, 2);
    sdc__free(i->name);
    f->n--;
    if (name_len) {
        r->name[name_len] = '\0';
    } else {
        sdc__free(r->name);
        r->name = NULL;
    }
}

static void parse_member(struct parser *p, unsigned depth, const struct head *h, size_t name_len) {
    struct place *at = &p->place;
    const unsigned before = at->rank;
    const uint64_t offset_before = at->offset;
    const char *name = get_name(p, h->version < 3);
    unsigned width = 4;
    if (h->version >= 3)
        width = h->size < 1 << 8 ? 1 : h->size < 1 << 16 ? 2 : h->size < 1 << 24 ? 3 : 4;
    const uint64_t offset = sdc__wire_get(&p->w, width);
    uint64_t dims[4];
    unsigned rank = 0;
    if (h->version == 1) { /* its arrays are said here */
        rank = (unsigned)sdc__wire_get(&p->w, 1);
        (void)sdc__wire_bytes(&p->w, 11);
        for (unsigned i = 0; i < 4; i++)
            dims[i] = sdc__wire_get(&p->w, 4);
        p->w.bad |= rank > 4;
    }
    if (p->w.bad)
        return;
    const int n = snprintf(at->name + name_len, sizeof at->name - name_len, "%s%s",
                           name_len ? ":" : "", name);
    p->too_much |= n < 0 || (size_t)n >= sizeof at->name - name_len;
    uint64_t bytes = peek_size(p);
    if (rank > 0)
        add_axes(p, rank, dims, bytes);
    for (unsigned i = 0; i < rank; i++)
        p->too_much |= !sdc__mul_u64(&bytes, dims[i]);
    p->w.bad |= !sdc__range_inside(offset, bytes, h->size);
    at->offset += offset;
    struct head member = {0};
    parse(p, depth + 1, &member);
    at->offset = offset_before;
    at->rank = before;
    at->name[name_len] = '\0';
}

static void parse_compound(struct parser *p, unsigned depth, const struct head *h) {
    const size_t first = p->fields->n, name_len = strlen(p->place.name);
    const unsigned n = h->flags & 0xffff;
    for (unsigned i = 0; i < n && !p->w.bad && !p->too_much && !p->no_memory; i++)
        parse_member(p, depth, h, name_len);
    if (n == 2 && !p->w.bad && !p->no_memory)
        merge_complex(p, first, name_len);
}

static void parse_variable(struct parser *p, unsigned depth, const struct head *h) {
    struct head base = {0};
    const bool was = p->silent;
    (void)add_leaf(p, h,
                   (h->flags & 15) == 1 ? "variable-length string" : "variable-length sequence");
    p->silent = true;
    parse(p, depth + 1, &base);
    p->silent = was;
}

static void parse(struct parser *p, unsigned depth, struct head *h) {
    const unsigned first = (unsigned)sdc__wire_get(&p->w, 1);
    h->version = first >> 4;
    h->class = first & 15;
    h->flags = (unsigned)sdc__wire_get(&p->w, 3);
    h->size = sdc__wire_get(&p->w, 4);
    if (h->version < 1 || h->version > 5 || h->class >= SDC_H5_CLASSES || h->size == 0 ||
        depth > MAX_DEPTH)
        p->w.bad = true;
    if (p->w.bad || p->too_much || p->no_memory)
        return;
    struct sdc_h5_field *leaf;
    switch ((enum sdc_h5_class)h->class) {
    case SDC_H5_INTEGER:
        parse_integer(p, h);
        break;
    case SDC_H5_FLOAT:
        parse_float(p, h);
        break;
    case SDC_H5_TIME:
        (void)sdc__wire_bytes(&p->w, 2);
        (void)add_leaf(p, h, "time");
        break;
    case SDC_H5_STRING:
        (void)add_leaf(p, h, "string");
        break;
    case SDC_H5_BITFIELD:
        (void)sdc__wire_bytes(&p->w, 4);
        (void)add_leaf(p, h, "bit field");
        break;
    case SDC_H5_OPAQUE:
        (void)sdc__wire_bytes(&p->w, h->flags & 0xff);
        leaf = add_leaf(p, h, "opaque");
        if (leaf)
            leaf->retype = true;
        break;
    case SDC_H5_COMPOUND:
        parse_compound(p, depth, h);
        break;
    case SDC_H5_REFERENCE:
        (void)add_leaf(p, h, "reference");
        break;
    case SDC_H5_ENUM:
        parse_enum(p, depth, h);
        break;
    case SDC_H5_VARIABLE:
        parse_variable(p, depth, h);
        break;
    case SDC_H5_ARRAY:
        parse_array(p, depth, h);
        break;
    case SDC_H5_COMPLEX:
        parse_complex(p, depth, h);
        break;
    case SDC_H5_CLASSES:
        break;
    }
}

enum sdc_status sdc__h5_type(const struct sdc_h5_file *f, const unsigned char *data, size_t len,
                             struct sdc_h5_fields *fields, struct sdc_error *err) {
    struct parser *p = sdc__calloc(1, sizeof *p);
    struct head h = {0};
    enum sdc_status st = SDC_OK;
    if (!p)
        return SDC_NOMEM(err, f->path);
    p->w = (struct sdc_wire){.data = data, .len = len};
    p->fields = fields;
    parse(p, 0, &h);
    fields->size = h.size;
    fields->class = (enum sdc_h5_class)h.class;
    if (p->no_memory)
        st = SDC_NOMEM(err, f->path);
    else if (p->too_much)
        st = SDC_ERR(err, SDC_LIMIT, "%s: a datatype of too many parts", f->path);
    else if (p->w.bad)
        st = SDC_ERR(err, SDC_INVALID, "%s: a damaged datatype", f->path);
    for (size_t i = 0; st == SDC_OK && i < fields->n; i++) {
        const struct sdc_h5_field *leaf = &fields->all[i];
        uint64_t end = leaf->offset + leaf->size; /* no overflow: each was inside its parent */
        for (unsigned k = 0; k < leaf->rank; k++)
            end += leaf->dims[k] ? (leaf->dims[k] - 1) * leaf->strides[k] : 0;
        if (end > h.size)
            st = SDC_ERR(err, SDC_INVALID, "%s: a damaged datatype: a member behind its end",
                         f->path);
    }
    sdc__free(p);
    return st;
}
