/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks in memory in zlib's format (RFC 1950), as HDF5 chunks hold them. Thread-safe.
 */
#ifndef SDC_IO_ZBLOCK_H
#define SDC_IO_ZBLOCK_H

#include <stddef.h>

#include "sdc/status.h"

/* Unpacks into memory of `size` bytes; *len: how many there were. SDC_INVALID: damaged, cut short,
 * or more than size. Bytes behind the stream are passed over, as libhdf5 does. what names the
 * object in messages. */
enum sdc_status sdc__zblock_unpack(const void *data, size_t n, void *out, size_t size, size_t *len,
                                   const char *what, struct sdc_error *err) SDC_MUST_CHECK;
/* Into fresh memory (sdc__free); level 0 to 9. SDC_NO_MEMORY. */
enum sdc_status sdc__zblock_pack(const void *data, size_t n, int level, void **out, size_t *len,
                                 const char *what, struct sdc_error *err) SDC_MUST_CHECK;

#endif
