/* SPDX-License-Identifier: Apache-2.0
 *
 * From the plan to run descriptions and to the streams of clean replicas.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"
#include "camp/plan.h"
#include "sdc/rng.h"

static enum sdc_status put_text(char **to, const char *text, struct sdc_error *err) {
    sdc__free(*to);
    *to = NULL;
    if (!text)
        return SDC_OK;
    *to = sdc__strdup(text);
    return *to ? SDC_OK : SDC_NOMEM(err, "a run description");
}

static enum sdc_status fill_run(const struct sdc_plan *plan, uint32_t cluster,
                                const struct sdc_setting *s, struct sdc_run *run,
                                struct sdc_error *err) {
    SDC_TRY(put_text(&run->trainer, s->trainer, err));
    SDC_TRY(put_text(&run->model, s->model, err));
    SDC_TRY(put_text(&run->kernels, s->kernels, err));
    SDC_TRY(put_text(&run->precision, s->precision, err));
    SDC_TRY(put_text(&run->data.name, s->data_name, err));
    SDC_TRY(put_text(&run->data.path, s->data_path, err));
    run->data.limit = s->data_limit;
    SDC_TRY(put_text(&run->optimizer.name, s->optimizer, err));
    run->optimizer.lr = s->lr;
    run->optimizer.momentum = s->momentum;
    run->optimizer.weight_decay = s->weight_decay;
    SDC_TRY(put_text(&run->schedule, s->schedule, err));
    run->ranks = s->ranks;
    run->batch = s->batch;
    run->seed_init = plan->clusters[cluster].seed_init;
    run->seed_data = plan->clusters[cluster].seed_data;
    return sdc_run_set_recipe(run, s->recipe->name, err);
}

enum sdc_status sdc__plan_training_run(const struct sdc_plan *plan, uint32_t training,
                                       struct sdc_run *run, struct sdc_error *err) {
    const struct sdc_plan_training *t = &plan->trainings[training];
    SDC_TRY(fill_run(plan, t->cluster, &plan->settings[t->setting], run, err));
    run->from_step = 0;
    run->to_step = t->steps;
    run->eval_samples = plan->spec->eval_samples;
    run->digest_every = 0;
    return SDC_OK;
}

enum sdc_status sdc__plan_group_run(const struct sdc_plan *plan, uint32_t group,
                                    struct sdc_run *run, struct sdc_error *err) {
    const struct sdc_plan_group *g = &plan->groups[group];
    SDC_TRY(fill_run(plan, g->cluster, &plan->settings[g->setting], run, err));
    run->from_step = g->checkpoint;
    run->to_step = g->to_step;
    run->eval_samples = plan->spec->eval_samples;
    run->digest_every = plan->spec->digest_every;
    return SDC_OK;
}

uint64_t sdc__plan_spread_seed(const struct sdc_plan *plan, uint32_t cluster, uint32_t replica) {
    struct sdc_rng rng;
    static const char name[] = "e1";
    sdc_rng_init(&rng, plan->spec->seed, SDC_RNG_CONTROL,
                 sdc__hash32(name, sizeof name - 1) ^ cluster, replica);
    return sdc_rng_u64(&rng) >> 1;
}

uint32_t sdc__plan_spread_block(const struct sdc_plan *plan, uint32_t group) {
    const struct sdc_plan_group *g = &plan->groups[group];
    const struct sdc_setting *s = &plan->settings[g->setting];
    struct sdc_buf b = SDC_BUF_INIT;
    sdc__buf_printf(&b, "e0\ncluster=%u\ncheckpoint=%llu\nmodel=%s\nranks=%u\n", g->cluster,
                    (unsigned long long)g->checkpoint, s->model, s->ranks);
    uint32_t key = b.data ? sdc__hash32(b.data, b.len) : 0;
    sdc__buf_release(&b);
    return key;
}

double sdc__plan_null_q(const struct sdc_choice *choice) {
    const uint64_t top = UINT64_C(1) << sdc_num_top_exponent_bit(SDC_DTYPE_F32);
    uint64_t sites = sdc_choice_bits(choice, SDC_DTYPE_F32),
             reach = top; /* bits whose site hits it */
    switch (choice->op) {
    case SDC_OP_VALUE:
        return choice->value - choice->value == 0 ? 0.0 : 1.0; /* NaN and infinities */
    case SDC_OP_RANDOM:
        return 0.5;
    case SDC_OP_SET0:
    case SDC_OP_SCALE:
    case SDC_OP_SWAP:
        return 0.0;
    case SDC_OP_MASK:
        if (choice->mask_length == 0)
            return choice->mask & top ? 1.0 : 0.0;
        reach = 0;
        for (unsigned b = 0; b < choice->mask_length; b++)
            if (choice->mask >> b & 1)
                reach |= top >> b;
        break;
    case SDC_OP_BURST:
        reach = 0;
        for (unsigned b = 0; b < choice->count; b++)
            reach |= top >> b;
        break;
    case SDC_OP_FLIP:
    case SDC_OP_SET1:
        break;
    }
    double n = __builtin_popcountll(sites), hits = __builtin_popcountll(sites & reach);
    if (choice->op == SDC_OP_FLIP) /* `count` of the bits of an element */
        hits *= choice->count;
    return n > 0 ? hits / n : 0.0;
}
