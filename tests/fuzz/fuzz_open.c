/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a checkpoint file: listing, mapping, reading and finding its checksums must answer
 * or refuse. Built once for each format, with seeds of that format. Entry point of libFuzzer, also
 * called by fuzz_driver.c.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "fuzz_use.h"

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
