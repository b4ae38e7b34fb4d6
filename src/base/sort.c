/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT 11
#define FEW   2048 /* below, counting digits costs more than comparing */

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* One pass of a radix sort, stable. */
static void pass(const uint64_t *from, size_t n, unsigned shift, uint64_t *to) {
    size_t at[1 << DIGIT] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++)
        at[from[i] >> shift & ((1 << DIGIT) - 1)]++;
    for (size_t d = 0; d < 1 << DIGIT; d++) {
        size_t count = at[d];
        at[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        to[at[from[i] >> shift & ((1 << DIGIT) - 1)]++] = from[i];
}

void sdc__sort_u64(uint64_t *numbers, size_t n, uint64_t *room) {
    if (n < FEW) {
        if (n > 1)
            qsort(numbers, n, sizeof *numbers, compare);
        return;
    }
    uint64_t all = 0, *from = numbers, *to = room;
    for (size_t i = 0; i < n; i++)
        all |= numbers[i];
    for (unsigned shift = 0; shift < 64 && all >> shift; shift += DIGIT) {
        pass(from, n, shift, to);
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != numbers)
        memcpy(numbers, from, n * sizeof *numbers);
}
