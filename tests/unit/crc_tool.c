/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the checksums of a part of a file, for comparison with other implementations.
 *
 *     crc_tool FILE OFFSET LENGTH
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/crc.h"

int main(int argc, char **argv) {
    unsigned long long offset, len;
    struct sdc_file f;
    struct sdc_error err;
    if (argc != 4 || !sdc__parse_u64(argv[2], &offset) || !sdc__parse_u64(argv[3], &len)) {
        fprintf(stderr, "usage: %s FILE OFFSET LENGTH\n", argv[0]);
        return 2;
    }
    enum sdc_status st = sdc__file_open(argv[1], SDC_FILE_READ, &f, &err);
    unsigned char *data = sdc__alloc((size_t)len, 1);
    if (st == SDC_OK && data)
        st = sdc__file_read(&f, offset, data, (size_t)len, &err);
    if (st == SDC_OK && data)
        printf("crc32 %08x\ncrc32c %08x\nfletcher32 %08x\nlookup3 %08x\n",
               sdc__crc32(0, data, (size_t)len), sdc__crc32c(0, data, (size_t)len),
               sdc__fletcher32(data, (size_t)len), sdc__lookup3(data, (size_t)len, 0));
    else
        fprintf(stderr, "%s\n", data ? err.message : "no memory");
    sdc__free(data);
    sdc__file_close(&f);
    return st != SDC_OK;
}
