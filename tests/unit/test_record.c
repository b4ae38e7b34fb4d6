/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "contract/record_line.h"
#include "contract_samples.h"
#include "sdc/choice.h"
#include "sdc/record.h"
#include "test.h"

static struct sdc_error err;

static void put(const char *path, const char *mode, const void *text, size_t len) {
    FILE *f = fopen(path, mode);
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* The whole sample record; free with sdc__free. */
static char *sample(void) {
    struct sdc_record r = {0};
    struct sdc_buf b = SDC_BUF_INIT;
    char *line;
    sample_header(&r.header);
    assert_ok(sdc_record_header_line(&r.header, &line, &err));
    sdc__buf_puts(&b, line);
    sdc_text_free(line);
    sdc_record_release(&r);
    for (size_t i = 0; i < SAMPLE_CHANGES; i++) {
        struct sdc_record_change c = sample_change(i);
        assert_ok(sdc_record_change_line(&c, &line, &err));
        sdc__buf_puts(&b, line);
        sdc_text_free(line);
    }
    assert_ok(sdc_record_verified_line(5, 6, &line, &err));
    sdc__buf_puts(&b, line);
    sdc_text_free(line);
    char *text = sdc__buf_take(&b);
    assert_non_null(text);
    return text;
}

static void round_trip(void **state) {
    (void)state;
    struct sdc_record r;
    char *text = sample(), *line;
    put("a.sdc.jsonl", "w", text, strlen(text));
    assert_ok(sdc_record_read("a.sdc.jsonl", &r, &err));
    assert_true(r.verified);
    assert_int_equal(r.n_verified, 5);
    assert_int_equal(r.n_bits, 6);
    assert_int_equal(r.n_changes, SAMPLE_CHANGES);
    assert_true(r.header.seed == UINT64_MAX);
    assert_true(r.header.identity.tail == 0xFEDCBA9876543210);
    assert_memory_equal(r.header.identity.whole, "0123456789abcdef", 16);
    assert_int_equal(r.header.choice.flips, 5);
    assert_string_equal(r.header.file, "out \"put\".h5");
    struct sdc_buf again = SDC_BUF_INIT;
    assert_ok(sdc_record_header_line(&r.header, &line, &err));
    sdc__buf_puts(&again, line);
    sdc_text_free(line);
    for (size_t i = 0; i < r.n_changes; i++) {
        struct sdc_record_change want = sample_change(i), *got = &r.changes[i];
        assert_string_equal(got->tensor, want.tensor);
        assert_string_equal(got->index, want.index);
        assert_int_equal(got->n_shape, want.n_shape);
        assert_int_equal(got->shape == NULL, want.shape == NULL);
        if (want.n_shape > 0)
            assert_memory_equal(got->shape, want.shape, want.n_shape * sizeof *want.shape);
        assert_int_equal(got->dtype, want.dtype);
        assert_int_equal(got->part, want.part);
        assert_int_equal(got->role, want.role);
        assert_true(got->offset == want.offset && got->elem == want.elem);
        assert_int_equal(got->big_endian, want.big_endian);
        assert_int_equal(got->op, want.op);
        assert_true(got->bits == want.bits);
        assert_true(got->old_raw == want.old_raw && got->new_raw == want.new_raw);
        assert_ok(sdc_record_change_line(got, &line, &err));
        sdc__buf_puts(&again, line);
        sdc_text_free(line);
    }
    assert_ok(sdc_record_verified_line(r.n_verified, r.n_bits, &line, &err));
    sdc__buf_puts(&again, line);
    sdc_text_free(line);
    assert_string_equal(again.data, text);
    sdc__buf_release(&again);
    sdc__free(text);
    sdc_record_release(&r);
}

/* By hand: 0.1f is 0x3dcccccd, little-endian cd cc cc 3d; with bit 30 flipped 0x7dcccccd, which
 * NumPy prints as 3.4028237e+37. 1.0 in f16 is 0x3c00; 0xbc01 is -1.001, whatever the order. */
static void lines_hold_the_bytes_of_the_file(void **state) {
    (void)state;
    static const char *const want[SAMPLE_CHANGES] = {
        "\"op\":\"flip\",\"bits\":[30],\"old\":\"cdcccc3d\",\"new\":\"cdcccc7d\",\"old_value\":0.1,"
        "\"new_value\":3.4028237e+37}\n",
        "\"bits\":[0,15],\"old\":\"3c00\",\"new\":\"bc01\",\"old_value\":1,\"new_value\":-1.001}\n",
        "\"op\":\"value\",\"bits\":[],\"old\":\"000000000000f03f\",\"new\":\"000000000000f87f\","
        "\"old_value\":1,\"new_value\":\"nan\"}\n",
        "\"bits\":[63],\"old\":\"000000000000012c\",\"new\":\"800000000000012c\",\"old_value\":300,"
        "\"new_value\":-9223372036854775508}\n",
        "\"bits\":[0],\"old\":\"ffffffffffffffff\",\"new\":\"feffffffffffffff\","
        "\"old_value\":\"18446744073709551615\",\"new_value\":\"18446744073709551614\"}\n",
        "\"op\":\"set0\",\"bits\":[0,1],\"weight\":12.5,\"old\":\"cdcccc3d\",\"new\":\"cccccc3d\"",
        "\"op\":\"set1\",\"bits\":[0,7],\"old\":\"38\",\"new\":\"b9\",\"old_value\":1,"
        "\"new_value\":-1.1}\n",
        "\"op\":\"burst\",\"bits\":[30,31],\"old\":\"cdcccc3d\",\"new\":\"cdccccfd\"",
        "\"op\":\"swap\",\"bits\":[],\"other\":3,\"old\":\"cdcccc3d\",\"new\":\"0100807f\"",
    };
    for (size_t i = 0; i < SAMPLE_CHANGES; i++) {
        struct sdc_record_change c = sample_change(i);
        char *line;
        assert_ok(sdc_record_change_line(&c, &line, &err));
        if (!strstr(line, want[i]))
            fail_msg("expected %s in %s", want[i], line);
        sdc_text_free(line);
    }
}

/* The way that writes many lines and the table that reading goes by. */
static void lines_are_those_of_the_table(void **state) {
    (void)state;
    static const char *const names[] = {"a",           "model/fc.weight",   "tab\there", "quote\"",
                                        "back\\slash", "\xc3\xa9t\xc3\xa9", "\x7f",      "bad\xff"};
    uint64_t x = 0x9e3779b97f4a7c15, shape[32];
    struct sdc_buf is = SDC_BUF_INIT, scratch = SDC_BUF_INIT;
    unsigned n = 0, scanned = 0;
    for (unsigned i = 0; i < 20000; i++) {
        struct sdc_record_change c = {.tensor = (char *)(uintptr_t)names[i % 97 ? 1 : i / 97 % 8],
                                      .index = (char *)(uintptr_t) "[1,22]",
                                      .dtype = (enum sdc_dtype)(i % SDC_DTYPE_COUNT),
                                      .part = (enum sdc_part)(i % SDC_PART_COUNT),
                                      .role = (enum sdc_role)(i % SDC_ROLE_COUNT),
                                      .op = (enum sdc_op)(i % SDC_OP_COUNT),
                                      .file =
                                          i % 5 ? NULL : (char *)(uintptr_t)names[i % 7 ? 0 : 3],
                                      .big_endian = i % 3 == 0,
                                      .recoded = i % 11 == 0,
                                      .shift = i % 13 == 0 ? i % 8 : 0,
                                      .shape = i % 4 ? shape : NULL,
                                      .n_shape = i % 4 ? i % 33 : 0,
                                      .weight = i % 101 ? 0 : 0.1 * i};
        const unsigned width = sdc_dtype_bits(c.dtype);
        const uint64_t mask = width == 64 ? UINT64_MAX : ((uint64_t)1 << width) - 1;
        uint64_t *const numbers[] = {&c.elem, &c.offset, &c.other, &c.bits, &c.old_raw, &c.new_raw};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            x = x * 6364136223846793005 + 1442695040888963407;
            *numbers[k] = x >> (i + 7 * k) % 64;
        }
        for (size_t d = 0; d < c.n_shape; d++)
            shape[d] = x >> (i + 5 * d) % 64;
        c.bits &= mask;
        c.old_raw = i % 4 == 0 ? i % 300 & mask : c.old_raw & mask;
        c.new_raw = i % 6 == 0 ? (mask ^ (i % 9 == 0 ? 0 : mask >> 9)) : c.new_raw & mask;
        char *want;
        sdc__buf_clear(&is);
        assert_ok(sdc__record_change_append(&c, &is, &err));
        assert_ok(sdc__record_change_by_table(&c, &want, &err));
        if (strcmp(is.data, want) != 0)
            fail_msg("%s and %s", is.data, want);
        n += strstr(want, "\"nan\"") != NULL;
        struct sdc_record_change got;
        if (sdc__record_change_scan(want, strlen(want), &scratch, &got)) {
            scanned++;
            if (c.tensor != names[7]) /* which is no UTF-8, and was written as other bytes */
                assert_string_equal(got.tensor, c.tensor);
            assert_string_equal(got.index, c.index);
            assert_string_equal(got.file ? got.file : "-", c.file ? c.file : "-");
            assert_true(got.dtype == c.dtype && got.part == c.part && got.role == c.role);
            assert_true(got.elem == c.elem && got.offset == c.offset && got.shift == c.shift);
            assert_true(got.big_endian == c.big_endian && got.recoded == c.recoded);
            assert_true(got.op == c.op && got.bits == c.bits);
            assert_true(!got.shape == !c.shape && got.n_shape == c.n_shape);
            if (c.n_shape > 0)
                assert_memory_equal(got.shape, shape, c.n_shape * sizeof *shape);
            assert_true(got.old_raw == c.old_raw && got.new_raw == c.new_raw);
            assert_true(c.op != SDC_OP_SWAP || got.other == c.other);
            sdc__free(got.tensor);
            sdc__free(got.index);
            sdc__free(got.shape);
            sdc__free(got.file);
        }
        /* any byte that differs is not what is written here */
        want[i % strlen(want)] ^= 1;
        if (sdc__record_change_scan(want, strlen(want), &scratch, &got)) {
            assert_true(strcmp(scratch.data, want) == 0);
            sdc__free(got.tensor);
            sdc__free(got.index);
            sdc__free(got.shape);
            sdc__free(got.file);
        }
        sdc_text_free(want);
    }
    assert_true(n > 100);
    assert_true(scanned > 19000);
    sdc__buf_release(&scratch);
    sdc__buf_release(&is);
}

/* A write-ahead log may end anywhere in its last line; what stands before it counts. Files are slow
 * to make, so the cuts are those beside line ends and some of the others. */
static void every_cut_is_read_or_refused(void **state) {
    (void)state;
    char *text = sample();
    size_t len = strlen(text), header = (size_t)(strchr(text, '\n') - text) + 1;
    for (size_t cut = 0; cut <= len; cut++) {
        struct sdc_record r;
        bool beside_end = cut < 2 || text[cut - 1] == '\n' || text[cut - 2] == '\n' ||
                          text[cut] == '\n' || cut == len;
        if (!beside_end && cut % 13 != 0)
            continue;
        put("cut.sdc.jsonl", "w", text, cut);
        if (cut < header) {
            assert_status(SDC_INVALID, sdc_record_read("cut.sdc.jsonl", &r, &err));
            assert_message_has("no header line");
            continue;
        }
        size_t lines = 0;
        for (size_t i = 0; i < cut; i++)
            lines += text[i] == '\n';
        assert_ok(sdc_record_read("cut.sdc.jsonl", &r, &err));
        assert_int_equal(r.verified, cut == len);
        assert_int_equal(r.n_changes, lines - 1 - (cut == len));
        sdc_record_release(&r);
    }
    sdc__free(text);
}

/* One change at every third byte, another kind at each. */
static void damaged_bytes_never_crash(void **state) {
    (void)state;
    static const char marks[] = "{}[]\",:\\0 n\n";
    char *text = sample();
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i += 3) {
        char old = text[i];
        size_t k = i / 3 % (sizeof marks + 3);
        struct sdc_record r;
        if (k < sizeof marks)
            text[i] = marks[k];
        else
            text[i] = (char)(old ^ (1 << (k - sizeof marks) * 3));
        put("bad.sdc.jsonl", "w", text, len);
        if (sdc_record_read("bad.sdc.jsonl", &r, &err) == SDC_OK)
            sdc_record_release(&r);
        text[i] = old;
    }
    sdc__free(text);
}

static void wrong_records_are_refused_by_line(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"sdclab.record/1", "sdclab.record/2", "line 1: schema: expected 'sdclab.record/1'"},
        {"\"new\":\"cdcccc7d\"", "\"new\":\"cdcccc3d\"", "line 2: bits: do not lead from old"},
        {"\"bits\":[30]", "\"bits\":[29]", "line 2: bits: do not lead"},
        {"\"bits\":[0,15]", "\"bits\":[0,16]", "line 3: bits[1]: bit 16 of an F16, which has 16"},
        {"\"bits\":[0,15]", "\"bits\":[15,0]", "line 3: bits[1]: is not above"},
        {"\"bits\":[]", "\"bits\":[3]", "line 4: bits: do not lead"},
        {"\"old\":\"cdcccc3d\"", "\"old\":\"cdcc\"", "line 2: old: expected the 8 hex digits"},
        {"\"type\":\"change\"", "\"type\":\"header\"", "line 2: expected one header only"},
        {"\"type\":\"header\"", "\"type\":\"verified\"", "line 1: expected a header first"},
        {"\"type\":\"change\"", "\"type\":\"verified\"", "line 2: unknown key 'tensor'"},
        {"\"type\":\"change\"", "\"type\":\"chance\"", "line 2: type: expected one of 'header'"},
        {"\"role\":[\"weight\"", "\"role\":[\"wait\"", "line 1: choice: role: expected a list"},
        {"\"flips\":5", "\"flips\":\"five\"", "line 1: choice: flips: expected an integer"},
        {"\"whole\":\"30313233", "\"whole\":\"3031323", "identity.whole: expected 32 hex digits"},
        {"\"synced\":true", "\"synced\":1", "synced: expected true or false"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F33\"", "dtype: expected one of 'F64'"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F64\"", "old: expected the 16 hex digits of an F64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = sample();
        const char *at = strstr(text, cases[i].from);
        if (!at)
            fail_msg("'%s' is not in the sample", cases[i].from);
        put("w.sdc.jsonl", "w", text, (size_t)(at - text));
        put("w.sdc.jsonl", "a", cases[i].to, strlen(cases[i].to));
        at += strlen(cases[i].from);
        put("w.sdc.jsonl", "a", at, strlen(at));
        struct sdc_record r;
        enum sdc_status st = sdc_record_read("w.sdc.jsonl", &r, &err);
        if (st != SDC_INVALID && st != SDC_MISMATCH)
            fail_msg("%s -> %s: %s", cases[i].from, cases[i].to, sdc_status_name(st));
        assert_message_has("w.sdc.jsonl");
        assert_message_has(cases[i].message);
        sdc__free(text);
    }
    struct sdc_record r;
    char *text = sample();
    put("w.sdc.jsonl", "w", text, strlen(text));
    put("w.sdc.jsonl", "a", "{\"type\":\"verified\",\"elements\":1,\"bits\":1}\n", 42);
    assert_status(SDC_INVALID, sdc_record_read("w.sdc.jsonl", &r, &err));
    sdc__free(text);
    assert_status(SDC_NOT_FOUND, sdc_record_read("none.sdc.jsonl", &r, &err));
}

static void no_memory_is_reported(void **state) {
    (void)state;
    char *text = sample();
    unsigned failures = 0;
    put("m.sdc.jsonl", "w", text, strlen(text));
    bool reached = true;
    for (uint64_t n = 1; reached; n++) {
        struct sdc_record r;
        const uint64_t before = sdc__alloc_count();
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_record_read("m.sdc.jsonl", &r, &err);
        sdc__alloc_fail_at(0);
        reached = sdc__alloc_count() - before >= n;
        if (st == SDC_OK) { /* also where a line was then read in the slower way */
            assert_int_equal(r.n_changes, SAMPLE_CHANGES);
            assert_true(r.verified);
            sdc_record_release(&r);
            continue;
        }
        assert_int_equal(st, SDC_NO_MEMORY);
        failures++;
    }
    assert_true(failures > 20);
    sdc__free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(lines_are_those_of_the_table),
        cmocka_unit_test(lines_hold_the_bytes_of_the_file),
        cmocka_unit_test(every_cut_is_read_or_refused),
        cmocka_unit_test(damaged_bytes_never_crash),
        cmocka_unit_test(wrong_records_are_refused_by_line),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
