/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "cli/choice_options.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "cli/text_table.h"
#include "sdc/alter.h"

/* Rows of the table without --verbose; the record holds all. */
#define MAX_ROWS 20

struct alter_args {
    const char *output, *record;
    bool in_place, force, no_record, no_sync, digest, dry_run, json;
    uint64_t seed;
    struct sdc_opt_words words;
    struct sdc_cli_ckpt_args ckpt;
};

/* "lsb:30 msb:1 exponent", "lsb:0,lsb:2-5", or "value" */
static void bits_text(const struct sdc_record_change *c, struct sdc_buf *text) {
    unsigned bits = sdc_dtype_bits(c->dtype);
    sdc__buf_clear(text);
    if (c->op != SDC_OP_FLIP) {
        sdc__buf_puts(text, "value");
        return;
    }
    if (__builtin_popcountll(c->bits) == 1) {
        unsigned bit = (unsigned)__builtin_ctzll(c->bits);
        sdc__buf_printf(text, "lsb:%u msb:%u %s", bit, bits - 1 - bit,
                        sdc_num_field_name(sdc_num_field(c->dtype, bit)));
        return;
    }
    sdc_text_of_bits(c->bits, text);
}

/* Class of a value where its text does not tell. */
static const char *class_text(enum sdc_dtype dtype, uint64_t raw) {
    return sdc_num_class(dtype, raw) == SDC_CLASS_SUBNORMAL ? " (subnormal)" : "";
}

static void change_row(struct sdc_text_table *table, const struct sdc_record_change *c,
                       struct sdc_buf *bits) {
    char was[40], is[40];
    sdc_num_text(c->dtype, c->old_raw, was, sizeof was);
    sdc_num_text(c->dtype, c->new_raw, is, sizeof is);
    bits_text(c, bits);
    sdc_text_cell(table, "%s%s", c->tensor, c->index);
    sdc_text_cell(table, "%s", sdc_dtype_name(c->dtype));
    sdc_text_cell(table, "%s", bits->data ? bits->data : "?");
    sdc_text_cell(table, "%s%s", was, class_text(c->dtype, c->old_raw));
    sdc_text_cell(table, "->");
    sdc_text_cell(table, "%s%s%s", is, class_text(c->dtype, c->new_raw),
                  c->old_raw == c->new_raw ? " (unchanged)" : "");
    sdc_text_cell(table, "byte %llu", (unsigned long long)c->offset);
}

static enum sdc_status print_changes(struct sdc_cli *cli, const struct sdc_alter_result *r,
                                     struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lllrllr"};
    struct sdc_buf bits = SDC_BUF_INIT;
    char count[SDC_TEXT_COUNT];
    size_t shown = cli->verbose || r->n_changes <= MAX_ROWS ? r->n_changes : MAX_ROWS;
    for (size_t i = 0; i < shown; i++)
        change_row(&table, &r->changes[i], &bits);
    sdc__buf_release(&bits);
    SDC_TRY(sdc_text_table_print(&table, cli->out, err));
    if (shown < r->n_changes)
        fprintf(cli->out, "  and %s more%s\n", sdc_text_of_count(r->n_changes - shown, count),
                r->record ? ", all in the record" : ", shown with --verbose");
    return SDC_OK;
}

/* "out.h5: 3 altered (3 bits); the support holds 1,974,592 sites" */
static void print_summary(struct sdc_cli *cli, const struct alter_args *a,
                          const struct sdc_alter_result *r) {
    char count[SDC_TEXT_COUNT], bits[SDC_TEXT_COUNT];
    fprintf(cli->out, "%s: ", a->output ? a->output : cli->operands.items[0]);
    if (a->dry_run)
        fprintf(cli->out, "%s would be altered",
                sdc_text_of_count(r->n_changes - r->unchanged, count));
    else
        fprintf(cli->out, "%s altered (%s bit%s)", sdc_text_of_count(r->altered, count),
                sdc_text_of_count(r->altered_bits, bits), sdc_text_plural(r->altered_bits));
    if (r->unchanged > 0)
        fprintf(cli->out, ", %s held the value already", sdc_text_of_count(r->unchanged, count));
    if (r->support_sites == 0)
        fprintf(cli->out, "; the support is empty\n");
    else
        fprintf(cli->out, "; the support holds %s site%s\n",
                sdc_text_of_count(r->support_sites, count), sdc_text_plural(r->support_sites));
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct alter_args *a,
                                  const struct sdc_alter_result *r, struct sdc_error *err) {
    print_summary(cli, a, r);
    SDC_TRY(print_changes(cli, r, err));
    if (r->record) {
        fprintf(cli->out, "record: %s\n", r->record);
        struct sdc_buf word = SDC_BUF_INIT;
        sdc_text_of_word(r->record, &word);
        if (r->altered > 0 && word.data)
            sdc_cli_say(cli, "restore with: sdclab undo %s%s\n", *r->record == '-' ? "-- " : "",
                        word.data);
        sdc__buf_release(&word);
    }
    return SDC_OK;
}

static void json_counts(struct sdc_jw *w, const struct alter_args *a, const char *file,
                        const struct sdc_alter_result *r) {
    sdc__jw_kstr(w, "schema", "sdclab.alter/1");
    sdc__jw_kstr(w, "source", file);
    sdc__jw_kstr(w, "file", a->output ? a->output : file);
    sdc__jw_kstr(w, "record", r->record);
    sdc__jw_kbool(w, "dry_run", a->dry_run);
    sdc__jw_kbool(w, "synced", !a->no_sync && !a->dry_run);
    sdc__jw_ku64(w, "support", r->support_sites);
    sdc__jw_ku64(w, "planned", r->planned);
    sdc__jw_ku64(w, "altered", r->altered);
    sdc__jw_ku64(w, "altered_bits", r->altered_bits);
    sdc__jw_ku64(w, "unchanged", r->unchanged);
}

/* The changes are the lines of the record. */
static enum sdc_status print_json(struct sdc_cli *cli, const struct alter_args *a,
                                  const struct sdc_alter_result *r, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    enum sdc_status st = SDC_OK;
    sdc__jw_obj(&w);
    json_counts(&w, a, cli->operands.items[0], r);
    sdc__jw_key(&w, "changes");
    sdc__buf_putc(&text, '[');
    for (size_t i = 0; st == SDC_OK && i < r->n_changes; i++) {
        char *line = NULL;
        st = sdc_record_change_line(&r->changes[i], &line, err);
        if (st == SDC_OK) {
            sdc__buf_puts(&text, i ? "," : "");
            sdc__buf_append(&text, line, strcspn(line, "\n"));
        }
        sdc_text_free(line);
    }
    sdc__buf_puts(&text, "]}\n");
    if (st == SDC_OK && text.failed)
        st = SDC_NOMEM(err, "the result");
    if (st == SDC_OK)
        fputs(text.data, cli->out);
    sdc__buf_release(&text);
    return st;
}

static enum sdc_status check_args(const struct alter_args *a, struct sdc_error *err) {
    if (a->output && !a->output[0])
        return SDC_ERR(err, SDC_USAGE, "--output: found '', expected a path");
    if (a->output && a->in_place)
        return SDC_ERR(err, SDC_USAGE, "--output and --in-place exclude each other");
    if (!a->output && !a->in_place && !a->dry_run)
        return SDC_ERR(err, SDC_USAGE,
                       "nothing says where the altered file goes, expected "
                       "-o FILE or --in-place");
    if (a->force && !a->output)
        return SDC_ERR(err, SDC_USAGE, "--force replaces an existing output, expected -o FILE");
    if (a->record && a->no_record)
        return SDC_ERR(err, SDC_USAGE, "--record and --no-record exclude each other");
    return SDC_OK;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct alter_args *a = args;
    struct sdc_alter_options options = {.output = a->output,
                                        .replace = a->force,
                                        .record_path = a->record,
                                        .no_record = a->no_record,
                                        .no_sync = a->no_sync,
                                        .whole_digest = a->digest,
                                        .dry_run = a->dry_run,
                                        .seed = a->seed};
    struct sdc_alter_result r = {0};
    struct sdc_cli_ckpt open = {0};
    struct sdc_choice choice;
    struct sdc_error err;
    sdc_choice_init(&choice);
    enum sdc_status st;
    SDC_TRY_OUT(st, check_args(a, &err));
    SDC_TRY_OUT(st, sdc_cli_choice(&a->words, &choice, &err));
    SDC_TRY_OUT(st, sdc_cli_ckpt_init(&a->ckpt, &open, &err));
    options.open = &open.options;
    SDC_TRY_OUT(st, sdc_alter(cli->operands.items[0], &choice, &options, &r, &err));
    if (a->no_record && !a->dry_run && r.altered > 0)
        sdc_cli_say(cli, "no record was written: this alteration cannot be undone\n");
    st = a->json ? print_json(cli, a, &r, &err) : print_text(cli, a, &r, &err);
out:
    sdc_alter_result_release(&r);
    sdc_choice_release(&choice);
    sdc_cli_ckpt_release(&open);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPT_OUTPUT(struct alter_args, output, "FILE", "write the altered copy here"),
    {SDC_OPT_FLAG, "in-place", 0, offsetof(struct alter_args, in_place), NULL, NULL,
     "alter the file itself", 0, 0, NULL},
    {SDC_OPT_FLAG, "force", 'f', offsetof(struct alter_args, force), NULL, NULL,
     "replace an existing output", 0, 0, NULL},
    SDC_OPTS_FAULTS(struct alter_args, words),
    SDC_OPTS_SUPPORT(struct alter_args, words),
    SDC_OPT_SEED(struct alter_args, seed),
    {SDC_OPT_STR, "record", 0, offsetof(struct alter_args, record), "FILE", NULL,
     "write the record here, not to ALTERED.sdc.jsonl", 0, 0, NULL},
    {SDC_OPT_FLAG, "no-record", 0, offsetof(struct alter_args, no_record), NULL, NULL,
     "write no record: nothing can be undone then", 0, 0, NULL},
    {SDC_OPT_FLAG, "no-sync", 0, offsetof(struct alter_args, no_sync), NULL, NULL,
     "do not wait for the disk: faster, and unsafe if the power fails", 0, 0, NULL},
    {SDC_OPT_FLAG, "digest", 0, offsetof(struct alter_args, digest), NULL, NULL,
     "put the digest of the whole file into the record (reads all of it)", 0, 0, NULL},
    SDC_OPTS_CKPT(struct alter_args, ckpt),
    SDC_OPT_DRY_RUN(struct alter_args, dry_run),
    SDC_OPT_JSON(struct alter_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_alter = {
    .name = "alter",
    .group = "Checkpoints",
    .summary = "flip bits or set values in a checkpoint, with a record of what was changed",
    .operands = "FILE",
    .details =
        "Draws sites from the support (all tensors that the filters let through and that can be\n"
        "altered, all bits that --bits names), alters them in a copy (-o) or in the file itself\n"
        "(--in-place), and writes what it did to a record beside the altered file before it is\n"
        "touched. 'sdclab undo' restores from it. The same seed draws the same sites. Bits count\n"
        "from the least significant, lsb:0, or from the sign of a float, msb:0. Nothing but the\n"
        "bytes of the sites is ever changed.",
    .examples = "  sdclab alter step300.h5 -o flipped.h5 --flips 10 --part model --seed 1\n"
                "  sdclab alter step300.h5 --in-place --at 'model/conv1.weight[0,0,2,2]@lsb:30'\n"
                "  sdclab alter model.safetensors -o nan.safetensors --exhaustive --op value=nan\n"
                "  sdclab alter step300.h5 --dry-run --bits top-exponent --tensors '*fc*'",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct alter_args),
    .run = run,
};
