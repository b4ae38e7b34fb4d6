/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs single kernels for conform_nn.py: requests on stdin, results on stdout, until end of input.
 * Native byte order. A request is the struct below, then the operands in order; the answer is the
 * results in order:
 *     layers:  x w b dy labels run_mean run_var   ->  y dx dw db run_mean run_var
 *              (those the layer has; sizes by its shape; with eval no gradients)
 *     sgd:     p g m             ->  p m            (batch elements each)
 *     scale:   x                 ->  x
 *     add:     a b               ->  y
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "nn/nn.h"
#include "nn/nn_impl.h"

enum { OP_SGD = SDC__NN_N_KINDS, OP_SCALE, OP_ADD };

struct request {
    char kernels[16];
    int32_t op, type;
    int32_t batch, channels, height, width, out_channels, kernel, padding;
    int32_t stride, no_bias, eval;
    int32_t first;   /* sgd: no momentum buffer yet */
    double hyper[3]; /* sgd: lr, momentum, weight decay; scale: factor; dropout: probability */
};

static void die(const char *what) {
    fprintf(stderr, "nn_driver: %s\n", what);
    exit(1);
}

static void *get(size_t n, size_t size) {
    void *p = sdc__alloc_tensor(n, size);
    if (!p || (n > 0 && fread(p, size, n, stdin) != n))
        die("cannot read an operand");
    return p;
}

static void put(const void *p, size_t n, size_t size) {
    if (fwrite(p, size, n, stdout) != n)
        die("cannot write a result");
}

static void run_layer(struct sdc_nn_engine *engine, const struct request *r) {
    struct sdc_error err;
    struct sdc_nn_plan *plan;
    const struct sdc_nn_layer layer = {
        .kind = (enum sdc_nn_kind)r->op,
        .batch = (size_t)r->batch,
        .channels = (size_t)r->channels,
        .height = (size_t)r->height,
        .width = (size_t)r->width,
        .out_channels = (size_t)r->out_channels,
        .kernel = (size_t)r->kernel,
        .padding = (size_t)r->padding,
        .stride = (size_t)r->stride,
        .no_bias = r->no_bias != 0,
        .eval = r->eval != 0,
        .drop = r->op == SDC_NN_DROPOUT ? r->hyper[0] : 0,
    };
    int64_t count = 0;
    if (sdc_nn_plan_new(engine, &layer, &plan, &err) != SDC_OK)
        die(err.message);
    const struct sdc_nn_sizes s = *sdc_nn_plan_sizes(plan);
    const size_t size = sdc_nn_type_size(sdc_nn_engine_type(engine));
    const bool weights = s.w > 0;
    void *x = get(s.x, size), *w = get(s.w, size), *b = get(s.b, size), *dy = get(s.y, size);
    int32_t *labels = get(r->op == SDC_NN_XENT ? layer.batch : 0, sizeof *labels);
    void *run_mean = get(s.run, size), *run_var = get(s.run, size);
    /* results start as NaN: what a kernel fails to write shows */
    void *y = sdc__alloc_tensor(s.y, size), *dx = sdc__alloc_tensor(s.x, size);
    void *dw = sdc__alloc_tensor(s.w, size), *db = sdc__alloc_tensor(s.b, size);
    if (!y || !dx || !dw || !db)
        die("no memory");
    memset(y, 0xff, s.y * size);
    memset(dx, 0xff, s.x * size);
    memset(dw, 0xff, s.w * size);
    memset(db, 0xff, s.b * size);
    const struct sdc_nn_io io = {.x = x,
                                 .w = weights ? w : NULL,
                                 .b = s.b > 0 ? b : NULL,
                                 .y = y,
                                 .labels = labels,
                                 .dy = dy,
                                 .dx = dx,
                                 .dw = weights ? dw : NULL,
                                 .db = s.b > 0 ? db : NULL,
                                 .run_mean = run_mean,
                                 .run_var = run_var,
                                 .run_count = &count,
                                 .stream = {.seed = 7, .block = 5, .trial = 3}};
    if (sdc_nn_forward(plan, &io, &err) != SDC_OK)
        die(err.message);
    if (!r->eval && sdc_nn_backward(plan, &io, &err) != SDC_OK)
        die(err.message);
    if (count != (r->op == SDC_NN_BATCHNORM && !r->eval))
        die("the counter of batches is wrong");
    put(y, s.y, size);
    if (!r->eval) {
        put(dx, s.x, size);
        put(dw, s.w, size);
        put(db, s.b, size);
    }
    put(run_mean, s.run, size);
    put(run_var, s.run, size);
    void *const blocks[] = {x, w, b, dy, labels, y, dx, dw, db, run_mean, run_var};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sdc__free(blocks[i]);
    sdc_nn_plan_free(plan);
}

static void run_update(struct sdc_nn_engine *engine, const struct request *r) {
    const size_t n = (size_t)r->batch, size = sdc_nn_type_size(sdc_nn_engine_type(engine));
    void *p = get(n, size);
    if (r->op == OP_SCALE) {
        sdc_nn_scale(engine, n, p, r->hyper[0]);
        put(p, n, size);
    } else if (r->op == OP_ADD) {
        void *b = get(n, size);
        sdc_nn_add(engine, n, p, b, p);
        put(p, n, size);
        sdc__free(b);
    } else {
        const struct sdc_nn_sgd sgd = {
            .lr = r->hyper[0], .momentum = r->hyper[1], .weight_decay = r->hyper[2]};
        void *g = get(n, size), *m = get(n, size);
        sdc_nn_sgd_step(engine, &sgd, n, p, g, m, r->first != 0);
        put(p, n, size);
        put(m, n, size);
        sdc__free(g);
        sdc__free(m);
    }
    sdc__free(p);
}

static const struct sdc_nn_ops *find(const char *name) {
    if (strcmp(name, sdc_nn_onednn_avx2.name) == 0)
        return &sdc_nn_onednn_avx2;
    if (strcmp(name, sdc_nn_onednn_base.name) == 0)
        return &sdc_nn_onednn_base;
    return sdc_nn_find(name);
}

int main(void) {
    struct request r;
    struct sdc_error err;
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        struct sdc_nn_engine *engine;
        r.kernels[sizeof r.kernels - 1] = '\0';
        const struct sdc_nn_ops *ops = find(r.kernels);
        if (!ops)
            die("no such kernels");
        if (sdc_nn_engine_new(ops, (enum sdc_nn_type)r.type, &engine, &err) != SDC_OK)
            die(err.message);
        if (r.op >= OP_SGD)
            run_update(engine, &r);
        else
            run_layer(engine, &r);
        sdc_nn_engine_free(engine);
        if (fflush(stdout) != 0)
            die("cannot write");
    }
    return 0;
}
