/* SPDX-License-Identifier: Apache-2.0
 *
 * The superblock, read by ourselves (HDF5 File Format Specification 3.0, II.A): only to tell what
 * is wrong with a file that libhdf5 would refuse without saying why, or crash on.
 */
#include "ckpt/fmt/hdf5.h"

#include <string.h>

static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

bool sdc__h5_signature(const struct sdc_file *file, uint64_t *base) {
    unsigned char head[8];
    for (uint64_t at = 0; sdc__range_inside(at, sizeof head, file->size); at = at ? at * 2 : 512) {
        if (sdc__file_read(file, at, head, sizeof head, NULL) != SDC_OK)
            return false;
        if (memcmp(head, signature, sizeof head) == 0) {
            *base = at;
            return true;
        }
    }
    return false;
}

static uint64_t little(const unsigned char *p, unsigned n) {
    uint64_t v = 0;
    for (unsigned i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

enum sdc_status sdc__h5_superblock(const struct sdc_file *file, uint64_t *base,
                                   struct sdc_error *err) {
    unsigned char b[96] = {0};
    if (!sdc__h5_signature(file, base))
        return SDC_ERR(err, SDC_INVALID, "%s: no HDF5 signature", file->path);
    uint64_t left = file->size - *base;
    size_t n = left < sizeof b ? (size_t)left : sizeof b;
    SDC_TRY(sdc__file_read(file, *base, b, n, err));
    if (n < 48)
        return SDC_ERR_AT(err, SDC_INVALID, file->size,
                          "%s: truncated: the HDF5 superblock ends after %zu bytes", file->path, n);
    unsigned version = b[8];
    if (version > 3)
        return SDC_ERR_AT(err, SDC_UNSUPPORTED, *base + 8,
                          "%s: HDF5 superblock version %u, known are 0 to 3", file->path, version);
    unsigned offsets = version < 2 ? b[13] : b[9];
    if (offsets != 2 && offsets != 4 && offsets != 8)
        return SDC_ERR_AT(err, SDC_INVALID, *base + 9,
                          "%s: damaged HDF5 superblock: addresses of %u bytes", file->path,
                          offsets);
    if (version == 3 && (b[11] & 5))
        return SDC_ERR_AT(err, SDC_INVALID, *base + 11,
                          "%s: marked as open for writing (superblock flags 0x%02x): its writer "
                          "is still running or died; if it died, h5clear -s removes the mark",
                          file->path, b[11]);
    /* base address, then (v0, v1: free-space address; v2, v3: extension address), then the end */
    size_t first = version == 0 ? 24 : version == 1 ? 28 : 12;
    if (n < first + 3 * offsets)
        return SDC_ERR_AT(err, SDC_INVALID, file->size,
                          "%s: truncated: the HDF5 superblock ends after %zu bytes", file->path, n);
    uint64_t stored_base = little(b + first, offsets);
    uint64_t end = little(b + first + 2 * offsets, offsets);
    /* a file with something put in front keeps its old numbers, which libhdf5 allows for */
    if (stored_base == *base && end > file->size && end != UINT64_MAX >> (64 - 8 * offsets))
        return SDC_ERR_AT(err, SDC_INVALID, file->size,
                          "%s: truncated: the file says %llu bytes, found %llu", file->path,
                          (unsigned long long)end, (unsigned long long)file->size);
    return SDC_OK;
}
