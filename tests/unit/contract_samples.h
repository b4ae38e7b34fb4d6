/* SPDX-License-Identifier: Apache-2.0
 *
 * One of every message of the contract, filled with values that are awkward to write: NaN, -0, the
 * largest integers, quotes and line ends. Shared by the unit tests and contract_tool.
 */
#ifndef SDC_TESTS_CONTRACT_SAMPLES_H
#define SDC_TESTS_CONTRACT_SAMPLES_H

#include "sdc/events.h"
#include "sdc/record.h"
#include "sdc/run.h"
#include "sdc/worker.h"

/* All of them end the program if memory runs out: they are tests' material. */
void sample_run(struct sdc_run *run);
void sample_event(enum sdc_event_kind kind, struct sdc_event *e);
void sample_message(enum sdc_worker_kind kind, struct sdc_worker_message *m);

void sample_header(struct sdc_record_header *h); /* release through a struct sdc_record */
/* Several operators, types and byte orders; i below SAMPLE_CHANGES; texts are static. */
#define SAMPLE_CHANGES 9
struct sdc_record_change sample_change(size_t i);

char *sample_text(const char *s); /* a copy to be owned by a struct */

#endif
