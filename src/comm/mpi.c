/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as MPI processes. Only messages between two are used, never the library's own collectives:
 * it may add in any order, and it has no wait with a deadline.
 *
 * Every collective begins with a record of each rank to each: who is here, in which call, with what
 * sizes, and the data of a small gather. So a rank that does not come, or comes to another call, is
 * known by its number before anything large is sent.
 *
 * A sum: every rank gets everyone's share of the part that it finishes (all of it where the
 * algorithm is redundant), adds them by comm/reduce.h, and gives the result to everyone. That is as
 * many bytes as a ring sends. Messages go in pieces, so that the memory for them is bounded and no
 * count outgrows an int.
 *
 * All waits poll. A rank that gives up tells the others by a notice, for which each has a receive
 * open; what was begun in a lost group is never looked at again, and its memory stays.
 */
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "comm/backend.h"

#define TAG_RECORD 1
#define TAG_DATA   2
#define TAG_NOTICE 3

#define SPIN_ROUNDS 2000 /* only where every rank can have a core */
#define YIELD_EVERY 16
#define YIELD_NS    1000000u   /* then the core is offered to others for so long, */
#define NAP_NS      200000u    /* then the wait sleeps */
#define NOTICE_NS   200000000u /* longest time that a notice is pushed on */
#define NOTICE_SIZE 200
#define MOST_PIECE  ((size_t)4 << 20) /* bytes of a message */
#define MOST_STAGE  ((size_t)32 << 20)

enum call { CALL_BARRIER, CALL_BROADCAST, CALL_SUM, CALL_GATHER };

static const char *const call_names[] = {"barrier", "broadcast", "sum", "gather"};

struct record {
    uint32_t call, arg; /* root, or the sum's algorithm and type */
    uint64_t size;      /* bytes, or elements of a sum */
    unsigned char small[SDC_COMM_SMALL];
};

struct end {
    struct sdc_comm base;
    MPI_Comm mpi;
    uint64_t timeout_ns;
    unsigned spin_rounds;
    bool gave_up;
    int notice_from;
    MPI_Request notice; /* a receive from anyone, open as long as the group is good */
    char notice_text[NOTICE_SIZE], own_notice[NOTICE_SIZE]; /* why */
    /* what is on its way, and with whom */
    unsigned n_requests;
    MPI_Request requests[2 * SDC_MAX_RANKS];
    MPI_Status statuses[2 * SDC_MAX_RANKS];
    bool receives[2 * SDC_MAX_RANKS];
    unsigned peers[2 * SDC_MAX_RANKS];
    struct record records[SDC_MAX_RANKS];
    unsigned char *stage; /* pieces of all ranks and one of the result */
    size_t stage_size;
};

static struct end *end_of(struct sdc_comm *comm) {
    return (struct end *)comm;
}

/* ---- giving up ---- */

static void give_up(struct end *e, const char *why) {
    const struct sdc_comm *comm = &e->base;
    MPI_Request sends[SDC_MAX_RANKS];
    int n = 0, done = 0;
    if (e->gave_up)
        return;
    e->gave_up = true;
    if (e->notice == MPI_REQUEST_NULL)
        return; /* the group is not made yet */
    snprintf(e->own_notice, sizeof e->own_notice, "%s", why);
    for (unsigned r = 0; r < comm->size; r++)
        if (r != comm->rank && MPI_Isend(e->own_notice, NOTICE_SIZE, MPI_BYTE, (int)r, TAG_NOTICE,
                                         e->mpi, &sends[n]) == MPI_SUCCESS)
            n++;
    /* a peer that is gone never takes it */
    uint64_t until = sdc__now_ns() + NOTICE_NS;
    while (!done && sdc__now_ns() < until)
        if (MPI_Testall(n, sends, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            break;
}

static void mpi_abort(struct sdc_comm *comm) {
    give_up(end_of(comm), "");
}

static enum sdc_status library_failed(struct end *e, const char *what, int code,
                                      struct sdc_error *err) {
    char text[MPI_MAX_ERROR_STRING] = {0};
    int len = 0;
    if (MPI_Error_string(code, text, &len) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", code);
    give_up(e, text);
    return SDC_ERR(err, SDC_PEER, "%s: MPI: %s", what, text);
}

/* "rank 3" or "ranks 1, 3": whose messages have not come, or else not gone. */
static void name_missing(struct end *e, char *text, size_t size) {
    bool missing[SDC_MAX_RANKS + 1] = {false};
    unsigned n = 0;
    for (int receives = 1; receives >= 0 && n == 0; receives--) {
        for (unsigned i = 0; i < e->n_requests; i++) {
            int done = 0;
            if (e->receives[i] != (receives == 1) || e->requests[i] == MPI_REQUEST_NULL)
                continue;
            if (MPI_Test(&e->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) {
                n += !missing[e->peers[i]];
                missing[e->peers[i]] = true;
            }
        }
    }
    struct sdc_buf b = SDC_BUF_INIT;
    const char *between = n > 1 ? "ranks " : "rank ";
    for (unsigned r = 0; r < e->base.size; r++) {
        if (!missing[r])
            continue;
        sdc__buf_printf(&b, "%s%u", between, r);
        between = ", ";
    }
    snprintf(text, size, "%s", b.len > 0 && !b.failed ? b.data : "a peer");
    sdc__buf_release(&b);
}

/* ---- waiting ---- */

static bool noticed(struct end *e) {
    int done = 0;
    if (e->notice == MPI_REQUEST_NULL)
        return false;
    MPI_Status status = {.MPI_SOURCE = (int)e->base.rank};
    int code = MPI_Test(&e->notice, &done, &status);
    e->notice_from = status.MPI_SOURCE;
    return code != MPI_SUCCESS || done;
}

static enum sdc_status peer_gave_up(struct end *e, const char *what, struct sdc_error *err) {
    e->gave_up = true; /* everyone has been told */
    e->notice_text[NOTICE_SIZE - 1] = '\0';
    return SDC_ERR(err, SDC_PEER, "%s: rank %d gave up%s%s", what, e->notice_from,
                   e->notice_text[0] ? ": " : "", e->notice_text);
}

/* Has it been too long? `hurried` is when the hurry flag was first seen, 0 before. */
static enum sdc_status check_time(struct end *e, uint64_t start, uint64_t now, uint64_t *hurried,
                                  const char *what, struct sdc_error *err) {
    char who[300];
    if (e->base.hurry && *hurried == 0 && atomic_load(e->base.hurry))
        *hurried = now;
    bool late = now - start >= e->timeout_ns;
    bool asked = *hurried && now - *hurried >= (uint64_t)SDC_COMM_HURRY_MS * 1000000u;
    if (!late && !asked)
        return SDC_OK;
    struct sdc_error own;
    name_missing(e, who, sizeof who);
    if (asked)
        SDC_ERR(&own, SDC_CANCELLED, "%s: told to end while waiting for %s", what, who);
    else
        SDC_ERR(&own, SDC_TIMEOUT, "%s: %s did not come within %llu ms", what, who,
                (unsigned long long)(e->timeout_ns / 1000000u));
    give_up(e, own.message);
    if (err)
        *err = own;
    return own.status;
}

static void rest(uint64_t waited) {
    if (waited < YIELD_NS) {
        sched_yield();
        return;
    }
    uint64_t nap = waited / 16 < NAP_NS ? waited / 16 : NAP_NS;
    struct timespec ts = {0, (long)nap};
    nanosleep(&ts, NULL);
}

/* Until all that was begun is done. */
static enum sdc_status finish_all(struct end *e, const char *what, struct sdc_error *err) {
    uint64_t start = 0, hurried = 0;
    for (unsigned round = 0;; round++) {
        int done = 0;
        int code = MPI_Testall((int)e->n_requests, e->requests, &done, e->statuses);
        if (code == MPI_ERR_IN_STATUS)
            for (unsigned i = 0; i < e->n_requests; i++)
                if (e->statuses[i].MPI_ERROR != MPI_SUCCESS &&
                    e->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
                    code = e->statuses[i].MPI_ERROR;
        if (code != MPI_SUCCESS)
            return library_failed(e, what, code, err);
        if (done) {
            e->n_requests = 0;
            return SDC_OK;
        }
        if (round < e->spin_rounds) {
            if (round % YIELD_EVERY == YIELD_EVERY - 1)
                sched_yield(); /* the peer may be waiting for this very core */
            continue;
        }
        if (noticed(e))
            return peer_gave_up(e, what, err);
        uint64_t now = sdc__now_ns();
        start = start ? start : now;
        SDC_TRY(check_time(e, start, now, &hurried, what, err));
        rest(now - start);
    }
}

/* ---- messages ---- */

static enum sdc_status begin(struct end *e, bool receive, unsigned peer, int tag, void *data,
                             size_t size, const char *what, struct sdc_error *err) {
    unsigned i = e->n_requests;
    int code = receive
                   ? MPI_Irecv(data, (int)size, MPI_BYTE, (int)peer, tag, e->mpi, &e->requests[i])
                   : MPI_Isend(data, (int)size, MPI_BYTE, (int)peer, tag, e->mpi, &e->requests[i]);
    if (code != MPI_SUCCESS)
        return library_failed(e, what, code, err);
    e->receives[i] = receive;
    e->peers[i] = peer;
    e->n_requests++;
    return SDC_OK;
}

/* Peers in an order in which not everyone turns to the same one first; i from 1. */
static unsigned next_to(const struct end *e, unsigned i) {
    return (e->base.rank + i) % e->base.size;
}

static unsigned next_from(const struct end *e, unsigned i) {
    return (e->base.rank + e->base.size - i) % e->base.size;
}

/* Tells everyone what I am about to do, and checks that everyone is about to do it. `small` (size
 * bytes) may be NULL. */
static enum sdc_status enter(struct end *e, enum call call, unsigned arg, size_t size,
                             const void *small, struct sdc_error *err) {
    const char *what = call_names[call];
    struct record *own = &e->records[e->base.rank], *all = e->records;
    if (e->gave_up)
        return SDC_ERR(err, SDC_PEER, "%s: the group of ranks was given up", what);
    if (noticed(e))
        return peer_gave_up(e, what, err);
    own->call = call;
    own->arg = arg;
    own->size = size;
    if (small)
        memcpy(own->small, small, size);
    for (unsigned i = 1; i < e->base.size; i++)
        SDC_TRY(begin(e, true, next_from(e, i), TAG_RECORD, &all[next_from(e, i)], sizeof *all,
                      what, err));
    for (unsigned i = 1; i < e->base.size; i++)
        SDC_TRY(begin(e, false, next_to(e, i), TAG_RECORD, own, sizeof *own, what, err));
    SDC_TRY(finish_all(e, what, err));
    for (unsigned r = 1; r < e->base.size; r++) {
        if (all[r].call == all[0].call && all[r].arg == all[0].arg && all[r].size == all[0].size)
            continue;
        e->gave_up = true; /* everyone sees the same */
        return SDC_ERR(err, SDC_INTERNAL,
                       "ranks are in different calls: rank 0 in %s (%u, size %zu), rank %u "
                       "in %s (%u, size %zu)",
                       call_names[all[0].call], all[0].arg, (size_t)all[0].size, r,
                       call_names[all[r].call], all[r].arg, (size_t)all[r].size);
    }
    return SDC_OK;
}

/* Bytes [begin, end) of a vector, and a piece of them. */
struct span {
    size_t begin, end;
};

static struct span piece_of(struct span s, size_t piece, size_t round) {
    size_t begin = s.begin + piece * round;
    begin = begin < s.end ? begin : s.end;
    return (struct span){begin, s.end - begin < piece ? s.end : begin + piece};
}

static size_t longest(const struct span *spans, unsigned n) {
    size_t most = 0;
    for (unsigned r = 0; r < n; r++)
        most = spans[r].end - spans[r].begin > most ? spans[r].end - spans[r].begin : most;
    return most;
}

/* Every rank has its span of data; after this everyone has all. */
static enum sdc_status spread(struct end *e, unsigned char *data, const struct span *spans,
                              const char *what, struct sdc_error *err) {
    size_t most = longest(spans, e->base.size);
    for (size_t round = 0; round * MOST_PIECE < most; round++) {
        for (unsigned i = 1; i < e->base.size; i++) {
            unsigned from = next_from(e, i);
            struct span s = piece_of(spans[from], MOST_PIECE, round);
            if (s.begin < s.end)
                SDC_TRY(begin(e, true, from, TAG_DATA, data + s.begin, s.end - s.begin, what, err));
        }
        struct span own = piece_of(spans[e->base.rank], MOST_PIECE, round);
        for (unsigned i = 1; i < e->base.size && own.begin < own.end; i++)
            SDC_TRY(begin(e, false, next_to(e, i), TAG_DATA, data + own.begin, own.end - own.begin,
                          what, err));
        SDC_TRY(finish_all(e, what, err));
    }
    return SDC_OK;
}

/* ---- operations ---- */

static enum sdc_status mpi_barrier(struct sdc_comm *comm, struct sdc_error *err) {
    return enter(end_of(comm), CALL_BARRIER, 0, 0, NULL, err);
}

/* The root gives each rank one part, and all give each other theirs: no rank sends much more than
 * the whole. */
static enum sdc_status mpi_broadcast(struct sdc_comm *comm, unsigned root, void *data, size_t size,
                                     struct sdc_error *err) {
    struct end *e = end_of(comm);
    struct span spans[SDC_MAX_RANKS];
    SDC_TRY(enter(e, CALL_BROADCAST, root, size, NULL, err));
    for (unsigned r = 0; r < comm->size; r++)
        spans[r] = (struct span){size / comm->size * r, size / comm->size * (r + 1)};
    spans[comm->size - 1].end = size;
    size_t most = longest(spans, comm->size);
    unsigned char *bytes = data;
    for (size_t round = 0; round * MOST_PIECE < most; round++) {
        for (unsigned i = 0; i < comm->size; i++) {
            unsigned r = next_to(e, i);
            struct span s = piece_of(spans[r], MOST_PIECE, round);
            if (r == root || s.begin == s.end || (comm->rank != root && r != comm->rank))
                continue;
            SDC_TRY(begin(e, comm->rank != root, comm->rank == root ? r : root, TAG_DATA,
                          bytes + s.begin, s.end - s.begin, "broadcast", err));
        }
        SDC_TRY(finish_all(e, "broadcast", err));
    }
    return spread(e, bytes, spans, "broadcast", err);
}

static enum sdc_status mpi_gather(struct sdc_comm *comm, const void *mine, size_t size, void *all,
                                  struct sdc_error *err) {
    struct end *e = end_of(comm);
    struct span spans[SDC_MAX_RANKS];
    unsigned char *to = all;
    bool small = size <= SDC_COMM_SMALL;
    SDC_TRY(enter(e, CALL_GATHER, 0, size, small ? mine : NULL, err));
    memmove(to + comm->rank * size, mine, size);
    for (unsigned r = 0; r < comm->size; r++) {
        if (small && r != comm->rank)
            memcpy(to + r * size, e->records[r].small, size);
        spans[r] = (struct span){r * size, (r + 1) * size};
    }
    return small ? SDC_OK : spread(e, to, spans, "gather", err);
}

/* ---- sums ---- */

struct sum {
    enum sdc_sum sum;
    enum sdc_dtype type;
    size_t n, es; /* elements, and bytes of one */
    unsigned char *data;
    struct span parts[SDC_MAX_RANKS]; /* bytes that each rank finishes */
    size_t piece;                     /* bytes; whole elements */
};

/* Memory for a piece of every rank, and for one of the result. Without it this rank cannot take
 * part. */
static enum sdc_status make_stage(struct end *e, struct sum *s, struct sdc_error *err) {
    size_t most = longest(s->parts, e->base.size), slots = e->base.size + 1u;
    s->piece = MOST_STAGE / slots < MOST_PIECE ? MOST_STAGE / slots : MOST_PIECE;
    s->piece = most < s->piece ? (most + 63) / 64 * 64 : s->piece / 64 * 64;
    if (e->stage_size >= s->piece * slots)
        return SDC_OK;
    sdc__free(e->stage);
    e->stage_size = 0;
    e->stage = sdc__alloc_tensor(s->piece, slots);
    if (!e->stage) {
        give_up(e, "out of memory");
        return SDC_NOMEM(err, "pieces of a sum");
    }
    e->stage_size = s->piece * slots;
    return SDC_OK;
}

/* One piece of my part, from everyone; one of theirs to each. */
static enum sdc_status sum_piece(struct end *e, const struct sum *s, size_t round,
                                 struct sdc_error *err) {
    const void *in[SDC_MAX_RANKS];
    struct span own = piece_of(s->parts[e->base.rank], s->piece, round);
    size_t size = own.end - own.begin;
    in[e->base.rank] = s->data + own.begin;
    for (unsigned i = 1; i < e->base.size; i++) {
        unsigned from = next_from(e, i);
        unsigned char *to = e->stage + from * s->piece;
        in[from] = to;
        if (size > 0)
            SDC_TRY(begin(e, true, from, TAG_DATA, to, size, "sum", err));
    }
    for (unsigned i = 1; i < e->base.size; i++) {
        struct span theirs = piece_of(s->parts[next_to(e, i)], s->piece, round);
        if (theirs.begin < theirs.end)
            SDC_TRY(begin(e, false, next_to(e, i), TAG_DATA, s->data + theirs.begin,
                          theirs.end - theirs.begin, "sum", err));
    }
    SDC_TRY(finish_all(e, "sum", err));
    unsigned char *out = e->stage + e->base.size * s->piece;
    sdc_sum_compute_range(s->sum, s->type, e->base.size, in, s->n, own.begin / s->es,
                          own.end / s->es, out);
    memcpy(s->data + own.begin, out, size);
    return SDC_OK;
}

static enum sdc_status mpi_allreduce(struct sdc_comm *comm, enum sdc_sum sum, enum sdc_dtype type,
                                     void *data, size_t n, struct sdc_error *err) {
    struct end *e = end_of(comm);
    struct sum s = {.sum = sum, .type = type, .n = n, .es = sdc_sum_size(type), .data = data};
    SDC_TRY(enter(e, CALL_SUM, (unsigned)sum * SDC_DTYPE_COUNT + (unsigned)type, n, NULL, err));
    for (unsigned r = 0; r < comm->size; r++) {
        size_t first, end;
        sdc_sum_part(sum, type, comm->size, n, r, &first, &end);
        s.parts[r] = (struct span){first * s.es, end * s.es};
    }
    SDC_TRY(make_stage(e, &s, err));
    size_t most = longest(s.parts, comm->size);
    for (size_t round = 0; round * s.piece < most; round++)
        SDC_TRY(sum_piece(e, &s, round, err));
    return sdc_sum_redundant(sum) ? SDC_OK : spread(e, s.data, s.parts, "sum", err);
}

/* ---- groups ---- */

/* What decides whether a waiting rank may keep its core busy. */
struct place {
    char host[96];
    cpu_set_t cores;
};
_Static_assert(sizeof(struct place) <= SDC_COMM_SMALL, "one record");

/* Launchers bind processes to cores: the ranks of this host have all their cores together. */
static enum sdc_status choose_spin(struct end *e, struct sdc_error *err) {
    struct place mine = {0}, *all = sdc__calloc(e->base.size, sizeof *all);
    if (!all)
        return SDC_NOMEM(err, "a group of ranks");
    cpu_set_t together;
    unsigned here = 0;
    CPU_ZERO(&together);
    if (gethostname(mine.host, sizeof mine.host - 1) != 0 ||
        sched_getaffinity(0, sizeof mine.cores, &mine.cores) != 0)
        CPU_ZERO(&mine.cores);
    enum sdc_status st = mpi_gather(&e->base, &mine, sizeof mine, all, err);
    for (unsigned r = 0; st == SDC_OK && r < e->base.size; r++) {
        if (strcmp(all[r].host, mine.host) != 0)
            continue;
        here++;
        CPU_OR(&together, &together, &all[r].cores);
    }
    e->spin_rounds = here <= (unsigned)CPU_COUNT(&together) ? SPIN_ROUNDS : 0;
    sdc__free(all);
    return st;
}

static void mpi_free(struct sdc_comm *comm) {
    struct end *e = end_of(comm);
    if (e->gave_up || atomic_load(&comm->lost))
        return; /* messages may still come to its memory */
    MPI_Cancel(&e->notice);
    MPI_Wait(&e->notice, MPI_STATUS_IGNORE); /* of a cancelled receive: at once */
    MPI_Comm_free(&e->mpi);
    sdc__free(e->stage);
    sdc__free(e);
}

static struct {
    bool started;
    int rank, size;
    uint64_t timeout_ms;
} process;

static enum sdc_status mpi_group_new(unsigned ranks, size_t max_bytes, unsigned timeout_ms,
                                     struct sdc_comm **ends, struct sdc_error *err) {
    if (!process.started)
        return SDC_ERR(err, SDC_INTERNAL, "MPI has not been started");
    if (ranks != (unsigned)process.size)
        return SDC_ERR(err, SDC_UNSUPPORTED,
                       "comm mpi: %u ranks asked for, the job has %d processes", ranks,
                       process.size);
    struct end *e = sdc__calloc(1, sizeof *e);
    if (!e)
        return SDC_NOMEM(err, "a group of ranks");
    e->base = (struct sdc_comm){.ops = &sdc_comm_mpi,
                                .rank = (unsigned)process.rank,
                                .size = ranks,
                                .max_bytes = max_bytes};
    e->timeout_ns = (uint64_t)timeout_ms * 1000000u;
    e->notice = MPI_REQUEST_NULL;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, &e->mpi, &e->requests[0]);
    if (code != MPI_SUCCESS)
        return library_failed(e, "a group of ranks", code, err);
    e->n_requests = 1;
    e->peers[0] = SDC_MAX_RANKS; /* nobody in particular */
    SDC_TRY(finish_all(e, "a group of ranks", err));
    code = MPI_Irecv(e->notice_text, NOTICE_SIZE, MPI_BYTE, MPI_ANY_SOURCE, TAG_NOTICE, e->mpi,
                     &e->notice);
    if (code != MPI_SUCCESS)
        return library_failed(e, "a group of ranks", code, err);
    SDC_TRY(choose_spin(e, err));
    for (unsigned r = 0; r < ranks; r++)
        ends[r] = r == e->base.rank ? &e->base : NULL;
    return SDC_OK;
}

/* ---- the process ---- */

/* MPI_Init and MPI_Finalize cannot be polled, and wait for lost processes for ever. */
static void on_alarm(int number) {
    static const char text[] = "sdclab train: comm mpi: the processes did not all start or end MPI "
                               "within the time allowed\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(4);
    _exit(4);
}

static void set_alarm(uint64_t ms) {
    struct itimerval timer = {.it_value = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)}};
    struct sigaction action = {.sa_handler = ms ? on_alarm : SIG_DFL};
    sigemptyset(&action.sa_mask);
    if (ms)
        sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    if (!ms)
        sigaction(SIGALRM, &action, NULL);
}

static enum sdc_status mpi_start(unsigned timeout_ms, unsigned *rank, unsigned *size,
                                 struct sdc_error *err) {
    int provided = 0;
    process.timeout_ms = timeout_ms;
    set_alarm(timeout_ms);
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    set_alarm(0);
    if (code != MPI_SUCCESS)
        return SDC_ERR(err, SDC_IO, "MPI did not start: error %d", code);
    process.started = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &process.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &process.size);
    *rank = (unsigned)process.rank;
    *size = (unsigned)process.size;
    if (provided < MPI_THREAD_FUNNELED)
        return SDC_ERR(err, SDC_UNSUPPORTED, "%s: thread level %d, expected at least %d (funneled)",
                       sdc_comm_library(&sdc_comm_mpi), provided, MPI_THREAD_FUNNELED);
    if (process.size > SDC_MAX_RANKS)
        return SDC_ERR(err, SDC_UNSUPPORTED, "comm mpi: the job has %d processes, expected 1 to %d",
                       process.size, SDC_MAX_RANKS);
    return SDC_OK;
}

static void mpi_finish(bool orderly, int exit_code) {
    if (!process.started)
        return;
    process.started = false;
    if (!orderly)
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    set_alarm(process.timeout_ms);
    MPI_Finalize();
    set_alarm(0);
}

static const char *mpi_library(void) {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0;
    if (text[0] == '\0' && MPI_Get_library_version(text, &len) == MPI_SUCCESS)
        text[strcspn(text, ",\n")] = '\0';
    return text;
}

const struct sdc_comm_ops sdc_comm_mpi = {
    .name = "mpi",
    .summary = "each rank is a process, started by mpirun or srun",
    .max_ranks = SDC_MAX_RANKS,
    .group_new = mpi_group_new,
    .end_free = mpi_free,
    .barrier = mpi_barrier,
    .broadcast = mpi_broadcast,
    .allreduce = mpi_allreduce,
    .gather = mpi_gather,
    .abort = mpi_abort,
    .start = mpi_start,
    .finish = mpi_finish,
    .library = mpi_library,
};
