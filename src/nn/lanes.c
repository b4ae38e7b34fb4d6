/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/lanes.h"

#include <string.h>

#include "base/alloc.h"
#include "nn/onednn_conv.h"

static const struct sdc__nn_isa *const sets[] = {
#ifdef SDC_NN_X86
    &sdc__nn_avx512,
    &sdc__nn_avx2,
#endif
    &sdc__nn_base,
};

const struct sdc__nn_isa *sdc__nn_isa(const char *at_most) {
    const size_t last = sizeof sets / sizeof *sets - 1;
    size_t i = 0;
    while (at_most && i < last && strcmp(sets[i]->name, at_most) != 0)
        i++;
    while (i < last && !sets[i]->here())
        i++;
    return sets[i];
}

/* Places of the pixels of a plane inside a border. */
static uint32_t *places(size_t height, size_t width, size_t border) {
    uint32_t *place = sdc__alloc(height * width, sizeof *place);
    if (!place)
        return NULL;
    for (size_t i = 0; i < height; i++)
        for (size_t j = 0; j < width; j++)
            place[i * width + j] = (uint32_t)((i + border) * (width + 2 * border) + j + border);
    return place;
}

void sdc__nn_lanes_release(struct sdc_nn_plan *plan) {
    struct sdc__nn_lanes *c = plan->own;
    if (!c)
        return;
    float *const blocks[] = {c->x, c->y, c->dy, c->w, c->dw, c->db, c->winner};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sdc__free(blocks[i]);
    sdc__nn_conv_free(c->conv);
    sdc__free(c->x_place);
    sdc__free(c->dy_place);
    sdc__free(c);
    plan->own = NULL;
}

static bool conv_memory(const struct sdc_nn_plan *plan, struct sdc__nn_lanes *c) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    const size_t vector = plan->engine->kernels->lanes * sizeof(float);
    const size_t y = l->out_channels * oh * ow, dx = l->channels * l->height * l->width;
    c->border = l->kernel - 1 - l->padding;
    return (c->x = sdc__alloc_tensor(l->channels * (l->height + 2 * l->padding) *
                                         (l->width + 2 * l->padding),
                                     vector)) &&
           (c->y = sdc__alloc_tensor(y > dx ? y : dx, vector)) &&
           (c->dy = sdc__alloc_tensor(l->out_channels * (oh + 2 * c->border) * (ow + 2 * c->border),
                                      vector)) &&
           (c->w = sdc__alloc_tensor(plan->sizes.w, sizeof(float))) &&
           (c->dw = sdc__alloc_tensor(plan->sizes.w, vector)) &&
           (c->db = sdc__alloc_tensor(plan->sizes.b, vector)) &&
           (c->x_place = places(l->height, l->width, l->padding)) &&
           (c->dy_place = places(oh, ow, c->border));
}

static bool pool_memory(const struct sdc_nn_plan *plan, struct sdc__nn_lanes *c) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t plane = plan->sizes.out_height * plan->sizes.out_width;
    const size_t lanes = plan->engine->kernels->lanes;
    return (c->x = sdc__alloc_tensor(l->height * l->width, lanes * sizeof(float))) &&
           (c->y = sdc__alloc_tensor(plane, lanes * sizeof(float))) &&
           (c->winner = sdc__alloc_tensor((l->batch + lanes - 1) / lanes * l->channels * plane,
                                          lanes * sizeof(float))) &&
           (c->x_place = places(l->height, l->width, 0));
}

enum sdc_status sdc__nn_lanes_init(struct sdc_nn_plan *plan, struct sdc_error *err) {
    const enum sdc_nn_kind kind = plan->layer.kind;
    if (kind != SDC_NN_CONV2D && kind != SDC_NN_MAXPOOL2 && kind != SDC_NN_RELU_MAXPOOL2)
        return SDC_OK;
    struct sdc__nn_lanes *own = plan->own = sdc__calloc(1, sizeof *own);
    if (own && kind == SDC_NN_CONV2D && sdc__nn_conv_suits(&plan->layer)) {
        const enum sdc_status st = sdc__nn_conv_new(plan, &own->conv, err);
        if (st != SDC_OK)
            sdc__nn_lanes_release(plan);
        return st;
    }
    if (own && (kind == SDC_NN_CONV2D ? conv_memory : pool_memory)(plan, own))
        return SDC_OK;
    sdc__nn_lanes_release(plan);
    return SDC_NOMEM(err, kind == SDC_NN_CONV2D ? "a convolution" : "a pooling");
}
