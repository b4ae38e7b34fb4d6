/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that people gave, from the object graph of an object-based checkpoint: a scalar string
 * tensor that holds a TrackableObjectGraph (tensorflow,
 * core/protobuf/trackable_object_graph.proto):
 *
 *     message TrackableObjectGraph {
 *         repeated TrackableObject nodes = 1;
 *     }
 *     TrackableObject: attributes = 2 { name = 1, full_name = 2, checkpoint_key = 3 }
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/fmt/tensorbundle.h"
#include "ckpt/proto.h"

enum { GRAPH_NODES = 1, NODE_ATTRIBUTES = 2, ATTRIBUTE_FULL_NAME = 2, ATTRIBUTE_KEY = 3 };

struct alias {
    char *name; /* owned */
    size_t entry;
};

struct aliases {
    struct alias *at;
    size_t n, cap;
};

static enum sdc_status keep(struct aliases *list, const unsigned char *name, size_t len,
                            size_t entry, struct sdc_error *err) {
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 32;
        struct alias *more = sdc__realloc(list->at, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the names of the object graph");
        list->at = more;
        list->cap = cap;
    }
    char *copy = sdc__strndup((const char *)name, len);
    if (!copy)
        return SDC_NOMEM(err, "the names of the object graph");
    list->at[list->n++] = (struct alias){copy, entry};
    return SDC_OK;
}

/* *bad: the bytes are not such a message */
static enum sdc_status read_attribute(const struct sdc_sst *index, const size_t *entry_of,
                                      const struct sdc_proto_field *attribute, struct aliases *list,
                                      bool *bad, struct sdc_error *err) {
    struct sdc_proto p = sdc__proto(attribute->bytes, attribute->len);
    struct sdc_proto_field f, key = {0}, name = {0};
    enum sdc_proto_result r;
    while ((r = sdc__proto_next(&p, &f)) == SDC_PROTO_FIELD) {
        if (f.wire == SDC_PROTO_BYTES && f.number == ATTRIBUTE_FULL_NAME)
            name = f;
        if (f.wire == SDC_PROTO_BYTES && f.number == ATTRIBUTE_KEY)
            key = f;
    }
    *bad = *bad || r == SDC_PROTO_BAD;
    if (r == SDC_PROTO_BAD || !key.bytes || name.len == 0 || name.len > SDC_MAX_NAME ||
        memchr(name.bytes, 0, name.len))
        return SDC_OK;
    const struct sdc_sst_entry *e = sdc__sst_find(index, key.bytes, key.len);
    if (!e || entry_of[e - index->entries] == SIZE_MAX)
        return SDC_OK;
    return keep(list, name.bytes, name.len, entry_of[e - index->entries], err);
}

static enum sdc_status read_graph(const struct sdc_sst *index, const size_t *entry_of,
                                  const void *graph, size_t len, struct aliases *list, bool *bad,
                                  struct sdc_error *err) {
    struct sdc_proto p = sdc__proto(graph, len);
    struct sdc_proto_field node, f;
    enum sdc_proto_result r;
    while ((r = sdc__proto_next(&p, &node)) == SDC_PROTO_FIELD) {
        if (node.number != GRAPH_NODES || node.wire != SDC_PROTO_BYTES)
            continue;
        struct sdc_proto q = sdc__proto(node.bytes, node.len);
        while ((r = sdc__proto_next(&q, &f)) == SDC_PROTO_FIELD)
            if (f.number == NODE_ATTRIBUTES && f.wire == SDC_PROTO_BYTES)
                SDC_TRY(read_attribute(index, entry_of, &f, list, bad, err));
        *bad = *bad || r == SDC_PROTO_BAD;
    }
    *bad = *bad || r == SDC_PROTO_BAD;
    return SDC_OK;
}

static int by_name(const void *a, const void *b) {
    const struct alias *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : (x->entry > y->entry) - (x->entry < y->entry);
}

/* A name of two tensors, or of another tensor's key, would name neither. */
static enum sdc_status give(struct sdc_ckpt *ckpt, const struct sdc_sst *index,
                            struct aliases *list, struct sdc_error *err) {
    if (list->n > 1)
        qsort(list->at, list->n, sizeof *list->at, by_name);
    for (size_t i = 0, j; i < list->n; i = j) {
        const struct alias *a = &list->at[i];
        for (j = i + 1; j < list->n && strcmp(list->at[j].name, a->name) == 0; j++)
            ;
        if (list->at[j - 1].entry == a->entry && !sdc__sst_find(index, a->name, strlen(a->name)))
            SDC_TRY(sdc__entry_alias(&ckpt->entries[a->entry], a->name, err));
    }
    return SDC_OK;
}

enum sdc_status sdc__tb_graph_names(struct sdc_ckpt *ckpt, const struct sdc_sst *index,
                                    const size_t *entry_of, const void *graph, size_t len,
                                    struct sdc_error *err) {
    struct aliases list = {0};
    bool bad = false;
    enum sdc_status st = read_graph(index, entry_of, graph, len, &list, &bad, err);
    if (st == SDC_OK)
        st = give(ckpt, index, &list, err);
    if (st == SDC_OK && bad)
        st = sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                "the object graph is damaged: some tensors lack their own names");
    for (size_t i = 0; i < list.n; i++)
        sdc__free(list.at[i].name);
    sdc__free(list.at);
    return st;
}
