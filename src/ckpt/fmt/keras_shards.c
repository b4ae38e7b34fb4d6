/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of Keras 3 in shards (keras/src/saving/saving_lib.py, ShardedH5IOStore, of 3.15):
 * NAME.weights.json, {"metadata": {"total_size": n}, "weight_map": {"/layers/dense/vars":
 * ["NAME_00000.weights.h5", ...], ...}}, and the HDF5 files that it names. A group may go on in the
 * next file. Each shard is opened as the HDF5 file that it is; the set takes its entries over.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/fmt/hdf5.h"

#define INDEX ".weights.json"

struct shard {
    struct sdc_ckpt *inner; /* without entries, these are the set's */
    unsigned first;         /* number of its first file in the set */
    size_t n_sums;          /* taken over so far */
    char *name;
};

struct shards {
    struct shard *all;
    size_t n, cap;
};

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- recognition ---- */

struct found {
    char *name;
    size_t n;
};

static enum sdc_status take(void *user, const char *path, const char *name, struct sdc_error *err) {
    struct found *found = user;
    (void)path;
    if (!ends_with(name, INDEX) || found->n++ > 0)
        return SDC_OK;
    found->name = sdc__strdup(name);
    return found->name ? SDC_OK : SDC_NOMEM(err, name);
}

static bool shards_sniff(const struct sdc_ckpt_source *source) {
    if (!source->is_folder)
        return source->file && source->n_head > 0 &&
               sdc__is_weight_map(source->file, ".weights.h5\"");
    struct found found = {0};
    bool yes = sdc__list_files(source->path, false, take, &found, NULL) == SDC_OK && found.n > 0;
    sdc__free(found.name);
    return yes;
}

/* ---- shards ---- */

/* Registers what the shard has found since as the set's. */
static enum sdc_status take_sums(struct sdc_ckpt *ckpt, struct shard *s, struct sdc_error *err) {
    for (; s->n_sums < s->inner->n_sums; s->n_sums++) {
        struct sdc_ckpt_sum sum = s->inner->sums[s->n_sums];
        char *what = sdc__asprintf("%s: %s", s->name, sum.what);
        if (!what)
            return SDC_NOMEM(err, ckpt->path);
        sum.what = what;
        sum.file += s->first;
        for (unsigned i = 0; i < sum.n_places; i++)
            sum.places[i].file += s->first;
        enum sdc_status st = sdc__ckpt_add_sum(ckpt, &sum, err);
        sdc__free(what);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

static enum sdc_status take_entries(struct sdc_ckpt *ckpt, size_t index, struct sdc_error *err) {
    const struct shards *all = ckpt->priv;
    struct shard *s = &all->all[index];
    for (size_t i = 0; i < s->inner->n; i++) {
        struct sdc_ckpt_entry *e, *from = &s->inner->entries[i];
        SDC_TRY(sdc__ckpt_add(ckpt, from->name, &e, err));
        sdc__entry_release(e);
        *e = *from;
        *from = (struct sdc_ckpt_entry){0};
        for (size_t k = 0; k < e->n_pieces; k++)
            e->pieces[k].file += s->first;
        e->key2 = index;
    }
    s->inner->n = s->inner->n_names = 0; /* names of entries that are gone */
    SDC_TRY(take_sums(ckpt, s, err));
    for (size_t i = 0; i < s->inner->n_notes; i++)
        SDC_TRY(sdc__ckpt_add_note(ckpt, s->inner->notes[i].kind, err, "%s: %s", s->name,
                                   s->inner->notes[i].text));
    return SDC_OK;
}

static enum sdc_status add_shard(struct sdc_ckpt *ckpt, const char *folder, const char *name,
                                 struct sdc_error *err) {
    struct shards *all = ckpt->priv;
    const struct sdc_file *file;
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 8;
        struct shard *more = sdc__realloc(all->all, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, ckpt->path);
        all->all = more;
        all->cap = cap;
    }
    struct shard *s = &all->all[all->n++];
    *s = (struct shard){.name = sdc__strdup(name)};
    char *path = s->name ? sdc__path_join(folder, name) : NULL;
    if (!path)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = sdc__ckpt_add_member(ckpt, name, path, &s->first, err);
    if (st == SDC_OK)
        st = sdc__ckpt_member(ckpt, s->first, &file, err); /* a file, and no folder */
    if (st == SDC_OK && sdc__is_weight_map(file, NULL))    /* which may name this one in turn */
        st = SDC_ERR(err, SDC_UNSUPPORTED, "%s: a shard that is no HDF5 file", path);
    if (st == SDC_OK)
        st = sdc_ckpt_open(path, ckpt->options, &s->inner, err);
    if (st == SDC_OK && s->inner->ops != &sdc__fmt_hdf5)
        st = SDC_ERR(err, SDC_UNSUPPORTED, "%s: a shard that is no HDF5 file", path);
    for (size_t i = 1; st == SDC_OK && i < s->inner->n_members; i++) /* raw files */
        st = sdc__ckpt_add_member(ckpt, s->inner->members[i]->name, s->inner->members[i]->path,
                                  NULL, err);
    sdc__free(path);
    return st == SDC_OK ? take_entries(ckpt, all->n - 1, err) : st;
}

static const struct shard *find_shard(const struct shards *all, const char *name) {
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->all[i].name, name) == 0)
            return &all->all[i];
    return NULL;
}

/* ---- the index ---- */

/* The i-th file of a group, which may be a text or a list of them; NULL behind the last. */
static const char *file_of(const struct sdc_json *files, size_t i) {
    const char *text = NULL;
    struct sdc_error ignored;
    const struct sdc_json *v = sdc__json_type(files) == SDC_JSON_ARRAY ? sdc__json_at(files, i)
                               : i == 0                                ? files
                                                                       : NULL;
    return v && sdc__json_as_str(v, "", &text, &ignored) == SDC_OK ? text : NULL;
}

static size_t files_in(const struct sdc_json *files) {
    return sdc__json_type(files) == SDC_JSON_ARRAY ? sdc__json_count(files) : 1;
}

static enum sdc_status map_of(const struct sdc_json *root, const char *path,
                              const struct sdc_json **map, struct sdc_error *err) {
    *map = sdc__json_type(root) == SDC_JSON_OBJECT ? sdc__json_get(root, "weight_map") : NULL;
    if (!*map || sdc__json_type(*map) != SDC_JSON_OBJECT)
        return SDC_ERR(err, SDC_INVALID, "%s: weight_map: expected an object of lists of files",
                       path);
    for (const char *k = sdc__json_next_key(*map, NULL); k; k = sdc__json_next_key(*map, k))
        for (size_t i = 0; i < files_in(sdc__json_get(*map, k)); i++)
            if (!file_of(sdc__json_get(*map, k), i))
                return SDC_ERR(err, SDC_INVALID, "%s: weight_map: %s: expected names of files",
                               path, k);
    return SDC_OK;
}

static int by_name(const void *a, const void *b) {
    const struct sdc_ckpt_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static enum sdc_status sort_entries(const struct sdc_ckpt *ckpt,
                                    const struct sdc_ckpt_entry ***sorted, struct sdc_error *err) {
    const struct shards *all = ckpt->priv;
    *sorted = sdc__alloc(ckpt->n, sizeof **sorted);
    if (!*sorted)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < ckpt->n; i++)
        (*sorted)[i] = &ckpt->entries[i];
    if (ckpt->n > 1)
        qsort(*sorted, ckpt->n, sizeof **sorted, by_name);
    for (size_t i = 1; i < ckpt->n; i++)
        if (by_name(&(*sorted)[i - 1], &(*sorted)[i]) == 0)
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s is in %s and in %s", ckpt->path,
                           (*sorted)[i]->name, all->all[(*sorted)[i - 1]->key2].name,
                           all->all[(*sorted)[i]->key2].name);
    return SDC_OK;
}

/* Does the shard hold a tensor of this group? */
static bool holds(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry **sorted,
                  const char *group, size_t shard) {
    group += *group == '/';
    const size_t len = strlen(group);
    size_t lo = 0, hi = ckpt->n; /* the first that is not below "group/" */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strncmp(sorted[mid]->name, group, len);
        if (c < 0 || (c == 0 && (unsigned char)sorted[mid]->name[len] < '/'))
            lo = mid + 1;
        else
            hi = mid;
    }
    for (;
         lo < ckpt->n && strncmp(sorted[lo]->name, group, len) == 0 && sorted[lo]->name[len] == '/';
         lo++)
        if (sorted[lo]->key2 == shard)
            return true;
    return false;
}

static enum sdc_status check_map(const struct sdc_ckpt *ckpt, const struct sdc_json *map,
                                 const struct sdc_ckpt_entry **sorted, struct sdc_error *err) {
    const struct shards *all = ckpt->priv;
    for (const char *k = sdc__json_next_key(map, NULL); k; k = sdc__json_next_key(map, k))
        for (size_t i = 0; i < files_in(sdc__json_get(map, k)); i++) {
            const char *file = file_of(sdc__json_get(map, k), i);
            if (!holds(ckpt, sorted, k, (size_t)(find_shard(all, file) - all->all)))
                return SDC_ERR(err, SDC_INVALID,
                               "%s: incomplete set: %s holds nothing of the group %s", ckpt->path,
                               file, k);
        }
    return SDC_OK;
}

/* Is its group in the index, with this shard? */
static bool mapped(const struct shards *all, const struct sdc_json *map,
                   const struct sdc_ckpt_entry *e, char *group) {
    const char *slash = strrchr(e->name, '/');
    const size_t n = slash ? (size_t)(slash - e->name) : 0;
    group[0] = '/';
    memcpy(group + 1, e->name, n);
    group[n + 1] = '\0';
    const struct sdc_json *files = sdc__json_get(map, group);
    for (size_t i = 0; files && i < files_in(files); i++)
        if (strcmp(file_of(files, i), all->all[e->key2].name) == 0)
            return true;
    return false;
}

static enum sdc_status note_unmapped(struct sdc_ckpt *ckpt, const struct sdc_json *map,
                                     struct sdc_error *err) {
    size_t n = 0, longest = 0, first = 0;
    for (size_t i = 0; i < ckpt->n; i++)
        longest = strlen(ckpt->entries[i].name) > longest ? strlen(ckpt->entries[i].name) : longest;
    char *group = sdc__alloc(longest + 2, 1);
    if (!group)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < ckpt->n; i++)
        if (!mapped(ckpt->priv, map, &ckpt->entries[i], group))
            first = n++ == 0 ? i : first;
    sdc__free(group);
    return n == 0 ? SDC_OK
                  : sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                       "%zu tensors of the shards are not in the index, such as %s",
                                       n, ckpt->entries[first].name);
}

/* Keras counts a boolean as one bit. */
static enum sdc_status note_size(struct sdc_ckpt *ckpt, const struct sdc_json *root,
                                 struct sdc_error *err) {
    const struct sdc_json *metadata = sdc__json_get(root, "metadata");
    double bytes = 0, said = 0;
    struct sdc_error ignored;
    if (!metadata || sdc__json_type(metadata) != SDC_JSON_OBJECT ||
        !sdc__json_get(metadata, "total_size") ||
        sdc__json_as_f64(sdc__json_get(metadata, "total_size"), "", &said, &ignored) != SDC_OK)
        return SDC_OK;
    for (size_t i = 0; i < ckpt->n; i++) {
        const struct sdc_tensor_desc *d = &ckpt->entries[i].desc;
        if (!d->dtype_known)
            return SDC_OK;
        bytes += (double)d->n_elems *
                 (d->dtype == SDC_DTYPE_BOOL ? 1.0 / 8 : (double)sdc_dtype_bits(d->dtype) / 8);
    }
    if (fabs(said - bytes) < 1)
        return SDC_OK;
    return sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                              "the index says a total_size of %.17g, the tensors have %.17g bytes",
                              said, bytes);
}

static enum sdc_status with_index(struct sdc_ckpt *ckpt, const char *folder, const char *name,
                                  struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sdc_json *root = NULL;
    const struct sdc_json *map;
    const struct sdc_ckpt_entry **sorted = NULL;
    enum sdc_status st = SDC_OK;
    char *path = sdc__path_join(folder, name);
    if (!path)
        return SDC_NOMEM(err, ckpt->path);
    SDC_TRY_OUT(st, sdc__read_whole(path, SDC_MAX_JSON, &text, err));
    SDC_TRY_OUT(st, sdc__json_parse(text.data ? text.data : "", text.len, path, &root, err));
    SDC_TRY_OUT(st, map_of(root, path, &map, err));
    SDC_TRY_OUT(st, sdc__ckpt_add_member(ckpt, name, path, NULL, err));
    for (const char *k = sdc__json_next_key(map, NULL); k; k = sdc__json_next_key(map, k))
        for (size_t i = 0; i < files_in(sdc__json_get(map, k)); i++) {
            const char *file = file_of(sdc__json_get(map, k), i);
            if (!find_shard(ckpt->priv, file))
                SDC_TRY_OUT(st, add_shard(ckpt, folder, file, err));
        }
    SDC_TRY_OUT(st, sort_entries(ckpt, &sorted, err));
    SDC_TRY_OUT(st, check_map(ckpt, map, sorted, err));
    SDC_TRY_OUT(st, note_unmapped(ckpt, map, err));
    st = note_size(ckpt, root, err);
out:
    sdc__free(sorted);
    sdc__json_free(root);
    sdc__buf_release(&text);
    sdc__free(path);
    return st;
}

/* ---- the format ---- */

/* The index stands for the set, which is loaded by its name. */
static enum sdc_status open_named(struct sdc_ckpt *ckpt, const char *folder, const char *name,
                                  struct sdc_error *err) {
    SDC_TRY(sdc__ckpt_set_name(ckpt, folder, name, err));
    return with_index(ckpt, folder, name, err);
}

static enum sdc_status shards_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                   struct sdc_error *err) {
    struct found found = {0};
    char *folder = source->is_folder ? sdc__strdup(source->path) : sdc__path_dir(source->path);
    enum sdc_status st = SDC_OK;
    ckpt->priv = sdc__calloc(1, sizeof(struct shards));
    if (!folder || !ckpt->priv)
        st = SDC_NOMEM(err, ckpt->path);
    if (st == SDC_OK && source->is_folder)
        st = sdc__list_files(folder, false, take, &found, err);
    if (st == SDC_OK && found.n > 1)
        st = SDC_ERR(err, SDC_USAGE, "%s: the folder holds several indexes, such as %s; give one",
                     ckpt->path, found.name);
    if (st == SDC_OK)
        st = open_named(ckpt, folder, found.name ? found.name : sdc__path_base(source->path), err);
    sdc__free(found.name);
    sdc__free(folder);
    return st;
}

static enum sdc_status shards_map(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                  uint64_t elem, struct sdc_span *span, struct sdc_error *err) {
    struct shard *s = &((struct shards *)ckpt->priv)->all[e->key2];
    SDC_TRY(s->inner->ops->map(s->inner, e, elem, span, err));
    span->file += s->first;
    return take_sums(ckpt, s, err);
}

static enum sdc_status shards_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                   uint64_t first, uint64_t n, void *elements,
                                   struct sdc_error *err) {
    const struct shard *s = &((struct shards *)ckpt->priv)->all[e->key2];
    return s->inner->ops->read(s->inner, e, first, n, elements, err);
}

static enum sdc_status shards_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    struct shards *all = ckpt->priv;
    for (size_t i = 0; i < all->n; i++) {
        struct sdc_ckpt *inner = all->all[i].inner;
        SDC_TRY(inner->ops->find_sums(inner, err));
        SDC_TRY(take_sums(ckpt, &all->all[i], err));
    }
    return SDC_OK;
}

static unsigned shards_member_of(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e) {
    return ((const struct shards *)ckpt->priv)->all[e->key2].first;
}

/* Edits name tensors by their numbers in the set. */
static enum sdc_status shards_recode(struct sdc_ckpt *ckpt, unsigned member,
                                     const struct sdc_ckpt_edit *edits, size_t n,
                                     struct sdc_file *to, struct sdc_error *err) {
    const struct shards *all = ckpt->priv;
    size_t i = 0;
    while (i < all->n && all->all[i].first != member)
        i++;
    if (i == all->n)
        return SDC_ERR(err, SDC_INTERNAL, "%s: file %u is no shard", ckpt->path, member);
    struct sdc_ckpt *inner = all->all[i].inner;
    struct sdc_ckpt_entry *own = inner->entries;
    inner->entries = ckpt->entries;
    inner->n = ckpt->n;
    inner->keep_sums = ckpt->keep_sums;
    inner->n_kept_sums = 0;
    enum sdc_status st = inner->ops->recode(inner, 0, edits, n, to, err);
    inner->entries = own;
    inner->n = 0;
    ckpt->n_kept_sums = inner->n_kept_sums;
    return st;
}

static void shards_close(struct sdc_ckpt *ckpt) {
    struct shards *all = ckpt->priv;
    if (!all)
        return;
    for (size_t i = 0; i < all->n; i++) {
        sdc_ckpt_close(all->all[i].inner);
        sdc__free(all->all[i].name);
    }
    sdc__free(all->all);
    sdc__free(all);
}

const struct sdc_ckpt_fmt_ops sdc__fmt_keras_shards = {
    .name = "keras-shards",
    .summary = "Keras weights in shards, with their index",
    .is_set = true,
    .sniff = shards_sniff,
    .open = shards_open,
    .map = shards_map,
    .read = shards_read,
    .find_sums = shards_find_sums,
    .recode = shards_recode,
    .member_of = shards_member_of,
    .close = shards_close,
};
