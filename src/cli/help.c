/* SPDX-License-Identifier: Apache-2.0
 *
 * Help, the interface as JSON, and the manual's reference page, all from the command tables.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"

static const char *const groups[] = {"Checkpoints", "Experiments", "Other"};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

void sdc_help_program(FILE *out) {
    fprintf(out, "sdclab: what a flipped bit does to distributed training\n\n"
                 "usage: sdclab COMMAND [OPTIONS] ...\n");
    for (int g = 0; g < N_GROUPS; g++) {
        fprintf(out, "\n%s\n", groups[g]);
        for (const struct sdc_command *const *c = sdc_commands; *c; c++)
            if (strcmp((*c)->group, groups[g]) == 0)
                fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->summary);
    }
    fprintf(out,
            "\n'sdclab help COMMAND' explains one command. Exit codes: 0 done; 1 a difference, "
            "damage,\nrefused gate or failed control was found; 2 usage; 3 input refused; 4 "
            "environment;\n5 internal; 130 interrupted.\n");
}

void sdc_help_command(FILE *out, const struct sdc_command *command, const char *path) {
    fprintf(out, "sdclab %s: %s\n\n", path, command->summary);
    if (command->subcommands) {
        fprintf(out, "usage: sdclab %s COMMAND [OPTIONS] ...\n\n", path);
        for (const struct sdc_command *const *c = command->subcommands; *c; c++)
            fprintf(out, "  %-10s %s\n", (*c)->name, (*c)->summary);
        return;
    }
    fprintf(out, "usage: sdclab %s [OPTIONS]%s%s\n", path, *command->operands ? " " : "",
            command->operands);
    if (command->details)
        fprintf(out, "\n%s\n", command->details);
    fprintf(out, "\nOptions\n");
    sdc_help_options(out, command->options);
    sdc_help_options(out, sdc_common_options);
    if (command->examples)
        fprintf(out, "\nExamples\n%s\n", command->examples);
}

/* ---- JSON ---- */

static void json_options(struct sdc_jw *w, const struct sdc_opt *table) {
    static const char *const types[] = {"end",    "flag",   "string", "integer",
                                        "number", "choice", "list",   "word"};
    sdc__jw_arr(w);
    for (const struct sdc_opt *o = table; o && o->type != SDC_OPT_END; o++) {
        char letter[2] = {o->letter, '\0'};
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "name", o->name);
        sdc__jw_kstr(w, "letter", o->letter ? letter : NULL);
        sdc__jw_kstr(w, "type", types[o->type]);
        sdc__jw_kstr(w, "value", o->value);
        sdc__jw_kstr(w, "default", o->def);
        sdc__jw_kstr(w, "help", o->help);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_commands(struct sdc_jw *w, const struct sdc_command *const *table) {
    sdc__jw_arr(w);
    for (; *table; table++) {
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "name", (*table)->name);
        sdc__jw_kstr(w, "group", (*table)->group);
        sdc__jw_kstr(w, "summary", (*table)->summary);
        sdc__jw_kstr(w, "operands", (*table)->operands);
        if ((*table)->subcommands) {
            sdc__jw_key(w, "commands");
            json_commands(w, (*table)->subcommands);
        } else if (!(*table)->raw) {
            sdc__jw_key(w, "options");
            json_options(w, (*table)->options);
        }
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

void sdc_help_json(FILE *out) {
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    sdc__jw_obj(&w);
    sdc__jw_key(&w, "commands");
    json_commands(&w, sdc_commands);
    sdc__jw_key(&w, "common_options");
    json_options(&w, sdc_common_options);
    sdc__jw_obj_end(&w);
    if (!b.failed)
        fprintf(out, "%s\n", b.data);
    sdc__buf_release(&b);
}

/* ---- the reference page ---- */

static void markdown_cell(FILE *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void markdown_options(FILE *out, const struct sdc_opt *table) {
    for (const struct sdc_opt *o = table; o && o->type != SDC_OPT_END; o++) {
        char head[80];
        sdc_help_option_head(o, head, sizeof head);
        fputs("| `", out);
        markdown_cell(out, head);
        fputs("` | ", out);
        markdown_cell(out, o->help);
        for (int i = 0; o->type == SDC_OPT_ENUM && o->choices[i]; i++)
            fprintf(out, "%s`%s`", i ? ", " : ": ", o->choices[i]);
        fprintf(out, " | %s |\n", o->def && o->type != SDC_OPT_FLAG ? o->def : "");
    }
}

static void markdown_command(FILE *out, const struct sdc_command *c, const char *parent) {
    char path[128];
    snprintf(path, sizeof path, "%s%s%s", parent, *parent ? " " : "", c->name);
    if (c->subcommands) {
        for (const struct sdc_command *const *s = c->subcommands; *s; s++)
            markdown_command(out, *s, path);
        return;
    }
    fprintf(out, "\n## sdclab %s\n\n%s.\n\n```\nsdclab %s [OPTIONS]%s%s\n```\n", path, c->summary,
            path, *c->operands ? " " : "", c->operands);
    if (c->details)
        fprintf(out, "\n%s\n", c->details);
    if (c->options && c->options->type != SDC_OPT_END) {
        fprintf(out, "\n| option | meaning | default |\n|---|---|---|\n");
        markdown_options(out, c->options);
    }
    if (c->examples)
        fprintf(out, "\n```\n%s\n```\n", c->examples);
}

void sdc_help_markdown(FILE *out) {
    fprintf(out, "# Commands\n\nMade by `sdclab help --markdown` from the tables that parse the "
                 "command line.\n\nEvery command also takes these:\n\n"
                 "| option | meaning | default |\n|---|---|---|\n");
    markdown_options(out, sdc_common_options);
    for (const struct sdc_command *const *c = sdc_commands; *c; c++)
        markdown_command(out, *c, "");
}
