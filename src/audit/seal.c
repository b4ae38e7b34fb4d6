/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/seal.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/parallel.h"
#include "ckpt/fmt.h"
#include "io/io.h"
#include "sdc/choice.h"

char *sdc__seal_path(const char *path) {
    char *named = sdc__path_named(path);
    char *seal = named ? sdc__asprintf("%s.seal", named) : NULL;
    sdc__free(named);
    return seal;
}

uint64_t sdc__seal_block(uint64_t n_elems) {
    uint64_t block = SDC_SEAL_MIN_BLOCK;
    if (n_elems <= block)
        return 0;
    while ((n_elems - 1) / block >= SDC_SEAL_BLOCKS)
        block *= 2;
    return block;
}

/* ---- digests ---- */

enum sdc_status sdc__seal_file_digest(const char *path, unsigned char *buffer,
                                      struct sdc_digest *digest, uint64_t *size,
                                      struct sdc_error *err) {
    struct sdc_file f = SDC_FILE_INIT;
    SDC_TRY(sdc__file_open(path, SDC_FILE_READ, &f, err));
    struct sdc_hasher *h = sdc__hasher_new();
    enum sdc_status st = h ? SDC_OK : SDC_NOMEM(err, path);
    for (uint64_t at = 0; st == SDC_OK && at < f.size; at += SDC_SEAL_READ) {
        size_t n = f.size - at < SDC_SEAL_READ ? (size_t)(f.size - at) : SDC_SEAL_READ;
        st = sdc__file_read(&f, at, buffer, n, err);
        if (st == SDC_OK)
            sdc__hasher_update(h, buffer, n);
    }
    if (h)
        *digest = sdc__hasher_finish(h);
    *size = f.size;
    sdc__file_close(&f);
    return st;
}

static uint64_t head_of(const struct sdc_digest *d) {
    uint64_t head = 0;
    for (int i = 0; i < 8; i++)
        head = head << 8 | d->bytes[i];
    return head;
}

/* The digests of a tensor while its elements come in. */
struct hashing {
    struct sdc_hasher *all, *part;
    uint64_t block, left; /* elements of a block, and those missing of the current one */
    struct sdc_seal_digest *out;
};

static enum sdc_status next_block(struct hashing *h, const char *what, struct sdc_error *err) {
    h->left = h->block;
    if (h->out->n_blocks == SDC_SEAL_BLOCKS)
        return SDC_ERR(err, SDC_INVALID, "%s: more than %d blocks", what, SDC_SEAL_BLOCKS);
    h->part = sdc__hasher_new();
    return h->part ? SDC_OK : SDC_NOMEM(err, what);
}

static void end_block(struct hashing *h) {
    struct sdc_digest d = sdc__hasher_finish(h->part);
    h->part = NULL;
    h->out->blocks[h->out->n_blocks++] = head_of(&d);
}

static enum sdc_status hash_run(struct hashing *h, const unsigned char *p, uint64_t n,
                                unsigned size, const char *what, struct sdc_error *err) {
    sdc__hasher_update(h->all, p, (size_t)n * size);
    while (h->block && n > 0) {
        if (!h->part)
            SDC_TRY(next_block(h, what, err));
        uint64_t m = n < h->left ? n : h->left;
        sdc__hasher_update(h->part, p, (size_t)m * size);
        h->left -= m;
        p += m * size;
        n -= m;
        if (h->left == 0)
            end_block(h);
    }
    return SDC_OK;
}

enum sdc_status sdc__seal_tensor_digest(struct sdc_ckpt *ckpt, size_t tensor, uint64_t block,
                                        unsigned char *buffer, struct sdc_seal_digest *digest,
                                        struct sdc_error *err) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(ckpt, tensor);
    const unsigned size = d->dtype_known ? sdc_dtype_bytes(d->dtype) : 1;
    const uint64_t step = SDC_SEAL_READ / size;
    struct hashing h = {.all = sdc__hasher_new(), .block = block, .out = digest};
    enum sdc_status st = h.all ? SDC_OK : SDC_NOMEM(err, d->name);
    *digest = (struct sdc_seal_digest){.block = block};
    for (uint64_t at = 0; st == SDC_OK && at < d->n_elems; at += step) {
        uint64_t n = d->n_elems - at < step ? d->n_elems - at : step;
        st = sdc_ckpt_read(ckpt, tensor, at, n, buffer, err);
        if (st == SDC_OK && sdc__host_big_endian())
            sdc__swap_elements(buffer, n, size);
        if (st == SDC_OK)
            st = hash_run(&h, buffer, n, size, d->name, err);
    }
    if (h.part)
        end_block(&h);
    if (h.all)
        digest->all = sdc__hasher_finish(h.all);
    return st;
}

/* ---- writing ---- */

struct sealing {
    struct sdc_ckpt *ckpt;
    struct sdc_jw w;
    struct sdc_seal_result result;
};

struct slot {
    unsigned char *buffer;
    struct sdc_seal_digest digest;
    uint64_t size;
    bool unreadable;
    struct sdc_error why;
};

/* Tasks: the files, then the tensors. */
static enum sdc_status work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct sealing *s = user;
    struct slot *mine = slot;
    const size_t n_files = sdc_ckpt_files(s->ckpt);
    mine->unreadable = false;
    if (task < n_files)
        return sdc__seal_file_digest(sdc_ckpt_file(s->ckpt, (size_t)task).path, mine->buffer,
                                     &mine->digest.all, &mine->size, err);
    size_t i = (size_t)task - n_files;
    enum sdc_status st =
        sdc__seal_tensor_digest(s->ckpt, i, sdc__seal_block(sdc_ckpt_tensor(s->ckpt, i)->n_elems),
                                mine->buffer, &mine->digest, err);
    if (st != SDC_UNSUPPORTED)
        return st;
    mine->unreadable = true;
    mine->why = *err;
    return SDC_OK;
}

static void write_digest(struct sdc_jw *w, const struct sdc_digest *d) {
    char text[SDC_DIGEST_TEXT_SIZE];
    sdc__digest_text(d, text);
    sdc__jw_kstr(w, "xxh3", text);
}

static void write_tensor(struct sealing *s, size_t i, const struct slot *from) {
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(s->ckpt, i);
    struct sdc_jw *w = &s->w;
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "name", d->name);
    sdc__jw_kstr(w, "type", d->dtype_known ? sdc_dtype_name(d->dtype) : d->dtype_text);
    sdc__jw_key(w, "shape");
    sdc__jw_arr(w);
    for (unsigned k = 0; k < d->rank; k++)
        sdc__jw_u64(w, d->shape[k]);
    sdc__jw_arr_end(w);
    if (from->unreadable) {
        s->result.n_unreadable++;
        sdc__jw_kstr(w, "unreadable", from->why.message);
        sdc__jw_obj_end(w);
        return;
    }
    write_digest(w, &from->digest.all);
    if (from->digest.n_blocks > 0) {
        sdc__jw_ku64(w, "block", from->digest.block);
        sdc__jw_key(w, "blocks");
        sdc__jw_arr(w);
        for (size_t k = 0; k < from->digest.n_blocks; k++) {
            char text[17];
            snprintf(text, sizeof text, "%016llx", (unsigned long long)from->digest.blocks[k]);
            sdc__jw_str(w, text);
        }
        sdc__jw_arr_end(w);
    }
    sdc__jw_obj_end(w);
}

static enum sdc_status commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct sealing *s = user;
    const struct slot *mine = slot;
    const size_t n_files = sdc_ckpt_files(s->ckpt);
    if (task < n_files) {
        sdc__jw_obj(&s->w);
        sdc__jw_kstr(&s->w, "name", sdc_ckpt_file(s->ckpt, (size_t)task).name);
        sdc__jw_ku64(&s->w, "size", mine->size);
        write_digest(&s->w, &mine->digest.all);
        sdc__jw_obj_end(&s->w);
        s->result.n_bytes += mine->size;
        if (task + 1 == n_files) {
            sdc__jw_arr_end(&s->w);
            sdc__jw_key(&s->w, "tensors");
            sdc__jw_arr(&s->w);
        }
    } else {
        write_tensor(s, (size_t)task - n_files, mine);
        sdc__buf_putc(s->w.out, '\n'); /* a line each, so that seals can be compared as text */
    }
    return s->w.out->failed ? SDC_NOMEM(err, "the seal") : SDC_OK;
}

static enum sdc_status make(struct sealing *s, unsigned wanted, struct sdc_error *err) {
    const uint64_t n = sdc_ckpt_files(s->ckpt) + sdc_ckpt_count(s->ckpt);
    const unsigned threads = sdc__parallel_threads(wanted, n);
    struct slot *slots = sdc__calloc(threads, sizeof *slots);
    enum sdc_status st = slots ? SDC_OK : SDC_NOMEM(err, "the seal");
    for (unsigned i = 0; st == SDC_OK && i < threads; i++) {
        slots[i].buffer = sdc__alloc_tensor(SDC_SEAL_READ, 1);
        st = slots[i].buffer ? SDC_OK : SDC_NOMEM(err, "the seal");
    }
    if (st == SDC_OK) {
        sdc__jw_obj(&s->w);
        sdc__jw_kstr(&s->w, "schema", "sdclab.seal/1");
        sdc__jw_kstr(&s->w, "format", sdc_ckpt_format(s->ckpt));
        sdc__jw_key(&s->w, "files");
        sdc__jw_arr(&s->w);
        struct sdc_parallel p = {.n_tasks = n,
                                 .threads = threads,
                                 .work = work,
                                 .commit = commit,
                                 .user = s,
                                 .slots = slots,
                                 .slot_size = sizeof *slots};
        st = sdc__parallel_run(&p, err);
        sdc__jw_arr_end(&s->w);
        sdc__jw_obj_end(&s->w);
        sdc__buf_putc(s->w.out, '\n');
    }
    for (unsigned i = 0; slots && i < threads; i++)
        sdc__free(slots[i].buffer);
    sdc__free(slots);
    if (st == SDC_OK && s->w.out->failed)
        st = SDC_NOMEM(err, "the seal");
    return st;
}

static enum sdc_status write(const char *path, const struct sdc_buf *text,
                             const struct sdc_seal_options *options, struct sdc_error *err) {
    struct sdc_replace r;
    SDC_TRY(sdc__replace_begin(path, options->replace, &r, err));
    enum sdc_status st = sdc__file_write(&r.file, 0, text->data, text->len, err);
    if (st == SDC_OK)
        return sdc__replace_commit(&r, !options->no_sync, err);
    sdc__replace_abandon(&r);
    return st;
}

/* A seal may replace a seal, never what it seals, by whatever name. */
static enum sdc_status check_output(const struct sdc_ckpt *ckpt, const char *to, bool replace,
                                    struct sdc_error *err) {
    struct stat out, in;
    if (!sdc__path_exists(to))
        return SDC_OK;
    if (!replace)
        return SDC_ERR(err, SDC_EXISTS, "%s: exists already", to);
    for (size_t i = 0; i < sdc_ckpt_files(ckpt); i++) {
        const char *file = sdc_ckpt_file(ckpt, i).path;
        if (stat(to, &out) == 0 && stat(file, &in) == 0 && out.st_dev == in.st_dev &&
            out.st_ino == in.st_ino)
            return SDC_ERR(err, SDC_USAGE, "%s: is %s, which is to be sealed; name another output",
                           to, file);
    }
    return SDC_OK;
}

enum sdc_status sdc_seal(const char *path, const struct sdc_seal_options *options,
                         struct sdc_seal_result *result, struct sdc_error *err) {
    struct sdc_buf text = SDC_BUF_INIT;
    struct sealing s = {.w = sdc__jw(&text)};
    enum sdc_status st;
    char *to = NULL;
    SDC_TRY_OUT(st, sdc_ckpt_open(path, options->open, &s.ckpt, err));
    to = options->output ? sdc__strdup(options->output) : sdc__seal_path(sdc_ckpt_name(s.ckpt));
    if (!to)
        SDC_TRY_OUT(st, SDC_NOMEM(err, path));
    SDC_TRY_OUT(st, check_output(s.ckpt, to, options->replace, err)); /* before all is read */
    SDC_TRY_OUT(st, make(&s, options->threads, err));
    SDC_TRY_OUT(st, write(to, &text, options, err));
    s.result.n_files = sdc_ckpt_files(s.ckpt);
    s.result.n_tensors = sdc_ckpt_count(s.ckpt);
    s.result.path = to;
    *result = s.result;
    to = NULL;
out:
    sdc__free(to);
    sdc__buf_release(&text);
    sdc_ckpt_close(s.ckpt);
    return st;
}
