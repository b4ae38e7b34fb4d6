/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/data.h"

#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "data/kinds.h"
#include "sdc/rng.h"

#define MAX_PIXELS  ((uint64_t)1 << 24)
#define MAX_CLASSES 65536u

/* A named data set: its shape, what is done to every byte, and how its samples come into memory. */
struct kind {
    const char *name;
    uint32_t channels, height, width, classes;
    float mean[3], std[3]; /* of each channel; any shape: the first is of all */
    bool any_shape;
    sdc__data_fill *fill;
};

static const struct kind kinds[] = {
    /* means and standard deviations of the training images, as commonly used */
    {"fashion-mnist", 1, 28, 28, 10, {0.2860f}, {0.3530f}, false, sdc__fill_fashion_mnist},
    {"cifar-10",
     3,
     32,
     32,
     10,
     {0.4914f, 0.4822f, 0.4465f},
     {0.2470f, 0.2435f, 0.2616f},
     false,
     sdc__fill_cifar},
    {"cifar-100",
     3,
     32,
     32,
     100,
     {0.5071f, 0.4867f, 0.4408f},
     {0.2675f, 0.2565f, 0.2761f},
     false,
     sdc__fill_cifar},
    {"synthetic", 1, 28, 28, 10, {0.5f}, {0.25f}, true, sdc__fill_synthetic},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

size_t sdc_dataset_count(void) {
    return N_KINDS;
}

const char *sdc_dataset_name(size_t i) {
    return i < N_KINDS ? kinds[i].name : NULL;
}

/* ---- for the kinds ---- */

size_t sdc__data_pixels(const struct sdc_dataset *set) {
    return (size_t)set->channels * set->height * set->width;
}

uint64_t sdc__data_limited(uint64_t n, uint64_t limit) {
    return limit && limit < n ? limit : n;
}

enum sdc_status sdc__data_reserve(uint64_t n, struct sdc_dataset *set, struct sdc_error *err) {
    set->n = n;
    set->pixels = sdc__alloc((size_t)n, sdc__data_pixels(set));
    set->labels = sdc__calloc((size_t)n, sizeof *set->labels);
    return set->pixels && set->labels ? SDC_OK : SDC_NOMEM(err, set->name);
}

/* ---- opening ---- */

/* Three operations in f32, as torchvision's ToTensor and Normalize do them. */
static enum sdc_status make_values(const struct kind *kind, struct sdc_dataset *set,
                                   struct sdc_error *err) {
    set->values = sdc__calloc(set->channels, sizeof *set->values);
    if (!set->values)
        return SDC_NOMEM(err, set->name);
    for (uint32_t c = 0; c < set->channels; c++) {
        const uint32_t k = kind->any_shape ? 0 : c;
        for (int i = 0; i < 256; i++) {
            float x = (float)i / 255.0f;
            x = x - kind->mean[k];
            set->values[c][i] = x / kind->std[k];
        }
    }
    return SDC_OK;
}

static enum sdc_status set_size(const struct kind *kind, const char *what, uint64_t asked,
                                uint64_t usual, uint64_t most, uint64_t *size,
                                struct sdc_error *err) {
    *size = asked ? asked : usual;
    if (!kind->any_shape && *size != usual)
        return SDC_ERR(err, SDC_USAGE, "data set %s: %s: found %llu, the set has %llu", kind->name,
                       what, (unsigned long long)asked, (unsigned long long)usual);
    if (*size > most)
        return SDC_ERR(err, SDC_USAGE, "data set %s: %s: found %llu, the limit is %llu", kind->name,
                       what, (unsigned long long)asked, (unsigned long long)most);
    return SDC_OK;
}

static enum sdc_status set_shape(const struct kind *kind, const struct sdc_data_source *source,
                                 struct sdc_dataset *set, struct sdc_error *err) {
    uint64_t channels, height, width, classes, pixels;
    SDC_TRY(
        set_size(kind, "channels", source->channels, kind->channels, MAX_PIXELS, &channels, err));
    SDC_TRY(set_size(kind, "height", source->height, kind->height, MAX_PIXELS, &height, err));
    SDC_TRY(set_size(kind, "width", source->width, kind->width, MAX_PIXELS, &width, err));
    SDC_TRY(set_size(kind, "classes", source->classes, kind->classes, MAX_CLASSES, &classes, err));
    if (__builtin_mul_overflow(channels * height, width, &pixels) || pixels > MAX_PIXELS)
        return SDC_ERR(err, SDC_USAGE,
                       "data set %s: images of %llux%llux%llu, the limit is %llu "
                       "pixels",
                       kind->name, (unsigned long long)channels, (unsigned long long)height,
                       (unsigned long long)width, (unsigned long long)MAX_PIXELS);
    if (!kind->any_shape && (source->samples || source->test_samples || source->seed))
        return SDC_ERR(err, SDC_USAGE,
                       "data set %s: samples, test samples or seed given; only synthetic is made",
                       kind->name);
    set->channels = (uint32_t)channels;
    set->height = (uint32_t)height;
    set->width = (uint32_t)width;
    set->classes = (uint32_t)classes;
    return SDC_OK;
}

static enum sdc_status find_kind(const char *name, const struct kind **kind,
                                 struct sdc_error *err) {
    struct sdc_buf list = SDC_BUF_INIT;
    for (size_t i = 0; i < N_KINDS; i++) {
        *kind = &kinds[i];
        if (strcmp(kinds[i].name, name) == 0)
            return SDC_OK;
    }
    for (size_t i = 0; i < N_KINDS; i++)
        sdc__buf_printf(&list, "%s%s", i ? ", " : "", kinds[i].name);
    enum sdc_status st = SDC_ERR(err, SDC_USAGE, "unknown data set '%.100s', expected one of %s",
                                 name, list.failed ? "the known ones" : list.data);
    sdc__buf_release(&list);
    return st;
}

enum sdc_status sdc_dataset_open(const struct sdc_data_source *source, bool train,
                                 struct sdc_dataset **set, struct sdc_error *err) {
    const struct kind *kind;
    SDC_TRY(find_kind(source->name, &kind, err));
    struct sdc_dataset *made = sdc__calloc(1, sizeof *made);
    if (!made)
        return SDC_NOMEM(err, kind->name);
    enum sdc_status st = set_shape(kind, source, made, err);
    if (st == SDC_OK && !(made->name = sdc__strdup(kind->name)))
        st = SDC_NOMEM(err, kind->name);
    if (st == SDC_OK)
        st = make_values(kind, made, err);
    if (st == SDC_OK)
        st = kind->fill(source, train, made, err);
    if (st == SDC_OK)
        *set = made;
    else
        sdc_dataset_free(made);
    return st;
}

void sdc_dataset_free(struct sdc_dataset *set) {
    if (!set)
        return;
    sdc__free(set->name);
    sdc__free(set->pixels);
    sdc__free(set->labels);
    sdc__free(set->values);
    sdc__free(set);
}
