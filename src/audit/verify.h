/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of sdc_verify: each looks at one thing and adds findings.
 */
#ifndef SDC_AUDIT_VERIFY_H
#define SDC_AUDIT_VERIFY_H

#include "sdc/audit.h"

struct sdc_verifying {
    struct sdc_ckpt *ckpt; /* NULL: it could not be opened */
    const char *path;
    const struct sdc_verify_options *options;
    struct sdc_verify *out;
    size_t cap_findings;
    bool *sum_sound; /* of each sum: known and right; owned */
    bool *compared;  /* of each tensor: with a digest of the seal; owned */
    bool *decoded;   /* of each tensor: its compressed form was decoded without an error; owned */
};

/* At most this many findings of one kind are kept one by one. */
#define SDC_VERIFY_MANY 1000

/* Adds a finding; object may be NULL. */
enum sdc_status sdc__verify_find(struct sdc_verifying *v, enum sdc_finding_kind kind,
                                 const char *object, struct sdc_error *err, const char *fmt, ...)
    SDC_PRINTF(5, 6) SDC_MUST_CHECK;

/* verify_sums.c: recomputes stored checksums; which tensors they cover. */
enum sdc_status sdc__verify_sums(struct sdc_verifying *v, struct sdc_error *err) SDC_MUST_CHECK;
/* Is every byte of the tensor under a sound sum? Looks at some of its elements. */
enum sdc_status sdc__verify_cover(struct sdc_verifying *v, struct sdc_error *err) SDC_MUST_CHECK;

/* verify_seal.c: compares with the seal. */
enum sdc_status sdc__verify_seal(struct sdc_verifying *v, struct sdc_error *err) SDC_MUST_CHECK;

#endif
