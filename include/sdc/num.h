/* SPDX-License-Identifier: Apache-2.0
 *
 * Number formats as bits: fields, flips, classes, distances, conversions. Pure functions over
 * unsigned integers; values are never computed with as floats except for display and comparison,
 * since a signalling NaN does not survive a trip through double.
 *
 * A value is held "raw": its bits in the low end of a uint64_t, upper bits zero. Bits are numbered
 * from the least significant, 0; the sign of an F32 is bit 31.
 *
 * Sources: IEEE 754-2019 for F64, F32, F16; BF16 is the upper half of F32; F8_E5M2, F8_E4M3,
 * F8_E8M0 and F4 as in the OCP specifications "8-bit Floating Point" (2023) and "Microscaling
 * Formats" (2023), whose E4M3 PyTorch calls float8_e4m3fn; the FNUZ types as in Noune et al., arXiv
 * 2206.02915. All functions are thread-safe; dtype must be a member of the enum, bit below
 * sdc_dtype_bits(dtype).
 *
 *     F8_E5M2                 infinities and NaN as in IEEE 754
 *     F8_E4M3                 no infinity; NaN is 0x7f and 0xff
 *     F8_E5M2FNUZ, _E4M3FNUZ  no infinity, no -0; NaN is 0x80 alone; exponent bias one higher
 *     F8_E8M0                 2^(e - 127): neither sign, mantissa nor zero; NaN is 0xff
 *     F4                      E2M1: neither infinity nor NaN
 *
 * Types under 8 bits (F4, and the unsigned integers U4, U2, U1 of quantised blocks) are held one
 * element a byte, in its low bits, wherever elements lie in memory.
 */
#ifndef SDC_NUM_H
#define SDC_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* name as safetensors spells it, bits, kind, exponent bits, mantissa bits */
#define SDC_DTYPE_MAP(X)                                                                           \
    X(F64, 64, FLOAT, 11, 52)                                                                      \
    X(F32, 32, FLOAT, 8, 23)                                                                       \
    X(F16, 16, FLOAT, 5, 10)                                                                       \
    X(BF16, 16, FLOAT, 8, 7)                                                                       \
    X(I64, 64, SINT, 0, 0)                                                                         \
    X(I32, 32, SINT, 0, 0)                                                                         \
    X(I16, 16, SINT, 0, 0)                                                                         \
    X(I8, 8, SINT, 0, 0)                                                                           \
    X(U64, 64, UINT, 0, 0)                                                                         \
    X(U32, 32, UINT, 0, 0)                                                                         \
    X(U16, 16, UINT, 0, 0)                                                                         \
    X(U8, 8, UINT, 0, 0)                                                                           \
    X(BOOL, 8, BOOL, 0, 0)                                                                         \
    X(F8_E5M2, 8, FLOAT, 5, 2)                                                                     \
    X(F8_E4M3, 8, FLOAT, 4, 3)                                                                     \
    X(F8_E5M2FNUZ, 8, FLOAT, 5, 2)                                                                 \
    X(F8_E4M3FNUZ, 8, FLOAT, 4, 3)                                                                 \
    X(F8_E8M0, 8, FLOAT, 8, 0)                                                                     \
    X(F4, 4, FLOAT, 2, 1)                                                                          \
    X(U4, 4, UINT, 0, 0)                                                                           \
    X(U2, 2, UINT, 0, 0)                                                                           \
    X(U1, 1, UINT, 0, 0)

enum sdc_dtype {
#define SDC_DTYPE_ENUM(name, bits, kind, e, m) SDC_DTYPE_##name,
    SDC_DTYPE_MAP(SDC_DTYPE_ENUM)
#undef SDC_DTYPE_ENUM
        SDC_DTYPE_COUNT
};

enum sdc_dtype_kind { SDC_KIND_FLOAT, SDC_KIND_SINT, SDC_KIND_UINT, SDC_KIND_BOOL };

enum sdc_num_field {
    SDC_FIELD_SIGN,     /* also bit 63 … of a signed integer */
    SDC_FIELD_EXPONENT, /* of a float */
    SDC_FIELD_MANTISSA, /* of a float */
    SDC_FIELD_INTEGER   /* any other bit of an integer or boolean */
};

enum sdc_num_class {
    SDC_CLASS_ZERO,
    SDC_CLASS_SUBNORMAL,
    SDC_CLASS_NORMAL, /* also every non-zero integer */
    SDC_CLASS_INF,
    SDC_CLASS_NAN
};

SDC_API const char *sdc_dtype_name(enum sdc_dtype dtype); /* "F32"; static */
/* Accepts the safetensors spelling in any case and the words of NumPy, PyTorch and ml_dtypes
 * (float32, bfloat16, int64, float8_e4m3fn, uint4, ...); false if unknown. */
SDC_API bool sdc_dtype_parse(const char *name, enum sdc_dtype *dtype);
SDC_API unsigned sdc_dtype_bits(enum sdc_dtype dtype); /* 1 to 64 */
/* Of one element in memory, 1 to 8: types under 8 bits take a byte each. */
SDC_API unsigned sdc_dtype_bytes(enum sdc_dtype dtype);
SDC_API enum sdc_dtype_kind sdc_dtype_kind(enum sdc_dtype dtype);
SDC_API unsigned sdc_dtype_exponent_bits(enum sdc_dtype dtype); /* 0 for integers */
SDC_API unsigned sdc_dtype_mantissa_bits(enum sdc_dtype dtype); /* 0 for integers */

/* One element from or to memory. big_endian: byte order of the memory. Types under 8 bits: load
 * looks at the low bits of the byte only, store leaves the others 0. */
SDC_API uint64_t sdc_num_load(enum sdc_dtype dtype, const void *memory, bool big_endian);
SDC_API void sdc_num_store(enum sdc_dtype dtype, uint64_t raw, void *memory, bool big_endian);

SDC_API enum sdc_num_field sdc_num_field(enum sdc_dtype dtype, unsigned bit);
SDC_API const char *sdc_num_field_name(enum sdc_num_field field);
/* Mask of the sign, exponent or mantissa bits; 0 where the type has none. */
SDC_API uint64_t sdc_num_field_mask(enum sdc_dtype dtype, enum sdc_num_field field);
/* The most significant exponent bit: 62 of F64, 30 of F32, 14 of F16 and BF16, ...; -1 for
 * integers.
 */
SDC_API int sdc_num_top_exponent_bit(enum sdc_dtype dtype);
SDC_API uint64_t sdc_num_flip(enum sdc_dtype dtype, uint64_t raw, unsigned bit);

SDC_API enum sdc_num_class sdc_num_class(enum sdc_dtype dtype, uint64_t raw);
SDC_API const char *sdc_num_class_name(enum sdc_num_class c);
SDC_API bool sdc_num_is_finite(enum sdc_dtype dtype, uint64_t raw);

/* For display and comparison only. Exact for all types but 64-bit integers over 2^53. */
SDC_API double sdc_num_to_double(enum sdc_dtype dtype, uint64_t raw);
/* Nearest value, ties to even; floats overflow to infinity, a NaN becomes quiet and keeps its sign
 * and what fits of its payload (F64: every bit); integers saturate (BOOL at 0 and 1), NaN gives 0.
 * As PyTorch and ml_dtypes 0.5 convert: types without infinity but with NaN take NaN for infinity
 * and overflow; F4 saturates (and takes 0 for NaN); F8_E8M0 rounds ties up and takes NaN for zero
 * and everything below, its smallest value for what underflows. */
SDC_API uint64_t sdc_num_from_double(enum sdc_dtype dtype, double value);
/* Decimal with the fewest correctly rounded digits that reads back to the same value; "nan" (of any
 * sign and payload), "inf", "-inf". Text fits 40 bytes. */
SDC_API void sdc_num_text(enum sdc_dtype dtype, uint64_t raw, char *text, size_t size);

/* Number of representable values between a and b, zero when the values are equal (also -0 and +0);
 * difference for integers. UINT64_MAX if one of them is NaN and the bits differ. */
SDC_API uint64_t sdc_num_ulp_distance(enum sdc_dtype dtype, uint64_t a, uint64_t b);

#ifdef __cplusplus
}
#endif
#endif
