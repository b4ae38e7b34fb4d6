/* SPDX-License-Identifier: Apache-2.0
 *
 * What an implementation of the kernel table looks like from inside. Not for users of the layer:
 * nn/nn.h is.
 *
 * A new implementation is one `const struct sdc_nn_ops` in its own file, a line in nn.c, and is
 * done when the tests below tests/conform/nn pass for it.
 */
#ifndef SDC_NN_NN_IMPL_H
#define SDC_NN_NN_IMPL_H

#include "nn/nn.h"

#define SDC__NN_SCRATCH 4
#define SDC__NN_N_KINDS (SDC_NN_SUBSAMPLE + 1)

typedef void sdc__nn_layer_fn(struct sdc_nn_plan *plan, const struct sdc_nn_io *io);

/* What a step of Adam has for all elements. */
struct sdc__nn_adam_now {
    double decay; /* added to the gradient times the parameter; 0: nothing is added */
    double keep;  /* the parameter is multiplied by it before; 1 without decoupled decay */
    double beta1, one_minus_beta1, beta2, one_minus_beta2;
    double root; /* of the second bias correction */
    double eps, minus_step_size;
};

/* The functions of one implementation for one number type, by kind of layer. Operands are checked
 * before: what the kind needs is there, labels are in range. */
struct sdc__nn_kernels {
    size_t lanes; /* images computed side by side (nn/lanes.h); 0 where there are none */
    sdc__nn_layer_fn *forward[SDC__NN_N_KINDS];
    sdc__nn_layer_fn *backward[SDC__NN_N_KINDS];
    void (*sgd_step)(const struct sdc_nn_sgd *sgd, size_t n, void *p, const void *g, void *m,
                     bool first);
    void (*adam_step)(const struct sdc__nn_adam_now *now, size_t n, void *p, const void *g, void *m,
                      void *v);
    void (*scale)(size_t n, void *x, double factor);
    void (*add)(size_t n, const void *a, const void *b, void *y);
};

struct sdc_nn_ops {
    const char *name;
    const char *summary;
    unsigned caps;
    void (*version)(char *text, size_t size);
    /* For a type that caps lists. */
    const struct sdc__nn_kernels *(*kernels)(enum sdc_nn_type type);
    /* Memory of its own for a plan, in plan->own; both may be NULL. On failure plan_init leaves
     * nothing behind. */
    enum sdc_status (*plan_init)(struct sdc_nn_plan *plan, struct sdc_error *err);
    void (*plan_release)(struct sdc_nn_plan *plan);
};

struct sdc_nn_engine {
    const struct sdc_nn_ops *ops;
    const struct sdc__nn_kernels *kernels;
    enum sdc_nn_type type;
    /* Memory of one call, shared by all plans, which grow it while they are made. */
    void *scratch[SDC__NN_SCRATCH];
    size_t scratch_size[SDC__NN_SCRATCH];
};

/* Makes scratch[slot] at least so long; what was in it may be lost. SDC_NO_MEMORY. */
enum sdc_status sdc__nn_scratch(struct sdc_nn_engine *engine, unsigned slot, size_t bytes,
                                struct sdc_error *err) SDC_MUST_CHECK;

struct sdc_nn_plan {
    struct sdc_nn_engine *engine;
    struct sdc_nn_layer layer; /* height, width and stride at least 1 */
    struct sdc_nn_sizes sizes;
    bool went_forward;
    /* poolings: for each y the winner's place in its window, row first; SDC__NN_DEAD where the
     * ReLU stops the gradient; NULL where the kernels keep it elsewhere (lanes). Dropout: 1 for
     * what is kept */
    uint8_t *winner;
    void *stats; /* batch normalisation: mean, then 1 / sqrt(var + eps), of each channel */
    void *log_p; /* cross-entropy: log of the softmax, as x */
    void *row;   /* convolution: out_width elements */
    void *own;   /* of the implementation */
};

#define SDC__NN_DEAD 4

extern const struct sdc_nn_ops sdc_nn_ref;
extern const struct sdc_nn_ops sdc_nn_onednn;
/* onednn as it is on lesser processors, for tests; not in the list of implementations. */
extern const struct sdc_nn_ops sdc_nn_onednn_avx2;
extern const struct sdc_nn_ops sdc_nn_onednn_base;

extern const struct sdc__nn_kernels sdc__nn_ref_f32;
extern const struct sdc__nn_kernels sdc__nn_ref_f64;

/* e^x and the natural logarithm from IEEE additions, multiplications and divisions only, so that
 * they have the same bits everywhere, which a libm does not promise. Within 2 ULP; log for positive
 * normal numbers, +0, infinities and NaN. */
double sdc__nn_exp(double x);
double sdc__nn_log(double x);

#endif
