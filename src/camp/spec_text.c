/* SPDX-License-Identifier: Apache-2.0
 *
 * Specs as text: the resolved form and its comparison, and the commented spec of `campaign init`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "camp/spec_internal.h"

/* ---- resolved ---- */

static int by_path(const void *a, const void *b) {
    const int *x = a, *y = b;
    return strcmp(sdc__spec_entries[*x].path, sdc__spec_entries[*y].path);
}

/* "optimizer" of "optimizer.lr", "" of "batch". */
static void section_of(const char *path, char *section, size_t size) {
    const char *dot = strchr(path, '.');
    snprintf(section, size, "%.*s", dot ? (int)(dot - path) : 0, path);
}

static void write_factors(struct sdc_jw *w, const struct sdc_spec *spec) {
    sdc__jw_key(w, "factors");
    sdc__jw_obj(w);
    for (size_t f = 0; f < spec->n_factors; f++) {
        sdc__jw_key(w, spec->factors[f].path);
        sdc__jw_arr(w);
        for (size_t i = 0; i < spec->factors[f].n_levels; i++)
            sdc__value_json(w, &sdc__spec_entries[spec->factors[f].key],
                            &spec->factors[f].levels[i]);
        sdc__jw_arr_end(w);
    }
    sdc__jw_obj_end(w);
}

enum sdc_status sdc__spec_resolve(struct sdc_spec_draft *d, struct sdc_error *err) {
    struct sdc_spec *spec = d->spec;
    int order[SDC_SPEC_ENTRIES];
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++)
        order[i] = i;
    qsort(order, SDC_SPEC_ENTRIES, sizeof order[0], by_path);
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    char open[64] = "", section[64];
    bool factors_written = false;
    sdc__jw_obj(&w);
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++) {
        const struct sdc_spec_entry *e = &sdc__spec_entries[order[i]];
        if (order[i] < SDC_KEY_COUNT && sdc__spec_factor(spec, (enum sdc_key)order[i]))
            continue;
        section_of(e->path, section, sizeof section);
        if (strcmp(section, open) != 0) {
            if (*open)
                sdc__jw_obj_end(&w);
        }
        if (!factors_written && strcmp(e->path, "factors") > 0) {
            write_factors(&w, spec);
            factors_written = true;
        }
        if (strcmp(section, open) != 0) {
            if (*section) {
                sdc__jw_key(&w, section);
                sdc__jw_obj(&w);
            }
            snprintf(open, sizeof open, "%s", section);
        }
        sdc__jw_key(&w, *section ? e->path + strlen(section) + 1 : e->path);
        sdc__value_json(&w, e,
                        order[i] < SDC_KEY_COUNT ? &spec->fixed[order[i]] : &d->values[order[i]]);
    }
    if (*open)
        sdc__jw_obj_end(&w);
    sdc__jw_obj_end(&w);
    spec->resolved = sdc__buf_take(&b);
    if (!spec->resolved)
        return SDC_NOMEM(err, "a resolved spec");
    struct sdc_digest digest = sdc__xxh3_128(spec->resolved, strlen(spec->resolved));
    sdc__digest_text(&digest, spec->hash);
    return SDC_OK;
}

/* ---- comparison ---- */

static void value_text(const struct sdc_json *v, char *text, size_t size) {
    struct sdc_buf b = SDC_BUF_INIT;
    const char *s = NULL;
    double number = 0;
    struct sdc_error ignored;
    size_t n;
    switch (v ? sdc__json_type(v) : SDC_JSON_NULL) {
    case SDC_JSON_STRING:
        if (sdc__json_as_str(v, "", &s, &ignored) == SDC_OK)
            sdc__buf_puts(&b, s);
        break;
    case SDC_JSON_INT:
    case SDC_JSON_REAL:
        if (sdc__json_as_f64(v, "", &number, &ignored) == SDC_OK)
            sdc__buf_printf(&b, "%.15g", number);
        break;
    case SDC_JSON_ARRAY:
        n = sdc__json_count(v);
        sdc__buf_putc(&b, '[');
        for (size_t i = 0; i < n; i++) {
            char item[128];
            value_text(sdc__json_at(v, i), item, sizeof item);
            sdc__buf_printf(&b, "%s%s", i ? ", " : "", item);
        }
        sdc__buf_putc(&b, ']');
        break;
    default:
        sdc__buf_puts(&b, v && sdc__json_type(v) == SDC_JSON_OBJECT ? "{...}" : "none");
        break;
    }
    snprintf(text, size, "%s", b.data ? b.data : "");
    sdc__buf_release(&b);
}

static void add_difference(struct sdc_buf *out, const char *path, const struct sdc_json *a,
                           const struct sdc_json *b) {
    char x[160], y[160];
    value_text(a, x, sizeof x);
    value_text(b, y, sizeof y);
    if (strcmp(x, y) != 0 || !a != !b)
        sdc__buf_printf(out, "%s%s (%s in the store, %s here)", out->len ? "; " : "", path,
                        a ? x : "none", b ? y : "none");
}

static void compare(struct sdc_buf *out, const char *prefix, const struct sdc_json *a,
                    const struct sdc_json *b) {
    char path[200];
    for (const char *k = sdc__json_next_key(a, NULL); k; k = sdc__json_next_key(a, k)) {
        const struct sdc_json *x = sdc__json_get(a, k), *y = sdc__json_get(b, k);
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", k);
        if (y && sdc__json_type(x) == SDC_JSON_OBJECT && sdc__json_type(y) == SDC_JSON_OBJECT)
            compare(out, path, x, y);
        else
            add_difference(out, path, x, y);
    }
    for (const char *k = sdc__json_next_key(b, NULL); k; k = sdc__json_next_key(b, k)) {
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", k);
        if (!sdc__json_get(a, k))
            add_difference(out, path, NULL, sdc__json_get(b, k));
    }
}

enum sdc_status sdc__spec_same(const char *stored, const char *given, const char *what,
                               struct sdc_error *err) {
    if (strcmp(stored, given) == 0)
        return SDC_OK;
    struct sdc_json *a = NULL, *b = NULL;
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__json_parse(stored, strlen(stored), "stored spec", &a, err));
    SDC_TRY_OUT(st, sdc__json_parse(given, strlen(given), "spec", &b, err));
    compare(&text, "", a, b);
    st = SDC_ERR(err, SDC_MISMATCH,
                 "%s was made from another spec and is continued only by the same one (use another "
                 "folder, or remove that one); these keys differ: %.700s",
                 what, text.data ? text.data : "(in their text only)");
out:
    sdc__json_free(a);
    sdc__json_free(b);
    sdc__buf_release(&text);
    return st;
}

/* ---- the commented spec ---- */

/* A line "key: value" of an entry with its help in comments before it. */
static void template_entry(struct sdc_buf *out, const char *path, const char *indent,
                           const char *value) {
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++) {
        const struct sdc_spec_entry *e = &sdc__spec_entries[i];
        if (strcmp(e->path, path) != 0)
            continue;
        char line[200];
        for (const char *rest = e->help; sdc__value_next(&rest, line, sizeof line);)
            sdc__buf_printf(out, "%s# %s\n", indent, line);
        const char *dot = strchr(path, '.');
        sdc__buf_printf(out, "%s%s: %s\n", indent, *indent && dot ? dot + 1 : path, value);
    }
}

struct template_line {
    const char *path;  /* NULL: text alone */
    const char *value; /* or the text; NULL: the default */
};

/* In the order of reading: what is trained, what is compared, what is hit, how it is judged. */
static const struct template_line template_lines[] = {
    {NULL, "\n# ---- what is trained ----\n\n"},
    {"trainer", NULL},
    {"model", NULL},
    {"kernels", NULL},
    {"precision", NULL},
    {NULL, "data:\n"},
    {"data.name", NULL},
    {"data.path", "null"},
    {"data.limit", NULL},
    {"batch", NULL},
    {NULL, "optimizer:\n"},
    {"optimizer.name", NULL},
    {"optimizer.lr", NULL},
    {"optimizer.momentum", NULL},
    {"optimizer.weight_decay", NULL},
    {"schedule", NULL},
    {NULL, "baseline:\n"},
    {"baseline.seeds", NULL},
    {"baseline.checkpoints", "[300]"},
    {NULL, "\n# ---- what is compared ----\n\n"
           "# Every key of what is trained and of what is hit is either set once, or a factor\n"
           "# with a list of levels. Every combination of levels is a cell. Paths are dotted:\n"
           "# optimizer.momentum: [0.0, 0.9]\nfactors:\n"},
    {"recipe", "[ddp/after-wrap-all, horovod/rank0-broadcast]"},
    {"ranks", "[2, 4]"},
    {"part", "[model, optimizer]"},
    {"flips", "[1, 10, 100]"},
    {"altered_ranks", "[one, all]"},
    {"pair_over", "[recipe, part]"},
    {"trials", NULL},
    {NULL, "\n# ---- what is hit ----\n\n"},
    {"spread", NULL},
    {"role", NULL},
    {"dtype", NULL},
    {"tensors", "[]"},
    {"not_tensors", "[]"},
    {"sample", NULL},
    {"bits", NULL},
    {"op", NULL},
    {NULL, "\n# ---- how it is judged ----\n\nwindow:\n"},
    {"window.steps", NULL},
    {"window.eval_samples", NULL},
    {"window.digest_every", NULL},
    {NULL, "clean:\n"},
    {"clean.e0", NULL},
    {"clean.e1", NULL},
    {NULL, "controls:\n"},
    {"controls.placebo", NULL},
    {"controls.one_lsb", NULL},
    {"controls.all_nan", NULL},
    {NULL, "thresholds:\n"},
    {"thresholds.extreme", NULL},
    {"thresholds.degraded", NULL},
    {"thresholds.chance", NULL},
    {"claims", "[H1a, H3]"},
    {"margin", NULL},
};

void sdc__spec_template(const char *name, struct sdc_buf *out) {
    sdc__buf_puts(out, "# A campaign of sdclab. 'sdclab campaign plan FILE' shows what would run,\n"
                       "# 'sdclab campaign run FILE' runs it. Every key but 'campaign' has a "
                       "default;\n# values shown without a factor are the defaults.\n\n");
    template_entry(out, "campaign", "", name);
    template_entry(out, "seed", "", "2022");
    bool factors = false;
    for (size_t i = 0; i < sizeof template_lines / sizeof template_lines[0]; i++) {
        const struct template_line *t = &template_lines[i];
        if (!t->path) {
            sdc__buf_puts(out, t->value);
            factors = strstr(t->value, "factors:\n") != NULL;
            continue;
        }
        const char *value = t->value;
        for (int e = 0; e < SDC_SPEC_ENTRIES && !value; e++)
            if (strcmp(sdc__spec_entries[e].path, t->path) == 0)
                value = sdc__spec_entries[e].def;
        if (factors && strcmp(t->path, "pair_over") == 0)
            factors = false;
        bool inside = factors || strchr(t->path, '.');
        template_entry(out, t->path, inside ? "  " : "", value ? value : "");
    }
}
