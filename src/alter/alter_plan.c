/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/alter_plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "alter/patches.h"
#include "base/alloc.h"
#include "base/parallel.h"
#include "sdc/ckpt.h"

#define INDEX_TEXT 1024 /* 32 indices of at most 20 digits */

enum sdc_status sdc__stamp_take(const struct sdc_file *f, struct sdc_stamp *stamp,
                                struct sdc_error *err) {
    struct stat s;
    int fd;
    SDC_TRY(sdc__file_hold(f, &fd, err));
    const int code = fstat(fd, &s) != 0 ? errno : 0;
    sdc__file_let(f);
    if (code)
        return SDC_ERR_SYS(err, SDC_IO, code, "%s: stat", f->path);
    *stamp = (struct sdc_stamp){.device = s.st_dev,
                                .inode = s.st_ino,
                                .size = s.st_size,
                                .mode = s.st_mode,
                                .changed = s.st_mtim};
    return SDC_OK;
}

enum sdc_status sdc__stamp_check(const struct sdc_file *f, const struct sdc_stamp *stamp,
                                 struct sdc_error *err) {
    struct sdc_stamp now;
    SDC_TRY(sdc__stamp_take(f, &now, err));
    if (now.device != stamp->device || now.inode != stamp->inode || now.size != stamp->size ||
        now.changed.tv_sec != stamp->changed.tv_sec ||
        now.changed.tv_nsec != stamp->changed.tv_nsec)
        return SDC_ERR(err, SDC_BUSY, "%s: was changed by another program while it was read",
                       f->path);
    return SDC_OK;
}

bool sdc__stamp_names(const struct sdc_stamp *stamp, const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && s.st_dev == stamp->device && s.st_ino == stamp->inode;
}

void sdc__plan_release(struct sdc_plan *plan) {
    sdc__bulk_free(plan->bulk);
    sdc_support_free(plan->support);
    sdc__free(plan->descs);
    sdc__free(plan->changes);
    sdc__free(plan->files);
    sdc__free(plan->stamps);
    sdc_ckpt_close(plan->ckpt);
    *plan = (struct sdc_plan){0};
}

/* A list from outside may have been drawn over other tensors. */
static enum sdc_status check_fault(const struct sdc_ckpt *ckpt, const struct sdc_fault *f,
                                   struct sdc_error *err) {
    if (f->tensor >= sdc_ckpt_count(ckpt))
        return SDC_ERR(err, SDC_USAGE, "%s: a fault is in tensor number %u, there are %zu",
                       sdc_ckpt_path(ckpt), f->tensor, sdc_ckpt_count(ckpt));
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, f->tensor);
    if (f->elem >= t->n_elems)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: a fault is at element %llu of %llu",
                       sdc_ckpt_path(ckpt), t->name, (unsigned long long)f->elem,
                       (unsigned long long)t->n_elems);
    if (!t->dtype_known || t->locked)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: tensor %s cannot be altered: %s",
                       sdc_ckpt_path(ckpt), t->name, t->locked ? t->locked : t->dtype_text);
    unsigned bits = sdc_dtype_bits(t->dtype);
    uint64_t raw = f->op == SDC_OP_VALUE || f->op == SDC_OP_RANDOM ? f->value : f->bits;
    if (bits < 64 && raw >> bits)
        return SDC_ERR(err, SDC_USAGE, "%s: tensor %s: a fault is beyond the %u bits of %s",
                       sdc_ckpt_path(ckpt), t->name, bits, sdc_dtype_name(t->dtype));
    if (f->op == SDC_OP_SWAP && f->value >= t->n_elems)
        return SDC_ERR(err, SDC_USAGE,
                       "%s: tensor %s: a fault takes the value of element %llu of %llu",
                       sdc_ckpt_path(ckpt), t->name, (unsigned long long)f->value,
                       (unsigned long long)t->n_elems);
    return SDC_OK;
}

/* Bytes that an index of this tensor takes at most, with its NUL. */
static size_t index_size(const struct sdc_tensor_desc *t) {
    size_t size = sizeof "[]";
    for (unsigned d = 0; d < t->rank; d++) {
        size++; /* the comma, or the bracket of scalars above */
        for (uint64_t n = t->shape[d]; n; n /= 10)
            size++;
    }
    return size;
}

/* The changes of a plan are filled in slices, each with room for its texts: its tensors' names
 * and shapes, once each, and its indices. */
#define SLICE   ((size_t)1 << 15)
#define ALIGNED _Alignof(uint64_t)

struct filling {
    struct sdc_ckpt *ckpt;
    const struct sdc_fault_list *list;
    struct sdc_plan *plan;
    size_t *texts; /* where each slice's texts begin; one more than there are slices */
    char *pool;
    char **names; /* of the files of a set */
};

static size_t slice_end(const struct sdc_fault_list *list, uint64_t task) {
    return (task + 1) * SLICE < list->n ? (size_t)((task + 1) * SLICE) : list->n;
}

/* The most bytes that the texts of a slice take. */
static size_t text_size(const struct filling *fill, uint64_t task) {
    const struct sdc_fault *f = fill->list->faults;
    size_t size = 0, index = 0;
    for (size_t i = task * SLICE; i < slice_end(fill->list, task); i++) {
        if (i == task * SLICE || f[i].tensor != f[i - 1].tensor) {
            const struct sdc_tensor_desc *t = sdc_ckpt_tensor(fill->ckpt, f[i].tensor);
            size += strlen(t->name) + 1 + t->rank * sizeof *t->shape + ALIGNED - 1;
            index = index_size(t);
        }
        size += index;
    }
    return size;
}

static char *put_text(char **pool, const char *text) {
    size_t size = strlen(text) + 1;
    char *at = memcpy(*pool, text, size);
    *pool += size;
    return at;
}

static uint64_t *put_shape(char **pool, const struct sdc_tensor_desc *t) {
    char *at = *pool + (ALIGNED - (uintptr_t)*pool % ALIGNED) % ALIGNED;
    if (t->rank > 0)
        memcpy(at, t->shape, t->rank * sizeof *t->shape);
    *pool = at + t->rank * sizeof *t->shape;
    return (uint64_t *)(void *)at;
}

static enum sdc_status fill_change(struct sdc_ckpt *ckpt, const struct sdc_fault *f,
                                   struct sdc_record_change *c, unsigned *file,
                                   struct sdc_error *err) {
    const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, f->tensor);
    struct sdc_span span = {.size = sdc_dtype_bytes(t->dtype)};
    const bool recoded = sdc_ckpt_recoded(ckpt, f->tensor) != NULL;
    if (!recoded)
        SDC_TRY(sdc_ckpt_map(ckpt, f->tensor, f->elem, &span, err));
    *file = recoded ? sdc_ckpt_recoded_file(ckpt, f->tensor) : span.file;
    *c = (struct sdc_record_change){.dtype = t->dtype,
                                    .part = t->part,
                                    .role = t->role,
                                    .elem = f->elem,
                                    .offset = span.offset,
                                    .shift = span.shift,
                                    .big_endian = span.big_endian,
                                    .recoded = recoded,
                                    .op = f->op,
                                    .bits = f->bits,
                                    .new_raw = f->value,
                                    .weight = f->weight};
    if (f->op == SDC_OP_SWAP) {
        unsigned char other[8];
        c->other = f->value;
        SDC_TRY(sdc_ckpt_read(ckpt, f->tensor, f->value, 1, other, err));
        c->new_raw = sdc_num_load(t->dtype, other, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    }
    if (span.size != sdc_dtype_bytes(t->dtype))
        return SDC_ERR(err, SDC_INTERNAL, "tensor %s: an element of %u bytes is stored in %u",
                       t->name, sdc_dtype_bytes(t->dtype), span.size);
    return SDC_OK;
}

static enum sdc_status fill_slice(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct filling *fill = user;
    struct sdc_plan *plan = fill->plan;
    char *pool = fill->pool + fill->texts[task];
    size_t *n_recoded = slot;
    *n_recoded = 0;
    for (size_t i = task * SLICE; i < slice_end(fill->list, task); i++) {
        const struct sdc_fault *f = &fill->list->faults[i];
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(fill->ckpt, f->tensor);
        struct sdc_record_change *c = &plan->changes[i];
        SDC_TRY(check_fault(fill->ckpt, f, err));
        SDC_TRY(fill_change(fill->ckpt, f, c, &plan->files[i], err));
        *n_recoded += c->recoded;
        if (fill->names)
            c->file = fill->names[plan->files[i]];
        const bool again = i > task * SLICE && f->tensor == f[-1].tensor;
        c->tensor = again ? c[-1].tensor : put_text(&pool, t->name);
        c->shape = again ? c[-1].shape : put_shape(&pool, t);
        c->n_shape = t->rank;
        c->index = pool;
        pool += sdc_tensor_index_text(t, f->elem, pool, INDEX_TEXT) + 1;
    }
    return SDC_OK;
}

static enum sdc_status count_recoded(void *user, void *slot, uint64_t task, struct sdc_error *err) {
    struct filling *fill = user;
    (void)task;
    (void)err;
    fill->plan->n_recoded += *(const size_t *)slot;
    return SDC_OK;
}

/* One block for the changes and all their texts. */
static enum sdc_status make_room(struct filling *fill, uint64_t n_tasks, struct sdc_error *err) {
    const struct sdc_fault_list *list = fill->list;
    struct sdc_plan *plan = fill->plan;
    const size_t n_files = plan->is_set ? sdc_ckpt_files(fill->ckpt) : 0;
    size_t changes, size, names = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->faults[i].tensor >= sdc_ckpt_count(fill->ckpt))
            return check_fault(fill->ckpt, &list->faults[i], err);
    for (size_t i = 0; i < n_files; i++)
        names += strlen(sdc_ckpt_file(fill->ckpt, i).name) + 1;
    fill->texts = sdc__alloc(n_tasks + 1, sizeof *fill->texts);
    fill->names = plan->is_set ? sdc__alloc(n_files, sizeof *fill->names) : NULL;
    if (!fill->texts || (plan->is_set && !fill->names))
        return SDC_NOMEM(err, "the plan");
    fill->texts[0] = names;
    for (uint64_t task = 0; task < n_tasks; task++)
        fill->texts[task + 1] = fill->texts[task] + text_size(fill, task);
    if (__builtin_mul_overflow(list->n, sizeof *plan->changes, &changes) ||
        __builtin_add_overflow(changes, fill->texts[n_tasks], &size))
        return SDC_NOMEM(err, "the plan");
    plan->changes = sdc__alloc(size, 1);
    plan->files = sdc__alloc(list->n, sizeof *plan->files);
    if (!plan->changes || !plan->files)
        return SDC_NOMEM(err, "the plan");
    fill->pool = (char *)plan->changes + changes;
    char *at = fill->pool;
    for (size_t i = 0; i < n_files; i++)
        fill->names[i] = put_text(&at, sdc_ckpt_file(fill->ckpt, i).name);
    return SDC_OK;
}

enum sdc_status sdc__plan_list(struct sdc_plan *plan, const struct sdc_fault_list *list,
                               struct sdc_error *err) {
    struct filling filling = {.ckpt = plan->ckpt, .list = list, .plan = plan};
    size_t slots[SDC_MAX_THREADS];
    const uint64_t n_tasks = (list->n + SLICE - 1) / SLICE;
    struct sdc_parallel run = {.n_tasks = n_tasks,
                               .threads = sdc__parallel_threads(0, n_tasks),
                               .work = fill_slice,
                               .commit = count_recoded,
                               .user = &filling,
                               .slots = slots,
                               .slot_size = sizeof *slots};
    plan->n_sites = list->n_sites;
    plan->attempts = list->attempts;
    plan->happened = list->happened;
    enum sdc_status st = make_room(&filling, n_tasks, err);
    if (st == SDC_OK)
        st = sdc__parallel_run(&run, err);
    plan->n_changes = list->n;
    sdc__free(filling.texts);
    sdc__free(filling.names);
    return st;
}

static enum sdc_status read_values(void *user, size_t tensor, uint64_t first, uint64_t n,
                                   void *elements, struct sdc_error *err) {
    return sdc_ckpt_read(user, tensor, first, n, elements, err);
}

/* Sites may name a tensor by an alias, of which the support knows nothing. */
static struct sdc_at *sites_by_name(const struct sdc_ckpt *ckpt, const struct sdc_choice *choice) {
    struct sdc_at *at = sdc__alloc(choice->n_at, sizeof *at);
    size_t tensor;
    for (size_t i = 0; at && i < choice->n_at; i++) {
        at[i] = choice->at[i]; /* texts borrowed */
        if (sdc_ckpt_find(ckpt, at[i].tensor, &tensor))
            at[i].tensor = (char *)(uintptr_t)sdc_ckpt_tensor(ckpt, tensor)->name;
    }
    return at;
}

/* The sites, as a list or, where they are many and the options let them, without one. */
static enum sdc_status draw_sites(const struct sdc_choice *choice,
                                  const struct sdc_alter_options *options, struct sdc_plan *plan,
                                  struct sdc_fault_list *list, struct sdc_error *err) {
    struct sdc_rng rng;
    if (sdc__bulk_wanted(plan->support, choice, options))
        SDC_TRY(sdc__bulk_new(plan->ckpt, plan->support, choice, options, &plan->bulk, err));
    if (plan->bulk)
        return SDC_OK;
    sdc_rng_init(&rng, options->seed, SDC_RNG_FAULT_SITES, options->block, options->trial);
    return sdc_fault_list_draw(plan->support, choice, &rng, list, err);
}

/* A pattern that fits nothing is a slip; a name among what is to be spared too, since it would
 * leave that among what is hit. (A glob there may speak of what only other checkpoints have.) */
static enum sdc_status check_patterns(const struct sdc_tensor_desc *const *descs, size_t n,
                                      const struct sdc_choice *choice, struct sdc_error *err) {
    const char *unmatched =
        sdc_tensor_unmatched(descs, n, (const char *const *)choice->tensors, choice->n_tensors);
    if (unmatched)
        return SDC_ERR(err, SDC_USAGE, "tensors: no tensor of it is called '%s'", unmatched);
    unmatched = sdc_tensor_missing(descs, n, (const char *const *)choice->not_tensors,
                                   choice->n_not_tensors);
    if (unmatched)
        return SDC_ERR(err, SDC_USAGE, "not-tensors: no tensor of it is called '%s'", unmatched);
    return SDC_OK;
}

static enum sdc_status draw(struct sdc_plan *plan, const struct sdc_choice *choice,
                            const struct sdc_alter_options *options, struct sdc_fault_list *list,
                            struct sdc_error *err) {
    size_t n = sdc_ckpt_count(plan->ckpt);
    plan->descs = sdc__alloc(n, sizeof *plan->descs);
    struct sdc_choice named = *choice;
    named.at = sites_by_name(plan->ckpt, choice);
    enum sdc_status st = plan->descs && named.at ? SDC_OK : SDC_NOMEM(err, "the tensors");
    for (size_t i = 0; st == SDC_OK && i < n; i++)
        plan->descs[i] = sdc_ckpt_tensor(plan->ckpt, i);
    if (st == SDC_OK && !options->list) /* a list may come with the patterns of another file */
        st = check_patterns(plan->descs, n, choice, err);
    if (st == SDC_OK)
        st = sdc_support_new(plan->descs, n, &named, &plan->support, err);
    if (st == SDC_OK && choice->not_result && !options->list)
        st = sdc_support_reduce(plan->support, read_values, plan->ckpt, err);
    if (st == SDC_OK) {
        plan->support_sites = sdc_support_sites(plan->support);
        plan->removed_sites = sdc_support_removed(plan->support);
        if (!options->list)
            st = draw_sites(&named, options, plan, list, err);
    }
    sdc__free(named.at);
    if (st != SDC_OK)
        sdc_error_prefix(err, "%s", sdc_ckpt_path(plan->ckpt));
    return st;
}

/* Sites in tensors that have bytes in common may be the same bytes. What was drawn otherwise is
 * not. */
static enum sdc_status check_bytes(const char *path, const struct sdc_fault_list *list, bool drawn,
                                   const struct sdc_plan *plan, struct sdc_error *err) {
    struct sdc_patches sites = {0};
    const struct sdc_patch *a, *b;
    enum sdc_status st = SDC_OK;
    bool shared = false;
    for (size_t i = 0; i < list->n && !shared; i++)
        shared = sdc_ckpt_tensor(plan->ckpt, list->faults[i].tensor)->shared != NULL;
    if (!shared)
        return SDC_OK;
    for (size_t i = 0; st == SDC_OK && i < plan->n_changes; i++) {
        const struct sdc_patch p = sdc__patch_of_change(&plan->changes[i], plan->files[i]);
        if (!plan->changes[i].recoded)
            st = sdc__patches_add(&sites, &p, err);
    }
    if (st == SDC_OK && sdc__patches_sort(&sites, NULL) != SDC_OK &&
        sdc__patches_overlap(&sites, &a, &b)) {
        char text[2][SDC_SITE_TEXT];
        sdc__patch_text(a, text[0]);
        sdc__patch_text(b, text[1]);
        st = SDC_ERR_AT(err, drawn ? SDC_USAGE : SDC_INVALID, b->offset,
                        "%s: %s and %s are the same bytes, at %llu: expected one of them", path,
                        text[0], text[1], (unsigned long long)b->offset);
    }
    sdc__patches_release(&sites);
    return st;
}

static enum sdc_status stamp_path(const char *path, struct sdc_stamp *stamp,
                                  struct sdc_error *err) {
    struct sdc_file f;
    SDC_TRY(sdc__file_open(path, SDC_FILE_READ, &f, err));
    enum sdc_status st = sdc__stamp_take(&f, stamp, err);
    sdc__file_close(&f);
    return st;
}

/* A plan holds for the files as they are while it is made: stamped before the mapping begins. */
static enum sdc_status stamp_all(struct sdc_plan *plan, const struct sdc_stamp *before,
                                 struct sdc_error *err) {
    const size_t n = sdc_ckpt_files(plan->ckpt);
    plan->stamps = sdc__alloc(n, sizeof *plan->stamps);
    if (!plan->stamps)
        return SDC_NOMEM(err, "the plan");
    for (size_t i = 0; i < n; i++) {
        const char *path = sdc_ckpt_file(plan->ckpt, i).path;
        SDC_TRY(stamp_path(path, &plan->stamps[i], err));
        if (i == 0 && before &&
            memcmp(&before->changed, &plan->stamps[0].changed, sizeof before->changed) != 0)
            return SDC_ERR(err, SDC_BUSY, "%s: was changed by another program while it was read",
                           path);
    }
    return SDC_OK;
}

enum sdc_status sdc__plan_make(const char *path, const struct sdc_choice *choice,
                               const struct sdc_alter_options *options, struct sdc_plan *plan,
                               struct sdc_error *err) {
    enum sdc_status st;
    struct sdc_stamp before;
    struct sdc_fault_list drawn = {0};
    *plan = (struct sdc_plan){0};
    SDC_TRY_OUT(st, sdc_choice_check(choice, err));
    const bool is_file = sdc__path_exists(path) && !sdc__path_is_dir(path);
    if (is_file)
        SDC_TRY_OUT(st, stamp_path(path, &before, err));
    SDC_TRY_OUT(st, sdc_ckpt_open(path, options->open, &plan->ckpt, err));
    plan->is_set = sdc_ckpt_is_set(plan->ckpt);
    SDC_TRY_OUT(st, stamp_all(plan, is_file && !plan->is_set ? &before : NULL, err));
    snprintf(plan->format, sizeof plan->format, "%s", sdc_ckpt_format(plan->ckpt));
    SDC_TRY_OUT(st, draw(plan, choice, options, &drawn, err));
    if (plan->bulk)
        goto out;
    const struct sdc_fault_list *list = options->list ? options->list : &drawn;
    SDC_TRY_OUT(st, sdc__plan_list(plan, list, err));
    st = check_bytes(path, list, !options->list, plan, err);
out:
    sdc_fault_list_release(&drawn);
    if (st != SDC_OK)
        sdc__plan_release(plan);
    return st;
}
