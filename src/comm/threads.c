/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads of one process. A collective is: publish what I bring, meet, compute straight
 * from the peers' memory, meet again where that memory must not change before everyone has read it.
 *
 * What a rank publishes lies in one of two slots that alternate from call to call. A slot is
 * written again two calls later, and a rank that is in the call after next has met all others in
 * the next one, so all have left this one: reading the slots needs no closing meeting. The same
 * holds for the two result vectors of sums.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "comm/backend.h"

#define POISON      0x80000000u
#define CACHE_LINE  64
#define YIELD_EVERY 128
#define SPIN_ROUNDS 4000 /* some 50 us; only where every rank can have a core */

enum call { CALL_BARRIER, CALL_BROADCAST, CALL_SUM, CALL_GATHER };

static const char *const call_names[] = {"barrier", "broadcast", "sum", "gather"};

struct slot {
    _Alignas(CACHE_LINE) enum call call;
    unsigned arg; /* root, or the sum's algorithm and type */
    size_t size;  /* bytes, or elements of a sum */
    const void *data;
    unsigned char small[SDC_COMM_SMALL];
};

struct group {
    _Alignas(CACHE_LINE) atomic_uint arrived;
    /* counts meetings; the top bit says that the group is given up. A futex. */
    _Alignas(CACHE_LINE) atomic_uint meeting;
    atomic_uint sleepers;
    unsigned size;
    unsigned spin_rounds;
    uint64_t timeout_ns;
    struct slot *slots[2];
    void *result[2]; /* max_bytes each */
};

struct end {
    struct sdc_comm base;
    struct group *group;
    unsigned parity;
    void *scratch; /* max_bytes; the whole vector of a redundant algorithm */
};

static struct end *end_of(struct sdc_comm *comm) {
    return (struct end *)comm;
}

/* ---- meeting ---- */

static long futex(atomic_uint *word, int op, unsigned value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void give_up(struct group *g) {
    atomic_fetch_or(&g->meeting, POISON);
    futex(&g->meeting, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

/* Lets everyone of this meeting go. The count wraps below the poison bit. */
static void open_meeting(struct group *g) {
    unsigned old = atomic_load(&g->meeting);
    while (!atomic_compare_exchange_weak(&g->meeting, &old, (old & POISON) | ((old + 1) & ~POISON)))
        ;
    if (atomic_load(&g->sleepers) > 0)
        futex(&g->meeting, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

/* Sleeps until the word is no longer `seen`. SDC_TIMEOUT if that takes too long. */
static enum sdc_status sleep_on(struct group *g, unsigned seen, const char *what,
                                struct sdc_error *err) {
    uint64_t deadline = sdc__now_ns() + g->timeout_ns;
    enum sdc_status st = SDC_OK;
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->meeting) == seen) {
        uint64_t now = sdc__now_ns();
        if (now >= deadline) {
            st = SDC_ERR(err, SDC_TIMEOUT, "%s: a peer did not come within %llu ms", what,
                         (unsigned long long)(g->timeout_ns / 1000000u));
            break;
        }
        uint64_t left = deadline - now;
        struct timespec ts = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        futex(&g->meeting, FUTEX_WAIT_PRIVATE, seen, &ts);
    }
    atomic_fetch_sub(&g->sleepers, 1);
    if (st != SDC_OK)
        give_up(g);
    return st;
}

static enum sdc_status gave_up(const char *what, struct sdc_error *err) {
    return SDC_ERR(err, SDC_PEER, "%s: a peer gave up", what);
}

static enum sdc_status meet(struct group *g, const char *what, struct sdc_error *err) {
    unsigned seen = atomic_load(&g->meeting);
    if (seen & POISON)
        return gave_up(what, err);
    if (atomic_fetch_add(&g->arrived, 1) + 1 == g->size) {
        atomic_store(&g->arrived, 0);
        open_meeting(g);
        return SDC_OK;
    }
    for (unsigned i = 0; i < g->spin_rounds; i++) {
        if (atomic_load(&g->meeting) != seen)
            break;
        if (i % YIELD_EVERY == YIELD_EVERY - 1)
            sched_yield(); /* the peer may be waiting for this very core */
        pause_cpu();
    }
    if (atomic_load(&g->meeting) == seen)
        SDC_TRY(sleep_on(g, seen, what, err));
    /* a meeting that was opened counts, even if somebody gave up right after it */
    unsigned now = atomic_load(&g->meeting);
    return (now & ~POISON) == seen ? gave_up(what, err) : SDC_OK;
}

/* Publishes, meets, and checks that everyone is in the same call. *slots is everyone's. */
static enum sdc_status enter(struct end *e, enum call call, unsigned arg, size_t size,
                             const void *data, const struct slot **slots, struct sdc_error *err) {
    struct slot *all = e->group->slots[e->parity];
    struct slot *own = &all[e->base.rank];
    e->parity ^= 1u;
    own->call = call;
    own->arg = arg;
    own->size = size;
    own->data = data;
    if (call == CALL_GATHER && size <= SDC_COMM_SMALL)
        memcpy(own->small, data, size);
    SDC_TRY(meet(e->group, call_names[call], err));
    for (unsigned r = 1; r < e->base.size; r++)
        if (all[r].call != all[0].call || all[r].arg != all[0].arg || all[r].size != all[0].size)
            return SDC_ERR(err, SDC_INTERNAL,
                           "ranks are in different calls: rank 0 in %s (%u, size %zu), rank %u "
                           "in %s (%u, size %zu)",
                           call_names[all[0].call], all[0].arg, all[0].size, r,
                           call_names[all[r].call], all[r].arg, all[r].size);
    *slots = all;
    return SDC_OK;
}

/* ---- operations ---- */

static enum sdc_status threads_barrier(struct sdc_comm *comm, struct sdc_error *err) {
    const struct slot *slots;
    return enter(end_of(comm), CALL_BARRIER, 0, 0, NULL, &slots, err);
}

static enum sdc_status threads_broadcast(struct sdc_comm *comm, unsigned root, void *data,
                                         size_t size, struct sdc_error *err) {
    struct end *e = end_of(comm);
    const struct slot *slots;
    SDC_TRY(enter(e, CALL_BROADCAST, root, size, data, &slots, err));
    if (comm->rank != root)
        memcpy(data, slots[root].data, size);
    return meet(e->group, "broadcast", err);
}

static enum sdc_status threads_allreduce(struct sdc_comm *comm, enum sdc_sum sum,
                                         enum sdc_dtype type, void *data, size_t n,
                                         struct sdc_error *err) {
    struct end *e = end_of(comm);
    void *shared = e->group->result[e->parity];
    const struct slot *slots;
    SDC_TRY(
        enter(e, CALL_SUM, (unsigned)sum * SDC_DTYPE_COUNT + (unsigned)type, n, data, &slots, err));
    const void *in[SDC_MAX_RANKS];
    for (unsigned r = 0; r < comm->size; r++)
        in[r] = slots[r].data;
    size_t first, end;
    sdc_sum_part(sum, type, comm->size, n, comm->rank, &first, &end);
    void *out = sdc_sum_redundant(sum) ? e->scratch : shared;
    sdc_sum_compute(sum, type, comm->size, in, n, first, end, out);
    SDC_TRY(meet(e->group, "sum", err));
    memcpy(data, out, n * sdc_sum_size(type));
    return SDC_OK;
}

static enum sdc_status threads_gather(struct sdc_comm *comm, const void *mine, size_t size,
                                      void *all, struct sdc_error *err) {
    struct end *e = end_of(comm);
    const struct slot *slots;
    unsigned char *to = all;
    bool small = size <= SDC_COMM_SMALL;
    SDC_TRY(enter(e, CALL_GATHER, 0, size, mine, &slots, err));
    for (unsigned r = 0; r < comm->size; r++)
        memcpy(to + r * size, small ? (const void *)slots[r].small : slots[r].data, size);
    return small ? SDC_OK : meet(e->group, "gather", err);
}

static void threads_abort(struct sdc_comm *comm) {
    give_up(end_of(comm)->group);
}

/* ---- creation ---- */

static void group_free(struct group *g) {
    if (!g)
        return;
    for (unsigned p = 0; p < 2; p++) {
        sdc__free(g->slots[p]);
        sdc__free(g->result[p]);
    }
    sdc__free(g);
}

static void threads_free(struct sdc_comm *comm) {
    struct end *e = end_of(comm);
    if (comm->rank == 0)
        group_free(e->group);
    sdc__free(e->scratch);
    sdc__free(e);
}

/* Cores this process may use; spinning while a peer waits for a core only keeps it waiting. */
static unsigned usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    return (unsigned)CPU_COUNT(&set);
}

static struct group *group_make(unsigned ranks, size_t max_bytes, unsigned timeout_ms) {
    struct group *g = sdc__alloc_tensor(1, sizeof *g);
    if (!g)
        return NULL;
    atomic_init(&g->arrived, 0);
    atomic_init(&g->meeting, 0);
    atomic_init(&g->sleepers, 0);
    g->size = ranks;
    g->spin_rounds = ranks <= usable_cores() ? SPIN_ROUNDS : 0;
    g->timeout_ns = (uint64_t)timeout_ms * 1000000u;
    for (unsigned p = 0; p < 2; p++) {
        g->slots[p] = sdc__alloc_tensor(ranks, sizeof *g->slots[p]);
        g->result[p] = sdc__alloc_tensor(max_bytes, 1);
        if (!g->slots[p] || !g->result[p]) {
            group_free(g);
            return NULL;
        }
    }
    return g;
}

static enum sdc_status threads_group_new(unsigned ranks, size_t max_bytes, unsigned timeout_ms,
                                         struct sdc_comm **ends, struct sdc_error *err) {
    struct sdc_comm *made[SDC_MAX_RANKS] = {NULL};
    struct group *g = group_make(ranks, max_bytes, timeout_ms);
    if (!g)
        return SDC_NOMEM(err, "a group of ranks");
    for (unsigned r = 0; r < ranks; r++) {
        struct end *e = sdc__calloc(1, sizeof *e);
        void *scratch = sdc__alloc_tensor(max_bytes, 1);
        if (!e || !scratch) {
            sdc__free(e);
            sdc__free(scratch);
            if (r == 0)
                group_free(g);
            sdc_comm_group_free(made, r);
            return SDC_NOMEM(err, "a group of ranks");
        }
        e->base = (struct sdc_comm){
            .ops = &sdc_comm_threads, .rank = r, .size = ranks, .max_bytes = max_bytes};
        e->group = g;
        e->scratch = scratch;
        made[r] = &e->base;
    }
    memcpy(ends, made, ranks * sizeof ends[0]);
    return SDC_OK;
}

const struct sdc_comm_ops sdc_comm_threads = {
    .name = "threads",
    .summary = "ranks are threads of one process",
    .max_ranks = SDC_MAX_RANKS,
    .group_new = threads_group_new,
    .end_free = threads_free,
    .barrier = threads_barrier,
    .broadcast = threads_broadcast,
    .allreduce = threads_allreduce,
    .gather = threads_gather,
    .abort = threads_abort,
};
