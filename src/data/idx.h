/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX files as in MNIST and its kin: a magic number (two zero bytes, the type, the number of
 * dimensions), the sizes, the elements; numbers big-endian. Only type 8, unsigned bytes. Source:
 * "The IDX file format" on the MNIST page of LeCun, Cortes and Burges.
 */
#ifndef SDC_DATA_IDX_H
#define SDC_DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "sdc/status.h"

struct sdc_idx {
    uint32_t size[3];     /* of each dimension */
    const uint8_t *bytes; /* the elements, inside the text that was parsed */
};

/* Reads DIR/NAME.gz, or DIR/NAME without it, inflated, into text; *path becomes the file's path
 * (free with sdc__free, also after a failure). SDC_NOT_FOUND names both. */
enum sdc_status sdc__idx_load(const char *dir, const char *name, struct sdc_buf *text, char **path,
                              struct sdc_error *err) SDC_MUST_CHECK;

/* Exactly `rank` (1 to 3) dimensions of bytes; every size is checked against the length of the
 * file. SDC_INVALID with the offset. */
enum sdc_status sdc__idx_parse(const struct sdc_buf *text, const char *path, unsigned rank,
                               struct sdc_idx *idx, struct sdc_error *err) SDC_MUST_CHECK;

#endif
