/* SPDX-License-Identifier: Apache-2.0 */
#include "train/network.h"

static const struct sdc__line lines[] = {
    LINE(LINEAR("fc1", 256)),          LINE(RELU), LINE(LINEAR("fc2", 128)), LINE(RELU),
    LINE(LINEAR("fc3", SDC__CLASSES)),
};

const struct sdc__network sdc__network_mlp = {
    .name = "mlp",
    .init = SDC__INIT_DEFAULT,
    .lines = lines,
    .n_lines = SDC__N_LINES(lines),
};
