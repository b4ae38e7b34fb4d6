/* SPDX-License-Identifier: Apache-2.0
 *
 * The files a checkpoint consists of, its stored checksums, and findings about it.
 */
#include "ckpt/files.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/limits.h"

/* ---- members ---- */

enum sdc_status sdc__ckpt_set_name(struct sdc_ckpt *ckpt, const char *folder, const char *name,
                                   struct sdc_error *err) {
    const bool here = *name && strcmp(folder, ".") == 0 && strncmp(ckpt->path, "./", 2) != 0;
    sdc__free(ckpt->name);
    ckpt->name = !*name ? sdc__path_named(folder) : sdc__path_join(here ? "" : folder, name);
    return ckpt->name ? SDC_OK : SDC_NOMEM(err, ckpt->path);
}

static struct sdc_ckpt_member *new_member(struct sdc_ckpt *ckpt, const char *name, const char *path,
                                          struct sdc_error *err) {
    size_t n = ckpt->n_members;
    struct sdc_ckpt_member *m = sdc__calloc(1, sizeof *m);
    if (!m) {
        (void)SDC_NOMEM(err, ckpt->path);
        return NULL;
    }
    m->file = (struct sdc_file)SDC_FILE_INIT;
    m->name = sdc__strdup(name);
    m->path = sdc__strdup(path);
    bool ok = m->name && m->path;
    if (ok && (n & (n - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        struct sdc_ckpt_member **more = sdc__realloc(ckpt->members, n ? n * 2 : 1, sizeof(void *));
        ok = more != NULL;
        ckpt->members = ok ? more : ckpt->members;
    }
    if (!ok) {
        sdc__free(m->name);
        sdc__free(m->path);
        sdc__free(m);
        (void)SDC_NOMEM(err, ckpt->path);
        return NULL;
    }
    ckpt->members[ckpt->n_members++] = m;
    return m;
}

enum sdc_status sdc__ckpt_adopt(struct sdc_ckpt *ckpt, struct sdc_file *file,
                                struct sdc_error *err) {
    struct sdc_ckpt_member *m = new_member(ckpt, sdc__path_base(ckpt->path), ckpt->path, err);
    if (!m)
        return SDC_NO_MEMORY;
    m->file = *file;
    m->size = file->size;
    *file = (struct sdc_file)SDC_FILE_INIT;
    ckpt->file = &m->file;
    return SDC_OK;
}

/* The set's folder: path without the name at its end. */
static char *folder_of(const char *path, const char *name) {
    const size_t n = strlen(path), m = strlen(name);
    if (n == m || strcmp(path + n - m, name) != 0)
        return n == m ? sdc__strdup(".") : sdc__path_dir(path);
    return sdc__strndup(path, n - m);
}

enum sdc_status sdc__ckpt_note_links(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    size_t n = 0, first = 0;
    for (size_t i = ckpt->n_members; i-- > 0;)
        if (ckpt->members[i]->links_out) {
            n++;
            first = i;
        }
    if (n == 0)
        return SDC_OK;
    return sdc__ckpt_add_note(ckpt, SDC_NOTE_SECURITY, err,
                              "%zu file%s out of the folder, such as %.200s: read, and never "
                              "altered in place",
                              n, n == 1 ? " is a link" : "s are links", ckpt->members[first]->name);
}

enum sdc_status sdc__ckpt_add_member(struct sdc_ckpt *ckpt, const char *name, const char *path,
                                     unsigned *index, struct sdc_error *err) {
    struct stat s;
    if (!sdc__path_is_below(name)) /* nothing outside the set is ever opened */
        return SDC_ERR(err, SDC_INVALID, "%s: unsafe path: its file \"%s\" is not below its folder",
                       ckpt->path, name);
    if (ckpt->n_members >= SDC_MAX_MEMBERS)
        return SDC_ERR(err, SDC_LIMIT, "%s: more than %d files", ckpt->path, SDC_MAX_MEMBERS);
    if (stat(path, &s) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return SDC_ERR(err, SDC_INVALID, "%s: incomplete set: %s is missing", ckpt->path, name);
    if (stat(path, &s) != 0)
        return SDC_ERR_SYS(err, SDC_IO, errno, "%s", path);
    if (!S_ISREG(s.st_mode))
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: not a regular file", path);
    struct sdc_ckpt_member *m = new_member(ckpt, name, path, err);
    if (!m)
        return SDC_NO_MEMORY;
    m->size = (uint64_t)s.st_size;
    char *folder = folder_of(path, name);
    if (!folder)
        return SDC_NOMEM(err, ckpt->path);
    m->links_out = sdc__path_leaves(folder, path);
    sdc__free(folder);
    if (index)
        *index = (unsigned)(ckpt->n_members - 1);
    return SDC_OK;
}

enum sdc_status sdc__ckpt_member(struct sdc_ckpt *ckpt, unsigned index,
                                 const struct sdc_file **file, struct sdc_error *err) {
    struct sdc_ckpt_member *m = ckpt->members[index];
    if (index == 0 && ckpt->file) { /* adopted: open from the start, no lock */
        *file = ckpt->file;
        return SDC_OK;
    }
    enum sdc_status st = SDC_OK;
    (void)pthread_mutex_lock(&ckpt->member_lock);
    if (!ckpt->pool && !(ckpt->pool = sdc__file_pool_new()))
        st = SDC_NOMEM(err, ckpt->path);
    if (st == SDC_OK && !sdc__file_is_open(&m->file)) {
        st = sdc__file_pool_open(ckpt->pool, m->path, SDC_FILE_READ, &m->file, err);
        if (st == SDC_OK && m->file.size != m->size)
            st = SDC_ERR(err, SDC_BUSY, "%s: had %llu bytes, now %llu", m->path,
                         (unsigned long long)m->size, (unsigned long long)m->file.size);
    }
    (void)pthread_mutex_unlock(&ckpt->member_lock);
    *file = &m->file;
    return st;
}

size_t sdc_ckpt_files(const struct sdc_ckpt *ckpt) {
    return ckpt->n_members;
}

struct sdc_ckpt_file sdc_ckpt_file(const struct sdc_ckpt *ckpt, size_t i) {
    const struct sdc_ckpt_member *m = ckpt->members[i];
    return (struct sdc_ckpt_file){
        .name = m->name, .path = m->path, .size = m->size, .links_out = m->links_out};
}

bool sdc_ckpt_is_set(const struct sdc_ckpt *ckpt) {
    return ckpt->ops->is_set || ckpt->n_members > 1;
}

bool sdc__shard_name(const char *name, const char *suffix, size_t *stem, uint64_t *no,
                     uint64_t *count) {
    static const char like[] = "-ddddd-of-ddddd";
    const size_t n = strlen(name), m = sizeof like - 1, end = strlen(suffix);
    if (n <= m + end || strcmp(name + n - end, suffix) != 0)
        return false;
    const char *tail = name + n - end - m;
    *stem = n - end - m;
    *no = *count = 0;
    for (size_t i = 0; i < m; i++) {
        if (like[i] != 'd') {
            if (tail[i] != like[i] && !(i == 0 && tail[i] == '_'))
                return false;
            continue;
        }
        if (tail[i] < '0' || tail[i] > '9')
            return false;
        uint64_t *to = i < 6 ? no : count;
        *to = *to * 10 + (uint64_t)(tail[i] - '0');
    }
    return *no >= 1 && *no <= *count;
}

/* ---- sums ---- */

const char *sdc_sum_kind_name(enum sdc_sum_kind kind) {
    static const char *const names[] = {
        [SDC_SUM_CRC32] = "CRC-32",          [SDC_SUM_CRC32C] = "CRC-32C",
        [SDC_SUM_CRC32C_MASKED] = "CRC-32C", [SDC_SUM_FLETCHER32] = "Fletcher-32",
        [SDC_SUM_LOOKUP3] = "lookup3",
    };
    return names[kind];
}

enum sdc_status sdc__ckpt_add_sum(struct sdc_ckpt *ckpt, const struct sdc_ckpt_sum *sum,
                                  struct sdc_error *err) {
    bool inside = sum->file < ckpt->n_members && sum->n_places <= 2 &&
                  sdc__range_inside(sum->offset, sum->size, ckpt->members[sum->file]->size);
    for (unsigned i = 0; inside && i < sum->n_places; i++)
        inside =
            sum->places[i].file < ckpt->n_members &&
            sdc__range_inside(sum->places[i].offset, 4, ckpt->members[sum->places[i].file]->size);
    if (!inside)
        return SDC_ERR_AT(err, SDC_INVALID, sum->offset,
                          "%s: %s: its checksum or the bytes it covers are not inside the file",
                          ckpt->path, sum->what);
    if (ckpt->n_sums == ckpt->cap_sums) {
        size_t cap = ckpt->cap_sums ? ckpt->cap_sums * 2 : 16;
        struct sdc_ckpt_sum *more = sdc__realloc(ckpt->sums, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the checksums");
        ckpt->sums = more;
        ckpt->cap_sums = cap;
    }
    struct sdc_ckpt_sum *to = &ckpt->sums[ckpt->n_sums];
    *to = *sum;
    to->what = sdc__strdup(sum->what);
    if (!to->what)
        return SDC_NOMEM(err, "the checksums");
    ckpt->n_sums++;
    return SDC_OK;
}

enum sdc_status sdc_ckpt_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    if (ckpt->all_sums || !ckpt->ops->find_sums)
        return SDC_OK;
    (void)pthread_mutex_lock(&ckpt->lock);
    enum sdc_status st = ckpt->ops->find_sums(ckpt, err);
    (void)pthread_mutex_unlock(&ckpt->lock);
    ckpt->all_sums = st == SDC_OK;
    return st;
}

size_t sdc_ckpt_sums(const struct sdc_ckpt *ckpt) {
    return ckpt->n_sums;
}

const struct sdc_ckpt_sum *sdc_ckpt_sum(const struct sdc_ckpt *ckpt, size_t i) {
    return &ckpt->sums[i];
}

/* ---- notes ---- */

enum sdc_status sdc__ckpt_add_note(struct sdc_ckpt *ckpt, enum sdc_note_kind kind,
                                   struct sdc_error *err, const char *fmt, ...) {
    char line[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (ckpt->n_notes == ckpt->cap_notes) {
        size_t cap = ckpt->cap_notes ? ckpt->cap_notes * 2 : 8;
        struct sdc_ckpt_note *more = sdc__realloc(ckpt->notes, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the notes");
        ckpt->notes = more;
        ckpt->cap_notes = cap;
    }
    char *text = sdc__strdup(line);
    if (!text)
        return SDC_NOMEM(err, "the notes");
    ckpt->notes[ckpt->n_notes++] = (struct sdc_ckpt_note){.kind = kind, .text = text};
    return SDC_OK;
}

size_t sdc_ckpt_notes(const struct sdc_ckpt *ckpt) {
    return ckpt->n_notes;
}

struct sdc_ckpt_note sdc_ckpt_note(const struct sdc_ckpt *ckpt, size_t i) {
    return ckpt->notes[i];
}

void sdc__ckpt_release_files(struct sdc_ckpt *ckpt) {
    for (size_t i = 0; i < ckpt->n_members; i++) {
        sdc__file_close(&ckpt->members[i]->file);
        sdc__free(ckpt->members[i]->name);
        sdc__free(ckpt->members[i]->path);
        sdc__free(ckpt->members[i]);
    }
    sdc__free(ckpt->members);
    sdc__file_pool_free(ckpt->pool);
    for (size_t i = 0; i < ckpt->n_sums; i++)
        sdc__free((char *)(uintptr_t)ckpt->sums[i].what);
    sdc__free(ckpt->sums);
    for (size_t i = 0; i < ckpt->n_notes; i++)
        sdc__free((char *)(uintptr_t)ckpt->notes[i].text);
    sdc__free(ckpt->notes);
}
