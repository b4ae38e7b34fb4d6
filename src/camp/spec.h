/* SPDX-License-Identifier: Apache-2.0
 *
 * Campaign specs: reading the YAML of an experiment, checking it, filling in every default. Not for
 * deciding what runs (camp/plan.h) nor for keeping results (camp/store.h).
 *
 * A spec has fixed keys of the whole campaign (seeds, windows, thresholds, claims) and *setting*
 * keys (enum sdc_key), each of which is either fixed or a factor with several levels. One table
 * (sdc__key_info) drives parsing, defaults, factors, the canonical text and the commented spec.
 *
 * Errors carry FILE:LINE:COLUMN of the offending node, lines and columns from 1. Unknown keys,
 * duplicates, wrong types, values out of range and combinations that cannot be run are refused
 * here, before anything runs.
 *
 * The resolved spec is one line of JSON with sorted keys and every default written; it is itself a
 * valid spec that resolves to itself. Its XXH3-128 is the identity of the campaign.
 *
 *     struct sdc_spec *spec;
 *     SDC_TRY(sdc__spec_read("paper-small.yaml", &spec, err));
 *     ... sdc__plan_new(spec, &plan, err) ...
 *     sdc__spec_free(spec);
 *
 * Specs are immutable once read and may be used from several threads.
 */
#ifndef SDC_CAMP_SPEC_H
#define SDC_CAMP_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/str.h"
#include "sdc/choice.h"
#include "sdc/run.h"
#include "sdc/status.h"

/* ---- settings ---- */

/* What a key changes: decides which runs are shared by which cells. */
enum sdc_key_class {
    SDC_KEYCLASS_NUMERIC, /* changes the clean computation: its own training, golden, spreads */
    SDC_KEYCLASS_RECIPE,  /* shares the training; its own golden and spreads */
    SDC_KEYCLASS_FAULT    /* changes only what is altered and who reads it: shares everything */
};

/* enum suffix, dotted path, class */
#define SDC_KEY_MAP(X)                                                                             \
    X(TRAINER, "trainer", NUMERIC)                                                                 \
    X(MODEL, "model", NUMERIC)                                                                     \
    X(KERNELS, "kernels", NUMERIC)                                                                 \
    X(PRECISION, "precision", NUMERIC)                                                             \
    X(DATA_NAME, "data.name", NUMERIC)                                                             \
    X(DATA_PATH, "data.path", NUMERIC)                                                             \
    X(DATA_LIMIT, "data.limit", NUMERIC)                                                           \
    X(BATCH, "batch", NUMERIC)                                                                     \
    X(OPTIMIZER_NAME, "optimizer.name", NUMERIC)                                                   \
    X(OPTIMIZER_LR, "optimizer.lr", NUMERIC)                                                       \
    X(OPTIMIZER_MOMENTUM, "optimizer.momentum", NUMERIC)                                           \
    X(OPTIMIZER_WEIGHT_DECAY, "optimizer.weight_decay", NUMERIC)                                   \
    X(SCHEDULE, "schedule", NUMERIC)                                                               \
    X(RANKS, "ranks", NUMERIC)                                                                     \
    X(RECIPE, "recipe", RECIPE)                                                                    \
    X(ALTERED_RANKS, "altered_ranks", FAULT)                                                       \
    X(SPREAD, "spread", FAULT)                                                                     \
    X(PART, "part", FAULT)                                                                         \
    X(ROLE, "role", FAULT)                                                                         \
    X(DTYPE, "dtype", FAULT)                                                                       \
    X(TENSORS, "tensors", FAULT)                                                                   \
    X(NOT_TENSORS, "not_tensors", FAULT)                                                           \
    X(FLIPS, "flips", FAULT)                                                                       \
    X(SAMPLE, "sample", FAULT)                                                                     \
    X(BITS, "bits", FAULT)                                                                         \
    X(OP, "op", FAULT)

enum sdc_key {
#define SDC_KEY_ENUM(name, path, class) SDC_KEY_##name,
    SDC_KEY_MAP(SDC_KEY_ENUM)
#undef SDC_KEY_ENUM
        SDC_KEY_COUNT
};

/* One value as written, checked. */
struct sdc_value {
    char *text;       /* canonical; several globs are joined by newlines; owned by the spec */
    uint64_t u64;     /* for whole numbers */
    double f64;       /* for numbers */
    int line, column; /* where it was written, from 1; 0: a default */
};

/* A factor: a key with its levels in the order written. */
struct sdc_factor {
    enum sdc_key key;
    const char *path; /* static */
    struct sdc_value *levels;
    size_t n_levels; /* at least 1 */
    bool paired;     /* named in pair_over: the levels are arms of a pair */
    int line, column;
};

enum sdc_altered_kind {
    SDC_ALTERED_RANK, /* the rank k, fixed */
    SDC_ALTERED_ONE,  /* one rank, drawn uniformly */
    SDC_ALTERED_K,    /* k ranks, drawn uniformly */
    SDC_ALTERED_HALF, /* half of them (rounded down, at least 1), drawn uniformly */
    SDC_ALTERED_ALL
};

struct sdc_altered_ranks {
    enum sdc_altered_kind kind;
    uint32_t k; /* the rank of RANK, the count of K; else 0 */
};

/* Everything that a cell fixes, typed. Texts are borrowed from the spec. */
struct sdc_setting {
    const char *trainer, *model, *kernels, *precision;
    const char *data_name, *data_path; /* data_path: NULL for the system's */
    uint64_t data_limit;
    uint32_t batch;
    const char *optimizer;
    double lr, momentum, weight_decay;
    const char *schedule;
    uint32_t ranks;
    const struct sdc_recipe *recipe; /* static */

    struct sdc_altered_ranks altered_ranks;
    struct sdc_choice choice; /* owned: sdc__setting_release */
};

/* ---- the spec ---- */

enum sdc_claim { SDC_CLAIM_H1A, SDC_CLAIM_H3, SDC_CLAIM_COUNT };

struct sdc_spec {
    char *name;            /* of the campaign: letters, digits, '-', '_', '.' */
    uint64_t seed;         /* every draw of the campaign comes from it */
    uint32_t clusters;     /* baseline.seeds: independent trainings, K */
    uint64_t *checkpoints; /* baseline.checkpoints: steps, ascending */
    size_t n_checkpoints;
    uint64_t window_steps; /* steps after the restart */
    uint64_t eval_samples; /* window.eval_samples: of the test set, 0: no evaluation */
    uint64_t digest_every; /* window.digest_every: steps between state digests of a trial */
    uint32_t clean_e0;     /* clean.e0: replicas with half of all lowest bits flipped */
    uint32_t clean_e1;     /* replicas with another data order */
    uint32_t trials;       /* per cell */
    double margin;         /* of claims, a difference of shares */
    bool claims[SDC_CLAIM_COUNT];
    struct {
        uint32_t placebo, one_lsb, all_nan; /* per golden group */
    } controls;
    struct {
        double extreme;  /* a parameter over this many times the clean maximum is extreme */
        double degraded; /* accuracy this far below the clean twin is degraded (0.05 = 5 points) */
        double chance;   /* accuracy at most this far over 1/classes is failed */
    } thresholds;

    struct sdc_value fixed[SDC_KEY_COUNT]; /* value, or for a factor its first level */
    struct sdc_factor *factors;            /* sorted by path, so the file's order does not matter */
    size_t n_factors;

    char *file;                      /* as given, for messages */
    char *source;                    /* the text as written */
    char *resolved;                  /* canonical JSON, one line */
    char hash[SDC_DIGEST_TEXT_SIZE]; /* XXH3-128 of resolved */
};

/* SDC_NOT_FOUND, SDC_IO, SDC_LIMIT (over SDC_MAX_SPEC bytes or too deep), else SDC_INVALID or
 * SDC_UNSUPPORTED with FILE:LINE:COLUMN. Free with sdc__spec_free. */
enum sdc_status sdc__spec_read(const char *path, struct sdc_spec **spec,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* what names the text in messages. */
enum sdc_status sdc__spec_parse(const char *text, size_t len, const char *what,
                                struct sdc_spec **spec, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__spec_free(struct sdc_spec *spec); /* accepts NULL */

/* The setting of one combination: level[f] is the level of factors[f]; NULL: first levels. */
enum sdc_status sdc__spec_setting(const struct sdc_spec *spec, const uint32_t *level,
                                  struct sdc_setting *setting,
                                  struct sdc_error *err) SDC_MUST_CHECK;
void sdc__setting_release(struct sdc_setting *setting);
/* Sites that the setting's choice can hit in a checkpoint of the built-in trainer: bits, or
 * elements for op value. An upper bound where tensors, roles or number formats are chosen.
 * pairs_parts: sites are drawn over the model's parameters whatever the part
 * (sdc__spec_pairs_parts). */
uint64_t sdc__setting_support(const struct sdc_setting *setting, bool pairs_parts);
/* Whether pair_over names part. */
bool sdc__spec_pairs_parts(const struct sdc_spec *spec);
/* The factor of a key, or NULL where it is fixed. */
const struct sdc_factor *sdc__spec_factor(const struct sdc_spec *spec, enum sdc_key key);
/* The value of a key at these levels (NULL: first levels). */
const struct sdc_value *sdc__spec_value(const struct sdc_spec *spec, const uint32_t *level,
                                        enum sdc_key key);

/* SDC_MISMATCH naming the keys that differ, with both values, if the resolved specs differ. */
enum sdc_status sdc__spec_same(const char *stored, const char *given, const char *what,
                               struct sdc_error *err) SDC_MUST_CHECK;

const char *sdc__claim_name(enum sdc_claim claim); /* "H1a", "H3" */
const char *sdc__key_path(enum sdc_key key);
enum sdc_key_class sdc__key_class(enum sdc_key key);

/* A commented spec that explains every key and parses; appended to out. */
void sdc__spec_template(const char *name, struct sdc_buf *out);

/* "libyaml built VERSION, running VERSION" of the library behind this file. */
void sdc__spec_library(char *text, size_t size);

#endif
