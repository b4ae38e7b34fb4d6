/* SPDX-License-Identifier: Apache-2.0
 *
 * Help of a table of options; the programs share it.
 */
#include <stdio.h>
#include <string.h>

#include "cli/options.h"

/* "-o, --output FILE" */
void sdc_help_option_head(const struct sdc_opt *o, char *text, size_t size) {
    char letter[8] = "";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(text, size, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
             o->value ? o->value : "");
}

/* Help line with its default and, for enumerations, the choices. */
static void option_help(FILE *out, const struct sdc_opt *o) {
    fputs(o->help, out);
    if (o->type == SDC_OPT_ENUM) {
        fputs(" (", out);
        for (int i = 0; o->choices[i]; i++)
            fprintf(out, "%s%s", i ? ", " : "", o->choices[i]);
        fputc(')', out);
    }
    if (o->def && o->type != SDC_OPT_FLAG)
        fprintf(out, " [%s]", o->def);
}

void sdc_help_options(FILE *out, const struct sdc_opt *table) {
    for (const struct sdc_opt *o = table; o && o->type != SDC_OPT_END; o++) {
        char head[80];
        sdc_help_option_head(o, head, sizeof head);
        fprintf(out, strlen(head) > 26 ? "  %s\n%30s" : "  %-26s  %s", head, "");
        option_help(out, o);
        fputc('\n', out);
    }
}
