/* SPDX-License-Identifier: Apache-2.0 */
#include "train/sink.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sdc/choice.h"

#define GATHER_NS 50000000u /* longest time a line of a step waits */

enum sdc_status sdc_sink_open(struct sdc_sink *sink, const char *folder,
                              const struct sdc_train_hooks *hooks, struct sdc_error *err) {
    *sink = (struct sdc_sink){.file = SDC_FILE_INIT, .hooks = hooks, .start_ns = sdc__now_ns()};
    sink->written_ns = sink->start_ns;
    char *path = sdc__asprintf("%s/events.jsonl", folder);
    if (!path)
        return SDC_NOMEM(err, "a path");
    enum sdc_status st = sdc__file_open(path, SDC_FILE_APPEND, &sink->file, err);
    if (st == SDC_OK)
        st = sdc__file_truncate(&sink->file, 0, err);
    sdc__free(path);
    return st;
}

enum sdc_status sdc_sink_flush(struct sdc_sink *sink, struct sdc_error *err) {
    if (sink->waiting.failed)
        return SDC_NOMEM(err, "events");
    sink->written_ns = sdc__now_ns();
    if (sink->waiting.len == 0)
        return SDC_OK;
    enum sdc_status st = sdc__file_append(&sink->file, sink->waiting.data, sink->waiting.len, err);
    sdc__buf_clear(&sink->waiting);
    return st;
}

enum sdc_status sdc_sink_put(struct sdc_sink *sink, struct sdc_event *event,
                             struct sdc_error *err) {
    char *line = NULL;
    uint64_t now = sdc__now_ns();
    event->elapsed = (double)(now - sink->start_ns) * 1e-9;
    SDC_TRY(sdc_event_to_json(event, &line, err));
    sdc__buf_puts(&sink->waiting, line);
    sdc_text_free(line);
    if (sink->hooks && sink->hooks->event)
        sink->hooks->event(sink->hooks->arg, event);
    if (event->kind == SDC_EVENT_STEP && now - sink->written_ns < GATHER_NS)
        return SDC_OK;
    return sdc_sink_flush(sink, err);
}

void sdc_sink_close(struct sdc_sink *sink) {
    sdc__file_close(&sink->file);
    sdc__buf_release(&sink->waiting);
}
