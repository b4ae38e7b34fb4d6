/* SPDX-License-Identifier: Apache-2.0
 *
 * What needs limits that the program does not offer: trials that hang, with limits of seconds. The
 * trainer is the real one behind tests/harness/proxy_trainer.py. Arguments: python, its path, the
 * trainer.
 */
#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "camp/exec.h"
#include "io/io.h"

static const char *python, *proxy;

static const char spec_text[] =
    "campaign: hangs\nseed: 3\nmodel: mlp\nkernels: ref\ndata: {name: synthetic}\nbatch: 4\n"
    "baseline: {seeds: 1, checkpoints: [4]}\nwindow: {steps: 4, eval_samples: 20}\n"
    "clean: {e0: 1, e1: 1}\nfactors: {altered_ranks: [all], flips: [1, 2]}\ntrials: 2\n";

static enum sdc_status run(const char *dir, const char *rules, struct sdc_exec_options *o,
                           struct sdc_exec_summary *summary, struct sdc_error *out) {
    struct sdc_error err = {0};
    const char *const worker[] = {python, proxy, NULL};
    struct sdc_spec *spec;
    struct sdc_store *store;
    setenv("SDC_PROXY_RULES", rules, 1);
    assert_ok(sdc__spec_parse(spec_text, strlen(spec_text), "spec", &spec, &err));
    assert_ok(sdc__store_open(dir, spec, &store, &err));
    o->worker = worker;
    o->workers = 2;
    o->wake_fd = -1;
    enum sdc_status st = sdc__exec_run(store, o, summary, &err);
    *out = err;
    sdc__store_close(store);
    sdc__spec_free(spec);
    return st;
}

static void test_hang_is_an_outcome(void **s) {
    (void)s;
    struct sdc_exec_options options = {.hang_least_ms = 2500};
    struct sdc_exec_summary summary;
    struct sdc_error err;
    assert_ok(sdc__remove_tree("hangs", &err));
    assert_ok(run("hangs", "c000-0001 hang", &options, &summary, &err));
    assert_true(summary.complete);
    assert_int_equal(summary.n_harness_errors, 0);
    struct sdc_store *store;
    struct sdc_store_trial t;
    assert_ok(sdc__store_open_read("hangs", &store, &err));
    assert_ok(sdc__store_get_trial(store, "c000-0001", &t, &err));
    assert_int_equal(t.outcome.result, SDC_RESULT_DONE);
    assert_int_equal(t.outcome.numeric, SDC_NUMERIC_HANG);
    assert_int_equal(t.outcome.replicas, SDC_REPLICAS_UNKNOWN);
    assert_int_equal(t.attempts, 2);
    assert_string_equal(t.end_reason, "hang");
    sdc__store_trial_release(&t);
    assert_ok(sdc__store_get_trial(store, "c000-0000", &t, &err));
    assert_int_not_equal(t.outcome.numeric, SDC_NUMERIC_HANG);
    assert_int_equal(t.attempts, 1);
    sdc__store_trial_release(&t);
    sdc__store_close(store);
}

static void test_hanging_clean_run_is_an_error(void **s) {
    (void)s;
    struct sdc_exec_options options = {.hang_first_ms = 2500};
    struct sdc_exec_summary summary;
    struct sdc_error err;
    assert_ok(sdc__remove_tree("clean", &err));
    assert_status(SDC_TIMEOUT, run("clean", "g0-golden-1 hang", &options, &summary, &err));
    assert_message_has("g0-golden-1");
    assert_message_has("no event for 2.5 s");
    assert_false(summary.complete);
}

/* A request to stop that came before the first trial: nothing is begun. */
static void test_stop_before_trials(void **s) {
    (void)s;
    volatile sig_atomic_t stop = 1;
    struct sdc_exec_options options = {.stop = &stop};
    struct sdc_exec_summary summary;
    struct sdc_error err;
    assert_ok(sdc__remove_tree("hangs2", &err));
    assert_status(SDC_CANCELLED, run("hangs2", "", &options, &summary, &err));
    assert_int_equal(summary.n_now, 0);
}

/* Every trial is looked at: golden is repeated after each. */
static void test_check_after_every_trial(void **s) {
    (void)s;
    struct sdc_exec_options options = {.check_every = 1};
    struct sdc_exec_summary summary;
    struct sdc_error err;
    assert_ok(sdc__remove_tree("checks", &err));
    assert_ok(run("checks", "", &options, &summary, &err));
    assert_true(summary.complete);
    assert_int_equal(summary.n_now, summary.n_trials);
    assert_int_equal(summary.n_replaced, 0);
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    python = argv[1];
    proxy = argv[2];
    setenv("SDC_PROXY_TRAINER", argv[3], 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hang_is_an_outcome),
        cmocka_unit_test(test_hanging_clean_run_is_an_error),
        cmocka_unit_test(test_stop_before_trials),
        cmocka_unit_test(test_check_after_every_trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
