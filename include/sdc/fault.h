/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults: which sites a choice can hit (its support), drawing from it, and what an operator makes
 * of a value. Knows tensors by their descriptors and memory views only, never files: the same
 * faults hit a stored tensor, a live one, or a message.
 *
 *     sdc_support_new(descs, n, &choice, &support, &err);
 *     sdc_rng_init(&rng, seed, SDC_RNG_FAULT_SITES, block, trial);
 *     sdc_fault_list_draw(support, &choice, &rng, &list, &err);
 */
#ifndef SDC_FAULT_H
#define SDC_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/rng.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The set of sites that a choice can hit.
 *
 * Sites are numbered from 0: by tensor in the order of descs, then by element in C order, then by
 * bit from the least significant of those that the choice names; tensors outside the support are
 * left out, and where the operator takes whole elements an element is one site. sample "bits" is
 * sdc_rng_sample over these numbers. sample "tensors" draws tensor, element and bit with
 * sdc_rng_below, in this order, and again where the site was drawn before; a tensor whose sites are
 * all drawn is left out from then on. This is part of the results: the same stream and the same
 * support give the same list. */
struct sdc_support;
/* descs are borrowed for the support's life. An empty support is not an error. */
SDC_API enum sdc_status sdc_support_new(const struct sdc_tensor_desc *const descs[], size_t n,
                                        const struct sdc_choice *choice,
                                        struct sdc_support **support,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_support_free(struct sdc_support *support);
/* Number of sites: (element, bit) pairs, or elements where the operator takes whole elements. */
SDC_API uint64_t sdc_support_sites(const struct sdc_support *support);
SDC_API size_t sdc_support_tensors(const struct sdc_support *support); /* tensors in it */

/* One altered element; several sites on one element are one fault with several bits. */
struct sdc_fault {
    uint32_t tensor; /* index into descs */
    uint64_t elem;   /* flat C-order index */
    enum sdc_op op;
    uint64_t bits;  /* mask to flip, for SDC_OP_FLIP */
    uint64_t value; /* raw new value, for SDC_OP_VALUE */
};

/* Sorted by (tensor, elem); one entry an element. */
struct sdc_fault_list {
    struct sdc_fault *faults; /* owned */
    size_t n;
    uint64_t n_sites; /* distinct sites */
};

/* Draws (FLIPS), enumerates (EXHAUSTIVE) or resolves (AT) sites. SDC_USAGE where more sites are
 * asked for than the support holds (an empty support gives an empty list), or a named site does not
 * exist or is not in the support; SDC_LIMIT over 100 million sites. */
SDC_API enum sdc_status sdc_fault_list_draw(const struct sdc_support *support,
                                            const struct sdc_choice *choice, struct sdc_rng *rng,
                                            struct sdc_fault_list *list,
                                            struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_fault_list_release(struct sdc_fault_list *list);

/* The raw value after the fault. */
SDC_API uint64_t sdc_fault_apply(const struct sdc_fault *fault, enum sdc_dtype dtype, uint64_t raw);

/* For pairing over `part` (H3): sites drawn over parameters, mapped to the tensor that holds the
 * optimizer state of the same parameter. Renames each fault's tensor through map[] (index in descs
 * -> index in descs); SDC_USAGE where a map entry is out of range. */
SDC_API enum sdc_status sdc_fault_list_map(struct sdc_fault_list *list, const uint32_t *map,
                                           size_t n_map, struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
