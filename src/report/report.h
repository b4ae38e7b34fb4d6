/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a campaign: one self-contained HTML page, the figures as SVG, their data and the
 * tables as CSV, and everything in results.json. Written from the plain structs below; it reads no
 * store and judges nothing (src/stat does).
 *
 * All pointers in struct sdc_report are borrowed and must live until the call returns; a NULL text
 * is shown as a dash. Texts are UTF-8 and may hold anything: every writer escapes. Counts are of
 * trials, without controls, unless said otherwise. A number that does not exist is NaN.
 *
 *     struct sdc_report r = {.campaign = "paper-small", ...};
 *     SDC_TRY(sdc__report_write(&r, dir, err));     dir/report.html, dir/results.json,
 *                                                   dir/figures/NAME.svg, dir/data/NAME.csv
 *
 * Figures are drawn by gnuplot (5.4 or newer) as a child process. One thread per folder.
 */
#ifndef SDC_REPORT_REPORT_H
#define SDC_REPORT_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/outcome.h"
#include "sdc/status.h"
#include "stat/stat.h"

/* At least the number of values of every axis of sdc/outcome.h. */
#define SDC_REPORT_LABELS 8

/* A line of the methods section, such as {"sdclab", "0.1.0"}. */
struct sdc_report_fact {
    const char *name;
    const char *value;
};

struct sdc_report_claim {
    const char *id;        /* "H1a" */
    const char *statement; /* "Horovod collapses less often than DDP" */
    const char *effect;    /* what the number is: "risk of collapse, Horovod minus DDP" */
    struct sdc_stat_claim result;
};

struct sdc_report_control {
    const char *name;        /* "placebo" */
    const char *expectation; /* "equals the clean twin bit for bit" */
    uint64_t n_passed;
    uint64_t n_failed;
    const char *first_failure; /* what was found in the first one that failed; NULL: none failed */
};

/* One combination of factors. Counted with sdc__report_cell_add. */
struct sdc_report_cell {
    const char *label;         /* short, unique: as in the store */
    const char *const *values; /* n_factors texts, in the order of sdc_report.factors */
    uint64_t n_planned;
    /* Trials by label, [axis][value]: the result axis over every trial that ran, the exposure axis
     * over those that are `done`, the other axes over the done ones in which a rank held altered
     * bits after start-up (kept or spread-to-all): what never reached a rank does not count as
     * without effect. */
    uint64_t counts[SDC_AXIS_COUNT][SDC_REPORT_LABELS];
    uint64_t n_collapse; /* of all the done ones, reached or not: intention to inject */
};

/* Collapse at one number of delivered flips. */
struct sdc_report_point {
    const char *series; /* what is compared, such as a recipe and a part */
    double n_delivered; /* distinct altered sites in what some rank read */
    uint64_t n;         /* trials */
    uint64_t n_collapse;
};

/* Relative distance of one layer's parameters from the clean twin's at the end of the window. */
struct sdc_report_layer {
    const char *layer; /* in the order they are to be shown: input first */
    const char *recipe;
    const char *part;
    struct sdc_stat_distances d;
};

/* A clean spread that labels were judged by, or another measured limit. */
struct sdc_report_spread {
    const char *name;    /* "E0" */
    const char *meaning; /* "same order, one lowest mantissa bit flipped" */
    uint64_t n_replicas;
    const char *value; /* "largest loss difference 3.1e-5" */
};

struct sdc_report_trial {
    const char *id;   /* what --trial takes */
    const char *kind; /* "trial", "placebo", "one-lsb", "all-nan" */
    size_t cell;      /* index into cells; SIZE_MAX: in none (a control) */
    uint32_t cluster;
    uint32_t index;    /* within the block */
    const char *sites; /* "fc1.weight[3,5]@lsb:30 0.05 -> 1.7e37; ..." */
    const char *ranks; /* which read the altered file: "0", "0-3" */
    uint64_t n_delivered;
    struct sdc_outcome outcome;
    double accuracy;        /* 0 to 1, at the end of the window */
    double golden_accuracy; /* of the clean twin */
    int64_t collapse_step;  /* steps after the restart; -1: no collapse */
    const char *message;    /* of a harness error; NULL: none */
    const char *replay;     /* the exact command */
};

struct sdc_report {
    const char *campaign;
    const char *summary; /* one or two sentences: model, data, what is varied; may be NULL */
    const char *spec_yaml;
    uint64_t seed;
    const char *started;  /* "2026-01-31T12:00:00Z" */
    const char *finished; /* NULL: the campaign is not finished */
    bool frozen;          /* design, endpoints and margins were hashed before the first trial */
    bool frozen_kept;     /* and are unchanged */

    const struct sdc_report_fact *facts; /* versions, platform, anything for the methods section */
    size_t n_facts;
    const struct sdc_report_claim *claims;
    size_t n_claims;
    const char *no_claims; /* why there are none, where there are none; NULL: none were listed */
    const struct sdc_report_control *controls;
    size_t n_controls;
    const char *const *factors; /* names, in the order of the spec */
    size_t n_factors;
    const struct sdc_report_cell *cells;
    size_t n_cells;
    const struct sdc_report_point *points;
    size_t n_points;
    const struct sdc_report_layer *layers;
    size_t n_layers;
    const struct sdc_report_spread *spreads;
    size_t n_spreads;
    const struct sdc_report_trial *trials;
    size_t n_trials;
};

/* A figure as the writers get it; everything in it is owned by sdc__report_write. */
struct sdc_report_figure {
    char *name;       /* of its files: a-z, 0-9 and '-' */
    char *title;      /* plain text, as the caption */
    char *caption;    /* what is shown and how to read it */
    char *svg;        /* an <svg> element, fit to stand inside a page */
    char *svg_narrow; /* the same for a narrow screen */
    char *csv;        /* what was drawn */
};

/* The seam of output forms. One table per form, in one array, in the order they are written. */
struct sdc_report_writer_ops {
    const char *name;
    const char *summary;
    /* Writes its files under dir, each atomically. */
    enum sdc_status (*write)(const struct sdc_report *r, const struct sdc_report_figure *figures,
                             size_t n_figures, const char *dir, struct sdc_error *err);
};

/* Counts one trial of the plan (no control) into its cell. */
void sdc__report_cell_add(struct sdc_report_cell *cell, const struct sdc_outcome *outcome);
/* Trials of a cell whose result is `done`, and how many of those a rank held altered bits in. */
uint64_t sdc__report_cell_done(const struct sdc_report_cell *cell);
uint64_t sdc__report_cell_reached(const struct sdc_report_cell *cell);

/* All writers; *n of them. Static. */
const struct sdc_report_writer_ops *const *sdc__report_writers(size_t *n);

/* Draws the figures and runs every writer. dir is created if missing; existing files are replaced
 * one by one, each whole. SDC_NOT_FOUND if gnuplot is not installed, SDC_TIMEOUT or SDC_PEER if it
 * hangs or fails, SDC_IO. A report with no cells, points, layers, claims or trials is written, and
 * says what it lacks. */
enum sdc_status sdc__report_write(const struct sdc_report *r, const char *dir,
                                  struct sdc_error *err) SDC_MUST_CHECK;

#endif
