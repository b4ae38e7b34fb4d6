/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"

#define SIG_LOCAL   0x04034b50u
#define SIG_CENTRAL 0x02014b50u
#define SIG_DESC    0x08074b50u
#define SIG_END     0x06054b50u
#define SIG_END64   0x06064b50u
#define SIG_LOC64   0x07064b50u

#define N_LOCAL   30u
#define N_CENTRAL 46u
#define N_END     22u
#define N_END64   56u
#define N_LOC64   20u
#define MAX_TAIL  (N_END + 65535u + N_LOC64)

#define MAX16 0xffffu
#define MAX32 0xffffffffu

#define LONG_TAIL      4096                  /* zero bytes at the end that are worth a word */
#define SALVAGE_BUDGET (UINT64_C(256) << 20) /* bytes searched for the sake of an error message */

uint16_t sdc__zip_u16(const unsigned char *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

uint32_t sdc__zip_u32(const unsigned char *p) {
    return sdc__zip_u16(p) | (uint32_t)sdc__zip_u16(p + 2) << 16;
}

uint64_t sdc__zip_u64(const unsigned char *p) {
    return sdc__zip_u32(p) | (uint64_t)sdc__zip_u32(p + 4) << 32;
}

static bool inside(uint64_t offset, uint64_t len, uint64_t total) {
    return len <= total && offset <= total - len;
}

const unsigned char *sdc__zip_extra(const unsigned char *extra, size_t len, unsigned id,
                                    size_t *n) {
    while (len >= 4) {
        size_t body = sdc__zip_u16(extra + 2);
        if (body > len - 4)
            return NULL;
        if (sdc__zip_u16(extra) == id) {
            *n = body;
            return extra + 4;
        }
        extra += 4 + body;
        len -= 4 + body;
    }
    return NULL;
}

/* ---- the end of the archive ---- */

/* What the end records say, offsets from base. */
struct ending {
    uint64_t n, size, offset;
    uint64_t at;    /* where the directory must end: of the first end record */
    uint64_t end;   /* of the last one */
    uint64_t after; /* the archive's end */
    bool zip64;
};

/* The last record whose comment fits, those whose comment reaches the end exactly first: a comment
 * may contain the signature. -1: none. */
static long find_end(const unsigned char *tail, size_t n) {
    long loose = -1;
    for (long i = (long)n - (long)N_END; i >= 0; i--) {
        if (tail[i] != 'P' || sdc__zip_u32(tail + i) != SIG_END)
            continue;
        size_t rest = n - (size_t)i - N_END, comment = sdc__zip_u16(tail + i + 20);
        if (comment == rest)
            return i;
        if (comment < rest && loose < 0)
            loose = i;
    }
    return loose;
}

static enum sdc_status find_end64(const struct sdc_file *f, uint64_t base, const unsigned char *loc,
                                  uint64_t loc_at, struct ending *e, struct sdc_error *err) {
    unsigned char raw[N_END64];
    const uint64_t said = sdc__zip_u64(loc + 8);
    if (sdc__zip_u32(loc + 16) > 1)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: a zip archive of several disks", f->path);
    /* a prefix in front of the archive makes the stated place wrong: then the record is the one
     * that ends where the locator begins */
    const uint64_t tries[] = {said, loc_at >= N_END64 ? loc_at - N_END64 : UINT64_MAX};
    for (unsigned i = 0; i < 2; i++) {
        if (!inside(tries[i], N_END64, loc_at))
            continue;
        SDC_TRY(sdc__file_read(f, base + tries[i], raw, sizeof raw, err));
        if (sdc__zip_u32(raw) != SIG_END64)
            continue;
        if (sdc__zip_u32(raw + 16) != 0 || sdc__zip_u32(raw + 20) != 0)
            return SDC_ERR(err, SDC_UNSUPPORTED, "%s: a zip archive of several disks", f->path);
        e->n = sdc__zip_u64(raw + 32);
        e->size = sdc__zip_u64(raw + 40);
        e->offset = sdc__zip_u64(raw + 48);
        e->at = tries[i];
        e->zip64 = true;
        return SDC_OK;
    }
    return SDC_ERR_AT(err, SDC_INVALID, base + loc_at,
                      "%s: its zip64 end record is not at %llu, where its locator says", f->path,
                      (unsigned long long)(base + said));
}

/* *found false: there is no end record. */
static enum sdc_status read_ending(const struct sdc_file *f, uint64_t base, uint64_t length,
                                   struct ending *e, bool *found, struct sdc_error *err) {
    const size_t n = length < MAX_TAIL ? (size_t)length : MAX_TAIL;
    enum sdc_status st = SDC_OK;
    unsigned char *tail = sdc__alloc(n, 1);
    *found = false;
    if (!tail)
        return SDC_NOMEM(err, f->path);
    SDC_TRY_OUT(st, sdc__file_read(f, base + (length - n), tail, n, err));
    long i = find_end(tail, n);
    if (i < 0)
        goto out;
    *found = true;
    const unsigned char *p = tail + i;
    *e = (struct ending){.n = sdc__zip_u16(p + 10),
                         .size = sdc__zip_u32(p + 12),
                         .offset = sdc__zip_u32(p + 16),
                         .at = length - n + (uint64_t)i,
                         .end = length - n + (uint64_t)i};
    e->after = e->at + N_END + sdc__zip_u16(p + 20);
    if (i >= (long)N_LOC64 && sdc__zip_u32(p - N_LOC64) == SIG_LOC64) {
        st = find_end64(f, base, p - N_LOC64, e->at - N_LOC64, e, err);
    } else if (sdc__zip_u16(p + 4) != 0 || sdc__zip_u16(p + 6) != 0 ||
               sdc__zip_u16(p + 8) != e->n) {
        st = SDC_ERR(err, SDC_UNSUPPORTED, "%s: a zip archive of several disks", f->path);
    }
out:
    sdc__free(tail);
    return st;
}

/* ---- the central directory ---- */

static enum sdc_status bad(const struct sdc_file *f, uint64_t at, const char *name,
                           const char *what, struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, at, "%s: zip member %s: %s (at %llu)", f->path, name, what,
                      (unsigned long long)at);
}

/* The 64-bit values of an entry, for those of its fields that are saturated, in this order. */
static bool widen(const unsigned char *extra, size_t n_extra, uint64_t *const fields[3]) {
    size_t n = 0;
    const unsigned char *body = sdc__zip_extra(extra, n_extra, 1, &n);
    if (!body)
        return true;
    for (unsigned i = 0; i < 3; i++) {
        if (*fields[i] != MAX32)
            continue;
        if (n < 8)
            return false;
        *fields[i] = sdc__zip_u64(body);
        body += 8;
        n -= 8;
    }
    return true;
}

/* One header; *used: its length. texts: the directory, at: the header's offset in it. */
static enum sdc_status read_central(const struct sdc_file *f, struct sdc_zip *z, uint64_t at,
                                    struct sdc_zip_member *m, uint64_t *used,
                                    struct sdc_error *err) {
    const unsigned char *p = (const unsigned char *)z->texts + at;
    const uint64_t left = z->directory_len - at, where = z->directory + at;
    if (left < N_CENTRAL || sdc__zip_u32(p) != SIG_CENTRAL)
        return SDC_ERR_AT(err, SDC_INVALID, where,
                          "%s: zip member %zu: no header of the central directory at %llu", f->path,
                          z->n, (unsigned long long)where);
    const size_t n_name = sdc__zip_u16(p + 28), n_extra = sdc__zip_u16(p + 30),
                 n_comment = sdc__zip_u16(p + 32);
    if (!inside(N_CENTRAL, n_name + n_extra + n_comment, left))
        return SDC_ERR_AT(err, SDC_INVALID, where,
                          "%s: zip member %zu: its header at %llu reaches past the directory",
                          f->path, z->n, (unsigned long long)where);
    *used = N_CENTRAL + n_name + n_extra + n_comment;
    *m = (struct sdc_zip_member){.name = z->texts + at + N_CENTRAL, /* ended below */
                                 .name_len = (uint16_t)n_name,
                                 .flags = sdc__zip_u16(p + 8),
                                 .method = sdc__zip_u16(p + 10),
                                 .crc = sdc__zip_u32(p + 16),
                                 .stored = sdc__zip_u32(p + 20),
                                 .size = sdc__zip_u32(p + 24),
                                 .header = sdc__zip_u32(p + 42),
                                 .central = where,
                                 .central_len = (uint32_t)*used,
                                 .whole = true};
    uint64_t *const fields[] = {&m->size, &m->stored, &m->header};
    if (!widen(p + N_CENTRAL + n_name, n_extra, fields))
        return SDC_ERR_AT(err, SDC_INVALID, where,
                          "%s: zip member %.*s: its zip64 field is too short", f->path, (int)n_name,
                          m->name);
    if (memchr(m->name, 0, n_name))
        return SDC_ERR_AT(err, SDC_INVALID, where, "%s: zip member %zu: a NUL in its name", f->path,
                          z->n);
    if (sdc__zip_u16(p + 34) != 0 && sdc__zip_u16(p + 34) != MAX16)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: a zip archive of several disks", f->path);
    return SDC_OK;
}

/* Where the directory is: right before the end records, whatever a prefix does to the stated
 * offset; where something lies between, at the stated offset. */
static enum sdc_status place_directory(const struct sdc_file *f, struct sdc_zip *z,
                                       const struct ending *e, struct sdc_error *err) {
    unsigned char sig[4] = {0};
    if (e->size > e->at)
        return SDC_ERR_AT(
            err, SDC_INVALID, z->base + e->at,
            "%s: truncated or damaged: a zip directory of %llu bytes in front of %llu", f->path,
            (unsigned long long)e->size, (unsigned long long)(z->base + e->at));
    uint64_t real = e->at - e->size;
    if (e->size >= sizeof sig) {
        SDC_TRY(sdc__file_read(f, z->base + real, sig, sizeof sig, err));
        if (sdc__zip_u32(sig) != SIG_CENTRAL && inside(e->offset, e->size, e->at))
            real = e->offset;
    }
    if (e->offset > real)
        return SDC_ERR_AT(err, SDC_INVALID, z->base + real,
                          "%s: truncated or damaged: the zip directory is at %llu, its end record "
                          "says %llu",
                          f->path, (unsigned long long)real, (unsigned long long)e->offset);
    z->prefix = real - e->offset;
    z->directory = z->base + real;
    z->directory_len = e->size;
    z->zip64 = e->zip64;
    z->end = z->base + e->end;
    z->end64 = e->zip64 ? z->base + e->at : 0;
    z->trailing = z->length - e->after;
    return SDC_OK;
}

static enum sdc_status read_directory(const struct sdc_file *f, struct sdc_zip *z,
                                      const struct ending *e, struct sdc_error *err) {
    SDC_TRY(place_directory(f, z, e, err));
    if (e->size > SDC_MAX_ZIP_DIRECTORY || e->n > SDC_MAX_ZIP_MEMBERS)
        return SDC_ERR(err, SDC_LIMIT, "%s: a zip directory of %llu members and %llu bytes",
                       f->path, (unsigned long long)e->n, (unsigned long long)e->size);
    if (e->n > e->size / N_CENTRAL)
        return SDC_ERR_AT(err, SDC_INVALID, z->directory,
                          "%s: %llu zip members do not fit into a directory of %llu bytes", f->path,
                          (unsigned long long)e->n, (unsigned long long)e->size);
    z->texts = sdc__alloc((size_t)e->size + 1, 1);
    z->members = sdc__alloc((size_t)e->n, sizeof *z->members);
    if (!z->texts || !z->members)
        return SDC_NOMEM(err, f->path);
    SDC_TRY(sdc__file_read(f, z->directory, z->texts, (size_t)e->size, err));
    uint64_t at = 0, used = 0;
    for (; z->n < e->n; z->n++, at += used)
        SDC_TRY(read_central(f, z, at, &z->members[z->n], &used, err));
    if (at != e->size)
        return SDC_ERR_AT(err, SDC_INVALID, z->directory + at,
                          "%s: the zip directory has %llu bytes after its last member", f->path,
                          (unsigned long long)(e->size - at));
    /* the byte behind each name has been read by now, and is no part of another name */
    for (size_t i = 0; i < z->n; i++)
        z->texts[(size_t)(z->members[i].name - z->texts) + z->members[i].name_len] = '\0';
    return SDC_OK;
}

/* ---- local headers ---- */

/* A few KiB of the file around the last place that was looked at: small members lie close together,
 * large ones cost one read each. */
struct window {
    const struct sdc_file *file;
    uint64_t at, end; /* held bytes */
    uint64_t limit;   /* of the archive's data */
    unsigned char *data;
};

#define WINDOW ((size_t)N_LOCAL + 2 * 65535 + 4096)

static enum sdc_status peek(struct window *w, uint64_t at, size_t len, const unsigned char **p,
                            struct sdc_error *err) {
    if (at < w->at || at > w->end || len > w->end - at) {
        uint64_t n = w->limit - at; /* len bytes are there: the caller checked */
        uint64_t want = len > 4096 ? len : 4096;
        n = n < want ? n : want;
        w->at = w->end = at;
        SDC_TRY(sdc__file_read(w->file, at, w->data, (size_t)n, err));
        w->end = at + n;
    }
    *p = w->data + (at - w->at);
    return SDC_OK;
}

/* The descriptor behind the data: with or without signature, with sizes of 8 or 4 bytes. The
 * standard's width follows from a zip64 field in the local header; writers deviate, so what counts
 * is that the sizes agree with the directory. The CRC may be stale, so it does not count. */
static enum sdc_status find_descriptor(struct window *w, struct sdc_zip_member *m, bool wide,
                                       struct sdc_error *err) {
    const uint64_t at = m->data + m->stored, room = w->limit - at;
    const unsigned char *p;
    SDC_TRY(peek(w, at, room < 24 ? (size_t)room : 24, &p, err));
    for (unsigned i = 0; i < 4; i++) {
        const unsigned lead = i < 2 ? 4 : 0, width = wide == (i % 2 == 0) ? 8 : 4;
        const unsigned len = lead + 4 + 2 * width;
        if (room < len || (lead && sdc__zip_u32(p) != SIG_DESC))
            continue;
        const unsigned char *s = p + lead + 4;
        uint64_t stored = width == 8 ? sdc__zip_u64(s) : sdc__zip_u32(s);
        uint64_t size = width == 8 ? sdc__zip_u64(s + 8) : sdc__zip_u32(s + 4);
        if (stored != m->stored || size != m->size)
            continue;
        m->descriptor_len = len;
        m->crc_places[m->n_crc_places++] = at + lead;
        return SDC_OK;
    }
    return SDC_OK; /* readers that use the directory do not miss it */
}

static enum sdc_status read_local(struct window *w, const struct sdc_zip *z,
                                  struct sdc_zip_member *m, struct sdc_error *err) {
    const struct sdc_file *f = w->file;
    const unsigned char *p;
    const uint64_t room = z->directory - z->base - z->prefix; /* for members, counted from prefix */
    if (m->flags & 0x2041)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: zip member %s: encrypted", f->path, m->name);
    if (!inside(m->header, N_LOCAL, room))
        return SDC_ERR_AT(err, SDC_INVALID, m->central,
                          "%s: zip member %s: truncated, or out of bounds: its header at %llu is "
                          "not in front of the directory at %llu",
                          f->path, m->name, (unsigned long long)m->header,
                          (unsigned long long)z->directory);
    m->header += z->base + z->prefix;
    SDC_TRY(peek(w, m->header, N_LOCAL, &p, err));
    if (sdc__zip_u32(p) != SIG_LOCAL)
        return bad(f, m->header, m->name, "no local header", err);
    const size_t n_name = sdc__zip_u16(p + 26), n_extra = sdc__zip_u16(p + 28);
    if (!inside(m->header + N_LOCAL, n_name + n_extra, w->limit))
        return bad(f, m->header, m->name, "its local header reaches past the data", err);
    SDC_TRY(peek(w, m->header, N_LOCAL + n_name + n_extra, &p, err));
    if (n_name != m->name_len || memcmp(p + N_LOCAL, m->name, n_name) != 0)
        return bad(f, m->header, m->name, "another name in its local header", err);
    m->data = m->header + N_LOCAL + n_name + n_extra;
    if (!inside(m->data, m->stored, w->limit))
        return SDC_ERR_AT(
            err, SDC_INVALID, m->data,
            "%s: zip member %s: truncated, or out of bounds: %llu bytes from %llu on, "
            "the directory is at %llu",
            f->path, m->name, (unsigned long long)m->stored, (unsigned long long)m->data,
            (unsigned long long)z->directory);
    if (m->method == SDC_ZIP_STORED && m->stored != m->size)
        return bad(f, m->central, m->name, "stored, but its two sizes differ", err);
    size_t n64;
    bool wide = sdc__zip_extra(p + N_LOCAL + n_name, n_extra, 1, &n64) != NULL;
    if (!(m->flags & SDC_ZIP_FLAG_DESCRIPTOR))
        m->crc_places[m->n_crc_places++] = m->header + 14;
    else
        SDC_TRY(find_descriptor(w, m, wide, err));
    m->crc_places[m->n_crc_places++] = m->central + 16;
    return SDC_OK;
}

static int by_header(const void *a, const void *b) {
    const struct sdc_zip_member *const *x = a, *const *y = b;
    return ((*x)->header > (*y)->header) - ((*x)->header < (*y)->header);
}

/* Changing one member must not change another. */
static enum sdc_status check_overlap(const struct sdc_file *f, const struct sdc_zip *z,
                                     struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    const struct sdc_zip_member **order = sdc__alloc(z->n, sizeof *order);
    bool sorted = true;
    if (!order)
        return SDC_NOMEM(err, f->path);
    for (size_t i = 0; i < z->n; i++) {
        order[i] = &z->members[i];
        sorted = sorted && (i == 0 || order[i - 1]->header < order[i]->header);
    }
    if (!sorted)
        qsort(order, z->n, sizeof *order, by_header);
    for (size_t i = 1; st == SDC_OK && i < z->n; i++) {
        const struct sdc_zip_member *a = order[i - 1];
        if (a->data + a->stored + a->descriptor_len > order[i]->header)
            st = SDC_ERR_AT(err, SDC_INVALID, order[i]->header,
                            "%s: zip members %s and %s overlap at %llu", f->path, a->name,
                            order[i]->name, (unsigned long long)order[i]->header);
    }
    sdc__free(order);
    return st;
}

/* ---- names ---- */

static int by_member_name(const void *a, const void *b, void *members) {
    const struct sdc_zip_member *m = members;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = strcmp(m[x].name, m[y].name);
    return c ? c : (x > y) - (x < y);
}

static enum sdc_status index_names(const struct sdc_file *f, struct sdc_zip *z,
                                   struct sdc_error *err) {
    z->by_name = sdc__alloc(z->n, sizeof *z->by_name);
    if (!z->by_name)
        return SDC_NOMEM(err, f->path);
    for (size_t i = 0; i < z->n; i++)
        z->by_name[i] = (uint32_t)i;
    if (z->n > 1)
        qsort_r(z->by_name, z->n, sizeof *z->by_name, by_member_name, z->members);
    for (size_t i = 1; i < z->n; i++) {
        struct sdc_zip_member *a = &z->members[z->by_name[i - 1]];
        if (strcmp(a->name, z->members[z->by_name[i]].name) == 0) {
            a->shadowed = true;
            z->n_shadowed++;
        }
    }
    return SDC_OK;
}

const struct sdc_zip_member *sdc__zip_find(const struct sdc_zip *zip, const char *name) {
    size_t lo = 0, hi = zip->n; /* the first that is greater */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(zip->members[zip->by_name[mid]].name, name) <= 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return NULL;
    const struct sdc_zip_member *m = &zip->members[zip->by_name[lo - 1]];
    return strcmp(m->name, name) == 0 ? m : NULL;
}

/* ---- opening ---- */

static enum sdc_status without_directory(const struct sdc_file *f, uint64_t base, uint64_t length,
                                         struct sdc_error *err) {
    struct sdc_zip z;
    struct sdc_buf names = SDC_BUF_INIT;
    size_t whole = 0;
    const char *cut = NULL;
    uint64_t zeros = 0;
    char tail[64] = "";
    if (sdc__zip_salvage(f, base, length, SALVAGE_BUDGET, &z, NULL) != SDC_OK)
        z = (struct sdc_zip)SDC_ZIP_INIT;
    for (size_t i = 0; i < z.n; i++) {
        if (!z.members[i].whole) {
            cut = z.members[i].name;
            continue;
        }
        if (whole < 8)
            sdc__buf_printf(&names, "%s%s", whole ? ", " : "", z.members[i].name);
        whole++;
    }
    if (whole > 8)
        sdc__buf_puts(&names, ", ...");
    /* space that was taken before a download or copy, which then ended early */
    if (sdc__file_zero_tail(f, SALVAGE_BUDGET, &zeros, NULL) == SDC_OK && zeros >= LONG_TAIL)
        (void)snprintf(tail, sizeof tail, "the file's last %llu bytes are zero; ",
                       (unsigned long long)zeros);
    enum sdc_status st =
        SDC_ERR_AT(err, SDC_INVALID, base + length,
                   "%s: truncated: the directory at the end of the zip archive is missing; %s%zu "
                   "members are whole%s%s%s%s",
                   f->path, tail, whole, whole && names.data ? ": " : "",
                   whole && names.data ? names.data : "", cut ? "; the first that is not: " : "",
                   cut ? cut : "");
    sdc__buf_release(&names);
    sdc__zip_release(&z);
    return st;
}

static enum sdc_status open_parts(const struct sdc_file *f, struct sdc_zip *z,
                                  struct sdc_error *err) {
    struct ending e;
    bool found;
    SDC_TRY(read_ending(f, z->base, z->length, &e, &found, err));
    if (!found)
        return without_directory(f, z->base, z->length, err);
    SDC_TRY(read_directory(f, z, &e, err));
    struct window w = {.file = f, .limit = z->directory};
    w.data = sdc__alloc(WINDOW, 1);
    if (!w.data)
        return SDC_NOMEM(err, f->path);
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < z->n; i++)
        st = read_local(&w, z, &z->members[i], err);
    sdc__free(w.data);
    SDC_TRY(st);
    SDC_TRY(check_overlap(f, z, err));
    return index_names(f, z, err);
}

enum sdc_status sdc__zip_open(const struct sdc_file *file, uint64_t base, uint64_t length,
                              struct sdc_zip *zip, struct sdc_error *err) {
    *zip = (struct sdc_zip){.base = base, .length = length};
    if (!inside(base, length, file->size))
        return SDC_ERR_AT(err, SDC_INVALID, base,
                          "%s: a zip archive of %llu bytes at %llu is not inside the file",
                          file->path, (unsigned long long)length, (unsigned long long)base);
    enum sdc_status st = open_parts(file, zip, err);
    if (st != SDC_OK)
        sdc__zip_release(zip);
    return st;
}

void sdc__zip_release(struct sdc_zip *zip) {
    sdc__free(zip->members);
    sdc__free(zip->by_name);
    sdc__free(zip->texts);
    *zip = (struct sdc_zip)SDC_ZIP_INIT;
}

enum sdc_status sdc__zip_check_inflated(const struct sdc_zip_member *m, uint64_t limit,
                                        const char *path, struct sdc_error *err) {
    const uint64_t size = m->size, stored = m->stored;
    if (m->method == SDC_ZIP_STORED)
        return SDC_OK;
    if (size > UINT64_C(4) << 30 && size / 1000 > stored)
        return SDC_ERR(
            err, SDC_LIMIT,
            "%s: zip member %s: says that its %llu bytes inflate to %llu, more than 1000 "
            "times as many",
            path, m->name, (unsigned long long)stored, (unsigned long long)size);
    if (limit && size > limit)
        return SDC_ERR(err, SDC_LIMIT,
                       "%s: zip member %s: inflates to %llu bytes, the limit is "
                       "%llu",
                       path, m->name, (unsigned long long)size, (unsigned long long)limit);
    /* a match of 258 bytes takes 2 bits at least */
    if (m->method == SDC_ZIP_DEFLATED && size / 1032 > stored)
        return SDC_ERR(err, SDC_INVALID, "%s: zip member %s: its %llu bytes cannot inflate to %llu",
                       path, m->name, (unsigned long long)stored, (unsigned long long)size);
    return SDC_OK;
}

/* ---- sniffing ---- */

static bool ends_with(const char *name, size_t len, const char *end) {
    size_t n = strlen(end);
    return len >= n && memcmp(name + len - n, end, n) == 0;
}

static enum sdc_zip_kind kind_of_names(const struct sdc_zip *z) {
    bool npy = z->n == 0, config = false, weights = false;
    for (size_t i = 0; i < z->n; i++) {
        const struct sdc_zip_member *m = &z->members[i];
        if (ends_with(m->name, m->name_len, "/data.pkl"))
            return SDC_ZIP_TORCH;
        npy = npy || ends_with(m->name, m->name_len, ".npy");
        config = config || strcmp(m->name, "config.json") == 0;
        weights = weights || strcmp(m->name, "model.weights.h5") == 0 ||
                  strcmp(m->name, "model.weights.npz") == 0;
    }
    return config && weights ? SDC_ZIP_KERAS : npy ? SDC_ZIP_NPZ : SDC_ZIP_OTHER;
}

/* By the beginning of the first name: torch writes NAME/data.pkl or another NAME/... first. */
static enum sdc_zip_kind kind_of_head(const unsigned char *head, size_t n_head) {
    if (n_head < N_LOCAL || sdc__zip_u32(head) != SIG_LOCAL)
        return SDC_ZIP_NONE;
    const char *name = (const char *)head + N_LOCAL;
    size_t len = sdc__zip_u16(head + 26);
    bool seen = len <= n_head - N_LOCAL; /* the whole name */
    len = seen ? len : n_head - N_LOCAL;
    if (seen && ends_with(name, len, ".npy"))
        return SDC_ZIP_NPZ;
    if (seen && (ends_with(name, len, "metadata.json") || ends_with(name, len, "config.json")))
        return SDC_ZIP_KERAS;
    return memchr(name, '/', len) ? SDC_ZIP_TORCH : SDC_ZIP_OTHER;
}

enum sdc_zip_kind sdc__zip_kind(const struct sdc_file *file, const unsigned char *head,
                                size_t n_head) {
    struct sdc_zip z = {.length = file->size};
    struct ending e;
    bool found = false;
    if (n_head < 4 || (sdc__zip_u32(head) != SIG_LOCAL && sdc__zip_u32(head) != SIG_END &&
                       sdc__zip_u32(head) != SIG_END64))
        return SDC_ZIP_NONE;
    enum sdc_zip_kind kind = kind_of_head(head, n_head);
    if (read_ending(file, 0, file->size, &e, &found, NULL) == SDC_OK && found &&
        read_directory(file, &z, &e, NULL) == SDC_OK)
        kind = kind_of_names(&z);
    sdc__zip_release(&z);
    return kind == SDC_ZIP_NONE ? SDC_ZIP_OTHER : kind;
}
