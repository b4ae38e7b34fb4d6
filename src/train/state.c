/* SPDX-License-Identifier: Apache-2.0 */
#include "train/state.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sdc/rng.h"

static const uint64_t rng_shape[1] = {4};

static struct sdc_tensor_view view_of(const char *name, enum sdc_dtype dtype, unsigned rank,
                                      const uint64_t *shape, uint64_t n, const void *data) {
    struct sdc_tensor_view v = {.desc = {.name = name,
                                         .dtype = dtype,
                                         .dtype_known = true,
                                         .dtype_text = sdc_dtype_name(dtype),
                                         .rank = rank,
                                         .shape = shape,
                                         .n_elems = n},
                                .data = data};
    sdc_tensor_classify(name, dtype, rank, &v.desc.part, &v.desc.role);
    return v;
}

/* Tensors of the parameter's shape, by what is kept. */
static const char *const slot_names[][SDC_STATE_MAX_SLOTS] = {
    [SDC_KEEPS_NOTHING] = {NULL, NULL},
    [SDC_KEEPS_MOMENTUM] = {"momentum", NULL},
    [SDC_KEEPS_MOMENTS] = {"exp_avg", "exp_avg_sq"},
};

static unsigned slots_of(enum sdc_state_keeps keeps) {
    return keeps == SDC_KEEPS_MOMENTS ? 2 : keeps == SDC_KEEPS_MOMENTUM ? 1 : 0;
}

static bool reserve(struct sdc_train_state *s) {
    const struct sdc_model *m = s->model;
    const bool counted = s->keeps == SDC_KEEPS_MOMENTS;
    const unsigned slots = slots_of(s->keeps);
    s->n_optimizer = (size_t)m->n_params * (slots + counted);
    s->params = sdc__alloc_tensor(m->flat, sizeof(float));
    s->buffers = sdc__alloc_tensor(m->buffer_flat, sizeof(float));
    s->counters = sdc__alloc_tensor(m->n_counters, sizeof *s->counters);
    for (unsigned k = 0; k < slots; k++)
        if (!(s->slots[k] = sdc__alloc_tensor(m->flat, sizeof(float))))
            return false;
    if (counted && !(s->steps = sdc__calloc(m->n_params, sizeof *s->steps)))
        return false;
    if (s->n_optimizer > 0 && !(s->names = sdc__calloc(s->n_optimizer, sizeof *s->names)))
        return false;
    s->views = sdc__calloc(sdc_train_state_n_model(s) + SDC_STATE_LOOP_TENSORS + s->n_optimizer,
                           sizeof *s->views);
    return s->params && s->buffers && s->counters && s->views;
}

static const char *state_name(struct sdc_train_state *s, size_t which, const struct sdc_param *p,
                              const char *what) {
    static const char prefix[] = "model/";
    snprintf(s->names[which], sizeof s->names[which], "optimizer/%s/%s",
             p->name + sizeof prefix - 1, what);
    return s->names[which];
}

static struct sdc_tensor_view *add_loop(struct sdc_train_state *s, struct sdc_tensor_view *v) {
    struct sdc_schedule_state *c = &s->loop.schedule;
    const struct {
        const char *name;
        enum sdc_dtype dtype;
        const void *data;
        unsigned part;
    } scalars[] = {
        {"loop/step", SDC_DTYPE_I64, &s->loop.step, 0},
        {"loop/epoch", SDC_DTYPE_I64, &s->loop.epoch, 0},
        {"loop/cursor", SDC_DTYPE_I64, &s->loop.cursor, 0},
        {"loop/lr", SDC_DTYPE_F64, &c->lr, SDC_SCHEDULE_HAS_LR},
        {"loop/schedule/last_epoch", SDC_DTYPE_I64, &c->last_epoch, SDC_SCHEDULE_HAS_COUNT},
        {"loop/warmup/last_epoch", SDC_DTYPE_I64, &c->warmed_up, SDC_SCHEDULE_HAS_WARMUP},
        {"loop/schedule/best", SDC_DTYPE_F64, &c->best, SDC_SCHEDULE_HAS_PLATEAU},
        {"loop/schedule/loss", SDC_DTYPE_F64, &c->loss, SDC_SCHEDULE_HAS_PLATEAU},
        {"loop/schedule/num_bad_epochs", SDC_DTYPE_I64, &c->bad_epochs, SDC_SCHEDULE_HAS_PLATEAU},
        {"loop/schedule/cooldown_counter", SDC_DTYPE_I64, &c->cooldown, SDC_SCHEDULE_HAS_PLATEAU},
    };
    struct sdc_tensor_view *first = v;
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++)
        if ((s->schedule & scalars[i].part) == scalars[i].part)
            *v++ = view_of(scalars[i].name, scalars[i].dtype, 0, NULL, 1, scalars[i].data);
    *v++ = view_of("loop/rng", SDC_DTYPE_U32, 1, rng_shape, 4, s->loop.rng);
    s->n_loop = (size_t)(v - first);
    return v;
}

enum sdc_status sdc_train_state_init(struct sdc_train_state *s, const struct sdc_model *model,
                                     enum sdc_state_keeps keeps, unsigned schedule,
                                     struct sdc_error *err) {
    *s = (struct sdc_train_state){.model = model, .keeps = keeps, .schedule = schedule};
    if (!reserve(s)) {
        sdc_train_state_release(s);
        return SDC_NOMEM(err, "a replica");
    }
    struct sdc_tensor_view *v = s->views;
    for (unsigned i = 0; i < model->n_params; i++) {
        const struct sdc_param *p = &model->params[i];
        *v++ = view_of(p->name, SDC_DTYPE_F32, p->rank, p->shape, p->n, s->params + p->off);
    }
    for (unsigned i = 0; i < model->n_buffers; i++) {
        const struct sdc_buffer *b = &model->buffers[i];
        *v++ = b->counter ? view_of(b->name, SDC_DTYPE_I64, 0, NULL, 1, s->counters + b->off)
                          : view_of(b->name, SDC_DTYPE_F32, 1, &b->n, b->n, s->buffers + b->off);
    }
    v = add_loop(s, v);
    size_t name = 0;
    for (unsigned i = 0; i < model->n_params; i++) {
        const struct sdc_param *p = &model->params[i];
        for (unsigned k = 0; k < slots_of(keeps); k++)
            *v++ = view_of(state_name(s, name++, p, slot_names[keeps][k]), SDC_DTYPE_F32, p->rank,
                           p->shape, p->n, s->slots[k] + p->off);
        if (s->steps)
            *v++ =
                view_of(state_name(s, name++, p, "step"), SDC_DTYPE_F32, 0, NULL, 1, s->steps + i);
    }
    return SDC_OK;
}

void sdc_train_state_release(struct sdc_train_state *s) {
    sdc__free(s->params);
    sdc__free(s->buffers);
    sdc__free(s->counters);
    for (unsigned k = 0; k < SDC_STATE_MAX_SLOTS; k++)
        sdc__free(s->slots[k]);
    sdc__free(s->steps);
    sdc__free(s->views);
    sdc__free(s->names);
    *s = (struct sdc_train_state){0};
}

void sdc_train_state_copy_model(struct sdc_train_state *s, const struct sdc_train_state *from) {
    const struct sdc_model *m = s->model;
    memcpy(s->params, from->params, m->flat * sizeof(float));
    memcpy(s->buffers, from->buffers, m->buffer_flat * sizeof(float));
    memcpy(s->counters, from->counters, m->n_counters * sizeof *s->counters);
}

void sdc_train_state_copy_optimizer(struct sdc_train_state *s, const struct sdc_train_state *from) {
    for (unsigned k = 0; k < SDC_STATE_MAX_SLOTS; k++)
        if (s->slots[k])
            memcpy(s->slots[k], from->slots[k], s->model->flat * sizeof(float));
    if (s->steps)
        memcpy(s->steps, from->steps, s->model->n_params * sizeof *s->steps);
    s->has_optimizer = from->has_optimizer;
}

struct sdc_loop_state sdc_loop_state_fresh(void) {
    return (struct sdc_loop_state){.rng = {SDC_RNG_DATA_ORDER, 0, 0, 0}};
}

void sdc_train_state_fresh(struct sdc_train_state *s, uint64_t seed_init,
                           const struct sdc_schedule *schedule) {
    sdc_model_init_weights(s->model, seed_init, s->params);
    sdc_model_init_buffers(s->model, s->buffers, s->counters);
    for (unsigned k = 0; k < SDC_STATE_MAX_SLOTS; k++)
        if (s->slots[k])
            memset(s->slots[k], 0, s->model->flat * sizeof(float));
    if (s->steps)
        memset(s->steps, 0, s->model->n_params * sizeof *s->steps);
    s->has_optimizer = false;
    s->loop = sdc_loop_state_fresh();
    s->loop.schedule = sdc_schedule_start(schedule);
}

void sdc_loop_state_next(struct sdc_loop_state *loop, uint64_t steps_per_epoch, uint64_t *step) {
    uint64_t at = loop->cursor < 0 ? 0 : (uint64_t)loop->cursor;
    if (at >= steps_per_epoch) {
        /* unsigned, as a counter that an alteration drove to its end must wrap, not trap */
        loop->epoch = (int64_t)((uint64_t)loop->epoch + 1);
        loop->rng[2] = (uint32_t)loop->epoch;
        at = 0;
    }
    *step = loop->rng[2] * steps_per_epoch + at;
    loop->cursor = (int64_t)(at + 1);
    loop->step++;
}

size_t sdc_train_state_n_model(const struct sdc_train_state *s) {
    return (size_t)s->model->n_params + s->model->n_buffers;
}

const struct sdc_tensor_view *sdc_train_state_views(const struct sdc_train_state *s, size_t *n) {
    *n = sdc_train_state_n_model(s) + s->n_loop + (s->has_optimizer ? s->n_optimizer : 0);
    return s->views;
}

const struct sdc_tensor_view *sdc_train_state_optimizer_views(const struct sdc_train_state *s,
                                                              size_t *n) {
    *n = s->has_optimizer ? s->n_optimizer : 0;
    return s->views + sdc_train_state_n_model(s) + s->n_loop;
}

enum sdc_status sdc_train_state_digests(const struct sdc_train_state *s,
                                        struct sdc_rank_digests *digests, struct sdc_error *err) {
    size_t n, params = s->model->n_params, model = sdc_train_state_n_model(s);
    const struct sdc_tensor_view *v = sdc_train_state_views(s, &n);
    struct sdc_rank_digests d = {.valid = true};
    SDC_TRY(sdc_state_digest(v, params, &d.parameters, err));
    SDC_TRY(sdc_state_digest(v + params, model - params, &d.buffers, err));
    SDC_TRY(sdc_state_digest(v + model, s->n_loop, &d.loop, err));
    size_t n_optimizer;
    const struct sdc_tensor_view *optimizer = sdc_train_state_optimizer_views(s, &n_optimizer);
    SDC_TRY(sdc_state_digest(optimizer, n_optimizer, &d.optimizer, err));
    SDC_TRY(sdc_state_digest(v, n, &d.state, err));
    *digests = d;
    return SDC_OK;
}
