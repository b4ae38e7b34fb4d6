/* SPDX-License-Identifier: Apache-2.0
 *
 * Real MPI_Allreduce for comm_sum_openmpi.py, which compiles this: sums the vectors of lengths
 * argv[2..], read one after another from FOLDER/in-RANK, into FOLDER/out-RANK.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char *argv[]) {
    int rank;
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/in-%d", argv[1], rank);
    FILE *in = fopen(path, "rb");
    snprintf(path, sizeof path, "%s/out-%d", argv[1], rank);
    FILE *out = fopen(path, "wb");
    for (int i = 2; i < argc && in && out; i++) {
        int n = (int)strtol(argv[i], NULL, 10);
        float *x = malloc((size_t)n * sizeof *x);
        if (!x || fread(x, sizeof *x, (size_t)n, in) != (size_t)n)
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (fwrite(x, sizeof *x, (size_t)n, out) != (size_t)n)
            MPI_Abort(MPI_COMM_WORLD, 1);
        free(x);
    }
    int bad = !in || !out || fclose(out) != 0;
    MPI_Finalize();
    return bad;
}
