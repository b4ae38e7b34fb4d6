/* SPDX-License-Identifier: Apache-2.0
 *
 * How the words of a choice are read.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "contract/choice_text.h"
#include "sdc/choice.h"

#define USAGE(...) SDC_ERR(err, SDC_USAGE, __VA_ARGS__)

/* ---- words ---- */

const char *const sdc__sample_words[] = {"bits",  "tensors",    "elements",
                                         "bytes", "stratified", "attempts"};
const char *const sdc__op_words[SDC_OP_COUNT] = {"flip",  "value", "set0",   "set1", "mask",
                                                 "burst", "scale", "random", "swap"};
const char *const sdc__checksum_words[] = {"mend", "stale"};
const char *const sdc__compat_words[] = {"none", "hdf5-corrupter"};

const char *sdc_op_name(enum sdc_op op) {
    return sdc__op_words[op];
}

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* The number of a word of a list; otherwise a message with all of them. */
static enum sdc_status find_word(const char *key, const char *const words[], size_t n,
                                 const char *value, int *number, struct sdc_error *err) {
    struct sdc_buf list = SDC_BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(words[i], value) == 0) {
            sdc__buf_release(&list);
            *number = (int)i;
            return SDC_OK;
        }
        sdc__buf_printf(&list, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ", words[i]);
    }
    enum sdc_status st = USAGE("%s: expected %s, found '%.100s'", key,
                               list.data ? list.data : "one of its words", value);
    sdc__buf_release(&list);
    return st;
}

static enum sdc_status set_flips(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    unsigned long long n;
    if (!sdc__parse_u64(value, &n))
        return USAGE("flips: expected a whole number of at least 0, found '%.100s'", value);
    c->flips = n;
    c->flips_given = true;
    return SDC_OK;
}

enum sdc_status sdc__choice_set_rate(struct sdc_choice *c, double rate, struct sdc_error *err) {
    if (!(rate >= 0.0 && rate <= 1.0))
        return USAGE("rate: expected a probability, 0 to 1, found %g", rate);
    c->rate = rate;
    c->rate_given = true;
    if (c->mode == SDC_CHOICE_FLIPS && c->sample != SDC_SAMPLE_ATTEMPTS)
        c->mode = SDC_CHOICE_RATE;
    return SDC_OK;
}

static enum sdc_status set_rate(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    double rate;
    if (!sdc__parse_f64(value, &rate))
        return USAGE("rate: expected a probability, 0 to 1, found '%.100s'", value);
    return sdc__choice_set_rate(c, rate, err);
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

/* A rate is a way to draw of its own, but for attempts their probability. */
static void use_sample(struct sdc_choice *c, enum sdc_sample sample) {
    bool attempts = sample == SDC_SAMPLE_ATTEMPTS;
    c->sample = sample;
    if (attempts && c->mode == SDC_CHOICE_RATE)
        c->mode = SDC_CHOICE_FLIPS;
    else if (!attempts && c->mode == SDC_CHOICE_FLIPS && c->rate_given)
        c->mode = SDC_CHOICE_RATE;
}

static enum sdc_status set_sample(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    int number;
    SDC_TRY(find_word("sample", sdc__sample_words, N(sdc__sample_words), value, &number, err));
    use_sample(c, (enum sdc_sample)number);
    c->sample_given = true;
    return SDC_OK;
}

static enum sdc_status set_checksum(struct sdc_choice *c, const char *value,
                                    struct sdc_error *err) {
    int number;
    SDC_TRY(
        find_word("checksum", sdc__checksum_words, N(sdc__checksum_words), value, &number, err));
    c->checksum = (enum sdc_checksum)number;
    return SDC_OK;
}

static enum sdc_status set_compat(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    int number;
    SDC_TRY(find_word("compat", sdc__compat_words, N(sdc__compat_words), value, &number, err));
    c->compat = (enum sdc_compat)number;
    if (c->compat == SDC_COMPAT_HDF5_CORRUPTER && !c->sample_given)
        use_sample(c, SDC_SAMPLE_ATTEMPTS);
    return SDC_OK;
}

static enum sdc_status set_not_result(struct sdc_choice *c, const char *value,
                                      struct sdc_error *err) {
    uint32_t classes = 0;
    if (strcmp(value, "none") == 0) {
        c->not_result = 0;
        return SDC_OK;
    }
    for (const char *p = value;; p++) {
        size_t len = strcspn(p, ",");
        if (len == 3 && memcmp(p, "nan", 3) == 0)
            classes |= 1u << SDC_CLASS_NAN;
        else if (len == 3 && memcmp(p, "inf", 3) == 0)
            classes |= 1u << SDC_CLASS_INF;
        else
            return USAGE("not-result: expected a list of nan, inf, or none, found '%.*s'",
                         (int)(len < 60 ? len : 60), p);
        p += len;
        if (!*p)
            break;
    }
    c->not_result = classes;
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

/* "K" of flip=K and burst=K. */
static enum sdc_status parse_count(const char *op, const char *text, struct sdc_choice *c,
                                   struct sdc_error *err) {
    unsigned long long n;
    if (!sdc__parse_u64(text, &n) || n < 1 || n > 64)
        return USAGE("op: %s: expected 1 to 64 bits, found '%.100s'", op, text);
    c->count = (unsigned)n;
    return SDC_OK;
}

static int hex_digit(char ch) {
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if (ch >= 'a' && ch <= 'f')
        return ch - 'a' + 10;
    return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

/* "HEX" or "HEX/LENGTH" of mask. */
static enum sdc_status parse_mask(const char *text, struct sdc_choice *c, struct sdc_error *err) {
    const char *p = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? text + 2 : text;
    uint64_t mask = 0;
    unsigned long long length = 0;
    unsigned digits = 0;
    for (; hex_digit(*p) >= 0 && digits <= 16; p++, digits++)
        mask = mask << 4 | (unsigned)hex_digit(*p);
    bool has_length = *p == '/';
    if (digits < 1 || digits > 16 || mask == 0 || (*p && !has_length))
        return USAGE("op: mask: expected 1 to 16 hex digits that are not all 0, found '%.100s'",
                     text);
    if (has_length && (!sdc__parse_u64(p + 1, &length) || length < 1 || length > 64 ||
                       (length < 64 && mask >> length)))
        return USAGE("op: mask: expected the length of the mask in bits after the /, at most 64, "
                     "found '%.100s'",
                     text);
    c->mask = mask;
    c->mask_length = (unsigned)length;
    return SDC_OK;
}

static enum sdc_status parse_number(enum sdc_op op, const char *text, struct sdc_choice *c,
                                    struct sdc_error *err) {
    double number;
    bool is_number = sdc__parse_f64(text, &number);
    if (op == SDC_OP_VALUE && !is_number)
        return USAGE("op: value: expected 0, nan, inf, -inf or a number, found '%.100s'", text);
    if (op == SDC_OP_SCALE && (!is_number || number - number != 0.0))
        return USAGE("op: scale: expected a finite number, found '%.100s'", text);
    c->value = number;
    return SDC_OK;
}

static enum sdc_status set_op(struct sdc_choice *c, const char *value, struct sdc_error *err) {
    static const bool bare[] = {[SDC_OP_FLIP] = true,
                                [SDC_OP_SET0] = true,
                                [SDC_OP_SET1] = true,
                                [SDC_OP_RANDOM] = true,
                                [SDC_OP_SWAP] = true};
    size_t len = strcspn(value, "=");
    int op = 0;
    while (op < SDC_OP_COUNT &&
           !(strlen(sdc__op_words[op]) == len && memcmp(sdc__op_words[op], value, len) == 0))
        op++;
    bool has_value = value[len] == '=';
    bool takes = op < SDC_OP_COUNT && (op == SDC_OP_FLIP || !bare[op]);
    if (op == SDC_OP_COUNT || (has_value && !takes) || (!has_value && !bare[op]))
        return USAGE("op: expected flip, flip=K, set0, set1, mask=HEX, mask=HEX/LENGTH, burst=K, "
                     "scale=F, value=X, random or swap, found '%.100s'",
                     value);
    const char *text = value + len + has_value;
    struct sdc_choice set = {.count = 1};
    if (op == SDC_OP_MASK)
        SDC_TRY(parse_mask(text, &set, err));
    else if (op == SDC_OP_VALUE || op == SDC_OP_SCALE)
        SDC_TRY(parse_number((enum sdc_op)op, text, &set, err));
    else if (has_value)
        SDC_TRY(parse_count(sdc__op_words[op], text, &set, err));
    c->op = (enum sdc_op)op;
    c->value = set.value;
    c->mask = set.mask;
    c->mask_length = set.mask_length;
    c->count = set.count;
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
    {"flips", set_flips},
    {"exhaustive", set_exhaustive},
    {"at", set_at},
    {"sample", set_sample},
    {"tensors", set_tensors},
    {"not-tensors", set_not_tensors},
    {"role", set_role},
    {"part", set_part},
    {"dtype", set_dtype},
    {"bits", set_bits},
    {"op", set_op},
    {"rate", set_rate},
    {"not-result", set_not_result},
    {"checksum", set_checksum},
    {"compat", set_compat},
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
    const char *near = sdc__nearest(key, keys, N(setters));
    return USAGE("unknown word '%.60s' of a fault choice%s%s%s", key,
                 near ? ", did you mean '" : "", near ? near : "", near ? "'" : "");
}
