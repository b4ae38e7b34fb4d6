/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says of the launcher that started this process. Reads it alone, and no MPI
 * library: needed before that is started, and in builds without it.
 */
#include <stdlib.h>

#include "base/str.h"
#include "comm/comm.h"

/* Rank and size as each launcher gives them. Slurm's own come last: they are there whatever else
 * the step uses, and SLURM_STEP_NUM_TASKS, unlike SLURM_NTASKS, only inside of srun. */
static const struct {
    const char *rank, *size;
} words[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

static bool number(const char *name, unsigned *out) {
    unsigned long long value;
    const char *text = getenv(name);
    if (!text || !sdc__parse_u64(text, &value) || value > 1000000)
        return false;
    *out = (unsigned)value;
    return true;
}

bool sdc_comm_launched(unsigned *rank, unsigned *size) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (number(words[i].rank, rank) && number(words[i].size, size) && *rank < *size)
            return true;
    *rank = 0;
    *size = 1;
    return false;
}
