/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches the tree of a pickle for tensors: in dicts, lists and the like, in the states of objects
 * whose classes are not known, and in the calls by which PyTorch and NumPy rebuild theirs.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/fmt/torch.h"

#define MAX_VISITS 4 /* times a shared container is searched, under different names */

struct walk {
    struct sdc_torch *t;
    const struct sdc_pk *pk;
    struct sdc_buf path;
    unsigned char *visits; /* of each node */
    unsigned depth;
    bool too_deep, too_often;
};

static enum sdc_status visit(struct walk *w, uint32_t id, char sep, struct sdc_error *err);

static enum sdc_status damaged(const struct walk *w, const char *what, struct sdc_error *err) {
    return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: %s", w->t->ckpt->path,
                   w->path.len ? w->path.data : "(root)", what);
}

/* ---- names ---- */

static size_t enter(struct walk *w, char sep, const char *component) {
    size_t len = w->path.len;
    if (len > 0)
        sdc__buf_putc(&w->path, sep);
    sdc__buf_puts(&w->path, component);
    return len;
}

static void leave(struct walk *w, size_t len) {
    if (w->path.data) {
        w->path.len = len;
        w->path.data[len] = '\0';
    }
}

/* A dict's key as part of a name. */
static size_t enter_key(struct walk *w, char sep, uint32_t key) {
    int64_t i;
    struct sdc_buf b = SDC_BUF_INIT;
    const char *text = sdc__pk_text(w->pk, key, NULL);
    if (!text) {
        if (sdc__pk_int(w->pk, key, &i))
            sdc__buf_printf(&b, "%lld", (long long)i);
        else if (sdc__pk_kind(w->pk, key) == SDC_PK_TUPLE)
            sdc__buf_puts(&b, "(");
        struct sdc_pk_iter it = sdc__pk_items(w->pk, key);
        uint32_t item;
        for (bool first = true;
             sdc__pk_kind(w->pk, key) == SDC_PK_TUPLE && sdc__pk_next(&it, &item); first = false) {
            const char *part = sdc__pk_text(w->pk, item, NULL);
            sdc__buf_puts(&b, first ? "" : ",");
            if (part)
                sdc__buf_puts(&b, part);
            else if (sdc__pk_int(w->pk, item, &i))
                sdc__buf_printf(&b, "%lld", (long long)i);
            else
                sdc__buf_puts(&b, "?");
        }
        if (sdc__pk_kind(w->pk, key) == SDC_PK_TUPLE)
            sdc__buf_puts(&b, ")");
        text = b.data ? b.data : "?"; /* other keys */
        w->path.failed = w->path.failed || b.failed;
    }
    size_t len = enter(w, sep, text);
    sdc__buf_release(&b);
    return len;
}

static enum sdc_status visit_at(struct walk *w, char sep, const char *component, uint32_t id,
                                struct sdc_error *err) {
    size_t len = enter(w, sep, component);
    enum sdc_status st = visit(w, id, '/', err);
    leave(w, len);
    return st;
}

/* ---- numbers of a tensor ---- */

static bool is_size(const struct sdc_pk *pk, uint32_t id, uint32_t *tuple) {
    const char *callee = sdc__pk_callee(pk, id);
    uint32_t args;
    *tuple = id;
    if (callee && strcmp(callee, "torch.Size") == 0 && sdc__pk_args(pk, id, &args))
        if (!sdc__pk_at(pk, args, 0, tuple))
            return false;
    return sdc__pk_kind(pk, *tuple) == SDC_PK_TUPLE || sdc__pk_kind(pk, *tuple) == SDC_PK_LIST;
}

/* A tensor of this shape with room for strides, which are set as in C order. */
static enum sdc_status new_tensor(struct walk *w, uint32_t shape, struct sdc_torch_tensor **x,
                                  struct sdc_error *err) {
    uint32_t tuple, item;
    if (!is_size(w->pk, shape, &tuple))
        return damaged(w, "its shape is no tuple", err);
    uint64_t rank = sdc__pk_count(w->pk, tuple);
    if (rank > SDC_MAX_RANK)
        return SDC_ERR(err, SDC_LIMIT, "%s: tensor %s: %llu dimensions, the limit is %d",
                       w->t->ckpt->path, w->path.data, (unsigned long long)rank, SDC_MAX_RANK);
    if (w->path.failed)
        return SDC_NOMEM(err, w->t->ckpt->path);
    const char *name = w->path.len         ? w->path.data
                       : w->t->tensor_name ? w->t->tensor_name
                                           : "tensor";
    SDC_TRY(sdc__torch_add(w->t, name, (unsigned)rank, x, err));
    struct sdc_pk_iter it = sdc__pk_items(w->pk, tuple);
    for (unsigned d = 0; sdc__pk_next(&it, &item); d++)
        if (!sdc__pk_size(w->pk, item, &(*x)->shape[d]))
            return damaged(w, "its shape is not of integers of 0 and above", err);
    uint64_t step = 1;
    for (unsigned d = (unsigned)rank; d-- > 0;) {
        (*x)->strides[d] = step;
        if (!sdc__mul_u64(&step, (*x)->shape[d]))
            return damaged(w, "overflow of its shape's product", err);
    }
    return SDC_OK;
}

static bool is_storage(const struct sdc_pk *pk, uint32_t id) {
    uint32_t tuple, word;
    const char *text = NULL;
    if (sdc__pk_kind(pk, id) == SDC_PK_PERSID && sdc__pk_args(pk, id, &tuple) &&
        sdc__pk_at(pk, tuple, 0, &word))
        text = sdc__pk_text(pk, word, NULL);
    return text && strcmp(text, "storage") == 0;
}

/* ('storage', class, key, location, numel[, view]); view: None or (key, offset, size). storage is
 * SDC_TORCH_NOWHERE if the class is unknown. */
static enum sdc_status find_storage(struct walk *w, uint32_t id, struct sdc_torch_type *type,
                                    size_t *storage, uint64_t *offset, uint64_t *numel,
                                    struct sdc_error *err) {
    const struct sdc_pk *pk = w->pk;
    uint32_t tuple, part[6];
    uint64_t n = 0;
    if (sdc__pk_kind(pk, id) == SDC_PK_PERSID && sdc__pk_args(pk, id, &tuple))
        n = sdc__pk_count(pk, tuple);
    for (unsigned i = 0; i < 6 && i < n; i++)
        (void)sdc__pk_at(pk, tuple, i, &part[i]);
    const char *word = n >= 5 ? sdc__pk_text(pk, part[0], NULL) : NULL;
    if (!word || strcmp(word, "storage") != 0)
        return damaged(w, "its storage is no persistent id of one", err);
    const char *key = sdc__pk_text(pk, part[2], NULL), *class = sdc__pk_global(pk, part[1]);
    if (!key || !sdc__pk_size(pk, part[4], numel))
        return damaged(w, "the persistent id of its storage is damaged", err);
    if (!sdc__torch_storage_class(class, type)) {
        *storage = SDC_TORCH_NOWHERE;
        return SDC_OK;
    }
    *offset = 0;
    if (n == 6 && sdc__pk_kind(pk, part[5]) == SDC_PK_TUPLE) {
        uint32_t at, size;
        uint64_t view;
        if (!sdc__pk_at(pk, part[5], 1, &at) || !sdc__pk_at(pk, part[5], 2, &size) ||
            !sdc__pk_size(pk, at, offset) || !sdc__pk_size(pk, size, &view) ||
            !sdc__range_inside(*offset, view, *numel))
            return damaged(w, "its storage is a view that is damaged or out of bounds", err);
    }
    return sdc__torch_storage(w->t, key, *numel, type->bits < 8 ? 1 : type->bits / 8, storage, err);
}

/* A tensor that is listed, though there are no bytes of it. */
static enum sdc_status without_bytes(struct walk *w, uint32_t shape, const char *dtype,
                                     const char *why, struct sdc_error *err) {
    struct sdc_torch_tensor *x;
    SDC_TRY(new_tensor(w, shape, &x, err));
    if (!sdc__torch_dtype(dtype, &x->type))
        x->type = (struct sdc_torch_type){.text = "unknown", .bits = 8, .components = 1};
    x->why = why;
    return SDC_OK;
}

static enum sdc_status strided(struct walk *w, uint32_t args, const struct sdc_torch_type *other,
                               struct sdc_error *err) {
    const struct sdc_pk *pk = w->pk;
    struct sdc_torch_tensor *x;
    struct sdc_torch_type type;
    uint32_t storage, offset, shape, strides, tuple, item;
    uint64_t base, first, numel;
    size_t index;
    if (!sdc__pk_at(pk, args, 0, &storage) || !sdc__pk_at(pk, args, 1, &offset) ||
        !sdc__pk_at(pk, args, 2, &shape) || !sdc__pk_at(pk, args, 3, &strides))
        return damaged(w, "too few arguments", err);
    SDC_TRY(find_storage(w, storage, &type, &index, &base, &numel, err));
    if (index == SDC_TORCH_NOWHERE)
        return without_bytes(w, shape, NULL, "its storage's class is unknown", err);
    if (!sdc__pk_size(pk, offset, &first) || __builtin_add_overflow(first, base, &first))
        return damaged(w, "out of bounds: its offset is negative or no integer", err);
    SDC_TRY(new_tensor(w, shape, &x, err));
    x->type = other ? *other : type;
    x->storage = index;
    x->offset = first;
    x->big_endian = w->t->big_endian;
    if (!is_size(pk, strides, &tuple) || sdc__pk_count(pk, tuple) != x->rank)
        return damaged(w, "its strides do not fit its shape", err);
    struct sdc_pk_iter it = sdc__pk_items(pk, tuple);
    for (unsigned d = 0; sdc__pk_next(&it, &item); d++)
        if (!sdc__pk_size(pk, item, &x->strides[d]))
            return damaged(w, "out of bounds: a negative stride, or no integer", err);
    return sdc__torch_check(w->t, x, err);
}

/* ---- NumPy arrays inside the pickle ---- */

/* numpy.dtype('f4', ...) with state (3, '<', ...). */
static bool numpy_type(const struct sdc_pk *pk, uint32_t id, struct sdc_torch_type *type,
                       bool *big_endian) {
    uint32_t args, descr, state, order;
    const char *callee = sdc__pk_callee(pk, id), *text, *o = NULL;
    if (!callee || strcmp(callee, "numpy.dtype") != 0 || !sdc__pk_args(pk, id, &args) ||
        !sdc__pk_at(pk, args, 0, &descr) || !(text = sdc__pk_text(pk, descr, NULL)))
        return false;
    if (sdc__pk_state(pk, id, &state) && sdc__pk_at(pk, state, 1, &order))
        o = sdc__pk_text(pk, order, NULL);
    return sdc__torch_numpy_type(text, o && *o ? *o : '<', type, big_endian);
}

static enum sdc_status numpy_array(struct walk *w, uint32_t shape, uint32_t dtype, bool fortran,
                                   uint32_t data, struct sdc_error *err) {
    const struct sdc_pk *pk = w->pk;
    struct sdc_torch_tensor *x;
    struct sdc_torch_type type;
    bool big;
    uint64_t place, len, want = 1;
    uint32_t args;
    if (!numpy_type(pk, dtype, &type, &big)) /* objects, texts, records: no tensor */
        return SDC_OK;
    SDC_TRY(new_tensor(w, shape, &x, err));
    x->type = type;
    x->big_endian = big;
    for (unsigned d = 0; d < x->rank; d++)
        want *= x->shape[d]; /* new_tensor saw the product */
    if (fortran) {
        uint64_t step = 1;
        for (unsigned d = 0; d < x->rank; d++, step *= x->shape[d - 1])
            x->strides[d] = step;
    }
    const char *callee = sdc__pk_callee(pk, data);
    if (callee && strcmp(callee, "builtins.bytearray") == 0 && sdc__pk_args(pk, data, &args))
        (void)sdc__pk_at(pk, args, 0, &data);
    if (sdc__pk_kind(pk, data) != SDC_PK_BYTES || !sdc__pk_place(pk, data, &place, &len)) {
        x->why = callee && strcmp(callee, "_codecs.encode") == 0
                     ? "its bytes are in the pickle as text (Latin-1 in UTF-8)"
                     : "its bytes are not in the pickle as they are";
        return SDC_OK;
    }
    if (!sdc__mul_u64(&want, type.bits / 8) || want != len)
        return damaged(w, "shape and size differ of the array in the pickle", err);
    if (w->t->pickle_deflated) {
        x->why = "its bytes are in a deflated pickle";
        return SDC_OK;
    }
    x->is_inline = true;
    if (__builtin_add_overflow(w->t->pickle_at, place, &x->offset))
        return damaged(w, "out of bounds", err);
    return SDC_OK;
}

/* numpy.core.multiarray._reconstruct(...) with state (version, shape, dtype, fortran, data). */
static enum sdc_status reconstructed(struct walk *w, uint32_t id, struct sdc_error *err) {
    uint32_t state, part[5];
    int64_t fortran;
    if (!sdc__pk_state(w->pk, id, &state) || sdc__pk_count(w->pk, state) != 5)
        return SDC_OK;
    for (unsigned i = 0; i < 5; i++)
        if (!sdc__pk_at(w->pk, state, i, &part[i]))
            return SDC_OK;
    if (!sdc__pk_int(w->pk, part[3], &fortran))
        return SDC_OK;
    return numpy_array(w, part[1], part[2], fortran != 0, part[4], err);
}

/* numpy.core.numeric._frombuffer(data, dtype, shape, order), of pickle protocol 5. */
static enum sdc_status from_buffer(struct walk *w, uint32_t args, struct sdc_error *err) {
    uint32_t part[4];
    for (unsigned i = 0; i < 4; i++)
        if (!sdc__pk_at(w->pk, args, i, &part[i]))
            return SDC_OK;
    const char *order = sdc__pk_text(w->pk, part[3], NULL);
    return numpy_array(w, part[2], part[1], order && *order == 'F', part[0], err);
}

/* ---- PyTorch's ways to rebuild a tensor ---- */

static enum sdc_status component(struct walk *w, const char *name, uint32_t tuple, unsigned i,
                                 struct sdc_error *err) {
    uint32_t id;
    return sdc__pk_at(w->pk, tuple, i, &id) ? visit_at(w, ':', name, id, err) : SDC_OK;
}

/* Layout and (indices, values, size) or (compressed indices, plain indices, values, size). */
static enum sdc_status sparse(struct walk *w, uint32_t args, struct sdc_error *err) {
    const struct sdc_pk *pk = w->pk;
    uint32_t layout, data, name;
    const char *text = NULL;
    if (!sdc__pk_at(pk, args, 0, &layout) || !sdc__pk_at(pk, args, 1, &data))
        return damaged(w, "too few arguments", err);
    if (sdc__pk_global(pk, layout))
        text = sdc__pk_global(pk, layout);
    else if (sdc__pk_args(pk, layout, &name) && sdc__pk_at(pk, name, 0, &name))
        text = sdc__pk_text(pk, name, NULL);
    if (text && strcmp(text, "torch.sparse_coo") == 0) {
        SDC_TRY(component(w, "indices", data, 0, err));
        return component(w, "values", data, 1, err);
    }
    bool columns = text && strstr(text, "sc") != NULL && strstr(text, "sparse_csr") == NULL;
    SDC_TRY(component(w, columns ? "ccol_indices" : "crow_indices", data, 0, err));
    SDC_TRY(component(w, columns ? "row_indices" : "col_indices", data, 1, err));
    return component(w, "values", data, 2, err);
}

/* The integers as NAME:values, and what scales them where that is tensors. */
static enum sdc_status quantised(struct walk *w, uint32_t args, struct sdc_error *err) {
    uint32_t params;
    size_t len = enter(w, ':', "values");
    enum sdc_status st = strided(w, args, NULL, err);
    leave(w, len);
    if (st != SDC_OK || !sdc__pk_at(w->pk, args, 4, &params))
        return st;
    SDC_TRY(component(w, "scales", params, 1, err));
    return component(w, "zero_points", params, 2, err);
}

/* Tensors in the attributes of a tensor of a class of its own. The local part of a distributed
 * tensor is the tensor itself. */
static enum sdc_status attributes(struct walk *w, uint32_t state, struct sdc_error *err) {
    struct sdc_pk_iter it = sdc__pk_items(w->pk, state);
    uint32_t key, value, item;
    if (!it.pairs) { /* (dict, slots) */
        while (sdc__pk_kind(w->pk, state) == SDC_PK_TUPLE && sdc__pk_next(&it, &item))
            if (sdc__pk_kind(w->pk, item) == SDC_PK_DICT)
                SDC_TRY(attributes(w, item, err));
        return SDC_OK;
    }
    while (sdc__pk_next_pair(&it, &key, &value)) {
        const char *text = sdc__pk_text(w->pk, key, NULL);
        if (text && strcmp(text, "_local_tensor") == 0)
            SDC_TRY(visit(w, value, '/', err));
        else if (text)
            SDC_TRY(visit_at(w, ':', text, value, err));
    }
    return SDC_OK;
}

static enum sdc_status rebuild(struct walk *w, const char *callee, uint32_t id, uint32_t args,
                               bool *done, struct sdc_error *err);

/* _rebuild_from_type_v2(func, type, args, state) */
static enum sdc_status from_type(struct walk *w, uint32_t id, uint32_t args,
                                 struct sdc_error *err) {
    uint32_t func, inner, state;
    bool done = false;
    if (!sdc__pk_at(w->pk, args, 0, &func) || !sdc__pk_at(w->pk, args, 2, &inner) ||
        !sdc__pk_at(w->pk, args, 3, &state))
        return damaged(w, "too few arguments", err);
    const char *name = sdc__pk_global(w->pk, func);
    if (name && !strstr(name, "_rebuild_from_type")) /* it does not call itself */
        SDC_TRY(rebuild(w, name, id, inner, &done, err));
    return attributes(w, state, err);
}

static enum sdc_status utils(struct walk *w, const char *name, uint32_t args, bool *done,
                             struct sdc_error *err) {
    const struct sdc_pk *pk = w->pk;
    uint32_t a, b;
    struct sdc_torch_type type;
    if (strcmp(name, "tensor") == 0 || strcmp(name, "tensor_v2") == 0)
        return strided(w, args, NULL, err);
    if (strcmp(name, "tensor_v3") == 0) {
        const char *dtype = sdc__pk_at(pk, args, 6, &a) ? sdc__pk_global(pk, a) : NULL;
        if (!sdc__torch_dtype(dtype, &type))
            return sdc__pk_at(pk, args, 2, &b)
                       ? without_bytes(w, b, dtype, "its type is unknown", err)
                       : damaged(w, "too few arguments", err);
        return strided(w, args, &type, err);
    }
    if (strcmp(name, "qtensor") == 0)
        return quantised(w, args, err);
    if (strcmp(name, "sparse_tensor") == 0 || strcmp(name, "sparse_csr_tensor") == 0)
        return sparse(w, args, err);
    if (strcmp(name, "nested_tensor") == 0) {
        SDC_TRY(component(w, "values", args, 0, err));
        SDC_TRY(component(w, "sizes", args, 1, err));
        SDC_TRY(component(w, "strides", args, 2, err));
        return component(w, "offsets", args, 3, err);
    }
    if (strcmp(name, "meta_tensor_no_storage") == 0)
        return sdc__pk_at(pk, args, 0, &a) && sdc__pk_at(pk, args, 1, &b)
                   ? without_bytes(w, b, sdc__pk_global(pk, a), "a meta tensor has no bytes", err)
                   : damaged(w, "too few arguments", err);
    if (strcmp(name, "wrapper_subclass") == 0) /* its parts are in its state */
        return SDC_OK;
    if (strcmp(name, "parameter_with_state") == 0 && sdc__pk_at(pk, args, 3, &a))
        SDC_TRY(attributes(w, a, err));
    if (strncmp(name, "parameter", 9) == 0 || strncmp(name, "device_tensor", 13) == 0 ||
        strcmp(name, "xla_tensor") == 0)
        return sdc__pk_at(pk, args, 0, &a) ? visit(w, a, '/', err)
                                           : damaged(w, "too few arguments", err);
    *done = false;
    return SDC_OK;
}

/* done: the call was one of those known. */
static enum sdc_status rebuild(struct walk *w, const char *callee, uint32_t id, uint32_t args,
                               bool *done, struct sdc_error *err) {
    static const char prefix[] = "torch._utils._rebuild_";
    uint32_t a;
    *done = true;
    if (strncmp(callee, prefix, sizeof prefix - 1) == 0)
        return utils(w, callee + sizeof prefix - 1, args, done, err);
    if (strncmp(callee, "torch._tensor._rebuild_from_type", 32) == 0)
        return from_type(w, id, args, err);
    if (strcmp(callee, "torch.nn.parameter.Parameter") == 0 ||
        strcmp(callee, "torch.nn.parameter.Buffer") == 0)
        return sdc__pk_at(w->pk, args, 0, &a) ? visit(w, a, '/', err) : SDC_OK;
    if (strcmp(callee, "numpy.core.multiarray._reconstruct") == 0 ||
        strcmp(callee, "numpy._core.multiarray._reconstruct") == 0)
        return reconstructed(w, id, err);
    if (strcmp(callee, "numpy.core.numeric._frombuffer") == 0 ||
        strcmp(callee, "numpy._core.numeric._frombuffer") == 0)
        return from_buffer(w, args, err);
    *done = strcmp(callee, "numpy.core.multiarray.scalar") == 0 ||
            strcmp(callee, "numpy._core.multiarray.scalar") == 0 ||
            strcmp(callee, "numpy.dtype") == 0 || strcmp(callee, "torch.Size") == 0;
    return SDC_OK;
}

/* ---- containers ---- */

/* Pairs as a list of two each, as OrderedDict of Python 2 is called with. */
static enum sdc_status list_of_pairs(struct walk *w, uint32_t list, char sep,
                                     struct sdc_error *err) {
    struct sdc_pk_iter it = sdc__pk_items(w->pk, list);
    uint32_t pair, key, value;
    while (!it.pairs && sdc__pk_next(&it, &pair)) {
        if (!sdc__pk_at(w->pk, pair, 0, &key) || !sdc__pk_at(w->pk, pair, 1, &value))
            continue;
        size_t len = enter_key(w, sep, key);
        enum sdc_status st = visit(w, value, sep, err);
        leave(w, len);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

static enum sdc_status items(struct walk *w, uint32_t id, char sep, struct sdc_error *err) {
    struct sdc_pk_iter it = sdc__pk_items(w->pk, id);
    uint32_t key, value;
    enum sdc_status st = SDC_OK;
    for (uint64_t i = 0; st == SDC_OK; i++) {
        char digits[24];
        size_t len;
        if (it.pairs) {
            if (!sdc__pk_next_pair(&it, &key, &value))
                break;
            len = enter_key(w, sep, key);
        } else {
            if (!sdc__pk_next(&it, &value))
                break;
            (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)i);
            len = enter(w, sep, digits);
        }
        st = visit(w, value, sep, err);
        leave(w, len);
    }
    return st;
}

/* A torch.nn.Module: named as its state dict names them. */
static enum sdc_status module(struct walk *w, uint32_t state, struct sdc_error *err) {
    struct sdc_pk_iter it = sdc__pk_items(w->pk, state);
    uint32_t key, value;
    while (sdc__pk_next_pair(&it, &key, &value)) {
        const char *text = sdc__pk_text(w->pk, key, NULL);
        if (text && (strcmp(text, "_parameters") == 0 || strcmp(text, "_buffers") == 0 ||
                     strcmp(text, "_modules") == 0)) {
            SDC_TRY(items(w, value, '.', err));
            uint32_t args, list; /* OrderedDict([[...]]) */
            if (sdc__pk_args(w->pk, value, &args) && sdc__pk_at(w->pk, args, 0, &list))
                SDC_TRY(list_of_pairs(w, list, '.', err));
            continue;
        }
        size_t len = enter_key(w, '.', key);
        enum sdc_status st = visit(w, value, '.', err);
        leave(w, len);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

/* CALL and OBJECT that rebuild no tensor: what they hold. */
static enum sdc_status object(struct walk *w, uint32_t id, char sep, struct sdc_error *err) {
    uint32_t state, args, first, value;
    const char *callee = sdc__pk_callee(w->pk, id);
    const bool script = callee && strncmp(callee, "__torch__.", 10) == 0;
    SDC_TRY(items(w, id, sep, err));
    if (sdc__pk_args(w->pk, id, &args) && sdc__pk_count(w->pk, args) > 0) {
        if (callee && strcmp(callee, "collections.OrderedDict") == 0 &&
            sdc__pk_at(w->pk, args, 0, &first))
            SDC_TRY(list_of_pairs(w, first, sep, err));
        else
            SDC_TRY(items(w, args, sep, err));
    }
    if (!sdc__pk_state(w->pk, id, &state))
        return SDC_OK;
    if (sdc__pk_get(w->pk, state, "_parameters", &value) &&
        sdc__pk_get(w->pk, state, "_modules", &value))
        return module(w, state, err);
    if (callee && strcmp(callee, "collections.OrderedDict") == 0) /* _metadata */
        return SDC_OK;
    return visit(w, state, script ? '.' : sep, err);
}

/* A storage that is no tensor's: listed as one of its own. */
static enum sdc_status bare_storage(struct walk *w, uint32_t id, struct sdc_error *err) {
    struct sdc_torch_type type;
    struct sdc_torch_tensor *x;
    size_t index;
    uint64_t offset, numel;
    if (!is_storage(w->pk, id)) /* ('module', class, file, source) */
        return SDC_OK;
    SDC_TRY(find_storage(w, id, &type, &index, &offset, &numel, err));
    if (index == SDC_TORCH_NOWHERE)
        return SDC_OK;
    if (w->path.failed)
        return SDC_NOMEM(err, w->t->ckpt->path);
    SDC_TRY(sdc__torch_add(w->t, w->path.len ? w->path.data : "storage", 1, &x, err));
    x->type = type;
    x->storage = index;
    x->big_endian = w->t->big_endian;
    x->strides[0] = 1;
    x->shape[0] = type.bits < 8 ? numel * (8 / type.bits) : numel;
    return sdc__torch_check(w->t, x, err);
}

/* The numbers of parameters in a group go on where those of the group before ended. */
static bool count_params(const struct walk *w, uint32_t group, uint64_t *n) {
    uint32_t params, item;
    uint64_t number;
    if (!sdc__pk_get(w->pk, group, "params", &params))
        return false;
    struct sdc_pk_iter it = sdc__pk_items(w->pk, params);
    while (!it.pairs && sdc__pk_next(&it, &item))
        if (!sdc__pk_size(w->pk, item, &number) || number != (*n)++)
            return false;
    return true;
}

/* "param_names" of a group of PyTorch 2.6 and later; false unless there is one for each. */
static bool add_names(struct walk *w, uint32_t group, uint64_t *n, struct sdc_error *err,
                      enum sdc_status *st) {
    uint32_t params, names, item;
    if (!sdc__pk_get(w->pk, group, "params", &params) ||
        !sdc__pk_get(w->pk, group, "param_names", &names) ||
        sdc__pk_count(w->pk, names) != sdc__pk_count(w->pk, params))
        return false;
    struct sdc_pk_iter it = sdc__pk_items(w->pk, names);
    while (!it.pairs && sdc__pk_next(&it, &item)) {
        const char *text = sdc__pk_text(w->pk, item, NULL);
        if (!text || *n >= w->t->n_params)
            return false;
        char *copy = sdc__strdup(text);
        if (!copy) {
            *st = SDC_NOMEM(err, w->t->ckpt->path);
            return false;
        }
        w->t->param_names[(*n)++] = copy;
    }
    return true;
}

/* The state dict of an optimizer: the numbers of its states are those of the parameters of its
 * groups, one group after the other (torch/optim/optimizer.py, state_dict). Remembers the first. */
static enum sdc_status note_optimizer(struct walk *w, uint32_t id, struct sdc_error *err) {
    struct sdc_torch *t = w->t;
    uint32_t state, groups, group;
    uint64_t n = 0;
    enum sdc_status st = SDC_OK;
    if (t->optimizer || !sdc__pk_get(w->pk, id, "param_groups", &groups) ||
        !sdc__pk_get(w->pk, id, "state", &state))
        return SDC_OK;
    struct sdc_pk_iter it = sdc__pk_items(w->pk, groups);
    while (!it.pairs && sdc__pk_next(&it, &group))
        if (!count_params(w, group, &n))
            return SDC_OK;
    if (n == 0)
        return SDC_OK;
    t->optimizer = sdc__strdup(w->path.len ? w->path.data : "");
    t->param_names = sdc__calloc((size_t)n, sizeof *t->param_names);
    t->n_params = n;
    if (!t->optimizer || !t->param_names)
        return SDC_NOMEM(err, t->ckpt->path);
    bool named = true;
    uint64_t n_names = 0;
    it = sdc__pk_items(w->pk, groups);
    while (named && sdc__pk_next(&it, &group))
        named = add_names(w, group, &n_names, err, &st);
    if (!named || n_names != n)
        sdc__torch_drop_names(t);
    return st;
}

static enum sdc_status visit_any(struct walk *w, uint32_t id, char sep, struct sdc_error *err) {
    uint32_t args;
    bool done = false;
    const char *callee = sdc__pk_callee(w->pk, id);
    switch (sdc__pk_kind(w->pk, id)) {
    case SDC_PK_CALL:
    case SDC_PK_OBJECT:
        if (callee && sdc__pk_args(w->pk, id, &args))
            SDC_TRY(rebuild(w, callee, id, args, &done, err));
        return done ? SDC_OK : object(w, id, sep, err);
    case SDC_PK_PERSID:
        return bare_storage(w, id, err);
    case SDC_PK_DICT:
        SDC_TRY(note_optimizer(w, id, err));
        return items(w, id, sep, err);
    default:
        return items(w, id, sep, err);
    }
}

static bool is_leaf(enum sdc_pk_kind kind) {
    return kind != SDC_PK_CALL && kind != SDC_PK_OBJECT && kind != SDC_PK_PERSID &&
           kind != SDC_PK_TUPLE && kind != SDC_PK_LIST && kind != SDC_PK_DICT && kind != SDC_PK_SET;
}

/* Recursion: at most SDC_MAX_PICKLE_DEPTH containers deep. */
static enum sdc_status visit(struct walk *w, uint32_t id, char sep, struct sdc_error *err) {
    if (is_leaf(sdc__pk_kind(w->pk, id)))
        return SDC_OK;
    if (w->depth >= SDC_MAX_PICKLE_DEPTH) {
        w->too_deep = true;
        return SDC_OK;
    }
    if (w->visits[id] >= MAX_VISITS) {
        w->too_often = true;
        return SDC_OK;
    }
    w->visits[id]++;
    w->depth++;
    enum sdc_status st = visit_any(w, id, sep, err);
    w->depth--;
    return st;
}

enum sdc_status sdc__torch_storages(struct sdc_torch *t, const struct sdc_pk *pk,
                                    struct sdc_error *err) {
    struct walk w = {.t = t, .pk = pk, .path = SDC_BUF_INIT};
    enum sdc_status st = SDC_OK;
    sdc__buf_puts(&w.path, "(storage)");
    for (uint32_t id = 0; st == SDC_OK && id < sdc__pk_nodes(pk); id++) {
        struct sdc_torch_type type;
        size_t index;
        uint64_t offset, numel;
        if (is_storage(pk, id))
            st = find_storage(&w, id, &type, &index, &offset, &numel, err);
    }
    sdc__buf_release(&w.path);
    return st;
}

enum sdc_status sdc__torch_walk(struct sdc_torch *t, const struct sdc_pk *pk, const char *prefix,
                                struct sdc_error *err) {
    struct walk w = {.t = t, .pk = pk, .path = SDC_BUF_INIT};
    enum sdc_status st = SDC_OK;
    w.visits = sdc__calloc(sdc__pk_nodes(pk), 1);
    if (!w.visits)
        return SDC_NOMEM(err, t->ckpt->path);
    sdc__buf_puts(&w.path, prefix);
    st = visit(&w, sdc__pk_root(pk), '/', err);
    if (st == SDC_OK && w.path.failed)
        st = SDC_NOMEM(err, t->ckpt->path);
    if (st == SDC_OK && w.too_deep)
        st = sdc__ckpt_add_note(t->ckpt, SDC_NOTE_WARNING, err,
                                "containers nested deeper than %d, or in themselves, were not "
                                "searched for tensors",
                                SDC_MAX_PICKLE_DEPTH);
    if (st == SDC_OK && w.too_often)
        st = sdc__ckpt_add_note(t->ckpt, SDC_NOTE_INFO, err,
                                "objects that occur at more than %d places were searched for "
                                "tensors at the first of them only",
                                MAX_VISITS);
    sdc__free(w.visits);
    sdc__buf_release(&w.path);
    return st;
}
