/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines: one object a line, of a kind that its key "type" names.
 */
#ifndef SDC_CONTRACT_LINES_H
#define SDC_CONTRACT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "contract/fields.h"
#include "sdc/status.h"

/* One line, with or without its newline. SDC_LIMIT over SDC_MAX_JSON_LINE. */
enum sdc_status sdc__line_parse(const char *line, size_t len, const char *what,
                                struct sdc_json **root, struct sdc_error *err) SDC_MUST_CHECK;
/* The word of "type" as its place among the words. */
enum sdc_status sdc__line_kind(const struct sdc_json *root, const char *what,
                               const struct sdc__words *kinds, int *kind,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* Calls take for every line that has its newline, in order, with what = "PATH line 3". *whole is
 * false if the file ends in a line without one, which is left out: its writer was interrupted. */
typedef enum sdc_status sdc__line_fn(void *user, const char *line, size_t len, const char *what,
                                     struct sdc_error *err);
enum sdc_status sdc__lines_read(const char *path, sdc__line_fn *take, void *user, bool *whole,
                                struct sdc_error *err) SDC_MUST_CHECK;

#endif
