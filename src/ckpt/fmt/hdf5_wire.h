/* SPDX-License-Identifier: Apache-2.0
 *
 * What sdclab and its helper program sdclab-hdf5 say to each other over a socket pair.
 *
 * A frame is a u32 length of what follows, a kind byte and a body; all numbers are little-endian.
 * The helper speaks first (HELLO), then answers each request with frames that end in one of the
 * kinds named below, or in FAIL. A length before text or bytes is u16 or u32 as said. Addresses of
 * objects are those libhdf5 uses (relative to the superblock); positions are bytes in the range
 * that OPEN gave. The parent trusts nothing that the helper says.
 */
#ifndef SDC_CKPT_FMT_HDF5_WIRE_H
#define SDC_CKPT_FMT_HDF5_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"

#define SDC_WIRE_VERSION 1
#define SDC_WIRE_MAGIC   "sdclab-hdf5"
#define SDC_WIRE_FILE    3                  /* the descriptor of the file, in the helper */
#define SDC_WIRE_REQUEST ((size_t)3 << 29)  /* bytes of the longest request */
#define SDC_WIRE_REPLY   ((size_t)16 << 20) /* bytes of the longest reply */
#define SDC_WIRE_BATCH   4096               /* addresses or chunks in one request */
#define SDC_WIRE_NOWHERE UINT64_MAX         /* position of what is not stored */

enum sdc_wire_kind {
    /* requests */
    SDC_WIRE_OPEN = 1,    /* u8 writable, u64 offset, u64 size, u64 overlay position, u16 length,
                             bytes to be seen there instead -> OPENED: u64 root group */
    SDC_WIRE_LINKS,       /* u32 n, n u64 groups -> GROUP, LINK, NAMES ..., DONE */
    SDC_WIRE_COUNT,       /* u32 n, n u64 datasets -> COUNTS: n (u64 chunks, u64 stored bytes) */
    SDC_WIRE_TEXTS,       /* u32 n, n u64 objects -> TEXT_LIST: n (u16 length, text) of the
                             attribute "dtype" */
    SDC_WIRE_CHUNKS,      /* u64 dataset, u8 rank, u32 n, n * rank u64 first elements -> CHUNK_LIST:
                             n (u64 position, u64 size, u32 filter mask) */
    SDC_WIRE_READ,        /* u64 dataset, u8 rank, rank (u64 start, u64 count), u64 bytes -> DATA */
    SDC_WIRE_WRITE_CHUNK, /* u64 dataset, u8 rank, rank u64 first element, u32 filter mask, bytes ->
                             DONE */
    SDC_WIRE_FINISH,      /* writes and closes the file -> DONE */
    SDC_WIRE_CREATE,      /* u32 n, n (u16 length, name, u16 length, type ("F32"),
                             u8 rank, rank u64) -> EXTENT ...,
                             PLACES: u64 size, n u64 position */
    /* replies */
    SDC_WIRE_HELLO = 100, /* magic, u16 version of this protocol, 3 u32 version of libhdf5 built
                             with, 3 u32 running */
    SDC_WIRE_FAIL,        /* u8 reason, text */
    SDC_WIRE_DONE,
    SDC_WIRE_OPENED,
    SDC_WIRE_GROUP, /* u64 address: what follows is in this one */
    SDC_WIRE_LINK,  /* u8 type, u64 address (hard), u16 length, name, u16 length, target */
    SDC_WIRE_NAMES, /* u8 list, u32 n, n (u16 length, text): an attribute of the group */
    SDC_WIRE_COUNTS,
    SDC_WIRE_TEXT_LIST,
    SDC_WIRE_CHUNK_LIST,
    SDC_WIRE_DATA,
    SDC_WIRE_EXTENT, /* u64 position, bytes */
    SDC_WIRE_PLACES
};

enum sdc_wire_link { SDC_LINK_HARD, SDC_LINK_SOFT, SDC_LINK_EXTERNAL, SDC_LINK_OTHER };
enum sdc_wire_names { SDC_NAMES_LAYERS, SDC_NAMES_WEIGHTS };
enum sdc_wire_fail { SDC_FAIL_INVALID, SDC_FAIL_NO_MEMORY, SDC_FAIL_REQUEST };

/* ---- putting a body together ---- */

static inline void sdc__wire_put(struct sdc_buf *b, uint64_t v, unsigned bytes) {
    unsigned char p[8];
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> 8 * i & 0xff);
    sdc__buf_append(b, p, bytes);
}

static inline void sdc__wire_put_text(struct sdc_buf *b, const char *text, size_t len) {
    sdc__wire_put(b, len, 2);
    sdc__buf_append(b, text, len);
}

/* ---- taking one apart: a read past the end gives zeros and sets bad ---- */

struct sdc_wire {
    const unsigned char *data;
    size_t len, at;
    bool bad;
};

static inline const unsigned char *sdc__wire_bytes(struct sdc_wire *w, size_t n) {
    if (w->bad || n > w->len - w->at) {
        w->bad = true;
        return NULL;
    }
    w->at += n;
    return w->data + w->at - n;
}

static inline uint64_t sdc__wire_get(struct sdc_wire *w, unsigned bytes) {
    const unsigned char *p = sdc__wire_bytes(w, bytes);
    uint64_t v = 0;
    for (unsigned i = bytes; p && i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* Not NUL-terminated. */
static inline const char *sdc__wire_text(struct sdc_wire *w, size_t *len) {
    *len = (size_t)sdc__wire_get(w, 2);
    const char *text = (const char *)sdc__wire_bytes(w, *len);
    if (!text)
        *len = 0;
    return text;
}

static inline bool sdc__wire_ends(const struct sdc_wire *w) {
    return !w->bad && w->at == w->len;
}

#endif
