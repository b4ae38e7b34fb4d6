/* SPDX-License-Identifier: Apache-2.0 */
#define T       double
#define FMA     fma
#define SQRT    sqrt
#define KERNELS sdc__nn_ref_f64
#include "nn/ref_kernels.h"
