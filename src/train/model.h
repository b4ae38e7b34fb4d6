/* SPDX-License-Identifier: Apache-2.0
 *
 * The networks that can be trained: their layers, parameters, buffers and initial values. Not their
 * arithmetic (nn/nn.h) and not a replica's values (train/state.h). How a network is described, and
 * how to add one: train/network.h.
 *
 * Parameters and buffers carry PyTorch's state-dict names and stand in registration order. A
 * replica keeps all parameters in one flat vector of model->flat floats, each tensor from a
 * multiple of 16 floats on, so that one call updates everything; the gaps are zero and stay zero.
 * Buffers of floats have a flat vector of their own, counters one of int64.
 *
 * A model is a constant once made; any number of threads may read it.
 */
#ifndef SDC_TRAIN_MODEL_H
#define SDC_TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/nn.h"
#include "sdc/status.h"

#define SDC_MODEL_MAX_LAYERS  192
#define SDC_MODEL_MAX_PARAMS  192
#define SDC_MODEL_MAX_BUFFERS 192
#define SDC_MODEL_NAME_SIZE   56

/* Samples and classes. */
struct sdc_model_input {
    unsigned channels, height, width, classes;
};

enum sdc_param_init {
    SDC_PARAM_UNIFORM,  /* over +-scale */
    SDC_PARAM_NORMAL,   /* mean 0, deviation scale */
    SDC_PARAM_CONSTANT, /* scale */
};

struct sdc_param {
    char name[SDC_MODEL_NAME_SIZE]; /* "model/conv1.weight" */
    unsigned rank;
    uint64_t shape[4];
    size_t n;   /* elements */
    size_t off; /* of the first in the flat vectors */
    enum sdc_param_init init;
    double scale;
};

/* Of batch normalisation: running_mean (0 at first), running_var (1), num_batches_tracked (0). */
struct sdc_buffer {
    char name[SDC_MODEL_NAME_SIZE]; /* "model/bn1.running_mean" */
    bool counter;                   /* int64 without dimensions; else f32 (n) */
    uint64_t n;
    size_t off; /* in the floats, or among the counters */
    float first;
};

#define SDC_MODEL_NONE ((unsigned)-1)

/* Activation 0 is the batch of images, activation i + 1 the result of layer i. */
struct sdc_model_layer {
    struct sdc_nn_layer shape; /* batch is 0: filled in by whoever makes a plan */
    bool sum;                  /* adds two activations; shape has no meaning */
    unsigned input, other;     /* activations; other: of a sum */
    unsigned weight, bias;     /* parameter numbers, or SDC_MODEL_NONE */
    unsigned buffer;           /* the first of the layer's three buffers, or SDC_MODEL_NONE */
};

struct sdc_model {
    const char *name;
    struct sdc_model_input input;
    unsigned n_layers; /* without the loss */
    struct sdc_model_layer layers[SDC_MODEL_MAX_LAYERS];
    size_t sizes[SDC_MODEL_MAX_LAYERS + 1]; /* of each activation, elements of one sample */
    unsigned n_params;
    struct sdc_param params[SDC_MODEL_MAX_PARAMS];
    unsigned ready[SDC_MODEL_MAX_PARAMS]; /* parameters in the order in which PyTorch's autograd on
                                             a CPU finishes their gradients */
    size_t n_elems;                       /* over all parameters */
    size_t flat;                          /* length of the flat vectors */
    unsigned n_buffers;
    struct sdc_buffer buffers[SDC_MODEL_MAX_BUFFERS];
    size_t buffer_flat; /* floats of all buffers */
    size_t n_counters;
};

/* Fills *model for samples of this shape; input NULL: 1x28x28 and 10 classes. SDC_UNSUPPORTED lists
 * the known models; SDC_MISMATCH: the samples are too small for one of its layers. */
enum sdc_status sdc_model_make_for(const char *name, const struct sdc_model_input *input,
                                   struct sdc_model *model, struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc_model_make(const char *name, struct sdc_model *model,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* The i-th known name; NULL past the last. Static. */
const char *sdc_model_name_at(size_t i);

/* Initial weights as PyTorch's module has them (the distributions, not the stream; train/network.h
 * says which). Stream: seed, purpose INIT, block = number of the parameter. params is flat; the
 * gaps are set to zero. */
void sdc_model_init_weights(const struct sdc_model *model, uint64_t seed, float *params);
/* Buffers of a fresh model; floats: [buffer_flat], counters: [n_counters]. */
void sdc_model_init_buffers(const struct sdc_model *model, float *floats, int64_t *counters);

#endif
