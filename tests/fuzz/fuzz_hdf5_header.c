/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a file with an object header of HDF5 at its beginning: a byte that says how wide
 * addresses and lengths are, then the file. Checksums are not a wall: a third of the inputs gets
 * right ones.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"
#include "fuzz.h"
#include "io/crc.h"

/* Makes the checksum of a version 2 header at the beginning right. */
static void mend(unsigned char *p, size_t n) {
    if (n < 12 || memcmp(p, "OHDR", 4) != 0)
        return;
    size_t before = 6 + (p[5] & 0x20 ? 16u : 0) + (p[5] & 0x10 ? 4u : 0),
           width = (size_t)1 << (p[5] & 3);
    size_t size = 0;
    if (before + width > n)
        return;
    for (size_t i = width; i-- > 0;)
        size = size << 8 | p[before + i];
    if (size > n || before + width + size + 4 > n)
        return;
    const size_t len = before + width + size;
    const uint32_t sum = sdc__lookup3(p, len, 0);
    for (int i = 0; i < 4; i++)
        p[len + (size_t)i] = (unsigned char)(sum >> 8 * i & 0xff);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const unsigned widths[] = {2, 4, 8};
    if (size < 2)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    unsigned char *copy = sdc__alloc(size, 1);
    if (fd < 0 || !copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 3 != 0)
        mend(copy, size - 1);
    if (write(fd, copy, size - 1) == (ssize_t)(size - 1)) {
        const struct sdc_file file = {.fd = fd, .size = size - 1, .path = (char[]){"fuzz"}};
        struct sdc_h5_file f = {.file = &file, .path = "fuzz", .size = size - 1, .budget = 1 << 24};
        struct sdc_h5_header h = {0};
        struct sdc_h5_set set = {0};
        f.O = widths[data[0] / 3 % 3];
        f.L = widths[data[0] / 9 % 3];
        if (sdc__h5_header_read(&f, 0, &h, NULL) == SDC_OK)
            (void)sdc__h5_set_read(&f, &h, &set, NULL);
        sdc__h5_set_release(&set);
        sdc__h5_header_release(&h);
        sdc__h5_file_release(&f);
    }
    sdc__free(copy);
    (void)close(fd);
    return 0;
}
