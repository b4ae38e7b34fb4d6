/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt/hdf5_links.h"

#include <string.h>

#include "base/alloc.h"

#define ROOT 0u

static bool grow(void **list, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return true;
    const size_t more = *cap ? *cap * 2 : 64;
    void *p = sdc__realloc(*list, more, size);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

/* Adds a text; *at: where it begins. false: it has a NUL inside, or no memory. */
static bool add_text(struct sdc_h5_tree *t, const char *text, size_t len, size_t *at) {
    *at = t->texts.len;
    if (len && memchr(text, 0, len))
        return false;
    sdc__buf_append(&t->texts, text, len);
    sdc__buf_putc(&t->texts, '\0');
    return !t->texts.failed;
}

/* ---- nodes ---- */

static size_t slot(const struct sdc_h5_tree *t, const uint32_t *table, size_t cap, uint64_t addr) {
    size_t i = (size_t)(addr * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (cap - 1);
    while (table[i] != 0 && t->nodes[table[i] - 1].addr != addr)
        i = (i + 1) & (cap - 1);
    return i;
}

static bool make_room(struct sdc_h5_tree *t) {
    if (t->n_nodes * 2 < t->cap_by_addr)
        return true;
    const size_t cap = t->cap_by_addr ? t->cap_by_addr * 2 : 256;
    uint32_t *table = sdc__calloc(cap, sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < t->n_nodes; i++)
        table[slot(t, table, cap, t->nodes[i].addr)] = (uint32_t)i + 1;
    sdc__free(t->by_addr);
    t->by_addr = table;
    t->cap_by_addr = cap;
    return true;
}

/* What a header is the header of, and what has to be asked about it. */
static enum sdc_status look_at(struct sdc_h5_file *f, struct sdc_h5_header *h,
                               struct sdc_h5_node *node, struct sdc_error *err) {
    SDC_TRY(sdc__h5_header_read(f, node->addr, h, err));
    node->kind = sdc__h5_is_group(h) ? SDC_H5_NODE_GROUP
                 : sdc__h5_is_set(h) ? SDC_H5_NODE_SET
                                     : SDC_H5_NODE_OTHER;
    if (node->kind != SDC_H5_NODE_SET)
        return SDC_OK;
    const struct sdc_h5_message *m = sdc__h5_find(h, SDC_H5_LAYOUT);
    if (m && m->len >= 3)
        node->chunked = h->text[m->at + (h->text[m->at] < 3 ? 2 : 1)] == SDC_H5_CHUNKED;
    node->later = m && m->len >= 1 && h->text[m->at] > 4;
    m = sdc__h5_find(h, SDC_H5_DATATYPE); /* flag 2: shared, so it is elsewhere */
    if (m && m->len >= 1)
        node->labelled = (h->text[m->at] & 15) == SDC_H5_OPAQUE || (m->flags & 2);
    node->later |= m && m->len >= 1 && !(m->flags & 2) && h->text[m->at] >> 4 > 4;
    return SDC_OK;
}

/* The node of an address, looked at if it is new. */
static enum sdc_status get_node(struct sdc_h5_file *f, struct sdc_h5_tree *t,
                                struct sdc_h5_header *h, uint64_t addr, uint32_t parent,
                                uint32_t *index, struct sdc_error *err) {
    if (!make_room(t) || !grow((void **)&t->nodes, t->n_nodes, &t->cap_nodes, sizeof *t->nodes))
        return SDC_NOMEM(err, f->path);
    uint32_t *entry = &t->by_addr[slot(t, t->by_addr, t->cap_by_addr, addr)];
    if (*entry == 0) {
        struct sdc_h5_node node = {.addr = addr, .parent = parent};
        SDC_TRY(look_at(f, h, &node, err));
        t->nodes[t->n_nodes] = node;
        *entry = (uint32_t)++t->n_nodes;
    }
    *index = *entry - 1;
    t->nodes[*index].n_in++;
    return SDC_OK;
}

/* ---- what the helper says about groups ---- */

static enum sdc_status take_link(struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                 struct sdc_h5_tree *t, struct sdc_h5_header *h, uint32_t group,
                                 struct sdc_wire *w, struct sdc_error *err) {
    struct sdc_h5_link link = {.type = (unsigned char)sdc__wire_get(w, 1)};
    const uint64_t addr = sdc__wire_get(w, 8);
    size_t n_name, n_target;
    const char *name = sdc__wire_text(w, &n_name), *target = sdc__wire_text(w, &n_target);
    if (!sdc__wire_ends(w) || link.type > SDC_LINK_OTHER)
        return sdc__h5_nonsense(proc, "a link", err);
    if (n_name >= SDC_MAX_NAME)
        return SDC_ERR(err, SDC_LIMIT, "%s: a name longer than %d bytes", f->path, SDC_MAX_NAME);
    if (t->n_links >= SDC_MAX_TENSORS)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %d links", f->path, SDC_MAX_TENSORS);
    if (!add_text(t, name, n_name, &link.name) || !add_text(t, target, n_target, &link.target))
        return t->texts.failed ? SDC_NOMEM(err, f->path)
                               : sdc__h5_nonsense(proc, "a name with a NUL", err);
    if (!grow((void **)&t->links, t->n_links, &t->cap_links, sizeof *t->links))
        return SDC_NOMEM(err, f->path);
    if (link.type == SDC_LINK_HARD)
        SDC_TRY(get_node(f, t, h, addr, group, &link.node, err));
    t->links[t->n_links++] = link;
    t->nodes[group].n++;
    return SDC_OK;
}

static enum sdc_status take_names(struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                  struct sdc_h5_tree *t, uint32_t group, struct sdc_wire *w,
                                  struct sdc_error *err) {
    struct sdc_h5_names list = {.node = group, .list = (unsigned char)sdc__wire_get(w, 1)};
    list.n = (size_t)sdc__wire_get(w, 4);
    list.texts = t->texts.len;
    if (list.n > w->len / 2)
        return sdc__h5_nonsense(proc, "a list of names", err);
    for (size_t i = 0; i < list.n; i++) {
        size_t len, at;
        const char *text = sdc__wire_text(w, &len);
        const char *nul = len ? memchr(text, 0, len) : NULL;
        if (!add_text(t, text, nul ? (size_t)(nul - text) : len, &at))
            return SDC_NOMEM(err, f->path);
    }
    if (!sdc__wire_ends(w) || list.list > SDC_NAMES_WEIGHTS)
        return sdc__h5_nonsense(proc, "a list of names", err);
    if (!grow((void **)&t->lists, t->n_lists, &t->cap_lists, sizeof *t->lists))
        return SDC_NOMEM(err, f->path);
    t->lists[t->n_lists++] = list;
    return SDC_OK;
}

/* The links of the groups in [from, to) of a list of nodes, in one question. */
static enum sdc_status ask_groups(struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                  struct sdc_h5_tree *t, struct sdc_h5_header *h,
                                  const uint32_t *groups, size_t n, struct sdc_error *err) {
    struct sdc_buf body = SDC_BUF_INIT;
    sdc__wire_put(&body, n, 4);
    for (size_t i = 0; i < n; i++)
        sdc__wire_put(&body, t->nodes[groups[i]].addr, 8);
    enum sdc_status st = sdc__h5_ask(proc, SDC_WIRE_LINKS, &body, NULL, 0, err);
    sdc__buf_release(&body);
    size_t at = 0; /* groups begun */
    while (st == SDC_OK) {
        enum sdc_wire_kind kind;
        struct sdc_wire w;
        SDC_TRY(sdc__h5_next(proc, &kind, &w, err));
        if (kind == SDC_WIRE_DONE && at == n)
            return SDC_OK;
        if (kind == SDC_WIRE_GROUP && at < n && sdc__wire_get(&w, 8) == t->nodes[groups[at]].addr &&
            sdc__wire_ends(&w))
            t->nodes[groups[at++]].first = (uint32_t)t->n_links;
        else if (kind == SDC_WIRE_LINK && at > 0)
            st = take_link(f, proc, t, h, groups[at - 1], &w, err);
        else if (kind == SDC_WIRE_NAMES && at > 0)
            st = take_names(f, proc, t, groups[at - 1], &w, err);
        else
            st = sdc__h5_nonsense(proc, "groups out of order", err);
    }
    return st;
}

static bool set_path(struct sdc_h5_tree *t, uint32_t group, const struct sdc_h5_link *link) {
    struct sdc_buf path = SDC_BUF_INIT;
    const char *parent = t->texts.data + t->nodes[group].path;
    const char *name = t->texts.data + link->name;
    sdc__buf_printf(&path, "%s%s%s", parent, *parent ? "/" : "", name);
    bool ok = !path.failed && add_text(t, path.data, path.len, &t->nodes[link->node].path);
    sdc__buf_release(&path);
    return ok;
}

/* Groups first found through these, in the order of their links; their paths are set. */
static enum sdc_status next_level(const struct sdc_h5_file *f, struct sdc_h5_tree *t,
                                  const uint32_t *groups, size_t n, uint32_t **next, size_t *n_next,
                                  struct sdc_error *err) {
    size_t cap = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sdc_h5_node g = t->nodes[groups[i]];
        for (uint32_t k = g.first; k < g.first + g.n; k++) {
            const struct sdc_h5_link *link = &t->links[k];
            struct sdc_h5_node *to = &t->nodes[link->node];
            if (link->type != SDC_LINK_HARD || to->kind != SDC_H5_NODE_GROUP || to->entered)
                continue;
            to->entered = true;
            to->parent = groups[i];
            if (strlen(t->texts.data + g.path) + strlen(t->texts.data + link->name) >=
                SDC_MAX_NAME - 1)
                return SDC_ERR(err, SDC_LIMIT, "%s: a name longer than %d bytes", f->path,
                               SDC_MAX_NAME);
            if (!set_path(t, groups[i], link) || !grow((void **)next, *n_next, &cap, sizeof **next))
                return SDC_NOMEM(err, f->path);
            (*next)[(*n_next)++] = link->node;
        }
    }
    return SDC_OK;
}

static enum sdc_status read_levels(struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                   struct sdc_h5_tree *t, struct sdc_h5_header *h,
                                   struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    size_t n = 1;
    uint32_t *level = sdc__calloc(1, sizeof *level);
    if (!level)
        return SDC_NOMEM(err, f->path);
    level[0] = ROOT;
    while (st == SDC_OK && n > 0) {
        uint32_t *next = NULL;
        size_t n_next = 0;
        for (size_t at = 0; st == SDC_OK && at < n; at += SDC_WIRE_BATCH)
            st = ask_groups(f, proc, t, h, level + at,
                            n - at < SDC_WIRE_BATCH ? n - at : SDC_WIRE_BATCH, err);
        if (st == SDC_OK)
            st = next_level(f, t, level, n, &next, &n_next, err);
        sdc__free(level);
        level = next;
        n = n_next;
    }
    sdc__free(level);
    return st;
}

/* ---- what has to be asked about datasets ---- */

static enum sdc_status ask_counts(const struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                  struct sdc_h5_tree *t, const uint32_t *sets, size_t n,
                                  struct sdc_buf *body, struct sdc_error *err) {
    struct sdc_wire w;
    (void)f;
    SDC_TRY(sdc__h5_call(proc, SDC_WIRE_COUNT, body, SDC_WIRE_COUNTS, &w, err));
    for (size_t i = 0; i < n; i++) {
        t->nodes[sets[i]].n_chunks = sdc__wire_get(&w, 8);
        t->nodes[sets[i]].stored = sdc__wire_get(&w, 8);
    }
    return sdc__wire_ends(&w) ? SDC_OK : sdc__h5_nonsense(proc, "counts", err);
}

static enum sdc_status ask_labels(const struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                  struct sdc_h5_tree *t, const uint32_t *sets, size_t n,
                                  struct sdc_buf *body, struct sdc_error *err) {
    struct sdc_wire w;
    SDC_TRY(sdc__h5_call(proc, SDC_WIRE_TEXTS, body, SDC_WIRE_TEXT_LIST, &w, err));
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *text = sdc__wire_text(&w, &len);
        const char *nul = len ? memchr(text, 0, len) : NULL;
        if (!add_text(t, text, nul ? (size_t)(nul - text) : len, &t->nodes[sets[i]].label))
            return SDC_NOMEM(err, f->path);
    }
    return sdc__wire_ends(&w) ? SDC_OK : sdc__h5_nonsense(proc, "texts", err);
}

static enum sdc_status ask_about_sets(const struct sdc_h5_file *f, struct sdc_h5_proc *proc,
                                      struct sdc_h5_tree *t, bool labels, struct sdc_error *err) {
    struct sdc_buf body = SDC_BUF_INIT;
    uint32_t *sets = sdc__alloc(SDC_WIRE_BATCH, sizeof *sets);
    enum sdc_status st = sets ? SDC_OK : SDC_NOMEM(err, f->path);
    for (size_t at = 0; st == SDC_OK && at < t->n_nodes;) {
        size_t n = 0;
        for (; at < t->n_nodes && n < SDC_WIRE_BATCH; at++)
            if (t->nodes[at].kind == SDC_H5_NODE_SET &&
                (labels ? t->nodes[at].labelled : t->nodes[at].chunked) &&
                (!t->nodes[at].later || sdc__h5_major(proc) >= 2))
                sets[n++] = (uint32_t)at;
        if (n == 0)
            break;
        sdc__wire_put(&body, n, 4);
        for (size_t i = 0; i < n; i++)
            sdc__wire_put(&body, t->nodes[sets[i]].addr, 8);
        st = labels ? ask_labels(f, proc, t, sets, n, &body, err)
                    : ask_counts(f, proc, t, sets, n, &body, err);
    }
    sdc__free(sets);
    sdc__buf_release(&body);
    return st;
}

enum sdc_status sdc__h5_tree_read(struct sdc_h5_file *f, struct sdc_h5_proc *proc, uint64_t root,
                                  struct sdc_h5_tree *t, struct sdc_error *err) {
    struct sdc_h5_header h = {0};
    uint32_t index;
    size_t empty;
    if (!add_text(t, "", 0, &empty))
        return SDC_NOMEM(err, f->path);
    enum sdc_status st = get_node(f, t, &h, root, ROOT, &index, err);
    if (st == SDC_OK && t->nodes[ROOT].kind != SDC_H5_NODE_GROUP)
        st = SDC_ERR_AT(err, SDC_INVALID, root, "%s: its root is not a group", f->path);
    if (st == SDC_OK) {
        t->nodes[ROOT].entered = true;
        st = read_levels(f, proc, t, &h, err);
    }
    if (st == SDC_OK)
        st = ask_about_sets(f, proc, t, false, err);
    if (st == SDC_OK)
        st = ask_about_sets(f, proc, t, true, err);
    sdc__h5_header_release(&h);
    return st;
}

void sdc__h5_tree_release(struct sdc_h5_tree *t) {
    for (size_t i = 0; i < t->n_names; i++)
        sdc__free(t->names[i].path);
    sdc__free(t->names);
    sdc__free(t->nodes);
    sdc__free(t->by_addr);
    sdc__free(t->links);
    sdc__free(t->lists);
    sdc__buf_release(&t->texts);
    *t = (struct sdc_h5_tree){0};
}
