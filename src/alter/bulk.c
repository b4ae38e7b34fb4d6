/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/bulk.h"

#include <stdlib.h>
#include <string.h>

#include "alter/patches.h"
#include "base/alloc.h"
#include "base/parallel.h"

#define RUN       ((size_t)1 << 14) /* sites of one run, and the few that do not part from them */
#define MAX_FIRST 1024              /* changes that are kept to be shown */

/* Sites from cut to the next cut, and the bytes they lie between. */
struct run {
    size_t first, end;
    uint64_t from, to;
    size_t written; /* of its elements in the order of the file, those that may be changed */
};

/* What one thread works in. */
struct slot {
    struct sdc_fault_list list;
    size_t cap;
    struct sdc_patches patches;
    unsigned char *block; /* SDC_PATCHES_BLOCK; owned */
    struct sdc_bulk_counts counts;
    bool unfit; /* not served */
};

struct sdc_bulk {
    struct sdc_ckpt *ckpt;             /* borrowed */
    const struct sdc_support *support; /* borrowed */
    struct sdc_rng stream;             /* of the sites, before them */
    unsigned threads;
    struct sdc_places places;
    struct run *runs; /* owned */
    size_t n_runs;
    uint64_t *old_raw; /* owned; of a run from its first site on, its elements' in file order */
    struct sdc_drawing drawing;
    struct sdc_file *f;
    struct sdc_bulk_counts counts;
    bool unfit, restored;
    /* the first few; owned */
    struct sdc_fault *first;
    uint64_t *first_old, *first_new;
    size_t n_first, max_first;
};

bool sdc__bulk_wanted(const struct sdc_support *s, const struct sdc_choice *choice,
                      const struct sdc_alter_options *o) {
    uint64_t sites = sdc_support_sites(s);
    if (!o->no_record || o->dry_run || o->list || o->max_changes == 0 ||
        o->max_changes > MAX_FIRST || choice->op == SDC_OP_SWAP || !sdc__places_serve(s, choice))
        return false; /* a swap takes values that other runs may have changed by then */
    if (choice->mode == SDC_CHOICE_FLIPS)
        return choice->flips >= SDC_BULK_FROM && choice->flips <= sites;
    if (choice->mode == SDC_CHOICE_RATE)
        return (double)sites * choice->rate >= (double)SDC_BULK_FROM;
    return sites >= SDC_BULK_FROM;
}

/* ---- one run ---- */

static enum sdc_status slot_room(struct slot *slot, size_t n, struct sdc_error *err) {
    if (slot->cap < n) {
        struct sdc_fault *more = sdc__realloc(slot->list.faults, n, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "a run of faults");
        slot->list.faults = more;
        slot->cap = n;
    }
    if (!slot->block && !(slot->block = sdc__alloc(SDC_PATCHES_BLOCK, 1)))
        return SDC_NOMEM(err, "a run of faults");
    slot->list.n = 0;
    slot->patches.n = 0;
    return sdc__patches_reserve(&slot->patches, n, err);
}

static void slot_release(struct slot *slot) {
    sdc_fault_list_release(&slot->list);
    sdc__patches_release(&slot->patches);
    sdc__free(slot->block);
}

static enum sdc_status make_faults(const struct sdc_bulk *b, const struct run *r, struct slot *slot,
                                   struct sdc_error *err) {
    SDC_TRY(slot_room(slot, r->end - r->first, err));
    sdc__places_faults(&b->places, r->first, r->end, &slot->list);
    return SDC_OK;
}

/* Where the faults of the slot are, by offset; each with the number of its fault as new_raw. */
static enum sdc_status make_patches(const struct sdc_bulk *b, struct slot *slot,
                                    struct sdc_error *err) {
    for (size_t i = 0; i < slot->list.n; i++) {
        const struct sdc_fault *f = &slot->list.faults[i];
        const enum sdc_dtype dtype = sdc_ckpt_tensor(b->ckpt, f->tensor)->dtype;
        struct sdc_span span;
        SDC_TRY(sdc_ckpt_map(b->ckpt, f->tensor, f->elem, &span, err));
        const struct sdc_patch p = {.offset = span.offset,
                                    .new_raw = i,
                                    .file = span.file,
                                    .size = (unsigned char)span.size,
                                    .shift = (unsigned char)span.shift,
                                    .bits = (unsigned char)sdc_dtype_bits(dtype),
                                    .big_endian = span.big_endian};
        SDC_TRY(sdc__patches_add(&slot->patches, &p, err));
        slot->unfit = slot->unfit || span.file != 0 || span.size != sdc_dtype_bytes(dtype);
    }
    return sdc__patches_sort(&slot->patches, err);
}

static enum sdc_status
in_runs(struct sdc_bulk *b, unsigned threads,
        enum sdc_status (*work)(void *user, void *slot, uint64_t task, struct sdc_error *err),
        enum sdc_status (*commit)(void *user, void *slot, uint64_t task, struct sdc_error *err),
        struct sdc_error *err) {
    threads = sdc__parallel_threads(threads, b->n_runs);
    struct slot *slots = sdc__calloc(threads, sizeof *slots);
    struct sdc_parallel run = {.n_tasks = b->n_runs,
                               .threads = threads,
                               .work = work,
                               .commit = commit,
                               .user = b,
                               .slots = slots,
                               .slot_size = sizeof *slots};
    enum sdc_status st = slots ? sdc__parallel_run(&run, err) : SDC_NOMEM(err, "runs of sites");
    for (unsigned i = 0; slots && i < threads; i++)
        slot_release(&slots[i]);
    sdc__free(slots);
    return st;
}

/* ---- planning ---- */

static enum sdc_status look_work(void *user, void *slot_, uint64_t task, struct sdc_error *err) {
    struct sdc_bulk *b = user;
    struct slot *slot = slot_;
    struct run *r = &b->runs[task];
    slot->unfit = false;
    SDC_TRY(make_faults(b, r, slot, err));
    for (size_t i = 0; i < slot->list.n && !slot->unfit; i++)
        slot->unfit = sdc_ckpt_recoded(b->ckpt, slot->list.faults[i].tensor) != NULL;
    if (slot->unfit)
        return SDC_OK;
    enum sdc_status st = make_patches(b, slot, err);
    if (st == SDC_INVALID) { /* the list will say which sites share a bit */
        slot->unfit = true;
        return SDC_OK;
    }
    if (st != SDC_OK || slot->patches.n == 0)
        return st;
    const struct sdc_patch *p = slot->patches.items;
    r->from = p[0].offset;
    for (size_t i = 0; i < slot->patches.n; i++)
        if (p[i].offset + p[i].size > r->to)
            r->to = p[i].offset + p[i].size;
    return SDC_OK;
}

static enum sdc_status look_commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct sdc_bulk *b = user;
    (void)task;
    (void)err;
    b->unfit = b->unfit || ((struct slot *)slot)->unfit;
    return SDC_OK;
}

static int by_offset(const void *x, const void *y) {
    const struct run *a = x, *b = y;
    return (a->from > b->from) - (a->from < b->from);
}

/* Runs are changed in any order, and what lies between their sites is written with them. */
static enum sdc_status check_apart(struct sdc_bulk *b, struct sdc_error *err) {
    struct run *sorted = sdc__alloc(b->n_runs, sizeof *sorted);
    if (!sorted)
        return SDC_NOMEM(err, "runs of sites");
    memcpy(sorted, b->runs, b->n_runs * sizeof *sorted);
    qsort(sorted, b->n_runs, sizeof *sorted, by_offset);
    for (size_t i = 1; i < b->n_runs; i++)
        b->unfit = b->unfit || sorted[i].from < sorted[i - 1].to;
    sdc__free(sorted);
    return SDC_OK;
}

static enum sdc_status make_runs(struct sdc_bulk *b, struct sdc_error *err) {
    b->runs = sdc__calloc(b->places.n / RUN + sdc_support_tensors(b->support) + 1, sizeof *b->runs);
    if (!b->runs)
        return SDC_NOMEM(err, "runs of sites");
    for (size_t at = 0; at < b->places.n; b->n_runs++) {
        size_t end = sdc__places_cut(&b->places, at, RUN);
        b->runs[b->n_runs] = (struct run){.first = at, .end = end};
        at = end;
    }
    SDC_TRY(in_runs(b, b->threads, look_work, look_commit, err));
    b->unfit = b->unfit || sdc_ckpt_sums(b->ckpt) > 0; /* some are found by looking */
    return b->unfit ? SDC_OK : check_apart(b, err);
}

static enum sdc_status plan(struct sdc_bulk *b, const struct sdc_choice *choice,
                            struct sdc_error *err) {
    struct sdc_rng rng = b->stream;
    b->unfit = sdc_ckpt_is_set(b->ckpt) || sdc_ckpt_sums(b->ckpt) > 0;
    if (b->unfit)
        return SDC_OK;
    SDC_TRY(sdc__places_draw(b->support, choice, &rng, &b->places, err));
    SDC_TRY(make_runs(b, err));
    if (b->unfit)
        return SDC_OK;
    b->old_raw = sdc__alloc(b->places.n, sizeof *b->old_raw);
    b->first = sdc__alloc(b->max_first, sizeof *b->first);
    b->first_old = sdc__alloc(b->max_first, sizeof *b->first_old);
    b->first_new = sdc__alloc(b->max_first, sizeof *b->first_new);
    if (!b->old_raw || !b->first || !b->first_old || !b->first_new)
        return SDC_NOMEM(err, "the values of the sites");
    return SDC_OK;
}

enum sdc_status sdc__bulk_new(struct sdc_ckpt *ckpt, const struct sdc_support *support,
                              const struct sdc_choice *choice,
                              const struct sdc_alter_options *options, struct sdc_bulk **bulk,
                              struct sdc_error *err) {
    struct sdc_bulk *b = sdc__calloc(1, sizeof *b);
    *bulk = NULL;
    if (!b)
        return SDC_NOMEM(err, "the plan");
    b->ckpt = ckpt;
    b->support = support;
    b->threads = options->threads;
    b->max_first = options->max_changes;
    sdc_rng_init(&b->stream, options->seed, SDC_RNG_FAULT_SITES, options->block, options->trial);
    enum sdc_status st = plan(b, choice, err);
    if (st != SDC_OK || b->unfit)
        sdc__bulk_free(b);
    else
        *bulk = b;
    return st;
}

void sdc__bulk_free(struct sdc_bulk *bulk) {
    if (!bulk)
        return;
    sdc__places_release(&bulk->places);
    sdc__free(bulk->runs);
    sdc__free(bulk->old_raw);
    sdc__free(bulk->first);
    sdc__free(bulk->first_old);
    sdc__free(bulk->first_new);
    sdc__free(bulk);
}

uint64_t sdc__bulk_sites(const struct sdc_bulk *bulk) {
    return bulk->places.n;
}

struct sdc_bulk_sample sdc__bulk_first(const struct sdc_bulk *bulk) {
    return (struct sdc_bulk_sample){
        .list = {.faults = bulk->first, .n = bulk->n_first, .n_sites = bulk->places.n},
        .old_raw = bulk->first_old,
        .new_raw = bulk->first_new};
}

/* ---- altering ---- */

/* A run whose sites are being read. */
struct changing {
    struct sdc_bulk *b;
    struct run *r;
    struct slot *slot;
};

/* The values that were found say what is to be written. */
static void seen(void *user, struct sdc_patch *p, size_t first, size_t n) {
    struct changing *c = user;
    struct sdc_bulk *b = c->b;
    const bool shows = c->r->first == 0;
    for (size_t i = first; i < first + n; i++) {
        const size_t k = (size_t)p[i].new_raw;
        const struct sdc_fault *f = &c->slot->list.faults[k];
        const enum sdc_dtype dtype = sdc_ckpt_tensor(b->ckpt, f->tensor)->dtype;
        p[i].old_raw = p[i].now;
        p[i].new_raw = sdc_fault_apply(f, dtype, p[i].now, 0);
        b->old_raw[c->r->first + i] = p[i].old_raw;
        c->slot->counts.altered += p[i].old_raw != p[i].new_raw;
        c->slot->counts.bits += (unsigned)__builtin_popcountll(p[i].old_raw ^ p[i].new_raw);
        if (shows && k < b->max_first) {
            b->first[k] = *f;
            b->first_old[k] = p[i].old_raw;
            b->first_new[k] = p[i].new_raw;
        }
    }
    c->r->written = first + n;
}

static enum sdc_status alter_work(void *user, void *slot_, uint64_t task, struct sdc_error *err) {
    struct sdc_bulk *b = user;
    struct slot *slot = slot_;
    struct changing c = {.b = b, .r = &b->runs[task], .slot = slot};
    SDC_TRY(make_faults(b, c.r, slot, err));
    if (b->drawing.needed) /* then one thread takes the runs in their order */
        SDC_TRY(sdc__drawing_add(&b->drawing, slot->list.faults, slot->list.n, err));
    SDC_TRY(make_patches(b, slot, err));
    SDC_TRY(sdc__patches_inside(slot->patches.items, slot->patches.n, b->f->size, err));
    slot->counts = (struct sdc_bulk_counts){.elements = slot->list.n};
    return sdc__patches_change(slot->patches.items, slot->patches.n, b->f, slot->block, seen, &c,
                               err);
}

static enum sdc_status alter_commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct sdc_bulk *b = user;
    const struct sdc_bulk_counts *more = &((const struct slot *)slot)->counts;
    (void)err;
    if (task == 0)
        b->n_first = more->elements < b->max_first ? (size_t)more->elements : b->max_first;
    b->counts.elements += more->elements;
    b->counts.altered += more->altered;
    b->counts.bits += more->bits;
    return SDC_OK;
}

enum sdc_status sdc__bulk_alter(struct sdc_bulk *b, struct sdc_file *f, bool sync,
                                struct sdc_bulk_counts *counts, struct sdc_error *err) {
    b->f = f;
    enum sdc_status st = sdc__drawing_init(&b->drawing, b->support, &b->stream, err);
    if (st == SDC_OK)
        st = in_runs(b, b->drawing.needed ? 1 : b->threads, alter_work, alter_commit, err);
    sdc__drawing_release(&b->drawing);
    if (st == SDC_OK && sync)
        st = sdc__file_sync(f, err);
    if (st == SDC_OK)
        *counts = b->counts;
    return st;
}

/* ---- taking back ---- */

static enum sdc_status restore_work(void *user, void *slot_, uint64_t task, struct sdc_error *err) {
    struct sdc_bulk *b = user;
    struct slot *slot = slot_;
    const struct run *r = &b->runs[task];
    SDC_TRY(make_faults(b, r, slot, err));
    SDC_TRY(make_patches(b, slot, err));
    struct sdc_patch *p = slot->patches.items;
    for (size_t i = 0; i < r->written; i++)
        p[i].old_raw = b->old_raw[r->first + i];
    SDC_TRY(sdc__patches_write(p, r->written, b->f, SDC_SIDE_OLD, false, err));
    SDC_TRY(sdc__patches_read(p, r->written, b->f, err));
    return sdc__patches_check(p, r->written, b->f, SDC_SIDE_OLD, err);
}

/* Whatever fails, the other runs are put back all the same. */
static enum sdc_status restore_any(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct sdc_bulk *b = user;
    if (b->runs[task].written > 0 && restore_work(user, slot, task, err) != SDC_OK)
        b->restored = false;
    return SDC_OK;
}

bool sdc__bulk_restore(struct sdc_bulk *b, struct sdc_file *f, bool sync) {
    b->f = f;
    b->restored = true;
    return in_runs(b, 1, restore_any, NULL, NULL) == SDC_OK &&
           (!sync || sdc__file_sync(f, NULL) == SDC_OK) && b->restored;
}
