/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks on several threads: order, sums, the first failure, stopping.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "test.h"

struct state {
    double sum;
    uint64_t seen, fail_at, stop_at, fail_commit_at;
    atomic_uint running, most;
    bool slow_first;
};

struct slot {
    double value;
    bool busy;
};

static struct sdc_error err;

static enum sdc_status work(void *user, void *slot, uint64_t task, struct sdc_error *e) {
    struct state *s = user;
    struct slot *mine = slot;
    assert_false(mine->busy); /* a slot belongs to one thread until its task is committed */
    mine->busy = true;
    unsigned n = atomic_fetch_add(&s->running, 1) + 1, most = atomic_load(&s->most);
    while (n > most && !atomic_compare_exchange_weak(&s->most, &most, n))
        ;
    if (s->slow_first && task % 3 == 0)
        sdc__sleep_ms(2);
    mine->value = 1.0 / (double)(task + 1);
    atomic_fetch_sub(&s->running, 1);
    if (task >= s->fail_at)
        return SDC_ERR(e, SDC_INVALID, "task %llu is bad", (unsigned long long)task);
    return SDC_OK;
}

static bool stopping(const struct state *s, uint64_t task) {
    return task == s->stop_at;
}

static struct sdc_parallel *current;

static enum sdc_status commit(void *user, void *slot, uint64_t task, struct sdc_error *e) {
    struct state *s = user;
    struct slot *mine = slot;
    assert_int_equal(task, s->seen);
    s->seen++;
    s->sum += mine->value; /* not associative: the order shows in the last bits */
    mine->busy = false;
    current->stop = stopping(s, task);
    if (task == s->fail_commit_at)
        return SDC_ERR(e, SDC_LIMIT, "full at %llu", (unsigned long long)task);
    return SDC_OK;
}

static enum sdc_status run(struct state *s, uint64_t n, unsigned threads) {
    struct slot slots[16] = {{0}};
    struct sdc_parallel p = {.n_tasks = n,
                             .threads = threads,
                             .work = work,
                             .commit = commit,
                             .user = s,
                             .slots = slots,
                             .slot_size = sizeof slots[0]};
    current = &p;
    return sdc__parallel_run(&p, &err);
}

#define NEVER UINT64_MAX
#define STATE                                                                                      \
    { .fail_at = NEVER, .stop_at = NEVER, .fail_commit_at = NEVER }

static void gives_the_same_sum_for_every_number_of_threads(void **state) {
    (void)state;
    struct state one = STATE;
    assert_ok(run(&one, 2000, 1));
    assert_int_equal(one.seen, 2000);
    assert_int_equal(one.most, 1);
    for (unsigned threads = 2; threads <= 16; threads *= 2) {
        struct state many = STATE;
        many.slow_first = threads == 4;
        assert_ok(run(&many, many.slow_first ? 200 : 2000, threads));
        if (!many.slow_first)
            assert_memory_equal(&many.sum, &one.sum, sizeof one.sum);
        assert_true(many.most <= threads);
        if (many.slow_first)
            assert_true(many.most > 1); /* they did run side by side */
    }
}

static void reports_the_first_failure_in_order(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct state s = STATE;
        s.fail_at = 57;
        s.slow_first = true;
        assert_status(SDC_INVALID, run(&s, 1000, threads));
        assert_string_equal(err.message, "task 57 is bad");
        assert_int_equal(s.seen, 57);
        s = (struct state)STATE;
        s.fail_commit_at = 12;
        assert_status(SDC_LIMIT, run(&s, 1000, threads));
        assert_string_equal(err.message, "full at 12");
        assert_int_equal(s.seen, 13);
    }
}

static void stops_when_told(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct state s = STATE;
        s.stop_at = 20;
        assert_ok(run(&s, 100000, threads));
        assert_int_equal(s.seen, 21);
    }
    struct state none = STATE;
    assert_ok(run(&none, 0, 4));
    assert_int_equal(none.seen, 0);
}

struct alone {
    atomic_uint done;
    uint64_t fail_at;
};

static enum sdc_status work_alone(void *user, void *slot, uint64_t task, struct sdc_error *e) {
    struct alone *a = user;
    (void)slot;
    if (task == a->fail_at) /* those after it are done and have failed before it does */
        sdc__sleep_ms(20);
    atomic_fetch_add(&a->done, 1);
    return task >= a->fail_at ? SDC_ERR(e, SDC_INVALID, "task %llu", (unsigned long long)task)
                              : SDC_OK;
}

static void without_results_nothing_waits_and_the_first_failure_is_told(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        char slots[4];
        struct alone a = {.fail_at = NEVER};
        struct sdc_parallel p = {.n_tasks = 100,
                                 .threads = threads,
                                 .work = work_alone,
                                 .user = &a,
                                 .slots = slots,
                                 .slot_size = 1};
        assert_int_equal(sdc__parallel_run(&p, &err), SDC_OK);
        assert_int_equal(a.done, 100);
        a.fail_at = 17;
        assert_int_equal(sdc__parallel_run(&p, &err), SDC_INVALID);
        assert_string_equal(err.message, "task 17");
    }
}

static void counts_threads(void **state) {
    (void)state;
    assert_true(sdc__processors() >= 1);
    assert_int_equal(sdc__parallel_threads(3, 100), 3);
    assert_int_equal(sdc__parallel_threads(8, 2), 2);
    assert_int_equal(sdc__parallel_threads(5, 0), 1);
    assert_int_equal(sdc__parallel_threads(100000, 100000), SDC_MAX_THREADS);
    assert_int_equal(sdc__parallel_threads(0, 1000000),
                     sdc__processors() < SDC_MAX_THREADS ? sdc__processors() : SDC_MAX_THREADS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_sum_for_every_number_of_threads),
        cmocka_unit_test(reports_the_first_failure_in_order),
        cmocka_unit_test(stops_when_told),
        cmocka_unit_test(without_results_nothing_waits_and_the_first_failure_is_told),
        cmocka_unit_test(counts_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
