/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/sstable.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "ckpt/fmt.h"
#include "ckpt/proto.h"

#define MAGIC UINT64_C(0xdb4775248b80fb57)

struct handle {
    uint64_t offset, size;
};

static uint32_t load_u32(const unsigned char *p) {
    return (uint32_t)sdc_num_load(SDC_DTYPE_U32, p, false);
}

bool sdc__sst_is(const struct sdc_file *file) {
    unsigned char magic[8];
    return file->size >= SDC_SST_FOOTER &&
           sdc__file_read(file, file->size - 8, magic, sizeof magic, NULL) == SDC_OK &&
           sdc_num_load(SDC_DTYPE_U64, magic, false) == MAGIC;
}

static bool get_handle(const unsigned char *data, size_t len, size_t *at, struct handle *h) {
    return sdc__varint(data, len, at, 10, &h->offset) && sdc__varint(data, len, at, 10, &h->size);
}

/* ---- one block ---- */

/* Room for one more element; NULL: no memory, the old block stays. */
static void *grow(void *p, size_t n, size_t *cap, size_t size) {
    if (n < *cap)
        return p;
    size_t more = *cap ? 2 * *cap : 8;
    void *q = sdc__realloc(p, more, size);
    if (q)
        *cap = more;
    return q;
}

/* Reads and, where need be, unpacks; *text is fresh memory. Adds it to the list of blocks. */
static enum sdc_status load_block(const struct sdc_file *f, struct sdc_sst *sst, struct handle h,
                                  const char *what, unsigned char **text, size_t *len,
                                  struct sdc_error *err) {
    enum sdc_status st;
    uint64_t room = f->size - SDC_SST_FOOTER;
    if (room < SDC_SST_TRAILER || !sdc__range_inside(h.offset, h.size, room - SDC_SST_TRAILER))
        return SDC_ERR(err, SDC_INVALID,
                       "%s: bounds: the %s is said to have %llu bytes at %llu, before the footer "
                       "are %llu",
                       f->path, what, (unsigned long long)h.size, (unsigned long long)h.offset,
                       (unsigned long long)room);
    if (h.size > SDC_MAX_SST_BLOCK)
        return SDC_ERR_AT(err, SDC_LIMIT, h.offset, "%s: a %s of %llu bytes, the limit is %u",
                          f->path, what, (unsigned long long)h.size, SDC_MAX_SST_BLOCK);
    struct sdc_sst_block *more = grow(sst->blocks, sst->n_blocks, &sst->cap, sizeof *more);
    if (!more)
        return SDC_NOMEM(err, f->path);
    sst->blocks = more;
    unsigned char *raw = sdc__alloc((size_t)h.size + 1, 1);
    if (!raw)
        return SDC_NOMEM(err, f->path);
    SDC_TRY_OUT(st, sdc__file_read(f, h.offset, raw, (size_t)h.size + 1, err));
    unsigned type = raw[h.size];
    if (type > 1) {
        st = SDC_ERR_AT(err, SDC_INVALID, h.offset + h.size,
                        "%s: the %s at %llu has type %u, expected 0 (plain) or 1 (snappy)", f->path,
                        what, (unsigned long long)h.offset, type);
        goto out;
    }
    sst->blocks[sst->n_blocks++] = (struct sdc_sst_block){
        .offset = h.offset, .size = h.size, .snappy = type == 1, .what = what};
    *text = raw;
    *len = (size_t)h.size;
    if (type == 0)
        return SDC_OK;
    /* the densest snappy can be is copies of 64 bytes in 3 (a shorter block needs no limit) */
    uint64_t limit = h.size * 22 + 64;
    if (!sdc__snappy_unpack(raw, (size_t)h.size,
                            limit < SDC_MAX_SST_BLOCK ? (size_t)limit : SDC_MAX_SST_BLOCK, text,
                            len))
        st = SDC_ERR_AT(err, SDC_INVALID, h.offset, "%s: the %s at %llu is not valid snappy",
                        f->path, what, (unsigned long long)h.offset);
out:
    sdc__free(raw);
    return st;
}

/* Walks the entries of a block. Every key is rebuilt in `key`. */
struct walk {
    const unsigned char *text;
    size_t end; /* of the entries */
    size_t at;
    unsigned char *key; /* of the entry */
    size_t key_len, key_cap;
    size_t value_at, value_len;
};

/* False if the block's end is not restarts and their number. */
static bool walk_begin(struct walk *w, const unsigned char *text, size_t len) {
    *w = (struct walk){.text = text};
    if (len < 4)
        return false;
    uint32_t n = load_u32(text + len - 4);
    if (n > (len - 4) / 4)
        return false;
    w->end = len - 4 - 4 * (size_t)n;
    return true;
}

enum step { STEP_ENTRY, STEP_END, STEP_BAD, STEP_NO_MEMORY };

static enum step walk_next(struct walk *w) {
    uint64_t shared, unshared, value;
    size_t at = w->at;
    if (at == w->end)
        return STEP_END;
    if (!sdc__varint(w->text, w->end, &at, 5, &shared) ||
        !sdc__varint(w->text, w->end, &at, 5, &unshared) ||
        !sdc__varint(w->text, w->end, &at, 5, &value) || shared > w->key_len ||
        unshared > w->end - at || value > w->end - at - unshared)
        return STEP_BAD;
    size_t len = (size_t)(shared + unshared); /* both at most the block's size */
    if (len + 1 > w->key_cap) {
        unsigned char *k = sdc__realloc(w->key, 2 * len + 16, 1);
        if (!k)
            return STEP_NO_MEMORY;
        w->key = k;
        w->key_cap = 2 * len + 16;
    }
    memcpy(w->key + shared, w->text + at, (size_t)unshared);
    w->key_len = len;
    w->value_at = at + (size_t)unshared;
    w->value_len = (size_t)value;
    w->at = w->value_at + w->value_len;
    return STEP_ENTRY;
}

static enum sdc_status bad_block(const struct sdc_file *f, const struct sdc_sst_block *b,
                                 enum step r, struct sdc_error *err) {
    if (r == STEP_NO_MEMORY)
        return SDC_NOMEM(err, f->path);
    return SDC_ERR_AT(err, SDC_INVALID, b->offset,
                      "%s: the %s at %llu is damaged: its entries do not fill it", f->path, b->what,
                      (unsigned long long)b->offset);
}

/* ---- all entries ---- */

static int compare(const void *a, size_t na, const void *b, size_t nb) {
    size_t n = na < nb ? na : nb;
    int c = n ? memcmp(a, b, n) : 0;
    return c ? c : (na > nb) - (na < nb);
}

static enum sdc_status keep_entry(const struct sdc_file *f, struct sdc_sst *sst,
                                  const struct walk *w, struct sdc_error *err) {
    const struct sdc_sst_block *b = &sst->blocks[sst->n_blocks - 1];
    if (sst->n > 0) {
        const struct sdc_sst_entry *last = &sst->entries[sst->n - 1];
        if (compare(last->key, last->key_len, w->key, w->key_len) >= 0)
            return SDC_ERR_AT(err, SDC_INVALID, b->offset,
                              "%s: the keys in the block at %llu do not ascend", f->path,
                              (unsigned long long)b->offset);
    }
    if (sst->n == SDC_MAX_TENSORS)
        return SDC_ERR(err, SDC_LIMIT, "%s: over %d entries", f->path, SDC_MAX_TENSORS);
    struct sdc_sst_entry *more = grow(sst->entries, sst->n, &sst->cap_entries, sizeof *more);
    if (!more)
        return SDC_NOMEM(err, f->path);
    sst->entries = more;
    char *key = sdc__alloc(w->key_len + 1, 1);
    if (!key)
        return SDC_NOMEM(err, f->path);
    memcpy(key, w->key, w->key_len);
    key[w->key_len] = '\0';
    sst->entries[sst->n++] = (struct sdc_sst_entry){
        .key = key,
        .key_len = w->key_len,
        .value = w->text + w->value_at,
        .value_len = w->value_len,
        .value_offset = b->snappy ? UINT64_MAX : b->offset + w->value_at,
        .block = sst->n_blocks - 1,
    };
    return SDC_OK;
}

static enum sdc_status read_data_block(const struct sdc_file *f, struct sdc_sst *sst,
                                       struct handle h, struct sdc_error *err) {
    unsigned char *text = NULL;
    size_t len = 0;
    struct walk w = {0};
    enum sdc_status st = SDC_OK;
    SDC_TRY(load_block(f, sst, h, "data block", &text, &len, err));
    sst->texts[sst->n_texts++] = text; /* room was made for as many as the index has */
    if (!walk_begin(&w, text, len))
        return bad_block(f, &sst->blocks[sst->n_blocks - 1], STEP_BAD, err);
    enum step r;
    while (st == SDC_OK && (r = walk_next(&w)) != STEP_END)
        st = r == STEP_ENTRY ? keep_entry(f, sst, &w, err)
                             : bad_block(f, &sst->blocks[sst->n_blocks - 1], r, err);
    sdc__free(w.key);
    return st;
}

/* Data blocks follow each other without overlap, so that a small file cannot claim much. */
static enum sdc_status read_index(const struct sdc_file *f, struct sdc_sst *sst, struct handle h,
                                  struct sdc_error *err) {
    unsigned char *text = NULL;
    size_t len = 0, cap = 0;
    uint64_t end = 0;
    struct walk w = {0};
    enum sdc_status st;
    SDC_TRY(load_block(f, sst, h, "index block", &text, &len, err));
    struct sdc_sst_block index = sst->blocks[sst->n_blocks - 1];
    if (!walk_begin(&w, text, len)) {
        st = bad_block(f, &index, STEP_BAD, err);
        goto out;
    }
    st = SDC_OK;
    for (;;) {
        struct handle d;
        enum step r = walk_next(&w);
        if (r == STEP_END)
            break;
        size_t at = w.value_at;
        if (r == STEP_ENTRY && !get_handle(w.text, w.value_at + w.value_len, &at, &d))
            r = STEP_BAD;
        if (r == STEP_ENTRY && d.offset < end)
            r = STEP_BAD;
        if (r != STEP_ENTRY) {
            st = bad_block(f, &index, r, err);
            goto out;
        }
        unsigned char **more = grow(sst->texts, sst->n_texts, &cap, sizeof *more);
        if (!more) {
            st = SDC_NOMEM(err, f->path);
            goto out;
        }
        sst->texts = more;
        SDC_TRY_OUT(st, read_data_block(f, sst, d, err));
        end = d.offset + d.size; /* inside the file, as load_block saw */
    }
out:
    sdc__free(w.key);
    sdc__free(text);
    return st;
}

static enum sdc_status read_table(const struct sdc_file *f, struct sdc_sst *sst,
                                  struct sdc_error *err) {
    unsigned char footer[SDC_SST_FOOTER], *text = NULL;
    struct handle meta, index;
    size_t at = 0, len = 0;
    if (f->size < sizeof footer)
        return SDC_ERR(err, SDC_INVALID,
                       "%s: truncated: %llu bytes, a table's footer alone has %zu", f->path,
                       (unsigned long long)f->size, sizeof footer);
    SDC_TRY(sdc__file_read(f, f->size - sizeof footer, footer, sizeof footer, err));
    if (sdc_num_load(SDC_DTYPE_U64, footer + 40, false) != MAGIC)
        return SDC_ERR_AT(err, SDC_INVALID, f->size - 8,
                          "%s: not a table: its last 8 bytes are not a table's magic number; "
                          "truncated?",
                          f->path);
    if (!get_handle(footer, 40, &at, &meta) || !get_handle(footer, 40, &at, &index))
        return SDC_ERR_AT(err, SDC_INVALID, f->size - sizeof footer, "%s: the footer is damaged",
                          f->path);
    SDC_TRY(load_block(f, sst, meta, "metaindex block", &text, &len, err));
    sdc__free(text); /* its entries (filters) concern readers that search */
    return read_index(f, sst, index, err);
}

enum sdc_status sdc__sst_read(const struct sdc_file *file, struct sdc_sst *sst,
                              struct sdc_error *err) {
    *sst = (struct sdc_sst)SDC_SST_INIT;
    enum sdc_status st = read_table(file, sst, err);
    if (st != SDC_OK)
        sdc__sst_release(sst);
    return st;
}

void sdc__sst_release(struct sdc_sst *sst) {
    for (size_t i = 0; i < sst->n; i++)
        sdc__free((char *)(uintptr_t)sst->entries[i].key);
    for (size_t i = 0; i < sst->n_texts; i++)
        sdc__free(sst->texts[i]);
    sdc__free(sst->entries);
    sdc__free(sst->texts);
    sdc__free(sst->blocks);
    *sst = (struct sdc_sst)SDC_SST_INIT;
}

const struct sdc_sst_entry *sdc__sst_find(const struct sdc_sst *sst, const void *key, size_t len) {
    size_t lo = 0, hi = sst->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = compare(sst->entries[mid].key, sst->entries[mid].key_len, key, len);
        if (c == 0)
            return &sst->entries[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
