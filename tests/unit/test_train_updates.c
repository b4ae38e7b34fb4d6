/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers, schedules and augmentation in whole runs: a restart goes on with the same bits, the
 * learning rate stands in the checkpoint and is obeyed, a counter that ends PyTorch ends the run.
 * What they compute is compared with PyTorch in tests/conform/train.
 */
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sdc/ckpt.h"

static struct sdc_trainer *trainer;

static int set_up(void **state) {
    (void)state;
    struct sdc_error err;
    return sdc_trainer_new(&trainer, &err) != SDC_OK;
}

static int tear_down(void **state) {
    (void)state;
    sdc_trainer_free(trainer);
    return 0;
}

static const struct {
    const char *optimizer, *schedule, *recipe, *format;
    uint32_t ranks;
    enum sdc_schedule_unit unit;
    uint32_t warmup;
    bool augment;
} cases[] = {
    {"adam", "constant", "single", "hdf5", 1, SDC_UNIT_EPOCH, 0, false},
    {"adamw", "cosine", "single", "safetensors", 1, SDC_UNIT_STEP, 15, true},
    {"sgd", "step", "ddp/after-wrap-all", "hdf5", 2, SDC_UNIT_EPOCH, 0, true},
    {"adam", "multi-step", "ddp/before-wrap-rank0", "safetensors", 2, SDC_UNIT_STEP, 3, false},
    {"adamw", "plateau", "horovod/rank0-broadcast", "hdf5", 2, SDC_UNIT_EPOCH, 12, true},
    {"sgd", "plateau", "single", "hdf5", 1, SDC_UNIT_STEP, 0, true},
    {"sgd", "constant", "horovod/rank0-broadcast", "safetensors", 2, SDC_UNIT_EPOCH, 30, true},
};
#define N_CASES (sizeof cases / sizeof cases[0])

/* Epochs of 32 / (4 ranks) steps: 8 or 4; from 10 on in the middle of one. */
static void describe(struct sdc_run *run, size_t k, const char *name, uint64_t from, uint64_t to) {
    kit_run(run, name, cases[k].recipe, cases[k].ranks, from, to);
    run->data.limit = 32;
    run->batch = 4;
    kit_set(&run->optimizer.name, cases[k].optimizer);
    run->optimizer.lr = 0.01;
    run->optimizer.weight_decay = 1e-3;
    run->optimizer.nesterov = strcmp(cases[k].optimizer, "sgd") == 0;
    kit_set(&run->schedule, cases[k].schedule);
    run->schedule_options.unit = cases[k].unit;
    run->schedule_options.warmup_steps = cases[k].warmup;
    run->schedule_options.step_size = 1;
    run->schedule_options.gamma = 0.7;
    run->schedule_options.patience = 0;
    run->schedule_options.factor = 0.5;
    run->schedule_options.threshold = 0.5;
    run->schedule_options.milestones = sdc__calloc(2, sizeof(uint64_t));
    run->schedule_options.milestones[0] = 7;
    run->schedule_options.milestones[1] = 13;
    run->schedule_options.n_milestones = 2;
    if (cases[k].augment) {
        run->data.crop_padding = 4;
        run->data.flip = true;
    }
}

static const struct sdc_event *step_event(const struct sdc_event_list *l, uint64_t step) {
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].kind == SDC_EVENT_STEP && l->items[i].step == step)
            return &l->items[i];
    fail_msg("no step %llu", (unsigned long long)step);
    return NULL;
}

static void restart_equals_going_on(void **state) {
    (void)state;
    for (size_t k = 0; k < N_CASES; k++) {
        struct sdc_error err;
        struct sdc_run whole, rest;
        struct sdc_event_list a, b;
        describe(&whole, k, "whole", 0, 17);
        kit_save(&whole, "updates-{step}.ckpt", cases[k].format);
        whole.save.steps = sdc__calloc(1, sizeof(uint64_t));
        whole.save.steps[0] = 10;
        whole.save.n_steps = 1;
        kit_train(trainer, &whole, SDC_OK, &a, &err);
        for (unsigned again = 0; again < 2; again++) {
            describe(&rest, k, "rest", 10, 17);
            kit_load(&rest, "updates-10.ckpt");
            kit_train(trainer, &rest, SDC_OK, &b, &err);
            for (uint64_t step = 11; step <= 17; step++) {
                const struct sdc_event *x = step_event(&a, step), *y = step_event(&b, step);
                for (uint32_t r = 0; r < cases[k].ranks; r++)
                    if (!kit_same_digests(&x->digests[r], &y->digests[r]))
                        fail_msg("%s with %s, %s: rank %u differs at step %llu", cases[k].optimizer,
                                 cases[k].schedule, cases[k].recipe, r, (unsigned long long)step);
            }
            sdc_events_release(&b);
            sdc_run_release(&rest);
        }
        sdc_events_release(&a);
        sdc_run_release(&whole);
    }
}

/* The same, but that one thing is left out: it must show, or the test above shows nothing. */
static void everything_shows(void **state) {
    (void)state;
    struct sdc_error err;
    for (unsigned what = 0; what < 6; what++) {
        struct sdc_run with, without;
        struct sdc_event_list a, b;
        describe(&with, 1, "with", 0, 6);
        describe(&without, 1, "without", 0, 6);
        if (what == 0)
            kit_set(&without.optimizer.name, "adam");
        else if (what == 1)
            kit_set(&without.schedule, "constant");
        else if (what == 2)
            without.schedule_options.warmup_steps = 0;
        else if (what == 3)
            without.data.flip = false;
        else if (what == 4)
            without.data.crop_padding = 0;
        else
            without.data.shuffle = false;
        kit_train(trainer, &with, SDC_OK, &a, &err);
        kit_train(trainer, &without, SDC_OK, &b, &err);
        const struct sdc_event *x = step_event(&a, 6), *y = step_event(&b, 6);
        assert_true(memcmp(&x->digests[0].parameters, &y->digests[0].parameters,
                           sizeof x->digests[0].parameters) != 0);
        sdc_events_release(&a);
        sdc_events_release(&b);
        sdc_run_release(&with);
        sdc_run_release(&without);
    }
}

static double read_f64(const char *path, const char *name) {
    struct sdc_error err;
    struct sdc_ckpt *ckpt;
    size_t i;
    double x;
    assert_ok(sdc_ckpt_open(path, NULL, &ckpt, &err));
    assert_true(sdc_ckpt_find(ckpt, name, &i));
    assert_int_equal(sdc_ckpt_tensor(ckpt, i)->dtype, SDC_DTYPE_F64);
    assert_ok(sdc_ckpt_read(ckpt, i, 0, 1, &x, &err));
    sdc_ckpt_close(ckpt);
    return x;
}

/* By hand: 16 steps of one rank are two epochs, each takes 0.7 of the rate. */
static void rate_is_in_the_checkpoint(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    describe(&run, 2, "rate", 0, 16);
    run.ranks = 1;
    assert_ok(sdc_run_set_recipe(&run, "single", &err));
    kit_save(&run, "rate.st", "safetensors");
    kit_train(trainer, &run, SDC_OK, &events, &err);
    assert_true(read_f64("rate.st", "loop/lr") == 0.01 * 0.7 * 0.7);
    sdc_events_release(&events);
    sdc_run_release(&run);
    /* a run without a schedule has no place for it */
    describe(&run, 2, "rate", 16, 17);
    run.ranks = 1;
    assert_ok(sdc_run_set_recipe(&run, "single", &err));
    kit_set(&run.schedule, "constant");
    kit_load(&run, "rate.st");
    kit_train(trainer, &run, SDC_MISMATCH, &events, &err);
    assert_non_null(strstr(err.message, "tensor loop/lr: found F64 []"));
    sdc_events_release(&events);
    sdc_run_release(&run);
}

static void counter_that_ends_pytorch(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    describe(&run, 3, "counted", 0, 2);
    kit_save(&run, "counted.st", "safetensors");
    kit_train(trainer, &run, SDC_OK, &events, &err);
    sdc_events_release(&events);
    sdc_run_release(&run);
    kit_alter("counted.st", "uncounted.st", "optimizer/fc2.bias/step", 0, -1.0f);
    describe(&run, 3, "uncounted", 2, 4);
    kit_load(&run, "counted.st");
    kit_load_rank(&run, 1, "uncounted.st");
    kit_train(trainer, &run, SDC_INVALID, &events, &err);
    assert_non_null(strstr(err.message, "model/fc2.bias: step 0 of Adam"));
    assert_int_equal(kit_last(&events, SDC_EVENT_END)->reason, SDC_END_FAILED);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restart_equals_going_on),
        cmocka_unit_test(everything_shows),
        cmocka_unit_test(rate_is_in_the_checkpoint),
        cmocka_unit_test(counter_that_ends_pytorch),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
