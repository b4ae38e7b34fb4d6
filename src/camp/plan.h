/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a campaign: what has to be run, and every random choice that is fixed by names
 * alone. A pure function of the spec: no file is read, nothing depends on what ran before, in what
 * order or on how many workers. Not for running (camp/exec.h).
 *
 *     cluster    an independent training seed
 *     training   one clean run per cluster and numeric setting, by the spec's first recipe; saves a
 *                checkpoint at each checkpoint step, which all arms load
 *     group      (training, checkpoint, recipe): has one golden, gate, clean spreads and controls
 *     cell       one combination of factor levels (and checkpoint)
 *     block      a cell without the paired factors; its key is the block of random streams
 *     trial      one run of a cell, or a control of a group
 *
 * Trial i of a cell uses cluster i mod K; its faults come from the stream (spec.seed,
 * SDC_RNG_FAULT_SITES, block_key, i), so that every arm of a pair has the same.
 *
 * Plans are immutable once made and may be used from several threads. The spec must outlive them.
 */
#ifndef SDC_CAMP_PLAN_H
#define SDC_CAMP_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "camp/spec.h"
#include "sdc/rng.h"
#include "sdc/run.h"
#include "sdc/status.h"

#define SDC_PLAN_NONE UINT32_MAX

struct sdc_plan_cluster {
    uint64_t seed_init; /* initial weights */
    uint64_t seed_data; /* data order */
};

struct sdc_plan_training {
    char id[16]; /* "t0" */
    uint32_t cluster;
    uint32_t setting; /* index into plan.settings, the one that trains (first recipe) */
    uint64_t steps;   /* to the last checkpoint; it saves at every spec.checkpoints[] */
};

struct sdc_plan_group {
    char id[16]; /* "g0" */
    uint32_t training;
    uint32_t cluster;
    uint32_t setting;    /* index into plan.settings: numeric setting and recipe */
    uint64_t checkpoint; /* step it restarts from */
    uint64_t to_step;    /* checkpoint + spec.window_steps */
};

struct sdc_plan_cell {
    char id[16];         /* "c000" */
    uint32_t *level;     /* [spec.n_factors] */
    uint32_t checkpoint; /* index into spec.checkpoints */
    uint32_t block;      /* index into plan.blocks */
    struct sdc_setting setting;
    char *label; /* "altered_ranks=one flips=10 ... recipe=ddp/after-wrap-all", owned */
    /* Pairs over `part`: sites are drawn over the model's parameters in every arm (draw_choice);
     * where map_to_optimizer, each is then moved to the optimizer's tensor of that parameter. */
    struct sdc_choice draw_choice; /* what sites are drawn with; owned */
    bool map_to_optimizer;
};

struct sdc_plan_block {
    uint32_t key; /* sdc__hash32 of text: block word of the random streams */
    char *text;   /* "checkpoint=300\nflips=10\n...", sorted; owned */
};

enum sdc_trial_kind {
    SDC_TRIAL_CELL,
    SDC_TRIAL_PLACEBO, /* the whole path, nothing altered: must equal golden bit for bit */
    SDC_TRIAL_ONE_LSB, /* one lowest mantissa bit of a parameter on all ranks: must differ from
                          golden and stay inside the clean spread */
    SDC_TRIAL_ALL_NAN  /* all weights NaN on all ranks: must collapse */
};

struct sdc_plan_trial {
    char id[32]; /* "c012-0003"; controls "g2-placebo-0", "g2-lsb-0", "g2-nan-0" */
    enum sdc_trial_kind kind;
    uint32_t cell;  /* SDC_PLAN_NONE for controls */
    uint32_t index; /* within the cell or the controls of this kind: the trial word of streams */
    uint32_t cluster;
    uint32_t group;
    uint32_t block_key; /* block word of streams; of a control, hash of its group's text */
    enum sdc_rng_purpose purpose; /* of the site stream: FAULT_SITES, or CONTROL for controls */
    uint64_t altered; /* bit r: rank r reads the altered file (as far as its recipe reads) */
};

struct sdc_plan {
    const struct sdc_spec *spec;  /* borrowed */
    struct sdc_setting *settings; /* distinct (numeric setting, recipe) */
    size_t n_settings;
    struct sdc_plan_cluster *clusters;
    size_t n_clusters;
    struct sdc_plan_training *trainings;
    size_t n_trainings;
    struct sdc_plan_group *groups;
    size_t n_groups;
    struct sdc_plan_block *blocks;
    size_t n_blocks;
    struct sdc_plan_cell *cells;
    size_t n_cells;
    struct sdc_plan_trial *trials; /* in the order to run: controls, then index by index over all
                                      cells, so that an unfinished campaign is balanced */
    size_t n_trials;
    size_t n_controls; /* the first so many trials */
};

/* SDC_LIMIT over a million trials; SDC_INVALID naming two blocks with one key. Free with
 * sdc__plan_free. */
enum sdc_status sdc__plan_new(const struct sdc_spec *spec, struct sdc_plan **plan,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc__plan_free(struct sdc_plan *plan); /* accepts NULL */

/* NULL if there is no such trial. */
const struct sdc_plan_trial *sdc__plan_find(const struct sdc_plan *plan, const char *id);
const char *sdc__trial_kind_name(enum sdc_trial_kind kind); /* "trial", "placebo", ... */

/* Everything of a run description that the plan decides: trainer to schedule, ranks, batch, seeds,
 * recipe, steps, evaluation, digest period. Trial, load, golden, snapshots, save and output are the
 * caller's. run must be initialised (sdc_run_init). */
enum sdc_status sdc__plan_training_run(const struct sdc_plan *plan, uint32_t training,
                                       struct sdc_run *run, struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__plan_group_run(const struct sdc_plan *plan, uint32_t group,
                                    struct sdc_run *run, struct sdc_error *err) SDC_MUST_CHECK;

/* Seed of the data order of E1 replica `replica` of a cluster: the same for every recipe and N. */
uint64_t sdc__plan_spread_seed(const struct sdc_plan *plan, uint32_t cluster, uint32_t replica);
/* Stream of the one site of E0 replica `replica` (and of held-out ones): the same in every recipe.
 * purpose SDC_RNG_CONTROL, block = this key, trial = replica. */
uint32_t sdc__plan_spread_block(const struct sdc_plan *plan, uint32_t group);

/* Share of the sites of a choice that are a top exponent bit of an f32, the q of the null model
 * 1 - (1 - q)^n. */
double sdc__plan_null_q(const struct sdc_choice *choice);

/* ---- what `campaign plan` shows ---- */

/* Cells, counts, trainings, goldens, the null model's expectation and warnings, as text. per_minute
 * is the rate of trials if known, else 0. */
enum sdc_status sdc__plan_print(const struct sdc_plan *plan, double per_minute, struct sdc_buf *out,
                                struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__plan_json(const struct sdc_plan *plan, double per_minute, struct sdc_buf *out,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Warnings one a line, such as too few clusters for a verdict. */
void sdc__plan_warnings(const struct sdc_plan *plan, struct sdc_buf *out);

#endif
