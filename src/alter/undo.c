/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "alter/patches.h"
#include "alter/undo_order.h"
#include "base/alloc.h"
#include "sdc/alter.h"
#include "sdc/ckpt.h"

/* Power and processes fail between blocks: an element that lies across a multiple of this may be
 * half written. */
#define TEAR 512

/* One undo on its way. */
struct undo {
    const char *record_path;
    const struct sdc_record *record;
    const char *path; /* of the file or set */
    bool sync;
    size_t n_files;
    struct sdc_file_pool *pool; /* of the files; owned */
    struct sdc_file *files;     /* open; owned */
    struct sdc_patches patches;
    struct sdc_undo_result *result;
};

/* ---- the files ---- */

static const struct sdc_file_identity *identity_of(const struct undo *u, size_t i) {
    return u->record->header.has_identity ? &u->record->header.identity
                                          : &u->record->header.files[i].identity;
}

/* A set's files are named relative to its folder, and only below it, also once links are followed.
 */
static enum sdc_status open_file(struct undo *u, size_t i, struct sdc_error *err) {
    const struct sdc_record_header *h = &u->record->header;
    const bool is_set = !h->has_identity;
    char *dir = NULL, *path = NULL;
    if (is_set && !sdc__path_is_below(h->files[i].name))
        return SDC_ERR(err, SDC_INVALID, "%s: its file \"%s\" is not below its folder",
                       u->record_path, h->files[i].name);
    if (is_set)
        dir = sdc__path_is_dir(u->path) ? sdc__strdup(u->path) : sdc__path_dir(u->path);
    path = !is_set ? sdc__strdup(u->path) : dir ? sdc__path_join(dir, h->files[i].name) : NULL;
    enum sdc_status st = SDC_OK;
    if (!path)
        st = SDC_NOMEM(err, "a path");
    else if (is_set && sdc__path_leaves(dir, path))
        st = SDC_ERR(err, SDC_INVALID, "%s: " SDC_LINKS_OUT "; nothing was changed", path);
    if (st == SDC_OK)
        st = sdc__file_pool_open(u->pool, path, SDC_FILE_UPDATE, &u->files[i], err);
    sdc__free(dir);
    sdc__free(path);
    return st == SDC_OK ? sdc__lock_where_possible(&u->files[i], true, err) : st;
}

static enum sdc_status check_size(const struct undo *u, size_t i, struct sdc_error *err) {
    if (u->files[i].size == identity_of(u, i)->size)
        return SDC_OK;
    return SDC_ERR(err, SDC_MISMATCH,
                   "%s: has %llu bytes, expected the %llu of the altered file; nothing was changed",
                   u->files[i].path, (unsigned long long)u->files[i].size,
                   (unsigned long long)identity_of(u, i)->size);
}

static enum sdc_status file_number(const struct undo *u, const char *name, unsigned *i,
                                   struct sdc_error *err) {
    const struct sdc_record_header *h = &u->record->header;
    *i = 0;
    if (h->has_identity && !name)
        return SDC_OK;
    for (size_t k = 0; name && k < h->n_files; k++)
        if (strcmp(h->files[k].name, name) == 0) {
            *i = (unsigned)k;
            return SDC_OK;
        }
    return SDC_ERR(err, SDC_INVALID, "%s: a change in the file %s, which its header does not list",
                   u->record_path, name ? name : "without a name");
}

static enum sdc_status make_patches(struct undo *u, struct sdc_error *err) {
    const struct sdc_record *r = u->record;
    unsigned file;
    for (size_t i = 0; i < r->n_changes; i++) {
        SDC_TRY(file_number(u, r->changes[i].file, &file, err));
        const struct sdc_patch p = sdc__patch_of_change(&r->changes[i], file);
        SDC_TRY(sdc__patches_add(&u->patches, &p, err));
    }
    for (size_t i = 0; i < r->n_mended; i++) {
        SDC_TRY(file_number(u, r->mended[i].file, &file, err));
        const struct sdc_patch p = sdc__patch_of_mended(&r->mended[i], file);
        SDC_TRY(sdc__patches_add(&u->patches, &p, err));
    }
    return sdc__patches_sort(&u->patches, err);
}

/* ---- what the files hold now ---- */

/* Old bytes on one side of a block boundary inside the number and new ones on the other. */
static bool is_torn(const struct sdc_patch *p) {
    unsigned cut = (unsigned)(TEAR - p->offset % TEAR);
    if (cut >= p->size)
        return false;
    /* bytes in file order: the first `cut` of them are the high ones of a big-endian number */
    const uint64_t low =
        p->big_endian ? (UINT64_C(1) << 8 * (p->size - cut)) - 1 : (UINT64_C(1) << 8 * cut) - 1;
    return p->now == ((p->old_raw & low) | (p->new_raw & ~low)) ||
           p->now == ((p->new_raw & low) | (p->old_raw & ~low));
}

static void value_text(const struct sdc_patch *p, uint64_t raw, char text[40]) {
    sdc_num_text(p->change ? p->change->dtype : SDC_DTYPE_U32, raw, text, 40);
}

static enum sdc_status third_value(const struct sdc_file *f, const struct sdc_patch *p,
                                   struct sdc_error *err) {
    char site[SDC_SITE_TEXT], text[3][40];
    value_text(p, p->now, text[0]);
    value_text(p, p->old_raw, text[1]);
    value_text(p, p->new_raw, text[2]);
    sdc__patch_text(p, site);
    return SDC_ERR_AT(err, SDC_MISMATCH, p->offset,
                      "%s: %s: found %s (%#llx), expected %s (%#llx) from before the alteration or "
                      "%s (%#llx) from after it; nothing was changed",
                      f->path, site, text[0], (unsigned long long)p->now, text[1],
                      (unsigned long long)p->old_raw, text[2], (unsigned long long)p->new_raw);
}

static enum sdc_status check_sites(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                   struct sdc_undo_result *result, struct sdc_error *err) {
    for (size_t i = 0; i < n; i++) {
        const bool old = p[i].now == p[i].old_raw;
        if (!old && p[i].now != p[i].new_raw && !is_torn(&p[i]))
            return third_value(f, &p[i], err);
        result->already += p[i].change && old;
        result->restored += p[i].change && !old;
    }
    return SDC_OK;
}

static enum sdc_status check_identity(const struct sdc_patch *p, size_t n, const struct sdc_file *f,
                                      const struct sdc_file_identity *want, struct sdc_error *err) {
    struct sdc_file_identity is;
    SDC_TRY(sdc__patches_identity(p, n, f, want->has_whole, &is, err));
    if (is.head != want->head || is.tail != want->tail)
        return SDC_ERR(err, SDC_MISMATCH,
                       "%s: is not the file of this record: its %s 64 KiB differ at other places "
                       "than the altered ones; nothing was changed",
                       f->path, is.head != want->head ? "first" : "last");
    if (want->has_whole && memcmp(is.whole, want->whole, sizeof is.whole) != 0)
        return SDC_ERR(err, SDC_MISMATCH,
                       "%s: is not the file of this record: its digest differs also with the old "
                       "values in place; nothing was changed",
                       f->path);
    return SDC_OK;
}

static enum sdc_status check_places(const struct undo *u, size_t i, struct sdc_error *err) {
    size_t n;
    const struct sdc_patch *p = sdc__patches_of(&u->patches, (unsigned)i, &n);
    enum sdc_status st = sdc__patches_inside(p, n, u->files[i].size, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", u->record_path);
    return st;
}

static enum sdc_status check_file(struct undo *u, size_t i, struct sdc_error *err) {
    size_t n;
    struct sdc_patch *p = sdc__patches_of(&u->patches, (unsigned)i, &n);
    const struct sdc_file *f = &u->files[i];
    SDC_TRY(sdc__patches_read(p, n, f, err));
    SDC_TRY(check_sites(p, n, f, u->result, err));
    return check_identity(p, n, f, identity_of(u, i), err);
}

static enum sdc_status restore_file(struct undo *u, size_t i, struct sdc_error *err) {
    size_t n;
    struct sdc_patch *p = sdc__patches_of(&u->patches, (unsigned)i, &n);
    struct sdc_file *f = &u->files[i];
    bool needed = false;
    for (size_t k = 0; k < n; k++)
        needed = needed || p[k].now != p[k].old_raw;
    if (!needed)
        return SDC_OK;
    SDC_TRY(sdc__patches_write(p, n, f, SDC_SIDE_OLD, true, err));
    if (u->sync)
        SDC_TRY(sdc__file_sync(f, err));
    SDC_TRY(sdc__patches_read(p, n, f, err));
    return sdc__patches_check(p, n, f, SDC_SIDE_OLD, err);
}

/* Elements and checksums with bytes of their own: every file is checked before one is written. */
static enum sdc_status undo_bytes(struct undo *u, struct sdc_error *err) {
    enum sdc_status st = make_patches(u, err);
    if (st == SDC_INVALID)
        sdc_error_prefix(err, "%s", u->record_path);
    for (size_t i = 0; st == SDC_OK && i < u->n_files; i++)
        st = check_places(u, i, err);
    if (st == SDC_OK)
        st = sdc__undo_order_check(u->record, u->path, u->files, u->n_files, err);
    for (size_t i = 0; st == SDC_OK && i < u->n_files; i++)
        st = check_file(u, i, err);
    for (size_t i = 0; st == SDC_OK && i < u->n_files; i++)
        st = restore_file(u, i, err);
    return st;
}

/* ---- storage that was written anew ---- */

/* The faults that give every element its old value; each must hold that or the new one. */
static enum sdc_status make_list(struct undo *u, struct sdc_ckpt *ckpt, struct sdc_fault_list *list,
                                 struct sdc_error *err) {
    const struct sdc_record *r = u->record;
    list->faults = sdc__alloc(r->n_changes, sizeof *list->faults);
    if (!list->faults)
        return SDC_NOMEM(err, "the values of the sites");
    for (size_t i = 0; i < r->n_changes; i++) {
        const struct sdc_record_change *c = &r->changes[i];
        unsigned char bytes[8];
        size_t tensor;
        if (!sdc_ckpt_find(ckpt, c->tensor, &tensor) ||
            sdc_ckpt_tensor(ckpt, tensor)->dtype != c->dtype)
            return SDC_ERR(err, SDC_MISMATCH,
                           "%s: has no tensor %s of type %s; nothing was changed", u->path,
                           c->tensor, sdc_dtype_name(c->dtype));
        SDC_TRY(sdc_ckpt_read(ckpt, tensor, c->elem, 1, bytes, err));
        struct sdc_patch p = sdc__patch_of_change(c, 0);
        p.now = sdc_num_load(c->dtype, bytes, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
        if (p.now != c->old_raw && p.now != c->new_raw)
            return third_value(&u->files[0], &p, err);
        u->result->already += p.now == c->old_raw;
        u->result->restored += p.now != c->old_raw;
        list->faults[list->n++] = (struct sdc_fault){
            .tensor = (uint32_t)tensor, .elem = c->elem, .op = SDC_OP_VALUE, .value = c->old_raw};
    }
    list->n_sites = list->n;
    return SDC_OK;
}

static enum sdc_status restore_values(struct undo *u, struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    struct sdc_fault_list list = {0};
    struct sdc_choice choice;
    struct sdc_alter_result done;
    enum sdc_status st;
    sdc_choice_init(&choice);
    SDC_TRY_OUT(st, sdc_ckpt_open(u->path, NULL, &ckpt, err));
    SDC_TRY_OUT(st, make_list(u, ckpt, &list, err));
    for (size_t i = 0; i < u->n_files; i++) /* the alteration takes its own lock */
        sdc__file_close(&u->files[i]);
    if (u->result->restored > 0) {
        const struct sdc_alter_options options = {
            .no_record = true, .no_sync = !u->sync, .list = &list};
        SDC_TRY_OUT(st, sdc_alter(u->path, &choice, &options, &done, err));
        sdc_alter_result_release(&done);
        u->result->bytes_differ = true;
    }
out:
    sdc_ckpt_close(ckpt);
    sdc_fault_list_release(&list);
    sdc_choice_release(&choice);
    return st;
}

/* FILE.orig, if it is the file of before. */
static enum sdc_status original(const struct undo *u, char **path, struct sdc_error *err) {
    const struct sdc_file_identity *want = &u->record->header.identity;
    for (unsigned i = 1; i <= 16; i++) {
        struct sdc_file f = SDC_FILE_INIT;
        struct sdc_file_identity is = {0};
        char *name =
            i == 1 ? sdc__asprintf("%s.orig", u->path) : sdc__asprintf("%s.%u.orig", u->path, i);
        if (!name)
            return SDC_NOMEM(err, "a path");
        enum sdc_status st = SDC_OK;
        if (sdc__path_exists(name)) {
            st = sdc__file_open(name, SDC_FILE_READ, &f, err);
            if (st == SDC_OK)
                st = sdc__patches_identity(NULL, 0, &f, want->has_whole, &is, err);
        }
        bool fits = f.fd >= 0 && st == SDC_OK && sdc__identity_equal(&is, want);
        sdc__file_close(&f);
        if (fits) {
            *path = name;
            return SDC_OK;
        }
        sdc__free(name);
        if (st == SDC_IO || st == SDC_NO_MEMORY) /* it may be the one, and has the very bytes */
            return st;
    }
    return SDC_OK;
}

static enum sdc_status undo_recoded(struct undo *u, struct sdc_error *err) {
    const struct sdc_record_header *h = &u->record->header;
    struct sdc_file_identity is;
    char *kept = NULL;
    if (!h->has_after) /* of a set: by the values alone */
        return restore_values(u, err);
    SDC_TRY(sdc__patches_identity(NULL, 0, &u->files[0], h->identity.has_whole, &is, err));
    if (sdc__identity_equal(&is, &h->identity)) {
        u->result->already = u->record->n_changes;
        return SDC_OK;
    }
    SDC_TRY(original(u, &kept, err));
    if (kept && sdc__identity_equal(&is, &h->after)) {
        enum sdc_status st = sdc__rename(kept, u->path, err);
        if (st == SDC_OK && u->sync)
            st = sdc__parent_sync(u->path, err);
        u->result->restored = u->record->n_changes;
        sdc__free(kept);
        return st;
    }
    sdc__free(kept);
    return restore_values(u, err);
}

/* ---- the record ---- */

/* A record is whole before anything is altered, so one with fewer sites was cut since, and could
 * restore the file in part only. */
static enum sdc_status check_whole(const char *record_path, const struct sdc_record *r,
                                   struct sdc_error *err) {
    uint64_t n = 0;
    if (r->header.elements && r->n_changes != r->header.elements)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: lists %zu elements, expected the %llu of its header; it is damaged, "
                       "and nothing was changed",
                       record_path, r->n_changes, (unsigned long long)r->header.elements);
    for (size_t i = 0; i < r->n_changes; i++)
        n += r->changes[i].op == SDC_OP_FLIP ? (unsigned)__builtin_popcountll(r->changes[i].bits)
                                             : 1;
    if (r->header.elements) /* a site may have several bits, and they may have bits in common */
        n = r->header.planned;
    if (n != r->header.planned || (r->verified && r->n_verified != r->n_changes))
        return SDC_ERR(err, SDC_INVALID,
                       "%s: lists %llu sites in %zu elements, expected the %llu sites of its "
                       "header%s; it is damaged, and nothing was changed",
                       record_path, (unsigned long long)n, r->n_changes,
                       (unsigned long long)r->header.planned,
                       r->verified ? " and as many elements as were verified" : "");
    return SDC_OK;
}

/* Whether what the record speaks of can be meant by this path: a file or folder, or the prefix that
 * the names of a set's files begin with, which is neither. */
static bool is_there(const struct sdc_record_header *h, const char *path) {
    const char *base = sdc__path_base(path);
    const size_t len = strlen(base);
    if (sdc__path_exists(path) || h->has_identity)
        return sdc__path_exists(path);
    if (h->n_files == 0)
        return true; /* nothing was altered: no file is needed */
    if (strncmp(h->files[0].name, base, len) != 0 || h->files[0].name[len] != '.')
        return false;
    char *dir = sdc__path_dir(path);
    char *file = dir ? sdc__path_join(dir, h->files[0].name) : NULL;
    const bool there = file && sdc__path_exists(file);
    sdc__free(file);
    sdc__free(dir);
    return there;
}

/* FILE of FILE.sdc.jsonl or FILE.2.sdc.jsonl, if there is one: a file that was renamed with its
 * record, or whose name is not UTF-8, which JSON cannot hold. */
static bool of_record_name(const char *record_path, const struct sdc_record_header *h,
                           char **file) {
    for (size_t len = strlen(record_path); len > 0; len--) {
        char *stem = record_path[len - 1] == '.' ? sdc__strndup(record_path, len - 1) : NULL;
        if (stem && sdc__record_is_default(record_path, stem) && is_there(h, stem)) {
            *file = stem;
            return true;
        }
        sdc__free(stem);
    }
    return false;
}

/* Beside a record under its usual name lies the file it speaks of, wherever the folder was moved to
 * or undo is run; else the file is where it was when it was altered, or beside the record too. */
static enum sdc_status find_file(const char *record_path, const struct sdc_record *record,
                                 char **file, struct sdc_error *err) {
    const char *named = record->header.file;
    char *dir = sdc__path_dir(record_path);
    char *beside = !dir                       ? NULL
                   : strchr(record_path, '/') ? sdc__path_join(dir, sdc__path_base(named))
                                              : sdc__strdup(sdc__path_base(named));
    sdc__free(dir);
    if (!beside)
        return SDC_NOMEM(err, "a path");
    bool there = is_there(&record->header, beside),
         there_as_named = is_there(&record->header, named);
    if (there && (sdc__record_is_default(record_path, named) || !there_as_named)) {
        *file = beside;
        return SDC_OK;
    }
    sdc__free(beside);
    if (!there_as_named && of_record_name(record_path, &record->header, file))
        return SDC_OK;
    if (!there_as_named)
        return SDC_ERR(err, SDC_NOT_FOUND, "%s: its file %s is neither there nor beside the record",
                       record_path, named);
    *file = sdc__strdup(named);
    return *file ? SDC_OK : SDC_NOMEM(err, "a path");
}

static enum sdc_status undo_in(struct undo *u, struct sdc_error *err) {
    bool recoded = false;
    for (size_t i = 0; i < u->record->n_changes; i++)
        recoded = recoded || u->record->changes[i].recoded;
    u->n_files = u->record->header.has_identity ? 1 : u->record->header.n_files;
    u->files = sdc__alloc(u->n_files, sizeof *u->files);
    for (size_t i = 0; i < u->n_files && u->files; i++)
        u->files[i] = (struct sdc_file)SDC_FILE_INIT;
    u->pool = sdc__file_pool_new();
    if (!u->files || !u->pool)
        return SDC_NOMEM(err, "the files");
    for (size_t i = 0; i < u->n_files; i++) {
        SDC_TRY(open_file(u, i, err));
        if (!recoded)
            SDC_TRY(check_size(u, i, err));
    }
    return recoded ? undo_recoded(u, err) : undo_bytes(u, err);
}

enum sdc_status sdc_undo(const char *record_path, const char *path, bool no_sync,
                         struct sdc_undo_result *result, struct sdc_error *err) {
    struct sdc_record record = {0};
    struct sdc_undo_result done = {0};
    struct undo u = {
        .record_path = record_path, .record = &record, .sync = !no_sync, .result = &done};
    enum sdc_status st;
    SDC_TRY(sdc_record_read(record_path, &record, err));
    SDC_TRY_OUT(st, check_whole(record_path, &record, err));
    if (path) {
        done.file = sdc__strdup(path);
        st = done.file ? SDC_OK : SDC_NOMEM(err, "a path");
    } else {
        st = find_file(record_path, &record, &done.file, err);
    }
    if (st != SDC_OK)
        goto out;
    u.path = done.file;
    st = undo_in(&u, err);
out:
    for (size_t i = 0; i < u.n_files && u.files; i++)
        sdc__file_close(&u.files[i]);
    sdc__file_pool_free(u.pool);
    sdc__free(u.files);
    sdc__patches_release(&u.patches);
    sdc_record_release(&record);
    if (st != SDC_OK)
        sdc__free(done.file);
    else
        *result = done;
    return st;
}
