/* SPDX-License-Identifier: Apache-2.0
 *
 * The native trainer: carries out run descriptions (sdc/run.h) with ranks that are threads of this
 * process, and writes events (sdc/events.h), checkpoints and snapshots. Not the program around it.
 *
 * A trainer keeps between runs what is costly to make: data sets in memory, threads, kernel plans,
 * the ranks' memory. The same description gives the same bits again, whatever ran before.
 *
 * Life cycle: new, any number of runs, free. One thread per object; several trainers in a process
 * are independent.
 *
 *     struct sdc_trainer *t;
 *     sdc_trainer_new(&t, &err);
 *     sdc_run_read("run.json", &run, &err);
 *     st = sdc_trainer_run(t, &run, NULL, &result, &err);      a run that went to NaN is SDC_OK
 *     sdc_trainer_free(t);
 */
#ifndef SDC_TRAIN_TRAIN_H
#define SDC_TRAIN_TRAIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sdc/events.h"
#include "sdc/run.h"
#include "sdc/status.h"

struct sdc_trainer;

struct sdc_train_hooks {
    /* Every event, after it was written or put down to be; called by rank 0's thread, and at the
     * end by the caller's. NULL: none. */
    void (*event)(void *arg, const struct sdc_event *event);
    void *arg;
    const atomic_bool *cancel; /* set it to end the run at the next step; NULL: never */
};

struct sdc_train_result {
    enum sdc_end_reason reason;
    uint64_t step;  /* steps done */
    float loss;     /* of rank 0 in the last step; 0 if there was none */
    bool evaluated; /* the next three are of rank 0's last evaluation */
    double eval_loss;
    uint64_t eval_samples, eval_correct;
    uint64_t images;      /* trained on, over all ranks */
    double train_seconds; /* in steps, without start-up, evaluation and files */
    double seconds;       /* the whole run */
};

enum sdc_status sdc_trainer_new(struct sdc_trainer **out, struct sdc_error *err) SDC_MUST_CHECK;
void sdc_trainer_free(struct sdc_trainer *t); /* accepts NULL */

/* Carries out one run. SDC_OK: it came to an end by itself, however wrong its numbers. Else the
 * last event says `rejected` (the checkpoint was refused: SDC_MISMATCH for another model, shape or
 * step, SDC_INVALID and SDC_UNSUPPORTED for a damaged or foreign file) or `failed` (everything
 * else: SDC_NOT_FOUND, SDC_IO, SDC_NO_MEMORY, SDC_CANCELLED, SDC_TIMEOUT, SDC_PEER, ...), with the
 * message; only where the description is refused (SDC_INVALID) or the output folder cannot be
 * written there is no such event. The trainer can go on with other runs unless it is lost. */
enum sdc_status sdc_trainer_run(struct sdc_trainer *t, const struct sdc_run *run,
                                const struct sdc_train_hooks *hooks,
                                struct sdc_train_result *result,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* Steps of one epoch of this run's training data, which is loaded for it and kept. Statuses of
 * sdc_dataset_open. */
enum sdc_status sdc_trainer_epoch_steps(struct sdc_trainer *t, const struct sdc_run *run,
                                        uint64_t *steps, struct sdc_error *err) SDC_MUST_CHECK;
/* Training samples of this run, after its limit; as above. */
enum sdc_status sdc_trainer_training_samples(struct sdc_trainer *t, const struct sdc_run *run,
                                             uint64_t *n, struct sdc_error *err) SDC_MUST_CHECK;
/* Who sees which sample, and what is done to it, in every step of a run over n training samples: a
 * line of JSON each (schemas/samples-1.json), with its newline, to put, whose failure ends it. The
 * checkpoints that the run loads are read for where they stand. */
enum sdc_status sdc_train_list_samples(const struct sdc_run *run, uint64_t n,
                                       enum sdc_status (*put)(void *arg, const char *line,
                                                              size_t len, struct sdc_error *err),
                                       void *arg, struct sdc_error *err) SDC_MUST_CHECK;
/* The step counter of a checkpoint. SDC_MISMATCH: it has none. */
enum sdc_status sdc_train_checkpoint_step(const char *path, uint64_t *step,
                                          struct sdc_error *err) SDC_MUST_CHECK;

/* A rank thread did not come back: no more runs, and the process should end soon. */
bool sdc_trainer_lost(const struct sdc_trainer *t);

/* ---- ranks as processes ----
 *
 * After sdc_comm_start every process makes a trainer, joins it to the others, and then does the
 * same with it as they do, all by one thread: each sdc_trainer_run is one rank of the run, and all
 * return the same status unless processes are lost (sdc_trainer_lost: SDC_PEER, SDC_TIMEOUT,
 * SDC_CANCELLED or SDC_INTERNAL). Rank 0 writes the events and the checkpoint, and calls the hooks;
 * the cancel flag of the others only keeps them from waiting for long. */

/* size: processes, 1 to SDC_MAX_RANKS. comm: one whose ranks are processes. */
enum sdc_status sdc_trainer_join(struct sdc_trainer *t, const char *comm, unsigned size,
                                 unsigned timeout_ms, struct sdc_error *err) SDC_MUST_CHECK;
/* The worst status of all, with its message. Collective; without effect where ranks are threads. */
enum sdc_status sdc_trainer_agree(struct sdc_trainer *t, enum sdc_status status,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* Gives the description that rank 0 has (unless its status says that it has none) to the others,
 * whose *run is all zeros before. Collective; without effect where ranks are threads. */
enum sdc_status sdc_trainer_share_run(struct sdc_trainer *t, enum sdc_status status,
                                      struct sdc_run *run, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- provenance ---- */

#define SDC_TRAINER_NAME "native"

/* Versions and everything of this machine and build that can change a computed bit, sorted by key;
 * n of them, owned by the caller (sdc_train_facts_free). kernels: the table in use, or NULL for
 * all. */
enum sdc_status sdc_train_facts(const char *kernels, struct sdc_key_value **facts, size_t *n,
                                struct sdc_error *err) SDC_MUST_CHECK;
void sdc_train_facts_free(struct sdc_key_value *facts, size_t n);
/* The same in one text: what a golden run depends on. Free with sdc__free. */
enum sdc_status sdc_train_platform(char **text, struct sdc_error *err) SDC_MUST_CHECK;

#endif
