/* SPDX-License-Identifier: Apache-2.0
 *
 * What exists once for all ranks, what is kept between runs, and the order of a run.
 */
#include "train/train.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "train/files.h"
#include "train/loop.h"
#include "train/place.h"
#include "train/source.h"
#include "train/startup.h"
#include "train/team.h"

#define STALL_MS     600000u /* no rank made any progress for so long: the threads are lost */
#define MAX_DATASETS 8
#define MAX_MODELS   64

struct kept_dataset {
    struct sdc_dataset *set;
    struct sdc_data_source source; /* its texts are the next two */
    char *name, *path;             /* path may be NULL */
    bool train;
};

struct sdc_trainer {
    struct kept_dataset sets[MAX_DATASETS];
    unsigned n_sets;
    struct sdc_model *models[MAX_MODELS]; /* ranks point to them */
    unsigned n_models;
    struct sdc_rank ranks[SDC_MAX_RANKS];
    struct sdc_place place;
    struct sdc_team *team; /* for team_ranks; none where ranks are processes */
    struct sdc_comm *ends[SDC_MAX_RANKS];
    unsigned team_ranks;
    size_t ends_bytes;
    atomic_uint beat;
};

/* What is made for one run and dropped after it. */
struct session {
    struct sdc_trainer *t;
    const struct sdc_run *run;
    struct sdc_job job;
    struct sdc_sink sink;
    const struct sdc_train_state *files[SDC_MAX_RANKS];
    struct sdc_train_state loaded[SDC_MAX_RANKS]; /* distinct files */
    const char *loaded_paths[SDC_MAX_RANKS];
    struct sdc_state_digest loaded_digests[SDC_MAX_RANKS];
    unsigned n_loaded;
    struct sdc_golden_step *golden;
    struct sdc_key_value *facts;
    size_t n_facts;
    bool rejected; /* a failure came from the contents of a checkpoint */
};

enum sdc_status sdc_trainer_new(struct sdc_trainer **out, struct sdc_error *err) {
    struct sdc_trainer *t = *out = sdc__calloc(1, sizeof *t);
    if (!t)
        return SDC_NOMEM(err, "a trainer");
    atomic_init(&t->beat, 0);
    t->place.size = 1;
    for (unsigned r = 0; r < SDC_MAX_RANKS; r++)
        t->ranks[r].rank = r;
    return SDC_OK;
}

static void drop_team(struct sdc_trainer *t) {
    if (t->place.comm)
        return;
    sdc_team_free(t->team);
    sdc_comm_group_free(t->ends, t->team_ranks);
    t->team = NULL;
    t->team_ranks = 0;
}

bool sdc_trainer_lost(const struct sdc_trainer *t) {
    return (t->team && sdc_team_lost(t->team)) || sdc_place_lost(&t->place);
}

enum sdc_status sdc_trainer_join(struct sdc_trainer *t, const char *comm, unsigned size,
                                 unsigned timeout_ms, struct sdc_error *err) {
    return sdc_place_join(&t->place, sdc_comm_find(comm), size, timeout_ms, err);
}

enum sdc_status sdc_trainer_agree(struct sdc_trainer *t, enum sdc_status status,
                                  struct sdc_error *err) {
    return sdc_place_agree(&t->place, status, NULL, err);
}

enum sdc_status sdc_trainer_share_run(struct sdc_trainer *t, enum sdc_status status,
                                      struct sdc_run *run, struct sdc_error *err) {
    return sdc_place_share_run(&t->place, status, run, err);
}

static void dataset_release(struct kept_dataset *k) {
    sdc_dataset_free(k->set);
    sdc__free(k->name);
    sdc__free(k->path);
}

void sdc_trainer_free(struct sdc_trainer *t) {
    if (!t || sdc_trainer_lost(t)) /* lost threads may still use all of it */
        return;
    drop_team(t);
    sdc_place_leave(&t->place);
    for (unsigned r = 0; r < SDC_MAX_RANKS; r++)
        sdc_rank_release(&t->ranks[r]);
    for (unsigned i = 0; i < t->n_sets; i++)
        dataset_release(&t->sets[i]);
    for (unsigned i = 0; i < t->n_models; i++)
        sdc__free(t->models[i]);
    sdc__free(t);
}

/* ---- kept between runs ---- */

static enum sdc_status open_dataset(struct kept_dataset *k, struct sdc_error *err) {
    const struct sdc_data_source *from = &k->source;
    k->name = sdc__strdup(from->name);
    k->path = from->path ? sdc__strdup(from->path) : NULL;
    if (!k->name || (from->path && !k->path))
        return SDC_NOMEM(err, "a data set");
    k->source.name = k->name;
    k->source.path = k->path;
    return sdc_dataset_open(&k->source, k->train, &k->set, err);
}

static enum sdc_status get_dataset(struct sdc_trainer *t, const struct sdc_run *run, bool train,
                                   const struct sdc_dataset **set, struct sdc_error *err) {
    const struct sdc_data_source source = sdc_run_data_source(run, train);
    for (unsigned i = 0; i < t->n_sets; i++) {
        struct kept_dataset *k = &t->sets[i];
        if (k->train == train && sdc_data_source_same(&k->source, &source)) {
            struct kept_dataset hit = *k; /* the last used stand last */
            memmove(k, k + 1, (t->n_sets - i - 1) * sizeof *k);
            t->sets[t->n_sets - 1] = hit;
            *set = hit.set;
            return SDC_OK;
        }
    }
    struct kept_dataset fresh = {.train = train, .source = source};
    enum sdc_status st = open_dataset(&fresh, err);
    if (st != SDC_OK) {
        dataset_release(&fresh);
        return st;
    }
    if (t->n_sets == MAX_DATASETS) { /* the one used longest ago goes */
        dataset_release(&t->sets[0]);
        memmove(t->sets, t->sets + 1, sizeof t->sets - sizeof t->sets[0]);
        t->n_sets--;
    }
    t->sets[t->n_sets++] = fresh;
    *set = fresh.set;
    return SDC_OK;
}

enum sdc_status sdc_trainer_training_samples(struct sdc_trainer *t, const struct sdc_run *run,
                                             uint64_t *n, struct sdc_error *err) {
    const struct sdc_dataset *set;
    SDC_TRY(get_dataset(t, run, true, &set, err));
    *n = set->n;
    return SDC_OK;
}

enum sdc_status sdc_trainer_epoch_steps(struct sdc_trainer *t, const struct sdc_run *run,
                                        uint64_t *steps, struct sdc_error *err) {
    const struct sdc_dataset *set;
    SDC_TRY(get_dataset(t, run, true, &set, err));
    const struct sdc_sharding sharding = sdc_run_sharding(run, set->n);
    *steps = sdc_sampler_steps_per_epoch(&sharding);
    return SDC_OK;
}

static enum sdc_status get_model(struct sdc_trainer *t, const char *name,
                                 const struct sdc_model_input *input,
                                 const struct sdc_model **model, struct sdc_error *err) {
    for (unsigned i = 0; i < t->n_models; i++) {
        if (strcmp(t->models[i]->name, name) == 0 &&
            memcmp(&t->models[i]->input, input, sizeof *input) == 0) {
            *model = t->models[i];
            return SDC_OK;
        }
    }
    if (t->n_models == MAX_MODELS)
        return SDC_ERR(err, SDC_LIMIT, "no room for model %s: %d others are kept", name,
                       MAX_MODELS);
    struct sdc_model *made = sdc__calloc(1, sizeof *made);
    if (!made)
        return SDC_NOMEM(err, "a model");
    enum sdc_status st = sdc_model_make_for(name, input, made, err);
    if (st != SDC_OK) {
        sdc__free(made);
        return st;
    }
    *model = t->models[t->n_models++] = made;
    return SDC_OK;
}

/* Threads and a group for the run's ranks. A group that was given up is made anew. */
static enum sdc_status get_team(struct session *s, struct sdc_error *err) {
    struct sdc_trainer *t = s->t;
    unsigned ranks = s->run->ranks;
    if (t->place.comm) {
        t->ends[t->place.rank] = t->place.end;
        return SDC_OK;
    }
    size_t bytes = s->job.shape.model->n_elems * sizeof(float);
    if (t->team && t->team_ranks == ranks && t->ends_bytes >= bytes)
        return SDC_OK;
    drop_team(t);
    SDC_TRY(sdc_team_new(ranks, &t->team, err));
    const struct sdc_comm_ops *ops = sdc_comm_find(ranks == 1 ? "self" : "threads");
    enum sdc_status st = sdc_comm_group_new(ops, ranks, bytes, 0, t->ends, err);
    if (st != SDC_OK) {
        sdc_team_free(t->team);
        t->team = NULL;
        return st;
    }
    t->team_ranks = ranks;
    t->ends_bytes = bytes;
    return SDC_OK;
}

/* ---- before a run ---- */

static enum sdc_status check_support(const struct sdc_run *run, struct sdc_error *err) {
    const struct {
        const char *what, *found, *expected;
    } words[] = {
        {"trainer", run->trainer, SDC_TRAINER_NAME},
        {"precision", run->precision, "f32"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!words[i].found || strcmp(words[i].found, words[i].expected) != 0)
            return SDC_ERR(err, SDC_UNSUPPORTED, "%s: found '%s', the native trainer has '%s'",
                           words[i].what, words[i].found ? words[i].found : "", words[i].expected);
    if (run->to_step > INT64_MAX)
        return SDC_ERR(err, SDC_INVALID, "to_step is %llu, expected at most %lld",
                       (unsigned long long)run->to_step, (long long)INT64_MAX);
    if (run->n_load == 0 && run->from_step != 0)
        return SDC_ERR(err, SDC_INVALID, "from_step is %llu without a checkpoint, expected 0",
                       (unsigned long long)run->from_step);
    return SDC_OK;
}

static enum sdc_status choose_parts(struct session *s, struct sdc_error *err) {
    const struct sdc_run *run = s->run;
    struct sdc_job *job = &s->job;
    SDC_TRY(check_support(run, err));
    job->shape.kernels = sdc_nn_find(run->kernels);
    if (!job->shape.kernels)
        return SDC_ERR(err, SDC_UNSUPPORTED, "kernels '%s' are unknown, expected onednn or ref",
                       run->kernels);
    job->shape.batch = run->batch;
    job->strategy = sdc_strategy_find(run->strategy);
    SDC_TRY(sdc_optimizer_make(run, &job->optimizer, err));
    job->shape.keeps = job->optimizer.keeps;
    job->shape.schedule = sdc_schedule_parts(&job->optimizer.schedule);
    SDC_TRY(sdc_train_facts(run->kernels, &s->facts, &s->n_facts, err));
    job->facts = s->facts;
    job->n_facts = s->n_facts;
    for (size_t i = 0; i < s->n_facts; i++)
        if (strcmp(s->facts[i].key, "float.environment") == 0)
            job->float_environment = s->facts[i].value;
    return SDC_OK;
}

static enum sdc_status choose_data(struct session *s, struct sdc_error *err) {
    const struct sdc_run *run = s->run;
    struct sdc_job *job = &s->job;
    SDC_TRY(get_dataset(s->t, run, true, &job->train_set, err));
    const struct sdc_dataset *d = job->train_set;
    const struct sdc_model_input input = {d->channels, d->height, d->width, d->classes};
    SDC_TRY(get_model(s->t, run->model, &input, &job->shape.model, err));
    if (run->eval_samples == 0)
        return SDC_OK;
    SDC_TRY(get_dataset(s->t, run, false, &job->test_set, err));
    job->eval_samples = run->eval_samples < job->test_set->n ? run->eval_samples : job->test_set->n;
    return SDC_OK;
}

static enum sdc_status parse_golden(struct session *s, struct sdc_error *err) {
    const struct sdc_run *run = s->run;
    if (run->n_golden == 0)
        return SDC_OK;
    s->golden = sdc__calloc(run->n_golden, sizeof *s->golden);
    if (!s->golden)
        return SDC_NOMEM(err, "golden's digests");
    for (size_t i = 0; i < run->n_golden; i++) {
        struct sdc_golden_step *g = &s->golden[i];
        g->step = run->golden[i].step;
        g->state = sdc__calloc(run->ranks, sizeof *g->state);
        if (!g->state)
            return SDC_NOMEM(err, "golden's digests");
        for (uint32_t r = 0; r < run->ranks; r++)
            if (!sdc_state_digest_parse(run->golden[i].state[r], &g->state[r]))
                return SDC_ERR(err, SDC_INVALID, "golden at step %llu: '%s' is no digest",
                               (unsigned long long)g->step, run->golden[i].state[r]);
    }
    s->job.golden = s->golden;
    s->job.n_golden = run->n_golden;
    return SDC_OK;
}

/* ---- checkpoints ---- */

/* What the file itself says, in contrast to a file that cannot be read at all. */
static bool contents_refused(enum sdc_status st) {
    return st == SDC_INVALID || st == SDC_MISMATCH || st == SDC_UNSUPPORTED || st == SDC_LIMIT;
}

/* Reads a file once, however many ranks have it. */
static enum sdc_status load_path(struct session *s, const char *path, unsigned *which,
                                 struct sdc_error *err) {
    for (*which = 0; *which < s->n_loaded; (*which)++)
        if (strcmp(s->loaded_paths[*which], path) == 0)
            return SDC_OK;
    struct sdc_train_state *to = &s->loaded[s->n_loaded];
    SDC_TRY(sdc_train_state_init(to, s->job.shape.model, s->job.shape.keeps, s->job.shape.schedule,
                                 err));
    enum sdc_status st =
        sdc_train_load(path, s->run->from_step, to, &s->loaded_digests[s->n_loaded], err);
    s->loaded_paths[s->n_loaded++] = path;
    s->rejected = contents_refused(st);
    return st;
}

static enum sdc_status load_rank(struct session *s, unsigned rank, struct sdc_error *err) {
    const struct sdc_run *run = s->run;
    const struct sdc_run_load *load = &run->load[rank];
    unsigned which;
    if (!sdc_startup_reads_model(&run->switches, rank) &&
        !sdc_startup_reads_optimizer(&run->switches, rank))
        return SDC_OK;
    if (!load->path)
        return SDC_ERR(err, SDC_INVALID, "rank %u reads a checkpoint, but load has none for it",
                       rank);
    SDC_TRY(load_path(s, load->path, &which, err));
    s->files[rank] = &s->loaded[which];
    if (!load->digest)
        return SDC_OK;
    char text[SDC_STATE_DIGEST_TEXT];
    sdc_state_digest_text(&s->loaded_digests[which], text);
    if (strcmp(text, load->digest) != 0)
        return SDC_ERR(err, SDC_MISMATCH, "%s: digest is %s, expected %s", load->path, text,
                       load->digest);
    return SDC_OK;
}

static enum sdc_status load_files(struct session *s, struct sdc_error *err) {
    const struct sdc_place *place = &s->t->place;
    for (unsigned r = 0; r < s->run->n_load && r < s->run->ranks; r++)
        if (!place->comm || r == place->rank)
            SDC_TRY(load_rank(s, r, err));
    s->job.files = s->files;
    return SDC_OK;
}

/* A save that cannot work is said now, not after the training that it was to keep. */
static enum sdc_status check_saves(const struct sdc_run *run, struct sdc_error *err) {
    if (!run->save.path)
        return SDC_OK;
    uint64_t first = run->save.n_steps > 0 ? run->save.steps[0] : run->to_step;
    return sdc_train_check_save(run->save.path, first, err);
}

/* ---- a run ---- */

static enum sdc_status prepare(struct session *s, struct sdc_error *err) {
    SDC_TRY(choose_parts(s, err));
    SDC_TRY(choose_data(s, err));
    SDC_TRY(parse_golden(s, err));
    if (s->t->place.rank == 0)
        SDC_TRY(check_saves(s->run, err));
    SDC_TRY(load_files(s, err));
    return get_team(s, err);
}

static enum sdc_status run_ranks(struct session *s, struct sdc_error *err) {
    struct sdc_trainer *t = s->t;
    struct sdc_job *job = &s->job;
    job->ranks = t->ranks;
    job->ends = t->ends;
    job->beat = &t->beat;
    job->lead = t->place.rank;
    if (t->place.comm) {
        sdc_comm_set_hurry(t->place.end, job->cancel);
        sdc_job_rank(t->place.rank, job); /* by this thread, which may talk to the others */
        sdc_comm_set_hurry(t->place.end, NULL);
    } else
        SDC_TRY(sdc_team_run(t->team, sdc_job_rank, job, &t->beat, STALL_MS, err));
    if (job->status != SDC_OK) {
        drop_team(t); /* the group may have been given up */
        if (err)
            *err = job->err;
    }
    return job->status;
}

static void put_end(struct session *s, enum sdc_status st, struct sdc_error *err) {
    if (s->t->place.rank != 0)
        return;
    struct sdc_event e;
    struct sdc_error ignored;
    sdc_event_init(&e, SDC_EVENT_END);
    e.step = s->job.result.step;
    e.ranks = s->run->ranks;
    e.reason = s->job.result.reason;
    e.message = st == SDC_OK ? NULL : err->message;
    enum sdc_status put = sdc_sink_put(&s->sink, &e, &ignored);
    (void)put; /* the run has failed already, or its status says so at the flush before */
}

static void session_free(struct session *s) {
    sdc_sink_close(&s->sink);
    for (unsigned i = 0; i < s->n_loaded; i++)
        sdc_train_state_release(&s->loaded[i]);
    for (size_t i = 0; s->golden && i < s->run->n_golden; i++)
        sdc__free(s->golden[i].state);
    sdc__free(s->golden);
    sdc_train_facts_free(s->facts, s->n_facts);
    sdc__free(s);
}

static enum sdc_status carry_out(struct session *s, struct sdc_error *err) {
    struct sdc_train_result *result = &s->job.result;
    s->job.run = s->run;
    s->job.sink = &s->sink;
    s->job.cancel = s->sink.hooks ? s->sink.hooks->cancel : NULL;
    result->reason = SDC_END_COMPLETED;
    result->step = s->run->from_step;
    enum sdc_status st = sdc_place_agree(&s->t->place, prepare(s, err), &s->rejected, err);
    if (st == SDC_OK)
        st = run_ranks(s, err);
    if (st == SDC_OK && s->t->place.rank == 0)
        st = sdc_sink_flush(&s->sink, err);
    if (st != SDC_OK)
        result->reason = s->rejected ? SDC_END_REJECTED : SDC_END_FAILED;
    put_end(s, st, err);
    return st;
}

enum sdc_status sdc_trainer_run(struct sdc_trainer *t, const struct sdc_run *run,
                                const struct sdc_train_hooks *hooks,
                                struct sdc_train_result *result, struct sdc_error *err) {
    struct sdc_error own;
    err = err ? err : &own;
    uint64_t before = sdc__now_ns();
    *result = (struct sdc_train_result){.reason = SDC_END_FAILED};
    if (sdc_trainer_lost(t))
        return SDC_ERR(err, SDC_INTERNAL, "the trainer lost its rank threads in an earlier run");
    SDC_TRY(sdc_run_check(run, err));
    if (t->place.comm && run->ranks != t->place.size)
        return SDC_ERR(err, SDC_INVALID, "the run has %u ranks, the job has %u processes",
                       run->ranks, t->place.size);
    struct session *s = sdc__calloc(1, sizeof *s);
    enum sdc_status st = s ? SDC_OK : SDC_NOMEM(err, "a run");
    if (s) {
        s->t = t;
        s->run = run;
        s->sink.file.fd = -1;
        s->sink.hooks = hooks;
        if (t->place.rank == 0)
            st = sdc_sink_open(&s->sink, run->output, hooks, err);
    }
    st = sdc_place_agree(&t->place, st, NULL, err);
    if (st == SDC_OK)
        st = carry_out(s, err);
    if (!s)
        return st;
    *result = s->job.result;
    result->seconds = (double)(sdc__now_ns() - before) * 1e-9;
    if (!sdc_trainer_lost(t)) /* lost threads and messages may still use it */
        session_free(s);
    return st;
}
