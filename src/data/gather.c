/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples on their way into a batch: from bytes to f32, cropped and flipped where asked.
 */
#include "base/guard.h"
#include "data/kinds.h"
#include "sdc/rng.h"

struct sdc_augment_draw sdc_augment_draw(const struct sdc_augment *augment, uint32_t epoch,
                                         uint32_t sample) {
    struct sdc_augment_draw draw = {0};
    struct sdc_rng rng;
    sdc_rng_init(&rng, augment->seed, SDC_RNG_AUGMENT, sample, epoch);
    if (augment->crop_padding > 0) {
        const uint64_t places = 2 * (uint64_t)augment->crop_padding + 1;
        draw.row = (uint32_t)sdc_rng_below(&rng, places);
        draw.column = (uint32_t)sdc_rng_below(&rng, places);
    }
    if (augment->flip)
        draw.flip = (sdc_rng_u32(&rng) & 1) != 0;
    return draw;
}

static void copy(const struct sdc_dataset *set, const uint8_t *from, float *to) {
    const size_t plane = (size_t)set->height * set->width;
    for (uint32_t c = 0; c < set->channels; c++) {
        const float *value = set->values[c];
        for (size_t i = 0; i < plane; i++)
            *to++ = value[*from++];
    }
}

/* The crop's corner lies at (row, column) of an image with `padding` black pixels on every side. */
static void copy_changed(const struct sdc_dataset *set, const uint8_t *from, uint32_t padding,
                         const struct sdc_augment_draw *draw, float *to) {
    const int64_t height = set->height, width = set->width;
    const int64_t down = (int64_t)draw->row - padding, right = (int64_t)draw->column - padding;
    for (uint32_t c = 0; c < set->channels; c++, from += height * width) {
        const float *value = set->values[c];
        for (int64_t i = 0; i < height; i++) {
            const int64_t y = i + down;
            const bool inside = y >= 0 && y < height;
            for (int64_t j = 0; j < width; j++) {
                const int64_t x = (draw->flip ? width - 1 - j : j) + right;
                *to++ = value[inside && x >= 0 && x < width ? from[y * width + x] : 0];
            }
        }
    }
}

void sdc_dataset_gather(const struct sdc_dataset *set, const uint32_t *indices, size_t n,
                        const struct sdc_augment *augment, uint32_t epoch, float *images,
                        int32_t *labels) {
    const size_t pixels = sdc__data_pixels(set);
    const bool changes = augment && (augment->crop_padding > 0 || augment->flip);
    for (size_t i = 0; i < n; i++, images += pixels) {
        const uint8_t *from = set->pixels + indices[i] * pixels;
        if (labels)
            labels[i] = set->labels[indices[i]];
        if (!changes) {
            copy(set, from, images);
            continue;
        }
        const struct sdc_augment_draw draw = sdc_augment_draw(augment, epoch, indices[i]);
        copy_changed(set, from, augment->crop_padding, &draw, images);
    }
}
