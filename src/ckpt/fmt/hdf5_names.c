/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph of links to the names of datasets.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5_links.h"

#define MAX_HOPS  16 /* soft links on the way to one object */
#define MAX_NOTES 20 /* of one kind */

/* ---- finding ---- */

static const struct sdc_h5_link *find_link(const struct sdc_h5_tree *t, uint32_t group,
                                           const char *name, size_t len) {
    const struct sdc_h5_node *g = &t->nodes[group];
    uint32_t lo = g->first, hi = g->first + g->n; /* libhdf5 lists links by name */
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        const char *at = t->texts.data + t->links[mid].name;
        int c = strncmp(at, name, len);
        if (c == 0)
            c = at[len] != '\0';
        if (c == 0)
            return &t->links[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static bool find(const struct sdc_h5_tree *t, uint32_t group, const char *path, unsigned *hops,
                 uint32_t *node) {
    uint32_t at = *path == '/' ? 0 : group;
    while (*path) {
        const size_t len = strcspn(path, "/");
        if (len > 0 && !(len == 1 && *path == '.')) {
            const struct sdc_h5_link *link =
                t->nodes[at].kind == SDC_H5_NODE_GROUP ? find_link(t, at, path, len) : NULL;
            if (!link)
                return false;
            if (link->type == SDC_LINK_HARD)
                at = link->node;
            else if (link->type != SDC_LINK_SOFT || ++*hops > MAX_HOPS ||
                     !find(t, at, t->texts.data + link->target, hops, &at))
                return false;
        }
        path += len + (path[len] == '/');
    }
    *node = at;
    return true;
}

bool sdc__h5_tree_find(const struct sdc_h5_tree *t, uint32_t group, const char *path,
                       uint32_t *node) {
    unsigned hops = 0;
    return find(t, group, path, &hops, node);
}

/* ---- naming ---- */

struct naming {
    const struct sdc_h5_file *f;
    struct sdc_h5_tree *t;
    struct sdc_error *err;
    bool *inside; /* groups on the way, by node */
    char path[SDC_MAX_NAME];
    uint64_t steps; /* links that may still be looked at */
};

static enum sdc_status add_name(struct naming *n, const char *parent, const char *name,
                                uint32_t node, bool soft) {
    struct sdc_h5_tree *t = n->t;
    if (strlen(parent) + strlen(name) >= SDC_MAX_NAME)
        return SDC_ERR(n->err, SDC_LIMIT, "%s: a name longer than %d bytes", n->f->path,
                       SDC_MAX_NAME);
    if (t->n_names == t->cap_names) {
        const size_t cap = t->cap_names ? t->cap_names * 2 : 64;
        struct sdc_h5_name *more = sdc__realloc(t->names, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(n->err, n->f->path);
        t->names = more;
        t->cap_names = cap;
    }
    char *path = sdc__asprintf("%s%s%s", parent, *parent ? "/" : "", name);
    if (!path)
        return SDC_NOMEM(n->err, n->f->path);
    t->names[t->n_names++] = (struct sdc_h5_name){path, node, soft};
    return SDC_OK;
}

/* Every link of every group that leads to a dataset, under the group's first path. */
static enum sdc_status name_first(struct naming *n) {
    struct sdc_h5_tree *t = n->t;
    for (size_t g = 0; g < t->n_nodes; g++) {
        const struct sdc_h5_node *group = &t->nodes[g];
        if (group->kind != SDC_H5_NODE_GROUP)
            continue;
        for (uint32_t k = group->first; k < group->first + group->n; k++) {
            const struct sdc_h5_link *link = &t->links[k];
            const bool soft = link->type == SDC_LINK_SOFT;
            uint32_t node = link->node;
            if (soft && !sdc__h5_tree_find(t, (uint32_t)g, t->texts.data + link->target, &node))
                continue;
            if ((!soft && link->type != SDC_LINK_HARD) || t->nodes[node].kind != SDC_H5_NODE_SET)
                continue;
            SDC_TRY(
                add_name(n, t->texts.data + group->path, t->texts.data + link->name, node, soft));
        }
    }
    return SDC_OK;
}

/* All ways of hard links from this group on that enter no group twice; n->path is its path. */
static enum sdc_status name_ways(struct naming *n, uint32_t g, size_t len) {
    const struct sdc_h5_node group = n->t->nodes[g];
    n->inside[g] = true;
    for (uint32_t k = group.first; k < group.first + group.n; k++) {
        const struct sdc_h5_link link = n->t->links[k];
        const char *name = n->t->texts.data + link.name;
        const size_t n_name = strlen(name), sep = len > 0;
        if (link.type != SDC_LINK_HARD)
            continue;
        if (n->steps == 0 || len + sep + n_name >= sizeof n->path) {
            n->t->incomplete = true;
            continue;
        }
        n->steps--;
        const unsigned char kind = n->t->nodes[link.node].kind;
        if (kind == SDC_H5_NODE_SET) {
            SDC_TRY(add_name(n, n->path, name, link.node, false));
        } else if (kind == SDC_H5_NODE_GROUP && !n->inside[link.node]) {
            if (sep)
                n->path[len] = '/';
            memcpy(n->path + len + sep, name, n_name + 1);
            SDC_TRY(name_ways(n, link.node, len + sep + n_name));
            n->path[len] = '\0';
        }
    }
    n->inside[g] = false;
    return SDC_OK;
}

static int by_node(const void *a, const void *b) {
    const struct sdc_h5_name *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    if (x->soft != y->soft)
        return x->soft ? 1 : -1;
    return strcmp(x->path, y->path);
}

static void drop_doubles(struct sdc_h5_tree *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_names; i++) {
        const struct sdc_h5_name *last = n ? &t->names[n - 1] : NULL;
        if (last && last->node == t->names[i].node && strcmp(last->path, t->names[i].path) == 0)
            sdc__free(t->names[i].path);
        else
            t->names[n++] = t->names[i];
    }
    t->n_names = n;
}

enum sdc_status sdc__h5_tree_name(const struct sdc_h5_file *f, struct sdc_h5_tree *t,
                                  struct sdc_error *err) {
    struct naming *n = sdc__calloc(1, sizeof *n);
    bool again = false;
    if (!n)
        return SDC_NOMEM(err, f->path);
    n->f = f;
    n->t = t;
    n->err = err;
    n->steps = 16 * (uint64_t)t->n_links + 100000;
    enum sdc_status st = name_first(n);
    for (size_t i = 0; i < t->n_nodes; i++)
        again = again || (t->nodes[i].kind == SDC_H5_NODE_GROUP && t->nodes[i].n_in > 1);
    if (st == SDC_OK && again) {
        n->inside = sdc__calloc(t->n_nodes, sizeof *n->inside);
        st = n->inside ? name_ways(n, 0, 0) : SDC_NOMEM(err, f->path);
    }
    if (st == SDC_OK && t->n_names > 1)
        qsort(t->names, t->n_names, sizeof *t->names, by_node);
    if (st == SDC_OK)
        drop_doubles(t);
    sdc__free(n->inside);
    sdc__free(n);
    return st;
}

/* ---- notes ---- */

static enum sdc_status note_links(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *t,
                                  struct sdc_error *err) {
    size_t n_out = 0, n_nowhere = 0;
    for (size_t g = 0; g < t->n_nodes; g++) {
        const struct sdc_h5_node *group = &t->nodes[g];
        for (uint32_t k = group->first; k < group->first + group->n; k++) {
            const struct sdc_h5_link *l = &t->links[k];
            const char *name = t->texts.data + l->name, *target = t->texts.data + l->target;
            const char *parent = t->texts.data + group->path, *sep = *parent ? "/" : "";
            uint32_t node;
            if (l->type == SDC_LINK_EXTERNAL && n_out++ < MAX_NOTES)
                SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_SECURITY, err,
                                           "link %s%s%s leads to another file (%s): not followed",
                                           parent, sep, name, target));
            else if (l->type == SDC_LINK_OTHER && n_out++ < MAX_NOTES)
                SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_SECURITY, err,
                                           "link %s%s%s is of a kind of its own: not followed",
                                           parent, sep, name));
            else if (l->type == SDC_LINK_SOFT &&
                     !sdc__h5_tree_find(t, (uint32_t)g, target, &node) && n_nowhere++ < MAX_NOTES)
                SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                                           "soft link %s%s%s leads to nothing in this file (%s)",
                                           parent, sep, name, target));
        }
    }
    if (n_out > MAX_NOTES)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_SECURITY, err, "%zu links out of the file in all",
                                   n_out));
    return SDC_OK;
}

/* Keras 2: layer_names lists groups, weight_names of a layer's group lists datasets below it. */
static enum sdc_status note_lists(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *t,
                                  struct sdc_error *err) {
    size_t n_layers = 0, n_weights = 0, n_missing = 0;
    for (size_t i = 0; i < t->n_lists; i++) {
        const struct sdc_h5_names *list = &t->lists[i];
        const bool layers = list->list == SDC_NAMES_LAYERS;
        const char *name = t->texts.data + list->texts;
        for (size_t k = 0; k < list->n; k++, name += strlen(name) + 1) {
            uint32_t node = 0;
            bool there = sdc__h5_tree_find(t, list->node, name, &node) &&
                         t->nodes[node].kind == (layers ? SDC_H5_NODE_GROUP : SDC_H5_NODE_SET);
            n_layers += layers;
            n_weights += !layers;
            if (!there && n_missing++ < MAX_NOTES)
                SDC_TRY(sdc__ckpt_add_note(
                    ckpt, SDC_NOTE_WARNING, err, "group %s lists the %s \"%s\", which is not there",
                    list->node ? t->texts.data + t->nodes[list->node].path : "/",
                    layers ? "layer" : "weight", name));
        }
    }
    if (n_missing > MAX_NOTES)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%zu listed layers and weights are missing in all", n_missing));
    if (n_layers > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                                   "Keras lists %zu layers and %zu weights", n_layers, n_weights));
    return SDC_OK;
}

enum sdc_status sdc__h5_tree_notes(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *t,
                                   struct sdc_error *err) {
    SDC_TRY(note_links(ckpt, t, err));
    SDC_TRY(note_lists(ckpt, t, err));
    if (t->incomplete)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "groups are linked in so many ways that not all names of their "
                                   "datasets are listed"));
    return SDC_OK;
}
