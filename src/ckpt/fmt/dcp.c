/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's distributed checkpoints: a folder of .metadata and data files. A tensor is cut into
 * chunks (boxes); the bytes of each are a whole archive as torch.save writes it, in the middle of a
 * data file. Sources: pytorch 2.9, torch/distributed/checkpoint/filesystem.py, metadata.py,
 * default_planner.py.
 */
#include "ckpt/fmt/dcp.h"

#include <dirent.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

#define SHOWN 10u /* names in a note */

static const char metadata[] = ".metadata";

/* ---- recognising ---- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), len = strlen(end);
    return n >= len && strcmp(s + n - len, end) == 0;
}

static bool beside(const char *folder, const char *name) {
    char *path = sdc__path_join(folder, name);
    bool yes = path && sdc__path_exists(path) && !sdc__path_is_dir(path);
    sdc__free(path);
    return yes;
}

static bool has_data(const char *folder) {
    bool yes = false;
    DIR *d = opendir(folder);
    struct dirent *e;
    while (d && !yes && (e = readdir(d)))
        yes = ends_with(e->d_name, ".distcp");
    if (d)
        (void)closedir(d);
    return yes;
}

static bool is_pickle(const char *folder) {
    char *path = sdc__path_join(folder, metadata);
    struct sdc_file f = SDC_FILE_INIT;
    unsigned char head[2] = {0};
    bool yes = path && sdc__file_open(path, SDC_FILE_READ, &f, NULL) == SDC_OK && f.size >= 2 &&
               sdc__file_read(&f, 0, head, 2, NULL) == SDC_OK && head[0] == 0x80 && head[1] <= 5;
    sdc__file_close(&f);
    sdc__free(path);
    return yes;
}

static bool dcp_sniff(const struct sdc_ckpt_source *source) {
    const char *base = sdc__path_base(source->path);
    if (source->is_folder)
        return has_data(source->path) || is_pickle(source->path);
    if (!source->file)
        return false;
    if (strcmp(base, metadata) == 0)
        return source->n_head >= 2 && source->head[0] == 0x80;
    return ends_with(base, ".distcp");
}

/* ---- chunks ---- */

static enum sdc_status keep_blob(struct sdc_ckpt *ckpt, const struct sdc_dcp_info *info,
                                 struct sdc_error *err) {
    struct sdc_dcp_state *s = ckpt->priv;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 32;
        struct sdc_dcp_blob *more = sdc__realloc(s->blobs, cap, sizeof *more);
        if (!more)
            return SDC_NOMEM(err, ckpt->path);
        s->blobs = more;
        s->cap = cap;
    }
    s->blobs[s->n++] = (struct sdc_dcp_blob){info->offset, info->length, info->file};
    return SDC_OK;
}

/* Everything the archive of an item holds: tensors with their places. prefix: as of
 * sdc__torch_walk.
 */
static enum sdc_status read_blob(struct sdc_ckpt *ckpt, const struct sdc_dcp_info *info,
                                 const char *prefix, struct sdc_torch *t, struct sdc_zip *zip,
                                 struct sdc_error *err) {
    const struct sdc_file *file;
    struct sdc_pk *pk = NULL;
    char *folder = NULL;
    SDC_TRY(sdc__ckpt_member(ckpt, info->file, &file, err));
    SDC_TRY(sdc__zip_open(file, info->offset, info->length, zip, err));
    const struct sdc_zip_member *m = sdc__torch_zip_find(zip, "data.pkl");
    if (!m)
        return SDC_ERR_AT(err, SDC_INVALID, info->offset, "%s: no member data.pkl", file->path);
    enum sdc_status st = sdc__torch_zip_order(file, zip, &t->big_endian, err);
    t->pickle_file = info->file;
    t->pickle_at = m->data;
    t->pickle_deflated = m->method != SDC_ZIP_STORED;
    if (st == SDC_OK)
        st = sdc__torch_zip_pickle(file, m, &pk, err);
    if (st == SDC_OK)
        st = sdc__torch_walk(t, pk, prefix, err);
    if (st == SDC_OK && *prefix)
        st = sdc__torch_note_globals(ckpt, pk, prefix, err);
    if (st == SDC_OK) {
        folder = sdc__asprintf("%.*s/data/", (int)strcspn(m->name, "/"), m->name);
        st = folder ? sdc__torch_zip_place(t, file, info->file, zip, folder, err)
                    : SDC_NOMEM(err, ckpt->path);
    }
    sdc__free(folder);
    sdc__pk_free(pk);
    return st;
}

static enum sdc_status wrong_chunk(const struct sdc_ckpt *ckpt, const char *fqn,
                                   const struct sdc_dcp_info *info, const char *what,
                                   struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, info->offset, "%s: tensor %s: the chunk at byte %llu %s",
                      ckpt->members[info->file]->path, fqn, (unsigned long long)info->offset, what);
}

static enum sdc_status set_type(struct sdc_ckpt_entry *e, const struct sdc_torch_type *type,
                                struct sdc_error *err) {
    uint64_t shape[SDC_MAX_RANK + 1];
    if (type->components > 1 && e->desc.rank < SDC_MAX_RANK) {
        memcpy(shape, e->shape, e->desc.rank * sizeof *shape);
        shape[e->desc.rank] = type->components;
        SDC_TRY(sdc__entry_set_shape(e, e->name, e->desc.rank + 1, shape, err));
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "%s", type->text));
    }
    return type->known ? sdc__entry_set_dtype(e, type->dtype, err)
                       : sdc__entry_text(&e->dtype_text, err, "%s", type->text);
}

/* The one tensor of an archive as a box of the whole. */
static enum sdc_status add_box(struct sdc_ckpt *ckpt, struct sdc_ckpt_entry *e,
                               const struct sdc_dcp_info *info, const struct sdc_torch *t,
                               unsigned rank, uint64_t *begin, uint64_t *size,
                               struct sdc_error *err) {
    uint64_t dims[SDC_MAX_RANK + 1], strides[SDC_MAX_RANK + 1], n = 1;
    const struct sdc_torch_tensor *x = t->tensors;
    if (t->n != 1 || x->rank != rank || (rank && memcmp(x->shape, size, rank * sizeof *size) != 0))
        return wrong_chunk(ckpt, e->name, info, "holds no tensor of its sizes", err);
    for (unsigned i = 0; i < rank; i++)
        n *= size[i];
    if (n == 0)
        return SDC_OK;
    if (x->storage == SDC_TORCH_NOWHERE || !t->storages[x->storage].placed ||
        t->storages[x->storage].deflated) {
        e->unreadable = true;
        return sdc__entry_lock(e, err, "a chunk of it has no bytes as they are");
    }
    if (!e->desc.dtype_known && !e->dtype_text)
        SDC_TRY(set_type(e, &x->type, err));
    if (!e->desc.dtype_known)
        return SDC_OK;
    const struct sdc_torch_storage *s = &t->storages[x->storage];
    const bool first = e->n_pieces == 0;
    if (x->type.dtype != e->desc.dtype || (!first && x->big_endian != e->big_endian))
        return wrong_chunk(ckpt, e->name, info, "is of another type than the others", err);
    e->big_endian = x->big_endian;
    if (x->type.components > 1) { /* the box is of all components */
        begin[rank] = 0;
        size[rank] = x->type.components;
    }
    struct sdc_ckpt_piece piece = {.file = info->file,
                                   .bit = s->at * 8 + x->offset * x->type.bits,
                                   .dims = dims,
                                   .strides = strides,
                                   .begin = begin,
                                   .size = size};
    piece.n_dims = sdc__torch_layout(x, dims, strides);
    e->stored_size += n * x->type.bits / 8;
    return sdc__entry_piece(e, &piece, err);
}

static enum sdc_status add_chunk(struct sdc_dcp *d, struct sdc_ckpt_entry *e, const char *fqn,
                                 uint32_t chunk, unsigned rank, const uint64_t *shape,
                                 uint64_t *held, struct sdc_error *err) {
    uint64_t begin[SDC_MAX_RANK + 1], size[SDC_MAX_RANK + 1], n = 1;
    unsigned n_begin = 0, n_size = 0;
    uint32_t value, id;
    struct sdc_dcp_info info;
    if (!sdc__dcp_field(d->pk, chunk, "offsets", &value) ||
        !sdc__dcp_numbers(d->pk, value, begin, &n_begin) ||
        !sdc__dcp_field(d->pk, chunk, "sizes", &value) ||
        !sdc__dcp_numbers(d->pk, value, size, &n_size) || n_begin != rank || n_size != rank)
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: damaged metadata: a chunk is none",
                       d->ckpt->members[0]->path, fqn);
    for (unsigned i = 0; i < rank; i++) {
        if (!sdc__range_inside(begin[i], size[i], shape[i]))
            return SDC_ERR(err, SDC_INVALID,
                           "%s: tensor %s: out of bounds: a chunk of %llu from "
                           "%llu on in dimension %u of %llu",
                           d->ckpt->members[0]->path, fqn, (unsigned long long)size[i],
                           (unsigned long long)begin[i], i, (unsigned long long)shape[i]);
        n *= size[i]; /* at most the tensor's elements */
    }
    if (__builtin_add_overflow(*held, n, held))
        *held = UINT64_MAX;
    if (n == 0 || *held > e->desc.n_elems) /* nothing to read, or more than there can be */
        return SDC_OK;
    if (!sdc__dcp_find(d, fqn, rank, begin, &id))
        return SDC_ERR(err, SDC_INVALID, "%s: incomplete set: a chunk of tensor %s is in no file",
                       d->ckpt->members[0]->path, fqn);
    SDC_TRY(sdc__dcp_info(d, fqn, id, &info, err));
    if (info.transform[0]) {
        e->unreadable = true;
        return sdc__entry_lock(e, err, "its bytes are encoded (%s)", info.transform);
    }
    struct sdc_torch t = {.ckpt = d->ckpt};
    struct sdc_zip zip = SDC_ZIP_INIT;
    enum sdc_status st = read_blob(d->ckpt, &info, "", &t, &zip, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "tensor %s, chunk at byte %llu", fqn,
                         (unsigned long long)info.offset);
    if (st == SDC_OK)
        st = add_box(d->ckpt, e, &info, &t, rank, begin, size, err);
    if (st == SDC_OK)
        st = keep_blob(d->ckpt, &info, err);
    for (size_t i = 0; st == SDC_OK && i < t.n_storages; i++) {
        char *what = sdc__asprintf("%s, member %s of the chunk at byte %llu", fqn,
                                   zip.members[t.storages[i].zip_member].name,
                                   (unsigned long long)info.offset);
        st = !what ? SDC_NOMEM(err, d->ckpt->path)
             : t.storages[i].have
                 ? sdc__torch_zip_sum(d->ckpt, info.file, &zip.members[t.storages[i].zip_member],
                                      what, err)
                 : SDC_OK;
        sdc__free(what);
    }
    sdc__zip_release(&zip);
    sdc__torch_release(&t);
    return st;
}

/* ---- items ---- */

/* The path of a tensor in the state that was saved: "model/fc.weight" of "model.fc.weight". */
static enum sdc_status add_path(const struct sdc_dcp *d, struct sdc_ckpt_entry *e, uint32_t path,
                                struct sdc_error *err) {
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_pk_iter it = sdc__pk_items(d->pk, path);
    uint32_t item;
    int64_t i;
    enum sdc_status st = SDC_OK;
    while (sdc__pk_next(&it, &item)) {
        const char *text = sdc__pk_text(d->pk, item, NULL);
        if (b.len)
            sdc__buf_putc(&b, '/');
        if (text)
            sdc__buf_puts(&b, text);
        else if (sdc__pk_int(d->pk, item, &i))
            sdc__buf_printf(&b, "%lld", (long long)i);
    }
    if (b.failed)
        st = SDC_NOMEM(err, e->name);
    else if (b.len > 0 && b.len <= SDC_MAX_NAME && strcmp(b.data, e->name) != 0)
        st = sdc__entry_alias(e, b.data, err);
    sdc__buf_release(&b);
    return st;
}

static enum sdc_status add_tensor(struct sdc_dcp *d, const char *fqn, uint32_t item, uint32_t size,
                                  struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    uint64_t shape[SDC_MAX_RANK + 1], held = 0;
    unsigned rank;
    uint32_t chunks, chunk, dtype;
    struct sdc_torch_type type;
    if (!sdc__dcp_numbers(d->pk, size, shape, &rank))
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: damaged metadata: its size",
                       d->ckpt->members[0]->path, fqn);
    SDC_TRY(sdc__ckpt_add(d->ckpt, fqn, &e, err));
    SDC_TRY(sdc__entry_set_shape(e, d->ckpt->members[0]->path, rank, shape, err));
    const uint64_t n_elems = e->desc.n_elems; /* without the axis of components */
    if (sdc__dcp_field(d->pk, item, "properties", &dtype) &&
        (sdc__dcp_field(d->pk, dtype, "dtype", &chunk) ||
         (sdc__pk_state(d->pk, dtype, &chunk) && sdc__pk_at(d->pk, chunk, 0, &chunk))) &&
        sdc__torch_dtype(sdc__pk_global(d->pk, chunk), &type))
        SDC_TRY(set_type(e, &type, err));
    if (!sdc__dcp_field(d->pk, item, "chunks", &chunks))
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: damaged metadata: no chunks",
                       d->ckpt->members[0]->path, fqn);
    struct sdc_pk_iter it = sdc__pk_items(d->pk, chunks);
    while (sdc__pk_next(&it, &chunk))
        SDC_TRY(add_chunk(d, e, fqn, chunk, rank, shape, &held, err));
    if (!e->dtype_text)
        SDC_TRY(sdc__entry_text(&e->dtype_text, err, "unknown"));
    const unsigned long long n = sdc__pk_count(d->pk, chunks);
    SDC_TRY(sdc__entry_text(&e->storage, err, "%llu %s", n, n == 1 ? "chunk" : "chunks"));
    if (held != n_elems) {
        e->unreadable = true;
        SDC_TRY(sdc__entry_lock(
            e, err, held < n_elems ? "its chunks do not cover it" : "its chunks overlap"));
    }
    return SDC_OK;
}

/* An object that was saved beside the tensors; tensors inside it are listed under its name. */
static enum sdc_status add_object(struct sdc_dcp *d, const char *fqn, struct sdc_error *err) {
    struct sdc_dcp_info info;
    uint32_t id;
    const struct sdc_file *file;
    unsigned char head[4] = {0};
    if (!sdc__dcp_find(d, fqn, SDC_MAX_RANK + 1, NULL, &id))
        return SDC_ERR(err, SDC_INVALID, "%s: incomplete set: object %s is in no file",
                       d->ckpt->members[0]->path, fqn);
    SDC_TRY(sdc__dcp_info(d, fqn, id, &info, err));
    if (d->n_objects++ < SHOWN)
        sdc__buf_printf(&d->objects, "%s%.80s", d->n_objects > 1 ? ", " : "", fqn);
    SDC_TRY(sdc__ckpt_member(d->ckpt, info.file, &file, err));
    if (info.transform[0] || info.length < sizeof head)
        return SDC_OK;
    SDC_TRY(sdc__file_read(file, info.offset, head, sizeof head, err));
    if (memcmp(head, "PK\3\4", sizeof head) != 0)
        return SDC_OK;
    struct sdc_torch t = {.ckpt = d->ckpt, .tensor_name = fqn};
    struct sdc_zip zip = SDC_ZIP_INIT;
    enum sdc_status st = read_blob(d->ckpt, &info, fqn, &t, &zip, err);
    if (st == SDC_OK)
        st = sdc__torch_finish(&t, err);
    if (st == SDC_OK)
        st = keep_blob(d->ckpt, &info, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "object %s at byte %llu", fqn, (unsigned long long)info.offset);
    for (size_t i = 0; st == SDC_OK && i < t.n_storages; i++)
        if (t.storages[i].have)
            st = sdc__torch_zip_sum(d->ckpt, info.file, &zip.members[t.storages[i].zip_member],
                                    zip.members[t.storages[i].zip_member].name, err);
    sdc__zip_release(&zip);
    sdc__torch_release(&t);
    return st;
}

static enum sdc_status add_items(struct sdc_dcp *d, struct sdc_error *err) {
    struct sdc_pk_iter it = sdc__pk_items(d->pk, d->tensors);
    uint32_t key, item, size;
    while (sdc__pk_next_pair(&it, &key, &item)) {
        const char *fqn = sdc__pk_text(d->pk, key, NULL);
        if (!fqn)
            return SDC_ERR(err, SDC_INVALID, "%s: damaged metadata: a name that is no text",
                           d->ckpt->members[0]->path);
        if (sdc__dcp_field(d->pk, item, "size", &size))
            SDC_TRY(add_tensor(d, fqn, item, size, err));
        else
            SDC_TRY(add_object(d, fqn, err));
    }
    return SDC_OK;
}

/* Names by path, as the state had them before it was flattened. */
static enum sdc_status add_paths(struct sdc_dcp *d, struct sdc_error *err) {
    if (!d->has_planner || sdc__pk_kind(d->pk, d->planner) != SDC_PK_DICT)
        return SDC_OK;
    /* both dicts are in the order in which the items were added, as a rule */
    struct sdc_pk_iter it = sdc__pk_items(d->pk, d->planner);
    uint32_t key, path;
    size_t guess = 0;
    while (sdc__pk_next_pair(&it, &key, &path)) {
        const char *fqn = sdc__pk_text(d->pk, key, NULL);
        for (size_t k = 0; fqn && k < d->ckpt->n && k < 64; k++) {
            struct sdc_ckpt_entry *e = &d->ckpt->entries[(guess + k) % d->ckpt->n];
            if (strcmp(e->name, fqn) != 0)
                continue;
            SDC_TRY(add_path(d, e, path, err));
            guess += k + 1;
            break;
        }
    }
    return SDC_OK;
}

/* ---- opening ---- */

static enum sdc_status open_folder(struct sdc_dcp *d, const struct sdc_ckpt_source *source,
                                   struct sdc_error *err) {
    d->folder = source->is_folder ? sdc__strdup(source->path) : sdc__path_dir(source->path);
    char *path = d->folder ? sdc__path_join(d->folder, metadata) : NULL;
    enum sdc_status st = SDC_OK;
    if (!path)
        return SDC_NOMEM(err, source->path);
    if (!sdc__path_exists(path))
        st = SDC_ERR(err, SDC_INVALID, "%s: incomplete set: .metadata is missing%s", d->folder,
                     beside(d->folder, ".metadata.tmp")
                         ? ", there is .metadata.tmp: an unfinished save"
                         : "");
    else
        st = sdc__ckpt_add_member(d->ckpt, metadata, path, NULL, err);
    sdc__free(path);
    return st;
}

static enum sdc_status dcp_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                struct sdc_error *err) {
    struct sdc_dcp d = {.ckpt = ckpt, .objects = SDC_BUF_INIT};
    enum sdc_status st;
    ckpt->priv = sdc__calloc(1, sizeof(struct sdc_dcp_state));
    if (!ckpt->priv)
        return SDC_NOMEM(err, ckpt->path);
    SDC_TRY_OUT(st, open_folder(&d, source, err));
    SDC_TRY_OUT(st, sdc__ckpt_set_name(ckpt, d.folder, "", err));
    SDC_TRY_OUT(st, sdc__dcp_read_metadata(&d, err));
    SDC_TRY_OUT(st, add_items(&d, err));
    SDC_TRY_OUT(st, add_paths(&d, err));
    if (d.objects.failed)
        st = SDC_NOMEM(err, ckpt->path);
    else if (d.n_objects > 0)
        st = sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                                "%zu %s saved as Python objects, not as tensors: %s%s", d.n_objects,
                                d.n_objects == 1 ? "item was" : "items were", d.objects.data,
                                d.n_objects > SHOWN ? ", ..." : "");
out:
    sdc__buf_release(&d.objects);
    sdc__torch_release(&d.paths);
    sdc__free(d.slots);
    sdc__free(d.folder);
    sdc__pk_free(d.pk);
    return st;
}

/* Those of the other members of each archive: the pickle, the version and so on. */
static enum sdc_status dcp_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err) {
    const struct sdc_dcp_state *s = ckpt->priv;
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < s->n; i++) {
        const struct sdc_dcp_blob *b = &s->blobs[i];
        const struct sdc_file *file;
        struct sdc_zip zip = SDC_ZIP_INIT;
        SDC_TRY(sdc__ckpt_member(ckpt, b->file, &file, err));
        SDC_TRY(sdc__zip_open(file, b->offset, b->length, &zip, err));
        for (size_t k = 0; st == SDC_OK && k < zip.n; k++) {
            const char *rest = strchr(zip.members[k].name, '/');
            if (rest && strncmp(rest, "/data/", 6) == 0)
                continue;
            char *what = sdc__asprintf("member %s of the archive at byte %llu", zip.members[k].name,
                                       (unsigned long long)b->offset);
            st = what ? sdc__torch_zip_sum(ckpt, b->file, &zip.members[k], what, err)
                      : SDC_NOMEM(err, ckpt->path);
            sdc__free(what);
        }
        sdc__zip_release(&zip);
    }
    return st;
}

static void dcp_close(struct sdc_ckpt *ckpt) {
    struct sdc_dcp_state *s = ckpt->priv;
    if (s)
        sdc__free(s->blobs);
    sdc__free(s);
}

const struct sdc_ckpt_fmt_ops sdc__fmt_dcp = {
    .name = "pytorch-dcp",
    .summary = "PyTorch distributed checkpoint (folder of .metadata and .distcp files)",
    .is_set = true,
    .sniff = dcp_sniff,
    .open = dcp_open,
    .find_sums = dcp_find_sums,
    .close = dcp_close,
};
