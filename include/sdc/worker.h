/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between the pool and a worker, sdclab.worker/1: JSON lines over a stream socket;
 * schemas/worker-1.json. A worker is started once and runs many runs. The key "type" of a line
 * holds the first word below.
 *
 *   worker  hello {schema, token, trainer, versions, ranks, platform}
 *   pool    run {trial, path}      path of a run description
 *   worker  done {trial, status, message}
 *   pool    quit
 *
 * The pool starts the job with SDCLAB_WORKER=unix:PATH and SDCLAB_TOKEN=...; only rank 0 connects.
 */
#ifndef SDC_WORKER_H
#define SDC_WORKER_H

#include <stddef.h>
#include <stdint.h>

#include "sdc/events.h"
#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sdc_worker_kind { SDC_WORKER_HELLO, SDC_WORKER_RUN, SDC_WORKER_DONE, SDC_WORKER_QUIT };

struct sdc_worker_message {
    enum sdc_worker_kind kind;
    /* HELLO */
    char *token, *trainer, *platform; /* platform: everything a golden run depends on, one text */
    struct sdc_key_value *versions;   /* sorted by key */
    size_t n_versions;
    uint32_t ranks; /* 0: this worker runs any number of ranks (in-process ranks) */
    /* RUN, DONE */
    char *trial;
    char *path;             /* RUN */
    enum sdc_status status; /* DONE: SDC_OK also for a run that went wrong numerically */
    char *message;          /* DONE; NULL if none */
};

/* Frees what the message owns; it is then empty. */
SDC_API void sdc_worker_message_release(struct sdc_worker_message *m);
/* One line with its newline; free with sdc_text_free. */
SDC_API enum sdc_status sdc_worker_message_to_json(const struct sdc_worker_message *m, char **line,
                                                   struct sdc_error *err) SDC_MUST_CHECK;
/* Fills *m, which holds nothing before, on success alone. SDC_INVALID, SDC_MISMATCH (schema). */
SDC_API enum sdc_status sdc_worker_message_from_json(const char *line, size_t len,
                                                     struct sdc_worker_message *m,
                                                     struct sdc_error *err) SDC_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
