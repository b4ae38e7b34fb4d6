/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "cli/audit_text.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/audit.h"

struct scan_args {
    bool json, check;
    uint64_t threads, sites;
    struct sdc_opt_list tensors;
    struct sdc_cli_ckpt_args ckpt;
};

/* ---- text ---- */

static void tensor_row(struct sdc_text_table *table, const struct sdc_ckpt *ckpt,
                       const struct sdc_scan_tensor *t) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(ckpt, t->tensor);
    sdc_text_cell(table, "%s", d->name);
    sdc_text_cell(table, "%s", sdc_text_of_type(d));
    sdc_text_count(table, t->n_elems);
    if (t->unreadable) {
        for (int i = 0; i < 10; i++)
            sdc_text_cell(table, "%s", "");
        sdc_text_cell(table, "not looked at: %s", t->unreadable);
        return;
    }
    sdc_text_count(table, t->n_nan);
    sdc_text_count(table, t->n_inf);
    sdc_text_count(table, t->n_zero);
    sdc_text_count(table, t->n_subnormal);
    if (t->n_finite > 0) {
        sdc_text_number(table, sdc_num_to_double(d->dtype, t->min));
        sdc_text_number(table, sdc_num_to_double(d->dtype, t->max));
        sdc_text_number(table, t->mean);
        sdc_text_number(table, t->std);
        sdc_text_number(table, t->l2);
    } else {
        for (int i = 0; i < 5; i++)
            sdc_text_cell(table, "%s", "");
    }
    sdc_text_count(table, t->n_suspicious);
    sdc_text_cell(table, "%s", "");
}

static enum sdc_status print_tensors(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                     const struct sdc_scan *scan, struct sdc_error *err) {
    static const char *const heads[] = {"tensor", "type", "elements",   "NaN", "Inf",
                                        "zero",   "subn", "min",        "max", "mean",
                                        "std",    "L2",   "suspicious", ""};
    struct sdc_text_table table = {.columns = "llrrrrrrrrrrrl"};
    if (scan->n == 0)
        return SDC_OK;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < scan->n; i++)
        tensor_row(&table, ckpt, &scan->tensors[i]);
    return sdc_text_table_print(&table, cli->out, err);
}

static void site_row(struct sdc_text_table *table, const struct sdc_tensor_desc *d,
                     const struct sdc_scan_site *s, struct sdc_buf *text) {
    char index[1024], value[40], hex[20];
    sdc_tensor_index_text(d, s->elem, index, sizeof index);
    sdc_num_text(d->dtype, s->raw, value, sizeof value);
    snprintf(hex, sizeof hex, "%0*llx", (int)sdc_dtype_bytes(d->dtype) * 2,
             (unsigned long long)s->raw);
    sdc_text_cell(table, "%s%s", d->name, index);
    sdc_text_cell(table, "%s", value);
    sdc_text_cell(table, "0x%s", hex);
    sdc__buf_clear(text);
    unsigned n = (unsigned)__builtin_popcountll(s->bits);
    if (n == 0) {
        sdc__buf_puts(text, s->suspicious ? "no single bit makes it ordinary" : "");
    } else if (n <= 3) {
        for (uint64_t bits = s->bits; bits; bits &= bits - 1) {
            unsigned bit = (unsigned)__builtin_ctzll(bits);
            sdc_num_text(d->dtype, sdc_num_flip(d->dtype, s->raw, bit), value, sizeof value);
            sdc__buf_printf(text, "%s%s with lsb:%u flipped", text->len ? ", " : "", value, bit);
        }
    } else {
        struct sdc_buf bits = SDC_BUF_INIT;
        sdc_text_of_bits(s->bits, &bits);
        sdc__buf_printf(text, "ordinary with one of %s flipped", bits.data ? bits.data : "");
        sdc__buf_release(&bits);
    }
    sdc_text_cell(table, "%s", text->data ? text->data : "");
}

static enum sdc_status print_suspicious(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                        const struct sdc_scan *scan, struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lrll"};
    struct sdc_buf text = SDC_BUF_INIT;
    uint64_t shown = 0;
    char count[SDC_TEXT_COUNT];
    for (size_t i = 0; i < scan->n; i++) {
        const struct sdc_scan_tensor *t = &scan->tensors[i];
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(ckpt, t->tensor);
        for (size_t k = 0; k < t->n_nonfinite; k++, shown++)
            site_row(&table, d, &t->nonfinite[k], &text);
        for (size_t k = 0; k < t->n_largest && t->largest[k].suspicious; k++, shown++)
            site_row(&table, d, &t->largest[k], &text);
    }
    sdc__buf_release(&text);
    if (scan->n_suspicious > 0)
        fprintf(cli->out, "\n%s element%s out of proportion\n",
                sdc_text_of_count(scan->n_suspicious, count), sdc_text_plural(scan->n_suspicious));
    SDC_TRY(sdc_text_table_print(&table, cli->out, err));
    if (shown < scan->n_suspicious)
        fprintf(cli->out, "  and %s more (--sites lists more of each tensor)\n",
                sdc_text_of_count(scan->n_suspicious - shown, count));
    return SDC_OK;
}

static enum sdc_status print_notes(struct sdc_cli *cli, const struct sdc_scan *scan,
                                   struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "ll"};
    for (size_t i = 0; i < scan->n_notes; i++) {
        sdc_text_cell(&table, "warning");
        sdc_text_cell(&table, "%s", scan->notes[i]);
    }
    if (table.n_cells > 0)
        fputc('\n', cli->out);
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                  const struct sdc_scan *scan, struct sdc_error *err) {
    char tensors[SDC_TEXT_COUNT], count[SDC_TEXT_COUNT];
    fprintf(cli->out, "%s: %s, %s tensor%s, %s element%s", sdc_ckpt_path(ckpt),
            sdc_ckpt_format(ckpt), sdc_text_of_count(scan->n, tensors), sdc_text_plural(scan->n),
            sdc_text_of_count(scan->n_elems, count), sdc_text_plural(scan->n_elems));
    fprintf(cli->out, ", %s NaN", sdc_text_of_count(scan->n_nan, count));
    fprintf(cli->out, ", %s Inf\n", sdc_text_of_count(scan->n_inf, count));
    SDC_TRY(print_tensors(cli, ckpt, scan, err));
    SDC_TRY(print_suspicious(cli, ckpt, scan, err));
    return print_notes(cli, scan, err);
}

/* ---- JSON ---- */

static void json_sites(struct sdc_jw *w, const char *key, const struct sdc_tensor_desc *d,
                       const struct sdc_scan_site *sites, size_t n) {
    sdc__jw_key(w, key);
    sdc__jw_arr(w);
    for (size_t i = 0; i < n; i++) {
        char index[1024];
        sdc_tensor_index_text(d, sites[i].elem, index, sizeof index);
        sdc__jw_obj(w);
        sdc__jw_ku64(w, "elem", sites[i].elem);
        sdc__jw_kstr(w, "index", index);
        sdc_json_raw(w, "raw", d->dtype, sites[i].raw);
        sdc__jw_kbool(w, "suspicious", sites[i].suspicious);
        sdc__jw_key(w, "ordinary_with");
        sdc__jw_arr(w);
        for (uint64_t bits = sites[i].bits; bits; bits &= bits - 1)
            sdc__jw_u64(w, (uint64_t)__builtin_ctzll(bits));
        sdc__jw_arr_end(w);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_values(struct sdc_jw *w, const struct sdc_tensor_desc *d,
                        const struct sdc_scan_tensor *t) {
    sdc__jw_ku64(w, "nan", t->n_nan);
    sdc__jw_ku64(w, "inf", t->n_inf);
    sdc__jw_ku64(w, "zero", t->n_zero);
    sdc__jw_ku64(w, "subnormal", t->n_subnormal);
    if (t->n_finite > 0) {
        sdc_json_raw(w, "min", d->dtype, t->min);
        sdc_json_raw(w, "max", d->dtype, t->max);
        sdc__jw_kf64(w, "mean", t->mean);
        sdc__jw_kf64(w, "std", t->std);
        sdc__jw_kf64(w, "l2", t->l2);
    }
    sdc__jw_key(w, "scale");
    if (t->scale.known) {
        sdc__jw_obj(w);
        sdc__jw_ki64(w, "low", t->scale.low);
        sdc__jw_ki64(w, "high", t->scale.high);
        sdc__jw_ki64(w, "limit", t->scale.limit);
        sdc__jw_obj_end(w);
    } else {
        sdc__jw_null(w);
    }
    sdc__jw_ku64(w, "suspicious", t->n_suspicious);
    json_sites(w, "largest", d, t->largest, t->n_largest);
    json_sites(w, "nonfinite", d, t->nonfinite, t->n_nonfinite);
}

static enum sdc_status print_json(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                  const struct sdc_scan *scan, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.scan/1");
    sdc__jw_kstr(&w, "file", sdc_ckpt_path(ckpt));
    sdc__jw_kstr(&w, "format", sdc_ckpt_format(ckpt));
    sdc__jw_ku64(&w, "elements", scan->n_elems);
    sdc__jw_ku64(&w, "nan", scan->n_nan);
    sdc__jw_ku64(&w, "inf", scan->n_inf);
    sdc__jw_ku64(&w, "suspicious", scan->n_suspicious);
    sdc__jw_ku64(&w, "unreadable", scan->n_unreadable);
    sdc__jw_key(&w, "notes");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < scan->n_notes; i++)
        sdc__jw_str(&w, scan->notes[i]);
    sdc__jw_arr_end(&w);
    sdc__jw_key(&w, "tensors");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < scan->n; i++) {
        const struct sdc_scan_tensor *t = &scan->tensors[i];
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(ckpt, t->tensor);
        sdc__jw_obj(&w);
        sdc_json_desc(&w, d);
        sdc__jw_kstr(&w, "unreadable", t->unreadable);
        if (!t->unreadable)
            json_values(&w, d, t);
        sdc__jw_obj_end(&w);
    }
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    return sdc_json_print(&text, cli->out, err);
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct scan_args *a = args;
    const struct sdc_scan_options options = {.globs = a->tensors.items,
                                             .n_globs = a->tensors.n,
                                             .max_sites = (size_t)a->sites,
                                             .threads = (unsigned)a->threads};
    struct sdc_cli_ckpt open = {0};
    struct sdc_ckpt *ckpt = NULL;
    struct sdc_scan scan = {0};
    struct sdc_error err;
    enum sdc_status st;
    int code = SDC_EXIT_DONE;
    SDC_TRY_OUT(st, sdc_cli_ckpt_init(&a->ckpt, &open, &err));
    SDC_TRY_OUT(st, sdc_ckpt_open(cli->operands.items[0], &open.options, &ckpt, &err));
    SDC_TRY_OUT(st, sdc_scan(ckpt, &options, &scan, &err));
    SDC_TRY_OUT(st,
                a->json ? print_json(cli, ckpt, &scan, &err) : print_text(cli, ckpt, &scan, &err));
    if (a->check && scan.n_suspicious + scan.n_unreadable > 0)
        code = SDC_EXIT_FOUND;
out:
    sdc_scan_release(&scan);
    sdc_ckpt_close(ckpt);
    sdc_cli_ckpt_release(&open);
    return st == SDC_OK ? code : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    {SDC_OPT_LIST, "tensors", 0, offsetof(struct scan_args, tensors), "GLOB", NULL,
     "look only at tensors of this name or glob (repeatable)", 0, 0, NULL},
    {SDC_OPT_U64, "sites", 0, offsetof(struct scan_args, sites), "N", "5",
     "list up to N of the largest and of the non-finite elements of each tensor", 0, 100000, NULL},
    {SDC_OPT_FLAG, "check", 0, offsetof(struct scan_args, check), NULL, NULL,
     "exit 1 if an element is out of proportion or a tensor could not be looked at", 0, 0, NULL},
    SDC_OPTS_CKPT(struct scan_args, ckpt),
    SDC_OPT_THREADS(struct scan_args, threads),
    SDC_OPT_JSON(struct scan_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_scan = {
    .name = "scan",
    .group = "Checkpoints",
    .summary = "statistics of every tensor, and the elements that are out of proportion",
    .operands = "FILE",
    .details =
        "Reads every element once. min, max, mean, std and L2 are of the finite values. Out of\n"
        "proportion are NaN, infinities, and values whose order of magnitude (floor of log2 of a\n"
        "float, number of bits of an integer) is far above that of the rest of the tensor: above\n"
        "H + max(8, 2 (H - L)), where L and H are the tenth and the ninetieth percentile over its\n"
        "values but zero. For each of them the bits are named of which one alone, flipped, would\n"
        "make the value ordinary again. A value that became smaller cannot be told from others.",
    .examples = "  sdclab scan model.safetensors\n"
                "  sdclab scan --check --tensors '*weight' step300.h5",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct scan_args),
    .run = run,
};
