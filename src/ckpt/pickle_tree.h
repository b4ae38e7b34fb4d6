/* SPDX-License-Identifier: Apache-2.0
 *
 * How pickle.c stores the tree that pickle.h shows. For pickle.c and pickle_tree.c alone.
 */
#ifndef SDC_CKPT_PICKLE_TREE_H
#define SDC_CKPT_PICKLE_TREE_H

#include "ckpt/pickle.h"

enum { SDC_PK_KEPT = 1, SDC_PK_AS_IS = 2 }; /* flags of texts */

/* 16 bytes, since there may be tens of millions. */
struct sdc_pk_node {
    uint8_t kind, flags;
    uint16_t high; /* of a text's length */
    uint32_t n;    /* elements of a tuple; low half of a text's length; argument of a PERSID */
    union {
        int64_t integer;
        double real;
        uint32_t *tuple;
        struct sdc_pk_text *text;
        struct sdc_pk_list *list;     /* LIST, DICT, SET */
        struct sdc_pk_object *object; /* CALL, OBJECT */
        const char *global;
    } u;
};

struct sdc_pk_text {
    uint64_t place;
    char s[]; /* with NUL, if kept */
};

struct sdc_pk_run {
    struct sdc_pk_run *next;
    uint32_t n, pad;
    uint32_t ids[];
};

struct sdc_pk_list {
    struct sdc_pk_run *first, *last;
    uint64_t n; /* ids */
};

struct sdc_pk_object {
    uint32_t callee, args, state;
    bool has_state, pairs;
    struct sdc_pk_list items;
};

struct sdc_pk_chunk {
    struct sdc_pk_chunk *next;
    uint64_t words[];
};

struct sdc_pk {
    struct sdc_pk_node **pages;
    uint32_t n, cap_pages;
    struct sdc_pk_chunk *arena; /* the one that is being filled first */
    size_t used, room;          /* of its bytes */
    uint32_t *globals;          /* nodes in order */
    size_t n_globals, cap_globals;
    uint32_t *slots; /* hash table of globals, 1 + index; a power of two */
    size_t n_slots;
    uint32_t root;
    int protocol;
    /* nodes that are needed often and have no identity */
    uint32_t none, yes, no, empty, small[257];
};

#define SDC_PK_PAGE 4096u
#define SDC_PK_BAD  UINT32_MAX /* no node: no memory, or over the limit */

static inline struct sdc_pk_node *sdc__pk_node(const struct sdc_pk *pk, uint32_t id) {
    return &pk->pages[id / SDC_PK_PAGE][id % SDC_PK_PAGE];
}

struct sdc_pk *sdc__pk_new(void) SDC_MUST_CHECK;
/* 8-byte aligned, freed with the tree; NULL: no memory. */
void *sdc__pk_alloc(struct sdc_pk *pk, size_t size) SDC_MUST_CHECK;
/* The makers return SDC_PK_BAD where there is no memory or SDC_MAX_PICKLE_NODES is reached. */
uint32_t sdc__pk_add(struct sdc_pk *pk, enum sdc_pk_kind kind);
uint32_t sdc__pk_add_int(struct sdc_pk *pk, int64_t value);
/* text NULL: only the place is kept. place UINT64_MAX: it is nowhere as it is. */
uint32_t sdc__pk_add_text(struct sdc_pk *pk, enum sdc_pk_kind kind, const void *text, uint64_t len,
                          uint64_t place);
uint32_t sdc__pk_add_tuple(struct sdc_pk *pk, const uint32_t *ids, uint32_t n);
uint32_t sdc__pk_add_list(struct sdc_pk *pk, enum sdc_pk_kind kind);
uint32_t sdc__pk_add_object(struct sdc_pk *pk, enum sdc_pk_kind kind, uint32_t callee,
                            uint32_t args);
/* Once for each global. */
uint32_t sdc__pk_add_global(struct sdc_pk *pk, const char *module, size_t module_len,
                            const char *name, size_t name_len);
/* Appends to a LIST, DICT, SET, or the items of a CALL or OBJECT; false: no memory. */
bool sdc__pk_extend(struct sdc_pk *pk, uint32_t id, const uint32_t *ids, uint32_t n, bool pairs);

#endif
