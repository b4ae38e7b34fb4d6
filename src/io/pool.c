/* SPDX-License-Identifier: Apache-2.0
 *
 * Many files under few descriptors: those that were used longest ago are closed when others are
 * needed, and opened again when they are. A file that is in use by a thread is never closed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "io/pool.h"

#define SPARE 64u /* descriptors left to the rest of the program */
#define SHARE 4u  /* pools that may be full at a time: two checkpoints, and copies of both */
#define LEAST 4u
#define MOST  1024u

struct sdc_pooled {
    struct sdc_file_pool *pool;
    struct sdc_pooled *newer, *older; /* of those that are open */
    int fd;                           /* -1: closed for now */
    int flags;
    int lock; /* of flock; 0: none */
    unsigned users;
    dev_t device;
    ino_t inode;
};

struct sdc_file_pool {
    pthread_mutex_t lock;
    struct sdc_pooled *newest, *oldest;
    unsigned n_open, most;
};

static unsigned most_open(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > SPARE + (rlim_t)SHARE * MOST)
        return MOST;
    const unsigned n = limit.rlim_cur > SPARE ? (unsigned)(limit.rlim_cur - SPARE) / SHARE : 0;
    return n < LEAST ? LEAST : n;
}

struct sdc_file_pool *sdc__file_pool_new(void) {
    struct sdc_file_pool *pool = sdc__calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    (void)pthread_mutex_init(&pool->lock, NULL); /* cannot fail on Linux */
    pool->most = most_open();
    return pool;
}

void sdc__file_pool_free(struct sdc_file_pool *pool) {
    if (pool)
        (void)pthread_mutex_destroy(&pool->lock);
    sdc__free(pool);
}

static void take_out(struct sdc_pooled *p) {
    struct sdc_file_pool *pool = p->pool;
    *(p->newer ? &p->newer->older : &pool->newest) = p->older;
    *(p->older ? &p->older->newer : &pool->oldest) = p->newer;
    p->newer = p->older = NULL;
}

static void put_first(struct sdc_pooled *p) {
    struct sdc_file_pool *pool = p->pool;
    p->older = pool->newest;
    *(p->older ? &p->older->newer : &pool->oldest) = p;
    pool->newest = p;
}

static void close_now(struct sdc_pooled *p) {
    take_out(p);
    (void)close(p->fd);
    p->fd = -1;
    p->pool->n_open--;
}

/* Closes unused files, those of longest ago first, until no more than `most` are open. */
static void close_down_to(struct sdc_file_pool *pool, unsigned most) {
    for (struct sdc_pooled *p = pool->oldest, *next; p && pool->n_open > most; p = next) {
        next = p->newer;
        if (p->users == 0)
            close_now(p);
    }
}

/* The very file that was opened first, with the lock it had. */
static enum sdc_status check_again(const struct sdc_pooled *p, int fd, const char *path,
                                   struct sdc_error *err) {
    struct stat s;
    if (fstat(fd, &s) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: stat", path);
    if (s.st_dev != p->device || s.st_ino != p->inode)
        return SDC_ERR(err, SDC_BUSY, "%s: was replaced by another program while it was in use",
                       path);
    if (p->lock && flock(fd, p->lock | LOCK_NB) != 0)
        return SDC_ERR_SYS(err, SDC_BUSY, errno, "%s: another process has locked it since", path);
    return SDC_OK;
}

static enum sdc_status open_again(struct sdc_pooled *p, const char *path, struct sdc_error *err) {
    struct sdc_file_pool *pool = p->pool;
    int fd;
    close_down_to(pool, pool->most - 1);
    for (;;) {
        fd = open(path, p->flags);
        if (fd >= 0 || (errno != EINTR && errno != EMFILE && errno != ENFILE))
            break;
        if (errno == EINTR)
            continue;
        const unsigned before =
            pool->n_open; /* the rest of the program has more open than planned */
        close_down_to(pool, before / 2);
        if (pool->n_open == before) {
            errno = EMFILE;
            break;
        }
    }
    if (fd < 0)
        return SDC_ERR_SYS(err, errno == ENOENT ? SDC_NOT_FOUND : SDC_IO, errno, "%s: open again",
                           path);
    enum sdc_status st = check_again(p, fd, path, err);
    if (st != SDC_OK) {
        (void)close(fd);
        return st;
    }
    p->fd = fd;
    pool->n_open++;
    put_first(p);
    return SDC_OK;
}

enum sdc_status sdc__pooled_hold(struct sdc_pooled *p, const char *path, int *fd,
                                 struct sdc_error *err) {
    struct sdc_file_pool *pool = p->pool;
    enum sdc_status st = SDC_OK;
    (void)pthread_mutex_lock(&pool->lock);
    if (p->fd < 0) {
        st = open_again(p, path, err);
    } else if (pool->newest != p) {
        take_out(p);
        put_first(p);
    }
    p->users += st == SDC_OK;
    *fd = p->fd;
    (void)pthread_mutex_unlock(&pool->lock);
    return st;
}

void sdc__pooled_let(struct sdc_pooled *p) {
    (void)pthread_mutex_lock(&p->pool->lock);
    p->users--;
    (void)pthread_mutex_unlock(&p->pool->lock);
}

void sdc__pooled_locked(struct sdc_pooled *p, bool exclusive) {
    p->lock = exclusive ? LOCK_EX : LOCK_SH;
}

void sdc__pooled_close(struct sdc_pooled *p) {
    (void)pthread_mutex_lock(&p->pool->lock);
    if (p->fd >= 0)
        close_now(p);
    (void)pthread_mutex_unlock(&p->pool->lock);
    sdc__free(p);
}

enum sdc_status sdc__file_pool_open(struct sdc_file_pool *pool, const char *path,
                                    enum sdc_file_mode mode, struct sdc_file *f,
                                    struct sdc_error *err) {
    (void)pthread_mutex_lock(&pool->lock);
    close_down_to(pool, pool->most - 1);
    (void)pthread_mutex_unlock(&pool->lock);
    SDC_TRY(sdc__file_open(path, mode, f, err));
    struct sdc_pooled *p = sdc__calloc(1, sizeof *p);
    struct stat s;
    enum sdc_status st = p ? SDC_OK : SDC_NOMEM(err, path);
    if (st == SDC_OK && fstat(f->fd, &s) != 0)
        st = SDC_ERR_SYS(err, SDC_IO, errno, "%s: stat", path);
    if (st != SDC_OK) {
        sdc__free(p);
        sdc__file_close(f);
        return st;
    }
    *p = (struct sdc_pooled){.pool = pool,
                             .fd = f->fd,
                             .flags = (mode == SDC_FILE_READ ? O_RDONLY : O_RDWR) | O_CLOEXEC |
                                      O_NONBLOCK | O_NOCTTY,
                             .device = s.st_dev,
                             .inode = s.st_ino};
    f->fd = -1;
    f->pooled = p;
    (void)pthread_mutex_lock(&pool->lock);
    pool->n_open++;
    put_first(p);
    (void)pthread_mutex_unlock(&pool->lock);
    return SDC_OK;
}
