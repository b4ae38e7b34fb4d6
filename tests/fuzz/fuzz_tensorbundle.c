/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a TensorFlow checkpoint: u16 length of the index, the index, the data file (which
 * zeros follow). Entry point of libFuzzer, also called by fuzz_driver.c.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "fuzz_use.h"

#define DATA 16384 /* bytes of the data file at least */

static int put(const char *path, const uint8_t *data, size_t size, size_t at_least) {
    FILE *f = fopen(path, "wb");
    if (!f)
        return -1;
    size_t n = fwrite(data, 1, size, f);
    (void)fflush(f);
    int bad = n != size || ftruncate(fileno(f), (off_t)(size < at_least ? at_least : size)) != 0;
    return fclose(f) != 0 || bad ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char folder[] = "/dev/shm/sdc-fuzz-XXXXXX", index[64], shard[64]; /* memory: many files */
    if (size < 2 || !mkdtemp(folder))
        return 0;
    size_t n = data[0] | (size_t)data[1] << 8;
    n = n < size - 2 ? n : size - 2;
    (void)snprintf(index, sizeof index, "%s/b.index", folder);
    (void)snprintf(shard, sizeof shard, "%s/b.data-00000-of-00001", folder);
    struct sdc_ckpt *c = NULL;
    if (put(index, data + 2, n, 0) == 0 && put(shard, data + 2 + n, size - 2 - n, DATA) == 0 &&
        sdc_ckpt_open(index, NULL, &c, NULL) == SDC_OK)
        use(c);
    sdc_ckpt_close(c);
    (void)unlink(index);
    (void)unlink(shard);
    (void)rmdir(folder);
    return 0;
}
