/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/data.h"

#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "data/idx.h"
#include "sdc/rng.h"

/* A named data set: how its samples come into memory, and what is done to every byte. */
struct kind {
    const char *name;
    uint32_t channels, height, width, classes;
    float mean, std;
    enum sdc_status (*fill)(const struct kind *kind, const char *path, bool train, uint64_t limit,
                            struct sdc_dataset *set, struct sdc_error *err);
};

/* ---- common ---- */

/* Memory for n samples. */
static enum sdc_status reserve(const struct kind *kind, uint64_t n, struct sdc_dataset *set,
                               struct sdc_error *err) {
    size_t pixels = (size_t)kind->channels * kind->height * kind->width, all;
    set->n = n;
    if (__builtin_mul_overflow((size_t)n, pixels, &all))
        return SDC_NOMEM(err, kind->name);
    set->images = sdc__alloc_tensor(all, sizeof *set->images);
    set->labels = sdc__calloc((size_t)n, 1);
    return set->images && set->labels ? SDC_OK : SDC_NOMEM(err, kind->name);
}

/* What each of the 256 byte values becomes: three operations in f32, as torchvision's ToTensor and
 * Normalize do them. */
static void normalised(const struct kind *kind, float table[256]) {
    for (int i = 0; i < 256; i++) {
        float x = (float)i / 255.0f;
        x = x - kind->mean;
        table[i] = x / kind->std;
    }
}

static uint64_t limited(uint64_t n, uint64_t limit) {
    return limit && limit < n ? limit : n;
}

/* ---- Fashion-MNIST ---- */

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

static enum sdc_status check_pair(const struct kind *kind, struct idx_pair *p,
                                  struct sdc_error *err) {
    SDC_TRY(sdc__idx_parse(&p->images_text, p->images_path, 3, &p->images, err));
    SDC_TRY(sdc__idx_parse(&p->labels_text, p->labels_path, 1, &p->labels, err));
    const uint32_t *size = p->images.size;
    if (size[1] != kind->height || size[2] != kind->width)
        return SDC_ERR_AT(err, SDC_INVALID, 8, "%s: images of %u x %u, expected %u x %u",
                          p->images_path, (unsigned)size[1], (unsigned)size[2],
                          (unsigned)kind->height, (unsigned)kind->width);
    if (size[0] == 0)
        return SDC_ERR_AT(err, SDC_INVALID, 4, "%s: no images", p->images_path);
    if (p->labels.size[0] != size[0])
        return SDC_ERR_AT(err, SDC_INVALID, 4, "%s: %u labels, expected %u as images in %s",
                          p->labels_path, (unsigned)p->labels.size[0], (unsigned)size[0],
                          p->images_path);
    for (uint32_t i = 0; i < size[0]; i++)
        if (p->labels.bytes[i] >= kind->classes)
            return SDC_ERR_AT(err, SDC_INVALID, 8 + (uint64_t)i,
                              "%s: label %u of sample %u, expected less than %u", p->labels_path,
                              (unsigned)p->labels.bytes[i], (unsigned)i, (unsigned)kind->classes);
    return SDC_OK;
}

static enum sdc_status fill_from_idx(const struct kind *kind, const char *path, bool train,
                                     uint64_t limit, struct sdc_dataset *set,
                                     struct sdc_error *err) {
    struct idx_pair p = {.images_path = NULL};
    float table[256];
    enum sdc_status st;
    SDC_TRY_OUT(st, load_pair(path ? path : SYSTEM_DIR, train, &p, err));
    SDC_TRY_OUT(st, check_pair(kind, &p, err));
    SDC_TRY_OUT(st, reserve(kind, limited(p.images.size[0], limit), set, err));
    normalised(kind, table);
    size_t all = (size_t)set->n * kind->height * kind->width;
    for (size_t i = 0; i < all; i++)
        set->images[i] = table[p.images.bytes[i]];
    memcpy(set->labels, p.labels.bytes, (size_t)set->n);
out:
    sdc__buf_release(&p.images_text);
    sdc__buf_release(&p.labels_text);
    sdc__free(p.images_path);
    sdc__free(p.labels_path);
    return st;
}

/* ---- synthetic ---- */

/* One Gaussian blob a class: its centre is an image of random grey squares of 4 x 4 pixels, and
 * every pixel has noise of its own. All in whole numbers, so that every machine makes the same
 * bytes; each sample has a stream of its own, so that a limit takes a prefix. */
enum {
    SYNTHETIC_TRAIN = 2048,
    SYNTHETIC_TEST = 512,
    SYNTHETIC_SEED = 2022,
    SQUARE = 4,
    DARKEST = 64,  /* of the centres */
    GREYS = 128,   /* from there on */
    NOISE_STD = 64 /* of a byte; the clipping at 0 and 255 cuts the far ends */
};

static void synthetic_centres(const struct kind *kind, uint8_t *centres) {
    uint32_t columns = kind->width / SQUARE;
    for (uint32_t c = 0; c < kind->classes; c++) {
        struct sdc_rng rng;
        sdc_rng_init(&rng, SYNTHETIC_SEED, SDC_RNG_SYNTHETIC, 0, c);
        uint8_t greys[1024]; /* of the squares, row by row */
        for (uint32_t i = 0; i < columns * (kind->height / SQUARE); i++)
            greys[i] = (uint8_t)(DARKEST + sdc_rng_below(&rng, GREYS));
        for (uint32_t y = 0; y < kind->height; y++)
            for (uint32_t x = 0; x < kind->width; x++)
                *centres++ = greys[y / SQUARE * columns + x / SQUARE];
    }
}

/* Sum of eight random bytes: nearly Gaussian, mean 1020, variance 8 (256^2 - 1) / 12 = 209^2. */
static int noise(struct sdc_rng *rng) {
    int sum = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t word = sdc_rng_u32(rng), k = 0; k < 4; k++, word >>= 8)
            sum += (int)(word & 0xFF);
    return (sum - 1020) * NOISE_STD / 209;
}

static enum sdc_status fill_synthetic(const struct kind *kind, const char *path, bool train,
                                      uint64_t limit, struct sdc_dataset *set,
                                      struct sdc_error *err) {
    (void)path;
    size_t pixels = (size_t)kind->channels * kind->height * kind->width;
    SDC_TRY(reserve(kind, limited(train ? SYNTHETIC_TRAIN : SYNTHETIC_TEST, limit), set, err));
    uint8_t *centres = sdc__alloc(kind->classes, pixels);
    if (!centres)
        return SDC_NOMEM(err, kind->name);
    float table[256];
    normalised(kind, table);
    synthetic_centres(kind, centres);
    for (uint64_t i = 0; i < set->n; i++) {
        struct sdc_rng rng;
        sdc_rng_init(&rng, SYNTHETIC_SEED, SDC_RNG_SYNTHETIC, train ? 1 : 2, (uint32_t)i);
        set->labels[i] = (uint8_t)(i % kind->classes);
        for (size_t p = 0; p < pixels; p++) {
            int grey = centres[set->labels[i] * pixels + p] + noise(&rng);
            set->images[i * pixels + p] = table[grey < 0 ? 0 : grey > 255 ? 255 : grey];
        }
    }
    sdc__free(centres);
    return SDC_OK;
}

/* ---- the list ---- */

static const struct kind kinds[] = {
    /* mean and standard deviation of the training images, as commonly used */
    {"fashion-mnist", 1, 28, 28, 10, 0.2860f, 0.3530f, fill_from_idx},
    {"synthetic", 1, 28, 28, 10, 0.5f, 0.25f, fill_synthetic},
};

enum sdc_status sdc_dataset_open(const char *name, const char *path, bool train, uint64_t limit,
                                 struct sdc_dataset **set, struct sdc_error *err) {
    const struct kind *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0)
            kind = &kinds[i];
    if (!kind)
        return SDC_ERR(err, SDC_USAGE,
                       "unknown data set '%.100s', expected fashion-mnist or synthetic", name);
    struct sdc_dataset *made = sdc__calloc(1, sizeof *made);
    if (!made)
        return SDC_NOMEM(err, name);
    made->name = sdc__strdup(name);
    made->channels = kind->channels;
    made->height = kind->height;
    made->width = kind->width;
    made->classes = kind->classes;
    enum sdc_status st =
        made->name ? kind->fill(kind, path, train, limit, made, err) : SDC_NOMEM(err, name);
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
    sdc__free(set->images);
    sdc__free(set->labels);
    sdc__free(set);
}
