/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/text_table.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"

/* Characters shown: bytes that do not continue a UTF-8 sequence. */
static size_t width_of(const char *text) {
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void sdc_text_cell(struct sdc_text_table *t, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : sdc__alloc((size_t)len + 1, 1);
    if (!text) {
        t->cells.failed = true;
    } else {
        vsnprintf(text, (size_t)len + 1, fmt, again);
        for (char *c = text; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 0x7f)
                *c = '?';
        sdc__buf_append(&t->cells, text, (size_t)len + 1);
    }
    va_end(again);
    sdc__free(text);
    t->n_cells++;
}

void sdc_text_count(struct sdc_text_table *t, uint64_t n) {
    char text[SDC_TEXT_COUNT];
    sdc_text_cell(t, "%s", sdc_text_of_count(n, text));
}

enum { MAX_COLUMNS = 16, WIDE = 64 };

static void print_rows(const struct sdc_text_table *t, const size_t *widths, FILE *out) {
    size_t n_columns = strlen(t->columns), blanks = 2;
    const char *cell = t->cells.data;
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t column = i % n_columns, width = width_of(cell);
        size_t pad = width < widths[column] ? widths[column] - width : 0;
        if (t->columns[column] == 'r')
            blanks += pad;
        /* blanks are printed before text only, so that no line ends in them */
        if (*cell)
            fprintf(out, "%*s%s", (int)blanks, "", cell);
        blanks = (*cell ? 0 : blanks) + 2 + (t->columns[column] == 'l' ? pad : 0);
        if (column + 1 == n_columns || i + 1 == t->n_cells) {
            fputc('\n', out);
            blanks = 2;
        }
        cell += strlen(cell) + 1;
    }
}

enum sdc_status sdc_text_table_print(struct sdc_text_table *t, FILE *out, struct sdc_error *err) {
    size_t widths[MAX_COLUMNS] = {0}, n_columns = strlen(t->columns);
    enum sdc_status st = SDC_OK;
    if (t->cells.failed || n_columns > MAX_COLUMNS) {
        st = SDC_NOMEM(err, "a table");
    } else if (t->n_cells > 0) {
        const char *cell = t->cells.data;
        for (size_t i = 0; i < t->n_cells; i++) {
            size_t width = width_of(cell);
            if (width > widths[i % n_columns] && width <= WIDE)
                widths[i % n_columns] = width;
            cell += strlen(cell) + 1;
        }
        print_rows(t, widths, out);
    }
    sdc__buf_release(&t->cells);
    t->n_cells = 0;
    return st;
}

const char *sdc_text_of_count(uint64_t n, char text[SDC_TEXT_COUNT]) {
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

const char *sdc_text_of_bytes(uint64_t n, char text[SDC_TEXT_COUNT]) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (n < 1024) {
        snprintf(text, SDC_TEXT_COUNT, "%llu B", (unsigned long long)n);
        return text;
    }
    double size = (double)n / 1024;
    size_t unit = 0;
    for (; size >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        size /= 1024;
    snprintf(text, SDC_TEXT_COUNT, "%.1f %s", size, units[unit]);
    return text;
}

void sdc_text_of_bits(uint64_t mask, struct sdc_buf *text) {
    sdc__buf_clear(text);
    for (unsigned bit = 0; bit < 64; bit++) {
        unsigned last = bit;
        if (!(mask >> bit & 1))
            continue;
        while (last < 63 && mask >> (last + 1) & 1)
            last++;
        sdc__buf_printf(text, "%slsb:%u", text->len ? "," : "", bit);
        if (last > bit)
            sdc__buf_printf(text, "-%u", last);
        bit = last;
    }
}

void sdc_text_of_word(const char *word, struct sdc_buf *out) {
    bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789-_./+=:,@%")];
    if (plain) {
        sdc__buf_puts(out, word);
        return;
    }
    sdc__buf_putc(out, '\'');
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            sdc__buf_puts(out, "'\\''");
        else
            sdc__buf_putc(out, *c);
    sdc__buf_putc(out, '\'');
}

const char *sdc_text_plural(uint64_t n) {
    return n == 1 ? "" : "s";
}
