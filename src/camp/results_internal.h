/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the results share.
 */
#ifndef SDC_CAMP_RESULTS_INTERNAL_H
#define SDC_CAMP_RESULTS_INTERNAL_H

#include "camp/results.h"

/* Fills r->claims and r->no_claims from r->trials. */
enum sdc_status sdc__results_claims(struct sdc_results *r, const struct sdc_plan *plan,
                                    struct sdc_error *err) SDC_MUST_CHECK;

#endif
