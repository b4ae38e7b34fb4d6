/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/run.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "contract/fields.h"
#include "io/io.h"

#define SCHEMA "sdclab.run/1"
/* A golden's digests are the only long part: steps x ranks x 40 bytes. */
#define MAX_SIDE    (1u << 24) /* of images; so many pixels */
#define MAX_PADDING 1024u
#define MAX_RUN     (64u * 1024 * 1024)

/* ---- recipes ---- */

#define ALL   SDC_WHO_ALL
#define RANK0 SDC_WHO_RANK0

/* In the order of the protocol's table; a library's first is its convention. */
static const struct sdc_recipe recipes[] = {
    {"ddp/after-wrap-all",
     SDC_STRATEGY_DDP,
     {ALL, ALL, false, false, SDC_ORDER_NONE, true},
     "every rank loads into the wrapped model; nothing is exchanged after the load"},
    {"ddp/before-wrap-all",
     SDC_STRATEGY_DDP,
     {ALL, ALL, true, false, SDC_ORDER_NONE, true},
     "every rank loads, then wrapping sends rank 0's parameters and buffers to all"},
    {"ddp/before-wrap-rank0",
     SDC_STRATEGY_DDP,
     {RANK0, ALL, true, false, SDC_ORDER_NONE, true},
     "rank 0 loads the model and wrapping sends it to all; every rank loads the optimizer"},
    {"horovod/rank0-broadcast",
     SDC_STRATEGY_HOROVOD,
     {RANK0, RANK0, true, true, SDC_ORDER_OPTIMIZER_FIRST, false},
     "rank 0 loads, then broadcasts the optimizer's state and the parameters"},
    {"horovod/example-order",
     SDC_STRATEGY_HOROVOD,
     {RANK0, RANK0, true, true, SDC_ORDER_PARAMETERS_FIRST, false},
     "rank 0 loads, then broadcasts the parameters and the optimizer's state, as in its examples"},
    {"horovod/all-broadcast",
     SDC_STRATEGY_HOROVOD,
     {ALL, ALL, true, true, SDC_ORDER_OPTIMIZER_FIRST, false},
     "every rank loads, then rank 0 broadcasts the optimizer's state and the parameters"},
    {"horovod/all-no-broadcast",
     SDC_STRATEGY_HOROVOD,
     {ALL, ALL, false, false, SDC_ORDER_NONE, false},
     "every rank loads; nothing is exchanged after the load"},
    {"single",
     SDC_STRATEGY_SINGLE,
     {ALL, ALL, false, false, SDC_ORDER_NONE, false},
     "one rank without a strategy"},
};

size_t sdc_recipe_count(void) {
    return sizeof recipes / sizeof recipes[0];
}

const struct sdc_recipe *sdc_recipe_at(size_t i) {
    return i < sdc_recipe_count() ? &recipes[i] : NULL;
}

const struct sdc_recipe *sdc_recipe_find(const char *name) {
    for (size_t i = 0; i < sdc_recipe_count(); i++)
        if (strcmp(recipes[i].name, name) == 0)
            return &recipes[i];
    return NULL;
}

/* ---- tables ---- */

static const char *const strategy_words[] = {"single", "ddp", "horovod"};
static const char *const who_words[] = {"all", "rank0"};
static const char *const order_words[] = {"none", "optimizer-first", "parameters-first"};
static const char *const compression_words[] = {"none", "fp16"};
static const char *const fusion_words[] = {"ready", "timed"};
static const char *const point_words[] = {
#define POINT_WORD(name, text, meaning) [SDC_POINT_##name] = text,
    SDC_PROBE_POINT_MAP(POINT_WORD)};
static const char *const kernels_words[] = {"onednn", "ref"};
static const char *const precision_words[] = {"f32"};
static const char *const optimizer_words[] = {"sgd", "adam", "adamw"};
static const char *const schedule_words[] = {"constant", "step", "multi-step", "cosine", "plateau"};
static const char *const unit_words[] = {"epoch", "step"};
static const char *const format_words[] = {"hdf5", "safetensors"};

static const struct sdc__words strategies = SDC__WORDS(strategy_words);
static const struct sdc__words who = SDC__WORDS(who_words);
static const struct sdc__words orders = SDC__WORDS(order_words);
static const struct sdc__words compressions = SDC__WORDS(compression_words);
static const struct sdc__words fusions = SDC__WORDS(fusion_words);
static const struct sdc__words points = SDC__WORDS(point_words);
static const struct sdc__words kernels = SDC__WORDS(kernels_words);
static const struct sdc__words precisions = SDC__WORDS(precision_words);
static const struct sdc__words optimizers = SDC__WORDS(optimizer_words);
static const struct sdc__words schedules = SDC__WORDS(schedule_words);
static const struct sdc__words units = SDC__WORDS(unit_words);
static const struct sdc__words formats = SDC__WORDS(format_words);

const char *sdc_probe_point_name(enum sdc_probe_point point) {
    return point_words[point];
}

const char *sdc_strategy_name(enum sdc_strategy s) {
    return strategy_words[s];
}

#define AT(member)    .offset = offsetof(struct sdc_run, member)
#define FAULT(member) .offset = offsetof(struct sdc_live_fault, member)

static const struct sdc__field data_fields[] = {
    {"name", SDC__TEXT, AT(data.name)},
    {"path", SDC__TEXT, AT(data.path), .flags = SDC__NULLABLE},
    {"limit", SDC__U64, AT(data.limit)},
    {"channels", SDC__U32, AT(data.channels), .max = MAX_SIDE},
    {"height", SDC__U32, AT(data.height), .max = MAX_SIDE},
    {"width", SDC__U32, AT(data.width), .max = MAX_SIDE},
    {"classes", SDC__U32, AT(data.classes), .max = 65536},
    {"samples", SDC__U64, AT(data.samples)},
    {"test_samples", SDC__U64, AT(data.test_samples)},
    {"seed", SDC__U64, AT(data.seed)},
    {"crop_padding", SDC__U32, AT(data.crop_padding), .max = MAX_PADDING},
    {"flip", SDC__BOOL, AT(data.flip)},
    {"shuffle", SDC__BOOL, AT(data.shuffle)},
    {"drop_last", SDC__BOOL, AT(data.drop_last)},
};
static const struct sdc__fields data_table = SDC__FIELDS(data_fields, struct sdc_run);

static const struct sdc__field optimizer_fields[] = {
    {"name", SDC__TEXT, AT(optimizer.name), .words = &optimizers},
    {"lr", SDC__F64, AT(optimizer.lr)},
    {"momentum", SDC__F64, AT(optimizer.momentum)},
    {"weight_decay", SDC__F64, AT(optimizer.weight_decay)},
    {"nesterov", SDC__BOOL, AT(optimizer.nesterov)},
    {"beta1", SDC__F64, AT(optimizer.beta1)},
    {"beta2", SDC__F64, AT(optimizer.beta2)},
    {"eps", SDC__F64, AT(optimizer.eps)},
};
static const struct sdc__fields optimizer_table = SDC__FIELDS(optimizer_fields, struct sdc_run);

static const struct sdc__field schedule_fields[] = {
    {"unit", SDC__ENUM, AT(schedule_options.unit), .words = &units},
    {"step_size", SDC__U32, AT(schedule_options.step_size), .min = 1, .max = INT32_MAX},
    {"gamma", SDC__F64, AT(schedule_options.gamma)},
    {"milestones", SDC__U64S, AT(schedule_options.milestones), .flags = SDC__ASCENDING,
     .count_offset = offsetof(struct sdc_run, schedule_options.n_milestones)},
    {"t_max", SDC__U32, AT(schedule_options.t_max), .min = 1, .max = INT32_MAX},
    {"eta_min", SDC__F64, AT(schedule_options.eta_min)},
    {"factor", SDC__F64, AT(schedule_options.factor)},
    {"patience", SDC__U32, AT(schedule_options.patience), .max = INT32_MAX},
    {"threshold", SDC__F64, AT(schedule_options.threshold)},
    {"cooldown", SDC__U32, AT(schedule_options.cooldown), .max = INT32_MAX},
    {"min_lr", SDC__F64, AT(schedule_options.min_lr)},
    {"warmup_steps", SDC__U32, AT(schedule_options.warmup_steps), .max = INT32_MAX},
    {"warmup_factor", SDC__F64, AT(schedule_options.warmup_factor)},
};
static const struct sdc__fields schedule_table = SDC__FIELDS(schedule_fields, struct sdc_run);

static const struct sdc__field switches_fields[] = {
    {"read_model", SDC__ENUM, AT(switches.read_model), .words = &who},
    {"read_optimizer", SDC__ENUM, AT(switches.read_optimizer), .words = &who},
    {"broadcast_model", SDC__BOOL, AT(switches.broadcast_model)},
    {"broadcast_optimizer", SDC__BOOL, AT(switches.broadcast_optimizer)},
    {"order", SDC__ENUM, AT(switches.order), .words = &orders},
    {"broadcast_buffers_each_forward", SDC__BOOL, AT(switches.broadcast_buffers_each_forward)},
};
static const struct sdc__fields switches_table = SDC__FIELDS(switches_fields, struct sdc_run);

static const struct sdc__field averaging_fields[] = {
    {"compression", SDC__ENUM, AT(averaging.compression), .words = &compressions},
    {"first_bucket_bytes", SDC__U64, AT(averaging.first_bucket_bytes)},
    {"bucket_bytes", SDC__U64, AT(averaging.bucket_bytes)},
    {"bucket_view", SDC__BOOL, AT(averaging.bucket_view)},
    {"fusion_bytes", SDC__U64, AT(averaging.fusion_bytes)},
    {"fusion", SDC__ENUM, AT(averaging.fusion), .words = &fusions},
    {"fusion_seed", SDC__U64, AT(averaging.fusion_seed)},
};
static const struct sdc__fields averaging_table = SDC__FIELDS(averaging_fields, struct sdc_run);

static const struct sdc__field save_fields[] = {
    {"path", SDC__TEXT, AT(save.path), .flags = SDC__NULLABLE},
    {"format", SDC__TEXT, AT(save.format), .words = &formats},
    {"steps", SDC__U64S, AT(save.steps), .flags = SDC__ASCENDING,
     .count_offset = offsetof(struct sdc_run, save.n_steps)},
};
static const struct sdc__fields save_table = SDC__FIELDS(save_fields, struct sdc_run);

static const struct sdc__field load_fields[] = {
    {"path", SDC__TEXT, .offset = offsetof(struct sdc_run_load, path), .flags = SDC__NULLABLE},
    {"digest", SDC__TEXT, .offset = offsetof(struct sdc_run_load, digest), .flags = SDC__NULLABLE},
};
static const struct sdc__fields load_table = SDC__FIELDS(load_fields, struct sdc_run_load);

static const struct sdc__field fault_fields[] = {
    {"step", SDC__U64, FAULT(step), .flags = SDC__REQUIRED},
    {"rank", SDC__U32, FAULT(rank), .max = SDC_MAX_RANKS - 1},
    {"point", SDC__ENUM, FAULT(point), .words = &points, .flags = SDC__REQUIRED},
    {"seed", SDC__U64, FAULT(seed)},
    {"choice", SDC__CHOICE, FAULT(choice), .flags = SDC__REQUIRED},
};
static const struct sdc__fields fault_table = SDC__FIELDS(fault_fields, struct sdc_live_fault);

static const struct sdc__field golden_fields[] = {
    {"step", SDC__U64, .offset = offsetof(struct sdc_run_golden, step), .flags = SDC__REQUIRED},
    {"state", SDC__TEXTS, .offset = offsetof(struct sdc_run_golden, state),
     .flags = SDC__REQUIRED | SDC__PER_RANK, .count_offset = offsetof(struct sdc_run, ranks)},
};
static const struct sdc__fields golden_table = SDC__FIELDS(golden_fields, struct sdc_run_golden);

/* ranks stands before what is counted by it. */
static const struct sdc__field run_fields[] = {
    {"schema", SDC__CONST, .flags = SDC__REQUIRED, .text = SCHEMA},
    {"trial", SDC__TEXT, AT(trial), .flags = SDC__REQUIRED | SDC__PLAIN},
    {"trainer", SDC__TEXT, AT(trainer)},
    {"model", SDC__TEXT, AT(model)},
    {"kernels", SDC__TEXT, AT(kernels), .words = &kernels},
    {"precision", SDC__TEXT, AT(precision), .words = &precisions},
    {"data", SDC__OBJECT, .sub = &data_table},
    {"optimizer", SDC__OBJECT, .sub = &optimizer_table},
    {"schedule", SDC__TEXT, AT(schedule), .words = &schedules},
    {"schedule_options", SDC__OBJECT, .sub = &schedule_table},
    {"ranks", SDC__U32, AT(ranks), .min = 1, .max = SDC_MAX_RANKS},
    {"batch", SDC__U32, AT(batch), .min = 1, .max = 1u << 20},
    {"seed_init", SDC__U64, AT(seed_init)},
    {"seed_data", SDC__U64, AT(seed_data)},
    {"strategy", SDC__ENUM, AT(strategy), .words = &strategies},
    {"recipe", SDC__TEXT, AT(recipe)},
    {"switches", SDC__OBJECT, .sub = &switches_table},
    {"averaging", SDC__OBJECT, .sub = &averaging_table},
    {"load", SDC__OBJECTS, AT(load), .sub = &load_table,
     .count_offset = offsetof(struct sdc_run, n_load)},
    {"faults", SDC__OBJECTS, AT(faults), .sub = &fault_table,
     .count_offset = offsetof(struct sdc_run, n_faults)},
    {"from_step", SDC__U64, AT(from_step)},
    {"to_step", SDC__U64, AT(to_step), .flags = SDC__REQUIRED},
    {"eval_samples", SDC__U64, AT(eval_samples)},
    {"eval_every", SDC__U64, AT(eval_every)},
    {"eval_who", SDC__ENUM, AT(eval_who), .words = &who},
    {"digest_every", SDC__U64, AT(digest_every)},
    {"snapshot_steps", SDC__U64S, AT(snapshot_steps), .flags = SDC__ASCENDING,
     .count_offset = offsetof(struct sdc_run, n_snapshot_steps)},
    {"golden", SDC__OBJECTS, AT(golden), .sub = &golden_table,
     .count_offset = offsetof(struct sdc_run, n_golden)},
    {"save", SDC__OBJECT, .sub = &save_table},
    {"output", SDC__TEXT, AT(output), .flags = SDC__REQUIRED},
};
static const struct sdc__fields run_table = SDC__FIELDS(run_fields, struct sdc_run);

/* ---- life ---- */

static enum sdc_status init(struct sdc_run *run, struct sdc_error *err) {
    *run = (struct sdc_run){
        .trainer = sdc__strdup("native"),
        .model = sdc__strdup("lenet5"),
        .kernels = sdc__strdup("onednn"),
        .precision = sdc__strdup("f32"),
        .data = {.name = sdc__strdup("fashion-mnist"), .shuffle = true},
        .optimizer = {.name = sdc__strdup("sgd"),
                      .lr = 0.05,
                      .momentum = 0.9,
                      .beta1 = 0.9,
                      .beta2 = 0.999,
                      .eps = 1e-8},
        .schedule = sdc__strdup("constant"),
        .schedule_options = {.step_size = 30,
                             .gamma = 0.1,
                             .t_max = 10,
                             .factor = 0.1,
                             .patience = 10,
                             .threshold = 1e-4,
                             .warmup_factor = 1.0 / 3.0},
        .ranks = 1,
        .batch = 64,
        .seed_init = 1,
        .seed_data = 1,
        .recipe = sdc__strdup("single"),
        .averaging = SDC_AVERAGING_DEFAULT,
        .eval_who = SDC_WHO_RANK0,
        .save = {.format = sdc__strdup("hdf5")},
    };
    if (run->trainer && run->model && run->kernels && run->precision && run->data.name &&
        run->optimizer.name && run->schedule && run->recipe && run->save.format)
        return SDC_OK;
    sdc_run_release(run);
    return SDC_NOMEM(err, "a run description");
}

void sdc_run_init(struct sdc_run *run) {
    /* without memory the texts stay NULL, which every use reports as "is not set" */
    if (init(run, NULL) != SDC_OK)
        return;
}

void sdc_run_release(struct sdc_run *run) {
    sdc__fields_release(&run_table, run);
}

enum sdc_status sdc_run_copy(struct sdc_run *to, const struct sdc_run *from,
                             struct sdc_error *err) {
    return sdc__fields_copy(&run_table, to, from, err);
}

enum sdc_status sdc_run_set_recipe(struct sdc_run *run, const char *name, struct sdc_error *err) {
    const struct sdc_recipe *recipe = sdc_recipe_find(name);
    if (!recipe) {
        struct sdc_buf list = SDC_BUF_INIT;
        for (size_t i = 0; i < sdc_recipe_count(); i++)
            sdc__buf_printf(&list, "%s%s", i ? ", " : "", recipes[i].name);
        enum sdc_status st = SDC_ERR(err, SDC_USAGE, "unknown recipe '%.100s', expected one of %s",
                                     name, list.failed ? "the known ones" : list.data);
        sdc__buf_release(&list);
        return st;
    }
    char *copy = sdc__strdup(name);
    if (!copy)
        return SDC_NOMEM(err, "a recipe");
    sdc__free(run->recipe);
    run->recipe = copy;
    run->strategy = recipe->strategy;
    run->switches = recipe->switches;
    return SDC_OK;
}

/* ---- checks ---- */

#define REFUSE(...) SDC_ERR(err, SDC_USAGE, __VA_ARGS__)

static bool same_switches(const struct sdc_switches *a, const struct sdc_switches *b) {
    return a->read_model == b->read_model && a->read_optimizer == b->read_optimizer &&
           a->broadcast_model == b->broadcast_model &&
           a->broadcast_optimizer == b->broadcast_optimizer && a->order == b->order &&
           a->broadcast_buffers_each_forward == b->broadcast_buffers_each_forward;
}

static enum sdc_status check_recipe(const struct sdc_run *run, const char *what,
                                    struct sdc_error *err) {
    const struct sdc_switches *s = &run->switches;
    const struct sdc_recipe *recipe = sdc_recipe_find(run->recipe);
    if (!recipe && strcmp(run->recipe, "custom") != 0) {
        const char *names[sizeof recipes / sizeof recipes[0]];
        for (size_t i = 0; i < sdc_recipe_count(); i++)
            names[i] = recipes[i].name;
        const char *near = sdc__nearest(run->recipe, names, sdc_recipe_count());
        return REFUSE("%s: recipe: unknown recipe '%.100s'%s%s%s, or 'custom'", what, run->recipe,
                      near ? ", did you mean '" : ", expected a known one", near ? near : "",
                      near ? "'" : "");
    }
    if (recipe && (recipe->strategy != run->strategy || !same_switches(&recipe->switches, s)))
        return REFUSE("%s: switches: differ from those of recipe '%s', which is then 'custom'",
                      what, run->recipe);
    if (run->strategy == SDC_STRATEGY_SINGLE && run->ranks != 1)
        return REFUSE("%s: ranks: strategy single has one rank, found %u", what,
                      (unsigned)run->ranks);
    bool both = s->broadcast_model && s->broadcast_optimizer;
    if (both != (s->order != SDC_ORDER_NONE))
        return REFUSE("%s: switches.order: expected %s, found '%s'", what,
                      both ? "an order for the two broadcasts" : "'none' without two broadcasts",
                      order_words[s->order]);
    if (run->ranks > 1 && s->read_model == RANK0 && !s->broadcast_model)
        return REFUSE("%s: switches: rank 0 alone reads the model, and nothing sends it on", what);
    if (run->ranks > 1 && s->read_optimizer == RANK0 && !s->broadcast_optimizer)
        return REFUSE("%s: switches: rank 0 alone reads the optimizer, and nothing sends it on",
                      what);
    return SDC_OK;
}

/* A key of another strategy would be without effect. */
static enum sdc_status check_averaging(const struct sdc_run *run, const char *what,
                                       struct sdc_error *err) {
    static const struct sdc_averaging def = SDC_AVERAGING_DEFAULT;
    const struct sdc_averaging *a = &run->averaging;
    const struct {
        const char *key;
        bool set;
        enum sdc_strategy of;
    } keys[] = {
        {"first_bucket_bytes", a->first_bucket_bytes != def.first_bucket_bytes, SDC_STRATEGY_DDP},
        {"bucket_bytes", a->bucket_bytes != def.bucket_bytes, SDC_STRATEGY_DDP},
        {"bucket_view", a->bucket_view, SDC_STRATEGY_DDP},
        {"fusion_bytes", a->fusion_bytes != def.fusion_bytes, SDC_STRATEGY_HOROVOD},
        {"fusion", a->fusion != def.fusion, SDC_STRATEGY_HOROVOD},
        {"fusion_seed", a->fusion_seed != def.fusion_seed, SDC_STRATEGY_HOROVOD},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].set && run->strategy != keys[i].of)
            return REFUSE("%s: averaging.%s: belongs to strategy %s, found strategy %s", what,
                          keys[i].key, strategy_words[keys[i].of], strategy_words[run->strategy]);
    if (a->compression != def.compression && run->strategy == SDC_STRATEGY_SINGLE)
        return REFUSE("%s: averaging.compression: strategy single averages nothing", what);
    return SDC_OK;
}

static enum sdc_status check_digest(const char *text, const char *what, const char *key, size_t i,
                                    struct sdc_error *err) {
    struct sdc_state_digest digest;
    if (!sdc_state_digest_parse(text, &digest))
        return REFUSE("%s: %s[%zu]: expected a digest of 32 hex digits, found '%.40s'", what, key,
                      i, text);
    return SDC_OK;
}

static enum sdc_status check_load(const struct sdc_run *run, const char *what,
                                  struct sdc_error *err) {
    if (run->n_load != 0 && run->n_load != run->ranks)
        return REFUSE("%s: load: %zu items, expected none or one for each of the %u ranks", what,
                      run->n_load, (unsigned)run->ranks);
    if (run->n_load == 0 && run->from_step != 0)
        return REFUSE("%s: from_step: %llu, but no rank loads a checkpoint", what,
                      (unsigned long long)run->from_step);
    for (size_t i = 0; i < run->n_load; i++) {
        const struct sdc_run_load *load = &run->load[i];
        bool reads =
            i == 0 || run->switches.read_model == ALL || run->switches.read_optimizer == ALL;
        if (reads && !load->path)
            return REFUSE("%s: load[%zu].path: this rank reads, but there is no file", what, i);
        if (load->digest)
            SDC_TRY(check_digest(load->digest, what, "load", i, err));
    }
    return SDC_OK;
}

static enum sdc_status check_faults(const struct sdc_run *run, const char *what,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < run->n_faults; i++) {
        const struct sdc_live_fault *f = &run->faults[i];
        struct sdc_error inner;
        if (f->step <= run->from_step || f->step > run->to_step)
            return REFUSE("%s: faults[%zu].step: %llu is not among the steps %llu to %llu", what, i,
                          (unsigned long long)f->step, (unsigned long long)run->from_step + 1,
                          (unsigned long long)run->to_step);
        if (f->rank >= run->ranks)
            return REFUSE("%s: faults[%zu].rank: %u, of %u ranks", what, i, (unsigned)f->rank,
                          (unsigned)run->ranks);
        if (f->point == SDC_POINT_BUCKET && run->strategy == SDC_STRATEGY_SINGLE)
            return REFUSE("%s: faults[%zu].point: strategy single has no bucket", what, i);
        if (f->choice.not_result)
            return REFUSE("%s: faults[%zu].choice.not_result: live values are not known when the "
                          "sites are drawn",
                          what, i);
        if (sdc_choice_check(&f->choice, &inner) != SDC_OK)
            return REFUSE("%s: faults[%zu].choice: %s", what, i, inner.message);
    }
    return SDC_OK;
}

static enum sdc_status check_in_run(const struct sdc_run *run, const char *what, const char *key,
                                    uint64_t step, struct sdc_error *err) {
    if (step < run->from_step || step > run->to_step)
        return REFUSE("%s: %s: step %llu is outside the run, which goes from %llu to %llu", what,
                      key, (unsigned long long)step, (unsigned long long)run->from_step,
                      (unsigned long long)run->to_step);
    return SDC_OK;
}

static enum sdc_status check_steps(const struct sdc_run *run, const char *what,
                                   struct sdc_error *err) {
    if (run->to_step < run->from_step)
        return REFUSE("%s: to_step: %llu is before from_step, %llu", what,
                      (unsigned long long)run->to_step, (unsigned long long)run->from_step);
    for (size_t i = 0; i < run->n_snapshot_steps; i++)
        SDC_TRY(check_in_run(run, what, "snapshot_steps", run->snapshot_steps[i], err));
    for (size_t i = 0; i < run->save.n_steps; i++)
        SDC_TRY(check_in_run(run, what, "save.steps", run->save.steps[i], err));
    for (size_t i = 0; i < run->n_golden; i++) {
        const struct sdc_run_golden *g = &run->golden[i];
        SDC_TRY(check_in_run(run, what, "golden", g->step, err));
        if (i && g->step <= run->golden[i - 1].step)
            return REFUSE("%s: golden[%zu].step: is not above the one before it", what, i);
        for (size_t r = 0; r < run->ranks; r++)
            SDC_TRY(check_digest(g->state[r], what, "golden", i, err));
    }
    if (run->save.n_steps && !run->save.path)
        return REFUSE("%s: save.steps: steps to save at, but no save.path", what);
    if (run->save.n_steps > 1 && !strstr(run->save.path, "{step}"))
        return REFUSE("%s: save.path: '%.200s' lacks {step}, which several save.steps need", what,
                      run->save.path);
    return SDC_OK;
}

/* What torch.optim and its schedulers refuse too. */
static enum sdc_status check_optimizer(const struct sdc_run *run, const char *what,
                                       struct sdc_error *err) {
    if (run->optimizer.nesterov && run->optimizer.momentum == 0)
        return REFUSE("%s: optimizer.nesterov: needs a momentum, found 0", what);
    if (!(run->optimizer.beta1 < 1) || !(run->optimizer.beta2 < 1))
        return REFUSE("%s: optimizer.%s: found %g, expected less than 1", what,
                      run->optimizer.beta1 < 1 ? "beta2" : "beta1",
                      run->optimizer.beta1 < 1 ? run->optimizer.beta2 : run->optimizer.beta1);
    const struct sdc_run_schedule *s = &run->schedule_options;
    if (!(s->factor < 1))
        return REFUSE("%s: schedule_options.factor: found %g, expected less than 1", what,
                      s->factor);
    if (!(s->warmup_factor > 0) || !(s->warmup_factor <= 1))
        return REFUSE("%s: schedule_options.warmup_factor: found %g, expected above 0, at most 1",
                      what, s->warmup_factor);
    return SDC_OK;
}

static enum sdc_status check(const struct sdc_run *run, const char *what, struct sdc_error *err) {
    SDC_TRY(sdc__fields_check(&run_table, what, run, err));
    SDC_TRY(check_optimizer(run, what, err));
    SDC_TRY(check_recipe(run, what, err));
    SDC_TRY(check_averaging(run, what, err));
    SDC_TRY(check_load(run, what, err));
    SDC_TRY(check_steps(run, what, err));
    return check_faults(run, what, err);
}

enum sdc_status sdc_run_check(const struct sdc_run *run, struct sdc_error *err) {
    return check(run, "run description", err);
}

/* ---- JSON ---- */

static enum sdc_status from_tree(const struct sdc_json *root, const char *what, struct sdc_run *run,
                                 struct sdc_error *err) {
    /* a recipe alone sets strategy and switches; what is written beside it goes over them */
    const struct sdc_json *recipe =
        sdc__json_type(root) == SDC_JSON_OBJECT ? sdc__json_get(root, "recipe") : NULL;
    const char *name;
    if (recipe && sdc__json_as_str(recipe, "", &name, NULL) == SDC_OK && sdc_recipe_find(name))
        SDC_TRY(sdc_run_set_recipe(run, name, err));
    SDC_TRY(sdc__fields_read(&run_table, root, what, run, err));
    enum sdc_status st = check(run, what, err);
    if (st == SDC_USAGE) { /* it is a text that is wrong, not a call */
        st = SDC_INVALID;
        if (err)
            err->status = st;
    }
    return st;
}

enum sdc_status sdc_run_from_json(const char *json, size_t len, const char *what,
                                  struct sdc_run *run, struct sdc_error *err) {
    struct sdc_json *root;
    struct sdc_run read;
    SDC_TRY(sdc__json_parse(json, len, what, &root, err));
    enum sdc_status st = init(&read, err);
    if (st == SDC_OK)
        st = from_tree(root, what, &read, err);
    sdc__json_free(root);
    if (st == SDC_OK)
        *run = read;
    else
        sdc_run_release(&read);
    return st;
}

enum sdc_status sdc_run_to_json(const struct sdc_run *run, char **json, struct sdc_error *err) {
    SDC_TRY(sdc_run_check(run, err));
    return sdc__fields_line(&run_table, "run description", run, json, err);
}

enum sdc_status sdc_run_read(const char *path, struct sdc_run *run, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT, what = SDC_BUF_INIT;
    enum sdc_status st = sdc__read_whole(path, MAX_RUN, &text, err);
    sdc__buf_printf(&what, "run description %s", path);
    if (st == SDC_OK)
        st = what.failed
                 ? SDC_NOMEM(err, path)
                 : sdc_run_from_json(text.data ? text.data : "", text.len, what.data, run, err);
    sdc__buf_release(&text);
    sdc__buf_release(&what);
    return st;
}

enum sdc_status sdc_run_write(const char *path, const struct sdc_run *run, struct sdc_error *err) {
    char *json;
    SDC_TRY(sdc_run_to_json(run, &json, err));
    enum sdc_status st = sdc__write_whole(path, json, strlen(json), false, err);
    sdc__free(json);
    return st;
}
