/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/zip_rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/crc.h"
#include "io/flate.h"

#define N_LOCAL   30u
#define N_CENTRAL 46u
#define N_END64   56u
#define N_LOC64   20u
#define N_WIDE    20u /* a zip64 field with two sizes, or with all that is used here less one */
#define MAX16     0xffffu
#define MAX32     0xffffffffu
#define BLOCK     ((size_t)256 * 1024)

/* What becomes of a member. */
struct plan {
    const struct sdc_zip_change *change; /* NULL: copied */
    uint64_t header;                     /* its new place */
    uint64_t stored, size;
    uint32_t crc;
};

struct rewrite {
    const struct sdc_file *from;
    const struct sdc_zip *zip;
    struct sdc_file *to;
    struct plan *plans;
    unsigned char *block, *header;
    uint64_t at; /* end of what is written */
};

static void put16(unsigned char *p, uint64_t v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

static void put32(unsigned char *p, uint64_t v) {
    put16(p, v);
    put16(p + 2, v >> 16);
}

static void put64(unsigned char *p, uint64_t v) {
    put32(p, v);
    put32(p + 4, v >> 32);
}

static enum sdc_status copy(struct rewrite *w, uint64_t offset, uint64_t len,
                            struct sdc_error *err) {
    while (len > 0) {
        size_t n = len < BLOCK ? (size_t)len : BLOCK;
        SDC_TRY(sdc__file_read(w->from, offset, w->block, n, err));
        SDC_TRY(sdc__file_write(w->to, w->at, w->block, n, err));
        w->at += n;
        offset += n;
        len -= n;
    }
    return SDC_OK;
}

/* ---- data ---- */

/* Where new content goes: as it is, or through deflate. */
struct sink {
    struct rewrite *w;
    struct sdc_deflate *deflate;
    uint64_t at;
};

static enum sdc_status put(struct sink *s, const void *data, size_t n, struct sdc_error *err) {
    if (s->deflate)
        return sdc__deflate_put(s->deflate, data, n, err);
    SDC_TRY(sdc__file_write(s->w->to, s->at, data, n, err));
    s->at += n;
    return SDC_OK;
}

/* Puts into the n bytes of data, which are at `at` of the member, what falls into them. */
static size_t apply(const struct sdc_zip_change *c, size_t next, uint64_t at, unsigned char *data,
                    size_t n) {
    while (next < c->n_patches && c->patches[next].at < at + n) {
        const struct sdc_zip_patch *p = &c->patches[next];
        uint64_t from = p->at > at ? p->at : at;
        uint64_t end = p->at + p->n < at + n ? p->at + p->n : at + n;
        memcpy(data + (from - at), p->bytes + (from - p->at), (size_t)(end - from));
        if (p->at + p->n > at + n)
            break; /* goes on in the next block */
        next++;
    }
    return next;
}

static enum sdc_status patched(struct sink *s, const struct sdc_zip_member *m, struct plan *p,
                               struct sdc_inflate *in, struct sdc_error *err) {
    const struct sdc_zip_change *c = p->change;
    struct rewrite *w = s->w;
    uint32_t before = 0, after = 0;
    size_t next = 0;
    for (uint64_t at = 0; at < m->size;) {
        size_t n = m->size - at < BLOCK ? (size_t)(m->size - at) : BLOCK;
        SDC_TRY(in ? sdc__inflate_read(in, w->block, n, err)
                   : sdc__file_read(w->from, m->data + at, w->block, n, err));
        before = sdc__crc32(before, w->block, n);
        next = apply(c, next, at, w->block, n);
        after = sdc__crc32(after, w->block, n);
        SDC_TRY(put(s, w->block, n, err));
        at += n;
    }
    if (next < c->n_patches)
        return SDC_ERR(err, SDC_INTERNAL, "%s: zip member %s: a patch past its end", w->from->path,
                       m->name);
    if (in)
        SDC_TRY(sdc__inflate_end(in, err));
    p->size = m->size;
    p->crc = c->keep_crc || (m->crc == 0 && m->size > 0 && before != 0) ? m->crc
                                                                        : m->crc ^ before ^ after;
    return SDC_OK;
}

static enum sdc_status replaced(struct sink *s, struct plan *p, struct sdc_error *err) {
    struct rewrite *w = s->w;
    const struct sdc_file *f = p->change->content;
    p->size = f->size;
    p->crc = 0;
    for (uint64_t at = 0; at < f->size;) {
        size_t n = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;
        SDC_TRY(sdc__file_read(f, at, w->block, n, err));
        p->crc = sdc__crc32(p->crc, w->block, n);
        SDC_TRY(put(s, w->block, n, err));
        at += n;
    }
    return SDC_OK;
}

/* Writes new data at w->at and moves it behind them. */
static enum sdc_status write_data(struct rewrite *w, const struct sdc_zip_member *m, struct plan *p,
                                  struct sdc_error *err) {
    struct sink s = {.w = w, .at = w->at};
    struct sdc_inflate *in = NULL;
    enum sdc_status st = SDC_OK;
    const bool deflated = m->method == SDC_ZIP_DEFLATED;
    if (deflated)
        SDC_TRY_OUT(st, sdc__deflate_new(w->to, w->at, &s.deflate, err));
    if (deflated && !p->change->content)
        SDC_TRY_OUT(st, sdc__inflate_new(w->from, m->data, m->stored, &in, err));
    SDC_TRY_OUT(st, p->change->content ? replaced(&s, p, err) : patched(&s, m, p, in, err));
    if (deflated)
        SDC_TRY_OUT(st, sdc__deflate_end(s.deflate, &p->stored, err));
    else
        p->stored = s.at - w->at;
    w->at += p->stored;
out:
    sdc__inflate_free(in);
    sdc__deflate_free(s.deflate);
    if (st != SDC_OK)
        sdc_error_prefix(err, "zip member %s", m->name);
    return st;
}

/* ---- one member ---- */

/* Extra fields without those of this id, in place; returns the length. */
static size_t drop_extra(unsigned char *extra, size_t len, unsigned id) {
    size_t kept = 0, at = 0;
    while (len - at >= 4 && (size_t)sdc__zip_u16(extra + at + 2) <= len - at - 4) {
        size_t n = 4 + (size_t)sdc__zip_u16(extra + at + 2);
        if (sdc__zip_u16(extra + at) != id) {
            memmove(extra + kept, extra + at, n);
            kept += n;
        }
        at += n;
    }
    memmove(extra + kept, extra + at, len - at); /* what is no field stays */
    return kept + len - at;
}

/* Reads the local header of a member and makes room for a zip64 field where one may be needed:
 * sizes are known only when the data are written. Returns its length; *wide: where the values of
 * that field are, 0 for none. */
static enum sdc_status local_header(struct rewrite *w, const struct sdc_zip_member *m,
                                    uint64_t most, size_t *len, size_t *wide,
                                    struct sdc_error *err) {
    unsigned char *h = w->header;
    SDC_TRY(sdc__file_read(w->from, m->header, h, (size_t)(m->data - m->header), err));
    *len = (size_t)(m->data - m->header);
    *wide = 0;
    size_t n_name = sdc__zip_u16(h + 26), n_extra = sdc__zip_u16(h + 28), n = 0;
    unsigned char *extra = h + N_LOCAL + n_name;
    const unsigned char *old = sdc__zip_extra(extra, n_extra, 1, &n);
    if (old && n >= 16) {
        *wide = (size_t)(old - h);
        return SDC_OK;
    }
    if (m->flags & SDC_ZIP_FLAG_DESCRIPTOR || most < MAX32)
        return SDC_OK;
    n_extra = drop_extra(extra, n_extra, 1);
    if (n_extra > MAX16 - N_WIDE)
        return SDC_ERR(err, SDC_LIMIT, "%s: zip member %s: no room for a zip64 field",
                       w->from->path, m->name);
    memmove(extra + N_WIDE, extra, n_extra);
    put16(extra, 1);
    put16(extra + 2, N_WIDE - 4);
    put16(h + 28, n_extra + N_WIDE);
    *wide = (size_t)(extra + 4 - h);
    *len = N_LOCAL + n_name + n_extra + N_WIDE;
    return SDC_OK;
}

static void fill_local(unsigned char *h, size_t wide, const struct plan *p) {
    bool big = p->size >= MAX32 || p->stored >= MAX32;
    bool saturated =
        wide && (big || (sdc__zip_u32(h + 18) == MAX32 && sdc__zip_u32(h + 22) == MAX32));
    put32(h + 14, p->crc);
    put32(h + 18, saturated ? MAX32 : p->stored);
    put32(h + 22, saturated ? MAX32 : p->size);
    if (wide) {
        put64(h + wide, p->size);
        put64(h + wide + 8, p->stored);
    }
    if (big && sdc__zip_u16(h + 4) < 45)
        put16(h + 4, 45);
}

static enum sdc_status write_descriptor(struct rewrite *w, const struct sdc_zip_member *m,
                                        const struct plan *p, struct sdc_error *err) {
    unsigned char d[24];
    uint64_t old = m->data + m->stored;
    if (m->descriptor_len == 0)
        return SDC_OK;
    SDC_TRY(sdc__file_read(w->from, old, d, m->descriptor_len, err));
    const unsigned lead = m->descriptor_len % 8 ? 0 : 4; /* 16, 24 have a signature; 12, 20 none */
    unsigned char *v = d + lead;
    put32(v, p->crc);
    if (m->descriptor_len - lead == 20) {
        put64(v + 4, p->stored);
        put64(v + 12, p->size);
    } else {
        if (p->stored >= MAX32 || p->size >= MAX32)
            return SDC_ERR(err, SDC_LIMIT,
                           "%s: zip member %s: would grow past 4 GiB, its descriptor holds 32 bits",
                           w->from->path, m->name);
        put32(v + 4, p->stored);
        put32(v + 8, p->size);
    }
    SDC_TRY(sdc__file_write(w->to, w->at, d, m->descriptor_len, err));
    w->at += m->descriptor_len;
    return SDC_OK;
}

/* next: where the file's next member, or its directory, begins. */
static enum sdc_status write_member(struct rewrite *w, const struct sdc_zip_member *m,
                                    struct plan *p, uint64_t next, struct sdc_error *err) {
    p->header = w->at;
    if (!p->change) {
        p->stored = m->stored;
        p->size = m->size;
        p->crc = m->crc;
        return copy(w, m->header, next - m->header, err);
    }
    if (m->method != SDC_ZIP_STORED && m->method != SDC_ZIP_DEFLATED)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: zip member %s: compression method %u",
                       w->from->path, m->name, m->method);
    size_t len, wide;
    uint64_t most = p->change->content ? p->change->content->size : m->size;
    most += most / 1000 + 1024; /* deflate's worst case */
    SDC_TRY(local_header(w, m, most, &len, &wide, err));
    w->at += len;
    SDC_TRY(write_data(w, m, p, err));
    if (!(m->flags & SDC_ZIP_FLAG_DESCRIPTOR))
        fill_local(w->header, wide, p);
    SDC_TRY(sdc__file_write(w->to, p->header, w->header, len, err));
    SDC_TRY(write_descriptor(w, m, p, err));
    uint64_t end = m->data + m->stored + m->descriptor_len;
    return copy(w, end, next - end, err);
}

/* ---- the directory ---- */

static enum sdc_status write_central(struct rewrite *w, const struct sdc_zip_member *m,
                                     const struct plan *p, struct sdc_error *err) {
    unsigned char *h = w->header;
    SDC_TRY(sdc__file_read(w->from, m->central, h, m->central_len, err));
    const size_t n_name = sdc__zip_u16(h + 28), n_comment = sdc__zip_u16(h + 32);
    size_t n_extra = sdc__zip_u16(h + 30), n_wide = 0, n_old = 0;
    unsigned char *extra = h + N_CENTRAL + n_name, wide[4 + 28];
    const unsigned char *old = sdc__zip_extra(extra, n_extra, 1, &n_old);
    const uint64_t values[] = {p->size, p->stored, p->header - w->zip->prefix};
    static const unsigned at[] = {24, 20, 42};
    for (unsigned i = 0; i < 3; i++) {
        /* as wide as it was; a plain 0xffffffff without a field means itself */
        bool was = old && sdc__zip_u32(h + at[i]) == MAX32;
        if (was || values[i] >= MAX32) {
            put64(wide + 4 + n_wide, values[i]);
            n_wide += 8;
        }
        put32(h + at[i], was || values[i] >= MAX32 ? MAX32 : values[i]);
    }
    if (old && sdc__zip_u16(h + 34) == MAX16) {
        put32(wide + 4 + n_wide, 0);
        n_wide += 4;
    }
    put32(h + 16, p->crc);
    uint64_t len = m->central_len;
    if (n_wide || old) { /* first, as all writers have it */
        unsigned char *tail = extra + n_extra;
        size_t kept = drop_extra(extra, n_extra, 1), n_new = n_wide ? n_wide + 4 : 0;
        if (kept > MAX16 - n_new)
            return SDC_ERR(err, SDC_LIMIT, "%s: zip member %s: no room for a zip64 field",
                           w->from->path, m->name);
        memmove(extra + kept, tail, n_comment);
        memmove(extra + n_new, extra, kept + n_comment);
        put16(wide, 1);
        put16(wide + 2, n_wide);
        memcpy(extra, wide, n_new);
        put16(h + 30, kept + n_new);
        len = N_CENTRAL + n_name + kept + n_new + n_comment;
        if (n_wide && sdc__zip_u16(h + 6) < 45 && sdc__zip_u16(h + 6) != 0)
            put16(h + 6, 45);
    }
    SDC_TRY(sdc__file_write(w->to, w->at, h, (size_t)len, err));
    w->at += len;
    return SDC_OK;
}

/* The records after the directory, which is at `directory`, with all that follows them. */
static enum sdc_status write_end(struct rewrite *w, uint64_t directory, struct sdc_error *err) {
    const struct sdc_zip *z = w->zip;
    const uint64_t size = w->at - directory, stated = directory - z->prefix;
    unsigned char e[22], e64[N_END64 + N_LOC64] = {0};
    SDC_TRY(sdc__file_read(w->from, z->end, e, sizeof e, err));
    uint64_t end64 = w->at;
    if (z->zip64) { /* with what extends it, and its locator */
        uint64_t len = z->end - z->end64;
        SDC_TRY(sdc__file_read(w->from, z->end64, e64, N_END64, err));
        SDC_TRY(copy(w, z->end64, len, err));
        put64(e64 + 40, size);
        put64(e64 + 48, stated);
        SDC_TRY(sdc__file_write(w->to, end64, e64, N_END64, err));
        put64(e64, end64 - z->prefix);
        SDC_TRY(sdc__file_write(w->to, w->at - N_LOC64 + 8, e64, 8, err));
    } else if (size >= MAX32 || stated >= MAX32) {
        put32(e64, 0x06064b50);
        put64(e64 + 4, N_END64 - 12);
        put16(e64 + 12, 45);
        put16(e64 + 14, 45);
        put64(e64 + 24, z->n);
        put64(e64 + 32, z->n);
        put64(e64 + 40, size);
        put64(e64 + 48, stated);
        put32(e64 + N_END64, 0x07064b50);
        put64(e64 + N_END64 + 8, end64 - z->prefix);
        put32(e64 + N_END64 + 16, 1);
        SDC_TRY(sdc__file_write(w->to, w->at, e64, sizeof e64, err));
        w->at += sizeof e64;
    }
    put32(e + 12, sdc__zip_u32(e + 12) == MAX32 || size >= MAX32 ? MAX32 : size);
    put32(e + 16, sdc__zip_u32(e + 16) == MAX32 || stated >= MAX32 ? MAX32 : stated);
    uint64_t at = w->at;
    SDC_TRY(copy(w, z->end, z->base + z->length - z->end, err));
    return sdc__file_write(w->to, at, e, sizeof e, err);
}

static int by_header(const void *a, const void *b) {
    const struct sdc_zip_member *const *x = a, *const *y = b;
    return ((*x)->header > (*y)->header) - ((*x)->header < (*y)->header);
}

static enum sdc_status write_all(struct rewrite *w, const struct sdc_zip_member **order,
                                 struct sdc_error *err) {
    const struct sdc_zip *z = w->zip;
    size_t i = 0;
    for (; !w->plans[order[i] - z->members].change; i++) { /* what stays is in the copy */
        struct plan *p = &w->plans[order[i] - z->members];
        *p = (struct plan){.header = order[i]->header,
                           .stored = order[i]->stored,
                           .size = order[i]->size,
                           .crc = order[i]->crc};
    }
    w->at = order[i]->header;
    SDC_TRY(sdc__file_truncate(w->to, w->at, err));
    for (; i < z->n; i++) {
        uint64_t next = i + 1 < z->n ? order[i + 1]->header : z->directory;
        SDC_TRY(write_member(w, order[i], &w->plans[order[i] - z->members], next, err));
    }
    uint64_t directory = w->at;
    for (i = 0; i < z->n; i++)
        SDC_TRY(write_central(w, &z->members[i], &w->plans[i], err));
    return write_end(w, directory, err);
}

enum sdc_status sdc__zip_rewrite(const struct sdc_file *from, const struct sdc_zip *zip,
                                 const struct sdc_zip_change *changes, size_t n,
                                 struct sdc_file *to, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    struct rewrite w = {.from = from, .zip = zip, .to = to};
    const struct sdc_zip_member **order = sdc__alloc(zip->n, sizeof *order);
    w.plans = sdc__calloc(zip->n, sizeof *w.plans);
    w.block = sdc__alloc(BLOCK, 1);
    w.header = sdc__alloc(N_CENTRAL + 3 * (size_t)MAX16 + 64, 1);
    if (!order || !w.plans || !w.block || !w.header) {
        st = SDC_NOMEM(err, from->path);
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        w.plans[changes[i].member].change = &changes[i];
    for (size_t i = 0; i < zip->n; i++)
        order[i] = &zip->members[i];
    qsort(order, zip->n, sizeof *order, by_header);
    st = write_all(&w, order, err);
out:
    sdc__free(order);
    sdc__free(w.plans);
    sdc__free(w.block);
    sdc__free(w.header);
    return st;
}
