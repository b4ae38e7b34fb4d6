/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt_files.h"
#include "sdc/alter.h"

static struct sdc_error err;

#define DIR    "replay.d/"
#define FIRST  DIR "first.st"
#define ONCE   DIR "once.st"
#define RECORD ONCE ".sdc.jsonl"
#define OTHER  DIR "other.st"
#define OUT    DIR "out.st"

static int fresh(void **state) {
    (void)state;
    assert_ok(sdc__remove_tree("replay.d", &err));
    assert_ok(sdc__make_dirs("replay.d", &err));
    return 0;
}

/* FIRST altered as ONCE with its record; OTHER is FIRST again. */
static void alter_once(const char *flips) {
    struct sdc_choice c;
    struct sdc_alter_result r;
    struct sdc_alter_options o = {.output = ONCE, .no_sync = true, .seed = 5};
    make_ckpt(FIRST, "safetensors");
    make_ckpt(OTHER, "safetensors");
    sdc_choice_init(&c);
    assert_ok(sdc_choice_set(&c, "flips", flips, &err));
    assert_ok(sdc_choice_set(&c, "part", "model", &err));
    assert_ok(sdc_alter(FIRST, &c, &o, &r, &err));
    sdc_alter_result_release(&r);
    sdc_choice_release(&c);
}

static void same_file_gives_the_same_bytes(void **state) {
    (void)state;
    alter_once("20");
    struct sdc_buf once = read_file(ONCE);
    struct sdc_replay_options o = {.alter = {.output = OUT, .no_sync = true}, .exact = true};
    struct sdc_replay_result r;
    assert_ok(sdc_replay(RECORD, OTHER, &o, &r, &err));
    assert_true(file_is(OUT, &once));
    assert_int_equal(r.changes, r.alter.n_changes);
    assert_int_equal(r.skipped, 0);
    assert_int_equal(r.alter.planned, 20);
    struct sdc_record record;
    assert_ok(sdc_record_read(r.alter.record, &record, &err));
    assert_string_equal(record.header.origin, RECORD);
    assert_int_equal(record.header.seed, 5);
    assert_int_equal(record.header.choice.flips, 20);
    assert_true(record.verified);
    sdc_record_release(&record);
    sdc_alter_result_release(&r.alter);
    /* replayed twice, every bit is back: a flip is its own inverse */
    o.alter.output = NULL;
    o.exact = false;
    assert_ok(sdc_replay(RECORD, OUT, &o, &r, &err));
    struct sdc_buf first = read_file(FIRST);
    assert_true(file_is(OUT, &first));
    sdc_alter_result_release(&r.alter);
    sdc__buf_release(&first);
    sdc__buf_release(&once);
}

/* The names of the model's tensors are mapped away but for conv's. */
static void missing_tensors_are_refused_or_counted(void **state) {
    (void)state;
    alter_once("300");
    struct sdc_name_map *map;
    assert_ok(sdc_name_map_new(&map, &err));
    static const char text[] = "model/half.weight -> model/none\nmodel/big.weight -> -\n";
    assert_ok(sdc_name_map_add_text(map, text, strlen(text), "m", &err));
    struct sdc_replay_options o = {.alter = {.output = OUT, .no_sync = true}, .map = map};
    struct sdc_replay_result r;
    /* 640 of 1,315,000 bits are half.weight's: with this seed it has no flip, big.weight has */
    assert_ok(sdc_replay(RECORD, OTHER, &o, &r, &err));
    assert_true(r.skipped > 250 && r.skipped + r.alter.n_changes == r.changes);
    for (size_t i = 0; i < r.alter.n_changes; i++)
        assert_true(strncmp(r.alter.changes[i].tensor, "model/conv", 10) == 0);
    sdc_alter_result_release(&r.alter);
    sdc_name_map_free(map);

    assert_ok(sdc_name_map_new(&map, &err));
    assert_ok(sdc_name_map_add_text(map, "model/big.weight -> x\n", 22, "m", &err));
    o.map = map;
    o.alter.output = DIR "no.st";
    assert_status(SDC_MISMATCH, sdc_replay(RECORD, OTHER, &o, &r, &err));
    assert_message_has("model/big.weight of the record has no counterpart: m line 1: no tensor is "
                       "named 'x'");
    assert_false(sdc__path_exists(DIR "no.st"));
    o.skip_missing = true;
    assert_ok(sdc_replay(RECORD, OTHER, &o, &r, &err));
    assert_true(r.skipped > 250);
    sdc_alter_result_release(&r.alter);
    sdc_name_map_free(map);
}

/* Nothing is lost wherever memory ends: the file is old, or new with a record that undoes it. */
static void out_of_memory_loses_nothing(void **state) {
    (void)state;
    alter_once("3");
    struct sdc_buf first = read_file(FIRST);
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        struct sdc_replay_options o = {.alter = {.no_sync = true}, .from = ONCE, .exact = true};
        struct sdc_replay_result r = {0};
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_replay(RECORD, OTHER, &o, &r, &err);
        sdc__alloc_fail_at(0);
        failed = st != SDC_OK;
        assert_true(n < 3000);
        if (!file_is(OTHER, &first)) {
            struct sdc_undo_result u;
            assert_ok(sdc_undo(OTHER ".sdc.jsonl", NULL, true, &u, &err));
            assert_int_equal(u.restored, 3);
            sdc_text_free(u.file);
            assert_true(file_is(OTHER, &first));
        } else {
            assert_true(failed);
        }
        assert_ok(sdc__remove_file(OTHER ".sdc.jsonl", &err));
        sdc_alter_result_release(&r.alter);
    }
    sdc__buf_release(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(same_file_gives_the_same_bytes, fresh),
        cmocka_unit_test_setup(missing_tensors_are_refused_or_counted, fresh),
        cmocka_unit_test_setup(out_of_memory_loses_nothing, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
