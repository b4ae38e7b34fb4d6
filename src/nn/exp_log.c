/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "nn/nn_impl.h"

_Static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must round to the type it is written in");

/* 2^k for -1022 <= k <= 1023 */
static double power_of_two(int k) {
    const uint64_t bits = (uint64_t)(k + 1023) << 52;
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

double sdc__nn_exp(double x) {
    if (isnan(x))
        return x;
    if (x > 709.79)
        return (double)INFINITY;
    if (x < -745.14)
        return 0.0;
    /* x = k ln 2 + r, |r| <= ln(2)/2; ln 2 in two parts, the first short enough that k times it is
     * exact (constants of fdlibm) */
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: rounds to nearest even */
    const double k = (x * 1.44269504088896338700e+00 + shift) - shift;
    const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    /* Taylor's series; the first term left out is below 5e-18 */
    double sum = 1.0;
    for (int n = 13; n >= 1; n--)
        sum = 1.0 + sum * r / n;
    const int half = (int)k / 2;
    return sum * power_of_two(half) * power_of_two((int)k - half);
}

double sdc__nn_log(double x) {
    if (isnan(x) || x == (double)INFINITY)
        return x;
    if (x == 0.0)
        return -(double)INFINITY;
    if (x < 0.0)
        return (double)NAN;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int k = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m); /* x = m 2^k, 1 <= m < 2 */
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        k++;
    }
    /* log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.1716; the first term left out is below
     * 1e-19 */
    const double s = (m - 1.0) / (m + 1.0);
    const double q = s * s;
    double sum = 0.0;
    for (int n = 23; n >= 3; n -= 2)
        sum = (sum + 1.0 / n) * q;
    const double log_m = 2.0 * s + 2.0 * s * sum;
    return k * 6.93147180369123816490e-01 + (k * 1.90821492927058770002e-10 + log_m);
}
