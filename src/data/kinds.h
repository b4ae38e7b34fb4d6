/* SPDX-License-Identifier: Apache-2.0
 *
 * What the named data sets have in common, and how each fills its samples in.
 */
#ifndef SDC_DATA_KINDS_H
#define SDC_DATA_KINDS_H

#include "sdc/data.h"

/* Fills set->n, pixels and labels of a set whose name, shape and classes stand. source->path may be
 * NULL. */
typedef enum sdc_status sdc__data_fill(const struct sdc_data_source *source, bool train,
                                       struct sdc_dataset *set, struct sdc_error *err);

sdc__data_fill sdc__fill_fashion_mnist;
sdc__data_fill sdc__fill_cifar; /* 10 or 100, by the number of classes */
sdc__data_fill sdc__fill_synthetic;

/* Memory for n samples, and set->n. */
enum sdc_status sdc__data_reserve(uint64_t n, struct sdc_dataset *set,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* n, or limit if that is smaller and not 0. */
uint64_t sdc__data_limited(uint64_t n, uint64_t limit);
size_t sdc__data_pixels(const struct sdc_dataset *set); /* of a sample */

#endif
