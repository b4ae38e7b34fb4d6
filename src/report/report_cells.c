/* SPDX-License-Identifier: Apache-2.0
 *
 * Exposure and outcome shares of each cell, as bars with their numbers.
 */
#include "report/report_internal.h"

#include <math.h>
#include <string.h>

#include "base/guard.h"

#define GROUP_ROWS 24 /* about half a screen */

struct axis_view {
    enum sdc_axis axis;
    const char *name;
};

static const struct axis_view outcome_axes[] = {
    {SDC_AXIS_NUMERIC, "Numeric state"},
    {SDC_AXIS_TRAJECTORY, "Trajectory"},
    {SDC_AXIS_QUALITY, "Final quality"},
    {SDC_AXIS_REPLICAS, "Replicas"},
};

#define N_AXES (sizeof outcome_axes / sizeof *outcome_axes)

/* Hides every outcome bar and legend but those of the chosen axis; works without the script. */
static void axis_rules(struct sdc_buf *b) {
    sdc__buf_puts(b, "<style>");
    for (size_t i = 0; i < N_AXES; i++) {
        const char *name = sdc_axis_name(outcome_axes[i].axis);
        sdc__buf_printf(b,
                        "#ax-%s:checked~* .ax-%s{display:flex}#ax-%s:checked~ul.ax-%s"
                        "{display:block}",
                        name, name, name, name);
    }
    sdc__buf_puts(b, "</style>\n");
}

static void tooltip(struct sdc_buf *b, const char *label, uint64_t x, uint64_t of) {
    struct sdc_report_interval s = sdc__report_share(x, of);
    sdc__html_text(b, label);
    sdc__buf_printf(b, ": %llu of %llu, %.1f %% (%.1f to %.1f)", (unsigned long long)x,
                    (unsigned long long)of, 100 * s.share, 100 * s.low, 100 * s.high);
}

/* A part of a bar of `whole` trials; the interval of its tooltip is over `of`. */
static void segment(struct sdc_buf *b, const char *axis, int value, const char *label, uint64_t x,
                    uint64_t of, uint64_t whole) {
    double share = 100 * (double)x / (double)whole;
    if (x == 0)
        return;
    sdc__buf_printf(b, "<span class=\"seg%s ", share < 8 ? " thin" : "");
    if (value < 0)
        sdc__buf_puts(b, "unreached");
    else
        sdc__buf_printf(b, "%s-%d", axis, value);
    sdc__buf_printf(b, "\" style=\"flex:%llu 0 0\" title=\"", (unsigned long long)x);
    tooltip(b, label, x, of);
    sdc__buf_puts(b, "\">");
    if (share >= 8) {
        sdc__buf_printf(b, "%.0f&thinsp;%% ", share);
        if (share >= 30)
            sdc__html_text(b, label);
    }
    sdc__buf_puts(b, "</span>");
}

static void exposure_bar(struct sdc_buf *b, const struct sdc_report_cell *c) {
    uint64_t done = sdc__report_cell_done(c);
    sdc__buf_puts(b, "<div class=\"bar\">");
    for (int v = 0; v < sdc_axis_count(SDC_AXIS_EXPOSURE); v++)
        segment(b, "exposure", v, sdc_label_text(SDC_AXIS_EXPOSURE, v),
                c->counts[SDC_AXIS_EXPOSURE][v], done, done);
    sdc__buf_puts(b, "</div>");
}

static void outcome_bar(struct sdc_buf *b, const struct sdc_report_cell *c, enum sdc_axis axis) {
    uint64_t done = sdc__report_cell_done(c), reached = sdc__report_cell_reached(c);
    const char *name = sdc_axis_name(axis);
    sdc__buf_printf(b, "<div class=\"bar ax ax-%s\">", name);
    segment(b, name, -1, "not reached", done - reached, done, done);
    for (int v = 0; v < sdc_axis_count(axis); v++)
        segment(b, name, v, sdc_label_text(axis, v), c->counts[axis][v], reached, done);
    sdc__buf_puts(b, "</div>");
}

static void trials_cell(struct sdc_buf *b, const struct sdc_report_cell *c) {
    uint64_t done = sdc__report_cell_done(c);
    sdc__buf_printf(b, "<td class=\"n\" data-h=\"Trials\">%llu", (unsigned long long)done);
    if (done != c->n_planned)
        sdc__buf_printf(b, " of %llu", (unsigned long long)c->n_planned);
    for (int v = 0; v < sdc_axis_count(SDC_AXIS_RESULT); v++) {
        if (v == SDC_RESULT_DONE || c->counts[SDC_AXIS_RESULT][v] == 0)
            continue;
        sdc__buf_printf(b, "<small>%llu ", (unsigned long long)c->counts[SDC_AXIS_RESULT][v]);
        sdc__html_text(b, sdc_label_text(SDC_AXIS_RESULT, v));
        sdc__buf_puts(b, "</small>");
    }
    sdc__buf_puts(b, "</td>");
}

static void cell_row(struct sdc_buf *b, const struct sdc_report *r, const struct sdc_report_cell *c,
                     size_t n_heading) {
    uint64_t done = sdc__report_cell_done(c);
    struct sdc_report_interval s = sdc__report_share(c->n_collapse, done);
    sdc__buf_puts(b, "<tr class=\"cell\">");
    for (size_t f = n_heading; f < r->n_factors; f++) {
        sdc__buf_puts(b, "<td data-h=\"");
        sdc__html_text(b, r->factors[f]);
        sdc__buf_puts(b, "\">");
        sdc__html_text(b, c->values[f]);
        sdc__buf_puts(b, "</td>");
    }
    trials_cell(b, c);
    sdc__buf_puts(b, "<td class=\"n\" data-h=\"Collapsed\">");
    if (done == 0)
        sdc__buf_puts(b, "–</td><td class=\"x\"></td><td class=\"o\"></td></tr>\n");
    if (done == 0)
        return;
    sdc__buf_printf(b, "%.0f&nbsp;%% <span class=\"dim\">(%.0f–%.0f)</span></td>", 100 * s.share,
                    100 * s.low, 100 * s.high);
    sdc__buf_puts(b, "<td class=\"x\" data-h=\"Exposure\">");
    exposure_bar(b, c);
    sdc__buf_puts(b, "</td><td class=\"o\" data-h=\"Outcome\">");
    for (size_t i = 0; i < N_AXES; i++)
        outcome_bar(b, c, outcome_axes[i].axis);
    sdc__buf_puts(b, "</td></tr>\n");
}

static const char *value_of(const struct sdc_report *r, size_t cell, size_t factor) {
    const char *v = r->cells[cell].values[factor];
    return v ? v : "";
}

/* Whether two cells have the same first n factors. */
static bool same_group(const struct sdc_report *r, size_t a, size_t b, size_t n) {
    for (size_t f = 0; f < n; f++)
        if (strcmp(value_of(r, a, f), value_of(r, b, f)) != 0)
            return false;
    return true;
}

static size_t largest_group(const struct sdc_report *r, size_t n) {
    size_t largest = 0;
    for (size_t i = 0, end; i < r->n_cells; i = end) {
        for (end = i + 1; end < r->n_cells && same_group(r, i, end, n);)
            end++;
        largest = end - i > largest ? end - i : largest;
    }
    return largest;
}

/* How many factors stand in headings rather than in columns: one, and more of them while groups are
 * too long to be taken in; the last one, which is compared, is always a column. */
static size_t heading_factors(const struct sdc_report *r) {
    size_t n = r->n_factors > 0 ? 1 : 0;
    while (n + 1 < r->n_factors && largest_group(r, n) > GROUP_ROWS)
        n++;
    return n;
}

static bool first_of_group(const struct sdc_report *r, size_t cell, size_t n) {
    for (size_t i = 0; i < cell; i++)
        if (same_group(r, i, cell, n))
            return false;
    return true;
}

static void group_heading(struct sdc_buf *b, const struct sdc_report *r, size_t cell, size_t n) {
    sdc__buf_printf(b, "<tr><th class=\"group\" colspan=\"%zu\">", r->n_factors - n + 4);
    for (size_t f = 0; f < n; f++) {
        sdc__buf_puts(b, f ? ", " : "");
        sdc__html_text(b, r->factors[f]);
        sdc__buf_puts(b, ": ");
        sdc__html_text(b, r->cells[cell].values[f]);
    }
    sdc__buf_puts(b, "</th></tr>\n");
}

static void table(struct sdc_buf *b, const struct sdc_report *r) {
    size_t n = heading_factors(r);
    sdc__buf_puts(b, "<div class=\"scroll\"><table class=\"cells stack\"><thead><tr>");
    for (size_t f = n; f < r->n_factors; f++) {
        sdc__buf_puts(b, "<th>");
        sdc__html_text(b, r->factors[f]);
        sdc__buf_puts(b, "</th>");
    }
    sdc__buf_puts(b, "<th class=\"n\">Trials</th><th class=\"n\">Collapsed (95 %)</th>"
                     "<th>Exposure</th><th>Outcome</th></tr></thead>\n");
    for (size_t g = 0; g < r->n_cells; g++) {
        if (!first_of_group(r, g, n))
            continue;
        sdc__buf_puts(b, "<tbody>");
        if (n > 0)
            group_heading(b, r, g, n);
        for (size_t i = g; i < r->n_cells; i++)
            if (same_group(r, i, g, n))
                cell_row(b, r, &r->cells[i], n);
        sdc__buf_puts(b, "</tbody>\n");
    }
    sdc__buf_puts(b, "</table></div>\n");
}

static void legend(struct sdc_buf *b, enum sdc_axis axis, const char *class_name) {
    const char *name = sdc_axis_name(axis);
    sdc__buf_printf(b, "<ul class=\"legend %s\">\n", class_name);
    if (axis != SDC_AXIS_EXPOSURE)
        sdc__buf_puts(b, "<li><span class=\"sw unreached\"></span><b>not reached</b>: no rank held "
                         "altered bits after start-up (see exposure), so the outcome says nothing "
                         "about the fault</li>\n");
    for (int v = 0; v < sdc_axis_count(axis); v++) {
        sdc__buf_printf(b, "<li><span class=\"sw %s-%d\"></span><b>", name, v);
        sdc__html_text(b, sdc_label_text(axis, v));
        sdc__buf_puts(b, "</b>: ");
        sdc__html_text(b, sdc_label_meaning(axis, v));
        sdc__buf_puts(b, "</li>\n");
    }
    sdc__buf_puts(b, "</ul>\n");
}

static void list_shares(struct sdc_buf *b, const struct sdc_report_cell *c, enum sdc_axis axis,
                        uint64_t of) {
    bool any = false;
    for (int v = 0; v < sdc_axis_count(axis); v++) {
        if (c->counts[axis][v] == 0)
            continue;
        sdc__buf_puts(b, any ? "<br>" : "");
        tooltip(b, sdc_label_text(axis, v), c->counts[axis][v], of);
        any = true;
    }
    sdc__buf_puts(b, any ? "" : "–");
}

static void numbers(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "<details style=\"margin-top:14px\"><summary>All shares with their 95 % "
                     "intervals</summary>\n<p class=\"note\">Outcomes are shares of the trials "
                     "that reached a rank.</p>\n<div class=\"scroll\"><table><thead><tr>"
                     "<th>Cell</th><th>Exposure</th>");
    for (size_t i = 0; i < N_AXES; i++)
        sdc__buf_printf(b, "<th>%s</th>", outcome_axes[i].name);
    sdc__buf_puts(b, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < r->n_cells; i++) {
        const struct sdc_report_cell *c = &r->cells[i];
        sdc__buf_puts(b, "<tr><td>");
        sdc__html_text(b, c->label);
        sdc__buf_puts(b, "</td><td class=\"nowrap note\">");
        list_shares(b, c, SDC_AXIS_EXPOSURE, sdc__report_cell_done(c));
        for (size_t k = 0; k < N_AXES; k++) {
            sdc__buf_puts(b, "</td><td class=\"nowrap note\">");
            list_shares(b, c, outcome_axes[k].axis, sdc__report_cell_reached(c));
        }
        sdc__buf_puts(b, "</td></tr>\n");
    }
    sdc__buf_puts(b, "</tbody></table></div></details>\n");
}

void sdc__html_cells(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "<section id=\"outcomes\">\n<h2>Exposure and outcomes per cell</h2>\n");
    if (r->n_cells == 0) {
        sdc__buf_puts(b, "<p class=\"dim\">The plan has no cells.</p>\n</section>\n");
        return;
    }
    sdc__buf_puts(
        b, "<p>Each bar is all finished trials of a cell. Exposure says where altered "
           "bits were after start-up; trials that reached no rank are hatched in the "
           "outcome bars and never count as without effect. Hold the pointer over a part "
           "for its count and 95 % Wilson interval; all of them are in a table below.</p>\n");
    axis_rules(b);
    sdc__buf_puts(b, "<div class=\"axes\"><span class=\"lead\">Outcome shown:</span>\n");
    for (size_t i = 0; i < N_AXES; i++) {
        const char *name = sdc_axis_name(outcome_axes[i].axis);
        sdc__buf_printf(b,
                        "<input type=\"radio\" name=\"axis\" id=\"ax-%s\"%s>"
                        "<label for=\"ax-%s\">%s</label>\n",
                        name, i == 0 ? " checked" : "", name, outcome_axes[i].name);
    }
    table(b, r);
    sdc__buf_puts(b, "<h3>Exposure</h3>\n");
    legend(b, SDC_AXIS_EXPOSURE, "");
    sdc__buf_puts(b, "<h3>Outcome shown</h3>\n");
    for (size_t i = 0; i < N_AXES; i++) {
        char class_name[64];
        snprintf(class_name, sizeof class_name, "ax ax-%s", sdc_axis_name(outcome_axes[i].axis));
        legend(b, outcome_axes[i].axis, class_name);
    }
    sdc__buf_puts(b, "</div>\n");
    numbers(b, r);
    sdc__buf_puts(b, "</section>\n");
}
