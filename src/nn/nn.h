/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of the native trainer: layers forward and backward, the loss, the optimizer's
 * update, behind one table with several implementations. Not for models, parameters or data: the
 * caller owns every tensor and says where it lies.
 *
 * Implementations: "onednn" (fast, f32; oneDNN's matrix product and kernels of our own) and "ref"
 * (plain C in a fixed order, f32 and f64, the same bits on every machine and compiler).
 *
 * Concepts. An *engine* is one implementation at work in one number type; a rank has one. A *plan*
 * is one layer of one shape, batch size included; it owns its scratch memory, so that forward and
 * backward allocate nothing. A tensor is a plain array, dense, in C order, of the engine's type.
 *
 * Life cycle: sdc_nn_find, sdc_nn_engine_new, sdc_nn_plan_new for each layer, then any number of
 * forward / backward / update, then the plans and at last the engine are freed.
 *
 * Threads: one engine, with its plans, is used by one thread at a time and computes in that thread
 * alone. Any number of engines work at the same time. The environment does not matter
 * (OMP_NUM_THREADS is overridden for the calling thread).
 *
 * Values: NaN, infinities, subnormals and signs of infinities come out where PyTorch 1.13 on a CPU
 * has them, forward and backward (tests/conform/nn). A result is a function of the operands, the
 * shape, and for "onednn" the processor: the same call gives the same bits again, in any thread.
 *
 *     struct sdc_nn_layer l = {.kind = SDC_NN_CONV2D, .batch = 64, .channels = 1, .height = 28,
 *                              .width = 28, .out_channels = 6, .kernel = 5, .padding = 2};
 *     SDC_TRY(sdc_nn_engine_new(sdc_nn_find("onednn"), SDC_NN_F32, &engine, err));
 *     SDC_TRY(sdc_nn_plan_new(engine, &l, &plan, err));
 *     SDC_TRY(sdc_nn_forward(plan, &(struct sdc_nn_io){.x = x, .w = w, .b = b, .y = y}, err));
 *     SDC_TRY(sdc_nn_backward(plan, &(struct sdc_nn_io){.x = x, .w = w, .dy = dy, .dw = dw,
 *                                                       .db = db}, err));      no dx: not computed
 */
#ifndef SDC_NN_NN_H
#define SDC_NN_NN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

enum sdc_nn_type {
    SDC_NN_F32,
    SDC_NN_F64,
};

/* What an implementation can do (sdc_nn_ops.caps). */
#define SDC_NN_CAN_F32      (1u << 0)
#define SDC_NN_CAN_F64      (1u << 1)
#define SDC_NN_CAN_PORTABLE (1u << 2) /* same bits on every machine */

enum sdc_nn_kind {
    /* y(n,o,i,j) = b(o) + sum of w(o,c,k,l) * x(n,c,stride*i+k-padding,stride*j+l-padding).
     * x (batch, channels, height, width); w (out_channels, channels, kernel, kernel);
     * b (out_channels), none with no_bias; y (batch, out_channels,
     * (height + 2 padding - kernel) / stride + 1, the same of width). As
     * torch.nn.functional.conv2d. A tap in the padding adds nothing, even where its
     * weight (or dy) is NaN or infinite: so it is in PyTorch's f32, whose oneDNN
     * skips these taps. (It has other paths, which multiply by the zeros: f64, a single image with
     * a kernel up to 3, images smaller than the kernel.) */
    SDC_NN_CONV2D,
    /* y = x w' + b. x (batch, channels * height * width); w (out_channels, features in); b
     * (out_channels); y (batch, out_channels). As torch.nn.functional.linear; 0 counts as 1 for
     * height and width, here and below. */
    SDC_NN_LINEAR,
    /* y = x < 0 ? 0 : x, so NaN and -0 are kept. x and y (batch, channels, height, width); y may be
     * x. Gradient: dx = y <= 0 ? 0 : dy, so a NaN passes dy on. dx may be dy. */
    SDC_NN_RELU,
    /* Maximum over 2x2 windows, stride 2; a last odd row or column belongs to no window and gets
     * gradient 0. x (batch, channels, height, width), y with height / 2 and width / 2. The first
     * of equal values wins; a NaN wins over any number, and the last NaN of a window over earlier
     * ones. */
    SDC_NN_MAXPOOL2,
    /* The pooling of the ReLU, in one pass; the same bits as the two in a row. */
    SDC_NN_RELU_MAXPOOL2,
    /* Softmax and cross-entropy, mean over the batch. x (batch, channels): logits; y: one element,
     * the loss; dx: gradient by the logits, times dy (one element; NULL means 1). As
     * torch.nn.functional.cross_entropy. */
    SDC_NN_XENT,
    /* Batch normalisation over each channel's batch and pixels: y = (x - mean) / sqrt(var + 1e-5)
     * * w + b. x and y (batch, channels, height, width); w, b, run_mean, run_var (channels).
     * Training: mean and (biased) variance of this batch; then run_mean = 0.1 mean + 0.9 run_mean,
     * run_var the same with the unbiased variance, and one is added to run_count. Such a batch has
     * at least two values a channel. eval: run_mean and run_var instead, and nothing is updated;
     * there is no backward. As torch.nn.BatchNorm2d (ATen/native/Normalization.cpp 1.13). */
    SDC_NN_BATCHNORM,
    /* Maximum over 3x3 windows, stride 2, no padding; y has (height - 3) / 2 + 1 rows. Values as in
     * SDC_NN_MAXPOOL2; windows overlap, and gradients are added in the order of the windows. */
    SDC_NN_MAXPOOL3,
    /* Mean of each plane: x (batch, channels, height, width), y (batch, channels). As
     * torch.nn.functional.adaptive_avg_pool2d(x, 1). */
    SDC_NN_AVGPOOL,
    /* y = x * m, where m is 0 with probability `drop`, else 1 / (1 - drop): a dropped NaN or
     * infinity is NaN, as in PyTorch. Element i is dropped if word i % 4 of block i / 4 of the
     * stream (sdc/rng.h: io's seed, purpose DROPOUT, block, trial) is below drop * 2^32. eval: y =
     * x. x and y (batch, channels, height, width). dx = dy * m. */
    SDC_NN_DROPOUT,
    /* The parameter-free shortcut of He et al. (option A): every stride-th row and column, from the
     * first on, and (out_channels - channels) / 2 channels of zeros before and after. */
    SDC_NN_SUBSAMPLE,
};

/* The shape of a layer. Members a kind does not use must be 0. */
struct sdc_nn_layer {
    enum sdc_nn_kind kind;
    size_t batch;
    size_t channels; /* or features, or classes */
    size_t height, width;
    size_t out_channels; /* convolution, linear, subsample */
    size_t kernel;       /* convolution: side of the square kernel */
    size_t padding;      /* convolution: zeros on every side, less than kernel */
    size_t stride;       /* convolution, subsample; 0 counts as 1 */
    bool no_bias;        /* convolution */
    bool eval;           /* batch normalisation, dropout: not for training */
    double drop;         /* dropout: probability, at least 0 and less than 1 */
};

/* Elements of each tensor of a layer, 0 where it has none. */
struct sdc_nn_sizes {
    size_t x, w, b, y;
    size_t run;                   /* run_mean, run_var */
    size_t out_height, out_width; /* of y; 1 where it is not an image */
};

/* Names a stream of random words (sdc/rng.h). */
struct sdc_nn_stream {
    uint64_t seed;
    uint32_t block, trial;
};

/* Operands of one call; each is an array of the engine's type, borrowed for the call, any
 * alignment a malloc gives. No output may overlap another operand, but where the kind says so. */
struct sdc_nn_io {
    const void *x;
    const void *w;         /* convolution, linear, batch normalisation */
    const void *b;         /* forward of the same, unless no_bias */
    void *y;               /* forward: written. Backward of SDC_NN_RELU: read, as forward left it */
    const int32_t *labels; /* cross-entropy: batch class numbers from 0 */
    const void *dy;        /* backward: gradient by y */
    void *dx;              /* backward: written, or NULL where it is not wanted */
    void *dw;              /* backward: written (not added to); where there is w */
    void *db;              /* as dw; where there is b */
    /* batch normalisation, forward: running statistics, updated in training; the counter is an
     * int64 whatever the engine's type, and unused in eval */
    void *run_mean, *run_var;
    int64_t *run_count;
    struct sdc_nn_stream stream; /* dropout, forward */
};

/* Plain or momentum SGD of torch.optim.SGD (dampening 0). */
struct sdc_nn_sgd {
    double lr;
    double momentum;
    double weight_decay;
    bool nesterov; /* only with momentum */
};

/* torch.optim.Adam and AdamW (without amsgrad and maximize). */
struct sdc_nn_adam {
    double lr;
    double beta1, beta2; /* 0 to below 1 */
    double eps;
    double weight_decay;
    bool decoupled; /* AdamW */
};

struct sdc_nn_ops;
struct sdc_nn_engine;
struct sdc_nn_plan;

/* Implementations in order of preference; NULL after the last. Static; thread-safe. */
const struct sdc_nn_ops *sdc_nn_at(size_t i);
/* By name; NULL if there is none such. */
const struct sdc_nn_ops *sdc_nn_find(const char *name);
const char *sdc_nn_name(const struct sdc_nn_ops *ops);
const char *sdc_nn_summary(const struct sdc_nn_ops *ops); /* one line */
unsigned sdc_nn_caps(const struct sdc_nn_ops *ops);       /* SDC_NN_CAN_... */
/* What is behind it, for provenance: library version and instruction set in use, such as
 * "oneDNN 2.6.3 avx512_core, avx512" (of the products, of the vector kernels); "plain C" for ref.
 */
void sdc_nn_version(const struct sdc_nn_ops *ops, char *text, size_t size);

/* Bytes of one element. */
size_t sdc_nn_type_size(enum sdc_nn_type type);

/* Checks the shape and computes sizes. SDC_INVALID: a size is 0 that must not be, or not 0 that
 * must be, or the padding or kernel does not fit. SDC_LIMIT: over 2^31 - 1 elements in a tensor. */
enum sdc_status sdc_nn_layer_sizes(const struct sdc_nn_layer *layer, struct sdc_nn_sizes *sizes,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* A new engine, owned by the caller. SDC_UNSUPPORTED: the implementation lacks this type.
 * SDC_NO_MEMORY. On failure *out is NULL. */
enum sdc_status sdc_nn_engine_new(const struct sdc_nn_ops *ops, enum sdc_nn_type type,
                                  struct sdc_nn_engine **out, struct sdc_error *err) SDC_MUST_CHECK;
/* Accepts NULL. Free its plans first. */
void sdc_nn_engine_free(struct sdc_nn_engine *engine);
enum sdc_nn_type sdc_nn_engine_type(const struct sdc_nn_engine *engine);

/* A plan for one layer, owned by the caller; the engine is borrowed until the plan is freed.
 * Statuses of sdc_nn_layer_sizes, and SDC_NO_MEMORY. On failure *out is NULL. */
enum sdc_status sdc_nn_plan_new(struct sdc_nn_engine *engine, const struct sdc_nn_layer *layer,
                                struct sdc_nn_plan **out, struct sdc_error *err) SDC_MUST_CHECK;
/* Accepts NULL. */
void sdc_nn_plan_free(struct sdc_nn_plan *plan);
const struct sdc_nn_sizes *sdc_nn_plan_sizes(const struct sdc_nn_plan *plan);

/* Computes y from x (w, b, labels). SDC_INVALID: a label is not a class; y is then unchanged. A
 * missing operand is a bug of the caller and aborts. y may be x for SDC_NN_DROPOUT too. */
enum sdc_status sdc_nn_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* Computes dx (if wanted), dw and db from dy. Reads: x and w for convolution, linear and batch
 * normalisation; y for SDC_NN_RELU; nothing but dy for the poolings, dropout and subsample; labels
 * for cross-entropy. The poolings, batch normalisation, dropout and cross-entropy go by what the
 * last forward of this plan kept (which element won, the batch's mean, what was dropped, the log of
 * the softmax), as PyTorch's saved tensors do, so a change to x or y between the two has no effect
 * on that; without an earlier forward, or with eval, the call is a bug of the caller. dx may be dy
 * for SDC_NN_BATCHNORM and SDC_NN_DROPOUT. */
enum sdc_status sdc_nn_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* One step of SGD on n elements, in the order and rounding of torch.optim.SGD (single tensor,
 * torch/optim/sgd.py 1.13), with the hyper-parameters rounded to the type:
 *     d = weight_decay ? fma(p, weight_decay, g) : g
 *     m = first ? d : round(m * momentum) + d        only if momentum is not 0; else m is unused
 *     d = nesterov ? fma(m, momentum, d) : m           only if momentum is not 0
 *     p = fma(d, -lr, p)
 * The fused multiply-add is what torch's add with alpha does on every x86 with AVX2 (measured with
 * Debian's 1.13.1: equal bits); torch without AVX2 rounds the product. `first` says that there is
 * no momentum buffer yet. g is only read. m may be NULL where momentum is 0. */
void sdc_nn_sgd_step(struct sdc_nn_engine *engine, const struct sdc_nn_sgd *sgd, size_t n, void *p,
                     const void *g, void *m, bool first);

/* One step of Adam or AdamW on n elements, in the order and rounding of torch.optim.Adam and AdamW
 * (single tensor, torch/optim/adam.py and adamw.py 1.13). What depends on no element is computed in
 * f64 as Python does, then rounded to the type:
 *     c1 = 1 - beta1^step, c2 = 1 - beta2^step
 *     d = decoupled || !weight_decay ? g : fma(p, weight_decay, g)
 *     q = decoupled ? p * (1 - lr * weight_decay) : p
 *     m = fma(d, 1 - beta1, m * beta1)
 *     v = fma((1 - beta2) * d, d, v * beta2)
 *     p = q + (-(lr / c1) * m) / (sqrt(v) / sqrt(c2) + eps)
 * m and v are 0 before the first step. step: this step's number, from 1 on, but any number that a
 * changed counter may hold is taken as PyTorch takes it. SDC_INVALID, and nothing is changed, where
 * Python raises an exception: c1 is 0 (a division) or c2 is negative (a root). */
enum sdc_status sdc_nn_adam_step(struct sdc_nn_engine *engine, const struct sdc_nn_adam *adam,
                                 size_t n, void *p, const void *g, void *m, void *v, double step,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* y = a + b, element by element; y may be a or b. */
void sdc_nn_add(struct sdc_nn_engine *engine, size_t n, const void *a, const void *b, void *y);

/* The natural logarithm with the same bits everywhere, which a libm does not promise: of positive
 * normal numbers within 2 ULP, of +0, infinities and NaN. */
double sdc_nn_log(double x);

/* x = x * factor, the factor rounded to the type first, each product rounded once. */
void sdc_nn_scale(struct sdc_nn_engine *engine, size_t n, void *x, double factor);

#endif
