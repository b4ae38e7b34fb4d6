/* SPDX-License-Identifier: Apache-2.0
 *
 * The HDF5 helper as its parent sees it: deadlines, no memory, no descriptors, the host's own
 * signals and children.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ckpt/fmt/hdf5_proc.h"
#include "sdc/ckpt.h"
#include "test.h"

static struct sdc_error err;

static void save(const char *path) {
    struct sdc_ckpt_writer *w;
    const uint64_t shape[2] = {3, 2};
    const double data[6] = {1, 2, 3, 4, 5, 6};
    static const char *const names[] = {"model/a.weight", "model/b", "loop/step"};
    assert_ok(sdc_ckpt_writer_new(path, "hdf5", true, &w, &err));
    for (unsigned i = 0; i < 3; i++) {
        const struct sdc_tensor_desc d = {
            .name = names[i], .dtype = SDC_DTYPE_F64, .rank = 2 - i, .shape = shape};
        assert_ok(sdc_ckpt_writer_put(w, &d, data, &err));
    }
    assert_ok(sdc_ckpt_writer_commit(w, false, &err));
}

/* Opens and reads all; the first failure's status. */
static enum sdc_status look(const char *path) {
    struct sdc_ckpt *c = NULL;
    static double data[64];
    enum sdc_status st = sdc_ckpt_open(path, NULL, &c, &err);
    for (size_t i = 0; st == SDC_OK && i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        if (d->n_elems <= 64 && d->dtype_known)
            st = sdc_ckpt_read(c, i, 0, d->n_elems, data, &err);
    }
    if (st == SDC_OK)
        st = sdc_ckpt_find_sums(c, &err);
    sdc_ckpt_close(c);
    return st;
}

/* A helper that says this and then nothing. */
static void silent_after(const void *said, size_t n, enum sdc_status want, const char *words) {
    int pair[2];
    save("x.h5");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    if (n)
        assert_int_equal(write(pair[1], said, n), (ssize_t)n);
    sdc__h5_test_answer(pair[0]);
    sdc__h5_test_limits(0, 1);
    const uint64_t begin = sdc__now_ns();
    assert_int_equal(look("x.h5"), want);
    assert_non_null(strstr(err.message, words));
    assert_true(sdc__now_ns() - begin < UINT64_C(20000000000));
    sdc__h5_test_limits(0, 0);
    (void)close(pair[1]);
}

static void silence_ends_at_the_deadline(void **state) {
    (void)state;
    struct sdc_buf hello = SDC_BUF_INIT;
    sdc__wire_put(&hello, 1 + 11 + 2 + 24, 4);
    sdc__wire_put(&hello, SDC_WIRE_HELLO, 1);
    sdc__buf_puts(&hello, SDC_WIRE_MAGIC);
    sdc__wire_put(&hello, SDC_WIRE_VERSION, 2);
    for (int i = 0; i < 6; i++)
        sdc__wire_put(&hello, 1, 4);
    silent_after(NULL, 0, SDC_TIMEOUT, "did not start in 1 s");
    silent_after(hello.data, hello.len, SDC_INVALID, "gave no answer on this file in 1 s");
    silent_after(hello.data, hello.len - 1, SDC_TIMEOUT, "did not start in 1 s");
    sdc__buf_release(&hello);
}

static void nothing_is_left_behind(void **state) {
    (void)state;
    save("x.h5");
    for (int i = 0; i < 20; i++)
        assert_ok(look("x.h5"));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, dead or alive */
    assert_int_equal(errno, ECHILD);
}

/* Every allocation fails once: an error each time, and no helper left. */
static void no_memory(void **state) {
    const char *path = *state;
    const uint64_t before = sdc__alloc_count();
    assert_ok(look(path));
    const uint64_t total = sdc__alloc_count() - before;
    unsigned failed = 0;
    for (uint64_t n = 1; n <= total; n++) {
        sdc__alloc_fail_at(n);
        enum sdc_status st = look(path);
        sdc__alloc_fail_at(0);
        if (st != SDC_OK && st != SDC_NO_MEMORY)
            fail_msg("allocation %llu: %s", (unsigned long long)n, err.message);
        failed += st != SDC_OK;
    }
    print_message("%s: %llu allocations, %u of them needed\n", path, (unsigned long long)total,
                  failed);
    assert_true(failed > total / 2);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void no_descriptors(void **state) {
    (void)state;
    struct rlimit old, few;
    save("x.h5");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (rlim_t n = 3; n < 20; n++) {
        few = (struct rlimit){n, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        enum sdc_status st = look("x.h5");
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        if (st != SDC_OK)
            assert_int_equal(st, SDC_IO);
    }
    assert_ok(look("x.h5"));
}

/* A host that ignores the end of children, blocks signals and closed its standard streams. */
static void strange_hosts(void **state) {
    (void)state;
    save("x.h5");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        sigset_t all;
        (void)sigfillset(&all);
        (void)sigprocmask(SIG_BLOCK, &all, NULL);
        (void)sigaction(SIGCHLD, &ignore, NULL);
        (void)sigaction(SIGPIPE, &ignore, NULL);
        for (int fd = 0; fd < 10; fd++)
            (void)close(fd);
        _exit(look("x.h5") == SDC_OK ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    char own[] = "x.h5";
    char *path = own;
    if (argc > 1)
        path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_ends_at_the_deadline),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test_prestate(no_memory, own),
        cmocka_unit_test_prestate(no_memory, path),
        cmocka_unit_test(no_descriptors),
        cmocka_unit_test(strange_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
