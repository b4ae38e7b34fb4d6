/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands that alter a checkpoint have in common: the options that say where the result
 * goes and how safely, and what is printed.
 */
#ifndef SDC_CLI_ALTER_COMMON_H
#define SDC_CLI_ALTER_COMMON_H

#include <stdbool.h>

#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/alter.h"

struct sdc_cli_alter_args {
    const char *output, *record;
    bool in_place, force, no_record, no_sync, keep_original, digest, dry_run, json;
    uint64_t threads;
    struct sdc_cli_ckpt_args ckpt;
};

/* Entries of an option table; member: a struct sdc_cli_alter_args. */
/* clang-format off */
#define SDC_OPTS_ALTER_WHERE(type_, member_)                                                       \
    SDC_OPT_OUTPUT(type_, member_.output, "FILE", "write the altered copy here"),                  \
    {SDC_OPT_FLAG, "in-place", 0, offsetof(type_, member_.in_place), NULL, NULL,                   \
     "alter the file itself", 0, 0, NULL},                                                         \
    {SDC_OPT_FLAG, "force", 'f', offsetof(type_, member_.force), NULL, NULL,                       \
     "replace an existing output", 0, 0, NULL}
#define SDC_OPTS_ALTER_HOW(type_, member_)                                                         \
    {SDC_OPT_STR, "record", 0, offsetof(type_, member_.record), "FILE", NULL,                      \
     "write the record here, not to ALTERED.sdc.jsonl", 0, 0, NULL},                               \
    {SDC_OPT_FLAG, "no-record", 0, offsetof(type_, member_.no_record), NULL, NULL,                 \
     "write no record: nothing can be undone then", 0, 0, NULL},                                   \
    {SDC_OPT_FLAG, "no-sync", 0, offsetof(type_, member_.no_sync), NULL, NULL,                     \
     "do not wait for the disk: faster, and unsafe if the power fails", 0, 0, NULL},               \
    {SDC_OPT_FLAG, "keep-original", 0, offsetof(type_, member_.keep_original), NULL, NULL,         \
     "where compressed storage is written anew in place, keep the file as FILE.orig", 0, 0, NULL},  \
    {SDC_OPT_FLAG, "digest", 0, offsetof(type_, member_.digest), NULL, NULL,                       \
     "put the digest of the whole file into the record (reads all of it)", 0, 0, NULL},            \
    SDC_OPTS_CKPT(type_, member_.ckpt),                                                            \
    SDC_OPT_THREADS(type_, member_.threads),                                                       \
    SDC_OPT_DRY_RUN(type_, member_.dry_run),                                                       \
    SDC_OPT_JSON(type_, member_.json)
/* clang-format on */

/* SDC_USAGE for options that contradict each other; else options is filled but for the seed and
 * open (initialised here; release it in any case). */
enum sdc_status sdc_cli_alter_init(const struct sdc_cli *cli, const struct sdc_cli_alter_args *a,
                                   struct sdc_alter_options *options, struct sdc_cli_ckpt *open,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* file: the checkpoint that was read. */
enum sdc_status sdc_cli_alter_print(struct sdc_cli *cli, const struct sdc_cli_alter_args *a,
                                    const char *file, const struct sdc_alter_result *r,
                                    struct sdc_error *err) SDC_MUST_CHECK;

#endif
