/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of running a campaign:
 *
 *     exec.c         order of the phases, resuming, stopping
 *     exec_drive.c   jobs through the pool: submitting, retrying, collecting
 *     exec_run.c     folders and run descriptions of jobs
 *     exec_dry.c     the whole path with no fault
 *     exec_clean.c   trainings, goldens, gates
 *     exec_spread.c  clean replicas and their limits
 *     exec_support.c whether the cells have something to hit
 *     exec_alter.c   choosing and applying the faults of a trial
 *     exec_trial.c   trials and controls: preparing, judging, storing
 *     exec_state.c   comparing snapshots with golden's
 */
#ifndef SDC_CAMP_EXEC_INTERNAL_H
#define SDC_CAMP_EXEC_INTERNAL_H

#include "base/hash.h"
#include "camp/exec.h"
#include "camp/judge.h"
#include "camp/plan.h"
#include "camp/pool.h"
#include "camp/store.h"
#include "sdc/alter.h"
#include "sdc/ckpt.h"
#include "sdc/events.h"
#include "sdc/run.h"

/* ---- what is known of clean runs ---- */

/* A baseline checkpoint: one per training and checkpoint step. */
struct sdc_exec_base {
    char *path;                        /* owned */
    char digest[SDC_DIGEST_TEXT_SIZE]; /* of the file; "" while there is none */
    struct sdc_ckpt *ckpt;             /* opened on first use; owned */
};

/* Tensors of one layer and part, counted together. */
struct sdc_exec_layer {
    char *name; /* owned */
    enum sdc_part part;
    uint64_t n_elems;
};

struct sdc_exec_group {
    bool ready;   /* golden, spreads and gate are there */
    bool refused; /* the gate */
    char *folder; /* DIR/golden/gN; owned */
    struct sdc_event_list golden;
    struct sdc_clean clean;
    const struct sdc_event *snapshot; /* golden's, at the end of the window; borrowed */
    double max_model, max_optimizer;  /* largest |value| of golden at the end of the window */
    struct sdc_exec_layer *layers;    /* owned */
    size_t n_layers;
    unsigned hang_ms;
    size_t n_missing; /* clean runs that are still to come */
};

/* ---- jobs ---- */

enum sdc_exec_kind {
    SDC_JOB_TRAINING,
    SDC_JOB_GOLDEN, /* replica 0 is golden, 1 its repetition for the gate */
    SDC_JOB_E0,
    SDC_JOB_E1,
    SDC_JOB_TRIAL,
    SDC_JOB_VERIFY /* golden again in a worker, before more trials of it count */
};

/* What was altered for a trial, and where. */
struct sdc_exec_faults {
    bool not_injected; /* the planned bytes could not be put into the file; why says */
    char *why;         /* owned */
    char *path;        /* of the altered file; owned */
    uint64_t support, planned;
    struct sdc_alter_result result;
};

struct sdc_exec_job {
    enum sdc_exec_kind kind;
    uint32_t training;                  /* TRAINING */
    uint32_t group;                     /* others */
    uint32_t replica;                   /* GOLDEN, E0, E1 */
    const struct sdc_plan_trial *trial; /* TRIAL */
    char *id;                           /* names the run; owned */
    char *folder;                       /* owned */
    unsigned attempts;                  /* tries so far */
    struct sdc_exec_faults faults;      /* E0, TRIAL */
    /* TRIAL that failed once: waits for the clean twin in a fresh worker, then runs there */
    bool failed_before;
    enum sdc_pool_end first_end;
    char *first_message;        /* owned */
    struct sdc_exec_job *after; /* VERIFY: the trial that waits for it; owned */
    uint64_t worker;            /* VERIFY: the worker that is looked at; 0: a fresh one */
    uint64_t began;             /* when it was submitted */
    struct sdc_exec_job *next_again;
    struct sdc_exec *owner; /* all jobs are listed there, for the end */
    struct sdc_exec_job *newer, *older;
};

void sdc__exec_job_free(struct sdc_exec_job *job); /* accepts NULL */

/* Trials of one worker since golden was last repeated in it. */
struct sdc_exec_worker {
    uint64_t number;
    uint32_t group; /* of its last trial: whose golden is repeated */
    bool verifying;
    const struct sdc_plan_trial **trials; /* owned */
    size_t n, cap;
};

struct sdc_exec {
    struct sdc_store *store;
    const struct sdc_spec *spec;
    struct sdc_plan *plan; /* owned */
    const char *dir;
    const struct sdc_exec_options *options;
    struct sdc_exec_summary *summary;
    struct sdc_pool *pool; /* owned */
    int64_t platform;
    struct sdc_thresholds thresholds;

    struct sdc_exec_base *bases;   /* [n_trainings * n_checkpoints] */
    struct sdc_exec_group *groups; /* [n_groups] */
    bool *done;                    /* [n_trials] in the store */

    struct sdc_exec_worker *workers; /* those with trials that are not covered; owned */
    size_t n_workers, cap_workers;

    /* the phase that is driven now */
    enum sdc_exec_phase phase;
    size_t phase_done, phase_total, phase_now;
    uint64_t phase_began;
    size_t n_judged, n_collapsed;
    size_t cursor;              /* next thing to look at */
    struct sdc_exec_job *again; /* jobs to submit before new ones, first in first out; owned */
    struct sdc_exec_job **again_end;
    struct sdc_exec_job *jobs;         /* all there are; owned */
    bool keep_files;                   /* of trials (repetition of one) */
    const char *trial_folder;          /* where a repeated trial goes; NULL: DIR/trials/ID */
    struct sdc_store_trial *trial_out; /* where a repeated trial's result goes, not to the store */
};

/* ---- exec_drive.c ---- */

/* Gives the next job of a phase, *job NULL where there is none now. */
typedef enum sdc_status (*sdc_exec_next_fn)(struct sdc_exec *x, struct sdc_exec_job **job,
                                            struct sdc_error *err);
/* Runs all jobs of a phase to their end. SDC_CANCELLED if asked to stop. */
enum sdc_status sdc__exec_drive(struct sdc_exec *x, enum sdc_exec_phase phase, size_t done,
                                size_t total, sdc_exec_next_fn next,
                                struct sdc_error *err) SDC_MUST_CHECK;
void sdc__exec_begin(struct sdc_exec *x, enum sdc_exec_phase phase, size_t done, size_t total);
void sdc__exec_note(struct sdc_exec *x, const char *fmt, ...) SDC_PRINTF(2, 3);
/* Puts the job in front of what is still to come; takes it. */
void sdc__exec_again(struct sdc_exec *x, struct sdc_exec_job *job);
bool sdc__exec_stopping(const struct sdc_exec *x);

/* ---- exec_run.c ---- */

/* Takes id and folder (NULL: no memory). */
enum sdc_status sdc__exec_job_new(struct sdc_exec *x, enum sdc_exec_kind kind, char *id,
                                  char *folder, struct sdc_exec_job **job,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* Replaces an owned text of a run. */
enum sdc_status sdc__exec_set(char **slot, const char *text, struct sdc_error *err) SDC_MUST_CHECK;
/* Empties the folder of the job, alters what is to be altered, describes the run there and gives it
 * to the pool. Takes the job: it comes back with the result, or is freed on failure. */
enum sdc_status sdc__exec_submit(struct sdc_exec *x, struct sdc_exec_job *job,
                                 enum sdc_pool_place place, uint64_t worker,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Events of a finished job. */
enum sdc_status sdc__exec_events(const char *folder, struct sdc_event_list *events,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Path of a file that an event names; free with sdc__free. NULL: no memory. */
char *sdc__exec_path(const char *folder, const char *path) SDC_MUST_CHECK;
const struct sdc_event *sdc__exec_find_event(const struct sdc_event_list *events,
                                             enum sdc_event_kind kind, uint64_t step);
struct sdc_exec_base *sdc__exec_base_of(struct sdc_exec *x, uint32_t group);
/* Opens the baseline checkpoint of a group where it is not open yet. */
enum sdc_status sdc__exec_base_open(struct sdc_exec_base *base,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* ---- exec_dry.c ---- */

/* The path with no fault, on a training of one step. */
enum sdc_status sdc__exec_dry_path(struct sdc_exec *x, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- exec_clean.c ---- */

enum sdc_status sdc__exec_bases_load(struct sdc_exec *x, size_t *missing,
                                     struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__exec_next_training(struct sdc_exec *x, struct sdc_exec_job **job,
                                        struct sdc_error *err) SDC_MUST_CHECK;
/* Takes up goldens that an earlier call made. */
enum sdc_status sdc__exec_groups_load(struct sdc_exec *x, size_t *missing,
                                      struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__exec_next_clean(struct sdc_exec *x, struct sdc_exec_job **job,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* What a finished clean run means. Frees the job. */
enum sdc_status sdc__exec_clean_done(struct sdc_exec *x, struct sdc_exec_job *job,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Thinned points of a curve, into a new array; free with sdc__free. */
enum sdc_status sdc__exec_points(const struct sdc_event_list *events, uint64_t from, uint64_t to,
                                 struct sdc_store_point **points, size_t *n,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* DIR/golden/gN/KIND-REPLICA; free with sdc__free. NULL: no memory. */
char *sdc__exec_run_folder(const struct sdc_exec_group *g, const char *kind,
                           uint32_t replica) SDC_MUST_CHECK;

/* ---- exec_spread.c ---- */

/* Measures and stores the replicas of a group whose golden is taken up. SDC_INVALID if one is not
 * whole or not finite. */
enum sdc_status sdc__exec_measure_spreads(struct sdc_exec *x, uint32_t group,
                                          struct sdc_error *err) SDC_MUST_CHECK;
/* Gives every ready group the spread of all groups of its setting, and stores which replicas would
 * be outside limits made of the others. */
enum sdc_status sdc__exec_pool_spreads(struct sdc_exec *x, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- exec_alter.c ---- */

/* SDC_INVALID naming the first cell whose choice matches nothing, or fewer sites than its flips, in
 * the checkpoint at path (made with this setting): for the cells whose checkpoints hold the same
 * tensors. */
/* sdc_fault_read for a struct sdc_ckpt as user. */
enum sdc_status sdc__exec_read_values(void *user, size_t tensor, uint64_t first, uint64_t n,
                                      void *elements, struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__exec_check_support(const struct sdc_exec *x, uint32_t setting,
                                        const char *path, struct sdc_error *err) SDC_MUST_CHECK;
/* The same for all cells, once the baselines are there. */
enum sdc_status sdc__exec_check_supports(const struct sdc_exec *x,
                                         struct sdc_error *err) SDC_MUST_CHECK;

/* Draws the faults of a trial and writes the altered file into the folder, which exists. */
enum sdc_status sdc__exec_alter_trial(struct sdc_exec *x, const struct sdc_plan_trial *trial,
                                      const char *folder, struct sdc_exec_faults *faults,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* Lowest mantissa bits of half of all weights, drawn for each E0 replica. */
enum sdc_status sdc__exec_alter_e0(struct sdc_exec *x, uint32_t group, uint32_t replica,
                                   const char *folder, struct sdc_exec_faults *faults,
                                   struct sdc_error *err) SDC_MUST_CHECK;
void sdc__exec_faults_release(struct sdc_exec_faults *faults);

/* ---- exec_trial.c ---- */

enum sdc_status sdc__exec_next_trial(struct sdc_exec *x, struct sdc_exec_job **job,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Judges and stores a trial that came to an end, and frees the job. end DONE: status and message
 * are the worker's. */
enum sdc_status sdc__exec_trial_done(struct sdc_exec *x, struct sdc_exec_job *job,
                                     const struct sdc_pool_result *r,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Stores a trial that could not be run. Frees the job. */
enum sdc_status sdc__exec_trial_failed(struct sdc_exec *x, struct sdc_exec_job *job,
                                       enum sdc_result result, const char *message,
                                       struct sdc_error *err) SDC_MUST_CHECK;

/* ---- exec_state.c ---- */

/* What one rank's state at the end of the window is against golden's, altered elements apart. */
struct sdc_exec_compared {
    struct sdc_store_propagation *rows; /* one per layer of the group; layer is borrowed; owned */
    double distance;                    /* over all parameters of the model */
    bool extreme;                       /* a finite value over the bound */
    bool nonfinite;
};

/* bound: times the clean maximum of the part; 0: none is looked for. changes may be NULL. */
enum sdc_status sdc__exec_compare(const struct sdc_exec_group *g, const char *golden,
                                  const char *run, uint32_t rank, uint64_t step,
                                  const struct sdc_record_change *changes, size_t n_changes,
                                  double bound, struct sdc_exec_compared *out,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* The same without files: all equal, or (everything) nothing known but that it is not finite. */
enum sdc_status sdc__exec_compare_known(const struct sdc_exec_group *g, uint32_t rank,
                                        uint64_t step, bool nonfinite,
                                        struct sdc_exec_compared *out,
                                        struct sdc_error *err) SDC_MUST_CHECK;
/* Layers, their sizes and the largest values of golden's snapshot of rank 0. */
enum sdc_status sdc__exec_layers(struct sdc_exec_group *g, const char *golden, uint64_t *params,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Name and first difference of the first tensor that differs; "" if none does. */
enum sdc_status sdc__exec_first_difference(const char *a, const char *b, char *text, size_t size,
                                           struct sdc_error *err) SDC_MUST_CHECK;

#endif
