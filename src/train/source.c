/* SPDX-License-Identifier: Apache-2.0 */
#include "train/source.h"

#include <string.h>

struct sdc_data_source sdc_run_data_source(const struct sdc_run *run, bool train) {
    return (struct sdc_data_source){.name = run->data.name,
                                    .path = run->data.path,
                                    .limit = train ? run->data.limit : 0,
                                    .channels = run->data.channels,
                                    .height = run->data.height,
                                    .width = run->data.width,
                                    .classes = run->data.classes,
                                    .samples = run->data.samples,
                                    .test_samples = run->data.test_samples,
                                    .seed = run->data.seed};
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool sdc_data_source_same(const struct sdc_data_source *a, const struct sdc_data_source *b) {
    return same_text(a->name, b->name) && same_text(a->path, b->path) && a->limit == b->limit &&
           a->channels == b->channels && a->height == b->height && a->width == b->width &&
           a->classes == b->classes && a->samples == b->samples &&
           a->test_samples == b->test_samples && a->seed == b->seed;
}

struct sdc_sharding sdc_run_sharding(const struct sdc_run *run, uint64_t n) {
    return (struct sdc_sharding){.n = n,
                                 .ranks = run->ranks,
                                 .batch = run->batch,
                                 .seed = run->seed_data,
                                 .in_order = !run->data.shuffle,
                                 .drop_last = run->data.drop_last};
}

struct sdc_augment sdc_run_augment(const struct sdc_run *run) {
    return (struct sdc_augment){
        .crop_padding = run->data.crop_padding, .flip = run->data.flip, .seed = run->seed_data};
}
