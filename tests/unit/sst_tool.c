/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what the SSTable reader finds, for comparison with another reader:
 *
 *     block WHAT OFFSET SIZE SNAPPY
 *     entry KEY-HEX BLOCK-INDEX VALUE-OFFSET VALUE-HEX      "-" where there is nothing
 *
 * Exit 1 and the message on stderr if the table is refused.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/str.h"
#include "ckpt/sstable.h"

static void print_hex(const void *data, size_t len) {
    char *hex = sdc__alloc(2 * len + 1, 1);
    if (hex) {
        sdc__hex_encode(data, len, hex);
        (void)fputs(len ? hex : "-", stdout);
    }
    sdc__free(hex);
}

int main(int argc, char **argv) {
    struct sdc_file f = SDC_FILE_INIT;
    struct sdc_sst t = SDC_SST_INIT;
    struct sdc_error err;
    if (argc != 2 || sdc__file_open(argv[1], SDC_FILE_READ, &f, &err) != SDC_OK)
        return 2;
    if (sdc__sst_read(&f, &t, &err) != SDC_OK) {
        fprintf(stderr, "%s: %s\n", sdc_status_name(err.status), err.message);
        sdc__file_close(&f);
        return 1;
    }
    for (size_t i = 0; i < t.n_blocks; i++)
        printf("block %s %llu %llu %d\n", t.blocks[i].what, (unsigned long long)t.blocks[i].offset,
               (unsigned long long)t.blocks[i].size, (int)t.blocks[i].snappy);
    for (size_t i = 0; i < t.n; i++) {
        const struct sdc_sst_entry *e = &t.entries[i];
        printf("entry ");
        print_hex(e->key, e->key_len);
        printf(" %zu %lld ", e->block, (long long)e->value_offset);
        print_hex(e->value, e->value_len);
        printf("\n");
        if (sdc__sst_find(&t, e->key, e->key_len) != e)
            return 3;
    }
    sdc__sst_release(&t);
    sdc__file_close(&f);
    return 0;
}
