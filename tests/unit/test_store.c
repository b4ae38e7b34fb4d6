/* SPDX-License-Identifier: Apache-2.0
 *
 * The store: every row comes back, trials are in it once and only complete, whatever dies when.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "camp/store.h"
#include "io/io.h"
#include "test.h"

static struct sdc_error err;

static struct sdc_spec *parse(const char *text) {
    struct sdc_spec *spec = NULL;
    assert_ok(sdc__spec_parse(text, strlen(text), "s.yaml", &spec, &err));
    return spec;
}

static const char *fresh(const char *name) {
    assert_ok(sdc__remove_tree(name, &err));
    return name;
}

static struct sdc_store_trial sample(const char *id, uint32_t index) {
    struct sdc_store_trial t = {.kind = SDC_TRIAL_CELL,
                                .index = index,
                                .collapse_step = -1,
                                .control = -1,
                                .end_reason = "completed",
                                .accuracy = 0.5,
                                .eval_loss = NAN,
                                .end_loss = INFINITY,
                                .platform = 1,
                                .attempts = 1};
    snprintf(t.id, sizeof t.id, "%s", id);
    t.outcome.exposure = SDC_EXPOSURE_SPREAD;
    t.outcome.numeric = SDC_NUMERIC_NONFINITE_SOON;
    t.outcome.replicas = SDC_REPLICAS_POISONED;
    return t;
}

static void every_row_comes_back(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *store = NULL;
    assert_ok(sdc__store_open(fresh("rows"), spec, &store, &err));
    char tensor[] = "model/fc1.weight", index[] = "[3,5]", layer[] = "fc1", message[] = "a 'text'";
    struct sdc_store_fault fault = {.tensor = tensor,
                                    .index = index,
                                    .elem = 7,
                                    .dtype = SDC_DTYPE_F32,
                                    .part = SDC_PART_MODEL,
                                    .role = SDC_ROLE_WEIGHT,
                                    .op = SDC_OP_FLIP,
                                    .bits = 0x40000000,
                                    .old_raw = 0x3d4ccccd,
                                    .new_raw = 0x7d4ccccd,
                                    .delivered = true};
    struct sdc_store_exposure exposures[2] = {
        {.rank = 0, .planned = true, .read = true, .altered_loaded = true, .altered_started = true},
        {.rank = 1, .altered_started = true}};
    snprintf(exposures[0].loaded, sizeof exposures[0].loaded, "%032d", 12);
    struct sdc_store_point points[2] = {
        {SDC_SERIES_LOSS, 301, 0, NAN, NAN, 1.5},
        {SDC_SERIES_EVAL, 340, 0, INFINITY, 0.1, NAN},
    };
    struct sdc_store_propagation rows[1] = {{.layer = layer,
                                             .part = SDC_PART_OPTIMIZER,
                                             .rank = 1,
                                             .step = 340,
                                             .n_elems = 10,
                                             .n_differ = 9,
                                             .n_altered = 1,
                                             .distance = INFINITY,
                                             .distance_altered = NAN}};
    struct sdc_store_horizon horizon = {.after = 1};
    struct sdc_store_trial t = sample("c000-0000", 0);
    t.message = message;
    t.faults = &fault;
    t.n_faults = 1;
    t.exposures = exposures;
    t.n_exposures = 2;
    t.points = points;
    t.n_points = 2;
    t.propagation = rows;
    t.n_propagation = 1;
    t.horizons = &horizon;
    t.n_horizons = 1;
    t.planned = 3;
    t.collapse_step = 4;
    assert_ok(sdc__store_put_trial(store, &t, &err));

    struct sdc_store_trial back;
    assert_ok(sdc__store_get_trial(store, "c000-0000", &back, &err));
    assert_int_equal(back.outcome.numeric, SDC_NUMERIC_NONFINITE_SOON);
    assert_int_equal(back.outcome.replicas, SDC_REPLICAS_POISONED);
    assert_string_equal(back.message, "a 'text'");
    assert_string_equal(back.end_reason, "completed");
    assert_true(isnan(back.eval_loss));
    assert_true(isinf(back.end_loss));
    assert_int_equal(back.planned, 3);
    assert_int_equal(back.collapse_step, 4);
    assert_int_equal(back.control, -1);
    assert_int_equal(strlen(back.finished), 20);
    assert_int_equal(back.n_faults, 1);
    assert_string_equal(back.faults[0].tensor, tensor);
    assert_true(back.faults[0].new_raw == 0x7d4ccccd);
    assert_true(back.faults[0].bits == 0x40000000);
    assert_true(back.faults[0].delivered);
    assert_int_equal(back.n_exposures, 2);
    assert_string_equal(back.exposures[0].loaded, exposures[0].loaded);
    assert_false(back.exposures[1].read);
    assert_int_equal(back.n_points, 2);
    assert_int_equal(back.points[0].kind, SDC_SERIES_LOSS);
    assert_true(isnan(back.points[0].loss));
    assert_true(back.points[1].accuracy == 0.1);
    assert_int_equal(back.n_propagation, 1);
    assert_int_equal(back.propagation[0].part, SDC_PART_OPTIMIZER);
    assert_true(isinf(back.propagation[0].distance));
    assert_int_equal(back.n_horizons, 1);
    sdc__store_trial_release(&back);
    assert_status(SDC_NOT_FOUND, sdc__store_get_trial(store, "c000-0001", &back, &err));
    sdc__store_close(store);
    sdc__spec_free(spec);
}

static void goldens_and_replicas_come_back(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *store = NULL;
    int64_t one = 0, two = 0, again = 0;
    assert_ok(sdc__store_open(fresh("golden"), spec, &store, &err));
    assert_ok(sdc__store_platform(store, "cpu a", "{}", &one, &err));
    assert_ok(sdc__store_platform(store, "cpu b", "{}", &two, &err));
    assert_ok(sdc__store_platform(store, "cpu a", "{}", &again, &err));
    assert_int_equal(one, again);
    assert_int_not_equal(one, two);
    char *text = NULL, *versions = NULL;
    assert_ok(sdc__store_get_platform(store, two, &text, &versions, &err));
    assert_string_equal(text, "cpu b");
    assert_string_equal(versions, "{}");
    sdc__free(text);
    sdc__free(versions);
    assert_status(SDC_NOT_FOUND, sdc__store_get_platform(store, 99, &text, &versions, &err));
    struct sdc_store_point points[2] = {{SDC_SERIES_LOSS, 301, 0, 0.25, NAN, 1},
                                        {SDC_SERIES_LOSS, 302, 0, 0.125, NAN, 1}};
    struct sdc_store_golden g = {.group = "g2",
                                 .platform = one,
                                 .passed = true,
                                 .accuracy = 0.75,
                                 .points = points,
                                 .n_points = 2};
    assert_ok(sdc__store_put_golden(store, &g, &err));
    g.n_points = 1; /* replaced, with its curve */
    assert_ok(sdc__store_put_golden(store, &g, &err));
    struct sdc_store_golden back;
    assert_ok(sdc__store_get_golden(store, "g2", one, &back, &err));
    assert_true(back.passed);
    assert_int_equal(back.n_points, 1);
    assert_true(back.points[0].loss == 0.25);
    sdc__store_golden_release(&back);
    assert_status(SDC_NOT_FOUND, sdc__store_get_golden(store, "g2", two, &back, &err));

    struct sdc_store_replica r = {.group = "g2",
                                  .platform = one,
                                  .kind = SDC_SPREAD_E1,
                                  .replica = 1,
                                  .accuracy = 0.5,
                                  .points = points,
                                  .n_points = 2};
    assert_ok(sdc__store_put_replica(store, &r, &err));
    r.kind = SDC_SPREAD_E0;
    r.held_out = true;
    assert_ok(sdc__store_put_replica(store, &r, &err));
    struct sdc_store_replica *list = NULL;
    size_t n = 0;
    assert_ok(sdc__store_list_replicas(store, "g2", one, &list, &n, &err));
    assert_int_equal(n, 2);
    assert_int_equal(list[0].kind, SDC_SPREAD_E0);
    assert_true(list[0].held_out);
    assert_int_equal(list[1].n_points, 2);
    for (size_t i = 0; i < n; i++)
        sdc__store_replica_release(&list[i]);
    sdc__free(list);
    sdc__store_close(store);
    sdc__spec_free(spec);
}

static void a_trial_is_there_once(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *store = NULL;
    struct sdc_plan *plan = NULL;
    bool done[64] = {false};
    assert_ok(sdc__plan_new(spec, &plan, &err));
    assert_ok(sdc__store_open(fresh("once"), spec, &store, &err));
    struct sdc_store_trial t = sample("c000-0002", 2);
    assert_ok(sdc__store_put_trial(store, &t, &err));
    assert_status(SDC_EXISTS, sdc__store_put_trial(store, &t, &err));
    assert_message_has("c000-0002");
    assert_ok(sdc__store_done(store, plan, done, &err));
    for (size_t i = 0; i < plan->n_trials; i++)
        assert_int_equal(done[i], strcmp(plan->trials[i].id, "c000-0002") == 0);
    assert_ok(sdc__store_forget_trial(store, "c000-0002", &err));
    assert_ok(sdc__store_put_trial(store, &t, &err));
    sdc__store_close(store);
    sdc__plan_free(plan);
    sdc__spec_free(spec);
}

/* A writer that is killed at a random moment leaves whole trials only, and the next one goes on. */
static void killed_writers_leave_whole_trials(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\ntrials: 5000\n");
    const char *dir = fresh("killed");
    size_t before = 0;
    for (int round = 0; round < 5; round++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct sdc_store *store = NULL;
            char layer[] = "fc1";
            struct sdc_store_propagation rows[1] = {{.layer = layer, .step = 1}};
            struct sdc_store_exposure exposure = {.rank = 0};
            if (sdc__store_open(dir, spec, &store, &err) != SDC_OK)
                _exit(1);
            for (uint32_t i = (uint32_t)before; i < 5000; i++) {
                char id[32];
                snprintf(id, sizeof id, "c000-%04u", i);
                struct sdc_store_trial t = sample(id, i);
                t.propagation = rows;
                t.n_propagation = 1;
                t.exposures = &exposure;
                t.n_exposures = 1;
                if (sdc__store_put_trial(store, &t, &err) != SDC_OK)
                    _exit(2);
                if (i == before + 2 && write(ready[1], "x", 1) != 1)
                    _exit(3);
            }
            _exit(0);
        }
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
        usleep((unsigned)(1000 + 3777 * round));
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        close(ready[0]);
        close(ready[1]);

        struct sdc_store *store = NULL;
        struct sdc_store_trial *trials = NULL;
        size_t n = 0;
        assert_int_equal(sdc__store_writer(dir), 0);
        assert_ok(sdc__store_open_again(dir, &store, &err));
        assert_ok(sdc__store_list_trials(store, &trials, &n, &err));
        assert_true(n >= before + 3);
        for (size_t i = 0; i < n; i++) {
            char id[32];
            struct sdc_store_trial whole;
            snprintf(id, sizeof id, "c000-%04zu", i);
            assert_string_equal(trials[i].id, id);
            assert_ok(sdc__store_get_trial(store, id, &whole, &err));
            assert_int_equal(whole.n_propagation, 1);
            assert_int_equal(whole.n_exposures, 1);
            sdc__store_trial_release(&whole);
            sdc__store_trial_release(&trials[i]);
        }
        sdc__free(trials);
        sdc__store_close(store);
        before = n;
    }
    sdc__spec_free(spec);
}

static void one_writer_and_readers_beside_it(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *writer = NULL, *reader = NULL, *second = NULL;
    struct sdc_store_trial *trials = NULL;
    size_t n = 0;
    const char *dir = fresh("beside");
    assert_ok(sdc__store_open(dir, spec, &writer, &err));
    assert_int_equal(sdc__store_writer(dir), getpid());
    assert_status(SDC_BUSY, sdc__store_open(dir, spec, &second, &err));
    assert_message_has("another run");
    assert_ok(sdc__store_open_read(dir, &reader, &err));
    assert_string_equal(sdc__store_spec(reader)->hash, spec->hash);
    struct sdc_store_trial t = sample("c000-0000", 0);
    assert_ok(sdc__store_put_trial(writer, &t, &err));
    assert_ok(sdc__store_list_trials(reader, &trials, &n, &err));
    assert_int_equal(n, 1);
    sdc__store_trial_release(&trials[0]);
    sdc__free(trials);
    assert_true(sdc__store_put_meta(reader, "a", "b", &err) != SDC_OK);
    sdc__store_close(reader);
    sdc__store_close(writer);
    assert_int_equal(sdc__store_writer(dir), 0);
    sdc__spec_free(spec);
}

static void another_spec_is_refused(void **state) {
    (void)state;
    struct sdc_spec *a = parse("campaign: x\n"), *b = parse("campaign: x\nbatch: 32\n");
    struct sdc_store *store = NULL;
    const char *dir = fresh("other");
    assert_ok(sdc__store_open(dir, a, &store, &err));
    sdc__store_close(store);
    assert_status(SDC_MISMATCH, sdc__store_open(dir, b, &store, &err));
    assert_message_has("batch (64 in the store, 32 here)");
    assert_ok(sdc__store_open(dir, a, &store, &err));
    sdc__store_close(store);
    sdc__spec_free(a);
    sdc__spec_free(b);
}

/* Overwrites bytes of the store's file. */
static void poke(const char *path, uint64_t offset, const void *data, size_t len) {
    struct sdc_file f = SDC_FILE_INIT;
    assert_ok(sdc__file_open(path, SDC_FILE_UPDATE, &f, &err));
    assert_ok(sdc__file_write(&f, offset, data, len, &err));
    sdc__file_close(&f);
}

static void other_schemas_and_files_are_refused(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *store = NULL;
    const char *dir = fresh("schema");
    assert_status(SDC_NOT_FOUND, sdc__store_open_read(dir, &store, &err));
    assert_message_has("no campaign here");
    assert_status(SDC_NOT_FOUND, sdc__store_open_again(dir, &store, &err));
    assert_ok(sdc__store_open(dir, spec, &store, &err));
    sdc__store_close(store);
    /* user_version is the big-endian number at byte 60 of the file, application_id at 68
     * (sqlite.org/fileformat2.html) */
    poke("schema/store.sqlite", 60, "\0\0\0\2", 4);
    assert_status(SDC_MISMATCH, sdc__store_open_read(dir, &store, &err));
    assert_message_has("schema 2, made by a newer version");
    assert_status(SDC_MISMATCH, sdc__store_open(dir, spec, &store, &err));
    poke("schema/store.sqlite", 60, "\0\0\0\0", 4);
    assert_status(SDC_MISMATCH, sdc__store_open_read(dir, &store, &err));
    assert_message_has("an older version");
    poke("schema/store.sqlite", 60, "\0\0\0\1", 4);
    poke("schema/store.sqlite", 68, "\0\0\0\0", 4);
    assert_status(SDC_INVALID, sdc__store_open_read(dir, &store, &err));
    assert_message_has("another SQLite file");
    poke("schema/store.sqlite", 0, "no database here", 16);
    assert_status(SDC_INVALID, sdc__store_open_read(dir, &store, &err));
    assert_message_has("no store of sdclab");
    assert_status(SDC_INVALID, sdc__store_open(dir, spec, &store, &err));
    sdc__spec_free(spec);
}

static void damage_is_named(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *store = NULL;
    unsigned char garbage[3000];
    const char *dir = fresh("damage");
    assert_ok(sdc__store_open(dir, spec, &store, &err));
    sdc__store_close(store);
    memset(garbage, 0x5a, sizeof garbage);
    poke("damage/store.sqlite", 4096 * 2, garbage, sizeof garbage);
    enum sdc_status st = sdc__store_open(dir, spec, &store, &err);
    assert_int_equal(st, SDC_INVALID);
    assert_message_has("damaged");
    sdc__spec_free(spec);
}

static void facts_are_kept(void **state) {
    (void)state;
    struct sdc_spec *spec = parse("campaign: x\n");
    struct sdc_store *store = NULL;
    char *value = NULL;
    assert_ok(sdc__store_open(fresh("meta"), spec, &store, &err));
    assert_ok(sdc__store_put_meta(store, "k", "1", &err));
    assert_ok(sdc__store_put_meta(store, "k", "2", &err));
    assert_ok(sdc__store_get_meta(store, "k", &value, &err));
    assert_string_equal(value, "2");
    sdc__free(value);
    assert_ok(sdc__store_put_meta(store, "k", NULL, &err));
    assert_ok(sdc__store_get_meta(store, "k", &value, &err));
    assert_null(value);
    sdc__store_close(store);
    sdc__spec_free(spec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_comes_back),
        cmocka_unit_test(goldens_and_replicas_come_back),
        cmocka_unit_test(a_trial_is_there_once),
        cmocka_unit_test(killed_writers_leave_whole_trials),
        cmocka_unit_test(one_writer_and_readers_beside_it),
        cmocka_unit_test(another_spec_is_refused),
        cmocka_unit_test(other_schemas_and_files_are_refused),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(facts_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
