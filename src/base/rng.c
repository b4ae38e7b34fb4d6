/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/rng.h"

#include <string.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include <Random123/philox.h>
#pragma GCC diagnostic pop

#include "base/set.h"
#include "base/sort.h"

#define AHEAD 32

void sdc_philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    philox4x32_ctr_t c = {{counter[0], counter[1], counter[2], counter[3]}};
    philox4x32_key_t k = {{key[0], key[1]}};
    philox4x32_ctr_t r = philox4x32_R(10, c, k);
    memcpy(out, r.v, sizeof r.v);
}

void sdc_rng_init(struct sdc_rng *rng, uint64_t seed, enum sdc_rng_purpose purpose, uint32_t block,
                  uint32_t trial) {
    rng->key[0] = (uint32_t)seed;
    rng->key[1] = (uint32_t)(seed >> 32);
    rng->counter[0] = (uint32_t)purpose;
    rng->counter[1] = block;
    rng->counter[2] = trial;
    rng->counter[3] = 0;
    rng->used = 4;
}

uint32_t sdc_rng_u32(struct sdc_rng *rng) {
    if (rng->used == 4) {
        sdc_philox4x32_10(rng->counter, rng->key, rng->out);
        rng->counter[3]++;
        rng->used = 0;
    }
    return rng->out[rng->used++];
}

uint64_t sdc_rng_u64(struct sdc_rng *rng) {
    uint64_t low = sdc_rng_u32(rng);
    return low | (uint64_t)sdc_rng_u32(rng) << 32;
}

uint64_t sdc_rng_below(struct sdc_rng *rng, uint64_t n) {
    /* values under 2^64 mod n would favour the small results: draw again */
    for (;;) {
        uint64_t x = sdc_rng_u64(rng);
        if (x >= n || x >= (0 - n) % n)
            return x % n;
    }
}

double sdc_rng_unit(struct sdc_rng *rng) {
    return (double)(sdc_rng_u64(rng) >> 11) * 0x1p-53;
}

enum sdc_status sdc_rng_sample(struct sdc_rng *rng, uint64_t n, uint64_t k, uint64_t *out,
                               struct sdc_error *err) {
    if (k > n)
        return SDC_ERR(err, SDC_USAGE, "cannot draw %llu distinct of %llu", (unsigned long long)k,
                       (unsigned long long)n);
    if (k == 0)
        return SDC_OK;
    struct sdc_set set;
    SDC_TRY(sdc__set_init(&set, k, err));
    /* some numbers are drawn ahead, so that waiting for their places in memory overlaps */
    for (uint64_t done = 0; done < k;) {
        uint64_t ahead = k - done < AHEAD ? k - done : AHEAD, first = n - k + done;
        for (uint64_t i = 0; i < ahead; i++) {
            out[done + i] = sdc_rng_below(rng, first + i + 1);
            sdc__set_prefetch(&set, out[done + i]);
        }
        for (uint64_t i = 0; i < ahead; i++) {
            if (!sdc__set_insert(&set, out[done + i])) {
                out[done + i] = first + i;
                sdc__set_insert(&set, first + i);
            }
        }
        done += ahead;
    }
    sdc__sort_u64(out, k, set.slots); /* which are no longer needed, and at least 2 k */
    sdc__set_release(&set);
    return SDC_OK;
}

void sdc_rng_shuffle_u32(struct sdc_rng *rng, uint32_t *items, size_t n) {
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)sdc_rng_below(rng, i);
        uint32_t x = items[i - 1];
        items[i - 1] = items[j];
        items[j] = x;
    }
}
