/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens between process start and the first step: which parts of the checkpoint a rank
 * takes, and what rank 0 then sends to all, by the switches of the run (protocol: recipes).
 *
 *  - Every rank starts from fresh weights, equal on all ranks.
 *  - It takes the model, the optimizer and the loop from its own file, as the switches say. Who
 *    reads the optimizer reads the loop too.
 *  - Rank 0's loop goes to all where rank 0 alone reads it, or where the optimizer is sent too (the
 *    epoch to resume from is broadcast beside it in Horovod's examples).
 *  - The model and the optimizer go from rank 0 to all, in the order the switches say.
 *
 * Sending the optimizer is Horovod's broadcast_optimizer_state, with its side effect: a rank whose
 * optimizer has no state yet makes it by one real step with zero gradients
 * (horovod/torch/functions.py 0.28.1). Under weight decay that step changes the rank's parameters.
 * Where the parameters were sent before, ranks differ from then on. On a fresh start all ranks do
 * the same.
 */
#ifndef SDC_TRAIN_STARTUP_H
#define SDC_TRAIN_STARTUP_H

#include "comm/comm.h"
#include "nn/nn.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "train/optimizer.h"
#include "train/state.h"

bool sdc_startup_reads_model(const struct sdc_switches *sw, unsigned rank);
bool sdc_startup_reads_optimizer(const struct sdc_switches *sw, unsigned rank);

/* Local: the rank's state from fresh weights and from what it reads of `file`, which is a loaded
 * checkpoint or NULL where there is none (a fresh start). */
void sdc_startup_load(const struct sdc_switches *sw, unsigned rank, uint64_t seed_init,
                      const struct sdc_schedule *schedule, const struct sdc_train_state *file,
                      struct sdc_train_state *s);

/* Collective: every rank gets rank 0's buffers. */
enum sdc_status sdc_startup_send_buffers(struct sdc_comm *comm, struct sdc_train_state *s,
                                         struct sdc_error *err) SDC_MUST_CHECK;

/* Collective: the broadcasts. */
enum sdc_status sdc_startup_exchange(const struct sdc_switches *sw,
                                     const struct sdc_optimizer *optimizer,
                                     struct sdc_nn_engine *engine, struct sdc_comm *comm,
                                     struct sdc_train_state *s,
                                     struct sdc_error *err) SDC_MUST_CHECK;

#endif
