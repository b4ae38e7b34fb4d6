/* SPDX-License-Identifier: Apache-2.0
 *
 * F16 to F32 and back, as inline functions without branches, so that loops over them vectorise. For
 * arithmetic; sdc/num.h has the conversions between any two types. IEEE 754-2019: exact upwards,
 * to nearest with ties to even downwards (the thread's rounding must be to nearest), subnormals
 * kept, over 65504 and half a step becomes infinite. A NaN stays one, made quiet, with the upper
 * bits of its payload, as x86's VCVTPS2PH does it.
 */
#ifndef SDC_NUM_HALF_H
#define SDC_NUM_HALF_H

#include <stdint.h>
#include <string.h>

#define SDC__HALF_REBIAS ((127u - 15u) << 23) /* between the two exponent biases, in F32's bits */

static inline float sdc__half_to_float(uint16_t h) {
    uint32_t magnitude = h & 0x7fffu, bits = (magnitude << 13) + SDC__HALF_REBIAS;
    bits += magnitude >= 0x7c00u ? SDC__HALF_REBIAS : 0; /* infinities and NaN */
    float small = (float)magnitude * 0x1p-24f;           /* exact */
    uint32_t small_bits;
    memcpy(&small_bits, &small, sizeof bits);
    bits = magnitude < 0x0400u ? small_bits : bits;
    bits |= (uint32_t)(h & 0x8000u) << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t sdc__float_to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    uint32_t capped = magnitude < 0x47800000u ? magnitude : 0x47800000u; /* 65536 */
    uint32_t normal = (capped + 0xfffu + (capped >> 13 & 1u) - SDC__HALF_REBIAS) >> 13;
    float shifted; /* the last place of a number from 0.5 up to 1 is F16's smallest step, 2^-24 */
    uint32_t tiny = magnitude < 0x38800000u ? magnitude : 0;
    memcpy(&shifted, &tiny, sizeof shifted);
    shifted += 0.5f;
    uint32_t small;
    memcpy(&small, &shifted, sizeof small);
    small -= 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    half = magnitude > 0x7f800000u ? nan : half;
    return (uint16_t)(half | sign);
}

#endif
