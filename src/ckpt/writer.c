/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of creating a checkpoint that no format differs in: collecting tensors, sorting them so
 * that equal states give equal files, and putting the file in its place at once.
 */
#include "sdc/ckpt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/fmt.h"

struct sdc_ckpt_writer {
    const struct sdc_ckpt_writer_ops *ops;
    struct sdc_replace replace;
    struct sdc_ckpt_put *puts;
    size_t n, cap;
};

enum sdc_status sdc_ckpt_writer_new(const char *path, const char *format, bool replace,
                                    struct sdc_ckpt_writer **writer, struct sdc_error *err) {
    const struct sdc_ckpt_writer_ops *ops = sdc__ckpt_writer_find(format);
    if (!ops)
        return SDC_ERR(err, SDC_USAGE, "%s: no format '%s' to write, expected hdf5 or safetensors",
                       path, format);
    struct sdc_ckpt_writer *w = sdc__calloc(1, sizeof *w);
    if (!w)
        return SDC_NOMEM(err, path);
    enum sdc_status st = sdc__replace_begin(path, replace, &w->replace, err);
    if (st != SDC_OK) {
        sdc__free(w);
        return st;
    }
    w->ops = ops;
    *writer = w;
    return SDC_OK;
}

static void put_release(struct sdc_ckpt_put *p) {
    sdc__free(p->name);
    sdc__free(p->shape);
    sdc__free(p->data);
}

static enum sdc_status check_desc(const struct sdc_ckpt_writer *w,
                                  const struct sdc_tensor_desc *desc, uint64_t *n_elems,
                                  uint64_t *size, struct sdc_error *err) {
    const char *path = w->replace.target;
    size_t len = strlen(desc->name);
    if (len > SDC_MAX_NAME || !sdc__utf8_valid(desc->name, len))
        return SDC_ERR(err, SDC_USAGE, "%s: a tensor name must be UTF-8 of at most %d bytes", path,
                       SDC_MAX_NAME);
    SDC_TRY(w->ops->check_name(path, desc->name, err));
    if (desc->rank > SDC_MAX_RANK || (unsigned)desc->dtype >= SDC_DTYPE_COUNT)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: %u dimensions, the limit is %d", path,
                       desc->name, desc->rank, SDC_MAX_RANK);
    if (sdc_dtype_bits(desc->dtype) < 8)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s: type %s has less than 8 bits", path,
                       desc->name, sdc_dtype_name(desc->dtype));
    *n_elems = 1;
    for (unsigned i = 0; i < desc->rank; i++)
        if (!sdc__mul_u64(n_elems, desc->shape[i]))
            return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: overflow of the shape's product", path,
                           desc->name);
    *size = *n_elems;
    if (!sdc__mul_u64(size, sdc_dtype_bytes(desc->dtype)) || *size > SIZE_MAX)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: overflow of its size in bytes", path,
                       desc->name);
    return SDC_OK;
}

enum sdc_status sdc_ckpt_writer_put(struct sdc_ckpt_writer *w, const struct sdc_tensor_desc *desc,
                                    const void *data, struct sdc_error *err) {
    uint64_t n_elems, size;
    SDC_TRY(check_desc(w, desc, &n_elems, &size, err));
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 32;
        struct sdc_ckpt_put *more = sdc__realloc(w->puts, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, w->replace.target);
        w->puts = more;
        w->cap = cap;
    }
    struct sdc_ckpt_put *p = &w->puts[w->n];
    *p = (struct sdc_ckpt_put){.name = sdc__strdup(desc->name),
                               .dtype = desc->dtype,
                               .rank = desc->rank,
                               .shape = sdc__alloc(desc->rank, sizeof *desc->shape),
                               .n_elems = n_elems,
                               .size = (size_t)size,
                               .data = sdc__alloc((size_t)size, 1)};
    if (!p->name || !p->shape || !p->data) {
        put_release(p);
        return SDC_NOMEM(err, w->replace.target);
    }
    if (desc->rank)
        memcpy(p->shape, desc->shape, desc->rank * sizeof *desc->shape);
    if (size)
        memcpy(p->data, data, (size_t)size);
    w->n++;
    return SDC_OK;
}

static int by_name(const void *a, const void *b) {
    const struct sdc_ckpt_put *x = a, *y = b;
    return strcmp(x->name, y->name);
}

enum sdc_status sdc_ckpt_writer_commit(struct sdc_ckpt_writer *w, bool sync,
                                       struct sdc_error *err) {
    const char *path = w->replace.target;
    if (!path) /* a second commit after a failed one */
        return SDC_ERR(err, SDC_USAGE, "this checkpoint was committed already");
    if (w->n > 1)
        qsort(w->puts, w->n, sizeof *w->puts, by_name);
    for (size_t i = 1; i < w->n; i++)
        if (strcmp(w->puts[i - 1].name, w->puts[i].name) == 0)
            return SDC_ERR(err, SDC_USAGE, "%s: tensor %s was put twice", path, w->puts[i].name);
    SDC_TRY(w->ops->write(&w->replace.file, path, w->puts, w->n, err));
    SDC_TRY(sdc__replace_commit(&w->replace, sync, err));
    sdc_ckpt_writer_abandon(w); /* frees; the temporary has become the file */
    return SDC_OK;
}

void sdc_ckpt_writer_abandon(struct sdc_ckpt_writer *w) {
    if (!w)
        return;
    sdc__replace_abandon(&w->replace);
    for (size_t i = 0; i < w->n; i++)
        put_release(&w->puts[i]);
    sdc__free(w->puts);
    sdc__free(w);
}
