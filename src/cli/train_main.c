/* SPDX-License-Identifier: Apache-2.0
 *
 * sdclab-train: the native trainer as a program. With a run description or options it trains once;
 * started by a pool (SDCLAB_WORKER in the environment) it serves runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/train_options.h"
#include "comm/comm.h"
#include "io/io.h"
#include "sdc/choice.h"
#include "train/train.h"
#include "train/worker.h"

#define TALK_NS 1000000000u /* at most one line of progress in this time */

static atomic_bool cancelled;

static void on_signal(int number) {
    (void)number;
    atomic_store(&cancelled, true);
}

/* This process among those of a launcher. comm: NULL where ranks are threads. */
static struct {
    const struct sdc_comm_ops *comm;
    unsigned rank, size;
    bool agreed; /* the others know how this one ends */
} process = {.size = 1, .agreed = true};

/* What all processes know, the first says. */
static int fail(const struct sdc_error *err) {
    if (process.rank > 0 && process.agreed)
        return sdc_status_exit_code(err->status);
    fputs("sdclab train: ", stderr);
    if (process.rank > 0)
        fprintf(stderr, "rank %u: ", process.rank);
    fprintf(stderr, "%s\n", err->message);
    if (err->status == SDC_USAGE)
        fprintf(stderr, "see 'sdclab train --help'\n");
    return sdc_status_exit_code(err->status);
}

/* A NaN's sign says nothing and differs between processors. */
static double shown(double x) {
    return isnan(x) ? (double)NAN : x;
}

/* ---- progress ---- */

struct talk {
    bool terminal, line_open;
    uint64_t last_ns, to_step;
};

static void end_line(struct talk *t) {
    if (t->line_open)
        fputc('\n', stderr);
    t->line_open = false;
}

static void say_step(struct talk *t, const struct sdc_event *e) {
    uint64_t now = sdc__now_ns();
    if (now - t->last_ns < (t->terminal ? TALK_NS / 5 : TALK_NS) && e->step != t->to_step)
        return;
    t->last_ns = now;
    fprintf(stderr, "%sstep %llu of %llu, loss %.4f, gradient norm %.4g, %.1f s%s",
            t->terminal ? "\r\033[K" : "", (unsigned long long)e->step,
            (unsigned long long)t->to_step, shown((double)e->loss[0]), shown(e->gradient_norm),
            e->elapsed, t->terminal ? "" : "\n");
    t->line_open = t->terminal;
}

static void say_event(void *arg, const struct sdc_event *e) {
    struct talk *t = arg;
    if (e->kind == SDC_EVENT_STEP) {
        say_step(t, e);
        return;
    }
    end_line(t);
    for (uint32_t r = 0; e->kind == SDC_EVENT_EVAL && r < e->ranks; r++)
        fprintf(stderr, "step %llu, rank %u: test loss %.4f, %llu of %llu right\n",
                (unsigned long long)e->step, r, shown(e->eval_loss[r]),
                (unsigned long long)e->eval_correct[r], (unsigned long long)e->samples);
    if (e->kind == SDC_EVENT_CHECKPOINT)
        fprintf(stderr, "step %llu: saved %s\n", (unsigned long long)e->step, e->paths[0]);
    if (e->kind == SDC_EVENT_SNAPSHOT)
        fprintf(stderr, "step %llu: %zu snapshots\n", (unsigned long long)e->step, e->n_paths);
}

/* ---- result ---- */

static double rate(const struct sdc_train_result *r) {
    return r->train_seconds > 0 ? (double)r->images / r->train_seconds : 0;
}

static void print_text(const struct sdc_train_result *r) {
    printf("%s at step %llu: loss %.6g", sdc_end_reason_name(r->reason),
           (unsigned long long)r->step, shown((double)r->loss));
    if (r->evaluated)
        printf(", test loss %.6g, accuracy %.2f %% (%llu of %llu)", shown(r->eval_loss),
               100.0 * (double)r->eval_correct / (double)r->eval_samples,
               (unsigned long long)r->eval_correct, (unsigned long long)r->eval_samples);
    printf(", %.0f images/s\n", rate(r));
}

static void print_json(const struct sdc_train_result *r) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_jw w = sdc__jw(&text);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "reason", sdc_end_reason_name(r->reason));
    sdc__jw_ku64(&w, "step", r->step);
    sdc__jw_kf64(&w, "loss", (double)r->loss);
    if (r->evaluated) {
        sdc__jw_kf64(&w, "eval_loss", r->eval_loss);
        sdc__jw_ku64(&w, "eval_correct", r->eval_correct);
        sdc__jw_ku64(&w, "eval_samples", r->eval_samples);
    }
    sdc__jw_ku64(&w, "images", r->images);
    sdc__jw_kf64(&w, "images_per_second", rate(r));
    sdc__jw_kf64(&w, "seconds", r->seconds);
    sdc__jw_obj_end(&w);
    puts(text.failed ? "" : text.data);
    sdc__buf_release(&text);
}

/* ---- running ---- */

static enum sdc_status train(struct sdc_trainer *t, const struct sdc_run *run,
                             const struct train_options *o, struct sdc_error *err) {
    struct talk talk = {.terminal = isatty(STDERR_FILENO) != 0, .to_step = run->to_step};
    struct sdc_train_hooks hooks = {.event = o->quiet || process.rank > 0 ? NULL : say_event,
                                    .arg = &talk,
                                    .cancel = &cancelled};
    struct sdc_train_result result;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    SDC_TRY(sdc_trainer_agree(t, sdc__make_dirs(run->output, err), err));
    enum sdc_status st = sdc_trainer_run(t, run, &hooks, &result, err);
    end_line(&talk);
    if (st != SDC_OK || process.rank > 0)
        return st;
    if (o->json)
        print_json(&result);
    else
        print_text(&result);
    return SDC_OK;
}

static enum sdc_status print_description(const struct sdc_run *run, struct sdc_error *err) {
    char *json;
    SDC_TRY(sdc_run_to_json(run, &json, err));
    fputs(json, stdout);
    sdc_text_free(json);
    return SDC_OK;
}

static enum sdc_status print_line(void *arg, const char *line, size_t len, struct sdc_error *err) {
    (void)arg;
    if (fwrite(line, 1, len, stdout) != len)
        return SDC_ERR(err, SDC_IO, "could not write the samples to standard output");
    return SDC_OK;
}

static enum sdc_status print_samples(struct sdc_trainer *t, const struct sdc_run *run,
                                     struct sdc_error *err) {
    uint64_t n;
    SDC_TRY(sdc_trainer_training_samples(t, run, &n, err));
    return sdc_train_list_samples(run, n, print_line, NULL, err);
}

/* A run description decides everything; an option beside it would be silently without effect. */
static enum sdc_status only_run(int argc, char *argv[], struct sdc_error *err) {
    static const char *const allowed[] = {"--run",          "--comm", "--timeout", "--dry-run",
                                          "--list-samples", "--json", "--quiet",   "-q",
                                          "--help",         "-h",     NULL};
    for (int i = 1; i < argc; i++) {
        size_t k = 0, len = strcspn(argv[i], "=");
        if (argv[i][0] != '-')
            continue;
        while (allowed[k] && (strlen(allowed[k]) != len || strncmp(allowed[k], argv[i], len) != 0))
            k++;
        if (!allowed[k])
            return SDC_ERR(err, SDC_USAGE, "%.*s has no effect beside --run, which decides all",
                           (int)len, argv[i]);
    }
    return SDC_OK;
}

/* ---- processes ---- */

#define LAST_WORD_MS 1500 /* time for rank 0 to write why the run ended, before all are ended */

/* Is this process a rank, or does it have all of them? Starts MPI in the first case. */
static enum sdc_status find_place(struct train_options *o, struct sdc_error *err) {
    unsigned rank, size;
    bool launched = sdc_comm_launched(&rank, &size) && size > 1;
    if (o->comm == TRAIN_COMM_THREADS || (o->comm == TRAIN_COMM_AUTO && !launched)) {
        process.rank = 0;
        o->ranks = o->ranks == TRAIN_NOT_GIVEN ? 1 : o->ranks;
        return SDC_OK;
    }
    const struct sdc_comm_ops *mpi = sdc_comm_find("mpi");
    if (!mpi)
        return SDC_ERR(err, SDC_UNSUPPORTED, "comm mpi: this build has no MPI");
    unsigned timeout_ms = (unsigned)o->timeout * 1000u;
    process.comm = mpi;
    SDC_TRY(sdc_comm_start(mpi, timeout_ms, &process.rank, &process.size, err));
    if (process.size == 1 && launched)
        return SDC_ERR(
            err, SDC_PEER,
            "the launcher started %u processes, which MPI takes for one each: srun needs "
            "--mpi=pmix or --mpi=pmi2 as MPI was built",
            size);
    if (o->ranks != TRAIN_NOT_GIVEN && o->ranks != process.size)
        return SDC_ERR(err, SDC_USAGE, "--ranks: found %llu, the launcher started %u processes",
                       (unsigned long long)o->ranks, process.size);
    o->ranks = process.size;
    return SDC_OK;
}

static enum sdc_status do_with_run(struct sdc_trainer *t, const struct train_options *o,
                                   struct sdc_error *err) {
    struct sdc_run run = {0};
    enum sdc_status st = SDC_OK;
    if (process.rank == 0)
        st = o->run ? sdc_run_read(o->run, &run, err) : train_options_to_run(o, t, &run, err);
    st = sdc_trainer_share_run(t, st, &run, err);
    if (st == SDC_OK && (o->dry_run || o->list_samples)) {
        if (process.rank == 0)
            st = o->dry_run ? print_description(&run, err) : print_samples(t, &run, err);
    } else if (st == SDC_OK) {
        st = train(t, &run, o, err);
    }
    sdc_run_release(&run);
    return st;
}

/* Nothing of a lost trainer may be freed: its threads or messages may still use it. */
static void end_lost(const struct sdc_error *err) {
    process.agreed = false;
    int code = fail(err);
    fflush(stdout);
    if (process.comm && process.rank > 0)
        sdc__sleep_ms(LAST_WORD_MS);
    if (process.comm)
        sdc_comm_finish(process.comm, false, code);
    _exit(code);
}

static enum sdc_status carry_out(struct train_options *o, struct sdc_error *err) {
    struct sdc_trainer *t = NULL;
    SDC_TRY(find_place(o, err));
    enum sdc_status st = sdc_trainer_new(&t, err);
    if (st == SDC_OK && process.comm)
        st = sdc_trainer_join(t, sdc_comm_name(process.comm), process.size,
                              (unsigned)o->timeout * 1000u, err);
    if (st != SDC_OK && process.comm)
        end_lost(err);
    if (st == SDC_OK)
        st = do_with_run(t, o, err);
    if (t && sdc_trainer_lost(t))
        end_lost(err);
    sdc_trainer_free(t);
    return st;
}

static void print_help(void) {
    puts("sdclab train: train a model with the native distributed trainer\n\n"
         "usage: sdclab train [OPTIONS]\n       sdclab train --run FILE\n\nOptions");
    sdc_help_options(stdout, train_option_table);
    puts("\nRecipes");
    for (size_t i = 0; i < sdc_recipe_count(); i++)
        printf("  %-26s  %s\n", sdc_recipe_at(i)->name, sdc_recipe_at(i)->summary);
    puts("\nExamples\n"
         "  sdclab train --ranks 2 --epochs 3 --save lenet5.h5\n"
         "  sdclab train --ranks 2 --recipe horovod/rank0-broadcast --load lenet5.h5 --steps 40");
}

static enum sdc_status print_version(struct sdc_error *err) {
    struct sdc_key_value *facts;
    size_t n;
    SDC_TRY(sdc_train_facts(NULL, &facts, &n, err));
    printf("%-18s %s\n", "sdclab-train", SDC_VERSION);
    for (size_t i = 0; i < n; i++)
        printf("%-18s %s\n", facts[i].key, facts[i].value);
    printf("%-18s one per rank, 1 to %d ranks in this process\n", "threads", SDC_MAX_RANKS);
    const struct sdc_comm_ops *mpi = sdc_comm_find("mpi");
    printf("%-18s %s\n", "mpi", mpi ? sdc_comm_library(mpi) : "not in this build");
    sdc_train_facts_free(facts, n);
    return SDC_OK;
}

static enum sdc_status run_program(int argc, char *argv[], struct sdc_error *err) {
    struct train_options o = {
        .steps = TRAIN_NOT_GIVEN, .epochs = TRAIN_NOT_GIVEN, .ranks = TRAIN_NOT_GIVEN};
    struct sdc_opt_operands operands = {0};
    enum sdc_status st = sdc_opt_parse(argc - 1, (const char *const *)argv + 1, train_option_table,
                                       &o, NULL, NULL, &operands, err);
    if (st == SDC_OK && operands.n > 0)
        st = SDC_ERR(err, SDC_USAGE, "'%s' is not an option", operands.items[0]);
    if (st == SDC_OK && o.run)
        st = only_run(argc, argv, err);
    if (st == SDC_OK && o.help)
        process.rank == 0 ? print_help() : (void)0;
    else if (st == SDC_OK && o.version)
        st = process.rank == 0 ? print_version(err) : SDC_OK;
    else if (st == SDC_OK)
        st = carry_out(&o, err);
    sdc_opt_release(train_option_table, &o, &operands);
    return st;
}

static int serve(const char *where) {
    struct sdc_error err;
    const char *token = getenv(SDC_TOKEN_ENV);
    if (!token) {
        SDC_ERR(&err, SDC_USAGE, "%s is set and %s is not", SDC_WORKER_ENV, SDC_TOKEN_ENV);
        return fail(&err);
    }
    /* an interrupt at the terminal is the pool's to handle: it lets runs in flight finish */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGINT, &ignore, NULL);
    enum sdc_status st = sdc_train_serve(where, token, &err);
    if (st == SDC_OK)
        return 0;
    int code = fail(&err);
    if (st == SDC_INTERNAL)
        _exit(code);
    return code;
}

int main(int argc, char *argv[]) {
    struct sdc_error err;
    sdc__reserve_streams();
    sdc__survive_size_limit();
    const char *where = getenv(SDC_WORKER_ENV);
    if (where && argc == 1)
        return serve(where);
    sdc_comm_launched(&process.rank, &process.size);
    enum sdc_status st = run_program(argc, argv, &err);
    int code = st == SDC_OK ? 0 : fail(&err);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "sdclab train: could not write the result to standard output\n");
        code = code ? code : sdc_status_exit_code(SDC_IO);
    }
    if (process.comm)
        sdc_comm_finish(process.comm, true, code);
    return code;
}
