/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/alter_common.h"
#include "cli/choice_options.h"
#include "cli/commands.h"
#include "sdc/alter.h"

struct alter_args {
    struct sdc_cli_alter_args common;
    uint64_t seed;
    struct sdc_opt_words words;
};

static int run(struct sdc_cli *cli, const void *args) {
    const struct alter_args *a = args;
    const char *file = cli->operands.items[0];
    struct sdc_alter_options options;
    struct sdc_alter_result r = {0};
    struct sdc_cli_ckpt open;
    struct sdc_choice choice;
    struct sdc_error err;
    sdc_choice_init(&choice);
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_cli_alter_init(&a->common, &options, &open, &err));
    SDC_TRY_OUT(st, sdc_cli_choice(&a->words, &choice, &err));
    options.seed = a->seed;
    SDC_TRY_OUT(st, sdc_alter(file, &choice, &options, &r, &err));
    st = sdc_cli_alter_print(cli, &a->common, file, &r, &err);
out:
    sdc_alter_result_release(&r);
    sdc_choice_release(&choice);
    sdc_cli_ckpt_release(&open);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPTS_ALTER_WHERE(struct alter_args, common), SDC_OPTS_FAULTS(struct alter_args, words),
    SDC_OPTS_SUPPORT(struct alter_args, words),      SDC_OPT_SEED(struct alter_args, seed),
    SDC_OPTS_ALTER_HOW(struct alter_args, common),   {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_alter = {
    .name = "alter",
    .group = "Checkpoints",
    .summary = "flip bits or set values in a checkpoint, with a record of what was changed",
    .operands = "FILE",
    .details =
        "Draws sites from the support (all tensors that the filters let through and that can be\n"
        "altered, all bits that --bits names), alters them in a copy (-o) or in the file itself\n"
        "(--in-place), and writes what it did to a record beside the altered file before it is\n"
        "touched. 'sdclab undo' restores from it. The same seed draws the same sites. Bits count\n"
        "from the least significant, lsb:0, or from the sign of a float, msb:0. Nothing but the\n"
        "bytes of the sites is ever changed.",
    .examples = "  sdclab alter step300.h5 -o flipped.h5 --flips 10 --part model --seed 1\n"
                "  sdclab alter step300.h5 --in-place --at 'model/conv1.weight[0,0,2,2]@lsb:30'\n"
                "  sdclab alter model.safetensors -o nan.safetensors --exhaustive --op value=nan\n"
                "  sdclab alter step300.h5 --dry-run --bits top-exponent --tensors '*fc*'",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct alter_args),
    .run = run,
};
