/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of "ref", once for each number type: ref_f32.c and ref_f64.c define T (the type), FMA
 * (its fused multiply-add), SQRT and KERNELS (the name of the table) and include this file. So do
 * the files lanes_*.c, which are compiled for one instruction set: same bits, more speed.
 *
 * Every sum has one order, written here. Inner loops run over independent elements, so a compiler
 * may vectorise them without changing a bit; none of them is a reduction.
 */
#ifndef SDC_NN_REF_KERNELS_H
#define SDC_NN_REF_KERNELS_H

#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "nn/nn_impl.h"

/* Rows or columns [first, end) of the output whose tap k lies inside the input. */
struct span {
    size_t first, end;
};

static struct span inside(size_t k, size_t padding, size_t stride, size_t in, size_t out) {
    struct span s = {0, 0};
    s.first = padding > k ? (padding - k + stride - 1) / stride : 0;
    s.end = in + padding > k ? (in + padding - k + stride - 1) / stride : 0;
    if (s.end > out)
        s.end = out;
    if (s.first > s.end)
        s.first = s.end;
    return s;
}

static void axpy(size_t n, T a, const T *restrict x, T *restrict y) {
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* The same with every step-th element of x (strided_to: of y). */
static void axpy_strided(size_t n, T a, const T *restrict x, size_t step, T *restrict y) {
    if (step == 1) {
        axpy(n, a, x, y);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i * step];
}

static void axpy_strided_to(size_t n, T a, const T *restrict x, T *restrict y, size_t step) {
    if (step == 1) {
        axpy(n, a, x, y);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i * step] += a * x[i];
}

static void multiply_add(size_t n, const T *restrict a, const T *restrict b, T *restrict y) {
    for (size_t i = 0; i < n; i++)
        y[i] += a[i] * b[i];
}

static void multiply_add_strided(size_t n, const T *restrict a, size_t step, const T *restrict b,
                                 T *restrict y) {
    if (step == 1) {
        multiply_add(n, a, b, y);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] += a[i * step] * b[i];
}

/* Where tap k of row or column i of the result lies. */
static size_t tap_at(const struct sdc_nn_layer *l, size_t i, size_t k) {
    return i * l->stride + k - l->padding;
}

static T sum(size_t n, const T *x) {
    T s = x[0];
    for (size_t i = 1; i < n; i++)
        s += x[i];
    return s;
}

/* One plane of y: taps in order of channel, row, column, after the bias. */
static void conv_plane(const struct sdc_nn_plan *plan, const T *x, const T *w, T b, T *y) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    for (size_t i = 0; i < oh * ow; i++)
        y[i] = b;
    for (size_t c = 0; c < l->channels; c++) {
        const T *plane = x + c * l->height * l->width;
        for (size_t ky = 0; ky < l->kernel; ky++) {
            const struct span rows = inside(ky, l->padding, l->stride, l->height, oh);
            for (size_t kx = 0; kx < l->kernel; kx++, w++) {
                const struct span cols = inside(kx, l->padding, l->stride, l->width, ow);
                for (size_t i = rows.first; i < rows.end; i++)
                    axpy_strided(cols.end - cols.first, *w,
                                 plane + tap_at(l, i, ky) * l->width + tap_at(l, cols.first, kx),
                                 l->stride, y + i * ow + cols.first);
            }
        }
    }
}

static void conv_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const T *w = io->w, *b = l->no_bias ? NULL : io->b;
    const size_t image = l->channels * l->height * l->width;
    const size_t plane = plan->sizes.out_height * plan->sizes.out_width;
    for (size_t n = 0; n < l->batch; n++)
        for (size_t o = 0; o < l->out_channels; o++)
            conv_plane(plan, (const T *)io->x + n * image,
                       w + o * l->channels * l->kernel * l->kernel, b ? b[o] : 0,
                       (T *)io->y + (n * l->out_channels + o) * plane);
}

/* One plane of dx: adds the taps of one plane of dy. */
static void conv_dx_plane(const struct sdc_nn_plan *plan, const T *dy, const T *w, T *dx) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    for (size_t ky = 0; ky < l->kernel; ky++) {
        const struct span rows = inside(ky, l->padding, l->stride, l->height, oh);
        for (size_t kx = 0; kx < l->kernel; kx++, w++) {
            const struct span cols = inside(kx, l->padding, l->stride, l->width, ow);
            for (size_t i = rows.first; i < rows.end; i++)
                axpy_strided_to(cols.end - cols.first, *w, dy + i * ow + cols.first,
                                dx + tap_at(l, i, ky) * l->width + tap_at(l, cols.first, kx),
                                l->stride);
        }
    }
}

static void conv_dx(const struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t in_plane = l->height * l->width, taps = l->kernel * l->kernel;
    const size_t plane = plan->sizes.out_height * plan->sizes.out_width;
    memset(io->dx, 0, plan->sizes.x * sizeof(T));
    for (size_t n = 0; n < l->batch; n++)
        for (size_t c = 0; c < l->channels; c++)
            for (size_t o = 0; o < l->out_channels; o++)
                conv_dx_plane(plan, (const T *)io->dy + (n * l->out_channels + o) * plane,
                              (const T *)io->w + (o * l->channels + c) * taps,
                              (T *)io->dx + (n * l->channels + c) * in_plane);
}

/* One weight's gradient: sums of each output column over batch and rows, then over columns. */
static T conv_dw_one(const struct sdc_nn_plan *plan, const T *x, const T *dy, size_t ky,
                     size_t kx) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t ow = plan->sizes.out_width;
    const size_t x_step = l->channels * l->height * l->width;
    const size_t dy_step = l->out_channels * plan->sizes.out_height * ow;
    const struct span rows = inside(ky, l->padding, l->stride, l->height, plan->sizes.out_height);
    const struct span cols = inside(kx, l->padding, l->stride, l->width, ow);
    const size_t n_cols = cols.end - cols.first;
    T *acc = plan->row;
    if (n_cols == 0)
        return 0;
    memset(acc, 0, n_cols * sizeof(T));
    for (size_t n = 0; n < l->batch; n++)
        for (size_t i = rows.first; i < rows.end; i++)
            multiply_add_strided(
                n_cols, x + n * x_step + tap_at(l, i, ky) * l->width + tap_at(l, cols.first, kx),
                l->stride, dy + n * dy_step + i * ow + cols.first, acc);
    return sum(n_cols, acc);
}

static void conv_dw(const struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t plane = plan->sizes.out_height * plan->sizes.out_width;
    T *dw = io->dw;
    for (size_t o = 0; o < l->out_channels; o++)
        for (size_t c = 0; c < l->channels; c++)
            for (size_t ky = 0; ky < l->kernel; ky++)
                for (size_t kx = 0; kx < l->kernel; kx++)
                    *dw++ = conv_dw_one(plan, (const T *)io->x + c * l->height * l->width,
                                        (const T *)io->dy + o * plane, ky, kx);
}

static void conv_db(const struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    T *acc = plan->row;
    for (size_t o = 0; o < l->out_channels; o++) {
        memset(acc, 0, ow * sizeof(T));
        for (size_t n = 0; n < l->batch; n++)
            for (size_t i = 0; i < oh; i++)
                axpy(ow, 1, (const T *)io->dy + ((n * l->out_channels + o) * oh + i) * ow, acc);
        ((T *)io->db)[o] = sum(ow, acc);
    }
}

static void conv_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    conv_dw(plan, io);
    if (!plan->layer.no_bias)
        conv_db(plan, io);
    if (io->dx)
        conv_dx(plan, io);
}

/* Products of equal places modulo 16 are added in order of place, then the 16 sums in order. */
static T dot(size_t n, const T *a, const T *b) {
    T acc[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        multiply_add(16, a + i, b + i, acc);
    multiply_add(n - i, a + i, b + i, acc);
    return sum(16, acc);
}

static void linear_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t in = plan->sizes.x / l->batch, out = l->out_channels;
    const T *x = io->x, *w = io->w, *b = io->b;
    T *y = io->y;
    for (size_t n = 0; n < l->batch; n++)
        for (size_t o = 0; o < out; o++)
            y[n * out + o] = dot(in, x + n * in, w + o * in) + b[o];
}

static void linear_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t in = plan->sizes.x / l->batch, out = l->out_channels;
    const T *x = io->x, *w = io->w, *dy = io->dy;
    T *dw = io->dw, *db = io->db, *dx = io->dx;
    memset(dw, 0, plan->sizes.w * sizeof(T));
    memset(db, 0, out * sizeof(T));
    for (size_t n = 0; n < l->batch; n++) {
        for (size_t o = 0; o < out; o++)
            axpy(in, dy[n * out + o], x + n * in, dw + o * in);
        axpy(out, 1, dy + n * out, db);
    }
    if (!dx)
        return;
    memset(dx, 0, plan->sizes.x * sizeof(T));
    for (size_t n = 0; n < l->batch; n++)
        for (size_t o = 0; o < out; o++)
            axpy(in, dy[n * out + o], w + o * in, dx + n * in);
}

static void relu_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const T *x = io->x;
    T *y = io->y;
    for (size_t i = 0; i < plan->sizes.x; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const T *y = io->y, *dy = io->dy;
    T *dx = io->dx;
    for (size_t i = 0; i < plan->sizes.x; i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i];
}

/* The later value wins if it is greater or NaN. */
#define CONTEST(next, its_place)                                                                   \
    do {                                                                                           \
        const T v_ = (next);                                                                       \
        const bool wins_ = (v_ > best) | (v_ != v_);                                               \
        best = wins_ ? v_ : best;                                                                  \
        place = wins_ ? (its_place) : place;                                                       \
    } while (0)

/* A row of windows over two rows of x, without branches, so that it vectorises. The ReLU comes
 * after the contest: it changes the outcome only where all are <= 0, then the first zero wins. */
static inline __attribute__((always_inline)) void pool_row(size_t n, const T *restrict p,
                                                           const T *restrict q, const bool relu,
                                                           T *restrict y,
                                                           uint8_t *restrict winner) {
    for (size_t j = 0; j < n; j++) {
        T best = p[2 * j];
        int place = 0;
        CONTEST(p[2 * j + 1], 1);
        CONTEST(q[2 * j], 2);
        CONTEST(q[2 * j + 1], 3);
        if (relu) {
            const T zero = p[2 * j] == 0 ? p[2 * j] : 0; /* keeps a -0 */
            place = best <= 0 ? SDC__NN_DEAD : place;
            best = best <= 0 ? zero : best;
        }
        y[j] = best;
        winner[j] = (uint8_t)place;
    }
}
#undef CONTEST

static inline __attribute__((always_inline)) void pool(struct sdc_nn_plan *plan,
                                                       const struct sdc_nn_io *io, bool relu) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width, w = l->width;
    size_t at = 0;
    for (size_t c = 0; c < l->batch * l->channels; c++) {
        const T *x = (const T *)io->x + c * l->height * w;
        for (size_t i = 0; i < oh; i++, at += ow)
            pool_row(ow, x + 2 * i * w, x + (2 * i + 1) * w, relu, (T *)io->y + at,
                     plan->winner + at);
    }
}

static void maxpool_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    pool(plan, io, false);
}

static void relu_maxpool_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    pool(plan, io, true);
}

static void pool_backward_row(size_t n, const T *restrict dy, const uint8_t *restrict winner,
                              T *restrict p, T *restrict q) {
    for (size_t j = 0; j < n; j++) {
        const T g = dy[j] + 0; /* torch adds to a zero: -0 becomes 0 */
        const int place = winner[j];
        p[2 * j] = place == 0 ? g : 0;
        p[2 * j + 1] = place == 1 ? g : 0;
        q[2 * j] = place == 2 ? g : 0;
        q[2 * j + 1] = place == 3 ? g : 0;
    }
}

static void pool_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width, w = l->width;
    size_t at = 0;
    if (l->height % 2 || w % 2)
        memset(io->dx, 0, plan->sizes.x * sizeof(T));
    for (size_t c = 0; c < l->batch * l->channels; c++) {
        T *dx = (T *)io->dx + c * l->height * w;
        for (size_t i = 0; i < oh; i++, at += ow)
            pool_backward_row(ow, (const T *)io->dy + at, plan->winner + at, dx + 2 * i * w,
                              dx + (2 * i + 1) * w);
    }
}

/* Order of torch's log_softmax: (x - max) - log(sum of exp(x - max)). */
static void log_softmax(size_t n, const T *x, T *log_p) {
    T max = x[0], total = 0;
    for (size_t k = 1; k < n; k++)
        if (x[k] > max || isnan(x[k]))
            max = x[k];
    for (size_t k = 0; k < n; k++)
        total += (T)sdc__nn_exp((double)(x[k] - max));
    const T log_total = (T)sdc__nn_log((double)total);
    for (size_t k = 0; k < n; k++)
        log_p[k] = (x[k] - max) - log_total;
}

static void xent_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const size_t batch = plan->layer.batch, n = plan->layer.channels;
    T *log_p = plan->log_p;
    T loss = 0;
    for (size_t i = 0; i < batch; i++) {
        log_softmax(n, (const T *)io->x + i * n, log_p + i * n);
        loss -= log_p[i * n + (size_t)io->labels[i]];
    }
    *(T *)io->y = loss / (T)batch;
}

/* As torch's two steps, gradient of the mean and then of log_softmax: g - exp(log p) * sum(g). */
static void xent_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const size_t batch = plan->layer.batch, n = plan->layer.channels;
    const T *log_p = plan->log_p;
    const T dy = io->dy ? *(const T *)io->dy : 1;
    const T g = -(dy / (T)batch);
    T *dx = io->dx;
    for (size_t i = 0; i < batch; i++)
        for (size_t k = 0; k < n; k++) {
            const T p = (T)sdc__nn_exp((double)log_p[i * n + k]);
            const T at_label = k == (size_t)io->labels[i] ? g : 0;
            dx[i * n + k] = at_label - p * g;
        }
}

static void sgd_step(const struct sdc_nn_sgd *sgd, size_t n, void *p_, const void *g_, void *m_,
                     bool first) {
    const T lr = (T)-sgd->lr, momentum = (T)sgd->momentum, decay = (T)sgd->weight_decay;
    const bool has_momentum = sgd->momentum != 0, has_decay = sgd->weight_decay != 0;
    const bool nesterov = sgd->nesterov;
    T *p = p_, *m = m_;
    const T *g = g_;
    for (size_t i = 0; i < n; i++) {
        T d = has_decay ? FMA(p[i], decay, g[i]) : g[i];
        if (has_momentum) {
            const T before = d;
            if (!first) {
                const T kept = m[i] * momentum;
                d = kept + d;
            }
            m[i] = d;
            if (nesterov)
                d = FMA(m[i], momentum, before);
        }
        p[i] = FMA(d, lr, p[i]);
    }
}

static void adam_step(const struct sdc__nn_adam_now *now, size_t n, void *p_, const void *g_,
                      void *m_, void *v_) {
    const T decay = (T)now->decay, keep = (T)now->keep;
    const T beta1 = (T)now->beta1, rest1 = (T)now->one_minus_beta1;
    const T beta2 = (T)now->beta2, rest2 = (T)now->one_minus_beta2;
    const T root = (T)now->root, eps = (T)now->eps, size = (T)now->minus_step_size;
    const bool has_decay = now->decay != 0;
    T *restrict p = p_, *restrict m = m_, *restrict v = v_;
    const T *restrict g = g_;
    for (size_t i = 0; i < n; i++) {
        const T d = has_decay ? FMA(p[i], decay, g[i]) : g[i];
        const T kept1 = m[i] * beta1, kept2 = v[i] * beta2;
        m[i] = FMA(d, rest1, kept1);
        v[i] = FMA(rest2 * d, d, kept2);
        const T below = SQRT(v[i]) / root + eps;
        const T by = size * m[i] / below;
        p[i] = p[i] * keep + by;
    }
}

static void scale(size_t n, void *x_, double factor) {
    const T f = (T)factor;
    T *x = x_;
    for (size_t i = 0; i < n; i++)
        x[i] *= f;
}

static void add(size_t n, const void *a_, const void *b_, void *y_) {
    const T *a = a_, *b = b_;
    T *y = y_;
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

#include "nn/ref_layers.h"

const struct sdc__nn_kernels KERNELS = {
    .forward =
        {
            [SDC_NN_CONV2D] = conv_forward,
            [SDC_NN_LINEAR] = linear_forward,
            [SDC_NN_RELU] = relu_forward,
            [SDC_NN_MAXPOOL2] = maxpool_forward,
            [SDC_NN_RELU_MAXPOOL2] = relu_maxpool_forward,
            [SDC_NN_XENT] = xent_forward,
            REF_LAYERS_FORWARD,
        },
    .backward =
        {
            [SDC_NN_CONV2D] = conv_backward,
            [SDC_NN_LINEAR] = linear_backward,
            [SDC_NN_RELU] = relu_backward,
            [SDC_NN_MAXPOOL2] = pool_backward,
            [SDC_NN_RELU_MAXPOOL2] = pool_backward,
            [SDC_NN_XENT] = xent_backward,
            REF_LAYERS_BACKWARD,
        },
    .sgd_step = sgd_step,
    .adam_step = adam_step,
    .scale = scale,
    .add = add,
};

#endif
