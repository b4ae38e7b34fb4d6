/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the directory of a zip archive that is a range of a file, with the place of everything that
 * an alteration touches: data, CRCs. Reads only; never inflates; bounded by the size of the file,
 * not by what it declares. Sizes come from the central directory, the beginning of data from the
 * local header. Changing members so that their size changes is zip_rewrite.h.
 *
 *     struct sdc_zip zip;
 *     SDC_TRY(sdc__zip_open(file, 0, file->size, &zip, err));
 *     const struct sdc_zip_member *m = sdc__zip_find(&zip, "archive/data.pkl");
 *     ...
 *     sdc__zip_release(&zip);
 *
 * Sources: PKWARE APPNOTE 6.3.10 (sections 4.3 to 4.5), CPython 3.11 Lib/zipfile.py for prefixes,
 * duplicates and comments. One thread per object; const functions from several.
 */
#ifndef SDC_CKPT_ZIP_H
#define SDC_CKPT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/status.h"

#define SDC_ZIP_STORED   0
#define SDC_ZIP_DEFLATED 8

#define SDC_ZIP_FLAG_DESCRIPTOR 0x0008u /* sizes and CRC follow the data */

/* Offsets are those of the file, not of the range. */
struct sdc_zip_member {
    const char *name; /* as stored, NUL-terminated (names with a NUL are refused); borrowed */
    uint16_t flags, method;
    uint16_t name_len;
    bool whole;              /* false only after sdc__zip_salvage: its end is not there */
    bool shadowed;           /* a later member has the same name; readers take the later one */
    uint32_t crc;            /* as the central directory says */
    uint32_t central_len;    /* bytes of its header in the central directory */
    uint32_t descriptor_len; /* 12, 16, 20 or 24; 0: none */
    uint64_t stored;         /* bytes of the file that hold its data */
    uint64_t size;           /* bytes of the member; equals stored where method is SDC_ZIP_STORED */
    uint64_t header;         /* of its local header */
    uint64_t data;
    uint64_t central;       /* of its header in the central directory; 0 after a salvage */
    uint64_t crc_places[2]; /* of the 4 bytes: local header or descriptor, central directory */
    unsigned n_crc_places;
};

struct sdc_zip {
    struct sdc_zip_member *members; /* in the order of the central directory */
    size_t n;
    size_t n_shadowed;     /* members that a later one of the same name hides */
    uint64_t base, length; /* the range */
    uint64_t prefix;       /* bytes between base and what the archive counts as its offset 0 */
    uint64_t directory;    /* offset of the central directory */
    uint64_t directory_len;
    uint64_t trailing; /* bytes after the archive's end */
    uint64_t end;      /* offset of the end record */
    uint64_t end64;    /* offset of the zip64 end record; 0: none */
    bool zip64;        /* it ends with the zip64 records */
    uint32_t *by_name; /* indices of members, sorted by name, then index */
    char *texts;       /* what names point into */
};

#define SDC_ZIP_INIT                                                                               \
    { 0 }

/* The whole directory of the archive in `length` bytes from `base` on. SDC_INVALID: "truncated"
 * (then with the members that are whole), overlapping members, damaged headers, always with the
 * member and the offset; SDC_UNSUPPORTED: encrypted or several disks; SDC_LIMIT. On failure *zip is
 * as after SDC_ZIP_INIT. Time and memory grow with the number of members alone. */
enum sdc_status sdc__zip_open(const struct sdc_file *file, uint64_t base, uint64_t length,
                              struct sdc_zip *zip, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__zip_release(struct sdc_zip *zip);

/* The last member of this name, as Python takes it; NULL: none. */
const struct sdc_zip_member *sdc__zip_find(const struct sdc_zip *zip, const char *name);

/* SDC_LIMIT if a member says that it inflates out of proportion (over 4 GiB and over 1000 times its
 * stored size, the rule of Keras's loader) or, limit being positive, to more than limit bytes;
 * SDC_INVALID if deflate cannot reach what it says. To be called before inflating. */
enum sdc_status sdc__zip_check_inflated(const struct sdc_zip_member *m, uint64_t limit,
                                        const char *path, struct sdc_error *err) SDC_MUST_CHECK;

/* The members of an archive without a (readable) directory, found by walking over local headers
 * from base on, in that order; those without sizes in front by looking for their descriptor, whose
 * size and CRC must be right. Ends at the first that is not whole, or after `budget` bytes of such
 * looking. by_name and crc_places of the directory are not set. */
enum sdc_status sdc__zip_salvage(const struct sdc_file *file, uint64_t base, uint64_t length,
                                 uint64_t budget, struct sdc_zip *zip,
                                 struct sdc_error *err) SDC_MUST_CHECK;

enum sdc_zip_kind {
    SDC_ZIP_NONE,  /* no zip archive */
    SDC_ZIP_OTHER, /* one, but none of those below */
    SDC_ZIP_TORCH, /* a member NAME/data.pkl */
    SDC_ZIP_KERAS, /* config.json and model.weights.h5 or .npz */
    SDC_ZIP_NPZ    /* members *.npy, or none at all */
};
/* What an archive is, by the names in its directory; where that is missing, by the first local
 * header. For sniffing: reads the end of the file and the directory, reports no errors. head: the
 * first n_head bytes of the file. */
enum sdc_zip_kind sdc__zip_kind(const struct sdc_file *file, const unsigned char *head,
                                size_t n_head);

/* ---- for zip*.c ---- */

/* Little-endian fields. */
uint16_t sdc__zip_u16(const unsigned char *p);
uint32_t sdc__zip_u32(const unsigned char *p);
uint64_t sdc__zip_u64(const unsigned char *p);
/* The body of an extra field of this id and its length, or NULL. */
const unsigned char *sdc__zip_extra(const unsigned char *extra, size_t len, unsigned id, size_t *n);

#endif
