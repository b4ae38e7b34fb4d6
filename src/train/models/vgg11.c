/* SPDX-License-Identifier: Apache-2.0
 *
 * torchvision.models.vgg11 (0.14) for 32x32 images: planes are 1x1 after the features, so there is
 * no adaptive pooling before the classifier. Names are torchvision's.
 */
#include "train/network.h"

static const struct sdc__line lines[] = {
    LINE(CONV("features.0", 64, 3, 1, 1)),
    LINE(RELU_MAXPOOL2),
    LINE(CONV("features.3", 128, 3, 1, 1)),
    LINE(RELU_MAXPOOL2),
    LINE(CONV("features.6", 256, 3, 1, 1)),
    LINE(RELU),
    LINE(CONV("features.8", 256, 3, 1, 1)),
    LINE(RELU_MAXPOOL2),
    LINE(CONV("features.11", 512, 3, 1, 1)),
    LINE(RELU),
    LINE(CONV("features.13", 512, 3, 1, 1)),
    LINE(RELU_MAXPOOL2),
    LINE(CONV("features.16", 512, 3, 1, 1)),
    LINE(RELU),
    LINE(CONV("features.18", 512, 3, 1, 1)),
    LINE(RELU_MAXPOOL2),
    LINE(LINEAR("classifier.0", 4096)),
    LINE(RELU),
    LINE(DROPOUT(0.5)),
    LINE(LINEAR("classifier.3", 4096)),
    LINE(RELU),
    LINE(DROPOUT(0.5)),
    LINE(LINEAR("classifier.6", SDC__CLASSES)),
};

const struct sdc__network sdc__network_vgg11 = {
    .name = "vgg11",
    .init = SDC__INIT_VGG,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
