/* SPDX-License-Identifier: Apache-2.0
 *
 * The filters that we undo and redo ourselves: deflate, lzf (the LibLZF streams of h5py), shuffle,
 * Fletcher-32. Every length is checked: libhdf5 1.10 reads behind damaged chunks.
 */
#include <liblzf/lzf.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"
#include "io/crc.h"
#include "io/zblock.h"

#define OPTIONAL  1u   /* flag: may be left out for a chunk */
#define MAX_RATIO 1100 /* deflate reaches 1032, lzf 88 */

static const struct {
    unsigned id;
    const char *name;
    enum sdc_h5_coding coding;
} known[] = {{SDC_H5_DEFLATE, "gzip", SDC_H5_DECODED},
             {SDC_H5_SHUFFLE, "shuffle", SDC_H5_DECODED},
             {SDC_H5_FLETCHER32, "fletcher32", SDC_H5_DECODED},
             {SDC_H5_LZF, "lzf", SDC_H5_DECODED},
             {SDC_H5_SZIP, "szip", SDC_H5_ASKED},
             {SDC_H5_NBIT, "nbit", SDC_H5_ASKED},
             {SDC_H5_SCALEOFFSET, "scaleoffset", SDC_H5_ASKED},
             {32001, "blosc", SDC_H5_UNKNOWN},
             {32004, "lz4", SDC_H5_UNKNOWN},
             {32008, "bitshuffle", SDC_H5_UNKNOWN},
             {32013, "zfp", SDC_H5_UNKNOWN},
             {32015, "zstd", SDC_H5_UNKNOWN},
             {32026, "blosc2", SDC_H5_UNKNOWN}};

#define N_KNOWN (sizeof known / sizeof *known)

const char *sdc__h5_filter_name(const struct sdc_h5_filter *f, char *text, size_t size) {
    for (size_t i = 0; i < N_KNOWN; i++)
        if (known[i].id == f->id && known[i].coding != SDC_H5_UNKNOWN)
            return known[i].name;
    const char *name = f->name;
    for (size_t i = 0; i < N_KNOWN; i++)
        if (known[i].id == f->id)
            name = known[i].name;
    if (*name)
        (void)snprintf(text, size, "%s (id %u)", name, f->id);
    else
        (void)snprintf(text, size, "id %u", f->id);
    return text;
}

enum sdc_h5_coding sdc__h5_coding(const struct sdc_h5_set *set) {
    enum sdc_h5_coding worst = SDC_H5_RAW;
    if (set->n_filters == 1 && set->filters[0].id == SDC_H5_FLETCHER32)
        return SDC_H5_FLETCHER;
    for (unsigned i = 0; i < set->n_filters; i++) {
        enum sdc_h5_coding c = SDC_H5_UNKNOWN;
        for (size_t k = 0; k < N_KNOWN; k++)
            if (known[k].id == set->filters[i].id)
                c = known[k].coding;
        if (c > worst)
            worst = c;
    }
    return worst;
}

/* Byte j of element e is stored at j * n + e; bytes of no whole element stay at the end. */
static void shuffle(const unsigned char *in, unsigned char *out, size_t len, size_t width,
                    bool undo) {
    const size_t n = len / width;
    for (size_t j = 0; j < width; j++)
        for (size_t e = 0; e < n; e++) {
            if (undo)
                out[e * width + j] = in[j * n + e];
            else
                out[j * n + e] = in[e * width + j];
        }
    memcpy(out + n * width, in + n * width, len - n * width);
}

static size_t shuffle_width(const struct sdc_h5_set *set, const struct sdc_h5_filter *f) {
    return f->n_values > 0 && f->values[0] > 0 ? f->values[0] : (size_t)set->fields.size;
}

static enum sdc_status no_memory(const char *what, struct sdc_error *err) {
    return SDC_NOMEM(err, what);
}

struct block {
    unsigned char *bytes; /* owned */
    size_t n;
};

/* Replaces the block by a new one of this many bytes, not yet filled; *old must be freed. */
static bool renew(struct block *b, size_t n, unsigned char **old) {
    unsigned char *fresh = sdc__alloc(n, 1);
    *old = b->bytes;
    if (!fresh)
        return false;
    b->bytes = fresh;
    b->n = n;
    return true;
}

static enum sdc_status check_fletcher(struct block *b, const char *what, struct sdc_error *err) {
    if (b->n < 4)
        return SDC_ERR(err, SDC_INVALID, "%s: truncated: no room for its checksum", what);
    b->n -= 4;
    const unsigned char *p = b->bytes + b->n;
    const uint32_t stored =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    const uint32_t sum = sdc__fletcher32(b->bytes, b->n);
    if (stored == sum || stored == sdc__fletcher32_swapped(sum))
        return SDC_OK;
    return SDC_ERR(err, SDC_INVALID, "%s: Fletcher-32 checksum: stored 0x%08x, computed 0x%08x",
                   what, stored, sum);
}

static enum sdc_status undo(const struct sdc_h5_set *set, const struct sdc_h5_filter *f,
                            struct block *b, size_t chunk_bytes, const char *what,
                            struct sdc_error *err) {
    unsigned char *old = NULL;
    enum sdc_status st = SDC_OK;
    const size_t n = b->n;
    if (f->id == SDC_H5_FLETCHER32)
        return check_fletcher(b, what, err);
    if (f->id == SDC_H5_SHUFFLE) {
        const size_t width = shuffle_width(set, f);
        if (width == 0 || !renew(b, n, &old))
            return no_memory(what, err);
        shuffle(old, b->bytes, n, width, true);
    } else { /* a compressor: what it gives is at most the chunk and sums of filters before it */
        const size_t room = chunk_bytes + 4 * (size_t)set->n_filters;
        size_t got = 0;
        if (room / MAX_RATIO > n)
            return SDC_ERR(err, SDC_INVALID, "%s: %zu bytes cannot be the compressed form of %zu",
                           what, n, room);
        if (!renew(b, room, &old))
            return no_memory(what, err);
        if (f->id == SDC_H5_DEFLATE) {
            st = sdc__zblock_unpack(old, n, b->bytes, room, &got, what, err);
        } else if (n <= UINT_MAX && room <= UINT_MAX) {
            got = lzf_decompress(old, (unsigned)n, b->bytes, (unsigned)room);
            if (got == 0)
                st = SDC_ERR(err, SDC_INVALID, "%s: damaged lzf compression", what);
        } else {
            st = SDC_ERR(err, SDC_LIMIT, "%s: a chunk over 4 GiB", what);
        }
        b->n = got;
    }
    sdc__free(old);
    return st;
}

enum sdc_status sdc__h5_decode(const struct sdc_h5_set *set, uint32_t mask, unsigned char *in,
                               size_t n, size_t chunk_bytes, unsigned char **out, const char *what,
                               struct sdc_error *err) {
    struct block b = {in, n};
    enum sdc_status st = SDC_OK;
    for (unsigned i = set->n_filters; st == SDC_OK && i-- > 0;)
        if (!(mask >> i & 1))
            st = undo(set, &set->filters[i], &b, chunk_bytes, what, err);
    if (st == SDC_OK && b.n != chunk_bytes)
        st = SDC_ERR(err, SDC_INVALID, "%s: truncated: it unpacks to %zu bytes, not %zu", what, b.n,
                     chunk_bytes);
    if (st == SDC_OK)
        *out = b.bytes;
    else
        sdc__free(b.bytes);
    return st;
}

/* left_out: the filter made the chunk no smaller, and may be left out. */
static enum sdc_status apply(const struct sdc_h5_set *set, const struct sdc_h5_filter *f,
                             struct block *b, bool *left_out, const char *what,
                             struct sdc_error *err) {
    unsigned char *old = NULL;
    const size_t n = b->n;
    if (f->id == SDC_H5_FLETCHER32) {
        const uint32_t sum = sdc__fletcher32(b->bytes, n);
        if (!renew(b, n + 4, &old))
            return no_memory(what, err);
        memcpy(b->bytes, old, n);
        for (unsigned i = 0; i < 4; i++)
            b->bytes[n + i] = (unsigned char)(sum >> 8 * i & 0xff);
    } else if (f->id == SDC_H5_SHUFFLE) {
        const size_t width = shuffle_width(set, f);
        if (width == 0 || !renew(b, n, &old))
            return no_memory(what, err);
        shuffle(old, b->bytes, n, width, false);
    } else if (f->id == SDC_H5_DEFLATE) {
        void *packed;
        size_t len;
        const int level = f->n_values > 0 && f->values[0] <= 9 ? (int)f->values[0] : 6;
        SDC_TRY(sdc__zblock_pack(b->bytes, n, level, &packed, &len, what, err));
        old = b->bytes;
        b->bytes = packed;
        b->n = len;
    } else { /* h5py's filter gives up where nothing is gained */
        if (n > UINT_MAX || !renew(b, n, &old))
            return no_memory(what, err);
        b->n = lzf_compress(old, (unsigned)n, b->bytes, (unsigned)n);
        if (b->n == 0) {
            sdc__free(b->bytes);
            *b = (struct block){old, n};
            *left_out = true;
            return f->flags & OPTIONAL
                       ? SDC_OK
                       : SDC_ERR(err, SDC_UNSUPPORTED, "%s: lzf makes it no smaller", what);
        }
    }
    sdc__free(old);
    return SDC_OK;
}

enum sdc_status sdc__h5_encode(const struct sdc_h5_set *set, uint32_t *mask, unsigned char *in,
                               size_t n, unsigned char **out, size_t *n_out, const char *what,
                               struct sdc_error *err) {
    struct block b = {in, n};
    enum sdc_status st = SDC_OK;
    for (unsigned i = 0; st == SDC_OK && i < set->n_filters; i++) {
        bool left_out = false;
        if (*mask >> i & 1)
            continue;
        st = apply(set, &set->filters[i], &b, &left_out, what, err);
        if (left_out)
            *mask |= UINT32_C(1) << i;
    }
    if (st == SDC_OK) {
        *out = b.bytes;
        *n_out = b.n;
    } else {
        sdc__free(b.bytes);
    }
    return st;
}
