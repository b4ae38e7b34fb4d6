/* SPDX-License-Identifier: Apache-2.0 */
#include "train/worker.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"
#include "sdc/choice.h"
#include "sdc/worker.h"
#include "train/train.h"

#define MAX_LINE 65536u

struct line_reader {
    int fd;
    size_t len, taken; /* bytes in data, and of those, bytes of lines already handed out */
    char data[MAX_LINE];
};

static enum sdc_status connect_to(const char *where, int *fd, struct sdc_error *err) {
    static const char scheme[] = "unix:";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strncmp(where, scheme, strlen(scheme)) != 0)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s is '%s', expected unix:PATH", SDC_WORKER_ENV,
                       where);
    const char *path = where + strlen(scheme);
    if (strlen(path) >= sizeof address.sun_path)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: the path is %zu bytes long, expected below %zu",
                       where, strlen(path), sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "make a socket");
    if (connect(*fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        enum sdc_status st = SDC_ERR_SYS(err, SDC_IO, errno, "connect to %s", where);
        close(*fd);
        return st;
    }
    return SDC_OK;
}

static enum sdc_status send_message(int fd, const struct sdc_worker_message *m,
                                    struct sdc_error *err) {
    char *line = NULL;
    enum sdc_status st = SDC_OK;
    SDC_TRY(sdc_worker_message_to_json(m, &line, err));
    size_t len = strlen(line), sent = 0;
    while (sent < len && st == SDC_OK) {
        ssize_t n = send(fd, line + sent, len - sent, MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno != EINTR)
            st = SDC_ERR_SYS(err, SDC_IO, errno, "send to the pool");
    }
    sdc_text_free(line);
    return st;
}

/* The next line with its newline; *len 0 where the pool has closed the socket. */
static enum sdc_status next_line(struct line_reader *r, const char **line, size_t *len,
                                 struct sdc_error *err) {
    memmove(r->data, r->data + r->taken, r->len - r->taken);
    r->len -= r->taken;
    r->taken = 0;
    for (;;) {
        const char *end = memchr(r->data, '\n', r->len);
        if (end) {
            *line = r->data;
            *len = r->taken = (size_t)(end - r->data) + 1;
            return SDC_OK;
        }
        if (r->len == sizeof r->data)
            return SDC_ERR(err, SDC_INVALID, "a message of the pool is longer than %zu bytes",
                           sizeof r->data);
        ssize_t n = recv(r->fd, r->data + r->len, sizeof r->data - r->len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != ECONNRESET)
            return SDC_ERR_SYS(err, SDC_IO, errno, "receive from the pool");
        if (n <= 0) {
            *len = 0;
            return SDC_OK;
        }
        r->len += (size_t)n;
    }
}

static enum sdc_status say_hello(int fd, const char *token, struct sdc_error *err) {
    struct sdc_key_value *facts = NULL;
    size_t n = 0;
    char *platform = NULL;
    SDC_TRY(sdc_train_facts(NULL, &facts, &n, err));
    enum sdc_status st = sdc_train_platform(&platform, err);
    if (st == SDC_OK) {
        /* borrowed strings: nothing of it is released through the message */
        struct sdc_worker_message hello = {
            .kind = SDC_WORKER_HELLO,
            .token = (char *)(uintptr_t)token,
            .trainer = (char *)(uintptr_t)SDC_TRAINER_NAME " " SDC_VERSION,
            .platform = platform,
            .versions = facts,
            .n_versions = n,
            .ranks = 0,
        };
        st = send_message(fd, &hello, err);
    }
    sdc__free(platform);
    sdc_train_facts_free(facts, n);
    return st;
}

/* A pool that is gone wants no results: its run ends at the next step. */
struct watch {
    int fd;
    atomic_bool gone;
};

static void look_for_pool(void *arg, const struct sdc_event *event) {
    struct watch *w = arg;
    struct pollfd p = {.fd = w->fd, .events = POLLRDHUP};
    (void)event;
    if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
        atomic_store(&w->gone, true);
}

static enum sdc_status carry_out(struct sdc_trainer *t, int fd,
                                 const struct sdc_worker_message *request, struct sdc_error *err) {
    struct sdc_run run;
    struct sdc_error run_err = {0};
    struct sdc_train_result result;
    struct watch watch = {.fd = fd};
    atomic_init(&watch.gone, false);
    const struct sdc_train_hooks hooks = {
        .event = look_for_pool, .arg = &watch, .cancel = &watch.gone};
    enum sdc_status st = sdc_run_read(request->path, &run, &run_err);
    if (st == SDC_OK) {
        st = sdc_trainer_run(t, &run, &hooks, &result, &run_err);
        sdc_run_release(&run);
    }
    struct sdc_worker_message done = {
        .kind = SDC_WORKER_DONE,
        .trial = request->trial,
        .status = st,
        .message = st == SDC_OK ? NULL : run_err.message,
    };
    if (!atomic_load(&watch.gone))
        SDC_TRY(send_message(fd, &done, err));
    if (sdc_trainer_lost(t))
        return SDC_ERR(err, SDC_INTERNAL, "run %s: %s", request->trial, run_err.message);
    return SDC_OK;
}

static enum sdc_status serve(struct sdc_trainer *t, struct line_reader *r, struct sdc_error *err) {
    for (;;) {
        const char *line;
        size_t len;
        struct sdc_worker_message m;
        SDC_TRY(next_line(r, &line, &len, err));
        if (len == 0)
            return SDC_OK;
        SDC_TRY(sdc_worker_message_from_json(line, len, &m, err));
        enum sdc_status st = SDC_OK;
        bool quit = m.kind == SDC_WORKER_QUIT;
        if (m.kind == SDC_WORKER_RUN)
            st = carry_out(t, r->fd, &m, err);
        else if (!quit)
            st = SDC_ERR(err, SDC_INVALID, "the pool sent a message that only a worker sends");
        sdc_worker_message_release(&m);
        if (st != SDC_OK || quit)
            return st;
    }
}

enum sdc_status sdc_train_serve(const char *where, const char *token, struct sdc_error *err) {
    struct sdc_trainer *t = NULL;
    int fd = -1;
    SDC_TRY(connect_to(where, &fd, err));
    enum sdc_status st;
    struct line_reader *r = sdc__calloc(1, sizeof *r);
    SDC_TRY_OUT(st, r ? SDC_OK : SDC_NOMEM(err, "a worker"));
    r->fd = fd;
    SDC_TRY_OUT(st, sdc_trainer_new(&t, err));
    SDC_TRY_OUT(st, say_hello(fd, token, err));
    st = serve(t, r, err);
out:
    sdc_trainer_free(t);
    sdc__free(r);
    close(fd);
    return st;
}
