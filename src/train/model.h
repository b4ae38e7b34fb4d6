/* SPDX-License-Identifier: Apache-2.0
 *
 * The networks that can be trained: their layers, parameters and initial weights. Not their
 * arithmetic (nn/nn.h) and not a replica's values (train/state.h).
 *
 * Parameters carry PyTorch's state-dict names and stand in registration order. A replica keeps all
 * of them in one flat vector of model->flat floats, each tensor from a multiple of 16 floats on, so
 * that one call updates everything; the gaps are zero and stay zero.
 *
 * A model is a constant once made; any number of threads may read it.
 */
#ifndef SDC_TRAIN_MODEL_H
#define SDC_TRAIN_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "nn/nn.h"
#include "sdc/status.h"

#define SDC_MODEL_MAX_LAYERS 16
#define SDC_MODEL_MAX_PARAMS 16
#define SDC_MODEL_NAME_SIZE  48

struct sdc_param {
    char name[SDC_MODEL_NAME_SIZE]; /* "model/conv1.weight" */
    unsigned rank;
    uint64_t shape[4];
    size_t n;        /* elements */
    size_t off;      /* of the first in the flat vectors */
    unsigned fan_in; /* of the layer */
};

#define SDC_MODEL_NO_PARAM ((unsigned)-1)

struct sdc_model_layer {
    struct sdc_nn_layer shape; /* batch is 0: filled in by whoever makes a plan */
    unsigned weight, bias;     /* parameter numbers, or SDC_MODEL_NO_PARAM */
};

struct sdc_model {
    const char *name;
    unsigned channels, height, width, classes;
    unsigned n_layers; /* without the loss */
    struct sdc_model_layer layers[SDC_MODEL_MAX_LAYERS];
    unsigned n_params;
    struct sdc_param params[SDC_MODEL_MAX_PARAMS];
    unsigned ready[SDC_MODEL_MAX_PARAMS]; /* parameters in the order in which PyTorch's autograd on
                                             a CPU finishes their gradients */
    size_t n_elems;                       /* over all parameters */
    size_t flat;                          /* length of the flat vectors */
};

/* Fills *model. SDC_UNSUPPORTED lists the known ones. */
enum sdc_status sdc_model_make(const char *name, struct sdc_model *model,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* PyTorch's default initialisation of Linear and Conv2d: weight and bias uniform over
 * +-1 / sqrt(fan in). Stream: seed, purpose INIT, block = number of the parameter. params is flat;
 * the gaps are set to zero. */
void sdc_model_init_weights(const struct sdc_model *model, uint64_t seed, float *params);

#endif
