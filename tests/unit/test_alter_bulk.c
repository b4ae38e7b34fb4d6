/* SPDX-License-Identifier: Apache-2.0
 *
 * Many sites without a record are altered run by run, without a list. The file comes out as by the
 * list, for every sampler and operator and any number of threads; what a failure left half done is
 * taken back; and what cannot be done so is done by the list.
 */
#include <errno.h>
#include <stdio.h>

#include "ckpt_files.h"
#include "sdc/alter.h"

static struct sdc_error err;

#define DIR_NAME "bulk.d"
#define SOURCE   DIR_NAME "/a.safetensors"
#define LISTED   DIR_NAME "/listed"
#define BULK     DIR_NAME "/bulk"
#define N_SMALL  UINT64_C(150000) /* of 4 bits */
#define N_WIDE   UINT64_C(90000)
#define N_SHORT  UINT64_C(70001)
#define SHOWN    20

static void make(void) {
    const unsigned long long q = N_SMALL / 2, w = q + 4 * N_WIDE, h = w + 2 * N_SHORT;
    struct sdc_buf b = SDC_BUF_INIT, header = SDC_BUF_INIT;
    unsigned char length[8];
    assert_ok(sdc__remove_tree(DIR_NAME, &err));
    assert_ok(sdc__make_dirs(DIR_NAME, &err));
    sdc__buf_printf(&header,
                    "{\"z\":{\"dtype\":\"F4\",\"shape\":[3,%llu],\"data_offsets\":[0,%llu]},"
                    "\"w\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]},"
                    "\"h\":{\"dtype\":\"BF16\",\"shape\":[%llu,1],\"data_offsets\":[%llu,%llu]}}",
                    (unsigned long long)(N_SMALL / 3), q, (unsigned long long)N_WIDE, q, w,
                    (unsigned long long)N_SHORT, w, h);
    while (header.len % 8)
        sdc__buf_putc(&header, ' ');
    sdc_num_store(SDC_DTYPE_U64, header.len, length, false);
    sdc__buf_append(&b, length, sizeof length);
    sdc__buf_append(&b, header.data, header.len);
    for (uint64_t i = 0; i < h; i++)
        sdc__buf_putc(&b, (char)(i * 2654435761U >> 13));
    sdc__buf_release(&header);
    write_file(SOURCE, &b);
    sdc__buf_release(&b);
}

static void choose(struct sdc_choice *c, const char *words) {
    char text[256], *at = text;
    sdc_choice_init(c);
    snprintf(text, sizeof text, "%s", words);
    while (at) {
        char *end = strchr(at, ' '), *value = strchr(at, ' ');
        if (end)
            *end = '\0';
        value = strchr(at, '=');
        assert_non_null(value);
        *value = '\0';
        assert_ok(sdc_choice_set(c, at, value + 1, &err));
        at = end ? end + 1 : NULL;
    }
}

static void alter(const char *words, const char *output, size_t max_changes, unsigned threads,
                  struct sdc_alter_result *r) {
    const struct sdc_alter_options o = {.output = output,
                                        .replace = true,
                                        .no_record = true,
                                        .no_sync = true,
                                        .seed = 7,
                                        .threads = threads,
                                        .max_changes = max_changes};
    struct sdc_choice c;
    choose(&c, words);
    assert_ok(sdc_alter(SOURCE, &c, &o, r, &err));
    sdc_choice_release(&c);
}

static void assert_alike(const struct sdc_alter_result *list, const struct sdc_alter_result *bulk) {
    assert_int_equal(bulk->elements, list->n_changes);
    assert_int_equal(bulk->support_sites, list->support_sites);
    assert_int_equal(bulk->removed_sites, list->removed_sites);
    assert_int_equal(bulk->planned, list->planned);
    assert_int_equal(bulk->altered, list->altered);
    assert_int_equal(bulk->altered_bits, list->altered_bits);
    assert_int_equal(bulk->unchanged, list->unchanged);
    for (size_t i = 0; i < bulk->n_changes; i++) {
        char *a, *b;
        assert_ok(sdc_record_change_line(&list->changes[i], &a, &err));
        assert_ok(sdc_record_change_line(&bulk->changes[i], &b, &err));
        assert_string_equal(a, b);
        sdc_text_free(a);
        sdc_text_free(b);
    }
}

static void comes_out_as_by_the_list(void **state) {
    (void)state;
    static const char *const choices[] = {
        "flips=150000",
        "flips=150000 sample=tensors",
        "flips=120000 sample=elements",
        "flips=120000 sample=bytes",
        "flips=120000 sample=stratified",
        "flips=66000 op=flip=2",
        "flips=100000 op=random",
        "flips=100000 op=value=1.5",
        "flips=100000 op=scale=-3",
        "flips=100000 op=set0",
        "flips=100000 op=set1 sample=tensors",
        "flips=100000 op=burst=3",
        "flips=100000 op=mask=5",
        "flips=100000 bits=exponent not_result=nan,inf",
        "flips=100000 op=random not_result=nan,inf",
        "flips=80000 op=flip=3 not_result=nan,inf",
        "rate=0.1",
        "rate=0.9 op=set1 bits=sign",
        "rate=0.5 op=value=0",
        "exhaustive=true op=set1 bits=lsb:1",
        "exhaustive=true op=scale=2",
        "exhaustive=true op=flip dtype=F4",
    };
    make();
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        struct sdc_alter_result list, bulk;
        alter(choices[i], LISTED, 0, 0, &list);
        assert_true(list.n_changes > 10 * SHOWN);
        struct sdc_buf want = read_file(LISTED);
        for (unsigned threads = 1; threads < 4; threads += 2) {
            alter(choices[i], BULK, SHOWN, threads, &bulk);
            assert_int_equal(bulk.n_changes, SHOWN); /* by runs indeed */
            assert_alike(&list, &bulk);
            assert_true(file_is(BULK, &want));
            sdc_alter_result_release(&bulk);
        }
        sdc_alter_result_release(&list);
        sdc__buf_release(&want);
    }
}

static void what_needs_the_list_goes_by_the_list(void **state) {
    (void)state;
    static const char *const choices[] = {"flips=80000 op=swap", "flips=80000 sample=attempts",
                                          "flips=65000",
                                          "exhaustive=true op=set1 bits=lsb:1 not_result=nan"};
    make();
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        struct sdc_alter_result list, other;
        alter(choices[i], LISTED, 0, 0, &list);
        struct sdc_buf want = read_file(LISTED);
        alter(choices[i], BULK, SHOWN, 0, &other);
        assert_int_equal(other.n_changes, list.n_changes);
        assert_alike(&list, &other);
        assert_true(file_is(BULK, &want));
        sdc_alter_result_release(&list);
        sdc_alter_result_release(&other);
        sdc__buf_release(&want);
    }
}

/* ---- failures ---- */

struct failing {
    uint64_t at;
    bool failed;
};

static int fail_once(void *user, uint64_t n, enum sdc_io_op op, const char *path) {
    struct failing *f = user;
    (void)op;
    (void)path;
    f->failed = f->failed || n == f->at;
    return n == f->at ? EIO : 0;
}

static int fail_read_once(void *user, uint64_t n, const char *path) {
    return fail_once(user, n, SDC_IO_OP_WRITE, path);
}

static void a_failure_is_taken_back(void **state) {
    (void)state;
    static const char *const choices[] = {"flips=120000", "flips=100000 op=random",
                                          "rate=0.5 op=value=2"};
    make();
    const struct sdc_buf old = read_file(SOURCE);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        for (int writes = 0; writes < 2; writes++) {
            const struct sdc_alter_options o = {
                .no_record = true, .no_sync = true, .seed = 7, .threads = 1, .max_changes = SHOWN};
            struct sdc_alter_result r;
            struct failing f = {.failed = true};
            uint64_t refused = 0;
            while (f.failed) {
                struct sdc_io_hook hook = {.user = &f};
                struct sdc_choice c;
                f = (struct failing){.at = f.at + 1 + f.at / 4};
                if (writes)
                    hook.before = fail_once;
                else
                    hook.before_read = fail_read_once;
                choose(&c, choices[i]);
                sdc__io_test_hook(&hook);
                enum sdc_status st = sdc_alter(SOURCE, &c, &o, &r, &err);
                sdc__io_test_hook(NULL);
                sdc_choice_release(&c);
                if (st == SDC_OK) {
                    assert_int_equal(r.n_changes, SHOWN);
                    sdc_alter_result_release(&r);
                    write_file(SOURCE, &old);
                } else {
                    refused++;
                    assert_true(file_is(SOURCE, &old));
                    assert_true(!writes || strstr(err.message, "nothing was changed"));
                }
            }
            assert_true(refused > 2);
        }
    struct sdc_buf b = old;
    sdc__buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_out_as_by_the_list),
        cmocka_unit_test(what_needs_the_list_goes_by_the_list),
        cmocka_unit_test(a_failure_is_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
