/* SPDX-License-Identifier: Apache-2.0 */
#include "data/idx.h"

#include "base/alloc.h"
#include "io/io.h"

/* Inflated; the largest file of the family, EMNIST's by-class images, has 547 MB. */
#define MAX_IDX ((size_t)1 << 30)

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

enum sdc_status sdc__idx_load(const char *dir, const char *name, struct sdc_buf *text, char **path,
                              struct sdc_error *err) {
    *path = sdc__asprintf("%s/%s.gz", dir, name);
    if (!*path)
        return SDC_NOMEM(err, name);
    enum sdc_status st = sdc__read_gz(*path, MAX_IDX, text, err);
    if (st != SDC_NOT_FOUND)
        return st;
    sdc__free(*path);
    *path = sdc__asprintf("%s/%s", dir, name);
    if (!*path)
        return SDC_NOMEM(err, name);
    st = sdc__read_gz(*path, MAX_IDX, text, err);
    if (st == SDC_NOT_FOUND)
        return SDC_ERR(err, st, "%s: no such file, and none with .gz", *path);
    return st;
}

enum sdc_status sdc__idx_parse(const struct sdc_buf *text, const char *path, unsigned rank,
                               struct sdc_idx *idx, struct sdc_error *err) {
    const uint8_t *p = (const uint8_t *)text->data;
    size_t header = 4 + 4 * (size_t)rank;
    if (text->len < header)
        return SDC_ERR_AT(err, SDC_INVALID, text->len,
                          "%s: truncated: %zu bytes, an IDX header of %u dimensions has %zu", path,
                          text->len, rank, header);
    uint32_t magic = big_endian(p), want = 0x800 | rank;
    if (magic != want)
        return SDC_ERR_AT(err, SDC_INVALID, 0,
                          "%s: magic number 0x%08x, expected 0x%08x (IDX, unsigned bytes, %u %s)",
                          path, (unsigned)magic, (unsigned)want, rank,
                          rank == 1 ? "dimension" : "dimensions");
    uint64_t n = 1;
    for (unsigned d = 0; d < rank; d++) {
        idx->size[d] = big_endian(p + 4 + 4 * (size_t)d);
        if (__builtin_mul_overflow(n, (uint64_t)idx->size[d], &n))
            n = UINT64_MAX; /* more than any file: the comparison below says so */
    }
    uint64_t have = text->len - header;
    if (have != n)
        return SDC_ERR_AT(err, SDC_INVALID, header + (have < n ? have : n),
                          "%s: %s: %llu bytes of elements, its sizes ask for %llu", path,
                          have < n ? "truncated" : "bytes after the end", (unsigned long long)have,
                          (unsigned long long)n);
    idx->bytes = p + header;
    return SDC_OK;
}
