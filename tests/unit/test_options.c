/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "test.h"

static struct sdc_error err;

struct args {
    bool sync;
    const char *output;
    uint64_t flips;
    double rate;
    int sample;
    struct sdc_opt_list globs;
    struct sdc_opt_words words;
};

static const char *const samples[] = {"bits", "tensors", NULL};

static const struct sdc_opt table[] = {
    {SDC_OPT_FLAG, "sync", 's', offsetof(struct args, sync), NULL, "true", "sync", 0, 0, NULL},
    {SDC_OPT_STR, "output", 'o', offsetof(struct args, output), "FILE", NULL, "out", 0, 0, NULL},
    {SDC_OPT_U64, "flips", 0, offsetof(struct args, flips), "N", "1", "count", 0, 100, NULL},
    {SDC_OPT_F64, "rate", 0, offsetof(struct args, rate), "R", NULL, "rate", 0, 0, NULL},
    {SDC_OPT_ENUM, "sample", 0, offsetof(struct args, sample), "HOW", "bits", "how", 0, 0, samples},
    {SDC_OPT_LIST, "tensors", 't', offsetof(struct args, globs), "GLOB", NULL, "which", 0, 0, NULL},
    {SDC_OPT_WORDS, "op", 0, offsetof(struct args, words), "OP", NULL, "operator", 0, 0, NULL},
    {SDC_OPT_WORDS, "exhaustive", 0, offsetof(struct args, words), NULL, NULL, "all", 0, 0, NULL},
    {.type = SDC_OPT_END},
};

static enum sdc_status parse(struct args *a, struct sdc_opt_operands *operands, int argc,
                             const char *const argv[]) {
    memset(a, 0, sizeof *a);
    return sdc_opt_parse(argc, argv, table, a, NULL, NULL, operands, &err);
}

static void all_spellings(void **state) {
    (void)state;
    struct args a;
    struct sdc_opt_operands ops;
    const char *argv[] = {
        "in.h5",     "--flips=7", "--no-sync",    "-oout.h5",       "-t",     "a*",
        "--tensors", "b",         "--sample",     "tensors",        "--rate", "0.5",
        "--op",      "flip",      "--exhaustive", "--op=value=nan", "--",     "--odd"};
    assert_ok(parse(&a, &ops, 18, argv));
    assert_false(a.sync);
    assert_string_equal(a.output, "out.h5");
    assert_int_equal(a.flips, 7);
    assert_true(a.rate == 0.5);
    assert_int_equal(a.sample, 1);
    assert_int_equal(a.globs.n, 2);
    assert_string_equal(a.globs.items[1], "b");
    assert_int_equal(a.words.n, 3);
    assert_string_equal(a.words.items[1].name, "exhaustive");
    assert_string_equal(a.words.items[1].value, "true");
    assert_string_equal(a.words.items[2].value, "value=nan");
    assert_int_equal(ops.n, 2);
    assert_string_equal(ops.items[1], "--odd");
    sdc_opt_release(table, &a, &ops);
}

static void defaults_hold(void **state) {
    (void)state;
    struct args a;
    struct sdc_opt_operands ops;
    assert_ok(parse(&a, &ops, 0, NULL));
    assert_true(a.sync);
    assert_int_equal(a.flips, 1);
    assert_null(a.output);
    sdc_opt_release(table, &a, &ops);
}

static void wrong_usage_is_explained(void **state) {
    (void)state;
    static const struct {
        const char *argv[2];
        int argc;
        const char *message;
    } cases[] = {
        {{"--flpis", "3"}, 2, "unknown option '--flpis' (did you mean '--flips'?)"},
        {{"--flips", "-3"}, 2, "--flips: found '-3', expected a whole number"},
        {{"--flips=101"}, 1, "--flips: 101 is out of range, expected 0 to 100"},
        {{"--flips"}, 1, "--flips needs a value: N"},
        {{"--sample=lines"}, 1, "--sample: found 'lines', expected one of: bits, tensors"},
        {{"--rate=x"}, 1, "--rate: found 'x', expected a number"},
        {{"--sync=yes"}, 1, "--sync takes no value, found 'yes'"},
        {{"-x"}, 1, "unknown option '-x'"},
        {{"--no-flips"}, 1, "unknown option"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct args a;
        struct sdc_opt_operands ops;
        assert_status(SDC_USAGE, parse(&a, &ops, cases[i].argc, cases[i].argv));
        assert_message_has(cases[i].message);
        sdc_opt_release(table, &a, &ops);
    }
}

static int run(char **out, char **talk, int argc, const char *const argv[]) {
    size_t out_len, talk_len;
    FILE *o = open_memstream(out, &out_len), *t = open_memstream(talk, &talk_len);
    int code = sdc_cli_main(argc, argv, o, t);
    fclose(o);
    fclose(t);
    return code;
}

static void program_level(void **state) {
    (void)state;
    char *out, *talk;
    assert_int_equal(run(&out, &talk, 2, (const char *[]){"sdclab", "versoin"}), 2);
    assert_non_null(strstr(talk, "did you mean 'version'"));
    free(out), free(talk);
    assert_int_equal(run(&out, &talk, 1, (const char *[]){"sdclab"}), 2);
    assert_string_equal(out, "");
    free(out), free(talk);
    assert_int_equal(run(&out, &talk, 3, (const char *[]){"sdclab", "help", "version"}), 0);
    assert_non_null(strstr(out, "--full"));
    free(out), free(talk);
    assert_int_equal(run(&out, &talk, 3, (const char *[]){"sdclab", "version", "extra"}), 2);
    assert_non_null(strstr(talk, "too many operands"));
    free(out), free(talk);
}

/* A full disk must not look like success. */
static void lost_output_is_an_error(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    char *talk;
    size_t len;
    FILE *t = open_memstream(&talk, &len);
    assert_int_equal(sdc_cli_main(2, (const char *[]){"sdclab", "help"}, full, t), 4);
    fclose(full);
    fclose(t);
    assert_non_null(strstr(talk, "could not write the result"));
    free(talk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_spellings),
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(wrong_usage_is_explained),
        cmocka_unit_test(program_level),
        cmocka_unit_test(lost_output_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
