/* SPDX-License-Identifier: Apache-2.0 */
#include "contract/choice_text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "sdc/num.h"

#define USAGE(...) SDC_ERR(err, SDC_USAGE, __VA_ARGS__)

/* ---- bits ---- */

static const struct {
    const char *word;
    enum sdc_bits_kind kind;
} fields[] = {
    {"any", SDC_BITS_ANY},
    {"sign", SDC_BITS_SIGN},
    {"exponent", SDC_BITS_EXPONENT},
    {"mantissa", SDC_BITS_MANTISSA},
    {"top-exponent", SDC_BITS_TOP_EXPONENT},
};

#define N_FIELDS (sizeof fields / sizeof fields[0])

/* Decimal digits up to a bit number; NULL if there are none or it is over 63. */
static const char *bit_number(const char *s, unsigned *number) {
    if (!isdigit((unsigned char)*s))
        return NULL;
    for (*number = 0; isdigit((unsigned char)*s); s++) {
        *number = *number * 10 + (unsigned)(*s - '0');
        if (*number > 63)
            return NULL;
    }
    return s;
}

/* One item of len bytes at s. */
static bool parse_item(const char *s, size_t len, struct sdc_bits_item *item) {
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strlen(fields[i].word) == len && memcmp(fields[i].word, s, len) == 0) {
            *item = (struct sdc_bits_item){fields[i].kind, 0, 0};
            return true;
        }
    }
    if (len < 5 || (memcmp(s, "lsb:", 4) != 0 && memcmp(s, "msb:", 4) != 0))
        return false;
    item->kind = s[0] == 'l' ? SDC_BITS_LSB : SDC_BITS_MSB;
    const char *end = bit_number(s + 4, &item->first);
    item->last = item->first;
    if (end && *end == '-')
        end = bit_number(end + 1, &item->last);
    return end == s + len && item->first <= item->last;
}

enum sdc_status sdc_bits_parse(const char *text, struct sdc_bits_item items[], size_t *n_items,
                               struct sdc_error *err) {
    size_t n = 0;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        if (n == SDC_MAX_BITS_ITEMS)
            return USAGE("bits: more than %d items", SDC_MAX_BITS_ITEMS);
        if (!parse_item(p, len, &items[n]))
            return USAGE("bits: expected any, sign, exponent, mantissa, top-exponent, lsb:N, "
                         "lsb:N-M, msb:N or msb:N-M with 0 to 63, found '%.*s'",
                         (int)(len < 60 ? len : 60), p);
        n++;
        p += len;
        if (!*p)
            break;
    }
    *n_items = n;
    return SDC_OK;
}

void sdc__bits_text(const struct sdc_bits_item items[], size_t n, struct sdc_buf *out) {
    if (n == 0)
        sdc__buf_puts(out, "any");
    for (size_t i = 0; i < n; i++) {
        const struct sdc_bits_item *item = &items[i];
        if (i)
            sdc__buf_putc(out, ',');
        if (item->kind != SDC_BITS_LSB && item->kind != SDC_BITS_MSB) {
            for (size_t k = 0; k < N_FIELDS; k++)
                if (fields[k].kind == item->kind)
                    sdc__buf_puts(out, fields[k].word);
            continue;
        }
        sdc__buf_printf(out, "%s:%u", item->kind == SDC_BITS_LSB ? "lsb" : "msb", item->first);
        if (item->last != item->first)
            sdc__buf_printf(out, "-%u", item->last);
    }
}

/* Bits first to last, as far as the width reaches. */
static uint64_t range_mask(unsigned first, unsigned last, unsigned width) {
    uint64_t mask = 0;
    for (unsigned b = first; b <= last && b < width; b++)
        mask |= (uint64_t)1 << b;
    return mask;
}

static uint64_t item_mask(const struct sdc_bits_item *item, enum sdc_dtype dtype) {
    unsigned width = sdc_dtype_bits(dtype);
    int top = sdc_num_top_exponent_bit(dtype);
    switch (item->kind) {
    case SDC_BITS_ANY:
        return range_mask(0, 63, width);
    case SDC_BITS_SIGN:
        return sdc_num_field_mask(dtype, SDC_FIELD_SIGN);
    case SDC_BITS_EXPONENT:
        return sdc_num_field_mask(dtype, SDC_FIELD_EXPONENT);
    case SDC_BITS_MANTISSA:
        return sdc_num_field_mask(dtype, SDC_FIELD_MANTISSA);
    case SDC_BITS_TOP_EXPONENT:
        return top < 0 ? 0 : (uint64_t)1 << top;
    case SDC_BITS_LSB:
        return range_mask(item->first, item->last, width);
    case SDC_BITS_MSB:
        if (item->first >= width)
            return 0;
        return range_mask(item->last < width ? width - 1 - item->last : 0, width - 1 - item->first,
                          width);
    }
    return 0;
}

uint64_t sdc_bits_mask(const struct sdc_bits_item items[], size_t n_items, enum sdc_dtype dtype) {
    struct sdc_bits_item any = {SDC_BITS_ANY, 0, 0};
    uint64_t mask = n_items ? 0 : item_mask(&any, dtype);
    for (size_t i = 0; i < n_items; i++)
        mask |= item_mask(&items[i], dtype);
    return mask;
}

/* ---- sites ---- */

/* Where the index begins in name[0 .. len): the '[' of a last "[1,2]", or len without one. */
static size_t index_start(const char *name, size_t len) {
    if (len == 0 || name[len - 1] != ']')
        return len;
    size_t i = len - 1;
    while (i > 0 && (isdigit((unsigned char)name[i - 1]) || name[i - 1] == ','))
        i--;
    return i > 0 && name[i - 1] == '[' ? i - 1 : len;
}

static enum sdc_status parse_index(const char *text, const char *s, struct sdc_at *at,
                                   struct sdc_error *err) {
    for (s++; *s != ']'; s++) {
        uint64_t value = 0;
        if (!isdigit((unsigned char)*s))
            return USAGE("at: '%.200s': expected a number between the commas of the index", text);
        if (at->n_index == sizeof at->index / sizeof at->index[0])
            return USAGE("at: '%.200s': an index of more than %zu dimensions", text,
                         sizeof at->index / sizeof at->index[0]);
        for (; isdigit((unsigned char)*s); s++)
            if (__builtin_mul_overflow(value, 10u, &value) ||
                __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
                return USAGE("at: '%.200s': a number of the index is over 64 bits", text);
        at->index[at->n_index++] = value;
        if (*s == ']')
            break;
        if (s[1] == ']')
            return USAGE("at: '%.200s': expected a number after the last comma of the index", text);
    }
    return SDC_OK;
}

/* Does it begin like a bit, so that a mistake in it is not taken for a part of the name? */
static bool looks_like_bit(const char *s) {
    if (strncmp(s, "lsb:", 4) == 0 || strncmp(s, "msb:", 4) == 0)
        return true;
    for (size_t i = 0; i < N_FIELDS; i++)
        if (strcmp(s, fields[i].word) == 0)
            return true;
    return false;
}

enum sdc_status sdc__at_parse(const char *text, struct sdc_at *at, struct sdc_error *err) {
    *at = (struct sdc_at){0};
    size_t len = strlen(text);
    const char *mark = strrchr(text, '@');
    if (mark &&
        (looks_like_bit(mark + 1) || (mark > text && mark[-1] == ']' && !strchr(mark, ']')))) {
        if (!parse_item(mark + 1, strlen(mark + 1), &at->bit) || at->bit.kind == SDC_BITS_ANY ||
            at->bit.kind == SDC_BITS_EXPONENT || at->bit.kind == SDC_BITS_MANTISSA ||
            at->bit.first != at->bit.last)
            return USAGE("at: '%.200s': expected one bit after @, lsb:N, msb:N, sign or "
                         "top-exponent, found '%.60s'",
                         text, mark + 1);
        at->has_bit = true;
        len = (size_t)(mark - text);
    }
    size_t name_len = index_start(text, len);
    if (name_len < len)
        SDC_TRY(parse_index(text, text + name_len, at, err));
    if (name_len == 0)
        return USAGE("at: '%.200s': expected TENSOR[i,j,...]@lsb:N, found no tensor name", text);
    at->tensor = sdc__strndup(text, name_len);
    return at->tensor ? SDC_OK : SDC_NOMEM(err, "a site");
}

void sdc__at_text(const struct sdc_at *at, struct sdc_buf *out) {
    sdc__buf_puts(out, at->tensor);
    sdc__buf_putc(out, '[');
    for (unsigned i = 0; i < at->n_index; i++)
        sdc__buf_printf(out, "%s%llu", i ? "," : "", (unsigned long long)at->index[i]);
    sdc__buf_putc(out, ']');
    if (at->has_bit) {
        sdc__buf_putc(out, '@');
        sdc__bits_text(&at->bit, 1, out);
    }
}

/* ---- JSON ---- */

static void write_list(struct sdc_jw *w, const char *key, char *const *items, size_t n) {
    sdc__jw_key(w, key);
    sdc__jw_arr(w);
    for (size_t i = 0; i < n; i++)
        sdc__jw_str(w, items[i]);
    sdc__jw_arr_end(w);
}

/* The words of a mask, in the order of their enum. */
#define WRITE_MASK(w, key, mask, n, name)                                                          \
    do {                                                                                           \
        sdc__jw_key((w), (key));                                                                   \
        sdc__jw_arr(w);                                                                            \
        for (int i_ = 0; i_ < (int)(n); i_++)                                                      \
            if ((mask) >> i_ & 1)                                                                  \
                sdc__jw_str((w), name(i_));                                                        \
        sdc__jw_arr_end(w);                                                                        \
    } while (0)

static const char *role_word(int i) {
    return sdc_role_name((enum sdc_role)i);
}

static const char *part_word(int i) {
    return sdc_part_name((enum sdc_part)i);
}

static const char *dtype_word(int i) {
    return sdc_dtype_name((enum sdc_dtype)i);
}

/* A text that is made in a buffer of its own, whose failure is the writer's. */
static void write_made(struct sdc_jw *w, struct sdc_buf *text) {
    if (text->failed || !text->data)
        w->out->failed = true;
    else
        sdc__jw_str(w, text->data);
    sdc__buf_release(text);
}

static void write_op(struct sdc_jw *w, const struct sdc_choice *c) {
    char number[48];
    uint64_t raw;
    struct sdc_buf text = SDC_BUF_INIT;
    memcpy(&raw, &c->value, sizeof raw);
    sdc_num_text(SDC_DTYPE_F64, raw, number, sizeof number);
    sdc__buf_puts(&text, sdc__op_words[c->op]);
    if (c->op == SDC_OP_VALUE || c->op == SDC_OP_SCALE)
        sdc__buf_printf(&text, "=%s", number);
    else if (c->op == SDC_OP_BURST || (c->op == SDC_OP_FLIP && c->count > 1))
        sdc__buf_printf(&text, "=%u", c->count);
    else if (c->op == SDC_OP_MASK)
        sdc__buf_printf(&text, "=%llx", (unsigned long long)c->mask);
    if (c->op == SDC_OP_MASK && c->mask_length)
        sdc__buf_printf(&text, "/%u", c->mask_length);
    sdc__jw_key(w, "op");
    write_made(w, &text);
}

static void write_rate(struct sdc_jw *w, const struct sdc_choice *c) {
    sdc__jw_key(w, "rate");
    if (c->mode == SDC_CHOICE_RATE ||
        (c->mode == SDC_CHOICE_FLIPS && c->sample == SDC_SAMPLE_ATTEMPTS))
        sdc__jw_f64(w, c->rate);
    else
        sdc__jw_null(w);
}

static void write_not_result(struct sdc_jw *w, const struct sdc_choice *c) {
    bool nan = c->not_result >> SDC_CLASS_NAN & 1, inf = c->not_result >> SDC_CLASS_INF & 1;
    sdc__jw_kstr(w, "not_result", nan ? inf ? "nan,inf" : "nan" : inf ? "inf" : "none");
}

void sdc__choice_write(const struct sdc_choice *c, struct sdc_jw *w) {
    struct sdc_buf text = SDC_BUF_INIT;
    sdc__jw_obj(w);
    sdc__jw_key(w, "at");
    sdc__jw_arr(w);
    for (size_t i = 0; i < c->n_at; i++) {
        sdc__at_text(&c->at[i], &text);
        write_made(w, &text);
    }
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "bits");
    sdc__bits_text(c->bits, c->n_bits, &text);
    write_made(w, &text);
    sdc__jw_kstr(w, "checksum", sdc__checksum_words[c->checksum]);
    sdc__jw_kstr(w, "compat", sdc__compat_words[c->compat]);
    WRITE_MASK(w, "dtype", c->dtypes, SDC_DTYPE_COUNT, dtype_word);
    sdc__jw_kbool(w, "exhaustive", c->mode == SDC_CHOICE_EXHAUSTIVE);
    sdc__jw_key(w, "flips");
    if (c->mode == SDC_CHOICE_FLIPS)
        sdc__jw_u64(w, c->flips);
    else
        sdc__jw_null(w);
    write_not_result(w, c);
    write_list(w, "not_tensors", c->not_tensors, c->n_not_tensors);
    write_op(w, c);
    WRITE_MASK(w, "part", c->parts, SDC_PART_NONE, part_word);
    write_rate(w, c);
    WRITE_MASK(w, "role", c->roles, SDC_ROLE_COUNT, role_word);
    sdc__jw_kstr(w, "sample", sdc__sample_words[c->sample]);
    write_list(w, "tensors", c->tensors, c->n_tensors);
    sdc__jw_obj_end(w);
}

enum sdc_status sdc_choice_to_json(const struct sdc_choice *c, char **json, struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    sdc__choice_write(c, &w);
    char *text = sdc__buf_take(&b);
    if (!text)
        return SDC_NOMEM(err, "a fault choice");
    *json = text;
    return SDC_OK;
}

/* Every value of the JSON form is a word or a list of words of sdc_choice_set. */
static enum sdc_status read_word(struct sdc_choice *c, const char *key, const struct sdc_json *v,
                                 const char *where, struct sdc_error *err) {
    const char *word;
    char place[256];
    snprintf(place, sizeof place, "%.200s: %.40s", where, key);
    SDC_TRY(sdc__json_as_str(v, place, &word, err));
    enum sdc_status st = sdc_choice_set(c, key, word, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%.200s", where);
    return st;
}

static enum sdc_status read_key(struct sdc_choice *c, const char *key, const struct sdc_json *v,
                                const char *where, struct sdc_error *err) {
    char place[256];
    snprintf(place, sizeof place, "%.200s: %.40s", where, key);
    if (strcmp(key, "exhaustive") == 0) {
        bool on;
        SDC_TRY(sdc__json_as_bool(v, place, &on, err));
        return sdc_choice_set(c, key, on ? "true" : "false", err);
    }
    if (strcmp(key, "flips") == 0)
        return sdc__json_type(v) == SDC_JSON_NULL ? SDC_OK
                                                  : sdc__json_as_u64(v, place, &c->flips, err);
    if (strcmp(key, "rate") == 0) {
        double rate;
        if (sdc__json_type(v) == SDC_JSON_NULL)
            return SDC_OK;
        SDC_TRY(sdc__json_as_f64(v, place, &rate, err));
        return sdc__choice_set_rate(c, rate, err);
    }
    static const char *const words[] = {"bits", "checksum", "compat", "not_result", "op", "sample"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(key, words[i]) == 0)
            return read_word(c, key, v, where, err);
    if (sdc__json_type(v) != SDC_JSON_ARRAY)
        return SDC_ERR(err, SDC_INVALID, "%s: expected an array, found %s", place,
                       sdc__json_type_name(v));
    for (size_t i = 0; i < sdc__json_count(v); i++)
        SDC_TRY(read_word(c, key, sdc__json_at(v, i), where, err));
    return SDC_OK;
}

/* flips is null exactly where no number is drawn. */
static enum sdc_status check_mode(const struct sdc_choice *c, const struct sdc_json *v,
                                  const char *where, struct sdc_error *err) {
    const struct sdc_json *flips = sdc__json_get(v, "flips");
    bool none = flips && sdc__json_type(flips) == SDC_JSON_NULL;
    if (c->mode == SDC_CHOICE_FLIPS && none)
        return SDC_ERR(err, SDC_INVALID, "%s: flips: expected a number, found null", where);
    if (c->mode != SDC_CHOICE_FLIPS && flips && !none)
        return SDC_ERR(err, SDC_INVALID, "%s: flips: expected null beside %s", where,
                       c->mode == SDC_CHOICE_AT     ? "at"
                       : c->mode == SDC_CHOICE_RATE ? "rate"
                                                    : "exhaustive");
    return SDC_OK;
}

enum sdc_status sdc__choice_read(const struct sdc_json *v, const char *where, struct sdc_choice *c,
                                 struct sdc_error *err) {
    static const char *const keys[] = {
        "at",          "bits", "checksum", "compat", "dtype", "exhaustive", "flips",  "not_result",
        "not_tensors", "op",   "part",     "rate",   "role",  "sample",     "tensors"};
    sdc_choice_init(c);
    SDC_TRY(sdc__json_only(v, where, keys, sizeof keys / sizeof keys[0], err));
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && st == SDC_OK; i++) {
        const struct sdc_json *value = sdc__json_get(v, keys[i]);
        if (value)
            st = read_key(c, keys[i], value, where, err);
    }
    if (st == SDC_OK)
        st = check_mode(c, v, where, err);
    /* what every text says is not what somebody asked for */
    c->flips_given = c->sample_given = c->rate_given = false;
    if (st == SDC_OK) {
        st = sdc_choice_check(c, err);
        if (st != SDC_OK)
            sdc_error_prefix(err, "%.200s", where);
    }
    if (st == SDC_OK)
        return SDC_OK;
    sdc_choice_release(c);
    if (st == SDC_USAGE) { /* it is a text that is wrong, not a call */
        st = SDC_INVALID;
        if (err)
            err->status = st;
    }
    return st;
}

enum sdc_status sdc_choice_from_json(const char *json, size_t len, struct sdc_choice *c,
                                     struct sdc_error *err) {
    struct sdc_json *root;
    SDC_TRY(sdc__json_parse(json, len, "fault choice", &root, err));
    enum sdc_status st = sdc__choice_read(root, "fault choice", c, err);
    sdc__json_free(root);
    return st;
}
