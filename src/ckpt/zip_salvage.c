/* SPDX-License-Identifier: Apache-2.0
 *
 * A walk over local headers, for archives whose directory was never written or is cut off.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/zip.h"
#include "io/crc.h"

#define SIG_LOCAL 0x04034b50u
#define SIG_DESC  0x08074b50u
#define N_LOCAL   30u
#define N_DESC    24u /* the widest */
#define BLOCK     ((size_t)64 * 1024)

struct walk {
    const struct sdc_file *file;
    struct sdc_zip *zip;
    uint64_t end, budget;
    struct sdc_buf names; /* one after the other, each with its NUL */
    size_t cap;
    unsigned char *block; /* BLOCK + N_DESC, and room for the longest local header */
};

static bool inside(uint64_t offset, uint64_t len, uint64_t total) {
    return len <= total && offset <= total - len;
}

/* Are these n bytes a descriptor that says `stored`? Sets the member's sizes and CRC. */
static bool is_descriptor(const unsigned char *p, size_t n, uint64_t stored,
                          struct sdc_zip_member *m) {
    if (n < 16 || sdc__zip_u32(p) != SIG_DESC)
        return false;
    m->crc = sdc__zip_u32(p + 4);
    if (n >= N_DESC && sdc__zip_u64(p + 8) == stored) {
        m->size = sdc__zip_u64(p + 16);
        m->descriptor_len = 24;
    } else if (sdc__zip_u32(p + 8) == stored) {
        m->size = sdc__zip_u32(p + 12);
        m->descriptor_len = 16;
    } else {
        return false;
    }
    return m->method != SDC_ZIP_STORED || m->size == stored;
}

/* Looks for the descriptor of a member from its data on. */
static enum sdc_status search(struct walk *w, struct sdc_zip_member *m, struct sdc_error *err) {
    uint32_t crc = 0;
    for (uint64_t at = m->data; at < w->end && w->budget > 0;) {
        uint64_t left = w->end - at;
        size_t n = left < BLOCK + N_DESC ? (size_t)left : BLOCK + N_DESC, done = 0;
        size_t step = n < BLOCK ? n : BLOCK;
        SDC_TRY(sdc__file_read(w->file, at, w->block, n, err));
        for (size_t i = 0; i < step; i++) {
            const unsigned char *p = memchr(w->block + i, 'P', step - i);
            if (!p)
                break;
            i = (size_t)(p - w->block);
            if (!is_descriptor(p, n - i, at + i - m->data, m))
                continue;
            crc = sdc__crc32(crc, w->block + done, i - done);
            done = i;
            /* a writer that computes no CRCs stores 0; that of deflated data is not known here */
            if (m->method == SDC_ZIP_STORED && m->crc != crc && m->crc != 0)
                continue;
            m->stored = at + i - m->data;
            m->crc_places[m->n_crc_places++] = at + i + 4;
            m->whole = true;
            return SDC_OK;
        }
        crc = sdc__crc32(crc, w->block + done, step - done);
        at += step;
        w->budget -= step < w->budget ? step : w->budget;
    }
    m->descriptor_len = 0;
    return SDC_OK;
}

/* Sizes from the local header, which a writer that was stopped may have left at 0. */
static void take_sizes(const struct walk *w, const unsigned char *p, struct sdc_zip_member *m) {
    size_t n;
    const unsigned char *wide =
        sdc__zip_extra(p + N_LOCAL + m->name_len, sdc__zip_u16(p + 28), 1, &n);
    m->stored = sdc__zip_u32(p + 18);
    m->size = sdc__zip_u32(p + 22);
    if (wide && n >= 16 && m->stored == UINT32_MAX && m->size == UINT32_MAX) {
        m->size = sdc__zip_u64(wide);
        m->stored = sdc__zip_u64(wide + 8);
    }
    m->crc_places[m->n_crc_places++] = m->header + 14;
    m->whole =
        inside(m->data, m->stored, w->end) && (m->method != SDC_ZIP_STORED || m->size == m->stored);
}

static enum sdc_status add(struct walk *w, const struct sdc_zip_member *m, const char *name,
                           struct sdc_error *err) {
    struct sdc_zip *z = w->zip;
    if (z->n == SDC_MAX_ZIP_MEMBERS)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %d zip members", w->file->path,
                       SDC_MAX_ZIP_MEMBERS);
    if (z->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 16;
        struct sdc_zip_member *more = sdc__realloc(z->members, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, w->file->path);
        z->members = more;
        w->cap = cap;
    }
    z->members[z->n++] = *m;
    for (size_t i = 0; i < m->name_len; i++) /* a NUL would end it early */
        sdc__buf_putc(&w->names, name[i] ? name[i] : '?');
    sdc__buf_append(&w->names, "", 1);
    return w->names.failed ? SDC_NOMEM(err, w->file->path) : SDC_OK;
}

/* *next: where the next header must be; 0: no member there. */
static enum sdc_status step(struct walk *w, uint64_t at, uint64_t *next, struct sdc_error *err) {
    unsigned char *p = w->block;
    char name[UINT16_MAX];
    *next = 0;
    if (!inside(at, N_LOCAL, w->end))
        return SDC_OK;
    SDC_TRY(sdc__file_read(w->file, at, p, N_LOCAL, err));
    if (sdc__zip_u32(p) != SIG_LOCAL)
        return SDC_OK;
    struct sdc_zip_member m = {.header = at,
                               .flags = sdc__zip_u16(p + 6),
                               .method = sdc__zip_u16(p + 8),
                               .name_len = sdc__zip_u16(p + 26),
                               .crc = sdc__zip_u32(p + 14)};
    size_t len = N_LOCAL + m.name_len + (size_t)sdc__zip_u16(p + 28);
    if (!inside(at, len, w->end))
        return SDC_OK;
    SDC_TRY(sdc__file_read(w->file, at, p, len, err));
    memcpy(name, p + N_LOCAL, m.name_len);
    m.data = at + len;
    take_sizes(w, p, &m);
    if (m.flags & SDC_ZIP_FLAG_DESCRIPTOR && m.stored == 0) {
        m.whole = false;
        m.n_crc_places = 0;
        SDC_TRY(search(w, &m, err));
    }
    uint64_t after = m.data + m.stored + m.descriptor_len;
    unsigned char sig[4];
    if (m.whole && inside(after, sizeof sig, w->end)) { /* else it would be an accident */
        SDC_TRY(sdc__file_read(w->file, after, sig, sizeof sig, err));
        m.whole = sig[0] == 'P' && sig[1] == 'K';
    }
    if (m.whole)
        *next = after;
    return add(w, &m, name, err);
}

enum sdc_status sdc__zip_salvage(const struct sdc_file *file, uint64_t base, uint64_t length,
                                 uint64_t budget, struct sdc_zip *zip, struct sdc_error *err) {
    *zip = (struct sdc_zip){.base = base, .length = length};
    struct walk w = {.file = file, .zip = zip, .end = base + length, .budget = budget};
    enum sdc_status st = SDC_OK;
    if (!inside(base, length, file->size))
        return SDC_ERR_AT(err, SDC_INVALID, base, "%s: a zip archive that is not inside the file",
                          file->path);
    w.block = sdc__alloc(N_LOCAL + 2 * (size_t)UINT16_MAX + BLOCK, 1);
    if (!w.block)
        return SDC_NOMEM(err, file->path);
    uint64_t at = base, next;
    for (; st == SDC_OK; at = next) {
        st = step(&w, at, &next, err);
        if (st != SDC_OK || next == 0)
            break;
    }
    sdc__free(w.block);
    zip->directory = at;
    zip->texts = st == SDC_OK && zip->n ? sdc__buf_take(&w.names) : NULL;
    sdc__buf_release(&w.names);
    if (st != SDC_OK) {
        sdc__zip_release(zip);
        return st;
    }
    const char *name = zip->texts;
    for (size_t i = 0; i < zip->n; i++) {
        zip->members[i].name = name;
        name += zip->members[i].name_len + 1u;
    }
    return SDC_OK;
}
