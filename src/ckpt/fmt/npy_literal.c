/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/npy.h"

#define MAX_DEPTH 64
#define MAX_NODES 4000000
#define NONE      UINT32_MAX

struct parser {
    const unsigned char *p;
    size_t len, at;
    bool latin1;
    const char *what;
    struct sdc_pylit *lit;
    struct sdc_error *err;
};

static enum sdc_status bad(const struct parser *s, size_t at, const char *expected) {
    return SDC_ERR_AT(s->err, SDC_INVALID, at,
                      "%s: header: not a literal at column %zu: expected %s", s->what, at + 1,
                      expected);
}

static void skip(struct parser *s) {
    while (s->at < s->len && strchr(" \t\r\n\f", s->p[s->at]) && s->p[s->at])
        s->at++;
}

static bool accept(struct parser *s, char c) {
    skip(s);
    if (s->at == s->len || s->p[s->at] != (unsigned char)c)
        return false;
    s->at++;
    return true;
}

static enum sdc_status add(struct parser *s, enum sdc_pylit_type type, size_t at, uint32_t *index) {
    struct sdc_pylit *l = s->lit;
    if (l->n >= MAX_NODES)
        return SDC_ERR(s->err, SDC_LIMIT, "%s: header: more than %d values", s->what, MAX_NODES);
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct sdc_pylit_node *more = sdc__realloc(l->nodes, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(s->err, s->what);
        l->nodes = more;
        l->cap = cap;
    }
    *index = (uint32_t)l->n; /* the text is far shorter than 4 GiB */
    l->nodes[l->n++] = (struct sdc_pylit_node){
        .type = type, .first = NONE, .next = NONE, .column = (uint32_t)at + 1};
    return SDC_OK;
}

/* ---- strings ---- */

static void put_char(struct sdc_buf *b, uint32_t c) {
    if (c < 0x80) {
        sdc__buf_putc(b, (char)c);
    } else if (c < 0x800) {
        sdc__buf_putc(b, (char)(0xc0 | c >> 6));
        sdc__buf_putc(b, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        sdc__buf_putc(b, (char)(0xe0 | c >> 12));
        sdc__buf_putc(b, (char)(0x80 | (c >> 6 & 0x3f)));
        sdc__buf_putc(b, (char)(0x80 | (c & 0x3f)));
    } else {
        sdc__buf_putc(b, (char)(0xf0 | c >> 18));
        sdc__buf_putc(b, (char)(0x80 | (c >> 12 & 0x3f)));
        sdc__buf_putc(b, (char)(0x80 | (c >> 6 & 0x3f)));
        sdc__buf_putc(b, (char)(0x80 | (c & 0x3f)));
    }
}

static int hex_digit(unsigned char c) {
    const char *digits = "0123456789abcdef", *d = c ? strchr(digits, c | 0x20) : NULL;
    return d && (c < 'G' || c > 'Z') ? (int)(d - digits) : -1;
}

/* After a backslash. */
static enum sdc_status escape(struct parser *s) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const size_t start = s->at - 1;
    if (s->at == s->len)
        return bad(s, s->at, "the rest of a string");
    const unsigned char c = s->p[s->at++];
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        sdc__buf_putc(&s->lit->texts, to[known - from]);
        return SDC_OK;
    }
    unsigned n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t value = 0;
    for (unsigned i = 0; i < n; i++) {
        int digit = s->at < s->len ? hex_digit(s->p[s->at++]) : -1;
        if (digit < 0)
            return bad(s, start, "hexadecimal digits");
        value = value << 4 | (uint32_t)digit;
    }
    if (!n || value == 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return bad(s, start, "an escape that names a character");
    put_char(&s->lit->texts, value);
    return SDC_OK;
}

/* At its quote. Texts move when the buffer grows, so nodes get offsets until the end. */
static enum sdc_status string(struct parser *s, size_t start, uint32_t *index) {
    const unsigned char quote = s->p[s->at++];
    const size_t offset = s->lit->texts.len;
    SDC_TRY(add(s, SDC_PYLIT_STR, start, index));
    for (;;) {
        if (s->at == s->len || s->p[s->at] == '\n' || s->p[s->at] == 0)
            return bad(s, s->at, "the rest of a string");
        unsigned char c = s->p[s->at++];
        if (c == quote)
            break;
        if (c == '\\')
            SDC_TRY(escape(s));
        else if (s->latin1)
            put_char(&s->lit->texts, c);
        else
            sdc__buf_putc(&s->lit->texts, (char)c);
    }
    sdc__buf_append(&s->lit->texts, "", 1);
    s->lit->nodes[*index].number = (int64_t)offset;
    return s->lit->texts.failed ? SDC_NOMEM(s->err, s->what) : SDC_OK;
}

/* ---- numbers and words ---- */

static bool is_digit(const struct parser *s) {
    return s->at < s->len && s->p[s->at] >= '0' && s->p[s->at] <= '9';
}

static enum sdc_status number(struct parser *s, size_t start, uint32_t *index) {
    bool negative = accept(s, '-');
    uint64_t value = 0;
    if (!is_digit(s))
        return bad(s, start, "a number");
    while (is_digit(s)) {
        value = value * 10 + (uint64_t)(s->p[s->at++] - '0');
        if (value > INT64_MAX / 16)
            return bad(s, start, "a number of 59 bits at most");
    }
    if (s->at < s->len && (s->p[s->at] == 'L' || s->p[s->at] == 'l')) /* Python 2 */
        s->at++;
    SDC_TRY(add(s, SDC_PYLIT_INT, start, index));
    s->lit->nodes[*index].number = negative ? -(int64_t)value : (int64_t)value;
    return SDC_OK;
}

static bool is_word(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

static bool word_is(const struct parser *s, size_t start, const char *word) {
    size_t n = strlen(word);
    return s->at - start == n && memcmp(s->p + start, word, n) == 0;
}

/* True, False, None, a string with a prefix, or a call around a number, as NumPy 2 prints its
 * scalars: "np.int64(3)". */
static enum sdc_status word(struct parser *s, size_t start, uint32_t *index) {
    while (s->at < s->len && is_word(s->p[s->at]))
        s->at++;
    if (s->at == start)
        return bad(s, start, "a value");
    if (s->at - start == 1 && strchr("ubUB", s->p[start]) && s->at < s->len &&
        (s->p[s->at] == '\'' || s->p[s->at] == '"'))
        return string(s, start, index);
    if (word_is(s, start, "None"))
        return add(s, SDC_PYLIT_NONE, start, index);
    if (word_is(s, start, "True") || word_is(s, start, "False")) {
        SDC_TRY(add(s, SDC_PYLIT_BOOL, start, index));
        s->lit->nodes[*index].number = s->p[start] == 'T';
        return SDC_OK;
    }
    if (!accept(s, '('))
        return bad(s, start, "a value");
    skip(s);
    SDC_TRY(number(s, s->at, index));
    if (!accept(s, ')'))
        return bad(s, s->at, "\")\"");
    s->lit->called = true;
    return SDC_OK;
}

/* ---- containers ---- */

static enum sdc_status value(struct parser *s, unsigned depth, uint32_t *index);

static enum sdc_status child(struct parser *s, unsigned depth, uint32_t parent, uint32_t *last) {
    uint32_t index;
    SDC_TRY(value(s, depth + 1, &index));
    struct sdc_pylit_node *nodes = s->lit->nodes;
    if (*last == NONE)
        nodes[parent].first = index;
    else
        nodes[*last].next = index;
    nodes[parent].n++;
    *last = index;
    return SDC_OK;
}

static enum sdc_status container(struct parser *s, unsigned depth, char open, size_t start,
                                 uint32_t *index) {
    const char close = open == '{' ? '}' : open == '[' ? ']' : ')';
    uint32_t last = NONE;
    bool comma = true, any_comma = false;
    s->at++;
    SDC_TRY(add(s,
                open == '{'   ? SDC_PYLIT_DICT
                : open == '[' ? SDC_PYLIT_LIST
                              : SDC_PYLIT_TUPLE,
                start, index));
    while (!accept(s, close)) {
        if (!comma)
            return bad(s, s->at, open == '{' ? "\",\" or \"}\"" : "\",\" or the closing bracket");
        SDC_TRY(child(s, depth, *index, &last));
        if (open == '{') {
            if (!accept(s, ':'))
                return bad(s, s->at, "\":\"");
            SDC_TRY(child(s, depth, *index, &last));
        }
        comma = accept(s, ',');
        any_comma = any_comma || comma;
    }
    if (open == '(' && s->lit->nodes[*index].n == 1 && !any_comma)
        *index = last; /* brackets around a value are no tuple */
    return SDC_OK;
}

static enum sdc_status value(struct parser *s, unsigned depth, uint32_t *index) {
    skip(s);
    const size_t start = s->at;
    if (start == s->len)
        return bad(s, start, "a value");
    if (depth > MAX_DEPTH)
        return SDC_ERR_AT(s->err, SDC_LIMIT, start, "%s: header: nested over %d deep", s->what,
                          MAX_DEPTH);
    const char c = (char)s->p[start];
    if (c == '{' || c == '[' || c == '(')
        return container(s, depth, c, start, index);
    if (c == '\'' || c == '"')
        return string(s, start, index);
    if (c == '-' || (c >= '0' && c <= '9'))
        return number(s, start, index);
    return word(s, start, index);
}

enum sdc_status sdc__pylit_parse(const char *text, size_t len, bool latin1, const char *what,
                                 struct sdc_pylit *lit, struct sdc_error *err) {
    *lit = (struct sdc_pylit){0};
    struct parser s = {.p = (const unsigned char *)text,
                       .len = len,
                       .latin1 = latin1,
                       .what = what,
                       .lit = lit,
                       .err = err};
    uint32_t root;
    if (!latin1 && !sdc__utf8_valid(text, len))
        return SDC_ERR(err, SDC_INVALID, "%s: the header is not UTF-8", what);
    SDC_TRY(value(&s, 0, &root));
    skip(&s);
    if (s.at != len)
        return bad(&s, s.at, "the end");
    for (size_t i = 0; i < lit->n; i++)
        if (lit->nodes[i].type == SDC_PYLIT_STR)
            lit->nodes[i].text = lit->texts.data + lit->nodes[i].number;
    if (root != 0) { /* brackets around all of it */
        struct sdc_pylit_node whole = lit->nodes[root];
        lit->nodes[0] = whole;
    }
    return SDC_OK;
}

void sdc__pylit_release(struct sdc_pylit *lit) {
    sdc__free(lit->nodes);
    sdc__buf_release(&lit->texts);
    *lit = (struct sdc_pylit){0};
}

const struct sdc_pylit_node *sdc__pylit_get(const struct sdc_pylit *lit,
                                            const struct sdc_pylit_node *dict, const char *key) {
    const struct sdc_pylit_node *n = lit->nodes, *found = NULL;
    for (uint32_t k = dict->first; k != NONE; k = n[n[k].next].next)
        if (n[k].type == SDC_PYLIT_STR && strcmp(n[k].text, key) == 0)
            found = &n[n[k].next]; /* Python takes the last */
    return found;
}
