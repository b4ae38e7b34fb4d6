/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets and who sees which sample. Not augmentation, not batching into kernels' layouts.
 *
 *     struct sdc_dataset *set;
 *     struct sdc_sampler *sampler;
 *     sdc_dataset_open("fashion-mnist", NULL, true, 0, &set, &err);
 *     sdc_sampler_new(set->n, ranks, batch, seed, &sampler, &err);
 *     sdc_sampler_batch(sampler, rank, step, indices, &err);
 */
#ifndef SDC_DATA_H
#define SDC_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One split in memory, immutable after opening; may be read from several threads. */
struct sdc_dataset {
    char *name;
    uint32_t channels, height, width, classes;
    uint64_t n;
    float *images;   /* (n, channels, height, width), normalised: (byte/255 - mean) / std, one mean
                        and   std a data set; each operation rounded to f32 */
    uint8_t *labels; /* (n), below classes */
};

/* name: "fashion-mnist" (IDX files, gzip or plain, as in Debian's package dataset-fashion-mnist;
 * mean 0.2860 and standard deviation 0.3530, the usual constants of its training images) or
 * "synthetic" (ten Gaussian blobs of the same shape, always the same, 2048 training and 512 test
 * samples, needs no file; mean 0.5 and standard deviation 0.25). path: folder, NULL for the
 * system's. train: training or test split. limit: only the first n samples, 0 = all. SDC_USAGE for
 * another name; SDC_NOT_FOUND names the file and the Debian package; SDC_INVALID with offset for
 * damaged files; SDC_NO_MEMORY. Thread-safe. Free with sdc_dataset_free, which accepts NULL. */
SDC_API enum sdc_status sdc_dataset_open(const char *name, const char *path, bool train,
                                         uint64_t limit, struct sdc_dataset **set,
                                         struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_dataset_free(struct sdc_dataset *set);

/* Index lists with the semantics of PyTorch's DistributedSampler (1.13, drop_last=False): a
 * permutation per epoch (Philox, seed, purpose DATA_ORDER, trial = epoch), padded from its front to
 * a multiple of the ranks, rank r takes every ranks-th from r on; batches of `batch` from that, the
 * last one, if short, dropped (drop_last=True of the loader), so that every batch is full. The
 * lists of one seed are the same permutation whatever the ranks and the batch. 0 steps where the
 * set is too small for one. */
SDC_API uint64_t sdc_sampler_steps_per_epoch(uint64_t n, uint32_t ranks, uint32_t batch);
/* new: SDC_INVALID if the set is too small for one step, SDC_LIMIT over 2^32 - 1 samples,
 * SDC_NO_MEMORY. batch: the `batch` indices that `rank` sees at global step `step` (0-based: the
 * step after `step` steps done) into indices[batch]; keeps the epoch's permutation in the sampler;
 * SDC_USAGE if there is no such rank. One thread per object. free accepts NULL. */
struct sdc_sampler;
SDC_API enum sdc_status sdc_sampler_new(uint64_t n, uint32_t ranks, uint32_t batch, uint64_t seed,
                                        struct sdc_sampler **sampler,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_sampler_batch(struct sdc_sampler *sampler, uint32_t rank, uint64_t step,
                                          uint32_t *indices, struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_sampler_free(struct sdc_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
