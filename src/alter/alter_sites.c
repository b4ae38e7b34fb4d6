/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/alter_sites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

#define BLOCK ((size_t)1 << 20)   /* bytes of one read or write */
#define GAP   4096                /* sites nearer than this are read together */
#define EDGE  ((size_t)64 * 1024) /* bytes of head and tail in an identity */

static unsigned width(const struct sdc_record_change *c) {
    return sdc_dtype_bytes(c->dtype);
}

void sdc__site_text(const struct sdc_record_change *c, char text[SDC_SITE_TEXT]) {
    snprintf(text, SDC_SITE_TEXT, "%s%s", c->tensor, c->index ? c->index : "");
}

enum sdc_status sdc__lock_where_possible(struct sdc_file *f, bool exclusive,
                                         struct sdc_error *err) {
    struct sdc_error local;
    enum sdc_status st = sdc__file_lock(f, exclusive, &local);
    if (st == SDC_UNSUPPORTED)
        return SDC_OK;
    if (st != SDC_OK && err)
        *err = local;
    return st;
}

uint64_t sdc__site_value(const struct sdc_record_change *c, enum sdc_side side) {
    return side == SDC_SIDE_OLD ? c->old_raw : c->new_raw;
}

static int compare_offsets(const void *a, const void *b) {
    const struct sdc_record_change *x = *(const struct sdc_record_change *const *)a,
                                   *y = *(const struct sdc_record_change *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

enum sdc_status sdc__sites_init(struct sdc_sites *s, const struct sdc_record_change *changes,
                                size_t n, uint64_t file_size, struct sdc_error *err) {
    *s = (struct sdc_sites){.by_offset = sdc__alloc(n, sizeof *s->by_offset), .n = n};
    if (!s->by_offset)
        return SDC_NOMEM(err, "the altered sites");
    for (size_t i = 0; i < n; i++)
        s->by_offset[i] = &changes[i];
    qsort(s->by_offset, n, sizeof *s->by_offset, compare_offsets);
    char text[SDC_SITE_TEXT];
    for (size_t i = 0; i < n; i++) {
        const struct sdc_record_change *c = s->by_offset[i];
        if (width(c) > file_size || c->offset > file_size - width(c)) {
            sdc__site_text(c, text);
            sdc__sites_release(s);
            return SDC_ERR_AT(err, SDC_INVALID, c->offset,
                              "%s: its offset %llu is outside the file of %llu bytes", text,
                              (unsigned long long)c->offset, (unsigned long long)file_size);
        }
        if (i > 0 && c->offset - s->by_offset[i - 1]->offset < width(s->by_offset[i - 1])) {
            sdc__site_text(c, text);
            sdc__sites_release(s);
            return SDC_ERR_AT(err, SDC_INVALID, c->offset,
                              "%s: its bytes at %llu are those of another site too", text,
                              (unsigned long long)c->offset);
        }
    }
    return SDC_OK;
}

void sdc__sites_release(struct sdc_sites *s) {
    sdc__free(s->by_offset);
    *s = (struct sdc_sites){0};
}

enum sdc_status sdc__sites_read(const struct sdc_sites *s, const struct sdc_file *f, uint64_t *now,
                                struct sdc_error *err) {
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, "reading the sites");
    enum sdc_status st = SDC_OK;
    for (size_t i = 0, next; st == SDC_OK && i < s->n; i = next) {
        uint64_t from = s->by_offset[i]->offset, end = from + width(s->by_offset[i]);
        for (next = i + 1; next < s->n; next++) {
            const struct sdc_record_change *c = s->by_offset[next];
            if (c->offset - end > GAP || c->offset + width(c) - from > BLOCK)
                break;
            end = c->offset + width(c);
        }
        st = sdc__file_read(f, from, block, (size_t)(end - from), err);
        for (size_t k = i; st == SDC_OK && k < next; k++) {
            const struct sdc_record_change *c = s->by_offset[k];
            now[k] = sdc_num_load(c->dtype, block + (c->offset - from), c->big_endian);
        }
    }
    sdc__free(block);
    return st;
}

enum sdc_status sdc__sites_write(const struct sdc_sites *s, struct sdc_file *f, enum sdc_side side,
                                 const uint64_t *now, struct sdc_error *err) {
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, "writing the sites");
    enum sdc_status st = SDC_OK;
    size_t len = 0; /* bytes waiting in block, to go to `from` */
    uint64_t from = 0;
    for (size_t i = 0; st == SDC_OK && i < s->n; i++) {
        const struct sdc_record_change *c = s->by_offset[i];
        uint64_t value = sdc__site_value(c, side);
        if (now[i] == value)
            continue;
        if (len > 0 && (c->offset != from + len || len + width(c) > BLOCK)) {
            st = sdc__file_write(f, from, block, len, err);
            len = 0;
        }
        if (len == 0)
            from = c->offset;
        sdc_num_store(c->dtype, value, block + len, c->big_endian);
        len += width(c);
    }
    if (st == SDC_OK && len > 0)
        st = sdc__file_write(f, from, block, len, err);
    sdc__free(block);
    return st;
}

/* Puts the old bytes of the sites from *next on into block, which holds the file's bytes from
 * `from` to from + len; *next moves to the first site that ends after them. */
static void put_old(const struct sdc_sites *s, size_t *next, unsigned char *block, uint64_t from,
                    size_t len) {
    for (size_t i = *next; i < s->n && s->by_offset[i]->offset < from + len; i++) {
        const struct sdc_record_change *c = s->by_offset[i];
        unsigned char bytes[8];
        sdc_num_store(c->dtype, c->old_raw, bytes, c->big_endian);
        for (unsigned k = 0; k < width(c); k++)
            if (c->offset + k >= from && c->offset + k - from < len)
                block[c->offset + k - from] = bytes[k];
        if (c->offset + width(c) <= from + len)
            *next = i + 1;
    }
}

static enum sdc_status edge_hash(const struct sdc_sites *s, const struct sdc_file *f, uint64_t from,
                                 size_t len, unsigned char *block, uint64_t *hash,
                                 struct sdc_error *err) {
    size_t next = 0;
    SDC_TRY(sdc__file_read(f, from, block, len, err));
    put_old(s, &next, block, from, len);
    *hash = sdc__xxh3_64(block, len);
    return SDC_OK;
}

static enum sdc_status whole_digest(const struct sdc_sites *s, const struct sdc_file *f,
                                    unsigned char *block, unsigned char digest[16],
                                    struct sdc_error *err) {
    struct sdc_hasher *h = sdc__hasher_new();
    if (!h)
        return SDC_NOMEM(err, "the file's digest");
    enum sdc_status st = SDC_OK;
    size_t next = 0;
    for (uint64_t at = 0; st == SDC_OK && at < f->size;) {
        size_t len = f->size - at < BLOCK ? (size_t)(f->size - at) : BLOCK;
        st = sdc__file_read(f, at, block, len, err);
        if (st == SDC_OK) {
            put_old(s, &next, block, at, len);
            sdc__hasher_update(h, block, len);
        }
        at += len;
    }
    struct sdc_digest d = sdc__hasher_finish(h);
    memcpy(digest, d.bytes, sizeof d.bytes);
    return st;
}

enum sdc_status sdc__sites_identity(const struct sdc_sites *s, const struct sdc_file *f, bool whole,
                                    struct sdc_file_identity *identity, struct sdc_error *err) {
    struct sdc_file_identity id = {.size = f->size, .has_whole = whole};
    size_t edge = f->size < EDGE ? (size_t)f->size : EDGE;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, "the file's identity");
    enum sdc_status st = edge_hash(s, f, 0, edge, block, &id.head, err);
    if (st == SDC_OK)
        st = edge_hash(s, f, f->size - edge, edge, block, &id.tail, err);
    if (st == SDC_OK && whole)
        st = whole_digest(s, f, block, id.whole, err);
    sdc__free(block);
    if (st == SDC_OK)
        *identity = id;
    return st;
}
