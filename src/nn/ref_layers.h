/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of nn/ref_kernels.h (which see; it includes this file) for the layers that are not
 * products: batch normalisation, 3x3 pooling, mean, dropout, shortcut.
 */
#ifndef SDC_NN_REF_LAYERS_H
#define SDC_NN_REF_LAYERS_H

#include <math.h>
#include <string.h>

#include "base/guard.h"
#include "nn/nn_impl.h"
#include "sdc/rng.h"

#define NORM_EPS      1e-5
#define NORM_MOMENTUM 0.1
#define SUMS          16

/* Sums in double, as torch accumulates a batch's statistics on a CPU: elements of equal places
 * modulo 16 of their plane are added in order of image and place, then the 16 sums in order. */
struct sums {
    double at[SUMS];
};

static double sums_total(const struct sums *s) {
    double total = s->at[0];
    for (size_t k = 1; k < SUMS; k++)
        total += s->at[k];
    return total;
}

static void sums_add(struct sums *s, size_t n, const T *x) {
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t k = 0; k < SUMS; k++)
            s->at[k] += (double)x[i + k];
    for (size_t k = 0; i + k < n; k++)
        s->at[k] += (double)x[i + k];
}

static void sums_add_squares(struct sums *s, size_t n, const T *x, T mean) {
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t k = 0; k < SUMS; k++) {
            const T d = x[i + k] - mean;
            s->at[k] += (double)(d * d);
        }
    for (size_t k = 0; i + k < n; k++) {
        const T d = x[i + k] - mean;
        s->at[k] += (double)(d * d);
    }
}

/* One plane's sums of dy and of (x - mean) * dy, in the type itself, as torch adds them up within a
 * plane: equal places modulo 16, then the 16 sums in order. */
static void plane_sums(size_t n, const T *x, T mean, const T *dy, T *of_dy, T *of_products) {
    T a[SUMS] = {0}, p[SUMS] = {0};
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t k = 0; k < SUMS; k++) {
            a[k] += dy[i + k];
            p[k] += (x[i + k] - mean) * dy[i + k];
        }
    for (size_t k = 0; i + k < n; k++) {
        a[k] += dy[i + k];
        p[k] += (x[i + k] - mean) * dy[i + k];
    }
    *of_dy = sum(SUMS, a);
    *of_products = sum(SUMS, p);
}

/* Mean and 1 / sqrt(var + eps) of channel c in training; updates the running statistics. */
static void norm_measure(const struct sdc_nn_plan *plan, const struct sdc_nn_io *io, size_t c,
                         T *mean, T *scale_by) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t plane = l->height * l->width, image = l->channels * plane;
    const double n = (double)(l->batch * plane);
    const T *x = (const T *)io->x + c * plane;
    T *run_mean = (T *)io->run_mean + c, *run_var = (T *)io->run_var + c;
    struct sums sum = {{0}}, squares = {{0}};
    for (size_t i = 0; i < l->batch; i++)
        sums_add(&sum, plane, x + i * image);
    *mean = (T)(sums_total(&sum) / n);
    for (size_t i = 0; i < l->batch; i++)
        sums_add_squares(&squares, plane, x + i * image, *mean);
    const T var_sum = (T)sums_total(&squares);
    *scale_by = (T)(1 / sqrt((double)var_sum / n + NORM_EPS));
    *run_mean = (T)(NORM_MOMENTUM * (double)*mean + (1 - NORM_MOMENTUM) * (double)*run_mean);
    *run_var =
        (T)(NORM_MOMENTUM * ((double)var_sum / (n - 1)) + (1 - NORM_MOMENTUM) * (double)*run_var);
}

static void norm_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t plane = l->height * l->width, image = l->channels * plane;
    T *mean = plan->stats, *scale_by = mean + l->channels;
    const T *w = io->w, *b = io->b;
    for (size_t c = 0; c < l->channels; c++) {
        if (l->eval) {
            mean[c] = ((const T *)io->run_mean)[c];
            const T var = ((const T *)io->run_var)[c] + (T)NORM_EPS;
            scale_by[c] = 1 / (T)sqrt((double)var); /* in the type, unlike in training */
        } else {
            norm_measure(plan, io, c, &mean[c], &scale_by[c]);
        }
        const T alpha = scale_by[c] * w[c], shifted = mean[c] * alpha, beta = b[c] - shifted;
        for (size_t i = 0; i < l->batch; i++) {
            const T *x = (const T *)io->x + i * image + c * plane;
            T *y = (T *)io->y + i * image + c * plane;
            for (size_t k = 0; k < plane; k++)
                y[k] = FMA(x[k], alpha, beta); /* as torch on every x86 with AVX2 */
        }
    }
    if (!l->eval)
        *io->run_count = (int64_t)((uint64_t)*io->run_count + 1);
}

static void norm_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t plane = l->height * l->width, image = l->channels * plane;
    const T *mean = plan->stats, *scale_by = mean + l->channels;
    const T n = (T)(l->batch * plane);
    for (size_t c = 0; c < l->channels; c++) {
        double total = 0, total_products = 0; /* over planes in double, as torch */
        const T *x = (const T *)io->x + c * plane, *dy = (const T *)io->dy + c * plane;
        for (size_t i = 0; i < l->batch; i++) {
            T of_dy, of_products;
            plane_sums(plane, x + i * image, mean[c], dy + i * image, &of_dy, &of_products);
            total += (double)of_dy;
            total_products += (double)of_products;
        }
        const T products = (T)total_products;
        ((T *)io->dw)[c] = products * scale_by[c];
        ((T *)io->db)[c] = (T)total;
        if (!io->dx)
            continue;
        const T k = products * scale_by[c] * scale_by[c] / n;
        const T mean_dy = (T)(total / (double)n);
        const T m = mean[c], back = scale_by[c], w = ((const T *)io->w)[c];
        for (size_t i = 0; i < l->batch; i++) {
            T *dx = (T *)io->dx + i * image + c * plane;
            const T *xi = x + i * image, *dyi = dy + i * image;
            for (size_t j = 0; j < plane; j++) {
                const T across = FMA(m - xi[j], k, dyi[j] - mean_dy);
                dx[j] = across * back * w;
            }
        }
    }
}

static void pool3_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width, w = l->width;
    uint8_t *winner = plan->winner;
    T *y = io->y;
    for (size_t c = 0; c < l->batch * l->channels; c++)
        for (size_t i = 0; i < oh; i++)
            for (size_t j = 0; j < ow; j++, winner++, y++) {
                const T *p = (const T *)io->x + (c * l->height + 2 * i) * w + 2 * j;
                T best = p[0];
                unsigned place = 0;
                for (unsigned k = 1; k < 9; k++) {
                    const T v = p[k / 3 * w + k % 3];
                    const bool wins = (v > best) | (v != v);
                    best = wins ? v : best;
                    place = wins ? k : place;
                }
                *y = best;
                *winner = (uint8_t)place;
            }
}

static void pool3_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width, w = l->width;
    const uint8_t *winner = plan->winner;
    const T *dy = io->dy;
    memset(io->dx, 0, plan->sizes.x * sizeof(T));
    for (size_t c = 0; c < l->batch * l->channels; c++)
        for (size_t i = 0; i < oh; i++)
            for (size_t j = 0; j < ow; j++, winner++, dy++) {
                T *p = (T *)io->dx + (c * l->height + 2 * i) * w + 2 * j;
                p[*winner / 3u * w + *winner % 3u] += *dy;
            }
}

/* A plane's elements of equal places modulo 16 in order, then the 16 sums. */
static void mean_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const size_t plane = plan->layer.height * plan->layer.width;
    T *y = io->y;
    for (size_t c = 0; c < plan->sizes.y; c++) {
        const T *x = (const T *)io->x + c * plane;
        T acc[SUMS] = {0};
        size_t i = 0;
        for (; i + SUMS <= plane; i += SUMS)
            axpy(SUMS, 1, x + i, acc);
        axpy(plane - i, 1, x + i, acc);
        y[c] = sum(SUMS, acc) / (T)plane;
    }
}

static void mean_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const size_t plane = plan->layer.height * plan->layer.width;
    for (size_t c = 0; c < plan->sizes.y; c++) {
        const T g = ((const T *)io->dy)[c] / (T)plane;
        T *dx = (T *)io->dx + c * plane;
        for (size_t i = 0; i < plane; i++)
            dx[i] = g;
    }
}

/* y = x * m by what plan->winner keeps. */
static void drop(const struct sdc_nn_plan *plan, const T *x, T *y) {
    const T up = (T)(1 / (1 - plan->layer.drop));
    for (size_t i = 0; i < plan->sizes.x; i++)
        y[i] = x[i] * (plan->winner[i] ? up : 0);
}

static void dropout_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    if (l->eval) {
        if (io->y != io->x)
            memcpy(io->y, io->x, plan->sizes.x * sizeof(T));
        return;
    }
    struct sdc_rng rng;
    const double limit = l->drop * 0x1p32;
    sdc_rng_init(&rng, io->stream.seed, SDC_RNG_DROPOUT, io->stream.block, io->stream.trial);
    for (size_t i = 0; i < plan->sizes.x; i++)
        plan->winner[i] = (double)sdc_rng_u32(&rng) >= limit;
    drop(plan, io->x, io->y);
}

static void dropout_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    drop(plan, io->dy, io->dx);
}

static void subsample_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    const size_t before = (l->out_channels - l->channels) / 2;
    memset(io->y, 0, plan->sizes.y * sizeof(T));
    for (size_t n = 0; n < l->batch; n++)
        for (size_t c = 0; c < l->channels; c++) {
            const T *x = (const T *)io->x + (n * l->channels + c) * l->height * l->width;
            T *y = (T *)io->y + (n * l->out_channels + before + c) * oh * ow;
            for (size_t i = 0; i < oh; i++)
                for (size_t j = 0; j < ow; j++)
                    y[i * ow + j] = x[(i * l->width + j) * l->stride];
        }
}

static void subsample_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    const size_t before = (l->out_channels - l->channels) / 2;
    memset(io->dx, 0, plan->sizes.x * sizeof(T));
    for (size_t n = 0; n < l->batch; n++)
        for (size_t c = 0; c < l->channels; c++) {
            T *dx = (T *)io->dx + (n * l->channels + c) * l->height * l->width;
            const T *dy = (const T *)io->dy + (n * l->out_channels + before + c) * oh * ow;
            for (size_t i = 0; i < oh; i++)
                for (size_t j = 0; j < ow; j++)
                    dx[(i * l->width + j) * l->stride] = dy[i * ow + j];
        }
}

#define REF_LAYERS_FORWARD                                                                         \
    [SDC_NN_BATCHNORM] = norm_forward, [SDC_NN_MAXPOOL3] = pool3_forward,                          \
    [SDC_NN_AVGPOOL] = mean_forward, [SDC_NN_DROPOUT] = dropout_forward,                           \
    [SDC_NN_SUBSAMPLE] = subsample_forward
#define REF_LAYERS_BACKWARD                                                                        \
    [SDC_NN_BATCHNORM] = norm_backward, [SDC_NN_MAXPOOL3] = pool3_backward,                        \
    [SDC_NN_AVGPOOL] = mean_backward, [SDC_NN_DROPOUT] = dropout_backward,                         \
    [SDC_NN_SUBSAMPLE] = subsample_backward

#endif
