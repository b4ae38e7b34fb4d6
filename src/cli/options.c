/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

static void *member(void *args, const struct sdc_opt *o) {
    return (char *)args + o->off;
}

static bool takes_value(const struct sdc_opt *o) {
    return o->type != SDC_OPT_FLAG && o->value != NULL;
}

static enum sdc_status set_enum(const struct sdc_opt *o, const char *value, int *out,
                                struct sdc_error *err) {
    struct sdc_buf allowed = SDC_BUF_INIT;
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(o->choices[i], value) == 0) {
            *out = i;
            sdc__buf_release(&allowed);
            return SDC_OK;
        }
        sdc__buf_printf(&allowed, "%s%s", i ? ", " : "", o->choices[i]);
    }
    SDC_ERR(err, SDC_USAGE, "--%s: found '%s', expected one of: %s", o->name, value,
            allowed.data ? allowed.data : "");
    sdc__buf_release(&allowed);
    return SDC_USAGE;
}

static enum sdc_status set_u64(const struct sdc_opt *o, const char *value, uint64_t *out,
                               struct sdc_error *err) {
    unsigned long long number;
    if (!sdc__parse_u64(value, &number))
        return SDC_ERR(err, SDC_USAGE, "--%s: found '%s', expected a whole number of at least %llu",
                       o->name, value, (unsigned long long)o->min);
    if (number < o->min || (o->max && number > o->max))
        return SDC_ERR(err, SDC_USAGE, "--%s: %llu is out of range, expected %llu to %llu", o->name,
                       number, (unsigned long long)o->min,
                       o->max ? (unsigned long long)o->max : (unsigned long long)UINT64_MAX);
    *out = number;
    return SDC_OK;
}

static enum sdc_status append(void **items, size_t *n, size_t size, const void *item,
                              struct sdc_error *err) {
    void *grown = sdc__realloc(*items, *n + 1, size);
    if (!grown)
        return SDC_NOMEM(err, "options");
    memcpy((char *)grown + *n * size, item, size);
    *items = grown;
    (*n)++;
    return SDC_OK;
}

static enum sdc_status set(const struct sdc_opt *o, void *args, const char *value,
                           struct sdc_error *err) {
    void *where = member(args, o);
    switch (o->type) {
    case SDC_OPT_FLAG:
        *(bool *)where = strcmp(value, "true") == 0;
        return SDC_OK;
    case SDC_OPT_STR:
        *(const char **)where = value;
        return SDC_OK;
    case SDC_OPT_U64:
        return set_u64(o, value, where, err);
    case SDC_OPT_F64:
        if (!sdc__parse_f64(value, where))
            return SDC_ERR(err, SDC_USAGE, "--%s: found '%s', expected a number", o->name, value);
        return SDC_OK;
    case SDC_OPT_ENUM:
        return set_enum(o, value, where, err);
    case SDC_OPT_LIST: {
        struct sdc_opt_list *list = where;
        return append((void **)&list->items, &list->n, sizeof value, &value, err);
    }
    case SDC_OPT_WORDS: {
        struct sdc_opt_words *words = where;
        struct sdc_opt_word word = {o->name, value};
        return append((void **)&words->items, &words->n, sizeof word, &word, err);
    }
    case SDC_OPT_END:
        break;
    }
    return SDC_ERR(err, SDC_INTERNAL, "option --%s has no type", o->name);
}

/* One of the two tables a parse looks in, with the struct its options are bound to. */
struct scope {
    const struct sdc_opt *table;
    void *args;
};

static const struct sdc_opt *find_long(const struct scope scopes[2], const char *name, size_t len,
                                       void **args) {
    for (int s = 0; s < 2; s++)
        for (const struct sdc_opt *o = scopes[s].table; o && o->type != SDC_OPT_END; o++)
            if (strlen(o->name) == len && memcmp(o->name, name, len) == 0) {
                *args = scopes[s].args;
                return o;
            }
    return NULL;
}

static const struct sdc_opt *find_letter(const struct scope scopes[2], char letter, void **args) {
    for (int s = 0; s < 2; s++)
        for (const struct sdc_opt *o = scopes[s].table; o && o->type != SDC_OPT_END; o++)
            if (o->letter && o->letter == letter) {
                *args = scopes[s].args;
                return o;
            }
    return NULL;
}

static enum sdc_status unknown(const struct scope scopes[2], const char *word, size_t len,
                               struct sdc_error *err) {
    const char *names[256];
    size_t n = 0;
    for (int s = 0; s < 2; s++)
        for (const struct sdc_opt *o = scopes[s].table; o && o->type != SDC_OPT_END && n < 256; o++)
            names[n++] = o->name;
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)(len < 100 ? len : 100), word);
    const char *near = sdc__nearest(text, names, n);
    if (near)
        return SDC_ERR(err, SDC_USAGE, "unknown option '--%s' (did you mean '--%s'?)", text, near);
    return SDC_ERR(err, SDC_USAGE, "unknown option '--%s'", text);
}

/* Handles argv[*i], which starts with "--" and more; may take argv[*i + 1] as the value. */
static enum sdc_status parse_long(int argc, const char *const argv[], int *i,
                                  const struct scope scopes[2], struct sdc_error *err) {
    const char *name = argv[*i] + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    void *args = NULL;
    const struct sdc_opt *o = find_long(scopes, name, len, &args);
    if (!o && len > 3 && memcmp(name, "no-", 3) == 0) {
        o = find_long(scopes, name + 3, len - 3, &args);
        if (o && o->type == SDC_OPT_FLAG && !equals)
            return set(o, args, "false", err);
        o = NULL;
    }
    if (!o)
        return unknown(scopes, name, len, err);
    if (!takes_value(o)) {
        if (equals)
            return SDC_ERR(err, SDC_USAGE, "--%s takes no value, found '%s'", o->name, equals + 1);
        return set(o, args, "true", err);
    }
    if (equals)
        return set(o, args, equals + 1, err);
    if (*i + 1 >= argc)
        return SDC_ERR(err, SDC_USAGE, "--%s needs a value: %s", o->name, o->value);
    return set(o, args, argv[++*i], err);
}

/* Handles argv[*i], which starts with "-" and a letter. */
static enum sdc_status parse_letters(int argc, const char *const argv[], int *i,
                                     const struct scope scopes[2], struct sdc_error *err) {
    const char *word = argv[*i];
    for (const char *c = word + 1; *c; c++) {
        void *args = NULL;
        const struct sdc_opt *o = find_letter(scopes, *c, &args);
        if (!o)
            return SDC_ERR(err, SDC_USAGE, "unknown option '-%c' in '%s'", *c, word);
        if (!takes_value(o)) {
            SDC_TRY(set(o, args, "true", err));
            continue;
        }
        if (c[1])
            return set(o, args, c + 1, err);
        if (*i + 1 >= argc)
            return SDC_ERR(err, SDC_USAGE, "-%c needs a value: %s", *c, o->value);
        return set(o, args, argv[++*i], err);
    }
    return SDC_OK;
}

enum sdc_status sdc_opt_parse(int argc, const char *const argv[], const struct sdc_opt *table,
                              void *args, const struct sdc_opt *common, void *common_args,
                              struct sdc_opt_operands *operands, struct sdc_error *err) {
    const struct scope scopes[2] = {{table, args}, {common, common_args}};
    *operands = (struct sdc_opt_operands){0};
    for (int s = 0; s < 2; s++)
        for (const struct sdc_opt *o = scopes[s].table; o && o->type != SDC_OPT_END; o++)
            if (o->def)
                SDC_TRY(set(o, scopes[s].args, o->def, err));
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            SDC_TRY(append((void **)&operands->items, &operands->n, sizeof word, &word, err));
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (word[1] == '-') {
            SDC_TRY(parse_long(argc, argv, &i, scopes, err));
        } else {
            SDC_TRY(parse_letters(argc, argv, &i, scopes, err));
        }
    }
    return SDC_OK;
}

void sdc_opt_release(const struct sdc_opt *table, void *args, struct sdc_opt_operands *operands) {
    for (const struct sdc_opt *o = table; o && o->type != SDC_OPT_END; o++) {
        if (o->type == SDC_OPT_LIST) {
            struct sdc_opt_list *list = member(args, o);
            sdc__free(list->items);
            *list = (struct sdc_opt_list){0};
        } else if (o->type == SDC_OPT_WORDS) {
            struct sdc_opt_words *words = member(args, o); /* shared: the second free sees NULL */
            sdc__free(words->items);
            *words = (struct sdc_opt_words){0};
        }
    }
    sdc__free(operands->items);
    *operands = (struct sdc_opt_operands){0};
}
