/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/nn.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "nn/nn_impl.h"

static const struct sdc_nn_ops *const implementations[] = {&sdc_nn_onednn, &sdc_nn_ref};

#define N_IMPLEMENTATIONS (sizeof implementations / sizeof *implementations)

/* What each kind has and needs. */
static const struct kind {
    const char *name;
    bool weights;  /* w and b */
    bool outs;     /* out_channels */
    bool images;   /* height and width must be given */
    bool kernel;   /* kernel and padding */
    bool stride;   /* may have one */
    bool norm;     /* running statistics */
    bool drop;     /* a probability */
    bool saved;    /* backward needs what forward kept */
    bool labels;   /* and a scalar y */
    bool reads_dy; /* backward cannot do without */
    size_t window; /* poolings: side, 0 for the whole plane or for no pooling */
} kinds[SDC__NN_N_KINDS] = {
    [SDC_NN_CONV2D] = {.name = "conv2d",
                       .weights = true,
                       .outs = true,
                       .images = true,
                       .kernel = true,
                       .stride = true,
                       .reads_dy = true},
    [SDC_NN_LINEAR] = {.name = "linear", .weights = true, .outs = true, .reads_dy = true},
    [SDC_NN_RELU] = {.name = "relu", .reads_dy = true},
    [SDC_NN_MAXPOOL2] =
        {.name = "maxpool2", .images = true, .window = 2, .saved = true, .reads_dy = true},
    [SDC_NN_RELU_MAXPOOL2] =
        {.name = "relu+maxpool2", .images = true, .window = 2, .saved = true, .reads_dy = true},
    [SDC_NN_XENT] = {.name = "cross-entropy", .labels = true, .saved = true},
    [SDC_NN_BATCHNORM] = {.name = "batch normalisation",
                          .weights = true,
                          .norm = true,
                          .saved = true,
                          .reads_dy = true},
    [SDC_NN_MAXPOOL3] =
        {.name = "maxpool3", .images = true, .window = 3, .saved = true, .reads_dy = true},
    [SDC_NN_AVGPOOL] = {.name = "avgpool", .images = true, .reads_dy = true},
    [SDC_NN_DROPOUT] = {.name = "dropout", .drop = true, .saved = true, .reads_dy = true},
    [SDC_NN_SUBSAMPLE] =
        {.name = "subsample", .outs = true, .images = true, .stride = true, .reads_dy = true},
};

const struct sdc_nn_ops *sdc_nn_at(size_t i) {
    return i < N_IMPLEMENTATIONS ? implementations[i] : NULL;
}

const struct sdc_nn_ops *sdc_nn_find(const char *name) {
    for (size_t i = 0; i < N_IMPLEMENTATIONS; i++)
        if (strcmp(implementations[i]->name, name) == 0)
            return implementations[i];
    return NULL;
}

const char *sdc_nn_name(const struct sdc_nn_ops *ops) {
    return ops->name;
}

const char *sdc_nn_summary(const struct sdc_nn_ops *ops) {
    return ops->summary;
}

unsigned sdc_nn_caps(const struct sdc_nn_ops *ops) {
    return ops->caps;
}

void sdc_nn_version(const struct sdc_nn_ops *ops, char *text, size_t size) {
    ops->version(text, size);
}

size_t sdc_nn_type_size(enum sdc_nn_type type) {
    return type == SDC_NN_F64 ? sizeof(double) : sizeof(float);
}

/* Product of four sizes; false over 2^31 - 1, the bound of the libraries behind this. */
static bool product(size_t a, size_t b, size_t c, size_t d, size_t *out) {
    size_t p;
    if (__builtin_mul_overflow(a, b, &p) || __builtin_mul_overflow(p, c, &p) ||
        __builtin_mul_overflow(p, d, &p) || p > INT32_MAX)
        return false;
    *out = p;
    return true;
}

/* Members that must be given, and those that must not. */
static enum sdc_status check_members(const struct sdc_nn_layer *l, const struct kind *k,
                                     struct sdc_error *err) {
    const struct {
        const char *name;
        size_t value;
        bool needed, allowed;
    } members[] = {
        {"batch", l->batch, true, true},
        {"channels", l->channels, true, true},
        {"height", l->height, k->images, !k->labels},
        {"width", l->width, k->images, !k->labels},
        {"out_channels", l->out_channels, k->outs, k->outs},
        {"kernel", l->kernel, k->kernel, k->kernel},
        {"padding", l->padding, false, k->kernel},
        {"stride", l->stride, false, k->stride},
        {"no_bias", l->no_bias, false, k->kernel},
        {"eval", l->eval, false, k->norm || k->drop},
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (members[i].needed && members[i].value == 0)
            return SDC_ERR(err, SDC_INVALID, "layer %s: %s is 0, expected at least 1", k->name,
                           members[i].name);
        if (!members[i].allowed && members[i].value != 0)
            return SDC_ERR(err, SDC_INVALID, "layer %s: %s is %zu, expected 0: it has none",
                           k->name, members[i].name, members[i].value);
    }
    if (!(l->drop >= 0 && l->drop < 1) || (l->drop != 0 && !k->drop))
        return SDC_ERR(err, SDC_INVALID, "layer %s: drop is %g, expected %s", k->name, l->drop,
                       k->drop ? "at least 0 and less than 1" : "0: it has none");
    return SDC_OK;
}

static enum sdc_status conv_out(const struct sdc_nn_layer *l, size_t in, size_t *out,
                                struct sdc_error *err) {
    if (l->padding >= l->kernel)
        return SDC_ERR(err, SDC_INVALID,
                       "layer conv2d: padding is %zu, expected less than the kernel of %zu",
                       l->padding, l->kernel);
    if (in > INT32_MAX || l->kernel > INT32_MAX || in + 2 * l->padding < l->kernel)
        return SDC_ERR(err, SDC_INVALID, "layer conv2d: kernel %zu does not fit an image of %zu",
                       l->kernel, in + 2 * l->padding);
    *out = (in + 2 * l->padding - l->kernel) / (l->stride ? l->stride : 1) + 1;
    return SDC_OK;
}

static enum sdc_status pool_out(const struct kind *k, size_t h, size_t w, struct sdc_nn_sizes *s,
                                struct sdc_error *err) {
    if (h < k->window || w < k->window)
        return SDC_ERR(err, SDC_INVALID,
                       "layer %s: image is %zu x %zu, expected at least %zu x %zu", k->name, h, w,
                       k->window, k->window);
    s->out_height = (h - k->window) / 2 + 1;
    s->out_width = (w - k->window) / 2 + 1;
    return SDC_OK;
}

/* Elements per channel of a batch to normalise, and of the channels added by a shortcut. */
static enum sdc_status check_shape(const struct sdc_nn_layer *l, size_t h, size_t w,
                                   struct sdc_error *err) {
    if (l->kind == SDC_NN_BATCHNORM && !l->eval && l->batch * h * w < 2)
        return SDC_ERR(err, SDC_INVALID,
                       "layer batch normalisation: one value a channel, expected at least 2 in "
                       "training");
    if (l->kind == SDC_NN_SUBSAMPLE &&
        (l->out_channels < l->channels || (l->out_channels - l->channels) % 2 != 0))
        return SDC_ERR(err, SDC_INVALID,
                       "layer subsample: out_channels is %zu, expected %zu and an even number more",
                       l->out_channels, l->channels);
    return SDC_OK;
}

enum sdc_status sdc_nn_layer_sizes(const struct sdc_nn_layer *layer, struct sdc_nn_sizes *sizes,
                                   struct sdc_error *err) {
    if ((size_t)layer->kind >= SDC__NN_N_KINDS)
        return SDC_ERR(err, SDC_INVALID, "layer kind is %d, expected less than %d",
                       (int)layer->kind, SDC__NN_N_KINDS);
    const struct kind *k = &kinds[layer->kind];
    struct sdc_nn_sizes s = {.out_height = 1, .out_width = 1};
    SDC_TRY(check_members(layer, k, err));
    const size_t h = layer->height ? layer->height : 1, w = layer->width ? layer->width : 1;
    const size_t step = layer->stride ? layer->stride : 1;
    size_t out_channels = k->outs ? layer->out_channels : layer->channels;
    SDC_TRY(check_shape(layer, h, w, err));
    if (k->kernel) {
        SDC_TRY(conv_out(layer, h, &s.out_height, err));
        SDC_TRY(conv_out(layer, w, &s.out_width, err));
    } else if (k->window) {
        SDC_TRY(pool_out(k, h, w, &s, err));
    } else if (layer->kind != SDC_NN_LINEAR && layer->kind != SDC_NN_AVGPOOL) {
        s.out_height = (h - 1) / step + 1;
        s.out_width = (w - 1) / step + 1;
    }
    const size_t batch = k->labels ? 1 : layer->batch;
    if (k->labels)
        out_channels = 1;
    bool fits = product(layer->batch, layer->channels, h, w, &s.x) &&
                product(batch, out_channels, s.out_height, s.out_width, &s.y);
    if (k->kernel)
        fits = fits && product(out_channels, layer->channels, layer->kernel, layer->kernel, &s.w);
    else if (layer->kind == SDC_NN_LINEAR)
        fits = fits && product(out_channels, layer->channels, h, w, &s.w);
    else if (k->weights)
        s.w = layer->channels;
    if (!fits)
        return SDC_ERR(err, SDC_LIMIT, "layer %s: a tensor has over %d elements", k->name,
                       INT32_MAX);
    s.b = k->weights && !layer->no_bias ? out_channels : 0;
    s.run = k->norm ? layer->channels : 0;
    *sizes = s;
    return SDC_OK;
}

enum sdc_status sdc_nn_engine_new(const struct sdc_nn_ops *ops, enum sdc_nn_type type,
                                  struct sdc_nn_engine **out, struct sdc_error *err) {
    *out = NULL;
    if (!(ops->caps & (type == SDC_NN_F64 ? SDC_NN_CAN_F64 : SDC_NN_CAN_F32)))
        return SDC_ERR(err, SDC_UNSUPPORTED, "kernels %s do not compute in %s", ops->name,
                       type == SDC_NN_F64 ? "f64" : "f32");
    struct sdc_nn_engine *e = sdc__calloc(1, sizeof *e);
    if (!e)
        return SDC_NOMEM(err, "an engine");
    e->ops = ops;
    e->type = type;
    e->kernels = ops->kernels(type);
    *out = e;
    return SDC_OK;
}

void sdc_nn_engine_free(struct sdc_nn_engine *engine) {
    for (size_t i = 0; engine && i < SDC__NN_SCRATCH; i++)
        sdc__free(engine->scratch[i]);
    sdc__free(engine);
}

enum sdc_status sdc__nn_scratch(struct sdc_nn_engine *engine, unsigned slot, size_t bytes,
                                struct sdc_error *err) {
    if (bytes <= engine->scratch_size[slot])
        return SDC_OK;
    sdc__free(engine->scratch[slot]);
    engine->scratch_size[slot] = 0;
    engine->scratch[slot] = sdc__alloc_tensor(bytes, 1);
    if (!engine->scratch[slot])
        return SDC_NOMEM(err, "scratch memory");
    engine->scratch_size[slot] = bytes;
    return SDC_OK;
}

enum sdc_nn_type sdc_nn_engine_type(const struct sdc_nn_engine *engine) {
    return engine->type;
}

/* What every implementation keeps between forward and backward. */
static enum sdc_status plan_memory(struct sdc_nn_plan *p, struct sdc_error *err) {
    const struct kind *k = &kinds[p->layer.kind];
    const size_t size = sdc_nn_type_size(p->engine->type);
    const bool in_lanes = k->window == 2 && p->engine->kernels->lanes > 0;
    if ((k->window || k->drop) && !in_lanes && !(p->winner = sdc__alloc_tensor(p->sizes.y, 1)))
        return SDC_NOMEM(err, "what a layer keeps");
    if (k->norm && !(p->stats = sdc__alloc_tensor(2 * p->layer.channels, size)))
        return SDC_NOMEM(err, "a batch's statistics");
    if (k->labels && !(p->log_p = sdc__alloc_tensor(p->sizes.x, size)))
        return SDC_NOMEM(err, "a softmax");
    if (k->kernel && !(p->row = sdc__alloc_tensor(p->sizes.out_width, size)))
        return SDC_NOMEM(err, "a convolution");
    return SDC_OK;
}

static void free_memory(struct sdc_nn_plan *p) {
    sdc__free(p->winner);
    sdc__free(p->stats);
    sdc__free(p->log_p);
    sdc__free(p->row);
    sdc__free(p);
}

enum sdc_status sdc_nn_plan_new(struct sdc_nn_engine *engine, const struct sdc_nn_layer *layer,
                                struct sdc_nn_plan **out, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    struct sdc_nn_sizes sizes;
    *out = NULL;
    SDC_TRY(sdc_nn_layer_sizes(layer, &sizes, err));
    struct sdc_nn_plan *p = sdc__calloc(1, sizeof *p);
    if (!p)
        return SDC_NOMEM(err, "a plan");
    p->engine = engine;
    p->layer = *layer;
    p->layer.height = layer->height ? layer->height : 1;
    p->layer.width = layer->width ? layer->width : 1;
    p->layer.stride = layer->stride ? layer->stride : 1;
    p->sizes = sizes;
    SDC_TRY_OUT(st, plan_memory(p, err));
    if (engine->ops->plan_init)
        SDC_TRY_OUT(st, engine->ops->plan_init(p, err));
    *out = p;
    p = NULL;
out:
    if (p)
        free_memory(p);
    return st;
}

void sdc_nn_plan_free(struct sdc_nn_plan *plan) {
    if (!plan)
        return;
    if (plan->engine->ops->plan_release)
        plan->engine->ops->plan_release(plan);
    free_memory(plan);
}

const struct sdc_nn_sizes *sdc_nn_plan_sizes(const struct sdc_nn_plan *plan) {
    return &plan->sizes;
}

static enum sdc_status check_labels(const struct sdc_nn_plan *plan, const int32_t *labels,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < plan->layer.batch; i++)
        if (labels[i] < 0 || (size_t)labels[i] >= plan->layer.channels)
            return SDC_ERR(err, SDC_INVALID, "label %zu of the batch is %d, expected 0 to %zu", i,
                           (int)labels[i], plan->layer.channels - 1);
    return SDC_OK;
}

enum sdc_status sdc_nn_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io,
                               struct sdc_error *err) {
    const struct kind *k = &kinds[plan->layer.kind];
    const struct sdc_nn_layer *l = &plan->layer;
    const bool no_b = k->weights && !l->no_bias && !io->b;
    const bool no_run = k->norm && (!io->run_mean || !io->run_var || (!l->eval && !io->run_count));
    if (!io->x || !io->y || (k->weights && !io->w) || no_b || no_run || (k->labels && !io->labels))
        SDC_BUG("forward of %s: an operand is missing", k->name);
    if (k->labels)
        SDC_TRY(check_labels(plan, io->labels, err));
    plan->engine->kernels->forward[plan->layer.kind](plan, io);
    plan->went_forward = true;
    return SDC_OK;
}

enum sdc_status sdc_nn_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io,
                                struct sdc_error *err) {
    const struct kind *k = &kinds[plan->layer.kind];
    const bool no_db = !plan->layer.no_bias && !io->db;
    if ((k->weights && (!io->x || !io->w || !io->dw || no_db)) || (!k->weights && !io->dx) ||
        (k->reads_dy && !io->dy) || (k->labels && !io->labels) ||
        (plan->layer.kind == SDC_NN_RELU && !io->y))
        SDC_BUG("backward of %s: an operand is missing", k->name);
    if (k->saved && (!plan->went_forward || plan->layer.eval))
        SDC_BUG("backward of %s without a forward of training", k->name);
    if (k->labels)
        SDC_TRY(check_labels(plan, io->labels, err));
    plan->engine->kernels->backward[plan->layer.kind](plan, io);
    return SDC_OK;
}

void sdc_nn_sgd_step(struct sdc_nn_engine *engine, const struct sdc_nn_sgd *sgd, size_t n, void *p,
                     const void *g, void *m, bool first) {
    if (n > 0 && (!p || !g || (sgd->momentum != 0 && !m)))
        SDC_BUG("SGD step: an operand is missing");
    engine->kernels->sgd_step(sgd, n, p, g, m, first);
}

enum sdc_status sdc_nn_adam_step(struct sdc_nn_engine *engine, const struct sdc_nn_adam *a,
                                 size_t n, void *p, const void *g, void *m, void *v, double step,
                                 struct sdc_error *err) {
    if (n > 0 && (!p || !g || !m || !v))
        SDC_BUG("Adam step: an operand is missing");
    const double correction1 = 1 - pow(a->beta1, step), correction2 = 1 - pow(a->beta2, step);
    if (correction1 == 0 || correction2 < 0)
        return SDC_ERR(err, SDC_INVALID,
                       "step %g of Adam: its bias corrections are %g and %g, which end PyTorch too",
                       step, correction1, correction2);
    const struct sdc__nn_adam_now now = {
        .decay = a->decoupled ? 0 : a->weight_decay,
        .keep = a->decoupled ? 1 - a->lr * a->weight_decay : 1,
        .beta1 = a->beta1,
        .one_minus_beta1 = 1 - a->beta1,
        .beta2 = a->beta2,
        .one_minus_beta2 = 1 - a->beta2,
        .root = sqrt(correction2),
        .eps = a->eps,
        .minus_step_size = -(a->lr / correction1),
    };
    engine->kernels->adam_step(&now, n, p, g, m, v);
    return SDC_OK;
}

void sdc_nn_add(struct sdc_nn_engine *engine, size_t n, const void *a, const void *b, void *y) {
    engine->kernels->add(n, a, b, y);
}

double sdc_nn_log(double x) {
    return sdc__nn_log(x);
}

void sdc_nn_scale(struct sdc_nn_engine *engine, size_t n, void *x, double factor) {
    engine->kernels->scale(n, x, factor);
}
