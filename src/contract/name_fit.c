/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether two tensors' shapes fit under a rule, and where each element then goes.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "contract/name_rules.h"

/* The source as the rule sees it, and what comes out of it. */
struct shapes {
    unsigned rank;
    uint64_t view[SDC_MAX_RANK];
    uint64_t result[SDC_MAX_RANK];
    unsigned axes[SDC_MAX_RANK];
};

void sdc__shape_text(const uint64_t *shape, unsigned rank, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (unsigned d = 0; d < rank && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%llu", d ? "," : "",
                                 (unsigned long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static bool product(const uint64_t *sizes, unsigned n, uint64_t *out) {
    *out = 1;
    for (unsigned d = 0; d < n; d++)
        if (__builtin_mul_overflow(*out, sizes[d], out))
            return false;
    return true;
}

static enum sdc_status refuse(struct sdc_name_link *link, char *why, struct sdc_error *err) {
    link->why = why;
    return why ? SDC_OK : SDC_NOMEM(err, "a name map");
}

/* The shape that the rule gives the source; false if it cannot have it. */
static bool make_view(const struct sdc__axis_rule *rule, uint64_t n_elems, struct shapes *s) {
    unsigned open = SDC_MAX_RANK;
    uint64_t others;
    s->rank = rule->n_view;
    for (unsigned d = 0; d < s->rank; d++) {
        bool inferred = rule->view[d] < 0;
        open = inferred ? d : open;
        s->view[d] = inferred ? 1 : (uint64_t)rule->view[d];
    }
    if (!product(s->view, s->rank, &others))
        return false;
    if (open == SDC_MAX_RANK)
        return others == n_elems;
    if (others == 0 || n_elems % others)
        return false;
    s->view[open] = n_elems / others;
    return true;
}

static bool make_axes(const struct sdc__axis_rule *rule, unsigned rank, struct shapes *s) {
    if (rule->transpose ? rank != 2 : rule->n_axes && rule->n_axes != rank)
        return false;
    for (unsigned d = 0; d < rank; d++)
        s->axes[d] = rule->transpose ? 1 - d : rule->n_axes ? rule->axes[d] : d;
    return true;
}

/* One axis after the other has the same sizes in another order? */
static bool same_sizes(const struct sdc_tensor_desc *a, const struct sdc_tensor_desc *b) {
    bool used[SDC_MAX_RANK] = {false};
    if (a->rank != b->rank || a->rank > SDC_MAX_RANK)
        return false;
    for (unsigned d = 0; d < a->rank; d++) {
        unsigned k = 0;
        while (k < b->rank && (used[k] || a->shape[d] != b->shape[k]))
            k++;
        if (k == b->rank)
            return false;
        used[k] = true;
    }
    return true;
}

static enum sdc_status refuse_shapes(const struct sdc_tensor_desc *from,
                                     const struct sdc_tensor_desc *to,
                                     const struct sdc__axis_rule *rule, const struct shapes *s,
                                     struct sdc_name_link *link, struct sdc_error *err) {
    char was[256], becomes[256], is[256];
    sdc__shape_text(from->shape, from->rank, was, sizeof was);
    sdc__shape_text(s->result, s->rank, becomes, sizeof becomes);
    sdc__shape_text(to->shape, to->rank, is, sizeof is);
    if (rule->n_axes || rule->transpose || rule->n_view)
        return refuse(
            link,
            sdc__asprintf("its shape %s becomes %s, but %s has %s", was, becomes, to->name, is),
            err);
    return refuse(link,
                  sdc__asprintf("its shape is %s, but %s has %s%s", was, to->name, is,
                                same_sizes(from, to) ? " (the order of axes differs: name it in "
                                                       "a map, or take a built-in one)"
                                : from->n_elems == to->n_elems
                                    ? " (as many elements: a view in a map says where they lie)"
                                    : ""),
                  err);
}

/* Strides of both sides for each axis of the source's view. */
static enum sdc_status make_link(const struct shapes *s, struct sdc_name_link *link,
                                 struct sdc_error *err) {
    bool moved = false;
    for (unsigned d = 0; d < s->rank; d++)
        moved |= s->axes[d] != d;
    if (!moved)
        return SDC_OK;
    link->axes = sdc__calloc(s->rank, sizeof *link->axes);
    if (!link->axes)
        return SDC_NOMEM(err, "a name map");
    link->n_axes = s->rank;
    uint64_t stride = 1;
    for (unsigned d = s->rank; d-- > 0; stride *= s->view[d])
        link->axes[d] = (struct sdc_name_axis){.size = s->view[d], .from_stride = stride};
    stride = 1;
    for (unsigned d = s->rank; d-- > 0; stride *= s->result[d])
        link->axes[s->axes[d]].to_stride = stride;
    return SDC_OK;
}

static enum sdc_status refuse_order(unsigned rank, const struct sdc__axis_rule *rule,
                                    struct sdc_name_link *link, struct sdc_error *err) {
    return refuse(link,
                  sdc__asprintf("it has %u axes, but the map orders %u", rank,
                                rule->transpose ? 2 : rule->n_axes),
                  err);
}

/* A source of unknown shape has the one that gives the target's. */
static enum sdc_status fit_unknown(const struct sdc_tensor_desc *from,
                                   const struct sdc_tensor_desc *to,
                                   const struct sdc__axis_rule *rule, struct shapes *s,
                                   struct sdc_name_link *link, struct sdc_error *err) {
    s->rank = from->rank;
    if (from->rank != to->rank)
        return refuse(
            link, sdc__asprintf("it has %u axes, but %s has %u", from->rank, to->name, to->rank),
            err);
    if (!make_axes(rule, s->rank, s))
        return refuse_order(s->rank, rule, link, err);
    for (unsigned d = 0; d < s->rank; d++)
        s->view[s->axes[d]] = s->result[d] = to->shape[d];
    return make_link(s, link, err);
}

enum sdc_status sdc__name_fit(const struct sdc_tensor_desc *from, const struct sdc_tensor_desc *to,
                              const struct sdc__axis_rule *rule, struct sdc_name_link *link,
                              struct sdc_error *err) {
    struct shapes s = {0};
    link->reshaped = rule->n_view > 0;
    bool known = from->shape || from->rank == 0;
    if (from->rank > SDC_MAX_RANK || to->rank > SDC_MAX_RANK)
        return refuse(link, sdc__asprintf("it has more than %d axes", SDC_MAX_RANK), err);
    if (!known && !rule->n_view)
        return fit_unknown(from, to, rule, &s, link, err);
    if (rule->n_view && !make_view(rule, known ? from->n_elems : to->n_elems, &s))
        return refuse(link,
                      sdc__asprintf("the view of the map does not hold its %llu elements",
                                    (unsigned long long)(known ? from->n_elems : to->n_elems)),
                      err);
    if (!rule->n_view) {
        s.rank = from->rank;
        if (s.rank)
            memcpy(s.view, from->shape, s.rank * sizeof *s.view);
    }
    if (!make_axes(rule, s.rank, &s))
        return refuse_order(s.rank, rule, link, err);
    for (unsigned d = 0; d < s.rank; d++)
        s.result[d] = s.view[s.axes[d]];
    uint64_t n;
    bool fits = rule->collapse
                    ? product(s.result, s.rank, &n) && n == to->n_elems
                    : s.rank == to->rank &&
                          (s.rank == 0 || memcmp(s.result, to->shape, s.rank * sizeof n) == 0);
    if (!fits && known)
        return refuse_shapes(from, to, rule, &s, link, err);
    if (!fits)
        return refuse(link, sdc__asprintf("the map's view does not fit %s", to->name), err);
    return make_link(&s, link, err);
}
