/* SPDX-License-Identifier: Apache-2.0 */
#include "train/files.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/io.h"
#include "sdc/ckpt.h"
#include "sdc/rng.h"
#include "train/train.h"

/* "f32 [120,400]" */
static const char *kind_text(const struct sdc_tensor_desc *t, char *text, size_t size) {
    int used =
        snprintf(text, size, "%s [", t->dtype_known ? sdc_dtype_name(t->dtype) : t->dtype_text);
    for (unsigned d = 0; d < t->rank && used > 0 && (size_t)used < size; d++)
        used += snprintf(text + used, size - (size_t)used, "%s%llu", d ? "," : "",
                         (unsigned long long)t->shape[d]);
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "]");
    return text;
}

static bool same_kind(const struct sdc_tensor_desc *a, const struct sdc_tensor_desc *b) {
    if (!a->dtype_known || a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (unsigned d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d])
            return false;
    return true;
}

static enum sdc_status read_tensor(struct sdc_ckpt *ckpt, const struct sdc_tensor_view *want,
                                   struct sdc_error *err) {
    char found[128], expected[128];
    const struct sdc_tensor_desc *t = &want->desc;
    size_t i;
    kind_text(t, expected, sizeof expected);
    if (!sdc_ckpt_find(ckpt, t->name, &i))
        return SDC_ERR(err, SDC_MISMATCH, "tensor %s: not in the file, expected %s", t->name,
                       expected);
    const struct sdc_tensor_desc *have = sdc_ckpt_tensor(ckpt, i);
    if (!same_kind(have, t))
        return SDC_ERR(err, SDC_MISMATCH, "tensor %s: found %s, expected %s", t->name,
                       kind_text(have, found, sizeof found), expected);
    /* the views point into the state that is being filled */
    return sdc_ckpt_read(ckpt, i, 0, t->n_elems, (void *)(uintptr_t)want->data, err);
}

/* A tensor that this run has no place for would be lost at the next save, so it is refused. */
static enum sdc_status refuse_strangers(struct sdc_ckpt *ckpt, const struct sdc_train_state *s,
                                        struct sdc_error *err) {
    size_t n;
    const struct sdc_tensor_view *v = sdc_train_state_views(s, &n);
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        size_t k = 0;
        while (k < n && strcmp(v[k].desc.name, t->name) != 0)
            k++;
        char found[128];
        if (k == n)
            return SDC_ERR(err, SDC_MISMATCH, "tensor %s: found %s, expected no such tensor",
                           t->name, kind_text(t, found, sizeof found));
    }
    return SDC_OK;
}

static enum sdc_status check_loop(const struct sdc_loop_state *loop, uint64_t step,
                                  struct sdc_error *err) {
    if (loop->step < 0 || (uint64_t)loop->step != step)
        return SDC_ERR(err, SDC_MISMATCH, "tensor loop/step: found %lld, expected %llu",
                       (long long)loop->step, (unsigned long long)step);
    const uint32_t *w = loop->rng;
    if (w[0] != SDC_RNG_DATA_ORDER || w[1] != 0 || w[3] != 0)
        return SDC_ERR(err, SDC_INVALID,
                       "tensor loop/rng: found [%u,%u,%u,%u], expected a state of the data order's "
                       "generator, [%u,0,N,0]",
                       w[0], w[1], w[2], w[3], (unsigned)SDC_RNG_DATA_ORDER);
    return SDC_OK;
}

static bool has_any_slot(struct sdc_ckpt *ckpt, const struct sdc_train_state *s) {
    size_t i;
    for (size_t k = 0; k < s->n_optimizer; k++)
        if (sdc_ckpt_find(ckpt, s->names[k], &i))
            return true;
    return false;
}

static enum sdc_status read_all(struct sdc_ckpt *ckpt, uint64_t step, struct sdc_train_state *s,
                                struct sdc_error *err) {
    /* before the first step there is no optimizer state, in PyTorch as here */
    s->has_optimizer = step > 0 || has_any_slot(ckpt, s);
    size_t n;
    const struct sdc_tensor_view *v = sdc_train_state_views(s, &n);
    for (size_t i = 0; i < n; i++)
        SDC_TRY(read_tensor(ckpt, &v[i], err));
    SDC_TRY(refuse_strangers(ckpt, s, err));
    return check_loop(&s->loop, step, err);
}

enum sdc_status sdc_train_load(const char *path, uint64_t step, struct sdc_train_state *s,
                               struct sdc_state_digest *digest, struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    SDC_TRY(sdc_ckpt_open(path, NULL, &ckpt, err));
    enum sdc_status st = read_all(ckpt, step, s, err);
    sdc_ckpt_close(ckpt);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s", path);
        return st;
    }
    if (!digest)
        return SDC_OK;
    size_t n;
    const struct sdc_tensor_view *v = sdc_train_state_views(s, &n);
    return sdc_state_digest(v, n, digest, err);
}

static enum sdc_status put_views(struct sdc_ckpt_writer *writer, const struct sdc_tensor_view *v,
                                 size_t n, struct sdc_error *err) {
    for (size_t i = 0; i < n; i++)
        SDC_TRY(sdc_ckpt_writer_put(writer, &v[i].desc, v[i].data, err));
    return SDC_OK;
}

/* The first `head` of the state's tensors, then `rest` others. */
static enum sdc_status write_state(const struct sdc_train_state *s, size_t head,
                                   const struct sdc_tensor_view *others, size_t rest,
                                   const char *path, const char *format, bool sync,
                                   struct sdc_error *err) {
    struct sdc_ckpt_writer *writer = NULL;
    SDC_TRY(sdc_ckpt_writer_new(path, format, true, &writer, err));
    enum sdc_status st = put_views(writer, s->views, head, err);
    if (st == SDC_OK)
        st = put_views(writer, others, rest, err);
    if (st == SDC_OK)
        st = sdc_ckpt_writer_commit(writer, sync, err);
    if (st != SDC_OK) /* after a failed commit too: the temporary file would stay */
        sdc_ckpt_writer_abandon(writer);
    return st;
}

enum sdc_status sdc_train_save(const struct sdc_train_state *s, const char *path,
                               const char *format, struct sdc_error *err) {
    size_t n;
    const struct sdc_tensor_view *v = sdc_train_state_views(s, &n);
    return write_state(s, n, v, 0, path, format, true, err);
}

char *sdc_train_save_path(const char *pattern, uint64_t step) {
    static const char word[] = "{step}";
    const char *at = strstr(pattern, word);
    if (!at)
        return sdc__strdup(pattern);
    return sdc__asprintf("%.*s%llu%s", (int)(at - pattern), pattern, (unsigned long long)step,
                         at + strlen(word));
}

enum sdc_status sdc_train_check_save(const char *pattern, uint64_t step, struct sdc_error *err) {
    struct sdc_replace attempt = SDC_REPLACE_INIT;
    char *path = sdc_train_save_path(pattern, step);
    if (!path)
        return SDC_NOMEM(err, "a path");
    enum sdc_status st = sdc__replace_begin(path, true, &attempt, err);
    sdc__replace_abandon(&attempt);
    sdc__free(path);
    return st;
}

char *sdc_train_snapshot_path(const char *folder, uint64_t step, unsigned rank) {
    return sdc__asprintf("%s/snapshot-%llu-rank-%u.safetensors", folder, (unsigned long long)step,
                         rank);
}

enum sdc_status sdc_train_snapshot(const struct sdc_train_state *s, const char *folder,
                                   unsigned rank, struct sdc_error *err) {
    size_t n;
    const struct sdc_tensor_view *optimizer = sdc_train_state_optimizer_views(s, &n);
    char *path = sdc_train_snapshot_path(folder, (uint64_t)s->loop.step, rank);
    if (!path)
        return SDC_NOMEM(err, "a path");
    enum sdc_status st =
        write_state(s, sdc_train_state_n_model(s), optimizer, n, path, "safetensors", false, err);
    sdc__free(path);
    return st;
}

enum sdc_status sdc_train_load_loop(const char *path, struct sdc_loop_state *loop,
                                    struct sdc_error *err) {
    static const uint64_t rng_shape[1] = {4};
    struct sdc_ckpt *ckpt = NULL;
    *loop = sdc_loop_state_fresh();
    const struct {
        const char *name;
        void *data;
    } scalars[] = {
        {"loop/step", &loop->step}, {"loop/epoch", &loop->epoch}, {"loop/cursor", &loop->cursor}};
    SDC_TRY(sdc_ckpt_open(path, NULL, &ckpt, err));
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i <= sizeof scalars / sizeof scalars[0]; i++) {
        const bool rng = i == sizeof scalars / sizeof scalars[0];
        const enum sdc_dtype dtype = rng ? SDC_DTYPE_U32 : SDC_DTYPE_I64;
        const struct sdc_tensor_view want = {.desc = {.name = rng ? "loop/rng" : scalars[i].name,
                                                      .dtype = dtype,
                                                      .dtype_known = true,
                                                      .dtype_text = sdc_dtype_name(dtype),
                                                      .rank = rng ? 1 : 0,
                                                      .shape = rng ? rng_shape : NULL,
                                                      .n_elems = rng ? 4 : 1},
                                             .data = rng ? loop->rng : scalars[i].data};
        st = read_tensor(ckpt, &want, err);
    }
    sdc_ckpt_close(ckpt);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", path);
    return st;
}

enum sdc_status sdc_train_checkpoint_step(const char *path, uint64_t *step, struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    int64_t found = 0;
    struct sdc_tensor_view want = {.desc = {.name = "loop/step",
                                            .dtype = SDC_DTYPE_I64,
                                            .dtype_known = true,
                                            .dtype_text = "I64",
                                            .n_elems = 1},
                                   .data = &found};
    SDC_TRY(sdc_ckpt_open(path, NULL, &ckpt, err));
    enum sdc_status st = read_tensor(ckpt, &want, err);
    sdc_ckpt_close(ckpt);
    if (st == SDC_OK && found < 0)
        st = SDC_ERR(err, SDC_INVALID, "tensor loop/step: found %lld, expected at least 0",
                     (long long)found);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s", path);
        return st;
    }
    *step = (uint64_t)found;
    return SDC_OK;
}
