/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing arrays and checkpoints, with values worked out by hand.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "io/io.h"
#include "sdc/audit.h"
#include "test.h"

static struct sdc_error err;

/* cmocka's own compares as float */
#define assert_near(got, want, tolerance)                                                          \
    do {                                                                                           \
        double g_ = (got), w_ = (want);                                                            \
        if (!(fabs(g_ - w_) <= (tolerance)))                                                       \
            fail_msg("%s: got %.17g, expected %.17g", #got, g_, w_);                               \
    } while (0)

static int fresh(void **state) {
    (void)state;
    return sdc__remove_tree("d", &err) == SDC_OK && sdc__make_dirs("d", &err) == SDC_OK ? 0 : -1;
}

static struct sdc_diff_tensor diff_f32(const float *a, const float *b, uint64_t n) {
    struct sdc_diff_tensor t = {0};
    assert_ok(sdc_diff_arrays(SDC_DTYPE_F32, a, b, n, 8, &t, &err));
    return t;
}

static void counts_bits_ulps_and_sites(void **state) {
    (void)state;
    float a[4] = {3, 4, 1, 0}, b[4] = {3, 4, 1, 0};
    struct sdc_diff_tensor t = diff_f32(a, b, 4);
    assert_int_equal(t.n_elems, 4);
    assert_int_equal(t.n_differ, 0);
    assert_near(t.distance, 0, 0);
    assert_near(t.sum_sq_a, 26, 0);
    assert_int_equal(t.n_sites, 0);

    b[2] = nextafterf(nextafterf(1, 2), 2); /* 0x3f800000 -> 0x3f800002: one bit, two ulps */
    b[1] = 4.5f;                            /* 0x40800000 -> 0x40900000: one bit, 2^20 ulps */
    t = diff_f32(a, b, 4);
    assert_int_equal(t.n_differ, 2);
    assert_int_equal(t.n_bits, 2);
    for (int i = 0; i < 64; i++)
        assert_int_equal(t.bit_counts[i], i == 1 || i == 20);
    assert_int_equal(t.max_ulps, 1 << 20);
    double d = 2 * 0x1p-23;
    assert_near(t.sum_sq_diff, 0.25 + d * d, 0);
    assert_near(t.distance, sqrt((0.25 + d * d) / 26), 1e-16);
    assert_near(t.max_relative, 0.125, 0);
    assert_int_equal(t.n_sites, 2);
    assert_int_equal(t.sites[0].elem, 1);
    assert_int_equal(t.sites[0].a, 0x40800000);
    assert_int_equal(t.sites[0].b, 0x40900000);
    assert_int_equal(t.sites[1].elem, 2);
    sdc_diff_tensor_release(&t);
}

static void what_is_not_finite_is_infinitely_far(void **state) {
    (void)state;
    const float nan1 = NAN;
    float a[3] = {1, 2, nan1}, b[3] = {1, 2, nan1};
    struct sdc_diff_tensor t = diff_f32(a, b, 3); /* the same NaN is no difference */
    assert_int_equal(t.n_differ, 0);
    assert_near(t.distance, 0, 0);
    assert_int_equal(t.n_nonfinite_a, 1);
    assert_int_equal(t.n_nonfinite_b, 1);
    assert_near(t.sum_sq_a, 5, 0);

    b[0] = 2;
    t = diff_f32(a, b, 3); /* the NaN stays out of ||a|| */
    assert_near(t.distance, sqrt(1. / 5), 1e-16);
    sdc_diff_tensor_release(&t);

    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        b[0] = bad[i];
        t = diff_f32(a, b, 3);
        assert_true(isinf(t.distance) && t.distance > 0);
        assert_true(isinf(t.sum_sq_diff));
        assert_true(isinf(t.max_relative));
        assert_int_equal(t.n_nonfinite_b, 2);
        assert_int_equal(t.n_differ, 1);
        if (i == 0)
            assert_int_equal(t.max_ulps, 0); /* no distance to a NaN */
        sdc_diff_tensor_release(&t);
    }
    uint32_t payload = 0x7fc00001; /* another NaN */
    memcpy(&b[2], &payload, 4);
    b[0] = 1;
    t = diff_f32(a, b, 3);
    assert_int_equal(t.n_differ, 1);
    assert_true(isinf(t.distance));
    sdc_diff_tensor_release(&t);
}

static void zeros(void **state) {
    (void)state;
    float a[2] = {0, 0}, b[2] = {0, -0.0f};
    struct sdc_diff_tensor t = diff_f32(a, b, 2);
    assert_int_equal(t.n_differ, 1);
    assert_int_equal(t.bit_counts[31], 1);
    assert_int_equal(t.max_ulps, 0);
    assert_near(t.distance, 0, 0);
    assert_near(t.max_relative, 0, 0);
    sdc_diff_tensor_release(&t);
    b[1] = 1;
    t = diff_f32(a, b, 2);
    assert_true(isinf(t.distance));
    assert_true(isinf(t.max_relative));
    assert_near(t.sum_sq_diff, 1, 0);
    sdc_diff_tensor_release(&t);
}

static void wide_values_do_not_overflow(void **state) {
    (void)state;
    const double a[2] = {1e300, 1}, b[2] = {2e300, 1};
    struct sdc_diff_tensor t = {0};
    assert_ok(sdc_diff_arrays(SDC_DTYPE_F64, a, b, 2, 0, &t, &err));
    assert_near(t.distance, 1, 1e-15);
    assert_null(t.sites);
    /* integers beyond 2^53 differ by 1, which doubles cannot tell */
    const int64_t i[2] = {INT64_MAX - 1, 5}, j[2] = {INT64_MAX, 5};
    assert_ok(sdc_diff_arrays(SDC_DTYPE_I64, i, j, 2, 0, &t, &err));
    assert_int_equal(t.max_ulps, 1);
    assert_near(t.sum_sq_diff, 1, 0);
    assert_int_equal(t.n_differ, 1);
    const uint8_t x[3] = {0, 1, 1}, y[3] = {0, 0, 1};
    assert_ok(sdc_diff_arrays(SDC_DTYPE_BOOL, x, y, 3, 0, &t, &err));
    assert_int_equal(t.n_differ, 1);
    assert_near(t.distance, sqrt(1. / 2), 1e-16);
}

/* Blocks must not show in the result. */
static void long_arrays_are_compared_to_the_last_element(void **state) {
    (void)state;
    const uint64_t n = 100001;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    assert_non_null(a);
    assert_non_null(b);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        a[i] = b[i] = (float)(i % 7);
        sum += (double)a[i] * a[i];
    }
    static const uint64_t at[] = {0, 4095, 4096, 50000, 100000};
    for (size_t k = 0; k < 5; k++)
        b[at[k]] += 1;
    struct sdc_diff_tensor t = {0};
    assert_ok(sdc_diff_arrays(SDC_DTYPE_F32, a, b, n, 3, &t, &err));
    assert_int_equal(t.n_elems, n);
    assert_int_equal(t.n_differ, 5);
    assert_near(t.sum_sq_diff, 5, 0);
    assert_near(t.sum_sq_a, sum, 0);
    assert_int_equal(t.n_sites, 3);
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(t.sites[k].elem, at[k]);
    sdc_diff_tensor_release(&t);
    free(a);
    free(b);
}

/* ---- files ---- */

struct item {
    const char *name;
    enum sdc_dtype dtype;
    unsigned rank;
    uint64_t shape[2];
    const void *data;
};

static void save(const char *path, const char *format, const struct item *items, size_t n) {
    struct sdc_ckpt_writer *w;
    assert_ok(sdc_ckpt_writer_new(path, format, true, &w, &err));
    for (size_t i = 0; i < n; i++) {
        const struct sdc_tensor_desc d = {.name = items[i].name,
                                          .dtype = items[i].dtype,
                                          .rank = items[i].rank,
                                          .shape = items[i].shape};
        assert_ok(sdc_ckpt_writer_put(w, &d, items[i].data, &err));
    }
    assert_ok(sdc_ckpt_writer_commit(w, false, &err));
}

static void files_are_compared_by_tensor(void **state) {
    (void)state;
    const float w[4] = {1, 2, 3, 4}, v[4] = {1, 2, 3, 5}, u[3] = {1, 1, 1};
    const double z = 1;
    const struct item a[] = {{"model/fc.weight", SDC_DTYPE_F32, 2, {2, 2}, w},
                             {"model/same", SDC_DTYPE_F32, 1, {3}, u},
                             {"model/shape", SDC_DTYPE_F32, 1, {4}, w},
                             {"model/type", SDC_DTYPE_F32, 0, {0}, u},
                             {"only/a", SDC_DTYPE_F32, 1, {3}, u}};
    const struct item b[] = {{"model/fc.weight", SDC_DTYPE_F32, 2, {2, 2}, v},
                             {"model/same", SDC_DTYPE_F32, 1, {3}, u},
                             {"model/shape", SDC_DTYPE_F32, 2, {2, 2}, w},
                             {"model/type", SDC_DTYPE_F64, 0, {0}, &z},
                             {"only/b", SDC_DTYPE_F32, 1, {3}, u}};
    save("d/a.h5", "hdf5", a, 5);
    save("d/b.safetensors", "safetensors", b, 5); /* the container is no part of the values */
    struct sdc_diff d;
    struct sdc_diff_options o = {.max_sites = 10};
    assert_ok(sdc_diff_files("d/a.h5", "d/b.safetensors", &o, &d, &err));
    assert_false(d.same_values);
    assert_false(d.same_container);
    assert_int_equal(d.n_tensors_a, 5);
    assert_int_equal(d.n_tensors_b, 5);
    assert_int_equal(d.n_differ_tensors, 5);
    assert_int_equal(d.n_differ_elems, 1);
    assert_int_equal(d.n_differ_bits, 1); /* 4.0 and 5.0 differ in one bit of the mantissa */
    assert_int_equal(d.n, 5);
    const struct sdc_diff_tensor *t = d.tensors;
    assert_string_equal(t[0].name, "model/fc.weight");
    assert_int_equal(t[0].part, SDC_PART_MODEL);
    assert_int_equal(t[0].role, SDC_ROLE_WEIGHT);
    assert_int_equal(t[0].n_sites, 1);
    assert_int_equal(t[0].sites[0].elem, 3);
    assert_near(t[0].distance, sqrt(1. / 30), 1e-16);
    assert_string_equal(t[1].name, "model/shape");
    assert_true(t[1].incomparable);
    assert_string_equal(t[1].why, "F32 [4] against F32 [2,2]");
    assert_true(t[2].incomparable);
    assert_string_equal(t[2].why, "F32 [] against F64 []");
    assert_true(t[3].only_a);
    assert_string_equal(t[3].name, "only/a");
    assert_true(t[4].only_b);
    sdc_diff_release(&d);

    o.all = true;
    assert_ok(sdc_diff_files("d/a.h5", "d/b.safetensors", &o, &d, &err));
    assert_int_equal(d.n, 6);
    assert_string_equal(d.tensors[1].name, "model/same");
    assert_int_equal(d.tensors[1].n_elems, 3);
    assert_int_equal(d.tensors[1].n_differ, 0);
    assert_near(d.tensors[1].sum_sq_a, 3, 0);
    sdc_diff_release(&d);

    const char *globs[] = {"model/s?me", "none*"};
    o = (struct sdc_diff_options){.globs = globs, .n_globs = 2};
    assert_int_equal(sdc_diff_files("d/a.h5", "d/b.safetensors", &o, &d, &err), SDC_USAGE);
    assert_non_null(strstr(err.message, "is called 'none*'"));
    o.n_globs = 1;
    assert_ok(sdc_diff_files("d/a.h5", "d/b.safetensors", &o, &d, &err));
    assert_true(d.same_values);
    assert_int_equal(d.n_tensors_a, 1);
    assert_int_equal(d.n, 0);
    sdc_diff_release(&d);
}

static void equal_files_are_equal(void **state) {
    (void)state;
    const float w[4] = {1, 2, NAN, 4};
    const struct item a[] = {{"x", SDC_DTYPE_F32, 1, {4}, w}};
    save("d/a", "hdf5", a, 1);
    save("d/b", "hdf5", a, 1);
    save("d/c", "safetensors", a, 1);
    struct sdc_diff d;
    assert_ok(sdc_diff_files("d/a", "d/b", NULL, &d, &err));
    assert_true(d.same_values);
    assert_true(d.same_container);
    assert_int_equal(d.n_tensors_a, 1);
    assert_int_equal(d.n_tensors_b, 1);
    sdc_diff_release(&d);
    assert_ok(sdc_diff_files("d/a", "d/c", NULL, &d, &err));
    assert_true(d.same_values);
    assert_false(d.same_container);
    sdc_diff_release(&d);
    assert_status(SDC_NOT_FOUND, sdc_diff_files("d/a", "d/none", NULL, &d, &err));
    assert_message_has("d/none");
}

static void no_memory_is_reported(void **state) {
    (void)state;
    const float w[4] = {1, 2, 3, 4}, v[4] = {2, 3, 4, 5};
    const struct item a[] = {{"x", SDC_DTYPE_F32, 1, {4}, w}, {"y", SDC_DTYPE_F32, 1, {4}, w}},
                      b[] = {{"x", SDC_DTYPE_F32, 1, {4}, v}, {"z", SDC_DTYPE_F32, 1, {4}, v}};
    save("d/a", "safetensors", a, 2);
    save("d/b", "safetensors", b, 2);
    enum sdc_status st = SDC_NO_MEMORY;
    for (uint64_t at = 1; st != SDC_OK; at++) {
        struct sdc_diff d;
        assert_true(at < 10000);
        sdc__alloc_fail_at(at);
        st = sdc_diff_files("d/a", "d/b", &(struct sdc_diff_options){.max_sites = 3}, &d, &err);
        sdc__alloc_fail_at(0);
        if (st == SDC_OK) {
            assert_int_equal(d.n, 3);
            sdc_diff_release(&d);
        } else {
            assert_int_equal(st, SDC_NO_MEMORY);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_bits_ulps_and_sites),
        cmocka_unit_test(what_is_not_finite_is_infinitely_far),
        cmocka_unit_test(zeros),
        cmocka_unit_test(wide_values_do_not_overflow),
        cmocka_unit_test(long_arrays_are_compared_to_the_last_element),
        cmocka_unit_test_setup(files_are_compared_by_tensor, fresh),
        cmocka_unit_test_setup(equal_files_are_equal, fresh),
        cmocka_unit_test_setup(no_memory_is_reported, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
