/* SPDX-License-Identifier: Apache-2.0
 *
 * Models beyond the first two: sizes, refusals, and what becomes of running statistics.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sdc/choice.h"
#include "train_kit.h"

static struct sdc_trainer *trainer;

static int set_up(void **state) {
    struct sdc_error err;
    (void)state;
    return sdc_trainer_new(&trainer, &err) == SDC_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    sdc_trainer_free(trainer);
    return 0;
}

/* Numbers of parameters that are known of these networks for CIFAR-10. */
static void sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t params, buffers;
    } known[] = {{"resnet20", 269722, 3 * 19},   /* He et al., table 6: 0.27 M */
                 {"resnet18", 11173962, 3 * 20}, /* torchvision's with a CIFAR stem */
                 {"resnet50", 23520842, 3 * 53}};
    struct sdc_error err;
    struct sdc_model *m = sdc__calloc(1, sizeof *m);
    assert_non_null(m);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_ok(
            sdc_model_make_for(known[i].name, &(struct sdc_model_input){3, 32, 32, 10}, m, &err));
        assert_int_equal(m->n_elems, known[i].params);
        assert_int_equal(m->n_buffers, known[i].buffers);
        assert_string_equal(m->buffers[2].name, "model/bn1.num_batches_tracked");
    }
    for (size_t i = 0; sdc_model_name_at(i); i++)
        assert_ok(sdc_model_make_for(sdc_model_name_at(i),
                                     &(struct sdc_model_input){3, 32, 32, 100}, m, &err));
    assert_status(SDC_MISMATCH,
                  sdc_model_make_for("vgg11", &(struct sdc_model_input){1, 28, 28, 10}, m, &err));
    assert_message_has("model vgg11 for images of 1x28x28");
    assert_status(SDC_UNSUPPORTED, sdc_model_make("resnet19", m, &err));
    assert_message_has("resnet18, resnet50");
    sdc__free(m);
}

#define AT 2 /* the step of the fault */

static void describe(struct sdc_run *run, const char *name, const char *recipe) {
    kit_run(run, name, recipe, 2, 0, AT + 1);
    kit_set(&run->model, "resnet20");
    kit_set(&run->kernels, "onednn");
    run->batch = 4;
    kit_snapshot(run, AT + 1);
}

static void strike(struct sdc_run *run, uint32_t rank) {
    struct sdc_error err;
    run->faults = sdc__calloc(1, sizeof *run->faults);
    assert_non_null(run->faults);
    run->n_faults = 1;
    run->faults[0] = (struct sdc_live_fault){.step = AT, .rank = rank, .point = SDC_POINT_BUFFER};
    sdc_choice_init(&run->faults[0].choice);
    assert_ok(
        sdc_choice_set(&run->faults[0].choice, "at", "model/bn1.running_mean[3]@lsb:29", &err));
}

static void train(struct sdc_run *run) {
    struct sdc_error err;
    struct sdc_event_list events;
    kit_train(trainer, run, SDC_OK, &events, &err);
    sdc_events_release(&events);
}

/* A running mean struck on one rank: with DDP rank 0's go to all before the next forward, so that
 * rank 1's is gone and rank 0's is everywhere; with Horovod it stays where it is. */
static void buffers_travel(void **state) {
    (void)state;
    static const struct {
        const char *recipe;
        uint32_t rank;
        uint64_t differing[2]; /* per rank */
    } cases[] = {{"ddp/after-wrap-all", 1, {0, 0}},
                 {"ddp/after-wrap-all", 0, {1, 1}},
                 {"horovod/rank0-broadcast", 1, {0, 1}},
                 {"horovod/rank0-broadcast", 0, {1, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sdc_run clean, hit;
        describe(&clean, "models-clean", cases[i].recipe);
        train(&clean);
        describe(&hit, "models-hit", cases[i].recipe);
        strike(&hit, cases[i].rank);
        train(&hit);
        for (unsigned r = 0; r < 2; r++) {
            char path[512];
            snprintf(path, sizeof path, "%s", kit_snapshot_path(&clean, AT + 1, r));
            assert_int_equal(kit_differing(path, kit_snapshot_path(&hit, AT + 1, r), 0),
                             cases[i].differing[r]);
        }
        sdc_run_release(&clean);
        sdc_run_release(&hit);
    }
}

/* Two ranks, so that a restart has no history: the bits of the run that went on, buffers too. */
static void restart_keeps_buffers(void **state) {
    (void)state;
    static const char *const recipes[] = {"ddp/before-wrap-all", "horovod/rank0-broadcast"};
    for (size_t i = 0; i < 2; i++) {
        struct sdc_run whole, rest;
        struct sdc_event_list a, b;
        struct sdc_error err;
        describe(&whole, "models-whole", recipes[i]);
        kit_save(&whole, "models.st", "safetensors");
        whole.save.steps = sdc__calloc(1, sizeof(uint64_t));
        assert_non_null(whole.save.steps);
        whole.save.steps[0] = 1;
        whole.save.n_steps = 1;
        kit_train(trainer, &whole, SDC_OK, &a, &err);
        describe(&rest, "models-rest", recipes[i]);
        rest.from_step = 1;
        rest.seed_init = 99; /* overwritten by what is loaded */
        kit_load(&rest, "models.st");
        kit_train(trainer, &rest, SDC_OK, &b, &err);
        const struct sdc_event *x = kit_last(&a, SDC_EVENT_STEP), *y = kit_last(&b, SDC_EVENT_STEP);
        assert_true(kit_same_digests(&x->digests[0], &y->digests[0]));
        char path[512];
        snprintf(path, sizeof path, "%s", kit_snapshot_path(&whole, AT + 1, 0));
        assert_int_equal(kit_differing(path, kit_snapshot_path(&rest, AT + 1, 0), 0), 0);
        sdc_events_release(&a);
        sdc_events_release(&b);
        sdc_run_release(&whole);
        sdc_run_release(&rest);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(buffers_travel),
        cmocka_unit_test(restart_keeps_buffers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
