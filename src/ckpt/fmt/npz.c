/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy archives (.npz): a zip file whose members NAME.npy are arrays. Those of stored members are
 * patched in place; an archive with deflated arrays is written anew when something in it changes,
 * stored arrays included, since they move.
 */
#include "ckpt/fmt/npy.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/zip.h"
#include "ckpt/zip_rewrite.h"
#include "io/flate.h"

#define MAX_NOTES 16 /* about single members */

/* Inflated bytes that were needed last. Callers ask for one run after the other, so a stream that
 * stands there goes on; tensors that are not in C order are unpacked as a whole. */
struct npz {
    struct sdc_zip zip;
    struct sdc_inflate *in;
    size_t in_member;
    struct sdc_file spool;
    struct sdc_map map; /* of spool; without data where the file system cannot map */
    size_t spooled;     /* the member in it, if it is open */
    unsigned notes;
};

/* ---- opening ---- */

/* The beginning of a member's bytes. */
static enum sdc_status read_start(const struct sdc_file *f, const struct sdc_zip_member *m,
                                  struct sdc_inflate *in, uint64_t at, void *to, size_t n,
                                  struct sdc_error *err) {
    return in ? sdc__inflate_read(in, to, n, err) : sdc__file_read(f, m->data + at, to, n, err);
}

static enum sdc_status note_member(struct sdc_ckpt *ckpt, const char *name, const char *what,
                                   struct sdc_error *err) {
    struct npz *z = ckpt->priv;
    if (++z->notes > MAX_NOTES)
        return SDC_OK;
    if (z->notes == MAX_NOTES)
        return sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err, "and more members like these");
    return sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err, "zip member %s: %s", name, what);
}

static enum sdc_status add_member(struct sdc_ckpt *ckpt, size_t index, const char *name,
                                  bool recoded, const char *refused, struct sdc_error *err) {
    const struct sdc_zip_member *m = &((struct npz *)ckpt->priv)->zip.members[index];
    const bool deflated = m->method == SDC_ZIP_DEFLATED;
    const struct sdc_file *f = ckpt->file;
    const size_t first = ckpt->n;
    unsigned char start[SDC_NPY_START], *head = NULL;
    size_t n = m->size < sizeof start ? (size_t)m->size : sizeof start;
    struct sdc_inflate *in = NULL;
    struct sdc_npy npy = {0};
    uint64_t len = 0;
    enum sdc_status st = SDC_OK;
    char *what = sdc__asprintf("%s: %s", ckpt->path, m->name);
    if (!what)
        return SDC_NOMEM(err, ckpt->path);
    if (deflated)
        SDC_TRY_OUT(st, sdc__inflate_new(f, m->data, m->stored, &in, err));
    SDC_TRY_OUT(st, read_start(f, m, in, 0, start, n, err));
    if (!sdc__npy_is(start, n)) {
        st = note_member(ckpt, m->name, "no NumPy array", err);
        goto out;
    }
    SDC_TRY_OUT(st,
                sdc__npy_header_len(start, n, m->size, ckpt->options->max_header, what, &len, err));
    head = sdc__alloc((size_t)len > n ? (size_t)len : n, 1);
    if (!head) {
        st = SDC_NOMEM(err, what);
        goto out;
    }
    memcpy(head, start, n);
    if (len > n)
        SDC_TRY_OUT(st, read_start(f, m, in, n, head + n, (size_t)len - n, err));
    SDC_TRY_OUT(st, sdc__npy_parse(head, (size_t)len, what, &npy, err));
    struct sdc_npy_place place = {.in_file = !deflated,
                                  .start = m->data,
                                  .total = m->size,
                                  .key = index,
                                  .storage = deflated ? "zip member, deflated" : "zip member",
                                  .recoded = deflated  ? "deflate"
                                             : recoded ? "beside deflated arrays"
                                                       : NULL};
    SDC_TRY_OUT(st, sdc__npy_add(ckpt, name, &npy, &place, err));
    for (size_t i = first; refused && i < ckpt->n; i++) {
        ckpt->entries[i].unreadable = true;
        SDC_TRY_OUT(st, sdc__entry_lock(&ckpt->entries[i], err, "%s", refused));
    }
out:
    sdc__npy_release(&npy);
    sdc__inflate_free(in);
    sdc__free(head);
    sdc__free(what);
    return st;
}

static enum sdc_status add_sum(struct sdc_ckpt *ckpt, const struct sdc_zip_member *m,
                               struct sdc_error *err) {
    char *what = sdc__asprintf("zip member %s", m->name);
    if (!what)
        return SDC_NOMEM(err, ckpt->path);
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_CRC32,
                               .what = what,
                               .offset = m->data,
                               .size = m->stored,
                               .deflated = m->method == SDC_ZIP_DEFLATED,
                               .inflated_size = m->size,
                               .n_places = m->n_crc_places,
                               /* 0: not computed */
                               .unknown =
                                   (m->crc == 0 && m->size > 0) ||
                                   (m->method != SDC_ZIP_STORED && m->method != SDC_ZIP_DEFLATED)};
    for (unsigned i = 0; i < m->n_crc_places; i++)
        sum.places[i].offset = m->crc_places[i];
    enum sdc_status st = sdc__ckpt_add_sum(ckpt, &sum, err);
    sdc__free(what);
    return st;
}

static bool is_array_name(const struct sdc_zip_member *m) {
    return m->name_len >= 4 && strcmp(m->name + m->name_len - 4, ".npy") == 0;
}

static enum sdc_status open_member(struct sdc_ckpt *ckpt, size_t index, bool recoded,
                                   struct sdc_error *err) {
    const struct sdc_zip_member *m = &((struct npz *)ckpt->priv)->zip.members[index];
    struct sdc_error bomb;
    SDC_TRY(add_sum(ckpt, m, err));
    if (m->shadowed)
        return sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                  "zip member %s: a later one has the same name; NumPy reads that",
                                  m->name);
    if (!is_array_name(m))
        return note_member(ckpt, m->name, "no array by its name", err);
    if (m->method != SDC_ZIP_STORED && m->method != SDC_ZIP_DEFLATED)
        return note_member(ckpt, m->name, "compressed in a way that is not supported", err);
    const bool refused = sdc__zip_check_inflated(m, 0, ckpt->path, &bomb) != SDC_OK;
    char *name = sdc__strndup(m->name, m->name_len - 4u);
    if (!name)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = add_member(ckpt, index, name, recoded, refused ? bomb.message : NULL, err);
    sdc__free(name);
    return st;
}

static bool npz_sniff(const struct sdc_ckpt_source *source) {
    return source->file && sdc__zip_kind(source->file, source->head, source->n_head) == SDC_ZIP_NPZ;
}

static enum sdc_status npz_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                struct sdc_error *err) {
    (void)source;
    struct npz *z = sdc__calloc(1, sizeof *z);
    if (!z)
        return SDC_NOMEM(err, ckpt->path);
    z->spool = (struct sdc_file)SDC_FILE_INIT;
    ckpt->priv = z;
    SDC_TRY(sdc__zip_open(ckpt->file, 0, ckpt->file->size, &z->zip, err));
    if (z->zip.trailing)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%llu bytes after the end of the archive",
                                   (unsigned long long)z->zip.trailing));
    bool recoded = false;
    for (size_t i = 0; i < z->zip.n; i++)
        recoded = recoded || (z->zip.members[i].method == SDC_ZIP_DEFLATED &&
                              is_array_name(&z->zip.members[i]));
    for (size_t i = 0; i < z->zip.n; i++)
        SDC_TRY(open_member(ckpt, i, recoded, err));
    return SDC_OK;
}

static void npz_close(struct sdc_ckpt *ckpt) {
    struct npz *z = ckpt->priv;
    if (!z)
        return;
    sdc__inflate_free(z->in);
    sdc__file_unmap(&z->map);
    sdc__file_close(&z->spool);
    sdc__zip_release(&z->zip);
    sdc__free(z);
}

/* ---- reading ---- */

static enum sdc_status read_packed(struct sdc_ckpt *ckpt, size_t index, uint64_t at, void *to,
                                   uint64_t n, struct sdc_error *err) {
    struct npz *z = ckpt->priv;
    const struct sdc_zip_member *m = &z->zip.members[index];
    if (z->in && (z->in_member != index || sdc__inflate_at(z->in) > at)) {
        sdc__inflate_free(z->in);
        z->in = NULL;
    }
    if (!z->in)
        SDC_TRY(sdc__inflate_new(ckpt->file, m->data, m->stored, &z->in, err));
    z->in_member = index;
    enum sdc_status st = sdc__inflate_read(z->in, NULL, at - sdc__inflate_at(z->in), err);
    if (st == SDC_OK)
        st = sdc__inflate_read(z->in, to, n, err);
    if (st != SDC_OK) {
        sdc__inflate_free(z->in);
        z->in = NULL;
    }
    return st;
}

static enum sdc_status unpack(struct sdc_ckpt *ckpt, size_t index, struct sdc_error *err) {
    enum { BLOCK = 1 << 18 };
    struct npz *z = ckpt->priv;
    const uint64_t size = z->zip.members[index].size;
    if (z->spool.fd >= 0 && z->spooled == index)
        return SDC_OK;
    sdc__file_unmap(&z->map);
    sdc__file_close(&z->spool);
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = sdc__file_temp(&z->spool, err);
    for (uint64_t at = 0; st == SDC_OK && at < size;) {
        size_t n = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        st = read_packed(ckpt, index, at, block, n, err);
        if (st == SDC_OK)
            st = sdc__file_write(&z->spool, at, block, n, err);
        at += n;
    }
    sdc__free(block);
    z->spooled = index;
    if (st != SDC_OK)
        sdc__file_close(&z->spool);
    else if (sdc__file_map(&z->spool, &z->map, NULL) != SDC_OK)
        z->map =
            (struct sdc_map){0}; /* some file systems cannot: read instead, which takes longer */
    return st;
}

static enum sdc_status npz_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                uint64_t first, uint64_t n, void *elements, struct sdc_error *err) {
    const struct npz *z = ckpt->priv;
    const struct sdc_npy_walk *w = e->layout;
    const unsigned size = sdc_dtype_bytes(e->desc.dtype);
    unsigned char *to = elements;
    if (w->packed)
        return read_packed(ckpt, (size_t)e->key, w->start + first * size, to, n * size, err);
    SDC_TRY(unpack(ckpt, (size_t)e->key, err));
    for (uint64_t k = 0; k < n; k++, to += size) {
        const uint64_t at = sdc__npy_offset(w, e, first + k); /* inside: check_size */
        if (z->map.data)
            memcpy(to, z->map.data + at, size);
        else
            SDC_TRY(sdc__file_read(&z->spool, at, to, size, err));
    }
    return SDC_OK;
}

/* ---- writing anew ---- */

struct placed {
    size_t member;
    struct sdc_zip_patch patch;
};

static int by_place(const void *a, const void *b) {
    const struct placed *x = a, *y = b;
    if (x->member != y->member)
        return x->member < y->member ? -1 : 1;
    return (x->patch.at > y->patch.at) - (x->patch.at < y->patch.at);
}

static enum sdc_status npz_recode(struct sdc_ckpt *ckpt, unsigned member,
                                  const struct sdc_ckpt_edit *edits, size_t n, struct sdc_file *to,
                                  struct sdc_error *err) {
    (void)member;
    const struct npz *z = ckpt->priv;
    enum sdc_status st = SDC_OK;
    size_t n_changes = 0;
    struct placed *placed = sdc__alloc(n, sizeof *placed);
    struct sdc_zip_patch *patches = sdc__alloc(n, sizeof *patches);
    struct sdc_zip_change *changes = sdc__alloc(z->zip.n, sizeof *changes);
    if (!placed || !patches || !changes) {
        st = SDC_NOMEM(err, ckpt->path);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        const struct sdc_ckpt_entry *e = &ckpt->entries[edits[i].tensor];
        placed[i].member = (size_t)e->key;
        placed[i].patch.at = sdc__npy_offset(e->layout, e, edits[i].elem);
        placed[i].patch.n = sdc_dtype_bytes(e->desc.dtype);
        sdc_num_store(e->desc.dtype, edits[i].raw, placed[i].patch.bytes, e->big_endian);
    }
    if (n > 1)
        qsort(placed, n, sizeof *placed, by_place);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || placed[i - 1].member != placed[i].member)
            changes[n_changes++] = (struct sdc_zip_change){
                .member = placed[i].member, .patches = &patches[i], .keep_crc = ckpt->keep_sums};
        patches[i] = placed[i].patch;
        changes[n_changes - 1].n_patches++;
    }
    ckpt->n_kept_sums = ckpt->keep_sums ? n_changes : 0;
    if (n > 0)
        st = sdc__zip_rewrite(ckpt->file, &z->zip, changes, n_changes, to, err);
out:
    sdc__free(placed);
    sdc__free(patches);
    sdc__free(changes);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_npz = {
    .name = "npz",
    .summary = "NumPy archive",
    .sniff = npz_sniff,
    .open = npz_open,
    .read = npz_read,
    .recode = npz_recode,
    .close = npz_close,
};
