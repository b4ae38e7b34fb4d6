/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled for AVX2 and FMA (see CMakeLists.txt); runs only where the processor has them.
 */
#include <immintrin.h>

typedef __m256 V;
#define LANES         8
#define OT            4
#define XT            2
#define KT            5
#define load(p)       _mm256_loadu_ps(p)
#define store(p, v)   _mm256_storeu_ps((p), (v))
#define broadcast(f)  _mm256_set1_ps(f)
#define madd(a, b, c) _mm256_fmadd_ps((a), (b), (c))

static inline void transpose(V r[8]) {
    V s[8];
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        s[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        s[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++)
        r[i] = s[i];
}

#define ISA      sdc__nn_avx2
#define ISA_NAME "avx2"
#define ISA_HERE __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
#define KERNELS  plain_avx2
#include "nn/lanes_kernels.h"
