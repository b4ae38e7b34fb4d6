/* SPDX-License-Identifier: Apache-2.0
 *
 * Sites whose result is refused leave the support: against looking at every site one by one.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "sample_kit.h"

static struct sdc_error err;

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Near an infinity in the top exponent bit or in any, infinities, NaN, zeros, ordinary numbers. */
static const uint64_t values[KIT_TENSORS][6] = {
    {0x3f800000, 0x3fc00000, 0x7f000000, 0x7f800000, 0x7fc00001, 0x3dcccccd},
    {0x3c00, 0x7c00, 0x0000, 0x5c01},
    {0x7e, 0x77, 0x38},
    {0x7, 0x6, 0x5, 0x4, 0x0},
    {300}};
static unsigned reads_until_failure;

static enum sdc_status read_kit(void *user, size_t tensor, uint64_t first, uint64_t n,
                                void *elements, struct sdc_error *e) {
    const struct sdc_tensor_desc *const *descs = user;
    const enum sdc_dtype d = descs[tensor]->dtype;
    unsigned char *to = elements;
    if (reads_until_failure > 0 && --reads_until_failure == 0)
        return SDC_ERR(e, SDC_IO, "no value today");
    for (uint64_t i = 0; i < n; i++)
        sdc_num_store(d, values[tensor][first + i], to + i * sdc_dtype_bytes(d),
                      __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    return SDC_OK;
}

static bool is_refused(const struct sdc_choice *c, enum sdc_dtype d, uint64_t raw) {
    return c->not_result >> sdc_num_class(d, raw) & 1;
}

/* Which sites are left, by applying the operator to each. */
static void brute_force(const struct sdc_choice *c, struct kit_hits *left, double *n) {
    memset(left, 0, sizeof *left);
    *n = 0;
    for (int t = 0; t < KIT_TENSORS; t++)
        for (uint64_t e = 0; e < kit[t]->n_elems; e++)
            for (unsigned b = 0; b < 64; b++) {
                enum sdc_dtype d = kit[t]->dtype;
                uint64_t raw = values[t][e], is = raw,
                         all =
                             sdc_dtype_bits(d) < 64 ? (1ull << sdc_dtype_bits(d)) - 1 : UINT64_MAX;
                if (!(sdc_choice_bits(c, d) >> b & 1))
                    continue;
                if (c->op == SDC_OP_FLIP)
                    is = raw ^ 1ull << b;
                else if (c->op == SDC_OP_SET0)
                    is = raw & ~(1ull << b);
                else if (c->op == SDC_OP_SET1)
                    is = raw | 1ull << b;
                else if (c->op == SDC_OP_BURST)
                    is = raw ^ (((1ull << c->count) - 1) << b & all);
                else
                    is = raw ^ c->mask << b;
                if (is_refused(c, d, is))
                    continue;
                left->n[t][e][b] = 1;
                *n += 1;
            }
}

static struct sdc_support *reduced(const struct sdc_choice *c) {
    struct sdc_support *support;
    assert_ok(sdc_support_new(kit, KIT_TENSORS, c, &support, &err));
    assert_ok(sdc_support_reduce(support, read_kit, (void *)(uintptr_t)kit, &err));
    return support;
}

/* Every operator on bits, every class, every way to take all of the support. */
static void what_is_left(void **state) {
    (void)state;
    static const char *const ops[] = {"flip",    "set0",     "set1",      "burst=2",
                                      "burst=9", "mask=3/2", "mask=81/8", "mask=401/11"};
    static const char *const classes[] = {"nan", "inf", "nan,inf"};
    static const char *const ways[] = {"bits", "tensors", "elements", "bytes", "stratified"};
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
        for (size_t k = 0; k < 3; k++)
            for (size_t w = 0; w < 6; w++) {
                static struct kit_hits left, got;
                struct sdc_choice c;
                struct sdc_fault_list list;
                struct sdc_rng rng;
                double n, all;
                kit_choice(&c, WORDS("op", ops[o], "not-result", "none", "sample", ways[w % 5]));
                brute_force(&c, &left, &all);
                assert_ok(sdc_choice_set(&c, "not-result", classes[k], &err));
                brute_force(&c, &left, &n);
                struct sdc_support *support = reduced(&c);
                assert_int_equal(sdc_support_sites(support), n);
                assert_int_equal(sdc_support_removed(support), all - n);
                if (w == 5)
                    c.mode = SDC_CHOICE_EXHAUSTIVE;
                c.flips = (uint64_t)n;
                sdc_rng_init(&rng, 1, SDC_RNG_TEST, 1, 1);
                assert_ok(sdc_fault_list_draw(support, &c, &rng, &list, &err));
                assert_int_equal(list.n_sites, n);
                memset(&got, 0, sizeof got);
                kit_count(&got, &list, false);
                if (c.op != SDC_OP_BURST && c.op != SDC_OP_MASK)
                    assert_memory_equal(&got, &left, sizeof got);
                if (w < 5) {
                    sdc_fault_list_release(&list);
                    c.flips++;
                    assert_status(SDC_USAGE, sdc_fault_list_draw(support, &c, &rng, &list, &err));
                } else {
                    sdc_fault_list_release(&list);
                }
                sdc_support_free(support);
                sdc_choice_release(&c);
            }
}

/* The distribution is that of the sampler, given that the site is one that is left. */
static void conditional_distributions(void **state) {
    (void)state;
    static const char *const ways[] = {"bits", "tensors", "elements", "bytes", "attempts"};
    static const double width[KIT_TENSORS] = {32, 16, 8, 4, 64};
    for (uint32_t w = 0; w < 5; w++) {
        static struct kit_hits share, hits;
        struct sdc_choice c;
        struct sdc_rng rng;
        const int draws = 300000;
        double n, sum = 0;
        kit_choice(&c, WORDS("flips", "1", "not-result", "nan,inf", "sample", ways[w]));
        brute_force(&c, &share, &n);
        for (int t = 0; t < KIT_TENSORS; t++)
            for (int e = 0; e < 6; e++)
                for (int b = 0; b < 64; b++) {
                    share.n[t][e][b] *= w == 2             ? 1 / width[t]
                                        : w == 1 || w == 4 ? 1 / width[t] / (double)kit[t]->n_elems
                                                           : 1;
                    sum += share.n[t][e][b];
                }
        for (int t = 0; t < KIT_TENSORS; t++)
            for (int e = 0; e < 6; e++)
                for (int b = 0; b < 64; b++)
                    share.n[t][e][b] /= sum;
        struct sdc_support *support = reduced(&c);
        memset(&hits, 0, sizeof hits);
        sdc_rng_init(&rng, 2022, SDC_RNG_TEST, 2, w);
        for (int i = 0; i < draws; i++) {
            struct sdc_fault_list list;
            assert_ok(sdc_fault_list_draw(support, &c, &rng, &list, &err));
            kit_count(&hits, &list, false);
            sdc_fault_list_release(&list);
        }
        kit_assert_fits(&hits, &share, draws);
        sdc_support_free(support);
        sdc_choice_release(&c);
    }
}

/* Operators on elements: only those leave that cannot come out otherwise, and what is drawn besides
 * sites is drawn until it is allowed. */
static void whole_elements(void **state) {
    (void)state;
    static const struct {
        const char *op, *bits, *not_result;
        uint64_t left; /* of 19, by hand */
    } cases[] = {
        {"value=nan", "any", "nan", 6}, /* F4 and the integer have none, and take 0 */
        {"value=inf", "any", "inf", 9}, /* of E4M3 it is NaN */
        {"value=inf", "any", "nan,inf", 6},
        {"scale=1", "any", "nan", 18}, /* one NaN stays */
        {"scale=1", "any", "nan,inf", 16},
        {"scale=3", "any", "inf",
         16}, /* a[2] is 2^127; a[3] and b[1] are infinities; 0x5c01 * 3 fits */
        {"scale=2", "any", "nan", 16}, /* a[4]; c[0] = 448 and c[1] = 240 overflow but 240 * 2 is
                                          480, above 464: NaN */
        {"mask=80", "any", "nan", 11}, /* of 14, since F4 does not hold it; two infinities, a NaN */
        {"random", "any", "nan,inf", 19},
        {"flip=2", "mantissa", "nan,inf", 10}, /* of 13; those three stay special */
        {"flip=3", "any", "nan,inf", 19},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        struct sdc_fault_list list;
        struct sdc_rng rng;
        uint64_t left = 0;
        kit_choice(&c, WORDS("exhaustive", "true", "op", cases[i].op, "not-result",
                             cases[i].not_result, "bits", cases[i].bits));
        struct sdc_support *support = reduced(&c);
        for (uint32_t trial = 0; trial < 200; trial++) {
            sdc_rng_init(&rng, 3, SDC_RNG_TEST, 3, trial);
            assert_ok(sdc_fault_list_draw(support, &c, &rng, &list, &err));
            left = list.n;
            for (size_t k = 0; k < list.n; k++) {
                const struct sdc_fault *f = &list.faults[k];
                enum sdc_dtype d = kit[f->tensor]->dtype;
                assert_false(
                    is_refused(&c, d, sdc_fault_apply(f, d, values[f->tensor][f->elem], 0)));
            }
            sdc_fault_list_release(&list);
        }
        assert_int_equal(left, sdc_support_sites(support));
        if (left != cases[i].left)
            fail_msg("%s not %s: %llu left", cases[i].op, cases[i].not_result,
                     (unsigned long long)left);
        sdc_support_free(support);
        sdc_choice_release(&c);
    }
}

static void named_sites_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *at, *op;
        bool refused;
    } cases[] = {{"a[0]@lsb:30", "flip", true}, {"a[0]@lsb:29", "flip", false},
                 {"a[4]@lsb:0", "flip", true},  {"a[4]@lsb:23", "flip", false},
                 {"c[0]@lsb:0", "set1", true},  {"c[1]@lsb:3", "flip", true},
                 {"a[0]", "value=nan", true},   {"a[0]", "value=1", false},
                 {"d[0]@lsb:3", "flip", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        struct sdc_fault_list list;
        struct sdc_rng rng;
        kit_choice(&c, WORDS("at", cases[i].at, "op", cases[i].op, "not-result", "nan,inf"));
        struct sdc_support *support = reduced(&c);
        sdc_rng_init(&rng, 1, SDC_RNG_TEST, 1, 1);
        enum sdc_status st = sdc_fault_list_draw(support, &c, &rng, &list, &err);
        if (st != (cases[i].refused ? SDC_USAGE : SDC_OK))
            fail_msg("%s %s: status %d", cases[i].at, cases[i].op, (int)st);
        if (cases[i].refused)
            assert_message_has("would become what not-result leaves out");
        else
            sdc_fault_list_release(&list);
        sdc_support_free(support);
        sdc_choice_release(&c);
    }
}

/* ---- many blocks ---- */

#define LARGE 700000 /* over ten blocks of counts */

static enum sdc_status read_large(void *user, size_t tensor, uint64_t first, uint64_t n,
                                  void *elements, struct sdc_error *e) {
    (void)user;
    (void)tensor;
    (void)e;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t raw = (first + i) % 3 == 0 ? 0x3f800000u + (uint32_t)(first + i) : 0x3dcccccdu;
        memcpy((char *)elements + 4 * i, &raw, 4);
    }
    return SDC_OK;
}

/* Every third element is refused at bit 30: what is drawn are the others, all of them alike. */
static void blocks(void **state) {
    (void)state;
    static const uint64_t shape[] = {LARGE};
    static unsigned parts[64];
    struct sdc_tensor_desc large = kit_descs[0];
    const struct sdc_tensor_desc *const one[] = {&large};
    struct sdc_choice c;
    struct sdc_support *support;
    struct sdc_fault_list list;
    struct sdc_rng rng;
    double chi = 0;
    large.shape = shape;
    large.n_elems = LARGE;
    kit_choice(&c, WORDS("flips", "100000", "bits", "lsb:30", "not-result", "nan,inf"));
    assert_ok(sdc_support_new(one, 1, &c, &support, &err));
    assert_ok(sdc_support_reduce(support, read_large, NULL, &err));
    assert_int_equal(sdc_support_removed(support), (LARGE + 2) / 3);
    sdc_rng_init(&rng, 1, SDC_RNG_TEST, 4, 1);
    assert_ok(sdc_fault_list_draw(support, &c, &rng, &list, &err));
    assert_int_equal(list.n, 100000);
    for (size_t i = 0; i < list.n; i++) {
        assert_true(list.faults[i].elem % 3 != 0 && list.faults[i].elem < LARGE);
        assert_true(i == 0 || list.faults[i].elem > list.faults[i - 1].elem);
        parts[list.faults[i].elem * 64 / LARGE]++;
    }
    for (int i = 0; i < 64; i++)
        chi += (parts[i] - 100000 / 64.0) * (parts[i] - 100000 / 64.0) / (100000 / 64.0);
    assert_true(chi < 113); /* 63 degrees of freedom, 1 in 10,000; fewer as drawn without return */
    sdc_fault_list_release(&list);
    c.flips = sdc_support_sites(support);
    assert_ok(sdc_fault_list_draw(support, &c, &rng, &list, &err));
    for (size_t i = 0; i < list.n; i++)
        assert_int_equal(list.faults[i].elem, i / 2 * 3 + i % 2 + 1);
    sdc_fault_list_release(&list);
    sdc_support_free(support);
    sdc_choice_release(&c);
}

static void failures_are_passed_on(void **state) {
    (void)state;
    static const char *const ops[] = {"flip", "random", "set1"};
    static const char *const samples[] = {"bits", "bytes", "stratified"};
    for (int o = 0; o < 3; o++)
        for (int memory = 0; memory < 2; memory++) {
            bool failed = true;
            for (unsigned n = 1; failed; n++) {
                struct sdc_support *support = NULL;
                struct sdc_fault_list list = {0};
                struct sdc_choice c;
                struct sdc_rng rng;
                kit_choice(&c, WORDS("flips", "9", "op", ops[o], "sample", samples[o], "not-result",
                                     "nan"));
                sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
                reads_until_failure = memory ? 0 : n;
                sdc__alloc_fail_at(memory ? n : 0);
                enum sdc_status st = sdc_support_new(kit, KIT_TENSORS, &c, &support, &err);
                if (st == SDC_OK)
                    st = sdc_support_reduce(support, read_kit, (void *)(uintptr_t)kit, &err);
                if (st == SDC_OK)
                    st = sdc_fault_list_draw(support, &c, &rng, &list, &err);
                sdc__alloc_fail_at(0);
                reads_until_failure = 0;
                failed = st != SDC_OK;
                assert_true(st == SDC_OK || st == (memory ? SDC_NO_MEMORY : SDC_IO));
                assert_true(n < 60);
                sdc_fault_list_release(&list);
                sdc_support_free(support);
                sdc_choice_release(&c);
            }
        }
    struct sdc_support *support;
    struct sdc_fault_list list;
    struct sdc_choice c;
    struct sdc_rng rng;
    sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
    kit_choice(&c, WORDS("not-result", "nan"));
    assert_ok(sdc_support_new(kit, KIT_TENSORS, &c, &support, &err));
    assert_status(SDC_USAGE, sdc_fault_list_draw(support, &c, &rng, &list, &err));
    assert_message_has("not-result: the values to look at were not given");
    sdc_support_free(support);
    sdc_choice_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left),   cmocka_unit_test(conditional_distributions),
        cmocka_unit_test(whole_elements), cmocka_unit_test(named_sites_are_refused),
        cmocka_unit_test(blocks),         cmocka_unit_test(failures_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
