/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs described by tables, read from JSON objects and written to them. A table lists the keys
 * of an object in the order in which they are written; from it come reading with checks, writing,
 * releasing and copying. Not for one-off objects with rules of their own (the fault choice).
 *
 * Reading: keys that the table does not list are refused, missing ones keep what the struct holds
 * unless SDC__REQUIRED. Messages name the place: "run description x.json: optimizer.lr: expected a
 * number, found a string". After a failure the struct holds what was read so far and must be
 * released.
 */
#ifndef SDC_CONTRACT_FIELDS_H
#define SDC_CONTRACT_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "sdc/status.h"

/* Words of an enum, in the order of its values. */
struct sdc__words {
    const char *const *words;
    size_t n;
};

#define SDC__WORDS(array)                                                                          \
    { (array), sizeof(array) / sizeof((array)[0]) }

enum sdc__field_type {
    SDC__CONST,     /* key with the fixed text `text`; nothing in the struct */
    SDC__TEXT,      /* char *; one of `words` if set */
    SDC__BOOL,      /* bool */
    SDC__U32,       /* uint32_t, min to max; an integer in JSON */
    SDC__U64,       /* uint64_t; above INT64_MAX a string of digits */
    SDC__F64,       /* double, finite, at least fmin */
    SDC__F64_BITS,  /* double; `key` in decimal and `bits_key` as 16 hex digits, which count */
    SDC__ENUM,      /* an enum, by `words` */
    SDC__HEX,       /* `size` bytes as hex; NULLABLE: null is the bool at count_offset false */
    SDC__HEX64,     /* uint64_t as 16 hex digits */
    SDC__DECIMAL,   /* char *, a number or "nan", "inf", "-inf", for people: checked, not read */
    SDC__OBJECT,    /* a struct of table `sub`; NULLABLE: null is its first member, a bool, false */
    SDC__OBJECTS,   /* pointer to an array of structs of table `sub` */
    SDC__TEXTS,     /* char **, each as TEXT */
    SDC__U64S,      /* uint64_t * */
    SDC__F32S_BITS, /* float *; two keys as with F64_BITS, 8 hex digits each */
    SDC__F64S_BITS, /* double *; two keys */
    SDC__PAIRS,     /* array of struct sdc_key_value as one object, written sorted by key */
    SDC__CHOICE     /* struct sdc_choice */
};

enum sdc__field_flag {
    SDC__REQUIRED = 1,    /* the key must be there */
    SDC__NULLABLE = 2,    /* null is a NULL pointer (HEX and OBJECT: see there) */
    SDC__EMPTY_OK = 4,    /* texts: "" too */
    SDC__PLAIN = 8,       /* texts: no control characters */
    SDC__PER_RANK = 16,   /* arrays: the length is the uint32_t at count_offset of the root struct,
                             read before; else the size_t at count_offset of the struct itself */
    SDC__ASCENDING = 32,  /* U64S: strictly */
    SDC__NULL_ITEMS = 64, /* OBJECTS: an item may be null as with a nullable OBJECT */
    SDC__OMIT = 128       /* not written where it says nothing: numbers and OBJECT where the bool at
                             count_offset is false (reading the key sets it) or, if that is 0, where
                             they are 0; BOOL where it is false; texts, OBJECTS and U64S where the
                             pointer is NULL */
};

struct sdc__fields;

struct sdc__field {
    const char *key;
    enum sdc__field_type type;
    unsigned flags;
    size_t offset;
    size_t count_offset;
    const char *text;
    const char *bits_key;
    const struct sdc__words *words;
    const struct sdc__fields *sub;
    uint64_t min, max; /* U32; number of items of an array (max 0: any) */
    double fmin;
    size_t size;
};

struct sdc__fields {
    const struct sdc__field *items;
    size_t n;
    size_t size; /* of the struct, for arrays of it */
};

#define SDC__FIELDS(array, type)                                                                   \
    { (array), sizeof(array) / sizeof((array)[0]), sizeof(type) }

/* what names the text, such as "run description x.json". */
enum sdc_status sdc__fields_read(const struct sdc__fields *table, const struct sdc_json *object,
                                 const char *what, void *root,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* One object. The struct must satisfy the table (sdc__fields_check). */
void sdc__fields_write(const struct sdc__fields *table, const void *root, struct sdc_jw *w);
/* The same rules as reading, over a struct in memory: texts set, values in range. SDC_USAGE. */
enum sdc_status sdc__fields_check(const struct sdc__fields *table, const char *what,
                                  const void *root, struct sdc_error *err) SDC_MUST_CHECK;
/* Frees what the table owns and sets the pointers to NULL, counts to 0. */
void sdc__fields_release(const struct sdc__fields *table, void *root);
/* A deep copy into raw memory; SDC_NO_MEMORY leaves `to` released. */
enum sdc_status sdc__fields_copy(const struct sdc__fields *table, void *to, const void *from,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* Writes the struct as one line with its newline. NULL: no memory. */
enum sdc_status sdc__fields_line(const struct sdc__fields *table, const char *what,
                                 const void *root, char **line,
                                 struct sdc_error *err) SDC_MUST_CHECK;

#endif
