/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "cli/audit_text.h"
#include "cli/ckpt_options.h"
#include "cli/commands.h"
#include "sdc/audit.h"

/* Findings of one kind without --verbose. */
#define MAX_ROWS 20

struct verify_args {
    const char *seal;
    bool finite, require, json;
    uint64_t threads;
    struct sdc_cli_ckpt_args ckpt;
};

static const char *const kinds[] = {[SDC_FINDING_DAMAGE] = "damage",
                                    [SDC_FINDING_NOT_CHECKED] = "not checked",
                                    [SDC_FINDING_NONFINITE] = "not finite",
                                    [SDC_FINDING_NOTE] = "note"};

/* One place decides. */
static const char *verdict(const struct sdc_verify *v) {
    return v->n_damage > 0        ? "damaged"
           : v->n_not_checked > 0 ? "no damage found, but not everything could be checked"
                                  : "sound";
}

static bool failed(const struct verify_args *a, const struct sdc_verify *v) {
    return v->n_damage > 0 || v->n_nonfinite > 0 || (a->require && v->n_not_checked > 0);
}

/* ---- text ---- */

static void finding_row(struct sdc_text_table *table, const struct sdc_ckpt *ckpt,
                        const struct sdc_finding *f) {
    char first[1024], last[1024];
    size_t i;
    sdc_text_cell(table, "%s", kinds[f->kind]);
    sdc_text_cell(table, "%s", f->object ? f->object : "");
    if (!f->has_elem || !ckpt || !f->object || !sdc_ckpt_find(ckpt, f->object, &i)) {
        sdc_text_cell(table, "%s", f->text);
        return;
    }
    sdc_tensor_index_text(sdc_ckpt_tensor(ckpt, i), f->first_elem, first, sizeof first);
    sdc_tensor_index_text(sdc_ckpt_tensor(ckpt, i), f->last_elem, last, sizeof last);
    if (f->first_elem == f->last_elem)
        sdc_text_cell(table, "%s, first at %s", f->text, first);
    else
        sdc_text_cell(table, "%s: %s to %s", f->text, first, last);
}

static enum sdc_status print_findings(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                      const struct sdc_verify *v, struct sdc_error *err) {
    struct sdc_text_table table = {.columns = "lll"};
    uint64_t left_out = 0;
    for (int kind = SDC_FINDING_DAMAGE; kind <= SDC_FINDING_NOTE; kind++) {
        uint64_t shown = 0;
        for (size_t i = 0; i < v->n_findings; i++) {
            if ((int)v->findings[i].kind != kind)
                continue;
            if (shown == MAX_ROWS && !cli->verbose)
                left_out++;
            else
                shown++, finding_row(&table, ckpt, &v->findings[i]);
        }
    }
    SDC_TRY(sdc_text_table_print(&table, cli->out, err));
    if (left_out > 0)
        fprintf(cli->out, "  and %llu more (--verbose lists all)\n", (unsigned long long)left_out);
    return SDC_OK;
}

static void print_sums(struct sdc_cli *cli, const struct sdc_verify *v) {
    char n[SDC_TEXT_COUNT];
    fprintf(cli->out, "stored checksums: ");
    if (v->n_sums == 0) {
        fprintf(cli->out, "not checked, the file has none\n");
        return;
    }
    uint64_t checked = v->n_sums - v->n_sums_unknown;
    fprintf(cli->out, "%s checked", sdc_text_of_count(checked, n));
    fprintf(cli->out, ", %s wrong", sdc_text_of_count(v->n_sums_wrong, n));
    if (v->n_sums_unknown > 0)
        fprintf(cli->out, ", %s not checked", sdc_text_of_count(v->n_sums_unknown, n));
    fputc('\n', cli->out);
}

static enum sdc_status print_text(struct sdc_cli *cli, const struct sdc_ckpt *ckpt,
                                  const struct sdc_verify *v, struct sdc_error *err) {
    char n[SDC_TEXT_COUNT];
    fprintf(cli->out, "%s: ", cli->operands.items[0]);
    if (v->opened)
        fprintf(cli->out, "%s, %llu file%s, %s tensor%s\nstructure: sound\n", v->format,
                (unsigned long long)v->n_files, sdc_text_plural(v->n_files),
                sdc_text_of_count(v->n_tensors, n), sdc_text_plural(v->n_tensors));
    else
        fprintf(cli->out, "cannot be read\nstructure: damaged\n");
    if (v->opened)
        print_sums(cli, v);
    fprintf(cli->out, "seal: %s\n",
            v->seal == SDC_SEAL_MATCHES   ? "every file is as sealed"
            : v->seal == SDC_SEAL_DIFFERS ? "differs"
                                          : "not checked, there is none");
    SDC_TRY(print_findings(cli, ckpt, v, err));
    fprintf(cli->out, "%s\n", verdict(v));
    return SDC_OK;
}

/* ---- JSON ---- */

static void json_finding(struct sdc_jw *w, const struct sdc_finding *f) {
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "kind", kinds[f->kind]);
    sdc__jw_kstr(w, "object", f->object);
    sdc__jw_kstr(w, "text", f->text);
    if (f->has_elem) {
        sdc__jw_ku64(w, "first_elem", f->first_elem);
        sdc__jw_ku64(w, "last_elem", f->last_elem);
    }
    sdc__jw_obj_end(w);
}

static enum sdc_status print_json(struct sdc_cli *cli, const struct verify_args *a,
                                  const struct sdc_verify *v, struct sdc_error *err) {
    static const char *const seals[] = {[SDC_SEAL_NONE] = "not checked",
                                        [SDC_SEAL_MATCHES] = "matches",
                                        [SDC_SEAL_DIFFERS] = "differs"};
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "schema", "sdclab.verify/1");
    sdc__jw_kstr(&w, "file", cli->operands.items[0]);
    sdc__jw_kstr(&w, "format", v->format);
    sdc__jw_kbool(&w, "opened", v->opened);
    sdc__jw_kstr(&w, "verdict",
                 v->n_damage > 0        ? "damaged"
                 : v->n_not_checked > 0 ? "not checked"
                                        : "sound");
    sdc__jw_kbool(&w, "failed", failed(a, v));
    sdc__jw_ku64(&w, "files", v->n_files);
    sdc__jw_ku64(&w, "tensors", v->n_tensors);
    sdc__jw_ku64(&w, "covered", v->n_covered);
    sdc__jw_key(&w, "checksums");
    sdc__jw_obj(&w);
    sdc__jw_ku64(&w, "stored", v->n_sums);
    sdc__jw_ku64(&w, "wrong", v->n_sums_wrong);
    sdc__jw_ku64(&w, "not_checked", v->n_sums_unknown);
    sdc__jw_obj_end(&w);
    sdc__jw_kstr(&w, "seal", seals[v->seal]);
    sdc__jw_kstr(&w, "seal_path", v->seal == SDC_SEAL_NONE ? NULL : v->seal_path);
    sdc__jw_kbool(&w, "finite_checked", a->finite && v->opened);
    sdc__jw_key(&w, "findings");
    sdc__jw_arr(&w);
    for (size_t i = 0; i < v->n_findings; i++)
        json_finding(&w, &v->findings[i]);
    sdc__jw_arr_end(&w);
    sdc__jw_obj_end(&w);
    return sdc_json_print(&text, cli->out, err);
}

/* Indices are shown with the tensors' shapes. */
static enum sdc_status print(struct sdc_cli *cli, const struct verify_args *a,
                             const struct sdc_ckpt_options *open, const struct sdc_verify *v,
                             struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    if (a->json)
        return print_json(cli, a, v, err);
    if (v->opened)
        SDC_TRY(sdc_ckpt_open(cli->operands.items[0], open, &ckpt, err));
    enum sdc_status st = print_text(cli, ckpt, v, err);
    sdc_ckpt_close(ckpt);
    return st;
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct verify_args *a = args;
    struct sdc_verify_options options = {
        .seal = a->seal, .finite = a->finite, .threads = (unsigned)a->threads};
    struct sdc_cli_ckpt open = {0};
    struct sdc_verify v = {0};
    struct sdc_error err;
    enum sdc_status st;
    int code = SDC_EXIT_DONE;
    SDC_TRY_OUT(st, sdc_cli_ckpt_init(&a->ckpt, &open, &err));
    options.open = &open.options;
    SDC_TRY_OUT(st, sdc_verify(cli->operands.items[0], &options, &v, &err));
    SDC_TRY_OUT(st, print(cli, a, &open.options, &v, &err));
    code = failed(a, &v) ? SDC_EXIT_FOUND : SDC_EXIT_DONE;
out:
    sdc_verify_release(&v);
    sdc_cli_ckpt_release(&open);
    return st == SDC_OK ? code : sdc_cli_fail(cli, &err);
}

static const struct sdc_opt options[] = {
    {SDC_OPT_STR, "seal", 0, offsetof(struct verify_args, seal), "FILE", NULL,
     "compare with this seal, not with FILE.seal", 0, 0, NULL},
    {SDC_OPT_FLAG, "finite", 0, offsetof(struct verify_args, finite), NULL, NULL,
     "list tensors with NaN or infinities, and exit 1 if there are any", 0, 0, NULL},
    {SDC_OPT_FLAG, "require-checksums", 0, offsetof(struct verify_args, require), NULL, NULL,
     "exit 1 if something could not be checked", 0, 0, NULL},
    SDC_OPTS_CKPT(struct verify_args, ckpt),
    SDC_OPT_THREADS(struct verify_args, threads),
    SDC_OPT_JSON(struct verify_args, json),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_verify = {
    .name = "verify",
    .group = "Checkpoints",
    .summary = "is a checkpoint damaged, and where; exit 0 if no damage was found, 1 if some was",
    .operands = "FILE",
    .details =
        "Reads the structure, recomputes every stored checksum, decodes what is compressed, and\n"
        "compares with FILE.seal if there is one (see seal): file by file, and where these differ\n"
        "tensor by tensor, with the elements between which the first difference lies. What "
        "nothing\n"
        "vouches for, neither a stored checksum nor a seal, is 'not checked'. A file that is cut\n"
        "short or makes no sense is damaged (exit 1); one of a kind that is not supported is\n"
        "refused (exit 3). Nothing is ever changed.",
    .examples = "  sdclab verify step300.h5\n"
                "  sdclab verify --finite --require-checksums model.safetensors",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .args_size = sizeof(struct verify_args),
    .run = run,
};
