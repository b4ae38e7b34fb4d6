/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the GGUF format: the header (gguf_header.c), tensors as entries (gguf.c),
 * the blocks of quantised types (gguf_blocks.c).
 *
 * Layout (ggml-org/ggml, docs/gguf.md, src/gguf.cpp; 2026):
 *
 *     "GGUF", u32 version (2, 3), u64 tensors, u64 key-value pairs
 *     pair:   string key, u32 type, value         string: u64 length, bytes
 *     tensor: string name, u32 dimensions, u64 each (fastest first), u32 type, u64 offset
 *     padding to the alignment, then the data: each tensor padded to the alignment
 *
 * A version whose low 16 bits are 0 was written in the other byte order than the reader's: the file
 * is big-endian if the version reads right as a big-endian number.
 */
#ifndef SDC_CKPT_FMT_GGUF_H
#define SDC_CKPT_FMT_GGUF_H

#include "ckpt/fmt.h"

#define SDC_GGUF_DIMS     4
#define SDC_GGUF_MAX_PART 8 /* components of a quantised type */

struct sdc_gguf_tensor {
    char *name; /* owned */
    unsigned rank;
    uint64_t shape[SDC_GGUF_DIMS]; /* slowest first */
    uint64_t n_elems;
    uint32_t type;
    uint64_t offset; /* in the file */
    uint64_t size;   /* bytes; of an unknown type: up to the next tensor, padding included */
};

struct sdc_gguf_header {
    bool big_endian;
    uint64_t alignment, data; /* where the data begin */
    struct sdc_gguf_tensor *tensors;
    size_t n;
    bool is_split;                                 /* key split.count, over 1 */
    uint64_t split_no, split_count, split_tensors; /* UINT64_MAX: the key is missing */
    uint64_t end;                                  /* of the last tensor, without padding */
    bool long_name;
};

/* SDC_INVALID: truncated, out of bounds, damaged; SDC_UNSUPPORTED: another version; SDC_LIMIT. *h
 * is then empty. */
enum sdc_status sdc__gguf_read_header(const struct sdc_file *file, struct sdc_gguf_header *h,
                                      struct sdc_error *err) SDC_MUST_CHECK;
void sdc__gguf_header_release(struct sdc_gguf_header *h);

/* One component of a block: `n` dimensions inside the block, slowest first. */
struct sdc_gguf_part {
    const char *name;  /* "scale" */
    const char *dtype; /* as sdc_dtype_parse reads it */
    unsigned at;       /* bit of the first element in the block */
    bool weights;      /* one element per weight: has the tensor's shape; else blocks x elements */
    bool word;         /* bits of a number of several bytes: their place depends on byte order */
    unsigned n;
    unsigned dims[4], strides[4]; /* strides in bits */
};

struct sdc_gguf_type {
    uint32_t number;
    const char *name;
    unsigned weights, bytes; /* of a block */
    const char *dtype;       /* not quantised: the elements as they are; else NULL */
    struct sdc_gguf_part parts[SDC_GGUF_MAX_PART]; /* up to the first without a name */
};

/* NULL: unknown or withdrawn. */
const struct sdc_gguf_type *sdc__gguf_type(uint32_t number);

#endif
