/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/choice_options.h"

#include <stdio.h>
#include <string.h>

/* The parser speaks of the key of a spec or a record, "bits: ..."; here it is an option. */
static void name_option(const char *name, struct sdc_error *err) {
    char said[SDC_ERROR_MESSAGE_SIZE];
    size_t len = strlen(name);
    if (!err || strncmp(err->message, name, len) != 0 || err->message[len] != ':')
        return;
    snprintf(said, sizeof said, "%s", err->message);
    snprintf(err->message, sizeof err->message, "--%.*s", (int)(sizeof err->message - 3), said);
}

enum sdc_status sdc_cli_choice_add(const struct sdc_opt_words *words, struct sdc_choice *choice,
                                   struct sdc_error *err) {
    for (size_t i = 0; i < words->n; i++) {
        enum sdc_status st =
            sdc_choice_set(choice, words->items[i].name, words->items[i].value, err);
        if (st != SDC_OK) {
            name_option(words->items[i].name, err);
            return st;
        }
    }
    return sdc_choice_check(choice, err);
}

enum sdc_status sdc_cli_choice(const struct sdc_opt_words *words, struct sdc_choice *choice,
                               struct sdc_error *err) {
    sdc_choice_init(choice);
    return sdc_cli_choice_add(words, choice, err);
}
