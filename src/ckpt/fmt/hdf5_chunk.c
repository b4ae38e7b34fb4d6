/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements that are in chunks, in several files, or nowhere: mapping and reading.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/hdf5.h"
#include "io/crc.h"

#define MAX_CHUNK   (UINT64_C(1) << 30) /* bytes of a chunk that is held in memory */
#define SMALL_CHUNK (UINT64_C(1) << 20) /* raw chunks up to this are read whole */
#define CACHE_BYTES ((size_t)64 << 20)
#define AHEAD       256u /* chunks asked about at once when reading */
#define SCRATCH     ((size_t)256 * 1024)
#define ASKED_BYTES ((uint64_t)1 << 22) /* of a box that the helper reads */

/* ---- where ---- */

void sdc__h5_corner(const struct sdc_h5_kept *k, uint64_t chunk, uint64_t *corner) {
    for (unsigned i = k->set.rank; i-- > 0;) {
        corner[i] = chunk % k->grid[i] * k->set.chunk[i];
        chunk /= k->grid[i];
    }
}

void sdc__h5_chunk_text(const struct sdc_h5_kept *k, uint64_t chunk, char *text, size_t size) {
    uint64_t corner[SDC_MAX_RANK];
    sdc__h5_corner(k, chunk, corner);
    int n = snprintf(text, size, "tensor %.200s, chunk [", k->name);
    for (unsigned i = 0; i < k->set.rank && n > 0 && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%llu", i ? "," : "",
                      (unsigned long long)(corner[i] / k->set.chunk[i]));
    if (n > 0 && (size_t)n < size)
        (void)snprintf(text + n, size - (size_t)n, "]");
}

void sdc__h5_inside(const struct sdc_h5_kept *k, uint64_t elem, uint64_t *chunk, uint64_t *byte) {
    const struct sdc_h5_set *set = &k->set;
    uint64_t coord[SDC_MAX_RANK], at = 0, inside = 0;
    for (unsigned i = set->rank; i-- > 0;) {
        coord[i] = elem % set->dims[i];
        elem /= set->dims[i];
    }
    /* C order in the grid and in the chunk; chunks at the edge are stored whole */
    for (unsigned i = 0; i < set->rank; i++) {
        at = at * k->grid[i] + coord[i] / set->chunk[i];
        inside = inside * set->chunk[i] + coord[i] % set->chunk[i];
    }
    *chunk = at;
    *byte = inside * set->fields.size;
}

uint64_t sdc__h5_sub_offset(const struct sdc_h5_part *part, uint64_t sub) {
    uint64_t at = part->offset;
    for (unsigned i = part->rank; i-- > 0;) {
        at += sub % part->dims[i] * part->strides[i];
        sub /= part->dims[i];
    }
    return at;
}

uint32_t sdc__h5_mask(const struct sdc_h5_kept *k, uint64_t chunk, const struct sdc_h5_place *p) {
    const struct sdc_h5_set *set = &k->set;
    if (set->plain_edges) {
        uint64_t corner[SDC_MAX_RANK];
        sdc__h5_corner(k, chunk, corner);
        for (unsigned i = 0; i < set->rank; i++)
            if (set->chunk[i] > set->dims[i] - corner[i])
                return UINT32_MAX;
    }
    return p->mask;
}

static enum sdc_status check_place(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k,
                                   uint64_t chunk, struct sdc_h5_place *p, struct sdc_error *err) {
    const struct sdc_h5_state *s = ckpt->priv;
    char what[320];
    const uint32_t mask = sdc__h5_mask(k, chunk, p);
    const bool summed = k->coding == SDC_H5_FLETCHER && !(mask & 1);
    const uint64_t want = k->chunk_bytes + (summed ? 4 : 0);
    const bool fixed = k->coding == SDC_H5_RAW || k->coding == SDC_H5_FLETCHER;
    if (sdc__range_inside(p->at, p->size, s->f.size) && (!fixed || p->size == want)) {
        p->at += s->f.start;
        return SDC_OK;
    }
    sdc__h5_chunk_text(k, chunk, what, sizeof what);
    const uint64_t at = p->at, size = p->size;
    p->at = SDC_H5_NOT_ASKED;
    return SDC_ERR_AT(err, SDC_INVALID, at,
                      "%s: %s: truncated, or out of bounds: %llu bytes at %llu, of %llu",
                      ckpt->path, what, (unsigned long long)size, (unsigned long long)at,
                      (unsigned long long)(fixed ? want : k->chunk_bytes));
}

/* Asks about n chunks from this one on. */
static enum sdc_status ask_places(struct sdc_ckpt *ckpt, struct sdc_h5_kept *k, uint64_t chunk,
                                  unsigned n, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    struct sdc_buf body = SDC_BUF_INIT;
    struct sdc_wire w;
    uint64_t corner[SDC_MAX_RANK];
    if (!s->proc)
        return SDC_ERR(err, SDC_INTERNAL, "%s: no helper to ask", ckpt->path);
    sdc__wire_put(&body, k->set.addr, 8);
    sdc__wire_put(&body, k->set.rank, 1);
    sdc__wire_put(&body, n, 4);
    for (unsigned i = 0; i < n; i++) {
        sdc__h5_corner(k, chunk + i, corner);
        for (unsigned d = 0; d < k->set.rank; d++)
            sdc__wire_put(&body, corner[d], 8);
    }
    enum sdc_status st =
        sdc__h5_call(s->proc, SDC_WIRE_CHUNKS, &body, SDC_WIRE_CHUNK_LIST, &w, err);
    sdc__buf_release(&body);
    if (st != SDC_OK)
        return st;
    if (w.len != (size_t)n * 20)
        return sdc__h5_nonsense(s->proc, "places of chunks", err);
    for (unsigned i = 0; i < n; i++) {
        struct sdc_h5_place p = {.at = sdc__wire_get(&w, 8)};
        p.size = sdc__wire_get(&w, 8);
        p.mask = (uint32_t)sdc__wire_get(&w, 4);
        if (k->places[chunk + i].at != SDC_H5_NOT_ASKED)
            continue;
        if (p.at == SDC_WIRE_NOWHERE)
            p.at = SDC_H5_NOT_STORED;
        else
            SDC_TRY(check_place(ckpt, k, chunk + i, &p, err));
        k->places[chunk + i] = p;
    }
    return SDC_OK;
}

enum sdc_status sdc__h5_place(struct sdc_ckpt *ckpt, size_t kept, uint64_t chunk, unsigned ahead,
                              struct sdc_h5_place **place, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    struct sdc_h5_kept *k = &s->kept[kept];
    if (!k->places) {
        k->places = sdc__alloc((size_t)k->n_chunks, sizeof *k->places);
        if (!k->places)
            return SDC_NOMEM(err, ckpt->path);
        for (uint64_t i = 0; i < k->n_chunks; i++)
            k->places[i] = (struct sdc_h5_place){.at = SDC_H5_NOT_ASKED};
    }
    *place = &k->places[chunk];
    if ((*place)->at != SDC_H5_NOT_ASKED)
        return SDC_OK;
    const uint64_t left = k->n_chunks - chunk;
    return ask_places(ckpt, k, chunk, left < 1 + (uint64_t)ahead ? (unsigned)left : 1 + ahead, err);
}

/* ---- sums ---- */

static enum sdc_status add_sum(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k, uint64_t chunk,
                               struct sdc_h5_place *p, struct sdc_error *err) {
    char what[320];
    const struct sdc_h5_set *set = &k->set;
    const unsigned last = set->n_filters - 1;
    if (p->summed || p->at == SDC_H5_NOT_STORED || p->size < 4 || set->n_filters == 0 ||
        set->filters[last].id != SDC_H5_FLETCHER32 || (sdc__h5_mask(k, chunk, p) >> last & 1))
        return SDC_OK;
    sdc__h5_chunk_text(k, chunk, what, sizeof what);
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_FLETCHER32, .what = what, .n_places = 1};
    sum.offset = p->at;
    sum.size = p->size - 4;
    sum.places[0].offset = p->at + sum.size;
    SDC_TRY(sdc__ckpt_add_sum(ckpt, &sum, err));
    p->summed = true;
    return SDC_OK;
}

static int by_number(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static enum sdc_status find_header_sums(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    struct sdc_h5_header h = {0};
    enum sdc_status st = SDC_OK;
    char what[96];
    if (s->n_summed > 1)
        qsort(s->summed, s->n_summed, sizeof *s->summed, by_number);
    for (size_t i = 0; st == SDC_OK && i < s->n_sets && s->f.version >= 1; i++) {
        st = sdc__h5_header_read(&s->f, s->sets[i], &h, err);
        for (size_t b = 0; st == SDC_OK && h.version == 2 && b < h.n_blocks; b++) {
            if (s->n_summed > 0 &&
                bsearch(&h.blocks[b].addr, s->summed, s->n_summed, sizeof *s->summed, by_number))
                continue;
            (void)snprintf(what, sizeof what, "object header at address %llu",
                           (unsigned long long)h.blocks[b].addr);
            struct sdc_ckpt_sum sum = {.kind = SDC_SUM_LOOKUP3, .what = what, .n_places = 1};
            sum.offset = s->f.start + s->f.base + h.blocks[b].addr;
            sum.size = h.blocks[b].size - 4;
            sum.places[0].offset = sum.offset + sum.size;
            st = sdc__ckpt_add_sum(ckpt, &sum, err);
        }
    }
    sdc__h5_header_release(&h);
    return st;
}

enum sdc_status sdc__h5_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    if (s->f.file != ckpt->file)
        return SDC_OK;
    s->f.budget = s->f.size > UINT64_MAX / 8 ? UINT64_MAX : s->f.size * 4 + (UINT64_C(64) << 20);
    SDC_TRY(find_header_sums(ckpt, err));
    for (size_t i = 0; i < s->n_kept; i++) {
        struct sdc_h5_kept *k = &s->kept[i];
        const struct sdc_h5_set *set = &k->set;
        if (set->layout != SDC_H5_CHUNKED || set->n_filters == 0 || k->n_chunks > MAX_CHUNK ||
            set->filters[set->n_filters - 1].id != SDC_H5_FLETCHER32)
            continue;
        for (uint64_t c = 0; c < k->n_chunks; c++) {
            struct sdc_h5_place *p;
            SDC_TRY(sdc__h5_place(ckpt, i, c, SDC_WIRE_BATCH - 1, &p, err));
            SDC_TRY(add_sum(ckpt, k, c, p, err));
        }
    }
    return SDC_OK;
}

/* ---- mapping ---- */

static enum sdc_status map_segment(const struct sdc_h5_kept *k, uint64_t byte, unsigned *file,
                                   uint64_t *at, uint64_t *left) {
    for (size_t i = 0; i < k->set.n_segments; i++) {
        const struct sdc_h5_segment *s = &k->set.segments[i];
        if (byte < s->size) {
            *file = k->members[i];
            *at = s->offset + byte;
            *left = s->size - byte;
            return SDC_OK;
        }
        byte -= s->size;
    }
    return SDC_INTERNAL; /* not reached: segments cover all elements */
}

enum sdc_status sdc__h5_map(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t elem,
                            struct sdc_span *span, struct sdc_error *err) {
    const struct sdc_h5_state *s = ckpt->priv;
    const struct sdc_h5_part *part = e->layout;
    struct sdc_h5_kept *k = &s->kept[part->kept];
    const uint64_t set_elem = elem / part->count;
    const uint64_t sub = sdc__h5_sub_offset(part, elem % part->count);
    if (k->set.n_segments > 0) {
        uint64_t left;
        if (map_segment(k, set_elem * k->set.fields.size + sub, &span->file, &span->offset,
                        &left) != SDC_OK)
            return SDC_ERR(err, SDC_INTERNAL, "%s: tensor %s: in no segment", ckpt->path, e->name);
        return SDC_OK;
    }
    uint64_t chunk, byte;
    struct sdc_h5_place *p;
    sdc__h5_inside(k, set_elem, &chunk, &byte);
    SDC_TRY(sdc__h5_place(ckpt, part->kept, chunk, 0, &p, err));
    if (p->at == SDC_H5_NOT_STORED)
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: tensor %s: element %llu has no storage: its chunk was never written",
                       ckpt->path, e->name, (unsigned long long)elem);
    SDC_TRY(add_sum(ckpt, k, chunk, p, err));
    span->file = 0;
    span->offset = p->at + byte + sub;
    return SDC_OK;
}

/* ---- chunks in memory ---- */

enum sdc_status sdc__h5_load(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k, uint64_t chunk,
                             const struct sdc_h5_place *p, unsigned char **bytes,
                             struct sdc_error *err) {
    const struct sdc_h5_state *s = ckpt->priv;
    char what[SDC_ERROR_MESSAGE_SIZE / 2], text[320];
    sdc__h5_chunk_text(k, chunk, text, sizeof text);
    (void)snprintf(what, sizeof what, "%.180s: %s", ckpt->path, text);
    if (k->chunk_bytes > MAX_CHUNK || p->size > 2 * MAX_CHUNK)
        return SDC_ERR(err, SDC_LIMIT, "%s: a chunk of %llu bytes, the limit is %llu", what,
                       (unsigned long long)k->chunk_bytes, (unsigned long long)MAX_CHUNK);
    unsigned char *in = sdc__alloc((size_t)p->size, 1);
    if (!in)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = sdc__file_read(s->f.file, p->at, in, (size_t)p->size, err);
    if (st != SDC_OK) {
        sdc__free(in);
        return st;
    }
    /* a sum over plain elements is verify's affair: damaged elements can still be looked at */
    const bool plain = k->coding == SDC_H5_FLETCHER;
    return sdc__h5_decode(&k->set, plain ? UINT32_MAX : sdc__h5_mask(k, chunk, p), in,
                          plain ? (size_t)k->chunk_bytes : (size_t)p->size, (size_t)k->chunk_bytes,
                          bytes, what, err);
}

static void drop(struct sdc_h5_state *s, struct sdc_h5_cached *c) {
    s->cached_bytes -= c->size;
    sdc__free(c->bytes);
    *c = (struct sdc_h5_cached){0};
}

/* The chunk, from the cache or loaded into it; borrowed until the next call. */
static enum sdc_status get_chunk(struct sdc_ckpt *ckpt, size_t kept, uint64_t chunk,
                                 const struct sdc_h5_place *p, const unsigned char **bytes,
                                 struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const struct sdc_h5_kept *k = &s->kept[kept];
    struct sdc_h5_cached *oldest = &s->cache[0];
    s->clock++;
    for (size_t i = 0; i < SDC_H5_CACHED; i++) {
        struct sdc_h5_cached *c = &s->cache[i];
        if (c->bytes && c->kept == kept && c->chunk == chunk) {
            c->used = s->clock;
            *bytes = c->bytes;
            return SDC_OK;
        }
        if (c->used < oldest->used)
            oldest = c;
    }
    drop(s, oldest);
    for (size_t i = 0; i < SDC_H5_CACHED && s->cached_bytes + k->chunk_bytes > CACHE_BYTES; i++)
        drop(s, &s->cache[i]);
    unsigned char *fresh;
    SDC_TRY(sdc__h5_load(ckpt, k, chunk, p, &fresh, err));
    *oldest = (struct sdc_h5_cached){.kept = kept,
                                     .chunk = chunk,
                                     .bytes = fresh,
                                     .size = (size_t)k->chunk_bytes,
                                     .used = s->clock,
                                     .raw = k->coding != SDC_H5_DECODED};
    s->cached_bytes += oldest->size;
    *bytes = fresh;
    return SDC_OK;
}

/* ---- reading ---- */

/* Elements of the dataset from `elem` on, as they are in memory. */
struct run {
    const unsigned char *bytes;
    uint64_t n;
    size_t stride; /* bytes from one to the next; 0: all the same, a fill value */
};

static const unsigned char zeros[8192];

static enum sdc_status fill_run(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k, struct run *r,
                                struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const uint64_t size = k->set.fields.size;
    r->stride = 0;
    if (k->set.fill) {
        r->bytes = k->set.fill;
    } else if (size <= sizeof zeros) {
        r->bytes = zeros;
    } else if (size <= SCRATCH) {
        memset(s->scratch, 0, (size_t)size);
        r->bytes = s->scratch;
    } else {
        return SDC_ERR(err, SDC_LIMIT, "%s: elements of %llu bytes", ckpt->path,
                       (unsigned long long)size);
    }
    return SDC_OK;
}

/* From a file into the scratch memory. */
static enum sdc_status read_run(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k,
                                const struct sdc_file *f, uint64_t at, struct run *r,
                                struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const uint64_t size = k->set.fields.size;
    if (size > SCRATCH)
        return SDC_ERR(err, SDC_LIMIT, "%s: elements of %llu bytes", ckpt->path,
                       (unsigned long long)size);
    if (r->n > SCRATCH / size)
        r->n = SCRATCH / size;
    r->bytes = s->scratch;
    r->stride = (size_t)size;
    return sdc__file_read(f, at, s->scratch, (size_t)(r->n * size), err);
}

/* At most r->n elements. */
static enum sdc_status chunk_run(struct sdc_ckpt *ckpt, size_t kept, uint64_t elem, struct run *r,
                                 struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const struct sdc_h5_kept *k = &s->kept[kept];
    const unsigned last = k->set.rank - 1;
    struct sdc_h5_place *p;
    uint64_t chunk, byte;
    sdc__h5_inside(k, elem, &chunk, &byte);
    const uint64_t x = elem % k->set.dims[last];
    uint64_t row = k->set.chunk[last] - x % k->set.chunk[last];
    if (row > k->set.dims[last] - x)
        row = k->set.dims[last] - x;
    if (r->n > row)
        r->n = row;
    SDC_TRY(sdc__h5_place(ckpt, kept, chunk, AHEAD - 1, &p, err));
    if (p->at == SDC_H5_NOT_STORED)
        return fill_run(ckpt, k, r, err);
    if (k->coding != SDC_H5_DECODED && k->chunk_bytes > SMALL_CHUNK)
        return read_run(ckpt, k, s->f.file, p->at + byte, r, err);
    const unsigned char *bytes;
    SDC_TRY(get_chunk(ckpt, kept, chunk, p, &bytes, err));
    r->bytes = bytes + byte;
    r->stride = (size_t)k->set.fields.size;
    return SDC_OK;
}

/* The largest box of whole rows from `first` on of at most n elements; returns how many. */
static uint64_t next_box(const struct sdc_h5_set *set, uint64_t first, uint64_t n, uint64_t *start,
                         uint64_t *count) {
    uint64_t rest = first, below = 1; /* below: elements of one step in dimension d */
    for (unsigned i = set->rank; i-- > 0;) {
        start[i] = rest % set->dims[i];
        rest /= set->dims[i];
        count[i] = 1;
    }
    unsigned d = set->rank - 1;
    while (d > 0 && start[d] == 0 && below * set->dims[d] <= n) {
        count[d] = set->dims[d];
        below *= set->dims[d--];
    }
    const uint64_t left = set->dims[d] - start[d], rows = n / below;
    count[d] = rows < left ? rows : left;
    return count[d] * below;
}

/* Elements that libhdf5 has to decode. */
static enum sdc_status asked_run(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k, uint64_t elem,
                                 struct run *r, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    struct sdc_buf body = SDC_BUF_INIT;
    struct sdc_wire w;
    uint64_t start[SDC_MAX_RANK], count[SDC_MAX_RANK];
    const uint64_t size = k->set.fields.size, most = ASKED_BYTES / size;
    if (most == 0)
        return SDC_ERR(err, SDC_LIMIT, "%s: elements of %llu bytes", ckpt->path,
                       (unsigned long long)size);
    r->n = next_box(&k->set, elem, r->n < most ? r->n : most, start, count);
    sdc__wire_put(&body, k->set.addr, 8);
    sdc__wire_put(&body, k->set.rank, 1);
    for (unsigned i = 0; i < k->set.rank; i++) {
        sdc__wire_put(&body, start[i], 8);
        sdc__wire_put(&body, count[i], 8);
    }
    sdc__wire_put(&body, r->n * size, 8);
    enum sdc_status st = sdc__h5_call(s->proc, SDC_WIRE_READ, &body, SDC_WIRE_DATA, &w, err);
    sdc__buf_release(&body);
    if (st != SDC_OK)
        return st;
    if (w.len != r->n * size)
        return sdc__h5_nonsense(s->proc, "elements", err);
    r->bytes = w.data;
    r->stride = (size_t)size;
    return SDC_OK;
}

static enum sdc_status get_run(struct sdc_ckpt *ckpt, size_t kept, uint64_t elem, struct run *r,
                               struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const struct sdc_h5_kept *k = &s->kept[kept];
    if (k->set.n_segments > 0) {
        const struct sdc_file *f;
        unsigned file = 0;
        uint64_t at = 0, left = 0;
        if (map_segment(k, elem * k->set.fields.size, &file, &at, &left) != SDC_OK)
            return SDC_ERR(err, SDC_INTERNAL, "%s: tensor %s: in no segment", ckpt->path, k->name);
        if (r->n > left / k->set.fields.size)
            r->n = left / k->set.fields.size;
        SDC_TRY(sdc__ckpt_member(ckpt, file, &f, err));
        return read_run(ckpt, k, f, at, r, err);
    }
    if (k->at > 0)
        return read_run(ckpt, k, s->f.file, k->at + elem * k->set.fields.size, r, err);
    if (k->set.layout != SDC_H5_CHUNKED)
        return fill_run(ckpt, k, r, err);
    return k->coding == SDC_H5_ASKED ? asked_run(ckpt, k, elem, r, err)
                                     : chunk_run(ckpt, kept, elem, r, err);
}

/* A shape far beyond what is stored costs a time that nothing in the file justifies. */
static enum sdc_status check_expansion(const struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k,
                                       struct sdc_error *err) {
    const uint64_t bytes = k->set.n_elems * k->set.fields.size;
    if (bytes > UINT64_C(4) << 30 && bytes / 1000 > sdc_ckpt_file_size(ckpt))
        return SDC_ERR(err, SDC_LIMIT,
                       "%s: %llu elements, more than 1000 times the file of %llu bytes", ckpt->path,
                       (unsigned long long)k->set.n_elems,
                       (unsigned long long)sdc_ckpt_file_size(ckpt));
    return SDC_OK;
}

/* n values of a part from run `r`, whose first element is that of value `first`. */
static unsigned char *copy_values(const struct sdc_h5_part *part, const struct run *r,
                                  uint64_t first, uint64_t n, size_t size, unsigned char *out) {
    uint64_t sub = first % part->count;
    const unsigned char *from = r->bytes;
    if (part->rank == 0 && r->stride == size) {
        memcpy(out, from + part->offset, (size_t)n * size);
        return out + n * size;
    }
    for (uint64_t i = 0; i < n; i++, out += size) {
        memcpy(out, from + (part->rank ? sdc__h5_sub_offset(part, sub) : part->offset), size);
        if (++sub == part->count) {
            sub = 0;
            from += r->stride;
        }
    }
    return out;
}

enum sdc_status sdc__h5_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t first,
                             uint64_t n, void *elements, struct sdc_error *err) {
    struct sdc_h5_state *s = ckpt->priv;
    const struct sdc_h5_part *part = e->layout;
    const size_t size = sdc_dtype_bytes(e->desc.dtype);
    unsigned char *out = elements;
    SDC_TRY(check_expansion(ckpt, &s->kept[part->kept], err));
    if (!s->scratch && !(s->scratch = sdc__alloc(SCRATCH, 1)))
        return SDC_NOMEM(err, ckpt->path);
    /* raw chunks may have been changed in place since the last call */
    for (size_t i = 0; i < SDC_H5_CACHED; i++)
        if (s->cache[i].raw)
            drop(s, &s->cache[i]);
    while (n > 0) {
        const uint64_t sub = first % part->count;
        struct run r = {.n = n / part->count + (n % part->count != 0) + (sub != 0)};
        const uint64_t rest = s->kept[part->kept].set.n_elems - first / part->count;
        if (r.n > rest)
            r.n = rest;
        SDC_TRY(get_run(ckpt, part->kept, first / part->count, &r, err));
        uint64_t m = r.n * part->count - sub;
        if (m > n)
            m = n;
        out = copy_values(part, &r, first, m, size, out);
        first += m;
        n -= m;
    }
    return SDC_OK;
}
