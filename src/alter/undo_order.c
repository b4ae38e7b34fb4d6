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

/* What is to be undone, and in which files. */
struct order {
    const struct sdc_record *record;
    const char *path; /* of the file or set */
    const struct sdc_file *files;
    size_t n;
    struct sdc_error *err;
};

static bool same_name(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The record itself, or a copy of it. */
static bool is_same_record(const struct sdc_record *a, const struct sdc_record *b) {
    if (a->n_changes != b->n_changes || a->header.n_files != b->header.n_files ||
        !sdc__identity_equal(&a->header.identity, &b->header.identity))
        return false;
    for (size_t i = 0; i < a->header.n_files; i++)
        if (!sdc__identity_equal(&a->header.files[i].identity, &b->header.files[i].identity))
            return false;
    for (size_t i = 0; i < a->n_changes; i++)
        if (a->changes[i].offset != b->changes[i].offset ||
            a->changes[i].old_raw != b->changes[i].old_raw ||
            a->changes[i].new_raw != b->changes[i].new_raw ||
            !same_name(a->changes[i].file, b->changes[i].file))
            return false;
    return true;
}

/* The same file of a set, named from its folder or from one above (a saved model has one more). */
static bool is_file(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    const char *longer = n < m ? b : a, *shorter = n < m ? a : b;
    const size_t more = n < m ? m - n : n - m;
    return strcmp(longer + more, shorter) == 0 && (more == 0 || longer[more - 1] == '/');
}

/* The changes of r in the file that is called so; all of them where there is one file. */
static bool add_patches(const struct sdc_record *r, const char *file, struct sdc_patches *list) {
    bool ok = true;
    for (size_t i = 0; ok && i < r->n_changes; i++) {
        const struct sdc_patch p = sdc__patch_of_change(&r->changes[i], 0);
        if (same_name(r->changes[i].file, file))
            ok = sdc__patches_add(list, &p, NULL) == SDC_OK;
    }
    for (size_t i = 0; ok && i < r->n_mended; i++) {
        const struct sdc_patch p = sdc__patch_of_mended(&r->mended[i], 0);
        if (same_name(r->mended[i].file, file))
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

/* Is r in effect in f, and can it be undone there as f is now? */
static bool is_next(const struct sdc_record *r, const char *name,
                    const struct sdc_file_identity *identity, const struct sdc_file *f) {
    struct sdc_patches list = {0};
    bool in_effect = false, ok = add_patches(r, name, &list) && fits(&list, f, identity) &&
                                 sdc__patches_read(list.items, list.n, f, NULL) == SDC_OK;
    for (size_t i = 0; ok && i < list.n; i++) {
        const struct sdc_patch *p = &list.items[i];
        ok = p->now == p->new_raw || p->now == p->old_raw;
        in_effect = in_effect || p->now != p->old_raw;
    }
    sdc__patches_release(&list);
    return ok && in_effect;
}

/* Would r still fit f once the changes of o's record are undone? No place may be in both. */
static bool fits_after(const struct sdc_record *r, const char *name,
                       const struct sdc_file_identity *identity, const struct order *o, size_t i) {
    const char *own = o->record->header.has_identity ? NULL : o->record->header.files[i].name;
    struct sdc_patches both = {0};
    bool ok = add_patches(r, name, &both) && add_patches(o->record, own, &both) &&
              fits(&both, &o->files[i], identity);
    sdc__patches_release(&both);
    return ok;
}

/* Has r to be undone before o's record, since both changed file i? */
static bool comes_first(const struct sdc_record *r, const struct order *o, size_t i) {
    const struct sdc_record_header *h = &r->header;
    if (h->has_after) /* it put another file in place */
        return false;
    if (o->record->header.has_identity)
        return h->has_identity && is_next(r, NULL, &h->identity, &o->files[i]) &&
               !fits_after(r, NULL, &h->identity, o, i);
    for (size_t k = 0; k < h->n_files; k++)
        if (is_file(h->files[k].name, o->record->header.files[i].name))
            return is_next(r, h->files[k].name, &h->files[k].identity, &o->files[i]) &&
                   !fits_after(r, h->files[k].name, &h->files[k].identity, o, i);
    return false;
}

static enum sdc_status look_at(const struct order *o, const char *record_path) {
    struct sdc_record r = {0};
    enum sdc_status st = SDC_OK;
    if (sdc_record_read(record_path, &r, NULL) == SDC_OK && !is_same_record(&r, o->record))
        for (size_t i = 0; i < o->n && st == SDC_OK; i++)
            if (comes_first(&r, o, i))
                st = SDC_ERR(o->err, SDC_MISMATCH,
                             "%s: was altered again after this record was made: undo %s first; "
                             "nothing was changed",
                             o->path, record_path);
    sdc_record_release(&r);
    return st;
}

/* ---- where records are ---- */

/* FILE.sdc.jsonl, FILE.2.sdc.jsonl, ... */
static enum sdc_status beside_file(const struct order *o) {
    enum sdc_status st = SDC_OK;
    for (unsigned i = 1, gaps = 0; st == SDC_OK && gaps < MAX_GAPS; i++) {
        char *name = i == 1 ? sdc__asprintf("%s" SUFFIX, o->path)
                            : sdc__asprintf("%s.%u" SUFFIX, o->path, i);
        if (!name)
            return SDC_NOMEM(o->err, "a path");
        gaps = sdc__path_exists(name) ? 0 : gaps + 1;
        if (gaps == 0)
            st = look_at(o, name);
        sdc__free(name);
    }
    return st;
}

/* Records in a folder, those of one file or folder if it is given. */
struct finding {
    const struct order *o;
    const char *of;
    enum sdc_status st;
};

static enum sdc_status take(void *user, const char *path, const char *name, struct sdc_error *err) {
    struct finding *f = user;
    const size_t n = strlen(name), end = sizeof SUFFIX - 1;
    (void)err;
    if (n < end || strcmp(name + n - end, SUFFIX) != 0 ||
        (f->of && !sdc__record_is_default(name, f->of)))
        return SDC_OK;
    f->st = look_at(f->o, strncmp(path, "./", 2) == 0 ? path + 2 : path);
    return f->st;
}

/* A set may have been named in several ways: records lie in its folder and beside it. */
static enum sdc_status beside_set(const struct order *o) {
    char *folder = sdc__path_is_dir(o->path) ? sdc__strdup(o->path) : sdc__path_dir(o->path);
    char *named = folder ? sdc__path_named(folder) : NULL,
         *above = named ? sdc__path_dir(named) : NULL;
    struct finding f = {.o = o};
    enum sdc_status st = above ? SDC_OK : SDC_NOMEM(o->err, "a path"), listed = st;
    if (st == SDC_OK)
        listed = sdc__list_files(folder, false, take, &f, NULL);
    if (st == SDC_OK && f.st == SDC_OK) {
        f.of = sdc__path_base(named);
        listed = sdc__list_files(above, false, take, &f, NULL);
    }
    (void)listed; /* a folder that cannot be listed tells of no record */
    sdc__free(folder);
    sdc__free(named);
    sdc__free(above);
    return st == SDC_OK ? f.st : st;
}

enum sdc_status sdc__undo_order_check(const struct sdc_record *record, const char *path,
                                      const struct sdc_file *files, size_t n,
                                      struct sdc_error *err) {
    const struct order o = {.record = record, .path = path, .files = files, .n = n, .err = err};
    return record->header.has_identity ? beside_file(&o) : beside_set(&o);
}
