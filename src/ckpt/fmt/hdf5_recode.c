/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing elements behind filters, on a copy of the file: each chunk that holds one is decoded,
 * changed, encoded with the filters it had, and written: in place where its size stays, else by
 * libhdf5, which may move it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"

#define MAX_NOTES 20

struct change { /* of one element */
    size_t kept;
    uint64_t chunk, byte;
    uint64_t raw;
    enum sdc_dtype dtype;
    bool big_endian;
};

struct moved { /* a chunk that libhdf5 wrote */
    size_t kept;
    uint64_t chunk, at, size;
};

struct recode {
    struct sdc_ckpt *ckpt;
    struct sdc_h5_state *state;
    struct sdc_file *to;
    struct sdc_h5_proc *writer; /* over `to`; started when first needed */
    struct moved moved[MAX_NOTES];
    size_t n_moved;
};

static int by_chunk(const void *a, const void *b) {
    const struct change *x = a, *y = b;
    if (x->kept != y->kept)
        return x->kept < y->kept ? -1 : 1;
    if (x->chunk != y->chunk)
        return x->chunk < y->chunk ? -1 : 1;
    return (x->byte > y->byte) - (x->byte < y->byte);
}

static enum sdc_status start_writer(struct recode *r, struct sdc_error *err) {
    struct sdc_buf body = SDC_BUF_INIT;
    struct sdc_wire w;
    SDC_TRY(sdc__h5_start(r->ckpt->path, r->to, 0, &r->writer, err));
    sdc__wire_put(&body, 1, 1);
    sdc__wire_put(&body, r->state->f.start, 8);
    sdc__wire_put(&body, r->state->f.size, 8);
    sdc__wire_put(&body, 0, 8);
    sdc__wire_put_text(&body, "", 0);
    enum sdc_status st = sdc__h5_call(r->writer, SDC_WIRE_OPEN, &body, SDC_WIRE_OPENED, &w, err);
    sdc__buf_release(&body);
    return st;
}

static enum sdc_status write_chunk(struct recode *r, const struct sdc_h5_kept *k, uint64_t chunk,
                                   uint32_t mask, const unsigned char *bytes, size_t n,
                                   struct sdc_error *err) {
    struct sdc_buf body = SDC_BUF_INIT;
    struct sdc_wire w;
    uint64_t corner[SDC_MAX_RANK];
    int code;
    do
        code = sdc__io_before(SDC_IO_OP_WRITE, r->to->path);
    while (code == EINTR);
    if (code != 0)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: write", r->to->path);
    if (!r->writer)
        SDC_TRY(start_writer(r, err));
    sdc__h5_corner(k, chunk, corner);
    sdc__wire_put(&body, k->set.addr, 8);
    sdc__wire_put(&body, k->set.rank, 1);
    for (unsigned i = 0; i < k->set.rank; i++)
        sdc__wire_put(&body, corner[i], 8);
    sdc__wire_put(&body, mask, 4);
    enum sdc_status st = sdc__h5_ask(r->writer, SDC_WIRE_WRITE_CHUNK, &body, bytes, n, err);
    sdc__buf_release(&body);
    return st == SDC_OK ? sdc__h5_expect(r->writer, SDC_WIRE_DONE, &w, err) : st;
}

/* The changes of one chunk, all in c[0..n). */
static enum sdc_status change_chunk(struct recode *r, const struct change *c, size_t n,
                                    struct sdc_error *err) {
    struct sdc_h5_kept *k = &r->state->kept[c->kept];
    struct sdc_h5_place *p;
    unsigned char *plain, *coded = NULL;
    char text[320], what[512];
    size_t len = 0;
    sdc__h5_chunk_text(k, c->chunk, text, sizeof text);
    (void)snprintf(what, sizeof what, "%.180s: %s", r->ckpt->path, text);
    SDC_TRY(sdc__h5_place(r->ckpt, c->kept, c->chunk, 0, &p, err));
    if (p->at == SDC_H5_NOT_STORED)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: never written, nothing is stored", what);
    SDC_TRY(sdc__h5_load(r->ckpt, k, c->chunk, p, &plain, err));
    for (size_t i = 0; i < n; i++)
        sdc_num_store(c[i].dtype, c[i].raw, plain + c[i].byte, c[i].big_endian);
    const uint32_t old = sdc__h5_mask(k, c->chunk, p);
    uint32_t mask = old;
    SDC_TRY(sdc__h5_encode(&k->set, &mask, plain, (size_t)k->chunk_bytes, &coded, &len, what, err));
    enum sdc_status st;
    if (len == p->size && mask == old) {
        st = sdc__file_write(r->to, p->at, coded, len, err);
    } else {
        st = write_chunk(r, k, c->chunk, mask, coded, len, err);
        if (r->n_moved < MAX_NOTES)
            r->moved[r->n_moved] = (struct moved){c->kept, c->chunk, p->at, p->size};
        r->n_moved++;
    }
    sdc__free(coded);
    return st;
}

/* Tells where the chunks are now that libhdf5 wrote. */
static enum sdc_status note_moved(struct recode *r, struct sdc_error *err) {
    for (size_t i = 0; i < r->n_moved && i < MAX_NOTES; i++) {
        const struct moved *m = &r->moved[i];
        const struct sdc_h5_kept *k = &r->state->kept[m->kept];
        struct sdc_buf body = SDC_BUF_INIT;
        struct sdc_wire w;
        uint64_t corner[SDC_MAX_RANK];
        char text[320];
        sdc__h5_corner(k, m->chunk, corner);
        sdc__wire_put(&body, k->set.addr, 8);
        sdc__wire_put(&body, k->set.rank, 1);
        sdc__wire_put(&body, 1, 4);
        for (unsigned d = 0; d < k->set.rank; d++)
            sdc__wire_put(&body, corner[d], 8);
        enum sdc_status st =
            sdc__h5_call(r->writer, SDC_WIRE_CHUNKS, &body, SDC_WIRE_CHUNK_LIST, &w, err);
        sdc__buf_release(&body);
        if (st != SDC_OK)
            return st;
        const uint64_t at = sdc__wire_get(&w, 8), size = sdc__wire_get(&w, 8);
        sdc__h5_chunk_text(k, m->chunk, text, sizeof text);
        SDC_TRY(sdc__ckpt_add_note(
            r->ckpt, SDC_NOTE_INFO, err, "%s: %llu bytes at %llu became %llu bytes at %llu", text,
            (unsigned long long)m->size, (unsigned long long)m->at, (unsigned long long)size,
            (unsigned long long)(at + r->state->f.start)));
    }
    if (r->n_moved > MAX_NOTES)
        SDC_TRY(sdc__ckpt_add_note(r->ckpt, SDC_NOTE_INFO, err,
                                   "%zu chunks changed their size in all", r->n_moved));
    return SDC_OK;
}

static enum sdc_status finish(struct recode *r, struct sdc_error *err) {
    struct sdc_buf body = SDC_BUF_INIT;
    struct sdc_wire w;
    struct stat s;
    SDC_TRY(note_moved(r, err));
    SDC_TRY(sdc__h5_call(r->writer, SDC_WIRE_FINISH, &body, SDC_WIRE_DONE, &w, err));
    if (fstat(r->to->fd, &s) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: stat", r->to->path);
    r->to->size = (uint64_t)s.st_size;
    return SDC_OK;
}

/* A chunk whose own checksum is wrong cannot be read back, so nobody could say what was altered. */
static enum sdc_status check_stale(const struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k,
                                   const struct sdc_ckpt_entry *e, struct sdc_error *err) {
    for (unsigned i = 0; ckpt->keep_sums && i < k->set.n_filters; i++)
        if (k->set.filters[i].id == SDC_H5_FLETCHER32)
            return SDC_ERR(err, SDC_UNSUPPORTED,
                           "%s: tensor %s: its chunks have a Fletcher-32 behind other filters, "
                           "which cannot be left stale",
                           ckpt->path, e->name);
    return SDC_OK;
}

enum sdc_status sdc__h5_recode(struct sdc_ckpt *ckpt, unsigned member,
                               const struct sdc_ckpt_edit *edits, size_t n, struct sdc_file *to,
                               struct sdc_error *err) {
    struct recode r = {.ckpt = ckpt, .state = ckpt->priv, .to = to};
    enum sdc_status st = SDC_OK;
    (void)member; /* chunks are in member 0 */
    if (n == 0)
        return SDC_OK;
    struct change *all = sdc__alloc(n, sizeof *all);
    if (!all)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < n; i++) {
        const struct sdc_ckpt_entry *e = &ckpt->entries[edits[i].tensor];
        const struct sdc_h5_part *part = e->layout;
        struct change *c = &all[i];
        SDC_TRY_OUT(st, check_stale(ckpt, &r.state->kept[part->kept], e, err));
        *c = (struct change){.kept = part->kept,
                             .raw = edits[i].raw,
                             .dtype = e->desc.dtype,
                             .big_endian = e->big_endian};
        sdc__h5_inside(&r.state->kept[part->kept], edits[i].elem / part->count, &c->chunk,
                       &c->byte);
        c->byte += sdc__h5_sub_offset(part, edits[i].elem % part->count);
    }
    if (n > 1)
        qsort(all, n, sizeof *all, by_chunk);
    for (size_t i = 0, k; st == SDC_OK && i < n; i = k) {
        for (k = i + 1; k < n && all[k].kept == all[i].kept && all[k].chunk == all[i].chunk; k++)
            ;
        st = change_chunk(&r, &all[i], k - i, err);
    }
    if (st == SDC_OK && r.writer)
        st = finish(&r, err);
out:
    sdc__h5_stop(r.writer);
    sdc__free(all);
    return st;
}
