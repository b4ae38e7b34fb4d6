/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/limits.h"

/* A struct sdc_json is a json_t under another name, so that no other file sees jansson. */
static const json_t *node(const struct sdc_json *v) {
    return (const json_t *)(const void *)v;
}

enum sdc_status sdc__json_parse(const char *text, size_t len, const char *what,
                                struct sdc_json **root, struct sdc_error *err) {
    if (len > SDC_MAX_JSON)
        return SDC_ERR(err, SDC_LIMIT, "%s: JSON of %zu bytes, the limit is %u", what, len,
                       SDC_MAX_JSON);
    json_error_t e;
    json_t *tree = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!tree) {
        if (json_error_code(&e) == json_error_out_of_memory)
            return SDC_NOMEM(err, what);
        return SDC_ERR_AT(err, SDC_INVALID, e.position, "%s: not valid JSON: line %d column %d: %s",
                          what, e.line, e.column, e.text);
    }
    *root = (struct sdc_json *)(void *)tree;
    return SDC_OK;
}

void sdc__json_free(struct sdc_json *root) {
    json_decref((json_t *)(void *)root);
}

enum sdc_json_type sdc__json_type(const struct sdc_json *v) {
    switch (json_typeof(node(v))) {
    case JSON_OBJECT:
        return SDC_JSON_OBJECT;
    case JSON_ARRAY:
        return SDC_JSON_ARRAY;
    case JSON_STRING:
        return SDC_JSON_STRING;
    case JSON_INTEGER:
        return SDC_JSON_INT;
    case JSON_REAL:
        return SDC_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return SDC_JSON_BOOL;
    default:
        return SDC_JSON_NULL;
    }
}

const char *sdc__json_type_name(const struct sdc_json *v) {
    static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                        "a string", "an array",  "an object"};
    return v ? names[sdc__json_type(v)] : "nothing";
}

size_t sdc__json_count(const struct sdc_json *v) {
    return json_is_array(node(v)) ? json_array_size(node(v)) : json_object_size(node(v));
}

const struct sdc_json *sdc__json_at(const struct sdc_json *array, size_t i) {
    return (const struct sdc_json *)(const void *)json_array_get(node(array), i);
}

const struct sdc_json *sdc__json_get(const struct sdc_json *object, const char *key) {
    return (const struct sdc_json *)(const void *)json_object_get(node(object), key);
}

const char *sdc__json_next_key(const struct sdc_json *object, const char *key) {
    json_t *o =
        (json_t *)(uintptr_t)node(object); /* iteration takes a mutable pointer, changes nothing */
    void *it = key ? json_object_iter_next(o, json_object_key_to_iter(key)) : json_object_iter(o);
    return it ? json_object_iter_key(it) : NULL;
}

static enum sdc_status wrong_type(const struct sdc_json *v, const char *where, const char *wanted,
                                  struct sdc_error *err) {
    return SDC_ERR(err, SDC_INVALID, "%s: expected %s, found %s", where, wanted,
                   sdc__json_type_name(v));
}

enum sdc_status sdc__json_as_bool(const struct sdc_json *v, const char *where, bool *out,
                                  struct sdc_error *err) {
    if (!v || !json_is_boolean(node(v)))
        return wrong_type(v, where, "true or false", err);
    *out = json_is_true(node(v));
    return SDC_OK;
}

enum sdc_status sdc__json_as_i64(const struct sdc_json *v, const char *where, int64_t *out,
                                 struct sdc_error *err) {
    if (!v || !json_is_integer(node(v)))
        return wrong_type(v, where, "an integer", err);
    *out = json_integer_value(node(v));
    return SDC_OK;
}

enum sdc_status sdc__json_as_u64(const struct sdc_json *v, const char *where, uint64_t *out,
                                 struct sdc_error *err) {
    unsigned long long value;
    if (v && json_is_string(node(v)) && sdc__parse_u64(json_string_value(node(v)), &value)) {
        *out = value;
        return SDC_OK;
    }
    if (v && json_is_integer(node(v)) && json_integer_value(node(v)) < 0)
        return SDC_ERR(err, SDC_INVALID, "%s: expected an integer of at least 0, found %lld", where,
                       (long long)json_integer_value(node(v)));
    if (!v || !json_is_integer(node(v)))
        return wrong_type(v, where, "an integer of at least 0", err);
    *out = (uint64_t)json_integer_value(node(v));
    return SDC_OK;
}

enum sdc_status sdc__json_as_f64(const struct sdc_json *v, const char *where, double *out,
                                 struct sdc_error *err) {
    if (v && json_is_number(node(v))) {
        *out = json_number_value(node(v));
        return SDC_OK;
    }
    const char *s = v ? json_string_value(node(v)) : NULL;
    if (s && strcmp(s, "nan") == 0)
        *out = (double)NAN;
    else if (s && strcmp(s, "inf") == 0)
        *out = (double)INFINITY;
    else if (s && strcmp(s, "-inf") == 0)
        *out = -(double)INFINITY;
    else
        return wrong_type(v, where, "a number", err);
    return SDC_OK;
}

enum sdc_status sdc__json_as_str(const struct sdc_json *v, const char *where, const char **out,
                                 struct sdc_error *err) {
    if (!v || !json_is_string(node(v)))
        return wrong_type(v, where, "a string", err);
    *out = json_string_value(node(v));
    return SDC_OK;
}

enum sdc_status sdc__json_only(const struct sdc_json *v, const char *where,
                               const char *const keys[], size_t n, struct sdc_error *err) {
    if (!v || !json_is_object(node(v)))
        return wrong_type(v, where, "an object", err);
    for (const char *key = sdc__json_next_key(v, NULL); key; key = sdc__json_next_key(v, key)) {
        size_t i = 0;
        while (i < n && strcmp(keys[i], key) != 0)
            i++;
        if (i < n)
            continue;
        const char *near = sdc__nearest(key, keys, n);
        return SDC_ERR(err, SDC_INVALID, "%s: unknown key '%s'%s%s%s", where, key,
                       near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    }
    return SDC_OK;
}

/* ---- writer ---- */

struct sdc_jw sdc__jw(struct sdc_buf *out) {
    return (struct sdc_jw){.out = out};
}

static void value_start(struct sdc_jw *w) {
    if (w->comma)
        sdc__buf_putc(w->out, ',');
    w->comma = true;
}

static void open_bracket(struct sdc_jw *w, char c) {
    value_start(w);
    sdc__buf_putc(w->out, c);
    w->comma = false;
}

static void close_bracket(struct sdc_jw *w, char c) {
    sdc__buf_putc(w->out, c);
    w->comma = true;
}

void sdc__jw_obj(struct sdc_jw *w) {
    open_bracket(w, '{');
}

void sdc__jw_obj_end(struct sdc_jw *w) {
    close_bracket(w, '}');
}

void sdc__jw_arr(struct sdc_jw *w) {
    open_bracket(w, '[');
}

void sdc__jw_arr_end(struct sdc_jw *w) {
    close_bracket(w, ']');
}

/* Length of the UTF-8 sequence at s (with end as its bound), 0 if it is not valid. */
static size_t utf8_len(const unsigned char *s, const unsigned char *end) {
    size_t left = (size_t)(end - s);
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        return left >= 2 && (s[1] & 0xC0) == 0x80 ? 2 : 0;
    if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        if (left < 3 || (s[1] & 0xC0) != 0x80 || (s[2] & 0xC0) != 0x80)
            return 0;
        if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))
            return 0;
        return 3;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        if (left < 4 || (s[1] & 0xC0) != 0x80 || (s[2] & 0xC0) != 0x80 || (s[3] & 0xC0) != 0x80)
            return 0;
        if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
            return 0;
        return 4;
    }
    return 0;
}

static void put_string(struct sdc_buf *out, const char *text) {
    const unsigned char *s = (const unsigned char *)text, *end = s + strlen(text);
    sdc__buf_putc(out, '"');
    while (s < end) {
        size_t len = utf8_len(s, end);
        if (len == 0) {
            sdc__buf_puts(out, "\xEF\xBF\xBD");
            s++;
        } else if (*s == '"' || *s == '\\') {
            sdc__buf_putc(out, '\\');
            sdc__buf_putc(out, (char)*s++);
        } else if (*s < 0x20) {
            sdc__buf_printf(out, "\\u%04x", *s++);
        } else {
            sdc__buf_append(out, s, len);
            s += len;
        }
    }
    sdc__buf_putc(out, '"');
}

void sdc__jw_key(struct sdc_jw *w, const char *key) {
    value_start(w);
    put_string(w->out, key);
    sdc__buf_putc(w->out, ':');
    w->comma = false;
}

void sdc__jw_str(struct sdc_jw *w, const char *s) {
    value_start(w);
    if (s)
        put_string(w->out, s);
    else
        sdc__buf_puts(w->out, "null");
}

void sdc__jw_i64(struct sdc_jw *w, int64_t v) {
    value_start(w);
    sdc__buf_printf(w->out, "%lld", (long long)v);
}

void sdc__jw_u64(struct sdc_jw *w, uint64_t v) {
    value_start(w);
    sdc__buf_printf(w->out, v > INT64_MAX ? "\"%llu\"" : "%llu", (unsigned long long)v);
}

void sdc__jw_f64(struct sdc_jw *w, double v) {
    value_start(w);
    if (isnan(v)) {
        sdc__buf_puts(w->out, "\"nan\"");
    } else if (isinf(v)) {
        sdc__buf_puts(w->out, v > 0 ? "\"inf\"" : "\"-inf\"");
    } else {
        /* the shortest of 15, 16, 17 digits that reads back to the same bits */
        char text[40];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, v);
            double back;
            if (digits == 17 || (sdc__parse_f64(text, &back) && memcmp(&back, &v, sizeof v) == 0))
                break;
        }
        sdc__buf_puts(w->out, text);
        if (!strpbrk(text, ".e"))
            sdc__buf_puts(w->out, ".0");
    }
}

void sdc__jw_bool(struct sdc_jw *w, bool v) {
    value_start(w);
    sdc__buf_puts(w->out, v ? "true" : "false");
}

void sdc__jw_null(struct sdc_jw *w) {
    value_start(w);
    sdc__buf_puts(w->out, "null");
}

void sdc__jw_kstr(struct sdc_jw *w, const char *key, const char *s) {
    sdc__jw_key(w, key);
    sdc__jw_str(w, s);
}

void sdc__jw_ki64(struct sdc_jw *w, const char *key, int64_t v) {
    sdc__jw_key(w, key);
    sdc__jw_i64(w, v);
}

void sdc__jw_ku64(struct sdc_jw *w, const char *key, uint64_t v) {
    sdc__jw_key(w, key);
    sdc__jw_u64(w, v);
}

void sdc__jw_kf64(struct sdc_jw *w, const char *key, double v) {
    sdc__jw_key(w, key);
    sdc__jw_f64(w, v);
}

void sdc__jw_kbool(struct sdc_jw *w, const char *key, bool v) {
    sdc__jw_key(w, key);
    sdc__jw_bool(w, v);
}

void sdc__json_library(char *text, size_t size) {
    snprintf(text, size, "jansson built %s, running %s", JANSSON_VERSION, jansson_version_str());
}
