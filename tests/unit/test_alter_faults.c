/* SPDX-License-Identifier: Apache-2.0
 *
 * Altering and undoing while the system misbehaves: short counts, interrupts, reads and writes that
 * fail, memory that runs out, each at every place in turn, on every way of altering: nothing is
 * lost, nothing is left behind, and what succeeds is what it would have been. And files beyond 4
 * GiB.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt_files.h"
#include "sdc/alter.h"

static struct sdc_error err;

#define DIR_NAME "faults.d"

/* A way of altering. Where storage is written anew in place the original is kept, so that undo
 * gives back the bytes. */
struct way {
    const char *name;
    const char *files[6]; /* of the source tree or, without a folder, of this format, made here */
    const char *path;     /* of the checkpoint */
    const char *out;      /* NULL: in place */
    const char *record;
    bool keep;
    bool is_folder; /* the files go into path */
};

#define SEEDS  "tests/fuzz/seeds/"
#define BUNDLE "tests/data/tensorbundle/merged."
#define SHARD  "tests/data/dcp/rows/"
#define BUNDLE_FILES                                                                               \
    .files = {BUNDLE "index", BUNDLE "data-00000-of-00002", BUNDLE "data-00001-of-00002"}
#define FOLDER_FILES                                                                               \
    .is_folder = true, .files = {SHARD ".metadata", SHARD "__0_0.distcp", SHARD "__1_0.distcp",    \
                                 SHARD "__2_0.distcp", SHARD "__3_0.distcp"}
#define IN_PLACE(name_, path_, ...)                                                                \
    { .name = name_ ", in place", .path = path_, .record = path_ ".sdc.jsonl", __VA_ARGS__ }
#define COPY(name_, path_, ...)                                                                    \
    { .name = name_ ", copy", .path = path_, .out = "out", .record = "out.sdc.jsonl", __VA_ARGS__ }

static const struct way ways[] = {
    IN_PLACE("file", "a", .files = {"safetensors"}),
    COPY("file", "a", .files = {"safetensors"}),
    IN_PLACE("HDF5 file", "a", .files = {"hdf5"}),
    {.name = "set with checksums, in place", /* its record has the name of the set */
     .path = "merged.index",
     .record = "merged.sdc.jsonl",
     BUNDLE_FILES},
    COPY("set with checksums", "merged.index", BUNDLE_FILES),
    IN_PLACE("folder", "rows", FOLDER_FILES),
    COPY("folder", "rows", FOLDER_FILES),
    IN_PLACE("zip with CRC-32", "zip", .files = {SEEDS "torch/zip"}),
    COPY("zip with CRC-32", "zip", .files = {SEEDS "torch/zip"}),
    IN_PLACE("deflated zip", "deflated", .keep = true, .files = {SEEDS "torch/deflated"}),
    COPY("deflated zip", "deflated", .files = {SEEDS "torch/deflated"}),
    IN_PLACE("HDF5 with filters", "full-latest.h5", .keep = true,
             .files = {SEEDS "hdf5/full-latest.h5"}),
    COPY("HDF5 with filters", "full-latest.h5", .files = {SEEDS "hdf5/full-latest.h5"}),
};
#define N_WAYS (sizeof ways / sizeof *ways)

/* ---- the folder ---- */

static char *in_dir(const char *name) {
    static char texts[8][512];
    static unsigned next;
    char *text = texts[next++ % 8];
    (void)snprintf(text, sizeof texts[0], DIR_NAME "/%s", name);
    return text;
}

/* The names and bytes of all files, but temporaries' and records', as one text. */
static void add_files(const char *folder, struct sdc_buf *out) {
    struct dirent **names = NULL;
    int n = scandir(folder, &names, NULL, alphasort);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        char path[1024];
        const char *name = names[i]->d_name;
        (void)snprintf(path, sizeof path, "%s/%s", folder, name);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || sdc__temp_is_ours(name) ||
            strstr(name, ".sdc.jsonl")) {
            continue;
        }
        sdc__buf_printf(out, "%s\n", path);
        if (sdc__path_is_dir(path))
            add_files(path, out);
        else
            assert_ok(sdc__read_whole(path, (size_t)1 << 30, out, &err));
    }
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static struct sdc_buf state_of_dir(void) {
    struct sdc_buf b = SDC_BUF_INIT;
    add_files(DIR_NAME, &b);
    assert_false(b.failed);
    return b;
}

static bool dir_is(const struct sdc_buf *want) {
    struct sdc_buf is = state_of_dir();
    bool same = same_bytes(&is, want);
    sdc__buf_release(&is);
    return same;
}

static unsigned temporaries(const char *folder) {
    unsigned n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += sdc__temp_is_ours(e->d_name);
    closedir(d);
    return n;
}

/* Fills the folder anew, quickly: from copies in memory. */
#define MAX_FILES (sizeof ways[0].files / sizeof ways[0].files[0])
static struct sdc_buf contents[MAX_FILES];

static void load(const struct way *w) {
    for (size_t i = 0; i < MAX_FILES && w->files[i]; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/%s", getenv("SDC_SOURCE_DIR"), w->files[i]);
        if (strchr(w->files[i], '/')) {
            contents[i] = read_file(path);
        } else {
            make_ckpt("made.ckpt", w->files[i]);
            contents[i] = read_file("made.ckpt");
        }
    }
}

static void unload(void) {
    for (size_t i = 0; i < MAX_FILES; i++)
        sdc__buf_release(&contents[i]);
}

static void fresh(const struct way *w) {
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
    assert_ok(sdc__make_dirs(DIR_NAME, &err));
    if (w->is_folder)
        assert_ok(sdc__make_dirs(in_dir(w->path), &err));
    for (size_t i = 0; i < MAX_FILES && w->files[i]; i++) {
        char name[256];
        const char *base = strchr(w->files[i], '/') ? sdc__path_base(w->files[i]) : w->path;
        (void)snprintf(name, sizeof name, "%s%s%s", w->is_folder ? w->path : "",
                       w->is_folder ? "/" : "", base);
        write_file(in_dir(name), &contents[i]);
    }
}

/* ---- the work ---- */

static bool no_sync; /* where syncs are not what is tested: they take long */

static enum sdc_status alter(const struct way *w, struct sdc_error *e) {
    struct sdc_choice c;
    struct sdc_alter_options o = {.output = w->out ? in_dir(w->out) : NULL,
                                  .no_sync = no_sync,
                                  .keep_original = w->keep,
                                  .seed = 12};
    struct sdc_alter_result r = {0};
    sdc_choice_init(&c);
    enum sdc_status st = sdc_choice_set(&c, "flips", "6", e);
    if (st == SDC_OK)
        st = sdc_alter(in_dir(w->path), &c, &o, &r, e);
    sdc_choice_release(&c);
    sdc_alter_result_release(&r);
    return st;
}

static enum sdc_status undo(const struct way *w, struct sdc_error *e) {
    struct sdc_undo_result u;
    enum sdc_status st = sdc_undo(in_dir(w->record), NULL, no_sync, &u, e);
    if (st == SDC_OK)
        sdc_text_free(u.file);
    return st;
}

/* The second name of a file that is as it was: it may stay where nothing can be removed. */
static void forget_kept(const struct way *w) {
    char kept[512];
    (void)snprintf(kept, sizeof kept, "%s.orig", in_dir(w->path));
    assert_ok(sdc__remove_file(kept, &err));
}

/* After a failure of alter: the old state, or one that undo restores; nothing else lies around,
 * unless nothing can be removed any more. */
static void assert_nothing_lost(const struct way *w, bool removable, const struct sdc_buf *old,
                                const struct sdc_buf *new) {
    if (removable && temporaries(DIR_NAME) != 0)
        fail_msg("%s: a temporary is left after: %s", w->name, err.message);
    if (!removable && w->keep && !sdc__path_exists(in_dir(w->record)))
        forget_kept(w);
    if (dir_is(old))
        return;
    if (w->out)
        assert_true(dir_is(new)); /* whole, or not there */
    if (!sdc__path_exists(in_dir(w->record)))
        fail_msg("%s: changed, and no record, after: %s", w->name, err.message);
    char what[sizeof err.message];
    (void)snprintf(what, sizeof what, "%s", err.message);
    assert_ok(undo(w, &err));
    if (w->out)
        assert_ok(sdc__remove_tree(in_dir(w->out), &err));
    if (!removable && w->keep)
        forget_kept(w);
    if (!dir_is(old))
        fail_msg("%s: not restored, after: %s", w->name, what);
}

static uint64_t stride = 1; /* of the allocations that fail; of the calls that do, less */

static uint64_t call_stride(void) {
    return stride > 3 ? 3 : stride;
}

/* ---- a system that is slow ---- */

struct trouble {
    uint64_t at; /* which call, from 1; 0: every other one */
    int code;
    bool for_all; /* the later ones too */
    uint64_t seen;
    size_t most; /* bytes in a call */
};

static bool hit(struct trouble *t, uint64_t n) {
    t->seen = n;
    return t->at == 0 ? n % 2 : n == t->at || (t->for_all && n > t->at);
}

static int on_write(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    struct trouble *t = user;
    (void)path;
    bool can_be_interrupted = op == SDC_IO_OP_WRITE || op == SDC_IO_OP_SYNC;
    return hit(t, n) && (t->code != EINTR || can_be_interrupted) ? t->code : 0;
}

static int on_read(void *user, uint64_t n, const char *path) {
    struct trouble *t = user;
    (void)path;
    return hit(t, n) ? t->code : 0;
}

static size_t cut(void *user, size_t len) {
    const struct trouble *t = user;
    return len < t->most ? len : t->most;
}

static void short_counts_and_interrupts_change_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < N_WAYS; k++) {
        const struct way *w = &ways[k];
        load(w);
        fresh(w);
        struct sdc_buf old = state_of_dir();
        assert_ok(alter(w, &err));
        struct sdc_buf new = state_of_dir();
        for (size_t most = 3; most < 5000; most = most * 37) {
            struct trouble t = {.code = EINTR, .most = w->out && most < 100 ? 1021 : most};
            struct sdc_io_hook hook = {
                .before = on_write, .before_read = on_read, .cut = cut, .user = &t};
            fresh(w);
            sdc__io_test_hook(&hook);
            assert_ok(alter(w, &err));
            assert_true(dir_is(&new));
            assert_ok(undo(w, &err));
            sdc__io_test_hook(NULL);
            if (w->out)
                assert_ok(sdc__remove_tree(in_dir(w->out), &err));
            assert_true(dir_is(&old));
        }
        sdc__buf_release(&old);
        sdc__buf_release(&new);
        unload();
    }
}

/* ---- calls that fail ---- */

static unsigned fail_each(const struct way *w, bool reads, int code, bool for_all,
                          const struct sdc_buf *old, const struct sdc_buf *new) {
    unsigned failures = 0;
    for (struct trouble t = {.at = 1, .code = code, .for_all = for_all};; t.at += call_stride()) {
        struct sdc_io_hook hook = {
            .before = reads ? NULL : on_write, .before_read = reads ? on_read : NULL, .user = &t};
        fresh(w);
        t.seen = 0;
        sdc__io_test_hook(&hook);
        enum sdc_status st = alter(w, &err);
        sdc__io_test_hook(NULL);
        if (t.seen < t.at) {
            assert_int_equal(st, SDC_OK);
            return failures;
        }
        failures++;
        if (st == SDC_OK) /* of something that is only a favour */
            assert_true(dir_is(new));
        else
            assert_true(err.message[0] != '\0');
        assert_nothing_lost(w, !for_all, old, new);
    }
}

static void a_call_that_fails_loses_nothing(void **state) {
    (void)state;
    print_message("%-32s %6s %6s %6s\n", "", "reads", "writes", "disk gone");
    for (size_t k = 0; k < N_WAYS; k++) {
        const struct way *w = &ways[k];
        load(w);
        fresh(w);
        struct sdc_buf old = state_of_dir();
        assert_ok(alter(w, &err));
        struct sdc_buf new = state_of_dir();
        unsigned reads = fail_each(w, true, EIO, false, &old, &new);
        unsigned writes = fail_each(w, false, ENOSPC, false, &old, &new);
        unsigned gone = fail_each(w, false, EIO, true, &old, &new);
        assert_true(reads * call_stride() > 5 && writes * call_stride() > 5 && gone == writes);
        print_message("%-32s %6u %6u %6u  none lost\n", w->name, reads, writes, gone);
        sdc__buf_release(&old);
        sdc__buf_release(&new);
        unload();
    }
}

/* A failing read or write of undo: it says so, and run again it restores. */
static void undo_can_be_repeated(void **state) {
    (void)state;
    for (size_t k = 0; k < N_WAYS; k++) {
        const struct way *w = &ways[k];
        load(w);
        fresh(w);
        struct sdc_buf old = state_of_dir();
        for (int reads = 0; reads < 2; reads++) {
            bool done = false;
            for (struct trouble t = {.at = 1, .code = EIO}; !done; t.at += call_stride()) {
                struct sdc_io_hook hook = {.before = reads ? NULL : on_write,
                                           .before_read = reads ? on_read : NULL,
                                           .user = &t};
                fresh(w);
                no_sync = true;
                assert_ok(alter(w, &err));
                no_sync = false;
                t.seen = 0;
                sdc__io_test_hook(&hook);
                enum sdc_status st = undo(w, &err);
                sdc__io_test_hook(NULL);
                done = t.seen < t.at;
                assert_true(!done || st == SDC_OK);
                assert_ok(undo(w, &err));
                if (w->out)
                    assert_ok(sdc__remove_tree(in_dir(w->out), &err));
                if (!dir_is(&old))
                    fail_msg("%s, %s %llu: not restored", w->name, reads ? "read" : "write",
                             (unsigned long long)t.at);
            }
        }
        sdc__buf_release(&old);
        unload();
    }
}

/* ---- memory ---- */

static void no_memory_loses_nothing(void **state) {
    (void)state;
    no_sync = true;
    for (size_t k = 0; k < N_WAYS; k++) {
        const struct way *w = &ways[k];
        load(w);
        fresh(w);
        struct sdc_buf old = state_of_dir();
        assert_ok(alter(w, &err));
        struct sdc_buf new = state_of_dir();
        uint64_t failures = 0;
        bool reached = true;
        for (uint64_t at = 1 + k % stride; reached; at += stride) {
            fresh(w);
            uint64_t before = sdc__alloc_count();
            sdc__alloc_fail_at(at);
            enum sdc_status st = alter(w, &err);
            sdc__alloc_fail_at(0);
            reached = sdc__alloc_count() - before >= at;
            failures += st != SDC_OK;
            if (st != SDC_OK && st != SDC_NO_MEMORY)
                fail_msg("%s, allocation %llu: %s", w->name, (unsigned long long)at, err.message);
            if (st == SDC_OK && !dir_is(&new))
                fail_msg("%s, allocation %llu: another result", w->name, (unsigned long long)at);
            if (st != SDC_OK)
                assert_nothing_lost(w, true, &old, &new);
        }
        assert_true(failures * stride > 20);
        fresh(w);
        assert_ok(alter(w, &err));
        reached = true;
        for (uint64_t at = 1 + k % stride; reached; at += stride) {
            uint64_t before = sdc__alloc_count();
            sdc__alloc_fail_at(at);
            enum sdc_status st = undo(w, &err);
            sdc__alloc_fail_at(0);
            reached = sdc__alloc_count() - before >= at;
            if (st != SDC_OK && st != SDC_NO_MEMORY)
                fail_msg("undo of %s, allocation %llu: %s", w->name, (unsigned long long)at,
                         err.message);
            if (st != SDC_OK)
                continue;
            fresh(w); /* restored: altered anew for the next */
            assert_ok(alter(w, &err));
        }
        assert_ok(undo(w, &err));
        if (w->out)
            assert_ok(sdc__remove_tree(in_dir(w->out), &err));
        assert_true(dir_is(&old));
        sdc__buf_release(&old);
        sdc__buf_release(&new);
        unload();
    }
    no_sync = false;
}

/* ---- beyond 4 GiB ---- */

/* A file of 6 GiB that is nearly all a hole. */
static bool make_big(const char *path) {
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1610612736],"
                                 "\"data_offsets\":[0,6442450944]}}     ";
    const uint64_t n = sizeof header - 1;
    unsigned char length[8];
    struct sdc_file f;
    sdc_num_store(SDC_DTYPE_U64, n, length, false);
    assert_ok(sdc__file_open(path, SDC_FILE_NEW, &f, &err));
    assert_ok(sdc__file_write(&f, 0, length, 8, &err));
    assert_ok(sdc__file_write(&f, 8, header, n, &err));
    bool fits = sdc__file_truncate(&f, 8 + n + 6442450944, &err) == SDC_OK;
    sdc__file_close(&f);
    return fits;
}

static void places_beyond_4_gib(void **state) {
    (void)state;
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
    assert_ok(sdc__make_dirs(DIR_NAME, &err));
    if (!make_big(in_dir("big"))) {
        print_message("skipped: no files of 6 GiB on this file system\n");
        skip();
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        struct sdc_choice c;
        struct sdc_alter_options o = {.output = in_place ? NULL : in_dir("out")};
        struct sdc_alter_result r;
        struct sdc_undo_result u;
        struct sdc_file f;
        unsigned char is[4], old[4] = {0};
        sdc_choice_init(&c);
        assert_ok(sdc_choice_set(&c, "at", "w[1610612735]@lsb:30", &err));
        assert_ok(sdc_choice_set(&c, "at", "w[1073741830]@lsb:1", &err));
        assert_ok(sdc_alter(in_dir("big"), &c, &o, &r, &err));
        sdc_choice_release(&c);
        assert_int_equal(r.altered, 2);
        assert_true(r.changes[0].offset > UINT32_MAX && r.changes[1].offset > 6000000000);
        assert_ok(sdc__file_open(in_dir(in_place ? "big" : "out"), SDC_FILE_READ, &f, &err));
        assert_ok(sdc__file_read(&f, r.changes[1].offset, is, 4, &err));
        assert_memory_equal(is, "\0\0\0\x40", 4);
        assert_int_equal(f.size, r.changes[1].offset + 4);
        assert_ok(sdc_undo(r.record, NULL, true, &u, &err));
        assert_int_equal(u.restored, 2);
        sdc_text_free(u.file);
        assert_ok(sdc__file_read(&f, r.changes[1].offset, is, 4, &err));
        assert_memory_equal(is, old, 4);
        sdc__file_close(&f);
        sdc_alter_result_release(&r);
    }
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
}

/* A test that failed may have left its hook. */
static int calm(void **state) {
    (void)state;
    sdc__io_test_hook(NULL);
    sdc__alloc_fail_at(0);
    no_sync = false;
    return 0;
}

/* The argument: every how many allocations one fails; 1 takes a minute. */
int main(int argc, char **argv) {
    unsigned long long every;
    if (argc > 1 && sdc__parse_u64(argv[1], &every) && every > 0)
        stride = every;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(short_counts_and_interrupts_change_nothing, calm),
        cmocka_unit_test_setup(a_call_that_fails_loses_nothing, calm),
        cmocka_unit_test_setup(undo_can_be_repeated, calm),
        cmocka_unit_test_setup(no_memory_loses_nothing, calm),
        cmocka_unit_test_setup(places_beyond_4_gib, calm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
