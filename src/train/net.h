/* SPDX-License-Identifier: Apache-2.0
 *
 * A model at work: forward and backward of one batch size over the kernels of nn/nn.h, with the
 * memory for everything in between. Holds no parameters; the caller passes the flat vectors of
 * train/model.h. One thread per object; forward and backward allocate nothing.
 */
#ifndef SDC_TRAIN_NET_H
#define SDC_TRAIN_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/nn.h"
#include "sdc/status.h"
#include "train/model.h"

struct sdc_net;

/* For f32 engines. backward: for training: batch normalisation goes by the batch, dropout drops,
 * the backward pass and the loss are prepared. Without: for evaluation, in less memory. engine and
 * model are borrowed. SDC_NO_MEMORY and the statuses of sdc_nn_plan_new. */
enum sdc_status sdc_net_new(struct sdc_nn_engine *engine, const struct sdc_model *model,
                            size_t batch, bool backward, struct sdc_net **out,
                            struct sdc_error *err) SDC_MUST_CHECK;
void sdc_net_free(struct sdc_net *net); /* accepts NULL */
size_t sdc_net_batch(const struct sdc_net *net);

/* The batch's images, (batch, channels, height, width): written by the caller before forward. */
float *sdc_net_input(struct sdc_net *net);
/* The batch's class numbers: written by the caller before sdc_net_train. */
int32_t *sdc_net_labels(struct sdc_net *net);

/* What a pass reads and changes of a replica. */
struct sdc_net_state {
    const float *params; /* flat */
    float *buffers;      /* model->buffer_flat floats; a training pass updates them */
    int64_t *counters;   /* model->n_counters, as buffers */
    uint64_t seed;       /* of what is dropped, with the next two */
    uint64_t step;       /* the low 32 bits count */
    unsigned rank;
};

/* Forward only. *logits: (batch, classes), borrowed until the next call. */
enum sdc_status sdc_net_forward(struct sdc_net *net, const struct sdc_net_state *state,
                                const float **logits, struct sdc_error *err) SDC_MUST_CHECK;

/* Forward, loss (cross-entropy, mean over the batch) and backward. grads: flat; every parameter's
 * gradient is written, the gaps are left alone. SDC_INVALID: a label is no class. */
enum sdc_status sdc_net_train(struct sdc_net *net, const struct sdc_net_state *state, float *grads,
                              float *loss, struct sdc_error *err) SDC_MUST_CHECK;

#endif
