/* SPDX-License-Identifier: Apache-2.0
 *
 * data_tool set NAME PATH|- train|test LIMIT [C H W CLASSES SAMPLES TEST_SAMPLES SEED]
 *     "N CHANNELS HEIGHT WIDTH CLASSES", then the labels (i32) and the images (f32) as raw bytes,
 * as gathered without changes; or "STATUS OFFSET MESSAGE" data_tool order N RANKS BATCH SEED STEPS
 * DROP_LAST IN_ORDER a line of indices for each step and rank data_tool changed CROP_PADDING FLIP
 * SEED EPOCH N C H W "ROW COLUMN FLIP" for samples N-1 to 0 of a synthetic set of this shape, then
 * the images
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "sdc/data.h"

static struct sdc_error err;

static unsigned long long number(const char *s) {
    unsigned long long value;
    if (!sdc__parse_u64(s, &value))
        exit(2);
    return value;
}

static int failed(enum sdc_status st) {
    printf("%s %lld %s\n", sdc_status_name(st), (long long)err.offset, err.message);
    return 0;
}

static int put_images(const struct sdc_dataset *set, const uint32_t *indices, size_t n,
                      const struct sdc_augment *augment, uint32_t epoch, bool with_labels) {
    size_t pixels = (size_t)set->channels * set->height * set->width;
    float *images = calloc(n * pixels, sizeof *images);
    int32_t *labels = calloc(n, sizeof *labels);
    if (!images || !labels)
        return 1;
    sdc_dataset_gather(set, indices, n, augment, epoch, images, labels);
    if (with_labels)
        fwrite(labels, sizeof *labels, n, stdout);
    fwrite(images, sizeof *images, n * pixels, stdout);
    free(images);
    free(labels);
    return 0;
}

static int show_set(int argc, char *argv[]) {
    struct sdc_dataset *set;
    struct sdc_data_source from = {.name = argv[2],
                                   .path = strcmp(argv[3], "-") == 0 ? NULL : argv[3],
                                   .limit = number(argv[5])};
    if (argc == 13) {
        from.channels = (uint32_t)number(argv[6]);
        from.height = (uint32_t)number(argv[7]);
        from.width = (uint32_t)number(argv[8]);
        from.classes = (uint32_t)number(argv[9]);
        from.samples = number(argv[10]);
        from.test_samples = number(argv[11]);
        from.seed = number(argv[12]);
    }
    enum sdc_status st = sdc_dataset_open(&from, strcmp(argv[4], "train") == 0, &set, &err);
    if (st != SDC_OK)
        return failed(st);
    size_t n = (size_t)set->n;
    printf("%zu %u %u %u %u\n", n, set->channels, set->height, set->width, set->classes);
    uint32_t *indices = calloc(n, sizeof *indices);
    for (size_t i = 0; indices && i < n; i++)
        indices[i] = (uint32_t)i;
    int rc = indices ? put_images(set, indices, n, NULL, 0, true) : 1;
    free(indices);
    sdc_dataset_free(set);
    return rc;
}

static int show_order(char *argv[]) {
    struct sdc_sampler *sampler;
    const struct sdc_sharding how = {.n = number(argv[2]),
                                     .ranks = (uint32_t)number(argv[3]),
                                     .batch = (uint32_t)number(argv[4]),
                                     .seed = number(argv[5]),
                                     .drop_last = number(argv[7]) != 0,
                                     .in_order = number(argv[8]) != 0};
    enum sdc_status st = sdc_sampler_new(&how, &sampler, &err);
    if (st != SDC_OK)
        return failed(st);
    uint32_t *indices = calloc(how.batch, sizeof *indices);
    for (uint64_t step = 0; st == SDC_OK && indices && step < number(argv[6]); step++) {
        for (uint32_t rank = 0; st == SDC_OK && rank < how.ranks; rank++) {
            st = sdc_sampler_batch(sampler, rank, step, indices, &err);
            for (uint32_t i = 0; i < how.batch; i++)
                printf("%u%c", indices[i], i + 1 < how.batch ? ' ' : '\n');
        }
    }
    free(indices);
    sdc_sampler_free(sampler);
    return st == SDC_OK ? 0 : failed(st);
}

static int show_changed(char *argv[]) {
    struct sdc_dataset *set;
    const struct sdc_augment augment = {.crop_padding = (uint32_t)number(argv[2]),
                                        .flip = number(argv[3]) != 0,
                                        .seed = number(argv[4])};
    const uint32_t epoch = (uint32_t)number(argv[5]), n = (uint32_t)number(argv[6]);
    const struct sdc_data_source from = {.name = "synthetic",
                                         .channels = (uint32_t)number(argv[7]),
                                         .height = (uint32_t)number(argv[8]),
                                         .width = (uint32_t)number(argv[9]),
                                         .samples = n};
    enum sdc_status st = sdc_dataset_open(&from, true, &set, &err);
    if (st != SDC_OK)
        return failed(st);
    uint32_t *indices = calloc(n, sizeof *indices);
    for (uint32_t i = 0; indices && i < n; i++) {
        indices[i] = n - 1 - i;
        struct sdc_augment_draw draw = sdc_augment_draw(&augment, epoch, indices[i]);
        printf("%u %u %d\n", draw.row, draw.column, draw.flip);
    }
    int rc = indices ? put_images(set, indices, n, &augment, epoch, false) : 1;
    free(indices);
    sdc_dataset_free(set);
    return rc;
}

int main(int argc, char *argv[]) {
    int rc = 2;
    if ((argc == 6 || argc == 13) && strcmp(argv[1], "set") == 0)
        rc = show_set(argc, argv);
    else if (argc == 9 && strcmp(argv[1], "order") == 0)
        rc = show_order(argv);
    else if (argc == 10 && strcmp(argv[1], "changed") == 0)
        rc = show_changed(argv);
    return fflush(stdout) ? 1 : rc;
}
