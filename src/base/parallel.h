/* SPDX-License-Identifier: Apache-2.0
 *
 * Work on several threads with the results of one: tasks are numbered, any thread may take the next
 * one, but what a task found is handed over in the order of the numbers. So sums come out the same
 * for every number of threads, and no more results are held than there are threads.
 *
 *     struct sdc_parallel p = {.n_tasks = n, .threads = 0, .work = work, .commit = commit,
 *                              .user = &state, .slots = slots, .slot_size = sizeof slots[0]};
 *     SDC_TRY(sdc__parallel_run(&p, err));
 *
 * Not a pool: threads live as long as the call. One call at a time per object.
 */
#ifndef SDC_BASE_PARALLEL_H
#define SDC_BASE_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

/* More threads than this are never started. */
#define SDC_MAX_THREADS 256

struct sdc_parallel {
    uint64_t n_tasks;
    unsigned threads; /* how many slots there are; see sdc__parallel_threads */
    /* Does task number `task` into this thread's slot. Several at a time. */
    enum sdc_status (*work)(void *user, void *slot, uint64_t task, struct sdc_error *err);
    /* Takes the result out of the slot. One at a time, in the order of the tasks. NULL: there are
     * no results, and no thread waits for another. */
    enum sdc_status (*commit)(void *user, void *slot, uint64_t task, struct sdc_error *err);
    void *user;
    void *slots; /* `threads` of slot_size bytes each; owned by the caller */
    size_t slot_size;
    bool stop; /* set by commit: later tasks are not committed, and not begun if they have not */
};

/* Processors this process may use, at least 1. */
unsigned sdc__processors(void);
/* How many threads to use where `wanted` were asked for (0: one for each processor) and there are
 * n_tasks tasks; at least 1, at most SDC_MAX_THREADS. */
unsigned sdc__parallel_threads(unsigned wanted, uint64_t n_tasks);

/* Runs all tasks; the calling thread is one of the threads. Where threads cannot be started fewer
 * do the work. On failure of a task those before it have been committed, none after it, and its
 * error is returned: the same one for every number of threads. */
enum sdc_status sdc__parallel_run(struct sdc_parallel *p, struct sdc_error *err) SDC_MUST_CHECK;

#endif
