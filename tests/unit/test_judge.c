/* SPDX-License-Identifier: Apache-2.0
 *
 * Every label from hand-made events, and the boundaries between labels.
 */
#include "test.h"

#include <math.h>
#include <string.h>

#include "camp/judge.h"

#define assert_near(a, b, eps)                                                                     \
    do {                                                                                           \
        double a_ = (a), b_ = (b);                                                                 \
        if (!(fabs(a_ - b_) <= (eps)))                                                             \
            fail_msg("%s is %.9g, expected %.9g", #a, a_, b_);                                     \
    } while (0)

/* A window of 20 steps from step 100 on 2 ranks; golden's loss is 2 - 0.01 step, rank 1's a bit
 * higher. Digests are made of a number for each part, so that equal numbers are equal states. */
enum { FROM = 100, TO = 120, STEPS = TO - FROM, RANKS = 2, MAX_EVENTS = STEPS + 3 };

struct run {
    struct sdc_event items[MAX_EVENTS];
    struct sdc_event_list list;
    struct sdc_start_rank start[RANKS];
    float loss[STEPS][RANKS];
    uint64_t zeros[RANKS];
    struct sdc_rank_digests digests[STEPS][RANKS];
    double eval_loss[RANKS];
    uint64_t correct[RANKS];
};

static struct sdc_state_digest number(unsigned n) {
    struct sdc_state_digest d = {{0}};
    memcpy(d.bytes, &n, sizeof n);
    return d;
}

/* A state of rank r that differs from the clean one by `parameters` and `optimizer`. */
static struct sdc_rank_digests state(unsigned step, unsigned r, unsigned parameters,
                                     unsigned optimizer) {
    struct sdc_rank_digests d = {.valid = true};
    d.parameters = number(10000 * step + parameters);
    d.buffers = number(7);
    d.optimizer = number(20000 * step + optimizer);
    d.loop = number(31 * step + r); /* differs between ranks in clean runs too */
    d.state = number(1000000 * (step + 1) + 100000 * r + 1000 * parameters + optimizer);
    return d;
}

static void make(struct run *run) {
    memset(run, 0, sizeof *run);
    size_t n = 0;
    for (unsigned r = 0; r < RANKS; r++) {
        run->start[r].loaded = state(0, r, 0, 0);
        run->start[r].started = state(0, r, 0, 0);
    }
    run->items[n++] = (struct sdc_event){
        .kind = SDC_EVENT_START, .step = FROM, .ranks = RANKS, .start = run->start};
    for (unsigned i = 0; i < STEPS; i++) {
        for (unsigned r = 0; r < RANKS; r++) {
            run->loss[i][r] = 2.0f - 0.01f * (float)i + 0.001f * (float)r;
            run->digests[i][r] = state(i + 1, r, 0, 0);
        }
        run->items[n++] = (struct sdc_event){.kind = SDC_EVENT_STEP,
                                             .step = FROM + i + 1,
                                             .ranks = RANKS,
                                             .loss = run->loss[i],
                                             .gradient_norm = 1,
                                             .nonfinite_gradients = run->zeros,
                                             .nonfinite_parameters = run->zeros,
                                             .digests = run->digests[i]};
    }
    run->eval_loss[0] = run->eval_loss[1] = 1.9;
    run->correct[0] = run->correct[1] = 800;
    run->items[n++] = (struct sdc_event){.kind = SDC_EVENT_EVAL,
                                         .step = TO,
                                         .ranks = RANKS,
                                         .samples = 1000,
                                         .eval_loss = run->eval_loss,
                                         .eval_correct = run->correct};
    run->items[n++] =
        (struct sdc_event){.kind = SDC_EVENT_END, .step = TO, .reason = SDC_END_COMPLETED};
    run->list = (struct sdc_event_list){.items = run->items, .n = n, .complete = true};
}

/* The run stops after `done` steps with this reason, without evaluation. */
static void stop_after(struct run *run, unsigned done, enum sdc_end_reason reason) {
    run->items[1 + done] =
        (struct sdc_event){.kind = SDC_EVENT_END, .step = FROM + done, .reason = reason};
    run->list.n = 2 + done;
}

struct fixture {
    struct run golden, e0, e1;
    struct sdc_clean clean;
    struct sdc_thresholds thresholds;
};

/* E0 deviates by 1e-5 from step 5 on; E1's accuracy is 10 samples of 1000 off. */
static int set_up(void **out) {
    static struct fixture f;
    struct sdc_error err;
    make(&f.golden);
    make(&f.e0);
    make(&f.e1);
    for (unsigned i = 4; i < STEPS; i++)
        f.e0.loss[i][1] = f.golden.loss[i][1] + 1e-5f;
    f.e1.correct[0] = 810;
    assert_ok(sdc__clean_init(&f.clean, &f.golden.list, FROM, TO, &err));
    assert_ok(sdc__clean_add_e0(&f.clean, &f.e0.list, 1e-6, &err));
    assert_ok(sdc__clean_add_e1(&f.clean, &f.e1.list, &err));
    sdc__thresholds_init(&f.thresholds);
    *out = &f;
    return 0;
}

static int tear_down(void **state_) {
    struct fixture *f = *state_;
    sdc__clean_release(&f->clean);
    return 0;
}

static struct sdc_judge_trial as_trial(const struct run *run) {
    return (struct sdc_judge_trial){.events = &run->list, .altered = 1, .snapshots = true};
}

static struct sdc_outcome judge(struct fixture *f, const struct sdc_judge_trial *t,
                                struct sdc_judge_detail *detail) {
    struct sdc_error err;
    struct sdc_outcome o;
    struct sdc_judge_detail d;
    assert_ok(sdc__judge(&f->clean, &f->thresholds, t, &o, &d, &err));
    if (detail)
        *detail = d;
    return o;
}

static struct sdc_outcome judge_run(struct fixture *f, const struct run *run) {
    struct sdc_judge_trial t = as_trial(run);
    return judge(f, &t, NULL);
}

/* ---- the clean side ---- */

static void test_limits(void **s) {
    struct fixture *f = *s;
    /* three times E0's largest deviation in the window, on every rank and from the first step on */
    double largest = (double)(f->e0.loss[4][1] - f->golden.loss[4][1]);
    assert_near(sdc__clean_limit(&f->clean, FROM + 1, 0), 3 * largest, 1e-6);
    assert_near(sdc__clean_limit(&f->clean, TO, 1), 3 * largest, 1e-6);
    assert_near(sdc__clean_distance_limit(&f->clean), 3e-6, 1e-12);
    assert_near(f->clean.spread.deviation_e1, 0.01, 1e-12);
    assert_near(sdc__clean_max_deviation(&f->clean, &f->e0.list), 1e-5, 1e-6);
    /* without a deviation: a few roundings of the loss */
    struct sdc_error err;
    struct sdc_clean clean;
    assert_ok(sdc__clean_init(&clean, &f->golden.list, FROM, TO, &err));
    assert_near(sdc__clean_limit(&clean, FROM + 1, 0), SDC_CLEAN_FLOOR * 2.0, 1e-12);
    assert_near(sdc__clean_distance_limit(&clean), SDC_CLEAN_FLOOR, 1e-12);
    sdc__clean_release(&clean);
}

/* In a long window the limit looks twice as far ahead and no farther. */
static void test_limit_grows_along_the_window(void **s) {
    (void)s;
    enum { LONG = 400 };
    struct sdc_error err;
    struct sdc_spread spread;
    double d[LONG] = {0};
    d[10] = 1;
    d[99] = 2;
    d[300] = 8;
    assert_ok(sdc__spread_init(&spread, LONG, &err));
    sdc__spread_add_e0(&spread, d, 0);
    static const struct {
        size_t at;
        double want;
    } cases[] = {{0, 1}, {40, 1}, {48, 1}, {49, 2}, {148, 2}, {149, 2}, {150, 8}, {399, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (sdc__spread_limit(&spread, cases[i].at) != 3 * cases[i].want)
            fail_msg("at %zu: %g", cases[i].at, sdc__spread_limit(&spread, cases[i].at));
    sdc__spread_release(&spread);
}

static void test_enough_replicas_need_no_headroom(void **s) {
    struct fixture *f = *s;
    struct sdc_error err;
    for (int i = 1; i < SDC_CLEAN_TOLERANCE_N; i++)
        assert_ok(sdc__clean_add_e0(&f->clean, &f->e0.list, 1e-6, &err));
    assert_near(sdc__clean_limit(&f->clean, TO, 0),
                (double)(f->e0.loss[4][1] - f->golden.loss[4][1]), 1e-6);
    assert_near(sdc__clean_distance_limit(&f->clean), SDC_CLEAN_FLOOR, 1e-12);
}

static void test_clean_must_be_whole(void **s) {
    (void)s;
    static struct run run;
    struct sdc_clean clean;
    struct sdc_error err;
    make(&run);
    run.loss[3][1] = NAN;
    assert_status(SDC_INVALID, sdc__clean_init(&clean, &run.list, FROM, TO, &err));
    assert_message_has("rank 1 at step 104");
    make(&run);
    stop_after(&run, 10, SDC_END_COMPLETED);
    assert_status(SDC_INVALID, sdc__clean_init(&clean, &run.list, FROM, TO, &err));
    assert_message_has("step 111");
    make(&run);
    run.items[run.list.n - 1].reason = SDC_END_FAILED;
    assert_status(SDC_INVALID, sdc__clean_init(&clean, &run.list, FROM, TO, &err));
}

static void test_identical_runs(void **s) {
    struct fixture *f = *s;
    static struct run run;
    char why[128];
    make(&run);
    run.items[3].elapsed = 17; /* times are no difference */
    assert_true(sdc__runs_identical(&f->golden.list, &run.list, why, sizeof why));
    run.loss[6][1] = nextafterf(run.loss[6][1], 3);
    assert_false(sdc__runs_identical(&f->golden.list, &run.list, why, sizeof why));
    assert_string_equal(why, "loss of rank 1 at step 107");
    make(&run);
    run.digests[6][0].optimizer = number(1);
    assert_false(sdc__runs_identical(&f->golden.list, &run.list, why, sizeof why));
    assert_string_equal(why, "optimizer of rank 0 at step 107");
    make(&run);
    run.start[1].started.parameters = number(1);
    assert_false(sdc__runs_identical(&f->golden.list, &run.list, why, sizeof why));
    assert_string_equal(why, "parameters of rank 1 after start-up");
    make(&run);
    run.correct[0]++;
    assert_false(sdc__runs_identical(&f->golden.list, &run.list, why, sizeof why));
    assert_string_equal(why, "evaluation of rank 0 at step 120");
    make(&run);
    run.list.n--;
    assert_false(sdc__runs_identical(&f->golden.list, &run.list, why, sizeof why));
    /* equal NaN losses are equal */
    static struct run other;
    make(&run);
    make(&other);
    run.loss[2][0] = other.loss[2][0] = NAN;
    assert_true(sdc__runs_identical(&run.list, &other.list, why, sizeof why));
}

static void test_replicas_at_start(void **s) {
    (void)s;
    static struct run run;
    char why[128];
    make(&run); /* loop digests differ between ranks, which is as it should be */
    assert_true(sdc__replicas_equal_at_start(&run.list, why, sizeof why));
    run.start[1].started.optimizer = number(99);
    assert_false(sdc__replicas_equal_at_start(&run.list, why, sizeof why));
    assert_non_null(strstr(why, "optimizer state of rank 1"));
}

/* ---- exposure ---- */

static void test_exposure(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    struct sdc_judge_detail d;
    make(&run);
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_NOT_READ);
    t.altered = 0;
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_NONE);
    t.altered = 3;
    run.start[1].loaded = state(0, 1, 5, 0);
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_ERASED);
    assert_int_equal(d.loaded_ranks, 1);
    assert_int_equal(d.kept_ranks, 0);
    run.start[1].started = state(0, 1, 5, 0);
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_KEPT);
    assert_int_equal(d.kept_ranks, 1);
    run.start[0].started = state(0, 0, 5, 0);
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_SPREAD);
    assert_int_equal(d.kept_ranks, 2);
    /* both altered, but not alike */
    run.start[0].started = state(0, 0, 6, 0);
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_KEPT);
    assert_int_equal(d.kept_ranks, 2);
    /* only optimizer state */
    run.start[0].started = state(0, 0, 0, 4);
    run.start[1].started = state(0, 1, 0, 4);
    assert_int_equal(judge(f, &t, &d).exposure, SDC_EXPOSURE_SPREAD);
}

/* ---- numeric ---- */

static void test_numeric_steps(void **s) {
    struct fixture *f = *s;
    static struct run run;
    static const struct {
        unsigned step; /* after the restart */
        enum sdc_numeric want;
    } cases[] = {{1, SDC_NUMERIC_NONFINITE_NOW},
                 {2, SDC_NUMERIC_NONFINITE_NOW},
                 {3, SDC_NUMERIC_NONFINITE_SOON},
                 {10, SDC_NUMERIC_NONFINITE_SOON},
                 {11, SDC_NUMERIC_NONFINITE_LATE}};
    f->thresholds.soon_steps = 10; /* so that the short window reaches "late" */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(&run);
        run.loss[cases[i].step - 1][1] = i % 2 ? NAN : INFINITY; /* on any rank */
        struct sdc_judge_trial t = as_trial(&run);
        struct sdc_judge_detail d;
        struct sdc_outcome o = judge(f, &t, &d);
        assert_int_equal(o.numeric, cases[i].want);
        assert_true(sdc_outcome_is_collapse(&o));
        assert_int_equal(d.collapse_step, cases[i].step);
    }
}

static void test_numeric_others(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    struct sdc_judge_detail d;
    make(&run);
    assert_int_equal(judge(f, &t, &d).numeric, SDC_NUMERIC_FINITE);
    assert_int_equal(d.collapse_step, -1);
    t.extreme = true;
    struct sdc_outcome o = judge(f, &t, &d);
    assert_int_equal(o.numeric, SDC_NUMERIC_EXTREME);
    assert_false(sdc_outcome_is_collapse(&o));
    t.extreme = false;
    /* the evaluation counts as a loss */
    run.eval_loss[0] = NAN;
    o = judge(f, &t, &d);
    assert_int_equal(o.numeric, SDC_NUMERIC_NONFINITE_SOON);
    assert_int_equal(d.collapse_step, STEPS);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_DEGRADE);
    make(&run);
    stop_after(&run, 0, SDC_END_REJECTED);
    o = judge(f, &t, &d);
    assert_int_equal(o.numeric, SDC_NUMERIC_REJECTED);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_NO_LOSS);
    assert_int_equal(o.quality, SDC_QUALITY_UNKNOWN);
    assert_int_equal(o.replicas, SDC_REPLICAS_UNKNOWN);
}

static void test_crash_and_hang(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    make(&run);
    run.list.n = 6; /* start and five steps */
    t.snapshots = false;
    t.end = SDC_TRIAL_CRASHED;
    struct sdc_outcome o = judge(f, &t, NULL);
    assert_int_equal(o.numeric, SDC_NUMERIC_CRASH);
    assert_int_equal(o.quality, SDC_QUALITY_UNKNOWN);
    assert_int_equal(o.replicas, SDC_REPLICAS_UNKNOWN);
    t.end = SDC_TRIAL_HUNG;
    assert_int_equal(judge(f, &t, NULL).numeric, SDC_NUMERIC_HANG);
    /* labels reached before stay */
    run.loss[2][0] = NAN;
    o = judge(f, &t, NULL);
    assert_int_equal(o.numeric, SDC_NUMERIC_NONFINITE_SOON);
    /* nothing was ever written */
    run.list.n = 0;
    t.end = SDC_TRIAL_CRASHED;
    o = judge(f, &t, NULL);
    assert_int_equal(o.numeric, SDC_NUMERIC_CRASH);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_NO_LOSS);
}

/* ---- trajectory ---- */

static void test_trajectory(void **s) {
    struct fixture *f = *s;
    static struct run run;
    make(&run);
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_IDENTICAL);
    /* one bit of a loss */
    run.loss[9][0] = nextafterf(run.loss[9][0], 3);
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_INSIDE);
    /* the same losses, another state */
    make(&run);
    run.digests[19][0] = state(20, 0, 1, 0);
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_INSIDE);
    struct sdc_judge_trial t = as_trial(&run);
    t.distance = 2.99e-6;
    assert_int_equal(judge(f, &t, NULL).trajectory, SDC_TRAJECTORY_INSIDE);
    t.distance = 3.01e-6;
    assert_int_equal(judge(f, &t, NULL).trajectory, SDC_TRAJECTORY_DRIFT);
    t.distance = INFINITY;
    assert_int_equal(judge(f, &t, NULL).trajectory, SDC_TRAJECTORY_DRIFT);
    t.distance = NAN;
    assert_int_equal(judge(f, &t, NULL).trajectory, SDC_TRAJECTORY_DRIFT);
}

static void test_spike(void **s) {
    struct fixture *f = *s;
    static struct run run;
    make(&run);
    float limit = (float)sdc__clean_limit(&f->clean, FROM + 8, 1);
    run.loss[7][1] += 0.9f * limit;
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_INSIDE);
    make(&run);
    run.loss[7][1] += 1.1f * limit;
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_SPIKE_RECOVER);
    make(&run);
    run.loss[7][1] -= 1.1f * limit; /* lower is outside too */
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_SPIKE_RECOVER);
    /* back for a tenth of the window (2 of 20 steps) is back; for one step is not */
    for (unsigned last = 17; last <= 19; last++) {
        make(&run);
        for (unsigned i = 7; i <= last; i++)
            run.loss[i][0] += 0.5f;
        assert_int_equal(judge_run(f, &run).trajectory,
                         last == 17 ? SDC_TRAJECTORY_SPIKE_RECOVER : SDC_TRAJECTORY_DEGRADE);
    }
    /* finite, then not */
    make(&run);
    for (unsigned i = 7; i < STEPS; i++)
        run.loss[i][0] = run.loss[i][1] = NAN;
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_DEGRADE);
    for (unsigned i = 0; i < STEPS; i++)
        run.loss[i][0] = run.loss[i][1] = NAN;
    assert_int_equal(judge_run(f, &run).trajectory, SDC_TRAJECTORY_NO_LOSS);
}

/* ---- quality ---- */

static void test_quality(void **s) {
    struct fixture *f = *s;
    static struct run run;
    static const struct {
        uint64_t correct;
        enum sdc_quality want;
    } cases[] = {
        {800, SDC_QUALITY_UNCHANGED}, {790, SDC_QUALITY_UNCHANGED}, /* E1 is 10 wide */
        {810, SDC_QUALITY_UNCHANGED}, {789, SDC_QUALITY_SLIGHT},    {811, SDC_QUALITY_BETTER},
        {750, SDC_QUALITY_SLIGHT},    {749, SDC_QUALITY_DEGRADED}, /* more than 5 points */
        {121, SDC_QUALITY_DEGRADED},  {120, SDC_QUALITY_FAILED},   /* 10 % and 2 points */
        {0, SDC_QUALITY_FAILED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(&run);
        run.correct[0] = cases[i].correct;
        run.correct[1] = 5; /* the saving rank is judged, the worst is kept beside it */
        struct sdc_judge_trial t = as_trial(&run);
        struct sdc_judge_detail d;
        struct sdc_outcome o = judge(f, &t, &d);
        if (o.quality != cases[i].want)
            fail_msg("%u right of 1000: %s", (unsigned)cases[i].correct,
                     sdc_label_text(SDC_AXIS_QUALITY, (int)o.quality));
        assert_near(d.accuracy, (double)cases[i].correct / 1000, 1e-12);
        assert_near(d.accuracy_golden, 0.8, 1e-12);
        assert_near(d.accuracy_worst, cases[i].correct < 5 ? 0 : 0.005, 1e-12);
    }
    /* without a spread only what does not need one is told */
    f->clean.spread.n_e1 = 0;
    make(&run);
    assert_int_equal(judge_run(f, &run).quality, SDC_QUALITY_UNCHANGED);
    run.correct[0] = 790;
    assert_int_equal(judge_run(f, &run).quality, SDC_QUALITY_UNKNOWN);
    run.correct[0] = 700;
    assert_int_equal(judge_run(f, &run).quality, SDC_QUALITY_DEGRADED);
    run.items[run.list.n - 2].samples = 0;
    assert_int_equal(judge_run(f, &run).quality, SDC_QUALITY_UNKNOWN);
}

/* ---- replicas ---- */

static void set_state(struct run *run, unsigned first, unsigned last, unsigned rank,
                      unsigned parameters) {
    for (unsigned i = first; i <= last; i++)
        run->digests[i][rank] = state(i + 1, rank, parameters, 0);
}

static void test_replicas(void **s) {
    struct fixture *f = *s;
    static struct run run;
    make(&run);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_EQUAL);
    set_state(&run, 0, 19, 1, 3);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_DIVERGED);
    set_state(&run, 0, 19, 0, 3);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_POISONED);
    make(&run);
    set_state(&run, 2, 5, 1, 3);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_HEALED);
    /* differed, and then equal to each other but not to golden */
    set_state(&run, 6, 19, 0, 4);
    set_state(&run, 6, 19, 1, 4);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_HEALED);
    /* wrong but equal for a while, then golden's again */
    make(&run);
    set_state(&run, 2, 5, 0, 3);
    set_state(&run, 2, 5, 1, 3);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_HEALED);
    /* a difference after start-up alone */
    make(&run);
    run.start[1].started = state(0, 1, 5, 0);
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_HEALED);
    /* the end was not looked at */
    make(&run);
    run.items[STEPS].digests = NULL;
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_UNKNOWN);
}

/* Horovod's buffers differ between ranks in clean runs; that is no divergence. */
static void test_parts_that_differ_in_golden(void **s) {
    struct fixture *f = *s;
    static struct run run;
    make(&run);
    for (unsigned i = 0; i < STEPS; i++) {
        f->golden.digests[i][1].buffers = number(8);
        run.digests[i][1].buffers = number(8);
    }
    assert_int_equal(judge_run(f, &run).replicas, SDC_REPLICAS_EQUAL);
}

/* ---- early ends and horizons ---- */

static void test_equal_to_golden_end(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    struct sdc_judge_detail d;
    make(&run);
    t.snapshots = false;
    stop_after(&run, 3, SDC_END_EQUAL_TO_GOLDEN);
    struct sdc_outcome o = judge(f, &t, &d);
    assert_int_equal(o.numeric, SDC_NUMERIC_FINITE);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_IDENTICAL);
    assert_int_equal(o.quality, SDC_QUALITY_UNCHANGED);
    assert_int_equal(o.replicas, SDC_REPLICAS_EQUAL);
    assert_near(d.accuracy, 0.8, 1e-12);
    assert_int_equal(d.end_step, FROM + 3);
    /* labels reached before stay */
    run.loss[0][1] = 5;
    run.digests[0][1] = state(1, 1, 9, 0);
    o = judge(f, &t, &d);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_SPIKE_RECOVER);
    assert_int_equal(o.replicas, SDC_REPLICAS_HEALED);
}

static void test_all_nonfinite_end(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    struct sdc_judge_detail d;
    make(&run);
    t.snapshots = false;
    set_state(&run, 0, 1, 0, 3);
    set_state(&run, 0, 1, 1, 3);
    stop_after(&run, 2, SDC_END_ALL_NONFINITE);
    struct sdc_outcome o = judge(f, &t, &d);
    assert_int_equal(o.numeric, SDC_NUMERIC_NONFINITE_SOON); /* the third loss is known */
    assert_int_equal(d.collapse_step, 3);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_DEGRADE);
    assert_int_equal(o.quality, SDC_QUALITY_FAILED);
    assert_int_equal(o.replicas, SDC_REPLICAS_POISONED);
    run.loss[0][0] = run.loss[0][1] = run.loss[1][0] = run.loss[1][1] = NAN;
    o = judge(f, &t, &d);
    assert_int_equal(o.numeric, SDC_NUMERIC_NONFINITE_NOW);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_NO_LOSS);
}

static void test_horizon(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    make(&run);
    run.loss[9][0] = NAN;
    t.cut = FROM + 9;
    struct sdc_outcome o = judge(f, &t, NULL);
    assert_int_equal(o.numeric, SDC_NUMERIC_FINITE);
    assert_int_equal(o.trajectory, SDC_TRAJECTORY_IDENTICAL);
    assert_int_equal(o.quality, SDC_QUALITY_UNKNOWN);
    assert_int_equal(o.replicas, SDC_REPLICAS_EQUAL);
    t.cut = FROM + 10;
    assert_int_equal(judge(f, &t, NULL).numeric, SDC_NUMERIC_NONFINITE_SOON);
}

static void test_contradictions(void **s) {
    struct fixture *f = *s;
    static struct run run;
    struct sdc_judge_trial t = as_trial(&run);
    struct sdc_outcome o;
    struct sdc_judge_detail d;
    struct sdc_error err;
    make(&run);
    run.items[3].step = TO + 1;
    assert_status(SDC_INVALID, sdc__judge(&f->clean, &f->thresholds, &t, &o, &d, &err));
    assert_message_has("step 121");
    make(&run);
    run.items[3].ranks = 1;
    assert_status(SDC_INVALID, sdc__judge(&f->clean, &f->thresholds, &t, &o, &d, &err));
    assert_message_has("1 ranks");
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_limits),
        T(test_limit_grows_along_the_window),
        T(test_enough_replicas_need_no_headroom),
        T(test_clean_must_be_whole),
        T(test_identical_runs),
        T(test_replicas_at_start),
        T(test_exposure),
        T(test_numeric_steps),
        T(test_numeric_others),
        T(test_crash_and_hang),
        T(test_trajectory),
        T(test_spike),
        T(test_quality),
        T(test_replicas),
        T(test_parts_that_differ_in_golden),
        T(test_equal_to_golden_end),
        T(test_all_nonfinite_end),
        T(test_horizon),
        T(test_contradictions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
