/* SPDX-License-Identifier: Apache-2.0
 *
 * Alteration record, sdclab.record/1, file NAME.sdc.jsonl: the list of what was changed in one
 * file, written ahead of the change; schemas/record-1.json is the schema of a line. Reading and
 * writing lines; changing files is sdc/alter.h.
 *
 * First line "header": schema, tool version, seed, fault choice, support size in bits, identity of
 * the file or of each touched file of a set. One line "change" per altered element: tensor, index,
 * shape of the tensor, byte offset, operator, bits where the operator has them (a list, from the
 * least significant, 0), old and new raw bytes in hex as they lie in the file (elements under 8
 * bits: the value in one byte), old and new value, part, role. One line "mended" per stored
 * checksum that was changed with them. Last line "verified" with the counts that were read back:
 * what counts as altered is what was read back. A record without it belongs to an alteration that
 * did not finish.
 *
 *     {"type":"header","schema":"sdclab.record/1", ...}
 *     {"type":"change","tensor":"model/fc1.bias", ...,"old":"cdcc4c3d","new":"cdcc4c7d", ...}
 *     {"type":"verified","elements":1,"bits":1}
 *
 * One thread per object; functions without one are thread-safe.
 */
#ifndef SDC_RECORD_H
#define SDC_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Identity of a file before it was altered: size, and XXH3-64 of the first and last 64 KiB with the
 * sites' old bytes in place; the whole file's digest if asked for. */
struct sdc_file_identity {
    uint64_t size;
    uint64_t head, tail;
    bool has_whole;
    unsigned char whole[16];
};

/* A touched file of a set. */
struct sdc_record_file {
    char *name; /* relative to the set's folder */
    struct sdc_file_identity identity;
};

struct sdc_record_header {
    char *tool; /* "sdclab 0.1.0" */
    uint64_t seed;
    struct sdc_choice choice;
    uint64_t
        support_bits; /* sites of the support: bits, or elements where the operator takes such */
    uint64_t removed_bits; /* sites that not_result took out of it */
    uint64_t planned;      /* sites planned */
    uint64_t elements;     /* elements that hold them: lines "change"; 0 in records of 0.1.0 */
    uint64_t attempts, happened; /* of sample attempts, see struct sdc_fault_list; else 0 */
    char *source;                /* path as given of the file that was read */
    char *file;                  /* path as given of the file that holds the changes */
    char *format;                /* "hdf5", "safetensors" */
    bool has_identity;           /* of one file; false for a set */
    struct sdc_file_identity identity;
    struct sdc_record_file *files; /* of a set */
    size_t n_files;
    bool has_after; /* storage was written anew: the file is another since */
    struct sdc_file_identity after;
    bool synced;  /* false: --no-sync */
    char *origin; /* path as given of the record or sequence whose faults these are; NULL: drawn */
};

struct sdc_record_change {
    char *tensor;
    enum sdc_dtype dtype;
    enum sdc_part part;
    enum sdc_role role;
    uint64_t elem;   /* flat C-order index */
    char *index;     /* the same as text, "[2,0,4]" */
    uint64_t *shape; /* of the tensor, n_shape sizes; NULL: not told (records of before it was) */
    size_t n_shape;  /* at most 32; 0 with a shape: a scalar */
    char *file;      /* of a set, relative to its folder; NULL: the only file */
    uint64_t offset; /* of the element's first byte in the file; 0 if recoded */
    unsigned shift;  /* of its lowest bit in that byte; not 0 for types under 8 bits only */
    bool big_endian; /* order of the bytes in the file */
    bool recoded;    /* its storage (compressed) was written anew, so it has no bytes of its own */
    enum sdc_op op;
    uint64_t bits;             /* mask of flipped or set bits, over the raw value; 0 for operators
                                  without */
    uint64_t old_raw, new_raw; /* values; the record's hex holds the file's bytes, in file order */
    uint64_t other;            /* SWAP: flat index of the element whose value was taken */
    double weight;             /* of a stratified sample, see struct sdc_fault; else 0 */
};

/* A stored checksum that was changed with what it covers. */
struct sdc_record_mended {
    char *kind; /* "CRC-32" */
    char *what; /* "member data/0" */
    char *file; /* as in a change */
    uint64_t offset;
    uint32_t old_raw, new_raw; /* of its 4 bytes, least significant first */
    bool was_wrong; /* old_raw was not what it should be, and new_raw differs from it by as much */
};

struct sdc_record {
    struct sdc_record_header header;
    struct sdc_record_change *changes;
    size_t n_changes;
    struct sdc_record_mended *mended;
    size_t n_mended;
    bool verified;       /* the last line is there */
    uint64_t n_verified; /* elements that read back as planned */
    uint64_t n_bits;     /* bits that differ from before */
};

SDC_API void sdc_record_release(struct sdc_record *r);
/* SDC_INVALID names the line; an incomplete last line is left out (a write-ahead log may end so),
 * an incomplete earlier one is an error, and so are a file without a header, a line after
 * "verified", and a change whose bits do not lead from its old to its new bytes. SDC_MISMATCH for
 * another schema. *r is filled only on success; release it then. */
SDC_API enum sdc_status sdc_record_read(const char *path, struct sdc_record *r,
                                        struct sdc_error *err) SDC_MUST_CHECK;
/* Single lines with newline; free with sdc_text_free. */
SDC_API enum sdc_status sdc_record_header_line(const struct sdc_record_header *h, char **line,
                                               struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_record_change_line(const struct sdc_record_change *c, char **line,
                                               struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_record_mended_line(const struct sdc_record_mended *m, char **line,
                                               struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_record_verified_line(uint64_t n_verified, uint64_t n_bits, char **line,
                                                 struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
