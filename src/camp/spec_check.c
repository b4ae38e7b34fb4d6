/* SPDX-License-Identifier: Apache-2.0
 *
 * Combinations of keys that cannot be run or cannot be judged, refused where they are written.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "camp/spec_internal.h"
#include "sdc/num.h"

#define MAX_CELLS 100000u

struct check {
    const struct sdc_spec *spec;
    const struct sdc_spec_draft *draft;
    struct sdc_error *err;
};

/* The place of a value; of a default, the first line. */
static enum sdc_status at_value(const struct check *c, const struct sdc_value *v,
                                const char *message) {
    return sdc__spec_error(c->err, SDC_INVALID, c->spec->file, v->line ? v->line : 1,
                           v->line ? v->column : 1, "%s", message);
}

/* The item of a list of words, for its place. */
static enum sdc_status at_item(const struct check *c, const struct sdc_node *list, const char *word,
                               const char *message) {
    int line = 1, column = 1;
    for (size_t i = 0; list && i < list->n; i++)
        if (strcmp(list->items[i]->text, word) == 0) {
            line = list->items[i]->line;
            column = list->items[i]->column;
        }
    return sdc__spec_error(c->err, SDC_INVALID, c->spec->file, line, column, "%s", message);
}

/* Levels of a key: those of its factor, or its fixed value. */
static const struct sdc_value *levels_of(const struct sdc_spec *spec, enum sdc_key key, size_t *n) {
    const struct sdc_factor *f = sdc__spec_factor(spec, key);
    *n = f ? f->n_levels : 1;
    return f ? f->levels : &spec->fixed[key];
}

static enum sdc_status check_pair_over(const struct check *c) {
    char word[64], message[256];
    const char *rest = c->draft->values[SDC_SPEC_PAIR_OVER].text;
    while (sdc__value_next(&rest, word, sizeof word)) {
        const struct sdc_factor *f = NULL;
        for (size_t i = 0; i < c->spec->n_factors; i++)
            if (strcmp(c->spec->factors[i].path, word) == 0)
                f = &c->spec->factors[i];
        if (f)
            continue;
        snprintf(message, sizeof message,
                 "pair_over: '%s' is not a factor, expected one that is listed under factors",
                 word);
        return at_item(c, c->draft->pair_over, word, message);
    }
    return SDC_OK;
}

static enum sdc_status check_ranks(const struct check *c) {
    size_t n_ranks, n_altered, n_recipes;
    const struct sdc_value *ranks = levels_of(c->spec, SDC_KEY_RANKS, &n_ranks);
    const struct sdc_value *altered = levels_of(c->spec, SDC_KEY_ALTERED_RANKS, &n_altered);
    const struct sdc_value *recipes = levels_of(c->spec, SDC_KEY_RECIPE, &n_recipes);
    char message[256];
    for (size_t r = 0; r < n_ranks; r++) {
        unsigned long long n = ranks[r].u64;
        for (size_t a = 0; a < n_altered; a++) {
            struct sdc_altered_ranks who;
            if (!sdc__altered_parse(altered[a].text, &who))
                return SDC_ERR(c->err, SDC_INTERNAL, "altered_ranks was not checked");
            bool fine = who.kind == SDC_ALTERED_RANK ? who.k < n
                        : who.kind == SDC_ALTERED_K  ? who.k <= n
                                                     : true;
            snprintf(message, sizeof message,
                     "altered_ranks: %s with ranks %llu, expected %s up to %llu", altered[a].text,
                     n, who.kind == SDC_ALTERED_RANK ? "a rank" : "a count",
                     who.kind == SDC_ALTERED_RANK ? n - 1 : n);
            if (!fine)
                return at_value(c, &altered[a], message);
        }
        for (size_t i = 0; i < n_recipes; i++) {
            const struct sdc_recipe *recipe = sdc_recipe_find(recipes[i].text);
            if (!recipe || recipe->strategy != SDC_STRATEGY_SINGLE || n == 1)
                continue;
            snprintf(message, sizeof message, "recipe: %s with ranks %llu, expected ranks 1",
                     recipes[i].text, n);
            return at_value(c, &recipes[i], message);
        }
    }
    return SDC_OK;
}

/* Pairs over part draw over parameters and move the sites to the optimizer's tensors. */
static enum sdc_status check_part_pairs(const struct check *c) {
    const struct sdc_factor *part = sdc__spec_factor(c->spec, SDC_KEY_PART);
    if (!part || !part->paired)
        return SDC_OK;
    for (size_t i = 0; i < part->n_levels; i++)
        if (strcmp(part->levels[i].text, "model") != 0 &&
            strcmp(part->levels[i].text, "optimizer") != 0)
            return at_value(c, &part->levels[i],
                            "part: pairs over part have the arms model and optimizer");
    size_t n;
    const struct sdc_value *momentum = levels_of(c->spec, SDC_KEY_OPTIMIZER_MOMENTUM, &n);
    for (size_t i = 0; i < n; i++)
        if (momentum[i].f64 == 0)
            return at_value(c, &momentum[i],
                            "optimizer.momentum: 0 leaves the optimizer without state, so pairs "
                            "over part (and H3) have an empty support");
    const struct sdc_value *role = levels_of(c->spec, SDC_KEY_ROLE, &n);
    const uint32_t parameters = 1u << SDC_ROLE_WEIGHT | 1u << SDC_ROLE_BIAS |
                                1u << SDC_ROLE_NORM_SCALE | 1u << SDC_ROLE_NORM_SHIFT;
    for (size_t i = 0; i < n; i++) {
        struct sdc_choice choice;
        sdc_choice_init(&choice);
        enum sdc_status st = sdc__choice_put(&choice, "role", role[i].text, c->err);
        uint32_t roles = choice.roles;
        sdc_choice_release(&choice);
        SDC_TRY(st);
        if (roles & ~parameters)
            return at_value(c, &role[i],
                            "role: pairs over part draw sites over parameters, expected weight, "
                            "bias, norm-scale or norm-shift");
    }
    return SDC_OK;
}

static enum sdc_status check_h1a(const struct check *c) {
    const struct sdc_factor *f = sdc__spec_factor(c->spec, SDC_KEY_RECIPE);
    size_t ddp = 0, horovod = 0;
    for (size_t i = 0; f && i < f->n_levels; i++) {
        const struct sdc_recipe *recipe = sdc_recipe_find(f->levels[i].text);
        ddp += recipe && recipe->strategy == SDC_STRATEGY_DDP;
        horovod += recipe && recipe->strategy == SDC_STRATEGY_HOROVOD;
    }
    if (f && f->paired && ddp >= 1 && horovod >= 1)
        return SDC_OK;
    return at_item(
        c, c->draft->claims, "H1a",
        "claims: H1a compares the first ddp with the first horovod recipe: expected the factor "
        "recipe with one of each, named in pair_over");
}

static enum sdc_status check_h3(const struct check *c) {
    const struct sdc_factor *f = sdc__spec_factor(c->spec, SDC_KEY_PART);
    if (f && f->paired && f->n_levels == 2)
        return SDC_OK;
    return at_item(c, c->draft->claims, "H3",
                   "claims: H3 compares model and optimizer: expected the factor part with these "
                   "two levels, named in pair_over");
}

/* ---- what can be hit ---- */

/* Parameters of the built-in models. */
static uint64_t model_parameters(const char *model) {
    if (strcmp(model, "lenet5") == 0)
        return 61706;
    if (strcmp(model, "mlp") == 0)
        return 235146;
    return 0;
}

/* Sites in n elements of a type. */
static uint64_t sites_of(const struct sdc_choice *c, uint64_t n, enum sdc_dtype dtype) {
    return n * sdc_choice_sites(c, dtype);
}

bool sdc__spec_pairs_parts(const struct sdc_spec *spec) {
    const struct sdc_factor *part = sdc__spec_factor(spec, SDC_KEY_PART);
    return part && part->paired;
}

uint64_t sdc__setting_support(const struct sdc_setting *setting, bool pairs_parts) {
    const struct sdc_choice *c = &setting->choice;
    uint64_t n = model_parameters(setting->model), sites = 0;
    uint32_t parts = pairs_parts ? 1u << SDC_PART_MODEL : c->parts ? c->parts : UINT32_MAX;
    if (parts & 1u << SDC_PART_MODEL)
        sites += sites_of(c, n, SDC_DTYPE_F32);
    if (parts & 1u << SDC_PART_OPTIMIZER && setting->momentum > 0)
        sites += sites_of(c, n, SDC_DTYPE_F32);
    if (parts & 1u << SDC_PART_LOOP) /* step, epoch, cursor; the random stream's four words */
        sites += sites_of(c, 3, SDC_DTYPE_I64) + sites_of(c, 4, SDC_DTYPE_U32);
    return sites;
}

/* More sites than there are, or none at all: such trials would show that nothing has an effect. An
 * optimizer without momentum is let through as one arm of a comparison; the plan warns of it. */
static enum sdc_status check_support(const struct check *c, const uint32_t *level,
                                     const struct sdc_setting *setting) {
    const struct sdc_choice *choice = &setting->choice;
    uint64_t most = sdc__setting_support(setting, sdc__spec_pairs_parts(c->spec));
    bool no_state = choice->parts == 1u << SDC_PART_OPTIMIZER && setting->momentum == 0;
    char message[256];
    if (choice->flips <= most || no_state || (choice->sample == SDC_SAMPLE_ATTEMPTS && most > 0))
        return SDC_OK;
    const struct sdc_value *v = sdc__spec_value(c->spec, level, SDC_KEY_FLIPS);
    snprintf(message, sizeof message,
             "flips: %llu distinct sites, expected at most %llu: %s of %s holds no more",
             (unsigned long long)choice->flips, (unsigned long long)most,
             sdc__spec_value(c->spec, level, SDC_KEY_PART)->text, setting->model);
    if (most > 0)
        return at_value(c, v, message);
    v = sdc__spec_value(c->spec, level, SDC_KEY_BITS);
    snprintf(message, sizeof message,
             "bits: %.60s names no bit of any number in part %.60s, so there is nothing to hit",
             v->text, sdc__spec_value(c->spec, level, SDC_KEY_PART)->text);
    return at_value(c, v, message);
}

/* What decides whether a choice is possible. */
static bool spoils_choices(enum sdc_key key) {
    return sdc__key_class(key) == SDC_KEYCLASS_FAULT || key == SDC_KEY_MODEL ||
           key == SDC_KEY_OPTIMIZER_MOMENTUM;
}

/* Every combination of fault words must be a possible choice. */
static enum sdc_status check_choices(const struct check *c) {
    const struct sdc_spec *s = c->spec;
    uint32_t *level = sdc__calloc(s->n_factors + 1, sizeof *level);
    if (!level)
        return SDC_NOMEM(c->err, "factors");
    enum sdc_status st = SDC_OK;
    for (bool more = true; more && st == SDC_OK;) {
        struct sdc_setting setting;
        struct sdc_error inner = {0};
        st = sdc__spec_setting(s, level, &setting, &inner);
        if (st == SDC_OK) {
            st = check_support(c, level, &setting);
            sdc__setting_release(&setting);
        } else {
            const struct sdc_value *v = sdc__spec_value(s, level, SDC_KEY_OP);
            if (!v->line)
                v = sdc__spec_value(s, level, SDC_KEY_BITS);
            st = at_value(c, v, inner.message);
        }
        more = false;
        /* count on, over those keys alone */
        for (size_t f = 0; f < s->n_factors && !more; f++) {
            if (!spoils_choices(s->factors[f].key))
                continue;
            more = ++level[f] < s->factors[f].n_levels;
            if (!more)
                level[f] = 0;
        }
    }
    sdc__free(level);
    return st;
}

enum sdc_status sdc__spec_check(const struct sdc_spec_draft *d, struct sdc_error *err) {
    const struct check c = {d->spec, d, err};
    uint64_t cells = d->spec->n_checkpoints;
    for (size_t f = 0; f < d->spec->n_factors; f++) {
        cells *= d->spec->factors[f].n_levels;
        if (cells > MAX_CELLS)
            return sdc__spec_error(
                err, SDC_LIMIT, d->spec->file, d->spec->factors[f].line, d->spec->factors[f].column,
                "factors: more than %u cells by '%s'", MAX_CELLS, d->spec->factors[f].path);
    }
    SDC_TRY(check_pair_over(&c));
    SDC_TRY(check_ranks(&c));
    SDC_TRY(check_part_pairs(&c));
    if (d->spec->claims[SDC_CLAIM_H1A])
        SDC_TRY(check_h1a(&c));
    if (d->spec->claims[SDC_CLAIM_H3])
        SDC_TRY(check_h3(&c));
    return check_choices(&c);
}
