/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole path with no fault, on a training of one step: train, save, alter nothing, restart,
 * watch, judge. What is missing or broken shows within seconds, not after hours of training.
 */
#include <string.h>

#include "base/alloc.h"
#include "camp/exec_internal.h"
#include "io/io.h"

#define EVAL_SAMPLES 64

/* Runs one description to its end, waiting. */
static enum sdc_status run_and_wait(struct sdc_exec *x, const struct sdc_run *run,
                                    struct sdc_event_list *events, struct sdc_error *err) {
    char *path = sdc__path_join(run->output, "run.json");
    char *log = sdc__path_join(run->output, "events.jsonl");
    struct sdc_pool_result r = {0};
    enum sdc_status st;
    if (!path || !log) {
        st = SDC_NOMEM(err, "a path");
        goto out;
    }
    SDC_TRY_OUT(st, sdc_run_check(run, err));
    SDC_TRY_OUT(st, sdc_run_write(path, run, err));
    struct sdc_pool_job job = {
        .trial = run->trial, .path = path, .events = log, .hang_ms = x->options->hang_first_ms};
    SDC_TRY_OUT(st, sdc__pool_submit(x->pool, &job, err));
    for (bool got = false; !got;) {
        if (sdc__exec_stopping(x)) {
            st = SDC_ERR(err, SDC_CANCELLED, "stopped while the path was checked");
            goto out;
        }
        SDC_TRY_OUT(st, sdc__pool_wait(x->pool, 1000, &r, &got, err));
    }
    if (r.end == SDC_POOL_DONE && r.status != SDC_OK)
        st = SDC_ERR(err, r.status, "%s", r.message ? r.message : sdc_status_text(r.status));
    else if (r.end != SDC_POOL_DONE)
        st =
            SDC_ERR(err, r.end == SDC_POOL_HUNG ? SDC_TIMEOUT : SDC_PEER, "the worker %s (log: %s)",
                    r.message ? r.message : "ended", r.log ? r.log : "none");
    else
        st = sdc__exec_events(run->output, events, err);
out:
    sdc__pool_result_release(&r);
    sdc__free(path);
    sdc__free(log);
    return st;
}

static enum sdc_status set_common(struct sdc_run *run, const char *trial, const char *dir,
                                  uint64_t from, struct sdc_error *err) {
    SDC_TRY(sdc__exec_set(&run->trial, trial, err));
    char *output = sdc__path_join(dir, trial);
    if (!output)
        return SDC_NOMEM(err, "a path");
    sdc__free(run->output);
    run->output = output;
    run->from_step = from;
    run->to_step = from + 1;
    if (run->eval_samples == 0 || run->eval_samples > EVAL_SAMPLES)
        run->eval_samples = EVAL_SAMPLES;
    run->digest_every = 1;
    return sdc__make_dirs(output, err);
}

static enum sdc_status train_one_step(struct sdc_exec *x, const char *dir, const char *base,
                                      struct sdc_error *err) {
    struct sdc_run run;
    struct sdc_event_list events = {0};
    enum sdc_status st;
    sdc_run_init(&run);
    SDC_TRY_OUT(st, sdc__plan_training_run(x->plan, x->plan->groups[0].training, &run, err));
    SDC_TRY_OUT(st, set_common(&run, "train", dir, 0, err));
    SDC_TRY_OUT(st, sdc__exec_set(&run.save.path, base, err));
    SDC_TRY_OUT(st, sdc__exec_set(&run.save.format, "hdf5", err));
    st = run_and_wait(x, &run, &events, err);
out:
    sdc_events_release(&events);
    sdc_run_release(&run);
    return st;
}

static enum sdc_status alter_nothing(const char *base, const char *altered, struct sdc_error *err) {
    struct sdc_choice choice;
    sdc_choice_init(&choice);
    choice.flips = 0;
    struct sdc_alter_options options = {
        .output = altered, .replace = true, .no_record = true, .no_sync = true};
    struct sdc_alter_result result = {0};
    enum sdc_status st = sdc_alter(base, &choice, &options, &result, err);
    sdc_alter_result_release(&result);
    sdc_choice_release(&choice);
    return st;
}

/* Judges a restart as its own golden and compares its snapshots with themselves. */
static enum sdc_status look_at(struct sdc_exec *x, const struct sdc_event_list *events,
                               const char *folder, struct sdc_error *err) {
    struct sdc_exec_group g = {0};
    struct sdc_outcome o;
    struct sdc_judge_detail d;
    struct sdc_exec_compared c = {0};
    struct sdc_judge_trial t = {.events = events};
    uint64_t params;
    char *path = NULL;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__clean_init(&g.clean, events, 1, 2, err));
    SDC_TRY_OUT(st, sdc__judge(&g.clean, &x->thresholds, &t, &o, &d, err));
    const struct sdc_event *s = sdc__exec_find_event(events, SDC_EVENT_SNAPSHOT, 2);
    if (!s || s->n_paths != g.clean.ranks || !g.clean.steps[0]->digests || !d.identical) {
        st =
            SDC_ERR(err, SDC_INVALID, "the restart wrote no snapshot of every rank, or no digests");
        goto out;
    }
    if (!(path = sdc__exec_path(folder, s->paths[0]))) {
        st = SDC_NOMEM(err, "a path");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__exec_layers(&g, path, &params, err));
    SDC_TRY_OUT(st, sdc__exec_compare(&g, path, path, 0, 2, NULL, 0, 0, &c, err));
    if (params == 0 || c.distance > 0)
        st = SDC_ERR(err, SDC_INVALID, "the snapshot %s has %llu parameters, %s", path,
                     (unsigned long long)params, "expected a model that equals itself");
out:
    sdc__free(c.rows);
    sdc__free(path);
    sdc__clean_release(&g.clean);
    for (size_t i = 0; i < g.n_layers; i++)
        sdc__free(g.layers[i].name);
    sdc__free(g.layers);
    return st;
}

static enum sdc_status restart(struct sdc_exec *x, const char *dir, const char *altered,
                               struct sdc_error *err) {
    struct sdc_run run;
    struct sdc_event_list events = {0};
    enum sdc_status st;
    sdc_run_init(&run);
    SDC_TRY_OUT(st, sdc__plan_group_run(x->plan, 0, &run, err));
    SDC_TRY_OUT(st, set_common(&run, "restart", dir, 1, err));
    run.load = sdc__calloc(run.ranks, sizeof *run.load);
    run.snapshot_steps = sdc__alloc(1, sizeof *run.snapshot_steps);
    if (!run.load || !run.snapshot_steps) {
        st = SDC_NOMEM(err, "a run description");
        goto out;
    }
    run.n_load = run.ranks;
    run.snapshot_steps[0] = run.to_step;
    run.n_snapshot_steps = 1;
    for (uint32_t r = 0; r < run.ranks; r++)
        SDC_TRY_OUT(st, sdc__exec_set(&run.load[r].path, altered, err));
    SDC_TRY_OUT(st, run_and_wait(x, &run, &events, err));
    st = look_at(x, &events, run.output, err);
out:
    sdc_events_release(&events);
    sdc_run_release(&run);
    return st;
}

enum sdc_status sdc__exec_dry_path(struct sdc_exec *x, struct sdc_error *err) {
    char *dir = sdc__path_join(x->dir, "check");
    char *base = sdc__path_join(dir ? dir : "", "base.h5");
    char *altered = sdc__path_join(dir ? dir : "", "altered.h5");
    bool through = false;
    enum sdc_status st;
    if (!dir || !base || !altered) {
        st = SDC_NOMEM(err, "a path");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__remove_tree(dir, err));
    SDC_TRY_OUT(st, sdc__make_dirs(dir, err));
    SDC_TRY_OUT(st, train_one_step(x, dir, base, err));
    SDC_TRY_OUT(st, alter_nothing(base, altered, err));
    SDC_TRY_OUT(st, restart(x, dir, altered, err));
    through = true;
    uint32_t setting = x->plan->trainings[x->plan->groups[0].training].setting;
    SDC_TRY_OUT(st, sdc__exec_check_support(x, setting, base, err));
    st = sdc__remove_tree(dir, err);
out:
    sdc__free(dir);
    sdc__free(base);
    sdc__free(altered);
    if (st != SDC_OK && st != SDC_CANCELLED && !through)
        sdc_error_prefix(err, "a first run without any fault did not get through");
    return st;
}
