/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of claims, controls and trials.
 */
#include "report/report_internal.h"

#include <math.h>
#include <string.h>

#include "base/guard.h"

#define MINUS "\xe2\x88\x92"

/* Percentage points with one decimal, with a real minus sign. */
static void points(struct sdc_buf *b, double v) {
    double p = round(1000 * v) / 10;
    if (isnan(v))
        sdc__buf_puts(b, "–");
    else if (isinf(v))
        sdc__buf_puts(b, v > 0 ? "∞" : MINUS "∞");
    else
        sdc__buf_printf(b, "%s%.1f", p < 0 ? MINUS : "", fabs(p));
}

static void range(struct sdc_buf *b, struct sdc_stat_interval i) {
    points(b, i.low);
    sdc__buf_puts(b, " to ");
    points(b, i.high);
}

static void p_value(struct sdc_buf *b, double p) {
    if (isnan(p))
        sdc__buf_puts(b, "–");
    else if (p < 0.001)
        sdc__buf_puts(b, "&lt; 0.001");
    else
        sdc__buf_printf(b, "%.3f", p);
}

static void claim_row(struct sdc_buf *b, const struct sdc_report_claim *claim) {
    const struct sdc_stat_claim *c = &claim->result;
    struct sdc_buf sentence = SDC_BUF_INIT;
    const char *verdict = sdc__stat_verdict_name(c->verdict);
    sdc__buf_puts(b, "<tr><th scope=\"row\">");
    sdc__html_text(b, claim->id);
    sdc__buf_puts(b, "<small>");
    sdc__html_text(b, claim->statement);
    sdc__buf_puts(b, "</small><small class=\"dim\">");
    sdc__html_text(b, claim->effect);
    sdc__buf_printf(b, "</small></th><td><span class=\"verdict %s\">%s</span></td>", verdict,
                    verdict);
    sdc__buf_puts(b, "<td class=\"n\" data-h=\"Effect, points\">");
    points(b, c->test.mean);
    sdc__buf_puts(b, "<small>");
    range(b, c->test.interval);
    sdc__buf_printf(b, " (%.4g %%)</small></td><td class=\"n\" data-h=\"p\">", 100 * c->level);
    p_value(b, c->test.p_sign_flip);
    sdc__buf_puts(b, "<small>t, Holm: ");
    p_value(b, c->p_adjusted);
    sdc__buf_printf(b, "</small></td><td class=\"n\" data-h=\"Clusters\">%zu<small>needed: %zu",
                    c->test.k, c->k_required);
    sdc__buf_printf(b,
                    "</small></td><td class=\"n\" data-h=\"Pairs\">%llu<small>%llu disagree</small>"
                    "</td><td>",
                    (unsigned long long)c->n_pairs, (unsigned long long)c->n_discordant);
    sdc__stat_claim_sentence(c, &sentence);
    sdc__html_text(b, sentence.data);
    sdc__buf_puts(b, "</td></tr>\n");
    b->failed = b->failed || sentence.failed;
    sdc__buf_release(&sentence);
}

static void secondary_row(struct sdc_buf *b, const struct sdc_report_claim *claim) {
    const struct sdc_stat_claim *c = &claim->result;
    sdc__buf_puts(b, "<tr><th scope=\"row\">");
    sdc__html_text(b, claim->id);
    sdc__buf_puts(b, "</th><td>");
    sdc__html_text(b, claim->effect);
    sdc__buf_puts(b, "</td><td class=\"n\" data-h=\"Difference, points\">");
    points(b, c->pair_diff);
    sdc__buf_puts(b, "<small>");
    range(b, c->pair_interval);
    sdc__buf_puts(b, "</small></td><td class=\"n\" data-h=\"McNemar, exact p\">");
    p_value(b, c->mcnemar_p);
    sdc__buf_puts(b, "</td><td class=\"n\" data-h=\"mid-p\">");
    p_value(b, c->mcnemar_mid_p);
    sdc__buf_printf(b, "</td><td class=\"n\" data-h=\"Missing pairs\">%llu</td></tr>\n",
                    (unsigned long long)c->n_missing);
}

/* Opens the section; the caller adds the figure and closes it. */
void sdc__html_claims(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "<section id=\"claims\">\n<h2>Claims</h2>\n");
    if (r->n_claims == 0) {
        sdc__buf_puts(b, "<p class=\"dim\">");
        sdc__html_text(b, r->no_claims ? r->no_claims : "The spec lists no claims");
        sdc__buf_puts(b, ".</p>\n");
        return;
    }
    sdc__buf_puts(b, "<p>Each claim is judged on the mean paired difference of its clusters "
                     "(independent training seeds). Effects are in percentage points of the "
                     "risk of collapse, with simultaneous limits.</p>\n"
                     "<table class=\"claims stack\"><thead><tr><th>Claim</th><th>Verdict</th>"
                     "<th class=\"n\">Effect, points</th><th class=\"n\">p (sign flips)</th>"
                     "<th class=\"n\">Clusters</th><th class=\"n\">Pairs</th><th>Reading</th>"
                     "</tr></thead><tbody>\n");
    for (size_t i = 0; i < r->n_claims; i++)
        claim_row(b, &r->claims[i]);
    sdc__buf_puts(b, "</tbody></table>\n<details><summary>Given these checkpoints: pair-level "
                     "results, secondary and without verdict</summary>\n"
                     "<table class=\"stack\"><thead><tr><th>Claim</th><th>Number</th>"
                     "<th class=\"n\">Difference, points (95 %)</th>"
                     "<th class=\"n\">McNemar, exact p</th><th class=\"n\">mid-p</th>"
                     "<th class=\"n\">Missing pairs</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < r->n_claims; i++)
        secondary_row(b, &r->claims[i]);
    sdc__buf_puts(b, "</tbody></table></details>\n");
}

void sdc__html_controls(struct sdc_buf *b, const struct sdc_report *r) {
    bool bad = false;
    for (size_t i = 0; i < r->n_controls; i++)
        bad = bad || r->controls[i].n_failed > 0;
    sdc__buf_puts(b, "<section id=\"controls\">\n<h2>Controls</h2>\n");
    if (r->n_controls == 0) {
        sdc__buf_puts(b, "<p class=\"dim\">No control has run: nothing on this page is "
                         "trustworthy yet.</p>\n</section>\n");
        return;
    }
    sdc__buf_puts(b, bad ? "<p><strong>A control failed: no result of this campaign "
                           "counts.</strong></p>\n"
                         : "<p>Trials whose result is known beforehand. One failure would void "
                           "the campaign.</p>\n");
    sdc__buf_puts(b, "<table class=\"stack\"><thead><tr><th>Control</th><th>Expectation</th>"
                     "<th></th><th class=\"n\">Passed</th><th class=\"n\">Failed</th>"
                     "<th>First failure</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < r->n_controls; i++) {
        const struct sdc_report_control *c = &r->controls[i];
        const char *word = c->n_failed ? "failed" : c->n_passed ? "passed" : "none";
        sdc__buf_puts(b, "<tr><th scope=\"row\">");
        sdc__html_text(b, c->name);
        sdc__buf_puts(b, "</th><td>");
        sdc__html_text(b, c->expectation);
        sdc__buf_printf(b, "</td><td><span class=\"verdict %s\">%s</span></td>", word,
                        c->n_failed || c->n_passed ? word : "not run");
        sdc__buf_printf(b,
                        "<td class=\"n\" data-h=\"Passed\">%llu</td>"
                        "<td class=\"n\" data-h=\"Failed\">%llu</td><td>",
                        (unsigned long long)c->n_passed, (unsigned long long)c->n_failed);
        if (c->first_failure)
            sdc__html_text(b, c->first_failure);
        sdc__buf_puts(b, "</td></tr>\n");
    }
    sdc__buf_puts(b, "</tbody></table>\n</section>\n");
}

/* ---- trials ---- */

static void trials_head(struct sdc_buf *b, const struct sdc_report *r) {
    static const char *const axes[] = {"Exposure", "Numeric", "Trajectory", "Quality", "Replicas"};
    sdc__buf_puts(b, "<thead><tr><th>Trial</th><th data-filter>Kind</th>");
    for (size_t f = 0; f < r->n_factors; f++) {
        sdc__buf_puts(b, "<th data-filter>");
        sdc__html_text(b, r->factors[f]);
        sdc__buf_puts(b, "</th>");
    }
    sdc__buf_puts(b, "<th class=\"n\" data-filter>Cluster</th><th class=\"n\">Index</th>"
                     "<th class=\"n\">Delivered</th>");
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        sdc__buf_printf(b, "<th data-filter>%s</th>", axes[i]);
    sdc__buf_puts(b, "<th class=\"n\">Accuracy</th><th class=\"n\">Clean twin</th>"
                     "<th class=\"n\">Collapse at step</th><th>Faults</th><th>Read by</th>"
                     "<th>Repeat</th></tr></thead>\n");
}

/* The first site, and the rest behind a click. Sites are parted by "; ". */
static void sites(struct sdc_buf *b, const char *text) {
    const char *rest = text ? strstr(text, "; ") : NULL;
    size_t more = 0;
    sdc__buf_puts(b, "<td class=\"sites\">");
    if (!text || !*text) {
        sdc__buf_puts(b, "–</td>");
        return;
    }
    for (const char *s = rest; s; s = strstr(s + 2, "; "))
        more++;
    struct sdc_buf first = SDC_BUF_INIT;
    sdc__buf_append(&first, text, rest ? (size_t)(rest - text) : strlen(text));
    b->failed = b->failed || first.failed;
    sdc__buf_puts(b, rest ? "<details><summary><code>" : "<code>");
    sdc__html_text(b, first.data);
    sdc__buf_puts(b, "</code>");
    sdc__buf_release(&first);
    if (rest) {
        sdc__buf_printf(b, " +%zu</summary><code>", more);
        sdc__html_text(b, rest + 2);
        sdc__buf_puts(b, "</code></details>");
    }
    sdc__buf_puts(b, "</td>");
}

static void share_cell(struct sdc_buf *b, double v) {
    if (isnan(v))
        sdc__buf_puts(b, "<td class=\"n\" data-v=\"\">–</td>");
    else
        sdc__buf_printf(b, "<td class=\"n\" data-v=\"%.9g\">%.2f %%</td>", v, 100 * v);
}

static void outcome_cells(struct sdc_buf *b, const struct sdc_report_trial *t) {
    for (int axis = SDC_AXIS_EXPOSURE; axis < SDC_AXIS_COUNT; axis++) {
        bool judged = t->outcome.result == SDC_RESULT_DONE;
        enum sdc_axis shown = judged ? (enum sdc_axis)axis : SDC_AXIS_RESULT;
        int v = sdc_outcome_get(&t->outcome, shown);
        sdc__buf_puts(b, "<td class=\"nowrap\" title=\"");
        sdc__html_text(b, !judged && t->message ? t->message : sdc_label_meaning(shown, v));
        sdc__buf_puts(b, "\">");
        sdc__html_text(b, sdc_label_text(shown, v));
        sdc__buf_puts(b, "</td>");
    }
}

static void trial_row(struct sdc_buf *b, const struct sdc_report *r,
                      const struct sdc_report_trial *t) {
    const struct sdc_report_cell *c = t->cell < r->n_cells ? &r->cells[t->cell] : NULL;
    sdc__buf_puts(b, "<tr><th scope=\"row\">");
    sdc__html_text(b, t->id);
    sdc__buf_puts(b, "</th><td>");
    sdc__html_text(b, t->kind);
    sdc__buf_puts(b, "</td>");
    for (size_t f = 0; f < r->n_factors; f++) {
        sdc__buf_puts(b, "<td class=\"nowrap\">");
        if (c)
            sdc__html_text(b, c->values[f]);
        sdc__buf_puts(b, "</td>");
    }
    sdc__buf_printf(b, "<td class=\"n\">%u</td><td class=\"n\">%u</td><td class=\"n\">%llu</td>",
                    t->cluster, t->index, (unsigned long long)t->n_delivered);
    outcome_cells(b, t);
    share_cell(b, t->accuracy);
    share_cell(b, t->golden_accuracy);
    if (t->collapse_step >= 0)
        sdc__buf_printf(b, "<td class=\"n\">%lld</td>", (long long)t->collapse_step);
    else
        sdc__buf_puts(b, "<td class=\"n\" data-v=\"\">–</td>");
    sites(b, t->sites);
    sdc__buf_puts(b, "<td class=\"nowrap\">");
    sdc__html_text(b, t->ranks);
    sdc__buf_puts(b, "</td>");
    sdc__buf_puts(b, "<td><code class=\"replay\">");
    sdc__html_text(b, t->replay);
    sdc__buf_puts(b, "</code></td></tr>\n");
}

void sdc__html_trials(struct sdc_buf *b, const struct sdc_report *r) {
    size_t n = r->n_trials < SDC_REPORT_MAX_ROWS ? r->n_trials : SDC_REPORT_MAX_ROWS;
    sdc__buf_puts(b, "<section id=\"trials\">\n<h2>Trials</h2>\n");
    if (n == 0) {
        sdc__buf_puts(b, "<p class=\"dim\">No trial has ended yet.</p>\n</section>\n");
        return;
    }
    sdc__buf_printf(b,
                    "<p>Every trial, controls included, with the command that runs it again "
                    "outside the store. A fault is written tensor[element]@bit and the values "
                    "before and after; a trial that gave no result shows why on every axis. "
                    "<span id=\"trial-count\" aria-live=\"polite\">%zu trials</span>.</p>\n",
                    n);
    if (n < r->n_trials)
        sdc__buf_printf(b,
                        "<p><strong>Only the first %zu of %zu trials are in this page</strong>; "
                        "<a href=\"data/table-trials.csv\">the CSV</a> has all.</p>\n",
                        n, r->n_trials);
    sdc__buf_puts(b, "<div id=\"trial-tools\"></div>\n<div class=\"trials\" tabindex=\"0\">"
                     "<table class=\"trials\">\n");
    trials_head(b, r);
    sdc__buf_puts(b, "<tbody>\n");
    for (size_t i = 0; i < n; i++)
        trial_row(b, r, &r->trials[i]);
    sdc__buf_puts(b, "</tbody></table></div>\n</section>\n");
}
