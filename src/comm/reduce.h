/* SPDX-License-Identifier: Apache-2.0
 *
 * Order of the additions in the sums over ranks that real libraries compute on a CPU, as pure
 * functions over the ranks' vectors. Not the transport: that is comm/comm.h.
 *
 * Gloo: what PyTorch's DDP uses on a CPU for every size (gloo/allreduce.cc, "segmented ring").
 * Open MPI 4.1.4: what Horovod gets from MPI_Allreduce; the algorithm goes by ranks and bytes
 * (coll_tuned_decision_fixed.c), the associations are those of coll_base_allreduce.c.
 *
 * Elements are F32, F64 or F16, and each addition is rounded to that type: of F16 in F32 and then
 * to F16 at every hop, as both libraries do it (gloo/types.h; Horovod's own MPI operation,
 * half.cc). The bits equal those of the real algorithm but for the payload of a NaN. Thread-safe.
 */
#ifndef SDC_COMM_REDUCE_H
#define SDC_COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/num.h"

/* name, text, redundant: every rank computes the whole vector, instead of one part that is then
 * copied (matters for faults, not for bits) */
#define SDC_SUM_MAP(X)                                                                             \
    X(GLOO_RING, "gloo-ring", false)                                                               \
    X(OMPI_RECURSIVE_DOUBLING, "ompi-recursive-doubling", true)                                    \
    X(OMPI_RING, "ompi-ring", false)                                                               \
    X(OMPI_SEGMENTED_RING, "ompi-segmented-ring", false)                                           \
    X(OMPI_RABENSEIFNER, "ompi-rabenseifner", false)

enum sdc_sum {
#define SDC_SUM_ENUM(name, text, redundant) SDC_SUM_##name,
    SDC_SUM_MAP(SDC_SUM_ENUM)
#undef SDC_SUM_ENUM
        SDC_SUM_COUNT
};

const char *sdc_sum_name(enum sdc_sum sum);
bool sdc_sum_redundant(enum sdc_sum sum);
/* Bytes of an element that can be summed; 0: not of this type. */
size_t sdc_sum_size(enum sdc_dtype type);

/* The algorithm that Open MPI 4.1.4's coll/tuned picks for a sum of n elements of elem_size bytes
 * over `ranks` processes (1 to 127) of one host. */
enum sdc_sum sdc_sum_ompi_choice(unsigned ranks, size_t n, size_t elem_size);

/* The elements [*first, *end) that `rank` finishes, 0 to n; empty (*first == *end) where there are
 * fewer elements than parts. Over all ranks the parts cover 0 .. n once. Of a redundant algorithm:
 * everything. */
void sdc_sum_part(enum sdc_sum sum, enum sdc_dtype type, unsigned ranks, size_t n, unsigned rank,
                  size_t *first, size_t *end);

/* out[first .. end) = sum over the ranks of in[rank][first .. end), n being the length of the whole
 * vectors, which decides the geometry. out (also n long) must not overlap any in. Any range may be
 * asked for, not only parts. */
void sdc_sum_compute(enum sdc_sum sum, enum sdc_dtype type, unsigned ranks, const void *const in[],
                     size_t n, size_t first, size_t end, void *out);
/* The same where in[] and out hold the range alone: each points to its element `first`. */
void sdc_sum_compute_range(enum sdc_sum sum, enum sdc_dtype type, unsigned ranks,
                           const void *const in[], size_t n, size_t first, size_t end, void *out);

#endif
