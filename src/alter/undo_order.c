/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/undo_order.h"

#include <string.h>

#include "alter/alter_sites.h"
#include "base/alloc.h"
#include "base/str.h"

#define SUFFIX   ".sdc.jsonl"
#define MAX_GAPS 16 /* records that were removed, before the next is not looked for */

bool sdc__record_is_default(const char *record_path, const char *file) {
    const char *name = sdc__path_base(record_path), *base = sdc__path_base(file);
    size_t len = strlen(name), stem = strlen(base);
    const size_t suffix = strlen(SUFFIX);
    if (len < stem + suffix || strncmp(name, base, stem) != 0 ||
        strcmp(name + len - suffix, SUFFIX) != 0)
        return false;
    const char *number = name + stem, *end = name + len - suffix;
    if (number == end)
        return true;
    if (*number++ != '.' || number == end)
        return false;
    while (number < end && *number >= '0' && *number <= '9')
        number++;
    return number == end;
}

static bool same_identity(const struct sdc_file_identity *a, const struct sdc_file_identity *b) {
    return a->head == b->head && a->tail == b->tail &&
           (!b->has_whole || memcmp(a->whole, b->whole, sizeof a->whole) == 0);
}

/* The record itself, or a copy of it. */
static bool is_same_record(const struct sdc_record *a, const struct sdc_record *b) {
    if (a->n_changes != b->n_changes || !same_identity(&a->header.identity, &b->header.identity))
        return false;
    for (size_t i = 0; i < a->n_changes; i++)
        if (a->changes[i].offset != b->changes[i].offset ||
            a->changes[i].old_raw != b->changes[i].old_raw ||
            a->changes[i].new_raw != b->changes[i].new_raw)
            return false;
    return true;
}

/* Is r in effect in f, and can it be undone as f is now? */
static bool is_next(const struct sdc_record *r, const struct sdc_file *f) {
    struct sdc_sites s = {0};
    struct sdc_file_identity is;
    const struct sdc_file_identity *want = &r->header.identity;
    bool in_effect = false, fits = true;
    if (f->size != want->size ||
        sdc__sites_init(&s, r->changes, r->n_changes, f->size, NULL) != SDC_OK)
        return false;
    uint64_t *now = sdc__alloc(s.n, sizeof *now);
    if (!now || sdc__sites_read(&s, f, now, NULL) != SDC_OK)
        fits = false;
    for (size_t i = 0; fits && i < s.n; i++) {
        const struct sdc_record_change *c = s.by_offset[i];
        fits = now[i] == c->new_raw || now[i] == c->old_raw;
        in_effect = in_effect || now[i] != c->old_raw;
    }
    fits = fits && in_effect && sdc__sites_identity(&s, f, want->has_whole, &is, NULL) == SDC_OK &&
           same_identity(&is, want);
    sdc__free(now);
    sdc__sites_release(&s);
    return fits;
}

/* Would r still fit f once the changes of `first` are undone? */
static bool fits_after(const struct sdc_record *r, const struct sdc_record *first,
                       const struct sdc_file *f) {
    struct sdc_sites s = {0};
    struct sdc_file_identity is;
    const struct sdc_file_identity *want = &r->header.identity;
    size_t n = r->n_changes + first->n_changes;
    struct sdc_record_change *both = sdc__alloc(n, sizeof *both);
    if (!both)
        return false;
    if (r->n_changes > 0)
        memcpy(both, r->changes, r->n_changes * sizeof *both);
    if (first->n_changes > 0)
        memcpy(both + r->n_changes, first->changes, first->n_changes * sizeof *both);
    bool fits = sdc__sites_init(&s, both, n, f->size, NULL) == SDC_OK && /* no site in both */
                sdc__sites_identity(&s, f, want->has_whole, &is, NULL) == SDC_OK &&
                same_identity(&is, want);
    sdc__sites_release(&s);
    sdc__free(both);
    return fits;
}

enum sdc_status sdc__undo_order_check(const struct sdc_record *record, const struct sdc_file *f,
                                      struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    for (unsigned i = 1, gaps = 0; st == SDC_OK && gaps < MAX_GAPS; i++) {
        struct sdc_record r = {0};
        char *name = i == 1 ? sdc__asprintf("%s" SUFFIX, f->path)
                            : sdc__asprintf("%s.%u" SUFFIX, f->path, i);
        if (!name)
            return SDC_NOMEM(err, "a path");
        gaps = sdc__path_exists(name) ? 0 : gaps + 1;
        if (gaps == 0 && sdc_record_read(name, &r, NULL) == SDC_OK && !is_same_record(&r, record) &&
            is_next(&r, f) && !fits_after(&r, record, f))
            st = SDC_ERR(err, SDC_MISMATCH,
                         "%s: was altered again after this record was made: undo %s first; nothing "
                         "was changed",
                         f->path, name);
        sdc_record_release(&r);
        sdc__free(name);
    }
    return st;
}
