/* SPDX-License-Identifier: Apache-2.0
 *
 * Images per second of a training step (forward, backward, SGD with momentum) of LeNet-5 and of a
 * perceptron of 784-256-128-10, one thread, for one implementation of the kernels. Random data; the
 * best of several rounds, and with --layers each layer's best.
 *
 *     bench_nn NAME lenet5|mlp [BATCH] [--layers]
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/str.h"
#include "nn/nn.h"

#define MAX_LAYERS 16

struct net {
    struct sdc_nn_engine *engine;
    size_t n_layers, n_params;
    struct sdc_nn_plan *plan[MAX_LAYERS];
    float *act[MAX_LAYERS + 1]; /* act[i] goes into layer i */
    float *grad[MAX_LAYERS + 1];
    float *params, *param_grads, *momentum;
    float *w[MAX_LAYERS], *b[MAX_LAYERS], *dw[MAX_LAYERS], *db[MAX_LAYERS];
    int32_t *labels;
    uint64_t forward_ns[MAX_LAYERS], backward_ns[MAX_LAYERS], update_ns;
};

static void check(enum sdc_status st, const struct sdc_error *err) {
    if (st == SDC_OK)
        return;
    fprintf(stderr, "bench_nn: %s\n", err->message);
    exit(1);
}

static float *floats(size_t n) {
    float *p = sdc__alloc_tensor(n, sizeof *p);
    if (!p)
        exit(4);
    return p;
}

static void fill(size_t n, float *x, float amplitude) {
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = amplitude * ((float)(state >> 8) / 8388608.0f - 1.0f);
    }
}

static void net_init(struct net *net, const char *kernels, const struct sdc_nn_layer *layers,
                     size_t n_layers) {
    struct sdc_error err;
    const size_t batch = layers[0].batch;
    const struct sdc_nn_ops *ops = sdc_nn_find(kernels);
    if (!ops) {
        fprintf(stderr, "bench_nn: no kernels named %s\n", kernels);
        exit(2);
    }
    check(sdc_nn_engine_new(ops, SDC_NN_F32, &net->engine, &err), &err);
    net->n_layers = n_layers;
    for (size_t i = 0; i < n_layers; i++) {
        check(sdc_nn_plan_new(net->engine, &layers[i], &net->plan[i], &err), &err);
        const struct sdc_nn_sizes *s = sdc_nn_plan_sizes(net->plan[i]);
        net->act[i] = floats(s->x);
        net->grad[i] = floats(s->x);
        net->n_params += s->w + s->b;
    }
    net->act[n_layers] = floats(1);
    net->params = floats(net->n_params);
    net->param_grads = floats(net->n_params);
    net->momentum = floats(net->n_params);
    for (size_t i = 0, at = 0; i < n_layers; i++) {
        const struct sdc_nn_sizes *s = sdc_nn_plan_sizes(net->plan[i]);
        net->w[i] = net->params + at;
        net->dw[i] = net->param_grads + at;
        net->b[i] = net->w[i] + s->w;
        net->db[i] = net->dw[i] + s->w;
        at += s->w + s->b;
    }
    fill(net->n_params, net->params, 0.1f);
    fill(sdc_nn_plan_sizes(net->plan[0])->x, net->act[0], 1.0f);
    net->labels = sdc__calloc(batch, sizeof *net->labels);
    for (size_t i = 0; i < batch; i++)
        net->labels[i] = (int32_t)(i % 10);
}

static void net_release(struct net *net) {
    for (size_t i = 0; i < net->n_layers; i++) {
        sdc_nn_plan_free(net->plan[i]);
        sdc__free(net->act[i]);
        sdc__free(net->grad[i]);
    }
    sdc__free(net->act[net->n_layers]);
    sdc__free(net->params);
    sdc__free(net->param_grads);
    sdc__free(net->momentum);
    sdc__free(net->labels);
    sdc_nn_engine_free(net->engine);
}

static void keep_best(uint64_t *best_ns, uint64_t start) {
    const uint64_t took = sdc__now_ns() - start;
    if (*best_ns == 0 || took < *best_ns)
        *best_ns = took;
}

static void step(struct net *net) {
    struct sdc_error err;
    const struct sdc_nn_sgd sgd = {.lr = 0.01, .momentum = 0.9};
    for (size_t i = 0; i < net->n_layers; i++) {
        const uint64_t start = sdc__now_ns();
        check(sdc_nn_forward(net->plan[i],
                             &(struct sdc_nn_io){.x = net->act[i],
                                                 .w = net->w[i],
                                                 .b = net->b[i],
                                                 .y = net->act[i + 1],
                                                 .labels = net->labels},
                             &err),
              &err);
        keep_best(&net->forward_ns[i], start);
    }
    for (size_t i = net->n_layers; i-- > 0;) {
        const uint64_t start = sdc__now_ns();
        check(sdc_nn_backward(
                  net->plan[i],
                  &(struct sdc_nn_io){.x = net->act[i],
                                      .w = net->w[i],
                                      .y = net->act[i + 1],
                                      .dy = i + 1 < net->n_layers ? net->grad[i + 1] : NULL,
                                      .dx = i ? net->grad[i] : NULL,
                                      .dw = net->dw[i],
                                      .db = net->db[i],
                                      .labels = net->labels},
                  &err),
              &err);
        keep_best(&net->backward_ns[i], start);
    }
    const uint64_t start = sdc__now_ns();
    sdc_nn_sgd_step(net->engine, &sgd, net->n_params, net->params, net->param_grads, net->momentum,
                    false);
    keep_best(&net->update_ns, start);
}

static size_t lenet5(struct sdc_nn_layer *l, size_t batch) {
    const struct sdc_nn_layer layers[] = {
        {SDC_NN_CONV2D, batch, 1, 28, 28, 6, 5, 2, 0, false, false, 0},
        {SDC_NN_RELU_MAXPOOL2, batch, 6, 28, 28, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_CONV2D, batch, 6, 14, 14, 16, 5, 0, 0, false, false, 0},
        {SDC_NN_RELU_MAXPOOL2, batch, 16, 10, 10, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_LINEAR, batch, 16, 5, 5, 120, 0, 0, 0, false, false, 0},
        {SDC_NN_RELU, batch, 120, 0, 0, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_LINEAR, batch, 120, 0, 0, 84, 0, 0, 0, false, false, 0},
        {SDC_NN_RELU, batch, 84, 0, 0, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_LINEAR, batch, 84, 0, 0, 10, 0, 0, 0, false, false, 0},
        {SDC_NN_XENT, batch, 10, 0, 0, 0, 0, 0, 0, false, false, 0},
    };
    memcpy(l, layers, sizeof layers);
    return sizeof layers / sizeof *layers;
}

static size_t mlp(struct sdc_nn_layer *l, size_t batch) {
    const struct sdc_nn_layer layers[] = {
        {SDC_NN_LINEAR, batch, 1, 28, 28, 256, 0, 0, 0, false, false, 0},
        {SDC_NN_RELU, batch, 256, 0, 0, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_LINEAR, batch, 256, 0, 0, 128, 0, 0, 0, false, false, 0},
        {SDC_NN_RELU, batch, 128, 0, 0, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_LINEAR, batch, 128, 0, 0, 10, 0, 0, 0, false, false, 0},
        {SDC_NN_XENT, batch, 10, 0, 0, 0, 0, 0, 0, false, false, 0},
    };
    memcpy(l, layers, sizeof layers);
    return sizeof layers / sizeof *layers;
}

int main(int argc, char **argv) {
    struct sdc_nn_layer layers[MAX_LAYERS];
    struct net net = {0};
    unsigned long long batch = 64;
    if (argc < 3 || (argc > 3 && argv[3][0] != '-' && !sdc__parse_u64(argv[3], &batch))) {
        fprintf(stderr, "usage: bench_nn NAME lenet5|mlp [BATCH] [--layers]\n");
        return 2;
    }
    const bool is_lenet = strcmp(argv[2], "lenet5") == 0;
    net_init(&net, argv[1], layers, (is_lenet ? lenet5 : mlp)(layers, (size_t)batch));
    const int rounds = 9, steps = 20;
    uint64_t best = UINT64_MAX;
    for (int r = 0; r < rounds; r++) {
        const uint64_t start = sdc__now_ns();
        for (int s = 0; s < steps; s++)
            step(&net);
        const uint64_t took = sdc__now_ns() - start;
        best = took < best ? took : best;
    }
    char version[64];
    sdc_nn_version(sdc_nn_find(argv[1]), version, sizeof version);
    printf("%s (%s) %s batch %llu: %.0f images/s\n", argv[1], version, argv[2], batch,
           (double)batch * steps * 1e9 / (double)best);
    if (strcmp(argv[argc - 1], "--layers") == 0) {
        for (size_t i = 0; i < net.n_layers; i++)
            printf("  layer %zu: forward %.1f us, backward %.1f us\n", i,
                   (double)net.forward_ns[i] / 1e3, (double)net.backward_ns[i] / 1e3);
        printf("  update %.1f us\n", (double)net.update_ns / 1e3);
    }
    net_release(&net);
    return 0;
}
