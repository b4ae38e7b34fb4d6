/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>

#include "base/str.h"
#include "camp/plan.h"
#include "camp/results.h"
#include "camp/store.h"
#include "cli/commands.h"
#include "io/io.h"

struct export_args {
    bool csv, json;
    const char *output;
};

static int run(struct sdc_cli *cli, const void *args) {
    const struct export_args *a = args;
    struct sdc_error err;
    struct sdc_store *store = NULL;
    struct sdc_plan *plan = NULL;
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st;
    if (a->csv == a->json) {
        SDC_ERR(&err, SDC_USAGE, "expected one of --csv and --json");
        return sdc_cli_fail(cli, &err);
    }
    SDC_TRY_OUT(st, sdc__store_open_read(cli->operands.items[0], &store, &err));
    SDC_TRY_OUT(st, sdc__plan_new(sdc__store_spec(store), &plan, &err));
    SDC_TRY_OUT(st, a->csv ? sdc__export_csv(store, plan, &text, &err)
                           : sdc__export_json(store, plan, &text, &err));
    if (a->output)
        st = sdc__write_whole(a->output, text.data, text.len, true, &err);
    else
        fwrite(text.data, 1, text.len, cli->out);
out:
    sdc__buf_release(&text);
    sdc__plan_free(plan);
    sdc__store_close(store);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    {SDC_OPT_FLAG, "csv", 0, offsetof(struct export_args, csv), NULL, NULL,
     "one row per trial, with a header line", 0, 0, NULL},
    SDC_OPT_JSON(struct export_args, json),
    SDC_OPT_OUTPUT(struct export_args, output, "FILE", "write to FILE instead of standard output"),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_campaign_export = {
    .name = "export",
    .group = "Experiments",
    .summary = "write one row per trial as CSV or JSON",
    .operands = "DIR",
    .details =
        "Columns: trial, kind (trial, placebo, one-lsb, all-nan), cell, index (pairs share it),\n"
        "cluster, block (pairs share it), group (its golden run), checkpoint; the labels result,\n"
        "exposure, numeric, trajectory, quality, replicas; collapse (0 or 1), collapse_step "
        "(steps\n"
        "after the restart); kept_ranks, altered_ranks; support, planned, delivered (sites),\n"
        "altered_bits; new_nan, new_inf, new_extreme (values after the flip); end_step, "
        "end_reason,\n"
        "end_loss, eval_loss, accuracy, accuracy_worst, accuracy_twin, distance (parameters from\n"
        "the clean twin's); control (1 passed, 0 failed), platform, attempts, seconds, finished,\n"
        "message; then factor.PATH for each factor. An empty field is a number that is not there.",
    .examples = "  sdclab campaign export paper-small.sdcrun --csv -o trials.csv",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct export_args),
    .run = run,
};
