/* SPDX-License-Identifier: Apache-2.0
 *
 * Labels of a trial: one value on each of several independent axes. Not statuses: a run that went
 * wrong silently returned SDC_OK. The vocabulary alone; deciding a label is the campaign's work.
 */
#ifndef SDC_OUTCOME_H
#define SDC_OUTCOME_H

#include <stdbool.h>

#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the trial gave a result at all. name, text, meaning */
#define SDC_RESULT_MAP(X)                                                                          \
    X(DONE, "done", "the trial ran to its end and was judged")                                     \
    X(NOT_INJECTED, "not-injected", "the planned bytes could not be put into the file")            \
    X(HARNESS_ERROR, "harness-error",                                                              \
      "the laboratory failed, not the training: the pair is left out")

/* Which ranks held altered bits after start-up (loads, wrapping and broadcasts). */
#define SDC_EXPOSURE_MAP(X)                                                                        \
    X(NONE, "none", "nothing was altered (no fault planned, or a control without one)")            \
    X(NOT_READ, "not-read", "no rank read the altered bytes")                                      \
    X(ERASED, "erased-at-start", "altered bits were read, and start-up overwrote all of them")     \
    X(KEPT, "kept", "some ranks hold altered bits after start-up, others do not")                  \
    X(SPREAD, "spread-to-all", "every rank holds the same altered bits after start-up")

/* Numeric state over the window. Collapse = INF_NAN_*. */
#define SDC_NUMERIC_MAP(X)                                                                         \
    X(FINITE, "finite", "losses and parameters stayed finite and of usual size")                   \
    X(EXTREME, "extreme", "finite, but a value beyond the bound at the end of the window")         \
    X(NONFINITE_NOW, "non-finite-immediate", "a non-finite loss at the first step or the next")    \
    X(NONFINITE_SOON, "non-finite-short-term", "a non-finite loss within 100 steps")               \
    X(NONFINITE_LATE, "non-finite-late", "a non-finite loss after more than 100 steps")            \
    X(CRASH, "crash", "the training process died, again in a fresh worker")                        \
    X(HANG, "hang", "the training made no progress, again in a fresh worker")                      \
    X(REJECTED, "rejected-at-load", "the trainer refused the altered checkpoint")

/* Losses against the clean twin and the clean spread. */
#define SDC_TRAJECTORY_MAP(X)                                                                      \
    X(IDENTICAL, "bit-identical", "state and losses equal the clean twin's")                       \
    X(INSIDE, "inside-spread", "losses never left the clean spread")                               \
    X(SPIKE_RECOVER, "spike-and-recover", "left the clean spread and came back by the end")        \
    X(DEGRADE, "degrade", "outside the clean spread at the end of the window")                     \
    X(DRIFT, "gradual-drift", "losses inside the clean spread, parameters outside it")             \
    X(NO_LOSS, "no-loss", "no finite loss to compare")

/* Evaluation at the end of the window against the clean spread of other data orders (E1). */
#define SDC_QUALITY_MAP(X)                                                                         \
    X(UNCHANGED, "unchanged", "accuracy inside the clean spread")                                  \
    X(SLIGHT, "slight", "below the clean spread, by at most 5 points")                             \
    X(DEGRADED, "degraded", "more than 5 points below the clean twin")                             \
    X(FAILED, "failed", "at chance level")                                                         \
    X(BETTER, "better", "above the clean spread")                                                  \
    X(UNKNOWN, "unknown", "no evaluation, or no clean spread to compare with")

/* Replicas over the window. */
#define SDC_REPLICAS_MAP(X)                                                                        \
    X(EQUAL, "all-equal", "all ranks equal throughout, and equal to the clean twin")               \
    X(HEALED, "healed", "differed, and were equal again at the end")                               \
    X(DIVERGED, "diverged", "ranks differ at the end of the window")                               \
    X(POISONED, "poisoned", "equal on all ranks, and not equal to the clean twin")                 \
    X(UNKNOWN, "unknown", "the end of the window was not reached")

enum sdc_result {
#define SDC_X(name, text, meaning) SDC_RESULT_##name,
    SDC_RESULT_MAP(SDC_X) SDC_RESULT_COUNT
};
enum sdc_exposure {
#undef SDC_X
#define SDC_X(name, text, meaning) SDC_EXPOSURE_##name,
    SDC_EXPOSURE_MAP(SDC_X) SDC_EXPOSURE_COUNT
};
enum sdc_numeric {
#undef SDC_X
#define SDC_X(name, text, meaning) SDC_NUMERIC_##name,
    SDC_NUMERIC_MAP(SDC_X) SDC_NUMERIC_COUNT
};
enum sdc_trajectory {
#undef SDC_X
#define SDC_X(name, text, meaning) SDC_TRAJECTORY_##name,
    SDC_TRAJECTORY_MAP(SDC_X) SDC_TRAJECTORY_COUNT
};
enum sdc_quality {
#undef SDC_X
#define SDC_X(name, text, meaning) SDC_QUALITY_##name,
    SDC_QUALITY_MAP(SDC_X) SDC_QUALITY_COUNT
};
enum sdc_replicas {
#undef SDC_X
#define SDC_X(name, text, meaning) SDC_REPLICAS_##name,
    SDC_REPLICAS_MAP(SDC_X) SDC_REPLICAS_COUNT
#undef SDC_X
};

struct sdc_outcome {
    enum sdc_result result;
    enum sdc_exposure exposure;
    enum sdc_numeric numeric;
    enum sdc_trajectory trajectory;
    enum sdc_quality quality;
    enum sdc_replicas replicas;
};

enum sdc_axis {
    SDC_AXIS_RESULT,
    SDC_AXIS_EXPOSURE,
    SDC_AXIS_NUMERIC,
    SDC_AXIS_TRAJECTORY,
    SDC_AXIS_QUALITY,
    SDC_AXIS_REPLICAS,
    SDC_AXIS_COUNT
};

/* "exposure", "numeric", ...; number of values; text and meaning of a value. All static. */
SDC_API const char *sdc_axis_name(enum sdc_axis axis);
SDC_API int sdc_axis_count(enum sdc_axis axis);
SDC_API const char *sdc_label_text(enum sdc_axis axis, int value);
SDC_API const char *sdc_label_meaning(enum sdc_axis axis, int value);
SDC_API bool sdc_label_parse(enum sdc_axis axis, const char *text, int *value);
/* The value of an outcome on an axis. */
SDC_API int sdc_outcome_get(const struct sdc_outcome *o, enum sdc_axis axis);

/* The primary event: non-finite training or evaluation loss on any rank. */
SDC_API bool sdc_outcome_is_collapse(const struct sdc_outcome *o);

#ifdef __cplusplus
}
#endif
#endif
