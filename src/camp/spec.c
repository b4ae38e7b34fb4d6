/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a spec: the tree of nodes into values of the table's keys, the values into the struct.
 */
#include "camp/spec.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "camp/spec_internal.h"
#include "io/io.h"

struct reader {
    struct sdc_spec_draft *draft;
    const char *what;
    struct sdc_error *err;
};

/* Keys of designs that this version does not run. */
static const char *const later_keys[] = {
    "looks",      "stop", "window.follow", "freeze",   "window.horizons", "rate",
    "exhaustive", "at",   "live",          "detectors"};

static bool is_later(const char *path) {
    for (size_t i = 0; i < sizeof later_keys / sizeof later_keys[0]; i++)
        if (strcmp(later_keys[i], path) == 0)
            return true;
    return false;
}

/* Index of the entry with this path, or -1. */
static int find_entry(const char *path) {
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++)
        if (strcmp(sdc__spec_entries[i].path, path) == 0)
            return i;
    return -1;
}

/* True if some entry lies below this path. */
static bool is_section(const char *path) {
    size_t len = strlen(path);
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++)
        if (strncmp(sdc__spec_entries[i].path, path, len) == 0 &&
            sdc__spec_entries[i].path[len] == '.')
            return true;
    return false;
}

static enum sdc_status unknown_key(const struct reader *r, const struct sdc_node *key,
                                   const char *prefix, bool factors) {
    char path[256], names[SDC_SPEC_ENTRIES + 1][64];
    const char *items[SDC_SPEC_ENTRIES + 1];
    size_t n = 0, len = strlen(prefix);
    snprintf(path, sizeof path, "%s%s%.100s", prefix, len ? "." : "", key->text);
    if (is_later(path))
        return sdc__spec_error(r->err, SDC_UNSUPPORTED, r->what, key->line, key->column,
                               "the key '%s' is not supported by this version", path);
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++) {
        const char *name = sdc__spec_entries[i].path;
        if (factors ? i >= SDC_KEY_COUNT
                    : (len && (strncmp(name, prefix, len) != 0 || name[len] != '.')))
            continue;
        snprintf(names[n], sizeof names[n], "%s", factors || !len ? name : name + len + 1);
        if (!factors && !len)
            names[n][strcspn(names[n], ".")] = '\0';
        items[n] = names[n];
        n++;
    }
    items[n++] = factors || len ? "" : "factors";
    const char *near = sdc__nearest(key->text, items, n);
    bool hint = near && *near;
    return sdc__spec_error(r->err, SDC_INVALID, r->what, key->line, key->column, "%s '%s'%s%s%s",
                           factors ? "no factor is called" : "unknown key",
                           factors ? key->text : path, hint ? " (did you mean '" : "",
                           hint ? near : "", hint ? "'?)" : "");
}

/* ---- factors ---- */

static enum sdc_status read_level(const struct reader *r, struct sdc_factor *f,
                                  const struct sdc_node *node) {
    struct sdc_value value;
    SDC_TRY(sdc__value_read(&sdc__spec_entries[f->key], node, r->what, &value, r->err));
    for (size_t i = 0; i < f->n_levels; i++)
        if (strcmp(f->levels[i].text, value.text) == 0) {
            enum sdc_status st =
                sdc__spec_error(r->err, SDC_INVALID, r->what, node->line, node->column,
                                "factors: %s: the level '%s' is here twice", f->path, value.text);
            sdc__value_release(&value);
            return st;
        }
    struct sdc_value *grown = sdc__realloc(f->levels, f->n_levels + 1, sizeof *grown);
    if (!grown) {
        sdc__value_release(&value);
        return SDC_NOMEM(r->err, "levels of a factor");
    }
    f->levels = grown;
    f->levels[f->n_levels++] = value;
    return SDC_OK;
}

static enum sdc_status read_factor(const struct reader *r, const struct sdc_node *key,
                                   const struct sdc_node *levels) {
    struct sdc_spec *spec = r->draft->spec;
    int entry = find_entry(key->text);
    if (entry < 0 || entry >= SDC_KEY_COUNT)
        return unknown_key(r, key, "", true);
    if (levels->kind != SDC_NODE_SEQUENCE || levels->n == 0)
        return sdc__spec_error(r->err, SDC_INVALID, r->what, levels->line, levels->column,
                               "factors: %s: expected a list of levels", key->text);
    struct sdc_factor *grown = sdc__realloc(spec->factors, spec->n_factors + 1, sizeof *grown);
    if (!grown)
        return SDC_NOMEM(r->err, "factors");
    spec->factors = grown;
    struct sdc_factor *f = &spec->factors[spec->n_factors++];
    *f = (struct sdc_factor){.key = (enum sdc_key)entry,
                             .path = sdc__spec_entries[entry].path,
                             .line = key->line,
                             .column = key->column};
    for (size_t i = 0; i < levels->n; i++)
        SDC_TRY(read_level(r, f, levels->items[i]));
    return SDC_OK;
}

static void sort_factors(struct sdc_spec *spec) {
    for (size_t i = 1; i < spec->n_factors; i++)
        for (size_t j = i; j > 0; j--) {
            struct sdc_factor *a = &spec->factors[j - 1], *b = &spec->factors[j];
            if (strcmp(a->path, b->path) <= 0)
                break;
            struct sdc_factor swap = *a;
            *a = *b;
            *b = swap;
        }
}

static enum sdc_status read_factors(const struct reader *r, const struct sdc_node *node) {
    if (node->kind != SDC_NODE_MAPPING)
        return sdc__spec_error(r->err, SDC_INVALID, r->what, node->line, node->column,
                               "factors: expected a mapping of keys to lists of levels");
    for (size_t i = 0; i < node->n; i++)
        SDC_TRY(read_factor(r, node->keys[i], node->items[i]));
    sort_factors(r->draft->spec);
    return SDC_OK;
}

/* ---- keys ---- */

static enum sdc_status read_mapping(const struct reader *r, const struct sdc_node *node,
                                    const char *prefix) {
    for (size_t i = 0; i < node->n; i++) {
        const struct sdc_node *key = node->keys[i], *item = node->items[i];
        char path[256];
        snprintf(path, sizeof path, "%s%s%.100s", prefix, *prefix ? "." : "", key->text);
        if (strcmp(path, "factors") == 0) {
            SDC_TRY(read_factors(r, item));
            continue;
        }
        int entry = strchr(key->text, '.') ? -1 : find_entry(path);
        if (entry >= 0) {
            SDC_TRY(sdc__value_read(&sdc__spec_entries[entry], item, r->what,
                                    &r->draft->values[entry], r->err));
            if (entry == SDC_SPEC_PAIR_OVER)
                r->draft->pair_over = item;
            if (entry == SDC_SPEC_CLAIMS)
                r->draft->claims = item;
            continue;
        }
        if (*prefix || strchr(key->text, '.') || !is_section(path))
            return unknown_key(r, key, prefix, false);
        if (item->kind != SDC_NODE_MAPPING)
            return sdc__spec_error(r->err, SDC_INVALID, r->what, item->line, item->column,
                                   "%s: expected a mapping of its keys", path);
        SDC_TRY(read_mapping(r, item, path));
    }
    return SDC_OK;
}

/* Defaults for what was not given; a key that is a factor too is refused. */
static enum sdc_status fill_defaults(const struct reader *r) {
    struct sdc_spec_draft *d = r->draft;
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++) {
        const struct sdc_spec_entry *e = &sdc__spec_entries[i];
        const struct sdc_factor *f =
            i < SDC_KEY_COUNT ? sdc__spec_factor(d->spec, (enum sdc_key)i) : NULL;
        if (f && d->values[i].text)
            return sdc__spec_error(r->err, SDC_INVALID, r->what, f->line, f->column,
                                   "factors: %s is also set in line %d, expected one of the two",
                                   e->path, d->values[i].line);
        if (f || d->values[i].text)
            continue;
        if (!e->def)
            return sdc__spec_error(r->err, SDC_INVALID, r->what, 1, 1, "the key '%s' is missing",
                                   e->path);
        SDC_TRY(sdc__value_default(e, &d->values[i], r->err));
    }
    return SDC_OK;
}

static enum sdc_status fill_checkpoints(struct sdc_spec *spec, const char *text,
                                        struct sdc_error *err) {
    char word[32];
    for (const char *rest = text; sdc__value_next(&rest, word, sizeof word);) {
        unsigned long long step = 0;
        uint64_t *grown = sdc__realloc(spec->checkpoints, spec->n_checkpoints + 1, sizeof *grown);
        if (!grown)
            return SDC_NOMEM(err, "checkpoints");
        spec->checkpoints = grown;
        if (!sdc__parse_u64(word, &step))
            return SDC_ERR(err, SDC_INTERNAL, "'%s' is no step", word);
        spec->checkpoints[spec->n_checkpoints++] = step;
    }
    return SDC_OK;
}

static bool lists(const char *text, const char *word) {
    char item[64];
    for (const char *rest = text; sdc__value_next(&rest, item, sizeof item);)
        if (strcmp(item, word) == 0)
            return true;
    return false;
}

static enum sdc_status fill_spec(struct sdc_spec_draft *d, struct sdc_error *err) {
    struct sdc_spec *s = d->spec;
    const struct sdc_value *v = d->values;
    s->name = sdc__strdup(v[SDC_SPEC_NAME].text);
    if (!s->name)
        return SDC_NOMEM(err, "a spec");
    s->seed = v[SDC_SPEC_SEED].u64;
    s->clusters = (uint32_t)v[SDC_SPEC_CLUSTERS].u64;
    SDC_TRY(fill_checkpoints(s, v[SDC_SPEC_CHECKPOINTS].text, err));
    s->window_steps = v[SDC_SPEC_WINDOW].u64;
    s->eval_samples = v[SDC_SPEC_EVAL_SAMPLES].u64;
    s->digest_every = v[SDC_SPEC_DIGEST_EVERY].u64;
    s->clean_e0 = (uint32_t)v[SDC_SPEC_E0].u64;
    s->clean_e1 = (uint32_t)v[SDC_SPEC_E1].u64;
    s->trials = (uint32_t)v[SDC_SPEC_TRIALS].u64;
    s->margin = v[SDC_SPEC_MARGIN].f64;
    for (int c = 0; c < SDC_CLAIM_COUNT; c++)
        s->claims[c] = lists(v[SDC_SPEC_CLAIMS].text, sdc__claim_name((enum sdc_claim)c));
    s->controls.placebo = (uint32_t)v[SDC_SPEC_PLACEBO].u64;
    s->controls.one_lsb = (uint32_t)v[SDC_SPEC_ONE_LSB].u64;
    s->controls.all_nan = (uint32_t)v[SDC_SPEC_ALL_NAN].u64;
    s->thresholds.extreme = v[SDC_SPEC_EXTREME].f64;
    s->thresholds.degraded = v[SDC_SPEC_DEGRADED].f64;
    s->thresholds.chance = v[SDC_SPEC_CHANCE].f64;
    for (size_t f = 0; f < s->n_factors; f++)
        s->factors[f].paired = lists(v[SDC_SPEC_PAIR_OVER].text, s->factors[f].path);
    for (int k = 0; k < SDC_KEY_COUNT; k++) {
        const struct sdc_factor *f = sdc__spec_factor(s, (enum sdc_key)k);
        s->fixed[k] = f ? f->levels[0] : d->values[k];
        if (!f)
            d->values[k] = (struct sdc_value){0}; /* moved */
    }
    return SDC_OK;
}

static enum sdc_status read_spec(const struct reader *r, const struct sdc_node *root) {
    if (root->kind != SDC_NODE_MAPPING)
        return sdc__spec_error(r->err, SDC_INVALID, r->what, root->line, root->column,
                               "expected a mapping of keys, as 'sdclab campaign init' writes it");
    SDC_TRY(read_mapping(r, root, ""));
    SDC_TRY(fill_defaults(r));
    SDC_TRY(fill_spec(r->draft, r->err));
    SDC_TRY(sdc__spec_check(r->draft, r->err));
    return sdc__spec_resolve(r->draft, r->err);
}

enum sdc_status sdc__spec_parse(const char *text, size_t len, const char *what,
                                struct sdc_spec **spec, struct sdc_error *err) {
    struct sdc_node *root = NULL;
    struct sdc_spec_draft draft = {0};
    const struct reader r = {&draft, what, err};
    enum sdc_status st;
    *spec = NULL;
    if (len > SDC_MAX_SPEC)
        return SDC_ERR(err, SDC_LIMIT, "%s: %zu bytes, a spec has at most %u", what, len,
                       SDC_MAX_SPEC);
    SDC_TRY(sdc__node_parse(text, len, what, &root, err));
    draft.spec = sdc__calloc(1, sizeof *draft.spec);
    if (draft.spec) {
        draft.spec->file = sdc__strdup(what);
        draft.spec->source = sdc__strndup(text, len);
    }
    if (!draft.spec || !draft.spec->file || !draft.spec->source)
        st = SDC_NOMEM(err, "a spec");
    else
        st = read_spec(&r, root);
    for (int i = 0; i < SDC_SPEC_ENTRIES; i++)
        sdc__value_release(&draft.values[i]);
    sdc__node_free(root);
    if (st != SDC_OK) {
        sdc__spec_free(draft.spec);
        return st;
    }
    *spec = draft.spec;
    return SDC_OK;
}

enum sdc_status sdc__spec_read(const char *path, struct sdc_spec **spec, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    *spec = NULL;
    enum sdc_status st = sdc__read_whole(path, SDC_MAX_SPEC, &text, err);
    if (st == SDC_OK)
        st = sdc__spec_parse(text.data ? text.data : "", text.len, path, spec, err);
    sdc__buf_release(&text);
    return st;
}

void sdc__spec_free(struct sdc_spec *spec) {
    if (!spec)
        return;
    for (int k = 0; k < SDC_KEY_COUNT; k++)
        if (!sdc__spec_factor(spec, (enum sdc_key)k))
            sdc__value_release(&spec->fixed[k]);
    for (size_t f = 0; f < spec->n_factors; f++) {
        for (size_t i = 0; i < spec->factors[f].n_levels; i++)
            sdc__value_release(&spec->factors[f].levels[i]);
        sdc__free(spec->factors[f].levels);
    }
    sdc__free(spec->factors);
    sdc__free(spec->checkpoints);
    sdc__free(spec->name);
    sdc__free(spec->file);
    sdc__free(spec->source);
    sdc__free(spec->resolved);
    sdc__free(spec);
}

const char *sdc__claim_name(enum sdc_claim claim) {
    return claim == SDC_CLAIM_H1A ? "H1a" : "H3";
}

const struct sdc_factor *sdc__spec_factor(const struct sdc_spec *spec, enum sdc_key key) {
    for (size_t f = 0; f < spec->n_factors; f++)
        if (spec->factors[f].key == key)
            return &spec->factors[f];
    return NULL;
}

const struct sdc_value *sdc__spec_value(const struct sdc_spec *spec, const uint32_t *level,
                                        enum sdc_key key) {
    for (size_t f = 0; level && f < spec->n_factors; f++)
        if (spec->factors[f].key == key)
            return &spec->factors[f].levels[level[f]];
    return &spec->fixed[key];
}

/* ---- settings ---- */

static enum sdc_status fill_choice(const struct sdc_spec *spec, const uint32_t *level,
                                   struct sdc_choice *c, struct sdc_error *err) {
    static const enum sdc_key keys[] = {SDC_KEY_FLIPS, SDC_KEY_SAMPLE, SDC_KEY_PART, SDC_KEY_ROLE,
                                        SDC_KEY_DTYPE, SDC_KEY_BITS,   SDC_KEY_OP};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        SDC_TRY(sdc__choice_put(c, sdc__key_path(keys[i]),
                                sdc__spec_value(spec, level, keys[i])->text, err));
    char glob[4200];
    const char *rest = sdc__spec_value(spec, level, SDC_KEY_TENSORS)->text;
    while (sdc__value_next(&rest, glob, sizeof glob))
        SDC_TRY(sdc_choice_set(c, "tensors", glob, err));
    rest = sdc__spec_value(spec, level, SDC_KEY_NOT_TENSORS)->text;
    while (sdc__value_next(&rest, glob, sizeof glob))
        SDC_TRY(sdc_choice_set(c, "not-tensors", glob, err));
    return sdc_choice_check(c, err);
}

enum sdc_status sdc__spec_setting(const struct sdc_spec *spec, const uint32_t *level,
                                  struct sdc_setting *setting, struct sdc_error *err) {
#define TEXT_OF(key) (sdc__spec_value(spec, level, SDC_KEY_##key)->text)
#define U64_OF(key)  (sdc__spec_value(spec, level, SDC_KEY_##key)->u64)
#define F64_OF(key)  (sdc__spec_value(spec, level, SDC_KEY_##key)->f64)
    *setting = (struct sdc_setting){
        .trainer = TEXT_OF(TRAINER),
        .model = TEXT_OF(MODEL),
        .kernels = TEXT_OF(KERNELS),
        .precision = TEXT_OF(PRECISION),
        .data_name = TEXT_OF(DATA_NAME),
        .data_path = *TEXT_OF(DATA_PATH) ? TEXT_OF(DATA_PATH) : NULL,
        .data_limit = U64_OF(DATA_LIMIT),
        .batch = (uint32_t)U64_OF(BATCH),
        .optimizer = TEXT_OF(OPTIMIZER_NAME),
        .lr = F64_OF(OPTIMIZER_LR),
        .momentum = F64_OF(OPTIMIZER_MOMENTUM),
        .weight_decay = F64_OF(OPTIMIZER_WEIGHT_DECAY),
        .schedule = TEXT_OF(SCHEDULE),
        .ranks = (uint32_t)U64_OF(RANKS),
        .recipe = sdc_recipe_find(TEXT_OF(RECIPE)),
    };
    sdc_choice_init(&setting->choice);
    if (!sdc__altered_parse(TEXT_OF(ALTERED_RANKS), &setting->altered_ranks) || !setting->recipe)
        return SDC_ERR(err, SDC_INTERNAL, "a setting of the spec was not checked");
#undef TEXT_OF
#undef U64_OF
#undef F64_OF
    enum sdc_status st = fill_choice(spec, level, &setting->choice, err);
    if (st != SDC_OK)
        sdc__setting_release(setting);
    return st;
}

void sdc__setting_release(struct sdc_setting *setting) {
    sdc_choice_release(&setting->choice);
}
