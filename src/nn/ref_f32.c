/* SPDX-License-Identifier: Apache-2.0 */
#define T       float
#define FMA     fmaf
#define SQRT    sqrtf
#define KERNELS sdc__nn_ref_f32
#include "nn/ref_kernels.h"
