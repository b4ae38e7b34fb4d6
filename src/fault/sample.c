/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawing the numbers of sites.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/set.h"
#include "base/sort.h"
#include "fault/support.h"

#define AHEAD 32 /* tries whose places in memory are asked for before they are looked at */

/* ---- a group first, then an element, then a bit ---- */

/* The groups of which a site is not drawn yet. */
struct open_groups {
    const struct sdc_support *s;
    bool alike;     /* groups are drawn alike; else by the units of their elements */
    size_t n;       /* those that are open */
    size_t *group;  /* owned; as all that follow, n of them */
    uint64_t *left; /* owned: sites not drawn yet */
    uint64_t *end;  /* owned: units up to its end */
    uint64_t *unit; /* owned: units of one of its elements */
    uint64_t total;
};

/* Of sample elements 1. Of bytes an eighth of a byte: 8, since a group is one byte of each element,
 * or the bits of a smaller type; the bits of an element that is a site as a whole. */
static uint64_t unit_of(const struct sdc_support *s, enum sdc_sample sample, size_t group) {
    const struct sdc_support_tensor *t = &s->tensors[s->groups[group].tensor];
    unsigned bits = sdc_dtype_bits(s->descs[t->tensor]->dtype);
    if (sample != SDC_SAMPLE_BYTES)
        return 1;
    return s->rule.elements || bits < 8 ? bits : 8;
}

static enum sdc_status add_units(struct open_groups *o, struct sdc_error *err) {
    o->total = 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct sdc_group *g = &o->s->groups[o->group[i]];
        uint64_t units;
        if (__builtin_mul_overflow(o->s->tensors[g->tensor].n_elems, o->unit[i], &units) ||
            __builtin_add_overflow(o->total, units, &o->total))
            return SDC_ERR(err, SDC_LIMIT, "more bytes than a 64-bit number counts");
        o->end[i] = o->total;
    }
    return SDC_OK;
}

static void open_release(struct open_groups *o) {
    sdc__free(o->group);
    sdc__free(o->left);
    sdc__free(o->end);
    sdc__free(o->unit);
}

static enum sdc_status open_init(struct open_groups *o, const struct sdc_support *s,
                                 enum sdc_sample sample, struct sdc_error *err) {
    *o = (struct open_groups){
        .s = s, .alike = sample == SDC_SAMPLE_TENSORS || sample == SDC_SAMPLE_ATTEMPTS};
    o->group = sdc__alloc(s->n_groups, sizeof *o->group);
    o->left = sdc__alloc(s->n_groups, sizeof *o->left);
    o->end = sdc__alloc(s->n_groups, sizeof *o->end);
    o->unit = sdc__alloc(s->n_groups, sizeof *o->unit);
    enum sdc_status st =
        o->group && o->left && o->end && o->unit ? SDC_OK : SDC_NOMEM(err, "what to draw from");
    for (size_t g = 0; st == SDC_OK && g < s->n_groups; g++) {
        o->group[o->n] = g;
        o->left[o->n] = s->groups[g].sites;
        o->unit[o->n++] = unit_of(s, sample, g);
    }
    if (st == SDC_OK && !o->alike)
        st = add_units(o, err);
    if (st != SDC_OK)
        open_release(o);
    return st;
}

/* The i-th of the open groups has no site left to draw. */
static enum sdc_status close_group(struct open_groups *o, size_t i, struct sdc_error *err) {
    size_t rest = --o->n - i;
    memmove(&o->group[i], &o->group[i + 1], rest * sizeof *o->group);
    memmove(&o->left[i], &o->left[i + 1], rest * sizeof *o->left);
    memmove(&o->unit[i], &o->unit[i + 1], rest * sizeof *o->unit);
    return o->alike ? SDC_OK : add_units(o, err);
}

/* One try. False where the site was taken out of the support. */
static bool try_once(const struct open_groups *o, struct sdc_rng *rng, size_t *pick,
                     uint64_t *number) {
    uint64_t elem;
    if (o->alike) {
        *pick = (size_t)sdc_rng_below(rng, o->n);
        elem = sdc_rng_below(rng, o->s->tensors[o->s->groups[o->group[*pick]].tensor].n_elems);
    } else {
        uint64_t x = sdc_rng_below(rng, o->total);
        size_t low = 0, high = o->n - 1; /* the first whose end is beyond x */
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (x < o->end[middle])
                high = middle;
            else
                low = middle + 1;
        }
        *pick = low;
        elem = (x - (low ? o->end[low - 1] : 0)) / o->unit[low];
    }
    const struct sdc_group *g = &o->s->groups[o->group[*pick]];
    uint64_t rank = elem * g->width + sdc_rng_below(rng, g->width);
    *number = g->first + rank;
    return rank < g->sites; /* all sites of a group are alike, so any of them may be those left */
}

/* Distinct sites. Tries are made ahead; where a group is full, those after it are made again. */
static enum sdc_status draw_distinct(struct open_groups *o, struct sdc_rng *rng,
                                     struct sdc_set *drawn, uint64_t *numbers, size_t n,
                                     struct sdc_error *err) {
    struct {
        struct sdc_rng after;
        size_t pick;
        uint64_t number;
        bool is_site;
    } tries[AHEAD];
    for (size_t found = 0; found < n;) {
        size_t n_tries = n - found < AHEAD ? n - found : AHEAD;
        for (size_t i = 0; i < n_tries; i++) {
            tries[i].is_site = try_once(o, rng, &tries[i].pick, &tries[i].number);
            tries[i].after = *rng;
            sdc__set_prefetch(drawn, tries[i].number);
        }
        for (size_t i = 0; i < n_tries; i++) {
            if (!tries[i].is_site || !sdc__set_insert(drawn, tries[i].number))
                continue;
            numbers[found++] = tries[i].number;
            if (--o->left[tries[i].pick] == 0) {
                *rng = tries[i].after;
                SDC_TRY(close_group(o, tries[i].pick, err));
                break;
            }
        }
    }
    return SDC_OK;
}

static enum sdc_status sample_groups(const struct sdc_support *s, enum sdc_sample sample,
                                     struct sdc_rng *rng, uint64_t *numbers, size_t n,
                                     struct sdc_error *err) {
    struct open_groups o;
    struct sdc_set drawn;
    SDC_TRY(open_init(&o, s, sample, err));
    enum sdc_status st = sdc__set_init(&drawn, n, err);
    if (st == SDC_OK) {
        st = draw_distinct(&o, rng, &drawn, numbers, n, err);
        sdc__sort_u64(numbers, n, drawn.slots); /* no longer needed, and at least 2 n */
        sdc__set_release(&drawn);
    }
    open_release(&o);
    return st;
}

/* n attempts that take place; a site may come again. */
static enum sdc_status sample_attempts(const struct sdc_support *s, struct sdc_rng *rng,
                                       uint64_t *numbers, size_t n, struct sdc_error *err) {
    struct open_groups o;
    SDC_TRY(open_init(&o, s, SDC_SAMPLE_ATTEMPTS, err));
    for (size_t i = 0; i < n;) {
        size_t pick;
        i += try_once(&o, rng, &pick, &numbers[i]);
    }
    open_release(&o);
    return SDC_OK;
}

/* ---- strata ---- */

static uint64_t taken(const struct sdc_support *s, uint64_t each) {
    uint64_t sum = 0;
    for (size_t g = 0; g < s->n_groups; g++)
        sum += s->groups[g].sites < each ? s->groups[g].sites : each;
    return sum;
}

/* How many of each stratum: the same number, or all of a smaller one; what is left over goes to
 * some of those that have more. */
static enum sdc_status allocate(const struct sdc_support *s, struct sdc_rng *rng, uint64_t n,
                                uint64_t *draws, struct sdc_error *err) {
    uint64_t low = 0, high = n; /* the most that each can have */
    while (low < high) {
        uint64_t middle = high - (high - low) / 2;
        if (taken(s, middle) <= n)
            low = middle;
        else
            high = middle - 1;
    }
    uint64_t rest = n - taken(s, low), larger = 0, next = 0;
    for (size_t g = 0; g < s->n_groups; g++)
        larger += s->groups[g].sites > low;
    uint64_t *more = sdc__alloc((size_t)rest, sizeof *more);
    if (!more)
        return SDC_NOMEM(err, "the strata");
    enum sdc_status st = sdc_rng_sample(rng, larger, rest, more, err);
    for (size_t g = 0, i = 0; st == SDC_OK && g < s->n_groups; g++) {
        bool is_larger = s->groups[g].sites > low;
        bool one_more = is_larger && next < rest && more[next] == i;
        draws[g] = is_larger ? low + one_more : s->groups[g].sites;
        next += one_more;
        i += is_larger;
    }
    sdc__free(more);
    return st;
}

static enum sdc_status sample_strata(const struct sdc_support *s, struct sdc_rng *rng,
                                     uint64_t *numbers, size_t n, uint64_t *draws,
                                     struct sdc_error *err) {
    SDC_TRY(allocate(s, rng, n, draws, err));
    uint64_t *to = numbers;
    for (size_t g = 0; g < s->n_groups; g++) {
        SDC_TRY(sdc_rng_sample(rng, s->groups[g].sites, draws[g], to, err));
        for (uint64_t i = 0; i < draws[g]; i++)
            *to++ += s->groups[g].first;
    }
    return SDC_OK;
}

enum sdc_status sdc__sample(const struct sdc_support *s, const struct sdc_choice *choice,
                            struct sdc_rng *rng, uint64_t *numbers, size_t n, uint64_t *draws,
                            struct sdc_error *err) {
    switch (choice->sample) {
    case SDC_SAMPLE_BITS:
        return sdc_rng_sample(rng, s->sites, n, numbers, err);
    case SDC_SAMPLE_TENSORS:
    case SDC_SAMPLE_ELEMENTS:
    case SDC_SAMPLE_BYTES:
        return sample_groups(s, choice->sample, rng, numbers, n, err);
    case SDC_SAMPLE_STRATIFIED:
        return sample_strata(s, rng, numbers, n, draws, err);
    case SDC_SAMPLE_ATTEMPTS:
        return sample_attempts(s, rng, numbers, n, err);
    }
    return SDC_ERR(err, SDC_USAGE, "sample %d is none", (int)choice->sample);
}

/* ---- each site by itself ---- */

/* Natural logarithm of x from its definition, by plain arithmetic alone, so that it is the same
 * number on every machine; what libraries give differs in the last bit. x above 0, finite.
 * ln x = k ln 2 + 2 atanh(s) with x = m 2^k and s = (m - 1) / (m + 1), |s| up to 0.172. */
static double log_of_ratio(double s) {
    double square = s * s, sum = 0.0;
    for (int i = 21; i >= 1; i -= 2)
        sum = sum * square + 1.0 / i;
    return 2.0 * s * sum;
}

static double natural_log(double x) {
    int k;
    double m = frexp(x, &k); /* 0.5 to 1 */
    if (m < 0.70710678118654752) {
        m *= 2.0;
        k--;
    }
    return k * 0.69314718055994531 + log_of_ratio((m - 1.0) / (m + 1.0));
}

/* ln(1 - p), exact also where 1 - p is 1; p from 0 to 1, not 1. */
static double log_of_complement(double p) {
    return p < 0.25 ? log_of_ratio(-p / (2.0 - p)) : natural_log(1.0 - p);
}

/* The number of sites that are passed over before the next, distributed geometrically: floor(ln u /
 * ln(1 - p)) for u uniform over (0, 1]. False where it is over max. */
static bool gap(struct sdc_rng *rng, double log_q, uint64_t max, uint64_t *n) {
    double u = 1.0 - sdc_rng_unit(rng), passed = floor(natural_log(u) / log_q);
    if (!(passed < 0x1p63) || (uint64_t)passed > max)
        return false;
    *n = (uint64_t)passed;
    return true;
}

static enum sdc_status grow(uint64_t **numbers, size_t n, size_t *cap, size_t max,
                            struct sdc_error *err) {
    if (n >= max)
        return SDC_ERR(err, SDC_LIMIT, "more than %zu sites came of the rate, the most in one list",
                       max);
    if (n < *cap)
        return SDC_OK;
    size_t more = *cap ? *cap * 2 : 64;
    uint64_t *grown = sdc__realloc(*numbers, more, sizeof *grown);
    if (!grown)
        return SDC_NOMEM(err, "the drawn sites");
    *numbers = grown;
    *cap = more;
    return SDC_OK;
}

enum sdc_status sdc__sample_rate(const struct sdc_support *s, double rate, struct sdc_rng *rng,
                                 size_t max, uint64_t **numbers, size_t *n, struct sdc_error *err) {
    uint64_t next = 0, passed = 0, *drawn = NULL;
    size_t found = 0, cap = 0;
    enum sdc_status st = SDC_OK;
    const double log_q = rate > 0.0 && rate < 1.0 ? log_of_complement(rate) : 0.0;
    while (st == SDC_OK && rate > 0.0 && next < s->sites) {
        if (rate < 1.0 && !gap(rng, log_q, s->sites - 1 - next, &passed))
            break;
        st = grow(&drawn, found, &cap, max, err);
        if (st == SDC_OK)
            drawn[found++] = next + passed;
        next += passed + 1;
    }
    if (st != SDC_OK) {
        sdc__free(drawn);
        return st;
    }
    *numbers = drawn;
    *n = found;
    return SDC_OK;
}
