/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing a checkpoint with its seal: the files as they are, and where those differ the tensors.
 */
#include <inttypes.h>
#include <string.h>

#include "audit/seal.h"
#include "audit/verify.h"
#include "base/alloc.h"
#include "base/parallel.h"
#include "base/str.h"
#include "io/io.h"

struct comparing {
    struct sdc_verifying *v;
    const struct sdc_seal *seal;
    char **paths; /* of the seal's files, where they are now; NULL: gone; owned */
    bool files_same;
    bool tensors_same;
};

struct slot {
    unsigned char *buffer;
    struct sdc_seal_digest digest;
    uint64_t size;
    enum sdc_status st;
    struct sdc_error found;
};

static enum sdc_status make_slots(unsigned threads, struct slot **slots, struct sdc_error *err) {
    *slots = sdc__calloc(threads, sizeof **slots);
    if (!*slots)
        return SDC_NOMEM(err, "the seal");
    for (unsigned i = 0; i < threads; i++) {
        (*slots)[i].buffer = sdc__alloc_tensor(SDC_SEAL_READ, 1);
        if (!(*slots)[i].buffer)
            return SDC_NOMEM(err, "the seal");
    }
    return SDC_OK;
}

static void free_slots(unsigned threads, struct slot *slots) {
    for (unsigned i = 0; slots && i < threads; i++)
        sdc__free(slots[i].buffer);
    sdc__free(slots);
}

static enum sdc_status run(struct comparing *c, uint64_t n,
                           enum sdc_status (*work)(void *, void *, uint64_t, struct sdc_error *),
                           enum sdc_status (*commit)(void *, void *, uint64_t, struct sdc_error *),
                           struct sdc_error *err) {
    const unsigned threads = sdc__parallel_threads(c->v->options->threads, n);
    struct slot *slots;
    enum sdc_status st = make_slots(threads, &slots, err);
    if (st == SDC_OK) {
        struct sdc_parallel p = {.n_tasks = n,
                                 .threads = threads,
                                 .work = work,
                                 .commit = commit,
                                 .user = c,
                                 .slots = slots,
                                 .slot_size = sizeof *slots};
        st = sdc__parallel_run(&p, err);
    }
    free_slots(threads, slots);
    return st;
}

/* ---- files ---- */

static enum sdc_status file_work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct comparing *c = user;
    struct slot *s = slot;
    const char *path = c->paths[task];
    s->st = SDC_OK;
    if (!path)
        return SDC_OK;
    s->st = sdc__seal_file_digest(path, s->buffer, &s->digest.all, &s->size, err);
    s->found = *err;
    return s->st == SDC_NOT_FOUND ? SDC_OK : s->st;
}

static enum sdc_status file_commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct comparing *c = user;
    const struct slot *s = slot;
    const struct sdc_seal_file *f = &c->seal->files[task];
    if (!c->paths[task] || s->st == SDC_NOT_FOUND) {
        c->files_same = false;
        return sdc__verify_find(c->v, SDC_FINDING_DAMAGE, f->name, err,
                                "seal: the file is missing");
    }
    if (s->size != f->size) {
        c->files_same = false;
        return sdc__verify_find(c->v, SDC_FINDING_DAMAGE, f->name, err,
                                "seal: %" PRIu64 " bytes, sealed with %" PRIu64, s->size, f->size);
    }
    if (memcmp(&s->digest.all, &f->digest, sizeof f->digest) == 0)
        return SDC_OK;
    c->files_same = false;
    return sdc__verify_find(c->v, SDC_FINDING_DAMAGE, f->name, err,
                            "seal: the file's bytes are not those sealed");
}

/* A file of a set that could not be opened. Names come from the seal and could lead anywhere. */
static char *in_folder(const char *path, const char *name) {
    if (sdc__path_is_dir(path))
        return sdc__path_join(path, sdc__path_base(name));
    char *dir = sdc__path_dir(path);
    char *joined = dir ? sdc__path_join(dir, sdc__path_base(name)) : NULL;
    sdc__free(dir);
    return joined;
}

/* Where each of the seal's files is: a lone file may have been renamed together with its seal. */
static enum sdc_status find_files(struct comparing *c, struct sdc_error *err) {
    const struct sdc_ckpt *ckpt = c->v->ckpt;
    const size_t n = c->seal->n_files, n_now = ckpt ? sdc_ckpt_files(ckpt) : 0;
    c->paths = sdc__calloc(n, sizeof *c->paths);
    if (!c->paths)
        return SDC_NOMEM(err, c->v->path);
    for (size_t i = 0; i < n; i++) {
        const char *now = NULL;
        if (n == 1 && n_now <= 1)
            now = ckpt ? sdc_ckpt_file(ckpt, 0).path : c->v->path;
        for (size_t k = 0; k < n_now && !now; k++)
            if (strcmp(c->seal->files[i].name, sdc_ckpt_file(ckpt, k).name) == 0)
                now = sdc_ckpt_file(ckpt, k).path;
        /* one that is no part of it any more may still lie there */
        c->paths[i] = now ? sdc__strdup(now) : in_folder(c->v->path, c->seal->files[i].name);
        if (!c->paths[i])
            return SDC_NOMEM(err, c->v->path);
    }
    for (size_t k = 0; k < n_now; k++) {
        bool known = n == 1 && n_now == 1;
        for (size_t i = 0; i < n && !known; i++)
            known = strcmp(c->seal->files[i].name, sdc_ckpt_file(ckpt, k).name) == 0;
        if (known)
            continue;
        c->files_same = false;
        SDC_TRY(sdc__verify_find(c->v, SDC_FINDING_DAMAGE, sdc_ckpt_file(ckpt, k).name, err,
                                 "seal: the file was not sealed"));
    }
    return SDC_OK;
}

/* ---- tensors ---- */

static enum sdc_status differs(struct comparing *c, const char *name, struct sdc_error *err,
                               const char *text) {
    c->tensors_same = false;
    return sdc__verify_find(c->v, SDC_FINDING_DAMAGE, name, err, "seal: %s", text);
}

static bool same_form(const struct sdc_seal_tensor *t, const struct sdc_tensor_desc *d) {
    const char *type = d->dtype_known ? sdc_dtype_name(d->dtype) : d->dtype_text;
    bool same = strcmp(t->type, type) == 0 && t->rank == d->rank;
    for (unsigned i = 0; same && i < d->rank; i++)
        same = t->shape[i] == d->shape[i];
    return same;
}

static enum sdc_status tensor_work(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    const struct comparing *c = user;
    struct slot *s = slot;
    const struct sdc_seal_tensor *t = &c->seal->tensors[task];
    size_t i;
    s->st = SDC_NOT_FOUND;
    if (!t->has_digest || !sdc_ckpt_find(c->v->ckpt, t->name, &i) ||
        !same_form(t, sdc_ckpt_tensor(c->v->ckpt, i)))
        return SDC_OK;
    s->st = sdc__seal_tensor_digest(c->v->ckpt, i, t->block, s->buffer, &s->digest, err);
    s->found = *err;
    return s->st == SDC_INVALID || s->st == SDC_UNSUPPORTED || s->st == SDC_LIMIT ? SDC_OK : s->st;
}

/* The first block that is not as sealed; the whole tensor where there is one only. */
static enum sdc_status place(struct comparing *c, const struct sdc_seal_tensor *t, uint64_t n_elems,
                             const struct sdc_seal_digest *now, struct sdc_error *err) {
    size_t k = 0;
    uint64_t first = 0, last = n_elems - 1, wrong = 1;
    while (k + 1 < t->n_blocks && t->blocks[k] == now->blocks[k])
        k++;
    if (t->n_blocks > 0) {
        first = k * t->block;
        last = n_elems - first > t->block ? first + t->block - 1 : last;
        wrong = 0;
        for (; k < t->n_blocks; k++)
            wrong += t->blocks[k] != now->blocks[k];
    }
    c->tensors_same = false;
    SDC_TRY(sdc__verify_find(c->v, SDC_FINDING_DAMAGE, t->name, err,
                             "seal: values differ in %" PRIu64 " of %zu blocks, first between "
                             "elements %" PRIu64 " and %" PRIu64,
                             wrong, t->n_blocks ? t->n_blocks : 1, first, last));
    struct sdc_finding *f = &c->v->out->findings[c->v->out->n_findings - 1];
    f->has_elem = true;
    f->first_elem = first;
    f->last_elem = last;
    return SDC_OK;
}

static enum sdc_status tensor_commit(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct comparing *c = user;
    const struct slot *s = slot;
    const struct sdc_seal_tensor *t = &c->seal->tensors[task];
    size_t i;
    if (!sdc_ckpt_find(c->v->ckpt, t->name, &i))
        return differs(c, t->name, err, "the tensor is missing");
    const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c->v->ckpt, i);
    if (!same_form(t, d))
        return differs(c, t->name, err, "type or shape is not the one sealed");
    if (!t->has_digest)
        return SDC_OK; /* nobody could read it; the file's digest speaks */
    if (s->st != SDC_OK)
        return differs(c, t->name, err, s->found.message);
    c->v->compared[i] = true;
    if (memcmp(&s->digest.all, &t->all, sizeof t->all) == 0)
        return SDC_OK;
    return place(c, t, d->n_elems, &s->digest, err);
}

static enum sdc_status compare_tensors(struct comparing *c, struct sdc_error *err) {
    const struct sdc_ckpt *ckpt = c->v->ckpt;
    if (c->seal->n_tensors > 0)
        SDC_TRY(run(c, c->seal->n_tensors, tensor_work, tensor_commit, err));
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const char *name = sdc_ckpt_tensor(ckpt, i)->name;
        size_t low = 0, high = c->seal->n_tensors;
        while (low < high) {
            size_t mid = low + (high - low) / 2;
            if (strcmp(c->seal->tensors[mid].name, name) < 0)
                low = mid + 1;
            else
                high = mid;
        }
        if (low == c->seal->n_tensors || strcmp(c->seal->tensors[low].name, name) != 0)
            SDC_TRY(differs(c, name, err, "the tensor was not sealed"));
    }
    bool all = true;
    for (size_t i = 0; i < c->seal->n_tensors; i++)
        all = all && c->seal->tensors[i].has_digest;
    if (c->tensors_same)
        return sdc__verify_find(c->v, SDC_FINDING_NOTE, NULL, err,
                                all ? "seal: every tensor is as sealed; headers, padding or layout "
                                      "are not"
                                    : "seal: every tensor that can be read is as sealed; what "
                                      "cannot be read, headers, padding or layout are not");
    return SDC_OK;
}

/* ---- the whole ---- */

static enum sdc_status compare(struct sdc_verifying *v, const struct sdc_seal *seal,
                               struct sdc_error *err) {
    struct comparing c = {.v = v, .seal = seal, .files_same = true, .tensors_same = true};
    enum sdc_status st;
    SDC_TRY_OUT(st, find_files(&c, err));
    SDC_TRY_OUT(st, run(&c, seal->n_files, file_work, file_commit, err));
    v->out->seal = c.files_same ? SDC_SEAL_MATCHES : SDC_SEAL_DIFFERS;
    if (!c.files_same && v->ckpt)
        SDC_TRY_OUT(st, compare_tensors(&c, err));
out:
    for (size_t i = 0; c.paths && i < seal->n_files; i++)
        sdc__free(c.paths[i]);
    sdc__free(c.paths);
    return st;
}

/* ---- finding the seal ---- */

/* Does the seal in this file name a file of the checkpoint, or the one at its path? */
static bool is_of(const struct sdc_verifying *v, const char *seal_path) {
    struct sdc_seal seal;
    bool yes = false;
    if (!sdc__path_exists(seal_path) || sdc__seal_read(seal_path, &seal, NULL) != SDC_OK)
        return false;
    for (size_t i = 0; i < seal.n_files && !yes; i++) {
        yes = strcmp(seal.files[i].name, sdc__path_base(v->path)) == 0;
        for (size_t k = 0; v->ckpt && !yes && k < sdc_ckpt_files(v->ckpt); k++)
            yes = strcmp(seal.files[i].name, sdc_ckpt_file(v->ckpt, k).name) == 0;
    }
    sdc__seal_release(&seal);
    return yes;
}

struct looking {
    const struct sdc_verifying *v;
    char *found; /* owned */
};

static enum sdc_status take(void *user, const char *path, const char *name, struct sdc_error *err) {
    struct looking *l = user;
    const size_t n = strlen(name), end = sizeof ".seal" - 1;
    (void)err;
    /* of a folder that cannot be opened nothing says which files are its own */
    if (!l->found && n > end && strcmp(name + n - end, ".seal") == 0 &&
        ((!l->v->ckpt && sdc__path_is_dir(l->v->path)) || is_of(l->v, path)))
        l->found = sdc__strdup(path);
    return SDC_OK;
}

/* Where the seal of a set is if it was made when the set was named otherwise: of its folder, an
 * index, a file, a prefix. NULL: nowhere. */
static char *elsewhere(const struct sdc_verifying *v) {
    const char *path = v->path;
    struct looking l = {.v = v};
    char *folder = sdc__path_is_dir(path) ? sdc__strdup(path) : sdc__path_dir(path);
    char *beside = folder ? sdc__seal_path(folder) : NULL;
    if (beside && is_of(v, beside)) {
        sdc__free(folder);
        return beside;
    }
    sdc__free(beside);
    if (folder) {
        enum sdc_status st = sdc__list_files(folder, false, take, &l, NULL);
        (void)st; /* a folder that cannot be listed has none to show */
    }
    sdc__free(folder);
    return l.found;
}

static enum sdc_status find_seal(struct sdc_verifying *v, struct sdc_error *err) {
    const char *given = v->options->seal;
    char **path = &v->out->seal_path;
    *path = given ? sdc__strdup(given) : sdc__seal_path(v->ckpt ? sdc_ckpt_name(v->ckpt) : v->path);
    if (!*path)
        return SDC_NOMEM(err, v->path);
    const bool may_be_set = !v->ckpt || sdc_ckpt_is_set(v->ckpt);
    char *other = !given && may_be_set && !sdc__path_exists(*path) ? elsewhere(v) : NULL;
    if (other) {
        sdc__free(*path);
        *path = other;
    }
    return SDC_OK;
}

enum sdc_status sdc__verify_seal(struct sdc_verifying *v, struct sdc_error *err) {
    struct sdc_seal seal;
    struct sdc_error found;
    SDC_TRY(find_seal(v, err));
    if (!v->options->seal && !sdc__path_exists(v->out->seal_path))
        return SDC_OK;
    enum sdc_status st = sdc__seal_read(v->out->seal_path, &seal, &found);
    if (st == SDC_INVALID || st == SDC_MISMATCH) {
        v->out->seal = SDC_SEAL_DIFFERS;
        return sdc__verify_find(v, SDC_FINDING_DAMAGE, v->out->seal_path, err,
                                "the seal itself is damaged: %s", found.message);
    }
    if (st != SDC_OK) {
        if (err)
            *err = found;
        return st;
    }
    st = compare(v, &seal, err);
    sdc__seal_release(&seal);
    return st;
}
