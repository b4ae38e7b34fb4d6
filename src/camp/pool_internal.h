/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the pool, shared by pool.c (loop and jobs), pool_worker.c (one worker's life) and
 * pool_leftovers.c (what a killed pool leaves behind).
 */
#ifndef SDC_CAMP_POOL_INTERNAL_H
#define SDC_CAMP_POOL_INTERNAL_H

#include "base/str.h"
#include "camp/pool.h"

#define SDC_POOL_MAX_LINE (1024 * 1024)

enum sdc_pool_state {
    SDC_WORKER_NONE,     /* the slot is empty */
    SDC_WORKER_STARTING, /* no hello yet */
    SDC_WORKER_IDLE,
    SDC_WORKER_RUNNING
};

struct sdc_pool_task {
    struct sdc_pool_job job; /* strings owned */
    struct sdc_pool_task *next;
};

struct sdc_pool_worker {
    enum sdc_pool_state state;
    uint64_t number;
    struct sdc_executor_process process;
    int fd; /* -1: not connected */
    struct sdc_buf in;
    uint64_t runs;              /* handed out so far */
    enum sdc_pool_place place;  /* of the last one */
    uint64_t deadline;          /* for the hello */
    struct sdc_pool_task *task; /* owned while RUNNING */
    uint64_t grew;              /* when the events file last grew */
    int64_t size;               /* of the events file then; -1: it was not there */
    char *log;                  /* owned */
    uint64_t log_start;         /* its size before this worker */
};

/* A connection whose hello has not come. */
struct sdc_pool_guest {
    int fd;
    uint64_t deadline;
    struct sdc_buf in;
};

#define SDC_POOL_MAX_GUESTS 64

struct sdc_pool {
    const struct sdc_executor_ops *executor;
    char **argv; /* owned, NULL-terminated */
    size_t argc;
    unsigned n_workers;
    char *log_folder, *leftovers;
    unsigned hello_ms, grace_ms;
    int wake_fd;

    char *folder, *socket; /* owned */
    int listener;
    bool was_subreaper;

    struct sdc_pool_worker *workers; /* [n_workers] */
    uint64_t next_number;
    struct sdc_pool_guest guests[SDC_POOL_MAX_GUESTS];
    size_t n_guests;

    struct sdc_pool_task *queue, **queue_end;
    size_t n_queued;
    struct sdc_pool_result *ready; /* results not yet taken, in order */
    size_t n_ready, cap_ready;

    bool has_hello;
    struct sdc_worker_message hello; /* the first worker's */
    unsigned failed_starts;          /* in a row */
    char last_failure[512];
};

void sdc__pool_task_free(struct sdc_pool_task *task);

/* ---- pool_worker.c ---- */
enum sdc_status sdc__pool_worker_start(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* Ends the worker, makes its task (if any) a result with this end, and empties the slot. message
 * NULL: from how the process ended. */
enum sdc_status sdc__pool_worker_end(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                     enum sdc_pool_end end, const char *message,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Asks an idle worker to quit, waits grace_ms, then ends it. */
enum sdc_status sdc__pool_worker_quit(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                      struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__pool_worker_run(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                     struct sdc_pool_task *task,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Reads what came; acts on whole lines. */
enum sdc_status sdc__pool_worker_read(struct sdc_pool *pool, struct sdc_pool_worker *w,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* Reads a guest's hello; *settled when the guest is a worker now, or was turned away. */
enum sdc_status sdc__pool_guest_read(struct sdc_pool *pool, struct sdc_pool_guest *g, bool *settled,
                                     struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__pool_result_add(struct sdc_pool *pool, struct sdc_pool_task *task,
                                     enum sdc_pool_end end, enum sdc_status status,
                                     const char *message, const struct sdc_pool_worker *w,
                                     struct sdc_error *err) SDC_MUST_CHECK;

/* ---- pool_leftovers.c ---- */
/* Cleans up what the file names and removes it. A missing or unreadable file is nothing. */
void sdc__pool_leftovers_clean(const char *path);
/* Writes the file for the pool as it is now. */
enum sdc_status sdc__pool_leftovers_write(const struct sdc_pool *pool,
                                          struct sdc_error *err) SDC_MUST_CHECK;

#endif
