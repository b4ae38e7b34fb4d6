/* SPDX-License-Identifier: Apache-2.0
 *
 * Which gradients travel together: DDP's buckets and Horovod's fusion, as pure functions. The
 * grouping decides each element's place in a message, and so, for three ranks and more, the order
 * in which it is summed.
 */
#ifndef SDC_TRAIN_BUCKET_H
#define SDC_TRAIN_BUCKET_H

#include <stddef.h>

#include "train/model.h"

#define SDC_HOROVOD_ATOMIC ((size_t)8 * 64) /* bytes; common/operations.cc */

/* Groups of tensors: group g is order[start[g]] .. order[start[g + 1] - 1]. */
struct sdc_buckets {
    unsigned n; /* groups */
    unsigned start[SDC_MODEL_MAX_PARAMS + 1];
    unsigned order[SDC_MODEL_MAX_PARAMS];
};

/* DDP: adds tensors in the given order and closes a bucket once it has reached its cap: first_cap
 * for the first, cap for all others; both SIZE_MAX gives one bucket. bytes[t] is the size of tensor
 * t. torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size, 1.13.1. */
void sdc_buckets_ddp(const size_t *bytes, const unsigned *order, unsigned n, size_t first_cap,
                     size_t cap, struct sdc_buckets *out);

/* Horovod: fuses in the given order as long as the sum stays within the threshold.
 * horovod/common/controller.cc, FuseResponses, 0.28.1, for tensors of one type. */
void sdc_buckets_horovod(const size_t *bytes, const unsigned *order, unsigned n, size_t threshold,
                         struct sdc_buckets *out);

#endif
