/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "camp/spec.h"
#include "cli/commands.h"
#include "io/io.h"

struct init_args {
    bool force;
};

/* "my-campaign" of "dir/my-campaign.yaml"; characters that a name cannot hold become '-'. */
static void name_of(const char *path, char *name, size_t size) {
    snprintf(name, size, "%.60s", sdc__path_base(path));
    char *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", *c))
            *c = '-';
    if (name[0] == '.' || name[0] == '\0')
        name[0] = 'x';
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct init_args *a = args;
    const char *path = cli->operands.n ? cli->operands.items[0] : "campaign.yaml";
    bool to_stdout = strcmp(path, "-") == 0;
    struct sdc_error err;
    struct sdc_buf text = SDC_BUF_INIT;
    char name[64] = "campaign";
    if (!to_stdout)
        name_of(path, name, sizeof name);
    sdc__spec_template(name, &text);
    enum sdc_status st = SDC_OK;
    if (text.failed)
        st = SDC_ERR(&err, SDC_NO_MEMORY, "no memory for a spec");
    else if (to_stdout)
        fputs(text.data, cli->out);
    else if (!a->force && sdc__path_exists(path))
        st = SDC_ERR(&err, SDC_EXISTS, "%s: exists already, --force replaces it", path);
    else
        st = sdc__write_whole(path, text.data, text.len, true, &err);
    sdc__buf_release(&text);
    if (st != SDC_OK)
        return sdc_cli_fail(cli, &err);
    if (!to_stdout)
        sdc_cli_say(cli, "wrote %s; 'sdclab campaign plan %s' shows what it would run\n", path,
                    path);
    return SDC_EXIT_DONE;
}

static const struct sdc_opt options[] = {
    {SDC_OPT_FLAG, "force", 'f', offsetof(struct init_args, force), NULL, NULL,
     "replace an existing file", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_campaign_init = {
    .name = "init",
    .group = "Experiments",
    .summary = "write a commented spec that explains every key",
    .operands = "[FILE]",
    .details = "FILE is campaign.yaml if not given; - writes to standard output.",
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct init_args),
    .run = run,
};
