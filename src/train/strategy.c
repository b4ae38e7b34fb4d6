/* SPDX-License-Identifier: Apache-2.0 */
#include "train/strategy.h"

#include <string.h>

#include "base/guard.h"

static void param_bytes(const struct sdc_model *m, size_t *bytes, unsigned *registration) {
    for (unsigned i = 0; i < m->n_params; i++) {
        bytes[i] = m->params[i].n * sizeof(float);
        registration[i] = i;
    }
}

/* Real libraries compute it in double and round it to the gradients' type. */
static float one_over(unsigned ranks) {
    return (float)(1.0 / (double)ranks);
}

/* ---- single ---- */

static void single_plan(struct sdc_reduction *r, unsigned ranks) {
    (void)ranks;
    r->first = r->later = (struct sdc_buckets){0};
}

static enum sdc_status single_average(struct sdc_reduction *r, const struct sdc_buckets *layout,
                                      float *grads, struct sdc_error *err) {
    (void)r;
    (void)layout;
    (void)grads;
    (void)err;
    return SDC_OK;
}

/* ---- ddp ---- */

static void ddp_plan(struct sdc_reduction *r, unsigned ranks) {
    const struct sdc_model *m = r->model;
    size_t bytes[SDC_MODEL_MAX_PARAMS];
    unsigned registration[SDC_MODEL_MAX_PARAMS];
    (void)ranks;
    param_bytes(m, bytes, registration);
    sdc_buckets_ddp(bytes, registration, m->n_params, SIZE_MAX, SIZE_MAX, &r->first);
    sdc_buckets_ddp(bytes, m->ready, m->n_params, SDC_DDP_FIRST_CAP, SDC_DDP_CAP, &r->later);
}

static enum sdc_status ddp_average(struct sdc_reduction *r, const struct sdc_buckets *layout,
                                   float *grads, struct sdc_error *err) {
    const float scale = one_over(sdc_comm_size(r->comm));
    for (unsigned g = 0; g < layout->n; g++) {
        size_t used = 0;
        for (unsigned i = layout->start[g]; i < layout->start[g + 1]; i++) {
            const struct sdc_param *p = &r->model->params[layout->order[i]];
            const float *restrict from = grads + p->off;
            float *restrict to = r->buffer + used;
            for (size_t k = 0; k < p->n; k++)
                to[k] = from[k] * scale;
            used += p->n;
        }
        SDC_TRY(
            sdc_comm_allreduce(r->comm, SDC_SUM_GLOO_RING, SDC_DTYPE_F32, r->buffer, used, err));
        used = 0;
        for (unsigned i = layout->start[g]; i < layout->start[g + 1]; i++) {
            const struct sdc_param *p = &r->model->params[layout->order[i]];
            memcpy(grads + p->off, r->buffer + used, p->n * sizeof *grads);
            used += p->n;
        }
    }
    return SDC_OK;
}

/* ---- horovod ---- */

static void horovod_plan(struct sdc_reduction *r, unsigned ranks) {
    const struct sdc_model *m = r->model;
    size_t bytes[SDC_MODEL_MAX_PARAMS];
    unsigned registration[SDC_MODEL_MAX_PARAMS];
    size_t unit = ranks * SDC_HOROVOD_ATOMIC; /* all ranks are on one host */
    size_t threshold = (SDC_HOROVOD_FUSION + unit - 1) / unit * unit;
    param_bytes(m, bytes, registration);
    sdc_buckets_horovod(bytes, m->ready, m->n_params, threshold, &r->later);
    r->first = r->later;
}

static enum sdc_status horovod_average(struct sdc_reduction *r, const struct sdc_buckets *layout,
                                       float *grads, struct sdc_error *err) {
    unsigned ranks = sdc_comm_size(r->comm);
    const float scale = one_over(ranks);
    for (unsigned g = 0; g < layout->n; g++) {
        size_t used = 0;
        for (unsigned i = layout->start[g]; i < layout->start[g + 1]; i++) {
            const struct sdc_param *p = &r->model->params[layout->order[i]];
            memcpy(r->buffer + used, grads + p->off, p->n * sizeof *grads);
            used += p->n;
        }
        enum sdc_sum sum = sdc_sum_ompi_choice(ranks, used, sizeof(float));
        SDC_TRY(sdc_comm_allreduce(r->comm, sum, SDC_DTYPE_F32, r->buffer, used, err));
        used = 0;
        for (unsigned i = layout->start[g]; i < layout->start[g + 1]; i++) {
            const struct sdc_param *p = &r->model->params[layout->order[i]];
            const float *restrict from = r->buffer + used;
            float *restrict to = grads + p->off;
            for (size_t k = 0; k < p->n; k++)
                to[k] = from[k] * scale;
            used += p->n;
        }
    }
    return SDC_OK;
}

static const struct sdc_strategy_ops strategies[] = {
    [SDC_STRATEGY_SINGLE] = {"single", single_plan, single_average},
    [SDC_STRATEGY_DDP] = {"ddp", ddp_plan, ddp_average},
    [SDC_STRATEGY_HOROVOD] = {"horovod", horovod_plan, horovod_average},
};

const struct sdc_strategy_ops *sdc_strategy_find(enum sdc_strategy strategy) {
    return &strategies[strategy];
}

enum sdc_status sdc_reduction_average(const struct sdc_strategy_ops *ops, struct sdc_reduction *r,
                                      uint64_t step_of_run, float *grads, struct sdc_error *err) {
    return ops->average(r, step_of_run == 0 ? &r->first : &r->later, grads, err);
}
