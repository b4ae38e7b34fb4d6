/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/sort.h"
#include "base/str.h"
#include "sdc/rng.h"
#include "test.h"

static struct sdc_error err;

/* Known answers of Random123's own kat_vectors file, lines "philox 4 32 10". */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        sdc_philox4x32_10(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

static void rng_streams_are_independent_of_each_other(void **state) {
    (void)state;
    struct sdc_rng a, b;
    sdc_rng_init(&a, 0x100000002u, SDC_RNG_TEST, 7, 9);
    uint32_t counter[4] = {SDC_RNG_TEST, 7, 9, 0}, key[2] = {2, 1}, want[4];
    sdc_philox4x32_10(counter, key, want);
    for (int i = 0; i < 4; i++)
        assert_int_equal(sdc_rng_u32(&a), want[i]);
    counter[3] = 1;
    sdc_philox4x32_10(counter, key, want);
    assert_int_equal(sdc_rng_u32(&a), want[0]);
    sdc_rng_init(&b, 0x100000002u, SDC_RNG_TEST, 7, 10);
    assert_int_not_equal(sdc_rng_u32(&b), want[0]);
}

static void rng_below_is_in_range_and_even(void **state) {
    (void)state;
    struct sdc_rng rng;
    sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
    unsigned counts[7] = {0};
    for (int i = 0; i < 70000; i++)
        counts[sdc_rng_below(&rng, 7)]++;
    /* chi-square with 6 degrees of freedom, 99.9 % limit 22.46; the seed is fixed */
    double chi = 0;
    for (int i = 0; i < 7; i++)
        chi += (counts[i] - 10000.0) * (counts[i] - 10000.0) / 10000.0;
    assert_true(chi < 22.46);
    assert_int_equal(sdc_rng_below(&rng, 1), 0);
    for (int i = 0; i < 100; i++)
        assert_true(sdc_rng_below(&rng, (1ull << 63) + 1) <= 1ull << 63);
}

static void rng_sample_is_distinct_sorted_and_uniform(void **state) {
    (void)state;
    struct sdc_rng rng;
    sdc_rng_init(&rng, 5, SDC_RNG_TEST, 0, 0);
    unsigned subsets[10] = {0}; /* the ten 2-subsets of five */
    for (int i = 0; i < 20000; i++) {
        uint64_t pick[2];
        assert_ok(sdc_rng_sample(&rng, 5, 2, pick, &err));
        assert_true(pick[0] < pick[1] && pick[1] < 5);
        static const int index[5][5] = {
            {0, 0, 1, 2, 3}, {0, 0, 4, 5, 6}, {0, 0, 0, 7, 8}, {0, 0, 0, 0, 9}, {0}};
        subsets[index[pick[0]][pick[1]]]++;
    }
    double chi = 0; /* 9 degrees of freedom, 99.9 % limit 27.88 */
    for (int i = 0; i < 10; i++)
        chi += (subsets[i] - 2000.0) * (subsets[i] - 2000.0) / 2000.0;
    assert_true(chi < 27.88);
    uint64_t all[6];
    assert_ok(sdc_rng_sample(&rng, 6, 6, all, &err));
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(all[i], i);
    assert_status(SDC_USAGE, sdc_rng_sample(&rng, 2, 3, all, &err));
    assert_ok(sdc_rng_sample(&rng, 0, 0, all, &err));
}

/* XXH3 of the empty input, from xxHash's own sanity checks. */
/* Few and many, narrow and wide numbers, with repetitions: ascending, and none lost. */
static void sort_is_ascending_and_keeps_all(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 100, 2047, 2048, 50000};
    static const uint64_t ranges[] = {1, 7, 2048, 1ull << 33, UINT64_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
            struct sdc_rng rng;
            size_t n = sizes[s];
            uint64_t *numbers = sdc__alloc(n, sizeof *numbers), *room = sdc__alloc(n, sizeof *room);
            uint64_t sum = 0, mixed = 0;
            assert_true(numbers && room);
            sdc__alloc_dense(room, n, sizeof *room); /* nothing but a hint */
            sdc_rng_init(&rng, 1, SDC_RNG_TEST, (uint32_t)s, (uint32_t)r);
            for (size_t i = 0; i < n; i++) {
                numbers[i] = sdc_rng_below(&rng, ranges[r]);
                sum += numbers[i];
                mixed ^= numbers[i] * 0x9E3779B97F4A7C15u;
            }
            sdc__sort_u64(numbers, n, room);
            for (size_t i = 0; i < n; i++) {
                assert_true(i == 0 || numbers[i - 1] <= numbers[i]);
                sum -= numbers[i];
                mixed ^= numbers[i] * 0x9E3779B97F4A7C15u;
            }
            assert_true(sum == 0 && mixed == 0);
            sdc__free(numbers);
            sdc__free(room);
        }
}

static void hash_known_answers(void **state) {
    (void)state;
    assert_true(sdc__xxh3_64("", 0) == 0x2D06800538D394C2ull);
    char text[SDC_DIGEST_TEXT_SIZE];
    struct sdc_digest d = sdc__xxh3_128("", 0);
    sdc__digest_text(&d, text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
    struct sdc_hasher *h = sdc__hasher_new();
    assert_non_null(h);
    sdc__hasher_update(h, "ab", 2);
    sdc__hasher_update(h, "c", 1);
    struct sdc_digest whole = sdc__xxh3_128("abc", 3), parts = sdc__hasher_finish(h);
    assert_memory_equal(&whole, &parts, sizeof whole);
}

static void json_errors_name_the_place(void **state) {
    (void)state;
    struct sdc_json *root = NULL;
    const char *bad = "{\"a\": 1,\n \"a\": 2}";
    assert_status(SDC_INVALID, sdc__json_parse(bad, strlen(bad), "x.json", &root, &err));
    assert_message_has("line 2");
    const char *good = "{\"rate\": 0.5, \"name\": \"n\", \"big\": \"18446744073709551615\"}";
    assert_ok(sdc__json_parse(good, strlen(good), "x.json", &root, &err));
    static const char *const keys[] = {"rates", "name", "big"};
    assert_status(SDC_INVALID, sdc__json_only(root, "x.json", keys, 3, &err));
    assert_message_has("did you mean 'rates'");
    double rate;
    assert_ok(sdc__json_as_f64(sdc__json_get(root, "rate"), "rate", &rate, &err));
    assert_true(rate == 0.5);
    uint64_t big;
    assert_ok(sdc__json_as_u64(sdc__json_get(root, "big"), "big", &big, &err));
    assert_true(big == UINT64_MAX);
    assert_status(SDC_INVALID,
                  sdc__json_as_i64(sdc__json_get(root, "nope"), "nope", &(int64_t){0}, &err));
    assert_message_has("expected an integer, found nothing");
    sdc__json_free(root);
}

static void json_writer_round_trips(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&b);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "s", "a\"b\\\n\xff");
    sdc__jw_kf64(&w, "x", 0.1);
    sdc__jw_kf64(&w, "n", (double)NAN);
    sdc__jw_kf64(&w, "one", 1.0);
    sdc__jw_ku64(&w, "u", UINT64_MAX);
    sdc__jw_key(&w, "a");
    sdc__jw_arr(&w);
    sdc__jw_i64(&w, -1);
    sdc__jw_null(&w);
    sdc__jw_arr_end(&w);
    sdc__jw_kbool(&w, "t", true);
    sdc__jw_obj_end(&w);
    assert_string_equal(b.data,
                        "{\"s\":\"a\\\"b\\\\\\u000a\xEF\xBF\xBD\",\"x\":0.1,\"n\":\"nan\","
                        "\"one\":1.0,\"u\":\"18446744073709551615\",\"a\":[-1,null],\"t\":true}");
    struct sdc_json *root;
    assert_ok(sdc__json_parse(b.data, b.len, "written", &root, &err));
    sdc__json_free(root);
    sdc__buf_release(&b);
}

static void buffer_failure_is_sticky(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    b.max = 4;
    sdc__buf_puts(&b, "abc");
    sdc__buf_puts(&b, "de");
    sdc__buf_puts(&b, "f");
    assert_true(b.failed);
    assert_null(sdc__buf_take(&b));
    sdc__alloc_fail_at(1);
    assert_null(sdc__asprintf("%d", 1));
    sdc__alloc_fail_at(0);
}

static void globs_and_nearest(void **state) {
    (void)state;
    assert_true(sdc__glob_match("model/*.weight", "model/conv1.weight"));
    assert_false(sdc__glob_match("model/*.weight", "model/conv1.bias"));
    assert_true(sdc__glob_match("*", "a/b"));
    assert_true(sdc__glob_match("conv?.b*s", "conv1.bias"));
    assert_false(sdc__glob_match("conv1", "conv1.bias"));
    static const char *const words[] = {"inspect", "alter", "undo"};
    assert_string_equal(sdc__nearest("inpsect", words, 3), "inspect");
    assert_null(sdc__nearest("zzzzzz", words, 3));
    assert_int_equal(sdc__edit_distance("flips", "flpis"), 1);
}

static void numbers_parse_whole_strings(void **state) {
    (void)state;
    unsigned long long u;
    long long i;
    double f;
    assert_true(sdc__parse_u64("0x10", &u) && u == 16);
    assert_false(sdc__parse_u64("-1", &u));
    assert_false(sdc__parse_u64("1 ", &u));
    assert_false(sdc__parse_u64("18446744073709551616", &u));
    assert_true(sdc__parse_i64("-9223372036854775808", &i) && i == INT64_MIN);
    assert_false(sdc__parse_i64("9223372036854775808", &i));
    assert_true(sdc__parse_f64("1e-310", &f) && f > 0);
    assert_false(sdc__parse_f64("1e999", &f));
    assert_false(sdc__parse_f64("1x", &f));
    unsigned char bytes[2];
    assert_true(sdc__hex_decode("0aFf", 2, bytes) && bytes[0] == 10 && bytes[1] == 255);
    assert_false(sdc__hex_decode("0aFg", 2, bytes));
}

static void errors_keep_the_first_and_gain_context(void **state) {
    (void)state;
    assert_status(SDC_IO, SDC_ERR_SYS(&err, SDC_IO, 2, "open a.h5"));
    sdc_error_prefix(&err, "trial %d", 3);
    assert_string_equal(err.message, "trial 3: open a.h5: No such file or directory");
    assert_int_equal(sdc_status_exit_code(SDC_INVALID), 3);
    assert_int_equal(sdc_error_set(NULL, SDC_IO, 0, -1, "", 0, "x"), SDC_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(rng_streams_are_independent_of_each_other),
        cmocka_unit_test(rng_below_is_in_range_and_even),
        cmocka_unit_test(rng_sample_is_distinct_sorted_and_uniform),
        cmocka_unit_test(sort_is_ascending_and_keeps_all),
        cmocka_unit_test(hash_known_answers),
        cmocka_unit_test(json_errors_name_the_place),
        cmocka_unit_test(json_writer_round_trips),
        cmocka_unit_test(buffer_failure_is_sticky),
        cmocka_unit_test(globs_and_nearest),
        cmocka_unit_test(numbers_parse_whole_strings),
        cmocka_unit_test(errors_keep_the_first_and_gain_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
