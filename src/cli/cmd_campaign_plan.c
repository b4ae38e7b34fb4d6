/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/str.h"
#include "camp/plan.h"
#include "camp/spec.h"
#include "camp/store.h"
#include "cli/commands.h"

struct plan_args {
    bool json;
    double rate;
};

/* Trials a minute that a run of this campaign on this machine has measured; 0 if there is none. */
static double known_rate(const struct sdc_spec *spec) {
    struct sdc_error ignored;
    struct sdc_store *store = NULL;
    char *text = NULL, *dir = sdc__asprintf("%s.sdcrun", spec->name);
    double rate = 0;
    if (dir && sdc__store_open_read(dir, &store, &ignored) == SDC_OK &&
        sdc__store_get_meta(store, "trials_per_minute", &text, &ignored) == SDC_OK && text &&
        !sdc__parse_f64(text, &rate))
        rate = 0;
    sdc__store_close(store);
    sdc__free(text);
    sdc__free(dir);
    return rate;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct plan_args *a = args;
    struct sdc_error err;
    struct sdc_spec *spec = NULL;
    struct sdc_plan *plan = NULL;
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st = sdc__spec_read(cli->operands.items[0], &spec, &err);
    if (st == SDC_OK)
        st = sdc__plan_new(spec, &plan, &err);
    if (st == SDC_OK) {
        double rate = a->rate > 0 ? a->rate : known_rate(spec);
        st = a->json ? sdc__plan_json(plan, rate, &text, &err)
                     : sdc__plan_print(plan, rate, &text, &err);
    }
    if (st == SDC_OK)
        fprintf(cli->out, "%s%s", text.data, a->json ? "\n" : "");
    sdc__buf_release(&text);
    sdc__plan_free(plan);
    sdc__spec_free(spec);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPT_JSON(struct plan_args, json),
    {SDC_OPT_F64, "rate", 0, offsetof(struct plan_args, rate), "R", NULL,
     "trials a minute, for an estimate of the time; else as measured in NAME.sdcrun", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_campaign_plan = {
    .name = "plan",
    .group = "Experiments",
    .summary = "show what a spec would run, and what to expect",
    .operands = "SPEC",
    .details =
        "Reads and checks the spec, runs nothing: cells, trials, trainings, golden runs, the\n"
        "null model's expectation, warnings.",
    .examples = "  sdclab campaign plan examples/paper-small.yaml",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct plan_args),
    .run = run,
};
