/* SPDX-License-Identifier: Apache-2.0
 *
 * Index lists of a run, for other trainers and for people.
 */
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/str.h"
#include "sdc/data.h"
#include "train/files.h"
#include "train/source.h"
#include "train/startup.h"
#include "train/state.h"
#include "train/train.h"

#define SCHEMA "sdclab.samples/1"

struct listing {
    const struct sdc_run *run;
    struct sdc_augment augment;
    uint64_t per_epoch;
    struct sdc_sampler *sampler;
    struct sdc_loop_state loops[SDC_MAX_RANKS];
    uint32_t *indices; /* of all ranks */
    uint32_t epochs[SDC_MAX_RANKS];
};

/* Where each rank stands after start-up (train/startup.h). */
static enum sdc_status find_loops(struct listing *l, struct sdc_error *err) {
    const struct sdc_run *run = l->run;
    const bool from_rank0 =
        run->switches.broadcast_optimizer || run->switches.read_optimizer == SDC_WHO_RANK0;
    for (uint32_t r = 0; r < run->ranks; r++) {
        l->loops[r] = sdc_loop_state_fresh();
        if (run->n_load == 0)
            continue;
        if (r > 0 && from_rank0)
            l->loops[r] = l->loops[0];
        else
            SDC_TRY(sdc_train_load_loop(run->load[r].path, &l->loops[r], err));
    }
    return SDC_OK;
}

static void write_draws(const struct listing *l, struct sdc_jw *w) {
    const struct sdc_augment *a = &l->augment;
    for (int what = 0; what < 2; what++) {
        if (what == 0 ? a->crop_padding == 0 : !a->flip)
            continue;
        sdc__jw_key(w, what == 0 ? "crops" : "flips");
        sdc__jw_arr(w);
        for (uint32_t r = 0; r < l->run->ranks; r++) {
            sdc__jw_arr(w);
            for (uint32_t i = 0; i < l->run->batch; i++) {
                const struct sdc_augment_draw draw =
                    sdc_augment_draw(a, l->epochs[r], l->indices[(size_t)r * l->run->batch + i]);
                if (what == 1) {
                    sdc__jw_bool(w, draw.flip);
                    continue;
                }
                sdc__jw_arr(w);
                sdc__jw_u64(w, draw.row);
                sdc__jw_u64(w, draw.column);
                sdc__jw_arr_end(w);
            }
            sdc__jw_arr_end(w);
        }
        sdc__jw_arr_end(w);
    }
}

static void write_step(const struct listing *l, uint64_t step, struct sdc_jw *w) {
    sdc__jw_obj(w);
    sdc__jw_kstr(w, "schema", SCHEMA);
    sdc__jw_ku64(w, "step", step);
    sdc__jw_key(w, "epochs");
    sdc__jw_arr(w);
    for (uint32_t r = 0; r < l->run->ranks; r++)
        sdc__jw_u64(w, l->epochs[r]);
    sdc__jw_arr_end(w);
    sdc__jw_key(w, "samples");
    sdc__jw_arr(w);
    for (uint32_t r = 0; r < l->run->ranks; r++) {
        sdc__jw_arr(w);
        for (uint32_t i = 0; i < l->run->batch; i++)
            sdc__jw_u64(w, l->indices[(size_t)r * l->run->batch + i]);
        sdc__jw_arr_end(w);
    }
    sdc__jw_arr_end(w);
    write_draws(l, w);
    sdc__jw_obj_end(w);
}

static enum sdc_status next_batches(struct listing *l, struct sdc_error *err) {
    for (uint32_t r = 0; r < l->run->ranks; r++) {
        uint64_t at;
        sdc_loop_state_next(&l->loops[r], l->per_epoch, &at);
        l->epochs[r] = (uint32_t)(at / l->per_epoch);
        SDC_TRY(sdc_sampler_batch(l->sampler, r, at, l->indices + (size_t)r * l->run->batch, err));
    }
    return SDC_OK;
}

static enum sdc_status prepare(struct listing *l, uint64_t n, struct sdc_error *err) {
    const struct sdc_sharding sharding = sdc_run_sharding(l->run, n);
    l->augment = sdc_run_augment(l->run);
    l->per_epoch = sdc_sampler_steps_per_epoch(&sharding);
    SDC_TRY(sdc_sampler_new(&sharding, &l->sampler, err));
    l->indices = sdc__calloc((size_t)l->run->ranks * l->run->batch, sizeof *l->indices);
    if (!l->indices)
        return SDC_NOMEM(err, "index lists");
    return find_loops(l, err);
}

enum sdc_status sdc_train_list_samples(const struct sdc_run *run, uint64_t n,
                                       enum sdc_status (*put)(void *arg, const char *line,
                                                              size_t len, struct sdc_error *err),
                                       void *arg, struct sdc_error *err) {
    struct listing l = {.run = run};
    struct sdc_buf line = SDC_BUF_INIT;
    enum sdc_status st = prepare(&l, n, err);
    for (uint64_t step = run->from_step; st == SDC_OK && step < run->to_step; step++) {
        st = next_batches(&l, err);
        if (st != SDC_OK)
            break;
        sdc__buf_clear(&line);
        struct sdc_jw w = sdc__jw(&line);
        write_step(&l, step + 1, &w);
        sdc__buf_putc(&line, '\n');
        st = line.failed ? SDC_NOMEM(err, "index lists") : put(arg, line.data, line.len, err);
    }
    sdc__buf_release(&line);
    sdc_sampler_free(l.sampler);
    sdc__free(l.indices);
    return st;
}
