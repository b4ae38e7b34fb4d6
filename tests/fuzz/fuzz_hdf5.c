/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an HDF5 file, through libhdf5 in its helper process: whatever becomes of the helper,
 * we must answer or refuse.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ckpt/fmt/hdf5_proc.h"
#include "fuzz.h"
#include "fuzz_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct sdc_ckpt *c = NULL;
    sdc__h5_test_limits(1, 10);
    if (write(fd, data, size) == (ssize_t)size && sdc_ckpt_open(path, NULL, &c, NULL) == SDC_OK)
        use(c);
    sdc_ckpt_close(c);
    (void)close(fd);
    return 0;
}
