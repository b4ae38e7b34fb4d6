/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts of the machine that can change a computed bit. Not for features: nothing is chosen by them
 * here.
 */
#ifndef SDC_BASE_PLATFORM_H
#define SDC_BASE_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>

struct sdc_fpenv {
    bool ftz;     /* results that would be subnormal become zero */
    bool daz;     /* subnormal operands count as zero */
    int rounding; /* 0 nearest even, 1 down, 2 up, 3 to zero */
    bool known;   /* false where the state cannot be read (not x86) */
};

/* State of the calling thread. */
struct sdc_fpenv sdc__fpenv_read(void);
/* "ftz=0 daz=0 rounding=nearest" */
void sdc__fpenv_text(const struct sdc_fpenv *env, char *text, size_t size);

/* "AuthenticAMD family 25 model 17 stepping 1 (AMD EPYC 9654)"; "unknown" where not known. */
void sdc__cpu_model(char *text, size_t size);
/* Space-separated: "avx2 fma avx512f avx512bf16 amx ..." of those that change kernels. */
void sdc__cpu_features(char *text, size_t size);

#endif
