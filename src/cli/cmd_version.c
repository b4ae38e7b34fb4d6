/* SPDX-License-Identifier: Apache-2.0 */
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/platform.h"
#include "camp/spec.h"
#include "camp/store.h"
#include "ckpt/fmt.h"
#include "cli/commands.h"
#include "io/io.h"
#include "sdc/ckpt.h"
#include "stat/stat.h"

struct version_args {
    bool full;
};

static void print_libraries(FILE *out) {
    static void (*const libraries[])(char *, size_t) = {
        sdc__hdf5_library, sdc__gz_library,    sdc__json_library, sdc__spec_library,
        sdc__hash_library, sdc__store_library, sdc__stat_library,
    };
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        char text[128];
        libraries[i](text, sizeof text);
        fprintf(out, "%-15s %s\n", i ? "" : "libraries", text);
    }
}

/* What the trainer says of itself: its kernels are libraries that this program does not link. */
static void print_trainer(struct sdc_cli *cli) {
    struct sdc_error err;
    char *path = NULL;
    if (sdc_cli_find_trainer(cli, &path, &err) != SDC_OK) {
        fprintf(cli->out, "trainer         not found\n");
        return;
    }
    fprintf(cli->out, "\n%s\n", path);
    fflush(cli->out);
    const char *const argv[] = {path, "--version", NULL};
    pid_t pid;
    int status;
    if (posix_spawn(&pid, path, NULL, NULL, (char *const *)(uintptr_t)argv, environ) != 0 ||
        waitpid(pid, &status, 0) < 0 || status != 0)
        fprintf(cli->out, "%-15s %s\n", "", "it does not run");
    sdc__free(path);
}

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
    size_t n;
    const char *const *formats = sdc_ckpt_formats(&n);
    fprintf(cli->out, "formats        ");
    for (size_t i = 0; i < n; i++)
        fprintf(cli->out, " %s", formats[i]);
    fprintf(cli->out, "\n");
    print_libraries(cli->out);
    fprintf(cli->out, "random numbers  Philox4x32-10 (Random123)\n");
    fprintf(cli->out, "licence         sources Apache-2.0; this program %s\n",
            sdc__stat_have_gsl() ? "GPL-3.0-or-later, since it is linked with GSL" : "Apache-2.0");
    print_trainer(cli);
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
