/* SPDX-License-Identifier: Apache-2.0
 *
 * The superblock (HDF5 File Format Specification 3.0, II.A), and reading at addresses.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"
#include "io/crc.h"

#define WINDOW     ((size_t)8 * 1024)
#define OPEN_FLAGS 5u /* opened for writing, SWMR writer */

static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

uint64_t sdc__h5_little(const unsigned char *p, unsigned n) {
    uint64_t v = 0;
    bool ones = true;
    for (unsigned i = n; i-- > 0;) {
        v = v << 8 | p[i];
        ones = ones && p[i] == 0xff;
    }
    return ones ? SDC_H5_UNDEFINED : v;
}

bool sdc__h5_signature(const struct sdc_file *file, uint64_t start, uint64_t size, uint64_t *base) {
    unsigned char head[8];
    for (uint64_t at = 0; sdc__range_inside(at, sizeof head, size); at = at ? at * 2 : 512) {
        if (sdc__file_read(file, start + at, head, sizeof head, NULL) != SDC_OK)
            return false;
        if (memcmp(head, signature, sizeof head) == 0) {
            *base = at;
            return true;
        }
    }
    return false;
}

/* ---- bytes at addresses ---- */

bool sdc__h5_position(const struct sdc_h5_file *f, uint64_t addr, uint64_t len, uint64_t *at) {
    if (addr == SDC_H5_UNDEFINED || !sdc__range_inside(addr, len, f->size - f->base))
        return false;
    *at = f->start + f->base + addr;
    return true;
}

enum sdc_status sdc__h5_bytes(struct sdc_h5_file *f, uint64_t addr, void *out, size_t len,
                              struct sdc_error *err) {
    uint64_t at;
    if (!sdc__h5_position(f, addr, len, &at))
        return SDC_ERR_AT(err, SDC_INVALID, addr,
                          "%s: %zu bytes of metadata at address %llu are not inside the file",
                          f->path, len, (unsigned long long)addr);
    if (len > f->budget)
        return SDC_ERR_AT(err, SDC_INVALID, addr, "%s: its metadata overlap without end", f->path);
    f->budget -= len;
    if (len > WINDOW)
        return sdc__file_read(f->file, at, out, len, err);
    if (!f->window) {
        f->window = sdc__alloc(WINDOW, 1);
        if (!f->window)
            return SDC_NOMEM(err, f->path);
    }
    if (at < f->window_at || at - f->window_at > f->n_window ||
        len > f->n_window - (at - f->window_at)) {
        /* addresses mostly ascend, so read on from here */
        const uint64_t left = f->start + f->size - at;
        f->n_window = 0;
        const size_t n = left < WINDOW ? (size_t)left : WINDOW;
        SDC_TRY(sdc__file_read(f->file, at, f->window, n, err));
        f->window_at = at;
        f->n_window = n;
    }
    memcpy(out, f->window + (at - f->window_at), len);
    return SDC_OK;
}

void sdc__h5_file_release(struct sdc_h5_file *f) {
    sdc__free(f->window);
    f->window = NULL;
    f->n_window = 0;
}

/* ---- the superblock ---- */

static enum sdc_status ends_early(const struct sdc_h5_file *f, size_t n, struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, f->start + f->size,
                      "%s: truncated: the HDF5 superblock ends after %zu bytes", f->path, n);
}

/* Versions 2 and 3: a checksum and, in 3, flags. */
static enum sdc_status check_new(struct sdc_h5_file *f, const unsigned char *b, size_t n,
                                 bool allow_unclean, struct sdc_error *err) {
    const size_t len = 12 + 4 * (size_t)f->O;
    if (n < len + 4)
        return ends_early(f, n, err);
    f->extension = sdc__h5_little(b + 12 + f->O, f->O);
    const bool marked = f->version == 3 && (b[11] & OPEN_FLAGS);
    if (marked && !allow_unclean)
        return SDC_ERR_AT(err, SDC_INVALID, f->start + f->base + 11,
                          "%s: marked as open for writing (superblock flags 0x%02x): its writer is "
                          "still running or died; if it died, h5clear -s removes the mark",
                          f->path, b[11]);
    const uint32_t stored = (uint32_t)b[len] | (uint32_t)b[len + 1] << 8 |
                            (uint32_t)b[len + 2] << 16 | (uint32_t)b[len + 3] << 24;
    const uint32_t computed = sdc__lookup3(b, len, 0);
    if (marked) {
        f->unclean = true;
        memcpy(f->clean, b, len);
        f->clean[11] = (unsigned char)(b[11] & ~OPEN_FLAGS);
        const uint32_t sum = sdc__lookup3(f->clean, len, 0);
        for (unsigned i = 0; i < 4; i++)
            f->clean[len + i] = (unsigned char)(sum >> 8 * i & 0xff);
        if (stored == sum) /* only the mark was made */
            return SDC_OK;
    }
    if (stored != computed)
        return SDC_ERR_AT(err, SDC_INVALID, f->start + f->base + len,
                          "%s: checksum of the HDF5 superblock: stored 0x%08x, computed 0x%08x",
                          f->path, stored, computed);
    return SDC_OK;
}

enum sdc_status sdc__h5_superblock(struct sdc_h5_file *f, bool allow_unclean,
                                   struct sdc_error *err) {
    unsigned char b[96] = {0};
    if (!sdc__h5_signature(f->file, f->start, f->size, &f->base))
        return SDC_ERR(err, SDC_INVALID, "%s: no HDF5 signature", f->path);
    const uint64_t left = f->size - f->base;
    const size_t n = left < sizeof b ? (size_t)left : sizeof b;
    SDC_TRY(sdc__file_read(f->file, f->start + f->base, b, n, err));
    if (n < 48)
        return ends_early(f, n, err);
    f->version = b[8];
    if (f->version > 3)
        return SDC_ERR_AT(err, SDC_UNSUPPORTED, f->start + f->base + 8,
                          "%s: HDF5 superblock version %u, known are 0 to 3", f->path, f->version);
    f->O = f->version < 2 ? b[13] : b[9];
    f->L = f->version < 2 ? b[14] : b[10];
    if ((f->O != 2 && f->O != 4 && f->O != 8) || (f->L != 2 && f->L != 4 && f->L != 8))
        return SDC_ERR_AT(err, SDC_INVALID, f->start + f->base + 9,
                          "%s: damaged HDF5 superblock: addresses of %u bytes, lengths of %u",
                          f->path, f->O, f->L);
    /* base address, then (v0, v1: free-space address; v2, v3: extension address), then the end */
    const size_t first = f->version == 0 ? 24 : f->version == 1 ? 28 : 12;
    if (n < first + 4 * (size_t)f->O)
        return ends_early(f, n, err);
    f->extension = SDC_H5_UNDEFINED;
    if (f->version >= 2)
        SDC_TRY(check_new(f, b, n, allow_unclean, err));
    else if (sdc__h5_little(b + first + 3 * f->O, f->O) != SDC_H5_UNDEFINED)
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: one of several files of an HDF5 driver (family, multi), which are not "
                       "read",
                       f->path);
    const uint64_t stored_base = sdc__h5_little(b + first, f->O);
    const uint64_t end = sdc__h5_little(b + first + 2 * f->O, f->O);
    f->budget = f->size > UINT64_MAX / 8 ? UINT64_MAX : f->size * 4 + (UINT64_C(64) << 20);
    /* a file with something put in front keeps its old numbers, which libhdf5 allows for */
    if (stored_base != f->base || end == SDC_H5_UNDEFINED)
        return SDC_OK;
    f->end = end;
    if (end > f->size)
        return SDC_ERR_AT(err, SDC_INVALID, f->start + f->size,
                          "%s: truncated: the file says %llu bytes, found %llu", f->path,
                          (unsigned long long)end, (unsigned long long)f->size);
    return SDC_OK;
}
