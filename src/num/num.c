/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/num.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/guard.h"
#include "base/str.h"
#include "num/shortest.h"
#include "num/special.h"

static const struct {
    const char *name;
    unsigned bits;
    enum sdc_dtype_kind kind;
    unsigned exponent, mantissa;
} types[] = {
#define TYPE_ROW(name, bits, kind, e, m) [SDC_DTYPE_##name] = {#name, bits, SDC_KIND_##kind, e, m},
    SDC_DTYPE_MAP(TYPE_ROW)
#undef TYPE_ROW
};

/* What the codes at the end of a float's range mean. */
enum special {
    IEEE,  /* all exponent bits set: infinities, and NaN with a mantissa */
    FN,    /* all bits but the sign set: NaN */
    FNUZ,  /* the sign alone: NaN */
    SCALE, /* all bits set: NaN; no sign and no zero */
    ONLY_FINITE
};

static enum special special_of(enum sdc_dtype dtype) {
    switch (dtype) {
    case SDC_DTYPE_F8_E4M3:
        return FN;
    case SDC_DTYPE_F8_E5M2FNUZ:
    case SDC_DTYPE_F8_E4M3FNUZ:
        return FNUZ;
    case SDC_DTYPE_F8_E8M0:
        return SCALE;
    case SDC_DTYPE_F4:
        return ONLY_FINITE;
    default:
        return IEEE;
    }
}

static int bias_of(enum sdc_dtype dtype) {
    return (1 << (types[dtype].exponent - 1)) - (special_of(dtype) == FNUZ ? 0 : 1);
}

/* NumPy's, PyTorch's and ml_dtypes' words. Those that mean different types in the two ("float",
 * "int") are left out. */
static const struct {
    const char *word;
    enum sdc_dtype dtype;
} words[] = {
    {"float64", SDC_DTYPE_F64},
    {"double", SDC_DTYPE_F64},
    {"float32", SDC_DTYPE_F32},
    {"float16", SDC_DTYPE_F16},
    {"half", SDC_DTYPE_F16},
    {"bfloat16", SDC_DTYPE_BF16},
    {"int64", SDC_DTYPE_I64},
    {"int32", SDC_DTYPE_I32},
    {"int16", SDC_DTYPE_I16},
    {"int8", SDC_DTYPE_I8},
    {"uint64", SDC_DTYPE_U64},
    {"uint32", SDC_DTYPE_U32},
    {"uint16", SDC_DTYPE_U16},
    {"uint8", SDC_DTYPE_U8},
    {"float8_e5m2", SDC_DTYPE_F8_E5M2},
    {"float8_e4m3fn", SDC_DTYPE_F8_E4M3},
    {"float8_e5m2fnuz", SDC_DTYPE_F8_E5M2FNUZ},
    {"float8_e4m3fnuz", SDC_DTYPE_F8_E4M3FNUZ},
    {"float8_e8m0fnu", SDC_DTYPE_F8_E8M0},
    {"float4_e2m1fn", SDC_DTYPE_F4},
    {"float4_e2m1fn_x2", SDC_DTYPE_F4},
    {"uint4", SDC_DTYPE_U4},
    {"uint2", SDC_DTYPE_U2},
    {"uint1", SDC_DTYPE_U1},
};

const char *sdc_dtype_name(enum sdc_dtype dtype) {
    return types[dtype].name;
}

bool sdc_dtype_parse(const char *name, enum sdc_dtype *dtype) {
    for (int t = 0; t < SDC_DTYPE_COUNT; t++) {
        if (strcasecmp(name, types[t].name) == 0) {
            *dtype = (enum sdc_dtype)t;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(name, words[i].word) == 0) {
            *dtype = words[i].dtype;
            return true;
        }
    }
    return false;
}

unsigned sdc_dtype_bits(enum sdc_dtype dtype) {
    return types[dtype].bits;
}

unsigned sdc_dtype_bytes(enum sdc_dtype dtype) {
    return (types[dtype].bits + 7) / 8;
}

enum sdc_dtype_kind sdc_dtype_kind(enum sdc_dtype dtype) {
    return types[dtype].kind;
}

unsigned sdc_dtype_exponent_bits(enum sdc_dtype dtype) {
    return types[dtype].exponent;
}

unsigned sdc_dtype_mantissa_bits(enum sdc_dtype dtype) {
    return types[dtype].mantissa;
}

/* the n lowest bits; n may be 64 */
static uint64_t low_bits(unsigned n) {
    return n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1;
}

uint64_t sdc_num_load(enum sdc_dtype dtype, const void *memory, bool big_endian) {
    const unsigned char *bytes = memory;
    unsigned n = sdc_dtype_bytes(dtype);
    uint64_t raw = 0;
    for (unsigned i = 0; i < n; i++)
        raw |= (uint64_t)bytes[i] << 8 * (big_endian ? n - 1 - i : i);
    return raw & low_bits(types[dtype].bits);
}

void sdc_num_store(enum sdc_dtype dtype, uint64_t raw, void *memory, bool big_endian) {
    unsigned char *bytes = memory;
    unsigned n = sdc_dtype_bytes(dtype);
    raw &= low_bits(types[dtype].bits);
    for (unsigned i = 0; i < n; i++)
        bytes[i] = (unsigned char)(raw >> 8 * (big_endian ? n - 1 - i : i));
}

uint64_t sdc_num_field_mask(enum sdc_dtype dtype, enum sdc_num_field field) {
    unsigned bits = types[dtype].bits, e = types[dtype].exponent, m = types[dtype].mantissa;
    bool is_float = types[dtype].kind == SDC_KIND_FLOAT;
    bool is_signed = (is_float && special_of(dtype) != SCALE) || types[dtype].kind == SDC_KIND_SINT;
    switch (field) {
    case SDC_FIELD_SIGN:
        return is_signed ? (uint64_t)1 << (bits - 1) : 0;
    case SDC_FIELD_EXPONENT:
        return low_bits(e) << m;
    case SDC_FIELD_MANTISSA:
        return low_bits(m);
    case SDC_FIELD_INTEGER:
        return is_float ? 0 : low_bits(bits - is_signed);
    }
    return 0;
}

enum sdc_num_field sdc_num_field(enum sdc_dtype dtype, unsigned bit) {
    static const enum sdc_num_field fields[] = {SDC_FIELD_SIGN, SDC_FIELD_EXPONENT,
                                                SDC_FIELD_MANTISSA};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (sdc_num_field_mask(dtype, fields[i]) >> bit & 1)
            return fields[i];
    return SDC_FIELD_INTEGER;
}

const char *sdc_num_field_name(enum sdc_num_field field) {
    static const char *const names[] = {"sign", "exponent", "mantissa", "integer"};
    return names[field];
}

int sdc_num_top_exponent_bit(enum sdc_dtype dtype) {
    return types[dtype].kind == SDC_KIND_FLOAT
               ? (int)(types[dtype].exponent + types[dtype].mantissa) - 1
               : -1;
}

uint64_t sdc_num_flip(enum sdc_dtype dtype, uint64_t raw, unsigned bit) {
    (void)dtype; /* the position is the same in every type of at least bit + 1 bits */
    return raw ^ (uint64_t)1 << bit;
}

/* raw is an infinity or NaN where its bits under the mask are these. */
static const struct {
    uint64_t mask, bits;
} specials[SDC_DTYPE_COUNT] = {
    [SDC_DTYPE_F64] = {0x7ff0000000000000, 0x7ff0000000000000},
    [SDC_DTYPE_F32] = {0x7f800000, 0x7f800000},
    [SDC_DTYPE_F16] = {0x7c00, 0x7c00},
    [SDC_DTYPE_BF16] = {0x7f80, 0x7f80},
    [SDC_DTYPE_F8_E5M2] = {0x7c, 0x7c},
    [SDC_DTYPE_F8_E4M3] = {0x7f, 0x7f},
    [SDC_DTYPE_F8_E5M2FNUZ] = {0xff, 0x80},
    [SDC_DTYPE_F8_E4M3FNUZ] = {0xff, 0x80},
    [SDC_DTYPE_F8_E8M0] = {0xff, 0xff},
};

bool sdc__num_special(enum sdc_dtype dtype, uint64_t *mask, uint64_t *bits) {
    *mask = specials[dtype].mask;
    *bits = specials[dtype].bits;
    return *mask != 0;
}

static bool is_special(enum sdc_dtype dtype, uint64_t raw) {
    return specials[dtype].mask && (raw & specials[dtype].mask) == specials[dtype].bits;
}

enum sdc_num_class sdc_num_class(enum sdc_dtype dtype, uint64_t raw) {
    if (types[dtype].kind != SDC_KIND_FLOAT)
        return raw ? SDC_CLASS_NORMAL : SDC_CLASS_ZERO;
    uint64_t mantissa = raw & sdc_num_field_mask(dtype, SDC_FIELD_MANTISSA);
    if (is_special(dtype, raw))
        return mantissa || special_of(dtype) != IEEE ? SDC_CLASS_NAN : SDC_CLASS_INF;
    if (special_of(dtype) != SCALE && !(raw & sdc_num_field_mask(dtype, SDC_FIELD_EXPONENT)))
        return mantissa ? SDC_CLASS_SUBNORMAL : SDC_CLASS_ZERO;
    return SDC_CLASS_NORMAL;
}

const char *sdc_num_class_name(enum sdc_num_class c) {
    static const char *const names[] = {"zero", "subnormal", "normal", "inf", "nan"};
    return names[c];
}

bool sdc_num_is_finite(enum sdc_dtype dtype, uint64_t raw) {
    return !is_special(dtype, raw);
}

static double double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Sign-extends an integer of the type. */
static int64_t signed_of_raw(enum sdc_dtype dtype, uint64_t raw) {
    uint64_t sign = (uint64_t)1 << (types[dtype].bits - 1);
    return (int64_t)((raw ^ sign) - sign);
}

/* Widens to F64 by moving fields, so that NaN payloads keep their place below the sign. */
static double float_to_double(enum sdc_dtype dtype, uint64_t raw) {
    unsigned e = types[dtype].exponent, m = types[dtype].mantissa;
    uint64_t sign = raw & sdc_num_field_mask(dtype, SDC_FIELD_SIGN) ? (uint64_t)1 << 63 : 0;
    uint64_t exponent = raw >> m & low_bits(e), mantissa = raw & low_bits(m);
    if (is_special(dtype, raw)) {
        bool payload = special_of(dtype) == IEEE;
        return double_of_bits(sign | low_bits(11) << 52 |
                              (payload ? mantissa << (52 - m) : (uint64_t)1 << 51));
    }
    int bias = bias_of(dtype);
    if (exponent == 0 && special_of(dtype) != SCALE) {
        double magnitude = ldexp((double)mantissa, 1 - bias - (int)m);
        return sign ? -magnitude : magnitude;
    }
    uint64_t wide = (uint64_t)((int64_t)exponent - bias + 1023);
    return double_of_bits(sign | wide << 52 | mantissa << (52 - m));
}

double sdc_num_to_double(enum sdc_dtype dtype, uint64_t raw) {
    if (dtype == SDC_DTYPE_F64)
        return double_of_bits(raw);
    switch (types[dtype].kind) {
    case SDC_KIND_FLOAT:
        return float_to_double(dtype, raw);
    case SDC_KIND_SINT:
        return (double)signed_of_raw(dtype, raw);
    case SDC_KIND_UINT:
    case SDC_KIND_BOOL:
        break;
    }
    return (double)raw;
}

/* Drops the `shift` lowest bits of x, rounding to nearest, ties to even; shift 1 to 63. */
static uint64_t shift_to_even(uint64_t x, unsigned shift) {
    uint64_t half = (uint64_t)1 << (shift - 1), rest = x & low_bits(shift);
    x >>= shift;
    return x + (rest > half || (rest == half && (x & 1)));
}

/* The code of a power of two: ties between two of them go up. */
static uint64_t scale_from_double(double value) {
    const uint64_t nan = 0xff;
    int exponent;
    if (!(value > 0.0)) /* and NaN */
        return nan;
    if (isinf(value))
        return nan;
    double fraction = frexp(value, &exponent); /* value = fraction * 2^exponent, from 0.5 to 1 */
    int code = exponent - 1 + 127 + (fraction >= 0.75);
    return code > 0xfe ? nan : code < 0 ? 0 : (uint64_t)code;
}

/* What a type makes of an infinity, of what is too large for it, or of NaN with this mantissa of
 * F64. */
static uint64_t special_from_double(enum sdc_dtype dtype, uint64_t sign, uint64_t mantissa) {
    unsigned e = types[dtype].exponent, m = types[dtype].mantissa;
    uint64_t infinity = low_bits(e) << m;
    switch (special_of(dtype)) {
    case FN:
        return sign | low_bits(e + m);
    case FNUZ:
        return (uint64_t)1 << (types[dtype].bits - 1);
    case ONLY_FINITE:
        return mantissa ? 0 : sign | low_bits(e + m);
    default:
        break;
    }
    /* quiet, with what fits of the payload, as processors convert */
    return mantissa ? sign | infinity | (uint64_t)1 << (m - 1) | mantissa >> (52 - m)
                    : sign | infinity;
}

/* The largest code without the sign that is a finite value. */
static uint64_t largest_finite(enum sdc_dtype dtype) {
    unsigned e = types[dtype].exponent, m = types[dtype].mantissa;
    switch (special_of(dtype)) {
    case IEEE:
        return (low_bits(e) << m) - 1;
    case FN:
        return low_bits(e + m) - 1;
    default:
        return low_bits(e + m);
    }
}

static uint64_t float_from_double(enum sdc_dtype dtype, double value) {
    unsigned m = types[dtype].mantissa;
    uint64_t bits = bits_of_double(value);
    uint64_t sign = (bits >> 63) << (types[dtype].bits - 1);
    uint64_t zero = special_of(dtype) == FNUZ ? 0 : sign;
    uint64_t wide = bits >> 52 & low_bits(11), mantissa = bits & low_bits(52), raw;
    if (wide == low_bits(11))
        return special_from_double(dtype, sign, mantissa);
    if (wide == 0)
        return zero; /* a subnormal F64 is far below half the smallest value of the other types */
    int64_t exponent = (int64_t)wide - 1023 + bias_of(dtype);
    uint64_t significand = mantissa | (uint64_t)1 << 52;
    if (exponent <= 0) {
        int64_t shift = 52 - (int64_t)m + 1 - exponent;
        /* over 53 bits dropped: below half of the smallest subnormal */
        raw = shift > 53 ? 0 : shift_to_even(significand, (unsigned)shift);
    } else {
        /* A carry out of the mantissa raises the exponent by one, which is the right value. */
        raw = ((uint64_t)(exponent - 1) << m) + shift_to_even(significand, 52 - m);
    }
    if (raw > largest_finite(dtype))
        return special_from_double(dtype, sign, 0);
    return raw ? sign | raw : zero;
}

/* Nearest integer, ties to even, whatever the rounding mode of the thread. */
static double round_to_even(double value) {
    double below = floor(value), rest = value - below;
    if (rest > 0.5 || (rest == 0.5 && fmod(below, 2.0) != 0.0))
        below += 1.0;
    return below;
}

static uint64_t integer_from_double(enum sdc_dtype dtype, double value) {
    unsigned bits = types[dtype].bits;
    if (isnan(value))
        return 0;
    if (isfinite(value))
        value = round_to_even(value);
    if (types[dtype].kind == SDC_KIND_BOOL)
        return value >= 1.0;
    if (types[dtype].kind == SDC_KIND_UINT) {
        if (value >= ldexp(1.0, (int)bits))
            return low_bits(bits);
        return value <= 0.0 ? 0 : (uint64_t)value;
    }
    double limit = ldexp(1.0, (int)bits - 1);
    if (value >= limit)
        return low_bits(bits - 1);
    if (value <= -limit)
        return (uint64_t)1 << (bits - 1);
    return (uint64_t)(int64_t)value & low_bits(bits);
}

uint64_t sdc_num_from_double(enum sdc_dtype dtype, double value) {
    if (dtype == SDC_DTYPE_F64)
        return bits_of_double(value);
    if (dtype == SDC_DTYPE_F8_E8M0)
        return scale_from_double(value);
    return types[dtype].kind == SDC_KIND_FLOAT ? float_from_double(dtype, value)
                                               : integer_from_double(dtype, value);
}

/* A precision below which no text reads back that does not at it too: any decimal of 15 digits
 * survives F64, so that rounding to 15 finds it, with zeros that %g leaves out. */
static int first_precision(enum sdc_dtype dtype, double value) {
    if (dtype != SDC_DTYPE_F64 || fabs(value) < DBL_MIN)
        return 1;
    char digits[40];
    double again;
    snprintf(digits, sizeof digits, "%.15g", value);
    return sdc__parse_f64(digits, &again) && again == value ? 1 : 16;
}

/* Adds digits until the text reads back. 17 digits always do for F64. */
static void float_text(enum sdc_dtype dtype, uint64_t raw, char *text, size_t size) {
    struct sdc__decimal d;
    double value = sdc_num_to_double(dtype, raw), again = 0.0;
    char digits[40];
    if (sdc__num_decimal(dtype, raw, &d)) {
        (void)sdc__decimal_text(&d, digits);
        snprintf(text, size, "%s", digits);
        return;
    }
    for (int precision = first_precision(dtype, value); precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (sdc__parse_f64(digits, &again) && sdc_num_from_double(dtype, again) == raw)
            break;
    }
    snprintf(text, size, "%s", digits);
}

void sdc_num_text(enum sdc_dtype dtype, uint64_t raw, char *text, size_t size) {
    bool negative = raw >> (types[dtype].bits - 1) & 1;
    if (types[dtype].kind == SDC_KIND_SINT)
        snprintf(text, size, "%lld", (long long)signed_of_raw(dtype, raw));
    else if (types[dtype].kind != SDC_KIND_FLOAT)
        snprintf(text, size, "%llu", (unsigned long long)raw);
    else if (sdc_num_class(dtype, raw) == SDC_CLASS_NAN)
        snprintf(text, size, "nan"); /* sign and payload are in the bits */
    else if (sdc_num_class(dtype, raw) == SDC_CLASS_INF)
        snprintf(text, size, "%s", negative ? "-inf" : "inf");
    else
        float_text(dtype, raw, text, size);
}

/* Position on the line of all values of the type, offset so that it fits unsigned: neighbours
 * differ by one, and -0 and +0 have the same. */
static uint64_t ordinal(enum sdc_dtype dtype, uint64_t raw) {
    uint64_t sign = (uint64_t)1 << (types[dtype].bits - 1);
    switch (types[dtype].kind) {
    case SDC_KIND_FLOAT:
        if (special_of(dtype) == SCALE)
            return raw;
        return raw & sign ? sign - (raw ^ sign) : sign + raw;
    case SDC_KIND_SINT:
        return raw ^ sign;
    case SDC_KIND_UINT:
    case SDC_KIND_BOOL:
        break;
    }
    return raw;
}

uint64_t sdc_num_ulp_distance(enum sdc_dtype dtype, uint64_t a, uint64_t b) {
    if (a == b)
        return 0;
    if (sdc_num_class(dtype, a) == SDC_CLASS_NAN || sdc_num_class(dtype, b) == SDC_CLASS_NAN)
        return UINT64_MAX;
    uint64_t x = ordinal(dtype, a), y = ordinal(dtype, b);
    return x > y ? x - y : y - x;
}
