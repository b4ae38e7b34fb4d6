/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the spec reader share: the table of keys, and values of one key.
 */
#ifndef SDC_CAMP_SPEC_INTERNAL_H
#define SDC_CAMP_SPEC_INTERNAL_H

#include "base/json.h"
#include "camp/spec.h"
#include "camp/spec_node.h"

enum sdc_value_kind {
    SDC_VALUE_NAME,    /* letters, digits, '-', '_', '.' */
    SDC_VALUE_PATH,    /* any text, or null */
    SDC_VALUE_WORD,    /* one of entry.words */
    SDC_VALUE_U64,     /* min to max */
    SDC_VALUE_F64,     /* fmin to fmax */
    SDC_VALUE_RECIPE,  /* name of a recipe */
    SDC_VALUE_ALTERED, /* rank:K, one, k:K, half, all */
    SDC_VALUE_CHOICE,  /* a word of a fault choice, or a list of them joined by commas */
    SDC_VALUE_GLOBS,   /* one text or a list */
    SDC_VALUE_U64S,    /* list, ascending */
    SDC_VALUE_WORDS    /* list of distinct entry.words; for pair_over paths of factors */
};

struct sdc_spec_entry {
    const char *path;
    enum sdc_value_kind kind;
    uint64_t min, max;
    double fmin, fmax;
    const char *words; /* allowed, separated by spaces */
    const char *later; /* known and not supported by this version, separated by spaces */
    const char *def;   /* default as text; NULL: has to be given */
    const char *help;  /* for the commented spec; lines of at most 70 characters */
};

/* Keys of the whole campaign, after those of enum sdc_key in the table. */
enum sdc_spec_global {
    SDC_SPEC_NAME = SDC_KEY_COUNT,
    SDC_SPEC_SEED,
    SDC_SPEC_CLUSTERS,
    SDC_SPEC_CHECKPOINTS,
    SDC_SPEC_WINDOW,
    SDC_SPEC_EVAL_SAMPLES,
    SDC_SPEC_DIGEST_EVERY,
    SDC_SPEC_E0,
    SDC_SPEC_E1,
    SDC_SPEC_TRIALS,
    SDC_SPEC_MARGIN,
    SDC_SPEC_CLAIMS,
    SDC_SPEC_PAIR_OVER,
    SDC_SPEC_PLACEBO,
    SDC_SPEC_ONE_LSB,
    SDC_SPEC_ALL_NAN,
    SDC_SPEC_EXTREME,
    SDC_SPEC_DEGRADED,
    SDC_SPEC_CHANCE,
    SDC_SPEC_ENTRIES
};

extern const struct sdc_spec_entry sdc__spec_entries[SDC_SPEC_ENTRIES];

/* Reads one value; messages as FILE:LINE:COLUMN: PATH: ... */
enum sdc_status sdc__value_read(const struct sdc_spec_entry *entry, const struct sdc_node *node,
                                const char *what, struct sdc_value *value,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* The default, as if it had been written. SDC_INTERNAL if the table is wrong. */
enum sdc_status sdc__value_default(const struct sdc_spec_entry *entry, struct sdc_value *value,
                                   struct sdc_error *err) SDC_MUST_CHECK;
void sdc__value_release(struct sdc_value *value);
/* As JSON of its type. */
void sdc__value_json(struct sdc_jw *w, const struct sdc_spec_entry *entry,
                     const struct sdc_value *value);
/* Lines of a joined text: *line is set to each in turn, copied into word (cut at size). False at
 * the end. Start with *rest = text. */
bool sdc__value_next(const char **rest, char *word, size_t size);
bool sdc__altered_parse(const char *text, struct sdc_altered_ranks *out);

/* A key of a fault choice with its text put into the choice; "any" and "" set nothing. */
enum sdc_status sdc__choice_put(struct sdc_choice *c, const char *path, const char *text,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* ---- the spec while it is read ---- */

struct sdc_spec_draft {
    struct sdc_spec *spec;
    struct sdc_value values[SDC_SPEC_ENTRIES]; /* globals; text NULL: not given */
    const struct sdc_node *pair_over;          /* the list, for places of its items */
    const struct sdc_node *claims;
};

/* Combinations of keys, after all values were read. */
enum sdc_status sdc__spec_check(const struct sdc_spec_draft *d,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* spec->resolved and spec->hash. */
enum sdc_status sdc__spec_resolve(struct sdc_spec_draft *d, struct sdc_error *err) SDC_MUST_CHECK;

#endif
