/* SPDX-License-Identifier: Apache-2.0
 *
 * What a choice is and how its words are read.
 */
#include "sdc/choice.h"

#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "contract/choice_text.h"

#define USAGE(...) SDC_ERR(err, SDC_USAGE, __VA_ARGS__)

/* ---- life ---- */

void sdc_text_free(char *text) {
    sdc__free(text);
}

void sdc_choice_init(struct sdc_choice *c) {
    *c = (struct sdc_choice){.flips = 1};
}

static void free_list(char **items, size_t n) {
    for (size_t i = 0; i < n; i++)
        sdc__free(items[i]);
    sdc__free(items);
}

void sdc_choice_release(struct sdc_choice *c) {
    for (size_t i = 0; i < c->n_at; i++)
        sdc__free(c->at[i].tensor);
    sdc__free(c->at);
    free_list(c->tensors, c->n_tensors);
    free_list(c->not_tensors, c->n_not_tensors);
    sdc_choice_init(c);
}

static bool copy_list(char ***to, size_t *n_to, char *const *from, size_t n) {
    if (n == 0)
        return true;
    *to = sdc__calloc(n, sizeof **to);
    if (!*to)
        return false;
    *n_to = n;
    for (size_t i = 0; i < n; i++)
        if (!((*to)[i] = sdc__strdup(from[i])))
            return false;
    return true;
}

static bool copy_at(struct sdc_choice *to, const struct sdc_choice *from) {
    if (from->n_at == 0)
        return true;
    to->at = sdc__calloc(from->n_at, sizeof *to->at);
    if (!to->at)
        return false;
    for (size_t i = 0; i < from->n_at; i++) {
        to->at[i] = from->at[i];
        to->at[i].tensor = sdc__strdup(from->at[i].tensor);
        to->n_at = i + 1;
        if (!to->at[i].tensor)
            return false;
    }
    return true;
}

enum sdc_status sdc_choice_copy(struct sdc_choice *to, const struct sdc_choice *from,
                                struct sdc_error *err) {
    struct sdc_choice copy = *from;
    copy.at = NULL;
    copy.tensors = copy.not_tensors = NULL;
    copy.n_at = copy.n_tensors = copy.n_not_tensors = 0;
    if (copy_at(&copy, from) &&
        copy_list(&copy.tensors, &copy.n_tensors, from->tensors, from->n_tensors) &&
        copy_list(&copy.not_tensors, &copy.n_not_tensors, from->not_tensors, from->n_not_tensors)) {
        *to = copy;
        return SDC_OK;
    }
    sdc_choice_release(&copy);
    return SDC_NOMEM(err, "a fault choice");
}

/* ---- words ---- */

const char *const sdc__sample_words[] = {"bits", "tensors"};

/* Words of the full set that this version lacks, so that they are not taken for misspellings. */
static const char *const later_samples[] = {"elements", "bytes", "stratified"};
static const char *const later_ops[] = {
    "set0", "set1", "mask=", "burst=", "scale=", "random", "swap"};
static const char *const later_keys[] = {"rate", "not-result", "checksum", "compat"};

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Is text one of the words? A word that ends in '=' stands for all that begin so. */
static bool among(const char *const words[], size_t n, const char *text) {
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(words[i]);
        bool prefix = words[i][len - 1] == '=';
        if (prefix ? strncmp(words[i], text, len) == 0 : strcmp(words[i], text) == 0)
            return true;
    }
    return false;
}

static enum sdc_status set_flips(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    unsigned long long n;
    if (!sdc__parse_u64(value, &n))
        return USAGE("flips: expected a whole number of at least 0, found '%.100s'", value);
    c->flips = n;
    c->flips_given = true;
    return SDC_OK;
}

static enum sdc_status set_exhaustive(struct sdc_choice *c, const char *value,
                                      struct sdc_error *err) {
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return USAGE("exhaustive: expected true or false, found '%.100s'", value);
    bool on = value[0] == 't';
    if (on && c->mode == SDC_CHOICE_AT)
        return USAGE("exhaustive: does not go with sites listed by at");
    if (on)
        c->mode = SDC_CHOICE_EXHAUSTIVE;
    else if (c->mode == SDC_CHOICE_EXHAUSTIVE)
        c->mode = SDC_CHOICE_FLIPS;
    return SDC_OK;
}

static enum sdc_status set_sample(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    if (among(later_samples, N(later_samples), value))
        return USAGE("sample: not supported yet: '%s'; supported are bits, tensors", value);
    if (strcmp(value, "bits") == 0)
        c->sample = SDC_SAMPLE_BITS;
    else if (strcmp(value, "tensors") == 0)
        c->sample = SDC_SAMPLE_TENSORS;
    else
        return USAGE("sample: expected bits or tensors, found '%.100s'", value);
    c->sample_given = true;
    return SDC_OK;
}

static enum sdc_status add_text(char ***list, size_t *n, const char *key, const char *value,
                                struct sdc_error *err) {
    if (!*value)
        return USAGE("%s: expected a name or a pattern, found nothing", key);
    char *copy = sdc__strdup(value);
    char **grown = copy ? sdc__realloc(*list, *n + 1, sizeof *grown) : NULL;
    if (!grown) {
        sdc__free(copy);
        return SDC_NOMEM(err, key);
    }
    grown[(*n)++] = copy;
    *list = grown;
    return SDC_OK;
}

static enum sdc_status set_tensors(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    return add_text(&c->tensors, &c->n_tensors, "tensors", value, err);
}

static enum sdc_status set_not_tensors(struct sdc_choice *c, const char *value,
                                       struct sdc_error *err) {
    return add_text(&c->not_tensors, &c->n_not_tensors, "not-tensors", value, err);
}

/* The number of a word of one of the lists: role, part or dtype. */
typedef bool word_parser(const char *word, int *number);
typedef const char *word_namer(int number);

static bool parse_role(const char *word, int *number) {
    enum sdc_role role;
    bool known = sdc_role_parse(word, &role);
    *number = known ? (int)role : 0;
    return known;
}

static bool parse_part(const char *word, int *number) {
    enum sdc_part part;
    bool known = sdc_part_parse(word, &part);
    *number = known ? (int)part : 0;
    return known;
}

static bool parse_dtype(const char *word, int *number) {
    enum sdc_dtype dtype;
    bool known = sdc_dtype_parse(word, &dtype);
    *number = known ? (int)dtype : 0;
    return known;
}

static const char *role_name(int number) {
    return sdc_role_name((enum sdc_role)number);
}

static const char *part_name(int number) {
    return sdc_part_name((enum sdc_part)number);
}

static const char *dtype_name(int number) {
    return sdc_dtype_name((enum sdc_dtype)number);
}

static enum sdc_status add_words(uint32_t *mask, const char *key, const char *value,
                                 word_parser *parse, word_namer *name, int n,
                                 struct sdc_error *err) {
    uint32_t added = 0;
    for (const char *p = value;; p++) {
        size_t len = strcspn(p, ",");
        char word[64];
        int number = 0;
        bool fits = len < sizeof word;
        if (fits) {
            memcpy(word, p, len);
            word[len] = '\0';
        }
        if (!fits || !parse(word, &number)) {
            struct sdc_buf list = SDC_BUF_INIT;
            for (int i = 0; i < n; i++)
                sdc__buf_printf(&list, "%s%s", i ? ", " : "", name(i));
            enum sdc_status st =
                USAGE("%s: expected a list of %s, found '%.*s'", key,
                      list.data ? list.data : "words", (int)(len < 60 ? len : 60), p);
            sdc__buf_release(&list);
            return st;
        }
        added |= 1u << number;
        p += len;
        if (!*p)
            break;
    }
    *mask |= added;
    return SDC_OK;
}

static enum sdc_status set_role(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    return add_words(&c->roles, "role", value, parse_role, role_name, SDC_ROLE_COUNT, err);
}

static enum sdc_status set_part(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    return add_words(&c->parts, "part", value, parse_part, part_name, SDC_PART_NONE, err);
}

static enum sdc_status set_dtype(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    return add_words(&c->dtypes, "dtype", value, parse_dtype, dtype_name, SDC_DTYPE_COUNT, err);
}

static enum sdc_status set_bits(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    struct sdc_bits_item items[SDC_MAX_BITS_ITEMS];
    size_t n;
    SDC_TRY(sdc_bits_parse(value, items, &n, err));
    if (n == 1 && items[0].kind == SDC_BITS_ANY)
        n = 0;
    memcpy(c->bits, items, n * sizeof items[0]);
    c->n_bits = n;
    return SDC_OK;
}

static enum sdc_status set_op(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    double number;
    if (strcmp(value, "flip") == 0) {
        c->op = SDC_OP_FLIP;
        return SDC_OK;
    }
    if (among(later_ops, N(later_ops), value))
        return USAGE("op: not supported yet: '%.60s'; supported are flip, value=X", value);
    if (strncmp(value, "value=", 6) != 0)
        return USAGE("op: expected flip or value=X, found '%.100s'", value);
    if (!sdc__parse_f64(value + 6, &number))
        return USAGE("op: value: expected 0, nan, inf, -inf or a number, found '%.100s'",
                     value + 6);
    c->op = SDC_OP_VALUE;
    c->value = number;
    return SDC_OK;
}

static enum sdc_status set_at(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    struct sdc_at at;
    if (c->mode == SDC_CHOICE_EXHAUSTIVE)
        return USAGE("at: does not go with exhaustive");
    SDC_TRY(sdc__at_parse(value, &at, err));
    struct sdc_at *grown = sdc__realloc(c->at, c->n_at + 1, sizeof *grown);
    if (!grown) {
        sdc__free(at.tensor);
        return SDC_NOMEM(err, "a site");
    }
    grown[c->n_at++] = at;
    c->at = grown;
    c->mode = SDC_CHOICE_AT;
    return SDC_OK;
}

static const struct {
    const char *key;
    enum sdc_status (*set)(struct sdc_choice *c, const char *value, struct sdc_error *err);
} setters[] = {
    {"flips", set_flips},     {"exhaustive", set_exhaustive},
    {"at", set_at},           {"sample", set_sample},
    {"tensors", set_tensors}, {"not-tensors", set_not_tensors},
    {"role", set_role},       {"part", set_part},
    {"dtype", set_dtype},     {"bits", set_bits},
    {"op", set_op},
};

/* As strcmp, with underscores in key counting as dashes. */
static bool same_key(const char *known, const char *key) {
    size_t i = 0;
    for (; known[i] && key[i]; i++)
        if (known[i] != (key[i] == '_' ? '-' : key[i]))
            return false;
    return known[i] == key[i];
}

enum sdc_status sdc_choice_set(struct sdc_choice *c, const char *key, const char *value,
                               struct sdc_error *err) {
    const char *keys[N(setters)];
    for (size_t i = 0; i < N(setters); i++) {
        if (same_key(setters[i].key, key))
            return setters[i].set(c, value, err);
        keys[i] = setters[i].key;
    }
    for (size_t i = 0; i < N(later_keys); i++)
        if (same_key(later_keys[i], key))
            return USAGE("not supported yet: '%s'; supported are flips, exhaustive, at, sample, "
                         "tensors, not-tensors, role, part, dtype, bits, op",
                         later_keys[i]);
    const char *near = sdc__nearest(key, keys, N(setters));
    return USAGE("unknown word '%.60s' of a fault choice%s%s%s", key,
                 near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}

/* ---- checks ---- */

enum sdc_status sdc_choice_check(const struct sdc_choice *c, struct sdc_error *err) {
    const char *how = c->mode == SDC_CHOICE_AT ? "at" : "exhaustive";
    if (c->mode != SDC_CHOICE_FLIPS && c->flips_given)
        return USAGE("flips: a number to draw does not go with %s", how);
    if (c->mode != SDC_CHOICE_FLIPS && c->sample_given)
        return USAGE("sample: a way to draw does not go with %s", how);
    if (c->n_bits && c->op == SDC_OP_VALUE)
        return USAGE("bits: op value replaces whole elements, so bits cannot be chosen");
    if (c->mode != SDC_CHOICE_AT)
        return SDC_OK;
    if (c->n_bits)
        return USAGE("bits: sites listed by at carry their bits themselves");
    if (c->n_at == 0)
        return USAGE("at: no site is listed");
    for (size_t i = 0; i < c->n_at; i++) {
        if (c->op == SDC_OP_VALUE && c->at[i].has_bit)
            return USAGE("at: %.200s: op value replaces whole elements, so a bit cannot be named",
                         c->at[i].tensor);
        if (c->op == SDC_OP_FLIP && !c->at[i].has_bit)
            return USAGE("at: %.200s: op flip needs a bit, such as @lsb:30", c->at[i].tensor);
    }
    return SDC_OK;
}

static bool any_matches(char *const *globs, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(globs[i], name) == 0 || sdc__glob_match(globs[i], name))
            return true;
    return false;
}

bool sdc_choice_admits(const struct sdc_choice *c, const struct sdc_tensor_desc *t) {
    return t->dtype_known && !t->locked && (!c->roles || c->roles >> t->role & 1) &&
           (!c->parts || c->parts >> t->part & 1) && (!c->dtypes || c->dtypes >> t->dtype & 1) &&
           (!c->n_tensors || any_matches(c->tensors, c->n_tensors, t->name)) &&
           !any_matches(c->not_tensors, c->n_not_tensors, t->name);
}
