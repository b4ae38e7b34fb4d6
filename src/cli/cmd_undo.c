/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/text_table.h"
#include "sdc/alter.h"

struct undo_args {
    bool json, no_sync;
};

static void print_json(struct sdc_cli *cli, const struct sdc_undo_result *r) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.undo/1");
    sdc__jw_kstr(&w, "file", r->file);
    sdc__jw_ku64(&w, "restored", r->restored);
    sdc__jw_ku64(&w, "already", r->already);
    sdc__jw_kbool(&w, "bytes_differ", r->bytes_differ);
    sdc__jw_obj_end(&w);
    fprintf(cli->out, "%s\n", text.data ? text.data : "");
    sdc__buf_release(&text);
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct undo_args *a = args;
    struct sdc_undo_result r;
    struct sdc_error err;
    const char *file = cli->operands.n > 1 ? cli->operands.items[1] : NULL;
    if (sdc_undo(cli->operands.items[0], file, a->no_sync, &r, &err) != SDC_OK)
        return sdc_cli_fail(cli, &err);
    char count[SDC_TEXT_COUNT];
    if (a->json) {
        print_json(cli, &r);
    } else {
        fprintf(cli->out, "%s: %s element%s restored", r.file, sdc_text_of_count(r.restored, count),
                sdc_text_plural(r.restored));
        if (r.already > 0)
            fprintf(cli->out, ", %s held the old value already",
                    sdc_text_of_count(r.already, count));
        fputs(r.bytes_differ ? "; compressed storage was written anew, so its bytes are others "
                               "than before\n"
                             : "\n",
              cli->out);
    }
    sdc_text_free(r.file);
    return SDC_EXIT_DONE;
}

static const struct sdc_opt options[] = {
    {SDC_OPT_FLAG, "no-sync", 0, offsetof(struct undo_args, no_sync), NULL, NULL,
     "do not wait for the disk: faster, and lost if the power fails", 0, 0, NULL},
    SDC_OPT_JSON(struct undo_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_undo = {
    .name = "undo",
    .group = "Checkpoints",
    .summary = "restore an altered file from its record",
    .operands = "RECORD [FILE]",
    .details =
        "Puts the old value back at every site of the record, in FILE or else in the file beside\n"
        "the record (for one made with --record: where it was when it was altered). A site may\n"
        "hold the new or the old value, so an alteration that was cut short is restored too. A\n"
        "third value, another size, other bytes at the file's ends and a newer alteration are\n"
        "refused, and then nothing is changed. The record stays.",
    .examples = "  sdclab undo model.h5.sdc.jsonl",
    .min_operands = 1,
    .max_operands = 2,
    .options = options,
    .args_size = sizeof(struct undo_args),
    .run = run,
};
