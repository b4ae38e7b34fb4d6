/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt_files.h"
#include "sdc/alter.h"

static struct sdc_error err;

/* Everything happens in the test's scratch folder, in a folder made anew for each test. */
#define DIR    "alter.d/"
#define SOURCE DIR "model.ckpt"
#define OUT    DIR "out.ckpt"

static int fresh(void **state) {
    (void)state;
    assert_ok(sdc__remove_tree("alter.d", &err));
    assert_ok(sdc__make_dirs("alter.d", &err));
    return 0;
}

static void choose(struct sdc_choice *c, const char *const words[]) {
    sdc_choice_init(c);
    for (size_t i = 0; words[i]; i += 2)
        assert_ok(sdc_choice_set(c, words[i], words[i + 1], &err));
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static enum sdc_status alter(const char *const words[], const struct sdc_alter_options *options,
                             struct sdc_alter_result *r) {
    struct sdc_choice c;
    choose(&c, words);
    *r = (struct sdc_alter_result){0};
    enum sdc_status st = sdc_alter(SOURCE, &c, options, r, &err);
    sdc_choice_release(&c);
    return st;
}

/* The bytes that differ are those of the plan and hold its values. */
static void assert_planned_bytes(const struct sdc_buf *before, const char *after,
                                 const struct sdc_alter_result *r) {
    struct sdc_buf want = SDC_BUF_INIT, is = read_file(after);
    uint64_t altered = 0, bits = 0;
    sdc__buf_append(&want, before->data, before->len);
    for (size_t i = 0; i < r->n_changes; i++) {
        const struct sdc_record_change *c = &r->changes[i];
        unsigned char *at = (unsigned char *)want.data + c->offset;
        assert_int_equal(sdc_num_load(c->dtype, at, c->big_endian), c->old_raw);
        if (c->op == SDC_OP_FLIP)
            assert_int_equal(c->old_raw ^ c->new_raw, c->bits);
        sdc_num_store(c->dtype, c->new_raw, at, c->big_endian);
        altered += c->old_raw != c->new_raw;
        bits += (unsigned)__builtin_popcountll(c->old_raw ^ c->new_raw);
    }
    assert_true(same_bytes(&want, &is));
    assert_int_equal(r->altered, altered);
    assert_int_equal(r->altered_bits, bits);
    assert_int_equal(r->unchanged, r->n_changes - altered);
    sdc__buf_release(&want);
    sdc__buf_release(&is);
}

static void assert_undo(const char *record, const char *file, const struct sdc_buf *before,
                        uint64_t restored) {
    struct sdc_undo_result u;
    assert_ok(sdc_undo(record, NULL, true, &u, &err));
    assert_string_equal(u.file, file);
    assert_int_equal(u.restored, restored);
    sdc_text_free(u.file);
    assert_true(file_is(file, before));
}

static const char *const formats[] = {"hdf5", "safetensors"};

/* Every operator and way to choose, both formats, copy and in place: only planned bytes differ, and
 * undo gives the identical file. */
static void only_planned_bytes_change_and_undo_restores(void **state) {
    (void)state;
    static const char *const choices[][9] = {
        {"flips", "1"},
        {"flips", "1000"},
        {"flips", "300", "sample", "tensors"},
        {"flips", "40", "bits", "top-exponent", "part", "model"},
        {"flips", "7", "op", "value=nan", "role", "momentum"},
        {"exhaustive", "true", "tensors", "model/conv.*", "op", "value=-inf"},
        {"exhaustive", "true", "dtype", "F16,I64"},
        {"flips", "50", "op", "set0", "bits", "exponent"},
        {"flips", "50", "op", "set1", "sample", "elements"},
        {"flips", "50", "op", "mask=8001", "sample", "bytes"},
        {"flips", "50", "op", "mask=5/3", "sample", "stratified"},
        {"flips", "200", "op", "burst=9", "dtype", "F16"},
        {"flips", "50", "op", "scale=-2.5"},
        {"flips", "50", "op", "random", "not-result", "nan,inf"},
        {"flips", "50", "op", "swap"},
        {"flips", "50", "op", "flip=5", "not-result", "nan"},
        {"rate", "1e-4", "not-result", "nan,inf", "bits", "exponent"},
        {"flips", "500", "compat", "hdf5-corrupter", "rate", "0.5"},
        {"at", "model/conv.weight[3,2,4]@msb:0", "at", "loop/step@lsb:0", "at",
         "model/big.weight[199,199]@lsb:30"},
    };
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                fresh(NULL);
                make_ckpt(SOURCE, formats[f]);
                struct sdc_buf before = read_file(SOURCE);
                struct sdc_alter_options o = {.output = in_place ? NULL : OUT, .seed = i};
                const char *file = in_place ? SOURCE : OUT;
                struct sdc_alter_result r;
                assert_ok(alter(choices[i], &o, &r));
                assert_true(r.n_changes > 0 && r.altered > 0);
                assert_planned_bytes(&before, file, &r);
                if (!in_place)
                    assert_true(file_is(SOURCE, &before));
                assert_undo(r.record, file, &before, r.altered);
                assert_undo(r.record, file, &before, 0);
                sdc_alter_result_release(&r);
                sdc__buf_release(&before);
            }
}

/* What the record says is what was done, and it is complete. */
static void record_holds_the_plan(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_alter_options o = {.output = OUT, .seed = 9, .whole_digest = true};
    struct sdc_alter_result r;
    struct sdc_record record;
    struct stat s;
    assert_ok(alter(WORDS("flips", "5", "part", "model"), &o, &r));
    assert_string_equal(r.record, OUT ".sdc.jsonl");
    assert_ok(sdc_record_read(r.record, &record, &err));
    assert_true(record.verified);
    assert_int_equal(record.n_verified, 5);
    assert_int_equal(record.n_bits, r.altered_bits);
    assert_int_equal(record.header.seed, 9);
    assert_int_equal(record.header.planned, 5);
    assert_int_equal(record.header.support_bits, (40000 + 4 + 60) * 32 + 20 * 16);
    assert_int_equal(record.header.support_bits, r.support_sites);
    assert_string_equal(record.header.source, SOURCE);
    assert_string_equal(record.header.file, OUT);
    assert_string_equal(record.header.format, "safetensors");
    assert_int_equal(record.header.choice.flips, 5);
    assert_true(record.header.synced && record.header.identity.has_whole);
    assert_int_equal(stat(SOURCE, &s), 0);
    assert_int_equal(record.header.identity.size, s.st_size);
    assert_int_equal(record.n_changes, r.n_changes);
    for (size_t i = 0; i < r.n_changes; i++) {
        assert_string_equal(record.changes[i].tensor, r.changes[i].tensor);
        assert_string_equal(record.changes[i].index, r.changes[i].index);
        assert_int_equal(record.changes[i].elem, r.changes[i].elem);
        assert_int_equal(record.changes[i].offset, r.changes[i].offset);
        assert_int_equal(record.changes[i].bits, r.changes[i].bits);
        assert_int_equal(record.changes[i].old_raw, r.changes[i].old_raw);
        assert_int_equal(record.changes[i].new_raw, r.changes[i].new_raw);
    }
    sdc_record_release(&record);
    sdc_alter_result_release(&r);
}

static void same_seed_same_sites(void **state) {
    (void)state;
    make_ckpt(SOURCE, "hdf5");
    struct sdc_alter_options o = {.output = OUT, .seed = 3}, twice = {.output = DIR "b", .seed = 3};
    struct sdc_alter_options other = {.output = DIR "c", .seed = 3, .trial = 1};
    struct sdc_alter_result r;
    assert_ok(alter(WORDS("flips", "20"), &o, &r));
    sdc_alter_result_release(&r);
    assert_ok(alter(WORDS("flips", "20"), &twice, &r));
    sdc_alter_result_release(&r);
    struct sdc_buf a = read_file(OUT);
    assert_true(file_is(DIR "b", &a));
    assert_ok(alter(WORDS("flips", "20"), &other, &r));
    sdc_alter_result_release(&r);
    assert_false(file_is(DIR "c", &a));
    sdc__buf_release(&a);
}

static void nothing_to_alter_is_a_result(void **state) {
    (void)state;
    static const char *const choices[][5] = {{"flips", "0"}, {"flips", "9", "not-tensors", "*"}};
    for (int i = 0; i < 2; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            fresh(NULL);
            make_ckpt(SOURCE, "hdf5");
            struct sdc_buf before = read_file(SOURCE);
            struct sdc_alter_options o = {.output = in_place ? NULL : OUT};
            struct sdc_alter_result r;
            assert_ok(alter(choices[i], &o, &r));
            assert_int_equal(r.altered, 0);
            assert_int_equal(r.planned, 0);
            assert_true((r.support_sites == 0) == (i == 1));
            assert_true(file_is(in_place ? SOURCE : OUT, &before));
            assert_undo(r.record, in_place ? SOURCE : OUT, &before, 0);
            sdc_alter_result_release(&r);
            sdc__buf_release(&before);
        }
}

static void value_that_is_there_counts_as_unchanged(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_alter_options o = {0};
    struct sdc_alter_result r;
    assert_ok(alter(WORDS("exhaustive", "true", "op", "value=300", "part", "loop"), &o, &r));
    assert_int_equal(r.planned, 1);
    assert_int_equal(r.unchanged, 1);
    assert_int_equal(r.altered, 0);
    assert_int_equal(r.altered_bits, 0);
    sdc_alter_result_release(&r);
}

static void records_are_never_overwritten(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf versions[4] = {read_file(SOURCE)};
    char *records[3];
    uint64_t altered[3];
    static const char *const names[] = {SOURCE ".sdc.jsonl", SOURCE ".2.sdc.jsonl",
                                        SOURCE ".3.sdc.jsonl"};
    for (int i = 0; i < 3; i++) {
        struct sdc_alter_options o = {.seed = (uint64_t)i};
        struct sdc_alter_result r;
        assert_ok(alter(WORDS("flips", "50"), &o, &r));
        assert_string_equal(r.record, names[i]);
        records[i] = r.record;
        altered[i] = r.altered;
        r.record = NULL;
        sdc_alter_result_release(&r);
        versions[i + 1] = read_file(SOURCE);
    }
    /* the newest first, each back to the file before it */
    for (int i = 2; i >= 0; i--) {
        assert_undo(records[i], SOURCE, &versions[i], altered[i]);
        sdc_text_free(records[i]);
    }
    struct sdc_alter_options named = {.record_path = names[1]};
    struct sdc_alter_result r;
    assert_status(SDC_EXISTS, alter(WORDS("flips", "1"), &named, &r));
    assert_true(file_is(SOURCE, &versions[0]));
    named.record_path = DIR "elsewhere.jsonl";
    assert_ok(alter(WORDS("flips", "1"), &named, &r));
    assert_string_equal(r.record, DIR "elsewhere.jsonl");
    assert_undo(r.record, SOURCE, &versions[0], 1);
    sdc_alter_result_release(&r);
    for (int i = 0; i < 4; i++)
        sdc__buf_release(&versions[i]);
}

static void output_must_be_another_file(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    assert_int_equal(symlink("model.ckpt", DIR "link"), 0);
    assert_int_equal(link(SOURCE, DIR "hard"), 0);
    static const char *const outputs[] = {SOURCE, DIR "link", DIR "hard", DIR "../" SOURCE};
    for (int replace = 0; replace < 2; replace++)
        for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
            struct sdc_alter_options o = {.output = outputs[i], .replace = replace};
            struct sdc_alter_result r;
            assert_status(SDC_USAGE, alter(WORDS("flips", "1"), &o, &r));
            assert_message_has("same file");
            assert_true(file_is(SOURCE, &before));
        }
    /* the record may not become the output either */
    struct sdc_alter_options o = {.output = OUT, .replace = true, .record_path = OUT};
    struct sdc_alter_result r;
    assert_status(SDC_USAGE, alter(WORDS("flips", "1"), &o, &r));
    assert_false(sdc__path_exists(OUT));
    sdc__buf_release(&before);
}

static void output_is_replaced_only_when_told(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE), mine = SDC_BUF_INIT;
    sdc__buf_puts(&mine, "mine");
    write_file(OUT, &mine);
    struct sdc_alter_options o = {.output = OUT};
    struct sdc_alter_result r;
    assert_status(SDC_EXISTS, alter(WORDS("flips", "1"), &o, &r));
    assert_message_has(OUT);
    assert_true(file_is(OUT, &mine));
    assert_false(sdc__path_exists(OUT ".sdc.jsonl"));
    o.replace = true;
    assert_ok(alter(WORDS("flips", "1"), &o, &r));
    assert_planned_bytes(&before, OUT, &r);
    sdc_alter_result_release(&r);
    sdc__buf_release(&before);
    sdc__buf_release(&mine);
}

static void copies_are_not_more_readable(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    assert_int_equal(chmod(SOURCE, 0600), 0);
    struct sdc_alter_options o = {.output = OUT};
    struct sdc_alter_result r;
    struct stat s;
    assert_ok(alter(WORDS("flips", "1"), &o, &r));
    assert_int_equal(stat(OUT, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    sdc_alter_result_release(&r);
}

static void dry_run_writes_nothing(void **state) {
    (void)state;
    make_ckpt(SOURCE, "hdf5");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_alter_options o = {.output = OUT, .dry_run = true, .seed = 4};
    struct sdc_alter_result dry, real;
    assert_ok(alter(WORDS("flips", "8"), &o, &dry));
    assert_null(dry.record);
    assert_int_equal(dry.altered, 0);
    assert_false(sdc__path_exists(OUT));
    assert_false(sdc__path_exists(OUT ".sdc.jsonl"));
    assert_true(file_is(SOURCE, &before));
    o.dry_run = false;
    assert_ok(alter(WORDS("flips", "8"), &o, &real));
    assert_int_equal(dry.n_changes, real.n_changes);
    for (size_t i = 0; i < dry.n_changes; i++) {
        assert_int_equal(dry.changes[i].offset, real.changes[i].offset);
        assert_int_equal(dry.changes[i].new_raw, real.changes[i].new_raw);
    }
    sdc_alter_result_release(&dry);
    sdc_alter_result_release(&real);
    sdc__buf_release(&before);
}

static void no_record_no_sync(void **state) {
    (void)state;
    make_ckpt(SOURCE, "hdf5");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_alter_options o = {.output = OUT, .no_record = true, .no_sync = true};
    struct sdc_alter_result r;
    assert_ok(alter(WORDS("flips", "8"), &o, &r));
    assert_null(r.record);
    assert_false(sdc__path_exists(OUT ".sdc.jsonl"));
    assert_planned_bytes(&before, OUT, &r);
    sdc_alter_result_release(&r);
    sdc__buf_release(&before);
}

/* Faults from outside, such as those of another arm of a pair. */
static void given_list(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_fault faults[] = {{.tensor = 2, .elem = 3, .bits = 1u << 30},
                                 {.tensor = 4, .elem = 19, .bits = 0x8001}};
    struct sdc_fault_list list = {.faults = faults, .n = 2, .n_sites = 3};
    struct sdc_alter_options o = {.output = OUT, .list = &list};
    struct sdc_alter_result r;
    assert_ok(alter(WORDS("flips", "3"), &o, &r));
    assert_int_equal(r.planned, 3);
    assert_int_equal(r.altered, 2);
    assert_int_equal(r.altered_bits, 3);
    assert_string_equal(r.changes[0].tensor, "model/conv.bias");
    assert_string_equal(r.changes[0].index, "[3]");
    assert_string_equal(r.changes[1].tensor, "model/half.weight");
    assert_string_equal(r.changes[1].index, "[9,1]");
    assert_planned_bytes(&before, OUT, &r);
    sdc_alter_result_release(&r);
    o.output = DIR "never";
    static const struct sdc_fault wrong[] = {{.tensor = 6, .bits = 1},
                                             {.tensor = 2, .elem = 4, .bits = 1},
                                             {.tensor = 4, .bits = 1u << 16}};
    for (int i = 0; i < 3; i++) {
        faults[1] = wrong[i];
        assert_status(SDC_USAGE, alter(WORDS("flips", "3"), &o, &r));
        assert_false(sdc__path_exists(DIR "never"));
    }
    faults[1] = faults[0]; /* the same element twice */
    assert_status(SDC_INVALID, alter(WORDS("flips", "3"), &o, &r));
    sdc__buf_release(&before);
}

static void others_locks_are_respected(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_alter_options in_place = {0}, copy = {.output = OUT};
    struct sdc_alter_result r;
    struct sdc_undo_result u;
    int fd = open(SOURCE, O_RDONLY);
    assert_true(fd >= 0 && flock(fd, LOCK_SH) == 0);
    assert_status(SDC_BUSY, alter(WORDS("flips", "1"), &in_place, &r));
    assert_ok(alter(WORDS("flips", "1"), &copy, &r)); /* reading is allowed */
    sdc_alter_result_release(&r);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_true(alter(WORDS("flips", "1"), &in_place, &r) == SDC_BUSY);
    assert_true(alter(WORDS("flips", "1"), &copy, &r) != SDC_OK);
    close(fd);
    assert_true(file_is(SOURCE, &before));
    assert_false(sdc__path_exists(SOURCE ".sdc.jsonl"));
    assert_ok(alter(WORDS("flips", "1"), &in_place, &r));
    fd = open(SOURCE, O_RDONLY);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    assert_status(SDC_BUSY, sdc_undo(r.record, NULL, false, &u, &err));
    close(fd);
    assert_undo(r.record, SOURCE, &before, 1);
    sdc_alter_result_release(&r);
    sdc__buf_release(&before);
}

static void contradictions_are_refused(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_alter_options o = {.output = OUT};
    struct sdc_alter_result r;
    assert_status(SDC_USAGE, alter(WORDS("at", "loop/step@lsb:1", "flips", "2"), &o, &r));
    assert_status(SDC_USAGE, alter(WORDS("at", "loop/step"), &o, &r));
    assert_status(SDC_USAGE, alter(WORDS("flips", "2", "op", "value=1", "bits", "sign"), &o, &r));
    assert_false(sdc__path_exists(OUT));
}

/* ---- undo ---- */

static void poke(const char *path, uint64_t offset, unsigned char value) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pwrite(fd, &value, 1, (off_t)offset) == 1);
    close(fd);
}

static void undo_refuses_a_third_value(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_alter_options o = {0};
    struct sdc_alter_result r;
    struct sdc_undo_result u;
    assert_ok(
        alter(WORDS("at", "model/conv.weight[1,2,3]@lsb:30", "at", "model/big.weight[7,8]@lsb:0"),
              &o, &r));
    assert_string_equal(r.changes[1].tensor, "model/conv.weight");
    poke(SOURCE, r.changes[1].offset, 0x77);
    struct sdc_buf third = read_file(SOURCE);
    assert_status(SDC_MISMATCH, sdc_undo(r.record, NULL, false, &u, &err));
    char found[40];
    uint64_t raw = sdc_num_load(SDC_DTYPE_F32, third.data + r.changes[1].offset, false);
    snprintf(found, sizeof found, "%#llx", (unsigned long long)raw);
    assert_message_has("model/conv.weight[1,2,3]");
    assert_message_has(found);
    assert_message_has("nothing was changed");
    assert_true(file_is(SOURCE, &third));
    sdc__buf_release(&third);
    sdc_alter_result_release(&r);
}

static void undo_refuses_another_file(void **state) {
    (void)state;
    struct sdc_undo_result u;
    for (int whole = 0; whole < 2; whole++) {
        fresh(NULL);
        make_ckpt(SOURCE, "safetensors");
        struct sdc_buf before = read_file(SOURCE);
        struct sdc_alter_options o = {.whole_digest = whole};
        struct sdc_alter_result r;
        assert_ok(alter(WORDS("at", "model/conv.weight[1,2,3]@lsb:30"), &o, &r));
        struct sdc_buf altered = read_file(SOURCE);
        /* the ends always, the middle where the whole file's digest was asked for */
        const uint64_t places[] = {0, 65535, altered.len - 65536, altered.len - 1, altered.len / 2};
        for (int i = 0; i < 4 + whole; i++) {
            altered.data[places[i]] ^= 1;
            write_file(SOURCE, &altered);
            assert_status(SDC_MISMATCH, sdc_undo(r.record, NULL, false, &u, &err));
            assert_message_has("not the file of this record");
            assert_true(file_is(SOURCE, &altered));
            altered.data[places[i]] ^= 1;
        }
        altered.len--;
        write_file(SOURCE, &altered);
        altered.len++;
        assert_status(SDC_MISMATCH, sdc_undo(r.record, NULL, false, &u, &err));
        assert_message_has("bytes");
        write_file(SOURCE, &altered);
        assert_undo(r.record, SOURCE, &before, 1);
        sdc_alter_result_release(&r);
        sdc__buf_release(&altered);
        sdc__buf_release(&before);
    }
}

/* The first and last 64 KiB are hashed with the old bytes, also where sites lie in them. */
static void undo_knows_altered_ends(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_alter_options o = {0};
    struct sdc_alter_result r;
    assert_ok(alter(WORDS("exhaustive", "true", "bits", "sign"), &o, &r));
    assert_true(r.changes[0].offset < 65536);
    assert_undo(r.record, SOURCE, &before, r.altered);
    sdc_alter_result_release(&r);
    sdc__buf_release(&before);
}

static void undo_finds_the_file(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_alter_options o = {.output = OUT};
    struct sdc_alter_result r;
    struct sdc_undo_result u;
    assert_ok(alter(WORDS("flips", "3"), &o, &r));
    assert_ok(sdc__make_dirs(DIR "moved", &err));
    assert_ok(sdc__rename(OUT, DIR "moved/out.ckpt", &err));
    assert_status(SDC_NOT_FOUND, sdc_undo(r.record, NULL, false, &u, &err));
    assert_message_has(OUT);
    assert_ok(sdc__rename(OUT ".sdc.jsonl", DIR "moved/record", &err));
    assert_undo(DIR "moved/record", DIR "moved/out.ckpt", &before, 3);
    assert_ok(sdc__rename(DIR "moved/out.ckpt", DIR "third", &err));
    assert_ok(sdc_undo(DIR "moved/record", DIR "third", false, &u, &err));
    assert_int_equal(u.already, 3);
    assert_string_equal(u.file, DIR "third");
    sdc_text_free(u.file);
    assert_status(SDC_NOT_FOUND, sdc_undo(DIR "none", NULL, false, &u, &err));
    sdc_alter_result_release(&r);
    sdc__buf_release(&before);
}

/* An element across a block boundary of which one half was written. */
static void undo_restores_a_torn_element(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    struct sdc_ckpt *ckpt;
    struct sdc_span span;
    size_t tensor;
    assert_ok(sdc_ckpt_open(SOURCE, NULL, &ckpt, &err));
    assert_true(sdc_ckpt_find(ckpt, "model/big.weight", &tensor));
    assert_ok(sdc_ckpt_map(ckpt, tensor, 0, &span, &err));
    sdc_ckpt_close(ckpt);
    /* a file with its data moved so that an element lies across byte 4096 * k */
    unsigned shift = (unsigned)((4 + 4096 - 2 - span.offset % 4) % 4);
    struct sdc_buf moved = SDC_BUF_INIT;
    unsigned char length[8];
    memcpy(length, before.data, 8);
    uint64_t header = sdc_num_load(SDC_DTYPE_U64, length, false);
    sdc_num_store(SDC_DTYPE_U64, header + shift, length, false);
    sdc__buf_append(&moved, length, 8);
    sdc__buf_append(&moved, before.data + 8, header);
    for (unsigned i = 0; i < shift; i++)
        sdc__buf_putc(&moved, ' ');
    sdc__buf_append(&moved, before.data + 8 + header, before.len - 8 - header);
    write_file(SOURCE, &moved);
    uint64_t first = span.offset + shift;
    uint64_t boundary = first + 4096 - first % 4096, elem = (boundary - 2 - first) / 4;
    assert_int_equal(first + elem * 4, boundary - 2);
    char at[64];
    snprintf(at, sizeof at, "model/big.weight[%llu,%llu]", (unsigned long long)elem / 200,
             (unsigned long long)elem % 200);
    struct sdc_alter_options o = {0};
    struct sdc_alter_result r;
    assert_ok(alter(WORDS("at", at, "op", "value=nan"), &o, &r));
    assert_int_equal(r.changes[0].offset, boundary - 2);
    struct sdc_buf altered = read_file(SOURCE);
    for (int half = 0; half < 2; half++) {
        struct sdc_buf torn = read_file(SOURCE);
        memcpy(torn.data, altered.data, altered.len);
        memcpy(torn.data + boundary - (half ? 0 : 2), moved.data + boundary - (half ? 0 : 2), 2);
        assert_false(same_bytes(&torn, &altered));
        write_file(SOURCE, &torn);
        assert_undo(r.record, SOURCE, &moved, 1);
        sdc__buf_release(&torn);
    }
    sdc_alter_result_release(&r);
    sdc__buf_release(&altered);
    sdc__buf_release(&moved);
    sdc__buf_release(&before);
}

/* ---- size and memory ---- */

/* 4 GiB, nearly all of it a hole: one bit in place reads the header and the ends. */
static void in_place_does_not_read_the_file(void **state) {
    (void)state;
    static const char header[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1073741824],\"data_offsets\":[0,4294967296]}}     ";
    unsigned char length[8];
    const uint64_t n = sizeof header - 1;
    int fd = open(SOURCE, O_RDWR | O_CREAT, 0600);
    sdc_num_store(SDC_DTYPE_U64, n, length, false);
    assert_true(fd >= 0 && write(fd, length, 8) == 8 && write(fd, header, n) == (ssize_t)n);
    if (ftruncate(fd, (off_t)(8 + n + 4294967296)) != 0) {
        close(fd);
        print_message("skipped: no files of 4 GiB on this file system\n");
        skip();
    }
    close(fd);
    struct sdc_alter_options o = {.no_sync = true}; /* else /proc is read, as much as there is */
    struct sdc_alter_result r;
    struct sdc_buf io = SDC_BUF_INIT;
    unsigned long long before = 0, after = 0;
    assert_ok(sdc__read_whole("/proc/self/io", 4096, &io, &err));
    assert_true(strncmp(io.data, "rchar: ", 7) == 0);
    *strchr(io.data, '\n') = '\0';
    assert_true(sdc__parse_u64(io.data + 7, &before));
    assert_ok(alter(WORDS("at", "w[600000000]@top-exponent"), &o, &r));
    sdc__buf_clear(&io);
    assert_ok(sdc__read_whole("/proc/self/io", 4096, &io, &err));
    *strchr(io.data, '\n') = '\0';
    assert_true(sdc__parse_u64(io.data + 7, &after));
    assert_true(after - before < 100000000); /* of 4 GiB; what other processes map is read too */
    assert_int_equal(r.altered, 1);
    assert_int_equal(r.changes[0].new_raw, 0x40000000);
    sdc_alter_result_release(&r);
    sdc__buf_release(&io);
}

static void out_of_memory_loses_nothing(void **state) {
    (void)state;
    make_ckpt(SOURCE, "safetensors");
    struct sdc_buf before = read_file(SOURCE);
    for (int in_place = 0; in_place < 2; in_place++) {
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            struct sdc_choice c;
            choose(&c, WORDS("flips", "3"));
            struct sdc_alter_options o = {.output = in_place ? NULL : OUT, .no_sync = true};
            struct sdc_alter_result r = {0};
            sdc__alloc_fail_at(n);
            enum sdc_status st = sdc_alter(SOURCE, &c, &o, &r, &err);
            sdc__alloc_fail_at(0);
            failed = st != SDC_OK;
            assert_true(n < 2000);
            if (failed && !file_is(SOURCE, &before)) /* only after everything was done */
                assert_undo(SOURCE ".sdc.jsonl", SOURCE, &before, 3);
            if (failed && !in_place && sdc__path_exists(OUT))
                assert_undo(OUT ".sdc.jsonl", OUT, &before, 3);
            assert_ok(sdc__remove_file(OUT, &err));
            assert_ok(sdc__remove_file(OUT ".sdc.jsonl", &err));
            assert_ok(sdc__remove_file(SOURCE ".sdc.jsonl", &err));
            sdc_alter_result_release(&r);
            sdc_choice_release(&c);
        }
    }
    sdc__buf_release(&before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(only_planned_bytes_change_and_undo_restores, fresh),
        cmocka_unit_test_setup(record_holds_the_plan, fresh),
        cmocka_unit_test_setup(same_seed_same_sites, fresh),
        cmocka_unit_test_setup(nothing_to_alter_is_a_result, fresh),
        cmocka_unit_test_setup(value_that_is_there_counts_as_unchanged, fresh),
        cmocka_unit_test_setup(records_are_never_overwritten, fresh),
        cmocka_unit_test_setup(output_must_be_another_file, fresh),
        cmocka_unit_test_setup(output_is_replaced_only_when_told, fresh),
        cmocka_unit_test_setup(copies_are_not_more_readable, fresh),
        cmocka_unit_test_setup(dry_run_writes_nothing, fresh),
        cmocka_unit_test_setup(no_record_no_sync, fresh),
        cmocka_unit_test_setup(given_list, fresh),
        cmocka_unit_test_setup(others_locks_are_respected, fresh),
        cmocka_unit_test_setup(contradictions_are_refused, fresh),
        cmocka_unit_test_setup(undo_refuses_a_third_value, fresh),
        cmocka_unit_test_setup(undo_refuses_another_file, fresh),
        cmocka_unit_test_setup(undo_knows_altered_ends, fresh),
        cmocka_unit_test_setup(undo_finds_the_file, fresh),
        cmocka_unit_test_setup(undo_restores_a_torn_element, fresh),
        cmocka_unit_test_setup(in_place_does_not_read_the_file, fresh),
        cmocka_unit_test_setup(out_of_memory_loses_nothing, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
