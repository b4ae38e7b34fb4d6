/* SPDX-License-Identifier: Apache-2.0
 *
 * Collective operations of a group of ranks behind one table with several implementations. Not for
 * point-to-point messages, and not asynchronous.
 *
 * Implementations: "self" (one rank), "threads" (ranks are threads of this process) and, where it
 * was built in, "mpi" (each rank is a process, on one machine or several).
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
 *
 * Where ranks are processes (sdc_comm_is_processes), every process calls sdc_comm_start once, then
 * sdc_comm_group_new with the number of processes, which makes its own end alone (the other members
 * of ends[] are NULL), and sdc_comm_finish at last. All of that, and every call with the end, by
 * one and the same thread. What a lost group leaves in the library cannot be taken back: its memory
 * stays, and the process should end by sdc_comm_finish with `orderly` false.
 */
#ifndef SDC_COMM_COMM_H
#define SDC_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/reduce.h"
#include "sdc/status.h"

struct sdc_comm;
struct sdc_comm_ops;

#define SDC_COMM_TIMEOUT_MS 300000u /* where 0 is given */
#define SDC_COMM_HURRY_MS   600u    /* Open MPI's launcher kills a second after it asked */
#define SDC_COMM_SMALL      256u    /* bytes a rank up to which a gather costs one meeting only */

/* Implementations in order of preference; NULL after the last. Static; thread-safe. */
const struct sdc_comm_ops *sdc_comm_at(size_t i);
const struct sdc_comm_ops *sdc_comm_find(const char *name); /* NULL: unknown */
const char *sdc_comm_name(const struct sdc_comm_ops *ops);
const char *sdc_comm_summary(const struct sdc_comm_ops *ops);

/* ---- processes as ranks ---- */

/* The process that a launcher (mpirun, srun) started this one as, by its environment: which of how
 * many. False: there is no launcher that says so. */
bool sdc_comm_launched(unsigned *rank, unsigned *size);
bool sdc_comm_is_processes(const struct sdc_comm_ops *ops);
/* Starts the library; *rank and *size say which process of how many this is. A start that takes
 * longer than timeout_ms (0: the default) ends the process with a message and exit code 4, as the
 * library's own start cannot be waited for otherwise. SDC_UNSUPPORTED: more than SDC_MAX_RANKS, or
 * a library without the promise for threads that is needed. */
enum sdc_status sdc_comm_start(const struct sdc_comm_ops *ops, unsigned timeout_ms, unsigned *rank,
                               unsigned *size, struct sdc_error *err) SDC_MUST_CHECK;
/* Ends it. orderly: every process gets here; else the launcher is told to end all processes with
 * exit_code, and this does not return. */
void sdc_comm_finish(const struct sdc_comm_ops *ops, bool orderly, int exit_code);
/* Name and version of the library behind it; "" where there is none. Static; thread-safe. */
const char *sdc_comm_library(const struct sdc_comm_ops *ops);

/* ---- groups ---- */

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
 * SDC_PEER: a peer gave up or is gone; SDC_TIMEOUT: a peer did not come; SDC_CANCELLED: one did not
 * come after the hurry flag was set; SDC_NO_MEMORY; SDC_INTERNAL on every rank alike: the
 * ranks are not in the same call. After any of these the group is of no more use: it is lost. */

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

/* Makes all calls of all ranks end with SDC_PEER, now and later. Any thread (where ranks are
 * processes: the rank's own); any number of times. */
void sdc_comm_abort(struct sdc_comm *comm);
/* A call with this end has failed, or it was aborted here. */
bool sdc_comm_lost(const struct sdc_comm *comm);
/* Once *hurry is true, a process does not wait for a peer for longer than SDC_COMM_HURRY_MS:
 * whoever asked the program to end (a launcher whose other process died, a user) soon ends it by
 * force. Without effect where ranks are threads. NULL: never, which is how it begins. */
void sdc_comm_set_hurry(struct sdc_comm *comm, const atomic_bool *hurry);

#endif
