/* SPDX-License-Identifier: Apache-2.0
 *
 * The "binary version" of CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features
 * from Tiny Images", 2009; layout as on https://www.cs.toronto.edu/~kriz/cifar.html): records of
 * one label byte (CIFAR-100: coarse, then fine), then 1024 red, green and blue bytes each, row by
 * row. Every file has a fixed number of records.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "data/kinds.h"
#include "io/io.h"

#define PER_FILE10   10000u
#define TRAIN100     50000u
#define TEST100      10000u
#define COARSE       20u
#define MAX_LABELS   2u
#define MAX_CIFAR    ((size_t)TRAIN100 * (MAX_LABELS + 3072) + 1)
#define CIFAR10_URL  "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
#define CIFAR100_URL "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"

struct layout {
    const char *const *files;
    unsigned n_files, labels; /* label bytes of a record */
    uint64_t records;         /* of a file */
    const char *url;
};

static const char *const train10[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin"};
static const char *const test10[] = {"test_batch.bin"};
static const char *const train100[] = {"train.bin"};
static const char *const test100[] = {"test.bin"};

static struct layout layout_of(uint32_t classes, bool train) {
    if (classes == 10)
        return train ? (struct layout){train10, 5, 1, PER_FILE10, CIFAR10_URL}
                     : (struct layout){test10, 1, 1, PER_FILE10, CIFAR10_URL};
    return train ? (struct layout){train100, 1, 2, TRAIN100, CIFAR100_URL}
                 : (struct layout){test100, 1, 2, TEST100, CIFAR100_URL};
}

/* DIR/NAME, or DIR/NAME.gz. */
static enum sdc_status load(const char *dir, const char *name, const char *url,
                            struct sdc_buf *text, char **path, struct sdc_error *err) {
    enum sdc_status st = SDC_NOT_FOUND;
    for (int gz = 0; st == SDC_NOT_FOUND && gz < 2; gz++) {
        sdc__free(*path);
        *path = sdc__asprintf("%s/%s%s", dir, name, gz ? ".gz" : "");
        if (!*path)
            return SDC_NOMEM(err, name);
        st = sdc__read_gz(*path, MAX_CIFAR, text, err);
    }
    if (st == SDC_NOT_FOUND)
        return SDC_ERR(err, st, "%s/%s: no such file, and none with .gz; it is in %s", dir, name,
                       url);
    return st;
}

/* The first n records of a file, all of which are checked. */
static enum sdc_status take(const struct layout *l, const struct sdc_buf *text, const char *path,
                            uint64_t first, uint64_t n, struct sdc_dataset *set,
                            struct sdc_error *err) {
    const size_t pixels = sdc__data_pixels(set), record = l->labels + pixels;
    const uint64_t want = l->records * record;
    if (text->len != want)
        return SDC_ERR_AT(err, SDC_INVALID, text->len < want ? text->len : want,
                          "%s: %s: %zu bytes, %llu records of %zu bytes have %llu", path,
                          text->len < want ? "truncated" : "bytes after the end", text->len,
                          (unsigned long long)l->records, record, (unsigned long long)want);
    const uint8_t *p = (const uint8_t *)text->data;
    for (uint64_t i = 0; i < l->records; i++, p += record) {
        const uint32_t most[MAX_LABELS] = {l->labels == 2 ? COARSE : set->classes, set->classes};
        for (unsigned k = 0; k < l->labels; k++)
            if (p[k] >= most[k])
                return SDC_ERR_AT(err, SDC_INVALID, i * record + k,
                                  "%s: label %u of record %llu, expected less than %u", path,
                                  (unsigned)p[k], (unsigned long long)i, (unsigned)most[k]);
        if (i >= n)
            continue;
        set->labels[first + i] = p[l->labels - 1];
        memcpy(set->pixels + (first + i) * pixels, p + l->labels, pixels);
    }
    return SDC_OK;
}

enum sdc_status sdc__fill_cifar(const struct sdc_data_source *source, bool train,
                                struct sdc_dataset *set, struct sdc_error *err) {
    const struct layout l = layout_of(set->classes, train);
    if (!source->path)
        return SDC_ERR(err, SDC_NOT_FOUND,
                       "data set %s: no folder given; its files, %s and so on, are in %s",
                       set->name, l.files[0], l.url);
    SDC_TRY(sdc__data_reserve(sdc__data_limited(l.n_files * l.records, source->limit), set, err));
    enum sdc_status st = SDC_OK;
    uint64_t first = 0;
    for (unsigned f = 0; st == SDC_OK && first < set->n; f++, first += l.records) {
        struct sdc_buf text = SDC_BUF_INIT;
        char *path = NULL;
        const uint64_t rest = set->n - first;
        st = load(source->path, l.files[f], l.url, &text, &path, err);
        if (st == SDC_OK)
            st = take(&l, &text, path, first, rest < l.records ? rest : l.records, set, err);
        sdc__buf_release(&text);
        sdc__free(path);
    }
    return st;
}
