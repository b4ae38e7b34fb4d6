/* SPDX-License-Identifier: Apache-2.0
 *
 * Averages gradients of LeNet-5 as a strategy does, for scripts to compare with real libraries.
 * stdin: nine u32: strategy (enum sdc_strategy), ranks, step of the run from 0, compression, bucket
 * view, caps of the first and of the other buckets in bytes, fusion, fusion seed; then for every
 * rank all gradients in registration order. stdout: every rank's result in the same form.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "train/strategy.h"
#include "train/team.h"

static struct sdc_model model;
static const struct sdc_strategy_ops *ops;
static struct sdc_comm *ends[SDC_MAX_RANKS];
static struct sdc_reduction reductions[SDC_MAX_RANKS];
static float *grads[SDC_MAX_RANKS];
static uint32_t head[9];
static struct sdc_averaging options = SDC_AVERAGING_DEFAULT;

static void average(unsigned rank, void *arg) {
    atomic_int *bad = arg;
    struct sdc_step_number step = {head[2], head[2] + 1};
    if (ops->average(&reductions[rank], &step, grads[rank], NULL) != SDC_OK)
        atomic_store(bad, 1);
}

/* All gradients of a rank, to or from a file. */
static int transfer(unsigned rank, FILE *f, int writing) {
    for (unsigned p = 0; p < model.n_params; p++) {
        float *at = grads[rank] + model.params[p].off;
        size_t n = model.params[p].n;
        if ((writing ? fwrite(at, sizeof *at, n, f) : fread(at, sizeof *at, n, f)) != n)
            return 1;
    }
    return 0;
}

int main(void) {
    struct sdc_team *team;
    atomic_int bad = 0;
    atomic_uint beat = 0;
    if (fread(head, sizeof head[0], 9, stdin) != 9 || head[1] < 1 || head[1] > SDC_MAX_RANKS ||
        sdc_model_make("lenet5", &model, NULL) != SDC_OK ||
        sdc_team_new(head[1], &team, NULL) != SDC_OK ||
        sdc_comm_group_new(sdc_comm_find("threads"), head[1], model.n_elems * sizeof(float), 0,
                           ends, NULL) != SDC_OK)
        return 1;
    ops = sdc_strategy_find((enum sdc_strategy)head[0]);
    options.compression = (enum sdc_compression)head[3];
    options.bucket_view = head[4];
    options.first_bucket_bytes = head[5];
    options.bucket_bytes = head[6];
    options.fusion = (enum sdc_fusion)head[7];
    options.fusion_seed = head[8];
    for (unsigned r = 0; r < head[1]; r++) {
        grads[r] = calloc(model.flat, sizeof(float));
        reductions[r] =
            (struct sdc_reduction){.model = &model, .comm = ends[r], .options = &options};
        reductions[r].buffer = calloc(model.n_elems, sizeof(float));
        ops->plan(&reductions[r], head[1]);
        if (transfer(r, stdin, 0))
            return 1;
    }
    if (sdc_team_run(team, average, &bad, &beat, 60000, NULL) != SDC_OK || atomic_load(&bad))
        return 1;
    for (unsigned r = 0; r < head[1]; r++) {
        if (transfer(r, stdout, 1))
            return 1;
        free(grads[r]);
        free(reductions[r].buffer);
    }
    sdc_comm_group_free(ends, head[1]);
    sdc_team_free(team);
    return fflush(stdout) != 0;
}
