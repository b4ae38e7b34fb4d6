/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/walk.h"

#include "base/alloc.h"
#include "base/parallel.h"

#define MANY_CHUNKS 1000

struct state {
    const struct sdc_walk *walk;
    uint64_t *first_task; /* of each tensor, and the number of all at the end */
    size_t failed_at;     /* the last tensor that could not be read, plus 1 */
};

struct slot {
    void *own;             /* the user's */
    unsigned char *buffer; /* SDC_WALK_READ */
    bool failed;
    struct sdc_error found;
};

static uint64_t chunk_elems(const struct sdc_tensor_desc *d) {
    return SDC_WALK_CHUNK / sdc_dtype_bytes(d->dtype);
}

/* The tensor that a task belongs to. */
static size_t tensor_of(const struct state *s, uint64_t task) {
    size_t low = 0, high = s->walk->n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (s->first_task[mid] <= task)
            low = mid;
        else
            high = mid;
    }
    return low;
}

bool sdc__walk_is_finding(enum sdc_status st) {
    return st == SDC_UNSUPPORTED || st == SDC_INVALID || st == SDC_LIMIT;
}

uint64_t sdc__walk_chunks(struct sdc_ckpt *ckpt, size_t tensor) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(ckpt, tensor);
    uint64_t chunk = chunk_elems(d), n = d->n_elems / chunk + (d->n_elems % chunk != 0), probe;
    struct sdc_error ignored;
    if (n > MANY_CHUNKS &&
        sdc__walk_is_finding(sdc_ckpt_read(ckpt, tensor, 0, 1, &probe, &ignored)))
        return 1;
    return n ? n : 1;
}

static enum sdc_status work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct state *s = user;
    const struct sdc_walk *w = s->walk;
    struct slot *mine = slot;
    const size_t k = tensor_of(s, task);
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(w->ckpt, w->tensors[k]);
    const uint64_t chunk = chunk_elems(d), step = SDC_WALK_READ / sdc_dtype_bytes(d->dtype);
    uint64_t at = (task - s->first_task[k]) * chunk;
    const uint64_t end = d->n_elems - at < chunk ? d->n_elems : at + chunk;
    mine->failed = false;
    w->begin(w->user, mine->own, k);
    for (; at < end; at += step) {
        uint64_t n = end - at < step ? end - at : step;
        enum sdc_status st =
            sdc_ckpt_read(w->ckpt, w->tensors[k], at, n, mine->buffer, &mine->found);
        if (st != SDC_OK) {
            mine->failed = sdc__walk_is_finding(st);
            *err = mine->found;
            return mine->failed ? SDC_OK : st;
        }
        w->elements(w->user, mine->own, k, at, n, mine->buffer);
    }
    return SDC_OK;
}

static enum sdc_status commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct state *s = user;
    const struct sdc_walk *w = s->walk;
    struct slot *mine = slot;
    const size_t k = tensor_of(s, task);
    if (s->failed_at == k + 1)
        return SDC_OK; /* said already */
    if (mine->failed) {
        s->failed_at = k + 1;
        return w->unreadable(w->user, k, &mine->found, err);
    }
    return w->chunk(w->user, mine->own, k, task + 1 == s->first_task[k + 1], err);
}

static enum sdc_status number_tasks(struct state *s, struct sdc_error *err) {
    const struct sdc_walk *w = s->walk;
    s->first_task = sdc__alloc(w->n + 1, sizeof *s->first_task);
    if (!s->first_task)
        return SDC_NOMEM(err, sdc_ckpt_path(w->ckpt));
    s->first_task[0] = 0;
    for (size_t k = 0; k < w->n; k++)
        s->first_task[k + 1] = s->first_task[k] + sdc__walk_chunks(w->ckpt, w->tensors[k]);
    return SDC_OK;
}

static enum sdc_status make_slots(const struct sdc_walk *w, struct slot *slots, unsigned threads,
                                  struct sdc_error *err) {
    for (unsigned i = 0; i < threads; i++) {
        slots[i].buffer = sdc__alloc_tensor(SDC_WALK_READ, 1);
        void *own = sdc__calloc(1, w->slot_size);
        if (!slots[i].buffer || !own) {
            sdc__free(own);
            return SDC_NOMEM(err, sdc_ckpt_path(w->ckpt));
        }
        if (w->slot_init(w->user, own, err) != SDC_OK) {
            sdc__free(own);
            return SDC_NO_MEMORY;
        }
        slots[i].own = own;
    }
    return SDC_OK;
}

enum sdc_status sdc__walk(const struct sdc_walk *walk, struct sdc_error *err) {
    struct state s = {.walk = walk};
    struct slot *slots = NULL;
    unsigned threads = 0;
    enum sdc_status st;
    SDC_TRY_OUT(st, number_tasks(&s, err));
    threads = sdc__parallel_threads(walk->threads, s.first_task[walk->n]);
    slots = sdc__calloc(threads, sizeof *slots);
    if (!slots) {
        st = SDC_NOMEM(err, sdc_ckpt_path(walk->ckpt));
        goto out;
    }
    SDC_TRY_OUT(st, make_slots(walk, slots, threads, err));
    struct sdc_parallel p = {.n_tasks = s.first_task[walk->n],
                             .threads = threads,
                             .work = work,
                             .commit = commit,
                             .user = &s,
                             .slots = slots,
                             .slot_size = sizeof *slots};
    st = sdc__parallel_run(&p, err);
out:
    for (unsigned i = 0; slots && i < threads; i++) {
        if (slots[i].own)
            walk->slot_release(walk->user, slots[i].own);
        sdc__free(slots[i].own);
        sdc__free(slots[i].buffer);
    }
    sdc__free(slots);
    sdc__free(s.first_task);
    return st;
}
