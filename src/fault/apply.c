/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator makes of a value.
 */
#include <string.h>

#include "base/guard.h"
#include "sdc/fault.h"

static uint64_t scaled(const struct sdc_fault *fault, enum sdc_dtype dtype, uint64_t raw) {
    double factor;
    if (sdc_num_class(dtype, raw) == SDC_CLASS_NAN)
        return raw;
    memcpy(&factor, &fault->value, sizeof factor);
    return sdc_num_from_double(dtype, sdc_num_to_double(dtype, raw) * factor);
}

uint64_t sdc_fault_apply(const struct sdc_fault *fault, enum sdc_dtype dtype, uint64_t raw,
                         uint64_t other) {
    switch (fault->op) {
    case SDC_OP_FLIP:
    case SDC_OP_MASK:
    case SDC_OP_BURST:
        return raw ^ fault->bits;
    case SDC_OP_SET0:
        return raw & ~fault->bits;
    case SDC_OP_SET1:
        return raw | fault->bits;
    case SDC_OP_VALUE:
        return fault->value;
    case SDC_OP_SCALE:
        return scaled(fault, dtype, raw);
    case SDC_OP_RANDOM: /* the drawn one of the values but raw, in ascending order */
        return fault->value + (fault->value >= raw);
    case SDC_OP_SWAP:
        return other;
    }
    return raw;
}
