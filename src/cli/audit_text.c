/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit_text.h"

#include <math.h>

#include "base/alloc.h"
#include "base/guard.h"

const char *sdc_text_of_type(const struct sdc_tensor_desc *t) {
    return t->dtype_known ? sdc_dtype_name(t->dtype) : t->dtype_text;
}

void sdc_text_number(struct sdc_text_table *table, double value) {
    if (isnan(value))
        sdc_text_cell(table, "nan");
    else if (isinf(value))
        sdc_text_cell(table, value < 0 ? "-inf" : "inf");
    else
        sdc_text_cell(table, "%.4g", value);
}

void sdc_text_raw(struct sdc_text_table *table, enum sdc_dtype dtype, uint64_t raw) {
    char text[40];
    sdc_num_text(dtype, raw, text, sizeof text);
    sdc_text_cell(table, "%s", text);
}

void sdc_json_raw(struct sdc_jw *w, const char *key, enum sdc_dtype dtype, uint64_t raw) {
    char text[40], hex[20];
    sdc_num_text(dtype, raw, text, sizeof text);
    snprintf(hex, sizeof hex, "%0*llx", (int)sdc_dtype_bytes(dtype) * 2, (unsigned long long)raw);
    sdc__jw_key(w, key);
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "bits", hex);
    sdc__jw_kstr(w, "value", text);
    sdc__jw_obj_end(w);
}

void sdc_json_desc(struct sdc_jw *w, const struct sdc_tensor_desc *t) {
    sdc__jw_kstr(w, "name", t->name);
    sdc__jw_kstr(w, "type", sdc_text_of_type(t));
    sdc__jw_key(w, "shape");
    sdc__jw_arr(w);
    for (unsigned d = 0; d < t->rank; d++)
        sdc__jw_u64(w, t->shape[d]);
    sdc__jw_arr_end(w);
    sdc__jw_ku64(w, "elements", t->n_elems);
    sdc__jw_kstr(w, "part", sdc_part_name(t->part));
    sdc__jw_kstr(w, "role", sdc_role_name(t->role));
}

enum sdc_status sdc_json_print(struct sdc_buf *text, FILE *out, struct sdc_error *err) {
    enum sdc_status st = text->failed ? SDC_NOMEM(err, "the result") : SDC_OK;
    if (st == SDC_OK)
        fprintf(out, "%s\n", text->data);
    sdc__buf_release(text);
    return st;
}
