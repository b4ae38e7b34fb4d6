/* SPDX-License-Identifier: Apache-2.0
 *
 * Every byte of the metadata of a small HDF5 file changed, each in a process of its own: our code
 * must answer or refuse. libhdf5 1.10 itself crashes or hangs on a few; that is in its helper
 * process, whose death is a refusal.
 *
 *     test_hdf5_damage STEP     every STEP-th byte
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "io/io.h"
#include "sdc/ckpt.h"
#include "test.h"

enum { OK_EXIT = 0, REFUSED_EXIT = 10, WRONG_EXIT = 11 };

static struct sdc_error err;
static uint64_t step = 1;

/* In the child: lists, maps and reads everything. */
static int look(const char *path) {
    struct sdc_ckpt *c = NULL;
    if (sdc_ckpt_open(path, NULL, &c, &err) != SDC_OK)
        return err.message[0] && strstr(err.message, path) ? REFUSED_EXIT : WRONG_EXIT;
    int rc = OK_EXIT;
    for (size_t i = 0; i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        struct sdc_span span;
        static unsigned char buffer[1 << 16];
        if (!d->dtype_known || d->n_elems == 0)
            continue;
        if (!d->locked && sdc_ckpt_map(c, i, d->n_elems - 1, &span, &err) == SDC_OK &&
            span.offset + span.size > sdc_ckpt_file_size(c))
            rc = WRONG_EXIT;
        uint64_t n = d->n_elems < 1000 ? d->n_elems : 1000;
        if (sdc_ckpt_read(c, i, d->n_elems - n, n, buffer, &err) != SDC_OK)
            rc = rc ? rc : REFUSED_EXIT;
    }
    sdc_ckpt_close(c);
    return rc;
}

static int run_one(const char *path) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit cpu = {5, 5}, core = {0, 0};
        (void)setrlimit(RLIMIT_CPU, &cpu);
        (void)setrlimit(RLIMIT_CORE, &core);
        (void)alarm(20);
        _exit(look(path));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void save(const char *path) {
    struct sdc_ckpt_writer *w;
    const uint64_t shape[2] = {3, 2};
    const double data[6] = {1, 2, 3, 4, 5, 6};
    static const char *const names[] = {"model/a.weight", "model/b", "loop/step"};
    assert_ok(sdc_ckpt_writer_new(path, "hdf5", true, &w, &err));
    for (unsigned i = 0; i < 3; i++) {
        const struct sdc_tensor_desc d = {.name = names[i],
                                          .dtype = i == 1 ? SDC_DTYPE_BF16 : SDC_DTYPE_F64,
                                          .rank = 2 - i,
                                          .shape = shape};
        assert_ok(sdc_ckpt_writer_put(w, &d, data, &err));
    }
    assert_ok(sdc_ckpt_writer_commit(w, false, &err));
}

static void every_changed_byte_is_answered(void **state) {
    (void)state;
    const char *path = "x.h5";
    struct sdc_file f;
    unsigned answered = 0, refused = 0, crashed = 0, tried = 0;
    save(path);
    assert_ok(sdc__file_open(path, SDC_FILE_UPDATE, &f, &err));
    assert_true(f.size < 20000);
    for (uint64_t at = 0; at < f.size; at += step) {
        unsigned char old, changed;
        assert_ok(sdc__file_read(&f, at, &old, 1, &err));
        /* one of three kinds of change by turns: a bit, all ones, zero */
        unsigned bit = 1u << at / 3 % 8;
        changed = at % 3 == 0 ? (unsigned char)((old ^ bit) & 0xffu) : at % 3 == 1 ? 0xff : 0;
        if (changed == old)
            continue;
        assert_ok(sdc__file_write(&f, at, &changed, 1, &err));
        int status = run_one(path);
        assert_ok(sdc__file_write(&f, at, &old, 1, &err));
        tried++;
        if (WIFSIGNALED(status)) {
            crashed++;
            print_message("byte %llu 0x%02x -> 0x%02x: signal %d\n", (unsigned long long)at, old,
                          changed, WTERMSIG(status));
        } else if (WEXITSTATUS(status) == OK_EXIT || WEXITSTATUS(status) == REFUSED_EXIT) {
            answered += WEXITSTATUS(status) == OK_EXIT;
            refused += WEXITSTATUS(status) == REFUSED_EXIT;
        } else {
            fail_msg("byte %llu 0x%02x -> 0x%02x: exit %d", (unsigned long long)at, old, changed,
                     WEXITSTATUS(status));
        }
    }
    sdc__file_close(&f);
    print_message("%s: %u changes: %u answered, %u refused, %u died\n", path, tried, answered,
                  refused, crashed);
    assert_true(refused > 100 / step);
    assert_true(answered > 100 / step);
    assert_int_equal(crashed, 0);
}

int main(int argc, char **argv) {
    unsigned long long n;
    if (argc > 1 && sdc__parse_u64(argv[1], &n) && n > 0)
        step = n;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_changed_byte_is_answered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
