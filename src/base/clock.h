/* SPDX-License-Identifier: Apache-2.0
 *
 * Time. Never part of a result that must repeat.
 */
#ifndef SDC_BASE_CLOCK_H
#define SDC_BASE_CLOCK_H

#include <stdint.h>

uint64_t sdc__now_ns(void);        /* monotonic, since some fixed point */
void sdc__wall_utc(char text[32]); /* "2026-01-31T12:00:00Z" */
void sdc__sleep_ms(unsigned ms);

#endif
