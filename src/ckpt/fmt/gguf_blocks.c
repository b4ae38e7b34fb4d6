/* SPDX-License-Identifier: Apache-2.0
 *
 * What the bytes of a quantised block mean. Sources: ggml-org/ggml, src/ggml-common.h (the structs)
 * and src/ggml-quants.c (dequantize_row_*: which bits belong to which weight), 2026; checked
 * against the package gguf 0.19 for every type that it can dequantise.
 *
 * A part is either one element per weight, or one per block or sub-block. Bytes that hold several
 * weights at once (trits of TQ1_0, grid indices of the IQ types) stay bytes: a bit there alters all
 * of them. Packed 6-bit scales stay bytes too: no regular distance leads from one to the next.
 * Numbers of other widths (7-bit signs, 3-bit scales) are listed as their bits.
 */
#include "ckpt/fmt/gguf.h"

#define B(bytes) ((bytes)*8) /* place in bits of a byte in the block */

/* Parts with one element a block, and runs of elements. */
#define ONE(name, dtype, byte)                                                                     \
    {                                                                                              \
        name, dtype, B(byte), false, false, 0, {0}, {                                              \
            0                                                                                      \
        }                                                                                          \
    }
#define RUN(name, dtype, byte, count, stride)                                                      \
    {                                                                                              \
        name, dtype, B(byte), false, false, 1, {count}, {                                          \
            stride                                                                                 \
        }                                                                                          \
    }
/* One element per weight. */
#define W1(name, dtype, byte, d0, s0)                                                              \
    {                                                                                              \
        name, dtype, B(byte), true, false, 1, {d0}, {                                              \
            s0                                                                                     \
        }                                                                                          \
    }
#define W2(name, dtype, byte, d0, s0, d1, s1)                                                      \
    {                                                                                              \
        name, dtype, B(byte), true, false, 2, {d0, d1}, {                                          \
            s0, s1                                                                                 \
        }                                                                                          \
    }
#define W3(name, dtype, byte, d0, s0, d1, s1, d2, s2)                                              \
    {                                                                                              \
        name, dtype, B(byte), true, false, 3, {d0, d1, d2}, {                                      \
            s0, s1, s2                                                                             \
        }                                                                                          \
    }
#define W4(name, dtype, byte, d0, s0, d1, s1, d2, s2, d3, s3)                                      \
    {                                                                                              \
        name, dtype, B(byte), true, false, 4, {d0, d1, d2, d3}, {                                  \
            s0, s1, s2, s3                                                                         \
        }                                                                                          \
    }
#define PLAIN(number, name, bytes, dtype)                                                          \
    {                                                                                              \
        number, name, 1, bytes, dtype, {                                                           \
            { 0 }                                                                                  \
        }                                                                                          \
    }

static const struct sdc_gguf_type types[] = {
    PLAIN(0, "F32", 4, "F32"),
    PLAIN(1, "F16", 2, "F16"),
    PLAIN(24, "I8", 1, "I8"),
    PLAIN(25, "I16", 2, "I16"),
    PLAIN(26, "I32", 4, "I32"),
    PLAIN(27, "I64", 8, "I64"),
    PLAIN(28, "F64", 8, "F64"),
    PLAIN(30, "BF16", 2, "BF16"),

    /* 16 bytes of two weights: the low nibbles are weights 0 to 15, the high ones 16 to 31 */
    {2, "Q4_0", 32, 18, NULL, {ONE("scale", "F16", 0), W2("quants", "U4", 2, 2, 4, 16, 8)}},
    {3,
     "Q4_1",
     32,
     20,
     NULL,
     {ONE("scale", "F16", 0), ONE("min", "F16", 2), W2("quants", "U4", 4, 2, 4, 16, 8)}},
    /* fifth bits: bit k of a u32 for weight k */
    {6,
     "Q5_0",
     32,
     22,
     NULL,
     {ONE("scale", "F16", 0),
      {"high", "U1", B(2), true, true, 1, {32}, {1}},
      W2("quants", "U4", 6, 2, 4, 16, 8)}},
    {7,
     "Q5_1",
     32,
     24,
     NULL,
     {ONE("scale", "F16", 0),
      ONE("min", "F16", 2),
      {"high", "U1", B(4), true, true, 1, {32}, {1}},
      W2("quants", "U4", 8, 2, 4, 16, 8)}},
    {8, "Q8_0", 32, 34, NULL, {ONE("scale", "F16", 0), W1("quants", "I8", 2, 32, 8)}},
    {9,
     "Q8_1",
     32,
     36,
     NULL,
     {ONE("scale", "F16", 0), ONE("sum", "F16", 2), W1("quants", "I8", 4, 32, 8)}},

    /* 256 weights in 16 sub-blocks; a byte of two bits each for weights 32 apart, in two halves */
    {10,
     "Q2_K",
     256,
     84,
     NULL,
     {RUN("scales", "U4", 0, 16, 8),
      {"mins", "U4", 4, false, false, 1, {16}, {8}},
      W3("quants", "U2", 16, 2, B(32), 4, 2, 32, 8),
      ONE("scale", "F16", 80),
      ONE("min", "F16", 82)}},
    {11,
     "Q3_K",
     256,
     110,
     NULL,
     {W3("high", "U1", 0, 2, 4, 4, 1, 32, 8), W3("quants", "U2", 32, 2, B(32), 4, 2, 32, 8),
      RUN("scales", "U8", 96, 12, 8), ONE("scale", "F16", 108)}},
    /* four groups of 32 bytes: low nibbles, then high ones */
    {12,
     "Q4_K",
     256,
     144,
     NULL,
     {ONE("scale", "F16", 0), ONE("min", "F16", 2), RUN("scales", "U8", 4, 12, 8),
      W3("quants", "U4", 16, 4, B(32), 2, 4, 32, 8)}},
    {13,
     "Q5_K",
     256,
     176,
     NULL,
     {ONE("scale", "F16", 0), ONE("min", "F16", 2), RUN("scales", "U8", 4, 12, 8),
      W2("high", "U1", 16, 8, 1, 32, 8), W3("quants", "U4", 48, 4, B(32), 2, 4, 32, 8)}},
    /* two halves of 64 bytes: nibble, then which 32 of them */
    {14,
     "Q6_K",
     256,
     210,
     NULL,
     {W4("quants", "U4", 0, 2, B(64), 2, 4, 2, B(32), 32, 8),
      W3("high", "U2", 128, 2, B(32), 4, 2, 32, 8), RUN("scales", "I8", 192, 16, 8),
      ONE("scale", "F16", 208)}},
    {15,
     "Q8_K",
     256,
     292,
     NULL,
     {ONE("scale", "F32", 0), W1("quants", "I8", 4, 256, 8), RUN("sums", "I16", 260, 16, 16)}},

    /* grids: a byte, with high bits elsewhere, stands for 4 or 8 weights; 7 bits for their signs */
    {16,
     "IQ2_XXS",
     256,
     66,
     NULL,
     {ONE("scale", "F16", 0),
      {"grid", "U8", B(2), false, true, 2, {8, 4}, {64, 8}},
      {"signs", "U1", B(6), false, true, 2, {8, 28}, {64, 1}},
      {"scales", "U4", B(6) + 28, false, true, 1, {8}, {64}}}},
    {17,
     "IQ2_XS",
     256,
     74,
     NULL,
     {ONE("scale", "F16", 0),
      {"grid", "U8", B(2), false, true, 1, {32}, {16}},
      {"high", "U1", B(3), false, true, 1, {32}, {16}},
      {"signs", "U1", B(3) + 1, false, true, 2, {32, 7}, {16, 1}},
      RUN("scales", "U4", 66, 16, 4)}},
    {18,
     "IQ3_XXS",
     256,
     98,
     NULL,
     {ONE("scale", "F16", 0),
      RUN("grid", "U8", 2, 64, 8),
      {"signs", "U1", B(66), false, true, 2, {8, 28}, {32, 1}},
      {"scales", "U4", B(66) + 28, false, true, 1, {8}, {32}}}},
    /* delta: the sign of what is added to all weights of a group */
    {19,
     "IQ1_S",
     256,
     50,
     NULL,
     {ONE("scale", "F16", 0),
      RUN("grid", "U8", 2, 32, 8),
      {"high", "U1", B(34), false, true, 2, {8, 12}, {16, 1}},
      {"scales", "U1", B(34) + 12, false, true, 2, {8, 3}, {16, 1}},
      {"delta", "U1", B(34) + 15, false, true, 1, {8}, {16}}}},
    {20, "IQ4_NL", 32, 18, NULL, {ONE("scale", "F16", 0), W2("quants", "U4", 2, 2, 4, 16, 8)}},
    {21,
     "IQ3_S",
     256,
     110,
     NULL,
     {ONE("scale", "F16", 0), RUN("grid", "U8", 2, 64, 8), RUN("high", "U1", 66, 64, 1),
      W1("signs", "U1", 74, 256, 1), RUN("scales", "U4", 106, 8, 4)}},
    {22,
     "IQ2_S",
     256,
     82,
     NULL,
     {ONE("scale", "F16", 0), RUN("grid", "U8", 2, 32, 8), W1("signs", "U1", 34, 256, 1),
      RUN("high", "U2", 66, 32, 2), RUN("scales", "U4", 74, 16, 4)}},
    {23,
     "IQ4_XS",
     256,
     136,
     NULL,
     {ONE("scale", "F16", 0),
      {"scales_high", "U2", B(2), false, true, 1, {8}, {2}},
      RUN("scales", "U4", 4, 8, 4),
      W3("quants", "U4", 8, 8, B(16), 2, 4, 16, 8)}},
    /* no scale of its own: an f16 in the top nibbles of four numbers */
    {29,
     "IQ1_M",
     256,
     56,
     NULL,
     {RUN("grid", "U8", 0, 32, 8),
      {"high", "U1", B(32), false, false, 2, {32, 3}, {4, 1}},
      {"delta", "U1", B(32) + 3, false, false, 1, {32}, {4}},
      {"scales", "U1", B(48), false, true, 2, {4, 12}, {16, 1}},
      {"scale", "U4", B(48) + 12, false, true, 1, {4}, {16}}}},

    /* five trits a byte; two bits a weight */
    {34, "TQ1_0", 256, 54, NULL, {RUN("trits", "U8", 0, 52, 8), ONE("scale", "F16", 52)}},
    {35,
     "TQ2_0",
     256,
     66,
     NULL,
     {W3("quants", "U2", 0, 2, B(32), 4, 2, 32, 8), ONE("scale", "F16", 64)}},
    {39, "MXFP4", 32, 17, NULL, {ONE("scale", "F8_E8M0", 0), W2("quants", "F4", 1, 2, 4, 16, 8)}},
    /* unsigned E4M3: the sign bit is not used, and 0x7f counts as 0 */
    {40,
     "NVFP4",
     64,
     36,
     NULL,
     {RUN("scales", "F8_E4M3", 0, 4, 8), W3("quants", "F4", 4, 4, B(8), 2, 4, 8, 8)}},
    {41, "Q1_0", 128, 18, NULL, {ONE("scale", "F16", 0), W1("quants", "U1", 2, 128, 1)}},
    {42, "Q2_0", 64, 18, NULL, {ONE("scale", "F16", 0), W1("quants", "U2", 2, 64, 2)}},
};

const struct sdc_gguf_type *sdc__gguf_type(uint32_t number) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}
