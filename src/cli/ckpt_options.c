/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ckpt_options.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

/* "GLOB=TYPE", split at the last '=' since names hold any character; "TYPE" is for all names. */
static enum sdc_status parse_as(const char *word, struct sdc_ckpt_as *as, struct sdc_error *err) {
    const char *equals = strrchr(word, '=');
    const char *type = equals ? equals + 1 : word;
    if (!sdc_dtype_parse(type, &as->dtype))
        return SDC_ERR(err, SDC_USAGE, "--as: '%s' is no type, expected BF16, F16, F32, I64, ...",
                       type);
    as->glob = equals ? sdc__strndup(word, (size_t)(equals - word)) : sdc__strdup("*");
    return as->glob ? SDC_OK : SDC_NOMEM(err, "options");
}

enum sdc_status sdc_cli_ckpt_init(const struct sdc_cli_ckpt_args *args, struct sdc_cli_ckpt *open,
                                  struct sdc_error *err) {
    *open = (struct sdc_cli_ckpt){
        .options = {.max_header = args->max_header, .allow_unclean = args->allow_unclean}};
    if (args->as.n == 0)
        return SDC_OK;
    open->as = sdc__calloc(args->as.n, sizeof *open->as);
    if (!open->as)
        return SDC_NOMEM(err, "options");
    for (size_t i = 0; i < args->as.n; i++) {
        SDC_TRY(parse_as(args->as.items[i], &open->as[i], err));
        open->n_as++;
    }
    open->options.as = open->as;
    open->options.n_as = open->n_as;
    return SDC_OK;
}

void sdc_cli_ckpt_release(struct sdc_cli_ckpt *open) {
    for (size_t i = 0; i < open->n_as; i++)
        sdc__free((void *)(uintptr_t)open->as[i].glob);
    sdc__free(open->as);
    *open = (struct sdc_cli_ckpt){0};
}
