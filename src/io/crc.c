/* SPDX-License-Identifier: Apache-2.0 */
#include "io/crc.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define POLY_CRC32  0xedb88320u
#define POLY_CRC32C 0x82f63b78u
#define X0          0x80000000u /* the polynomial 1: reflected, the highest bit is x^0 */
#define BLOCK       ((size_t)256 * 1024)

/* x^(2^k) modulo the polynomial; 64 bits of a byte count, times 8. */
#define N_POWERS 67
/* clang-format off */
static const uint32_t powers_crc32[N_POWERS] = {
0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0xedb88320, 0xb1e6b092,
    0xa06a2517, 0xed627dae, 0x88d14467, 0xd7bbfe6a, 0xec447f11, 0x8e7ea170, 0x6427800e,
    0x4d47bae0, 0x09fe548f, 0x83852d0f, 0x30362f1a, 0x7b5a9cc3, 0x31fec169, 0x9fec022a,
    0x6c8dedc4, 0x15d6874d, 0x5fde7a4e, 0xbad90e37, 0x2e4e5eef, 0x4eaba214, 0xa8a472c0,
    0x429a969e, 0x148d302a, 0xc40ba6d0, 0xc4e22c3c, 0x40000000, 0x20000000, 0x08000000,
    0x00800000, 0x00008000, 0xedb88320, 0xb1e6b092, 0xa06a2517, 0xed627dae, 0x88d14467,
    0xd7bbfe6a, 0xec447f11, 0x8e7ea170, 0x6427800e, 0x4d47bae0, 0x09fe548f, 0x83852d0f,
    0x30362f1a, 0x7b5a9cc3, 0x31fec169, 0x9fec022a, 0x6c8dedc4, 0x15d6874d, 0x5fde7a4e,
    0xbad90e37, 0x2e4e5eef, 0x4eaba214, 0xa8a472c0, 0x429a969e, 0x148d302a, 0xc40ba6d0,
    0xc4e22c3c, 0x40000000, 0x20000000, 0x08000000,
};
static const uint32_t powers_crc32c[N_POWERS] = {
    0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c,
    0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16,
    0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b,
    0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe,
    0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
    0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
    0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269,
    0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309,
    0xbc1ac763, 0x7d0722cc, 0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000,
    0x20000000, 0x08000000, 0x00800000, 0x00008000,
};
/* clang-format on */

/* ---- CRC of data ---- */

uint32_t sdc__crc32(uint32_t crc, const void *data, size_t len) {
    return (uint32_t)crc32_z(crc, data, len);
}

/* One byte into a register, bit by bit: cheap enough for the few bytes of a mask. */
static uint32_t step(uint32_t reg, unsigned byte, uint32_t poly) {
    reg ^= byte;
    for (unsigned i = 0; i < 8; i++)
        reg = reg >> 1 ^ (poly & (0u - (reg & 1)));
    return reg;
}

/* clang-format off */
static const uint32_t table_crc32c[256] = {
    0x00000000, 0xf26b8303, 0xe13b70f7, 0x1350f3f4, 0xc79a971f, 0x35f1141c, 0x26a1e7e8, 0xd4ca64eb,
    0x8ad958cf, 0x78b2dbcc, 0x6be22838, 0x9989ab3b, 0x4d43cfd0, 0xbf284cd3, 0xac78bf27, 0x5e133c24,
    0x105ec76f, 0xe235446c, 0xf165b798, 0x030e349b, 0xd7c45070, 0x25afd373, 0x36ff2087, 0xc494a384,
    0x9a879fa0, 0x68ec1ca3, 0x7bbcef57, 0x89d76c54, 0x5d1d08bf, 0xaf768bbc, 0xbc267848, 0x4e4dfb4b,
    0x20bd8ede, 0xd2d60ddd, 0xc186fe29, 0x33ed7d2a, 0xe72719c1, 0x154c9ac2, 0x061c6936, 0xf477ea35,
    0xaa64d611, 0x580f5512, 0x4b5fa6e6, 0xb93425e5, 0x6dfe410e, 0x9f95c20d, 0x8cc531f9, 0x7eaeb2fa,
    0x30e349b1, 0xc288cab2, 0xd1d83946, 0x23b3ba45, 0xf779deae, 0x05125dad, 0x1642ae59, 0xe4292d5a,
    0xba3a117e, 0x4851927d, 0x5b016189, 0xa96ae28a, 0x7da08661, 0x8fcb0562, 0x9c9bf696, 0x6ef07595,
    0x417b1dbc, 0xb3109ebf, 0xa0406d4b, 0x522bee48, 0x86e18aa3, 0x748a09a0, 0x67dafa54, 0x95b17957,
    0xcba24573, 0x39c9c670, 0x2a993584, 0xd8f2b687, 0x0c38d26c, 0xfe53516f, 0xed03a29b, 0x1f682198,
    0x5125dad3, 0xa34e59d0, 0xb01eaa24, 0x42752927, 0x96bf4dcc, 0x64d4cecf, 0x77843d3b, 0x85efbe38,
    0xdbfc821c, 0x2997011f, 0x3ac7f2eb, 0xc8ac71e8, 0x1c661503, 0xee0d9600, 0xfd5d65f4, 0x0f36e6f7,
    0x61c69362, 0x93ad1061, 0x80fde395, 0x72966096, 0xa65c047d, 0x5437877e, 0x4767748a, 0xb50cf789,
    0xeb1fcbad, 0x197448ae, 0x0a24bb5a, 0xf84f3859, 0x2c855cb2, 0xdeeedfb1, 0xcdbe2c45, 0x3fd5af46,
    0x7198540d, 0x83f3d70e, 0x90a324fa, 0x62c8a7f9, 0xb602c312, 0x44694011, 0x5739b3e5, 0xa55230e6,
    0xfb410cc2, 0x092a8fc1, 0x1a7a7c35, 0xe811ff36, 0x3cdb9bdd, 0xceb018de, 0xdde0eb2a, 0x2f8b6829,
    0x82f63b78, 0x709db87b, 0x63cd4b8f, 0x91a6c88c, 0x456cac67, 0xb7072f64, 0xa457dc90, 0x563c5f93,
    0x082f63b7, 0xfa44e0b4, 0xe9141340, 0x1b7f9043, 0xcfb5f4a8, 0x3dde77ab, 0x2e8e845f, 0xdce5075c,
    0x92a8fc17, 0x60c37f14, 0x73938ce0, 0x81f80fe3, 0x55326b08, 0xa759e80b, 0xb4091bff, 0x466298fc,
    0x1871a4d8, 0xea1a27db, 0xf94ad42f, 0x0b21572c, 0xdfeb33c7, 0x2d80b0c4, 0x3ed04330, 0xccbbc033,
    0xa24bb5a6, 0x502036a5, 0x4370c551, 0xb11b4652, 0x65d122b9, 0x97baa1ba, 0x84ea524e, 0x7681d14d,
    0x2892ed69, 0xdaf96e6a, 0xc9a99d9e, 0x3bc21e9d, 0xef087a76, 0x1d63f975, 0x0e330a81, 0xfc588982,
    0xb21572c9, 0x407ef1ca, 0x532e023e, 0xa145813d, 0x758fe5d6, 0x87e466d5, 0x94b49521, 0x66df1622,
    0x38cc2a06, 0xcaa7a905, 0xd9f75af1, 0x2b9cd9f2, 0xff56bd19, 0x0d3d3e1a, 0x1e6dcdee, 0xec064eed,
    0xc38d26c4, 0x31e6a5c7, 0x22b65633, 0xd0ddd530, 0x0417b1db, 0xf67c32d8, 0xe52cc12c, 0x1747422f,
    0x49547e0b, 0xbb3ffd08, 0xa86f0efc, 0x5a048dff, 0x8ecee914, 0x7ca56a17, 0x6ff599e3, 0x9d9e1ae0,
    0xd3d3e1ab, 0x21b862a8, 0x32e8915c, 0xc083125f, 0x144976b4, 0xe622f5b7, 0xf5720643, 0x07198540,
    0x590ab964, 0xab613a67, 0xb831c993, 0x4a5a4a90, 0x9e902e7b, 0x6cfbad78, 0x7fab5e8c, 0x8dc0dd8f,
    0xe330a81a, 0x115b2b19, 0x020bd8ed, 0xf0605bee, 0x24aa3f05, 0xd6c1bc06, 0xc5914ff2, 0x37faccf1,
    0x69e9f0d5, 0x9b8273d6, 0x88d28022, 0x7ab90321, 0xae7367ca, 0x5c18e4c9, 0x4f48173d, 0xbd23943e,
    0xf36e6f75, 0x0105ec76, 0x12551f82, 0xe03e9c81, 0x34f4f86a, 0xc69f7b69, 0xd5cf889d, 0x27a40b9e,
    0x79b737ba, 0x8bdcb4b9, 0x988c474d, 0x6ae7c44e, 0xbe2da0a5, 0x4c4623a6, 0x5f16d052, 0xad7d5351,
};
/* clang-format on */

uint32_t sdc__crc32c_portable(uint32_t crc, const void *data, size_t len) {
    const unsigned char *p = data;
    uint32_t reg = ~crc;
    for (size_t i = 0; i < len; i++)
        reg = reg >> 8 ^ table_crc32c[(reg ^ p[i]) & 0xff];
    return ~reg;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data,
                                                               size_t len) {
    const unsigned char *p = data;
    uint64_t reg = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        reg = _mm_crc32_u64(reg, word);
    }
    for (; len > 0; len--, p++)
        reg = _mm_crc32_u8((uint32_t)reg, *p);
    return ~(uint32_t)reg;
}
#endif

uint32_t sdc__crc32c(uint32_t crc, const void *data, size_t len) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_sse42(crc, data, len);
#endif
    return sdc__crc32c_portable(crc, data, len);
}

uint32_t sdc__crc(enum sdc_crc kind, uint32_t crc, const void *data, size_t len) {
    return kind == SDC_CRC32 ? sdc__crc32(crc, data, len) : sdc__crc32c(crc, data, len);
}

enum sdc_status sdc__crc_file(enum sdc_crc kind, const struct sdc_file *file, uint64_t offset,
                              uint64_t len, uint32_t *crc, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    unsigned char *block = sdc__alloc(BLOCK, 1);
    if (!block)
        return SDC_NOMEM(err, file->path);
    while (st == SDC_OK && len > 0) {
        size_t n = len < BLOCK ? (size_t)len : BLOCK;
        st = sdc__file_read(file, offset, block, n, err);
        if (st == SDC_OK)
            *crc = sdc__crc(kind, *crc, block, n);
        offset += n;
        len -= n;
    }
    sdc__free(block);
    return st;
}

/* ---- what a change of the data does to its CRC ---- */

/* Product of two polynomials modulo the third, all reflected. */
static uint32_t multiply(uint32_t a, uint32_t b, uint32_t poly) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0u - (a >> 31));
        b = b >> 1 ^ (poly & (0u - (b & 1)));
    }
    return product;
}

/* x^(8 * bytes) */
static uint32_t power(enum sdc_crc kind, uint64_t bytes) {
    const uint32_t poly = kind == SDC_CRC32 ? POLY_CRC32 : POLY_CRC32C;
    const uint32_t *powers = kind == SDC_CRC32 ? powers_crc32 : powers_crc32c;
    uint32_t product = X0;
    for (unsigned k = 3; bytes; bytes >>= 1, k++)
        if (bytes & 1)
            product = multiply(powers[k], product, poly);
    return product;
}

uint32_t sdc__crc_delta(enum sdc_crc kind, uint64_t len, uint64_t at, const void *mask, size_t n) {
    const uint32_t poly = kind == SDC_CRC32 ? POLY_CRC32 : POLY_CRC32C;
    const unsigned char *p = mask;
    uint32_t reg = 0;
    for (size_t i = 0; i < n; i++)
        reg = step(reg, p[i], poly);
    return reg ? multiply(power(kind, len - at - n), reg, poly) : 0;
}

/* The mask of LevelDB: https://github.com/google/leveldb util/crc32c.h */
#define MASK_DELTA 0xa282ead8u

uint32_t sdc__crc_mask(uint32_t crc) {
    return (crc >> 15 | crc << 17) + MASK_DELTA;
}

uint32_t sdc__crc_unmask(uint32_t masked) {
    uint32_t rotated = masked - MASK_DELTA;
    return rotated >> 17 | rotated << 15;
}

/* ---- HDF5's sums ---- */

uint32_t sdc__fletcher32(const void *data, size_t len) {
    const unsigned char *p = data;
    uint32_t sum1 = 0, sum2 = 0;
    size_t words = len / 2;
    while (words > 0) {
        size_t n = words < 360 ? words : 360; /* as many as cannot overflow sum2 */
        words -= n;
        for (; n > 0; n--, p += 2) {
            sum1 += (uint32_t)p[0] << 8 | p[1];
            sum2 += sum1;
        }
        sum1 = (sum1 & 0xffff) + (sum1 >> 16);
        sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    }
    if (len % 2) {
        sum1 += (uint32_t)*p << 8;
        sum2 += sum1;
        sum1 = (sum1 & 0xffff) + (sum1 >> 16);
        sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    }
    sum1 = (sum1 & 0xffff) + (sum1 >> 16);
    sum2 = (sum2 & 0xffff) + (sum2 >> 16);
    return sum2 << 16 | sum1;
}

uint32_t sdc__fletcher32_swapped(uint32_t sum) {
    return (sum & 0x00ff00ffu) << 8 | (sum & 0xff00ff00u) >> 8;
}

static uint32_t rotate(uint32_t x, unsigned n) {
    return x << n | x >> (32 - n);
}

/* Up to 12 bytes as three little-endian words, missing ones 0. */
static void load3(const unsigned char *p, size_t n, uint32_t w[3]) {
    w[0] = w[1] = w[2] = 0;
    for (size_t i = 0; i < n; i++)
        w[i / 4] |= (uint32_t)p[i] << i % 4 * 8;
}

uint32_t sdc__lookup3(const void *data, size_t len, uint32_t initial) {
    const unsigned char *p = data;
    uint32_t a = 0xdeadbeefu + (uint32_t)len + initial, b = a, c = a, w[3];
    for (; len > 12; len -= 12, p += 12) {
        load3(p, 12, w);
        a += w[0];
        b += w[1];
        c += w[2];
        a -= c, a ^= rotate(c, 4), c += b;
        b -= a, b ^= rotate(a, 6), a += c;
        c -= b, c ^= rotate(b, 8), b += a;
        a -= c, a ^= rotate(c, 16), c += b;
        b -= a, b ^= rotate(a, 19), a += c;
        c -= b, c ^= rotate(b, 4), b += a;
    }
    if (len == 0)
        return c;
    load3(p, len, w);
    a += w[0];
    b += w[1];
    c += w[2];
    c ^= b, c -= rotate(b, 14);
    a ^= c, a -= rotate(c, 11);
    b ^= a, b -= rotate(a, 25);
    c ^= b, c -= rotate(b, 16);
    a ^= c, a -= rotate(c, 4);
    b ^= a, b -= rotate(a, 14);
    c ^= b, c -= rotate(b, 24);
    return c;
}
