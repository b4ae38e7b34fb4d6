/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures: what is drawn, from which numbers, and the caption that says how to read it.
 */
#include "report/report_internal.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "report/report_svg.h"

#define MAX_SERIES 12
#define NULL_Q     (1.0 / 32)

/* Told apart by colour-blind readers (Okabe and Ito's hues), and readable on white and on near
 * black; the marks differ too. */
static const char *const colours[] = {"#2f7fc1", "#d9622b", "#1a9e77", "#b25fa8",
                                      "#b8860b", "#3fa7c9", "#8a7f5c", "#d14a6a",
                                      "#5c7f3f", "#7a6fd0", "#9a5a3a", "#4a8f8f"};
static const int marks[] = {7, 5, 9, 13, 6, 4, 8, 12, 11, 15, 10, 14};

struct names {
    const char *name[MAX_SERIES];
    size_t n;
    size_t n_left_out; /* past MAX_SERIES */
};

/* Index of a name, added if new; MAX_SERIES where there is no room. */
static size_t name_index(struct names *s, const char *name) {
    if (!name)
        name = "";
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->name[i], name) == 0)
            return i;
    if (s->n == MAX_SERIES) {
        s->n_left_out++;
        return MAX_SERIES;
    }
    s->name[s->n] = name;
    return s->n++;
}

/* Where a series stands beside the others, in -0.5 .. 0.5. */
static double dodge(size_t i, size_t n) {
    return n < 2 ? 0 : ((double)i - (double)(n - 1) / 2) / (double)n;
}

/* Every figure is drawn twice, for wide and for narrow windows. */
enum width { WIDE, NARROW, N_WIDTHS };

static const int max_key_name[N_WIDTHS] = {80, 40};
static const int max_tic_name[N_WIDTHS] = {34, 16};

struct drawing {
    struct sdc_buf only[N_WIDTHS]; /* gnuplot commands for one width, before the others */
    struct sdc_buf body;           /* gnuplot commands */
    struct sdc_buf csv;
    struct sdc_buf title;
    struct sdc_buf caption;
    struct sdc_svg_size size[N_WIDTHS];
};

static void drawing_release(struct drawing *d) {
    for (int w = 0; w < N_WIDTHS; w++)
        sdc__buf_release(&d->only[w]);
    sdc__buf_release(&d->body);
    sdc__buf_release(&d->csv);
    sdc__buf_release(&d->title);
    sdc__buf_release(&d->caption);
}

static void figure_release(struct sdc_report_figure *f) {
    sdc__free(f->name);
    sdc__free(f->title);
    sdc__free(f->caption);
    sdc__free(f->svg);
    sdc__free(f->svg_narrow);
    sdc__free(f->csv);
    *f = (struct sdc_report_figure){0};
}

static enum sdc_status draw_width(const char *name, enum width w, struct drawing *d,
                                  struct sdc_buf *svg, struct sdc_error *err) {
    sdc__buf_append(&d->only[w], d->body.data ? d->body.data : "", d->body.len);
    d->only[w].failed = d->only[w].failed || d->body.failed;
    return sdc__svg_draw(name, d->title.data, d->size[w], &d->only[w], svg, err);
}

static enum sdc_status draw(const char *name, struct drawing *d, struct sdc_report_figure *f,
                            struct sdc_error *err) {
    struct sdc_buf wide = SDC_BUF_INIT, narrow = SDC_BUF_INIT;
    char *narrow_name = sdc__asprintf("%s-narrow", name);
    enum sdc_status st = SDC_OK;
    *f = (struct sdc_report_figure){0};
    if (d->title.failed || d->caption.failed || d->csv.failed || !narrow_name) {
        st = SDC_NOMEM(err, name);
        goto out;
    }
    SDC_TRY_OUT(st, draw_width(name, WIDE, d, &wide, err));
    SDC_TRY_OUT(st, draw_width(narrow_name, NARROW, d, &narrow, err));
    *f = (struct sdc_report_figure){
        .name = sdc__strdup(name),
        .title = sdc__buf_take(&d->title),
        .caption = sdc__buf_take(&d->caption),
        .svg = sdc__buf_take(&wide),
        .svg_narrow = sdc__buf_take(&narrow),
        .csv = sdc__buf_take(&d->csv),
    };
    if (!f->name || !f->title || !f->caption || !f->svg || !f->svg_narrow || !f->csv) {
        figure_release(f);
        st = SDC_NOMEM(err, name);
    }
out:
    sdc__free(narrow_name);
    sdc__buf_release(&wide);
    sdc__buf_release(&narrow);
    return st;
}

#define KEY_LINE    22 /* height of a line of the key, in the units of the drawing */
#define AXIS_HEIGHT 54 /* of the horizontal axis with its name */

/* Defines name0, name1, ... for the titles of the key, and puts the key of so many lines under the
 * axis, from the left edge of the drawing: names are long, and the plot begins far to the right. */
static void key_below(const struct names *series, size_t lines, struct drawing *d) {
    double key = 6 + KEY_LINE * (double)lines;
    for (int w = 0; w < N_WIDTHS; w++) {
        double height = d->size[w].height;
        for (size_t k = 0; k < series->n; k++) {
            sdc__buf_printf(&d->only[w], "name%zu = ", k);
            sdc__gnuplot_text(&d->only[w], series->name[k], max_key_name[w]);
            sdc__buf_putc(&d->only[w], '\n');
        }
        sdc__buf_printf(
            &d->only[w],
            "set bmargin at screen %.4f\n"
            "set key at screen 0.01,screen %.4f left top Left reverse vertical maxcols 1 "
            "samplen 2 spacing 1.1\n",
            (key + AXIS_HEIGHT) / height, key / height);
    }
}

/* ---- claims: effect and limits of each ---- */

static void claims_data(const struct sdc_report *r, struct drawing *d, double *reach) {
    sdc__buf_puts(&d->csv, "claim,effect,low,high,level,margin,clusters,pairs\n");
    sdc__buf_puts(&d->body, "$limits << EOD\n");
    for (size_t i = 0; i < r->n_claims; i++) {
        const struct sdc_stat_claim *c = &r->claims[i].result;
        const struct sdc_stat_cluster_test *t = &c->test;
        double values[5] = {t->mean, t->interval.low, t->interval.high, c->level, c->margin};
        sdc__csv_text(&d->csv, r->claims[i].id);
        for (int k = 0; k < 5; k++) {
            sdc__buf_putc(&d->csv, ',');
            sdc__csv_f64(&d->csv, values[k]);
        }
        sdc__buf_printf(&d->csv, ",%zu,%llu\n", t->k, (unsigned long long)c->n_pairs);
        *reach = fmax(*reach, 2 * c->margin);
        if (isnan(t->mean))
            continue;
        bool limits = isfinite(t->interval.low) && isfinite(t->interval.high);
        double low = limits ? t->interval.low : t->mean, high = limits ? t->interval.high : t->mean;
        *reach = fmax(*reach, fmax(fabs(low), fabs(high)));
        sdc__buf_printf(&d->body, "%.17g %zu %.17g %.17g\n", 100 * t->mean, i, 100 * low,
                        100 * high);
    }
    sdc__buf_puts(&d->body, "EOD\n");
}

static void claims_figure(const struct sdc_report *r, struct drawing *d) {
    double reach = 0, rows = (double)r->n_claims;
    sdc__buf_puts(&d->title, "Effect of each claim, with its limits");
    sdc__buf_puts(&d->caption,
                  "Each mark is a risk difference of collapse, averaged over clusters (independent "
                  "training seeds); the bar spans its confidence limits, at the level that Holm's "
                  "adjustment gives the claim. A verdict of supported or contradicted needs the "
                  "bar on one side of 0; equivalent needs it inside the shaded margin. A mark "
                  "without a bar has fewer than two clusters.");
    claims_data(r, d, &reach);
    reach = 100 * fmin(1, reach * 1.08);
    for (size_t i = 0; i < r->n_claims; i++)
        sdc__buf_printf(
            &d->body,
            "set object %zu rectangle from %.17g,%g to %.17g,%g behind fc rgb '#2f7fc1' "
            "fs solid 0.16 noborder\n",
            i + 1, -100 * r->claims[i].result.margin, (double)i - 0.36,
            100 * r->claims[i].result.margin, (double)i + 0.36);
    for (int w = 0; w < N_WIDTHS; w++) {
        sdc__buf_puts(&d->only[w], "set ytics (");
        for (size_t i = 0; i < r->n_claims; i++) {
            sdc__buf_puts(&d->only[w], i ? ", " : "");
            sdc__gnuplot_text(&d->only[w], r->claims[i].id, max_tic_name[w]);
            sdc__buf_printf(&d->only[w], " %zu", i);
        }
        sdc__buf_puts(&d->only[w], ")\n");
    }
    sdc__buf_printf(&d->body,
                    "set yrange [%g:-0.6]\nset xrange [%.17g:%.17g]\nset border 1\n"
                    "set ytics scale 0\nset xlabel 'risk difference of collapse, percentage "
                    "points' offset 0,0.4\n"
                    "set arrow from 0,graph 0 to 0,graph 1 nohead lc rgb '#808080' lw 1 back\n"
                    "plot $limits using 1:2:3:4 with xerrorbars pt 7 ps 0.9 lw 1.6 lc rgb 'black' "
                    "notitle\n",
                    rows - 0.4, -reach, reach);
    d->size[WIDE] = (struct sdc_svg_size){760, 90 + 44 * (int)fmin(rows, 40)};
    d->size[NARROW] = (struct sdc_svg_size){360, 90 + 40 * (int)fmin(rows, 40)};
}

static bool has_effects(const struct sdc_report *r) {
    bool any = false;
    for (size_t i = 0; i < r->n_claims; i++)
        any = any || !isnan(r->claims[i].result.test.mean);
    return any;
}

/* ---- collapse against delivered faults ---- */

static void collapse_csv(const struct sdc_report *r, struct drawing *d) {
    sdc__buf_puts(&d->csv,
                  "series,n_delivered,trials,collapsed,share,low,high,null_curve_q_1_32\n");
    for (size_t i = 0; i < r->n_points; i++) {
        const struct sdc_report_point *p = &r->points[i];
        struct sdc_report_interval s = sdc__report_share(p->n_collapse, p->n);
        double tail[4] = {s.share, s.low, s.high, sdc__stat_null_curve(NULL_Q, p->n_delivered)};
        sdc__csv_text(&d->csv, p->series);
        sdc__buf_putc(&d->csv, ',');
        sdc__csv_f64(&d->csv, p->n_delivered);
        sdc__buf_printf(&d->csv, ",%llu,%llu", (unsigned long long)p->n,
                        (unsigned long long)p->n_collapse);
        for (int k = 0; k < 4; k++) {
            sdc__buf_putc(&d->csv, ',');
            sdc__csv_f64(&d->csv, tail[k]);
        }
        sdc__buf_putc(&d->csv, '\n');
    }
}

static bool drawable_point(const struct sdc_report_point *p) {
    return p->n > 0 && p->n_delivered > 0 && isfinite(p->n_delivered);
}

static struct names collapse_series(const struct sdc_report *r, double *low, double *high) {
    struct names series = {.n = 0};
    for (size_t i = 0; i < r->n_points; i++) {
        if (!drawable_point(&r->points[i]))
            continue;
        name_index(&series, r->points[i].series);
        *low = fmin(*low, r->points[i].n_delivered);
        *high = fmax(*high, r->points[i].n_delivered);
    }
    return series;
}

/* width: of the axis in nats, so that the marks of one number stand as far apart on any axis. */
static void collapse_blocks(const struct sdc_report *r, struct names *series, double width,
                            struct drawing *d) {
    for (size_t k = 0; k < series->n; k++) {
        double shift = exp(0.08 * width * dodge(k, series->n));
        sdc__buf_printf(&d->body, "$s%zu << EOD\n", k);
        for (size_t i = 0; i < r->n_points; i++) {
            const struct sdc_report_point *p = &r->points[i];
            if (!drawable_point(p) || name_index(series, p->series) != k)
                continue;
            struct sdc_report_interval s = sdc__report_share(p->n_collapse, p->n);
            sdc__buf_printf(&d->body, "%.17g %.17g %.17g %.17g\n", p->n_delivered * shift,
                            100 * s.share, 100 * s.low, 100 * s.high);
        }
        sdc__buf_puts(&d->body, "EOD\n");
    }
}

static void collapse_figure(const struct sdc_report *r, struct drawing *d) {
    double low = INFINITY, high = 0;
    struct names series = collapse_series(r, &low, &high);
    sdc__buf_puts(&d->title, "Collapse against the number of delivered flips");
    sdc__buf_puts(
        &d->caption,
        "Share of trials whose training or evaluation loss became non-finite on some "
        "rank, by the number of distinct altered sites in what some rank read "
        "(logarithmic), over cells that flip any bit. Bars are 95 % Wilson intervals of the "
        "trials, which share "
        "clusters and so are not independent; marks at one number are moved apart so that "
        "they can be read. The dashed line is the null curve 1 - (1 - 1/32)^n: what one "
        "fatal bit of the 32 in each value (the top exponent bit) would give.");
    if (series.n_left_out)
        sdc__buf_printf(&d->caption, " Only the first %d series are drawn; the data file has all.",
                        MAX_SERIES);
    collapse_csv(r, d);
    collapse_blocks(r, &series, log(high * 2 / (low * 0.5)), d);
    sdc__buf_printf(&d->body,
                    "set logscale x 10\nset xrange [%.17g:%.17g]\nset yrange [0:100]\n"
                    "set ytics 25\nset grid ytics lc rgb '#909090' lw 0.4\n"
                    "set xlabel 'delivered flips' offset 0,0.4\nset ylabel 'collapsed trials, %%'\n"
                    "set samples 300\n"
                    "plot 100 * (1 - (31.0 / 32) ** x) with lines lc rgb '#808080' lw 1.5 dt '-' "
                    "title 'null curve, q = 1/32'",
                    low * 0.5, high * 2);
    for (size_t k = 0; k < series.n; k++) {
        sdc__buf_printf(&d->body,
                        ", \\\n$s%zu using 1:2:3:4 with yerrorbars pt %d ps 0.8 lw 1.5 lc rgb '%s' "
                        "title name%zu",
                        k, marks[k], colours[k], k);
    }
    sdc__buf_putc(&d->body, '\n');
    d->size[WIDE] = (struct sdc_svg_size){760, 380 + KEY_LINE * (int)series.n};
    d->size[NARROW] = (struct sdc_svg_size){360, 330 + KEY_LINE * (int)series.n};
    key_below(&series, series.n + 1, d);
}

static bool has_points(const struct sdc_report *r) {
    for (size_t i = 0; i < r->n_points; i++)
        if (drawable_point(&r->points[i]))
            return true;
    return false;
}

/* ---- propagation: one figure for each part ---- */

static void propagation_csv(const struct sdc_report *r, const char *part, struct drawing *d) {
    sdc__buf_puts(&d->csv, "layer,recipe,part,trials,identical,non_finite,q25,median,q75\n");
    for (size_t i = 0; i < r->n_layers; i++) {
        const struct sdc_report_layer *l = &r->layers[i];
        if (strcmp(l->part ? l->part : "", part) != 0)
            continue;
        double q[3] = {l->d.q25, l->d.median, l->d.q75};
        sdc__csv_text(&d->csv, l->layer);
        sdc__buf_putc(&d->csv, ',');
        sdc__csv_text(&d->csv, l->recipe);
        sdc__buf_putc(&d->csv, ',');
        sdc__csv_text(&d->csv, l->part);
        sdc__buf_printf(&d->csv, ",%zu,%zu,%zu", l->d.n, l->d.n_identical, l->d.n_nonfinite);
        for (int k = 0; k < 3; k++) {
            sdc__buf_putc(&d->csv, ',');
            sdc__csv_f64(&d->csv, q[k]);
        }
        sdc__buf_putc(&d->csv, '\n');
    }
}

struct decades {
    int low, high; /* drawn as 0 and as infinity */
};

/* One decade of room below and above all finite quartiles, for 0 and infinity. */
static struct decades find_decades(const struct sdc_report *r, const char *part) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < r->n_layers; i++) {
        const struct sdc_report_layer *l = &r->layers[i];
        double q[3] = {l->d.q25, l->d.median, l->d.q75};
        if (strcmp(l->part ? l->part : "", part) != 0)
            continue;
        for (int k = 0; k < 3; k++)
            if (q[k] > 0 && isfinite(q[k])) {
                low = fmin(low, q[k]);
                high = fmax(high, q[k]);
            }
    }
    if (!(high > 0))
        return (struct decades){-4, 1};
    return (struct decades){(int)floor(log10(low)) - 1, (int)ceil(log10(high)) + 1};
}

static double place(double v, struct decades range) {
    if (v == 0)
        return range.low;
    return isfinite(v) ? log10(v) : range.high;
}

/* One part's layers. Rows are layers, by their first appearance. */
struct panel {
    const struct sdc_report *r;
    const char *part;
    size_t *row;   /* of each entry of r->layers; SIZE_MAX: of another part. Owned */
    size_t *first; /* the entry that gives each row its name. Owned */
    size_t n_rows;
    struct decades range;
    struct names series;
};

static void panel_release(struct panel *p) {
    sdc__free(p->row);
    sdc__free(p->first);
}

static bool same_text(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static enum sdc_status panel_init(const struct sdc_report *r, const char *part, struct panel *p,
                                  struct sdc_error *err) {
    *p = (struct panel){.r = r, .part = part, .range = find_decades(r, part)};
    p->row = sdc__alloc(r->n_layers, sizeof *p->row);
    p->first = sdc__alloc(r->n_layers, sizeof *p->first);
    if (!p->row || !p->first) {
        panel_release(p);
        return SDC_NOMEM(err, "the figure of propagation");
    }
    for (size_t i = 0; i < r->n_layers; i++) {
        const struct sdc_report_layer *l = &r->layers[i];
        size_t row = 0;
        p->row[i] = SIZE_MAX;
        if (!same_text(l->part, part) || l->d.n == 0)
            continue;
        while (row < p->n_rows && !same_text(r->layers[p->first[row]].layer, l->layer))
            row++;
        if (row == p->n_rows)
            p->first[p->n_rows++] = i;
        p->row[i] = row;
        name_index(&p->series, l->recipe);
    }
    return SDC_OK;
}

static void propagation_blocks(struct panel *p, struct drawing *d) {
    for (size_t k = 0; k < p->series.n; k++) {
        sdc__buf_printf(&d->body, "$s%zu << EOD\n", k);
        for (size_t i = 0; i < p->r->n_layers; i++) {
            const struct sdc_report_layer *l = &p->r->layers[i];
            if (p->row[i] == SIZE_MAX || name_index(&p->series, l->recipe) != k)
                continue;
            sdc__buf_printf(&d->body, "%.17g %.17g %.17g %.17g\n", place(l->d.median, p->range),
                            (double)p->row[i] + 0.6 * dodge(k, p->series.n),
                            place(l->d.q25, p->range), place(l->d.q75, p->range));
        }
        sdc__buf_puts(&d->body, "EOD\n");
    }
}

static void propagation_tics(const struct panel *p, enum width w, struct sdc_buf *out) {
    int low = p->range.low, high = p->range.high, room = w == WIDE ? 7 : 3;
    int step = (high - low + room - 1) / room;
    sdc__buf_printf(out, "set xtics ('0' %d, '∞' %d", low, high);
    for (int e = low + step; e < high; e += step)
        sdc__buf_printf(out, ", '1e%d' %d", e, e);
    sdc__buf_puts(out, ")\nset ytics (");
    for (size_t row = 0; row < p->n_rows; row++) {
        sdc__buf_puts(out, row ? ", " : "");
        sdc__gnuplot_text(out, p->r->layers[p->first[row]].layer, max_tic_name[w]);
        sdc__buf_printf(out, " %zu", row);
    }
    sdc__buf_printf(out, ")\nset yrange [%g:-0.6]\nset xrange [%g:%g]\n", (double)p->n_rows - 0.4,
                    low - 0.3, high + 0.3);
}

static enum sdc_status propagation_figure(const struct sdc_report *r, const char *part,
                                          struct drawing *d, struct sdc_error *err) {
    struct panel p;
    SDC_TRY(panel_init(r, part, &p, err));
    sdc__buf_printf(&d->title, "Propagation per layer, faults in the %s", part);
    sdc__buf_puts(&d->caption,
                  "Relative distance of each layer's parameters from the clean twin's at the end "
                  "of the window, ||altered - clean|| / ||clean||: the mark is the median over "
                  "trials, the bar spans the quartiles. At 0 stand trials that are bit-identical "
                  "there, at infinity those with a non-finite value; both ends lie outside the "
                  "logarithmic axis.");
    propagation_csv(r, part, d);
    propagation_blocks(&p, d);
    for (int w = 0; w < N_WIDTHS; w++)
        propagation_tics(&p, (enum width)w, &d->only[w]);
    sdc__buf_puts(&d->body,
                  "set grid xtics lc rgb '#909090' lw 0.4\nset ytics scale 0\nset border 1\n"
                  "set xlabel 'relative distance' offset 0,0.4\n"
                  "plot ");
    for (size_t k = 0; k < p.series.n; k++) {
        sdc__buf_printf(&d->body,
                        "%s$s%zu using 1:2:3:4 with xerrorbars pt %d ps 0.8 lw 1.5 lc rgb '%s' "
                        "title name%zu",
                        k ? ", \\\n" : "", k, marks[k], colours[k], k);
    }
    sdc__buf_putc(&d->body, '\n');
    int rows = (16 + 6 * (int)p.series.n) * (int)p.n_rows;
    int height = 20 + rows + AXIS_HEIGHT + 6 + KEY_LINE * (int)p.series.n;
    d->size[WIDE] = (struct sdc_svg_size){760, height};
    d->size[NARROW] = (struct sdc_svg_size){360, height};
    key_below(&p.series, p.series.n, d);
    panel_release(&p);
    return SDC_OK;
}

static struct names propagation_parts(const struct sdc_report *r) {
    struct names parts = {.n = 0};
    for (size_t i = 0; i < r->n_layers; i++)
        if (r->layers[i].d.n > 0)
            name_index(&parts, r->layers[i].part);
    return parts;
}

/* Only letters, digits and hyphens go into a file name and an id. */
static char *part_name(const char *part, size_t number) {
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__buf_puts(&b, "propagation-");
    for (const char *s = part; *s && b.len < 60; s++)
        if ((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9'))
            sdc__buf_putc(&b, *s);
    sdc__buf_printf(&b, "-%zu", number + 1);
    return sdc__buf_take(&b);
}

static enum sdc_status all_figures(const struct sdc_report *r, const struct names *parts,
                                   struct sdc_report_figure *figures, size_t *n,
                                   struct sdc_error *err) {
    struct drawing d = {0};
    enum sdc_status st = SDC_OK;
    if (has_effects(r)) {
        claims_figure(r, &d);
        SDC_TRY_OUT(st, draw("claims", &d, &figures[(*n)], err));
        (*n)++;
        drawing_release(&d);
    }
    if (has_points(r)) {
        collapse_figure(r, &d);
        SDC_TRY_OUT(st, draw("collapse", &d, &figures[*n], err));
        (*n)++;
        drawing_release(&d);
    }
    for (size_t i = 0; i < parts->n; i++) {
        char *name = part_name(parts->name[i], i);
        if (!name) {
            st = SDC_NOMEM(err, "a figure");
            goto out;
        }
        st = propagation_figure(r, parts->name[i], &d, err);
        if (st == SDC_OK)
            st = draw(name, &d, &figures[*n], err);
        sdc__free(name);
        if (st != SDC_OK)
            goto out;
        (*n)++;
        drawing_release(&d);
    }
out:
    drawing_release(&d);
    return st;
}

enum sdc_status sdc__report_figures(const struct sdc_report *r, struct sdc_report_figure **out,
                                    size_t *n, struct sdc_error *err) {
    struct names parts = propagation_parts(r);
    struct sdc_report_figure *figures = sdc__calloc(2 + parts.n, sizeof *figures);
    *n = 0;
    if (!figures)
        return SDC_NOMEM(err, "figures");
    enum sdc_status st = all_figures(r, &parts, figures, n, err);
    if (st != SDC_OK) {
        sdc__report_figures_free(figures, *n);
        *n = 0;
        return st;
    }
    *out = figures;
    return SDC_OK;
}

void sdc__report_figures_free(struct sdc_report_figure *figures, size_t n) {
    for (size_t i = 0; figures && i < n; i++)
        figure_release(&figures[i]);
    sdc__free(figures);
}
