/* SPDX-License-Identifier: Apache-2.0 */
#include "train/bucket.h"

#include <string.h>

void sdc_buckets_ddp(const size_t *bytes, const unsigned *order, unsigned n, size_t first_cap,
                     size_t cap, struct sdc_buckets *out) {
    *out = (struct sdc_buckets){0};
    memcpy(out->order, order, n * sizeof order[0]);
    size_t used = 0, limit = first_cap;
    for (unsigned i = 0; i < n; i++) {
        used += bytes[order[i]];
        if (used >= limit || i + 1 == n) {
            out->start[++out->n] = i + 1;
            used = 0;
            limit = cap;
        }
    }
}

void sdc_buckets_horovod(const size_t *bytes, const unsigned *order, unsigned n, size_t threshold,
                         struct sdc_buckets *out) {
    *out = (struct sdc_buckets){0};
    memcpy(out->order, order, n * sizeof order[0]);
    size_t used = 0;
    for (unsigned i = 0; i < n; i++) {
        size_t size = bytes[order[i]];
        if (i > out->start[out->n] && used + size > threshold) {
            out->start[++out->n] = i;
            used = 0;
        }
        used += size;
    }
    if (n > 0)
        out->start[++out->n] = n;
}
