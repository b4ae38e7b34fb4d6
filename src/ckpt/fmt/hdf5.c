/* SPDX-License-Identifier: Apache-2.0
 *
 * HDF5: opening and closing.
 */
#include "ckpt/fmt/hdf5.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5_links.h"

/* Starts the helper on the range and asks for the root group. */
static enum sdc_status start(struct sdc_ckpt *ckpt, uint64_t *root, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    struct sdc_buf body = SDC_BUF_INIT;
    struct sdc_wire w;
    SDC_TRY(sdc__h5_start(ckpt->path, s->f.file, 0, &s->proc, err));
    sdc__wire_put(&body, 0, 1);
    sdc__wire_put(&body, s->f.start, 8);
    sdc__wire_put(&body, s->f.size, 8);
    sdc__wire_put(&body, s->f.base, 8);
    sdc__wire_put_text(&body, (const char *)s->f.clean, s->f.unclean ? 16 + 4 * s->f.O : 0);
    enum sdc_status st = sdc__h5_call(s->proc, SDC_WIRE_OPEN, &body, SDC_WIRE_OPENED, &w, err);
    sdc__buf_release(&body);
    if (st != SDC_OK)
        return st;
    *root = sdc__wire_get(&w, 8);
    return sdc__wire_ends(&w) ? SDC_OK : sdc__h5_nonsense(s->proc, "the root group", err);
}

/* A file of several by the driver that the superblock's extension names. */
static enum sdc_status check_extension(struct sdc_h5_state *s, struct sdc_error *err) {
    struct sdc_h5_header h = {0};
    if (s->f.extension == SDC_H5_UNDEFINED)
        return SDC_OK;
    enum sdc_status st = sdc__h5_header_read(&s->f, s->f.extension, &h, err);
    if (st == SDC_OK && sdc__h5_find(&h, SDC_H5_DRIVER_INFO))
        st = SDC_ERR(err, SDC_UNSUPPORTED,
                     "%s: one of several files of an HDF5 driver (family, multi), which are not "
                     "read",
                     s->f.path);
    sdc__h5_header_release(&h);
    return st;
}

/* The dataset whose names are names[0..n). */
static enum sdc_status add_one(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *t,
                               const struct sdc_h5_name *names, size_t n, struct sdc_h5_header *h,
                               struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const struct sdc_h5_node *node = &t->nodes[names->node];
    struct sdc_h5_set *set = sdc__calloc(1, sizeof *set);
    const char **texts = sdc__alloc(n, sizeof *texts);
    enum sdc_status st = SDC_NO_MEMORY;
    if (!set || !texts) {
        st = SDC_NOMEM(err, ckpt->path);
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        texts[i] = names[i].path;
    SDC_TRY_OUT(st, sdc__h5_header_read(&s->f, node->addr, h, err));
    st = sdc__h5_set_read(&s->f, h, set, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "tensor %s", names->path);
        goto out;
    }
    struct sdc_h5_found found = {.header = h,
                                 .set = set,
                                 .label = t->texts.data + node->label,
                                 .n_chunks = node->n_chunks,
                                 .stored = node->stored,
                                 .beyond = node->later && sdc__h5_major(s->proc) < 2,
                                 .names = texts,
                                 .n_names = n};
    SDC_TRY_OUT(st, sdc__h5_add_set(ckpt, &found, err));
    s->sets[s->n_sets++] = node->addr;
out:
    if (set)
        sdc__h5_set_release(set);
    sdc__free(set);
    sdc__free(texts);
    return st;
}

static enum sdc_status add_all(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *t,
                               struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    struct sdc_h5_header h = {0};
    enum sdc_status st = SDC_OK;
    s->sets = sdc__alloc(t->n_nodes, sizeof *s->sets);
    if (!s->sets)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0, k; st == SDC_OK && i < t->n_names; i = k) {
        for (k = i + 1; k < t->n_names && t->names[k].node == t->names[i].node; k++)
            ;
        st = add_one(ckpt, t, &t->names[i], k - i, &h, err);
    }
    sdc__h5_header_release(&h);
    return st;
}

static enum sdc_status add_notes(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *t,
                                 struct sdc_error *err) {
    const struct sdc_h5_state *s = ckpt->priv;
    if (s->f.end && s->f.end < s->f.size)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "trailing bytes: %llu after the %llu that the HDF5 file says it "
                                   "has",
                                   (unsigned long long)(s->f.size - s->f.end),
                                   (unsigned long long)s->f.end));
    if (s->f.unclean)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "marked as open for writing: its writer is still running or "
                                   "died, what it shows may be inconsistent"));
    return sdc__h5_tree_notes(ckpt, t, err);
}

/* Is there anything left to ask about? */
static bool needs_helper(const struct sdc_h5_state *s) {
    for (size_t i = 0; i < s->n_kept; i++)
        if (s->kept[i].set.layout == SDC_H5_CHUNKED)
            return true;
    return false;
}

enum sdc_status sdc__h5_open(struct sdc_ckpt *ckpt, uint64_t start_at, uint64_t size,
                             bool in_archive, struct sdc_file *inflated, struct sdc_error *err) {
    struct sdc_h5_tree *t = sdc__calloc(1, sizeof *t);
    struct sdc_h5_state *s = sdc__calloc(1, sizeof *s);
    uint64_t root = 0;
    enum sdc_status st;
    ckpt->priv = s;
    if (!t || !s) {
        st = SDC_NOMEM(err, ckpt->path);
        goto out;
    }
    s->f = (struct sdc_h5_file){
        .file = ckpt->file, .path = ckpt->path, .start = start_at, .size = size};
    s->in_archive = in_archive;
    s->inflated = (struct sdc_file)SDC_FILE_INIT;
    if (inflated) {
        s->inflated = *inflated;
        *inflated = (struct sdc_file)SDC_FILE_INIT;
        s->f.file = &s->inflated;
    }
    SDC_TRY_OUT(st, sdc__h5_superblock(&s->f, ckpt->options->allow_unclean, err));
    SDC_TRY_OUT(st, check_extension(s, err));
    SDC_TRY_OUT(st, start(ckpt, &root, err));
    SDC_TRY_OUT(st, sdc__h5_tree_read(&s->f, s->proc, root, t, err));
    SDC_TRY_OUT(st, sdc__h5_tree_name(&s->f, t, err));
    SDC_TRY_OUT(st, add_notes(ckpt, t, err));
    SDC_TRY_OUT(st, add_all(ckpt, t, err));
    if (!needs_helper(s)) {
        sdc__h5_stop(s->proc);
        s->proc = NULL;
    }
out:
    if (t)
        sdc__h5_tree_release(t);
    sdc__free(t);
    return st;
}

void sdc__h5_close(struct sdc_ckpt *ckpt) {
    struct sdc_h5_state *s = ckpt->priv;
    if (!s)
        return;
    sdc__h5_stop(s->proc);
    for (size_t i = 0; i < s->n_kept; i++) {
        sdc__h5_set_release(&s->kept[i].set);
        sdc__free(s->kept[i].places);
        sdc__free(s->kept[i].members);
        sdc__free(s->kept[i].name);
    }
    for (size_t i = 0; i < SDC_H5_CACHED; i++)
        sdc__free(s->cache[i].bytes);
    sdc__free(s->kept);
    sdc__free(s->sets);
    sdc__free(s->summed);
    sdc__free(s->scratch);
    sdc__h5_file_release(&s->f);
    sdc__file_close(&s->inflated);
    sdc__free(s);
    ckpt->priv = NULL;
}

/* ---- the format ---- */

static bool h5_sniff(const struct sdc_ckpt_source *source) {
    uint64_t base;
    return source->file && sdc__h5_signature(source->file, 0, source->file->size, &base);
}

static enum sdc_status h5_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                               struct sdc_error *err) {
    (void)source;
    return sdc__h5_open(ckpt, 0, ckpt->file->size, false, NULL, err);
}

const struct sdc_ckpt_fmt_ops sdc__fmt_hdf5 = {
    .name = "hdf5",
    .summary = "HDF5 (h5py, Keras, Chainer, PyTorch exports)",
    .sniff = h5_sniff,
    .open = h5_open,
    .map = sdc__h5_map,
    .read = sdc__h5_read,
    .find_sums = sdc__h5_find_sums,
    .recode = sdc__h5_recode,
    .close = sdc__h5_close,
};
