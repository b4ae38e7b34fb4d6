/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/mend.h"

#include <string.h>

#include "base/alloc.h"
#include "io/crc.h"

#define MAX_COVERED (UINT64_C(1) << 32) /* bytes read at once to recompute a sum */

void sdc__mending_release(struct sdc_mending *m) {
    sdc__free(m->items);
    *m = (struct sdc_mending){0};
}

/* First patch of n that ends after `offset`; those of one file are sorted and do not overlap by
 * more than a byte. */
static size_t first_after(const struct sdc_patch *p, size_t n, uint64_t offset) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (p[mid].offset + p[mid].size <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Patches that change what the sum covers: from *first on, as many as are returned. */
static size_t covered(const struct sdc_ckpt_sum *sum, const struct sdc_patches *list,
                      const struct sdc_patch **first) {
    size_t n;
    const struct sdc_patch *p = sdc__patches_of(list, sum->file, &n);
    size_t lo = first_after(p, n, sum->offset), hi = lo;
    while (hi < n && p[hi].offset < sum->offset + sum->size)
        hi++;
    bool changed = false;
    for (size_t i = lo; i < hi && !changed; i++)
        changed = p[i].old_raw != p[i].new_raw;
    *first = p + lo;
    return changed ? hi - lo : 0;
}

static uint32_t crc_change(const struct sdc_ckpt_sum *sum, const struct sdc_patch *p, size_t n) {
    const enum sdc_crc kind = sum->kind == SDC_SUM_CRC32 ? SDC_CRC32 : SDC_CRC32C;
    uint32_t delta = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = (p[i].old_raw ^ p[i].new_raw) << p[i].shift;
        unsigned char mask[8];
        for (unsigned k = 0; k < p[i].size; k++)
            mask[p[i].big_endian ? p[i].size - 1 - k : k] = (unsigned char)(bits >> 8 * k);
        /* the part of the element inside the covered bytes; all of it but in damaged files */
        uint64_t from = p[i].offset, to = from + p[i].size, end = sum->offset + sum->size;
        uint64_t lo = from < sum->offset ? sum->offset : from, hi = to > end ? end : to;
        delta ^= sdc__crc_delta(kind, sum->size, lo - sum->offset, mask + (lo - from),
                                (size_t)(hi - lo));
    }
    return delta;
}

static uint32_t sum_of(const struct sdc_ckpt_sum *sum, const unsigned char *bytes) {
    return sum->kind == SDC_SUM_FLETCHER32 ? sdc__fletcher32(bytes, (size_t)sum->size)
                                           : sdc__lookup3(bytes, (size_t)sum->size, 0);
}

/* The sums over the covered bytes before and after. */
static enum sdc_status recompute(const struct sdc_ckpt_sum *sum, const struct sdc_file *f,
                                 const struct sdc_patch *p, size_t n, uint32_t *before,
                                 uint32_t *after, struct sdc_error *err) {
    if (sum->size > MAX_COVERED)
        return SDC_ERR(err, SDC_LIMIT, "%s: %s: its checksum covers %llu bytes, the limit is %llu",
                       f->path, sum->what, (unsigned long long)sum->size,
                       (unsigned long long)MAX_COVERED);
    unsigned char *bytes = sdc__alloc((size_t)sum->size, 1);
    if (!bytes)
        return SDC_NOMEM(err, "a checksum");
    enum sdc_status st = sdc__file_read(f, sum->offset, bytes, (size_t)sum->size, err);
    if (st == SDC_OK) {
        sdc__patches_put(p, n, SDC_SIDE_OLD, bytes, sum->offset, (size_t)sum->size);
        *before = sum_of(sum, bytes);
        sdc__patches_put(p, n, SDC_SIDE_NEW, bytes, sum->offset, (size_t)sum->size);
        *after = sum_of(sum, bytes);
    }
    sdc__free(bytes);
    return st;
}

static uint32_t mended_value(const struct sdc_ckpt_sum *sum, uint32_t stored, uint32_t delta,
                             uint32_t before, uint32_t after) {
    switch (sum->kind) {
    case SDC_SUM_CRC32:
    case SDC_SUM_CRC32C:
        return stored ^ delta;
    case SDC_SUM_CRC32C_MASKED:
        return sdc__crc_mask(sdc__crc_unmask(stored) ^ delta);
    case SDC_SUM_FLETCHER32:
    case SDC_SUM_LOOKUP3:
        break;
    }
    return stored == before ||
                   (sum->kind == SDC_SUM_FLETCHER32 && stored == sdc__fletcher32_swapped(before))
               ? after
               : stored;
}

/* Is the CRC that is stored not that of the bytes in the file? SDC_OK with wrong false where it is
 * not looked at. */
static enum sdc_status compare_crc(const struct sdc_ckpt_sum *sum, const struct sdc_file *f,
                                   uint32_t stored, struct sdc_mending *m, bool *wrong,
                                   struct sdc_error *err) {
    uint32_t crc = sum->initial;
    *wrong = false;
    if (sum->size > SDC_MEND_CHECKED - m->checked) {
        m->n_unchecked++;
        return SDC_OK;
    }
    m->checked += sum->size;
    SDC_TRY(sdc__crc_file(sum->kind == SDC_SUM_CRC32 ? SDC_CRC32 : SDC_CRC32C, f, sum->offset,
                          sum->size, &crc, err));
    *wrong = stored != (sum->kind == SDC_SUM_CRC32C_MASKED ? sdc__crc_mask(crc) : crc);
    return SDC_OK;
}

static enum sdc_status mend_sum(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_sum *sum,
                                const struct sdc_patch *p, size_t n, sdc__mend_file *open,
                                void *user, struct sdc_mending *m, struct sdc_error *err) {
    const bool is_crc = sum->kind != SDC_SUM_FLETCHER32 && sum->kind != SDC_SUM_LOOKUP3;
    uint32_t delta = 0, before = 0, after = 0;
    const struct sdc_file *f;
    if (is_crc) {
        delta = crc_change(sum, p, n);
    } else {
        SDC_TRY(open(user, sum->file, &f, err));
        SDC_TRY(recompute(sum, f, p, n, &before, &after, err));
    }
    bool wrong = false, was_wrong = false;
    for (unsigned i = 0; i < sum->n_places; i++) {
        unsigned char bytes[4];
        SDC_TRY(open(user, sum->places[i].file, &f, err));
        SDC_TRY(sdc__file_read(f, sum->places[i].offset, bytes, sizeof bytes, err));
        const struct sdc_ckpt_file member = sdc_ckpt_file(ckpt, sum->places[i].file);
        struct sdc_record_mended *r = &m->items[m->n++];
        *r = (struct sdc_record_mended){
            .kind = (char *)(uintptr_t)sdc_sum_kind_name(sum->kind),
            .what = (char *)(uintptr_t)sum->what,
            .file = sdc_ckpt_is_set(ckpt) ? (char *)(uintptr_t)member.name : NULL,
            .offset = sum->places[i].offset,
            .old_raw = (uint32_t)sdc_num_load(SDC_DTYPE_U32, bytes, false)};
        r->new_raw = mended_value(sum, r->old_raw, delta, before, after);
        wrong = wrong || (!is_crc && r->new_raw == r->old_raw && before != after);
        if (is_crc && i == 0) { /* the places of one sum hold the same */
            SDC_TRY(open(user, sum->file, &f, err));
            SDC_TRY(compare_crc(sum, f, r->old_raw, m, &was_wrong, err));
        }
        r->was_wrong = was_wrong;
    }
    m->n_wrong += wrong || was_wrong;
    m->n_moved += was_wrong;
    return SDC_OK;
}

/* Patches for what the sums of one level became. */
static enum sdc_status take_level(const struct sdc_ckpt_sum *const *of, const unsigned *place,
                                  size_t first, const struct sdc_mending *m,
                                  struct sdc_patches *list, struct sdc_error *err) {
    for (size_t i = first; i < m->n; i++) {
        struct sdc_patch p = sdc__patch_of_mended(&m->items[i], of[i]->places[place[i]].file);
        if (p.old_raw != p.new_raw)
            SDC_TRY(sdc__patches_add(list, &p, err));
    }
    return sdc__patches_sort(list, err);
}

static unsigned max_level(const struct sdc_ckpt *ckpt) {
    unsigned level = 0;
    for (size_t i = 0; i < sdc_ckpt_sums(ckpt); i++)
        if (sdc_ckpt_sum(ckpt, i)->level > level)
            level = sdc_ckpt_sum(ckpt, i)->level;
    return level;
}

enum sdc_status sdc__mend(const struct sdc_ckpt *ckpt, bool stale, sdc__mend_file *open, void *user,
                          struct sdc_patches *patches, struct sdc_mending *m,
                          struct sdc_error *err) {
    const size_t n_sums = sdc_ckpt_sums(ckpt);
    enum sdc_status st = SDC_OK;
    *m = (struct sdc_mending){.items = sdc__alloc(2 * n_sums, sizeof *m->items)};
    const struct sdc_ckpt_sum **of = sdc__alloc(2 * n_sums, sizeof *of); /* of which item */
    unsigned *place = sdc__alloc(2 * n_sums, sizeof *place);
    if (!m->items || !of || !place) {
        st = SDC_NOMEM(err, "the checksums");
        goto out;
    }
    const unsigned top = max_level(ckpt);
    for (unsigned level = 0; n_sums > 0 && level <= top; level++) {
        const size_t first = m->n;
        for (size_t i = 0; i < n_sums; i++) {
            const struct sdc_ckpt_sum *sum = sdc_ckpt_sum(ckpt, i);
            const struct sdc_patch *p;
            if (sum->level != level || sum->deflated)
                continue; /* of deflated storage: mended where it is written anew */
            size_t n = covered(sum, patches, &p);
            m->n_unknown += n > 0 && sum->unknown;
            m->n_stale += n > 0 && !sum->unknown && stale;
            if (n == 0 || sum->unknown || stale)
                continue;
            for (unsigned k = 0; k < sum->n_places; k++) {
                of[m->n + k] = sum;
                place[m->n + k] = k;
            }
            SDC_TRY_OUT(st, mend_sum(ckpt, sum, p, n, open, user, m, err));
        }
        SDC_TRY_OUT(st, take_level(of, place, first, m, patches, err));
    }
out:
    sdc__free(of);
    sdc__free(place);
    if (st != SDC_OK)
        sdc__mending_release(m);
    return st;
}
