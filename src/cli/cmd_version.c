/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>

#include "base/platform.h"
#include "cli/commands.h"

struct version_args {
    bool full;
};

static int run(struct sdc_cli *cli, const void *args) {
    const struct version_args *a = args;
    fprintf(cli->out, "sdclab %s\n", SDC_VERSION);
    if (!a->full)
        return SDC_EXIT_DONE;
    char text[256];
    fprintf(cli->out, "compiler        %s\n", SDC_COMPILER);
    fprintf(cli->out, "flags           %s\n", SDC_COMPILER_FLAGS);
    sdc__cpu_model(text, sizeof text);
    fprintf(cli->out, "processor       %s\n", text);
    sdc__cpu_features(text, sizeof text);
    fprintf(cli->out, "features        %s\n", text);
    struct sdc_fpenv env = sdc__fpenv_read();
    sdc__fpenv_text(&env, text, sizeof text);
    fprintf(cli->out, "floating point  %s\n", text);
    return SDC_EXIT_DONE;
}

static const struct sdc_opt options[] = {
    {SDC_OPT_FLAG, "full", 0, offsetof(struct version_args, full), NULL, NULL,
     "every build fact that can change a result", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_version = {
    .name = "version",
    .group = "Other",
    .summary = "show the version, and with --full how it was built and what it runs on",
    .operands = "",
    .options = options,
    .args_size = sizeof(struct version_args),
    .run = run,
};
