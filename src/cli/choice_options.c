/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/choice_options.h"

enum sdc_status sdc_cli_choice(const struct sdc_opt_words *words, struct sdc_choice *choice,
                               struct sdc_error *err) {
    sdc_choice_init(choice);
    for (size_t i = 0; i < words->n; i++)
        SDC_TRY(sdc_choice_set(choice, words->items[i].name, words->items[i].value, err));
    return sdc_choice_check(choice, err);
}
