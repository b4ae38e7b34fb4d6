/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that stay between runs, one per rank. A job runs the same function on all of them; the
 * caller waits. A thread that never comes back is not waited for for ever.
 */
#ifndef SDC_TRAIN_TEAM_H
#define SDC_TRAIN_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sdc/status.h"

struct sdc_team;

typedef void sdc_team_function(unsigned rank, void *arg);

/* SDC_NO_MEMORY; SDC_LIMIT: the system gives no more threads. */
enum sdc_status sdc_team_new(unsigned ranks, struct sdc_team **out,
                             struct sdc_error *err) SDC_MUST_CHECK;
/* Ends and joins the threads. Accepts NULL. A team that lost a thread cannot be freed: its memory
 * is left, and the process should end soon. */
void sdc_team_free(struct sdc_team *team);

/* f(rank, arg) on every thread; returns when all are back. *beat is a counter that the job moves
 * while it makes progress: if it stands still for stall_ms, SDC_TIMEOUT is returned, and the team
 * has lost its threads: what arg points to must stay, as they may still use it. */
enum sdc_status sdc_team_run(struct sdc_team *team, sdc_team_function *f, void *arg,
                             atomic_uint *beat, unsigned stall_ms,
                             struct sdc_error *err) SDC_MUST_CHECK;
bool sdc_team_lost(const struct sdc_team *team);

#endif
