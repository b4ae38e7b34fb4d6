/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden values from the sources named beside them; deltas against full recomputation.
 */
#include <stdlib.h>
#include <string.h>

#include "io/crc.h"
#include "test.h"

static uint64_t next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The check values of the two polynomials (their catalogues call it "check"), which also tell that
 * neither is taken for the other. */
static void golden_crcs(void **state) {
    (void)state;
    assert_int_equal(sdc__crc32(0, "123456789", 9), 0xcbf43926);
    assert_int_equal(sdc__crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sdc__crc(SDC_CRC32, 0, "123456789", 9), 0xcbf43926);
    assert_int_equal(sdc__crc(SDC_CRC32C, 0, "123456789", 9), 0xe3069283);
    assert_int_equal(sdc__crc32c_portable(0, "123456789", 9), 0xe3069283);
    /* RFC 3720, B.4 */
    unsigned char bytes[32] = {0};
    assert_int_equal(sdc__crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(sdc__crc32c(0, bytes, 32), 0x62a8ab43);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(sdc__crc32c(0, bytes, 32), 0x46dd794e);
    assert_int_equal(sdc__crc32c(0, "", 0), 0);
}

/* util/crc32c_test.cc of LevelDB demands that masking is no identity and is undone; the value is
 * its formula by hand: 0xe3069283 rotated right by 15 is 0x2507c60d. */
static void masks(void **state) {
    (void)state;
    uint32_t crc = 0xe3069283;
    assert_int_equal(sdc__crc_mask(crc), 0x2507c60du + 0xa282ead8u);
    assert_int_equal(sdc__crc_unmask(sdc__crc_mask(crc)), crc);
    assert_int_not_equal(sdc__crc_mask(sdc__crc_mask(crc)), crc);
    assert_int_equal(sdc__crc_unmask(sdc__crc_mask(0xffffffff)), 0xffffffff);
}

/* Any split gives the same CRC, and so do both implementations at any alignment. */
static void streams(void **state) {
    (void)state;
    unsigned char data[600];
    uint64_t rng = 3;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)next(&rng);
    for (unsigned round = 0; round < 500; round++) {
        size_t from = next(&rng) % 16, len = next(&rng) % 500, cut = len ? next(&rng) % len : 0;
        const unsigned char *p = data + from;
        uint32_t c = sdc__crc32c(0, p, len);
        assert_int_equal(c, sdc__crc32c_portable(0, p, len));
        assert_int_equal(c, sdc__crc32c(sdc__crc32c(0, p, cut), p + cut, len - cut));
        assert_int_equal(sdc__crc32(0, p, len),
                         sdc__crc32(sdc__crc32(0, p, cut), p + cut, len - cut));
    }
}

static void deltas(void **state) {
    (void)state;
    unsigned char data[4096], changed[4096], mask[8];
    uint64_t rng = 1;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)next(&rng);
    for (unsigned round = 0; round < 2000; round++) {
        enum sdc_crc kind = round % 2 ? SDC_CRC32 : SDC_CRC32C;
        size_t len = 1 + next(&rng) % sizeof data, n = 1 + next(&rng) % 8;
        n = n > len ? len : n;
        size_t at = next(&rng) % (len - n + 1);
        memcpy(changed, data, len);
        for (size_t i = 0; i < n; i++) {
            mask[i] = (unsigned char)next(&rng);
            changed[at + i] ^= mask[i];
        }
        assert_int_equal(sdc__crc(kind, 0, data, len) ^ sdc__crc_delta(kind, len, at, mask, n),
                         sdc__crc(kind, 0, changed, len));
    }
}

/* Every bit of a short message, two flips together, and a flip taken back. */
static void delta_of_each_bit(void **state) {
    (void)state;
    unsigned char m[50];
    for (size_t i = 0; i < sizeof m; i++)
        m[i] = (unsigned char)(i * 37);
    for (unsigned bit = 0; bit < 400; bit++)
        for (int kind = SDC_CRC32; kind <= SDC_CRC32C; kind++) {
            unsigned char mask = (unsigned char)(1u << bit % 8), other = 0x80;
            uint32_t before = sdc__crc((enum sdc_crc)kind, 0, m, 50);
            uint32_t d = sdc__crc_delta((enum sdc_crc)kind, 50, bit / 8, &mask, 1);
            uint32_t d2 = sdc__crc_delta((enum sdc_crc)kind, 50, 49, &other, 1);
            m[bit / 8] ^= mask;
            assert_int_equal(before ^ d, sdc__crc((enum sdc_crc)kind, 0, m, 50));
            m[49] ^= other;
            assert_int_equal(before ^ d ^ d2, sdc__crc((enum sdc_crc)kind, 0, m, 50));
            m[bit / 8] ^= mask;
            m[49] ^= other;
            assert_int_equal(before, sdc__crc((enum sdc_crc)kind, 0, m, 50));
        }
}

/* 5 GiB: values from crc32_combine of zlib 1.2.13 and, for CRC-32C, from appending zeros in
 * steps: the delta of a byte followed by n zeros is the raw CRC of (mask, n zeros). */
static void delta_of_long_messages(void **state) {
    (void)state;
    const uint64_t len = UINT64_C(5) << 30;
    unsigned char mask = 0x40;
    static const unsigned char zeros[1 << 16];
    for (int kind = SDC_CRC32; kind <= SDC_CRC32C; kind++) {
        /* raw register without the initial and final complement: CRC of a and b differ by it */
        uint32_t a = 0, b = 0;
        unsigned char zero = 0;
        a = sdc__crc((enum sdc_crc)kind, 0, &zero, 1);
        b = sdc__crc((enum sdc_crc)kind, 0, &mask, 1);
        for (unsigned i = 0; i < 1600; i++) { /* 100 MiB of zeros */
            a = sdc__crc((enum sdc_crc)kind, a, zeros, sizeof zeros);
            b = sdc__crc((enum sdc_crc)kind, b, zeros, sizeof zeros);
        }
        uint64_t after = UINT64_C(1600) * sizeof zeros;
        assert_int_equal(a ^ b, sdc__crc_delta((enum sdc_crc)kind, len, len - 1 - after, &mask, 1));
        /* the register has a period: 2^32 - 1 bits for CRC-32 (primitive), 2^31 - 1 for CRC-32C
         * (x + 1 times a primitive one), which in bytes is the same number since 8 is prime to it
         */
        uint64_t period = kind == SDC_CRC32 ? UINT64_C(0xffffffff) : UINT64_C(0x7fffffff);
        assert_int_equal(sdc__crc_delta((enum sdc_crc)kind, len, 7, &mask, 1),
                         sdc__crc_delta((enum sdc_crc)kind, len, 7 + period, &mask, 1));
        assert_int_equal(sdc__crc_delta((enum sdc_crc)kind, UINT64_MAX, 0, &mask, 1),
                         sdc__crc_delta((enum sdc_crc)kind, UINT64_MAX,
                                        (UINT64_MAX / period - 1) * period, &mask, 1));
    }
}

/* Worked by hand: words 0x0102 and 0x0300, sum1 0x0402, sum2 0x0504; folding of 0xffff. */
static void fletcher(void **state) {
    (void)state;
    assert_int_equal(sdc__fletcher32("\x01\x02\x03", 3), 0x05040402);
    assert_int_equal(sdc__fletcher32("", 0), 0);
    assert_int_equal(sdc__fletcher32("\xff\xff", 2), 0xffffffff);
    assert_int_equal(sdc__fletcher32_swapped(0x05040402), 0x04050204);
}

/* driver5() of lookup3.c prints these. */
static void lookup3(void **state) {
    (void)state;
    assert_int_equal(sdc__lookup3("", 0, 0), 0xdeadbeef);
    assert_int_equal(sdc__lookup3("", 0, 0xdeadbeef), 0xbd5b7dde);
    assert_int_equal(sdc__lookup3("Four score and seven years ago", 30, 0), 0x17770551);
    assert_int_equal(sdc__lookup3("Four score and seven years ago", 30, 1), 0xcd628161);
}

static void files(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_file f;
    size_t len = 700001;
    unsigned char *data = test_malloc(len);
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)(i * i >> 3);
    assert_ok(sdc__write_whole("crc.bin", data, len, false, &err));
    assert_ok(sdc__file_open("crc.bin", SDC_FILE_READ, &f, &err));
    uint32_t crc = sdc__crc32(0, data, 5);
    assert_ok(sdc__crc_file(SDC_CRC32, &f, 5, len - 5, &crc, &err));
    assert_int_equal(crc, sdc__crc32(0, data, len));
    crc = 0;
    assert_status(SDC_INVALID, sdc__crc_file(SDC_CRC32C, &f, 5, len, &crc, &err));
    assert_message_has("truncated");
    sdc__file_close(&f);
    test_free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_crcs),
        cmocka_unit_test(masks),
        cmocka_unit_test(streams),
        cmocka_unit_test(deltas),
        cmocka_unit_test(delta_of_each_bit),
        cmocka_unit_test(delta_of_long_messages),
        cmocka_unit_test(fletcher),
        cmocka_unit_test(lookup3),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
