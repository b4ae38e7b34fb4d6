/* SPDX-License-Identifier: Apache-2.0
 *
 * torchvision.models.resnet18 (0.14) for small images: the first convolution is 3x3 with stride 1,
 * and there is no pooling after it. Names are torchvision's.
 */
#include "train/network.h"

#define BEGIN(name, width, step)                                                                   \
    LINE(CONV_NO_BIAS(name ".conv1", width, 3, step, 1)), LINE(NORM(name ".bn1")), LINE(RELU),     \
        LINE(CONV_NO_BIAS(name ".conv2", width, 3, 1, 1))

#define BLOCK(name, width)                                                                         \
    BEGIN(name, width, 1), LINE(NORM(name ".bn2")), LINE(SUM("in")), LINE(RELU, .as = "in")

#define BLOCK_DOWN(name, width)                                                                    \
    BEGIN(name, width, 2), LINE(NORM(name ".bn2"), .as = "main"),                                  \
        LINE(CONV_NO_BIAS(name ".downsample.0", width, 1, 2, 0), .from = "in"),                    \
        LINE(NORM(name ".downsample.1")), LINE(SUM("main")), LINE(RELU, .as = "in")

static const struct sdc__line lines[] = {
    LINE(CONV_NO_BIAS("conv1", 64, 3, 1, 1)),
    LINE(NORM("bn1")),
    LINE(RELU, .as = "in"),
    BLOCK("layer1.0", 64),
    BLOCK("layer1.1", 64),
    BLOCK_DOWN("layer2.0", 128),
    BLOCK("layer2.1", 128),
    BLOCK_DOWN("layer3.0", 256),
    BLOCK("layer3.1", 256),
    BLOCK_DOWN("layer4.0", 512),
    BLOCK("layer4.1", 512),
    LINE(AVGPOOL),
    LINE(LINEAR("fc", SDC__CLASSES)),
};

const struct sdc__network sdc__network_resnet18 = {
    .name = "resnet18",
    .init = SDC__INIT_RESNET,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
