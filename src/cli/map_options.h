/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --map, the same for every command that looks for one checkpoint's tensors in another.
 */
#ifndef SDC_CLI_MAP_OPTIONS_H
#define SDC_CLI_MAP_OPTIONS_H

#include "cli/options.h"
#include "sdc/name_map.h"

/* An entry of an option table; member: a struct sdc_opt_list. */
#define SDC_OPT_MAP(type_, member_)                                                                \
    {                                                                                              \
        SDC_OPT_LIST, "map", 0, offsetof(type_, member_), "MAP", NULL,                             \
            "which tensor is which: a file of rules, or torch-keras or keras-torch (repeatable)",  \
            0, 0, NULL                                                                             \
    }

/* *map: NULL without words; free with sdc_name_map_free in any case. */
enum sdc_status sdc_cli_map(const struct sdc_opt_list *words, struct sdc_name_map **map,
                            struct sdc_error *err) SDC_MUST_CHECK;

#endif
