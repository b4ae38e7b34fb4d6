/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/map_options.h"

enum sdc_status sdc_cli_map(const struct sdc_opt_list *words, struct sdc_name_map **map,
                            struct sdc_error *err) {
    *map = NULL;
    if (words->n == 0)
        return SDC_OK;
    SDC_TRY(sdc_name_map_new(map, err));
    for (size_t i = 0; i < words->n; i++)
        SDC_TRY(sdc_name_map_add(*map, words->items[i], err));
    return SDC_OK;
}
