/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "camp/exec_internal.h"
#include "io/io.h"
#include "sdc/choice.h"
#include "sdc/fault.h"
#include "sdc/rng.h"

void sdc__exec_faults_release(struct sdc_exec_faults *f) {
    sdc__free(f->why);
    sdc__free(f->path);
    sdc_alter_result_release(&f->result);
    *f = (struct sdc_exec_faults){0};
}

#define MAX_LOWEST_BITS 1000000

/* Stream of sites. */
struct stream {
    enum sdc_rng_purpose purpose;
    uint32_t block, trial;
};

/* ---- mapping parameters to their optimizer state ---- */

/* Index of the tensor that holds the momentum (or Adam's first moment) of a parameter. */
static bool find_state(struct sdc_ckpt *ckpt, const struct sdc_tensor_desc *parameter, size_t *at) {
    static const char model[] = "model/", optimizer[] = "optimizer/";
    const char *name = parameter->name;
    if (strncmp(name, model, sizeof model - 1) == 0)
        name += sizeof model - 1;
    size_t len = strlen(name);
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        if ((t->role != SDC_ROLE_MOMENTUM && t->role != SDC_ROLE_ADAM_M) ||
            strncmp(t->name, optimizer, sizeof optimizer - 1) != 0)
            continue;
        const char *rest = t->name + sizeof optimizer - 1;
        if (strncmp(rest, name, len) == 0 && rest[len] == '/' && t->dtype == parameter->dtype &&
            t->n_elems == parameter->n_elems) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* Moves the faults; *why (owned) where a parameter has no state. */
static enum sdc_status map_to_optimizer(struct sdc_ckpt *ckpt, struct sdc_fault_list *list,
                                        char **why, struct sdc_error *err) {
    size_t n = sdc_ckpt_count(ckpt);
    uint32_t *map = sdc__alloc(n, sizeof *map);
    if (!map)
        return SDC_NOMEM(err, "a map of tensors");
    for (size_t i = 0; i < n; i++)
        map[i] = (uint32_t)i;
    enum sdc_status st = SDC_OK;
    for (size_t i = 0; i < list->n && !*why && st == SDC_OK; i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, list->faults[i].tensor);
        size_t at;
        if (find_state(ckpt, t, &at))
            map[list->faults[i].tensor] = (uint32_t)at;
        else if (!(*why = sdc__asprintf("the checkpoint has no optimizer state of %s", t->name)))
            st = SDC_NOMEM(err, "a message");
    }
    if (st == SDC_OK && !*why)
        st = sdc_fault_list_map(list, map, n, err);
    sdc__free(map);
    return st;
}

/* ---- drawing and writing ---- */

static enum sdc_status draw(struct sdc_ckpt *ckpt, const struct sdc_choice *choice, uint64_t seed,
                            const struct stream *stream, struct sdc_fault_list *list,
                            uint64_t *support_sites, struct sdc_error *err) {
    size_t n = sdc_ckpt_count(ckpt);
    const struct sdc_tensor_desc **descs = sdc__alloc(n, sizeof *descs);
    struct sdc_support *support = NULL;
    struct sdc_rng rng;
    enum sdc_status st;
    if (!descs)
        return SDC_NOMEM(err, "a list of tensors");
    for (size_t i = 0; i < n; i++)
        descs[i] = sdc_ckpt_tensor(ckpt, i);
    SDC_TRY_OUT(st, sdc_support_new(descs, n, choice, &support, err));
    if (choice->not_result)
        SDC_TRY_OUT(st, sdc_support_reduce(support, sdc__exec_read_values, ckpt, err));
    *support_sites = sdc_support_sites(support);
    sdc_rng_init(&rng, seed, stream->purpose, stream->block, stream->trial);
    st = sdc_fault_list_draw(support, choice, &rng, list, err);
out:
    sdc_support_free(support);
    sdc__free(descs);
    return st;
}

/* Whether a failure to alter is the file's doing and not the machine's. */
static bool is_refusal(enum sdc_status st) {
    return st == SDC_UNSUPPORTED || st == SDC_INVALID || st == SDC_LIMIT || st == SDC_MISMATCH;
}

static enum sdc_status write_altered(struct sdc_exec *x, const struct sdc_exec_base *base,
                                     const struct sdc_choice *choice, const struct stream *stream,
                                     const struct sdc_fault_list *list, const char *folder,
                                     struct sdc_exec_faults *f, struct sdc_error *err) {
    f->path = sdc__path_join(folder, "altered.h5");
    if (!f->path)
        return SDC_NOMEM(err, "a path");
    struct sdc_alter_options options = {
        .output = f->path,
        .replace = true,
        .no_record = !x->keep_files, /* the store keeps what a record holds */
        .no_sync = true,             /* the file is made again from the plan if it is lost */
        .seed = x->spec->seed,
        .block = stream->block,
        .trial = stream->trial,
        .list = list,
    };
    struct sdc_error why;
    enum sdc_status st = sdc_alter(base->path, choice, &options, &f->result, &why);
    if (is_refusal(st)) {
        f->not_injected = true;
        f->why = sdc__strdup(why.message);
        return f->why ? SDC_OK : SDC_NOMEM(err, "a message");
    }
    if (st != SDC_OK && err)
        *err = why;
    return st;
}

static enum sdc_status alter(struct sdc_exec *x, struct sdc_exec_base *base,
                             const struct sdc_choice *choice, const struct stream *stream, bool map,
                             const char *folder, struct sdc_exec_faults *f, struct sdc_error *err) {
    struct sdc_fault_list list = {0};
    enum sdc_status st;
    *f = (struct sdc_exec_faults){0};
    SDC_TRY_OUT(st, sdc__exec_base_open(base, err));
    SDC_TRY_OUT(st, draw(base->ckpt, choice, x->spec->seed, stream, &list, &f->support, err));
    f->planned = list.n_sites;
    if (map)
        SDC_TRY_OUT(st, map_to_optimizer(base->ckpt, &list, &f->why, err));
    f->not_injected = f->why != NULL;
    if (!f->not_injected)
        st = write_altered(x, base, choice, stream, &list, folder, f, err);
    if (st == SDC_OK && !f->not_injected && f->planned &&
        f->result.altered + f->result.unchanged == 0) {
        f->not_injected = true;
        if (!(f->why = sdc__strdup("no planned byte was read back as altered")))
            st = SDC_NOMEM(err, "a message");
    }
out:
    sdc_fault_list_release(&list);
    return st;
}

/* ---- what is altered ---- */

static void lowest_bits(struct sdc_choice *c, uint64_t n) {
    c->flips = n;
    c->parts = 1u << SDC_PART_MODEL;
    c->roles = 1u << SDC_ROLE_WEIGHT;
    c->bits[0] = (struct sdc_bits_item){.kind = SDC_BITS_LSB};
    c->n_bits = 1;
}

static void all_weights_nan(struct sdc_choice *c) {
    c->mode = SDC_CHOICE_EXHAUSTIVE;
    c->parts = 1u << SDC_PART_MODEL;
    c->roles = 1u << SDC_ROLE_WEIGHT;
    c->op = SDC_OP_VALUE;
    c->value = NAN;
}

/* How many weights there are: lowest bits that can be flipped. */
static uint64_t count_weights(struct sdc_ckpt *ckpt) {
    uint64_t n = 0;
    for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++) {
        const struct sdc_tensor_desc *t = sdc_ckpt_tensor(ckpt, i);
        if (t->part == SDC_PART_MODEL && t->role == SDC_ROLE_WEIGHT && !t->locked)
            n += t->n_elems;
    }
    return n;
}

/* One flipped lowest bit mostly vanishes in rounding, and now and then switches a ReLU or a maximum
 * at some sample, which changes losses 10,000 times as much. A few replicas with one bit each are
 * therefore all of the first kind or not, by chance. Half of all lowest bits, drawn anew for each
 * replica, switch something in every replica: the spread is that of what rounding can do. */
enum sdc_status sdc__exec_alter_e0(struct sdc_exec *x, uint32_t group, uint32_t replica,
                                   const char *folder, struct sdc_exec_faults *faults,
                                   struct sdc_error *err) {
    struct sdc_exec_base *base = sdc__exec_base_of(x, group);
    struct sdc_choice choice;
    struct stream stream = {.purpose = SDC_RNG_CONTROL,
                            .block = sdc__plan_spread_block(x->plan, group),
                            .trial = replica};
    sdc_choice_init(&choice);
    enum sdc_status st = sdc__exec_base_open(base, err);
    if (st == SDC_OK) {
        uint64_t n = count_weights(base->ckpt) / 2;
        lowest_bits(&choice, n < 1 ? 1 : n > MAX_LOWEST_BITS ? MAX_LOWEST_BITS : n);
        st = alter(x, base, &choice, &stream, false, folder, faults, err);
    }
    if (st == SDC_OK && faults->not_injected)
        st = SDC_ERR(err, SDC_INTERNAL, "a clean replica could not be made: %s", faults->why);
    sdc_choice_release(&choice);
    return st;
}

enum sdc_status sdc__exec_alter_trial(struct sdc_exec *x, const struct sdc_plan_trial *trial,
                                      const char *folder, struct sdc_exec_faults *faults,
                                      struct sdc_error *err) {
    const struct sdc_plan_cell *cell =
        trial->cell != SDC_PLAN_NONE ? &x->plan->cells[trial->cell] : NULL;
    struct sdc_choice own;
    struct stream stream = {
        .purpose = trial->purpose, .block = trial->block_key, .trial = trial->index};
    sdc_choice_init(&own);
    if (trial->kind == SDC_TRIAL_PLACEBO)
        own.flips = 0;
    else if (trial->kind == SDC_TRIAL_ONE_LSB)
        lowest_bits(&own, 1);
    else if (trial->kind == SDC_TRIAL_ALL_NAN)
        all_weights_nan(&own);
    enum sdc_status st =
        alter(x, sdc__exec_base_of(x, trial->group), cell ? &cell->draw_choice : &own, &stream,
              cell && cell->map_to_optimizer, folder, faults, err);
    if (st != SDC_OK && cell)
        sdc_error_prefix(err, "cell %s (%s)", cell->id, cell->label);
    sdc_choice_release(&own);
    return st;
}
