/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of a run, sdclab.events/1: JSON lines, one event each, in the order they happened;
 * schemas/events-1.json is the schema of a line, unknown keys are refused. A trainer writes them to
 * OUTPUT/events.jsonl, the campaign reads them. Floats are written in decimal for reading and as
 * raw bits in hex for truth ("loss": [2.3], "loss_bits": ["40133333"]): the bits are read, the
 * decimals only checked for being numbers. The key "type" says which event a line is.
 *
 * start       versions, environment that can change bits; per rank the file read or none, digests
 *             after its load and after start-up (this is the exposure)
 * step        loss per rank, gradient norm, non-finite counts, state digests at their period
 * eval        loss, accuracy, samples, per rank where asked
 * checkpoint  a checkpoint was saved
 * snapshot    every rank wrote its state (one safetensors file a rank)
 * fault       a live fault was put into a rank's memory in the step whose event comes next
 * end         reason
 *
 * One thread per object; functions without one are thread-safe.
 */
#ifndef SDC_EVENTS_H
#define SDC_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/run.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDC_EVENT_KIND_MAP(X)                                                                      \
    X(START, "start")                                                                              \
    X(STEP, "step")                                                                                \
    X(EVAL, "eval")                                                                                \
    X(CHECKPOINT, "checkpoint")                                                                    \
    X(SNAPSHOT, "snapshot")                                                                        \
    X(FAULT, "fault")                                                                              \
    X(END, "end")

enum sdc_event_kind {
#define SDC_EVENT_ENUM(name, text) SDC_EVENT_##name,
    SDC_EVENT_KIND_MAP(SDC_EVENT_ENUM)
#undef SDC_EVENT_ENUM
        SDC_EVENT_KIND_COUNT
};

#define SDC_END_REASON_MAP(X)                                                                      \
    X(COMPLETED, "completed", "all steps were done")                                               \
    X(EQUAL_TO_GOLDEN, "equal-to-golden",                                                          \
      "the whole state of every rank equals golden's: the rest is known")                          \
    X(ALL_NONFINITE, "all-non-finite",                                                             \
      "every parameter on every rank is non-finite: the rest is known")                            \
    X(REJECTED, "rejected", "the checkpoint was refused at load")                                  \
    X(FAILED, "failed", "the run failed; see message")

enum sdc_end_reason {
#define SDC_END_ENUM(name, text, meaning) SDC_END_##name,
    SDC_END_REASON_MAP(SDC_END_ENUM)
#undef SDC_END_ENUM
        SDC_END_REASON_COUNT
};

SDC_API const char *sdc_event_kind_name(enum sdc_event_kind kind);
SDC_API const char *sdc_end_reason_name(enum sdc_end_reason reason);

/* Digests of one rank's state; valid says whether it was computed. `state` covers all of it. */
struct sdc_rank_digests {
    bool valid;
    struct sdc_state_digest parameters, buffers, optimizer, loop, state;
};

struct sdc_start_rank {
    char *file;                      /* what this rank read; NULL: nothing */
    bool read_model, read_optimizer; /* which parts it took from the file */
    struct sdc_rank_digests loaded;  /* after its own load, before any exchange */
    struct sdc_rank_digests started; /* after start-up, before the first step */
};

struct sdc_key_value {
    char *key, *value;
};

/* An element that a live fault changed; raw values. */
struct sdc_event_change {
    char *tensor;
    uint64_t elem; /* flat C-order index */
    uint64_t before, after;
};

struct sdc_event {
    enum sdc_event_kind kind;
    uint64_t step;  /* steps done: START the step counter at start, STEP after the step (from_step +
                       1  is the first), EVAL and the others likewise */
    double elapsed; /* seconds since the run was taken up; for people, never judged */
    uint32_t ranks; /* length of every per-rank array below */

    /* START */
    char *trial;
    char *trainer;                     /* "native 0.1.0" */
    struct sdc_key_value *environment; /* versions and everything that can change bits; sorted */
    size_t n_environment;
    struct sdc_start_rank *start; /* [ranks] */

    /* STEP */
    float *loss;                      /* [ranks] mean over the rank's batch, before the update */
    double gradient_norm;             /* of the reduced gradient on rank 0, L2 */
    uint64_t *nonfinite_gradients;    /* [ranks] elements, reduced gradient */
    uint64_t *nonfinite_parameters;   /* [ranks] elements after the update */
    struct sdc_rank_digests *digests; /* [ranks] or NULL where the period does not fall */

    /* EVAL: per evaluating rank, ranks entries (1 if only rank 0 evaluates) */
    uint64_t samples;
    double *eval_loss;      /* mean over the samples, accumulated in double */
    uint64_t *eval_correct; /* samples classified right */

    /* CHECKPOINT: one path; SNAPSHOT: one path a rank */
    char **paths;
    size_t n_paths;

    /* FAULT */
    uint32_t fault; /* index in the run's faults */
    uint32_t rank;
    enum sdc_probe_point point;
    uint64_t changed; /* elements; 0: there was nothing to alter, as an optimizer's state before the
                         first step */
    struct sdc_event_change *changes; /* the first of them */
    size_t n_changes;

    /* END */
    enum sdc_end_reason reason;
    char *message; /* may be NULL */
};

SDC_API void sdc_event_init(struct sdc_event *e, enum sdc_event_kind kind); /* all zero otherwise */
SDC_API void sdc_event_release(struct sdc_event *e); /* frees everything the event owns */

/* One line with its newline. SDC_USAGE where the event lacks what its kind needs. Free with
 * sdc_text_free (sdc/choice.h). */
SDC_API enum sdc_status sdc_event_to_json(const struct sdc_event *e, char **line,
                                          struct sdc_error *err) SDC_MUST_CHECK;
/* Fills *e, which holds nothing before, on success alone. SDC_INVALID names the place, SDC_MISMATCH
 * another schema, SDC_LIMIT a line over 16 MiB. what names the line in messages. */
SDC_API enum sdc_status sdc_event_from_json(const char *line, size_t len, const char *what,
                                            struct sdc_event *e,
                                            struct sdc_error *err) SDC_MUST_CHECK;

/* A whole file of events. A last line without its newline (the writer was killed) is left out and
 * complete is false; so it is where the END event is missing. A file that is being written may be
 * read. Errors name file and line. */
struct sdc_event_list {
    struct sdc_event *items;
    size_t n;
    bool complete;
};
SDC_API enum sdc_status sdc_events_read(const char *path, struct sdc_event_list *list,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_events_release(struct sdc_event_list *list);

#ifdef __cplusplus
}
#endif
#endif
