/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "alter/alter_sites.h"
#include "alter/undo_order.h"
#include "base/alloc.h"
#include "sdc/alter.h"

/* Power and processes fail between blocks: an element that lies across a multiple of this may be
 * half written. */
#define TEAR 512

/* Old bytes on one side of a block boundary inside the element and new ones on the other. */
static bool is_torn(const struct sdc_record_change *c, uint64_t now) {
    unsigned size = sdc_dtype_bytes(c->dtype);
    unsigned cut = (unsigned)(TEAR - c->offset % TEAR);
    if (cut >= size)
        return false;
    unsigned char was[8], is[8], would[8];
    sdc_num_store(c->dtype, c->old_raw, was, c->big_endian);
    sdc_num_store(c->dtype, now, is, c->big_endian);
    sdc_num_store(c->dtype, c->new_raw, would, c->big_endian);
    return (memcmp(is, would, cut) == 0 && memcmp(is + cut, was + cut, size - cut) == 0) ||
           (memcmp(is, was, cut) == 0 && memcmp(is + cut, would + cut, size - cut) == 0);
}

static enum sdc_status third_value(const struct sdc_file *f, const struct sdc_record_change *c,
                                   uint64_t now, struct sdc_error *err) {
    char site[SDC_SITE_TEXT], text[3][40];
    const uint64_t raw[3] = {now, c->old_raw, c->new_raw};
    for (int i = 0; i < 3; i++)
        sdc_num_text(c->dtype, raw[i], text[i], sizeof text[i]);
    sdc__site_text(c, site);
    return SDC_ERR_AT(err, SDC_MISMATCH, c->offset,
                      "%s: %s: found %s (%#llx), expected %s (%#llx) from before the alteration or "
                      "%s (%#llx) from after it; nothing was changed",
                      f->path, site, text[0], (unsigned long long)raw[0], text[1],
                      (unsigned long long)raw[1], text[2], (unsigned long long)raw[2]);
}

static enum sdc_status check_sites(const struct sdc_sites *s, const struct sdc_file *f,
                                   const uint64_t *now, struct sdc_undo_result *result,
                                   struct sdc_error *err) {
    for (size_t i = 0; i < s->n; i++) {
        const struct sdc_record_change *c = s->by_offset[i];
        if (now[i] == c->old_raw)
            result->already++;
        else if (now[i] == c->new_raw || is_torn(c, now[i]))
            result->restored++;
        else
            return third_value(f, c, now[i], err);
    }
    return SDC_OK;
}

static enum sdc_status check_identity(const struct sdc_sites *s, const struct sdc_file *f,
                                      const struct sdc_file_identity *want, struct sdc_error *err) {
    struct sdc_file_identity is;
    SDC_TRY(sdc__sites_identity(s, f, want->has_whole, &is, err));
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

static enum sdc_status restore(const struct sdc_sites *s, struct sdc_file *f, uint64_t *now,
                               bool sync, struct sdc_error *err) {
    SDC_TRY(sdc__sites_write(s, f, SDC_SIDE_OLD, now, err));
    if (sync)
        SDC_TRY(sdc__file_sync(f, err));
    SDC_TRY(sdc__sites_read(s, f, now, err));
    for (size_t i = 0; i < s->n; i++)
        if (now[i] != s->by_offset[i]->old_raw) {
            char site[SDC_SITE_TEXT];
            sdc__site_text(s->by_offset[i], site);
            return SDC_ERR_AT(err, SDC_IO, s->by_offset[i]->offset,
                              "%s: %s was written as %#llx and reads back as %#llx", f->path, site,
                              (unsigned long long)s->by_offset[i]->old_raw,
                              (unsigned long long)now[i]);
        }
    return SDC_OK;
}

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

/* FILE of FILE.sdc.jsonl or FILE.2.sdc.jsonl, if there is one: a file that was renamed with its
 * record, or whose name is not UTF-8, which JSON cannot hold. */
static bool of_record_name(const char *record_path, char **file) {
    for (size_t len = strlen(record_path); len > 0; len--) {
        char *stem = record_path[len - 1] == '.' ? sdc__strndup(record_path, len - 1) : NULL;
        if (stem && sdc__record_is_default(record_path, stem) && sdc__path_exists(stem)) {
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
    bool there = sdc__path_exists(beside);
    if (there && (sdc__record_is_default(record_path, named) || !sdc__path_exists(named))) {
        *file = beside;
        return SDC_OK;
    }
    sdc__free(beside);
    if (!sdc__path_exists(named) && of_record_name(record_path, file))
        return SDC_OK;
    if (!sdc__path_exists(named))
        return SDC_ERR(err, SDC_NOT_FOUND, "%s: its file %s is neither there nor beside the record",
                       record_path, named);
    *file = sdc__strdup(named);
    return *file ? SDC_OK : SDC_NOMEM(err, "a path");
}

static enum sdc_status undo_in(const char *record_path, const struct sdc_record *record,
                               struct sdc_file *f, bool sync, struct sdc_undo_result *result,
                               struct sdc_error *err) {
    struct sdc_sites sites = {0};
    uint64_t *now = NULL;
    enum sdc_status st;
    if (f->size != record->header.identity.size)
        return SDC_ERR(err, SDC_MISMATCH,
                       "%s: has %llu bytes, expected the %llu of the altered file; nothing was "
                       "changed",
                       f->path, (unsigned long long)f->size,
                       (unsigned long long)record->header.identity.size);
    st = sdc__sites_init(&sites, record->changes, record->n_changes, f->size, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s", record_path);
        return st;
    }
    SDC_TRY_OUT(st, sdc__undo_order_check(record, f, err));
    now = sdc__alloc(sites.n, sizeof *now);
    if (!now) {
        st = SDC_NOMEM(err, "the values of the sites");
        goto out;
    }
    SDC_TRY_OUT(st, sdc__sites_read(&sites, f, now, err));
    SDC_TRY_OUT(st, check_sites(&sites, f, now, result, err));
    SDC_TRY_OUT(st, check_identity(&sites, f, &record->header.identity, err));
    if (result->restored > 0)
        st = restore(&sites, f, now, sync, err);
out:
    sdc__sites_release(&sites);
    sdc__free(now);
    return st;
}

enum sdc_status sdc_undo(const char *record_path, const char *path, bool no_sync,
                         struct sdc_undo_result *result, struct sdc_error *err) {
    struct sdc_record record = {0};
    struct sdc_file f = SDC_FILE_INIT;
    struct sdc_undo_result done = {0};
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
    SDC_TRY_OUT(st, sdc__file_open(done.file, SDC_FILE_UPDATE, &f, err));
    SDC_TRY_OUT(st, sdc__lock_where_possible(&f, true, err));
    st = undo_in(record_path, &record, &f, !no_sync, &done, err);
out:
    sdc__file_close(&f);
    sdc_record_release(&record);
    if (st != SDC_OK)
        sdc__free(done.file);
    else
        *result = done;
    return st;
}
