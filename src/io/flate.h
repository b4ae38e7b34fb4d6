/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw deflate streams (RFC 1951), as zip members hold them: inflating a range of a file from its
 * beginning on, and deflating into a file. Not for gzip files: see sdc__read_gz.
 *
 *     struct sdc_inflate *in;
 *     SDC_TRY(sdc__inflate_new(file, offset, len, &in, err));
 *     st = sdc__inflate_read(in, bytes, n, err);   as often as wanted
 *     sdc__inflate_free(in);
 *
 * One thread per object.
 */
#ifndef SDC_IO_FLATE_H
#define SDC_IO_FLATE_H

#include <stddef.h>
#include <stdint.h>

#include "io/io.h"

struct sdc_inflate;

/* The stream in `len` bytes from offset on; file is borrowed. SDC_NO_MEMORY. */
enum sdc_status sdc__inflate_new(const struct sdc_file *file, uint64_t offset, uint64_t len,
                                 struct sdc_inflate **in, struct sdc_error *err) SDC_MUST_CHECK;
/* The next n bytes; data NULL: skips them. SDC_INVALID: damaged, or ends before ("truncated"). */
enum sdc_status sdc__inflate_read(struct sdc_inflate *in, void *data, uint64_t n,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* Nothing may be left: neither inflated bytes nor bytes of the range. SDC_INVALID. */
enum sdc_status sdc__inflate_end(struct sdc_inflate *in, struct sdc_error *err) SDC_MUST_CHECK;
uint64_t sdc__inflate_at(const struct sdc_inflate *in); /* bytes read or skipped by now */
void sdc__inflate_free(struct sdc_inflate *in);         /* accepts NULL */

struct sdc_deflate;

/* Writes from offset on; file is borrowed. Level 6, zlib's and Python's default. */
enum sdc_status sdc__deflate_new(struct sdc_file *file, uint64_t offset, struct sdc_deflate **out,
                                 struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__deflate_put(struct sdc_deflate *out, const void *data, size_t n,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Ends the stream; *len: its bytes in the file. */
enum sdc_status sdc__deflate_end(struct sdc_deflate *out, uint64_t *len,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__deflate_free(struct sdc_deflate *out); /* accepts NULL */

#endif
