/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "sdc/fault.h"
#include "test.h"

static struct sdc_error err;

static const uint64_t shape_conv[] = {2, 3}, shape_norm[] = {4};
static const struct sdc_tensor_desc conv = {.name = "model/conv.weight",
                                            .dtype = SDC_DTYPE_F32,
                                            .dtype_known = true,
                                            .dtype_text = "F32",
                                            .rank = 2,
                                            .shape = shape_conv,
                                            .n_elems = 6,
                                            .part = SDC_PART_MODEL,
                                            .role = SDC_ROLE_WEIGHT},
                                    norm = {.name = "model/norm.weight",
                                            .dtype = SDC_DTYPE_F16,
                                            .dtype_known = true,
                                            .dtype_text = "F16",
                                            .rank = 1,
                                            .shape = shape_norm,
                                            .n_elems = 4,
                                            .part = SDC_PART_MODEL,
                                            .role = SDC_ROLE_NORM_SCALE},
                                    step = {.name = "loop/step",
                                            .dtype = SDC_DTYPE_I64,
                                            .dtype_known = true,
                                            .dtype_text = "I64",
                                            .n_elems = 1,
                                            .part = SDC_PART_LOOP,
                                            .role = SDC_ROLE_COUNTER},
                                    empty = {.name = "model/empty",
                                             .dtype = SDC_DTYPE_F32,
                                             .dtype_known = true,
                                             .dtype_text = "F32",
                                             .rank = 1,
                                             .shape = (const uint64_t[]){0},
                                             .part = SDC_PART_MODEL,
                                             .role = SDC_ROLE_OTHER},
                                    locked = {.name = "model/zipped.weight",
                                              .dtype = SDC_DTYPE_F32,
                                              .dtype_known = true,
                                              .dtype_text = "F32",
                                              .rank = 1,
                                              .shape = shape_norm,
                                              .n_elems = 4,
                                              .part = SDC_PART_MODEL,
                                              .role = SDC_ROLE_WEIGHT,
                                              .locked = "stored with filter deflate"};
static const struct sdc_tensor_desc *const all[] = {&conv, &norm, &step};
static const struct sdc_tensor_desc *const with_odd[] = {&empty, &conv, &locked, &norm, &step};

/* A choice from (key, value) pairs, and its list over the descs; stream (2022, block 7, trial). */
static enum sdc_status draw_from(const struct sdc_tensor_desc *const *descs, size_t n,
                                 const char *const words[], uint32_t trial,
                                 struct sdc_fault_list *list) {
    struct sdc_choice choice;
    struct sdc_support *support = NULL;
    struct sdc_rng rng;
    sdc_choice_init(&choice);
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && words[i]; i += 2)
        st = sdc_choice_set(&choice, words[i], words[i + 1], &err);
    if (st == SDC_OK)
        st = sdc_support_new(descs, n, &choice, &support, &err);
    if (st == SDC_OK) {
        sdc_rng_init(&rng, 2022, SDC_RNG_FAULT_SITES, 7, trial);
        st = sdc_fault_list_draw(support, &choice, &rng, list, &err);
    }
    sdc_support_free(support);
    sdc_choice_release(&choice);
    return st;
}

#define WORDS(...)         ((const char *const[]){__VA_ARGS__, NULL})
#define DRAW(list, t, ...) draw_from(all, 3, WORDS(__VA_ARGS__), (t), (list))

struct site {
    uint32_t tensor;
    uint64_t elem;
    unsigned bit;
};

static void assert_sites(const struct sdc_fault_list *list, const struct site *want, size_t n) {
    size_t k = 0;
    for (size_t i = 0; i < list->n; i++)
        for (unsigned bit = 0; bit < 64; bit++)
            if (list->faults[i].bits >> bit & 1) {
                assert_true(k < n);
                assert_int_equal(list->faults[i].tensor, want[k].tensor);
                assert_int_equal(list->faults[i].elem, want[k].elem);
                assert_int_equal(bit, want[k++].bit);
            }
    assert_int_equal(k, n);
    assert_int_equal(list->n_sites, n);
}

/* Made by a separate program: Philox, Floyd's method and the numbering written anew in Python. */
static void known_lists(void **state) {
    (void)state;
    static const struct site bits[] = {{0, 0, 26}, {0, 1, 1},  {0, 5, 18},
                                       {1, 0, 3},  {1, 1, 11}, {1, 3, 4}};
    static const struct site tensors[] = {{0, 4, 26}, {0, 5, 1}, {0, 5, 8},
                                          {1, 1, 3},  {1, 1, 7}, {2, 0, 11}};
    struct sdc_fault_list list;
    assert_ok(DRAW(&list, 3, "flips", "6"));
    assert_sites(&list, bits, 6);
    sdc_fault_list_release(&list);
    assert_ok(DRAW(&list, 3, "flips", "6", "sample", "tensors"));
    assert_sites(&list, tensors, 6);
    assert_int_equal(list.n, 4); /* two sites on one element are one fault */
    sdc_fault_list_release(&list);
}

/* Tensors outside the support, empty or locked, leave the draw as it is. */
static void only_the_support_matters(void **state) {
    (void)state;
    static const char *const samples[] = {"bits", "tensors"};
    for (int s = 0; s < 2; s++) {
        struct sdc_fault_list a, b, again;
        assert_ok(DRAW(&a, 1, "flips", "9", "sample", samples[s]));
        assert_ok(DRAW(&again, 1, "flips", "9", "sample", samples[s]));
        assert_ok(draw_from(with_odd, 5, WORDS("flips", "9", "sample", samples[s]), 1, &b));
        static const uint32_t index[] = {1, 3, 4};
        assert_int_equal(a.n, b.n);
        for (size_t i = 0; i < a.n; i++) {
            assert_memory_equal(&a.faults[i], &again.faults[i], sizeof a.faults[i]);
            assert_int_equal(index[a.faults[i].tensor], b.faults[i].tensor);
            assert_int_equal(a.faults[i].elem, b.faults[i].elem);
            assert_int_equal(a.faults[i].bits, b.faults[i].bits);
        }
        sdc_fault_list_release(&b);
        assert_ok(DRAW(&b, 2, "flips", "9", "sample", samples[s]));
        assert_false(a.n == b.n && memcmp(a.faults, b.faults, a.n * sizeof *a.faults) == 0);
        sdc_fault_list_release(&a);
        sdc_fault_list_release(&b);
        sdc_fault_list_release(&again);
    }
}

static double chi_square(const unsigned *counts, const double *expected, size_t n) {
    double chi = 0;
    for (size_t i = 0; i < n; i++)
        chi += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    return chi;
}

/* 6*8 + 4*5 exponent bits: each equally often, 67 degrees of freedom, 99.9 % limit 108.53 (the
 * inverse of the incomplete gamma function); the seed is fixed. */
static void bits_are_uniform(void **state) {
    (void)state;
    unsigned counts[68] = {0};
    double expected[68];
    for (uint32_t trial = 0; trial < 20000; trial++) {
        struct sdc_fault_list list;
        assert_ok(DRAW(&list, trial, "flips", "1", "bits", "exponent"));
        assert_int_equal(list.n, 1);
        const struct sdc_fault *f = &list.faults[0];
        unsigned bit = (unsigned)__builtin_ctzll(f->bits);
        if (f->tensor == 0) {
            assert_in_range(bit, 23, 30);
            counts[f->elem * 8 + bit - 23]++;
        } else {
            assert_int_equal(f->tensor, 1); /* an integer has no exponent */
            assert_in_range(bit, 10, 14);
            counts[48 + f->elem * 5 + bit - 10]++;
        }
        sdc_fault_list_release(&list);
    }
    for (int i = 0; i < 68; i++)
        expected[i] = 20000.0 / 68;
    assert_true(chi_square(counts, expected, 68) < 108.53);
}

/* Sign and top exponent bit of ten elements: 20 sites, 190 pairs, 189 degrees of freedom, 99.9 %
 * limit 254.82. */
static void pairs_are_uniform(void **state) {
    (void)state;
    unsigned counts[20][20] = {{0}}, flat[190];
    double expected[190];
    for (uint32_t trial = 0; trial < 38000; trial++) {
        struct sdc_fault_list list;
        assert_ok(
            draw_from(all, 2, WORDS("flips", "2", "bits", "sign,top-exponent"), trial, &list));
        unsigned sites[2], n = 0;
        for (size_t i = 0; i < list.n; i++) {
            const struct sdc_fault *f = &list.faults[i];
            unsigned top = f->tensor == 0 ? 30 : 14, base = f->tensor == 0 ? 0 : 12;
            for (unsigned k = 0; k < 2; k++)
                if (f->bits >> (top + k) & 1)
                    sites[n++] = base + (unsigned)f->elem * 2 + k;
        }
        assert_int_equal(n, 2);
        assert_int_equal(list.n_sites, 2);
        counts[sites[0]][sites[1]]++;
        sdc_fault_list_release(&list);
    }
    size_t n = 0;
    for (int i = 0; i < 20; i++)
        for (int j = i + 1; j < 20; j++) {
            expected[n] = 38000.0 / 190;
            flat[n++] = counts[i][j];
        }
    assert_int_equal(n, 190);
    assert_true(chi_square(flat, expected, 190) < 254.82);
}

/* Sampling by tensors: each tensor a third, whatever its size; then elements, then bits. */
static void tensors_then_elements(void **state) {
    (void)state;
    unsigned counts[11] = {0};
    double expected[11];
    for (uint32_t trial = 0; trial < 24000; trial++) {
        struct sdc_fault_list list;
        assert_ok(DRAW(&list, trial, "flips", "1", "sample", "tensors"));
        const struct sdc_fault *f = &list.faults[0];
        static const unsigned base[] = {0, 6, 10};
        counts[base[f->tensor] + f->elem]++;
        sdc_fault_list_release(&list);
    }
    for (int i = 0; i < 11; i++)
        expected[i] = i < 6 ? 8000.0 / 6 : i < 10 ? 2000.0 : 8000.0;
    assert_true(chi_square(counts, expected, 11) < 29.6); /* 10 degrees of freedom, 99.9 % */
}

/* Two distinct sites where one tensor has a single site, worked by hand. */
static void rejection_keeps_the_distribution(void **state) {
    (void)state;
    /* tensor 0: norm's 4 sign bits; tensor 1: step's sign bit. First draw tensor 1 (1/2): the
     * second is from tensor 0, since it is full. First draw tensor 0 (1/2): tensor 1 with 1/2 a
     * try, tensor 0 again with 1/2, of which 1/4 is rejected: p = 1/2 / (1/2 + 3/8) = 4/7. */
    static const struct sdc_tensor_desc *const two[] = {&norm, &step};
    double expected[2] = {14000 * (0.5 + 0.5 * 4 / 7), 14000 * (0.5 * 3 / 7)};
    unsigned counts[2] = {0};
    for (uint32_t trial = 0; trial < 14000; trial++) {
        struct sdc_fault_list list;
        assert_ok(draw_from(two, 2, WORDS("flips", "2", "sample", "tensors", "bits", "sign"), trial,
                            &list));
        assert_int_equal(list.n, 2);
        counts[list.faults[1].tensor == 1 ? 0 : 1]++;
        sdc_fault_list_release(&list);
    }
    assert_true(chi_square(counts, expected, 2) < 10.83); /* 1 degree of freedom, 99.9 % */
}

static void whole_support_and_more(void **state) {
    (void)state;
    static const char *const samples[] = {"bits", "tensors"};
    for (int s = 0; s < 2; s++) {
        struct sdc_fault_list list;
        assert_ok(DRAW(&list, 0, "flips", "320", "sample", samples[s]));
        assert_int_equal(list.n_sites, 320);
        assert_int_equal(list.n, 11);
        for (size_t i = 0; i < list.n; i++)
            assert_true(list.faults[i].bits == (i < 6    ? UINT32_MAX
                                                : i < 10 ? UINT16_MAX
                                                         : UINT64_MAX));
        sdc_fault_list_release(&list);
        assert_status(SDC_USAGE, DRAW(&list, 0, "flips", "321", "sample", samples[s]));
        assert_message_has("321");
        assert_message_has("holds 320");
    }
}

static void exhaustive_is_every_site(void **state) {
    (void)state;
    struct sdc_fault_list list;
    assert_ok(DRAW(&list, 0, "exhaustive", "true", "bits", "msb:0", "dtype", "F32,F16"));
    assert_int_equal(list.n, 10);
    assert_int_equal(list.n_sites, 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(list.faults[i].bits, i < 6 ? 0x80000000 : 0x8000);
    sdc_fault_list_release(&list);
    assert_ok(DRAW(&list, 0, "exhaustive", "true", "op", "value=nan", "role", "weight"));
    assert_int_equal(list.n, 6);
    assert_int_equal(list.faults[5].elem, 5);
    assert_int_equal(list.faults[5].value & 0x7fffffff, 0x7fc00000);
    assert_int_equal(list.faults[5].bits, 0);
    sdc_fault_list_release(&list);
}

/* The site of a whole-element operator is the element: uniform over 11 of them. */
static void value_operator_draws_elements(void **state) {
    (void)state;
    unsigned counts[11] = {0};
    double expected[11];
    for (uint32_t trial = 0; trial < 11000; trial++) {
        struct sdc_fault_list list;
        assert_ok(DRAW(&list, trial, "flips", "1", "op", "value=1.5"));
        const struct sdc_fault *f = &list.faults[0];
        static const unsigned base[] = {0, 6, 10};
        static const uint64_t raw[] = {0x3fc00000, 0x3e00, 2};
        assert_int_equal(f->op, SDC_OP_VALUE);
        assert_int_equal(f->value, raw[f->tensor]);
        counts[base[f->tensor] + f->elem]++;
        sdc_fault_list_release(&list);
    }
    for (int i = 0; i < 11; i++)
        expected[i] = 1000.0;
    assert_true(chi_square(counts, expected, 11) < 29.6);
}

static void nothing_to_alter(void **state) {
    (void)state;
    struct sdc_fault_list list;
    assert_ok(DRAW(&list, 0, "flips", "0"));
    assert_true(list.n == 0 && list.n_sites == 0 && !list.faults);
    assert_ok(DRAW(&list, 0, "flips", "5", "tensors", "nothing*"));
    assert_true(list.n == 0 && list.n_sites == 0);
    assert_ok(DRAW(&list, 0, "flips", "5", "sample", "tensors", "part", "optimizer"));
    assert_true(list.n == 0 && list.n_sites == 0);
    assert_ok(DRAW(&list, 0, "exhaustive", "true", "dtype", "U8"));
    assert_true(list.n == 0 && list.n_sites == 0);
    assert_ok(DRAW(&list, 0, "flips", "5", "bits", "lsb:63", "dtype", "F16"));
    assert_true(list.n == 0 && list.n_sites == 0);
}

static void named_sites(void **state) {
    (void)state;
    struct sdc_fault_list list;
    static const struct site want[] = {{0, 1, 0}, {0, 4, 30}, {0, 4, 31}, {2, 0, 0}};
    assert_ok(DRAW(&list, 0, "at", "loop/step@lsb:0", "at", "model/conv.weight[1,1]@msb:0", "at",
                   "model/conv.weight[0,1]@lsb:0", "at", "model/conv.weight[1,1]@top-exponent"));
    assert_sites(&list, want, 4);
    assert_int_equal(list.n, 3);
    sdc_fault_list_release(&list);
    assert_ok(DRAW(&list, 0, "at", "model/conv.weight[1,1]", "op", "value=-inf"));
    assert_int_equal(list.n, 1);
    assert_int_equal(list.faults[0].value, 0xff800000);
    sdc_fault_list_release(&list);
}

static void wrong_named_sites(void **state) {
    (void)state;
    static const struct {
        const char *at, *has;
        enum sdc_status status;
        const char *key, *value;
    } cases[] = {
        {"model/conv.wieght[0,0]@lsb:0", "did you mean 'model/conv.weight'", SDC_USAGE, NULL, NULL},
        {"norm.weight[0]@lsb:0", "did you mean 'model/norm.weight'", SDC_USAGE, NULL, NULL},
        {"zzz[0]@lsb:0", "no tensor is named 'zzz'", SDC_USAGE, NULL, NULL},
        {"model/conv.weight[2,0]@lsb:0", "site model/conv.weight[2,0]", SDC_USAGE, NULL, NULL},
        {"model/conv.weight[1]@lsb:0", "site model/conv.weight[1]", SDC_USAGE, NULL, NULL},
        {"model/conv.weight[0,0]@lsb:32", "F32 has no such bit", SDC_USAGE, NULL, NULL},
        {"loop/step@top-exponent", "I64 has no such bit", SDC_USAGE, NULL, NULL},
        {"model/conv.weight[0,0]", "no bit is named", SDC_USAGE, NULL, NULL},
        {"model/zipped.weight[0]@lsb:0", "stored with filter deflate", SDC_UNSUPPORTED, NULL, NULL},
        {"model/conv.weight[0,0]@lsb:0", "not in the support", SDC_USAGE, "part", "loop"},
        {"model/conv.weight[0,0]@lsb:0", "see --bits", SDC_USAGE, "bits", "exponent"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_fault_list list;
        assert_status(cases[i].status,
                      draw_from(with_odd, 5, WORDS("at", cases[i].at, cases[i].key, cases[i].value),
                                0, &list));
        assert_message_has(cases[i].has);
    }
    struct sdc_fault_list list;
    assert_status(SDC_USAGE, DRAW(&list, 0, "at", "model/norm.weight[2]@lsb:5", "at",
                                  "model/norm.weight[2]@msb:10"));
    assert_message_has("model/norm.weight[2] is named twice");
}

static void operators_and_their_inverse(void **state) {
    (void)state;
    struct sdc_fault flip = {.op = SDC_OP_FLIP, .bits = 0x40000001};
    assert_int_equal(sdc_fault_apply(&flip, SDC_DTYPE_F32, 0x3d4ccccd, 0), 0x7d4ccccc);
    assert_int_equal(sdc_fault_apply(&flip, SDC_DTYPE_F32, 0x7d4ccccc, 0), 0x3d4ccccd);
    assert_int_equal(sdc_fault_apply(&flip, SDC_DTYPE_F32, 0x7f800001, 0), 0x3f800000);
    struct sdc_fault value = {.op = SDC_OP_VALUE, .value = 0x7fc00000};
    assert_int_equal(sdc_fault_apply(&value, SDC_DTYPE_F32, 0x3d4ccccd, 0), 0x7fc00000);
    assert_int_equal(sdc_fault_apply(&value, SDC_DTYPE_F32, 0x7fc00000, 0), 0x7fc00000);
}

static void lists_map_to_other_tensors(void **state) {
    (void)state;
    struct sdc_fault_list list, before;
    assert_ok(DRAW(&list, 3, "flips", "6"));
    assert_ok(DRAW(&before, 3, "flips", "6"));
    static const uint32_t swap[] = {1, 0, 2}, merge[] = {0, 0, 2}, none[] = {1, UINT32_MAX, 2};
    assert_ok(sdc_fault_list_map(&list, swap, 3, &err));
    size_t k = 0;
    for (uint32_t t = 0; t < 3; t++)
        for (size_t i = 0; i < before.n; i++)
            if (swap[before.faults[i].tensor] == t) {
                assert_int_equal(list.faults[k].tensor, t);
                assert_int_equal(list.faults[k].elem, before.faults[i].elem);
                assert_int_equal(list.faults[k++].bits, before.faults[i].bits);
            }
    assert_status(SDC_USAGE, sdc_fault_list_map(&list, none, 3, &err));
    assert_message_has("tensor 1 has no counterpart");
    assert_status(SDC_USAGE, sdc_fault_list_map(&list, swap, 1, &err));
    assert_status(SDC_USAGE, sdc_fault_list_map(&list, merge, 3, &err));
    assert_message_has("two faults map to element");
    sdc_fault_list_release(&list);
    sdc_fault_list_release(&before);
}

/* 2^63 elements of 64 bits: the numbering would wrap. */
static void limits(void **state) {
    (void)state;
    static const uint64_t shape[] = {1ull << 60, 8};
    struct sdc_tensor_desc huge = step, large = step;
    huge.rank = large.rank = 2;
    huge.shape = large.shape = shape;
    huge.n_elems = 1ull << 63;
    large.n_elems = 1ull << 40;
    const struct sdc_tensor_desc *descs[] = {&huge}, *fits[] = {&large};
    struct sdc_fault_list list;
    assert_status(SDC_LIMIT, draw_from(descs, 1, WORDS("flips", "1"), 0, &list));
    assert_status(SDC_LIMIT, draw_from(fits, 1, WORDS("flips", "100000001"), 0, &list));
    assert_status(SDC_LIMIT, draw_from(fits, 1, WORDS("exhaustive", "true"), 0, &list));
    assert_ok(draw_from(fits, 1, WORDS("flips", "3"), 0, &list));
    assert_int_equal(list.n_sites, 3);
    sdc_fault_list_release(&list);
}

static void out_of_memory_is_reported(void **state) {
    (void)state;
    struct sdc_choice flips, named;
    sdc_choice_init(&flips);
    sdc_choice_init(&named);
    assert_ok(sdc_choice_set(&flips, "flips", "20", &err));
    assert_ok(sdc_choice_set(&flips, "sample", "tensors", &err));
    assert_ok(sdc_choice_set(&named, "at", "model/norm.weight[2]@lsb:5", &err));
    const struct sdc_choice *choices[] = {&flips, &named};
    for (int c = 0; c < 2; c++) {
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            struct sdc_support *support = NULL;
            struct sdc_fault_list list = {0};
            struct sdc_rng rng;
            sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
            sdc__alloc_fail_at(n);
            enum sdc_status st = sdc_support_new(all, 3, choices[c], &support, &err);
            if (st == SDC_OK)
                st = sdc_fault_list_draw(support, choices[c], &rng, &list, &err);
            sdc__alloc_fail_at(0);
            failed = st != SDC_OK;
            assert_true(st == SDC_OK || st == SDC_NO_MEMORY);
            assert_true(n < 50);
            sdc_fault_list_release(&list);
            sdc_support_free(support);
        }
    }
    sdc_choice_release(&flips);
    sdc_choice_release(&named);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_lists),
        cmocka_unit_test(only_the_support_matters),
        cmocka_unit_test(bits_are_uniform),
        cmocka_unit_test(pairs_are_uniform),
        cmocka_unit_test(tensors_then_elements),
        cmocka_unit_test(rejection_keeps_the_distribution),
        cmocka_unit_test(whole_support_and_more),
        cmocka_unit_test(exhaustive_is_every_site),
        cmocka_unit_test(value_operator_draws_elements),
        cmocka_unit_test(nothing_to_alter),
        cmocka_unit_test(named_sites),
        cmocka_unit_test(wrong_named_sites),
        cmocka_unit_test(operators_and_their_inverse),
        cmocka_unit_test(lists_map_to_other_tensors),
        cmocka_unit_test(limits),
        cmocka_unit_test(out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
