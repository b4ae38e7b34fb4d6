/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective operations of a group of ranks behind one table with several implementations. Not for
 * point-to-point messages, and not asynchronous.
 *
 * Implementations: "self" (one rank) and "threads" (ranks are threads of this process).
 *
 * A sum names its algorithm, because the order of the additions decides bits: see comm/reduce.h.
 * Every rank gets the same bits, those of the real library's algorithm.
 *
 * Life cycle: sdc_comm_group_new makes one end for each rank; each end is used by one thread; all
 * ends are freed together, when no rank is inside a call. A rank that cannot go on calls
 * sdc_comm_abort, after which every present and later call of every rank returns SDC_PEER; nobody
 * hangs. A rank that neither comes nor aborts makes the others return SDC_TIMEOUT.
 *
 * Distributed rule: inside a collective section no rank returns on its own. It keeps its status and
 * passes it to sdc_comm_agree (or in the record of a gather), and all leave together.
 *
 *     struct sdc_comm *ends[4];
 *     sdc_comm_group_new(sdc_comm_find("threads"), 4, n * sizeof(float), 0, ends, &err);
 *     ... in the thread of rank r:
 *     sdc_comm_allreduce(ends[r], SDC_SUM_GLOO_RING, SDC_DTYPE_F32, gradient, n, &err);
 *     sdc_comm_group_free(ends, 4);
 */
#ifndef SDC_COMM_COMM_H
#define SDC_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "comm/reduce.h"
#include "sdc/status.h"

struct sdc_comm;
struct sdc_comm_ops;

#define SDC_COMM_TIMEOUT_MS 300000u /* where 0 is given */
#define SDC_COMM_SMALL      256u    /* bytes a rank up to which a gather costs one meeting only */

/* Implementations in order of preference; NULL after the last. Static; thread-safe. */
const struct sdc_comm_ops *sdc_comm_at(size_t i);
const struct sdc_comm_ops *sdc_comm_find(const char *name); /* NULL: unknown */
const char *sdc_comm_name(const struct sdc_comm_ops *ops);
const char *sdc_comm_summary(const struct sdc_comm_ops *ops);

/* Makes the ends of a group of `ranks` (1 to SDC_MAX_RANKS) into ends[ranks]. max_bytes: the
 * longest sum that will be asked for. timeout_ms: longest wait for a peer, 0 for the
 * default. SDC_UNSUPPORTED: not so many ranks; SDC_NO_MEMORY. On failure ends[] is untouched. */
enum sdc_status sdc_comm_group_new(const struct sdc_comm_ops *ops, unsigned ranks, size_t max_bytes,
                                   unsigned timeout_ms, struct sdc_comm **ends,
                                   struct sdc_error *err) SDC_MUST_CHECK;
void sdc_comm_group_free(struct sdc_comm **ends, unsigned ranks); /* NULL members are skipped */

unsigned sdc_comm_rank(const struct sdc_comm *comm);
unsigned sdc_comm_size(const struct sdc_comm *comm);

/* ---- collective: called by every rank with the same arguments but for the data ----
 *
 * SDC_PEER: a peer gave up; SDC_TIMEOUT: a peer did not come; SDC_INTERNAL on every rank alike: the
 * ranks are not in the same call. After any of these the group is of no more use. */

enum sdc_status sdc_comm_barrier(struct sdc_comm *comm, struct sdc_error *err) SDC_MUST_CHECK;

/* size bytes from the root's data into everyone's. */
enum sdc_status sdc_comm_broadcast(struct sdc_comm *comm, unsigned root, void *data, size_t size,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* Sum of n elements over the ranks, in place, in the association of the named algorithm: of type
 * F32 or F64, or F16 (each addition in F32, rounded to F16). More than the group's max_bytes, or
 * another type, is SDC_INTERNAL. */
enum sdc_status sdc_comm_allreduce(struct sdc_comm *comm, enum sdc_sum sum, enum sdc_dtype type,
                                   void *data, size_t n, struct sdc_error *err) SDC_MUST_CHECK;

/* size bytes of every rank, in rank order, into all (ranks * size bytes) on every rank. */
enum sdc_status sdc_comm_gather(struct sdc_comm *comm, const void *mine, size_t size, void *all,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* Every rank gives its status; every rank gets the worst (numerically greatest) and the lowest rank
 * that had it as *rank (NULL allowed; 0 where all are SDC_OK). Where that is not SDC_OK, it is also
 * returned, and err has that rank's message behind "rank N: ". `own` is the caller's error, read
 * only if status is not SDC_OK; it may be err itself. */
enum sdc_status sdc_comm_agree(struct sdc_comm *comm, enum sdc_status status,
                               const struct sdc_error *own, unsigned *rank,
                               struct sdc_error *err) SDC_MUST_CHECK;

/* ---- not collective ---- */

/* Makes all calls of all ranks end with SDC_PEER, now and later. Any thread; any number of times.
 */
void sdc_comm_abort(struct sdc_comm *comm);

#endif
