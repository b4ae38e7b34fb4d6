/* SPDX-License-Identifier: Apache-2.0
 *
 * A record's faults on another file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "contract/name_rules.h"
#include "sdc/alter.h"

/* A tensor of the record: all its changes, one after the other in `order`. */
struct source {
    const char *name;
    size_t first, n;
    struct sdc_tensor_desc desc;
    size_t link; /* among the links */
};

struct replay {
    const char *record_path, *path;
    const struct sdc_replay_options *options;
    struct sdc_record record;
    struct sdc_ckpt *from; /* may be NULL */
    struct sdc_ckpt *to;
    const struct sdc_record_change **order; /* the changes by tensor; owned */
    struct source *sources;                 /* owned */
    size_t n_sources;
    const struct sdc_tensor_desc **descs; /* of to; owned */
    struct sdc_name_links links;
    struct sdc_fault_list list;
    uint64_t skipped;
};

#define MISMATCH(...) SDC_ERR(err, SDC_MISMATCH, __VA_ARGS__)

/* ---- the record's side ---- */

static int compare_changes(const void *a, const void *b) {
    const struct sdc_record_change *x = *(const struct sdc_record_change *const *)a;
    const struct sdc_record_change *y = *(const struct sdc_record_change *const *)b;
    int order = strcmp(x->tensor, y->tensor);
    return order ? order : (x->elem > y->elem) - (x->elem < y->elem);
}

/* Numbers of "[2,0,4]"; false if it is not such a text. */
static bool parse_index(const char *text, uint64_t index[SDC_MAX_RANK], unsigned *rank) {
    char digits[24];
    *rank = 0;
    if (strcmp(text, "[]") == 0)
        return true;
    for (const char *p = text; (*p == '[' && p == text) || (*p == ',' && p > text);) {
        size_t len = strspn(++p, "0123456789");
        unsigned long long v;
        if (len == 0 || len >= sizeof digits || *rank == SDC_MAX_RANK)
            return false;
        memcpy(digits, p, len);
        digits[len] = '\0';
        if (!sdc__parse_u64(digits, &v))
            return false;
        index[(*rank)++] = v;
        p += len;
        if (strcmp(p, "]") == 0)
            return true;
    }
    return false;
}

/* The shape that the record tells, if it does: that of all changes of the tensor. */
static enum sdc_status take_shape(const struct replay *r, struct source *s, struct sdc_error *err) {
    const struct sdc_record_change *told = NULL;
    for (size_t i = s->first; i < s->first + s->n; i++) {
        const struct sdc_record_change *c = r->order[i];
        if (!c->shape)
            continue;
        if (told && (told->n_shape != c->n_shape ||
                     memcmp(told->shape, c->shape, c->n_shape * sizeof *c->shape) != 0))
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: its changes have two shapes",
                           r->record_path, s->name);
        told = c;
    }
    if (!told)
        return SDC_OK;
    s->desc.rank = (unsigned)told->n_shape;
    s->desc.shape = told->shape;
    s->desc.n_elems = 1;
    for (size_t d = 0; d < told->n_shape; d++)
        if (__builtin_mul_overflow(s->desc.n_elems, told->shape[d], &s->desc.n_elems))
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: its shape is too large",
                           r->record_path, s->name);
    for (size_t i = s->first; i < s->first + s->n; i++)
        if (r->order[i]->elem >= s->desc.n_elems)
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: element %llu is beyond its shape",
                           r->record_path, s->name, (unsigned long long)r->order[i]->elem);
    return SDC_OK;
}

/* As much of the tensor as the record tells, or all of it from the checkpoint itself. */
static enum sdc_status describe(const struct replay *r, struct source *s, struct sdc_error *err) {
    const struct sdc_record_change *c = r->order[s->first];
    uint64_t index[SDC_MAX_RANK];
    size_t i;
    if (r->from) {
        if (!sdc_ckpt_find(r->from, s->name, &i))
            return MISMATCH("%s: has no tensor %s, of which %s speaks", r->options->from, s->name,
                            r->record_path);
        s->desc = *sdc_ckpt_tensor(r->from, i);
        s->link = i;
        return SDC_OK;
    }
    s->desc = (struct sdc_tensor_desc){.name = s->name,
                                       .dtype = c->dtype,
                                       .dtype_known = true,
                                       .dtype_text = sdc_dtype_name(c->dtype),
                                       .part = c->part,
                                       .role = c->role};
    if (!parse_index(c->index, index, &s->desc.rank))
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: '%s' is no index", r->record_path, s->name,
                       c->index);
    s->desc.n_elems = s->desc.rank == 0;
    s->link = (size_t)(s - r->sources);
    return take_shape(r, s, err);
}

static enum sdc_status group(struct replay *r, struct sdc_error *err) {
    size_t n = r->record.n_changes;
    r->order = sdc__calloc(n, sizeof *r->order);
    r->sources = sdc__calloc(n, sizeof *r->sources);
    if (!r->order || !r->sources)
        return SDC_NOMEM(err, "the record's faults");
    for (size_t i = 0; i < n; i++)
        r->order[i] = &r->record.changes[i];
    qsort(r->order, n, sizeof *r->order, compare_changes);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(r->order[i]->tensor, r->order[i - 1]->tensor) != 0)
            r->sources[r->n_sources++] = (struct source){.name = r->order[i]->tensor, .first = i};
        r->sources[r->n_sources - 1].n++;
    }
    for (size_t i = 0; i < r->n_sources; i++)
        SDC_TRY(describe(r, &r->sources[i], err));
    return SDC_OK;
}

/* Sites of an element, as far as its change tells. */
static uint64_t sites_of(const struct sdc_record *record, enum sdc_op op, uint64_t bits) {
    bool each_bit = op == SDC_OP_SET0 || op == SDC_OP_SET1 ||
                    (op == SDC_OP_FLIP && !sdc_choice_takes_elements(&record->header.choice));
    return each_bit ? (unsigned)__builtin_popcountll(bits) : 1u;
}

/* A record without its last line may have lost changes too. */
static enum sdc_status check_whole(const struct replay *r, struct sdc_error *err) {
    const struct sdc_record_header *h = &r->record.header;
    uint64_t found = r->record.n_changes, wanted = h->elements;
    if (wanted == 0 && h->planned > 0) { /* an old one: by its sites */
        found = 0;
        wanted = h->planned;
        for (size_t i = 0; i < r->record.n_changes; i++)
            found += sites_of(&r->record, r->record.changes[i].op, r->record.changes[i].bits);
    }
    if (!r->record.verified && found < wanted)
        return MISMATCH("%s: was cut short: it has %llu changes of %llu", r->record_path,
                        (unsigned long long)found, (unsigned long long)wanted);
    return SDC_OK;
}

static enum sdc_status resolve(struct replay *r, struct sdc_error *err) {
    size_t n = sdc_ckpt_count(r->to), n_from = r->from ? sdc_ckpt_count(r->from) : r->n_sources;
    const struct sdc_tensor_desc **from = sdc__calloc(n_from, sizeof *from);
    r->descs = sdc__calloc(n, sizeof *r->descs);
    enum sdc_status st;
    if (!from || !r->descs) {
        st = SDC_NOMEM(err, "the tensors");
    } else {
        /* all of the checkpoint, since the shapes of a whole layer tell which it is; a record may
         * have a part of it */
        for (size_t i = 0; i < n_from; i++)
            from[i] = r->from ? sdc_ckpt_tensor(r->from, i) : &r->sources[i].desc;
        for (size_t i = 0; i < n; i++)
            r->descs[i] = sdc_ckpt_tensor(r->to, i);
        st = sdc__name_map_resolve(r->options->map, from, n_from, r->from != NULL, r->descs, n,
                                   &r->links, err);
    }
    sdc__free(from);
    return st;
}

/* ---- one change ---- */

/* Whether the record's index is where the element lies in a tensor of the shape that fits. */
static bool index_fits(const struct source *s, const struct sdc_name_link *link,
                       const struct sdc_tensor_desc *to, const struct sdc_record_change *c) {
    uint64_t index[SDC_MAX_RANK];
    unsigned rank;
    if (!parse_index(c->index, index, &rank))
        return false;
    uint64_t elem;
    if (s->desc.shape || s->desc.rank == 0)
        return sdc_tensor_flat_index(&s->desc, index, rank, &elem, NULL) == SDC_OK &&
               elem == c->elem;
    if (link->reshaped) /* the index is in a shape that nothing tells */
        return true;
    if (!link->axes)
        return sdc_tensor_flat_index(to, index, rank, &elem, NULL) == SDC_OK && elem == c->elem;
    if (rank != link->n_axes)
        return false;
    for (unsigned d = 0; d < rank; d++)
        if (index[d] != c->elem / link->axes[d].from_stride % link->axes[d].size)
            return false;
    return true;
}

/* The operator for the element there; SDC_MISMATCH where its type does not let it. */
static enum sdc_status make_fault(const struct replay *r, const struct sdc_record_change *c,
                                  const struct sdc_name_link *link, const struct sdc_tensor_desc *t,
                                  struct sdc_fault *f, struct sdc_error *err) {
    f->op = c->op;
    f->weight = c->weight;
    switch (c->op) {
    case SDC_OP_VALUE:
        f->value = t->dtype == c->dtype
                       ? c->new_raw
                       : sdc_num_from_double(t->dtype, sdc_num_to_double(c->dtype, c->new_raw));
        return SDC_OK;
    case SDC_OP_SCALE:
        memcpy(&f->value, &r->record.header.choice.value, sizeof f->value);
        return SDC_OK;
    case SDC_OP_SWAP:
        if (c->other >= t->n_elems)
            return MISMATCH("%s: %s%s took the value of element %llu, %s has %llu", r->record_path,
                            c->tensor, c->index, (unsigned long long)c->other, t->name,
                            (unsigned long long)t->n_elems);
        f->value = sdc_name_link_elem(link, c->other);
        return SDC_OK;
    case SDC_OP_RANDOM: /* the number that was drawn, as sdc_fault_apply takes it */
        f->value = c->new_raw - (c->new_raw > c->old_raw);
        break;
    case SDC_OP_FLIP:
    case SDC_OP_MASK:
    case SDC_OP_BURST:
    case SDC_OP_SET0:
    case SDC_OP_SET1:
        f->bits = c->bits;
        break;
    }
    if (t->dtype != c->dtype)
        return MISMATCH("%s: tensor %s is %s, but the record's bits are of %s's %s", r->path,
                        t->name, sdc_dtype_name(t->dtype), c->tensor, sdc_dtype_name(c->dtype));
    return SDC_OK;
}

/* The element holds what the record found in its own file. */
static enum sdc_status check_old(struct replay *r, const struct sdc_record_change *c,
                                 const struct sdc_fault *f, struct sdc_error *err) {
    const struct sdc_tensor_desc *t = r->descs[f->tensor];
    unsigned char bytes[8];
    char index[SDC_MAX_RANK * 21 + 3], was[40], is[40];
    if (t->dtype != c->dtype)
        return MISMATCH("%s: tensor %s is %s, but the record's %s is %s", r->path, t->name,
                        sdc_dtype_name(t->dtype), c->tensor, sdc_dtype_name(c->dtype));
    SDC_TRY(sdc_ckpt_read(r->to, f->tensor, f->elem, 1, bytes, err));
    uint64_t raw = sdc_num_load(t->dtype, bytes, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    if (raw == c->old_raw)
        return SDC_OK;
    sdc_tensor_index_text(t, f->elem, index, sizeof index);
    sdc_num_text(c->dtype, c->old_raw, was, sizeof was);
    sdc_num_text(t->dtype, raw, is, sizeof is);
    return MISMATCH("%s: %s%s holds %s (%#llx), but %s found %s (%#llx) in %s%s", r->path, t->name,
                    index, is, (unsigned long long)raw, r->record_path, was,
                    (unsigned long long)c->old_raw, c->tensor, c->index);
}

static enum sdc_status add_change(struct replay *r, const struct source *s,
                                  const struct sdc_name_link *link,
                                  const struct sdc_record_change *c, struct sdc_error *err) {
    const struct sdc_tensor_desc *t = r->descs[link->to];
    struct sdc_fault *f = &r->list.faults[r->list.n];
    *f = (struct sdc_fault){.tensor = (uint32_t)link->to};
    if (c->elem >= t->n_elems || !index_fits(s, link, t, c))
        return MISMATCH("%s: %s%s is element %llu there, which does not fit the shape of %s%s",
                        r->record_path, c->tensor, c->index, (unsigned long long)c->elem, t->name,
                        r->from ? "" : "; the checkpoint it comes from would tell its own shape");
    if (!t->dtype_known || t->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s cannot be altered: %s", r->path,
                       t->name, t->locked ? t->locked : t->dtype_text);
    f->elem = sdc_name_link_elem(link, c->elem);
    SDC_TRY(make_fault(r, c, link, t, f, err));
    if (r->options->exact)
        SDC_TRY(check_old(r, c, f, err));
    r->list.n++;
    r->list.n_sites += sites_of(&r->record, f->op, f->bits);
    return SDC_OK;
}

static int compare_faults(const void *a, const void *b) {
    const struct sdc_fault *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->elem > y->elem) - (x->elem < y->elem);
}

/* Two lines of one element, or two elements that the map lays on one. */
static enum sdc_status check_distinct(const struct replay *r, struct sdc_error *err) {
    for (size_t i = 1; i < r->list.n; i++) {
        const struct sdc_fault *f = &r->list.faults[i];
        if (compare_faults(f - 1, f) == 0)
            return MISMATCH("%s: two changes are of element %llu of %s", r->record_path,
                            (unsigned long long)f->elem, r->descs[f->tensor]->name);
    }
    return SDC_OK;
}

static enum sdc_status make_list(struct replay *r, struct sdc_error *err) {
    r->list.faults = sdc__calloc(r->record.n_changes, sizeof *r->list.faults);
    if (!r->list.faults)
        return SDC_NOMEM(err, "the record's faults");
    for (size_t i = 0; i < r->n_sources; i++) {
        const struct source *s = &r->sources[i];
        const struct sdc_name_link *link = &r->links.items[s->link];
        if (link->to == SDC_NAME_NONE && (r->options->skip_missing || link->left_out)) {
            r->skipped += s->n;
            continue;
        }
        if (link->to == SDC_NAME_NONE)
            return MISMATCH("%s: tensor %s of the record has no counterpart: %s", r->path, s->name,
                            link->why);
        for (size_t k = s->first; k < s->first + s->n; k++)
            SDC_TRY(add_change(r, s, link, r->order[k], err));
    }
    if (r->skipped == 0)
        r->list.n_sites = r->record.header.planned;
    qsort(r->list.faults, r->list.n, sizeof *r->list.faults, compare_faults);
    return check_distinct(r, err);
}

/* ---- public ---- */

static void release(struct replay *r) {
    sdc_fault_list_release(&r->list);
    sdc_name_links_release(&r->links);
    sdc__free(r->descs);
    sdc__free(r->sources);
    sdc__free(r->order);
    sdc_ckpt_close(r->from);
    sdc_ckpt_close(r->to);
    sdc_record_release(&r->record);
}

enum sdc_status sdc_replay(const char *record_path, const char *path,
                           const struct sdc_replay_options *options,
                           struct sdc_replay_result *result, struct sdc_error *err) {
    struct replay r = {.record_path = record_path, .path = path, .options = options};
    struct sdc_replay_result done = {0};
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_record_read(record_path, &r.record, err));
    SDC_TRY_OUT(st, check_whole(&r, err));
    if (options->from)
        SDC_TRY_OUT(st, sdc_ckpt_open(options->from, options->alter.open, &r.from, err));
    SDC_TRY_OUT(st, group(&r, err));
    SDC_TRY_OUT(st, sdc_ckpt_open(path, options->alter.open, &r.to, err));
    SDC_TRY_OUT(st, resolve(&r, err));
    SDC_TRY_OUT(st, make_list(&r, err));
    sdc_ckpt_close(r.to);
    r.to = NULL;
    struct sdc_alter_options alter = options->alter;
    alter.seed = r.record.header.seed;
    alter.list = &r.list;
    alter.origin = record_path;
    st = sdc_alter(path, &r.record.header.choice, &alter, &done.alter, err);
    done.changes = r.record.n_changes;
    done.skipped = r.skipped;
out:
    release(&r);
    if (st == SDC_OK)
        *result = done;
    return st;
}
