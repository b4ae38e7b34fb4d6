/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoint interface for scripts, one JSON object on stdout:
 *     ckpt_tool list FILE            files, notes, checksums, tensors without their elements
 *     ckpt_tool values FILE          and with their bits and places
 *     ckpt_tool map FILE NAME ELEM   one place
 *     ckpt_tool copy IN OUT FORMAT   every readable tensor, in another format
 *     ckpt_tool diff A B             counts
 *     ckpt_tool recode IN OUT (NAME ELEM RAW)...   OUT is IN with these elements, written anew
 * Before the command: --as GLOB=TYPE, --max-header BYTES.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "ckpt/fmt.h"
#include "sdc/audit.h"
#include "sdc/ckpt.h"

static struct sdc_buf out = SDC_BUF_INIT;

static int finish(enum sdc_status st, const struct sdc_error *err) {
    if (st != SDC_OK) {
        sdc__buf_clear(&out);
        struct sdc_jw w = sdc__jw(&out);
        sdc__jw_obj(&w);
        sdc__jw_kstr(&w, "error", sdc_status_name(st));
        sdc__jw_kstr(&w, "message", err->message);
        sdc__jw_ki64(&w, "offset", err->offset);
        sdc__jw_obj_end(&w);
    }
    puts(out.data);
    sdc__buf_release(&out);
    return st == SDC_OK ? 0 : 1;
}

static enum sdc_status add_values(struct sdc_jw *w, struct sdc_ckpt *c, size_t i,
                                  struct sdc_error *err) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
    if (!d->dtype_known || d->n_elems > 1000000)
        return SDC_OK;
    size_t size = (size_t)d->n_elems * sdc_dtype_bytes(d->dtype);
    unsigned char *data = sdc__alloc(size, 1);
    char *hex = sdc__alloc(2 * size + 1, 1);
    if (!data || !hex)
        return SDC_NOMEM(err, d->name);
    struct sdc_error found;
    enum sdc_status st = sdc_ckpt_read(c, i, 0, d->n_elems, data, &found);
    if (st == SDC_OK) {
        sdc__hex_encode(data, size, hex);
        sdc__jw_kstr(w, "values", hex);
    } else {
        sdc__jw_kstr(w, "unreadable", found.message);
    }
    sdc__free(data);
    sdc__free(hex);
    struct sdc_span span = {0};
    st = d->n_elems ? sdc_ckpt_map(c, i, 0, &span, &found) : SDC_OK;
    if (st != SDC_OK) {
        sdc__jw_kstr(w, "unmapped", found.message);
        return SDC_OK;
    }
    sdc__jw_kbool(w, "big_endian", span.big_endian);
    static const char *const places[] = {"offsets", "files", "shifts"};
    for (unsigned k = 0; k < 3; k++) {
        sdc__jw_key(w, places[k]);
        sdc__jw_arr(w);
        for (uint64_t e = 0; e < d->n_elems; e++) {
            SDC_TRY(sdc_ckpt_map(c, i, e, &span, err));
            sdc__jw_u64(w, k == 0 ? span.offset : k == 1 ? span.file : span.shift);
        }
        sdc__jw_arr_end(w);
    }
    return SDC_OK;
}

static void add_sum(struct sdc_jw *w, const struct sdc_ckpt_sum *s) {
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "kind", sdc_sum_kind_name(s->kind));
    sdc__jw_kbool(w, "masked", s->kind == SDC_SUM_CRC32C_MASKED);
    sdc__jw_kstr(w, "what", s->what);
    sdc__jw_ku64(w, "file", s->file);
    sdc__jw_ku64(w, "offset", s->offset);
    sdc__jw_ku64(w, "size", s->size);
    sdc__jw_ku64(w, "initial", s->initial);
    sdc__jw_kbool(w, "unknown", s->unknown);
    sdc__jw_ku64(w, "level", s->level);
    sdc__jw_key(w, "places");
    sdc__jw_arr(w);
    for (unsigned i = 0; i < s->n_places; i++) {
        sdc__jw_arr(w);
        sdc__jw_u64(w, s->places[i].file);
        sdc__jw_u64(w, s->places[i].offset);
        sdc__jw_arr_end(w);
    }
    sdc__jw_arr_end(w);
    sdc__jw_obj_end(w);
}

static enum sdc_status add_set(struct sdc_jw *w, struct sdc_ckpt *c, struct sdc_error *err) {
    SDC_TRY(sdc_ckpt_find_sums(c, err));
    sdc__jw_key(w, "files");
    sdc__jw_arr(w);
    for (size_t i = 0; i < sdc_ckpt_files(c); i++)
        sdc__jw_str(w, sdc_ckpt_file(c, i).name);
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "notes");
    sdc__jw_arr(w);
    for (size_t i = 0; i < sdc_ckpt_notes(c); i++)
        sdc__jw_str(w, sdc_ckpt_note(c, i).text);
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "sums");
    sdc__jw_arr(w);
    for (size_t i = 0; i < sdc_ckpt_sums(c); i++)
        add_sum(w, sdc_ckpt_sum(c, i));
    sdc__jw_arr_end(w);
    return SDC_OK;
}

static enum sdc_status list(struct sdc_ckpt *c, bool values, struct sdc_error *err) {
    struct sdc_jw w = sdc__jw(&out);
    sdc__jw_obj(&w);
    sdc__jw_kstr(&w, "format", sdc_ckpt_format(c));
    sdc__jw_ku64(&w, "size", sdc_ckpt_file_size(c));
    SDC_TRY(add_set(&w, c, err));
    sdc__jw_key(&w, "tensors");
    sdc__jw_obj(&w);
    for (size_t i = 0; i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        sdc__jw_key(&w, d->name);
        sdc__jw_obj(&w);
        sdc__jw_kstr(&w, "dtype", d->dtype_known ? sdc_dtype_name(d->dtype) : NULL);
        sdc__jw_kstr(&w, "dtype_text", d->dtype_text);
        sdc__jw_kstr(&w, "locked", d->locked);
        sdc__jw_kstr(&w, "shared", d->shared);
        sdc__jw_kstr(&w, "recoded", sdc_ckpt_recoded(c, i));
        sdc__jw_kstr(&w, "part", sdc_part_name(d->part));
        sdc__jw_kstr(&w, "role", sdc_role_name(d->role));
        sdc__jw_kstr(&w, "storage", sdc_ckpt_storage(c, i));
        sdc__jw_ku64(&w, "stored_size", sdc_ckpt_stored_size(c, i));
        sdc__jw_ku64(&w, "n_elems", d->n_elems);
        sdc__jw_key(&w, "shape");
        sdc__jw_arr(&w);
        for (unsigned k = 0; k < d->rank; k++)
            sdc__jw_u64(&w, d->shape[k]);
        sdc__jw_arr_end(&w);
        sdc__jw_key(&w, "aliases");
        sdc__jw_arr(&w);
        size_t n;
        const char *const *aliases = sdc_ckpt_aliases(c, i, &n);
        for (size_t k = 0; k < n; k++)
            sdc__jw_str(&w, aliases[k]);
        sdc__jw_arr_end(&w);
        if (values)
            SDC_TRY(add_values(&w, c, i, err));
        sdc__jw_obj_end(&w);
    }
    sdc__jw_obj_end(&w);
    sdc__jw_obj_end(&w);
    return SDC_OK;
}

static enum sdc_status map(struct sdc_ckpt *c, const char *name, const char *elem,
                           struct sdc_error *err) {
    size_t i;
    unsigned long long e = 0;
    struct sdc_span span;
    if (!sdc_ckpt_find(c, name, &i) || !sdc__parse_u64(elem, &e))
        return SDC_ERR(err, SDC_USAGE, "%s: no such tensor", name);
    SDC_TRY(sdc_ckpt_map(c, i, e, &span, err));
    struct sdc_jw w = sdc__jw(&out);
    sdc__jw_obj(&w);
    sdc__jw_ku64(&w, "offset", span.offset);
    sdc__jw_ku64(&w, "size", span.size);
    sdc__jw_kbool(&w, "big_endian", span.big_endian);
    sdc__jw_obj_end(&w);
    return SDC_OK;
}

static enum sdc_status copy(struct sdc_ckpt *c, const char *path, const char *format,
                            struct sdc_error *err) {
    struct sdc_ckpt_writer *w;
    SDC_TRY(sdc_ckpt_writer_new(path, format, true, &w, err));
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < sdc_ckpt_count(c); i++) {
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        void *data = sdc__alloc((size_t)d->n_elems * sdc_dtype_bytes(d->dtype), 1);
        if (!data)
            st = SDC_NOMEM(err, d->name);
        if (st == SDC_OK)
            st = sdc_ckpt_read(c, i, 0, d->n_elems, data, err);
        if (st == SDC_OK)
            st = sdc_ckpt_writer_put(w, d, data, err);
        sdc__free(data);
    }
    if (st == SDC_OK)
        st = sdc_ckpt_writer_commit(w, false, err);
    if (st != SDC_OK)
        sdc_ckpt_writer_abandon(w);
    sdc__buf_puts(&out, "{}");
    return st;
}

static enum sdc_status diff(const char *a, const char *b, struct sdc_error *err) {
    struct sdc_diff d;
    SDC_TRY(sdc_diff_files(a, b, &(struct sdc_diff_options){.all = true}, &d, err));
    struct sdc_jw w = sdc__jw(&out);
    sdc__jw_obj(&w);
    sdc__jw_kbool(&w, "same_values", d.same_values);
    sdc__jw_kbool(&w, "same_container", d.same_container);
    sdc__jw_key(&w, "tensors");
    sdc__jw_obj(&w);
    for (size_t i = 0; i < d.n; i++) {
        const struct sdc_diff_tensor *t = &d.tensors[i];
        sdc__jw_key(&w, t->name);
        sdc__jw_obj(&w);
        sdc__jw_kstr(&w, "why", t->why);
        sdc__jw_ku64(&w, "n_differ", t->n_differ);
        sdc__jw_ku64(&w, "n_bits", t->n_bits);
        sdc__jw_ku64(&w, "max_ulps", t->max_ulps);
        sdc__jw_kf64(&w, "distance", t->distance);
        sdc__jw_kf64(&w, "max_relative", t->max_relative);
        sdc__jw_obj_end(&w);
    }
    sdc__jw_obj_end(&w);
    sdc__jw_obj_end(&w);
    sdc_diff_release(&d);
    return SDC_OK;
}

static int by_tensor(const void *a, const void *b) {
    const struct sdc_ckpt_edit *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->elem > y->elem) - (x->elem < y->elem);
}

static enum sdc_status recode(struct sdc_ckpt *c, const char *path, int argc, char **argv,
                              struct sdc_error *err) {
    struct sdc_ckpt_edit edits[64];
    struct sdc_file to = SDC_FILE_INIT;
    unsigned member = 0;
    size_t n = 0;
    for (int i = 0; i + 2 < argc && n < 64; i += 3, n++) {
        unsigned long long elem, raw;
        if (!sdc_ckpt_find(c, argv[i], &edits[n].tensor) || !sdc__parse_u64(argv[i + 1], &elem) ||
            !sdc__parse_u64(argv[i + 2], &raw) || !sdc_ckpt_recoded(c, edits[n].tensor))
            return SDC_ERR(err, SDC_USAGE, "%s: no such tensor, or not recoded", argv[i]);
        edits[n].elem = elem;
        edits[n].raw = raw;
        if (c->ops->member_of)
            member = c->ops->member_of(c, &c->entries[edits[n].tensor]);
    }
    qsort(edits, n, sizeof *edits, by_tensor);
    const struct sdc_file *from;
    SDC_TRY(sdc__ckpt_member(c, member, &from, err));
    SDC_TRY(sdc__file_open(path, SDC_FILE_NEW, &to, err));
    enum sdc_status st = sdc__file_copy(from, &to, err);
    if (st == SDC_OK)
        st = c->ops->recode(c, member, edits, n, &to, err);
    sdc__file_close(&to);
    sdc__buf_puts(&out, "{}");
    return st;
}

/* Takes options off the front; false: not understood. */
static bool take_options(int *argc, char ***argv, struct sdc_ckpt_options *options,
                         struct sdc_ckpt_as *as) {
    for (; *argc > 2 && strncmp((*argv)[1], "--", 2) == 0; *argc -= 2, *argv += 2) {
        char *value = (*argv)[2], *equal = strrchr(value, '=');
        unsigned long long n;
        if (strcmp((*argv)[1], "--max-header") == 0 && sdc__parse_u64(value, &n)) {
            options->max_header = n;
        } else if (equal && sdc_dtype_parse(equal + 1, &as->dtype)) {
            *equal = '\0';
            as->glob = value;
            options->as = as;
            options->n_as = 1;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv) {
    struct sdc_error err;
    struct sdc_ckpt *c = NULL;
    enum sdc_status st;
    struct sdc_ckpt_as as;
    struct sdc_ckpt_options options = {0};
    if (!take_options(&argc, &argv, &options, &as) || argc < 3) {
        fprintf(stderr, "usage: ckpt_tool list|values|map|copy|diff|recode FILE...\n");
        return 2;
    }
    if (strcmp(argv[1], "diff") == 0 && argc == 4)
        return finish(diff(argv[2], argv[3], &err), &err);
    SDC_TRY_OUT(st, sdc_ckpt_open(argv[2], &options, &c, &err));
    if (strcmp(argv[1], "map") == 0 && argc == 5)
        st = map(c, argv[3], argv[4], &err);
    else if (strcmp(argv[1], "copy") == 0 && argc == 5)
        st = copy(c, argv[3], argv[4], &err);
    else if (strcmp(argv[1], "recode") == 0 && argc >= 7)
        st = recode(c, argv[3], argc - 4, argv + 4, &err);
    else
        st = list(c, strcmp(argv[1], "values") == 0, &err);
out:
    sdc_ckpt_close(c);
    return finish(st, &err);
}
