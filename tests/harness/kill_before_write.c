/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a command and stops it, with all processes it started, before one of the system calls by
 * which it changes files: the kernel says which calls those are, not a hook of ours.
 *
 *     kill_before_write N COMMAND...
 *
 * Kills before the N-th such call and prints "killed before CALL PATH"; where there are fewer, or N
 * is 0, the command ends by itself and "COUNT calls" is printed. Exit status: 0 killed, 1 ended
 * with success, 2 ended with failure, 77 where tracing is not allowed here. What is written to
 * pipes, terminals and devices does not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

#define MAX_PROCESSES 64
#define SKIPPED       77

static pid_t processes[MAX_PROCESSES]; /* 0: a free place */

static void know(pid_t pid) {
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (processes[i] == pid)
            return;
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (processes[i] == 0) {
            processes[i] = pid;
            return;
        }
    fprintf(stderr, "more than %d processes\n", MAX_PROCESSES);
    exit(3);
}

static bool forget(pid_t pid) {
    bool left = false;
    for (int i = 0; i < MAX_PROCESSES; i++) {
        if (processes[i] == pid)
            processes[i] = 0;
        left = left || processes[i] != 0;
    }
    return left;
}

/* What descriptor fd of a process is: false if no file or folder with a name. */
static bool file_of(pid_t pid, uint64_t fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%ld/fd/%llu", (long)pid, (unsigned long long)fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        return false;
    path[n] = '\0';
    return path[0] == '/' && strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/proc/", 6) != 0;
}

/* The text at an address of a process. */
static void text_of(pid_t pid, uint64_t address, char path[PATH_MAX]) {
    char name[64];
    path[0] = '\0';
    snprintf(name, sizeof name, "/proc/%ld/mem", (long)pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    for (size_t n = 0; fd >= 0 && n < PATH_MAX - 1; n++) {
        if (pread(fd, path + n, 1, (off_t)(address + n)) != 1 || path[n] == '\0')
            break;
        path[n + 1] = '\0';
    }
    if (fd >= 0)
        close(fd);
}

enum form { FD, PATH0, PATH1, OPEN2, OPEN1, FD2 }; /* where a call says what it changes */

static const struct {
    const char *name;
    uint64_t number;
    enum form form;
} calls[] = {
    {"write", SYS_write, FD},
    {"writev", SYS_writev, FD},
    {"pwrite64", SYS_pwrite64, FD},
    {"pwritev", SYS_pwritev, FD},
    {"pwritev2", SYS_pwritev2, FD},
    {"ftruncate", SYS_ftruncate, FD},
    {"fallocate", SYS_fallocate, FD},
    {"fsync", SYS_fsync, FD},
    {"fdatasync", SYS_fdatasync, FD},
    {"sync_file_range", SYS_sync_file_range, FD},
    {"fchmod", SYS_fchmod, FD},
    {"sendfile", SYS_sendfile, FD},
    {"copy_file_range", SYS_copy_file_range, FD2},
    {"openat", SYS_openat, OPEN2},
    {"unlinkat", SYS_unlinkat, PATH1},
    {"linkat", SYS_linkat, PATH1},
    {"symlinkat", SYS_symlinkat, PATH0},
    {"mkdirat", SYS_mkdirat, PATH1},
    {"renameat2", SYS_renameat2, PATH1},
    {"truncate", SYS_truncate, PATH0},
#ifdef SYS_open
    {"open", SYS_open, OPEN1},
    {"creat", SYS_creat, PATH0},
    {"unlink", SYS_unlink, PATH0},
    {"rmdir", SYS_rmdir, PATH0},
    {"link", SYS_link, PATH0},
    {"mkdir", SYS_mkdir, PATH0},
    {"rename", SYS_rename, PATH0},
    {"renameat", SYS_renameat, PATH1},
    {"chmod", SYS_chmod, PATH0},
#endif
};

/* Name of the call that a process stands before if it changes a file, else NULL. */
static const char *changing_call(pid_t pid, char path[PATH_MAX]) {
    struct ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return NULL;
    const uint64_t *args = (const uint64_t *)(const void *)info.entry.args;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (info.entry.nr != calls[i].number)
            continue;
        switch (calls[i].form) {
        case FD:
            return file_of(pid, args[0], path) ? calls[i].name : NULL;
        case FD2:
            return file_of(pid, args[2], path) ? calls[i].name : NULL;
        case OPEN1:
        case OPEN2: {
            const int at = calls[i].form == OPEN2;
            if (!(args[at + 1] & (O_CREAT | O_TRUNC)))
                return NULL;
            text_of(pid, args[at], path);
            return strncmp(path, "/dev/", 5) != 0 ? calls[i].name : NULL;
        }
        case PATH0:
        case PATH1:
            text_of(pid, args[calls[i].form == PATH1], path);
            return calls[i].name;
        }
    }
    return NULL;
}

static void kill_all(void) {
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (processes[i] > 0)
            kill(processes[i], SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        continue;
}

/* A signal that a stopped process is to get, or 0. */
static int signal_of(int status) {
    int sig = WSTOPSIG(status);
    return sig == (SIGTRAP | 0x80) || sig == SIGTRAP || (status >> 16) != 0 ? 0 : sig;
}

static int trace(pid_t child, unsigned long at) {
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    unsigned long n = 0;
    int status, result = 2;
    char path[PATH_MAX];
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, 0, options) != 0)
        return SKIPPED;
    know(child);
    ptrace(PTRACE_SYSCALL, child, 0, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            break;
        if (!WIFSTOPPED(status)) {
            if (pid == child)
                result = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : 2;
            if (!forget(pid))
                break;
            continue;
        }
        know(pid); /* a new one stops first */
        bool fresh = WSTOPSIG(status) == SIGSTOP;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            const char *call = changing_call(pid, path);
            if (call && ++n == at) {
                printf("killed before %s %s\n", call, path);
                kill_all();
                return 0;
            }
        }
        ptrace(PTRACE_SYSCALL, pid, 0, fresh ? 0 : signal_of(status));
    }
    printf("%lu calls\n", n);
    return result;
}

int main(int argc, char **argv) {
    char *end;
    unsigned long at = argc > 2 ? strtoul(argv[1], &end, 10) : 0;
    if (argc < 3 || *end) {
        fprintf(stderr, "usage: kill_before_write N COMMAND...\n");
        return 3;
    }
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(SKIPPED);
        raise(SIGSTOP);
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (child < 0) {
        perror("fork");
        return 3;
    }
    return trace(child, at);
}
