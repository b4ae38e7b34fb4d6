/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/onednn_conv.h"

#include <dnnl.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "nn/lanes.h"

/* Below this many channels the vectors of oneDNN's layouts are partly empty. */
#define FULL_VECTOR 16

/* Scratch of the engine. */
enum { SLOT_X, SLOT_Y, SLOT_W, SLOT_WORK };

/* One tensor of a primitive: as the caller has it, and as the primitive wants it. */
struct tensor {
    int arg; /* DNNL_ARG_... */
    unsigned slot;
    bool output;
    dnnl_memory_t plain, inner; /* inner NULL: the caller's layout will do */
    dnnl_primitive_t reorder;
};

/* A primitive with its tensors. */
struct pass {
    dnnl_primitive_t primitive;
    dnnl_memory_t work;
    struct tensor tensors[4];
    unsigned n;
};

struct sdc__nn_conv {
    struct sdc_nn_engine *engine;
    dnnl_engine_t cpu;
    dnnl_stream_t stream;
    struct pass forward, by_data, by_weights;
};

/* The convolution in oneDNN's words. */
struct shape {
    dnnl_dims_t x, w, b, y, strides, padding;
    bool bias;
};

#define DNNL_TRY(call)                                                                             \
    do {                                                                                           \
        const dnnl_status_t status_ = (call);                                                      \
        if (status_ == dnnl_out_of_memory)                                                         \
            return SDC_NOMEM(err, "a convolution");                                                \
        if (status_ != dnnl_success)                                                               \
            return SDC_ERR(err, SDC_INTERNAL, "oneDNN: %s answers %d", #call, (int)status_);       \
    } while (0)

#define DNNL_MUST(call)                                                                            \
    do {                                                                                           \
        if ((call) != dnnl_success)                                                                \
            SDC_BUG("oneDNN refused %s", #call);                                                   \
    } while (0)

bool sdc__nn_conv_suits(const struct sdc_nn_layer *l) {
    return l->stride > 1 || (l->channels >= FULL_VECTOR && l->out_channels >= FULL_VECTOR);
}

static void pass_release(struct pass *p) {
    for (unsigned i = 0; i < p->n; i++) {
        struct tensor *t = &p->tensors[i];
        if (t->reorder)
            dnnl_primitive_destroy(t->reorder);
        if (t->inner)
            dnnl_memory_destroy(t->inner);
        if (t->plain)
            dnnl_memory_destroy(t->plain);
    }
    if (p->work)
        dnnl_memory_destroy(p->work);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
}

void sdc__nn_conv_free(struct sdc__nn_conv *c) {
    if (!c)
        return;
    pass_release(&c->forward);
    pass_release(&c->by_data);
    pass_release(&c->by_weights);
    if (c->stream)
        dnnl_stream_destroy(c->stream);
    if (c->cpu)
        dnnl_engine_destroy(c->cpu);
    sdc__free(c);
}

/* ---- making ---- */

static enum sdc_status make_reorder(struct sdc__nn_conv *c, struct tensor *t,
                                    const dnnl_memory_desc_t *plain,
                                    const dnnl_memory_desc_t *inner, struct sdc_error *err) {
    dnnl_primitive_desc_t pd;
    const dnnl_memory_desc_t *from = t->output ? inner : plain, *to = t->output ? plain : inner;
    SDC_TRY(sdc__nn_scratch(c->engine, t->slot, dnnl_memory_desc_get_size(inner), err));
    DNNL_TRY(dnnl_memory_create(&t->inner, inner, c->cpu, DNNL_MEMORY_NONE));
    DNNL_TRY(dnnl_reorder_primitive_desc_create(&pd, from, c->cpu, to, c->cpu, NULL));
    const dnnl_status_t made = dnnl_primitive_create(&t->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(made);
    return SDC_OK;
}

/* Adds a tensor with these dimensions; the primitive wants it as `inner` says. */
static enum sdc_status add_tensor(struct sdc__nn_conv *c, struct pass *p, int arg, unsigned slot,
                                  bool output, const dnnl_memory_desc_t *inner,
                                  struct sdc_error *err) {
    static const dnnl_format_tag_t tags[] = {dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd};
    struct tensor *t = &p->tensors[p->n++];
    dnnl_memory_desc_t plain;
    *t = (struct tensor){.arg = arg, .slot = slot, .output = output};
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&plain, inner->ndims, inner->dims, dnnl_f32,
                                          tags[inner->ndims - 1]));
    DNNL_TRY(dnnl_memory_create(&t->plain, &plain, c->cpu, DNNL_MEMORY_NONE));
    if (dnnl_memory_desc_equal(&plain, inner))
        return SDC_OK;
    return make_reorder(c, t, &plain, inner, err);
}

static enum sdc_status make_primitive(struct sdc__nn_conv *c, struct pass *p,
                                      const_dnnl_primitive_desc_t pd, struct sdc_error *err) {
    const dnnl_memory_desc_t *work = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    SDC_TRY(sdc__nn_scratch(c->engine, SLOT_WORK, dnnl_memory_desc_get_size(work), err));
    DNNL_TRY(dnnl_memory_create(&p->work, work, c->cpu, DNNL_MEMORY_NONE));
    DNNL_TRY(dnnl_primitive_create(&p->primitive, pd));
    return SDC_OK;
}

static const dnnl_memory_desc_t *wanted(const_dnnl_primitive_desc_t pd, dnnl_query_t what,
                                        int index) {
    return dnnl_primitive_desc_query_md(pd, what, index);
}

static enum sdc_status fill_forward(struct sdc__nn_conv *c, const_dnnl_primitive_desc_t pd,
                                    bool bias, struct sdc_error *err) {
    struct pass *p = &c->forward;
    SDC_TRY(make_primitive(c, p, pd, err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_SRC, SLOT_X, false, wanted(pd, dnnl_query_src_md, 0), err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_WEIGHTS, SLOT_W, false, wanted(pd, dnnl_query_weights_md, 0),
                       err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_DST, SLOT_Y, true, wanted(pd, dnnl_query_dst_md, 0), err));
    if (!bias)
        return SDC_OK;
    return add_tensor(c, p, DNNL_ARG_BIAS, SLOT_WORK, false, wanted(pd, dnnl_query_weights_md, 1),
                      err);
}

static enum sdc_status fill_by_data(struct sdc__nn_conv *c, const_dnnl_primitive_desc_t pd,
                                    bool bias, struct sdc_error *err) {
    struct pass *p = &c->by_data;
    (void)bias;
    SDC_TRY(make_primitive(c, p, pd, err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_DIFF_DST, SLOT_Y, false,
                       wanted(pd, dnnl_query_diff_dst_md, 0), err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_WEIGHTS, SLOT_W, false, wanted(pd, dnnl_query_weights_md, 0),
                       err));
    return add_tensor(c, p, DNNL_ARG_DIFF_SRC, SLOT_X, true, wanted(pd, dnnl_query_diff_src_md, 0),
                      err);
}

static enum sdc_status fill_by_weights(struct sdc__nn_conv *c, const_dnnl_primitive_desc_t pd,
                                       bool bias, struct sdc_error *err) {
    struct pass *p = &c->by_weights;
    SDC_TRY(make_primitive(c, p, pd, err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_SRC, SLOT_X, false, wanted(pd, dnnl_query_src_md, 0), err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_DIFF_DST, SLOT_Y, false,
                       wanted(pd, dnnl_query_diff_dst_md, 0), err));
    SDC_TRY(add_tensor(c, p, DNNL_ARG_DIFF_WEIGHTS, SLOT_W, true,
                       wanted(pd, dnnl_query_diff_weights_md, 0), err));
    if (!bias)
        return SDC_OK;
    return add_tensor(c, p, DNNL_ARG_DIFF_BIAS, SLOT_WORK, true,
                      wanted(pd, dnnl_query_diff_weights_md, 1), err);
}

/* Descriptors of the three, layouts left to oneDNN. */
static enum sdc_status describe(const struct shape *s, dnnl_convolution_desc_t d[3],
                                struct sdc_error *err) {
    dnnl_memory_desc_t x, w, b, y;
    const dnnl_memory_desc_t *bias = s->bias ? &b : NULL;
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&x, 4, s->x, dnnl_f32, dnnl_format_tag_any));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&w, 4, s->w, dnnl_f32, dnnl_format_tag_any));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&b, 1, s->b, dnnl_f32, dnnl_a));
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&y, 4, s->y, dnnl_f32, dnnl_format_tag_any));
    DNNL_TRY(dnnl_convolution_forward_desc_init(&d[0], dnnl_forward_training, direct, &x, &w, bias,
                                                &y, s->strides, s->padding, s->padding));
    DNNL_TRY(dnnl_convolution_backward_data_desc_init(&d[1], direct, &x, &w, &y, s->strides,
                                                      s->padding, s->padding));
    DNNL_TRY(dnnl_convolution_backward_weights_desc_init(&d[2], direct, &x, &w, bias, &y,
                                                         s->strides, s->padding, s->padding));
    return SDC_OK;
}

static enum sdc_status fill(struct sdc__nn_conv *c, const struct shape *s, dnnl_primitive_attr_t a,
                            struct sdc_error *err) {
    static enum sdc_status (*const fills[])(struct sdc__nn_conv *, const_dnnl_primitive_desc_t,
                                            bool, struct sdc_error *) = {fill_forward, fill_by_data,
                                                                         fill_by_weights};
    dnnl_convolution_desc_t d[3];
    dnnl_primitive_desc_t pd[3] = {NULL};
    enum sdc_status st = describe(s, d, err);
    for (size_t i = 0; i < 3 && st == SDC_OK; i++) {
        const dnnl_status_t made = dnnl_primitive_desc_create(&pd[i], &d[i], a, c->cpu, pd[0]);
        if (made != dnnl_success)
            st = SDC_ERR(err, made == dnnl_out_of_memory ? SDC_NO_MEMORY : SDC_INTERNAL,
                         "oneDNN: a convolution's descriptor %zu answers %d", i, (int)made);
        else
            st = fills[i](c, pd[i], s->bias, err);
    }
    for (size_t i = 0; i < 3; i++)
        if (pd[i])
            dnnl_primitive_desc_destroy(pd[i]);
    return st;
}

static enum sdc_status init(struct sdc__nn_conv *c, const struct sdc_nn_plan *plan,
                            struct sdc_error *err) {
    const struct sdc_nn_layer *l = &plan->layer;
    const dnnl_dim_t n = (dnnl_dim_t)l->batch, in = (dnnl_dim_t)l->channels;
    const dnnl_dim_t out = (dnnl_dim_t)l->out_channels, k = (dnnl_dim_t)l->kernel;
    const dnnl_dim_t step = (dnnl_dim_t)l->stride, pad = (dnnl_dim_t)l->padding;
    const dnnl_dim_t oh = (dnnl_dim_t)plan->sizes.out_height;
    const dnnl_dim_t ow = (dnnl_dim_t)plan->sizes.out_width;
    const struct shape s = {
        .x = {n, in, (dnnl_dim_t)l->height, (dnnl_dim_t)l->width},
        .w = {out, in, k, k},
        .b = {out},
        .y = {n, out, oh, ow},
        .strides = {step, step},
        .padding = {pad, pad},
        .bias = !l->no_bias,
    };
    dnnl_primitive_attr_t attr;
    c->engine = plan->engine;
    DNNL_TRY(dnnl_engine_create(&c->cpu, dnnl_cpu, 0));
    DNNL_TRY(dnnl_stream_create(&c->stream, c->cpu, dnnl_stream_default_flags));
    DNNL_TRY(dnnl_primitive_attr_create(&attr));
    enum sdc_status st = SDC_OK;
    if (dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) != dnnl_success)
        st = SDC_ERR(err, SDC_INTERNAL, "oneDNN has no scratchpad mode");
    if (st == SDC_OK)
        st = fill(c, &s, attr, err);
    dnnl_primitive_attr_destroy(attr);
    return st;
}

enum sdc_status sdc__nn_conv_new(const struct sdc_nn_plan *plan, struct sdc__nn_conv **out,
                                 struct sdc_error *err) {
    *out = NULL;
    struct sdc__nn_conv *c = sdc__calloc(1, sizeof *c);
    if (!c)
        return SDC_NOMEM(err, "a convolution");
    sdc__nn_one_thread(); /* a primitive is made for so many threads */
    enum sdc_status st = init(c, plan, err);
    if (st != SDC_OK) {
        sdc__nn_conv_free(c);
        return st;
    }
    *out = c;
    return SDC_OK;
}

/* ---- computing ---- */

static void reorder(struct sdc__nn_conv *c, const struct tensor *t) {
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_FROM, t->output ? t->inner : t->plain},
        {DNNL_ARG_TO, t->output ? t->plain : t->inner},
    };
    DNNL_MUST(dnnl_primitive_execute(t->reorder, c->stream, 2, args));
}

/* data[i]: the caller's tensor i of the pass; oneDNN writes to outputs alone. */
static void run(struct sdc__nn_conv *c, struct pass *p, const void *const data[4]) {
    dnnl_exec_arg_t args[5];
    void *const *scratch = c->engine->scratch;
    sdc__nn_one_thread();
    for (unsigned i = 0; i < p->n; i++) {
        struct tensor *t = &p->tensors[i];
        DNNL_MUST(dnnl_memory_set_data_handle(t->plain, (void *)(uintptr_t)data[i]));
        if (t->inner)
            DNNL_MUST(dnnl_memory_set_data_handle(t->inner, scratch[t->slot]));
        if (t->inner && !t->output)
            reorder(c, t);
        args[i] = (dnnl_exec_arg_t){t->arg, t->inner ? t->inner : t->plain};
    }
    DNNL_MUST(dnnl_memory_set_data_handle(p->work, scratch[SLOT_WORK]));
    args[p->n] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, p->work};
    DNNL_MUST(dnnl_primitive_execute(p->primitive, c->stream, (int)p->n + 1, args));
    for (unsigned i = 0; i < p->n; i++)
        if (p->tensors[i].inner && p->tensors[i].output)
            reorder(c, &p->tensors[i]);
    DNNL_MUST(dnnl_stream_wait(c->stream));
}

void sdc__nn_conv_forward(struct sdc__nn_conv *c, const struct sdc_nn_io *io) {
    run(c, &c->forward, (const void *const[4]){io->x, io->w, io->y, io->b});
}

void sdc__nn_conv_backward(struct sdc__nn_conv *c, const struct sdc_nn_io *io) {
    run(c, &c->by_weights, (const void *const[4]){io->x, io->dy, io->dw, io->db});
    if (io->dx)
        run(c, &c->by_data, (const void *const[4]){io->dy, io->w, io->dx, NULL});
}
