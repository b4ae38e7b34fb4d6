/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors in shards: an index, {"metadata": {"total_size": n}, "weight_map": {tensor: file}} as
 * the transformers library writes it, or a folder that holds one, or one with shards
 * NAME-00001-of-0000N.safetensors and no index. Real indexes deviate in total_size and in their
 * names, so these are notes; what is missing is an error before anything is touched.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "ckpt/fmt/safetensors.h"

#define SUFFIX ".safetensors"
#define INDEX  ".index.json"

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- what a folder holds ---- */

/* Names of a folder's own files, sorted. */
struct names {
    char **items;
    size_t n;
    const char *end; /* only those that end so */
};

static void names_release(struct names *names) {
    for (size_t i = 0; i < names->n; i++)
        sdc__free(names->items[i]);
    sdc__free(names->items);
    *names = (struct names){0};
}

static enum sdc_status names_add(struct names *names, const char *name, struct sdc_error *err) {
    if ((names->n & (names->n - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        char **more = sdc__realloc(names->items, names->n ? names->n * 2 : 1, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, "the names of files");
        names->items = more;
    }
    names->items[names->n] = sdc__strdup(name);
    if (!names->items[names->n])
        return SDC_NOMEM(err, "the names of files");
    names->n++;
    return SDC_OK;
}

static enum sdc_status take(void *user, const char *path, const char *name, struct sdc_error *err) {
    struct names *names = user;
    (void)path;
    return ends_with(name, names->end) ? names_add(names, name, err) : SDC_OK;
}

static enum sdc_status list(const char *folder, const char *end, struct names *names,
                            struct sdc_error *err) {
    *names = (struct names){.end = end};
    enum sdc_status st = sdc__list_files(folder, false, take, names, err);
    if (st != SDC_OK)
        names_release(names);
    return st;
}

/* ---- recognition ---- */

static bool folder_has(const char *folder, const char *end) {
    struct names names;
    bool yes = list(folder, end, &names, NULL) == SDC_OK && names.n > 0;
    names_release(&names);
    return yes;
}

static bool set_sniff(const struct sdc_ckpt_source *source) {
    if (source->is_folder)
        return folder_has(source->path, INDEX) || folder_has(source->path, SUFFIX);
    return source->file && source->n_head > 0 && !sdc__st_sniff(source->head, source->n_head) &&
           sdc__is_weight_map(source->file, NULL);
}

/* ---- the index ---- */

struct set {
    struct sdc_ckpt *ckpt;
    char *folder;       /* owned */
    struct names files; /* the shards, sorted, each once */
    size_t first;       /* number of the first shard's member */
};

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void keep_distinct(struct names *names) {
    size_t n = 0;
    if (names->n > 1)
        qsort(names->items, names->n, sizeof *names->items, by_text);
    for (size_t i = 0; i < names->n; i++)
        if (n > 0 && strcmp(names->items[n - 1], names->items[i]) == 0)
            sdc__free(names->items[i]);
        else
            names->items[n++] = names->items[i];
    names->n = n;
}

static enum sdc_status map_of(const struct sdc_json *root, const char *path,
                              const struct sdc_json **map, struct sdc_error *err) {
    *map = sdc__json_type(root) == SDC_JSON_OBJECT ? sdc__json_get(root, "weight_map") : NULL;
    if (!*map || sdc__json_type(*map) != SDC_JSON_OBJECT)
        return SDC_ERR(err, SDC_INVALID, "%s: weight_map: expected an object of file names", path);
    for (const char *k = sdc__json_next_key(*map, NULL); k; k = sdc__json_next_key(*map, k))
        if (sdc__json_type(sdc__json_get(*map, k)) != SDC_JSON_STRING)
            return SDC_ERR(err, SDC_INVALID, "%s: weight_map: %s: expected a file name, found %s",
                           path, k, sdc__json_type_name(sdc__json_get(*map, k)));
    return SDC_OK;
}

static enum sdc_status add_member(struct set *s, const char *name, struct sdc_error *err) {
    char *path = sdc__path_join(s->folder, name);
    if (!path)
        return SDC_NOMEM(err, name);
    enum sdc_status st = sdc__ckpt_add_member(s->ckpt, name, path, NULL, err);
    sdc__free(path);
    return st;
}

static enum sdc_status add_shards(struct set *s, struct sdc_error *err) {
    s->first = s->ckpt->n_members;
    for (size_t i = 0; i < s->files.n; i++)
        SDC_TRY(add_member(s, s->files.items[i], err));
    for (size_t i = 0; i < s->files.n; i++) {
        const struct sdc_file *f;
        unsigned char head[64];
        SDC_TRY(sdc__ckpt_member(s->ckpt, (unsigned)(s->first + i), &f, err));
        size_t n = f->size < sizeof head ? (size_t)f->size : sizeof head;
        SDC_TRY(sdc__file_read(f, 0, head, n, err));
        if (n > 8 && !sdc__st_sniff(head, n))
            return SDC_ERR(err, SDC_UNSUPPORTED, "%s: a shard that is no safetensors file",
                           f->path);
        SDC_TRY(sdc__st_read(s->ckpt, (unsigned)(s->first + i), f, err));
    }
    return SDC_OK;
}

/* The shard of a tensor; all tensors have one piece, empty ones too. */
static const char *file_of(const struct sdc_ckpt *c, const struct sdc_ckpt_entry *e) {
    return c->members[e->pieces[0].file]->name;
}

static int by_name(const void *a, const void *b) {
    const struct sdc_ckpt_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* All entries by name; a name may occur once. */
static enum sdc_status sort_entries(const struct set *s, const struct sdc_ckpt_entry ***sorted,
                                    struct sdc_error *err) {
    const struct sdc_ckpt *c = s->ckpt;
    *sorted = sdc__alloc(c->n, sizeof **sorted);
    if (!*sorted)
        return SDC_NOMEM(err, c->path);
    for (size_t i = 0; i < c->n; i++)
        (*sorted)[i] = &c->entries[i];
    if (c->n > 1)
        qsort(*sorted, c->n, sizeof **sorted, by_name);
    for (size_t i = 1; i < c->n; i++)
        if (strcmp((*sorted)[i - 1]->name, (*sorted)[i]->name) == 0)
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s is in %s and in %s", c->path,
                           (*sorted)[i]->name, file_of(c, (*sorted)[i - 1]),
                           file_of(c, (*sorted)[i]));
    return SDC_OK;
}

static enum sdc_status find(const struct sdc_ckpt *c, const struct sdc_ckpt_entry **sorted,
                            const char *name, const struct sdc_ckpt_entry **found,
                            struct sdc_error *err) {
    struct sdc_ckpt_entry wanted = {.name = (char *)(uintptr_t)name};
    const struct sdc_ckpt_entry *key = &wanted, **at = NULL;
    if (c->n)
        at = bsearch(&key, sorted, c->n, sizeof *sorted, by_name);
    *found = at ? *at : NULL;
    if (at)
        return SDC_OK;
    wanted.name = sdc__asprintf("%s:bytes", name); /* of a type that we do not know */
    if (!wanted.name)
        return SDC_NOMEM(err, c->path);
    if (c->n)
        at = bsearch(&key, sorted, c->n, sizeof *sorted, by_name);
    if (at && sdc__st_is_bytes(*at))
        *found = *at;
    sdc__free(wanted.name);
    return SDC_OK;
}

/* Every mapped tensor is in its shard. How many of the entries are mapped. */
static enum sdc_status check_map(const struct set *s, const struct sdc_json *map,
                                 const struct sdc_ckpt_entry **sorted, uint64_t *mapped,
                                 struct sdc_error *err) {
    const struct sdc_ckpt *c = s->ckpt;
    *mapped = 0;
    for (const char *k = sdc__json_next_key(map, NULL); k; k = sdc__json_next_key(map, k)) {
        const char *file;
        const struct sdc_ckpt_entry *found;
        SDC_TRY(sdc__json_as_str(sdc__json_get(map, k), c->path, &file, err));
        SDC_TRY(find(c, sorted, k, &found, err));
        if (!found || strcmp(file_of(c, found), file) != 0)
            return SDC_ERR(err, SDC_INVALID,
                           "%s: incomplete set: tensor %s is not in its file %s%s%s", c->path, k,
                           file, found ? ", but in " : "", found ? file_of(c, found) : "");
        (*mapped)++;
    }
    return SDC_OK;
}

static enum sdc_status note_size(const struct set *s, const struct sdc_json *root,
                                 struct sdc_error *err) {
    const struct sdc_json *metadata = sdc__json_get(root, "metadata");
    const struct sdc_json *total = metadata && sdc__json_type(metadata) == SDC_JSON_OBJECT
                                       ? sdc__json_get(metadata, "total_size")
                                       : NULL;
    uint64_t bytes = 0, said = 0;
    struct sdc_error ignored;
    for (size_t i = 0; i < s->ckpt->n; i++)
        bytes += s->ckpt->entries[i].stored_size;
    if (!total ||
        (sdc__json_as_u64(total, "total_size", &said, &ignored) == SDC_OK && said == bytes))
        return SDC_OK;
    return sdc__ckpt_add_note(s->ckpt, SDC_NOTE_WARNING, err,
                              "the index says a total_size of %llu, the tensors have %llu bytes",
                              (unsigned long long)said, (unsigned long long)bytes);
}

static enum sdc_status with_index(struct set *s, const char *path, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_json *root = NULL;
    const struct sdc_json *map;
    const struct sdc_ckpt_entry **sorted = NULL;
    uint64_t mapped = 0;
    enum sdc_status st;
    SDC_TRY_OUT(st, sdc__read_whole(path, SDC_MAX_JSON, &text, err));
    SDC_TRY_OUT(st, sdc__json_parse(text.data ? text.data : "", text.len, path, &root, err));
    SDC_TRY_OUT(st, map_of(root, path, &map, err));
    for (const char *k = sdc__json_next_key(map, NULL); k; k = sdc__json_next_key(map, k)) {
        const char *file;
        SDC_TRY_OUT(st, sdc__json_as_str(sdc__json_get(map, k), path, &file, err));
        SDC_TRY_OUT(st, names_add(&s->files, file, err));
    }
    keep_distinct(&s->files);
    SDC_TRY_OUT(st, add_member(s, sdc__path_base(path), err));
    SDC_TRY_OUT(st, add_shards(s, err));
    SDC_TRY_OUT(st, sort_entries(s, &sorted, err));
    SDC_TRY_OUT(st, check_map(s, map, sorted, &mapped, err));
    if (mapped < s->ckpt->n)
        SDC_TRY_OUT(st, sdc__ckpt_add_note(s->ckpt, SDC_NOTE_WARNING, err,
                                           "%llu tensors of the shards are not in the index",
                                           (unsigned long long)(s->ckpt->n - mapped)));
    st = note_size(s, root, err);
out:
    sdc__free(sorted);
    sdc__json_free(root);
    sdc__buf_release(&text);
    return st;
}

/* ---- shards without an index ---- */

static enum sdc_status check_shards(const struct set *s, struct sdc_error *err) {
    const char *path = s->ckpt->path;
    size_t stem = 0, stem0 = 0;
    uint64_t no, count = 0, count0 = 0;
    for (size_t i = 0; i < s->files.n; i++) {
        const char *name = s->files.items[i];
        if (!sdc__shard_name(name, SUFFIX, &stem, &no, &count))
            return SDC_ERR(err, SDC_USAGE,
                           "%s: the folder holds several safetensors files and no index; give one "
                           "of them, such as %s",
                           path, name);
        if (i == 0) {
            stem0 = stem;
            count0 = count;
        }
        if (stem != stem0 || count != count0 || strncmp(name, s->files.items[0], stem) != 0)
            return SDC_ERR(err, SDC_USAGE,
                           "%s: the folder holds shards of several models and no index: %s and %s",
                           path, s->files.items[0], name);
        if (no != i + 1)
            break;
    }
    if (s->files.n == count0)
        return SDC_OK;
    for (size_t i = 0; i < s->files.n; i++)
        if (sdc__shard_name(s->files.items[i], SUFFIX, &stem, &no, &count) && no != i + 1)
            return SDC_ERR(err, SDC_INVALID,
                           "%s: incomplete set: shard %zu of %llu is missing (there is %s)", path,
                           i + 1, (unsigned long long)count0, s->files.items[i]);
    return SDC_ERR(err, SDC_INVALID, "%s: incomplete set: shard %zu of %llu is missing", path,
                   s->files.n + 1, (unsigned long long)count0);
}

/* shard-00000-model-00001-of-00001.safetensors: the parts of each rank */
static bool is_distributed(const char *name) {
    return strncmp(name, "shard-", 6) == 0 && strstr(name, "-model-");
}

static enum sdc_status without_index(struct set *s, struct sdc_error *err) {
    const struct sdc_ckpt_entry **sorted = NULL;
    size_t stem;
    uint64_t no, count;
    SDC_TRY(list(s->folder, SUFFIX, &s->files, err));
    if (s->files.n > 1 && is_distributed(s->files.items[0]) && is_distributed(s->files.items[1]))
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: a distributed checkpoint of PyTorch in safetensors files, each with "
                       "one rank's parts of tensors (%s, ...), which is not read as one; give one "
                       "of the files",
                       s->ckpt->path, s->files.items[0]);
    /* a file alone is that file, unless its name says that it is one of several */
    if (s->files.n > 1 ||
        (s->files.n == 1 && sdc__shard_name(s->files.items[0], SUFFIX, &stem, &no, &count))) {
        SDC_TRY(check_shards(s, err));
        SDC_TRY(sdc__ckpt_add_note(s->ckpt, SDC_NOTE_INFO, err,
                                   "no index: the shards are told by their names"));
    }
    SDC_TRY(add_shards(s, err));
    enum sdc_status st = sort_entries(s, &sorted, err);
    sdc__free(sorted);
    return st;
}

/* ---- the format ---- */

static enum sdc_status in_folder(struct set *s, struct sdc_error *err) {
    struct names indexes;
    char *path = NULL;
    enum sdc_status st = list(s->folder, INDEX, &indexes, err);
    if (st == SDC_OK && indexes.n > 1)
        st = SDC_ERR(err, SDC_USAGE,
                     "%s: the folder holds several indexes, give one of them: %s, %s", s->folder,
                     indexes.items[0], indexes.items[1]);
    if (st == SDC_OK && indexes.n == 1) {
        path = sdc__path_join(s->folder, indexes.items[0]);
        st = path ? with_index(s, path, err) : SDC_NOMEM(err, s->folder);
    } else if (st == SDC_OK) {
        st = without_index(s, err);
    }
    sdc__free(path);
    names_release(&indexes);
    return st;
}

/* By its folder, unless that does not stand for it: it has another index, or several. */
static enum sdc_status name_set(const struct set *s, const struct sdc_ckpt_source *source,
                                struct sdc_error *err) {
    struct names indexes = {0};
    const char *own = source->is_folder ? "" : sdc__path_base(source->path);
    if (*own)
        SDC_TRY(list(s->folder, INDEX, &indexes, err));
    if (indexes.n == 1 && strcmp(indexes.items[0], own) == 0)
        own = "";
    names_release(&indexes);
    return sdc__ckpt_set_name(s->ckpt, s->folder, own, err);
}

static enum sdc_status set_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                struct sdc_error *err) {
    struct set s = {.ckpt = ckpt};
    s.folder = source->is_folder ? sdc__strdup(source->path) : sdc__path_dir(source->path);
    enum sdc_status st = s.folder ? name_set(&s, source, err) : SDC_NOMEM(err, source->path);
    if (st == SDC_OK)
        st = source->is_folder ? in_folder(&s, err) : with_index(&s, source->path, err);
    names_release(&s.files);
    sdc__free(s.folder);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_safetensors_set = {
    .name = "safetensors-set",
    .summary = "safetensors in shards, with their index",
    .is_set = true,
    .sniff = set_sniff,
    .open = set_open,
};
