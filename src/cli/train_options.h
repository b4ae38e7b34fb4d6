/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of sdclab-train, and the run description that they amount to.
 */
#ifndef SDC_CLI_TRAIN_OPTIONS_H
#define SDC_CLI_TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/options.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "train/train.h"

#define TRAIN_NOT_GIVEN                                                                            \
    UINT64_MAX /* steps, epochs, ranks: before parsing; no value of the options */

enum train_comm { TRAIN_COMM_AUTO, TRAIN_COMM_THREADS, TRAIN_COMM_MPI };

struct train_options {
    int comm; /* enum train_comm */
    uint64_t timeout;
    const char *run, *model, *data, *data_path, *recipe, *load, *save, *output;
    int kernels, format, eval_who, compression, fusion;
    uint64_t first_bucket_bytes, bucket_bytes, fusion_bytes, fusion_seed;
    uint64_t data_limit, ranks, batch, seed, seed_data, steps, epochs;
    uint64_t eval_samples, eval_every, digest_every;
    int optimizer, schedule, schedule_unit;
    uint64_t step_size, t_max, patience, cooldown, warmup;
    double gamma, eta_min, factor, threshold, min_lr, warmup_factor;
    struct sdc_opt_list milestones;
    double lr, momentum, weight_decay, beta1, beta2, eps;
    uint64_t data_classes, data_samples, data_test_samples, data_seed, crop_padding;
    const char *data_shape;
    struct sdc_opt_list load_rank, snapshot;
    bool list_samples;
    bool nesterov, flip, no_shuffle, drop_last;
    bool bucket_view, dry_run, json, quiet, version, help;
};

extern const struct sdc_opt train_option_table[];

/* Fills *run, which is to be released in any case but SDC_OK too. The trainer is used to find out
 * how many steps an epoch has. SDC_USAGE names the option. */
enum sdc_status train_options_to_run(const struct train_options *o, struct sdc_trainer *t,
                                     struct sdc_run *run, struct sdc_error *err) SDC_MUST_CHECK;

#endif
