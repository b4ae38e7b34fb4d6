/* SPDX-License-Identifier: Apache-2.0
 *
 * torchvision.models.alexnet (0.14) for small images: the first convolution is 3x3 with stride 1
 * instead of 11x11 with stride 4, and there is no adaptive pooling before the classifier. Names are
 * torchvision's.
 */
#include "train/network.h"

static const struct sdc__line lines[] = {
    LINE(CONV("features.0", 64, 3, 1, 1)),
    LINE(RELU),
    LINE(MAXPOOL3),
    LINE(CONV("features.3", 192, 5, 1, 2)),
    LINE(RELU),
    LINE(MAXPOOL3),
    LINE(CONV("features.6", 384, 3, 1, 1)),
    LINE(RELU),
    LINE(CONV("features.8", 256, 3, 1, 1)),
    LINE(RELU),
    LINE(CONV("features.10", 256, 3, 1, 1)),
    LINE(RELU),
    LINE(MAXPOOL3),
    LINE(DROPOUT(0.5)),
    LINE(LINEAR("classifier.1", 4096)),
    LINE(RELU),
    LINE(DROPOUT(0.5)),
    LINE(LINEAR("classifier.4", 4096)),
    LINE(RELU),
    LINE(LINEAR("classifier.6", SDC__CLASSES)),
};

const struct sdc__network sdc__network_alexnet = {
    .name = "alexnet",
    .init = SDC__INIT_DEFAULT,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
