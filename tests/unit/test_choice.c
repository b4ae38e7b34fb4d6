/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "sdc/choice.h"
#include "test.h"

static struct sdc_error err;

/* ---- bits ---- */

/* Masks by hand from IEEE 754's layouts: f32 1-8-23, f16 1-5-10, bf16 1-8-7, f64 1-11-52. */
static void bits_masks(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum sdc_dtype dtype;
        uint64_t mask;
    } cases[] = {
        {"any", SDC_DTYPE_F32, 0xFFFFFFFF},
        {"any", SDC_DTYPE_I64, UINT64_MAX},
        {"sign", SDC_DTYPE_F32, 0x80000000},
        {"exponent", SDC_DTYPE_F32, 0x7F800000},
        {"mantissa", SDC_DTYPE_F32, 0x007FFFFF},
        {"top-exponent", SDC_DTYPE_F32, 0x40000000},
        {"top-exponent", SDC_DTYPE_F16, 0x4000},
        {"exponent", SDC_DTYPE_F16, 0x7C00},
        {"exponent", SDC_DTYPE_BF16, 0x7F80},
        {"exponent", SDC_DTYPE_F64, 0x7FF0000000000000},
        {"sign", SDC_DTYPE_I32, 0x80000000},
        {"exponent", SDC_DTYPE_I32, 0},
        {"top-exponent", SDC_DTYPE_U8, 0},
        {"lsb:30", SDC_DTYPE_F32, 0x40000000},
        {"lsb:0-22", SDC_DTYPE_F32, 0x007FFFFF},
        {"lsb:0-63", SDC_DTYPE_F16, 0xFFFF},
        {"lsb:40", SDC_DTYPE_F32, 0},
        {"msb:0", SDC_DTYPE_F32, 0x80000000},
        {"msb:1-8", SDC_DTYPE_F32, 0x7F800000},
        {"msb:1-8", SDC_DTYPE_BF16, 0x7F80},
        {"msb:14-40", SDC_DTYPE_F16, 0x0003},
        {"msb:16", SDC_DTYPE_F16, 0},
        {"sign,lsb:0-1,msb:1", SDC_DTYPE_F32, 0xC0000003},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_bits_item items[SDC_MAX_BITS_ITEMS];
        size_t n;
        assert_ok(sdc_bits_parse(cases[i].text, items, &n, &err));
        uint64_t mask = sdc_bits_mask(items, n, cases[i].dtype);
        if (mask != cases[i].mask)
            fail_msg("%s of %s: got %llx, expected %llx", cases[i].text,
                     sdc_dtype_name(cases[i].dtype), (unsigned long long)mask,
                     (unsigned long long)cases[i].mask);
    }
    assert_true(sdc_bits_mask(NULL, 0, SDC_DTYPE_U8) == 0xFF);
}

static void wrong_bits_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "all",
                                      "lsb",
                                      "lsb:",
                                      "lsb:64",
                                      "lsb:3-2",
                                      "lsb:-1",
                                      "lsb:1-",
                                      "lsb:1-2-3",
                                      "bit:3",
                                      "sign,",
                                      ",sign",
                                      "lsb: 3",
                                      "msb:+1",
                                      "lsb:0x3",
                                      "sign,,any",
                                      "Sign",
                                      "lsb:1 ",
                                      "lsb:99999999999999999"};
    struct sdc_bits_item items[SDC_MAX_BITS_ITEMS];
    size_t n;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (sdc_bits_parse(bad[i], items, &n, &err) != SDC_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
        assert_message_has("top-exponent");
    }
    const char *many = "lsb:0,lsb:1,lsb:2,lsb:3,lsb:4,lsb:5,lsb:6,lsb:7,lsb:8,lsb:9,lsb:10,"
                       "lsb:11,lsb:12,lsb:13,lsb:14,lsb:15,lsb:16";
    assert_status(SDC_USAGE, sdc_bits_parse(many, items, &n, &err));
    assert_message_has("more than 16");
}

/* ---- sites ---- */

static void sites_are_parsed_from_the_right(void **state) {
    (void)state;
    static const struct {
        const char *text, *tensor;
        unsigned n;
        uint64_t first, last;
        bool has_bit;
        const char *back;
    } cases[] = {
        {"model/conv1.weight[0,1,2,3]@lsb:30", "model/conv1.weight", 4, 0, 3, true,
         "model/conv1.weight[0,1,2,3]@lsb:30"},
        {"w[7]@sign", "w", 1, 7, 7, true, "w[7]@sign"},
        {"w[7]@top-exponent", "w", 1, 7, 7, true, "w[7]@top-exponent"},
        {"loop/step", "loop/step", 0, 0, 0, false, "loop/step[]"},
        {"loop/step[]@msb:0", "loop/step", 0, 0, 0, true, "loop/step[]@msb:0"},
        {"loop/step@lsb:3", "loop/step", 0, 0, 0, true, "loop/step[]@lsb:3"},
        {"layers[0][]", "layers[0]", 0, 0, 0, false, "layers[0][]"},
        {"layers[0][5]", "layers[0]", 1, 5, 5, false, "layers[0][5]"},
        {"a@b[1]@lsb:0", "a@b", 1, 1, 1, true, "a@b[1]@lsb:0"},
        {"a@lsb:1[2]@lsb:0", "a@lsb:1", 1, 2, 2, true, "a@lsb:1[2]@lsb:0"},
        {"user@host", "user@host", 0, 0, 0, false, "user@host[]"},
        {"a[x]", "a[x]", 0, 0, 0, false, "a[x][]"},
        {"w[18446744073709551615]", "w", 1, UINT64_MAX, UINT64_MAX, false,
         "w[18446744073709551615]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c, again;
        sdc_choice_init(&c);
        assert_ok(sdc_choice_set(&c, "at", cases[i].text, &err));
        assert_int_equal(c.mode, SDC_CHOICE_AT);
        const struct sdc_at *at = &c.at[0];
        assert_string_equal(at->tensor, cases[i].tensor);
        assert_int_equal(at->n_index, cases[i].n);
        assert_int_equal(at->has_bit, cases[i].has_bit);
        if (at->n_index) {
            assert_true(at->index[0] == cases[i].first);
            assert_true(at->index[at->n_index - 1] == cases[i].last);
        }
        if (!at->has_bit)
            assert_ok(sdc_choice_set(&c, "op", "value=0", &err));
        char *json;
        assert_ok(sdc_choice_to_json(&c, &json, &err));
        assert_non_null(strstr(json, cases[i].back));
        assert_ok(sdc_choice_from_json(json, strlen(json), &again, &err));
        assert_string_equal(again.at[0].tensor, cases[i].tensor);
        assert_int_equal(again.at[0].n_index, cases[i].n);
        sdc_text_free(json);
        sdc_choice_release(&again);
        sdc_choice_release(&c);
    }
}

static void wrong_sites_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",         "[1]",          "@lsb:3",        "w[1]@lsb:64",
        "w[1]@any", "w[1]@lsb:1-2", "w[1]@exponent", "w[1]@lbs:3",
        "w[,1]",    "w[1,]",        "w[1,,2]",       "w[18446744073709551616]",
        "w[1]@"};
    struct sdc_choice c;
    sdc_choice_init(&c);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (sdc_choice_set(&c, "at", bad[i], &err) != SDC_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
        assert_int_equal(c.n_at, 0);
        assert_int_equal(c.mode, SDC_CHOICE_FLIPS);
    }
    const char *deep = "w[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]";
    assert_status(SDC_USAGE, sdc_choice_set(&c, "at", deep, &err));
    assert_message_has("more than 32 dimensions");
    sdc_choice_release(&c);
}

/* ---- words ---- */

static void words_set_members(void **state) {
    (void)state;
    struct sdc_choice c;
    sdc_choice_init(&c);
    assert_int_equal(c.flips, 1);
    assert_ok(sdc_choice_set(&c, "flips", "100", &err));
    assert_ok(sdc_choice_set(&c, "sample", "tensors", &err));
    assert_ok(sdc_choice_set(&c, "tensors", "model/conv*", &err));
    assert_ok(sdc_choice_set(&c, "tensors", "model/fc?.weight", &err));
    assert_ok(sdc_choice_set(&c, "not_tensors", "*.bias", &err));
    assert_ok(sdc_choice_set(&c, "role", "weight,norm-scale", &err));
    assert_ok(sdc_choice_set(&c, "part", "model", &err));
    assert_ok(sdc_choice_set(&c, "dtype", "f32,float16", &err));
    assert_ok(sdc_choice_set(&c, "bits", "exponent", &err));
    assert_ok(sdc_choice_check(&c, &err));
    assert_int_equal(c.flips, 100);
    assert_int_equal(c.sample, SDC_SAMPLE_TENSORS);
    assert_int_equal(c.n_tensors, 2);
    assert_int_equal(c.roles, 1 << SDC_ROLE_WEIGHT | 1 << SDC_ROLE_NORM_SCALE);
    assert_int_equal(c.parts, 1 << SDC_PART_MODEL);
    assert_int_equal(c.dtypes, 1 << SDC_DTYPE_F32 | 1 << SDC_DTYPE_F16);
    assert_int_equal(c.n_bits, 1);
    char *json, *copied;
    struct sdc_choice copy;
    assert_ok(sdc_choice_to_json(&c, &json, &err));
    assert_string_equal(
        json, "{\"at\":[],\"bits\":\"exponent\",\"checksum\":\"mend\",\"compat\":\"none\","
              "\"dtype\":[\"F32\",\"F16\"],\"exhaustive\":false,\"flips\":100,"
              "\"not_result\":\"none\",\"not_tensors\":[\"*.bias\"],"
              "\"op\":\"flip\",\"part\":[\"model\"],\"rate\":null,"
              "\"role\":[\"weight\",\"norm-scale\"],"
              "\"sample\":\"tensors\",\"tensors\":[\"model/conv*\","
              "\"model/fc?.weight\"]}");
    assert_ok(sdc_choice_copy(&copy, &c, &err));
    sdc_choice_release(&c);
    assert_ok(sdc_choice_to_json(&copy, &copied, &err));
    assert_string_equal(json, copied);
    sdc_choice_release(&copy);
    assert_ok(sdc_choice_from_json(json, strlen(json), &c, &err));
    sdc_text_free(copied);
    assert_ok(sdc_choice_to_json(&c, &copied, &err));
    assert_string_equal(json, copied);
    assert_false(c.flips_given || c.sample_given);
    sdc_text_free(json);
    sdc_text_free(copied);
    sdc_choice_release(&c);
}

static void values_of_the_operator(void **state) {
    (void)state;
    static const struct {
        const char *word, *back;
        double value;
    } cases[] = {{"value=0", "value=0", 0.0},
                 {"value=-0", "value=-0", -0.0},
                 {"value=nan", "value=nan", (double)NAN},
                 {"value=inf", "value=inf", (double)INFINITY},
                 {"value=-inf", "value=-inf", -(double)INFINITY},
                 {"value=0.1", "value=0.1", 0.1},
                 {"value=1e38", "value=1e+38", 1e38}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        sdc_choice_init(&c);
        assert_ok(sdc_choice_set(&c, "op", cases[i].word, &err));
        assert_int_equal(c.op, SDC_OP_VALUE);
        if (isnan(cases[i].value))
            assert_true(isnan(c.value));
        else
            assert_memory_equal(&c.value, &cases[i].value, sizeof c.value);
        char *json;
        assert_ok(sdc_choice_to_json(&c, &json, &err));
        if (!strstr(json, cases[i].back))
            fail_msg("%s: %s", cases[i].word, json);
        sdc_text_free(json);
    }
}

/* Every word of the full set is read, written as JSON and read back the same. */
static void every_word_there_and_back(void **state) {
    (void)state;
    static const struct {
        const char *words[8];
        const char *json[3];
    } cases[] = {
        {{"op", "flip=3", "bits", "mantissa"}, {"\"op\":\"flip=3\"", "\"bits\":\"mantissa\""}},
        {{"op", "flip=1"}, {"\"op\":\"flip\""}},
        {{"op", "set0"}, {"\"op\":\"set0\""}},
        {{"op", "set1"}, {"\"op\":\"set1\""}},
        {{"op", "mask=0xF0"}, {"\"op\":\"mask=f0\""}},
        {{"op", "mask=ffffffffffffffff"}, {"\"op\":\"mask=ffffffffffffffff\""}},
        {{"op", "mask=5/4"}, {"\"op\":\"mask=5/4\""}},
        {{"op", "burst=64"}, {"\"op\":\"burst=64\""}},
        {{"op", "scale=-1e3"}, {"\"op\":\"scale=-1e+03\""}},
        {{"op", "random"}, {"\"op\":\"random\""}},
        {{"op", "swap"}, {"\"op\":\"swap\""}},
        {{"sample", "elements"}, {"\"sample\":\"elements\"", "\"rate\":null"}},
        {{"sample", "bytes"}, {"\"sample\":\"bytes\""}},
        {{"sample", "stratified"}, {"\"sample\":\"stratified\""}},
        {{"sample", "attempts", "flips", "9"}, {"\"sample\":\"attempts\"", "\"rate\":1"}},
        {{"sample", "attempts", "flips", "9", "rate", "0.25"}, {"\"rate\":0.25", "\"flips\":9"}},
        {{"rate", "0.25", "flips", "9", "sample", "attempts"}, {"\"rate\":0.25", "\"flips\":9"}},
        {{"rate", "1e-9"}, {"\"rate\":1e-09", "\"flips\":null"}},
        {{"rate", "0"}, {"\"rate\":0", "\"flips\":null"}},
        {{"not-result", "nan"}, {"\"not_result\":\"nan\""}},
        {{"not-result", "inf,nan"}, {"\"not_result\":\"nan,inf\""}},
        {{"not-result", "nan", "not-result", "none"}, {"\"not_result\":\"none\""}},
        {{"checksum", "stale"}, {"\"checksum\":\"stale\""}},
        {{"compat", "hdf5-corrupter"},
         {"\"compat\":\"hdf5-corrupter\"", "\"sample\":\"attempts\""}},
        {{"dtype", "float8_e4m3fn,U4"}, {"\"dtype\":[\"F8_E4M3\",\"U4\"]"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c, back;
        char *json, *again;
        sdc_choice_init(&c);
        for (int k = 0; k < 8 && cases[i].words[k]; k += 2)
            assert_ok(sdc_choice_set(&c, cases[i].words[k], cases[i].words[k + 1], &err));
        assert_ok(sdc_choice_check(&c, &err));
        assert_ok(sdc_choice_to_json(&c, &json, &err));
        for (int k = 0; k < 3 && cases[i].json[k]; k++)
            if (!strstr(json, cases[i].json[k]))
                fail_msg("expected %s in %s", cases[i].json[k], json);
        assert_ok(sdc_choice_from_json(json, strlen(json), &back, &err));
        assert_ok(sdc_choice_to_json(&back, &again, &err));
        assert_string_equal(json, again);
        assert_int_equal(c.mode, back.mode);
        sdc_text_free(json);
        sdc_text_free(again);
        sdc_choice_release(&c);
        sdc_choice_release(&back);
    }
}

/* What a choice makes of a type, by hand. */
static void sites_of_types(void **state) {
    (void)state;
    static const struct {
        const char *words[4];
        enum sdc_dtype dtype;
        uint64_t bits;
        unsigned sites;
    } cases[] = {
        {{"op", "flip"}, SDC_DTYPE_F32, UINT32_MAX, 32},
        {{"op", "flip"}, SDC_DTYPE_U4, 0xf, 4},
        {{"op", "flip", "bits", "exponent"}, SDC_DTYPE_F8_E8M0, 0xff, 8},
        {{"op", "flip", "bits", "sign"}, SDC_DTYPE_F8_E8M0, 0, 0},
        {{"op", "flip=3", "bits", "mantissa"}, SDC_DTYPE_F8_E4M3, 7, 1},
        {{"op", "flip=4", "bits", "mantissa"}, SDC_DTYPE_F8_E4M3, 7, 0},
        {{"op", "set1", "bits", "msb:0-1"}, SDC_DTYPE_F16, 0xc000, 2},
        {{"op", "burst=3"}, SDC_DTYPE_F4, 0xf, 4}, /* cut off at the top */
        {{"op", "mask=180/9"}, SDC_DTYPE_F16, 0xff, 8},
        {{"op", "mask=180/9"}, SDC_DTYPE_U8, 0, 0},
        {{"op", "mask=180"}, SDC_DTYPE_F16, 0xffff, 1},
        {{"op", "mask=180"}, SDC_DTYPE_U8, 0xff, 0},
        {{"op", "value=1"}, SDC_DTYPE_F32, UINT32_MAX, 1},
        {{"compat", "hdf5-corrupter", "bits", "exponent"}, SDC_DTYPE_F32, 0x7f800000, 8},
        {{"compat", "hdf5-corrupter", "bits", "exponent"}, SDC_DTYPE_I64, UINT64_MAX, 64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        sdc_choice_init(&c);
        for (int k = 0; k < 4 && cases[i].words[k]; k += 2)
            assert_ok(sdc_choice_set(&c, cases[i].words[k], cases[i].words[k + 1], &err));
        assert_true(sdc_choice_bits(&c, cases[i].dtype) == cases[i].bits);
        assert_int_equal(sdc_choice_sites(&c, cases[i].dtype), cases[i].sites);
        sdc_choice_release(&c);
    }
}

static void wrong_words_say_what_is_allowed(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *message;
    } cases[] = {
        {"flips", "-1", "flips: expected a whole number"},
        {"flips", "1.5", "found '1.5'"},
        {"flips", "", "flips"},
        {"exhaustive", "yes", "expected true or false"},
        {"sample", "random",
         "sample: expected bits, tensors, elements, bytes, stratified or attempts"},
        {"op", "flop", "expected flip, flip=K"},
        {"op", "value=", "op: value: expected 0, nan, inf, -inf or a number"},
        {"op", "value=1e999", "op: value"},
        {"op", "value=3x", "found '3x'"},
        {"op", "set0=1", "op: expected flip, flip=K, set0, set1, mask=HEX"},
        {"op", "mask", "op: expected flip"},
        {"op", "mask=", "op: mask: expected 1 to 16 hex digits that are not all 0"},
        {"op", "mask=0", "not all 0"},
        {"op", "mask=12345678123456781", "1 to 16 hex digits"},
        {"op", "mask=fg", "found 'fg'"},
        {"op", "mask=1f/4", "op: mask: expected the length of the mask in bits after the /"},
        {"op", "mask=1f/65", "at most 64"},
        {"op", "mask=1f/", "at most 64"},
        {"op", "burst=0", "op: burst: expected 1 to 64 bits, found '0'"},
        {"op", "burst=65", "op: burst"},
        {"op", "flip=65", "op: flip: expected 1 to 64 bits"},
        {"op", "scale=inf", "op: scale: expected a finite number"},
        {"op", "scale=nan", "op: scale"},
        {"op", "scale=x", "op: scale"},
        {"rate", "1.1", "rate: expected a probability, 0 to 1"},
        {"rate", "-0.1", "rate: expected a probability"},
        {"rate", "nan", "rate: expected a probability"},
        {"rate", "few", "found 'few'"},
        {"not-result", "zero", "not-result: expected a list of nan, inf, or none, found 'zero'"},
        {"not-result", "nan,", "found ''"},
        {"checksum", "fix", "checksum: expected mend or stale, found 'fix'"},
        {"compat", "pytorchfi", "compat: expected none or hdf5-corrupter"},
        {"role", "weights", "role: expected a list of weight, bias, norm-scale"},
        {"role", "", "found ''"},
        {"role", "weight,", "found ''"},
        {"part", "none", "part: expected a list of model, optimizer, loop, found 'none'"},
        {"dtype", "float31", "dtype: expected a list of F64"},
        {"tensors", "", "tensors: expected a name or a pattern"},
        {"flip", "3", "unknown word 'flip' of a fault choice, did you mean 'flips'"},
        {"zzzzzz", "3", "unknown word 'zzzzzz'"},
    };
    struct sdc_choice c, fresh;
    sdc_choice_init(&c);
    sdc_choice_init(&fresh);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_status(SDC_USAGE, sdc_choice_set(&c, cases[i].key, cases[i].value, &err));
        assert_message_has(cases[i].message);
        assert_memory_equal(&c, &fresh, sizeof c);
    }
    char long_word[300];
    memset(long_word, 'x', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    assert_status(SDC_USAGE, sdc_choice_set(&c, "role", long_word, &err));
}

static void contradictions_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *words[6]; /* key, value, key, value, ... */
        const char *message;
        bool at_set; /* refused at the last word, before check */
    } cases[] = {
        {{"flips", "3", "exhaustive", "true"},
         "flips: a number to draw does not go with exhaus",
         0},
        {{"flips", "3", "at", "w[0]@lsb:1"}, "flips: a number to draw does not go with at", 0},
        {{"sample", "bits", "at", "w[0]@lsb:1"}, "sample: a way to draw does not go with at", 0},
        {{"exhaustive", "true", "sample", "tensors"}, "sample", 0},
        {{"bits", "sign", "at", "w[0]@lsb:1"}, "bits: sites listed by at", 0},
        {{"bits", "sign", "op", "value=0"}, "bits: op value takes whole elements", 0},
        {{"at", "w[0]@lsb:1", "op", "value=0"}, "op value takes whole elements", 0},
        {{"at", "w[0]", "op", "set1"}, "op set1 needs a bit", 0},
        {{"at", "w[0]@lsb:1", "op", "flip=3"}, "op flip takes whole elements", 0},
        {{"at", "w[0]@lsb:1", "op", "mask=3"}, "op mask takes whole elements", 0},
        {{"at", "w[0]", "op", "mask=3/2"}, "op mask needs a bit", 0},
        {{"bits", "sign", "op", "mask=3"}, "bits: op mask takes whole elements", 0},
        {{"bits", "sign", "op", "swap"}, "bits: op swap takes whole elements", 0},
        {{"rate", "0.5", "flips", "3"}, "flips: a number to draw does not go with rate", 0},
        {{"rate", "0.5", "sample", "bytes"}, "sample: a way to draw does not go with rate", 0},
        {{"rate", "0.5", "exhaustive", "true"}, "rate: does not go with exhaustive", 0},
        {{"rate", "0.5", "at", "w[0]@lsb:1"}, "rate: does not go with at", 0},
        {{"sample", "bits", "compat", "hdf5-corrupter"}, "draws by attempts", 0},
        {{"not-result", "nan", "op", "swap"}, "not-result: does not go with op swap", 0},
        {{"at", "w[0]"}, "op flip needs a bit, such as @lsb:30", 0},
        {{"at", "w[0]@lsb:1", "exhaustive", "true"}, "does not go with sites listed", 1},
        {{"exhaustive", "true", "at", "w[0]@lsb:1"}, "does not go with exhaustive", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        enum sdc_status st = SDC_OK;
        sdc_choice_init(&c);
        for (int k = 0; k < 6 && cases[i].words[k] && st == SDC_OK; k += 2)
            st = sdc_choice_set(&c, cases[i].words[k], cases[i].words[k + 1], &err);
        assert_int_equal(st == SDC_USAGE, cases[i].at_set);
        if (st == SDC_OK)
            assert_status(SDC_USAGE, sdc_choice_check(&c, &err));
        assert_message_has(cases[i].message);
        sdc_choice_release(&c);
    }
    struct sdc_choice fine;
    sdc_choice_init(&fine);
    assert_ok(
        sdc_choice_set(&fine, "bits", "any", &err)); /* says nothing, so contradicts nothing */
    assert_ok(sdc_choice_set(&fine, "at", "w[0]@lsb:1", &err));
    assert_ok(sdc_choice_set(&fine, "at", "w[0]@lsb:2", &err));
    assert_ok(sdc_choice_check(&fine, &err));
    assert_int_equal(fine.n_at, 2);
    sdc_choice_release(&fine);
}

static void json_is_checked(void **state) {
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{\"flip\":1}", "fault choice: unknown key 'flip' (did you mean 'flips'?)"},
        {"{\"flips\":\"many\"}", "fault choice: flips: expected an integer of at least 0"},
        {"{\"flips\":null}", "flips: expected a number, found null"},
        {"{\"flips\":1,\"exhaustive\":true}", "flips: expected null beside exhaustive"},
        {"{\"role\":\"weight\"}", "role: expected an array, found a string"},
        {"{\"role\":[\"wait\"]}", "fault choice: role: expected a list of"},
        {"{\"role\":[1]}", "fault choice: role: expected a string"},
        {"{\"at\":[\"w[0]\"],\"flips\":null}", "op flip needs a bit"},
        {"{\"exhaustive\":1}", "exhaustive: expected true or false"},
        {"{\"tensors\":[\"\"]}", "tensors: expected a name"},
        {"[]", "fault choice: expected an object"},
        {"{", "fault choice: not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        assert_status(SDC_INVALID,
                      sdc_choice_from_json(cases[i].json, strlen(cases[i].json), &c, &err));
        assert_int_equal(err.status, SDC_INVALID);
        assert_message_has(cases[i].message);
    }
    struct sdc_choice c;
    assert_ok(sdc_choice_from_json("{}", 2, &c, &err)); /* every default */
    assert_int_equal(c.flips, 1);
    sdc_choice_release(&c);
}

/* ---- the support ---- */

static void admits_by_every_filter(void **state) {
    (void)state;
    static const uint64_t shape[] = {6};
    struct sdc_tensor_desc t = {.name = "model/conv1.weight",
                                .dtype = SDC_DTYPE_F32,
                                .dtype_known = true,
                                .dtype_text = "F32",
                                .rank = 1,
                                .shape = shape,
                                .n_elems = 6,
                                .part = SDC_PART_MODEL,
                                .role = SDC_ROLE_WEIGHT};
    struct {
        const char *key, *value;
        bool want;
    } cases[] = {
        {"tensors", "model/conv1.weight", true},
        {"tensors", "model/*", true},
        {"tensors", "*.weight", true},
        {"tensors", "model/conv1", false},
        {"tensors", "conv1.weight", false},
        {"not-tensors", "*.weight", false},
        {"not-tensors", "*.bias", true},
        {"role", "bias", false},
        {"role", "bias,weight", true},
        {"part", "optimizer", false},
        {"part", "model", true},
        {"dtype", "F16", false},
        {"dtype", "F32", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sdc_choice c;
        sdc_choice_init(&c);
        assert_true(sdc_choice_admits(&c, &t));
        assert_ok(sdc_choice_set(&c, cases[i].key, cases[i].value, &err));
        if (sdc_choice_admits(&c, &t) != cases[i].want)
            fail_msg("%s %s", cases[i].key, cases[i].value);
        sdc_choice_release(&c);
    }
    struct sdc_choice c;
    sdc_choice_init(&c);
    assert_ok(sdc_choice_set(&c, "tensors", "odd[*]name", &err));
    t.name = "odd[*]name"; /* as an exact name */
    assert_true(sdc_choice_admits(&c, &t));
    t.shared = "view of other"; /* drawn from where its name is chosen, not by a glob */
    assert_true(sdc_choice_admits(&c, &t));
    sdc_choice_release(&c);
    sdc_choice_init(&c);
    assert_false(sdc_choice_admits(&c, &t));
    assert_ok(sdc_choice_set(&c, "tensors", "odd*", &err));
    assert_false(sdc_choice_admits(&c, &t));
    const char *const aliases[] = {"tied"};
    t.aliases = aliases;
    t.n_aliases = 1;
    assert_ok(sdc_choice_set(&c, "tensors", "tied", &err));
    assert_true(sdc_choice_admits(&c, &t));
    t.shared = NULL;
    assert_ok(sdc_choice_set(&c, "not-tensors", "t?ed", &err));
    assert_false(sdc_choice_admits(&c, &t));
    sdc_choice_release(&c);
    sdc_choice_init(&c);
    t.n_aliases = 0;
    t.shared = "view of other";
    assert_ok(sdc_choice_set(&c, "at", "odd[*]name[0]@lsb:0", &err));
    assert_true(sdc_choice_admits(&c, &t));
    t.shared = NULL;
    t.locked = "compressed";
    assert_false(sdc_choice_admits(&c, &t));
    t.locked = NULL;
    t.dtype_known = false;
    assert_false(sdc_choice_admits(&c, &t));
    sdc_choice_release(&c);
}

static void no_memory_is_reported(void **state) {
    (void)state;
    const char *json = "{\"at\":[\"w[0]@lsb:1\",\"v[1]@sign\"],\"bits\":\"any\",\"flips\":null,"
                       "\"not_tensors\":[\"a\"],\"tensors\":[\"b\",\"c\"]}";
    struct sdc_choice c, copy;
    uint64_t n = 1;
    for (;; n++) {
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_choice_from_json(json, strlen(json), &c, &err);
        sdc__alloc_fail_at(0);
        if (st == SDC_OK)
            break;
        assert_int_equal(st, SDC_NO_MEMORY);
    }
    assert_true(n > 8);
    for (n = 1;; n++) {
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_choice_copy(&copy, &c, &err);
        sdc__alloc_fail_at(0);
        if (st == SDC_OK)
            break;
        assert_int_equal(st, SDC_NO_MEMORY);
    }
    char *text;
    for (n = 1;; n++) {
        sdc__alloc_fail_at(n);
        enum sdc_status st = sdc_choice_to_json(&c, &text, &err);
        sdc__alloc_fail_at(0);
        if (st == SDC_OK)
            break;
        assert_int_equal(st, SDC_NO_MEMORY);
    }
    sdc_text_free(text);
    sdc_choice_release(&copy);
    sdc_choice_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_masks),
        cmocka_unit_test(wrong_bits_are_refused),
        cmocka_unit_test(sites_are_parsed_from_the_right),
        cmocka_unit_test(wrong_sites_are_refused),
        cmocka_unit_test(words_set_members),
        cmocka_unit_test(values_of_the_operator),
        cmocka_unit_test(every_word_there_and_back),
        cmocka_unit_test(sites_of_types),
        cmocka_unit_test(wrong_words_say_what_is_allowed),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(json_is_checked),
        cmocka_unit_test(admits_by_every_filter),
        cmocka_unit_test(no_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
