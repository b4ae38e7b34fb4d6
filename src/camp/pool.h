/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of worker processes that run run descriptions, one at a time each (sdc/worker.h). Not for
 * deciding what is run or what a result means: see exec.h.
 *
 * The pool opens a socket in a private folder, starts jobs through an executor, takes hellos with
 * the right token, hands out runs, and notices ends: "done" messages, deaths, hangs (the run's
 * events file stops growing) and workers that do not keep to the protocol. A worker that died, hung
 * or talked nonsense is ended with all its processes and replaced. Nothing polls busily: the loop
 * sleeps in poll(2) until something happens or the nearest deadline comes.
 *
 *     sdc__pool_new(&options, &pool, &err);
 *     sdc__pool_submit(pool, &job, &err);
 *     sdc__pool_wait(pool, -1, &result, &got, &err);       one result at a time
 *     sdc__pool_result_release(&result);
 *     sdc__pool_free(pool);                                 ends every worker
 *
 * One thread per object, and one pool per process at a time (it makes the process a subreaper).
 */
#ifndef SDC_CAMP_POOL_H
#define SDC_CAMP_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "camp/executor.h"
#include "sdc/status.h"
#include "sdc/worker.h"

struct sdc_pool_options {
    const struct sdc_executor_ops *executor; /* NULL: sdc_executor_local */
    const char *const *argv;                 /* program and arguments of a worker, copied */
    unsigned workers;                        /* 1 to 1024 */
    const char *log_folder;                  /* exists; worker-N.log in it are appended to */
    /* File that lists what must be cleaned up if this process is killed (tokens of workers, the
     * socket's folder); removed by sdc__pool_free. What an earlier pool left in it is cleaned up by
     * sdc__pool_new. NULL: none is kept. */
    const char *leftovers;
    unsigned hello_ms; /* for a worker's hello; 0: 120 s */
    unsigned grace_ms; /* between SIGTERM and SIGKILL, and for a worker to quit; 0: 2 s */
    int wake_fd;       /* sdc__pool_wait comes back when it is readable; -1: none */
};

struct sdc_pool;

enum sdc_status sdc__pool_new(const struct sdc_pool_options *options, struct sdc_pool **pool,
                              struct sdc_error *err) SDC_MUST_CHECK;
/* Ends all workers: idle ones are asked to quit, others are ended. Accepts NULL. */
void sdc__pool_free(struct sdc_pool *pool);

/* Which worker may take a job. */
enum sdc_pool_place {
    SDC_POOL_ANY,
    SDC_POOL_FRESH, /* one that has run nothing yet; an idle one is replaced if need be */
    SDC_POOL_PINNED /* the worker with this number; the job ends as GONE if that is no more */
};

struct sdc_pool_job {
    const char *trial;  /* id, for messages; copied */
    const char *path;   /* of the run description; copied */
    const char *events; /* file whose growth shows life; copied */
    unsigned hang_ms;   /* no growth for so long is a hang; 0: 120 s */
    enum sdc_pool_place place;
    uint64_t worker; /* for PINNED */
    void *user;      /* comes back with the result */
};

enum sdc_pool_end {
    SDC_POOL_DONE,    /* the worker said so; status and message are its own */
    SDC_POOL_CRASHED, /* the worker died, closed its socket or broke the protocol; message says */
    SDC_POOL_HUNG,    /* no progress; message says for how long */
    SDC_POOL_GONE     /* the worker that it was pinned to has been replaced; nothing was run */
};

struct sdc_pool_result {
    void *user;
    enum sdc_pool_end end;
    enum sdc_status status; /* for DONE */
    char *message;          /* owned; NULL if none; the same whenever the same thing happens */
    uint64_t worker;        /* number of the worker, never used twice; 0 for GONE */
    char *log;              /* owned; the worker's log file; NULL for GONE */
};

void sdc__pool_result_release(struct sdc_pool_result *r);

/* Jobs are handed out in the order in which they came, except for place. */
enum sdc_status sdc__pool_submit(struct sdc_pool *pool, const struct sdc_pool_job *job,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Waits for the next result, at most timeout_ms (-1: without limit). *got false: time is up, or
 * wake_fd is readable, or nothing is queued or running. SDC_PEER: workers cannot be started (three
 * in a row ended or said no hello; the end of the log is in the message); SDC_MISMATCH: a worker is
 * another trainer or platform than the first. */
enum sdc_status sdc__pool_wait(struct sdc_pool *pool, int timeout_ms,
                               struct sdc_pool_result *result, bool *got,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Starts a first worker if there is none and waits for its hello; *hello is borrowed until the pool
 * is freed. */
enum sdc_status sdc__pool_hello(struct sdc_pool *pool, const struct sdc_worker_message **hello,
                                struct sdc_error *err) SDC_MUST_CHECK;

size_t sdc__pool_pending(const struct sdc_pool *pool); /* queued and running */
/* Drops what is queued but not running (no results come for it); returns how many, and their user
 * pointers in users[0 .. n-1] where users is not NULL (room for sdc__pool_pending of them). */
size_t sdc__pool_drop_queued(struct sdc_pool *pool, void **users);
/* Ends this worker if it is idle, so that another takes its place. */
enum sdc_status sdc__pool_replace(struct sdc_pool *pool, uint64_t worker,
                                  struct sdc_error *err) SDC_MUST_CHECK;

#endif
