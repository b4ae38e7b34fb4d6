/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt/hdf5_helper/helper.h"

#include <errno.h>
#include <unistd.h>

struct helper_range helper_range;

static struct opened {
    H5FD_t pub; /* first: libhdf5's own fields */
    haddr_t eoa;
    haddr_t eof;
} the_file;

static H5FD_t *range_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr) {
    (void)name, (void)flags, (void)fapl, (void)maxaddr;
    memset(&the_file, 0, sizeof the_file);
    the_file.eof = helper_range.size;
    return &the_file.pub;
}

static herr_t range_close(H5FD_t *f) {
    (void)f;
    return 0;
}

static int range_cmp(const H5FD_t *a, const H5FD_t *b) {
    return (a > b) - (a < b);
}

static herr_t range_query(const H5FD_t *f, unsigned long *flags) {
    (void)f;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t range_get_eoa(const H5FD_t *f, H5FD_mem_t type) {
    (void)f, (void)type;
    return the_file.eoa;
}

static herr_t range_set_eoa(H5FD_t *f, H5FD_mem_t type, haddr_t eoa) {
    (void)f, (void)type;
    the_file.eoa = eoa;
    return 0;
}

static haddr_t range_get_eof(const H5FD_t *f, H5FD_mem_t type) {
    (void)f, (void)type;
    return the_file.eof;
}

static void lay_over(uint64_t at, unsigned char *bytes, size_t len) {
    const struct helper_range *r = &helper_range;
    for (size_t i = 0; i < r->overlay_len; i++)
        if (r->overlay_at + i >= at && r->overlay_at + i - at < len)
            bytes[r->overlay_at + i - at] = r->overlay[i];
}

static herr_t range_read(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t len,
                         void *data) {
    (void)f, (void)dxpl;
    struct helper_range *r = &helper_range;
    if (r->watched && type == H5FD_MEM_DRAW) {
        r->seen++;
        r->seen_at = at;
        r->seen_size = len;
        return 0;
    }
    unsigned char *p = data;
    uint64_t done = 0;
    while (done < len) {
        uint64_t from = at + done, want = len - done;
        ssize_t n = 0;
        if (from < the_file.eof) {
            if (want > the_file.eof - from)
                want = the_file.eof - from;
            n = pread(r->fd, p + done, (size_t)want, (off_t)(r->offset + from));
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return -1;
        }
        if (n == 0) { /* behind the end: zeros, as other drivers give */
            memset(p + done, 0, len - done);
            break;
        }
        done += (uint64_t)n;
    }
    if (r->overlay_len)
        lay_over(at, p, len);
    return 0;
}

static herr_t range_write(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t len,
                          const void *data) {
    (void)f, (void)type, (void)dxpl;
    const struct helper_range *r = &helper_range;
    const char *p = data;
    if (!r->writable)
        return -1;
    if (at + len > the_file.eof)
        the_file.eof = at + len;
    while (len > 0) {
        ssize_t n = pwrite(r->fd, p, len, (off_t)(r->offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) /* a full disk: libhdf5 cannot end such a file, so this process ends */
            _exit(errno == ENOSPC || errno == EDQUOT ? 72 : 71);
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static herr_t range_truncate(H5FD_t *f, hid_t dxpl, hbool_t closing) {
    (void)f, (void)dxpl, (void)closing;
    const struct helper_range *r = &helper_range;
    if (!r->writable || the_file.eoa == the_file.eof)
        return 0;
    if (ftruncate(r->fd, (off_t)(r->offset + the_file.eoa)) != 0)
        return -1;
    the_file.eof = the_file.eoa;
    return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 2)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)511,
#endif
    .name = "sdclab-range",
    .maxaddr = ((haddr_t)1 << 62) - 1,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = range_open,
    .close = range_close,
    .cmp = range_cmp,
    .query = range_query,
    .get_eoa = range_get_eoa,
    .set_eoa = range_set_eoa,
    .get_eof = range_get_eof,
    .read = range_read,
    .write = range_write,
    .truncate = range_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t helper_range_fapl(void) {
    hid_t id = H5FDregister(&driver), fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (id < 0 || fapl < 0 || H5Pset_driver(fapl, id, NULL) < 0 ||
        H5Pset_fclose_degree(fapl, H5F_CLOSE_STRONG) < 0)
        return H5I_INVALID_HID;
    return fapl;
}
