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
/* A note where files of the set are links out of its folder. */
enum sdc_status sdc__ckpt_note_links(struct sdc_ckpt *ckpt, struct sdc_error *err) SDC_MUST_CHECK;
/* Members, sums and notes. */
void sdc__ckpt_release_files(struct sdc_ckpt *ckpt);

#endif
