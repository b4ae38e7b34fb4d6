/* SPDX-License-Identifier: Apache-2.0
 *
 * What every checkpoint format that can be written must do, run over all of the table.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/fmt.h"
#include "io/io.h"
#include "sdc/ckpt.h"
#include "test.h"

static struct sdc_error err;
static const char *format; /* the one under test */

#define FILE_A "dir/a.ckpt"
#define FILE_B "dir/b.ckpt"

static int fresh(void **state) {
    format = *state;
    sdc__io_test_hook(NULL);
    sdc__alloc_fail_at(0);
    if (sdc__remove_tree("dir", &err) != SDC_OK)
        return -1;
    return sdc__make_dirs("dir", &err) == SDC_OK ? 0 : -1;
}

static unsigned entries(void) {
    unsigned n = 0;
    FILE *p = popen("ls -A dir | wc -l", "r");
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%u", &n), 1);
    pclose(p);
    return n;
}

/* ---- a state with every type and every rank ---- */

struct made {
    char name[64];
    struct sdc_tensor_desc desc;
    uint64_t shape[6];
    unsigned char *data;
};

enum { N_TYPES = SDC_DTYPE_BOOL + 1 }; /* that every format can write */
enum { N_MADE = N_TYPES + 8 };

static void make_one(struct made *m, enum sdc_dtype dtype, unsigned rank, const uint64_t *shape) {
    m->desc = (struct sdc_tensor_desc){.name = m->name, .dtype = dtype, .rank = rank};
    m->desc.n_elems = 1;
    for (unsigned i = 0; i < rank; i++) {
        m->shape[i] = shape[i];
        m->desc.n_elems *= shape[i];
    }
    m->desc.shape = m->shape;
    size_t n = (size_t)m->desc.n_elems * sdc_dtype_bytes(dtype);
    m->data = malloc(n ? n : 1);
    assert_non_null(m->data);
    for (size_t i = 0; i < n; i++) /* any bits, NaNs among them; booleans 0 or 1 */
        m->data[i] = (unsigned char)(dtype == SDC_DTYPE_BOOL ? i % 2 : (i * 167 + rank * 31) & 255);
}

static void make_state(struct made made[N_MADE]) {
    static const uint64_t shape[5] = {3, 2, 4, 1, 5}, empty[2] = {3, 0};
    size_t n = 0;
    for (int d = 0; d < N_TYPES; d++, n++) {
        snprintf(made[n].name, sizeof made[n].name, "model/type.%s",
                 sdc_dtype_name((enum sdc_dtype)d));
        make_one(&made[n], (enum sdc_dtype)d, 2, shape);
    }
    for (unsigned rank = 0; rank <= 5; rank++, n++) {
        snprintf(made[n].name, sizeof made[n].name, "optimizer/rank/%u.weight", rank);
        make_one(&made[n], SDC_DTYPE_F32, rank, shape);
    }
    snprintf(made[n].name, sizeof made[n].name, "empty");
    make_one(&made[n++], SDC_DTYPE_F64, 2, empty);
    snprintf(made[n].name, sizeof made[n].name, "loop/step");
    make_one(&made[n++], SDC_DTYPE_I64, 0, NULL);
    assert_int_equal(n, N_MADE);
}

static void free_state(struct made made[N_MADE]) {
    for (size_t i = 0; i < N_MADE; i++)
        free(made[i].data);
}

static enum sdc_status save(const char *path, const struct made *made, bool reverse, bool sync) {
    struct sdc_ckpt_writer *w = NULL;
    enum sdc_status st = sdc_ckpt_writer_new(path, format, true, &w, &err);
    for (size_t k = 0; st == SDC_OK && k < N_MADE; k++) {
        const struct made *m = &made[reverse ? N_MADE - 1 - k : k];
        st = sdc_ckpt_writer_put(w, &m->desc, m->data, &err);
    }
    if (st == SDC_OK)
        st = sdc_ckpt_writer_commit(w, sync, &err);
    if (st != SDC_OK)
        sdc_ckpt_writer_abandon(w);
    return st;
}

static unsigned char *slurp(const char *path, size_t *size) {
    struct sdc_buf b = SDC_BUF_INIT;
    assert_ok(sdc__read_whole(path, 1u << 30, &b, &err));
    *size = b.len;
    unsigned char *copy = malloc(b.len + 1);
    assert_non_null(copy);
    memcpy(copy, b.data, b.len);
    sdc__buf_release(&b);
    return copy;
}

/* ---- cases ---- */

static void what_is_saved_is_listed_and_read(void **state) {
    (void)state;
    struct made made[N_MADE];
    struct sdc_ckpt *c;
    make_state(made);
    assert_ok(save(FILE_A, made, false, false));
    assert_ok(sdc_ckpt_open(FILE_A, NULL, &c, &err));
    assert_string_equal(sdc_ckpt_format(c), format);
    assert_string_equal(sdc_ckpt_path(c), FILE_A);
    struct stat s;
    assert_int_equal(stat(FILE_A, &s), 0);
    assert_int_equal(sdc_ckpt_file_size(c), s.st_size);
    assert_int_equal(sdc_ckpt_count(c), N_MADE);
    for (size_t i = 1; i < N_MADE; i++)
        assert_true(strcmp(sdc_ckpt_tensor(c, i - 1)->name, sdc_ckpt_tensor(c, i)->name) < 0);
    for (size_t k = 0; k < N_MADE; k++) {
        const struct made *m = &made[k];
        size_t i, n_aliases, size = sdc_dtype_bytes(m->desc.dtype);
        assert_true(sdc_ckpt_find(c, m->name, &i));
        const struct sdc_tensor_desc *d = sdc_ckpt_tensor(c, i);
        assert_string_equal(d->name, m->name);
        assert_true(d->dtype_known);
        assert_int_equal(d->dtype, m->desc.dtype);
        assert_non_null(d->dtype_text);
        assert_int_equal(d->rank, m->desc.rank);
        assert_memory_equal(d->shape, m->shape, d->rank * sizeof *d->shape);
        assert_int_equal(d->n_elems, m->desc.n_elems);
        assert_null(d->locked);
        assert_string_equal(sdc_ckpt_storage(c, i), "contiguous");
        assert_int_equal(sdc_ckpt_stored_size(c, i), d->n_elems * size);
        (void)sdc_ckpt_aliases(c, i, &n_aliases);
        assert_int_equal(n_aliases, 0);
        unsigned char back[1000];
        assert_true(d->n_elems * size <= sizeof back);
        assert_ok(sdc_ckpt_read(c, i, 0, d->n_elems, back, &err));
        assert_memory_equal(back, m->data, d->n_elems * size);
        for (uint64_t e = 0; e + 1 < d->n_elems; e += 2) { /* parts */
            assert_ok(sdc_ckpt_read(c, i, e, 2, back, &err));
            assert_memory_equal(back, m->data + e * size, 2 * size);
        }
    }
    size_t i;
    assert_false(sdc_ckpt_find(c, "model/none", &i));
    assert_false(sdc_ckpt_find(c, "", &i));
    assert_true(sdc_ckpt_find(c, "optimizer/rank/4.weight", &i));
    assert_int_equal(sdc_ckpt_tensor(c, i)->part, SDC_PART_OPTIMIZER);
    assert_true(sdc_ckpt_find(c, "loop/step", &i));
    assert_int_equal(sdc_ckpt_tensor(c, i)->part, SDC_PART_LOOP);
    sdc_ckpt_close(c);
    sdc_ckpt_close(NULL);
    free_state(made);
}

/* The mapped place holds the element, and a byte changed there is the one change that reading sees.
 */
static void the_map_is_where_reading_reads(void **state) {
    (void)state;
    struct made made[N_MADE];
    struct sdc_ckpt *c;
    struct sdc_file f;
    make_state(made);
    assert_ok(save(FILE_A, made, false, false));
    assert_ok(sdc_ckpt_open(FILE_A, NULL, &c, &err));
    assert_ok(sdc__file_open(FILE_A, SDC_FILE_UPDATE, &f, &err));
    for (size_t k = 0; k < N_MADE; k++) {
        struct made *m = &made[k];
        unsigned size = sdc_dtype_bytes(m->desc.dtype);
        size_t i;
        assert_true(sdc_ckpt_find(c, m->name, &i));
        for (uint64_t e = 0; e < m->desc.n_elems; e++) {
            struct sdc_span span;
            unsigned char raw[8], back[1000];
            assert_ok(sdc_ckpt_map(c, i, e, &span, &err));
            assert_int_equal(span.size, size);
            assert_ok(sdc__file_read(&f, span.offset, raw, size, &err));
            assert_int_equal(sdc_num_load(m->desc.dtype, raw, span.big_endian),
                             sdc_num_load(m->desc.dtype, m->data + e * size, false));
            unsigned byte = (unsigned)(e % size);
            unsigned at = span.big_endian ? size - 1 - byte : byte;
            raw[at] ^= 1;
            m->data[e * size + byte] ^= 1;
            assert_ok(sdc__file_write(&f, span.offset + at, &raw[at], 1, &err));
            assert_ok(sdc_ckpt_read(c, i, 0, m->desc.n_elems, back, &err));
            assert_memory_equal(back, m->data, m->desc.n_elems * size);
        }
    }
    sdc__file_close(&f);
    sdc_ckpt_close(c);
    /* and everything again through a fresh object */
    assert_ok(sdc_ckpt_open(FILE_A, NULL, &c, &err));
    for (size_t k = 0; k < N_MADE; k++) {
        unsigned char back[1000];
        size_t i;
        assert_true(sdc_ckpt_find(c, made[k].name, &i));
        assert_ok(sdc_ckpt_read(c, i, 0, made[k].desc.n_elems, back, &err));
        assert_memory_equal(back, made[k].data,
                            made[k].desc.n_elems * sdc_dtype_bytes(made[k].desc.dtype));
    }
    sdc_ckpt_close(c);
    free_state(made);
}

static void out_of_range_is_refused(void **state) {
    (void)state;
    struct made made[N_MADE];
    struct sdc_ckpt *c;
    struct sdc_span span;
    double buffer[16];
    size_t i;
    make_state(made);
    assert_ok(save(FILE_A, made, false, false));
    assert_ok(sdc_ckpt_open(FILE_A, NULL, &c, &err));
    assert_true(sdc_ckpt_find(c, "model/type.F64", &i)); /* 3 x 2 */
    assert_status(SDC_USAGE, sdc_ckpt_map(c, i, 6, &span, &err));
    assert_message_has("model/type.F64: element 6 of 6");
    assert_status(SDC_USAGE, sdc_ckpt_map(c, i, UINT64_MAX, &span, &err));
    assert_status(SDC_USAGE, sdc_ckpt_map(c, N_MADE, 0, &span, &err));
    assert_status(SDC_USAGE, sdc_ckpt_read(c, i, 0, 7, buffer, &err));
    assert_status(SDC_USAGE, sdc_ckpt_read(c, i, 5, 2, buffer, &err));
    assert_status(SDC_USAGE, sdc_ckpt_read(c, i, UINT64_MAX, 2, buffer, &err));
    assert_status(SDC_USAGE, sdc_ckpt_read(c, N_MADE, 0, 1, buffer, &err));
    assert_ok(sdc_ckpt_read(c, i, 6, 0, buffer, &err));
    assert_true(sdc_ckpt_find(c, "empty", &i));
    assert_status(SDC_USAGE, sdc_ckpt_map(c, i, 0, &span, &err));
    assert_ok(sdc_ckpt_read(c, i, 0, 0, buffer, &err));
    sdc_ckpt_close(c);
    free_state(made);
}

static void equal_states_give_equal_files(void **state) {
    (void)state;
    struct made made[N_MADE];
    size_t n, m;
    make_state(made);
    assert_ok(save(FILE_A, made, false, false));
    /* another process, another order, and a dirty heap there */
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        void *dirt = malloc(1u << 20);
        if (dirt)
            memset(dirt, 0xa5, 1u << 20);
        free(dirt);
        _exit(save(FILE_B, made, true, true) == SDC_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    unsigned char *a = slurp(FILE_A, &n), *b = slurp(FILE_B, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    assert_int_equal(entries(), 2);
    free(a);
    free(b);
    free_state(made);
}

static void an_empty_state_is_a_file(void **state) {
    (void)state;
    struct sdc_ckpt_writer *w;
    struct sdc_ckpt *c;
    assert_ok(sdc_ckpt_writer_new(FILE_A, format, false, &w, &err));
    assert_ok(sdc_ckpt_writer_commit(w, false, &err));
    assert_ok(sdc_ckpt_open(FILE_A, NULL, &c, &err));
    assert_int_equal(sdc_ckpt_count(c), 0);
    sdc_ckpt_close(c);
}

static void put_named(struct sdc_ckpt_writer *w, const char *name, float value) {
    const struct sdc_tensor_desc d = {.name = name, .dtype = SDC_DTYPE_F32};
    assert_ok(sdc_ckpt_writer_put(w, &d, &value, &err));
}

static void names_keep_every_character(void **state) {
    (void)state;
    char big[3901];
    memset(big, 'n', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    for (size_t i = 200; i < sizeof big - 1; i += 200)
        big[i] = '/';
    const char *const names[] = {"a",
                                 "a b",
                                 "a.b",
                                 "[0,1]@lsb:3",
                                 "q\"uote\\",
                                 "a*?",
                                 "gr\xc3\xb6\xc3\x9f"
                                 "e",
                                 "\xf0\x9f\x92\xbe",
                                 "..",
                                 "a'b",
                                 big};
    const size_t n = sizeof names / sizeof *names;
    struct sdc_ckpt_writer *w;
    struct sdc_ckpt *c;
    assert_ok(sdc_ckpt_writer_new(FILE_A, format, false, &w, &err));
    for (size_t i = 0; i < n; i++)
        put_named(w, names[i], (float)i);
    assert_ok(sdc_ckpt_writer_commit(w, false, &err));
    assert_ok(sdc_ckpt_open(FILE_A, NULL, &c, &err));
    assert_int_equal(sdc_ckpt_count(c), n);
    for (size_t i = 0; i < n; i++) {
        size_t t;
        float value;
        assert_true(sdc_ckpt_find(c, names[i], &t));
        assert_ok(sdc_ckpt_read(c, t, 0, 1, &value, &err));
        assert_float_equal(value, (float)i, 0);
    }
    sdc_ckpt_close(c);
}

static void wrong_puts_are_refused(void **state) {
    (void)state;
    struct sdc_ckpt_writer *w;
    const uint64_t huge[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, many[40] = {0};
    const float value = 1;
    char longest[4200];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_status(SDC_USAGE, sdc_ckpt_writer_new(FILE_A, "onnx", false, &w, &err));
    assert_message_has("onnx");
    assert_status(SDC_NOT_FOUND, sdc_ckpt_writer_new("none/a", format, false, &w, &err));
    assert_message_has("none");
    assert_ok(sdc_ckpt_writer_new(FILE_A, format, false, &w, &err));
    const struct sdc_tensor_desc bad[] = {
        {.name = longest, .dtype = SDC_DTYPE_F32},
        {.name = "\xff\xfe", .dtype = SDC_DTYPE_F32},
        {.name = "x", .dtype = SDC_DTYPE_F32, .rank = 2, .shape = huge},
        {.name = "x", .dtype = SDC_DTYPE_F32, .rank = 40, .shape = many},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_status(SDC_USAGE, sdc_ckpt_writer_put(w, &bad[i], &value, &err));
    put_named(w, "twice", 1);
    put_named(w, "other", 1);
    put_named(w, "twice", 2);
    assert_status(SDC_USAGE, sdc_ckpt_writer_commit(w, false, &err));
    assert_message_has("twice");
    sdc_ckpt_writer_abandon(w);
    sdc_ckpt_writer_abandon(NULL);
    assert_int_equal(entries(), 0);
}

static void an_existing_file_is_kept_unless_told(void **state) {
    (void)state;
    struct sdc_ckpt_writer *w;
    size_t n;
    assert_ok(sdc__write_whole(FILE_A, "precious", 8, false, &err));
    assert_status(SDC_EXISTS, sdc_ckpt_writer_new(FILE_A, format, false, &w, &err));
    assert_message_has(FILE_A);
    assert_ok(sdc_ckpt_writer_new(FILE_A, format, true, &w, &err));
    put_named(w, "x", 1);
    sdc_ckpt_writer_abandon(w);
    unsigned char *a = slurp(FILE_A, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(a, "precious", 8);
    free(a);
    assert_int_equal(entries(), 1);
    assert_ok(sdc_ckpt_writer_new(FILE_B, format, false, &w, &err));
    put_named(w, "x", 1);
    assert_ok(sdc__write_whole(FILE_B, "raced", 5, false, &err));
    assert_status(SDC_EXISTS, sdc_ckpt_writer_commit(w, false, &err));
    sdc_ckpt_writer_abandon(w);
    a = slurp(FILE_B, &n);
    assert_memory_equal(a, "raced", 5);
    free(a);
    assert_int_equal(entries(), 2);
}

struct trouble {
    uint64_t at, seen;
    int code;
};

static int fail_at(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    struct trouble *t = user;
    (void)op, (void)path;
    t->seen = n;
    return n == t->at ? t->code : 0;
}

static void a_full_disk_loses_nothing(void **state) {
    (void)state;
    struct made made[N_MADE];
    make_state(made);
    bool finished = false;
    size_t n;
    for (uint64_t at = 1; !finished; at++) {
        assert_true(at < 200);
        assert_ok(sdc__write_whole(FILE_A, "old", 3, false, &err));
        struct trouble t = {.at = at, .code = ENOSPC};
        sdc__io_test_hook(&(struct sdc_io_hook){.before = fail_at, .user = &t});
        enum sdc_status st = save(FILE_A, made, false, true);
        sdc__io_test_hook(NULL);
        finished = t.seen < at;
        assert_int_equal(entries(), 1);
        if (finished) {
            assert_int_equal(st, SDC_OK);
            break;
        }
        assert_int_equal(st, SDC_IO);
        assert_message_has("dir");
        assert_message_has("No space left on device");
        unsigned char *a = slurp(FILE_A, &n);
        if (t.seen == at && n == 3) /* all but the sync of the folder, after the rename */
            assert_memory_equal(a, "old", 3);
        free(a);
    }
    /* the kernel's own refusal */
    assert_ok(sdc__write_whole(FILE_A, "old", 3, false, &err));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit small = {1000, 1000};
        if (setrlimit(RLIMIT_FSIZE, &small) != 0)
            _exit(2);
        enum sdc_status st = save(FILE_A, made, false, true);
        _exit(st == SDC_IO && strstr(err.message, FILE_A) && strstr(err.message, "File too large")
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    unsigned char *a = slurp(FILE_A, &n);
    assert_int_equal(n, 3);
    free(a);
    assert_int_equal(entries(), 1);
    free_state(made);
}

static void no_memory_anywhere_is_reported(void **state) {
    (void)state;
    struct made made[N_MADE];
    make_state(made);
    enum sdc_status st = SDC_NO_MEMORY;
    for (uint64_t at = 1; st != SDC_OK; at++) {
        assert_true(at < 100000);
        sdc__alloc_fail_at(at);
        st = save(FILE_A, made, false, false);
        sdc__alloc_fail_at(0);
        assert_true(st == SDC_OK || st == SDC_NO_MEMORY);
        assert_int_equal(entries(), st == SDC_OK ? 1 : 0);
    }
    st = SDC_NO_MEMORY;
    for (uint64_t at = 1; st != SDC_OK; at++) {
        struct sdc_ckpt *c = NULL;
        assert_true(at < 100000);
        sdc__alloc_fail_at(at);
        st = sdc_ckpt_open(FILE_A, NULL, &c, &err);
        sdc__alloc_fail_at(0);
        assert_true(st == SDC_OK || st == SDC_NO_MEMORY);
        sdc_ckpt_close(c);
    }
    free_state(made);
}

/* Cut at every 64 bytes and near both ends. */
static void every_truncation_is_refused(void **state) {
    (void)state;
    struct made made[N_MADE];
    struct sdc_ckpt *c;
    size_t n;
    make_state(made);
    assert_ok(save(FILE_A, made, false, false));
    unsigned char *a = slurp(FILE_A, &n);
    for (size_t len = 0; len < n;) {
        assert_ok(sdc__write_whole(FILE_B, a, len, false, &err));
        assert_status(SDC_INVALID, sdc_ckpt_open(FILE_B, NULL, &c, &err));
        assert_message_has(FILE_B);
        char found[64];
        snprintf(found, sizeof found, "found %zu", len);
        if (len + 100 > n)
            assert_message_has(found);
        len += len < 16 || len + 16 >= n ? 1 : len + 80 > n ? n - 16 - len : 64;
    }
    free(a);
    free_state(made);
}

/* One thread per object, several objects at once. */
static void *work(void *user) {
    const char *path = user;
    struct sdc_error e;
    for (int round = 0; round < 20; round++) {
        struct sdc_ckpt_writer *w = NULL;
        struct sdc_ckpt *c = NULL;
        const uint64_t shape[1] = {1000};
        float data[1000], back[1000];
        for (int i = 0; i < 1000; i++)
            data[i] = (float)(i * round);
        const struct sdc_tensor_desc d = {
            .name = "model/w", .dtype = SDC_DTYPE_F32, .rank = 1, .shape = shape};
        if (sdc_ckpt_writer_new(path, format, true, &w, &e) != SDC_OK)
            return user;
        if (sdc_ckpt_writer_put(w, &d, data, &e) != SDC_OK ||
            sdc_ckpt_writer_commit(w, false, &e) != SDC_OK) {
            sdc_ckpt_writer_abandon(w);
            return user;
        }
        bool ok = sdc_ckpt_open(path, NULL, &c, &e) == SDC_OK &&
                  sdc_ckpt_read(c, 0, 0, 1000, back, &e) == SDC_OK &&
                  memcmp(data, back, sizeof data) == 0 &&
                  /* a failure, with libhdf5's error stack */
                  sdc_ckpt_open("dir", NULL, &(struct sdc_ckpt *){NULL}, &e) != SDC_OK;
        sdc_ckpt_close(c);
        if (!ok)
            return user;
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state) {
    (void)state;
    static char paths[4][16] = {"dir/0", "dir/1", "dir/2", "dir/3"};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, paths[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

/* ---- what is no checkpoint at all, whatever the format ---- */

#define B(text) text, sizeof text - 1 /* bytes that may hold NULs, and their number */

static void other_things_are_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        enum sdc_status st;
        const char *message;
    } rows[] = {
        {B(""), SDC_INVALID, "empty file"},
        {B("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"),
         SDC_UNSUPPORTED,
         "Git LFS pointer, the file itself was not downloaded (oid "
         "sha256:4d7a2146, 12345 bytes)"},
        {B("<!DOCTYPE html><html>"), SDC_UNSUPPORTED, "failed download"},
        {B("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), SDC_INVALID, "only zero bytes (20"},
        {B("\x93NUMPY\x01\0v\0{'descr'"), SDC_INVALID, "truncated: a header of 128 bytes"},
        {B("PK\x03\x04.............."), SDC_INVALID, "the directory at the end of the zip archive"},
        {B("PK\3\4\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0"
           "aPK\1\2\x14\3\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
           "\0\0\0\0\x80\1\0\0\0\0"
           "aPK\5\6\0\0\0\0\1\0\1\0/\0\0\0\x1f\0\0\0\0\0"),
         SDC_UNSUPPORTED, "a zip file of 1 members (a) that is no checkpoint"},
        {B("GGUF\x03\0\0\0\0\0\0\0"), SDC_INVALID, "truncated"},
        {B("\x80\x02}q\x01......."), SDC_UNSUPPORTED, "pickle"},
        {B("some text that is no checkpoint"), SDC_UNSUPPORTED, "not recognised"},
        {B("abc"), SDC_INVALID, "only 3 bytes"},
        {B("\x89HDF\r\n\x1a\n"), SDC_INVALID, "truncated"},
        {B("\x89HDF\r\n\x1a\n\x09.............................................."), SDC_UNSUPPORTED,
         "superblock version 9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sdc_ckpt *c;
        assert_ok(sdc__write_whole(FILE_A, rows[i].bytes, rows[i].n, false, &err));
        assert_status(rows[i].st, sdc_ckpt_open(FILE_A, NULL, &c, &err));
        assert_message_has(FILE_A);
        assert_message_has(rows[i].message);
    }
    struct sdc_ckpt *c;
    struct sdc_file f;
    assert_ok(sdc__remove_file(FILE_A, &err));
    assert_ok(sdc__file_open(FILE_A, SDC_FILE_NEW, &f, &err));
    assert_ok(sdc__file_write(&f, 300000, "x", 1, &err));
    sdc__file_close(&f);
    assert_status(SDC_INVALID, sdc_ckpt_open(FILE_A, NULL, &c, &err));
    assert_message_has("zero bytes up to 300000");
    assert_int_equal(err.offset, 300000);
    assert_status(SDC_NOT_FOUND, sdc_ckpt_open("dir/none", NULL, &c, &err));
    assert_status(SDC_UNSUPPORTED, sdc_ckpt_open("dir", NULL, &c, &err));
}

int main(void) {
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } cases[] = {
        {"what_is_saved_is_listed_and_read", what_is_saved_is_listed_and_read},
        {"the_map_is_where_reading_reads", the_map_is_where_reading_reads},
        {"out_of_range_is_refused", out_of_range_is_refused},
        {"equal_states_give_equal_files", equal_states_give_equal_files},
        {"an_empty_state_is_a_file", an_empty_state_is_a_file},
        {"names_keep_every_character", names_keep_every_character},
        {"wrong_puts_are_refused", wrong_puts_are_refused},
        {"an_existing_file_is_kept_unless_told", an_existing_file_is_kept_unless_told},
        {"a_full_disk_loses_nothing", a_full_disk_loses_nothing},
        {"no_memory_anywhere_is_reported", no_memory_anywhere_is_reported},
        {"threads_do_not_disturb_each_other", threads_do_not_disturb_each_other},
        {"every_truncation_is_refused", every_truncation_is_refused},
    };
    enum { N_CASES = sizeof cases / sizeof *cases };
    size_t n_formats;
    const char *const *formats = sdc_ckpt_formats(&n_formats);
    int failed = 0;
    for (size_t f = 0; f < n_formats; f++) {
        if (!sdc__ckpt_writer_find(
                formats[f])) /* read only: scripts test those on files of others */
            continue;
        struct CMUnitTest tests[N_CASES];
        for (size_t i = 0; i < N_CASES; i++)
            tests[i] = (struct CMUnitTest){cases[i].name, cases[i].run, fresh, NULL,
                                           (void *)(uintptr_t)formats[f]};
        failed += _cmocka_run_group_tests(formats[f], tests, N_CASES, NULL, NULL);
    }
    const struct CMUnitTest common[] = {cmocka_unit_test_setup(other_things_are_named, fresh)};
    return failed + cmocka_run_group_tests(common, NULL, NULL);
}
