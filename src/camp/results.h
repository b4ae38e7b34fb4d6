/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of a campaign, summed up from its store: counts per cell, controls, claims with verdicts,
 * collapse by delivered faults, distances per layer. Not for drawing or writing (src/report), nor
 * for labelling one trial (camp/judge.h).
 *
 * A trial that could not be injected is a trial without the event: every planned fault counts.
 *
 * A pair are the trials of two cells that differ in one paired factor alone, with the same index.
 * It is complete when both are in the store, none is a harness error, and both ran on one platform.
 * Pairs that are not complete (harness errors, and trials still to come) are never dropped
 * silently: verdicts hold only if these pairs at their worst would not change them.
 *
 *     SDC_TRY(sdc__results_new(store, plan, &results, err));
 *     ... results->claims[SDC_CLAIM_H1A].stat ...
 *     sdc__results_free(results);
 *
 * Results are immutable once made.
 */
#ifndef SDC_CAMP_RESULTS_H
#define SDC_CAMP_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "camp/plan.h"
#include "camp/store.h"
#include "sdc/outcome.h"
#include "sdc/status.h"
#include "stat/stat.h"

struct sdc_results_cell {
    uint64_t n_planned;
    uint64_t n_stored;                 /* trials in the store */
    uint64_t n_done;                   /* with the result `done` */
    uint64_t n_errors;                 /* harness errors */
    uint64_t n_reached;                /* done, and a rank held altered bits after start-up */
    uint64_t n_collapse;               /* of the done ones */
    struct sdc_stat_interval collapse; /* Wilson, 95 %, of n_collapse in n_done */
};

struct sdc_results_control {
    enum sdc_trial_kind kind;
    uint64_t n_planned, n_passed, n_failed;
    const char *first_failure; /* message of the first failed one; borrowed from trials, or NULL */
};

struct sdc_results_claim {
    bool asked; /* listed in the spec */
    const char *arm_a,
        *arm_b;          /* levels compared, the effect is B minus A; borrowed from the spec */
    char effect[160];    /* what the number is, "risk of collapse, B minus A" */
    uint64_t n_complete; /* pairs */
    uint64_t n_errors;   /* pairs with a harness error, or across platforms */
    uint64_t n_pending;  /* pairs still to come */
    struct sdc_stat_claim stat; /* valid where asked and results.no_claims is NULL */
};

/* Collapse at one number of delivered faults, over cells that flip any bit. */
struct sdc_results_point {
    const char *recipe, *part; /* levels, or fixed values; borrowed from the spec */
    uint64_t delivered;
    uint64_t n, n_collapse;
};

/* Distance of a layer's parameters from golden's at the end of the window, worst rank, without the
 * altered elements, over trials in which a rank held altered bits after start-up. */
struct sdc_results_layer {
    char *layer;               /* owned */
    const char *recipe, *part; /* the part that was hit; borrowed from the spec */
    struct sdc_stat_distances d;
};

struct sdc_results {
    struct sdc_store_trial *trials; /* all in the store, by id, without their rows; owned */
    size_t n_trials;
    struct sdc_results_cell *cells;         /* [plan->n_cells]; owned */
    uint64_t n_planned, n_controls_planned; /* trials of cells; controls */
    uint64_t n_stored, n_controls;          /* of those, in the store */
    uint64_t n_errors;
    struct sdc_results_control controls[3]; /* placebo, one-LSB, all-NaN */
    struct sdc_results_claim claims[SDC_CLAIM_COUNT];
    char *no_claims;                  /* why claims could not be judged, or NULL; owned */
    struct sdc_results_point *points; /* owned */
    size_t n_points;
    struct sdc_results_layer *layers; /* owned */
    size_t n_layers;
};

/* plan must be that of the store's spec, and outlive the results. */
enum sdc_status sdc__results_new(struct sdc_store *store, const struct sdc_plan *plan,
                                 struct sdc_results **results,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__results_free(struct sdc_results *results); /* accepts NULL */

/* What a claim says; static. */
const char *sdc__claim_statement(enum sdc_claim claim);
/* What a control must show. */
const char *sdc__control_expectation(enum sdc_trial_kind kind);

/* ---- export ---- */

/* Names of the columns of an exported trial, in order; n of them. Factors of the spec follow as
 * "factor.PATH". */
const char *const *sdc__export_columns(size_t *n);
/* One row per trial of the store, with a header line; RFC 4180, lines end in \n. */
enum sdc_status sdc__export_csv(struct sdc_store *store, const struct sdc_plan *plan,
                                struct sdc_buf *out, struct sdc_error *err) SDC_MUST_CHECK;
/* {"schema": "sdclab.export/1", "campaign", "spec": {...}, "trials": [{...}]}, one trial a line. */
enum sdc_status sdc__export_json(struct sdc_store *store, const struct sdc_plan *plan,
                                 struct sdc_buf *out, struct sdc_error *err) SDC_MUST_CHECK;

#endif
