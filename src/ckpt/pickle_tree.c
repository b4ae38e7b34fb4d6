/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/pickle_tree.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"

#define CHUNK ((size_t)64 * 1024)

/* ---- memory ---- */

void *sdc__pk_alloc(struct sdc_pk *pk, size_t size) {
    size = (size + 7) / 8 * 8;
    if (size > pk->room - pk->used) {
        const bool large = size > CHUNK / 4;
        struct sdc_pk_chunk *chunk = sdc__alloc(sizeof *chunk + (large ? size : CHUNK), 1);
        if (!chunk)
            return NULL;
        if (large && pk->arena) { /* behind the one that is being filled */
            chunk->next = pk->arena->next;
            pk->arena->next = chunk;
            return chunk->words;
        }
        chunk->next = pk->arena;
        pk->arena = chunk;
        pk->used = 0;
        pk->room = large ? size : CHUNK;
    }
    void *block = (char *)pk->arena->words + pk->used;
    pk->used += size;
    return block;
}

struct sdc_pk *sdc__pk_new(void) {
    struct sdc_pk *pk = sdc__calloc(1, sizeof *pk);
    if (!pk)
        return NULL;
    pk->none = sdc__pk_add(pk, SDC_PK_NONE);
    pk->no = sdc__pk_add(pk, SDC_PK_BOOL);
    pk->yes = sdc__pk_add(pk, SDC_PK_BOOL);
    pk->empty = sdc__pk_add(pk, SDC_PK_TUPLE);
    for (int i = 0; i < 257 && pk->empty != SDC_PK_BAD; i++) {
        pk->small[i] = sdc__pk_add(pk, SDC_PK_INT);
        if (pk->small[i] != SDC_PK_BAD)
            sdc__pk_node(pk, pk->small[i])->u.integer = i - 1;
    }
    if (pk->empty == SDC_PK_BAD || pk->small[256] == SDC_PK_BAD) {
        sdc__pk_free(pk);
        return NULL;
    }
    sdc__pk_node(pk, pk->yes)->u.integer = 1;
    return pk;
}

void sdc__pk_free(struct sdc_pk *pk) {
    if (!pk)
        return;
    for (uint32_t i = 0; i < (pk->n + SDC_PK_PAGE - 1) / SDC_PK_PAGE; i++)
        sdc__free(pk->pages[i]);
    sdc__free(pk->pages);
    while (pk->arena) {
        struct sdc_pk_chunk *next = pk->arena->next;
        sdc__free(pk->arena);
        pk->arena = next;
    }
    sdc__free(pk->globals);
    sdc__free(pk->slots);
    sdc__free(pk);
}

/* ---- making nodes ---- */

uint32_t sdc__pk_add(struct sdc_pk *pk, enum sdc_pk_kind kind) {
    if (pk->n >= SDC_MAX_PICKLE_NODES)
        return SDC_PK_BAD;
    if (pk->n % SDC_PK_PAGE == 0) {
        uint32_t page = pk->n / SDC_PK_PAGE;
        if (page == pk->cap_pages) {
            uint32_t cap = page ? page * 2 : 4;
            struct sdc_pk_node **more = sdc__realloc(pk->pages, cap, sizeof *more);
            if (!more)
                return SDC_PK_BAD;
            pk->pages = more;
            pk->cap_pages = cap;
        }
        pk->pages[page] = sdc__alloc(SDC_PK_PAGE, sizeof *pk->pages[page]);
        if (!pk->pages[page])
            return SDC_PK_BAD;
    }
    *sdc__pk_node(pk, pk->n) = (struct sdc_pk_node){.kind = (uint8_t)kind};
    return pk->n++;
}

uint32_t sdc__pk_add_int(struct sdc_pk *pk, int64_t value) {
    if (value >= -1 && value < 256)
        return pk->small[value + 1];
    uint32_t id = sdc__pk_add(pk, SDC_PK_INT);
    if (id != SDC_PK_BAD)
        sdc__pk_node(pk, id)->u.integer = value;
    return id;
}

uint32_t sdc__pk_add_text(struct sdc_pk *pk, enum sdc_pk_kind kind, const void *text, uint64_t len,
                          uint64_t place) {
    uint32_t id = len >> 48 ? SDC_PK_BAD : sdc__pk_add(pk, kind);
    size_t kept = text ? (size_t)len + 1 : 0;
    struct sdc_pk_text *t =
        id == SDC_PK_BAD ? NULL : sdc__pk_alloc(pk, sizeof *t + (kept ? kept : 1));
    if (!t)
        return SDC_PK_BAD;
    t->place = place;
    if (text) {
        if (len)
            memcpy(t->s, text, (size_t)len);
        t->s[len] = '\0';
    }
    struct sdc_pk_node *node = sdc__pk_node(pk, id);
    node->flags = (uint8_t)((text ? SDC_PK_KEPT : 0) | (place != UINT64_MAX ? SDC_PK_AS_IS : 0));
    node->n = (uint32_t)len;
    node->high = (uint16_t)(len >> 32);
    node->u.text = t;
    return id;
}

uint32_t sdc__pk_add_tuple(struct sdc_pk *pk, const uint32_t *ids, uint32_t n) {
    if (n == 0)
        return pk->empty;
    uint32_t id = sdc__pk_add(pk, SDC_PK_TUPLE);
    uint32_t *at = id == SDC_PK_BAD ? NULL : sdc__pk_alloc(pk, n * sizeof *at);
    if (!at)
        return SDC_PK_BAD;
    memcpy(at, ids, n * sizeof *at);
    sdc__pk_node(pk, id)->n = n;
    sdc__pk_node(pk, id)->u.tuple = at;
    return id;
}

uint32_t sdc__pk_add_list(struct sdc_pk *pk, enum sdc_pk_kind kind) {
    uint32_t id = sdc__pk_add(pk, kind);
    struct sdc_pk_list *list = id == SDC_PK_BAD ? NULL : sdc__pk_alloc(pk, sizeof *list);
    if (!list)
        return SDC_PK_BAD;
    *list = (struct sdc_pk_list){0};
    sdc__pk_node(pk, id)->u.list = list;
    return id;
}

uint32_t sdc__pk_add_object(struct sdc_pk *pk, enum sdc_pk_kind kind, uint32_t callee,
                            uint32_t args) {
    uint32_t id = sdc__pk_add(pk, kind);
    struct sdc_pk_object *o = id == SDC_PK_BAD ? NULL : sdc__pk_alloc(pk, sizeof *o);
    if (!o)
        return SDC_PK_BAD;
    *o = (struct sdc_pk_object){.callee = callee, .args = args};
    sdc__pk_node(pk, id)->u.object = o;
    return id;
}

bool sdc__pk_extend(struct sdc_pk *pk, uint32_t id, const uint32_t *ids, uint32_t n, bool pairs) {
    struct sdc_pk_node *node = sdc__pk_node(pk, id);
    struct sdc_pk_list *list = node->u.list;
    if (node->kind == SDC_PK_CALL || node->kind == SDC_PK_OBJECT) {
        struct sdc_pk_object *o = node->u.object;
        list = &o->items;
        if (list->n == 0)
            o->pairs = pairs;
        else if (o->pairs != pairs) /* a class that is both: its first kind is kept */
            return true;
    }
    if (n == 0)
        return true;
    struct sdc_pk_run *run = sdc__pk_alloc(pk, sizeof *run + n * sizeof *ids);
    if (!run)
        return false;
    *run = (struct sdc_pk_run){.n = n};
    memcpy(run->ids, ids, n * sizeof *ids);
    if (list->last)
        list->last->next = run;
    else
        list->first = run;
    list->last = run;
    list->n += n;
    return true;
}

/* ---- globals ---- */

static bool grow_slots(struct sdc_pk *pk) {
    size_t n = pk->n_slots ? pk->n_slots * 2 : 64;
    uint32_t *slots = sdc__calloc(n, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < pk->n_globals; i++) {
        const char *text = sdc__pk_node(pk, pk->globals[i])->u.global;
        size_t at = sdc__xxh3_64(text, strlen(text)) & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (uint32_t)i + 1;
    }
    sdc__free(pk->slots);
    pk->slots = slots;
    pk->n_slots = n;
    return true;
}

static uint32_t new_global(struct sdc_pk *pk, const char *text) {
    if (pk->n_globals == pk->cap_globals) {
        size_t cap = pk->cap_globals ? pk->cap_globals * 2 : 16;
        uint32_t *more = sdc__realloc(pk->globals, cap, sizeof *more);
        if (!more)
            return SDC_PK_BAD;
        pk->globals = more;
        pk->cap_globals = cap;
    }
    uint32_t id = sdc__pk_add(pk, SDC_PK_GLOBAL);
    if (id == SDC_PK_BAD)
        return SDC_PK_BAD;
    sdc__pk_node(pk, id)->u.global = text;
    pk->globals[pk->n_globals++] = id;
    return id;
}

uint32_t sdc__pk_add_global(struct sdc_pk *pk, const char *module, size_t module_len,
                            const char *name, size_t name_len) {
    char local[256], *text = local;
    size_t len = module_len + 1 + name_len;
    if (len >= sizeof local && !(text = sdc__pk_alloc(pk, len + 1)))
        return SDC_PK_BAD;
    memcpy(text, module, module_len);
    text[module_len] = '.';
    memcpy(text + module_len + 1, name, name_len);
    text[len] = '\0';
    len = strlen(text); /* a NUL inside ends it */
    if (2 * pk->n_globals >= pk->n_slots && !grow_slots(pk))
        return SDC_PK_BAD;
    size_t at = sdc__xxh3_64(text, len) & (pk->n_slots - 1);
    for (; pk->slots[at]; at = (at + 1) & (pk->n_slots - 1)) {
        uint32_t id = pk->globals[pk->slots[at] - 1];
        if (strcmp(sdc__pk_node(pk, id)->u.global, text) == 0)
            return id;
    }
    if (text == local) {
        text = sdc__pk_alloc(pk, len + 1);
        if (!text)
            return SDC_PK_BAD;
        memcpy(text, local, len + 1);
    }
    uint32_t id = new_global(pk, text);
    if (id != SDC_PK_BAD)
        pk->slots[at] = (uint32_t)pk->n_globals;
    return id;
}

size_t sdc__pk_globals(const struct sdc_pk *pk) {
    return pk->n_globals;
}

const char *sdc__pk_global_at(const struct sdc_pk *pk, size_t i) {
    return sdc__pk_node(pk, pk->globals[i])->u.global;
}

/* ---- looking ---- */

uint32_t sdc__pk_root(const struct sdc_pk *pk) {
    return pk->root;
}

uint32_t sdc__pk_nodes(const struct sdc_pk *pk) {
    return pk->n;
}

int sdc__pk_protocol(const struct sdc_pk *pk) {
    return pk->protocol;
}

enum sdc_pk_kind sdc__pk_kind(const struct sdc_pk *pk, uint32_t id) {
    return (enum sdc_pk_kind)sdc__pk_node(pk, id)->kind;
}

const char *sdc__pk_kind_name(enum sdc_pk_kind kind) {
    static const char *const names[] = {
        "None", "bool", "int", "int",    "float", "str",    "bytes",         "tuple",
        "list", "dict", "set", "global", "call",  "object", "persistent id", "opaque value"};
    return names[kind];
}

bool sdc__pk_int(const struct sdc_pk *pk, uint32_t id, int64_t *value) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (node->kind != SDC_PK_INT && node->kind != SDC_PK_BOOL)
        return false;
    *value = node->u.integer;
    return true;
}

bool sdc__pk_size(const struct sdc_pk *pk, uint32_t id, uint64_t *value) {
    int64_t v;
    if (!sdc__pk_int(pk, id, &v) || v < 0)
        return false;
    *value = (uint64_t)v;
    return true;
}

bool sdc__pk_float(const struct sdc_pk *pk, uint32_t id, double *value) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (node->kind == SDC_PK_FLOAT)
        *value = node->u.real;
    else if (node->kind == SDC_PK_INT)
        *value = (double)node->u.integer;
    else
        return false;
    return true;
}

static bool is_text(const struct sdc_pk_node *node) {
    return node->kind == SDC_PK_STR || node->kind == SDC_PK_BYTES || node->kind == SDC_PK_LONG;
}

static uint64_t text_len(const struct sdc_pk_node *node) {
    return (uint64_t)node->high << 32 | node->n;
}

const char *sdc__pk_text(const struct sdc_pk *pk, uint32_t id, size_t *len) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (!is_text(node) || !(node->flags & SDC_PK_KEPT))
        return NULL;
    if (len)
        *len = (size_t)text_len(node);
    return node->u.text->s;
}

bool sdc__pk_place(const struct sdc_pk *pk, uint32_t id, uint64_t *place, uint64_t *len) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (!is_text(node) || node->kind == SDC_PK_LONG || !(node->flags & SDC_PK_AS_IS))
        return false;
    *place = node->u.text->place;
    *len = text_len(node);
    return true;
}

const char *sdc__pk_global(const struct sdc_pk *pk, uint32_t id) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    return node->kind == SDC_PK_GLOBAL ? node->u.global : NULL;
}

static const struct sdc_pk_object *object_of(const struct sdc_pk *pk, uint32_t id) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    return node->kind == SDC_PK_CALL || node->kind == SDC_PK_OBJECT ? node->u.object : NULL;
}

const char *sdc__pk_callee(const struct sdc_pk *pk, uint32_t id) {
    const struct sdc_pk_object *o = object_of(pk, id);
    return o ? sdc__pk_global(pk, o->callee) : NULL;
}

bool sdc__pk_args(const struct sdc_pk *pk, uint32_t id, uint32_t *args) {
    const struct sdc_pk_object *o = object_of(pk, id);
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (!o && node->kind != SDC_PK_PERSID)
        return false;
    *args = o ? o->args : node->n;
    return true;
}

bool sdc__pk_state(const struct sdc_pk *pk, uint32_t id, uint32_t *state) {
    const struct sdc_pk_object *o = object_of(pk, id);
    if (!o || !o->has_state)
        return false;
    *state = o->state;
    return true;
}

static const struct sdc_pk_list *list_of(const struct sdc_pk *pk, uint32_t id, bool *pairs) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    const struct sdc_pk_object *o = object_of(pk, id);
    *pairs = o ? o->pairs : node->kind == SDC_PK_DICT;
    if (o)
        return &o->items;
    if (node->kind == SDC_PK_LIST || node->kind == SDC_PK_DICT || node->kind == SDC_PK_SET)
        return node->u.list;
    return NULL;
}

struct sdc_pk_iter sdc__pk_items(const struct sdc_pk *pk, uint32_t id) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    struct sdc_pk_iter it = {0};
    if (node->kind == SDC_PK_TUPLE) {
        it.at = node->u.tuple;
        it.left = node->n;
        return it;
    }
    const struct sdc_pk_list *list = list_of(pk, id, &it.pairs);
    it.run = list ? list->first : NULL;
    if (it.run) {
        it.at = it.run->ids;
        it.left = it.run->n;
    }
    return it;
}

bool sdc__pk_next(struct sdc_pk_iter *it, uint32_t *item) {
    if (it->left == 0) {
        it->run = it->run ? it->run->next : NULL;
        if (!it->run)
            return false;
        it->at = it->run->ids; /* runs are never empty */
        it->left = it->run->n;
    }
    *item = *it->at++;
    it->left--;
    return true;
}

bool sdc__pk_next_pair(struct sdc_pk_iter *it, uint32_t *key, uint32_t *value) {
    return it->pairs && sdc__pk_next(it, key) && sdc__pk_next(it, value);
}

uint64_t sdc__pk_count(const struct sdc_pk *pk, uint32_t id) {
    bool pairs;
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (node->kind == SDC_PK_TUPLE)
        return node->n;
    const struct sdc_pk_list *list = list_of(pk, id, &pairs);
    return !list ? 0 : pairs ? list->n / 2 : list->n;
}

bool sdc__pk_at(const struct sdc_pk *pk, uint32_t id, uint64_t i, uint32_t *item) {
    const struct sdc_pk_node *node = sdc__pk_node(pk, id);
    if (node->kind == SDC_PK_TUPLE) {
        if (i >= node->n)
            return false;
        *item = node->u.tuple[i];
        return true;
    }
    struct sdc_pk_iter it = sdc__pk_items(pk, id);
    bool found = !it.pairs;
    for (uint64_t k = 0; found && k <= i; k++)
        found = sdc__pk_next(&it, item);
    return found;
}

bool sdc__pk_get(const struct sdc_pk *pk, uint32_t id, const char *key, uint32_t *value) {
    struct sdc_pk_iter it = sdc__pk_items(pk, id);
    uint32_t k, v;
    bool found = false;
    while (sdc__pk_next_pair(&it, &k, &v)) {
        const char *text = sdc__pk_text(pk, k, NULL);
        if (text && strcmp(text, key) == 0) {
            *value = v;
            found = true;
        }
    }
    return found;
}
