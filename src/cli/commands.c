/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"

/* each in its own file, cmd_NAME.c */
extern const struct sdc_command sdc_cmd_inspect;
extern const struct sdc_command sdc_cmd_alter;
extern const struct sdc_command sdc_cmd_undo;
extern const struct sdc_command sdc_cmd_replay;
extern const struct sdc_command sdc_cmd_diff;
extern const struct sdc_command sdc_cmd_scan;
extern const struct sdc_command sdc_cmd_predict;
extern const struct sdc_command sdc_cmd_verify;
extern const struct sdc_command sdc_cmd_seal;
extern const struct sdc_command sdc_cmd_train;
extern const struct sdc_command sdc_cmd_campaign;
extern const struct sdc_command sdc_cmd_report;
extern const struct sdc_command sdc_cmd_help;
extern const struct sdc_command sdc_cmd_version;

/* one a line: */
/* clang-format off */
const struct sdc_command *const sdc_commands[] = {
    &sdc_cmd_inspect,
    &sdc_cmd_alter,
    &sdc_cmd_undo,
    &sdc_cmd_replay,
    &sdc_cmd_diff,
    &sdc_cmd_verify,
    &sdc_cmd_seal,
    &sdc_cmd_scan,
    &sdc_cmd_predict,
    &sdc_cmd_train,
    &sdc_cmd_campaign,
    &sdc_cmd_report,
    &sdc_cmd_help,
    &sdc_cmd_version,
    NULL,
};
/* clang-format on */

struct common_args {
    bool help, quiet, verbose;
};

const struct sdc_opt sdc_common_options[] = {
    {SDC_OPT_FLAG, "help", 'h', offsetof(struct common_args, help), NULL, NULL, "show this help", 0,
     0, NULL},
    {SDC_OPT_FLAG, "quiet", 'q', offsetof(struct common_args, quiet), NULL, NULL,
     "print results and errors only", 0, 0, NULL},
    {SDC_OPT_FLAG, "verbose", 'v', offsetof(struct common_args, verbose), NULL, NULL, "say more", 0,
     0, NULL},
    {.type = SDC_OPT_END},
};

int sdc_cli_fail(struct sdc_cli *cli, const struct sdc_error *err) {
    char message[SDC_ERROR_MESSAGE_SIZE];
    size_t len = 0;
    /* names in it come from files: no control characters on a terminal */
    for (; err->message[len] && len + 1 < sizeof message; len++)
        message[len] = iscntrl((unsigned char)err->message[len]) ? '?' : err->message[len];
    message[len] = '\0';
    fprintf(cli->err, "sdclab %s: %s\n", cli->command, message);
    if (cli->verbose && err->file)
        fprintf(cli->err, "  (%s, set at %s:%d)\n", sdc_status_text(err->status), err->file,
                err->line);
    return sdc_status_exit_code(err->status);
}

void sdc_cli_say(struct sdc_cli *cli, const char *fmt, ...) {
    if (cli->quiet)
        return;
    fflush(cli->out); /* so that both come in order where they go to one place */
    va_list args;
    va_start(args, fmt);
    vfprintf(cli->err, fmt, args);
    va_end(args);
}

bool sdc_cli_progress(const struct sdc_cli *cli) {
    return !cli->quiet && isatty(fileno(cli->err));
}

enum sdc_status sdc_cli_find_trainer(const struct sdc_cli *cli, char **path,
                                     struct sdc_error *err) {
    const char *slash = strrchr(cli->program_path, '/');
    int dir_len = slash ? (int)(slash - cli->program_path) : 1;
    const char *dir = slash ? cli->program_path : ".";
    static const char *const places[] = {"sdclab-train", "../libexec/sdclab/sdclab-train"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char *candidate = sdc__asprintf("%.*s/%s", dir_len, dir, places[i]);
        if (!candidate)
            return SDC_NOMEM(err, "a path");
        if (access(candidate, X_OK) == 0) {
            *path = candidate;
            return SDC_OK;
        }
        sdc__free(candidate);
    }
    return SDC_ERR(err, SDC_NOT_FOUND,
                   "the native trainer sdclab-train was not found in %.*s or in its "
                   "../libexec/sdclab; it is built with -DSDC_TRAIN=ON",
                   dir_len, dir);
}

static const struct sdc_command *find(const struct sdc_command *const *table, const char *name) {
    for (; *table; table++)
        if (strcmp((*table)->name, name) == 0)
            return *table;
    return NULL;
}

static int unknown_command(FILE *err, const char *parent, const struct sdc_command *const *table,
                           const char *word) {
    const char *names[64];
    size_t n = 0;
    for (; table[n] && n < 64; n++)
        names[n] = table[n]->name;
    const char *near = sdc__nearest(word, names, n);
    fprintf(err, "sdclab: '%s%s%s' is not a command", parent, *parent ? " " : "", word);
    if (near)
        fprintf(err, " (did you mean '%s'?)", near);
    fprintf(err, "\nsee 'sdclab help'\n");
    return SDC_EXIT_USAGE;
}

static int usage_error(struct sdc_cli *cli, const struct sdc_error *err) {
    int code = sdc_cli_fail(cli, err);
    if (code == SDC_EXIT_USAGE)
        fprintf(cli->err, "see 'sdclab help %s'\n", cli->command);
    return code;
}

/* Parses the words after the command's name and runs it. */
static int run_command(struct sdc_cli *cli, const struct sdc_command *command, int argc,
                       const char *const argv[]) {
    if (command->raw) {
        cli->operands =
            (struct sdc_opt_operands){.items = (const char **)(uintptr_t)argv, .n = (size_t)argc};
        return command->run(cli, NULL);
    }
    struct common_args common = {0};
    struct sdc_error err;
    void *args = sdc__calloc(1, command->args_size);
    if (!args) {
        fprintf(cli->err, "sdclab: out of memory\n");
        return SDC_EXIT_ENVIRONMENT;
    }
    int code;
    enum sdc_status st = sdc_opt_parse(argc, argv, command->options, args, sdc_common_options,
                                       &common, &cli->operands, &err);
    cli->quiet = common.quiet;
    cli->verbose = common.verbose;
    if (st != SDC_OK) {
        code = usage_error(cli, &err);
    } else if (common.help) {
        sdc_help_command(cli->out, command, cli->command);
        code = SDC_EXIT_DONE;
    } else if (cli->operands.n < command->min_operands || cli->operands.n > command->max_operands) {
        SDC_ERR(&err, SDC_USAGE, "%s, expected: sdclab %s %s",
                cli->operands.n < command->min_operands ? "too few operands" : "too many operands",
                cli->command, command->operands);
        code = usage_error(cli, &err);
    } else {
        code = command->run(cli, args);
    }
    sdc_opt_release(command->options, args, &cli->operands);
    sdc__free(args);
    return code;
}

/* Results must have reached their reader: a full disk must not look like success. */
static int check_output(FILE *out, FILE *err, int code) {
    if (fflush(out) == 0 && !ferror(out))
        return code;
    fprintf(err, "sdclab: could not write the result to standard output\n");
    return code == SDC_EXIT_DONE || code == SDC_EXIT_FOUND ? SDC_EXIT_ENVIRONMENT : code;
}

int sdc_cli_main(int argc, const char *const argv[], FILE *out, FILE *err) {
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0)
        len = snprintf(self, sizeof self, "%s", argc > 0 ? argv[0] : "sdclab");
    self[len] = '\0';
    if (argc < 2) {
        sdc_help_program(err);
        return SDC_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0)
        word = "version";
    const struct sdc_command *command = find(sdc_commands, word);
    if (!command)
        return unknown_command(err, "", sdc_commands, word);
    char path[128];
    snprintf(path, sizeof path, "%s", command->name);
    int skip = 2;
    if (command->subcommands) {
        const char *sub = argc > 2 ? argv[2] : NULL;
        if (!sub || strcmp(sub, "--help") == 0 || strcmp(sub, "-h") == 0) {
            sdc_help_command(sub ? out : err, command, path);
            return check_output(out, err, sub ? SDC_EXIT_DONE : SDC_EXIT_USAGE);
        }
        const struct sdc_command *found = find(command->subcommands, sub);
        if (!found)
            return unknown_command(err, command->name, command->subcommands, sub);
        snprintf(path, sizeof path, "%s %s", command->name, found->name);
        command = found;
        skip = 3;
    }
    struct sdc_cli cli = {.out = out, .err = err, .program_path = self, .command = path};
    return check_output(out, err, run_command(&cli, command, argc - skip, argv + skip));
}
