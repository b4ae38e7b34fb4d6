/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensor of one checkpoint is compared with which of the other.
 */
#include <string.h>

#include "audit/diff_match.h"
#include "base/alloc.h"

static bool wanted(const struct sdc_diff_options *o, const struct sdc_tensor_desc *t) {
    return o->n_globs == 0 || sdc_tensor_matches(t, o->globs, o->n_globs);
}

static bool any_wanted(const struct sdc_ckpt *ckpt, const char *const *glob) {
    size_t i = 0;
    while (i < sdc_ckpt_count(ckpt) && !sdc_tensor_matches(sdc_ckpt_tensor(ckpt, i), glob, 1))
        i++;
    return i < sdc_ckpt_count(ckpt);
}

enum sdc_status sdc__diff_check_globs(const struct sdc_ckpt *a, const struct sdc_ckpt *b,
                                      const struct sdc_diff_options *options,
                                      struct sdc_error *err) {
    for (size_t i = 0; i < options->n_globs; i++)
        if (!any_wanted(a, &options->globs[i]) && !any_wanted(b, &options->globs[i]))
            return SDC_ERR(err, SDC_USAGE, "tensors: no tensor of %s or %s is called '%s'",
                           sdc_ckpt_path(a), sdc_ckpt_path(b), options->globs[i]);
    return SDC_OK;
}

struct matching {
    struct sdc_ckpt *a, *b;
    const struct sdc_diff_options *options;
    struct sdc_diff_match *out;
    bool *done_a, *done_b; /* has its pair, or wants none */
    bool *ruled_a; /* a rule of the map says which is its counterpart, or that it has none */
};

static void pair(struct matching *m, size_t a, size_t b, size_t link) {
    m->out->pairs[m->out->n++] = (struct sdc_diff_pair){.a = a, .b = b, .link = link};
    if (a != SDC_NAME_NONE)
        m->done_a[a] = true;
    if (b != SDC_NAME_NONE)
        m->done_b[b] = true;
}

/* By exact name; a name that the other knows as an alias is no tensor that it lacks. */
static void by_exact_name(struct matching *m) {
    size_t k;
    for (size_t i = 0; i < sdc_ckpt_count(m->a); i++)
        if (!m->done_a[i] && !m->ruled_a[i] &&
            sdc_ckpt_find(m->b, sdc_ckpt_tensor(m->a, i)->name, &k))
            pair(m, i, k, SDC_NAME_NONE);
    for (size_t i = 0; i < sdc_ckpt_count(m->b); i++)
        if (!m->done_b[i] && wanted(m->options, sdc_ckpt_tensor(m->b, i)) &&
            sdc_ckpt_find(m->a, sdc_ckpt_tensor(m->b, i)->name, &k) && !m->ruled_a[k])
            pair(m, k, i, SDC_NAME_NONE);
}

/* Descriptors of those that have no pair yet, done NULL: of all; index[] says which they are. */
static enum sdc_status left_over(const struct sdc_ckpt *ckpt, const bool *done,
                                 const struct sdc_tensor_desc ***descs, size_t **index, size_t *n,
                                 struct sdc_error *err) {
    const size_t count = sdc_ckpt_count(ckpt);
    *n = 0;
    *descs = sdc__alloc(count, sizeof **descs);
    *index = sdc__alloc(count, sizeof **index);
    if (!*descs || !*index)
        return SDC_NOMEM(err, sdc_ckpt_path(ckpt));
    for (size_t i = 0; i < count; i++)
        if (!done || !done[i]) {
            (*descs)[*n] = sdc_ckpt_tensor(ckpt, i);
            (*index)[(*n)++] = i;
        }
    return SDC_OK;
}

/* One that a rule leaves out; nor is one of its name in the other file missing here. */
static void leave_out(struct matching *m, size_t a) {
    size_t k;
    m->done_a[a] = true;
    if (sdc_ckpt_find(m->b, sdc_ckpt_tensor(m->a, a)->name, &k))
        m->done_b[k] = true;
}

/* What a map resolves is all of both, since the shapes of a whole layer tell which it is. */
static enum sdc_status by_map(struct matching *m, struct sdc_error *err) {
    const struct sdc_name_map *map = m->options->map;
    const struct sdc_tensor_desc **from = NULL, **to = NULL;
    size_t *from_index = NULL, *to_index = NULL, n_from, n_to;
    enum sdc_status st;
    SDC_TRY_OUT(st, left_over(m->a, map ? NULL : m->done_a, &from, &from_index, &n_from, err));
    SDC_TRY_OUT(st, left_over(m->b, map ? NULL : m->done_b, &to, &to_index, &n_to, err));
    if (n_from == 0 || (n_to == 0 && !map))
        goto out;
    SDC_TRY_OUT(st, sdc_name_map_resolve(map, from, n_from, to, n_to, &m->out->links, err));
    for (size_t i = 0; i < n_from; i++) {
        const struct sdc_name_link *link = &m->out->links.items[i];
        m->ruled_a[from_index[i]] = link->ruled;
        if (link->to != SDC_NAME_NONE &&
            (wanted(m->options, from[i]) || wanted(m->options, to[link->to])))
            pair(m, from_index[i], to_index[link->to], i);
    }
    for (size_t i = 0; i < n_from; i++)
        if (m->out->links.items[i].left_out)
            leave_out(m, from_index[i]);
out:
    sdc__free(from);
    sdc__free(to);
    sdc__free(from_index);
    sdc__free(to_index);
    return st;
}

/* Those without a pair, but for what the map says that the other file cannot have. */
static void alone(struct matching *m) {
    const struct sdc_name_map *map = m->options->map;
    for (size_t i = 0; i < sdc_ckpt_count(m->a); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(m->a, i);
        if (!m->done_a[i] && !(map && !m->ruled_a[i] && sdc_name_map_lone(map, t, true)))
            pair(m, i, SDC_NAME_NONE, SDC_NAME_NONE);
    }
    for (size_t i = 0; i < sdc_ckpt_count(m->b); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(m->b, i);
        if (!m->done_b[i] && wanted(m->options, t) && !(map && sdc_name_map_lone(map, t, false)))
            pair(m, SDC_NAME_NONE, i, SDC_NAME_NONE);
    }
}

enum sdc_status sdc__diff_match(struct sdc_ckpt *a, struct sdc_ckpt *b,
                                const struct sdc_diff_options *options,
                                struct sdc_diff_match *match, struct sdc_error *err) {
    const size_t n_a = sdc_ckpt_count(a), n_b = sdc_ckpt_count(b);
    struct matching m = {.a = a, .b = b, .options = options, .out = match};
    enum sdc_status st = SDC_OK;
    *match = (struct sdc_diff_match){0};
    match->pairs = sdc__alloc(n_a + n_b, sizeof *match->pairs);
    m.done_a = sdc__calloc(n_a, sizeof *m.done_a);
    m.done_b = sdc__calloc(n_b, sizeof *m.done_b);
    m.ruled_a = sdc__calloc(n_a, sizeof *m.ruled_a);
    if (!match->pairs || !m.done_a || !m.done_b || !m.ruled_a) {
        st = SDC_NOMEM(err, sdc_ckpt_path(a));
        goto out;
    }
    for (size_t i = 0; i < n_a; i++) /* those that nobody asked for are as if done */
        match->n_a += !(m.done_a[i] = !wanted(options, sdc_ckpt_tensor(a, i)));
    for (size_t i = 0; i < n_b; i++)
        match->n_b += wanted(options, sdc_ckpt_tensor(b, i));
    if (options->map)
        SDC_TRY_OUT(st, by_map(&m, err));
    /* a pair's name on the other side need not fit the glob; a lone one's must */
    by_exact_name(&m);
    if (!options->map)
        SDC_TRY_OUT(st, by_map(&m, err));
    alone(&m);
out:
    sdc__free(m.done_a);
    sdc__free(m.done_b);
    sdc__free(m.ruled_a);
    if (st != SDC_OK)
        sdc__diff_match_release(match);
    return st;
}

void sdc__diff_match_release(struct sdc_diff_match *match) {
    sdc__free(match->pairs);
    sdc_name_links_release(&match->links);
    *match = (struct sdc_diff_match){0};
}
