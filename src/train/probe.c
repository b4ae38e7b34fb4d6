/* SPDX-License-Identifier: Apache-2.0 */
#include "train/probe.h"

#include <string.h>

#include "base/alloc.h"
#include "sdc/fault.h"

/* One live fault of this rank, its sites drawn. */
struct item {
    uint32_t index; /* in the run's list */
    uint64_t step;
    enum sdc_probe_point point;
    struct sdc_tensor_desc *descs; /* of the point's tensors, by their number; owned */
    struct sdc_fault_list list;
    uint64_t *after; /* [list.n], so that an operator sees only values from before */
    struct sdc_probe_report report;
};

struct sdc_probe {
    uint64_t step;
    size_t n;
    struct item items[];
};

/* ---- descriptors ---- */

static bool is_buffer(const struct sdc_tensor_desc *d) {
    return d->role == SDC_ROLE_RUNNING_MEAN || d->role == SDC_ROLE_RUNNING_VAR ||
           d->role == SDC_ROLE_COUNTER;
}

/* Is this tensor of the state shown at the point? Gradients have their parameters' descriptors. */
static bool shown(enum sdc_probe_point point, const struct sdc_tensor_desc *d) {
    if (point == SDC_POINT_OPTIMIZER)
        return d->part == SDC_PART_OPTIMIZER;
    return d->part == SDC_PART_MODEL && is_buffer(d) == (point == SDC_POINT_BUFFER);
}

/* As after the first step, when an optimizer has its state. */
static const struct sdc_tensor_view *full_views(struct sdc_train_state *state, size_t *n) {
    bool had = state->has_optimizer;
    state->has_optimizer = true;
    const struct sdc_tensor_view *views = sdc_train_state_views(state, n);
    state->has_optimizer = had;
    return views;
}

static enum sdc_status list_descs(struct item *item, enum sdc_compression compression,
                                  const struct sdc_tensor_view *views, size_t n_views, size_t *n,
                                  struct sdc_error *err) {
    item->descs = sdc__calloc(n_views + 1, sizeof *item->descs);
    if (!item->descs)
        return SDC_NOMEM(err, "a live fault");
    for (size_t i = 0; i < n_views; i++) {
        if (!shown(item->point, &views[i].desc))
            continue;
        item->descs[*n] = views[i].desc;
        if (item->point == SDC_POINT_BUCKET && compression == SDC_COMPRESSION_FP16)
            item->descs[*n].dtype = SDC_DTYPE_F16;
        ++*n;
    }
    return SDC_OK;
}

/* ---- drawing ---- */

static enum sdc_status draw(struct item *item, const struct sdc_live_fault *fault, size_t n,
                            struct sdc_error *err) {
    const struct sdc_tensor_desc **descs = sdc__calloc(n + 1, sizeof *descs);
    struct sdc_support *support = NULL;
    struct sdc_rng rng;
    if (!descs)
        return SDC_NOMEM(err, "a live fault");
    for (size_t i = 0; i < n; i++)
        descs[i] = &item->descs[i];
    enum sdc_status st = sdc_support_new(descs, n, &fault->choice, &support, err);
    if (st == SDC_OK) {
        sdc_rng_init(&rng, fault->seed, SDC_RNG_FAULT_SITES, item->index, 0);
        st = sdc_fault_list_draw(support, &fault->choice, &rng, &item->list, err);
    }
    bool flips = fault->choice.mode == SDC_CHOICE_FLIPS;
    if (st == SDC_OK && item->list.n == 0 && flips && fault->choice.flips > 0)
        st = SDC_ERR(err, SDC_USAGE, "point %s shows nothing that the choice could hit",
                     sdc_probe_point_name(item->point));
    sdc_support_free(support);
    sdc__free(descs);
    if (st != SDC_OK)
        return st;
    item->after = sdc__calloc(item->list.n + 1, sizeof *item->after);
    return item->after ? SDC_OK : SDC_NOMEM(err, "a live fault");
}

static enum sdc_status fill(struct item *item, const struct sdc_run *run,
                            const struct sdc_tensor_view *views, size_t n_views,
                            struct sdc_error *err) {
    const struct sdc_live_fault *fault = &run->faults[item->index];
    struct sdc_error inner;
    size_t n = 0;
    item->step = fault->step;
    item->point = fault->point;
    SDC_TRY(list_descs(item, run->averaging.compression, views, n_views, &n, err));
    enum sdc_status st = draw(item, fault, n, &inner);
    if (st != SDC_OK)
        return SDC_ERR(err, st, "faults[%u]: %s", item->index, inner.message);
    return SDC_OK;
}

enum sdc_status sdc_probe_new(const struct sdc_run *run, unsigned rank,
                              struct sdc_train_state *state, struct sdc_probe **out,
                              struct sdc_error *err) {
    size_t n = 0, n_views;
    *out = NULL;
    for (size_t i = 0; i < run->n_faults; i++)
        n += run->faults[i].rank == rank;
    if (n == 0)
        return SDC_OK;
    struct sdc_probe *p = sdc__calloc(1, sizeof *p + n * sizeof p->items[0]);
    if (!p)
        return SDC_NOMEM(err, "live faults");
    const struct sdc_tensor_view *views = full_views(state, &n_views);
    for (size_t i = 0; i < run->n_faults; i++) {
        if (run->faults[i].rank != rank)
            continue;
        struct item *item = &p->items[p->n++];
        item->index = (uint32_t)i;
        enum sdc_status st = fill(item, run, views, n_views, err);
        if (st != SDC_OK) {
            sdc_probe_free(p);
            return st;
        }
    }
    *out = p;
    return SDC_OK;
}

void sdc_probe_free(struct sdc_probe *p) {
    for (size_t i = 0; p && i < p->n; i++) {
        sdc__free(p->items[i].descs);
        sdc__free(p->items[i].after);
        sdc_fault_list_release(&p->items[i].list);
    }
    sdc__free(p);
}

/* ---- steps ---- */

struct sdc_probe *sdc_probe_at(struct sdc_probe *p, uint64_t step) {
    bool due = false;
    for (size_t i = 0; p && i < p->n; i++)
        due = due || p->items[i].step == step;
    if (p)
        p->step = step;
    return due ? p : NULL;
}

static uint64_t load(const unsigned char *data, size_t size) {
    uint64_t raw = 0;
    uint32_t r32;
    uint16_t r16;
    switch (size) {
    case 8:
        memcpy(&raw, data, 8);
        return raw;
    case 4:
        memcpy(&r32, data, 4);
        return r32;
    case 2:
        memcpy(&r16, data, 2);
        return r16;
    default:
        return data[0];
    }
}

static void store(unsigned char *data, size_t size, uint64_t raw) {
    uint32_t r32 = (uint32_t)raw;
    uint16_t r16 = (uint16_t)raw;
    switch (size) {
    case 8:
        memcpy(data, &raw, 8);
        break;
    case 4:
        memcpy(data, &r32, 4);
        break;
    case 2:
        memcpy(data, &r16, 2);
        break;
    default:
        data[0] = (unsigned char)raw;
    }
}

static void note(struct item *item, const struct sdc_fault *f, uint64_t before, uint64_t after) {
    struct sdc_probe_report *r = &item->report;
    if (before == after)
        return;
    if (r->changed < SDC_PROBE_CHANGES)
        r->changes[r->changed] = (struct sdc_probe_change){f->tensor, f->elem, before, after};
    r->changed++;
}

/* Of a list sorted by tensor: the faults of one. */
static void hit(struct item *item, size_t tensor, unsigned char *data) {
    enum sdc_dtype dtype = item->descs[tensor].dtype;
    size_t size = sdc_dtype_bits(dtype) / 8, first = 0, end;
    const struct sdc_fault *f = item->list.faults;
    while (first < item->list.n && f[first].tensor < tensor)
        first++;
    for (end = first; end < item->list.n && f[end].tensor == tensor; end++) {
        uint64_t other = f[end].op == SDC_OP_SWAP ? load(data + f[end].value * size, size) : 0;
        item->after[end] =
            sdc_fault_apply(&f[end], dtype, load(data + f[end].elem * size, size), other);
    }
    for (size_t i = first; i < end; i++) {
        note(item, &f[i], load(data + f[i].elem * size, size), item->after[i]);
        store(data + f[i].elem * size, size, item->after[i]);
    }
}

void sdc_probe_hit(struct sdc_probe *p, enum sdc_probe_point point, size_t tensor, void *data) {
    for (size_t i = 0; i < p->n; i++)
        if (p->items[i].step == p->step && p->items[i].point == point)
            hit(&p->items[i], tensor, data);
}

void sdc_probe_hit_state(struct sdc_probe *p, enum sdc_probe_point point,
                         struct sdc_train_state *state) {
    size_t n, tensor = 0;
    const struct sdc_tensor_view *views = sdc_train_state_views(state, &n);
    for (size_t i = 0; i < n; i++)
        if (shown(point, &views[i].desc))
            /* views are of the state's own memory, which is not const */
            sdc_probe_hit(p, point, tensor++, (void *)(uintptr_t)views[i].data);
}

bool sdc_probe_report(const struct sdc_probe *p, uint32_t fault, struct sdc_probe_report *report) {
    for (size_t i = 0; p && i < p->n; i++) {
        if (p->items[i].index == fault) {
            *report = p->items[i].report;
            return true;
        }
    }
    return false;
}

const char *sdc_probe_tensor_name(struct sdc_train_state *state, enum sdc_probe_point point,
                                  size_t tensor) {
    size_t n, at = 0;
    const struct sdc_tensor_view *views = full_views(state, &n);
    for (size_t i = 0; i < n; i++)
        if (shown(point, &views[i].desc) && at++ == tensor)
            return views[i].desc.name;
    return "?";
}
