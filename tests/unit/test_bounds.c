/* SPDX-License-Identifier: Apache-2.0
 *
 * The one bounds check of all parsers, against arithmetic of 128 bits, with values around 0, 2^32,
 * 2^63 and 2^64 where a check by adding would wrap and pass.
 */
#include "base/alloc.h"
#include "ckpt/fmt.h"
#include "test.h"

__extension__ typedef unsigned __int128 wide;

static const uint64_t corners[] = {0, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX};

enum { NEAR = 3, N = 4 * (2 * NEAR + 1) };

/* Values up to NEAR away from each corner, wrapping around. */
static uint64_t value(unsigned i) {
    return corners[i / (2 * NEAR + 1)] + i % (2 * NEAR + 1) - NEAR;
}

static void a_range_is_inside_or_not(void **state) {
    (void)state;
    unsigned inside = 0;
    for (unsigned i = 0; i < N; i++)
        for (unsigned j = 0; j < N; j++)
            for (unsigned k = 0; k < N; k++) {
                uint64_t offset = value(i), len = value(j), total = value(k);
                bool want = (wide)offset + len <= total;
                assert_int_equal(sdc__range_inside(offset, len, total), want);
                inside += want;
            }
    assert_true(inside > 1000 && inside < N * N * N - 1000);
}

static void a_product_overflows_or_not(void **state) {
    (void)state;
    for (unsigned i = 0; i < N; i++)
        for (unsigned j = 0; j < N; j++) {
            uint64_t product = value(i);
            wide want = (wide)product * value(j);
            bool fits = sdc__mul_u64(&product, value(j));
            assert_int_equal(fits, want <= UINT64_MAX);
            if (fits)
                assert_true(product == (uint64_t)want);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_range_is_inside_or_not),
                                       cmocka_unit_test(a_product_overflows_or_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
