/* SPDX-License-Identifier: Apache-2.0 */
#include "sdc/alter.h"

#include <string.h>

#include "alter/job.h"
#include "base/alloc.h"

void sdc_alter_result_release(struct sdc_alter_result *r) {
    sdc_text_free(r->record);
    sdc__free(r->changes); /* the texts are in the same block */
    *r = (struct sdc_alter_result){0};
}

static enum sdc_status find_mappers(struct sdc_job *job, struct sdc_error *err) {
    if (job->options->output || job->plan.n_recoded > 0 || (job->patches.n == 0 && !job->plan.bulk))
        return SDC_OK; /* what is mapped is not written to */
    if (job->options->no_sync)
        return SDC_OK; /* looking takes a fraction of a millisecond for each process */
    return sdc__files_mapped(job->files, job->n_files, &job->mappers, err);
}

static enum sdc_status in_place(struct sdc_job *job, struct sdc_error *err) {
    struct sdc_file *f;
    enum sdc_status st;
    if (!job->plan.is_set) /* locked even where nothing is to be changed */
        SDC_TRY(sdc__job_target(job, 0, &f, err));
    if (job->plan.bulk) {
        SDC_TRY(find_mappers(job, err));
        st = sdc__job_bulk(job, err);
    } else {
        SDC_TRY(sdc__job_values(job, err));
        SDC_TRY(find_mappers(job, err));
        SDC_TRY(sdc__job_identities(job, NULL, err));
        SDC_TRY(sdc__job_write_record(job, sdc_ckpt_name(job->plan.ckpt), err));
        st = sdc__job_patch(job, NULL, err);
    }
    if (st == SDC_OK)
        return sdc__job_finish_record(job, err);
    if (sdc__job_restore(job)) {
        sdc__job_drop_record(job);
        sdc_error_prefix(err, "nothing was changed");
    } else if (job->record) {
        sdc_error_prefix(err, "altered in part, undo %s restores it", job->record);
    } else {
        sdc_error_prefix(err, "altered in part, and there is no record");
    }
    return st;
}

/* Only the values, for showing what would be done. */
static enum sdc_status look(struct sdc_job *job, struct sdc_error *err) {
    SDC_TRY(sdc__job_check_output(job, err));
    job->in_place = true; /* the values of the file itself */
    SDC_TRY(sdc__job_recoded_values(job, err));
    SDC_TRY(sdc__job_values(job, err));
    return find_mappers(job, err);
}

/* Who finds a stored checksum wrong when reading, by format. */
static const char *readers_of(const char *format) {
    static const struct {
        const char *format, *readers;
    } rows[] = {{"hdf5", "libhdf5 (h5py, Keras) notices when it reads what they cover"},
                {"keras", "Keras and other readers of zip files notice"},
                {"npz", "np.load and other readers of zip files notice"},
                {"pytorch", "unzip and Python's zipfile notice, torch.load does not"},
                {"pytorch-dcp", "PyTorch does not notice, readers of zip files would"},
                {"tensorbundle", "TensorFlow notices when it restores what they cover"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].format, format) == 0)
            return rows[i].readers;
    return "readers that check them notice";
}

static void hand_over(struct sdc_job *job, struct sdc_alter_result *result) {
    uint64_t unchanged = 0, mended = 0;
    for (size_t i = 0; i < job->plan.n_changes && !job->plan.bulk; i++)
        unchanged += job->plan.changes[i].old_raw == job->plan.changes[i].new_raw;
    for (size_t i = 0; i < job->mending.n; i++)
        mended += job->mending.items[i].old_raw != job->mending.items[i].new_raw &&
                  !job->mending.items[i].was_wrong;
    *result = (struct sdc_alter_result){
        .support_sites = job->plan.support_sites,
        .removed_sites = job->plan.removed_sites,
        .planned = job->plan.n_sites,
        .attempts = job->plan.attempts,
        .happened = job->plan.happened,
        .altered = job->n_altered,
        .altered_bits = job->n_bits,
        .unchanged = job->plan.bulk ? job->n_elements - job->n_altered : unchanged,
        .elements = job->plan.bulk ? job->n_elements : job->plan.n_changes,
        .mended = mended,
        .stale_sums = job->mending.n_stale + job->n_stale,
        .stale_readers =
            job->mending.n_stale + job->n_stale > 0 ? readers_of(job->plan.format) : NULL,
        .unknown_sums = job->mending.n_unknown,
        .wrong_sums = job->mending.n_wrong,
        .moved_sums = job->mending.n_moved,
        .unchecked_sums = job->mending.n_unchecked,
        .recoded = job->plan.n_recoded,
        .mappers = job->mappers.n,
        .mapper = job->mappers.first,
        .record = job->record,
        .changes = job->plan.changes,
        .n_changes = job->plan.n_changes,
    };
    job->record = NULL;
    job->plan.changes = NULL;
}

enum sdc_status sdc_alter(const char *path, const struct sdc_choice *choice,
                          const struct sdc_alter_options *options, struct sdc_alter_result *result,
                          struct sdc_error *err) {
    struct sdc_job job;
    enum sdc_status st = sdc__job_init(&job, path, choice, options, err);
    if (st == SDC_OK && options->dry_run)
        st = look(&job, err);
    else if (st == SDC_OK)
        st = options->output || job.plan.n_recoded > 0 ? sdc__job_copy(&job, err)
                                                       : in_place(&job, err);
    if (st == SDC_OK)
        hand_over(&job, result);
    sdc__job_release(&job);
    return st;
}
