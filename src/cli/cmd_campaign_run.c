/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/guard.h"
#include "camp/exec.h"
#include "cli/campaign_text.h"
#include "cli/commands.h"
#include "io/io.h"

struct run_args {
    const char *output, *trial, *into;
    uint64_t workers;
    bool dry_run;
};

/* ---- stopping: a signal handler can reach nothing but these ---- */

static volatile sig_atomic_t stop_requests;
static int stop_pipe[2] = {-1, -1};

static void on_signal(int number) {
    (void)number;
    int saved = errno;
    stop_requests = stop_requests + 1;
    if (stop_pipe[1] >= 0 && write(stop_pipe[1], "", 1) < 0)
        errno = saved; /* full: it is readable already */
    errno = saved;
}

static enum sdc_status catch_signals(struct sdc_error *err) {
    stop_requests = 0;
    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "make a pipe for signals");
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return SDC_OK;
}

/* ---- progress ---- */

struct progress {
    struct sdc_cli *cli;
    bool line; /* a line that is written over stands on the terminal */
    bool begun;
    enum sdc_exec_phase phase;
    size_t done;
    uint64_t said; /* when a plain line was last printed */
};

static void end_line(struct progress *p) {
    if (p->line)
        fputs("\r\033[K", p->cli->err);
    p->line = false;
}

static void state_text(const struct sdc_exec_progress *s, char *text, size_t size) {
    char rate[48] = "", left[48] = "", collapse[64] = "";
    if (s->per_minute > 0)
        snprintf(rate, sizeof rate, ", %.*f a minute", s->per_minute < 10 ? 1 : 0, s->per_minute);
    if (s->seconds_left >= 90)
        snprintf(left, sizeof left, ", about %.0f min left", ceil(s->seconds_left / 60));
    else if (s->seconds_left >= 0)
        snprintf(left, sizeof left, ", about %.0f s left", s->seconds_left);
    if (s->phase == SDC_EXEC_TRIALS && s->n_judged)
        snprintf(collapse, sizeof collapse, ", collapse %.1f %%",
                 100.0 * (double)s->n_collapsed / (double)s->n_judged);
    snprintf(text, size, "%s %zu/%zu%s%s%s", sdc__exec_phase_text(s->phase), s->done, s->total,
             rate, left, collapse);
}

static void show_progress(void *user, const struct sdc_exec_progress *s) {
    struct progress *p = user;
    if (s->note) {
        end_line(p);
        sdc_cli_say(p->cli, "%s\n", s->note);
    }
    char text[256];
    uint64_t now = sdc__now_ns();
    state_text(s, text, sizeof text);
    bool new_phase = !p->begun || p->phase != s->phase;
    bool over = s->done == s->total && (new_phase || p->done != s->done);
    if (sdc_cli_progress(p->cli)) {
        fprintf(p->cli->err, "\r%s\033[K", text);
        fflush(p->cli->err);
        p->line = true;
    } else if (new_phase || over || now - p->said > 30000000000u) {
        if (!s->note)
            sdc_cli_say(p->cli, "%s\n", text);
        p->said = now;
    }
    p->begun = true;
    p->phase = s->phase;
    p->done = s->done;
}

/* ---- the summary ---- */

static void print_axis(FILE *out, const struct sdc_results *r, enum sdc_axis axis) {
    bool any = false;
    fprintf(out, "%-12s", sdc_axis_name(axis));
    for (int v = 0; v < sdc_axis_count(axis); v++) {
        uint64_t n = 0;
        for (size_t i = 0; i < r->n_trials; i++) {
            const struct sdc_store_trial *t = &r->trials[i];
            n += t->kind == SDC_TRIAL_CELL &&
                 (axis == SDC_AXIS_RESULT || t->outcome.result == SDC_RESULT_DONE) &&
                 sdc_outcome_get(&t->outcome, axis) == v;
        }
        if (n)
            fprintf(out, "%s %llu %s", any ? "," : "", (unsigned long long)n,
                    sdc_label_text(axis, v));
        any = any || n;
    }
    fprintf(out, "%s\n", any ? "" : " -");
}

static enum sdc_status print_summary(struct sdc_cli *cli, const char *dir,
                                     const struct sdc_exec_summary *s, struct sdc_error *err) {
    struct sdc_campaign c;
    struct sdc_buf text = SDC_BUF_INIT;
    enum sdc_status st = sdc__campaign_open(dir, &c, err);
    if (st != SDC_OK)
        goto out;
    const struct sdc_results *r = c.results;
    fprintf(cli->out, "%-12s %llu of %llu trials and %llu of %llu controls are in %s\n", "campaign",
            (unsigned long long)r->n_stored, (unsigned long long)r->n_planned,
            (unsigned long long)r->n_controls, (unsigned long long)r->n_controls_planned, dir);
    for (int axis = 0; axis < SDC_AXIS_COUNT; axis++)
        print_axis(cli->out, r, (enum sdc_axis)axis);
    for (size_t k = 0; k < sizeof r->controls / sizeof r->controls[0]; k++)
        fprintf(cli->out, "%-12s %s: %llu of %llu passed\n", "control",
                sdc__trial_kind_name(r->controls[k].kind),
                (unsigned long long)r->controls[k].n_passed,
                (unsigned long long)r->controls[k].n_planned);
    if (s->n_failed_controls)
        fprintf(cli->out, "%-12s control %s; no result of this store counts\n", "INVALID",
                s->failed_control);
    if (s->n_refused)
        fprintf(cli->out,
                "%-12s %zu of %zu clean twins did not pass the gate, their trials were "
                "not run; first: %s\n",
                "REFUSED", s->n_refused, c.plan->n_groups, s->refused);
    if (s->complete || s->n_refused) {
        sdc__claims_text(r, &text);
        fprintf(cli->out, "\n%s", text.data ? text.data : "");
    }
    fprintf(cli->out, "\nnext: sdclab report %s\n", dir);
out:
    sdc__buf_release(&text);
    sdc__campaign_close(&c);
    return st;
}

/* ---- running ---- */

static unsigned count_cores(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 1024 ? 1024 : (unsigned)n;
}

/* DIR and the spec (NULL: from the store). */
static enum sdc_status find_campaign(struct sdc_cli *cli, const struct run_args *a, char **dir,
                                     struct sdc_spec **spec, struct sdc_error *err) {
    if (a->into && !a->trial)
        return SDC_ERR(err, SDC_USAGE, "--into says where the files of --trial go, expected both");
    if (cli->operands.n)
        SDC_TRY(sdc__spec_read(cli->operands.items[0], spec, err));
    if (!a->output && !*spec)
        return SDC_ERR(err, SDC_USAGE, "a SPEC or -o DIR is needed");
    *dir = a->output ? sdc__strdup(a->output) : sdc__asprintf("%s.sdcrun", (*spec)->name);
    return *dir ? SDC_OK : SDC_NOMEM(err, "a path");
}

static int end_code(const struct sdc_exec_summary *s) {
    return s->n_failed_controls || s->n_refused ? SDC_EXIT_FOUND : SDC_EXIT_DONE;
}

static int run_campaign(struct sdc_cli *cli, const char *dir, const struct sdc_spec *spec,
                        const struct sdc_exec_options *options, struct progress *progress) {
    struct sdc_error err;
    struct sdc_store *store = NULL;
    struct sdc_exec_summary summary = {0};
    enum sdc_status st =
        spec ? sdc__store_open(dir, spec, &store, &err) : sdc__store_open_again(dir, &store, &err);
    if (st == SDC_OK)
        st = sdc__exec_run(store, options, &summary, &err);
    end_line(progress);
    sdc__store_close(store);
    if (st == SDC_OK)
        st = print_summary(cli, dir, &summary, &err);
    if (st == SDC_OK)
        return end_code(&summary);
    int code = sdc_cli_fail(cli, &err);
    if (store && st == SDC_CANCELLED)
        sdc_cli_say(cli, "%zu of %zu trials are in %s; the same command goes on\n",
                    summary.n_before + summary.n_now, summary.n_trials, dir);
    else if (store && summary.n_before + summary.n_now)
        sdc_cli_say(cli, "what was finished is safe in %s; the same command goes on\n", dir);
    return code;
}

static void print_labels(struct sdc_cli *cli, const struct sdc_store_trial *t, const char *folder) {
    struct sdc_buf b = SDC_BUF_INIT;
    fprintf(cli->out, "%-12s %s\n", "trial", t->id);
    for (size_t i = 0; i < t->n_faults && i < 20; i++) {
        sdc__buf_clear(&b);
        sdc__fault_text(&t->faults[i], &b);
        fprintf(cli->out, "%-12s %s%s\n", i ? "" : "faults", b.data ? b.data : "",
                t->faults[i].delivered ? "" : "  (no rank read it)");
    }
    if (t->n_faults > 20)
        fprintf(cli->out, "%-12s and %zu more, see the record in the folder\n", "",
                t->n_faults - 20);
    for (int a = 0; a < SDC_AXIS_COUNT; a++)
        fprintf(
            cli->out, "%-12s %-22s %s\n", sdc_axis_name((enum sdc_axis)a),
            sdc_label_text((enum sdc_axis)a, sdc_outcome_get(&t->outcome, (enum sdc_axis)a)),
            sdc_label_meaning((enum sdc_axis)a, sdc_outcome_get(&t->outcome, (enum sdc_axis)a)));
    if (t->collapse_step >= 0)
        fprintf(cli->out, "%-12s %lld steps after the restart\n", "collapse",
                (long long)t->collapse_step);
    if (!isnan(t->accuracy))
        fprintf(cli->out, "%-12s %.4f, clean twin %.4f\n", "accuracy", t->accuracy,
                t->accuracy_golden);
    if (t->message)
        fprintf(cli->out, "%-12s %s\n", "message", t->message);
    fprintf(cli->out, "%-12s %s\n", "files", folder);
    sdc__buf_release(&b);
}

/* Says whether the store has the same labels; exit 1 where it has others. */
static int compare_with_store(struct sdc_cli *cli, struct sdc_store *store,
                              const struct sdc_store_trial *t) {
    struct sdc_store_trial known = {0};
    struct sdc_error err;
    int code = SDC_EXIT_DONE;
    if (sdc__store_get_trial(store, t->id, &known, &err) != SDC_OK) {
        fprintf(cli->out, "%-12s the trial is not in it yet\n", "store");
        return code;
    }
    for (int a = 0; a < SDC_AXIS_COUNT && code == SDC_EXIT_DONE; a++)
        if (sdc_outcome_get(&known.outcome, (enum sdc_axis)a) !=
            sdc_outcome_get(&t->outcome, (enum sdc_axis)a)) {
            fprintf(cli->out, "%-12s DIFFERS: %s is %s there\n", "store",
                    sdc_axis_name((enum sdc_axis)a),
                    sdc_label_text((enum sdc_axis)a,
                                   sdc_outcome_get(&known.outcome, (enum sdc_axis)a)));
            code = SDC_EXIT_FOUND;
        }
    if (code == SDC_EXIT_DONE)
        fprintf(cli->out, "%-12s the same labels\n", "store");
    sdc__store_trial_release(&known);
    return code;
}

static int repeat_trial(struct sdc_cli *cli, const char *dir, const struct run_args *a,
                        const struct sdc_exec_options *options, struct progress *progress) {
    struct sdc_error err;
    struct sdc_store *store = NULL;
    struct sdc_store_trial trial = {0};
    char *folder = a->into ? sdc__strdup(a->into) : sdc__asprintf("%s/replay/%s", dir, a->trial);
    enum sdc_status st = folder ? SDC_OK : SDC_NOMEM(&err, "a path");
    if (st == SDC_OK && a->into && sdc__path_exists(a->into))
        st = SDC_ERR(&err, SDC_EXISTS, "%s exists already; name a new folder with --into", a->into);
    if (st == SDC_OK)
        st = sdc__store_open_read(dir, &store, &err);
    if (st == SDC_OK)
        st = sdc__exec_repeat(store, a->trial, folder, options, &trial, &err);
    end_line(progress);
    int code;
    if (st == SDC_OK) {
        print_labels(cli, &trial, folder);
        code = compare_with_store(cli, store, &trial);
    } else {
        code = sdc_cli_fail(cli, &err);
    }
    sdc__store_trial_release(&trial);
    sdc__store_close(store);
    sdc__free(folder);
    return code;
}

/* What a run would do: the plan, and how much of it is done. */
static int show_plan(struct sdc_cli *cli, const char *dir, const struct sdc_spec *spec) {
    struct sdc_error err;
    struct sdc_store *store = NULL;
    struct sdc_plan *plan = NULL;
    struct sdc_buf text = SDC_BUF_INIT;
    bool *done = NULL;
    size_t n = 0;
    enum sdc_status st;
    bool there = sdc__path_exists(dir);
    if (there)
        SDC_TRY_OUT(st, sdc__store_open_read(dir, &store, &err));
    if (there && spec)
        SDC_TRY_OUT(st,
                    sdc__spec_same(sdc__store_spec(store)->resolved, spec->resolved, dir, &err));
    if (!there && !spec) {
        st = SDC_ERR(&err, SDC_NOT_FOUND, "%s: there is no campaign, and no SPEC was given", dir);
        goto out;
    }
    SDC_TRY_OUT(st, sdc__plan_new(spec ? spec : sdc__store_spec(store), &plan, &err));
    SDC_TRY_OUT(st, sdc__plan_print(plan, 0, &text, &err));
    if (there) {
        if (!(done = sdc__calloc(plan->n_trials, sizeof *done))) {
            st = SDC_NOMEM(&err, "trials");
            goto out;
        }
        SDC_TRY_OUT(st, sdc__store_done(store, plan, done, &err));
    }
    for (size_t i = 0; there && i < plan->n_trials; i++)
        n += done[i];
    fprintf(cli->out, "%s\n%zu of %zu trials and controls are in %s already\n",
            text.data ? text.data : "", n, plan->n_trials, dir);
out:
    sdc__free(done);
    sdc__buf_release(&text);
    sdc__plan_free(plan);
    sdc__store_close(store);
    return st == SDC_OK ? SDC_EXIT_DONE : sdc_cli_fail(cli, &err);
}

static int run(struct sdc_cli *cli, const void *args) {
    const struct run_args *a = args;
    struct sdc_error err;
    struct sdc_spec *spec = NULL;
    char *dir = NULL, *trainer = NULL;
    struct progress progress = {.cli = cli};
    int code;
    enum sdc_status st = find_campaign(cli, a, &dir, &spec, &err);
    if (st == SDC_OK && a->dry_run) {
        code = show_plan(cli, dir, spec);
        goto out;
    }
    if (st == SDC_OK)
        st = sdc_cli_find_trainer(cli, &trainer, &err);
    if (st == SDC_OK)
        st = catch_signals(&err);
    if (st != SDC_OK) {
        code = sdc_cli_fail(cli, &err);
        goto out;
    }
    const char *const worker[] = {trainer, NULL};
    struct sdc_exec_options options = {
        .worker = worker,
        .workers = a->trial     ? 1
                   : a->workers ? (unsigned)a->workers
                                : count_cores(),
        .stop = &stop_requests,
        .wake_fd = stop_pipe[0],
        .progress = show_progress,
        .user = &progress,
    };
    code = a->trial ? repeat_trial(cli, dir, a, &options, &progress)
                    : run_campaign(cli, dir, spec, &options, &progress);
out:
    sdc__free(trainer);
    sdc__free(dir);
    sdc__spec_free(spec);
    return code;
}

static const struct sdc_opt options_table[] = {
    SDC_OPT_OUTPUT(struct run_args, output, "DIR",
                   "folder of the campaign; default NAME.sdcrun by the spec's name"),
    {SDC_OPT_U64, "workers", 'w', offsetof(struct run_args, workers), "N", NULL,
     "worker processes; default one a core", 1, 1024, NULL},
    {SDC_OPT_STR, "trial", 0, offsetof(struct run_args, trial), "ID", NULL,
     "repeat this one trial outside the store and print its labels", 0, 0, NULL},
    {SDC_OPT_STR, "into", 0, offsetof(struct run_args, into), "FOLDER", NULL,
     "new folder for the files of --trial; default DIR/replay/ID", 0, 0, NULL},
    SDC_OPT_DRY_RUN(struct run_args, dry_run),
    {.type = SDC_OPT_END},
};

const struct sdc_command sdc_cmd_campaign_run = {
    .name = "run",
    .group = "Experiments",
    .summary = "run a campaign, or go on with one",
    .operands = "[SPEC]",
    .details =
        "Trains the baselines, makes the clean twins and their spreads, passes the gate, runs\n"
        "controls and trials, and keeps every result in DIR/store.sqlite as soon as it is there.\n"
        "The same command goes on after any interruption. Ctrl-C finishes the trials in flight,\n"
        "a second one stops at once.\n"
        "\n"
        "Without SPEC the campaign in DIR goes on. Results do not depend on the number of "
        "workers.\n"
        "Exits 1 if a control failed or a clean twin did not pass the gate.\n"
        "\n"
        "--trial repeats one trial, compares its labels with the store's (1 if they differ) and\n"
        "leaves the altered file, the record, the events and the snapshots.",
    .examples = "  sdclab campaign run examples/paper-small.yaml\n"
                "  sdclab campaign run -o paper-small.sdcrun --workers 4\n"
                "  sdclab campaign run -o paper-small.sdcrun --trial c012-0003",
    .max_operands = 1,
    .options = options_table,
    .args_size = sizeof(struct run_args),
    .run = run,
};
