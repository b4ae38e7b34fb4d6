/* SPDX-License-Identifier: Apache-2.0
 *
 * The shortest decimals of floats, in integer arithmetic. Not for parsing.
 */
#ifndef SDC_NUM_SHORTEST_H
#define SDC_NUM_SHORTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/num.h"

/* d.ddd times ten to the exponent; n digits, the last of them not 0 */
struct sdc__decimal {
    uint64_t digits;
    unsigned n; /* 1 to 9 */
    int exponent;
    bool negative;
};

/* The fewest correctly rounded digits that read back to raw. Knows F32, F16 and BF16; false for
 * other types and for the few values that are decided by more digits than it computes: these are
 * for the C library to say (zero, what is not finite, the largest, and ties). */
bool sdc__num_decimal(enum sdc_dtype dtype, uint64_t raw, struct sdc__decimal *d);

/* As printf's %g with a precision of d->n writes it; returns the length. Fits 24 bytes. */
size_t sdc__decimal_text(const struct sdc__decimal *d, char *text);
/* As JSON: an integer where all digits are before the point, else with a point or an exponent (from
 * 15 digits before the point on). Not ended by NUL. Fits 24 bytes. */
size_t sdc__decimal_json(const struct sdc__decimal *d, char *text);

/* An integer's digits, not ended by NUL; returns the length, at most 20. */
size_t sdc__u64_text(uint64_t value, char *text);

#endif
