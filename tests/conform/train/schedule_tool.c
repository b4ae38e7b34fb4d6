/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule_tool RUN STEPS_PER_EPOCH: the schedule of a run description, for schedules_torch.py.
 * Reads a step's mean loss (f64) after the other from stdin; writes the rate before the first step
 * and the one after each (f64).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"
#include "train/schedule.h"

static int write_rate(const struct sdc_schedule_state *state) {
    return fwrite(&state->lr, sizeof state->lr, 1, stdout) == 1 ? 0 : 1;
}

int main(int argc, char *argv[]) {
    struct sdc_run run;
    struct sdc_error err;
    struct sdc_schedule schedule;
    unsigned long long per_epoch;
    double loss;
    int failed = 0;
    if (argc != 3 || !sdc__parse_u64(argv[2], &per_epoch) || per_epoch == 0)
        return 2;
    if (sdc_run_read(argv[1], &run, &err) != SDC_OK ||
        sdc_schedule_make(&run, &schedule, &err) != SDC_OK) {
        fprintf(stderr, "schedule_tool: %s\n", err.message);
        return 1;
    }
    struct sdc_schedule_state state = sdc_schedule_start(&schedule);
    failed |= write_rate(&state);
    for (uint64_t step = 1; fread(&loss, sizeof loss, 1, stdin) == 1; step++) {
        sdc_schedule_after_step(&schedule, &state, loss, step % per_epoch == 0, per_epoch);
        failed |= write_rate(&state);
    }
    sdc_run_release(&run);
    return failed;
}
