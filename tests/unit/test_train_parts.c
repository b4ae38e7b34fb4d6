/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer's parts by themselves: models, buckets, the loop's counters, averaging, threads.
 */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sdc/rng.h"
#include "train/bucket.h"
#include "train/model.h"
#include "train/rank.h"
#include "train/state.h"
#include "train/strategy.h"
#include "train/team.h"

/* ---- models ---- */

static void lenet5_parameters(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_model m;
    static const char *const names[] = {
        "model/conv1.weight", "model/conv1.bias", "model/conv2.weight", "model/conv2.bias",
        "model/fc1.weight",   "model/fc1.bias",   "model/fc2.weight",   "model/fc2.bias",
        "model/fc3.weight",   "model/fc3.bias"};
    static const size_t sizes[] = {150, 6, 2400, 16, 48000, 120, 10080, 84, 840, 10};
    /* torch 1.13.1, _get_ddp_logging_data of a LeNet-5: fc3.bias, fc3.weight, ..., fc1.bias,
     * fc1.weight, conv2.weight, conv2.bias, conv1.weight, conv1.bias */
    static const unsigned ready[] = {9, 8, 7, 6, 5, 4, 2, 3, 0, 1};
    assert_ok(sdc_model_make("lenet5", &m, &err));
    assert_int_equal(m.n_params, 10);
    assert_int_equal(m.n_elems, 61706);
    for (unsigned i = 0; i < 10; i++) {
        assert_string_equal(m.params[i].name, names[i]);
        assert_int_equal(m.params[i].n, sizes[i]);
        assert_int_equal(m.params[i].off % 16, 0);
        assert_int_equal(m.ready[i], ready[i]);
    }
    assert_int_equal(m.params[2].rank, 4);
    assert_int_equal(m.params[2].shape[1], 6);
    assert_int_equal(m.params[4].shape[1], 400);
    assert_ok(sdc_model_make("mlp", &m, &err));
    assert_int_equal(m.n_elems, 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
    assert_status(SDC_UNSUPPORTED, sdc_model_make("lenet6", &m, &err));
    assert_message_has("'lenet6'");
}

static void initial_weights(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_model m;
    assert_ok(sdc_model_make("lenet5", &m, &err));
    float *a = sdc__calloc(m.flat, sizeof *a), *b = sdc__calloc(m.flat, sizeof *b);
    sdc_model_init_weights(&m, 7, a);
    sdc_model_init_weights(&m, 7, b);
    assert_memory_equal(a, b, m.flat * sizeof *a);
    sdc_model_init_weights(&m, 8, b);
    assert_memory_not_equal(a, b, m.flat * sizeof *a);
    static const unsigned fan_in[] = {25, 25, 150, 150, 400, 400, 120, 120, 84, 84};
    for (unsigned i = 0; i < m.n_params; i++) {
        double bound = 1 / sqrt(fan_in[i]), sum = 0, squares = 0, most = 0;
        size_t n = m.params[i].n;
        for (size_t k = 0; k < n; k++) {
            double x = (double)a[m.params[i].off + k];
            sum += x;
            squares += x * x;
            most = fabs(x) > most ? fabs(x) : most;
        }
        assert_true(most <= bound);
        if (n < 100)
            continue;
        /* uniform: mean 0, variance bound^2 / 3; both within five standard errors */
        assert_true(most > 0.9 * bound);
        assert_true(fabs(sum / (double)n) < 5 * bound / sqrt(3.0 * (double)n));
        assert_true(fabs(squares / (double)n / (bound * bound) - 1.0 / 3) <
                    5 * sqrt(4.0 / 45 / (double)n));
    }
    for (unsigned i = 0; i + 1 < m.n_params; i++) /* the gaps */
        for (size_t k = m.params[i].off + m.params[i].n; k < m.params[i + 1].off; k++)
            assert_true(a[k] == 0);
    sdc__free(a);
    sdc__free(b);
}

/* ---- buckets ---- */

static void assert_groups(const struct sdc_buckets *b, unsigned n, const unsigned *ends) {
    assert_int_equal(b->n, n);
    assert_int_equal(b->start[0], 0);
    for (unsigned g = 0; g < n; g++)
        assert_int_equal(b->start[g + 1], ends[g]);
}

/* The cases and their answers are those of torch 1.13.1's
 * torch.distributed._compute_bucket_assignment_by_size on tensors of these many bytes. */
static void ddp_buckets(void **state) {
    (void)state;
    struct sdc_buckets b;
    static const unsigned order[] = {0, 1, 2, 3, 4, 5};
    static const size_t bytes[] = {400, 400, 400, 2000, 100, 100};
    sdc_buckets_ddp(bytes, order, 6, 800, 1600, &b);
    assert_groups(&b, 3, (unsigned[]){2, 4, 6});
    sdc_buckets_ddp(bytes, order, 6, 1, 1, &b);
    assert_groups(&b, 6, (unsigned[]){1, 2, 3, 4, 5, 6});
    sdc_buckets_ddp(bytes, order, 6, SIZE_MAX, SIZE_MAX, &b);
    assert_groups(&b, 1, (unsigned[]){6});
    sdc_buckets_ddp(bytes, order, 6, 1201, 100, &b);
    assert_groups(&b, 3, (unsigned[]){4, 5, 6});
    static const unsigned turned[] = {5, 3, 4, 0, 1, 2};
    sdc_buckets_ddp(bytes, turned, 6, 100, 2000, &b);
    assert_groups(&b, 3, (unsigned[]){1, 2, 6});
    assert_int_equal(b.order[1], 3);
}

static void horovod_fusion(void **state) {
    (void)state;
    struct sdc_buckets b;
    static const unsigned order[] = {0, 1, 2, 3, 4, 5};
    static const size_t bytes[] = {400, 400, 400, 2000, 100, 100};
    sdc_buckets_horovod(bytes, order, 6, 800, &b); /* exactly full is allowed */
    assert_groups(&b, 4, (unsigned[]){2, 3, 4, 6});
    sdc_buckets_horovod(bytes, order, 6, 799, &b);
    assert_groups(&b, 5, (unsigned[]){1, 2, 3, 4, 6});
    sdc_buckets_horovod(bytes, order, 6, 0, &b); /* switched off: one tensor a message */
    assert_groups(&b, 6, (unsigned[]){1, 2, 3, 4, 5, 6});
    sdc_buckets_horovod(bytes, order, 6, SIZE_MAX, &b);
    assert_groups(&b, 1, (unsigned[]){6});
    sdc_buckets_horovod(bytes, order, 0, 800, &b);
    assert_groups(&b, 0, NULL);
}

/* ---- the loop ---- */

static void loop_counters(void **state) {
    (void)state;
    struct sdc_loop_state l = sdc_loop_state_fresh();
    uint64_t step;
    for (uint64_t i = 0; i < 25; i++) {
        sdc_loop_state_next(&l, 10, &step);
        assert_int_equal(step, i);
        assert_int_equal(l.step, i + 1);
        assert_int_equal(l.cursor, i % 10 + 1);
        assert_int_equal(l.epoch, i / 10);
        assert_int_equal(l.rng[2], i / 10);
    }
    l.rng[2] = 7; /* another permutation until the epoch ends, then the counter rules again */
    sdc_loop_state_next(&l, 10, &step);
    assert_int_equal(step, 75);
    l.cursor = INT64_MAX;
    sdc_loop_state_next(&l, 10, &step);
    assert_int_equal(step, 30);
    l.cursor = INT64_MIN;
    sdc_loop_state_next(&l, 10, &step);
    assert_int_equal(step, 30);
    assert_int_equal(l.cursor, 1);
    l.epoch = INT64_MAX;
    l.cursor = 10;
    sdc_loop_state_next(&l, 10, &step);
    assert_true(l.epoch == INT64_MIN && l.rng[2] == 0);
}

/* ---- averaging ---- */

#define N 3

struct averaging {
    const struct sdc_strategy_ops *ops;
    struct sdc_comm *ends[N];
    struct sdc_reduction r[N];
    float *grads[N];
    uint64_t step;
    enum sdc_status st[N];
};

static void average_rank(unsigned rank, void *arg) {
    struct averaging *a = arg;
    struct sdc_error err;
    struct sdc_step_number step = {a->step, a->step + 1};
    a->st[rank] = a->ops->average(&a->r[rank], &step, a->grads[rank], &err);
}

/* The place of an element in a message of all parameters in this order. */
static size_t place(const struct sdc_model *m, const unsigned *order, unsigned param, size_t k) {
    size_t at = 0;
    for (unsigned i = 0; order[i] != param; i++)
        at += m->params[order[i]].n;
    return at + k;
}

/* Gloo, 61706 elements on 3 ranks: 6 segments of 10285 elements, so chunks of 20570. */
static float ddp_mean(const struct sdc_model *m, float *const g[N], const unsigned *order,
                      unsigned param, size_t k) {
    const float third = (float)(1.0 / 3);
    size_t c = place(m, order, param, k) / 20570, at = m->params[param].off + k;
    float x[N];
    for (unsigned r = 0; r < N; r++)
        x[r] = g[r][at] * third;
    return x[c] + (x[(c + 1) % 3] + x[(c + 2) % 3]);
}

/* Open MPI, 246824 bytes on 3 ranks: segmented ring over blocks of 20569, 20569, 20568. */
static float horovod_mean(const struct sdc_model *m, float *const g[N], const unsigned *order,
                          unsigned param, size_t k) {
    size_t b = place(m, order, param, k) / 20569, at = m->params[param].off + k;
    return ((g[b][at] + g[(b + 1) % 3][at]) + g[(b + 2) % 3][at]) * (float)(1.0 / 3);
}

static void averaging_by_hand(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_model m;
    struct sdc_team *team;
    struct averaging a;
    float *before[N];
    atomic_uint beat = 0;
    static const struct sdc_averaging options = SDC_AVERAGING_DEFAULT;
    static const unsigned registration[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_ok(sdc_model_make("lenet5", &m, &err));
    assert_ok(sdc_team_new(N, &team, &err));
    assert_ok(sdc_comm_group_new(sdc_comm_find("threads"), N, m.n_elems * sizeof(float), 0, a.ends,
                                 &err));
    for (unsigned r = 0; r < N; r++) {
        a.grads[r] = sdc__calloc(m.flat, sizeof(float));
        before[r] = sdc__calloc(m.flat, sizeof(float));
        a.r[r] = (struct sdc_reduction){.model = &m, .comm = a.ends[r], .options = &options};
        a.r[r].buffer = sdc__calloc(m.n_elems, sizeof(float));
    }
    for (unsigned k = 0; k < 4; k++) { /* ddp's first and second step, horovod's */
        bool ddp = k < 2;
        a.ops = sdc_strategy_find(ddp ? SDC_STRATEGY_DDP : SDC_STRATEGY_HOROVOD);
        a.step = k % 2;
        for (unsigned r = 0; r < N; r++) {
            struct sdc_rng rng;
            sdc_rng_init(&rng, 5, SDC_RNG_TEST, k, r);
            for (size_t i = 0; i < m.flat; i++)
                a.grads[r][i] = (float)(sdc_rng_unit(&rng) - 0.5);
            memcpy(before[r], a.grads[r], m.flat * sizeof(float));
            a.ops->plan(&a.r[r], N);
        }
        assert_ok(sdc_team_run(team, average_rank, &a, &beat, 10000, &err));
        const unsigned *order = ddp && a.step == 0 ? registration : m.ready;
        for (unsigned p = 0; p < m.n_params; p++) {
            for (size_t i = 0; i < m.params[p].n; i++) {
                float want =
                    ddp ? ddp_mean(&m, before, order, p, i) : horovod_mean(&m, before, order, p, i);
                for (unsigned r = 0; r < N; r++)
                    if (memcmp(&a.grads[r][m.params[p].off + i], &want, sizeof want) != 0)
                        fail_msg("case %u, rank %u, %s element %zu", k, r, m.params[p].name, i);
            }
        }
    }
    for (unsigned r = 0; r < N; r++) {
        sdc__free(a.grads[r]);
        sdc__free(before[r]);
        sdc__free(a.r[r].buffer);
    }
    sdc_comm_group_free(a.ends, N);
    sdc_team_free(team);
}

/* Cycles of Horovod's clock: the groups cut the ready order, every draw is the same again for the
 * same seed and step, and cuts are neither always nor never there. */
static void timed_fusion_cuts_the_ready_order(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_model m;
    struct sdc_comm *ends[1];
    struct sdc_averaging options = SDC_AVERAGING_DEFAULT;
    const struct sdc_strategy_ops *ops = sdc_strategy_find(SDC_STRATEGY_HOROVOD);
    assert_ok(sdc_model_make("lenet5", &m, &err));
    assert_ok(
        sdc_comm_group_new(sdc_comm_find("self"), 1, m.n_elems * sizeof(float), 0, ends, &err));
    options.fusion = SDC_FUSION_TIMED;
    struct sdc_reduction r = {.model = &m, .comm = ends[0], .options = &options};
    float *grads = sdc__calloc(m.flat, sizeof *grads);
    r.buffer = sdc__calloc(m.n_elems, sizeof(float));
    unsigned groups = 0, differing = 0;
    struct sdc_buckets last = {0};
    for (uint64_t step = 1; step <= 1000; step++) {
        struct sdc_step_number number = {step, step};
        assert_ok(ops->average(&r, &number, grads, &err));
        assert_memory_equal(r.later.order, m.ready, m.n_params * sizeof m.ready[0]);
        assert_int_equal(r.later.start[0], 0);
        assert_int_equal(r.later.start[r.later.n], m.n_params);
        for (unsigned g = 0; g < r.later.n; g++)
            assert_true(r.later.start[g] < r.later.start[g + 1]);
        groups += r.later.n;
        differing += memcmp(&last, &r.later, sizeof last) != 0;
        last = r.later;
        assert_ok(ops->average(&r, &number, grads, &err));
        assert_memory_equal(&last, &r.later, sizeof last);
    }
    /* ten tensors: 1 + 9 / 2 groups on average, with a deviation of 1.5 / sqrt(1000) */
    assert_true(groups > 5500 - 4 * 48 && groups < 5500 + 4 * 48);
    assert_true(differing > 900);
    sdc__free(grads);
    sdc__free(r.buffer);
    sdc_comm_group_free(ends, 1);
}

/* ---- a step ---- */

static void steps_allocate_nothing(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_model m;
    struct sdc_dataset *set;
    struct sdc_comm *ends[1];
    struct sdc_step_result result;
    enum sdc_status local;
    static const char *const kernels[] = {"ref", "onednn"};
    const struct sdc_strategy_ops *ops = sdc_strategy_find(SDC_STRATEGY_DDP);
    const struct sdc_run_schedule no_schedule = {0};
    const struct sdc_optimizer sgd = {.keeps = SDC_KEEPS_MOMENTUM,
                                      .sgd = {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4},
                                      .schedule = {.base_lr = 0.05, .options = &no_schedule}};
    const struct sdc_averaging options = SDC_AVERAGING_DEFAULT;
    assert_ok(sdc_model_make("lenet5", &m, &err));
    assert_ok(sdc_dataset_open(&(struct sdc_data_source){.name = "synthetic"}, true, &set, &err));
    assert_ok(
        sdc_comm_group_new(sdc_comm_find("self"), 1, m.n_elems * sizeof(float), 0, ends, &err));
    for (unsigned k = 0; k < 2; k++) {
        struct sdc_rank r = {0};
        struct sdc_rank_shape shape = {&m, sdc_nn_find(kernels[k]), 8, SDC_KEEPS_MOMENTUM, 0};
        assert_ok(sdc_rank_prepare(&r, &shape, &err));
        assert_ok(sdc_rank_order(
            &r, &(struct sdc_sharding){.n = set->n, .ranks = 1, .batch = 8, .seed = 1},
            &(struct sdc_augment){0}, &err));
        r.reduction.model = &m;
        r.reduction.comm = ends[0];
        r.reduction.options = &options;
        ops->plan(&r.reduction, 1);
        sdc_train_state_fresh(&r.state, 1, &sgd.schedule);
        struct sdc_step_number step = {0, 1};
        assert_ok(sdc_rank_step(&r, set, ops, &sgd, &step, &result, &local, &err));
        uint64_t before = sdc__alloc_count();
        for (step.of_run = 1; step.of_run < 6; step.of_run++)
            assert_ok(sdc_rank_step(&r, set, ops, &sgd, &step, &result, &local, &err));
        assert_int_equal(sdc__alloc_count(), before);
        assert_int_equal(local, SDC_OK);
        sdc_rank_release(&r);
    }
    sdc_comm_group_free(ends, 1);
    sdc_dataset_free(set);
}

/* ---- threads ---- */

static void count_rank(unsigned rank, void *arg) {
    atomic_uint *counts = arg;
    atomic_fetch_add(&counts[rank], 1);
}

static atomic_bool release_stuck;

static void stuck_rank(unsigned rank, void *arg) {
    (void)arg;
    while (rank == 1 && !atomic_load(&release_stuck))
        sdc__sleep_ms(5);
}

static void team_survives_a_stuck_thread(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_team *team;
    atomic_uint counts[4] = {0}, beat = 0;
    assert_ok(sdc_team_new(4, &team, &err));
    for (unsigned i = 0; i < 50; i++)
        assert_ok(sdc_team_run(team, count_rank, counts, &beat, 10000, &err));
    for (unsigned r = 0; r < 4; r++)
        assert_int_equal(atomic_load(&counts[r]), 50);
    assert_false(sdc_team_lost(team));
    assert_status(SDC_TIMEOUT, sdc_team_run(team, stuck_rank, NULL, &beat, 600, &err));
    assert_message_has("1 of 4 rank threads");
    assert_true(sdc_team_lost(team));
    assert_status(SDC_INTERNAL, sdc_team_run(team, count_rank, counts, &beat, 600, &err));
    sdc_team_free(team); /* leaves it alone */
    atomic_store(&release_stuck, true);
}

/* Whatever was begun ahead, a batch is what the sampler and the data set say. */
static void feed_gives_the_batch_asked_for(void **state) {
    (void)state;
    enum { BATCH = 8, PIXELS = 28 * 28 };
    struct sdc_error err;
    struct sdc_dataset *sets[2];
    struct sdc_feed *feed;
    struct sdc_sampler *sampler;
    const struct sdc_sharding how = {.n = 100, .ranks = 2, .batch = BATCH, .seed = 3}; /* 6 steps */
    const struct sdc_augment changes[] = {{0}, {.crop_padding = 4, .flip = true, .seed = 3}};
    static const struct {
        unsigned set, augment;
        uint64_t step, next;
    } cases[] = {{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 0, 2, 3},    {1, 0, 3, 4},   {1, 1, 4, 5},
                 {1, 1, 5, 6}, {1, 1, 6, 7}, {1, 1, 70, 71},  {1, 0, 71, 12}, {1, 0, 12, 13},
                 {1, 0, 5, 6}, {0, 0, 6, 7}, {0, 1, 700, 701}};
    static float got[BATCH * PIXELS], want[BATCH * PIXELS];
    int32_t got_labels[BATCH], want_labels[BATCH];
    uint32_t indices[BATCH];
    for (unsigned k = 0; k < 2; k++)
        assert_ok(sdc_dataset_open(
            &(struct sdc_data_source){.name = "synthetic", .limit = 100, .seed = k}, true, &sets[k],
            &err));
    assert_ok(sdc_feed_new(&how, 1, &feed, &err));
    assert_ok(sdc_sampler_new(&how, &sampler, &err));
    for (size_t i = 0; i < 4 * sizeof cases / sizeof cases[0]; i++) {
        const size_t c = i % (sizeof cases / sizeof cases[0]);
        const struct sdc_dataset *set = sets[cases[c].set];
        const struct sdc_augment *augment = &changes[cases[c].augment];
        assert_ok(sdc_feed_batch(feed, set, augment, cases[c].step, cases[c].next, got, got_labels,
                                 &err));
        assert_ok(sdc_sampler_batch(sampler, 1, cases[c].step, indices, &err));
        sdc_dataset_gather(set, indices, BATCH, augment, (uint32_t)(cases[c].step / 6), want,
                           want_labels);
        assert_memory_equal(got, want, sizeof got);
        assert_memory_equal(got_labels, want_labels, sizeof got_labels);
        if (i % 5 == 0)
            sdc_feed_rest(feed);
    }
    assert_status(SDC_LIMIT, sdc_feed_batch(feed, sets[0], &changes[0], (uint64_t)1 << 40, 0, got,
                                            got_labels, &err));
    sdc_feed_free(feed);
    sdc_feed_free(NULL);
    sdc_sampler_free(sampler);
    sdc_dataset_free(sets[0]);
    sdc_dataset_free(sets[1]);
    const struct sdc_sharding small = {.n = 2, .ranks = 2, .batch = BATCH};
    assert_status(SDC_INVALID, sdc_feed_new(&small, 0, &feed, &err));
    for (uint64_t n = 1; n <= 5; n++) {
        sdc__alloc_fail_at(n);
        assert_status(SDC_NO_MEMORY, sdc_feed_new(&how, 0, &feed, &err));
        sdc__alloc_fail_at(0);
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet5_parameters),
        cmocka_unit_test(initial_weights),
        cmocka_unit_test(ddp_buckets),
        cmocka_unit_test(horovod_fusion),
        cmocka_unit_test(loop_counters),
        cmocka_unit_test(averaging_by_hand),
        cmocka_unit_test(timed_fusion_cuts_the_ready_order),
        cmocka_unit_test(feed_gives_the_batch_asked_for),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(team_survives_a_stuck_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
