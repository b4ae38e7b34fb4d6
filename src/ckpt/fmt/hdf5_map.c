/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the elements of an HDF5 dataset are in the file.
 */
#include "ckpt/fmt/hdf5.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

#define MAX_CHUNKS (UINT64_C(1) << 26)
#define NOT_ASKED  UINT64_MAX

/* Chunked storage without filters. */
struct chunks {
    unsigned rank;
    unsigned elem_size;
    uint64_t bytes; /* of one chunk */
    uint64_t dims[SDC_MAX_RANK], chunk[SDC_MAX_RANK], grid[SDC_MAX_RANK];
    uint64_t addr[]; /* by chunk in C order; asked for when first needed, since libhdf5 1.10 looks
                        at all chunks for each question */
};

/* ---- does this libhdf5 count the userblock in chunk addresses? ----
 *
 * Contiguous offsets include it; chunk addresses do only since a later release (HDFGroup/hdf5 issue
 * 3003). Asked of the library at hand, with a file in memory. */

#define PROBE_BASE 512

static bool probe_with(hid_t fapl, hid_t fcpl, hid_t dcpl, bool *counted) {
    static const unsigned char pattern[64] = "sdclab asks where this chunk is; it is nowhere else";
    const hsize_t size = sizeof pattern, zero = 0;
    hid_t space = -1, set = -1;
    bool ok = false;
    void *handle = NULL;
    haddr_t addr = HADDR_UNDEF;
    hsize_t stored = 0;
    unsigned mask = 0;
    char name[64]; /* never on disk; of its own for each thread, as libhdf5 tells files by name */
    (void)snprintf(name, sizeof name, "sdclab-probe-%p", (void *)name);
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, fcpl, fapl);
    if (file < 0)
        return false;
    if ((space = H5Screate_simple(1, &size, NULL)) < 0 || H5Pset_chunk(dcpl, 1, &size) < 0 ||
        (set = H5Dcreate2(file, "x", H5T_NATIVE_UCHAR, space, H5P_DEFAULT, dcpl, H5P_DEFAULT)) <
            0 ||
        H5Dwrite(set, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, pattern) < 0 ||
        H5Fflush(file, H5F_SCOPE_GLOBAL) < 0 ||
        H5Dget_chunk_info_by_coord(set, &zero, &mask, &addr, &stored) < 0)
        goto out;
    hsize_t image = 0; /* with the userblock, which H5Fget_file_image leaves out */
    if (H5Fget_filesize(file, &image) < 0 || H5Fget_vfd_handle(file, fapl, &handle) < 0)
        goto out;
    const unsigned char *bytes = *(unsigned char **)handle;
    for (int i = 0; i < 2 && !ok; i++) {
        uint64_t at = (uint64_t)addr + (i ? PROBE_BASE : 0);
        if (sdc__range_inside(at, size, image) && memcmp(bytes + at, pattern, size) == 0) {
            *counted = i == 0;
            ok = true;
        }
    }
out:
    if (set >= 0)
        (void)H5Dclose(set);
    if (space >= 0)
        (void)H5Sclose(space);
    (void)H5Fclose(file);
    return ok;
}

static enum sdc_status probe(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    struct sdc_h5_state *state = ckpt->priv;
    if (state->probed)
        return SDC_OK;
    bool counted = true, ok = true;
    if (state->base > 0) {
        hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE),
              dcpl = H5Pcreate(H5P_DATASET_CREATE);
        ok = fapl >= 0 && fcpl >= 0 && dcpl >= 0 && H5Pset_fapl_core(fapl, 1 << 16, false) >= 0 &&
             H5Pset_userblock(fcpl, PROBE_BASE) >= 0 && probe_with(fapl, fcpl, dcpl, &counted);
        (void)H5Pclose(dcpl);
        (void)H5Pclose(fcpl);
        (void)H5Pclose(fapl);
    }
    if (!ok)
        return sdc__h5_fail(err, SDC_INTERNAL, ckpt->path, "chunk addresses of libhdf5");
    state->probed = true;
    state->chunk_base = counted ? 0 : state->base;
    return SDC_OK;
}

/* ---- the kinds of storage ---- */

static const char *filter_name(H5Z_filter_t id, char *text, size_t size, const char *stored) {
    static const struct {
        H5Z_filter_t id;
        const char *name;
    } known[] = {{H5Z_FILTER_DEFLATE, "gzip"},
                 {H5Z_FILTER_SHUFFLE, "shuffle"},
                 {H5Z_FILTER_FLETCHER32, "fletcher32"},
                 {H5Z_FILTER_SZIP, "szip"},
                 {H5Z_FILTER_NBIT, "nbit"},
                 {H5Z_FILTER_SCALEOFFSET, "scaleoffset"},
                 {32000, "lzf"},
                 {32001, "blosc"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].id == id)
            return known[i].name;
    size_t len = strlen(stored);
    if (len && sdc__utf8_valid(stored, len))
        (void)snprintf(text, size, "%.40s (id %d)", stored, id);
    else
        (void)snprintf(text, size, "id %d", id);
    return text;
}

/* "gzip" or "shuffle, gzip"; "" without filters. */
static enum sdc_status filter_list(hid_t dcpl, struct sdc_buf *out, const char *path,
                                   struct sdc_error *err) {
    int n = H5Pget_nfilters(dcpl);
    if (n < 0)
        return sdc__h5_fail(err, SDC_INVALID, path, "its filters");
    for (int i = 0; i < n; i++) {
        char stored[64] = "", text[96];
        unsigned flags, config;
        size_t n_values = 0;
        H5Z_filter_t id = H5Pget_filter2(dcpl, (unsigned)i, &flags, &n_values, NULL,
                                         sizeof stored - 1, stored, &config);
        if (id < 0)
            return sdc__h5_fail(err, SDC_INVALID, path, "its filters");
        sdc__buf_printf(out, "%s%s", i ? ", " : "", filter_name(id, text, sizeof text, stored));
    }
    return out->failed ? SDC_NOMEM(err, path) : SDC_OK;
}

static enum sdc_status locate_contiguous(struct sdc_ckpt *ckpt, hid_t set, struct sdc_ckpt_entry *e,
                                         uint64_t bytes, struct sdc_error *err) {
    const char *path = ckpt->path;
    SDC_TRY(sdc__entry_text(&e->storage, err, "contiguous"));
    e->stored_size = H5Dget_storage_size(set);
    if (e->desc.n_elems == 0 || (e->desc.dtype_known && bytes == 0))
        return SDC_OK;
    /* before H5Dget_offset, which wraps around to a nonsense address for a dataset without storage
     * in a file with a userblock (1.10.8) */
    if (e->stored_size == 0)
        return sdc__entry_lock(e, err, "never written, nothing is stored");
    haddr_t at = H5Dget_offset(set);
    if (at == HADDR_UNDEF)
        return sdc__h5_fail(err, SDC_INVALID, path, e->name);
    if (!sdc__range_inside(at, e->stored_size, ckpt->file->size) ||
        (e->desc.dtype_known && e->stored_size < bytes))
        return SDC_ERR_AT(err, SDC_INVALID, at,
                          "%s: tensor %s: %llu bytes at %llu for elements of %llu bytes do not fit "
                          "the file of %llu bytes",
                          path, e->name, (unsigned long long)e->stored_size, (unsigned long long)at,
                          (unsigned long long)bytes, (unsigned long long)ckpt->file->size);
    return e->desc.dtype_known ? sdc__entry_contiguous(e, 0, at, err) : SDC_OK;
}

/* "chunked 10x10" or "chunked 10x10, gzip" */
static enum sdc_status chunk_text(struct sdc_ckpt_entry *e, unsigned rank, const hsize_t *chunk,
                                  const char *filters, struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    for (unsigned i = 0; i < rank; i++)
        sdc__buf_printf(&b, "%s%llu", i ? "x" : "", (unsigned long long)chunk[i]);
    enum sdc_status st = b.failed
                             ? SDC_NOMEM(err, "the list of tensors")
                             : sdc__entry_text(&e->storage, err, "chunked %s%s%s",
                                               b.data ? b.data : "", *filters ? ", " : "", filters);
    sdc__buf_release(&b);
    return st;
}

/* The map of an unfiltered chunked dataset whose chunks are all there. */
static enum sdc_status make_chunks(struct sdc_ckpt *ckpt, hid_t set, struct sdc_ckpt_entry *e,
                                   const hsize_t *chunk, struct sdc_error *err) {
    const char *path = ckpt->path;
    struct chunks c = {.rank = e->desc.rank, .elem_size = sdc_dtype_bytes(e->desc.dtype)};
    uint64_t n = 1;
    c.bytes = c.elem_size;
    for (unsigned i = 0; i < c.rank; i++) {
        if (chunk[i] == 0)
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: a chunk of size 0", path, e->name);
        c.dims[i] = e->shape[i];
        c.chunk[i] = chunk[i];
        c.grid[i] = c.dims[i] / chunk[i] + (c.dims[i] % chunk[i] != 0);
        if (!sdc__mul_u64(&n, c.grid[i]) || !sdc__mul_u64(&c.bytes, chunk[i]))
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: overflow of its chunks", path,
                           e->name);
    }
    hsize_t have = 0;
    hid_t space = H5Dget_space(set); /* 1.10.8 refuses H5S_ALL here, against its documentation */
    enum sdc_status st = SDC_OK;
    if (space < 0 || H5Dget_num_chunks(set, space, &have) < 0)
        st = sdc__h5_fail(err, SDC_INVALID, path, e->name);
    if (space >= 0)
        (void)H5Sclose(space);
    if (st != SDC_OK)
        return st;
    if (have < n)
        return sdc__entry_lock(e, err, "not fully allocated: %llu of %llu chunks are stored",
                               (unsigned long long)have, (unsigned long long)n);
    if (n > MAX_CHUNKS)
        return sdc__entry_lock(e, err, "%llu chunks, the limit is %llu", (unsigned long long)n,
                               (unsigned long long)MAX_CHUNKS);
    struct chunks *block = sdc__alloc(1, sizeof c + (size_t)n * sizeof c.addr[0]);
    if (!block)
        return SDC_NOMEM(err, path);
    *block = c;
    memset(block->addr, 0xff, (size_t)n * sizeof c.addr[0]); /* NOT_ASKED */
    e->layout = block;
    return probe(ckpt, err);
}

static enum sdc_status locate_chunked(struct sdc_ckpt *ckpt, hid_t set, hid_t dcpl,
                                      struct sdc_ckpt_entry *e, struct sdc_error *err) {
    hsize_t chunk[SDC_MAX_RANK];
    struct sdc_buf filters = SDC_BUF_INIT;
    enum sdc_status st;
    int rank = H5Pget_chunk(dcpl, SDC_MAX_RANK, chunk);
    if (rank < 0 || (unsigned)rank != e->desc.rank)
        return sdc__h5_fail(err, SDC_INVALID, ckpt->path, e->name);
    SDC_TRY_OUT(st, filter_list(dcpl, &filters, ckpt->path, err));
    const char *list = filters.data ? filters.data : "";
    SDC_TRY_OUT(st, chunk_text(e, (unsigned)rank, chunk, list, err));
    e->stored_size = H5Dget_storage_size(set);
    if (filters.len)
        st = sdc__entry_lock(e, err, "chunked with filter%s %s: not alterable yet",
                             strchr(list, ',') ? "s" : "", list);
    else if (e->desc.n_elems > 0 && e->desc.dtype_known)
        st = make_chunks(ckpt, set, e, chunk, err);
out:
    sdc__buf_release(&filters);
    return st;
}

enum sdc_status sdc__h5_locate(struct sdc_ckpt *ckpt, hid_t set, hid_t type,
                               struct sdc_ckpt_entry *e, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    uint64_t bytes = e->desc.n_elems;
    hid_t dcpl = H5Dget_create_plist(set);
    if (dcpl < 0)
        return sdc__h5_fail(err, SDC_INVALID, ckpt->path, e->name);
    H5D_layout_t layout = H5Pget_layout(dcpl);
    if (layout == H5D_VIRTUAL) {
        e->unreadable = true;
        SDC_TRY_OUT(st, sdc__entry_text(&e->storage, err, "virtual"));
        SDC_TRY_OUT(st, sdc__entry_lock(e, err, "virtual: its elements are in other datasets"));
    } else if (H5Pget_external_count(dcpl) > 0) {
        e->unreadable = true;
        SDC_TRY_OUT(st, sdc__entry_text(&e->storage, err, "external"));
        SDC_TRY_OUT(st, sdc__entry_lock(e, err, "external: its elements are in another file"));
    } else if (!sdc__mul_u64(&bytes, H5Tget_size(type))) {
        st = SDC_ERR(err, SDC_INVALID, "%s: tensor %s: overflow of its size in bytes", ckpt->path,
                     e->name);
    } else if (layout == H5D_COMPACT) {
        e->stored_size = H5Dget_storage_size(set);
        SDC_TRY_OUT(st, sdc__entry_text(&e->storage, err, "compact"));
        SDC_TRY_OUT(st, sdc__entry_lock(e, err,
                                        "compact: stored in the object header, not alterable "
                                        "yet"));
    } else if (layout == H5D_CONTIGUOUS) {
        st = locate_contiguous(ckpt, set, e, bytes, err);
    } else if (layout == H5D_CHUNKED) {
        st = locate_chunked(ckpt, set, dcpl, e, err);
    } else {
        st = sdc__h5_fail(err, SDC_INVALID, ckpt->path, e->name);
    }
out:
    (void)H5Pclose(dcpl);
    return st;
}

/* ---- one element ---- */

static enum sdc_status ask_chunk(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                 struct chunks *c, const hsize_t *corner, uint64_t index,
                                 struct sdc_error *err) {
    const struct sdc_h5_state *state = ckpt->priv;
    struct sdc_h5_quiet q = sdc__h5_quiet();
    enum sdc_status st = SDC_OK;
    haddr_t at = HADDR_UNDEF;
    hsize_t size = 0;
    unsigned mask = 0;
    hid_t set = H5Oopen_by_addr(state->file, (haddr_t)e->key);
    if (set < 0 || H5Dget_chunk_info_by_coord(set, corner, &mask, &at, &size) < 0) {
        st = sdc__h5_fail(err, SDC_INVALID, ckpt->path, e->name);
        goto out;
    }
    if (at == HADDR_UNDEF || size != c->bytes || at > UINT64_MAX - state->chunk_base ||
        !sdc__range_inside(at + state->chunk_base, size, ckpt->file->size)) {
        st = SDC_ERR(err, SDC_INVALID,
                     "%s: tensor %s: chunk %llu is not inside the file, or not of %llu bytes",
                     ckpt->path, e->name, (unsigned long long)index, (unsigned long long)c->bytes);
        goto out;
    }
    c->addr[index] = at + state->chunk_base;
out:
    if (set >= 0)
        (void)H5Oclose(set);
    sdc__h5_loud(&q);
    return st;
}

enum sdc_status sdc__h5_map(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t elem,
                            struct sdc_span *span, struct sdc_error *err) {
    struct chunks *c = e->layout;
    hsize_t corner[SDC_MAX_RANK];
    uint64_t coord[SDC_MAX_RANK], index = 0, inside = 0;
    for (unsigned i = c->rank; i-- > 0;) {
        coord[i] = elem % c->dims[i];
        elem /= c->dims[i];
    }
    for (unsigned i = 0; i < c->rank; i++) { /* C order in the grid and in the chunk; edge chunks
                                                are stored whole */
        index = index * c->grid[i] + coord[i] / c->chunk[i];
        inside = inside * c->chunk[i] + coord[i] % c->chunk[i];
        corner[i] = coord[i] / c->chunk[i] * c->chunk[i];
    }
    if (c->addr[index] == NOT_ASKED)
        SDC_TRY(ask_chunk(ckpt, e, c, corner, index, err));
    span->file = 0;
    span->offset = c->addr[index] + inside * c->elem_size;
    return SDC_OK;
}
