/* SPDX-License-Identifier: Apache-2.0 */
#include "train/net.h"

#include "base/alloc.h"
#include "base/guard.h"

struct sdc_net {
    const struct sdc_model *model;
    size_t batch;
    bool backward;
    struct sdc_nn_plan *plans[SDC_MODEL_MAX_LAYERS];
    struct sdc_nn_plan *loss; /* NULL without backward */
    /* act[i] is the input of layer i, act[n_layers] the logits. A ReLU works in place, so its two
     * are one; owned says which are ours to free. */
    float *act[SDC_MODEL_MAX_LAYERS + 1];
    bool owned[SDC_MODEL_MAX_LAYERS + 1];
    float *grad[2]; /* gradient by the activations, used in turn */
    int32_t *labels;
};

static enum sdc_status make_plans(struct sdc_net *net, struct sdc_nn_engine *engine,
                                  size_t *largest, struct sdc_error *err) {
    const struct sdc_model *m = net->model;
    for (unsigned i = 0; i < m->n_layers; i++) {
        struct sdc_nn_layer layer = m->layers[i].shape;
        layer.batch = net->batch;
        SDC_TRY(sdc_nn_plan_new(engine, &layer, &net->plans[i], err));
        const struct sdc_nn_sizes *sizes = sdc_nn_plan_sizes(net->plans[i]);
        if (i == 0) {
            net->act[0] = sdc__alloc_tensor(sizes->x, sizeof(float));
            net->owned[0] = true;
            *largest = sizes->x;
        }
        bool in_place = layer.kind == SDC_NN_RELU;
        net->act[i + 1] = in_place ? net->act[i] : sdc__alloc_tensor(sizes->y, sizeof(float));
        net->owned[i + 1] = !in_place;
        if (!net->act[i] || !net->act[i + 1])
            return SDC_NOMEM(err, "activations");
        *largest = sizes->y > *largest ? sizes->y : *largest;
    }
    if (!net->backward)
        return SDC_OK;
    struct sdc_nn_layer loss = {.kind = SDC_NN_XENT, .batch = net->batch, .channels = m->classes};
    return sdc_nn_plan_new(engine, &loss, &net->loss, err);
}

enum sdc_status sdc_net_new(struct sdc_nn_engine *engine, const struct sdc_model *model,
                            size_t batch, bool backward, struct sdc_net **out,
                            struct sdc_error *err) {
    *out = NULL;
    struct sdc_net *net = sdc__calloc(1, sizeof *net);
    if (!net)
        return SDC_NOMEM(err, "a network");
    net->model = model;
    net->batch = batch;
    net->backward = backward;
    size_t largest = 0;
    enum sdc_status st = make_plans(net, engine, &largest, err);
    if (st == SDC_OK && backward) {
        net->grad[0] = sdc__alloc_tensor(largest, sizeof(float));
        net->grad[1] = sdc__alloc_tensor(largest, sizeof(float));
        net->labels = sdc__calloc(batch, sizeof *net->labels);
        if (!net->grad[0] || !net->grad[1] || !net->labels)
            st = SDC_NOMEM(err, "gradients");
    }
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
    for (unsigned i = 0; i <= SDC_MODEL_MAX_LAYERS; i++)
        if (net->owned[i])
            sdc__free(net->act[i]);
    sdc__free(net->grad[0]);
    sdc__free(net->grad[1]);
    sdc__free(net->labels);
    sdc__free(net);
}

size_t sdc_net_batch(const struct sdc_net *net) {
    return net->batch;
}

float *sdc_net_input(struct sdc_net *net) {
    return net->act[0];
}

int32_t *sdc_net_labels(struct sdc_net *net) {
    return net->labels;
}

static const float *at_param(const struct sdc_model *m, unsigned param, const float *flat) {
    return param == SDC_MODEL_NO_PARAM ? NULL : flat + m->params[param].off;
}

enum sdc_status sdc_net_forward(struct sdc_net *net, const float *params, const float **logits,
                                struct sdc_error *err) {
    const struct sdc_model *m = net->model;
    for (unsigned i = 0; i < m->n_layers; i++) {
        const struct sdc_model_layer *l = &m->layers[i];
        struct sdc_nn_io io = {
            .x = net->act[i],
            .w = at_param(m, l->weight, params),
            .b = at_param(m, l->bias, params),
            .y = net->act[i + 1],
        };
        SDC_TRY(sdc_nn_forward(net->plans[i], &io, err));
    }
    *logits = net->act[m->n_layers];
    return SDC_OK;
}

enum sdc_status sdc_net_train(struct sdc_net *net, const float *params, float *grads, float *loss,
                              struct sdc_error *err) {
    const struct sdc_model *m = net->model;
    const float *logits;
    SDC_TRY(sdc_net_forward(net, params, &logits, err));
    struct sdc_nn_io io = {.x = logits, .labels = net->labels, .y = loss};
    SDC_TRY(sdc_nn_forward(net->loss, &io, err));
    unsigned turn = 0;
    io = (struct sdc_nn_io){.x = logits, .labels = net->labels, .dx = net->grad[0]};
    SDC_TRY(sdc_nn_backward(net->loss, &io, err));
    for (unsigned i = m->n_layers; i-- > 0;) {
        const struct sdc_model_layer *l = &m->layers[i];
        bool in_place = l->shape.kind == SDC_NN_RELU;
        float *dy = net->grad[turn];
        float *dx = in_place ? dy : net->grad[turn ^ 1u];
        io = (struct sdc_nn_io){
            .x = net->act[i],
            .w = at_param(m, l->weight, params),
            .y = net->act[i + 1],
            .dy = dy,
            .dx = i == 0 ? NULL : dx, /* nobody asks for the gradient by the images */
            .dw = l->weight == SDC_MODEL_NO_PARAM ? NULL : grads + m->params[l->weight].off,
            .db = l->bias == SDC_MODEL_NO_PARAM ? NULL : grads + m->params[l->bias].off,
        };
        SDC_TRY(sdc_nn_backward(net->plans[i], &io, err));
        turn ^= in_place ? 0u : 1u;
    }
    return SDC_OK;
}
