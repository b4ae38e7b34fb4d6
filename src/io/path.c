/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

#define MAX_DEPTH 64 /* of folders that remove_tree enters; each holds one descriptor */

char *sdc__path_dir(const char *path) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    if (len == 0)
        return sdc__strdup(".");
    while (len > 1 && path[len - 1] == '/')
        len--;
    return sdc__strndup(path, len);
}

const char *sdc__path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *sdc__path_named(const char *path) {
    char real[PATH_MAX];
    size_t len = strlen(path);
    for (;;) { /* "a/" and "a/." are "a" */
        while (len > 1 && path[len - 1] == '/')
            len--;
        if (len < 3 || path[len - 1] != '.' || path[len - 2] != '/')
            break;
        len--;
    }
    char *text = sdc__strndup(path, len);
    const char *last = text ? sdc__path_base(text) : "";
    if ((strcmp(last, ".") == 0 || strcmp(last, "..") == 0) && realpath(text, real) && real[1]) {
        const bool here = strcmp(text, ".") == 0;
        char *named =
            sdc__asprintf("%s%s../%s", here ? "" : text, here ? "" : "/", sdc__path_base(real));
        sdc__free(text);
        text = named;
    }
    return text;
}

char *sdc__path_join(const char *dir, const char *name) {
    if (!dir[0] || name[0] == '/')
        return sdc__strdup(name);
    return sdc__asprintf("%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", name);
}

bool sdc__path_exists(const char *path) {
    return access(path, F_OK) == 0;
}

bool sdc__path_is_dir(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool sdc__path_leaves(const char *folder, const char *path) {
    char root[PATH_MAX], real[PATH_MAX];
    if (!realpath(folder, root) || !realpath(path, real))
        return false;
    const size_t n = root[1] ? strlen(root) : 0; /* "/" has its slash in front of all names */
    return strncmp(real, root, n) != 0 || real[n] != '/';
}

static enum sdc_status make_one(const char *path, struct sdc_error *err) {
    if (sdc__path_is_dir(path))
        return SDC_OK;
    int code = sdc__io_before(SDC_IO_OP_MKDIR, path);
    if (!code && mkdir(path, 0777) != 0)
        code = errno;
    if (code && !(code == EEXIST && sdc__path_is_dir(path)))
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: make the folder", path);
    return SDC_OK;
}

enum sdc_status sdc__make_dirs(const char *path, struct sdc_error *err) {
    char *p = sdc__strdup(path);
    if (!p)
        return SDC_NOMEM(err, path);
    enum sdc_status st = SDC_OK;
    for (size_t i = 1; st == SDC_OK && p[0] && p[i]; i++) {
        if (p[i] != '/' || p[i - 1] == '/')
            continue;
        p[i] = '\0';
        st = make_one(p, err);
        p[i] = '/';
    }
    if (st == SDC_OK)
        st = make_one(path, err);
    sdc__free(p);
    return st;
}

enum sdc_status sdc__remove_file(const char *path, struct sdc_error *err) {
    int code = sdc__io_before(SDC_IO_OP_REMOVE, path);
    if (!code && unlink(path) != 0)
        code = errno;
    if (code && code != ENOENT)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: remove", path);
    return SDC_OK;
}

static enum sdc_status remove_at(int parent, const char *name, const char *shown, unsigned depth,
                                 struct sdc_error *err);

/* Empties the folder that fd is open on; takes fd. */
static enum sdc_status empty_dir(int fd, const char *shown, unsigned depth, struct sdc_error *err) {
    DIR *d = fdopendir(fd);
    if (!d) {
        int code = errno;
        (void)close(fd);
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: list", shown);
    }
    enum sdc_status st = SDC_OK;
    const struct dirent *e;
    while (st == SDC_OK && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            st = remove_at(dirfd(d), e->d_name, shown, depth + 1, err);
    (void)closedir(d);
    return st;
}

static enum sdc_status remove_at(int parent, const char *name, const char *shown, unsigned depth,
                                 struct sdc_error *err) {
    if (depth > MAX_DEPTH)
        return SDC_ERR(err, SDC_LIMIT, "%s: folders nested deeper than %d", shown, MAX_DEPTH);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int flags = 0;
    if (fd >= 0) {
        SDC_TRY(empty_dir(fd, shown, depth, err));
        flags = AT_REMOVEDIR;
    } else if (errno == ENOENT) {
        return SDC_OK;
    } else if (errno != ENOTDIR && errno != ELOOP) {
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: open %s in it", shown, name);
    }
    int code = sdc__io_before(SDC_IO_OP_REMOVE, name);
    if (!code && unlinkat(parent, name, flags) != 0)
        code = errno;
    if (code && code != ENOENT)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: remove %s in it", shown, name);
    return SDC_OK;
}

enum sdc_status sdc__remove_tree(const char *path, struct sdc_error *err) {
    return remove_at(AT_FDCWD, path, path, 0, err);
}

enum sdc_status sdc__rename(const char *from, const char *to, struct sdc_error *err) {
    int code = sdc__io_before(SDC_IO_OP_RENAME, to);
    if (!code && rename(from, to) != 0)
        code = errno;
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: rename to %s", from, to);
    return SDC_OK;
}

enum sdc_status sdc__dir_sync(const char *dir, struct sdc_error *err) {
    int code;
    do {
        code = sdc__io_before(SDC_IO_OP_DIR_SYNC, dir);
        if (code)
            continue;
        int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) != 0)
            code = errno;
        if (fd >= 0)
            (void)close(fd);
    } while (code == EINTR);
    /* some network file systems cannot sync a folder and need not */
    if (code && code != EINVAL && code != ENOTSUP)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: sync the folder", dir);
    return SDC_OK;
}

enum sdc_status sdc__parent_sync(const char *path, struct sdc_error *err) {
    char *dir = sdc__path_dir(path);
    if (!dir)
        return SDC_NOMEM(err, path);
    enum sdc_status st = sdc__dir_sync(dir, err);
    sdc__free(dir);
    return st;
}
