/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/train_options.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"

#define AT(member) offsetof(struct train_options, member)

static const char *const comm_names[] = {"auto", "threads", "mpi", NULL};
static const char *const kernel_names[] = {"onednn", "ref", NULL};
static const char *const optimizer_names[] = {"sgd", "adam", "adamw", NULL};
static const char *const schedule_names[] = {"constant", "step",    "multi-step",
                                             "cosine",   "plateau", NULL};
static const char *const unit_names[] = {"epoch", "step", NULL};
static const char *const format_names[] = {"hdf5", "safetensors", NULL};
static const char *const compression_names[] = {"none", "fp16", NULL};
static const char *const fusion_names[] = {"ready", "timed", NULL};
static const char *const who_names[] = {"rank0", "all", NULL};

const struct sdc_opt train_option_table[] = {
    {SDC_OPT_STR, "run", 0, AT(run), "FILE", NULL,
     "carry out this run description; all else is in it", 0, 0, NULL},
    {SDC_OPT_STR, "model", 0, AT(model), "NAME", "lenet5",
     "mlp, lenet5, alexnet, vgg11, resnet20, resnet18 or resnet50", 0, 0, NULL},
    {SDC_OPT_STR, "data", 0, AT(data), "NAME", "fashion-mnist",
     "fashion-mnist, cifar-10, cifar-100 or synthetic", 0, 0, NULL},
    {SDC_OPT_STR, "data-path", 0, AT(data_path), "DIR", NULL,
     "folder of the data files, instead of the system's", 0, 0, NULL},
    {SDC_OPT_U64, "data-limit", 0, AT(data_limit), "N", "0",
     "use the first N training samples only, 0 = all", 0, 0, NULL},
    {SDC_OPT_STR, "data-shape", 0, AT(data_shape), "CxHxW", NULL,
     "of the images of a synthetic set (1x28x28)", 0, 0, NULL},
    {SDC_OPT_U64, "data-classes", 0, AT(data_classes), "N", "0",
     "of a synthetic set, 0 = as usual (10)", 0, 65536, NULL},
    {SDC_OPT_U64, "data-samples", 0, AT(data_samples), "N", "0",
     "training samples of a synthetic set, 0 = as usual (2048)", 0, UINT32_MAX, NULL},
    {SDC_OPT_U64, "data-test-samples", 0, AT(data_test_samples), "N", "0",
     "test samples of a synthetic set, 0 = as usual (512)", 0, UINT32_MAX, NULL},
    {SDC_OPT_U64, "data-seed", 0, AT(data_seed), "N", "0", "of a synthetic set, 0 = as usual", 0, 0,
     NULL},
    {SDC_OPT_U64, "crop-padding", 0, AT(crop_padding), "N", "0",
     "crop training images at random after padding with N black pixels, 0 = do not", 0, 1024, NULL},
    {SDC_OPT_FLAG, "flip", 0, AT(flip), NULL, NULL, "flip training images at random", 0, 0, NULL},
    {SDC_OPT_FLAG, "no-shuffle", 0, AT(no_shuffle), NULL, NULL,
     "keep the order of the data set in every epoch", 0, 0, NULL},
    {SDC_OPT_FLAG, "drop-last", 0, AT(drop_last), NULL, NULL,
     "leave out samples that cannot be dealt out equally, do not repeat others", 0, 0, NULL},
    {SDC_OPT_ENUM, "kernels", 0, AT(kernels), "NAME", "onednn", "arithmetic of the layers", 0, 0,
     kernel_names},
    {SDC_OPT_U64, "ranks", 0, AT(ranks), "N", NULL,
     "ranks (1, or the processes that mpirun or srun started)", 1, SDC_MAX_RANKS, NULL},
    {SDC_OPT_ENUM, "comm", 0, AT(comm), "NAME", "auto",
     "what ranks are: mpi is one process each, auto is mpi under a launcher", 0, 0, comm_names},
    {SDC_OPT_U64, "timeout", 0, AT(timeout), "S", "300",
     "seconds after which a process that does not come is lost, with mpi", 1, 86400, NULL},
    {SDC_OPT_U64, "batch", 0, AT(batch), "N", "64", "samples per rank and step", 1, 1048576, NULL},
    {SDC_OPT_ENUM, "optimizer", 0, AT(optimizer), "NAME", "sgd", "as in torch.optim", 0, 0,
     optimizer_names},
    {SDC_OPT_F64, "lr", 0, AT(lr), "X", "0.05", "learning rate", 0, 0, NULL},
    {SDC_OPT_F64, "momentum", 0, AT(momentum), "X", "0.9", "momentum of SGD", 0, 0, NULL},
    {SDC_OPT_F64, "weight-decay", 0, AT(weight_decay), "X", "0", "weight decay", 0, 0, NULL},
    {SDC_OPT_FLAG, "nesterov", 0, AT(nesterov), NULL, NULL, "Nesterov's momentum, of SGD", 0, 0,
     NULL},
    {SDC_OPT_F64, "beta1", 0, AT(beta1), "X", "0.9", "of Adam's first moment", 0, 0, NULL},
    {SDC_OPT_F64, "beta2", 0, AT(beta2), "X", "0.999", "of Adam's second moment", 0, 0, NULL},
    {SDC_OPT_F64, "eps", 0, AT(eps), "X", "1e-8", "added to Adam's denominator", 0, 0, NULL},
    {SDC_OPT_ENUM, "schedule", 0, AT(schedule), "NAME", "constant",
     "of the learning rate, as torch.optim.lr_scheduler", 0, 0, schedule_names},
    {SDC_OPT_ENUM, "schedule-unit", 0, AT(schedule_unit), "UNIT", "epoch",
     "when the schedule takes a step", 0, 0, unit_names},
    {SDC_OPT_U64, "step-size", 0, AT(step_size), "N", "30", "schedule step: units between changes",
     1, INT32_MAX, NULL},
    {SDC_OPT_F64, "gamma", 0, AT(gamma), "X", "0.1", "schedules step, multi-step: factor", 0, 0,
     NULL},
    {SDC_OPT_LIST, "milestone", 0, AT(milestones), "N", NULL,
     "schedule multi-step: change after N units", 0, 0, NULL},
    {SDC_OPT_U64, "t-max", 0, AT(t_max), "N", "10", "schedule cosine: units to the least rate", 1,
     INT32_MAX, NULL},
    {SDC_OPT_F64, "eta-min", 0, AT(eta_min), "X", "0", "schedule cosine: least rate", 0, 0, NULL},
    {SDC_OPT_F64, "factor", 0, AT(factor), "X", "0.1", "schedule plateau: factor", 0, 0, NULL},
    {SDC_OPT_U64, "patience", 0, AT(patience), "N", "10",
     "schedule plateau: units without a better training loss", 0, INT32_MAX, NULL},
    {SDC_OPT_F64, "threshold", 0, AT(threshold), "X", "1e-4",
     "schedule plateau: by how much a loss must be lower, relative", 0, 0, NULL},
    {SDC_OPT_U64, "cooldown", 0, AT(cooldown), "N", "0",
     "schedule plateau: units after a change that do not count", 0, INT32_MAX, NULL},
    {SDC_OPT_F64, "min-lr", 0, AT(min_lr), "X", "0", "schedule plateau: least rate", 0, 0, NULL},
    {SDC_OPT_U64, "warmup", 0, AT(warmup), "N", "0", "training steps of a linear warm-up, 0 = none",
     0, INT32_MAX, NULL},
    {SDC_OPT_F64, "warmup-factor", 0, AT(warmup_factor), "X", "0.3333333333333333",
     "of the rate at the first step of the warm-up", 0, 0, NULL},
    {SDC_OPT_STR, "recipe", 0, AT(recipe), "NAME", NULL,
     "strategy and load rules (single; ddp/after-wrap-all for more ranks)", 0, 0, NULL},
    {SDC_OPT_ENUM, "compression", 0, AT(compression), "NAME", "none",
     "number format in which gradients travel", 0, 0, compression_names},
    {SDC_OPT_U64, "first-bucket-bytes", 0, AT(first_bucket_bytes), "N", "1048576",
     "ddp: cap of the first bucket", 0, 0, NULL},
    {SDC_OPT_U64, "bucket-bytes", 0, AT(bucket_bytes), "N", "26214400",
     "ddp: cap of the other buckets", 0, 0, NULL},
    {SDC_OPT_FLAG, "bucket-view", 0, AT(bucket_view), NULL, NULL,
     "ddp: gradients are views of the buckets, and divided by N", 0, 0, NULL},
    {SDC_OPT_U64, "fusion-bytes", 0, AT(fusion_bytes), "N", "134217728",
     "horovod: fusion threshold, 0 = nothing is fused", 0, 0, NULL},
    {SDC_OPT_ENUM, "fusion", 0, AT(fusion), "NAME", "ready",
     "horovod: fuse all that is ready, or what timed cycles find", 0, 0, fusion_names},
    {SDC_OPT_U64, "fusion-seed", 0, AT(fusion_seed), "N", "0", "horovod: seed of timed cycles", 0,
     0, NULL},
    {SDC_OPT_U64, "seed", 0, AT(seed), "N", "1", "seed of the initial weights", 0, 0, NULL},
    {SDC_OPT_U64, "seed-data", 0, AT(seed_data), "N", "1",
     "seed of the data order and augmentation", 0, 0, NULL},
    {SDC_OPT_U64, "steps", 0, AT(steps), "N", NULL, "steps to train, 0 = only load and evaluate", 0,
     INT64_MAX, NULL},
    {SDC_OPT_U64, "epochs", 0, AT(epochs), "N", NULL,
     "epochs to train, where --steps is not given (1)", 0, INT64_MAX, NULL},
    {SDC_OPT_STR, "load", 0, AT(load), "FILE", NULL, "start from this checkpoint", 0, 0, NULL},
    {SDC_OPT_LIST, "load-rank", 0, AT(load_rank), "R=FILE", NULL, "rank R reads this file instead",
     0, 0, NULL},
    {SDC_OPT_STR, "save", 0, AT(save), "FILE", NULL, "save a checkpoint at the end", 0, 0, NULL},
    {SDC_OPT_ENUM, "format", 0, AT(format), "NAME", "hdf5", "format of the saved checkpoint", 0, 0,
     format_names},
    {SDC_OPT_U64, "eval-samples", 0, AT(eval_samples), "N", "10000",
     "test samples of an evaluation, 0 = none", 0, 0, NULL},
    {SDC_OPT_U64, "eval-every", 0, AT(eval_every), "N", "0",
     "steps between evaluations, 0 = at the end", 0, 0, NULL},
    {SDC_OPT_ENUM, "eval-who", 0, AT(eval_who), "WHO", "rank0", "which replicas are evaluated", 0,
     0, who_names},
    {SDC_OPT_U64, "digest-every", 0, AT(digest_every), "N", "0",
     "steps between state digests, 0 = at the end", 0, 0, NULL},
    {SDC_OPT_LIST, "snapshot", 0, AT(snapshot), "STEP", NULL,
     "every rank writes its state at this step", 0, 0, NULL},
    {SDC_OPT_STR, "output", 'o', AT(output), "DIR", "sdclab-train.out",
     "folder of events.jsonl and snapshots, made if missing", 0, 0, NULL},
    {SDC_OPT_FLAG, "list-samples", 0, AT(list_samples), NULL, NULL,
     "print which rank sees which samples in every step, as JSON lines, do not train", 0, 0, NULL},
    {SDC_OPT_FLAG, "dry-run", 0, AT(dry_run), NULL, NULL, "print the run description, do not train",
     0, 0, NULL},
    {SDC_OPT_FLAG, "json", 0, AT(json), NULL, NULL, "print the result as JSON", 0, 0, NULL},
    {SDC_OPT_FLAG, "quiet", 'q', AT(quiet), NULL, NULL, "print results and errors only", 0, 0,
     NULL},
    {SDC_OPT_FLAG, "version", 0, AT(version), NULL, NULL,
     "show version, kernels and what else can change a computed bit", 0, 0, NULL},
    {SDC_OPT_FLAG, "help", 'h', AT(help), NULL, NULL, "show this help", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

static enum sdc_status set_text(char **member, const char *value, struct sdc_error *err) {
    sdc__free(*member);
    *member = value ? sdc__strdup(value) : NULL;
    return value && !*member ? SDC_NOMEM(err, "a run description") : SDC_OK;
}

/* "3x32x32" */
static bool parse_shape(const char *text, uint32_t size[3]) {
    for (int d = 0; d < 3; d++) {
        char number[16] = {0};
        unsigned long long value;
        size_t len = strcspn(text, "x");
        if (len >= sizeof number || text[len] != (d < 2 ? 'x' : 0))
            return false;
        memcpy(number, text, len);
        if (!sdc__parse_u64(number, &value) || value == 0 || value > INT32_MAX)
            return false;
        size[d] = (uint32_t)value;
        text += len + (d < 2);
    }
    return true;
}

static enum sdc_status set_data(const struct train_options *o, struct sdc_run *run,
                                struct sdc_error *err) {
    uint32_t size[3] = {0};
    if (o->data_shape && !parse_shape(o->data_shape, size))
        return SDC_ERR(err, SDC_USAGE,
                       "--data-shape: found '%.100s', expected CxHxW, such as 3x32x32",
                       o->data_shape);
    run->data.limit = o->data_limit;
    run->data.channels = size[0];
    run->data.height = size[1];
    run->data.width = size[2];
    run->data.classes = (uint32_t)o->data_classes;
    run->data.samples = o->data_samples;
    run->data.test_samples = o->data_test_samples;
    run->data.seed = o->data_seed;
    run->data.crop_padding = (uint32_t)o->crop_padding;
    run->data.flip = o->flip;
    run->data.shuffle = !o->no_shuffle;
    run->data.drop_last = o->drop_last;
    SDC_TRY(set_text(&run->data.name, o->data, err));
    return set_text(&run->data.path, o->data_path, err);
}

static enum sdc_status set_loads(const struct train_options *o, struct sdc_run *run,
                                 struct sdc_error *err) {
    if (!o->load && o->load_rank.n == 0)
        return SDC_OK;
    run->load = sdc__calloc(run->ranks, sizeof *run->load);
    if (!run->load)
        return SDC_NOMEM(err, "a run description");
    run->n_load = run->ranks;
    for (uint32_t r = 0; r < run->ranks; r++)
        SDC_TRY(set_text(&run->load[r].path, o->load, err));
    for (size_t i = 0; i < o->load_rank.n; i++) {
        const char *word = o->load_rank.items[i], *eq = strchr(word, '=');
        char number[16] = {0};
        unsigned long long rank = run->ranks;
        if (eq && (size_t)(eq - word) < sizeof number)
            memcpy(number, word, (size_t)(eq - word));
        if (!sdc__parse_u64(number, &rank) || rank >= run->ranks || !eq[1])
            return SDC_ERR(err, SDC_USAGE,
                           "--load-rank: found '%s', expected R=FILE with R from 0 to %u", word,
                           run->ranks - 1);
        SDC_TRY(set_text(&run->load[rank].path, eq + 1, err));
    }
    /* all files must agree on the step, which the trainer checks */
    for (uint32_t r = 0; r < run->ranks; r++)
        if (run->load[r].path)
            return sdc_train_checkpoint_step(run->load[r].path, &run->from_step, err);
    return SDC_OK;
}

static enum sdc_status set_numbers(const char *option, const struct sdc_opt_list *list,
                                   uint64_t **numbers, size_t *n, struct sdc_error *err) {
    if (list->n == 0)
        return SDC_OK;
    *numbers = sdc__calloc(list->n, sizeof **numbers);
    if (!*numbers)
        return SDC_NOMEM(err, "a run description");
    for (size_t i = 0; i < list->n; i++) {
        unsigned long long number;
        if (!sdc__parse_u64(list->items[i], &number))
            return SDC_ERR(err, SDC_USAGE, "--%s: found '%s', expected a step number", option,
                           list->items[i]);
        (*numbers)[(*n)++] = number;
    }
    return SDC_OK;
}

static enum sdc_status set_schedule(const struct train_options *o, struct sdc_run *run,
                                    struct sdc_error *err) {
    run->schedule_options = (struct sdc_run_schedule){
        .unit = o->schedule_unit == 0 ? SDC_UNIT_EPOCH : SDC_UNIT_STEP,
        .step_size = (uint32_t)o->step_size,
        .gamma = o->gamma,
        .t_max = (uint32_t)o->t_max,
        .eta_min = o->eta_min,
        .factor = o->factor,
        .threshold = o->threshold,
        .min_lr = o->min_lr,
        .patience = (uint32_t)o->patience,
        .cooldown = (uint32_t)o->cooldown,
        .warmup_steps = (uint32_t)o->warmup,
        .warmup_factor = o->warmup_factor,
    };
    SDC_TRY(set_numbers("milestone", &o->milestones, &run->schedule_options.milestones,
                        &run->schedule_options.n_milestones, err));
    return set_text(&run->schedule, schedule_names[o->schedule], err);
}

static enum sdc_status set_steps(const struct train_options *o, struct sdc_trainer *t,
                                 struct sdc_run *run, struct sdc_error *err) {
    bool by_steps = o->steps != TRAIN_NOT_GIVEN, by_epochs = o->epochs != TRAIN_NOT_GIVEN;
    uint64_t n = by_steps ? o->steps : by_epochs ? o->epochs : 1, unit = 1, steps;
    if (by_steps && by_epochs)
        return SDC_ERR(err, SDC_USAGE, "--steps and --epochs exclude each other");
    if (!by_steps)
        SDC_TRY(sdc_trainer_epoch_steps(t, run, &unit, err));
    if (__builtin_mul_overflow(n, unit, &steps) ||
        __builtin_add_overflow(run->from_step, steps, &run->to_step) || run->to_step > INT64_MAX)
        return SDC_ERR(err, SDC_USAGE, "--%s: %llu would go beyond the last possible step, %lld",
                       by_steps ? "steps" : "epochs", (unsigned long long)n, (long long)INT64_MAX);
    return SDC_OK;
}

enum sdc_status train_options_to_run(const struct train_options *o, struct sdc_trainer *t,
                                     struct sdc_run *run, struct sdc_error *err) {
    sdc_run_init(run);
    run->ranks = (uint32_t)o->ranks;
    run->batch = (uint32_t)o->batch;
    run->seed_init = o->seed;
    run->seed_data = o->seed_data;
    SDC_TRY(set_data(o, run, err));
    run->optimizer.lr = o->lr;
    run->optimizer.momentum = o->momentum;
    run->optimizer.weight_decay = o->weight_decay;
    run->averaging = (struct sdc_averaging){
        .compression = (enum sdc_compression)o->compression,
        .first_bucket_bytes = o->first_bucket_bytes,
        .bucket_bytes = o->bucket_bytes,
        .bucket_view = o->bucket_view,
        .fusion_bytes = o->fusion_bytes,
        .fusion = (enum sdc_fusion)o->fusion,
        .fusion_seed = o->fusion_seed,
    };
    run->optimizer.nesterov = o->nesterov;
    run->optimizer.beta1 = o->beta1;
    run->optimizer.beta2 = o->beta2;
    run->optimizer.eps = o->eps;
    SDC_TRY(set_text(&run->optimizer.name, optimizer_names[o->optimizer], err));
    run->eval_samples = o->eval_samples;
    run->eval_every = o->eval_every;
    run->eval_who = o->eval_who == 0 ? SDC_WHO_RANK0 : SDC_WHO_ALL;
    run->digest_every = o->digest_every;
    SDC_TRY(set_text(&run->trial, "command-line", err));
    SDC_TRY(set_text(&run->model, o->model, err));
    SDC_TRY(set_text(&run->kernels, kernel_names[o->kernels], err));
    SDC_TRY(set_text(&run->save.path, o->save, err));
    SDC_TRY(set_text(&run->save.format, format_names[o->format], err));
    SDC_TRY(set_text(&run->output, o->output, err));
    const char *recipe = run->ranks == 1 ? "single" : "ddp/after-wrap-all";
    SDC_TRY(sdc_run_set_recipe(run, o->recipe ? o->recipe : recipe, err));
    SDC_TRY(set_loads(o, run, err));
    SDC_TRY(
        set_numbers("snapshot", &o->snapshot, &run->snapshot_steps, &run->n_snapshot_steps, err));
    SDC_TRY(set_schedule(o, run, err));
    SDC_TRY(set_steps(o, t, run, err));
    return sdc_run_check(run, err);
}
