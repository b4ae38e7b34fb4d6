/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that pickles are programs of: a stack, marks on it, a memo. One function for each
 * kind of opcode, in a table.
 */
#include "ckpt/pickle.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/pickle_tree.h"
#include "sdc/num.h"

#define WINDOW       ((size_t)SDC_MAX_PICKLE_TEXT + 4096)
#define LAST_VERSION 5
#define LONG_DIGITS  64 /* bytes of integers kept */

struct input {
    const struct sdc_pk_source *source;
    unsigned char *window; /* of a file; owned */
    const unsigned char *at;
    size_t have;   /* bytes from `at` on */
    uint64_t next; /* position in the source after those */
};

struct ids {
    uint32_t *at;
    size_t n, cap;
};

struct vm {
    struct input in;
    struct sdc_pk *pk;
    struct ids stack, marks, memo; /* marks: heights of the stack */
    const char *name;
    uint64_t op_at; /* position of the opcode */
    unsigned op;
    uint32_t n_memo; /* for MEMOIZE */
    bool stopped;
};

/* ---- errors ---- */

static uint64_t position(const struct vm *vm) {
    return vm->in.next - vm->in.have;
}

static enum sdc_status bad(const struct vm *vm, const char *what, struct sdc_error *err) {
    uint64_t at = vm->in.source->offset + vm->op_at;
    return SDC_ERR_AT(err, SDC_INVALID, at, "%s: damaged pickle: opcode 0x%02x at byte %llu: %s",
                      vm->name, vm->op, (unsigned long long)at, what);
}

static enum sdc_status no_node(const struct vm *vm, struct sdc_error *err) {
    if (vm->pk->n >= SDC_MAX_PICKLE_NODES)
        return SDC_ERR(err, SDC_LIMIT, "%s: a pickle of more than %u objects", vm->name,
                       SDC_MAX_PICKLE_NODES);
    return SDC_NOMEM(err, vm->name);
}

/* ---- input ---- */

static uint64_t left(const struct input *in) {
    return in->source->size - (in->next - in->have);
}

static enum sdc_status truncated(const struct vm *vm, struct sdc_error *err) {
    uint64_t end = vm->in.source->offset + vm->in.source->size;
    return SDC_ERR_AT(err, SDC_INVALID, end,
                      "%s: truncated: the pickle goes on where its bytes end, at %llu", vm->name,
                      (unsigned long long)end);
}

/* At least n bytes at in->at; n is at most WINDOW. */
static enum sdc_status need(struct vm *vm, size_t n, struct sdc_error *err) {
    struct input *in = &vm->in;
    if (in->have >= n)
        return SDC_OK;
    if (left(in) < n)
        return truncated(vm, err);
    if (in->have)
        memmove(in->window, in->at, in->have);
    uint64_t more = in->source->size - in->next;
    size_t room = WINDOW - in->have;
    if (more < room)
        room = (size_t)more;
    SDC_TRY(sdc__file_read(in->source->file, in->source->offset + in->next, in->window + in->have,
                           room, err));
    in->at = in->window;
    in->have += room;
    in->next += room;
    return SDC_OK;
}

static const unsigned char *take(struct input *in, size_t n) {
    const unsigned char *p = in->at;
    in->at += n;
    in->have -= n;
    return p;
}

/* A little-endian number of n bytes. */
static enum sdc_status number(struct vm *vm, unsigned n, uint64_t *value, struct sdc_error *err) {
    SDC_TRY(need(vm, n, err));
    const unsigned char *p = take(&vm->in, n);
    *value = 0;
    for (unsigned i = n; i-- > 0;)
        *value = *value << 8 | p[i];
    return SDC_OK;
}

/* Passes over n bytes, which may be more than the window holds. */
static enum sdc_status skip(struct vm *vm, uint64_t n, struct sdc_error *err) {
    struct input *in = &vm->in;
    if (left(in) < n)
        return truncated(vm, err);
    if (n <= in->have) {
        (void)take(in, (size_t)n);
    } else {
        in->next += n - in->have;
        in->have = 0;
    }
    return SDC_OK;
}

/* A line without its end; valid until the next read. */
static enum sdc_status line(struct vm *vm, const char **text, size_t *len, struct sdc_error *err) {
    struct input *in = &vm->in;
    const unsigned char *end = memchr(in->at, '\n', in->have);
    if (!end) {
        uint64_t all = left(in);
        SDC_TRY(need(vm, all < WINDOW ? (size_t)all : WINDOW, err));
        end = in->have ? memchr(in->at, '\n', in->have) : NULL;
        if (!end && all < WINDOW)
            return truncated(vm, err);
        if (!end)
            return bad(vm, "a line that is too long", err);
    }
    *len = (size_t)(end - in->at);
    *text = (const char *)take(in, *len + 1);
    if (*len && (*text)[*len - 1] == '\r')
        --*len;
    return SDC_OK;
}

/* ---- stack ---- */

static bool push_id(struct ids *ids, uint32_t id) {
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 256;
        uint32_t *more = sdc__realloc(ids->at, cap, sizeof *more);
        if (!more)
            return false;
        ids->at = more;
        ids->cap = cap;
    }
    ids->at[ids->n++] = id;
    return true;
}

static enum sdc_status push(struct vm *vm, uint32_t id, struct sdc_error *err) {
    if (id == SDC_PK_BAD)
        return no_node(vm, err);
    return push_id(&vm->stack, id) ? SDC_OK : SDC_NOMEM(err, vm->name);
}

/* Objects above the last mark. */
static size_t depth(const struct vm *vm) {
    return vm->stack.n - (vm->marks.n ? vm->marks.at[vm->marks.n - 1] : 0);
}

static enum sdc_status want(const struct vm *vm, size_t n, struct sdc_error *err) {
    return depth(vm) >= n ? SDC_OK : bad(vm, "the stack is too short for it", err);
}

static uint32_t *top(struct vm *vm, size_t n) { /* the last n objects */
    return vm->stack.at + vm->stack.n - n;
}

/* The objects above the last mark, which goes; they are still there until the next push. */
static enum sdc_status pop_mark(struct vm *vm, const uint32_t **ids, uint32_t *n,
                                struct sdc_error *err) {
    if (vm->marks.n == 0)
        return bad(vm, "there is no mark", err);
    size_t height = vm->marks.at[--vm->marks.n];
    *ids = vm->stack.at ? vm->stack.at + height : NULL;
    *n = (uint32_t)(vm->stack.n - height);
    vm->stack.n = height;
    return SDC_OK;
}

static enum sdc_status op_mark(struct vm *vm, struct sdc_error *err) {
    if (vm->stack.n >= UINT32_MAX)
        return bad(vm, "the stack is too long", err);
    return push_id(&vm->marks, (uint32_t)vm->stack.n) ? SDC_OK : SDC_NOMEM(err, vm->name);
}

static enum sdc_status op_pop(struct vm *vm, struct sdc_error *err) {
    if (depth(vm) > 0)
        vm->stack.n--;
    else if (vm->marks.n > 0)
        vm->marks.n--;
    else
        return bad(vm, "the stack is empty", err);
    return SDC_OK;
}

static enum sdc_status op_pop_mark(struct vm *vm, struct sdc_error *err) {
    const uint32_t *ids = NULL;
    uint32_t n;
    return pop_mark(vm, &ids, &n, err);
}

static enum sdc_status op_dup(struct vm *vm, struct sdc_error *err) {
    SDC_TRY(want(vm, 1, err));
    return push(vm, *top(vm, 1), err);
}

/* ---- frame ---- */

static enum sdc_status op_proto(struct vm *vm, struct sdc_error *err) {
    uint64_t v;
    SDC_TRY(number(vm, 1, &v, err));
    if (v > LAST_VERSION)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: pickle protocol %llu, known are 0 to %d",
                       vm->name, (unsigned long long)v, LAST_VERSION);
    vm->pk->protocol = (int)v;
    return SDC_OK;
}

static enum sdc_status op_frame(struct vm *vm, struct sdc_error *err) {
    uint64_t n;
    SDC_TRY(number(vm, 8, &n, err));
    return n <= left(&vm->in) ? SDC_OK : truncated(vm, err);
}

static enum sdc_status op_stop(struct vm *vm, struct sdc_error *err) {
    SDC_TRY(want(vm, 1, err));
    vm->pk->root = *top(vm, 1);
    vm->stopped = true;
    return SDC_OK;
}

/* ---- numbers ---- */

static enum sdc_status op_constant(struct vm *vm, struct sdc_error *err) {
    return push(vm, vm->op == 'N' ? vm->pk->none : vm->op == 0x88 ? vm->pk->yes : vm->pk->no, err);
}

static enum sdc_status op_binint(struct vm *vm, struct sdc_error *err) {
    uint64_t v;
    SDC_TRY(number(vm, vm->op == 'J' ? 4 : vm->op == 'M' ? 2 : 1, &v, err));
    return push(vm, sdc__pk_add_int(vm->pk, vm->op == 'J' ? (int64_t)(int32_t)v : (int64_t)v), err);
}

/* An integer of over 64 bits: its bytes in hex, the most significant first. */
static enum sdc_status push_long(struct vm *vm, const unsigned char *p, size_t n,
                                 struct sdc_error *err) {
    char text[2 * LONG_DIGITS + 3] = "0x";
    unsigned char reversed[LONG_DIGITS];
    if (n > LONG_DIGITS)
        return push(vm, sdc__pk_add_text(vm->pk, SDC_PK_LONG, NULL, n, UINT64_MAX), err);
    for (size_t i = 0; i < n; i++)
        reversed[i] = p[n - 1 - i];
    sdc__hex_encode(reversed, n, text + 2);
    return push(vm, sdc__pk_add_text(vm->pk, SDC_PK_LONG, text, strlen(text), UINT64_MAX), err);
}

static enum sdc_status op_long(struct vm *vm, struct sdc_error *err) {
    uint64_t n;
    SDC_TRY(number(vm, vm->op == 0x8a ? 1 : 4, &n, err));
    if (n > SDC_MAX_PICKLE_TEXT)
        return bad(vm, "an integer of that many bytes", err);
    SDC_TRY(need(vm, (size_t)n, err));
    const unsigned char *p = take(&vm->in, (size_t)n);
    while (n > 8 && p[n - 1] == (p[n - 2] & 0x80 ? 0xff : 0)) /* signs that say nothing */
        n--;
    if (n > 8)
        return push_long(vm, p, (size_t)n, err);
    uint64_t v = n && p[n - 1] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = (size_t)n; i-- > 0;)
        v = v << 8 | p[i];
    return push(vm, sdc__pk_add_int(vm->pk, (int64_t)v), err);
}

/* INT and LONG of protocol 0: a decimal line; "00" and "01" are booleans. */
static enum sdc_status op_int_line(struct vm *vm, struct sdc_error *err) {
    const char *text;
    size_t len;
    char digits[32];
    long long v;
    SDC_TRY(line(vm, &text, &len, err));
    if (vm->op == 'I' && len == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
        return push(vm, text[1] == '1' ? vm->pk->yes : vm->pk->no, err);
    if (vm->op == 'L' && len && text[len - 1] == 'L')
        len--;
    if (len == 0)
        return bad(vm, "an empty number", err);
    for (size_t i = text[0] == '-' && len > 1; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return bad(vm, "a number that is none", err);
    if (len >= sizeof digits)
        return push(vm, sdc__pk_add_text(vm->pk, SDC_PK_LONG, text, len, UINT64_MAX), err);
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (!sdc__parse_i64(digits, &v))
        return push(vm, sdc__pk_add_text(vm->pk, SDC_PK_LONG, text, len, UINT64_MAX), err);
    return push(vm, sdc__pk_add_int(vm->pk, v), err);
}

static enum sdc_status push_float(struct vm *vm, double v, struct sdc_error *err) {
    uint32_t id = sdc__pk_add(vm->pk, SDC_PK_FLOAT);
    if (id != SDC_PK_BAD)
        sdc__pk_node(vm->pk, id)->u.real = v;
    return push(vm, id, err);
}

static enum sdc_status op_float(struct vm *vm, struct sdc_error *err) {
    SDC_TRY(need(vm, 8, err));
    const unsigned char *p = take(&vm->in, 8);
    return push_float(vm, sdc_num_to_double(SDC_DTYPE_F64, sdc_num_load(SDC_DTYPE_F64, p, true)),
                      err);
}

static enum sdc_status op_float_line(struct vm *vm, struct sdc_error *err) {
    const char *text;
    size_t len;
    char digits[64];
    double v;
    SDC_TRY(line(vm, &text, &len, err));
    if (len >= sizeof digits)
        return bad(vm, "a number that is too long", err);
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (!sdc__parse_f64(digits, &v))
        return bad(vm, "a number that is none", err);
    return push_float(vm, v, err);
}

/* ---- texts ---- */

/* Opcodes with a length: how many bytes it has, and what they hold. */
static enum sdc_status op_text(struct vm *vm, struct sdc_error *err) {
    const unsigned op = vm->op;
    const bool is_bytes = op == 'B' || op == 'C' || op == 0x8e || op == 0x96;
    const unsigned width = op == 'U' || op == 'C' || op == 0x8c     ? 1
                           : op == 0x8d || op == 0x8e || op == 0x96 ? 8
                                                                    : 4;
    uint64_t n;
    SDC_TRY(number(vm, width, &n, err));
    if (n > left(&vm->in))
        return truncated(vm, err);
    const uint64_t place = position(vm);
    const void *text = NULL;
    if (n <= SDC_MAX_PICKLE_TEXT) {
        SDC_TRY(need(vm, (size_t)n, err));
        text = take(&vm->in, (size_t)n);
    } else {
        SDC_TRY(skip(vm, n, err));
    }
    return push(vm,
                sdc__pk_add_text(vm->pk, is_bytes ? SDC_PK_BYTES : SDC_PK_STR,
                                 text ? text : (n ? NULL : ""), n, place),
                err);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* n hex digits; UINT32_MAX where they are not there. */
static uint32_t hex_value(const char *s, size_t have, unsigned n) {
    uint32_t v = 0;
    if (have < n)
        return UINT32_MAX;
    for (unsigned i = 0; i < n; i++) {
        int d = hex_digit(s[i]);
        if (d < 0)
            return UINT32_MAX;
        v = v << 4 | (uint32_t)d;
    }
    return v;
}

static void put_utf8(struct sdc_buf *b, uint32_t c) {
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

/* UNICODE: Latin-1 with \u1234 and \U00012345. */
static bool unescape_unicode(const char *s, size_t len, struct sdc_buf *b) {
    for (size_t i = 0; i < len; i++) {
        unsigned digits = s[i] == '\\' && i + 1 < len ? s[i + 1] == 'u'   ? 4
                                                        : s[i + 1] == 'U' ? 8
                                                                          : 0
                                                      : 0;
        if (!digits) {
            put_utf8(b, (unsigned char)s[i]);
            continue;
        }
        uint32_t c = hex_value(s + i + 2, len - i - 2, digits);
        if (c > 0x10ffff)
            return false;
        put_utf8(b, c);
        i += 1 + digits;
    }
    return true;
}

/* STRING: a literal of Python 2 in quotes. */
static bool unescape_literal(const char *s, size_t len, struct sdc_buf *b) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    if (len < 2 || (s[0] != '\'' && s[0] != '"') || s[len - 1] != s[0])
        return false;
    for (size_t i = 1; i + 1 < len; i++) {
        if (s[i] != '\\' || i + 2 >= len) {
            sdc__buf_putc(b, s[i]);
            continue;
        }
        const char *known = s[i + 1] ? strchr(from, s[i + 1]) : NULL;
        if (known) {
            sdc__buf_putc(b, to[known - from]);
            i++;
        } else if (s[i + 1] == 'x') {
            uint32_t c = hex_value(s + i + 2, len - 1 - i - 2, 2);
            if (c > 0xff)
                return false;
            sdc__buf_putc(b, (char)c);
            i += 3;
        } else {
            sdc__buf_putc(b, s[i]);
        }
    }
    return true;
}

static enum sdc_status op_text_line(struct vm *vm, struct sdc_error *err) {
    const char *text;
    size_t len;
    struct sdc_buf b = SDC_BUF_INIT;
    SDC_TRY(line(vm, &text, &len, err));
    bool ok = vm->op == 'V' ? unescape_unicode(text, len, &b) : unescape_literal(text, len, &b);
    enum sdc_status st =
        !ok ? bad(vm, "a text that is none", err)
        : b.failed
            ? SDC_NOMEM(err, vm->name)
            : push(vm,
                   sdc__pk_add_text(vm->pk, SDC_PK_STR, b.data ? b.data : "", b.len, UINT64_MAX),
                   err);
    sdc__buf_release(&b);
    return st;
}

/* ---- containers ---- */

static enum sdc_status op_tuple(struct vm *vm, struct sdc_error *err) {
    const uint32_t *ids = NULL;
    uint32_t n = vm->op == ')' ? 0 : vm->op - 0x84;
    if (vm->op == 't') {
        SDC_TRY(pop_mark(vm, &ids, &n, err));
    } else {
        SDC_TRY(want(vm, n, err));
        ids = n ? top(vm, n) : NULL;
        vm->stack.n -= n;
    }
    return push(vm, sdc__pk_add_tuple(vm->pk, ids, n), err);
}

static enum sdc_status op_empty(struct vm *vm, struct sdc_error *err) {
    return push(vm,
                sdc__pk_add_list(vm->pk, vm->op == ']'   ? SDC_PK_LIST
                                         : vm->op == '}' ? SDC_PK_DICT
                                                         : SDC_PK_SET),
                err);
}

/* LIST, DICT, FROZENSET: of the objects above the mark. */
static enum sdc_status op_filled(struct vm *vm, struct sdc_error *err) {
    const enum sdc_pk_kind kind = vm->op == 'l'   ? SDC_PK_LIST
                                  : vm->op == 'd' ? SDC_PK_DICT
                                                  : SDC_PK_SET;
    const uint32_t *ids = NULL;
    uint32_t n = 0, id = sdc__pk_add_list(vm->pk, kind);
    if (id == SDC_PK_BAD)
        return no_node(vm, err);
    SDC_TRY(pop_mark(vm, &ids, &n, err));
    if (kind == SDC_PK_DICT && n % 2)
        return bad(vm, "a key without a value", err);
    if (!sdc__pk_extend(vm->pk, id, ids, n, kind == SDC_PK_DICT))
        return SDC_NOMEM(err, vm->name);
    return push(vm, id, err);
}

/* APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS: to what is below. Others than lists and the like
 * are objects whose class is not known here: nothing is kept for them. */
static enum sdc_status op_extend(struct vm *vm, struct sdc_error *err) {
    const unsigned op = vm->op;
    const bool pairs = op == 's' || op == 'u';
    const uint32_t *ids = NULL;
    uint32_t n = op == 's' ? 2 : 1;
    if (op == 'a' || op == 's') {
        SDC_TRY(want(vm, n + 1, err));
        ids = top(vm, n);
        vm->stack.n -= n;
    } else {
        SDC_TRY(pop_mark(vm, &ids, &n, err));
        SDC_TRY(want(vm, 1, err));
    }
    if (pairs && n % 2)
        return bad(vm, "a key without a value", err);
    const uint32_t id = *top(vm, 1);
    const enum sdc_pk_kind kind = sdc__pk_kind(vm->pk, id);
    const bool object = kind == SDC_PK_CALL || kind == SDC_PK_OBJECT;
    if (kind == SDC_PK_GLOBAL || kind == SDC_PK_PERSID || kind == SDC_PK_OPAQUE)
        return SDC_OK;
    if (!object && kind != (pairs ? SDC_PK_DICT : op == 0x90 ? SDC_PK_SET : SDC_PK_LIST))
        return bad(vm, "its object is of another kind", err);
    return sdc__pk_extend(vm->pk, id, ids, n, pairs) ? SDC_OK : SDC_NOMEM(err, vm->name);
}

/* ---- memo ---- */

static enum sdc_status store(struct vm *vm, uint64_t index, struct sdc_error *err) {
    SDC_TRY(want(vm, 1, err));
    if (index > position(vm)) /* picklers count from 0 on: never more than there were bytes */
        return bad(vm, "a place in the memo that is out of range", err);
    while (vm->memo.n <= index)
        if (!push_id(&vm->memo, SDC_PK_BAD))
            return SDC_NOMEM(err, vm->name);
    if (vm->memo.at[index] == SDC_PK_BAD)
        vm->n_memo++;
    vm->memo.at[index] = *top(vm, 1);
    return SDC_OK;
}

static enum sdc_status memo_index(struct vm *vm, uint64_t *index, struct sdc_error *err) {
    const char *text;
    size_t len;
    const unsigned op = vm->op;
    if (op != 'p' && op != 'g')
        return number(vm, op == 'q' || op == 'h' ? 1 : 4, index, err);
    SDC_TRY(line(vm, &text, &len, err));
    char digits[24];
    unsigned long long v;
    if (len == 0 || len >= sizeof digits || text[0] == '+')
        return bad(vm, "a place in the memo that is none", err);
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (!sdc__parse_u64(digits, &v))
        return bad(vm, "a place in the memo that is none", err);
    *index = v;
    return SDC_OK;
}

static enum sdc_status op_put(struct vm *vm, struct sdc_error *err) {
    uint64_t index = vm->n_memo;
    if (vm->op != 0x94)
        SDC_TRY(memo_index(vm, &index, err));
    return store(vm, index, err);
}

static enum sdc_status op_get(struct vm *vm, struct sdc_error *err) {
    uint64_t index = 0;
    SDC_TRY(memo_index(vm, &index, err));
    if (index >= vm->memo.n || vm->memo.at[index] == SDC_PK_BAD)
        return bad(vm, "nothing at this place in the memo", err);
    return push(vm, vm->memo.at[index], err);
}

/* ---- globals, calls and objects ---- */

static enum sdc_status global_lines(struct vm *vm, uint32_t *id, struct sdc_error *err) {
    const char *text;
    size_t len;
    SDC_TRY(line(vm, &text, &len, err));
    char *module = sdc__strndup(text, len);
    if (!module)
        return SDC_NOMEM(err, vm->name);
    size_t module_len = strlen(module);
    enum sdc_status st = line(vm, &text, &len, err);
    if (st == SDC_OK) {
        *id = sdc__pk_add_global(vm->pk, module, module_len, text, len);
        if (*id == SDC_PK_BAD)
            st = no_node(vm, err);
    }
    sdc__free(module);
    return st;
}

static enum sdc_status op_global(struct vm *vm, struct sdc_error *err) {
    uint32_t id = SDC_PK_BAD;
    SDC_TRY(global_lines(vm, &id, err));
    return push(vm, id, err);
}

static enum sdc_status op_stack_global(struct vm *vm, struct sdc_error *err) {
    size_t module_len = 0, name_len = 0;
    SDC_TRY(want(vm, 2, err));
    const uint32_t *ids = top(vm, 2);
    vm->stack.n -= 2;
    const char *module = sdc__pk_text(vm->pk, ids[0], &module_len);
    const char *name = sdc__pk_text(vm->pk, ids[1], &name_len);
    if (!module || !name || sdc__pk_kind(vm->pk, ids[0]) != SDC_PK_STR ||
        sdc__pk_kind(vm->pk, ids[1]) != SDC_PK_STR)
        return bad(vm, "a global whose names are no texts", err);
    return push(vm, sdc__pk_add_global(vm->pk, module, module_len, name, name_len), err);
}

static enum sdc_status op_call(struct vm *vm, struct sdc_error *err) {
    const uint32_t n = vm->op == 0x92 ? 3 : 2; /* NEWOBJ_EX: keywords too, which are dropped */
    SDC_TRY(want(vm, n, err));
    const uint32_t *ids = top(vm, n);
    vm->stack.n -= n;
    return push(
        vm, sdc__pk_add_object(vm->pk, vm->op == 'R' ? SDC_PK_CALL : SDC_PK_OBJECT, ids[0], ids[1]),
        err);
}

/* INST: class by lines, arguments above the mark. OBJ: the class is the first of them. */
static enum sdc_status op_instance(struct vm *vm, struct sdc_error *err) {
    uint32_t class = SDC_PK_BAD, n = 0;
    const uint32_t *ids = NULL;
    if (vm->op == 'i')
        SDC_TRY(global_lines(vm, &class, err));
    SDC_TRY(pop_mark(vm, &ids, &n, err));
    if (vm->op == 'o') {
        if (n == 0)
            return bad(vm, "an object without a class", err);
        class = *ids++;
        n--;
    }
    uint32_t args = sdc__pk_add_tuple(vm->pk, ids, n);
    if (args == SDC_PK_BAD)
        return no_node(vm, err);
    return push(vm, sdc__pk_add_object(vm->pk, SDC_PK_OBJECT, class, args), err);
}

static enum sdc_status op_build(struct vm *vm, struct sdc_error *err) {
    SDC_TRY(want(vm, 2, err));
    const uint32_t *ids = top(vm, 2);
    const enum sdc_pk_kind kind = sdc__pk_kind(vm->pk, ids[0]);
    vm->stack.n--;
    if (kind == SDC_PK_CALL || kind == SDC_PK_OBJECT) {
        struct sdc_pk_object *o = sdc__pk_node(vm->pk, ids[0])->u.object;
        o->state = ids[1];
        o->has_state = true;
    }
    return SDC_OK;
}

static enum sdc_status op_persid(struct vm *vm, struct sdc_error *err) {
    uint32_t of;
    if (vm->op == 'P') {
        const char *text;
        size_t len;
        SDC_TRY(line(vm, &text, &len, err));
        of = sdc__pk_add_text(vm->pk, SDC_PK_STR, text, len, UINT64_MAX);
        if (of == SDC_PK_BAD)
            return no_node(vm, err);
    } else {
        SDC_TRY(want(vm, 1, err));
        of = *top(vm, 1);
        vm->stack.n--;
    }
    uint32_t id = sdc__pk_add(vm->pk, SDC_PK_PERSID);
    if (id != SDC_PK_BAD)
        sdc__pk_node(vm->pk, id)->n = of;
    return push(vm, id, err);
}

/* EXT1, EXT2, EXT4: numbers of a registry of the writer's process. NEXT_BUFFER: data elsewhere. */
static enum sdc_status op_opaque(struct vm *vm, struct sdc_error *err) {
    uint64_t v;
    if (vm->op != 0x97)
        SDC_TRY(number(vm, vm->op == 0x82 ? 1 : vm->op == 0x83 ? 2 : 4, &v, err));
    return push(vm, sdc__pk_add(vm->pk, SDC_PK_OPAQUE), err);
}

static enum sdc_status op_readonly(struct vm *vm, struct sdc_error *err) {
    return want(vm, 1, err);
}

/* ---- the table ---- */

typedef enum sdc_status op_function(struct vm *vm, struct sdc_error *err);

static op_function *const ops[256] = {
    ['('] = op_mark,      ['0'] = op_pop,       ['1'] = op_pop_mark,      ['2'] = op_dup,
    ['.'] = op_stop,      [0x80] = op_proto,    [0x95] = op_frame,        ['N'] = op_constant,
    [0x88] = op_constant, [0x89] = op_constant, ['J'] = op_binint,        ['K'] = op_binint,
    ['M'] = op_binint,    [0x8a] = op_long,     [0x8b] = op_long,         ['I'] = op_int_line,
    ['L'] = op_int_line,  ['G'] = op_float,     ['F'] = op_float_line,    ['T'] = op_text,
    ['U'] = op_text,      ['X'] = op_text,      [0x8c] = op_text,         [0x8d] = op_text,
    ['B'] = op_text,      ['C'] = op_text,      [0x8e] = op_text,         [0x96] = op_text,
    ['S'] = op_text_line, ['V'] = op_text_line, [')'] = op_tuple,         ['t'] = op_tuple,
    [0x85] = op_tuple,    [0x86] = op_tuple,    [0x87] = op_tuple,        [']'] = op_empty,
    ['}'] = op_empty,     [0x8f] = op_empty,    ['l'] = op_filled,        ['d'] = op_filled,
    [0x91] = op_filled,   ['a'] = op_extend,    ['e'] = op_extend,        ['s'] = op_extend,
    ['u'] = op_extend,    [0x90] = op_extend,   ['p'] = op_put,           ['q'] = op_put,
    ['r'] = op_put,       [0x94] = op_put,      ['g'] = op_get,           ['h'] = op_get,
    ['j'] = op_get,       ['c'] = op_global,    [0x93] = op_stack_global, ['R'] = op_call,
    [0x81] = op_call,     [0x92] = op_call,     ['i'] = op_instance,      ['o'] = op_instance,
    ['b'] = op_build,     ['P'] = op_persid,    ['Q'] = op_persid,        [0x82] = op_opaque,
    [0x83] = op_opaque,   [0x84] = op_opaque,   [0x97] = op_opaque,       [0x98] = op_readonly,
};

static enum sdc_status run(struct vm *vm, struct sdc_error *err) {
    while (!vm->stopped) {
        vm->op_at = position(vm);
        SDC_TRY(need(vm, 1, err));
        vm->op = *take(&vm->in, 1);
        if (!ops[vm->op])
            return bad(vm, "unknown", err);
        SDC_TRY(ops[vm->op](vm, err));
    }
    return SDC_OK;
}

enum sdc_status sdc__pk_parse(const struct sdc_pk_source *source, struct sdc_pk **pk, uint64_t *end,
                              struct sdc_error *err) {
    struct vm vm = {.in.source = source};
    vm.name = source->name ? source->name : source->file ? source->file->path : "a pickle";
    enum sdc_status st = SDC_OK;
    vm.pk = sdc__pk_new();
    if (source->file) {
        vm.in.window = sdc__alloc(WINDOW, 1);
        vm.in.at = vm.in.window;
    } else {
        vm.in.at = source->memory;
        vm.in.have = (size_t)source->size;
        vm.in.next = source->size;
    }
    if (!vm.pk || (source->file && !vm.in.window))
        st = SDC_NOMEM(err, vm.name);
    if (st == SDC_OK)
        st = run(&vm, err);
    if (st == SDC_OK && end)
        *end = position(&vm);
    sdc__free(vm.in.window);
    sdc__free(vm.stack.at);
    sdc__free(vm.marks.at);
    sdc__free(vm.memo.at);
    if (st == SDC_OK)
        *pk = vm.pk;
    else
        sdc__pk_free(vm.pk);
    return st;
}
