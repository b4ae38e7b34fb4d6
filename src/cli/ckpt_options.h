/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that say how checkpoints are opened, the same for every command that opens one.
 *
 *     struct sdc_cli_ckpt open;
 *     SDC_TRY(sdc_cli_ckpt_init(&a->ckpt, &open, &err));
 *     st = sdc_ckpt_open(path, &open.options, &ckpt, &err);
 *     sdc_cli_ckpt_release(&open);
 */
#ifndef SDC_CLI_CKPT_OPTIONS_H
#define SDC_CLI_CKPT_OPTIONS_H

#include "cli/options.h"
#include "sdc/ckpt.h"

struct sdc_cli_ckpt_args {
    struct sdc_opt_list as;
    uint64_t max_header;
    bool allow_unclean;
};

/* Entries of an option table; member: a struct sdc_cli_ckpt_args. */
#define SDC_OPTS_CKPT(type_, member_)                                                              \
    {SDC_OPT_LIST,                                                                                 \
     "as",                                                                                         \
     0,                                                                                            \
     offsetof(type_, member_.as),                                                                  \
     "[GLOB=]TYPE",                                                                                \
     NULL,                                                                                         \
     "take tensors (of this name) whose file does not say their type for BF16, ... (repeatable)",  \
     0,                                                                                            \
     0,                                                                                            \
     NULL},                                                                                        \
        {SDC_OPT_U64,                                                                              \
         "max-header",                                                                             \
         0,                                                                                        \
         offsetof(type_, member_.max_header),                                                      \
         "BYTES",                                                                                  \
         NULL,                                                                                     \
         "safetensors, NumPy: accept a header of up to this size [100000000; 16777216]",           \
         1,                                                                                        \
         0,                                                                                        \
         NULL},                                                                                    \
    {                                                                                              \
        SDC_OPT_FLAG, "allow-unclean", 0, offsetof(type_, member_.allow_unclean), NULL, NULL,      \
            "HDF5: look into a file that its writer did not close", 0, 0, NULL                     \
    }

struct sdc_cli_ckpt {
    struct sdc_ckpt_options options;
    struct sdc_ckpt_as *as; /* owned, with their globs */
    size_t n_as;
};

/* SDC_USAGE for an unknown type. Release it in any case. */
enum sdc_status sdc_cli_ckpt_init(const struct sdc_cli_ckpt_args *args, struct sdc_cli_ckpt *open,
                                  struct sdc_error *err) SDC_MUST_CHECK;
void sdc_cli_ckpt_release(struct sdc_cli_ckpt *open);

#endif
