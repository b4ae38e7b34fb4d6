/* SPDX-License-Identifier: Apache-2.0 */
#include "train/schedule.h"

#include <math.h>
#include <string.h>

#include "base/guard.h"

#define PI          3.141592653589793
#define PLATEAU_EPS 1e-8 /* a smaller change of the rate is not made */

static const char *const names[] = {"constant", "step", "multi-step", "cosine", "plateau"};

enum sdc_status sdc_schedule_make(const struct sdc_run *run, struct sdc_schedule *s,
                                  struct sdc_error *err) {
    *s = (struct sdc_schedule){.base_lr = run->optimizer.lr, .options = &run->schedule_options};
    for (unsigned k = 0; k < sizeof names / sizeof names[0]; k++) {
        if (strcmp(run->schedule, names[k]) == 0) {
            s->kind = (enum sdc_schedule_kind)k;
            return SDC_OK;
        }
    }
    return SDC_ERR(err, SDC_UNSUPPORTED,
                   "schedule: found '%s', the native trainer has constant, step, multi-step, "
                   "cosine and plateau",
                   run->schedule);
}

unsigned sdc_schedule_parts(const struct sdc_schedule *s) {
    unsigned parts = 0;
    if (s->options->warmup_steps > 0)
        parts |= SDC_SCHEDULE_HAS_LR | SDC_SCHEDULE_HAS_WARMUP;
    if (s->kind != SDC_SCHEDULE_CONSTANT)
        parts |= SDC_SCHEDULE_HAS_LR | SDC_SCHEDULE_HAS_COUNT;
    if (s->kind == SDC_SCHEDULE_PLATEAU)
        parts |= SDC_SCHEDULE_HAS_PLATEAU;
    return parts;
}

struct sdc_schedule_state sdc_schedule_start(const struct sdc_schedule *s) {
    struct sdc_schedule_state state = {.lr = s->base_lr};
    if (s->options->warmup_steps > 0)
        state.lr *= s->options->warmup_factor;
    if (s->kind == SDC_SCHEDULE_PLATEAU)
        state.best = (double)INFINITY;
    return state;
}

/* A counter that an alteration drove to its end must wrap, not trap. */
static int64_t next(int64_t counter) {
    return (int64_t)((uint64_t)counter + 1);
}

static void warm_up(const struct sdc_run_schedule *o, struct sdc_schedule_state *state) {
    const double start = o->warmup_factor, rise = 1.0 - start;
    const int64_t at = state->warmed_up = next(state->warmed_up);
    if (at == 0)
        state->lr *= start;
    else if (at <= o->warmup_steps)
        state->lr *= 1.0 + rise / ((double)o->warmup_steps * start + (double)(at - 1) * rise);
}

static bool is_milestone(const struct sdc_run_schedule *o, int64_t at) {
    for (size_t i = 0; i < o->n_milestones; i++)
        if (at >= 0 && o->milestones[i] == (uint64_t)at)
            return true;
    return false;
}

static double cosine(const struct sdc_schedule *s, double lr, int64_t at) {
    const int64_t t_max = s->options->t_max;
    const double least = s->options->eta_min, of = (double)t_max;
    if (at == 0)
        return lr;
    if ((int64_t)((uint64_t)at - 1 - (uint64_t)t_max) % (2 * t_max) == 0)
        return lr + (s->base_lr - least) * (1 - cos(PI / of)) / 2;
    const double now = 1 + cos(PI * (double)at / of);
    const double before = 1 + cos(PI * (double)(int64_t)((uint64_t)at - 1) / of);
    return now / before * (lr - least) + least;
}

static void plateau(const struct sdc_run_schedule *o, struct sdc_schedule_state *state,
                    double metric) {
    if (metric < state->best * (1.0 - o->threshold)) {
        state->best = metric;
        state->bad_epochs = 0;
    } else {
        state->bad_epochs = next(state->bad_epochs);
    }
    if (state->cooldown > 0) {
        state->cooldown--;
        state->bad_epochs = 0;
    }
    if (state->bad_epochs > o->patience) {
        double lower = state->lr * o->factor;
        if (o->min_lr > lower) /* a NaN stays, as with Python's max */
            lower = o->min_lr;
        if (state->lr - lower > PLATEAU_EPS)
            state->lr = lower;
        state->cooldown = o->cooldown;
        state->bad_epochs = 0;
    }
}

void sdc_schedule_after_step(const struct sdc_schedule *s, struct sdc_schedule_state *state,
                             double loss, bool ends_epoch, uint64_t steps_per_epoch) {
    const struct sdc_run_schedule *o = s->options;
    const bool by_step = o->unit == SDC_UNIT_STEP;
    if (o->warmup_steps > 0)
        warm_up(o, state);
    if (s->kind == SDC_SCHEDULE_PLATEAU)
        state->loss += loss;
    if (s->kind == SDC_SCHEDULE_CONSTANT || (!by_step && !ends_epoch))
        return;
    const int64_t at = state->last_epoch = next(state->last_epoch);
    if (s->kind == SDC_SCHEDULE_STEP && at != 0 && at % o->step_size == 0)
        state->lr *= o->gamma;
    else if (s->kind == SDC_SCHEDULE_MULTI_STEP && is_milestone(o, at))
        state->lr *= o->gamma;
    else if (s->kind == SDC_SCHEDULE_COSINE)
        state->lr = cosine(s, state->lr, at);
    else if (s->kind == SDC_SCHEDULE_PLATEAU)
        plateau(o, state, state->loss / (by_step ? 1.0 : (double)steps_per_epoch));
    state->loss = 0;
}
