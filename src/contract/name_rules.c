/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a name map, and names against its patterns.
 */
#include "contract/name_rules.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

#define MAX_STARS 16

#define INVALID(...) SDC_ERR(err, SDC_INVALID, __VA_ARGS__)

/* ---- words of a line ---- */

struct word {
    char *text; /* owned */
    bool quoted;
};

struct line {
    const char *at, *end;
    const char *place; /* for messages */
};

static bool blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static enum sdc_status quoted_word(struct line *l, struct word *w, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    const char *p = l->at + 1;
    for (; p < l->end && *p != '"'; p++) {
        if (*p == '\\' && p + 1 < l->end)
            p++;
        sdc__buf_putc(&text, *p);
    }
    if (p == l->end) {
        sdc__buf_release(&text);
        return INVALID("%s: a name in quotes has no end", l->place);
    }
    l->at = p + 1;
    w->quoted = true;
    w->text = sdc__buf_take(&text);
    return w->text ? SDC_OK : SDC_NOMEM(err, "a name map");
}

/* The next word; text NULL at the end of the line or at a comment. */
static enum sdc_status next_word(struct line *l, struct word *w, struct sdc_error *err) {
    *w = (struct word){0};
    while (l->at < l->end && blank(*l->at))
        l->at++;
    if (l->at == l->end || *l->at == '#')
        return SDC_OK;
    if (*l->at == '"')
        return quoted_word(l, w, err);
    const char *start = l->at;
    while (l->at < l->end && !blank(*l->at))
        l->at++;
    w->text = sdc__strndup(start, (size_t)(l->at - start));
    return w->text ? SDC_OK : SDC_NOMEM(err, "a name map");
}

/* ---- axes ---- */

/* Numbers between commas, at most SDC_MAX_RANK; 0 if they are none. */
static unsigned numbers(const char *text, long long low, int64_t out[SDC_MAX_RANK]) {
    unsigned n = 0;
    char digits[24];
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, ",");
        long long v;
        if (n == SDC_MAX_RANK || len == 0 || len >= sizeof digits)
            return 0;
        memcpy(digits, p, len);
        digits[len] = '\0';
        if (!sdc__parse_i64(digits, &v) || v < low)
            return 0;
        out[n++] = v;
        p += len;
        if (!*p)
            return n;
    }
}

/* "oihw-hwio": the place in the first word of each letter of the second. */
static bool letters(const char *text, struct sdc__axis_rule *rule) {
    const char *dash = strchr(text, '-');
    size_t n = dash ? (size_t)(dash - text) : 0;
    if (n == 0 || n > 26 || strlen(dash + 1) != n)
        return false;
    uint32_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        const char *found = memchr(text, dash[1 + i], n);
        if (!found || !islower((unsigned char)*found) || (seen >> (*found - 'a') & 1))
            return false;
        seen |= 1u << (*found - 'a');
        rule->axes[i] = (unsigned)(found - text);
    }
    rule->n_axes = (unsigned)n;
    return true;
}

static enum sdc_status parse_axes(const char *text, const char *place, struct sdc__axis_rule *rule,
                                  struct sdc_error *err) {
    int64_t axes[SDC_MAX_RANK];
    unsigned n = numbers(text, 0, axes);
    uint64_t seen = 0;
    for (unsigned d = 0; d < n; d++) {
        if (axes[d] >= n || (seen >> axes[d] & 1))
            return INVALID("%s: axes: expected each of 0 to %u once, found '%.60s'", place, n - 1,
                           text);
        seen |= (uint64_t)1 << axes[d];
        rule->axes[d] = (unsigned)axes[d];
    }
    rule->n_axes = n;
    if (n == 0 && !letters(text, rule))
        return INVALID("%s: axes: expected numbers such as 2,3,1,0 or letters such as oihw-hwio, "
                       "found '%.60s'",
                       place, text);
    return SDC_OK;
}

static enum sdc_status parse_view(const char *text, const char *place, struct sdc__axis_rule *rule,
                                  struct sdc_error *err) {
    rule->n_view = numbers(text, -1, rule->view);
    unsigned open = 0;
    for (unsigned d = 0; d < rule->n_view; d++)
        open += rule->view[d] == -1;
    if (rule->n_view == 0 || open > 1)
        return INVALID("%s: view: expected sizes such as -1,16,5,5 of which one may be -1, found "
                       "'%.60s'",
                       place, text);
    rule->collapse = true;
    return SDC_OK;
}

static enum sdc_status parse_option(const struct word *w, const char *place,
                                    struct sdc__name_rule *rule, struct sdc_error *err) {
    bool has_axes = rule->axes.n_axes || rule->axes.transpose;
    if (rule->layer)
        return INVALID("%s: a rule for layers ends with the name, found '%.60s'", place, w->text);
    if (!w->quoted && strncmp(w->text, "axes=", 5) == 0 && !has_axes)
        return parse_axes(w->text + 5, place, &rule->axes, err);
    if (!w->quoted && strncmp(w->text, "view=", 5) == 0 && !rule->axes.n_view)
        return parse_view(w->text + 5, place, &rule->axes, err);
    if (!w->quoted && strcmp(w->text, "transpose") == 0 && !has_axes) {
        rule->axes.transpose = true;
        return SDC_OK;
    }
    return INVALID("%s: expected axes=, transpose or view=, each at most once, found '%.60s'",
                   place, w->text);
}

/* ---- lines ---- */

static unsigned count_stars(const char *text) {
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '*';
    return n;
}

/* The number of "{2}" at p, 0 if it is none. */
static unsigned numbered(const char *p) {
    return p[0] == '{' && p[1] >= '1' && p[1] <= '9' && p[2] == '}' ? (unsigned)(p[1] - '0') : 0;
}

/* How many '*' of the left side the right side needs. */
static unsigned count_needed(const char *text) {
    unsigned n = count_stars(text);
    for (; *text; text++)
        n = numbered(text) > n ? numbered(text) : n;
    return n;
}

static enum sdc_status check_names(const struct sdc__name_rule *rule, const char *place,
                                   struct sdc_error *err) {
    unsigned from = rule->literal ? 0 : count_stars(rule->from);
    unsigned to = rule->to && !rule->to_literal ? count_needed(rule->to) : 0;
    if (!*rule->from || (rule->to && !*rule->to))
        return INVALID("%s: a name is empty", place);
    if (from > MAX_STARS)
        return INVALID("%s: '%.100s' has %u '*', expected at most %d", place, rule->from, from,
                       MAX_STARS);
    if (to > from)
        return INVALID("%s: '%.100s' asks for %u '*' but '%.100s' has %u", place, rule->to, to,
                       rule->from, from);
    return SDC_OK;
}

/* FROM -> TO options, after the word `layer` where there is one. */
static enum sdc_status parse_rule(struct line *l, struct word *first, struct sdc__name_rule *rule,
                                  struct sdc_error *err) {
    struct word w = {0};
    rule->from = first->text;
    rule->literal = first->quoted;
    first->text = NULL;
    SDC_TRY(next_word(l, &w, err));
    bool arrow = w.text && !w.quoted && strcmp(w.text, "->") == 0;
    sdc__free(w.text);
    if (!arrow)
        return INVALID("%s: expected '->' after '%.100s'", l->place, rule->from);
    SDC_TRY(next_word(l, &w, err));
    if (!w.text)
        return INVALID("%s: expected a name or '-' after '->'", l->place);
    rule->to = w.text;
    rule->to_literal = w.quoted;
    if (!w.quoted && strcmp(w.text, "-") == 0) {
        sdc__free(rule->to);
        rule->to = NULL;
    }
    SDC_TRY(check_names(rule, l->place, err));
    for (;;) {
        SDC_TRY(next_word(l, &w, err));
        if (!w.text)
            return SDC_OK;
        enum sdc_status st = parse_option(&w, l->place, rule, err);
        sdc__free(w.text);
        SDC_TRY(st);
    }
}

static enum sdc_status parse_line(struct line *l, struct sdc__name_rule *rule, bool *empty,
                                  struct sdc_error *err) {
    struct word first;
    SDC_TRY(next_word(l, &first, err));
    *empty = !first.text;
    if (*empty)
        return SDC_OK;
    const char *rest = l->at;
    while (rest < l->end && blank(*rest))
        rest++;
    /* a tensor may be called "layer" */
    bool arrow = l->end - rest >= 2 && memcmp(rest, "->", 2) == 0;
    enum sdc_status st = SDC_OK;
    if (!first.quoted && strcmp(first.text, "layer") == 0 && !arrow) {
        rule->layer = true;
        sdc__free(first.text);
        st = next_word(l, &first, err);
        if (st == SDC_OK && !first.text)
            st = INVALID("%s: expected a layer's name after 'layer'", l->place);
    }
    if (st == SDC_OK)
        st = parse_rule(l, &first, rule, err);
    sdc__free(first.text);
    return st;
}

void sdc__name_rule_release(struct sdc__name_rule *rule) {
    sdc__free(rule->from);
    sdc__free(rule->to);
    sdc__free(rule->place);
    *rule = (struct sdc__name_rule){0};
}

/* Room for one more. */
static enum sdc_status grow(struct sdc_name_map *map, struct sdc_error *err) {
    if (map->n_rules < map->cap_rules)
        return SDC_OK;
    size_t cap = map->cap_rules ? 2 * map->cap_rules : 16;
    struct sdc__name_rule *grown = sdc__realloc(map->rules, cap, sizeof *grown);
    if (!grown)
        return SDC_NOMEM(err, "a name map");
    map->rules = grown;
    map->cap_rules = cap;
    return SDC_OK;
}

static enum sdc_status add_line(struct sdc_name_map *map, const char *at, const char *end,
                                const char *what, size_t number, struct sdc_error *err) {
    struct sdc__name_rule rule = {.place = sdc__asprintf("%s line %zu", what, number)};
    if (!rule.place)
        return SDC_NOMEM(err, "a name map");
    struct line l = {at, end, rule.place};
    bool empty = true;
    enum sdc_status st = parse_line(&l, &rule, &empty, err);
    if (st == SDC_OK && !empty)
        st = grow(map, err);
    if (st == SDC_OK && !empty)
        map->rules[map->n_rules++] = rule;
    else
        sdc__name_rule_release(&rule);
    return st;
}

enum sdc_status sdc__name_rules_parse(struct sdc_name_map *map, const char *text, size_t len,
                                      const char *what, struct sdc_error *err) {
    size_t before = map->n_rules, number = 0;
    if (memchr(text, '\0', len))
        return INVALID("%s: no name map: it holds a NUL", what);
    for (const char *at = text, *end = text + len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        enum sdc_status st = add_line(map, at, stop, what, ++number, err);
        if (st != SDC_OK) {
            while (map->n_rules > before)
                sdc__name_rule_release(&map->rules[--map->n_rules]);
            return st;
        }
        at = stop + 1;
    }
    return SDC_OK;
}

/* ---- matching ---- */

struct capture {
    const char *start;
    size_t len;
};

/* As sdc__glob_match with '*' alone; also what each '*' stands for, the earlier ones as short as
 * can be. */
static bool match(const char *pattern, const char *name, struct capture *captures, unsigned *n) {
    const char *star = NULL;
    *n = 0;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            captures[(*n)++] = (struct capture){name, 0};
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            struct capture *last = &captures[*n - 1];
            pattern = star + 1;
            last->len++;
            name = last->start + last->len;
        } else {
            return false;
        }
    }
    for (; *pattern == '*'; pattern++)
        captures[(*n)++] = (struct capture){name, 0};
    return *pattern == '\0';
}

bool sdc__name_rule_match(const struct sdc__name_rule *rule, const char *name, char **to,
                          bool *ok) {
    struct capture captures[MAX_STARS];
    unsigned n = 0, used = 0;
    *to = NULL;
    *ok = true;
    if (rule->literal ? strcmp(rule->from, name) != 0 : !match(rule->from, name, captures, &n))
        return false;
    if (!rule->to)
        return true;
    struct sdc_buf text = SDC_BUF_INIT;
    for (const char *p = rule->to; *p; p++) {
        unsigned k = rule->to_literal ? 0 : *p == '*' ? ++used : numbered(p);
        if (k) {
            sdc__buf_append(&text, captures[k - 1].start, captures[k - 1].len);
            p += *p == '*' ? 0 : 2;
        } else {
            sdc__buf_putc(&text, *p);
        }
    }
    *to = sdc__buf_take(&text);
    *ok = *to != NULL;
    return true;
}
