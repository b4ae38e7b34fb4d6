/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets of formats do with a checkpoint that opened: whatever it lists must answer
 * or refuse, and what is mapped lies inside its file.
 */
#ifndef SDC_TESTS_FUZZ_USE_H
#define SDC_TESTS_FUZZ_USE_H

#include <stdlib.h>

#include "sdc/ckpt.h"

#define MANY 4096 /* elements read at once, so that runs and gaps are read as well */

static void use_tensor(struct sdc_ckpt *c, size_t i) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
    static unsigned char elements[MANY * 8];
    struct sdc_span span;
    size_t found;
    if (!sdc_ckpt_find(c, d->name, &found))
        abort();
    if (d->n_elems == 0 || !d->dtype_known)
        return;
    uint64_t n = d->n_elems < MANY ? d->n_elems : MANY;
    enum sdc_status read = sdc_ckpt_read(c, i, d->n_elems - n, n, elements, NULL);
    if (d->locked || sdc_ckpt_recoded(c, i))
        return;
    /* what is mapped is in its file and can be read */
    if (sdc_ckpt_map(c, i, d->n_elems - 1, &span, NULL) != SDC_OK)
        return;
    if (span.file >= sdc_ckpt_files(c) ||
        span.offset > sdc_ckpt_file(c, span.file).size - span.size ||
        sdc_ckpt_read(c, i, d->n_elems - 1, 1, elements, NULL) != SDC_OK)
        abort();
    (void)read;
}

static void use(struct sdc_ckpt *c) {
    for (size_t i = 0; i < sdc_ckpt_count(c); i++)
        use_tensor(c, i);
    if (sdc_ckpt_find_sums(c, NULL) != SDC_OK)
        return;
    for (size_t i = 0; i < sdc_ckpt_sums(c); i++) {
        const struct sdc_ckpt_sum *sum = sdc_ckpt_sum(c, i);
        if (sum->file >= sdc_ckpt_files(c) || sum->size > sdc_ckpt_file(c, sum->file).size ||
            sum->offset > sdc_ckpt_file(c, sum->file).size - sum->size)
            abort();
    }
}

#endif
