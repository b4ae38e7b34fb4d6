/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "data/idx.h"
#include "data/kinds.h"

#define SYSTEM_DIR     "/usr/share/datasets/fashion-mnist"
#define SYSTEM_PACKAGE "dataset-fashion-mnist"

struct idx_pair {
    struct sdc_buf images_text, labels_text;
    char *images_path, *labels_path;
    struct sdc_idx images, labels;
};

static enum sdc_status load_pair(const char *dir, bool train, struct idx_pair *p,
                                 struct sdc_error *err) {
    enum sdc_status st =
        sdc__idx_load(dir, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte",
                      &p->images_text, &p->images_path, err);
    if (st == SDC_OK)
        st = sdc__idx_load(dir, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte",
                           &p->labels_text, &p->labels_path, err);
    if (st == SDC_NOT_FOUND && err) {
        size_t len = strlen(err->message);
        struct sdc_buf b = SDC_BUF_INIT;
        sdc__buf_printf(&b, "; Debian's package " SYSTEM_PACKAGE " holds the data set in %s",
                        SYSTEM_DIR);
        if (!b.failed && len + b.len < sizeof err->message)
            memcpy(err->message + len, b.data, b.len + 1);
        sdc__buf_release(&b);
    }
    return st;
}

static enum sdc_status check_pair(const struct sdc_dataset *set, struct idx_pair *p,
                                  struct sdc_error *err) {
    SDC_TRY(sdc__idx_parse(&p->images_text, p->images_path, 3, &p->images, err));
    SDC_TRY(sdc__idx_parse(&p->labels_text, p->labels_path, 1, &p->labels, err));
    const uint32_t *size = p->images.size;
    if (size[1] != set->height || size[2] != set->width)
        return SDC_ERR_AT(err, SDC_INVALID, 8, "%s: images of %u x %u, expected %u x %u",
                          p->images_path, (unsigned)size[1], (unsigned)size[2],
                          (unsigned)set->height, (unsigned)set->width);
    if (size[0] == 0)
        return SDC_ERR_AT(err, SDC_INVALID, 4, "%s: no images", p->images_path);
    if (p->labels.size[0] != size[0])
        return SDC_ERR_AT(err, SDC_INVALID, 4, "%s: %u labels, expected %u as images in %s",
                          p->labels_path, (unsigned)p->labels.size[0], (unsigned)size[0],
                          p->images_path);
    for (uint32_t i = 0; i < size[0]; i++)
        if (p->labels.bytes[i] >= set->classes)
            return SDC_ERR_AT(err, SDC_INVALID, 8 + (uint64_t)i,
                              "%s: label %u of sample %u, expected less than %u", p->labels_path,
                              (unsigned)p->labels.bytes[i], (unsigned)i, (unsigned)set->classes);
    return SDC_OK;
}

enum sdc_status sdc__fill_fashion_mnist(const struct sdc_data_source *source, bool train,
                                        struct sdc_dataset *set, struct sdc_error *err) {
    struct idx_pair p = {.images_path = NULL};
    enum sdc_status st;
    SDC_TRY_OUT(st, load_pair(source->path ? source->path : SYSTEM_DIR, train, &p, err));
    SDC_TRY_OUT(st, check_pair(set, &p, err));
    SDC_TRY_OUT(st,
                sdc__data_reserve(sdc__data_limited(p.images.size[0], source->limit), set, err));
    memcpy(set->pixels, p.images.bytes, (size_t)set->n * sdc__data_pixels(set));
    for (uint64_t i = 0; i < set->n; i++)
        set->labels[i] = p.labels.bytes[i];
out:
    sdc__buf_release(&p.images_text);
    sdc__buf_release(&p.labels_text);
    sdc__free(p.images_path);
    sdc__free(p.labels_path);
    return st;
}
