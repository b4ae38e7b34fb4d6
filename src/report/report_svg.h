/* SPDX-License-Identifier: Apache-2.0
 *
 * From a gnuplot script to an SVG element that stands in a page in light and dark. Not for use
 * outside src/report.
 */
#ifndef SDC_REPORT_REPORT_SVG_H
#define SDC_REPORT_REPORT_SVG_H

#include "base/str.h"
#include "sdc/status.h"

struct sdc_svg_size {
    int width, height; /* of the drawing, in the units of its font */
};

/* Draws body (gnuplot commands after the terminal is set) and makes it an element whose lines and
 * text take the colour of their surroundings, whose ids begin with name, and which carries label
 * for readers that do not see it. Appends to out. */
enum sdc_status sdc__svg_draw(const char *name, const char *label, struct sdc_svg_size size,
                              const struct sdc_buf *body, struct sdc_buf *out,
                              struct sdc_error *err) SDC_MUST_CHECK;

#endif
