/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "sdc/outcome.h"
#include "sdc/tensor.h"
#include "test.h"

static struct sdc_error err;

#define P(part) SDC_PART_##part
#define R(role) SDC_ROLE_##role

/* Names as found in files: PyTorch state dicts of torchvision's networks, optimizer state dicts,
 * Keras 2 and 3, Flax, and the native trainer. */
static const struct {
    const char *name;
    enum sdc_dtype dtype;
    unsigned rank;
    enum sdc_part part;
    enum sdc_role role;
    const char *layer;
} names[] = {
    /* native trainer */
    {"model/conv1.weight", SDC_DTYPE_F32, 4, P(MODEL), R(WEIGHT), "conv1"},
    {"model/conv1.bias", SDC_DTYPE_F32, 1, P(MODEL), R(BIAS), "conv1"},
    {"optimizer/conv1.weight/momentum", SDC_DTYPE_F32, 4, P(OPTIMIZER), R(MOMENTUM), "conv1"},
    {"optimizer/layer1.0.bn1.weight/exp_avg_sq", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(ADAM_V),
     "layer1.0.bn1"},
    {"loop/step", SDC_DTYPE_I64, 0, P(LOOP), R(COUNTER), "loop/step"},
    {"loop/epoch", SDC_DTYPE_I64, 0, P(LOOP), R(COUNTER), "loop/epoch"},
    {"loop/cursor", SDC_DTYPE_U64, 1, P(LOOP), R(CURSOR), "loop/cursor"},
    {"loop/rng", SDC_DTYPE_U32, 1, P(LOOP), R(RNG), "loop/rng"},
    {"loop/rng/cpu", SDC_DTYPE_U8, 1, P(LOOP), R(RNG), "loop/rng/cpu"},
    {"loop/scheduler/last_epoch", SDC_DTYPE_I64, 0, P(LOOP), R(COUNTER),
     "loop/scheduler/last_epoch"},
    {"loop/scaler", SDC_DTYPE_F32, 0, P(LOOP), R(OTHER), "loop/scaler"},
    /* torchvision */
    {"layer1.0.conv1.weight", SDC_DTYPE_F32, 4, P(MODEL), R(WEIGHT), "layer1.0.conv1"},
    {"layer1.0.bn1.weight", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SCALE), "layer1.0.bn1"},
    {"layer1.0.bn1.bias", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SHIFT), "layer1.0.bn1"},
    {"bn1.running_mean", SDC_DTYPE_F32, 1, P(MODEL), R(RUNNING_MEAN), "bn1"},
    {"bn1.running_var", SDC_DTYPE_F32, 1, P(MODEL), R(RUNNING_VAR), "bn1"},
    {"bn1.num_batches_tracked", SDC_DTYPE_I64, 0, P(MODEL), R(COUNTER), "bn1"},
    {"layer2.0.downsample.0.weight", SDC_DTYPE_F32, 4, P(MODEL), R(WEIGHT),
     "layer2.0.downsample.0"},
    {"layer2.0.downsample.1.weight", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SCALE),
     "layer2.0.downsample.1"},
    {"layer2.0.downsample.1.bias", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SHIFT),
     "layer2.0.downsample.1"},
    {"features.0.weight", SDC_DTYPE_F32, 4, P(MODEL), R(WEIGHT), "features.0"},
    {"classifier.6.bias", SDC_DTYPE_F32, 1, P(MODEL), R(BIAS), "classifier.6"},
    {"features.denseblock1.denselayer1.norm1.weight", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SCALE),
     "features.denseblock1.denselayer1.norm1"},
    {"encoder.layers.encoder_layer_0.ln_1.bias", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SHIFT),
     "encoder.layers.encoder_layer_0.ln_1"},
    {"encoder.layers.encoder_layer_0.self_attention.in_proj_weight", SDC_DTYPE_F32, 2, P(MODEL),
     R(WEIGHT), "encoder.layers.encoder_layer_0.self_attention"},
    {"Conv2d_1a_3x3.bn.weight", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SCALE), "Conv2d_1a_3x3.bn"},
    {"subnet.weight", SDC_DTYPE_F32, 1, P(MODEL), R(WEIGHT), "subnet"},
    {"normal_head.bias", SDC_DTYPE_F32, 1, P(MODEL), R(BIAS), "normal_head"},
    {"norm.weight", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "norm"},
    {"rnn.weight_hh_l0_reverse", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "rnn"},
    {"rnn.bias_ih_l0", SDC_DTYPE_F32, 1, P(MODEL), R(BIAS), "rnn"},
    {"weight", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "weight"},
    {"model.layers.0.input_layernorm.weight", SDC_DTYPE_BF16, 1, P(MODEL), R(NORM_SCALE),
     "layers.0.input_layernorm"},
    {"model/module.fc.weight", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "fc"},
    {"module.fc.weight", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "fc"},
    /* PyTorch optimizers by running number */
    {"optimizer/state/0/exp_avg", SDC_DTYPE_F32, 4, P(OPTIMIZER), R(ADAM_M),
     "optimizer/state/0/exp_avg"},
    {"optimizer.state.0.exp_avg_sq", SDC_DTYPE_F32, 4, P(OPTIMIZER), R(ADAM_V),
     "optimizer.state.0.exp_avg_sq"},
    {"optimizer/state/3/momentum_buffer", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(MOMENTUM),
     "optimizer/state/3/momentum_buffer"},
    {"optimizer/state/0/step", SDC_DTYPE_F32, 0, P(OPTIMIZER), R(COUNTER),
     "optimizer/state/0/step"},
    {"optimizer/param_groups/0/lr", SDC_DTYPE_F64, 0, P(OPTIMIZER), R(OTHER),
     "optimizer/param_groups/0/lr"},
    {"state.7.exp_avg", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(ADAM_M), "state.7.exp_avg"},
    {"optimizer_state_dict/state/0/max_exp_avg_sq", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(OTHER),
     "optimizer_state_dict/state/0/max_exp_avg_sq"},
    /* Keras */
    {"model_weights/conv2d/conv2d/kernel:0", SDC_DTYPE_F32, 4, P(MODEL), R(WEIGHT), "conv2d"},
    {"model_weights/batch_normalization/batch_normalization/gamma:0", SDC_DTYPE_F32, 1, P(MODEL),
     R(NORM_SCALE), "batch_normalization"},
    {"batch_normalization/beta:0", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SHIFT),
     "batch_normalization"},
    {"batch_normalization_3/moving_variance:0", SDC_DTYPE_F32, 1, P(MODEL), R(RUNNING_VAR),
     "batch_normalization_3"},
    {"optimizer_weights/Adam/conv2d/kernel/m:0", SDC_DTYPE_F32, 4, P(OPTIMIZER), R(ADAM_M),
     "conv2d"},
    {"optimizer_weights/training/Adam/conv2d/kernel/v:0", SDC_DTYPE_F32, 4, P(OPTIMIZER), R(ADAM_V),
     "conv2d"},
    {"optimizer_weights/Adam/v/dense/bias:0", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(ADAM_V), "dense"},
    {"optimizer_weights/SGD/m/dense/bias:0", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(MOMENTUM), "dense"},
    {"optimizer_weights/SGD/dense/kernel/momentum:0", SDC_DTYPE_F32, 2, P(OPTIMIZER), R(MOMENTUM),
     "dense"},
    {"optimizer_weights/Adam/iter:0", SDC_DTYPE_I64, 0, P(OPTIMIZER), R(COUNTER),
     "optimizer_weights/Adam/iter:0"},
    {"optimizer_weights/adam/dense_kernel_velocity", SDC_DTYPE_F32, 2, P(OPTIMIZER), R(ADAM_V),
     "optimizer_weights/adam/dense_kernel_velocity"},
    {"layers/conv2d/vars/0", SDC_DTYPE_F32, 4, P(MODEL), R(WEIGHT), "layers/conv2d"},
    {"layers/conv2d/vars/1", SDC_DTYPE_F32, 1, P(MODEL), R(BIAS), "layers/conv2d"},
    {"layers/batch_normalization/vars/3", SDC_DTYPE_F32, 1, P(MODEL), R(RUNNING_VAR),
     "layers/batch_normalization"},
    {"optimizer/vars/0", SDC_DTYPE_I64, 0, P(OPTIMIZER), R(COUNTER), "optimizer/vars/0"},
    {"optimizer/vars/2", SDC_DTYPE_F32, 4, P(OPTIMIZER), R(OTHER), "optimizer/vars/2"},
    /* Flax */
    /* TensorFlow: object-based keys, their human names, name-based keys */
    {"model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_F32, 2, P(MODEL),
     R(WEIGHT), "layer_with_weights-0"},
    {"net/bn1/moving_mean/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_F32, 1, P(MODEL), R(RUNNING_MEAN),
     "net/bn1"},
    {"model/fc1/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_F32, 2,
     P(OPTIMIZER), R(ADAM_M), "fc1"},
    {"net/fc1/bias/.OPTIMIZER_SLOT/opt/v/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_F32, 1,
     P(OPTIMIZER), R(ADAM_V), "net/fc1"},
    {"net/fc1/bias/.OPTIMIZER_SLOT/opt/momentum/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_F32, 1,
     P(OPTIMIZER), R(MOMENTUM), "net/fc1"},
    {"optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_I64, 0, P(OPTIMIZER), R(COUNTER),
     "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE"},
    {"save_counter/.ATTRIBUTES/VARIABLE_VALUE", SDC_DTYPE_I64, 0, P(NONE), R(COUNTER),
     "save_counter/.ATTRIBUTES/VARIABLE_VALUE"},
    {"Adam/m/fc1/kernel", SDC_DTYPE_F32, 2, P(OPTIMIZER), R(ADAM_M), "fc1"},
    {"Adam/fc1/kernel/v", SDC_DTYPE_F32, 2, P(OPTIMIZER), R(ADAM_V), "fc1"},
    {"dense/kernel", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "dense"},
    {"dense/kernel/Adam", SDC_DTYPE_F32, 2, P(OPTIMIZER), R(ADAM_M), "dense"},
    {"dense/kernel/Adam_1", SDC_DTYPE_F32, 2, P(OPTIMIZER), R(ADAM_V), "dense"},
    {"dense/bias/Momentum", SDC_DTYPE_F32, 1, P(OPTIMIZER), R(MOMENTUM), "dense"},
    {"beta1_power", SDC_DTYPE_F32, 0, P(OPTIMIZER), R(OTHER), "beta1_power"},
    {"global_step", SDC_DTYPE_I64, 0, P(NONE), R(COUNTER), "global_step"},
    {"lion.weight", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "lion"},
    /* GGUF: parts of quantised blocks */
    {"blk.0.attn_q.weight:scale", SDC_DTYPE_F16, 2, P(MODEL), R(WEIGHT), "blk.0.attn_q"},
    {"blk.0.attn_norm.weight", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SCALE), "blk.0.attn_norm"},
    {"params/BatchNorm_0/scale", SDC_DTYPE_F32, 1, P(MODEL), R(NORM_SCALE), "BatchNorm_0"},
    {"batch_stats/BatchNorm_0/var", SDC_DTYPE_F32, 1, P(MODEL), R(RUNNING_VAR), "BatchNorm_0"},
    {"params/Dense_1/kernel", SDC_DTYPE_F32, 2, P(MODEL), R(WEIGHT), "Dense_1"},
    /* none of ours */
    {"image_mean", SDC_DTYPE_F32, 1, P(NONE), R(OTHER), "image_mean"},
    {"some/thing", SDC_DTYPE_F32, 2, P(NONE), R(OTHER), "some/thing"},
    {"epoch", SDC_DTYPE_I64, 0, P(NONE), R(COUNTER), "epoch"},
    {"model/", SDC_DTYPE_F32, 1, P(NONE), R(OTHER), "model/"},
    {"", SDC_DTYPE_F32, 0, P(NONE), R(OTHER), ""},
    {"/", SDC_DTYPE_F32, 0, P(NONE), R(OTHER), "/"},
    {"model/x", SDC_DTYPE_F32, 2, P(MODEL), R(OTHER), "x"},
};

static void classify_names_of_known_frameworks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum sdc_part part;
        enum sdc_role role;
        sdc_tensor_classify(names[i].name, names[i].dtype, names[i].rank, &part, &role);
        if (part != names[i].part || role != names[i].role)
            fail_msg("%s: got %s %s, expected %s %s", names[i].name, sdc_part_name(part),
                     sdc_role_name(role), sdc_part_name(names[i].part),
                     sdc_role_name(names[i].role));
        char layer[128];
        sdc_tensor_layer(names[i].name, layer, sizeof layer);
        if (strcmp(layer, names[i].layer) != 0)
            fail_msg("%s: got layer '%s', expected '%s'", names[i].name, layer, names[i].layer);
    }
    char cut[4];
    sdc_tensor_layer("model/conv1.weight", cut, sizeof cut);
    assert_string_equal(cut, "con");
}

static void part_and_role_words_read_back(void **state) {
    (void)state;
    enum sdc_part part;
    enum sdc_role role;
    for (int i = 0; i < SDC_PART_NONE; i++) {
        assert_true(sdc_part_parse(sdc_part_name((enum sdc_part)i), &part));
        assert_int_equal(part, i);
    }
    assert_false(sdc_part_parse("none", &part));
    for (int i = 0; i < SDC_ROLE_COUNT; i++) {
        assert_true(sdc_role_parse(sdc_role_name((enum sdc_role)i), &role));
        assert_int_equal(role, i);
    }
    assert_false(sdc_role_parse("weights", &role));
}

static void index_text_and_back(void **state) {
    (void)state;
    static const uint64_t shape[] = {6, 1, 5};
    struct sdc_tensor_desc t = {.name = "w", .rank = 3, .shape = shape, .n_elems = 30};
    uint64_t elem, index[] = {2, 0, 4};
    assert_ok(sdc_tensor_flat_index(&t, index, 3, &elem, &err));
    assert_int_equal(elem, 14);
    char text[32];
    sdc_tensor_index_text(&t, 14, text, sizeof text);
    assert_string_equal(text, "[2,0,4]");
    sdc_tensor_index_text(&t, 29, text, sizeof text);
    assert_string_equal(text, "[5,0,4]");
    sdc_tensor_index_text(&t, 29, text, 4); /* cut, still terminated */
    assert_int_equal(strlen(text), 3);
    index[1] = 1;
    assert_status(SDC_USAGE, sdc_tensor_flat_index(&t, index, 3, &elem, &err));
    assert_message_has("index 1 in dimension 1");
    assert_status(SDC_USAGE, sdc_tensor_flat_index(&t, index, 2, &elem, &err));
    struct sdc_tensor_desc scalar = {.name = "step", .n_elems = 1};
    assert_ok(sdc_tensor_flat_index(&scalar, NULL, 0, &elem, &err));
    assert_int_equal(elem, 0);
    sdc_tensor_index_text(&scalar, 0, text, sizeof text);
    assert_string_equal(text, "[]");
}

static struct sdc_tensor_view view(const char *name, enum sdc_dtype dtype, unsigned rank,
                                   const uint64_t *shape, uint64_t n, const void *data) {
    return (struct sdc_tensor_view){.desc = {.name = name,
                                             .dtype = dtype,
                                             .dtype_known = true,
                                             .dtype_text = sdc_dtype_name(dtype),
                                             .rank = rank,
                                             .shape = shape,
                                             .n_elems = n},
                                    .data = data};
}

/* The values themselves are compared with Python's xxhash in digest_against_python. */
static void digest_depends_on_all_and_only_what_it_says(void **state) {
    (void)state;
    static const uint64_t shape[] = {2, 2}, flat[] = {4};
    float w[] = {1, 2, 3, 4}, b[] = {0.5f, -0.0f, 0.25f, 7};
    struct sdc_tensor_view views[2] = {view("model/fc.weight", SDC_DTYPE_F32, 2, shape, 4, w),
                                       view("model/fc.bias", SDC_DTYPE_F32, 1, flat, 4, b)};
    struct sdc_tensor_view turned[2] = {views[1], views[0]};
    struct sdc_state_digest d, e;
    assert_ok(sdc_state_digest(views, 2, &d, &err));
    assert_ok(sdc_state_digest(turned, 2, &e, &err));
    assert_memory_equal(&d, &e, sizeof d);
    views[0].desc.name = "model/module.fc.weight";
    assert_ok(sdc_state_digest(views, 2, &e, &err));
    assert_memory_equal(&d, &e, sizeof d);
    b[1] = 0.0f; /* equal as a number, not as bits */
    assert_ok(sdc_state_digest(views, 2, &e, &err));
    assert_memory_not_equal(&d, &e, sizeof d);
    b[1] = -0.0f;
    views[0].desc.shape = flat;
    views[0].desc.rank = 1;
    assert_ok(sdc_state_digest(views, 2, &e, &err));
    assert_memory_not_equal(&d, &e, sizeof d);
    views[1].desc.dtype_known = false;
    assert_status(SDC_UNSUPPORTED, sdc_state_digest(views, 2, &e, &err));
    assert_message_has("model/fc.bias");
    char text[SDC_STATE_DIGEST_TEXT];
    sdc_state_digest_text(&d, text);
    assert_true(sdc_state_digest_parse(text, &e));
    assert_memory_equal(&d, &e, sizeof d);
    assert_false(sdc_state_digest_parse("12", &e));
    text[3] = 'g';
    assert_false(sdc_state_digest_parse(text, &e));
}

static void digest_survives_no_memory(void **state) {
    (void)state;
    int64_t step = 3;
    struct sdc_tensor_view views[2] = {view("loop/step", SDC_DTYPE_I64, 0, NULL, 1, &step),
                                       view("loop/epoch", SDC_DTYPE_I64, 0, NULL, 1, &step)};
    struct sdc_state_digest d;
    uint64_t before = sdc__alloc_count();
    assert_ok(sdc_state_digest(views, 2, &d, &err));
    uint64_t n = sdc__alloc_count() - before;
    assert_true(n > 0);
    for (uint64_t i = 1; i <= n; i++) {
        sdc__alloc_fail_at(i);
        assert_status(SDC_NO_MEMORY, sdc_state_digest(views, 2, &d, &err));
    }
    sdc__alloc_fail_at(0);
}

static void labels_read_back(void **state) {
    (void)state;
    for (int a = 0; a < SDC_AXIS_COUNT; a++) {
        enum sdc_axis axis = (enum sdc_axis)a;
        assert_non_null(sdc_axis_name(axis));
        for (int v = 0; v < sdc_axis_count(axis); v++) {
            int back = -1;
            assert_true(sdc_label_parse(axis, sdc_label_text(axis, v), &back));
            assert_int_equal(back, v);
            assert_true(strlen(sdc_label_meaning(axis, v)) > 0);
        }
        int none;
        assert_false(sdc_label_parse(axis, "nonesuch", &none));
    }
    assert_string_equal(sdc_axis_name(SDC_AXIS_REPLICAS), "replicas");
    struct sdc_outcome o = {SDC_RESULT_DONE,
                            SDC_EXPOSURE_KEPT,
                            SDC_NUMERIC_NONFINITE_SOON,
                            SDC_TRAJECTORY_SPIKE_RECOVER,
                            SDC_QUALITY_FAILED,
                            SDC_REPLICAS_HEALED};
    static const char *const want[] = {
        "done", "kept", "non-finite-short-term", "spike-and-recover", "failed", "healed"};
    for (int a = 0; a < SDC_AXIS_COUNT; a++)
        assert_string_equal(sdc_label_text((enum sdc_axis)a, sdc_outcome_get(&o, (enum sdc_axis)a)),
                            want[a]);
}

static void collapse_is_a_nonfinite_loss_of_a_finished_trial(void **state) {
    (void)state;
    for (int v = 0; v < SDC_NUMERIC_COUNT; v++) {
        struct sdc_outcome o = {.result = SDC_RESULT_DONE, .numeric = (enum sdc_numeric)v};
        bool want = strncmp(sdc_label_text(SDC_AXIS_NUMERIC, v), "non-finite", 10) == 0;
        assert_int_equal(sdc_outcome_is_collapse(&o), want);
        o.result = SDC_RESULT_HARNESS_ERROR;
        assert_false(sdc_outcome_is_collapse(&o));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classify_names_of_known_frameworks),
        cmocka_unit_test(part_and_role_words_read_back),
        cmocka_unit_test(index_text_and_back),
        cmocka_unit_test(digest_depends_on_all_and_only_what_it_says),
        cmocka_unit_test(digest_survives_no_memory),
        cmocka_unit_test(labels_read_back),
        cmocka_unit_test(collapse_is_a_nonfinite_loss_of_a_finished_trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
