/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

bool sdc__mul_u64(uint64_t *product, uint64_t factor) {
    return !__builtin_mul_overflow(*product, factor, product);
}

bool sdc__range_inside(uint64_t offset, uint64_t len, uint64_t total) {
    return len <= total && offset <= total - len;
}

bool sdc__host_big_endian(void) {
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

void sdc__swap_elements(void *elements, uint64_t n, unsigned size) {
    unsigned char *p = elements;
    for (uint64_t i = 0; i < n; i++, p += size)
        for (unsigned a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char t = p[a];
            p[a] = p[b];
            p[b] = t;
        }
}

/* Length of the valid UTF-8 sequence at s (RFC 3629: no surrogates, no overlong forms), or 0. */
static size_t utf8_sequence(const unsigned char *s, size_t len) {
    static const struct {
        unsigned char first_lo, first_hi, second_lo, second_hi;
        size_t len;
    } rows[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (s[0] < rows[r].first_lo || s[0] > rows[r].first_hi)
            continue;
        if (len < rows[r].len)
            return 0;
        if (rows[r].len > 1 && (s[1] < rows[r].second_lo || s[1] > rows[r].second_hi))
            return 0;
        for (size_t i = 2; i < rows[r].len; i++)
            if (s[i] < 0x80 || s[i] > 0xbf)
                return 0;
        return rows[r].len;
    }
    return 0;
}

bool sdc__utf8_valid(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n =
            (unsigned char)s[i] < 0x80 ? 1 : utf8_sequence((const unsigned char *)s + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

static char *escape_name(const char *name, size_t len) {
    struct sdc_buf b = SDC_BUF_INIT;
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence((const unsigned char *)name + i, len - i);
        if (n > 0)
            sdc__buf_append(&b, name + i, n);
        else
            sdc__buf_printf(&b, "\\x%02x", (unsigned char)name[i]);
        i += n > 0 ? n : 1;
    }
    char *text = sdc__buf_take(&b);
    sdc__buf_release(&b);
    return text;
}

enum sdc_status sdc__ckpt_add(struct sdc_ckpt *ckpt, const char *name,
                              struct sdc_ckpt_entry **entry, struct sdc_error *err) {
    const char *path = ckpt->path;
    size_t len = strlen(name);
    if (len > SDC_MAX_NAME)
        return SDC_ERR(err, SDC_LIMIT, "%s: a tensor name of %zu bytes, the limit is %d", path, len,
                       SDC_MAX_NAME);
    if (ckpt->n >= SDC_MAX_TENSORS)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %d tensors", path, SDC_MAX_TENSORS);
    if (ckpt->n == ckpt->cap) {
        size_t cap = ckpt->cap ? ckpt->cap * 2 : 32;
        struct sdc_ckpt_entry *more = sdc__realloc(ckpt->entries, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, path);
        ckpt->entries = more;
        ckpt->cap = cap;
    }
    struct sdc_ckpt_entry *e = &ckpt->entries[ckpt->n];
    *e = (struct sdc_ckpt_entry){0};
    bool valid = sdc__utf8_valid(name, len);
    e->name = valid ? sdc__strndup(name, len) : escape_name(name, len);
    if (!e->name)
        return SDC_NOMEM(err, path);
    ckpt->n++;
    *entry = e;
    if (!valid)
        return sdc__entry_lock(e, err, "its name is not UTF-8");
    return len > 0 ? SDC_OK : sdc__entry_lock(e, err, "its name is empty");
}

enum sdc_status sdc__entry_set_shape(struct sdc_ckpt_entry *e, const char *path, unsigned rank,
                                     const uint64_t *shape, struct sdc_error *err) {
    uint64_t n = 1;
    if (rank > SDC_MAX_RANK)
        return SDC_ERR(err, SDC_LIMIT, "%s: tensor %s: %u dimensions, the limit is %d", path,
                       e->name, rank, SDC_MAX_RANK);
    for (unsigned i = 0; i < rank; i++)
        if (!sdc__mul_u64(&n, shape[i]))
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: overflow of the shape's product", path,
                           e->name);
    sdc__free(e->shape);
    e->shape = sdc__alloc(rank ? rank : 1, sizeof *e->shape);
    if (!e->shape)
        return SDC_NOMEM(err, path);
    if (rank)
        memcpy(e->shape, shape, rank * sizeof *shape);
    e->desc.rank = rank;
    e->desc.n_elems = n;
    return SDC_OK;
}

static enum sdc_status set_text(char **text, struct sdc_error *err, const char *fmt, va_list args)
    SDC_PRINTF(3, 0);

static enum sdc_status set_text(char **text, struct sdc_error *err, const char *fmt, va_list args) {
    char line[512];
    (void)vsnprintf(line, sizeof line, fmt, args);
    char *copy = sdc__strdup(line);
    if (!copy)
        return SDC_NOMEM(err, "the list of tensors");
    sdc__free(*text);
    *text = copy;
    return SDC_OK;
}

enum sdc_status sdc__entry_text(char **text, struct sdc_error *err, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    enum sdc_status st = set_text(text, err, fmt, args);
    va_end(args);
    return st;
}

enum sdc_status sdc__entry_lock(struct sdc_ckpt_entry *e, struct sdc_error *err, const char *fmt,
                                ...) {
    if (e->locked)
        return SDC_OK;
    va_list args;
    va_start(args, fmt);
    enum sdc_status st = set_text(&e->locked, err, fmt, args);
    va_end(args);
    return st;
}

enum sdc_status sdc__entry_alias(struct sdc_ckpt_entry *e, const char *name,
                                 struct sdc_error *err) {
    char **more = sdc__realloc(e->aliases, e->n_aliases + 1, sizeof *more);
    if (!more)
        return SDC_NOMEM(err, "the list of aliases");
    e->aliases = more;
    size_t len = strlen(name);
    more[e->n_aliases] =
        sdc__utf8_valid(name, len) ? sdc__strndup(name, len) : escape_name(name, len);
    if (!more[e->n_aliases])
        return SDC_NOMEM(err, "the list of aliases");
    e->n_aliases++;
    return SDC_OK;
}

enum sdc_status sdc__entry_set_dtype(struct sdc_ckpt_entry *e, enum sdc_dtype dtype,
                                     struct sdc_error *err) {
    e->desc.dtype = dtype;
    e->desc.dtype_known = true;
    return e->dtype_text ? SDC_OK
                         : sdc__entry_text(&e->dtype_text, err, "%s", sdc_dtype_name(dtype));
}

bool sdc__ckpt_as(const struct sdc_ckpt *ckpt, const char *name, unsigned bits,
                  enum sdc_dtype *dtype) {
    const struct sdc_ckpt_options *o = ckpt->options;
    for (size_t i = 0; i < o->n_as; i++)
        if (sdc_dtype_bits(o->as[i].dtype) == bits && sdc__glob_match(o->as[i].glob, name)) {
            *dtype = o->as[i].dtype;
            return true;
        }
    return false;
}

static uint64_t *put_array(uint64_t **pool, const uint64_t *values, unsigned n) {
    uint64_t *at = *pool;
    if (n)
        memcpy(at, values, n * sizeof *at);
    *pool += n;
    return at;
}

enum sdc_status sdc__entry_piece(struct sdc_ckpt_entry *e, const struct sdc_ckpt_piece *piece,
                                 struct sdc_error *err) {
    size_t n = e->n_pieces;
    if ((n & (n - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        struct sdc_ckpt_piece *more = sdc__realloc(e->pieces, n ? n * 2 : 1, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the pieces of a tensor");
        e->pieces = more;
    }
    const unsigned rank = piece->begin ? e->desc.rank : 0;
    uint64_t *pool = sdc__alloc(2 * (size_t)piece->n_dims + 2 * (size_t)rank + 1, sizeof *pool);
    if (!pool)
        return SDC_NOMEM(err, "the pieces of a tensor");
    struct sdc_ckpt_piece *p = &e->pieces[e->n_pieces++];
    *p = *piece;
    p->dims = put_array(&pool, piece->dims, piece->n_dims); /* first: the block's address */
    p->strides = put_array(&pool, piece->strides, piece->n_dims);
    p->begin = piece->begin ? put_array(&pool, piece->begin, rank) : NULL;
    p->size = piece->begin ? put_array(&pool, piece->size, rank) : NULL;
    return SDC_OK;
}

enum sdc_status sdc__entry_contiguous(struct sdc_ckpt_entry *e, unsigned file, uint64_t offset,
                                      struct sdc_error *err) {
    const uint64_t stride = sdc_dtype_bits(e->desc.dtype), n = e->desc.n_elems;
    if (offset > UINT64_MAX / 8)
        return SDC_ERR_AT(err, SDC_INVALID, offset, "tensor %s: truncated, or out of bounds",
                          e->name);
    struct sdc_ckpt_piece piece = {
        .file = file, .bit = offset * 8, .n_dims = 1, .dims = &n, .strides = &stride};
    return sdc__entry_piece(e, &piece, err);
}

void sdc__entry_release(struct sdc_ckpt_entry *e) {
    for (size_t i = 0; i < e->n_aliases; i++)
        sdc__free(e->aliases[i]);
    sdc__free(e->aliases);
    for (size_t i = 0; i < e->n_pieces; i++)
        sdc__free((uint64_t *)(uintptr_t)e->pieces[i].dims);
    sdc__free(e->pieces);
    sdc__layout_cells_free(e->cells);
    sdc__free(e->name);
    sdc__free(e->dtype_text);
    sdc__free(e->locked);
    sdc__free(e->shared);
    sdc__free(e->recoded);
    sdc__free(e->storage);
    sdc__free(e->shape);
    sdc__free(e->layout);
    *e = (struct sdc_ckpt_entry){0};
}
