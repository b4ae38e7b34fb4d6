/* SPDX-License-Identifier: Apache-2.0
 *
 * The record's file: its name, and writing it so that it is whole or absent.
 */
#ifndef SDC_ALTER_ALTER_RECORD_H
#define SDC_ALTER_ALTER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sdc/record.h"

/* What a record consists of before its last line; mended ones whose value stays are left out. */
struct sdc_record_lines {
    const struct sdc_record_header *header;
    const struct sdc_record_change *changes;
    size_t n_changes;
    unsigned threads; /* 0: one for each processor */
    const struct sdc_record_mended *mended;
    size_t n_mended;
};

/* Writes the lines to record_path, or beside header->file under the first free name of
 * FILE.sdc.jsonl, FILE.2.sdc.jsonl, ...; *path: where it is, free with sdc__free. An existing file
 * is never touched (SDC_EXISTS for record_path). Synced with its folder if sync. It holds values of
 * the file, so nobody may read it but its owner and whom `readers`, a file mode, lets. */
enum sdc_status sdc__record_create(const char *record_path, const struct sdc_record_lines *lines,
                                   mode_t readers, bool sync, char **path,
                                   struct sdc_error *err) SDC_MUST_CHECK;
/* Appends the last line. */
enum sdc_status sdc__record_finish(const char *path, uint64_t n_verified, uint64_t n_bits,
                                   bool sync, struct sdc_error *err) SDC_MUST_CHECK;

#endif
