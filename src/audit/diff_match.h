/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensor of one checkpoint is compared with which of the other.
 */
#ifndef SDC_AUDIT_DIFF_MATCH_H
#define SDC_AUDIT_DIFF_MATCH_H

#include "sdc/audit.h"
#include "sdc/name_map.h"

struct sdc_diff_pair {
    size_t a, b; /* SDC_NAME_NONE: the other has none */
    size_t link; /* index into links: names or places differ; SDC_NAME_NONE: by exact name */
};

struct sdc_diff_match {
    struct sdc_diff_pair *pairs; /* owned */
    size_t n;
    struct sdc_name_links links;
    uint64_t n_a, n_b; /* tensors of either that were asked for */
};

enum sdc_status sdc__diff_match(struct sdc_ckpt *a, struct sdc_ckpt *b,
                                const struct sdc_diff_options *options,
                                struct sdc_diff_match *match, struct sdc_error *err) SDC_MUST_CHECK;
/* SDC_USAGE naming a pattern that fits no tensor of either. */
enum sdc_status sdc__diff_check_globs(const struct sdc_ckpt *a, const struct sdc_ckpt *b,
                                      const struct sdc_diff_options *options,
                                      struct sdc_error *err) SDC_MUST_CHECK;
void sdc__diff_match_release(struct sdc_diff_match *match);

/* diff_bytes.c: sets same_container, sizes and the first differing byte. */
enum sdc_status sdc__diff_bytes(const struct sdc_ckpt *a, const struct sdc_ckpt *b,
                                unsigned threads, struct sdc_diff *out,
                                struct sdc_error *err) SDC_MUST_CHECK;

#endif
