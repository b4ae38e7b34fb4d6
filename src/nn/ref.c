/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "nn/nn_impl.h"

static void version(char *text, size_t size) {
    snprintf(text, size, "plain C");
}

static const struct sdc__nn_kernels *kernels(enum sdc_nn_type type) {
    return type == SDC_NN_F64 ? &sdc__nn_ref_f64 : &sdc__nn_ref_f32;
}

const struct sdc_nn_ops sdc_nn_ref = {
    .name = "ref",
    .summary = "plain C in a fixed order, the same bits on every machine; f32 and f64",
    .caps = SDC_NN_CAN_F32 | SDC_NN_CAN_F64 | SDC_NN_CAN_PORTABLE,
    .version = version,
    .kernels = kernels,
};
