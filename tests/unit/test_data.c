/* SPDX-License-Identifier: Apache-2.0
 *
 * What needs no second implementation; values are compared with NumPy and PyTorch in
 * data_against_python.py and sampler_against_torch.py.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sdc/data.h"
#include "sdc/rng.h"
#include "test.h"

static struct sdc_error err;

static void steps_of_an_epoch(void **state) {
    (void)state;
    assert_int_equal(sdc_sampler_steps_per_epoch(60000, 2, 64), 468); /* 30000 / 64 = 468.75 */
    assert_int_equal(sdc_sampler_steps_per_epoch(60000, 1, 64), 937);
    assert_int_equal(sdc_sampler_steps_per_epoch(10, 4, 3), 1); /* 12 after padding */
    assert_int_equal(sdc_sampler_steps_per_epoch(10, 4, 4), 0);
    assert_int_equal(sdc_sampler_steps_per_epoch(0, 1, 1), 0);
    assert_int_equal(sdc_sampler_steps_per_epoch(10, 0, 1), 0);
    assert_int_equal(sdc_sampler_steps_per_epoch(10, 1, 0), 0);
}

/* The stream is named in the header; here it is drawn by hand. Any step may be asked for, in any
 * order. */
static void permutation_is_the_stream_of_its_epoch(void **state) {
    (void)state;
    enum { N = 37 };
    struct sdc_sampler *s;
    assert_ok(sdc_sampler_new(N, 1, N, 99, &s, &err));
    for (uint32_t epoch = 3; epoch-- > 0;) {
        uint32_t got[N], want[N];
        struct sdc_rng rng;
        for (uint32_t i = 0; i < N; i++)
            want[i] = i;
        sdc_rng_init(&rng, 99, SDC_RNG_DATA_ORDER, 0, epoch);
        sdc_rng_shuffle_u32(&rng, want, N);
        assert_ok(sdc_sampler_batch(s, 0, epoch, got, &err));
        assert_memory_equal(got, want, sizeof got);
    }
    uint32_t one[N];
    assert_status(SDC_USAGE, sdc_sampler_batch(s, 1, 0, one, &err));
    assert_status(SDC_LIMIT, sdc_sampler_batch(s, 0, (uint64_t)1 << 40, one, &err));
    sdc_sampler_free(s);
    assert_status(SDC_INVALID, sdc_sampler_new(0, 1, 1, 1, &s, &err));
    assert_status(SDC_LIMIT, sdc_sampler_new((uint64_t)1 << 33, 1, 1, 1, &s, &err));
    sdc_sampler_free(NULL);
}

static void put_idx(const char *name, const uint8_t *head, size_t len, size_t zeros) {
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(head, 1, len, f), len);
    for (size_t i = 0; i < zeros; i++)
        assert_int_equal(fputc(0, f), 0);
    assert_int_equal(fclose(f), 0);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28},
                         labels[] = {0, 0, 8, 1, 0, 0, 0, 2};
    put_idx("t10k-images-idx3-ubyte", images, sizeof images, 2 * 28 * 28);
    put_idx("t10k-labels-idx1-ubyte", labels, sizeof labels, 2);
    static const char *const names[] = {"fashion-mnist", "synthetic"};
    for (int k = 0; k < 2; k++) {
        struct sdc_dataset *set;
        uint64_t n = 1;
        for (;; n++) {
            sdc__alloc_fail_at(n);
            enum sdc_status st = sdc_dataset_open(names[k], ".", false, 2, &set, &err);
            sdc__alloc_fail_at(0);
            if (st == SDC_OK)
                break;
            assert_int_equal(st, SDC_NO_MEMORY);
        }
        assert_true(n > 4);
        assert_string_equal(set->name, names[k]);
        assert_int_equal(set->n, 2);
        sdc_dataset_free(set);
    }
    for (uint64_t n = 1; n <= 2; n++) {
        struct sdc_sampler *s;
        sdc__alloc_fail_at(n);
        assert_status(SDC_NO_MEMORY, sdc_sampler_new(10, 1, 1, 1, &s, &err));
        sdc__alloc_fail_at(0);
    }
    sdc_dataset_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_an_epoch),
        cmocka_unit_test(permutation_is_the_stream_of_its_epoch),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
