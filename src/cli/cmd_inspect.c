/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "cli/audit_text.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/ckpt.h"

struct inspect_args {
    bool json, checksums;
    struct sdc_cli_ckpt_args ckpt;
};

#define SUM_KINDS (SDC_SUM_LOOKUP3 + 1)

/* How many stored checksums of each kind there are, and how many were left out by the writer. */
struct sum_counts {
    uint64_t known[SUM_KINDS], unknown;
};

static enum sdc_status count_sums(struct sdc_ckpt *ckpt, struct sum_counts *c,
                                  struct sdc_error *err) {
    *c = (struct sum_counts){0};
    SDC_TRY(sdc_ckpt_find_sums(ckpt, err));
    for (size_t i = 0; i < sdc_ckpt_sums(ckpt); i++) {
        const struct sdc_ckpt_sum *sum = sdc_ckpt_sum(ckpt, i);
        if (sum->unknown)
            c->unknown++;
        else
            c->known[sum->kind]++;
    }
    return SDC_OK;
}

static const char *const note_kinds[] = {
    [SDC_NOTE_INFO] = "note", [SDC_NOTE_WARNING] = "warning", [SDC_NOTE_SECURITY] = "security"};

struct totals {
    uint64_t tensors, elements, bytes, locked;
};

static void add(struct totals *sum, const struct sdc_ckpt *ckpt, size_t i) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
    sum->tensors++;
    sum->elements += t->n_elems;
    sum->bytes += sdc_ckpt_stored_size(ckpt, i);
    sum->locked += t->locked != NULL;
}

/* "16x6x5x5", "scalar" */
static void shape_text(const struct sdc_tensor_desc *t, struct sdc_buf *text) {
    sdc__buf_clear(text);
    if (t->rank == 0)
        sdc__buf_puts(text, "scalar");
    for (unsigned d = 0; d < t->rank; d++)
        sdc__buf_printf(text, "%s%llu", d ? "x" : "", (unsigned long long)t->shape[d]);
}

static void tensor_row(struct sdc_text_table *table, const struct sdc_ckpt *ckpt, size_t i,
                       struct sdc_buf *shape) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
    shape_text(t, shape);
    sdc_text_cell(table, "%s", t->name);
    sdc_text_cell(table, "%s", sdc_text_of_type(t));
    sdc_text_cell(table, "%s", shape->data ? shape->data : "?");
    sdc_text_cell(table, "%s", sdc_part_name(t->part));
    sdc_text_cell(table, "%s", sdc_role_name(t->role));
    sdc_text_count(table, sdc_ckpt_stored_size(ckpt, i));
    sdc_text_cell(table, "%s", sdc_ckpt_storage(ckpt, i));
    const char *recoded = sdc_ckpt_recoded(ckpt, i);
    if (t->locked)
        sdc_text_cell(table, "no: %s", t->locked);
    else
        sdc_text_cell(table, "%s%s%s%s", recoded ? "on a copy: " : "yes", recoded ? recoded : "",
                      t->shared ? ", by name: " : "", t->shared ? t->shared : "");
}

static enum sdc_status print_table(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                   struct sdc_error *err) {
    static const char *const heads[] = {"tensor", "type",  "shape",   "part",
                                        "role",   "bytes", "storage", "alterable"};
    struct sdc_text_table table = {.columns = "lllllrll"};
    struct sdc_buf shape = SDC_BUF_INIT;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
        tensor_row(&table, ckpt, i, &shape);
    sdc__buf_release(&shape);
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_aliases(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                     struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "l"};
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        size_t n;
        const char *const *aliases = sdc_ckpt_aliases(ckpt, i, &n);
        for (size_t k = 0; k < n; k++)
            sdc_text_cell(&table, "%s is another name of %s", aliases[k],
                          sdc_ckpt_tensor(ckpt, i)->name);
    }
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_files(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                   struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lr"};
    char bytes[SDC_TEXT_COUNT];
    if (!sdc_ckpt_is_set(ckpt))
        return SDC_OK;
    fprintf(cli->out, "\n%zu file%s\n", sdc_ckpt_files(ckpt),
            sdc_text_plural(sdc_ckpt_files(ckpt)));
    for (size_t i = 0; i < sdc_ckpt_files(ckpt); i++) {
        sdc_text_cell(&table, "%s", sdc_ckpt_file(ckpt, i).name);
        sdc_text_cell(&table, "%s", sdc_text_of_bytes(sdc_ckpt_file(ckpt, i).size, bytes));
    }
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_notes(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                   struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "ll"};
    for (size_t i = 0; i < sdc_ckpt_notes(ckpt); i++) {
        struct sdc_ckpt_note note = sdc_ckpt_note(ckpt, i);
        sdc_text_cell(&table, "%s", note_kinds[note.kind]);
        sdc_text_cell(&table, "%s", note.text);
    }
    if (table.n_cells > 0)
        fputc('\n', cli->out);
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_sums(struct sdc_cli *cli, struct sdc_ckpt *ckpt,
                                  struct sdc_error *err) {
    struct sum_counts c;
    char count[SDC_TEXT_COUNT];
    const char *comma = " ";
    SDC_TRY(count_sums(ckpt, &c, err));
    fprintf(cli->out, "\nstored checksums:");
    for (int kind = 0; kind < SUM_KINDS; kind++) {
        if (c.known[kind] == 0)
            continue;
        fprintf(cli->out, "%s%s %s", comma, sdc_text_of_count(c.known[kind], count),
                sdc_sum_kind_name((enum sdc_sum_kind)kind));
        comma = ", ";
    }
    if (c.unknown > 0)
        fprintf(cli->out, "%s%s left out by the writer", comma,
                sdc_text_of_count(c.unknown, count));
    else if (*comma == ' ')
        fprintf(cli->out, " none");
    fputc('\n', cli->out);
    return SDC_OK;
}

static enum sdc_status print_totals(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                    struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lrlrlrl"};
    struct totals parts[SDC_PART_COUNT] = {0};
    char bytes[SDC_TEXT_COUNT];
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
        add(&parts[sdc_ckpt_tensor(ckpt, i)->part], ckpt, i);
    for (int p = 0; p < SDC_PART_COUNT; p++) {
        if (parts[p].tensors == 0)
            continue;
        sdc_text_cell(&table, "%s",
                      p == SDC_PART_NONE ? "no part" : sdc_part_name((enum sdc_part)p));
        sdc_text_count(&table, parts[p].tensors);
        sdc_text_cell(&table, "tensor%s", sdc_text_plural(parts[p].tensors));
        sdc_text_count(&table, parts[p].elements);
        sdc_text_cell(&table, "element%s", sdc_text_plural(parts[p].elements));
        sdc_text_cell(&table, "%s", sdc_text_of_bytes(parts[p].bytes, bytes));
        if (parts[p].locked)
            sdc_text_cell(&table, "%llu not alterable", (unsigned long long)parts[p].locked);
        else
            sdc_text_cell(&table, "%s", "");
    }
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_text(struct sdc_cli *cli, struct sdc_ckpt *ckpt, bool checksums,
                                  struct sdc_error *err) {
    struct totals all = {0};
    char tensors[SDC_TEXT_COUNT], count[SDC_TEXT_COUNT], bytes[SDC_TEXT_COUNT];
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
        add(&all, ckpt, i);
    fprintf(cli->out, "%s: %s, %s, %s tensor%s, %s element%s\n", sdc_ckpt_path(ckpt),
            sdc_ckpt_format(ckpt), sdc_text_of_bytes(sdc_ckpt_file_size(ckpt), bytes),
            sdc_text_of_count(all.tensors, tensors), sdc_text_plural(all.tensors),
            sdc_text_of_count(all.elements, count), sdc_text_plural(all.elements));
    if (all.tensors > 0) {
        SDC_TRY(print_table(cli, ckpt, err));
        SDC_TRY(print_aliases(cli, ckpt, err));
        fputc('\n', cli->out);
        SDC_TRY(print_totals(cli, ckpt, err));
    }
    SDC_TRY(print_files(cli, ckpt, err));
    SDC_TRY(print_notes(cli, ckpt, err));
    return checksums ? print_sums(cli, ckpt, err) : SDC_OK;
}

static void json_tensor(struct sdc_jw *w, const struct sdc_ckpt *ckpt, size_t i) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
    size_t n;
    const char *const *aliases = sdc_ckpt_aliases(ckpt, i, &n);
    sdc__jw_obj(w);
    sdc_json_desc(w, t);
    sdc__jw_ku64(w, "bytes", sdc_ckpt_stored_size(ckpt, i));
    sdc__jw_kstr(w, "storage", sdc_ckpt_storage(ckpt, i));
    sdc__jw_kbool(w, "alterable", t->locked == NULL);
    sdc__jw_kstr(w, "locked", t->locked);
    sdc__jw_kstr(w, "recoded", sdc_ckpt_recoded(ckpt, i));
    sdc__jw_kstr(w, "shared", t->shared);
    sdc__jw_key(w, "aliases");
    sdc__jw_arr(w);
    for (size_t k = 0; k < n; k++)
        sdc__jw_str(w, aliases[k]);
    sdc__jw_arr_end(w);
    sdc__jw_obj_end(w);
}

static void json_sums(struct sdc_jw *w, const struct sum_counts *c) {
    sdc__jw_key(w, "checksums");
    sdc__jw_obj(w);
    for (int kind = 0; kind < SUM_KINDS; kind++)
        if (c->known[kind] > 0)
            sdc__jw_ku64(w, sdc_sum_kind_name((enum sdc_sum_kind)kind), c->known[kind]);
    if (c->unknown > 0)
        sdc__jw_ku64(w, "left out", c->unknown);
    sdc__jw_obj_end(w);
}

static enum sdc_status json_file(struct sdc_jw *w, struct sdc_ckpt *ckpt, bool checksums,
                                 struct sdc_error *err) {
    struct sum_counts sums;
    if (checksums)
        SDC_TRY(count_sums(ckpt, &sums, err));
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "file", sdc_ckpt_path(ckpt));
    sdc__jw_kstr(w, "format", sdc_ckpt_format(ckpt));
    sdc__jw_ku64(w, "size", sdc_ckpt_file_size(ckpt));
    sdc__jw_key(w, "members");
    sdc__jw_arr(w);
    for (size_t i = 0; sdc_ckpt_is_set(ckpt) && i < sdc_ckpt_files(ckpt); i++) {
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "name", sdc_ckpt_file(ckpt, i).name);
        sdc__jw_ku64(w, "size", sdc_ckpt_file(ckpt, i).size);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "notes");
    sdc__jw_arr(w);
    for (size_t i = 0; i < sdc_ckpt_notes(ckpt); i++) {
        struct sdc_ckpt_note note = sdc_ckpt_note(ckpt, i);
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "kind", note_kinds[note.kind]);
        sdc__jw_kstr(w, "text", note.text);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
    if (checksums)
        json_sums(w, &sums);
    sdc__jw_key(w, "tensors");
    sdc__jw_arr(w);
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
        json_tensor(w, ckpt, i);
    sdc__jw_arr_end(w);
    sdc__jw_obj_end(w);
    return SDC_OK;
}

/* One file after the other, also after one that is refused; the first failure gives the exit code.
 */
static int run(struct sdc_cli *cli, const void *args) {
    const struct inspect_args *a = args;
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    struct sdc_cli_ckpt open;
    struct sdc_error err;
    int code = SDC_EXIT_DONE;
    if (sdc_cli_ckpt_init(&a->ckpt, &open, &err) != SDC_OK) {
        sdc_cli_ckpt_release(&open);
        return sdc_cli_fail(cli, &err);
    }
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.inspect/1");
    sdc__jw_key(&w, "files");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < cli->operands.n; i++) {
        struct sdc_ckpt *ckpt = NULL;
        enum sdc_status st = sdc_ckpt_open(cli->operands.items[i], &open.options, &ckpt, &err);
        if (st == SDC_OK && a->json) {
            st = json_file(&w, ckpt, a->checksums, &err);
        } else if (st == SDC_OK) {
            if (i > 0)
                fputc('\n', cli->out);
            st = print_text(cli, ckpt, a->checksums, &err);
        }
        sdc_ckpt_close(ckpt);
        if (st != SDC_OK) {
            int failed = sdc_cli_fail(cli, &err);
            code = code == SDC_EXIT_DONE ? failed : code;
        }
    }
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    if (a->json && text.failed) {
        SDC_NOMEM(&err, "the result");
        code = sdc_cli_fail(cli, &err);
    } else if (a->json) {
        fprintf(cli->out, "%s\n", text.data);
    }
    sdc__buf_release(&text);
    sdc_cli_ckpt_release(&open);
    return code;
}

static const struct sdc_opt options[] = {
    {SDC_OPT_FLAG, "checksums", 0, offsetof(struct inspect_args, checksums), NULL, NULL,
     "count the stored checksums too (verify recomputes them)", 0, 0, NULL},
    SDC_OPTS_CKPT(struct inspect_args, ckpt),
    SDC_OPT_JSON(struct inspect_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_inspect = {
    .name = "inspect",
    .group = "Checkpoints",
    .summary = "list the tensors of checkpoint files and how each can be altered",
    .operands = "FILE...",
    .details =
        "Formats are recognised by content; a folder, an index or a prefix stands for its set of\n"
        "files. Part and role come from the tensors' names. 'on a copy' can be altered by\n"
        "writing its compressed storage anew; 'by name' shares its bytes with another tensor\n"
        "and is altered only by --at.",
    .examples = "  sdclab inspect model.safetensors\n"
                "  sdclab inspect --json step300.h5 | jq '.files[].tensors[].name'",
    .min_operands = 1,
    .max_operands = SIZE_MAX,
    .options = options,
    .args_size = sizeof(struct inspect_args),
    .run = run,
};
