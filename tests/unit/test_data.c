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
    static const struct {
        struct sdc_sharding how;
        uint64_t steps;
    } cases[] = {
        {{.n = 60000, .ranks = 2, .batch = 64}, 468}, /* 30000 / 64 = 468.75 */
        {{.n = 60000, .ranks = 1, .batch = 64}, 937},
        {{.n = 10, .ranks = 4, .batch = 3}, 1},                    /* 12 after padding */
        {{.n = 10, .ranks = 4, .batch = 3, .drop_last = true}, 0}, /* 8 are dealt out */
        {{.n = 10, .ranks = 4, .batch = 2, .drop_last = true}, 1},
        {{.n = 12, .ranks = 4, .batch = 3, .drop_last = true}, 1},
        {{.n = 10, .ranks = 4, .batch = 4}, 0},
        {{.n = 0, .ranks = 1, .batch = 1}, 0},
        {{.n = 10, .ranks = 0, .batch = 1}, 0},
        {{.n = 10, .ranks = 1, .batch = 0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(sdc_sampler_steps_per_epoch(&cases[i].how), cases[i].steps);
}

/* The stream is named in the header; here it is drawn by hand. Any step may be asked for, in any
 * order. */
static void permutation_is_the_stream_of_its_epoch(void **state) {
    (void)state;
    enum { N = 37 };
    struct sdc_sampler *s;
    assert_ok(sdc_sampler_new(&(struct sdc_sharding){.n = N, .ranks = 1, .batch = N, .seed = 99},
                              &s, &err));
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
    assert_status(SDC_INVALID,
                  sdc_sampler_new(&(struct sdc_sharding){.n = 0, .ranks = 1, .batch = 1, .seed = 1},
                                  &s, &err));
    assert_status(SDC_LIMIT, sdc_sampler_new(
                                 &(struct sdc_sharding){
                                     .n = (uint64_t)1 << 33, .ranks = 1, .batch = 1, .seed = 1},
                                 &s, &err));
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
        const struct sdc_data_source source = {.name = names[k], .path = ".", .limit = 2};
        struct sdc_dataset *set;
        uint64_t n = 1;
        for (;; n++) {
            sdc__alloc_fail_at(n);
            enum sdc_status st = sdc_dataset_open(&source, false, &set, &err);
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
        assert_status(
            SDC_NO_MEMORY,
            sdc_sampler_new(&(struct sdc_sharding){.n = 10, .ranks = 1, .batch = 1, .seed = 1}, &s,
                            &err));
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
