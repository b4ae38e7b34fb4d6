/* SPDX-License-Identifier: Apache-2.0
 *
 * sdclab-hdf5: the only program that links libhdf5. sdclab starts one for each file it looks at and
 * asks it over a socket pair (ckpt/fmt/hdf5_wire.h). libhdf5 1.10 may crash, hang or ask for much
 * memory on hostile files: this process has limits, may open nothing, and its death is the end of
 * no one else.
 */
#ifndef SDC_HDF5_HELPER_H
#define SDC_HDF5_HELPER_H

#define H5_USE_110_API
#include <hdf5.h>
#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#include "ckpt/fmt/hdf5_wire.h"

/* ---- frames (main.c) ---- */

/* All of these end the process where the parent is gone. */
void helper_reply(enum sdc_wire_kind kind, const void *body, size_t len);
void helper_reply_buf(enum sdc_wire_kind kind, struct sdc_buf *body); /* and clears it */
void helper_fail(enum sdc_wire_fail reason, const char *what);
/* With the innermost message of libhdf5's error stack, which is cleared. */
void helper_fail_hdf5(const char *what);

/* ---- the file (range.c) ---- */

/* A driver for libhdf5 over a range of one open descriptor. While `watched`, reads of raw data are
 * noted, not made: the way to learn where a chunk is, in logarithmic time, from what libhdf5 itself
 * would read (its queries walk the whole index, and leave out the userblock in some versions). */
struct helper_range {
    int fd;
    uint64_t offset, size;
    bool writable;
    unsigned char overlay[64]; /* seen instead of the file's bytes */
    uint64_t overlay_at;
    size_t overlay_len;
    bool watched;
    unsigned seen; /* raw reads while watched */
    uint64_t seen_at, seen_size;
};
extern struct helper_range helper_range;
hid_t helper_range_fapl(void); /* or negative */

/* ---- a file in memory of which only the pages written exist (sparse.c) ---- */

hid_t helper_sparse_fapl(void);
uint64_t helper_sparse_size(void);
/* Calls for each run of pages in ascending order; false: no memory. */
bool helper_sparse_each(void (*run)(uint64_t position, const unsigned char *bytes, size_t len));
#define HELPER_PAGE ((size_t)4096)

/* ---- requests; file < 0 only in create ---- */

void helper_links(hid_t file, struct sdc_wire *w);  /* links.c */
void helper_texts(hid_t file, struct sdc_wire *w);  /* links.c */
void helper_counts(hid_t file, struct sdc_wire *w); /* chunks.c */
void helper_chunks(hid_t file, struct sdc_wire *w); /* chunks.c */
void helper_read(hid_t file, struct sdc_wire *w);   /* chunks.c */
void helper_write_chunk(hid_t file, struct sdc_wire *w);
void helper_forget(void);               /* closes the dataset that chunks.c keeps open */
void helper_create(struct sdc_wire *w); /* create.c */

#endif
