/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of fields, and the life of what they own.
 */
#include "contract/fields_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "sdc/choice.h"
#include "sdc/events.h"

const char *sdc__place_text(const struct sdc__place *at, char text[SDC__PLACE_SIZE]) {
    if (at->what) {
        snprintf(text, SDC__PLACE_SIZE, "%s", at->what);
        return text;
    }
    sdc__place_text(at->up, text);
    size_t len = strlen(text);
    if (at->key)
        snprintf(text + len, SDC__PLACE_SIZE - len, "%s%s", at->up->what ? ": " : ".", at->key);
    else
        snprintf(text + len, SDC__PLACE_SIZE - len, "[%zu]", at->index);
    return text;
}

enum sdc_status sdc__not_one_of(const struct sdc__words *words, const char *found,
                                const struct sdc__place *at, enum sdc_status status,
                                struct sdc_error *err) {
    char where[SDC__PLACE_SIZE], list[512];
    size_t len = 0;
    list[0] = '\0';
    for (size_t i = 0; i < words->n && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s'%s'", i ? ", " : "",
                                words->words[i]);
    return SDC_ERR(err, status, "%s: expected %s%s, found '%.100s'", sdc__place_text(at, where),
                   words->n > 1 ? "one of " : "", list, found);
}

static void *at_offset(const void *object, size_t offset) {
    return (char *)(uintptr_t)object + offset;
}

/* The pointer member at an offset. */
static void *pointer(const struct sdc__field *f, const void *object) {
    void *p;
    memcpy(&p, at_offset(object, f->offset), sizeof p);
    return p;
}

static bool is_array(const struct sdc__field *f) {
    switch (f->type) {
    case SDC__OBJECTS:
    case SDC__TEXTS:
    case SDC__U64S:
    case SDC__F32S_BITS:
    case SDC__F64S_BITS:
    case SDC__PAIRS:
        return true;
    default:
        return false;
    }
}

size_t sdc__field_count(const struct sdc__field *f, const void *root, const void *object) {
    if (!pointer(f, object))
        return 0;
    if (f->flags & SDC__PER_RANK)
        return *(const uint32_t *)at_offset(root, f->count_offset);
    return *(const size_t *)at_offset(object, f->count_offset);
}

/* ---- rules ---- */

struct checker {
    enum sdc_status status;
    struct sdc_error *err;
};

static enum sdc_status broken(const struct checker *c, const struct sdc__place *at,
                              const char *what) {
    char where[SDC__PLACE_SIZE];
    return SDC_ERR(c->err, c->status, "%s: %s", sdc__place_text(at, where), what);
}

static enum sdc_status check_text(const struct checker *c, const struct sdc__field *f,
                                  const char *s, const struct sdc__place *at) {
    if (!s)
        return f->flags & (SDC__NULLABLE | SDC__OMIT) && f->type == SDC__TEXT
                   ? SDC_OK
                   : broken(c, at, "is not set");
    if (!*s && !(f->flags & SDC__EMPTY_OK))
        return broken(c, at, "is empty");
    if (f->flags & SDC__PLAIN)
        for (const char *p = s; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7F)
                return broken(c, at, "holds a control character");
    if (f->words) {
        for (size_t i = 0; i < f->words->n; i++)
            if (strcmp(f->words->words[i], s) == 0)
                return SDC_OK;
        return sdc__not_one_of(f->words, s, at, c->status, c->err);
    }
    return SDC_OK;
}

static enum sdc_status check_count(const struct checker *c, const struct sdc__field *f, size_t n,
                                   const struct sdc__place *at) {
    char where[SDC__PLACE_SIZE];
    if (n < f->min || (f->max && n > f->max))
        return SDC_ERR(c->err, c->status, "%s: %zu items, expected %llu to %llu",
                       sdc__place_text(at, where), n, (unsigned long long)f->min,
                       (unsigned long long)f->max);
    return SDC_OK;
}

static enum sdc_status check_array(const struct checker *c, const struct sdc__field *f,
                                   const void *root, const void *object,
                                   const struct sdc__place *at) {
    const void *items = pointer(f, object);
    size_t n = sdc__field_count(f, root, object);
    bool own_count = !(f->flags & SDC__PER_RANK);
    if (!items && ((own_count && *(const size_t *)at_offset(object, f->count_offset)) ||
                   !(own_count || f->flags & SDC__NULLABLE)))
        return broken(c, at, "is not set");
    if (items && !(f->flags & SDC__PER_RANK))
        SDC_TRY(check_count(c, f, n, at));
    for (size_t i = 0; i < n; i++) {
        struct sdc__place item = {.up = at, .index = i};
        if (f->type == SDC__TEXTS)
            SDC_TRY(check_text(c, f, ((char *const *)items)[i], &item));
        if (f->type == SDC__PAIRS) {
            const struct sdc_key_value *pair = (const struct sdc_key_value *)items + i;
            if (!pair->key || !pair->value)
                return broken(c, &item, "is not set");
        }
        const uint64_t *u = items;
        if (f->type == SDC__U64S && f->flags & SDC__ASCENDING && i && u[i] <= u[i - 1])
            return broken(c, &item, "is not above the one before it");
    }
    return SDC_OK;
}

enum sdc_status sdc__field_check(const struct sdc__field *f, const void *root, const void *object,
                                 const struct sdc__place *at, enum sdc_status status,
                                 struct sdc_error *err) {
    struct checker c = {status, err};
    char where[SDC__PLACE_SIZE];
    const void *p = at_offset(object, f->offset);
    if (is_array(f))
        return check_array(&c, f, root, object, at);
    switch (f->type) {
    case SDC__TEXT:
        return check_text(&c, f, pointer(f, object), at);
    case SDC__U32: {
        uint32_t v = *(const uint32_t *)p;
        if (v < f->min || (f->max && v > f->max))
            return SDC_ERR(err, status, "%s: %u is out of range, expected %llu to %llu",
                           sdc__place_text(at, where), (unsigned)v, (unsigned long long)f->min,
                           (unsigned long long)(f->max ? f->max : UINT32_MAX));
        return SDC_OK;
    }
    case SDC__F64: {
        double v = *(const double *)p;
        if (!(v >= f->fmin && v <= (double)INFINITY) || isinf(v))
            return SDC_ERR(err, status,
                           "%s: %g is out of range, expected a finite number of at least %g",
                           sdc__place_text(at, where), v, f->fmin);
        return SDC_OK;
    }
    case SDC__ENUM: {
        int v = *(const int *)p;
        if (v < 0 || (size_t)v >= f->words->n)
            return broken(&c, at, "is none of its words");
        return SDC_OK;
    }
    default:
        return SDC_OK;
    }
}

static enum sdc_status check_object(const struct sdc__fields *table, const void *root,
                                    const void *object, const struct sdc__place *at,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < table->n; i++) {
        const struct sdc__field *f = &table->items[i];
        struct sdc__place place = {.up = at, .key = f->key};
        SDC_TRY(sdc__field_check(f, root, object, &place, SDC_USAGE, err));
        const char *p = at_offset(object, f->offset);
        if (f->type == SDC__OBJECT && !(f->flags & SDC__NULLABLE && !*(const bool *)p))
            SDC_TRY(check_object(f->sub, root, p, &place, err));
        if (f->type != SDC__OBJECTS)
            continue;
        const char *items = pointer(f, object);
        for (size_t k = 0; k < sdc__field_count(f, root, object); k++) {
            const char *item = items + k * f->sub->size;
            struct sdc__place item_place = {.up = &place, .index = k};
            if (!(f->flags & SDC__NULL_ITEMS && !*(const bool *)item))
                SDC_TRY(check_object(f->sub, root, item, &item_place, err));
        }
    }
    return SDC_OK;
}

enum sdc_status sdc__fields_check(const struct sdc__fields *table, const char *what,
                                  const void *root, struct sdc_error *err) {
    struct sdc__place at = {.what = what};
    return check_object(table, root, root, &at, err);
}

/* ---- ownership ---- */

static void release_object(const struct sdc__fields *table, const void *root, void *object) {
    for (size_t i = 0; i < table->n; i++)
        sdc__field_release(&table->items[i], root, object);
}

void sdc__field_release(const struct sdc__field *f, const void *root, void *object) {
    if (f->type == SDC__OBJECT) {
        release_object(f->sub, root, at_offset(object, f->offset));
        return;
    }
    if (f->type == SDC__CHOICE) {
        sdc_choice_release(at_offset(object, f->offset));
        return;
    }
    if (!is_array(f) && f->type != SDC__TEXT && f->type != SDC__DECIMAL)
        return;
    char *items = pointer(f, object);
    size_t n = is_array(f) ? sdc__field_count(f, root, object) : 0;
    for (size_t i = 0; i < n; i++) {
        if (f->type == SDC__TEXTS)
            sdc__free(((char **)(void *)items)[i]);
        if (f->type == SDC__OBJECTS)
            release_object(f->sub, root, items + i * f->sub->size);
        if (f->type == SDC__PAIRS) {
            struct sdc_key_value *pair = (struct sdc_key_value *)(void *)items + i;
            sdc__free(pair->key);
            sdc__free(pair->value);
        }
    }
    sdc__free(items);
    void *none = NULL;
    memcpy(at_offset(object, f->offset), &none, sizeof none);
    if (is_array(f) && !(f->flags & SDC__PER_RANK))
        *(size_t *)at_offset(object, f->count_offset) = 0;
}

void sdc__fields_release(const struct sdc__fields *table, void *root) {
    release_object(table, root, root);
}

/* Sets every owned pointer of the object to NULL without freeing: it still points to another's. */
static void forget_object(const struct sdc__fields *table, void *object) {
    void *none = NULL;
    for (size_t i = 0; i < table->n; i++) {
        const struct sdc__field *f = &table->items[i];
        if (f->type == SDC__OBJECT)
            forget_object(f->sub, at_offset(object, f->offset));
        else if (f->type == SDC__CHOICE)
            sdc_choice_init(at_offset(object, f->offset));
        else if (is_array(f) || f->type == SDC__TEXT || f->type == SDC__DECIMAL)
            memcpy(at_offset(object, f->offset), &none, sizeof none);
    }
}

static bool copy_object(const struct sdc__fields *table, const void *root, void *to,
                        const void *from);

static bool copy_text(char **to, const char *from) {
    *to = from ? sdc__strdup(from) : NULL;
    return *to || !from;
}

static size_t item_size(const struct sdc__field *f) {
    switch (f->type) {
    case SDC__OBJECTS:
        return f->sub->size;
    case SDC__PAIRS:
        return sizeof(struct sdc_key_value);
    case SDC__F32S_BITS:
        return sizeof(float);
    case SDC__TEXTS:
        return sizeof(char *);
    default:
        return 8;
    }
}

static bool copy_array(const struct sdc__field *f, const void *root, void *to, const void *from) {
    const char *old = pointer(f, from);
    if (!old)
        return true;
    size_t n = sdc__field_count(f, root, from), size = item_size(f);
    char *items = sdc__calloc(n, size);
    if (!items)
        return false;
    memcpy(at_offset(to, f->offset), &items, sizeof items);
    bool done = true;
    for (size_t i = 0; i < n && done; i++) {
        if (f->type == SDC__OBJECTS) {
            memcpy(items + i * size, old + i * size, size);
            forget_object(f->sub, items + i * size);
            done = copy_object(f->sub, root, items + i * size, old + i * size);
        } else if (f->type == SDC__TEXTS) {
            done = copy_text((char **)(void *)items + i, ((char *const *)(const void *)old)[i]);
        } else if (f->type == SDC__PAIRS) {
            const struct sdc_key_value *pair = (const struct sdc_key_value *)(const void *)old + i;
            struct sdc_key_value *copy = (struct sdc_key_value *)(void *)items + i;
            done = copy_text(&copy->key, pair->key) && copy_text(&copy->value, pair->value);
        } else {
            memcpy(items + i * size, old + i * size, size);
        }
    }
    return done;
}

/* `to` holds the plain members already and no pointers. */
static bool copy_object(const struct sdc__fields *table, const void *root, void *to,
                        const void *from) {
    bool done = true;
    for (size_t i = 0; i < table->n && done; i++) {
        const struct sdc__field *f = &table->items[i];
        void *target = at_offset(to, f->offset);
        if (f->type == SDC__OBJECT) {
            done = copy_object(f->sub, root, target, at_offset(from, f->offset));
        } else if (is_array(f)) {
            done = copy_array(f, root, to, from);
        } else if (f->type == SDC__CHOICE) {
            done = sdc_choice_copy(target, at_offset(from, f->offset), NULL) == SDC_OK;
        } else if (f->type == SDC__TEXT || f->type == SDC__DECIMAL) {
            char *copy = NULL;
            done = copy_text(&copy, pointer(f, from));
            memcpy(target, &copy, sizeof copy);
        }
    }
    return done;
}

enum sdc_status sdc__fields_copy(const struct sdc__fields *table, void *to, const void *from,
                                 struct sdc_error *err) {
    memcpy(to, from, table->size);
    forget_object(table, to);
    if (copy_object(table, from, to, from))
        return SDC_OK;
    sdc__fields_release(table, to);
    return SDC_NOMEM(err, "a copy");
}
