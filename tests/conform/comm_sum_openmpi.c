/* SPDX-License-Identifier: Apache-2.0
 *
 * Real MPI_Allreduce for comm_sum_openmpi.py, which compiles this: sums the vectors of lengths
 * argv[3..] and elements of argv[2] bytes (4: float, 8: double, 2: half, by an operation of ours as
 * Horovod has one), read one after another from FOLDER/in-RANK, into FOLDER/out-RANK.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void add_half(void *in, void *inout, int *n, MPI_Datatype *type) {
    const _Float16 *a = in;
    _Float16 *b = inout;
    (void)type;
    for (int i = 0; i < *n; i++)
        b[i] = (_Float16)((float)b[i] + (float)a[i]);
}

int main(int argc, char *argv[]) {
    int rank;
    char path[4096];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/in-%d", argv[1], rank);
    FILE *in = fopen(path, "rb");
    snprintf(path, sizeof path, "%s/out-%d", argv[1], rank);
    FILE *out = fopen(path, "wb");
    size_t size = (size_t)strtol(argv[2], NULL, 10);
    MPI_Datatype half, type = size == 8 ? MPI_DOUBLE : MPI_FLOAT;
    MPI_Op op = MPI_SUM;
    if (size == 2) {
        MPI_Type_contiguous(2, MPI_BYTE, &half);
        MPI_Type_commit(&half);
        MPI_Op_create(add_half, 1, &op);
        type = half;
    }
    for (int i = 3; i < argc && in && out; i++) {
        int n = (int)strtol(argv[i], NULL, 10);
        void *x = malloc((size_t)n * size);
        if (!x || fread(x, size, (size_t)n, in) != (size_t)n)
            MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Allreduce(MPI_IN_PLACE, x, n, type, op, MPI_COMM_WORLD);
        if (fwrite(x, size, (size_t)n, out) != (size_t)n)
            MPI_Abort(MPI_COMM_WORLD, 1);
        free(x);
    }
    int bad = !in || !out || fclose(out) != 0;
    MPI_Finalize();
    return bad;
}
