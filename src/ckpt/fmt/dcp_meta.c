/* SPDX-License-Identifier: Apache-2.0
 *
 * The file .metadata: a pickle of dataclasses. Sources: pytorch 2.9,
 * torch/distributed/checkpoint/metadata.py and filesystem.py.
 *
 *     Metadata(state_dict_metadata: {fqn: TensorStorageMetadata(properties, size,
 *                                         chunks: [ChunkStorageMetadata(offsets, sizes)])
 *                                    or BytesStorageMetadata},
 *              planner_data: {fqn: path},
 *              storage_data: {MetadataIndex(fqn, offset, index): _StorageInfo(relative_path,
 *                                         offset, length, transform_descriptors)})
 */
#include "ckpt/fmt/dcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/limits.h"

#define NO_OFFSETS (SDC_MAX_RANK + 1)

/* ---- dataclasses ---- */

bool sdc__dcp_field(const struct sdc_pk *pk, uint32_t object, const char *name, uint32_t *value) {
    uint32_t state, part;
    if (!sdc__pk_state(pk, object, &state))
        return false;
    if (sdc__pk_get(pk, state, name, value))
        return true;
    for (unsigned i = 0; i < 2; i++) /* (dict, slots) */
        if (sdc__pk_at(pk, state, i, &part) && sdc__pk_kind(pk, part) == SDC_PK_DICT &&
            sdc__pk_get(pk, part, name, value))
            return true;
    return false;
}

bool sdc__dcp_numbers(const struct sdc_pk *pk, uint32_t id, uint64_t *values, unsigned *n) {
    const char *callee = sdc__pk_callee(pk, id);
    uint32_t args, item;
    if (callee && strcmp(callee, "torch.Size") == 0 &&
        (!sdc__pk_args(pk, id, &args) || !sdc__pk_at(pk, args, 0, &id)))
        return false;
    if (sdc__pk_kind(pk, id) != SDC_PK_TUPLE && sdc__pk_kind(pk, id) != SDC_PK_LIST)
        return false;
    struct sdc_pk_iter it = sdc__pk_items(pk, id);
    for (*n = 0; sdc__pk_next(&it, &item); ++*n)
        if (*n == SDC_MAX_RANK || !sdc__pk_size(pk, item, &values[*n]))
            return false;
    return true;
}

/* ---- storage_data ---- */

static uint64_t hash_of(const char *fqn, unsigned rank, const uint64_t *offsets) {
    uint64_t parts[SDC_MAX_RANK + 2] = {sdc__xxh3_64(fqn, strlen(fqn)), rank};
    if (rank == NO_OFFSETS)
        rank = 0;
    if (rank)
        memcpy(parts + 2, offsets, rank * sizeof *offsets);
    return sdc__xxh3_64(parts, (rank + 2) * sizeof *parts);
}

/* A MetadataIndex; the field index does not count, as in its comparison. */
static bool read_index(const struct sdc_pk *pk, uint32_t key, const char **fqn, unsigned *rank,
                       uint64_t *offsets) {
    uint32_t value;
    if (!sdc__dcp_field(pk, key, "fqn", &value) || !(*fqn = sdc__pk_text(pk, value, NULL)))
        return false;
    *rank = NO_OFFSETS;
    if (!sdc__dcp_field(pk, key, "offset", &value) || sdc__pk_kind(pk, value) == SDC_PK_NONE)
        return true;
    return sdc__dcp_numbers(pk, value, offsets, rank);
}

static int by_hash(const void *a, const void *b) {
    const struct sdc_dcp_slot *x = a, *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

static enum sdc_status damaged(const struct sdc_dcp *d, const char *what, struct sdc_error *err) {
    return SDC_ERR(err, SDC_INVALID, "%s: damaged metadata: %s", d->ckpt->members[0]->path, what);
}

static enum sdc_status index_storage(struct sdc_dcp *d, struct sdc_error *err) {
    const uint64_t n = sdc__pk_count(d->pk, d->storage);
    struct sdc_pk_iter it = sdc__pk_items(d->pk, d->storage);
    uint32_t key, value;
    d->slots = sdc__alloc((size_t)n, sizeof *d->slots);
    if (!d->slots)
        return SDC_NOMEM(err, d->ckpt->path);
    while (sdc__pk_next_pair(&it, &key, &value)) {
        uint64_t offsets[SDC_MAX_RANK];
        unsigned rank;
        const char *fqn;
        if (!read_index(d->pk, key, &fqn, &rank, offsets))
            return damaged(d, "a key of storage_data is no MetadataIndex", err);
        d->slots[d->n_slots++] = (struct sdc_dcp_slot){hash_of(fqn, rank, offsets), key, value};
    }
    if (d->n_slots > 1)
        qsort(d->slots, d->n_slots, sizeof *d->slots, by_hash);
    return SDC_OK;
}

bool sdc__dcp_find(const struct sdc_dcp *d, const char *fqn, unsigned rank, const uint64_t *offsets,
                   uint32_t *info) {
    const uint64_t hash = hash_of(fqn, rank, offsets);
    size_t lo = 0, hi = d->n_slots;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->slots[mid].hash < hash)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < d->n_slots && d->slots[lo].hash == hash; lo++) {
        uint64_t have[SDC_MAX_RANK];
        unsigned n;
        const char *name;
        if (!read_index(d->pk, d->slots[lo].key, &name, &n, have) || n != rank ||
            strcmp(name, fqn) != 0 ||
            (n && n != NO_OFFSETS && memcmp(have, offsets, n * sizeof *have) != 0))
            continue;
        *info = d->slots[lo].value;
        return true;
    }
    return false;
}

/* ---- data files ---- */

static const char *path_of(const struct sdc_pk *pk, uint32_t info) {
    uint32_t value;
    return sdc__dcp_field(pk, info, "relative_path", &value) ? sdc__pk_text(pk, value, NULL) : NULL;
}

/* Each file that holds an item, once, in order of appearance. */
static enum sdc_status add_files(struct sdc_dcp *d, struct sdc_error *err) {
    struct sdc_pk_iter it = sdc__pk_items(d->pk, d->storage);
    uint32_t key, value;
    while (sdc__pk_next_pair(&it, &key, &value)) {
        size_t index, before = d->paths.n_storages;
        const char *name = path_of(d->pk, value);
        if (!name)
            return damaged(d, "an entry of storage_data names no file", err);
        SDC_TRY(sdc__torch_storage(&d->paths, name, 0, 1, &index, err));
        if (d->paths.n_storages == before)
            continue;
        char *path = sdc__path_join(d->folder, name);
        if (!path)
            return SDC_NOMEM(err, name);
        enum sdc_status st = sdc__ckpt_add_member(d->ckpt, name, path, NULL, err);
        sdc__free(path);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

enum sdc_status sdc__dcp_info(const struct sdc_dcp *d, const char *fqn, uint32_t id,
                              struct sdc_dcp_info *info, struct sdc_error *err) {
    const struct sdc_pk *pk = d->pk;
    uint32_t value, item;
    size_t index;
    const char *name = path_of(pk, id);
    *info = (struct sdc_dcp_info){0};
    if (!name || !sdc__torch_find_storage(&d->paths, name, &index) ||
        !sdc__dcp_field(pk, id, "offset", &value) || !sdc__pk_size(pk, value, &info->offset) ||
        !sdc__dcp_field(pk, id, "length", &value) || !sdc__pk_size(pk, value, &info->length))
        return damaged(d, "an entry of storage_data is no _StorageInfo", err);
    info->file = (unsigned)(1 + index);
    const struct sdc_ckpt_member *m = d->ckpt->members[info->file];
    if (!sdc__range_inside(info->offset, info->length, m->size))
        return SDC_ERR_AT(err, SDC_INVALID, info->offset,
                          "%s: truncated, or out of bounds: %s has %llu bytes at %llu, the file "
                          "has %llu",
                          m->path, fqn, (unsigned long long)info->length,
                          (unsigned long long)info->offset, (unsigned long long)m->size);
    if (sdc__dcp_field(pk, id, "transform_descriptors", &value) && sdc__pk_count(pk, value) > 0) {
        const char *text = sdc__pk_at(pk, value, 0, &item) ? sdc__pk_text(pk, item, NULL) : NULL;
        (void)snprintf(info->transform, sizeof info->transform, "%s", text ? text : "transform");
    }
    return SDC_OK;
}

/* ---- the whole ---- */

enum sdc_status sdc__dcp_read_metadata(struct sdc_dcp *d, struct sdc_error *err) {
    const struct sdc_file *file;
    SDC_TRY(sdc__ckpt_member(d->ckpt, 0, &file, err));
    const struct sdc_pk_source source = {.file = file, .size = file->size};
    uint64_t end;
    SDC_TRY(sdc__pk_parse(&source, &d->pk, &end, err));
    SDC_TRY(sdc__torch_note_globals(d->ckpt, d->pk, ".metadata", err));
    const uint32_t root = sdc__pk_root(d->pk);
    if (!sdc__dcp_field(d->pk, root, "state_dict_metadata", &d->tensors) ||
        sdc__pk_kind(d->pk, d->tensors) != SDC_PK_DICT)
        return damaged(d, "it has no state_dict_metadata", err);
    if (!sdc__dcp_field(d->pk, root, "storage_data", &d->storage) ||
        sdc__pk_kind(d->pk, d->storage) != SDC_PK_DICT)
        return damaged(d, "it has no storage_data", err);
    d->has_planner = sdc__dcp_field(d->pk, root, "planner_data", &d->planner);
    if (end < file->size)
        SDC_TRY(sdc__ckpt_add_note(d->ckpt, SDC_NOTE_WARNING, err,
                                   "%llu bytes after the pickle of .metadata",
                                   (unsigned long long)(file->size - end)));
    d->paths.ckpt = d->ckpt;
    SDC_TRY(index_storage(d, err));
    return add_files(d, err);
}
