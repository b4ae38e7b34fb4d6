/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors, byte for byte as the reference writer does (0.4.5, no metadata): types in
 * descending order of alignment, then names; the header padded with spaces to a multiple of 8.
 */
#include "ckpt/fmt.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"

/* Place in the list of types of the reference, which it calls ordered by increasing alignment:
 * 0.4.5 up to F8_E4M3, then where the main branch has the later ones. */
static const int ranks[SDC_DTYPE_COUNT] = {
    [SDC_DTYPE_BOOL] = 0,        [SDC_DTYPE_U8] = 1,          [SDC_DTYPE_I8] = 2,
    [SDC_DTYPE_F8_E5M2] = 3,     [SDC_DTYPE_F8_E4M3] = 4,     [SDC_DTYPE_F8_E8M0] = 5,
    [SDC_DTYPE_F8_E4M3FNUZ] = 6, [SDC_DTYPE_F8_E5M2FNUZ] = 7, [SDC_DTYPE_I16] = 8,
    [SDC_DTYPE_U16] = 9,         [SDC_DTYPE_F16] = 10,        [SDC_DTYPE_BF16] = 11,
    [SDC_DTYPE_I32] = 12,        [SDC_DTYPE_U32] = 13,        [SDC_DTYPE_F32] = 14,
    [SDC_DTYPE_F64] = 15,        [SDC_DTYPE_I64] = 16,        [SDC_DTYPE_U64] = 17};

static int by_rank(const void *a, const void *b) {
    const struct sdc_ckpt_put *x = *(const struct sdc_ckpt_put *const *)a,
                              *y = *(const struct sdc_ckpt_put *const *)b;
    if (x->dtype != y->dtype)
        return ranks[y->dtype] - ranks[x->dtype];
    return strcmp(x->name, y->name);
}

static enum sdc_status check_name(const char *path, const char *name, struct sdc_error *err) {
    if (strcmp(name, "__metadata__") == 0)
        return SDC_ERR(err, SDC_USAGE, "%s: %s is not a tensor's name in safetensors", path, name);
    return SDC_OK;
}

static enum sdc_status make_header(const struct sdc_ckpt_put *const *order, size_t n,
                                   const char *path, struct sdc_buf *b, struct sdc_error *err) {
    uint64_t at = 0;
    struct sdc_jw w = sdc__jw(b);
    sdc__jw_obj(&w);
    for (size_t i = 0; i < n; i++) {
        const struct sdc_ckpt_put *p = order[i];
        sdc__jw_key(&w, p->name);
        sdc__jw_obj(&w);
        sdc__jw_kstr(&w, "dtype", sdc_dtype_name(p->dtype));
        sdc__jw_key(&w, "shape");
        sdc__jw_arr(&w);
        for (unsigned d = 0; d < p->rank; d++)
            sdc__jw_u64(&w, p->shape[d]);
        sdc__jw_arr_end(&w);
        sdc__jw_key(&w, "data_offsets");
        sdc__jw_arr(&w);
        sdc__jw_u64(&w, at);
        at += p->size;
        sdc__jw_u64(&w, at);
        sdc__jw_arr_end(&w);
        sdc__jw_obj_end(&w);
    }
    sdc__jw_obj_end(&w);
    while (!b->failed && b->len % 8)
        sdc__buf_putc(b, ' ');
    if (b->failed)
        return SDC_NOMEM(err, path);
    if (b->len > SDC_MAX_ST_HEADER)
        return SDC_ERR(err, SDC_LIMIT,
                       "%s: a header of %zu bytes, which the reference reader refuses over %u",
                       path, b->len, SDC_MAX_ST_HEADER);
    return SDC_OK;
}

static enum sdc_status write_data(struct sdc_file *file, uint64_t at, const struct sdc_ckpt_put *p,
                                  struct sdc_error *err) {
    unsigned size = sdc_dtype_bytes(p->dtype);
    if (size > 1 && sdc__host_big_endian()) /* the copy is the writer's, and written once */
        sdc__swap_elements(p->data, p->n_elems, size);
    return sdc__file_write(file, at, p->data, p->size, err);
}

static enum sdc_status st_write(struct sdc_file *file, const char *path,
                                const struct sdc_ckpt_put *puts, size_t n, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    struct sdc_buf b = SDC_BUF_INIT;
    unsigned char len[8];
    uint64_t at = sizeof len;
    const struct sdc_ckpt_put **order = sdc__alloc(n, sizeof *order);
    if (!order)
        return SDC_NOMEM(err, path);
    for (size_t i = 0; i < n; i++)
        order[i] = &puts[i];
    if (n > 1)
        qsort(order, n, sizeof *order, by_rank);
    SDC_TRY_OUT(st, make_header(order, n, path, &b, err));
    sdc_num_store(SDC_DTYPE_U64, b.len, len, false);
    SDC_TRY_OUT(st, sdc__file_write(file, 0, len, sizeof len, err));
    SDC_TRY_OUT(st, sdc__file_write(file, at, b.data, b.len, err));
    at += b.len;
    for (size_t i = 0; i < n; i++) {
        SDC_TRY_OUT(st, write_data(file, at, order[i], err));
        at += order[i]->size;
    }
out:
    if (st != SDC_OK)
        sdc_error_prefix(err, "saving %s", path);
    sdc__buf_release(&b);
    sdc__free(order);
    return st;
}

const struct sdc_ckpt_writer_ops sdc__writer_safetensors = {
    .name = "safetensors", .check_name = check_name, .write = st_write};
