/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing byte buffer with a maximum size and a sticky failure flag: append freely, check once.
 * One thread per object.
 *
 *     struct sdc_buf b = SDC_BUF_INIT;
 *     sdc__buf_printf(&b, "%s/%s", dir, name);
 *     char *path = sdc__buf_take(&b);       NULL: no memory; free with sdc__free
 */
#ifndef SDC_BASE_STR_H
#define SDC_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

#include "sdc/status.h"

struct sdc_buf {
    char *data; /* NUL-terminated while data is not NULL; owned */
    size_t len; /* bytes before the NUL */
    size_t cap;
    size_t max;  /* 0 means no limit but memory */
    bool failed; /* an append failed (memory or max); contents are then incomplete */
};

#define SDC_BUF_INIT                                                                               \
    { 0 }

void sdc__buf_release(struct sdc_buf *b); /* frees; b is then as after SDC_BUF_INIT */
void sdc__buf_clear(struct sdc_buf *b);   /* len = 0, keeps memory, forgets a failure */
void sdc__buf_append(struct sdc_buf *b, const void *data, size_t len);
void sdc__buf_puts(struct sdc_buf *b, const char *s);
void sdc__buf_putc(struct sdc_buf *b, char c);
/* Room for n more bytes at the end, to be filled by the caller, who then says how many it took;
 * NULL where the buffer has failed. */
char *sdc__buf_room(struct sdc_buf *b, size_t n) SDC_MUST_CHECK;
void sdc__buf_took(struct sdc_buf *b, size_t n);
void sdc__buf_printf(struct sdc_buf *b, const char *fmt, ...) SDC_PRINTF(2, 3);
/* Hands the text over (free with sdc__free) and resets b; NULL if an append had failed. */
char *sdc__buf_take(struct sdc_buf *b) SDC_MUST_CHECK;

/* printf into fresh memory; NULL: no memory. Free with sdc__free. */
char *sdc__asprintf(const char *fmt, ...) SDC_PRINTF(1, 2) SDC_MUST_CHECK;

/* Shell-style match with * and ? over the whole name; '/' is an ordinary character. */
bool sdc__glob_match(const char *pattern, const char *name);

/* Number of single-character edits (insert, delete, replace, swap of neighbours) between two words;
 * for "did you mean". Words over 64 bytes count as far apart. */
unsigned sdc__edit_distance(const char *a, const char *b);
/* The nearest of the candidates, or NULL if none is near enough (a third of the word) to suggest.
 */
const char *sdc__nearest(const char *word, const char *const candidates[], size_t n);

/* Whole-string number parsing: no leading blanks, no trailing bytes, range-checked; false on
 * failure
 * (*out untouched). u64 and i64 accept 0x. */
bool sdc__parse_u64(const char *s, unsigned long long *out);
bool sdc__parse_i64(const char *s, long long *out);
bool sdc__parse_f64(const char *s, double *out);

/* Lower-case hex, two digits a byte, in memory order; out holds 2*n + 1 bytes. */
void sdc__hex_encode(const void *data, size_t n, char *out);
/* Decodes exactly n bytes from 2*n digits of either case; false if anything else is found. */
bool sdc__hex_decode(const char *hex, size_t n, void *out);

#endif
