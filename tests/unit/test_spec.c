/* SPDX-License-Identifier: Apache-2.0
 *
 * Specs: what is refused, where, and in which words; defaults; the resolved text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "camp/plan.h"
#include "camp/spec.h"
#include "io/io.h"
#include "sdc/rng.h"
#include "test.h"

static struct sdc_error err;

/* ---- refused ---- */

struct refused {
    const char *text;
    const char *place; /* "LINE:COLUMN", NULL where there is none */
    const char *message;
    enum sdc_status status;
};

#define PAIRED                                                                                     \
    "campaign: x\npair_over: [recipe, part]\nfactors:\n"                                           \
    "  recipe: [ddp/after-wrap-all, horovod/rank0-broadcast]\n  part: [model, optimizer]\n"

static const struct refused refused[] = {
    {"", "1:1", "it is empty", SDC_INVALID},
    {"- a\n", "1:1", "expected a mapping of keys", SDC_INVALID},
    {"seed: 1\n", "1:1", "the key 'campaign' is missing", SDC_INVALID},
    {"campaign: x\ntrails: 3\n", "2:1", "unknown key 'trails' (did you mean 'trials'?)",
     SDC_INVALID},
    {"campaign: x\noptimizer: {lr: 0.1, momentun: 0.9}\n", "2:22",
     "unknown key 'optimizer.momentun' (did you mean 'momentum'?)", SDC_INVALID},
    {"campaign: x\nfactor:\n  flips: [1]\n", "2:1",
     "unknown key 'factor' (did you mean 'factors'?)", SDC_INVALID},
    {"campaign: x\nfactors:\n  flip: [1, 2]\n", "3:3",
     "no factor is called 'flip' (did you mean 'flips'?)", SDC_INVALID},
    {"campaign: x\nfactors:\n  seed: [1, 2]\n", "3:3", "no factor is called 'seed'", SDC_INVALID},
    {"campaign: x\nseed: 1\nseed: 2\n", "3:1", "the key 'seed' is here for the second time",
     SDC_INVALID},
    {"campaign: x\nlooks: [1]\n", "2:1", "'looks' is not supported by this version",
     SDC_UNSUPPORTED},
    {"campaign: x\nbatch: many\n", "2:8",
     "batch: expected a whole number from 1 to 65536, found the text 'many'", SDC_INVALID},
    {"campaign: x\nbatch: \"64\"\n", "2:8", "found the text '64'", SDC_INVALID},
    {"campaign: x\nbatch: 0\n", "2:8", "found the number 0", SDC_INVALID},
    {"campaign: x\nbatch: 6.5\n", "2:8", "found the number 6.5", SDC_INVALID},
    {"campaign: x\nbatch: [64]\n", "2:8", "found a list", SDC_INVALID},
    {"campaign: x\nbatch:\n", "2:7", "found nothing", SDC_INVALID},
    {"campaign: x\noptimizer: sgd\n", "2:12", "optimizer: expected a mapping", SDC_INVALID},
    {"campaign: x\noptimizer: {lr: nan}\n", "2:17", "optimizer.lr: expected a number", SDC_INVALID},
    {"campaign: x\noptimizer: {momentum: 1.5}\n", "2:23", "expected a number from 0 to 1",
     SDC_INVALID},
    {"campaign: x\nmodel: lenet\n", "2:8", "found 'lenet' (did you mean 'lenet5'?)", SDC_INVALID},
    {"campaign: x\nmodel: resnet20\n", "2:8", "'resnet20' is not supported by this version",
     SDC_UNSUPPORTED},
    {"campaign: x\ntrainer: real\n", "2:10", "'real' is not supported by this version",
     SDC_UNSUPPORTED},
    {"campaign: x\nrecipe: ddp/after-wrap-al\n", "2:9", "did you mean 'ddp/after-wrap-all'?",
     SDC_INVALID},
    {"campaign: x\nrole: wait\n", "2:7", "wait", SDC_INVALID},
    {"campaign: x\nbits: lsb:-1\n", "2:7", "lsb:-1", SDC_INVALID},
    {"campaign: x\nspread: split\n", "2:9", "'split' is not supported by this version",
     SDC_UNSUPPORTED},
    {"campaign: x\naltered_ranks: two\n", "2:16",
     "altered_ranks: expected rank:K, one, k:K, half or all", SDC_INVALID},
    {"campaign: x\naltered_ranks: rank:3\nranks: 2\n", "2:16",
     "altered_ranks: rank:3 with ranks 2, expected a rank up to 1", SDC_INVALID},
    {"campaign: x\nfactors:\n  ranks: [4, 2]\n  altered_ranks: [one, k:4]\n", "4:24",
     "altered_ranks: k:4 with ranks 2", SDC_INVALID},
    {"campaign: x\nbaseline: {checkpoints: [300, 200]}\n", "2:31", "200 after 300", SDC_INVALID},
    {"campaign: x\nbaseline: {checkpoints: 300}\n", "2:25", "expected a list of whole numbers",
     SDC_INVALID},
    {"campaign: a/b\n", "1:11", "expected a name", SDC_INVALID},
    {"campaign: -x\n", "1:11", "beginning with none of '-' and '.'", SDC_INVALID},
    {"campaign: x\nfactors:\n  flips: []\n", "3:10", "expected a list of levels", SDC_INVALID},
    {"campaign: x\nfactors:\n  flips: [1, 1]\n", "3:14", "the level '1' is here twice",
     SDC_INVALID},
    {"campaign: x\nflips: 3\nfactors:\n  flips: [1]\n", "4:3", "flips is also set in line 2",
     SDC_INVALID},
    {"campaign: x\npair_over: [part]\n", "2:13", "'part' is not a factor", SDC_INVALID},
    {"campaign: x\npair_over: [flips]\nfactors:\n  flips: [1, 2]\n", "2:13",
     "expected one of: recipe, part", SDC_INVALID},
    {PAIRED "optimizer: {momentum: 0}\n", "6:23", "optimizer.momentum: 0 leaves the optimizer",
     SDC_INVALID},
    {PAIRED "role: momentum\n", "6:7", "pairs over part draw sites over parameters", SDC_INVALID},
    {"campaign: x\npair_over: [part]\nfactors:\n  part: [model, loop]\n", "4:17",
     "pairs over part have the arms model and optimizer", SDC_INVALID},
    {"campaign: x\nclaims: [H3]\n", "2:10", "H3 compares model and optimizer", SDC_INVALID},
    {"campaign: x\nclaims: [H1a]\npair_over: [recipe]\nfactors:\n"
     "  recipe: [ddp/after-wrap-all, ddp/before-wrap-all]\n",
     "2:10", "H1a compares the first ddp with the first horovod recipe", SDC_INVALID},
    {"campaign: x\nclaims: [H1b]\n", "2:10", "'H1b' is not supported by this version",
     SDC_UNSUPPORTED},
    {"campaign: x\nclaims: [H9]\n", "2:10", "found 'H9'", SDC_INVALID},
    {"campaign: x\nrecipe: single\nranks: 2\n", "2:9", "recipe: single with ranks 2", SDC_INVALID},
    {"campaign: x\nbits: sign\nop: value=0\n", "3:5", "", SDC_INVALID},
    /* nothing to hit, or not enough */
    {"campaign: x\nmodel: mlp\nflips: 7524673\n", "3:8",
     "flips: 7524673 distinct sites, expected at most 7524672", SDC_INVALID},
    {"campaign: x\nfactors:\n  flips: [1, 61707]\n  bits: [any, sign]\n", "3:14",
     "flips: 61707 distinct sites, expected at most 61706", SDC_INVALID},
    {"campaign: x\npart: loop\nflips: 321\n", "3:8", "expected at most 320", SDC_INVALID},
    {"campaign: x\npart: loop\nop: value=0\nflips: 8\n", "4:8", "expected at most 7", SDC_INVALID},
    {"campaign: x\nbits: lsb:40\n", "2:7", "bits: lsb:40 names no bit of any number in part model",
     SDC_INVALID},
    {PAIRED "flips: 2000000\n", "6:8", "expected at most 1974592", SDC_INVALID},
    /* YAML itself */
    {"campaign: x\nseed: &a 1\n", "2:7", "anchors are not allowed", SDC_INVALID},
    {"campaign: x\nseed: *a\n", "2:7", "aliases are not allowed", SDC_INVALID},
    {"campaign: x\nseed: !!int 1\n", "2:7", "tags are not allowed", SDC_INVALID},
    {"campaign: x\n---\ncampaign: y\n", "2:1", "several documents are not allowed", SDC_INVALID},
    {"campaign: x\nseed: [1\n", "3:1", "did not find expected ',' or ']'", SDC_INVALID},
    {"campaign: x\n\tseed: 1\n", "2:1", "", SDC_INVALID},
    {"campaign: x\nseed: \x80\n", NULL, "byte", SDC_INVALID},
    {"campaign: \"a\\0b\"\n", "1:11", "NUL characters are not allowed", SDC_INVALID},
    {"campaign: x\nseed: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", "2:22",
     "nested deeper than 16 levels", SDC_LIMIT},
};

static void wrong_specs_are_refused(void **state) {
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const struct refused *r = &refused[i];
        struct sdc_spec *spec = NULL;
        enum sdc_status st = sdc__spec_parse(r->text, strlen(r->text), "s.yaml", &spec, &err);
        if (st == SDC_OK)
            fail_msg("accepted: %s", r->text);
        char place[32];
        snprintf(place, sizeof place, "s.yaml:%s: ", r->place ? r->place : "");
        if (st != r->status || (r->place && strncmp(err.message, place, strlen(place)) != 0) ||
            !strstr(err.message, r->message))
            print_error("%u: of '%s': found %s '%s', expected %s '%s ... %s'\n", ++wrong, r->text,
                        sdc_status_name(st), err.message, sdc_status_name(r->status), place,
                        r->message);
        assert_int_equal(sdc_status_exit_code(st), 3);
    }
    assert_int_equal(wrong, 0);
}

static void size_is_limited(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_spec *spec = NULL;
    sdc__buf_puts(&b, "campaign: x\n");
    while (b.len <= 1024 * 1024)
        sdc__buf_puts(&b, "# a comment that says nothing\n");
    assert_status(SDC_LIMIT, sdc__spec_parse(b.data, b.len, "s.yaml", &spec, &err));
    sdc__buf_release(&b);
}

/* ---- accepted ---- */

static struct sdc_spec *parse(const char *text) {
    struct sdc_spec *spec = NULL;
    assert_ok(sdc__spec_parse(text, strlen(text), "s.yaml", &spec, &err));
    return spec;
}

static void defaults_are_filled_in(void **state) {
    (void)state;
    struct sdc_spec *s = parse("campaign: x\n");
    assert_string_equal(s->name, "x");
    assert_int_equal(s->clusters, 3);
    assert_int_equal(s->n_checkpoints, 1);
    assert_int_equal(s->checkpoints[0], 300);
    assert_true(s->margin == 0.02);
    assert_int_equal(s->controls.placebo, 1);
    assert_true(s->thresholds.extreme == 1e6);
    struct sdc_setting setting;
    assert_ok(sdc__spec_setting(s, NULL, &setting, &err));
    assert_string_equal(setting.model, "lenet5");
    assert_null(setting.data_path);
    assert_int_equal(setting.batch, 64);
    assert_true(setting.momentum == 0.9);
    assert_string_equal(setting.recipe->name, "ddp/after-wrap-all");
    assert_int_equal(setting.choice.flips, 1);
    assert_int_equal(setting.choice.parts, 1u << SDC_PART_MODEL);
    assert_int_equal(setting.altered_ranks.kind, SDC_ALTERED_ONE);
    sdc__setting_release(&setting);
    sdc__spec_free(s);
}

static void settings_follow_the_levels(void **state) {
    (void)state;
    struct sdc_spec *s =
        parse("campaign: x\ntensors: [\"model/conv*\", \"model/fc?.weight\"]\n"
              "factors:\n  optimizer.momentum: [0.0, 0.9]\n"
              "  bits: [any, \"lsb:0-22,msb:0\"]\n  altered_ranks: [k:2, rank:1]\n");
    /* sorted: altered_ranks, bits, optimizer.momentum */
    uint32_t level[3] = {1, 1, 0};
    struct sdc_setting setting;
    assert_string_equal(s->factors[1].path, "bits");
    assert_ok(sdc__spec_setting(s, level, &setting, &err));
    assert_true(setting.momentum == 0.0);
    assert_int_equal(setting.altered_ranks.kind, SDC_ALTERED_RANK);
    assert_int_equal(setting.altered_ranks.k, 1);
    assert_int_equal(setting.choice.n_bits, 2);
    assert_int_equal(setting.choice.n_tensors, 2);
    assert_string_equal(setting.choice.tensors[1], "model/fc?.weight");
    sdc__setting_release(&setting);
    sdc__spec_free(s);
}

static void resolved_specs_resolve_to_themselves(void **state) {
    (void)state;
    static const char *const texts[] = {
        "campaign: x\n",
        PAIRED "claims: [H3, H1a]\ndata: {path: '/a \"b\" #c', limit: 5}\ntensors: 'model/*'\n",
        "campaign: x\nfactors: {tensors: [[a, b], c], role: [[weight, bias], weight]}\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sdc_spec *a = parse(texts[i]), *b = parse(a->resolved);
        assert_string_equal(a->resolved, b->resolved);
        assert_string_equal(a->hash, b->hash);
        assert_int_equal(strlen(a->hash), 32);
        sdc__spec_free(a);
        sdc__spec_free(b);
    }
}

static void order_of_keys_does_not_matter(void **state) {
    (void)state;
    struct sdc_spec *a = parse("campaign: x\nseed: 3\nfactors:\n  ranks: [2]\n  flips: [1, 2]\n"
                               "pair_over: []\n");
    struct sdc_spec *b = parse("factors: {flips: [1, 2], ranks: [2]}\nseed: 3\ncampaign: x\n");
    assert_string_equal(a->resolved, b->resolved);
    sdc__spec_free(a);
    sdc__spec_free(b);
}

static void differing_keys_are_named(void **state) {
    (void)state;
    struct sdc_spec *a = parse("campaign: x\nseed: 3\n");
    struct sdc_spec *b = parse("campaign: x\noptimizer: {lr: 0.1}\nfactors: {flips: [1, 10]}\n");
    assert_status(SDC_MISMATCH, sdc__spec_same(a->resolved, b->resolved, "DIR", &err));
    assert_message_has("seed (3 in the store, 0 here)");
    assert_message_has("optimizer.lr (0.05 in the store, 0.1 here)");
    assert_message_has("factors.flips (none in the store, [1, 10] here)");
    assert_ok(sdc__spec_same(a->resolved, a->resolved, "DIR", &err));
    sdc__spec_free(a);
    sdc__spec_free(b);
}

static void the_template_parses(void **state) {
    (void)state;
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_spec *spec = NULL;
    sdc__spec_template("my-campaign", &b);
    assert_false(b.failed);
    if (sdc__spec_parse(b.data, b.len, "t.yaml", &spec, &err) != SDC_OK)
        fail_msg("%s\n%s", err.message, b.data);
    assert_string_equal(spec->name, "my-campaign");
    /* explains every key */
    for (const char *k = spec->resolved; (k = strchr(k, '"')) != NULL;) {
        const char *end = strchr(k + 1, '"');
        if (!end)
            break;
        if (end[1] == ':') {
            char key[64];
            snprintf(key, sizeof key, "%.*s:", (int)(end - k - 1), k + 1);
            if (!strstr(b.data, key))
                fail_msg("the template lacks the key %s", key);
        }
        k = end + 1;
    }
    sdc__spec_free(spec);
    sdc__buf_release(&b);
}

static void examples_parse(void **state) {
    (void)state;
    static const char *const names[] = {"paper-small.yaml", "paper.yaml"};
    const char *root = getenv("SDC_SOURCE_DIR");
    assert_non_null(root);
    for (size_t i = 0; i < 2; i++) {
        char path[4096];
        struct sdc_spec *spec = NULL;
        snprintf(path, sizeof path, "%s/examples/%s", root, names[i]);
        assert_ok(sdc__spec_read(path, &spec, &err));
        sdc__spec_free(spec);
    }
}

/* Damaged texts are refused or read, and never break the reader. */
static void damaged_specs_do_no_harm(void **state) {
    (void)state;
    static const char marks[] = "{}[]:,-#&*!|>'\"%@`\n\t 0";
    struct sdc_buf b = SDC_BUF_INIT;
    struct sdc_rng rng;
    sdc__spec_template("x", &b);
    assert_false(b.failed);
    sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
    for (int i = 0; i < 3000; i++) {
        size_t at = (size_t)sdc_rng_below(&rng, b.len);
        char old = b.data[at];
        struct sdc_spec *spec = NULL;
        b.data[at] = marks[sdc_rng_below(&rng, sizeof marks - 1)];
        size_t len = i % 3 ? b.len : at + 1; /* cut off, too */
        if (sdc__spec_parse(b.data, len, "s.yaml", &spec, &err) == SDC_OK)
            sdc__spec_free(spec);
        else
            assert_non_null(strstr(err.message, "s.yaml"));
        b.data[at] = old;
    }
    sdc__buf_release(&b);
}

/* Each allocation of reading and planning fails once: a status, and nothing lost. */
static void missing_memory_is_reported(void **state) {
    (void)state;
    const char *text = PAIRED "claims: [H1a, H3]\ntensors: [a, b]\ntrials: 2\n";
    for (uint64_t n = 1;; n++) {
        struct sdc_spec *spec = NULL;
        struct sdc_plan *plan = NULL;
        assert_in_range(n, 1, 20000);
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc__spec_parse(text, strlen(text), "s.yaml", &spec, &err);
        if (st == SDC_OK)
            st = sdc__plan_new(spec, &plan, &err);
        sdc__alloc_fail_at(0);
        sdc__plan_free(plan);
        sdc__spec_free(spec);
        if (st == SDC_OK)
            break;
    }
}

static void missing_files_are_named(void **state) {
    (void)state;
    struct sdc_spec *spec = NULL;
    assert_status(SDC_NOT_FOUND, sdc__spec_read("no-such.yaml", &spec, &err));
    assert_message_has("no-such.yaml");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(size_is_limited),
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(settings_follow_the_levels),
        cmocka_unit_test(resolved_specs_resolve_to_themselves),
        cmocka_unit_test(order_of_keys_does_not_matter),
        cmocka_unit_test(differing_keys_are_named),
        cmocka_unit_test(the_template_parses),
        cmocka_unit_test(examples_parse),
        cmocka_unit_test(damaged_specs_do_no_harm),
        cmocka_unit_test(missing_memory_is_reported),
        cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
