/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorFlow's checkpoints (TensorBundle, also inside a SavedModel): an index, which is a LevelDB
 * table from names to protocol buffers, and data files. Sources: tensorflow,
 * core/util/tensor_bundle/tensor_bundle.cc, core/protobuf/tensor_bundle.proto,
 * core/util/saved_tensor_slice_util.cc, core/lib/strings/ordered_code.cc (2.15).
 *
 *     key ""      BundleHeaderProto: num_shards = 1, endianness = 2 (1: big)
 *     other keys  BundleEntryProto: dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5,
 *                 crc32c = 6 (fixed32, masked), slices = 7; zeros are left out
 *
 * A partitioned variable has an entry with slices and without bytes, and one entry for each slice
 * under a key that begins with a zero byte. TensorFlow checks the checksum of every entry and of
 * every block of the index at each read.
 */
#include "ckpt/fmt/tensorbundle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/proto.h"

#define GRAPH_KEY   "_CHECKPOINTABLE_OBJECT_GRAPH"
#define GRAPH_LIMIT (UINT64_C(256) * 1024 * 1024)
#define MAX_SLICES  4096u
#define REF_BASE    100u /* reference variants of the types */

enum { HEADER_SHARDS = 1, HEADER_ENDIANNESS = 2 };
enum {
    ENTRY_DTYPE = 1,
    ENTRY_SHAPE = 2,
    ENTRY_SHARD = 3,
    ENTRY_OFFSET = 4,
    ENTRY_SIZE = 5,
    ENTRY_CRC = 6,
    ENTRY_SLICES = 7
};

/* Numbers of core/framework/types.proto. ours: the type of an element or of its components; NULL:
 * listed and locked. */
static const struct type {
    unsigned number, components;
    const char *name, *ours;
} types[] = {
    {1, 1, "float", "F32"},
    {2, 1, "double", "F64"},
    {3, 1, "int32", "I32"},
    {4, 1, "uint8", "U8"},
    {5, 1, "int16", "I16"},
    {6, 1, "int8", "I8"},
    {7, 1, "string", NULL},
    {8, 2, "complex64", "F32"},
    {9, 1, "int64", "I64"},
    {10, 1, "bool", "BOOL"},
    {11, 1, "qint8", "I8"},
    {12, 1, "quint8", "U8"},
    {13, 1, "qint32", "I32"},
    {14, 1, "bfloat16", "BF16"},
    {15, 1, "qint16", "I16"},
    {16, 1, "quint16", "U16"},
    {17, 1, "uint16", "U16"},
    {18, 2, "complex128", "F64"},
    {19, 1, "half", "F16"},
    {20, 1, "resource", NULL},
    {21, 1, "variant", NULL},
    {22, 1, "uint32", "U32"},
    {23, 1, "uint64", "U64"},
    {24, 1, "float8_e5m2", "F8_E5M2"},
    {25, 1, "float8_e4m3fn", "F8_E4M3"},
    {26, 1, "float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {28, 1, "float8_e5m2fnuz", "F8_E5M2FNUZ"},
};

/* One bundle while it is opened. */
struct bundle {
    struct sdc_ckpt *ckpt;
    const char *path; /* of the index, for messages */
    struct sdc_sst index;
    uint64_t shards; /* data file k is member 1 + k */
    bool big_endian;
    struct extent *extents; /* stored bytes of tensors, to find those that share some */
    size_t n_extents, cap_extents;
};

struct extent {
    uint64_t file, begin, end;
    size_t tensor;
};

/* A decoded BundleEntryProto. */
struct info {
    const struct sdc_sst_entry *entry;
    uint64_t dtype, shard, offset, size;
    unsigned rank;
    uint64_t shape[SDC_MAX_RANK];
    size_t n_slices;
    uint64_t crc_at; /* place in the index; UINT64_MAX: none */
};

static enum sdc_status damaged(const struct bundle *b, const char *what, const char *why,
                               struct sdc_error *err) {
    return SDC_ERR(err, SDC_INVALID, "%s: %s: %s", b->path, what, why);
}

/* ---- entries ---- */

/* A message field of this number that is not of this wire type is damage. */
static bool has_wire(const struct sdc_proto_field *f, uint32_t number, enum sdc_proto_wire wire,
                     bool *bad) {
    if (f->number != number)
        return false;
    *bad = *bad || f->wire != wire;
    return f->wire == wire;
}

/* TensorShapeProto: dim = 2 { size = 1 }, unknown_rank = 3. */
static enum sdc_status parse_shape(const struct bundle *b, const char *what,
                                   const struct sdc_proto_field *field, struct info *info,
                                   struct sdc_error *err) {
    struct sdc_proto p = sdc__proto(field->bytes, field->len);
    struct sdc_proto_field f, g;
    enum sdc_proto_result r;
    bool bad = false;
    info->rank = 0;
    while ((r = sdc__proto_next(&p, &f)) == SDC_PROTO_FIELD) {
        if (f.number == 3 && f.value)
            return damaged(b, what, "a shape of unknown rank", err);
        if (!has_wire(&f, 2, SDC_PROTO_BYTES, &bad))
            continue;
        if (info->rank == SDC_MAX_RANK)
            return SDC_ERR(err, SDC_LIMIT, "%s: %s: over %d dimensions", b->path, what,
                           SDC_MAX_RANK);
        uint64_t size = 0;
        struct sdc_proto q = sdc__proto(f.bytes, f.len);
        while ((r = sdc__proto_next(&q, &g)) == SDC_PROTO_FIELD)
            if (has_wire(&g, 1, SDC_PROTO_VARINT, &bad))
                size = g.value;
        bad = bad || r == SDC_PROTO_BAD;
        if (size > INT64_MAX)
            return damaged(b, what, "a negative dimension", err);
        info->shape[info->rank++] = size;
    }
    return bad || r == SDC_PROTO_BAD ? damaged(b, what, "its shape is damaged", err) : SDC_OK;
}

static enum sdc_status parse_entry(const struct bundle *b, const char *what,
                                   const struct sdc_sst_entry *entry, struct info *info,
                                   struct sdc_error *err) {
    struct sdc_proto p = sdc__proto(entry->value, entry->value_len);
    struct sdc_proto_field f;
    enum sdc_proto_result r;
    bool bad = false;
    *info = (struct info){.entry = entry, .crc_at = UINT64_MAX};
    while ((r = sdc__proto_next(&p, &f)) == SDC_PROTO_FIELD) {
        if (has_wire(&f, ENTRY_DTYPE, SDC_PROTO_VARINT, &bad))
            info->dtype = f.value;
        else if (has_wire(&f, ENTRY_SHARD, SDC_PROTO_VARINT, &bad))
            info->shard = f.value;
        else if (has_wire(&f, ENTRY_OFFSET, SDC_PROTO_VARINT, &bad))
            info->offset = f.value;
        else if (has_wire(&f, ENTRY_SIZE, SDC_PROTO_VARINT, &bad))
            info->size = f.value;
        else if (has_wire(&f, ENTRY_CRC, SDC_PROTO_FIXED32, &bad))
            info->crc_at =
                entry->value_offset == UINT64_MAX ? UINT64_MAX : entry->value_offset + f.at;
        else if (has_wire(&f, ENTRY_SLICES, SDC_PROTO_BYTES, &bad))
            info->n_slices++;
        else if (has_wire(&f, ENTRY_SHAPE, SDC_PROTO_BYTES, &bad))
            SDC_TRY(parse_shape(b, what, &f, info, err));
    }
    return bad || r == SDC_PROTO_BAD ? damaged(b, what, "its entry in the index is damaged", err)
                                     : SDC_OK;
}

/* The bytes of an entry must be in its data file. */
static enum sdc_status check_bytes(const struct bundle *b, const char *what,
                                   const struct info *info, struct sdc_error *err) {
    if (info->shard >= b->shards)
        return SDC_ERR(err, SDC_INVALID, "%s: %s: in data file %llu of %llu", b->path, what,
                       (unsigned long long)info->shard, (unsigned long long)b->shards);
    const struct sdc_ckpt_member *m = b->ckpt->members[1 + info->shard];
    if (!sdc__range_inside(info->offset, info->size, m->size))
        return SDC_ERR_AT(err, SDC_INVALID, info->offset,
                          "%s: truncated, or out of bounds: %s has %llu bytes at %llu, the file "
                          "has %llu",
                          m->path, what, (unsigned long long)info->size,
                          (unsigned long long)info->offset, (unsigned long long)m->size);
    return SDC_OK;
}

static enum sdc_status note_extent(struct bundle *b, const struct info *info, size_t tensor,
                                   struct sdc_error *err) {
    if (info->size == 0)
        return SDC_OK;
    if (b->n_extents == b->cap_extents) {
        size_t cap = b->cap_extents ? 2 * b->cap_extents : 64;
        struct extent *more = sdc__realloc(b->extents, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, b->path);
        b->extents = more;
        b->cap_extents = cap;
    }
    b->extents[b->n_extents++] = (struct extent){.file = 1 + info->shard,
                                                 .begin = info->offset,
                                                 .end = info->offset + info->size,
                                                 .tensor = tensor};
    return SDC_OK;
}

/* How the checksum of an entry relates to the bytes of the file. */
enum covers {
    COVERS_BYTES,
    COVERS_STRINGS, /* their lengths in another form: tensorbundle_strings.c */
    COVERS_OTHER    /* variants, resources: not known here */
};

/* The entry's checksum, and whether it can be mended. */
static enum sdc_status add_sum(struct bundle *b, const char *what, const struct info *info,
                               enum covers covers, struct sdc_ckpt_entry *e,
                               struct sdc_error *err) {
    const unsigned file = (unsigned)(1 + info->shard);
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_CRC32C_MASKED,
                               .what = what,
                               .file = file,
                               .offset = info->offset,
                               .size = info->size};
    if (b->index.blocks[info->entry->block].snappy)
        SDC_TRY(sdc__entry_lock(e, err, "its checksum is in a compressed block of the index"));
    else if (info->crc_at == UINT64_MAX)
        SDC_TRY(sdc__entry_lock(e, err, "the index has no place for its checksum"));
    if (info->crc_at != UINT64_MAX && covers == COVERS_STRINGS)
        return sdc__tb_keep_strings(b->ckpt,
                                    &(struct sdc_tb_strings){.what = (char *)(uintptr_t)what,
                                                             .n = e->desc.n_elems,
                                                             .file = file,
                                                             .offset = info->offset,
                                                             .size = info->size,
                                                             .crc_at = info->crc_at},
                                    err);
    if (info->crc_at != UINT64_MAX && covers == COVERS_BYTES) {
        sum.n_places = 1;
        sum.places[0].offset = info->crc_at;
    }
    sum.unknown = sum.n_places == 0;
    return sdc__ckpt_add_sum(b->ckpt, &sum, err);
}

/* ---- one tensor ---- */

static const struct type *find_type(uint64_t number) {
    if (number > REF_BASE)
        number -= REF_BASE;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

/* Type and shape; locks what is none of ours. */
static enum sdc_status set_type(struct bundle *b, struct sdc_ckpt_entry *e, struct info *info,
                                struct sdc_error *err) {
    const struct type *t = find_type(info->dtype);
    enum sdc_dtype dtype;
    if (t && strcmp(t->name, "float") != 0)
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", t->name));
    else if (!t)
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "type %llu", (unsigned long long)info->dtype));
    if (t && t->ours && sdc_dtype_parse(t->ours, &dtype)) {
        if (t->components == 1 && e->dtype_text && t->name[0] != 'q') {
            sdc__free(e->dtype_text); /* an ordinary type is called as in every format */
            e->dtype_text = NULL;
        }
        SDC_TRY(sdc__entry_set_dtype(e, dtype, err));
    } else if (!e->dtype_text) {
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "float"));
    }
    if (t && t->components > 1) {
        if (info->rank == SDC_MAX_RANK)
            return damaged(b, e->name, "too many dimensions", err);
        info->shape[info->rank++] = t->components;
    }
    SDC_TRY(sdc__entry_set_shape(e, b->path, info->rank, info->shape, err));
    e->big_endian = b->big_endian;
    if (!e->desc.dtype_known)
        return sdc__entry_lock(e, err, "type %s: its elements are not numbers known here",
                               e->dtype_text);
    return SDC_OK;
}

static enum sdc_status check_size(const struct bundle *b, const char *what,
                                  const struct sdc_ckpt_entry *e, const struct info *info,
                                  uint64_t n_elems, struct sdc_error *err) {
    uint64_t want = n_elems;
    if (!sdc__mul_u64(&want, sdc_dtype_bytes(e->desc.dtype)) || want != info->size)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: %s: shape and size differ: %llu elements of %s, %llu bytes", b->path,
                       what, (unsigned long long)n_elems, e->dtype_text,
                       (unsigned long long)info->size);
    return SDC_OK;
}

static enum sdc_status add_whole(struct bundle *b, struct sdc_ckpt_entry *e, size_t tensor,
                                 const char *what, const struct info *info, struct sdc_error *err) {
    SDC_TRY(check_bytes(b, what, info, err));
    SDC_TRY(sdc__entry_text(&e->storage, err, "contiguous"));
    e->stored_size = info->size;
    if (e->desc.dtype_known) {
        SDC_TRY(check_size(b, what, e, info, e->desc.n_elems, err));
        SDC_TRY(sdc__entry_contiguous(e, (unsigned)(1 + info->shard), info->offset, err));
    }
    SDC_TRY(note_extent(b, info, tensor, err));
    const struct type *t = find_type(info->dtype);
    enum covers covers = COVERS_BYTES; /* of types unknown here, too: only objects are otherwise */
    if (t && !t->ours)
        covers = strcmp(t->name, "string") == 0 ? COVERS_STRINGS : COVERS_OTHER;
    return add_sum(b, what, info, covers, e, err);
}

/* ---- slices ---- */

/* Ordered code (tensorflow, core/lib/strings/ordered_code.cc): numbers and texts whose bytes sort
 * as they do. */
static void code_u64(struct sdc_buf *out, uint64_t n) {
    unsigned len = 0;
    while (len < 8 && n >> 8 * len)
        len++;
    sdc__buf_putc(out, (char)len);
    while (len-- > 0)
        sdc__buf_putc(out, (char)(n >> 8 * len));
}

static void code_text(struct sdc_buf *out, const char *s, size_t len) {
    for (size_t i = 0; i < len; i++) {
        sdc__buf_putc(out, s[i]);
        if (s[i] == 0)
            sdc__buf_putc(out, (char)0xff);
        else if ((unsigned char)s[i] == 0xff)
            sdc__buf_putc(out, 0);
    }
    sdc__buf_append(out, "\0\1", 2);
}

static void code_i64(struct sdc_buf *out, int64_t v) {
    uint64_t x = v < 0 ? ~(uint64_t)v : (uint64_t)v;
    unsigned bits = 0;
    while (bits < 64 && x >> bits)
        bits++;
    unsigned len = bits / 7 + 1; /* a head of len ones, then a bit of sign, then the value */
    unsigned char raw[10];
    for (unsigned i = 0; i < 10; i++)
        raw[9 - i] = (unsigned char)(i < 8 ? (uint64_t)v >> 8 * i : v < 0 ? 0xffu : 0u);
    unsigned head = 0xffff0000u >> len & 0xffff;
    raw[10 - len] ^= (unsigned char)(head >> 8);
    if (len > 1)
        raw[11 - len] ^= (unsigned char)head;
    sdc__buf_append(out, raw + 10 - len, len);
}

/* A TensorSliceProto: extent = 1 { start = 1, length = 2 }; an extent without length is whole. Also
 * appends to the key what names the slice. */
static enum sdc_status parse_slice(const struct bundle *b, const char *what,
                                   const struct sdc_proto_field *field, const struct info *full,
                                   uint64_t *begin, uint64_t *size, struct sdc_buf *key,
                                   struct sdc_error *err) {
    struct sdc_proto p = sdc__proto(field->bytes, field->len);
    struct sdc_proto_field f, g;
    enum sdc_proto_result r;
    bool bad = false;
    unsigned d = 0;
    code_u64(key, full->rank);
    while ((r = sdc__proto_next(&p, &f)) == SDC_PROTO_FIELD) {
        if (!has_wire(&f, 1, SDC_PROTO_BYTES, &bad))
            continue;
        if (d == full->rank)
            return damaged(b, what, "a slice of more dimensions than its tensor", err);
        uint64_t start = 0, length = 0;
        bool whole = true;
        struct sdc_proto q = sdc__proto(f.bytes, f.len);
        while ((r = sdc__proto_next(&q, &g)) == SDC_PROTO_FIELD) {
            if (has_wire(&g, 1, SDC_PROTO_VARINT, &bad))
                start = g.value;
            if (has_wire(&g, 2, SDC_PROTO_VARINT, &bad)) {
                length = g.value;
                whole = false;
            }
        }
        bad = bad || r == SDC_PROTO_BAD;
        begin[d] = whole ? 0 : start;
        size[d] = whole ? full->shape[d] : length;
        if (!sdc__range_inside(begin[d], size[d], full->shape[d]))
            return damaged(b, what, "a slice that is not inside its tensor", err);
        code_i64(key, whole ? 0 : (int64_t)start);
        code_i64(key, whole ? -1 : (int64_t)length);
        d++;
    }
    if (bad || r == SDC_PROTO_BAD || d != full->rank)
        return damaged(b, what, "a slice is damaged", err);
    return key->failed ? SDC_NOMEM(err, b->path) : SDC_OK;
}

/* Do the boxes of two pieces meet? */
static bool overlap(unsigned rank, const struct sdc_ckpt_piece *x, const struct sdc_ckpt_piece *y) {
    for (unsigned d = 0; d < rank; d++)
        if (x->size[d] == 0 || y->size[d] == 0 || x->begin[d] >= y->begin[d] + y->size[d] ||
            y->begin[d] >= x->begin[d] + x->size[d])
            return false;
    return true;
}

static enum sdc_status add_slice(struct bundle *b, struct sdc_ckpt_entry *e, size_t tensor,
                                 const char *what, const struct info *full,
                                 const struct sdc_proto_field *field, uint64_t *held,
                                 struct sdc_error *err) {
    uint64_t begin[SDC_MAX_RANK], size[SDC_MAX_RANK], n = 1;
    struct sdc_buf key = SDC_BUF_INIT;
    struct info part;
    char *part_what = NULL;
    code_u64(&key, 0);
    code_text(&key, full->entry->key, full->entry->key_len);
    enum sdc_status st = parse_slice(b, what, field, full, begin, size, &key, err);
    if (st != SDC_OK)
        goto out;
    const struct sdc_sst_entry *entry = sdc__sst_find(&b->index, key.data, key.len);
    if (!entry) {
        st = damaged(b, what, "incomplete set: a slice is missing from the index", err);
        goto out;
    }
    part_what = sdc__asprintf("%s, slice %zu", what, e->n_pieces);
    if (!part_what) {
        st = SDC_NOMEM(err, b->path);
        goto out;
    }
    SDC_TRY_OUT(st, parse_entry(b, part_what, entry, &part, err));
    SDC_TRY_OUT(st, check_bytes(b, part_what, &part, err));
    for (unsigned d = 0; d < full->rank; d++)
        n *= size[d]; /* at most the tensor's elements */
    if (part.dtype != full->dtype || part.rank != full->rank ||
        (part.rank && memcmp(part.shape, size, part.rank * sizeof *size) != 0)) {
        st = damaged(b, part_what, "another type or shape than its tensor says", err);
        goto out;
    }
    /* complex numbers: the components are a last axis of their own, whole in every slice */
    const uint64_t stride = sdc_dtype_bits(e->desc.dtype);
    if (e->desc.rank > full->rank) {
        begin[full->rank] = 0;
        size[full->rank] = e->shape[full->rank];
        n *= size[full->rank];
    }
    SDC_TRY_OUT(st, check_size(b, part_what, e, &part, n, err));
    struct sdc_ckpt_piece piece = {.file = (unsigned)(1 + part.shard),
                                   .bit = part.offset * 8, /* inside a file: no overflow */
                                   .n_dims = 1,
                                   .dims = &n,
                                   .strides = &stride,
                                   .begin = begin,
                                   .size = size};
    for (size_t i = 0; i < e->n_pieces; i++)
        if (overlap(e->desc.rank, &e->pieces[i], &piece)) {
            st = damaged(b, part_what, "it overlaps another slice", err);
            goto out;
        }
    SDC_TRY_OUT(st, sdc__entry_piece(e, &piece, err));
    SDC_TRY_OUT(st, note_extent(b, &part, tensor, err));
    *held += n;
    e->stored_size += part.size;
    st = add_sum(b, part_what, &part, COVERS_BYTES, e, err);
out:
    sdc__free(part_what);
    sdc__buf_release(&key);
    return st;
}

static enum sdc_status add_sliced(struct bundle *b, struct sdc_ckpt_entry *e, size_t tensor,
                                  const char *what, const struct info *info,
                                  struct sdc_error *err) {
    struct sdc_proto p = sdc__proto(info->entry->value, info->entry->value_len);
    struct sdc_proto_field f;
    uint64_t held = 0;
    SDC_TRY(sdc__entry_text(&e->storage, err, "%zu slices", info->n_slices));
    if (!e->desc.dtype_known) /* listed, without its bytes */
        return SDC_OK;
    if (info->n_slices > MAX_SLICES)
        return SDC_ERR(err, SDC_LIMIT, "%s: %s: %zu slices, the limit is %u", b->path, what,
                       info->n_slices, MAX_SLICES);
    while (sdc__proto_next(&p, &f) == SDC_PROTO_FIELD)
        if (f.number == ENTRY_SLICES)
            SDC_TRY(add_slice(b, e, tensor, what, info, &f, &held, err));
    if (held != e->desc.n_elems)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: incomplete set: %s: its slices hold %llu of %llu elements", b->path,
                       what, (unsigned long long)held, (unsigned long long)e->desc.n_elems);
    return SDC_OK;
}

/* The key as a name; a zero byte inside is shown. */
static char *name_of(const struct sdc_sst_entry *entry) {
    struct sdc_buf out = SDC_BUF_INIT;
    for (size_t i = 0; i < entry->key_len; i++)
        if (entry->key[i])
            sdc__buf_putc(&out, entry->key[i]);
        else
            sdc__buf_puts(&out, "\\x00");
    char *name = sdc__buf_take(&out);
    sdc__buf_release(&out);
    return name;
}

static enum sdc_status add_tensor(struct bundle *b, const struct sdc_sst_entry *entry,
                                  struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    struct info info;
    const size_t tensor = b->ckpt->n;
    char *name = name_of(entry), *what = NULL;
    enum sdc_status st = name ? sdc__ckpt_add(b->ckpt, name, &e, err) : SDC_NOMEM(err, b->path);
    if (st != SDC_OK)
        goto out;
    if (memchr(entry->key, 0, entry->key_len))
        SDC_TRY_OUT(st, sdc__entry_lock(e, err, "its name holds a zero byte"));
    what = sdc__asprintf("tensor %s", e->name);
    if (!what) {
        st = SDC_NOMEM(err, b->path);
        goto out;
    }
    SDC_TRY_OUT(st, parse_entry(b, what, entry, &info, err));
    struct info shaped = info; /* with the axis of components */
    SDC_TRY_OUT(st, set_type(b, e, &shaped, err));
    st = info.n_slices ? add_sliced(b, e, tensor, what, &info, err)
                       : add_whole(b, e, tensor, what, &info, err);
out:
    sdc__free(what);
    sdc__free(name);
    return st;
}

/* ---- the whole bundle ---- */

static enum sdc_status read_header(struct bundle *b, struct sdc_error *err) {
    const struct sdc_sst_entry *entry = sdc__sst_find(&b->index, "", 0);
    if (b->index.n == 0)
        return damaged(b, "the index", "it is empty, not even a header", err);
    if (!entry)
        return damaged(b, "the index", "no header: a table, but not of a TensorFlow checkpoint",
                       err);
    struct sdc_proto p = sdc__proto(entry->value, entry->value_len);
    struct sdc_proto_field f;
    enum sdc_proto_result r;
    bool bad = false;
    uint64_t endianness = 0;
    while ((r = sdc__proto_next(&p, &f)) == SDC_PROTO_FIELD) {
        if (has_wire(&f, HEADER_SHARDS, SDC_PROTO_VARINT, &bad))
            b->shards = f.value;
        if (has_wire(&f, HEADER_ENDIANNESS, SDC_PROTO_VARINT, &bad))
            endianness = f.value;
    }
    if (bad || r == SDC_PROTO_BAD || endianness > 1)
        return damaged(b, "the index", "its header is damaged", err);
    b->big_endian = endianness == 1;
    return SDC_OK;
}

static enum sdc_status add_block_sums(struct bundle *b, struct sdc_error *err) {
    for (size_t i = 0; i < b->index.n_blocks; i++) {
        const struct sdc_sst_block *block = &b->index.blocks[i];
        char what[64];
        (void)snprintf(what, sizeof what, "%s at %llu of the index", block->what,
                       (unsigned long long)block->offset);
        struct sdc_ckpt_sum sum = {.kind = SDC_SUM_CRC32C_MASKED,
                                   .what = what,
                                   .offset = block->offset,
                                   .size = block->size + 1,
                                   .n_places = 1,
                                   .places = {{.offset = block->offset + block->size + 1}},
                                   .level = 1};
        SDC_TRY(sdc__ckpt_add_sum(b->ckpt, &sum, err));
    }
    return SDC_OK;
}

static int by_place(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static enum sdc_status mark_shared(struct bundle *b, struct sdc_error *err) {
    struct extent widest = {0};
    if (b->n_extents > 1)
        qsort(b->extents, b->n_extents, sizeof *b->extents, by_place);
    for (size_t i = 0; i < b->n_extents; i++) {
        const struct extent *x = &b->extents[i];
        struct sdc_ckpt_entry *e = &b->ckpt->entries[x->tensor];
        if (x->file == widest.file && x->begin < widest.end && !e->shared)
            SDC_TRY(sdc__entry_text(&e->shared, err, "shares bytes with %s",
                                    b->ckpt->entries[widest.tensor].name));
        if (x->file != widest.file || x->end > widest.end)
            widest = *x;
    }
    return SDC_OK;
}

/* The graph is a scalar string: its length, a checksum of the length, the bytes. */
static enum sdc_status add_names(struct bundle *b, const size_t *entry_of, struct sdc_error *err) {
    const struct sdc_sst_entry *entry = sdc__sst_find(&b->index, GRAPH_KEY, strlen(GRAPH_KEY));
    struct info info;
    const struct sdc_file *f;
    uint64_t len;
    size_t at = 0;
    if (!entry)
        return SDC_OK;
    SDC_TRY(parse_entry(b, GRAPH_KEY, entry, &info, err)); /* once more: add_tensor checked it */
    if (info.n_slices || info.rank || info.size > GRAPH_LIMIT)
        return sdc__ckpt_add_note(b->ckpt, SDC_NOTE_WARNING, err,
                                  "the object graph is not read: %s",
                                  info.size > GRAPH_LIMIT ? "it is too large" : "it is no scalar");
    SDC_TRY(sdc__ckpt_member(b->ckpt, (unsigned)(1 + info.shard), &f, err));
    unsigned char *raw = sdc__alloc((size_t)info.size, 1); /* the file has as many: check_bytes */
    if (!raw)
        return SDC_NOMEM(err, b->path);
    enum sdc_status st = sdc__file_read(f, info.offset, raw, (size_t)info.size, err);
    if (st != SDC_OK)
        goto out;
    if (!sdc__varint(raw, (size_t)info.size, &at, 10, &len) || info.size - at < 4 ||
        len > info.size - at - 4)
        st = sdc__ckpt_add_note(b->ckpt, SDC_NOTE_WARNING, err,
                                "the object graph is not read: it is damaged");
    else
        st = sdc__tb_graph_names(b->ckpt, &b->index, entry_of, raw + at + 4, (size_t)len, err);
out:
    sdc__free(raw);
    return st;
}

static enum sdc_status add_tensors(struct bundle *b, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    size_t *entry_of = sdc__alloc(b->index.n, sizeof *entry_of);
    if (!entry_of)
        return SDC_NOMEM(err, b->path);
    for (size_t i = 0; i < b->index.n; i++) {
        const struct sdc_sst_entry *entry = &b->index.entries[i];
        bool is_tensor = entry->key_len > 0 && entry->key[0] != 0; /* else header, or a slice */
        entry_of[i] = is_tensor ? b->ckpt->n : SIZE_MAX;
        if (is_tensor)
            SDC_TRY_OUT(st, add_tensor(b, entry, err));
    }
    SDC_TRY_OUT(st, mark_shared(b, err));
    st = add_names(b, entry_of, err);
out:
    sdc__free(entry_of);
    return st;
}

static enum sdc_status open_set(struct bundle *b, const struct sdc_tb_set *set,
                                struct sdc_error *err) {
    const struct sdc_file *f;
    char *name = sdc__asprintf("%s.index", set->prefix);
    if (!name)
        return SDC_NOMEM(err, set->prefix);
    enum sdc_status st = sdc__tb_member(b->ckpt, set, name, NULL, err);
    sdc__free(name);
    if (st != SDC_OK)
        return st;
    SDC_TRY(sdc__ckpt_member(b->ckpt, 0, &f, err));
    b->path = b->ckpt->members[0]->path;
    if (f->size == 0)
        return SDC_ERR(err, SDC_INVALID, "%s: truncated: an empty index", b->path);
    SDC_TRY(sdc__sst_read(f, &b->index, err));
    SDC_TRY(read_header(b, err));
    for (uint64_t i = 0; i < b->shards; i++) {
        name = sdc__asprintf("%s.data-%05llu-of-%05llu", set->prefix, (unsigned long long)i,
                             (unsigned long long)b->shards);
        st = name ? sdc__tb_member(b->ckpt, set, name, NULL, err) : SDC_NOMEM(err, b->path);
        sdc__free(name);
        if (st != SDC_OK)
            return st;
    }
    SDC_TRY(sdc__tb_companions(b->ckpt, set, err));
    SDC_TRY(add_block_sums(b, err));
    return add_tensors(b, err);
}

static enum sdc_status tb_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                               struct sdc_error *err) {
    struct sdc_tb_set set;
    struct bundle b = {.ckpt = ckpt, .index = SDC_SST_INIT};
    ckpt->priv = sdc__calloc(1, sizeof(struct sdc_tb_state));
    if (!ckpt->priv)
        return SDC_NOMEM(err, ckpt->path);
    SDC_TRY(sdc__tb_find(ckpt, source, &set, err));
    enum sdc_status st =
        sdc__ckpt_set_name(ckpt, set.folder, set.saved_model ? "" : set.prefix, err);
    if (st == SDC_OK)
        st = open_set(&b, &set, err);
    sdc__sst_release(&b.index);
    sdc__free(b.extents);
    sdc__tb_set_release(&set);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_tensorbundle = {
    .name = "tensorbundle",
    .summary = "TensorFlow checkpoint or SavedModel",
    .is_set = true,
    .sniff = sdc__tb_sniff,
    .open = tb_open,
    .find_sums = sdc__tb_find_sums,
    .close = sdc__tb_close,
};
