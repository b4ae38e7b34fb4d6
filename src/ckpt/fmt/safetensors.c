/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: u64 little-endian N, N bytes of JSON, then the data buffer. As strict as the
 * reference reader (huggingface/safetensors, safetensors/src/tensor.rs, 0.4.5), whose rule is: sort
 * by offsets; the first begins at 0, each begins where the one before ends, each has the size its
 * type and shape say, and the file ends with the last. Stricter in one point: duplicate keys are
 * refused, as the format's text demands.
 */
#include "ckpt/fmt/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

#define BYTES 1 /* key2 of an entry that is NAME:bytes */

/* Every type that the reference reader (main branch, 2026) knows, with its bits. All but C64 and
 * those of 6 bits, of whose packing nothing is said, are ours by the same names. */
static const struct {
    const char *name;
    unsigned bits;
} types[] = {{"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},    {"U8", 8},
             {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
             {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
             {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
             {"I64", 64},        {"U64", 64}};

bool sdc__st_blank(unsigned char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool sdc__st_sniff(const unsigned char *head, size_t n_head) {
    size_t i = 8;
    while (i < n_head && sdc__st_blank(head[i]))
        i++;
    return i < n_head && head[i] == '{';
}

static bool st_sniff(const struct sdc_ckpt_source *source) {
    return sdc__st_sniff(source->head, source->n_head);
}

/* ---- one tensor of the header ---- */

static enum sdc_status get_offsets(const struct sdc_json *v, const char *where,
                                   struct sdc_st_tensor *t, struct sdc_error *err) {
    if (!v || sdc__json_type(v) != SDC_JSON_ARRAY || sdc__json_count(v) != 2)
        return SDC_ERR(err, SDC_INVALID, "%s: data_offsets: expected two integers", where);
    int64_t b, e;
    SDC_TRY(sdc__json_as_i64(sdc__json_at(v, 0), where, &b, err));
    SDC_TRY(sdc__json_as_i64(sdc__json_at(v, 1), where, &e, err));
    if (b < 0 || e < b)
        return SDC_ERR(err, SDC_INVALID, "%s: invalid offset: data_offsets [%lld,%lld]", where,
                       (long long)b, (long long)e);
    t->begin = (uint64_t)b;
    t->end = (uint64_t)e;
    return SDC_OK;
}

static enum sdc_status get_shape(const struct sdc_json *v, const char *where,
                                 struct sdc_st_tensor *t, struct sdc_error *err) {
    if (!v || sdc__json_type(v) != SDC_JSON_ARRAY)
        return SDC_ERR(err, SDC_INVALID, "%s: shape: expected an array of integers, found %s",
                       where, sdc__json_type_name(v));
    size_t rank = sdc__json_count(v);
    if (rank > SDC_MAX_RANK)
        return SDC_ERR(err, SDC_LIMIT, "%s: %zu dimensions, the limit is %d", where, rank,
                       SDC_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        int64_t size;
        SDC_TRY(sdc__json_as_i64(sdc__json_at(v, i), where, &size, err));
        if (size < 0)
            return SDC_ERR(err, SDC_INVALID, "%s: shape: size %lld", where, (long long)size);
        t->shape[i] = (uint64_t)size;
    }
    t->rank = (unsigned)rank;
    return SDC_OK;
}

/* A tensor that is not written as usual: with other keys, escapes or errors. */
static enum sdc_status get_tensor(const struct sdc_json *v, const char *path, const char *name,
                                  struct sdc_st_tensor *t, struct sdc_error *err) {
    const char *word;
    enum sdc_status st;
    char *where = sdc__asprintf("%s: tensor %s", path, name);
    if (!where)
        return SDC_NOMEM(err, path);
    if (sdc__json_type(v) != SDC_JSON_OBJECT) {
        st = SDC_ERR(err, SDC_INVALID, "%s: expected an object, found %s", where,
                     sdc__json_type_name(v));
        goto out;
    }
    SDC_TRY_OUT(st, sdc__json_as_str(sdc__json_get(v, "dtype"), where, &word, err));
    (void)snprintf(t->dtype, sizeof t->dtype, "%s", word);
    SDC_TRY_OUT(st, get_shape(sdc__json_get(v, "shape"), where, t, err));
    st = get_offsets(sdc__json_get(v, "data_offsets"), where, t, err);
out:
    sdc__free(where);
    return st;
}

static unsigned bits_of(const char *word) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, word) == 0)
            return types[i].bits;
    return 0;
}

/* Do shape and offsets agree with the type, if it is one that the reference reader knows? */
static enum sdc_status check_size(const struct sdc_st_tensor *t, const char *path, const char *name,
                                  struct sdc_error *err) {
    const unsigned bits = bits_of(t->dtype);
    uint64_t want = 1;
    for (unsigned i = 0; i < t->rank; i++)
        if (!sdc__mul_u64(&want, t->shape[i]))
            return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: overflow of the shape's product", path,
                           name);
    if (!bits) /* the list is declared open: size from the offsets, values unknown */
        return SDC_OK;
    if (!sdc__mul_u64(&want, bits))
        return SDC_ERR(err, SDC_INVALID, "%s: tensor %s: overflow of its size in bits", path, name);
    if (want % 8)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: tensor %s: misaligned slice: %llu bits do not fill bytes", path, name,
                       (unsigned long long)want);
    if (want / 8 != t->end - t->begin)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: tensor %s: shape and size differ: shape and type need %llu bytes, "
                       "data_offsets give %llu",
                       path, name, (unsigned long long)(want / 8),
                       (unsigned long long)(t->end - t->begin));
    return SDC_OK;
}

bool sdc__st_is_bytes(const struct sdc_ckpt_entry *e) {
    return e->key2 == BYTES;
}

/* Types whose values we do not know: what is stored can be altered all the same, as bytes. */
static enum sdc_status add_bytes(struct sdc_ckpt *ckpt, const char *name,
                                 const struct sdc_st_tensor *t, struct sdc_ckpt_entry **e,
                                 struct sdc_error *err) {
    const uint64_t size = t->end - t->begin;
    char *full = sdc__asprintf("%s:bytes", name);
    if (!full)
        return SDC_NOMEM(err, ckpt->path);
    enum sdc_status st = sdc__ckpt_add(ckpt, full, e, err);
    sdc__free(full);
    SDC_TRY(st);
    (*e)->key2 = BYTES;
    SDC_TRY(sdc__entry_set_shape(*e, ckpt->path, 1, &size, err));
    SDC_TRY(sdc__entry_set_dtype(*e, SDC_DTYPE_U8, err));
    SDC_TRY(sdc__entry_text(&(*e)->storage, err, "%s, as bytes", t->dtype));
    return name[0] ? SDC_OK : sdc__entry_lock(*e, err, "its name is empty");
}

/* Complex numbers are their components. */
static enum sdc_status add_plain(struct sdc_ckpt *ckpt, const char *name,
                                 const struct sdc_st_tensor *t, struct sdc_ckpt_entry **e,
                                 struct sdc_error *err) {
    const bool pairs = strcmp(t->dtype, "C64") == 0;
    uint64_t shape[SDC_MAX_RANK + 1];
    enum sdc_dtype dtype = SDC_DTYPE_F32;
    memcpy(shape, t->shape, sizeof t->shape);
    shape[t->rank] = 2;
    SDC_TRY(sdc__ckpt_add(ckpt, name, e, err));
    SDC_TRY(sdc__entry_set_shape(*e, ckpt->path, t->rank + pairs, shape, err));
    if (!pairs && !sdc_dtype_parse(t->dtype, &dtype))
        return SDC_ERR(err, SDC_INTERNAL, "no type %s", t->dtype);
    SDC_TRY(sdc__entry_text(&(*e)->dtype_text, err, "%s", t->dtype));
    SDC_TRY(sdc__entry_set_dtype(*e, dtype, err));
    return sdc__entry_text(&(*e)->storage, err, pairs ? "complex, contiguous" : "contiguous");
}

/* A type that the caller gives to a tensor of a type that is none of ours: one of whose elements as
 * many as the shape says fill its bytes. */
static bool type_given(const struct sdc_ckpt *ckpt, const char *name, const struct sdc_st_tensor *t,
                       enum sdc_dtype *dtype) {
    const uint64_t size = t->end - t->begin;
    uint64_t n = 1;
    for (unsigned i = 0; i < t->rank; i++)
        n *= t->shape[i]; /* no overflow: check_size */
    if (n == 0 || size > UINT64_MAX / 8 || size * 8 % n || size * 8 / n > 64)
        return false;
    return sdc__ckpt_as(ckpt, name, (unsigned)(size * 8 / n), dtype);
}

static enum sdc_status add_given(struct sdc_ckpt *ckpt, const char *name,
                                 const struct sdc_st_tensor *t, enum sdc_dtype dtype,
                                 struct sdc_ckpt_entry **e, struct sdc_error *err) {
    SDC_TRY(sdc__ckpt_add(ckpt, name, e, err));
    SDC_TRY(sdc__entry_set_shape(*e, ckpt->path, t->rank, t->shape, err));
    SDC_TRY(sdc__entry_text(&(*e)->dtype_text, err, "%s, taken as %s", t->dtype,
                            sdc_dtype_name(dtype)));
    SDC_TRY(sdc__entry_set_dtype(*e, dtype, err));
    return sdc__entry_text(&(*e)->storage, err, "contiguous");
}

static enum sdc_status add_tensor(struct sdc_ckpt *ckpt, const char *path, const char *name,
                                  const struct sdc_st_tensor *t, struct sdc_error *err) {
    struct sdc_ckpt_entry *e;
    enum sdc_dtype dtype;
    SDC_TRY(check_size(t, path, name, err));
    const unsigned bits = bits_of(t->dtype);
    if (bits && bits != 6)
        SDC_TRY(add_plain(ckpt, name, t, &e, err));
    else if (type_given(ckpt, name, t, &dtype))
        SDC_TRY(add_given(ckpt, name, t, dtype, &e, err));
    else
        SDC_TRY(add_bytes(ckpt, name, t, &e, err));
    e->key = t->begin;
    e->stored_size = t->end - t->begin;
    return SDC_OK;
}

static enum sdc_status check_metadata(const struct sdc_json *v, const char *path,
                                      struct sdc_error *err) {
    if (!v || sdc__json_type(v) != SDC_JSON_OBJECT) /* NULL: it is a tensor */
        return SDC_ERR(err, SDC_INVALID, "%s: __metadata__: expected texts, found %s", path,
                       v ? sdc__json_type_name(v) : "a tensor");
    for (const char *k = sdc__json_next_key(v, NULL); k; k = sdc__json_next_key(v, k))
        if (sdc__json_type(sdc__json_get(v, k)) != SDC_JSON_STRING)
            return SDC_ERR(err, SDC_INVALID, "%s: __metadata__: %s: expected a string, found %s",
                           path, k, sdc__json_type_name(sdc__json_get(v, k)));
    return SDC_OK;
}

/* torch/distributed/checkpoint/_hf_utils.py: each rank writes its parts, and where they belong. */
static enum sdc_status note_shard(struct sdc_ckpt *ckpt, const struct sdc_json *metadata,
                                  struct sdc_error *err) {
    if (ckpt->ops->is_set || !sdc__json_get(metadata, "DCP_SHARDING_INFO"))
        return SDC_OK;
    return sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                              "written by PyTorch's distributed checkpoints: its tensors may be "
                              "parts of larger ones, and are listed as they are in this file");
}

/* ---- the whole file ---- */

/* Empty tensors share their begin with the next one, so the end decides between equals. */
static int by_offsets(const void *a, const void *b) {
    const struct sdc_ckpt_entry *x = a, *y = b;
    uint64_t xe = x->key + x->stored_size, ye = y->key + y->stored_size;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (xe > ye) - (xe < ye);
}

/* "a, b and 3 more": the first few of n names, each cut to a width between two characters. */
static void list_names(const struct sdc_ckpt_entry *entries, size_t n, char *text, size_t size) {
    enum { SHOWN = 4, WIDTH = 40 };
    size_t used = 0;
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        const char *name = entries[i].name;
        size_t width = strnlen(name, WIDTH);
        while (width > 0 && ((unsigned char)name[width] & 0xc0) == 0x80)
            width--;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%.*s", i ? ", " : "", (int)width, name);
    }
    if (n > SHOWN)
        (void)snprintf(text + used, size - used, " and %zu more", n - SHOWN);
}

/* The first tensor that is not whole is `cut` of the entries from `first` on, sorted by place. */
static enum sdc_status cut_short(const struct sdc_ckpt *ckpt, size_t first, size_t cut,
                                 const struct sdc_file *f, uint64_t want, struct sdc_error *err) {
    char whole[256] = "none", rest[256];
    list_names(ckpt->entries + first, cut - first, whole, sizeof whole);
    list_names(ckpt->entries + cut, ckpt->n - cut, rest, sizeof rest);
    return SDC_ERR_AT(err, SDC_INVALID, f->size,
                      "%s: truncated: the header says %llu bytes, found %llu; %s is the first "
                      "tensor that is not whole (whole: %s; not whole: %s)",
                      f->path, (unsigned long long)want, (unsigned long long)f->size,
                      ckpt->entries[cut].name, whole, rest);
}

/* Of the entries from `first` on, which are those of this file. */
static enum sdc_status check_cover(struct sdc_ckpt *ckpt, size_t first, unsigned member,
                                   const struct sdc_file *f, uint64_t data, struct sdc_error *err) {
    const char *path = f->path;
    uint64_t at = 0, have = f->size - data;
    size_t cut = SIZE_MAX;
    bool sorted = true; /* as most writers do, and moving a million entries takes a while */
    for (size_t i = first + 1; i < ckpt->n && sorted; i++)
        sorted = by_offsets(&ckpt->entries[i - 1], &ckpt->entries[i]) <= 0;
    if (!sorted)
        qsort(ckpt->entries + first, ckpt->n - first, sizeof *ckpt->entries, by_offsets);
    for (size_t i = first; i < ckpt->n; i++) {
        struct sdc_ckpt_entry *e = &ckpt->entries[i];
        if (e->key != at)
            return SDC_ERR_AT(err, SDC_INVALID, data + at,
                              "%s: tensor %s: invalid offset: it begins at %llu of the data, the "
                              "one before it ends at %llu (%s)",
                              path, e->name, (unsigned long long)e->key, (unsigned long long)at,
                              e->key < at ? "overlap" : "hole");
        at = e->key + e->stored_size; /* both at most INT64_MAX */
        if (at > have && cut == SIZE_MAX)
            cut = i;
    }
    if (cut != SIZE_MAX)
        return cut_short(ckpt, first, cut, f, data + at, err);
    if (at < have)
        return SDC_ERR_AT(err, SDC_INVALID, data + at,
                          "%s: buffer not fully covered: %llu bytes after the last tensor", path,
                          (unsigned long long)(have - at));
    for (size_t i = first; i < ckpt->n; i++)
        if (ckpt->entries[i].desc.dtype_known)
            SDC_TRY(
                sdc__entry_contiguous(&ckpt->entries[i], member, data + ckpt->entries[i].key, err));
    return SDC_OK;
}

/* max: bytes of a header, 0 for the reference reader's limit. */
static enum sdc_status read_header(const struct sdc_file *f, uint64_t max, char **text,
                                   uint64_t *len, struct sdc_error *err) {
    unsigned char raw[8];
    if (max == 0)
        max = SDC_MAX_ST_HEADER;
    if (f->size < sizeof raw)
        return SDC_ERR(err, SDC_INVALID, "%s: header too small: the file has %llu bytes", f->path,
                       (unsigned long long)f->size);
    SDC_TRY(sdc__file_read(f, 0, raw, sizeof raw, err));
    *len = sdc_num_load(SDC_DTYPE_U64, raw, false);
    if (*len > max)
        return SDC_ERR_AT(err, SDC_LIMIT, 0,
                          "%s: header too large: %llu bytes, over the %s limit of %llu; "
                          "--max-header sets another",
                          f->path, (unsigned long long)*len,
                          max == SDC_MAX_ST_HEADER ? "reference reader's" : "given",
                          (unsigned long long)max);
    if (*len > f->size - sizeof raw)
        return SDC_ERR_AT(err, SDC_INVALID, 0,
                          "%s: invalid header length: %llu bytes, the file has %llu after it; "
                          "truncated?",
                          f->path, (unsigned long long)*len,
                          (unsigned long long)(f->size - sizeof raw));
    *text = sdc__alloc((size_t)*len, 1);
    if (!*text)
        return SDC_NOMEM(err, f->path);
    SDC_TRY(sdc__file_read(f, sizeof raw, *text, (size_t)*len, err));
    if (!sdc__utf8_valid(*text, (size_t)*len))
        return SDC_ERR_AT(err, SDC_INVALID, sizeof raw, "%s: the header is not UTF-8", f->path);
    return SDC_OK;
}

/* ---- names ---- */

struct hashed {
    uint64_t hash;
    const char *name;
};

static int by_hash(const void *a, const void *b) {
    const struct hashed *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : strcmp(x->name, y->name);
}

/* No name twice among the entries from `first` on. Sorted by hash, which compares faster. */
static enum sdc_status check_names(const struct sdc_ckpt *ckpt, size_t first, const char *path,
                                   struct sdc_error *err) {
    const size_t n = ckpt->n - first;
    enum sdc_status st = SDC_OK;
    struct hashed *names = sdc__alloc(n, sizeof *names);
    if (!names)
        return SDC_NOMEM(err, path);
    for (size_t i = 0; i < n; i++) {
        const char *name = ckpt->entries[first + i].name;
        names[i] = (struct hashed){sdc__xxh3_64(name, strlen(name)), name};
    }
    if (n > 1)
        qsort(names, n, sizeof *names, by_hash);
    for (size_t i = 1; i < n && st == SDC_OK; i++)
        if (by_hash(&names[i - 1], &names[i]) == 0)
            st = SDC_ERR(err, SDC_INVALID, "%s: tensor %s: a duplicate key in the header", path,
                         names[i].name);
    sdc__free(names);
    return st;
}

struct reading {
    struct sdc_ckpt *ckpt;
    const char *path;
    bool metadata;
};

static enum sdc_status visit(void *user, const char *key, const struct sdc_st_tensor *tensor,
                             const struct sdc_json *value, struct sdc_error *err) {
    struct reading *r = user;
    struct sdc_st_tensor t;
    if (strcmp(key, "__metadata__") == 0) {
        if (r->metadata)
            return SDC_ERR(err, SDC_INVALID, "%s: __metadata__: a duplicate key in the header",
                           r->path);
        r->metadata = true;
        SDC_TRY(check_metadata(value, r->path, err));
        return note_shard(r->ckpt, value, err);
    }
    if (!tensor) {
        SDC_TRY(get_tensor(value, r->path, key, &t, err));
        tensor = &t;
    }
    return add_tensor(r->ckpt, r->path, key, tensor, err);
}

enum sdc_status sdc__st_read(struct sdc_ckpt *ckpt, unsigned member, const struct sdc_file *f,
                             struct sdc_error *err) {
    enum sdc_status st;
    char *text = NULL;
    uint64_t len = 0;
    const size_t first = ckpt->n;
    struct reading r = {.ckpt = ckpt, .path = f->path};
    SDC_TRY_OUT(st, read_header(f, ckpt->options->max_header, &text, &len, err));
    SDC_TRY_OUT(st, sdc__st_walk(text, (size_t)len, f->path, visit, &r, err));
    SDC_TRY_OUT(st, check_names(ckpt, first, f->path, err));
    st = check_cover(ckpt, first, member, f, 8 + len, err);
out:
    sdc__free(text);
    return st;
}

static enum sdc_status st_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                               struct sdc_error *err) {
    (void)source;
    return sdc__st_read(ckpt, 0, ckpt->file, err);
}

const struct sdc_ckpt_fmt_ops sdc__fmt_safetensors = {
    .name = "safetensors",
    .summary = "Hugging Face safetensors",
    .sniff = st_sniff,
    .open = st_open,
};
