/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a configuration of hdf5_corrupter (first byte 'c') or as one of its sequences: what
 * is accepted is a choice that passes its check, or flips within the tensors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/corrupter.h"
#include "fuzz.h"

static int open_memory(const void *data, size_t size, char path[64]) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    (void)snprintf(path, 64, "/proc/self/fd/%d", fd);
    if (fd >= 0 && write(fd, data, size) == (ssize_t)size)
        return fd;
    (void)close(fd);
    return -1;
}

/* A safetensors file: header, then zeros. */
static struct sdc_ckpt *checkpoint(void) {
    static const char header[] =
        "{\"net/conv1/W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"net/conv1/b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[24,32]},"
        "\"net/step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[32,40]}}";
    unsigned char file[8 + sizeof header - 1 + 40] = {sizeof header - 1};
    char path[64];
    struct sdc_ckpt *ckpt = NULL;
    memcpy(file + 8, header, sizeof header - 1);
    int fd = open_memory(file, sizeof file, path);
    if (fd < 0 || sdc_ckpt_open(path, NULL, &ckpt, NULL) != SDC_OK)
        abort();
    (void)close(fd);
    return ckpt;
}

static void use_config(const char *path, const struct sdc_ckpt *ckpt) {
    struct sdc_corrupter_config config;
    struct sdc_choice choice;
    if (sdc_corrupter_read(path, &config, NULL) != SDC_OK)
        return;
    sdc_choice_init(&choice);
    if (sdc_corrupter_choose(&config, ckpt, &choice, NULL) == SDC_OK &&
        sdc_choice_check(&choice, NULL) != SDC_OK)
        abort();
    sdc_choice_release(&choice);
    sdc_corrupter_release(&config);
}

static void use_sequence(const char *path, struct sdc_ckpt *ckpt) {
    struct sdc_fault_list list;
    size_t doubtful;
    if (sdc_corrupter_sequence(path, ckpt, 1, &list, &doubtful, NULL) != SDC_OK)
        return;
    for (size_t i = 0; i < list.n; i++) {
        const struct sdc_fault *f = &list.faults[i];
        if (f->tensor >= sdc_ckpt_count(ckpt))
            abort();
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, f->tensor);
        unsigned width = sdc_dtype_bits(t->dtype);
        if (f->elem >= t->n_elems || f->bits == 0 || (width < 64 && f->bits >> width))
            abort();
        if (i > 0 &&
            (f[-1].tensor > f->tensor || (f[-1].tensor == f->tensor && f[-1].elem >= f->elem)))
            abort();
    }
    sdc_fault_list_release(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sdc_ckpt *ckpt;
    char path[64];
    if (!ckpt)
        ckpt = checkpoint();
    if (size == 0)
        return 0;
    int fd = open_memory(data + 1, size - 1, path);
    if (fd < 0)
        return 0;
    if (data[0] == 'c')
        use_config(path, ckpt);
    else
        use_sequence(path, ckpt);
    (void)close(fd);
    return 0;
}
