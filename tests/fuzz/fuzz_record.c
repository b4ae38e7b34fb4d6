/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an alteration record: reading must answer or refuse, and a record that was read can
 * be written again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "sdc/record.h"

static void use(const struct sdc_record *r) {
    char *line = NULL;
    if (sdc_record_header_line(&r->header, &line, NULL) != SDC_OK)
        abort();
    sdc_text_free(line);
    for (size_t i = 0; i < r->n_changes; i++) {
        if (sdc_record_change_line(&r->changes[i], &line, NULL) != SDC_OK)
            abort();
        sdc_text_free(line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct sdc_record r;
    if (write(fd, data, size) == (ssize_t)size && sdc_record_read(path, &r, NULL) == SDC_OK) {
        use(&r);
        sdc_record_release(&r);
    }
    (void)close(fd);
    return 0;
}
