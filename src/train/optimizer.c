/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimizer.h"

#include <string.h>

#include "base/guard.h"

enum sdc_status sdc_optimizer_make(const struct sdc_run *run, struct sdc_optimizer *o,
                                   struct sdc_error *err) {
    const char *name = run->optimizer.name;
    const bool adam = strcmp(name, "adam") == 0, adamw = strcmp(name, "adamw") == 0;
    if (!adam && !adamw && strcmp(name, "sgd") != 0)
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "optimizer: found '%s', the native trainer has sgd, adam and adamw", name);
    *o = (struct sdc_optimizer){
        .keeps = adam || adamw                  ? SDC_KEEPS_MOMENTS
                 : run->optimizer.momentum != 0 ? SDC_KEEPS_MOMENTUM
                                                : SDC_KEEPS_NOTHING,
        .sgd = {.lr = run->optimizer.lr,
                .momentum = run->optimizer.momentum,
                .weight_decay = run->optimizer.weight_decay,
                .nesterov = run->optimizer.nesterov},
        .adam = {.lr = run->optimizer.lr,
                 .beta1 = run->optimizer.beta1,
                 .beta2 = run->optimizer.beta2,
                 .eps = run->optimizer.eps,
                 .weight_decay = run->optimizer.weight_decay,
                 .decoupled = adamw},
    };
    return sdc_schedule_make(run, &o->schedule, err);
}

/* Parameter by parameter, as each has a step counter of its own. */
static enum sdc_status adam_step(const struct sdc_nn_adam *adam, struct sdc_nn_engine *engine,
                                 struct sdc_train_state *s, const float *grads,
                                 struct sdc_error *err) {
    for (unsigned i = 0; i < s->model->n_params; i++) {
        const struct sdc_param *p = &s->model->params[i];
        s->steps[i] += 1.0f;
        enum sdc_status st =
            sdc_nn_adam_step(engine, adam, p->n, s->params + p->off, grads + p->off,
                             s->slots[0] + p->off, s->slots[1] + p->off, (double)s->steps[i], err);
        if (st != SDC_OK) {
            sdc_error_prefix(err, "parameter %s", p->name);
            return st;
        }
    }
    return SDC_OK;
}

enum sdc_status sdc_optimizer_step(const struct sdc_optimizer *o, struct sdc_nn_engine *engine,
                                   struct sdc_train_state *s, const float *grads,
                                   struct sdc_error *err) {
    const double lr = s->schedule ? s->loop.schedule.lr : o->schedule.base_lr;
    const bool first = !s->has_optimizer;
    s->has_optimizer = true;
    if (o->keeps == SDC_KEEPS_MOMENTS) {
        struct sdc_nn_adam adam = o->adam;
        adam.lr = lr;
        return adam_step(&adam, engine, s, grads, err);
    }
    struct sdc_nn_sgd sgd = o->sgd;
    sgd.lr = lr;
    sdc_nn_sgd_step(engine, &sgd, s->model->flat, s->params, grads, s->slots[0], first);
    return SDC_OK;
}
