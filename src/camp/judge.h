/* SPDX-License-Identifier: Apache-2.0
 *
 * Deciding the labels of a trial from its events, golden's events and the clean spread. Pure
 * functions: no file is read, nothing is kept. Not for exposure to ranks that never reported (the
 * caller knows the plan), nor for what a control must show (exec_trial.c).
 *
 *     sdc__clean_init(&clean, &golden, from, to, &err);
 *     sdc__clean_add_e0(&clean, &replica, distance, &err);   as many as there are
 *     sdc__clean_add_e1(&clean, &replica, &err);
 *     sdc__judge(&clean, &thresholds, &trial, &outcome, &detail, &err);
 *     sdc__clean_release(&clean);
 *
 * A struct sdc_clean may be read from several threads once it is filled.
 *
 * Limits of the clean spread. A trial leaves the spread where the loss of any rank at any step is
 * farther from golden's loss of that rank and step than any E0 replica's ever was, on any rank, up
 * to twice as many steps after the restart (and at least SDC_CLEAN_AHEAD): one limit for all ranks
 * that does not fall along the window, so it holds for the window at once and not for each step
 * apart. Rounding differences stay tiny until a ReLU or a maximum switches at some sample, then
 * losses differ 10,000 times as much; when that happens is chance, hence the look ahead. Replicas
 * may be pooled over clusters and recipes of one setting (the caller adds those of all). With fewer
 * than SDC_CLEAN_TOLERANCE_N (95 % confidence that 95 % of clean runs are inside, Wilks 1941) the
 * limit is SDC_CLEAN_HEADROOM times the largest deviation; it is never under SDC_CLEAN_FLOOR times
 * golden's loss (a few roundings of f32). The limit of distances is made in the same way; that of
 * accuracies (E1) is the largest deviation itself.
 */
#ifndef SDC_CAMP_JUDGE_H
#define SDC_CAMP_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/events.h"
#include "sdc/outcome.h"
#include "sdc/status.h"

#define SDC_CLEAN_TOLERANCE_N 59
#define SDC_CLEAN_HEADROOM    3.0
#define SDC_CLEAN_FLOOR       2e-6
#define SDC_CLEAN_AHEAD       50

/* Deviations of clean replicas from their own goldens, over one window length. */
struct sdc_spread {
    size_t n_steps;
    uint32_t n_e0, n_e1;
    double *deviation;   /* [n_steps] largest |loss - golden's| of E0 up to this step; owned */
    double distance_e0;  /* largest distance of E0's parameters from golden's at the end */
    double deviation_e1; /* largest |accuracy - golden's| of E1, saving rank */
};

enum sdc_status sdc__spread_init(struct sdc_spread *spread, size_t n_steps,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__spread_release(struct sdc_spread *spread);
/* d: [n_steps] as sdc__clean_deviations gives them. */
void sdc__spread_add_e0(struct sdc_spread *spread, const double *d, double distance);
void sdc__spread_add_e1(struct sdc_spread *spread, double deviation);
/* Limits without the floor: of losses at step number `at` of the window (from 0), of distances. */
double sdc__spread_limit(const struct sdc_spread *spread, size_t at);
double sdc__spread_distance_limit(const struct sdc_spread *spread);

/* What is known of the clean restarts of one golden group. */
struct sdc_clean {
    const struct sdc_event_list *golden; /* borrowed */
    uint64_t from_step, to_step;
    uint32_t ranks;
    const struct sdc_event *start;  /* golden's, borrowed */
    const struct sdc_event **steps; /* [to - from] golden's STEP events by step; owned */
    const struct sdc_event *eval;   /* golden's at the end of the window; NULL if there is none */

    struct sdc_spread spread; /* what limits are made of */
};

/* SDC_INVALID if golden lacks a start, a step or its end, or has a non-finite loss. */
enum sdc_status sdc__clean_init(struct sdc_clean *clean, const struct sdc_event_list *golden,
                                uint64_t from_step, uint64_t to_step,
                                struct sdc_error *err) SDC_MUST_CHECK;
void sdc__clean_release(struct sdc_clean *clean);
/* distance: of the replica's parameters from golden's at the end of the window. SDC_INVALID if the
 * replica lacks a step, or is not finite. */
enum sdc_status sdc__clean_add_e0(struct sdc_clean *clean, const struct sdc_event_list *replica,
                                  double distance, struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__clean_add_e1(struct sdc_clean *clean, const struct sdc_event_list *replica,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* Largest |loss - golden's| over ranks after each step, into d[to - from]. SDC_INVALID if the run
 * lacks a step, or is not finite. */
enum sdc_status sdc__clean_deviations(const struct sdc_clean *clean,
                                      const struct sdc_event_list *run, double *d,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* |accuracy - golden's| of a run that came to its end, saving rank; NaN where there is none. */
double sdc__clean_accuracy_deviation(const struct sdc_clean *clean,
                                     const struct sdc_event_list *run);
/* How far a loss may be from golden's after the step with this counter, from_step < step <=
 * to_step; rank's golden loss sets the floor. */
double sdc__clean_limit(const struct sdc_clean *clean, uint64_t step, uint32_t rank);
/* How far parameters may be from golden's at the end of the window. */
double sdc__clean_distance_limit(const struct sdc_clean *clean);
/* Largest |loss - golden's| of a run over the window; +inf if a loss is not finite. */
double sdc__clean_max_deviation(const struct sdc_clean *clean, const struct sdc_event_list *run);

/* Two runs of the same description: false with the first difference in words (losses, gradient
 * norms, digests, evaluations; elapsed times apart). */
bool sdc__runs_identical(const struct sdc_event_list *a, const struct sdc_event_list *b, char *why,
                         size_t size);
/* Whether all ranks hold the same parameters, buffers and optimizer after start-up; else which rank
 * differs in what. */
bool sdc__replicas_equal_at_start(const struct sdc_event_list *run, char *why, size_t size);

struct sdc_thresholds {
    double degraded; /* accuracy this far below golden's is degraded: 0.05 */
    double chance;   /* accuracy at most this far over 1/classes is failed: 0.02 */
    unsigned classes;
    uint64_t now_steps, soon_steps; /* non-finite within: immediate 2, short-term 100 */
};
void sdc__thresholds_init(struct sdc_thresholds *t); /* the values above, 10 classes */

enum sdc_trial_end { SDC_TRIAL_ENDED, SDC_TRIAL_CRASHED, SDC_TRIAL_HUNG };

struct sdc_judge_trial {
    const struct sdc_event_list *events; /* what there is of it */
    enum sdc_trial_end end;
    uint64_t altered; /* elements altered in the file; 0: exposure is NONE */
    /* from the snapshots at the end of the window, altered elements apart */
    bool snapshots;  /* whether there were any */
    bool extreme;    /* a finite value beyond the bound */
    bool nonfinite;  /* a value that is not finite */
    double distance; /* largest over ranks, parameters */
    /* labels reached by this step (a horizon); 0: the end of the window. Snapshots do not count
     * before it */
    uint64_t cut;
};

struct sdc_judge_detail {
    uint32_t loaded_ranks; /* whose state differed from golden's after its own load */
    uint32_t kept_ranks;   /* ... after start-up */
    int64_t collapse_step; /* steps after the restart of the first non-finite loss; -1: none */
    uint64_t end_step;     /* step counter at the end */
    enum sdc_end_reason reason;
    bool has_reason;  /* false where the run did not say (crash, hang) */
    double end_loss;  /* mean over ranks of the last training loss; NaN if not finite */
    double eval_loss; /* saving rank; NaN where there is none */
    double accuracy, accuracy_worst, accuracy_golden; /* 0..1; NaN where there is none */
    bool identical;                                   /* in everything that was written */
};

/* The labels of all axes but `result`, which is set to DONE. SDC_INVALID if the events contradict
 * each other (ranks, steps out of the window). */
enum sdc_status sdc__judge(const struct sdc_clean *clean, const struct sdc_thresholds *thresholds,
                           const struct sdc_judge_trial *trial, struct sdc_outcome *outcome,
                           struct sdc_judge_detail *detail, struct sdc_error *err) SDC_MUST_CHECK;

#endif
