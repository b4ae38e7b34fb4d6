/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of changes, many of them: what sdc_record_change_line makes one at a time.
 */
#ifndef SDC_CONTRACT_RECORD_LINE_H
#define SDC_CONTRACT_RECORD_LINE_H

#include "base/str.h"
#include "sdc/record.h"

/* Appends the line. Writes what nearly all changes are without a detour over texts, and leaves the
 * rest to the table below. */
enum sdc_status sdc__record_change_append(const struct sdc_record_change *c, struct sdc_buf *out,
                                          struct sdc_error *err) SDC_MUST_CHECK;
/* The same line by the table of fields that reading goes by; free with sdc_text_free. */
enum sdc_status sdc__record_change_by_table(const struct sdc_record_change *c, char **line,
                                            struct sdc_error *err) SDC_MUST_CHECK;

/* Reads such a line: true only where what was read is written as this very line, with its end.
 * Else, and where there is no memory, the table is to say. scratch is overwritten; texts and
 * shape of c are its own. Whether old, new and bits agree with each other is for the caller to ask.
 */
bool sdc__record_change_scan(const char *line, size_t len, struct sdc_buf *scratch,
                             struct sdc_record_change *c);

#endif
