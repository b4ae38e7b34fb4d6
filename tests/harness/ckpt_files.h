/* SPDX-License-Identifier: Apache-2.0
 *
 * Small checkpoints and whole files for tests.
 */
#ifndef SDC_TESTS_CKPT_FILES_H
#define SDC_TESTS_CKPT_FILES_H

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "io/io.h"
#include "sdc/ckpt.h"
#include "test.h"

/* Model, optimizer and loop state, about 330 KB: middle, first and last 64 KiB are different
 * places. Element i of the k-th tensor is a small number that depends on both. */
static inline void make_ckpt(const char *path, const char *format) {
    static const struct {
        const char *name;
        enum sdc_dtype dtype;
        unsigned rank;
        uint64_t shape[3], n;
    } tensors[] = {
        {"loop/step", SDC_DTYPE_I64, 0, {0}, 1},
        {"model/big.weight", SDC_DTYPE_F32, 2, {200, 200}, 40000},
        {"model/conv.bias", SDC_DTYPE_F32, 1, {4}, 4},
        {"model/conv.weight", SDC_DTYPE_F32, 3, {4, 3, 5}, 60},
        {"model/half.weight", SDC_DTYPE_F16, 2, {10, 2}, 20},
        {"optimizer/big.weight/momentum", SDC_DTYPE_F32, 2, {200, 200}, 40000},
    };
    struct sdc_error err;
    struct sdc_ckpt_writer *w;
    assert_ok(sdc_ckpt_writer_new(path, format, true, &w, &err));
    for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++) {
        struct sdc_tensor_desc d = {.name = tensors[k].name,
                                    .dtype = tensors[k].dtype,
                                    .dtype_known = true,
                                    .dtype_text = sdc_dtype_name(tensors[k].dtype),
                                    .rank = tensors[k].rank,
                                    .shape = tensors[k].shape,
                                    .n_elems = tensors[k].n};
        unsigned size = sdc_dtype_bytes(d.dtype);
        unsigned char *data = test_calloc(tensors[k].n, size);
        for (uint64_t i = 0; i < d.n_elems; i++) {
            double value = d.dtype == SDC_DTYPE_I64
                               ? 300
                               : ((double)((i * 7 + k) % 101) - 50) / 500 + (double)k * 1e-3;
            sdc_num_store(d.dtype, sdc_num_from_double(d.dtype, value), data + i * size, false);
        }
        assert_ok(sdc_ckpt_writer_put(w, &d, data, &err));
        test_free(data);
    }
    assert_ok(sdc_ckpt_writer_commit(w, false, &err));
}

/* The file's bytes; release with sdc__buf_release. */
static inline struct sdc_buf read_file(const char *path) {
    struct sdc_error err;
    struct sdc_buf b = SDC_BUF_INIT;
    assert_ok(sdc__read_whole(path, (size_t)1 << 30, &b, &err));
    return b;
}

static inline void write_file(const char *path, const struct sdc_buf *b) {
    struct sdc_error err;
    assert_ok(sdc__write_whole(path, b->data, b->len, false, &err));
}

static inline bool same_bytes(const struct sdc_buf *a, const struct sdc_buf *b) {
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static inline bool file_is(const char *path, const struct sdc_buf *want) {
    struct sdc_buf is = read_file(path);
    bool same = same_bytes(&is, want);
    sdc__buf_release(&is);
    return same;
}

#endif
