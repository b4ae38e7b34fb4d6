/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's zip archives (torch.save since 1.6, TorchScript): NAME/data.pkl says which tensors
 * there are, NAME/data/KEY holds the bytes of a storage. Sources: pytorch 2.9,
 * torch/serialization.py, caffe2/serialize/inline_container.cc.
 *
 * torch.load looks at no CRC; other readers do. Storages that another tool deflated are read by
 * inflating, and changed by writing the archive anew.
 */
#include "ckpt/fmt/torch.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include "ckpt/zip_rewrite.h"
#include "io/flate.h"

#define PICKLE_LIMIT (UINT64_C(1024) * 1024 * 1024) /* bytes of a pickle that is deflated */
#define WHOLE_LIMIT  (UINT64_C(1024) * 1024 * 1024) /* of a storage that is held inflated */
#define LOOK         4096u                          /* bytes looked at where no CRC is known */

struct state {
    struct sdc_zip zip;
    /* the deflated storage that was read last: a stream, and all of it once elements are out of
     * order */
    size_t member;
    struct sdc_inflate *stream;
    unsigned char *whole;
    uint64_t whole_size;
};

/* Also behind a header of something else: this format is asked last. */
static bool torch_sniff(const struct sdc_ckpt_source *source) {
    static const unsigned char zip_head[] = {'P', 'K', 3, 4};
    const struct sdc_file *file = source->file;
    return file && file->size > 22 &&
           (sdc__zip_kind(file, source->head, source->n_head) == SDC_ZIP_TORCH ||
            sdc__zip_kind(file, zip_head, sizeof zip_head) == SDC_ZIP_TORCH);
}

/* ---- members ---- */

/* What follows the first '/', or NULL. */
static const char *inner(const char *name) {
    const char *slash = strchr(name, '/');
    return slash ? slash + 1 : NULL;
}

const struct sdc_zip_member *sdc__torch_zip_find(const struct sdc_zip *zip, const char *name) {
    for (size_t i = 0; i < zip->n; i++) {
        const char *rest = inner(zip->members[i].name);
        if (rest && strcmp(rest, name) == 0 && !zip->members[i].shadowed)
            return &zip->members[i];
    }
    return NULL;
}

enum sdc_status sdc__torch_zip_sum(struct sdc_ckpt *ckpt, unsigned file,
                                   const struct sdc_zip_member *m, const char *what,
                                   struct sdc_error *err) {
    struct sdc_ckpt_sum sum = {.kind = SDC_SUM_CRC32,
                               .what = what,
                               .file = file,
                               .offset = m->data,
                               .size = m->stored,
                               .deflated = m->method == SDC_ZIP_DEFLATED,
                               .inflated_size = m->size,
                               .n_places = m->n_crc_places,
                               .unknown = m->crc == 0 && m->size > 0};
    for (unsigned i = 0; i < m->n_crc_places; i++) {
        sum.places[i].file = file;
        sum.places[i].offset = m->crc_places[i];
    }
    if (m->size == 0 || (m->method != SDC_ZIP_STORED && m->method != SDC_ZIP_DEFLATED))
        return SDC_OK;
    return sdc__ckpt_add_sum(ckpt, &sum, err);
}

static enum sdc_status inflate_all(const struct sdc_file *file, const struct sdc_zip_member *m,
                                   uint64_t limit, unsigned char **data, struct sdc_error *err) {
    struct sdc_inflate *in = NULL;
    SDC_TRY(sdc__zip_check_inflated(m, limit, file->path, err));
    *data = sdc__alloc((size_t)m->size, 1);
    if (!*data)
        return SDC_NOMEM(err, m->name);
    enum sdc_status st = sdc__inflate_new(file, m->data, m->stored, &in, err);
    if (st == SDC_OK)
        st = sdc__inflate_read(in, *data, m->size, err);
    sdc__inflate_free(in);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s: member %s", file->path, m->name);
        sdc__free(*data);
        *data = NULL;
    }
    return st;
}

static enum sdc_status unsupported_method(const struct sdc_file *file,
                                          const struct sdc_zip_member *m, struct sdc_error *err) {
    return SDC_ERR(err, SDC_UNSUPPORTED, "%s: member %s: compression method %u", file->path,
                   m->name, m->method);
}

enum sdc_status sdc__torch_zip_pickle(const struct sdc_file *file, const struct sdc_zip_member *m,
                                      struct sdc_pk **pk, struct sdc_error *err) {
    struct sdc_pk_source source = {.file = file, .offset = m->data, .size = m->size};
    unsigned char *data = NULL;
    if (m->method == SDC_ZIP_DEFLATED) {
        SDC_TRY(inflate_all(file, m, PICKLE_LIMIT, &data, err));
        source = (struct sdc_pk_source){.memory = data, .size = m->size, .name = file->path};
    } else if (m->method != SDC_ZIP_STORED) {
        return unsupported_method(file, m, err);
    }
    enum sdc_status st = sdc__pk_parse(&source, pk, NULL, err);
    sdc__free(data);
    if (st != SDC_OK)
        sdc_error_prefix(err, "member %s", m->name);
    return st;
}

/* The record "byteorder": "little" or "big"; little where there is none. */
enum sdc_status sdc__torch_zip_order(const struct sdc_file *file, const struct sdc_zip *zip,
                                     bool *big_endian, struct sdc_error *err) {
    const struct sdc_zip_member *m = sdc__torch_zip_find(zip, "byteorder");
    char text[7] = "";
    *big_endian = false;
    if (!m)
        return SDC_OK;
    if (m->size > 6)
        return SDC_ERR_AT(err, SDC_INVALID, m->data, "%s: record byteorder: %llu bytes", file->path,
                          (unsigned long long)m->size);
    if (m->method == SDC_ZIP_DEFLATED) {
        unsigned char *data;
        SDC_TRY(inflate_all(file, m, 6, &data, err));
        memcpy(text, data, (size_t)m->size);
        sdc__free(data);
    } else if (m->method != SDC_ZIP_STORED) {
        return unsupported_method(file, m, err);
    } else {
        SDC_TRY(sdc__file_read(file, m->data, text, (size_t)m->size, err));
    }
    *big_endian = strcmp(text, "big") == 0;
    if (!*big_endian && strcmp(text, "little") != 0)
        return SDC_ERR_AT(err, SDC_INVALID, m->data,
                          "%s: record byteorder: expected \"little\" or \"big\"", file->path);
    return SDC_OK;
}

/* ---- storages ---- */

enum sdc_status sdc__torch_zip_place(struct sdc_torch *t, const struct sdc_file *file,
                                     unsigned index, const struct sdc_zip *zip, const char *folder,
                                     struct sdc_error *err) {
    struct sdc_buf name = SDC_BUF_INIT;
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < t->n_storages; i++) {
        struct sdc_torch_storage *s = &t->storages[i];
        sdc__buf_clear(&name);
        sdc__buf_printf(&name, "%s%s", folder, s->key);
        if (name.failed) {
            st = SDC_NOMEM(err, file->path);
            break;
        }
        const struct sdc_zip_member *m = sdc__zip_find(zip, name.data);
        s->why = "its storage is missing from the archive";
        if (!m)
            continue;
        s->have = m->size;
        s->file = index;
        s->zip_member = (size_t)(m - zip->members);
        s->deflated = m->method == SDC_ZIP_DEFLATED;
        s->at = s->deflated ? 0 : m->data;
        s->placed = s->deflated || m->method == SDC_ZIP_STORED;
        s->why = "its storage is compressed by a method that is unknown";
        if (s->have < s->size)
            st = SDC_ERR_AT(err, SDC_INVALID, m->data,
                            "%s: truncated: member %s has %llu bytes, the pickle says %llu",
                            file->path, m->name, (unsigned long long)s->have,
                            (unsigned long long)s->size);
        else if (s->deflated)
            st = sdc__zip_check_inflated(m, 0, file->path, err);
    }
    sdc__buf_release(&name);
    return st;
}

/* ---- notes ---- */

/* Members without a CRC: how many, and those that look like a place that was only reserved. */
static enum sdc_status note_unknown_sums(struct sdc_ckpt *ckpt, const struct sdc_zip *zip,
                                         struct sdc_error *err) {
    size_t n = 0, zeros = 0;
    const char *first = NULL;
    for (size_t i = 0; i < zip->n; i++) {
        const struct sdc_zip_member *m = &zip->members[i];
        unsigned char look[LOOK];
        if (m->crc != 0 || m->size == 0)
            continue;
        n++;
        size_t len = m->size < LOOK ? (size_t)m->size : LOOK, k = 0;
        const char *rest = inner(m->name);
        if (!rest || strncmp(rest, "data/", 5) != 0 || m->method != SDC_ZIP_STORED || n > 1000)
            continue;
        SDC_TRY(sdc__file_read(ckpt->file, m->data, look, len, err));
        while (k < len && look[k] == 0)
            k++;
        zeros += k == len;
        first = k == len && !first ? rest : first;
    }
    if (n > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                                   "%zu of %zu members have no checksum (stored as 0): neither "
                                   "checked nor mended",
                                   n, zip->n));
    if (zeros > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_INFO, err,
                                   "%zu storages without checksum begin with zeros only (%.80s): "
                                   "perhaps reserved by a writer that left the data out",
                                   zeros, first));
    return SDC_OK;
}

static enum sdc_status note_archive(struct sdc_ckpt *ckpt, const struct sdc_zip *zip,
                                    struct sdc_error *err) {
    if (zip->prefix > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%llu bytes before the archive, perhaps an earlier save: not "
                                   "looked at",
                                   (unsigned long long)zip->prefix));
    if (zip->trailing > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err, "%llu bytes after the archive",
                                   (unsigned long long)zip->trailing));
    if (zip->n_shadowed > 0)
        SDC_TRY(sdc__ckpt_add_note(ckpt, SDC_NOTE_WARNING, err,
                                   "%zu members are hidden by later ones of the same name",
                                   zip->n_shadowed));
    return note_unknown_sums(ckpt, zip, err);
}

/* ---- opening ---- */

/* One pickle of the archive, if it is there. */
static enum sdc_status read_pickle(struct sdc_torch *t, const struct sdc_zip *zip,
                                   const char *member, const char *prefix, struct sdc_error *err) {
    struct sdc_pk *pk = NULL;
    const struct sdc_zip_member *m = sdc__torch_zip_find(zip, member);
    if (!m)
        return SDC_OK;
    t->pickle_at = m->data;
    t->pickle_deflated = m->method != SDC_ZIP_STORED;
    enum sdc_status st = sdc__torch_zip_pickle(t->ckpt->file, m, &pk, err);
    if (st == SDC_OK)
        st = sdc__torch_walk(t, pk, prefix, err);
    if (st == SDC_OK)
        st = sdc__torch_note_globals(t->ckpt, pk, member, err);
    sdc__pk_free(pk);
    return st;
}

static enum sdc_status add_sums(struct sdc_ckpt *ckpt, const struct sdc_zip *zip,
                                struct sdc_error *err) {
    for (size_t i = 0; i < zip->n; i++) {
        const struct sdc_zip_member *m = &zip->members[i];
        char *what = sdc__asprintf("member %s", m->name);
        if (!what)
            return SDC_NOMEM(err, ckpt->path);
        enum sdc_status st = sdc__torch_zip_sum(ckpt, 0, m, what, err);
        sdc__free(what);
        if (st != SDC_OK)
            return st;
    }
    return SDC_OK;
}

static enum sdc_status torch_open(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                                  struct sdc_error *err) {
    (void)source;
    struct sdc_torch t = {.ckpt = ckpt};
    char *folder = NULL, *data = NULL;
    struct state *s = sdc__calloc(1, sizeof *s);
    if (!s)
        return SDC_NOMEM(err, ckpt->path);
    ckpt->priv = s;
    s->member = SIZE_MAX;
    SDC_TRY(sdc__zip_open(ckpt->file, 0, ckpt->file->size, &s->zip, err));
    enum sdc_status st = SDC_OK;
    const struct sdc_zip_member *pickle = sdc__torch_zip_find(&s->zip, "data.pkl");
    if (!pickle)
        return SDC_ERR(err, SDC_INVALID, "%s: no member data.pkl", ckpt->path);
    folder = sdc__strndup(pickle->name, (size_t)(inner(pickle->name) - pickle->name));
    data = folder ? sdc__asprintf("%sdata/", folder) : NULL;
    if (!data) {
        st = SDC_NOMEM(err, ckpt->path);
        goto out;
    }
    SDC_TRY_OUT(st, sdc__torch_zip_order(ckpt->file, &s->zip, &t.big_endian, err));
    SDC_TRY_OUT(st, read_pickle(&t, &s->zip, "data.pkl", "", err));
    const bool script = sdc__torch_zip_find(&s->zip, "constants.pkl") != NULL;
    SDC_TRY_OUT(st, sdc__torch_zip_place(&t, ckpt->file, 0, &s->zip, data, err));
    SDC_TRY_OUT(st, sdc__torch_finish(&t, err));
    SDC_TRY_OUT(st, add_sums(ckpt, &s->zip, err));
    SDC_TRY_OUT(st, note_archive(ckpt, &s->zip, err));
    if (script) { /* constants have keys of their own */
        struct sdc_torch c = {.ckpt = ckpt, .big_endian = t.big_endian};
        char *constants = sdc__asprintf("%sconstants/", folder);
        st = constants ? read_pickle(&c, &s->zip, "constants.pkl", "constants", err)
                       : SDC_NOMEM(err, ckpt->path);
        if (st == SDC_OK)
            st = sdc__torch_zip_place(&c, ckpt->file, 0, &s->zip, constants, err);
        if (st == SDC_OK)
            st = sdc__torch_finish(&c, err);
        sdc__free(constants);
        sdc__torch_release(&c);
    }
out:
    sdc__free(data);
    sdc__free(folder);
    sdc__torch_release(&t);
    return st;
}

/* ---- deflated storages ---- */

static void forget(struct state *s) {
    sdc__inflate_free(s->stream);
    sdc__free(s->whole);
    s->stream = NULL;
    s->whole = NULL;
    s->member = SIZE_MAX;
}

static void torch_close(struct sdc_ckpt *ckpt) {
    struct state *s = ckpt->priv;
    if (!s)
        return;
    forget(s);
    sdc__zip_release(&s->zip);
    sdc__free(s);
}

static uint64_t bit_of(const struct sdc_torch_layout *l, uint64_t elem) {
    uint64_t bit = l->bit;
    for (unsigned d = l->n_dims; d-- > 0;) {
        bit += elem % l->dims_strides[d] * l->dims_strides[l->n_dims + d];
        elem /= l->dims_strides[d];
    }
    return bit;
}

static bool in_order(const struct sdc_torch_layout *l, unsigned bits) {
    uint64_t step = bits;
    for (unsigned d = l->n_dims; d-- > 0; step *= l->dims_strides[d])
        if (l->dims_strides[d] > 1 && l->dims_strides[l->n_dims + d] != step)
            return false;
    return true;
}

/* n bytes from `at` on, which come after those read before or from the beginning. */
static enum sdc_status read_stream(struct sdc_ckpt *ckpt, size_t member, uint64_t at, uint64_t n,
                                   void *bytes, struct sdc_error *err) {
    struct state *s = ckpt->priv;
    const struct sdc_zip_member *m = &s->zip.members[member];
    if (s->member != member || !s->stream || sdc__inflate_at(s->stream) > at) {
        forget(s);
        SDC_TRY(sdc__inflate_new(ckpt->file, m->data, m->stored, &s->stream, err));
        s->member = member;
    }
    uint64_t from = sdc__inflate_at(s->stream);
    enum sdc_status st = at > from ? sdc__inflate_read(s->stream, NULL, at - from, err) : SDC_OK;
    if (st == SDC_OK)
        st = sdc__inflate_read(s->stream, bytes, n, err);
    if (st != SDC_OK) {
        sdc_error_prefix(err, "%s: member %s", ckpt->path, m->name);
        forget(s);
    }
    return st;
}

static enum sdc_status torch_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                  uint64_t first, uint64_t n, void *elements,
                                  struct sdc_error *err) {
    struct state *s = ckpt->priv;
    const struct sdc_torch_layout *l = e->layout;
    const unsigned bits = sdc_dtype_bits(e->desc.dtype), size = sdc_dtype_bytes(e->desc.dtype);
    unsigned char *to = elements;
    if (!l)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s: no storage", ckpt->path, e->name);
    if (bits >= 8 && in_order(l, bits))
        return read_stream(ckpt, l->zip_member, l->bit / 8 + first * size, n * size, to, err);
    if (s->member != l->zip_member || !s->whole) {
        forget(s);
        SDC_TRY(
            inflate_all(ckpt->file, &s->zip.members[l->zip_member], WHOLE_LIMIT, &s->whole, err));
        s->member = l->zip_member;
        s->whole_size = s->zip.members[l->zip_member].size;
    }
    for (uint64_t k = 0; k < n; k++, to += size) {
        const uint64_t bit = bit_of(l, first + k); /* inside: sdc__torch_check saw the last */
        if (!sdc__range_inside(bit / 8, size, s->whole_size))
            return SDC_ERR(err, SDC_INTERNAL, "%s: tensor %s: out of bounds", ckpt->path, e->name);
        if (bits < 8)
            *to = (unsigned char)((unsigned)s->whole[bit / 8] >> bit % 8 & ((1u << bits) - 1));
        else
            memcpy(to, s->whole + bit / 8, size);
    }
    return SDC_OK;
}

/* A change of an element's bytes. */
struct byte_edit {
    size_t member;
    uint64_t at;
    unsigned char mask, value; /* bits that are set anew */
};

static int by_place(const void *a, const void *b) {
    const struct byte_edit *x = a, *y = b;
    if (x->member != y->member)
        return x->member < y->member ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static size_t bytes_of_edit(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_edit *edit,
                            struct byte_edit *out) {
    const struct sdc_ckpt_entry *e = &ckpt->entries[edit->tensor];
    const struct sdc_torch_layout *l = e->layout;
    const unsigned bits = sdc_dtype_bits(e->desc.dtype);
    const uint64_t bit = bit_of(l, edit->elem);
    if (bits < 8) {
        const unsigned mask = (1u << bits) - 1;
        *out = (struct byte_edit){l->zip_member, bit / 8, (unsigned char)(mask << bit % 8),
                                  (unsigned char)((edit->raw & mask) << bit % 8)};
        return 1;
    }
    unsigned char bytes[8];
    sdc_num_store(e->desc.dtype, edit->raw, bytes, e->big_endian);
    for (unsigned i = 0; i < bits / 8; i++)
        out[i] = (struct byte_edit){l->zip_member, bit / 8 + i, 0xff, bytes[i]};
    return bits / 8;
}

/* Bytes of which only some bits change need the others. */
static enum sdc_status complete(struct sdc_ckpt *ckpt, struct byte_edit *b, size_t *n,
                                struct sdc_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) { /* several elements of a byte: one edit */
        if (kept > 0 && by_place(&b[kept - 1], &b[i]) == 0) {
            b[kept - 1].value = (unsigned char)((b[kept - 1].value & ~b[i].mask) | b[i].value);
            b[kept - 1].mask |= b[i].mask;
        } else {
            b[kept++] = b[i];
        }
    }
    for (size_t i = 0; i < kept; i++) {
        unsigned char old;
        if (b[i].mask == 0xff)
            continue;
        SDC_TRY(read_stream(ckpt, b[i].member, b[i].at, 1, &old, err));
        b[i].value = (unsigned char)((old & ~b[i].mask) | b[i].value);
    }
    *n = kept;
    return SDC_OK;
}

static enum sdc_status rewrite(struct sdc_ckpt *ckpt, const struct byte_edit *b, size_t n,
                               struct sdc_file *to, struct sdc_error *err) {
    struct state *s = ckpt->priv;
    enum sdc_status st = SDC_OK;
    size_t n_changes = 0;
    struct sdc_zip_patch *patches = sdc__calloc(n, sizeof *patches);
    struct sdc_zip_change *changes = sdc__calloc(n, sizeof *changes);
    if (!patches || !changes)
        st = SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; st == SDC_OK && i < n; i++) {
        patches[i] = (struct sdc_zip_patch){.at = b[i].at, .n = 1, .bytes = {b[i].value}};
        if (i == 0 || b[i - 1].member != b[i].member)
            changes[n_changes++] = (struct sdc_zip_change){
                .member = b[i].member, .patches = &patches[i], .keep_crc = ckpt->keep_sums};
        changes[n_changes - 1].n_patches++;
    }
    ckpt->n_kept_sums = ckpt->keep_sums ? n_changes : 0;
    if (st == SDC_OK)
        st = sdc__zip_rewrite(ckpt->file, &s->zip, changes, n_changes, to, err);
    sdc__free(patches);
    sdc__free(changes);
    return st;
}

static enum sdc_status torch_recode(struct sdc_ckpt *ckpt, unsigned member,
                                    const struct sdc_ckpt_edit *edits, size_t n,
                                    struct sdc_file *to, struct sdc_error *err) {
    (void)member;
    size_t n_bytes = 0;
    struct byte_edit *b = sdc__alloc(n, 8 * sizeof *b);
    if (!b)
        return SDC_NOMEM(err, ckpt->path);
    for (size_t i = 0; i < n; i++)
        n_bytes += bytes_of_edit(ckpt, &edits[i], b + n_bytes);
    if (n_bytes > 1)
        qsort(b, n_bytes, sizeof *b, by_place);
    enum sdc_status st = complete(ckpt, b, &n_bytes, err);
    if (st == SDC_OK && n_bytes > 0)
        st = rewrite(ckpt, b, n_bytes, to, err);
    sdc__free(b);
    return st;
}

const struct sdc_ckpt_fmt_ops sdc__fmt_torch = {
    .name = "pytorch",
    .summary = "PyTorch zip archive (.pt, .pth), TorchScript",
    .sniff = torch_sniff,
    .open = torch_open,
    .read = torch_read,
    .recode = torch_recode,
    .close = torch_close,
};
