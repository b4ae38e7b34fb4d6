/* SPDX-License-Identifier: Apache-2.0
 *
 * Data sets, who sees which sample, and what is done to it before. Not batching into kernels'
 * layouts.
 *
 *     struct sdc_dataset *set;
 *     struct sdc_sampler *sampler;
 *     sdc_dataset_open(&(struct sdc_data_source){.name = "fashion-mnist"}, true, &set, &err);
 *     struct sdc_sharding how = {.n = set->n, .ranks = 2, .batch = 64, .seed = 1};
 *     sdc_sampler_new(&how, &sampler, &err);
 *     sdc_sampler_batch(sampler, rank, step, indices, &err);
 *     sdc_dataset_gather(set, indices, 64, NULL, 0, images, labels);
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

/* One split in memory, immutable after opening; may be read from several threads. Samples are kept
 * as the bytes they are in files and become f32 where they are used. */
struct sdc_dataset {
    char *name;
    uint32_t channels, height, width, classes;
    uint64_t n;
    uint8_t *pixels;      /* (n, channels, height, width) */
    int32_t *labels;      /* (n), from 0, below classes */
    float (*values)[256]; /* [channels]: what a byte becomes, (byte/255 - mean) / std, each
                             operation rounded to f32 */
};

/* Where a data set comes from. */
struct sdc_data_source {
    const char *name;
    const char *path; /* folder of the files; NULL: the system's */
    uint64_t limit;   /* only the first n samples of the split; 0: all */
    /* "synthetic" only; 0 stands for the values in brackets. Other sets refuse what they are not.
     */
    uint32_t channels, height, width; /* [1, 28, 28] at most 2^24 pixels */
    uint32_t classes;                 /* [10] 1 to 65536 */
    uint64_t samples, test_samples;   /* [2048, 512] of each split, below 2^32 */
    uint64_t seed;                    /* [2022] */
};

/* Names and what is behind them; mean and standard deviation are those of the training images, as
 * they are commonly used:
 *   fashion-mnist  IDX files, gzip or plain, as in Debian's package dataset-fashion-mnist; 1x28x28,
 *                  10 classes; mean 0.2860, deviation 0.3530
 *   cifar-10       data_batch_1.bin to data_batch_5.bin and test_batch.bin of the "binary version"
 *                  (Krizhevsky; cifar-10-binary.tar.gz), gzip or plain: records of 1 label byte and
 *                  3072 bytes, 10000 a file; 3x32x32; means 0.4914 0.4822 0.4465, deviations
 *                  0.2470 0.2435 0.2616
 *   cifar-100      train.bin and test.bin: records of a coarse label (checked, not used), a fine
 *                  label and 3072 bytes; 50000 and 10000; means 0.5071 0.4867 0.4408, deviations
 *                  0.2675 0.2565 0.2761
 *   synthetic      one Gaussian blob a class around a prototype of random grey squares, of any
 * shape and number of classes, in whole numbers from Philox (purpose SYNTHETIC), so the same bytes
 * everywhere; needs no file; mean 0.5, deviation 0.25. A sample depends on seed, shape, classes,
 * split and its number alone: a smaller set is a prefix. train: training or test split. SDC_USAGE
 * for another name or a shape that the set has not; SDC_NOT_FOUND names the file and where it can
 * be had; SDC_INVALID with offset for damaged files; SDC_NO_MEMORY. Thread-safe. Free with
 * sdc_dataset_free, which accepts NULL. */
SDC_API enum sdc_status sdc_dataset_open(const struct sdc_data_source *source, bool train,
                                         struct sdc_dataset **set,
                                         struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_dataset_free(struct sdc_dataset *set);
/* How many data sets there are names for, and the i-th name; NULL past the last. Static. */
SDC_API size_t sdc_dataset_count(void);
SDC_API const char *sdc_dataset_name(size_t i);

/* Changes of a training sample, as torchvision's RandomCrop(size, padding) on the image (so what
 * lies outside it is black) followed by RandomHorizontalFlip. */
struct sdc_augment {
    uint32_t crop_padding; /* 0: no crop */
    bool flip;             /* with probability 1/2 */
    uint64_t seed;
};

/* What is done to one sample in one epoch: a function of seed, epoch and sample (Philox, purpose
 * AUGMENT, block = sample, trial = epoch; row, column, flip in this order), so that it is the same
 * on every rank, after every restart and in every trainer. */
struct sdc_augment_draw {
    uint32_t row, column; /* of the crop in the padded image, 0 to 2 crop_padding */
    bool flip;
};
SDC_API struct sdc_augment_draw sdc_augment_draw(const struct sdc_augment *augment, uint32_t epoch,
                                                 uint32_t sample);

/* The n samples of these indices as images (n, channels, height, width) and labels (n; NULL: not
 * wanted). augment: NULL for none. Indices are below set->n. Thread-safe. */
SDC_API void sdc_dataset_gather(const struct sdc_dataset *set, const uint32_t *indices, size_t n,
                                const struct sdc_augment *augment, uint32_t epoch, float *images,
                                int32_t *labels);

/* Who sees which sample. */
struct sdc_sharding {
    uint64_t n;            /* samples, below 2^32 */
    uint32_t ranks, batch; /* batch: of each rank */
    uint64_t seed;
    bool in_order;  /* shuffle=False: samples in their order, in every epoch alike */
    bool drop_last; /* of the sampler: what is left over after dealing out equally goes to nobody;
                       else it is padded */
};

/* Index lists with the semantics of PyTorch's DistributedSampler (1.13), which Horovod's examples
 * use too: a permutation per epoch (Philox, seed, purpose DATA_ORDER, trial = epoch), cut at its
 * end (drop_last) or padded from its front to a multiple of the ranks, rank r takes every ranks-th
 * from r on; batches of `batch` from that, the last one, if short, dropped (drop_last=True of the
 * loader), so that every batch is full. The lists of one seed are the same permutation whatever the
 * ranks and the batch. 0 steps where the set is too small for one. */
SDC_API uint64_t sdc_sampler_steps_per_epoch(const struct sdc_sharding *sharding);
/* new: SDC_INVALID if the set is too small for one step, SDC_LIMIT over 2^32 - 1 samples,
 * SDC_NO_MEMORY. batch: the `batch` indices that `rank` sees at global step `step` (0-based: the
 * step after `step` steps done, of epoch step / steps per epoch) into indices[batch]; keeps the
 * epoch's permutation in the sampler; SDC_USAGE if there is no such rank. One thread per object.
 * free accepts NULL. */
struct sdc_sampler;
SDC_API enum sdc_status sdc_sampler_new(const struct sdc_sharding *sharding,
                                        struct sdc_sampler **sampler,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_sampler_batch(struct sdc_sampler *sampler, uint32_t rank, uint64_t step,
                                          uint32_t *indices, struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_sampler_free(struct sdc_sampler *sampler);

#ifdef __cplusplus
}
#endif
#endif
