/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>

struct run {
    struct sdc_parallel *p;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* committed has moved, or ended is set */
    uint64_t next;       /* the task to be taken next */
    uint64_t committed;  /* tasks committed, which are those below this number */
    uint64_t failed;     /* of tasks without results: the first that failed, if ended */
    bool ended;          /* a task failed or stop was set: nothing more is committed */
    enum sdc_status st;
    struct sdc_error err;
};

struct worker {
    struct run *run;
    pthread_t thread;
    unsigned slot;
};

unsigned sdc__processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1; /* over 1,024 processors, or none of our business */
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : (unsigned)n;
}

unsigned sdc__parallel_threads(unsigned wanted, uint64_t n_tasks) {
    uint64_t n = wanted ? wanted : sdc__processors();
    n = n > n_tasks ? n_tasks : n;
    n = n > SDC_MAX_THREADS ? SDC_MAX_THREADS : n;
    return n < 1 ? 1 : (unsigned)n;
}

/* Without results to hand over nothing is waited for. Tasks are taken in their order, so those
 * before a failed one are done or under way: the first of all that fail is the one to report. */
static void note_end(struct run *r, uint64_t task, enum sdc_status st,
                     const struct sdc_error *err) {
    if (st == SDC_OK || (r->ended && r->failed < task))
        return;
    r->ended = true;
    r->failed = task;
    r->st = st;
    r->err = *err;
}

/* Waits until all tasks before this one are committed, then commits it. Called with the lock. */
static void hand_over(struct run *r, void *slot, uint64_t task, enum sdc_status st,
                      struct sdc_error *err) {
    if (!r->p->commit) {
        note_end(r, task, st, err);
        return;
    }
    while (r->committed != task && !r->ended)
        (void)pthread_cond_wait(&r->turn, &r->lock);
    if (r->ended)
        return;
    if (st == SDC_OK)
        st = r->p->commit(r->p->user, slot, task, err);
    if (st != SDC_OK) {
        r->st = st;
        r->err = *err;
    }
    r->ended = st != SDC_OK || r->p->stop;
    r->committed++;
    (void)pthread_cond_broadcast(&r->turn);
}

static void take_tasks(struct run *r, unsigned index) {
    void *slot = (char *)r->p->slots + index * r->p->slot_size;
    (void)pthread_mutex_lock(&r->lock);
    while (!r->ended && r->next < r->p->n_tasks) {
        struct sdc_error err = {0};
        uint64_t task = r->next++;
        (void)pthread_mutex_unlock(&r->lock);
        enum sdc_status st = r->p->work(r->p->user, slot, task, &err);
        (void)pthread_mutex_lock(&r->lock);
        hand_over(r, slot, task, st, &err);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

static void *thread_main(void *arg) {
    struct worker *w = arg;
    take_tasks(w->run, w->slot);
    return NULL;
}

enum sdc_status sdc__parallel_run(struct sdc_parallel *p, struct sdc_error *err) {
    struct worker workers[SDC_MAX_THREADS];
    struct run r = {.p = p, .st = SDC_OK};
    unsigned started = 0, threads = p->threads < SDC_MAX_THREADS ? p->threads : SDC_MAX_THREADS;
    p->stop = false;
    (void)pthread_mutex_init(&r.lock, NULL);
    (void)pthread_cond_init(&r.turn, NULL);
    for (unsigned i = 1; i < threads; i++) {
        workers[started] = (struct worker){.run = &r, .slot = i};
        if (pthread_create(&workers[started].thread, NULL, thread_main, &workers[started]) != 0)
            break;
        started++;
    }
    take_tasks(&r, 0);
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(workers[i].thread, NULL);
    (void)pthread_cond_destroy(&r.turn);
    (void)pthread_mutex_destroy(&r.lock);
    if (r.st != SDC_OK && err)
        *err = r.err;
    return r.st;
}
