/* SPDX-License-Identifier: Apache-2.0
 *
 * Sites and bits as text, and a choice inside larger JSON. Internal to the contract.
 */
#ifndef SDC_CONTRACT_CHOICE_TEXT_H
#define SDC_CONTRACT_CHOICE_TEXT_H

#include "base/json.h"
#include "base/str.h"
#include "sdc/choice.h"

extern const char *const sdc__sample_words[];         /* by enum sdc_sample */
extern const char *const sdc__op_words[SDC_OP_COUNT]; /* by enum sdc_op */
extern const char *const sdc__checksum_words[];
extern const char *const sdc__compat_words[];

enum sdc_status sdc__choice_set_rate(struct sdc_choice *c, double rate,
                                     struct sdc_error *err) SDC_MUST_CHECK;

/* at->tensor is owned by the caller after success. */
enum sdc_status sdc__at_parse(const char *text, struct sdc_at *at,
                              struct sdc_error *err) SDC_MUST_CHECK;
/* "NAME[i,j]@lsb:30"; the brackets are always there, so that it reads back whatever the name. */
void sdc__at_text(const struct sdc_at *at, struct sdc_buf *out);
/* "any" for no items. */
void sdc__bits_text(const struct sdc_bits_item items[], size_t n, struct sdc_buf *out);

/* The choice as one object of a document. */
void sdc__choice_write(const struct sdc_choice *c, struct sdc_jw *w);
/* where names the object in messages; *c is initialised here and released on failure. */
enum sdc_status sdc__choice_read(const struct sdc_json *v, const char *where, struct sdc_choice *c,
                                 struct sdc_error *err) SDC_MUST_CHECK;

#endif
