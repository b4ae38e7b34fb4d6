/* SPDX-License-Identifier: Apache-2.0 */
#include "io/io.h"

/* The one mutable global of this layer: per thread, and unset outside tests. */
static _Thread_local struct sdc_io_hook hook;
static _Thread_local uint64_t hook_count, read_count;

void sdc__io_test_hook(const struct sdc_io_hook *h) {
    hook = h ? *h : (struct sdc_io_hook){0};
    hook_count = read_count = 0;
}

const char *sdc__io_op_name(enum sdc_io_op op) {
    static const char *const names[] = {
#define SDC_IO_OP_TEXT(name, text) text,
        SDC_IO_OP_MAP(SDC_IO_OP_TEXT)
#undef SDC_IO_OP_TEXT
    };
    return names[op];
}

int sdc__io_before(enum sdc_io_op op, const char *path) {
    if (!hook.before)
        return 0;
    return hook.before(hook.user, ++hook_count, op, path);
}

int sdc__io_before_read(const char *path) {
    if (!hook.before_read)
        return 0;
    return hook.before_read(hook.user, ++read_count, path);
}

size_t sdc__io_cut(size_t len) {
    return hook.cut ? hook.cut(hook.user, len) : len;
}
