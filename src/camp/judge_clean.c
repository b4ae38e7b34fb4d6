/* SPDX-License-Identifier: Apache-2.0
 *
 * The clean side of judging: golden, the spread around it, and when two runs are the same.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/judge.h"

static const struct sdc_event *find_end(const struct sdc_event_list *run) {
    return run->n && run->items[run->n - 1].kind == SDC_EVENT_END ? &run->items[run->n - 1] : NULL;
}

/* ---- spreads ---- */

enum sdc_status sdc__spread_init(struct sdc_spread *spread, size_t n_steps, struct sdc_error *err) {
    *spread = (struct sdc_spread){.n_steps = n_steps};
    spread->deviation = sdc__calloc(n_steps, sizeof *spread->deviation);
    return spread->deviation ? SDC_OK : SDC_NOMEM(err, "the clean spread");
}

void sdc__spread_release(struct sdc_spread *spread) {
    sdc__free(spread->deviation);
    *spread = (struct sdc_spread){0};
}

void sdc__spread_add_e0(struct sdc_spread *spread, const double *d, double distance) {
    double so_far = 0;
    for (size_t i = 0; i < spread->n_steps; i++) {
        so_far = fmax(so_far, d[i]);
        spread->deviation[i] = fmax(spread->deviation[i], so_far);
    }
    spread->distance_e0 = fmax(spread->distance_e0, distance);
    spread->n_e0++;
}

void sdc__spread_add_e1(struct sdc_spread *spread, double deviation) {
    if (isnan(deviation))
        return;
    spread->deviation_e1 = fmax(spread->deviation_e1, deviation);
    spread->n_e1++;
}

static double headroom(const struct sdc_spread *s) {
    return s->n_e0 >= SDC_CLEAN_TOLERANCE_N ? 1.0 : SDC_CLEAN_HEADROOM;
}

double sdc__spread_limit(const struct sdc_spread *s, size_t at) {
    size_t ahead = 2 * at + 1 < SDC_CLEAN_AHEAD ? SDC_CLEAN_AHEAD : 2 * at + 1;
    return headroom(s) * s->deviation[ahead < s->n_steps ? ahead : s->n_steps - 1];
}

double sdc__spread_distance_limit(const struct sdc_spread *s) {
    return headroom(s) * s->distance_e0;
}

/* ---- golden ---- */

enum sdc_status sdc__clean_init(struct sdc_clean *clean, const struct sdc_event_list *golden,
                                uint64_t from_step, uint64_t to_step, struct sdc_error *err) {
    *clean = (struct sdc_clean){.golden = golden, .from_step = from_step, .to_step = to_step};
    size_t n = (size_t)(to_step - from_step);
    clean->steps = sdc__calloc(n, sizeof *clean->steps);
    if (!clean->steps)
        return SDC_NOMEM(err, "the clean spread");
    enum sdc_status st = sdc__spread_init(&clean->spread, n, err);
    for (size_t i = 0; i < golden->n; i++) {
        const struct sdc_event *e = &golden->items[i];
        if (e->kind == SDC_EVENT_START && !clean->start) {
            clean->start = e;
            clean->ranks = e->ranks;
        } else if (e->kind == SDC_EVENT_STEP && e->step > from_step && e->step <= to_step) {
            clean->steps[e->step - from_step - 1] = e;
        } else if (e->kind == SDC_EVENT_EVAL && e->step == to_step) {
            clean->eval = e;
        }
    }
    const struct sdc_event *end = find_end(golden);
    if (st == SDC_OK && (!clean->start || !end || end->reason != SDC_END_COMPLETED))
        st = SDC_ERR(err, SDC_INVALID, "the clean restart did not come to its end");
    for (size_t i = 0; i < n && st == SDC_OK; i++) {
        const struct sdc_event *e = clean->steps[i];
        if (!e || e->ranks != clean->ranks)
            st = SDC_ERR(err, SDC_INVALID, "the clean restart has no events of step %llu",
                         (unsigned long long)(from_step + i + 1));
        for (uint32_t r = 0; st == SDC_OK && r < clean->ranks; r++)
            if (!isfinite(e->loss[r]))
                st = SDC_ERR(err, SDC_INVALID,
                             "the clean restart has a loss of %g on rank %u at step %llu; the "
                             "training itself collapses with this setting",
                             (double)e->loss[r], r, (unsigned long long)e->step);
    }
    if (st != SDC_OK)
        sdc__clean_release(clean);
    return st;
}

void sdc__clean_release(struct sdc_clean *clean) {
    sdc__free(clean->steps);
    sdc__spread_release(&clean->spread);
    *clean = (struct sdc_clean){0};
}

static double rank0_accuracy(const struct sdc_event *eval) {
    return eval && eval->samples && eval->ranks
               ? (double)eval->eval_correct[0] / (double)eval->samples
               : NAN;
}

/* Largest deviation over ranks after each step, into d[to - from]; NaN where a step is missing. */
static void deviations(const struct sdc_clean *clean, const struct sdc_event_list *run, double *d) {
    size_t n = (size_t)(clean->to_step - clean->from_step);
    for (size_t i = 0; i < n; i++)
        d[i] = NAN;
    for (size_t i = 0; i < run->n; i++) {
        const struct sdc_event *e = &run->items[i];
        if (e->kind != SDC_EVENT_STEP || e->ranks != clean->ranks || e->step <= clean->from_step ||
            e->step > clean->to_step)
            continue;
        size_t at = (size_t)(e->step - clean->from_step - 1);
        double largest = 0;
        for (uint32_t r = 0; r < clean->ranks; r++) {
            double diff = fabs((double)e->loss[r] - (double)clean->steps[at]->loss[r]);
            if (!(diff <= largest)) /* NaN counts as the largest */
                largest = isnan(diff) ? INFINITY : diff;
        }
        d[at] = largest;
    }
}

enum sdc_status sdc__clean_deviations(const struct sdc_clean *clean,
                                      const struct sdc_event_list *run, double *d,
                                      struct sdc_error *err) {
    deviations(clean, run, d);
    for (size_t i = 0; i < clean->spread.n_steps; i++)
        if (!isfinite(d[i]))
            return SDC_ERR(err, SDC_INVALID,
                           "a clean replica lacks step %llu or is not finite there",
                           (unsigned long long)(clean->from_step + i + 1));
    return SDC_OK;
}

enum sdc_status sdc__clean_add_e0(struct sdc_clean *clean, const struct sdc_event_list *replica,
                                  double distance, struct sdc_error *err) {
    double *d = sdc__alloc(clean->spread.n_steps, sizeof *d);
    if (!d)
        return SDC_NOMEM(err, "the clean spread");
    enum sdc_status st = sdc__clean_deviations(clean, replica, d, err);
    if (st == SDC_OK && !isfinite(distance))
        st = SDC_ERR(err, SDC_INVALID, "the parameters of a clean replica are not finite");
    if (st == SDC_OK)
        sdc__spread_add_e0(&clean->spread, d, distance);
    sdc__free(d);
    return st;
}

static const struct sdc_event *eval_at(const struct sdc_event_list *run, uint64_t step) {
    const struct sdc_event *found = NULL;
    for (size_t i = 0; i < run->n; i++)
        if (run->items[i].kind == SDC_EVENT_EVAL && run->items[i].step == step)
            found = &run->items[i];
    return found;
}

double sdc__clean_accuracy_deviation(const struct sdc_clean *clean,
                                     const struct sdc_event_list *run) {
    return fabs(rank0_accuracy(eval_at(run, clean->to_step)) - rank0_accuracy(clean->eval));
}

enum sdc_status sdc__clean_add_e1(struct sdc_clean *clean, const struct sdc_event_list *replica,
                                  struct sdc_error *err) {
    const struct sdc_event *end = find_end(replica);
    if (!end || end->reason != SDC_END_COMPLETED)
        return SDC_ERR(err, SDC_INVALID, "a clean replica (E1) did not come to its end");
    sdc__spread_add_e1(&clean->spread, sdc__clean_accuracy_deviation(clean, replica));
    return SDC_OK;
}

double sdc__clean_limit(const struct sdc_clean *clean, uint64_t step, uint32_t rank) {
    size_t at = (size_t)(step - clean->from_step - 1);
    double floor_ = SDC_CLEAN_FLOOR * fabs((double)clean->steps[at]->loss[rank]);
    return fmax(floor_, sdc__spread_limit(&clean->spread, at));
}

double sdc__clean_distance_limit(const struct sdc_clean *clean) {
    return fmax(SDC_CLEAN_FLOOR, sdc__spread_distance_limit(&clean->spread));
}

double sdc__clean_max_deviation(const struct sdc_clean *clean, const struct sdc_event_list *run) {
    double largest = 0;
    size_t n = (size_t)(clean->to_step - clean->from_step);
    double *d = sdc__alloc(n, sizeof *d);
    if (!d)
        return NAN;
    deviations(clean, run, d);
    for (size_t i = 0; i < n; i++)
        if (!isnan(d[i]))
            largest = fmax(largest, d[i]);
    sdc__free(d);
    return largest;
}

/* ---- sameness ---- */

static bool same_bits(const void *a, const void *b, size_t size) {
    return memcmp(a, b, size) == 0;
}

static const char *digest_difference(const struct sdc_rank_digests *a,
                                     const struct sdc_rank_digests *b) {
    if (a->valid != b->valid)
        return "digests";
    if (!a->valid)
        return NULL;
#define SDC_DIFFERS(part)                                                                          \
    if (!same_bits(&a->part, &b->part, sizeof a->part))                                            \
        return #part;
    SDC_DIFFERS(parameters)
    SDC_DIFFERS(buffers)
    SDC_DIFFERS(optimizer)
    SDC_DIFFERS(loop)
    SDC_DIFFERS(state)
#undef SDC_DIFFERS
    return NULL;
}

static const char *start_difference(const struct sdc_event *a, const struct sdc_event *b,
                                    uint32_t *rank) {
    for (uint32_t r = 0; r < a->ranks; r++) {
        *rank = r;
        const char *d = digest_difference(&a->start[r].loaded, &b->start[r].loaded);
        if (d)
            return d;
        if ((d = digest_difference(&a->start[r].started, &b->start[r].started)))
            return d;
    }
    return NULL;
}

static const char *step_difference(const struct sdc_event *a, const struct sdc_event *b,
                                   uint32_t *rank) {
    for (uint32_t r = 0; r < a->ranks; r++) {
        *rank = r;
        if (!same_bits(&a->loss[r], &b->loss[r], sizeof a->loss[r]))
            return "loss";
        if (a->nonfinite_gradients[r] != b->nonfinite_gradients[r] ||
            a->nonfinite_parameters[r] != b->nonfinite_parameters[r])
            return "non-finite counts";
        if (!a->digests != !b->digests)
            return "digests";
        const char *d = a->digests ? digest_difference(&a->digests[r], &b->digests[r]) : NULL;
        if (d)
            return d;
    }
    *rank = 0;
    return same_bits(&a->gradient_norm, &b->gradient_norm, sizeof a->gradient_norm)
               ? NULL
               : "gradient norm";
}

static const char *eval_difference(const struct sdc_event *a, const struct sdc_event *b,
                                   uint32_t *rank) {
    *rank = 0;
    if (a->samples != b->samples)
        return "number of evaluated samples";
    for (uint32_t r = 0; r < a->ranks; r++) {
        *rank = r;
        if (!same_bits(&a->eval_loss[r], &b->eval_loss[r], sizeof a->eval_loss[r]) ||
            a->eval_correct[r] != b->eval_correct[r])
            return "evaluation";
    }
    return NULL;
}

static const char *event_difference(const struct sdc_event *a, const struct sdc_event *b,
                                    uint32_t *rank) {
    *rank = 0;
    if (a->kind != b->kind || a->step != b->step || a->ranks != b->ranks)
        return "order of events";
    switch (a->kind) {
    case SDC_EVENT_START:
        return start_difference(a, b, rank);
    case SDC_EVENT_STEP:
        return step_difference(a, b, rank);
    case SDC_EVENT_EVAL:
        return eval_difference(a, b, rank);
    case SDC_EVENT_END:
        return a->reason == b->reason ? NULL : "end";
    default:
        return NULL;
    }
}

bool sdc__runs_identical(const struct sdc_event_list *a, const struct sdc_event_list *b, char *why,
                         size_t size) {
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        uint32_t rank;
        const char *d = event_difference(&a->items[i], &b->items[i], &rank);
        if (!d)
            continue;
        if (a->items[i].kind == SDC_EVENT_START)
            snprintf(why, size, "%s of rank %u after start-up", d, rank);
        else
            snprintf(why, size, "%s of rank %u at step %llu", d, rank,
                     (unsigned long long)a->items[i].step);
        return false;
    }
    if (a->n != b->n)
        snprintf(why, size, "number of events, %zu and %zu", a->n, b->n);
    return a->n == b->n;
}

bool sdc__replicas_equal_at_start(const struct sdc_event_list *run, char *why, size_t size) {
    for (size_t i = 0; i < run->n; i++) {
        const struct sdc_event *e = &run->items[i];
        if (e->kind != SDC_EVENT_START)
            continue;
        for (uint32_t r = 1; r < e->ranks; r++) {
            const struct sdc_rank_digests *a = &e->start[0].started, *b = &e->start[r].started;
            const char *what = NULL;
            if (!a->valid || !b->valid)
                what = "digests (missing)";
            else if (!same_bits(&a->parameters, &b->parameters, sizeof a->parameters))
                what = "parameters";
            else if (!same_bits(&a->buffers, &b->buffers, sizeof a->buffers))
                what = "buffers";
            else if (!same_bits(&a->optimizer, &b->optimizer, sizeof a->optimizer))
                what = "optimizer state";
            if (what) {
                snprintf(why, size, "%s of rank %u differ from rank 0's after start-up", what, r);
                return false;
            }
        }
        return true;
    }
    snprintf(why, size, "the run has no start event");
    return false;
}
