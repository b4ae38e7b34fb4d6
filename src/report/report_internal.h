/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of src/report share. Not for use outside.
 */
#ifndef SDC_REPORT_REPORT_INTERNAL_H
#define SDC_REPORT_REPORT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "report/report.h"

#define SDC_REPORT_LEVEL 0.95 /* of the descriptive intervals */
/* Rows of the table of trials in the page; a browser gets slow above it. The CSV has all. */
#define SDC_REPORT_MAX_ROWS 10000

extern const struct sdc_report_writer_ops sdc_report_writer_html;
extern const struct sdc_report_writer_ops sdc_report_writer_svg;
extern const struct sdc_report_writer_ops sdc_report_writer_csv;
extern const struct sdc_report_writer_ops sdc_report_writer_json;

/* Text for HTML, also inside a quoted attribute; NULL becomes a dash. Control characters become
 * U+FFFD. */
void sdc__html_text(struct sdc_buf *b, const char *s);
/* A CSV field with its quotes where it needs them (RFC 4180), without the comma. NULL: empty. */
void sdc__csv_text(struct sdc_buf *b, const char *s);
/* A number that reads back equal; NaN: empty; infinities: inf, -inf. */
void sdc__csv_f64(struct sdc_buf *b, double v);

struct sdc_report_interval {
    double share, low, high; /* NaN share for n = 0 */
};
/* x of n with its Wilson interval at SDC_REPORT_LEVEL; x is at most n. */
struct sdc_report_interval sdc__report_share(uint64_t x, uint64_t n);

/* Draws all figures that have data into *out (sdc__report_figures_free). */
enum sdc_status sdc__report_figures(const struct sdc_report *r, struct sdc_report_figure **out,
                                    size_t *n, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__report_figures_free(struct sdc_report_figure *figures, size_t n);

/* Runs gnuplot on a script and appends its standard output. No shell; SDC_GNUPLOT in the
 * environment names another program. SDC_NOT_FOUND if it is not installed, SDC_TIMEOUT, SDC_PEER
 * with what it said if it fails or says anything but warnings. */
enum sdc_status sdc__gnuplot_run(const char *script, size_t len, unsigned timeout_ms,
                                 struct sdc_buf *out, struct sdc_error *err) SDC_MUST_CHECK;
/* A single-quoted gnuplot string, in which nothing is substituted; names longer than max
 * characters are cut with an ellipsis. */
void sdc__gnuplot_text(struct sdc_buf *b, const char *s, int max);

/* The parts of the page, in page order (report_html.c calls them). */
void sdc__html_claims(struct sdc_buf *b, const struct sdc_report *r);
void sdc__html_controls(struct sdc_buf *b, const struct sdc_report *r);
void sdc__html_cells(struct sdc_buf *b, const struct sdc_report *r);
void sdc__html_trials(struct sdc_buf *b, const struct sdc_report *r);

/* Writes dir/sub/name (sub NULL: dir/name) atomically, creating dir/sub; b must hold no failure,
 * else SDC_NO_MEMORY. */
enum sdc_status sdc__report_put(const char *dir, const char *sub, const char *name,
                                const struct sdc_buf *b, struct sdc_error *err) SDC_MUST_CHECK;

#endif
