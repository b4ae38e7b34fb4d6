/* SPDX-License-Identifier: Apache-2.0
 *
 * Hands its words to sdclab-train, which links the kernels; this program does not.
 */
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/commands.h"

static int run(struct sdc_cli *cli, const void *args) {
    (void)args;
    struct sdc_error err;
    char *path = NULL;
    if (sdc_cli_find_trainer(cli, &path, &err) != SDC_OK)
        return sdc_cli_fail(cli, &err);
    const char **argv = sdc__calloc(cli->operands.n + 2, sizeof *argv);
    if (!argv) {
        sdc__free(path);
        SDC_NOMEM(&err, "the trainer's arguments");
        return sdc_cli_fail(cli, &err);
    }
    argv[0] = path;
    for (size_t i = 0; i < cli->operands.n; i++)
        argv[i + 1] = cli->operands.items[i];
    fflush(cli->out);
    execv(path, (char *const *)(uintptr_t)argv);
    SDC_ERR_SYS(&err, SDC_IO, errno, "start %s", path);
    sdc__free(argv);
    sdc__free(path);
    return sdc_cli_fail(cli, &err);
}

const struct sdc_command sdc_cmd_train = {
    .name = "train",
    .group = "Experiments",
    .summary = "train a model with the native distributed trainer (see train --help)",
    .operands = "[OPTIONS]",
    .max_operands = SIZE_MAX,
    .run = run,
    .raw = true,
};
