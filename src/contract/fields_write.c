/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing: structs as JSON.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "contract/choice_text.h"
#include "contract/fields_check.h"
#include "sdc/events.h"
#include "sdc/num.h"

static const void *at_offset(const void *object, size_t offset) {
    return (const char *)object + offset;
}

/* A number as its shortest text; what JSON has no number for is a string. */
static void write_decimal(struct sdc_jw *w, const char *text) {
    long long integer;
    double real;
    if (sdc__parse_i64(text, &integer) && !(integer == 0 && text[0] == '-'))
        sdc__jw_i64(w, integer);
    else if (!strpbrk(text, "naif") && strpbrk(text, ".e-") && sdc__parse_f64(text, &real))
        sdc__jw_f64(w, real);
    else
        sdc__jw_str(w, text);
}

static void write_raw(struct sdc_jw *w, enum sdc_dtype dtype, uint64_t raw) {
    char text[64];
    sdc_num_text(dtype, raw, text, sizeof text);
    write_decimal(w, text);
}

static void write_hex_word(struct sdc_jw *w, uint64_t word, int digits) {
    char text[17];
    snprintf(text, sizeof text, "%0*llx", digits, (unsigned long long)word);
    sdc__jw_str(w, text);
}

/* The raw bits of an item of a float array. */
static uint64_t raw_item(const struct sdc__field *f, const char *items, size_t i) {
    uint64_t word = 0;
    uint32_t half;
    if (f->type != SDC__F32S_BITS) {
        memcpy(&word, items + 8 * i, 8);
        return word;
    }
    memcpy(&half, items + 4 * i, 4);
    return half;
}

static void write_bits(struct sdc_jw *w, const struct sdc__field *f, const char *items, size_t n) {
    bool single = f->type == SDC__F32S_BITS;
    sdc__jw_arr(w);
    for (size_t i = 0; i < n; i++)
        write_raw(w, single ? SDC_DTYPE_F32 : SDC_DTYPE_F64, raw_item(f, items, i));
    sdc__jw_arr_end(w);
    sdc__jw_key(w, f->bits_key);
    sdc__jw_arr(w);
    for (size_t i = 0; i < n; i++)
        write_hex_word(w, raw_item(f, items, i), single ? 8 : 16);
    sdc__jw_arr_end(w);
}

/* The pairs in order of their keys, whatever order they are held in; there are few. */
static void write_pairs(struct sdc_jw *w, const struct sdc_key_value *pairs, size_t n) {
    sdc__jw_obj(w);
    const char *last = NULL;
    for (size_t done = 0; done < n; done++) {
        const struct sdc_key_value *next = NULL;
        for (size_t i = 0; i < n; i++)
            if ((!last || strcmp(pairs[i].key, last) > 0) &&
                (!next || strcmp(pairs[i].key, next->key) < 0))
                next = &pairs[i];
        if (!next) /* a key twice */
            break;
        sdc__jw_kstr(w, next->key, next->value);
        last = next->key;
    }
    sdc__jw_obj_end(w);
}

static void write_object(const struct sdc__fields *table, const void *root, const void *object,
                         struct sdc_jw *w);

static void write_hex(struct sdc_jw *w, const struct sdc__field *f, const void *p,
                      const void *object) {
    char text[2 * 64 + 1];
    if (f->flags & SDC__NULLABLE && !*(const bool *)at_offset(object, f->count_offset)) {
        sdc__jw_null(w);
        return;
    }
    sdc__hex_encode(p, f->size, text);
    sdc__jw_str(w, text);
}

static void write_optional_object(struct sdc_jw *w, const struct sdc__fields *sub, const void *root,
                                  const void *object, bool nullable) {
    if (nullable && !*(const bool *)object)
        sdc__jw_null(w);
    else
        write_object(sub, root, object, w);
}

static void write_array(const struct sdc__field *f, const void *root, const void *object,
                        struct sdc_jw *w) {
    const char *items;
    memcpy(&items, at_offset(object, f->offset), sizeof items);
    size_t n = sdc__field_count(f, root, object);
    if (!items && f->flags & SDC__NULLABLE) {
        sdc__jw_null(w);
        return;
    }
    if (f->type == SDC__PAIRS) {
        write_pairs(w, (const struct sdc_key_value *)(const void *)items, n);
        return;
    }
    if (f->bits_key) {
        write_bits(w, f, items, n);
        return;
    }
    sdc__jw_arr(w);
    for (size_t i = 0; i < n; i++) {
        if (f->type == SDC__TEXTS)
            sdc__jw_str(w, ((char *const *)(const void *)items)[i]);
        else if (f->type == SDC__U64S)
            sdc__jw_u64(w, ((const uint64_t *)(const void *)items)[i]);
        else
            write_optional_object(w, f->sub, root, items + i * f->sub->size,
                                  f->flags & SDC__NULL_ITEMS);
    }
    sdc__jw_arr_end(w);
}

static void write_field(const struct sdc__field *f, const void *root, const void *object,
                        struct sdc_jw *w) {
    const void *p = at_offset(object, f->offset);
    const char *text;
    uint64_t word;
    sdc__jw_key(w, f->key);
    switch (f->type) {
    case SDC__CONST:
        sdc__jw_str(w, f->text);
        break;
    case SDC__TEXT:
        memcpy(&text, p, sizeof text);
        sdc__jw_str(w, text);
        break;
    case SDC__DECIMAL:
        memcpy(&text, p, sizeof text);
        write_decimal(w, text);
        break;
    case SDC__BOOL:
        sdc__jw_bool(w, *(const bool *)p);
        break;
    case SDC__U32:
        sdc__jw_u64(w, *(const uint32_t *)p);
        break;
    case SDC__U64:
        sdc__jw_u64(w, *(const uint64_t *)p);
        break;
    case SDC__F64:
        sdc__jw_f64(w, *(const double *)p);
        break;
    case SDC__F64_BITS:
        memcpy(&word, p, sizeof word);
        write_raw(w, SDC_DTYPE_F64, word);
        sdc__jw_key(w, f->bits_key);
        write_hex_word(w, word, 16);
        break;
    case SDC__ENUM:
        sdc__jw_str(w, f->words->words[*(const int *)p]);
        break;
    case SDC__HEX:
        write_hex(w, f, p, object);
        break;
    case SDC__HEX64:
        write_hex_word(w, *(const uint64_t *)p, 16);
        break;
    case SDC__OBJECT:
        write_optional_object(w, f->sub, root, p, f->flags & SDC__NULLABLE);
        break;
    case SDC__CHOICE:
        sdc__choice_write(p, w);
        break;
    default:
        write_array(f, root, object, w);
    }
}

static bool is_omitted(const struct sdc__field *f, const void *object) {
    uint64_t word;
    const bool is_array = f->type == SDC__OBJECTS || f->type == SDC__U64S;
    if (!(f->flags & SDC__OMIT))
        return false;
    if (f->type == SDC__BOOL)
        return !*(const bool *)at_offset(object, f->offset);
    if (f->count_offset && !is_array)
        return !*(const bool *)at_offset(object, f->count_offset);
    if (f->type == SDC__U32)
        return *(const uint32_t *)at_offset(object, f->offset) == 0;
    if (f->type == SDC__TEXT)
        return !*(char *const *)at_offset(object, f->offset);
    memcpy(&word, at_offset(object, f->offset), sizeof word);
    return word == 0; /* 0.0 and NULL too */
}

static void write_object(const struct sdc__fields *table, const void *root, const void *object,
                         struct sdc_jw *w) {
    sdc__jw_obj(w);
    for (size_t i = 0; i < table->n; i++)
        if (!is_omitted(&table->items[i], object))
            write_field(&table->items[i], root, object, w);
    sdc__jw_obj_end(w);
}

void sdc__fields_write(const struct sdc__fields *table, const void *root, struct sdc_jw *w) {
    write_object(table, root, root, w);
}

enum sdc_status sdc__fields_line(const struct sdc__fields *table, const char *what,
                                 const void *root, char **line, struct sdc_error *err) {
    SDC_TRY(sdc__fields_check(table, what, root, err));
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    sdc__fields_write(table, root, &w);
    sdc__buf_putc(&b, '\n');
    char *text = sdc__buf_take(&b);
    if (!text)
        return SDC_NOMEM(err, what);
    *line = text;
    return SDC_OK;
}
