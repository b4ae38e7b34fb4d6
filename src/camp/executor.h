/* SPDX-License-Identifier: Apache-2.0
 *
 * How a worker job is started, watched and ended. Not for talking to it: that is the pool's socket.
 * A seam: the pool knows jobs through struct sdc_executor_ops alone; sdc_executor_local starts a
 * process group on this machine.
 *
 * A job may start processes of its own. They are found again by the group of the job and by the
 * job's token, which every process of it has in its environment, so that none is left behind and no
 * other process is ever signalled. One thread per object.
 */
#ifndef SDC_CAMP_EXECUTOR_H
#define SDC_CAMP_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdc/status.h"

#define SDC_TOKEN_SIZE 33 /* 32 hex digits and NUL */

struct sdc_executor_job {
    const char *const *argv; /* NULL-terminated; argv[0] is the path of the program */
    const char *socket;      /* path for SDCLAB_WORKER=unix:PATH */
    const char *token;       /* for SDCLAB_TOKEN */
    const char *log;         /* stdout and stderr are appended here */
};

struct sdc_executor_process {
    pid_t pid;                  /* leader, and number of its process group; 0: none */
    int pidfd;                  /* readable when the leader has ended; -1 where there is none */
    bool ended;                 /* the leader was reaped; wait_status is valid */
    int wait_status;            /* as waitpid gives it */
    char token[SDC_TOKEN_SIZE]; /* of the job */
};

#define SDC_EXECUTOR_PROCESS_INIT                                                                  \
    { .pidfd = -1 }

struct sdc_executor_ops {
    const char *name;
    const char *summary;
    /* SDC_NOT_FOUND names a program that is not there; SDC_IO otherwise. */
    enum sdc_status (*start)(const struct sdc_executor_job *job, struct sdc_executor_process *p,
                             struct sdc_error *err);
    /* Looks whether the leader has ended, without waiting; fills ended and wait_status. */
    bool (*ended)(struct sdc_executor_process *p);
    /* Ends all that the job started: asks (SIGTERM), after grace_ms forces (SIGKILL), and comes
     * back when nothing is left. SDC_INTERNAL with what is left where even that fails. */
    enum sdc_status (*stop)(struct sdc_executor_process *p, unsigned grace_ms,
                            struct sdc_error *err);
};

extern const struct sdc_executor_ops sdc_executor_local;

/* 32 random hex digits. */
enum sdc_status sdc__token_make(char token[SDC_TOKEN_SIZE], struct sdc_error *err) SDC_MUST_CHECK;
/* Ends every process that has SDCLAB_TOKEN=token in its environment, the caller apart; returns how
 * many were found. For what a killed pool left behind. */
unsigned sdc__token_sweep(const char *token);
/* "killed by signal 11 (Segmentation fault)" or "ended with exit code 3". */
void sdc__wait_status_text(int wait_status, char *text, size_t size);

#endif
