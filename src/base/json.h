/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON: reading (jansson behind this file alone) and a streaming writer. Not a schema validator;
 * but sdc__json_only refuses unknown keys, which every reader of our own files calls.
 *
 * Reading: UTF-8, duplicate keys refused, depth bounded by the library (2048), numbers as int64 or
 * double. Trees are immutable and may be read from several threads.
 *
 * Writing: pretty is never used, one document is one line. Floats are written so that they read
 * back to the same double; NaN and infinities as the strings "nan", "inf", "-inf". The writer's
 * buffer failure is sticky: write freely and check b->failed once.
 */
#ifndef SDC_BASE_JSON_H
#define SDC_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "sdc/status.h"

struct sdc_json; /* a value; a root is owned by the caller, values inside are borrowed from it */

enum sdc_json_type {
    SDC_JSON_NULL,
    SDC_JSON_BOOL,
    SDC_JSON_INT,
    SDC_JSON_REAL,
    SDC_JSON_STRING,
    SDC_JSON_ARRAY,
    SDC_JSON_OBJECT
};

/* Parses exactly one value. SDC_INVALID with line, column and byte offset; SDC_LIMIT if longer than
 * SDC_MAX_JSON. what names the text in messages, such as a path. Free the root with sdc__json_free.
 */
enum sdc_status sdc__json_parse(const char *text, size_t len, const char *what,
                                struct sdc_json **root, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__json_free(struct sdc_json *root); /* accepts NULL */

enum sdc_json_type sdc__json_type(const struct sdc_json *v);
const char *
sdc__json_type_name(const struct sdc_json *v);    /* "string", "object", ... for messages */
size_t sdc__json_count(const struct sdc_json *v); /* of an array or object, else 0 */
const struct sdc_json *sdc__json_at(const struct sdc_json *array, size_t i); /* NULL past the end */
const struct sdc_json *sdc__json_get(const struct sdc_json *object, const char *key); /* or NULL */
/* Iterates an object in insertion order: start with NULL, ends with NULL. */
const char *sdc__json_next_key(const struct sdc_json *object, const char *key);

/* Typed access with messages such as "run description: optimizer.lr: expected a number, found
 * string". where is the path of the value for the message. REAL accepts integers, and the strings
 * "nan", "inf", "-inf"; U64 also accepts a string of digits or 0x hex (for values over int64). */
enum sdc_status sdc__json_as_bool(const struct sdc_json *v, const char *where, bool *out,
                                  struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__json_as_i64(const struct sdc_json *v, const char *where, int64_t *out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__json_as_u64(const struct sdc_json *v, const char *where, uint64_t *out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__json_as_f64(const struct sdc_json *v, const char *where, double *out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* *out is borrowed from the tree. */
enum sdc_status sdc__json_as_str(const struct sdc_json *v, const char *where, const char **out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* v must be an object with no other keys than the n listed ones; SDC_INVALID names the unknown key
 * and suggests the nearest. */
enum sdc_status sdc__json_only(const struct sdc_json *v, const char *where,
                               const char *const keys[], size_t n,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* ---- writer ---- */

struct sdc_jw {
    struct sdc_buf *out; /* borrowed; appended to */
    bool comma;          /* a comma is due before the next value or key */
};

struct sdc_jw sdc__jw(struct sdc_buf *out);
void sdc__jw_obj(struct sdc_jw *w);
void sdc__jw_obj_end(struct sdc_jw *w);
void sdc__jw_arr(struct sdc_jw *w);
void sdc__jw_arr_end(struct sdc_jw *w);
void sdc__jw_key(struct sdc_jw *w, const char *key);
void sdc__jw_str(struct sdc_jw *w, const char *s); /* NULL writes null; bad UTF-8 becomes U+FFFD */
void sdc__jw_i64(struct sdc_jw *w, int64_t v);
void sdc__jw_u64(struct sdc_jw *w, uint64_t v); /* above INT64_MAX as a string of digits */
void sdc__jw_f64(struct sdc_jw *w, double v);
void sdc__jw_bool(struct sdc_jw *w, bool v);
void sdc__jw_null(struct sdc_jw *w);

/* key and value in one call */
void sdc__jw_kstr(struct sdc_jw *w, const char *key, const char *s);
void sdc__jw_ki64(struct sdc_jw *w, const char *key, int64_t v);
void sdc__jw_ku64(struct sdc_jw *w, const char *key, uint64_t v);
void sdc__jw_kf64(struct sdc_jw *w, const char *key, double v);
void sdc__jw_kbool(struct sdc_jw *w, const char *key, bool v);

/* "jansson built VERSION, running VERSION" of the library behind this file. */
void sdc__json_library(char *text, size_t size);

#endif
