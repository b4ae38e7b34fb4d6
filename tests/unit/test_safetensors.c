/* SPDX-License-Identifier: Apache-2.0
 *
 * Headers that the reference reader of safetensors accepts or refuses (its test suite's cases, and
 * one for each rule), and every single-byte change of a header.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "sdc/ckpt.h"
#include "test.h"

static struct sdc_error err;
static const char *const path = "x.safetensors";

/* A file of this length field, header and n_data bytes of data. */
static void make(uint64_t length, const char *header, size_t n_header, size_t n_data) {
    struct sdc_buf b = SDC_BUF_INIT;
    unsigned char raw[8];
    sdc_num_store(SDC_DTYPE_U64, length, raw, false);
    sdc__buf_append(&b, raw, 8);
    sdc__buf_append(&b, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        sdc__buf_putc(&b, (char)i);
    assert_ok(sdc__write_whole(path, b.data, b.len, false, &err));
    sdc__buf_release(&b);
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

struct row {
    const char *header;
    size_t n_data;
    enum sdc_status st;
    const char *message;
};

static void rules_of_the_reference_reader(void **state) {
    (void)state;
    static const struct row rows[] = {
        /* accepted */
        {"{" T("a", "I32", "[2,2]", "[0,16]") "}", 16, SDC_OK, "a"},
        {"{" T("a", "I32", "[2,2]", "[0,16]") "}   ", 16, SDC_OK, "a"},
        {"{" T("a", "I32", "[2,2]", "[0,16]") "}\r\n\t ", 16, SDC_OK, "a"},
        {" {" T("a", "I32", "[2,2]", "[0,16]") "}", 16, SDC_OK, "a"},
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "F64", "[1]", "[1,9]") "}", 9, SDC_OK, "b"},
        {"{" T("b", "U8", "[2]", "[4,6]") "," T("a", "I32", "[]", "[0,4]") "}", 6, SDC_OK, "a"},
        {"{" T("a", "F32", "[0]", "[0,0]") "," T("b", "F32", "[2,0]", "[0,0]") "}", 0, SDC_OK, "b"},
        {"{" T("z", "F32", "[1]", "[0,4]") "," T("a", "F32", "[0]", "[4,4]") "}", 4, SDC_OK, "a"},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, SDC_OK, NULL},
        {"{\"__metadata__\":{}," T("a", "U8", "[3]", "[0,3]") "}", 3, SDC_OK, "a"},
        {"{}", 0, SDC_OK, NULL},
        {"{" T("a", "F8_E4M3", "[3]", "[0,3]") "}", 3, SDC_OK, "a"},
        {"{" T("a", "F4", "[4]", "[0,2]") "}", 2, SDC_OK, "a"},
        {"{" T("a", "Q7_NEW", "[5]", "[0,3]") "}", 3, SDC_OK, "a:bytes"}, /* the list is open */
        {"{" T("", "U8", "[1]", "[0,1]") "}", 1, SDC_OK, ""},
        {"{\"a\":{\"dtype\":\"U8\",\"extra\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, SDC_OK,
         "a"},
        /* cover */
        {"{" T("a", "I32", "[2,2]", "[0,16]") "}", 15, SDC_INVALID,
         "a is the first tensor that is"},
        {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[4,8]") "}", 5, SDC_INVALID,
         "b is the first tensor that is not whole"},
        {"{" T("b", "U8", "[4]", "[0,4]") "," T("a", "U8", "[4]", "[4,8]") "}", 7, SDC_INVALID,
         "(whole: b; not whole: a)"},
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[1,2]") "," /* */
         T("c", "U8", "[1]", "[2,3]") "," T("d", "U8", "[1]", "[3,4]") ","     /* */
         T("e", "U8", "[1]", "[4,5]") "," T("f", "U8", "[1]", "[5,6]") "}",
         0, SDC_INVALID, "(whole: none; not whole: a, b, c, d and 2 more)"},
        {"{" T("a", "I32", "[2,2]", "[0,16]") "}", 17, SDC_INVALID, "buffer not fully covered"},
        {"{}", 1, SDC_INVALID, "buffer not fully covered"},
        {"{" T("a", "U8", "[4]", "[1,5]") "}", 5, SDC_INVALID, "hole"},
        {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[5,9]") "}", 9, SDC_INVALID,
         "tensor b: invalid offset"},
        {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[3,7]") "}", 7, SDC_INVALID,
         "overlap"},
        {"{" T("a", "U8", "[4]", "[0,4]") "," T("b", "U8", "[4]", "[0,4]") "}", 4, SDC_INVALID,
         "overlap"},
        /* what a writer made of a state without tensors */
        {"{\"__metadata__\":{\"format\":\"pt\"},}", 0, SDC_INVALID,
         "not valid JSON at byte 32 of the header: expected a name in quotes"},
        {"{" T("a", "U8", "[4]", "[4,0]") "}", 4, SDC_INVALID, "invalid offset"},
        {"{" T("a", "U8", "[4]", "[-4,0]") "}", 4, SDC_INVALID, "invalid offset"},
        {"{" T("a", "U8", "[1152921504606846975]", "[0,1152921504606846975]") "}", 4, SDC_INVALID,
         "truncated"},
        /* shapes */
        {"{" T("a", "I32", "[2,3]", "[0,16]") "}", 16, SDC_INVALID, "shape and size differ"},
        {"{" T("a", "I32", "[2]", "[0,16]") "}", 16, SDC_INVALID, "shape and size differ"},
        {"{" T("a", "F4", "[3]", "[0,2]") "}", 2, SDC_INVALID, "misaligned slice"},
        {"{" T("a", "I32", "[9223372036854775807,3]", "[0,16]") "}", 16, SDC_INVALID, "overflow"},
        {"{" T("a", "I32", "[4611686018427387904]", "[0,16]") "}", 16, SDC_INVALID, "overflow"},
        {"{" T("a", "I32", "[18446744073709551616]", "[0,16]") "}", 16, SDC_INVALID, "JSON"},
        {"{" T("a", "I32", "[-2,-2]", "[0,16]") "}", 16, SDC_INVALID, "shape"},
        {"{" T("a", "I32", "[2.0,2]", "[0,16]") "}", 16, SDC_INVALID, "integer"},
        {"{" T("a", "I32", "\"2\"", "[0,16]") "}", 16, SDC_INVALID, "shape"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
               "[0,1]") "}",
         1, SDC_LIMIT, "33 dimensions"},
        /* structure */
        {"{" T("a", "U8", "[1]", "[0]") "}", 1, SDC_INVALID, "two integers"},
        {"{" T("a", "U8", "[1]", "[0,1,2]") "}", 1, SDC_INVALID, "two integers"},
        {"{" T("a", "U8", "[1]", "{}") "}", 1, SDC_INVALID, "two integers"},
        {"{" T("a", "U8", "[1]", "[0,\"1\"]") "}", 1, SDC_INVALID, "integer"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, SDC_INVALID, "a"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, SDC_INVALID, "shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, SDC_INVALID, "data_offsets"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, SDC_INVALID, "string"},
        {"{\"a\":[]}", 0, SDC_INVALID, "object"},
        {"{\"__metadata__\":[]}", 0, SDC_INVALID, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, SDC_INVALID, "__metadata__"},
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2, SDC_INVALID,
         "duplicate"},
        {"{" T("a", "U8", "[1]", "[0,1]"), 1, SDC_INVALID, "JSON"},
        {"{\"__metadata__\":{\"a\":\"b\"}", 0, SDC_INVALID, "JSON"},
        {"{\"__metadata__\":{}}}", 0, SDC_INVALID, "JSON"},
        /* what is written in another way is the same */
        {"\n{ \"\\u0061\" : { \"data_offsets\" : [ 0 , 4 ] , \"shape\" : [ 2 , 2 ] , \"dtype\" : "
         "\"U\\u0038\" } } ",
         4, SDC_OK, "a"},
        {"{\"a\\\"}\\\\\":{\"x\":[{\"]\":\"\\\"}\"}],\"dtype\":\"U8\",\"shape\":[1],\"data_"
         "offsets\":[0,1]}}",
         1, SDC_OK, "a\"}\\"},
        {"{" T("a", "U8", "[-0]", "[0,0]") "}", 0, SDC_OK, "a"},
        {"{" T("a", "U8", "[01]", "[0,1]") "}", 1, SDC_INVALID, "JSON"},
        {"{" T("a", "U8", "[1,]", "[0,1]") "}", 1, SDC_INVALID, "JSON"},
        {"{" T("a", "U8", "[1", "[0,1]") "}", 1, SDC_INVALID, "JSON"},
        {"{" T("a", "U8", "[1]", "[0,1]") ",}", 1, SDC_INVALID, "JSON at byte 53"},
        {"{" T("a", "U8", "[1]", "[0,1]") "} {}", 1, SDC_INVALID, "the end of the header"},
        {"{" T("a", "U8", "[1]", "[0,1]") " " T("b", "U8", "[1]", "[0,1]") "}", 1, SDC_INVALID,
         "JSON"},
        {"{\"a\" 1}", 0, SDC_INVALID, "JSON at byte 5"},
        {"{\"a\":}", 0, SDC_INVALID, "JSON"},
        {"{\"a\":,}", 0, SDC_INVALID, "JSON"},
        {"{\"a\":{]}", 0, SDC_INVALID, "JSON"},
        {"{\"a\nb\":1}", 0, SDC_INVALID, "JSON"},
        {"{\"a\\", 0, SDC_INVALID, "JSON"},
        {"{a:1}", 0, SDC_INVALID, "JSON at byte 1"},
        /* duplicates */
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("\\u0061", "U8", "[1]", "[1,2]") "}", 2,
         SDC_INVALID, "duplicate"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         SDC_INVALID, "duplicate"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, SDC_INVALID, "duplicate"},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, SDC_INVALID, "duplicate"},
        {"{" T("__metadata__", "U8", "[1]", "[0,1]") "}", 1, SDC_INVALID, "__metadata__"},
        {"{" T("a", "NEW", "[1]", "[0,1]") "," T("a:bytes", "U8", "[1]", "[1,2]") "}", 2,
         SDC_INVALID, "a:bytes: a duplicate"},
        {"{\"\xff\":1}", 0, SDC_INVALID, "not UTF-8"},
        {"{\"\xed\xa0\x80\":1}", 0, SDC_INVALID, "not UTF-8"},
        {"{\"a\\u0000b\":1}", 0, SDC_INVALID, "JSON"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct sdc_ckpt *c = NULL;
        make(strlen(r->header), r->header, strlen(r->header), r->n_data);
        enum sdc_status st = sdc_ckpt_open(path, NULL, &c, &err);
        if (st != r->st)
            fail_msg("%s: %s, expected %s (%s)", r->header, sdc_status_name(st),
                     sdc_status_name(r->st), st ? err.message : "");
        if (st == SDC_OK && r->message) {
            size_t t;
            assert_true(sdc_ckpt_find(c, r->message, &t));
        } else if (st != SDC_OK) {
            assert_message_has(r->message);
            assert_message_has(path);
        }
        sdc_ckpt_close(c);
    }
}

static void length_fields(void **state) {
    (void)state;
    struct sdc_ckpt *c;
    make(100000001, "{}", 2, 0);
    assert_status(SDC_LIMIT, sdc_ckpt_open(path, NULL, &c, &err));
    assert_message_has("header too large: 100000001 bytes");
    assert_message_has("over the reference reader's limit of 100000000; --max-header");
    const struct sdc_ckpt_options more = {.max_header = 100000001}, less = {.max_header = 1};
    assert_status(SDC_INVALID, sdc_ckpt_open(path, &more, &c, &err));
    assert_message_has("invalid header length: 100000001 bytes, the file has 2");
    make(2, "{}", 2, 0);
    assert_status(SDC_LIMIT, sdc_ckpt_open(path, &less, &c, &err));
    assert_message_has("over the given limit of 1;");
    make(UINT64_MAX, "{}", 2, 0);
    assert_status(SDC_LIMIT, sdc_ckpt_open(path, NULL, &c, &err));
    make(100000000, "{}", 2, 0); /* allowed as such: nothing may be allocated before the check */
    assert_status(SDC_INVALID, sdc_ckpt_open(path, NULL, &c, &err));
    assert_message_has("invalid header length: 100000000 bytes, the file has 2");
    make(3, "{}", 2, 0);
    assert_status(SDC_INVALID, sdc_ckpt_open(path, NULL, &c, &err));
    assert_message_has("invalid header length");
    make(1, "{}", 2, 0);
    assert_status(SDC_INVALID, sdc_ckpt_open(path, NULL, &c, &err));
    assert_message_has("JSON");
}

/* Types whose packing or meaning nothing says are bytes, as many as their offsets say. Complex
 * numbers are pairs. What F4's shape counts are elements of four bits, the first in the low ones
 * (PyTorch, torch/headeronly/util/Float4_e2m1fn_x2.h). */
static void types_of_other_widths(void **state) {
    (void)state;
    static const char header[] = "{" T("a", "F6_E2M3", "[4]", "[0,3]") ","           //
        T("b", "C64", "[3,1]", "[3,27]") "," T("c", "NEW", "[9,9]", "[27,28]") ","   //
        T("d", "F4", "[2,3]", "[28,31]") "," T("e", "F8_E8M0", "[1]", "[31,32]") "," //
        T("f", "F16", "[1]", "[32,34]") "," T("g", "C64", "[]", "[34,42]") "}";
    static const struct {
        const char *name, *text;
        enum sdc_dtype dtype;
        unsigned rank;
        uint64_t shape[2], n, at;
    } rows[] = {{"a:bytes", "U8", SDC_DTYPE_U8, 1, {3}, 3, 0},
                {"b", "C64", SDC_DTYPE_F32, 3, {3, 1}, 6, 3},
                {"c:bytes", "U8", SDC_DTYPE_U8, 1, {1}, 1, 27},
                {"d", "F4", SDC_DTYPE_F4, 2, {2, 3}, 6, 28},
                {"e", "F8_E8M0", SDC_DTYPE_F8_E8M0, 1, {1}, 1, 31},
                {"f", "F16", SDC_DTYPE_F16, 1, {1}, 1, 32},
                {"g", "C64", SDC_DTYPE_F32, 1, {2}, 2, 34}};
    const uint64_t data = 8 + sizeof header - 1;
    struct sdc_ckpt *c;
    struct sdc_span span;
    unsigned char x[6];
    float pair[6];
    make(sizeof header - 1, header, sizeof header - 1, 42); /* byte k holds k */
    assert_ok(sdc_ckpt_open(path, NULL, &c, &err));
    assert_int_equal(sdc_ckpt_count(c), 7);
    for (size_t i = 0; i < 7; i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        assert_string_equal(d->name, rows[i].name);
        assert_string_equal(d->dtype_text, rows[i].text);
        assert_int_equal(d->dtype, rows[i].dtype);
        assert_int_equal(d->rank, rows[i].rank);
        assert_memory_equal(d->shape, rows[i].shape,
                            (d->rank < 2 ? d->rank : 2) * sizeof *d->shape);
        assert_int_equal(d->n_elems, rows[i].n);
        assert_null(d->locked);
        assert_ok(sdc_ckpt_map(c, i, 0, &span, &err));
        assert_int_equal(span.offset, data + rows[i].at);
        assert_false(span.big_endian);
    }
    assert_string_equal(sdc_ckpt_storage(c, 0), "F6_E2M3, as bytes");
    assert_int_equal(sdc_ckpt_tensor(c, 1)->shape[2], 2); /* real and imaginary part */
    assert_ok(sdc_ckpt_map(c, 1, 3, &span, &err));
    assert_int_equal(span.offset, data + 3 + 12);
    assert_int_equal(span.size, 4);
    assert_ok(sdc_ckpt_read(c, 1, 0, 6, pair, &err)); /* at an odd address */
    uint32_t third;
    memcpy(&third, &pair[2], 4);
    assert_int_equal(third, 0x0e0d0c0b);
    /* bytes 28, 29, 30 are 0x1c, 0x1d, 0x1e */
    static const unsigned char nibbles[] = {0xc, 1, 0xd, 1, 0xe, 1};
    assert_ok(sdc_ckpt_read(c, 3, 0, 6, x, &err));
    assert_memory_equal(x, nibbles, 6);
    for (unsigned k = 0; k < 6; k++) {
        assert_ok(sdc_ckpt_map(c, 3, k, &span, &err));
        assert_int_equal(span.offset, data + 28 + k / 2);
        assert_int_equal(span.shift, k % 2 * 4);
    }
    sdc_ckpt_close(c);
}

/* A type given by the caller fits where its elements fill the bytes. */
static void types_that_the_caller_knows(void **state) {
    (void)state;
    static const char header[] =
        "{" T("a", "F99", "[3]", "[0,6]") "," T("b", "F98", "[2,2]", "[6,8]") "," T(
            "c", "F97", "[2]", "[8,11]") "," T("d", "F32", "[1]",
                                               "[11,15]") "," T("e", "F99", "[0]", "[15,15]") "}";
    static const struct sdc_ckpt_as as[] = {
        {"a", SDC_DTYPE_BF16}, {"b", SDC_DTYPE_F4}, {"*", SDC_DTYPE_I32}, {"*", SDC_DTYPE_F16}};
    static const struct sdc_ckpt_options options = {.as = as, .n_as = 4};
    static const struct {
        const char *name, *text;
        enum sdc_dtype dtype;
        uint64_t n;
    } rows[] = {{"a", "F99, taken as BF16", SDC_DTYPE_BF16, 3},
                {"b", "F98, taken as F4", SDC_DTYPE_F4, 4},
                {"c:bytes", "U8", SDC_DTYPE_U8, 3}, /* 12 bits an element */
                {"d", "F32", SDC_DTYPE_F32, 1},     /* the file says what it is */
                {"e:bytes", "U8", SDC_DTYPE_U8, 0}};
    struct sdc_ckpt *c;
    struct sdc_span span;
    uint16_t x[3];
    unsigned char nibbles[4];
    make(sizeof header - 1, header, sizeof header - 1, 15); /* byte k holds k */
    assert_ok(sdc_ckpt_open(path, &options, &c, &err));
    assert_int_equal(sdc_ckpt_count(c), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        assert_string_equal(d->name, rows[i].name);
        assert_string_equal(d->dtype_text, rows[i].text);
        assert_int_equal(d->dtype, rows[i].dtype);
        assert_int_equal(d->n_elems, rows[i].n);
        assert_null(d->locked);
    }
    assert_int_equal(sdc_ckpt_tensor(c, 1)->shape[1], 2);
    assert_ok(sdc_ckpt_read(c, 0, 0, 3, x, &err));
    assert_int_equal(x[2], 0x0504);
    assert_ok(sdc_ckpt_map(c, 0, 2, &span, &err));
    assert_int_equal(span.offset, 8 + sizeof header - 1 + 4);
    assert_ok(sdc_ckpt_read(c, 1, 0, 4, nibbles, &err));
    assert_memory_equal(nibbles, "\6\0\7\0", 4);
    sdc_ckpt_close(c);
}

/* Opens; on success every element of every tensor must be inside and readable. */
static void survive(void) {
    struct sdc_ckpt *c = NULL;
    if (sdc_ckpt_open(path, NULL, &c, &err) != SDC_OK)
        return;
    for (size_t i = 0; i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        struct sdc_span span;
        unsigned char buffer[64];
        if (d->locked || d->n_elems == 0)
            continue;
        assert_ok(sdc_ckpt_map(c, i, 0, &span, &err));
        assert_ok(sdc_ckpt_map(c, i, d->n_elems - 1, &span, &err));
        assert_true(span.offset + span.size <= sdc_ckpt_file_size(c));
        assert_true(d->n_elems * span.size <= sizeof buffer);
        assert_ok(sdc_ckpt_read(c, i, 0, d->n_elems, buffer, &err));
    }
    sdc_ckpt_close(c);
}

static void every_changed_byte_is_survived(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"k\":\"v\"}," T(
        "a", "F32", "[2,1]", "[0,8]") "," T("b\\n", "BF16", "[2]", "[8,12]") "}";
    const size_t n = sizeof header - 1;
    struct sdc_file f;
    unsigned char old, changed;
    make(n, header, n, 12);
    survive();
    assert_ok(sdc__file_open(path, SDC_FILE_UPDATE, &f, &err));
    for (size_t at = 0; at < 8 + n; at++) {
        assert_ok(sdc__file_read(&f, at, &old, 1, &err));
        for (unsigned v = 0; v < 256; v++) {
            changed = (unsigned char)v;
            assert_ok(sdc__file_write(&f, at, &changed, 1, &err));
            survive();
        }
        assert_ok(sdc__file_write(&f, at, &old, 1, &err));
    }
    sdc__file_close(&f);
}

/* The file changes after it was opened: reading reports it. */
static void a_file_that_shrinks_is_reported(void **state) {
    (void)state;
    static const char header[] = "{" T("a", "U8", "[8]", "[0,8]") "}";
    struct sdc_ckpt *c;
    struct sdc_file f;
    unsigned char buffer[8];
    make(sizeof header - 1, header, sizeof header - 1, 8);
    assert_ok(sdc_ckpt_open(path, NULL, &c, &err));
    assert_ok(sdc__file_open(path, SDC_FILE_UPDATE, &f, &err));
    assert_ok(sdc__file_truncate(&f, f.size - 3, &err));
    sdc__file_close(&f);
    assert_ok(sdc_ckpt_read(c, 0, 0, 5, buffer, &err));
    assert_status(SDC_INVALID, sdc_ckpt_read(c, 0, 0, 8, buffer, &err));
    assert_message_has("tensor a");
    assert_message_has("truncated");
    sdc_ckpt_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_the_reference_reader),
        cmocka_unit_test(length_fields),
        cmocka_unit_test(types_of_other_widths),
        cmocka_unit_test(types_that_the_caller_knows),
        cmocka_unit_test(every_changed_byte_is_survived),
        cmocka_unit_test(a_file_that_shrinks_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
