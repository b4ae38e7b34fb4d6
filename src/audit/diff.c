/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/audit.h"

#include <stdlib.h>
#include <string.h>

#include "audit/diff_impl.h"
#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "io/io.h"

/* Bytes of each file held at a time: small enough to stay in the processor's cache between the read
 * and the comparison. */
#define BLOCK ((size_t)512 * 1024)

struct pair {
    struct sdc_ckpt *a, *b;
    const struct sdc_diff_options *options;
    struct sdc_diff *out;
    size_t cap;
    unsigned char *block_a, *block_b;
};

static bool wanted(const struct sdc_diff_options *o, const char *name) {
    if (o->n_globs == 0)
        return true;
    for (size_t i = 0; i < o->n_globs; i++)
        if (sdc__glob_match(o->globs[i], name))
            return true;
    return false;
}

/* ---- the files as bytes ---- */

static enum sdc_status compare_bytes(struct pair *p, const char *path_a, const char *path_b,
                                     struct sdc_error *err) {
    struct sdc_file a = SDC_FILE_INIT, b = SDC_FILE_INIT;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__file_open(path_a, SDC_FILE_READ, &a, err));
    SDC_TRY_OUT(st, sdc__file_open(path_b, SDC_FILE_READ, &b, err));
    bool same = a.size == b.size;
    for (uint64_t at = 0; same && at < a.size; at += BLOCK) {
        size_t n = a.size - at < BLOCK ? (size_t)(a.size - at) : BLOCK;
        SDC_TRY_OUT(st, sdc__file_read(&a, at, p->block_a, n, err));
        SDC_TRY_OUT(st, sdc__file_read(&b, at, p->block_b, n, err));
        same = memcmp(p->block_a, p->block_b, n) == 0;
    }
    p->out->same_container = same;
out:
    sdc__file_close(&a);
    sdc__file_close(&b);
    return st;
}

/* ---- one tensor ---- */

static enum sdc_status describe(const struct sdc_tensor_desc *d, struct sdc_diff_tensor *t,
                                struct sdc_error *err) {
    *t = (struct sdc_diff_tensor){.name = sdc__strdup(d->name),
                                  .part = d->part,
                                  .role = d->role,
                                  .dtype = d->dtype,
                                  .dtype_known = d->dtype_known,
                                  .n_elems = d->n_elems};
    return t->name ? SDC_OK : SDC_NOMEM(err, d->name);
}

static void shape_text(struct sdc_buf *b, const struct sdc_tensor_desc *d) {
    sdc__buf_printf(b, "%s [", d->dtype_known ? sdc_dtype_name(d->dtype) : d->dtype_text);
    for (unsigned i = 0; i < d->rank; i++)
        sdc__buf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)d->shape[i]);
    sdc__buf_putc(b, ']');
}

/* Sets incomparable and why if types or shapes differ. */
static enum sdc_status compare_descs(const struct sdc_tensor_desc *a,
                                     const struct sdc_tensor_desc *b, struct sdc_diff_tensor *t,
                                     struct sdc_error *err) {
    bool same = a->dtype_known == b->dtype_known && a->rank == b->rank &&
                (a->dtype_known ? a->dtype == b->dtype : strcmp(a->dtype_text, b->dtype_text) == 0);
    for (unsigned i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    if (same)
        return SDC_OK;
    struct sdc_buf text = SDC_BUF_INIT;
    shape_text(&text, a);
    sdc__buf_puts(&text, " against ");
    shape_text(&text, b);
    t->incomparable = true;
    t->why = sdc__buf_take(&text);
    sdc__buf_release(&text);
    return t->why ? SDC_OK : SDC_NOMEM(err, a->name);
}

/* A tensor that cannot be read is a finding about it; a failing disk or memory ends the whole. */
static enum sdc_status unreadable(enum sdc_status st, const struct sdc_error *found,
                                  struct sdc_diff_tensor *t, struct sdc_error *err) {
    if (st != SDC_UNSUPPORTED && st != SDC_INVALID && st != SDC_LIMIT) {
        if (err)
            *err = *found;
        return st;
    }
    t->incomparable = t->unreadable = true;
    t->why = sdc__strdup(found->message);
    return t->why ? SDC_OK : SDC_NOMEM(err, t->name);
}

/* Goes over both tensors in blocks: either only until the first difference, or to the end with
 * counts and sums. */
static enum sdc_status scan(struct pair *p, size_t ia, size_t ib, bool count,
                            struct sdc_diff_tensor *t, bool *differs, struct sdc_error *err) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(p->a, ia);
    const unsigned size = sdc_dtype_bytes(d->dtype);
    const uint64_t per_block = BLOCK / size;
    struct sdc_diff_sums sums = {0};
    struct sdc_error found = {0};
    for (uint64_t at = 0; at < d->n_elems; at += per_block) {
        uint64_t n = d->n_elems - at < per_block ? d->n_elems - at : per_block;
        enum sdc_status st = sdc_ckpt_read(p->a, ia, at, n, p->block_a, &found);
        if (st == SDC_OK)
            st = sdc_ckpt_read(p->b, ib, at, n, p->block_b, &found);
        if (st != SDC_OK)
            return unreadable(st, &found, t, err);
        if (count)
            SDC_TRY(sdc__diff_add(d->dtype, p->block_a, p->block_b, at, n, p->options->max_sites, t,
                                  &sums, err));
        else if (memcmp(p->block_a, p->block_b, (size_t)n * size) != 0) {
            *differs = true;
            return SDC_OK;
        }
    }
    if (count)
        sdc__diff_finish(t, &sums);
    return SDC_OK;
}

static enum sdc_status compare_values(struct pair *p, size_t ia, size_t ib,
                                      struct sdc_diff_tensor *t, struct sdc_error *err) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(p->a, ia);
    if (!d->dtype_known && d->n_elems > 0) {
        t->incomparable = t->unreadable = true;
        t->why = sdc__asprintf("type %s: its values are not understood", d->dtype_text);
        return t->why ? SDC_OK : SDC_NOMEM(err, d->name);
    }
    bool differs = false;
    SDC_TRY(scan(p, ia, ib, false, t, &differs, err));
    if (t->incomparable || !(differs || p->options->all))
        return SDC_OK;
    t->n_elems = 0; /* sdc__diff_add counts them */
    SDC_TRY(scan(p, ia, ib, true, t, &differs, err));
    if (t->incomparable)
        t->n_elems = d->n_elems;
    return SDC_OK;
}

/* Takes what t owns, on failure too. */
static enum sdc_status keep(struct pair *p, struct sdc_diff_tensor *t, struct sdc_error *err) {
    struct sdc_diff *out = p->out;
    bool same = t->n_differ == 0 && !t->only_a && !t->only_b && !t->incomparable;
    out->n_tensors++;
    out->n_differ_tensors += !same && !t->unreadable;
    out->n_unreadable_tensors += t->unreadable;
    out->n_differ_elems += t->n_differ;
    out->n_differ_bits += t->n_bits;
    if (same && !p->options->all) {
        sdc_diff_tensor_release(t);
        return SDC_OK;
    }
    if (out->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 16;
        struct sdc_diff_tensor *more = sdc__realloc(out->tensors, cap, sizeof *more);
        if (!more) {
            sdc_diff_tensor_release(t);
            return SDC_NOMEM(err, "the differing tensors");
        }
        out->tensors = more;
        p->cap = cap;
    }
    out->tensors[out->n++] = *t;
    return SDC_OK;
}

/* ---- all tensors ---- */

static enum sdc_status compare_tensor(struct pair *p, size_t ia, bool *seen_b,
                                      struct sdc_error *err) {
    const struct sdc_tensor_desc *da = sdc_ckpt_tensor(p->a, ia);
    struct sdc_diff_tensor t;
    size_t ib;
    enum sdc_status st;
    SDC_TRY(describe(da, &t, err));
    t.only_a = !sdc_ckpt_find(p->b, da->name, &ib);
    if (!t.only_a) {
        seen_b[ib] = true;
        SDC_TRY_OUT(st, compare_descs(da, sdc_ckpt_tensor(p->b, ib), &t, err));
        if (!t.incomparable)
            SDC_TRY_OUT(st, compare_values(p, ia, ib, &t, err));
    }
    return keep(p, &t, err);
out:
    sdc_diff_tensor_release(&t);
    return st;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct sdc_diff_tensor *)x)->name,
                  ((const struct sdc_diff_tensor *)y)->name);
}

/* A name of B that A knows as an alias is no tensor that A lacks. */
static enum sdc_status compare_tensors(struct pair *p, struct sdc_error *err) {
    const size_t n_a = sdc_ckpt_count(p->a), n_b = sdc_ckpt_count(p->b);
    enum sdc_status st = SDC_OK;
    bool *seen_b = sdc__calloc(n_b, sizeof *seen_b);
    if (!seen_b)
        return SDC_NOMEM(err, sdc_ckpt_path(p->b));
    for (size_t i = 0; i < n_a; i++) {
        if (!wanted(p->options, sdc_ckpt_tensor(p->a, i)->name))
            continue;
        p->out->n_tensors_a++;
        SDC_TRY_OUT(st, compare_tensor(p, i, seen_b, err));
    }
    for (size_t i = 0; i < n_b; i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(p->b, i);
        struct sdc_diff_tensor t;
        size_t ia;
        if (!wanted(p->options, d->name))
            continue;
        p->out->n_tensors_b++;
        if (seen_b[i])
            continue;
        SDC_TRY_OUT(st, describe(d, &t, err));
        t.only_b = !sdc_ckpt_find(p->a, d->name, &ia);
        if (!t.only_b) {
            st = compare_descs(sdc_ckpt_tensor(p->a, ia), d, &t, err);
            if (st == SDC_OK && !t.incomparable)
                st = compare_values(p, ia, i, &t, err);
            if (st != SDC_OK) {
                sdc_diff_tensor_release(&t);
                goto out;
            }
        }
        SDC_TRY_OUT(st, keep(p, &t, err));
    }
    if (p->out->n > 1)
        qsort(p->out->tensors, p->out->n, sizeof *p->out->tensors, by_name);
out:
    sdc__free(seen_b);
    return st;
}

static void count_tensors(struct pair *p) {
    for (size_t i = 0; i < sdc_ckpt_count(p->a); i++)
        p->out->n_tensors_a += wanted(p->options, sdc_ckpt_tensor(p->a, i)->name);
    p->out->n_tensors = p->out->n_tensors_b = p->out->n_tensors_a;
}

enum sdc_status sdc_diff_files(const char *path_a, const char *path_b,
                               const struct sdc_diff_options *options, struct sdc_diff *diff,
                               struct sdc_error *err) {
    static const struct sdc_diff_options plain = {0};
    struct pair p = {.options = options ? options : &plain, .out = diff};
    enum sdc_status st;
    *diff = (struct sdc_diff){0};
    p.block_a = sdc__alloc(BLOCK, 1);
    p.block_b = sdc__alloc(BLOCK, 1);
    if (!p.block_a || !p.block_b) {
        st = SDC_NOMEM(err, "comparing");
        goto out;
    }
    SDC_TRY_OUT(st, sdc_ckpt_open(path_a, p.options->open, &p.a, err));
    SDC_TRY_OUT(st, sdc_ckpt_open(path_b, p.options->open, &p.b, err));
    SDC_TRY_OUT(st, compare_bytes(&p, path_a, path_b, err));
    if (diff->same_container && !p.options->all)
        count_tensors(&p);
    else
        SDC_TRY_OUT(st, compare_tensors(&p, err));
    diff->same_values =
        diff->same_container || diff->n_differ_tensors + diff->n_unreadable_tensors == 0;
out:
    sdc_ckpt_close(p.a);
    sdc_ckpt_close(p.b);
    sdc__free(p.block_a);
    sdc__free(p.block_b);
    if (st != SDC_OK)
        sdc_diff_release(diff);
    return st;
}

void sdc_diff_release(struct sdc_diff *diff) {
    for (size_t i = 0; i < diff->n; i++)
        sdc_diff_tensor_release(&diff->tensors[i]);
    sdc__free(diff->tensors);
    *diff = (struct sdc_diff){0};
}
