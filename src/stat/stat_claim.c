/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts on paired risk differences, with clusters as the unit of inference.
 */
#include "stat/stat.h"

#include <math.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "stat/stat_internal.h"

#define POWER              0.8
#define SECONDARY_INTERVAL 0.95

const char *sdc__stat_verdict_name(enum sdc_stat_verdict verdict) {
    switch (verdict) {
#define SDC_STAT_VERDICT_CASE(name, word)                                                          \
    case SDC_VERDICT_##name:                                                                       \
        return word;
        SDC_STAT_VERDICT_MAP(SDC_STAT_VERDICT_CASE)
#undef SDC_STAT_VERDICT_CASE
    }
    return "?";
}

const char *sdc__stat_reason_text(enum sdc_stat_reason reason) {
    switch (reason) {
#define SDC_STAT_REASON_CASE(name, word)                                                           \
    case SDC_REASON_##name:                                                                        \
        return word;
        SDC_STAT_REASON_MAP(SDC_STAT_REASON_CASE)
#undef SDC_STAT_REASON_CASE
    }
    return "?";
}

static enum sdc_status check_input(const struct sdc_stat_claim_input *in, size_t number,
                                   struct sdc_error *err) {
    if (in->direction != 1 && in->direction != -1)
        return SDC_ERR(err, SDC_USAGE, "claim %zu: direction %d, expected 1 or -1", number,
                       in->direction);
    if (!(in->margin > 0) || isinf(in->margin))
        return SDC_ERR(err, SDC_USAGE, "claim %zu: margin %g, expected a positive number", number,
                       in->margin);
    if (in->n_missing > 0 && (!in->diff_low || !in->diff_high))
        return SDC_ERR(err, SDC_USAGE,
                       "claim %zu: %llu missing pairs without the differences that count them at "
                       "their worst",
                       number, (unsigned long long)in->n_missing);
    return SDC_OK;
}

static bool inside(const struct sdc_stat_interval *i, double margin) {
    return i->low >= -margin && i->high <= margin;
}

static enum sdc_stat_verdict judge(const struct sdc_stat_interval *i, int direction,
                                   double margin) {
    if (direction < 0 ? i->high < 0 : i->low > 0)
        return SDC_VERDICT_SUPPORTED;
    if (direction < 0 ? i->low > 0 : i->high < 0)
        return SDC_VERDICT_CONTRADICTED;
    return inside(i, margin) ? SDC_VERDICT_EQUIVALENT : SDC_VERDICT_UNDECIDED;
}

/* Where no pair disagreed a t interval has no width whatever the number of pairs; the exact bound
 * of none in n pairs stands in. */
static enum sdc_status cluster_test(const struct sdc_stat_claim_input *in, const double *diff,
                                    uint64_t n_pairs, double level,
                                    struct sdc_stat_cluster_test *test, bool *from_pairs,
                                    struct sdc_error *err) {
    SDC_TRY(sdc__stat_clusters(diff, in->k, level, in->seed, test, err));
    /* a difference of two shares is never outside [-1, 1]; the t limits of few clusters are */
    if (test->k >= 2) {
        test->interval.low = fmax(test->interval.low, -1);
        test->interval.high = fmin(test->interval.high, 1);
    }
    *from_pairs = test->k >= 2 && test->sd == 0 && test->mean == 0;
    if (*from_pairs) {
        struct sdc_stat_interval bound;
        uint64_t n = n_pairs > 0 ? n_pairs : test->k;
        SDC_TRY(sdc__stat_clopper_pearson(0, n, level, &bound, err));
        test->interval = (struct sdc_stat_interval){-bound.high, bound.high};
    }
    return SDC_OK;
}

static enum sdc_status sizes_needed(struct sdc_stat_claim *c, struct sdc_error *err) {
    if (c->test.k < 2)
        return SDC_OK;
    double per_cluster = fmax(1, (double)c->n_pairs / (double)c->test.k);
    uint64_t k;
    SDC_TRY(sdc__stat_k_for_margin(c->test.sd, c->margin, c->level, POWER, &k, err));
    if (c->limits_from_pairs) { /* 1 - (alpha / 2)^(1 / n) <= margin */
        double pairs = c->margin < 1 ? log((1 - c->level) / 2) / log1p(-c->margin) : 1;
        k = (uint64_t)ceil(pairs / per_cluster);
    }
    c->k_needed = k > c->k_required ? k : c->k_required;
    c->pairs_needed = (uint64_t)ceil((double)c->k_needed * per_cluster);
    return SDC_OK;
}

/* Whether the verdict stands with every missing pair counted against it, either way. */
static enum sdc_status stands(const struct sdc_stat_claim_input *in, const struct sdc_stat_claim *c,
                              bool *yes, struct sdc_error *err) {
    const double *worst[2] = {in->diff_low, in->diff_high};
    *yes = true;
    for (int i = 0; i < 2 && in->n_missing > 0; i++) {
        struct sdc_stat_cluster_test test;
        bool from_pairs;
        SDC_TRY(cluster_test(in, worst[i], c->n_pairs, c->level, &test, &from_pairs, err));
        *yes = *yes && judge(&test.interval, c->direction, c->margin) == c->verdict;
    }
    return SDC_OK;
}

static enum sdc_status decide(const struct sdc_stat_claim_input *in, struct sdc_stat_claim *c,
                              struct sdc_error *err) {
    c->inside_margin = inside(&c->test.interval, c->margin);
    c->verdict = SDC_VERDICT_UNDECIDED;
    if (c->test.k == 0) {
        c->reason = SDC_REASON_NO_DATA;
    } else if (c->test.k < 2 || c->test.k < c->k_required) {
        c->reason = SDC_REASON_TOO_FEW_CLUSTERS;
    } else if (c->test.n_nan > 0) {
        c->reason = SDC_REASON_EMPTY_CLUSTERS;
    } else {
        bool yes;
        c->verdict = judge(&c->test.interval, c->direction, c->margin);
        if (c->verdict == SDC_VERDICT_UNDECIDED) {
            c->reason = SDC_REASON_WIDE;
            return SDC_OK;
        }
        SDC_TRY(stands(in, c, &yes, err));
        if (!yes) {
            c->verdict = SDC_VERDICT_UNDECIDED;
            c->reason = SDC_REASON_MISSING_PAIRS;
        }
    }
    return SDC_OK;
}

static enum sdc_status describe(const struct sdc_stat_claim_input *in, struct sdc_stat_claim *c,
                                struct sdc_error *err) {
    const struct sdc_stat_pairs *t = &in->pairs;
    c->direction = in->direction;
    c->margin = in->margin;
    c->k_required = in->k_required;
    c->n_discordant = t->a_only + t->b_only;
    c->n_pairs = t->both + t->neither + c->n_discordant;
    c->n_missing = in->n_missing;
    SDC_TRY(
        sdc__stat_newcombe_paired(t, SECONDARY_INTERVAL, &c->pair_diff, &c->pair_interval, err));
    return sdc__stat_mcnemar(t, &c->mcnemar_p, &c->mcnemar_mid_p, err);
}

static enum sdc_status family(const struct sdc_stat_claim_input *in, size_t m, double alpha,
                              double *work, struct sdc_stat_claim *out, struct sdc_error *err) {
    double *p = work, *adjusted = work + m, *levels = work + 2 * m;
    for (size_t i = 0; i < m; i++) {
        struct sdc_stat_cluster_test test;
        SDC_TRY(sdc__stat_clusters(in[i].diff, in[i].k, 1 - alpha, in[i].seed, &test, err));
        p[i] = test.p_t;
    }
    SDC_TRY(sdc__stat_holm(p, m, adjusted, err));
    SDC_TRY(sdc__stat_holm_levels(p, m, alpha, levels, err));
    for (size_t i = 0; i < m; i++) {
        struct sdc_stat_claim c = {.p_adjusted = adjusted[i], .level = levels[i]};
        SDC_TRY(describe(&in[i], &c, err));
        SDC_TRY(cluster_test(&in[i], in[i].diff, c.n_pairs, c.level, &c.test, &c.limits_from_pairs,
                             err));
        SDC_TRY(sizes_needed(&c, err));
        SDC_TRY(decide(&in[i], &c, err));
        out[i] = c;
    }
    return SDC_OK;
}

enum sdc_status sdc__stat_claims(const struct sdc_stat_claim_input *in, size_t m, double alpha,
                                 struct sdc_stat_claim *out, struct sdc_error *err) {
    SDC_TRY(sdc__stat_check_unit("error rate", alpha, err));
    for (size_t i = 0; i < m; i++)
        SDC_TRY(check_input(&in[i], i, err));
    double *work = sdc__alloc(m, 3 * sizeof *work);
    if (!work)
        return SDC_NOMEM(err, "a family of claims");
    enum sdc_status st = family(in, m, alpha, work, out, err);
    sdc__free(work);
    return st;
}

static void needed(const struct sdc_stat_claim *c, struct sdc_buf *out) {
    if (c->k_needed == 0)
        sdc__buf_printf(
            out,
            " How many clusters the margin of %g points needs is not known before two have "
            "results.",
            100 * c->margin);
    else
        sdc__buf_printf(
            out,
            " The margin of %g points needs about %llu clusters, %llu pairs (80 %% power, at "
            "the spread between clusters seen so far).",
            100 * c->margin, (unsigned long long)c->k_needed, (unsigned long long)c->pairs_needed);
}

static void undecided(const struct sdc_stat_claim *c, struct sdc_buf *out) {
    switch (c->reason) {
    case SDC_REASON_NO_DATA:
        sdc__buf_puts(out, "No pair is complete, so there is nothing to judge.");
        break;
    case SDC_REASON_TOO_FEW_CLUSTERS:
        sdc__buf_printf(out, "%zu independent training seed%s (clusters), and a verdict needs %zu.",
                        c->test.k, c->test.k == 1 ? "" : "s", c->k_required);
        break;
    case SDC_REASON_EMPTY_CLUSTERS:
        sdc__buf_printf(out, "%zu of %zu clusters have no complete pair.", c->test.n_nan,
                        c->test.n_nan + c->test.k);
        break;
    case SDC_REASON_MISSING_PAIRS:
        sdc__buf_printf(out,
                        "%llu pairs are missing, and counting them at their worst would change the "
                        "verdict.",
                        (unsigned long long)c->n_missing);
        break;
    default:
        sdc__buf_puts(out, "The limits lie neither on one side of 0 nor inside the margin.");
    }
    needed(c, out);
}

void sdc__stat_claim_sentence(const struct sdc_stat_claim *c, struct sdc_buf *out) {
    switch (c->verdict) {
    case SDC_VERDICT_SUPPORTED:
        sdc__buf_printf(out, "The limits lie on the claimed side of 0%s.",
                        c->inside_margin ? ", but inside the margin: a real difference too small "
                                           "to matter by the margin set"
                                         : "");
        break;
    case SDC_VERDICT_CONTRADICTED:
        sdc__buf_puts(out, "The limits lie on the other side of 0 than the claim says.");
        break;
    case SDC_VERDICT_EQUIVALENT:
        sdc__buf_printf(
            out,
            "The limits lie inside the margin of %g points, so the claimed difference is "
            "not there.",
            100 * c->margin);
        break;
    case SDC_VERDICT_UNDECIDED:
        undecided(c, out);
        break;
    }
    if (c->limits_from_pairs)
        sdc__buf_printf(out,
                        " No pair disagreed; the limits are those of none in %llu pairs, taken as "
                        "independent.",
                        (unsigned long long)c->n_pairs);
}
