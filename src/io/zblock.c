/* SPDX-License-Identifier: Apache-2.0 */
#include "io/zblock.h"

#include <limits.h>
#include <zlib.h>

#include "base/alloc.h"

/* zlib counts in unsigned ints. */
static unsigned step(size_t n) {
    return n < UINT_MAX / 2 ? (unsigned)n : UINT_MAX / 2;
}

static void *from_us(void *unused, unsigned n, unsigned size) {
    (void)unused;
    return sdc__alloc(n, size);
}

static void to_us(void *unused, void *block) {
    (void)unused;
    sdc__free(block);
}

enum sdc_status sdc__zblock_unpack(const void *data, size_t n, void *out, size_t size, size_t *len,
                                   const char *what, struct sdc_error *err) {
    z_stream z = {.zalloc = from_us, .zfree = to_us};
    const unsigned char *from = data;
    unsigned char *to = out, none;
    size_t left = n, room = size;
    int rc = inflateInit(&z);
    if (rc != Z_OK)
        return SDC_NOMEM(err, what);
    do {
        const unsigned in = step(left), space = step(room);
        z.next_in = (unsigned char *)(uintptr_t)(from + (n - left));
        z.avail_in = in;
        z.next_out = room ? to + (size - room) : &none; /* a full block may still have its end */
        z.avail_out = space;
        rc = inflate(&z, Z_NO_FLUSH);
        left -= in - z.avail_in;
        room -= space - z.avail_out;
        if (rc == Z_OK && in == z.avail_in && space == z.avail_out)
            rc = Z_BUF_ERROR;
    } while (rc == Z_OK);
    (void)inflateEnd(&z);
    *len = size - room;
    if (rc == Z_STREAM_END)
        return SDC_OK;
    if (rc == Z_MEM_ERROR)
        return SDC_NOMEM(err, what);
    if (rc == Z_BUF_ERROR && room == 0 && left > 0)
        return SDC_ERR(err, SDC_INVALID, "%s: unpacks to more than %zu bytes", what, size);
    return SDC_ERR(err, SDC_INVALID, "%s: %s", what,
                   rc == Z_BUF_ERROR ? "its compressed bytes are cut short"
                                     : "damaged compression");
}

enum sdc_status sdc__zblock_pack(const void *data, size_t n, int level, void **out, size_t *len,
                                 const char *what, struct sdc_error *err) {
    const uLong bound = compressBound(n);
    uLongf got = bound;
    unsigned char *block = sdc__alloc(bound, 1);
    if (!block)
        return SDC_NOMEM(err, what);
    /* its working memory is zlib's own: released before it returns */
    if (compress2(block, &got, data, n, level) != Z_OK) {
        sdc__free(block);
        return SDC_NOMEM(err, what);
    }
    *out = block;
    *len = got;
    return SDC_OK;
}
