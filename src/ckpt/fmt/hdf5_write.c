/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing HDF5: contiguous little-endian datasets, a group for each '/' of a name, the oldest file
 * format that fits, no times, so that equal states give equal bytes.
 *
 * The helper process lets libhdf5 make all but the elements in memory and says where those belong;
 * our own code puts both on disk: a full disk is then our error, while libhdf5 cannot close a file
 * it failed to write.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"

#define SWAP_BYTES ((size_t)64 * 1024)

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

static enum sdc_status ask(struct sdc_h5_proc *proc, const struct sdc_ckpt_put *puts, size_t n,
                           struct sdc_error *err) {
    struct sdc_buf body = SDC_BUF_INIT;
    sdc__wire_put(&body, n, 4);
    for (size_t i = 0; i < n; i++) {
        const char *word = sdc_dtype_name(puts[i].dtype);
        sdc__wire_put_text(&body, puts[i].name, strlen(puts[i].name));
        sdc__wire_put_text(&body, word, strlen(word));
        sdc__wire_put(&body, puts[i].rank, 1);
        for (unsigned k = 0; k < puts[i].rank; k++)
            sdc__wire_put(&body, puts[i].shape[k], 8);
    }
    enum sdc_status st = sdc__h5_ask(proc, SDC_WIRE_CREATE, &body, NULL, 0, err);
    sdc__buf_release(&body);
    return st;
}

/* Elements in little-endian order. */
static enum sdc_status write_elements(struct sdc_file *file, uint64_t at,
                                      const struct sdc_ckpt_put *put, struct sdc_error *err) {
    const unsigned size = sdc_dtype_bytes(put->dtype);
    if (size == 1 || !sdc__host_big_endian())
        return sdc__file_write(file, at, put->data, put->size, err);
    unsigned char block[SWAP_BYTES];
    for (size_t done = 0; done < put->size; done += SWAP_BYTES) {
        const size_t n = put->size - done < SWAP_BYTES ? put->size - done : SWAP_BYTES;
        memcpy(block, (const char *)put->data + done, n);
        sdc__swap_elements(block, n / size, size);
        SDC_TRY(sdc__file_write(file, at + done, block, n, err));
    }
    return SDC_OK;
}

static enum sdc_status place_all(struct sdc_h5_proc *proc, struct sdc_wire *w,
                                 struct sdc_file *file, const struct sdc_ckpt_put *puts, size_t n,
                                 struct sdc_error *err) {
    const uint64_t size = sdc__wire_get(w, 8);
    if (w->len != 8 + 8 * n || size > INT64_MAX)
        return sdc__h5_nonsense(proc, "places of tensors", err);
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = sdc__wire_get(w, 8);
        if (puts[i].size == 0)
            continue;
        if (!sdc__range_inside(at, puts[i].size, size))
            return sdc__h5_nonsense(proc, "a tensor behind the file's end", err);
        SDC_TRY(write_elements(file, at, &puts[i], err));
    }
    return file->size == size ? SDC_OK : sdc__file_truncate(file, size, err);
}

static enum sdc_status h5_write(struct sdc_file *file, const char *path,
                                const struct sdc_ckpt_put *puts, size_t n, struct sdc_error *err) {
    struct sdc_h5_proc *proc = NULL;
    enum sdc_status st;
    SDC_TRY(check_groups(path, puts, n, err));
    SDC_TRY_OUT(st, sdc__h5_start(path, NULL, 600, &proc, err));
    SDC_TRY_OUT(st, ask(proc, puts, n, err));
    for (;;) {
        enum sdc_wire_kind kind;
        struct sdc_wire w;
        SDC_TRY_OUT(st, sdc__h5_next(proc, &kind, &w, err));
        if (kind == SDC_WIRE_PLACES) {
            st = place_all(proc, &w, file, puts, n, err);
            break;
        }
        const uint64_t at = sdc__wire_get(&w, 8);
        if (kind != SDC_WIRE_EXTENT || w.bad || at > INT64_MAX / 2) {
            st = sdc__h5_nonsense(proc, "a new file", err);
            break;
        }
        SDC_TRY_OUT(st, sdc__file_write(file, at, w.data + w.at, w.len - w.at, err));
    }
out:
    if (st != SDC_OK)
        sdc_error_prefix(err, "saving %s", path);
    sdc__h5_stop(proc);
    return st;
}

void sdc__hdf5_library(char *text, size_t size) {
    unsigned v[6] = {0};
    struct sdc_error err = {.message = ""};
    if (sdc__h5_library_version(v, &err) == SDC_OK)
        (void)snprintf(text, size, "HDF5 built %u.%u.%u, running %u.%u.%u", v[0], v[1], v[2], v[3],
                       v[4], v[5]);
    else
        (void)snprintf(text, size, "HDF5 not available: %s", err.message);
}

const struct sdc_ckpt_writer_ops sdc__writer_hdf5 = {
    .name = "hdf5", .check_name = check_name, .write = h5_write};
