/* SPDX-License-Identifier: Apache-2.0
 *
 * Aligned tables and counts for people. Not for programs: those read --json.
 *
 *     struct sdc_text_table t = {.columns = "lr"};
 *     sdc_text_cell(&t, "%s", name);
 *     sdc_text_count(&t, n);
 *     st = sdc_text_table_print(&t, cli->out, &err);
 */
#ifndef SDC_CLI_TEXT_TABLE_H
#define SDC_CLI_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"
#include "sdc/status.h"

struct sdc_text_table {
    const char *columns;  /* one letter each: 'l' or 'r' */
    struct sdc_buf cells; /* each with its NUL, row by row */
    size_t n_cells;
};

/* Names from files may hold anything: control characters are shown as '?'. */
void sdc_text_cell(struct sdc_text_table *t, const char *fmt, ...) SDC_PRINTF(2, 3);
/* A number with its thousands apart: 61,706. */
void sdc_text_count(struct sdc_text_table *t, uint64_t n);
/* Prints the rows, indented by two, and releases the table. The last row may be short. Very wide
 * cells push the rest of their row aside and do not widen their column. */
enum sdc_status sdc_text_table_print(struct sdc_text_table *t, FILE *out,
                                     struct sdc_error *err) SDC_MUST_CHECK;

#define SDC_TEXT_COUNT 32
/* "61,706" */
const char *sdc_text_of_count(uint64_t n, char text[SDC_TEXT_COUNT]);
/* "512 B", "1.5 KiB", "3.2 GiB" */
const char *sdc_text_of_bytes(uint64_t n, char text[SDC_TEXT_COUNT]);
/* "lsb:0,lsb:2-5" of the bits set in mask, as --bits takes it; cleared first. */
void sdc_text_of_bits(uint64_t mask, struct sdc_buf *text);
/* Appends a word as a shell reads it back, quoted where need be. */
void sdc_text_of_word(const char *word, struct sdc_buf *out);
/* "s" or "" */
const char *sdc_text_plural(uint64_t n);

#endif
