/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML text as a tree of nodes that remember where they were written. One document of mappings,
 * sequences and scalars; anchors, aliases, tags and merge keys are refused, as are duplicate keys:
 * a spec means what it shows. Used by spec*.c, and by the program for the one other YAML file it
 * reads, a configuration of the published injector.
 */
#ifndef SDC_CAMP_SPEC_NODE_H
#define SDC_CAMP_SPEC_NODE_H

#include <stdbool.h>
#include <stddef.h>

#include "sdc/status.h"

enum sdc_node_kind { SDC_NODE_SCALAR, SDC_NODE_SEQUENCE, SDC_NODE_MAPPING };

#define SDC_NODE_MAX_DEPTH 16
#define SDC_NODE_MAX_COUNT 100000

struct sdc_node {
    enum sdc_node_kind kind;
    int line, column;        /* from 1 */
    char *text;              /* SCALAR: its value, UTF-8 without NUL; owned */
    bool quoted;             /* SCALAR: written in quotes, so never a number or null */
    struct sdc_node **items; /* SEQUENCE: items; MAPPING: values; owned */
    struct sdc_node **keys;  /* MAPPING: scalars; owned */
    size_t n;
};

/* SDC_INVALID or SDC_LIMIT as "WHAT:LINE:COLUMN: message". Free with sdc__node_free. */
enum sdc_status sdc__node_parse(const char *text, size_t len, const char *what,
                                struct sdc_node **root, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__node_free(struct sdc_node *node); /* accepts NULL */
/* "a mapping", "a list", "the text 'abc'", "the number 3", for messages. */
void sdc__node_describe(const struct sdc_node *node, char *text, size_t size);
/* A plain scalar that YAML reads as null. */
bool sdc__node_is_null(const struct sdc_node *node);

/* Sets err to "WHAT:LINE:COLUMN: message" of a place; returns status. */
enum sdc_status sdc__spec_error(struct sdc_error *err, enum sdc_status status, const char *what,
                                int line, int column, const char *fmt, ...) SDC_PRINTF(6, 7);

#endif
