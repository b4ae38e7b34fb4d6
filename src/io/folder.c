/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole folders: new ones that appear under their name only when they are complete, and lists of
 * what is in one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "io/temp.h"

#define MAX_DEPTH 32

/* ---- a new folder ---- */

enum sdc_status sdc__new_folder_begin(const char *target, bool sync, struct sdc_new_folder *f,
                                      struct sdc_error *err) {
    *f = (struct sdc_new_folder)SDC_NEW_FOLDER_INIT;
    f->sync = sync;
    if (sdc__path_exists(target))
        return SDC_ERR(err, SDC_EXISTS, "%s: exists already", target);
    char *dir = sdc__path_dir(target);
    f->target = sdc__strdup(target);
    enum sdc_status st = dir && f->target ? SDC_OK : SDC_NOMEM(err, target);
    if (st == SDC_OK && !sdc__path_is_dir(dir))
        st = SDC_ERR(err, SDC_NOT_FOUND, "%s: there is no folder %s", target, dir);
    if (st == SDC_OK)
        (void)sdc__temp_sweep(dir);
    for (int i = 0; st == SDC_OK && !f->path; i++) {
        char *path = sdc__temp_name(dir);
        if (!path) {
            st = SDC_NOMEM(err, target);
            break;
        }
        int code = sdc__io_before(SDC_IO_OP_MKDIR, path);
        if (!code && mkdir(path, 0777) != 0)
            code = errno;
        if (!code)
            f->path = path;
        else
            sdc__free(path);
        if (code && (code != EEXIST || i >= SDC_TEMP_TRIES))
            st = SDC_ERR_SYS(err, code == ENOENT ? SDC_NOT_FOUND : SDC_IO, code, "%s: create",
                             target);
    }
    if (st == SDC_OK) {
        f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (f->fd >= 0)
            (void)flock(f->fd, LOCK_EX | LOCK_NB); /* where it fails, so does nothing */
    }
    sdc__free(dir);
    if (st != SDC_OK)
        sdc__new_folder_abandon(f);
    return st;
}

static enum sdc_status sync_folders(const char *path, unsigned depth, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    DIR *d = depth < MAX_DEPTH ? opendir(path) : NULL;
    if (!d)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: open the folder", path);
    const struct dirent *e;
    while (st == SDC_OK && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *below = sdc__path_join(path, e->d_name);
        if (!below)
            st = SDC_NOMEM(err, path);
        else if (sdc__path_is_dir(below))
            st = sync_folders(below, depth + 1, err);
        sdc__free(below);
    }
    (void)closedir(d);
    return st == SDC_OK ? sdc__dir_sync(path, err) : st;
}

enum sdc_status sdc__new_folder_commit(struct sdc_new_folder *f, struct sdc_error *err) {
    if (f->sync)
        SDC_TRY(sync_folders(f->path, 0, err));
    int code = sdc__io_before(SDC_IO_OP_RENAME, f->target);
    if (!code && renameat2(AT_FDCWD, f->path, AT_FDCWD, f->target, RENAME_NOREPLACE) != 0)
        code = errno;
    if (code == EINVAL || code == ENOSYS) /* rename replaces an empty folder at most */
        code = rename(f->path, f->target) == 0 ? 0 : errno;
    if (code == EEXIST || code == ENOTEMPTY)
        return SDC_ERR(err, SDC_EXISTS, "%s: exists already", f->target);
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: rename the finished folder to it", f->target);
    sdc__free(f->path);
    f->path = NULL;
    return f->sync ? sdc__parent_sync(f->target, err) : SDC_OK;
}

void sdc__new_folder_abandon(struct sdc_new_folder *f) {
    if (f->path) {
        enum sdc_status st = sdc__remove_tree(f->path, NULL);
        (void)st; /* what is left is stale, and swept by the next run */
    }
    if (f->fd >= 0)
        (void)close(f->fd);
    sdc__free(f->path);
    sdc__free(f->target);
    *f = (struct sdc_new_folder)SDC_NEW_FOLDER_INIT;
}

/* ---- listing ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum sdc_status names_of(const char *path, char ***names, size_t *n, struct sdc_error *err) {
    size_t cap = 0;
    *names = NULL;
    *n = 0;
    DIR *d = opendir(path);
    if (!d)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: open the folder", path);
    enum sdc_status st = SDC_OK;
    const struct dirent *e;
    while (st == SDC_OK && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            sdc__temp_is_ours(e->d_name))
            continue;
        if (*n == cap) {
            cap = cap ? cap * 2 : 16;
            char **more = sdc__realloc(*names, cap, sizeof *more);
            if (!more) {
                st = SDC_NOMEM(err, path);
                break;
            }
            *names = more;
        }
        (*names)[*n] = sdc__strdup(e->d_name);
        if (!(*names)[*n])
            st = SDC_NOMEM(err, path);
        else
            (*n)++;
    }
    (void)closedir(d);
    if (*n > 1)
        qsort(*names, *n, sizeof **names, by_name);
    return st;
}

static enum sdc_status list_below(const char *folder, const char *prefix, bool deep, unsigned depth,
                                  sdc__file_fn *take, void *user, struct sdc_error *err) {
    char **names;
    size_t n;
    if (depth > MAX_DEPTH)
        return SDC_ERR(err, SDC_LIMIT, "%s: folders nested deeper than %d", folder, MAX_DEPTH);
    enum sdc_status st = names_of(folder, &names, &n, err);
    for (size_t i = 0; st == SDC_OK && i < n; i++) {
        char *path = sdc__path_join(folder, names[i]);
        char *name = *prefix ? sdc__path_join(prefix, names[i]) : sdc__strdup(names[i]);
        struct stat s;
        if (!path || !name)
            st = SDC_NOMEM(err, folder);
        else if (lstat(path, &s) == 0 && S_ISDIR(s.st_mode)) /* a link to a folder may be a loop */
            st = deep ? list_below(path, name, true, depth + 1, take, user, err) : SDC_OK;
        else if (stat(path, &s) == 0 && S_ISREG(s.st_mode))
            st = take(user, path, name, err);
        sdc__free(path);
        sdc__free(name);
    }
    for (size_t i = 0; i < n; i++)
        sdc__free(names[i]);
    sdc__free(names);
    return st;
}

enum sdc_status sdc__list_files(const char *folder, bool deep, sdc__file_fn *take, void *user,
                                struct sdc_error *err) {
    return list_below(folder, "", deep, 0, take, user, err);
}

bool sdc__path_is_below(const char *name) {
    if (*name == '/' || *name == '\0')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

/* ---- a second name ---- */

enum sdc_status sdc__keep_original(const char *path, char **kept, struct sdc_error *err) {
    for (unsigned i = 1;; i++) {
        char *name = i == 1 ? sdc__asprintf("%s.orig", path) : sdc__asprintf("%s.%u.orig", path, i);
        if (!name)
            return SDC_NOMEM(err, path);
        int code = sdc__io_before(SDC_IO_OP_CREATE, name);
        if (!code && link(path, name) != 0)
            code = errno;
        enum sdc_status st = SDC_OK;
        if (code && code != EEXIST)
            st = SDC_ERR_SYS(err, code == EPERM || code == EOPNOTSUPP ? SDC_UNSUPPORTED : SDC_IO,
                             code, "%s: keep the original under this name", name);
        if (code == 0)
            *kept = name;
        else
            sdc__free(name);
        if (code != EEXIST)
            return st;
    }
}
