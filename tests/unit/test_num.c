/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "sdc/num.h"
#include "base/str.h"
#include "num/half.h"
#include "num/shortest.h"
#include "test.h"

static const enum sdc_dtype floats[] = {SDC_DTYPE_F64, SDC_DTYPE_F32, SDC_DTYPE_F16,
                                        SDC_DTYPE_BF16};

static void names_parse_back(void **state) {
    (void)state;
    enum sdc_dtype dtype;
    for (int t = 0; t < SDC_DTYPE_COUNT; t++) {
        assert_true(sdc_dtype_parse(sdc_dtype_name((enum sdc_dtype)t), &dtype));
        assert_int_equal(dtype, t);
    }
    assert_true(sdc_dtype_parse("bfloat16", &dtype) && dtype == SDC_DTYPE_BF16);
    assert_true(sdc_dtype_parse("float32", &dtype) && dtype == SDC_DTYPE_F32);
    assert_true(sdc_dtype_parse("half", &dtype) && dtype == SDC_DTYPE_F16);
    assert_true(sdc_dtype_parse("bool", &dtype) && dtype == SDC_DTYPE_BOOL);
    assert_true(sdc_dtype_parse("uint8", &dtype) && dtype == SDC_DTYPE_U8);
    assert_true(sdc_dtype_parse("float8_e4m3fn", &dtype) && dtype == SDC_DTYPE_F8_E4M3);
    assert_true(sdc_dtype_parse("float8_e4m3fnuz", &dtype) && dtype == SDC_DTYPE_F8_E4M3FNUZ);
    assert_true(sdc_dtype_parse("float8_e5m2fnuz", &dtype) && dtype == SDC_DTYPE_F8_E5M2FNUZ);
    assert_true(sdc_dtype_parse("float8_e8m0fnu", &dtype) && dtype == SDC_DTYPE_F8_E8M0);
    assert_true(sdc_dtype_parse("float4_e2m1fn_x2", &dtype) && dtype == SDC_DTYPE_F4);
    assert_true(sdc_dtype_parse("uint4", &dtype) && dtype == SDC_DTYPE_U4);
    dtype = SDC_DTYPE_I8;
    assert_false(sdc_dtype_parse("float", &dtype));
    assert_false(sdc_dtype_parse("float8", &dtype));
    assert_false(sdc_dtype_parse("float4_e2m1fn_x3", &dtype));
    assert_false(sdc_dtype_parse("", &dtype));
    assert_int_equal(dtype, SDC_DTYPE_I8);
}

/* The fast pair against the conversion of any type: every F16; every F32 of a coarse net that has
 * the neighbours of all halfway points, and both infinities and NaN. */
static void half_precision_converts_as_any_type(void **state) {
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        float f = sdc__half_to_float((uint16_t)h);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        if ((h & 0x7fffu) > 0x7c00u)
            assert_true(isnan(f));
        else
            assert_true((double)f == sdc_num_to_double(SDC_DTYPE_F16, h) && bits >> 31 == h >> 15);
        static const uint32_t bases[] = {0x32800000, 0x38000000}, /* 2^-26 and 2^-15 */
            lows[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
        for (unsigned i = 0; i < 12; i++) {
            bits = bases[i / 6] + ((h & 0x7fff) << 13) + lows[i % 6] + ((h & 0x8000) << 16);
            memcpy(&f, &bits, sizeof f);
            assert_int_equal(sdc__float_to_half(f), sdc_num_from_double(SDC_DTYPE_F16, (double)f));
        }
    }
    assert_int_equal(sdc__float_to_half(INFINITY), 0x7c00);
    assert_int_equal(sdc__float_to_half(-INFINITY), 0xfc00);
    assert_int_equal(sdc__float_to_half(3e38f), 0x7c00);
    assert_int_equal(sdc__float_to_half(65519.0f), 0x7bff);
    assert_int_equal(sdc__float_to_half(65520.0f), 0x7c00);
    assert_int_equal(sdc__float_to_half(NAN) & 0x7e00, 0x7e00);
    assert_int_equal(sdc__float_to_half(0x1p-149f), 0);
}

/* IEEE 754-2019 tables 3.2 and 3.5; bfloat16 is the upper half of binary32. */
static void fields_are_those_of_the_standard(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        uint64_t sign, exponent, mantissa, integer;
        int top;
    } cases[] = {
        {SDC_DTYPE_F64, 1ull << 63, 0x7ff0000000000000, 0x000fffffffffffff, 0, 62},
        {SDC_DTYPE_F32, 0x80000000, 0x7f800000, 0x007fffff, 0, 30},
        {SDC_DTYPE_F16, 0x8000, 0x7c00, 0x03ff, 0, 14},
        {SDC_DTYPE_BF16, 0x8000, 0x7f80, 0x007f, 0, 14},
        {SDC_DTYPE_I64, 1ull << 63, 0, 0, INT64_MAX, -1},
        {SDC_DTYPE_I8, 0x80, 0, 0, 0x7f, -1},
        {SDC_DTYPE_U64, 0, 0, 0, UINT64_MAX, -1},
        {SDC_DTYPE_U16, 0, 0, 0, 0xffff, -1},
        {SDC_DTYPE_BOOL, 0, 0, 0, 0xff, -1},
        /* OCP: 8-bit Floating Point, table 1; Microscaling Formats, tables 1 and 7 */
        {SDC_DTYPE_F8_E5M2, 0x80, 0x7c, 0x03, 0, 6},
        {SDC_DTYPE_F8_E4M3, 0x80, 0x78, 0x07, 0, 6},
        {SDC_DTYPE_F8_E5M2FNUZ, 0x80, 0x7c, 0x03, 0, 6},
        {SDC_DTYPE_F8_E4M3FNUZ, 0x80, 0x78, 0x07, 0, 6},
        {SDC_DTYPE_F8_E8M0, 0, 0xff, 0, 0, 7},
        {SDC_DTYPE_F4, 8, 6, 1, 0, 2},
        {SDC_DTYPE_U4, 0, 0, 0, 0xf, -1},
        {SDC_DTYPE_U2, 0, 0, 0, 3, -1},
        {SDC_DTYPE_U1, 0, 0, 0, 1, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum sdc_dtype t = cases[i].dtype;
        uint64_t want[] = {cases[i].sign, cases[i].exponent, cases[i].mantissa, cases[i].integer};
        for (int f = 0; f < 4; f++) {
            assert_int_equal(sdc_num_field_mask(t, (enum sdc_num_field)f), want[f]);
            for (unsigned bit = 0; bit < sdc_dtype_bits(t); bit++)
                if (want[f] >> bit & 1)
                    assert_int_equal(sdc_num_field(t, bit), f);
        }
        assert_int_equal(sdc_num_top_exponent_bit(t), cases[i].top);
    }
}

/* What flipping the most significant exponent bit really does, for 0, 0.001, 0.05, 0.5, 1, 1.5, 2,
 * 3; relative tolerance as good as the published digits. */
static void top_exponent_flips(void **state) {
    (void)state;
    static const double before[] = {0.001, 0.05, 0.5};
    static const double after[][3] = {[SDC_DTYPE_F64] = {1.8e305, 9e306, 9e307},
                                      [SDC_DTYPE_F32] = {3.4e35, 1.7e37, 1.7e38},
                                      [SDC_DTYPE_F16] = {65.6, 3276, 32768},
                                      [SDC_DTYPE_BF16] = {3.4e35, 1.7e37, 1.7e38}};
    static const double three[] = {[SDC_DTYPE_F64] = 1.1e-308,
                                   [SDC_DTYPE_F32] = 5.9e-39,
                                   [SDC_DTYPE_F16] = 3.1e-5,
                                   [SDC_DTYPE_BF16] = 5.9e-39};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
        enum sdc_dtype t = floats[i];
        unsigned top = (unsigned)sdc_num_top_exponent_bit(t);
        for (int k = 0; k < 3; k++) {
            double got =
                sdc_num_to_double(t, sdc_num_flip(t, sdc_num_from_double(t, before[k]), top));
            assert_true(fabs(got - after[t][k]) <= 0.05 * after[t][k]);
        }
        uint64_t zero = sdc_num_flip(t, 0, top);
        assert_true(sdc_num_to_double(t, zero) == 2.0);
        uint64_t two = sdc_num_flip(t, sdc_num_from_double(t, 2.0), top);
        assert_int_equal(two, 0);
        uint64_t one = sdc_num_flip(t, sdc_num_from_double(t, 1.0), top);
        assert_int_equal(sdc_num_class(t, one), SDC_CLASS_INF);
        assert_false(sdc_num_is_finite(t, one));
        uint64_t more = sdc_num_flip(t, sdc_num_from_double(t, 1.5), top);
        assert_int_equal(sdc_num_class(t, more), SDC_CLASS_NAN);
        double small = sdc_num_to_double(t, sdc_num_flip(t, sdc_num_from_double(t, 3.0), top));
        assert_true(fabs(small - three[t]) <= 0.05 * three[t]);
    }
    /* 0.05 is 0x3d4ccccd in F32; with bit 30 set 0x7d4ccccd, 1.7014119e37 */
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F32, 0.05), 0x3d4ccccd);
    char text[40];
    sdc_num_text(SDC_DTYPE_F32, 0x7d4ccccd, text, sizeof text);
    assert_string_equal(text, "1.7014119e+37");
}

/* A second way to every 16-bit value: from the definition of the format with ldexp, and the class
 * by comparing values. NumPy and PyTorch are the third, in num_against_numpy.py. */
static void every_16_bit_value(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        int e, m;
    } formats[] = {{SDC_DTYPE_F16, 5, 10}, {SDC_DTYPE_BF16, 8, 7}};
    for (int f = 0; f < 2; f++) {
        enum sdc_dtype t = formats[f].dtype;
        int e = formats[f].e, m = formats[f].m, bias = (1 << (e - 1)) - 1;
        for (unsigned raw = 0; raw < 65536; raw++) {
            int exponent = (int)(raw >> m) & ((1 << e) - 1), mantissa = (int)raw & ((1 << m) - 1);
            double sign = raw >> 15 ? -1.0 : 1.0, want;
            if (exponent == (1 << e) - 1)
                want = mantissa ? NAN : INFINITY;
            else if (exponent == 0)
                want = ldexp(mantissa, 1 - bias - m);
            else
                want = ldexp((1 << m) + mantissa, exponent - bias - m);
            want *= sign;
            double got = sdc_num_to_double(t, raw);
            enum sdc_num_class c = sdc_num_class(t, raw);
            if (isnan(want)) {
                assert_true(isnan(got) && c == SDC_CLASS_NAN);
                continue;
            }
            assert_true(got == want && !signbit(got) == !signbit(want));
            assert_int_equal(sdc_num_from_double(t, got), raw);
            assert_int_equal(c == SDC_CLASS_INF, isinf(want) != 0);
            assert_int_equal(c == SDC_CLASS_ZERO, want == 0.0);
            assert_int_equal(c == SDC_CLASS_SUBNORMAL,
                             want != 0.0 && fabs(want) < ldexp(1.0, 1 - bias));
        }
    }
}

/* Halfway between every two neighbours the even one wins; a hair beyond, the nearer one. */
static void rounding_is_to_nearest_even(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        unsigned last; /* the largest finite value */
    } formats[] = {{SDC_DTYPE_F16, 0x7bff}, {SDC_DTYPE_BF16, 0x7f7f}};
    for (int f = 0; f < 2; f++) {
        enum sdc_dtype t = formats[f].dtype;
        for (unsigned raw = 0; raw < formats[f].last; raw++) {
            double a = sdc_num_to_double(t, raw), b = sdc_num_to_double(t, raw + 1);
            double half = a + (b - a) / 2;
            assert_int_equal(sdc_num_from_double(t, half), raw + (raw & 1));
            assert_int_equal(sdc_num_from_double(t, -half), 0x8000 | (raw + (raw & 1)));
            assert_int_equal(sdc_num_from_double(t, nextafter(half, INFINITY)), raw + 1);
            assert_int_equal(sdc_num_from_double(t, nextafter(half, 0)), raw);
        }
    }
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F16, 65519.0), 0x7bff);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F16, 65520.0), 0x7c00);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F16, 1e300), 0x7c00);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F32, 1e300), 0x7f800000);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F32, -1e-300), 0x80000000);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F32, 0x1p-150), 0);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F32, nextafter(0x1p-150, 1.0)), 1);
}

static void integers_round_and_saturate(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        double value;
        uint64_t raw;
    } cases[] = {
        {SDC_DTYPE_I8, 0.5, 0},
        {SDC_DTYPE_I8, 1.5, 2},
        {SDC_DTYPE_I8, 2.5, 2},
        {SDC_DTYPE_I8, -0.5, 0},
        {SDC_DTYPE_I8, -1.5, 0xfe},
        {SDC_DTYPE_I8, 127.4, 127},
        {SDC_DTYPE_I8, 128, 127},
        {SDC_DTYPE_I8, -129, 0x80},
        {SDC_DTYPE_I16, -1, 0xffff},
        {SDC_DTYPE_I32, INFINITY, 0x7fffffff},
        {SDC_DTYPE_I64, 0x1p63, INT64_MAX},
        {SDC_DTYPE_I64, -0x1p63, 1ull << 63},
        {SDC_DTYPE_I64, -INFINITY, 1ull << 63},
        {SDC_DTYPE_I64, NAN, 0},
        {SDC_DTYPE_I64, -3, (uint64_t)-3},
        {SDC_DTYPE_U8, -3, 0},
        {SDC_DTYPE_U8, 255.5, 255},
        {SDC_DTYPE_U64, 0x1p64, UINT64_MAX},
        {SDC_DTYPE_U64, 0x1p63, 1ull << 63},
        {SDC_DTYPE_U32, 4294967295.0, 0xffffffff},
        {SDC_DTYPE_BOOL, 7, 1},
        {SDC_DTYPE_BOOL, -7, 0},
        {SDC_DTYPE_BOOL, NAN, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(sdc_num_from_double(cases[i].dtype, cases[i].value), cases[i].raw);
    assert_true(sdc_num_to_double(SDC_DTYPE_I8, 0xff) == -1.0);
    assert_true(sdc_num_to_double(SDC_DTYPE_I64, 1ull << 63) == -0x1p63);
    assert_true(sdc_num_to_double(SDC_DTYPE_U64, 1ull << 63) == 0x1p63);
    assert_int_equal(sdc_num_class(SDC_DTYPE_I32, 0), SDC_CLASS_ZERO);
    assert_int_equal(sdc_num_class(SDC_DTYPE_I32, 0x7f800000), SDC_CLASS_NORMAL);
    assert_true(sdc_num_is_finite(SDC_DTYPE_I32, 0x7f800000));
}

/* 0x7f800001 becomes 0x7fc00001 on a trip through double. */
static void load_and_store_keep_signalling_nans(void **state) {
    (void)state;
    static const unsigned char little[] = {0x01, 0x00, 0x80, 0x7f},
                               big[] = {0x7f, 0x80, 0x00, 0x01};
    unsigned char out[4];
    assert_int_equal(sdc_num_load(SDC_DTYPE_F32, little, false), 0x7f800001);
    assert_int_equal(sdc_num_load(SDC_DTYPE_F32, big, true), 0x7f800001);
    sdc_num_store(SDC_DTYPE_F32, 0x7f800001, out, false);
    assert_memory_equal(out, little, 4);
    sdc_num_store(SDC_DTYPE_F32, 0x7f800001, out, true);
    assert_memory_equal(out, big, 4);
    for (int t = 0; t < SDC_DTYPE_COUNT; t++) {
        enum sdc_dtype dtype = (enum sdc_dtype)t;
        unsigned n = sdc_dtype_bytes(dtype);
        unsigned char from[] = {1, 2, 3, 4, 5, 6, 7, 0x88}, to[9] = {0};
        for (int order = 0; order < 2; order++) {
            to[n] = 0xaa;
            sdc_num_store(dtype, sdc_num_load(dtype, from, order), to, order);
            assert_memory_equal(to, from, n);
            assert_int_equal(to[n], 0xaa); /* not a byte too many */
        }
    }
    /* what a conversion does keep: sign and the upper payload, made quiet */
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F32, NAN) & 0x7fffffff, 0x7fc00000);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_BF16, NAN) & 0x7fff, 0x7fc0);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F16, NAN) & 0x7fff, 0x7e00);
}

/* The codes that the specifications name, by hand; every code against ml_dtypes is in
 * num_against_numpy.py. */
static void small_floats(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        uint64_t raw;
        double value; /* NAN: it is one */
        enum sdc_num_class c;
    } cases[] = {
        {SDC_DTYPE_F8_E5M2, 0x7b, 57344, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E5M2, 0x7c, INFINITY, SDC_CLASS_INF},
        {SDC_DTYPE_F8_E5M2, 0xfd, NAN, SDC_CLASS_NAN},
        {SDC_DTYPE_F8_E5M2, 0x01, 0x1p-16, SDC_CLASS_SUBNORMAL},
        {SDC_DTYPE_F8_E4M3, 0x7e, 448, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E4M3, 0x78, 256, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E4M3, 0x7f, NAN, SDC_CLASS_NAN},
        {SDC_DTYPE_F8_E4M3, 0xff, NAN, SDC_CLASS_NAN},
        {SDC_DTYPE_F8_E4M3, 0x08, 0x1p-6, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E4M3, 0x80, -0.0, SDC_CLASS_ZERO},
        {SDC_DTYPE_F8_E5M2FNUZ, 0x7f, 57344, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E5M2FNUZ, 0x80, NAN, SDC_CLASS_NAN},
        {SDC_DTYPE_F8_E4M3FNUZ, 0x7f, 240, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E4M3FNUZ, 0x01, 0x1p-10, SDC_CLASS_SUBNORMAL},
        {SDC_DTYPE_F8_E4M3FNUZ, 0x80, NAN, SDC_CLASS_NAN},
        {SDC_DTYPE_F8_E8M0, 0x00, 0x1p-127, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E8M0, 0x7f, 1, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E8M0, 0xfe, 0x1p127, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F8_E8M0, 0xff, NAN, SDC_CLASS_NAN},
        {SDC_DTYPE_F4, 0x1, 0.5, SDC_CLASS_SUBNORMAL},
        {SDC_DTYPE_F4, 0x7, 6, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F4, 0xf, -6, SDC_CLASS_NORMAL},
        {SDC_DTYPE_F4, 0x8, -0.0, SDC_CLASS_ZERO},
        {SDC_DTYPE_U4, 0xf, 15, SDC_CLASS_NORMAL},
        {SDC_DTYPE_U1, 0, 0, SDC_CLASS_ZERO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double got = sdc_num_to_double(cases[i].dtype, cases[i].raw);
        if (isnan(cases[i].value))
            assert_true(isnan(got));
        else
            assert_true(got == cases[i].value && !signbit(got) == !signbit(cases[i].value));
        assert_int_equal(sdc_num_class(cases[i].dtype, cases[i].raw), cases[i].c);
        assert_int_equal(sdc_num_is_finite(cases[i].dtype, cases[i].raw), isfinite(got) != 0);
    }
    /* what has no infinity takes NaN, or its largest value where it has no NaN either */
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E4M3, -INFINITY), 0xff);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E4M3, 464), 0x7e); /* the tie goes to even */
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E4M3, 465), 0x7f);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E4M3FNUZ, INFINITY), 0x80);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E5M2FNUZ, -0.0), 0);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F4, -INFINITY), 0xf);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F4, NAN), 0);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F4, 1e30), 0x7);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E8M0, 0), 0xff);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E8M0, -2), 0xff);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_F8_E8M0, 1e-300), 0);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_U4, 99), 15);
    assert_int_equal(sdc_num_from_double(SDC_DTYPE_U2, 2.4), 2);
    /* distances: ranks along the values */
    assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_F4, 0xf, 0x7), 14); /* both zeros are one */
    assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_F4, 0x0, 0x8), 0);
    assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_F8_E8M0, 0x10, 0x90), 0x80);
    assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_F8_E4M3FNUZ, 0xff, 0x7f), 254);
    assert_true(sdc_num_ulp_distance(SDC_DTYPE_F8_E4M3FNUZ, 0x80, 0x7f) == UINT64_MAX);
    /* one element a byte */
    const unsigned char packed[] = {0xa7};
    unsigned char out[] = {0xff};
    assert_int_equal(sdc_num_load(SDC_DTYPE_F4, packed, false), 0x7);
    sdc_num_store(SDC_DTYPE_U2, 0x2, out, true);
    assert_int_equal(out[0], 0x2);
}

static void flips_are_their_own_inverse(void **state) {
    (void)state;
    for (int t = 0; t < SDC_DTYPE_COUNT; t++)
        for (unsigned bit = 0; bit < sdc_dtype_bits((enum sdc_dtype)t); bit++) {
            uint64_t once = sdc_num_flip((enum sdc_dtype)t, 5, bit);
            assert_int_equal(once ^ 5, 1ull << bit);
            assert_int_equal(sdc_num_flip((enum sdc_dtype)t, once, bit), 5);
        }
}

static void ulp_distances(void **state) {
    (void)state;
    enum sdc_dtype f32 = SDC_DTYPE_F32, f64 = SDC_DTYPE_F64;
    assert_int_equal(sdc_num_ulp_distance(f32, 0x3f800000, 0x3f800001), 1);
    assert_int_equal(sdc_num_ulp_distance(f32, 0x3f800000, 0x3f7fffff), 1);
    assert_int_equal(sdc_num_ulp_distance(f32, 0, 0x80000000), 0);
    assert_int_equal(sdc_num_ulp_distance(f32, 1, 0x80000001), 2);
    assert_int_equal(sdc_num_ulp_distance(f32, 0x7f7fffff, 0x7f800000), 1); /* the largest, inf */
    assert_int_equal(sdc_num_ulp_distance(f32, 0x7fc00000, 0x7fc00000), 0);
    assert_true(sdc_num_ulp_distance(f32, 0x7fc00000, 0x7fc00001) == UINT64_MAX);
    assert_true(sdc_num_ulp_distance(f32, 0x7fc00000, 0) == UINT64_MAX);
    /* every value between -inf and inf, both zeros being one */
    assert_int_equal(sdc_num_ulp_distance(f32, 0xff800000, 0x7f800000), 2ull * 0x7f800000);
    assert_true(sdc_num_ulp_distance(f64, 0xfff0000000000000, 0x7ff0000000000000) ==
                2ull * 0x7ff0000000000000);
    assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_I8, 0xff, 1), 2);
    assert_true(sdc_num_ulp_distance(SDC_DTYPE_I64, 1ull << 63, INT64_MAX) == UINT64_MAX);
    assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_U8, 0xff, 1), 254);
    /* over all of F16: the distance from the smallest is the rank among the finite values */
    uint64_t rank = 0;
    for (unsigned raw = 0xfbff; raw > 0x8000; raw--)
        assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_F16, 0xfbff, raw), rank++);
    for (unsigned raw = 0; raw <= 0x7bff; raw++)
        assert_int_equal(sdc_num_ulp_distance(SDC_DTYPE_F16, 0xfbff, raw), rank++);
}

/* What sdc_num_text promises, by the C library alone. */
static void fewest_digits(enum sdc_dtype dtype, uint64_t raw, char *text, size_t size) {
    double value = sdc_num_to_double(dtype, raw), again;
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, size, "%.*g", precision, value);
        if (sdc__parse_f64(text, &again) && sdc_num_from_double(dtype, again) == raw)
            return;
    }
}

static void texts_are_the_shortest(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        uint64_t from, step, n;
    } ranges[] = {
        {SDC_DTYPE_F32, 1, 39916801, 108},
        {SDC_DTYPE_F32, 0x3f800000, 1, 3000},
        {SDC_DTYPE_F32, 1, 1, 3000},
        {SDC_DTYPE_F32, 0x7f7ff000, 1, 0xfff},
        {SDC_DTYPE_F32, 0x00800000 - 9, 1, 20},
        {SDC_DTYPE_F32, 0x00800000, 0x00800000, 254},
        {SDC_DTYPE_F32, 12345, 104729, 40000},
        {SDC_DTYPE_F16, 0, 7, 65536 / 7},
        {SDC_DTYPE_BF16, 0, 7, 65536 / 7},
        {SDC_DTYPE_F64, 0x3ff0000000000000, 1, 200},
        {SDC_DTYPE_F64, 1, 0x0012345678901235, 3000},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (uint64_t k = 0; k < ranges[i].n; k++) {
            uint64_t raw = ranges[i].from + k * ranges[i].step;
            char is[40], want[40];
            if (!sdc_num_is_finite(ranges[i].dtype, raw))
                continue;
            sdc_num_text(ranges[i].dtype, raw, is, sizeof is);
            fewest_digits(ranges[i].dtype, raw, want, sizeof want);
            if (strcmp(is, want) != 0)
                fail_msg("%s %#llx: %s, expected %s", sdc_dtype_name(ranges[i].dtype),
                         (unsigned long long)raw, is, want);
        }
}

static void decimals_of_json(void **state) {
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {
        {1.5F, "1.5"},
        {-2.0F, "-2"},
        {100.0F, "100.0"},
        {1e14F, "100000000000000.0"},
        {1e15F, "1e+15"},
        {0.0001F, "0.0001"},
        {1e-5F, "1e-05"},
        {-3.1e-39F, "-3.1e-39"},
        {16777216.0F, "16777216"},
        {1e-45F, "1e-45"},
        {0.1F, "0.1"},
        {123.25F, "123.25"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sdc__decimal d;
        char text[24];
        uint32_t raw;
        memcpy(&raw, &cases[i].value, sizeof raw);
        assert_true(sdc__num_decimal(SDC_DTYPE_F32, raw, &d));
        size_t n = sdc__decimal_json(&d, text);
        assert_int_equal(n, strlen(cases[i].text));
        assert_memory_equal(text, cases[i].text, n);
    }
    static const uint64_t numbers[] = {0, 7, 10, 99, 100, 101, 65535, 1234567, UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[20], want[24];
        snprintf(want, sizeof want, "%llu", (unsigned long long)numbers[i]);
        assert_int_equal(sdc__u64_text(numbers[i], text), strlen(want));
        assert_memory_equal(text, want, strlen(want));
    }
}

static void texts(void **state) {
    (void)state;
    static const struct {
        enum sdc_dtype dtype;
        uint64_t raw;
        const char *text;
    } cases[] = {
        {SDC_DTYPE_F64, 0x3fb999999999999a, "0.1"},
        {SDC_DTYPE_F32, 0x3dcccccd, "0.1"},
        {SDC_DTYPE_F64, 1, "5e-324"},
        {SDC_DTYPE_F32, 1, "1e-45"},
        {SDC_DTYPE_F16, 0x7bff, "6.55e+04"},
        {SDC_DTYPE_F16, 1, "6e-08"},
        {SDC_DTYPE_F32, 0x80000000, "-0"},
        {SDC_DTYPE_F32, 0x7f800001, "nan"},
        {SDC_DTYPE_BF16, 0xff80, "-inf"},
        {SDC_DTYPE_F64, 0x7ff0000000000000, "inf"},
        {SDC_DTYPE_I8, 0x80, "-128"},
        {SDC_DTYPE_U64, UINT64_MAX, "18446744073709551615"},
        {SDC_DTYPE_I64, 1ull << 63, "-9223372036854775808"},
        {SDC_DTYPE_BOOL, 1, "1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[40];
        sdc_num_text(cases[i].dtype, cases[i].raw, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_parse_back),
        cmocka_unit_test(half_precision_converts_as_any_type),
        cmocka_unit_test(fields_are_those_of_the_standard),
        cmocka_unit_test(top_exponent_flips),
        cmocka_unit_test(every_16_bit_value),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(integers_round_and_saturate),
        cmocka_unit_test(load_and_store_keep_signalling_nans),
        cmocka_unit_test(small_floats),
        cmocka_unit_test(flips_are_their_own_inverse),
        cmocka_unit_test(ulp_distances),
        cmocka_unit_test(texts),
        cmocka_unit_test(texts_are_the_shortest),
        cmocka_unit_test(decimals_of_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
