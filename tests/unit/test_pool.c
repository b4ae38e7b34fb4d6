/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool with real worker processes that behave, crash, hang, lie, talk nonsense and leave
 * children behind. The first argument is the path of fake_worker.
 */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "camp/pool.h"
#include "io/io.h"

static const char *worker_path;

/* Processes with this program's path in their command line: what a pool has left behind. */
static unsigned count_workers(void) {
    char command[600];
    unsigned n = 0;
    snprintf(command, sizeof command,
             "exec 2>/dev/null; for p in /proc/[0-9]*; do [ \"$(tr '\\0' ' ' <$p/cmdline | cut -d' "
             "' -f1)\" "
             "= '%s' ] && grep -qv '^State:.Z' $p/status && echo x; done | wc -l",
             worker_path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%u", &n), 1);
    pclose(f);
    return n;
}

struct fixture {
    struct sdc_pool *pool;
    const char *argv[4];
    struct sdc_pool_options options;
};

static void start(struct fixture *f, unsigned workers, const char *mode, const char *platform) {
    struct sdc_error err;
    *f = (struct fixture){.argv = {worker_path, mode, platform, NULL}};
    assert_ok(sdc__make_dirs("log", &err));
    f->options = (struct sdc_pool_options){.argv = f->argv,
                                           .workers = workers,
                                           .log_folder = "log",
                                           .leftovers = "workers.json",
                                           .hello_ms = 5000,
                                           .grace_ms = 500,
                                           .wake_fd = -1};
    assert_ok(sdc__pool_new(&f->options, &f->pool, &err));
}

static void end(struct fixture *f) {
    sdc__pool_free(f->pool);
    assert_int_equal(count_workers(), 0);
    assert_false(sdc__path_exists("workers.json"));
}

static void submit(struct fixture *f, const char *trial, enum sdc_pool_place place, uint64_t worker,
                   unsigned hang_ms) {
    struct sdc_error err;
    char path[300], events[300];
    snprintf(path, sizeof path, "%s.d/run.json", trial);
    snprintf(events, sizeof events, "%s.d/events.jsonl", trial);
    char folder[300];
    snprintf(folder, sizeof folder, "%s.d", trial);
    assert_ok(sdc__remove_tree(folder, &err));
    assert_ok(sdc__make_dirs(folder, &err));
    struct sdc_pool_job job = {.trial = trial,
                               .path = path,
                               .events = events,
                               .hang_ms = hang_ms ? hang_ms : 5000,
                               .place = place,
                               .worker = worker,
                               .user = (void *)(uintptr_t)trial};
    assert_ok(sdc__pool_submit(f->pool, &job, &err));
}

static struct sdc_pool_result next(struct fixture *f) {
    struct sdc_error err;
    struct sdc_pool_result r = {0};
    bool got;
    assert_ok(sdc__pool_wait(f->pool, 20000, &r, &got, &err));
    assert_true(got);
    return r;
}

/* One job, its result; the message must contain the text. */
static uint64_t run_one(struct fixture *f, const char *trial, unsigned hang_ms,
                        enum sdc_pool_end want, const char *text) {
    submit(f, trial, SDC_POOL_ANY, 0, hang_ms);
    struct sdc_pool_result r = next(f);
    if (r.end != want || strcmp(r.user, trial) != 0 ||
        (text && (!r.message || !strstr(r.message, text))))
        fail_msg("%s: end %d, expected %d; message '%s', expected '%s'", trial, (int)r.end,
                 (int)want, r.message ? r.message : "", text ? text : "");
    uint64_t number = r.worker;
    sdc__pool_result_release(&r);
    return number;
}

static void test_behaves(void **s) {
    (void)s;
    struct fixture f;
    struct sdc_error err;
    const struct sdc_worker_message *hello;
    start(&f, 2, "ok", NULL);
    assert_ok(sdc__pool_hello(f.pool, &hello, &err));
    assert_string_equal(hello->trainer, "fake 1");
    assert_string_equal(hello->platform, "test platform");
    char names[20][16];
    for (int i = 0; i < 20; i++) {
        snprintf(names[i], sizeof names[i], "ok-%d", i);
        submit(&f, names[i], SDC_POOL_ANY, 0, 0);
    }
    assert_int_equal(sdc__pool_pending(f.pool), 20);
    unsigned seen = 0;
    uint64_t most = 0;
    for (int i = 0; i < 20; i++) {
        struct sdc_pool_result r = next(&f);
        assert_int_equal(r.end, SDC_POOL_DONE);
        assert_int_equal(r.status, SDC_OK);
        seen |= 1u << atoi((const char *)r.user + 3);
        most = r.worker > most ? r.worker : most;
        sdc__pool_result_release(&r);
    }
    assert_int_equal(seen, (1u << 20) - 1); /* each once */
    assert_in_range(most, 1, 2);            /* by the same processes */
    struct sdc_pool_result r;
    bool got;
    assert_ok(sdc__pool_wait(f.pool, -1, &r, &got, &err)); /* nothing is to come */
    assert_false(got);
    end(&f);
}

static void test_environment(void **s) {
    (void)s;
    struct fixture f;
    start(&f, 1, "ok", NULL);
    run_one(&f, "environment", 0, SDC_POOL_DONE, "omp=1 blas=1 stdin=empty group=own");
    submit(&f, "fail", SDC_POOL_ANY, 0, 0);
    struct sdc_pool_result r = next(&f);
    assert_int_equal(r.end, SDC_POOL_DONE);
    assert_int_equal(r.status, SDC_IO);
    assert_string_equal(r.message, "no space left on device");
    sdc__pool_result_release(&r);
    end(&f);
}

static void test_deaths(void **s) {
    (void)s;
    struct fixture f;
    start(&f, 1, "ok", NULL);
    uint64_t a = run_one(&f, "crash", 0, SDC_POOL_CRASHED, "killed by signal 11");
    uint64_t b = run_one(&f, "exit", 0, SDC_POOL_CRASHED, "ended with exit code 3");
    uint64_t c = run_one(&f, "close", 0, SDC_POOL_CRASHED, "closed its connection");
    uint64_t d = run_one(&f, "garbage", 0, SDC_POOL_CRASHED, "broke the protocol");
    uint64_t e = run_one(&f, "wrong", 0, SDC_POOL_CRASHED, "not expected");
    uint64_t g = run_one(&f, "ok", 0, SDC_POOL_DONE, NULL);
    assert_true(a < b && b < c && c < d && d < e && e < g); /* each time another process */
    end(&f);
}

static void test_hangs(void **s) {
    (void)s;
    struct fixture f;
    start(&f, 1, "ok", NULL);
    uint64_t before = sdc__now_ns();
    run_one(&f, "hang", 400, SDC_POOL_HUNG, "no event for 0.4 s");
    assert_true(sdc__now_ns() - before < 4000000000u);
    run_one(&f, "slow", 600, SDC_POOL_DONE, NULL); /* 1.2 s, but events go on growing */
    run_one(&f, "stall", 600, SDC_POOL_HUNG, "no event for 0.6 s");
    run_one(&f, "ok", 0, SDC_POOL_DONE, NULL);
    end(&f);
}

static void test_sigterm_is_ignored(void **s) {
    (void)s;
    struct fixture f;
    start(&f, 1, "stubborn", NULL);
    run_one(&f, "hang", 300, SDC_POOL_HUNG, NULL);
    end(&f);
}

static void test_children(void **s) {
    (void)s;
    struct fixture f;
    start(&f, 1, "ok", NULL);
    run_one(&f, "child", 0, SDC_POOL_CRASHED, "ended with exit code 0");
    assert_in_range(count_workers(), 0, 1); /* at most the replacement */
    run_one(&f, "stray", 0, SDC_POOL_CRASHED, "ended with exit code 0");
    assert_in_range(count_workers(), 0, 1);
    end(&f);
}

static void test_bad_starts(void **s) {
    (void)s;
    static const struct {
        const char *mode, *text;
    } cases[] = {{"dead", "exit code 7: the data folder is missing"},
                 {"liar", "no hello within 0.5 s"},
                 {"mute", "no hello within 0.5 s"},
                 {"chatty", "no hello within 0.5 s"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        struct sdc_error err;
        struct sdc_pool_result r;
        bool got;
        start(&f, 1, cases[i].mode, NULL);
        sdc__pool_free(f.pool);
        f.options.hello_ms = 500;
        assert_ok(sdc__pool_new(&f.options, &f.pool, &err));
        submit(&f, "ok", SDC_POOL_ANY, 0, 0);
        enum sdc_status st = sdc__pool_wait(f.pool, 20000, &r, &got, &err);
        /* a worker that is turned away closes and ends, or is ended at its deadline */
        if (st != SDC_PEER ||
            (strcmp(cases[i].mode, "dead") == 0 && !strstr(err.message, cases[i].text)))
            fail_msg("%s: %s: %s", cases[i].mode, sdc_status_name(st), err.message);
        assert_message_has("tried 3 times");
        end(&f);
    }
}

static void test_program_is_missing(void **s) {
    (void)s;
    struct fixture f;
    struct sdc_error err;
    struct sdc_pool_result r;
    bool got;
    start(&f, 1, "ok", NULL);
    sdc__pool_free(f.pool);
    f.argv[0] = "/nonexistent/trainer";
    assert_ok(sdc__pool_new(&f.options, &f.pool, &err));
    submit(&f, "ok", SDC_POOL_ANY, 0, 0);
    assert_status(SDC_NOT_FOUND, sdc__pool_wait(f.pool, 20000, &r, &got, &err));
    assert_message_has("/nonexistent/trainer");
    end(&f);
}

static void test_platforms_must_agree(void **s) {
    (void)s;
    struct fixture f;
    struct sdc_error err;
    struct sdc_pool_result r;
    bool got;
    start(&f, 2, "ok", "PID");
    submit(&f, "slow-0", SDC_POOL_ANY, 0, 0);
    submit(&f, "slow-1", SDC_POOL_ANY, 0, 0);
    assert_status(SDC_MISMATCH, sdc__pool_wait(f.pool, 20000, &r, &got, &err));
    end(&f);
}

static void test_places(void **s) {
    (void)s;
    struct fixture f;
    struct sdc_error err;
    start(&f, 1, "ok", NULL);
    uint64_t first = run_one(&f, "ok", 0, SDC_POOL_DONE, NULL);
    submit(&f, "ok-pinned", SDC_POOL_PINNED, first, 0);
    struct sdc_pool_result r = next(&f);
    assert_int_equal(r.worker, first);
    sdc__pool_result_release(&r);
    submit(&f, "ok-fresh", SDC_POOL_FRESH, 0, 0);
    r = next(&f);
    assert_int_equal(r.end, SDC_POOL_DONE);
    assert_int_not_equal(r.worker, first);
    uint64_t second = r.worker;
    sdc__pool_result_release(&r);
    submit(&f, "ok-gone", SDC_POOL_PINNED, first, 0);
    r = next(&f);
    assert_int_equal(r.end, SDC_POOL_GONE);
    assert_string_equal(r.user, "ok-gone");
    sdc__pool_result_release(&r);
    assert_ok(sdc__pool_replace(f.pool, second, &err));
    assert_int_not_equal(run_one(&f, "ok", 0, SDC_POOL_DONE, NULL), second);
    /* two jobs want a fresh worker, and there is room for one: the second waits until the first
     * one's result is collected and nothing more is asked of its worker */
    submit(&f, "ok-fresh-0", SDC_POOL_FRESH, 0, 0);
    submit(&f, "ok-fresh-1", SDC_POOL_FRESH, 0, 0);
    r = next(&f);
    assert_string_equal(r.user, "ok-fresh-0");
    uint64_t third = r.worker;
    sdc__pool_result_release(&r);
    submit(&f, "ok-pinned", SDC_POOL_PINNED, third, 0);
    r = next(&f);
    assert_string_equal(r.user, "ok-pinned");
    assert_int_equal(r.end, SDC_POOL_DONE);
    assert_int_equal(r.worker, third);
    sdc__pool_result_release(&r);
    r = next(&f);
    assert_string_equal(r.user, "ok-fresh-1");
    assert_int_not_equal(r.worker, third);
    sdc__pool_result_release(&r);
    end(&f);
}

static void test_wake_and_drop(void **s) {
    (void)s;
    struct fixture f;
    struct sdc_error err;
    struct sdc_pool_result r;
    bool got;
    int ends[2];
    start(&f, 1, "ok", NULL);
    sdc__pool_free(f.pool);
    assert_int_equal(pipe(ends), 0);
    f.options.wake_fd = ends[0];
    assert_ok(sdc__pool_new(&f.options, &f.pool, &err));
    submit(&f, "slow-0", SDC_POOL_ANY, 0, 0);
    submit(&f, "ok-0", SDC_POOL_ANY, 0, 0);
    submit(&f, "ok-1", SDC_POOL_ANY, 0, 0);
    assert_ok(sdc__pool_wait(f.pool, 300, &r, &got, &err));
    assert_false(got);
    assert_int_equal(write(ends[1], "x", 1), 1);
    uint64_t before = sdc__now_ns();
    assert_ok(sdc__pool_wait(f.pool, -1, &r, &got, &err));
    assert_false(got);
    assert_true(sdc__now_ns() - before < 1000000000u);
    char c;
    assert_int_equal(read(ends[0], &c, 1), 1);
    void *users[8];
    assert_int_equal(sdc__pool_drop_queued(f.pool, users), 2);
    assert_string_equal(users[0], "ok-0");
    assert_int_equal(sdc__pool_pending(f.pool), 1);
    r = next(&f);
    assert_string_equal(r.user, "slow-0");
    sdc__pool_result_release(&r);
    close(ends[0]);
    close(ends[1]);
    end(&f);
}

/* A process that is killed with a pool in it: the next pool cleans up. */
static void test_leftovers(void **s) {
    (void)s;
    struct fixture f;
    pid_t child = fork();
    if (child == 0) {
        start(&f, 1, "stubborn", NULL);
        submit(&f, "stray", SDC_POOL_ANY, 0, 0); /* a child in a session of its own */
        struct sdc_pool_result r = next(&f);
        sdc__pool_result_release(&r);
        submit(&f, "hang", SDC_POOL_ANY, 0, 60000);
        bool got;
        struct sdc_error err;
        if (sdc__pool_wait(f.pool, 700, &r, &got, &err) != SDC_OK || got)
            _exit(1);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_error err;
    struct sdc_json *root;
    const char *folder;
    assert_ok(sdc__read_whole("workers.json", 100000, &text, &err));
    assert_ok(sdc__json_parse(text.data, text.len, "workers.json", &root, &err));
    assert_ok(sdc__json_as_str(sdc__json_get(root, "folder"), "folder", &folder, &err));
    assert_true(sdc__path_is_dir(folder));
    start(&f, 1, "ok", NULL);
    assert_false(sdc__path_exists(folder));
    run_one(&f, "ok", 0, SDC_POOL_DONE, NULL);
    end(&f);
    sdc__json_free(root);
    sdc__buf_release(&text);
}

/* A file that is not the pool's must do no harm. */
static void test_foreign_leftovers(void **s) {
    (void)s;
    static const char *const texts[] = {"", "[1,2]", "{\"tokens\":[1,\"x\"],\"folder\":\"log\"}",
                                        "{\"tokens\":{},\"folder\":7}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct fixture f;
        struct sdc_error err;
        assert_ok(sdc__make_dirs("log", &err));
        assert_ok(sdc__write_whole("workers.json", texts[i], strlen(texts[i]), false, &err));
        start(&f, 1, "ok", NULL);
        assert_true(sdc__path_is_dir("log"));
        end(&f);
    }
}

static void test_limits(void **s) {
    (void)s;
    struct fixture f;
    struct sdc_error err;
    start(&f, 1, "ok", NULL);
    sdc__pool_free(f.pool);
    f.options.workers = 0;
    assert_status(SDC_USAGE, sdc__pool_new(&f.options, &f.pool, &err));
    f.options.workers = 2000;
    assert_status(SDC_USAGE, sdc__pool_new(&f.options, &f.pool, &err));
    assert_null(f.pool);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    worker_path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behaves),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_sigterm_is_ignored),
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_bad_starts),
        cmocka_unit_test(test_program_is_missing),
        cmocka_unit_test(test_platforms_must_agree),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_wake_and_drop),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_foreign_leftovers),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
