/* SPDX-License-Identifier: Apache-2.0 */
#include <dnnl.h>
#include <stdio.h>

#include "base/guard.h"
#include "nn/lanes.h"

/* Of libgomp, with which Debian's oneDNN is linked; omp.h belongs to gcc alone. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int n);

/* oneDNN as Debian builds it computes in an OpenMP team, whose size is a variable of the calling
 * thread. A rank is one thread. */
void sdc__nn_one_thread(void) {
    if (omp_get_max_threads() != 1)
        omp_set_num_threads(1);
}

/* c (m, n) = a b, row by row; ta, tb: 'T' where a or b lies transposed. */
static void product(char ta, char tb, size_t m, size_t n, size_t k, const float *a, const float *b,
                    float *c) {
    const dnnl_dim_t lda = (dnnl_dim_t)(ta == 'T' ? m : k), ldb = (dnnl_dim_t)(tb == 'T' ? k : n);
    sdc__nn_one_thread();
    if (dnnl_sgemm(ta, tb, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.0f, a, lda, b, ldb, 0.0f,
                   c, (dnnl_dim_t)n) != dnnl_success)
        SDC_BUG("dnnl_sgemm refused %zu x %zu x %zu", m, n, k);
}

void sdc__nn_sgemm_forward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const size_t batch = plan->layer.batch, out = plan->layer.out_channels;
    const float *b = io->b;
    float *y = io->y;
    product('N', 'T', batch, out, plan->sizes.x / batch, io->x, io->w, y);
    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < out; o++)
            y[n * out + o] += b[o];
}

void sdc__nn_sgemm_backward(struct sdc_nn_plan *plan, const struct sdc_nn_io *io) {
    const size_t batch = plan->layer.batch, out = plan->layer.out_channels;
    const size_t in = plan->sizes.x / batch;
    const float *dy = io->dy;
    float *db = io->db;
    product('T', 'N', out, in, batch, dy, io->x, io->dw);
    for (size_t o = 0; o < out; o++)
        db[o] = 0;
    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < out; o++)
            db[o] += dy[n * out + o];
    if (io->dx)
        product('N', 'N', batch, in, out, dy, io->w, io->dx);
}

/* What its products use: the processor's best, or less where DNNL_MAX_CPU_ISA asks for less. */
static const char *products_isa(void) {
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_mic:
        return "avx512_mic";
    case dnnl_cpu_isa_avx512_mic_4ops:
        return "avx512_mic_4ops";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "all";
    }
}

static void version(char *text, size_t size) {
    const dnnl_version_t *v = dnnl_version();
    bool ymm = dnnl_get_cpu_isa_hints() == dnnl_cpu_isa_prefer_ymm;
    snprintf(text, size, "oneDNN %d.%d.%d %s%s, %s", v->major, v->minor, v->patch, products_isa(),
             ymm ? " prefer_ymm" : "", sdc__nn_isa(NULL)->name);
}

static const struct sdc__nn_kernels *kernels(enum sdc_nn_type type) {
    (void)type;
    return sdc__nn_isa(NULL)->kernels;
}

static const struct sdc__nn_kernels *kernels_avx2(enum sdc_nn_type type) {
    (void)type;
    return sdc__nn_isa("avx2")->kernels;
}

static const struct sdc__nn_kernels *kernels_base(enum sdc_nn_type type) {
    (void)type;
    return sdc__nn_isa("base")->kernels;
}

#define SHARED                                                                                     \
    .summary = "fast: oneDNN's matrix products and vector kernels for convolutions; f32",          \
    .caps = SDC_NN_CAN_F32, .version = version, .plan_init = sdc__nn_lanes_init,                   \
    .plan_release = sdc__nn_lanes_release

const struct sdc_nn_ops sdc_nn_onednn = {SHARED, .name = "onednn", .kernels = kernels};
const struct sdc_nn_ops sdc_nn_onednn_avx2 = {SHARED, .name = "onednn-avx2",
                                              .kernels = kernels_avx2};
const struct sdc_nn_ops sdc_nn_onednn_base = {SHARED, .name = "onednn-base",
                                              .kernels = kernels_base};
