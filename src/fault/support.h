/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a support: the numbering of sites. It is part of the results of a seed: changing it
 * changes what every seed draws.
 *
 * Tensors count in the order of descs, those outside the support left out. Sites are numbered from
 * 0: by tensor, then by element in C order, then by bit from the least significant of those that
 * the choice names. Where the operator takes whole elements, an element is one site.
 */
#ifndef SDC_FAULT_SUPPORT_H
#define SDC_FAULT_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "sdc/fault.h"

struct sdc_support_tensor {
    uint32_t tensor; /* index into descs */
    uint64_t first;  /* number of its first site */
    uint64_t n_elems;
    uint64_t mask;  /* bits of an element that are sites; 0 where whole elements are */
    unsigned width; /* sites of one element, at least 1 */
};

struct sdc_support {
    const struct sdc_tensor_desc *const *descs; /* borrowed */
    size_t n_descs;
    struct sdc_support_tensor *tensors; /* owned; none of them empty */
    size_t n_tensors;
    uint64_t sites;
};

/* The position of the k-th set bit of mask, counted from 0; mask has more than k. */
unsigned sdc__bit_at(uint64_t mask, unsigned k);

#endif
