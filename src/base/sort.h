/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting many numbers.
 */
#ifndef SDC_BASE_SORT_H
#define SDC_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Ascending, in time proportional to n; room has space for n numbers. */
void sdc__sort_u64(uint64_t *numbers, size_t n, uint64_t *room);

#endif
