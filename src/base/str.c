/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void sdc__buf_release(struct sdc_buf *b) {
    sdc__free(b->data);
    *b = (struct sdc_buf)SDC_BUF_INIT;
}

void sdc__buf_clear(struct sdc_buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

/* Makes room for extra more bytes and the NUL. */
static bool grow(struct sdc_buf *b, size_t extra) {
    if (b->failed)
        return false;
    size_t need;
    if (__builtin_add_overflow(b->len, extra, &need) || need == SIZE_MAX ||
        (b->max && need > b->max)) {
        b->failed = true;
        return false;
    }
    if (need + 1 <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need + 1)
        cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
    char *data = sdc__realloc(b->data, cap, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void sdc__buf_append(struct sdc_buf *b, const void *data, size_t len) {
    if (!grow(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

char *sdc__buf_room(struct sdc_buf *b, size_t n) {
    return grow(b, n) ? b->data + b->len : NULL;
}

void sdc__buf_took(struct sdc_buf *b, size_t n) {
    b->len += n;
    b->data[b->len] = '\0';
}

void sdc__buf_puts(struct sdc_buf *b, const char *s) {
    sdc__buf_append(b, s, strlen(s));
}

void sdc__buf_putc(struct sdc_buf *b, char c) {
    sdc__buf_append(b, &c, 1);
}

SDC_PRINTF(2, 0)
static void buf_vprintf(struct sdc_buf *b, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    if (len < 0) {
        b->failed = true;
    } else if (grow(b, (size_t)len)) {
        vsnprintf(b->data + b->len, (size_t)len + 1, fmt, again);
        b->len += (size_t)len;
    }
    va_end(again);
}

void sdc__buf_printf(struct sdc_buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    buf_vprintf(b, fmt, args);
    va_end(args);
}

char *sdc__buf_take(struct sdc_buf *b) {
    if (!b->failed && !b->data)
        sdc__buf_append(b, "", 0);
    if (b->failed) {
        sdc__buf_release(b);
        return NULL;
    }
    char *data = b->data;
    *b = (struct sdc_buf)SDC_BUF_INIT;
    return data;
}

char *sdc__asprintf(const char *fmt, ...) {
    struct sdc_buf b = SDC_BUF_INIT;
    va_list args;
    va_start(args, fmt);
    buf_vprintf(&b, fmt, args);
    va_end(args);
    return sdc__buf_take(&b);
}

bool sdc__glob_match(const char *pattern, const char *name) {
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

unsigned sdc__edit_distance(const char *a, const char *b) {
    enum { MAX = 64 };
    size_t la = strlen(a), lb = strlen(b);
    if (la > MAX || lb > MAX)
        return UINT32_MAX;
    /* three rows of the optimal string alignment table: before the last, last, this one */
    unsigned rows[3][MAX + 1];
    for (size_t j = 0; j <= lb; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= la; i++) {
        unsigned *cur = rows[i % 3], *prev = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        cur[0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            unsigned best = prev[j - 1] + (a[i - 1] != b[j - 1]);
            if (prev[j] + 1 < best)
                best = prev[j] + 1;
            if (cur[j - 1] + 1 < best)
                best = cur[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            cur[j] = best;
        }
    }
    return rows[la % 3][lb];
}

const char *sdc__nearest(const char *word, const char *const candidates[], size_t n) {
    const char *best = NULL;
    unsigned best_distance = (unsigned)(strlen(word) / 3 + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned distance = sdc__edit_distance(word, candidates[i]);
        if (distance <= best_distance && (!best || distance < best_distance)) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}

bool sdc__parse_u64(const char *s, unsigned long long *out) {
    if (!isdigit((unsigned char)s[0]))
        return false;
    int base = s[0] == '0' && (s[1] == 'x' || s[1] == 'X') ? 16 : 10;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(s, &end, base);
    if (errno || *end || end == s)
        return false;
    *out = value;
    return true;
}

bool sdc__parse_i64(const char *s, long long *out) {
    bool negative = s[0] == '-';
    unsigned long long magnitude;
    if (!sdc__parse_u64(s + negative, &magnitude))
        return false;
    if (magnitude > (unsigned long long)INT64_MAX + negative)
        return false;
    *out = negative ? (long long)(0 - magnitude) : (long long)magnitude;
    return true;
}

bool sdc__parse_f64(const char *s, double *out) {
    if (!*s || isspace((unsigned char)*s))
        return false;
    char *end;
    errno = 0;
    double value = strtod(s, &end);
    /* ERANGE is also set for subnormal results, which are fine */
    if (*end || end == s || (errno == ERANGE && (value > 1.0 || value < -1.0)))
        return false;
    *out = value;
    return true;
}

void sdc__hex_encode(const void *data, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool sdc__hex_decode(const char *hex, size_t n, void *out) {
    unsigned char *bytes = out;
    if (strlen(hex) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}
