/* SPDX-License-Identifier: Apache-2.0
 *
 * Every sampler against the distribution that its definition gives: 10^6 draws, fixed seeds.
 */
#include "sample_kit.h"

static struct sdc_error err;

#define DRAWS      1000000
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* DRAWS lists of one site each, from one stream. */
static void hits_of(const char *const words[], bool elements, uint32_t stream, struct kit_hits *h) {
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_rng rng;
    kit_choice(&choice, words);
    memset(h, 0, sizeof *h);
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, stream);
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (int i = 0; i < DRAWS; i++) {
        struct sdc_fault_list list;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        assert_int_equal(list.n_sites, 1);
        kit_count(h, &list, elements);
        sdc_fault_list_release(&list);
    }
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

/* What one site of tensor t has, over all bits of mask. */
static void spread(struct kit_hits *share, int t, uint64_t mask, double each) {
    for (uint64_t e = 0; e < kit[t]->n_elems; e++)
        for (uint64_t bits = mask; bits; bits &= bits - 1)
            share->n[t][e][__builtin_ctzll(bits)] += each;
}

static const uint64_t every_bit[KIT_TENSORS] = {UINT32_MAX, UINT16_MAX, UINT8_MAX, 15, UINT64_MAX};
static const double widths[KIT_TENSORS] = {32, 16, 8, 4, 64};
static const double n_elems[KIT_TENSORS] = {6, 4, 3, 5, 1};

/* 6*32 + 4*16 + 3*8 + 5*4 + 64 = 364 bits. */
static void bits_alike(void **state) {
    (void)state;
    static struct kit_hits hits, share;
    for (int t = 0; t < KIT_TENSORS; t++)
        spread(&share, t, every_bit[t], 1.0 / 364);
    hits_of(WORDS("flips", "1"), false, 1, &hits);
    kit_assert_fits(&hits, &share, DRAWS);
}

static void tensors_alike(void **state) {
    (void)state;
    static struct kit_hits hits, share;
    for (int t = 0; t < KIT_TENSORS; t++)
        spread(&share, t, every_bit[t], 1.0 / 5 / n_elems[t] / widths[t]);
    hits_of(WORDS("flips", "1", "sample", "tensors"), false, 2, &hits);
    kit_assert_fits(&hits, &share, DRAWS);
    hits_of(WORDS("flips", "1", "sample", "attempts"), false, 3, &hits);
    kit_assert_fits(&hits, &share, DRAWS);
}

static void elements_alike(void **state) {
    (void)state;
    static struct kit_hits hits, share;
    for (int t = 0; t < KIT_TENSORS; t++)
        spread(&share, t, every_bit[t], 1.0 / 19 / widths[t]);
    hits_of(WORDS("flips", "1", "sample", "elements"), false, 4, &hits);
    kit_assert_fits(&hits, &share, DRAWS);
}

/* Exponents: of F32 bits 23 to 30, one bit of byte 2 and seven of byte 3; of F16 bits 10 to 14, in
 * byte 1; of E4M3 bits 3 to 6; of F4 bits 1 and 2, two elements a byte; the integer has none. So
 * 12 + 4 + 3 + 2.5 bytes. */
static void bytes_alike(void **state) {
    (void)state;
    static struct kit_hits hits, share;
    spread(&share, 0, 1u << 23, 1.0 / 21.5);
    spread(&share, 0, 0x7f000000, 1.0 / 21.5 / 7);
    spread(&share, 1, 0x7c00, 1.0 / 21.5 / 5);
    spread(&share, 2, 0x78, 1.0 / 21.5 / 4);
    spread(&share, 3, 6, 0.5 / 21.5 / 2);
    hits_of(WORDS("flips", "1", "sample", "bytes", "bits", "exponent"), false, 5, &hits);
    kit_assert_fits(&hits, &share, DRAWS);
}

/* Whole elements: by bytes an element counts as many times as it has bytes. */
static void whole_elements(void **state) {
    (void)state;
    static struct kit_hits hits, share[3];
    for (int t = 0; t < KIT_TENSORS; t++) {
        spread(&share[0], t, 1, 1.0 / 19);
        spread(&share[1], t, 1, widths[t] / 364);
        spread(&share[2], t, 1, 1.0 / 5 / n_elems[t]);
    }
    hits_of(WORDS("flips", "1", "op", "random"), true, 6, &hits);
    kit_assert_fits(&hits, &share[0], DRAWS);
    hits_of(WORDS("flips", "1", "sample", "elements", "op", "scale=2"), true, 7, &hits);
    kit_assert_fits(&hits, &share[0], DRAWS);
    hits_of(WORDS("flips", "1", "sample", "bytes", "op", "value=0"), true, 8, &hits);
    kit_assert_fits(&hits, &share[1], DRAWS);
    hits_of(WORDS("flips", "1", "sample", "tensors", "op", "mask=1"), true, 9, &hits);
    kit_assert_fits(&hits, &share[2], DRAWS);
}

/* Sign, top exponent, other exponent, mantissa, and of the integer sign and rest: 18 strata. One
 * draw goes to each with the same chance, and a site's weight is one over its own. */
static void strata_alike(void **state) {
    (void)state;
    static struct kit_hits hits, share;
    static const uint64_t strata[KIT_TENSORS][4] = {
        {0x80000000, 0x40000000, 0x3f800000, 0x007fffff},
        {0x8000, 0x4000, 0x3c00, 0x03ff},
        {0x80, 0x40, 0x38, 0x07},
        {8, 4, 2, 1},
        {1ull << 63, INT64_MAX}};
    for (int t = 0; t < KIT_TENSORS; t++)
        for (int k = 0; k < (t == 4 ? 2 : 4); k++)
            spread(&share, t, strata[t][k],
                   1.0 / 18 / n_elems[t] / __builtin_popcountll(strata[t][k]));
    hits_of(WORDS("flips", "1", "sample", "stratified"), false, 10, &hits);
    kit_assert_fits(&hits, &share, DRAWS);
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_rng rng;
    kit_choice(&choice, WORDS("flips", "1", "sample", "stratified"));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 11);
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (int i = 0; i < 200; i++) {
        struct sdc_fault_list list;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        const struct sdc_fault *f = &list.faults[0];
        assert_true(fabs(f->weight * share.n[f->tensor][f->elem][__builtin_ctzll(f->bits)] - 1) <
                    1e-9);
        sdc_fault_list_release(&list);
    }
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

/* 60 draws over 18 strata: three each at first; the sign, top and other strata of small tensors
 * have fewer sites than their share, which the others get. By hand: sizes 6, 6, 42, 138 (a), 4, 4,
 * 16, 40 (b), 3, 3, 9, 9 (c), 5, 5, 5, 5 (d), 1, 63 (e). With 3 each 52 (one has 1 only, all others
 * at least 3), 8 more for 8 of the 15 with over 3. */
static void strata_get_the_same(void **state) {
    (void)state;
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_rng rng;
    double in_total = 0;
    kit_choice(&choice, WORDS("flips", "60", "sample", "stratified"));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 12);
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (int i = 0; i < 50; i++) {
        struct sdc_fault_list list;
        unsigned per[KIT_TENSORS][4] = {{0}}, fours = 0;
        double weights = 0;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        assert_int_equal(list.n_sites, 60);
        for (size_t k = 0; k < list.n; k++) {
            const struct sdc_fault *f = &list.faults[k];
            weights += f->weight;
            if (k > 0)
                assert_true(f[-1].tensor < f->tensor ||
                            (f[-1].tensor == f->tensor && f[-1].elem < f->elem));
            for (uint64_t bits = f->bits; bits; bits &= bits - 1) {
                unsigned b = (unsigned)__builtin_ctzll(bits);
                enum sdc_dtype d = kit[f->tensor]->dtype;
                enum sdc_num_field field = sdc_num_field(d, b);
                int top = sdc_num_top_exponent_bit(d);
                per[f->tensor][field == SDC_FIELD_SIGN       ? 0
                               : (int)b == top               ? 1
                               : field == SDC_FIELD_EXPONENT ? 2
                                                             : 3]++;
            }
        }
        for (int t = 0; t < KIT_TENSORS; t++)
            for (int k = 0; k < 4; k++) {
                if (t == 4 && k < 3) {
                    assert_int_equal(per[t][k], k == 0);
                    continue;
                }
                assert_in_range(per[t][k], 3, t == 2 && k < 2 ? 3 : 4);
                fours += per[t][k] == 4;
            }
        assert_int_equal(fours, 8);
        assert_true(fabs(weights - 364) < 1e-9); /* they stand for every site */
        in_total += weights;
        sdc_fault_list_release(&list);
    }
    assert_true(in_total > 0);
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

/* Each of the 364 bits independently with 0.3, and neighbours no more often together than by
 * chance. */
static void every_site_with_its_rate(void **state) {
    (void)state;
    static struct kit_hits hits;
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_rng rng;
    const double p = 0.3, n = 3000;
    double total = 0, squares = 0, pairs = 0, chi = 0;
    kit_choice(&choice, WORDS("rate", "0.3"));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 13);
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (int i = 0; i < (int)n; i++) {
        struct sdc_fault_list list;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        kit_count(&hits, &list, false);
        total += (double)list.n_sites;
        squares += (double)list.n_sites * (double)list.n_sites;
        for (size_t k = 0; k < list.n; k++)
            pairs += __builtin_popcountll(list.faults[k].bits & list.faults[k].bits >> 1);
        sdc_fault_list_release(&list);
    }
    for (int t = 0; t < KIT_TENSORS; t++)
        for (int e = 0; e < (int)n_elems[t]; e++)
            for (int b = 0; b < (int)widths[t]; b++) {
                double d = hits.n[t][e][b] - n * p;
                chi += d * d / (n * p * (1 - p));
            }
    assert_true(chi < 471); /* 364 degrees of freedom, 1 in 10,000 */
    double mean = total / n, variance = squares / n - mean * mean;
    assert_true(fabs(mean - 364 * p) < 4 * sqrt(364 * p * (1 - p) / n));
    assert_true(fabs(variance / (364 * p * (1 - p)) - 1) < 4 * sqrt(2 / n));
    double n_pairs = 364 - 19; /* within elements */
    assert_true(fabs(pairs / (n * n_pairs * p * p) - 1) < 0.01);
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

static uint64_t sites_of_rate(const char *rate, uint64_t n_bits, uint32_t stream) {
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_fault_list list;
    struct sdc_rng rng;
    const uint64_t shape[] = {n_bits / 32};
    struct sdc_tensor_desc large = kit_descs[0];
    const struct sdc_tensor_desc *const one[] = {&large};
    large.shape = shape;
    large.n_elems = shape[0];
    kit_choice(&choice, WORDS("rate", rate));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, stream);
    assert_ok(sdc_support_new(one, 1, &choice, &support, &err));
    assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
    uint64_t n = list.n_sites;
    sdc_fault_list_release(&list);
    sdc_support_free(support);
    sdc_choice_release(&choice);
    return n;
}

/* Nothing and everything, and rates so small that 1 - rate is 1: of 2^45 bits with 1e-18 none
 * comes, with 2^-40 about 32 do. */
static void rates_at_the_ends(void **state) {
    (void)state;
    assert_int_equal(sites_of_rate("0", 1 << 20, 1), 0);
    assert_int_equal(sites_of_rate("1", 1 << 20, 1), 1 << 20);
    assert_int_equal(sites_of_rate("1e-18", 1ull << 45, 1), 0);
    double sum = 0;
    for (uint32_t i = 0; i < 100; i++)
        sum += (double)sites_of_rate("9.094947017729282e-13", 1ull << 45, i);
    assert_true(fabs(sum - 3200) < 4 * sqrt(3200));
    sum = 0;
    for (uint32_t i = 0; i < 100; i++)
        sum += (double)sites_of_rate("0.999", 32000, i);
    assert_true(fabs(sum - 100 * 31968) < 4 * sqrt(100 * 32));
}

/* A tensor of 10 elements beside one of 100,000: the published tool was seen to give 515 of 1,000
 * hits to the small one. */
static void attempts_prefer_small_tensors(void **state) {
    (void)state;
    static const uint64_t small_shape[] = {10}, large_shape[] = {100000};
    struct sdc_tensor_desc small = kit_descs[0], large = kit_descs[0];
    const struct sdc_tensor_desc *const two[] = {&small, &large};
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_fault_list list;
    struct sdc_rng rng;
    small.shape = small_shape;
    small.n_elems = 10;
    large.shape = large_shape;
    large.n_elems = 100000;
    unsigned in_small = 0;
    kit_choice(&choice, WORDS("flips", "1", "compat", "hdf5-corrupter"));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 14);
    assert_ok(sdc_support_new(two, 2, &choice, &support, &err));
    for (int i = 0; i < DRAWS; i++) {
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        in_small += list.faults[0].tensor == 0;
        sdc_fault_list_release(&list);
    }
    assert_true(fabs(in_small - DRAWS / 2.0) < 3.9 * sqrt(DRAWS / 4.0));
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

/* Attempts are counted whether they take place or not, and one that hits what an earlier one
 * flipped flips it back: of 100 over 64 bits those with an odd number of hits are left. */
static void attempts_are_counted(void **state) {
    (void)state;
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_rng rng;
    double happened = 0, left = 0;
    const int n = 2000;
    kit_choice(&choice, WORDS("flips", "100", "sample", "attempts", "rate", "0.4", "tensors", "e"));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 15);
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (int i = 0; i < n; i++) {
        struct sdc_fault_list list;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        assert_int_equal(list.attempts, 100);
        assert_true((list.happened - list.n_sites) % 2 == 0);
        assert_true(list.n <= 1 &&
                    list.n_sites ==
                        (list.n ? (uint64_t)__builtin_popcountll(list.faults[0].bits) : 0));
        happened += (double)list.happened;
        left += (double)list.n_sites;
        sdc_fault_list_release(&list);
    }
    assert_true(fabs(happened / n - 40) < 4 * sqrt(24.0 / n));
    /* a bit is hit an odd number of times with (1 - (1 - 2 * 0.4 / 64)^100) / 2 */
    double odd = (1 - pow(1 - 0.8 / 64, 100)) / 2;
    assert_true(fabs(left / n - 64 * odd) < 4 * sqrt(64 * odd * (1 - odd) / n));
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

/* Every site that there is, once, by every sampler; one more is too many. */
static void whole_support(void **state) {
    (void)state;
    static const char *const samples[] = {"bits", "tensors", "elements", "bytes", "stratified"};
    for (int s = 0; s < 5; s++) {
        struct sdc_choice choice;
        struct sdc_support *support;
        struct sdc_fault_list list;
        struct sdc_rng rng;
        kit_choice(&choice, WORDS("flips", "364", "sample", samples[s]));
        sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 16);
        assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
        assert_int_equal(sdc_support_sites(support), 364);
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        assert_int_equal(list.n, 19);
        assert_int_equal(list.n_sites, 364);
        for (size_t i = 0; i < list.n; i++)
            assert_true(list.faults[i].bits == every_bit[list.faults[i].tensor]);
        sdc_fault_list_release(&list);
        choice.flips = 365;
        assert_status(SDC_USAGE, sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        assert_message_has("the support holds 364");
        sdc_support_free(support);
        sdc_choice_release(&choice);
    }
}

/* Several of a list are distinct and, in pairs, as likely as each other: of two exponent bits drawn
 * by elements from one tensor every pair. 6 * 8 = 48 sites, 1128 pairs. */
static void pairs_of_elements(void **state) {
    (void)state;
    static unsigned count[48][48];
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_rng rng;
    const int n = 200000;
    double chi = 0;
    kit_choice(&choice,
               WORDS("flips", "2", "sample", "elements", "bits", "exponent", "tensors", "a"));
    sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 0, 17);
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (int i = 0; i < n; i++) {
        struct sdc_fault_list list;
        unsigned site[2], k = 0;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        assert_int_equal(list.n_sites, 2);
        for (size_t f = 0; f < list.n; f++)
            for (uint64_t bits = list.faults[f].bits; bits; bits &= bits - 1)
                site[k++] =
                    (unsigned)list.faults[f].elem * 8 + (unsigned)__builtin_ctzll(bits) - 23;
        assert_int_equal(k, 2);
        count[site[0]][site[1]]++;
        sdc_fault_list_release(&list);
    }
    for (int i = 0; i < 48; i++)
        for (int k = i + 1; k < 48; k++)
            chi += (count[i][k] - n / 1128.0) * (count[i][k] - n / 1128.0) / (n / 1128.0);
    assert_true(chi < 1307); /* 1127 degrees of freedom, 1 in 10,000 */
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

/* What is drawn besides sites: any other pattern of 8 bits, any other element, any two of 8 bits.
 */
static void drawn_values(void **state) {
    (void)state;
    static const struct {
        const char *op, *tensor;
        unsigned kinds;
    } cases[] = {{"random", "c", 255}, {"swap", "a", 5}, {"flip=2", "c", 28}};
    for (int c = 0; c < 3; c++) {
        struct sdc_choice choice;
        struct sdc_support *support;
        struct sdc_rng rng;
        unsigned count[256] = {0};
        const int n = 100000;
        double chi = 0;
        kit_choice(&choice, WORDS("flips", "1", "op", cases[c].op, "tensors", cases[c].tensor));
        assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
        for (int i = 0; i < n; i++) {
            struct sdc_fault_list list;
            sdc_rng_init(&rng, 2022, SDC_RNG_TEST, (uint32_t)c, (uint32_t)i);
            assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
            const struct sdc_fault *f = &list.faults[0];
            if (c == 0) {
                uint64_t is = sdc_fault_apply(f, SDC_DTYPE_F8_E4M3, 0x38, 0);
                assert_true(is != 0x38 && is < 256);
                count[is]++;
            } else if (c == 1) {
                assert_true(f->value != f->elem && f->value < 6);
                count[(f->value + 6 - f->elem) % 6]++;
            } else {
                assert_int_equal(__builtin_popcountll(f->bits), 2);
                count[f->bits]++;
            }
            sdc_fault_list_release(&list);
        }
        unsigned kinds = 0;
        double each = (double)n / cases[c].kinds, k = cases[c].kinds - 1;
        for (int i = 0; i < 256; i++)
            if (count[i]) {
                kinds++;
                chi += (count[i] - each) * (count[i] - each) / each;
            }
        assert_int_equal(kinds, cases[c].kinds);
        assert_true(chi < k * pow(1 - 2 / (9 * k) + 3.719 * sqrt(2 / (9 * k)), 3));
        sdc_support_free(support);
        sdc_choice_release(&choice);
    }
}

/* The numbers of a stream are used as the header says; worked out with sdc_rng alone. */
static void streams_as_described(void **state) {
    (void)state;
    struct sdc_choice choice;
    struct sdc_support *support;
    struct sdc_fault_list list;
    struct sdc_rng rng, again;
    kit_choice(&choice, WORDS("flips", "1", "sample", "elements"));
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    for (uint32_t i = 0; i < 50; i++) {
        static const uint64_t first[] = {0, 6, 10, 13, 18, 19};
        uint32_t t = 0;
        sdc_rng_init(&rng, 7, SDC_RNG_FAULT_SITES, 1, i);
        again = rng;
        assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
        uint64_t x = sdc_rng_below(&again, 19);
        while (x >= first[t + 1])
            t++;
        assert_int_equal(list.faults[0].tensor, t);
        assert_int_equal(list.faults[0].elem, x - first[t]);
        assert_true(list.faults[0].bits == 1ull << sdc_rng_below(&again, (uint64_t)widths[t]));
        sdc_fault_list_release(&list);
    }
    sdc_support_free(support);
    sdc_choice_release(&choice);
    kit_choice(&choice, WORDS("flips", "2", "op", "random", "tensors", "a"));
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &choice, &support, &err));
    sdc_rng_init(&rng, 7, SDC_RNG_FAULT_SITES, 1, 3);
    sdc_rng_init(&again, 7, SDC_RNG_FAULT_VALUES, 1, 3);
    assert_ok(sdc_fault_list_draw(support, &choice, &rng, &list, &err));
    for (int i = 0; i < 2; i++)
        assert_int_equal(list.faults[i].value, sdc_rng_below(&again, UINT32_MAX));
    sdc_fault_list_release(&list);
    sdc_support_free(support);
    sdc_choice_release(&choice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_alike),           cmocka_unit_test(tensors_alike),
        cmocka_unit_test(elements_alike),       cmocka_unit_test(bytes_alike),
        cmocka_unit_test(whole_elements),       cmocka_unit_test(strata_alike),
        cmocka_unit_test(strata_get_the_same),  cmocka_unit_test(every_site_with_its_rate),
        cmocka_unit_test(rates_at_the_ends),    cmocka_unit_test(attempts_prefer_small_tensors),
        cmocka_unit_test(attempts_are_counted), cmocka_unit_test(whole_support),
        cmocka_unit_test(pairs_of_elements),    cmocka_unit_test(drawn_values),
        cmocka_unit_test(streams_as_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
