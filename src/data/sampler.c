/* SPDX-License-Identifier: Apache-2.0
 *
 * torch/utils/data/distributed.py of PyTorch 1.13, DistributedSampler, under a DataLoader with
 * drop_last; only the permutation comes from Philox.
 */
#include <stdbool.h>

#include "base/alloc.h"
#include "sdc/data.h"
#include "sdc/rng.h"

struct sdc_sampler {
    struct sdc_sharding sharding;
    uint64_t steps; /* of an epoch */
    uint64_t epoch; /* of the permutation below */
    bool has_epoch;
    uint32_t *permutation; /* of n */
};

uint64_t sdc_sampler_steps_per_epoch(const struct sdc_sharding *s) {
    if (s->ranks == 0 || s->batch == 0)
        return 0;
    uint64_t of_rank = s->n / s->ranks + (!s->drop_last && s->n % s->ranks != 0);
    return of_rank / s->batch;
}

enum sdc_status sdc_sampler_new(const struct sdc_sharding *sharding, struct sdc_sampler **sampler,
                                struct sdc_error *err) {
    uint64_t n = sharding->n, steps = sdc_sampler_steps_per_epoch(sharding);
    if (n > UINT32_MAX)
        return SDC_ERR(err, SDC_LIMIT, "a data set of %llu samples, the limit is %lu",
                       (unsigned long long)n, (unsigned long)UINT32_MAX);
    if (steps == 0)
        return SDC_ERR(err, SDC_INVALID,
                       "a data set of %llu samples is too small for one step of %u ranks with "
                       "batches of %u",
                       (unsigned long long)n, (unsigned)sharding->ranks, (unsigned)sharding->batch);
    struct sdc_sampler *s = sdc__calloc(1, sizeof *s);
    uint32_t *permutation = sdc__calloc((size_t)n, sizeof *permutation);
    if (!s || !permutation) {
        sdc__free(s);
        sdc__free(permutation);
        return SDC_NOMEM(err, "index lists");
    }
    *s = (struct sdc_sampler){.sharding = *sharding, .steps = steps, .permutation = permutation};
    *sampler = s;
    return SDC_OK;
}

static void shuffle(struct sdc_sampler *s, uint32_t epoch) {
    struct sdc_rng rng;
    for (uint32_t i = 0; i < s->sharding.n; i++)
        s->permutation[i] = i;
    sdc_rng_init(&rng, s->sharding.seed, SDC_RNG_DATA_ORDER, 0, epoch);
    if (!s->sharding.in_order)
        sdc_rng_shuffle_u32(&rng, s->permutation, (size_t)s->sharding.n);
    s->epoch = epoch;
    s->has_epoch = true;
}

enum sdc_status sdc_sampler_batch(struct sdc_sampler *s, uint32_t rank, uint64_t step,
                                  uint32_t *indices, struct sdc_error *err) {
    const struct sdc_sharding *how = &s->sharding;
    uint64_t epoch = step / s->steps, first = step % s->steps * how->batch;
    if (rank >= how->ranks)
        return SDC_ERR(err, SDC_USAGE, "rank %u, expected less than %u", (unsigned)rank,
                       (unsigned)how->ranks);
    if (epoch > UINT32_MAX)
        return SDC_ERR(err, SDC_LIMIT, "epoch %llu, the limit is %lu", (unsigned long long)epoch,
                       (unsigned long)UINT32_MAX);
    if (!s->has_epoch || s->epoch != epoch)
        shuffle(s, (uint32_t)epoch);
    for (uint32_t i = 0; i < how->batch; i++) {
        /* the list of all ranks: the permutation, then padding from its front */
        uint64_t place = (first + i) * how->ranks + rank;
        indices[i] = s->permutation[place < how->n ? place : (place - how->n) % how->n];
    }
    return SDC_OK;
}

void sdc_sampler_free(struct sdc_sampler *sampler) {
    if (!sampler)
        return;
    sdc__free(sampler->permutation);
    sdc__free(sampler);
}
