/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of work, the table of writers, and the small things that they share.
 */
#include "report/report.h"

#include <math.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "io/io.h"
#include "report/report_internal.h"

#define FITS(axis) _Static_assert(SDC_##axis##_COUNT <= SDC_REPORT_LABELS, #axis " has more labels")
FITS(RESULT);
FITS(EXPOSURE);
FITS(NUMERIC);
FITS(TRAJECTORY);
FITS(QUALITY);
FITS(REPLICAS);

void sdc__report_cell_add(struct sdc_report_cell *cell, const struct sdc_outcome *outcome) {
    cell->counts[SDC_AXIS_RESULT][outcome->result]++;
    if (outcome->result != SDC_RESULT_DONE)
        return;
    cell->counts[SDC_AXIS_EXPOSURE][outcome->exposure]++;
    cell->n_collapse += sdc_outcome_is_collapse(outcome) ? 1 : 0;
    if (outcome->exposure != SDC_EXPOSURE_KEPT && outcome->exposure != SDC_EXPOSURE_SPREAD)
        return;
    for (int axis = SDC_AXIS_NUMERIC; axis < SDC_AXIS_COUNT; axis++)
        cell->counts[axis][sdc_outcome_get(outcome, (enum sdc_axis)axis)]++;
}

uint64_t sdc__report_cell_done(const struct sdc_report_cell *cell) {
    return cell->counts[SDC_AXIS_RESULT][SDC_RESULT_DONE];
}

uint64_t sdc__report_cell_reached(const struct sdc_report_cell *cell) {
    return cell->counts[SDC_AXIS_EXPOSURE][SDC_EXPOSURE_KEPT] +
           cell->counts[SDC_AXIS_EXPOSURE][SDC_EXPOSURE_SPREAD];
}

void sdc__html_text(struct sdc_buf *b, const char *s) {
    if (!s)
        s = "\xe2\x80\x93"; /* en dash */
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        switch (c) {
        case '&':
            sdc__buf_puts(b, "&amp;");
            break;
        case '<':
            sdc__buf_puts(b, "&lt;");
            break;
        case '>':
            sdc__buf_puts(b, "&gt;");
            break;
        case '"':
            sdc__buf_puts(b, "&quot;");
            break;
        case '\'':
            sdc__buf_puts(b, "&#39;");
            break;
        default:
            if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
                sdc__buf_puts(b, "\xef\xbf\xbd");
            else
                sdc__buf_putc(b, *s);
        }
    }
}

void sdc__csv_text(struct sdc_buf *b, const char *s) {
    bool quote = false;
    if (!s)
        return;
    for (const char *p = s; *p; p++)
        quote = quote || *p == ',' || *p == '"' || *p == '\n' || *p == '\r';
    if (!quote) {
        sdc__buf_puts(b, s);
        return;
    }
    sdc__buf_putc(b, '"');
    for (; *s; s++) {
        if (*s == '"')
            sdc__buf_putc(b, '"');
        sdc__buf_putc(b, *s);
    }
    sdc__buf_putc(b, '"');
}

void sdc__csv_f64(struct sdc_buf *b, double v) {
    if (isinf(v))
        sdc__buf_puts(b, v > 0 ? "inf" : "-inf");
    else if (!isnan(v))
        sdc__buf_printf(b, "%.17g", v);
}

struct sdc_report_interval sdc__report_share(uint64_t x, uint64_t n) {
    struct sdc_report_interval out = {NAN, 0, 1};
    struct sdc_stat_interval w;
    if (n > 0 && sdc__stat_wilson(x, n, SDC_REPORT_LEVEL, &w, NULL) == SDC_OK)
        out = (struct sdc_report_interval){(double)x / (double)n, w.low, w.high};
    return out;
}

enum sdc_status sdc__report_put(const char *dir, const char *sub, const char *name,
                                const struct sdc_buf *b, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    char *folder = sub ? sdc__path_join(dir, sub) : sdc__strdup(dir), *path = NULL;
    if (b->failed || !folder) {
        st = SDC_NOMEM(err, name);
        goto out;
    }
    SDC_TRY_OUT(st, sdc__make_dirs(folder, err));
    path = sdc__path_join(folder, name);
    if (!path) {
        st = SDC_NOMEM(err, name);
        goto out;
    }
    st = sdc__write_whole(path, b->data ? b->data : "", b->len, false, err);
out:
    sdc__free(path);
    sdc__free(folder);
    return st;
}

const struct sdc_report_writer_ops *const *sdc__report_writers(size_t *n) {
    static const struct sdc_report_writer_ops *const all[] = {
        &sdc_report_writer_svg,
        &sdc_report_writer_csv,
        &sdc_report_writer_json,
        &sdc_report_writer_html,
    };
    *n = sizeof all / sizeof *all;
    return all;
}

enum sdc_status sdc__report_write(const struct sdc_report *r, const char *dir,
                                  struct sdc_error *err) {
    struct sdc_report_figure *figures = NULL;
    size_t n_figures = 0, n_writers;
    const struct sdc_report_writer_ops *const *writers = sdc__report_writers(&n_writers);
    enum sdc_status st = sdc__report_figures(r, &figures, &n_figures, err);
    for (size_t i = 0; i < n_writers && st == SDC_OK; i++)
        st = writers[i]->write(r, figures, n_figures, dir, err);
    sdc__report_figures_free(figures, n_figures);
    return st;
}
