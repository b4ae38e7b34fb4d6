/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/limits.h"
#include "camp/exec_internal.h"
#include "sdc/audit.h"
#include "sdc/choice.h"
#include "sdc/num.h"

/* Only what training computes on: floats of model and optimizer. */
static bool counts(const struct sdc_tensor_desc *t) {
    return t->dtype_known && sdc_dtype_kind(t->dtype) == SDC_KIND_FLOAT && t->n_elems > 0 &&
           (t->part == SDC_PART_MODEL || t->part == SDC_PART_OPTIMIZER);
}

static size_t find_layer(const struct sdc_exec_group *g, const struct sdc_tensor_desc *t) {
    char name[SDC_MAX_NAME + 1];
    sdc_tensor_layer(t->name, name, sizeof name);
    for (size_t i = 0; i < g->n_layers; i++)
        if (g->layers[i].part == t->part && strcmp(g->layers[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

static enum sdc_status add_layer(struct sdc_exec_group *g, const struct sdc_tensor_desc *t,
                                 size_t *at, struct sdc_error *err) {
    char name[SDC_MAX_NAME + 1];
    sdc_tensor_layer(t->name, name, sizeof name);
    struct sdc_exec_layer *more = sdc__realloc(g->layers, g->n_layers + 1, sizeof *more);
    if (!more)
        return SDC_NOMEM(err, "the list of layers");
    g->layers = more;
    more[g->n_layers] = (struct sdc_exec_layer){.name = sdc__strdup(name), .part = t->part};
    if (!more[g->n_layers].name)
        return SDC_NOMEM(err, "the list of layers");
    *at = g->n_layers++;
    return SDC_OK;
}

static enum sdc_status read_tensor(struct sdc_ckpt *ckpt, size_t i, void **data,
                                   struct sdc_error *err) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
    *data = sdc__alloc_tensor((size_t)t->n_elems, sdc_dtype_bytes(t->dtype));
    if (!*data)
        return SDC_NOMEM(err, t->name);
    return sdc_ckpt_read(ckpt, i, 0, t->n_elems, *data, err);
}

/* Largest finite |value|; *nonfinite if there are others. */
static double largest(enum sdc_dtype dtype, const void *data, uint64_t n, bool *nonfinite) {
    double most = 0;
    unsigned bytes = sdc_dtype_bytes(dtype);
    bool odd = false;
    if (dtype == SDC_DTYPE_F32) { /* the usual one, without a call for each */
        const float *f = data;
        for (uint64_t i = 0; i < n; i++) {
            double v = fabs((double)f[i]);
            odd |= !isfinite(v);
            most = isfinite(v) && v > most ? v : most;
        }
    } else {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t raw = sdc_num_load(dtype, (const char *)data + i * bytes, false);
            double v = fabs(sdc_num_to_double(dtype, raw));
            odd |= !isfinite(v);
            most = isfinite(v) && v > most ? v : most;
        }
    }
    *nonfinite |= odd;
    return most;
}

enum sdc_status sdc__exec_layers(struct sdc_exec_group *g, const char *golden, uint64_t *params,
                                 struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    void *data = NULL;
    enum sdc_status st;
    *params = 0;
    g->max_model = g->max_optimizer = 0;
    SDC_TRY_OUT(st, sdc_ckpt_open(golden, NULL, &ckpt, err));
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        if (!counts(t))
            continue;
        size_t at = find_layer(g, t);
        if (at == SIZE_MAX)
            SDC_TRY_OUT(st, add_layer(g, t, &at, err));
        g->layers[at].n_elems += t->n_elems;
        bool nonfinite = false;
        SDC_TRY_OUT(st, read_tensor(ckpt, i, &data, err));
        double most = largest(t->dtype, data, t->n_elems, &nonfinite);
        sdc__free(data);
        data = NULL;
        double *slot = t->part == SDC_PART_MODEL ? &g->max_model : &g->max_optimizer;
        *slot = fmax(*slot, most);
        *params += t->part == SDC_PART_MODEL ? t->n_elems : 0;
    }
out:
    sdc__free(data);
    sdc_ckpt_close(ckpt);
    return st;
}

/* ---- comparing ---- */

/* Sums over the tensors of a layer. */
struct sums {
    double diff, clean; /* squared, altered elements apart */
    double diff_altered, clean_altered;
    bool infinite, infinite_altered;
};

static double distance_of(double diff, double clean, bool infinite) {
    if (infinite)
        return INFINITY;
    if (diff == 0)
        return 0;
    return clean > 0 ? sqrt(diff / clean) : INFINITY;
}

/* Takes the altered elements of one tensor out of `run` (they become golden's) after adding them to
 * the sums of their own. */
static void set_apart(const struct sdc_tensor_desc *t, const void *golden, void *run,
                      const struct sdc_record_change *changes, size_t n, struct sums *s,
                      struct sdc_store_propagation *row) {
    unsigned bytes = sdc_dtype_bytes(t->dtype);
    for (size_t i = 0; i < n; i++) {
        const struct sdc_record_change *c = &changes[i];
        if (strcmp(c->tensor, t->name) != 0 || c->elem >= t->n_elems)
            continue;
        const char *clean = (const char *)golden + c->elem * bytes;
        char *own = (char *)run + c->elem * bytes;
        double a = sdc_num_to_double(t->dtype, sdc_num_load(t->dtype, clean, false));
        double b = sdc_num_to_double(t->dtype, sdc_num_load(t->dtype, own, false));
        row->n_altered++;
        row->n_differ += memcmp(clean, own, bytes) != 0;
        s->clean_altered += a * a;
        if (isfinite(b))
            s->diff_altered += (b - a) * (b - a);
        else
            s->infinite_altered = true;
        memcpy(own, clean, bytes);
    }
}

static enum sdc_status compare_tensor(const struct sdc_tensor_desc *t, const void *golden,
                                      const void *run, struct sums *s,
                                      struct sdc_store_propagation *row, struct sdc_error *err) {
    struct sdc_diff_tensor d = {0};
    SDC_TRY(sdc_diff_arrays(t->dtype, golden, run, t->n_elems, 0, &d, err));
    row->n_differ += d.n_differ;
    s->clean += d.sum_sq_a;
    if (d.n_differ && !isfinite(d.distance) && (d.n_nonfinite_b || !isfinite(d.sum_sq_diff)))
        s->infinite = true;
    else if (d.n_differ)
        s->diff += d.sum_sq_diff;
    sdc__free(d.sites);
    return SDC_OK;
}

static enum sdc_status compare_one(const struct sdc_exec_group *g, struct sdc_ckpt *a, size_t i,
                                   struct sdc_ckpt *b, const struct sdc_record_change *changes,
                                   size_t n_changes, double bound, struct sums *sums,
                                   struct sdc_exec_compared *out, struct sdc_error *err) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(a, i);
    size_t layer = find_layer(g, t), j;
    if (layer == SIZE_MAX || !sdc_ckpt_find(b, t->name, &j) ||
        sdc_ckpt_tensor(b, j)->dtype != t->dtype || sdc_ckpt_tensor(b, j)->n_elems != t->n_elems)
        return SDC_ERR(err, SDC_MISMATCH, "the snapshots %s and %s do not hold the same tensor %s",
                       sdc_ckpt_path(a), sdc_ckpt_path(b), t->name);
    void *golden = NULL, *run = NULL;
    enum sdc_status st;
    SDC_TRY_OUT(st, read_tensor(a, i, &golden, err));
    SDC_TRY_OUT(st, read_tensor(b, j, &run, err));
    set_apart(t, golden, run, changes, n_changes, &sums[layer], &out->rows[layer]);
    SDC_TRY_OUT(st, compare_tensor(t, golden, run, &sums[layer], &out->rows[layer], err));
    double clean = t->part == SDC_PART_MODEL ? g->max_model : g->max_optimizer;
    if (bound > 0 && largest(t->dtype, run, t->n_elems, &out->nonfinite) > bound * clean)
        out->extreme = true;
out:
    sdc__free(golden);
    sdc__free(run);
    return st;
}

static enum sdc_status rows_new(const struct sdc_exec_group *g, uint32_t rank, uint64_t step,
                                struct sdc_exec_compared *out, struct sdc_error *err) {
    *out = (struct sdc_exec_compared){0};
    out->rows = sdc__calloc(g->n_layers, sizeof *out->rows);
    if (!out->rows)
        return SDC_NOMEM(err, "propagation");
    for (size_t i = 0; i < g->n_layers; i++)
        out->rows[i] = (struct sdc_store_propagation){.layer = g->layers[i].name,
                                                      .part = g->layers[i].part,
                                                      .rank = rank,
                                                      .step = step,
                                                      .n_elems = g->layers[i].n_elems,
                                                      .distance_altered = NAN};
    return SDC_OK;
}

enum sdc_status sdc__exec_compare(const struct sdc_exec_group *g, const char *golden,
                                  const char *run, uint32_t rank, uint64_t step,
                                  const struct sdc_record_change *changes, size_t n_changes,
                                  double bound, struct sdc_exec_compared *out,
                                  struct sdc_error *err) {
    struct sdc_ckpt *a = NULL, *b = NULL;
    struct sums *sums = NULL, whole = {0};
    enum sdc_status st;
    SDC_TRY(rows_new(g, rank, step, out, err));
    if (!(sums = sdc__calloc(g->n_layers, sizeof *sums))) {
        st = SDC_NOMEM(err, "propagation");
        goto out;
    }
    SDC_TRY_OUT(st, sdc_ckpt_open(golden, NULL, &a, err));
    SDC_TRY_OUT(st, sdc_ckpt_open(run, NULL, &b, err));
    for (size_t i = 0; i < sdc_ckpt_count(a); i++)
        if (counts(sdc_ckpt_tensor(a, i)))
            SDC_TRY_OUT(st, compare_one(g, a, i, b, changes, n_changes, bound, sums, out, err));
    for (size_t i = 0; i < g->n_layers; i++) {
        struct sums *s = &sums[i];
        out->rows[i].distance = distance_of(s->diff, s->clean, s->infinite);
        if (out->rows[i].n_altered)
            out->rows[i].distance_altered =
                distance_of(s->diff_altered, s->clean_altered, s->infinite_altered);
        if (g->layers[i].part != SDC_PART_MODEL)
            continue;
        whole.diff += s->diff;
        whole.clean += s->clean;
        whole.infinite |= s->infinite;
    }
    out->distance = distance_of(whole.diff, whole.clean, whole.infinite);
out:
    sdc__free(sums);
    sdc_ckpt_close(a);
    sdc_ckpt_close(b);
    if (st != SDC_OK) {
        sdc__free(out->rows);
        out->rows = NULL;
    }
    return st;
}

enum sdc_status sdc__exec_compare_known(const struct sdc_exec_group *g, uint32_t rank,
                                        uint64_t step, bool nonfinite,
                                        struct sdc_exec_compared *out, struct sdc_error *err) {
    SDC_TRY(rows_new(g, rank, step, out, err));
    out->nonfinite = nonfinite;
    out->distance = nonfinite ? INFINITY : 0;
    for (size_t i = 0; i < g->n_layers && nonfinite; i++) {
        out->rows[i].distance = INFINITY;
        out->rows[i].n_differ = out->rows[i].n_elems;
    }
    return SDC_OK;
}

enum sdc_status sdc__exec_first_difference(const char *a, const char *b, char *text, size_t size,
                                           struct sdc_error *err) {
    struct sdc_diff_options options = {.max_sites = 1};
    struct sdc_diff diff;
    text[0] = '\0';
    SDC_TRY(sdc_diff_files(a, b, &options, &diff, err));
    if (diff.n) {
        const struct sdc_diff_tensor *t = &diff.tensors[0];
        if (t->only_a || t->only_b || t->incomparable)
            snprintf(text, size, "%s (not in both alike)", t->name);
        else
            snprintf(text, size, "%s (%llu of %llu elements)", t->name,
                     (unsigned long long)t->n_differ, (unsigned long long)t->n_elems);
    }
    sdc_diff_release(&diff);
    return SDC_OK;
}
