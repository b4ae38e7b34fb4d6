/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of flipped bits. Of a float of 16 bits and more nothing but its exponent and whether its
 * mantissa is zero decides the class of each of its bits: bounds of bands and of extremes are
 * powers of two. So one histogram a tensor holds all, and smaller types are few enough values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audit/stats.h"
#include "audit/walk.h"
#include "base/alloc.h"
#include "base/guard.h"
#include "fault/support.h"
#include "sdc/audit.h"

#define DEFAULT_EXTREME 20

static const char *const names[] = {
#define NAME(name, text, meaning) [SDC_EFFECT_##name] = text,
    SDC_EFFECT_MAP(NAME)
#undef NAME
};
static const char *const meanings[] = {
#define MEANING(name, text, meaning) [SDC_EFFECT_##name] = meaning,
    SDC_EFFECT_MAP(MEANING)
#undef MEANING
};

const char *sdc_effect_name(enum sdc_effect effect) {
    return names[effect];
}

const char *sdc_effect_meaning(enum sdc_effect effect) {
    return meanings[effect];
}

/* ---- classes ---- */

/* Relative change in (2^(k-1), 2^k]. */
static enum sdc_effect band(int k) {
    return k > 0     ? SDC_EFFECT_GROW
           : k > -3  ? SDC_EFFECT_CHANGE_1
           : k > -7  ? SDC_EFFECT_CHANGE_8TH
           : k > -11 ? SDC_EFFECT_CHANGE_2_7
                     : SDC_EFFECT_CHANGE_2_11;
}

/* A bit of a value with this exponent field; magnitudes from 2^extreme on are extreme. */
static enum sdc_effect effect_by_exponent(enum sdc_dtype dtype, unsigned exponent, bool round,
                                          unsigned bit, int extreme) {
    const unsigned e = sdc_dtype_exponent_bits(dtype), m = sdc_dtype_mantissa_bits(dtype);
    const unsigned top = (1u << e) - 1;
    const int bias = (1 << (e - 1)) - 1;
    const bool in_exponent = bit >= m && bit < m + e;
    if (exponent == top)
        return in_exponent ? SDC_EFFECT_MADE_FINITE : SDC_EFFECT_KEPT_NONFINITE;
    if (bit == m + e)
        return SDC_EFFECT_SIGN;
    if (!in_exponent)
        return exponent == 0 ? SDC_EFFECT_FROM_ZERO : band((int)bit - (int)m);
    const unsigned after = exponent ^ 1u << (bit - m);
    if (after == top)
        return round ? SDC_EFFECT_TO_INF : SDC_EFFECT_TO_NAN;
    if ((int)after - bias >= extreme && (int)exponent - bias < extreme)
        return SDC_EFFECT_TO_EXTREME;
    if (exponent == 0)
        return SDC_EFFECT_FROM_ZERO;
    if (after == 0)
        return SDC_EFFECT_TO_ZERO;
    /* 2^d - 1 upwards, which is 1 for d = 1; 1 - 2^d in [1/2, 1) downwards */
    return band(after > exponent + 1);
}

static bool small(enum sdc_num_class class) {
    return class == SDC_CLASS_ZERO || class == SDC_CLASS_SUBNORMAL;
}

static enum sdc_effect effect_by_value(enum sdc_dtype dtype, uint64_t raw, unsigned bit,
                                       int extreme) {
    const uint64_t flipped = sdc_num_flip(dtype, raw, bit);
    const enum sdc_num_class was = sdc_num_class(dtype, raw), is = sdc_num_class(dtype, flipped);
    if (!sdc_num_is_finite(dtype, raw))
        return sdc_num_is_finite(dtype, flipped) ? SDC_EFFECT_MADE_FINITE
                                                 : SDC_EFFECT_KEPT_NONFINITE;
    if (is == SDC_CLASS_NAN || is == SDC_CLASS_INF)
        return is == SDC_CLASS_NAN ? SDC_EFFECT_TO_NAN : SDC_EFFECT_TO_INF;
    const double x = sdc_num_to_double(dtype, raw), y = sdc_num_to_double(dtype, flipped);
    const double limit = ldexp(1, extreme), change = fabs(y - x), size = fabs(x);
    if (fabs(y) == size)
        return SDC_EFFECT_SIGN;
    if (fabs(y) >= limit && size < limit)
        return SDC_EFFECT_TO_EXTREME;
    if (small(was))
        return SDC_EFFECT_FROM_ZERO;
    if (small(is))
        return SDC_EFFECT_TO_ZERO;
    int k = 1;
    while (k > -11 && change <= ldexp(size, k - 1))
        k--;
    return band(k);
}

/* ---- one pass: the histogram of each tensor, its empty bins left out ---- */

struct bin {
    uint32_t bin;
    uint64_t count;
};

struct histogram {
    struct bin *bins; /* owned */
    size_t n;
};

struct predicting {
    struct sdc_ckpt *ckpt;
    const struct sdc_support *support;
    struct sdc_predict *out;
    unsigned extreme;
    size_t *tensors, *places; /* that are read: in the checkpoint, in the support */
    size_t n;
    struct histogram *histograms; /* of each tensor of the support */
    struct sdc_stats all;
    bool under_way;
};

static enum sdc_dtype dtype_of(const struct predicting *p, size_t k) {
    return sdc_ckpt_tensor(p->ckpt, p->tensors[k])->dtype;
}

static enum sdc_status slot_init(void *user, void *slot, struct sdc_error *err) {
    (void)user;
    return sdc__stats_init(slot, false, 0, err);
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

static enum sdc_status keep(struct predicting *p, size_t k, struct sdc_error *err) {
    struct histogram *h = &p->histograms[p->places[k]];
    size_t n = 0;
    for (uint32_t i = 0; i < SDC_STAT_BINS; i++)
        n += p->all.bins[i] > 0;
    h->bins = sdc__alloc(n, sizeof *h->bins);
    if (!h->bins)
        return SDC_NOMEM(err, sdc_ckpt_path(p->ckpt));
    for (uint32_t i = 0; i < SDC_STAT_BINS; i++)
        if (p->all.bins[i] > 0)
            h->bins[h->n++] = (struct bin){i, p->all.bins[i]};
    return SDC_OK;
}

static enum sdc_status chunk(void *user, void *slot, size_t k, bool last, struct sdc_error *err) {
    struct predicting *p = user;
    if (!p->under_way) {
        memset(p->all.bins, 0, SDC_STAT_BINS * sizeof *p->all.bins); /* whatever type was before */
        sdc__stats_reset(&p->all, dtype_of(p, k));
    }
    p->under_way = !last;
    sdc__stats_join(&p->all, slot);
    return last ? keep(p, k, err) : SDC_OK;
}

static enum sdc_status unreadable(void *user, size_t k, const struct sdc_error *found,
                                  struct sdc_error *err) {
    struct predicting *p = user;
    struct sdc_predict_tensor *t = &p->out->tensors[p->places[k]];
    p->under_way = false;
    t->unreadable = sdc__strdup(found->message);
    return t->unreadable ? SDC_OK : SDC_NOMEM(err, sdc_ckpt_path(p->ckpt));
}

/* ---- thresholds ---- */

/* e of the largest finite magnitude, 2^e <= |x| < 2^(e+1); false: all are zero or not finite. */
static bool largest_scale(const struct predicting *p, size_t i, int *scale) {
    const enum sdc_dtype dtype = p->out->tensors[i].dtype;
    const struct histogram *h = &p->histograms[i];
    bool any = false;
    for (size_t k = 0; k < h->n; k++) {
        int e;
        if (sdc__stats_by_value(dtype)) {
            if (!sdc__scale_of(dtype, h->bins[k].bin, &e))
                continue;
        } else {
            const unsigned top = (1u << sdc_dtype_exponent_bits(dtype)) - 1;
            unsigned exponent = h->bins[k].bin >> 1;
            if (exponent == top || h->bins[k].bin == 1)
                continue;
            e = (int)exponent - (int)(top >> 1);
        }
        *scale = any && *scale > e ? *scale : e;
        any = true;
    }
    return any;
}

static bool has_values(enum sdc_dtype dtype) {
    return sdc_dtype_kind(dtype) == SDC_KIND_FLOAT;
}

static enum sdc_status find_roles(struct predicting *p, struct sdc_error *err) {
    struct sdc_predict *out = p->out;
    out->roles = sdc__calloc(SDC_ROLE_COUNT, sizeof *out->roles);
    if (!out->roles)
        return SDC_NOMEM(err, sdc_ckpt_path(p->ckpt));
    for (int role = 0; role < SDC_ROLE_COUNT; role++) {
        struct sdc_predict_role r = {.role = (enum sdc_role)role};
        int most = -1;
        bool here = false;
        for (size_t i = 0; i < out->n_tensors; i++) {
            int scale = 0;
            if (out->tensors[i].role != r.role)
                continue;
            here = true;
            r.sites += out->tensors[i].sites;
            r.has_extreme |= has_values(out->tensors[i].dtype);
            if (has_values(out->tensors[i].dtype) && largest_scale(p, i, &scale) && scale > most)
                most = scale;
        }
        r.extreme = r.has_extreme ? most + 1 + (int)p->extreme : 0;
        if (here)
            out->roles[out->n_roles++] = r;
    }
    return SDC_OK;
}

/* ---- counting ---- */

static struct sdc_predict_role *role_of(struct sdc_predict *out, enum sdc_role role) {
    size_t i = 0;
    while (out->roles[i].role != role)
        i++;
    return &out->roles[i];
}

static void add(struct sdc_predict_counts *to, enum sdc_effect effect, uint64_t count) {
    to->sites[effect] += count;
}

/* per_bit: one each for the bits of the tensor's type */
static void count_tensor(struct predicting *p, size_t i, struct sdc_predict_counts *per_bit) {
    struct sdc_predict_tensor *t = &p->out->tensors[i];
    const struct sdc_support_tensor *place = &p->support->tensors[i];
    struct sdc_predict_role *role = role_of(p->out, t->role);
    const struct histogram *h = &p->histograms[i];
    if (t->unreadable) {
        p->out->unreadable += t->sites;
        return;
    }
    for (uint64_t mask = place->mask; mask; mask &= mask - 1) {
        unsigned bit = (unsigned)__builtin_ctzll(mask);
        struct sdc_predict_counts c = {{0}};
        if (!has_values(t->dtype))
            c.sites[SDC_EFFECT_INTEGER] = place->n_elems;
        for (size_t k = 0; k < h->n; k++) {
            uint32_t bin = h->bins[k].bin;
            add(&c,
                sdc__stats_by_value(t->dtype)
                    ? effect_by_value(t->dtype, bin, bit, role->extreme)
                    : effect_by_exponent(t->dtype, bin >> 1, bin & 1, bit, role->extreme),
                h->bins[k].count);
        }
        for (int effect = 0; effect < SDC_EFFECT_COUNT; effect++) {
            add(&per_bit[bit], (enum sdc_effect)effect, c.sites[effect]);
            add(&t->counts, (enum sdc_effect)effect, c.sites[effect]);
            add(&role->counts, (enum sdc_effect)effect, c.sites[effect]);
            add(&p->out->counts, (enum sdc_effect)effect, c.sites[effect]);
        }
    }
}

static bool any_site(const struct sdc_predict_counts *c) {
    for (int effect = 0; effect < SDC_EFFECT_COUNT; effect++)
        if (c->sites[effect] > 0)
            return true;
    return false;
}

static enum sdc_status count_all(struct predicting *p, struct sdc_error *err) {
    struct sdc_predict *out = p->out;
    struct sdc_predict_counts(*bits)[64] = sdc__calloc(SDC_DTYPE_COUNT, sizeof *bits);
    out->bits = sdc__calloc((size_t)SDC_DTYPE_COUNT * 64, sizeof *out->bits);
    if (!bits || !out->bits) {
        sdc__free(bits);
        return SDC_NOMEM(err, sdc_ckpt_path(p->ckpt));
    }
    for (size_t i = 0; i < out->n_tensors; i++)
        count_tensor(p, i, bits[out->tensors[i].dtype]);
    for (int dtype = 0; dtype < SDC_DTYPE_COUNT; dtype++)
        for (unsigned bit = 64; bit-- > 0;)
            if (any_site(&bits[dtype][bit]))
                out->bits[out->n_bits++] = (struct sdc_predict_bit){
                    .dtype = (enum sdc_dtype)dtype, .bit = bit, .counts = bits[dtype][bit]};
    sdc__free(bits);
    return SDC_OK;
}

/* ---- the whole ---- */

static enum sdc_status list(struct predicting *p, struct sdc_error *err) {
    const struct sdc_support *s = p->support;
    struct sdc_predict *out = p->out;
    out->tensors = sdc__calloc(s->n_tensors, sizeof *out->tensors);
    p->histograms = sdc__calloc(s->n_tensors, sizeof *p->histograms);
    p->tensors = sdc__alloc(s->n_tensors, sizeof *p->tensors);
    p->places = sdc__alloc(s->n_tensors, sizeof *p->places);
    if (!out->tensors || !p->histograms || !p->tensors || !p->places)
        return SDC_NOMEM(err, sdc_ckpt_path(p->ckpt));
    out->n_tensors = s->n_tensors;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct sdc_support_tensor *t = &s->tensors[i];
        const struct sdc_tensor_desc *d = s->descs[t->tensor];
        out->tensors[i] = (struct sdc_predict_tensor){.tensor = t->tensor,
                                                      .dtype = d->dtype,
                                                      .role = d->role,
                                                      .sites = t->n_elems * t->width};
        out->sites += out->tensors[i].sites;
        if (!has_values(d->dtype))
            continue;
        p->places[p->n] = i;
        p->tensors[p->n++] = t->tensor;
    }
    return SDC_OK;
}

static enum sdc_status go(struct predicting *p, unsigned threads, struct sdc_error *err) {
    SDC_TRY(list(p, err));
    SDC_TRY(sdc__stats_init(&p->all, false, 0, err));
    const struct sdc_walk walk = {.ckpt = p->ckpt,
                                  .tensors = p->tensors,
                                  .n = p->n,
                                  .threads = threads,
                                  .user = p,
                                  .slot_size = sizeof(struct sdc_stats),
                                  .slot_init = slot_init,
                                  .slot_release = slot_release,
                                  .begin = begin,
                                  .elements = elements,
                                  .chunk = chunk,
                                  .unreadable = unreadable};
    SDC_TRY(sdc__walk(&walk, err));
    SDC_TRY(find_roles(p, err));
    return count_all(p, err);
}

enum sdc_status sdc_predict(struct sdc_ckpt *ckpt, const struct sdc_choice *choice,
                            const struct sdc_predict_options *options, struct sdc_predict *predict,
                            struct sdc_error *err) {
    const size_t n = sdc_ckpt_count(ckpt);
    struct predicting p = {.ckpt = ckpt,
                           .out = predict,
                           .extreme = options->extreme ? options->extreme : DEFAULT_EXTREME};
    struct sdc_support *support = NULL;
    enum sdc_status st;
    *predict = (struct sdc_predict){0};
    if (choice->op != SDC_OP_FLIP || sdc_choice_takes_elements(choice))
        return SDC_ERR(err, SDC_USAGE,
                       "only single flipped bits can be predicted, expected op flip");
    const struct sdc_tensor_desc **descs = sdc__alloc(n, sizeof *descs);
    if (!descs)
        return SDC_NOMEM(err, sdc_ckpt_path(ckpt));
    for (size_t i = 0; i < n; i++)
        descs[i] = sdc_ckpt_tensor(ckpt, i);
    const char *unmatched =
        sdc_tensor_unmatched(descs, n, (const char *const *)choice->tensors, choice->n_tensors);
    if (unmatched)
        SDC_TRY_OUT(st, SDC_ERR(err, SDC_USAGE, "tensors: no tensor of %s is called '%s'",
                                sdc_ckpt_path(ckpt), unmatched));
    unmatched = sdc_tensor_missing(descs, n, (const char *const *)choice->not_tensors,
                                   choice->n_not_tensors);
    if (unmatched)
        SDC_TRY_OUT(st, SDC_ERR(err, SDC_USAGE, "not-tensors: no tensor of %s is called '%s'",
                                sdc_ckpt_path(ckpt), unmatched));
    SDC_TRY_OUT(st, sdc_support_new(descs, n, choice, &support, err));
    p.support = support;
    st = go(&p, options->threads, err);
out:
    for (size_t i = 0; p.histograms && i < predict->n_tensors; i++)
        sdc__free(p.histograms[i].bins);
    sdc__free(p.histograms);
    sdc__free(p.tensors);
    sdc__free(p.places);
    sdc__stats_release(&p.all);
    sdc_support_free(support);
    sdc__free(descs);
    if (st != SDC_OK)
        sdc_predict_release(predict);
    return st;
}

void sdc_predict_release(struct sdc_predict *predict) {
    for (size_t i = 0; predict->tensors && i < predict->n_tensors; i++)
        sdc__free(predict->tensors[i].unreadable);
    sdc__free(predict->tensors);
    sdc__free(predict->bits);
    sdc__free(predict->roles);
    *predict = (struct sdc_predict){0};
}
