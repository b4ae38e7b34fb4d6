/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks: how many, where, their decoded elements, and writing one as it is to be stored.
 */
#include "ckpt/fmt/hdf5_helper/helper.h"

#include "base/alloc.h"

#define MAX_RANK 32

/* The dataset asked about last stays open: opening one costs more than a question. */
static hid_t open_set = H5I_INVALID_HID;
static uint64_t open_addr;

void helper_forget(void) {
    if (open_set >= 0)
        (void)H5Dclose(open_set);
    open_set = H5I_INVALID_HID;
}

static hid_t get_set(hid_t file, uint64_t addr) {
    if (open_set >= 0 && open_addr == addr)
        return open_set;
    helper_forget();
    hid_t object = H5Oopen_by_addr(file, (haddr_t)addr);
    if (object < 0 || H5Iget_type(object) != H5I_DATASET) {
        if (object >= 0)
            (void)H5Oclose(object);
        helper_fail_hdf5("a dataset");
        return H5I_INVALID_HID;
    }
    open_set = object;
    open_addr = addr;
    return object;
}

static bool get_count(hid_t set, hsize_t *n) {
    hid_t space = H5Dget_space(set); /* 1.10.8 refuses H5S_ALL here, against its documentation */
    bool ok = space >= 0 && H5Dget_num_chunks(set, space, n) >= 0;
    if (space >= 0)
        (void)H5Sclose(space);
    return ok;
}

void helper_counts(hid_t file, struct sdc_wire *w) {
    struct sdc_buf body = SDC_BUF_INIT;
    const size_t n = (size_t)sdc__wire_get(w, 4);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        const uint64_t addr = sdc__wire_get(w, 8);
        hsize_t count = 0;
        if (w->bad)
            break;
        hid_t set = get_set(file, addr);
        if (set < 0) {
            sdc__buf_release(&body);
            return;
        }
        ok = get_count(set, &count);
        sdc__wire_put(&body, count, 8);
        sdc__wire_put(&body, ok ? H5Dget_storage_size(set) : 0, 8);
    }
    if (!ok)
        helper_fail_hdf5("the chunks of a dataset");
    else if (!sdc__wire_ends(w))
        helper_fail(SDC_FAIL_REQUEST, "count");
    else
        helper_reply_buf(SDC_WIRE_COUNTS, &body);
    sdc__buf_release(&body);
}

/* Where libhdf5 would read this chunk; position SDC_WIRE_NOWHERE if it is not stored. */
static bool locate(hid_t set, const hsize_t *corner, uint64_t *at, uint64_t *size, uint32_t *mask) {
    struct helper_range *r = &helper_range;
    unsigned char nothing[8]; /* no byte is written to it, since the read is only watched */
    r->watched = true;
    r->seen = 0;
    *mask = 0;
    herr_t rc = H5Dread_chunk(set, H5P_DEFAULT, corner, mask, nothing);
    r->watched = false;
    *at = SDC_WIRE_NOWHERE;
    *size = 0;
    if (rc >= 0 && r->seen == 1) {
        *at = r->seen_at;
        *size = r->seen_size;
        return true;
    }
    (void)H5Eclear2(H5E_DEFAULT);
    /* a chunk of no storage fails too; its size tells the two apart */
    hsize_t stored = 0;
    rc = H5Dget_chunk_storage_size(set, corner, &stored);
    if (rc < 0)
        (void)H5Eclear2(H5E_DEFAULT);
    return r->seen == 0 && (rc < 0 || stored == 0);
}

void helper_chunks(hid_t file, struct sdc_wire *w) {
    struct sdc_buf body = SDC_BUF_INIT;
    const uint64_t addr = sdc__wire_get(w, 8);
    const unsigned rank = (unsigned)sdc__wire_get(w, 1);
    const size_t n = (size_t)sdc__wire_get(w, 4);
    if (w->bad || rank == 0 || rank > MAX_RANK || n > SDC_WIRE_BATCH ||
        w->len - w->at != n * rank * 8) {
        helper_fail(SDC_FAIL_REQUEST, "chunks");
        return;
    }
    hid_t set = get_set(file, addr);
    if (set < 0)
        return;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        hsize_t corner[MAX_RANK];
        uint64_t at, size;
        uint32_t mask;
        for (unsigned k = 0; k < rank; k++)
            corner[k] = sdc__wire_get(w, 8);
        ok = locate(set, corner, &at, &size, &mask);
        sdc__wire_put(&body, at, 8);
        sdc__wire_put(&body, size, 8);
        sdc__wire_put(&body, mask, 4);
    }
    if (ok)
        helper_reply_buf(SDC_WIRE_CHUNK_LIST, &body);
    else
        helper_fail_hdf5("where a chunk is");
    sdc__buf_release(&body);
}

/* Elements of a box in C order, as the file's type says: bits are moved, never converted. */
static bool read_box(hid_t set, unsigned rank, const hsize_t *start, const hsize_t *count,
                     size_t bytes, unsigned char *out) {
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), memory = -1;
    hsize_t n = 1;
    for (unsigned i = 0; i < rank; i++)
        n *= count[i]; /* checked against bytes by the caller */
    bool ok =
        type >= 0 && space >= 0 && n > 0 && H5Tdetect_class(type, H5T_VLEN) == 0 &&
        H5Tis_variable_str(type) <= 0 && H5Tget_size(type) == bytes / n && bytes % n == 0 &&
        H5Sget_simple_extent_ndims(space) == (int)rank &&
        (memory = H5Screate_simple(1, &n, NULL)) >= 0 &&
        (rank == 0 || H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0) &&
        H5Dread(set, type, memory, space, H5P_DEFAULT, out) >= 0;
    if (memory >= 0)
        (void)H5Sclose(memory);
    if (space >= 0)
        (void)H5Sclose(space);
    if (type >= 0)
        (void)H5Tclose(type);
    return ok;
}

void helper_read(hid_t file, struct sdc_wire *w) {
    hsize_t start[MAX_RANK], count[MAX_RANK], n = 1;
    const uint64_t addr = sdc__wire_get(w, 8);
    const unsigned rank = (unsigned)sdc__wire_get(w, 1);
    bool ok = rank <= MAX_RANK;
    for (unsigned i = 0; ok && i < rank; i++) {
        start[i] = sdc__wire_get(w, 8);
        count[i] = sdc__wire_get(w, 8);
        ok = !__builtin_mul_overflow(n, count[i], &n);
    }
    const uint64_t bytes = sdc__wire_get(w, 8);
    if (!ok || !sdc__wire_ends(w) || n == 0 || bytes == 0 || bytes >= SDC_WIRE_REPLY || n > bytes) {
        helper_fail(SDC_FAIL_REQUEST, "read");
        return;
    }
    hid_t set = get_set(file, addr);
    if (set < 0)
        return;
    unsigned char *out = sdc__alloc((size_t)bytes, 1);
    if (!out)
        helper_fail(SDC_FAIL_NO_MEMORY, "read");
    else if (!read_box(set, rank, start, count, (size_t)bytes, out))
        helper_fail_hdf5("read");
    else
        helper_reply(SDC_WIRE_DATA, out, (size_t)bytes);
    sdc__free(out);
    helper_forget(); /* with its cache of chunks, which a change of the file would make old */
}

void helper_write_chunk(hid_t file, struct sdc_wire *w) {
    hsize_t corner[MAX_RANK];
    const uint64_t addr = sdc__wire_get(w, 8);
    const unsigned rank = (unsigned)sdc__wire_get(w, 1);
    for (unsigned i = 0; i < rank && i < MAX_RANK; i++)
        corner[i] = sdc__wire_get(w, 8);
    const uint32_t mask = (uint32_t)sdc__wire_get(w, 4);
    if (w->bad || rank == 0 || rank > MAX_RANK || w->len == w->at) {
        helper_fail(SDC_FAIL_REQUEST, "write");
        return;
    }
    hid_t set = get_set(file, addr);
    if (set < 0)
        return;
    if (H5Dwrite_chunk(set, H5P_DEFAULT, mask, corner, w->len - w->at, w->data + w->at) < 0)
        helper_fail_hdf5("write a chunk");
    else
        helper_reply(SDC_WIRE_DONE, NULL, 0);
}
