/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/name_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "contract/name_rules.h"
#include "contract/names.h"
#include "io/io.h"

#define MAX_TEXT ((size_t)64 << 20) /* bytes of one file of rules */

static const char *const builtin_names[] = {
    [SDC__TORCH_KERAS] = "torch-keras", [SDC__KERAS_TORCH] = "keras-torch"};
#define N_BUILTINS (sizeof builtin_names / sizeof builtin_names[0])

const char *const *sdc_name_map_builtins(size_t *n) {
    *n = N_BUILTINS;
    return builtin_names;
}

/* ---- life ---- */

enum sdc_status sdc_name_map_new(struct sdc_name_map **map, struct sdc_error *err) {
    struct sdc_name_map *made = sdc__calloc(1, sizeof *made);
    if (!made)
        return SDC_NOMEM(err, "a name map");
    *map = made;
    return SDC_OK;
}

void sdc_name_map_free(struct sdc_name_map *map) {
    if (!map)
        return;
    for (size_t i = 0; i < map->n_rules; i++)
        sdc__name_rule_release(&map->rules[i]);
    sdc__free(map->rules);
    sdc__free(map);
}

enum sdc_status sdc_name_map_add_text(struct sdc_name_map *map, const char *text, size_t len,
                                      const char *what, struct sdc_error *err) {
    return sdc__name_rules_parse(map, text, len, what, err);
}

static enum sdc_status add_builtin(struct sdc_name_map *map, enum sdc__builtin builtin) {
    for (size_t i = 0; i < map->n_builtins; i++)
        if (map->builtins[i] == builtin)
            return SDC_OK;
    map->builtins[map->n_builtins++] = builtin;
    return SDC_OK;
}

enum sdc_status sdc_name_map_add(struct sdc_name_map *map, const char *word,
                                 struct sdc_error *err) {
    for (size_t i = 0; i < N_BUILTINS; i++)
        if (strcmp(word, builtin_names[i]) == 0)
            return add_builtin(map, (enum sdc__builtin)i);
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st = sdc__read_whole(word, MAX_TEXT, &text, err);
    if (st == SDC_NOT_FOUND)
        sdc_error_prefix(err, "neither a built-in map (torch-keras, keras-torch) nor a file");
    if (st == SDC_OK)
        st = sdc__name_rules_parse(map, text.data ? text.data : "", text.len, word, err);
    sdc__buf_release(&text);
    return st;
}

/* ---- names of the second checkpoint ---- */

/* A name in three forms: as it is, without what wrappers and formats add, and without its part. */
enum { EXACT, PLAIN, BARE, N_LEVELS };

struct forms {
    const char *level[N_LEVELS]; /* NULL where it equals the one before */
    char *plain;                 /* owned; level[PLAIN] and level[BARE] point into it */
    enum sdc_part part;
};

struct entry {
    const char *name; /* borrowed from forms */
    size_t desc;
    int level;
};

struct names {
    struct forms *forms;
    struct entry *entries;
    size_t n, n_entries;
};

static enum sdc_status make_forms(const char *name, struct forms *f, struct sdc_error *err) {
    enum sdc_part part;
    *f = (struct forms){.plain = sdc__name_plain(name)};
    if (!f->plain)
        return SDC_NOMEM(err, "a name map");
    const char *bare = f->plain + sdc__name_part_prefix(f->plain, &part);
    f->part = part;
    f->level[EXACT] = name;
    f->level[PLAIN] = strcmp(f->plain, name) != 0 ? f->plain : NULL;
    f->level[BARE] = bare != f->plain ? bare : NULL;
    return SDC_OK;
}

static int compare_entries(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0)
        order = x->level - y->level;
    return order ? order : (x->desc > y->desc) - (x->desc < y->desc);
}

static void names_release(struct names *names) {
    for (size_t i = 0; names->forms && i < names->n; i++)
        sdc__free(names->forms[i].plain);
    sdc__free(names->forms);
    sdc__free(names->entries);
}

static enum sdc_status names_init(struct names *names, const struct sdc_tensor_desc *const descs[],
                                  size_t n, struct sdc_error *err) {
    *names = (struct names){.forms = sdc__calloc(n, sizeof *names->forms), .n = n};
    size_t room;
    if (__builtin_mul_overflow(n, (size_t)N_LEVELS, &room))
        return SDC_NOMEM(err, "a name map");
    names->entries = sdc__calloc(room, sizeof *names->entries);
    if (!names->forms || !names->entries)
        return SDC_NOMEM(err, "a name map");
    for (size_t i = 0; i < n; i++) {
        SDC_TRY(make_forms(descs[i]->name, &names->forms[i], err));
        for (int level = 0; level < N_LEVELS; level++)
            if (names->forms[i].level[level])
                names->entries[names->n_entries++] =
                    (struct entry){names->forms[i].level[level], i, level};
    }
    qsort(names->entries, names->n_entries, sizeof *names->entries, compare_entries);
    return SDC_OK;
}

/* First entry that is not before (name, level). */
static size_t lower_bound(const struct names *names, const char *name, int level) {
    size_t low = 0, high = names->n_entries;
    struct entry wanted = {name, 0, level};
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_entries(&names->entries[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool parts_agree(enum sdc_part a, enum sdc_part b) {
    return a == b || a == SDC_PART_NONE || b == SDC_PART_NONE;
}

/* Tensors that have this name at this level, at most two of them. */
static unsigned look_at(const struct names *names, const struct forms *f, int from_level,
                        int to_level, size_t found[2]) {
    unsigned n = 0;
    const char *name = f->level[from_level];
    if (!name)
        return 0;
    for (size_t i = lower_bound(names, name, to_level);
         n < 2 && i < names->n_entries && names->entries[i].level == to_level &&
         strcmp(names->entries[i].name, name) == 0;
         i++)
        if (parts_agree(f->part, names->forms[names->entries[i].desc].part))
            found[n++] = names->entries[i].desc;
    return n;
}

/* By the most literal level at which there is one; two at the same level are ambiguous. */
static unsigned look_up(const struct names *names, const struct forms *f, size_t found[2]) {
    for (int sum = 0; sum <= 2 * (N_LEVELS - 1); sum++)
        for (int from = 0; from < N_LEVELS; from++) {
            int to = sum - from;
            unsigned n = to >= 0 && to < N_LEVELS ? look_at(names, f, from, to, found) : 0;
            if (n)
                return n;
        }
    return 0;
}

/* ---- links ---- */

struct resolving {
    const struct sdc_name_map *map; /* may be NULL */
    const struct sdc_tensor_desc *const *from, *const *to;
    struct names names; /* of to */
    bool whole;         /* from is all of its checkpoint */
};

static enum sdc_status refuse(struct sdc_name_link *link, char *why, struct sdc_error *err) {
    link->why = why;
    return why ? SDC_OK : SDC_NOMEM(err, "a name map");
}

static enum sdc_status join(const struct resolving *r, size_t i, size_t to,
                            const struct sdc__axis_rule *rule, struct sdc_name_link *link,
                            struct sdc_error *err) {
    SDC_TRY(sdc__name_fit(r->from[i], r->to[to], rule, link, err));
    if (!link->why)
        link->to = to;
    return SDC_OK;
}

static enum sdc_status apply_rule(const struct resolving *r, const struct sdc__name_rule *rule,
                                  size_t i, const char *target, struct sdc_name_link *link,
                                  struct sdc_error *err) {
    if (!target) {
        link->left_out = true;
        return refuse(link, sdc__asprintf("%s leaves it out", rule->place), err);
    }
    struct forms f;
    size_t found[2];
    enum sdc_status st = make_forms(target, &f, err);
    if (st == SDC_OK) {
        unsigned n = look_up(&r->names, &f, found);
        if (n == 1)
            st = join(r, i, found[0], &rule->axes, link, err);
        else if (n == 0)
            st = refuse(link, sdc__asprintf("%s: no tensor is named '%s'", rule->place, target),
                        err);
        else
            st = refuse(link,
                        sdc__asprintf("%s: '%s' may be %s or %s", rule->place, target,
                                      r->to[found[0]]->name, r->to[found[1]]->name),
                        err);
    }
    sdc__free(f.plain);
    return st;
}

/* The first rule that fits any form of the name. */
static enum sdc_status link_by_rules(const struct resolving *r, const struct forms *f, size_t i,
                                     struct sdc_name_link *link, struct sdc_error *err) {
    for (size_t k = 0; r->map && k < r->map->n_rules; k++) {
        const struct sdc__name_rule *rule = &r->map->rules[k];
        for (int level = 0; !rule->layer && level < N_LEVELS; level++) {
            char *target;
            bool ok;
            if (!f->level[level] || !sdc__name_rule_match(rule, f->level[level], &target, &ok))
                continue;
            if (!ok)
                return SDC_NOMEM(err, "a name map");
            link->ruled = true;
            enum sdc_status st = apply_rule(r, rule, i, target, link, err);
            sdc__free(target);
            return st;
        }
    }
    return SDC_OK;
}

static enum sdc_status link_by_name(const struct resolving *r, const struct forms *f, size_t i,
                                    struct sdc_name_link *link, struct sdc_error *err) {
    static const struct sdc__axis_rule as_is = {0};
    size_t found[2];
    unsigned n = look_up(&r->names, f, found);
    if (n == 1)
        return join(r, i, found[0], &as_is, link, err);
    if (n == 0)
        return refuse(link, sdc__strdup("no tensor has its name"), err);
    return refuse(link,
                  sdc__asprintf("it may be %s or %s", r->to[found[0]]->name, r->to[found[1]]->name),
                  err);
}

static void unlink_item(struct sdc_name_link *link) {
    sdc__free(link->axes);
    link->axes = NULL;
    link->n_axes = 0;
    link->to = SDC_NAME_NONE;
}

/* Two tensors to one: neither is linked. */
static enum sdc_status refuse_doubles(const struct resolving *r, struct sdc_name_links *links,
                                      size_t n_to, struct sdc_error *err) {
    size_t *first = sdc__calloc(n_to, sizeof *first);
    if (!first)
        return SDC_NOMEM(err, "a name map");
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < links->n; i++) {
        struct sdc_name_link *link = &links->items[i];
        size_t to = link->to;
        if (to == SDC_NAME_NONE)
            continue;
        if (first[to] == 0) {
            first[to] = i + 1;
            continue;
        }
        struct sdc_name_link *other = &links->items[first[to] - 1];
        unlink_item(link);
        st = refuse(link,
                    sdc__asprintf("%s is also the counterpart of %s", r->to[to]->name,
                                  r->from[first[to] - 1]->name),
                    err);
        if (st == SDC_OK && other->to != SDC_NAME_NONE) {
            unlink_item(other);
            st = refuse(other,
                        sdc__asprintf("%s is also the counterpart of %s", r->to[to]->name,
                                      r->from[i]->name),
                        err);
        }
    }
    sdc__free(first);
    return st;
}

static enum sdc_status link_all(struct resolving *r, struct names *own,
                                struct sdc_name_links *links, size_t n_to, struct sdc_error *err) {
    const struct sdc_name_map *map = r->map;
    for (size_t i = 0; i < links->n; i++)
        SDC_TRY(link_by_rules(r, &own->forms[i], i, &links->items[i], err));
    for (size_t k = 0; map && k < map->n_builtins; k++)
        SDC_TRY(sdc__name_layers_link(map, map->builtins[k], r->from, links->n, r->whole, r->to,
                                      n_to, links->items, err));
    for (size_t i = 0; i < links->n; i++)
        if (links->items[i].to == SDC_NAME_NONE && !links->items[i].why)
            SDC_TRY(link_by_name(r, &own->forms[i], i, &links->items[i], err));
    return refuse_doubles(r, links, n_to, err);
}

enum sdc_status sdc__name_map_resolve(const struct sdc_name_map *map,
                                      const struct sdc_tensor_desc *const from[], size_t n_from,
                                      bool whole, const struct sdc_tensor_desc *const to[],
                                      size_t n_to, struct sdc_name_links *links,
                                      struct sdc_error *err) {
    struct resolving r = {.map = map, .from = from, .to = to, .whole = whole};
    struct names own = {0};
    struct sdc_name_links made = {.items = sdc__calloc(n_from, sizeof *made.items), .n = n_from};
    enum sdc_status st;
    if (!made.items)
        return SDC_NOMEM(err, "a name map");
    for (size_t i = 0; i < n_from; i++)
        made.items[i].to = SDC_NAME_NONE;
    SDC_TRY_OUT(st, names_init(&r.names, to, n_to, err));
    SDC_TRY_OUT(st, names_init(&own, from, n_from, err));
    st = link_all(&r, &own, &made, n_to, err);
out:
    names_release(&own);
    names_release(&r.names);
    if (st == SDC_OK)
        *links = made;
    else
        sdc_name_links_release(&made);
    return st;
}

enum sdc_status sdc_name_map_resolve(const struct sdc_name_map *map,
                                     const struct sdc_tensor_desc *const from[], size_t n_from,
                                     const struct sdc_tensor_desc *const to[], size_t n_to,
                                     struct sdc_name_links *links, struct sdc_error *err) {
    return sdc__name_map_resolve(map, from, n_from, true, to, n_to, links, err);
}

void sdc_name_links_release(struct sdc_name_links *links) {
    for (size_t i = 0; i < links->n; i++) {
        sdc__free(links->items[i].why);
        sdc__free(links->items[i].axes);
    }
    sdc__free(links->items);
    *links = (struct sdc_name_links){0};
}

bool sdc_name_map_lone(const struct sdc_name_map *map, const struct sdc_tensor_desc *t, bool from) {
    static const char counter[] = "num_batches_tracked";
    const size_t len = strlen(t->name), tail = sizeof counter - 1;
    bool torch = false;
    for (size_t k = 0; k < map->n_builtins; k++)
        torch |= map->builtins[k] == (from ? SDC__TORCH_KERAS : SDC__KERAS_TORCH);
    return torch && len >= tail && strcmp(t->name + len - tail, counter) == 0 &&
           (len == tail || t->name[len - tail - 1] == '.' || t->name[len - tail - 1] == '/');
}

uint64_t sdc_name_link_elem(const struct sdc_name_link *link, uint64_t from_elem) {
    uint64_t to = 0;
    if (!link->axes)
        return from_elem;
    for (unsigned d = 0; d < link->n_axes; d++)
        to += from_elem / link->axes[d].from_stride % link->axes[d].size * link->axes[d].to_stride;
    return to;
}

uint64_t sdc_name_link_elem_back(const struct sdc_name_link *link, uint64_t to_elem) {
    uint64_t from = 0;
    if (!link->axes)
        return to_elem;
    for (unsigned d = 0; d < link->n_axes; d++)
        from += to_elem / link->axes[d].to_stride % link->axes[d].size * link->axes[d].from_stride;
    return from;
}
