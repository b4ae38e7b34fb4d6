/* SPDX-License-Identifier: Apache-2.0
 *
 * Object headers (HDF5 File Format Specification 3.0, IV.A.1): their messages, the blocks that hold
 * them, and the checksums of the blocks. Bounded by the size of the file, whatever it says.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"
#include "io/crc.h"

#define MAX_BLOCKS   4096
#define MAX_MESSAGES 65536
#define MAX_TEXT     ((size_t)16 << 20)

void sdc__h5_header_release(struct sdc_h5_header *h) {
    sdc__free(h->text);
    sdc__free(h->blocks);
    sdc__free(h->messages);
    *h = (struct sdc_h5_header){0};
}

const struct sdc_h5_message *sdc__h5_find(const struct sdc_h5_header *h, unsigned type) {
    for (size_t i = 0; i < h->n_messages; i++)
        if (h->messages[i].type == type)
            return &h->messages[i];
    return NULL;
}

static enum sdc_status damaged(const struct sdc_h5_file *f, uint64_t addr, const char *what,
                               struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, addr, "%s: damaged object header at address %llu: %s",
                      f->path, (unsigned long long)addr, what);
}

/* Makes room for one more; n and cap count elements of this size. */
static bool grow(void **list, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return true;
    const size_t more = *cap ? *cap * 2 : 16;
    void *p = sdc__realloc(*list, more, size);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

/* Reads a block to the end of the text. */
static enum sdc_status add_block(struct sdc_h5_file *f, struct sdc_h5_header *h, uint64_t addr,
                                 uint64_t size, struct sdc_error *err) {
    uint64_t at;
    if (h->n_blocks >= MAX_BLOCKS || size > MAX_TEXT || h->len > MAX_TEXT - size)
        return damaged(f, h->addr, "it is too long", err);
    if (!sdc__h5_position(f, addr, size, &at))
        return damaged(f, h->addr, "a part of it is not inside the file", err);
    if (!grow((void **)&h->blocks, h->n_blocks, &h->cap_blocks, sizeof *h->blocks))
        return SDC_NOMEM(err, f->path);
    if (h->len + size > h->cap) {
        const size_t cap = (h->len + (size_t)size) * 2;
        unsigned char *text = sdc__realloc(h->text, cap, 1);
        if (!text)
            return SDC_NOMEM(err, f->path);
        h->text = text;
        h->cap = cap;
    }
    SDC_TRY(sdc__h5_bytes(f, addr, h->text + h->len, (size_t)size, err));
    h->blocks[h->n_blocks++] = (struct sdc_h5_block){addr, size, h->len};
    h->len += (size_t)size;
    return SDC_OK;
}

static enum sdc_status check_sum(struct sdc_h5_file *f, const struct sdc_h5_header *h,
                                 const struct sdc_h5_block *b, struct sdc_error *err) {
    const unsigned char *p = h->text + b->at;
    const size_t len = (size_t)b->size - 4;
    const uint32_t stored = (uint32_t)p[len] | (uint32_t)p[len + 1] << 8 |
                            (uint32_t)p[len + 2] << 16 | (uint32_t)p[len + 3] << 24;
    const uint32_t computed = sdc__lookup3(p, len, 0);
    if (stored == computed)
        return SDC_OK;
    return SDC_ERR_AT(err, SDC_INVALID, f->start + f->base + b->addr + len,
                      "%s: checksum of the object header at address %llu: stored 0x%08x, computed "
                      "0x%08x",
                      f->path, (unsigned long long)b->addr, stored, computed);
}

static enum sdc_status add_message(struct sdc_h5_file *f, struct sdc_h5_header *h,
                                   const struct sdc_h5_message *m, struct sdc_error *err) {
    if (h->n_messages >= MAX_MESSAGES)
        return damaged(f, h->addr, "too many messages", err);
    if (!grow((void **)&h->messages, h->n_messages, &h->cap_messages, sizeof *h->messages))
        return SDC_NOMEM(err, f->path);
    h->messages[h->n_messages++] = *m;
    if (m->type != SDC_H5_CONTINUATION)
        return SDC_OK;
    if (m->len < (size_t)f->O + f->L)
        return damaged(f, h->addr, "a short continuation", err);
    const unsigned char *p = h->text + m->at;
    const uint64_t addr = sdc__h5_little(p, f->O), size = sdc__h5_little(p + f->O, f->L);
    SDC_TRY(add_block(f, h, addr, size, err));
    const struct sdc_h5_block *b = &h->blocks[h->n_blocks - 1];
    if (h->version == 1)
        return SDC_OK;
    if (size < 8 || memcmp(h->text + b->at, "OCHK", 4) != 0)
        return damaged(f, h->addr, "no signature of a continuation", err);
    return check_sum(f, h, b, err);
}

/* The messages in [at, end) of the text. */
static enum sdc_status parse(struct sdc_h5_file *f, struct sdc_h5_header *h, unsigned block,
                             size_t at, size_t end, bool ordered, struct sdc_error *err) {
    const size_t prefix = h->version == 1 ? 8 : ordered ? 6 : 4;
    while (end - at >= prefix) { /* a gap shorter than that may be left */
        const unsigned char *p = h->text + at;
        struct sdc_h5_message m = {.block = block, .at = at + prefix};
        if (h->version == 1) {
            m.type = (unsigned)p[0] | (unsigned)p[1] << 8;
            m.len = (size_t)p[2] | (size_t)p[3] << 8;
            m.flags = p[4];
        } else {
            m.type = p[0];
            m.len = (size_t)p[1] | (size_t)p[2] << 8;
            m.flags = p[3];
        }
        if (m.len > end - m.at)
            return damaged(f, h->addr, "a message that is longer than the rest", err);
        at = m.at + m.len;
        SDC_TRY(add_message(f, h, &m, err));
    }
    return SDC_OK;
}

/* Version 2: signature, then sizes that depend on flags. *at: where the messages begin. */
static enum sdc_status begin_new(struct sdc_h5_file *f, struct sdc_h5_header *h, size_t *at,
                                 bool *ordered, struct sdc_error *err) {
    unsigned char p[40] = {0}; /* at most 4 + 2 + 16 + 4 + 8 of them are used */
    SDC_TRY(sdc__h5_bytes(f, h->addr, p, 6, err));
    if (p[4] != 2)
        return damaged(f, h->addr, "unknown version", err);
    const unsigned flags = p[5], width = 1u << (flags & 3);
    const size_t before = 6 + (flags & 0x20 ? 16u : 0) + (flags & 0x10 ? 4u : 0);
    SDC_TRY(sdc__h5_bytes(f, h->addr, p, before + width, err));
    uint64_t size = 0;
    for (unsigned i = width; i-- > 0;)
        size = size << 8 | p[before + i];
    *at = before + width;
    *ordered = (flags & 4) != 0;
    if (size > MAX_TEXT)
        return damaged(f, h->addr, "it is too long", err);
    SDC_TRY(add_block(f, h, h->addr, *at + size + 4, err));
    return check_sum(f, h, &h->blocks[0], err);
}

enum sdc_status sdc__h5_header_read(struct sdc_h5_file *f, uint64_t addr, struct sdc_h5_header *h,
                                    struct sdc_error *err) {
    unsigned char p[16];
    size_t at = 0;
    bool ordered = false;
    h->addr = addr;
    h->len = h->n_blocks = h->n_messages = 0;
    SDC_TRY(sdc__h5_bytes(f, addr, p, 12, err));
    if (memcmp(p, "OHDR", 4) == 0) {
        h->version = 2;
        SDC_TRY(begin_new(f, h, &at, &ordered, err));
        SDC_TRY(parse(f, h, 0, at, (size_t)h->blocks[0].size - 4, ordered, err));
    } else if (p[0] == 1) {
        h->version = 1;
        const uint64_t size =
            (uint64_t)p[8] | (uint64_t)p[9] << 8 | (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24;
        SDC_TRY(add_block(f, h, addr, 16 + size, err));
        SDC_TRY(parse(f, h, 0, 16, h->len, false, err));
    } else {
        return damaged(f, addr, "no header is there", err);
    }
    /* parsing a block may add others at the end of the list */
    for (size_t i = 1; i < h->n_blocks; i++) {
        const struct sdc_h5_block b = h->blocks[i];
        const size_t end = b.at + (size_t)b.size;
        SDC_TRY(h->version == 1 ? parse(f, h, (unsigned)i, b.at, end, false, err)
                                : parse(f, h, (unsigned)i, b.at + 4, end - 4, ordered, err));
    }
    return SDC_OK;
}
