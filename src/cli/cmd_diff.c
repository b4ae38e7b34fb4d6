/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "base/alloc.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/text_table.h"
#include "sdc/audit.h"
#include "sdc/ckpt.h"

/* With no --sites: elements are listed where there are at most this many in all. */
#define FEW_SITES 20

struct diff_args {
    bool json, all;
    uint64_t sites;
    struct sdc_opt_list tensors;
};

/* A tensor's index text needs its shape, which the result of a comparison does not hold. */
static void site_index(const struct sdc_ckpt *ckpt, const char *tensor, uint64_t elem, char *text,
                       size_t size) {
    size_t i;
    if (ckpt && sdc_ckpt_find(ckpt, tensor, &i))
        sdc_tensor_index_text(sdc_ckpt_tensor(ckpt, i), elem, text, size);
    else
        snprintf(text, size, "[%llu]", (unsigned long long)elem);
}

static bool differs(const struct sdc_diff_tensor *t) {
    return t->only_a || t->only_b || t->incomparable || t->n_differ > 0;
}

/* ---- text ---- */

static void number_cell(struct sdc_text_table *table, double value) {
    if (isinf(value))
        sdc_text_cell(table, "inf");
    else
        sdc_text_cell(table, "%.3g", value);
}

static void tensor_row(struct sdc_text_table *table, const struct sdc_diff_tensor *t) {
    sdc_text_cell(table, "%s", t->name);
    if (t->only_a || t->only_b || t->incomparable) {
        static const char *const only[] = {"only in the second file", "only in the first file"};
        const char *why = t->incomparable ? (t->why ? t->why : "not comparable") : only[t->only_a];
        bool one = (t->only_a || t->only_b) && t->dtype_known;
        sdc_text_cell(table, "%s", one ? sdc_dtype_name(t->dtype) : "");
        sdc_text_cell(table, "%s", "");
        for (int i = 0; i < 4; i++)
            sdc_text_cell(table, "%s", "");
        sdc_text_cell(table, "%s", why);
        return;
    }
    char differ[SDC_TEXT_COUNT], all[SDC_TEXT_COUNT];
    sdc_text_cell(table, "%s", sdc_dtype_name(t->dtype));
    sdc_text_cell(table, "%s of %s", sdc_text_of_count(t->n_differ, differ),
                  sdc_text_of_count(t->n_elems, all));
    sdc_text_count(table, t->n_bits);
    sdc_text_count(table, t->max_ulps);
    number_cell(table, t->distance);
    number_cell(table, t->max_relative);
    if (t->n_nonfinite_a || t->n_nonfinite_b)
        sdc_text_cell(table, "NaN or Inf: %llu, then %llu", (unsigned long long)t->n_nonfinite_a,
                      (unsigned long long)t->n_nonfinite_b);
    else
        sdc_text_cell(table, "%s", "");
}

static enum sdc_status print_tensors(struct sdc_cli *cli, const struct sdc_diff *d,
                                     struct sdc_error *err) {
    static const char *const heads[] = {"tensor",  "type",     "elements",     "bits",
                                        "max ULP", "distance", "max relative", ""};
    struct sdc_text_table table = {.columns = "llrrrrrl"};
    if (d->n == 0)
        return SDC_OK;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < d->n; i++)
        tensor_row(&table, &d->tensors[i]);
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_sites(struct sdc_cli *cli, const struct sdc_diff *d,
                                   const struct sdc_ckpt *ckpt, struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lrlll"};
    struct sdc_buf bits = SDC_BUF_INIT;
    for (size_t i = 0; i < d->n; i++)
        for (size_t k = 0; k < d->tensors[i].n_sites; k++) {
            const struct sdc_diff_tensor *t = &d->tensors[i];
            const struct sdc_diff_site *s = &t->sites[k];
            char index[1024], a[40], b[40];
            site_index(ckpt, t->name, s->elem, index, sizeof index);
            sdc_num_text(t->dtype, s->a, a, sizeof a);
            sdc_num_text(t->dtype, s->b, b, sizeof b);
            sdc_text_of_bits(s->a ^ s->b, &bits);
            sdc_text_cell(&table, "%s%s", t->name, index);
            sdc_text_cell(&table, "%s", a);
            sdc_text_cell(&table, "->");
            sdc_text_cell(&table, "%s", b);
            sdc_text_cell(&table, "%s", bits.data ? bits.data : "");
        }
    sdc__buf_release(&bits);
    if (table.n_cells > 0)
        fputc('\n', cli->out);
    return sdc_text_table_print(&table, cli->out, err);
}

/* How often each bit differs, one block a type, since bit 14 is an exponent in F16 and not in F32.
 */
static enum sdc_status print_bits(struct sdc_cli *cli, const struct sdc_diff *d,
                                  struct sdc_error *err) {
    enum { BAR = 40 };
    static const char bar[BAR + 1] = "########################################";
    for (int type = 0; type < SDC_DTYPE_COUNT; type++) {
        enum sdc_dtype dtype = (enum sdc_dtype)type;
        struct sdc_text_table table = {.columns = "llrl"};
        uint64_t counts[64] = {0}, most = 0;
        for (size_t i = 0; i < d->n; i++)
            if (d->tensors[i].dtype == dtype)
                for (unsigned bit = 0; bit < 64; bit++)
                    counts[bit] += d->tensors[i].bit_counts[bit];
        for (unsigned bit = 0; bit < 64; bit++)
            most = counts[bit] > most ? counts[bit] : most;
        if (most == 0)
            continue;
        fprintf(cli->out, "\nbits of %s that differ\n", sdc_dtype_name(dtype));
        for (unsigned bit = sdc_dtype_bits(dtype); bit-- > 0;) {
            if (counts[bit] == 0)
                continue;
            int len = (int)ceil((double)counts[bit] / (double)most * BAR);
            sdc_text_cell(&table, "lsb:%u", bit);
            sdc_text_cell(&table, "%s", sdc_num_field_name(sdc_num_field(dtype, bit)));
            sdc_text_count(&table, counts[bit]);
            sdc_text_cell(&table, "%.*s", len, bar);
        }
        SDC_TRY(sdc_text_table_print(&table, cli->out, err));
    }
    return SDC_OK;
}

static void print_summary(struct sdc_cli *cli, const struct sdc_diff *d) {
    char n[SDC_TEXT_COUNT], of[SDC_TEXT_COUNT];
    if (d->same_container) {
        fprintf(cli->out, "the files are byte-identical\n");
        return;
    }
    if (d->same_values) {
        fprintf(cli->out, "all values are the same; the files differ in layout or metadata\n");
        return;
    }
    fprintf(cli->out, "%s of %s tensor%s differ", sdc_text_of_count(d->n_differ_tensors, n),
            sdc_text_of_count(d->n_tensors, of), sdc_text_plural(d->n_tensors));
    if (d->n_unreadable_tensors > 0)
        fprintf(cli->out, ", %s could not be compared",
                sdc_text_of_count(d->n_unreadable_tensors, n));
    fprintf(cli->out, ": %s element%s, ", sdc_text_of_count(d->n_differ_elems, n),
            sdc_text_plural(d->n_differ_elems));
    fprintf(cli->out, "%s bit%s\n", sdc_text_of_count(d->n_differ_bits, n),
            sdc_text_plural(d->n_differ_bits));
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct diff_args *a,
                                  const struct sdc_diff *d, struct sdc_error *err) {
    print_summary(cli, d);
    SDC_TRY(print_tensors(cli, d, err));
    enum sdc_status st = SDC_OK;
    if (a->sites > 0 || d->n_differ_elems <= FEW_SITES) {
        struct sdc_ckpt *ckpt = NULL;
        st = sdc_ckpt_open(cli->operands.items[0], NULL, &ckpt, err);
        if (st == SDC_OK)
            st = print_sites(cli, d, ckpt, err);
        sdc_ckpt_close(ckpt);
    }
    return st == SDC_OK ? print_bits(cli, d, err) : st;
}

/* ---- JSON ---- */

static void json_value(struct sdc_jw *w, const char *key, enum sdc_dtype dtype, uint64_t raw) {
    char text[40], hex[20];
    sdc_num_text(dtype, raw, text, sizeof text);
    snprintf(hex, sizeof hex, "%0*llx", (int)sdc_dtype_bytes(dtype) * 2, (unsigned long long)raw);
    sdc__jw_key(w, key);
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "bits", hex);
    sdc__jw_kstr(w, "value", text);
    sdc__jw_obj_end(w);
}

static void json_sites(struct sdc_jw *w, const struct sdc_diff_tensor *t,
                       const struct sdc_ckpt *ckpt) {
    sdc__jw_key(w, "sites");
    sdc__jw_arr(w);
    for (size_t k = 0; k < t->n_sites; k++) {
        char index[1024];
        site_index(ckpt, t->name, t->sites[k].elem, index, sizeof index);
        sdc__jw_obj(w);
        sdc__jw_ku64(w, "elem", t->sites[k].elem);
        sdc__jw_kstr(w, "index", index);
        json_value(w, "a", t->dtype, t->sites[k].a);
        json_value(w, "b", t->dtype, t->sites[k].b);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_tensor(struct sdc_jw *w, const struct sdc_diff_tensor *t,
                        const struct sdc_ckpt *ckpt) {
    bool compared = !(t->only_a || t->only_b || t->incomparable);
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "name", t->name);
    sdc__jw_kstr(w, "part", sdc_part_name(t->part));
    sdc__jw_kstr(w, "role", sdc_role_name(t->role));
    sdc__jw_kbool(w, "differs", differs(t));
    sdc__jw_kstr(w, "only_in", t->only_a ? "a" : t->only_b ? "b" : NULL);
    sdc__jw_kstr(w, "incomparable", t->incomparable ? (t->why ? t->why : "not comparable") : NULL);
    if (compared) {
        sdc__jw_kstr(w, "type", sdc_dtype_name(t->dtype));
        sdc__jw_ku64(w, "elements", t->n_elems);
        sdc__jw_ku64(w, "differing", t->n_differ);
        sdc__jw_ku64(w, "bits", t->n_bits);
        sdc__jw_key(w, "bit_counts");
        sdc__jw_obj(w);
        for (unsigned bit = 0; bit < 64; bit++) {
            char key[4];
            snprintf(key, sizeof key, "%u", bit);
            if (t->bit_counts[bit])
                sdc__jw_ku64(w, key, t->bit_counts[bit]);
        }
        sdc__jw_obj_end(w);
        sdc__jw_ku64(w, "max_ulps", t->max_ulps);
        sdc__jw_ku64(w, "nonfinite_a", t->n_nonfinite_a);
        sdc__jw_ku64(w, "nonfinite_b", t->n_nonfinite_b);
        sdc__jw_kf64(w, "distance", t->distance);
        sdc__jw_kf64(w, "max_relative", t->max_relative);
        json_sites(w, t, ckpt);
    }
    sdc__jw_obj_end(w);
}

static enum sdc_status print_json(struct sdc_cli *cli, const struct sdc_diff *d,
                                  struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    struct sdc_ckpt *ckpt = NULL;
    SDC_TRY(sdc_ckpt_open(cli->operands.items[0], NULL, &ckpt, err));
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.diff/1");
    sdc__jw_kstr(&w, "a", cli->operands.items[0]);
    sdc__jw_kstr(&w, "b", cli->operands.items[1]);
    sdc__jw_kbool(&w, "same_values", d->same_values);
    sdc__jw_kbool(&w, "same_container", d->same_container);
    sdc__jw_ku64(&w, "tensors_a", d->n_tensors_a);
    sdc__jw_ku64(&w, "tensors_b", d->n_tensors_b);
    sdc__jw_ku64(&w, "differing_tensors", d->n_differ_tensors);
    sdc__jw_ku64(&w, "unreadable_tensors", d->n_unreadable_tensors);
    sdc__jw_ku64(&w, "differing_elements", d->n_differ_elems);
    sdc__jw_ku64(&w, "differing_bits", d->n_differ_bits);
    sdc__jw_key(&w, "tensors");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < d->n; i++)
        json_tensor(&w, &d->tensors[i], ckpt);
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    sdc_ckpt_close(ckpt);
    enum sdc_status st = text.failed ? SDC_NOMEM(err, "the result") : SDC_OK;
    if (st == SDC_OK)
        fprintf(cli->out, "%s\n", text.data);
    sdc__buf_release(&text);
    return st;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct diff_args *a = args;
    struct sdc_diff_options options = {.all = a->all,
                                       .max_sites = a->sites ? (size_t)a->sites : FEW_SITES,
                                       .globs = a->tensors.items,
                                       .n_globs = a->tensors.n};
    struct sdc_diff d = {0};
    struct sdc_error err;
    if (sdc_diff_files(cli->operands.items[0], cli->operands.items[1], &options, &d, &err) !=
        SDC_OK)
        return sdc_cli_fail(cli, &err);
    if (a->tensors.n > 0 && d.n_tensors == 0 && !d.same_container) {
        SDC_ERR(&err, SDC_USAGE, "--tensors: no tensor of either file is called '%s'%s",
                a->tensors.items[0], a->tensors.n > 1 ? " or like the others" : "");
        sdc_diff_release(&d);
        return sdc_cli_fail(cli, &err);
    }
    enum sdc_status st = a->json ? print_json(cli, &d, &err) : print_text(cli, a, &d, &err);
    int code = d.same_values ? SDC_EXIT_DONE : SDC_EXIT_FOUND;
    sdc_diff_release(&d);
    return st == SDC_OK ? code : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    {SDC_OPT_LIST, "tensors", 0, offsetof(struct diff_args, tensors), "GLOB", NULL,
     "compare only tensors of this name or glob (repeatable)", 0, 0, NULL},
    {SDC_OPT_U64, "sites", 0, offsetof(struct diff_args, sites), "N", NULL,
     "list the first N differing elements of each tensor (else only where there are few in all)", 1,
     1000000, NULL},
    {SDC_OPT_FLAG, "all", 0, offsetof(struct diff_args, all), NULL, NULL,
     "list tensors without a difference too", 0, 0, NULL},
    SDC_OPT_JSON(struct diff_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_diff = {
    .name = "diff",
    .group = "Checkpoints",
    .summary = "compare two checkpoints bit by bit; exit 0 if all values are the same, 1 if not",
    .operands = "A B",
    .details = "Tensors are matched by name, whatever the formats of the two files. Distance is\n"
               "||B - A|| / ||A||, relative is |B - A| / |A| of one element; both are inf where a "
               "value is\n"
               "not finite. ULP counts the representable values between two numbers, NaN left out.",
    .examples = "  sdclab diff clean.h5 flipped.h5\n"
                "  sdclab diff --tensors 'model/*' --sites 5 rank0.safetensors rank1.safetensors",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .args_size = sizeof(struct diff_args),
    .run = run,
};
