/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/fmt/hdf5_proc.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

extern char **environ;

#define PROGRAM      "sdclab-hdf5"
#define VARIABLE     "SDCLAB_HDF5_HELPER"
#define MEMORY_MIB   "3072"
#define BASE_SECONDS 20
#define FIRST_FREE   10 /* descriptors that no standard stream can be confused with */
#define NS           UINT64_C(1000000000)

/* What the helper's own exits mean (hdf5_helper). */
enum { EXIT_WRITE_FAILED = 71, EXIT_DISK_FULL = 72 };

struct sdc_h5_proc {
    char *path;
    pid_t pid;    /* 0: reaped, or none */
    pid_t parent; /* who started it: a fork of the host must not end it */
    int fd;       /* -1: over */
    bool greeted;
    unsigned version[6]; /* of libhdf5, once greeted */
    uint64_t wall_ns, deadline;
    struct sdc_error over; /* why nothing more is to be had */
    unsigned char *in;
    size_t n_in, at, cap;
};

static unsigned test_cpu, test_wall;
static int test_fd = -1;

void sdc__h5_test_limits(unsigned cpu, unsigned wall) {
    test_cpu = cpu;
    test_wall = wall;
}

void sdc__h5_test_answer(int fd) {
    test_fd = fd;
}

/* ---- finding the program ---- */

/* The folder of a file, without the file. */
static void add_place(struct sdc_buf *places, const char *file, const char *below) {
    const char *slash = strrchr(file, '/');
    if (slash)
        sdc__buf_printf(places, "%.*s%s/%s%c", (int)(slash - file), file, below, PROGRAM, 0);
}

/* NUL-terminated paths, one after the other, the last followed by another NUL. */
static void list_places(struct sdc_buf *places) {
    static const char anchor;
    char exe[PATH_MAX];
    Dl_info info;
    const char *named = secure_getenv(VARIABLE);
    if (named && *named) {
        sdc__buf_printf(places, "%s%c", named, 0);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    add_place(places, exe, "");
    if (dladdr(&anchor, &info) != 0 && info.dli_fname)
        add_place(places, info.dli_fname, "");
    add_place(places, exe, "/../libexec/sdclab");
    sdc__buf_printf(places, "%s/%s%c", SDC_LIBEXEC_DIR, PROGRAM, 0);
}

static enum sdc_status find_program(const char *path, char **program, struct sdc_error *err) {
    struct sdc_buf places = SDC_BUF_INIT, tried = SDC_BUF_INIT;
    enum sdc_status st = SDC_OK;
    *program = NULL;
    list_places(&places);
    for (size_t at = 0; !places.failed && at < places.len && !*program;
         at += strlen(places.data + at) + 1) {
        const char *place = places.data + at;
        if (access(place, X_OK) == 0 && !sdc__path_is_dir(place)) {
            *program = sdc__strdup(place);
            places.failed = !*program;
        } else {
            sdc__buf_printf(&tried, "%s%s", tried.len ? ", " : "", place);
        }
    }
    if (places.failed || tried.failed)
        st = SDC_NOMEM(err, path);
    else if (!*program)
        st = SDC_ERR(err, SDC_NOT_FOUND,
                     "%s: the helper program for HDF5 is not installed: looked for %s (the "
                     "environment variable " VARIABLE " names another place)",
                     path, tried.data ? tried.data : "");
    sdc__buf_release(&places);
    sdc__buf_release(&tried);
    return st;
}

/* ---- starting ---- */

/* Only what the dynamic linker and sanitizers read: no variable of libhdf5 (plug-ins, drivers,
 * prefixes of external files) reaches the helper. */
static void pick_environment(char *picked[8]) {
    static const char *const names[] = {
        "LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=", "TSAN_OPTIONS="};
    size_t n = 0;
    for (char **v = environ; v && *v; v++)
        for (size_t i = 0; i < sizeof names / sizeof *names && n < 7; i++)
            if (strncmp(*v, names[i], strlen(names[i])) == 0)
                picked[n++] = *v;
    picked[n] = NULL;
}

static int set_up(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attr, int sock,
                  int file) {
    sigset_t blocked, usual;
    static const int usual_ones[] = {SIGSEGV, SIGBUS,  SIGABRT, SIGILL, SIGFPE,
                                     SIGXCPU, SIGPIPE, SIGSYS,  SIGTRAP};
    /* keys and hang-ups are for the host, which ends the helper when it ends */
    static const int blocked_ones[] = {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP};
    (void)sigemptyset(&blocked);
    (void)sigemptyset(&usual);
    for (size_t i = 0; i < sizeof usual_ones / sizeof *usual_ones; i++)
        (void)sigaddset(&usual, usual_ones[i]);
    for (size_t i = 0; i < sizeof blocked_ones / sizeof *blocked_ones; i++)
        (void)sigaddset(&blocked, blocked_ones[i]);
    int rc = posix_spawnattr_setsigmask(attr, &blocked);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(attr, &usual);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, sock, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, sock, 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0);
    if (rc == 0 && file >= 0)
        rc = posix_spawn_file_actions_adddup2(actions, file, SDC_WIRE_FILE);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(actions, SDC_WIRE_FILE + (file >= 0 ? 1 : 0));
    return rc;
}

/* Both descriptors are far from 0 to 3. Returns an errno. */
static int spawn(const char *program, int sock, int file, unsigned seconds, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    char cpu[16], name[] = PROGRAM, memory[] = MEMORY_MIB;
    char *argv[] = {name, cpu, memory, NULL}, *env[8];
    (void)snprintf(cpu, sizeof cpu, "%u", seconds);
    pick_environment(env);
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc == 0) {
        rc = set_up(&actions, &attr, sock, file);
        if (rc == 0)
            rc = posix_spawn(pid, program, &actions, &attr, argv, env);
        (void)posix_spawnattr_destroy(&attr);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static struct sdc_h5_proc *new_proc(const char *path) {
    struct sdc_h5_proc *p = sdc__calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->path = sdc__strdup(path);
    p->fd = -1;
    p->parent = getpid();
    if (!p->path) {
        sdc__free(p);
        return NULL;
    }
    return p;
}

static int start(struct sdc_h5_proc *p, const char *program, int file, unsigned seconds) {
    int pair[2] = {-1, -1}, far[2] = {-1, -1}, rc = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    far[0] = fcntl(pair[1], F_DUPFD_CLOEXEC, FIRST_FREE);
    if (far[0] < 0)
        rc = errno;
    if (rc == 0 && file >= 0) {
        far[1] = fcntl(file, F_DUPFD_CLOEXEC, FIRST_FREE);
        if (far[1] < 0)
            rc = errno;
    }
    if (rc == 0)
        rc = spawn(program, far[0], far[1], seconds, &p->pid);
    if (rc != 0)
        p->pid = 0;
    (void)close(pair[1]);
    for (int i = 0; i < 2; i++)
        if (far[i] >= 0)
            (void)close(far[i]);
    if (rc == 0)
        p->fd = pair[0];
    else
        (void)close(pair[0]);
    return rc;
}

/* For tests. */
static enum sdc_status start_over(const char *path, struct sdc_h5_proc **proc,
                                  struct sdc_error *err) {
    *proc = new_proc(path);
    if (!*proc)
        return SDC_NOMEM(err, path);
    (*proc)->fd = test_fd;
    (*proc)->wall_ns = (test_wall ? test_wall : 10) * NS;
    test_fd = -1;
    return SDC_OK;
}

enum sdc_status sdc__h5_start(const char *path, const struct sdc_file *file, unsigned seconds,
                              struct sdc_h5_proc **proc, struct sdc_error *err) {
    char *program = NULL;
    if (test_fd >= 0)
        return start_over(path, proc, err);
    if (seconds == 0)
        seconds = BASE_SECONDS + (unsigned)((file ? file->size : 0) >> 25 & 0xfffff);
    if (test_cpu)
        seconds = test_cpu;
    SDC_TRY(find_program(path, &program, err));
    struct sdc_h5_proc *p = new_proc(path);
    if (!p) {
        sdc__free(program);
        return SDC_NOMEM(err, path);
    }
    p->wall_ns = (test_wall ? test_wall : 30 + 3 * (uint64_t)seconds) * NS;
    int rc = start(p, program, file ? file->fd : -1, seconds);
    enum sdc_status st = SDC_OK;
    if (rc != 0) {
        st = SDC_ERR_SYS(err, SDC_IO, rc, "%s: start of %s", path, program);
        sdc__h5_stop(p);
    } else {
        *proc = p;
    }
    sdc__free(program);
    return st;
}

/* ---- ending ---- */

/* Waits for a process that has closed its end, or kills it after a second; 0 if its status is not
 * to be had. */
static int reap(struct sdc_h5_proc *p, bool at_once) {
    int status = 0;
    pid_t got = 0;
    if (p->pid <= 0 || getpid() != p->parent)
        return 0;
    for (unsigned ms = 0; !at_once && ms < 1000 && got == 0; ms++) {
        got = waitpid(p->pid, &status, WNOHANG);
        if (got == 0)
            sdc__sleep_ms(1);
    }
    if (got == 0) {
        (void)kill(p->pid, SIGKILL);
        do
            got = waitpid(p->pid, &status, 0);
        while (got < 0 && errno == EINTR);
    }
    int answer = got == p->pid ? status : 0; /* a host that reaps all children: no status */
    p->pid = 0;
    return answer;
}

static void hang_up(struct sdc_h5_proc *p) {
    if (p->fd >= 0)
        (void)close(p->fd);
    p->fd = -1;
}

void sdc__h5_stop(struct sdc_h5_proc *p) {
    if (!p)
        return;
    hang_up(p);
    (void)reap(p, true);
    sdc__free(p->in);
    sdc__free(p->path);
    sdc__free(p);
}

/* Remembers the error, so that later questions get the same answer. */
static enum sdc_status is_over(struct sdc_h5_proc *p, struct sdc_error *err) {
    hang_up(p);
    if (err)
        *err = p->over;
    return p->over.status;
}

static enum sdc_status died(struct sdc_h5_proc *p, struct sdc_error *err) {
    const int status = reap(p, false);
    const bool signalled = WIFSIGNALED(status);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (signalled && WTERMSIG(status) == SIGXCPU)
        (void)SDC_ERR(&p->over, SDC_INVALID,
                      "%s: libhdf5 died on this file (signal %d: over the limit of processor time)",
                      p->path, SIGXCPU);
    else if (signalled)
        (void)SDC_ERR(&p->over, SDC_INVALID, "%s: libhdf5 died on this file (signal %d: %s)",
                      p->path, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (code == EXIT_DISK_FULL)
        (void)SDC_ERR_SYS(&p->over, SDC_IO, ENOSPC, "%s: write", p->path);
    else if (code == EXIT_WRITE_FAILED)
        (void)SDC_ERR(&p->over, SDC_IO, "%s: write through libhdf5 failed", p->path);
    else if (!p->greeted)
        (void)SDC_ERR(
            &p->over, SDC_IO,
            "%s: the helper program for HDF5 does not run: it ended with status %d before "
            "it looked at the file",
            p->path, code);
    else
        (void)SDC_ERR(&p->over, SDC_INVALID, "%s: libhdf5 died on this file (exit status %d)",
                      p->path, code);
    return is_over(p, err);
}

enum sdc_status sdc__h5_nonsense(struct sdc_h5_proc *p, const char *what, struct sdc_error *err) {
    if (p->greeted)
        (void)SDC_ERR(&p->over, SDC_INVALID,
                      "%s: libhdf5 broke down on this file: its helper made no sense (%s)", p->path,
                      what);
    else
        (void)SDC_ERR(&p->over, SDC_IO,
                      "%s: the helper program for HDF5 is not of this version of sdclab", p->path);
    (void)reap(p, true);
    return is_over(p, err);
}

/* ---- talking ---- */

/* Waits until the descriptor is ready for `events`, or the deadline. */
static enum sdc_status await(struct sdc_h5_proc *p, short events, struct sdc_error *err) {
    for (;;) {
        const uint64_t now = sdc__now_ns();
        struct pollfd f = {.fd = p->fd, .events = events};
        if (now >= p->deadline) {
            (void)reap(p, true);
            (void)SDC_ERR(&p->over, p->greeted ? SDC_INVALID : SDC_TIMEOUT,
                          p->greeted ? "%s: libhdf5 gave no answer on this file in %llu s"
                                     : "%s: the helper program for HDF5 did not start in %llu s",
                          p->path, (unsigned long long)(p->wall_ns / NS));
            return is_over(p, err);
        }
        const uint64_t ms = (p->deadline - now) / 1000000 + 1;
        int n = poll(&f, 1, ms < 60000 ? (int)ms : 60000);
        if (n > 0)
            return SDC_OK;
        if (n < 0 && errno != EINTR)
            return SDC_ERR_SYS(err, SDC_IO, errno, "%s: poll", p->path);
    }
}

static enum sdc_status send_all(struct sdc_h5_proc *p, const void *data, size_t len, bool more,
                                struct sdc_error *err) {
    const char *from = data;
    while (len > 0) {
        ssize_t n = send(p->fd, from, len, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            SDC_TRY(await(p, POLLOUT, err));
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return died(p, err);
        from += n;
        len -= (size_t)n;
    }
    return SDC_OK;
}

enum sdc_status sdc__h5_ask(struct sdc_h5_proc *p, enum sdc_wire_kind kind, struct sdc_buf *body,
                            const void *tail, size_t n_tail, struct sdc_error *err) {
    unsigned char head[5];
    enum sdc_status st;
    if (p->fd < 0)
        return is_over(p, err);
    if (body->failed)
        return SDC_NOMEM(err, p->path);
    if (body->len > SDC_WIRE_REQUEST - 1 || n_tail > SDC_WIRE_REQUEST - 1 - body->len)
        return SDC_ERR(err, SDC_LIMIT, "%s: %zu bytes for libhdf5 at once, the limit is %zu",
                       p->path, body->len + n_tail, SDC_WIRE_REQUEST - 1);
    const size_t whole = body->len + n_tail + 1;
    for (unsigned i = 0; i < 4; i++)
        head[i] = (unsigned char)(whole >> 8 * i & 0xff);
    head[4] = (unsigned char)kind;
    p->deadline = sdc__now_ns() + p->wall_ns;
    st = send_all(p, head, sizeof head, whole > 1, err);
    if (st == SDC_OK)
        st = send_all(p, body->data, body->len, n_tail > 0, err);
    if (st == SDC_OK)
        st = send_all(p, tail, n_tail, false, err);
    sdc__buf_clear(body);
    return st;
}

/* At least n bytes from p->at on. */
static enum sdc_status fill(struct sdc_h5_proc *p, size_t n, struct sdc_error *err) {
    if (p->n_in - p->at >= n)
        return SDC_OK;
    if (p->at > 0) {
        memmove(p->in, p->in + p->at, p->n_in - p->at);
        p->n_in -= p->at;
        p->at = 0;
    }
    if (n > p->cap) {
        const size_t cap = n < 65536 ? 65536 : n;
        unsigned char *more = sdc__realloc(p->in, cap, 1);
        if (!more)
            return SDC_NOMEM(err, p->path);
        p->in = more;
        p->cap = cap;
    }
    while (p->n_in < n) {
        SDC_TRY(await(p, POLLIN, err));
        ssize_t got = recv(p->fd, p->in + p->n_in, p->cap - p->n_in, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
            continue;
        if (got <= 0)
            return died(p, err);
        p->n_in += (size_t)got;
    }
    return SDC_OK;
}

static enum sdc_status take(struct sdc_h5_proc *p, enum sdc_wire_kind *kind, struct sdc_wire *w,
                            struct sdc_error *err) {
    if (p->fd < 0)
        return is_over(p, err);
    SDC_TRY(fill(p, 5, err));
    const unsigned char *h = p->in + p->at;
    const size_t len = h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24;
    if (len == 0 || len > SDC_WIRE_REPLY)
        return sdc__h5_nonsense(p, "a frame of impossible length", err);
    SDC_TRY(fill(p, 4 + len, err));
    *kind = (enum sdc_wire_kind)p->in[p->at + 4];
    *w = (struct sdc_wire){.data = p->in + p->at + 5, .len = len - 1};
    p->at += 4 + len;
    return SDC_OK;
}

static enum sdc_status greet(struct sdc_h5_proc *p, struct sdc_error *err) {
    enum sdc_wire_kind kind;
    struct sdc_wire w;
    const size_t n_magic = sizeof SDC_WIRE_MAGIC - 1;
    SDC_TRY(take(p, &kind, &w, err));
    const unsigned char *magic = sdc__wire_bytes(&w, n_magic);
    const unsigned version = (unsigned)sdc__wire_get(&w, 2);
    if (kind != SDC_WIRE_HELLO || !magic || memcmp(magic, SDC_WIRE_MAGIC, n_magic) != 0 ||
        version != SDC_WIRE_VERSION || w.len - w.at != 24)
        return sdc__h5_nonsense(p, "its greeting", err);
    for (int i = 0; i < 6; i++)
        p->version[i] = (unsigned)sdc__wire_get(&w, 4);
    p->greeted = true;
    return SDC_OK;
}

unsigned sdc__h5_major(const struct sdc_h5_proc *p) {
    return p->version[3];
}

enum sdc_status sdc__h5_library_version(unsigned version[6], struct sdc_error *err) {
    struct sdc_h5_proc *p;
    SDC_TRY(sdc__h5_start("HDF5", NULL, 10, &p, err));
    p->deadline = sdc__now_ns() + p->wall_ns;
    enum sdc_status st = greet(p, err);
    if (st == SDC_OK)
        memcpy(version, p->version, sizeof p->version);
    sdc__h5_stop(p);
    return st;
}

enum sdc_status sdc__h5_next(struct sdc_h5_proc *p, enum sdc_wire_kind *kind, struct sdc_wire *w,
                             struct sdc_error *err) {
    if (!p->greeted && p->fd >= 0)
        SDC_TRY(greet(p, err));
    SDC_TRY(take(p, kind, w, err));
    if (*kind != SDC_WIRE_FAIL)
        return SDC_OK;
    const unsigned reason = (unsigned)sdc__wire_get(w, 1);
    char text[512] = "", *to = text;
    for (size_t i = w->at; i < w->len && to < text + sizeof text - 1; i++)
        *to++ = (char)(w->data[i] >= ' ' && w->data[i] < 127 ? w->data[i] : '?');
    *to = '\0';
    if (reason == SDC_FAIL_NO_MEMORY)
        return SDC_ERR(err, SDC_LIMIT, "%s: libhdf5 needs more memory than it may have: %s",
                       p->path, text);
    return SDC_ERR(err, SDC_INVALID, "%s: %s", p->path, text);
}

enum sdc_status sdc__h5_expect(struct sdc_h5_proc *p, enum sdc_wire_kind kind, struct sdc_wire *w,
                               struct sdc_error *err) {
    enum sdc_wire_kind got;
    SDC_TRY(sdc__h5_next(p, &got, w, err));
    return got == kind ? SDC_OK : sdc__h5_nonsense(p, "a frame of another kind", err);
}

enum sdc_status sdc__h5_call(struct sdc_h5_proc *p, enum sdc_wire_kind kind, struct sdc_buf *body,
                             enum sdc_wire_kind reply, struct sdc_wire *w, struct sdc_error *err) {
    SDC_TRY(sdc__h5_ask(p, kind, body, NULL, 0, err));
    return sdc__h5_expect(p, reply, w, err);
}
