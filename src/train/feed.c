/* SPDX-License-Identifier: Apache-2.0 */
#include "train/feed.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"

/* A batch by what decides its contents. */
struct order {
    const struct sdc_dataset *set;
    struct sdc_augment augment;
    uint64_t step;
};

enum state {
    IDLE,  /* nothing asked, nothing there */
    ASKED, /* the thread works, or is about to */
    READY  /* `order` lies in images and labels, or `status` says why not */
};

struct sdc_feed {
    struct sdc_sharding sharding;
    uint32_t rank;
    uint64_t per_epoch;
    /* the sampler and what follows belong to the thread while ASKED, else to the caller */
    struct sdc_sampler *sampler;
    struct order order;
    uint32_t *indices;
    float *images; /* made at the first use, for images of `pixels` */
    int32_t *labels;
    size_t pixels;
    enum sdc_status status;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum state state;
    bool has_thread, quit;
    pthread_t thread;
};

static enum sdc_status gather(struct sdc_feed *f, const struct order *o, float *images,
                              int32_t *labels, struct sdc_error *err) {
    SDC_TRY(sdc_sampler_batch(f->sampler, f->rank, o->step, f->indices, err));
    sdc_dataset_gather(o->set, f->indices, f->sharding.batch, &o->augment,
                       (uint32_t)(o->step / f->per_epoch), images, labels);
    return SDC_OK;
}

static void *thread_main(void *arg) {
    struct sdc_feed *f = arg;
    pthread_mutex_lock(&f->mutex);
    for (;;) {
        while (f->state != ASKED && !f->quit)
            pthread_cond_wait(&f->changed, &f->mutex);
        if (f->quit)
            break;
        pthread_mutex_unlock(&f->mutex);
        /* a failure is told when the batch is asked for: it is gathered again then */
        struct sdc_error ignored;
        f->status = gather(f, &f->order, f->images, f->labels, &ignored);
        pthread_mutex_lock(&f->mutex);
        f->state = READY;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* Without signals, which are the caller's. */
static void start_thread(struct sdc_feed *f) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    f->has_thread = pthread_create(&f->thread, NULL, thread_main, f) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

enum sdc_status sdc_feed_new(const struct sdc_sharding *sharding, uint32_t rank,
                             struct sdc_feed **out, struct sdc_error *err) {
    *out = NULL;
    struct sdc_feed *f = sdc__calloc(1, sizeof *f);
    if (!f)
        return SDC_NOMEM(err, "batches");
    *f = (struct sdc_feed){
        .sharding = *sharding, .rank = rank, .per_epoch = sdc_sampler_steps_per_epoch(sharding)};
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    enum sdc_status st = sdc_sampler_new(sharding, &f->sampler, err);
    f->indices = sdc__calloc(sharding->batch, sizeof *f->indices);
    f->labels = sdc__calloc(sharding->batch, sizeof *f->labels);
    if (st == SDC_OK && (!f->indices || !f->labels))
        st = SDC_NOMEM(err, "batches");
    if (st != SDC_OK) {
        sdc_feed_free(f);
        return st;
    }
    *out = f;
    return SDC_OK;
}

void sdc_feed_free(struct sdc_feed *f) {
    if (!f)
        return;
    if (f->has_thread) {
        pthread_mutex_lock(&f->mutex);
        f->quit = true;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->mutex);
        pthread_join(f->thread, NULL);
    }
    pthread_mutex_destroy(&f->mutex);
    pthread_cond_destroy(&f->changed);
    sdc_sampler_free(f->sampler);
    sdc__free(f->indices);
    sdc__free(f->images);
    sdc__free(f->labels);
    sdc__free(f);
}

const struct sdc_sharding *sdc_feed_sharding(const struct sdc_feed *feed) {
    return &feed->sharding;
}

/* Waits until the thread has nothing to do; says whether it has left a batch. */
static bool settled(struct sdc_feed *f) {
    pthread_mutex_lock(&f->mutex);
    while (f->state == ASKED)
        pthread_cond_wait(&f->changed, &f->mutex);
    bool ready = f->state == READY && f->status == SDC_OK;
    f->state = IDLE;
    pthread_mutex_unlock(&f->mutex);
    return ready;
}

static bool same_order(const struct order *a, const struct order *b) {
    return a->set == b->set && a->step == b->step &&
           a->augment.crop_padding == b->augment.crop_padding &&
           a->augment.flip == b->augment.flip && a->augment.seed == b->augment.seed;
}

/* The thread starts with the first order; without one there is no batch ahead. */
static enum sdc_status ask(struct sdc_feed *f, const struct order *order, struct sdc_error *err) {
    const struct sdc_dataset *set = order->set;
    const size_t pixels = (size_t)set->channels * set->height * set->width;
    if (!f->images || f->pixels != pixels) {
        sdc__free(f->images);
        f->pixels = pixels;
        f->images = sdc__alloc_tensor(f->sharding.batch, pixels * sizeof *f->images);
        if (!f->images)
            return SDC_NOMEM(err, "batches");
    }
    if (!f->has_thread)
        start_thread(f);
    if (!f->has_thread)
        return SDC_OK;
    f->order = *order;
    pthread_mutex_lock(&f->mutex);
    f->state = ASKED;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    return SDC_OK;
}

enum sdc_status sdc_feed_batch(struct sdc_feed *f, const struct sdc_dataset *set,
                               const struct sdc_augment *augment, uint64_t step, uint64_t next,
                               float *images, int32_t *labels, struct sdc_error *err) {
    const struct order now = {set, *augment, step}, ahead = {set, *augment, next};
    if (settled(f) && same_order(&f->order, &now)) {
        memcpy(images, f->images, f->sharding.batch * f->pixels * sizeof *images);
        memcpy(labels, f->labels, f->sharding.batch * sizeof *labels);
    } else {
        SDC_TRY(gather(f, &now, images, labels, err));
    }
    return ask(f, &ahead, err);
}

void sdc_feed_rest(struct sdc_feed *f) {
    if (f)
        (void)settled(f);
}
