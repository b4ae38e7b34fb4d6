/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "cli/alter_common.h"
#include "cli/choice_options.h"
#include "cli/commands.h"
#include "cli/corrupter.h"
#include "io/io.h"
#include "sdc/alter.h"

struct alter_args {
    struct sdc_cli_alter_args common;
    uint64_t seed;
    struct sdc_opt_words words;
    const char *config, *sequence;
};

/* A sequence says itself what is altered: words that choose would be passed over, and the record
 * would say that they held. */
static enum sdc_status refuse_choices(const struct sdc_opt_words *words, const char *path,
                                      struct sdc_error *err) {
    for (size_t i = 0; i < words->n; i++) {
        const struct sdc_opt_word *w = &words->items[i];
        bool compat = strcmp(w->name, "compat") == 0 && strcmp(w->value, "hdf5-corrupter") == 0;
        if (!compat && strcmp(w->name, "checksum") != 0)
            return SDC_ERR(err, SDC_USAGE,
                           "--%s has no effect beside the sequence %s, which says itself what is "
                           "altered",
                           w->name, path);
    }
    return SDC_OK;
}

/* The words of a configuration of hdf5_corrupter, and the list of its saved sequence. */
static enum sdc_status take_config(struct sdc_cli *cli, const struct alter_args *a,
                                   const struct sdc_cli_ckpt *open, struct sdc_choice *choice,
                                   struct sdc_fault_list *list, char **sequence,
                                   struct sdc_error *err) {
    const char *file = cli->operands.items[0];
    struct sdc_corrupter_config config = {0};
    struct sdc_ckpt *ckpt = NULL;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_ckpt_open(file, &open->options, &ckpt, err));
    if (a->config) {
        SDC_TRY_OUT(st, sdc_corrupter_read(a->config, &config, err));
        SDC_TRY_OUT(st, sdc_corrupter_choose(&config, ckpt, choice, err));
        if (config.file && strcmp(sdc__path_base(config.file), sdc__path_base(file)) != 0)
            sdc_cli_say(cli, "%s is for %s; used for %s\n", a->config, config.file, file);
        if (config.saves)
            sdc_cli_say(cli, "no sequence is saved: the record holds every change, and "
                             "'sdclab replay' repeats it\n");
    } else {
        SDC_TRY_OUT(st, sdc_choice_set(choice, "compat", "hdf5-corrupter", err));
    }
    const char *path = a->sequence ? a->sequence : config.sequence;
    if (path) {
        size_t doubtful = 0;
        SDC_TRY_OUT(st, refuse_choices(&a->words, path, err));
        SDC_TRY_OUT(st, sdc_corrupter_sequence(path, ckpt, a->seed, list, &doubtful, err));
        if (doubtful)
            sdc_cli_say(cli,
                        "%s: %zu entries name a tensor whose name others begin with, and may have "
                        "been written for one of those\n",
                        path, doubtful);
        choice->flips = list->attempts;
        *sequence = sdc__strdup(path);
        st = *sequence ? SDC_OK : SDC_NOMEM(err, "options");
    }
out:
    sdc_corrupter_release(&config);
    sdc_ckpt_close(ckpt);
    return st;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct alter_args *a = args;
    const char *file = cli->operands.items[0];
    struct sdc_alter_options options;
    struct sdc_alter_result r = {0};
    struct sdc_fault_list list = {0};
    struct sdc_cli_ckpt open;
    struct sdc_choice choice;
    struct sdc_error err;
    char *sequence = NULL;
    sdc_choice_init(&choice);
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_cli_alter_init(cli, &a->common, &options, &open, &err));
    if (a->config || a->sequence)
        SDC_TRY_OUT(st, take_config(cli, a, &open, &choice, &list, &sequence, &err));
    SDC_TRY_OUT(st, sdc_cli_choice_add(&a->words, &choice, &err));
    options.seed = a->seed;
    options.list = sequence ? &list : NULL;
    options.origin = sequence;
    SDC_TRY_OUT(st, sdc_alter(file, &choice, &options, &r, &err));
    st = sdc_cli_alter_print(cli, &a->common, file, &r, &err);
out:
    sdc_alter_result_release(&r);
    sdc_fault_list_release(&list);
    sdc_choice_release(&choice);
    sdc_cli_ckpt_release(&open);
    sdc__free(sequence);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPTS_ALTER_WHERE(struct alter_args, common),
    SDC_OPTS_FAULTS(struct alter_args, words),
    SDC_OPTS_SUPPORT(struct alter_args, words),
    SDC_OPT_SEED(struct alter_args, seed),
    {SDC_OPT_STR, "config", 0, offsetof(struct alter_args, config), "FILE", NULL,
     "a configuration of hdf5_corrupter, with --compat hdf5-corrupter", 0, 0, NULL},
    {SDC_OPT_STR, "sequence", 0, offsetof(struct alter_args, sequence), "FILE", NULL,
     "a saved sequence of hdf5_corrupter, instead of drawing", 0, 0, NULL},
    SDC_OPTS_ALTER_HOW(struct alter_args, common),
    {.type = SDC_OPT_END},
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
