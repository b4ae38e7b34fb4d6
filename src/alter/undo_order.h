/* SPDX-License-Identifier: Apache-2.0
 *
 * Several alterations of one file are undone from the newest to the oldest: the records of the file
 * that lie beside it say whether this one is next.
 */
#ifndef SDC_ALTER_UNDO_ORDER_H
#define SDC_ALTER_UNDO_ORDER_H

#include "io/io.h"
#include "sdc/record.h"
#include "sdc/status.h"

/* SDC_MISMATCH, naming the other record, if one beside the file or set `path` (FILE.sdc.jsonl,
 * FILE.2.sdc.jsonl, ...; of a set also any in its folder) is in effect in one of the n files and
 * could not be undone there any more once `record` is. files: those of the record's header, open;
 * the record's places are inside of them. Records that cannot be read or are of other files do not
 * matter. */
enum sdc_status sdc__undo_order_check(const struct sdc_record *record, const char *path,
                                      const struct sdc_file *files, size_t n,
                                      struct sdc_error *err) SDC_MUST_CHECK;

/* Is this the name that the record of `file` gets where no other is asked for? */
bool sdc__record_is_default(const char *record_path, const char *file);

#endif
