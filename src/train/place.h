/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of a trainer are: threads of this process, or processes of which this is one.
 * What is done once for all ranks where they are threads is done by every process for itself, and
 * its failure has to be everyone's: that is what is here. Where ranks are threads, nothing is.
 *
 * One thread, the one that started the processes' library.
 */
#ifndef SDC_TRAIN_PLACE_H
#define SDC_TRAIN_PLACE_H

#include <stdbool.h>

#include "comm/comm.h"
#include "sdc/run.h"
#include "sdc/status.h"

struct sdc_place {
    const struct sdc_comm_ops *comm; /* NULL: ranks are threads */
    unsigned rank, size;             /* of this process; 0 and 1 */
    struct sdc_comm *end;            /* its end of the group of all processes */
};

/* Makes the group; collective. *place is all zeros before. */
enum sdc_status sdc_place_join(struct sdc_place *place, const struct sdc_comm_ops *comm,
                               unsigned size, unsigned timeout_ms,
                               struct sdc_error *err) SDC_MUST_CHECK;
void sdc_place_leave(struct sdc_place *place);
bool sdc_place_lost(const struct sdc_place *place);

/* Collective: the worst status of all processes, with its message in err. *flag (NULL allowed)
 * becomes that of the process whose status it is. */
enum sdc_status sdc_place_agree(struct sdc_place *place, enum sdc_status status, bool *flag,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* Collective: the description that rank 0 has, unless `status` says that it has none. *run is
 * filled on the others, all zeros before. */
enum sdc_status sdc_place_share_run(struct sdc_place *place, enum sdc_status status,
                                    struct sdc_run *run, struct sdc_error *err) SDC_MUST_CHECK;

#endif
