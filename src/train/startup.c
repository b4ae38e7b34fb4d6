/* SPDX-License-Identifier: Apache-2.0 */
#include "train/startup.h"

#include <string.h>

#include "base/alloc.h"

bool sdc_startup_reads_model(const struct sdc_switches *sw, unsigned rank) {
    return sw->read_model == SDC_WHO_ALL || rank == 0;
}

bool sdc_startup_reads_optimizer(const struct sdc_switches *sw, unsigned rank) {
    return sw->read_optimizer == SDC_WHO_ALL || rank == 0;
}

void sdc_startup_load(const struct sdc_switches *sw, unsigned rank, uint64_t seed_init,
                      const struct sdc_schedule *schedule, const struct sdc_train_state *file,
                      struct sdc_train_state *s) {
    sdc_train_state_fresh(s, seed_init, schedule);
    if (!file)
        return;
    if (sdc_startup_reads_model(sw, rank))
        sdc_train_state_copy_model(s, file);
    if (sdc_startup_reads_optimizer(sw, rank)) {
        sdc_train_state_copy_optimizer(s, file);
        s->loop = file->loop;
    }
}

/* One real step with zero gradients: the state then exists. */
static enum sdc_status fabricate_optimizer(const struct sdc_optimizer *optimizer,
                                           struct sdc_nn_engine *engine, struct sdc_train_state *s,
                                           struct sdc_error *err) {
    float *zero = sdc__alloc_tensor(s->model->flat, sizeof *zero);
    if (!zero)
        return SDC_NOMEM(err, "gradients");
    enum sdc_status st = sdc_optimizer_step(optimizer, engine, s, zero, err);
    sdc__free(zero);
    return st;
}

static enum sdc_status send_optimizer(const struct sdc_optimizer *optimizer,
                                      struct sdc_nn_engine *engine, struct sdc_comm *comm,
                                      struct sdc_train_state *s, struct sdc_error *err) {
    enum sdc_status st = SDC_OK;
    if (!s->has_optimizer)
        st = fabricate_optimizer(optimizer, engine, s, err);
    SDC_TRY(sdc_comm_agree(comm, st, err, NULL, err));
    for (unsigned k = 0; k < SDC_STATE_MAX_SLOTS; k++)
        if (s->slots[k])
            SDC_TRY(sdc_comm_broadcast(comm, 0, s->slots[k], s->model->flat * sizeof(float), err));
    if (!s->steps)
        return SDC_OK;
    return sdc_comm_broadcast(comm, 0, s->steps, s->model->n_params * sizeof *s->steps, err);
}

enum sdc_status sdc_startup_send_buffers(struct sdc_comm *comm, struct sdc_train_state *s,
                                         struct sdc_error *err) {
    const struct sdc_model *m = s->model;
    if (m->n_buffers == 0)
        return SDC_OK;
    SDC_TRY(sdc_comm_broadcast(comm, 0, s->buffers, m->buffer_flat * sizeof *s->buffers, err));
    return sdc_comm_broadcast(comm, 0, s->counters, m->n_counters * sizeof *s->counters, err);
}

static enum sdc_status send_model(struct sdc_comm *comm, struct sdc_train_state *s,
                                  struct sdc_error *err) {
    SDC_TRY(sdc_comm_broadcast(comm, 0, s->params, s->model->flat * sizeof *s->params, err));
    return sdc_startup_send_buffers(comm, s, err);
}

enum sdc_status sdc_startup_exchange(const struct sdc_switches *sw,
                                     const struct sdc_optimizer *optimizer,
                                     struct sdc_nn_engine *engine, struct sdc_comm *comm,
                                     struct sdc_train_state *s, struct sdc_error *err) {
    bool optimizer_last = sw->order == SDC_ORDER_PARAMETERS_FIRST;
    if (sw->broadcast_optimizer && !optimizer_last)
        SDC_TRY(send_optimizer(optimizer, engine, comm, s, err));
    if (sw->broadcast_model)
        SDC_TRY(send_model(comm, s, err));
    if (sw->broadcast_optimizer && optimizer_last)
        SDC_TRY(send_optimizer(optimizer, engine, comm, s, err));
    if (sw->broadcast_optimizer || sw->read_optimizer == SDC_WHO_RANK0)
        SDC_TRY(sdc_comm_broadcast(comm, 0, &s->loop, sizeof s->loop, err));
    return SDC_OK;
}
