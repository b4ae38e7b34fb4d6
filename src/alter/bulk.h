/* SPDX-License-Identifier: Apache-2.0
 *
 * Altering many sites without a record: run by run, each read, changed, written and read back
 * before the next, with no list of changes. Sixteen bytes a site are held, the site and the value
 * it had, so that a failure can be taken back. The file's bytes come out as by the list.
 *
 * Served are plans of one file without checksums or storage to be written anew, whose runs of sites
 * have no bytes between each other's; everything else goes by the list.
 */
#ifndef SDC_ALTER_BULK_H
#define SDC_ALTER_BULK_H

#include "fault/places.h"
#include "io/io.h"
#include "sdc/alter.h"
#include "sdc/ckpt.h"

#define SDC_BULK_FROM ((uint64_t)1 << 16) /* fewer sites go by the list */

struct sdc_bulk;

struct sdc_bulk_counts {
    uint64_t elements, altered, bits;
};

/* Do the options and the choice ask for so many sites, and for nothing that takes the list? */
bool sdc__bulk_wanted(const struct sdc_support *s, const struct sdc_choice *choice,
                      const struct sdc_alter_options *options);
/* Draws the sites and looks where they are; changes nothing. *bulk is NULL where they are not
 * served, which the list will do. ckpt and support are borrowed. */
enum sdc_status sdc__bulk_new(struct sdc_ckpt *ckpt, const struct sdc_support *support,
                              const struct sdc_choice *choice,
                              const struct sdc_alter_options *options, struct sdc_bulk **bulk,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc__bulk_free(struct sdc_bulk *bulk);
uint64_t sdc__bulk_sites(const struct sdc_bulk *bulk);
/* Once. On failure sdc__bulk_restore puts back what was changed. */
enum sdc_status sdc__bulk_alter(struct sdc_bulk *bulk, struct sdc_file *f, bool sync,
                                struct sdc_bulk_counts *counts,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* True if the file is as it was before. */
bool sdc__bulk_restore(struct sdc_bulk *bulk, struct sdc_file *f, bool sync);

/* The first few faults, with the values before and after once they are altered; as many as the
 * options' max_changes asks for or there are. */
struct sdc_bulk_sample {
    struct sdc_fault_list list;
    const uint64_t *old_raw, *new_raw;
};
struct sdc_bulk_sample sdc__bulk_first(const struct sdc_bulk *bulk);

#endif
