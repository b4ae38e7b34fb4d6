/* SPDX-License-Identifier: Apache-2.0
 *
 * torchvision.models.resnet50 (0.14) for small images: the first convolution is 3x3 with stride 1,
 * and there is no pooling after it. The stride of a block is that of its 3x3 convolution. Names are
 * torchvision's.
 */
#include "train/network.h"

#define BEGIN(name, width, step)                                                                   \
    LINE(CONV_NO_BIAS(name ".conv1", width, 1, 1, 0)), LINE(NORM(name ".bn1")), LINE(RELU),        \
        LINE(CONV_NO_BIAS(name ".conv2", width, 3, step, 1)), LINE(NORM(name ".bn2")), LINE(RELU), \
        LINE(CONV_NO_BIAS(name ".conv3", 4 * (width), 1, 1, 0))

#define BLOCK(name, width)                                                                         \
    BEGIN(name, width, 1), LINE(NORM(name ".bn3")), LINE(SUM("in")), LINE(RELU, .as = "in")

#define BLOCK_WIDEN(name, width, step)                                                             \
    BEGIN(name, width, step), LINE(NORM(name ".bn3"), .as = "main"),                               \
        LINE(CONV_NO_BIAS(name ".downsample.0", 4 * (width), 1, step, 0), .from = "in"),           \
        LINE(NORM(name ".downsample.1")), LINE(SUM("main")), LINE(RELU, .as = "in")

static const struct sdc__line lines[] = {
    LINE(CONV_NO_BIAS("conv1", 64, 3, 1, 1)),
    LINE(NORM("bn1")),
    LINE(RELU, .as = "in"),
    BLOCK_WIDEN("layer1.0", 64, 1),
    BLOCK("layer1.1", 64),
    BLOCK("layer1.2", 64),
    BLOCK_WIDEN("layer2.0", 128, 2),
    BLOCK("layer2.1", 128),
    BLOCK("layer2.2", 128),
    BLOCK("layer2.3", 128),
    BLOCK_WIDEN("layer3.0", 256, 2),
    BLOCK("layer3.1", 256),
    BLOCK("layer3.2", 256),
    BLOCK("layer3.3", 256),
    BLOCK("layer3.4", 256),
    BLOCK("layer3.5", 256),
    BLOCK_WIDEN("layer4.0", 512, 2),
    BLOCK("layer4.1", 512),
    BLOCK("layer4.2", 512),
    LINE(AVGPOOL),
    LINE(LINEAR("fc", SDC__CLASSES)),
};

const struct sdc__network sdc__network_resnet50 = {
    .name = "resnet50",
    .init = SDC__INIT_RESNET,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
