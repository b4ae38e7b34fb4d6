/* SPDX-License-Identifier: Apache-2.0 */
#include "train/rank.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "train/probe.h"
#include "train/startup.h"

#define EVAL_BATCH 100
#define LANES      8 /* independent sums, so that the additions do not wait for each other */

void sdc_rank_release(struct sdc_rank *r) {
    sdc_net_free(r->net);
    sdc_net_free(r->eval_net);
    sdc_net_free(r->eval_rest);
    sdc_nn_engine_free(r->engine);
    sdc_train_state_release(&r->state);
    sdc__free(r->grads);
    sdc__free(r->reduction.buffer);
    sdc_feed_free(r->feed);
    *r = (struct sdc_rank){.rank = r->rank};
}

enum sdc_status sdc_rank_prepare(struct sdc_rank *r, const struct sdc_rank_shape *shape,
                                 struct sdc_error *err) {
    const struct sdc_model *m = shape->model;
    if (r->shape.model == m && r->shape.kernels == shape->kernels &&
        r->shape.batch == shape->batch && r->shape.keeps == shape->keeps &&
        r->shape.schedule == shape->schedule)
        return SDC_OK;
    sdc_rank_release(r);
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_nn_engine_new(shape->kernels, SDC_NN_F32, &r->engine, err));
    SDC_TRY_OUT(st, sdc_net_new(r->engine, m, shape->batch, true, &r->net, err));
    SDC_TRY_OUT(st, sdc_train_state_init(&r->state, m, shape->keeps, shape->schedule, err));
    r->grads = sdc__alloc_tensor(m->flat, sizeof *r->grads);
    r->reduction.buffer = sdc__alloc_tensor(m->n_elems, sizeof(float));
    if (!r->grads || !r->reduction.buffer)
        SDC_TRY_OUT(st, SDC_NOMEM(err, "gradients"));
    r->shape = *shape;
    return SDC_OK;
out:
    sdc_rank_release(r);
    return st;
}

static bool same_sharding(const struct sdc_sharding *a, const struct sdc_sharding *b) {
    return a->n == b->n && a->ranks == b->ranks && a->batch == b->batch && a->seed == b->seed &&
           a->in_order == b->in_order && a->drop_last == b->drop_last;
}

enum sdc_status sdc_rank_order(struct sdc_rank *r, const struct sdc_sharding *sharding,
                               const struct sdc_augment *augment, struct sdc_error *err) {
    r->augment = *augment;
    if (r->feed && same_sharding(sdc_feed_sharding(r->feed), sharding))
        return SDC_OK;
    sdc_feed_free(r->feed);
    r->feed = NULL;
    if (sdc_sampler_steps_per_epoch(sharding) == 0)
        return SDC_ERR(err, SDC_INVALID,
                       "%llu training samples are too few for %u ranks with batches of %u",
                       (unsigned long long)sharding->n, sharding->ranks, sharding->batch);
    return sdc_feed_new(sharding, r->rank, &r->feed, err);
}

void sdc_rank_rest(struct sdc_rank *r) {
    sdc_feed_rest(r->feed);
}

/* ---- a step ---- */

static enum sdc_status fill_batch(struct sdc_rank *r, const struct sdc_dataset *set,
                                  struct sdc_error *err) {
    const uint64_t per_epoch = sdc_sampler_steps_per_epoch(sdc_feed_sharding(r->feed));
    uint64_t step, next;
    sdc_loop_state_next(&r->state.loop, per_epoch, &step);
    struct sdc_loop_state ahead = r->state.loop;
    ahead.step = 0; /* of no matter here, and it may stand at its end */
    sdc_loop_state_next(&ahead, per_epoch, &next);
    return sdc_feed_batch(r->feed, set, &r->augment, step, next, sdc_net_input(r->net),
                          sdc_net_labels(r->net), err);
}

static struct sdc_net_state state_for_net(const struct sdc_rank *r) {
    return (struct sdc_net_state){.params = r->state.params,
                                  .buffers = r->state.buffers,
                                  .counters = r->state.counters,
                                  .seed = r->augment.seed, /* the run's seed_data */
                                  .step = (uint64_t)r->state.loop.step,
                                  .rank = r->rank};
}

/* n is a multiple of 16, as all flat vectors are; the gaps are zero. */
static uint64_t count_nonfinite(const float *x, size_t n) {
    uint32_t count[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES) {
        uint32_t bits[LANES];
        memcpy(bits, x + i, sizeof bits);
        for (unsigned k = 0; k < LANES; k++)
            count[k] += (bits[k] & 0x7f800000u) == 0x7f800000u;
    }
    uint64_t sum = 0;
    for (unsigned k = 0; k < LANES; k++)
        sum += count[k];
    return sum;
}

static double norm(const float *x, size_t n) {
    double sum[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (unsigned k = 0; k < LANES; k++)
            sum[k] += (double)x[i + k] * (double)x[i + k];
    return sqrt(((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])));
}

/* Gradients lie flat, as the parameters do. */
static void hit_gradients(struct sdc_rank *r, enum sdc_probe_point point) {
    const struct sdc_model *m = r->state.model;
    for (unsigned i = 0; i < m->n_params; i++)
        sdc_probe_hit(r->reduction.probe, point, i, r->grads + m->params[i].off);
}

static void hit_state(struct sdc_rank *r) {
    sdc_probe_hit_state(r->reduction.probe, SDC_POINT_PARAMETER, &r->state);
    sdc_probe_hit_state(r->reduction.probe, SDC_POINT_OPTIMIZER, &r->state);
    sdc_probe_hit_state(r->reduction.probe, SDC_POINT_BUFFER, &r->state);
}

enum sdc_status sdc_rank_step(struct sdc_rank *r, const struct sdc_dataset *set,
                              const struct sdc_strategy_ops *strategy,
                              const struct sdc_optimizer *optimizer,
                              const struct sdc_step_number *step, struct sdc_step_result *result,
                              enum sdc_status *local, struct sdc_error *err) {
    struct sdc_train_state *s = &r->state;
    size_t flat = s->model->flat;
    *result = (struct sdc_step_result){0};
    struct sdc_error shared;
    enum sdc_status st = SDC_OK;
    *local = fill_batch(r, set, err);
    if (r->reduction.probe)
        hit_state(r);
    if (r->sync_buffers)
        st = sdc_startup_send_buffers(r->reduction.comm, s, &shared);
    if (*local == SDC_OK && st == SDC_OK) {
        const struct sdc_net_state state = state_for_net(r);
        *local = sdc_net_train(r->net, &state, r->grads, &result->loss, err);
    }
    if (r->reduction.probe)
        hit_gradients(r, SDC_POINT_LOCAL_GRADIENT);
    if (st == SDC_OK)
        st = strategy->average(&r->reduction, step, r->grads, &shared);
    if (st != SDC_OK) {
        *err = shared;
        return st;
    }
    if (*local != SDC_OK)
        return SDC_OK;
    if (r->reduction.probe)
        hit_gradients(r, SDC_POINT_REDUCED);
    if (r->rank == 0)
        result->gradient_norm = norm(r->grads, flat);
    result->nonfinite_gradients = count_nonfinite(r->grads, flat);
    *local = sdc_optimizer_step(optimizer, r->engine, s, r->grads, err);
    if (r->reduction.probe)
        sdc_probe_hit_state(r->reduction.probe, SDC_POINT_UPDATE, s);
    result->nonfinite_parameters = count_nonfinite(s->params, flat);
    return SDC_OK;
}

/* ---- evaluation ---- */

/* Cross-entropy of one sample in double, and whether its class is the greatest output. */
static double judge(const float *logits, unsigned classes, unsigned label, uint64_t *correct) {
    unsigned best = 0;
    for (unsigned c = 1; c < classes; c++) {
        if (isnan(logits[best]))
            break;
        if (isnan(logits[c]) || logits[c] > logits[best])
            best = c;
    }
    *correct += best == label;
    double sum = 0, top = (double)logits[best];
    for (unsigned c = 0; c < classes; c++)
        sum += exp((double)logits[c] - top);
    return log(sum) - ((double)logits[label] - top);
}

static enum sdc_status evaluate_batch(struct sdc_rank *r, struct sdc_net *net,
                                      const struct sdc_dataset *set, uint64_t first,
                                      struct sdc_eval_result *sum, struct sdc_error *err) {
    uint32_t indices[EVAL_BATCH];
    size_t batch = sdc_net_batch(net);
    const float *logits;
    for (size_t i = 0; i < batch; i++)
        indices[i] = (uint32_t)(first + i);
    sdc_dataset_gather(set, indices, batch, NULL, 0, sdc_net_input(net), NULL);
    const struct sdc_net_state state = state_for_net(r);
    SDC_TRY(sdc_net_forward(net, &state, &logits, err));
    for (size_t i = 0; i < batch; i++)
        sum->loss += judge(logits + i * set->classes, set->classes,
                           (unsigned)set->labels[first + i], &sum->correct);
    return SDC_OK;
}

enum sdc_status sdc_rank_evaluate(struct sdc_rank *r, const struct sdc_dataset *set,
                                  uint64_t samples, _Atomic unsigned *beat,
                                  struct sdc_eval_result *result, struct sdc_error *err) {
    struct sdc_eval_result sum = {0};
    uint64_t rest = samples % EVAL_BATCH;
    if (!r->eval_net && samples >= EVAL_BATCH)
        SDC_TRY(sdc_net_new(r->engine, r->shape.model, EVAL_BATCH, false, &r->eval_net, err));
    if (rest > 0 && (!r->eval_rest || sdc_net_batch(r->eval_rest) != rest)) {
        sdc_net_free(r->eval_rest);
        SDC_TRY(sdc_net_new(r->engine, r->shape.model, (size_t)rest, false, &r->eval_rest, err));
    }
    for (uint64_t at = 0; at + EVAL_BATCH <= samples; at += EVAL_BATCH) {
        SDC_TRY(evaluate_batch(r, r->eval_net, set, at, &sum, err));
        atomic_fetch_add(beat, 1);
    }
    if (rest > 0)
        SDC_TRY(evaluate_batch(r, r->eval_rest, set, samples - rest, &sum, err));
    result->loss = sum.loss / (double)samples;
    result->correct = sum.correct;
    return SDC_OK;
}
