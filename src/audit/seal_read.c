/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "audit/seal.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "io/io.h"

static enum sdc_status take_text(const struct sdc_json *v, const char *where, char **to,
                                 struct sdc_error *err) {
    const char *text;
    SDC_TRY(sdc__json_as_str(v, where, &text, err));
    *to = sdc__strdup(text);
    return *to ? SDC_OK : SDC_NOMEM(err, where);
}

static enum sdc_status take_digest(const struct sdc_json *v, const char *where,
                                   struct sdc_digest *to, struct sdc_error *err) {
    const char *text;
    SDC_TRY(sdc__json_as_str(v, where, &text, err));
    if (strlen(text) != 32 || !sdc__hex_decode(text, 16, to->bytes))
        return SDC_ERR(err, SDC_INVALID, "%s: found '%s', expected 32 hex digits", where, text);
    return SDC_OK;
}

static enum sdc_status want_array(const struct sdc_json *v, const char *where,
                                  struct sdc_error *err) {
    if (!v || sdc__json_type(v) != SDC_JSON_ARRAY)
        return SDC_ERR(err, SDC_INVALID, "%s: expected an array, found %s", where,
                       v ? sdc__json_type_name(v) : "nothing");
    return SDC_OK;
}

static enum sdc_status read_file(const struct sdc_json *v, struct sdc_seal_file *f,
                                 struct sdc_error *err) {
    static const char *const keys[] = {"name", "size", "xxh3"};
    SDC_TRY(sdc__json_only(v, "files[]", keys, sizeof keys / sizeof keys[0], err));
    SDC_TRY(take_text(sdc__json_get(v, "name"), "files[].name", &f->name, err));
    SDC_TRY(sdc__json_as_u64(sdc__json_get(v, "size"), "files[].size", &f->size, err));
    return take_digest(sdc__json_get(v, "xxh3"), "files[].xxh3", &f->digest, err);
}

static enum sdc_status read_shape(const struct sdc_json *v, struct sdc_seal_tensor *t,
                                  struct sdc_error *err) {
    SDC_TRY(want_array(v, "tensors[].shape", err));
    size_t rank = sdc__json_count(v);
    if (rank > SDC_MAX_RANK)
        return SDC_ERR(err, SDC_INVALID, "tensors[].shape: %zu dimensions, expected at most %d",
                       rank, SDC_MAX_RANK);
    t->shape = sdc__alloc(rank, sizeof *t->shape);
    if (!t->shape)
        return SDC_NOMEM(err, t->name);
    for (; t->rank < rank; t->rank++)
        SDC_TRY(sdc__json_as_u64(sdc__json_at(v, t->rank), "tensors[].shape[]", &t->shape[t->rank],
                                 err));
    return SDC_OK;
}

static uint64_t count_of(const struct sdc_seal_tensor *t) {
    uint64_t n = 1;
    for (unsigned i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(n, t->shape[i], &n))
            return UINT64_MAX;
    return n;
}

static enum sdc_status read_blocks(const struct sdc_json *v, struct sdc_seal_tensor *t,
                                   struct sdc_error *err) {
    const struct sdc_json *blocks = sdc__json_get(v, "blocks");
    SDC_TRY(sdc__json_as_u64(sdc__json_get(v, "block"), "tensors[].block", &t->block, err));
    SDC_TRY(want_array(blocks, "tensors[].blocks", err));
    size_t n = sdc__json_count(blocks);
    uint64_t elems = count_of(t);
    if (t->block == 0 || elems == 0 || n > SDC_SEAL_BLOCKS || (elems - 1) / t->block + 1 != n)
        return SDC_ERR(err, SDC_INVALID,
                       "tensor %s: %zu blocks of %llu elements do not make up %llu", t->name, n,
                       (unsigned long long)t->block, (unsigned long long)elems);
    t->blocks = sdc__alloc(n, sizeof *t->blocks);
    if (!t->blocks)
        return SDC_NOMEM(err, t->name);
    for (; t->n_blocks < n; t->n_blocks++) {
        const char *text;
        unsigned char bytes[8];
        SDC_TRY(
            sdc__json_as_str(sdc__json_at(blocks, t->n_blocks), "tensors[].blocks[]", &text, err));
        if (strlen(text) != 16 || !sdc__hex_decode(text, 8, bytes))
            return SDC_ERR(err, SDC_INVALID,
                           "tensors[].blocks[]: found '%s', expected 16 hex digits", text);
        t->blocks[t->n_blocks] = 0;
        for (int i = 0; i < 8; i++)
            t->blocks[t->n_blocks] = t->blocks[t->n_blocks] << 8 | bytes[i];
    }
    return SDC_OK;
}

static enum sdc_status read_tensor(const struct sdc_json *v, struct sdc_seal_tensor *t,
                                   struct sdc_error *err) {
    static const char *const keys[] = {"name",  "type",   "shape",     "xxh3",
                                       "block", "blocks", "unreadable"};
    SDC_TRY(sdc__json_only(v, "tensors[]", keys, sizeof keys / sizeof keys[0], err));
    SDC_TRY(take_text(sdc__json_get(v, "name"), "tensors[].name", &t->name, err));
    SDC_TRY(take_text(sdc__json_get(v, "type"), "tensors[].type", &t->type, err));
    SDC_TRY(read_shape(sdc__json_get(v, "shape"), t, err));
    const struct sdc_json *why = sdc__json_get(v, "unreadable");
    const char *text;
    if (why) {
        if (sdc__json_get(v, "xxh3") || sdc__json_get(v, "block") || sdc__json_get(v, "blocks"))
            return SDC_ERR(err, SDC_INVALID, "tensor %s: digests of an unreadable one", t->name);
        return sdc__json_as_str(why, "tensors[].unreadable", &text, err);
    }
    t->has_digest = true;
    SDC_TRY(take_digest(sdc__json_get(v, "xxh3"), "tensors[].xxh3", &t->all, err));
    if (sdc__json_get(v, "block") || sdc__json_get(v, "blocks"))
        return read_blocks(v, t, err);
    return SDC_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sdc_seal_tensor *)a)->name,
                  ((const struct sdc_seal_tensor *)b)->name);
}

static enum sdc_status read_lists(const struct sdc_json *root, struct sdc_seal *seal,
                                  struct sdc_error *err) {
    const struct sdc_json *files = sdc__json_get(root, "files");
    const struct sdc_json *tensors = sdc__json_get(root, "tensors");
    SDC_TRY(want_array(files, "files", err));
    SDC_TRY(want_array(tensors, "tensors", err));
    size_t n_files = sdc__json_count(files), n = sdc__json_count(tensors);
    if (n_files == 0)
        return SDC_ERR(err, SDC_INVALID, "files: found none");
    seal->files = sdc__calloc(n_files, sizeof *seal->files);
    seal->tensors = sdc__calloc(n, sizeof *seal->tensors);
    if (!seal->files || !seal->tensors)
        return SDC_NOMEM(err, "the seal");
    while (seal->n_files < n_files) {
        seal->n_files++;
        SDC_TRY(read_file(sdc__json_at(files, seal->n_files - 1), &seal->files[seal->n_files - 1],
                          err));
    }
    while (seal->n_tensors < n) {
        seal->n_tensors++;
        SDC_TRY(read_tensor(sdc__json_at(tensors, seal->n_tensors - 1),
                            &seal->tensors[seal->n_tensors - 1], err));
    }
    if (n > 1)
        qsort(seal->tensors, n, sizeof *seal->tensors, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(seal->tensors[i - 1].name, seal->tensors[i].name) == 0)
            return SDC_ERR(err, SDC_INVALID, "tensor %s: twice", seal->tensors[i].name);
    return SDC_OK;
}

static enum sdc_status read_root(const struct sdc_json *root, struct sdc_seal *seal,
                                 struct sdc_error *err) {
    static const char *const keys[] = {"schema", "format", "files", "tensors"};
    const char *schema;
    SDC_TRY(sdc__json_only(root, "seal", keys, sizeof keys / sizeof keys[0], err));
    SDC_TRY(sdc__json_as_str(sdc__json_get(root, "schema"), "schema", &schema, err));
    if (strcmp(schema, "sdclab.seal/1") != 0)
        return SDC_ERR(err, SDC_MISMATCH, "schema: found '%s', expected 'sdclab.seal/1'", schema);
    SDC_TRY(take_text(sdc__json_get(root, "format"), "format", &seal->format, err));
    return read_lists(root, seal, err);
}

enum sdc_status sdc__seal_read(const char *path, struct sdc_seal *seal, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_json *root = NULL;
    enum sdc_status st;
    *seal = (struct sdc_seal){0};
    SDC_TRY_OUT(st, sdc__read_whole(path, SDC_MAX_JSON, &text, err));
    SDC_TRY_OUT(st, sdc__json_parse(text.data ? text.data : "", text.len, path, &root, err));
    st = read_root(root, seal, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "seal %s", path);
out:
    sdc__json_free(root);
    sdc__buf_release(&text);
    if (st != SDC_OK)
        sdc__seal_release(seal);
    return st;
}

void sdc__seal_release(struct sdc_seal *seal) {
    for (size_t i = 0; i < seal->n_files; i++)
        sdc__free(seal->files[i].name);
    for (size_t i = 0; i < seal->n_tensors; i++) {
        sdc__free(seal->tensors[i].name);
        sdc__free(seal->tensors[i].type);
        sdc__free(seal->tensors[i].shape);
        sdc__free(seal->tensors[i].blocks);
    }
    sdc__free(seal->files);
    sdc__free(seal->tensors);
    sdc__free(seal->format);
    *seal = (struct sdc_seal){0};
}
