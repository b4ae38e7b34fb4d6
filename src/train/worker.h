/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer as a worker process (sdc/worker.h): connects to the pool's socket, says hello,
 * carries out runs until it is told to quit or the socket closes. A failed run is answered with its
 * status, and the worker goes on; only a trainer that lost its threads ends it.
 */
#ifndef SDC_TRAIN_WORKER_H
#define SDC_TRAIN_WORKER_H

#include "sdc/status.h"

#define SDC_WORKER_ENV "SDCLAB_WORKER" /* "unix:PATH" */
#define SDC_TOKEN_ENV  "SDCLAB_TOKEN"

/* where: the value of SDCLAB_WORKER. SDC_OK after quit or a closed socket; SDC_UNSUPPORTED: an
 * address that is not unix:PATH; SDC_IO, SDC_NO_MEMORY; SDC_INVALID: a message that is none;
 * SDC_INTERNAL: the trainer is lost, the process should end at once without cleaning up. */
enum sdc_status sdc_train_serve(const char *where, const char *token,
                                struct sdc_error *err) SDC_MUST_CHECK;

#endif
