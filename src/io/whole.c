/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <stdio.h>
#include <zlib.h>

#include "base/alloc.h"

#define BLOCK 65536u

/* Appends n bytes of data unless the limit is passed. */
static enum sdc_status take(const char *path, size_t limit, size_t before, struct sdc_buf *out,
                            const void *data, size_t n, struct sdc_error *err) {
    if (n > limit || out->len - before > limit - n)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %zu bytes", path, limit);
    sdc__buf_append(out, data, n);
    return out->failed ? SDC_NOMEM(err, path) : SDC_OK;
}

static enum sdc_status open_any(const char *path, int *fd, struct sdc_error *err) {
    do
        *fd = open(path, O_RDONLY | O_CLOEXEC);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0)
        return SDC_ERR_SYS(err, errno == ENOENT || errno == ENOTDIR ? SDC_NOT_FOUND : SDC_IO, errno,
                           "%s: open", path);
    return SDC_OK;
}

enum sdc_status sdc__read_whole(const char *path, size_t limit, struct sdc_buf *out,
                                struct sdc_error *err) {
    int fd;
    SDC_TRY(open_any(path, &fd, err));
    enum sdc_status st = SDC_OK;
    size_t before = out->len;
    char block[BLOCK];
    while (st == SDC_OK) {
        int code = sdc__io_before_read(path);
        ssize_t n = -1;
        if (!code) {
            n = read(fd, block, sdc__io_cut(sizeof block));
            code = n < 0 ? errno : 0;
        }
        if (code == EINTR)
            continue;
        if (code)
            st = SDC_ERR_SYS(err, SDC_IO, code, "%s: read", path);
        if (n <= 0)
            break;
        st = take(path, limit, before, out, block, (size_t)n, err);
    }
    (void)close(fd);
    return st;
}

enum sdc_status sdc__read_gz(const char *path, size_t limit, struct sdc_buf *out,
                             struct sdc_error *err) {
    int fd;
    SDC_TRY(open_any(path, &fd, err));
    gzFile gz = gzdopen(fd, "rb"); /* passes files that are not gzip through unchanged */
    if (!gz) {
        (void)close(fd);
        return SDC_NOMEM(err, path);
    }
    enum sdc_status st = SDC_OK;
    size_t before = out->len;
    char block[BLOCK];
    for (;;) {
        int n = gzread(gz, block, sizeof block);
        if (n <= 0)
            break;
        SDC_TRY_OUT(st, take(path, limit, before, out, block, (size_t)n, err));
    }
    int code;
    const char *text = gzerror(gz, &code);
    if (code == Z_ERRNO)
        st = SDC_ERR_SYS(err, SDC_IO, errno, "%s: read", path);
    else if (code == Z_BUF_ERROR)
        st = SDC_ERR(err, SDC_INVALID, "%s: truncated gzip data", path);
    else if (code != Z_OK && code != Z_STREAM_END)
        st = SDC_ERR(err, SDC_INVALID, "%s: damaged gzip data: %s", path, text);
out:
    (void)gzclose_r(gz);
    return st;
}

enum sdc_status sdc__write_whole(const char *path, const void *data, size_t len, bool sync,
                                 struct sdc_error *err) {
    struct sdc_replace r;
    SDC_TRY(sdc__replace_begin(path, true, &r, err));
    enum sdc_status st = sdc__file_write(&r.file, 0, data, len, err);
    if (st == SDC_OK)
        return sdc__replace_commit(&r, sync, err);
    sdc__replace_abandon(&r);
    return st;
}

void sdc__gz_library(char *text, size_t size) {
    snprintf(text, size, "zlib built %s, running %s", ZLIB_VERSION, zlibVersion());
}
