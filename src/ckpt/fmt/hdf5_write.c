/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing HDF5: contiguous little-endian datasets, a group for each '/' of a name, the oldest file
 * format that fits, no times, so that equal states give equal bytes.
 *
 * libhdf5 builds the file in memory (core driver) and our own code puts it on disk: a full disk is
 * then our error, while libhdf5 cannot close a file it failed to write.
 */
#include "ckpt/fmt/hdf5.h"

#include <stdio.h>
#include <string.h>

/* Memory of the image is reserved in steps of this: enough for all data and the usual headers, so
 * that nothing is copied while it grows. */
#define GROWTH_BASE       ((size_t)64 * 1024)
#define GROWTH_PER_TENSOR ((size_t)1024)

static enum sdc_status check_name(const char *path, const char *name, struct sdc_error *err) {
    const char *part = name;
    for (;;) {
        size_t len = strcspn(part, "/");
        if (len == 0 || (len == 1 && part[0] == '.'))
            return SDC_ERR(err, SDC_USAGE,
                           "%s: tensor '%s': HDF5 names have no empty parts and no part '.'", path,
                           name);
        if (part[len] == '\0')
            return SDC_OK;
        part += len + 1;
    }
}

/* "a" and "a/b" cannot both be datasets. Names are sorted, but "a-" may lie between the two. */
static enum sdc_status check_groups(const char *path, const struct sdc_ckpt_put *puts, size_t n,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(puts[i].name);
        for (size_t j = i + 1; j < n && strncmp(puts[j].name, puts[i].name, len) == 0; j++)
            if (puts[j].name[len] == '/')
                return SDC_ERR(err, SDC_USAGE, "%s: tensor '%s' would be the group of '%s' in HDF5",
                               path, puts[i].name, puts[j].name);
    }
    return SDC_OK;
}

struct plists {
    hid_t fapl, fcpl, lcpl, lcpl_utf8, dcpl;
};

static bool plists_make(struct plists *p, size_t growth) {
    p->fapl = H5Pcreate(H5P_FILE_ACCESS);
    p->fcpl = H5Pcreate(H5P_FILE_CREATE);
    p->lcpl = H5Pcreate(H5P_LINK_CREATE);
    p->lcpl_utf8 = H5Pcreate(H5P_LINK_CREATE);
    p->dcpl = H5Pcreate(H5P_DATASET_CREATE);
    return p->fapl >= 0 && p->fcpl >= 0 && p->lcpl >= 0 && p->lcpl_utf8 >= 0 && p->dcpl >= 0 &&
           H5Pset_fapl_core(p->fapl, growth, false) >= 0 &&
           H5Pset_fclose_degree(p->fapl, H5F_CLOSE_STRONG) >= 0 &&
           H5Pset_libver_bounds(p->fapl, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST) >= 0 &&
           H5Pset_obj_track_times(p->fcpl, false) >= 0 &&
           H5Pset_create_intermediate_group(p->lcpl, 1) >= 0 &&
           H5Pset_create_intermediate_group(p->lcpl_utf8, 1) >= 0 &&
           H5Pset_char_encoding(p->lcpl_utf8, H5T_CSET_UTF8) >= 0 &&
           H5Pset_obj_track_times(p->dcpl, false) >= 0 &&
           H5Pset_layout(p->dcpl, H5D_CONTIGUOUS) >= 0 &&
           H5Pset_fill_time(p->dcpl, H5D_FILL_TIME_NEVER) >= 0;
}

static void plists_close(const struct plists *p) {
    const hid_t all[] = {p->fapl, p->fcpl, p->lcpl, p->lcpl_utf8, p->dcpl};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0)
            (void)H5Pclose(all[i]);
}

static bool is_ascii(const char *s) {
    while (*s && (unsigned char)*s < 0x80)
        s++;
    return *s == '\0';
}

static bool write_set(hid_t file, const struct plists *p, const struct sdc_ckpt_put *put) {
    hsize_t dims[32];
    hid_t space = -1, set = -1, memory = -1;
    bool ok = false;
    for (unsigned i = 0; i < put->rank; i++)
        dims[i] = put->shape[i];
    hid_t type = sdc__h5_make_type(put->dtype);
    if (type < 0)
        return false;
    space = put->rank ? H5Screate_simple((int)put->rank, dims, NULL) : H5Screate(H5S_SCALAR);
    if (space < 0)
        goto out;
    set = H5Dcreate2(file, put->name, type, space, is_ascii(put->name) ? p->lcpl : p->lcpl_utf8,
                     p->dcpl, H5P_DEFAULT);
    if (set < 0)
        goto out;
    memory = H5Tcopy(type);
    /* an enumeration of single bytes has no order to set */
    if (memory < 0 || (put->dtype != SDC_DTYPE_BOOL && sdc__host_big_endian() &&
                       H5Tset_order(memory, H5T_ORDER_BE) < 0))
        goto out;
    ok = put->n_elems == 0 || H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, put->data) >= 0;
out:
    if (memory >= 0)
        (void)H5Tclose(memory);
    if (set >= 0)
        (void)H5Dclose(set);
    if (space >= 0)
        (void)H5Sclose(space);
    (void)H5Tclose(type);
    return ok;
}

/* From libhdf5's own memory, so that a large state is not copied once more. */
static enum sdc_status save_image(hid_t h5, hid_t fapl, struct sdc_file *file, const char *path,
                                  struct sdc_error *err) {
    void *handle = NULL;
    if (H5Fflush(h5, H5F_SCOPE_GLOBAL) < 0)
        return sdc__h5_fail(err, SDC_INTERNAL, path, "write");
    ssize_t size = H5Fget_file_image(h5, NULL, 0);
    if (size <= 0 || H5Fget_vfd_handle(h5, fapl, &handle) < 0)
        return sdc__h5_fail(err, SDC_INTERNAL, path, "write");
    return sdc__file_write(file, 0, *(void **)handle, (size_t)size, err);
}

static enum sdc_status h5_write(struct sdc_file *file, const char *path,
                                const struct sdc_ckpt_put *puts, size_t n, struct sdc_error *err) {
    struct plists p = {-1, -1, -1, -1, -1};
    size_t total = 0;
    hid_t h5 = -1;
    enum sdc_status st = SDC_OK;
    SDC_TRY(check_groups(path, puts, n, err));
    for (size_t i = 0; i < n; i++)
        total += puts[i].size;
    struct sdc_h5_quiet q = sdc__h5_quiet();
    /* never on disk; but libhdf5 takes two files in memory of one name for the same file, and
     * several threads may be here */
    char name[64];
    (void)snprintf(name, sizeof name, "sdclab-image-%p", (void *)&p);
    if (!plists_make(&p, GROWTH_BASE + n * GROWTH_PER_TENSOR + total) ||
        (h5 = H5Fcreate(name, H5F_ACC_TRUNC, p.fcpl, p.fapl)) < 0) {
        st = sdc__h5_fail(err, SDC_NO_MEMORY, path, "write");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        if (!write_set(h5, &p, &puts[i])) {
            st = sdc__h5_fail(err, SDC_NO_MEMORY, path, puts[i].name);
            goto out;
        }
    st = save_image(h5, p.fapl, file, path, err);
out:
    if (st != SDC_OK)
        sdc_error_prefix(err, "saving %s", path);
    if (h5 >= 0)
        (void)H5Fclose(h5);
    plists_close(&p);
    sdc__h5_loud(&q);
    return st;
}

const struct sdc_ckpt_writer_ops sdc__writer_hdf5 = {
    .name = "hdf5", .check_name = check_name, .write = h5_write};
