/* SPDX-License-Identifier: Apache-2.0
 *
 * For every processor: vectors as gcc and clang offer them, without fused multiply-add.
 */
#include <string.h>

typedef float V __attribute__((vector_size(16)));
#define LANES 4
#define OT    4
#define XT    2
#define KT    3

static inline V load(const float *p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, V v) {
    memcpy(p, &v, sizeof v);
}

static inline V broadcast(float f) {
    return (V){f, f, f, f};
}

static inline V madd(V a, V b, V c) {
    return a * b + c;
}

static inline void transpose(V r[4]) {
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++) {
            const float t = r[i][j];
            r[i][j] = r[j][i];
            r[j][i] = t;
        }
}

#define ISA      sdc__nn_base
#define ISA_NAME "base"
#define ISA_HERE 1
#define KERNELS  plain_base
#include "nn/lanes_kernels.h"
