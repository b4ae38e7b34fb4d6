/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored checksums that an alteration makes wrong: what they become. Computes only; writing is that
 * of every other patch.
 */
#ifndef SDC_ALTER_MEND_H
#define SDC_ALTER_MEND_H

#include "alter/patches.h"
#include "sdc/ckpt.h"

/* CRCs are mended without reading what they cover; up to so many bytes are read all the same, to
 * see which were right before. */
#define SDC_MEND_CHECKED (UINT64_C(16) << 20)

struct sdc_mending {
    struct sdc_record_mended *items; /* owned; texts borrowed from the checkpoint */
    size_t n;
    uint64_t n_stale;     /* sums that are wrong now because they were to be left */
    uint64_t n_unknown;   /* sums that the writer had left out, and stay so */
    uint64_t n_wrong;     /* sums that were wrong before and stay so, where that is known */
    uint64_t n_moved;     /* of them, CRCs: changed, and wrong by the same difference as before */
    uint64_t n_unchecked; /* CRCs that were not compared with what they cover */
    uint64_t checked;     /* bytes that were read to compare CRCs */
};

/* The open file of a number, for reading what a sum covers and stores. */
typedef enum sdc_status sdc__mend_file(void *user, unsigned file, const struct sdc_file **f,
                                       struct sdc_error *err);

/* The sums of ckpt that cover patches whose old and new value differ, in ascending level: a CRC by
 * the change alone, others over the bytes they cover. Adds a patch for each stored value that
 * changes and sorts the list again; the checkpoint and m must outlive the list. A CRC that was
 * wrong stays wrong by the same difference, and is counted for what SDC_MEND_CHECKED bytes in all
 * tell; what is recomputed is left as it is then. stale: counts only. */
enum sdc_status sdc__mend(const struct sdc_ckpt *ckpt, bool stale, sdc__mend_file *open, void *user,
                          struct sdc_patches *patches, struct sdc_mending *m,
                          struct sdc_error *err) SDC_MUST_CHECK;
void sdc__mending_release(struct sdc_mending *m);

#endif
