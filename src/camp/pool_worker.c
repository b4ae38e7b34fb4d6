/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "camp/pool_internal.h"
#include "io/io.h"
#include "sdc/choice.h"

#define MS ((uint64_t)1000000)

enum sdc_status sdc__pool_result_add(struct sdc_pool *pool, struct sdc_pool_task *task,
                                     enum sdc_pool_end end, enum sdc_status status,
                                     const char *message, const struct sdc_pool_worker *w,
                                     struct sdc_error *err) {
    if (pool->n_ready == pool->cap_ready) {
        size_t cap = pool->cap_ready ? 2 * pool->cap_ready : 8;
        struct sdc_pool_result *more = sdc__realloc(pool->ready, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "results of workers");
        pool->ready = more;
        pool->cap_ready = cap;
    }
    struct sdc_pool_result r = {
        .user = task->job.user, .end = end, .status = status, .worker = w ? w->number : 0};
    if (message && !(r.message = sdc__strdup(message)))
        return SDC_NOMEM(err, "a worker's message");
    if (w && w->log && !(r.log = sdc__strdup(w->log))) {
        sdc__free(r.message);
        return SDC_NOMEM(err, "a worker's message");
    }
    pool->ready[pool->n_ready++] = r;
    sdc__pool_task_free(task);
    return SDC_OK;
}

/* ---- beginning and end ---- */

enum sdc_status sdc__pool_worker_start(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                       struct sdc_error *err) {
    char token[SDC_TOKEN_SIZE];
    SDC_TRY(sdc__token_make(token, err));
    uint64_t number = ++pool->next_number;
    char *log = sdc__asprintf("%s/worker-%llu.log", pool->log_folder, (unsigned long long)number);
    if (!log)
        return SDC_NOMEM(err, "a worker's log");
    struct sdc_executor_job job = {.argv = (const char *const *)(uintptr_t)pool->argv,
                                   .socket = pool->socket,
                                   .token = token,
                                   .log = log};
    struct sdc_executor_process process = SDC_EXECUTOR_PROCESS_INIT;
    struct stat before; /* logs of earlier calls are appended to */
    uint64_t log_start = stat(log, &before) == 0 ? (uint64_t)before.st_size : 0;
    enum sdc_status st = pool->executor->start(&job, &process, err);
    if (st != SDC_OK) {
        sdc__free(log);
        return st;
    }
    *w = (struct sdc_pool_worker){.state = SDC_WORKER_STARTING,
                                  .number = number,
                                  .process = process,
                                  .fd = -1,
                                  .in = {.max = SDC_POOL_MAX_LINE},
                                  .deadline = sdc__now_ns() + pool->hello_ms * MS,
                                  .log = log,
                                  .log_start = log_start};
    return sdc__pool_leftovers_write(pool, err);
}

/* The last line with something in it that was written since `start`, for messages. */
static void last_log_line(const char *path, uint64_t start, char *line, size_t size) {
    line[0] = '\0';
    struct sdc_file f = SDC_FILE_INIT;
    struct sdc_error err;
    if (sdc__file_open(path, SDC_FILE_READ, &f, &err) != SDC_OK)
        return;
    char text[2048];
    uint64_t own = f.size > start ? f.size - start : 0;
    size_t len = own < sizeof text - 1 ? (size_t)own : sizeof text - 1;
    if (sdc__file_read(&f, f.size - len, text, len, &err) == SDC_OK) {
        while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
            len--;
        text[len] = '\0';
        char *last = strrchr(text, '\n');
        snprintf(line, size, "%.200s", last ? last + 1 : text);
    }
    sdc__file_close(&f);
}

static const char replaced_text[] = "replaced";

static void empty_slot(struct sdc_pool_worker *w) {
    if (w->fd >= 0)
        close(w->fd);
    sdc__buf_release(&w->in);
    sdc__free(w->log);
    *w = (struct sdc_pool_worker){.fd = -1, .process = SDC_EXECUTOR_PROCESS_INIT};
}

enum sdc_status sdc__pool_worker_end(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                     enum sdc_pool_end end, const char *message,
                                     struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    char how[128];
    bool asked = message == replaced_text;
    bool own_end = pool->executor->ended(&w->process);
    /* a closed socket is noticed before the death that closed it */
    for (unsigned i = 0; !message && !own_end && i < 100; i++) {
        sdc__sleep_ms(2);
        own_end = pool->executor->ended(&w->process);
    }
    SDC_TRY_OUT(st, pool->executor->stop(&w->process, pool->grace_ms, err));
    if (!message) {
        if (own_end)
            sdc__wait_status_text(w->process.wait_status, how, sizeof how);
        else
            snprintf(how, sizeof how, "closed its connection");
        message = how;
    }
    if (w->state == SDC_WORKER_STARTING || (w->runs == 0 && !asked)) {
        char line[256];
        last_log_line(w->log, w->log_start, line, sizeof line);
        pool->failed_starts++;
        snprintf(pool->last_failure, sizeof pool->last_failure, "%s%s%s (log: %s)", message,
                 line[0] ? ": " : "", line, w->log);
    }
    if (w->task) {
        struct sdc_pool_task *task = w->task;
        SDC_TRY_OUT(st, sdc__pool_result_add(pool, task, end, SDC_OK, message, w, err));
        w->task = NULL;
    }
out:
    if (w->task && st != SDC_OK) {
        sdc__pool_task_free(w->task);
        w->task = NULL;
    }
    empty_slot(w);
    enum sdc_status written = sdc__pool_leftovers_write(pool, st == SDC_OK ? err : NULL);
    return st != SDC_OK ? st : written;
}

static enum sdc_status send_message(struct sdc_pool_worker *w, const struct sdc_worker_message *m,
                                    bool *sent, struct sdc_error *err) {
    char *line = NULL;
    SDC_TRY(sdc_worker_message_to_json(m, &line, err));
    size_t len = strlen(line), done = 0;
    *sent = true;
    while (done < len) {
        ssize_t got = send(w->fd, line + done, len - done, MSG_NOSIGNAL);
        if (got > 0) {
            done += (size_t)got;
            continue;
        }
        struct pollfd p = {.fd = w->fd, .events = POLLOUT};
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN && poll(&p, 1, 2000) == 1)
            continue;
        *sent = false;
        break;
    }
    sdc_text_free(line);
    return SDC_OK;
}

enum sdc_status sdc__pool_worker_quit(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                      struct sdc_error *err) {
    if (w->fd >= 0 && w->state == SDC_WORKER_IDLE) {
        struct sdc_worker_message quit = {.kind = SDC_WORKER_QUIT};
        bool sent;
        SDC_TRY(send_message(w, &quit, &sent, err));
        for (unsigned waited = 0; sent && waited < pool->grace_ms; waited += 5) {
            if (pool->executor->ended(&w->process))
                break;
            sdc__sleep_ms(5);
        }
    }
    return sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, replaced_text, err);
}

/* ---- runs ---- */

enum sdc_status sdc__pool_worker_run(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                     struct sdc_pool_task *task, struct sdc_error *err) {
    /* keys of the message are borrowed for the call */
    struct sdc_worker_message run = {
        .kind = SDC_WORKER_RUN,
        .trial = (char *)(uintptr_t)task->job.trial,
        .path = (char *)(uintptr_t)task->job.path,
    };
    w->task = task;
    w->state = SDC_WORKER_RUNNING;
    w->runs++;
    w->place = task->job.place;
    pool->failed_starts = 0;
    w->grew = sdc__now_ns();
    w->size = -1;
    bool sent;
    SDC_TRY(send_message(w, &run, &sent, err));
    return sent ? SDC_OK : sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, NULL, err);
}

static enum sdc_status take_line(struct sdc_pool *pool, struct sdc_pool_worker *w, const char *line,
                                 size_t len, struct sdc_error *err) {
    struct sdc_worker_message m = {0};
    struct sdc_error why;
    if (sdc_worker_message_from_json(line, len, &m, &why) != SDC_OK) {
        char message[400];
        snprintf(message, sizeof message, "broke the protocol: %.300s", why.message);
        return sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, message, err);
    }
    enum sdc_status st;
    if (m.kind != SDC_WORKER_DONE || w->state != SDC_WORKER_RUNNING || !m.trial ||
        strcmp(m.trial, w->task->job.trial) != 0) {
        st = sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED,
                                  "broke the protocol: a message that was not expected", err);
    } else {
        struct sdc_pool_task *task = w->task;
        st = sdc__pool_result_add(pool, task, SDC_POOL_DONE, m.status, m.message, w, err);
        if (st == SDC_OK) {
            w->task = NULL;
            w->state = SDC_WORKER_IDLE;
        }
    }
    sdc_worker_message_release(&m);
    return st;
}

/* Reads what is there; *open false at the end of the connection. */
static bool receive(int fd, struct sdc_buf *in) {
    char part[4096];
    for (;;) {
        ssize_t got = recv(fd, part, sizeof part, MSG_DONTWAIT);
        if (got > 0) {
            sdc__buf_append(in, part, (size_t)got);
            if (in->failed)
                return true;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
}

/* Removes the first n bytes. */
static void drop_front(struct sdc_buf *b, size_t n) {
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

enum sdc_status sdc__pool_worker_read(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                      struct sdc_error *err) {
    bool open = receive(w->fd, &w->in);
    if (w->in.failed)
        return sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED,
                                    "broke the protocol: too long a line", err);
    for (char *end; w->in.len && (end = memchr(w->in.data, '\n', w->in.len)) != NULL;) {
        size_t len = (size_t)(end - w->in.data);
        uint64_t number = w->number;
        SDC_TRY(take_line(pool, w, w->in.data, len, err));
        if (w->number != number)
            return SDC_OK; /* ended */
        drop_front(&w->in, len + 1);
    }
    return open ? SDC_OK : sdc__pool_worker_end(pool, w, SDC_POOL_CRASHED, NULL, err);
}

/* ---- hellos ---- */

static struct sdc_pool_worker *worker_of(struct sdc_pool *pool, const char *token) {
    for (unsigned i = 0; token && i < pool->n_workers; i++) {
        struct sdc_pool_worker *w = &pool->workers[i];
        if (w->state == SDC_WORKER_STARTING && w->fd < 0 && strcmp(w->process.token, token) == 0)
            return w;
    }
    return NULL;
}

static bool same_versions(const struct sdc_worker_message *a, const struct sdc_worker_message *b) {
    if (a->n_versions != b->n_versions)
        return false;
    for (size_t i = 0; i < a->n_versions; i++)
        if (strcmp(a->versions[i].key, b->versions[i].key) != 0 ||
            strcmp(a->versions[i].value, b->versions[i].value) != 0)
            return false;
    return true;
}

static enum sdc_status welcome(struct sdc_pool *pool, struct sdc_pool_guest *g,
                               struct sdc_worker_message *m, struct sdc_error *err) {
    struct sdc_pool_worker *w = worker_of(pool, m->token);
    if (m->kind != SDC_WORKER_HELLO || !w || !m->trainer || !m->platform)
        return SDC_OK; /* not ours: turned away; a worker that lies is found by its deadline */
    if (!pool->has_hello) {
        pool->hello = *m;
        *m = (struct sdc_worker_message){0};
        pool->has_hello = true;
    } else if (strcmp(m->platform, pool->hello.platform) != 0 ||
               strcmp(m->trainer, pool->hello.trainer) != 0 || !same_versions(m, &pool->hello)) {
        return SDC_ERR(err, SDC_MISMATCH,
                       "worker %llu says it is %s on %s, the first one was %s on %s: all workers "
                       "of a pool must compute alike",
                       (unsigned long long)w->number, m->trainer, m->platform, pool->hello.trainer,
                       pool->hello.platform);
    }
    w->fd = g->fd;
    g->fd = -1;
    w->state = SDC_WORKER_IDLE;
    return SDC_OK;
}

enum sdc_status sdc__pool_guest_read(struct sdc_pool *pool, struct sdc_pool_guest *g, bool *settled,
                                     struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    bool open = receive(g->fd, &g->in);
    char *end = g->in.len ? memchr(g->in.data, '\n', g->in.len) : NULL;
    *settled = !open || g->in.failed || end != NULL;
    if (end) {
        struct sdc_worker_message m = {0};
        struct sdc_error why;
        /* nothing may follow a hello before a run is asked for */
        if (end + 1 == g->in.data + g->in.len &&
            sdc_worker_message_from_json(g->in.data, (size_t)(end - g->in.data), &m, &why) ==
                SDC_OK)
            st = welcome(pool, g, &m, err);
        sdc_worker_message_release(&m);
    }
    if (*settled) {
        if (g->fd >= 0)
            close(g->fd);
        sdc__buf_release(&g->in);
        g->fd = -1;
    }
    return st;
}
