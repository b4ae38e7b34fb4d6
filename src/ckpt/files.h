/* SPDX-License-Identifier: Apache-2.0
 *
 * What ckpt.c alone needs of files.c.
 */
#ifndef SDC_CKPT_FILES_H
#define SDC_CKPT_FILES_H

#include "ckpt/fmt.h"

/* Makes an open file member 0; takes it over. */
enum sdc_status sdc__ckpt_adopt(struct sdc_ckpt *ckpt, struct sdc_file *file,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Members, sums and notes. */
void sdc__ckpt_release_files(struct sdc_ckpt *ckpt);

#endif
