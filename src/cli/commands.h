/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of commands and what a command gets to work with.
 *
 * A command is one const struct in its own file, cmd_NAME.c, listed in commands.c: name, one line,
 * options, function. The function does one thing through the library and prints the result: results
 * on cli->out, talk on cli->err. It returns an exit code (docs/user/exit-codes.md).
 */
#ifndef SDC_CLI_COMMANDS_H
#define SDC_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/options.h"
#include "sdc/status.h"

enum sdc_exit {
    SDC_EXIT_DONE = 0,
    SDC_EXIT_FOUND =
        1, /* done, and a difference, damage, refused gate or failed control was found */
    SDC_EXIT_USAGE = 2,
    SDC_EXIT_REFUSED = 3,     /* input refused */
    SDC_EXIT_ENVIRONMENT = 4, /* I/O, memory, MPI, missing program or data */
    SDC_EXIT_INTERNAL = 5,
    SDC_EXIT_INTERRUPTED = 130
};

struct sdc_cli {
    FILE *out, *err;
    const char *program_path; /* the running executable, absolute; to find sdclab-train beside it */
    const char *command;      /* full name as typed, "campaign plan" */
    bool quiet;               /* no talk but errors */
    bool verbose;
    struct sdc_opt_operands operands;
};

struct sdc_command {
    const char *name;
    const char *group;                 /* heading in help: "Checkpoints", "Experiments", "Other" */
    const char *summary;               /* one line */
    const char *operands;              /* usage text such as "FILE..."; "" for none */
    const char *details;               /* paragraphs of help, may be NULL */
    const char *examples;              /* lines of help, may be NULL */
    size_t min_operands, max_operands; /* max SIZE_MAX: any */
    const struct sdc_opt *options;     /* ends with SDC_OPT_END; NULL: none */
    size_t args_size;                  /* of the struct the options are bound to */
    int (*run)(struct sdc_cli *cli, const void *args);
    const struct sdc_command *const *subcommands; /* NULL-terminated; then run is NULL */
    /* Takes its words as they are, options included (cli->operands): `train` hands them on. */
    bool raw;
};

extern const struct sdc_command *const sdc_commands[]; /* NULL-terminated, in the order of help */

/* Options that mean the same everywhere; each command lists those it takes. */
#define SDC_OPT_JSON(type_, member_)                                                               \
    {                                                                                              \
        SDC_OPT_FLAG, "json", 0, offsetof(type_, member_), NULL, NULL,                             \
            "print JSON instead of text", 0, 0, NULL                                               \
    }
#define SDC_OPT_OUTPUT(type_, member_, value_, help_)                                              \
    { SDC_OPT_STR, "output", 'o', offsetof(type_, member_), value_, NULL, help_, 0, 0, NULL }
#define SDC_OPT_SEED(type_, member_)                                                               \
    {                                                                                              \
        SDC_OPT_U64, "seed", 0, offsetof(type_, member_), "N", "0", "seed of the random stream",   \
            0, 0, NULL                                                                             \
    }
#define SDC_OPT_THREADS(type_, member_)                                                            \
    {                                                                                              \
        SDC_OPT_U64, "threads", 0, offsetof(type_, member_), "N", NULL,                            \
            "use this many threads, with the same result [one for each processor]", 1, 256, NULL   \
    }
#define SDC_OPT_DRY_RUN(type_, member_)                                                            \
    {                                                                                              \
        SDC_OPT_FLAG, "dry-run", 0, offsetof(type_, member_), NULL, NULL,                          \
            "say what would be done, change nothing", 0, 0, NULL                                   \
    }

/* Prints "sdclab COMMAND: message" and returns the exit code for it. */
int sdc_cli_fail(struct sdc_cli *cli, const struct sdc_error *err);
/* Talk: printed on cli->err unless --quiet. */
void sdc_cli_say(struct sdc_cli *cli, const char *fmt, ...) SDC_PRINTF(2, 3);
/* True if stderr is a terminal and progress lines are wanted. */
bool sdc_cli_progress(const struct sdc_cli *cli);
/* Path of the trainer: beside the program, else in libexec; SDC_NOT_FOUND names the places. Free
 * with sdc__free. */
enum sdc_status sdc_cli_find_trainer(const struct sdc_cli *cli, char **path,
                                     struct sdc_error *err) SDC_MUST_CHECK;

/* Runs the program: argv as in main. Returns the exit code. */
int sdc_cli_main(int argc, const char *const argv[], FILE *out, FILE *err);

/* Help of one command (path: its full name), or of the program if NULL. */
void sdc_help_program(FILE *out);
void sdc_help_command(FILE *out, const struct sdc_command *command, const char *path);
/* The whole interface as one JSON document, or as the reference page of the manual in Markdown. */
void sdc_help_json(FILE *out);
void sdc_help_markdown(FILE *out);
extern const struct sdc_opt sdc_common_options[];

#endif
