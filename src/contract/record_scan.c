/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading lines of changes as they are written here, many of them. What was understood is written
 * again and compared with the line: so nothing can be read here that says something else, and
 * whatever differs, in one blank or in a key, is left to the table of fields.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "contract/choice_text.h"
#include "contract/record_line.h"

struct scan {
    const char *at, *end;
};

static bool literal(struct scan *s, const char *text, size_t len) {
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, text, len) != 0)
        return false;
    s->at += len;
    return true;
}

#define SAW(s, text) literal((s), (text), sizeof(text) - 1)

/* Up to the next quote, which is passed over. */
static bool quoted(struct scan *s, const char **text, size_t *len) {
    const char *quote = memchr(s->at, '"', (size_t)(s->end - s->at));
    if (!quote)
        return false;
    *text = s->at;
    *len = (size_t)(quote - s->at);
    s->at = quote + 1;
    return true;
}

static bool number(struct scan *s, uint64_t *value) {
    const bool in_quotes = SAW(s, "\"");
    const char *first = s->at;
    *value = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*s->at - '0'), value))
            return false;
    return s->at > first && (!in_quotes || SAW(s, "\""));
}

/* The number of the word that is quoted next. */
static bool word(struct scan *s, const char *(*name)(int i), int n, int *number_of_it) {
    const char *text;
    size_t len;
    if (!quoted(s, &text, &len))
        return false;
    for (int i = 0; i < n; i++) {
        const char *candidate = name(i);
        if (strlen(candidate) == len && memcmp(candidate, text, len) == 0) {
            *number_of_it = i;
            return true;
        }
    }
    return false;
}

static const char *dtype_word(int i) {
    return sdc_dtype_name((enum sdc_dtype)i);
}

static const char *part_word(int i) {
    return sdc_part_name((enum sdc_part)i);
}

static const char *role_word(int i) {
    return sdc_role_name((enum sdc_role)i);
}

static const char *op_word(int i) {
    return sdc__op_words[i];
}

static bool bits_of(struct scan *s, uint64_t *bits) {
    uint64_t bit;
    *bits = 0;
    if (SAW(s, "]"))
        return true;
    do {
        if (!number(s, &bit) || bit > 63)
            return false;
        *bits |= (uint64_t)1 << bit;
    } while (SAW(s, ","));
    return SAW(s, "]");
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool bytes_of(struct scan *s, const struct sdc_record_change *c, uint64_t *raw) {
    unsigned char bytes[8];
    const unsigned size = sdc_dtype_bytes(c->dtype);
    if ((size_t)(s->end - s->at) < 2 * size)
        return false;
    for (unsigned i = 0; i < size; i++) {
        int high = digit(s->at[2 * i]), low = digit(s->at[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    s->at += 2 * size;
    *raw = sdc_num_load(c->dtype, bytes, c->big_endian);
    return true;
}

/* Pieces of the line that get memory of their own. */
struct pieces {
    const char *tensor, *index, *file;
    size_t tensor_len, index_len, file_len;
    bool has_shape;
    uint64_t shape[SDC_MAX_RANK];
    size_t n_shape;
};

static bool shape_of(struct scan *s, struct pieces *t) {
    if (SAW(s, "]"))
        return true;
    do {
        if (t->n_shape == SDC_MAX_RANK || !number(s, &t->shape[t->n_shape++]))
            return false;
    } while (SAW(s, ","));
    return SAW(s, "]");
}

static bool scan_what(struct scan *s, struct sdc_record_change *c, struct pieces *t) {
    int dtype, part, role;
    if (!SAW(s, "{\"type\":\"change\",\"tensor\":\"") || !quoted(s, &t->tensor, &t->tensor_len) ||
        !SAW(s, ",\"dtype\":\"") || !word(s, dtype_word, SDC_DTYPE_COUNT, &dtype) ||
        !SAW(s, ",\"part\":\"") || !word(s, part_word, SDC_PART_COUNT, &part) ||
        !SAW(s, ",\"role\":\"") || !word(s, role_word, SDC_ROLE_COUNT, &role) ||
        !SAW(s, ",\"elem\":") || !number(s, &c->elem) || !SAW(s, ",\"index\":\"") ||
        !quoted(s, &t->index, &t->index_len))
        return false;
    c->dtype = (enum sdc_dtype)dtype;
    c->part = (enum sdc_part)part;
    c->role = (enum sdc_role)role;
    return true;
}

static bool scan_place(struct scan *s, struct sdc_record_change *c, struct pieces *t) {
    uint64_t shift = 0;
    t->has_shape = SAW(s, ",\"shape\":[");
    if (t->has_shape && !shape_of(s, t))
        return false;
    if (SAW(s, ",\"file\":\"") && !quoted(s, &t->file, &t->file_len))
        return false;
    if (!SAW(s, ",\"offset\":") || !number(s, &c->offset) ||
        (SAW(s, ",\"shift\":") && (!number(s, &shift) || shift > 7)))
        return false;
    c->shift = (unsigned)shift;
    c->big_endian = SAW(s, ",\"big_endian\":true");
    if (!c->big_endian && !SAW(s, ",\"big_endian\":false"))
        return false;
    c->recoded = SAW(s, ",\"recoded\":true");
    return true;
}

static bool scan_fault(struct scan *s, struct sdc_record_change *c) {
    int op;
    if (!SAW(s, ",\"op\":\"") || !word(s, op_word, SDC_OP_COUNT, &op) || !SAW(s, ",\"bits\":[") ||
        !bits_of(s, &c->bits))
        return false;
    c->op = (enum sdc_op)op;
    if (c->op == SDC_OP_SWAP && (!SAW(s, ",\"other\":") || !number(s, &c->other)))
        return false;
    return SAW(s, ",\"old\":\"") && bytes_of(s, c, &c->old_raw) && SAW(s, "\",\"new\":\"") &&
           bytes_of(s, c, &c->new_raw);
}

static void release(struct sdc_record_change *c) {
    sdc__free(c->tensor);
    sdc__free(c->index);
    sdc__free(c->shape);
    sdc__free(c->file);
}

bool sdc__record_change_scan(const char *line, size_t len, struct sdc_buf *scratch,
                             struct sdc_record_change *c) {
    struct scan s = {line, line + len};
    struct pieces t;
    t.file = NULL;
    t.n_shape = 0;
    struct sdc_record_change got = {0};
    if (!scan_what(&s, &got, &t) || !scan_place(&s, &got, &t) || !scan_fault(&s, &got))
        return false;
    got.tensor = sdc__strndup(t.tensor, t.tensor_len);
    got.index = sdc__strndup(t.index, t.index_len);
    got.file = t.file ? sdc__strndup(t.file, t.file_len) : NULL;
    got.shape = t.has_shape ? sdc__calloc(t.n_shape, sizeof *got.shape) : NULL;
    got.n_shape = got.shape ? t.n_shape : 0;
    for (size_t d = 0; d < got.n_shape; d++)
        got.shape[d] = t.shape[d];
    sdc__buf_clear(scratch);
    if (!got.tensor || !got.index || (t.file && !got.file) || (t.has_shape && !got.shape) ||
        sdc__record_change_append(&got, scratch, NULL) != SDC_OK || scratch->len != len ||
        memcmp(scratch->data, line, len) != 0) {
        release(&got);
        return false;
    }
    *c = got;
    return true;
}
