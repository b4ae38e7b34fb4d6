/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading: JSON into structs.
 */
#include "contract/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "contract/choice_text.h"
#include "contract/fields_check.h"
#include "sdc/events.h"

/* Most keys of one table, two for fields with bits. */
#define MAX_KEYS 64

struct reader {
    void *root;
    struct sdc_error *err;
};

static enum sdc_status read_object(struct reader *r, const struct sdc__fields *table,
                                   const struct sdc_json *v, const struct sdc__place *at,
                                   void *object);

/* Calls a typed access; the place becomes text only for an error. */
#define ACCESS(r, at, function, v, out)                                                            \
    (function((v), "", (out), NULL) == SDC_OK                                                      \
         ? SDC_OK                                                                                  \
         : function((v), sdc__place_text((at), (char[SDC__PLACE_SIZE]){0}), (out), (r)->err))

static bool is_null(const struct sdc_json *v) {
    return sdc__json_type(v) == SDC_JSON_NULL;
}

static enum sdc_status expected(struct reader *r, const struct sdc__place *at, const char *wanted,
                                const struct sdc_json *v) {
    char where[SDC__PLACE_SIZE];
    return SDC_ERR(r->err, SDC_INVALID, "%s: expected %s, found %s", sdc__place_text(at, where),
                   wanted, sdc__json_type_name(v));
}

static enum sdc_status out_of_memory(struct reader *r, const struct sdc__place *at) {
    char where[SDC__PLACE_SIZE];
    return SDC_NOMEM(r->err, sdc__place_text(at, where));
}

/* ---- single values ---- */

static enum sdc_status read_text(struct reader *r, const struct sdc_json *v,
                                 const struct sdc__place *at, char **out) {
    const char *s;
    SDC_TRY(ACCESS(r, at, sdc__json_as_str, v, &s));
    char *copy = sdc__strdup(s);
    if (!copy)
        return out_of_memory(r, at);
    sdc__free(*out);
    *out = copy;
    return SDC_OK;
}

static enum sdc_status read_hex(struct reader *r, const struct sdc_json *v,
                                const struct sdc__place *at, size_t size, void *out) {
    const char *s;
    char where[SDC__PLACE_SIZE];
    SDC_TRY(ACCESS(r, at, sdc__json_as_str, v, &s));
    if (!sdc__hex_decode(s, size, out))
        return SDC_ERR(r->err, SDC_INVALID, "%s: expected %zu hex digits, found '%.40s'",
                       sdc__place_text(at, where), 2 * size, s);
    return SDC_OK;
}

/* A word of hex digits, most significant first. */
static enum sdc_status read_hex_word(struct reader *r, const struct sdc_json *v,
                                     const struct sdc__place *at, size_t size, uint64_t *out) {
    unsigned char bytes[8];
    SDC_TRY(read_hex(r, v, at, size, bytes));
    *out = 0;
    for (size_t i = 0; i < size; i++)
        *out = *out << 8 | bytes[i];
    return SDC_OK;
}

static enum sdc_status read_u32(struct reader *r, const struct sdc_json *v,
                                const struct sdc__place *at, uint32_t *out) {
    int64_t value;
    char where[SDC__PLACE_SIZE];
    SDC_TRY(ACCESS(r, at, sdc__json_as_i64, v, &value));
    if (value < 0 || value > UINT32_MAX)
        return SDC_ERR(r->err, SDC_INVALID, "%s: %lld is out of range, expected 0 to %lu",
                       sdc__place_text(at, where), (long long)value, (unsigned long)UINT32_MAX);
    *out = (uint32_t)value;
    return SDC_OK;
}

static enum sdc_status read_enum(struct reader *r, const struct sdc__field *f,
                                 const struct sdc_json *v, const struct sdc__place *at, int *out) {
    const char *s;
    SDC_TRY(ACCESS(r, at, sdc__json_as_str, v, &s));
    for (size_t i = 0; i < f->words->n; i++) {
        if (strcmp(f->words->words[i], s) == 0) {
            *out = (int)i;
            return SDC_OK;
        }
    }
    return sdc__not_one_of(f->words, s, at, SDC_INVALID, r->err);
}

static enum sdc_status read_const(struct reader *r, const struct sdc__field *f,
                                  const struct sdc_json *v, const struct sdc__place *at) {
    const char *s;
    char where[SDC__PLACE_SIZE];
    SDC_TRY(ACCESS(r, at, sdc__json_as_str, v, &s));
    if (strcmp(s, f->text) != 0)
        return SDC_ERR(r->err, SDC_MISMATCH, "%s: expected '%s', found '%.100s'",
                       sdc__place_text(at, where), f->text, s);
    return SDC_OK;
}

/* A number for people, beside its bits: the right type is all that is asked. */
static enum sdc_status check_decimal(struct reader *r, const struct sdc_json *v,
                                     const struct sdc__place *at) {
    double ignored;
    return ACCESS(r, at, sdc__json_as_f64, v, &ignored);
}

/* The same for a value that may also be an integer over INT64_MAX, as a string of digits. */
static enum sdc_status check_any_decimal(struct reader *r, const struct sdc_json *v,
                                         const struct sdc__place *at) {
    uint64_t big;
    if (sdc__json_as_u64(v, "", &big, NULL) == SDC_OK)
        return SDC_OK;
    return check_decimal(r, v, at);
}

static enum sdc_status read_optional_object(struct reader *r, const struct sdc__fields *sub,
                                            const struct sdc_json *v, const struct sdc__place *at,
                                            bool nullable, void *object) {
    if (nullable && is_null(v)) {
        *(bool *)object = false;
        return SDC_OK;
    }
    SDC_TRY(read_object(r, sub, v, at, object));
    if (nullable)
        *(bool *)object = true;
    return SDC_OK;
}

/* ---- arrays ---- */

/* Fresh zeroed memory for the items of an array; sets the count. The field must hold nothing. */
static enum sdc_status start_array(struct reader *r, const struct sdc__field *f,
                                   const struct sdc_json *v, const struct sdc__place *at,
                                   void *object, size_t item_size, size_t *n, void *items) {
    char where[SDC__PLACE_SIZE];
    bool pairs = f->type == SDC__PAIRS;
    if (sdc__json_type(v) != (pairs ? SDC_JSON_OBJECT : SDC_JSON_ARRAY))
        return expected(r, at, pairs ? "an object" : "an array", v);
    *n = sdc__json_count(v);
    if (f->flags & SDC__PER_RANK) {
        uint32_t want = *(const uint32_t *)((const char *)r->root + f->count_offset);
        if (*n != want)
            return SDC_ERR(r->err, SDC_INVALID, "%s: %zu items, expected %u (one per rank)",
                           sdc__place_text(at, where), *n, (unsigned)want);
    }
    void *memory = sdc__calloc(*n, item_size);
    if (!memory)
        return out_of_memory(r, at);
    sdc__field_release(f, r->root, object);
    memcpy((char *)object + f->offset, &memory, sizeof memory);
    if (!(f->flags & SDC__PER_RANK))
        *(size_t *)((char *)object + f->count_offset) = *n;
    memcpy(items, &memory, sizeof memory);
    return SDC_OK;
}

static enum sdc_status read_objects(struct reader *r, const struct sdc__field *f,
                                    const struct sdc_json *v, const struct sdc__place *at,
                                    void *object) {
    size_t n;
    char *items;
    SDC_TRY(start_array(r, f, v, at, object, f->sub->size, &n, &items));
    for (size_t i = 0; i < n; i++) {
        struct sdc__place item = {.up = at, .index = i};
        SDC_TRY(read_optional_object(r, f->sub, sdc__json_at(v, i), &item,
                                     f->flags & SDC__NULL_ITEMS, items + i * f->sub->size));
    }
    return SDC_OK;
}

static enum sdc_status read_texts(struct reader *r, const struct sdc__field *f,
                                  const struct sdc_json *v, const struct sdc__place *at,
                                  void *object) {
    size_t n;
    char **items;
    SDC_TRY(start_array(r, f, v, at, object, sizeof *items, &n, &items));
    for (size_t i = 0; i < n; i++) {
        struct sdc__place item = {.up = at, .index = i};
        SDC_TRY(read_text(r, sdc__json_at(v, i), &item, &items[i]));
    }
    return SDC_OK;
}

static enum sdc_status read_u64s(struct reader *r, const struct sdc__field *f,
                                 const struct sdc_json *v, const struct sdc__place *at,
                                 void *object) {
    size_t n;
    uint64_t *items;
    SDC_TRY(start_array(r, f, v, at, object, sizeof *items, &n, &items));
    for (size_t i = 0; i < n; i++) {
        struct sdc__place item = {.up = at, .index = i};
        SDC_TRY(ACCESS(r, &item, sdc__json_as_u64, sdc__json_at(v, i), &items[i]));
    }
    return SDC_OK;
}

/* The decimals are looked at, the bits are read. */
static enum sdc_status read_bits(struct reader *r, const struct sdc__field *f,
                                 const struct sdc_json *decimals, const struct sdc_json *bits,
                                 const struct sdc__place *at, const struct sdc__place *bits_at,
                                 void *object) {
    size_t n, width = f->type == SDC__F32S_BITS ? 4 : 8;
    char *items;
    char where[SDC__PLACE_SIZE];
    SDC_TRY(start_array(r, f, bits, bits_at, object, width, &n, &items));
    if (sdc__json_type(decimals) != SDC_JSON_ARRAY)
        return expected(r, at, "an array", decimals);
    if (sdc__json_count(decimals) != n)
        return SDC_ERR(r->err, SDC_INVALID, "%s: %zu items, expected %zu as in %s",
                       sdc__place_text(at, where), sdc__json_count(decimals), n, f->bits_key);
    for (size_t i = 0; i < n; i++) {
        struct sdc__place item = {.up = at, .index = i}, bits_item = {.up = bits_at, .index = i};
        uint64_t word;
        SDC_TRY(check_decimal(r, sdc__json_at(decimals, i), &item));
        SDC_TRY(read_hex_word(r, sdc__json_at(bits, i), &bits_item, width, &word));
        uint32_t half = (uint32_t)word;
        if (width == 4)
            memcpy(items + 4 * i, &half, 4);
        else
            memcpy(items + 8 * i, &word, 8);
    }
    return SDC_OK;
}

static int compare_pairs(const void *a, const void *b) {
    const struct sdc_key_value *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static enum sdc_status read_pairs(struct reader *r, const struct sdc__field *f,
                                  const struct sdc_json *v, const struct sdc__place *at,
                                  void *object) {
    size_t n, i = 0;
    struct sdc_key_value *items;
    SDC_TRY(start_array(r, f, v, at, object, sizeof *items, &n, &items));
    for (const char *key = sdc__json_next_key(v, NULL); key; key = sdc__json_next_key(v, key)) {
        struct sdc__place item = {.up = at, .key = key};
        items[i].key = sdc__strdup(key);
        if (!items[i].key)
            return out_of_memory(r, at);
        SDC_TRY(read_text(r, sdc__json_get(v, key), &item, &items[i].value));
        i++;
    }
    qsort(items, n, sizeof *items, compare_pairs);
    return SDC_OK;
}

/* ---- fields ---- */

static enum sdc_status read_field(struct reader *r, const struct sdc__field *f,
                                  const struct sdc_json *parent, const struct sdc_json *v,
                                  const struct sdc__place *at, void *object) {
    void *p = (char *)object + f->offset;
    struct sdc__place bits_at = {.up = at->up, .key = f->bits_key};
    const struct sdc_json *bits = f->bits_key ? sdc__json_get(parent, f->bits_key) : NULL;
    if (f->bits_key && !bits)
        return expected(r, &bits_at, "hex digits", NULL);
    if ((f->flags & SDC__NULLABLE) && is_null(v) && f->type != SDC__OBJECT) {
        if (f->type == SDC__HEX)
            *(bool *)((char *)object + f->count_offset) = false;
        else
            sdc__field_release(f, r->root, object);
        return SDC_OK;
    }
    uint64_t word;
    char where[SDC__PLACE_SIZE];
    switch (f->type) {
    case SDC__CONST:
        return read_const(r, f, v, at);
    case SDC__TEXT:
        return read_text(r, v, at, p);
    case SDC__BOOL:
        return ACCESS(r, at, sdc__json_as_bool, v, (bool *)p);
    case SDC__U32:
        return read_u32(r, v, at, p);
    case SDC__U64:
        return ACCESS(r, at, sdc__json_as_u64, v, (uint64_t *)p);
    case SDC__F64:
        return ACCESS(r, at, sdc__json_as_f64, v, (double *)p);
    case SDC__F64_BITS:
        SDC_TRY(check_decimal(r, v, at));
        SDC_TRY(read_hex_word(r, bits, &bits_at, 8, &word));
        memcpy(p, &word, sizeof word);
        return SDC_OK;
    case SDC__ENUM:
        return read_enum(r, f, v, at, p);
    case SDC__HEX:
        SDC_TRY(read_hex(r, v, at, f->size, p));
        if (f->flags & SDC__NULLABLE)
            *(bool *)((char *)object + f->count_offset) = true;
        return SDC_OK;
    case SDC__HEX64:
        return read_hex_word(r, v, at, 8, p);
    case SDC__DECIMAL:
        return check_any_decimal(r, v, at);
    case SDC__OBJECT:
        return read_optional_object(r, f->sub, v, at, f->flags & SDC__NULLABLE, p);
    case SDC__OBJECTS:
        return read_objects(r, f, v, at, object);
    case SDC__TEXTS:
        return read_texts(r, f, v, at, object);
    case SDC__U64S:
        return read_u64s(r, f, v, at, object);
    case SDC__F32S_BITS:
    case SDC__F64S_BITS:
        return read_bits(r, f, v, bits, at, &bits_at, object);
    case SDC__PAIRS:
        return read_pairs(r, f, v, at, object);
    case SDC__CHOICE:
        return sdc__choice_read(v, sdc__place_text(at, where), p, r->err);
    }
    return SDC_OK;
}

static enum sdc_status read_object(struct reader *r, const struct sdc__fields *table,
                                   const struct sdc_json *v, const struct sdc__place *at,
                                   void *object) {
    const char *keys[MAX_KEYS];
    char where[SDC__PLACE_SIZE];
    size_t n = 0;
    for (size_t i = 0; i < table->n; i++) {
        keys[n++] = table->items[i].key;
        if (table->items[i].bits_key)
            keys[n++] = table->items[i].bits_key;
    }
    if (sdc__json_only(v, "", keys, n, NULL) != SDC_OK)
        return sdc__json_only(v, sdc__place_text(at, where), keys, n, r->err);
    for (size_t i = 0; i < table->n; i++) {
        const struct sdc__field *f = &table->items[i];
        const struct sdc_json *value = sdc__json_get(v, f->key);
        struct sdc__place place = {.up = at, .key = f->key};
        if (!value) {
            if (f->flags & SDC__REQUIRED)
                return SDC_ERR(r->err, SDC_INVALID, "%s: key '%s' is missing",
                               sdc__place_text(at, where), f->key);
            if (f->bits_key && sdc__json_get(v, f->bits_key))
                return SDC_ERR(r->err, SDC_INVALID, "%s: key '%s' is missing beside '%s'",
                               sdc__place_text(at, where), f->key, f->bits_key);
            continue;
        }
        SDC_TRY(read_field(r, f, v, value, &place, object));
        if (f->flags & SDC__OMIT && f->count_offset && f->type != SDC__OBJECTS &&
            f->type != SDC__U64S)
            *(bool *)((char *)object + f->count_offset) = true;
        SDC_TRY(sdc__field_check(f, r->root, object, &place, SDC_INVALID, r->err));
    }
    return SDC_OK;
}

enum sdc_status sdc__fields_read(const struct sdc__fields *table, const struct sdc_json *object,
                                 const char *what, void *root, struct sdc_error *err) {
    struct reader r = {.root = root, .err = err};
    struct sdc__place at = {.what = what};
    return read_object(&r, table, object, &at, root);
}
