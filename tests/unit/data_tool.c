/* SPDX-License-Identifier: Apache-2.0
 *
 * data_tool set NAME PATH|- train|test LIMIT   "N CHANNELS HEIGHT WIDTH CLASSES", then the labels
 *     and the images as raw bytes; or "STATUS OFFSET MESSAGE"
 * data_tool order N RANKS BATCH SEED STEPS     a line of indices for each step and rank
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

static int show_set(char *argv[]) {
    struct sdc_dataset *set;
    const char *path = strcmp(argv[3], "-") == 0 ? NULL : argv[3];
    enum sdc_status st =
        sdc_dataset_open(argv[2], path, strcmp(argv[4], "train") == 0, number(argv[5]), &set, &err);
    if (st != SDC_OK)
        return failed(st);
    size_t n = (size_t)set->n, pixels = (size_t)set->channels * set->height * set->width;
    printf("%zu %u %u %u %u\n", n, set->channels, set->height, set->width, set->classes);
    fwrite(set->labels, 1, n, stdout);
    fwrite(set->images, sizeof *set->images, n * pixels, stdout);
    sdc_dataset_free(set);
    return 0;
}

static int show_order(char *argv[]) {
    struct sdc_sampler *sampler;
    uint32_t ranks = (uint32_t)number(argv[3]), batch = (uint32_t)number(argv[4]);
    enum sdc_status st =
        sdc_sampler_new(number(argv[2]), ranks, batch, number(argv[5]), &sampler, &err);
    if (st != SDC_OK)
        return failed(st);
    uint32_t *indices = calloc(batch, sizeof *indices);
    for (uint64_t step = 0; st == SDC_OK && indices && step < number(argv[6]); step++) {
        for (uint32_t rank = 0; st == SDC_OK && rank < ranks; rank++) {
            st = sdc_sampler_batch(sampler, rank, step, indices, &err);
            for (uint32_t i = 0; i < batch; i++)
                printf("%u%c", indices[i], i + 1 < batch ? ' ' : '\n');
        }
    }
    free(indices);
    sdc_sampler_free(sampler);
    return st == SDC_OK ? 0 : failed(st);
}

int main(int argc, char *argv[]) {
    int rc = 2;
    if (argc == 6 && strcmp(argv[1], "set") == 0)
        rc = show_set(argv);
    else if (argc == 7 && strcmp(argv[1], "order") == 0)
        rc = show_order(argv);
    return fflush(stdout) ? 1 : rc;
}
