/* SPDX-License-Identifier: Apache-2.0
 *
 * Files, atomic replacement and its seam, in a scratch folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "test.h"
#include "io/io.h"

static struct sdc_error err;

static void put_text(const char *path, const char *text) {
    assert_ok(sdc__write_whole(path, text, strlen(text), false, &err));
}

static void expect_text(const char *path, const char *want) {
    struct sdc_buf b = SDC_BUF_INIT;
    assert_ok(sdc__read_whole(path, 1000, &b, &err));
    assert_string_equal(b.data ? b.data : "", want);
    sdc__buf_release(&b);
}

/* Number of entries of a folder but the two dots. */
static unsigned entries(const char *dir) {
    char command[300];
    unsigned n = 0;
    snprintf(command, sizeof command, "ls -A %s | wc -l", dir);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%u", &n), 1);
    pclose(p);
    return n;
}

static int fresh(void **state) {
    (void)state;
    if (sdc__remove_tree("io", &err) != SDC_OK)
        return -1;
    return sdc__make_dirs("io", &err) == SDC_OK ? 0 : -1;
}

static void reads_and_writes_at_offsets(void **state) {
    (void)state;
    struct sdc_file f;
    char back[8] = "";
    assert_ok(sdc__file_open("io/a", SDC_FILE_NEW, &f, &err));
    uint64_t far = UINT64_C(5) << 30; /* beyond 32 bits; a hole, so cheap */
    assert_ok(sdc__file_write(&f, far, "abc", 3, &err));
    assert_int_equal(f.size, far + 3);
    assert_ok(sdc__file_read(&f, far, back, 3, &err));
    assert_string_equal(back, "abc");
    assert_status(SDC_INVALID, sdc__file_read(&f, far, back, 4, &err));
    assert_message_has("io/a: truncated");
    assert_int_equal(err.offset, far + 3);
    assert_status(SDC_INVALID, sdc__file_read(&f, UINT64_MAX - 1, back, 4, &err));
    assert_ok(sdc__file_truncate(&f, 2, &err));
    assert_ok(sdc__file_append(&f, "xy", 2, &err));
    assert_int_equal(f.size, 4);
    sdc__file_close(&f);
    sdc__file_close(&f); /* twice is allowed */

    assert_ok(sdc__file_open("io/a", SDC_FILE_APPEND, &f, &err));
    assert_int_equal(f.size, 4);
    assert_ok(sdc__file_append(&f, "z", 1, &err));
    sdc__file_close(&f);
    assert_ok(sdc__file_open("io/a", SDC_FILE_READ, &f, &err));
    assert_ok(sdc__file_read(&f, 0, back, 5, &err));
    assert_memory_equal(back, "\0\0xyz", 5);
    struct sdc_map map;
    assert_ok(sdc__file_map(&f, &map, &err));
    assert_int_equal(map.size, 5);
    assert_memory_equal(map.data, "\0\0xyz", 5);
    sdc__file_unmap(&map);
    assert_int_equal(truncate("io/a", 3), 0);
    assert_status(SDC_INVALID, sdc__file_map(&f, &map, &err));
    assert_message_has("became shorter");
    sdc__file_close(&f);
}

static void opening_names_what_is_wrong(void **state) {
    (void)state;
    struct sdc_file f;
    assert_status(SDC_NOT_FOUND, sdc__file_open("io/none", SDC_FILE_READ, &f, &err));
    assert_message_has("io/none");
    assert_int_equal(f.fd, -1);
    assert_status(SDC_UNSUPPORTED, sdc__file_open("io", SDC_FILE_READ, &f, &err));
    assert_message_has("a folder");
    assert_int_equal(mkfifo("io/pipe", 0600), 0);
    assert_status(SDC_UNSUPPORTED, sdc__file_open("io/pipe", SDC_FILE_READ, &f, &err));
    put_text("io/a", "1");
    assert_status(SDC_EXISTS, sdc__file_open("io/a", SDC_FILE_NEW, &f, &err));
    assert_message_has("io/a");
    expect_text("io/a", "1");
}

static void locks_exclude_each_other(void **state) {
    (void)state;
    struct sdc_file a, b;
    put_text("io/a", "1");
    assert_ok(sdc__file_open("io/a", SDC_FILE_UPDATE, &a, &err));
    assert_ok(sdc__file_open("io/a", SDC_FILE_READ, &b, &err));
    assert_ok(sdc__file_lock(&a, true, &err));
    assert_status(SDC_BUSY, sdc__file_lock(&b, false, &err));
    assert_message_has("io/a");
    sdc__file_close(&a);
    assert_ok(sdc__file_lock(&b, false, &err));
    assert_ok(sdc__file_open("io/a", SDC_FILE_READ, &a, &err));
    assert_ok(sdc__file_lock(&a, false, &err)); /* two readers */
    assert_status(SDC_BUSY, sdc__file_lock(&a, true, &err));
    sdc__file_close(&a);
    sdc__file_close(&b);
}

static void copies_a_file_whole(void **state) {
    (void)state;
    struct sdc_file a, b;
    size_t n = 3000001;
    unsigned char *data = malloc(n), *back = malloc(n);
    assert_non_null(data);
    assert_non_null(back);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_ok(sdc__write_whole("io/a", data, n, false, &err));
    assert_ok(sdc__file_open("io/a", SDC_FILE_READ, &a, &err));
    assert_ok(sdc__file_open("io/b", SDC_FILE_NEW, &b, &err));
    assert_ok(sdc__file_copy(&a, &b, &err));
    assert_int_equal(b.size, n);
    assert_ok(sdc__file_read(&b, 0, back, n, &err));
    assert_memory_equal(data, back, n);
    sdc__file_close(&a);
    sdc__file_close(&b);

    /* from a file system that cannot copy in the kernel */
    assert_ok(sdc__file_open("/proc/self/status", SDC_FILE_READ, &a, &err));
    a.size = 64; /* proc says 0 */
    assert_ok(sdc__file_open("io/c", SDC_FILE_NEW, &b, &err));
    assert_ok(sdc__file_copy(&a, &b, &err));
    assert_int_equal(b.size, 64);
    assert_ok(sdc__file_read(&b, 0, back, 5, &err));
    assert_memory_equal(back, "Name:", 5);
    sdc__file_close(&a);
    sdc__file_close(&b);
    free(data);
    free(back);
}

/* 5 GiB of which three places are stored: at the start, beyond 4 GiB, and a hole at the end. */
static void copies_keep_holes_and_places_beyond_4_gib(void **state) {
    (void)state;
    const uint64_t size = (uint64_t)5 << 30, far = ((uint64_t)4 << 30) + 12345;
    struct sdc_file from, to;
    char is[5];
    struct stat s;
    assert_ok(sdc__file_open("io/sparse", SDC_FILE_NEW, &from, &err));
    assert_ok(sdc__file_write(&from, 0, "first", 5, &err));
    assert_ok(sdc__file_write(&from, far, "other", 5, &err));
    assert_ok(sdc__file_truncate(&from, size, &err));
    assert_ok(sdc__file_open("io/copy", SDC_FILE_NEW, &to, &err));
    assert_ok(sdc__file_copy(&from, &to, &err));
    assert_true(to.size == size);
    assert_int_equal(fstat(to.fd, &s), 0);
    assert_true((uint64_t)s.st_size == size);
    assert_true(s.st_blocks * 512 < 1 << 24);
    assert_ok(sdc__file_read(&to, 0, is, 5, &err));
    assert_memory_equal(is, "first", 5);
    assert_ok(sdc__file_read(&to, far, is, 5, &err));
    assert_memory_equal(is, "other", 5);
    assert_ok(sdc__file_read(&to, far + 5, is, 5, &err));
    assert_memory_equal(is, "\0\0\0\0\0", 5);
    assert_ok(sdc__file_read(&to, size - 5, is, 5, &err));
    assert_memory_equal(is, "\0\0\0\0\0", 5);
    sdc__file_close(&from);
    sdc__file_close(&to);

    /* what is there already does not show through the holes */
    put_text("io/old", "AAAAAAAAAA");
    put_text("io/holes", "");
    assert_ok(sdc__file_open("io/holes", SDC_FILE_UPDATE, &from, &err));
    assert_ok(sdc__file_truncate(&from, 10, &err));
    assert_ok(sdc__file_open("io/old", SDC_FILE_UPDATE, &to, &err));
    assert_ok(sdc__file_copy(&from, &to, &err));
    assert_ok(sdc__file_read(&to, 3, is, 5, &err));
    assert_memory_equal(is, "\0\0\0\0\0", 5);
    sdc__file_close(&from);
    sdc__file_close(&to);
}

static void whole_files_have_a_limit(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    put_text("io/a", "0123456789");
    assert_status(SDC_LIMIT, sdc__read_whole("io/a", 9, &b, &err));
    assert_message_has("io/a");
    sdc__buf_clear(&b);
    sdc__buf_puts(&b, "x");
    assert_ok(sdc__read_whole("io/a", 10, &b, &err));
    assert_string_equal(b.data, "x0123456789");
    assert_status(SDC_NOT_FOUND, sdc__read_whole("io/none", 10, &b, &err));
    sdc__buf_release(&b);
}

static void gzip_is_inflated_and_checked(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    put_text("io/a", "0123456789 0123456789 0123456789");
    assert_int_equal(system("gzip -k io/a && head -c 25 io/a.gz > io/cut.gz && "
                            "head -c 200000 /dev/zero | gzip > io/bomb.gz"),
                     0);
    assert_ok(sdc__read_gz("io/a.gz", 100, &b, &err));
    assert_string_equal(b.data, "0123456789 0123456789 0123456789");
    sdc__buf_clear(&b);
    assert_ok(sdc__read_gz("io/a", 100, &b, &err)); /* not gzip: as it is */
    assert_int_equal(b.len, 32);
    sdc__buf_clear(&b);
    assert_status(SDC_INVALID, sdc__read_gz("io/cut.gz", 100, &b, &err));
    assert_message_has("io/cut.gz: truncated");
    assert_status(SDC_LIMIT, sdc__read_gz("io/bomb.gz", 100000, &b, &err));
    sdc__buf_release(&b);
}

static void replacing_is_atomic(void **state) {
    (void)state;
    struct sdc_replace r;
    put_text("io/a", "old");
    assert_int_equal(chmod("io/a", 0640), 0);
    assert_status(SDC_EXISTS, sdc__replace_begin("io/a", false, &r, &err));
    assert_message_has("io/a: exists already");
    assert_ok(sdc__replace_begin("io/a", true, &r, &err));
    assert_true(sdc__temp_is_ours(sdc__path_base(r.file.path)));
    assert_ok(sdc__file_write(&r.file, 0, "new", 3, &err));
    expect_text("io/a", "old");
    assert_ok(sdc__replace_commit(&r, true, &err));
    expect_text("io/a", "new");
    struct stat s;
    assert_int_equal(stat("io/a", &s), 0);
    assert_int_equal(s.st_mode & 07777, 0640);

    assert_ok(sdc__replace_begin("io/a", true, &r, &err));
    assert_ok(sdc__file_write(&r.file, 0, "junk", 4, &err));
    sdc__replace_abandon(&r);
    sdc__replace_abandon(&r);
    expect_text("io/a", "new");
    assert_int_equal(entries("io"), 1);

    /* a file that appears between begin and commit is not overwritten */
    assert_ok(sdc__replace_begin("io/b", false, &r, &err));
    put_text("io/b", "theirs");
    assert_status(SDC_EXISTS, sdc__replace_commit(&r, true, &err));
    expect_text("io/b", "theirs");
    assert_int_equal(entries("io"), 2);

    /* a link stays a link, its file is replaced */
    assert_int_equal(symlink("a", "io/link"), 0);
    put_text("io/link", "through");
    expect_text("io/a", "through");
    assert_int_equal(lstat("io/link", &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_status(SDC_EXISTS, sdc__replace_begin("io", true, &r, &err));
    assert_message_has("a folder");
}

/* Fails the n-th call with ENOSPC, or ends the process before it. */
struct trouble {
    uint64_t at;
    bool die;
    uint64_t seen;
};

static int make_trouble(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    struct trouble *t = user;
    (void)op;
    assert_non_null(path);
    t->seen = n;
    if (n != t->at)
        return 0;
    if (t->die)
        _exit(9);
    return ENOSPC;
}

static void every_failing_call_keeps_the_old_file(void **state) {
    (void)state;
    bool finished = false;
    for (uint64_t at = 1; !finished; at++) {
        assert_true(at < 20);
        put_text("io/a", "old");
        struct trouble t = {.at = at};
        sdc__io_test_hook(&(struct sdc_io_hook){.before = make_trouble, .user = &t});
        enum sdc_status st = sdc__write_whole("io/a", "new", 3, true, &err);
        sdc__io_test_hook(NULL);
        if (t.seen < at) { /* the hook had nothing left to fail */
            finished = true;
            assert_int_equal(st, SDC_OK);
            assert_int_equal(t.seen, 5); /* create, write, sync, rename, sync of the folder */
        } else {
            assert_int_equal(st, SDC_IO);
            assert_int_equal(err.sys_code, ENOSPC);
            assert_message_has("io");
            assert_message_has("No space left on device");
        }
        expect_text("io/a", at < 5 ? "old" : "new");
        assert_int_equal(entries("io"), 1);
    }
}

static void every_kill_leaves_old_or_new_and_the_next_run_cleans(void **state) {
    (void)state;
    for (uint64_t at = 1; at <= 5; at++) {
        put_text("io/a", "old");
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct trouble t = {.at = at, .die = true};
            sdc__io_test_hook(&(struct sdc_io_hook){.before = make_trouble, .user = &t});
            (void)!sdc__write_whole("io/a", "new", 3, true, &err);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(WEXITSTATUS(status), 9);
        expect_text("io/a", at < 5 ? "old" : "new");
        assert_int_equal(entries("io"), at > 1 && at < 5 ? 2 : 1);
        put_text("io/b", "next run");
        assert_int_equal(entries("io"), 2); /* a and b, no temporary */
        assert_ok(sdc__remove_file("io/b", &err));
    }
}

/* A system that transfers little at a time, and interrupts every other call. */
struct slow {
    uint64_t calls, interrupts;
    size_t most;
};

static int interrupt(struct slow *s) {
    if (s->calls++ % 2)
        return 0;
    s->interrupts++;
    return EINTR;
}

static int interrupt_write(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    (void)n;
    (void)path;
    return op == SDC_IO_OP_WRITE || op == SDC_IO_OP_SYNC || op == SDC_IO_OP_DIR_SYNC ||
                   op == SDC_IO_OP_TRUNCATE
               ? interrupt(user)
               : 0;
}

static int interrupt_read(void *user, uint64_t n, const char *path) {
    (void)n;
    (void)path;
    return interrupt(user);
}

static size_t cut(void *user, size_t len) {
    const struct slow *s = user;
    return len < s->most ? len : s->most;
}

static void short_counts_and_interrupts_change_nothing(void **state) {
    (void)state;
    static const char want[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const size_t len = sizeof want - 1;
    for (size_t most = 1; most < 9; most += 2) {
        struct slow s = {.most = most};
        struct sdc_io_hook hook = {
            .before = interrupt_write, .before_read = interrupt_read, .cut = cut, .user = &s};
        struct sdc_file f, g;
        char is[64];
        struct sdc_buf whole = SDC_BUF_INIT;
        assert_ok(sdc__remove_tree("io/slow", &err));
        assert_ok(sdc__make_dirs("io/slow", &err));
        sdc__io_test_hook(&hook);
        assert_ok(sdc__file_open("io/slow/a", SDC_FILE_NEW, &f, &err));
        assert_ok(sdc__file_write(&f, 0, want, 20, &err));
        assert_ok(sdc__file_append(&f, want + 20, len - 20, &err));
        assert_ok(sdc__file_sync(&f, &err));
        assert_int_equal(f.size, len);
        assert_ok(sdc__file_read(&f, 1, is, len - 1, &err));
        assert_memory_equal(is, want + 1, len - 1);
        assert_ok(sdc__file_open("io/slow/b", SDC_FILE_NEW, &g, &err));
        assert_ok(sdc__file_copy(&f, &g, &err));
        assert_ok(sdc__file_truncate(&f, 30, &err));
        assert_ok(sdc__read_whole("io/slow/b", 100, &whole, &err));
        assert_ok(sdc__parent_sync("io/slow/b", &err));
        sdc__io_test_hook(NULL);
        assert_int_equal(whole.len, len);
        assert_memory_equal(whole.data, want, len);
        assert_true(s.interrupts >= 2 * len / most);
        sdc__buf_release(&whole);
        sdc__file_close(&f);
        sdc__file_close(&g);
    }
}

static int fail_read(void *user, uint64_t n, const char *path) {
    (void)path;
    return n == *(const uint64_t *)user ? EIO : 0;
}

static void a_read_that_fails_is_named(void **state) {
    (void)state;
    struct sdc_buf whole = SDC_BUF_INIT;
    struct sdc_file f;
    char is[8];
    uint64_t at = 2;
    put_text("io/a", "12345678");
    assert_ok(sdc__file_open("io/a", SDC_FILE_READ, &f, &err));
    sdc__io_test_hook(&(struct sdc_io_hook){.before_read = fail_read, .user = &at});
    assert_ok(sdc__file_read(&f, 0, is, 4, &err));
    assert_status(SDC_IO, sdc__file_read(&f, 4, is, 4, &err));
    assert_int_equal(err.sys_code, EIO);
    assert_message_has("io/a");
    assert_message_has("read at 4");
    at = 4;
    assert_status(SDC_IO, sdc__read_whole("io/a", 100, &whole, &err));
    sdc__io_test_hook(NULL);
    sdc__buf_release(&whole);
    sdc__file_close(&f);
}

static void only_dead_owners_are_stale(void **state) {
    (void)state;
    struct sdc_replace r;
    assert_ok(sdc__replace_begin("io/a", false, &r, &err));
    const char *name = sdc__path_base(r.file.path);
    assert_false(sdc__temp_is_stale(name)); /* this process lives */
    char host[9];
    memcpy(host, name + strlen(".sdc-tmp."), 8);
    host[8] = '\0';

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    char dead[100], other[100], path[120];
    snprintf(dead, sizeof dead, ".sdc-tmp.%s.%ld.0", host, (long)child);
    snprintf(other, sizeof other, ".sdc-tmp.%08x.%ld.0", ~(unsigned)strtoul(host, NULL, 16),
             (long)child);
    assert_true(sdc__temp_is_stale(dead));
    assert_true(sdc__temp_is_ours(other));
    assert_false(sdc__temp_is_stale(other)); /* another machine's process */
    static const char *const foreign[] = {".sdc-tmp.",
                                          ".sdc-tmp.00000000.12",
                                          ".sdc-tmp.0.1.1",
                                          ".sdc-tmp.00000000.-5.1",
                                          ".sdc-tmp.00000000.x.1",
                                          "a"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_false(sdc__temp_is_ours(foreign[i]));
    snprintf(path, sizeof path, "io/%s", dead);
    put_text("io/keep", "");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(sdc__temp_sweep("io"), 1);
    assert_int_equal(entries("io"), 2);

    /* a folder too, with what is in it, but not what a link in it names, and not while somebody
     * holds a lock on it */
    snprintf(path, sizeof path, "io/%s/sub", dead);
    assert_ok(sdc__make_dirs(path, &err));
    snprintf(path, sizeof path, "io/%s/sub/file", dead);
    put_text(path, "1");
    snprintf(path, sizeof path, "io/%s/sub/link", dead);
    assert_int_equal(symlink("../../keep", path), 0);
    snprintf(path, sizeof path, "io/%s", dead);
    int held = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(sdc__temp_sweep("io"), 0);
    assert_int_equal(entries("io"), 3);
    close(held);
    assert_int_equal(sdc__temp_sweep("io"), 1);
    assert_int_equal(entries("io"), 2);
    expect_text("io/keep", "");
    sdc__replace_abandon(&r);
}

static void a_full_disk_is_named(void **state) {
    (void)state;
    struct sdc_file f = {.fd = open("/dev/full", O_RDWR), .path = sdc__strdup("/dev/full")};
    assert_true(f.fd >= 0);
    assert_status(SDC_IO, sdc__file_write(&f, 0, "x", 1, &err));
    assert_message_has("/dev/full");
    assert_message_has("No space left on device");
    sdc__file_close(&f);
}

static void paths_and_folders(void **state) {
    (void)state;
    static const char *const dirs[][2] = {{"a/b/c", "a/b"}, {"c", "."},    {"/c", "/"}, {"/", "/"},
                                          {"a/b/", "a"},    {"a//b", "a"}, {"//b", "/"}};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        char *d = sdc__path_dir(dirs[i][0]);
        assert_string_equal(d, dirs[i][1]);
        sdc__free(d);
    }
    assert_string_equal(sdc__path_base("a/b"), "b");
    assert_string_equal(sdc__path_base("b"), "b");
    static const char *const joins[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"a", "/b", "/b"}};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) {
        char *j = sdc__path_join(joins[i][0], joins[i][1]);
        assert_string_equal(j, joins[i][2]);
        sdc__free(j);
    }
    assert_ok(sdc__make_dirs("io/x/y//z", &err));
    assert_ok(sdc__make_dirs("io/x/y/z/", &err));
    assert_true(sdc__path_is_dir("io/x/y/z"));
    put_text("io/x/y/f", "1");
    assert_true(sdc__path_exists("io/x/y/f"));
    assert_false(sdc__path_is_dir("io/x/y/f"));
    assert_status(SDC_IO, sdc__make_dirs("io/x/y/f/g", &err));
    put_text("io/outside", "1");
    assert_int_equal(symlink("../outside", "io/x/link"), 0);
    assert_ok(sdc__rename("io/x/y/f", "io/x/f", &err));
    assert_ok(sdc__remove_tree("io/x", &err));
    assert_false(sdc__path_exists("io/x"));
    expect_text("io/outside", "1");
    assert_ok(sdc__remove_tree("io/x", &err));
    assert_ok(sdc__remove_file("io/none", &err));
    assert_ok(sdc__parent_sync("io/outside", &err));
    assert_status(SDC_IO, sdc__dir_sync("io/none", &err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_and_writes_at_offsets, fresh),
        cmocka_unit_test_setup(opening_names_what_is_wrong, fresh),
        cmocka_unit_test_setup(locks_exclude_each_other, fresh),
        cmocka_unit_test_setup(copies_a_file_whole, fresh),
        cmocka_unit_test_setup(copies_keep_holes_and_places_beyond_4_gib, fresh),
        cmocka_unit_test_setup(whole_files_have_a_limit, fresh),
        cmocka_unit_test_setup(gzip_is_inflated_and_checked, fresh),
        cmocka_unit_test_setup(replacing_is_atomic, fresh),
        cmocka_unit_test_setup(every_failing_call_keeps_the_old_file, fresh),
        cmocka_unit_test_setup(every_kill_leaves_old_or_new_and_the_next_run_cleans, fresh),
        cmocka_unit_test_setup(short_counts_and_interrupts_change_nothing, fresh),
        cmocka_unit_test_setup(a_read_that_fails_is_named, fresh),
        cmocka_unit_test_setup(only_dead_owners_are_stale, fresh),
        cmocka_unit_test_setup(a_full_disk_is_named, fresh),
        cmocka_unit_test_setup(paths_and_folders, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
