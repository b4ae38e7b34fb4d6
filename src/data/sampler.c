/* SPDX-License-Identifier: Apache-2.0
 *
 * torch/utils/data/distributed.py of PyTorch 1.13, DistributedSampler with shuffle and without
 * drop_last, under a DataLoader with drop_last; only the permutation comes from Philox.
 */
#include <stdbool.h>

#include "base/alloc.h"
#include "sdc/data.h"
#include "sdc/rng.h"

struct sdc_sampler {
    uint64_t n, seed, epoch; /* epoch of the permutation below */
    uint32_t ranks, batch;
    uint64_t steps; /* of an epoch */
    bool has_epoch;
    uint32_t *permutation; /* of n */
};

uint64_t sdc_sampler_steps_per_epoch(uint64_t n, uint32_t ranks, uint32_t batch) {
    if (ranks == 0 || batch == 0)
        return 0;
    uint64_t of_rank = n / ranks + (n % ranks != 0);
    return of_rank / batch;
}

enum sdc_status sdc_sampler_new(uint64_t n, uint32_t ranks, uint32_t batch, uint64_t seed,
                                struct sdc_sampler **sampler, struct sdc_error *err) {
    uint64_t steps = sdc_sampler_steps_per_epoch(n, ranks, batch);
    if (n > UINT32_MAX)
        return SDC_ERR(err, SDC_LIMIT, "a data set of %llu samples, the limit is %lu",
                       (unsigned long long)n, (unsigned long)UINT32_MAX);
    if (steps == 0)
        return SDC_ERR(err, SDC_INVALID,
                       "a data set of %llu samples is too small for one step of %u ranks with "
                       "batches of %u",
                       (unsigned long long)n, (unsigned)ranks, (unsigned)batch);
    struct sdc_sampler *s = sdc__calloc(1, sizeof *s);
    uint32_t *permutation = sdc__calloc((size_t)n, sizeof *permutation);
    if (!s || !permutation) {
        sdc__free(s);
        sdc__free(permutation);
        return SDC_NOMEM(err, "index lists");
    }
    *s = (struct sdc_sampler){.n = n,
                              .seed = seed,
                              .ranks = ranks,
                              .batch = batch,
                              .steps = steps,
                              .permutation = permutation};
    *sampler = s;
    return SDC_OK;
}

static void shuffle(struct sdc_sampler *s, uint32_t epoch) {
    struct sdc_rng rng;
    for (uint32_t i = 0; i < s->n; i++)
        s->permutation[i] = i;
    sdc_rng_init(&rng, s->seed, SDC_RNG_DATA_ORDER, 0, epoch);
    sdc_rng_shuffle_u32(&rng, s->permutation, (size_t)s->n);
    s->epoch = epoch;
    s->has_epoch = true;
}

enum sdc_status sdc_sampler_batch(struct sdc_sampler *s, uint32_t rank, uint64_t step,
                                  uint32_t *indices, struct sdc_error *err) {
    uint64_t epoch = step / s->steps, first = step % s->steps * s->batch;
    if (rank >= s->ranks)
        return SDC_ERR(err, SDC_USAGE, "rank %u, expected less than %u", (unsigned)rank,
                       (unsigned)s->ranks);
    if (epoch > UINT32_MAX)
        return SDC_ERR(err, SDC_LIMIT, "epoch %llu, the limit is %lu", (unsigned long long)epoch,
                       (unsigned long)UINT32_MAX);
    if (!s->has_epoch || s->epoch != epoch)
        shuffle(s, (uint32_t)epoch);
    for (uint32_t i = 0; i < s->batch; i++) {
        /* the list of all ranks: the permutation, then padding from its front */
        uint64_t place = (first + i) * s->ranks + rank;
        indices[i] = s->permutation[place < s->n ? place : (place - s->n) % s->n];
    }
    return SDC_OK;
}

void sdc_sampler_free(struct sdc_sampler *sampler) {
    if (!sampler)
        return;
    sdc__free(sampler->permutation);
    sdc__free(sampler);
}
