/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults: which sites a choice can hit (its support), drawing from it, and what an operator makes
 * of a value. Knows tensors by their descriptors and memory views only, never files: the same
 * faults hit a stored tensor, a live one, or a message.
 *
 *     sdc_support_new(descs, n, &choice, &support, &err);
 *     if (choice.not_result)
 *         sdc_support_reduce(support, read, user, &err);
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
 * left out, and where the operator takes whole elements an element is one site; sites that
 * sdc_support_reduce took out do not count. What is drawn is part of the results: the same stream
 * and the same support give the same list on every machine.
 *
 *   bits        sdc_rng_sample over these numbers
 *   tensors     tensor, element and bit with sdc_rng_below, in this order
 *   elements    element of all tensors in the support, then bit, likewise
 *   bytes       byte of all bytes with a named bit, then bit, likewise
 *   attempts    with a rate below 1: sdc_rng_unit against it; then as tensors
 *   stratified  sdc_rng_sample for the strata that get one more, if not all; then for the sites of
 *               each stratum in its turn
 *   rate        one sdc_rng_unit for the gap to each next site
 *
 * In all but attempts a site that was drawn before, or was taken out, is drawn again from the
 * start; a tensor of which every site is drawn is no longer among those to draw from. Operators
 * with something random in them (flip=K, random, swap) draw it with sdc_rng_below from the stream
 * of purpose SDC_RNG_FAULT_VALUES with the same seed, block and trial, for one fault of the list
 * after the other. */
struct sdc_support;
/* descs are borrowed for the support's life. An empty support is not an error.
 * SDC_USAGE for a choice whose mask is 0 or whose count is not 1 to 64. */
SDC_API enum sdc_status sdc_support_new(const struct sdc_tensor_desc *const descs[], size_t n,
                                        const struct sdc_choice *choice,
                                        struct sdc_support **support,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_support_free(struct sdc_support *support);

/* Reads n elements of tensor number `tensor` in descs from `first` on into memory of n *
 * sdc_dtype_bytes, in native byte order; as sdc_ckpt_read. */
typedef enum sdc_status sdc_fault_read(void *user, size_t tensor, uint64_t first, uint64_t n,
                                       void *elements, struct sdc_error *err);
/* Takes the sites out of the support whose value would become what choice.not_result names. Reads
 * every tensor of the support once, in order; drawing reads again what holds drawn sites, so read
 * and user must live as long as the support. Memory does not grow with the tensors' sizes. What
 * flip=K and random give is drawn again until it is allowed; an element leaves the support only
 * where nothing is. Where sites are listed
 * (AT) none are taken out, but what is listed is looked at when the list is drawn. Once per
 * support; not needed, and nothing, without not_result. */
SDC_API enum sdc_status sdc_support_reduce(struct sdc_support *support, sdc_fault_read *read,
                                           void *user, struct sdc_error *err) SDC_MUST_CHECK;
/* Number of sites: (element, bit) pairs, or elements where the operator takes whole elements. */
SDC_API uint64_t sdc_support_sites(const struct sdc_support *support);
SDC_API size_t sdc_support_tensors(const struct sdc_support *support);   /* tensors in it */
SDC_API uint64_t sdc_support_removed(const struct sdc_support *support); /* by reduce */

/* One altered element; several sites on one element are one fault with several bits. */
struct sdc_fault {
    uint32_t tensor; /* index into descs */
    enum sdc_op op;
    uint64_t elem;  /* flat C-order index */
    uint64_t bits;  /* FLIP, MASK, BURST: to flip (of several bursts in one element those of any);
                       SET0, SET1: to set */
    uint64_t value; /* VALUE: the raw new value; SCALE: the bits of the factor, a double; RANDOM: a
                       number that with the old value gives the new one; SWAP: the flat index of the
                       element whose value is taken */
    double weight;  /* sum of the weights of its sites; 0 but for stratified samples */
};

/* Sorted by (tensor, elem); one entry an element. */
struct sdc_fault_list {
    struct sdc_fault *faults; /* owned */
    size_t n;
    uint64_t n_sites;  /* distinct sites */
    uint64_t attempts; /* sample attempts: made, those that did not happen or took an earlier one
                          back among them; else 0 */
    uint64_t happened; /* of them */
};

/* Draws (FLIPS, RATE), enumerates (EXHAUSTIVE) or resolves (AT) sites. SDC_USAGE where more sites
 * are asked for than the support holds (an empty support gives an empty list), a named site does
 * not exist, is not in the support or would become what not_result names, or where not_result is
 * asked for of a support that was not reduced; SDC_LIMIT over 100 million sites; what read
 * returns. choice must be that of the support. */
SDC_API enum sdc_status sdc_fault_list_draw(const struct sdc_support *support,
                                            const struct sdc_choice *choice, struct sdc_rng *rng,
                                            struct sdc_fault_list *list,
                                            struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_fault_list_release(struct sdc_fault_list *list);

/* The raw value after the fault. other: for SWAP the raw value before any fault of the element that
 * fault->value names; else not looked at. */
SDC_API uint64_t sdc_fault_apply(const struct sdc_fault *fault, enum sdc_dtype dtype, uint64_t raw,
                                 uint64_t other);

/* For pairing over `part` (H3): sites drawn over parameters, mapped to the tensor that holds the
 * optimizer state of the same parameter. Renames each fault's tensor through map[] (index in descs
 * -> index in descs); SDC_USAGE where a map entry is out of range. */
SDC_API enum sdc_status sdc_fault_list_map(struct sdc_fault_list *list, const uint32_t *map,
                                           size_t n_map, struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
