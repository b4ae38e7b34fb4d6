/* SPDX-License-Identifier: Apache-2.0
 *
 * Command-line options from tables: one table a command gives parsing, help, the JSON of the
 * interface and the tests that compare them. Parsing returns a status and never exits or prints.
 *
 * A command keeps its options in a struct of its own; each entry says where (offsetof). Defaults:
 * the struct starts zeroed, then each entry's `def` text is parsed as if it had been given.
 *
 * Accepted: --name value, --name=value, -o value, -ovalue, flags as --name and --no-name, "--" ends
 * the options, options and operands may be mixed. An unknown option suggests the nearest.
 */
#ifndef SDC_CLI_OPTIONS_H
#define SDC_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sdc/status.h"

enum sdc_opt_type {
    SDC_OPT_END,  /* ends a table */
    SDC_OPT_FLAG, /* bool */
    SDC_OPT_STR,  /* const char *, NULL if not given and no default; borrowed from argv */
    SDC_OPT_U64,  /* uint64_t within [min, max]; max 0 = no upper limit; also 0x… */
    SDC_OPT_F64,  /* double */
    SDC_OPT_ENUM, /* int, index into choices (NULL-terminated) */
    SDC_OPT_LIST, /* struct sdc_opt_list: every value in order */
    SDC_OPT_WORDS /* struct sdc_opt_words: (option name, value) in order, shared by several options
                     that another parser reads, such as the words of a fault choice */
};

struct sdc_opt {
    enum sdc_opt_type type;
    const char *name;  /* without dashes */
    char letter;       /* 0: none */
    size_t off;        /* offsetof the member */
    const char *value; /* what the value is called in help, such as "FILE"; NULL for flags; a WORDS
                          option with a NULL value is a flag and gives "true" */
    const char *def;   /* default as text; NULL: none */
    const char *help;  /* one line, no final period */
    uint64_t min, max; /* for U64 */
    const char *const *choices; /* for ENUM */
};

struct sdc_opt_list {
    const char **items; /* owned; the strings are borrowed from argv */
    size_t n;
};

struct sdc_opt_word {
    const char *name, *value;
};
struct sdc_opt_words {
    struct sdc_opt_word *items; /* owned; borrowed strings */
    size_t n;
};

/* Operands: what is left after the options. Owned array, borrowed strings. */
struct sdc_opt_operands {
    const char **items;
    size_t n;
};

/* Parses argv[0 .. argc-1] (without the command's name). args: the command's struct, zeroed.
 * common: options every command has (may be NULL), bound to common_args. SDC_USAGE, SDC_NO_MEMORY.
 * What was stored so far must be released with sdc_opt_release in any case. */
enum sdc_status sdc_opt_parse(int argc, const char *const argv[], const struct sdc_opt *table,
                              void *args, const struct sdc_opt *common, void *common_args,
                              struct sdc_opt_operands *operands,
                              struct sdc_error *err) SDC_MUST_CHECK;
/* Frees the lists that parsing made in args, and the operands. */
void sdc_opt_release(const struct sdc_opt *table, void *args, struct sdc_opt_operands *operands);

/* "-o, --output FILE" */
void sdc_help_option_head(const struct sdc_opt *o, char *text, size_t size);
/* Help lines of a table, one an option. */
void sdc_help_options(FILE *out, const struct sdc_opt *table);

#endif
