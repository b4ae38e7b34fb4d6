/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's files before 1.6 (and of _use_new_zipfile_serialization=False): five pickles in a row
 * (magic number, protocol 1001, facts about the writer, the object, the list of storage keys), then
 * for each key a 64-bit count and the bytes. Nothing says where a storage begins but the sizes of
 * those before it. Source: pytorch 2.9, torch/serialization.py (_legacy_save, _legacy_load),
 * torch/csrc/serialization.cpp.
 *
 * Byte order: the writer's facts say what its machine was. Early versions wrote counts and elements
 * as the machine had them, later ones always in little-endian order; the counts, which are known
 * from the pickle, tell which it is.
 */
#include <string.h>

#include "base/alloc.h"
#include "ckpt/fmt/torch.h"

#define MAGIC    "0x1950a86a20f9469cfc6c"
#define VERSION  1001
#define TAR_SIGN 257 /* place of "ustar" in a tar archive */

static const unsigned char magic_bytes[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                            0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};

/* ---- recognising ---- */

/* The oldest kind: a tar archive of these members, of which any may be the first. */
static bool is_tar(const struct sdc_ckpt_source *source) {
    static const char *const members[] = {"sys_info", "storages", "tensors", "pickle"};
    char sign[5];
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        size_t len = strlen(members[i]) + 1;
        if (source->n_head >= len && memcmp(source->head, members[i], len) == 0)
            return source->file && source->file->size >= 512 &&
                   sdc__file_read(source->file, TAR_SIGN, sign, 5, NULL) == SDC_OK &&
                   memcmp(sign, "ustar", 5) == 0;
    }
    return false;
}

/* The magic number after PROTO and perhaps FRAME, or as protocol 1 writes it. */
static bool has_magic(const unsigned char *head, size_t n) {
    static const char line[] = "L119547037146038801333356L\n.";
    if (n >= sizeof line - 1 && memcmp(head, line, sizeof line - 1) == 0)
        return true;
    size_t at = n > 2 && head[0] == 0x80 ? 2 : n;
    if (at < n && head[at] == 0x95)
        at += 9;
    return n >= sizeof magic_bytes && at <= n - sizeof magic_bytes &&
           memcmp(head + at, magic_bytes, sizeof magic_bytes) == 0;
}

static bool legacy_sniff(const struct sdc_ckpt_source *source) {
    return source->file && (has_magic(source->head, source->n_head) || is_tar(source));
}

/* ---- pickles ---- */

static enum sdc_status next_pickle(const struct sdc_file *file, uint64_t *at, struct sdc_pk **pk,
                                   const char *what, struct sdc_error *err) {
    uint64_t used = 0;
    const struct sdc_pk_source source = {.file = file, .offset = *at, .size = file->size - *at};
    enum sdc_status st = sdc__pk_parse(&source, pk, &used, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", what);
    *at += used;
    return st;
}

/* The three before the object. declared_big: as the writer's facts say. */
static enum sdc_status read_front(const struct sdc_file *file, uint64_t *at, bool *declared_big,
                                  struct sdc_error *err) {
    struct sdc_pk *pk = NULL;
    uint32_t value;
    int64_t v = 0;
    SDC_TRY(next_pickle(file, at, &pk, "magic number", err));
    const char *text = sdc__pk_text(pk, sdc__pk_root(pk), NULL);
    bool good = text && (strcmp(text, MAGIC) == 0 || strcmp(text, "119547037146038801333356") == 0);
    sdc__pk_free(pk);
    if (!good)
        return SDC_ERR_AT(err, SDC_INVALID, 0, "%s: damaged magic number", file->path);
    SDC_TRY(next_pickle(file, at, &pk, "protocol", err));
    good = sdc__pk_int(pk, sdc__pk_root(pk), &v) && v == VERSION;
    sdc__pk_free(pk);
    if (!good)
        return SDC_ERR_AT(err, SDC_UNSUPPORTED, *at, "%s: protocol %lld, known is %d", file->path,
                          (long long)v, VERSION);
    SDC_TRY(next_pickle(file, at, &pk, "facts about the writer", err));
    v = 1;
    if (sdc__pk_get(pk, sdc__pk_root(pk), "little_endian", &value))
        (void)sdc__pk_int(pk, value, &v);
    *declared_big = v == 0;
    sdc__pk_free(pk);
    return SDC_OK;
}

/* ---- storages ---- */

static enum sdc_status cut_off(const struct sdc_file *file, const char *key, uint64_t i, uint64_t n,
                               struct sdc_error *err) {
    return SDC_ERR_AT(err, SDC_INVALID, file->size,
                      "%s: truncated at %llu bytes: storage %.80s is the first of %llu that is not "
                      "whole; %llu before it are",
                      file->path, (unsigned long long)file->size, key, (unsigned long long)n,
                      (unsigned long long)i);
}

/* Counts tell the byte order: -1 until one has that is not the same in both. */
static enum sdc_status place(struct sdc_torch *t, const char *key, uint64_t i, uint64_t n,
                             uint64_t *at, int *big, struct sdc_error *err) {
    const struct sdc_file *file = t->ckpt->file;
    unsigned char raw[8];
    size_t index;
    if (!sdc__torch_find_storage(t, key, &index))
        return SDC_ERR_AT(err, SDC_INVALID, *at,
                          "%s: storage %.80s is in the list of storages, but nowhere in the "
                          "object: its size is unknown",
                          file->path, key);
    struct sdc_torch_storage *s = &t->storages[index];
    if (!sdc__range_inside(*at, sizeof raw, file->size))
        return cut_off(file, key, i, n, err);
    SDC_TRY(sdc__file_read(file, *at, raw, sizeof raw, err));
    const uint64_t little = sdc_num_load(SDC_DTYPE_U64, raw, false);
    const uint64_t swapped = sdc_num_load(SDC_DTYPE_U64, raw, true);
    const bool as_little = little == s->numel && *big != 1;
    const bool as_big = swapped == s->numel && *big != 0;
    if (!as_little && !as_big)
        return SDC_ERR_AT(err, SDC_INVALID, *at,
                          "%s: storage %.80s: count %llu at byte %llu, the pickle says %llu",
                          file->path, key, (unsigned long long)little, (unsigned long long)*at,
                          (unsigned long long)s->numel);
    if (as_little != as_big)
        *big = as_big;
    *at += sizeof raw;
    if (!sdc__range_inside(*at, s->size, file->size))
        return cut_off(file, key, i, n, err);
    if (s->placed)
        return SDC_ERR_AT(err, SDC_INVALID, *at, "%s: storage %.80s occurs twice", file->path, key);
    s->placed = true;
    s->at = *at;
    s->have = s->size;
    *at += s->size;
    return SDC_OK;
}

static enum sdc_status place_all(struct sdc_torch *t, const struct sdc_pk *keys, uint64_t *at,
                                 bool declared_big, struct sdc_error *err) {
    const uint32_t list = sdc__pk_root(keys);
    const uint64_t n = sdc__pk_count(keys, list);
    struct sdc_pk_iter it = sdc__pk_items(keys, list);
    uint32_t item;
    int big = -1;
    if (sdc__pk_kind(keys, list) != SDC_PK_LIST)
        return SDC_ERR_AT(err, SDC_INVALID, *at, "%s: the list of storages is a %s", t->ckpt->path,
                          sdc__pk_kind_name(sdc__pk_kind(keys, list)));
    for (uint64_t i = 0; sdc__pk_next(&it, &item); i++) {
        const char *key = sdc__pk_text(keys, item, NULL);
        if (!key)
            return SDC_ERR_AT(err, SDC_INVALID, *at, "%s: a storage key that is no text",
                              t->ckpt->path);
        SDC_TRY(place(t, key, i, n, at, &big, err));
    }
    t->big_endian = big < 0 ? declared_big : big == 1;
    for (size_t i = 0; i < t->n; i++)
        if (t->tensors[i].storage != SDC_TORCH_NOWHERE)
            t->tensors[i].big_endian = t->big_endian;
    if (t->big_endian != declared_big)
        return sdc__ckpt_add_note(t->ckpt, SDC_NOTE_INFO, err,
                                  "written on a %s-endian machine, stored in %s-endian order",
                                  declared_big ? "big" : "little", declared_big ? "little" : "big");
    return SDC_OK;
}

/* What stands after the last storage. */
static enum sdc_status note_rest(struct sdc_ckpt *ckpt, uint64_t at, struct sdc_error *err) {
    unsigned char head[32];
    const uint64_t rest = ckpt->file->size - at;
    const size_t n = rest < sizeof head ? (size_t)rest : sizeof head;
    if (rest == 0)
        return SDC_OK;
    SDC_TRY(sdc__file_read(ckpt->file, at, head, n, err));
    return sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err, "%llu bytes after the last storage%s",
                              (unsigned long long)rest,
                              has_magic(head, n) ? ": another save, whose tensors are not listed"
                                                 : "");
}

static enum sdc_status legacy_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                   struct sdc_error *err) {
    struct sdc_torch t = {.ckpt = ckpt};
    struct sdc_pk *object = NULL, *keys = NULL;
    uint64_t at = 0;
    bool big = false;
    enum sdc_status st;
    if (is_tar(source))
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "%s: PyTorch's oldest format (a tar archive, 2016); load it and save it "
                       "again with torch.load and torch.save",
                       ckpt->path);
    SDC_TRY(read_front(ckpt->file, &at, &big, err));
    t.pickle_at = at;
    SDC_TRY_OUT(st, next_pickle(ckpt->file, &at, &object, "object", err));
    SDC_TRY_OUT(st, next_pickle(ckpt->file, &at, &keys, "list of storages", err));
    SDC_TRY_OUT(st, sdc__torch_walk(&t, object, "", err));
    SDC_TRY_OUT(st, sdc__torch_storages(&t, object, err));
    SDC_TRY_OUT(st, place_all(&t, keys, &at, big, err));
    SDC_TRY_OUT(st, sdc__torch_finish(&t, err));
    SDC_TRY_OUT(st, sdc__torch_note_globals(ckpt, object, "the object's pickle", err));
    st = note_rest(ckpt, at, err);
out:
    sdc__pk_free(object);
    sdc__pk_free(keys);
    sdc__torch_release(&t);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_torch_legacy = {
    .name = "pytorch-legacy",
    .summary = "PyTorch before 1.6, a stream of pickles and storages",
    .sniff = legacy_sniff,
    .open = legacy_open,
};
