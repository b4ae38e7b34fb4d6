/* SPDX-License-Identifier: Apache-2.0 */
#include "camp/executor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"

enum sdc_status sdc__token_make(char token[SDC_TOKEN_SIZE], struct sdc_error *err) {
    unsigned char bytes[(SDC_TOKEN_SIZE - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return SDC_ERR_SYS(err, SDC_IO, errno, "draw a token for a worker");
    sdc__hex_encode(bytes, sizeof bytes, token);
    return SDC_OK;
}

void sdc__wait_status_text(int wait_status, char *text, size_t size) {
    if (WIFSIGNALED(wait_status))
        snprintf(text, size, "killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(text, size, "ended with exit code %d", WEXITSTATUS(wait_status));
}

/* ---- environment of the job ---- */

struct job_env {
    char **items; /* NULL-terminated */
    size_t n;
};

static void job_env_release(struct job_env *env) {
    for (size_t i = 0; i < env->n; i++)
        sdc__free(env->items[i]);
    sdc__free(env->items);
}

static bool replaced(const char *entry) {
    static const char *const names[] = {
        "SDCLAB_WORKER=", "SDCLAB_TOKEN=", "OMP_NUM_THREADS=", "OPENBLAS_NUM_THREADS="};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* One thread for BLAS and OpenMP: other numbers give other bits, and workers fill the cores. */
static enum sdc_status job_env_make(const struct sdc_executor_job *job, struct job_env *env,
                                    struct sdc_error *err) {
    size_t n = 0;
    while (environ && environ[n])
        n++;
    env->n = 0;
    env->items = sdc__calloc(n + 5, sizeof *env->items);
    if (!env->items)
        return SDC_NOMEM(err, "a worker's environment");
    for (size_t i = 0; i < n; i++)
        if (!replaced(environ[i]) && !(env->items[env->n++] = sdc__strdup(environ[i])))
            return SDC_NOMEM(err, "a worker's environment");
    char *own[] = {
        sdc__asprintf("SDCLAB_WORKER=unix:%s", job->socket),
        sdc__asprintf("SDCLAB_TOKEN=%s", job->token),
        sdc__strdup("OMP_NUM_THREADS=1"),
        sdc__strdup("OPENBLAS_NUM_THREADS=1"),
    };
    bool whole = true;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (own[i])
            env->items[env->n++] = own[i];
        else
            whole = false;
    }
    return whole ? SDC_OK : SDC_NOMEM(err, "a worker's environment");
}

/* ---- processes of a job ---- */

static bool environment_has(pid_t pid, const char *wanted) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/environ", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct sdc_buf text = SDC_BUF_INIT;
    char part[4096];
    for (;;) {
        ssize_t got = read(fd, part, sizeof part);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        sdc__buf_append(&text, part, (size_t)got);
    }
    close(fd);
    bool found = false;
    for (size_t at = 0; !text.failed && at < text.len && !found;) {
        const char *entry = text.data + at;
        found = strcmp(entry, wanted) == 0;
        at += strlen(entry) + 1;
    }
    sdc__buf_release(&text);
    return found;
}

/* Signals (0: only counts) the processes that carry the token. */
static unsigned signal_by_token(const char *token, int signal_number) {
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    char wanted[sizeof "SDCLAB_TOKEN=" + SDC_TOKEN_SIZE];
    snprintf(wanted, sizeof wanted, "SDCLAB_TOKEN=%s", token);
    unsigned n = 0;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        unsigned long long pid;
        if (!sdc__parse_u64(e->d_name, &pid) || pid == (unsigned long long)getpid() ||
            !environment_has((pid_t)pid, wanted))
            continue;
        n++;
        if (signal_number)
            kill((pid_t)pid, signal_number);
    }
    closedir(proc);
    return n;
}

unsigned sdc__token_sweep(const char *token) {
    unsigned found = signal_by_token(token, SIGTERM);
    for (unsigned i = 0; i < 100 && signal_by_token(token, 0); i++) {
        if (i >= 20)
            signal_by_token(token, SIGKILL);
        sdc__sleep_ms(20);
    }
    return found;
}

static enum sdc_status local_start(const struct sdc_executor_job *job,
                                   struct sdc_executor_process *p, struct sdc_error *err) {
    *p = (struct sdc_executor_process)SDC_EXECUTOR_PROCESS_INIT;
    if (access(job->argv[0], X_OK) != 0)
        return SDC_ERR_SYS(err, SDC_NOT_FOUND, errno, "start the worker program %s", job->argv[0]);
    snprintf(p->token, sizeof p->token, "%s", job->token);
    struct job_env env = {0};
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int log = open(job->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    enum sdc_status st = SDC_OK;
    if (in < 0 || log < 0) {
        st = SDC_ERR_SYS(err, SDC_IO, errno, "open %s", in < 0 ? "/dev/null" : job->log);
        goto out;
    }
    SDC_TRY_OUT(st, job_env_make(job, &env, err));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        st = SDC_ERR_SYS(err, SDC_IO, errno, "start a process for %s", job->argv[0]);
        goto out;
    }
    if (pid == 0) {
        /* only calls that are safe between fork and exec */
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed pool takes its workers along */
        if (getppid() != parent)
            _exit(127);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        if (dup2(in, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
            _exit(127);
        execve(job->argv[0], (char *const *)(uintptr_t)job->argv, env.items);
        _exit(127);
    }
    setpgid(pid, pid); /* in both: whoever comes first */
    p->pid = pid;
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (p->pidfd >= 0)
        fcntl(p->pidfd, F_SETFD, FD_CLOEXEC);
out:
    job_env_release(&env);
    if (in >= 0)
        close(in);
    if (log >= 0)
        close(log);
    return st;
}

static bool local_ended(struct sdc_executor_process *p) {
    if (p->ended || p->pid == 0)
        return true;
    int status = 0;
    pid_t got = waitpid(p->pid, &status, WNOHANG);
    if (got == p->pid || (got < 0 && errno == ECHILD)) {
        p->ended = true;
        p->wait_status = got == p->pid ? status : 0;
    }
    return p->ended;
}

/* Reaps what of the group has ended: the leader, and orphans that came to us as subreaper. */
static bool group_is_gone(struct sdc_executor_process *p) {
    local_ended(p);
    for (;;) {
        int status;
        pid_t got = waitpid(-p->pid, &status, WNOHANG);
        if (got <= 0)
            break;
        if (got == p->pid) {
            p->ended = true;
            p->wait_status = status;
        }
    }
    return kill(-p->pid, 0) != 0 && errno == ESRCH;
}

static bool wait_for_group(struct sdc_executor_process *p, unsigned ms) {
    for (unsigned waited = 0;; waited += 5) {
        if (group_is_gone(p))
            return true;
        if (waited >= ms)
            return false;
        sdc__sleep_ms(5);
    }
}

static enum sdc_status local_stop(struct sdc_executor_process *p, unsigned grace_ms,
                                  struct sdc_error *err) {
    if (p->pid == 0)
        return SDC_OK;
    enum sdc_status st = SDC_OK;
    if (!group_is_gone(p)) {
        kill(-p->pid, SIGTERM);
        if (!wait_for_group(p, grace_ms)) {
            kill(-p->pid, SIGKILL);
            if (!wait_for_group(p, 10000))
                st = SDC_ERR(err, SDC_INTERNAL, "process group %ld of a worker does not end",
                             (long)p->pid);
        }
    }
    sdc__token_sweep(p->token); /* what left the group */
    group_is_gone(p);
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pidfd = -1;
    p->pid = 0;
    return st;
}

const struct sdc_executor_ops sdc_executor_local = {
    .name = "local",
    .summary = "a process group on this machine",
    .start = local_start,
    .ended = local_ended,
    .stop = local_stop,
};
