/* SPDX-License-Identifier: Apache-2.0 */
#include "train/network.h"

static const struct sdc__line lines[] = {
    LINE(CONV("conv1", 6, 5, 1, 2)),   LINE(RELU_MAXPOOL2),
    LINE(CONV("conv2", 16, 5, 1, 0)),  LINE(RELU_MAXPOOL2),
    LINE(LINEAR("fc1", 120)),          LINE(RELU),
    LINE(LINEAR("fc2", 84)),           LINE(RELU),
    LINE(LINEAR("fc3", SDC__CLASSES)),
};

const struct sdc__network sdc__network_lenet5 = {
    .name = "lenet5",
    .init = SDC__INIT_DEFAULT,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
