/* SPDX-License-Identifier: Apache-2.0
 *
 * The injector's configuration file as values.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "camp/spec_node.h"
#include "cli/corrupter.h"
#include "io/io.h"

#define BAD(node, ...)                                                                             \
    sdc__spec_error(err, SDC_INVALID, c->what, (node)->line, (node)->column, __VA_ARGS__)

/* ---- values ---- */

static enum sdc_status wrong(const struct sdc_corrupter_config *c, const struct sdc_node *key,
                             const struct sdc_node *v, const char *expected,
                             struct sdc_error *err) {
    char found[100];
    sdc__node_describe(v, found, sizeof found);
    return BAD(v, "%s: expected %s, found %s", key->text, expected, found);
}

static bool same_nocase(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
    return *a == *b;
}

/* As PyYAML reads them, and 0 and 1. Not in quotes: the injector took any such text for true. */
static bool as_bool(const struct sdc_node *v, bool *out) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; v->kind == SDC_NODE_SCALAR && !v->quoted && i < 8; i++)
        if (same_nocase(v->text, words[i])) {
            *out = i % 2;
            return true;
        }
    return false;
}

/* Numbers in quotes too: the injector converts texts, and of float_precision it takes nothing else.
 */
static bool as_u64(const struct sdc_node *v, uint64_t *out) {
    unsigned long long n;
    if (v->kind != SDC_NODE_SCALAR || !sdc__parse_u64(v->text, &n))
        return false;
    *out = n;
    return true;
}

static bool as_number(const struct sdc_node *v, double *out) {
    double n;
    if (v->kind != SDC_NODE_SCALAR || !sdc__parse_f64(v->text, &n) || !isfinite(n))
        return false;
    *out = n;
    return true;
}

static enum sdc_status as_text(struct sdc_corrupter_config *c, const struct sdc_node *key,
                               const struct sdc_node *v, char **out, struct sdc_error *err) {
    if (v->kind != SDC_NODE_SCALAR || !*v->text)
        return wrong(c, key, v, "a text", err);
    *out = sdc__strdup(v->text);
    return *out ? SDC_OK : SDC_NOMEM(err, "a configuration");
}

static struct sdc_corrupter_place place_of(const struct sdc_node *v) {
    return (struct sdc_corrupter_place){v->line, v->column};
}

/* ---- keys ---- */

typedef enum sdc_status take_fn(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                const struct sdc_node *v, struct sdc_error *err);

static enum sdc_status take_file(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                 const struct sdc_node *v, struct sdc_error *err) {
    return as_text(c, key, v, &c->file, err);
}

static enum sdc_status take_probability(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                        const struct sdc_node *v, struct sdc_error *err) {
    if (!as_number(v, &c->probability) || c->probability < 0 || c->probability > 1)
        return wrong(c, key, v, "a probability, 0 to 1", err);
    return SDC_OK;
}

static enum sdc_status take_type(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                 const struct sdc_node *v, struct sdc_error *err) {
    bool scalar = v->kind == SDC_NODE_SCALAR;
    c->percentage = scalar && same_nocase(v->text, "percentage");
    if (!c->percentage && !(scalar && same_nocase(v->text, "count")))
        return wrong(c, key, v, "count or percentage", err);
    return SDC_OK;
}

static enum sdc_status take_amount(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                   const struct sdc_node *v, struct sdc_error *err) {
    if (!as_number(v, &c->amount) || c->amount < 0)
        return wrong(c, key, v, "a number of attempts or a percentage of the entries", err);
    c->at_amount = place_of(v);
    return SDC_OK;
}

static enum sdc_status take_precision(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                      const struct sdc_node *v, struct sdc_error *err) {
    uint64_t n = 0;
    c->at_precision = place_of(v);
    if (v->kind == SDC_NODE_SCALAR && same_nocase(v->text, "auto"))
        return SDC_OK;
    if (!as_u64(v, &n) || (n != 16 && n != 32 && n != 64))
        return wrong(c, key, v, "16, 32, 64 or auto", err);
    c->precision = (unsigned)n;
    return SDC_OK;
}

static enum sdc_status take_first(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                  const struct sdc_node *v, struct sdc_error *err) {
    c->at_bits = place_of(v);
    return as_u64(v, &c->first_bit) && c->first_bit < 64
               ? SDC_OK
               : wrong(c, key, v, "a bit, 0 (the sign) to 63", err);
}

static enum sdc_status take_last(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                 const struct sdc_node *v, struct sdc_error *err) {
    c->at_bits = place_of(v);
    return as_u64(v, &c->last_bit) && c->last_bit < 64
               ? SDC_OK
               : wrong(c, key, v, "a bit, 0 (the sign) to 63", err);
}

static enum sdc_status take_burst(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                  const struct sdc_node *v, struct sdc_error *err) {
    c->at_burst = place_of(v);
    if (!as_u64(v, &c->bits_per_value) || c->bits_per_value < 1 || c->bits_per_value > 64)
        return wrong(c, key, v, "1 to 64 bits of a value", err);
    return SDC_OK;
}

static enum sdc_status take_mask(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                 const struct sdc_node *v, struct sdc_error *err) {
    size_t len = v->kind == SDC_NODE_SCALAR ? strlen(v->text) : 0;
    if (len < 1 || len > 64 || strspn(v->text, "01") != len || !strchr(v->text, '1'))
        return wrong(c, key, v, "1 to 64 digits 0 and 1 that are not all 0", err);
    memcpy(c->mask, v->text, len + 1);
    c->at_mask = place_of(v);
    return SDC_OK;
}

static enum sdc_status take_factor(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                   const struct sdc_node *v, struct sdc_error *err) {
    c->at_factor = place_of(v);
    return as_number(v, &c->factor) ? SDC_OK : wrong(c, key, v, "a number", err);
}

static enum sdc_status take_nan(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                const struct sdc_node *v, struct sdc_error *err) {
    return as_bool(v, &c->allow_nan) ? SDC_OK : wrong(c, key, v, "true or false", err);
}

static enum sdc_status take_sign(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                 const struct sdc_node *v, struct sdc_error *err) {
    return as_bool(v, &c->sign_too) ? SDC_OK : wrong(c, key, v, "true or false", err);
}

static enum sdc_status take_anywhere(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                     const struct sdc_node *v, struct sdc_error *err) {
    return as_bool(v, &c->anywhere) ? SDC_OK : wrong(c, key, v, "true or false", err);
}

static enum sdc_status take_locations(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                      const struct sdc_node *v, struct sdc_error *err) {
    if (v->kind != SDC_NODE_SEQUENCE)
        return wrong(c, key, v, "a list of locations", err);
    c->at_locations = place_of(v);
    c->locations = sdc__calloc(v->n, sizeof *c->locations);
    if (!c->locations)
        return SDC_NOMEM(err, "a configuration");
    for (size_t i = 0; i < v->n; i++) {
        SDC_TRY(as_text(c, key, v->items[i], &c->locations[i], err));
        c->n_locations++;
    }
    return SDC_OK;
}

static enum sdc_status take_sequence(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                     const struct sdc_node *v, struct sdc_error *err) {
    char *name;
    bool on;
    if (as_bool(v, &on) && !on)
        return SDC_OK;
    SDC_TRY(as_text(c, key, v, &name, err));
    char *folder = sdc__path_dir(c->what);
    c->sequence = folder ? sdc__path_join(folder, name) : NULL;
    sdc__free(folder);
    sdc__free(name);
    return c->sequence ? SDC_OK : SDC_NOMEM(err, "a configuration");
}

static enum sdc_status take_saves(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                  const struct sdc_node *v, struct sdc_error *err) {
    (void)key;
    (void)err;
    bool on;
    c->saves = !as_bool(v, &on) || on;
    return SDC_OK;
}

static enum sdc_status take_nothing(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                    const struct sdc_node *v, struct sdc_error *err) {
    (void)c;
    (void)key;
    (void)v;
    (void)err;
    return SDC_OK;
}

static const struct {
    const char *name;
    take_fn *take;
} keys[] = {
    {"hdf5_file", take_file},
    {"injection_probability", take_probability},
    {"injection_type", take_type},
    {"injection_tries", take_amount},
    {"log_file_path", take_nothing},
    {"float_precision", take_precision},
    {"first_bit", take_first},
    {"last_bit", take_last},
    {"burst", take_burst},
    {"scaling_factor", take_factor},
    {"bit_mask", take_mask},
    {"allow_sign_change", take_sign},
    {"allow_NaN_values", take_nan},
    {"save_injection_sequence", take_saves},
    {"injection_sequence_path", take_sequence},
    {"use_random_locations", take_anywhere},
    {"locations_to_corrupt", take_locations},
};
#define N_KEYS (sizeof keys / sizeof keys[0])

static enum sdc_status unknown(const struct sdc_corrupter_config *c, const struct sdc_node *key,
                               struct sdc_error *err) {
    struct sdc_buf list = SDC_BUF_INIT;
    for (size_t i = 0; i < N_KEYS; i++)
        sdc__buf_printf(&list, "%s%s", i ? ", " : "", keys[i].name);
    enum sdc_status st = BAD(key, "unknown key '%.60s', expected one of %s", key->text,
                             list.data ? list.data : "the known ones");
    sdc__buf_release(&list);
    return st;
}

static enum sdc_status take_key(struct sdc_corrupter_config *c, const struct sdc_node *key,
                                const struct sdc_node *v, uint64_t *seen, struct sdc_error *err) {
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, key->text) != 0)
            continue;
        if (*seen >> i & 1)
            return BAD(key, "%s: is given twice", keys[i].name);
        *seen |= (uint64_t)1 << i;
        return sdc__node_is_null(v) ? SDC_OK : keys[i].take(c, key, v, err);
    }
    return unknown(c, key, err);
}

/* ---- the whole ---- */

/* A range (a burst goes with it), a mask or a factor, as the injector has it. */
static enum sdc_status check_mode(struct sdc_corrupter_config *c, struct sdc_error *err) {
    const struct {
        enum sdc_corrupter_mode mode;
        const char *what;
        const struct sdc_corrupter_place *at;
    } given[] = {
        {SDC_CORRUPTER_BITS, "a range of bits", &c->at_bits},
        {SDC_CORRUPTER_BITS, "burst", c->bits_per_value > 1 ? &c->at_burst : NULL},
        {SDC_CORRUPTER_MASK, "bit_mask", &c->at_mask},
        {SDC_CORRUPTER_SCALE, "scaling_factor", &c->at_factor},
    };
    const char *first = NULL;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (!given[i].at || !given[i].at->line)
            continue;
        if (first && given[i].mode != c->mode)
            return sdc__spec_error(err, SDC_INVALID, c->what, given[i].at->line,
                                   given[i].at->column, "%s and %s do not go together", first,
                                   given[i].what);
        c->mode = given[i].mode;
        first = given[i].what;
    }
    if (c->mode == SDC_CORRUPTER_BITS && c->at_bits.line && c->first_bit > c->last_bit)
        return sdc__spec_error(err, SDC_INVALID, c->what, c->at_bits.line, c->at_bits.column,
                               "first_bit %llu comes after last_bit %llu; 0 is the sign",
                               (unsigned long long)c->first_bit, (unsigned long long)c->last_bit);
    return SDC_OK;
}

static enum sdc_status check(struct sdc_corrupter_config *c, struct sdc_error *err) {
    SDC_TRY(check_mode(c, err));
    if (!c->at_amount.line && !c->sequence)
        return SDC_ERR(err, SDC_INVALID, "%s: injection_tries is not given", c->what);
    if (c->percentage && c->amount > 1)
        return sdc__spec_error(err, SDC_INVALID, c->what, c->at_amount.line, c->at_amount.column,
                               "injection_tries: a percentage is 0 to 1, of a hundred, found %g",
                               c->amount);
    if (!c->percentage && (c->amount != floor(c->amount) || c->amount > 1e15))
        return sdc__spec_error(err, SDC_INVALID, c->what, c->at_amount.line, c->at_amount.column,
                               "injection_tries: expected a whole number, found %g", c->amount);
    if (c->n_locations == 0 && !c->anywhere && !c->sequence)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: neither locations_to_corrupt nor use_random_locations: true says where",
                       c->what);
    return SDC_OK;
}

static enum sdc_status take_all(struct sdc_corrupter_config *c, const struct sdc_node *root,
                                struct sdc_error *err) {
    uint64_t seen = 0;
    _Static_assert(N_KEYS <= 64, "one bit a key");
    if (root->kind != SDC_NODE_MAPPING)
        return BAD(root, "expected a mapping of keys");
    for (size_t i = 0; i < root->n; i++)
        SDC_TRY(take_key(c, root->keys[i], root->items[i], &seen, err));
    return check(c, err);
}

void sdc_corrupter_release(struct sdc_corrupter_config *c) {
    for (size_t i = 0; i < c->n_locations; i++)
        sdc__free(c->locations[i]);
    sdc__free(c->locations);
    sdc__free(c->what);
    sdc__free(c->file);
    sdc__free(c->sequence);
    *c = (struct sdc_corrupter_config){0};
}

enum sdc_status sdc_corrupter_read(const char *path, struct sdc_corrupter_config *config,
                                   struct sdc_error *err) {
    struct sdc_corrupter_config c = {
        .probability = 1, .bits_per_value = 1, .last_bit = SDC_CORRUPTER_LAST};
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_node *root = NULL;
    enum sdc_status st;
    c.what = sdc__strdup(path);
    if (!c.what)
        return SDC_NOMEM(err, "a configuration");
    SDC_TRY_OUT(st, sdc__read_whole(path, SDC_MAX_SPEC, &text, err));
    SDC_TRY_OUT(st, sdc__node_parse(text.data ? text.data : "", text.len, path, &root, err));
    st = take_all(&c, root, err);
out:
    sdc__node_free(root);
    sdc__buf_release(&text);
    if (st == SDC_OK)
        *config = c;
    else
        sdc_corrupter_release(&c);
    return st;
}
