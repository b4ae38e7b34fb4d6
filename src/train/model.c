/* SPDX-License-Identifier: Apache-2.0 */
#include "train/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/str.h"
#include "sdc/rng.h"
#include "train/network.h"

#define ALIGN_FLOATS 16
#define MAX_MARKS    8

static const struct sdc__network *const networks[] = {
    &sdc__network_mlp,      &sdc__network_lenet5,   &sdc__network_alexnet,  &sdc__network_vgg11,
    &sdc__network_resnet20, &sdc__network_resnet18, &sdc__network_resnet50,
};

#define N_NETWORKS (sizeof networks / sizeof networks[0])

const char *sdc_model_name_at(size_t i) {
    return i < N_NETWORKS ? networks[i]->name : NULL;
}

/* A model in the making. */
struct maker {
    struct sdc_model *m;
    const struct sdc__network *net;
    struct sdc_model_input at[SDC_MODEL_MAX_LAYERS + 1]; /* shape of each activation */
    struct {
        const char *name;
        unsigned activation;
    } marks[MAX_MARKS];
    unsigned n_marks;
};

static enum sdc_status too_many(const struct maker *k, const char *what, struct sdc_error *err) {
    return SDC_ERR(err, SDC_INTERNAL, "model %s has too many %s", k->m->name, what);
}

static enum sdc_status set_mark(struct maker *k, const char *name, unsigned activation,
                                struct sdc_error *err) {
    unsigned i = 0;
    while (i < k->n_marks && strcmp(k->marks[i].name, name) != 0)
        i++;
    if (i == MAX_MARKS)
        return too_many(k, "marks", err);
    k->n_marks += i == k->n_marks;
    k->marks[i].name = name;
    k->marks[i].activation = activation;
    return SDC_OK;
}

static enum sdc_status find_mark(const struct maker *k, const char *name, unsigned *activation,
                                 struct sdc_error *err) {
    for (unsigned i = 0; i < k->n_marks; i++)
        if (strcmp(k->marks[i].name, name) == 0) {
            *activation = k->marks[i].activation;
            return SDC_OK;
        }
    return SDC_ERR(err, SDC_INTERNAL, "model %s: no line before has the mark %s", k->m->name, name);
}

/* ---- parameters and buffers ---- */

static struct sdc_param *add_param(struct sdc_model *m, const char *module, const char *leaf,
                                   unsigned rank, const uint64_t *shape) {
    struct sdc_param *p = &m->params[m->n_params++];
    snprintf(p->name, sizeof p->name, "model/%s.%s", module, leaf);
    p->rank = rank;
    p->n = 1;
    for (unsigned d = 0; d < rank; d++) {
        p->shape[d] = shape[d];
        p->n *= (size_t)shape[d];
    }
    p->off = m->flat;
    m->n_elems += p->n;
    m->flat += (p->n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    return p;
}

static void set_init(struct sdc_param *p, enum sdc_param_init init, double scale) {
    p->init = init;
    p->scale = scale;
}

/* Weight and bias (NULL: none) of a convolution or linear layer. */
static void init_product(enum sdc__init init, bool conv, struct sdc_param *w, struct sdc_param *b) {
    const double fan_in = (double)(w->n / w->shape[0]);
    if (init == SDC__INIT_DEFAULT || (init == SDC__INIT_RESNET && !conv)) {
        set_init(w, SDC_PARAM_UNIFORM, 1.0 / sqrt(fan_in));
        if (b)
            set_init(b, SDC_PARAM_UNIFORM, 1.0 / sqrt(fan_in));
        return;
    }
    const double fan_out = (double)(w->n / w->shape[1]);
    set_init(w, SDC_PARAM_NORMAL, conv ? sqrt(2.0 / fan_out) : 0.01);
    if (b)
        set_init(b, SDC_PARAM_CONSTANT, 0);
}

static void add_product(struct maker *k, struct sdc_model_layer *l, const char *module,
                        size_t fan_in) {
    struct sdc_model *m = k->m;
    const bool conv = l->shape.kind == SDC_NN_CONV2D;
    const uint64_t out = l->shape.out_channels, side = l->shape.kernel;
    const uint64_t shape[4] = {out, conv ? l->shape.channels : fan_in, side, side};
    struct sdc_param *b = NULL;
    l->weight = m->n_params;
    struct sdc_param *w = add_param(m, module, "weight", conv ? 4 : 2, shape);
    if (!l->shape.no_bias) {
        l->bias = m->n_params;
        b = add_param(m, module, "bias", 1, &out);
    }
    init_product(k->net->init, conv, w, b);
}

static void add_buffer(struct sdc_model *m, const char *module, const char *leaf, uint64_t n,
                       float first) {
    struct sdc_buffer *b = &m->buffers[m->n_buffers++];
    snprintf(b->name, sizeof b->name, "model/%s.%s", module, leaf);
    b->counter = n == 0;
    b->n = n == 0 ? 1 : n;
    b->first = first;
    b->off = b->counter ? m->n_counters : m->buffer_flat;
    if (b->counter)
        m->n_counters++;
    else
        m->buffer_flat += n;
}

static void add_norm(struct sdc_model *m, struct sdc_model_layer *l, const char *module) {
    const uint64_t n = l->shape.channels;
    l->weight = m->n_params;
    set_init(add_param(m, module, "weight", 1, &n), SDC_PARAM_CONSTANT, 1);
    l->bias = m->n_params;
    set_init(add_param(m, module, "bias", 1, &n), SDC_PARAM_CONSTANT, 0);
    l->buffer = m->n_buffers;
    add_buffer(m, module, "running_mean", n, 0);
    add_buffer(m, module, "running_var", n, 1);
    add_buffer(m, module, "num_batches_tracked", 0, 0);
}

/* ---- layers ---- */

static enum sdc_status add_sum(struct maker *k, const struct sdc__line *line,
                               struct sdc_model_layer *l, struct sdc_model_input *out,
                               struct sdc_error *err) {
    SDC_TRY(find_mark(k, line->with, &l->other, err));
    const struct sdc_model_input *a = &k->at[l->input], *b = &k->at[l->other];
    if (a->channels != b->channels || a->height != b->height || a->width != b->width)
        return SDC_ERR(err, SDC_INTERNAL, "model %s: sum of %ux%ux%u and %ux%ux%u", k->m->name,
                       a->channels, a->height, a->width, b->channels, b->height, b->width);
    l->sum = true;
    *out = *a;
    return SDC_OK;
}

static enum sdc_status add_kernel(struct maker *k, const struct sdc__line *line,
                                  struct sdc_model_layer *l, struct sdc_model_input *out,
                                  struct sdc_error *err) {
    const struct sdc_model_input *in = &k->at[l->input];
    const bool outs = line->kind == SDC_NN_CONV2D || line->kind == SDC_NN_LINEAR ||
                      line->kind == SDC_NN_SUBSAMPLE;
    struct sdc_nn_sizes s;
    l->shape = (struct sdc_nn_layer){.kind = line->kind,
                                     .channels = in->channels,
                                     .height = in->height,
                                     .width = in->width,
                                     .kernel = line->kernel,
                                     .padding = line->padding,
                                     .stride = line->stride,
                                     .no_bias = line->no_bias,
                                     .drop = line->drop};
    if (outs)
        l->shape.out_channels = line->out == SDC__CLASSES ? k->m->input.classes : line->out;
    struct sdc_nn_layer two = l->shape; /* any batch that every layer takes */
    two.batch = 2;
    if (sdc_nn_layer_sizes(&two, &s, err) != SDC_OK) {
        sdc_error_prefix(err, "model %s for images of %ux%ux%u", k->m->name, k->m->input.channels,
                         k->m->input.height, k->m->input.width);
        return SDC_MISMATCH;
    }
    if (line->kind == SDC_NN_CONV2D || line->kind == SDC_NN_LINEAR)
        add_product(k, l, line->name, s.x / 2);
    else if (line->kind == SDC_NN_BATCHNORM)
        add_norm(k->m, l, line->name);
    out->channels = outs ? (unsigned)l->shape.out_channels : in->channels;
    out->height = (unsigned)s.out_height;
    out->width = (unsigned)s.out_width;
    return SDC_OK;
}

static enum sdc_status add_line(struct maker *k, const struct sdc__line *line,
                                struct sdc_error *err) {
    struct sdc_model *m = k->m;
    const unsigned n = m->n_layers;
    if (n == SDC_MODEL_MAX_LAYERS || m->n_params + 2 > SDC_MODEL_MAX_PARAMS ||
        m->n_buffers + 3 > SDC_MODEL_MAX_BUFFERS)
        return too_many(k, "layers", err);
    struct sdc_model_layer *l = &m->layers[n];
    struct sdc_model_input *out = &k->at[n + 1];
    *l = (struct sdc_model_layer){
        .input = n, .weight = SDC_MODEL_NONE, .bias = SDC_MODEL_NONE, .buffer = SDC_MODEL_NONE};
    if (line->from)
        SDC_TRY(find_mark(k, line->from, &l->input, err));
    SDC_TRY((line->sum ? add_sum : add_kernel)(k, line, l, out, err));
    m->n_layers++;
    m->sizes[n + 1] = (size_t)out->channels * out->height * out->width;
    return line->as ? set_mark(k, line->as, n + 1, err) : SDC_OK;
}

/* Measured with torch 1.13.1 on a CPU: last layer first, in a residual block the shortcut before
 * the main path; a linear's bias before its weight, the weight of a convolution and of a batch
 * normalisation before the bias. */
static void order_ready(struct sdc_model *m) {
    unsigned n = 0;
    for (unsigned i = m->n_layers; i-- > 0;) {
        const struct sdc_model_layer *l = &m->layers[i];
        if (l->weight == SDC_MODEL_NONE)
            continue;
        const bool bias_first = l->shape.kind == SDC_NN_LINEAR;
        if (bias_first && l->bias != SDC_MODEL_NONE)
            m->ready[n++] = l->bias;
        m->ready[n++] = l->weight;
        if (!bias_first && l->bias != SDC_MODEL_NONE)
            m->ready[n++] = l->bias;
    }
}

static enum sdc_status unknown(const char *name, struct sdc_error *err) {
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < N_NETWORKS && used < sizeof names; i++) {
        const int n =
            snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", networks[i]->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return SDC_ERR(err, SDC_UNSUPPORTED, "model '%s' is unknown, expected one of %s", name, names);
}

enum sdc_status sdc_model_make_for(const char *name, const struct sdc_model_input *input,
                                   struct sdc_model *model, struct sdc_error *err) {
    const struct sdc__network *net = NULL;
    for (size_t i = 0; i < N_NETWORKS && !net; i++)
        if (strcmp(networks[i]->name, name) == 0)
            net = networks[i];
    if (!net)
        return unknown(name, err);
    struct maker k = {.m = model, .net = net};
    memset(model, 0, sizeof *model);
    model->name = net->name;
    model->input = input ? *input : (struct sdc_model_input){1, 28, 28, 10};
    k.at[0] = model->input;
    model->sizes[0] = (size_t)model->input.channels * model->input.height * model->input.width;
    SDC_TRY(set_mark(&k, "in", 0, err));
    for (unsigned i = 0; i < net->n_lines; i++)
        SDC_TRY(add_line(&k, &net->lines[i], err));
    order_ready(model);
    return SDC_OK;
}

enum sdc_status sdc_model_make(const char *name, struct sdc_model *model, struct sdc_error *err) {
    return sdc_model_make_for(name, NULL, model, err);
}

/* ---- initial values ---- */

/* Marsaglia's polar method, with a logarithm of the same bits everywhere. */
static void fill_normal(struct sdc_rng *rng, size_t n, double deviation, float *x) {
    for (size_t i = 0; i < n;) {
        const double u = 2.0 * sdc_rng_unit(rng) - 1.0, v = 2.0 * sdc_rng_unit(rng) - 1.0;
        const double s = u * u + v * v;
        if (s >= 1 || s == 0)
            continue;
        const double f = sqrt(-2.0 * sdc_nn_log(s) / s) * deviation;
        x[i++] = (float)(u * f);
        if (i < n)
            x[i++] = (float)(v * f);
    }
}

void sdc_model_init_weights(const struct sdc_model *model, uint64_t seed, float *params) {
    memset(params, 0, model->flat * sizeof *params);
    for (unsigned i = 0; i < model->n_params; i++) {
        const struct sdc_param *p = &model->params[i];
        struct sdc_rng rng;
        sdc_rng_init(&rng, seed, SDC_RNG_INIT, i, 0);
        if (p->init == SDC_PARAM_NORMAL) {
            fill_normal(&rng, p->n, p->scale, params + p->off);
            continue;
        }
        for (size_t k = 0; k < p->n; k++) {
            const bool uniform = p->init == SDC_PARAM_UNIFORM;
            params[p->off + k] =
                (float)((uniform ? 2.0 * sdc_rng_unit(&rng) - 1.0 : 1.0) * p->scale);
        }
    }
}

void sdc_model_init_buffers(const struct sdc_model *model, float *floats, int64_t *counters) {
    for (unsigned i = 0; i < model->n_buffers; i++) {
        const struct sdc_buffer *b = &model->buffers[i];
        if (b->counter)
            counters[b->off] = 0;
        for (size_t k = 0; k < b->n && !b->counter; k++)
            floats[b->off + k] = b->first;
    }
}
