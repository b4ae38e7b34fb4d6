/* SPDX-License-Identifier: Apache-2.0
 *
 * The only list of formats, in order of recognition.
 */
#include "ckpt/fmt.h"

#include <string.h>

static const struct sdc_ckpt_fmt_ops *const formats[] = {&sdc__fmt_hdf5, &sdc__fmt_safetensors};
static const char *const names[] = {"hdf5", "safetensors"};
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
