/* SPDX-License-Identifier: Apache-2.0 */
#include "train_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "io/io.h"
#include "sdc/ckpt.h"

void kit_set(char **text, const char *value) {
    sdc__free(*text);
    *text = sdc__strdup(value);
    assert_non_null(*text);
}

void kit_run(struct sdc_run *run, const char *name, const char *recipe, uint32_t ranks,
             uint64_t from, uint64_t to) {
    struct sdc_error err;
    char folder[256];
    sdc_run_init(run);
    kit_set(&run->trial, name);
    kit_set(&run->model, "mlp");
    kit_set(&run->kernels, "ref");
    kit_set(&run->data.name, "synthetic");
    run->ranks = ranks;
    run->batch = 8;
    run->from_step = from;
    run->to_step = to;
    run->digest_every = 1;
    assert_ok(sdc_run_set_recipe(run, recipe, &err));
    snprintf(folder, sizeof folder, "%s.out", name);
    assert_ok(sdc__remove_tree(folder, &err));
    assert_ok(sdc__make_dirs(folder, &err));
    kit_set(&run->output, folder);
}

void kit_load(struct sdc_run *run, const char *path) {
    run->load = sdc__calloc(run->ranks, sizeof *run->load);
    run->n_load = run->ranks;
    for (uint32_t r = 0; r < run->ranks; r++)
        kit_set(&run->load[r].path, path);
}

void kit_load_rank(struct sdc_run *run, unsigned rank, const char *path) {
    kit_set(&run->load[rank].path, path);
}

void kit_snapshot(struct sdc_run *run, uint64_t step) {
    run->snapshot_steps =
        sdc__realloc(run->snapshot_steps, run->n_snapshot_steps + 1, sizeof(uint64_t));
    run->snapshot_steps[run->n_snapshot_steps++] = step;
}

void kit_save(struct sdc_run *run, const char *path, const char *format) {
    kit_set(&run->save.path, path);
    kit_set(&run->save.format, format);
}

void kit_train(struct sdc_trainer *t, const struct sdc_run *run, enum sdc_status want,
               struct sdc_event_list *events, struct sdc_error *err) {
    struct sdc_train_result result;
    struct sdc_error reading;
    char path[300];
    enum sdc_status st = sdc_trainer_run(t, run, NULL, &result, err);
    if (st != want)
        fail_msg("run %s: got %s (%s), expected %s", run->trial, sdc_status_name(st),
                 st == SDC_OK ? "" : err->message, sdc_status_name(want));
    snprintf(path, sizeof path, "%s/events.jsonl", run->output);
    if (sdc_events_read(path, events, &reading) != SDC_OK)
        fail_msg("%s", reading.message);
    assert_true(events->complete);
    assert_int_equal(events->items[events->n - 1].kind, SDC_EVENT_END);
    assert_int_equal(events->items[events->n - 1].reason, result.reason);
}

const struct sdc_event *kit_last(const struct sdc_event_list *events, enum sdc_event_kind kind) {
    for (size_t i = events->n; i-- > 0;)
        if (events->items[i].kind == kind)
            return &events->items[i];
    fail_msg("no event of kind %s", sdc_event_kind_name(kind));
    return NULL;
}

void kit_checkpoint(struct sdc_trainer *t, const char *path, const char *model, uint64_t steps,
                    double momentum, double weight_decay) {
    struct sdc_run run;
    struct sdc_event_list events;
    struct sdc_error err;
    kit_run(&run, "checkpoint", "single", 1, 0, steps);
    kit_set(&run.model, model);
    run.optimizer.momentum = momentum;
    run.optimizer.weight_decay = weight_decay;
    kit_save(&run, path, "safetensors");
    kit_train(t, &run, SDC_OK, &events, &err);
    sdc_events_release(&events);
    sdc_run_release(&run);
}

void kit_alter(const char *from, const char *to, const char *tensor, uint64_t elem, float value) {
    struct sdc_error err;
    struct sdc_ckpt *ckpt;
    struct sdc_ckpt_writer *writer;
    bool found = false;
    assert_ok(sdc_ckpt_open(from, NULL, &ckpt, &err));
    assert_ok(sdc_ckpt_writer_new(to, "safetensors", true, &writer, &err));
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        unsigned char *data = sdc__calloc((size_t)t->n_elems, 8);
        assert_ok(sdc_ckpt_read(ckpt, i, 0, t->n_elems, data, &err));
        if (strcmp(t->name, tensor) == 0) {
            assert_true(elem < t->n_elems && t->dtype == SDC_DTYPE_F32);
            memcpy(data + 4 * elem, &value, sizeof value);
            found = true;
        }
        assert_ok(sdc_ckpt_writer_put(writer, t, data, &err));
        sdc__free(data);
    }
    assert_true(found);
    assert_ok(sdc_ckpt_writer_commit(writer, false, &err));
    sdc_ckpt_close(ckpt);
}

uint64_t kit_differing(const char *a, const char *b, unsigned part) {
    struct sdc_error err;
    struct sdc_ckpt *x, *y;
    uint64_t differing = 0;
    assert_ok(sdc_ckpt_open(a, NULL, &x, &err));
    assert_ok(sdc_ckpt_open(b, NULL, &y, &err));
    for (size_t i = 0; i < sdc_ckpt_count(x); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(x, i);
        size_t k;
        if (t->part != (part ? SDC_PART_OPTIMIZER : SDC_PART_MODEL))
            continue;
        assert_true(sdc_ckpt_find(y, t->name, &k));
        const size_t size = sdc_dtype_bits(t->dtype) / 8; /* 8 for the counters */
        unsigned char *u = sdc__calloc((size_t)t->n_elems, size);
        unsigned char *v = sdc__calloc((size_t)t->n_elems, size);
        assert_true(u && v);
        assert_ok(sdc_ckpt_read(x, i, 0, t->n_elems, u, &err));
        assert_ok(sdc_ckpt_read(y, k, 0, t->n_elems, v, &err));
        for (uint64_t e = 0; e < t->n_elems; e++)
            differing += memcmp(u + e * size, v + e * size, size) != 0;
        sdc__free(u);
        sdc__free(v);
    }
    sdc_ckpt_close(x);
    sdc_ckpt_close(y);
    return differing;
}

const char *kit_snapshot_path(const struct sdc_run *run, uint64_t step, unsigned rank) {
    static char paths[4][300];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/snapshot-%llu-rank-%u.safetensors", run->output,
             (unsigned long long)step, rank);
    return path;
}

bool kit_same_digests(const struct sdc_rank_digests *a, const struct sdc_rank_digests *b) {
    return a->valid && b->valid && memcmp(&a->parameters, &b->parameters, 16) == 0 &&
           memcmp(&a->optimizer, &b->optimizer, 16) == 0 && memcmp(&a->loop, &b->loop, 16) == 0 &&
           memcmp(&a->buffers, &b->buffers, 16) == 0 && memcmp(&a->state, &b->state, 16) == 0;
}
