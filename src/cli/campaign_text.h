/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that the commands of a campaign share.
 */
#ifndef SDC_CLI_CAMPAIGN_TEXT_H
#define SDC_CLI_CAMPAIGN_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "camp/plan.h"
#include "camp/results.h"
#include "camp/store.h"

/* "0", "0,2", "0-3", "none" of a mask of ranks. */
void sdc__ranks_text(uint64_t mask, struct sdc_buf *out);
/* "model/fc1.weight[3,5]@lsb:30 0.05 -> 1.7e+37" */
void sdc__fault_text(const struct sdc_store_fault *f, struct sdc_buf *out);
/* The command that repeats a trial. */
void sdc__replay_text(const char *dir, const char *trial, struct sdc_buf *out);
/* The table of claims, with a sentence for each; says so where there are none. */
void sdc__claims_text(const struct sdc_results *r, struct sdc_buf *out);
/* A campaign opened for reading, with its plan and results. */
struct sdc_campaign {
    struct sdc_store *store;
    struct sdc_plan *plan;
    struct sdc_results *results;
};
enum sdc_status sdc__campaign_open(const char *dir, struct sdc_campaign *c,
                                   struct sdc_error *err) SDC_MUST_CHECK;
void sdc__campaign_close(struct sdc_campaign *c); /* also one that failed to open */
uint64_t sdc__controls_failed(const struct sdc_results *r);

#endif
