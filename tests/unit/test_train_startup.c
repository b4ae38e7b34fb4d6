/* SPDX-License-Identifier: Apache-2.0
 *
 * Which altered value reaches which rank, for every recipe: exposure after the load and after
 * start-up, with the exact number of differing elements, and what becomes of it in the first steps.
 * The expectations are the rows of the reference on propagation that faults at load time can show.
 */
#include "train_kit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sdc/ckpt.h"

#define RANKS 3
#define FROM  2

static struct sdc_trainer *trainer;

static int set_up(void **state) {
    (void)state;
    struct sdc_error err;
    if (sdc_trainer_new(&trainer, &err) != SDC_OK)
        return 1;
    kit_checkpoint(trainer, "clean.st", "lenet5", FROM, 0.9, 0);
    kit_checkpoint(trainer, "decay.st", "lenet5", FROM, 0.9, 5e-4);
    kit_checkpoint(trainer, "plain.st", "lenet5", FROM, 0, 5e-4);
    kit_alter("clean.st", "model.st", "model/conv2.weight", 100, 3.5f);
    kit_alter("clean.st", "optimizer.st", "optimizer/fc2.weight/momentum", 200, -2.25f);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sdc_trainer_free(trainer);
    return 0;
}

/* Per altered part: what the ranks hold after start-up if rank `v` read the altered file. */
enum fate {
    KEPT,   /* only rank v has it */
    ERASED, /* nobody has it */
    SPREAD, /* all have it */
    UNREAD  /* rank v never read that part */
};

static const char *const fate_names[] = {"kept", "erased", "spread", "not read"};

static const struct {
    const char *recipe;
    enum fate model_rank0, model_other, optimizer_rank0, optimizer_other;
} expected[] = {
    {"ddp/after-wrap-all", KEPT, KEPT, KEPT, KEPT},
    {"ddp/before-wrap-all", SPREAD, ERASED, KEPT, KEPT},
    {"ddp/before-wrap-rank0", SPREAD, UNREAD, KEPT, KEPT},
    {"horovod/rank0-broadcast", SPREAD, UNREAD, SPREAD, UNREAD},
    {"horovod/example-order", SPREAD, UNREAD, SPREAD, UNREAD},
    {"horovod/all-broadcast", SPREAD, ERASED, SPREAD, ERASED},
    {"horovod/all-no-broadcast", KEPT, KEPT, KEPT, KEPT},
};

struct pair_of_runs {
    struct sdc_run clean, altered;
    struct sdc_event_list clean_events, altered_events;
};

static void run_pair(struct pair_of_runs *p, const char *recipe, const char *file, unsigned v) {
    struct sdc_error err;
    for (unsigned k = 0; k < 2; k++) {
        struct sdc_run *run = k ? &p->altered : &p->clean;
        kit_run(run, k ? "altered" : "clean", recipe, RANKS, FROM, FROM + 2);
        kit_set(&run->model, "lenet5");
        kit_load(run, "clean.st");
        if (k)
            kit_load_rank(run, v, file);
        kit_snapshot(run, FROM);
        kit_snapshot(run, FROM + 1);
        kit_train(trainer, run, SDC_OK, k ? &p->altered_events : &p->clean_events, &err);
    }
}

static void release_pair(struct pair_of_runs *p) {
    sdc_events_release(&p->clean_events);
    sdc_events_release(&p->altered_events);
    sdc_run_release(&p->clean);
    sdc_run_release(&p->altered);
}

static bool differs(const struct sdc_state_digest *a, const struct sdc_state_digest *b) {
    return memcmp(a, b, sizeof *a) != 0;
}

static void check_exposure(const char *recipe, unsigned part, unsigned v, enum fate fate) {
    struct pair_of_runs p;
    run_pair(&p, recipe, part ? "optimizer.st" : "model.st", v);
    const struct sdc_event *clean = &p.clean_events.items[0], *altered = &p.altered_events.items[0];
    for (unsigned r = 0; r < RANKS; r++) {
        const struct sdc_start_rank *c = &clean->start[r], *a = &altered->start[r];
        bool has = fate == SPREAD || (fate == KEPT && r == v);
        bool loaded = fate != UNREAD && r == v;
        uint64_t differing = kit_differing(kit_snapshot_path(&p.clean, FROM, r),
                                           kit_snapshot_path(&p.altered, FROM, r), part);
        if (differing != (has ? 1 : 0))
            fail_msg("%s, %s of rank %u altered, expected %s: rank %u differs in %llu elements",
                     recipe, part ? "optimizer" : "model", v, fate_names[fate], r,
                     (unsigned long long)differing);
        assert_int_equal(kit_differing(kit_snapshot_path(&p.clean, FROM, r),
                                       kit_snapshot_path(&p.altered, FROM, r), !part),
                         0);
        const struct sdc_rank_digests *cl = &c->loaded, *al = &a->loaded;
        assert_int_equal(part ? differs(&cl->optimizer, &al->optimizer)
                              : differs(&cl->parameters, &al->parameters),
                         loaded);
        assert_int_equal(differs(&cl->state, &al->state), loaded);
        assert_int_equal(differs(&c->started.state, &a->started.state), has);
        assert_int_equal(a->file != NULL, a->read_model || a->read_optimizer);
        if (r == v)
            assert_int_equal(part ? a->read_optimizer : a->read_model, fate != UNREAD);
    }
    release_pair(&p);
}

static void exposure_of_every_recipe(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        check_exposure(expected[i].recipe, 0, 0, expected[i].model_rank0);
        check_exposure(expected[i].recipe, 0, 2, expected[i].model_other);
        check_exposure(expected[i].recipe, 1, 0, expected[i].optimizer_rank0);
        check_exposure(expected[i].recipe, 1, 2, expected[i].optimizer_other);
    }
}

/* The altered file on all ranks: all are equally wrong, in every recipe. */
static void file_of_all_ranks(void **state) {
    (void)state;
    struct sdc_error err;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct sdc_run run;
        struct sdc_event_list events;
        kit_run(&run, "all", expected[i].recipe, RANKS, FROM, FROM + 1);
        kit_set(&run.model, "lenet5");
        kit_load(&run, "model.st");
        kit_snapshot(&run, FROM);
        kit_train(trainer, &run, SDC_OK, &events, &err);
        const struct sdc_event *step = kit_last(&events, SDC_EVENT_STEP);
        for (unsigned r = 0; r < RANKS; r++) {
            assert_int_equal(kit_differing("clean.st", kit_snapshot_path(&run, FROM, r), 0), 1);
            assert_true(kit_same_digests(&step->digests[0], &step->digests[r]));
        }
        sdc_events_release(&events);
        sdc_run_release(&run);
    }
}

/* A parameter altered on one rank after wrapping: its influence on the others comes through the
 * mean gradient, the rank itself stays apart in that one element, never repaired. */
static void divergence_stays_one_element(void **state) {
    (void)state;
    struct pair_of_runs p;
    run_pair(&p, "ddp/after-wrap-all", "model.st", 1);
    const char *v = kit_snapshot_path(&p.altered, FROM + 1, 1);
    const char *others = kit_snapshot_path(&p.altered, FROM + 1, 0);
    assert_int_equal(kit_differing(v, others, 0), 1);
    assert_int_equal(kit_differing(v, others, 1), 0); /* one gradient, one momentum */
    assert_int_equal(kit_differing(kit_snapshot_path(&p.altered, FROM + 1, 2), others, 0), 0);
    assert_true(kit_differing(kit_snapshot_path(&p.clean, FROM + 1, 0), others, 0) > 10000);
    release_pair(&p);
    /* momentum altered on one rank: after a step the parameter differs too, and nothing else */
    run_pair(&p, "horovod/all-no-broadcast", "optimizer.st", 1);
    v = kit_snapshot_path(&p.altered, FROM + 1, 1);
    others = kit_snapshot_path(&p.altered, FROM + 1, 0);
    assert_int_equal(kit_differing(v, others, 0), 1);
    assert_int_equal(kit_differing(v, others, 1), 1);
    assert_int_equal(kit_differing(kit_snapshot_path(&p.clean, FROM + 1, 0), others, 0), 0);
    release_pair(&p);
}

/* ---- the optimizer state that Horovod makes up ---- */

static size_t read_params(const char *path, float *out) {
    struct sdc_error err;
    struct sdc_ckpt *ckpt;
    size_t n = 0;
    assert_ok(sdc_ckpt_open(path, NULL, &ckpt, &err));
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        if (t->part != SDC_PART_MODEL)
            continue;
        assert_ok(sdc_ckpt_read(ckpt, i, 0, t->n_elems, out + n, &err));
        n += (size_t)t->n_elems;
    }
    sdc_ckpt_close(ckpt);
    return n;
}

/* Elements that a step with zero gradients changes: p = fma(wd p, -lr, p), torch.optim.SGD. */
static uint64_t moved_by_empty_step(const float *p, size_t n, float lr, float wd, float *after) {
    uint64_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        after[i] = fmaf(fmaf(p[i], wd, 0.0f), -lr, p[i]);
        moved += memcmp(&after[i], &p[i], sizeof p[i]) != 0;
    }
    return moved;
}

static void check_made_up_state(const char *recipe, const char *file, double momentum, double wd,
                                bool apart) {
    struct sdc_error err;
    struct sdc_run run;
    struct sdc_event_list events;
    kit_run(&run, "trap", recipe, RANKS, FROM, FROM + 3);
    kit_set(&run.model, "lenet5");
    run.optimizer.momentum = momentum;
    run.optimizer.weight_decay = wd;
    kit_load(&run, file);
    kit_snapshot(&run, FROM);
    kit_snapshot(&run, FROM + 3);
    kit_train(trainer, &run, SDC_OK, &events, &err);
    float *p = sdc__calloc(61706, sizeof *p), *want = sdc__calloc(61706, sizeof *p),
          *got = sdc__calloc(61706, sizeof *p);
    assert_int_equal(read_params(file, p), 61706);
    uint64_t moved = moved_by_empty_step(p, 61706, 0.05f, (float)wd, want);
    assert_true(wd == 0 ? moved == 0 : moved > 60000);
    assert_int_equal(kit_differing(file, kit_snapshot_path(&run, FROM, 0), 0), 0);
    for (unsigned r = 1; r < RANKS; r++) {
        const char *at_start = kit_snapshot_path(&run, FROM, r);
        assert_int_equal(kit_differing(file, at_start, 0), apart ? moved : 0);
        assert_int_equal(kit_differing(file, at_start, 1), 0);
        read_params(at_start, got);
        assert_memory_equal(got, apart ? want : p, 61706 * sizeof *p);
        /* and so it stays */
        uint64_t later = kit_differing(kit_snapshot_path(&run, FROM + 3, 0),
                                       kit_snapshot_path(&run, FROM + 3, r), 0);
        assert_true(apart ? later > 60000 : later == 0);
    }
    sdc__free(p);
    sdc__free(want);
    sdc__free(got);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

static void made_up_optimizer_state(void **state) {
    (void)state;
    check_made_up_state("horovod/example-order", "decay.st", 0.9, 5e-4, true);
    check_made_up_state("horovod/example-order", "plain.st", 0, 5e-4, true);
    check_made_up_state("horovod/example-order", "clean.st", 0.9, 0, false);
    check_made_up_state("horovod/rank0-broadcast", "decay.st", 0.9, 5e-4, false);
    check_made_up_state("horovod/all-broadcast", "decay.st", 0.9, 5e-4, false);
}

/* On a fresh start every rank makes it up, so they agree, one step of decay away from the start. */
static void made_up_on_a_fresh_start(void **state) {
    (void)state;
    struct sdc_error err;
    float *p = sdc__calloc(61706, sizeof *p), *want = sdc__calloc(61706, sizeof *p),
          *got = sdc__calloc(61706, sizeof *p);
    static const char *const recipes[] = {"ddp/after-wrap-all", "horovod/example-order",
                                          "horovod/rank0-broadcast"};
    for (unsigned k = 0; k < 3; k++) {
        struct sdc_run run;
        struct sdc_event_list events;
        kit_run(&run, "fresh", recipes[k], RANKS, 0, 1);
        kit_set(&run.model, "lenet5");
        run.optimizer.weight_decay = 5e-4;
        kit_snapshot(&run, 0);
        kit_train(trainer, &run, SDC_OK, &events, &err);
        assert_int_equal(read_params(kit_snapshot_path(&run, 0, 0), k == 0 ? p : got), 61706);
        if (k == 0)
            moved_by_empty_step(p, 61706, 0.05f, 5e-4f, want);
        else
            assert_memory_equal(got, want, 61706 * sizeof *p);
        const struct sdc_event *e = &events.items[0];
        for (unsigned r = 0; r < RANKS; r++) {
            assert_null(e->start[r].file);
            assert_false(e->start[r].read_model || e->start[r].read_optimizer);
            assert_true(kit_same_digests(&e->start[0].started, &e->start[r].started));
        }
        sdc_events_release(&events);
        sdc_run_release(&run);
    }
    sdc__free(p);
    sdc__free(want);
    sdc__free(got);
}

/* ---- the loop part ---- */

/* A copy of clean.st whose loop tensors are these. */
static void alter_loop(const char *to, struct sdc_loop_state loop) {
    struct sdc_error err;
    struct sdc_model m;
    struct sdc_train_state s;
    assert_ok(sdc_model_make("lenet5", &m, &err));
    assert_ok(sdc_train_state_init(&s, &m, SDC_KEEPS_MOMENTUM, 0, &err));
    assert_ok(sdc_train_load("clean.st", FROM, &s, NULL, &err));
    s.loop = loop;
    assert_ok(sdc_train_save(&s, to, "safetensors", &err));
    sdc_train_state_release(&s);
}

static void loop_goes_with_the_optimizer(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_loop_state loop = sdc_loop_state_fresh();
    loop.step = FROM;
    loop.cursor = 30; /* clean: 2 */
    alter_loop("cursor.st", loop);
    static const struct {
        const char *recipe;
        bool kept, spread;
    } cases[] = {{"ddp/after-wrap-all", true, false},
                 {"ddp/before-wrap-rank0", true, false},
                 {"horovod/all-broadcast", false, false},
                 {"horovod/all-no-broadcast", true, false}};
    for (unsigned k = 0; k < 4; k++) {
        struct sdc_run run;
        struct sdc_event_list events;
        kit_run(&run, "loop", cases[k].recipe, RANKS, FROM, FROM + 1);
        kit_set(&run.model, "lenet5");
        kit_load(&run, "clean.st");
        kit_load_rank(&run, 1, "cursor.st");
        kit_train(trainer, &run, SDC_OK, &events, &err);
        const struct sdc_start_rank *r = events.items[0].start;
        assert_true(differs(&r[0].loaded.loop, &r[1].loaded.loop));
        assert_int_equal(differs(&r[0].started.loop, &r[1].started.loop), cases[k].kept);
        assert_false(differs(&r[0].started.loop, &r[2].started.loop));
        sdc_events_release(&events);
        sdc_run_release(&run);
    }
    struct sdc_run run;
    struct sdc_event_list events;
    loop.cursor = FROM;
    loop.rng[0] = 77;
    alter_loop("rng.st", loop);
    kit_run(&run, "rng", "ddp/after-wrap-all", RANKS, FROM, FROM + 1);
    kit_set(&run.model, "lenet5");
    kit_load(&run, "rng.st");
    kit_train(trainer, &run, SDC_INVALID, &events, &err);
    assert_message_has("tensor loop/rng: found [77,0,0,0]");
    assert_int_equal(kit_last(&events, SDC_EVENT_END)->reason, SDC_END_REJECTED);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(exposure_of_every_recipe),
        cmocka_unit_test(file_of_all_ranks),
        cmocka_unit_test(divergence_stays_one_element),
        cmocka_unit_test(made_up_optimizer_state),
        cmocka_unit_test(made_up_on_a_fresh_start),
        cmocka_unit_test(loop_goes_with_the_optimizer),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
