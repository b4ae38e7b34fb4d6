/* SPDX-License-Identifier: Apache-2.0
 *
 * What an alteration writes, as bits of files: altered elements and mended checksums alike. Reading
 * them, writing their old or new values, and the identity of a file with the old ones in place.
 * Knows offsets only, no formats.
 */
#ifndef SDC_ALTER_PATCHES_H
#define SDC_ALTER_PATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/record.h"

/* `bits` bits, `shift` bits up in the number that `size` bytes at offset hold. */
struct sdc_patch {
    uint64_t offset, old_raw, new_raw;
    uint64_t now;  /* as last read */
    unsigned file; /* which, for whoever made the list */
    unsigned char size, shift, bits;
    bool big_endian;
    const struct sdc_record_change *change; /* borrowed; NULL: a checksum */
    const struct sdc_record_mended *mended; /* borrowed; NULL: an element */
};

struct sdc_patches {
    struct sdc_patch *items; /* owned */
    size_t n, cap;
};

struct sdc_patch sdc__patch_of_change(const struct sdc_record_change *c, unsigned file);
struct sdc_patch sdc__patch_of_mended(const struct sdc_record_mended *m, unsigned file);
/* Room for n more. */
enum sdc_status sdc__patches_reserve(struct sdc_patches *list, size_t n,
                                     struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__patches_add(struct sdc_patches *list, const struct sdc_patch *p,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__patches_release(struct sdc_patches *list);
/* By file and offset. SDC_INVALID where two hold the same bit. */
enum sdc_status sdc__patches_sort(struct sdc_patches *list, struct sdc_error *err) SDC_MUST_CHECK;
/* The first two of a sorted list that hold the same bit; false: there are none. */
bool sdc__patches_overlap(const struct sdc_patches *list, const struct sdc_patch **a,
                          const struct sdc_patch **b);
/* Those of one file, in a sorted list. */
struct sdc_patch *sdc__patches_of(const struct sdc_patches *list, unsigned file, size_t *n);

/* From here on: n patches of one file, sorted. */

/* SDC_INVALID where one lies outside a file of this size. */
enum sdc_status sdc__patches_inside(const struct sdc_patch *p, size_t n, uint64_t size,
                                    struct sdc_error *err) SDC_MUST_CHECK;
/* Sets `now`. */
enum sdc_status sdc__patches_read(struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* From memory that shows the file. */
void sdc__patches_look(struct sdc_patch *p, size_t n, const unsigned char *view);

enum sdc_side { SDC_SIDE_OLD, SDC_SIDE_NEW };
uint64_t sdc__patch_value(const struct sdc_patch *p, enum sdc_side side);
/* Gives every patch the value of this side; only bytes that then differ, and what lies between near
 * ones, unchanged, are written. known: `now` is what the file holds, which saves reading what has
 * no neighbours. */
enum sdc_status sdc__patches_write(const struct sdc_patch *p, size_t n, struct sdc_file *f,
                                   enum sdc_side side, bool known,
                                   struct sdc_error *err) SDC_MUST_CHECK;
/* The same, `now` being what the file holds; view: memory that shows the file, or NULL. */
enum sdc_status sdc__patches_write_viewed(const struct sdc_patch *p, size_t n, struct sdc_file *f,
                                          enum sdc_side side, const unsigned char *view,
                                          struct sdc_error *err) SDC_MUST_CHECK;
/* Called with patches first to first + n of p when their `now` has been read: sets their old_raw
 * and new_raw. */
typedef void sdc__patches_seen(void *user, struct sdc_patch *p, size_t first, size_t n);
#define SDC_PATCHES_BLOCK ((size_t)1 << 20) /* bytes of one read or write */
/* Group by group: reads, asks for the new values, writes them and reads them back; by the calling
 * thread alone. block: memory of SDC_PATCHES_BLOCK. */
enum sdc_status sdc__patches_change(struct sdc_patch *p, size_t n, struct sdc_file *f,
                                    unsigned char *block, sdc__patches_seen *seen, void *user,
                                    struct sdc_error *err) SDC_MUST_CHECK;
/* After reading: SDC_IO naming the first patch whose value is not that of this side. */
enum sdc_status sdc__patches_check(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                   enum sdc_side side, struct sdc_error *err) SDC_MUST_CHECK;
/* Puts the values of one side into memory that holds the file's bytes from `from` on. */
void sdc__patches_put(const struct sdc_patch *p, size_t n, enum sdc_side side,
                      unsigned char *memory, uint64_t from, size_t len);

/* Of the file as it was, that is with the old values in place whatever it holds now; p may be NULL
 * with n 0. */
enum sdc_status sdc__patches_identity(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                      bool whole, struct sdc_file_identity *identity,
                                      struct sdc_error *err) SDC_MUST_CHECK;
bool sdc__identity_equal(const struct sdc_file_identity *a, const struct sdc_file_identity *b);

/* SDC_BUSY where another holds a lock. A file system without locks is no error: nobody else could
 * take one there either. */
enum sdc_status sdc__lock_where_possible(struct sdc_file *f, bool exclusive,
                                         struct sdc_error *err) SDC_MUST_CHECK;

#define SDC_LINKS_OUT "unsafe path: a link out of the folder of its set, expected a file in it"

/* "tensor[2,0]" or "the CRC-32 of member data/0" for messages. */
#define SDC_SITE_TEXT 512
void sdc__patch_text(const struct sdc_patch *p, char text[SDC_SITE_TEXT]);

#endif
