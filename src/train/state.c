/* SPDX-License-Identifier: Apache-2.0 */
#include "train/state.h"

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

enum sdc_status sdc_train_state_init(struct sdc_train_state *s, const struct sdc_model *model,
                                     struct sdc_error *err) {
    *s = (struct sdc_train_state){.model = model};
    s->params = sdc__alloc_tensor(model->flat, sizeof(float));
    s->momentum = sdc__alloc_tensor(model->flat, sizeof(float));
    if (!s->params || !s->momentum) {
        sdc_train_state_release(s);
        return SDC_NOMEM(err, "a replica");
    }
    struct sdc_tensor_view *v = s->views;
    for (unsigned i = 0; i < model->n_params; i++) {
        const struct sdc_param *p = &model->params[i];
        *v++ = view_of(p->name, SDC_DTYPE_F32, p->rank, p->shape, p->n, s->params + p->off);
    }
    *v++ = view_of("loop/step", SDC_DTYPE_I64, 0, NULL, 1, &s->loop.step);
    *v++ = view_of("loop/epoch", SDC_DTYPE_I64, 0, NULL, 1, &s->loop.epoch);
    *v++ = view_of("loop/cursor", SDC_DTYPE_I64, 0, NULL, 1, &s->loop.cursor);
    *v++ = view_of("loop/rng", SDC_DTYPE_U32, 1, rng_shape, 4, s->loop.rng);
    for (unsigned i = 0; i < model->n_params; i++) {
        const struct sdc_param *p = &model->params[i];
        *v++ = view_of(p->slot_name, SDC_DTYPE_F32, p->rank, p->shape, p->n, s->momentum + p->off);
    }
    return SDC_OK;
}

void sdc_train_state_release(struct sdc_train_state *s) {
    sdc__free(s->params);
    sdc__free(s->momentum);
    *s = (struct sdc_train_state){0};
}

struct sdc_loop_state sdc_loop_state_fresh(void) {
    return (struct sdc_loop_state){.rng = {SDC_RNG_DATA_ORDER, 0, 0, 0}};
}

void sdc_train_state_fresh(struct sdc_train_state *s, uint64_t seed_init, bool keeps_momentum) {
    sdc_model_init_weights(s->model, seed_init, s->params);
    memset(s->momentum, 0, s->model->flat * sizeof *s->momentum);
    s->keeps_momentum = keeps_momentum;
    s->has_optimizer = false;
    s->loop = sdc_loop_state_fresh();
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

const struct sdc_tensor_view *sdc_train_state_views(const struct sdc_train_state *s, size_t *n) {
    size_t slots = s->keeps_momentum && s->has_optimizer ? s->model->n_params : 0;
    *n = s->model->n_params + SDC_STATE_LOOP_TENSORS + slots;
    return s->views;
}

size_t sdc_train_state_snapshot_views(const struct sdc_train_state *s,
                                      struct sdc_tensor_view *views) {
    size_t n, params = s->model->n_params;
    const struct sdc_tensor_view *all = sdc_train_state_views(s, &n);
    memcpy(views, all, params * sizeof *views);
    size_t slots = n - params - SDC_STATE_LOOP_TENSORS;
    memcpy(views + params, all + params + SDC_STATE_LOOP_TENSORS, slots * sizeof *views);
    return params + slots;
}

enum sdc_status sdc_train_state_digests(const struct sdc_train_state *s,
                                        struct sdc_rank_digests *digests, struct sdc_error *err) {
    size_t n, params = s->model->n_params;
    const struct sdc_tensor_view *v = sdc_train_state_views(s, &n);
    struct sdc_rank_digests d = {.valid = true};
    SDC_TRY(sdc_state_digest(v, params, &d.parameters, err));
    SDC_TRY(sdc_state_digest(v, 0, &d.buffers, err)); /* these models have none */
    SDC_TRY(sdc_state_digest(v + params, SDC_STATE_LOOP_TENSORS, &d.loop, err));
    SDC_TRY(sdc_state_digest(v + params + SDC_STATE_LOOP_TENSORS,
                             n - params - SDC_STATE_LOOP_TENSORS, &d.optimizer, err));
    SDC_TRY(sdc_state_digest(v, n, &d.state, err));
    *digests = d;
    return SDC_OK;
}
