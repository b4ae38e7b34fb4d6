/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a safetensors file, value by value: a tree of a million tensors takes more than a
 * gigabyte. What writers write (the three keys of a tensor, once each, plain numbers) is read here;
 * whatever else there is, valid or not, is cut out and left to the JSON reader, which is the judge
 * of it. So the two ways differ in speed alone.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "ckpt/fmt/safetensors.h"

#define DIGITS 18 /* always fit 63 bits */

struct text {
    const char *at, *end;
    const char *begin; /* of the header */
    const char *path;
};

static void blanks(struct text *t) {
    while (t->at < t->end && sdc__st_blank((unsigned char)*t->at))
        t->at++;
}

/* Takes this character, with blanks before and after it. */
static bool take(struct text *t, char c) {
    blanks(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    blanks(t);
    return true;
}

/* Takes a string of n bytes from *s on, without its quotes. *plain: it has neither escapes nor
 * control characters, so that it is what it says. False: it has no end. */
static bool take_string(struct text *t, const char **s, size_t *n, bool *plain) {
    blanks(t);
    if (t->at == t->end || *t->at != '"')
        return false;
    *s = ++t->at;
    *plain = true;
    for (; t->at < t->end && *t->at != '"'; t->at++) {
        if ((unsigned char)*t->at < 0x20)
            *plain = false;
        if (*t->at == '\\') {
            *plain = false;
            if (++t->at == t->end)
                return false;
        }
    }
    if (t->at == t->end)
        return false;
    *n = (size_t)(t->at++ - *s);
    return true;
}

static bool take_number(struct text *t, uint64_t *value) {
    const char *from = t->at;
    *value = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (t->at - from == DIGITS)
            return false;
        *value = *value * 10 + (uint64_t)(*t->at - '0');
    }
    return t->at > from && (*from != '0' || t->at == from + 1);
}

static bool take_numbers(struct text *t, uint64_t *values, unsigned max, unsigned *n) {
    *n = 0;
    if (!take(t, '['))
        return false;
    if (take(t, ']'))
        return true;
    do {
        if (*n == max || !take_number(t, &values[(*n)++]))
            return false;
    } while (take(t, ','));
    return take(t, ']');
}

/* Exactly the three keys of a tensor in any order. False: something else, t is then anywhere. */
static bool take_tensor(struct text *t, struct sdc_st_tensor *tensor) {
    uint64_t offsets[2];
    unsigned n, seen = 0;
    const char *s;
    size_t len;
    bool plain;
    if (!take(t, '{'))
        return false;
    do {
        if (!take_string(t, &s, &len, &plain) || !take(t, ':'))
            return false;
        unsigned key;
        if (len == 5 && memcmp(s, "dtype", 5) == 0) {
            key = 1;
            if (!take_string(t, &s, &len, &plain) || !plain || len >= sizeof tensor->dtype)
                return false;
            memcpy(tensor->dtype, s, len);
            tensor->dtype[len] = '\0';
            blanks(t);
        } else if (len == 5 && memcmp(s, "shape", 5) == 0) {
            key = 2;
            if (!take_numbers(t, tensor->shape, SDC_MAX_RANK, &tensor->rank))
                return false;
        } else if (len == 12 && memcmp(s, "data_offsets", 12) == 0) {
            key = 4;
            if (!take_numbers(t, offsets, 2, &n) || n != 2 || offsets[0] > offsets[1])
                return false;
            tensor->begin = offsets[0];
            tensor->end = offsets[1];
        } else {
            return false;
        }
        if (seen & key)
            return false;
        seen |= key;
    } while (take(t, ','));
    return seen == 7 && take(t, '}');
}

/* Goes behind the value at t->at, of which only the brackets are looked at. */
static bool skip_value(struct text *t) {
    size_t depth = 0, n;
    const char *s;
    bool plain;
    do {
        if (t->at == t->end)
            return false;
        if (*t->at == '"') {
            if (!take_string(t, &s, &n, &plain))
                return false;
        } else if (*t->at == '{' || *t->at == '[') {
            depth++;
            t->at++;
        } else if (*t->at == '}' || *t->at == ']') {
            if (depth == 0)
                return false;
            depth--;
            t->at++;
        } else if (*t->at == ',' && depth == 0) {
            return false;
        } else {
            t->at++;
        }
    } while (depth > 0 || (t->at < t->end && *t->at != ',' && *t->at != '}' && *t->at != ']'));
    return true;
}

static enum sdc_status broken(const struct text *t, const char *wanted, struct sdc_error *err) {
    size_t at = (size_t)(t->at - t->begin);
    return SDC_ERR_AT(err, SDC_INVALID, 8 + at,
                      "%s: not valid JSON at byte %zu of the header: expected %s%s", t->path, at,
                      wanted, t->at == t->end ? ", it ends there" : "");
}

/* The part of the header from `from` to `to` by the JSON reader. */
static enum sdc_status parse(const struct text *t, const char *from, const char *to,
                             struct sdc_json **v, struct sdc_error *err) {
    char *what = sdc__asprintf("%s: header from its byte %zu on", t->path, from - t->begin);
    if (!what)
        return SDC_NOMEM(err, t->path);
    enum sdc_status st = sdc__json_parse(from, (size_t)(to - from), what, v, err);
    sdc__free(what);
    return st;
}

/* A key of the outermost object; free it. */
static enum sdc_status get_key(struct text *t, char **key, struct sdc_error *err) {
    struct sdc_json *v = NULL;
    const char *s, *value;
    size_t n;
    bool plain;
    enum sdc_status st;
    *key = NULL;
    const struct text before = *t;
    if (!take_string(t, &s, &n, &plain))
        return broken(&before, "a name in quotes", err);
    if (plain) {
        *key = sdc__strndup(s, n);
    } else {
        SDC_TRY(parse(t, s - 1, t->at, &v, err));
        SDC_TRY_OUT(st, sdc__json_as_str(v, t->path, &value, err));
        *key = sdc__strdup(value);
    }
    st = *key ? SDC_OK : SDC_NOMEM(err, t->path);
out:
    sdc__json_free(v);
    return st;
}

static enum sdc_status member(struct text *t, sdc__st_visit visit, void *user,
                              struct sdc_error *err) {
    struct sdc_st_tensor tensor;
    struct sdc_json *v = NULL;
    char *key = NULL;
    enum sdc_status st;
    SDC_TRY(get_key(t, &key, err));
    if (!take(t, ':')) {
        st = broken(t, "':'", err);
        goto out;
    }
    const struct text before = *t;
    if (take_tensor(t, &tensor)) {
        st = visit(user, key, &tensor, NULL, err);
        goto out;
    }
    *t = before;
    if (!skip_value(t)) {
        st = broken(t, "a value", err);
        goto out;
    }
    SDC_TRY_OUT(st, parse(t, before.at, t->at, &v, err));
    st = visit(user, key, NULL, v, err);
out:
    sdc__json_free(v);
    sdc__free(key);
    return st;
}

enum sdc_status sdc__st_walk(const char *text, size_t len, const char *path, sdc__st_visit visit,
                             void *user, struct sdc_error *err) {
    struct text t = {.at = text, .end = text + len, .begin = text, .path = path};
    if (!take(&t, '{'))
        return broken(&t, "an object", err);
    if (!take(&t, '}')) {
        do
            SDC_TRY(member(&t, visit, user, err));
        while (take(&t, ','));
        if (!take(&t, '}'))
            return broken(&t, "',' or '}'", err);
    }
    return t.at == t.end ? SDC_OK : broken(&t, "the end of the header", err);
}
