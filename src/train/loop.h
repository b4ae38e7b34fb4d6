/* SPDX-License-Identifier: Apache-2.0
 *
 * One run as each rank lives it: load, start-up, steps, evaluations, files, end. Everything that
 * exists once for all ranks (data sets, loaded checkpoints, the event file) is made by the trainer
 * before and handed over in a struct sdc_job.
 *
 * Rank 0 writes the events and the checkpoints. Ranks exchange one small record a step, from which
 * every rank draws the same conclusions (a failure, an early end), so all leave a run together.
 */
#ifndef SDC_TRAIN_LOOP_H
#define SDC_TRAIN_LOOP_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "sdc/data.h"
#include "sdc/run.h"
#include "train/rank.h"
#include "train/sink.h"
#include "train/state.h"
#include "train/strategy.h"
#include "train/train.h"

/* A step at which the run may end because golden's state is reached. */
struct sdc_golden_step {
    uint64_t step;
    struct sdc_state_digest *state; /* [ranks] */
};

struct sdc_job {
    const struct sdc_run *run;
    struct sdc_rank_shape shape;
    const struct sdc_dataset *train_set, *test_set; /* test_set NULL: nothing is evaluated */
    uint64_t eval_samples;                          /* 0: none */
    const struct sdc_train_state **files;           /* [ranks] what each reads; NULL: fresh */
    const struct sdc_strategy_ops *strategy;
    struct sdc_optimizer optimizer;
    const struct sdc_golden_step *golden; /* ascending */
    size_t n_golden;
    const struct sdc_key_value *facts;
    size_t n_facts;
    const char *float_environment; /* of the facts */
    struct sdc_rank *ranks;        /* [ranks] */
    struct sdc_comm **ends;        /* [ranks] */
    unsigned lead;                 /* the rank that writes the results below: 0, or this process' */
    struct sdc_sink *sink;
    const atomic_bool *cancel; /* may be NULL */
    atomic_uint *beat;

    /* results: the first two written by `lead`, the last by rank 0 */
    enum sdc_status status;
    struct sdc_error err;
    struct sdc_train_result result;
};

/* The whole run of one rank; the threads of all ranks call it at the same time. It leaves
 * job->status, and job->result but for its `seconds`. */
void sdc_job_rank(unsigned rank, void *job);

#endif
