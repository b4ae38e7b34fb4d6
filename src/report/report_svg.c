/* SPDX-License-Identifier: Apache-2.0
 *
 * gnuplot's SVG made fit for a page: its fixed black becomes the colour of the page's text, its
 * ids, which are the same in every drawing, get the figure's name in front.
 */
#include "report/report_svg.h"

#include <string.h>

#include "report/report_internal.h"

#define TIMEOUT_MS 30000

struct rule {
    const char *find;
    const char *put;
    bool name_after; /* the figure's name and a hyphen follow */
};

static const struct rule rules[] = {
    {"'black'", "'currentColor'", false},
    {"\"black\"", "\"currentColor\"", false},
    {"'rgb(  0,   0,   0)'", "'currentColor'", false},
    {"color='#FFFFFF'", "class='halo'", false}, /* the rim of points, in the page's colour */
    {"id=\"gnuplot_canvas\"", "class=\"canvas\"", false},
    {"id='gp", "id='", true},
    {"href='#gp", "href='#", true},
};

static bool starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* The end of a part that must go: the white ground, filters that are not used, and titles, which a
 * browser would show as the tooltip "claims_plot_1". NULL: s does not start such a part. */
static const char *dropped(const char *s) {
    static const struct {
        const char *from, *to;
    } parts[] = {
        {"<title>", "</title>"},
        {"<desc>", "</desc>"},
        {"<filter ", "</filter>"},
        {"<rect x=\"0\" y=\"0\"", "/>"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *end = starts(s, parts[i].from) ? strstr(s, parts[i].to) : NULL;
        if (end)
            return end + strlen(parts[i].to);
    }
    return NULL;
}

static const char *apply(const char *s, const char *name, struct sdc_buf *out) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!starts(s, rules[i].find))
            continue;
        sdc__buf_puts(out, rules[i].put);
        if (rules[i].name_after)
            sdc__buf_printf(out, "%s-gp", name);
        return s + strlen(rules[i].find);
    }
    sdc__buf_putc(out, *s);
    return s + 1;
}

static enum sdc_status adapt(const char *name, const char *label, struct sdc_svg_size size,
                             const char *raw, struct sdc_buf *out, struct sdc_error *err) {
    const char *s = raw ? strstr(raw, "<svg") : NULL;
    s = s ? strchr(s, '>') : NULL;
    if (!s || !strstr(s, "</svg>"))
        return SDC_ERR(err, SDC_PEER, "figure %s: gnuplot wrote no SVG element", name);
    sdc__buf_printf(out,
                    "<svg class=\"figure\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                    "role=\"img\" aria-label=\"",
                    size.width, size.height, size.width, size.height);
    sdc__html_text(out, label);
    sdc__buf_puts(out, "\" xmlns=\"http://www.w3.org/2000/svg\" "
                       "xmlns:xlink=\"http://www.w3.org/1999/xlink\">");
    for (s++; *s;) {
        const char *after = *s == '<' ? dropped(s) : NULL;
        if (after)
            s = after;
        else if (*s == '\n' && s[1] == '\n')
            s++;
        else
            s = apply(s, name, out);
    }
    return SDC_OK;
}

enum sdc_status sdc__svg_draw(const char *name, const char *label, struct sdc_svg_size size,
                              const struct sdc_buf *body, struct sdc_buf *out,
                              struct sdc_error *err) {
    struct sdc_buf script = SDC_BUF_INIT, raw = SDC_BUF_INIT;
    enum sdc_status st = SDC_OK;
    sdc__buf_printf(&script,
                    "set encoding utf8\n"
                    "set terminal svg size %d,%d noenhanced font 'sans-serif,13' "
                    "background '#ffffff' name '",
                    size.width, size.height);
    for (const char *c = name; *c; c++) /* gnuplot takes letters, digits and _ */
        sdc__buf_putc(&script, *c == '-' ? '_' : *c);
    sdc__buf_puts(&script, "'\nset border 3 lw 1\nset tics nomirror out scale 0.6\n"
                           "set bars 0.6\n");
    sdc__buf_append(&script, body->data ? body->data : "", body->len);
    if (script.failed || body->failed) {
        st = SDC_ERR(err, SDC_NO_MEMORY, "no memory for figure %s", name);
        goto out;
    }
    SDC_TRY_OUT(st, sdc__gnuplot_run(script.data, script.len, TIMEOUT_MS, &raw, err));
    st = adapt(name, label, size, raw.data, out, err);
    if (st == SDC_OK && out->failed)
        st = SDC_ERR(err, SDC_NO_MEMORY, "no memory for figure %s", name);
out:
    if (st != SDC_OK)
        sdc_error_prefix(err, "figure %s", name);
    sdc__buf_release(&script);
    sdc__buf_release(&raw);
    return st;
}
