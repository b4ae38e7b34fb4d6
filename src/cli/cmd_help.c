/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/commands.h"

struct help_args {
    bool json, markdown;
};

static int run(struct sdc_cli *cli, const void *args) {
    const struct help_args *a = args;
    if (a->json) {
        sdc_help_json(cli->out);
        return SDC_EXIT_DONE;
    }
    if (a->markdown) {
        sdc_help_markdown(cli->out);
        return SDC_EXIT_DONE;
    }
    if (cli->operands.n == 0) {
        sdc_help_program(cli->out);
        return SDC_EXIT_DONE;
    }
    /* as if --help had been given to the command */
    const char *argv[4] = {"sdclab", cli->operands.items[0], "--help", NULL};
    int argc = 3;
    if (cli->operands.n == 2) {
        argv[2] = cli->operands.items[1];
        argv[3] = "--help";
        argc = 4;
    }
    return sdc_cli_main(argc, argv, cli->out, cli->err);
}

static const struct sdc_opt options[] = {
    SDC_OPT_JSON(struct help_args, json),
    {SDC_OPT_FLAG, "markdown", 0, offsetof(struct help_args, markdown), NULL, NULL,
     "print the reference page of the manual", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_help = {
    .name = "help",
    .group = "Other",
    .summary = "show help, of one command or of the program",
    .operands = "[COMMAND [COMMAND]]",
    .max_operands = 2,
    .options = options,
    .args_size = sizeof(struct help_args),
    .run = run,
};
