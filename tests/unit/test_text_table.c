/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cli/text_table.h"
#include "test.h"

static struct sdc_error err;

static void columns_line_up(void **state) {
    (void)state;
    struct sdc_text_table t = {.columns = "lrl"};
    static const char *const cells[] = {
        "name", "n", "note",        "a", "10", "", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9",
        "7",    "x", "b\x1b\n\x7f", "1"};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        sdc_text_cell(&t, "%s", cells[i]);
    assert_ok(sdc_text_table_print(&t, out, &err));
    fclose(out);
    /* five characters of two bytes each, no blanks at the end of lines, no control characters */
    assert_string_equal(text, "  name    n  note\n"
                              "  a      10\n"
                              "  \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9   7  x\n"
                              "  b???    1\n");
    free(text); /* open_memstream allocates with the system's malloc */
    assert_null(t.cells.data);
}

static void counts_and_sizes(void **state) {
    (void)state;
    char text[SDC_TEXT_COUNT];
    assert_string_equal(sdc_text_of_count(0, text), "0");
    assert_string_equal(sdc_text_of_count(999, text), "999");
    assert_string_equal(sdc_text_of_count(1000, text), "1,000");
    assert_string_equal(sdc_text_of_count(61706, text), "61,706");
    assert_string_equal(sdc_text_of_count(UINT64_MAX, text), "18,446,744,073,709,551,615");
    assert_string_equal(sdc_text_of_bytes(1023, text), "1023 B");
    assert_string_equal(sdc_text_of_bytes(1024, text), "1.0 KiB");
    assert_string_equal(sdc_text_of_bytes(3ull << 30, text), "3.0 GiB");
    assert_string_equal(sdc_text_of_bytes(UINT64_MAX, text), "16777216.0 TiB");
}

static void bits(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    sdc_text_of_bits(1, &b);
    assert_string_equal(b.data, "lsb:0");
    sdc_text_of_bits(0x8000000000000001, &b);
    assert_string_equal(b.data, "lsb:0,lsb:63");
    sdc_text_of_bits(UINT64_MAX, &b);
    assert_string_equal(b.data, "lsb:0-63");
    sdc_text_of_bits(0x4e, &b);
    assert_string_equal(b.data, "lsb:1-3,lsb:6");
    sdc__buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_line_up),
        cmocka_unit_test(counts_and_sizes),
        cmocka_unit_test(bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
