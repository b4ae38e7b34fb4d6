/* SPDX-License-Identifier: Apache-2.0 */
#include "train/strategy.h"

#include <string.h>

#include "base/guard.h"
#include "num/half.h"
#include "sdc/rng.h"
#include "train/probe.h"

/* Real libraries compute it in double and round it to the gradients' type. */
static float one_over(unsigned ranks) {
    return (float)(1.0 / (double)ranks);
}

/* ---- layouts ---- */

static void param_bytes(const struct sdc_reduction *r, size_t *bytes, unsigned *registration) {
    for (unsigned i = 0; i < r->model->n_params; i++) {
        bytes[i] = r->model->params[i].n * sizeof(float);
        registration[i] = i;
    }
}

static void single_plan(struct sdc_reduction *r, unsigned ranks) {
    (void)ranks;
    r->first = r->later = (struct sdc_buckets){0};
}

static void ddp_plan(struct sdc_reduction *r, unsigned ranks) {
    const struct sdc_model *m = r->model;
    size_t bytes[SDC_MODEL_MAX_PARAMS];
    unsigned registration[SDC_MODEL_MAX_PARAMS];
    (void)ranks;
    param_bytes(r, bytes, registration);
    sdc_buckets_ddp(bytes, registration, m->n_params, SIZE_MAX, SIZE_MAX, &r->first);
    sdc_buckets_ddp(bytes, m->ready, m->n_params, r->options->first_bucket_bytes,
                    r->options->bucket_bytes, &r->later);
}

/* Fuses within each cycle alone. Every rank draws the same ends of cycles, as rank 0's list of
 * responses is the same for all: between two tensors a cycle ends with probability one half. */
static void timed_plan(struct sdc_reduction *r, const size_t *bytes, size_t threshold,
                       uint64_t step) {
    const struct sdc_model *m = r->model;
    struct sdc_buckets cycle, *out = &r->later;
    struct sdc_rng rng;
    sdc_rng_init(&rng, r->options->fusion_seed, SDC_RNG_FUSION, (uint32_t)(step >> 32),
                 (uint32_t)step);
    *out = (struct sdc_buckets){0};
    memcpy(out->order, m->ready, m->n_params * sizeof out->order[0]);
    for (unsigned first = 0, end; first < m->n_params; first = end) {
        end = first + 1;
        while (end < m->n_params && (sdc_rng_u32(&rng) & 1u))
            end++;
        sdc_buckets_horovod(bytes, m->ready + first, end - first, threshold, &cycle);
        for (unsigned g = 1; g <= cycle.n; g++)
            out->start[++out->n] = first + cycle.start[g];
    }
    r->first = r->later;
}

static void horovod_layout(struct sdc_reduction *r, unsigned ranks, uint64_t step) {
    const struct sdc_model *m = r->model;
    size_t bytes[SDC_MODEL_MAX_PARAMS];
    unsigned registration[SDC_MODEL_MAX_PARAMS];
    size_t unit = ranks * SDC_HOROVOD_ATOMIC; /* all ranks are on one host */
    size_t threshold = (r->options->fusion_bytes + unit - 1) / unit * unit;
    param_bytes(r, bytes, registration);
    for (unsigned i = 0; r->options->compression == SDC_COMPRESSION_FP16 && i < m->n_params; i++)
        bytes[i] /= 2; /* it fuses what was compressed */
    if (r->options->fusion == SDC_FUSION_TIMED) {
        timed_plan(r, bytes, threshold, step);
        return;
    }
    sdc_buckets_horovod(bytes, m->ready, m->n_params, threshold, &r->later);
    r->first = r->later;
}

static void horovod_plan(struct sdc_reduction *r, unsigned ranks) {
    horovod_layout(r, ranks, 0);
}

/* ---- between gradients and buffer ---- */

/* n elements, with a factor; one side is F32, the other the buffer's type. */
typedef void mover(size_t n, const void *from, void *to, float factor);

static void copied(size_t n, const void *from, void *to, float factor) {
    (void)factor;
    memcpy(to, from, n * sizeof(float));
}

static void multiplied(size_t n, const void *from, void *to, float factor) {
    const float *restrict a = from;
    float *restrict b = to;
    for (size_t i = 0; i < n; i++)
        b[i] = a[i] * factor;
}

static void divided(size_t n, const void *from, void *to, float divisor) {
    const float *restrict a = from;
    float *restrict b = to;
    for (size_t i = 0; i < n; i++)
        b[i] = a[i] / divisor;
}

static void to_halves(size_t n, const void *from, void *to, float factor) {
    const float *restrict a = from;
    uint16_t *restrict b = to;
    (void)factor;
    for (size_t i = 0; i < n; i++)
        b[i] = sdc__float_to_half(a[i]);
}

/* Converted first, then divided in F16: F32 division, rounded. */
static void to_divided_halves(size_t n, const void *from, void *to, float divisor) {
    const float *restrict a = from;
    uint16_t *restrict b = to;
    for (size_t i = 0; i < n; i++)
        b[i] = sdc__float_to_half(sdc__half_to_float(sdc__float_to_half(a[i])) / divisor);
}

static void from_halves(size_t n, const void *from, void *to, float factor) {
    const uint16_t *restrict a = from;
    float *restrict b = to;
    (void)factor;
    for (size_t i = 0; i < n; i++)
        b[i] = sdc__half_to_float(a[i]);
}

/* Horovod scales the F16 buffer, in F32 and rounded, before it is converted back. */
static void from_multiplied_halves(size_t n, const void *from, void *to, float factor) {
    const uint16_t *restrict a = from;
    float *restrict b = to;
    for (size_t i = 0; i < n; i++)
        b[i] = sdc__half_to_float(sdc__float_to_half(sdc__half_to_float(a[i]) * factor));
}

/* What an average is made of. */
struct recipe_of_sum {
    enum sdc_dtype type; /* of the buffer */
    mover *in, *out;
    float in_factor, out_factor;
    enum sdc_sum (*sum)(unsigned ranks, size_t n, size_t elem_size);
};

static enum sdc_status average_group(struct sdc_reduction *r, const struct recipe_of_sum *how,
                                     const struct sdc_buckets *layout, unsigned group, float *grads,
                                     struct sdc_error *err) {
    size_t size = sdc_sum_size(how->type), used = 0;
    unsigned char *buffer = r->buffer;
    for (unsigned i = layout->start[group]; i < layout->start[group + 1]; i++) {
        const struct sdc_param *p = &r->model->params[layout->order[i]];
        how->in(p->n, grads + p->off, buffer + used * size, how->in_factor);
        if (r->probe)
            sdc_probe_hit(r->probe, SDC_POINT_BUCKET, layout->order[i], buffer + used * size);
        used += p->n;
    }
    enum sdc_sum sum = how->sum(sdc_comm_size(r->comm), used, size);
    SDC_TRY(sdc_comm_allreduce(r->comm, sum, how->type, buffer, used, err));
    used = 0;
    for (unsigned i = layout->start[group]; i < layout->start[group + 1]; i++) {
        const struct sdc_param *p = &r->model->params[layout->order[i]];
        how->out(p->n, buffer + used * size, grads + p->off, how->out_factor);
        used += p->n;
    }
    return SDC_OK;
}

static enum sdc_status average_all(struct sdc_reduction *r, const struct recipe_of_sum *how,
                                   const struct sdc_buckets *layout, float *grads,
                                   struct sdc_error *err) {
    for (unsigned g = 0; g < layout->n; g++)
        SDC_TRY(average_group(r, how, layout, g, grads, err));
    return SDC_OK;
}

/* ---- averages ---- */

static enum sdc_status single_average(struct sdc_reduction *r, const struct sdc_step_number *step,
                                      float *grads, struct sdc_error *err) {
    (void)r;
    (void)step;
    (void)grads;
    (void)err;
    return SDC_OK;
}

static enum sdc_sum gloo_sum(unsigned ranks, size_t n, size_t elem_size) {
    (void)ranks;
    (void)n;
    (void)elem_size;
    return SDC_SUM_GLOO_RING;
}

static enum sdc_status ddp_average(struct sdc_reduction *r, const struct sdc_step_number *step,
                                   float *grads, struct sdc_error *err) {
    unsigned ranks = sdc_comm_size(r->comm);
    struct recipe_of_sum how = {SDC_DTYPE_F32, multiplied, copied, one_over(ranks), 1, gloo_sum};
    if (r->options->compression == SDC_COMPRESSION_FP16) /* a hook switches DDP's own scaling off */
        how = (struct recipe_of_sum){SDC_DTYPE_F16, to_divided_halves, from_halves, (float)ranks, 1,
                                     gloo_sum};
    else if (r->options->bucket_view && step->of_run > 0) {
        how.in = divided;
        how.in_factor = (float)ranks;
    }
    return average_all(r, &how, step->of_run == 0 ? &r->first : &r->later, grads, err);
}

static enum sdc_status horovod_average(struct sdc_reduction *r, const struct sdc_step_number *step,
                                       float *grads, struct sdc_error *err) {
    unsigned ranks = sdc_comm_size(r->comm);
    struct recipe_of_sum how = {SDC_DTYPE_F32,      copied, multiplied, 1, one_over(ranks),
                                sdc_sum_ompi_choice};
    if (r->options->compression == SDC_COMPRESSION_FP16)
        how = (struct recipe_of_sum){SDC_DTYPE_F16,   to_halves,          from_multiplied_halves, 1,
                                     one_over(ranks), sdc_sum_ompi_choice};
    if (r->options->fusion == SDC_FUSION_TIMED)
        horovod_layout(r, ranks, step->number);
    return average_all(r, &how, &r->later, grads, err);
}

static const struct sdc_strategy_ops strategies[] = {
    [SDC_STRATEGY_SINGLE] = {"single", single_plan, single_average},
    [SDC_STRATEGY_DDP] = {"ddp", ddp_plan, ddp_average},
    [SDC_STRATEGY_HOROVOD] = {"horovod", horovod_plan, horovod_average},
};

const struct sdc_strategy_ops *sdc_strategy_find(enum sdc_strategy strategy) {
    return &strategies[strategy];
}
