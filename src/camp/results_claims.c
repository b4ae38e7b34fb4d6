/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of trials, their differences by cluster, and the claims.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/results_internal.h"

#define CLUSTERS_REQUIRED 20
#define FAMILY_ALPHA      0.05

/* What one cluster has for a claim. */
struct cluster_sum {
    uint64_t n;     /* complete pairs */
    int64_t sum;    /* of (event in B) - (event in A) */
    uint64_t gone;  /* pairs that are not complete */
    uint64_t total; /* planned */
};

struct pairing {
    const struct sdc_results *results;
    const struct sdc_plan *plan;
    const struct sdc_store_trial **at; /* [cell * trials + index]: NULL where not stored */
    enum sdc_key key;                  /* the factor that is compared */
    size_t factor;                     /* its number */
    uint32_t level_a, level_b;
    struct cluster_sum *clusters;
    size_t n_clusters;
    struct sdc_stat_pairs pairs;
    struct sdc_results_claim *claim;
};

static bool event(const struct sdc_store_trial *t) {
    return sdc_outcome_is_collapse(&t->outcome);
}

static bool usable(const struct sdc_store_trial *t) {
    return t->outcome.result != SDC_RESULT_HARNESS_ERROR;
}

static void add_pair(struct pairing *p, const struct sdc_store_trial *a,
                     const struct sdc_store_trial *b, struct cluster_sum *c) {
    c->total++;
    if (!a || !b) {
        c->gone++;
        /* an error in the arm that ran settles the pair already */
        if ((a && !usable(a)) || (b && !usable(b)))
            p->claim->n_errors++;
        else
            p->claim->n_pending++;
        return;
    }
    if (!usable(a) || !usable(b) || a->platform != b->platform) {
        c->gone++;
        p->claim->n_errors++;
        return;
    }
    bool in_a = event(a), in_b = event(b);
    p->claim->n_complete++;
    c->n++;
    c->sum += (int)in_b - (int)in_a;
    p->pairs.both += in_a && in_b;
    p->pairs.a_only += in_a && !in_b;
    p->pairs.b_only += !in_a && in_b;
    p->pairs.neither += !in_a && !in_b;
}

/* The cell that differs from this one in the compared factor alone. Cells are numbered with the
 * first factor slowest, so that it is a fixed distance away. */
static uint32_t partner(const struct pairing *p, uint32_t cell) {
    const struct sdc_spec *s = p->plan->spec;
    int64_t stride = 1;
    for (size_t f = p->factor + 1; f < s->n_factors; f++)
        stride *= (int64_t)s->factors[f].n_levels;
    return (uint32_t)((int64_t)cell + stride * ((int64_t)p->level_b - (int64_t)p->level_a));
}

static void make_pairs(struct pairing *p) {
    uint32_t trials = p->plan->spec->trials;
    for (uint32_t cell = 0; cell < p->plan->n_cells; cell++) {
        if (p->plan->cells[cell].level[p->factor] != p->level_a)
            continue;
        uint32_t other = partner(p, cell);
        for (uint32_t i = 0; i < trials; i++)
            add_pair(p, p->at[(size_t)cell * trials + i], p->at[(size_t)other * trials + i],
                     &p->clusters[i % p->plan->spec->clusters]);
    }
}

/* Whether a level of the compared factor may be arm A or arm B of the claim. */
static void arms_of(enum sdc_claim claim, const char *level, bool *is_a, bool *is_b) {
    if (claim == SDC_CLAIM_H1A) {
        const struct sdc_recipe *recipe = sdc_recipe_find(level);
        *is_a = recipe && recipe->strategy == SDC_STRATEGY_DDP;
        *is_b = recipe && recipe->strategy == SDC_STRATEGY_HOROVOD;
    } else {
        *is_a = strcmp(level, "optimizer") == 0;
        *is_b = strcmp(level, "model") == 0;
    }
}

/* Levels of arm A and B, the first of each in the spec; the claim is about B minus A. */
static bool find_arms(struct pairing *p, enum sdc_claim claim) {
    const struct sdc_spec *s = p->plan->spec;
    struct sdc_results_claim *c = p->claim;
    p->key = claim == SDC_CLAIM_H1A ? SDC_KEY_RECIPE : SDC_KEY_PART;
    for (p->factor = 0; p->factor < s->n_factors; p->factor++)
        if (s->factors[p->factor].key == p->key)
            break;
    if (p->factor == s->n_factors)
        return false;
    for (uint32_t i = 0; i < s->factors[p->factor].n_levels; i++) {
        const char *level = s->factors[p->factor].levels[i].text;
        bool is_a, is_b;
        arms_of(claim, level, &is_a, &is_b);
        if (is_a && !c->arm_a) {
            p->level_a = i;
            c->arm_a = level;
        }
        if (is_b && !c->arm_b) {
            p->level_b = i;
            c->arm_b = level;
        }
    }
    if (!c->arm_a || !c->arm_b)
        return false;
    snprintf(c->effect, sizeof c->effect, "risk of collapse, %s minus %s", c->arm_b, c->arm_a);
    return true;
}

/* Cluster means, and the same with what is missing at its worst on either side. */
struct differences {
    double *mean, *low, *high; /* [n_clusters], one block */
};

static void fill_differences(const struct pairing *p, struct differences *d) {
    for (size_t k = 0; k < p->n_clusters; k++) {
        const struct cluster_sum *c = &p->clusters[k];
        double sum = (double)c->sum, gone = (double)c->gone, all = (double)c->n + gone;
        d->mean[k] = c->n ? sum / (double)c->n : NAN;
        d->low[k] = all > 0 ? (sum - gone) / all : NAN;
        d->high[k] = all > 0 ? (sum + gone) / all : NAN;
    }
}

static enum sdc_status index_trials(const struct sdc_results *r, const struct sdc_plan *plan,
                                    const struct sdc_store_trial ***at, struct sdc_error *err) {
    uint32_t trials = plan->spec->trials;
    *at = sdc__calloc(plan->n_cells * trials, sizeof **at);
    if (!*at)
        return SDC_NOMEM(err, "results");
    for (size_t i = 0; i < r->n_trials; i++) {
        const struct sdc_store_trial *t = &r->trials[i];
        if (t->kind != SDC_TRIAL_CELL)
            continue;
        if (t->index >= trials)
            return SDC_ERR(err, SDC_INVALID, "trial %s is not in the plan", t->id);
        (*at)[(size_t)t->cell * trials + t->index] = t;
    }
    return SDC_OK;
}

/* One claim's pairs into an input of the statistics; diffs holds 3 * n_clusters numbers. */
static enum sdc_status prepare(struct sdc_results *r, const struct sdc_plan *plan,
                               const struct sdc_store_trial **at, enum sdc_claim claim,
                               double *diffs, struct sdc_stat_claim_input *in,
                               struct sdc_error *err) {
    size_t k = plan->n_clusters;
    struct pairing p = {
        .results = r, .plan = plan, .at = at, .n_clusters = k, .claim = &r->claims[claim]};
    p.claim->asked = true;
    if (!find_arms(&p, claim))
        return SDC_ERR(err, SDC_INTERNAL, "the spec lists %s without its arms",
                       sdc__claim_name(claim));
    p.clusters = sdc__calloc(k, sizeof *p.clusters);
    if (!p.clusters)
        return SDC_NOMEM(err, "results");
    make_pairs(&p);
    struct differences d = {diffs, diffs + k, diffs + 2 * k};
    fill_differences(&p, &d);
    uint64_t missing = p.claim->n_errors + p.claim->n_pending;
    *in = (struct sdc_stat_claim_input){
        .diff = d.mean,
        .diff_low = missing ? d.low : NULL,
        .diff_high = missing ? d.high : NULL,
        .k = k,
        .pairs = p.pairs,
        .n_missing = missing,
        .direction = claim == SDC_CLAIM_H1A ? -1 : 1,
        .margin = plan->spec->margin,
        .k_required = CLUSTERS_REQUIRED,
        .seed = plan->spec->seed,
    };
    sdc__free(p.clusters);
    return SDC_OK;
}

enum sdc_status sdc__results_claims(struct sdc_results *r, const struct sdc_plan *plan,
                                    struct sdc_error *err) {
    const struct sdc_store_trial **at = NULL;
    struct sdc_stat_claim_input in[SDC_CLAIM_COUNT];
    struct sdc_stat_claim out[SDC_CLAIM_COUNT];
    enum sdc_claim which[SDC_CLAIM_COUNT];
    size_t m = 0;
    enum sdc_status st;
    double *diffs = sdc__calloc(plan->n_clusters * 3 * SDC_CLAIM_COUNT, sizeof *diffs);
    if (!diffs)
        return SDC_NOMEM(err, "results");
    SDC_TRY_OUT(st, index_trials(r, plan, &at, err));
    for (int c = 0; c < SDC_CLAIM_COUNT; c++)
        if (plan->spec->claims[c]) {
            SDC_TRY_OUT(st, prepare(r, plan, at, (enum sdc_claim)c,
                                    diffs + 3 * plan->n_clusters * m, &in[m], err));
            which[m++] = (enum sdc_claim)c;
        }
    if (m == 0)
        goto out;
    struct sdc_error inner = {0};
    st = sdc__stat_claims(in, m, FAMILY_ALPHA, out, &inner);
    if (st == SDC_UNSUPPORTED) { /* a build without the distributions: the rest still stands */
        r->no_claims = sdc__strdup(inner.message);
        st = r->no_claims ? SDC_OK : SDC_NOMEM(err, "results");
    } else if (st != SDC_OK) {
        SDC_ERR(err, st, "%s", inner.message);
    }
    for (size_t i = 0; i < m && st == SDC_OK && !r->no_claims; i++)
        r->claims[which[i]].stat = out[i];
out:
    sdc__free(diffs);
    sdc__free(at);
    return st;
}
