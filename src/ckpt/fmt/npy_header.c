/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/npy.h"

#define NONE       UINT32_MAX
#define MAX_FIELDS 100000u

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

bool sdc__npy_is(const unsigned char *head, size_t n) {
    return n >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

enum sdc_status sdc__npy_header_len(const unsigned char *head, size_t n, uint64_t total,
                                    uint64_t max, const char *what, uint64_t *len,
                                    struct sdc_error *err) {
    if (!sdc__npy_is(head, n))
        return SDC_ERR(err, SDC_INVALID, "%s: no NumPy array: its first bytes are others", what);
    if (n < 8 || n < (head[6] == 1 ? 10u : 12u))
        return SDC_ERR(err, SDC_INVALID, "%s: truncated: a NumPy array of only %llu bytes", what,
                       (unsigned long long)total);
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: version %u.%u of NumPy's format, known are 1.0, 2.0 and 3.0", what,
                       head[6], head[7]);
    uint64_t text = (uint64_t)head[8] | (uint64_t)head[9] << 8;
    if (head[6] > 1)
        text |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    *len = text + (head[6] == 1 ? 10 : 12);
    if (max == 0)
        max = SDC_MAX_NPY_HEADER;
    if (text > max)
        return SDC_ERR(err, SDC_LIMIT,
                       "%s: a header of %llu bytes, the limit is %llu; --max-header sets another",
                       what, (unsigned long long)text, (unsigned long long)max);
    if (*len > total)
        return SDC_ERR(err, SDC_INVALID, "%s: truncated: a header of %llu bytes, found %llu", what,
                       (unsigned long long)*len, (unsigned long long)total);
    return SDC_OK;
}

/* ---- types ---- */

struct builder {
    const struct sdc_pylit *lit;
    const char *what;
    struct sdc_npy *npy;
    size_t cap;
    struct sdc_error *err;
};

/* What surrounds a field: name so far, and the subarrays it is in. */
struct around {
    const char *name;
    uint64_t offset;
    unsigned rank;
    uint64_t dims[SDC_NPY_MAX_RANK], strides[SDC_NPY_MAX_RANK];
};

static enum sdc_status bad(const struct builder *b, const struct sdc_pylit_node *at,
                           const char *expected) {
    return SDC_ERR(b->err, SDC_INVALID, "%s: header: column %u: expected %s", b->what, at->column,
                   expected);
}

/* "<f4": order, kind, bytes. Strings of U count characters of 4 bytes; datetimes end with a unit.
 */
static enum sdc_status parse_descr(const struct builder *b, const struct sdc_pylit_node *node,
                                   struct sdc_npy_field *f) {
    const char *s = node->text;
    uint64_t n = 0;
    bool digits = false;
    f->big_endian = *s == '>';
    s += strchr("<>|=", *s) && *s ? 1 : 0;
    f->kind = *s;
    s += *s ? 1 : 0;
    for (; *s >= '0' && *s <= '9'; s++, digits = true) {
        n = n * 10 + (uint64_t)(*s - '0');
        if (n > UINT32_MAX)
            return bad(b, node, "a type of less than 4 GiB");
    }
    bool unit = (f->kind == 'M' || f->kind == 'm') && *s == '[' && s[strlen(s) - 1] == ']';
    if (!f->kind || !strchr("biufcSaUVOMmt?", f->kind) || (*s && !unit))
        return bad(b, node, "a type such as '<f4'");
    if (f->kind == '?') /* by its letter */
        f->kind = 'b', n = 1, digits = true;
    if (f->kind == 'O')
        n = digits ? n : 8;
    else if (!digits && !strchr("SaUV", f->kind))
        return bad(b, node, "a type with its size, such as '<f4'");
    f->kind = f->kind == 'a' ? 'S' : f->kind;
    f->size = f->kind == 'U' ? n * 4 : n;
    if (f->kind == 'O')
        b->npy->has_object = true;
    return SDC_OK;
}

static enum sdc_status add_field(struct builder *b, const struct around *a,
                                 const struct sdc_pylit_node *node, uint64_t *size) {
    struct sdc_npy *npy = b->npy;
    if (npy->n_fields == b->cap) {
        size_t cap = b->cap ? b->cap * 2 : 4;
        struct sdc_npy_field *more = sdc__realloc(npy->fields, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(b->err, b->what);
        npy->fields = more;
        b->cap = cap;
    }
    if (npy->n_fields >= MAX_FIELDS)
        return SDC_ERR(b->err, SDC_LIMIT, "%s: header: more than %u fields", b->what, MAX_FIELDS);
    struct sdc_npy_field *f = &npy->fields[npy->n_fields];
    *f = (struct sdc_npy_field){.offset = a->offset, .rank = a->rank};
    memcpy(f->dims, a->dims, sizeof f->dims);
    memcpy(f->strides, a->strides, sizeof f->strides);
    f->name = sdc__strdup(a->name);
    f->descr = sdc__strdup(node->text);
    npy->n_fields++;
    if (!f->name || !f->descr)
        return SDC_NOMEM(b->err, b->what);
    SDC_TRY(parse_descr(b, node, f));
    *size = f->size;
    return SDC_OK;
}

static enum sdc_status add_type(struct builder *b, const struct around *a,
                                const struct sdc_pylit_node *node, uint64_t *size);

static const struct sdc_pylit_node *nth(const struct builder *b, const struct sdc_pylit_node *of,
                                        unsigned k) {
    uint32_t i = of->first;
    while (k-- > 0)
        i = b->lit->nodes[i].next;
    return &b->lit->nodes[i];
}

/* The subarray's shape of a field: an int or a tuple of ints. */
static enum sdc_status subshape(const struct builder *b, const struct sdc_pylit_node *node,
                                unsigned *rank, uint64_t *dims) {
    const bool one = node->type == SDC_PYLIT_INT;
    if (!one && node->type != SDC_PYLIT_TUPLE)
        return bad(b, node, "the shape of a subarray");
    *rank = one ? 1 : node->n;
    if (*rank > SDC_MAX_RANK)
        return bad(b, node, "a subarray of 32 dimensions at most");
    for (unsigned k = 0; k < *rank; k++) {
        const struct sdc_pylit_node *d = one ? node : nth(b, node, k);
        if (d->type != SDC_PYLIT_INT || d->number < 0)
            return bad(b, d, "a size");
        dims[k] = (uint64_t)d->number;
    }
    return SDC_OK;
}

/* One (name, type) or (name, type, shape); *size: bytes it takes of the element. The size of its
 * type is only known after the fields inside it were added, so their strides are set then. */
static enum sdc_status add_member(struct builder *b, const struct around *a,
                                  const struct sdc_pylit_node *node, uint64_t *size) {
    struct around in = *a;
    unsigned rank = 0;
    uint64_t dims[SDC_MAX_RANK];
    if (node->type != SDC_PYLIT_TUPLE || node->n < 2 || node->n > 3)
        return bad(b, node, "a tuple of a name, a type and perhaps a shape");
    const struct sdc_pylit_node *name = nth(b, node, 0), *type = nth(b, node, 1);
    if (name->type == SDC_PYLIT_TUPLE && name->n == 2) /* a title and the name */
        name = nth(b, name, 1);
    if (name->type != SDC_PYLIT_STR)
        return bad(b, name, "a name");
    if (node->n == 3)
        SDC_TRY(subshape(b, nth(b, node, 2), &rank, dims));
    if (in.rank + rank > SDC_MAX_RANK)
        return bad(b, node, "32 dimensions at most");
    const size_t first = b->npy->n_fields;
    char *full = a->name[0] ? sdc__asprintf("%s:%s", a->name, name->text) : sdc__strdup(name->text);
    if (!full)
        return SDC_NOMEM(b->err, b->what);
    in.name = full;
    memcpy(in.dims + in.rank, dims, rank * sizeof *dims);
    in.rank += rank;
    enum sdc_status st = add_type(b, &in, type, size);
    sdc__free(full);
    SDC_TRY(st);
    for (unsigned k = rank; k-- > 0;) {
        for (size_t i = first; i < b->npy->n_fields; i++)
            b->npy->fields[i].strides[a->rank + k] = *size;
        if (!sdc__mul_u64(size, dims[k]))
            return bad(b, node, "a size without overflow");
    }
    const bool padding =
        name->text[0] == '\0' && b->npy->n_fields == first + 1 && b->npy->fields[first].kind == 'V';
    if (padding) {
        b->npy->n_fields--;
        sdc__free(b->npy->fields[first].name);
        sdc__free(b->npy->fields[first].descr);
    }
    return SDC_OK;
}

static enum sdc_status add_type(struct builder *b, const struct around *a,
                                const struct sdc_pylit_node *node, uint64_t *size) {
    if (node->type == SDC_PYLIT_STR)
        return add_field(b, a, node, size);
    if (node->type != SDC_PYLIT_LIST)
        return bad(b, node, "a type: a string, or a list of fields");
    struct around in = *a;
    *size = 0;
    for (uint32_t i = node->first; i != NONE; i = b->lit->nodes[i].next) {
        uint64_t more;
        SDC_TRY(add_member(b, &in, &b->lit->nodes[i], &more));
        if (__builtin_add_overflow(in.offset, more, &in.offset))
            return bad(b, node, "a size without overflow");
        *size += more;
    }
    return SDC_OK;
}

/* ---- the whole ---- */

static enum sdc_status get_shape(const struct builder *b, const struct sdc_pylit_node *node) {
    struct sdc_npy *npy = b->npy;
    if (node->type != SDC_PYLIT_TUPLE)
        return bad(b, node, "shape: a tuple of sizes");
    if (node->n > SDC_MAX_RANK)
        return SDC_ERR(b->err, SDC_LIMIT, "%s: %u dimensions, the limit is %d", b->what, node->n,
                       SDC_MAX_RANK);
    npy->rank = node->n;
    npy->size = npy->itemsize;
    bool fits = true, empty = false;
    unsigned k = 0;
    for (uint32_t i = node->first; i != NONE; i = b->lit->nodes[i].next, k++) {
        const struct sdc_pylit_node *d = &b->lit->nodes[i];
        if (d->type != SDC_PYLIT_INT || d->number < 0)
            return bad(b, d, "a size");
        npy->shape[k] = (uint64_t)d->number;
        empty = empty || d->number == 0;
        fits = fits && sdc__mul_u64(&npy->size, npy->shape[k]);
    }
    if (empty)
        npy->size = 0;
    if (!fits && !empty)
        return SDC_ERR(b->err, SDC_INVALID, "%s: header: overflow of the shape's product", b->what);
    return SDC_OK;
}

static enum sdc_status read_dict(struct builder *b) {
    const struct sdc_pylit *l = b->lit;
    const struct sdc_pylit_node *root = l->nodes;
    if (root->type != SDC_PYLIT_DICT)
        return bad(b, root, "a dict");
    const struct sdc_pylit_node *descr = sdc__pylit_get(l, root, "descr"),
                                *fortran = sdc__pylit_get(l, root, "fortran_order"),
                                *shape = sdc__pylit_get(l, root, "shape");
    if (!descr || !fortran || !shape || root->n != 6)
        return SDC_ERR(b->err, SDC_INVALID,
                       "%s: header: expected exactly the keys descr, fortran_order and shape",
                       b->what);
    if (fortran->type != SDC_PYLIT_BOOL)
        return bad(b, fortran, "fortran_order: True or False");
    b->npy->fortran = fortran->number != 0;
    SDC_TRY(add_type(b, &(struct around){.name = ""}, descr, &b->npy->itemsize));
    return get_shape(b, shape);
}

enum sdc_status sdc__npy_parse(const unsigned char *head, size_t len, const char *what,
                               struct sdc_npy *npy, struct sdc_error *err) {
    struct sdc_pylit lit;
    const size_t start = head[6] == 1 ? 10 : 12;
    *npy = (struct sdc_npy){.data = len};
    struct builder b = {.lit = &lit, .what = what, .npy = npy, .err = err};
    enum sdc_status st =
        sdc__pylit_parse((const char *)head + start, len - start, head[6] < 3, what, &lit, err);
    if (st == SDC_OK)
        st = read_dict(&b);
    npy->called = lit.called;
    sdc__pylit_release(&lit);
    return st;
}

void sdc__npy_release(struct sdc_npy *npy) {
    for (size_t i = 0; i < npy->n_fields; i++) {
        sdc__free(npy->fields[i].name);
        sdc__free(npy->fields[i].descr);
    }
    sdc__free(npy->fields);
    *npy = (struct sdc_npy){0};
}
