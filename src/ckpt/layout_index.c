/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of many boxes an element is in. The begins and ends of the boxes cut every dimension into
 * intervals, and each box is made of whole cells of this grid: a binary search in each dimension
 * gives the cell, and a table the box. Shards and slices are a grid mostly; where boxes are cut so
 * irregularly that the grid would be large, there is no table.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/fmt.h"

#define FEW  16u /* boxes: looking at each is as fast */
#define EACH 4u  /* cells for a box at most; visits of cells likewise */
#define NONE UINT32_MAX

struct sdc_ckpt_cells {
    uint64_t *cuts[SDC_MAX_RANK];
    size_t n_cuts[SDC_MAX_RANK];
    uint32_t *boxes; /* of each cell the first box that holds it */
};

void sdc__layout_cells_free(struct sdc_ckpt_cells *cells) {
    for (unsigned d = 0; cells && d < SDC_MAX_RANK; d++)
        sdc__free(cells->cuts[d]);
    if (cells)
        sdc__free(cells->boxes);
    sdc__free(cells);
}

static int by_size(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool is_empty(const struct sdc_ckpt_piece *p, unsigned rank) {
    for (unsigned d = 0; d < rank; d++)
        if (p->size[d] == 0)
            return true;
    return false;
}

/* Begins and ends of all boxes in one dimension, sorted, each once. False: no memory. */
static bool cut(const struct sdc_ckpt_entry *e, unsigned d, struct sdc_ckpt_cells *cells) {
    uint64_t *cuts = sdc__alloc(2 * e->n_pieces, sizeof *cuts);
    size_t n = 0, distinct = 0;
    cells->cuts[d] = cuts;
    if (!cuts)
        return false;
    for (size_t i = 0; i < e->n_pieces; i++)
        if (!is_empty(&e->pieces[i], e->desc.rank)) {
            cuts[n++] = e->pieces[i].begin[d];
            cuts[n++] = e->pieces[i].begin[d] + e->pieces[i].size[d];
        }
    if (n > 1)
        qsort(cuts, n, sizeof *cuts, by_size);
    for (size_t i = 0; i < n; i++)
        if (distinct == 0 || cuts[distinct - 1] != cuts[i])
            cuts[distinct++] = cuts[i];
    cells->n_cuts[d] = distinct;
    return true;
}

/* The interval that a coordinate is in; n_cuts where it is in none. */
static size_t interval(const struct sdc_ckpt_cells *cells, unsigned d, uint64_t coord) {
    size_t lo = 0, hi = cells->n_cuts[d]; /* the first cut beyond it */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cells->cuts[d][mid] <= coord)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo == 0 || lo == cells->n_cuts[d] ? cells->n_cuts[d] : lo - 1;
}

/* Marks the cells of a box as its own; false where these are more than the budget. */
static bool mark(const struct sdc_ckpt_entry *e, size_t i, struct sdc_ckpt_cells *cells,
                 uint64_t *budget) {
    const struct sdc_ckpt_piece *p = &e->pieces[i];
    const unsigned rank = e->desc.rank;
    size_t from[SDC_MAX_RANK], to[SDC_MAX_RANK], at[SDC_MAX_RANK];
    for (unsigned d = 0; d < rank; d++) {
        at[d] = from[d] = interval(cells, d, p->begin[d]);
        to[d] = interval(cells, d, p->begin[d] + p->size[d] - 1);
    }
    for (;; (*budget)--) {
        if (*budget == 0)
            return false;
        size_t cell = 0;
        for (unsigned d = 0; d < rank; d++)
            cell = cell * (cells->n_cuts[d] - 1) + at[d];
        cells->boxes[cell] = (uint32_t)i;
        unsigned d = 0;
        while (d < rank && at[d] == to[d]) {
            at[d] = from[d];
            d++;
        }
        if (d == rank)
            return true;
        at[d]++;
    }
}

/* SDC_OK with no table where it would be too large. */
static enum sdc_status fill(const struct sdc_ckpt_entry *e, struct sdc_ckpt_cells *cells,
                            bool *done, struct sdc_error *err) {
    uint64_t n = 1, most = EACH * (uint64_t)e->n_pieces, budget = most;
    for (unsigned d = 0; d < e->desc.rank; d++) {
        if (!cut(e, d, cells))
            return SDC_NOMEM(err, "the pieces of a tensor");
        if (cells->n_cuts[d] < 2 || !sdc__mul_u64(&n, cells->n_cuts[d] - 1) || n > most)
            return SDC_OK;
    }
    cells->boxes = sdc__alloc((size_t)n, sizeof *cells->boxes);
    if (!cells->boxes)
        return SDC_NOMEM(err, "the pieces of a tensor");
    memset(cells->boxes, 0xff, (size_t)n * sizeof *cells->boxes);
    for (size_t i = e->n_pieces; i-- > 0;) /* the first box of a cell is the last to mark it */
        if (!is_empty(&e->pieces[i], e->desc.rank) && !mark(e, i, cells, &budget))
            return SDC_OK;
    *done = true;
    return SDC_OK;
}

enum sdc_status sdc__layout_index(struct sdc_ckpt_entry *e, struct sdc_error *err) {
    bool boxes = e->desc.rank > 0, done = false;
    sdc__layout_cells_free(e->cells);
    e->cells = NULL;
    for (size_t i = 0; i < e->n_pieces && boxes; i++)
        boxes = e->pieces[i].begin != NULL;
    if (!boxes || e->n_pieces < FEW || e->n_pieces >= NONE)
        return SDC_OK;
    struct sdc_ckpt_cells *cells = sdc__calloc(1, sizeof *cells);
    if (!cells)
        return SDC_NOMEM(err, "the pieces of a tensor");
    enum sdc_status st = fill(e, cells, &done, err);
    if (st == SDC_OK && done)
        e->cells = cells;
    else
        sdc__layout_cells_free(cells);
    return st;
}

const struct sdc_ckpt_piece *sdc__layout_box(const struct sdc_ckpt_entry *e,
                                             const uint64_t *coord) {
    size_t cell = 0;
    for (unsigned d = 0; d < e->desc.rank; d++) {
        size_t k = interval(e->cells, d, coord[d]);
        if (k == e->cells->n_cuts[d])
            return NULL;
        cell = cell * (e->cells->n_cuts[d] - 1) + k;
    }
    const uint32_t box = e->cells->boxes[cell];
    return box == NONE ? NULL : &e->pieces[box];
}
