/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows libyaml. Events rather than its document nodes, since those no longer
 * tell an alias from a second mention.
 */
#include "camp/spec_node.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "base/alloc.h"
#include "base/str.h"
#include "camp/spec.h"

enum sdc_status sdc__spec_error(struct sdc_error *err, enum sdc_status status, const char *what,
                                int line, int column, const char *fmt, ...) {
    char message[SDC_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (line <= 0)
        return SDC_ERR(err, status, "%s: %s", what, message);
    return SDC_ERR(err, status, "%s:%d:%d: %s", what, line, column, message);
}

void sdc__node_free(struct sdc_node *node) {
    if (!node)
        return;
    for (size_t i = 0; i < node->n; i++) {
        sdc__node_free(node->items[i]);
        if (node->keys)
            sdc__node_free(node->keys[i]);
    }
    sdc__free(node->items);
    sdc__free(node->keys);
    sdc__free(node->text);
    sdc__free(node);
}

bool sdc__node_is_null(const struct sdc_node *node) {
    return node->kind == SDC_NODE_SCALAR && !node->quoted &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 ||
            strcmp(node->text, "null") == 0);
}

void sdc__node_describe(const struct sdc_node *node, char *text, size_t size) {
    double number;
    if (node->kind == SDC_NODE_MAPPING)
        snprintf(text, size, "a mapping");
    else if (node->kind == SDC_NODE_SEQUENCE)
        snprintf(text, size, "a list");
    else if (sdc__node_is_null(node))
        snprintf(text, size, "nothing");
    else if (!node->quoted && sdc__parse_f64(node->text, &number))
        snprintf(text, size, "the number %.60s", node->text);
    else
        snprintf(text, size, "the text '%.60s'", node->text);
}

/* ---- from events ---- */

struct reader {
    yaml_parser_t parser;
    const char *what;
    size_t count;
    struct sdc_error *err;
};

static int line_of(yaml_mark_t mark) {
    return mark.line < 1000000000 ? (int)mark.line + 1 : 0;
}

static int column_of(yaml_mark_t mark) {
    return mark.column < 1000000000 ? (int)mark.column + 1 : 0;
}

static enum sdc_status next(struct reader *r, yaml_event_t *event) {
    if (yaml_parser_parse(&r->parser, event))
        return SDC_OK;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return SDC_NOMEM(r->err, "a spec");
    yaml_mark_t mark = r->parser.problem_mark;
    const char *problem = r->parser.problem ? r->parser.problem : "not YAML";
    if (r->parser.error == YAML_READER_ERROR)
        return SDC_ERR_AT(r->err, SDC_INVALID, r->parser.problem_offset, "%s: byte %zu: %s",
                          r->what, r->parser.problem_offset, problem);
    return sdc__spec_error(r->err, SDC_INVALID, r->what, line_of(mark), column_of(mark), "%s%s%s",
                           problem, r->parser.context ? ", " : "",
                           r->parser.context ? r->parser.context : "");
}

static enum sdc_status refuse(struct reader *r, const yaml_event_t *event, const char *what) {
    return sdc__spec_error(r->err, SDC_INVALID, r->what, line_of(event->start_mark),
                           column_of(event->start_mark), "%s are not allowed", what);
}

static enum sdc_status check_plain(struct reader *r, const yaml_event_t *event,
                                   const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor)
        return refuse(r, event, "anchors");
    if (tag)
        return refuse(r, event, "tags");
    return SDC_OK;
}

static enum sdc_status add(struct reader *r, struct sdc_node *to, struct sdc_node *key,
                           struct sdc_node *item) {
    struct sdc_node **items = sdc__realloc(to->items, to->n + 1, sizeof *items);
    if (items)
        to->items = items;
    struct sdc_node **keys = to->keys;
    if (key) {
        keys = sdc__realloc(to->keys, to->n + 1, sizeof *keys);
        if (keys)
            to->keys = keys;
    }
    if (!items || (key && !keys))
        return SDC_NOMEM(r->err, "a spec");
    to->items[to->n] = item;
    if (key)
        to->keys[to->n] = key;
    to->n++;
    return SDC_OK;
}

static enum sdc_status build(struct reader *r, const yaml_event_t *event, int depth,
                             struct sdc_node **out);

static enum sdc_status build_sequence(struct reader *r, int depth, struct sdc_node *node) {
    for (;;) {
        yaml_event_t event;
        SDC_TRY(next(r, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return SDC_OK;
        }
        struct sdc_node *item = NULL;
        enum sdc_status st = build(r, &event, depth, &item);
        yaml_event_delete(&event);
        if (st == SDC_OK)
            st = add(r, node, NULL, item);
        if (st != SDC_OK) {
            sdc__node_free(item);
            return st;
        }
    }
}

static enum sdc_status check_key(struct reader *r, const struct sdc_node *map,
                                 const struct sdc_node *key) {
    if (key->kind != SDC_NODE_SCALAR)
        return sdc__spec_error(r->err, SDC_INVALID, r->what, key->line, key->column,
                               "expected a key, found %s",
                               key->kind == SDC_NODE_MAPPING ? "a mapping" : "a list");
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i]->text, key->text) == 0)
            return sdc__spec_error(r->err, SDC_INVALID, r->what, key->line, key->column,
                                   "the key '%.100s' is here for the second time, first in line %d",
                                   key->text, map->keys[i]->line);
    return SDC_OK;
}

static enum sdc_status build_mapping(struct reader *r, int depth, struct sdc_node *node) {
    for (;;) {
        yaml_event_t event;
        SDC_TRY(next(r, &event));
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return SDC_OK;
        }
        struct sdc_node *key = NULL, *value = NULL;
        enum sdc_status st = build(r, &event, depth, &key);
        yaml_event_delete(&event);
        if (st == SDC_OK)
            st = check_key(r, node, key);
        if (st == SDC_OK)
            st = next(r, &event);
        if (st == SDC_OK) {
            st = build(r, &event, depth, &value);
            yaml_event_delete(&event);
        }
        if (st == SDC_OK)
            st = add(r, node, key, value);
        if (st != SDC_OK) {
            sdc__node_free(key);
            sdc__node_free(value);
            return st;
        }
    }
}

static enum sdc_status build_scalar(struct reader *r, const yaml_event_t *event,
                                    struct sdc_node *node) {
    const char *value = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    if (memchr(value, '\0', len))
        return refuse(r, event, "NUL characters");
    node->text = sdc__strndup(value, len);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return node->text ? SDC_OK : SDC_NOMEM(r->err, "a spec");
}

static enum sdc_status build(struct reader *r, const yaml_event_t *event, int depth,
                             struct sdc_node **out) {
    int line = line_of(event->start_mark), column = column_of(event->start_mark);
    if (event->type == YAML_ALIAS_EVENT)
        return refuse(r, event, "aliases");
    if (depth > SDC_NODE_MAX_DEPTH || ++r->count > SDC_NODE_MAX_COUNT)
        return sdc__spec_error(r->err, SDC_LIMIT, r->what, line, column, "%s",
                               depth > SDC_NODE_MAX_DEPTH ? "nested deeper than 16 levels"
                                                          : "more than 100000 values");
    struct sdc_node *node = sdc__calloc(1, sizeof *node);
    if (!node)
        return SDC_NOMEM(r->err, "a spec");
    node->line = line;
    node->column = column;
    enum sdc_status st;
    if (event->type == YAML_SCALAR_EVENT) {
        node->kind = SDC_NODE_SCALAR;
        st = check_plain(r, event, event->data.scalar.anchor, event->data.scalar.tag);
        if (st == SDC_OK)
            st = build_scalar(r, event, node);
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        node->kind = SDC_NODE_SEQUENCE;
        st = check_plain(r, event, event->data.sequence_start.anchor,
                         event->data.sequence_start.tag);
        if (st == SDC_OK)
            st = build_sequence(r, depth + 1, node);
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        node->kind = SDC_NODE_MAPPING;
        st = check_plain(r, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        if (st == SDC_OK)
            st = build_mapping(r, depth + 1, node);
    } else {
        st = sdc__spec_error(r->err, SDC_INVALID, r->what, line, column, "expected a value");
    }
    if (st != SDC_OK) {
        sdc__node_free(node);
        return st;
    }
    *out = node;
    return SDC_OK;
}

/* Stream start, document start, the root, document end, stream end. */
static enum sdc_status read_document(struct reader *r, struct sdc_node **root) {
    yaml_event_t event;
    for (;;) {
        SDC_TRY(next(r, &event));
        yaml_event_type_t type = event.type;
        enum sdc_status st = SDC_OK;
        bool end = type == YAML_STREAM_END_EVENT;
        if (type == YAML_DOCUMENT_START_EVENT && *root)
            st = refuse(r, &event, "several documents");
        else if (type == YAML_SCALAR_EVENT || type == YAML_SEQUENCE_START_EVENT ||
                 type == YAML_MAPPING_START_EVENT || type == YAML_ALIAS_EVENT)
            st = build(r, &event, 1, root);
        yaml_event_delete(&event);
        SDC_TRY(st);
        if (end)
            return SDC_OK;
    }
}

enum sdc_status sdc__node_parse(const char *text, size_t len, const char *what,
                                struct sdc_node **root, struct sdc_error *err) {
    struct reader r = {.what = what, .err = err};
    *root = NULL;
    if (!yaml_parser_initialize(&r.parser))
        return SDC_NOMEM(err, "a YAML parser");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    enum sdc_status st = read_document(&r, root);
    yaml_parser_delete(&r.parser);
    if (st == SDC_OK && !*root)
        st = sdc__spec_error(err, SDC_INVALID, what, 1, 1, "it is empty");
    if (st != SDC_OK) {
        sdc__node_free(*root);
        *root = NULL;
    }
    return st;
}

void sdc__spec_library(char *text, size_t size) {
    snprintf(text, size, "libyaml running %s", yaml_get_version_string());
}
