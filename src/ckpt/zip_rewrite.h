/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes members of a zip archive whose bytes in the file must then change too (deflated ones): a
 * new archive with the same members in the same order, with the same names, times, attributes,
 * flags and comments; the other members' bytes are copied as they are. Not for stored members whose
 * bytes are patched in place.
 *
 *     struct sdc_zip_change c = {.member = i, .patches = patches, .n_patches = n};
 *     SDC_TRY(sdc__zip_rewrite(original, &zip, &c, 1, copy, err));
 */
#ifndef SDC_CKPT_ZIP_REWRITE_H
#define SDC_CKPT_ZIP_REWRITE_H

#include "ckpt/zip.h"

/* Bytes to put into a member, at an offset of what it inflates to. */
struct sdc_zip_patch {
    uint64_t at;
    unsigned n; /* 1 to 8 */
    unsigned char bytes[8];
};

struct sdc_zip_change {
    size_t member;
    /* ascending, without overlap, inside the member */
    const struct sdc_zip_patch *patches;
    size_t n_patches;
    /* not NULL: the member's new content instead; patches are not looked at. Its size may differ
     * from what it was. */
    const struct sdc_file *content;
    bool keep_crc; /* of a patched member: the stored value stays, wrong as it is then */
};

/* changes: n >= 1 of different members, stored or deflated, which stay what they are. zip is the
 * archive of the whole of `from` (base 0). to: a copy of from, which is written anew from the first
 * changed member on; its size is set.
 *
 * CRCs: of patched members the stored value changes as the data do, so a right one stays right, a
 * wrong one wrong by the same amount, and 0 (not computed) of a member that is not empty stays 0;
 * of replaced members it is the right one. What they inflate to is not limited here: call
 * sdc__zip_check_inflated first. SDC_INVALID (damaged data), SDC_UNSUPPORTED (method), SDC_IO. */
enum sdc_status sdc__zip_rewrite(const struct sdc_file *from, const struct sdc_zip *zip,
                                 const struct sdc_zip_change *changes, size_t n,
                                 struct sdc_file *to, struct sdc_error *err) SDC_MUST_CHECK;

#endif
