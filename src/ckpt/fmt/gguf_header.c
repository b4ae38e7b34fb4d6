/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a GGUF file: everything up to the data. Each count and length is compared with what
 * is left of the file before it is used; sums and products are checked for overflow.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/set.h"
#include "ckpt/fmt/gguf.h"

#define WINDOW            ((size_t)256 * 1024)
#define MAX_KEY           65535u /* docs/gguf.md */
#define MAX_DEPTH         4      /* arrays of arrays */
#define DEFAULT_ALIGNMENT 32u
#define NAME_LIMIT        64u /* GGML_MAX_NAME */
#define MIN_PAIR          13u /* bytes of the shortest pair: empty key, type, one byte */
#define MIN_TENSOR        24u

enum value_type { T_STRING = 8, T_ARRAY = 9, T_TYPES = 13 };

/* bytes of a value by its type; 0: string, array */
static const unsigned value_sizes[T_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* A window over the file, so that a header of many small things costs few system calls. */
struct reader {
    const struct sdc_file *file;
    unsigned char *window; /* owned */
    uint64_t base, at;     /* of the window, of the next byte */
    size_t have;
    bool big_endian;
    const char *what; /* for messages: the pair or tensor */
    uint64_t index;
    struct sdc_error *err;
};

static enum sdc_status cut(const struct reader *r) {
    return SDC_ERR_AT(r->err, SDC_INVALID, r->at,
                      "%s: truncated, or a length out of bounds: %s %llu does not fit in the %llu "
                      "bytes of the file",
                      r->file->path, r->what, (unsigned long long)r->index,
                      (unsigned long long)r->file->size);
}

/* n at most WINDOW; *data is valid until the next call. */
static enum sdc_status get(struct reader *r, size_t n, const unsigned char **data) {
    if (!sdc__range_inside(r->at, n, r->file->size))
        return cut(r);
    if (r->at < r->base || r->at + n > r->base + r->have) {
        uint64_t left = r->file->size - r->at;
        r->base = r->at;
        r->have = left < WINDOW ? (size_t)left : WINDOW;
        SDC_TRY(sdc__file_read(r->file, r->base, r->window, r->have, r->err));
    }
    *data = r->window + (r->at - r->base);
    r->at += n;
    return SDC_OK;
}

static enum sdc_status get_number(struct reader *r, enum sdc_dtype dtype, uint64_t *value) {
    const unsigned char *data;
    SDC_TRY(get(r, sdc_dtype_bytes(dtype), &data));
    *value = sdc_num_load(dtype, data, r->big_endian);
    return SDC_OK;
}

static enum sdc_status skip(struct reader *r, uint64_t n) {
    if (!sdc__range_inside(r->at, n, r->file->size))
        return cut(r);
    r->at += n;
    return SDC_OK;
}

/* A string of at most `limit` bytes, NUL-terminated in fresh memory. Bytes of 0 are refused. */
static enum sdc_status get_string(struct reader *r, uint64_t limit, char **text) {
    uint64_t len;
    const unsigned char *data;
    SDC_TRY(get_number(r, SDC_DTYPE_U64, &len));
    if (!sdc__range_inside(r->at, len, r->file->size))
        return cut(r);
    if (len > limit)
        return SDC_ERR_AT(r->err, SDC_LIMIT, r->at,
                          "%s: %s %llu: a name of %llu bytes, the limit is %llu", r->file->path,
                          r->what, (unsigned long long)r->index, (unsigned long long)len,
                          (unsigned long long)limit);
    SDC_TRY(get(r, (size_t)len, &data));
    if (memchr(data, 0, (size_t)len))
        return SDC_ERR_AT(r->err, SDC_INVALID, r->at - len,
                          "%s: %s %llu: a name that holds a zero byte", r->file->path, r->what,
                          (unsigned long long)r->index);
    *text = sdc__strndup((const char *)data, (size_t)len);
    return *text ? SDC_OK : SDC_NOMEM(r->err, r->file->path);
}

/* ---- pairs ---- */

static enum sdc_status skip_value(struct reader *r, uint64_t type, unsigned depth) {
    uint64_t n, inner;
    if (type >= T_TYPES)
        return SDC_ERR_AT(r->err, SDC_INVALID, r->at, "%s: %s %llu has a value of type %llu",
                          r->file->path, r->what, (unsigned long long)r->index,
                          (unsigned long long)type);
    if (type == T_STRING) {
        SDC_TRY(get_number(r, SDC_DTYPE_U64, &n));
        return skip(r, n);
    }
    if (type != T_ARRAY)
        return skip(r, value_sizes[type]);
    if (depth == MAX_DEPTH)
        return SDC_ERR_AT(r->err, SDC_LIMIT, r->at, "%s: %s %llu: arrays nested over %d deep",
                          r->file->path, r->what, (unsigned long long)r->index, MAX_DEPTH);
    SDC_TRY(get_number(r, SDC_DTYPE_U32, &inner));
    SDC_TRY(get_number(r, SDC_DTYPE_U64, &n));
    if (inner < T_TYPES && value_sizes[inner]) {
        if (!sdc__mul_u64(&n, value_sizes[inner]))
            return cut(r);
        return skip(r, n);
    }
    for (uint64_t i = 0; i < n; i++) /* each takes 8 bytes at least, or fails */
        SDC_TRY(skip_value(r, inner, depth + 1));
    return SDC_OK;
}

/* An unsigned number of whatever width; false: no number. */
static enum sdc_status get_unsigned(struct reader *r, uint64_t type, uint64_t *value, bool *is) {
    static const enum sdc_dtype of[T_TYPES] = {[0] = SDC_DTYPE_U8,
                                               [2] = SDC_DTYPE_U16,
                                               [4] = SDC_DTYPE_U32,
                                               [5] = SDC_DTYPE_U32,
                                               [10] = SDC_DTYPE_U64};
    *is = type == 0 || type == 2 || type == 4 || type == 5 || type == 10;
    return *is ? get_number(r, of[type], value) : skip_value(r, type, 0);
}

static enum sdc_status read_pair(struct reader *r, struct sdc_gguf_header *h,
                                 struct sdc_set *keys) {
    const struct {
        const char *key;
        uint64_t *value;
    } known[] = {{"general.alignment", &h->alignment},
                 {"split.no", &h->split_no},
                 {"split.count", &h->split_count},
                 {"split.tensors.count", &h->split_tensors}};
    char *key = NULL;
    uint64_t type, *value = NULL;
    bool is_number = true;
    SDC_TRY(get_string(r, MAX_KEY, &key));
    enum sdc_status st = SDC_OK;
    /* 63 bits: the set has no room for UINT64_MAX; equal digests of other keys are out of reach */
    if (!sdc__set_insert(keys, sdc__xxh3_64(key, strlen(key)) >> 1)) {
        st = SDC_ERR_AT(r->err, SDC_INVALID, r->at, "%s: the key %.200s occurs twice",
                        r->file->path, key);
        goto out;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i].key) == 0)
            value = known[i].value;
    SDC_TRY_OUT(st, get_number(r, SDC_DTYPE_U32, &type));
    SDC_TRY_OUT(st, value ? get_unsigned(r, type, value, &is_number) : skip_value(r, type, 0));
    if (!is_number)
        st = SDC_ERR_AT(r->err, SDC_INVALID, r->at, "%s: %s is not an unsigned integer",
                        r->file->path, key);
out:
    sdc__free(key);
    return st;
}

static enum sdc_status read_pairs(struct reader *r, struct sdc_gguf_header *h, uint64_t n) {
    struct sdc_set keys = {0};
    r->what = "key-value pair";
    if (n > (r->file->size - r->at) / MIN_PAIR) {
        r->index = n;
        return cut(r);
    }
    if (n > SDC_MAX_TENSORS) /* a file with a hole has room for any number */
        return SDC_ERR(r->err, SDC_LIMIT, "%s: %llu key-value pairs, the limit is %d",
                       r->file->path, (unsigned long long)n, SDC_MAX_TENSORS);
    SDC_TRY(sdc__set_init(&keys, n, r->err));
    enum sdc_status st = SDC_OK;
    for (r->index = 0; st == SDC_OK && r->index < n; r->index++)
        st = read_pair(r, h, &keys);
    sdc__set_release(&keys);
    if (st != SDC_OK)
        return st;
    uint64_t a = h->alignment;
    if (a == 0 || (a & (a - 1)) != 0)
        return SDC_ERR(r->err, SDC_INVALID,
                       "%s: general.alignment is %llu, expected a power of two", r->file->path,
                       (unsigned long long)a);
    h->is_split = h->split_count != UINT64_MAX && h->split_count > 1;
    return SDC_OK;
}

/* ---- tensors ---- */

/* Bytes of the elements; false on overflow. */
static bool tensor_size(const struct sdc_gguf_type *type, const struct sdc_gguf_tensor *t,
                        uint64_t *size) {
    *size = t->n_elems / type->weights;
    return sdc__mul_u64(size, type->bytes);
}

static enum sdc_status read_tensor(struct reader *r, struct sdc_gguf_header *h) {
    const char *path = r->file->path;
    uint64_t rank, dims[SDC_GGUF_DIMS], type;
    struct sdc_gguf_tensor *t = &h->tensors[h->n];
    *t = (struct sdc_gguf_tensor){.n_elems = 1};
    SDC_TRY(get_string(r, SDC_MAX_NAME, &t->name));
    h->n++;
    h->long_name = h->long_name || strlen(t->name) > NAME_LIMIT;
    SDC_TRY(get_number(r, SDC_DTYPE_U32, &rank));
    if (rank > SDC_GGUF_DIMS)
        return SDC_ERR_AT(r->err, SDC_INVALID, r->at,
                          "%s: tensor %s: %llu dimensions, a file of this format has at most %d",
                          path, t->name, (unsigned long long)rank, SDC_GGUF_DIMS);
    for (uint64_t i = 0; i < rank; i++)
        SDC_TRY(get_number(r, SDC_DTYPE_U64, &dims[i]));
    t->rank = (unsigned)rank;
    for (unsigned i = 0; i < t->rank; i++) {
        t->shape[i] = dims[rank - 1 - i];
        if (t->shape[i] > INT64_MAX || !sdc__mul_u64(&t->n_elems, t->shape[i]) ||
            t->n_elems > INT64_MAX)
            return SDC_ERR_AT(r->err, SDC_INVALID, r->at,
                              "%s: tensor %s: overflow of the shape's product", path, t->name);
    }
    SDC_TRY(get_number(r, SDC_DTYPE_U32, &type));
    t->type = (uint32_t)type;
    SDC_TRY(get_number(r, SDC_DTYPE_U64, &t->offset));
    const struct sdc_gguf_type *known = sdc__gguf_type(t->type);
    if (!known)
        return SDC_OK;
    uint64_t row = t->rank ? t->shape[t->rank - 1] : 1;
    if (row % known->weights)
        return SDC_ERR_AT(r->err, SDC_INVALID, r->at,
                          "%s: tensor %s: rows of %llu elements, blocks of type %s have %u", path,
                          t->name, (unsigned long long)row, known->name, known->weights);
    if (!tensor_size(known, t, &t->size))
        return SDC_ERR_AT(r->err, SDC_INVALID, r->at, "%s: tensor %s: overflow of its size", path,
                          t->name);
    return SDC_OK;
}

/* Every tensor begins where the one before it ends, padded; what an unknown type takes is known
 * from the next one. Offsets become places in the file. */
static enum sdc_status place_tensors(const struct reader *r, struct sdc_gguf_header *h) {
    const char *path = r->file->path;
    const uint64_t have = r->file->size > h->data ? r->file->size - h->data : 0;
    uint64_t at = 0; /* where the next tensor must begin, relative to the data */
    for (size_t i = 0; i < h->n; i++) {
        struct sdc_gguf_tensor *t = &h->tensors[i];
        if (t->offset != at)
            return SDC_ERR_AT(
                r->err, SDC_INVALID, h->data,
                "%s: tensor %s: bounds: its offset is %llu, expected %llu (the padded "
                "sum of those before it)",
                path, t->name, (unsigned long long)t->offset, (unsigned long long)at);
        if (!sdc__gguf_type(t->type)) {
            uint64_t next = i + 1 < h->n ? h->tensors[i + 1].offset : have;
            if (next < at)
                return SDC_ERR_AT(r->err, SDC_INVALID, h->data,
                                  "%s: tensor %s: bounds: it begins at %llu, the next one at %llu",
                                  path, t->name, (unsigned long long)at, (unsigned long long)next);
            t->size = next - at;
        }
        if (!sdc__range_inside(at, t->size, have))
            return SDC_ERR_AT(r->err, SDC_INVALID, r->file->size,
                              "%s: truncated: tensor %s is the first that is not whole: %llu bytes "
                              "at %llu, the file has %llu",
                              path, t->name, (unsigned long long)t->size,
                              (unsigned long long)(h->data + at),
                              (unsigned long long)r->file->size);
        t->offset = h->data + at;
        h->end = t->offset + t->size;
        uint64_t over = t->size % h->alignment, pad = over ? h->alignment - over : 0;
        if (__builtin_add_overflow(at + t->size, pad, &at))
            return SDC_ERR(r->err, SDC_INVALID, "%s: tensor %s: overflow of the padding", path,
                           t->name);
    }
    return SDC_OK;
}

static enum sdc_status read_tensors(struct reader *r, struct sdc_gguf_header *h, uint64_t n) {
    r->what = "tensor";
    if (n > (r->file->size - r->at) / MIN_TENSOR) {
        r->index = n;
        return cut(r);
    }
    if (n > SDC_MAX_TENSORS)
        return SDC_ERR(r->err, SDC_LIMIT, "%s: %llu tensors, the limit is %d", r->file->path,
                       (unsigned long long)n, SDC_MAX_TENSORS);
    h->tensors = sdc__alloc((size_t)n, sizeof *h->tensors);
    if (!h->tensors)
        return SDC_NOMEM(r->err, r->file->path);
    for (r->index = 0; r->index < n; r->index++)
        SDC_TRY(read_tensor(r, h));
    uint64_t over = r->at % h->alignment, pad = over ? h->alignment - over : 0;
    if (__builtin_add_overflow(r->at, pad, &h->data))
        return SDC_ERR(r->err, SDC_INVALID, "%s: overflow of the padding", r->file->path);
    h->end = h->data;
    return place_tensors(r, h);
}

/* ---- the whole header ---- */

static enum sdc_status read_all(struct reader *r, struct sdc_gguf_header *h) {
    const unsigned char *head;
    uint64_t version, n_tensors, n_pairs;
    r->what = "the header, version";
    SDC_TRY(get(r, 8, &head));
    version = sdc_num_load(SDC_DTYPE_U32, head + 4, false);
    if ((version & 0xffff) == 0) {
        r->big_endian = h->big_endian = true;
        version = sdc_num_load(SDC_DTYPE_U32, head + 4, true);
    }
    if (version != 2 && version != 3)
        return SDC_ERR_AT(r->err, SDC_UNSUPPORTED, 4,
                          "%s: GGUF version %llu, supported are 2 and 3", r->file->path,
                          (unsigned long long)version);
    r->index = version;
    SDC_TRY(get_number(r, SDC_DTYPE_U64, &n_tensors));
    SDC_TRY(get_number(r, SDC_DTYPE_U64, &n_pairs));
    SDC_TRY(read_pairs(r, h, n_pairs));
    return read_tensors(r, h, n_tensors);
}

enum sdc_status sdc__gguf_read_header(const struct sdc_file *file, struct sdc_gguf_header *h,
                                      struct sdc_error *err) {
    struct reader r = {.file = file, .err = err};
    *h = (struct sdc_gguf_header){.alignment = DEFAULT_ALIGNMENT,
                                  .split_no = UINT64_MAX,
                                  .split_count = UINT64_MAX,
                                  .split_tensors = UINT64_MAX};
    r.window = sdc__alloc(WINDOW, 1);
    if (!r.window)
        return SDC_NOMEM(err, file->path);
    enum sdc_status st = read_all(&r, h);
    sdc__free(r.window);
    if (st != SDC_OK)
        sdc__gguf_header_release(h);
    return st;
}

void sdc__gguf_header_release(struct sdc_gguf_header *h) {
    for (size_t i = 0; i < h->n; i++)
        sdc__free(h->tensors[i].name);
    sdc__free(h->tensors);
    h->tensors = NULL;
    h->n = 0;
}
