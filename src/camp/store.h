/* SPDX-License-Identifier: Apache-2.0
 *
 * The store of a campaign, DIR/store.sqlite (SQLite behind store*.c alone): the resolved spec, and
 * for every golden, clean replica and trial what came out. Reports are made from it alone. Not for
 * deciding labels (camp/judge.h) nor for summing up (camp/results.h).
 *
 * One writer at a time (DIR/store.lock); readers may open it while a run goes on. A trial is in the
 * store once and only complete: sdc__store_put_trial is one transaction, synced. Planned trials are
 * not in the store; they follow from the resolved spec.
 *
 * NaN in a REAL column is NULL; infinities are kept.
 *
 *     SDC_TRY(sdc__store_open(dir, spec, &store, err));             writer: creates or continues
 *     done = sdc__calloc(plan->n_trials, sizeof *done); SDC_TRY(sdc__store_done(store, plan,
 * done));
 *     ... for each trial not done: sdc__store_put_trial(store, &result, err) ...
 *     sdc__store_close(store);
 *
 * One thread per object at a time.
 */
#ifndef SDC_CAMP_STORE_H
#define SDC_CAMP_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "camp/plan.h"
#include "camp/spec.h"
#include "sdc/num.h"
#include "sdc/outcome.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#define SDC_STORE_SCHEMA 1 /* user_version */

struct sdc_store;

/* ---- opening ---- */

/* For writing: creates DIR and the store, or continues one made from the same resolved spec
 * (SDC_MISMATCH names the keys that differ). SDC_BUSY if another process writes; SDC_MISMATCH for
 * another schema number; SDC_INVALID if it is no store or damaged. */
enum sdc_status sdc__store_open(const char *dir, const struct sdc_spec *spec,
                                struct sdc_store **store, struct sdc_error *err) SDC_MUST_CHECK;
/* For reading, also while another process writes. SDC_NOT_FOUND if there is none. */
enum sdc_status sdc__store_open_read(const char *dir, struct sdc_store **store,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* For writing, the spec taken from the store (campaign run -o DIR without a spec). */
enum sdc_status sdc__store_open_again(const char *dir, struct sdc_store **store,
                                      struct sdc_error *err) SDC_MUST_CHECK;
void sdc__store_close(struct sdc_store *store); /* accepts NULL */

/* The stored spec, parsed; borrowed from the store. */
const struct sdc_spec *sdc__store_spec(const struct sdc_store *store);
const char *sdc__store_dir(const struct sdc_store *store);
/* Process id of the running writer, 0 if there is none. */
long sdc__store_writer(const char *dir);

/* Free-form facts: "tool", "created", "interrupted", "finished", "invalid" (why a failed control
 * invalidates the store), "trials_per_minute", ... value NULL deletes. get: *value is NULL where
 * there is none; free with sdc__free. */
enum sdc_status sdc__store_put_meta(struct sdc_store *store, const char *key, const char *value,
                                    struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__store_get_meta(struct sdc_store *store, const char *key, char **value,
                                    struct sdc_error *err) SDC_MUST_CHECK;
/* Number of a platform (a worker's platform text plus versions), from 1; added if new where the
 * store is open for writing, else SDC_NOT_FOUND. */
enum sdc_status sdc__store_platform(struct sdc_store *store, const char *text,
                                    const char *versions_json, int64_t *id,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* Texts of platform `id`; SDC_NOT_FOUND. Free each with sdc__free; versions may come back NULL. */
enum sdc_status sdc__store_get_platform(struct sdc_store *store, int64_t id, char **text,
                                        char **versions_json, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- rows ---- */

enum sdc_series_kind { SDC_SERIES_LOSS, SDC_SERIES_EVAL };

/* A point of a curve. The caller thins: every step of a short window, fewer of a long one, always
 * the first non-finite one. */
struct sdc_store_point {
    enum sdc_series_kind kind;
    uint64_t step;
    uint32_t rank;
    double loss;          /* training loss of the rank's batch, or evaluation loss */
    double accuracy;      /* EVAL: 0..1, else NaN */
    double gradient_norm; /* LOSS on rank 0, else NaN */
};

struct sdc_store_exposure {
    uint32_t rank;
    bool planned;         /* the plan gives this rank the altered file */
    bool read;            /* it read a file in which something was altered, in a part it takes */
    bool altered_loaded;  /* its state differed from golden's after its own load */
    bool altered_started; /* ... and after start-up */
    char loaded[33];      /* state digests, 32 hex digits; "" where not known */
    char started[33];
};

struct sdc_store_fault {
    char *tensor; /* owned where read from the store */
    char *index;  /* "[2,0,4]" */
    uint64_t elem;
    enum sdc_dtype dtype;
    enum sdc_part part;
    enum sdc_role role;
    enum sdc_op op;
    uint64_t bits; /* mask; 0 for operators without */
    uint64_t old_raw, new_raw;
    bool delivered; /* in what some rank read */
};

/* Distance of one layer's tensors from golden's, on one rank at one step. */
struct sdc_store_propagation {
    char *layer; /* "conv1"; owned where read from the store */
    enum sdc_part part;
    uint32_t rank;
    uint64_t step;
    uint64_t n_elems, n_differ; /* all elements of the layer and part */
    uint64_t n_altered;         /* elements that the trial altered itself */
    double distance;            /* ||altered - clean|| / ||clean|| without the altered elements;
                                   0 identical, +inf non-finite */
    double distance_altered;    /* of the altered elements alone; NaN where there are none */
};

/* Labels reached by a step inside the window (+1, +100, +1 epoch). */
struct sdc_store_horizon {
    uint64_t after; /* steps after the restart */
    struct sdc_outcome outcome;
};

/* A finished trial. */
struct sdc_store_trial {
    /* from the plan */
    char id[32];
    enum sdc_trial_kind kind;
    uint32_t cell, index, cluster, group; /* cell SDC_PLAN_NONE for controls */

    struct sdc_outcome outcome;       /* at the end of the window */
    uint32_t kept_ranks;              /* ranks with altered bits after start-up */
    uint64_t support;                 /* sites of the support */
    uint64_t planned;                 /* distinct sites planned */
    uint64_t delivered;               /* distinct sites really altered in what some rank read */
    uint64_t altered_bits;            /* bits that differ in the altered file, as read back */
    uint64_t n_nan, n_inf, n_extreme; /* altered elements whose new value is such */

    int64_t collapse_step;  /* steps after the restart of the first non-finite loss; -1: none */
    uint64_t end_step;      /* step counter at the end */
    char end_reason[24];    /* sdc_end_reason_name, or "crash", "hang" */
    double end_loss;        /* mean over ranks of the last training loss; NaN if not finite */
    double eval_loss;       /* saving rank, end of window; NaN where there is none */
    double accuracy;        /* saving rank, 0..1; NaN where there is none */
    double accuracy_worst;  /* worst rank; NaN where there is none */
    double accuracy_golden; /* of its clean twin, saving rank */
    double distance;        /* whole parameters, saving rank, end of window; as in propagation */

    int control;       /* of controls: 1 passed, 0 failed; -1 for others */
    char *message;     /* why a control failed, what the harness error was; may be NULL */
    int64_t platform;  /* sdc__store_platform */
    uint32_t attempts; /* tries, 1 is usual */
    uint32_t worker;   /* number of the worker */
    double seconds;    /* of the last try */
    char finished[32]; /* UTC; filled by put where empty */

    struct sdc_store_fault *faults;
    size_t n_faults; /* the first SDC_STORE_MAX_FAULTS are kept; planned says how many there were */
    struct sdc_store_exposure *exposures; /* one per rank */
    size_t n_exposures;
    struct sdc_store_point *points;
    size_t n_points;
    struct sdc_store_propagation *propagation;
    size_t n_propagation;
    struct sdc_store_horizon *horizons;
    size_t n_horizons;
};

#define SDC_STORE_MAX_FAULTS 1000

/* Frees what a trial read from the store owns (message, arrays and their texts). */
void sdc__store_trial_release(struct sdc_store_trial *t);

/* One transaction, durable on return. SDC_EXISTS if the id is there already. */
enum sdc_status sdc__store_put_trial(struct sdc_store *store, const struct sdc_store_trial *t,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Removes a trial with all its rows, so that it runs again (a worker found to be unsound). Not
 * there is not an error. */
enum sdc_status sdc__store_forget_trial(struct sdc_store *store, const char *id,
                                        struct sdc_error *err) SDC_MUST_CHECK;
/* done[i] for plan->trials[i]. */
enum sdc_status sdc__store_done(struct sdc_store *store, const struct sdc_plan *plan, bool *done,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Whole trial with all its rows; SDC_NOT_FOUND. */
enum sdc_status sdc__store_get_trial(struct sdc_store *store, const char *id,
                                     struct sdc_store_trial *t,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* All trials in plan order of id, without their rows (arrays NULL). Release each, then sdc__free.
 */
enum sdc_status sdc__store_list_trials(struct sdc_store *store, struct sdc_store_trial **trials,
                                       size_t *n, struct sdc_error *err) SDC_MUST_CHECK;
/* Every propagation row of every trial, ordered by layer, part, trial; stops at the first status
 * that is not SDC_OK and returns it. Rows are borrowed during the call. */
typedef enum sdc_status (*sdc_store_propagation_fn)(void *user, const char *trial,
                                                    const struct sdc_store_propagation *row,
                                                    struct sdc_error *err);
enum sdc_status sdc__store_each_propagation(struct sdc_store *store, sdc_store_propagation_fn fn,
                                            void *user, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- goldens and clean replicas ---- */

/* Golden of a plan group with its gate. */
struct sdc_store_golden {
    char group[16]; /* plan group id */
    int64_t platform;
    bool passed;     /* the gate: two restarts bit-identical, replicas equal after start-up */
    char *message;   /* what failed, or notes such as the restart effect; may be NULL */
    double accuracy; /* saving rank, end of window */
    double eval_loss;
    uint64_t eval_samples;
    double end_loss;      /* mean over ranks */
    double max_parameter; /* largest |parameter| at the end of the window */
    double step_seconds;  /* mean time of a step */
    uint64_t params;      /* parameters of the model */
    char state[33];       /* digest of rank 0's whole state at the end */
    struct sdc_store_point *points;
    size_t n_points;
};

enum sdc_spread_kind { SDC_SPREAD_E0, SDC_SPREAD_E1 };

struct sdc_store_replica {
    char group[16];
    int64_t platform;
    enum sdc_spread_kind kind;
    uint32_t replica;
    bool held_out;        /* not part of the limits: checks their false-alarm rate */
    bool false_alarm;     /* outside limits made of all the other replicas of its setting */
    double max_deviation; /* largest |loss - golden's| over steps and ranks */
    double end_loss, eval_loss, accuracy;
    double distance; /* parameters at the end of the window from golden's */
    struct sdc_store_point *points;
    size_t n_points;
};

void sdc__store_golden_release(struct sdc_store_golden *g);
void sdc__store_replica_release(struct sdc_store_replica *r);

/* Put replaces an entry of the same group and platform (and kind and replica). */
enum sdc_status sdc__store_put_golden(struct sdc_store *store, const struct sdc_store_golden *g,
                                      struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__store_put_replica(struct sdc_store *store, const struct sdc_store_replica *r,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* Golden of a group on a platform; SDC_NOT_FOUND. */
enum sdc_status sdc__store_get_golden(struct sdc_store *store, const char *group, int64_t platform,
                                      struct sdc_store_golden *g,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* All goldens (with points); group NULL: all. Release each, then sdc__free. */
enum sdc_status sdc__store_list_goldens(struct sdc_store *store, struct sdc_store_golden **list,
                                        size_t *n, struct sdc_error *err) SDC_MUST_CHECK;
/* Replicas with points, ordered by group, platform, kind, replica; group NULL and platform 0 mean
 * all. Release each, then sdc__free. */
enum sdc_status sdc__store_list_replicas(struct sdc_store *store, const char *group,
                                         int64_t platform, struct sdc_store_replica **list,
                                         size_t *n, struct sdc_error *err) SDC_MUST_CHECK;

/* "SQLite built VERSION, running VERSION" of the library behind this file. */
void sdc__store_library(char *text, size_t size);

#endif
