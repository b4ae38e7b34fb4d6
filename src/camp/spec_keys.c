/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of keys and the reading of one value. Order of the table: enum sdc_key, then enum
 * sdc_spec_global.
 */
#include "camp/spec_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

#define STEPS_MAX 1000000000u

const struct sdc_spec_entry sdc__spec_entries[SDC_SPEC_ENTRIES] = {
    [SDC_KEY_TRAINER] = {"trainer", SDC_VALUE_WORD, .words = "native",
                         .later = "real torch-ddp horovod keras command", .def = "native",
                         .help = "what trains: native, the built-in trainer"},
    [SDC_KEY_MODEL] = {"model", SDC_VALUE_WORD, .words = "mlp lenet5",
                       .later = "resnet20 alexnet vgg11 resnet18 resnet50", .def = "lenet5",
                       .help = "mlp or lenet5"},
    [SDC_KEY_KERNELS] = {"kernels", SDC_VALUE_WORD, .words = "onednn ref", .def = "onednn",
                         .help = "onednn (fast), or ref (plain C, the same bits everywhere)"},
    [SDC_KEY_PRECISION] = {"precision", SDC_VALUE_WORD, .words = "f32", .later = "f64 f16 bf16",
                           .def = "f32", .help = "number format of state and computation"},
    [SDC_KEY_DATA_NAME] = {"data.name", SDC_VALUE_WORD, .words = "fashion-mnist synthetic",
                           .later = "cifar-10 cifar-100", .def = "fashion-mnist",
                           .help = "fashion-mnist (Debian's dataset-fashion-mnist), or synthetic\n"
                                   "(needs no file)"},
    [SDC_KEY_DATA_PATH] = {"data.path", SDC_VALUE_PATH, .def = "",
                           .help = "folder of the data set; null: the system's"},
    [SDC_KEY_DATA_LIMIT] = {"data.limit", SDC_VALUE_U64, .max = 1000000000, .def = "0",
                            .help = "use the first so many training samples; 0: all"},
    [SDC_KEY_BATCH] = {"batch", SDC_VALUE_U64, .min = 1, .max = 65536, .def = "64",
                       .help = "samples per rank and step"},
    [SDC_KEY_OPTIMIZER_NAME] = {"optimizer.name", SDC_VALUE_WORD, .words = "sgd",
                                .later = "adam adamw", .def = "sgd",
                                .help = "sgd, with momentum and weight decay as in PyTorch"},
    [SDC_KEY_OPTIMIZER_LR] = {"optimizer.lr", SDC_VALUE_F64, .fmin = 0, .fmax = 1e6, .def = "0.05",
                              .help = "learning rate"},
    [SDC_KEY_OPTIMIZER_MOMENTUM] = {"optimizer.momentum", SDC_VALUE_F64, .fmin = 0, .fmax = 1,
                                    .def = "0.9",
                                    .help = "0: the optimizer has no state that could be hit"},
    [SDC_KEY_OPTIMIZER_WEIGHT_DECAY] = {"optimizer.weight_decay", SDC_VALUE_F64, .fmin = 0,
                                        .fmax = 1e6, .def = "0.0", .help = "L2 penalty"},
    [SDC_KEY_SCHEDULE] = {"schedule", SDC_VALUE_WORD, .words = "constant",
                          .later = "step cosine plateau", .def = "constant",
                          .help = "of the learning rate"},
    [SDC_KEY_RANKS] = {"ranks", SDC_VALUE_U64, .min = 1, .max = SDC_MAX_RANKS, .def = "2",
                       .help = "N, processes of the training job"},
    [SDC_KEY_RECIPE] = {"recipe", SDC_VALUE_RECIPE, .def = "ddp/after-wrap-all",
                        .help =
                            "strategy with its load convention: who reads the checkpoint, what\n"
                            "is broadcast afterwards"},
    [SDC_KEY_ALTERED_RANKS] =
        {"altered_ranks", SDC_VALUE_ALTERED, .def = "one",
         .help = "which ranks get the altered file: rank:0, rank:3, one (drawn),\n"
                 "k:4 (so many, drawn), half, all"},
    [SDC_KEY_SPREAD] = {"spread", SDC_VALUE_WORD, .words = "same", .later = "independent split",
                        .def = "same", .help = "same: the same sites on each altered rank"},
    [SDC_KEY_PART] = {"part", SDC_VALUE_CHOICE, .def = "model",
                      .help = "part of the state that is hit: model, optimizer, loop"},
    [SDC_KEY_ROLE] = {"role", SDC_VALUE_CHOICE, .def = "any",
                      .help = "roles that are hit: any, weight, bias, momentum, ..."},
    [SDC_KEY_DTYPE] = {"dtype", SDC_VALUE_CHOICE, .def = "any",
                       .help = "number formats that are hit: any, F32, I64, ..."},
    [SDC_KEY_TENSORS] = {"tensors", SDC_VALUE_GLOBS, .def = "",
                         .help = "names or globs of tensors that are hit; []: all"},
    [SDC_KEY_NOT_TENSORS] = {"not_tensors", SDC_VALUE_GLOBS, .def = "",
                             .help = "names or globs of tensors that are spared"},
    [SDC_KEY_FLIPS] = {"flips", SDC_VALUE_U64, .max = 100000000, .def = "1",
                       .help = "distinct sites in each altered file"},
    [SDC_KEY_SAMPLE] =
        {"sample", SDC_VALUE_CHOICE, .def = "bits",
         .help =
             "bits, tensors, elements, bytes, stratified or attempts, see docs/user/altering.md"},
    [SDC_KEY_BITS] = {"bits", SDC_VALUE_CHOICE, .def = "any",
                      .help = "any, sign, exponent, mantissa, top-exponent, lsb:0-22, msb:1, ..."},
    [SDC_KEY_OP] = {"op", SDC_VALUE_CHOICE, .def = "flip",
                    .help = "flip, set0, set1, burst=K, scale=F, value=X, random, swap, ..."},

    [SDC_SPEC_NAME] = {"campaign", SDC_VALUE_NAME, .help = "name; results go to NAME.sdcrun/"},
    [SDC_SPEC_SEED] = {"seed", SDC_VALUE_U64, .max = INT64_MAX, .def = "0",
                       .help = "every random choice comes from it"},
    [SDC_SPEC_CLUSTERS] = {"baseline.seeds", SDC_VALUE_U64, .min = 1, .max = 10000, .def = "3",
                           .help = "K independent trainings (clusters); claims need 20"},
    [SDC_SPEC_CHECKPOINTS] = {"baseline.checkpoints", SDC_VALUE_U64S, .min = 1, .max = STEPS_MAX,
                              .def = "300",
                              .help = "steps at which training is altered, ascending"},
    [SDC_SPEC_WINDOW] = {"window.steps", SDC_VALUE_U64, .min = 1, .max = STEPS_MAX, .def = "40",
                         .help = "steps that are trained after the restart"},
    [SDC_SPEC_EVAL_SAMPLES] = {"window.eval_samples", SDC_VALUE_U64, .max = 1000000000,
                               .def = "2000",
                               .help = "of the test set, at the end; 0: no evaluation"},
    [SDC_SPEC_DIGEST_EVERY] = {"window.digest_every", SDC_VALUE_U64, .min = 1, .max = STEPS_MAX,
                               .def = "10", .help = "steps between digests of every rank's state"},
    [SDC_SPEC_E0] = {"clean.e0", SDC_VALUE_U64, .min = 1, .max = 10000, .def = "3",
                     .help = "clean replicas with half of all lowest mantissa bits flipped: what\n"
                             "rounding can do; 59 give 95 % limits at 95 % confidence"},
    [SDC_SPEC_E1] = {"clean.e1", SDC_VALUE_U64, .min = 1, .max = 10000, .def = "3",
                     .help = "clean replicas with another data order after the restart"},
    [SDC_SPEC_TRIALS] = {"trials", SDC_VALUE_U64, .min = 1, .max = 1000000, .def = "6",
                         .help = "per cell, spread evenly over the clusters"},
    [SDC_SPEC_MARGIN] = {"margin", SDC_VALUE_F64, .fmin = 1e-6, .fmax = 1, .def = "0.02",
                         .help = "a difference of shares below which two arms count as equivalent"},
    [SDC_SPEC_CLAIMS] = {"claims", SDC_VALUE_WORDS, .words = "H1a H3", .later = "H1b H1c H1m H2",
                         .def = "",
                         .help =
                             "H1a: Horovod's recipe collapses less often than DDP's\n"
                             "H3: faults in the model collapse more often than in the optimizer"},
    [SDC_SPEC_PAIR_OVER] = {"pair_over", SDC_VALUE_WORDS, .def = "",
                            .words = "recipe part altered_ranks kernels",
                            .help = "factors whose levels get the same faults, seeds and batches"},
    [SDC_SPEC_PLACEBO] = {"controls.placebo", SDC_VALUE_U64, .min = 1, .max = 1000, .def = "1",
                          .help = "per golden run: nothing altered, must equal it bit for bit"},
    [SDC_SPEC_ONE_LSB] = {"controls.one_lsb", SDC_VALUE_U64, .min = 1, .max = 1000, .def = "1",
                          .help = "one lowest bit: must differ, and stay inside the clean spread"},
    [SDC_SPEC_ALL_NAN] = {"controls.all_nan", SDC_VALUE_U64, .min = 1, .max = 1000, .def = "1",
                          .help = "all weights NaN on all ranks: must collapse"},
    [SDC_SPEC_EXTREME] = {"thresholds.extreme", SDC_VALUE_F64, .fmin = 1, .fmax = 1e30,
                          .def = "1000000.0",
                          .help = "a parameter over this many times the clean maximum is extreme"},
    [SDC_SPEC_DEGRADED] = {"thresholds.degraded", SDC_VALUE_F64, .fmin = 0, .fmax = 1,
                           .def = "0.05",
                           .help = "accuracy so far below the clean twin's is degraded"},
    [SDC_SPEC_CHANCE] = {"thresholds.chance", SDC_VALUE_F64, .fmin = 0, .fmax = 1, .def = "0.02",
                         .help = "accuracy at most so far above chance is failed"},
};

const char *sdc__key_path(enum sdc_key key) {
    return sdc__spec_entries[key].path;
}

enum sdc_key_class sdc__key_class(enum sdc_key key) {
    static const enum sdc_key_class classes[SDC_KEY_COUNT] = {
#define SDC_KEY_CLASS(name, path, class) SDC_KEYCLASS_##class,
        SDC_KEY_MAP(SDC_KEY_CLASS)
#undef SDC_KEY_CLASS
    };
    return classes[key];
}

void sdc__value_release(struct sdc_value *value) {
    sdc__free(value->text);
    *value = (struct sdc_value){0};
}

bool sdc__value_next(const char **rest, char *word, size_t size) {
    if (!*rest || **rest == '\0')
        return false;
    const char *end = strchr(*rest, '\n');
    size_t len = end ? (size_t)(end - *rest) : strlen(*rest);
    snprintf(word, size, "%.*s", (int)(len < size ? len : size - 1), *rest);
    *rest = end ? end + 1 : NULL;
    return true;
}

/* ---- words ---- */

static bool has_word(const char *words, const char *word) {
    size_t len = strlen(word);
    for (const char *w = words; w && len; w = strchr(w, ' ')) {
        w += *w == ' ';
        if (strncmp(w, word, len) == 0 && (w[len] == ' ' || w[len] == '\0'))
            return true;
    }
    return false;
}

/* " (did you mean 'x'?)" or "". */
static void suggest(const char *word, const char *words, char *text, size_t size) {
    char copy[512];
    const char *items[64];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    char *save = NULL;
    for (char *w = strtok_r(copy, " ", &save); w && n < 64; w = strtok_r(NULL, " ", &save))
        items[n++] = w;
    const char *near = sdc__nearest(word, items, n);
    snprintf(text, size, "%s%s%s", near ? " (did you mean '" : "", near ? near : "",
             near ? "'?)" : "");
}

static void with_commas(const char *words, char *text, size_t size) {
    size_t used = 0;
    for (const char *w = words; *w && used + 3 < size; w++) {
        if (*w == ' ')
            text[used++] = ',';
        text[used++] = *w;
    }
    text[used] = '\0';
}

/* Where a value stands, for messages. */
struct place {
    const struct sdc_spec_entry *entry;
    const struct sdc_node *node;
    const char *what;
    struct sdc_error *err;
};

static enum sdc_status wrong(const struct place *p, const char *expected) {
    char found[128];
    sdc__node_describe(p->node, found, sizeof found);
    return sdc__spec_error(p->err, SDC_INVALID, p->what, p->node->line, p->node->column,
                           "%s: expected %s, found %s", p->entry->path, expected, found);
}

static enum sdc_status check_word(const struct place *p, const char *word) {
    char hint[100], all[400];
    if (has_word(p->entry->words, word))
        return SDC_OK;
    with_commas(p->entry->words, all, sizeof all);
    if (p->entry->later && has_word(p->entry->later, word))
        return sdc__spec_error(p->err, SDC_UNSUPPORTED, p->what, p->node->line, p->node->column,
                               "%s: '%s' is not supported by this version, expected one of: %s",
                               p->entry->path, word, all);
    suggest(word, p->entry->words, hint, sizeof hint);
    return sdc__spec_error(p->err, SDC_INVALID, p->what, p->node->line, p->node->column,
                           "%s: found '%.100s'%s, expected one of: %s", p->entry->path, word, hint,
                           all);
}

static enum sdc_status check_recipe(const struct place *p, const char *name) {
    if (sdc_recipe_find(name))
        return SDC_OK;
    struct sdc_buf all = SDC_BUF_INIT;
    for (size_t i = 0; i < sdc_recipe_count(); i++)
        sdc__buf_printf(&all, "%s%s", i ? " " : "", sdc_recipe_at(i)->name);
    char hint[100] = "", list[400] = "";
    if (all.data) {
        suggest(name, all.data, hint, sizeof hint);
        with_commas(all.data, list, sizeof list);
    }
    sdc__buf_release(&all);
    return sdc__spec_error(p->err, SDC_INVALID, p->what, p->node->line, p->node->column,
                           "%s: found '%.100s'%s, expected one of: %s", p->entry->path, name, hint,
                           list);
}

bool sdc__altered_parse(const char *text, struct sdc_altered_ranks *out) {
    unsigned long long k;
    *out = (struct sdc_altered_ranks){0};
    if (strcmp(text, "one") == 0) {
        out->kind = SDC_ALTERED_ONE;
    } else if (strcmp(text, "half") == 0) {
        out->kind = SDC_ALTERED_HALF;
    } else if (strcmp(text, "all") == 0) {
        out->kind = SDC_ALTERED_ALL;
    } else if (strncmp(text, "rank:", 5) == 0 && sdc__parse_u64(text + 5, &k) &&
               k < SDC_MAX_RANKS) {
        out->kind = SDC_ALTERED_RANK;
        out->k = (uint32_t)k;
    } else if (strncmp(text, "k:", 2) == 0 && sdc__parse_u64(text + 2, &k) && k >= 1 &&
               k <= SDC_MAX_RANKS) {
        out->kind = SDC_ALTERED_K;
        out->k = (uint32_t)k;
    } else {
        return false;
    }
    return true;
}

enum sdc_status sdc__choice_put(struct sdc_choice *c, const char *path, const char *text,
                                struct sdc_error *err) {
    if (*text == '\0' || strcmp(text, "any") == 0)
        return SDC_OK;
    return sdc_choice_set(c, path, text, err);
}

static enum sdc_status check_choice(const struct place *p, const char *text) {
    struct sdc_choice c;
    struct sdc_error inner = {0};
    sdc_choice_init(&c);
    enum sdc_status st = sdc__choice_put(&c, p->entry->path, text, &inner);
    sdc_choice_release(&c);
    if (st == SDC_OK)
        return SDC_OK;
    return sdc__spec_error(p->err, st == SDC_USAGE ? SDC_INVALID : st, p->what, p->node->line,
                           p->node->column, "%s", inner.message);
}

/* ---- numbers ---- */

static enum sdc_status read_u64(const struct place *p, const struct sdc_node *node, uint64_t *out) {
    unsigned long long number;
    struct place at = {p->entry, node, p->what, p->err};
    char range[80];
    snprintf(range, sizeof range, "a whole number from %llu to %llu",
             (unsigned long long)p->entry->min, (unsigned long long)p->entry->max);
    if (node->kind != SDC_NODE_SCALAR || node->quoted || !sdc__parse_u64(node->text, &number) ||
        number < p->entry->min || number > p->entry->max)
        return wrong(&at, range);
    *out = number;
    return SDC_OK;
}

static enum sdc_status read_f64(const struct place *p, struct sdc_value *value) {
    double number;
    char range[80];
    snprintf(range, sizeof range, "a number from %g to %g", p->entry->fmin, p->entry->fmax);
    if (p->node->kind != SDC_NODE_SCALAR || p->node->quoted ||
        !sdc__parse_f64(p->node->text, &number) || !isfinite(number) || number < p->entry->fmin ||
        number > p->entry->fmax)
        return wrong(p, range);
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    value->f64 = number == 0 ? 0.0 : number; /* no -0 */
    sdc__jw_f64(&w, value->f64);
    value->text = sdc__buf_take(&b);
    return value->text ? SDC_OK : SDC_NOMEM(p->err, "a spec");
}

/* ---- lists ---- */

static enum sdc_status read_u64s(const struct place *p, struct sdc_buf *text) {
    if (p->node->kind != SDC_NODE_SEQUENCE || p->node->n == 0)
        return wrong(p, "a list of whole numbers");
    uint64_t before = 0;
    for (size_t i = 0; i < p->node->n; i++) {
        uint64_t number = 0;
        const struct sdc_node *item = p->node->items[i];
        SDC_TRY(read_u64(p, item, &number));
        if (i && number <= before)
            return sdc__spec_error(p->err, SDC_INVALID, p->what, item->line, item->column,
                                   "%s: %llu after %llu, expected ascending numbers",
                                   p->entry->path, (unsigned long long)number,
                                   (unsigned long long)before);
        before = number;
        sdc__buf_printf(text, "%s%llu", i ? "\n" : "", (unsigned long long)number);
    }
    return SDC_OK;
}

static enum sdc_status read_words(const struct place *p, struct sdc_buf *text) {
    if (p->node->kind != SDC_NODE_SEQUENCE)
        return wrong(p, "a list");
    for (size_t i = 0; i < p->node->n; i++) {
        const struct sdc_node *item = p->node->items[i];
        struct place at = {p->entry, item, p->what, p->err};
        if (item->kind != SDC_NODE_SCALAR)
            return wrong(&at, "a word");
        SDC_TRY(check_word(&at, item->text));
        for (size_t j = 0; j < i; j++)
            if (strcmp(p->node->items[j]->text, item->text) == 0)
                return sdc__spec_error(p->err, SDC_INVALID, p->what, item->line, item->column,
                                       "%s: '%s' is here twice", p->entry->path, item->text);
    }
    /* in the table's order, since the order means nothing */
    char all[400];
    snprintf(all, sizeof all, "%s", p->entry->words);
    char *save = NULL;
    for (char *w = strtok_r(all, " ", &save); w; w = strtok_r(NULL, " ", &save))
        for (size_t i = 0; i < p->node->n; i++)
            if (strcmp(p->node->items[i]->text, w) == 0)
                sdc__buf_printf(text, "%s%s", text->len ? "\n" : "", w);
    return SDC_OK;
}

/* Texts of a scalar or a list, joined. */
static enum sdc_status read_joined(const struct place *p, const char *glue, struct sdc_buf *text) {
    size_t n = p->node->kind == SDC_NODE_SEQUENCE ? p->node->n : 1;
    for (size_t i = 0; i < n; i++) {
        const struct sdc_node *item =
            p->node->kind == SDC_NODE_SEQUENCE ? p->node->items[i] : p->node;
        struct place at = {p->entry, item, p->what, p->err};
        if (item->kind != SDC_NODE_SCALAR || sdc__node_is_null(item))
            return wrong(&at, "a word or a list of words");
        if (*item->text == '\0' || strpbrk(item->text, "\n\r"))
            return wrong(&at, "a text without line breaks");
        sdc__buf_printf(text, "%s%s", i ? glue : "", item->text);
    }
    return SDC_OK;
}

/* ---- one value ---- */

static enum sdc_status read_scalar(const struct place *p, struct sdc_buf *text) {
    const struct sdc_node *node = p->node;
    if (node->kind != SDC_NODE_SCALAR)
        return wrong(p, "one word");
    if (p->entry->kind == SDC_VALUE_PATH) {
        if (!sdc__node_is_null(node))
            sdc__buf_puts(text, node->text);
        return SDC_OK;
    }
    sdc__buf_puts(text, node->text);
    if (p->entry->kind == SDC_VALUE_WORD)
        return check_word(p, node->text);
    if (p->entry->kind == SDC_VALUE_RECIPE)
        return check_recipe(p, node->text);
    if (p->entry->kind == SDC_VALUE_ALTERED) {
        struct sdc_altered_ranks a;
        if (!sdc__altered_parse(node->text, &a))
            return wrong(p, "rank:K, one, k:K, half or all");
        return SDC_OK;
    }
    size_t len = strlen(node->text);
    if (len == 0 || len > 64 || node->text[0] == '.' || node->text[0] == '-' ||
        strspn(node->text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") !=
            len)
        return wrong(
            p, "a name of at most 64 letters, digits, '-', '_' and '.', beginning with none of "
               "'-' and '.'");
    return SDC_OK;
}

enum sdc_status sdc__value_read(const struct sdc_spec_entry *entry, const struct sdc_node *node,
                                const char *what, struct sdc_value *value, struct sdc_error *err) {
    const struct place p = {entry, node, what, err};
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st = SDC_OK;
    *value = (struct sdc_value){.line = node->line, .column = node->column};
    switch (entry->kind) {
    case SDC_VALUE_U64:
        st = read_u64(&p, node, &value->u64);
        sdc__buf_printf(&text, "%llu", (unsigned long long)value->u64);
        break;
    case SDC_VALUE_F64:
        return read_f64(&p, value);
    case SDC_VALUE_U64S:
        st = read_u64s(&p, &text);
        break;
    case SDC_VALUE_WORDS:
        st = read_words(&p, &text);
        break;
    case SDC_VALUE_GLOBS:
        st = read_joined(&p, "\n", &text);
        break;
    case SDC_VALUE_CHOICE:
        st = read_joined(&p, ",", &text);
        if (st == SDC_OK)
            st = text.data ? check_choice(&p, text.data) : wrong(&p, "a word");
        break;
    default:
        st = read_scalar(&p, &text);
        break;
    }
    sdc__buf_puts(&text, ""); /* an empty text is a text */
    value->text = sdc__buf_take(&text);
    if (st == SDC_OK && !value->text)
        st = SDC_NOMEM(err, "a spec");
    if (st != SDC_OK)
        sdc__value_release(value);
    return st;
}

enum sdc_status sdc__value_default(const struct sdc_spec_entry *entry, struct sdc_value *value,
                                   struct sdc_error *err) {
    unsigned long long number = 0;
    *value = (struct sdc_value){.text = sdc__strdup(entry->def)};
    if (!value->text)
        return SDC_NOMEM(err, "a spec");
    bool fine = true;
    if (entry->kind == SDC_VALUE_U64)
        fine = sdc__parse_u64(entry->def, &number);
    else if (entry->kind == SDC_VALUE_F64)
        fine = sdc__parse_f64(entry->def, &value->f64);
    value->u64 = number;
    return fine ? SDC_OK
                : SDC_ERR(err, SDC_INTERNAL, "the default '%s' of %s is no number", entry->def,
                          entry->path);
}

void sdc__value_json(struct sdc_jw *w, const struct sdc_spec_entry *entry,
                     const struct sdc_value *value) {
    char word[4200];
    const char *rest = value->text;
    switch (entry->kind) {
    case SDC_VALUE_U64:
        sdc__jw_u64(w, value->u64);
        break;
    case SDC_VALUE_F64:
        sdc__jw_f64(w, value->f64);
        break;
    case SDC_VALUE_PATH:
        sdc__jw_str(w, *value->text ? value->text : NULL);
        break;
    case SDC_VALUE_U64S:
    case SDC_VALUE_WORDS:
    case SDC_VALUE_GLOBS:
        sdc__jw_arr(w);
        while (sdc__value_next(&rest, word, sizeof word)) {
            unsigned long long number;
            if (entry->kind == SDC_VALUE_U64S && sdc__parse_u64(word, &number))
                sdc__jw_u64(w, number);
            else
                sdc__jw_str(w, word);
        }
        sdc__jw_arr_end(w);
        break;
    default:
        sdc__jw_str(w, value->text);
        break;
    }
}
