/* SPDX-License-Identifier: Apache-2.0
 *
 * Time of one collective and peak memory, for bench_comm.py. Usage: bench_comm threads RANKS, or
 * bench_comm mpi as one process of several. Prints lines "what bytes microseconds" and "memory
 * bytes 0" on rank 0: medians, and the peak of this process (of threads: of all ranks together).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "comm/comm.h"

#define MOST_BYTES ((size_t)25 << 20)
#define MOST_TIMES 200

static void check(enum sdc_status st, const struct sdc_error *err) {
    if (st == SDC_OK)
        return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void measure(struct sdc_comm *comm, const char *what, enum sdc_sum sum, float *data,
                    size_t bytes) {
    struct sdc_error err;
    uint64_t times[MOST_TIMES];
    unsigned n = bytes > 1000000 ? 15 : MOST_TIMES;
    for (unsigned i = 0; i < n + 3; i++) { /* the first three warm up */
        check(sdc_comm_barrier(comm, &err), &err);
        uint64_t before = sdc__now_ns();
        if (bytes > 0)
            check(sdc_comm_allreduce(comm, sum, SDC_DTYPE_F32, data, bytes / 4, &err), &err);
        else
            check(sdc_comm_barrier(comm, &err), &err);
        if (i >= 3)
            times[i - 3] = sdc__now_ns() - before;
    }
    qsort(times, n, sizeof times[0], by_value);
    if (sdc_comm_rank(comm) == 0)
        printf("%s %zu %.1f\n", what, bytes, (double)times[n / 2] * 1e-3);
}

static void *rank_main(void *arg) {
    static const size_t sizes[] = {4096, 246824, 1 << 20, MOST_BYTES};
    struct sdc_comm *comm = arg;
    float *data = sdc__alloc_tensor(MOST_BYTES, 1);
    if (!data)
        exit(1);
    measure(comm, "barrier", SDC_SUM_GLOO_RING, data, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure(comm, "sum", SDC_SUM_GLOO_RING, data, sizes[i]);
    sdc__free(data);
    return NULL;
}

int main(int argc, char *argv[]) {
    struct sdc_error err;
    struct sdc_comm *ends[SDC_MAX_RANKS];
    pthread_t threads[SDC_MAX_RANKS];
    unsigned rank = 0, ranks = 0;
    unsigned long long asked = 0;
    const struct sdc_comm_ops *ops = argc > 1 ? sdc_comm_find(argv[1]) : NULL;
    if (!ops || (!sdc_comm_is_processes(ops) && (argc != 3 || !sdc__parse_u64(argv[2], &asked)))) {
        fprintf(stderr, "usage: bench_comm threads RANKS | mpirun ... bench_comm mpi\n");
        return 2;
    }
    ranks = (unsigned)asked;
    if (sdc_comm_is_processes(ops))
        check(sdc_comm_start(ops, 0, &rank, &ranks, &err), &err);
    check(sdc_comm_group_new(ops, ranks, MOST_BYTES, 0, ends, &err), &err);
    if (sdc_comm_is_processes(ops)) {
        rank_main(ends[rank]);
    } else {
        for (unsigned r = 0; r < ranks; r++)
            if (pthread_create(&threads[r], NULL, rank_main, ends[r]) != 0)
                return 1;
        for (unsigned r = 0; r < ranks; r++)
            pthread_join(threads[r], NULL);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (rank == 0)
        printf("memory %ld 0\n", usage.ru_maxrss * 1024);
    sdc_comm_group_free(ends, ranks);
    if (sdc_comm_is_processes(ops))
        sdc_comm_finish(ops, true, 0);
    return 0;
}
