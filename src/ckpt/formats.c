/* SPDX-License-Identifier: Apache-2.0
 *
 * The only list of formats, in order of recognition: those with a signature first.
 */
#include "ckpt/fmt.h"

#include <string.h>

/* object, its name; one a line: */
/* clang-format off */
#define FORMATS(X)                              \
    X(sdc__fmt_hdf5, "hdf5")                    \
    X(sdc__fmt_keras, "keras")                  \
    X(sdc__fmt_gguf, "gguf")                    \
    X(sdc__fmt_tensorbundle, "tensorbundle")    \
    X(sdc__fmt_dcp, "pytorch-dcp")              \
    X(sdc__fmt_torch_legacy, "pytorch-legacy")  \
    X(sdc__fmt_npy, "npy")                      \
    X(sdc__fmt_npz, "npz")                      \
    X(sdc__fmt_keras_shards, "keras-shards")    \
    X(sdc__fmt_safetensors_set, "safetensors-set") \
    X(sdc__fmt_safetensors, "safetensors")      \
    X(sdc__fmt_torch, "pytorch")
/* clang-format on */

#define FORMAT_OBJECT(object, name) &object,
#define FORMAT_NAME(object, name)   name,

static const struct sdc_ckpt_fmt_ops *const formats[] = {FORMATS(FORMAT_OBJECT)};
static const char *const names[] = {FORMATS(FORMAT_NAME)};
static const struct sdc_ckpt_writer_ops *const writers[] = {&sdc__writer_hdf5,
                                                            &sdc__writer_safetensors};

const struct sdc_ckpt_fmt_ops *const *sdc__ckpt_fmt_table(size_t *n) {
    *n = sizeof formats / sizeof *formats;
    return formats;
}

const struct sdc_ckpt_writer_ops *sdc__ckpt_writer_find(const char *format) {
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++)
        if (strcmp(writers[i]->name, format) == 0)
            return writers[i];
    return NULL;
}

const char *const *sdc_ckpt_formats(size_t *n) {
    *n = sizeof names / sizeof *names;
    return names;
}
