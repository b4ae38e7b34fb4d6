/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/undo_order.h"

#include <string.h>

#include "alter/patches.h"
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

/* The record itself, or a copy of it. */
static bool is_same_record(const struct sdc_record *a, const struct sdc_record *b) {
    if (a->n_changes != b->n_changes ||
        !sdc__identity_equal(&a->header.identity, &b->header.identity))
        return false;
    for (size_t i = 0; i < a->n_changes; i++)
        if (a->changes[i].offset != b->changes[i].offset ||
            a->changes[i].old_raw != b->changes[i].old_raw ||
            a->changes[i].new_raw != b->changes[i].new_raw)
            return false;
    return true;
}

static bool add_patches(const struct sdc_record *r, struct sdc_patches *list) {
    bool ok = true;
    for (size_t i = 0; ok && i < r->n_changes; i++) {
        const struct sdc_patch p = sdc__patch_of_change(&r->changes[i], 0);
        ok = sdc__patches_add(list, &p, NULL) == SDC_OK;
    }
    for (size_t i = 0; ok && i < r->n_mended; i++) {
        const struct sdc_patch p = sdc__patch_of_mended(&r->mended[i], 0);
        ok = sdc__patches_add(list, &p, NULL) == SDC_OK;
    }
    return ok;
}

/* Sorted, inside the file, and with the record's identity once the old values are in place? */
static bool fits(struct sdc_patches *list, const struct sdc_file *f,
                 const struct sdc_file_identity *want) {
    struct sdc_file_identity is;
    return f->size == want->size && sdc__patches_sort(list, NULL) == SDC_OK &&
           sdc__patches_inside(list->items, list->n, f->size, NULL) == SDC_OK &&
           sdc__patches_identity(list->items, list->n, f, want->has_whole, &is, NULL) == SDC_OK &&
           sdc__identity_equal(&is, want);
}

/* Is r in effect in f, and can it be undone as f is now? */
static bool is_next(const struct sdc_record *r, const struct sdc_file *f) {
    struct sdc_patches list = {0};
    bool in_effect = false, ok = r->header.has_identity && !r->header.has_after &&
                                 add_patches(r, &list) && fits(&list, f, &r->header.identity) &&
                                 sdc__patches_read(list.items, list.n, f, NULL) == SDC_OK;
    for (size_t i = 0; ok && i < list.n; i++) {
        const struct sdc_patch *p = &list.items[i];
        ok = p->now == p->new_raw || p->now == p->old_raw;
        in_effect = in_effect || p->now != p->old_raw;
    }
    sdc__patches_release(&list);
    return ok && in_effect;
}

/* Would r still fit f once the changes of `first` are undone? No place may be in both. */
static bool fits_after(const struct sdc_record *r, const struct sdc_record *first,
                       const struct sdc_file *f) {
    struct sdc_patches both = {0};
    bool ok =
        add_patches(r, &both) && add_patches(first, &both) && fits(&both, f, &r->header.identity);
    sdc__patches_release(&both);
    return ok;
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
