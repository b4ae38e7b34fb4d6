/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt/hdf5_helper/helper.h"

#include <stdlib.h>

#include "base/alloc.h"

static struct page {
    uint64_t number; /* plus 1; 0 is free */
    unsigned char *bytes;
} * table; /* open addressing, a power of two */
static size_t n_pages, cap;

static struct {
    H5FD_t pub;
    haddr_t eoa, eof;
} the_file;

static struct page *slot(struct page *t, size_t size, uint64_t number) {
    size_t i = (size_t)((number + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (size - 1);
    while (t[i].number != 0 && t[i].number != number + 1)
        i = (i + 1) & (size - 1);
    return &t[i];
}

static unsigned char *page_to_write(uint64_t number) {
    if (n_pages * 2 >= cap) {
        size_t more = cap ? cap * 2 : 256;
        struct page *t = sdc__calloc(more, sizeof *t);
        if (!t)
            return NULL;
        for (size_t i = 0; i < cap; i++)
            if (table[i].number)
                *slot(t, more, table[i].number - 1) = table[i];
        sdc__free(table);
        table = t;
        cap = more;
    }
    struct page *p = slot(table, cap, number);
    if (p->number == 0) {
        p->bytes = sdc__calloc(HELPER_PAGE, 1);
        if (!p->bytes)
            return NULL;
        p->number = number + 1;
        n_pages++;
    }
    return p->bytes;
}

static H5FD_t *sparse_open(const char *name, unsigned flags, hid_t fapl, haddr_t maxaddr) {
    (void)name, (void)flags, (void)fapl, (void)maxaddr;
    memset(&the_file, 0, sizeof the_file);
    return &the_file.pub;
}

static herr_t sparse_close(H5FD_t *f) {
    (void)f;
    return 0;
}

/* As libhdf5's own driver for files on disk, so that layouts are the usual ones. */
static herr_t sparse_query(const H5FD_t *f, unsigned long *flags) {
    (void)f;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t sparse_get_eoa(const H5FD_t *f, H5FD_mem_t type) {
    (void)f, (void)type;
    return the_file.eoa;
}

static herr_t sparse_set_eoa(H5FD_t *f, H5FD_mem_t type, haddr_t eoa) {
    (void)f, (void)type;
    the_file.eoa = eoa;
    return 0;
}

static haddr_t sparse_get_eof(const H5FD_t *f, H5FD_mem_t type) {
    (void)f, (void)type;
    return the_file.eof;
}

static herr_t sparse_read(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t len,
                          void *data) {
    (void)f, (void)type, (void)dxpl;
    unsigned char *to = data;
    while (len > 0) {
        size_t inside = (size_t)(at % HELPER_PAGE);
        size_t n = len < HELPER_PAGE - inside ? len : HELPER_PAGE - inside;
        const struct page *p = cap ? slot(table, cap, at / HELPER_PAGE) : NULL;
        if (p && p->number)
            memcpy(to, p->bytes + inside, n);
        else
            memset(to, 0, n);
        to += n;
        at += n;
        len -= n;
    }
    return 0;
}

static herr_t sparse_write(H5FD_t *f, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t len,
                           const void *data) {
    (void)f, (void)type, (void)dxpl;
    const unsigned char *from = data;
    if (at + len > the_file.eof)
        the_file.eof = at + len;
    while (len > 0) {
        size_t inside = (size_t)(at % HELPER_PAGE);
        size_t n = len < HELPER_PAGE - inside ? len : HELPER_PAGE - inside;
        unsigned char *page = page_to_write(at / HELPER_PAGE);
        if (!page)
            return -1;
        memcpy(page + inside, from, n);
        from += n;
        at += n;
        len -= n;
    }
    return 0;
}

static herr_t sparse_truncate(H5FD_t *f, hid_t dxpl, hbool_t closing) {
    (void)f, (void)dxpl, (void)closing;
    the_file.eof = the_file.eoa;
    return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 2)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)510,
#endif
    .name = "sdclab-sparse",
    .maxaddr = ((haddr_t)1 << 62) - 1,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = sparse_open,
    .close = sparse_close,
    .query = sparse_query,
    .get_eoa = sparse_get_eoa,
    .set_eoa = sparse_set_eoa,
    .get_eof = sparse_get_eof,
    .read = sparse_read,
    .write = sparse_write,
    .truncate = sparse_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

hid_t helper_sparse_fapl(void) {
    hid_t id = H5FDregister(&driver), fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (id < 0 || fapl < 0 || H5Pset_driver(fapl, id, NULL) < 0)
        return H5I_INVALID_HID;
    return fapl;
}

uint64_t helper_sparse_size(void) {
    return the_file.eof;
}

static int by_number(const void *a, const void *b) {
    const struct page *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

bool helper_sparse_each(void (*run)(uint64_t position, const unsigned char *bytes, size_t len)) {
    struct page *all = sdc__alloc(n_pages, sizeof *all);
    size_t n = 0;
    if (!all)
        return false;
    for (size_t i = 0; i < cap; i++)
        if (table[i].number)
            all[n++] = table[i];
    if (n > 1)
        qsort(all, n, sizeof *all, by_number);
    for (size_t i = 0; i < n; i++) {
        uint64_t at = (all[i].number - 1) * HELPER_PAGE;
        if (at < the_file.eof)
            run(at, all[i].bytes,
                the_file.eof - at < HELPER_PAGE ? (size_t)(the_file.eof - at) : HELPER_PAGE);
    }
    sdc__free(all);
    return true;
}
