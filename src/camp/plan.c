/* SPDX-License-Identifier: Apache-2.0
 *
 * From a spec to clusters, trainings, groups, cells, blocks and trials. No I/O.
 */
#include "camp/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"
#include "sdc/rng.h"

#define MAX_TRIALS 1000000u

const char *sdc__trial_kind_name(enum sdc_trial_kind kind) {
    static const char *const names[] = {"trial", "placebo", "one-lsb", "all-nan"};
    return names[kind];
}

/* ---- settings ---- */

static void put_value(struct sdc_buf *b, const char *path, const struct sdc_value *value) {
    sdc__buf_printf(b, "%s=", path);
    for (const char *c = value->text; *c; c++)
        sdc__buf_putc(b, *c == '\n' ? '\t' : *c); /* lists of globs stay one line */
    sdc__buf_putc(b, '\n');
}

/* "batch=64\n..." of the numeric keys, and the recipe if asked for. */
static char *setting_text(const struct sdc_spec *spec, const uint32_t *level, bool recipe) {
    struct sdc_buf b = SDC_BUF_INIT;
    for (int k = 0; k < SDC_KEY_COUNT; k++) {
        enum sdc_key_class class = sdc__key_class((enum sdc_key)k);
        if (class == SDC_KEYCLASS_NUMERIC || (recipe && class == SDC_KEYCLASS_RECIPE))
            put_value(&b, sdc__key_path((enum sdc_key)k),
                      sdc__spec_value(spec, level, (enum sdc_key)k));
    }
    return sdc__buf_take(&b);
}

/* Counts levels on like a number, the first factor slowest. False after the last combination. */
static bool next_levels(const struct sdc_spec *spec, uint32_t *level) {
    for (size_t f = spec->n_factors; f-- > 0;) {
        if (++level[f] < spec->factors[f].n_levels)
            return true;
        level[f] = 0;
    }
    return false;
}

struct maker {
    struct sdc_plan *plan;
    const struct sdc_spec *spec;
    char **setting_texts;      /* [n_settings] with the recipe */
    char **numeric_texts;      /* [n_settings] without */
    uint32_t *setting_of_cell; /* [n_cells] */
    uint32_t n_used;           /* clusters that some trial uses */
    struct sdc_error *err;
};

static enum sdc_status add_setting(struct maker *m, const uint32_t *level, char *text,
                                   uint32_t *index) {
    struct sdc_plan *p = m->plan;
    size_t n = p->n_settings;
    struct sdc_setting *settings = sdc__realloc(p->settings, n + 1, sizeof *settings);
    if (settings)
        p->settings = settings;
    char **texts = sdc__realloc(m->setting_texts, n + 1, sizeof *texts);
    if (texts)
        m->setting_texts = texts;
    char **numeric = sdc__realloc(m->numeric_texts, n + 1, sizeof *numeric);
    if (numeric)
        m->numeric_texts = numeric;
    char *without = setting_text(m->spec, level, false);
    if (!settings || !texts || !numeric || !without) {
        sdc__free(without);
        sdc__free(text);
        return SDC_NOMEM(m->err, "a plan");
    }
    enum sdc_status st = sdc__spec_setting(m->spec, level, &settings[n], m->err);
    if (st != SDC_OK) {
        sdc__free(without);
        sdc__free(text);
        return st;
    }
    texts[n] = text;
    numeric[n] = without;
    *index = (uint32_t)p->n_settings++;
    return SDC_OK;
}

static enum sdc_status find_setting(struct maker *m, const uint32_t *level, uint32_t *index) {
    char *text = setting_text(m->spec, level, true);
    if (!text)
        return SDC_NOMEM(m->err, "a plan");
    for (size_t i = 0; i < m->plan->n_settings; i++)
        if (strcmp(m->setting_texts[i], text) == 0) {
            sdc__free(text);
            *index = (uint32_t)i;
            return SDC_OK;
        }
    return add_setting(m, level, text, index);
}

/* ---- cells and blocks ---- */

static char *cell_label(const struct sdc_spec *spec, const struct sdc_plan_cell *cell) {
    struct sdc_buf b = SDC_BUF_INIT;
    if (spec->n_checkpoints > 1)
        sdc__buf_printf(&b, "checkpoint=%llu",
                        (unsigned long long)spec->checkpoints[cell->checkpoint]);
    for (size_t f = 0; f < spec->n_factors; f++) {
        const char *text = spec->factors[f].levels[cell->level[f]].text;
        sdc__buf_printf(&b, "%s%s=", b.len ? " " : "", spec->factors[f].path);
        for (const char *c = *text ? text : "all"; *c; c++)
            sdc__buf_putc(&b, *c == '\n' ? ',' : *c);
    }
    if (!b.len)
        sdc__buf_puts(&b, "all");
    return sdc__buf_take(&b);
}

/* The factors that are not paired, with the checkpoint, sorted by path. */
static char *block_text(const struct sdc_spec *spec, const struct sdc_plan_cell *cell) {
    struct sdc_buf b = SDC_BUF_INIT;
    bool checkpoint = false;
    for (size_t f = 0; f <= spec->n_factors; f++) {
        bool end = f == spec->n_factors;
        if (!checkpoint && (end || strcmp(spec->factors[f].path, "checkpoint") > 0)) {
            sdc__buf_printf(&b, "checkpoint=%llu\n",
                            (unsigned long long)spec->checkpoints[cell->checkpoint]);
            checkpoint = true;
        }
        if (!end && !spec->factors[f].paired)
            put_value(&b, spec->factors[f].path, &spec->factors[f].levels[cell->level[f]]);
    }
    return sdc__buf_take(&b);
}

static enum sdc_status find_block(struct maker *m, struct sdc_plan_cell *cell) {
    struct sdc_plan *p = m->plan;
    char *text = block_text(m->spec, cell);
    if (!text)
        return SDC_NOMEM(m->err, "a plan");
    uint32_t key = sdc__hash32(text, strlen(text));
    for (size_t i = 0; i < p->n_blocks; i++) {
        if (p->blocks[i].key != key)
            continue;
        bool same = strcmp(p->blocks[i].text, text) == 0;
        enum sdc_status st =
            same ? SDC_OK
                 : SDC_ERR(
                       m->err, SDC_INVALID,
                       "two blocks have the same key %08x and would share their faults: '%.200s' "
                       "and '%.200s'; change a level",
                       key, p->blocks[i].text, text);
        sdc__free(text);
        cell->block = (uint32_t)i;
        return st;
    }
    struct sdc_plan_block *grown = sdc__realloc(p->blocks, p->n_blocks + 1, sizeof *grown);
    if (!grown) {
        sdc__free(text);
        return SDC_NOMEM(m->err, "a plan");
    }
    p->blocks = grown;
    cell->block = (uint32_t)p->n_blocks;
    p->blocks[p->n_blocks++] = (struct sdc_plan_block){key, text};
    return SDC_OK;
}

/* What sites are drawn with: over parameters in every arm where the arms differ in `part`. */
static enum sdc_status fill_draw(struct maker *m, struct sdc_plan_cell *cell) {
    SDC_TRY(sdc_choice_copy(&cell->draw_choice, &cell->setting.choice, m->err));
    const struct sdc_factor *part = sdc__spec_factor(m->spec, SDC_KEY_PART);
    if (!part || !part->paired)
        return SDC_OK;
    cell->map_to_optimizer = cell->setting.choice.parts == 1u << SDC_PART_OPTIMIZER;
    cell->draw_choice.parts = 1u << SDC_PART_MODEL;
    if (!cell->draw_choice.roles)
        cell->draw_choice.roles = 1u << SDC_ROLE_WEIGHT | 1u << SDC_ROLE_BIAS |
                                  1u << SDC_ROLE_NORM_SCALE | 1u << SDC_ROLE_NORM_SHIFT;
    return SDC_OK;
}

static enum sdc_status add_cell(struct maker *m, const uint32_t *level, uint32_t checkpoint) {
    struct sdc_plan *p = m->plan;
    struct sdc_plan_cell *cell = &p->cells[p->n_cells];
    snprintf(cell->id, sizeof cell->id, "c%03zu", p->n_cells);
    cell->checkpoint = checkpoint;
    sdc_choice_init(&cell->draw_choice);
    sdc_choice_init(&cell->setting.choice);
    p->n_cells++; /* from here on sdc__plan_free releases it */
    cell->level = sdc__alloc(m->spec->n_factors + 1, sizeof *cell->level);
    if (!cell->level)
        return SDC_NOMEM(m->err, "a plan");
    if (m->spec->n_factors)
        memcpy(cell->level, level, m->spec->n_factors * sizeof *level);
    SDC_TRY(sdc__spec_setting(m->spec, level, &cell->setting, m->err));
    cell->label = cell_label(m->spec, cell);
    if (!cell->label)
        return SDC_NOMEM(m->err, "a plan");
    SDC_TRY(fill_draw(m, cell));
    SDC_TRY(find_block(m, cell));
    return find_setting(m, level, &m->setting_of_cell[p->n_cells - 1]);
}

static enum sdc_status make_cells(struct maker *m) {
    size_t n = m->spec->n_checkpoints;
    for (size_t f = 0; f < m->spec->n_factors; f++)
        n *= m->spec->factors[f].n_levels;
    m->plan->cells = sdc__calloc(n, sizeof *m->plan->cells);
    m->setting_of_cell = sdc__calloc(n, sizeof *m->setting_of_cell);
    uint32_t *level = sdc__calloc(m->spec->n_factors + 1, sizeof *level);
    enum sdc_status st = SDC_OK;
    if (!m->plan->cells || !m->setting_of_cell || !level)
        st = SDC_NOMEM(m->err, "a plan");
    for (uint32_t c = 0; c < m->spec->n_checkpoints && st == SDC_OK; c++) {
        bool more = true;
        while (more && st == SDC_OK) {
            st = add_cell(m, level, c);
            more = next_levels(m->spec, level);
        }
    }
    sdc__free(level);
    return st;
}

/* ---- clusters, trainings, groups ---- */

static enum sdc_status make_clusters(struct maker *m) {
    struct sdc_plan *p = m->plan;
    p->clusters = sdc__calloc(m->spec->clusters, sizeof *p->clusters);
    if (!p->clusters)
        return SDC_NOMEM(m->err, "a plan");
    p->n_clusters = m->spec->clusters;
    for (uint32_t k = 0; k < m->spec->clusters; k++) {
        struct sdc_rng rng;
        sdc_rng_init(&rng, m->spec->seed, SDC_RNG_CLUSTER, 0, k);
        /* 63 bits, which every reader of JSON can hold */
        p->clusters[k].seed_init = sdc_rng_u64(&rng) >> 1;
        p->clusters[k].seed_data = sdc_rng_u64(&rng) >> 1;
    }
    m->n_used = m->spec->trials < m->spec->clusters ? m->spec->trials : m->spec->clusters;
    return SDC_OK;
}

/* The training of a setting in a cluster, added if new: that of its numeric setting. */
static uint32_t training_of(struct maker *m, uint32_t cluster, uint32_t setting) {
    struct sdc_plan *p = m->plan;
    const struct sdc_spec *s = m->spec;
    for (size_t i = 0; i < p->n_trainings; i++)
        if (p->trainings[i].cluster == cluster &&
            strcmp(m->numeric_texts[p->trainings[i].setting], m->numeric_texts[setting]) == 0)
            return (uint32_t)i;
    const struct sdc_recipe *first = sdc_recipe_find(s->fixed[SDC_KEY_RECIPE].text);
    uint32_t trains = setting;
    for (uint32_t i = 0; i < p->n_settings; i++)
        if (p->settings[i].recipe == first &&
            strcmp(m->numeric_texts[i], m->numeric_texts[setting]) == 0)
            trains = i;
    struct sdc_plan_training *t = &p->trainings[p->n_trainings];
    *t = (struct sdc_plan_training){
        .cluster = cluster, .setting = trains, .steps = s->checkpoints[s->n_checkpoints - 1]};
    snprintf(t->id, sizeof t->id, "t%zu", p->n_trainings);
    return (uint32_t)p->n_trainings++;
}

static enum sdc_status make_groups(struct maker *m) {
    struct sdc_plan *p = m->plan;
    const struct sdc_spec *s = m->spec;
    p->trainings = sdc__calloc((size_t)m->n_used * p->n_settings, sizeof *p->trainings);
    p->groups =
        sdc__calloc((size_t)m->n_used * p->n_settings * s->n_checkpoints, sizeof *p->groups);
    if (!p->trainings || !p->groups)
        return SDC_NOMEM(m->err, "a plan");
    for (uint32_t k = 0; k < m->n_used; k++)
        for (uint32_t i = 0; i < p->n_settings; i++)
            for (size_t c = 0; c < s->n_checkpoints; c++) {
                struct sdc_plan_group *g = &p->groups[p->n_groups];
                snprintf(g->id, sizeof g->id, "g%zu", p->n_groups);
                g->training = training_of(m, k, i);
                g->cluster = k;
                g->setting = i;
                g->checkpoint = s->checkpoints[c];
                g->to_step = g->checkpoint + s->window_steps;
                p->n_groups++;
            }
    return SDC_OK;
}

static uint32_t group_index(const struct maker *m, uint32_t cluster, uint32_t setting,
                            uint32_t checkpoint) {
    return (uint32_t)(((size_t)cluster * m->plan->n_settings + setting) * m->spec->n_checkpoints +
                      checkpoint);
}

/* ---- trials ---- */

static uint64_t all_ranks(uint32_t ranks) {
    return ranks >= 64 ? UINT64_MAX : (UINT64_C(1) << ranks) - 1;
}

/* The same draw in every arm of a pair: seed, block and trial alone decide. */
static enum sdc_status draw_ranks(struct maker *m, const struct sdc_plan_cell *cell,
                                  uint32_t block_key, uint32_t trial, uint64_t *mask) {
    const struct sdc_altered_ranks who = cell->setting.altered_ranks;
    uint32_t ranks = cell->setting.ranks;
    uint64_t picked[64], k = 1;
    switch (who.kind) {
    case SDC_ALTERED_RANK:
        *mask = UINT64_C(1) << who.k;
        return SDC_OK;
    case SDC_ALTERED_ALL:
        *mask = all_ranks(ranks);
        return SDC_OK;
    case SDC_ALTERED_K:
        k = who.k;
        break;
    case SDC_ALTERED_HALF:
        k = ranks >= 2 ? ranks / 2 : 1;
        break;
    case SDC_ALTERED_ONE:
        break;
    }
    struct sdc_rng rng;
    sdc_rng_init(&rng, m->spec->seed, SDC_RNG_FAULT_RANKS, block_key, trial);
    SDC_TRY(sdc_rng_sample(&rng, ranks, k, picked, m->err));
    *mask = 0;
    for (uint64_t i = 0; i < k; i++)
        *mask |= UINT64_C(1) << picked[i];
    return SDC_OK;
}

static uint32_t group_key(const struct maker *m, const struct sdc_plan_group *g) {
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__buf_printf(&b, "control\ncluster=%u\ncheckpoint=%llu\n%s", g->cluster,
                    (unsigned long long)g->checkpoint, m->setting_texts[g->setting]);
    uint32_t key = b.data ? sdc__hash32(b.data, b.len) : 0;
    sdc__buf_release(&b);
    return key;
}

static void add_controls(struct maker *m, uint32_t group, enum sdc_trial_kind kind,
                         const char *name, uint32_t n) {
    struct sdc_plan *p = m->plan;
    const struct sdc_plan_group *g = &p->groups[group];
    for (uint32_t i = 0; i < n; i++) {
        struct sdc_plan_trial *t = &p->trials[p->n_trials++];
        snprintf(t->id, sizeof t->id, "%s-%s-%u", g->id, name, i);
        t->kind = kind;
        t->cell = SDC_PLAN_NONE;
        t->index = i;
        t->cluster = g->cluster;
        t->group = group;
        t->block_key = group_key(m, g);
        t->purpose = SDC_RNG_CONTROL;
        t->altered = all_ranks(p->settings[g->setting].ranks);
    }
}

static enum sdc_status add_trial(struct maker *m, uint32_t cell, uint32_t index) {
    struct sdc_plan *p = m->plan;
    const struct sdc_plan_cell *c = &p->cells[cell];
    struct sdc_plan_trial *t = &p->trials[p->n_trials++];
    snprintf(t->id, sizeof t->id, "%s-%04u", c->id, index);
    t->kind = SDC_TRIAL_CELL;
    t->cell = cell;
    t->index = index;
    t->cluster = index % m->spec->clusters;
    t->group = group_index(m, t->cluster, m->setting_of_cell[cell], c->checkpoint);
    t->block_key = p->blocks[c->block].key;
    t->purpose = SDC_RNG_FAULT_SITES;
    return draw_ranks(m, c, t->block_key, index, &t->altered);
}

static enum sdc_status make_trials(struct maker *m) {
    struct sdc_plan *p = m->plan;
    const struct sdc_spec *s = m->spec;
    uint64_t per_group = (uint64_t)s->controls.placebo + s->controls.one_lsb + s->controls.all_nan;
    uint64_t n = per_group * p->n_groups + (uint64_t)s->trials * p->n_cells;
    if (n > MAX_TRIALS)
        return SDC_ERR(
            m->err, SDC_LIMIT,
            "%s: %llu trials (%zu cells of %u, %zu goldens with %llu controls), expected "
            "at most %u",
            s->file, (unsigned long long)n, p->n_cells, s->trials, p->n_groups,
            (unsigned long long)per_group, MAX_TRIALS);
    p->trials = sdc__calloc((size_t)n, sizeof *p->trials);
    if (!p->trials)
        return SDC_NOMEM(m->err, "a plan");
    for (uint32_t g = 0; g < p->n_groups; g++) {
        add_controls(m, g, SDC_TRIAL_PLACEBO, "placebo", s->controls.placebo);
        add_controls(m, g, SDC_TRIAL_ONE_LSB, "lsb", s->controls.one_lsb);
        add_controls(m, g, SDC_TRIAL_ALL_NAN, "nan", s->controls.all_nan);
    }
    p->n_controls = p->n_trials;
    for (uint32_t i = 0; i < s->trials; i++)
        for (uint32_t c = 0; c < p->n_cells; c++)
            SDC_TRY(add_trial(m, c, i));
    return SDC_OK;
}

/* ---- whole ---- */

enum sdc_status sdc__plan_new(const struct sdc_spec *spec, struct sdc_plan **plan,
                              struct sdc_error *err) {
    struct maker m = {.spec = spec, .err = err};
    enum sdc_status st;
    *plan = NULL;
    m.plan = sdc__calloc(1, sizeof *m.plan);
    if (!m.plan)
        return SDC_NOMEM(err, "a plan");
    m.plan->spec = spec;
    SDC_TRY_OUT(st, make_cells(&m));
    SDC_TRY_OUT(st, make_clusters(&m));
    SDC_TRY_OUT(st, make_groups(&m));
    SDC_TRY_OUT(st, make_trials(&m));
out:
    for (size_t i = 0; i < m.plan->n_settings; i++) {
        sdc__free(m.setting_texts[i]);
        sdc__free(m.numeric_texts[i]);
    }
    sdc__free(m.setting_texts);
    sdc__free(m.numeric_texts);
    sdc__free(m.setting_of_cell);
    if (st != SDC_OK)
        sdc__plan_free(m.plan);
    else
        *plan = m.plan;
    return st;
}

void sdc__plan_free(struct sdc_plan *plan) {
    if (!plan)
        return;
    for (size_t i = 0; i < plan->n_settings; i++)
        sdc__setting_release(&plan->settings[i]);
    for (size_t i = 0; i < plan->n_blocks; i++)
        sdc__free(plan->blocks[i].text);
    for (size_t i = 0; i < plan->n_cells; i++) {
        sdc__free(plan->cells[i].level);
        sdc__free(plan->cells[i].label);
        sdc__setting_release(&plan->cells[i].setting);
        sdc_choice_release(&plan->cells[i].draw_choice);
    }
    sdc__free(plan->settings);
    sdc__free(plan->clusters);
    sdc__free(plan->trainings);
    sdc__free(plan->groups);
    sdc__free(plan->blocks);
    sdc__free(plan->cells);
    sdc__free(plan->trials);
    sdc__free(plan);
}

const struct sdc_plan_trial *sdc__plan_find(const struct sdc_plan *plan, const char *id) {
    unsigned long long cell, index;
    char text[32];
    const char *dash = strchr(id, '-');
    if (id[0] == 'c' && dash && strlen(id) < sizeof text) {
        /* trials of cells stand where their numbers say */
        snprintf(text, sizeof text, "%.*s", (int)(dash - id - 1), id + 1);
        if (!sdc__parse_u64(text, &cell) || !sdc__parse_u64(dash + 1, &index) ||
            cell >= plan->n_cells || index >= plan->spec->trials)
            return NULL;
        const struct sdc_plan_trial *t =
            &plan->trials[plan->n_controls + (size_t)index * plan->n_cells + (size_t)cell];
        return strcmp(t->id, id) == 0 ? t : NULL;
    }
    for (size_t i = 0; i < plan->n_controls; i++)
        if (strcmp(plan->trials[i].id, id) == 0)
            return &plan->trials[i];
    return NULL;
}
