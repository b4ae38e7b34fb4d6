/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: reading and writing at 64-bit offsets, atomic replacement, locks, copies, folders, paths.
 * Not for formats: nothing here knows what the bytes mean.
 *
 * Every error names the path. A full disk is SDC_IO with the path and "No space left on device".
 * Every write-class system call passes a seam (sdc__io_test_hook) through which tests fail it or
 * end the process before it; reads pass it too, and both can be cut to short counts. One thread per
 * object; functions without an object are thread-safe.
 *
 *     struct sdc_replace r;
 *     SDC_TRY(sdc__replace_begin(path, false, &r, err));
 *     st = sdc__file_write(&r.file, 0, data, len, err);
 *     if (st == SDC_OK)
 *         return sdc__replace_commit(&r, true, err);
 *     sdc__replace_abandon(&r);
 */
#ifndef SDC_IO_IO_H
#define SDC_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/str.h"
#include "sdc/status.h"

/* ---- one open regular file ---- */

enum sdc_file_mode {
    SDC_FILE_READ,   /* must exist */
    SDC_FILE_UPDATE, /* must exist; read and write, never truncated */
    SDC_FILE_NEW,    /* must not exist (SDC_EXISTS); read and write */
    SDC_FILE_APPEND  /* created if missing; sdc__file_append goes to its end */
};

struct sdc_pooled;

struct sdc_file {
    int fd;                    /* -1: not open, or of a pool */
    uint64_t size;             /* when opened; grows with writes through this object */
    char *path;                /* owned */
    struct sdc_pooled *pooled; /* NULL: stays open; owned */
};

#define SDC_FILE_INIT                                                                              \
    { .fd = -1 }

/* SDC_NOT_FOUND, SDC_EXISTS, SDC_UNSUPPORTED (not a regular file), SDC_IO, SDC_NO_MEMORY. On
 * failure *f is as after SDC_FILE_INIT. Descriptors are close-on-exec. */
enum sdc_status sdc__file_open(const char *path, enum sdc_file_mode mode, struct sdc_file *f,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* A new file without a name, for reading and writing, in $TMPDIR or /tmp; gone when it is closed.
 * SDC_IO, SDC_NO_MEMORY. */
enum sdc_status sdc__file_temp(struct sdc_file *f, struct sdc_error *err) SDC_MUST_CHECK;
/* Accepts a file that is not open; releases locks. */
void sdc__file_close(struct sdc_file *f);

/* Open, or one of a pool, which is opened when needed. */
bool sdc__file_is_open(const struct sdc_file *f);
/* Its descriptor, which stays open until let. */
enum sdc_status sdc__file_hold(const struct sdc_file *f, int *fd,
                               struct sdc_error *err) SDC_MUST_CHECK;
void sdc__file_let(const struct sdc_file *f);

/* Files of which only so many are open at a time as the limit on descriptors allows; the others are
 * opened again when they are used, if they are still the same files (SDC_BUSY). A lock is given up
 * while its file is closed, and taken again. All functions on files but sdc__file_copy take those
 * of a pool; several threads may read them. Close its files before the pool is freed. NULL: no
 * memory. */
struct sdc_file_pool;
struct sdc_file_pool *sdc__file_pool_new(void) SDC_MUST_CHECK;
void sdc__file_pool_free(struct sdc_file_pool *pool); /* accepts NULL */
/* SDC_FILE_READ or SDC_FILE_UPDATE; as sdc__file_open. */
enum sdc_status sdc__file_pool_open(struct sdc_file_pool *pool, const char *path,
                                    enum sdc_file_mode mode, struct sdc_file *f,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* Exactly len bytes from or to this offset, looping over short counts and EINTR, at most 1 GiB in a
 * system call. A read past the end is SDC_INVALID ("truncated"), with the offset. */
enum sdc_status sdc__file_read(const struct sdc_file *f, uint64_t offset, void *data, size_t len,
                               struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__file_write(struct sdc_file *f, uint64_t offset, const void *data, size_t len,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* At the end; for logs. One call is one write where the system allows. */
enum sdc_status sdc__file_append(struct sdc_file *f, const void *data, size_t len,
                                 struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__file_truncate(struct sdc_file *f, uint64_t size,
                                   struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__file_sync(const struct sdc_file *f, struct sdc_error *err) SDC_MUST_CHECK;

/* Advisory whole-file lock (flock, as libhdf5 takes it), not waiting: SDC_BUSY if another open file
 * holds one, in this process too. SDC_UNSUPPORTED where the file system has none. Held until the
 * file is closed. */
enum sdc_status sdc__file_lock(struct sdc_file *f, bool exclusive,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* All of `from` into `to` at offset 0: a reflink or copy_file_range where the file system can, else
 * by reading and writing. Holes of a sparse file stay holes in a `to` that is empty. Nothing is
 * synced. */
enum sdc_status sdc__file_copy(const struct sdc_file *from, struct sdc_file *to,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* How many bytes at the end of the file are zero; at most `most` are looked at. */
enum sdc_status sdc__file_zero_tail(const struct sdc_file *f, uint64_t most, uint64_t *n,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* Read-only, private mapping of a whole file, for scans; NULL data if the file is empty. The size
 * is checked when mapping, but a file that another process shortens afterwards raises SIGBUS on
 * access: use sdc__file_read for anything but a scan of a file this process owns. */
struct sdc_map {
    const unsigned char *data;
    size_t size;
};
enum sdc_status sdc__file_map(const struct sdc_file *f, struct sdc_map *map,
                              struct sdc_error *err) SDC_MUST_CHECK;
/* The same of a file that this process writes to meanwhile, and sees what it wrote. Only where the
 * caller is told that a file which becomes shorter, or cannot be read, ends the process. False
 * where the file system does not map so, or the file is empty. */
bool sdc__file_view(const struct sdc_file *f, struct sdc_map *map) SDC_MUST_CHECK;
void sdc__file_unmap(struct sdc_map *map);

/* Other processes that map one of the open files among these and so see each
 * change at once. As far as /proc shows them: of another user only to root, and in other containers
 * not at all. None where there is no /proc. SDC_NO_MEMORY. */
struct sdc_mappers {
    size_t n;       /* processes */
    uint64_t first; /* the lowest process id of them */
};
enum sdc_status sdc__files_mapped(const struct sdc_file *files, size_t n, struct sdc_mappers *found,
                                  struct sdc_error *err) SDC_MUST_CHECK;

/* ---- whole small files ---- */

/* Appends the contents to out. SDC_LIMIT if longer than limit. Pipes and the like are accepted. */
enum sdc_status sdc__read_whole(const char *path, size_t limit, struct sdc_buf *out,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* The same, inflating if the file is gzip (by its first bytes); limit is on the inflated size. */
enum sdc_status sdc__read_gz(const char *path, size_t limit, struct sdc_buf *out,
                             struct sdc_error *err) SDC_MUST_CHECK;
/* Through an atomic replacement; an existing file is replaced. */
enum sdc_status sdc__write_whole(const char *path, const void *data, size_t len, bool sync,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* ---- atomic replacement ----
 *
 * A temporary file in the folder of the target, named so that a later run recognises it
 * (".sdc-tmp.HOST.PID.N", HOST a hash of the machine's name), written, synced, renamed; then the
 * folder is synced. The old file stays whole until the rename. begin also removes temporaries in
 * that folder whose process on this machine is gone. */
struct sdc_replace {
    struct sdc_file file; /* the temporary, open for reading and writing; its path is the
                             temporary's */
    char *target;         /* owned */
    bool may_replace;
    mode_t withheld; /* mode bits that the file must not take over from one that it replaces */
};

#define SDC_REPLACE_INIT                                                                           \
    { .file = SDC_FILE_INIT }

/* SDC_EXISTS if the target exists and may_replace is false, and if it is anything but a regular
 * file. A target that is a symbolic link is
 * followed, so that the file it names is replaced, in its own folder. */
enum sdc_status sdc__replace_begin(const char *path, bool may_replace, struct sdc_replace *r,
                                   struct sdc_error *err) SDC_MUST_CHECK;
/* Renames; on any failure the temporary is removed and the target is as before (but see sync of
 * the folder: SDC_IO there means the new file is in place and may not survive a power cut). The
 * mode bits of a replaced file are kept. sync false: neither file nor folder is synced. */
enum sdc_status sdc__replace_commit(struct sdc_replace *r, bool sync,
                                    struct sdc_error *err) SDC_MUST_CHECK;
/* Removes the temporary; cannot fail; accepts one after commit or SDC_REPLACE_INIT. */
void sdc__replace_abandon(struct sdc_replace *r);

/* The same for a folder that is new: filled under a temporary name beside the target, then renamed.
 * Nothing is ever replaced. */
struct sdc_new_folder {
    char *path; /* the temporary; NULL: none, or renamed; owned */
    char *target;
    int fd; /* holds the lock that keeps a sweep away */
    bool sync;
};

#define SDC_NEW_FOLDER_INIT                                                                        \
    { .fd = -1 }

enum sdc_status sdc__new_folder_begin(const char *target, bool sync, struct sdc_new_folder *f,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* Syncs the folders (files are the caller's), renames. SDC_EXISTS if the target appeared. */
enum sdc_status sdc__new_folder_commit(struct sdc_new_folder *f,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* Removes it with all it holds; cannot fail; accepts one after commit. */
void sdc__new_folder_abandon(struct sdc_new_folder *f);

/* Gives a file the second name FILE.orig (FILE.2.orig, ... if that is taken); *kept: which, free
 * with sdc__free. SDC_UNSUPPORTED where the file system has no hard links. */
enum sdc_status sdc__keep_original(const char *path, char **kept,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* Is this file name (no folder) a temporary of ours, and is its process gone? */
bool sdc__temp_is_ours(const char *name);
bool sdc__temp_is_stale(const char *name);
/* Removes the stale temporaries of a folder, files and folders with what they hold, unless another
 * holds a lock on them; returns how many. Errors are ignored: it is a favour. */
unsigned sdc__temp_sweep(const char *folder);

/* Fills those of descriptors 0 to 2 that the caller's parent left closed, so that no file opened
 * later gets such a number and then the text that is meant for a standard stream. Writing to them
 * still fails. Call first in main. */
void sdc__reserve_streams(void);

/* A write beyond the limit on file sizes fails with EFBIG, as one on a full disk does, instead of
 * killing the program before it can say so and clean up. Call in main; programs that are executed
 * later inherit it. */
void sdc__survive_size_limit(void);

/* ---- paths and folders ---- */

/* "a/b" of "a/b/c", "." of "c", "/" of "/c"; NULL: no memory. Free with sdc__free. */
char *sdc__path_dir(const char *path) SDC_MUST_CHECK;
/* Pointer to the part after the last slash. */
const char *sdc__path_base(const char *path);
/* The path with a name as its last part, to put something after it: no slashes at the end, and of
 * "." and ".." the name that the folder has in its parent ("../NAME"). NULL: no memory. Free with
 * sdc__free. */
char *sdc__path_named(const char *path) SDC_MUST_CHECK;
/* "a/b" of "a" and "b"; name alone if it is absolute or dir is empty. Free with sdc__free. */
char *sdc__path_join(const char *dir, const char *name) SDC_MUST_CHECK;
bool sdc__path_exists(const char *path); /* follows links; false also where it cannot be asked */
bool sdc__path_is_dir(const char *path);
/* With all parents; no error if it is there. */
enum sdc_status sdc__make_dirs(const char *path, struct sdc_error *err) SDC_MUST_CHECK;
/* No error if there is none. */
enum sdc_status sdc__remove_file(const char *path, struct sdc_error *err) SDC_MUST_CHECK;
/* A folder with all it holds; links are removed, not followed. No error if there is none. */
enum sdc_status sdc__remove_tree(const char *path, struct sdc_error *err) SDC_MUST_CHECK;
/* Calls take for every regular file in a folder, and below it if deep, links to files included, by
 * its path and its name relative to the folder; temporaries of ours are left out. Order is that of
 * the names. */
typedef enum sdc_status sdc__file_fn(void *user, const char *path, const char *name,
                                     struct sdc_error *err);
enum sdc_status sdc__list_files(const char *folder, bool deep, sdc__file_fn *take, void *user,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Is it relative, without a part ".."? */
bool sdc__path_is_below(const char *name);
/* Does a path in this folder lead out of it by symbolic links? false where it cannot be asked. */
bool sdc__path_leaves(const char *folder, const char *path);
/* Replaces an existing target. */
enum sdc_status sdc__rename(const char *from, const char *to, struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__dir_sync(const char *dir, struct sdc_error *err) SDC_MUST_CHECK;
/* The folder that holds path. */
enum sdc_status sdc__parent_sync(const char *path, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- seam for tests ---- */

#define SDC_IO_OP_MAP(X)                                                                           \
    X(CREATE, "create")                                                                            \
    X(WRITE, "write")                                                                              \
    X(TRUNCATE, "truncate")                                                                        \
    X(SYNC, "sync")                                                                                \
    X(RENAME, "rename")                                                                            \
    X(REMOVE, "remove")                                                                            \
    X(MKDIR, "mkdir")                                                                              \
    X(DIR_SYNC, "dir-sync")

enum sdc_io_op {
#define SDC_IO_OP_ENUM(name, text) SDC_IO_OP_##name,
    SDC_IO_OP_MAP(SDC_IO_OP_ENUM)
#undef SDC_IO_OP_ENUM
};

/* Any member but user may be NULL. */
struct sdc_io_hook {
    /* Called before each write-class system call of this thread, n counting them from 1 since the
     * hook was set. Returns 0 to go on, or an errno value with which the call then fails without
     * being made; it may also end the process. */
    int (*before)(void *user, uint64_t n, enum sdc_io_op op, const char *path);
    /* The same before each read and each mapping of a file; n counts these alone. */
    int (*before_read)(void *user, uint64_t n, const char *path);
    /* How many of the len bytes that are left the next read or write asks the system for: 1 to
     * len. What the system then does is a short count. */
    size_t (*cut)(void *user, size_t len);
    void *user;
};

/* NULL removes it. The struct is copied. */
void sdc__io_test_hook(const struct sdc_io_hook *hook);
const char *sdc__io_op_name(enum sdc_io_op op);
/* For code that lets a library write (libhdf5): 0, or the errno the hook wants. */
int sdc__io_before(enum sdc_io_op op, const char *path);
int sdc__io_before_read(const char *path);
size_t sdc__io_cut(size_t len);

/* "zlib built VERSION, running VERSION" of the library behind this file. */
void sdc__gz_library(char *text, size_t size);

#endif
