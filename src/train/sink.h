/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run's events go: OUTPUT/events.jsonl, and a listener. Lines are gathered for a short time
 * before they are written, so that a step does not wait for the disk; who watches the file still
 * sees it grow. Used by one thread at a time.
 */
#ifndef SDC_TRAIN_SINK_H
#define SDC_TRAIN_SINK_H

#include "base/str.h"
#include "io/io.h"
#include "sdc/events.h"
#include "sdc/status.h"
#include "train/train.h"

struct sdc_sink {
    struct sdc_file file;
    struct sdc_buf waiting;
    uint64_t start_ns, written_ns;
    const struct sdc_train_hooks *hooks; /* borrowed; may be NULL */
};

/* Starts the file anew. SDC_IO, SDC_NO_MEMORY. */
enum sdc_status sdc_sink_open(struct sdc_sink *sink, const char *folder,
                              const struct sdc_train_hooks *hooks,
                              struct sdc_error *err) SDC_MUST_CHECK;
/* Sets elapsed, writes the event, tells the listener. The event stays the caller's. */
enum sdc_status sdc_sink_put(struct sdc_sink *sink, struct sdc_event *event,
                             struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc_sink_flush(struct sdc_sink *sink, struct sdc_error *err) SDC_MUST_CHECK;
void sdc_sink_close(struct sdc_sink *sink);

#endif
