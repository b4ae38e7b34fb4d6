/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of nn/lanes.h, once for each instruction set. Before including this file, lanes_*.c
 * define: V, a vector of LANES floats; load, store (any alignment), broadcast, madd (a * b + c) and
 * transpose (of a square of LANES vectors) on it; ISA, the name of the table; ISA_NAME; ISA_HERE,
 * an expression; and KERNELS, the name of ref's table compiled here.
 */
#ifndef SDC_NN_LANES_KERNELS_H
#define SDC_NN_LANES_KERNELS_H

#define T    float
#define FMA  fmaf
#define SQRT sqrtf
#include "nn/lanes.h"
#include "nn/onednn_conv.h"
#include "nn/ref_kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* Pixels (images n_images, image_step elements apart; n_pixels in a row) to vectors: pixel i goes
 * to dst[place[i]]. Lanes without an image get 0. */
static void pack(const float *src, size_t image_step, size_t n_images, size_t n_pixels,
                 const uint32_t *place, float *dst) {
    V square[LANES];
    for (size_t q = 0; q < n_pixels; q += LANES) {
        const size_t left = n_pixels - q, n = left < LANES ? left : LANES;
        if (n < LANES && n_pixels >= LANES)
            q = n_pixels - LANES; /* once more over some pixels of the square before */
        if (n_pixels >= LANES) {
            for (size_t i = 0; i < LANES; i++)
                square[i] = i < n_images ? load(src + i * image_step + q) : broadcast(0);
        } else {
            for (size_t i = 0; i < LANES; i++) {
                float few[LANES] = {0};
                if (i < n_images)
                    memcpy(few, src + i * image_step, n * sizeof *few);
                square[i] = load(few);
            }
        }
        transpose(square);
        for (size_t i = 0; i < LANES && q + i < n_pixels; i++)
            store(dst + (size_t)place[q + i] * LANES, square[i]);
    }
}

/* The way back, from pixels in a row. */
static void unpack(const float *src, size_t n_pixels, size_t n_images, size_t image_step,
                   float *dst) {
    V square[LANES];
    for (size_t q = 0; q < n_pixels; q += LANES) {
        const size_t left = n_pixels - q, n = left < LANES ? left : LANES;
        if (n < LANES && n_pixels >= LANES)
            q = n_pixels - LANES;
        for (size_t i = 0; i < LANES; i++)
            square[i] = q + i < n_pixels ? load(src + (q + i) * LANES) : broadcast(0);
        transpose(square);
        for (size_t i = 0; i < n_images; i++) {
            if (n_pixels >= LANES) {
                store(dst + i * image_step + q, square[i]);
            } else {
                float few[LANES];
                store(few, square[i]);
                memcpy(dst + i * image_step, few, n * sizeof *few);
            }
        }
    }
}

/* Sizes of a correlation of packed images; strides in floats. */
struct shape {
    size_t in, out; /* channels */
    size_t kernel;
    size_t height, width; /* of the result */
    size_t border; /* rows of zeros above and below the height + kernel - 1 - 2 border of x */
    size_t x_row, x_plane;
};

/* ot planes by xt columns of one row of the result; only those rows of the kernel that meet more
 * than the border. */
INLINE void tile(const struct shape *s, struct span rows, const float *x, const float *w,
                 const float *b, float *y, const size_t ot, const size_t xt) {
    V acc[6][4], col[4];
    const float *const first = w;
    for (size_t o = 0; o < ot; o++)
        for (size_t t = 0; t < xt; t++)
            acc[o][t] = broadcast(b ? b[o] : 0);
    for (size_t c = 0; c < s->in; c++) {
        w = first + (c * s->kernel + rows.first) * s->kernel * s->out;
        for (size_t ky = rows.first; ky < rows.end; ky++) {
            const float *p = x + c * s->x_plane + ky * s->x_row;
            for (size_t kx = 0; kx < s->kernel; kx++, p += LANES, w += s->out) {
                for (size_t t = 0; t < xt; t++)
                    col[t] = load(p + t * LANES);
                for (size_t o = 0; o < ot; o++) {
                    const V tap = broadcast(w[o]);
                    for (size_t t = 0; t < xt; t++)
                        acc[o][t] = madd(tap, col[t], acc[o][t]);
                }
            }
        }
    }
    for (size_t o = 0; o < ot; o++)
        for (size_t t = 0; t < xt; t++)
            store(y + (o * s->height * s->width + t) * LANES, acc[o][t]);
}

#define TILE_ROW(ot)                                                                               \
    static void tile_row_##ot(const struct shape *s, struct span rows, const float *x,             \
                              const float *w, const float *b, float *y) {                          \
        size_t j = 0;                                                                              \
        for (; j + XT <= s->width; j += XT)                                                        \
            tile(s, rows, x + j * LANES, w, b, y + j * LANES, ot, XT);                             \
        for (; j + 2 <= s->width; j += 2)                                                          \
            tile(s, rows, x + j * LANES, w, b, y + j * LANES, ot, 2);                              \
        for (; j < s->width; j++)                                                                  \
            tile(s, rows, x + j * LANES, w, b, y + j * LANES, ot, 1);                              \
    }
TILE_ROW(1)
TILE_ROW(2)
TILE_ROW(4)
#if OT == 6
TILE_ROW(6)
#endif
#undef TILE_ROW

/* y (out, height, width) from x; w (in, kernel, kernel, out); b (out) or NULL. */
static void correlate(const struct shape *s, const float *x, const float *w, const float *b,
                      float *y) {
    for (size_t i = 0; i < s->height; i++) {
        const float *row = x + i * s->x_row;
        const struct span rows =
            inside(i, s->border, 1, s->height + s->kernel - 1 - 2 * s->border, s->kernel);
        for (size_t o = 0; o < s->out;) {
            const size_t left = s->out - o;
            float *to = y + (o * s->height + i) * s->width * LANES;
            const float *bias = b ? b + o : NULL;
#if OT == 6
            if (left >= 6 && left != 8) {
                tile_row_6(s, rows, row, w + o, bias, to);
                o += 6;
                continue;
            }
#endif
            if (left >= 4) {
                tile_row_4(s, rows, row, w + o, bias, to);
                o += 4;
            } else if (left >= 2) {
                tile_row_2(s, rows, row, w + o, bias, to);
                o += 2;
            } else {
                tile_row_1(s, rows, row, w + o, bias, to);
                o++;
            }
        }
    }
}

static bool all_finite(size_t n, const float *x) {
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= x[i] - x[i] == 0;
    return finite;
}

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static void lanes_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const struct sdc__nn_lanes *own = plan->own;
    const size_t taps = l->channels * l->kernel * l->kernel;
    const size_t in_plane = l->height * l->width;
    const size_t out_plane = plan->sizes.out_height * plan->sizes.out_width;
    const struct shape s = {
        .in = l->channels,
        .out = l->out_channels,
        .kernel = l->kernel,
        .height = plan->sizes.out_height,
        .width = plan->sizes.out_width,
        .border = l->padding,
        .x_row = (l->width + 2 * l->padding) * LANES,
        .x_plane = (l->height + 2 * l->padding) * (l->width + 2 * l->padding) * LANES,
    };
    const float *w = io->w;
    if (own->conv) {
        sdc__nn_conv_forward(own->conv, io);
        return;
    }
    if (l->padding && !all_finite(plan->sizes.w, w)) {
        conv_forward(plan, io);
        return;
    }
    for (size_t o = 0; o < l->out_channels; o++)
        for (size_t t = 0; t < taps; t++)
            own->w[t * l->out_channels + o] = w[o * taps + t];
    for (size_t n = 0; n < l->batch; n += LANES) {
        const size_t images = min_size(LANES, l->batch - n);
        const float *x = (const float *)io->x + n * l->channels * in_plane;
        float *y = (float *)io->y + n * l->out_channels * out_plane;
        for (size_t c = 0; c < l->channels; c++)
            pack(x + c * in_plane, l->channels * in_plane, images, in_plane, own->x_place,
                 own->x + c * s.x_plane);
        correlate(&s, own->x, own->w, l->no_bias ? NULL : io->b, own->y);
        for (size_t o = 0; o < l->out_channels; o++)
            unpack(own->y + o * out_plane * LANES, out_plane, images, l->out_channels * out_plane,
                   y + o * out_plane);
    }
}

/* Sizes of the backward sums; strides in floats. */
struct back {
    size_t height, width; /* of dy */
    size_t x_row, dy_row, dy_plane;
};

/* Adds to the gradients of ot planes' taps (one channel, one row of the kernel, kt columns). */
INLINE void dw_tile(const struct back *s, const float *x, const float *dy, float *dw,
                    size_t dw_step, const size_t ot, const size_t kt) {
    V acc[4][5], g[4];
    for (size_t o = 0; o < ot; o++)
        for (size_t t = 0; t < kt; t++)
            acc[o][t] = load(dw + o * dw_step + t * LANES);
    for (size_t i = 0; i < s->height; i++) {
        const float *p = x + i * s->x_row, *q = dy + i * s->dy_row;
        for (size_t j = 0; j < s->width; j++, p += LANES, q += LANES) {
            for (size_t o = 0; o < ot; o++)
                g[o] = load(q + o * s->dy_plane);
            for (size_t t = 0; t < kt; t++) {
                const V v = load(p + t * LANES);
                for (size_t o = 0; o < ot; o++)
                    acc[o][t] = madd(g[o], v, acc[o][t]);
            }
        }
    }
    for (size_t o = 0; o < ot; o++)
        for (size_t t = 0; t < kt; t++)
            store(dw + o * dw_step + t * LANES, acc[o][t]);
}

#define DW_ROW(ot)                                                                                 \
    static void dw_row_##ot(const struct back *s, const float *x, const float *dy, size_t kernel,  \
                            float *dw, size_t dw_step) {                                           \
        size_t k = 0;                                                                              \
        for (; k + KT <= kernel; k += KT)                                                          \
            dw_tile(s, x + k * LANES, dy, dw + k * LANES, dw_step, ot, KT);                        \
        for (; k < kernel; k++)                                                                    \
            dw_tile(s, x + k * LANES, dy, dw + k * LANES, dw_step, ot, 1);                         \
    }
DW_ROW(1)
DW_ROW(2)
#if OT == 6
DW_ROW(4)
#endif
#undef DW_ROW

/* Adds one group's share to own->dw and own->db. */
static void add_gradients(const struct sdc_nn_plan *plan, const struct back *s, size_t x_plane) {
    const struct sdc_nn_layer *l = &plan->layer;
    const struct sdc__nn_lanes *own = plan->own;
    const size_t step = l->channels * l->kernel * l->kernel * LANES;
    const float *first = own->dy + own->border * (s->dy_row + LANES);
    for (size_t o = 0; o < l->out_channels;) {
        size_t n = min_size(OT == 6 ? 4 : 2, l->out_channels - o);
        n = n == 3 ? 2 : n;
        for (size_t c = 0; c < l->channels; c++)
            for (size_t ky = 0; ky < l->kernel; ky++) {
                const float *x = own->x + c * x_plane + ky * s->x_row;
                float *dw = own->dw + o * step + (c * l->kernel + ky) * l->kernel * LANES;
                const float *dy = first + o * s->dy_plane;
#if OT == 6
                if (n == 4)
                    dw_row_4(s, x, dy, l->kernel, dw, step);
                else
#endif
                    (n == 2 ? dw_row_2 : dw_row_1)(s, x, dy, l->kernel, dw, step);
            }
        o += n;
    }
    for (size_t o = 0; o < plan->sizes.b; o++) {
        V acc = load(own->db + o * LANES);
        for (size_t i = 0; i < s->height; i++)
            for (size_t j = 0; j < s->width; j++)
                acc += load(first + o * s->dy_plane + i * s->dy_row + j * LANES);
        store(own->db + o * LANES, acc);
    }
}

/* Weights for dx: channels swapped, taps turned round. */
static void turn_weights(const struct sdc_nn_layer *l, const float *w, float *turned) {
    const size_t taps = l->kernel * l->kernel;
    for (size_t o = 0; o < l->out_channels; o++)
        for (size_t t = 0; t < taps; t++)
            for (size_t c = 0; c < l->channels; c++)
                *turned++ = w[(o * l->channels + c) * taps + taps - 1 - t];
}

static void sum_lanes(size_t n, const float *vectors, float *to) {
    for (size_t i = 0; i < n; i++)
        to[i] = sum(LANES, vectors + i * LANES);
}

static void lanes_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const struct sdc__nn_lanes *own = plan->own;
    const size_t in_plane = l->height * l->width;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    const size_t x_width = l->width + 2 * l->padding, dy_width = ow + 2 * own->border;
    const size_t x_plane = (l->height + 2 * l->padding) * x_width * LANES;
    const struct back s = {
        .height = oh,
        .width = ow,
        .x_row = x_width * LANES,
        .dy_row = dy_width * LANES,
        .dy_plane = (oh + 2 * own->border) * dy_width * LANES,
    };
    const struct shape turned = {
        .in = l->out_channels,
        .out = l->channels,
        .kernel = l->kernel,
        .height = l->height,
        .width = l->width,
        .border = own->border,
        .x_row = s.dy_row,
        .x_plane = s.dy_plane,
    };
    if (own->conv) {
        sdc__nn_conv_backward(own->conv, io);
        return;
    }
    if (io->dx && !all_finite(plan->sizes.w, io->w)) {
        conv_backward(plan, io);
        return;
    }
    if (io->dx)
        turn_weights(l, io->w, own->w);
    memset(own->dw, 0, plan->sizes.w * LANES * sizeof(float));
    memset(own->db, 0, plan->sizes.b * LANES * sizeof(float));
    for (size_t n = 0; n < l->batch; n += LANES) {
        const size_t images = min_size(LANES, l->batch - n);
        const float *x = (const float *)io->x + n * l->channels * in_plane;
        const float *dy = (const float *)io->dy + n * l->out_channels * oh * ow;
        for (size_t c = 0; c < l->channels; c++)
            pack(x + c * in_plane, l->channels * in_plane, images, in_plane, own->x_place,
                 own->x + c * x_plane);
        for (size_t o = 0; o < l->out_channels; o++)
            pack(dy + o * oh * ow, l->out_channels * oh * ow, images, oh * ow, own->dy_place,
                 own->dy + o * s.dy_plane);
        add_gradients(plan, &s, x_plane);
        if (!io->dx)
            continue;
        correlate(&turned, own->dy, own->w, NULL, own->y);
        float *dx = (float *)io->dx + n * l->channels * in_plane;
        for (size_t c = 0; c < l->channels; c++)
            unpack(own->y + c * in_plane * LANES, in_plane, images, l->channels * in_plane,
                   dx + c * in_plane);
    }
    sum_lanes(plan->sizes.w, own->dw, io->dw);
    sum_lanes(plan->sizes.b, own->db, io->db);
    if (l->padding && !all_finite(plan->sizes.w, io->dw))
        conv_backward(plan, io);
}

typedef int32_t I __attribute__((vector_size(sizeof(V))));

/* a where the mask is set, b elsewhere */
INLINE V choose(I mask, V a, V b) {
    return (V)((mask & (I)a) | (~mask & (I)b));
}

INLINE I constant(int32_t k) {
    return (I){0} + k;
}

/* The window at p of a packed plane; as pool_row of ref. */
INLINE void pool_window(const float *p, size_t row, const bool relu, float *y, float *winner) {
    const V first = load(p);
    const V others[3] = {load(p + LANES), load(p + row), load(p + row + LANES)};
    V best = first;
    I place = constant(0);
    for (int k = 0; k < 3; k++) {
        const V v = others[k];
        const I wins = (I)(v > best) | (I)(v != v);
        best = choose(wins, v, best);
        place = (wins & constant(k + 1)) | (~wins & place);
    }
    if (relu) {
        const V none = broadcast(0);
        const I stopped = (I)(best <= none);
        const I zero = (I)(first == none);
        best = choose(stopped, choose(zero, first, none), best);
        place = (stopped & constant(SDC__NN_DEAD)) | (~stopped & place);
    }
    store(y, best);
    store(winner, (V)place);
}

INLINE void lanes_pool(struct sdc_nn_plan *plan, const struct sdc_nn_io *io, const bool relu) {
    const struct sdc_nn_layer *l = &plan->layer;
    const struct sdc__nn_lanes *own = plan->own;
    const size_t plane = l->height * l->width, row = l->width * LANES;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    float *winner = own->winner;
    for (size_t n = 0; n < l->batch; n += LANES) {
        const size_t images = min_size(LANES, l->batch - n);
        for (size_t c = 0; c < l->channels; c++) {
            const size_t at = n * l->channels + c;
            float *y = own->y;
            pack((const float *)io->x + at * plane, l->channels * plane, images, plane,
                 own->x_place, own->x);
            for (size_t i = 0; i < oh; i++)
                for (size_t j = 0; j < ow; j++, y += LANES, winner += LANES)
                    pool_window(own->x + 2 * i * row + 2 * j * LANES, row, relu, y, winner);
            unpack(own->y, oh * ow, images, l->channels * oh * ow, (float *)io->y + at * oh * ow);
        }
    }
}

static void lanes_maxpool_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    lanes_pool(plan, io, false);
}

static void lanes_relu_maxpool_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    lanes_pool(plan, io, true);
}

INLINE V where_won(I place, int32_t here, V g) {
    return choose((I)(place == constant(here)), g, broadcast(0));
}

static void lanes_pool_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const struct sdc_nn_layer *l = &plan->layer;
    const struct sdc__nn_lanes *own = plan->own;
    const size_t plane = l->height * l->width, row = l->width * LANES;
    const size_t oh = plan->sizes.out_height, ow = plan->sizes.out_width;
    const float *winner = own->winner;
    memset(own->x, 0, plane * LANES * sizeof(float)); /* for a last odd row or column */
    for (size_t n = 0; n < l->batch; n += LANES) {
        const size_t images = min_size(LANES, l->batch - n);
        for (size_t c = 0; c < l->channels; c++) {
            const size_t at = n * l->channels + c;
            const float *dy = own->y;
            pack((const float *)io->dy + at * oh * ow, l->channels * oh * ow, images, oh * ow,
                 own->x_place, own->y);
            for (size_t i = 0; i < oh; i++)
                for (size_t j = 0; j < ow; j++, dy += LANES, winner += LANES) {
                    float *p = own->x + 2 * i * row + 2 * j * LANES;
                    const V g = load(dy) + broadcast(0); /* torch adds to a zero */
                    const I place = (I)load(winner);
                    store(p, where_won(place, 0, g));
                    store(p + LANES, where_won(place, 1, g));
                    store(p + row, where_won(place, 2, g));
                    store(p + row + LANES, where_won(place, 3, g));
                }
            unpack(own->x, plane, images, l->channels * plane, (float *)io->dx + at * plane);
        }
    }
}

static const struct sdc__nn_kernels lanes_kernels = {
    .lanes = LANES,
    .forward =
        {
            [SDC_NN_CONV2D] = lanes_forward,
            [SDC_NN_LINEAR] = sdc__nn_sgemm_forward,
            [SDC_NN_RELU] = relu_forward,
            [SDC_NN_MAXPOOL2] = lanes_maxpool_forward,
            [SDC_NN_RELU_MAXPOOL2] = lanes_relu_maxpool_forward,
            [SDC_NN_XENT] = xent_forward,
            REF_LAYERS_FORWARD,
        },
    .backward =
        {
            [SDC_NN_CONV2D] = lanes_backward,
            [SDC_NN_LINEAR] = sdc__nn_sgemm_backward,
            [SDC_NN_RELU] = relu_backward,
            [SDC_NN_MAXPOOL2] = lanes_pool_backward,
            [SDC_NN_RELU_MAXPOOL2] = lanes_pool_backward,
            [SDC_NN_XENT] = xent_backward,
            REF_LAYERS_BACKWARD,
        },
    .sgd_step = sgd_step,
    .adam_step = adam_step,
    .scale = scale,
    .add = add,
};

static bool here(void) {
    return ISA_HERE;
}

const struct sdc__nn_isa ISA = {
    .name = ISA_NAME,
    .here = here,
    .kernels = &lanes_kernels,
    .plain = &KERNELS,
};

#endif
