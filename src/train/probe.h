/* SPDX-License-Identifier: Apache-2.0
 *
 * Live faults of one rank: drawn once, before the first step, from the descriptors of what a probe
 * point shows, and put into memory when the rank gets there. enum sdc_probe_point (sdc/run.h) names
 * the points.
 *
 * A rank without a fault due in a step has a NULL probe, so nothing attached costs one comparison
 * at each point. One thread at a time: the rank's.
 */
#ifndef SDC_TRAIN_PROBE_H
#define SDC_TRAIN_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/events.h"
#include "sdc/run.h"
#include "sdc/status.h"
#include "train/state.h"

struct sdc_probe;

/* Draws the faults of this rank. state, which is left as it was, gives the descriptors that there
 * are after the first step; they must stay where they are. SDC_USAGE names the fault and what its
 * choice lacks here: a tensor that the point does not show, more sites than there are;
 * SDC_NO_MEMORY. *out is NULL where the run has no fault for this rank. */
enum sdc_status sdc_probe_new(const struct sdc_run *run, unsigned rank,
                              struct sdc_train_state *state, struct sdc_probe **out,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc_probe_free(struct sdc_probe *p); /* accepts NULL */

/* Gets ready for a step (counted as in the events): p, or NULL where nothing is due in it. p may be
 * NULL. */
struct sdc_probe *sdc_probe_at(struct sdc_probe *p, uint64_t step);
/* Alters tensor number `tensor` of this point in memory where a fault of this step meets it. data
 * is the tensor's n_elems elements; parameters and gradients are numbered as the model's. */
void sdc_probe_hit(struct sdc_probe *p, enum sdc_probe_point point, size_t tensor, void *data);
/* Parameters, optimizer state and buffers: all tensors of the point, where they lie in the state.
 */
void sdc_probe_hit_state(struct sdc_probe *p, enum sdc_probe_point point,
                         struct sdc_train_state *state);

/* What a fault has done. */
#define SDC_PROBE_CHANGES 8 /* that are told one by one */
struct sdc_probe_change {
    uint32_t tensor; /* number at its point */
    uint64_t elem, before, after;
};
struct sdc_probe_report {
    uint64_t changed; /* elements */
    struct sdc_probe_change changes[SDC_PROBE_CHANGES];
};
/* False: fault number `fault` of the run is not this rank's. p may be NULL. */
bool sdc_probe_report(const struct sdc_probe *p, uint32_t fault, struct sdc_probe_report *report);
/* Any rank can say what a tensor's number at a point means; borrowed from the state. */
const char *sdc_probe_tensor_name(struct sdc_train_state *state, enum sdc_probe_point point,
                                  size_t tensor);

#endif
