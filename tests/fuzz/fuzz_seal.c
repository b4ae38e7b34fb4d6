/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a seal: reading must answer or refuse, and what was read must be whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "audit/seal.h"
#include "fuzz.h"

static void use(const struct sdc_seal *s) {
    if (!s->format || s->n_files == 0)
        abort();
    for (size_t i = 0; i < s->n_files; i++)
        if (!s->files[i].name)
            abort();
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct sdc_seal_tensor *t = &s->tensors[i];
        if (!t->name || !t->type || !t->shape || (t->n_blocks > 0 && (!t->blocks || !t->block)) ||
            t->n_blocks > SDC_SEAL_BLOCKS || (i > 0 && strcmp(t[-1].name, t->name) >= 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct sdc_seal s;
    struct sdc_error err;
    if (write(fd, data, size) == (ssize_t)size && sdc__seal_read(path, &s, &err) == SDC_OK) {
        use(&s);
        sdc__seal_release(&s);
    }
    (void)close(fd);
    return 0;
}
