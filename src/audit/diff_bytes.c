/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing the files of two checkpoints as bytes.
 */
#include <stdatomic.h>
#include <string.h>

#include "audit/diff_match.h"
#include "audit/walk.h"
#include "base/alloc.h"
#include "base/parallel.h"
#include "io/io.h"

struct bytes {
    const struct sdc_file *a, *b;
    uint64_t size;           /* of the shorter one */
    _Atomic uint64_t first;  /* difference that was found, of those found the first; or size */
    _Atomic uint64_t failed; /* the same of what could not be read */
};

struct slot {
    unsigned char *a, *b; /* SDC_WALK_READ */
};

static void note_first(_Atomic uint64_t *first, uint64_t at) {
    uint64_t was = *first;
    while (at < was && !atomic_compare_exchange_weak(first, &was, at))
        ; /* another thread was there meanwhile */
}

static enum sdc_status read_both(struct bytes *c, struct slot *s, uint64_t at, size_t n,
                                 struct sdc_error *err) {
    enum sdc_status st = sdc__file_read(c->a, at, s->a, n, err);
    if (st == SDC_OK)
        st = sdc__file_read(c->b, at, s->b, n, err);
    if (st != SDC_OK)
        note_first(&c->failed, at);
    return st;
}

static enum sdc_status work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct bytes *c = user;
    struct slot *s = slot;
    uint64_t at = task * SDC_WALK_CHUNK;
    const uint64_t end = c->size - at < SDC_WALK_CHUNK ? c->size : at + SDC_WALK_CHUNK;
    for (; at < end && at < c->first; at += SDC_WALK_READ) {
        size_t n = end - at < SDC_WALK_READ ? (size_t)(end - at) : SDC_WALK_READ, k = 0;
        SDC_TRY(read_both(c, s, at, n, err));
        if (memcmp(s->a, s->b, n) == 0)
            continue;
        while (s->a[k] == s->b[k])
            k++;
        note_first(&c->first, at + k);
    }
    return SDC_OK;
}

static enum sdc_status compare(const struct sdc_file *a, const struct sdc_file *b, unsigned wanted,
                               bool *same, uint64_t *first, struct sdc_error *err) {
    struct bytes c = {.a = a, .b = b, .size = a->size < b->size ? a->size : b->size};
    c.first = c.failed = c.size;
    const uint64_t n = c.size / SDC_WALK_CHUNK + (c.size % SDC_WALK_CHUNK != 0);
    const unsigned threads = sdc__parallel_threads(wanted, n);
    struct slot *slots = sdc__calloc(threads, sizeof *slots);
    enum sdc_status st = slots ? SDC_OK : SDC_NOMEM(err, a->path);
    for (unsigned i = 0; st == SDC_OK && i < threads; i++) {
        slots[i].a = sdc__alloc_tensor(SDC_WALK_READ, 1);
        slots[i].b = sdc__alloc_tensor(SDC_WALK_READ, 1);
        st = slots[i].a && slots[i].b ? SDC_OK : SDC_NOMEM(err, a->path);
    }
    struct sdc_parallel p = {.n_tasks = n,
                             .threads = threads,
                             .work = work,
                             .user = &c,
                             .slots = slots,
                             .slot_size = sizeof *slots};
    if (st == SDC_OK)
        st = sdc__parallel_run(&p, err);
    if (c.first < c.failed) /* what is behind the first difference need not be read */
        st = SDC_OK;
    *first = c.first;
    *same = *first == c.size && a->size == b->size;
    for (unsigned i = 0; slots && i < threads; i++) {
        sdc__free(slots[i].a);
        sdc__free(slots[i].b);
    }
    sdc__free(slots);
    return st;
}

static enum sdc_status compare_files(const struct sdc_ckpt_file *a, const struct sdc_ckpt_file *b,
                                     unsigned threads, struct sdc_diff *out,
                                     struct sdc_error *err) {
    struct sdc_file x = SDC_FILE_INIT, y = SDC_FILE_INIT;
    uint64_t first = 0;
    bool same = false;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__file_open(a->path, SDC_FILE_READ, &x, err));
    SDC_TRY_OUT(st, sdc__file_open(b->path, SDC_FILE_READ, &y, err));
    SDC_TRY_OUT(st, compare(&x, &y, threads, &same, &first, err));
    if (same)
        goto out;
    out->same_container = false;
    out->has_first_byte = true;
    out->first_byte = first;
    out->first_file = sdc__strdup(a->name);
    st = out->first_file ? SDC_OK : SDC_NOMEM(err, a->path);
out:
    sdc__file_close(&x);
    sdc__file_close(&y);
    return st;
}

enum sdc_status sdc__diff_bytes(const struct sdc_ckpt *a, const struct sdc_ckpt *b,
                                unsigned threads, struct sdc_diff *out, struct sdc_error *err) {
    const size_t n = sdc_ckpt_files(a);
    out->size_a = sdc_ckpt_file_size(a);
    out->size_b = sdc_ckpt_file_size(b);
    out->same_container = n == sdc_ckpt_files(b) && sdc_ckpt_is_set(a) == sdc_ckpt_is_set(b);
    for (size_t i = 0; out->same_container && sdc_ckpt_is_set(a) && i < n; i++)
        out->same_container = strcmp(sdc_ckpt_file(a, i).name, sdc_ckpt_file(b, i).name) == 0;
    for (size_t i = 0; out->same_container && i < n; i++) {
        struct sdc_ckpt_file x = sdc_ckpt_file(a, i), y = sdc_ckpt_file(b, i);
        SDC_TRY(compare_files(&x, &y, threads, out, err));
    }
    return SDC_OK;
}
