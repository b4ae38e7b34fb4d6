/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: the interface, known bits of "ref", gradients against differences, "onednn" against
 * "ref", the same bits again and in other threads, no memory. Values against PyTorch are in
 * tests/conform/nn.
 */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/hash.h"
#include "nn/lanes.h"
#include "test.h"

/* All operands and results of one layer, in one type. */
struct bench {
    struct sdc_nn_engine *engine;
    struct sdc_nn_plan *plan;
    struct sdc_nn_sizes s;
    size_t size;
    void *x, *w, *b, *y, *dy, *dx, *dw, *db;
    int32_t *labels;
    size_t n_labels;
    void *run_mean, *run_var;
    int64_t run_count;
};

static void uniform(enum sdc_nn_type type, size_t n, void *x, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const double v = (double)(seed >> 8) / 8388608.0 - 1.0; /* exact in both types */
        if (type == SDC_NN_F64)
            ((double *)x)[i] = v;
        else
            ((float *)x)[i] = (float)v;
    }
}

static void bench_init(struct bench *t, const struct sdc_nn_ops *ops, enum sdc_nn_type type,
                       const struct sdc_nn_layer *layer) {
    struct sdc_error err;
    memset(t, 0, sizeof *t);
    assert_ok(sdc_nn_engine_new(ops, type, &t->engine, &err));
    assert_ok(sdc_nn_plan_new(t->engine, layer, &t->plan, &err));
    t->s = *sdc_nn_plan_sizes(t->plan);
    t->size = sdc_nn_type_size(type);
    void **const blocks[] = {&t->x,  &t->w,  &t->b,  &t->y,        &t->dy,
                             &t->dx, &t->dw, &t->db, &t->run_mean, &t->run_var};
    const size_t sizes[] = {t->s.x, t->s.w, t->s.b, t->s.y,   t->s.y,
                            t->s.x, t->s.w, t->s.b, t->s.run, t->s.run};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        *blocks[i] = sdc__alloc_tensor(sizes[i], t->size);
        assert_non_null(*blocks[i]);
        uniform(type, sizes[i], *blocks[i], (uint32_t)i + 1);
    }
    t->n_labels = layer->batch;
    t->labels = sdc__calloc(layer->batch, sizeof *t->labels);
    assert_non_null(t->labels);
    for (size_t i = 0; i < layer->batch; i++)
        t->labels[i] = (int32_t)(i * 7 % layer->channels);
}

static void bench_release(struct bench *t) {
    void *const blocks[] = {t->x,  t->w,  t->b,      t->y,        t->dy,     t->dx,
                            t->dw, t->db, t->labels, t->run_mean, t->run_var};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sdc__free(blocks[i]);
    sdc_nn_plan_free(t->plan);
    sdc_nn_engine_free(t->engine);
}

static struct sdc_nn_io operands(const struct bench *t) {
    return (struct sdc_nn_io){.x = t->x,
                              .w = t->w,
                              .b = t->b,
                              .y = t->y,
                              .labels = t->labels,
                              .dy = t->dy,
                              .dx = t->dx,
                              .dw = t->dw,
                              .db = t->db,
                              .run_mean = t->run_mean,
                              .run_var = t->run_var,
                              .run_count = (int64_t *)&t->run_count};
}

static void both_ways(struct bench *t) {
    struct sdc_error err;
    const struct sdc_nn_io io = operands(t);
    assert_ok(sdc_nn_forward(t->plan, &io, &err));
    assert_ok(sdc_nn_backward(t->plan, &io, &err));
}

static const struct sdc_nn_layer shapes[] = {
    {SDC_NN_CONV2D, 64, 1, 28, 28, 6, 5, 2, 0, false, false, 0},
    {SDC_NN_CONV2D, 17, 6, 14, 14, 16, 5, 0, 0, false, false, 0},
    {SDC_NN_CONV2D, 1, 3, 7, 5, 7, 3, 1, 0, false, false, 0},
    {SDC_NN_CONV2D, 16, 2, 3, 9, 13, 1, 0, 0, false, false, 0},
    {SDC_NN_CONV2D, 5, 8, 6, 4, 8, 3, 2, 0, false, false, 0},
    {SDC_NN_CONV2D, 3, 1, 1, 1, 1, 7, 6, 0, false, false, 0},
    {SDC_NN_LINEAR, 64, 16, 5, 5, 120, 0, 0, 0, false, false, 0},
    {SDC_NN_LINEAR, 1, 3, 0, 0, 2, 0, 0, 0, false, false, 0},
    {SDC_NN_LINEAR, 7, 84, 0, 0, 10, 0, 0, 0, false, false, 0},
    {SDC_NN_RELU, 3, 84, 0, 0, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_MAXPOOL2, 33, 6, 28, 28, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_MAXPOOL2, 2, 3, 5, 7, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_RELU_MAXPOOL2, 20, 3, 10, 10, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_RELU_MAXPOOL2, 1, 1, 3, 2, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_XENT, 64, 10, 0, 0, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_CONV2D, 5, 3, 7, 6, 16, 3, 1, 0, true, false, 0},
    {SDC_NN_CONV2D, 5, 16, 7, 6, 20, 3, 1, 1, true, false, 0},
    {SDC_NN_CONV2D, 3, 5, 9, 8, 7, 3, 1, 2, false, false, 0},
    {SDC_NN_CONV2D, 2, 16, 7, 7, 32, 1, 0, 2, true, false, 0},
    {SDC_NN_BATCHNORM, 5, 3, 7, 6, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_MAXPOOL3, 5, 3, 7, 6, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_AVGPOOL, 5, 3, 7, 6, 0, 0, 0, 0, false, false, 0},
    {SDC_NN_DROPOUT, 5, 3, 7, 6, 0, 0, 0, 0, false, false, 0.5},
    {SDC_NN_SUBSAMPLE, 5, 3, 7, 6, 7, 0, 0, 2, false, false, 0},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

static const struct sdc_nn_ops *const all[] = {&sdc_nn_onednn, &sdc_nn_onednn_avx2,
                                               &sdc_nn_onednn_base, &sdc_nn_ref};
#define N_ALL (sizeof all / sizeof *all)

static void test_table(void **state) {
    (void)state;
    char text[64];
    size_t n = 0;
    for (; sdc_nn_at(n); n++) {
        const struct sdc_nn_ops *ops = sdc_nn_at(n);
        assert_ptr_equal(sdc_nn_find(sdc_nn_name(ops)), ops);
        assert_true(strlen(sdc_nn_summary(ops)) > 0);
        assert_true(sdc_nn_caps(ops) & SDC_NN_CAN_F32);
        sdc_nn_version(ops, text, sizeof text);
        assert_true(strlen(text) > 0);
    }
    assert_int_equal(n, 2);
    assert_null(sdc_nn_find("cublas"));
    assert_true(sdc_nn_caps(sdc_nn_find("ref")) & SDC_NN_CAN_PORTABLE);
    sdc_nn_version(sdc_nn_find("onednn"), text, sizeof text);
    assert_memory_equal(text, "oneDNN ", 7);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        struct sdc_nn_layer layer;
        enum sdc_status want;
        const char *message;
    } cases[] = {
        {{SDC_NN_CONV2D, 0, 1, 28, 28, 6, 5, 2, 0, false, false, 0}, SDC_INVALID, "batch is 0"},
        {{SDC_NN_CONV2D, 1, 1, 28, 0, 6, 5, 2, 0, false, false, 0}, SDC_INVALID, "width is 0"},
        {{SDC_NN_CONV2D, 1, 1, 28, 28, 6, 5, 5, 0, false, false, 0}, SDC_INVALID, "padding is 5"},
        {{SDC_NN_CONV2D, 1, 1, 4, 28, 6, 5, 0, 0, false, false, 0},
         SDC_INVALID,
         "kernel 5 does not fit"},
        {{SDC_NN_LINEAR, 1, 3, 0, 0, 0, 0, 0, 0, false, false, 0},
         SDC_INVALID,
         "out_channels is 0"},
        {{SDC_NN_RELU, 1, 3, 0, 0, 4, 0, 0, 0, false, false, 0}, SDC_INVALID, "out_channels is 4"},
        {{SDC_NN_MAXPOOL2, 1, 3, 1, 4, 0, 0, 0, 0, false, false, 0}, SDC_INVALID, "1 x 4"},
        {{SDC_NN_XENT, 1, 10, 2, 0, 0, 0, 0, 0, false, false, 0}, SDC_INVALID, "height is 2"},
        {{SDC_NN_LINEAR, 65536, 65536, 0, 0, 1, 0, 0, 0, false, false, 0}, SDC_LIMIT, "elements"},
        {{SDC_NN_LINEAR, SIZE_MAX, 2, 3, 4, 1, 0, 0, 0, false, false, 0}, SDC_LIMIT, "elements"},
        {{.kind = SDC_NN_LINEAR, .batch = 1, .channels = 3, .out_channels = 2, .stride = 2},
         SDC_INVALID,
         "stride is 2"},
        {{.kind = SDC_NN_RELU, .batch = 1, .channels = 3, .no_bias = true},
         SDC_INVALID,
         "no_bias is 1"},
        {{.kind = SDC_NN_BATCHNORM, .batch = 1, .channels = 3}, SDC_INVALID, "one value a channel"},
        {{.kind = SDC_NN_DROPOUT, .batch = 1, .channels = 3, .drop = 1}, SDC_INVALID, "drop is 1"},
        {{.kind = SDC_NN_RELU, .batch = 1, .channels = 3, .drop = 0.5}, SDC_INVALID, "drop is 0.5"},
        {{.kind = SDC_NN_MAXPOOL3, .batch = 1, .channels = 3, .height = 2, .width = 3},
         SDC_INVALID,
         "2 x 3"},
        {{.kind = SDC_NN_SUBSAMPLE,
          .batch = 1,
          .channels = 3,
          .height = 2,
          .width = 2,
          .out_channels = 6},
         SDC_INVALID,
         "out_channels is 6"},
        {{(enum sdc_nn_kind)17, 1, 1, 1, 1, 1, 1, 1, 0, false, false, 0},
         SDC_INVALID,
         "kind is 17"},
    };
    struct sdc_error err;
    struct sdc_nn_sizes s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_status(cases[i].want, sdc_nn_layer_sizes(&cases[i].layer, &s, &err));
        assert_message_has(cases[i].message);
    }
    struct sdc_nn_engine *engine;
    assert_status(SDC_UNSUPPORTED, sdc_nn_engine_new(&sdc_nn_onednn, SDC_NN_F64, &engine, &err));
    assert_null(engine);
    assert_message_has("onednn");
}

static void test_labels_in_range(void **state) {
    (void)state;
    struct sdc_error err;
    struct bench t;
    bench_init(&t, &sdc_nn_ref, SDC_NN_F32,
               &(struct sdc_nn_layer){SDC_NN_XENT, 3, 10, 0, 0, 0, 0, 0, 0, false, false, 0});
    const struct sdc_nn_io io = operands(&t);
    const float before = *(float *)t.y;
    t.labels[2] = 10;
    assert_status(SDC_INVALID, sdc_nn_forward(t.plan, &io, &err));
    assert_message_has("label 2 of the batch is 10, expected 0 to 9");
    t.labels[2] = -1;
    assert_status(SDC_INVALID, sdc_nn_forward(t.plan, &io, &err));
    assert_memory_equal(&before, t.y, sizeof before);
    bench_release(&t);
}

static void assert_f32(const char *what, const void *got, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp((const float *)got + i, want + i, sizeof *want) != 0)
            fail_msg("%s[%zu] is %a, expected %a", what, i, (double)((const float *)got)[i],
                     (double)want[i]);
}

/* Worked by hand: a 3x3 image, a 2x2 kernel, padding 1 (so y is 4x4). */
static void test_ref_by_hand_conv(void **state) {
    (void)state;
    struct bench t;
    bench_init(&t, &sdc_nn_ref, SDC_NN_F32,
               &(struct sdc_nn_layer){SDC_NN_CONV2D, 1, 1, 3, 3, 1, 2, 1, 0, false, false, 0});
    memcpy(t.x, (float[]){1, 2, 3, 4, 5, 6, 7, 8, 9}, 36);
    memcpy(t.w, (float[]){1, 10, 100, 1000}, 16);
    memcpy(t.b, (float[]){0.5f}, 4);
    memset(t.dy, 0, 64);
    ((float *)t.dy)[0] = 1; /* y(0,0) = b + w(1,1) x(0,0) */
    ((float *)t.dy)[5] = 2; /* y(1,1) = b + w(0,0) x(0,0) + ... + w(1,1) x(1,1) */
    both_ways(&t);
    assert_f32("y", t.y,
               (float[]){1000.5f, 2100.5f, 3200.5f, 300.5f, 4010.5f, 5421.5f, 6532.5f, 603.5f,
                         7040.5f, 8754.5f, 9865.5f, 906.5f, 70.5f, 87.5f, 98.5f, 9.5f},
               16);
    assert_f32("dx", t.dx, (float[]){1002, 20, 0, 200, 2000, 0, 0, 0, 0}, 9);
    assert_f32("dw", t.dw, (float[]){2, 4, 8, 11}, 4);
    assert_f32("db", t.db, (float[]){3}, 1);
    bench_release(&t);
}

static void test_ref_by_hand_others(void **state) {
    (void)state;
    struct bench t;
    bench_init(&t, &sdc_nn_ref, SDC_NN_F32,
               &(struct sdc_nn_layer){SDC_NN_LINEAR, 2, 3, 0, 0, 2, 0, 0, 0, false, false, 0});
    memcpy(t.x, (float[]){1, 2, 3, -1, 0.5f, 4}, 24);
    memcpy(t.w, (float[]){1, 10, 100, 2, 0, -1}, 24);
    memcpy(t.b, (float[]){0.25f, -1}, 8);
    memcpy(t.dy, (float[]){1, 2, 0.5f, -1}, 16);
    both_ways(&t);
    assert_f32("y", t.y, (float[]){321.25f, -2, 404.25f, -7}, 4);
    assert_f32("dx", t.dx, (float[]){5, 10, 98, -1.5f, 5, 51}, 6);
    assert_f32("dw", t.dw, (float[]){0.5f, 2.25f, 5, 3, 3.5f, 2}, 6);
    assert_f32("db", t.db, (float[]){1.5f, 1}, 2);
    bench_release(&t);

    bench_init(
        &t, &sdc_nn_ref, SDC_NN_F32,
        &(struct sdc_nn_layer){SDC_NN_RELU_MAXPOOL2, 1, 1, 3, 4, 0, 0, 0, 0, false, false, 0});
    memcpy(t.x, (float[]){-1, -2, 3, 1, -3, -4, 3, 2, 9, 9, 9, 9}, 48);
    memcpy(t.dy, (float[]){5, 7}, 8);
    both_ways(&t);
    assert_f32("y", t.y, (float[]){0, 3}, 2);
    assert_f32("dx", t.dx, (float[]){0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 12);
    bench_release(&t);

    /* two equal logits: loss log 2, gradient (p - 1, p) with p = 1/2 */
    bench_init(&t, &sdc_nn_ref, SDC_NN_F32,
               &(struct sdc_nn_layer){SDC_NN_XENT, 1, 2, 0, 0, 0, 0, 0, 0, false, false, 0});
    memcpy(t.x, (float[]){3, 3}, 8);
    t.labels[0] = 0;
    *(float *)t.dy = 1;
    both_ways(&t);
    assert_f32("loss", t.y, (float[]){0x1.62e43p-1f}, 1);
    assert_f32("dlogits", t.dx, (float[]){-0.5f, 0.5f}, 2);
    bench_release(&t);
}

/* Weight decay, momentum and rate all 1/2, powers of two throughout: nothing rounds; then a
 * step whose product would. */
static void test_sgd_by_hand(void **state) {
    (void)state;
    for (size_t k = 0; k < N_ALL; k++) {
        struct sdc_error err;
        struct sdc_nn_engine *engine;
        const struct sdc_nn_sgd sgd = {.lr = 0.5, .momentum = 0.5, .weight_decay = 0.5};
        float p[1] = {4}, m[1] = {99};
        assert_ok(sdc_nn_engine_new(all[k], SDC_NN_F32, &engine, &err));
        sdc_nn_sgd_step(engine, &sgd, 1, p, (float[]){1}, m, true); /* d = 1 + 2, m = 3 */
        assert_f32("p", p, (float[]){2.5f}, 1);
        assert_f32("m", m, (float[]){3}, 1);
        sdc_nn_sgd_step(engine, &sgd, 1, p, (float[]){1}, m, false); /* d = 2.25, m = 3.75 */
        assert_f32("p", p, (float[]){0.625f}, 1);
        assert_f32("m", m, (float[]){3.75f}, 1);
        sdc_nn_sgd_step(engine, &(struct sdc_nn_sgd){.lr = 2}, 1, p, (float[]){1}, NULL, true);
        assert_f32("p", p, (float[]){-1.375f}, 1);
        sdc_nn_scale(engine, 1, p, 0.5);
        assert_f32("p", p, (float[]){-0.6875f}, 1);
        /* (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24 if the product is not rounded, else 0 */
        p[0] = -(1 + 0x1p-11f);
        sdc_nn_sgd_step(engine, &(struct sdc_nn_sgd){.lr = 1 + 0x1p-12}, 1, p,
                        (float[]){-(1 + 0x1p-12f)}, NULL, true);
        assert_f32("p", p, (float[]){0x1p-24f}, 1);
        sdc_nn_engine_free(engine);
    }
}

static double loss_of(struct bench *t) {
    struct sdc_error err;
    const struct sdc_nn_io io = operands(t);
    double sum = 0;
    assert_ok(sdc_nn_forward(t->plan, &io, &err));
    for (size_t i = 0; i < t->s.y; i++)
        sum += ((double *)t->y)[i] * ((double *)t->dy)[i];
    return sum;
}

/* Each gradient against the central difference of sum(y dy), in f64. */
static void check_differences(struct bench *t, const char *what, double *at, const double *gradient,
                              size_t n) {
    const double h = 1e-6;
    const size_t step = n / 60 + 1;
    for (size_t i = 0; i < n; i += step) {
        const double kept = at[i];
        at[i] = kept + h;
        const double above = loss_of(t);
        at[i] = kept - h;
        const double below = loss_of(t);
        at[i] = kept;
        const double want = (above - below) / (2 * h);
        if (!(fabs(gradient[i] - want) <= 1e-6 * (1 + fabs(want))))
            fail_msg("%s[%zu] is %.12g, difference quotient %.12g", what, i, gradient[i], want);
    }
}

static void test_gradients(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct bench t;
        struct sdc_nn_layer layer = shapes[i];
        layer.batch = layer.batch > 3 ? 3 : layer.batch;
        bench_init(&t, &sdc_nn_ref, SDC_NN_F64, &layer);
        both_ways(&t);
        check_differences(&t, "dx", t.x, t.dx, t.s.x);
        check_differences(&t, "dw", t.w, t.dw, t.s.w);
        check_differences(&t, "db", t.b, t.db, t.s.b);
        bench_release(&t);
    }
}

/* f32 against ref in f64: sums of n products below 1 in any order, within 1e-6 sqrt(n) of the
 * largest they can be. */
static void assert_close(const char *who, const char *what, const void *got, const void *want,
                         size_t n, size_t terms) {
    const double bound = 2e-6 * sqrt((double)terms);
    for (size_t i = 0; i < n; i++) {
        const double g = (double)((const float *)got)[i], w = ((const double *)want)[i];
        if (!(fabs(g - w) <= bound * (1 + fabs(w))))
            fail_msg("%s: %s[%zu] is %.9g, f64 has %.9g (bound %g)", who, what, i, g, w, bound);
    }
}

static void test_against_f64(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct bench want;
        bench_init(&want, &sdc_nn_ref, SDC_NN_F64, &shapes[i]);
        both_ways(&want);
        const size_t fan_in = want.s.b ? want.s.w / want.s.b : 10;
        const size_t over_batch = want.s.b ? want.s.y / want.s.b : 10;
        for (size_t k = 0; k < N_ALL; k++) {
            struct bench got;
            bench_init(&got, all[k], SDC_NN_F32, &shapes[i]);
            both_ways(&got);
            assert_close(all[k]->name, "y", got.y, want.y, got.s.y, fan_in);
            assert_close(all[k]->name, "dx", got.dx, want.dx, got.s.x, fan_in * 16);
            assert_close(all[k]->name, "dw", got.dw, want.dw, got.s.w, over_batch);
            assert_close(all[k]->name, "db", got.db, want.db, got.s.b, over_batch);
            bench_release(&got);
        }
        bench_release(&want);
    }
}

/* Results of one layer in one buffer, for comparison of bits. */
static void *results(const struct sdc_nn_ops *ops, const struct sdc_nn_layer *layer, size_t rounds,
                     size_t *size) {
    struct bench t;
    bench_init(&t, ops, SDC_NN_F32, layer);
    for (size_t r = 0; r < rounds; r++)
        both_ways(&t);
    const void *const parts[] = {t.y, t.dx, t.dw, t.db};
    const size_t sizes[] = {t.s.y * 4, t.s.x * 4, t.s.w * 4, t.s.b * 4};
    *size = sizes[0] + sizes[1] + sizes[2] + sizes[3];
    char *all_bits = sdc__alloc(*size, 1);
    assert_non_null(all_bits);
    for (size_t i = 0, at = 0; i < 4; at += sizes[i], i++)
        memcpy(all_bits + at, parts[i], sizes[i]);
    bench_release(&t);
    return all_bits;
}

/* The promise of ref: these bits on every machine, with every compiler and level of optimisation.
 * The digests are of y, dx, dw, db for the operands of bench_init. */
static void test_ref_known_bits(void **state) {
    (void)state;
    static const uint64_t want[N_SHAPES] = {
        0x36ad2efccd8ca2c8, 0xf06a1fe03892ed03, 0x8e662c52495b35fc, 0xc653686cf63a35d5,
        0xa96267e3791c2d6b, 0xe9f832ced91cedb4, 0x0cb4aec9dcfb91c4, 0x5aae8d3bed3d54f7,
        0x586e46c60faddf93, 0x0aba508f9588f529, 0x8ffde8b267295905, 0xe2c2712f6922da3d,
        0xeea317563c8a972d, 0x248496d299c0d609, 0xea6279f03aae2d58, 0xb03edc59dae9e79e,
        0xb0c64d5fac141681, 0x6fa0c4faf700c415, 0xbda03687f02e5ca1, 0x74c9087c726903c8,
        0x44e0a313d23f0f42, 0x7cc7b64f7859ba08, 0x3f29b30deae2448d, 0xdea935b74cd12381};
    for (size_t i = 0; i < N_SHAPES; i++) {
        size_t size;
        void *bits = results(&sdc_nn_ref, &shapes[i], 1, &size);
        const uint64_t got = sdc__xxh3_64(bits, size);
        sdc__free(bits);
        if (got != want[i])
            fail_msg("shape %zu has digest %016llx, expected %016llx", i, (unsigned long long)got,
                     (unsigned long long)want[i]);
    }
}

/* Without dx the other gradients are the same. */
static void test_input_gradient_is_optional(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_ALL && shapes[i].kind <= SDC_NN_LINEAR; k++) {
            struct sdc_error err;
            struct bench with, without;
            bench_init(&with, all[k], SDC_NN_F32, &shapes[i]);
            bench_init(&without, all[k], SDC_NN_F32, &shapes[i]);
            both_ways(&with);
            struct sdc_nn_io io = operands(&without);
            io.dx = NULL;
            assert_ok(sdc_nn_backward(without.plan, &io, &err));
            assert_memory_equal(with.dw, without.dw, with.s.w * 4);
            assert_memory_equal(with.db, without.db, with.s.b * 4);
            bench_release(&with);
            bench_release(&without);
        }
}

struct rank {
    pthread_t thread;
    const struct sdc_nn_ops *ops;
    const struct sdc_nn_layer *layer;
    void *bits;
    size_t size;
};

static void *rank_main(void *arg) {
    struct rank *r = arg;
    r->bits = results(r->ops, r->layer, 3, &r->size);
    return NULL;
}

static void test_same_bits_again_and_in_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_ALL; k++) {
            size_t size, again_size;
            void *once = results(all[k], &shapes[i], 1, &size);
            void *again = results(all[k], &shapes[i], 2, &again_size);
            assert_memory_equal(once, again, size);
            struct rank ranks[2];
            for (size_t r = 0; r < 2; r++) {
                ranks[r] = (struct rank){.ops = all[k], .layer = &shapes[i]};
                assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
            }
            for (size_t r = 0; r < 2; r++) {
                assert_int_equal(pthread_join(ranks[r].thread, NULL), 0);
                assert_memory_equal(once, ranks[r].bits, size);
                sdc__free(ranks[r].bits);
            }
            sdc__free(once);
            sdc__free(again);
        }
}

/* The fused layer has the bits of its two parts in a row. */
static void test_fused_equals_parts(void **state) {
    (void)state;
    const struct sdc_nn_layer layers[] = {
        {SDC_NN_RELU_MAXPOOL2, 19, 3, 10, 7, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_RELU, 19, 3, 10, 7, 0, 0, 0, 0, false, false, 0},
        {SDC_NN_MAXPOOL2, 19, 3, 10, 7, 0, 0, 0, 0, false, false, 0}};
    const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f, -1.0f, 1.0f, 1e-40f};
    for (size_t k = 0; k < N_ALL; k++) {
        struct sdc_error err;
        struct bench fused, relu, pool;
        bench_init(&fused, all[k], SDC_NN_F32, &layers[0]);
        bench_init(&relu, all[k], SDC_NN_F32, &layers[1]);
        bench_init(&pool, all[k], SDC_NN_F32, &layers[2]);
        for (size_t i = 0; i < fused.s.x; i++)
            ((float *)fused.x)[i] = special[(i * i + i / 7) % 8];
        const struct sdc_nn_io first = {.x = fused.x, .y = relu.y};
        assert_ok(sdc_nn_forward(relu.plan, &first, &err));
        const struct sdc_nn_io second = {.x = relu.y, .y = pool.y, .dy = fused.dy, .dx = pool.dx};
        assert_ok(sdc_nn_forward(pool.plan, &second, &err));
        assert_ok(sdc_nn_backward(pool.plan, &second, &err));
        const struct sdc_nn_io back = {.y = relu.y, .dy = pool.dx, .dx = relu.dx};
        assert_ok(sdc_nn_backward(relu.plan, &back, &err));
        both_ways(&fused);
        assert_memory_equal(fused.y, pool.y, fused.s.y * 4);
        assert_memory_equal(fused.dx, relu.dx, fused.s.x * 4);
        bench_release(&fused);
        bench_release(&relu);
        bench_release(&pool);
    }
}

/* ref's source has the same bits when the compiler may use wide vectors. */
static void test_vectors_keep_refs_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (const char *const *name = (const char *const[]){"avx512", "avx2", "base", NULL}; *name;
             name++) {
            struct bench want, got;
            bench_init(&want, &sdc_nn_ref, SDC_NN_F32, &shapes[i]);
            bench_init(&got, &sdc_nn_ref, SDC_NN_F32, &shapes[i]);
            got.engine->kernels = sdc__nn_isa(*name)->plain;
            both_ways(&want);
            both_ways(&got);
            assert_memory_equal(got.y, want.y, want.s.y * 4);
            assert_memory_equal(got.dx, want.dx, want.s.x * 4);
            assert_memory_equal(got.dw, want.dw, want.s.w * 4);
            assert_memory_equal(got.db, want.db, want.s.b * 4);
            bench_release(&want);
            bench_release(&got);
        }
}

static size_t count_threads(void) {
    size_t n = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

extern void omp_set_num_threads(int n);

/* A rank computes in its own thread, whatever OpenMP was told before. */
static void test_no_team(void **state) {
    (void)state;
    struct bench t;
    omp_set_num_threads(4);
    const size_t before = count_threads();
    bench_init(
        &t, &sdc_nn_onednn, SDC_NN_F32,
        &(struct sdc_nn_layer){SDC_NN_LINEAR, 256, 784, 0, 0, 512, 0, 0, 0, false, false, 0});
    both_ways(&t);
    assert_int_equal(count_threads(), before);
    bench_release(&t);
}

static void test_no_memory(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_ALL; k++) {
            struct sdc_error err;
            struct sdc_nn_engine *engine;
            struct sdc_nn_plan *plan;
            sdc__alloc_fail_at(1);
            assert_status(SDC_NO_MEMORY, sdc_nn_engine_new(all[k], SDC_NN_F32, &engine, &err));
            assert_null(engine);
            assert_ok(sdc_nn_engine_new(all[k], SDC_NN_F32, &engine, &err));
            const uint64_t start = sdc__alloc_count();
            assert_ok(sdc_nn_plan_new(engine, &shapes[i], &plan, &err));
            const uint64_t n = sdc__alloc_count() - start;
            assert_true(n > 0);
            sdc_nn_plan_free(plan);
            for (uint64_t at = 1; at <= n; at++) {
                sdc_nn_engine_free(engine); /* with its scratch */
                assert_ok(sdc_nn_engine_new(all[k], SDC_NN_F32, &engine, &err));
                sdc__alloc_fail_at(at);
                assert_status(SDC_NO_MEMORY, sdc_nn_plan_new(engine, &shapes[i], &plan, &err));
                assert_null(plan);
            }
            sdc__alloc_fail_at(0);
            sdc_nn_engine_free(engine);
        }
}

/* Forward and backward allocate nothing. */
static void test_no_allocation_on_the_way(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < N_ALL; k++) {
            struct bench t;
            bench_init(&t, all[k], SDC_NN_F32, &shapes[i]);
            const uint64_t start = sdc__alloc_count();
            both_ways(&t);
            assert_int_equal(sdc__alloc_count(), start);
            bench_release(&t);
        }
}

static void assert_ulps(double got, double want, double ulps, double x) {
    if (got == want)
        return;
    if (!(fabs(got - want) <= ulps * fabs(want) * 0x1p-52 + 0x1p-1074))
        fail_msg("at %.17g: %.17g, expected %.17g", x, got, want);
}

static void test_exp_log(void **state) {
    (void)state;
    for (int i = -80000; i <= 80000; i++) {
        const double x = (double)i * 0.0093;
        assert_ulps(sdc__nn_exp(x), exp(x), 2, x);
    }
    for (int i = 1; i < 200000; i++) {
        const double x = (double)i * 0.00037;
        assert_ulps(sdc__nn_log(x), log(x), 2, x);
        assert_ulps(sdc__nn_log(ldexp(x, i % 2000 - 1000)), log(ldexp(x, i % 2000 - 1000)), 2, x);
    }
    assert_true(isnan(sdc__nn_exp((double)NAN)) && isnan(sdc__nn_log((double)NAN)));
    assert_true(isnan(sdc__nn_log(-1.0)));
    assert_true(sdc__nn_exp(0.0) == 1.0 && sdc__nn_exp(-0.0) == 1.0 && sdc__nn_log(1.0) == 0.0);
    assert_true(sdc__nn_exp((double)INFINITY) == (double)INFINITY);
    assert_true(sdc__nn_exp(-(double)INFINITY) == 0.0);
    assert_true(sdc__nn_exp(710.0) == (double)INFINITY && sdc__nn_exp(-746.0) == 0.0);
    assert_true(sdc__nn_log((double)INFINITY) == (double)INFINITY);
    assert_true(sdc__nn_log(0.0) == -(double)INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_labels_in_range),
        cmocka_unit_test(test_ref_by_hand_conv),
        cmocka_unit_test(test_ref_by_hand_others),
        cmocka_unit_test(test_sgd_by_hand),
        cmocka_unit_test(test_ref_known_bits),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_against_f64),
        cmocka_unit_test(test_input_gradient_is_optional),
        cmocka_unit_test(test_same_bits_again_and_in_threads),
        cmocka_unit_test(test_fused_equals_parts),
        cmocka_unit_test(test_vectors_keep_refs_bits),
        cmocka_unit_test(test_no_team),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_allocation_on_the_way),
        cmocka_unit_test(test_exp_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
