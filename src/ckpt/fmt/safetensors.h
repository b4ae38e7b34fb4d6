/* SPDX-License-Identifier: Apache-2.0
 *
 * One safetensors file, alone (safetensors.c) or as a shard of a set (safetensors_set.c), and its
 * header (safetensors_header.c).
 */
#ifndef SDC_CKPT_FMT_SAFETENSORS_H
#define SDC_CKPT_FMT_SAFETENSORS_H

#include "base/json.h"
#include "base/limits.h"
#include "ckpt/fmt.h"

/* By the first bytes: JSON behind a length. */
bool sdc__st_sniff(const unsigned char *head, size_t n_head);
bool sdc__st_blank(unsigned char c); /* of JSON */
/* Adds the tensors of f, which is that member of the checkpoint. As strict as the reference reader.
 * A type that is none of ours is listed as NAME:bytes; is_bytes tells such entries from others. */
enum sdc_status sdc__st_read(struct sdc_ckpt *ckpt, unsigned member, const struct sdc_file *f,
                             struct sdc_error *err) SDC_MUST_CHECK;
bool sdc__st_is_bytes(const struct sdc_ckpt_entry *e);

/* ---- the header ---- */

struct sdc_st_tensor {
    char dtype[32]; /* as in the file; longer words are cut */
    unsigned rank;
    uint64_t shape[SDC_MAX_RANK];
    uint64_t begin, end; /* in the data, begin <= end, each under 2^63 */
};

/* One member of the header: tensor where it is written as writers do, else value, which is any
 * JSON value. Both are borrowed. The same key may come twice: the visitor is to refuse that. */
typedef enum sdc_status (*sdc__st_visit)(void *user, const char *key,
                                         const struct sdc_st_tensor *tensor,
                                         const struct sdc_json *value, struct sdc_error *err);
/* All members in their order; stops at the first failure. text: UTF-8, checked. SDC_INVALID with
 * the place where it is no JSON. */
enum sdc_status sdc__st_walk(const char *text, size_t len, const char *path, sdc__st_visit visit,
                             void *user, struct sdc_error *err) SDC_MUST_CHECK;

#endif
