/* SPDX-License-Identifier: Apache-2.0
 *
 * scan, predict, seal and verify when memory or the disk is at its end, and their kernels against
 * plain loops.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "audit/kernels.h"
#include "audit/stats.h"
#include "base/alloc.h"
#include "base/guard.h"
#include "io/io.h"
#include "sdc/audit.h"
#include "test.h"

static struct sdc_error err;

static int fresh(void **state) {
    (void)state;
    return sdc__remove_tree("d", &err) == SDC_OK && sdc__make_dirs("d", &err) == SDC_OK ? 0 : -1;
}

static void put(struct sdc_ckpt_writer *w, const char *name, enum sdc_dtype dtype, uint64_t n,
                const void *data) {
    struct sdc_tensor_desc d = {.name = name, .dtype = dtype, .rank = 1, .shape = &n};
    assert_ok(sdc_ckpt_writer_put(w, &d, data, &err));
}

/* Two files that differ in one element of "w". */
static void make(const char *path, float last) {
    static float w[40000];
    const int64_t step[2] = {3, -4};
    struct sdc_ckpt_writer *writer;
    for (size_t i = 0; i < 40000; i++)
        w[i] = (float)i * 1e-3f;
    w[7] = NAN;
    w[39999] = last;
    assert_ok(sdc_ckpt_writer_new(path, "safetensors", true, &writer, &err));
    put(writer, "model/w", SDC_DTYPE_F32, 40000, w);
    put(writer, "loop/step", SDC_DTYPE_I64, 2, step);
    assert_ok(sdc_ckpt_writer_commit(writer, false, &err));
}

/* Each allocation of this thread fails in its turn; nothing leaks or crashes (sanitizers), and the
 * result is then the whole one. */
#define EACH_ALLOCATION(call, release)                                                             \
    do {                                                                                           \
        enum sdc_status st_ = SDC_NO_MEMORY;                                                       \
        for (uint64_t at_ = 1; st_ != SDC_OK; at_++) {                                             \
            assert_true(at_ < 100000);                                                             \
            sdc__alloc_fail_at(at_);                                                               \
            st_ = (call);                                                                          \
            sdc__alloc_fail_at(0);                                                                 \
            if (st_ == SDC_OK) {                                                                   \
                release;                                                                           \
            } else {                                                                               \
                assert_int_equal(st_, SDC_NO_MEMORY);                                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void no_memory_is_reported(void **state) {
    (void)state;
    struct sdc_ckpt *ckpt;
    struct sdc_scan scan;
    struct sdc_predict predict;
    struct sdc_verify verify;
    struct sdc_seal_result sealed;
    struct sdc_choice choice;
    make("d/a", 1e30f);
    make("d/b", 2);
    sdc_choice_init(&choice);
    assert_ok(sdc_ckpt_open("d/a", NULL, &ckpt, &err));
    const struct sdc_scan_options scanning = {.max_sites = 3, .threads = 1};
    const struct sdc_predict_options predicting = {.threads = 1};
    const struct sdc_seal_options sealing = {.threads = 1, .no_sync = true, .replace = true};
    const struct sdc_verify_options verifying = {.threads = 1, .finite = true};
    EACH_ALLOCATION(sdc_scan(ckpt, &scanning, &scan, &err), {
        assert_int_equal(scan.n_suspicious, 2);
        sdc_scan_release(&scan);
    });
    EACH_ALLOCATION(sdc_predict(ckpt, &choice, &predicting, &predict, &err), {
        assert_int_equal(predict.sites, 40000 * 32 + 2 * 64);
        sdc_predict_release(&predict);
    });
    EACH_ALLOCATION(sdc_seal("d/a", &sealing, &sealed, &err), sdc_text_free(sealed.path));
    EACH_ALLOCATION(sdc_verify("d/a", &verifying, &verify, &err), {
        assert_int_equal(verify.seal, SDC_SEAL_MATCHES);
        assert_int_equal(verify.n_nonfinite, 1);
        sdc_verify_release(&verify);
    });
    const struct sdc_verify_options other = {.threads = 1, .seal = "d/a.seal"};
    EACH_ALLOCATION(sdc_verify("d/b", &other, &verify, &err), {
        assert_int_equal(verify.seal, SDC_SEAL_DIFFERS);
        assert_int_equal(verify.n_damage, 2); /* the file, and the tensor */
        assert_true(verify.findings[1].first_elem <= 39999 &&
                    verify.findings[1].last_elem == 39999);
        sdc_verify_release(&verify);
    });
    sdc_ckpt_close(ckpt);
    sdc_choice_release(&choice);
}

static int fail_at(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    (void)op;
    (void)path;
    return n == *(const uint64_t *)user ? ENOSPC : 0;
}

static void a_full_disk_leaves_the_old_seal(void **state) {
    (void)state;
    const struct sdc_seal_options first = {.threads = 1}, again = {.threads = 1, .replace = true};
    struct sdc_seal_result r;
    struct sdc_buf before = SDC_BUF_INIT, after = SDC_BUF_INIT;
    make("d/a", 1);
    assert_ok(sdc_seal("d/a", &first, &r, &err));
    assert_string_equal(r.path, "d/a.seal");
    sdc_text_free(r.path);
    assert_status(SDC_EXISTS, sdc_seal("d/a", &first, &r, &err));
    assert_ok(sdc__read_whole("d/a.seal", 1 << 20, &before, &err));
    make("d/a", 2);
    uint64_t n = 1;
    for (enum sdc_status st = SDC_IO; st != SDC_OK; n++) {
        const struct sdc_io_hook hook = {.before = fail_at, .user = &n};
        assert_true(n < 100);
        sdc__io_test_hook(&hook);
        st = sdc_seal("d/a", &again, &r, &err);
        sdc__io_test_hook(NULL);
        if (st == SDC_OK) {
            sdc_text_free(r.path);
            break;
        }
        assert_int_equal(st, SDC_IO);
        sdc__buf_clear(&after);
        assert_ok(sdc__read_whole("d/a.seal", 1 << 20, &after, &err));
        bool old = after.len == before.len && memcmp(after.data, before.data, after.len) == 0;
        struct sdc_verify v;
        assert_ok(sdc_verify("d/a", &(struct sdc_verify_options){.threads = 1}, &v, &err));
        assert_true(old || v.seal == SDC_SEAL_MATCHES); /* the new one, its folder not synced */
        sdc_verify_release(&v);
        assert_int_equal(sdc__temp_sweep("d"), 0);
    }
    assert_true(n > 3);
    sdc__buf_release(&before);
    sdc__buf_release(&after);
}

/* ---- kernels ---- */

static uint64_t next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void histograms_count_each_element_once(void **state) {
    (void)state;
    static uint32_t f32[1003];
    static uint64_t f64[1003];
    static uint16_t f16[1003];
    uint64_t seed = 88172645463325252u;
    for (int round = 0; round < 3; round++)
        for (size_t n = 0; n <= 1003; n += n < 40 ? 1 : 321) {
            static uint64_t got[4][4096], want[4][4096];
            memset(got, 0, sizeof got);
            memset(want, 0, sizeof want);
            for (size_t i = 0; i < n; i++) {
                uint64_t r = next(&seed);
                /* any bits; no mantissa is zero; zeros */
                f64[i] = round == 0 ? r : round == 1 ? r | 1 : 0;
                f32[i] = (uint32_t)f64[i];
                f16[i] = (uint16_t)f64[i];
                want[0][(f16[i] >> 10 & 31) << 1 | ((f16[i] & 0x3ff) == 0)]++;
                want[1][(f16[i] >> 7 & 255) << 1 | ((f16[i] & 0x7f) == 0)]++;
                want[2][(f32[i] >> 23 & 255) << 1 | ((f32[i] & 0x7fffff) == 0)]++;
                want[3][(f64[i] >> 52 & 2047) << 1 | ((f64[i] & 0xfffffffffffff) == 0)]++;
            }
            sdc__hist_f16(f16, n, got[0]);
            sdc__hist_bf16(f16, n, got[1]);
            sdc__hist_f32(f32, n, got[2]);
            sdc__hist_f64(f64, n, got[3]);
            assert_memory_equal(got, want, sizeof got);
        }
}

/* The order in which the kernels add, in plain C: what they give must not depend on the width of
 * the processor's vectors. */
static double in_lanes(const float *x, size_t n, double mean, int power) {
    double s[16] = {0}, f[8];
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 16; k++) {
            double d = (double)x[i + k] - mean;
            s[k] += power == 2 ? d * d : d;
        }
    for (size_t k = 0; k < 8; k++)
        f[k] = s[k] + s[k + 8];
    double sum = ((f[0] + f[1]) + (f[2] + f[3])) + ((f[4] + f[5]) + (f[6] + f[7]));
    for (; i < n; i++) {
        double d = (double)x[i] - mean;
        sum += power == 2 ? d * d : d;
    }
    return sum;
}

static void sums_have_the_same_bits_for_every_width(void **state) {
    (void)state;
    static float x[SDC_KERNEL_MAX];
    uint64_t seed = 1234567, nonfinite = 0;
    for (size_t i = 0; i < SDC_KERNEL_MAX; i++)
        x[i] = (float)ldexp((double)(next(&seed) >> 40), (int)(next(&seed) % 60) - 40) - 3.0f;
    for (size_t n = 1; n <= SDC_KERNEL_MAX; n += n < 50 ? 1 : 577) {
        struct sdc_moments m;
        sdc__moments_f32(x, n, &m);
        double mean = in_lanes(x, n, 0, 1) / (double)n, sq = in_lanes(x, n, 0, 2);
        double m2 = in_lanes(x, n, mean, 2);
        assert_true(m.mean == mean && m.sq == (long double)sq && m.m2 == (long double)m2);
        assert_true(sdc__squares_f32(x, n, &nonfinite) == sq);
    }
    assert_int_equal(nonfinite, 0);
}

static void widening_keeps_every_half(void **state) {
    (void)state;
    static uint16_t all[65536];
    static float wide[65536];
    for (unsigned i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (unsigned at = 0; at < 65536; at += SDC_KERNEL_MAX)
        sdc__widen_f16(all + at, SDC_KERNEL_MAX, wide + at);
    for (unsigned i = 0; i < 65536; i++) {
        double want = sdc_num_to_double(SDC_DTYPE_F16, i);
        assert_true(isnan(want) ? isnan(wide[i]) : (double)wide[i] == want);
        assert_int_equal(!!signbit(wide[i]), i >> 15);
    }
}

static void differences_are_found_wherever_they_are(void **state) {
    (void)state;
    static unsigned char a[1100], b[1100];
    for (size_t n = 0; n <= sizeof a; n += n < 300 ? 7 : 97) {
        assert_int_equal(sdc__next_difference(a, b, 0, n), n);
        for (size_t at = 0; at < n; at += 5) {
            b[at] = 1;
            assert_int_equal(sdc__next_difference(a, b, 0, n), at / 64 * 64);
            size_t after = at / 64 * 64 + 64;
            if (after < n)
                assert_int_equal(sdc__next_difference(a, b, after, n), n);
            b[at] = 0;
        }
    }
}

static void sums_of_squares_leave_out_what_is_not_finite(void **state) {
    (void)state;
    static float x[1000];
    static double y[1000];
    for (size_t n = 1; n <= 1000; n += n < 40 ? 1 : 111) {
        double want = 0;
        uint64_t bad = 0, got_bad = 0, got_bad64 = 0;
        for (size_t i = 0; i < n; i++) {
            x[i] = i % 7 == 3 ? NAN : i % 11 == 5 ? -INFINITY : (float)(i % 100);
            y[i] = (double)x[i];
            bad += isfinite(x[i]) ? 0 : 1;
            want += isfinite(x[i]) ? y[i] * y[i] : 0; /* whole numbers: exact in any order */
        }
        assert_true(sdc__squares_f32(x, n, &got_bad) == want);
        assert_true(sdc__squares_f64(y, n, &got_bad64) == (long double)want);
        assert_int_equal(got_bad, bad);
        assert_int_equal(got_bad64, bad);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_memory_is_reported, fresh),
        cmocka_unit_test_setup(a_full_disk_leaves_the_old_seal, fresh),
        cmocka_unit_test(histograms_count_each_element_once),
        cmocka_unit_test(sums_have_the_same_bits_for_every_width),
        cmocka_unit_test(widening_keeps_every_half),
        cmocka_unit_test(differences_are_found_wherever_they_are),
        cmocka_unit_test(sums_of_squares_leave_out_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
