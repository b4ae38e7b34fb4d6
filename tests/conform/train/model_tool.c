/* SPDX-License-Identifier: Apache-2.0
 *
 * One training step and one evaluation of a model, for models_torch.py to compare with PyTorch's.
 *
 *     model_tool list MODEL C H W CLASSES
 *     model_tool step MODEL C H W CLASSES KERNELS BATCH
 *     model_tool eval MODEL C H W CLASSES KERNELS BATCH
 *
 * `list` prints names and shapes in order, then the order in which gradients get ready. `step`
 * reads from stdin all parameters in registration order, all buffers (counters as int64), the
 * images and the labels (int32); it writes the loss, the gradients, the parameters after a step of
 * SGD, the buffers, and the logits of an evaluation of the same images with what it has then.
 * `eval` reads the same and writes only the logits. What is dropped: seed 5, step 9, rank 3.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "train/net.h"
#include "train/state.h"

static struct sdc_model model;
static struct sdc_train_state state;

static void die(const char *what) {
    fprintf(stderr, "model_tool: %s\n", what);
    exit(1);
}

static unsigned number(const char *text) {
    return (unsigned)strtoul(text, NULL, 10);
}

static void transfer(void *data, size_t size, bool writing) {
    if ((writing ? fwrite(data, 1, size, stdout) : fread(data, 1, size, stdin)) != size)
        die("cannot read or write");
}

static void transfer_params(float *flat, bool writing) {
    for (unsigned i = 0; i < model.n_params; i++)
        transfer(flat + model.params[i].off, model.params[i].n * sizeof(float), writing);
}

static void transfer_buffers(bool writing) {
    for (unsigned i = 0; i < model.n_buffers; i++) {
        const struct sdc_buffer *b = &model.buffers[i];
        if (b->counter)
            transfer(state.counters + b->off, sizeof(int64_t), writing);
        else
            transfer(state.buffers + b->off, b->n * sizeof(float), writing);
    }
}

static void list(void) {
    for (unsigned i = 0; i < model.n_params; i++) {
        printf("param %s", model.params[i].name);
        for (unsigned d = 0; d < model.params[i].rank; d++)
            printf(" %" PRIu64, model.params[i].shape[d]);
        printf("\n");
    }
    for (unsigned i = 0; i < model.n_buffers; i++) {
        printf("buffer %s", model.buffers[i].name);
        if (!model.buffers[i].counter)
            printf(" %" PRIu64, model.buffers[i].n);
        printf("\n");
    }
    for (unsigned i = 0; i < model.n_params; i++)
        printf("ready %s\n", model.params[model.ready[i]].name);
}

static void step(const char *kernels, size_t batch, bool train) {
    struct sdc_error err;
    struct sdc_nn_engine *engine;
    struct sdc_net *net, *eval;
    float loss;
    const float *logits;
    if (sdc_nn_engine_new(sdc_nn_find(kernels), SDC_NN_F32, &engine, &err) != SDC_OK ||
        sdc_net_new(engine, &model, batch, true, &net, &err) != SDC_OK ||
        sdc_net_new(engine, &model, batch, false, &eval, &err) != SDC_OK ||
        sdc_train_state_init(&state, &model, SDC_KEEPS_MOMENTUM, 0, &err) != SDC_OK)
        die(err.message);
    float *grads = sdc__alloc_tensor(model.flat, sizeof *grads);
    if (!grads)
        die("no memory");
    transfer_params(state.params, false);
    transfer_buffers(false);
    const size_t pixels = batch * model.sizes[0] * sizeof(float);
    transfer(sdc_net_input(net), pixels, false);
    transfer(sdc_net_labels(net), batch * sizeof(int32_t), false);
    memcpy(sdc_net_input(eval), sdc_net_input(net), pixels);
    const struct sdc_net_state s = {.params = state.params,
                                    .buffers = state.buffers,
                                    .counters = state.counters,
                                    .seed = 5,
                                    .step = 9,
                                    .rank = 3};
    if (train && sdc_net_train(net, &s, grads, &loss, &err) != SDC_OK)
        die(err.message);
    const struct sdc_nn_sgd sgd = {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3};
    if (train)
        sdc_nn_sgd_step(engine, &sgd, model.flat, state.params, grads, state.slots[0], true);
    if (sdc_net_forward(eval, &s, &logits, &err) != SDC_OK)
        die(err.message);
    if (train) {
        transfer(&loss, sizeof loss, true);
        transfer_params(grads, true);
        transfer_params(state.params, true);
        transfer_buffers(true);
    }
    transfer((void *)(uintptr_t)logits, batch * model.input.classes * sizeof(float), true);
    sdc__free(grads);
    sdc_train_state_release(&state);
    sdc_net_free(net);
    sdc_net_free(eval);
    sdc_nn_engine_free(engine);
}

int main(int argc, char **argv) {
    struct sdc_error err;
    if (argc < 7)
        die("arguments");
    const struct sdc_model_input input = {number(argv[3]), number(argv[4]), number(argv[5]),
                                          number(argv[6])};
    if (sdc_model_make_for(argv[2], &input, &model, &err) != SDC_OK)
        die(err.message);
    if (strcmp(argv[1], "list") == 0)
        list();
    else if (argc == 9)
        step(argv[7], number(argv[8]), strcmp(argv[1], "step") == 0);
    else
        die("arguments");
    return fflush(stdout) != 0;
}
