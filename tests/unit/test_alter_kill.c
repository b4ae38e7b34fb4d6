/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that alters is killed before each of its writes in turn, and each of its writes fails
 * in turn: what is left is the old file, the new one, or one that undo restores.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt_files.h"
#include "sdc/alter.h"

static struct sdc_error err;

#define DIR_NAME "kill.d"
#define SOURCE   DIR_NAME "/model.ckpt"
#define OUT      DIR_NAME "/out.ckpt"

struct stop {
    uint64_t at;  /* which write, from 1 */
    int code;     /* errno of the failure; 0: the process is killed */
    bool for_all; /* all later ones fail too */
    uint64_t seen;
};

static int before_write(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    (void)op;
    (void)path;
    struct stop *s = user;
    s->seen = n;
    if (n != s->at && !(s->for_all && n > s->at))
        return 0;
    if (s->code == 0)
        raise(SIGKILL);
    return s->code;
}

/* Sites far from each other, so that each is a write of its own. */
static enum sdc_status alter(bool in_place, struct sdc_error *e) {
    struct sdc_choice c;
    struct sdc_alter_options o = {.output = in_place ? NULL : OUT, .seed = 12};
    struct sdc_alter_result r = {0};
    sdc_choice_init(&c);
    enum sdc_status st = sdc_choice_set(&c, "flips", "6", e);
    if (st == SDC_OK)
        st = sdc_alter(SOURCE, &c, &o, &r, e);
    sdc_choice_release(&c);
    sdc_alter_result_release(&r);
    return st;
}

static enum sdc_status undo(const char *file) {
    char record[64];
    struct sdc_undo_result u;
    snprintf(record, sizeof record, "%s.sdc.jsonl", file);
    enum sdc_status st = sdc_undo(record, NULL, false, &u, &err);
    if (st == SDC_OK)
        sdc_text_free(u.file);
    return st;
}

static void fresh(const struct sdc_buf *old) {
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
    assert_ok(sdc__make_dirs(DIR_NAME, &err));
    write_file(SOURCE, old);
}

static unsigned count_files(bool temporaries) {
    unsigned n = 0;
    DIR *d = opendir(DIR_NAME);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += temporaries ? sdc__temp_is_ours(e->d_name) : e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Runs `work` in a child that is killed before write number n; false if it ended before that. */
static bool killed_at(uint64_t n, enum sdc_status (*work)(bool, struct sdc_error *),
                      bool in_place) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct stop s = {.at = n};
        struct sdc_io_hook hook = {.before = before_write, .user = &s};
        struct sdc_error e;
        sdc__io_test_hook(&hook);
        _exit(work(in_place, &e) == SDC_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

static struct sdc_buf make(const char *format) {
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
    assert_ok(sdc__make_dirs(DIR_NAME, &err));
    make_ckpt(SOURCE, format);
    return read_file(SOURCE);
}

static const char *const formats[] = {"hdf5", "safetensors"};

static void killed_in_place(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct sdc_buf old = make(formats[f]);
        assert_ok(alter(true, &err));
        struct sdc_buf new = read_file(SOURCE);
        unsigned n_old = 0, n_new = 0, n_between = 0;
        for (uint64_t n = 1;; n++) {
            fresh(&old);
            if (!killed_at(n, alter, true))
                break;
            if (file_is(SOURCE, &old)) {
                n_old++;
                assert_true(!sdc__path_exists(SOURCE ".sdc.jsonl") || undo(SOURCE) == SDC_OK);
            } else {
                n_new += file_is(SOURCE, &new);
                n_between += !file_is(SOURCE, &new);
                assert_ok(undo(SOURCE));
            }
            assert_true(file_is(SOURCE, &old));
            assert_ok(alter(true, &err)); /* and once more, over what was left */
            assert_true(file_is(SOURCE, &new));
            assert_int_equal(count_files(true), 0);
        }
        /* six sites: five moments between them; and the record comes before, its end after */
        assert_true(n_old >= 5);
        assert_int_equal(n_between, 5);
        assert_true(n_new >= 3);
        sdc__buf_release(&old);
        sdc__buf_release(&new);
    }
}

static void killed_while_copying(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) {
        struct sdc_buf old = make(formats[f]);
        assert_ok(alter(false, &err));
        struct sdc_buf new = read_file(OUT);
        unsigned n_none = 0, n_new = 0;
        for (uint64_t n = 1;; n++) {
            fresh(&old);
            if (!killed_at(n, alter, false))
                break;
            assert_true(file_is(SOURCE, &old));
            if (sdc__path_exists(OUT)) {
                n_new++;
                assert_true(file_is(OUT, &new));
                assert_ok(undo(OUT));
                assert_true(file_is(OUT, &old));
                assert_ok(sdc__remove_file(OUT, &err));
            } else {
                n_none++;
            }
            assert_ok(alter(false, &err));
            assert_true(file_is(OUT, &new));
            assert_int_equal(count_files(true), 0);
        }
        assert_true(n_none >= 10);
        assert_true(n_new >= 3);
        sdc__buf_release(&old);
        sdc__buf_release(&new);
    }
}

static enum sdc_status undo_in_child(bool in_place, struct sdc_error *e) {
    (void)e;
    return undo(in_place ? SOURCE : OUT);
}

static void killed_while_undoing(void **state) {
    (void)state;
    struct sdc_buf old = make("safetensors");
    assert_ok(alter(true, &err));
    struct sdc_buf new = read_file(SOURCE);
    uint64_t n = 1;
    for (;; n++) {
        write_file(SOURCE, &new);
        if (!killed_at(n, undo_in_child, true))
            break;
        assert_ok(undo(SOURCE));
        assert_true(file_is(SOURCE, &old));
    }
    assert_int_equal(n, 8); /* six sites and a sync */
    sdc__buf_release(&old);
    sdc__buf_release(&new);
}

/* One write fails, as on a full disk, and the ones after it work: nothing is left behind. */
static void one_failure_leaves_nothing(void **state) {
    (void)state;
    static const int codes[] = {ENOSPC, EIO};
    for (int in_place = 0; in_place < 2; in_place++)
        for (int c = 0; c < 2; c++) {
            struct sdc_buf old = make("safetensors");
            bool done = false;
            for (uint64_t n = 1; !done; n++) {
                fresh(&old);
                struct stop s = {.at = n, .code = codes[c]};
                struct sdc_io_hook hook = {.before = before_write, .user = &s};
                sdc__io_test_hook(&hook);
                enum sdc_status st = alter(in_place, &err);
                sdc__io_test_hook(NULL);
                done = s.seen < n;
                if (st == SDC_OK) {
                    assert_true(done);
                    continue;
                }
                assert_int_equal(st, SDC_IO);
                assert_int_equal(count_files(true), 0);
                if (strstr(err.message, "last line") || sdc__path_exists(OUT)) {
                    /* failed after the file was there: it and its record stay, and undo works */
                    assert_ok(undo(in_place ? SOURCE : OUT));
                    assert_true(file_is(in_place ? SOURCE : OUT, &old));
                } else {
                    assert_int_equal(count_files(false), 1);
                }
                assert_true(in_place || file_is(SOURCE, &old));
                assert_true(file_is(SOURCE, &old));
            }
            sdc__buf_release(&old);
        }
}

/* The disk is gone from one write on, so that putting back fails too: the record says it all. */
static void lasting_failure_leaves_a_record(void **state) {
    (void)state;
    for (int in_place = 0; in_place < 2; in_place++) {
        struct sdc_buf old = make("hdf5");
        bool done = false;
        unsigned n_partial = 0;
        for (uint64_t n = 1; !done; n++) {
            fresh(&old);
            struct stop s = {.at = n, .code = EIO, .for_all = true};
            struct sdc_io_hook hook = {.before = before_write, .user = &s};
            sdc__io_test_hook(&hook);
            enum sdc_status st = alter(in_place, &err);
            sdc__io_test_hook(NULL);
            done = st == SDC_OK;
            if (done || file_is(SOURCE, &old))
                continue;
            n_partial++;
            if (!strstr(err.message, "last line"))
                assert_message_has("undo " SOURCE ".sdc.jsonl restores it");
            assert_ok(undo(SOURCE));
            assert_true(file_is(SOURCE, &old));
        }
        assert_true(n_partial == 0 ? !in_place : n_partial >= 6);
        sdc__buf_release(&old);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_in_place),
        cmocka_unit_test(killed_while_copying),
        cmocka_unit_test(killed_while_undoing),
        cmocka_unit_test(one_failure_leaves_nothing),
        cmocka_unit_test(lasting_failure_leaves_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
