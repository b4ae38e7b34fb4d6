/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "cli/audit_text.h"
#include "cli/choice_options.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/audit.h"

/* Rows of the table of tensors without --verbose. */
#define MAX_ROWS 20

struct predict_args {
    bool json;
    uint64_t threads, extreme;
    struct sdc_opt_words words;
    struct sdc_cli_ckpt_args ckpt;
};

static double share(uint64_t n, uint64_t of) {
    return of ? (double)n / (double)of : 0;
}

static uint64_t severe(const struct sdc_predict_counts *c) {
    return c->sites[SDC_EFFECT_TO_NAN] + c->sites[SDC_EFFECT_TO_INF] +
           c->sites[SDC_EFFECT_TO_EXTREME];
}

static uint64_t total(const struct sdc_predict_counts *c) {
    uint64_t sum = 0;
    for (int i = 0; i < SDC_EFFECT_COUNT; i++)
        sum += c->sites[i];
    return sum;
}

/* ---- text ---- */

static void percent_cell(struct sdc_text_table *table, uint64_t n, uint64_t of) {
    if (n == 0)
        sdc_text_cell(table, "-");
    else if (n == of)
        sdc_text_cell(table, "100");
    else
        sdc_text_cell(table, "%.3g", 100 * share(n, of));
}

static enum sdc_status print_classes(struct sdc_cli *cli, const struct sdc_predict *p,
                                     struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lrrl"};
    const char *const heads[] = {"class", "sites", "%", ""};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (int i = 0; i < SDC_EFFECT_COUNT; i++) {
        if (p->counts.sites[i] == 0)
            continue;
        sdc_text_cell(&table, "%s", sdc_effect_name((enum sdc_effect)i));
        sdc_text_count(&table, p->counts.sites[i]);
        percent_cell(&table, p->counts.sites[i], p->sites);
        sdc_text_cell(&table, "%s", sdc_effect_meaning((enum sdc_effect)i));
    }
    if (p->unreadable > 0) {
        sdc_text_cell(&table, "not looked at");
        sdc_text_count(&table, p->unreadable);
        percent_cell(&table, p->unreadable, p->sites);
        sdc_text_cell(&table, "tensors that cannot be read");
    }
    return sdc_text_table_print(&table, cli->out, err);
}

/* One column for each class that occurs, integers apart. */
static unsigned effects_of(const struct sdc_predict *p, enum sdc_effect columns[SDC_EFFECT_COUNT]) {
    unsigned n = 0;
    for (int i = 0; i < SDC_EFFECT_COUNT; i++)
        if (i != SDC_EFFECT_INTEGER && p->counts.sites[i] > 0)
            columns[n++] = (enum sdc_effect)i;
    return n;
}

/* Bits of one field with the same counts share a row. */
static bool alike(const struct sdc_predict_bit *a, const struct sdc_predict_bit *b) {
    return a->dtype == b->dtype &&
           sdc_num_field(a->dtype, a->bit) == sdc_num_field(b->dtype, b->bit) &&
           memcmp(&a->counts, &b->counts, sizeof a->counts) == 0;
}

static enum sdc_status print_bits(struct sdc_cli *cli, const struct sdc_predict *p,
                                  struct sdc_error *err) {
    enum sdc_effect effects[SDC_EFFECT_COUNT];
    const unsigned n = effects_of(p, effects);
    char columns[SDC_EFFECT_COUNT + 4] = "lll";
    struct sdc_text_table table = {.columns = columns};
    memset(columns + 3, 'r', n);
    if (n == 0)
        return SDC_OK;
    fprintf(cli->out, "\n%% of each bit\n");
    sdc_text_cell(&table, "type");
    sdc_text_cell(&table, "bit");
    sdc_text_cell(&table, "field");
    for (unsigned k = 0; k < n; k++)
        sdc_text_cell(&table, "%s", sdc_effect_name(effects[k]));
    for (size_t i = 0, last; i < p->n_bits; i = last + 1) {
        const struct sdc_predict_bit *b = &p->bits[i];
        for (last = i; last + 1 < p->n_bits && alike(b, &p->bits[last + 1]);)
            last++;
        if (b->counts.sites[SDC_EFFECT_INTEGER] > 0)
            continue;
        sdc_text_cell(&table, "%s", sdc_dtype_name(b->dtype));
        if (last > i)
            sdc_text_cell(&table, "lsb:%u-%u", p->bits[last].bit, b->bit);
        else
            sdc_text_cell(&table, "lsb:%u", b->bit);
        sdc_text_cell(&table, "%s", sdc_num_field_name(sdc_num_field(b->dtype, b->bit)));
        for (unsigned k = 0; k < n; k++)
            percent_cell(&table, b->counts.sites[effects[k]], total(&b->counts));
    }
    return sdc_text_table_print(&table, cli->out, err);
}

static void severe_cells(struct sdc_text_table *table, const struct sdc_predict_counts *c,
                         uint64_t sites) {
    sdc_text_count(table, sites);
    percent_cell(table, c->sites[SDC_EFFECT_TO_NAN], sites);
    percent_cell(table, c->sites[SDC_EFFECT_TO_INF], sites);
    percent_cell(table, c->sites[SDC_EFFECT_TO_EXTREME], sites);
    percent_cell(table, severe(c), sites);
}

static enum sdc_status print_roles(struct sdc_cli *cli, const struct sdc_predict *p,
                                   struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lrrrrrl"};
    static const char *const heads[] = {"role",         "sites",          "% to-nan",    "% to-inf",
                                        "% to-extreme", "% of the three", "extreme from"};
    fputc('\n', cli->out);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < p->n_roles; i++) {
        const struct sdc_predict_role *r = &p->roles[i];
        sdc_text_cell(&table, "%s", sdc_role_name(r->role));
        severe_cells(&table, &r->counts, r->sites);
        if (r->has_extreme)
            sdc_text_cell(&table, "2^%d", r->extreme);
        else
            sdc_text_cell(&table, "%s", "");
    }
    return sdc_text_table_print(&table, cli->out, err);
}

static enum sdc_status print_tensors(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                     const struct sdc_predict *p, struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "llrrrrrl"};
    static const char *const heads[] = {"tensor",   "type",         "sites",          "% to-nan",
                                        "% to-inf", "% to-extreme", "% of the three", ""};
    size_t n = cli->verbose || p->n_tensors <= MAX_ROWS ? p->n_tensors : MAX_ROWS;
    fputc('\n', cli->out);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        sdc_text_cell(&table, "%s", heads[i]);
    for (size_t i = 0; i < n; i++) {
        const struct sdc_predict_tensor *t = &p->tensors[i];
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(ckpt, t->tensor);
        sdc_text_cell(&table, "%s", d->name);
        sdc_text_cell(&table, "%s", sdc_dtype_name(t->dtype));
        severe_cells(&table, &t->counts, t->sites);
        sdc_text_cell(&table, "%s%s", t->unreadable ? "not looked at: " : "",
                      t->unreadable ? t->unreadable : "");
    }
    SDC_TRY(sdc_text_table_print(&table, cli->out, err));
    if (n < p->n_tensors)
        fprintf(cli->out, "  and %zu more tensors (--verbose lists all)\n", p->n_tensors - n);
    return SDC_OK;
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                  const struct sdc_predict *p, struct sdc_error *err) {
    char sites[SDC_TEXT_COUNT], tensors[SDC_TEXT_COUNT];
    if (p->sites == 0) {
        fprintf(cli->out, "%s: the support is empty\n", sdc_ckpt_path(ckpt));
        return SDC_OK;
    }
    fprintf(cli->out, "%s: the support holds %s site%s of %s tensor%s\n", sdc_ckpt_path(ckpt),
            sdc_text_of_count(p->sites, sites), sdc_text_plural(p->sites),
            sdc_text_of_count(p->n_tensors, tensors), sdc_text_plural(p->n_tensors));
    SDC_TRY(print_classes(cli, p, err));
    fprintf(cli->out, "\nto NaN, Inf or extreme: q = %.6g of the sites\n",
            share(severe(&p->counts), p->sites));
    SDC_TRY(print_bits(cli, p, err));
    SDC_TRY(print_roles(cli, p, err));
    return print_tensors(cli, ckpt, p, err);
}

/* ---- JSON ---- */

static void json_counts(struct sdc_jw *w, const struct sdc_predict_counts *c) {
    sdc__jw_key(w, "classes");
    sdc__jw_obj(w);
    for (int i = 0; i < SDC_EFFECT_COUNT; i++)
        if (c->sites[i] > 0)
            sdc__jw_ku64(w, sdc_effect_name((enum sdc_effect)i), c->sites[i]);
    sdc__jw_obj_end(w);
}

static void json_bits(struct sdc_jw *w, const struct sdc_predict *p) {
    sdc__jw_key(w, "bits");
    sdc__jw_arr(w);
    for (size_t i = 0; i < p->n_bits; i++) {
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "type", sdc_dtype_name(p->bits[i].dtype));
        sdc__jw_ku64(w, "lsb", p->bits[i].bit);
        sdc__jw_kstr(w, "field",
                     sdc_num_field_name(sdc_num_field(p->bits[i].dtype, p->bits[i].bit)));
        json_counts(w, &p->bits[i].counts);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_roles(struct sdc_jw *w, const struct sdc_predict *p) {
    sdc__jw_key(w, "roles");
    sdc__jw_arr(w);
    for (size_t i = 0; i < p->n_roles; i++) {
        sdc__jw_obj(w);
        sdc__jw_kstr(w, "role", sdc_role_name(p->roles[i].role));
        sdc__jw_ku64(w, "sites", p->roles[i].sites);
        sdc__jw_key(w, "extreme");
        if (p->roles[i].has_extreme)
            sdc__jw_i64(w, p->roles[i].extreme);
        else
            sdc__jw_null(w);
        json_counts(w, &p->roles[i].counts);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static void json_tensors(struct sdc_jw *w, const struct sdc_ckpt *ckpt,
                         const struct sdc_predict *p) {
    sdc__jw_key(w, "tensors");
    sdc__jw_arr(w);
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct sdc_predict_tensor *t = &p->tensors[i];
        sdc__jw_obj(w);
        sdc_json_desc(w, sdc_ckpt_tensor(ckpt, t->tensor));
        sdc__jw_ku64(w, "sites", t->sites);
        sdc__jw_kstr(w, "unreadable", t->unreadable);
        json_counts(w, &t->counts);
        sdc__jw_obj_end(w);
    }
    sdc__jw_arr_end(w);
}

static enum sdc_status print_json(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                  const struct sdc_predict *p, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.predict/1");
    sdc__jw_kstr(&w, "file", sdc_ckpt_path(ckpt));
    sdc__jw_kstr(&w, "format", sdc_ckpt_format(ckpt));
    sdc__jw_ku64(&w, "sites", p->sites);
    sdc__jw_ku64(&w, "unreadable", p->unreadable);
    sdc__jw_kf64(&w, "q", share(severe(&p->counts), p->sites));
    json_counts(&w, &p->counts);
    json_bits(&w, p);
    json_roles(&w, p);
    json_tensors(&w, ckpt, p);
    sdc__jw_obj_end(&w);
    return sdc_json_print(&text, cli->out, err);
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct predict_args *a = args;
    const struct sdc_predict_options options = {.extreme = (unsigned)a->extreme,
                                                .threads = (unsigned)a->threads};
    struct sdc_cli_ckpt open = {0};
    struct sdc_ckpt *ckpt = NULL;
    struct sdc_predict p = {0};
    struct sdc_choice choice;
    struct sdc_error err;
    enum sdc_status st;
    sdc_choice_init(&choice);
    SDC_TRY_OUT(st, sdc_cli_choice(&a->words, &choice, &err));
    SDC_TRY_OUT(st, sdc_cli_ckpt_init(&a->ckpt, &open, &err));
    SDC_TRY_OUT(st, sdc_ckpt_open(cli->operands.items[0], &open.options, &ckpt, &err));
    SDC_TRY_OUT(st, sdc_predict(ckpt, &choice, &options, &p, &err));
    st = a->json ? print_json(cli, ckpt, &p, &err) : print_text(cli, ckpt, &p, &err);
out:
    sdc_predict_release(&p);
    sdc_ckpt_close(ckpt);
    sdc_cli_ckpt_release(&open);
    sdc_choice_release(&choice);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    SDC_OPTS_SUPPORT(struct predict_args, words),
    {SDC_OPT_U64, "extreme", 0, offsetof(struct predict_args, extreme), "K", "20",
     "extreme is 2^K times the largest magnitude of the role, rounded up to a power of two", 1, 300,
     NULL},
    SDC_OPTS_CKPT(struct predict_args, ckpt),
    SDC_OPT_THREADS(struct predict_args, threads),
    SDC_OPT_JSON(struct predict_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_predict = {
    .name = "predict",
    .group = "Checkpoints",
    .summary = "what a flip of each bit would make of its value, without training",
    .operands = "FILE",
    .details =
        "Classifies every site that alter could flip (the same words choose the support) by what\n"
        "the value becomes. Each site is in exactly one class, the first that holds, so the "
        "classes\n"
        "add up to the support: integer; kept-nonfinite, made-finite (was NaN or Inf); to-nan;\n"
        "to-inf; sign; to-extreme; from-zero, to-zero (subnormals count as zero); then by "
        "relative\n"
        "change |new - old| / |old|: grow (above 1), change-1 (down to 1/8), change-1/8 (to "
        "2^-7),\n"
        "change-2^-7 (to 2^-11), change-2^-11 (the rest). q is the share of to-nan, to-inf and\n"
        "to-extreme.",
    .examples = "  sdclab predict step300.h5 --part model\n"
                "  sdclab predict model.safetensors --bits exponent --role weight --json",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct predict_args),
    .run = run,
};
