/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that choose faults, the same for every command that takes them; read by the one
 * parser of fault choices.
 */
#ifndef SDC_CLI_CHOICE_OPTIONS_H
#define SDC_CLI_CHOICE_OPTIONS_H

#include "cli/options.h"
#include "sdc/choice.h"

/* Entries of an option table; member: a struct sdc_opt_words. */
#define SDC_OPTS_SUPPORT(type_, member_)                                                           \
    SDC_OPT_WORD_(type_, member_, "tensors", "GLOB",                                               \
                  "only tensors of this name or glob (repeatable)"),                               \
        SDC_OPT_WORD_(type_, member_, "not-tensors", "GLOB",                                       \
                      "no tensors of this name or glob (repeatable)"),                             \
        SDC_OPT_WORD_(type_, member_, "role", "LIST",                                              \
                      "only these roles: weight, bias, momentum, ..."),                            \
        SDC_OPT_WORD_(type_, member_, "part", "LIST", "only these parts: model, optimizer, loop"), \
        SDC_OPT_WORD_(type_, member_, "dtype", "LIST", "only these types: F32, BF16, I64, ..."),   \
        SDC_OPT_WORD_(type_, member_, "bits", "LIST",                                              \
                      "any, sign, exponent, mantissa, top-exponent, lsb:30, lsb:0-22, msb:1-8 "    \
                      "[any]")

#define SDC_OPTS_FAULTS(type_, member_)                                                            \
    SDC_OPT_WORD_(type_, member_, "flips", "N", "this many distinct sites, drawn [1]"),            \
        SDC_OPT_WORD_(type_, member_, "at", "SITE",                                                \
                      "this site, such as conv1.weight[0,2]@lsb:30 (repeatable)"),                 \
        SDC_OPT_WORD_(type_, member_, "exhaustive", NULL, "every site of the support"),            \
        SDC_OPT_WORD_(type_, member_, "rate", "R",                                                 \
                      "each site with this probability; of sample attempts each attempt"),         \
        SDC_OPT_WORD_(type_, member_, "sample", "HOW",                                             \
                      "bits, elements, bytes (all alike), tensors (then element, then bit), "      \
                      "stratified (tensors and bit classes), attempts [bits]"),                    \
        SDC_OPT_WORD_(type_, member_, "op", "OP",                                                  \
                      "flip, flip=K, set0, set1, mask=HEX[/LENGTH], burst=K, scale=F, value=X, "   \
                      "random, swap [flip]"),                                                      \
        SDC_OPT_WORD_(type_, member_, "not-result", "LIST",                                        \
                      "leave out sites whose value would become nan, inf [none]"),                 \
        SDC_OPT_WORD_(type_, member_, "checksum", "HOW",                                           \
                      "stored checksums: mend or stale (left as they are) [mend]"),                \
        SDC_OPT_WORD_(type_, member_, "compat", "TOOL",                                            \
                      "draw as hdf5-corrupter does: sample attempts, any bit of integers [none]")

#define SDC_OPT_WORD_(type_, member_, name_, value_, help_)                                        \
    { SDC_OPT_WORDS, name_, 0, offsetof(type_, member_), value_, NULL, help_, 0, 0, NULL }

/* Fills choice (initialised here; release it in any case) from the words and checks it. SDC_USAGE.
 */
enum sdc_status sdc_cli_choice(const struct sdc_opt_words *words, struct sdc_choice *choice,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* The same, over a choice that holds words already. */
enum sdc_status sdc_cli_choice_add(const struct sdc_opt_words *words, struct sdc_choice *choice,
                                   struct sdc_error *err) SDC_MUST_CHECK;

#endif
