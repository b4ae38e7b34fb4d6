/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audit/stats.h"
#include "audit/tail.h"
#include "audit/walk.h"
#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "sdc/audit.h"

#define MAX_SITES ((size_t)100000)

struct scanning {
    struct sdc_ckpt *ckpt;
    size_t max_sites;
    const size_t *tensors;
    struct sdc_stats all; /* of the tensor whose chunks are being handed over */
    bool under_way;       /* some chunk of it has been */
    struct sdc_scan *out;
    uint64_t *scales; /* SDC_SCALE_COUNT */
};

static enum sdc_dtype dtype_of(const struct scanning *s, size_t k) {
    return sdc_ckpt_tensor(s->ckpt, s->tensors[k])->dtype;
}

static enum sdc_status slot_init(void *user, void *slot, struct sdc_error *err) {
    const struct scanning *s = user;
    return sdc__stats_init(slot, true, s->max_sites, err);
}

static void slot_release(void *user, void *slot) {
    (void)user;
    sdc__stats_release(slot);
}

static void begin(void *user, void *slot, size_t k) {
    sdc__stats_reset(slot, dtype_of(user, k));
}

static void elements(void *user, void *slot, size_t k, uint64_t first, uint64_t n,
                     const void *data) {
    (void)user;
    (void)k;
    sdc__stats_add(slot, data, first, n);
}

/* ---- what is out of proportion ---- */

static int percentile(const uint64_t *scales, uint64_t n, unsigned tenths) {
    uint64_t want = (uint64_t)((long double)(n - 1) * tenths / 10), seen = 0;
    int at = 0;
    for (; seen + scales[at] <= want; at++)
        seen += scales[at];
    return at + SDC_SCALE_MIN;
}

static void find_scale(struct scanning *s, struct sdc_scan_tensor *t) {
    uint64_t n = 0;
    sdc__stats_scales(&s->all, s->scales);
    for (int i = 0; i < SDC_SCALE_COUNT; i++)
        n += s->scales[i];
    t->n_suspicious = t->n_nan + t->n_inf;
    if (n < 4)
        return;
    struct sdc_scan_scale *c = &t->scale;
    c->known = true;
    c->low = percentile(s->scales, n, 1);
    c->high = percentile(s->scales, n, 9);
    c->limit = c->high + (2 * (c->high - c->low) > 8 ? 2 * (c->high - c->low) : 8);
    for (int i = c->limit + 1 - SDC_SCALE_MIN; i < SDC_SCALE_COUNT; i++)
        t->n_suspicious += i >= 0 ? s->scales[i] : 0;
}

static uint64_t bits_to_ordinary(enum sdc_dtype dtype, const struct sdc_scan_scale *c,
                                 uint64_t raw) {
    uint64_t bits = 0;
    for (unsigned bit = 0; c->known && bit < sdc_dtype_bits(dtype); bit++) {
        int scale;
        if (sdc__scale_of(dtype, sdc_num_flip(dtype, raw, bit), &scale) && scale <= c->limit &&
            scale >= c->low - (c->limit - c->high))
            bits |= (uint64_t)1 << bit;
    }
    return bits;
}

/* ---- one tensor ---- */

static enum sdc_status take_sites(const struct sdc_stat_site *from, size_t n, enum sdc_dtype dtype,
                                  const struct sdc_scan_scale *scale, struct sdc_scan_site **to,
                                  size_t *n_to, struct sdc_error *err) {
    *to = sdc__alloc(n, sizeof **to);
    if (!*to)
        return SDC_NOMEM(err, "the elements found");
    *n_to = n;
    for (size_t i = 0; i < n; i++) {
        int size;
        bool ordinary = sdc__scale_of(dtype, from[i].raw, &size)
                            ? !scale->known || size <= scale->limit
                            : sdc_num_is_finite(dtype, from[i].raw);
        (*to)[i] = (struct sdc_scan_site){
            .elem = from[i].elem,
            .raw = from[i].raw,
            .suspicious = !ordinary,
            .bits = ordinary ? 0 : bits_to_ordinary(dtype, scale, from[i].raw)};
    }
    return SDC_OK;
}

static uint64_t raw_of_key(enum sdc_dtype dtype, uint64_t key) {
    if (sdc_dtype_kind(dtype) == SDC_KIND_SINT)
        key ^= UINT64_C(1) << 63;
    unsigned bits = sdc_dtype_bits(dtype);
    return bits == 64 ? key : key & (((uint64_t)1 << bits) - 1);
}

static enum sdc_status complete(struct scanning *s, struct sdc_scan_tensor *t,
                                struct sdc_error *err) {
    const enum sdc_dtype dtype = s->all.dtype;
    sdc__stats_finish(&s->all);
    const struct sdc_moments *m = &s->all.moments;
    struct sdc_stat_counts c = sdc__stats_counts(&s->all);
    t->n_nan = c.nan;
    t->n_inf = c.inf;
    t->n_zero = c.zero;
    t->n_subnormal = c.subnormal;
    t->n_finite = c.finite;
    if (m->n > 0) {
        t->min = s->all.has_ends ? raw_of_key(dtype, s->all.ends.min)
                                 : sdc_num_from_double(dtype, m->min);
        t->max = s->all.has_ends ? raw_of_key(dtype, s->all.ends.max)
                                 : sdc_num_from_double(dtype, m->max);
        t->mean = m->mean;
        t->std = (double)sqrtl(m->m2 / (long double)m->n);
        t->l2 = (double)sqrtl(m->sq);
    }
    find_scale(s, t);
    SDC_TRY(take_sites(s->all.largest, s->all.n_largest, dtype, &t->scale, &t->largest,
                       &t->n_largest, err));
    return take_sites(s->all.nonfinite, s->all.n_nonfinite, dtype, &t->scale, &t->nonfinite,
                      &t->n_nonfinite, err);
}

static enum sdc_status chunk(void *user, void *slot, size_t k, bool last, struct sdc_error *err) {
    struct scanning *s = user;
    struct sdc_scan_tensor *t = &s->out->tensors[k];
    if (!s->under_way)
        sdc__stats_reset(&s->all, dtype_of(s, k));
    s->under_way = !last;
    sdc__stats_join(&s->all, slot);
    if (!last)
        return SDC_OK;
    SDC_TRY(complete(s, t, err));
    s->out->n_nan += t->n_nan;
    s->out->n_inf += t->n_inf;
    s->out->n_suspicious += t->n_suspicious;
    return SDC_OK;
}

static enum sdc_status unreadable(void *user, size_t k, const struct sdc_error *found,
                                  struct sdc_error *err) {
    struct scanning *s = user;
    s->under_way = false;
    s->out->n_unreadable++;
    s->out->tensors[k].unreadable = sdc__strdup(found->message);
    return s->out->tensors[k].unreadable ? SDC_OK : SDC_NOMEM(err, sdc_ckpt_path(s->ckpt));
}

/* ---- all of them ---- */

static bool any_asked_for(const struct sdc_ckpt *ckpt, const char *const *glob) {
    size_t i = 0;
    while (i < sdc_ckpt_count(ckpt) && !sdc_tensor_matches(sdc_ckpt_tensor(ckpt, i), glob, 1))
        i++;
    return i < sdc_ckpt_count(ckpt);
}

/* Lists the tensors, those of known type also in `tensors`, which then is parallel to the list:
 * the others stand behind. */
static enum sdc_status list(struct scanning *s, const struct sdc_scan_options *o, size_t *tensors,
                            size_t *n_known, struct sdc_error *err) {
    const size_t n = sdc_ckpt_count(s->ckpt);
    *n_known = 0;
    for (size_t i = 0; i < o->n_globs; i++)
        if (!any_asked_for(s->ckpt, &o->globs[i]))
            return SDC_ERR(err, SDC_USAGE, "tensors: no tensor of %s is called '%s'",
                           sdc_ckpt_path(s->ckpt), o->globs[i]);
    for (int known = 1; known >= 0; known--)
        for (size_t i = 0; i < n; i++) {
            const struct sdc_tensor_desc *d = sdc_ckpt_tensor(s->ckpt, i);
            if (d->dtype_known != known ||
                (o->n_globs > 0 && !sdc_tensor_matches(d, o->globs, o->n_globs)))
                continue;
            struct sdc_scan_tensor *t = &s->out->tensors[s->out->n++];
            *t = (struct sdc_scan_tensor){.tensor = i, .n_elems = d->n_elems};
            s->out->n_elems += d->n_elems;
            if (known) {
                tensors[(*n_known)++] = i;
                continue;
            }
            s->out->n_unreadable++;
            t->unreadable = sdc__asprintf("type %s: its values are not understood", d->dtype_text);
            if (!t->unreadable)
                return SDC_NOMEM(err, d->name);
        }
    return SDC_OK;
}

static int by_tensor(const void *a, const void *b) {
    const struct sdc_scan_tensor *x = a, *y = b;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

enum sdc_status sdc_scan(struct sdc_ckpt *ckpt, const struct sdc_scan_options *options,
                         struct sdc_scan *scan, struct sdc_error *err) {
    const size_t n = sdc_ckpt_count(ckpt);
    struct scanning s = {.ckpt = ckpt,
                         .out = scan,
                         .max_sites =
                             options->max_sites < MAX_SITES ? options->max_sites : MAX_SITES};
    struct sdc_tails tails;
    size_t *tensors = NULL, n_known = 0;
    enum sdc_status st;
    *scan = (struct sdc_scan){0};
    SDC_TRY_OUT(st, sdc__stats_init(&s.all, true, s.max_sites, err));
    scan->tensors = sdc__calloc(n, sizeof *scan->tensors);
    tensors = sdc__alloc(n, sizeof *tensors);
    s.scales = sdc__alloc(SDC_SCALE_COUNT, sizeof *s.scales);
    if (!scan->tensors || !tensors || !s.scales) {
        st = SDC_NOMEM(err, sdc_ckpt_path(ckpt));
        goto out;
    }
    SDC_TRY_OUT(st, list(&s, options, tensors, &n_known, err));
    s.tensors = tensors;
    const struct sdc_walk walk = {.ckpt = ckpt,
                                  .tensors = tensors,
                                  .n = n_known,
                                  .threads = options->threads,
                                  .user = &s,
                                  .slot_size = sizeof(struct sdc_stats),
                                  .slot_init = slot_init,
                                  .slot_release = slot_release,
                                  .begin = begin,
                                  .elements = elements,
                                  .chunk = chunk,
                                  .unreadable = unreadable};
    SDC_TRY_OUT(st, sdc__walk(&walk, err));
    SDC_TRY_OUT(st, sdc__tails_find(ckpt, &tails, err));
    scan->notes = tails.texts;
    scan->n_notes = tails.n;
    if (scan->n > 1)
        qsort(scan->tensors, scan->n, sizeof *scan->tensors, by_tensor);
out:
    sdc__stats_release(&s.all);
    sdc__free(tensors);
    sdc__free(s.scales);
    if (st != SDC_OK)
        sdc_scan_release(scan);
    return st;
}

void sdc_scan_release(struct sdc_scan *scan) {
    for (size_t i = 0; scan->tensors && i < scan->n; i++) {
        sdc__free(scan->tensors[i].unreadable);
        sdc__free(scan->tensors[i].largest);
        sdc__free(scan->tensors[i].nonfinite);
    }
    sdc__free(scan->tensors);
    for (size_t i = 0; i < scan->n_notes; i++)
        sdc__free(scan->notes[i]);
    sdc__free(scan->notes);
    *scan = (struct sdc_scan){0};
}
