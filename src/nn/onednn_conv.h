/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions by oneDNN's own primitives (direct algorithm, as PyTorch asks for on a CPU), for
 * shapes whose channels fill its vectors and for strides; nn/lanes.h computes the others. Tensors
 * come and go in C order and are reordered to the layout that the primitive prefers, in scratch
 * memory that all plans of an engine share.
 */
#ifndef SDC_NN_ONEDNN_CONV_H
#define SDC_NN_ONEDNN_CONV_H

#include "nn/nn_impl.h"

struct sdc__nn_conv;

/* Whether this layer, a convolution, is one for oneDNN. */
bool sdc__nn_conv_suits(const struct sdc_nn_layer *layer);
/* SDC_NO_MEMORY, or SDC_INTERNAL where oneDNN refuses. On failure *out is NULL. */
enum sdc_status sdc__nn_conv_new(const struct sdc_nn_plan *plan, struct sdc__nn_conv **out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__nn_conv_free(struct sdc__nn_conv *conv); /* accepts NULL */
void sdc__nn_conv_forward(struct sdc__nn_conv *conv, const struct sdc_nn_io *io);
void sdc__nn_conv_backward(struct sdc__nn_conv *conv, const struct sdc_nn_io *io);

#endif
