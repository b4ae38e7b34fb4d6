/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "io/pool.h"

/* Linux transfers at most 0x7ffff000 bytes in a call; some file systems and macOS fail above
 * INT_MAX instead of transferring less. */
#define MAX_CALL ((size_t)1 << 30)

/* Bytes to ask for in one call. */
static size_t portion(uint64_t len) {
    return sdc__io_cut(len < MAX_CALL ? (size_t)len : MAX_CALL);
}

static enum sdc_status open_failed(const char *path, int code, struct sdc_error *err) {
    if (code == ENOENT || code == ENOTDIR)
        return SDC_ERR_SYS(err, SDC_NOT_FOUND, code, "%s", path);
    if (code == EEXIST)
        return SDC_ERR(err, SDC_EXISTS, "%s: exists already", path);
    return SDC_ERR_SYS(err, SDC_IO, code, "%s: open", path);
}

enum sdc_status sdc__file_open(const char *path, enum sdc_file_mode mode, struct sdc_file *f,
                               struct sdc_error *err) {
    static const int flags[] = {[SDC_FILE_READ] = O_RDONLY,
                                [SDC_FILE_UPDATE] = O_RDWR,
                                [SDC_FILE_NEW] = O_RDWR | O_CREAT | O_EXCL,
                                [SDC_FILE_APPEND] = O_WRONLY | O_CREAT | O_APPEND};
    *f = (struct sdc_file)SDC_FILE_INIT;
    if (flags[mode] & O_CREAT) {
        int code = sdc__io_before(SDC_IO_OP_CREATE, path);
        if (code)
            return SDC_ERR_SYS(err, SDC_IO, code, "%s: create", path);
    }
    /* O_NONBLOCK so that a named pipe does not hang us before it is refused below */
    int fd;
    do
        fd = open(path, flags[mode] | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    while (fd < 0 && errno == EINTR); /* network file systems wait, and can be interrupted */
    if (fd < 0)
        return open_failed(path, errno, err);

    enum sdc_status st = SDC_OK;
    struct stat s;
    if (fstat(fd, &s) != 0) {
        st = SDC_ERR_SYS(err, SDC_IO, errno, "%s: stat", path);
        goto out;
    }
    if (!S_ISREG(s.st_mode)) {
        st = SDC_ERR(err, SDC_UNSUPPORTED, "%s: %s, expected a file", path,
                     S_ISDIR(s.st_mode) ? "a folder" : "not a regular file");
        goto out;
    }
    f->path = sdc__strdup(path);
    if (!f->path) {
        st = SDC_NOMEM(err, path);
        goto out;
    }
    f->size = (uint64_t)s.st_size;
    f->fd = fd;
out:
    if (st != SDC_OK) {
        (void)close(fd);
        if (mode == SDC_FILE_NEW)
            (void)unlink(path);
    }
    return st;
}

void sdc__reserve_streams(void) {
    int fd;
    do /* not O_CLOEXEC: a program executed from this one is as exposed */
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

void sdc__survive_size_limit(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGXFSZ, &ignore, NULL);
}

enum sdc_status sdc__file_temp(struct sdc_file *f, struct sdc_error *err) {
    const char *folder = secure_getenv("TMPDIR");
    folder = folder && *folder ? folder : "/tmp";
    *f = (struct sdc_file)SDC_FILE_INIT;
    char *path = sdc__asprintf("%s/sdclab-XXXXXX", folder);
    if (!path)
        return SDC_NOMEM(err, folder);
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) { /* not every file system can */
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0)
            (void)unlink(path);
    }
    if (fd < 0) {
        enum sdc_status st = SDC_ERR_SYS(err, SDC_IO, errno, "%s: a temporary file", folder);
        sdc__free(path);
        return st;
    }
    f->fd = fd;
    f->path = path;
    return SDC_OK;
}

bool sdc__file_is_open(const struct sdc_file *f) {
    return f->fd >= 0 || f->pooled;
}

enum sdc_status sdc__file_hold(const struct sdc_file *f, int *fd, struct sdc_error *err) {
    *fd = f->fd;
    return f->pooled ? sdc__pooled_hold(f->pooled, f->path, fd, err) : SDC_OK;
}

void sdc__file_let(const struct sdc_file *f) {
    if (f->pooled)
        sdc__pooled_let(f->pooled);
}

void sdc__file_close(struct sdc_file *f) {
    if (f->fd >= 0)
        (void)close(f->fd);
    if (f->pooled)
        sdc__pooled_close(f->pooled);
    sdc__free(f->path);
    *f = (struct sdc_file)SDC_FILE_INIT;
}

static enum sdc_status read_all(const struct sdc_file *f, int fd, uint64_t offset, void *data,
                                size_t len, struct sdc_error *err) {
    char *p = data;
    uint64_t at = offset;
    if (offset > INT64_MAX || len > (uint64_t)INT64_MAX - offset)
        return SDC_ERR_AT(err, SDC_INVALID, -1, "%s: %zu bytes at %llu are beyond any file",
                          f->path, len, (unsigned long long)offset);
    while (len > 0) {
        int code = sdc__io_before_read(f->path);
        ssize_t got = -1;
        if (!code) {
            got = pread(fd, p, portion(len), (off_t)at);
            code = got < 0 ? errno : 0;
        }
        if (code == EINTR)
            continue;
        if (code)
            return SDC_ERR_SYS(err, SDC_IO, code, "%s: read at %llu", f->path,
                               (unsigned long long)at);
        if (got == 0)
            return SDC_ERR_AT(err, SDC_INVALID, at,
                              "%s: truncated: ends at %llu, %zu more bytes were expected", f->path,
                              (unsigned long long)at, len);
        p += got;
        at += (uint64_t)got;
        len -= (size_t)got;
    }
    return SDC_OK;
}

enum sdc_status sdc__file_read(const struct sdc_file *f, uint64_t offset, void *data, size_t len,
                               struct sdc_error *err) {
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = read_all(f, fd, offset, data, len, err);
    sdc__file_let(f);
    return st;
}

static enum sdc_status write_all(struct sdc_file *f, int fd, uint64_t offset, const void *data,
                                 size_t len, struct sdc_error *err) {
    const char *p = data;
    uint64_t at = offset;
    if (offset > INT64_MAX || len > (uint64_t)INT64_MAX - offset)
        return SDC_ERR_SYS(err, SDC_IO, EFBIG, "%s: write at %llu", f->path,
                           (unsigned long long)offset);
    while (len > 0) {
        int code = sdc__io_before(SDC_IO_OP_WRITE, f->path);
        ssize_t put = -1;
        if (!code) {
            put = pwrite(fd, p, portion(len), (off_t)at);
            code = put < 0 ? errno : put == 0 ? EIO : 0;
        }
        if (code == EINTR)
            continue;
        if (code)
            return SDC_ERR_SYS(err, SDC_IO, code, "%s: write at %llu", f->path,
                               (unsigned long long)at);
        p += put;
        at += (uint64_t)put;
        len -= (size_t)put;
        if (at > f->size)
            f->size = at;
    }
    return SDC_OK;
}

enum sdc_status sdc__file_write(struct sdc_file *f, uint64_t offset, const void *data, size_t len,
                                struct sdc_error *err) {
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = write_all(f, fd, offset, data, len, err);
    sdc__file_let(f);
    return st;
}

static enum sdc_status append_all(struct sdc_file *f, int fd, const void *data, size_t len,
                                  struct sdc_error *err) {
    const char *p = data;
    while (len > 0) {
        int code = sdc__io_before(SDC_IO_OP_WRITE, f->path);
        ssize_t put = -1;
        if (!code) {
            /* not pwrite: on Linux that ignores its offset under O_APPEND, elsewhere not; and a
             * file opened as new has no O_APPEND but one writer */
            if (lseek(fd, 0, SEEK_END) >= 0)
                put = write(fd, p, portion(len));
            code = put < 0 ? errno : put == 0 ? EIO : 0;
        }
        if (code == EINTR)
            continue;
        if (code)
            return SDC_ERR_SYS(err, SDC_IO, code, "%s: append", f->path);
        p += put;
        len -= (size_t)put;
        f->size += (uint64_t)put;
    }
    return SDC_OK;
}

enum sdc_status sdc__file_append(struct sdc_file *f, const void *data, size_t len,
                                 struct sdc_error *err) {
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = append_all(f, fd, data, len, err);
    sdc__file_let(f);
    return st;
}

static enum sdc_status set_size(struct sdc_file *f, int fd, uint64_t size, struct sdc_error *err) {
    int code;
    do {
        code = size > INT64_MAX ? EFBIG : sdc__io_before(SDC_IO_OP_TRUNCATE, f->path);
        if (!code && ftruncate(fd, (off_t)size) != 0)
            code = errno;
    } while (code == EINTR);
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: set the size to %llu", f->path,
                           (unsigned long long)size);
    f->size = size;
    return SDC_OK;
}

enum sdc_status sdc__file_truncate(struct sdc_file *f, uint64_t size, struct sdc_error *err) {
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = set_size(f, fd, size, err);
    sdc__file_let(f);
    return st;
}

static enum sdc_status sync_file(const struct sdc_file *f, int fd, struct sdc_error *err) {
    int code;
    /* after a failed fsync the kernel may have dropped the pages: never retried, always reported;
     * but one that was interrupted has not failed yet */
    do {
        code = sdc__io_before(SDC_IO_OP_SYNC, f->path);
        if (!code && fsync(fd) != 0)
            code = errno;
    } while (code == EINTR);
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: sync", f->path);
    return SDC_OK;
}

enum sdc_status sdc__file_sync(const struct sdc_file *f, struct sdc_error *err) {
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = sync_file(f, fd, err);
    sdc__file_let(f);
    return st;
}

static enum sdc_status lock_file(struct sdc_file *f, int fd, bool exclusive,
                                 struct sdc_error *err) {
    int rc;
    do
        rc = flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return SDC_OK;
    int code = errno;
    if (code == EWOULDBLOCK)
        return SDC_ERR(err, SDC_BUSY, "%s: another process holds %s lock on it", f->path,
                       exclusive ? "a" : "an exclusive");
    if (code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP || code == EINVAL)
        return SDC_ERR_SYS(err, SDC_UNSUPPORTED, code, "%s: its file system has no locks", f->path);
    return SDC_ERR_SYS(err, SDC_IO, code, "%s: lock", f->path);
}

enum sdc_status sdc__file_lock(struct sdc_file *f, bool exclusive, struct sdc_error *err) {
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = lock_file(f, fd, exclusive, err);
    if (st == SDC_OK && f->pooled)
        sdc__pooled_locked(f->pooled, exclusive);
    sdc__file_let(f);
    return st;
}

/* The next bytes that are stored from `at` on, before `size`; holes read as zeros anyway. */
static void next_data(int fd, uint64_t at, uint64_t size, uint64_t *from, uint64_t *end) {
    *from = at;
    *end = size;
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);
    if (data < 0 && errno == ENXIO)
        *from = size;
    if (data < 0 || (uint64_t)data >= size)
        return;
    *from = (uint64_t)data;
    off_t hole = lseek(fd, data, SEEK_HOLE);
    if (hole > data && (uint64_t)hole < size)
        *end = (uint64_t)hole;
}

/* 1: done, 0: this way does not work here, -1: failed with errno. *done counts bytes. */
static int copy_range(const struct sdc_file *from, const struct sdc_file *to, uint64_t *done,
                      uint64_t end) {
    while (*done < end) {
        off_t in = (off_t)*done, out = (off_t)*done;
        ssize_t n = copy_file_range(from->fd, &in, to->fd, &out, portion(end - *done), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG ? -1 : 0;
        if (n == 0) /* shortened meanwhile, or a file system that pretends: reading will tell */
            return 0;
        *done += (uint64_t)n;
    }
    return 1;
}

/* The same for all of the file; holes stay holes in a `to` that is empty. */
static int copy_in_kernel(const struct sdc_file *from, const struct sdc_file *to, uint64_t *done) {
    if (ioctl(to->fd, FICLONE, from->fd) == 0) {
        *done = from->size;
        return 1;
    }
    int rc = 1;
    while (rc > 0 && *done < from->size) {
        uint64_t first = *done, end = from->size;
        if (to->size == 0)
            next_data(from->fd, *done, from->size, &first, &end);
        *done = first;
        rc = copy_range(from, to, done, end);
    }
    return rc;
}

enum sdc_status sdc__file_zero_tail(const struct sdc_file *f, uint64_t most, uint64_t *n,
                                    struct sdc_error *err) {
    enum { BLOCK = 1 << 16 };
    enum sdc_status st = SDC_OK;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    *n = 0;
    if (!block)
        return SDC_NOMEM(err, f->path);
    most = most < f->size ? most : f->size;
    while (*n < most) {
        size_t len = most - *n < BLOCK ? (size_t)(most - *n) : BLOCK, zeros = 0;
        SDC_TRY_OUT(st, sdc__file_read(f, f->size - *n - len, block, len, err));
        while (zeros < len && block[len - 1 - zeros] == 0)
            zeros++;
        *n += zeros;
        if (zeros < len)
            break;
    }
out:
    sdc__free(block);
    return st;
}

enum sdc_status sdc__file_copy(const struct sdc_file *from, struct sdc_file *to,
                               struct sdc_error *err) {
    uint64_t done = 0;
    int code;
    do
        code = sdc__io_before(SDC_IO_OP_WRITE, to->path);
    while (code == EINTR);
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: copy from %s", to->path, from->path);
    int rc = copy_in_kernel(from, to, &done);
    if (rc < 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: copy from %s", to->path, from->path);
    struct stat s;
    if (fstat(to->fd, &s) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: stat", to->path);
    if ((uint64_t)s.st_size < done) /* ends with a hole */
        SDC_TRY(sdc__file_truncate(to, done, err));
    if (to->size < done)
        to->size = done;
    if (rc > 0)
        return SDC_OK;

    enum sdc_status st = SDC_OK;
    size_t block = (size_t)1 << 20;
    char *buffer = sdc__alloc(block, 1);
    if (!buffer)
        return SDC_NOMEM(err, "copying a file");
    while (st == SDC_OK && done < from->size) {
        size_t n = from->size - done < block ? (size_t)(from->size - done) : block;
        st = sdc__file_read(from, done, buffer, n, err);
        if (st == SDC_OK)
            st = sdc__file_write(to, done, buffer, n, err);
        done += n;
    }
    sdc__free(buffer);
    return st;
}

static enum sdc_status map_file(const struct sdc_file *f, int fd, int flags, struct sdc_map *map,
                                struct sdc_error *err) {
    *map = (struct sdc_map){0};
    struct stat s;
    if (fstat(fd, &s) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: stat", f->path);
    if ((uint64_t)s.st_size < f->size)
        return SDC_ERR(err, SDC_INVALID, "%s: became shorter: %llu bytes, had %llu", f->path,
                       (unsigned long long)s.st_size, (unsigned long long)f->size);
    if (f->size > SIZE_MAX)
        return SDC_ERR(err, SDC_LIMIT, "%s: too large to map", f->path);
    if (f->size == 0)
        return SDC_OK;
    void *p = mmap(NULL, (size_t)f->size, PROT_READ, flags, fd, 0);
    if (p == MAP_FAILED)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: map", f->path);
    *map = (struct sdc_map){.data = p, .size = (size_t)f->size};
    return SDC_OK;
}

enum sdc_status sdc__file_map(const struct sdc_file *f, struct sdc_map *map,
                              struct sdc_error *err) {
    int fd;
    const int code = sdc__io_before_read(f->path);
    *map = (struct sdc_map){0};
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: map", f->path);
    SDC_TRY(sdc__file_hold(f, &fd, err));
    enum sdc_status st = map_file(f, fd, MAP_PRIVATE, map, err);
    sdc__file_let(f);
    return st;
}

bool sdc__file_view(const struct sdc_file *f, struct sdc_map *map) {
    int fd;
    *map = (struct sdc_map){0};
    if (sdc__file_hold(f, &fd, NULL) != SDC_OK)
        return false;
    enum sdc_status st = map_file(f, fd, MAP_SHARED, map, NULL);
    sdc__file_let(f);
    if (st == SDC_OK && map->data) /* single sites are looked at, not the file */
        (void)madvise((void *)(uintptr_t)map->data, map->size, MADV_RANDOM);
    return st == SDC_OK && map->data;
}

void sdc__file_unmap(struct sdc_map *map) {
    if (map->data)
        (void)munmap((void *)(uintptr_t)map->data, map->size);
    *map = (struct sdc_map){0};
}
