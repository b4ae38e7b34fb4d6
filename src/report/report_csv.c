/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV (RFC 4180, one header line, UTF-8): the tables and the data of the figures; and the figures
 * as SVG files.
 */
#include "report/report_internal.h"

#include <math.h>

#include "base/alloc.h"
#include "base/guard.h"

static void field_u64(struct sdc_buf *b, uint64_t v) {
    sdc__buf_printf(b, ",%llu", (unsigned long long)v);
}

static void field_text(struct sdc_buf *b, const char *s) {
    sdc__buf_putc(b, ',');
    sdc__csv_text(b, s);
}

static void field_f64(struct sdc_buf *b, double v) {
    sdc__buf_putc(b, ',');
    sdc__csv_f64(b, v);
}

static void claims_csv(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "claim,statement,verdict,reason,effect,low,high,level,p_t,p_adjusted,"
                     "p_sign_flip,clusters,clusters_required,pairs,discordant,missing,margin,"
                     "clusters_needed,pairs_needed,pair_difference,pair_low,pair_high,mcnemar_p,"
                     "mcnemar_mid_p\n");
    for (size_t i = 0; i < r->n_claims; i++) {
        const struct sdc_stat_claim *c = &r->claims[i].result;
        sdc__csv_text(b, r->claims[i].id);
        field_text(b, r->claims[i].statement);
        field_text(b, sdc__stat_verdict_name(c->verdict));
        field_text(b, sdc__stat_reason_text(c->reason));
        double numbers[7] = {c->test.mean, c->test.interval.low, c->test.interval.high, c->level,
                             c->test.p_t,  c->p_adjusted,        c->test.p_sign_flip};
        for (int k = 0; k < 7; k++)
            field_f64(b, numbers[k]);
        field_u64(b, c->test.k);
        field_u64(b, c->k_required);
        field_u64(b, c->n_pairs);
        field_u64(b, c->n_discordant);
        field_u64(b, c->n_missing);
        field_f64(b, c->margin);
        field_u64(b, c->k_needed);
        field_u64(b, c->pairs_needed);
        field_f64(b, c->pair_diff);
        field_f64(b, c->pair_interval.low);
        field_f64(b, c->pair_interval.high);
        field_f64(b, c->mcnemar_p);
        field_f64(b, c->mcnemar_mid_p);
        sdc__buf_putc(b, '\n');
    }
}

static void cell_shares(struct sdc_buf *b, const struct sdc_report *r,
                        const struct sdc_report_cell *c, enum sdc_axis axis, uint64_t of) {
    for (int v = 0; v < sdc_axis_count(axis); v++) {
        struct sdc_report_interval s = sdc__report_share(c->counts[axis][v], of);
        sdc__csv_text(b, c->label);
        for (size_t f = 0; f < r->n_factors; f++)
            field_text(b, c->values[f]);
        field_text(b, sdc_axis_name(axis));
        field_text(b, sdc_label_text(axis, v));
        field_u64(b, c->counts[axis][v]);
        field_u64(b, of);
        field_f64(b, s.share);
        field_f64(b, s.low);
        field_f64(b, s.high);
        sdc__buf_putc(b, '\n');
    }
}

static void cells_csv(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "cell");
    for (size_t f = 0; f < r->n_factors; f++)
        field_text(b, r->factors[f]);
    sdc__buf_puts(b, ",axis,label,trials,of,share,low,high\n");
    for (size_t i = 0; i < r->n_cells; i++) {
        const struct sdc_report_cell *c = &r->cells[i];
        uint64_t ran = 0;
        for (int v = 0; v < SDC_REPORT_LABELS; v++)
            ran += c->counts[SDC_AXIS_RESULT][v];
        cell_shares(b, r, c, SDC_AXIS_RESULT, ran);
        cell_shares(b, r, c, SDC_AXIS_EXPOSURE, sdc__report_cell_done(c));
        for (int axis = SDC_AXIS_NUMERIC; axis < SDC_AXIS_COUNT; axis++)
            cell_shares(b, r, c, (enum sdc_axis)axis, sdc__report_cell_reached(c));
        struct sdc_report_interval s = sdc__report_share(c->n_collapse, sdc__report_cell_done(c));
        sdc__csv_text(b, c->label);
        for (size_t f = 0; f < r->n_factors; f++)
            field_text(b, c->values[f]);
        sdc__buf_puts(b, ",collapse,collapse");
        field_u64(b, c->n_collapse);
        field_u64(b, sdc__report_cell_done(c));
        field_f64(b, s.share);
        field_f64(b, s.low);
        field_f64(b, s.high);
        sdc__buf_putc(b, '\n');
    }
}

static void trials_csv(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "trial,kind,cell");
    for (size_t f = 0; f < r->n_factors; f++)
        field_text(b, r->factors[f]);
    sdc__buf_puts(b, ",cluster,index,delivered,sites,ranks");
    for (int axis = 0; axis < SDC_AXIS_COUNT; axis++)
        field_text(b, sdc_axis_name((enum sdc_axis)axis));
    sdc__buf_puts(b, ",accuracy,golden_accuracy,collapse_step,message,replay\n");
    for (size_t i = 0; i < r->n_trials; i++) {
        const struct sdc_report_trial *t = &r->trials[i];
        const struct sdc_report_cell *c = t->cell < r->n_cells ? &r->cells[t->cell] : NULL;
        sdc__csv_text(b, t->id);
        field_text(b, t->kind);
        field_text(b, c ? c->label : NULL);
        for (size_t f = 0; f < r->n_factors; f++)
            field_text(b, c ? c->values[f] : NULL);
        field_u64(b, t->cluster);
        field_u64(b, t->index);
        field_u64(b, t->n_delivered);
        field_text(b, t->sites);
        field_text(b, t->ranks);
        for (int axis = 0; axis < SDC_AXIS_COUNT; axis++)
            field_text(b, axis == SDC_AXIS_RESULT || t->outcome.result == SDC_RESULT_DONE
                              ? sdc_label_text((enum sdc_axis)axis,
                                               sdc_outcome_get(&t->outcome, (enum sdc_axis)axis))
                              : NULL);
        field_f64(b, t->accuracy);
        field_f64(b, t->golden_accuracy);
        if (t->collapse_step >= 0)
            field_u64(b, (uint64_t)t->collapse_step);
        else
            sdc__buf_putc(b, ',');
        field_text(b, t->message);
        field_text(b, t->replay);
        sdc__buf_putc(b, '\n');
    }
}

static void controls_csv(struct sdc_buf *b, const struct sdc_report *r) {
    sdc__buf_puts(b, "control,expectation,passed,failed,first_failure\n");
    for (size_t i = 0; i < r->n_controls; i++) {
        const struct sdc_report_control *c = &r->controls[i];
        sdc__csv_text(b, c->name);
        field_text(b, c->expectation);
        field_u64(b, c->n_passed);
        field_u64(b, c->n_failed);
        field_text(b, c->first_failure);
        sdc__buf_putc(b, '\n');
    }
}

static enum sdc_status write_csv(const struct sdc_report *r,
                                 const struct sdc_report_figure *figures, size_t n_figures,
                                 const char *dir, struct sdc_error *err) {
    static const struct {
        const char *name;
        void (*fill)(struct sdc_buf *b, const struct sdc_report *r);
    } tables[] = {{"table-claims.csv", claims_csv},
                  {"table-controls.csv", controls_csv},
                  {"table-cells.csv", cells_csv},
                  {"table-trials.csv", trials_csv}};
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && st == SDC_OK; i++) {
        struct sdc_buf b = SDC_BUF_INIT;
        tables[i].fill(&b, r);
        st = sdc__report_put(dir, "data", tables[i].name, &b, err);
        sdc__buf_release(&b);
    }
    for (size_t i = 0; i < n_figures && st == SDC_OK; i++) {
        struct sdc_buf b = SDC_BUF_INIT, name = SDC_BUF_INIT;
        sdc__buf_puts(&b, figures[i].csv);
        sdc__buf_printf(&name, "figure-%s.csv", figures[i].name);
        st = name.failed ? SDC_NOMEM(err, "a file name")
                         : sdc__report_put(dir, "data", name.data, &b, err);
        sdc__buf_release(&name);
        sdc__buf_release(&b);
    }
    return st;
}

/* In a page the surroundings give the colours; a file alone needs its own. */
static const char alone[] = "<style>svg{color:#1b1e23;background:#fff}.halo{color:#fff}"
                            "@media(prefers-color-scheme:dark){svg{color:#e4e6ea;"
                            "background:#15171b}.halo{color:#15171b}}</style>";

static enum sdc_status write_svg(const struct sdc_report *r,
                                 const struct sdc_report_figure *figures, size_t n_figures,
                                 const char *dir, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    (void)r;
    for (size_t i = 0; i < n_figures && st == SDC_OK; i++) {
        struct sdc_buf b = SDC_BUF_INIT, name = SDC_BUF_INIT;
        const char *svg = figures[i].svg;
        size_t head = 0;
        while (svg[head] && svg[head] != '>')
            head++;
        head += svg[head] == '>';
        sdc__buf_puts(&b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        sdc__buf_append(&b, svg, head);
        sdc__buf_puts(&b, "<title>");
        sdc__html_text(&b, figures[i].title);
        sdc__buf_puts(&b, "</title>");
        sdc__buf_puts(&b, alone);
        sdc__buf_puts(&b, svg + head);
        sdc__buf_printf(&name, "%s.svg", figures[i].name);
        st = name.failed ? SDC_NOMEM(err, "a file name")
                         : sdc__report_put(dir, "figures", name.data, &b, err);
        sdc__buf_release(&name);
        sdc__buf_release(&b);
    }
    return st;
}

const struct sdc_report_writer_ops sdc_report_writer_csv = {
    .name = "csv",
    .summary = "tables and the data of the figures, in data/",
    .write = write_csv,
};

const struct sdc_report_writer_ops sdc_report_writer_svg = {
    .name = "svg",
    .summary = "the figures, in figures/",
    .write = write_svg,
};
