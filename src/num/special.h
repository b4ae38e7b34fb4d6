/* SPDX-License-Identifier: Apache-2.0
 *
 * How infinities and NaN are told from other values by their bits.
 */
#ifndef SDC_NUM_SPECIAL_H
#define SDC_NUM_SPECIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "sdc/num.h"

/* raw is an infinity or NaN exactly where its bits under *mask are *bits. False, and both 0, for
 * types that have neither. */
bool sdc__num_special(enum sdc_dtype dtype, uint64_t *mask, uint64_t *bits);

#endif
