/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the elements of a support, and taking the sites out of it whose result is refused.
 */
#include <string.h>

#include "base/alloc.h"
#include "fault/support.h"
#include "num/special.h"

#define WINDOW     65536 /* bytes read at once */
#define MIN_BLOCK  65536 /* elements */
#define MAX_BLOCKS 4096  /* of one tensor: this bounds the memory for counts */

enum sdc_status sdc__values_init(struct sdc_values *v, const struct sdc_support *support,
                                 struct sdc_error *err) {
    *v = (struct sdc_values){.support = support, .memory = sdc__alloc(WINDOW, 1)};
    return v->memory ? SDC_OK : SDC_NOMEM(err, "values of the support");
}

void sdc__values_release(struct sdc_values *v) {
    sdc__free(v->memory);
    *v = (struct sdc_values){0};
}

/* Sees to it that elem is in memory. */
static enum sdc_status look_at(struct sdc_values *v, size_t desc, uint64_t elem,
                               struct sdc_error *err) {
    const struct sdc_tensor_desc *t = v->support->descs[desc];
    if (desc == v->desc && elem - v->first < v->n)
        return SDC_OK;
    uint64_t n = WINDOW / sdc_dtype_bytes(t->dtype);
    n = t->n_elems - elem < n ? t->n_elems - elem : n;
    v->n = 0;
    SDC_TRY(v->support->read(v->support->user, desc, elem, n, v->memory, err));
    v->desc = desc;
    v->first = elem;
    v->n = n;
    return SDC_OK;
}

/* The same as sdc_num_load in native order, without a call. */
static inline uint64_t load(const unsigned char *p, unsigned size) {
    uint64_t x8 = 0;
    uint32_t x4;
    uint16_t x2;
    switch (size) {
    case 1:
        return *p;
    case 2:
        memcpy(&x2, p, 2);
        return x2;
    case 4:
        memcpy(&x4, p, 4);
        return x4;
    default:
        memcpy(&x8, p, 8);
        return x8;
    }
}

enum sdc_status sdc__values_get(struct sdc_values *v, size_t desc, uint64_t elem, uint64_t *raw,
                                struct sdc_error *err) {
    const unsigned size = sdc_dtype_bytes(v->support->descs[desc]->dtype);
    SDC_TRY(look_at(v, desc, elem, err));
    *raw = load(v->memory + (elem - v->first) * size, size);
    return SDC_OK;
}

/* ---- reducing ---- */

static size_t blocks_of(const struct sdc_support_tensor *t) {
    return (size_t)((t->n_elems + t->block - 1) / t->block);
}

static enum sdc_status make_counts(struct sdc_support *s, struct sdc_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        struct sdc_support_tensor *t = &s->tensors[i];
        t->block = (t->n_elems + MAX_BLOCKS - 1) / MAX_BLOCKS;
        t->block = t->block < MIN_BLOCK ? MIN_BLOCK : t->block;
        n += blocks_of(t) * t->n_groups;
    }
    uint64_t *counts = s->counts = sdc__calloc(n, sizeof *counts);
    if (!counts)
        return SDC_NOMEM(err, "the support");
    for (size_t g = 0; g < s->n_groups; g++) {
        s->groups[g].before = counts;
        counts += blocks_of(&s->tensors[s->groups[g].tensor]);
    }
    return SDC_OK;
}

static void count_element(const struct sdc_support *s, const struct sdc_support_tensor *t,
                          struct sdc_group *groups, uint64_t raw) {
    const enum sdc_dtype dtype = s->descs[t->tensor]->dtype;
    if (s->rule.elements) {
        groups[0].sites += sdc__allowed_element(&s->rule, dtype, t->named, raw);
        return;
    }
    uint64_t allowed = sdc__allowed_bits(&s->rule, dtype, t->mask, raw);
    for (size_t g = 0; g < t->n_groups; g++)
        groups[g].sites += (unsigned)__builtin_popcountll(allowed & groups[g].mask);
}

/* n elements of one block, in memory. Most lack more bits of an infinity or NaN, or such that are
 * farther apart, than the operator reaches: all of their sites are left. */
static void count_run(const struct sdc_support *s, const struct sdc_support_tensor *t,
                      struct sdc_group *groups, const unsigned char *p, uint64_t n) {
    const enum sdc_dtype dtype = s->descs[t->tensor]->dtype;
    const unsigned size = sdc_dtype_bytes(dtype), length = sdc__reach(&s->rule);
    uint64_t special_mask, special, whole = 0;
    bool quick =
        sdc__num_special(dtype, &special_mask, &special) && !s->rule.elements && length < 64;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t raw = load(p + i * size, size), missing = (raw ^ special) & special_mask;
        if (quick && missing && missing >> __builtin_ctzll(missing) >> length)
            whole++;
        else
            count_element(s, t, groups, raw);
    }
    for (size_t g = 0; g < t->n_groups; g++)
        groups[g].sites += whole * groups[g].width;
}

static enum sdc_status count_tensor(struct sdc_support *s, const struct sdc_support_tensor *t,
                                    struct sdc_values *v, struct sdc_error *err) {
    const unsigned size = sdc_dtype_bytes(s->descs[t->tensor]->dtype);
    struct sdc_group *groups = &s->groups[t->first_group];
    for (size_t g = 0; g < t->n_groups; g++)
        groups[g].sites = 0;
    for (uint64_t elem = 0, n; elem < t->n_elems; elem += n) {
        uint64_t left = t->block - elem % t->block; /* of the block */
        if (left == t->block)
            for (size_t g = 0; g < t->n_groups; g++)
                groups[g].before[elem / t->block] = groups[g].sites;
        SDC_TRY(look_at(v, t->tensor, elem, err));
        n = v->first + v->n - elem;
        n = n < left ? n : left;
        count_run(s, t, groups, v->memory + (elem - v->first) * size, n);
    }
    return SDC_OK;
}

/* Takes out what has no site left, and numbers anew. */
static void close_ranks(struct sdc_support *s) {
    size_t n_tensors = 0, n_groups = 0;
    s->sites = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        struct sdc_support_tensor t = s->tensors[i];
        size_t first = n_groups;
        for (size_t g = t.first_group; g < t.first_group + t.n_groups; g++) {
            struct sdc_group group = s->groups[g];
            if (group.sites == 0)
                continue;
            group.tensor = (uint32_t)n_tensors;
            group.first = s->sites;
            s->sites += group.sites;
            s->groups[n_groups++] = group;
        }
        if (n_groups == first)
            continue;
        t.first_group = first;
        t.n_groups = n_groups - first;
        s->tensors[n_tensors++] = t;
    }
    s->n_tensors = n_tensors;
    s->n_groups = n_groups;
}

enum sdc_status sdc_support_reduce(struct sdc_support *s, sdc_fault_read *read, void *user,
                                   struct sdc_error *err) {
    struct sdc_values v;
    uint64_t all = s->sites;
    s->read = read;
    s->user = user;
    if (s->rule.not_result == 0 || s->rule.listed || s->reduced)
        return SDC_OK;
    if (s->rule.op == SDC_OP_SWAP)
        return SDC_ERR(err, SDC_USAGE, "not-result: does not go with op swap");
    SDC_TRY(make_counts(s, err));
    SDC_TRY(sdc__values_init(&v, s, err));
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < s->n_tensors; i++)
        st = count_tensor(s, &s->tensors[i], &v, err);
    sdc__values_release(&v);
    if (st != SDC_OK)
        return st;
    close_ranks(s);
    s->removed = all - s->sites;
    s->reduced = true;
    return SDC_OK;
}
