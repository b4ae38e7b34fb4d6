/* SPDX-License-Identifier: Apache-2.0 */
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/str.h"
#include "sdc/rng.h"

#define ALIGN_FLOATS 16

/* One line of a network's description; sizes of the input come from the layer before. */
struct line {
    enum sdc_nn_kind kind;
    const char *name; /* of the module; NULL where there are no parameters */
    unsigned out, kernel, padding;
};

struct network {
    const char *name;
    unsigned channels, height, width, classes;
    unsigned n_lines;
    struct line lines[SDC_MODEL_MAX_LAYERS];
};

static const struct network networks[] = {
    {"mlp",
     1,
     28,
     28,
     10,
     5,
     {{SDC_NN_LINEAR, "fc1", 256, 0, 0},
      {SDC_NN_RELU, NULL, 0, 0, 0},
      {SDC_NN_LINEAR, "fc2", 128, 0, 0},
      {SDC_NN_RELU, NULL, 0, 0, 0},
      {SDC_NN_LINEAR, "fc3", 10, 0, 0}}},
    {"lenet5",
     1,
     28,
     28,
     10,
     9,
     {{SDC_NN_CONV2D, "conv1", 6, 5, 2},
      {SDC_NN_RELU_MAXPOOL2, NULL, 0, 0, 0},
      {SDC_NN_CONV2D, "conv2", 16, 5, 0},
      {SDC_NN_RELU_MAXPOOL2, NULL, 0, 0, 0},
      {SDC_NN_LINEAR, "fc1", 120, 0, 0},
      {SDC_NN_RELU, NULL, 0, 0, 0},
      {SDC_NN_LINEAR, "fc2", 84, 0, 0},
      {SDC_NN_RELU, NULL, 0, 0, 0},
      {SDC_NN_LINEAR, "fc3", 10, 0, 0}}},
};

#define N_NETWORKS (sizeof networks / sizeof networks[0])

static unsigned add_param(struct sdc_model *m, const char *module, const char *leaf, unsigned rank,
                          const uint64_t *shape, unsigned fan_in) {
    struct sdc_param *p = &m->params[m->n_params];
    snprintf(p->name, sizeof p->name, "model/%s.%s", module, leaf);
    p->rank = rank;
    p->n = 1;
    for (unsigned d = 0; d < rank; d++) {
        p->shape[d] = shape[d];
        p->n *= (size_t)shape[d];
    }
    p->off = m->flat;
    p->fan_in = fan_in;
    m->n_elems += p->n;
    m->flat += (p->n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    return m->n_params++;
}

/* Adds the layer and its parameters; c, h, w are its input's sizes and become its output's. */
static void add_layer(struct sdc_model *m, const struct line *line, size_t *c, size_t *h,
                      size_t *w) {
    struct sdc_model_layer *l = &m->layers[m->n_layers++];
    *l = (struct sdc_model_layer){
        .shape = {.kind = line->kind, .channels = *c, .height = *h, .width = *w},
        .weight = SDC_MODEL_NO_PARAM,
        .bias = SDC_MODEL_NO_PARAM,
    };
    uint64_t out = line->out;
    if (line->kind == SDC_NN_LINEAR) {
        size_t in = *c * *h * *w;
        l->shape.out_channels = line->out;
        l->weight = add_param(m, line->name, "weight", 2, (uint64_t[]){out, in}, (unsigned)in);
        l->bias = add_param(m, line->name, "bias", 1, &out, (unsigned)in);
        *c = line->out;
        *h = *w = 1;
    } else if (line->kind == SDC_NN_CONV2D) {
        size_t k = line->kernel, fan_in = *c * k * k;
        l->shape.out_channels = line->out;
        l->shape.kernel = k;
        l->shape.padding = line->padding;
        l->weight =
            add_param(m, line->name, "weight", 4, (uint64_t[]){out, *c, k, k}, (unsigned)fan_in);
        l->bias = add_param(m, line->name, "bias", 1, &out, (unsigned)fan_in);
        *c = line->out;
        *h = *h + 2 * (size_t)line->padding - k + 1;
        *w = *w + 2 * (size_t)line->padding - k + 1;
    } else if (line->kind == SDC_NN_RELU_MAXPOOL2) {
        *h /= 2;
        *w /= 2;
    }
}

/* Measured with torch 1.13.1 on a CPU: last layer first; a linear's bias before its weight, a
 * convolution's weight before its bias. */
static void order_ready(struct sdc_model *m) {
    unsigned n = 0;
    for (unsigned i = m->n_layers; i-- > 0;) {
        const struct sdc_model_layer *l = &m->layers[i];
        if (l->weight == SDC_MODEL_NO_PARAM)
            continue;
        bool bias_first = l->shape.kind == SDC_NN_LINEAR;
        m->ready[n++] = bias_first ? l->bias : l->weight;
        m->ready[n++] = bias_first ? l->weight : l->bias;
    }
}

enum sdc_status sdc_model_make(const char *name, struct sdc_model *model, struct sdc_error *err) {
    const struct network *net = NULL;
    for (size_t i = 0; i < N_NETWORKS && !net; i++)
        if (strcmp(networks[i].name, name) == 0)
            net = &networks[i];
    if (!net)
        return SDC_ERR(err, SDC_UNSUPPORTED, "model '%s' is unknown, expected mlp or lenet5", name);
    *model = (struct sdc_model){.name = net->name,
                                .channels = net->channels,
                                .height = net->height,
                                .width = net->width,
                                .classes = net->classes};
    size_t c = net->channels, h = net->height, w = net->width;
    for (unsigned i = 0; i < net->n_lines; i++)
        add_layer(model, &net->lines[i], &c, &h, &w);
    order_ready(model);
    return SDC_OK;
}

void sdc_model_init_weights(const struct sdc_model *model, uint64_t seed, float *params) {
    memset(params, 0, model->flat * sizeof *params);
    for (unsigned i = 0; i < model->n_params; i++) {
        const struct sdc_param *p = &model->params[i];
        double bound = 1.0 / sqrt((double)p->fan_in);
        struct sdc_rng rng;
        sdc_rng_init(&rng, seed, SDC_RNG_INIT, i, 0);
        for (size_t k = 0; k < p->n; k++)
            params[p->off + k] = (float)((2.0 * sdc_rng_unit(&rng) - 1.0) * bound);
    }
}
