/* SPDX-License-Identifier: Apache-2.0
 *
 * Run description, sdclab.run/1: everything that decides what a training run computes, and what it
 * writes. One JSON object; schemas/run-1.json is its schema, unknown keys are refused. The pool
 * writes it, any trainer reads it. Nothing here trains.
 *
 * All strings and arrays in the structs are owned by the run (sdc_run_release) unless noted.
 */
#ifndef SDC_RUN_H
#define SDC_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sdc_strategy { SDC_STRATEGY_SINGLE, SDC_STRATEGY_DDP, SDC_STRATEGY_HOROVOD };

/* Who does a thing: every rank by itself, or rank 0 alone. */
enum sdc_who { SDC_WHO_ALL, SDC_WHO_RANK0 };

enum sdc_broadcast_order { SDC_ORDER_NONE, SDC_ORDER_OPTIMIZER_FIRST, SDC_ORDER_PARAMETERS_FIRST };

/* The switches that decide who stays corrupted; protocol.md section 1 has the recipes. */
struct sdc_switches {
    enum sdc_who read_model;             /* who reads model tensors from the checkpoint */
    enum sdc_who read_optimizer;         /* who reads optimizer tensors */
    bool broadcast_model;                /* parameters and buffers from rank 0 after the load */
    bool broadcast_optimizer;            /* optimizer state from rank 0 after the load */
    enum sdc_broadcast_order order;      /* of the two broadcasts; NONE where there are none */
    bool broadcast_buffers_each_forward; /* from rank 0 before each training forward (DDP) */
};

enum sdc_compression { SDC_COMPRESSION_NONE, SDC_COMPRESSION_FP16 };

/* What Horovod fuses: all that is ready at the end of the backward pass, so that runs repeat; or
 * what a cycle found ready, as its clock would have it, with drawn ends of cycles. */
enum sdc_fusion { SDC_FUSION_READY, SDC_FUSION_TIMED };

/* How gradients are averaged; reference: torch 1.13.1 and Horovod 0.28.1 on a CPU. Keys of the
 * other strategy stay at their defaults. */
struct sdc_averaging {
    /* fp16: gradients travel as F16. ddp: fp16_compress_hook, divided by N in F16, then summed;
     * horovod: Compression.fp16, summed, then multiplied by fl(1/N), so it overflows earlier. */
    enum sdc_compression compression;
    uint64_t first_bucket_bytes; /* ddp: cap of the first bucket, from the second step on */
    uint64_t bucket_bytes;       /* ddp: cap of the others (bucket_cap_mb) */
    bool bucket_view;            /* ddp: gradient_as_bucket_view, with gradients set to zero, not
                                    None: from the second step of a run on it divides by N, instead
                                    of multiplying by fl(1/N) */
    uint64_t fusion_bytes;       /* horovod: HOROVOD_FUSION_THRESHOLD; 0: nothing is fused */
    enum sdc_fusion fusion;
    uint64_t fusion_seed; /* of timed cycles */
};

#define SDC_AVERAGING_DEFAULT                                                                      \
    { .first_bucket_bytes = 1u << 20, .bucket_bytes = 25u << 20, .fusion_bytes = 128u << 20 }

/* The named settings: "ddp/after-wrap-all", ... ; "single" for one rank without a strategy. */
struct sdc_recipe {
    const char *name;
    enum sdc_strategy strategy;
    struct sdc_switches switches;
    const char *summary;
};

SDC_API const struct sdc_recipe *sdc_recipe_find(const char *name); /* NULL: unknown; static */
SDC_API size_t sdc_recipe_count(void);
SDC_API const struct sdc_recipe *sdc_recipe_at(size_t i);
SDC_API const char *sdc_strategy_name(enum sdc_strategy s); /* "single", "ddp", "horovod" */

/* What one rank reads at start; ranks without an entry in `load` start from fresh weights (only
 * when the whole array is empty; otherwise there is one entry per rank). */
struct sdc_run_load {
    char *path; /* the checkpoint file; NULL: this rank has no file to read */
    char *
        digest; /* optional: 32 hex digits, the file's model+optimizer+loop digest expected; NULL */
};

/* Where a live fault can be put, in the order in which a step passes them. The tensors that each
 * shows: the model's parameters under their names in checkpoints (at the points of gradients too),
 * the optimizer's state, the buffers. */
#define SDC_PROBE_POINT_MAP(X)                                                                     \
    X(PARAMETER, "parameter", "before the forward pass")                                           \
    X(OPTIMIZER, "optimizer", "the optimizer's state, before the forward pass")                    \
    X(BUFFER, "buffer", "running statistics, before the forward pass")                             \
    X(LOCAL_GRADIENT, "local-gradient", "the rank's own, after its backward pass")                 \
    X(BUCKET, "bucket", "in the bucket or fusion buffer, before the reduction")                    \
    X(REDUCED, "reduced", "the mean gradient, after it was copied out on this rank")               \
    X(UPDATE, "update", "the parameter, right after the optimizer's step")

enum sdc_probe_point {
#define SDC_POINT_ENUM(name, text, meaning) SDC_POINT_##name,
    SDC_PROBE_POINT_MAP(SDC_POINT_ENUM)
#undef SDC_POINT_ENUM
        SDC_POINT_COUNT
};
SDC_API const char *sdc_probe_point_name(enum sdc_probe_point point);

/* A live fault: what `choice` lists, or draws with stream (seed, index in the list), is put into
 * the memory of one rank at a point of one step. */
struct sdc_live_fault {
    uint64_t step; /* the step being done, as in step events: from_step + 1 is the first */
    uint32_t rank;
    enum sdc_probe_point point;
    uint64_t seed;
    struct sdc_choice choice;
};

/* State digests of golden at one step, for an early end when certain; one text per rank. */
struct sdc_run_golden {
    uint64_t step;
    char **state; /* [ranks] whole-state digests, 32 hex digits each (events: "state") */
};

/* When a schedule of the learning rate takes a step of its own. */
enum sdc_schedule_unit { SDC_UNIT_EPOCH, SDC_UNIT_STEP };

/* Options of all schedules, each with its own (PyTorch's names; protocol of the native trainer:
 * chained form of torch.optim.lr_scheduler). Warm-up goes with any. */
struct sdc_run_schedule {
    enum sdc_schedule_unit unit;
    uint32_t step_size;   /* step */
    double gamma;         /* step, multi-step */
    uint64_t *milestones; /* multi-step: ascending */
    size_t n_milestones;
    uint32_t t_max; /* cosine */
    double eta_min;
    double factor, threshold, min_lr; /* plateau */
    uint32_t patience, cooldown;
    uint32_t warmup_steps; /* training steps, 0: none */
    double warmup_factor;  /* of the first step's rate, above 0, at most 1 */
};

struct sdc_run {
    char *trial; /* id, any text without control characters; names the run in messages */

    char *trainer;   /* "native" here; a trainer refuses another's name */
    char *model;     /* "mlp", "lenet5", "resnet20", ... */
    char *kernels;   /* "onednn" or "ref" */
    char *precision; /* "f32" */

    struct {
        char *name;     /* "fashion-mnist", "cifar-10", "cifar-100", "synthetic" */
        char *path;     /* folder with the files; NULL: the system's (Debian's package) */
        uint64_t limit; /* use only the first n training samples; 0 = all */
        /* shape, size and seed of a synthetic set; 0: the set's own (sdc/data.h) */
        uint32_t channels, height, width, classes;
        uint64_t samples, test_samples, seed;
        uint32_t crop_padding; /* training images are cropped at random after padding; 0: not */
        bool flip;             /* ... and flipped left to right with probability 1/2 */
        bool shuffle;          /* a new order in every epoch, else always the set's own */
        bool drop_last;        /* samples that cannot be dealt out equally: left out, or padded */
    } data;

    struct {
        char *name; /* "sgd", "adam", "adamw" */
        double lr, weight_decay;
        double momentum; /* SGD's, as the next */
        bool nesterov;
        double beta1, beta2, eps; /* Adam's and AdamW's */
    } optimizer;
    char *schedule; /* "constant", "step", "multi-step", "cosine", "plateau" */
    struct sdc_run_schedule schedule_options;

    uint32_t ranks;     /* N, 1 to SDC_MAX_RANKS */
    uint32_t batch;     /* samples per rank and step */
    uint64_t seed_init; /* initial weights */
    uint64_t
        seed_data; /* data order and augmentation; E1 replicas change it from the checkpoint on */

    enum sdc_strategy strategy;
    char *recipe; /* name of the recipe the switches come from, or "custom"; for the record */
    struct sdc_switches switches;
    struct sdc_averaging averaging;

    struct sdc_run_load *load; /* n_load entries: 0 or `ranks` */
    size_t n_load;

    struct sdc_live_fault *faults; /* in any order */
    size_t n_faults;

    uint64_t from_step; /* step counter at start: 0 fresh, else must equal the checkpoint's */
    uint64_t to_step;   /* steps done when the run ends; > from_step, or equal to only load */

    uint64_t eval_samples; /* of the test set, 0 = none, more than there are = all */
    uint64_t eval_every;   /* steps between evaluations; 0 = only at the end */
    enum sdc_who eval_who; /* rank 0, or every rank (each evaluates its own replica) */

    uint64_t digest_every; /* steps between state digests in step events; 0 = none, also at end */
    uint64_t *snapshot_steps; /* ascending step numbers at which every rank writes a snapshot */
    size_t n_snapshot_steps;

    struct sdc_run_golden *golden; /* ascending by step */
    size_t n_golden;

    struct {
        char *path; /* the checkpoint; with several steps the text {step} is replaced; NULL: none */
        char *format;    /* "hdf5" or "safetensors" */
        uint64_t *steps; /* ascending; empty: at the end of the run. Rank 0 saves */
        size_t n_steps;
    } save;

    char *output; /* existing folder for events.jsonl and snapshots */
};

/* All defaults: see the schema. Without memory the texts stay NULL, which sdc_run_check and
 * sdc_run_to_json report as "is not set". */
SDC_API void sdc_run_init(struct sdc_run *run);
SDC_API void sdc_run_release(struct sdc_run *run);
/* Into a struct that holds nothing. */
SDC_API enum sdc_status sdc_run_copy(struct sdc_run *to, const struct sdc_run *from,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* Sets strategy, recipe and switches from a recipe's name; SDC_USAGE lists the known ones. */
SDC_API enum sdc_status sdc_run_set_recipe(struct sdc_run *run, const char *name,
                                           struct sdc_error *err) SDC_MUST_CHECK;
/* Values in range and combinations possible: single has one rank; strategy and switches are those
 * of the named recipe unless it is "custom"; keys of averaging are the strategy's; two broadcasts
 * have an order; what rank 0 alone reads is sent on; none or one load per rank, with a file for
 * every rank that reads; a start after step 0 loads; steps ascend and lie inside the run; several
 * saves have {step} in their path. SDC_USAGE.
 */
SDC_API enum sdc_status sdc_run_check(const struct sdc_run *run,
                                      struct sdc_error *err) SDC_MUST_CHECK;

/* Keys left out take their defaults, strategy and switches those of "recipe". what names the text
 * in messages. SDC_INVALID names the place, SDC_MISMATCH another schema; *run, which holds nothing
 * before, is filled on success alone. to_json writes every key in one line with its newline (free
 * with sdc_text_free); a description that sdc_run_check refuses is not written. */
SDC_API enum sdc_status sdc_run_from_json(const char *json, size_t len, const char *what,
                                          struct sdc_run *run,
                                          struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_run_to_json(const struct sdc_run *run, char **json,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_run_read(const char *path, struct sdc_run *run,
                                     struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_run_write(const char *path, const struct sdc_run *run,
                                      struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
