/* SPDX-License-Identifier: Apache-2.0 */
#include "alter/job.h"

#include <string.h>

#include "alter/alter_record.h"
#include "base/alloc.h"

#define VIEW_FROM 512                 /* sites of a file that is mapped */
#define VIEW_GAP  ((uint64_t)1 << 15) /* bytes from one to the next, on average */

enum sdc_status sdc__job_init(struct sdc_job *job, const char *path,
                              const struct sdc_choice *choice,
                              const struct sdc_alter_options *options, struct sdc_error *err) {
    *job = (struct sdc_job){
        .path = path, .choice = choice, .options = options, .in_place = !options->output};
    SDC_TRY(sdc__plan_make(path, choice, options, &job->plan, err));
    const size_t n = sdc_ckpt_files(job->plan.ckpt);
    job->targets = sdc__calloc(n, sizeof *job->targets);
    job->files = sdc__alloc(n, sizeof *job->files);
    job->identities = sdc__calloc(n, sizeof *job->identities);
    job->pool = sdc__file_pool_new();
    job->views = sdc__calloc(n, sizeof *job->views);
    if (!job->targets || !job->files || !job->identities || !job->views || !job->pool)
        return SDC_NOMEM(err, "the alteration");
    job->n_files = n;
    for (size_t i = 0; i < n; i++)
        job->files[i] = (struct sdc_file)SDC_FILE_INIT;
    return SDC_OK;
}

void sdc__job_release(struct sdc_job *job) {
    for (size_t i = 0; i < job->n_files; i++) {
        sdc__file_unmap(&job->views[i]);
        sdc__file_close(&job->files[i]);
        sdc__free(job->targets[i]);
    }
    sdc__file_pool_free(job->pool);
    sdc__free(job->files);
    sdc__free(job->targets);
    sdc__free(job->identities);
    sdc__free(job->views);
    sdc__patches_release(&job->patches);
    sdc__mending_release(&job->mending);
    sdc_ckpt_close(job->rewritten);
    sdc__plan_release(&job->plan);
    sdc__free(job->record);
}

enum sdc_status sdc__job_target(struct sdc_job *job, unsigned i, struct sdc_file **f,
                                struct sdc_error *err) {
    *f = &job->files[i];
    if (sdc__file_is_open(*f))
        return SDC_OK;
    const struct sdc_ckpt_file own = sdc_ckpt_file(job->plan.ckpt, i);
    const char *path = job->targets[i] ? job->targets[i] : own.path;
    if (own.links_out && !job->targets[i] && !job->options->output)
        return SDC_ERR(err, SDC_INVALID, "%s: " SDC_LINKS_OUT "; alter a copy (-o)", path);
    const enum sdc_file_mode mode = job->options->dry_run ? SDC_FILE_READ : SDC_FILE_UPDATE;
    SDC_TRY(sdc__file_pool_open(job->pool, path, mode, *f, err));
    if (!job->in_place)
        return SDC_OK;
    if (!job->options->dry_run)
        SDC_TRY(sdc__lock_where_possible(*f, true, err));
    return sdc__stamp_check(*f, &job->plan.stamps[i], err);
}

static enum sdc_status target_of_sum(void *user, unsigned file, const struct sdc_file **f,
                                     struct sdc_error *err) {
    struct sdc_file *target = NULL;
    SDC_TRY(sdc__job_target(user, file, &target, err));
    *f = target;
    return SDC_OK;
}

static const struct sdc_ckpt *current(const struct sdc_job *job) {
    return job->rewritten ? job->rewritten : job->plan.ckpt;
}

static void apply(struct sdc_record_change *c, uint64_t old) {
    struct sdc_fault fault = {.op = c->op, .bits = c->bits, .value = c->new_raw};
    c->old_raw = old;
    c->new_raw = sdc_fault_apply(&fault, c->dtype, old, c->new_raw);
}

/* ---- storage that is written anew ---- */

static enum sdc_status read_element(struct sdc_ckpt *ckpt, const struct sdc_record_change *c,
                                    size_t *tensor, uint64_t *raw, struct sdc_error *err) {
    unsigned char bytes[8];
    if (!sdc_ckpt_find(ckpt, c->tensor, tensor))
        return SDC_ERR(err, SDC_INTERNAL, "%s: tensor %s is not there any more",
                       sdc_ckpt_path(ckpt), c->tensor);
    SDC_TRY(sdc_ckpt_read(ckpt, *tensor, c->elem, 1, bytes, err));
    *raw = sdc_num_load(c->dtype, bytes, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    return SDC_OK;
}

enum sdc_status sdc__job_recoded_values(struct sdc_job *job, struct sdc_error *err) {
    for (size_t i = 0; i < job->plan.n_changes && job->plan.n_recoded > 0; i++) {
        struct sdc_record_change *c = &job->plan.changes[i];
        uint64_t raw;
        size_t tensor;
        if (!c->recoded)
            continue;
        SDC_TRY(read_element(job->plan.ckpt, c, &tensor, &raw, err));
        apply(c, raw);
    }
    return SDC_OK;
}

/* The changes in one file's recoded storage, in the order of the plan. */
static enum sdc_status recode_file(struct sdc_job *job, unsigned file, struct sdc_ckpt_edit *edits,
                                   struct sdc_error *err) {
    const struct sdc_plan *plan = &job->plan;
    size_t n = 0;
    for (size_t i = 0; i < plan->n_changes; i++) {
        const struct sdc_record_change *c = &plan->changes[i];
        if (!c->recoded || plan->files[i] != file || c->old_raw == c->new_raw)
            continue;
        edits[n] = (struct sdc_ckpt_edit){.elem = c->elem, .raw = c->new_raw};
        if (!sdc_ckpt_find(plan->ckpt, c->tensor, &edits[n++].tensor))
            return SDC_ERR(err, SDC_INTERNAL, "tensor %s is not there any more", c->tensor);
    }
    uint64_t n_stale = 0;
    if (n > 0)
        SDC_TRY(sdc_ckpt_recode(plan->ckpt, file, edits, n, job->targets[file],
                                job->choice->checksum == SDC_CHECKSUM_STALE, &n_stale, err));
    job->n_stale += n_stale;
    return SDC_OK;
}

/* Chunks may have moved: asks the new file where the elements that have bytes of their own are. */
static enum sdc_status map_again(struct sdc_job *job, struct sdc_error *err) {
    for (size_t i = 0; i < job->plan.n_changes; i++) {
        struct sdc_record_change *c = &job->plan.changes[i];
        struct sdc_span span;
        size_t tensor;
        if (c->recoded)
            continue;
        if (!sdc_ckpt_find(job->rewritten, c->tensor, &tensor))
            return SDC_ERR(err, SDC_INTERNAL, "tensor %s is not in the rewritten file", c->tensor);
        SDC_TRY(sdc_ckpt_map(job->rewritten, tensor, c->elem, &span, err));
        c->offset = span.offset;
        c->shift = span.shift;
    }
    return SDC_OK;
}

enum sdc_status sdc__job_recode(struct sdc_job *job, const char *reopen, struct sdc_error *err) {
    if (job->plan.n_recoded == 0)
        return SDC_OK;
    enum sdc_status st = SDC_OK;
    struct sdc_ckpt_edit *edits = sdc__alloc(job->plan.n_recoded, sizeof *edits);
    if (!edits)
        return SDC_NOMEM(err, "the alteration");
    for (unsigned i = 0; st == SDC_OK && i < job->n_files; i++)
        st = recode_file(job, i, edits, err);
    sdc__free(edits);
    if (st != SDC_OK)
        return st;
    SDC_TRY(sdc_ckpt_open(reopen, job->options->open, &job->rewritten, err));
    return map_again(job, err);
}

static enum sdc_status check_recoded(struct sdc_job *job, const char *reopen,
                                     struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    if (job->plan.n_recoded == 0 || !reopen)
        return SDC_OK;
    enum sdc_status st = sdc_ckpt_open(reopen, job->options->open, &ckpt, err);
    for (size_t i = 0; st == SDC_OK && i < job->plan.n_changes; i++) {
        const struct sdc_record_change *c = &job->plan.changes[i];
        uint64_t raw = c->new_raw;
        size_t tensor;
        if (c->recoded)
            st = read_element(ckpt, c, &tensor, &raw, err);
        if (st == SDC_OK && raw != c->new_raw)
            st = SDC_ERR(err, SDC_IO, "%s: %s%s was written as %#llx and reads back as %#llx",
                         reopen, c->tensor, c->index, (unsigned long long)c->new_raw,
                         (unsigned long long)raw);
    }
    sdc_ckpt_close(ckpt);
    return st;
}

/* ---- elements with bytes of their own ---- */

static enum sdc_status make_patches(struct sdc_job *job, struct sdc_error *err) {
    SDC_TRY(sdc__patches_reserve(&job->patches, job->plan.n_changes, err));
    for (size_t i = 0; i < job->plan.n_changes; i++) {
        if (job->plan.changes[i].recoded)
            continue;
        const struct sdc_patch p = sdc__patch_of_change(&job->plan.changes[i], job->plan.files[i]);
        SDC_TRY(sdc__patches_add(&job->patches, &p, err));
    }
    return sdc__patches_sort(&job->patches, err);
}

/* A look costs a fraction of a system call where sites are many and near; a far one costs more. */
static void view_target(struct sdc_job *job, unsigned i, size_t n, const struct sdc_file *f) {
    if (job->options->may_map && n >= VIEW_FROM && f->size / n <= VIEW_GAP)
        (void)!sdc__file_view(f, &job->views[i]);
}

static enum sdc_status read_target(struct sdc_job *job, unsigned i, struct sdc_patch *p, size_t n,
                                   const struct sdc_file *f, struct sdc_error *err) {
    if (!job->views[i].data)
        return sdc__patches_read(p, n, f, err);
    sdc__patches_look(p, n, job->views[i].data);
    return SDC_OK;
}

enum sdc_status sdc__job_values(struct sdc_job *job, struct sdc_error *err) {
    SDC_TRY(make_patches(job, err));
    for (unsigned i = 0; i < job->n_files; i++) {
        struct sdc_file *f;
        size_t n;
        struct sdc_patch *p = sdc__patches_of(&job->patches, i, &n);
        if (n == 0)
            continue;
        SDC_TRY(sdc__job_target(job, i, &f, err));
        SDC_TRY(sdc__patches_inside(p, n, f->size, err));
        view_target(job, i, n, f);
        SDC_TRY(read_target(job, i, p, n, f, err));
        for (size_t k = 0; k < n; k++) {
            struct sdc_record_change *c = &job->plan.changes[p[k].change - job->plan.changes];
            apply(c, p[k].now);
            p[k].old_raw = c->old_raw;
            p[k].new_raw = c->new_raw;
        }
    }
    SDC_TRY(sdc__mend(current(job), job->choice->checksum == SDC_CHECKSUM_STALE, target_of_sum, job,
                      &job->patches, &job->mending, err));
    for (unsigned i = 0; i < job->n_files; i++) { /* those of checksums too */
        size_t n;
        struct sdc_patch *p = sdc__patches_of(&job->patches, i, &n);
        struct sdc_file *f;
        if (n == 0)
            continue;
        SDC_TRY(sdc__job_target(job, i, &f, err));
        SDC_TRY(sdc__patches_inside(p, n, f->size, err));
    }
    return SDC_OK;
}

enum sdc_status sdc__job_identities(struct sdc_job *job, const struct sdc_file *from,
                                    struct sdc_error *err) {
    const bool whole = job->options->whole_digest;
    if (from)
        return sdc__patches_identity(NULL, 0, from, whole, &job->identities[0], err);
    for (unsigned i = 0; i < job->n_files; i++) {
        size_t n;
        struct sdc_patch *p = sdc__patches_of(&job->patches, i, &n);
        struct sdc_file *f;
        if (n == 0 && (i > 0 || job->plan.is_set))
            continue;
        SDC_TRY(sdc__job_target(job, i, &f, err));
        SDC_TRY(sdc__patches_identity(p, n, f, whole, &job->identities[i], err));
    }
    return SDC_OK;
}

static void count(struct sdc_job *job) {
    job->n_elements = job->plan.n_changes;
    job->n_altered = job->n_bits = 0;
    for (size_t i = 0; i < job->plan.n_changes; i++) {
        const struct sdc_record_change *c = &job->plan.changes[i];
        job->n_altered += c->new_raw != c->old_raw;
        job->n_bits += (unsigned)__builtin_popcountll(c->new_raw ^ c->old_raw);
    }
}

enum sdc_status sdc__job_patch(struct sdc_job *job, const char *reopen, struct sdc_error *err) {
    for (unsigned i = 0; i < job->n_files; i++) {
        size_t n;
        struct sdc_patch *p = sdc__patches_of(&job->patches, i, &n);
        struct sdc_file *f = &job->files[i];
        if (n == 0)
            continue;
        SDC_TRY(sdc__patches_write_viewed(p, n, f, SDC_SIDE_NEW, job->views[i].data, err));
        if (!job->options->no_sync)
            SDC_TRY(sdc__file_sync(f, err));
        SDC_TRY(read_target(job, i, p, n, f, err));
        SDC_TRY(sdc__patches_check(p, n, f, SDC_SIDE_NEW, err));
    }
    SDC_TRY(check_recoded(job, reopen, err));
    count(job);
    return SDC_OK;
}

/* The changes that are shown, of those that were not listed. */
static enum sdc_status list_first(struct sdc_job *job, struct sdc_error *err) {
    const struct sdc_bulk_sample first = sdc__bulk_first(job->plan.bulk);
    SDC_TRY(sdc__plan_list(&job->plan, &first.list, err));
    for (size_t i = 0; i < job->plan.n_changes; i++) {
        job->plan.changes[i].old_raw = first.old_raw[i];
        job->plan.changes[i].new_raw = first.new_raw[i];
    }
    return SDC_OK;
}

enum sdc_status sdc__job_bulk(struct sdc_job *job, struct sdc_error *err) {
    struct sdc_bulk_counts counts;
    struct sdc_file *f;
    SDC_TRY(sdc__job_target(job, 0, &f, err));
    SDC_TRY(sdc__bulk_alter(job->plan.bulk, f, !job->options->no_sync, &counts, err));
    job->n_elements = counts.elements;
    job->n_altered = counts.altered;
    job->n_bits = counts.bits;
    return list_first(job, err);
}

bool sdc__job_restore(struct sdc_job *job) {
    if (job->plan.bulk)
        return sdc__bulk_restore(job->plan.bulk, &job->files[0], !job->options->no_sync);
    bool restored = true;
    for (unsigned i = 0; i < job->n_files; i++) {
        size_t n;
        struct sdc_patch *p = sdc__patches_of(&job->patches, i, &n);
        struct sdc_file *f = &job->files[i];
        if (n > 0)
            restored = sdc__patches_write(p, n, f, SDC_SIDE_OLD, false, NULL) == SDC_OK &&
                       (job->options->no_sync || sdc__file_sync(f, NULL) == SDC_OK) &&
                       sdc__patches_read(p, n, f, NULL) == SDC_OK &&
                       sdc__patches_check(p, n, f, SDC_SIDE_OLD, NULL) == SDC_OK && restored;
    }
    return restored;
}

/* ---- the record ---- */

static struct sdc_record_file *list_files(const struct sdc_job *job, size_t *n) {
    struct sdc_record_file *files = sdc__alloc(job->n_files, sizeof *files);
    *n = 0;
    for (unsigned i = 0; files && i < job->n_files; i++)
        if (job->identities[i].size > 0)
            files[(*n)++] = (struct sdc_record_file){
                .name = (char *)(uintptr_t)sdc_ckpt_file(job->plan.ckpt, i).name,
                .identity = job->identities[i]};
    return files;
}

enum sdc_status sdc__job_write_record(struct sdc_job *job, const char *file,
                                      struct sdc_error *err) {
    struct sdc_record_header header = {
        .tool = (char *)(uintptr_t) "sdclab " SDC_VERSION,
        .seed = job->options->seed,
        .choice = *job->choice,
        .support_bits = job->plan.support_sites,
        .removed_bits = job->plan.removed_sites,
        .planned = job->plan.n_sites,
        .elements = job->plan.n_changes,
        .attempts = job->plan.attempts,
        .happened = job->plan.happened,
        .source = (char *)(uintptr_t)job->path,
        .file = (char *)(uintptr_t)file,
        .format = job->plan.format,
        .has_identity = !job->plan.is_set,
        .identity = job->identities[0],
        .has_after = job->has_after,
        .after = job->after,
        .synced = !job->options->no_sync,
        .origin = (char *)(uintptr_t)job->options->origin,
    };
    if (job->options->no_record)
        return SDC_OK;
    if (job->plan.is_set) {
        header.files = list_files(job, &header.n_files);
        if (!header.files)
            return SDC_NOMEM(err, "the record");
    }
    const struct sdc_record_lines lines = {.header = &header,
                                           .changes = job->plan.changes,
                                           .n_changes = job->plan.n_changes,
                                           .threads = job->options->threads,
                                           .mended = job->mending.items,
                                           .n_mended = job->mending.n};
    enum sdc_status st =
        sdc__record_create(job->options->record_path, &lines, job->plan.stamps[0].mode,
                           !job->options->no_sync, &job->record, err);
    sdc__free(header.files);
    return st;
}

enum sdc_status sdc__job_finish_record(struct sdc_job *job, struct sdc_error *err) {
    if (!job->record)
        return SDC_OK;
    enum sdc_status st = sdc__record_finish(job->record, job->plan.n_changes, job->n_bits,
                                            !job->options->no_sync, err);
    if (st != SDC_OK)
        sdc_error_prefix(err, "the file is altered and its record complete but for the last line");
    return st;
}

void sdc__job_drop_record(struct sdc_job *job) {
    enum sdc_status st = job->record ? sdc__remove_file(job->record, NULL) : SDC_OK;
    (void)st; /* the failure that led here is the one to report */
}
