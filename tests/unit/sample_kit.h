/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of several types for tests of samplers, and the test of a distribution.
 */
#ifndef SDC_TESTS_SAMPLE_KIT_H
#define SDC_TESTS_SAMPLE_KIT_H

#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "sdc/fault.h"
#include "test.h"

#define KIT_TENSORS 5

static const uint64_t kit_shapes[KIT_TENSORS][1] = {{6}, {4}, {3}, {5}, {1}};
#define KIT_DESC(i, name_, type, n)                                                                \
    {                                                                                              \
        .name = name_, .dtype = SDC_DTYPE_##type, .dtype_known = true, .dtype_text = #type,        \
        .rank = 1, .shape = kit_shapes[i], .n_elems = n, .part = SDC_PART_MODEL,                   \
        .role = SDC_ROLE_WEIGHT                                                                    \
    }
static const struct sdc_tensor_desc kit_descs[KIT_TENSORS] = {
    KIT_DESC(0, "a", F32, 6), KIT_DESC(1, "b", F16, 4), KIT_DESC(2, "c", F8_E4M3, 3),
    KIT_DESC(3, "d", F4, 5), KIT_DESC(4, "e", I64, 1)};
static const struct sdc_tensor_desc *const kit[KIT_TENSORS] = {
    &kit_descs[0], &kit_descs[1], &kit_descs[2], &kit_descs[3], &kit_descs[4]};

/* Hits of each site: tensor, element, bit (0 where elements are sites). */
struct kit_hits {
    double n[KIT_TENSORS][6][64];
};

static inline void kit_choice(struct sdc_choice *c, const char *const words[]) {
    struct sdc_error err;
    sdc_choice_init(c);
    for (size_t i = 0; words[i]; i += 2)
        assert_ok(sdc_choice_set(c, words[i], words[i + 1], &err));
    assert_ok(sdc_choice_check(c, &err));
}

static inline void kit_count(struct kit_hits *h, const struct sdc_fault_list *list, bool elements) {
    for (size_t i = 0; i < list->n; i++) {
        const struct sdc_fault *f = &list->faults[i];
        if (elements)
            h->n[f->tensor][f->elem][0] += 1;
        for (uint64_t bits = elements ? 0 : f->bits; bits; bits &= bits - 1)
            h->n[f->tensor][f->elem][__builtin_ctzll(bits)] += 1;
    }
}

/* Pearson's statistic of hits against what is expected of n draws stays under the value that is
 * exceeded once in 10,000 (Wilson and Hilferty's approximation); nothing is hit that cannot be. */
static inline void kit_assert_fits(const struct kit_hits *h, const struct kit_hits *share,
                                   double n) {
    double chi = 0, sites = 0, sum = 0;
    for (int t = 0; t < KIT_TENSORS; t++)
        for (int e = 0; e < 6; e++)
            for (int b = 0; b < 64; b++) {
                double expected = share->n[t][e][b] * n, hits = h->n[t][e][b];
                sum += share->n[t][e][b];
                if (expected == 0)
                    assert_true(hits == 0);
                else
                    chi += (hits - expected) * (hits - expected) / expected;
                sites += expected > 0;
            }
    assert_true(fabs(sum - 1) < 1e-9);
    double k = sites - 1, z = 3.719;
    double limit = k * pow(1 - 2 / (9 * k) + z * sqrt(2 / (9 * k)), 3);
    if (!(chi < limit))
        fail_msg("chi-squared %g of %g degrees of freedom, limit %g", chi, k, limit);
}

#endif
