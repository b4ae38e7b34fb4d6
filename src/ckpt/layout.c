/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces: from an element to its bits and from a run of elements to bytes. Stateless, so that
 * several threads may read one checkpoint.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/fmt.h"

#define WINDOW     ((size_t)64 * 1024)  /* bytes read at once around elements with gaps */
#define NEAR_BITS  (UINT64_C(8) * 1024) /* elements farther apart are read one by one */
#define FOLLOWS    UINT64_C(4096)       /* a gap in bytes up to which reading goes on */
#define MAX_STRIDE (UINT64_MAX >> 1)

/* ---- checks ---- */

static uint64_t box_elements(const struct sdc_ckpt_entry *e, const struct sdc_ckpt_piece *p) {
    uint64_t n = 1;
    if (!p->size)
        return e->desc.n_elems;
    for (unsigned i = 0; i < e->desc.rank; i++)
        n *= p->size[i]; /* at most the tensor's product; check_box saw each size */
    return n;
}

static enum sdc_status bad(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                           const char *what, struct sdc_error *err) {
    return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: %s", ckpt->path, e->name, what);
}

static enum sdc_status check_box(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                 const struct sdc_ckpt_piece *p, struct sdc_error *err) {
    if (!p->begin != !p->size)
        return bad(ckpt, e, "a piece without a begin or a size", err);
    for (unsigned i = 0; p->begin && i < e->desc.rank; i++)
        if (!sdc__range_inside(p->begin[i], p->size[i], e->desc.shape[i]))
            return SDC_ERR(err, SDC_INVALID,
                           "%s: tensor %s: a piece of %llu from %llu on in dimension %u of %llu",
                           ckpt->path, e->name, (unsigned long long)p->size[i],
                           (unsigned long long)p->begin[i], i,
                           (unsigned long long)e->desc.shape[i]);
    return SDC_OK;
}

static enum sdc_status check_piece(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                   const struct sdc_ckpt_piece *p, struct sdc_error *err) {
    const unsigned bits = sdc_dtype_bits(e->desc.dtype), unit = bits < 8 ? bits : 8;
    uint64_t n = 1, last = p->bit;
    SDC_TRY(check_box(ckpt, e, p, err));
    const uint64_t want = box_elements(e, p);
    if (p->file >= ckpt->n_members || p->n_dims > SDC_MAX_RANK + 4)
        return bad(ckpt, e, "a piece in no file, or of too many dimensions", err);
    bool aligned = p->bit % unit == 0;
    for (unsigned i = 0; i < p->n_dims; i++) {
        if (!sdc__mul_u64(&n, p->dims[i]))
            return bad(ckpt, e, "overflow of a layout's dimensions", err);
        aligned = aligned && (p->dims[i] < 2 || p->strides[i] % unit == 0);
    }
    if (n != want)
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: a layout of %llu elements for %llu",
                       ckpt->path, e->name, (unsigned long long)n, (unsigned long long)want);
    if (!aligned)
        return bad(ckpt, e, "elements that do not begin at whole bytes", err);
    if (n == 0)
        return SDC_OK;
    for (unsigned i = 0; i < p->n_dims; i++) {
        uint64_t reach = p->dims[i] - 1;
        if (reach > 0 && (p->strides[i] > MAX_STRIDE || !sdc__mul_u64(&reach, p->strides[i]) ||
                          __builtin_add_overflow(last, reach, &last)))
            return bad(ckpt, e, "overflow of a layout's strides", err);
    }
    const struct sdc_ckpt_member *m = ckpt->members[p->file];
    if (m->size > UINT64_MAX / 8 || !sdc__range_inside(last, bits, m->size * 8))
        return SDC_ERR_AT(err, SDC_INVALID, p->bit / 8,
                          "%s: tensor %s: truncated, or out of bounds: its elements from byte %llu "
                          "to %llu are not inside the file of %llu bytes",
                          m->path, e->name, (unsigned long long)(p->bit / 8),
                          (unsigned long long)(last / 8 + (bits + 7) / 8),
                          (unsigned long long)m->size);
    return SDC_OK;
}

static bool is_packed(const struct sdc_ckpt_entry *e, const struct sdc_ckpt_piece *p) {
    uint64_t step = sdc_dtype_bits(e->desc.dtype);
    if (step < 8 || p->begin)
        return false;
    for (unsigned i = p->n_dims; i-- > 0;) {
        if (p->dims[i] > 1 && p->strides[i] != step)
            return false;
        step *= p->dims[i]; /* the last element is inside the file, so this does not overflow */
    }
    return true;
}

enum sdc_status sdc__layout_check(const struct sdc_ckpt *ckpt, struct sdc_ckpt_entry *e,
                                  struct sdc_error *err) {
    e->packed = false;
    if (!e->desc.dtype_known)
        return SDC_OK;
    for (size_t i = 0; i < e->n_pieces; i++)
        SDC_TRY(check_piece(ckpt, e, &e->pieces[i], err));
    e->packed = e->n_pieces == 1 && e->desc.n_elems > 0 && is_packed(e, &e->pieces[0]);
    return sdc__layout_index(e, err);
}

/* ---- one element ---- */

/* Where an element is, and how many from it on (itself included) follow at the same distance. */
struct place {
    const struct sdc_ckpt_piece *piece;
    uint64_t bit, step, run;
};

static void to_coords(const uint64_t *dims, unsigned n_dims, uint64_t flat, uint64_t *coord) {
    for (unsigned i = n_dims; i-- > 0;) {
        coord[i] = flat % dims[i];
        flat /= dims[i];
    }
}

/* Flat index inside the box, and how many elements of the tensor's C order follow in it. */
static bool in_box(const struct sdc_ckpt_entry *e, const struct sdc_ckpt_piece *p,
                   const uint64_t *coord, uint64_t *flat, uint64_t *run) {
    const unsigned rank = e->desc.rank;
    *flat = 0;
    for (unsigned i = 0; i < rank; i++) {
        if (coord[i] < p->begin[i] || coord[i] - p->begin[i] >= p->size[i])
            return false;
        *flat = *flat * p->size[i] + (coord[i] - p->begin[i]);
    }
    *run = rank ? p->size[rank - 1] - (coord[rank - 1] - p->begin[rank - 1]) : 1;
    return true;
}

static bool find_place(const struct sdc_ckpt_entry *e, uint64_t elem, struct place *at) {
    uint64_t coord[SDC_MAX_RANK + 4], flat = elem, run = e->desc.n_elems - elem;
    const struct sdc_ckpt_piece *p = NULL;
    to_coords(e->desc.shape, e->desc.rank, elem, coord);
    if (e->cells) {
        p = sdc__layout_box(e, coord);
        if (p && !in_box(e, p, coord, &flat, &run))
            p = NULL;
    }
    for (size_t i = 0; !e->cells && i < e->n_pieces && !p; i++)
        if (!e->pieces[i].begin || in_box(e, &e->pieces[i], coord, &flat, &run))
            p = &e->pieces[i];
    if (!p)
        return false;
    *at = (struct place){.piece = p, .bit = p->bit, .step = sdc_dtype_bits(e->desc.dtype)};
    uint64_t inner = 1; /* elements of one step over the dimensions seen so far */
    bool even = true;   /* do they all lie at the distance at->step? */
    at->run = 1;
    for (unsigned i = p->n_dims; i-- > 0;) {
        uint64_t c = flat % p->dims[i];
        flat /= p->dims[i];
        at->bit += c * p->strides[i];
        if (p->dims[i] == 1)
            continue;
        if (inner == 1)
            at->step = p->strides[i];
        if (even && p->strides[i] == at->step * inner) {
            at->run += (p->dims[i] - 1 - c) * inner;
            inner *= p->dims[i];
        } else {
            even = false;
        }
    }
    if (at->run > run)
        at->run = run;
    return true;
}

enum sdc_status sdc__layout_map(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                uint64_t elem, struct sdc_span *span, struct sdc_error *err) {
    const unsigned bits = sdc_dtype_bits(e->desc.dtype);
    struct place at;
    if (!find_place(e, elem, &at))
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s: element %llu is stored nowhere",
                       ckpt->path, e->name, (unsigned long long)elem);
    *span = (struct sdc_span){.file = at.piece->file,
                              .offset = at.bit / 8,
                              .size = sdc_dtype_bytes(e->desc.dtype),
                              .shift = bits < 8 ? (unsigned)(at.bit % 8) : 0,
                              .big_endian = e->big_endian};
    return SDC_OK;
}

/* ---- runs ---- */

/* Takes elements of `bits` from packed or spread places in memory to one after the other. */
static void gather(const unsigned char *from, uint64_t first_bit, uint64_t step, unsigned bits,
                   uint64_t n, unsigned char *to) {
    if (bits < 8) {
        const unsigned mask = (1u << bits) - 1;
        for (uint64_t k = 0; k < n; k++, first_bit += step)
            to[k] = (unsigned char)((unsigned)from[first_bit / 8] >> first_bit % 8 & mask);
        return;
    }
    const size_t size = bits / 8;
    const unsigned char *p = from + first_bit / 8;
    for (uint64_t k = 0; k < n; k++, p += step / 8, to += size)
        memcpy(to, p, size);
}

/* What was read last. Runs that follow each other (blocks of a few elements each) are read ahead.
 */
struct window {
    unsigned char *data; /* WINDOW + 8 bytes */
    const struct sdc_file *file;
    uint64_t base, last; /* of the window; end of what was last asked for */
    size_t have;
};

/* Bytes base to end, at most WINDOW + 8 of them; valid until the next call. */
static enum sdc_status look(struct window *w, const struct sdc_file *f, uint64_t base, uint64_t end,
                            const unsigned char **bytes, struct sdc_error *err) {
    const bool same = w->file == f;
    if (!same || base < w->base || end > w->base + w->have) {
        uint64_t len = end - base;
        if (same && base >= w->last && base - w->last <= FOLLOWS && len < WINDOW)
            len = f->size - base < WINDOW ? f->size - base : WINDOW;
        w->file = NULL; /* a failed read leaves nothing */
        SDC_TRY(sdc__file_read(f, base, w->data, (size_t)len, err));
        w->file = f;
        w->base = base;
        w->have = (size_t)len;
    }
    w->last = end;
    *bytes = w->data + (base - w->base);
    return SDC_OK;
}

/* n elements at a distance of `step` bits from bit `bit` on. */
static enum sdc_status read_run(const struct sdc_file *f, uint64_t bit, uint64_t step,
                                unsigned bits, uint64_t n, unsigned char *to, struct window *window,
                                struct sdc_error *err) {
    const size_t size = bits < 8 ? 1 : bits / 8;
    if (step == bits && bits >= 8 && n > WINDOW / 8 / size)
        return sdc__file_read(f, bit / 8, to, (size_t)n * size, err);
    while (n > 0) {
        uint64_t fit = step == 0 ? n : step > NEAR_BITS ? 1 : (WINDOW * 8 - 64 - bits) / step + 1;
        if (fit > n)
            fit = n;
        const unsigned char *from;
        uint64_t base = bit / 8, end = (bit + (fit - 1) * step + bits + 7) / 8;
        SDC_TRY(look(window, f, base, end, &from, err));
        gather(from, bit % 8, step, bits, fit, to);
        bit += fit * step;
        to += fit * size;
        n -= fit;
    }
    return SDC_OK;
}

/* Where an outer dimension has neighbouring elements side by side (a transposed matrix), its runs
 * are read and scattered. Returns how many elements it did, 0 where this is no such place. */
static uint64_t read_across(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t first,
                            uint64_t n, unsigned char *to, struct window *window,
                            enum sdc_status *st, struct sdc_error *err) {
    const struct sdc_ckpt_piece *p = &e->pieces[0];
    const unsigned bits = sdc_dtype_bits(e->desc.dtype), size = sdc_dtype_bytes(e->desc.dtype);
    uint64_t below = 1; /* elements of one step of the dimension */
    unsigned u = p->n_dims;
    while (u-- > 0 && (p->dims[u] < 2 || p->strides[u] != bits))
        below *= p->dims[u];
    if (bits < 8 || e->n_pieces != 1 || p->begin || u >= p->n_dims || below < 2 ||
        first % below != 0)
        return 0;
    uint64_t rows = n / below, left = p->dims[u] - first / below % p->dims[u];
    rows = rows > left ? left : rows;
    rows = rows > WINDOW / size ? WINDOW / size : rows;
    if (rows < 4)
        return 0;
    const struct sdc_file *f;
    *st = sdc__ckpt_member(ckpt, p->file, &f, err);
    window->file = NULL; /* its memory is used for other things here */
    for (uint64_t k = 0; *st == SDC_OK && k < below; k++) {
        struct place at;
        if (!find_place(e, first + k, &at))
            return 0;
        *st = sdc__file_read(f, at.bit / 8, window->data, (size_t)rows * size, err);
        for (uint64_t r = 0; *st == SDC_OK && r < rows; r++)
            memcpy(to + (r * below + k) * size, window->data + r * size, size);
    }
    return rows * below;
}

enum sdc_status sdc__layout_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                 uint64_t first, uint64_t n, void *elements,
                                 struct sdc_error *err) {
    const unsigned bits = sdc_dtype_bits(e->desc.dtype), size = sdc_dtype_bytes(e->desc.dtype);
    unsigned char *to = elements;
    const struct sdc_file *f = NULL;
    if (e->packed) {
        SDC_TRY(sdc__ckpt_member(ckpt, e->pieces[0].file, &f, err));
        return sdc__file_read(f, e->pieces[0].bit / 8 + first * size, to, (size_t)(n * size), err);
    }
    struct window window = {.data = sdc__alloc(WINDOW + 8, 1)};
    if (!window.data)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = SDC_OK;
    while (st == SDC_OK && n > 0) {
        uint64_t done = read_across(ckpt, e, first, n, to, &window, &st, err);
        if (st == SDC_OK && done == 0) {
            struct place at;
            if (!find_place(e, first, &at)) {
                st = SDC_ERR(err, SDC_INVALID, "%s: tensor %s: element %llu is stored nowhere",
                             ckpt->path, e->name, (unsigned long long)first);
                break;
            }
            done = at.run < n ? at.run : n;
            st = sdc__ckpt_member(ckpt, at.piece->file, &f, err);
            if (st == SDC_OK)
                st = read_run(f, at.bit, at.step, bits, done, to, &window, err);
        }
        first += done;
        n -= done;
        to += done * size;
    }
    sdc__free(window.data);
    return st;
}
