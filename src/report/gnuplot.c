/* SPDX-License-Identifier: Apache-2.0
 *
 * gnuplot as a child process: its script through an anonymous file, its output through pipes, with
 * a deadline.
 */
#include "report/report_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

extern char **environ;

#define MAX_SVG       (64u * 1024 * 1024)
#define MAX_COMPLAINT 4096u

void sdc__gnuplot_text(struct sdc_buf *b, const char *s, int max) {
    int left = max;
    sdc__buf_putc(b, '\'');
    for (; s && *s; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c & 0xc0) != 0x80 && left-- == 0) { /* the first byte of a character */
            sdc__buf_puts(b, "…");
            break;
        }
        if (c == '\'')
            sdc__buf_puts(b, "''");
        else
            sdc__buf_putc(b, c < 0x20 || c == 0x7f ? ' ' : *s);
    }
    sdc__buf_putc(b, '\'');
}

struct child {
    pid_t pid;
    int script; /* read by the child as its standard input */
    int out[2];
    int errs[2];
};

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static enum sdc_status script_file(const char *script, size_t len, int *fd, struct sdc_error *err) {
    *fd = memfd_create("sdclab-figure", MFD_CLOEXEC);
    if (*fd < 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "anonymous file for gnuplot's script: %s",
                           strerror(errno));
    for (size_t done = 0; done < len;) {
        ssize_t n = write(*fd, script + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return SDC_ERR_SYS(err, SDC_IO, errno, "writing gnuplot's script: %s", strerror(errno));
        done += (size_t)n;
    }
    if (lseek(*fd, 0, SEEK_SET) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "rewinding gnuplot's script: %s", strerror(errno));
    return SDC_OK;
}

static enum sdc_status start(struct child *c, struct sdc_error *err) {
    const char *program = getenv("SDC_GNUPLOT");
    char name[] = "gnuplot", no_init[] = "-d"; /* the user's settings must not change a figure */
    char *argv[] = {name, no_init, NULL};
    posix_spawn_file_actions_t actions;
    if (!program || !*program)
        program = "gnuplot";
    if (pipe2(c->out, O_CLOEXEC) != 0 || pipe2(c->errs, O_CLOEXEC) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "pipe to gnuplot: %s", strerror(errno));
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return SDC_ERR_SYS(err, SDC_NO_MEMORY, rc, "starting gnuplot: %s", strerror(rc));
    rc = posix_spawn_file_actions_adddup2(&actions, c->script, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, c->out[1], 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, c->errs[1], 2);
    if (rc == 0)
        rc = posix_spawnp(&c->pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc == ENOENT || rc == EACCES)
        return SDC_ERR_SYS(err, SDC_NOT_FOUND, rc,
                           "program %s: %s; figures need gnuplot 5.4 or newer (Debian package "
                           "gnuplot-nox)",
                           program, strerror(rc));
    if (rc != 0) {
        c->pid = -1;
        return SDC_ERR_SYS(err, SDC_IO, rc, "starting %s: %s", program, strerror(rc));
    }
    close_fd(&c->out[1]);
    close_fd(&c->errs[1]);
    return SDC_OK;
}

/* Reads once; closes the descriptor at the end of the stream. */
static void drain(int *fd, struct sdc_buf *into) {
    char chunk[65536];
    ssize_t n = read(*fd, chunk, sizeof chunk);
    if (n > 0)
        sdc__buf_append(into, chunk, (size_t)n);
    else if (n == 0 || errno != EINTR)
        close_fd(fd);
}

static enum sdc_status collect(struct child *c, unsigned timeout_ms, struct sdc_buf *out,
                               struct sdc_buf *complaint, struct sdc_error *err) {
    uint64_t deadline = sdc__now_ns() + (uint64_t)timeout_ms * 1000000u;
    while (c->out[0] >= 0 || c->errs[0] >= 0) {
        struct pollfd fds[2] = {{.fd = c->out[0], .events = POLLIN},
                                {.fd = c->errs[0], .events = POLLIN}};
        uint64_t now = sdc__now_ns();
        int left = now >= deadline ? 0 : (int)((deadline - now) / 1000000u + 1);
        int ready = poll(fds, 2, left);
        if (ready < 0 && errno != EINTR)
            return SDC_ERR_SYS(err, SDC_IO, errno, "waiting for gnuplot: %s", strerror(errno));
        if (ready == 0)
            return SDC_ERR(err, SDC_TIMEOUT, "gnuplot did not finish within %u ms", timeout_ms);
        if (ready > 0 && fds[0].revents)
            drain(&c->out[0], out);
        if (ready > 0 && fds[1].revents)
            drain(&c->errs[0], complaint);
    }
    return SDC_OK;
}

/* On one line, cut. gnuplot repeats the command, points at the place, then says what is wrong. */
static void shorten(const char *s, char text[256]) {
    size_t n = 0;
    for (; *s && n < 255; s++) {
        char c = *s == '\n' || *s == '\t' ? ' ' : *s;
        if (c != ' ' || (n > 0 && text[n - 1] != ' '))
            text[n++] = c;
    }
    text[n] = '\0';
}

/* Whether every line is empty or a warning, such as that a long name fits badly: with names that
 * anybody may choose, that is no reason to have no report. */
static bool only_warnings(const char *s) {
    while (*s) {
        const char *end = strchr(s, '\n');
        size_t len = end ? (size_t)(end - s) : strlen(s);
        bool blank = true;
        for (size_t i = 0; i < len && blank; i++)
            blank = s[i] == ' ' || s[i] == '\t';
        if (!blank && !memmem(s, len, "arning", 6))
            return false;
        s += len + (end != NULL);
    }
    return true;
}

static enum sdc_status finish(struct child *c, enum sdc_status st, struct sdc_buf *complaint,
                              struct sdc_error *err) {
    int status = 0;
    char text[256];
    if (st != SDC_OK)
        kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (st != SDC_OK)
        return st;
    const char *said = complaint->data ? complaint->data : "";
    shorten(said, text);
    if (WIFSIGNALED(status))
        return SDC_ERR(err, SDC_PEER, "gnuplot was ended by signal %d %s", WTERMSIG(status), text);
    if (WEXITSTATUS(status) != 0 || !only_warnings(said))
        return SDC_ERR(err, SDC_PEER, "gnuplot exited with %d and said: %s", WEXITSTATUS(status),
                       text);
    return SDC_OK;
}

enum sdc_status sdc__gnuplot_run(const char *script, size_t len, unsigned timeout_ms,
                                 struct sdc_buf *out, struct sdc_error *err) {
    struct child c = {.pid = -1, .script = -1, .out = {-1, -1}, .errs = {-1, -1}};
    struct sdc_buf complaint = {.max = MAX_COMPLAINT};
    enum sdc_status st;
    size_t limit = out->max;
    out->max = out->len + MAX_SVG;
    SDC_TRY_OUT(st, script_file(script, len, &c.script, err));
    SDC_TRY_OUT(st, start(&c, err));
    st = collect(&c, timeout_ms, out, &complaint, err);
    st = finish(&c, st, &complaint, err);
    if (st == SDC_OK && out->failed)
        st = SDC_ERR(err, SDC_NO_MEMORY, "no memory for a figure of gnuplot");
out:
    out->max = limit;
    close_fd(&c.script);
    for (int i = 0; i < 2; i++) {
        close_fd(&c.out[i]);
        close_fd(&c.errs[i]);
    }
    sdc__buf_release(&complaint);
    return st;
}
