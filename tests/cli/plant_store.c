/* SPDX-License-Identifier: Apache-2.0
 *
 * plant_store SPEC DIR [bad-control|part]: a store in which every planned trial has a made-up
 * outcome that follows from its id alone. For tests of the commands that only look at stores; with
 * "part" every third trial is left out, with "bad-control" a placebo fails.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "camp/plan.h"
#include "camp/store.h"

struct rows {
    struct sdc_store_fault fault;
    struct sdc_store_exposure exposures[64];
    struct sdc_store_point points[3];
    struct sdc_store_propagation propagation[2];
};

static void fill_rows(const struct sdc_plan_group *g, uint32_t ranks, uint64_t altered,
                      struct rows *rows, struct sdc_store_trial *t) {
    static char tensor[] = "model/fc3.weight", index[] = "[1,2]", conv[] = "conv1", fc[] = "fc3";
    rows->fault = (struct sdc_store_fault){.tensor = tensor,
                                           .index = index,
                                           .elem = 86,
                                           .dtype = SDC_DTYPE_F32,
                                           .part = SDC_PART_MODEL,
                                           .role = SDC_ROLE_WEIGHT,
                                           .bits = 0x40000000,
                                           .old_raw = 0x3d4ccccd,
                                           .new_raw = 0x7d4ccccd,
                                           .delivered = t->delivered > 0};
    t->faults = &rows->fault;
    t->n_faults = t->planned > 0;
    bool reached = t->outcome.exposure == SDC_EXPOSURE_SPREAD;
    for (uint32_t r = 0; r < ranks; r++)
        rows->exposures[r] = (struct sdc_store_exposure){.rank = r,
                                                         .planned = altered >> r & 1,
                                                         .read = altered >> r & 1,
                                                         .altered_loaded = altered >> r & 1,
                                                         .altered_started = reached};
    t->exposures = rows->exposures;
    t->n_exposures = ranks;
    bool collapse = t->collapse_step >= 0;
    for (int i = 0; i < 2; i++)
        rows->points[i] = (struct sdc_store_point){
            SDC_SERIES_LOSS, g->checkpoint + 1 + (unsigned)i, 0, collapse ? NAN : 0.5, NAN, 1.25};
    rows->points[2] = (struct sdc_store_point){SDC_SERIES_EVAL,      g->to_step,  0,
                                               collapse ? NAN : 0.4, t->accuracy, NAN};
    t->points = rows->points;
    t->n_points = 3;
    rows->propagation[0] = (struct sdc_store_propagation){.layer = conv,
                                                          .part = SDC_PART_MODEL,
                                                          .step = g->to_step,
                                                          .n_elems = 156,
                                                          .n_differ = 150,
                                                          .distance = 1e-3,
                                                          .distance_altered = NAN};
    rows->propagation[1] = (struct sdc_store_propagation){.layer = fc,
                                                          .part = SDC_PART_MODEL,
                                                          .step = g->to_step,
                                                          .n_elems = 850,
                                                          .n_differ = 850,
                                                          .n_altered = 1,
                                                          .distance = collapse ? INFINITY : 1e-2,
                                                          .distance_altered = 1e3};
    t->propagation = rows->propagation;
    t->n_propagation = 2;
}

static enum sdc_status put_trial(struct sdc_store *store, const struct sdc_plan *plan,
                                 const struct sdc_plan_trial *p, int bad, struct sdc_error *err) {
    uint32_t draw = sdc__hash32(p->id, strlen(p->id)) % 100;
    const struct sdc_plan_group *g = &plan->groups[p->group];
    struct rows rows;
    struct sdc_store_trial t = {.kind = p->kind,
                                .cell = p->cell,
                                .index = p->index,
                                .cluster = p->cluster,
                                .group = p->group,
                                .collapse_step = -1,
                                .control = p->kind == SDC_TRIAL_CELL ? -1 : !bad,
                                .end_step = g->to_step,
                                .end_reason = "completed",
                                .accuracy = 0.8,
                                .accuracy_worst = 0.79,
                                .accuracy_golden = 0.81,
                                .eval_loss = 0.4,
                                .end_loss = 0.5,
                                .distance = 1e-2,
                                .support = 1974592,
                                .planned = 1,
                                .delivered = 1,
                                .platform = 1,
                                .attempts = 1};
    char message[] = "planted: the loss of the first step differs";
    memcpy(t.id, p->id, sizeof t.id);
    t.message = bad ? message : NULL;
    t.outcome.exposure = draw < 20 ? SDC_EXPOSURE_ERASED : SDC_EXPOSURE_SPREAD;
    if (draw >= 70 || p->kind == SDC_TRIAL_ALL_NAN) {
        t.outcome.numeric = SDC_NUMERIC_NONFINITE_NOW;
        t.collapse_step = 1;
        t.accuracy = 0.1;
    }
    if (draw >= 98 && p->kind == SDC_TRIAL_CELL)
        t.outcome.result = SDC_RESULT_HARNESS_ERROR;
    fill_rows(g, plan->settings[g->setting].ranks, p->altered, &rows, &t);
    return sdc__store_put_trial(store, &t, err);
}

static enum sdc_status plant(const char *spec_path, const char *dir, const char *how,
                             struct sdc_error *err) {
    struct sdc_spec *spec = NULL;
    struct sdc_plan *plan = NULL;
    struct sdc_store *store = NULL;
    int64_t platform;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__spec_read(spec_path, &spec, err));
    SDC_TRY_OUT(st, sdc__plan_new(spec, &plan, err));
    SDC_TRY_OUT(st, sdc__store_open(dir, spec, &store, err));
    SDC_TRY_OUT(st, sdc__store_platform(store, "planted", "{}", &platform, err));
    SDC_TRY_OUT(st, sdc__store_put_meta(store, "trials_per_minute", "120", err));
    for (size_t i = 0; i < plan->n_groups; i++) {
        struct sdc_store_golden g = {.platform = platform, .passed = true, .accuracy = 0.81};
        memcpy(g.group, plan->groups[i].id, sizeof g.group);
        SDC_TRY_OUT(st, sdc__store_put_golden(store, &g, err));
        for (int k = 0; k < 2; k++) {
            struct sdc_store_replica r = {.platform = platform,
                                          .kind = (enum sdc_spread_kind)k,
                                          .accuracy = 0.805,
                                          .max_deviation = 1e-5};
            memcpy(r.group, g.group, sizeof r.group);
            SDC_TRY_OUT(st, sdc__store_put_replica(store, &r, err));
        }
    }
    for (size_t i = 0; i < plan->n_trials; i++)
        if (strcmp(how, "part") != 0 || i % 3 != 0)
            SDC_TRY_OUT(st, put_trial(store, plan, &plan->trials[i],
                                      i == 0 && strcmp(how, "bad-control") == 0, err));
out:
    sdc__store_close(store);
    sdc__plan_free(plan);
    sdc__spec_free(spec);
    return st;
}

int main(int argc, char *argv[]) {
    struct sdc_error err;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: plant_store SPEC DIR [bad-control|part]\n");
        return 2;
    }
    if (plant(argv[1], argv[2], argc == 4 ? argv[3] : "", &err) != SDC_OK) {
        fprintf(stderr, "plant_store: %s\n", err.message);
        return 1;
    }
    return 0;
}
