/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a distributed checkpoint of PyTorch: u16 length of .metadata, .metadata, the data
 * file f.distcp. Entry point of libFuzzer, also called by fuzz_driver.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "fuzz_use.h"

static int put(const char *path, const uint8_t *data, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f)
        return -1;
    size_t n = fwrite(data, 1, size, f);
    return fclose(f) != 0 || n != size ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char folder[] = "/dev/shm/sdc-fuzz-XXXXXX", metadata[64], shard[64];
    if (size < 2 || !mkdtemp(folder))
        return 0;
    size_t n = data[0] | (size_t)data[1] << 8;
    n = n < size - 2 ? n : size - 2;
    (void)snprintf(metadata, sizeof metadata, "%s/.metadata", folder);
    (void)snprintf(shard, sizeof shard, "%s/f.distcp", folder);
    struct sdc_ckpt *c = NULL;
    if (put(metadata, data + 2, n) == 0 && put(shard, data + 2 + n, size - 2 - n) == 0 &&
        sdc_ckpt_open(folder, NULL, &c, NULL) == SDC_OK)
        use(c);
    sdc_ckpt_close(c);
    (void)unlink(metadata);
    (void)unlink(shard);
    (void)rmdir(folder);
    return 0;
}
