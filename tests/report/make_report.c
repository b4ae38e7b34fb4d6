/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a report from planted structs that look like a small campaign, with names chosen to break
 * whoever forgets to escape. Usage: make_report DIR [empty]. The numbers are made up; the tests ask
 * whether they arrive.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "report/report.h"
#include "sdc/rng.h"

#define N_RECIPES  2
#define N_CELLS    48
#define PER_CELL   6
#define N_TRIALS   (N_CELLS * PER_CELL + 3)
#define N_CLUSTERS 3
#define TEXT       256

static const char *const factors[] = {"recipe", "ranks", "part", "altered_ranks", "flips"};
static const char *const recipes[] = {"ddp/after-wrap-all", "horovod/rank0-broadcast"};
static const char *const parts[] = {"model", "optimizer"};
static const char *const who[] = {"one", "all"};
static const char *const rank_counts[] = {"2", "4"};
static const char *const flips[] = {"1", "10", "100"};
static const double flip_counts[] = {1, 10, 100};
static const char *const layer_names[] = {"conv1.weight", "conv1.bias",
                                          "conv2.weight", "conv2.bias",
                                          "fc1.weight",   "fc1.bias",
                                          "fc2.weight",   "fc2.bias",
                                          "fc3.weight",   "<b>fc3</b>.bias 'x' `y` \"z\" & \\n"};

struct planted {
    struct sdc_report r;
    const char *values[N_CELLS][5];
    struct sdc_report_cell cells[N_CELLS];
    char labels[N_CELLS][TEXT];
    struct sdc_report_trial trials[N_TRIALS];
    char sites[N_TRIALS][1024];
    struct sdc_report_point points[N_RECIPES * 2 * 3];
    char series[N_RECIPES * 2][TEXT];
    struct sdc_report_layer layers[N_RECIPES * 2 * 10];
    struct sdc_report_claim claims[2];
    double diff[2][N_CLUSTERS];
};

static char ids[N_TRIALS][64];
static char replay[N_TRIALS][TEXT];

static struct sdc_outcome draw_outcome(struct sdc_rng *rng, int recipe, int part, int whom,
                                       double n) {
    struct sdc_outcome o = {.result = SDC_RESULT_DONE};
    double u = sdc_rng_unit(rng), q = part == 0 ? 1.0 / 32 : 0.012;
    bool rank0_only = recipe == 1;
    if (rank0_only && whom == 0 && u < 0.6)
        o.exposure = SDC_EXPOSURE_NOT_READ;
    else if (rank0_only)
        o.exposure = SDC_EXPOSURE_SPREAD;
    else
        o.exposure = whom == 0 ? SDC_EXPOSURE_KEPT : SDC_EXPOSURE_SPREAD;
    if (part == 1 && rank0_only && sdc_rng_unit(rng) < 0.15)
        o.exposure = SDC_EXPOSURE_ERASED;
    bool reached = o.exposure == SDC_EXPOSURE_KEPT || o.exposure == SDC_EXPOSURE_SPREAD;
    if (reached && sdc_rng_unit(rng) < sdc__stat_null_curve(q, n)) {
        o.numeric =
            sdc_rng_unit(rng) < 0.9 ? SDC_NUMERIC_NONFINITE_NOW : SDC_NUMERIC_NONFINITE_SOON;
        o.trajectory = SDC_TRAJECTORY_NO_LOSS;
        o.quality = SDC_QUALITY_FAILED;
        o.replicas = SDC_REPLICAS_UNKNOWN;
        return o;
    }
    if (!reached)
        return o;
    u = sdc_rng_unit(rng);
    o.trajectory = u < 0.7   ? SDC_TRAJECTORY_INSIDE
                   : u < 0.8 ? SDC_TRAJECTORY_SPIKE_RECOVER
                   : u < 0.9 ? SDC_TRAJECTORY_DEGRADE
                             : SDC_TRAJECTORY_DRIFT;
    o.quality = u < 0.75   ? SDC_QUALITY_UNCHANGED
                : u < 0.9  ? SDC_QUALITY_SLIGHT
                : u < 0.97 ? SDC_QUALITY_DEGRADED
                           : SDC_QUALITY_BETTER;
    o.replicas = o.exposure == SDC_EXPOSURE_KEPT ? SDC_REPLICAS_DIVERGED : SDC_REPLICAS_POISONED;
    return o;
}

static void plant_trial(struct planted *p, size_t n, size_t cell, int index, int shape[5],
                        struct sdc_rng *rng) {
    struct sdc_report_trial *t = &p->trials[n];
    double count = flip_counts[shape[4]];
    snprintf(ids[n], sizeof ids[n], "%08x-%d-%s", (unsigned)(0x51ab3c00u + cell % 24), index,
             shape[0] ? "hvd" : "ddp");
    snprintf(replay[n], sizeof replay[n], "sdclab campaign run -o paper-small.sdcrun --trial %s",
             ids[n]);
    size_t len = 0;
    for (int i = 0; i < count && i < 12 && len + 80 < sizeof p->sites[n]; i++)
        len += (size_t)snprintf(
            p->sites[n] + len, sizeof p->sites[n] - len, "%s%s%s[%d,%d]@lsb:%d %.3g -> %.3g",
            i ? "; " : "", layer_names[sdc_rng_below(rng, 9)], shape[2] ? "/momentum" : "",
            (int)sdc_rng_below(rng, 84), (int)sdc_rng_below(rng, 120), (int)sdc_rng_below(rng, 32),
            sdc_rng_unit(rng) * 0.1, sdc_rng_unit(rng) * 1e3);
    *t = (struct sdc_report_trial){
        .id = ids[n],
        .kind = "trial",
        .cell = cell,
        .cluster = (uint32_t)(index % N_CLUSTERS),
        .index = (uint32_t)index,
        .sites = p->sites[n],
        .ranks = shape[0] ? "0" : "0-3",
        .n_delivered = (uint64_t)count,
        .outcome = draw_outcome(rng, shape[0], shape[2], shape[3], count),
        .accuracy = NAN,
        .golden_accuracy = 0.8772,
        .collapse_step = -1,
        .replay = replay[n],
    };
    if (cell == 7 && index == 3) {
        t->outcome.result = SDC_RESULT_HARNESS_ERROR;
        t->message = "worker ended by signal 9 <killed> & the clean twin failed too";
    } else if (sdc_outcome_is_collapse(&t->outcome)) {
        t->collapse_step = t->outcome.numeric == SDC_NUMERIC_NONFINITE_NOW ? 1 : 17;
    } else {
        t->accuracy = 0.8772 - 0.02 * sdc_rng_unit(rng);
    }
    sdc__report_cell_add(&p->cells[cell], &t->outcome);
}

static void plant_control(struct planted *p, size_t n, const char *kind, const char *sites,
                          struct sdc_outcome outcome) {
    snprintf(ids[n], sizeof ids[n], "control-%s-0", kind);
    snprintf(replay[n], sizeof replay[n], "sdclab campaign run -o paper-small.sdcrun --trial %s",
             ids[n]);
    p->trials[n] = (struct sdc_report_trial){.id = ids[n],
                                             .kind = kind,
                                             .cell = SIZE_MAX,
                                             .sites = sites,
                                             .ranks = "0-1",
                                             .outcome = outcome,
                                             .accuracy = 0.8772,
                                             .golden_accuracy = 0.8772,
                                             .collapse_step = -1,
                                             .replay = replay[n]};
}

static void plant_cells(struct planted *p) {
    struct sdc_rng rng;
    size_t n = 0;
    sdc_rng_init(&rng, 5, SDC_RNG_TEST, 0, 0);
    for (size_t cell = 0; cell < N_CELLS; cell++) {
        int shape[5] = {(int)(cell / 24), (int)(cell / 12 % 2), (int)(cell / 6 % 2),
                        (int)(cell / 3 % 2), (int)(cell % 3)};
        const char **v = p->values[cell];
        v[0] = recipes[shape[0]];
        v[1] = rank_counts[shape[1]];
        v[2] = parts[shape[2]];
        v[3] = who[shape[3]];
        v[4] = flips[shape[4]];
        snprintf(p->labels[cell], TEXT, "%s, ranks %s, %s, %s, %s flips", v[0], v[1], v[2], v[3],
                 v[4]);
        p->cells[cell] =
            (struct sdc_report_cell){.label = p->labels[cell], .values = v, .n_planned = PER_CELL};
        for (int i = 0; i < PER_CELL; i++)
            if (cell != N_CELLS - 1 || i < 4) /* the last cell is not finished */
                plant_trial(p, n++, cell, i, shape, &rng);
    }
    struct sdc_outcome same = {.result = SDC_RESULT_DONE}, collapsed = same;
    collapsed.exposure = SDC_EXPOSURE_SPREAD;
    collapsed.numeric = SDC_NUMERIC_NONFINITE_NOW;
    plant_control(p, n++, "placebo", "", same);
    plant_control(p, n++, "all-nan", "every weight = nan", collapsed);
    p->r.n_trials = n;
}

static void plant_points(struct planted *p) {
    for (int s = 0; s < 4; s++) {
        snprintf(p->series[s], TEXT, "%s, %s", recipes[s / 2], parts[s % 2]);
        for (int f = 0; f < 3; f++) {
            struct sdc_report_point *at = &p->points[3 * s + f];
            *at = (struct sdc_report_point){.series = p->series[s], .n_delivered = flip_counts[f]};
            for (size_t i = 0; i < p->r.n_trials; i++) {
                const struct sdc_report_trial *t = &p->trials[i];
                if (t->cell >= N_CELLS || p->values[t->cell][0] != recipes[s / 2] ||
                    p->values[t->cell][2] != parts[s % 2] ||
                    (double)t->n_delivered != flip_counts[f] ||
                    t->outcome.result != SDC_RESULT_DONE ||
                    t->outcome.exposure == SDC_EXPOSURE_NOT_READ)
                    continue;
                at->n++;
                at->n_collapse += sdc_outcome_is_collapse(&t->outcome) ? 1 : 0;
            }
        }
    }
}

static void plant_layers(struct planted *p) {
    size_t n = 0;
    for (int part = 0; part < 2; part++)
        for (int recipe = 0; recipe < N_RECIPES; recipe++)
            for (int l = 0; l < 10; l++) {
                double m = (part ? 2e-4 : 3e-3) * pow(1.5, l) * (recipe ? 0.8 : 1);
                struct sdc_stat_distances d = {72, 9, 18, m / 6, m, m * 9};
                if (l == 9 && part == 0)
                    d.q75 = INFINITY;
                if (l < 2 && part == 1)
                    d.q25 = 0;
                p->layers[n++] =
                    (struct sdc_report_layer){layer_names[l], recipes[recipe], parts[part], d};
            }
}

static enum sdc_status plant_claims(struct planted *p, struct sdc_error *err) {
    struct sdc_stat_claim_input in[2];
    struct sdc_stat_claim out[2];
    static const double diff[2][N_CLUSTERS] = {{-0.083, -0.146, 0.021}, {0.11, 0.17, 0.09}};
    memcpy(p->diff, diff, sizeof diff);
    for (int i = 0; i < 2; i++)
        in[i] = (struct sdc_stat_claim_input){.diff = p->diff[i],
                                              .k = N_CLUSTERS,
                                              .pairs = {i ? 20 : 30, i ? 8 : 17, i ? 26 : 7, 90},
                                              .direction = i ? 1 : -1,
                                              .margin = 0.02,
                                              .k_required = 20};
    SDC_TRY(sdc__stat_claims(in, 2, 0.05, out, err));
    p->claims[0] = (struct sdc_report_claim){
        "H1a", "Horovod as it is used collapses less often than DDP as it is used",
        "risk of collapse, horovod/rank0-broadcast minus ddp/after-wrap-all", out[0]};
    p->claims[1] = (struct sdc_report_claim){
        "H3", "Faults in the model collapse training more often than faults in the optimizer",
        "risk of collapse, model minus optimizer", out[1]};
    return SDC_OK;
}

static enum sdc_status plant(struct planted *p, struct sdc_error *err) {
    static const struct sdc_report_fact facts[] = {
        {"sdclab", "0.1.0, gcc 12.2, oneDNN 2.6.3, GSL 2.7.1"},
        {"Processor", "GenuineIntel family 6 model 143 (avx2 fma avx512f avx512bf16 amx)"},
        {"Floating point", "ftz=0 daz=0 rounding=nearest"},
        {"Model", "lenet5, 61,706 parameters"},
        {"Data", "fashion-mnist, 60,000 training and 10,000 test images"}};
    static const struct sdc_report_control controls[] = {
        {"placebo", "nothing altered: equals the clean twin bit for bit", 12, 0, NULL},
        {"one-lsb", "one lowest mantissa bit: differs, and stays inside the clean spread", 12, 0,
         NULL},
        {"all-nan", "every weight NaN on all ranks: collapses", 12, 0, NULL}};
    static const struct sdc_report_spread spreads[] = {
        {"E0", "same order, one lowest mantissa bit flipped", 3, "loss differs by at most 3.1e-5"},
        {"E1", "other data orders from the checkpoint on", 3,
         "accuracy differs by at most 0.9 points"}};
    plant_cells(p);
    plant_points(p);
    plant_layers(p);
    SDC_TRY(plant_claims(p, err));
    size_t n_trials = p->r.n_trials;
    p->r = (struct sdc_report){
        .campaign = "paper-small",
        .summary = "LeNet-5 on Fashion-MNIST, checkpoints altered and restarted: two recipes, "
                   "two and four ranks, model and optimizer, 1 to 100 flips.",
        .spec_yaml = "campaign: paper-small\nseed: 2022\n# </pre><script>alert(1)</script>\n"
                     "factors:\n  flips: [1, 10, 100]\n",
        .seed = 2022,
        .started = "2026-01-31T12:00:00Z",
        .finished = "2026-01-31T12:04:40Z",
        .facts = facts,
        .n_facts = 5,
        .claims = p->claims,
        .n_claims = 2,
        .controls = controls,
        .n_controls = 3,
        .factors = factors,
        .n_factors = 5,
        .cells = p->cells,
        .n_cells = N_CELLS,
        .points = p->points,
        .n_points = 12,
        .layers = p->layers,
        .n_layers = 40,
        .spreads = spreads,
        .n_spreads = 2,
        .trials = p->trials,
        .n_trials = n_trials,
    };
    return SDC_OK;
}

int main(int argc, char **argv) {
    struct sdc_error err = {0};
    struct sdc_report empty = {.campaign = "<i>empty</i>"};
    if (argc < 2) {
        fprintf(stderr, "usage: make_report DIR [empty]\n");
        return 2;
    }
    struct planted *p = sdc__calloc(1, sizeof *p);
    if (!p)
        return 4;
    enum sdc_status st = plant(p, &err);
    if (st == SDC_OK)
        st = sdc__report_write(argc > 2 ? &empty : &p->r, argv[1], &err);
    if (st != SDC_OK)
        fprintf(stderr, "%s: %s\n", sdc_status_name(st), err.message);
    sdc__free(p);
    return sdc_status_exit_code(st);
}
