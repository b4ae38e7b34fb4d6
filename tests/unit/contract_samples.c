/* SPDX-License-Identifier: Apache-2.0 */
#include "contract_samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"

static void *zeroed(size_t n, size_t size) {
    void *p = sdc__calloc(n, size);
    if (!p)
        exit(9);
    return p;
}

char *sample_text(const char *s) {
    char *copy = sdc__strdup(s);
    if (!copy)
        exit(9);
    return copy;
}

static void set(char **to, const char *s) {
    sdc__free(*to);
    *to = sample_text(s);
}

static struct sdc_state_digest digest(unsigned n) {
    struct sdc_state_digest d;
    for (size_t i = 0; i < sizeof d.bytes; i++)
        d.bytes[i] = (unsigned char)(n * 16 + i);
    return d;
}

static char *digest_text(unsigned n) {
    char text[SDC_STATE_DIGEST_TEXT];
    struct sdc_state_digest d = digest(n);
    sdc_state_digest_text(&d, text);
    return sample_text(text);
}

void sample_run(struct sdc_run *run) {
    struct sdc_error err;
    sdc_run_init(run);
    run->trial = sample_text("c0/\"b\\1\" \xC3\xA9 trial 3");
    set(&run->model, "mlp");
    set(&run->kernels, "ref");
    set(&run->data.name, "synthetic");
    run->data.path = sample_text("/data/with space");
    run->data.limit = 1000;
    run->data.channels = 3;
    run->data.height = 32;
    run->data.width = 31;
    run->data.classes = 100;
    run->data.samples = 4096;
    run->data.test_samples = 100;
    run->data.seed = 7;
    run->data.crop_padding = 4;
    run->data.flip = true;
    run->data.shuffle = false;
    run->data.drop_last = true;
    run->optimizer.lr = 0.1 + 0.2; /* 0.30000000000000004 */
    run->optimizer.momentum = 1.0 / 3.0;
    run->optimizer.nesterov = true;
    run->optimizer.beta1 = 0.8;
    run->optimizer.beta2 = 1.0 / 3.0;
    run->optimizer.eps = 1e-7;
    run->optimizer.weight_decay = 5e-324;
    set(&run->schedule, "multi-step");
    run->schedule_options.unit = SDC_UNIT_STEP;
    run->schedule_options.step_size = 7;
    run->schedule_options.gamma = 0.3;
    run->schedule_options.n_milestones = 2;
    run->schedule_options.milestones = zeroed(2, sizeof *run->schedule_options.milestones);
    run->schedule_options.milestones[0] = 3;
    run->schedule_options.milestones[1] = 9;
    run->schedule_options.t_max = 90;
    run->schedule_options.eta_min = 1e-6;
    run->schedule_options.factor = 0.9;
    run->schedule_options.patience = 2;
    run->schedule_options.threshold = 0.01;
    run->schedule_options.cooldown = 1;
    run->schedule_options.min_lr = 1e-5;
    run->schedule_options.warmup_steps = 100;
    run->schedule_options.warmup_factor = 0.001;
    if (sdc_run_set_recipe(run, "horovod/example-order", &err) != SDC_OK)
        exit(9);
    run->ranks = 2;
    run->batch = 32;
    run->seed_init = UINT64_MAX;
    run->seed_data = (uint64_t)1 << 63;
    run->n_load = 2;
    run->load = zeroed(2, sizeof *run->load);
    run->load[0].path = sample_text("golden/step300.h5");
    run->load[0].digest = digest_text(1);
    run->from_step = 300;
    run->to_step = 340;
    run->n_faults = 2;
    run->faults = zeroed(2, sizeof *run->faults);
    for (unsigned i = 0; i < 2; i++) {
        struct sdc_live_fault *f = &run->faults[i];
        sdc_choice_init(&f->choice);
        f->step = 340 - 39 * i;
        f->rank = i;
        f->point = i ? SDC_POINT_UPDATE : SDC_POINT_LOCAL_GRADIENT;
        f->seed = UINT64_MAX - i;
        if (sdc_choice_set(&f->choice, i ? "at" : "bits",
                           i ? "model/fc1.bias[3]@lsb:30" : "exponent", &err) != SDC_OK)
            exit(9);
    }
    run->eval_samples = 2000;
    run->eval_every = 20;
    run->eval_who = SDC_WHO_ALL;
    run->digest_every = 1;
    run->n_snapshot_steps = 2;
    run->snapshot_steps = zeroed(2, sizeof *run->snapshot_steps);
    run->snapshot_steps[0] = 301;
    run->snapshot_steps[1] = 340;
    run->n_golden = 2;
    run->golden = zeroed(2, sizeof *run->golden);
    for (unsigned i = 0; i < 2; i++) {
        run->golden[i].step = 301 + i;
        run->golden[i].state = zeroed(2, sizeof *run->golden[i].state);
        for (unsigned r = 0; r < 2; r++)
            run->golden[i].state[r] = digest_text(2 + 2 * i + r);
    }
    run->save.path = sample_text("out/{step}.safetensors");
    set(&run->save.format, "safetensors");
    run->save.n_steps = 2;
    run->save.steps = zeroed(2, sizeof *run->save.steps);
    run->save.steps[0] = 320;
    run->save.steps[1] = 340;
    run->output = sample_text("trials/3");
}

static struct sdc_rank_digests digests(unsigned n) {
    return (struct sdc_rank_digests){true,          digest(n),     digest(n + 1),
                                     digest(n + 2), digest(n + 3), digest(n + 4)};
}

static struct sdc_key_value *pairs(size_t n, const char *const keys[], const char *const values[]) {
    struct sdc_key_value *p = zeroed(n, sizeof *p);
    for (size_t i = 0; i < n; i++) {
        p[i].key = sample_text(keys[i]);
        p[i].value = sample_text(values[i]);
    }
    return p;
}

static void sample_start(struct sdc_event *e) {
    static const char *const keys[] = {"cpu", "onednn", "\xCF\x80"}, *const values[] = {
                                                                         "model 17", "2.6.3", ""};
    e->trial = sample_text("t 1");
    e->trainer = sample_text("native 0.1.0");
    e->n_environment = 3;
    e->environment = pairs(3, keys, values);
    e->start = zeroed(2, sizeof *e->start);
    e->start[0].file = sample_text("a.h5");
    e->start[0].read_model = e->start[0].read_optimizer = true;
    e->start[0].loaded = digests(1);
    e->start[0].started = digests(2);
    e->start[1].started = digests(3);
}

static void sample_step(struct sdc_event *e) {
    uint32_t signalling = 0x7F800001;
    e->loss = zeroed(2, sizeof *e->loss);
    e->loss[0] = 2.3f;
    memcpy(&e->loss[1], &signalling, sizeof signalling);
    e->gradient_norm = -(double)INFINITY;
    e->nonfinite_gradients = zeroed(2, sizeof *e->nonfinite_gradients);
    e->nonfinite_gradients[1] = 61706;
    e->nonfinite_parameters = zeroed(2, sizeof *e->nonfinite_parameters);
    e->nonfinite_parameters[0] = UINT64_MAX;
    e->digests = zeroed(2, sizeof *e->digests);
    e->digests[1] = digests(4);
}

void sample_event(enum sdc_event_kind kind, struct sdc_event *e) {
    sdc_event_init(e, kind);
    e->step = 301;
    e->elapsed = 0.125;
    if (kind <= SDC_EVENT_EVAL)
        e->ranks = 2;
    switch (kind) {
    case SDC_EVENT_START:
        sample_start(e);
        break;
    case SDC_EVENT_STEP:
        sample_step(e);
        break;
    case SDC_EVENT_EVAL:
        e->samples = 2000;
        e->eval_loss = zeroed(2, sizeof *e->eval_loss);
        e->eval_loss[0] = 0.1;
        e->eval_loss[1] = -0.0;
        e->eval_correct = zeroed(2, sizeof *e->eval_correct);
        e->eval_correct[0] = 1760;
        break;
    case SDC_EVENT_CHECKPOINT:
    case SDC_EVENT_SNAPSHOT:
        e->n_paths = kind == SDC_EVENT_SNAPSHOT ? 2 : 1;
        e->paths = zeroed(e->n_paths, sizeof *e->paths);
        for (size_t i = 0; i < e->n_paths; i++)
            e->paths[i] = sample_text(i ? "b" : "a\nb.h5");
        break;
    case SDC_EVENT_FAULT:
        e->fault = 1;
        e->rank = 1;
        e->point = SDC_POINT_BUCKET;
        e->changed = 9;
        e->n_changes = 2;
        e->changes = zeroed(2, sizeof *e->changes);
        for (size_t i = 0; i < 2; i++)
            e->changes[i] = (struct sdc_event_change){sample_text("model/fc1.bias"), 7 * i,
                                                      0x3f800000, UINT64_MAX};
        break;
    default:
        e->reason = SDC_END_FAILED;
        e->message = sample_text("a \"quoted\"\ttext\n");
    }
}

void sample_message(enum sdc_worker_kind kind, struct sdc_worker_message *m) {
    static const char *const keys[] = {"onednn", "sdclab"}, *const values[] = {"2.6.3", "0.1.0"};
    *m = (struct sdc_worker_message){.kind = kind};
    if (kind == SDC_WORKER_HELLO) {
        m->token = sample_text("0123abcd");
        m->trainer = sample_text("native");
        m->platform = sample_text("x86_64 avx2");
        m->versions = pairs(2, keys, values);
        m->n_versions = 2;
    }
    if (kind == SDC_WORKER_RUN || kind == SDC_WORKER_DONE)
        m->trial = sample_text("t 1");
    if (kind == SDC_WORKER_RUN)
        m->path = sample_text("trials/1/run.json");
    if (kind == SDC_WORKER_DONE) {
        m->status = SDC_PEER;
        m->message = sample_text("rank 1 ended");
    }
}

void sample_header(struct sdc_record_header *h) {
    struct sdc_error err;
    *h = (struct sdc_record_header){
        .tool = sample_text("sdclab 0.1.0"),
        .seed = UINT64_MAX,
        .support_bits = (uint64_t)1 << 40,
        .removed_bits = 7,
        .planned = 5,
        .elements = 4,
        .source = sample_text("in put.h5"),
        .file = sample_text("out \"put\".h5"),
        .format = sample_text("hdf5"),
        .has_identity = true,
        .identity = {.size = 1234567, .head = 0x0123456789ABCDEF, .tail = 0xFEDCBA9876543210},
        .synced = true,
        .origin = sample_text("other.h5.sdc.jsonl"),
    };
    h->identity.has_whole = true;
    memcpy(h->identity.whole, "0123456789abcdef", 16);
    sdc_choice_init(&h->choice);
    if (sdc_choice_set(&h->choice, "flips", "5", &err) != SDC_OK ||
        sdc_choice_set(&h->choice, "tensors", "model/\xC3\xA9*", &err) != SDC_OK ||
        sdc_choice_set(&h->choice, "role", "weight,bias", &err) != SDC_OK)
        exit(9);
}

struct sdc_record_change sample_change(size_t i) {
    static char w[] = "model/conv1.weight", step[] = "loop/step", odd[] = "odd \"[0]@name\"";
    static char at[] = "[2,0,4]", scalar[] = "[]";
    static uint64_t shape[] = {3, 1, 6};
    static const struct sdc_record_change changes[SAMPLE_CHANGES] = {
#define ROW(t, d, p, r, e, x, o, big, operator, b, was, is)                                        \
    .tensor = t, .dtype = SDC_DTYPE_##d, .part = SDC_PART_##p, .role = SDC_ROLE_##r, .elem = e,    \
    .index = x, .offset = o, .big_endian = big, .op = SDC_OP_##operator, .bits = b,                \
    .old_raw = was, .new_raw = is
        /* 0.1f with the top exponent bit flipped is 3.4e37 */
        {ROW(w, F32, MODEL, WEIGHT, 14, at, 4096, false, FLIP, 0x40000000, 0x3DCCCCCD, 0x7DCCCCCD)},
        {ROW(w, F16, MODEL, WEIGHT, 14, at, 4098, true, FLIP, 0x8001, 0x3C00, 0xBC01),
         .shape = shape, .n_shape = 3},
        {ROW(odd, F64, NONE, OTHER, 0, scalar, 1ull << 40, false, VALUE, 0, 0x3FF0000000000000,
             0x7FF8000000000000)},
        {ROW(step, I64, LOOP, COUNTER, 0, scalar, 8, true, FLIP, 1ull << 63, 300, 300 | 1ull << 63),
         .shape = shape, .n_shape = 0},
        {ROW(step, U64, LOOP, RNG, 0, scalar, 16, false, FLIP, 1, UINT64_MAX, UINT64_MAX - 1)},
        {ROW(w, F32, MODEL, WEIGHT, 14, at, 4096, false, SET0, 0x3, 0x3DCCCCCD, 0x3DCCCCCC),
         .weight = 12.5, .shape = shape, .n_shape = 3},
        {ROW(w, F8_E4M3, MODEL, WEIGHT, 14, at, 4096, false, SET1, 0x81, 0x38, 0xB9)},
        {ROW(w, F32, MODEL, WEIGHT, 14, at, 4096, false, BURST, 0xc0000000, 0x3DCCCCCD,
             0xFDCCCCCD)},
        {ROW(w, F32, MODEL, WEIGHT, 14, at, 4096, false, SWAP, 0, 0x3DCCCCCD, 0x7F800001),
         .other = 3},
#undef ROW
    };
    return changes[i];
}
