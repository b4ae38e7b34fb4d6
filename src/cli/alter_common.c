/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/alter_common.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "cli/text_table.h"

/* Rows of the table without --verbose; the record holds all. */
#define MAX_ROWS 20

/* "lsb:30 msb:1 exponent", "lsb:0,lsb:2-5", "set1 lsb:30 msb:1 exponent", or "value" */
static void bits_text(const struct sdc_record_change *c, struct sdc_buf *text) {
    unsigned bits = sdc_dtype_bits(c->dtype), bit = (unsigned)__builtin_ctzll(c->bits | 1ull << 63);
    struct sdc_buf list = SDC_BUF_INIT;
    sdc_text_of_bits(c->bits, &list);
    sdc__buf_clear(text);
    if (c->op != SDC_OP_FLIP)
        sdc__buf_printf(text, "%s%s", sdc_op_name(c->op), c->bits ? " " : "");
    if (__builtin_popcountll(c->bits) == 1)
        sdc__buf_printf(text, "lsb:%u msb:%u %s", bit, bits - 1 - bit,
                        sdc_num_field_name(sdc_num_field(c->dtype, bit)));
    else if (c->bits)
        sdc__buf_puts(text, list.data ? list.data : "?");
    sdc__buf_release(&list);
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
    if (c->recoded)
        sdc_text_cell(table, "compressed");
    else
        sdc_text_cell(table, "byte %llu%s%s", (unsigned long long)c->offset, c->file ? " of " : "",
                      c->file ? c->file : "");
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
    if (shown < r->elements)
        fprintf(cli->out, "  and %s more%s\n", sdc_text_of_count(r->elements - shown, count),
                r->record ? ", all in the record" : ", shown with --verbose");
    return SDC_OK;
}

/* "out.h5: 3 altered (3 bits); the support holds 1,974,592 sites" */
static void print_summary(struct sdc_cli *cli, const struct sdc_cli_alter_args *a, const char *file,
                          const struct sdc_alter_result *r) {
    char count[SDC_TEXT_COUNT], bits[SDC_TEXT_COUNT];
    fprintf(cli->out, "%s: ", a->output ? a->output : file);
    if (a->dry_run)
        fprintf(cli->out, "%s would be altered",
                sdc_text_of_count(r->elements - r->unchanged, count));
    else
        fprintf(cli->out, "%s altered (%s bit%s)", sdc_text_of_count(r->altered, count),
                sdc_text_of_count(r->altered_bits, bits), sdc_text_plural(r->altered_bits));
    if (r->unchanged > 0)
        fprintf(cli->out, ", %s held the value already", sdc_text_of_count(r->unchanged, count));
    if (r->attempts > 0)
        fprintf(cli->out, ", %s of %s attempts took place", sdc_text_of_count(r->happened, bits),
                sdc_text_of_count(r->attempts, count));
    if (r->support_sites == 0)
        fprintf(cli->out, "; the support is empty");
    else
        fprintf(cli->out, "; the support holds %s site%s",
                sdc_text_of_count(r->support_sites, count), sdc_text_plural(r->support_sites));
    if (r->removed_sites > 0)
        fprintf(cli->out, ", without %s whose result is left out",
                sdc_text_of_count(r->removed_sites, count));
    fputc('\n', cli->out);
}

/* What became of checksums and of compressed storage; nothing where there are none. */
static void print_storage(struct sdc_cli *cli, const struct sdc_alter_result *r) {
    char count[SDC_TEXT_COUNT];
    if (r->mended > 0)
        fprintf(cli->out, "%s stored checksum%s mended\n", sdc_text_of_count(r->mended, count),
                sdc_text_plural(r->mended));
    if (r->unchecked_sums > 0)
        fprintf(cli->out,
                "%s checksum%s too many bytes to look whether right before: one that was wrong "
                "stays wrong by the same difference\n",
                sdc_text_of_count(r->unchecked_sums, count),
                r->unchecked_sums == 1 ? " covers" : "s cover");
    if (r->moved_sums > 0)
        fprintf(cli->out, "%s checksum%s wrong before and stay%s wrong by the same difference\n",
                sdc_text_of_count(r->moved_sums, count), r->moved_sums == 1 ? " was" : "s were",
                r->moved_sums == 1 ? "s" : "");
    if (r->stale_sums > 0)
        fprintf(cli->out, "%s checksum%s left stale: %s\n", sdc_text_of_count(r->stale_sums, count),
                sdc_text_plural(r->stale_sums), r->stale_readers);
    if (r->unknown_sums > 0)
        fprintf(cli->out, "%s checksum%s not mended: the file's writer left %s out (stored as 0)\n",
                sdc_text_of_count(r->unknown_sums, count), sdc_text_plural(r->unknown_sums),
                r->unknown_sums == 1 ? "it" : "them");
    if (r->wrong_sums > r->moved_sums)
        fprintf(cli->out, "%s checksum%s wrong before and left so\n",
                sdc_text_of_count(r->wrong_sums - r->moved_sums, count),
                r->wrong_sums - r->moved_sums == 1 ? " was" : "s were");
    if (r->recoded > 0)
        fprintf(cli->out,
                "%s in compressed storage, which was written anew: undo restores the values, not "
                "the bytes\n",
                sdc_text_of_count(r->recoded, count));
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct sdc_cli_alter_args *a,
                                  const char *file, const struct sdc_alter_result *r,
                                  struct sdc_error *err) {
    print_summary(cli, a, file, r);
    SDC_TRY(print_changes(cli, r, err));
    if (!a->dry_run)
        print_storage(cli, r);
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

static void json_counts(struct sdc_jw *w, const struct sdc_cli_alter_args *a, const char *file,
                        const struct sdc_alter_result *r) {
    sdc__jw_kstr(w, "schema", "sdclab.alter/1");
    sdc__jw_kstr(w, "source", file);
    sdc__jw_kstr(w, "file", a->output ? a->output : file);
    sdc__jw_kstr(w, "record", r->record);
    sdc__jw_kbool(w, "dry_run", a->dry_run);
    sdc__jw_kbool(w, "synced", !a->no_sync && !a->dry_run);
    sdc__jw_ku64(w, "support", r->support_sites);
    sdc__jw_ku64(w, "removed", r->removed_sites);
    sdc__jw_ku64(w, "attempts", r->attempts);
    sdc__jw_ku64(w, "happened", r->happened);
    sdc__jw_ku64(w, "planned", r->planned);
    sdc__jw_ku64(w, "altered", r->altered);
    sdc__jw_ku64(w, "altered_bits", r->altered_bits);
    sdc__jw_ku64(w, "unchanged", r->unchanged);
    sdc__jw_ku64(w, "mended", r->mended);
    sdc__jw_ku64(w, "stale_sums", r->stale_sums);
    sdc__jw_ku64(w, "unknown_sums", r->unknown_sums);
    sdc__jw_ku64(w, "wrong_sums", r->wrong_sums);
    sdc__jw_ku64(w, "moved_sums", r->moved_sums);
    sdc__jw_ku64(w, "unchecked_sums", r->unchecked_sums);
    sdc__jw_ku64(w, "recoded", r->recoded);
}

/* The changes are the lines of the record. */
static enum sdc_status print_json(struct sdc_cli *cli, const struct sdc_cli_alter_args *a,
                                  const char *file, const struct sdc_alter_result *r,
                                  struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    enum sdc_status st = SDC_OK;
    sdc__jw_obj(&w);
    json_counts(&w, a, file, r);
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

enum sdc_status sdc_cli_alter_print(struct sdc_cli *cli, const struct sdc_cli_alter_args *a,
                                    const char *file, const struct sdc_alter_result *r,
                                    struct sdc_error *err) {
    if (a->no_record && !a->dry_run && r->altered > 0)
        sdc_cli_say(cli, "no record was written: this alteration cannot be undone\n");
    if (r->mappers > 0)
        sdc_cli_say(cli, "warning: %s is mapped by process %llu%s, which %s the change at once\n",
                    file, (unsigned long long)r->mapper, r->mappers > 1 ? " and others" : "",
                    a->dry_run ? "would see" : "sees");
    return a->json ? print_json(cli, a, file, r, err) : print_text(cli, a, file, r, err);
}

/* ---- options ---- */

static enum sdc_status check_args(const struct sdc_cli_alter_args *a, struct sdc_error *err) {
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
    if (a->keep_original && !a->in_place)
        return SDC_ERR(err, SDC_USAGE, "--keep-original keeps what --in-place replaces");
    if (a->record && a->no_record)
        return SDC_ERR(err, SDC_USAGE, "--record and --no-record exclude each other");
    return SDC_OK;
}

/* What is said here is all that can be said from a handler. */
static void on_sigbus(int number) {
    static const char text[] =
        "sdclab: a file could not be read while it was altered: another program made it shorter, "
        "or "
        "the disk failed; if there is a record beside it, 'sdclab undo' restores it\n";
    (void)number;
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    _exit(SDC_EXIT_ENVIRONMENT);
}

static void explain_sigbus(void) {
    const struct sigaction action = {.sa_handler = on_sigbus, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGBUS, &action, NULL);
}

enum sdc_status sdc_cli_alter_init(const struct sdc_cli *cli, const struct sdc_cli_alter_args *a,
                                   struct sdc_alter_options *options, struct sdc_cli_ckpt *open,
                                   struct sdc_error *err) {
    *open = (struct sdc_cli_ckpt){0};
    SDC_TRY(check_args(a, err));
    SDC_TRY(sdc_cli_ckpt_init(&a->ckpt, open, err));
    *options = (struct sdc_alter_options){.output = a->output,
                                          .replace = a->force,
                                          .record_path = a->record,
                                          .no_record = a->no_record,
                                          .no_sync = a->no_sync,
                                          .keep_original = a->keep_original,
                                          .whole_digest = a->digest,
                                          .dry_run = a->dry_run,
                                          .open = &open->options,
                                          .threads = (unsigned)a->threads};
    if (!cli->verbose && !a->json)
        options->max_changes = MAX_ROWS;
    explain_sigbus();
    options->may_map = true;
    return SDC_OK;
}
