/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/platform.h"
#include "base/str.h"
#include "train/files.h"
#include "train/probe.h"
#include "train/source.h"
#include "train/startup.h"

/* What the ranks tell each other after a step, and after an evaluation. */
struct record {
    uint32_t status;
    float loss;
    uint64_t nonfinite_gradients, nonfinite_parameters;
    struct sdc_rank_digests digests;
    uint64_t eval_correct;
    double eval_loss;
};
_Static_assert(sizeof(struct record) <= SDC_COMM_SMALL, "one meeting a step");

/* A rank during its run. `pending` is a failure of its own that the others do not know of yet. */
struct member {
    struct sdc_job *job;
    const struct sdc_run *run;
    struct sdc_rank *r;
    struct sdc_comm *comm;
    unsigned rank, ranks;
    enum sdc_status pending;
    struct sdc_error err;
    struct record mine, *all; /* all: [ranks] */
    struct sdc_step_result last;
    size_t golden_at;        /* next golden step to look at */
    bool over;               /* an early end */
    struct sdc_probe *probe; /* its live faults; NULL: none */
    struct sdc_event event;  /* rank 0's, for steps; its arrays are made once */
};

/* The first failure is kept. */
static void note(struct member *m, enum sdc_status st) {
    if (m->pending == SDC_OK)
        m->pending = st;
}

/* Collective: everyone's pending failure; all return the same. */
static enum sdc_status settle(struct member *m) {
    struct sdc_error worst;
    enum sdc_status st = sdc_comm_agree(m->comm, m->pending, &m->err, NULL, &worst);
    if (st != SDC_OK)
        m->err = worst;
    return st;
}

/* Collective: exchanges records. A failure in any of them ends the run for all. */
static enum sdc_status exchange(struct member *m) {
    m->mine.status = (uint32_t)m->pending;
    SDC_TRY(sdc_comm_gather(m->comm, &m->mine, sizeof m->mine, m->all, &m->err));
    atomic_fetch_add(m->job->beat, 1);
    for (unsigned i = 0; i < m->ranks; i++)
        if (m->all[i].status != SDC_OK)
            return settle(m);
    return SDC_OK;
}

static void put(struct member *m, struct sdc_event *e) {
    if (m->rank == 0 && m->pending == SDC_OK)
        note(m, sdc_sink_put(m->job->sink, e, &m->err));
}

static bool listed(const uint64_t *steps, size_t n, uint64_t step) {
    for (size_t i = 0; i < n; i++)
        if (steps[i] == step)
            return true;
    return false;
}

/* ---- start ---- */

/* Both digests of each rank in one exchange. */
struct start_record {
    struct sdc_rank_digests loaded, started;
};
_Static_assert(sizeof(struct start_record) <= SDC_COMM_SMALL, "one meeting");

static void put_start(struct member *m, const struct start_record *all) {
    const struct sdc_run *run = m->run;
    struct sdc_start_rank ranks[SDC_MAX_RANKS] = {0};
    for (unsigned i = 0; i < m->ranks; i++) {
        if (run->n_load > 0) {
            ranks[i].read_model = sdc_startup_reads_model(&run->switches, i);
            ranks[i].read_optimizer = sdc_startup_reads_optimizer(&run->switches, i);
            if (ranks[i].read_model || ranks[i].read_optimizer)
                ranks[i].file = run->load[i].path;
        }
        ranks[i].loaded = all[i].loaded;
        ranks[i].started = all[i].started;
    }
    struct sdc_event e;
    sdc_event_init(&e, SDC_EVENT_START);
    e.step = run->from_step;
    e.ranks = m->ranks;
    e.trial = run->trial;
    e.trainer = (char *)(uintptr_t)SDC_TRAINER_NAME " " SDC_VERSION;
    e.environment = (struct sdc_key_value *)(uintptr_t)m->job->facts; /* borrowed */
    e.n_environment = m->job->n_facts;
    e.start = ranks;
    put(m, &e);
}

/* The kernels' library may have changed the state of the thread by now. */
static enum sdc_status check_float_environment(struct member *m) {
    char text[64];
    struct sdc_fpenv env = sdc__fpenv_read();
    sdc__fpenv_text(&env, text, sizeof text);
    if (strcmp(text, m->job->float_environment) != 0)
        return SDC_ERR(&m->err, SDC_INTERNAL, "floating-point environment: found %s, expected %s",
                       text, m->job->float_environment);
    return SDC_OK;
}

static enum sdc_status prepare(struct member *m) {
    const struct sdc_job *job = m->job;
    SDC_TRY(sdc_rank_prepare(m->r, &job->shape, &m->err));
    const struct sdc_sharding sharding = sdc_run_sharding(job->run, job->train_set->n);
    const struct sdc_augment augment = sdc_run_augment(job->run);
    SDC_TRY(sdc_rank_order(m->r, &sharding, &augment, &m->err));
    m->r->sync_buffers = m->run->switches.broadcast_buffers_each_forward;
    struct sdc_reduction *red = &m->r->reduction;
    red->model = job->shape.model;
    red->comm = m->comm;
    red->options = &job->run->averaging;
    job->strategy->plan(red, m->ranks);
    return check_float_environment(m);
}

static enum sdc_status start(struct member *m) {
    const struct sdc_run *run = m->run;
    struct sdc_train_state *s = &m->r->state;
    struct start_record mine = {0}, all[SDC_MAX_RANKS];
    note(m, prepare(m));
    SDC_TRY(settle(m));
    sdc_startup_load(&run->switches, m->rank, run->seed_init, &m->job->optimizer.schedule,
                     m->job->files[m->rank], s);
    note(m, sdc_probe_new(run, m->rank, s, &m->probe, &m->err));
    note(m, sdc_train_state_digests(s, &mine.loaded, &m->err));
    SDC_TRY(settle(m));
    SDC_TRY(sdc_startup_exchange(&run->switches, &m->job->optimizer, m->r->engine, m->comm, s,
                                 &m->err));
    note(m, sdc_train_state_digests(s, &mine.started, &m->err));
    SDC_TRY(settle(m));
    SDC_TRY(sdc_comm_gather(m->comm, &mine, sizeof mine, all, &m->err));
    if (m->rank == 0)
        put_start(m, all);
    m->mine.digests = mine.started;
    return SDC_OK;
}

/* ---- what happens at a step number ---- */

/* Golden's digests at this step, or NULL. Steps are asked for in ascending order. */
static const struct sdc_golden_step *golden_here(struct member *m, uint64_t step) {
    const struct sdc_job *job = m->job;
    while (m->golden_at < job->n_golden && job->golden[m->golden_at].step < step)
        m->golden_at++;
    bool here = m->golden_at < job->n_golden && job->golden[m->golden_at].step == step;
    return here ? &job->golden[m->golden_at] : NULL;
}

static bool digests_due(struct member *m, uint64_t step) {
    if (step == m->run->to_step || golden_here(m, step))
        return true;
    return m->run->digest_every > 0 && step % m->run->digest_every == 0;
}

static bool save_due(const struct sdc_run *run, uint64_t step) {
    if (!run->save.path)
        return false;
    if (run->save.n_steps == 0)
        return step == run->to_step;
    return listed(run->save.steps, run->save.n_steps, step);
}

/* Local: digests and snapshot of this rank, where they are due at this step. */
static void record_state(struct member *m, uint64_t step) {
    const struct sdc_run *run = m->run;
    m->mine.digests.valid = false;
    if (m->pending == SDC_OK && digests_due(m, step))
        note(m, sdc_train_state_digests(&m->r->state, &m->mine.digests, &m->err));
    if (m->pending == SDC_OK && listed(run->snapshot_steps, run->n_snapshot_steps, step))
        note(m, sdc_train_snapshot(&m->r->state, run->output, m->rank, &m->err));
}

static void put_paths(struct member *m, enum sdc_event_kind kind, uint64_t step, char **paths,
                      size_t n) {
    struct sdc_event e;
    sdc_event_init(&e, kind);
    e.step = step;
    e.ranks = m->ranks;
    e.paths = paths;
    e.n_paths = n;
    put(m, &e);
}

static void put_snapshot(struct member *m, uint64_t step) {
    char *paths[SDC_MAX_RANKS] = {NULL};
    for (unsigned i = 0; i < m->ranks; i++) {
        paths[i] = sdc_train_snapshot_path(m->run->output, step, i);
        if (!paths[i])
            note(m, SDC_NOMEM(&m->err, "a path"));
    }
    put_paths(m, SDC_EVENT_SNAPSHOT, step, paths, m->ranks);
    for (unsigned i = 0; i < m->ranks; i++)
        sdc__free(paths[i]);
}

/* Rank 0: the files of this step and their events. */
static void write_files(struct member *m, uint64_t step) {
    const struct sdc_run *run = m->run;
    if (m->rank != 0)
        return;
    if (listed(run->snapshot_steps, run->n_snapshot_steps, step))
        put_snapshot(m, step);
    if (m->pending != SDC_OK || !save_due(run, step))
        return;
    char *path = sdc_train_save_path(run->save.path, step);
    if (!path) {
        note(m, SDC_NOMEM(&m->err, "a path"));
        return;
    }
    note(m, sdc_train_save(&m->r->state, path, run->save.format, &m->err));
    put_paths(m, SDC_EVENT_CHECKPOINT, step, &path, 1);
    sdc__free(path);
}

static bool evaluation_due(const struct member *m, uint64_t step) {
    const struct sdc_run *run = m->run;
    if (m->job->eval_samples == 0)
        return false;
    if (step == run->to_step)
        return true;
    return run->eval_every > 0 && step > run->from_step && step % run->eval_every == 0;
}

/* Collective only where every rank evaluates; otherwise rank 0 alone works and the others go on to
 * wait for it in the next step. */
static enum sdc_status evaluate(struct member *m, uint64_t step) {
    struct sdc_job *job = m->job;
    bool all = m->run->eval_who == SDC_WHO_ALL;
    struct sdc_eval_result own = {0};
    if (!all && m->rank != 0)
        return SDC_OK;
    if (m->pending == SDC_OK)
        note(m,
             sdc_rank_evaluate(m->r, job->test_set, job->eval_samples, job->beat, &own, &m->err));
    m->mine.eval_loss = own.loss;
    m->mine.eval_correct = own.correct;
    if (all)
        SDC_TRY(exchange(m));
    else
        m->all[0] = m->mine;
    if (m->rank != 0 || m->pending != SDC_OK)
        return SDC_OK;
    double losses[SDC_MAX_RANKS];
    uint64_t corrects[SDC_MAX_RANKS];
    struct sdc_event e;
    sdc_event_init(&e, SDC_EVENT_EVAL);
    e.step = step;
    e.ranks = all ? m->ranks : 1;
    for (unsigned i = 0; i < e.ranks; i++) {
        losses[i] = m->all[i].eval_loss;
        corrects[i] = m->all[i].eval_correct;
    }
    e.samples = job->eval_samples;
    e.eval_loss = losses;
    e.eval_correct = corrects;
    put(m, &e);
    job->result.evaluated = true;
    job->result.eval_loss = losses[0];
    job->result.eval_correct = corrects[0];
    job->result.eval_samples = job->eval_samples;
    return SDC_OK;
}

/* From records that every rank has alike: is the rest of the run known? */
static bool certain_end(struct member *m, uint64_t step, enum sdc_end_reason *reason) {
    const struct sdc_job *job = m->job;
    bool equal = false, all_nonfinite = step > m->run->from_step;
    const struct sdc_golden_step *g = golden_here(m, step);
    if (g) {
        equal = true;
        for (unsigned i = 0; i < m->ranks; i++)
            equal = equal && m->all[i].digests.valid &&
                    memcmp(&m->all[i].digests.state, &g->state[i], sizeof g->state[i]) == 0;
    }
    for (unsigned i = 0; i < m->ranks; i++)
        all_nonfinite =
            all_nonfinite && m->all[i].nonfinite_parameters == job->shape.model->n_elems;
    *reason = equal ? SDC_END_EQUAL_TO_GOLDEN : SDC_END_ALL_NONFINITE;
    return equal || all_nonfinite;
}

/* ---- live faults ---- */

static void put_fault(struct member *m, uint32_t index, const struct sdc_probe_report *report) {
    const struct sdc_live_fault *fault = &m->run->faults[index];
    struct sdc_event_change changes[SDC_PROBE_CHANGES];
    struct sdc_event e;
    sdc_event_init(&e, SDC_EVENT_FAULT);
    e.step = fault->step;
    e.fault = index;
    e.rank = fault->rank;
    e.point = fault->point;
    e.changed = report->changed;
    e.changes = changes;
    for (; e.n_changes < SDC_PROBE_CHANGES && e.n_changes < report->changed; e.n_changes++) {
        const struct sdc_probe_change *c = &report->changes[e.n_changes];
        const char *name = sdc_probe_tensor_name(&m->r->state, fault->point, c->tensor);
        changes[e.n_changes] = (struct sdc_event_change){(char *)(uintptr_t)name, c->elem,
                                                         c->before, c->after}; /* borrowed */
    }
    put(m, &e);
}

/* Collective, in steps with live faults: each rank tells what its own did. */
static enum sdc_status tell_faults(struct member *m, uint64_t step) {
    for (uint32_t i = 0; i < m->run->n_faults; i++) {
        struct sdc_probe_report report = {0};
        if (m->run->faults[i].step != step)
            continue;
        sdc_probe_report(m->probe, i, &report);
        SDC_TRY(
            sdc_comm_broadcast(m->comm, m->run->faults[i].rank, &report, sizeof report, &m->err));
        put_fault(m, i, &report);
    }
    return SDC_OK;
}

/* ---- steps ---- */

static void put_step(struct member *m, uint64_t step) {
    struct sdc_event *e = &m->event;
    struct sdc_rank_digests digests[SDC_MAX_RANKS];
    e->step = step;
    e->gradient_norm = m->last.gradient_norm;
    bool with_digests = m->all[0].digests.valid;
    for (unsigned i = 0; i < m->ranks; i++) {
        e->loss[i] = m->all[i].loss;
        e->nonfinite_gradients[i] = m->all[i].nonfinite_gradients;
        e->nonfinite_parameters[i] = m->all[i].nonfinite_parameters;
        digests[i] = m->all[i].digests;
    }
    e->digests = with_digests ? digests : NULL;
    put(m, e);
    e->digests = NULL;
}

/* The learning rate for the next step; collective where it goes by the loss. */
static enum sdc_status move_schedule(struct member *m) {
    const struct sdc_schedule *schedule = &m->job->optimizer.schedule;
    struct sdc_loop_state *loop = &m->r->state.loop;
    float losses[SDC_MAX_RANKS] = {0};
    double mean = 0;
    if (schedule->kind == SDC_SCHEDULE_PLATEAU) {
        SDC_TRY(sdc_comm_gather(m->comm, &m->last.loss, sizeof losses[0], losses, &m->err));
        for (unsigned i = 0; i < m->ranks; i++)
            mean += (double)losses[i];
        mean /= m->ranks;
    }
    const uint64_t per_epoch = sdc_sampler_steps_per_epoch(sdc_feed_sharding(m->r->feed));
    sdc_schedule_after_step(schedule, &loop->schedule, mean, loop->cursor == (int64_t)per_epoch,
                            per_epoch);
    return SDC_OK;
}

static enum sdc_status one_step(struct member *m, uint64_t step) {
    struct sdc_job *job = m->job;
    uint64_t before = sdc__now_ns();
    enum sdc_status local;
    m->r->reduction.probe = sdc_probe_at(m->probe, step);
    struct sdc_step_number number = {step - 1 - m->run->from_step, step};
    SDC_TRY(sdc_rank_step(m->r, job->train_set, job->strategy, &job->optimizer, &number, &m->last,
                          &local, &m->err));
    note(m, local);
    if (m->r->state.schedule)
        SDC_TRY(move_schedule(m));
    if (m->rank == 0 && m->pending == SDC_OK && job->cancel && atomic_load(job->cancel))
        note(m, SDC_ERR(&m->err, SDC_CANCELLED, "interrupted after step %llu",
                        (unsigned long long)step));
    record_state(m, step);
    m->mine.loss = m->last.loss;
    m->mine.nonfinite_gradients = m->last.nonfinite_gradients;
    m->mine.nonfinite_parameters = m->last.nonfinite_parameters;
    SDC_TRY(exchange(m));
    if (m->run->n_faults > 0)
        SDC_TRY(tell_faults(m, step));
    if (m->rank == 0) {
        put_step(m, step);
        job->result.step = step;
        job->result.loss = m->last.loss;
        job->result.images += (uint64_t)m->run->batch * m->ranks;
        job->result.train_seconds += (double)(sdc__now_ns() - before) * 1e-9;
    }
    return SDC_OK;
}

/* Files, early end and evaluation at a step number; at the start too, where no step event is. */
static enum sdc_status at_step(struct member *m, uint64_t step) {
    enum sdc_end_reason reason;
    write_files(m, step);
    if (step < m->run->to_step && certain_end(m, step, &reason)) {
        m->over = true;
        if (m->rank == 0)
            m->job->result.reason = reason;
        return SDC_OK;
    }
    if (evaluation_due(m, step))
        SDC_TRY(evaluate(m, step));
    return SDC_OK;
}

static enum sdc_status steps(struct member *m) {
    const struct sdc_run *run = m->run;
    bool at_start = listed(run->snapshot_steps, run->n_snapshot_steps, run->from_step) ||
                    save_due(run, run->from_step) || run->from_step == run->to_step ||
                    (m->job->n_golden > 0 && m->job->golden[0].step == run->from_step);
    if (at_start) {
        record_state(m, run->from_step);
        SDC_TRY(exchange(m));
        SDC_TRY(at_step(m, run->from_step));
    }
    for (uint64_t step = run->from_step + 1; step <= run->to_step && !m->over; step++) {
        SDC_TRY(one_step(m, step));
        SDC_TRY(at_step(m, step));
    }
    note(m, check_float_environment(m));
    return settle(m);
}

static enum sdc_status member_init(struct member *m, struct sdc_job *job, unsigned rank) {
    *m = (struct member){.job = job,
                         .run = job->run,
                         .r = &job->ranks[rank],
                         .comm = job->ends[rank],
                         .rank = rank,
                         .ranks = job->run->ranks};
    struct sdc_event *e = &m->event;
    sdc_event_init(e, SDC_EVENT_STEP);
    e->ranks = m->ranks;
    m->all = sdc__calloc(m->ranks, sizeof *m->all);
    e->loss = sdc__calloc(m->ranks, sizeof *e->loss);
    e->nonfinite_gradients = sdc__calloc(m->ranks, sizeof *e->nonfinite_gradients);
    e->nonfinite_parameters = sdc__calloc(m->ranks, sizeof *e->nonfinite_parameters);
    if (!m->all || !e->loss || !e->nonfinite_gradients || !e->nonfinite_parameters)
        return SDC_NOMEM(&m->err, "a rank's records");
    return SDC_OK;
}

void sdc_job_rank(unsigned rank, void *arg) {
    struct sdc_job *job = arg;
    struct member m;
    enum sdc_status st = member_init(&m, job, rank);
    if (st != SDC_OK) {
        /* without memory for the records it cannot take part in anything */
        sdc_comm_abort(job->ends[rank]);
    } else {
        st = start(&m);
        if (st == SDC_OK)
            st = steps(&m);
    }
    sdc_rank_rest(&job->ranks[rank]);
    if (rank == job->lead) {
        job->status = st;
        job->err = m.err;
    }
    m.job->ranks[rank].reduction.probe = NULL;
    sdc_probe_free(m.probe);
    sdc__free(m.all);
    sdc_event_release(&m.event);
}
