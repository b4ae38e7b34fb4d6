/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "base/alloc.h"
#include "base/json.h"
#include "cli/audit_text.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/audit.h"
#include "sdc/ckpt.h"

/* With no --sites: elements are listed where there are at most this many in all. */
#define FEW_SITES 20

struct diff_args {
    bool json, all;
    int by;
    uint64_t sites, threads;
    const char *rtol, *atol, *tolerance;
    struct sdc_opt_list tensors, map;
    struct sdc_cli_ckpt_args ckpt;
};

/* What decides the exit code, in the order of the words of --by. */
enum judge { BY_BITS, BY_VALUES, BY_CONTAINER, BY_TOLERANCE };

struct diffing {
    const struct diff_args *args;
    enum judge judge;
    struct sdc_diff_options options;
    struct sdc_cli_ckpt open;
    struct sdc_name_map *map;
};

static bool same(const struct diffing *x, const struct sdc_diff *d) {
    switch (x->judge) {
    case BY_BITS:
        return d->same_bits;
    case BY_VALUES:
        return d->same_values;
    case BY_CONTAINER:
        return d->same_container;
    case BY_TOLERANCE:
        break;
    }
    return d->within;
}

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

/* What the columns do not say. */
static void remark_cell(struct sdc_text_table *table, const struct diffing *x,
                        const struct sdc_diff_tensor *t) {
    struct sdc_buf b = SDC_BUF_INIT;
    if (x->judge == BY_TOLERANCE)
        sdc__buf_printf(&b, "%llu beyond tolerance, ", (unsigned long long)t->n_beyond);
    if (t->n_nonfinite_a || t->n_nonfinite_b)
        sdc__buf_printf(&b, "NaN or Inf: %llu, then %llu, ", (unsigned long long)t->n_nonfinite_a,
                        (unsigned long long)t->n_nonfinite_b);
    if (t->n_zero_signs)
        sdc__buf_printf(&b, "%llu -0 against +0, ", (unsigned long long)t->n_zero_signs);
    if (t->n_nan_bits)
        sdc__buf_printf(&b, "%llu NaN of other bits, ", (unsigned long long)t->n_nan_bits);
    if (t->name_b)
        sdc__buf_printf(&b, "with %s, ", t->name_b);
    sdc_text_cell(table, "%.*s", (int)(b.len > 2 ? b.len - 2 : 0), b.data ? b.data : "");
    sdc__buf_release(&b);
}

static void tensor_row(struct sdc_text_table *table, const struct diffing *x,
                       const struct sdc_diff_tensor *t) {
    sdc_text_cell(table, "%s", t->name);
    if (t->only_a || t->only_b || t->incomparable) {
        static const char *const only[] = {"only in the second file", "only in the first file"};
        const char *why = t->incomparable ? (t->why ? t->why : "not comparable") : only[t->only_a];
        bool one = (t->only_a || t->only_b) && t->dtype_known;
        sdc_text_cell(table, "%s", one ? sdc_dtype_name(t->dtype) : "");
        sdc_text_cell(table, "%s", "");
        for (int i = 0; i < 5; i++)
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
    if (t->n_differ > 0)
        sdc_text_count(table, t->first_elem);
    else
        sdc_text_cell(table, "%s", "");
    remark_cell(table, x, t);
}

static enum sdc_status print_tensors(struct sdc_cli *cli, const struct diffing *x,
                                     const struct sdc_diff *d, struct sdc_error *err) {
    static const char *const heads[] = {"tensor",   "type",         "elements", "bits", "max ULP",
                                        "distance", "max relative", "first",    ""};
    struct sdc_text_table table = {.columns = "llrrrrrrl"};
    if (d->n == 0)
        return SDC_OK;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < d->n; i++)
        tensor_row(&table, x, &d->tensors[i]);
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

static void print_container(struct sdc_cli *cli, const struct sdc_diff *d) {
    char a[SDC_TEXT_COUNT], b[SDC_TEXT_COUNT];
    if (d->has_first_byte && d->size_a == d->size_b)
        fprintf(cli->out, "the files differ from byte %s of %s on\n",
                sdc_text_of_count(d->first_byte, a), d->first_file);
    else
        fprintf(cli->out, "the files differ: %s and %s bytes\n", sdc_text_of_count(d->size_a, a),
                sdc_text_of_count(d->size_b, b));
}

static void print_verdict(struct sdc_cli *cli, const struct diffing *x, const struct sdc_diff *d) {
    char n[SDC_TEXT_COUNT];
    if (x->judge == BY_TOLERANCE && d->within)
        fprintf(cli->out, "within tolerance: |B - A| <= %g + %g |A| for every element\n",
                x->options.atol, x->options.rtol);
    else if (x->judge == BY_TOLERANCE)
        fprintf(cli->out, "%s element%s beyond tolerance, |B - A| > %g + %g |A|\n",
                sdc_text_of_count(d->n_beyond, n), sdc_text_plural(d->n_beyond), x->options.atol,
                x->options.rtol);
    else if (d->same_values && !d->same_bits)
        fprintf(cli->out, "all values are the same, but for the sign of zeros or bits of NaN\n");
}

static void print_summary(struct sdc_cli *cli, const struct diffing *x, const struct sdc_diff *d) {
    char n[SDC_TEXT_COUNT], of[SDC_TEXT_COUNT];
    if (d->same_container && d->same_bits) {
        fprintf(cli->out, "the files are byte-identical\n");
        return;
    }
    if (d->same_container) /* a map has others compared than those of one name */
        fprintf(cli->out, "the files are byte-identical, but by the map ");
    if (d->same_bits) {
        if (x->options.n_globs > 0 || x->map)
            fprintf(cli->out,
                    "all values of the %s tensor%s compared are the same; the files differ "
                    "elsewhere\n",
                    sdc_text_of_count(d->n_tensors, of), sdc_text_plural(d->n_tensors));
        else
            fprintf(cli->out, "all values are the same; the files differ in layout or metadata\n");
        if (x->judge == BY_CONTAINER)
            print_container(cli, d);
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
    if (!d->same_container && x->judge == BY_CONTAINER)
        print_container(cli, d);
    print_verdict(cli, x, d);
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct diffing *x,
                                  const struct sdc_diff *d, struct sdc_error *err) {
    print_summary(cli, x, d);
    SDC_TRY(print_tensors(cli, x, d, err));
    enum sdc_status st = SDC_OK;
    if (x->args->sites > 0 || d->n_differ_elems <= FEW_SITES) {
        struct sdc_ckpt *ckpt = NULL;
        st = sdc_ckpt_open(cli->operands.items[0], x->options.open, &ckpt, err);
        if (st == SDC_OK)
            st = print_sites(cli, d, ckpt, err);
        sdc_ckpt_close(ckpt);
    }
    return st == SDC_OK ? print_bits(cli, d, err) : st;
}

/* ---- JSON ---- */

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
        sdc_json_raw(w, "a", t->dtype, t->sites[k].a);
        sdc_json_raw(w, "b", t->dtype, t->sites[k].b);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_tensor(struct sdc_jw *w, const struct sdc_diff_tensor *t,
                        const struct sdc_ckpt *ckpt) {
    bool compared = !(t->only_a || t->only_b || t->incomparable);
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "name", t->name);
    sdc__jw_kstr(w, "name_b", t->name_b);
    sdc__jw_kstr(w, "part", sdc_part_name(t->part));
    sdc__jw_kstr(w, "role", sdc_role_name(t->role));
    sdc__jw_kbool(w, "differs", differs(t));
    sdc__jw_kstr(w, "only_in", t->only_a ? "a" : t->only_b ? "b" : NULL);
    sdc__jw_kstr(w, "incomparable", t->incomparable ? (t->why ? t->why : "not comparable") : NULL);
    if (compared) {
        sdc__jw_kstr(w, "type", sdc_dtype_name(t->dtype));
        sdc__jw_ku64(w, "elements", t->n_elems);
        sdc__jw_ku64(w, "differing", t->n_differ);
        sdc__jw_key(w, "first_elem");
        if (t->n_differ > 0)
            sdc__jw_u64(w, t->first_elem);
        else
            sdc__jw_null(w);
        sdc__jw_ku64(w, "values", t->n_values);
        sdc__jw_ku64(w, "nan_bits", t->n_nan_bits);
        sdc__jw_ku64(w, "zero_signs", t->n_zero_signs);
        sdc__jw_ku64(w, "beyond_tolerance", t->n_beyond);
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
        sdc__jw_kf64(w, "max_absolute", t->max_absolute);
        json_sites(w, t, ckpt);
    }
    sdc__jw_obj_end(w);
}

static void json_totals(struct sdc_jw *w, const struct diffing *x, const struct sdc_diff *d) {
    static const char *const words[] = {[BY_BITS] = "bits",
                                        [BY_VALUES] = "values",
                                        [BY_CONTAINER] = "container",
                                        [BY_TOLERANCE] = "tolerance"};
    sdc__jw_kstr(w, "judged_by", words[x->judge]);
    sdc__jw_kbool(w, "same", same(x, d));
    sdc__jw_kbool(w, "same_container", d->same_container);
    sdc__jw_kbool(w, "same_bits", d->same_bits);
    sdc__jw_kbool(w, "same_values", d->same_values);
    sdc__jw_kbool(w, "within_tolerance", d->within);
    sdc__jw_kf64(w, "rtol", x->options.rtol);
    sdc__jw_kf64(w, "atol", x->options.atol);
    sdc__jw_ku64(w, "size_a", d->size_a);
    sdc__jw_ku64(w, "size_b", d->size_b);
    sdc__jw_key(w, "first_byte");
    if (d->has_first_byte)
        sdc__jw_u64(w, d->first_byte);
    else
        sdc__jw_null(w);
    sdc__jw_ku64(w, "tensors_a", d->n_tensors_a);
    sdc__jw_ku64(w, "tensors_b", d->n_tensors_b);
    sdc__jw_ku64(w, "differing_tensors", d->n_differ_tensors);
    sdc__jw_ku64(w, "unreadable_tensors", d->n_unreadable_tensors);
    sdc__jw_ku64(w, "differing_elements", d->n_differ_elems);
    sdc__jw_ku64(w, "differing_values", d->n_differ_values);
    sdc__jw_ku64(w, "beyond_tolerance", d->n_beyond);
    sdc__jw_ku64(w, "differing_bits", d->n_differ_bits);
}

static enum sdc_status print_json(struct sdc_cli *cli, const struct diffing *x,
                                  const struct sdc_diff *d, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    struct sdc_ckpt *ckpt = NULL;
    SDC_TRY(sdc_ckpt_open(cli->operands.items[0], x->options.open, &ckpt, err));
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.diff/1");
    sdc__jw_kstr(&w, "a", cli->operands.items[0]);
    sdc__jw_kstr(&w, "b", cli->operands.items[1]);
    json_totals(&w, x, d);
    sdc__jw_key(&w, "tensors");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < d->n; i++)
        json_tensor(&w, &d->tensors[i], ckpt);
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    sdc_ckpt_close(ckpt);
    return sdc_json_print(&text, cli->out, err);
}

/* ---- the command ---- */

static enum sdc_status set_tolerance(const char *option, const char *text, double *to,
                                     struct sdc_error *err) {
    if (!text)
        return SDC_OK;
    if (!sdc__parse_f64(text, to) || !(*to >= 0) || isinf(*to))
        return SDC_ERR(err, SDC_USAGE, "--%s: found '%s', expected a number of at least 0", option,
                       text);
    return SDC_OK;
}

static enum sdc_status prepare(const struct diff_args *a, struct diffing *x,
                               struct sdc_error *err) {
    *x = (struct diffing){.args = a, .judge = (enum judge)a->by};
    x->options = (struct sdc_diff_options){.all = a->all,
                                           .max_sites = a->sites ? (size_t)a->sites : FEW_SITES,
                                           .globs = a->tensors.items,
                                           .n_globs = a->tensors.n,
                                           .threads = (unsigned)a->threads};
    if (a->tolerance && (a->rtol || a->atol))
        return SDC_ERR(err, SDC_USAGE, "--tolerance is both --rtol and --atol, and excludes them");
    SDC_TRY(set_tolerance("tolerance", a->tolerance, &x->options.rtol, err));
    x->options.atol = x->options.rtol;
    SDC_TRY(set_tolerance("rtol", a->rtol, &x->options.rtol, err));
    SDC_TRY(set_tolerance("atol", a->atol, &x->options.atol, err));
    if (a->tolerance || a->rtol || a->atol) {
        if (a->by == BY_CONTAINER)
            return SDC_ERR(err, SDC_USAGE, "--by container and a tolerance exclude each other");
        x->judge = BY_TOLERANCE;
    }
    SDC_TRY(sdc_cli_ckpt_init(&a->ckpt, &x->open, err));
    x->options.open = &x->open.options;
    if (a->map.n == 0)
        return SDC_OK;
    SDC_TRY(sdc_name_map_new(&x->map, err));
    for (size_t i = 0; i < a->map.n; i++)
        SDC_TRY(sdc_name_map_add(x->map, a->map.items[i], err));
    x->options.map = x->map;
    return SDC_OK;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct diff_args *a = args;
    struct diffing x;
    struct sdc_diff d = {0};
    struct sdc_error err;
    enum sdc_status st;
    int code = SDC_EXIT_FOUND;
    SDC_TRY_OUT(st, prepare(a, &x, &err));
    SDC_TRY_OUT(
        st, sdc_diff_files(cli->operands.items[0], cli->operands.items[1], &x.options, &d, &err));
    SDC_TRY_OUT(st, a->json ? print_json(cli, &x, &d, &err) : print_text(cli, &x, &d, &err));
    code = same(&x, &d) ? SDC_EXIT_DONE : SDC_EXIT_FOUND;
out:
    sdc_diff_release(&d);
    sdc_cli_ckpt_release(&x.open);
    sdc_name_map_free(x.map);
    return st == SDC_OK ? code : sdc_cli_fail(cli, &err);
}

static const char *const levels[] = {"bits", "values", "container", NULL};

static const struct sdc_opt options[] = {
    {SDC_OPT_LIST, "tensors", 0, offsetof(struct diff_args, tensors), "GLOB", NULL,
     "compare only tensors of this name or glob (repeatable)", 0, 0, NULL},
    {SDC_OPT_ENUM, "by", 0, offsetof(struct diff_args, by), "LEVEL", "bits",
     "what the exit code is about; by values every NaN is the same and -0 is +0", 0, 0, levels},
    {SDC_OPT_STR, "rtol", 0, offsetof(struct diff_args, rtol), "R", NULL,
     "exit 0 if |B - A| <= atol + R |A| for every element, as numpy.testing.assert_allclose(B, A)",
     0, 0, NULL},
    {SDC_OPT_STR, "atol", 0, offsetof(struct diff_args, atol), "A", NULL, "the absolute part of it",
     0, 0, NULL},
    {SDC_OPT_STR, "tolerance", 0, offsetof(struct diff_args, tolerance), "T", NULL,
     "the same as --rtol T --atol T", 0, 0, NULL},
    {SDC_OPT_LIST, "map", 0, offsetof(struct diff_args, map), "FILE", NULL,
     "rules that say which tensor of A is which of B, or torch-keras or keras-torch (repeatable)",
     0, 0, NULL},
    {SDC_OPT_U64, "sites", 0, offsetof(struct diff_args, sites), "N", NULL,
     "list the first N differing elements of each tensor (else only where there are few in all)", 1,
     1000000, NULL},
    {SDC_OPT_FLAG, "all", 0, offsetof(struct diff_args, all), NULL, NULL,
     "list tensors without a difference too", 0, 0, NULL},
    SDC_OPTS_CKPT(struct diff_args, ckpt),
    SDC_OPT_THREADS(struct diff_args, threads),
    SDC_OPT_JSON(struct diff_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_diff = {
    .name = "diff",
    .group = "Checkpoints",
    .summary = "compare two checkpoints bit by bit; exit 0 if all values are the same, 1 if not",
    .operands = "A B",
    .details =
        "Tensors are matched by name, whatever the formats of the two, a set of files against a\n"
        "single one too; those left over by their name without what wrappers add (model/, "
        "module.,\n"
        "_orig_mod., ...), or by --map. Three levels are told: the bytes of the files, the bits "
        "of\n"
        "the elements, and their values. The exit code is about bits unless --by or a tolerance\n"
        "says otherwise. Distance is ||B - A|| / ||A||, relative is |B - A| / |A| of one element;\n"
        "both are inf where a value is not finite. ULP counts the representable values between "
        "two\n"
        "numbers, NaN left out. 'first' is the flat index, in C order, of the first difference.",
    .examples = "  sdclab diff clean.h5 flipped.h5\n"
                "  sdclab diff --tensors 'model/*' --sites 5 rank0.safetensors rank1.safetensors\n"
                "  sdclab diff --rtol 1e-5 --atol 1e-8 sharded-model/ model.safetensors\n"
                "  sdclab diff --map torch-keras model.pt model.weights.h5",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .args_size = sizeof(struct diff_args),
    .run = run,
};
