/* SPDX-License-Identifier: Apache-2.0
 *
 * One Gaussian blob a class: its centre is an image of random grey squares of 4 x 4 pixels, and
 * every pixel has noise of its own. All in whole numbers, so that every machine makes the same
 * bytes; each sample has a stream of its own, so that a smaller set is a prefix.
 */
#include "base/alloc.h"
#include "data/kinds.h"
#include "sdc/rng.h"

enum {
    TRAIN = 2048,
    TEST = 512,
    SEED = 2022,
    SQUARE = 4,
    DARKEST = 64,  /* of the centres */
    GREYS = 128,   /* from there on */
    NOISE_STD = 64 /* of a byte; the clipping at 0 and 255 cuts the far ends */
};

static enum sdc_status make_centres(const struct sdc_dataset *set, uint64_t seed, uint8_t *centres,
                                    struct sdc_error *err) {
    const uint32_t rows = (set->height - 1) / SQUARE + 1, columns = (set->width - 1) / SQUARE + 1;
    uint8_t *greys = sdc__alloc(columns, rows); /* of a plane's squares, row by row */
    if (!greys)
        return SDC_NOMEM(err, set->name);
    for (uint32_t k = 0; k < set->classes; k++) {
        struct sdc_rng rng;
        sdc_rng_init(&rng, seed, SDC_RNG_SYNTHETIC, 0, k);
        for (uint32_t c = 0; c < set->channels; c++) {
            for (size_t i = 0; i < (size_t)columns * rows; i++)
                greys[i] = (uint8_t)(DARKEST + sdc_rng_below(&rng, GREYS));
            for (uint32_t y = 0; y < set->height; y++)
                for (uint32_t x = 0; x < set->width; x++)
                    *centres++ = greys[(size_t)(y / SQUARE) * columns + x / SQUARE];
        }
    }
    sdc__free(greys);
    return SDC_OK;
}

/* Sum of eight random bytes: nearly Gaussian, mean 1020, variance 8 (256^2 - 1) / 12 = 209^2. */
static int noise(struct sdc_rng *rng) {
    int sum = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t word = sdc_rng_u32(rng), k = 0; k < 4; k++, word >>= 8)
            sum += (int)(word & 0xFF);
    return (sum - 1020) * NOISE_STD / 209;
}

enum sdc_status sdc__fill_synthetic(const struct sdc_data_source *source, bool train,
                                    struct sdc_dataset *set, struct sdc_error *err) {
    const size_t pixels = sdc__data_pixels(set);
    const uint64_t seed = source->seed ? source->seed : SEED;
    const uint64_t asked = train ? source->samples : source->test_samples;
    const uint64_t n = asked ? asked : train ? TRAIN : TEST;
    if (n > UINT32_MAX)
        return SDC_ERR(err, SDC_USAGE, "data set %s: %llu samples, the limit is %lu", set->name,
                       (unsigned long long)n, (unsigned long)UINT32_MAX);
    SDC_TRY(sdc__data_reserve(sdc__data_limited(n, source->limit), set, err));
    uint8_t *centres = sdc__alloc(set->classes, pixels);
    if (!centres)
        return SDC_NOMEM(err, set->name);
    enum sdc_status st = make_centres(set, seed, centres, err);
    for (uint64_t i = 0; st == SDC_OK && i < set->n; i++) {
        struct sdc_rng rng;
        const uint32_t k = (uint32_t)(i % set->classes);
        sdc_rng_init(&rng, seed, SDC_RNG_SYNTHETIC, train ? 1 : 2, (uint32_t)i);
        set->labels[i] = (int32_t)k;
        for (size_t p = 0; p < pixels; p++) {
            int grey = centres[k * pixels + p] + noise(&rng);
            set->pixels[i * pixels + p] = (uint8_t)(grey < 0 ? 0 : grey > 255 ? 255 : grey);
        }
    }
    sdc__free(centres);
    return st;
}
