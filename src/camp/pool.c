/* SPDX-License-Identifier: Apache-2.0 */
#include "camp/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "camp/pool_internal.h"
#include "io/io.h"

#define MS            ((uint64_t)1000000)
#define MAX_WORKERS   1024
#define START_TRIES   3
#define DEFAULT_HELLO 120000
#define DEFAULT_HANG  120000
#define DEFAULT_GRACE 2000

void sdc__pool_task_free(struct sdc_pool_task *task) {
    if (!task)
        return;
    sdc__free((char *)(uintptr_t)task->job.trial);
    sdc__free((char *)(uintptr_t)task->job.path);
    sdc__free((char *)(uintptr_t)task->job.events);
    sdc__free(task);
}

void sdc__pool_result_release(struct sdc_pool_result *r) {
    sdc__free(r->message);
    sdc__free(r->log);
    *r = (struct sdc_pool_result){0};
}

/* ---- making and ending ---- */

/* The folder is short on purpose: a socket's path has room for 107 bytes (unix(7)). */
static enum sdc_status open_socket(struct sdc_pool *pool, struct sdc_error *err) {
    const char *base = getenv("XDG_RUNTIME_DIR");
    if (!base || base[0] != '/' || strlen(base) > 60 || access(base, W_OK) != 0)
        base = getenv("TMPDIR");
    if (!base || base[0] != '/' || strlen(base) > 60 || access(base, W_OK) != 0)
        base = "/tmp";
    char *folder = sdc__asprintf("%s/sdclab-pool-XXXXXX", base);
    if (!folder)
        return SDC_NOMEM(err, "the folder of the socket");
    if (!mkdtemp(folder)) { /* mode 0700 */
        enum sdc_status st = SDC_ERR_SYS(err, SDC_IO, errno, "make a private folder %s", folder);
        sdc__free(folder);
        return st;
    }
    pool->folder = folder;
    pool->socket = sdc__path_join(folder, "s");
    if (!pool->socket)
        return SDC_NOMEM(err, "the path of the socket");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(pool->socket) >= sizeof address.sun_path)
        return SDC_ERR(err, SDC_LIMIT,
                       "the path %s of the workers' socket is too long (%zu bytes "
                       "are allowed)",
                       pool->socket, sizeof address.sun_path - 1);
    memcpy(address.sun_path, pool->socket, strlen(pool->socket) + 1);
    pool->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (pool->listener < 0 ||
        bind(pool->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(pool->listener, 128) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "open the workers' socket %s", pool->socket);
    return SDC_OK;
}

static enum sdc_status copy_options(struct sdc_pool *pool, const struct sdc_pool_options *o,
                                    struct sdc_error *err) {
    while (o->argv[pool->argc])
        pool->argc++;
    pool->argv = sdc__calloc(pool->argc + 1, sizeof *pool->argv);
    pool->workers = sdc__calloc(o->workers, sizeof *pool->workers);
    pool->log_folder = sdc__strdup(o->log_folder);
    if (!pool->argv || !pool->workers || !pool->log_folder)
        return SDC_NOMEM(err, "a pool of workers");
    for (size_t i = 0; i < pool->argc; i++)
        if (!(pool->argv[i] = sdc__strdup(o->argv[i])))
            return SDC_NOMEM(err, "a pool of workers");
    if (o->leftovers && !(pool->leftovers = sdc__strdup(o->leftovers)))
        return SDC_NOMEM(err, "a pool of workers");
    for (unsigned i = 0; i < o->workers; i++) {
        pool->workers[i].fd = -1;
        pool->workers[i].process = (struct sdc_executor_process)SDC_EXECUTOR_PROCESS_INIT;
    }
    pool->n_workers = o->workers;
    return SDC_OK;
}

enum sdc_status sdc__pool_new(const struct sdc_pool_options *o, struct sdc_pool **out,
                              struct sdc_error *err) {
    *out = NULL;
    if (o->workers < 1 || o->workers > MAX_WORKERS)
        return SDC_ERR(err, SDC_USAGE, "%u workers asked for, expected 1 to %d", o->workers,
                       MAX_WORKERS);
    struct sdc_pool *pool = sdc__calloc(1, sizeof *pool);
    if (!pool)
        return SDC_NOMEM(err, "a pool of workers");
    pool->listener = -1;
    pool->wake_fd = o->wake_fd;
    pool->executor = o->executor ? o->executor : &sdc_executor_local;
    pool->hello_ms = o->hello_ms ? o->hello_ms : DEFAULT_HELLO;
    pool->grace_ms = o->grace_ms ? o->grace_ms : DEFAULT_GRACE;
    pool->queue_end = &pool->queue;
    int subreaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0);
    pool->was_subreaper = subreaper != 0;
    /* so that what a dead worker leaves behind comes to us and can be waited for */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    enum sdc_status st;
    SDC_TRY_OUT(st, copy_options(pool, o, err));
    if (pool->leftovers)
        sdc__pool_leftovers_clean(pool->leftovers);
    SDC_TRY_OUT(st, open_socket(pool, err));
    SDC_TRY_OUT(st, sdc__pool_leftovers_write(pool, err));
    *out = pool;
    return SDC_OK;
out:
    sdc__pool_free(pool);
    return st;
}

void sdc__pool_free(struct sdc_pool *pool) {
    if (!pool)
        return;
    struct sdc_error err;
    for (unsigned i = 0; i < pool->n_workers; i++) {
        struct sdc_pool_worker *w = &pool->workers[i];
        if (w->state == SDC_WORKER_NONE)
            continue;
        enum sdc_status st = w->state == SDC_WORKER_IDLE
                                 ? sdc__pool_worker_quit(pool, w, &err)
                                 : sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, "ended", &err);
        (void)st; /* nothing more can be done about it here */
    }
    for (size_t i = 0; i < pool->n_guests; i++) {
        close(pool->guests[i].fd);
        sdc__buf_release(&pool->guests[i].in);
    }
    if (pool->listener >= 0)
        close(pool->listener);
    if (pool->folder && sdc__remove_tree(pool->folder, &err) == SDC_OK && pool->leftovers)
        unlink(pool->leftovers);
    if (!pool->was_subreaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    sdc__pool_drop_queued(pool, NULL);
    for (size_t i = 0; i < pool->n_ready; i++)
        sdc__pool_result_release(&pool->ready[i]);
    for (size_t i = 0; i < pool->argc && pool->argv; i++)
        sdc__free(pool->argv[i]);
    sdc_worker_message_release(&pool->hello);
    sdc__free(pool->ready);
    sdc__free(pool->argv);
    sdc__free(pool->workers);
    sdc__free(pool->log_folder);
    sdc__free(pool->leftovers);
    sdc__free(pool->folder);
    sdc__free(pool->socket);
    sdc__free(pool);
}

/* ---- jobs ---- */

enum sdc_status sdc__pool_submit(struct sdc_pool *pool, const struct sdc_pool_job *job,
                                 struct sdc_error *err) {
    struct sdc_pool_task *task = sdc__calloc(1, sizeof *task);
    if (!task)
        return SDC_NOMEM(err, "a job");
    task->job = *job;
    task->job.trial = sdc__strdup(job->trial);
    task->job.path = sdc__strdup(job->path);
    task->job.events = sdc__strdup(job->events);
    if (!task->job.hang_ms)
        task->job.hang_ms = DEFAULT_HANG;
    if (!task->job.trial || !task->job.path || !task->job.events) {
        sdc__pool_task_free(task);
        return SDC_NOMEM(err, "a job");
    }
    *pool->queue_end = task;
    pool->queue_end = &task->next;
    pool->n_queued++;
    return SDC_OK;
}

/* Takes *link out of the queue. */
static struct sdc_pool_task *unlink_task(struct sdc_pool *pool, struct sdc_pool_task **link) {
    struct sdc_pool_task *task = *link;
    *link = task->next;
    if (!*link)
        pool->queue_end = link;
    task->next = NULL;
    pool->n_queued--;
    return task;
}

size_t sdc__pool_drop_queued(struct sdc_pool *pool, void **users) {
    size_t n = 0;
    while (pool->queue) {
        struct sdc_pool_task *task = unlink_task(pool, &pool->queue);
        if (users)
            users[n] = task->job.user;
        n++;
        sdc__pool_task_free(task);
    }
    return n;
}

static size_t count_state(const struct sdc_pool *pool, enum sdc_pool_state state) {
    size_t n = 0;
    for (unsigned i = 0; i < pool->n_workers; i++)
        n += pool->workers[i].state == state;
    return n;
}

size_t sdc__pool_pending(const struct sdc_pool *pool) {
    return pool->n_queued + count_state(pool, SDC_WORKER_RUNNING) + pool->n_ready;
}

static struct sdc_pool_worker *worker_number(struct sdc_pool *pool, uint64_t number) {
    for (unsigned i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].state != SDC_WORKER_NONE && pool->workers[i].number == number)
            return &pool->workers[i];
    return NULL;
}

enum sdc_status sdc__pool_replace(struct sdc_pool *pool, uint64_t worker, struct sdc_error *err) {
    struct sdc_pool_worker *w = worker_number(pool, worker);
    return w && w->state == SDC_WORKER_IDLE ? sdc__pool_worker_quit(pool, w, err) : SDC_OK;
}

static bool may_take(const struct sdc_pool_worker *w, const struct sdc_pool_job *job) {
    if (job->place == SDC_POOL_FRESH)
        return w->runs == 0;
    return job->place == SDC_POOL_ANY || job->worker == w->number;
}

/* Jobs whose worker is no more will never run. */
static enum sdc_status settle_gone(struct sdc_pool *pool, struct sdc_error *err) {
    for (struct sdc_pool_task **link = &pool->queue; *link;) {
        const struct sdc_pool_job *job = &(*link)->job;
        if (job->place != SDC_POOL_PINNED || worker_number(pool, job->worker)) {
            link = &(*link)->next;
            continue;
        }
        struct sdc_pool_task *task = unlink_task(pool, link);
        enum sdc_status st =
            sdc__pool_result_add(pool, task, SDC_POOL_GONE, SDC_OK, NULL, NULL, err);
        if (st != SDC_OK) {
            sdc__pool_task_free(task);
            return st;
        }
    }
    return SDC_OK;
}

/* Its own jobs first: others may end it. */
static struct sdc_pool_task **find_task(struct sdc_pool *pool, const struct sdc_pool_worker *w) {
    struct sdc_pool_task **link = &pool->queue;
    while (*link && ((*link)->job.place != SDC_POOL_PINNED || (*link)->job.worker != w->number))
        link = &(*link)->next;
    if (!*link)
        for (link = &pool->queue; *link && !may_take(w, &(*link)->job);)
            link = &(*link)->next;
    return link;
}

/* A worker that did what asked for a fresh one is kept until its result is collected: who collects
 * it may have more for this very worker. */
static bool is_kept(const struct sdc_pool *pool, const struct sdc_pool_worker *w) {
    for (size_t i = 0; i < pool->n_ready && w->place == SDC_POOL_FRESH; i++)
        if (pool->ready[i].worker == w->number)
            return true;
    return false;
}

static enum sdc_status hand_out(struct sdc_pool *pool, struct sdc_error *err) {
    for (unsigned i = 0; i < pool->n_workers; i++) {
        struct sdc_pool_worker *w = &pool->workers[i];
        if (w->state != SDC_WORKER_IDLE || is_kept(pool, w))
            continue;
        struct sdc_pool_task **link = find_task(pool, w);
        if (*link) {
            SDC_TRY(sdc__pool_worker_run(pool, w, unlink_task(pool, link), err));
        } else if (pool->queue && pool->queue->job.place == SDC_POOL_FRESH &&
                   count_state(pool, SDC_WORKER_STARTING) == 0 &&
                   count_state(pool, SDC_WORKER_NONE) == 0) {
            /* all slots hold used workers: one makes room for a fresh one */
            SDC_TRY(sdc__pool_worker_quit(pool, w, err));
        }
    }
    return SDC_OK;
}

/* How many queued jobs a new worker could take. */
static size_t queued_for_new(const struct sdc_pool *pool) {
    size_t n = 0;
    for (const struct sdc_pool_task *t = pool->queue; t; t = t->next)
        n += t->job.place != SDC_POOL_PINNED;
    return n;
}

static enum sdc_status start_missing(struct sdc_pool *pool, size_t wanted, struct sdc_error *err) {
    size_t starting = count_state(pool, SDC_WORKER_STARTING);
    for (unsigned i = 0; i < pool->n_workers && starting < wanted; i++) {
        if (pool->workers[i].state != SDC_WORKER_NONE)
            continue;
        if (pool->failed_starts >= START_TRIES)
            return SDC_ERR(err, SDC_PEER, "workers cannot be started: %s was tried %d times and %s",
                           pool->argv[0], START_TRIES, pool->last_failure);
        SDC_TRY(sdc__pool_worker_start(pool, &pool->workers[i], err));
        starting++;
    }
    return SDC_OK;
}

/* ---- the loop ---- */

static void accept_guests(struct sdc_pool *pool) {
    for (;;) {
        int fd = accept4(pool->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (pool->n_guests == SDC_POOL_MAX_GUESTS) {
            close(fd);
            continue;
        }
        pool->guests[pool->n_guests++] =
            (struct sdc_pool_guest){.fd = fd,
                                    .deadline = sdc__now_ns() + pool->hello_ms * MS,
                                    .in = {.max = SDC_POOL_MAX_LINE}};
    }
}

static void remove_guest(struct sdc_pool *pool, size_t i) {
    pool->guests[i] = pool->guests[--pool->n_guests];
}

static enum sdc_status check_guests(struct sdc_pool *pool, uint64_t now, struct sdc_error *err) {
    for (size_t i = pool->n_guests; i-- > 0;) {
        struct sdc_pool_guest *g = &pool->guests[i];
        bool settled;
        enum sdc_status st = sdc__pool_guest_read(pool, g, &settled, err);
        if (!settled && now >= g->deadline) {
            close(g->fd);
            sdc__buf_release(&g->in);
            settled = true;
        }
        if (settled)
            remove_guest(pool, i);
        SDC_TRY(st);
    }
    return SDC_OK;
}

/* Looks at the events file (a missing one has not grown) and takes its age as the time since it
 * last grew, so that a hang is seen when the limit is over, not up to twice as late. */
static bool has_grown(struct sdc_pool_worker *w, uint64_t now) {
    struct stat s;
    struct timespec wall;
    if (stat(w->task->job.events, &s) != 0 || (int64_t)s.st_size == w->size)
        return false;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t age =
        (int64_t)(wall.tv_sec - s.st_mtim.tv_sec) * 1000000000 + (wall.tv_nsec - s.st_mtim.tv_nsec);
    uint64_t grew = age > 0 && (uint64_t)age < now ? now - (uint64_t)age : now;
    w->size = (int64_t)s.st_size;
    w->grew = grew > w->grew ? grew : w->grew;
    return now < w->grew + w->task->job.hang_ms * MS;
}

static enum sdc_status check_worker(struct sdc_pool *pool, struct sdc_pool_worker *w, uint64_t now,
                                    struct sdc_error *err) {
    uint64_t number = w->number;
    if (w->fd >= 0)
        SDC_TRY(sdc__pool_worker_read(pool, w, err));
    if (w->number != number || w->state == SDC_WORKER_NONE)
        return SDC_OK;
    if (pool->executor->ended(&w->process)) {
        /* its last words may have come between the read and the look */
        if (w->fd >= 0)
            SDC_TRY(sdc__pool_worker_read(pool, w, err));
        return w->number != number || w->state == SDC_WORKER_NONE
                   ? SDC_OK
                   : sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, NULL, err);
    }
    char message[128];
    if (w->state == SDC_WORKER_STARTING && now >= w->deadline) {
        snprintf(message, sizeof message, "said no hello within %g s", pool->hello_ms / 1000.0);
        return sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, message, err);
    }
    if (w->state == SDC_WORKER_RUNNING && now >= w->grew + w->task->job.hang_ms * MS &&
        !has_grown(w, now)) {
        snprintf(message, sizeof message, "no event for %g s", w->task->job.hang_ms / 1000.0);
        return sdc__pool_worker_end(pool, w, SDC_POOL_HUNG, message, err);
    }
    return SDC_OK;
}

static int time_left(uint64_t now, uint64_t deadline, int at_most) {
    uint64_t left = deadline > now ? (deadline - now + MS - 1) / MS : 0;
    uint64_t most = at_most >= 0 && at_most < 60000 ? (uint64_t)at_most : 60000;
    return (int)(left < most ? left : most);
}

/* Until something happens or the nearest deadline. Deaths come through pidfds; where there are
 * none, every 200 ms are looked at. */
static bool sleep_until(struct sdc_pool *pool, int timeout_ms, struct sdc_error *err) {
    (void)err;
    struct pollfd fds[2 + SDC_POOL_MAX_GUESTS + 2 * MAX_WORKERS];
    nfds_t n = 0;
    uint64_t now = sdc__now_ns();
    fds[n++] = (struct pollfd){.fd = pool->listener, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = pool->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < pool->n_guests; i++) {
        fds[n++] = (struct pollfd){.fd = pool->guests[i].fd, .events = POLLIN};
        timeout_ms = time_left(now, pool->guests[i].deadline, timeout_ms);
    }
    for (unsigned i = 0; i < pool->n_workers; i++) {
        struct sdc_pool_worker *w = &pool->workers[i];
        if (w->state == SDC_WORKER_NONE)
            continue;
        fds[n++] = (struct pollfd){.fd = w->fd, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = w->process.pidfd, .events = POLLIN};
        if (w->process.pidfd < 0)
            timeout_ms = time_left(now, now + 200 * MS, timeout_ms);
        if (w->state == SDC_WORKER_STARTING)
            timeout_ms = time_left(now, w->deadline, timeout_ms);
        if (w->state == SDC_WORKER_RUNNING)
            timeout_ms = time_left(now, w->grew + w->task->job.hang_ms * MS, timeout_ms);
    }
    if (poll(fds, n, timeout_ms) < 0)
        return true; /* a signal: the caller's flag may be set */
    return pool->wake_fd >= 0 && (fds[1].revents & POLLIN);
}

static enum sdc_status turn(struct sdc_pool *pool, struct sdc_error *err) {
    accept_guests(pool);
    uint64_t now = sdc__now_ns();
    SDC_TRY(check_guests(pool, now, err));
    for (unsigned i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].state != SDC_WORKER_NONE)
            SDC_TRY(check_worker(pool, &pool->workers[i], now, err));
    SDC_TRY(settle_gone(pool, err));
    SDC_TRY(hand_out(pool, err));
    return start_missing(pool, queued_for_new(pool), err);
}

enum sdc_status sdc__pool_wait(struct sdc_pool *pool, int timeout_ms,
                               struct sdc_pool_result *result, bool *got, struct sdc_error *err) {
    uint64_t end = sdc__now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * MS : 0);
    *got = false;
    for (bool woken = false;;) {
        SDC_TRY(turn(pool, err));
        if (pool->n_ready) {
            *result = pool->ready[0];
            memmove(pool->ready, pool->ready + 1, --pool->n_ready * sizeof *pool->ready);
            *got = true;
            return SDC_OK;
        }
        uint64_t now = sdc__now_ns();
        if (woken || sdc__pool_pending(pool) == 0 || (timeout_ms >= 0 && now >= end))
            return SDC_OK;
        woken = sleep_until(pool, timeout_ms < 0 ? -1 : time_left(now, end, -1), err);
    }
}

enum sdc_status sdc__pool_hello(struct sdc_pool *pool, const struct sdc_worker_message **hello,
                                struct sdc_error *err) {
    while (!pool->has_hello) {
        SDC_TRY(turn(pool, err));
        if (pool->has_hello)
            break;
        if (count_state(pool, SDC_WORKER_STARTING) == 0)
            SDC_TRY(start_missing(pool, 1, err));
        if (sleep_until(pool, -1, err) && !pool->has_hello)
            return SDC_ERR(err, SDC_CANCELLED, "interrupted while the first worker started");
    }
    *hello = &pool->hello;
    return SDC_OK;
}
