/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/alter_common.h"
#include "cli/commands.h"
#include "cli/map_options.h"
#include "cli/text_table.h"
#include "sdc/alter.h"

struct replay_args {
    struct sdc_cli_alter_args common;
    struct sdc_opt_list map;
    const char *from;
    bool exact, skip_missing;
};

static int run(struct sdc_cli *cli, const void *args) {
    const struct replay_args *a = args;
    const char *record = cli->operands.items[0], *file = cli->operands.items[1];
    struct sdc_replay_options options = {
        .from = a->from, .exact = a->exact, .skip_missing = a->skip_missing};
    struct sdc_replay_result r = {0};
    struct sdc_name_map *map = NULL;
    struct sdc_cli_ckpt open;
    struct sdc_error err;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_cli_alter_init(cli, &a->common, &options.alter, &open, &err));
    SDC_TRY_OUT(st, sdc_cli_map(&a->map, &map, &err));
    options.map = map;
    SDC_TRY_OUT(st, sdc_replay(record, file, &options, &r, &err));
    if (r.skipped > 0) {
        char skipped[SDC_TEXT_COUNT], all[SDC_TEXT_COUNT];
        sdc_cli_say(cli, "%s of %s changes of the record left out: no counterpart\n",
                    sdc_text_of_count(r.skipped, skipped), sdc_text_of_count(r.changes, all));
    }
    st = sdc_cli_alter_print(cli, &a->common, file, &r.alter, &err);
out:
    sdc_alter_result_release(&r.alter);
    sdc_name_map_free(map);
    sdc_cli_ckpt_release(&open);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPTS_ALTER_WHERE(struct replay_args, common),
    SDC_OPT_MAP(struct replay_args, map),
    {SDC_OPT_STR, "from", 0, offsetof(struct replay_args, from), "FILE", NULL,
     "the checkpoint the record speaks of, for layers and shapes that RECORD does not tell", 0, 0,
     NULL},
    {SDC_OPT_FLAG, "exact", 0, offsetof(struct replay_args, exact), NULL, NULL,
     "refuse unless every element holds the old value of the record", 0, 0, NULL},
    {SDC_OPT_FLAG, "skip-missing", 0, offsetof(struct replay_args, skip_missing), NULL, NULL,
     "leave out tensors of the record that FILE has not", 0, 0, NULL},
    SDC_OPTS_ALTER_HOW(struct replay_args, common),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_replay = {
    .name = "replay",
    .group = "Checkpoints",
    .summary = "do to a checkpoint what a record says was done to another",
    .operands = "RECORD FILE",
    .details =
        "Applies each change of RECORD to the same element of FILE: the same bits are flipped (or\n"
        "the operator is applied) whatever value stands there. FILE may be of another format or\n"
        "framework: tensors are found by name without wrappers such as 'module.', or by --map,\n"
        "which also says how axes are ordered. Nothing is guessed: a tensor without counterpart,\n"
        "with two, of another type or shape is refused before anything is changed. A new record\n"
        "names the old one as its origin.",
    .examples = "  sdclab replay ddp.pt.sdc.jsonl horovod.pt -o horovod-altered.pt\n"
                "  sdclab replay torch.h5.sdc.jsonl keras.weights.h5 -o altered.h5 --map "
                "torch-keras\n"
                "  sdclab replay a.h5.sdc.jsonl b.h5 --in-place --map lenet.map --dry-run",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .args_size = sizeof(struct replay_args),
    .run = run,
};
