/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011), computed by Random123. Stream = (seed, purpose, block,
 * trial); the fourth counter word is the draw. So every fault of every trial is fixed by names,
 * whatever runs beside it, in what order and on how many workers.
 *
 * Key word 0 is the low half of the seed, key word 1 the high half; counter words are purpose,
 * block, trial, draw; each block of four outputs is used in order. One thread per object.
 */
#ifndef SDC_RNG_H
#define SDC_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a stream is for. Values are part of the results: never renumber, only append. */
enum sdc_rng_purpose {
    SDC_RNG_FAULT_SITES = 1,  /* sites of a trial or of one alter command */
    SDC_RNG_FAULT_RANKS = 2,  /* which ranks read the altered file */
    SDC_RNG_INIT = 3,         /* initial weights; block = tensor number */
    SDC_RNG_DATA_ORDER = 4,   /* permutation of an epoch; trial = epoch */
    SDC_RNG_SYNTHETIC = 5,    /* synthetic data */
    SDC_RNG_STATISTICS = 6,   /* permutation tests and bootstrap */
    SDC_RNG_CONTROL = 7,      /* controls and clean-spread replicas */
    SDC_RNG_FAULT_VALUES = 8, /* values of random operators */
    SDC_RNG_CLUSTER = 9,      /* seeds of a campaign's trainings; trial = cluster */
    SDC_RNG_AUGMENT = 10,     /* changes of samples; block = sample, trial = epoch */
    SDC_RNG_FUSION = 11,      /* Horovod's cycles; block, trial = halves of the step */
    SDC_RNG_DROPOUT = 12,     /* dropped activations; block = layer and rank, trial = step */
    SDC_RNG_TEST = 1000       /* tests */
};

struct sdc_rng {
    uint32_t key[2];
    uint32_t counter[4]; /* of the next block */
    uint32_t out[4];     /* the current block */
    unsigned used;       /* words of out already handed out, 0 to 4 */
};

SDC_API void sdc_rng_init(struct sdc_rng *rng, uint64_t seed, enum sdc_rng_purpose purpose,
                          uint32_t block, uint32_t trial);
/* The raw function: 10 rounds over counter with key. Known-answer vectors are Random123's. */
SDC_API void sdc_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
SDC_API uint32_t sdc_rng_u32(struct sdc_rng *rng);
SDC_API uint64_t sdc_rng_u64(struct sdc_rng *rng); /* first word drawn is the low half */
/* Uniform over 0 .. n-1, exact (by rejection); n >= 1. */
SDC_API uint64_t sdc_rng_below(struct sdc_rng *rng, uint64_t n);
/* Uniform over [0, 1) with 53 bits. */
SDC_API double sdc_rng_unit(struct sdc_rng *rng);
/* k distinct values of 0 .. n-1, uniform over all k-subsets, sorted ascending, into out[k] (Floyd's
 * method). SDC_USAGE if k > n; SDC_NO_MEMORY. */
SDC_API enum sdc_status sdc_rng_sample(struct sdc_rng *rng, uint64_t n, uint64_t k, uint64_t *out,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* Uniform permutation in place (Fisher-Yates from the end). */
SDC_API void sdc_rng_shuffle_u32(struct sdc_rng *rng, uint32_t *items, size_t n);

#ifdef __cplusplus
}
#endif
#endif
