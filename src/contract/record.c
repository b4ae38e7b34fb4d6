/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/record.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "contract/choice_text.h"
#include "contract/fields.h"
#include "contract/lines.h"
#include "contract/record_line.h"

#define SCHEMA "sdclab.record/1"

/* ---- words ---- */

static const char *const dtype_words[] = {
#define DTYPE_WORD(name, bits, kind, e, m) [SDC_DTYPE_##name] = #name,
    SDC_DTYPE_MAP(DTYPE_WORD)};
static const char *const part_words[] = {
#define PART_WORD(name, text) [SDC_PART_##name] = text,
    SDC_PART_MAP(PART_WORD)};
static const char *const role_words[] = {
#define ROLE_WORD(name, text) [SDC_ROLE_##name] = text,
    SDC_ROLE_MAP(ROLE_WORD)};

static const struct sdc__words dtypes = SDC__WORDS(dtype_words);
static const struct sdc__words parts = SDC__WORDS(part_words);
static const struct sdc__words roles = SDC__WORDS(role_words);
static const struct sdc__words ops = {sdc__op_words, SDC_OP_COUNT};

enum line_kind { HEADER, CHANGE, MENDED, VERIFIED };
static const char *const kind_words[] = {"header", "change", "mended", "verified"};
static const struct sdc__words kinds = SDC__WORDS(kind_words);

/* ---- tables ---- */

#define TYPE(word)                                                                                 \
    { "type", SDC__CONST, .flags = SDC__REQUIRED, .text = word }

#define ID(member) .offset = offsetof(struct sdc_file_identity, member), .flags = SDC__REQUIRED

static const struct sdc__field identity_fields[] = {
    {"size", SDC__U64, ID(size)},
    {"head", SDC__HEX64, ID(head)},
    {"tail", SDC__HEX64, ID(tail)},
    {"whole", SDC__HEX, .offset = offsetof(struct sdc_file_identity, whole),
     .flags = SDC__REQUIRED | SDC__NULLABLE,
     .count_offset = offsetof(struct sdc_file_identity, has_whole), .size = 16},
};
static const struct sdc__fields identity_table =
    SDC__FIELDS(identity_fields, struct sdc_file_identity);

#define SET_FILE(member) .offset = offsetof(struct sdc_record_file, member), .flags = SDC__REQUIRED

static const struct sdc__field file_fields[] = {
    {"name", SDC__TEXT, SET_FILE(name)},
    {"identity", SDC__OBJECT, SET_FILE(identity), .sub = &identity_table},
};
static const struct sdc__fields file_table = SDC__FIELDS(file_fields, struct sdc_record_file);

#define HEAD(member) .offset = offsetof(struct sdc_record_header, member), .flags = SDC__REQUIRED

static const struct sdc__field header_fields[] = {
    TYPE("header"),
    {"schema", SDC__CONST, .flags = SDC__REQUIRED, .text = SCHEMA},
    {"tool", SDC__TEXT, HEAD(tool)},
    {"seed", SDC__U64, HEAD(seed)},
    {"choice", SDC__CHOICE, HEAD(choice)},
    {"support_bits", SDC__U64, HEAD(support_bits)},
    {"removed_bits", SDC__U64, .offset = offsetof(struct sdc_record_header, removed_bits),
     .flags = SDC__OMIT},
    {"planned", SDC__U64, HEAD(planned)},
    {"elements", SDC__U64, .offset = offsetof(struct sdc_record_header, elements),
     .flags = SDC__OMIT},
    {"attempts", SDC__U64, .offset = offsetof(struct sdc_record_header, attempts),
     .flags = SDC__OMIT},
    {"happened", SDC__U64, .offset = offsetof(struct sdc_record_header, happened),
     .flags = SDC__OMIT},
    {"source", SDC__TEXT, HEAD(source)},
    {"file", SDC__TEXT, HEAD(file)},
    {"format", SDC__TEXT, HEAD(format)},
    {"identity", SDC__OBJECT, .offset = offsetof(struct sdc_record_header, identity),
     .flags = SDC__OMIT, .count_offset = offsetof(struct sdc_record_header, has_identity),
     .sub = &identity_table},
    {"files", SDC__OBJECTS, .offset = offsetof(struct sdc_record_header, files),
     .flags = SDC__OMIT | SDC__NULLABLE,
     .count_offset = offsetof(struct sdc_record_header, n_files), .sub = &file_table},
    {"after", SDC__OBJECT, .offset = offsetof(struct sdc_record_header, after), .flags = SDC__OMIT,
     .count_offset = offsetof(struct sdc_record_header, has_after), .sub = &identity_table},
    {"synced", SDC__BOOL, HEAD(synced)},
    {"origin", SDC__TEXT, .offset = offsetof(struct sdc_record_header, origin), .flags = SDC__OMIT},
};
static const struct sdc__fields header_table = SDC__FIELDS(header_fields, struct sdc_record_header);

/* A change as its line has it. */
struct change_line {
    struct sdc_record_change c;
    uint64_t *bits; /* numbers of the flipped or set bits, ascending */
    size_t n_bits;
    bool has_other;
    char *old_hex, *new_hex;     /* the file's bytes */
    char *old_value, *new_value; /* for people */
};

#define CHANGE_(member) .offset = offsetof(struct change_line, member), .flags = SDC__REQUIRED

static const struct sdc__field change_fields[] = {
    TYPE("change"),
    {"tensor", SDC__TEXT, CHANGE_(c.tensor)},
    {"dtype", SDC__ENUM, CHANGE_(c.dtype), .words = &dtypes},
    {"part", SDC__ENUM, CHANGE_(c.part), .words = &parts},
    {"role", SDC__ENUM, CHANGE_(c.role), .words = &roles},
    {"elem", SDC__U64, CHANGE_(c.elem)},
    {"index", SDC__TEXT, CHANGE_(c.index)},
    {"shape", SDC__U64S, .offset = offsetof(struct change_line, c.shape), .flags = SDC__OMIT,
     .count_offset = offsetof(struct change_line, c.n_shape), .max = SDC_MAX_RANK},
    {"file", SDC__TEXT, .offset = offsetof(struct change_line, c.file),
     .flags = SDC__OMIT | SDC__NULLABLE},
    {"offset", SDC__U64, CHANGE_(c.offset)},
    {"shift", SDC__U32, .offset = offsetof(struct change_line, c.shift), .flags = SDC__OMIT,
     .max = 7},
    {"big_endian", SDC__BOOL, CHANGE_(c.big_endian)},
    {"recoded", SDC__BOOL, .offset = offsetof(struct change_line, c.recoded), .flags = SDC__OMIT},
    {"op", SDC__ENUM, CHANGE_(c.op), .words = &ops},
    {"bits", SDC__U64S, .offset = offsetof(struct change_line, bits),
     .flags = SDC__REQUIRED | SDC__ASCENDING, .count_offset = offsetof(struct change_line, n_bits)},
    {"other", SDC__U64, .offset = offsetof(struct change_line, c.other), .flags = SDC__OMIT,
     .count_offset = offsetof(struct change_line, has_other)},
    {"weight", SDC__F64, .offset = offsetof(struct change_line, c.weight), .flags = SDC__OMIT},
    {"old", SDC__TEXT, CHANGE_(old_hex)},
    {"new", SDC__TEXT, CHANGE_(new_hex)},
    {"old_value", SDC__DECIMAL, CHANGE_(old_value)},
    {"new_value", SDC__DECIMAL, CHANGE_(new_value)},
};
static const struct sdc__fields change_table = SDC__FIELDS(change_fields, struct change_line);

struct mended_line {
    struct sdc_record_mended m;
    char *old_hex, *new_hex;
};

#define MENDED_(member) .offset = offsetof(struct mended_line, member), .flags = SDC__REQUIRED

static const struct sdc__field mended_fields[] = {
    TYPE("mended"),
    {"kind", SDC__TEXT, MENDED_(m.kind)},
    {"what", SDC__TEXT, MENDED_(m.what)},
    {"file", SDC__TEXT, .offset = offsetof(struct mended_line, m.file),
     .flags = SDC__OMIT | SDC__NULLABLE},
    {"offset", SDC__U64, MENDED_(m.offset)},
    {"old", SDC__TEXT, MENDED_(old_hex)},
    {"new", SDC__TEXT, MENDED_(new_hex)},
    {"was_wrong", SDC__BOOL, .offset = offsetof(struct mended_line, m.was_wrong),
     .flags = SDC__OMIT},
};
static const struct sdc__fields mended_table = SDC__FIELDS(mended_fields, struct mended_line);

struct verified_line {
    uint64_t elements, bits;
};

static const struct sdc__field verified_fields[] = {
    TYPE("verified"),
    {"elements", SDC__U64, .offset = offsetof(struct verified_line, elements),
     .flags = SDC__REQUIRED},
    {"bits", SDC__U64, .offset = offsetof(struct verified_line, bits), .flags = SDC__REQUIRED},
};
static const struct sdc__fields verified_table = SDC__FIELDS(verified_fields, struct verified_line);

/* ---- writing ---- */

enum sdc_status sdc_record_header_line(const struct sdc_record_header *h, char **line,
                                       struct sdc_error *err) {
    return sdc__fields_line(&header_table, "record header", h, line, err);
}

#define MAX_HEX 17 /* 8 bytes and NUL */

static void file_hex(const struct sdc_record_change *c, uint64_t raw, char text[MAX_HEX]) {
    unsigned char bytes[8];
    sdc_num_store(c->dtype, raw, bytes, c->big_endian);
    sdc__hex_encode(bytes, sdc_dtype_bytes(c->dtype), text);
}

enum sdc_status sdc__record_change_by_table(const struct sdc_record_change *c, char **line,
                                            struct sdc_error *err) {
    char old_hex[MAX_HEX], new_hex[MAX_HEX], old_value[64], new_value[64];
    uint64_t bits[64];
    struct change_line l = {.c = *c,
                            .bits = bits,
                            .has_other = c->op == SDC_OP_SWAP,
                            .old_hex = old_hex,
                            .new_hex = new_hex,
                            .old_value = old_value,
                            .new_value = new_value};
    for (unsigned b = 0; b < 64; b++)
        if (c->bits >> b & 1)
            bits[l.n_bits++] = b;
    file_hex(c, c->old_raw, old_hex);
    file_hex(c, c->new_raw, new_hex);
    sdc_num_text(c->dtype, c->old_raw, old_value, sizeof old_value);
    sdc_num_text(c->dtype, c->new_raw, new_value, sizeof new_value);
    return sdc__fields_line(&change_table, "record change", &l, line, err);
}

enum sdc_status sdc_record_mended_line(const struct sdc_record_mended *m, char **line,
                                       struct sdc_error *err) {
    char old_hex[MAX_HEX], new_hex[MAX_HEX];
    unsigned char bytes[4];
    const struct mended_line l = {.m = *m, .old_hex = old_hex, .new_hex = new_hex};
    sdc_num_store(SDC_DTYPE_U32, m->old_raw, bytes, false);
    sdc__hex_encode(bytes, sizeof bytes, old_hex);
    sdc_num_store(SDC_DTYPE_U32, m->new_raw, bytes, false);
    sdc__hex_encode(bytes, sizeof bytes, new_hex);
    return sdc__fields_line(&mended_table, "record mended", &l, line, err);
}

enum sdc_status sdc_record_verified_line(uint64_t n_verified, uint64_t n_bits, char **line,
                                         struct sdc_error *err) {
    struct verified_line l = {n_verified, n_bits};
    return sdc__fields_line(&verified_table, "record", &l, line, err);
}

/* ---- reading ---- */

void sdc_record_release(struct sdc_record *r) {
    sdc__fields_release(&header_table, &r->header);
    for (size_t i = 0; i < r->n_changes; i++) {
        sdc__free(r->changes[i].tensor);
        sdc__free(r->changes[i].index);
        sdc__free(r->changes[i].shape);
        sdc__free(r->changes[i].file);
    }
    sdc__free(r->changes);
    for (size_t i = 0; i < r->n_mended; i++) {
        sdc__free(r->mended[i].kind);
        sdc__free(r->mended[i].what);
        sdc__free(r->mended[i].file);
    }
    sdc__free(r->mended);
    *r = (struct sdc_record){0};
}

static enum sdc_status raw_of_hex(const struct sdc_record_change *c, const char *hex,
                                  const char *key, const char *what, uint64_t *raw,
                                  struct sdc_error *err) {
    unsigned char bytes[8];
    unsigned width = sdc_dtype_bytes(c->dtype);
    if (!sdc__hex_decode(hex, width, bytes))
        return SDC_ERR(err, SDC_INVALID,
                       "%s: %s: expected the %u hex digits of an %s, found '%.40s'", what, key,
                       2 * width, sdc_dtype_name(c->dtype), hex);
    *raw = sdc_num_load(c->dtype, bytes, c->big_endian);
    return SDC_OK;
}

static bool bits_lead_to_new(const struct sdc_record_change *c) {
    switch (c->op) {
    case SDC_OP_FLIP:
    case SDC_OP_MASK:
    case SDC_OP_BURST:
        return c->new_raw == (c->old_raw ^ c->bits);
    case SDC_OP_SET0:
        return c->new_raw == (c->old_raw & ~c->bits);
    case SDC_OP_SET1:
        return c->new_raw == (c->old_raw | c->bits);
    case SDC_OP_VALUE:
    case SDC_OP_SCALE:
    case SDC_OP_RANDOM:
    case SDC_OP_SWAP:
        break;
    }
    return c->bits == 0;
}

/* Whether a change's numbers agree with each other; *what: the key that does not. */
static bool agrees(const struct sdc_record_change *c, const char **key) {
    const unsigned width = sdc_dtype_bits(c->dtype);
    *key = "bits";
    if ((width < 64 && c->bits >> width) || !bits_lead_to_new(c))
        return false;
    *key = "shift";
    if (c->shift + width > (width < 8 ? 8 : 64) || (width >= 8 && c->shift > 0))
        return false;
    *key = "old or new";
    return width >= 8 || !((c->old_raw | c->new_raw) >> width);
}

/* The line's texts as raw values, and whether they agree with each other. */
static enum sdc_status understand(struct change_line *l, const char *what, struct sdc_error *err) {
    struct sdc_record_change *c = &l->c;
    const unsigned width = sdc_dtype_bits(c->dtype);
    const char *key;
    SDC_TRY(raw_of_hex(c, l->old_hex, "old", what, &c->old_raw, err));
    SDC_TRY(raw_of_hex(c, l->new_hex, "new", what, &c->new_raw, err));
    for (size_t i = 0; i < l->n_bits; i++) {
        if (l->bits[i] >= width)
            return SDC_ERR(err, SDC_INVALID, "%s: bits[%zu]: bit %llu of an %s, which has %u", what,
                           i, (unsigned long long)l->bits[i], sdc_dtype_name(c->dtype), width);
        c->bits |= (uint64_t)1 << l->bits[i];
    }
    if (!agrees(c, &key)) {
        if (strcmp(key, "bits") == 0)
            return SDC_ERR(err, SDC_INVALID, "%s: bits: do not lead from old '%s' to new '%s'",
                           what, l->old_hex, l->new_hex);
        if (strcmp(key, "shift") == 0)
            return SDC_ERR(err, SDC_INVALID, "%s: shift: %u for an %s", what, c->shift,
                           sdc_dtype_name(c->dtype));
        return SDC_ERR(err, SDC_INVALID, "%s: old or new: beyond the %u bits of %s", what, width,
                       sdc_dtype_name(c->dtype));
    }
    if (l->has_other != (c->op == SDC_OP_SWAP))
        return SDC_ERR(err, SDC_INVALID, "%s: other: expected with op swap only", what);
    return SDC_OK;
}

/* Takes over the texts and the shape of c. */
static enum sdc_status add_change(struct sdc_record *r, struct sdc_record_change *c,
                                  const char *what, struct sdc_error *err) {
    if ((r->n_changes & (r->n_changes + 1)) == 0) { /* 0, 1, 3, 7, ... */
        struct sdc_record_change *grown =
            sdc__realloc(r->changes, 2 * (r->n_changes + 1), sizeof *grown);
        if (!grown)
            return SDC_NOMEM(err, what);
        r->changes = grown;
    }
    r->changes[r->n_changes++] = *c;
    c->tensor = c->index = c->file = NULL;
    c->shape = NULL;
    c->n_shape = 0;
    return SDC_OK;
}

static enum sdc_status take_change(struct sdc_record *r, const struct sdc_json *root,
                                   const char *what, struct sdc_error *err) {
    struct change_line l = {0};
    enum sdc_status st = sdc__fields_read(&change_table, root, what, &l, err);
    if (st == SDC_OK)
        st = understand(&l, what, err);
    if (st == SDC_OK)
        st = add_change(r, &l.c, what, err);
    sdc__fields_release(&change_table, &l);
    return st;
}

static enum sdc_status mended_raw(const char *hex, const char *key, const char *what, uint32_t *raw,
                                  struct sdc_error *err) {
    unsigned char bytes[4];
    if (!sdc__hex_decode(hex, sizeof bytes, bytes))
        return SDC_ERR(err, SDC_INVALID, "%s: %s: expected 8 hex digits, found '%.40s'", what, key,
                       hex);
    *raw = (uint32_t)sdc_num_load(SDC_DTYPE_U32, bytes, false);
    return SDC_OK;
}

static enum sdc_status take_mended(struct sdc_record *r, const struct sdc_json *root,
                                   const char *what, struct sdc_error *err) {
    struct mended_line l = {0};
    enum sdc_status st = sdc__fields_read(&mended_table, root, what, &l, err);
    if (st == SDC_OK)
        st = mended_raw(l.old_hex, "old", what, &l.m.old_raw, err);
    if (st == SDC_OK)
        st = mended_raw(l.new_hex, "new", what, &l.m.new_raw, err);
    if (st == SDC_OK && (r->n_mended & (r->n_mended + 1)) == 0) { /* 0, 1, 3, 7, ... */
        struct sdc_record_mended *grown =
            sdc__realloc(r->mended, 2 * (r->n_mended + 1), sizeof *grown);
        if (grown)
            r->mended = grown;
        else
            st = SDC_NOMEM(err, what);
    }
    if (st == SDC_OK) {
        r->mended[r->n_mended++] = l.m;
        l.m = (struct sdc_record_mended){0};
    }
    sdc__fields_release(&mended_table, &l);
    return st;
}

struct record_reader {
    struct sdc_record *r;
    bool has_header;
    struct sdc_buf scratch;
};

static enum sdc_status take_kind(struct record_reader *reader, const struct sdc_json *root,
                                 const char *what, struct sdc_error *err) {
    struct sdc_record *r = reader->r;
    struct verified_line v;
    int kind;
    SDC_TRY(sdc__line_kind(root, what, &kinds, &kind, err));
    if (r->verified)
        return SDC_ERR(err, SDC_INVALID, "%s: nothing may follow the line 'verified'", what);
    if (reader->has_header != (kind != HEADER))
        return SDC_ERR(err, SDC_INVALID, "%s: expected %s, found '%s'", what,
                       reader->has_header ? "one header only" : "a header first", kind_words[kind]);
    switch (kind) {
    case HEADER:
        reader->has_header = true;
        SDC_TRY(sdc__fields_read(&header_table, root, what, &r->header, err));
        if (r->header.has_identity ? r->header.n_files > 0
                                   : r->header.n_files == 0 && r->header.planned > 0)
            return SDC_ERR(err, SDC_INVALID,
                           "%s: expected either identity (of a file) or files (of a set)", what);
        return SDC_OK;
    case CHANGE:
        return take_change(r, root, what, err);
    case MENDED:
        return take_mended(r, root, what, err);
    default:
        SDC_TRY(sdc__fields_read(&verified_table, root, what, &v, err));
        r->verified = true;
        r->n_verified = v.elements;
        r->n_bits = v.bits;
        return SDC_OK;
    }
}

static enum sdc_status take_line(void *user, const char *line, size_t len, const char *what,
                                 struct sdc_error *err) {
    struct record_reader *reader = user;
    struct sdc_json *root;
    struct sdc_record_change c;
    const char *key;
    if (reader->has_header && !reader->r->verified && len <= SDC_MAX_JSON_LINE &&
        sdc__record_change_scan(line, len, &reader->scratch, &c)) {
        enum sdc_status added = agrees(&c, &key) ? add_change(reader->r, &c, what, err) : SDC_OK;
        const bool taken = !c.tensor;
        sdc__free(c.tensor);
        sdc__free(c.index);
        sdc__free(c.shape);
        sdc__free(c.file);
        if (taken || added != SDC_OK)
            return added;
    }
    SDC_TRY(sdc__line_parse(line, len, what, &root, err));
    enum sdc_status st = take_kind(user, root, what, err);
    sdc__json_free(root);
    return st;
}

enum sdc_status sdc_record_read(const char *path, struct sdc_record *r, struct sdc_error *err) {
    struct sdc_record read = {0};
    struct record_reader reader = {.r = &read};
    bool whole;
    enum sdc_status st = sdc__lines_read(path, take_line, &reader, &whole, err);
    if (st == SDC_OK && !reader.has_header)
        st = SDC_ERR(err, SDC_INVALID, "%s: no alteration record: it has no header line", path);
    else if ((st == SDC_INVALID || st == SDC_LIMIT) && !reader.has_header)
        sdc_error_prefix(err, "%s: no alteration record", path);
    sdc__buf_release(&reader.scratch);
    if (st == SDC_OK)
        *r = read;
    else
        sdc_record_release(&read);
    return st;
}
