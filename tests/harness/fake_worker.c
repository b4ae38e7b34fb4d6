/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker process for tests of the pool. It speaks the protocol with texts of its own, not through
 * the library, and does what the trial's name says. usage: fake_worker MODE [TEXT]
 *
 * MODE: ok; liar (a wrong token); mute (no hello); dead (ends before its hello); chatty (more than
 * a hello); stubborn (ok, but SIGTERM is ignored); TEXT replaces the platform, where "PID" gives
 * each process its own.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int fd = -1;

static void nap(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void say(const char *text) {
    size_t len = strlen(text);
    if (send(fd, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        exit(9);
}

static void done(const char *trial, const char *status, const char *message) {
    char line[1024];
    if (message)
        snprintf(line, sizeof line,
                 "{\"type\":\"done\",\"trial\":\"%.200s\",\"status\":\"%s\",\"message\":\"%.600s\"}"
                 "\n",
                 trial, status, message);
    else
        snprintf(line, sizeof line,
                 "{\"type\":\"done\",\"trial\":\"%.200s\",\"status\":\"%s\",\"message\":null}\n",
                 trial, status);
    say(line);
}

static void join_pool(void) {
    const char *where = getenv("SDCLAB_WORKER");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!where || strncmp(where, "unix:", 5) != 0 || strlen(where + 5) >= sizeof address.sun_path)
        exit(8);
    memcpy(address.sun_path, where + 5, strlen(where + 5) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        exit(8);
}

static void hello(const char *token, const char *platform, const char *more) {
    char line[1024], own[32];
    snprintf(own, sizeof own, "pid %ld", (long)getpid());
    if (strcmp(platform, "PID") == 0)
        platform = own;
    snprintf(line, sizeof line,
             "{\"type\":\"hello\",\"schema\":\"sdclab.worker/1\",\"token\":\"%.100s\","
             "\"trainer\":\"fake 1\",\"versions\":{\"fake\":\"1\"},\"ranks\":0,"
             "\"platform\":\"%.200s\"}\n%s",
             token, platform, more);
    say(line);
}

/* A value of a message, by its key; the pool writes plain texts in these tests. */
static void value(const char *line, const char *key, char *out, size_t size) {
    char name[32];
    snprintf(name, sizeof name, "\"%s\":\"", key);
    const char *at = strstr(line, name);
    out[0] = '\0';
    if (!at)
        return;
    at += strlen(name);
    size_t len = strcspn(at, "\"");
    snprintf(out, size, "%.*s", (int)len, at);
}

static void write_events(const char *path, int times) {
    char events[512];
    const char *slash = strrchr(path, '/');
    snprintf(events, sizeof events, "%.*s/events.jsonl", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
    for (int i = 0; i < times; i++) {
        FILE *f = fopen(events, "a");
        if (f) {
            fputs("{}\n", f);
            fclose(f);
        }
        nap(100);
    }
}

/* A process of its own that would stay: in another session, deaf to SIGTERM. */
static void leave_a_child(int other_session) {
    pid_t child = fork();
    if (child == 0) {
        if (other_session)
            setsid();
        signal(SIGTERM, SIG_IGN);
        for (;;)
            nap(1000);
    }
}

static void environment(const char *trial) {
    char text[512], c;
    const char *omp = getenv("OMP_NUM_THREADS"), *blas = getenv("OPENBLAS_NUM_THREADS");
    snprintf(text, sizeof text, "omp=%s blas=%s stdin=%s group=%s", omp ? omp : "none",
             blas ? blas : "none", read(0, &c, 1) == 0 ? "empty" : "open",
             getpgrp() == getpid() ? "own" : "shared");
    done(trial, "OK", text);
}

static void act(const char *trial, const char *path) {
    char text[64];
    if (strncmp(trial, "crash", 5) == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers catch it */
        raise(SIGSEGV);
    } else if (strncmp(trial, "exit", 4) == 0) {
        exit(3);
    } else if (strncmp(trial, "hang", 4) == 0) {
        for (;;)
            nap(1000);
    } else if (strncmp(trial, "slow", 4) == 0) {
        write_events(path, 12);
    } else if (strncmp(trial, "stall", 5) == 0) {
        write_events(path, 3);
        for (;;)
            nap(1000);
    } else if (strncmp(trial, "garbage", 7) == 0) {
        say("what?\n");
        nap(60000);
    } else if (strncmp(trial, "wrong", 5) == 0) {
        done("another", "OK", NULL);
        nap(60000);
    } else if (strncmp(trial, "close", 5) == 0) {
        close(fd);
        nap(60000);
    } else if (strncmp(trial, "child", 5) == 0) {
        leave_a_child(0);
        exit(0);
    } else if (strncmp(trial, "stray", 5) == 0) {
        leave_a_child(1);
        exit(0);
    } else if (strncmp(trial, "environment", 11) == 0) {
        environment(trial);
        return;
    } else if (strncmp(trial, "fail", 4) == 0) {
        done(trial, "IO", "no space left on device");
        return;
    }
    snprintf(text, sizeof text, "%ld", (long)getpid());
    done(trial, "OK", text);
}

static void serve(void) {
    char line[8192], trial[256], path[4096];
    size_t len = 0;
    for (;;) {
        ssize_t got = recv(fd, line + len, sizeof line - 1 - len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return; /* the pool is gone */
        len += (size_t)got;
        line[len] = '\0';
        for (char *end; (end = strchr(line, '\n')) != NULL;) {
            *end = '\0';
            value(line, "type", trial, sizeof trial);
            if (strcmp(trial, "quit") == 0)
                return;
            value(line, "trial", trial, sizeof trial);
            value(line, "path", path, sizeof path);
            act(trial, path);
            len -= (size_t)(end + 1 - line);
            memmove(line, end + 1, len + 1);
        }
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "ok", *platform = argc > 2 ? argv[2] : "test platform";
    const char *token = getenv("SDCLAB_TOKEN");
    if (strcmp(mode, "dead") == 0) {
        fprintf(stderr, "the data folder is missing\n");
        return 7;
    }
    if (strcmp(mode, "stubborn") == 0)
        signal(SIGTERM, SIG_IGN);
    join_pool();
    if (strcmp(mode, "mute") == 0)
        for (;;)
            nap(1000);
    const char *own = strcmp(mode, "liar") == 0 ? "0123456789abcdef0123456789abcdef" : token;
    hello(own ? own : "", platform, strcmp(mode, "chatty") == 0 ? "{}\n" : "");
    serve();
    return 0;
}
