/* SPDX-License-Identifier: Apache-2.0
 *
 * The residual network with 20 layers of He, Zhang, Ren and Sun, "Deep residual learning for image
 * recognition" (CVPR 2016), section 4.2: widths 16, 32, 64, shortcuts without parameters (option
 * A). Names as in torchvision's ResNet.
 */
#include "train/network.h"

#define BEGIN(name, width, step)                                                                   \
    LINE(CONV_NO_BIAS(name ".conv1", width, 3, step, 1)), LINE(NORM(name ".bn1")), LINE(RELU),     \
        LINE(CONV_NO_BIAS(name ".conv2", width, 3, 1, 1))

#define BLOCK(name, width)                                                                         \
    BEGIN(name, width, 1), LINE(NORM(name ".bn2")), LINE(SUM("in")), LINE(RELU, .as = "in")

#define BLOCK_DOWN(name, width)                                                                    \
    BEGIN(name, width, 2), LINE(NORM(name ".bn2"), .as = "main"),                                  \
        LINE(SUBSAMPLE(width, 2), .from = "in"), LINE(SUM("main")), LINE(RELU, .as = "in")

static const struct sdc__line lines[] = {
    LINE(CONV_NO_BIAS("conv1", 16, 3, 1, 1)),
    LINE(NORM("bn1")),
    LINE(RELU, .as = "in"),
    BLOCK("layer1.0", 16),
    BLOCK("layer1.1", 16),
    BLOCK("layer1.2", 16),
    BLOCK_DOWN("layer2.0", 32),
    BLOCK("layer2.1", 32),
    BLOCK("layer2.2", 32),
    BLOCK_DOWN("layer3.0", 64),
    BLOCK("layer3.1", 64),
    BLOCK("layer3.2", 64),
    LINE(AVGPOOL),
    LINE(LINEAR("fc", SDC__CLASSES)),
};

const struct sdc__network sdc__network_resnet20 = {
    .name = "resnet20",
    .init = SDC__INIT_RESNET,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
