/* SPDX-License-Identifier: Apache-2.0 */
#include "io/temp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"

#define TEMP_PREFIX ".sdc-tmp."

/* Process ids mean something on one machine only, and folders may be shared between machines. */
static uint32_t host_hash(void) {
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    return sdc__hash32(name, strlen(name));
}

/* ".sdc-tmp.HHHHHHHH.PID.N" */
static bool parse_temp(const char *name, uint32_t *host, long long *pid) {
    const size_t prefix = strlen(TEMP_PREFIX);
    unsigned char raw[4];
    char digits[9] = "", text[64];
    long long n;
    if (strncmp(name, TEMP_PREFIX, prefix) != 0 || strlen(name) < prefix + 9)
        return false;
    memcpy(digits, name + prefix, 8);
    if (name[prefix + 8] != '.' || !sdc__hex_decode(digits, sizeof raw, raw))
        return false;
    *host =
        (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | (uint32_t)raw[3];
    const char *rest = name + prefix + 9;
    const char *dot = strchr(rest, '.');
    if (!dot || (size_t)(dot - rest) >= sizeof text)
        return false;
    memcpy(text, rest, (size_t)(dot - rest));
    text[dot - rest] = '\0';
    return sdc__parse_i64(text, pid) && *pid > 0 && *pid <= INT32_MAX &&
           sdc__parse_i64(dot + 1, &n) && n >= 0;
}

bool sdc__temp_is_ours(const char *name) {
    uint32_t host;
    long long pid;
    return parse_temp(name, &host, &pid);
}

bool sdc__temp_is_stale(const char *name) {
    uint32_t host;
    long long pid;
    return parse_temp(name, &host, &pid) && host == host_hash() && kill((pid_t)pid, 0) != 0 &&
           errno == ESRCH;
}

/* A living owner holds a lock: the process id alone would mislead between containers that share a
 * folder and a host name. */
static bool is_locked(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return locked;
}

static bool sweep_one(const char *folder, int dir, const char *name) {
    if (unlinkat(dir, name, 0) == 0)
        return true;
    if (errno != EISDIR && errno != EPERM) /* of a folder: Linux, POSIX */
        return false;
    char *path = sdc__path_join(folder, name);
    bool gone = path && sdc__remove_tree(path, NULL) == SDC_OK;
    sdc__free(path);
    return gone;
}

unsigned sdc__temp_sweep(const char *folder) {
    DIR *d = opendir(folder);
    if (!d)
        return 0;
    unsigned n = 0;
    const struct dirent *e;
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] == '.' && sdc__temp_is_stale(e->d_name) &&
            !is_locked(dirfd(d), e->d_name) && sweep_one(folder, dirfd(d), e->d_name))
            n++;
    (void)closedir(d);
    return n;
}

/* The path that the rename must hit: the file behind a symbolic link, else path itself. */
static enum sdc_status resolve_target(const char *path, char **target, struct sdc_error *err) {
    struct stat s;
    if (lstat(path, &s) == 0 && S_ISLNK(s.st_mode)) {
        char *real = realpath(path, NULL);
        if (!real)
            return SDC_ERR_SYS(err, errno == ENOENT ? SDC_NOT_FOUND : SDC_IO, errno,
                               "%s: follow the link", path);
        *target = sdc__strdup(real);
        free(real); /* realpath allocates with the system's malloc */
    } else {
        *target = sdc__strdup(path);
    }
    return *target ? SDC_OK : SDC_NOMEM(err, path);
}

char *sdc__temp_name(const char *folder) {
    static atomic_uint serial;
    return sdc__asprintf("%s/" TEMP_PREFIX "%08x.%ld.%u", folder, (unsigned)host_hash(),
                         (long)getpid(),
                         atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed));
}

static enum sdc_status create_temp(const char *dir, struct sdc_file *f, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    for (int i = 0; i < SDC_TEMP_TRIES; i++) {
        char *path = sdc__temp_name(dir);
        if (!path)
            return SDC_NOMEM(err, dir);
        st = sdc__file_open(path, SDC_FILE_NEW, f, err);
        sdc__free(path);
        if (st != SDC_EXISTS)
            break;
    }
    return st;
}

enum sdc_status sdc__replace_begin(const char *path, bool may_replace, struct sdc_replace *r,
                                   struct sdc_error *err) {
    *r = (struct sdc_replace)SDC_REPLACE_INIT;
    enum sdc_status st;
    char *dir = NULL;
    struct stat s;
    r->may_replace = may_replace;
    const size_t len = strlen(path);
    if (len > 0 && path[len - 1] == '/' && !sdc__path_is_dir(path)) {
        st = SDC_ERR(err, SDC_USAGE, "%s: ends with a slash, expected the name of a file", path);
        goto out;
    }
    SDC_TRY_OUT(st, resolve_target(path, &r->target, err));
    if (stat(r->target, &s) == 0) {
        if (S_ISDIR(s.st_mode)) {
            st = SDC_ERR(err, SDC_EXISTS, "%s: a folder, expected a file or nothing", path);
            goto out;
        }
        if (!S_ISREG(s.st_mode)) { /* the rename would put a file in the place of /dev/null */
            st = SDC_ERR(err, SDC_EXISTS, "%s: not a regular file, expected a file or nothing",
                         path);
            goto out;
        }
        if (!may_replace) {
            st = SDC_ERR(err, SDC_EXISTS, "%s: exists already", path);
            goto out;
        }
    }
    dir = sdc__path_dir(r->target);
    if (!dir) {
        st = SDC_NOMEM(err, path);
        goto out;
    }
    if (!sdc__path_is_dir(dir)) {
        st = SDC_ERR(err, SDC_NOT_FOUND, "%s: there is no folder %s", path, dir);
        goto out;
    }
    (void)sdc__temp_sweep(dir);
    st = create_temp(dir, &r->file, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s", path);
        goto out;
    }
    (void)flock(r->file.fd, LOCK_EX | LOCK_NB); /* see is_locked; where it fails, so does nothing */
out:
    sdc__free(dir);
    if (st != SDC_OK)
        sdc__replace_abandon(r);
    return st;
}

/* Puts the temporary in its place without ever replacing a file that appeared meanwhile. */
static int rename_new(const char *from, const char *to) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* not on this file system: link fails if the name exists, which is as good */
    if (link(from, to) == 0) {
        (void)unlink(from);
        return 0;
    }
    if (errno == EEXIST)
        return EEXIST;
    return rename(from, to) == 0 ? 0 : errno; /* no hard links either */
}

enum sdc_status sdc__replace_commit(struct sdc_replace *r, bool sync, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    struct stat s;
    if (r->may_replace && stat(r->target, &s) == 0)
        (void)fchmod(r->file.fd, s.st_mode & ~r->withheld &
                                     07777); /* not ours to change: the mode then differs */
    if (sync)
        SDC_TRY_OUT(st, sdc__file_sync(&r->file, err));
    int code = sdc__io_before(SDC_IO_OP_RENAME, r->target);
    if (!code && r->may_replace)
        code = rename(r->file.path, r->target) == 0 ? 0 : errno;
    else if (!code)
        code = rename_new(r->file.path, r->target);
    if (code == EEXIST && !r->may_replace) {
        st = SDC_ERR(err, SDC_EXISTS, "%s: exists already", r->target);
        goto out;
    }
    if (code) {
        st = SDC_ERR_SYS(err, SDC_IO, code, "%s: rename the finished file to it", r->target);
        goto out;
    }
    sdc__file_close(&r->file); /* the name is the target's now: abandon must not remove it */
    if (sync)
        st = sdc__parent_sync(r->target, err);
out:
    sdc__replace_abandon(r);
    return st;
}

void sdc__replace_abandon(struct sdc_replace *r) {
    if (r->file.path)
        (void)unlink(r->file.path);
    sdc__file_close(&r->file);
    sdc__free(r->target);
    r->target = NULL;
}
