/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as Keras weights in shards: u16 length of the index, the index, the shard
 * m_0.weights.h5. Entry point of libFuzzer, also called by fuzz_driver.c.
 */
#include <stdio.h>
#include <stdlib.h>
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
    char folder[] = "/dev/shm/sdc-fuzz-XXXXXX", index[64], shard[80];
    if (size < 2 || !mkdtemp(folder))
        return 0;
    size_t n = data[0] | (size_t)data[1] << 8;
    n = n < size - 2 ? n : size - 2;
    (void)snprintf(index, sizeof index, "%s/m.weights.json", folder);
    (void)snprintf(shard, sizeof shard, "%s/m_0.weights.h5", folder);
    struct sdc_ckpt *c = NULL;
    if (put(index, data + 2, n) == 0 && put(shard, data + 2 + n, size - 2 - n) == 0 &&
        sdc_ckpt_open(folder, NULL, &c, NULL) == SDC_OK)
        use(c);
    sdc_ckpt_close(c);
    (void)unlink(index);
    (void)unlink(shard);
    (void)rmdir(folder);
    return 0;
}
