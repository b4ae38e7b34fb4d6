/* SPDX-License-Identifier: Apache-2.0
 *
 * The altered elements of one file as bytes: reading them, writing their old or new values, and the
 * identity of the file with the old ones in place. Knows offsets only, no formats.
 *
 * Order: `by_offset`; arrays of values that go with it (`now`) have the same order.
 */
#ifndef SDC_ALTER_ALTER_SITES_H
#define SDC_ALTER_ALTER_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/record.h"

struct sdc_sites {
    const struct sdc_record_change **by_offset; /* owned array of borrowed changes */
    size_t n;
};

/* Sorts; SDC_INVALID where a site lies outside the file or two of them overlap. */
enum sdc_status sdc__sites_init(struct sdc_sites *s, const struct sdc_record_change *changes,
                                size_t n, uint64_t file_size, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__sites_release(struct sdc_sites *s);

/* The raw values that the file holds now, into now[s->n]. */
enum sdc_status sdc__sites_read(const struct sdc_sites *s, const struct sdc_file *f, uint64_t *now,
                                struct sdc_error *err) SDC_MUST_CHECK;

enum sdc_side { SDC_SIDE_OLD, SDC_SIDE_NEW };
uint64_t sdc__site_value(const struct sdc_record_change *c, enum sdc_side side);
/* Writes the values of one side where now[] differs from them, and not one byte else. */
enum sdc_status sdc__sites_write(const struct sdc_sites *s, struct sdc_file *f, enum sdc_side side,
                                 const uint64_t *now, struct sdc_error *err) SDC_MUST_CHECK;

/* Of the file as it was, that is with the old values in place whatever it holds now. */
enum sdc_status sdc__sites_identity(const struct sdc_sites *s, const struct sdc_file *f, bool whole,
                                    struct sdc_file_identity *identity,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* SDC_BUSY where another holds a lock. A file system without locks is no error: nobody else could
 * take one there either. */
enum sdc_status sdc__lock_where_possible(struct sdc_file *f, bool exclusive,
                                         struct sdc_error *err) SDC_MUST_CHECK;

/* "tensor[2,0]" for messages. */
#define SDC_SITE_TEXT 512
void sdc__site_text(const struct sdc_record_change *c, char text[SDC_SITE_TEXT]);

#endif
