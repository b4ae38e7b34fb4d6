/* SPDX-License-Identifier: Apache-2.0
 *
 * Single updates for optimizers_torch.py: requests on stdin, results on stdout, until end of input.
 * Native byte order. A request is the struct below, then p, g, m and v of n elements each; the
 * answer is an i32, 0 where the update was refused, then p, m and v.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "nn/nn.h"
#include "nn/nn_impl.h"

struct request {
    char kernels[16];
    int32_t f64, adam, first, nesterov, decoupled, n;
    double lr, momentum, weight_decay, beta1, beta2, eps, step;
};

static void die(const char *what) {
    fprintf(stderr, "optimizer_tool: %s\n", what);
    exit(1);
}

static const struct sdc_nn_ops *find(const char *name) {
    if (strcmp(name, sdc_nn_onednn_avx2.name) == 0)
        return &sdc_nn_onednn_avx2;
    if (strcmp(name, sdc_nn_onednn_base.name) == 0)
        return &sdc_nn_onednn_base;
    return sdc_nn_find(name);
}

static int32_t update(struct sdc_nn_engine *engine, const struct request *r, void *x[4]) {
    struct sdc_error err;
    const size_t n = (size_t)r->n;
    if (r->adam) {
        const struct sdc_nn_adam adam = {.lr = r->lr,
                                         .beta1 = r->beta1,
                                         .beta2 = r->beta2,
                                         .eps = r->eps,
                                         .weight_decay = r->weight_decay,
                                         .decoupled = r->decoupled != 0};
        return sdc_nn_adam_step(engine, &adam, n, x[0], x[1], x[2], x[3], r->step, &err) == SDC_OK;
    }
    const struct sdc_nn_sgd sgd = {.lr = r->lr,
                                   .momentum = r->momentum,
                                   .weight_decay = r->weight_decay,
                                   .nesterov = r->nesterov != 0};
    sdc_nn_sgd_step(engine, &sgd, n, x[0], x[1], x[2], r->first != 0);
    return 1;
}

int main(void) {
    struct request r;
    struct sdc_error err;
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        struct sdc_nn_engine *engine;
        r.kernels[sizeof r.kernels - 1] = '\0';
        const struct sdc_nn_ops *ops = find(r.kernels);
        if (!ops || sdc_nn_engine_new(ops, r.f64 ? SDC_NN_F64 : SDC_NN_F32, &engine, &err))
            die("no such kernels");
        const size_t n = (size_t)r.n, size = r.f64 ? 8 : 4;
        void *x[4];
        for (int i = 0; i < 4; i++)
            if (!(x[i] = sdc__alloc_tensor(n, size)) || fread(x[i], size, n, stdin) != n)
                die("cannot read an operand");
        const int32_t done = update(engine, &r, x);
        fwrite(&done, sizeof done, 1, stdout);
        fwrite(x[0], size, n, stdout);
        fwrite(x[2], size, n, stdout);
        fwrite(x[3], size, n, stdout);
        for (int i = 0; i < 4; i++)
            sdc__free(x[i]);
        sdc_nn_engine_free(engine);
        if (fflush(stdout) != 0)
            die("cannot write");
    }
    return 0;
}
