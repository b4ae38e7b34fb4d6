/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "cli/audit_text.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/audit.h"

struct seal_args {
    const char *output;
    bool force, no_sync, json;
    uint64_t threads;
    struct sdc_cli_ckpt_args ckpt;
};

static enum sdc_status print(struct sdc_cli *cli, const struct seal_args *a,
                             const struct sdc_seal_result *r, struct sdc_error *err) {
    char tensors[SDC_TEXT_COUNT], bytes[SDC_TEXT_COUNT];
    if (a->json) {
        struct sdc_buf text = SDC_BUF_INIT;
        struct sdc_jw w = sdc__jw(&text);
        sdc__jw_obj(&w);
        sdc__jw_kstr(&w, "schema", "sdclab.sealed/1");
        sdc__jw_kstr(&w, "file", cli->operands.items[0]);
        sdc__jw_kstr(&w, "seal", r->path);
        sdc__jw_ku64(&w, "files", r->n_files);
        sdc__jw_ku64(&w, "bytes", r->n_bytes);
        sdc__jw_ku64(&w, "tensors", r->n_tensors);
        sdc__jw_ku64(&w, "unreadable", r->n_unreadable);
        sdc__jw_obj_end(&w);
        return sdc_json_print(&text, cli->out, err);
    }
    fprintf(cli->out, "%s: %s tensor%s, %llu file%s, %s\n", r->path,
            sdc_text_of_count(r->n_tensors, tensors), sdc_text_plural(r->n_tensors),
            (unsigned long long)r->n_files, sdc_text_plural(r->n_files),
            sdc_text_of_bytes(r->n_bytes, bytes));
    if (r->n_unreadable > 0)
        fprintf(cli->out, "%s tensor%s cannot be read and have no digest of their own\n",
                sdc_text_of_count(r->n_unreadable, tensors), sdc_text_plural(r->n_unreadable));
    return SDC_OK;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct seal_args *a = args;
    struct sdc_seal_options options = {.output = a->output,
                                       .replace = a->force,
                                       .no_sync = a->no_sync,
                                       .threads = (unsigned)a->threads};
    struct sdc_cli_ckpt open = {0};
    struct sdc_seal_result r = {0};
    struct sdc_error err;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_cli_ckpt_init(&a->ckpt, &open, &err));
    options.open = &open.options;
    SDC_TRY_OUT(st, sdc_seal(cli->operands.items[0], &options, &r, &err));
    st = print(cli, a, &r, &err);
out:
    sdc_text_free(r.path);
    sdc_cli_ckpt_release(&open);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPT_OUTPUT(struct seal_args, output, "FILE", "write the seal here, not to FILE.seal"),
    {SDC_OPT_FLAG, "force", 'f', offsetof(struct seal_args, force), NULL, NULL,
     "replace an existing seal", 0, 0, NULL},
    {SDC_OPT_FLAG, "no-sync", 0, offsetof(struct seal_args, no_sync), NULL, NULL,
     "do not wait for the disk: faster, and lost if the power fails", 0, 0, NULL},
    SDC_OPTS_CKPT(struct seal_args, ckpt),
    SDC_OPT_THREADS(struct seal_args, threads),
    SDC_OPT_JSON(struct seal_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_seal = {
    .name = "seal",
    .group = "Checkpoints",
    .summary = "write FILE.seal: digests of a checkpoint's files and tensors, for verify",
    .operands = "FILE",
    .details =
        "The seal holds size and XXH3-128 digest of each file, and of each tensor the\n"
        "digest of its elements (in C order, little-endian) and of up to 256 blocks of it,\n"
        "so that damage can be placed. Not cryptographic: it finds accidents, not attackers.",
    .examples = "  sdclab seal step300.h5\n"
                "  sdclab seal checkpoint-folder/ -o step300.seal",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct seal_args),
    .run = run,
};
