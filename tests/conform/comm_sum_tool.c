/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums vectors with rank threads, for scripts to compare with other implementations.
 * stdin, repeated: u32 algorithm (enum sdc_sum; 255: what Open MPI would pick), u32 ranks, u32 n,
 * u32 bytes of an element (2: F16, 4: F32, 8: F64), ranks * n elements. stdout: the ranks' results,
 * ranks * n elements.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "comm/comm.h"

struct job {
    struct sdc_comm *comm;
    enum sdc_sum sum;
    enum sdc_dtype type;
    unsigned char *data;
    size_t n;
    enum sdc_status st;
};

static void *job_main(void *arg) {
    struct job *j = arg;
    j->st = sdc_comm_allreduce(j->comm, j->sum, j->type, j->data, j->n, NULL);
    return NULL;
}

static int one_case(const uint32_t head[4]) {
    unsigned ranks = head[1];
    size_t n = head[2], size = head[3];
    enum sdc_dtype type = size == 8 ? SDC_DTYPE_F64 : size == 4 ? SDC_DTYPE_F32 : SDC_DTYPE_F16;
    struct sdc_comm *ends[SDC_MAX_RANKS];
    struct job jobs[SDC_MAX_RANKS];
    pthread_t threads[SDC_MAX_RANKS];
    unsigned char *data = malloc(ranks * n * size + 1);
    if (!data || fread(data, size, ranks * n, stdin) != ranks * n ||
        sdc_comm_group_new(sdc_comm_find("threads"), ranks, n * size, 0, ends, NULL) != SDC_OK)
        return 1;
    enum sdc_sum sum = head[0] == 255 ? sdc_sum_ompi_choice(ranks, n, size) : (enum sdc_sum)head[0];
    int bad = 0;
    for (unsigned r = 0; r < ranks; r++) {
        jobs[r] = (struct job){ends[r], sum, type, data + r * n * size, n, SDC_OK};
        bad |= pthread_create(&threads[r], NULL, job_main, &jobs[r]);
    }
    for (unsigned r = 0; r < ranks; r++) {
        pthread_join(threads[r], NULL);
        bad |= jobs[r].st != SDC_OK;
    }
    bad |= fwrite(data, size, ranks * n, stdout) != ranks * n;
    sdc_comm_group_free(ends, ranks);
    free(data);
    return bad;
}

int main(void) {
    uint32_t head[4];
    while (fread(head, sizeof head[0], 4, stdin) == 4) {
        if (head[1] < 1 || head[1] > SDC_MAX_RANKS || one_case(head))
            return 1;
    }
    return fflush(stdout) != 0;
}
