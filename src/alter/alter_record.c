/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/alter_record.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "alter/alter_plan.h"
#include "base/alloc.h"
#include "base/parallel.h"
#include "contract/record_line.h"
#include "io/io.h"

#define BLOCK     ((size_t)1 << 20)
#define SLICE     ((size_t)1 << 11) /* changes that one thread makes lines of at a time */
#define MAX_NAMES 1000000           /* records of one file */

static enum sdc_status flush(struct sdc_buf *text, struct sdc_file *f, struct sdc_error *err) {
    if (text->failed)
        return SDC_NOMEM(err, "the record");
    enum sdc_status st = text->len > 0 ? sdc__file_append(f, text->data, text->len, err) : SDC_OK;
    sdc__buf_clear(text);
    return st;
}

static enum sdc_status put_line(struct sdc_buf *text, struct sdc_file *f, char *line,
                                struct sdc_error *err) {
    sdc__buf_puts(text, line);
    sdc_text_free(line);
    return text->failed || text->len >= BLOCK ? flush(text, f, err) : SDC_OK;
}

/* The lines of changes are made in slices, by several threads, and written in their order. */
struct writing {
    struct sdc_file *f;
    const struct sdc_record_lines *l;
};

static enum sdc_status make_slice(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct writing *w = user;
    const size_t from = (size_t)task * SLICE, left = w->l->n_changes - from;
    const size_t end = from + (left < SLICE ? left : SLICE);
    for (size_t i = from; i < end; i++)
        SDC_TRY(sdc__record_change_append(&w->l->changes[i], slot, err));
    return SDC_OK;
}

static enum sdc_status write_slice(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct writing *w = user;
    (void)task;
    return flush(slot, w->f, err);
}

static enum sdc_status write_changes(struct sdc_file *f, const struct sdc_record_lines *l,
                                     struct sdc_error *err) {
    struct writing writing = {f, l};
    const uint64_t n_tasks = l->n_changes / SLICE + (l->n_changes % SLICE != 0);
    const unsigned threads = sdc__parallel_threads(l->threads, n_tasks);
    struct sdc_buf *slots = sdc__calloc(threads, sizeof *slots);
    struct sdc_parallel run = {.n_tasks = n_tasks,
                               .threads = threads,
                               .work = make_slice,
                               .commit = write_slice,
                               .user = &writing,
                               .slots = slots,
                               .slot_size = sizeof *slots};
    enum sdc_status st = slots ? sdc__parallel_run(&run, err) : SDC_NOMEM(err, "the record");
    for (unsigned i = 0; slots && i < threads; i++)
        sdc__buf_release(&slots[i]);
    sdc__free(slots);
    return st;
}

static enum sdc_status write_lines(struct sdc_file *f, const struct sdc_record_lines *l,
                                   struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    char *line = NULL;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc_record_header_line(l->header, &line, err));
    SDC_TRY_OUT(st, put_line(&text, f, line, err));
    SDC_TRY_OUT(st, flush(&text, f, err));
    SDC_TRY_OUT(st, write_changes(f, l, err));
    for (size_t i = 0; i < l->n_mended; i++) {
        if (l->mended[i].old_raw == l->mended[i].new_raw)
            continue;
        SDC_TRY_OUT(st, sdc_record_mended_line(&l->mended[i], &line, err));
        SDC_TRY_OUT(st, put_line(&text, f, line, err));
    }
    st = flush(&text, f, err);
out:
    sdc__buf_release(&text);
    return st;
}

static enum sdc_status narrow_mode(const struct sdc_file *f, mode_t readers,
                                   struct sdc_error *err) {
    struct stat s;
    if (fstat(f->fd, &s) != 0 || fchmod(f->fd, s.st_mode & (readers | 0600) & 0777) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s: narrow the permissions", f->path);
    return SDC_OK;
}

/* Through an atomic replacement, so that a record is never seen half written. */
static enum sdc_status create_at(const char *path, const struct sdc_record_lines *lines,
                                 mode_t readers, bool sync, struct sdc_error *err) {
    struct sdc_replace r;
    struct sdc_stamp stamp;
    SDC_TRY(sdc__replace_begin(path, false, &r, err));
    enum sdc_status st = narrow_mode(&r.file, readers, err);
    if (st == SDC_OK)
        st = write_lines(&r.file, lines, err);
    if (st == SDC_OK)
        st = sdc__stamp_take(&r.file, &stamp, err);
    if (st != SDC_OK) {
        sdc__replace_abandon(&r);
        return st;
    }
    st = sdc__replace_commit(&r, sync, err);
    /* renamed, but its folder not synced: not safe enough to alter by, so it goes */
    if (st != SDC_OK && sdc__stamp_names(&stamp, path)) {
        enum sdc_status removed = sdc__remove_file(path, NULL);
        (void)removed;
    }
    return st;
}

enum sdc_status sdc__record_create(const char *record_path, const struct sdc_record_lines *lines,
                                   mode_t readers, bool sync, char **path, struct sdc_error *err) {
    const char *file = lines->header->file;
    int len = (int)strlen(file); /* without the trailing slashes of a folder */
    while (len > 1 && file[len - 1] == '/')
        len--;
    enum sdc_status st = SDC_EXISTS;
    char *name = NULL;
    for (unsigned i = 1; i <= MAX_NAMES && st == SDC_EXISTS; i++) {
        sdc__free(name);
        if (record_path)
            name = sdc__strdup(record_path);
        else if (i == 1)
            name = sdc__asprintf("%.*s.sdc.jsonl", len, file);
        else
            name = sdc__asprintf("%.*s.%u.sdc.jsonl", len, file, i);
        if (!name)
            return SDC_NOMEM(err, "the record's name");
        if (!record_path && sdc__path_exists(name))
            continue;
        st = create_at(name, lines, readers, sync, err);
        if (record_path)
            break;
    }
    if (st == SDC_EXISTS && !record_path)
        SDC_ERR(err, SDC_EXISTS, "%s: has %d records already, move some away", file, MAX_NAMES);
    if (st != SDC_OK) {
        sdc__free(name);
        sdc_error_prefix(err, "the record");
        return st;
    }
    *path = name;
    return SDC_OK;
}

enum sdc_status sdc__record_finish(const char *path, uint64_t n_verified, uint64_t n_bits,
                                   bool sync, struct sdc_error *err) {
    struct sdc_file f;
    char *line = NULL;
    SDC_TRY(sdc_record_verified_line(n_verified, n_bits, &line, err));
    enum sdc_status st = sdc__file_open(path, SDC_FILE_APPEND, &f, err);
    if (st == SDC_OK)
        st = sdc__file_append(&f, line, strlen(line), err);
    if (st == SDC_OK && sync)
        st = sdc__file_sync(&f, err);
    sdc__file_close(&f);
    sdc_text_free(line);
    return st;
}
