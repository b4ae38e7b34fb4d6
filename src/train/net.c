/* SPDX-License-Identifier: Apache-2.0 */
#include "train/net.h"

#include "base/alloc.h"
#include "base/guard.h"

#define NONE SDC_MODEL_NONE

/* Vectors that are used in turn: who takes one holds it until it releases it. All of that happens
 * while a network is made; then each vector is allocated, as long as the longest that was in it. */
struct pool {
    float *data[2 * SDC_MODEL_MAX_LAYERS];
    size_t size[2 * SDC_MODEL_MAX_LAYERS];
    unsigned holders[2 * SDC_MODEL_MAX_LAYERS];
    unsigned n;
};

/* One step of the backward pass over vectors of the gradients' pool: dx from dy by the layer (NONE:
 * dx is dy), then `add` (NONE: nothing) is added to dx. */
struct back {
    unsigned layer, dy, dx, add;
    size_t n; /* elements of dx */
};

struct sdc_net {
    const struct sdc_model *model;
    struct sdc_nn_engine *engine;
    size_t batch;
    bool backward;
    struct sdc_nn_plan *plans[SDC_MODEL_MAX_LAYERS]; /* NULL for sums */
    struct sdc_nn_plan *loss;                        /* NULL without backward */
    struct pool acts, grads;
    unsigned act[SDC_MODEL_MAX_LAYERS + 1]; /* where each activation lies */
    unsigned logits_grad;
    struct back back[2 * SDC_MODEL_MAX_LAYERS];
    unsigned n_back;
    int32_t *labels;
};

/* ---- vectors ---- */

/* A vector of at least n elements that nobody holds: the shortest that will do, else the longest,
 * made longer, else a new one. */
static unsigned take(struct pool *p, size_t n) {
    unsigned best = NONE;
    for (unsigned i = 0; i < p->n; i++) {
        if (p->holders[i] > 0)
            continue;
        const bool fits = p->size[i] >= n, best_fits = best != NONE && p->size[best] >= n;
        if (best == NONE || (fits && (!best_fits || p->size[i] < p->size[best])) ||
            (!best_fits && p->size[i] > p->size[best]))
            best = i;
    }
    if (best == NONE)
        best = p->n++;
    if (p->size[best] < n)
        p->size[best] = n;
    p->holders[best] = 1;
    return best;
}

static bool pool_allocate(struct pool *p) {
    for (unsigned i = 0; i < p->n; i++)
        if (!(p->data[i] = sdc__alloc_tensor(p->size[i], sizeof(float))))
            return false;
    return true;
}

static void pool_release(struct pool *p) {
    for (unsigned i = 0; i < p->n; i++)
        sdc__free(p->data[i]);
}

/* ---- making ---- */

/* The last layer that reads each activation, and how many do; the logits are read at the end. */
struct uses {
    unsigned last[SDC_MODEL_MAX_LAYERS + 1], n[SDC_MODEL_MAX_LAYERS + 1];
};

static void count_uses(const struct sdc_model *m, struct uses *u) {
    *u = (struct uses){{0}, {0}};
    for (unsigned i = 0; i < m->n_layers; i++) {
        u->last[m->layers[i].input] = i;
        u->n[m->layers[i].input]++;
        if (m->layers[i].sum) {
            u->last[m->layers[i].other] = i;
            u->n[m->layers[i].other]++;
        }
    }
    u->last[m->n_layers] = m->n_layers;
}

/* Places of the activations. In training each is kept for the backward pass, but for the input of
 * a ReLU that nobody else reads, which works in place. */
static void place_activations(struct sdc_net *net) {
    const struct sdc_model *m = net->model;
    struct uses u;
    count_uses(m, &u);
    net->act[0] = take(&net->acts, m->sizes[0] * net->batch);
    for (unsigned i = 0; i < m->n_layers; i++) {
        const struct sdc_model_layer *l = &m->layers[i];
        if (!l->sum && l->shape.kind == SDC_NN_RELU && l->input > 0 && u.n[l->input] == 1) {
            net->act[i + 1] = net->act[l->input];
            continue;
        }
        net->act[i + 1] = take(&net->acts, m->sizes[i + 1] * net->batch);
        if (net->backward)
            continue;
        if (l->input > 0 && u.last[l->input] == i)
            net->acts.holders[net->act[l->input]] = 0;
        if (l->sum && l->other > 0 && u.last[l->other] == i)
            net->acts.holders[net->act[l->other]] = 0;
    }
}

static void add_back(struct sdc_net *net, unsigned layer, unsigned dy, unsigned dx, unsigned add,
                     size_t n) {
    net->back[net->n_back++] = (struct back){layer, dy, dx, add, n};
}

/* A sum passes dy on to one of its inputs, whose gradient so far is in *grad. */
static void pass_on(struct sdc_net *net, unsigned activation, unsigned dy, unsigned *grad) {
    struct pool *p = &net->grads;
    if (activation == 0)
        return;
    if (*grad == NONE) {
        *grad = dy; /* shared, so only read from now on */
        p->holders[dy]++;
        return;
    }
    const unsigned old = *grad;
    const size_t n = net->model->sizes[activation] * net->batch;
    *grad = take(p, n);
    add_back(net, NONE, dy, *grad, old, n);
    p->holders[old]--;
}

static bool may_work_in_place(enum sdc_nn_kind kind) {
    return kind == SDC_NN_RELU || kind == SDC_NN_BATCHNORM || kind == SDC_NN_DROPOUT;
}

/* The backward pass. An activation that several layers read gets the sum of their gradients. */
static void plan_backward(struct sdc_net *net) {
    const struct sdc_model *m = net->model;
    struct pool *p = &net->grads;
    unsigned grad[SDC_MODEL_MAX_LAYERS + 1];
    for (unsigned i = 0; i <= m->n_layers; i++)
        grad[i] = NONE;
    net->logits_grad = grad[m->n_layers] = take(p, m->sizes[m->n_layers] * net->batch);
    for (unsigned i = m->n_layers; i-- > 0;) {
        const struct sdc_model_layer *l = &m->layers[i];
        const unsigned dy = grad[i + 1];
        if (l->sum) {
            pass_on(net, l->input, dy, &grad[l->input]);
            pass_on(net, l->other, dy, &grad[l->other]);
        } else if (l->input == 0) {
            add_back(net, i, dy, NONE, NONE, 0); /* nobody asks for the gradient by the images */
        } else {
            const size_t n = m->sizes[l->input] * net->batch;
            unsigned dx = dy;
            if (may_work_in_place(l->shape.kind) && p->holders[dy] == 1)
                p->holders[dx]++;
            else
                dx = take(p, n);
            add_back(net, i, dy, dx, grad[l->input], n);
            if (grad[l->input] != NONE)
                p->holders[grad[l->input]]--;
            grad[l->input] = dx;
        }
        p->holders[dy]--;
    }
}

static enum sdc_status make_plans(struct sdc_net *net, struct sdc_error *err) {
    const struct sdc_model *m = net->model;
    for (unsigned i = 0; i < m->n_layers; i++) {
        struct sdc_nn_layer layer = m->layers[i].shape;
        if (m->layers[i].sum)
            continue;
        layer.batch = net->batch;
        layer.eval =
            !net->backward && (layer.kind == SDC_NN_BATCHNORM || layer.kind == SDC_NN_DROPOUT);
        SDC_TRY(sdc_nn_plan_new(net->engine, &layer, &net->plans[i], err));
    }
    place_activations(net);
    if (!pool_allocate(&net->acts))
        return SDC_NOMEM(err, "activations");
    if (!net->backward)
        return SDC_OK;
    plan_backward(net);
    net->labels = sdc__calloc(net->batch, sizeof *net->labels);
    if (!net->labels || !pool_allocate(&net->grads))
        return SDC_NOMEM(err, "gradients");
    struct sdc_nn_layer loss = {
        .kind = SDC_NN_XENT, .batch = net->batch, .channels = m->input.classes};
    return sdc_nn_plan_new(net->engine, &loss, &net->loss, err);
}

enum sdc_status sdc_net_new(struct sdc_nn_engine *engine, const struct sdc_model *model,
                            size_t batch, bool backward, struct sdc_net **out,
                            struct sdc_error *err) {
    *out = NULL;
    struct sdc_net *net = sdc__calloc(1, sizeof *net);
    if (!net)
        return SDC_NOMEM(err, "a network");
    net->engine = engine;
    net->model = model;
    net->batch = batch;
    net->backward = backward;
    enum sdc_status st = make_plans(net, err);
    if (st != SDC_OK) {
        sdc_net_free(net);
        return st;
    }
    *out = net;
    return SDC_OK;
}

void sdc_net_free(struct sdc_net *net) {
    if (!net)
        return;
    for (unsigned i = 0; i < SDC_MODEL_MAX_LAYERS; i++)
        sdc_nn_plan_free(net->plans[i]);
    sdc_nn_plan_free(net->loss);
    pool_release(&net->acts);
    pool_release(&net->grads);
    sdc__free(net->labels);
    sdc__free(net);
}

size_t sdc_net_batch(const struct sdc_net *net) {
    return net->batch;
}

static float *activation(const struct sdc_net *net, unsigned i) {
    return net->acts.data[net->act[i]];
}

float *sdc_net_input(struct sdc_net *net) {
    return activation(net, 0);
}

int32_t *sdc_net_labels(struct sdc_net *net) {
    return net->labels;
}

/* ---- computing ---- */

static const float *at_param(const struct sdc_model *m, unsigned param, const float *flat) {
    return param == NONE ? NULL : flat + m->params[param].off;
}

static struct sdc_nn_io operands(const struct sdc_net *net, const struct sdc_net_state *s,
                                 unsigned i) {
    const struct sdc_model *m = net->model;
    const struct sdc_model_layer *l = &m->layers[i];
    struct sdc_nn_io io = {
        .x = activation(net, l->input),
        .w = at_param(m, l->weight, s->params),
        .b = at_param(m, l->bias, s->params),
        .y = activation(net, i + 1),
        .stream = {.seed = s->seed, .block = i << 8 | s->rank, .trial = (uint32_t)s->step},
    };
    if (l->buffer != NONE) {
        io.run_mean = s->buffers + m->buffers[l->buffer].off;
        io.run_var = s->buffers + m->buffers[l->buffer + 1].off;
        io.run_count = s->counters + m->buffers[l->buffer + 2].off;
    }
    return io;
}

enum sdc_status sdc_net_forward(struct sdc_net *net, const struct sdc_net_state *state,
                                const float **logits, struct sdc_error *err) {
    const struct sdc_model *m = net->model;
    for (unsigned i = 0; i < m->n_layers; i++) {
        const struct sdc_model_layer *l = &m->layers[i];
        if (l->sum) {
            sdc_nn_add(net->engine, m->sizes[i + 1] * net->batch, activation(net, l->input),
                       activation(net, l->other), activation(net, i + 1));
            continue;
        }
        const struct sdc_nn_io io = operands(net, state, i);
        SDC_TRY(sdc_nn_forward(net->plans[i], &io, err));
    }
    *logits = activation(net, m->n_layers);
    return SDC_OK;
}

static enum sdc_status step_back(struct sdc_net *net, const struct sdc_net_state *state,
                                 const struct back *b, float *grads, struct sdc_error *err) {
    const struct sdc_model *m = net->model;
    float *dy = net->grads.data[b->dy], *dx = b->dx == NONE ? NULL : net->grads.data[b->dx];
    if (b->layer != NONE) {
        const struct sdc_model_layer *l = &m->layers[b->layer];
        struct sdc_nn_io io = operands(net, state, b->layer);
        io.dy = dy;
        io.dx = dx;
        io.dw = l->weight == NONE ? NULL : grads + m->params[l->weight].off;
        io.db = l->bias == NONE ? NULL : grads + m->params[l->bias].off;
        if (dx || io.dw)
            SDC_TRY(sdc_nn_backward(net->plans[b->layer], &io, err));
    }
    if (b->add != NONE)
        sdc_nn_add(net->engine, b->n, b->layer == NONE ? dy : dx, net->grads.data[b->add], dx);
    return SDC_OK;
}

enum sdc_status sdc_net_train(struct sdc_net *net, const struct sdc_net_state *state, float *grads,
                              float *loss, struct sdc_error *err) {
    const float *logits;
    SDC_TRY(sdc_net_forward(net, state, &logits, err));
    struct sdc_nn_io io = {.x = logits, .labels = net->labels, .y = loss};
    SDC_TRY(sdc_nn_forward(net->loss, &io, err));
    io = (struct sdc_nn_io){
        .x = logits, .labels = net->labels, .dx = net->grads.data[net->logits_grad]};
    SDC_TRY(sdc_nn_backward(net->loss, &io, err));
    for (unsigned i = 0; i < net->n_back; i++)
        SDC_TRY(step_back(net, state, &net->back[i], grads, err));
    return SDC_OK;
}
