/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and reading checkpoints of others while one allocation fails, each in turn: an error or
 * the whole list, never a crash, a leak (under sanitizers) or a part of the list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "sdc/ckpt.h"
#include "test.h"

static struct sdc_error err;

static const char *const paths[] = {
    "tests/data/tensorbundle/slots/ckpt-1.index",
    "tests/data/tensorbundle/names.index",
    "tests/data/tensorbundle/merged.index",
    "tests/data/tensorbundle/saved_model",
    "tests/fuzz/seeds/gguf/plain",
    "tests/fuzz/seeds/gguf/quants",
    "tests/fuzz/seeds/torch/zip",
    "tests/fuzz/seeds/torch/kinds",
    "tests/fuzz/seeds/torch/deflated",
    "tests/fuzz/seeds/torch/legacy",
    "tests/data/dcp/rows",
    "tests/data/dcp/single",
    "tests/fuzz/seeds/safetensors/state",
    "tests/fuzz/seeds/hdf5/full-latest.h5",
    "tests/fuzz/seeds/hdf5/full-earliest.h5",
    "tests/data/keras/net.weights.json",
    "tests/fuzz/seeds/npy/fields",
    "tests/fuzz/seeds/npy/version3",
    "tests/fuzz/seeds/npz/deflated",
    "tests/fuzz/seeds/npz/mixed",
};

static enum sdc_status read_all(struct sdc_ckpt *c) {
    static unsigned char element[8];
    for (size_t i = 0; i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        enum sdc_status st = SDC_OK;
        if (d->n_elems > 0 && d->dtype_known)
            st = sdc_ckpt_read(c, i, d->n_elems - 1, 1, element, &err);
        if (st != SDC_OK)
            return st;
    }
    return sdc_ckpt_find_sums(c, &err);
}

static const char *or_none(const char *text) {
    return text ? text : "-";
}

/* All that is told about the tensors: a text that is lost may say the opposite of what it said. */
static struct sdc_buf told(struct sdc_ckpt *c) {
    struct sdc_buf b = SDC_BUF_INIT;
    for (size_t i = 0; i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        size_t n;
        const char *const *aliases = sdc_ckpt_aliases(c, i, &n);
        sdc__buf_printf(&b, "%s %s %llu %s %s %s %s %s %s", d->name, d->dtype_text,
                        (unsigned long long)d->n_elems, sdc_part_name(d->part),
                        sdc_role_name(d->role), or_none(d->locked), or_none(d->shared),
                        sdc_ckpt_storage(c, i), or_none(sdc_ckpt_recoded(c, i)));
        for (size_t k = 0; k < n; k++)
            sdc__buf_printf(&b, " %s", aliases[k]);
        sdc__buf_putc(&b, '\n');
    }
    for (size_t i = 0; i < sdc_ckpt_notes(c); i++)
        sdc__buf_printf(&b, "%s\n", sdc_ckpt_note(c, i).text);
    assert_false(b.failed);
    return b;
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[1024];
        struct sdc_ckpt *c = NULL;
        (void)snprintf(path, sizeof path, "%s/%s", getenv("SDC_SOURCE_DIR"), paths[i]);
        assert_ok(sdc_ckpt_open(path, NULL, &c, &err));
        const size_t n = sdc_ckpt_count(c), sums = sdc_ckpt_sums(c);
        struct sdc_buf want = told(c);
        sdc_ckpt_close(c);
        uint64_t at = 1, failures = 0;
        for (bool reached = true; reached; at++) {
            uint64_t before = sdc__alloc_count();
            c = NULL;
            sdc__alloc_fail_at(at);
            enum sdc_status st = sdc_ckpt_open(path, NULL, &c, &err);
            if (st == SDC_OK) {
                assert_int_equal(sdc_ckpt_count(c), n);
                assert_int_equal(sdc_ckpt_sums(c), sums);
                st = read_all(c);
            }
            reached = sdc__alloc_count() - before >= at;
            sdc__alloc_fail_at(0);
            if (c) {
                struct sdc_buf is = told(c);
                if (strcmp(is.data, want.data) != 0)
                    fail_msg("%s, allocation %llu: told\n%s, expected\n%s", path,
                             (unsigned long long)at, is.data, want.data);
                sdc__buf_release(&is);
            }
            sdc_ckpt_close(c);
            failures += st != SDC_OK;
            /* a folder is recognised with memory of its own: without, it is no checkpoint */
            if (st != SDC_OK && st != SDC_NO_MEMORY && st != SDC_UNSUPPORTED)
                fail_msg("%s, allocation %llu: %s", path, (unsigned long long)at, err.message);
        }
        sdc__buf_release(&want);
        assert_true(failures > 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_memory_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
