/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a safetensors file: listing, mapping and reading must answer or refuse. Entry point
 * of libFuzzer, also called by fuzz_driver.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "sdc/ckpt.h"

static void use(struct sdc_ckpt *c) {
    for (size_t i = 0; i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        unsigned char element[8];
        struct sdc_span span;
        size_t found;
        if (!sdc_ckpt_find(c, d->name, &found) || found != i)
            abort();
        if (d->locked || d->n_elems == 0)
            continue;
        /* what is not locked must map into the file and read, to its last element */
        if (sdc_ckpt_map(c, i, d->n_elems - 1, &span, NULL) != SDC_OK ||
            span.offset > sdc_ckpt_file_size(c) - span.size ||
            sdc_ckpt_read(c, i, d->n_elems - 1, 1, element, NULL) != SDC_OK)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct sdc_ckpt *c = NULL;
    if (write(fd, data, size) == (ssize_t)size && sdc_ckpt_open(path, NULL, &c, NULL) == SDC_OK)
        use(c);
    sdc_ckpt_close(c);
    (void)close(fd);
    return 0;
}
