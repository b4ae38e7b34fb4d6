/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "audit/diff_impl.h"
#include "audit/diff_match.h"
#include "audit/walk.h"
#include "base/alloc.h"
#include "base/guard.h"
#include "base/parallel.h"
#include "base/str.h"
#include "sdc/audit.h"

/* A tensor whose elements stand in another order is held whole, up to this size. */
#define MAX_REORDERED ((uint64_t)2 * 1024 * 1024 * 1024)

struct comparing {
    struct sdc_ckpt *a, *b;
    const struct sdc_diff_options *options;
    struct sdc_diff_rule rule;
    struct sdc_diff *out;
    size_t cap;
    struct sdc_diff_match match;
    size_t *pairs; /* of those in match whose elements are compared */
    size_t n;
    uint64_t *first_task;     /* of each of these, and the number of all at the end */
    struct sdc_diff_part all; /* of the pair whose chunks are being handed over */
    bool under_way;
    size_t failed_at; /* the last one that could not be read, plus 1 */
};

struct slot {
    unsigned char *a, *b; /* SDC_WALK_READ */
    struct sdc_diff_part part;
    bool failed;
    struct sdc_error found;
};

static const struct sdc_diff_pair *pair_of(const struct comparing *c, size_t k) {
    return &c->match.pairs[c->pairs[k]];
}

/* ---- results ---- */

static enum sdc_status describe(const struct comparing *c, const struct sdc_diff_pair *p,
                                struct sdc_diff_tensor *t, struct sdc_error *err) {
    const struct sdc_tensor_desc *a = p->a == SDC_NAME_NONE ? NULL : sdc_ckpt_tensor(c->a, p->a);
    const struct sdc_tensor_desc *b = p->b == SDC_NAME_NONE ? NULL : sdc_ckpt_tensor(c->b, p->b);
    const struct sdc_tensor_desc *d = a ? a : b;
    *t = (struct sdc_diff_tensor){.name = sdc__strdup(d->name),
                                  .part = d->part,
                                  .role = d->role,
                                  .dtype = d->dtype,
                                  .dtype_known = d->dtype_known,
                                  .only_a = !b,
                                  .only_b = !a,
                                  .n_elems = d->n_elems};
    if (!t->name)
        return SDC_NOMEM(err, d->name);
    if (a && b && strcmp(a->name, b->name) != 0 && !(t->name_b = sdc__strdup(b->name))) {
        sdc_diff_tensor_release(t);
        return SDC_NOMEM(err, d->name);
    }
    return SDC_OK;
}

/* Takes what t owns, on failure too. */
static enum sdc_status keep(struct comparing *c, struct sdc_diff_tensor *t, struct sdc_error *err) {
    struct sdc_diff *out = c->out;
    const bool lone = t->only_a || t->only_b || (t->incomparable && !t->unreadable);
    const bool same = t->n_differ == 0 && !lone && !t->unreadable;
    out->n_tensors++;
    out->n_differ_tensors += !same && !t->unreadable;
    out->n_value_tensors += lone || t->n_values > 0;
    out->n_beyond_tensors += lone || t->n_beyond > 0;
    out->n_unreadable_tensors += t->unreadable;
    out->n_differ_elems += t->n_differ;
    out->n_differ_values += t->n_values;
    out->n_beyond += t->n_beyond;
    out->n_differ_bits += t->n_bits;
    if (same && !c->options->all) {
        sdc_diff_tensor_release(t);
        return SDC_OK;
    }
    if (out->n == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 16;
        struct sdc_diff_tensor *more = sdc__realloc(out->tensors, cap, sizeof *more);
        if (!more) {
            sdc_diff_tensor_release(t);
            return SDC_NOMEM(err, "the differing tensors");
        }
        out->tensors = more;
        c->cap = cap;
    }
    out->tensors[out->n++] = *t;
    return SDC_OK;
}

static enum sdc_status keep_incomparable(struct comparing *c, const struct sdc_diff_pair *p,
                                         bool unreadable, const char *why, struct sdc_error *err) {
    struct sdc_diff_tensor t;
    SDC_TRY(describe(c, p, &t, err));
    t.incomparable = true;
    t.unreadable = unreadable;
    t.why = sdc__strdup(why);
    if (t.why)
        return keep(c, &t, err);
    sdc_diff_tensor_release(&t);
    return SDC_NOMEM(err, "the differing tensors");
}

/* ---- pairs that cannot be compared ---- */

static void form_text(struct sdc_buf *b, const struct sdc_tensor_desc *d) {
    sdc__buf_printf(b, "%s [", d->dtype_known ? sdc_dtype_name(d->dtype) : d->dtype_text);
    for (unsigned i = 0; i < d->rank; i++)
        sdc__buf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)d->shape[i]);
    sdc__buf_putc(b, ']');
}

static bool same_type(const struct sdc_tensor_desc *a, const struct sdc_tensor_desc *b) {
    return a->dtype_known == b->dtype_known &&
           (a->dtype_known ? a->dtype == b->dtype : strcmp(a->dtype_text, b->dtype_text) == 0);
}

static bool same_shape(const struct sdc_tensor_desc *a, const struct sdc_tensor_desc *b) {
    bool same = a->rank == b->rank;
    for (unsigned i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* Keeps the pair and says so, if its elements are not to be compared. */
static enum sdc_status set_aside(struct comparing *c, const struct sdc_diff_pair *p, bool *aside,
                                 struct sdc_error *err) {
    struct sdc_diff_tensor t;
    *aside = true;
    if (p->a == SDC_NAME_NONE || p->b == SDC_NAME_NONE) {
        SDC_TRY(describe(c, p, &t, err));
        return keep(c, &t, err);
    }
    const struct sdc_tensor_desc *a = sdc_ckpt_tensor(c->a, p->a), *b = sdc_ckpt_tensor(c->b, p->b);
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st = SDC_OK;
    if (!same_type(a, b) || (p->link == SDC_NAME_NONE && !same_shape(a, b))) {
        form_text(&text, a);
        sdc__buf_puts(&text, " against ");
        form_text(&text, b);
        st = text.failed ? SDC_NOMEM(err, a->name) : keep_incomparable(c, p, false, text.data, err);
    } else if (!a->dtype_known && a->n_elems > 0) {
        sdc__buf_printf(&text, "type %s: its values are not understood", a->dtype_text);
        st = text.failed ? SDC_NOMEM(err, a->name) : keep_incomparable(c, p, true, text.data, err);
    } else {
        *aside = false;
    }
    sdc__buf_release(&text);
    return st;
}

/* ---- elements ---- */

static const struct sdc_name_link *reordered(const struct comparing *c,
                                             const struct sdc_diff_pair *p) {
    if (p->link == SDC_NAME_NONE || !c->match.links.items[p->link].axes)
        return NULL;
    return &c->match.links.items[p->link];
}

static size_t index_of(const struct comparing *c, uint64_t task) {
    size_t low = 0, high = c->n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (c->first_task[mid] <= task)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Both tensors from element `at` to `end`; whole: B in its own order, if it has another one. */
static enum sdc_status compare_run(const struct comparing *c, struct slot *s,
                                   const struct sdc_diff_pair *p, uint64_t at, uint64_t end,
                                   const unsigned char *whole, struct sdc_error *err) {
    const struct sdc_name_link *link = reordered(c, p);
    const unsigned size = sdc_dtype_bytes(s->part.t.dtype);
    const uint64_t step = SDC_WALK_READ / size;
    for (; at < end; at += step) {
        uint64_t n = end - at < step ? end - at : step;
        SDC_TRY(sdc_ckpt_read(c->a, p->a, at, n, s->a, err));
        if (!whole)
            SDC_TRY(sdc_ckpt_read(c->b, p->b, at, n, s->b, err));
        for (uint64_t k = 0; whole && k < n; k++)
            memcpy(s->b + k * size, whole + sdc_name_link_elem(link, at + k) * size, size);
        SDC_TRY(sdc__diff_add(&s->part, s->a, s->b, at, n, &c->rule, err));
    }
    return SDC_OK;
}

static enum sdc_status compare_reordered(const struct comparing *c, struct slot *s,
                                         const struct sdc_diff_pair *p, struct sdc_error *err) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c->b, p->b);
    const uint64_t bytes = d->n_elems * sdc_dtype_bytes(d->dtype);
    if (bytes > MAX_REORDERED)
        return SDC_ERR(err, SDC_LIMIT, "%s: too large to be compared in another order of axes",
                       d->name);
    unsigned char *whole = sdc__alloc((size_t)bytes, 1);
    if (!whole)
        return SDC_NOMEM(err, d->name);
    enum sdc_status st = sdc_ckpt_read(c->b, p->b, 0, d->n_elems, whole, err);
    if (st == SDC_OK)
        st = compare_run(c, s, p, 0, d->n_elems, whole, err);
    sdc__free(whole);
    return st;
}

static enum sdc_status work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct comparing *c = user;
    struct slot *s = slot;
    const size_t k = index_of(c, task);
    const struct sdc_diff_pair *p = pair_of(c, k);
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c->a, p->a);
    const uint64_t chunk = d->dtype_known ? SDC_WALK_CHUNK / sdc_dtype_bytes(d->dtype) : 1;
    const uint64_t at = (task - c->first_task[k]) * chunk;
    const uint64_t end = d->n_elems - at < chunk ? d->n_elems : at + chunk;
    sdc__diff_part_reset(&s->part, d->dtype);
    enum sdc_status st = SDC_OK;
    if (d->n_elems > 0)
        st = reordered(c, p) ? compare_reordered(c, s, p, &s->found)
                             : compare_run(c, s, p, at, end, NULL, &s->found);
    s->failed = sdc__walk_is_finding(st);
    if (st == SDC_OK || s->failed)
        return SDC_OK;
    *err = s->found;
    return st;
}

static enum sdc_status complete(struct comparing *c, const struct sdc_diff_pair *p,
                                struct sdc_error *err) {
    struct sdc_diff_tensor t, *sum = &c->all.t;
    SDC_TRY(describe(c, p, &t, err));
    sdc__diff_finish(&c->all);
    sum->name = t.name;
    sum->name_b = t.name_b;
    sum->part = t.part;
    sum->role = t.role;
    sum->dtype_known = t.dtype_known;
    t = *sum;
    sum->sites = NULL; /* handed over */
    return keep(c, &t, err);
}

static enum sdc_status commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct comparing *c = user;
    struct slot *s = slot;
    const size_t k = index_of(c, task);
    const struct sdc_diff_pair *p = pair_of(c, k);
    if (c->failed_at == k + 1)
        return SDC_OK; /* said already */
    if (s->failed) {
        c->failed_at = k + 1;
        c->under_way = false;
        return keep_incomparable(c, p, true, s->found.message, err);
    }
    if (!c->under_way)
        sdc__diff_part_reset(&c->all, s->part.t.dtype);
    c->under_way = task + 1 < c->first_task[k + 1];
    SDC_TRY(sdc__diff_join(&c->all, &s->part, &c->rule, err));
    return c->under_way ? SDC_OK : complete(c, p, err);
}

/* ---- all pairs ---- */

static enum sdc_status list(struct comparing *c, struct sdc_error *err) {
    c->pairs = sdc__alloc(c->match.n, sizeof *c->pairs);
    c->first_task = sdc__alloc(c->match.n + 1, sizeof *c->first_task);
    if (!c->pairs || !c->first_task)
        return SDC_NOMEM(err, "the comparison");
    c->first_task[0] = 0;
    for (size_t i = 0; i < c->match.n; i++) {
        const struct sdc_diff_pair *p = &c->match.pairs[i];
        bool aside;
        SDC_TRY(set_aside(c, p, &aside, err));
        if (aside)
            continue;
        bool one = reordered(c, p) || !sdc_ckpt_tensor(c->a, p->a)->dtype_known;
        uint64_t a = one ? 1 : sdc__walk_chunks(c->a, p->a);
        uint64_t b = one ? 1 : sdc__walk_chunks(c->b, p->b);
        c->pairs[c->n++] = i;
        c->first_task[c->n] = c->first_task[c->n - 1] + (a < b ? a : b);
    }
    return SDC_OK;
}

static enum sdc_status run(struct comparing *c, struct sdc_error *err) {
    const uint64_t n = c->first_task[c->n];
    const unsigned threads = sdc__parallel_threads(c->options->threads, n);
    struct slot *slots = sdc__calloc(threads, sizeof *slots);
    enum sdc_status st = slots ? SDC_OK : SDC_NOMEM(err, "the comparison");
    for (unsigned i = 0; st == SDC_OK && i < threads; i++) {
        slots[i].a = sdc__alloc_tensor(SDC_WALK_READ, 1);
        slots[i].b = sdc__alloc_tensor(SDC_WALK_READ, 1);
        st = slots[i].a && slots[i].b ? SDC_OK : SDC_NOMEM(err, "the comparison");
    }
    struct sdc_parallel p = {.n_tasks = n,
                             .threads = threads,
                             .work = work,
                             .commit = commit,
                             .user = c,
                             .slots = slots,
                             .slot_size = sizeof *slots};
    if (st == SDC_OK)
        st = sdc__parallel_run(&p, err);
    for (unsigned i = 0; slots && i < threads; i++) {
        sdc__free(slots[i].a);
        sdc__free(slots[i].b);
        sdc__free(slots[i].part.t.sites);
    }
    sdc__free(slots);
    return st;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct sdc_diff_tensor *)x)->name,
                  ((const struct sdc_diff_tensor *)y)->name);
}

static enum sdc_status compare_tensors(struct comparing *c, struct sdc_error *err) {
    SDC_TRY(sdc__diff_match(c->a, c->b, c->options, &c->match, err));
    c->out->n_tensors_a = c->match.n_a;
    c->out->n_tensors_b = c->match.n_b;
    SDC_TRY(list(c, err));
    SDC_TRY(run(c, err));
    if (c->out->n > 1)
        qsort(c->out->tensors, c->out->n, sizeof *c->out->tensors, by_name);
    return SDC_OK;
}

/* Of byte-identical files. */
static enum sdc_status count_tensors(struct comparing *c, struct sdc_error *err) {
    SDC_TRY(sdc__diff_match(c->a, c->b, c->options, &c->match, err));
    c->out->n_tensors_a = c->match.n_a;
    c->out->n_tensors_b = c->match.n_b;
    c->out->n_tensors = c->match.n;
    return SDC_OK;
}

static void judge(struct sdc_diff *d) {
    const uint64_t unknown = d->same_container ? 0 : d->n_unreadable_tensors;
    d->same_bits = d->n_differ_tensors + unknown == 0;
    d->same_values = d->n_value_tensors + unknown == 0;
    d->within = d->n_beyond_tensors + unknown == 0;
}

enum sdc_status sdc_diff_files(const char *path_a, const char *path_b,
                               const struct sdc_diff_options *options, struct sdc_diff *diff,
                               struct sdc_error *err) {
    static const struct sdc_diff_options plain = {0};
    struct comparing c = {.options = options ? options : &plain, .out = diff};
    enum sdc_status st;
    c.rule = (struct sdc_diff_rule){
        .max_sites = c.options->max_sites, .rtol = c.options->rtol, .atol = c.options->atol};
    *diff = (struct sdc_diff){0};
    SDC_TRY_OUT(st, sdc_ckpt_open(path_a, c.options->open, &c.a, err));
    SDC_TRY_OUT(st, sdc_ckpt_open(path_b, c.options->open, &c.b, err));
    SDC_TRY_OUT(st, sdc__diff_check_globs(c.a, c.b, c.options, err));
    SDC_TRY_OUT(st, sdc__diff_bytes(c.a, c.b, c.options->threads, diff, err));
    if (diff->same_container && !c.options->all && !c.options->map)
        SDC_TRY_OUT(st, count_tensors(&c, err));
    else
        SDC_TRY_OUT(st, compare_tensors(&c, err));
    judge(diff);
out:
    sdc__diff_match_release(&c.match);
    sdc__free(c.pairs);
    sdc__free(c.first_task);
    sdc__free(c.all.t.sites);
    sdc_ckpt_close(c.a);
    sdc_ckpt_close(c.b);
    if (st != SDC_OK)
        sdc_diff_release(diff);
    return st;
}

void sdc_diff_release(struct sdc_diff *diff) {
    for (size_t i = 0; i < diff->n; i++)
        sdc_diff_tensor_release(&diff->tensors[i]);
    sdc__free(diff->tensors);
    sdc__free(diff->first_file);
    *diff = (struct sdc_diff){0};
}
