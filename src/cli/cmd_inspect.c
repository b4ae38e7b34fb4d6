/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "cli/text_table.h"
#include "sdc/ckpt.h"

struct inspect_args {
    bool json;
    struct sdc_cli_ckpt_args ckpt;
};

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
    sdc_text_cell(table, "%s", t->dtype_known ? sdc_dtype_name(t->dtype) : t->dtype_text);
    sdc_text_cell(table, "%s", shape->data ? shape->data : "?");
    sdc_text_cell(table, "%s", sdc_part_name(t->part));
    sdc_text_cell(table, "%s", sdc_role_name(t->role));
    sdc_text_count(table, sdc_ckpt_stored_size(ckpt, i));
    sdc_text_cell(table, "%s", sdc_ckpt_storage(ckpt, i));
    sdc_text_cell(table, "%s%s", t->locked ? "no: " : "yes", t->locked ? t->locked : "");
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

static enum sdc_status print_text(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                  struct sdc_error *err) {
    struct totals all = {0};
    char tensors[SDC_TEXT_COUNT], count[SDC_TEXT_COUNT], bytes[SDC_TEXT_COUNT];
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
        add(&all, ckpt, i);
    fprintf(cli->out, "%s: %s, %s, %s tensor%s, %s element%s\n", sdc_ckpt_path(ckpt),
            sdc_ckpt_format(ckpt), sdc_text_of_bytes(sdc_ckpt_file_size(ckpt), bytes),
            sdc_text_of_count(all.tensors, tensors), sdc_text_plural(all.tensors),
            sdc_text_of_count(all.elements, count), sdc_text_plural(all.elements));
    if (all.tensors == 0)
        return SDC_OK;
    SDC_TRY(print_table(cli, ckpt, err));
    SDC_TRY(print_aliases(cli, ckpt, err));
    fputc('\n', cli->out);
    return print_totals(cli, ckpt, err);
}

static void json_tensor(struct sdc_jw *w, const struct sdc_ckpt *ckpt, size_t i) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
    size_t n;
    const char *const *aliases = sdc_ckpt_aliases(ckpt, i, &n);
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "name", t->name);
    sdc__jw_kstr(w, "type", t->dtype_known ? sdc_dtype_name(t->dtype) : t->dtype_text);
    sdc__jw_key(w, "shape");
    sdc__jw_arr(w);
    for (unsigned d = 0; d < t->rank; d++)
        sdc__jw_u64(w, t->shape[d]);
    sdc__jw_arr_end(w);
    sdc__jw_ku64(w, "elements", t->n_elems);
    sdc__jw_kstr(w, "part", sdc_part_name(t->part));
    sdc__jw_kstr(w, "role", sdc_role_name(t->role));
    sdc__jw_ku64(w, "bytes", sdc_ckpt_stored_size(ckpt, i));
    sdc__jw_kstr(w, "storage", sdc_ckpt_storage(ckpt, i));
    sdc__jw_kbool(w, "alterable", t->locked == NULL);
    sdc__jw_kstr(w, "locked", t->locked);
    sdc__jw_key(w, "aliases");
    sdc__jw_arr(w);
    for (size_t k = 0; k < n; k++)
        sdc__jw_str(w, aliases[k]);
    sdc__jw_arr_end(w);
    sdc__jw_obj_end(w);
}

static void json_file(struct sdc_jw *w, const struct sdc_ckpt *ckpt) {
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "file", sdc_ckpt_path(ckpt));
    sdc__jw_kstr(w, "format", sdc_ckpt_format(ckpt));
    sdc__jw_ku64(w, "size", sdc_ckpt_file_size(ckpt));
    sdc__jw_key(w, "tensors");
    sdc__jw_arr(w);
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
        json_tensor(w, ckpt, i);
    sdc__jw_arr_end(w);
    sdc__jw_obj_end(w);
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
            json_file(&w, ckpt);
        } else if (st == SDC_OK) {
            if (i > 0)
                fputc('\n', cli->out);
            st = print_text(cli, ckpt, &err);
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
    SDC_OPTS_CKPT(struct inspect_args, ckpt),
    SDC_OPT_JSON(struct inspect_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_inspect = {
    .name = "inspect",
    .group = "Checkpoints",
    .summary = "list the tensors of checkpoint files and how each can be altered",
    .operands = "FILE...",
    .details = "Formats are recognised by content. Part and role come from the tensors' names.",
    .examples = "  sdclab inspect model.safetensors\n"
                "  sdclab inspect --json step300.h5 | jq '.files[].tensors[].name'",
    .min_operands = 1,
    .max_operands = SIZE_MAX,
    .options = options,
    .args_size = sizeof(struct inspect_args),
    .run = run,
};
