/* SPDX-License-Identifier: Apache-2.0
 *
 * Files whose end is zero: space that was taken beforehand by a download or copy that then ended
 * early, or tensors that are zero. Formats without checksums show no other sign of it.
 */
#ifndef SDC_AUDIT_TAIL_H
#define SDC_AUDIT_TAIL_H

#include "sdc/ckpt.h"

#define SDC_LONG_TAIL 4096 /* bytes; fewer are not told */

struct sdc_tails {
    char **texts; /* one for each such file */
    size_t n;
};

/* Reads the end of every file. tails is to be released after success only. */
enum sdc_status sdc__tails_find(struct sdc_ckpt *ckpt, struct sdc_tails *tails,
                                struct sdc_error *err) SDC_MUST_CHECK;
void sdc__tails_release(struct sdc_tails *tails);

#endif
