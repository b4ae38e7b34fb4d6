/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a LevelDB table (SSTable), as TensorFlow's checkpoint index is one, and says where each
 * value and each block lies, so that bytes of a value can be changed in place. Reads only, checks
 * every length before use; checksums are not looked at: their places are handed out, and whoever
 * verifies or mends them does so.
 *
 * Layout (google/leveldb doc/table_format.md, table/format.h, table/block_builder.cc):
 *
 *     data blocks, metaindex block, index block, each followed by a trailer of 5 bytes: type (0
 *         plain, 1 snappy) and u32 masked CRC32C over block and type;
 *     footer of 48 bytes: handles (varint64 offset, varint64 size) of metaindex and index block,
 *         padded with zeros to 40, then u64 0xdb4775248b80fb57.
 *     Block: entries (varint32 shared, varint32 unshared, varint32 value length, key suffix,
 * value), then u32 restart offsets, then u32 their number. All little-endian.
 *
 * One thread per object.
 */
#ifndef SDC_CKPT_SSTABLE_H
#define SDC_CKPT_SSTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/status.h"

#define SDC_SST_FOOTER  48
#define SDC_SST_TRAILER 5

struct sdc_sst_block {
    uint64_t offset;  /* in the file */
    uint64_t size;    /* without the trailer; the checksum covers size + 1 bytes (the type too) and
                         stands at offset + size + 1 */
    bool snappy;      /* compressed: values have no place in the file */
    const char *what; /* "index block", "metaindex block" or "data block"; static */
};

struct sdc_sst_entry {
    const char *key; /* not NUL-terminated; any bytes */
    size_t key_len;
    const unsigned char *value;
    size_t value_len;
    uint64_t value_offset; /* in the file; UINT64_MAX in a compressed block */
    size_t block;          /* index into sdc_sst.blocks */
};

struct sdc_sst {
    struct sdc_sst_block *blocks; /* in the order of reading: index, metaindex, data blocks */
    size_t n_blocks, cap;
    struct sdc_sst_entry *entries; /* in the order of keys, which ascend strictly */
    size_t n, cap_entries;
    unsigned char **texts; /* what keys and values point into, one per data block */
    size_t n_texts;
};

#define SDC_SST_INIT                                                                               \
    { 0 }

/* Does the file end as a table does? False too if it cannot be read. */
bool sdc__sst_is(const struct sdc_file *file);

/* The whole table. SDC_INVALID ("truncated", "not a table", damaged, with offset), SDC_LIMIT,
 * SDC_IO, SDC_NO_MEMORY; *sst is then as after SDC_SST_INIT. */
enum sdc_status sdc__sst_read(const struct sdc_file *file, struct sdc_sst *sst,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc__sst_release(struct sdc_sst *sst);

/* The entry with exactly this key, or NULL. */
const struct sdc_sst_entry *sdc__sst_find(const struct sdc_sst *sst, const void *key, size_t len);

/* Unpacks a snappy block into fresh memory (sdc__free); false: damaged, over limit, or no memory.
 * The one function of the library behind it. */
bool sdc__snappy_unpack(const unsigned char *data, size_t len, size_t limit, unsigned char **out,
                        size_t *out_len);

#endif
