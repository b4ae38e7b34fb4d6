/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled for AVX-512 (see CMakeLists.txt); runs only where the processor has it.
 */
#include <immintrin.h>

typedef __m512 V;
#define LANES         16
#define OT            6
#define XT            4
#define KT            5
#define load(p)       _mm512_loadu_ps(p)
#define store(p, v)   _mm512_storeu_ps((p), (v))
#define broadcast(f)  _mm512_set1_ps(f)
#define madd(a, b, c) _mm512_fmadd_ps((a), (b), (c))

static inline void transpose(V r[16]) {
    V s[16];
    /* pairs of rows, then of pairs, inside each quarter of 128 bits */
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        const __m512d a = _mm512_castps_pd(s[i]), b = _mm512_castps_pd(s[i + 1]);
        const __m512d c = _mm512_castps_pd(s[i + 2]), d = _mm512_castps_pd(s[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    /* the quarters are the elements of a square of 4 x 4 for each column within a quarter */
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        s[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        s[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        s[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(s[i], s[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(s[i + 4], s[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(s[i + 4], s[i + 12], 0xdd);
    }
}

#define ISA      sdc__nn_avx512
#define ISA_NAME "avx512"
#define ISA_HERE __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")
#define KERNELS  plain_avx512
#include "nn/lanes_kernels.h"
