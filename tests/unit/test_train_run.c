/* SPDX-License-Identifier: Apache-2.0
 *
 * Promises of whole runs: repetition, restart, equality and difference of strategies, early ends,
 * refusals, and that NaN is never lost.
 */
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "io/io.h"

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

/* Step events must be the same: losses, norms, counts and digests, bit for bit. */
static void assert_same_steps(const struct sdc_event_list *a, const struct sdc_event_list *b,
                              uint64_t after) {
    size_t j = 0, compared = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct sdc_event *x = &a->items[i];
        if (x->kind != SDC_EVENT_STEP || x->step <= after)
            continue;
        while (j < b->n && (b->items[j].kind != SDC_EVENT_STEP || b->items[j].step != x->step))
            j++;
        assert_true(j < b->n);
        const struct sdc_event *y = &b->items[j];
        assert_int_equal(x->ranks, y->ranks);
        assert_memory_equal(x->loss, y->loss, x->ranks * sizeof *x->loss);
        assert_memory_equal(&x->gradient_norm, &y->gradient_norm, sizeof x->gradient_norm);
        assert_true(x->digests && y->digests);
        for (uint32_t r = 0; r < x->ranks; r++)
            if (!kit_same_digests(&x->digests[r], &y->digests[r]))
                fail_msg("step %llu, rank %u: digests differ", (unsigned long long)x->step, r);
        compared++;
    }
    assert_true(compared > 0);
}

static const char *const recipes[] = {
    "ddp/after-wrap-all",       "ddp/before-wrap-all",   "ddp/before-wrap-rank0",
    "horovod/rank0-broadcast",  "horovod/example-order", "horovod/all-broadcast",
    "horovod/all-no-broadcast",
};

static void same_description_same_bits(void **state) {
    (void)state;
    struct sdc_error err;
    static const char *const kernels[] = {"ref", "onednn"}, *const models[] = {"mlp", "lenet5"};
    for (unsigned k = 0; k < 4; k++) {
        struct sdc_run run, between;
        struct sdc_event_list a, b, c, ignored;
        struct sdc_trainer *fresh;
        kit_run(&run, "twice", "ddp/after-wrap-all", 3, 0, 5);
        kit_set(&run.kernels, kernels[k % 2]);
        kit_set(&run.model, models[k / 2]);
        kit_train(trainer, &run, SDC_OK, &a, &err);
        kit_run(&between, "between", "horovod/rank0-broadcast", 2, 0, 3);
        between.batch = 5;
        kit_train(trainer, &between, SDC_OK, &ignored, &err);
        kit_train(trainer, &run, SDC_OK, &b, &err);
        assert_ok(sdc_trainer_new(&fresh, &err));
        kit_train(fresh, &run, SDC_OK, &c, &err);
        sdc_trainer_free(fresh);
        assert_same_steps(&a, &b, 0);
        assert_same_steps(&a, &c, 0);
        sdc_events_release(&a);
        sdc_events_release(&b);
        sdc_events_release(&c);
        sdc_events_release(&ignored);
        sdc_run_release(&run);
        sdc_run_release(&between);
    }
}

/* Epochs of 512 / (2 * 32) = 8 steps: the restart at 10 is inside the second, 20 in the third. */
static void restart_equals_going_on(void **state) {
    (void)state;
    struct sdc_error err;
    static const char *const formats[] = {"hdf5", "safetensors"};
    static const struct {
        const char *recipe;
        uint32_t ranks;
    } cases[] = {{"single", 1}, {"ddp/after-wrap-all", 2}, {"horovod/rank0-broadcast", 2}};
    for (unsigned k = 0; k < 6; k++) {
        struct sdc_run whole, rest;
        struct sdc_event_list a, b;
        kit_run(&whole, "whole", cases[k / 2].recipe, cases[k / 2].ranks, 0, 20);
        whole.batch = 32;
        whole.data.limit = 512;
        kit_set(&whole.kernels, "onednn");
        whole.optimizer.weight_decay = 1e-3;
        kit_save(&whole, "at-{step}.ckpt", formats[k % 2]);
        whole.save.steps = sdc__calloc(1, sizeof(uint64_t));
        whole.save.steps[0] = 10;
        whole.save.n_steps = 1;
        kit_train(trainer, &whole, SDC_OK, &a, &err);
        assert_string_equal(kit_last(&a, SDC_EVENT_CHECKPOINT)->paths[0], "at-10.ckpt");
        kit_run(&rest, "rest", cases[k / 2].recipe, cases[k / 2].ranks, 10, 20);
        rest.batch = 32;
        rest.data.limit = 512;
        kit_set(&rest.kernels, "onednn");
        rest.optimizer.weight_decay = 1e-3;
        rest.seed_init = 99; /* overwritten by what is loaded */
        kit_load(&rest, "at-10.ckpt");
        kit_train(trainer, &rest, SDC_OK, &b, &err);
        assert_same_steps(&a, &b, 10);
        sdc_events_release(&a);
        sdc_events_release(&b);
        sdc_run_release(&whole);
        sdc_run_release(&rest);
    }
}

/* All recipes from one checkpoint, without weight decay: at two ranks they compute the same bits,
 * at three and four the strategies differ in bits and agree closely. */
static void strategies_compared(void **state) {
    (void)state;
    struct sdc_error err;
    kit_checkpoint(trainer, "equal.st", "lenet5", 3, 0.9, 0);
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        struct sdc_event_list ddp, other;
        for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
            struct sdc_run run;
            struct sdc_event_list *to = i == 0 ? &ddp : &other;
            kit_run(&run, "compared", recipes[i], ranks, 3, 8);
            kit_set(&run.kernels, "onednn");
            kit_set(&run.model, "lenet5");
            kit_load(&run, "equal.st");
            kit_train(trainer, &run, SDC_OK, to, &err);
            if (i > 0 && (ranks == 2 || strncmp(recipes[i], "ddp", 3) == 0))
                assert_same_steps(&ddp, &other, 3);
            if (i > 0 && ranks > 2 && strncmp(recipes[i], "horovod", 7) == 0) {
                const struct sdc_event *x = kit_last(&ddp, SDC_EVENT_STEP);
                const struct sdc_event *y = kit_last(&other, SDC_EVENT_STEP);
                assert_false(kit_same_digests(&x->digests[0], &y->digests[0]));
                assert_true(fabsf(x->loss[0] - y->loss[0]) < 1e-4f * fabsf(x->loss[0]));
            }
            /* replicas agree, with one another and at every step */
            for (size_t e = 0; e < to->n; e++)
                for (uint32_t r = 1; to->items[e].kind == SDC_EVENT_STEP && r < ranks; r++)
                    assert_true(
                        kit_same_digests(&to->items[e].digests[0], &to->items[e].digests[r]));
            if (i > 0)
                sdc_events_release(&other);
            sdc_run_release(&run);
        }
        sdc_events_release(&ddp);
    }
}

/* The first step of a run sums in another layout than later ones (for three ranks and more). */
static void ddp_restart_has_no_history(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run whole, rest;
    struct sdc_event_list a, b;
    kit_run(&whole, "history", "ddp/after-wrap-all", 3, 0, 4);
    kit_save(&whole, "history-{step}.st", "safetensors");
    whole.save.steps = sdc__calloc(1, sizeof(uint64_t));
    whole.save.steps[0] = 2;
    whole.save.n_steps = 1;
    kit_train(trainer, &whole, SDC_OK, &a, &err);
    kit_run(&rest, "history-rest", "ddp/after-wrap-all", 3, 2, 4);
    kit_load(&rest, "history-2.st");
    kit_train(trainer, &rest, SDC_OK, &b, &err);
    const struct sdc_event *x = kit_last(&a, SDC_EVENT_STEP), *y = kit_last(&b, SDC_EVENT_STEP);
    assert_false(kit_same_digests(&x->digests[0], &y->digests[0]));
    assert_true(fabsf(x->loss[0] - y->loss[0]) < 1e-4f * fabsf(x->loss[0]));
    sdc_events_release(&a);
    sdc_events_release(&b);
    sdc_run_release(&whole);
    sdc_run_release(&rest);
}

static void nan_reaches_the_loss(void **state) {
    (void)state;
    struct sdc_error err;
    static const char *const kernels[] = {"ref", "onednn"}, *const models[] = {"mlp", "lenet5"};
    for (unsigned k = 0; k < 4; k++) {
        struct sdc_model m;
        assert_ok(sdc_model_make(models[k / 2], &m, &err));
        kit_checkpoint(trainer, "clean.st", m.name, 2, 0.9, 0);
        for (unsigned p = 0; p < m.n_params; p++) {
            struct sdc_run run;
            struct sdc_event_list events;
            kit_alter("clean.st", "nan.st", m.params[p].name, m.params[p].n / 2, NAN);
            kit_run(&run, "nan", "ddp/after-wrap-all", 2, 2, 4);
            kit_set(&run.model, m.name);
            kit_set(&run.kernels, kernels[k % 2]);
            kit_load(&run, "nan.st");
            kit_train(trainer, &run, SDC_OK, &events, &err);
            assert_int_equal(events.items[1].kind, SDC_EVENT_STEP);
            for (unsigned r = 0; r < 2; r++) {
                if (isfinite(events.items[1].loss[r]))
                    fail_msg("%s, %s: NaN in %s gave the loss %g", m.name, kernels[k % 2],
                             m.params[p].name, (double)events.items[1].loss[r]);
                assert_true(events.items[1].nonfinite_gradients[r] > 0);
            }
            sdc_events_release(&events);
            sdc_run_release(&run);
        }
    }
}

/* A NaN that one rank alone holds is in everyone's gradient and state after one step. */
static void nan_of_one_rank_reaches_all(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    kit_checkpoint(trainer, "clean.st", "mlp", 2, 0.9, 0);
    kit_alter("clean.st", "nan.st", "model/fc3.weight", 3, NAN);
    kit_run(&run, "nan-one", "ddp/after-wrap-all", 4, 2, 10);
    kit_load(&run, "clean.st");
    kit_load_rank(&run, 2, "nan.st");
    kit_train(trainer, &run, SDC_OK, &events, &err);
    const struct sdc_event *first = &events.items[1];
    for (unsigned r = 0; r < 4; r++) {
        assert_true(isfinite(first->loss[r]) == (r != 2));
        assert_true(first->nonfinite_parameters[r] > 100000);
    }
    assert_true(isnan(first->gradient_norm));
    sdc_events_release(&events);
    sdc_run_release(&run);
}

static void early_end_all_nonfinite(void **state) {
    (void)state;
    struct sdc_error err;
    kit_checkpoint(trainer, "clean.st", "lenet5", 2, 0.9, 0);
    kit_alter("clean.st", "nan.st", "model/conv1.weight", 0, NAN);
    for (unsigned ranks = 2; ranks <= 8; ranks += 6) { /* many ranks for the thread sanitizer */
        struct sdc_run run;
        struct sdc_event_list events;
        kit_run(&run, "collapse", "horovod/rank0-broadcast", ranks, 2, 30);
        kit_set(&run.model, "lenet5");
        kit_load(&run, "nan.st");
        kit_train(trainer, &run, SDC_OK, &events, &err);
        /* the second layer sums over all channels of the first: one NaN is in every gradient */
        const struct sdc_event *end = kit_last(&events, SDC_EVENT_END);
        const struct sdc_event *step = kit_last(&events, SDC_EVENT_STEP);
        assert_int_equal(end->reason, SDC_END_ALL_NONFINITE);
        assert_int_equal(end->step, 3);
        assert_int_equal(step->step, 3);
        for (unsigned r = 0; r < ranks; r++)
            assert_int_equal(step->nonfinite_parameters[r], 61706);
        sdc_events_release(&events);
        sdc_run_release(&run);
    }
}

static void add_golden(struct sdc_run *run, uint64_t step, const struct sdc_event *e) {
    run->golden = sdc__realloc(run->golden, run->n_golden + 1, sizeof *run->golden);
    run->golden[run->n_golden].step = step;
    run->golden[run->n_golden].state = sdc__calloc(run->ranks, sizeof(char *));
    for (uint32_t r = 0; r < run->ranks; r++) {
        char text[SDC_STATE_DIGEST_TEXT];
        const struct sdc_rank_digests *d =
            e->kind == SDC_EVENT_START ? &e->start[r].started : &e->digests[r];
        sdc_state_digest_text(&d->state, text);
        run->golden[run->n_golden].state[r] = sdc__strdup(text);
    }
    run->n_golden++;
}

static void early_end_equal_to_golden(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run golden, trial;
    struct sdc_event_list g, t;
    kit_checkpoint(trainer, "clean.st", "mlp", 2, 0.9, 0);
    kit_run(&golden, "golden", "ddp/after-wrap-all", 2, 2, 8);
    kit_load(&golden, "clean.st");
    kit_train(trainer, &golden, SDC_OK, &g, &err);
    assert_int_equal(kit_last(&g, SDC_EVENT_END)->reason, SDC_END_COMPLETED);
    for (unsigned k = 0; k < 3; k++) {
        kit_run(&trial, "trial", "ddp/after-wrap-all", 2, 2, 8);
        trial.digest_every = 0;
        kit_load(&trial, "clean.st");
        if (k == 1) /* rank 1 alone differs: certain of nothing */
            kit_alter("clean.st", "bit.st", "model/fc1.bias", 7, 0.123f);
        if (k == 1)
            kit_load_rank(&trial, 1, "bit.st");
        if (k == 2)
            add_golden(&trial, 2, &g.items[0]);
        add_golden(&trial, 4, &g.items[2]);
        add_golden(&trial, 5, &g.items[3]);
        kit_train(trainer, &trial, SDC_OK, &t, &err);
        const struct sdc_event *end = kit_last(&t, SDC_EVENT_END);
        assert_int_equal(end->reason, k == 1 ? SDC_END_COMPLETED : SDC_END_EQUAL_TO_GOLDEN);
        assert_int_equal(end->step, k == 0 ? 4 : k == 1 ? 8 : 2);
        for (size_t i = 0; i < t.n; i++) /* digests where golden has some, and at the end */
            if (t.items[i].kind == SDC_EVENT_STEP)
                assert_int_equal(t.items[i].digests != NULL, t.items[i].step == 4 ||
                                                                 t.items[i].step == 5 ||
                                                                 t.items[i].step == 8);
        sdc_events_release(&t);
        sdc_run_release(&trial);
    }
    sdc_events_release(&g);
    sdc_run_release(&golden);
}

static void evaluation_of_all_ranks(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    kit_run(&run, "eval", "ddp/after-wrap-all", 3, 0, 30);
    kit_set(&run.kernels, "onednn");
    run.batch = 32;
    run.eval_samples = 257; /* an odd rest */
    run.eval_every = 20;
    run.eval_who = SDC_WHO_ALL;
    kit_train(trainer, &run, SDC_OK, &events, &err);
    unsigned evals = 0;
    for (size_t i = 0; i < events.n; i++) {
        const struct sdc_event *e = &events.items[i];
        if (e->kind != SDC_EVENT_EVAL)
            continue;
        assert_int_equal(e->step, evals == 0 ? 20 : 30);
        assert_int_equal(e->ranks, 3);
        assert_int_equal(e->samples, 257);
        for (unsigned r = 1; r < 3; r++)
            assert_memory_equal(&e->eval_loss[0], &e->eval_loss[r], sizeof(double));
        assert_true(e->eval_correct[0] > 128); /* synthetic data is easy */
        evals++;
    }
    assert_int_equal(evals, 2);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

/* ---- refusals ---- */

static void refused(struct sdc_run *run, enum sdc_status status, enum sdc_end_reason reason,
                    const char *text) {
    struct sdc_error err;
    struct sdc_event_list events;
    kit_train(trainer, run, status, &events, &err);
    const struct sdc_event *end = kit_last(&events, SDC_EVENT_END);
    assert_int_equal(end->reason, reason);
    assert_message_has(text);
    assert_non_null(strstr(end->message, text));
    assert_int_equal(events.n, 1);
    sdc_events_release(&events);
    sdc_run_release(run);
}

static void checkpoints_refused(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    kit_checkpoint(trainer, "mlp.st", "mlp", 2, 0.9, 0);
    kit_checkpoint(trainer, "plain.st", "mlp", 2, 0, 0);
    kit_run(&run, "other-model", "ddp/after-wrap-all", 2, 2, 4);
    kit_set(&run.model, "lenet5");
    kit_load(&run, "mlp.st");
    refused(&run, SDC_MISMATCH, SDC_END_REJECTED,
            "mlp.st: tensor model/conv1.weight: not in the file, expected F32 [6,1,5,5]");
    kit_checkpoint(trainer, "lenet5.st", "lenet5", 2, 0.9, 0);
    kit_run(&run, "other-shape", "ddp/after-wrap-all", 2, 2, 4);
    kit_load(&run, "lenet5.st");
    refused(&run, SDC_MISMATCH, SDC_END_REJECTED,
            "tensor model/fc1.weight: found F32 [120,400], expected F32 [256,784]");
    kit_run(&run, "other-step", "ddp/after-wrap-all", 2, 3, 4);
    kit_load(&run, "mlp.st");
    refused(&run, SDC_MISMATCH, SDC_END_REJECTED, "tensor loop/step: found 2, expected 3");
    kit_run(&run, "no-momentum", "ddp/after-wrap-all", 2, 2, 4);
    kit_load(&run, "plain.st");
    refused(&run, SDC_MISMATCH, SDC_END_REJECTED,
            "tensor optimizer/fc1.weight/momentum: not in the file, expected F32 [256,784]");
    kit_run(&run, "momentum-unasked", "ddp/after-wrap-all", 2, 2, 4);
    run.optimizer.momentum = 0;
    kit_load(&run, "mlp.st");
    refused(&run, SDC_MISMATCH, SDC_END_REJECTED, "/momentum: found F32");
    kit_run(&run, "no-file", "ddp/after-wrap-all", 2, 2, 4);
    kit_load(&run, "nowhere.st");
    refused(&run, SDC_NOT_FOUND, SDC_END_FAILED, "nowhere.st");
    assert_ok(sdc__write_whole("garbage.st", "\211HDF\r\n\032\n....", 12, false, &err));
    kit_run(&run, "garbage", "ddp/after-wrap-all", 2, 2, 4);
    kit_load(&run, "mlp.st");
    kit_load_rank(&run, 1, "garbage.st");
    refused(&run, SDC_INVALID, SDC_END_REJECTED, "garbage.st");
    kit_run(&run, "digest", "ddp/after-wrap-all", 2, 2, 4);
    kit_load(&run, "mlp.st");
    kit_set(&run.load[1].digest, "00000000000000000000000000000000");
    refused(&run, SDC_MISMATCH, SDC_END_FAILED, "mlp.st: digest is ");
    kit_run(&run, "few-samples", "ddp/after-wrap-all", 2, 0, 4);
    run.data.limit = 10;
    refused(&run, SDC_INVALID, SDC_END_FAILED, "10 training samples are too few");
}

static void trainer_goes_on_after_a_failure(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    kit_run(&run, "unsaved", "ddp/after-wrap-all", 2, 0, 2);
    kit_save(&run, "no/such/folder/x.h5", "hdf5");
    kit_train(trainer, &run, SDC_NOT_FOUND, &events, &err);
    assert_message_has("no/such/folder");
    assert_int_equal(events.n, 1); /* before any training */
    assert_int_equal(events.items[0].reason, SDC_END_FAILED);
    sdc_events_release(&events);
    sdc_run_release(&run);
    /* in the middle of the run, on one rank alone */
    kit_run(&run, "unwritten", "ddp/after-wrap-all", 2, 0, 2);
    kit_snapshot(&run, 1);
    (void)mkdir("unwritten.out/snapshot-1-rank-1.safetensors", 0777); /* may be there already */
    kit_train(trainer, &run, SDC_EXISTS, &events, &err);
    assert_message_has("rank 1: ");
    assert_message_has("snapshot-1-rank-1");
    assert_int_equal(kit_last(&events, SDC_EVENT_END)->reason, SDC_END_FAILED);
    sdc_events_release(&events);
    sdc_run_release(&run);
    kit_run(&run, "after-failure", "ddp/after-wrap-all", 2, 0, 2);
    kit_train(trainer, &run, SDC_OK, &events, &err);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

static atomic_bool cancel;

static void cancel_at_three(void *arg, const struct sdc_event *e) {
    (void)arg;
    if (e->kind == SDC_EVENT_STEP && e->step == 3)
        atomic_store(&cancel, true);
}

static void cancelling(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_train_result result;
    struct sdc_train_hooks hooks = {.event = cancel_at_three, .cancel = &cancel};
    kit_run(&run, "cancel", "ddp/after-wrap-all", 2, 0, 1000);
    assert_status(SDC_CANCELLED, sdc_trainer_run(trainer, &run, &hooks, &result, &err));
    assert_int_equal(result.reason, SDC_END_FAILED);
    assert_true(result.step >= 3 && result.step < 10);
    sdc_run_release(&run);
}

static void many_ranks(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    kit_run(&run, "many", "horovod/rank0-broadcast", 64, 0, 2);
    kit_set(&run.kernels, "onednn");
    kit_set(&run.model, "lenet5");
    run.batch = 1;
    kit_train(trainer, &run, SDC_OK, &events, &err);
    const struct sdc_event *step = kit_last(&events, SDC_EVENT_STEP);
    for (unsigned r = 1; r < 64; r++)
        assert_true(kit_same_digests(&step->digests[0], &step->digests[r]));
    sdc_events_release(&events);
    sdc_run_release(&run);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_description_same_bits),
        cmocka_unit_test(restart_equals_going_on),
        cmocka_unit_test(strategies_compared),
        cmocka_unit_test(ddp_restart_has_no_history),
        cmocka_unit_test(nan_reaches_the_loss),
        cmocka_unit_test(nan_of_one_rank_reaches_all),
        cmocka_unit_test(early_end_all_nonfinite),
        cmocka_unit_test(early_end_equal_to_golden),
        cmocka_unit_test(evaluation_of_all_ranks),
        cmocka_unit_test(checkpoints_refused),
        cmocka_unit_test(trainer_goes_on_after_a_failure),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(many_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
