/* SPDX-License-Identifier: Apache-2.0
 *
 * One suite over every implementation of comm/comm.h, at 1 to 64 ranks: values, bits, agreement,
 * and what happens when a rank gives up, does not come, or is in another call.
 *
 * `test_comm mpi` is one of several processes that mpirun started, each of which runs the suite as
 * its own rank; the tests that need another number of ranks are left out there.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "comm/comm.h"

#define MAX_ELEMS 5000

static const struct sdc_comm_ops *ops; /* under test */

static unsigned processes; /* 0: ranks are threads of this process */

static bool can_have(unsigned ranks) {
    if (processes)
        return ranks == processes;
    return ranks == 1 || strcmp(sdc_comm_name(ops), "self") != 0;
}

typedef void rank_function(struct sdc_comm *comm, void *arg);

struct job {
    rank_function *f;
    struct sdc_comm *comm;
    void *arg;
};

static void *job_main(void *arg) {
    struct job *job = arg;
    job->f(job->comm, job->arg);
    return NULL;
}

static atomic_int failures; /* cmocka's assertions work on the main thread only */

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("%s:%d: %s is false\n", __FILE__, __LINE__, #cond);                        \
            atomic_fetch_add(&failures, 1);                                                        \
        }                                                                                          \
    } while (0)

static void on_ranks_of(unsigned n, size_t bytes, unsigned timeout_ms, rank_function *f,
                        void *arg) {
    struct sdc_error err;
    struct sdc_comm *ends[SDC_MAX_RANKS];
    struct job jobs[SDC_MAX_RANKS];
    pthread_t threads[SDC_MAX_RANKS];
    assert_ok(sdc_comm_group_new(ops, n, bytes, timeout_ms, ends, &err));
    atomic_store(&failures, 0);
    if (processes) {
        unsigned r = 0;
        while (!ends[r])
            r++;
        f(ends[r], arg);
        sdc_comm_group_free(ends, n);
        assert_int_equal(atomic_load(&failures), 0);
        return;
    }
    for (unsigned r = 0; r < n; r++) {
        jobs[r] = (struct job){f, ends[r], arg};
        assert_int_equal(pthread_create(&threads[r], NULL, job_main, &jobs[r]), 0);
    }
    for (unsigned r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    sdc_comm_group_free(ends, n);
    assert_int_equal(atomic_load(&failures), 0);
}

static void on_ranks(unsigned n, unsigned timeout_ms, rank_function *f, void *arg) {
    on_ranks_of(n, MAX_ELEMS * sizeof(float), timeout_ms, f, arg);
}

static const unsigned sizes[] = {1, 2, 3, 4, 5, 8, 17, 64};

static void at_every_size(unsigned most, rank_function *f) {
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] <= most && can_have(sizes[i]))
            on_ranks(sizes[i], 0, f, NULL);
}

/* ---- barrier ---- */

static atomic_uint arrived_here;
static atomic_uint *arrived = &arrived_here; /* processes share it through a file */

static void share_arrived(void) {
    int fd = open("arrived", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof *arrived), 0);
    arrived = mmap(NULL, sizeof *arrived, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(arrived != MAP_FAILED);
    close(fd);
}

static void barrier_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    if (sdc_comm_rank(comm) == 0)
        atomic_store(arrived, 0);
    CHECK(sdc_comm_barrier(comm, &err) == SDC_OK);
    for (unsigned round = 1; round <= 200; round++) {
        atomic_fetch_add(arrived, 1);
        CHECK(sdc_comm_barrier(comm, &err) == SDC_OK);
        CHECK(atomic_load(arrived) >= round * sdc_comm_size(comm));
        CHECK(sdc_comm_barrier(comm, &err) == SDC_OK);
    }
}

static void barrier_holds(void **state) {
    (void)state;
    at_every_size(8, barrier_rank);
}

/* ---- broadcast, gather ---- */

static void broadcast_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    unsigned n = sdc_comm_size(comm);
    for (unsigned round = 0; round < 3 * n; round++) {
        unsigned root = round % n, data[700];
        for (unsigned i = 0; i < 700; i++)
            data[i] = sdc_comm_rank(comm) * 1000003u + i + round;
        CHECK(sdc_comm_broadcast(comm, root, data, sizeof data, &err) == SDC_OK);
        for (unsigned i = 0; i < 700; i++)
            CHECK(data[i] == root * 1000003u + i + round);
    }
    CHECK(sdc_comm_broadcast(comm, n, NULL, 0, &err) == SDC_INTERNAL);
}

static void broadcast_works(void **state) {
    (void)state;
    at_every_size(64, broadcast_rank);
}

static void gather_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    unsigned n = sdc_comm_size(comm);
    static const size_t bytes[] = {1, 40, SDC_COMM_SMALL, SDC_COMM_SMALL + 1, 3000};
    unsigned char *all = malloc(n * 3000u), mine[3000];
    for (unsigned round = 0; round < 20; round++) {
        size_t size = bytes[round % 5];
        memset(mine, (int)(sdc_comm_rank(comm) + round), size);
        CHECK(sdc_comm_gather(comm, mine, size, all, &err) == SDC_OK);
        memset(mine, 255, size); /* what I gave is mine again */
        for (unsigned r = 0; r < n; r++)
            CHECK(all[r * size] == r + round && all[(r + 1) * size - 1] == r + round);
    }
    free(all);
}

static void gather_works(void **state) {
    (void)state;
    at_every_size(64, gather_rank);
}

/* ---- sums ---- */

/* Whole numbers below 2^24 / ranks: every association gives the exact sum. */
static void sum_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    unsigned n = sdc_comm_size(comm), rank = sdc_comm_rank(comm);
    static const size_t lengths[] = {0, 1, 2, 3, 7, 64, 513, 1537, MAX_ELEMS};
    float *data = malloc(MAX_ELEMS * sizeof *data);
    for (unsigned round = 0; round < 9 * SDC_SUM_COUNT; round++) {
        size_t len = lengths[round % 9];
        enum sdc_sum sum = (enum sdc_sum)(round / 9);
        for (size_t i = 0; i < len; i++)
            data[i] = (float)((rank + 1) * (i % 1000 + round));
        CHECK(sdc_comm_allreduce(comm, sum, SDC_DTYPE_F32, data, len, &err) == SDC_OK);
        for (size_t i = 0; i < len; i++)
            CHECK(data[i] == (float)(n * (n + 1) / 2 * (i % 1000 + round)));
        memset(data, 0, len * sizeof *data); /* mine again */
    }
    free(data);
}

static void sum_is_right(void **state) {
    (void)state;
    at_every_size(64, sum_rank);
}

static void sum_too_long(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_comm *ends[1];
    float x = 1;
    if (!can_have(1))
        return;
    assert_ok(sdc_comm_group_new(ops, 1, sizeof(float), 0, ends, &err));
    assert_ok(sdc_comm_allreduce(ends[0], SDC_SUM_GLOO_RING, SDC_DTYPE_F32, &x, 1, &err));
    assert_status(SDC_INTERNAL,
                  sdc_comm_allreduce(ends[0], SDC_SUM_GLOO_RING, SDC_DTYPE_F32, &x, 2, &err));
    sdc_comm_group_free(ends, 1);
    assert_null(ends[0]);
}

/* Numbers of every size, with NaN, infinities and subnormals among them; the same for anyone who
 * asks. Where two NaN meet, the payload is the processor's affair: one sign and payload for all. */
static void draw(void *out, enum sdc_dtype type, size_t n, unsigned rank) {
    uint64_t x = 0x9e3779b97f4a7c15u * (rank + 1);
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bool odd_one = x % 97 == 0;
        if (type == SDC_DTYPE_F64) {
            uint64_t bits = x;
            if ((bits >> 52 & 0x7ff) == 0x7ff || odd_one)
                bits = x & 128 ? 0x7ff8000000000000u : x & 256 ? 0xfff0000000000000u : x % 4096;
            memcpy((double *)out + i, &bits, sizeof bits);
        } else if (type == SDC_DTYPE_F16) {
            uint16_t bits = (uint16_t)x;
            if ((bits >> 10 & 31) == 31 || odd_one)
                bits = (uint16_t)(x & 128 ? 0x7e00u : x & 256 ? 0xfc00u : x % 512);
            memcpy((uint16_t *)out + i, &bits, sizeof bits);
        } else {
            uint32_t bits = (uint32_t)(x >> 8) % 0x08000000u + 0x3a000000u + (uint32_t)(x << 31);
            if (odd_one)
                bits = (uint32_t)(x & 128 ? 0x7fc00000u : x & 256 ? 0xff800000u : x % 4096);
            memcpy((float *)out + i, &bits, sizeof bits);
        }
    }
}

/* Every implementation gives the bits of comm/reduce.h over the whole vectors. */
static void check_bits(struct sdc_comm *comm, enum sdc_sum sum, enum sdc_dtype type, size_t n) {
    struct sdc_error err;
    unsigned ranks = sdc_comm_size(comm), rank = sdc_comm_rank(comm);
    size_t es = sdc_sum_size(type);
    const void *in[SDC_MAX_RANKS];
    unsigned char *all = malloc((ranks + 2) * (n * es + 1)), *want = all + ranks * n * es;
    unsigned char *data = want + n * es;
    for (unsigned r = 0; r < ranks; r++) {
        in[r] = all + r * n * es;
        draw(all + r * n * es, type, n, r);
    }
    sdc_sum_compute(sum, type, ranks, in, n, 0, n, want);
    memcpy(data, in[rank], n * es);
    CHECK(sdc_comm_allreduce(comm, sum, type, data, n, &err) == SDC_OK);
    CHECK(memcmp(data, want, n * es) == 0);
    free(all);
}

static void bits_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    static const enum sdc_dtype types[] = {SDC_DTYPE_F32, SDC_DTYPE_F64, SDC_DTYPE_F16};
    static const size_t lengths[] = {1, 2, 7, 64, 1537, MAX_ELEMS / 2};
    for (int sum = 0; sum < SDC_SUM_COUNT; sum++)
        for (size_t t = 0; t < 3; t++)
            for (size_t l = 0; l < 6; l++)
                check_bits(comm, (enum sdc_sum)sum, types[t], lengths[l]);
}

static void bits_are_those_of_reduce(void **state) {
    (void)state;
    at_every_size(64, bits_rank);
}

/* More than one piece of a message, and more than one of DDP's largest buckets (25 MiB). */
static void long_rank(struct sdc_comm *comm, void *arg) {
    size_t n = *(size_t *)arg;
    struct sdc_error err;
    check_bits(comm, SDC_SUM_GLOO_RING, SDC_DTYPE_F32, n);
    check_bits(comm, SDC_SUM_OMPI_RABENSEIFNER, SDC_DTYPE_F32, n - 3);
    check_bits(comm, SDC_SUM_OMPI_RECURSIVE_DOUBLING, SDC_DTYPE_F32, n / 4);
    unsigned char *data = malloc(n), *all = malloc(n * sdc_comm_size(comm));
    unsigned root = sdc_comm_size(comm) - 1, rank = sdc_comm_rank(comm);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 31 + i / 4096 + rank);
    CHECK(sdc_comm_gather(comm, data, n, all, &err) == SDC_OK);
    CHECK(sdc_comm_broadcast(comm, root, data, n, &err) == SDC_OK);
    unsigned wrong = 0;
    for (size_t i = 0; i < n; i++) {
        wrong += data[i] != (unsigned char)(i * 31 + i / 4096 + root);
        for (unsigned r = 0; r < sdc_comm_size(comm); r++)
            wrong += all[r * n + i] != (unsigned char)(i * 31 + i / 4096 + r);
    }
    CHECK(wrong == 0);
    free(data);
    free(all);
}

static void long_sums(void **state) {
    (void)state;
    size_t n = processes && processes <= 3 ? 8000001 : 2500001;
    for (unsigned ranks = 2; ranks <= 4; ranks++) {
        if (!can_have(ranks))
            continue;
        on_ranks_of(ranks, n * sizeof(float), 0, long_rank, &n);
    }
}

/* ---- agreement ---- */

static void agree_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err = {0};
    unsigned n = sdc_comm_size(comm), rank = sdc_comm_rank(comm), who = 99;
    CHECK(sdc_comm_agree(comm, SDC_OK, NULL, &who, &err) == SDC_OK);
    CHECK(who == 0 && err.message[0] == '\0');
    /* all but rank 0 fail, the last two worse: the lowest of those counts */
    enum sdc_status mine = rank == 0 ? SDC_OK : rank + 2 >= n ? SDC_IO : SDC_MISMATCH;
    if (mine != SDC_OK)
        mine = SDC_ERR(&err, mine, "tensor %u is torn", rank);
    unsigned expect = n == 1 ? 0 : n == 2 ? 1 : n - 2;
    enum sdc_status st = sdc_comm_agree(comm, mine, &err, &who, &err);
    CHECK(st == (n == 1 ? SDC_OK : SDC_IO));
    CHECK(who == expect);
    if (n > 1) {
        char text[64];
        snprintf(text, sizeof text, "rank %u: tensor %u is torn", expect, expect);
        CHECK(strcmp(err.message, text) == 0);
    }
    CHECK(sdc_comm_agree(comm, SDC_OK, NULL, NULL, &err) == SDC_OK); /* the group is still good */
}

static void agree_finds_the_worst(void **state) {
    (void)state;
    at_every_size(64, agree_rank);
}

/* ---- failures ---- */

static void abort_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    float x[4] = {0};
    if (sdc_comm_rank(comm) + 1 == sdc_comm_size(comm)) {
        sdc__sleep_ms(20); /* so that some wait already */
        sdc_comm_abort(comm);
        sdc_comm_abort(comm);
    } else {
        CHECK(sdc_comm_allreduce(comm, SDC_SUM_GLOO_RING, SDC_DTYPE_F32, x, 4, &err) == SDC_PEER);
    }
    CHECK(sdc_comm_barrier(comm, &err) == SDC_PEER);
    CHECK(sdc_comm_gather(comm, x, 4, x, &err) == SDC_PEER);
    CHECK(sdc_comm_agree(comm, SDC_OK, NULL, NULL, &err) == SDC_PEER);
    CHECK(sdc_comm_broadcast(comm, 0, x, 4, &err) == SDC_PEER);
}

static void abort_frees_everyone(void **state) {
    (void)state;
    at_every_size(8, abort_rank);
}

static void absent_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    if (sdc_comm_rank(comm) == 1)
        return;
    enum sdc_status st = sdc_comm_barrier(comm, &err);
    CHECK(st == SDC_TIMEOUT || st == SDC_PEER);
    if (sdc_comm_size(comm) == 2)
        CHECK(st == SDC_TIMEOUT);
    if (processes && st == SDC_TIMEOUT)
        CHECK(strstr(err.message, "barrier: rank 1 did not come") != NULL ||
              sdc_comm_size(comm) > 2); /* others may be late as well */
    CHECK(sdc_comm_lost(comm));
}

static void absent_peer_times_out(void **state) {
    (void)state;
    uint64_t before = sdc__now_ns();
    for (unsigned n = 2; n <= 4; n += 2)
        if (can_have(n))
            on_ranks(n, processes ? 300 : 30, absent_rank, NULL);
    assert_true(sdc__now_ns() - before < 10u * 1000000000u);
}

/* Told to end, a process does not wait out its deadline. */
static void hurried_rank(struct sdc_comm *comm, void *arg) {
    struct sdc_error err;
    sdc_comm_set_hurry(comm, arg);
    if (sdc_comm_rank(comm) == 1) {
        sdc__sleep_ms(2 * SDC_COMM_HURRY_MS); /* neither does it end before that */
        return;
    }
    uint64_t before = sdc__now_ns();
    CHECK(sdc_comm_barrier(comm, &err) == SDC_CANCELLED);
    CHECK(strstr(err.message, "barrier: told to end while waiting for rank 1") != NULL);
    CHECK(sdc__now_ns() - before >= (uint64_t)SDC_COMM_HURRY_MS * 1000000u);
}

static void hurry_ends_a_wait(void **state) {
    (void)state;
    static atomic_bool hurry = true;
    if (processes && can_have(2))
        on_ranks(2, 0, hurried_rank, &hurry);
}

static void mixed_rank(struct sdc_comm *comm, void *arg) {
    (void)arg;
    struct sdc_error err;
    float x[2] = {0};
    size_t n = sdc_comm_rank(comm) == 1 ? 1 : 2;
    CHECK(sdc_comm_allreduce(comm, SDC_SUM_GLOO_RING, SDC_DTYPE_F32, x, n, &err) == SDC_INTERNAL);
    CHECK(strstr(err.message, "rank 1 in sum (1, size 1)") != NULL);
}

static void mixed_calls_are_seen(void **state) {
    (void)state;
    if (can_have(3))
        on_ranks(3, 0, mixed_rank, NULL);
}

static void group_sizes(void **state) {
    (void)state;
    struct sdc_error err;
    struct sdc_comm *ends[SDC_MAX_RANKS];
    assert_status(SDC_UNSUPPORTED, sdc_comm_group_new(ops, 0, 1, 0, ends, &err));
    assert_status(SDC_UNSUPPORTED, sdc_comm_group_new(ops, SDC_MAX_RANKS + 1, 1, 0, ends, &err));
    assert_message_has("65 ranks");
    if (processes) {
        unsigned other = processes == 2 ? 3 : 2;
        assert_status(SDC_UNSUPPORTED, sdc_comm_group_new(ops, other, 1, 0, ends, &err));
        assert_message_has("ranks asked for, the job has");
    }
}

/* ---- parts and choices (pure) ---- */

static void parts_cover(void **state) {
    (void)state;
    static const size_t lengths[] = {0, 1, 5, 64, 61706, 1000000, 3000001};
    for (int s = 0; s < SDC_SUM_COUNT; s++)
        for (unsigned n = 1; n <= 9; n++)
            for (size_t l = 0; l < 7; l++) {
                size_t covered = 0;
                for (unsigned r = 0; r < n; r++) {
                    size_t first, end;
                    sdc_sum_part((enum sdc_sum)s, SDC_DTYPE_F32, n, lengths[l], r, &first, &end);
                    assert_true(first <= end && end <= lengths[l]);
                    covered += end - first;
                }
                bool redundant = sdc_sum_redundant((enum sdc_sum)s);
                assert_int_equal(covered, redundant ? n * lengths[l] : lengths[l]);
            }
}

/* Gloo's geometry by hand: 10 floats on 3 ranks are 40 bytes; max(1, 6) segments, a multiple of 3;
 * ceil(40 / 6) = 7 bytes, rounded up to 8: chunks of 2 segments are 16 bytes, 4 floats: 4, 4, 2. */
static void gloo_chunks_by_hand(void **state) {
    (void)state;
    static const size_t want[][2] = {{0, 4}, {4, 8}, {8, 10}};
    for (unsigned r = 0; r < 3; r++) {
        size_t first, end;
        sdc_sum_part(SDC_SUM_GLOO_RING, SDC_DTYPE_F32, 3, 10, r, &first, &end);
        assert_int_equal(first, want[r][0]);
        assert_int_equal(end, want[r][1]);
    }
}

/* Rows of coll_tuned_decision_fixed.c, Open MPI 4.1.4, at and just below each limit. */
static void open_mpi_table(void **state) {
    (void)state;
    static const struct {
        unsigned ranks;
        size_t n;
        enum sdc_sum sum;
    } rows[] = {
        {2, 1, SDC_SUM_OMPI_RECURSIVE_DOUBLING}, /* ring needs as many elements as ranks */
        {2, 1023, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {2, 1024, SDC_SUM_OMPI_RING},
        {2, 2047, SDC_SUM_OMPI_RING},
        {3, 2048, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {3, 4096, SDC_SUM_OMPI_RING},
        {3, 16384, SDC_SUM_OMPI_SEGMENTED_RING},
        {3, 65535, SDC_SUM_OMPI_SEGMENTED_RING},
        {3, 65536, SDC_SUM_OMPI_RABENSEIFNER},
        {4, 3, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {4, 4, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {7, 2047, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {7, 2048, SDC_SUM_OMPI_RABENSEIFNER},
        {8, 1, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {15, 2048, SDC_SUM_OMPI_RABENSEIFNER},
        {16, 15, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {16, 16, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {31, 1024, SDC_SUM_OMPI_RABENSEIFNER},
        {32, 31, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {32, 32, SDC_SUM_OMPI_RABENSEIFNER},
        {64, 65535, SDC_SUM_OMPI_RECURSIVE_DOUBLING},
        {64, 65536, SDC_SUM_OMPI_RABENSEIFNER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (sdc_sum_ompi_choice(rows[i].ranks, rows[i].n, 4) != rows[i].sum)
            fail_msg("%u ranks, %zu elements: %s", rows[i].ranks, rows[i].n,
                     sdc_sum_name(sdc_sum_ompi_choice(rows[i].ranks, rows[i].n, 4)));
    assert_int_equal(sdc_sum_ompi_choice(16, 10, 4), SDC_SUM_OMPI_RECURSIVE_DOUBLING);
    assert_int_equal(sdc_sum_ompi_choice(2, 3, 2), SDC_SUM_OMPI_RING);
}

/* ---- launchers ---- */

static void launchers_are_known(void **state) {
    (void)state;
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
        "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS"};
    unsigned rank, size;
    for (size_t i = 0; i < 6; i++)
        unsetenv(names[i]);
    assert_false(sdc_comm_launched(&rank, &size));
    assert_int_equal(rank, 0);
    assert_int_equal(size, 1);
    for (size_t i = 0; i < 6; i += 2) {
        setenv(names[i], "2", 1);
        assert_false(sdc_comm_launched(&rank, &size));
        setenv(names[i + 1], "4", 1);
        assert_true(sdc_comm_launched(&rank, &size));
        assert_int_equal(rank, 2);
        assert_int_equal(size, 4);
        setenv(names[i], "4", 1); /* no rank of four */
        assert_false(sdc_comm_launched(&rank, &size));
        setenv(names[i], "x", 1);
        assert_false(sdc_comm_launched(&rank, &size));
        unsetenv(names[i]);
    }
}

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(barrier_holds),
    cmocka_unit_test(broadcast_works),
    cmocka_unit_test(gather_works),
    cmocka_unit_test(sum_is_right),
    cmocka_unit_test(sum_too_long),
    cmocka_unit_test(bits_are_those_of_reduce),
    cmocka_unit_test(long_sums),
    cmocka_unit_test(agree_finds_the_worst),
    cmocka_unit_test(abort_frees_everyone),
    cmocka_unit_test(absent_peer_times_out),
    cmocka_unit_test(hurry_ends_a_wait),
    cmocka_unit_test(mixed_calls_are_seen),
    cmocka_unit_test(group_sizes),
};

static int as_process(const char *name) {
    struct sdc_error err;
    unsigned rank;
    ops = sdc_comm_find(name);
    if (!ops) {
        print_error("comm %s is not in this build\n", name);
        return 77;
    }
    if (sdc_comm_start(ops, 60000, &rank, &processes, &err) != SDC_OK) {
        print_error("%s\n", err.message);
        return 1;
    }
    share_arrived();
    char title[64];
    snprintf(title, sizeof title, "%s, rank %u of %u", name, rank, processes);
    int failed = cmocka_run_group_tests_name(title, suite, NULL, NULL);
    sdc_comm_finish(ops, failed == 0, 1);
    return failed != 0;
}

int main(int argc, char *argv[]) {
    static const struct CMUnitTest pure[] = {
        cmocka_unit_test(parts_cover),
        cmocka_unit_test(gloo_chunks_by_hand),
        cmocka_unit_test(open_mpi_table),
        cmocka_unit_test(launchers_are_known),
    };
    if (argc > 1)
        return as_process(argv[1]);
    int failed = cmocka_run_group_tests_name("sums", pure, NULL, NULL);
    for (size_t i = 0; (ops = sdc_comm_at(i)) != NULL; i++)
        if (!sdc_comm_is_processes(ops))
            failed += cmocka_run_group_tests_name(sdc_comm_name(ops), suite, NULL, NULL);
    return failed != 0;
}
