/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a campaign: baseline trainings, goldens with their gate, clean spreads, controls, trials,
 * into the store. Not for parsing words or printing: the caller passes a function for progress.
 *
 * Order: (1) the whole path once with no fault, on a one-step training; (2) trainings; (3) goldens
 * twice (the gate) and clean replicas; (4) controls; (5) trials. What is in the store and on disk
 * from an earlier run is not done again. Every trial is in the store before its files are removed,
 * so an interruption at any moment loses at most the trials in flight, and the same call goes on.
 *
 * Labels depend on the spec and the platform alone, not on the number of workers, the order of
 * trials, or interruptions.
 *
 *     SDC_TRY(sdc__store_open(dir, spec, &store, err));
 *     SDC_TRY(sdc__exec_run(store, &options, &summary, err));
 */
#ifndef SDC_CAMP_EXEC_H
#define SDC_CAMP_EXEC_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "camp/store.h"
#include "sdc/status.h"

enum sdc_exec_phase {
    SDC_EXEC_CHECK,    /* the whole path with no fault */
    SDC_EXEC_TRAIN,    /* baseline trainings */
    SDC_EXEC_CLEAN,    /* goldens, gates, clean spreads */
    SDC_EXEC_CONTROLS, /* placebo, one LSB, all NaN */
    SDC_EXEC_TRIALS
};

const char *sdc__exec_phase_text(enum sdc_exec_phase phase);

struct sdc_exec_progress {
    enum sdc_exec_phase phase;
    size_t done, total;  /* runs of the phase; trials counted over earlier calls too */
    double per_minute;   /* runs of this phase and call; 0: not known yet */
    double seconds_left; /* of this phase; negative: not known yet */
    size_t n_judged;     /* trials of this call with a result */
    size_t n_collapsed;  /* of those */
    const char *note;    /* something worth a line of its own, or NULL */
};

struct sdc_exec_options {
    const char *const *worker; /* program and arguments of a worker, NULL-terminated */
    unsigned workers;
    /* How often the user asked to stop: 1 finishes what is in flight, 2 ends at once. NULL: never.
     * wake_fd: becomes readable then; drained here. -1: none */
    const volatile sig_atomic_t *stop;
    int wake_fd;
    void (*progress)(void *user, const struct sdc_exec_progress *progress); /* may be NULL */
    void *user;
    unsigned hang_first_ms; /* without a golden; 0: 120 s */
    unsigned hang_least_ms; /* with one: ten of its step times, at least this; 0: 30 s */
    unsigned check_every;   /* trials of a worker between repetitions of golden in it; 0: 50 */
};

struct sdc_exec_summary {
    size_t n_trials;        /* of the plan, controls included */
    size_t n_before, n_now; /* in the store before this call, and added by it */
    size_t n_refused;       /* golden groups that did not pass the gate; their trials do not run */
    size_t n_failed_controls; /* over all calls; any makes the store invalid */
    size_t n_harness_errors;  /* trials of this call */
    size_t n_replaced;        /* workers replaced because a repeated golden differed */
    char refused[512];        /* why the first group was refused; "" if none */
    char failed_control[512]; /* which control failed first, and how; "" if none */
    bool complete;            /* every planned trial is in the store */
};

/* The store is open for writing. SDC_CANCELLED after a request to stop (the summary is valid then
 * too); SDC_NOT_FOUND for a missing program or data; SDC_PEER where a clean run crashes twice;
 * SDC_MISMATCH where a golden or baseline checkpoint on disk is not the one the store knows. A
 * refused gate or a failed control is a result: SDC_OK with the counts in the summary; after a
 * failed control no trial is run. */
enum sdc_status sdc__exec_run(struct sdc_store *store, const struct sdc_exec_options *options,
                              struct sdc_exec_summary *summary,
                              struct sdc_error *err) SDC_MUST_CHECK;

/* Repeats one trial outside the store, into a folder (made, or emptied of an earlier repetition),
 * where the altered file, the record, the events and the snapshots stay. The store may be open for
 * reading while another process writes it. *trial is as it would be stored; release it.
 * SDC_USAGE: no such trial; SDC_NOT_FOUND: its golden has not been made, or was made on another
 * platform only. */
enum sdc_status sdc__exec_repeat(struct sdc_store *store, const char *id, const char *folder,
                                 const struct sdc_exec_options *options,
                                 struct sdc_store_trial *trial,
                                 struct sdc_error *err) SDC_MUST_CHECK;

#endif
