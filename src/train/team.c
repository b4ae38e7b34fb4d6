/* SPDX-License-Identifier: Apache-2.0 */
#include "train/team.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/alloc.h"

#define LOOK_MS 500 /* how often the caller looks at the beat */

struct member {
    struct sdc_team *team;
    unsigned rank;
    pthread_t thread;
};

struct sdc_team {
    pthread_mutex_t mutex;
    pthread_cond_t start, done;
    unsigned ranks, created;
    unsigned job;     /* number of the present job */
    unsigned running; /* threads that are not back yet */
    bool quit, lost;
    sdc_team_function *f;
    void *arg;
    struct member *members;
};

static void *member_main(void *arg) {
    struct member *m = arg;
    struct sdc_team *t = m->team;
    unsigned seen = 0;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        while (t->job == seen && !t->quit)
            pthread_cond_wait(&t->start, &t->mutex);
        if (t->quit)
            break;
        seen = t->job;
        pthread_mutex_unlock(&t->mutex);
        t->f(m->rank, t->arg);
        pthread_mutex_lock(&t->mutex);
        if (--t->running == 0)
            pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

enum sdc_status sdc_team_new(unsigned ranks, struct sdc_team **out, struct sdc_error *err) {
    *out = NULL;
    struct sdc_team *t = sdc__calloc(1, sizeof *t);
    struct member *members = sdc__calloc(ranks, sizeof *members);
    if (!t || !members) {
        sdc__free(t);
        sdc__free(members);
        return SDC_NOMEM(err, "rank threads");
    }
    t->members = members;
    t->ranks = ranks;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->start, NULL);
    pthread_cond_init(&t->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (unsigned r = 0; r < ranks; r++) {
        members[r] = (struct member){.team = t, .rank = r};
        int code = pthread_create(&members[r].thread, NULL, member_main, &members[r]);
        if (code != 0) {
            sdc_team_free(t);
            return SDC_ERR_SYS(err, SDC_LIMIT, code, "start the thread of rank %u of %u", r, ranks);
        }
        t->created++;
    }
    *out = t;
    return SDC_OK;
}

void sdc_team_free(struct sdc_team *team) {
    if (!team || team->lost)
        return;
    pthread_mutex_lock(&team->mutex);
    team->quit = true;
    pthread_cond_broadcast(&team->start);
    pthread_mutex_unlock(&team->mutex);
    for (unsigned r = 0; r < team->created; r++)
        pthread_join(team->members[r].thread, NULL);
    pthread_cond_destroy(&team->start);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->mutex);
    sdc__free(team->members);
    sdc__free(team);
}

/* With the mutex held: waits until all are back or the beat stood still too long. */
static bool wait_done(struct sdc_team *t, atomic_uint *beat, unsigned stall_ms) {
    unsigned seen = atomic_load(beat), still_ms = 0;
    while (t->running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)LOOK_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&t->done, &t->mutex, &until) != ETIMEDOUT)
            continue;
        unsigned now = atomic_load(beat);
        still_ms = now == seen ? still_ms + LOOK_MS : 0;
        seen = now;
        if (still_ms >= stall_ms)
            return false;
    }
    return true;
}

enum sdc_status sdc_team_run(struct sdc_team *team, sdc_team_function *f, void *arg,
                             atomic_uint *beat, unsigned stall_ms, struct sdc_error *err) {
    if (team->lost)
        return SDC_ERR(err, SDC_INTERNAL, "the rank threads are lost");
    pthread_mutex_lock(&team->mutex);
    team->f = f;
    team->arg = arg;
    team->running = team->ranks;
    team->job++;
    pthread_cond_broadcast(&team->start);
    bool back = wait_done(team, beat, stall_ms);
    unsigned missing = team->running;
    team->lost = !back;
    pthread_mutex_unlock(&team->mutex);
    if (!back)
        return SDC_ERR(err, SDC_TIMEOUT, "%u of %u rank threads did not come back", missing,
                       team->ranks);
    return SDC_OK;
}

bool sdc_team_lost(const struct sdc_team *team) {
    return team->lost;
}
