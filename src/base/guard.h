/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses compiler modes under which this project's results would be wrong: with finite-math a NaN
 * compares equal to itself and isnan returns 0. Included by every file that computes with floats.
 */
#ifndef SDC_BASE_GUARD_H
#define SDC_BASE_GUARD_H

#ifdef __FAST_MATH__
#error "fast-math breaks NaN and infinity; build without it"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "finite-math-only breaks NaN and infinity; build without it"
#endif

#include <stdio.h>
#include <stdlib.h>

/* For a broken invariant of our own, never for input. */
#define SDC_BUG(...)                                                                               \
    do {                                                                                           \
        fprintf(stderr, "sdclab bug at %s:%d: ", __FILE__, __LINE__);                              \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        abort();                                                                                   \
    } while (0)

#endif
