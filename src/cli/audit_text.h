/* SPDX-License-Identifier: Apache-2.0
 *
 * How the commands that look at checkpoints show values, places and shapes.
 */
#ifndef SDC_CLI_AUDIT_TEXT_H
#define SDC_CLI_AUDIT_TEXT_H

#include "base/json.h"
#include "cli/text_table.h"
#include "sdc/ckpt.h"

/* "F32", or the format's own word. */
const char *sdc_text_of_type(const struct sdc_tensor_desc *t);
/* A cell with few digits; "inf", "nan". */
void sdc_text_number(struct sdc_text_table *table, double value);
/* A cell with the value of a raw element, all of its digits. */
void sdc_text_raw(struct sdc_text_table *table, enum sdc_dtype dtype, uint64_t raw);

/* key: {"bits": hex, "value": text} */
void sdc_json_raw(struct sdc_jw *w, const char *key, enum sdc_dtype dtype, uint64_t raw);
/* name, type, shape, elements, part, role as members of the current object. */
void sdc_json_desc(struct sdc_jw *w, const struct sdc_tensor_desc *t);
/* Prints the document on one line; SDC_NO_MEMORY if it is incomplete. Releases text. */
enum sdc_status sdc_json_print(struct sdc_buf *text, FILE *out,
                               struct sdc_error *err) SDC_MUST_CHECK;

#endif
