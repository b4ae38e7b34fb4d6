/* SPDX-License-Identifier: Apache-2.0
 *
 * Fast f32 kernels for one instruction set each, the larger part of the implementation "onednn".
 *
 * Convolutions and poolings are computed with one image in each lane of a vector: a group of
 * `lanes` images is transposed to (channel, row, column, lane), with a border of zeros, and every
 * tap is then one fused multiply-add of whole vectors, whatever the width of the image; oneDNN's
 * own convolutions want 8 or 16 channels.
 *
 * The border's zeros add nothing as long as all weights (backward by the weights: all gradients)
 * are finite. Where they are not, zero times infinity would bring a NaN that PyTorch does not have;
 * such calls are computed by the plain kernels, which skip the border.
 */
#ifndef SDC_NN_LANES_H
#define SDC_NN_LANES_H

#include "nn/nn_impl.h"

/* One instruction set. */
struct sdc__nn_isa {
    const char *name;
    bool (*here)(void);                    /* does this processor have it */
    const struct sdc__nn_kernels *kernels; /* the table of "onednn" */
    const struct sdc__nn_kernels *plain;   /* ref's f32 kernels, compiled for this set */
};

/* Fastest first; base runs everywhere. */
extern const struct sdc__nn_isa sdc__nn_avx512; /* x86 only, as the next */
extern const struct sdc__nn_isa sdc__nn_avx2;
extern const struct sdc__nn_isa sdc__nn_base;

/* The fastest that this processor has, but not better than the named one (NULL: no bound). */
const struct sdc__nn_isa *sdc__nn_isa(const char *at_most);

/* Memory of a convolution's or pooling's plan (sdc_nn_plan.own), for one group of images; NULL
 * where a kind has no use for it. A pooling works on one plane at a time. */
struct sdc__nn_lanes {
    float *x;          /* (channels, height + 2 padding, width + 2 padding, lanes) */
    float *y;          /* y or dx, (channels, height, width, lanes) */
    float *dy;         /* (out_channels, out_height + 2 border, out_width + 2 border, lanes) */
    float *w;          /* (channels, kernel, kernel, out_channels), or turned round for dx */
    float *dw;         /* (out_channels, channels, kernel, kernel, lanes) */
    float *db;         /* (out_channels, lanes) */
    float *winner;     /* the winner's place in its window as int32_t, for the whole batch:
                        * (groups, channels, out_height, out_width, lanes) */
    uint32_t *x_place; /* where pixel i of a plane of x lies in it, in pixels */
    uint32_t *dy_place;
    size_t border;             /* kernel - 1 - padding */
    struct sdc__nn_conv *conv; /* oneDNN's convolution (nn/onednn_conv.h) in place of all this */
};

enum sdc_status sdc__nn_lanes_init(struct sdc_nn_plan *plan, struct sdc_error *err);
void sdc__nn_lanes_release(struct sdc_nn_plan *plan);

/* oneDNN computes in the calling thread alone from now on (onednn.c). */
void sdc__nn_one_thread(void);
/* The matrix products of oneDNN (onednn.c). */
sdc__nn_layer_fn sdc__nn_sgemm_forward;
sdc__nn_layer_fn sdc__nn_sgemm_backward;

#endif
