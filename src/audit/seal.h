/* SPDX-License-Identifier: Apache-2.0
 *
 * The file sdclab.seal/1 and the digests it holds.
 */
#ifndef SDC_AUDIT_SEAL_H
#define SDC_AUDIT_SEAL_H

#include "base/hash.h"
#include "sdc/audit.h"

#define SDC_SEAL_BLOCKS    256                  /* of one tensor at most */
#define SDC_SEAL_MIN_BLOCK UINT64_C(1024)       /* elements of a block at least */
#define SDC_SEAL_READ      ((size_t)256 * 1024) /* bytes read at a time */

/* Of a tensor: all of it, and equal blocks in C order, the last of which may be shorter. */
struct sdc_seal_digest {
    struct sdc_digest all;
    uint64_t block; /* elements of a block; 0: there is one block only, and n_blocks is 0 */
    size_t n_blocks;
    uint64_t blocks[SDC_SEAL_BLOCKS]; /* the first 8 bytes of the block's digest, big-endian */
};

struct sdc_seal_file {
    char *name;
    uint64_t size;
    struct sdc_digest digest;
};

struct sdc_seal_tensor {
    char *name, *type;
    uint64_t *shape;
    unsigned rank;
    bool has_digest;
    struct sdc_digest all;
    uint64_t block;
    uint64_t *blocks;
    size_t n_blocks;
};

struct sdc_seal {
    char *format;
    struct sdc_seal_file *files;
    size_t n_files;
    struct sdc_seal_tensor *tensors; /* sorted by name */
    size_t n_tensors;
};

/* PATH.seal, see sdc__path_named; free with sdc__free. NULL: no memory. */
char *sdc__seal_path(const char *path) SDC_MUST_CHECK;
/* Elements of a block of a tensor of n elements; 0: one block. */
uint64_t sdc__seal_block(uint64_t n_elems);

/* buffer: SDC_SEAL_READ bytes aligned to 8. Thread-safe. */
enum sdc_status sdc__seal_file_digest(const char *path, unsigned char *buffer,
                                      struct sdc_digest *digest, uint64_t *size,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* block: elements of a block, 0 for none; at most SDC_SEAL_BLOCKS of them (SDC_INVALID). */
enum sdc_status sdc__seal_tensor_digest(struct sdc_ckpt *ckpt, size_t tensor, uint64_t block,
                                        unsigned char *buffer, struct sdc_seal_digest *digest,
                                        struct sdc_error *err) SDC_MUST_CHECK;

/* SDC_INVALID with the place in the text. */
enum sdc_status sdc__seal_read(const char *path, struct sdc_seal *seal,
                               struct sdc_error *err) SDC_MUST_CHECK;
void sdc__seal_release(struct sdc_seal *seal);

#endif
