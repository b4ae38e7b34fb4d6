/* SPDX-License-Identifier: Apache-2.0
 *
 * Run descriptions, events and worker messages: written and read back, refused where they are
 * wrong, without a leak where memory or text ends early. Their schemas are compared with the
 * readers in contract_schemas.py.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/str.h"
#include "contract_samples.h"
#include "sdc/choice.h"
#include "test.h"

static struct sdc_error err;

/* ---- recipes ---- */

/* The protocol's table, line by line: who reads the model, the optimizer; parameters and buffers
 * sent after the load, optimizer sent; order; buffers before each forward. */
static void recipes_are_those_of_the_protocol(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int strategy;
        const char *read_model, *read_optimizer;
        bool model, optimizer;
        int order;
        bool buffers;
    } rows[] = {
        {"ddp/after-wrap-all", SDC_STRATEGY_DDP, "all", "all", false, false, SDC_ORDER_NONE, true},
        {"ddp/before-wrap-all", SDC_STRATEGY_DDP, "all", "all", true, false, SDC_ORDER_NONE, true},
        {"ddp/before-wrap-rank0", SDC_STRATEGY_DDP, "rank 0", "all", true, false, SDC_ORDER_NONE,
         true},
        {"horovod/rank0-broadcast", SDC_STRATEGY_HOROVOD, "rank 0", "rank 0", true, true,
         SDC_ORDER_OPTIMIZER_FIRST, false},
        {"horovod/example-order", SDC_STRATEGY_HOROVOD, "rank 0", "rank 0", true, true,
         SDC_ORDER_PARAMETERS_FIRST, false},
        {"horovod/all-broadcast", SDC_STRATEGY_HOROVOD, "all", "all", true, true,
         SDC_ORDER_OPTIMIZER_FIRST, false},
        {"horovod/all-no-broadcast", SDC_STRATEGY_HOROVOD, "all", "all", false, false,
         SDC_ORDER_NONE, false},
        {"single", SDC_STRATEGY_SINGLE, "all", "all", false, false, SDC_ORDER_NONE, false},
    };
    assert_int_equal(sdc_recipe_count(), sizeof rows / sizeof rows[0]);
    for (size_t i = 0; i < sdc_recipe_count(); i++) {
        const struct sdc_recipe *r = sdc_recipe_at(i);
        assert_string_equal(r->name, rows[i].name);
        assert_ptr_equal(sdc_recipe_find(rows[i].name), r);
        assert_int_equal(r->strategy, rows[i].strategy);
        const struct sdc_switches *s = &r->switches;
        assert_int_equal(s->read_model,
                         strcmp(rows[i].read_model, "all") ? SDC_WHO_RANK0 : SDC_WHO_ALL);
        assert_int_equal(s->read_optimizer,
                         strcmp(rows[i].read_optimizer, "all") ? SDC_WHO_RANK0 : SDC_WHO_ALL);
        assert_int_equal(s->broadcast_model, rows[i].model);
        assert_int_equal(s->broadcast_optimizer, rows[i].optimizer);
        assert_int_equal(s->order, rows[i].order);
        assert_int_equal(s->broadcast_buffers_each_forward, rows[i].buffers);
        assert_true(strlen(r->summary) > 0);
    }
    assert_null(sdc_recipe_find("ddp"));
    assert_null(sdc_recipe_at(sdc_recipe_count()));
    assert_string_equal(sdc_strategy_name(SDC_STRATEGY_HOROVOD), "horovod");
}

/* ---- runs ---- */

static void run_round_trip_and_copy(void **state) {
    (void)state;
    struct sdc_run run, back, copy;
    sample_run(&run);
    char *a, *b, *c;
    assert_ok(sdc_run_to_json(&run, &a, &err));
    assert_ok(sdc_run_from_json(a, strlen(a), "sample", &back, &err));
    assert_ok(sdc_run_to_json(&back, &b, &err));
    assert_string_equal(a, b);
    assert_ok(sdc_run_copy(&copy, &run, &err));
    assert_ptr_not_equal(copy.golden, run.golden);
    assert_ptr_not_equal(copy.load[0].path, run.load[0].path);
    assert_ok(sdc_run_to_json(&copy, &c, &err));
    assert_string_equal(a, c);
    assert_true(back.optimizer.lr == run.optimizer.lr);
    assert_true(back.optimizer.momentum == run.optimizer.momentum);
    assert_true(back.optimizer.weight_decay == 5e-324);
    assert_true(back.seed_init == UINT64_MAX);
    assert_int_equal(back.strategy, SDC_STRATEGY_HOROVOD);
    assert_int_equal(back.switches.order, SDC_ORDER_PARAMETERS_FIRST);
    assert_null(back.load[1].path);
    assert_string_equal(back.golden[1].state[1], run.golden[1].state[1]);
    sdc_text_free(a);
    sdc_text_free(b);
    sdc_text_free(c);
    sdc_run_release(&run);
    sdc_run_release(&back);
    sdc_run_release(&copy);
}

static void run_file_round_trip(void **state) {
    (void)state;
    struct sdc_run run, back;
    sample_run(&run);
    assert_ok(sdc_run_write("run.json", &run, &err));
    assert_ok(sdc_run_read("run.json", &back, &err));
    assert_string_equal(back.trial, run.trial);
    assert_status(SDC_NOT_FOUND, sdc_run_read("no such.json", &back, &err));
    assert_message_has("no such.json");
    sdc_run_release(&run);
    sdc_run_release(&back);
}

/* A short description gets the defaults; a recipe alone sets strategy and switches. */
static void run_defaults(void **state) {
    (void)state;
    struct sdc_run run;
    const char *least = "{\"schema\":\"sdclab.run/1\",\"trial\":\"t\",\"to_step\":5,"
                        "\"output\":\"o\",\"ranks\":2,\"recipe\":\"ddp/before-wrap-rank0\"}";
    assert_ok(sdc_run_from_json(least, strlen(least), "least", &run, &err));
    assert_int_equal(run.strategy, SDC_STRATEGY_DDP);
    assert_int_equal(run.switches.read_model, SDC_WHO_RANK0);
    assert_true(run.switches.broadcast_buffers_each_forward);
    assert_string_equal(run.model, "lenet5");
    assert_true(run.optimizer.lr == 0.05 && run.optimizer.momentum == 0.9);
    assert_int_equal(run.eval_who, SDC_WHO_RANK0);
    assert_ok(sdc_run_check(&run, &err));
    sdc_run_release(&run);
}

static const struct {
    const char *from, *to; /* replacement in the sample's JSON */
    const char *message;   /* what the error must say */
} wrong_runs[] = {
    {"\"lr\":0.30000000000000004", "\"lr\":\"fast\"",
     "run description x.json: optimizer.lr: expected a number, found a string"},
    {"\"lr\":0.30000000000000004", "\"lr\":-1", "optimizer.lr: -1 is out of range"},
    {"\"lr\":0.30000000000000004", "\"lr\":\"nan\"", "optimizer.lr: nan is out of range"},
    {"\"lr\":", "\"rl\":", "optimizer: unknown key 'rl' (did you mean 'lr'?)"},
    {"sdclab.run/1", "sdclab.run/2", "schema: expected 'sdclab.run/1', found 'sdclab.run/2'"},
    {"\"to_step\":340", "\"to_step\":\"x\"", "to_step: expected an integer of at least 0"},
    {"\"to_step\":340,", "", "key 'to_step' is missing"},
    {"\"to_step\":340", "\"to_step\":299", "to_step: 299 is before from_step, 300"},
    {"\"ranks\":2", "\"ranks\":65", "ranks: 65 is out of range, expected 1 to 64"},
    {"\"ranks\":2", "\"ranks\":0", "ranks: 0 is out of range"},
    {"\"ranks\":2", "\"ranks\":\"2\"", "ranks: expected an integer, found a string"},
    {"\"ranks\":2", "\"ranks\":3", "golden[0].state: 2 items, expected 3"},
    {"\"kernels\":\"ref\"", "\"kernels\":\"cuda\"",
     "kernels: expected one of 'onednn', 'ref', found 'cuda'"},
    {"horovod/example-order", "horovod/exampel-order", "did you mean 'horovod/example-order'"},
    {"horovod/example-order", "horovod/rank0-broadcast", "differ from those of recipe"},
    {"\"recipe\":\"horovod/example-order\"", "\"recipe\":\"single\"", "differ from those"},
    {"\"order\":\"parameters-first\"", "\"order\":\"none\"", "differ from those"},
    {"\"path\":\"golden/step300.h5\"", "\"path\":null", "load[0].path: this rank reads"},
    {"\"path\":\"golden/step300.h5\"", "\"path\":\"\"", "load[0].path: is empty"},
    {"[301,340]", "[340,301]", "snapshot_steps[1]: is not above the one before it"},
    {"[301,340]", "[299,340]", "snapshot_steps: step 299 is outside the run"},
    {"[301,340]", "[301,\"a\"]", "snapshot_steps[1]: expected an integer"},
    {"[320,340]", "[320,341]", "save.steps: step 341 is outside"},
    {"out/{step}.safetensors", "out/s.safetensors", "lacks {step}"},
    {"\"out/{step}.safetensors\"", "null", "save.steps: steps to save at, but no save.path"},
    {"\"step\":302", "\"step\":301", "golden[1].step: is not above"},
    {"\"202122232425262728292a2b2c2d2e2f\"", "\"20\"", "golden[0]: expected a digest of 32"},
    {"\"output\":\"trials/3\"", "\"output\":null", "output: expected a string, found null"},
    {"\"load\":[", "\"load\":[{},", "load: 3 items, expected none or one for each of the 2"},
    {" trial 3\"", "\\n\"", "trial: holds a control character"},
    {"\"batch\":32", "\"batch\":32.5", "batch: expected an integer, found a number"},
    {"\"eval_who\":\"all\"", "\"eval_who\":1", "eval_who: expected a string, found an integer"},
};

/* The sample's text with one replacement; free with sdc__free. */
static char *replaced(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("'%s' is not in %s", from, text);
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__buf_append(&b, text, (size_t)(at - text));
    sdc__buf_puts(&b, to);
    sdc__buf_puts(&b, at + strlen(from));
    return sdc__buf_take(&b);
}

static void wrong_runs_are_refused_by_place(void **state) {
    (void)state;
    struct sdc_run run, back;
    sample_run(&run);
    char *json;
    assert_ok(sdc_run_to_json(&run, &json, &err));
    for (size_t i = 0; i < sizeof wrong_runs / sizeof wrong_runs[0]; i++) {
        char *bad = replaced(json, wrong_runs[i].from, wrong_runs[i].to);
        enum sdc_status st =
            sdc_run_from_json(bad, strlen(bad), "run description x.json", &back, &err);
        if (st != SDC_INVALID && st != SDC_MISMATCH)
            fail_msg("%s -> %s: %s", wrong_runs[i].from, wrong_runs[i].to, sdc_status_name(st));
        assert_int_equal(err.status, st);
        assert_message_has(wrong_runs[i].message);
        sdc__free(bad);
    }
    sdc_text_free(json);
    sdc_run_release(&run);
}

static void run_check_is_for_structs_too(void **state) {
    (void)state;
    struct sdc_run run;
    sample_run(&run);
    assert_ok(sdc_run_check(&run, &err));
    run.optimizer.lr = (double)NAN;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("optimizer.lr");
    run.optimizer.lr = 0.1;
    char *model = run.model, *json;
    run.model = NULL;
    assert_status(SDC_USAGE, sdc_run_to_json(&run, &json, &err));
    assert_message_has("model: is not set");
    run.model = model;
    assert_status(SDC_USAGE, sdc_run_set_recipe(&run, "gossip", &err));
    assert_message_has("ddp/after-wrap-all");
    assert_ok(sdc_run_set_recipe(&run, "single", &err));
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("strategy single has one rank, found 2");
    sdc_run_release(&run);
    sdc_run_init(&run);
    run.trial = sample_text("t");
    run.output = sample_text("o");
    run.ranks = 2;
    assert_ok(sdc_run_set_recipe(&run, "ddp/after-wrap-all", &err));
    assert_ok(sdc_run_check(&run, &err));
    sdc__free(run.recipe);
    run.recipe = sample_text("custom");
    run.switches.read_model = SDC_WHO_RANK0;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("rank 0 alone reads the model");
    run.switches.read_model = SDC_WHO_ALL;
    run.averaging.fusion_bytes = 0;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("averaging.fusion_bytes: belongs to strategy horovod, found strategy ddp");
    run.averaging = (struct sdc_averaging)SDC_AVERAGING_DEFAULT;
    run.averaging.compression = SDC_COMPRESSION_FP16;
    run.averaging.bucket_view = true;
    run.averaging.bucket_bytes = 0;
    assert_ok(sdc_run_check(&run, &err));
    run.from_step = run.to_step = 3;
    assert_status(SDC_USAGE, sdc_run_check(&run, &err));
    assert_message_has("no rank loads a checkpoint");
    sdc_run_release(&run);
}

/* Fails every allocation in turn; nothing may leak (the sanitizers watch) or crash. */
static void no_memory_is_reported(void **state) {
    (void)state;
    struct sdc_run run, back;
    char *json, *line;
    sample_run(&run);
    assert_ok(sdc_run_to_json(&run, &json, &err));
    for (uint64_t n = 1;; n++) {
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_run_from_json(json, strlen(json), "x", &back, &err);
        sdc__alloc_fail_at(0);
        if (st == SDC_OK) {
            assert_true(n > 30);
            sdc_run_release(&back);
            break;
        }
        assert_int_equal(st, SDC_NO_MEMORY);
    }
    for (uint64_t n = 1;; n++) {
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_run_copy(&back, &run, &err);
        sdc__alloc_fail_at(0);
        if (st == SDC_OK) {
            assert_true(n > 20);
            sdc_run_release(&back);
            break;
        }
        assert_int_equal(st, SDC_NO_MEMORY);
    }
    sdc__alloc_fail_at(3); /* inside init, which cannot say so: check does */
    sdc_run_init(&back);
    sdc__alloc_fail_at(0);
    assert_status(SDC_USAGE, sdc_run_check(&back, &err));
    sdc_run_release(&back);
    sdc_text_free(json);
    sdc_run_release(&run);
    for (int kind = 0; kind < SDC_EVENT_KIND_COUNT; kind++) {
        struct sdc_event e, read;
        sample_event((enum sdc_event_kind)kind, &e);
        assert_ok(sdc_event_to_json(&e, &line, &err));
        sdc_event_release(&e);
        for (uint64_t n = 1;; n++) {
            sdc__alloc_fail_at(n);
            enum sdc_status st = sdc_event_from_json(line, strlen(line), "x", &read, &err);
            sdc__alloc_fail_at(0);
            if (st == SDC_OK) {
                sdc_event_release(&read);
                break;
            }
            assert_int_equal(st, SDC_NO_MEMORY);
        }
        sdc_text_free(line);
    }
}

/* ---- events and messages ---- */

static void events_round_trip_by_bits(void **state) {
    (void)state;
    for (int kind = 0; kind < SDC_EVENT_KIND_COUNT; kind++) {
        struct sdc_event e, back;
        char *a, *b;
        sample_event((enum sdc_event_kind)kind, &e);
        assert_ok(sdc_event_to_json(&e, &a, &err));
        assert_int_equal(a[strlen(a) - 1], '\n');
        assert_ok(sdc_event_from_json(a, strlen(a), "x", &back, &err));
        assert_ok(sdc_event_to_json(&back, &b, &err));
        assert_string_equal(a, b);
        if (kind == SDC_EVENT_STEP) {
            assert_memory_equal(back.loss, e.loss, 2 * sizeof *e.loss);
            assert_true(isinf(back.gradient_norm) && back.gradient_norm < 0);
            assert_true(back.nonfinite_parameters[0] == UINT64_MAX);
            assert_false(back.digests[0].valid);
            assert_memory_equal(&back.digests[1], &e.digests[1], sizeof e.digests[1]);
            assert_non_null(strstr(a, "\"loss\":[2.3,\"nan\"],\"loss_bits\":[\"40133333\","
                                      "\"7f800001\"]"));
        }
        if (kind == SDC_EVENT_EVAL) {
            assert_memory_equal(back.eval_loss, e.eval_loss, 2 * sizeof *e.eval_loss);
            assert_non_null(strstr(a, "\"eval_loss\":[0.1,-0.0]"));
        }
        if (kind == SDC_EVENT_START) {
            assert_null(back.start[1].file);
            assert_false(back.start[1].loaded.valid);
            assert_true(back.start[0].loaded.valid);
            assert_int_equal(back.n_environment, 3);
        }
        sdc_text_free(a);
        sdc_text_free(b);
        sdc_event_release(&e);
        sdc_event_release(&back);
    }
}

static void environment_is_sorted_whatever_its_order(void **state) {
    (void)state;
    struct sdc_event e;
    char *line;
    sample_event(SDC_EVENT_START, &e);
    struct sdc_key_value first = e.environment[0];
    e.environment[0] = e.environment[1];
    e.environment[1] = first;
    assert_ok(sdc_event_to_json(&e, &line, &err));
    assert_non_null(strstr(line, "\"environment\":{\"cpu\":\"model 17\",\"onednn\":"));
    sdc_text_free(line);
    sdc_event_release(&e);
}

static const struct {
    int kind;
    const char *from, *to, *message;
} wrong_events[] = {
    {SDC_EVENT_STEP, "\"40133333\"", "\"4013333\"", "loss_bits[0]: expected 8 hex digits"},
    {SDC_EVENT_STEP, "[2.3,\"nan\"]", "[2.3]", "loss: 1 items, expected 2 as in loss_bits"},
    {SDC_EVENT_STEP, "[2.3,\"nan\"]", "[2.3,true]", "loss[1]: expected a number"},
    {SDC_EVENT_STEP, ",\"loss_bits\":[\"40133333\",\"7f800001\"]", "", "loss_bits: expected"},
    {SDC_EVENT_STEP, "\"loss\":[2.3,\"nan\"],", "", "key 'loss' is missing"},
    {SDC_EVENT_STEP, "\"ranks\":2", "\"ranks\":1", "loss_bits: 2 items, expected 1"},
    {SDC_EVENT_STEP, "\"type\":\"step\"", "\"type\":\"stop\"", "type: expected one of 'start'"},
    {SDC_EVENT_STEP, "\"type\":\"step\",", "", "key 'type' is missing"},
    {SDC_EVENT_STEP, "\"elapsed\":0.125", "\"elapsed\":-1", "elapsed: -1 is out of range"},
    {SDC_EVENT_START, "\"read_model\":true", "\"read_model\":1",
     "start[0].read_model: expected true or false, found an integer"},
    {SDC_EVENT_START, "\"loaded\":null", "\"loaded\":{}", "start[1].loaded: key 'parameters'"},
    {SDC_EVENT_START, "\"cpu\":\"model 17\"", "\"cpu\":17", "environment.cpu: expected a string"},
    {SDC_EVENT_EVAL, "\"samples\":2000", "\"samples\":1000", "eval_correct[0]: 1760 of 1000"},
    {SDC_EVENT_END, "\"failed\"", "\"faild\"", "reason: expected one of"},
    {SDC_EVENT_SNAPSHOT, "\"paths\":[", "\"extra\":0,\"paths\":[", "unknown key 'extra'"},
    {SDC_EVENT_CHECKPOINT, "[\"a\\u000ab.h5\"]", "[]", "paths: 0 items"},
};

static void wrong_events_are_refused_by_place(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong_events / sizeof wrong_events[0]; i++) {
        struct sdc_event e, back;
        char *line;
        sample_event((enum sdc_event_kind)wrong_events[i].kind, &e);
        assert_ok(sdc_event_to_json(&e, &line, &err));
        char *bad = replaced(line, wrong_events[i].from, wrong_events[i].to);
        assert_status(SDC_INVALID, sdc_event_from_json(bad, strlen(bad), "ev", &back, &err));
        assert_message_has(wrong_events[i].message);
        sdc__free(bad);
        sdc_text_free(line);
        sdc_event_release(&e);
    }
    struct sdc_event e;
    char *line;
    sample_event(SDC_EVENT_STEP, &e);
    sdc__free(e.loss);
    e.loss = NULL;
    assert_status(SDC_USAGE, sdc_event_to_json(&e, &line, &err));
    assert_message_has("event: loss: is not set");
    sdc_event_release(&e);
}

static void append(const char *path, const char *mode, const char *text) {
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void event_files_may_end_anywhere(void **state) {
    (void)state;
    struct sdc_event_list list;
    struct sdc_event e;
    char *line;
    append("events.jsonl", "w", "");
    assert_ok(sdc_events_read("events.jsonl", &list, &err));
    assert_int_equal(list.n, 0);
    assert_false(list.complete);
    for (int kind = 0; kind < SDC_EVENT_KIND_COUNT; kind++) {
        sample_event((enum sdc_event_kind)kind, &e);
        assert_ok(sdc_event_to_json(&e, &line, &err));
        append("events.jsonl", "a", line);
        sdc_text_free(line);
        sdc_event_release(&e);
        assert_ok(sdc_events_read("events.jsonl", &list, &err));
        assert_int_equal(list.n, kind + 1);
        assert_int_equal(list.items[kind].kind, kind);
        assert_int_equal(list.complete, kind == SDC_EVENT_END);
        sdc_events_release(&list);
    }
    append("events.jsonl", "a", "{\"type\":\"st");
    assert_ok(sdc_events_read("events.jsonl", &list, &err));
    assert_int_equal(list.n, SDC_EVENT_KIND_COUNT);
    assert_false(list.complete);
    sdc_events_release(&list);
    append("events.jsonl", "a", "\n");
    assert_status(SDC_INVALID, sdc_events_read("events.jsonl", &list, &err));
    assert_message_has("events.jsonl line 8");
    assert_status(SDC_NOT_FOUND, sdc_events_read("none.jsonl", &list, &err));
}

static void messages_round_trip(void **state) {
    (void)state;
    for (int kind = SDC_WORKER_HELLO; kind <= SDC_WORKER_QUIT; kind++) {
        struct sdc_worker_message m, back;
        char *a, *b;
        sample_message((enum sdc_worker_kind)kind, &m);
        assert_ok(sdc_worker_message_to_json(&m, &a, &err));
        assert_ok(sdc_worker_message_from_json(a, strlen(a), &back, &err));
        assert_int_equal(back.kind, kind);
        assert_int_equal(back.status, m.status);
        assert_ok(sdc_worker_message_to_json(&back, &b, &err));
        assert_string_equal(a, b);
        sdc_text_free(a);
        sdc_text_free(b);
        sdc_worker_message_release(&m);
        sdc_worker_message_release(&back);
    }
    struct sdc_worker_message m;
    const char *bad = "{\"type\":\"done\",\"trial\":\"t\",\"status\":\"FINE\",\"message\":null}";
    assert_status(SDC_INVALID, sdc_worker_message_from_json(bad, strlen(bad), &m, &err));
    assert_message_has("worker message: status: expected one of 'OK'");
    bad = "{\"type\":\"hello\",\"schema\":\"sdclab.worker/9\"}";
    assert_status(SDC_MISMATCH, sdc_worker_message_from_json(bad, strlen(bad), &m, &err));
}

/* ---- every cut and every changed byte ---- */

typedef void read_line(const char *text, size_t len);

static void read_run_text(const char *text, size_t len) {
    struct sdc_run run;
    if (sdc_run_from_json(text, len, "x", &run, &err) == SDC_OK)
        sdc_run_release(&run);
}

static void read_event_text(const char *text, size_t len) {
    struct sdc_event e;
    if (sdc_event_from_json(text, len, "x", &e, &err) == SDC_OK)
        sdc_event_release(&e);
}

static void read_message_text(const char *text, size_t len) {
    struct sdc_worker_message m;
    if (sdc_worker_message_from_json(text, len, &m, &err) == SDC_OK)
        sdc_worker_message_release(&m);
}

/* In an allocation of exactly its length, so that a sanitizer sees a read past the end. */
static void read_exactly(read_line *read, const char *text, size_t len) {
    char *copy = sdc__alloc(len, 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    read(copy, len);
    sdc__free(copy);
}

static void mutate(read_line *read, char *text) {
    static const unsigned char xors[] = {0x01, 0x02, 0x10, 0x20, 0x80, 0xFF};
    static const char puts[] = "{}[]\",:\\0 n";
    size_t len = strlen(text);
    for (size_t cut = 0; cut <= len; cut++)
        read_exactly(read, text, cut);
    for (size_t i = 0; i < len; i++) {
        char old = text[i];
        for (size_t k = 0; k < sizeof xors; k++) {
            text[i] = (char)(old ^ xors[k]);
            read_exactly(read, text, len);
        }
        for (size_t k = 0; k < sizeof puts; k++) { /* the NUL too */
            text[i] = puts[k];
            read_exactly(read, text, len);
        }
        text[i] = old;
    }
}

static void damaged_texts_never_crash(void **state) {
    (void)state;
    struct sdc_run run;
    char *text;
    sample_run(&run);
    assert_ok(sdc_run_to_json(&run, &text, &err));
    mutate(read_run_text, text);
    sdc_text_free(text);
    sdc_run_release(&run);
    for (int kind = 0; kind < SDC_EVENT_KIND_COUNT; kind++) {
        struct sdc_event e;
        sample_event((enum sdc_event_kind)kind, &e);
        assert_ok(sdc_event_to_json(&e, &text, &err));
        mutate(read_event_text, text);
        sdc_text_free(text);
        sdc_event_release(&e);
    }
    for (int kind = SDC_WORKER_HELLO; kind <= SDC_WORKER_QUIT; kind++) {
        struct sdc_worker_message m;
        sample_message((enum sdc_worker_kind)kind, &m);
        assert_ok(sdc_worker_message_to_json(&m, &text, &err));
        mutate(read_message_text, text);
        sdc_text_free(text);
        sdc_worker_message_release(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_are_those_of_the_protocol),
        cmocka_unit_test(run_round_trip_and_copy),
        cmocka_unit_test(run_file_round_trip),
        cmocka_unit_test(run_defaults),
        cmocka_unit_test(wrong_runs_are_refused_by_place),
        cmocka_unit_test(run_check_is_for_structs_too),
        cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(events_round_trip_by_bits),
        cmocka_unit_test(environment_is_sorted_whatever_its_order),
        cmocka_unit_test(wrong_events_are_refused_by_place),
        cmocka_unit_test(event_files_may_end_anywhere),
        cmocka_unit_test(messages_round_trip),
        cmocka_unit_test(damaged_texts_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
