/* SPDX-License-Identifier: Apache-2.0
 *
 * How a network is described: one file in train/models for each, with a table of lines in the order
 * in which PyTorch's module runs and registers them. A new model is such a file, a line in
 * networks[] of model.c and one in CMakeLists.txt.
 *
 * A line works on the result of the line before it, or of the latest line with a mark (`as`) that
 * `from` names; SUM adds what `with` names. The mark "in" is set on the images too.
 */
#ifndef SDC_TRAIN_NETWORK_H
#define SDC_TRAIN_NETWORK_H

#include <stdbool.h>

#include "nn/nn.h"

/* Initial weights. Batch normalisation begins with weight 1, bias 0, mean 0, variance 1. */
enum sdc__init {
    /* torch's default of Linear and Conv2d: weight and bias uniform over +-1 / sqrt(fan in) */
    SDC__INIT_DEFAULT,
    /* torchvision's ResNet: convolutions normal with deviation sqrt(2 / fan out), where fan out is
     * out channels * kernel^2; Linear as the default */
    SDC__INIT_RESNET,
    /* torchvision's VGG: convolutions as ResNet's with bias 0; Linear's weight normal with
     * deviation 0.01, bias 0 */
    SDC__INIT_VGG,
};

#define SDC__CLASSES 0u /* as `out` of the last line: as many as the data has */

struct sdc__line {
    enum sdc_nn_kind kind;
    bool sum;         /* no kind: adds `with` to the input */
    const char *name; /* of the module; NULL where there are no parameters */
    unsigned out, kernel, stride, padding;
    bool no_bias;
    double drop;
    const char *from, *with, *as;
};

struct sdc__network {
    const char *name;
    enum sdc__init init;
    const struct sdc__line *lines;
    unsigned n_lines;
};

#define SDC__N_LINES(lines) ((unsigned)(sizeof(lines) / sizeof *(lines)))

/* Lines. Further members can follow as in LINE(CONV("conv1", 64, 3, 1, 1), .as = "x"). */
#define LINE(...)                                                                                  \
    { __VA_ARGS__ }
#define CONV(module, channels, side, step, border)                                                 \
    .kind = SDC_NN_CONV2D, .name = (module), .out = (channels), .kernel = (side),                  \
    .stride = (step), .padding = (border)
#define CONV_NO_BIAS(module, channels, side, step, border)                                         \
    CONV(module, channels, side, step, border), .no_bias = true
#define LINEAR(module, features)  .kind = SDC_NN_LINEAR, .name = (module), .out = (features)
#define NORM(module)              .kind = SDC_NN_BATCHNORM, .name = (module)
#define RELU                      .kind = SDC_NN_RELU
#define RELU_MAXPOOL2             .kind = SDC_NN_RELU_MAXPOOL2
#define MAXPOOL3                  .kind = SDC_NN_MAXPOOL3
#define AVGPOOL                   .kind = SDC_NN_AVGPOOL
#define DROPOUT(probability)      .kind = SDC_NN_DROPOUT, .drop = (probability)
#define SUBSAMPLE(channels, step) .kind = SDC_NN_SUBSAMPLE, .out = (channels), .stride = (step)
#define SUM(what)                 .sum = true, .with = (what)

extern const struct sdc__network sdc__network_mlp;
extern const struct sdc__network sdc__network_lenet5;
extern const struct sdc__network sdc__network_alexnet;
extern const struct sdc__network sdc__network_vgg11;
extern const struct sdc__network sdc__network_resnet20;
extern const struct sdc__network sdc__network_resnet18;
extern const struct sdc__network sdc__network_resnet50;

#endif
