/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks shared by the files of src/stat. Not for use outside.
 */
#ifndef SDC_STAT_STAT_INTERNAL_H
#define SDC_STAT_STAT_INTERNAL_H

#include "sdc/status.h"

/* SDC_USAGE unless 0 < level < 1. what names the quantity in the message. */
enum sdc_status sdc__stat_check_unit(const char *what, double level,
                                     struct sdc_error *err) SDC_MUST_CHECK;

#endif
