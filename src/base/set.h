/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of numbers below UINT64_MAX whose greatest count is known beforehand. Not a map; nothing is
 * removed. One thread per object.
 */
#ifndef SDC_BASE_SET_H
#define SDC_BASE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "sdc/status.h"

struct sdc_set {
    uint64_t *slots; /* open addressing: value + 1, 0 = empty; owned */
    uint64_t mask;
};

/* Room for `max` values, all of memory taken at once. SDC_NO_MEMORY. */
enum sdc_status sdc__set_init(struct sdc_set *set, uint64_t max,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc__set_release(struct sdc_set *set);
/* Brings the place of a value near, for an insert soon after. */
void sdc__set_prefetch(const struct sdc_set *set, uint64_t value);
/* False if it was there already. */
bool sdc__set_insert(struct sdc_set *set, uint64_t value);

#endif
