/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether there is something to hit. A choice that matches no tensor would run to its end and show
 * that faults have no effect, so it is refused as soon as there is a checkpoint to look at.
 */
#include <string.h>

#include "base/alloc.h"
#include "camp/exec_internal.h"
#include "sdc/fault.h"

enum sdc_status sdc__exec_read_values(void *user, size_t tensor, uint64_t first, uint64_t n,
                                      void *elements, struct sdc_error *err) {
    return sdc_ckpt_read(user, tensor, first, n, elements, err);
}

/* Names a tensor that could have been hit, as an example of how they are called. */
static const char *example(struct sdc_ckpt *ckpt, uint32_t parts) {
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        if (!t->locked && (!parts || parts >> t->part & 1))
            return t->name;
    }
    return "none";
}

static enum sdc_status count_sites(struct sdc_ckpt *ckpt, const struct sdc_choice *choice,
                                   uint64_t *sites, struct sdc_error *err) {
    size_t n = sdc_ckpt_count(ckpt);
    const struct sdc_tensor_desc **descs = sdc__alloc(n, sizeof *descs);
    struct sdc_support *support = NULL;
    if (!descs)
        return SDC_NOMEM(err, "a list of tensors");
    for (size_t i = 0; i < n; i++)
        descs[i] = sdc_ckpt_tensor(ckpt, i);
    enum sdc_status st = sdc_support_new(descs, n, choice, &support, err);
    if (st == SDC_OK && choice->not_result)
        st = sdc_support_reduce(support, sdc__exec_read_values, ckpt, err);
    if (st == SDC_OK)
        *sites = sdc_support_sites(support);
    sdc_support_free(support);
    sdc__free(descs);
    return st;
}

static enum sdc_status check_cell(const struct sdc_plan_cell *cell, struct sdc_ckpt *ckpt,
                                  struct sdc_error *err) {
    const struct sdc_choice *c = &cell->draw_choice;
    uint64_t sites = 0;
    if (c->parts == 1u << SDC_PART_OPTIMIZER && cell->setting.momentum == 0)
        return SDC_OK; /* known to be without state, and said so by the plan */
    SDC_TRY(count_sites(ckpt, c, &sites, err));
    if (c->flips <= sites || (c->sample == SDC_SAMPLE_ATTEMPTS && sites > 0))
        return SDC_OK;
    if (sites == 0)
        return SDC_ERR(err, SDC_INVALID,
                       "cell %s (%s): tensors, not_tensors, role, dtype, part and bits together "
                       "match nothing in the checkpoint, expected tensors such as %s",
                       cell->id, cell->label, example(ckpt, c->parts));
    return SDC_ERR(err, SDC_INVALID,
                   "cell %s (%s): flips: %llu distinct sites, expected at most %llu, which is "
                   "what the choice holds",
                   cell->id, cell->label, (unsigned long long)c->flips, (unsigned long long)sites);
}

/* Whether a checkpoint of one setting holds the same tensors as one of the other. */
static bool same_tensors(const struct sdc_setting *a, const struct sdc_setting *b) {
    return strcmp(a->model, b->model) == 0 && (a->momentum > 0) == (b->momentum > 0);
}

enum sdc_status sdc__exec_check_support(const struct sdc_exec *x, uint32_t setting,
                                        const char *path, struct sdc_error *err) {
    struct sdc_ckpt *ckpt = NULL;
    SDC_TRY(sdc_ckpt_open(path, NULL, &ckpt, err));
    enum sdc_status st = SDC_OK;
    for (size_t c = 0; c < x->plan->n_cells && st == SDC_OK; c++)
        if (same_tensors(&x->plan->cells[c].setting, &x->plan->settings[setting]))
            st = check_cell(&x->plan->cells[c], ckpt, err);
    sdc_ckpt_close(ckpt);
    return st;
}

enum sdc_status sdc__exec_check_supports(const struct sdc_exec *x, struct sdc_error *err) {
    for (size_t t = 0; t < x->plan->n_trainings; t++) {
        bool again = false;
        for (size_t s = 0; s < t && !again; s++)
            again = same_tensors(&x->plan->settings[x->plan->trainings[s].setting],
                                 &x->plan->settings[x->plan->trainings[t].setting]);
        if (!again)
            SDC_TRY(sdc__exec_check_support(x, x->plan->trainings[t].setting,
                                            x->bases[t * x->spec->n_checkpoints].path, err));
    }
    return SDC_OK;
}
