/* SPDX-License-Identifier: Apache-2.0
 *
 * The page: one file, nothing loaded from anywhere, complete without its script.
 */
#include "report/report_internal.h"

#include <math.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "report/report_assets.h"

static void head(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                     "<link rel=\"icon\" href=\"data:,\">\n<title>");
    sdc__html_text(b, r->campaign);
    sdc__buf_puts(b, " – sdclab report</title>\n<style>\n");
    sdc__buf_append(b, page_css, sizeof page_css);
    sdc__buf_puts(b, "</style>\n</head>\n<body>\n");
}

static void fact(struct sdc_buf *b, const char *name, const char *value) {
    sdc__buf_puts(b, "<div><dt>");
    sdc__html_text(b, name);
    sdc__buf_puts(b, "</dt><dd>");
    sdc__html_text(b, value);
    sdc__buf_puts(b, "</dd></div>\n");
}

static void fact_count(struct sdc_buf *b, const char *name, uint64_t n, uint64_t of) {
    sdc__buf_puts(b, "<div><dt>");
    sdc__html_text(b, name);
    sdc__buf_printf(b, "</dt><dd>%llu", (unsigned long long)n);
    if (of != n)
        sdc__buf_printf(b, " of %llu", (unsigned long long)of);
    sdc__buf_puts(b, "</dd></div>\n");
}

static void title(struct sdc_buf *b, const struct sdc_report *r) {
    uint64_t planned = 0, ran = 0;
    for (size_t i = 0; i < r->n_cells; i++) {
        planned += r->cells[i].n_planned;
        for (int v = 0; v < SDC_REPORT_LABELS; v++)
            ran += r->cells[i].counts[SDC_AXIS_RESULT][v];
    }
    sdc__buf_puts(b, "<header>\n<h1>");
    sdc__html_text(b, r->campaign);
    sdc__buf_puts(b, "</h1>\n");
    if (r->summary) {
        sdc__buf_puts(b, "<p class=\"lede\">");
        sdc__html_text(b, r->summary);
        sdc__buf_puts(b, "</p>\n");
    }
    sdc__buf_puts(b, "<dl class=\"facts\">\n");
    fact_count(b, "Trials", ran, planned);
    fact_count(b, "Cells", r->n_cells, r->n_cells);
    fact_count(b, "Seed", r->seed, r->seed);
    fact(b, "Started", r->started);
    fact(b, "Finished", r->finished ? r->finished : "not yet");
    fact(b, "Design fixed beforehand",
         !r->frozen       ? "no"
         : r->frozen_kept ? "yes, and kept"
                          : "yes, and changed since");
    sdc__buf_puts(b, "</dl>\n<nav aria-label=\"Sections\">"
                     "<a href=\"#claims\">Claims</a><a href=\"#controls\">Controls</a>"
                     "<a href=\"#collapse\">Collapse</a><a href=\"#propagation\">Propagation</a>"
                     "<a href=\"#outcomes\">Exposure and outcomes</a>"
                     "<a href=\"#trials\">Trials</a><a href=\"#methods\">Methods</a></nav>\n"
                     "</header>\n<main>\n");
}

static bool is_prefix(const char *prefix, const char *name) {
    while (*prefix && *prefix == *name)
        prefix++, name++;
    return *prefix == '\0';
}

/* Every figure whose name begins so; says what is missing where there is none. */
static void figures_of(struct sdc_buf *b, const struct sdc_report_figure *figures, size_t n,
                       const char *prefix, const char *missing) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const struct sdc_report_figure *f = &figures[i];
        if (!is_prefix(prefix, f->name))
            continue;
        any = true;
        sdc__buf_printf(b, "<figure id=\"figure-%s\">\n<h3>", f->name);
        sdc__html_text(b, f->title);
        sdc__buf_puts(b, "</h3>\n<div class=\"wide\">");
        sdc__buf_puts(b, f->svg);
        sdc__buf_puts(b, "</div>\n<div class=\"narrow\">");
        sdc__buf_puts(b, f->svg_narrow);
        sdc__buf_puts(b, "</div>\n<figcaption>");
        sdc__html_text(b, f->caption);
        sdc__buf_printf(b,
                        " Files: <a href=\"figures/%s.svg\">SVG</a>, "
                        "<a href=\"data/figure-%s.csv\">CSV</a>.</figcaption>\n</figure>\n",
                        f->name, f->name);
    }
    if (!any && missing)
        sdc__buf_printf(b, "<p class=\"dim\">%s</p>\n", missing);
}

static void counted_number(struct sdc_buf *b, double v) {
    if (isinf(v))
        sdc__buf_puts(b, "∞");
    else if (isnan(v))
        sdc__buf_puts(b, "–");
    else
        sdc__buf_printf(b, "%.2g", v);
}

static void layers_table(struct sdc_buf *b, const struct sdc_report *r) {
    if (r->n_layers == 0)
        return;
    sdc__buf_puts(b, "<details><summary>The numbers, with identical and non-finite trials "
                     "apart</summary>\n<div class=\"scroll\"><table><thead><tr><th>Layer</th>"
                     "<th>Recipe</th><th>Part</th><th class=\"n\">Trials</th>"
                     "<th class=\"n\">Identical</th><th class=\"n\">Non-finite</th>"
                     "<th class=\"n\">Lower quartile</th><th class=\"n\">Median</th>"
                     "<th class=\"n\">Upper quartile</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < r->n_layers; i++) {
        const struct sdc_report_layer *l = &r->layers[i];
        double q[3] = {l->d.q25, l->d.median, l->d.q75};
        sdc__buf_puts(b, "<tr><td>");
        sdc__html_text(b, l->layer);
        sdc__buf_puts(b, "</td><td>");
        sdc__html_text(b, l->recipe);
        sdc__buf_puts(b, "</td><td>");
        sdc__html_text(b, l->part);
        sdc__buf_printf(b,
                        "</td><td class=\"n\">%zu</td><td class=\"n\">%zu</td><td class=\"n\">%zu",
                        l->d.n, l->d.n_identical, l->d.n_nonfinite);
        for (int k = 0; k < 3; k++) {
            sdc__buf_puts(b, "</td><td class=\"n\">");
            counted_number(b, q[k]);
        }
        sdc__buf_puts(b, "</td></tr>\n");
    }
    sdc__buf_puts(b, "</tbody></table></div></details>\n");
}

static void name_value(struct sdc_buf *b, const char *name, const char *value) {
    sdc__buf_puts(b, "<tr><th scope=\"row\">");
    sdc__html_text(b, name);
    sdc__buf_puts(b, "</th><td>");
    sdc__html_text(b, value);
    sdc__buf_puts(b, "</td></tr>\n");
}

static void spreads(struct sdc_buf *b, const struct sdc_report *r) {
    if (r->n_spreads == 0)
        return;
    sdc__buf_puts(b, "<h3>Clean spreads</h3>\n<p>What runs without a fault differ by; labels are "
                     "judged against it. With n replicas, their largest value covers the shown "
                     "share of clean runs with 95 % confidence (59 replicas reach 95 %).</p>\n"
                     "<table class=\"stack\"><thead><tr><th>Spread</th><th>Meaning</th>"
                     "<th class=\"n\">Replicas</th><th class=\"n\">Covered</th><th>Value</th>"
                     "</tr></thead><tbody>\n");
    for (size_t i = 0; i < r->n_spreads; i++) {
        const struct sdc_report_spread *s = &r->spreads[i];
        sdc__buf_puts(b, "<tr><th scope=\"row\">");
        sdc__html_text(b, s->name);
        sdc__buf_puts(b, "</th><td>");
        sdc__html_text(b, s->meaning);
        sdc__buf_printf(b,
                        "</td><td class=\"n\" data-h=\"Replicas\">%llu</td>"
                        "<td class=\"n\" data-h=\"Covered\">%.0f %%</td><td>",
                        (unsigned long long)s->n_replicas,
                        floor(100 * sdc__stat_tolerance_coverage(s->n_replicas, 0.95)));
        sdc__html_text(b, s->value);
        sdc__buf_puts(b, "</td></tr>\n");
    }
    sdc__buf_puts(b, "</tbody></table>\n");
}

static void labels(struct sdc_buf *b) {
    sdc__buf_puts(b, "<h3>Labels</h3>\n<p>Every trial gets one label on each axis.</p>\n");
    for (int axis = 0; axis < SDC_AXIS_COUNT; axis++) {
        sdc__buf_puts(b, "<details><summary>");
        sdc__html_text(b, sdc_axis_name((enum sdc_axis)axis));
        sdc__buf_puts(b, "</summary><dl class=\"terms\">\n");
        for (int v = 0; v < sdc_axis_count((enum sdc_axis)axis); v++) {
            sdc__buf_puts(b, "<dt>");
            sdc__html_text(b, sdc_label_text((enum sdc_axis)axis, v));
            sdc__buf_puts(b, "</dt><dd>");
            sdc__html_text(b, sdc_label_meaning((enum sdc_axis)axis, v));
            sdc__buf_puts(b, "</dd>\n");
        }
        sdc__buf_puts(b, "</dl></details>\n");
    }
}

static const char words[] =
    "<h3>Words</h3>\n<dl class=\"terms\">\n"
    "<dt>trial</dt><dd>one planned run: a checkpoint with or without altered bits is loaded, "
    "training goes on for the window, and the run is judged</dd>\n"
    "<dt>cell, arm, pair</dt><dd>a cell is one combination of factors; an arm is one value of a "
    "factor that is compared; a pair is the two trials with the same faults, seeds and batches, "
    "one in each arm</dd>\n"
    "<dt>cluster</dt><dd>one independent training seed with its checkpoints: the unit that "
    "verdicts count</dd>\n"
    "<dt>clean twin</dt><dd>the restart of the same checkpoint through the same load path without "
    "a fault (golden)</dd>\n"
    "<dt>recipe</dt><dd>a strategy of distribution with its way of loading a checkpoint: which "
    "ranks read, and what is broadcast afterwards</dd>\n"
    "<dt>delivered flip</dt><dd>a distinct altered bit in what some rank read</dd>\n"
    "<dt>collapse</dt><dd>a non-finite training or evaluation loss on any rank within the window; "
    "the event of all claims here</dd>\n</dl>\n"
    "<h3>Statistics</h3>\n"
    "<p>Claims are risk differences of collapse over pairs. The mean difference of each cluster "
    "is one value; limits are Student’s t over clusters at the level of Holm’s step, and the p "
    "value beside them counts sign flips of the cluster values. Supported: limits on the claimed "
    "side of 0. Contradicted: on the other. Equivalent: inside the margin. Else, or with too few "
    "clusters, or where missing pairs at their worst would change it: undecided. Whatever is not "
    "listed as a claim is exploratory and has no verdict.</p>\n"
    "<p>Intervals of shares are Wilson’s at 95 % and describe the trials that were run, which "
    "share "
    "clusters; they are not limits for other seeds. McNemar’s exact test and Newcombe’s paired "
    "interval hold for these checkpoints only. Quartiles interpolate order statistics (Hyndman and "
    "Fan’s type 7). A NaN or infinite value is counted, never dropped.</p>\n";

static void methods(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "<section id=\"methods\">\n<h2>Methods and environment</h2>\n");
    if (r->n_facts > 0) {
        sdc__buf_puts(b, "<div class=\"scroll\"><table>\n");
        for (size_t i = 0; i < r->n_facts; i++)
            name_value(b, r->facts[i].name, r->facts[i].value);
        sdc__buf_puts(b, "</table></div>\n");
    }
    spreads(b, r);
    sdc__buf_puts(b, words);
    labels(b);
    if (r->spec_yaml) {
        sdc__buf_puts(b, "<h3>Spec</h3>\n<details><summary>The resolved spec, with every "
                         "default</summary><pre>");
        sdc__html_text(b, r->spec_yaml);
        sdc__buf_puts(b, "</pre></details>\n");
    }
    sdc__buf_puts(b, "<p class=\"note\" style=\"margin-top:24px\">All numbers: "
                     "<a href=\"results.json\">results.json</a>; tables as CSV: "
                     "<a href=\"data/table-claims.csv\">claims</a>, "
                     "<a href=\"data/table-controls.csv\">controls</a>, "
                     "<a href=\"data/table-cells.csv\">cells</a>, "
                     "<a href=\"data/table-trials.csv\">trials</a>.</p>\n</section>\n");
}

static enum sdc_status write_html(const struct sdc_report *r,
                                  const struct sdc_report_figure *figures, size_t n_figures,
                                  const char *dir, struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    head(&b, r);
    title(&b, r);
    sdc__html_claims(&b, r);
    figures_of(&b, figures, n_figures, "claims", NULL);
    sdc__buf_puts(&b, "</section>\n");
    sdc__html_controls(&b, r);
    sdc__buf_puts(&b, "<section id=\"collapse\">\n<h2>Collapse</h2>\n");
    figures_of(&b, figures, n_figures, "collapse", "No trial with a delivered flip has ended yet.");
    sdc__buf_puts(&b, "</section>\n<section id=\"propagation\">\n<h2>Propagation per layer</h2>\n");
    figures_of(&b, figures, n_figures, "propagation", "No distances have been measured.");
    layers_table(&b, r);
    sdc__buf_puts(&b, "</section>\n");
    sdc__html_cells(&b, r);
    sdc__html_trials(&b, r);
    methods(&b, r);
    sdc__buf_puts(&b, "</main>\n<script>\n");
    sdc__buf_append(&b, page_js, sizeof page_js);
    sdc__buf_puts(&b, "</script>\n</body>\n</html>\n");
    enum sdc_status st = sdc__report_put(dir, NULL, "report.html", &b, err);
    sdc__buf_release(&b);
    return st;
}

const struct sdc_report_writer_ops sdc_report_writer_html = {
    .name = "html",
    .summary = "report.html: the page",
    .write = write_html,
};
