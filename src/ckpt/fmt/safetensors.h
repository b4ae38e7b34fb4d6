/* SPDX-License-Identifier: Apache-2.0
 *
 * One safetensors file, alone (safetensors.c) or as a shard of a set (safetensors_set.c).
 */
#ifndef SDC_CKPT_FMT_SAFETENSORS_H
#define SDC_CKPT_FMT_SAFETENSORS_H

#include "ckpt/fmt.h"

/* By the first bytes: JSON behind a length. */
bool sdc__st_sniff(const unsigned char *head, size_t n_head);
/* Adds the tensors of f, which is that member of the checkpoint. As strict as the reference reader.
 */
enum sdc_status sdc__st_read(struct sdc_ckpt *ckpt, unsigned member, const struct sdc_file *f,
                             struct sdc_error *err) SDC_MUST_CHECK;

#endif
