/* SPDX-License-Identifier: Apache-2.0
 *
 * The small parts of the report: escaping, counting, and gnuplot as a child that may misbehave.
 */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/guard.h"
#include "report/report_internal.h"

static void text_is(struct sdc_buf *b, const char *want) {
    assert_false(b->failed);
    assert_string_equal(b->data ? b->data : "", want);
    sdc__buf_release(b);
}

static void html_escapes(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__html_text(&b, "<a href=\"x\" id='y'>&amp;\x01\n</a>");
    text_is(&b, "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;\xef\xbf\xbd\n&lt;/a&gt;");
    sdc__html_text(&b, NULL);
    text_is(&b, "\xe2\x80\x93");
}

static void csv_quotes(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__csv_text(&b, "plain text");
    text_is(&b, "plain text");
    sdc__csv_text(&b, "a,\"b\"\nc");
    text_is(&b, "\"a,\"\"b\"\"\nc\"");
    sdc__csv_text(&b, NULL);
    sdc__csv_f64(&b, NAN);
    text_is(&b, "");
    sdc__csv_f64(&b, -INFINITY);
    text_is(&b, "-inf");
    sdc__csv_f64(&b, 0.1);
    text_is(&b, "0.10000000000000001");
}

static void gnuplot_strings_hold_anything(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__gnuplot_text(&b, "it's `id` \n$x", 80);
    text_is(&b, "'it''s `id`  $x'");
    sdc__gnuplot_text(&b, "äöüß", 3); /* characters, not bytes */
    text_is(&b, "'äöü…'");
    sdc__gnuplot_text(&b, "äöüß", 4);
    text_is(&b, "'äöüß'");
}

static void only_what_reached_a_rank_has_an_outcome(void **state) {
    (void)state;
    struct sdc_report_cell c = {.label = "c"};
    struct sdc_outcome o = {.result = SDC_RESULT_DONE, .exposure = SDC_EXPOSURE_SPREAD};
    o.numeric = SDC_NUMERIC_NONFINITE_NOW;
    sdc__report_cell_add(&c, &o);
    o.exposure = SDC_EXPOSURE_ERASED;
    o.numeric = SDC_NUMERIC_FINITE;
    sdc__report_cell_add(&c, &o);
    o.exposure = SDC_EXPOSURE_NOT_READ;
    sdc__report_cell_add(&c, &o);
    o.exposure = SDC_EXPOSURE_KEPT;
    sdc__report_cell_add(&c, &o);
    o.result = SDC_RESULT_HARNESS_ERROR;
    sdc__report_cell_add(&c, &o);
    assert_int_equal(sdc__report_cell_done(&c), 4);
    assert_int_equal(sdc__report_cell_reached(&c), 2);
    assert_int_equal(c.n_collapse, 1);
    assert_int_equal(c.counts[SDC_AXIS_RESULT][SDC_RESULT_HARNESS_ERROR], 1);
    assert_int_equal(c.counts[SDC_AXIS_EXPOSURE][SDC_EXPOSURE_ERASED], 1);
    assert_int_equal(c.counts[SDC_AXIS_NUMERIC][SDC_NUMERIC_FINITE], 1);
    assert_int_equal(c.counts[SDC_AXIS_NUMERIC][SDC_NUMERIC_NONFINITE_NOW], 1);
}

static size_t count_of(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* 2 x 2 x 13 cells: 26 in a group by the first factor alone are too many to be taken in. */
static void long_tables_of_cells_are_split(void **state) {
    (void)state;
    static const char *const factors[] = {"ranks", "bits", "flips"};
    static const char *const ranks[] = {"2", "4"}, *const bits[] = {"any", "sign"};
    static const char *const flips[] = {"0", "1", "2", "3",  "4",  "5", "6",
                                        "7", "8", "9", "10", "11", "12"};
    const char *values[52][3];
    struct sdc_report_cell cells[52] = {{0}};
    for (size_t i = 0; i < 52; i++) {
        values[i][0] = ranks[i / 26];
        values[i][1] = bits[i / 13 % 2];
        values[i][2] = flips[i % 13];
        cells[i] = (struct sdc_report_cell){.label = "c", .values = values[i], .n_planned = 3};
    }
    struct sdc_report r = {.factors = factors, .n_factors = 3, .cells = cells, .n_cells = 52};
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__html_cells(&b, &r);
    assert_int_equal(count_of(b.data, "class=\"group\""), 4);
    assert_non_null(strstr(b.data, "ranks: 4, bits: sign</th>"));
    assert_int_equal(count_of(b.data, "<tr class=\"cell\">"), 52);
    sdc__buf_clear(&b);
    r.n_cells = 24; /* short enough: one factor in headings */
    sdc__html_cells(&b, &r);
    assert_int_equal(count_of(b.data, "class=\"group\""), 1);
    assert_non_null(strstr(b.data, "ranks: 2</th>"));
    sdc__buf_release(&b);
}

/* A stand-in for gnuplot, in the scratch folder. */
static void install(const char *script) {
    FILE *f = fopen("fake-gnuplot", "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", script);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod("fake-gnuplot", 0755), 0);
    assert_int_equal(setenv("SDC_GNUPLOT", "./fake-gnuplot", 1), 0);
}

static void gnuplot_may_misbehave(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_buf out = SDC_BUF_INIT;
    install("cat");
    assert_ok(sdc__gnuplot_run("plot x\n", 7, 10000, &out, &err));
    text_is(&out, "plot x\n");
    install("echo 'line 3: warning: names are long' >&2; echo done");
    assert_ok(sdc__gnuplot_run("", 0, 10000, &out, &err));
    text_is(&out, "done\n");
    install("echo 'undefined variable: y' >&2; echo done");
    assert_status(SDC_PEER, sdc__gnuplot_run("", 0, 10000, &out, &err));
    assert_message_has("undefined variable: y");
    install("exit 3");
    assert_status(SDC_PEER, sdc__gnuplot_run("", 0, 10000, &out, &err));
    assert_message_has("exited with 3");
    install("kill -9 $$");
    assert_status(SDC_PEER, sdc__gnuplot_run("", 0, 10000, &out, &err));
    assert_message_has("signal 9");
    setenv("SDC_GNUPLOT", "./no-such-program", 1);
    assert_status(SDC_NOT_FOUND, sdc__gnuplot_run("", 0, 10000, &out, &err));
    assert_message_has("gnuplot-nox");
    unsetenv("SDC_GNUPLOT");
    sdc__buf_release(&out);
}

static void a_hanging_gnuplot_is_ended(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_buf out = SDC_BUF_INIT;
    uint64_t begin = sdc__now_ns();
    install("exec sleep 60");
    assert_status(SDC_TIMEOUT, sdc__gnuplot_run("", 0, 200, &out, &err));
    assert_message_has("200 ms");
    assert_true(sdc__now_ns() - begin < UINT64_C(20000000000));
    unsetenv("SDC_GNUPLOT");
    sdc__buf_release(&out);
}

static void writers_are_named(void **state) {
    (void)state;
    size_t n;
    const struct sdc_report_writer_ops *const *all = sdc__report_writers(&n);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(all[i]->write);
        assert_true(strlen(all[i]->name) > 0 && strlen(all[i]->summary) > 0);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(all[i]->name, all[j]->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(html_escapes),
        cmocka_unit_test(csv_quotes),
        cmocka_unit_test(gnuplot_strings_hold_anything),
        cmocka_unit_test(only_what_reached_a_rank_has_an_outcome),
        cmocka_unit_test(long_tables_of_cells_are_split),
        cmocka_unit_test(gnuplot_may_misbehave),
        cmocka_unit_test(a_hanging_gnuplot_is_ended),
        cmocka_unit_test(writers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
