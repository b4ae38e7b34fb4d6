/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a live fault travels: numbers of differing elements per rank, exact, with ddp and with
 * horovod. What is expected is what PyTorch DDP and Horovod do: everything before the reduction
 * reaches all ranks alike, what is altered after it stays with its rank and makes replicas diverge.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "test.h"
#include "train_kit.h"

#define RANKS  3
#define STRUCK 1
#define AT     3 /* the step that is hit */
#define TO     5

static struct sdc_error err;
static struct sdc_trainer *trainer;

static int make_trainer(void **state) {
    (void)state;
    return sdc_trainer_new(&trainer, &err) == SDC_OK ? 0 : 1;
}

static int free_trainer(void **state) {
    (void)state;
    sdc_trainer_free(trainer);
    return 0;
}

static void describe(struct sdc_run *run, const char *name, const char *recipe) {
    kit_run(run, name, recipe, RANKS, 0, TO);
    for (uint64_t step = AT; step <= TO; step++)
        kit_snapshot(run, step);
}

static struct sdc_live_fault *add_fault(struct sdc_run *run, enum sdc_probe_point point,
                                        const char *key, const char *value) {
    run->faults = sdc__realloc(run->faults, run->n_faults + 1, sizeof *run->faults);
    assert_non_null(run->faults);
    struct sdc_live_fault *f = &run->faults[run->n_faults++];
    *f = (struct sdc_live_fault){.step = AT, .rank = STRUCK, .point = point};
    sdc_choice_init(&f->choice);
    assert_ok(sdc_choice_set(&f->choice, key, value, &err));
    return f;
}

/* Elements of a part (0: model, 1: optimizer) in which two snapshots differ. */
static uint64_t between(const struct sdc_run *a, unsigned rank_a, const struct sdc_run *b,
                        unsigned rank_b, uint64_t step, unsigned part) {
    char path[512];
    snprintf(path, sizeof path, "%s", kit_snapshot_path(a, step, rank_a));
    return kit_differing(path, kit_snapshot_path(b, step, rank_b), part);
}

/* A row of the table: elements that differ at the end of the step that was hit. */
struct row {
    enum sdc_probe_point point;
    const char *site;
    /* model and optimizer: the struck rank against another one of the same run; any other rank
     * against the clean run */
    uint64_t diverged[2], spread[2];
};

#define MANY UINT64_MAX /* more than one */

static const struct row rows[] = {
    {SDC_POINT_LOCAL_GRADIENT, "model/fc3.bias[2]@lsb:22", {0, 0}, {1, 1}},
    {SDC_POINT_BUCKET, "model/fc3.bias[2]@lsb:22", {0, 0}, {1, 1}},
    {SDC_POINT_REDUCED, "model/fc3.bias[2]@lsb:22", {1, 1}, {0, 0}},
    {SDC_POINT_UPDATE, "model/fc3.bias[2]@lsb:22", {1, 0}, {0, 0}},
    {SDC_POINT_OPTIMIZER, "optimizer/fc3.bias/momentum[2]@lsb:22", {1, 1}, {0, 0}},
    /* the rank computes with it, so that its gradient, and the mean, are others */
    {SDC_POINT_PARAMETER, "model/fc3.bias[2]@lsb:22", {1, 0}, {MANY, MANY}},
};

static void expect(uint64_t found, uint64_t expected, const char *recipe, const struct row *row,
                   const char *what, unsigned rank) {
    bool good = expected == MANY ? found > 1 : found == expected;
    if (!good)
        fail_msg("%s, %s, %s, rank %u: %llu elements differ", recipe,
                 sdc_probe_point_name(row->point), what, rank, (unsigned long long)found);
}

static void check_event(const struct sdc_event_list *events, const struct row *row) {
    const struct sdc_event *e = kit_last(events, SDC_EVENT_FAULT);
    assert_non_null(e);
    assert_int_equal(e->step, AT);
    assert_int_equal(e->rank, STRUCK);
    assert_int_equal(e->point, row->point);
    assert_int_equal(e->changed, 1);
    assert_int_equal(e->n_changes, 1);
    assert_memory_equal(e->changes[0].tensor, row->site, strlen(e->changes[0].tensor));
    assert_int_equal(e->changes[0].elem, 2);
    assert_int_equal(e->changes[0].before ^ e->changes[0].after, 1u << 22);
}

static void travel(const char *recipe) {
    struct sdc_run clean, hit;
    struct sdc_event_list events;
    describe(&clean, "live-clean", recipe);
    kit_train(trainer, &clean, SDC_OK, &events, &err);
    for (size_t k = 0; k < events.n; k++)
        assert_int_not_equal(events.items[k].kind, SDC_EVENT_FAULT);
    sdc_events_release(&events);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        describe(&hit, "live-hit", recipe);
        add_fault(&hit, row->point, "at", row->site);
        kit_train(trainer, &hit, SDC_OK, &events, &err);
        check_event(&events, row);
        sdc_events_release(&events);
        for (unsigned part = 0; part < 2; part++) {
            const char *what = part ? "optimizer" : "model";
            for (unsigned r = 0; r < RANKS; r++) {
                if (r == STRUCK)
                    continue;
                expect(between(&hit, STRUCK, &hit, r, AT, part), row->diverged[part], recipe, row,
                       what, r);
                expect(between(&clean, r, &hit, r, AT, part), row->spread[part], recipe, row, what,
                       r);
            }
            expect(between(&hit, 0, &hit, 2, TO, part), 0, recipe, row, what, 2);
            /* never repaired, and without decay no more than this element: sources of the table */
            expect(between(&hit, STRUCK, &hit, 0, TO, 0), row->diverged[0], recipe, row, "later",
                   0);
        }
        sdc_run_release(&hit);
    }
    sdc_run_release(&clean);
}

static void faults_travel_as_with_ddp(void **state) {
    (void)state;
    travel("ddp/after-wrap-all");
}

static void faults_travel_as_with_horovod(void **state) {
    (void)state;
    travel("horovod/rank0-broadcast");
}

/* One NaN in one rank's gradient: every rank has it, replicas agree. In the next step all that the
 * NaN reaches, forward or backward, is NaN: everything but what only ReLUs of fc1 that are off
 * decide. */
static void nan_reaches_all(void **state) {
    (void)state;
    static const char *const recipes[] = {"ddp/before-wrap-all", "horovod/all-no-broadcast"};
    for (unsigned i = 0; i < 2; i++) {
        struct sdc_run run;
        struct sdc_event_list events;
        describe(&run, "live-nan", recipes[i]);
        struct sdc_live_fault *f =
            add_fault(&run, SDC_POINT_LOCAL_GRADIENT, "at", "model/fc3.weight[4,7]");
        assert_ok(sdc_choice_set(&f->choice, "op", "value=nan", &err));
        kit_train(trainer, &run, SDC_OK, &events, &err);
        for (size_t k = 0; k < events.n; k++) {
            const struct sdc_event *e = &events.items[k];
            for (unsigned r = 0; e->kind == SDC_EVENT_STEP && r < RANKS; r++) {
                if (e->step == AT)
                    assert_int_equal(e->nonfinite_parameters[r], 1);
                if (e->step == AT + 1)
                    assert_true(e->nonfinite_parameters[r] > 1000);
                assert_int_equal(e->nonfinite_parameters[r], e->nonfinite_parameters[0]);
            }
        }
        for (unsigned r = 1; r < RANKS; r++)
            assert_int_equal(between(&run, 0, &run, r, TO, 0), 0);
        sdc_events_release(&events);
        sdc_run_release(&run);
    }
}

/* Sites are drawn by seed and place in the list: the same again, and another for another seed. */
static void draws_repeat(void **state) {
    (void)state;
    uint64_t elems[3];
    for (unsigned i = 0; i < 3; i++) {
        struct sdc_run run;
        struct sdc_event_list events;
        describe(&run, "live-draw", "ddp/after-wrap-all");
        struct sdc_live_fault *f = add_fault(&run, SDC_POINT_PARAMETER, "bits", "mantissa");
        assert_ok(sdc_choice_set(&f->choice, "flips", "20", &err));
        f->seed = i / 2;
        kit_train(trainer, &run, SDC_OK, &events, &err);
        const struct sdc_event *e = kit_last(&events, SDC_EVENT_FAULT);
        assert_int_equal(e->changed, 20);
        assert_int_equal(e->n_changes, 8);
        elems[i] = e->changes[0].elem;
        sdc_events_release(&events);
        sdc_run_release(&run);
    }
    assert_int_equal(elems[0], elems[1]);
    assert_int_not_equal(elems[0], elems[2]);
}

/* An F16 bucket holds F16: bit 14 is its top exponent bit, and there is no bit 20. */
static void compressed_buckets_hold_halves(void **state) {
    (void)state;
    struct sdc_run run;
    struct sdc_event_list events;
    describe(&run, "live-half", "horovod/rank0-broadcast");
    run.averaging.compression = SDC_COMPRESSION_FP16;
    add_fault(&run, SDC_POINT_BUCKET, "at", "model/fc1.bias[7]@lsb:14");
    kit_train(trainer, &run, SDC_OK, &events, &err);
    const struct sdc_event *e = kit_last(&events, SDC_EVENT_FAULT);
    assert_int_equal(e->changed, 1);
    assert_int_equal(e->changes[0].before ^ e->changes[0].after, 1u << 14);
    sdc_events_release(&events);
    sdc_run_release(&run);
    describe(&run, "live-half", "horovod/rank0-broadcast");
    run.averaging.compression = SDC_COMPRESSION_FP16;
    add_fault(&run, SDC_POINT_BUCKET, "at", "model/fc1.bias[7]@lsb:20");
    kit_train(trainer, &run, SDC_USAGE, &events, &err);
    assert_message_has("faults[0]");
    sdc_events_release(&events);
    sdc_run_release(&run);
}

/* Before the first step there is no momentum, so nothing is altered, and the event says so. */
static void a_state_that_is_not_there_is_not_altered(void **state) {
    (void)state;
    struct sdc_run run;
    struct sdc_event_list events;
    describe(&run, "live-none", "ddp/after-wrap-all");
    add_fault(&run, SDC_POINT_OPTIMIZER, "flips", "3")->step = 1;
    kit_train(trainer, &run, SDC_OK, &events, &err);
    const struct sdc_event *e = kit_last(&events, SDC_EVENT_FAULT);
    assert_int_equal(e->changed, 0);
    assert_int_equal(e->n_changes, 0);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

static void wrong_faults_are_refused(void **state) {
    (void)state;
    struct sdc_run run;
    struct sdc_event_list events;
    describe(&run, "live-wrong", "ddp/after-wrap-all");
    add_fault(&run, SDC_POINT_REDUCED, "at", "model/fc9.bias[0]@sign");
    kit_train(trainer, &run, SDC_USAGE, &events, &err);
    assert_message_has("fc9.bias");
    sdc_events_release(&events);
    run.faults[0].step = 0;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("faults[0].step: 0 is not among the steps 1 to 5");
    run.faults[0].step = 1;
    run.faults[0].rank = RANKS;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("faults[0].rank: 3, of 3 ranks");
    run.faults[0].rank = 0;
    run.faults[0].choice.not_result = 1u << SDC_CLASS_NAN;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("not_result");
    sdc_run_release(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_travel_as_with_ddp),
        cmocka_unit_test(faults_travel_as_with_horovod),
        cmocka_unit_test(nan_reaches_all),
        cmocka_unit_test(draws_repeat),
        cmocka_unit_test(compressed_buckets_hold_halves),
        cmocka_unit_test(a_state_that_is_not_there_is_not_altered),
        cmocka_unit_test(wrong_faults_are_refused),
    };
    return cmocka_run_group_tests(tests, make_trainer, free_trainer);
}
