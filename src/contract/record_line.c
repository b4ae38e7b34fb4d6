/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/record_line.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "contract/choice_text.h"
#include "num/shortest.h"

/* Longest parts of a line: the numbers of 64 bits, and everything that has a bound. */
#define ROOM      1024
#define SIZE_ROOM 23 /* of a shape: 20 digits, quotes, a comma */

struct line {
    char *at;
};

static void put(struct line *l, const char *text, size_t len) {
    memcpy(l->at, text, len);
    l->at += len;
}

#define PUT(l, literal) put((l), (literal), sizeof(literal) - 1)

static void put_text(struct line *l, const char *text) {
    put(l, text, strlen(text));
}

static void put_u64(struct line *l, uint64_t value) {
    const bool quoted = value > INT64_MAX; /* beyond what JSON parsers hold */
    if (quoted)
        *l->at++ = '"';
    l->at += sdc__u64_text(value, l->at);
    if (quoted)
        *l->at++ = '"';
}

/* A text that JSON writes as it is; its length, 0 where it is not that or is empty. */
static size_t plain(const char *text) {
    size_t n = 0;
    if (!text)
        return 0;
    for (; text[n]; n++)
        if ((unsigned char)text[n] < 0x20 || (unsigned char)text[n] >= 0x7f || text[n] == '"' ||
            text[n] == '\\')
            return 0;
    return n;
}

static void put_hex(struct line *l, const struct sdc_record_change *c, uint64_t raw) {
    static const char digits[] = "0123456789abcdef";
    const unsigned size = sdc_dtype_bytes(c->dtype);
    for (unsigned i = 0; i < size; i++) {
        unsigned byte = (unsigned)(raw >> 8 * (c->big_endian ? size - 1 - i : i)) & 0xff;
        *l->at++ = digits[byte >> 4];
        *l->at++ = digits[byte & 15];
    }
}

static bool put_value(struct line *l, enum sdc_dtype dtype, uint64_t raw) {
    struct sdc__decimal d;
    const unsigned bits = sdc_dtype_bits(dtype);
    const bool negative = raw >> (bits - 1) & 1;
    switch (sdc_dtype_kind(dtype)) {
    case SDC_KIND_SINT:
        if (negative)
            *l->at++ = '-';
        l->at += sdc__u64_text(negative ? (0 - raw) << (64 - bits) >> (64 - bits) : raw, l->at);
        return true;
    case SDC_KIND_UINT:
    case SDC_KIND_BOOL:
        if (raw > INT64_MAX) /* the table has its own word for these */
            return false;
        l->at += sdc__u64_text(raw, l->at);
        return true;
    case SDC_KIND_FLOAT:
        break;
    }
    switch (sdc_num_class(dtype, raw)) {
    case SDC_CLASS_NAN:
        PUT(l, "\"nan\"");
        return true;
    case SDC_CLASS_INF:
        put_text(l, negative ? "\"-inf\"" : "\"inf\"");
        return true;
    case SDC_CLASS_ZERO:
        put_text(l, negative ? "-0.0" : "0");
        return true;
    default:
        if (!sdc__num_decimal(dtype, raw, &d))
            return false;
        l->at += sdc__decimal_json(&d, l->at);
        return true;
    }
}

static bool put_values(struct line *l, const struct sdc_record_change *c) {
    PUT(l, "\",\"old_value\":");
    if (!put_value(l, c->dtype, c->old_raw))
        return false;
    PUT(l, ",\"new_value\":");
    return put_value(l, c->dtype, c->new_raw);
}

static void put_bits(struct line *l, uint64_t bits) {
    PUT(l, "[");
    for (uint64_t left = bits; left; left &= left - 1) {
        if (left != bits)
            *l->at++ = ',';
        l->at += sdc__u64_text((unsigned)__builtin_ctzll(left), l->at);
    }
    PUT(l, "]");
}

static void put_shape(struct line *l, const struct sdc_record_change *c) {
    if (!c->shape)
        return;
    PUT(l, ",\"shape\":[");
    for (size_t d = 0; d < c->n_shape; d++) {
        if (d > 0)
            *l->at++ = ',';
        put_u64(l, c->shape[d]);
    }
    PUT(l, "]");
}

static void put_place(struct line *l, const struct sdc_record_change *c, size_t file) {
    if (file > 0) {
        PUT(l, ",\"file\":\"");
        put(l, c->file, file);
        PUT(l, "\"");
    }
    PUT(l, ",\"offset\":");
    put_u64(l, c->offset);
    if (c->shift > 0) {
        PUT(l, ",\"shift\":");
        put_u64(l, c->shift);
    }
    put_text(l, c->big_endian ? ",\"big_endian\":true" : ",\"big_endian\":false");
    if (c->recoded)
        PUT(l, ",\"recoded\":true");
}

/* False where the table has to: names that need escapes, weights, values that need care. */
static bool append_plain(const struct sdc_record_change *c, struct sdc_buf *out) {
    const size_t tensor = plain(c->tensor), index = plain(c->index), file = plain(c->file);
    if (!tensor || !index || (c->file && !file) || c->weight != 0 || c->shift > 7 ||
        c->n_shape > SDC_MAX_RANK || (unsigned)c->dtype >= SDC_DTYPE_COUNT ||
        (unsigned)c->part >= SDC_PART_COUNT || (unsigned)c->role >= SDC_ROLE_COUNT ||
        (unsigned)c->op >= SDC_OP_COUNT)
        return false;
    struct line l = {sdc__buf_room(out, tensor + index + file + SIZE_ROOM * c->n_shape + ROOM)};
    if (!l.at)
        return true; /* the buffer has failed, and says so */
    PUT(&l, "{\"type\":\"change\",\"tensor\":\"");
    put(&l, c->tensor, tensor);
    PUT(&l, "\",\"dtype\":\"");
    put_text(&l, sdc_dtype_name(c->dtype));
    PUT(&l, "\",\"part\":\"");
    put_text(&l, sdc_part_name(c->part));
    PUT(&l, "\",\"role\":\"");
    put_text(&l, sdc_role_name(c->role));
    PUT(&l, "\",\"elem\":");
    put_u64(&l, c->elem);
    PUT(&l, ",\"index\":\"");
    put(&l, c->index, index);
    PUT(&l, "\"");
    put_shape(&l, c);
    put_place(&l, c, file);
    PUT(&l, ",\"op\":\"");
    put_text(&l, sdc__op_words[c->op]);
    PUT(&l, "\",\"bits\":");
    put_bits(&l, c->bits);
    if (c->op == SDC_OP_SWAP) {
        PUT(&l, ",\"other\":");
        put_u64(&l, c->other);
    }
    PUT(&l, ",\"old\":\"");
    put_hex(&l, c, c->old_raw);
    PUT(&l, "\",\"new\":\"");
    put_hex(&l, c, c->new_raw);
    if (!put_values(&l, c)) {
        out->data[out->len] = '\0';
        return false;
    }
    PUT(&l, "}\n");
    sdc__buf_took(out, (size_t)(l.at - (out->data + out->len)));
    return true;
}

enum sdc_status sdc__record_change_append(const struct sdc_record_change *c, struct sdc_buf *out,
                                          struct sdc_error *err) {
    if (!append_plain(c, out)) {
        char *line;
        SDC_TRY(sdc__record_change_by_table(c, &line, err));
        sdc__buf_puts(out, line);
        sdc_text_free(line);
    }
    return out->failed ? SDC_NOMEM(err, "the record") : SDC_OK;
}

enum sdc_status sdc_record_change_line(const struct sdc_record_change *c, char **line,
                                       struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    enum sdc_status st = sdc__record_change_append(c, &b, err);
    char *text = NULL;
    if (st == SDC_OK)
        text = sdc__buf_take(&b);
    if (st == SDC_OK && !text)
        st = SDC_NOMEM(err, "the record");
    if (st == SDC_OK)
        *line = text;
    else
        sdc__buf_release(&b);
    return st;
}
