/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run description says about data, in the words of sdc/data.h.
 */
#ifndef SDC_TRAIN_SOURCE_H
#define SDC_TRAIN_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "sdc/data.h"
#include "sdc/run.h"

/* Of the training or the test split; the limit is of training samples alone. Texts are borrowed. */
struct sdc_data_source sdc_run_data_source(const struct sdc_run *run, bool train);
bool sdc_data_source_same(const struct sdc_data_source *a, const struct sdc_data_source *b);

/* n: training samples. */
struct sdc_sharding sdc_run_sharding(const struct sdc_run *run, uint64_t n);
struct sdc_augment sdc_run_augment(const struct sdc_run *run);

#endif
