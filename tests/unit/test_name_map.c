/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "sdc/name_map.h"
#include "test.h"

static struct sdc_error err;

#define MAX 16

/* Tensors as a checkpoint lists them. */
struct list {
    struct sdc_tensor_desc descs[MAX];
    const struct sdc_tensor_desc *pointers[MAX];
    uint64_t shapes[MAX][6];
    size_t n;
};

/* shape ends with 0 */
static void add(struct list *l, const char *name, const uint64_t *shape) {
    struct sdc_tensor_desc *t = &l->descs[l->n];
    *t = (struct sdc_tensor_desc){.name = name,
                                  .dtype = SDC_DTYPE_F32,
                                  .dtype_known = true,
                                  .dtype_text = "F32",
                                  .shape = l->shapes[l->n],
                                  .n_elems = 1};
    for (; shape[t->rank]; t->rank++) {
        l->shapes[l->n][t->rank] = shape[t->rank];
        t->n_elems *= shape[t->rank];
    }
    sdc_tensor_classify(name, t->dtype, t->rank, &t->part, &t->role);
    l->pointers[l->n++] = t;
}

#define ADD(list, name, ...) add(list, name, (const uint64_t[]){__VA_ARGS__, 0})
#define SCALAR(list, name)   add(list, name, (const uint64_t[]){0})

static struct sdc_name_links resolve(const char *text, const char *builtin, const struct list *from,
                                     const struct list *to) {
    struct sdc_name_map *map;
    struct sdc_name_links links;
    assert_ok(sdc_name_map_new(&map, &err));
    if (text)
        assert_ok(sdc_name_map_add_text(map, text, strlen(text), "test.map", &err));
    if (builtin)
        assert_ok(sdc_name_map_add(map, builtin, &err));
    assert_ok(
        sdc_name_map_resolve(map, from->pointers, from->n, to->pointers, to->n, &links, &err));
    assert_int_equal(links.n, from->n);
    sdc_name_map_free(map);
    return links;
}

static void assert_to(const struct sdc_name_links *links, size_t i, size_t to) {
    if (links->items[i].to != to)
        fail_msg("tensor %zu goes to %zu (%s), expected %zu", i, links->items[i].to,
                 links->items[i].why ? links->items[i].why : "", to);
    assert_null(links->items[i].why);
}

static void assert_why(const struct sdc_name_links *links, size_t i, const char *text) {
    assert_true(links->items[i].to == SDC_NAME_NONE);
    assert_non_null(links->items[i].why);
    if (!strstr(links->items[i].why, text))
        fail_msg("'%s' lacks '%s'", links->items[i].why, text);
}

/* ---- names alone ---- */

static void test_names(void **state) {
    (void)state;
    struct list a = {0}, b = {0};
    ADD(&a, "model/module.fc.weight", 3, 2);
    ADD(&a, "model/fc.bias", 3);
    ADD(&a, "dense/kernel:0", 2, 2);
    ADD(&a, "net/w/.ATTRIBUTES/VARIABLE_VALUE", 4);
    SCALAR(&a, "optimizer/step");
    ADD(&a, "only.here", 1);
    ADD(&a, "model/x.weight", 5);
    ADD(&b, "fc.weight", 3, 2);
    ADD(&b, "_orig_mod.fc.bias", 3);
    ADD(&b, "model_weights/dense/kernel", 2, 2);
    ADD(&b, "net/w", 4);
    SCALAR(&b, "loop/step");
    ADD(&b, "model/x.weight", 5);
    ADD(&b, "x.weight", 5);
    struct sdc_name_links links = resolve(NULL, NULL, &a, &b);
    assert_to(&links, 0, 0);
    assert_to(&links, 1, 1);
    assert_to(&links, 2, 2);
    assert_to(&links, 3, 3);
    assert_why(&links, 4, "no tensor has its name"); /* another part of the state */
    assert_why(&links, 5, "no tensor has its name");
    assert_to(&links, 6, 5); /* the literal name goes before the one without its part */
    assert_null(links.items[0].axes);
    assert_int_equal(sdc_name_link_elem(&links.items[0], 5), 5);
    sdc_name_links_release(&links);
}

static void test_names_ambiguous_and_shapes(void **state) {
    (void)state;
    struct list a = {0}, b = {0};
    ADD(&a, "fc.weight", 3, 2);
    ADD(&a, "w.weight", 3, 2);
    ADD(&a, "v.weight", 3, 2);
    ADD(&b, "module.fc.weight", 3, 2);
    ADD(&b, "_orig_mod.fc.weight", 3, 2);
    ADD(&b, "w.weight", 2, 3);
    ADD(&b, "v.weight", 3, 3);
    struct sdc_name_links links = resolve(NULL, NULL, &a, &b);
    assert_why(&links, 0, "may be module.fc.weight or _orig_mod.fc.weight");
    assert_why(&links, 1, "[3,2], but w.weight has [2,3] (the order of axes differs");
    assert_why(&links, 2, "[3,2], but v.weight has [3,3]");
    assert_null(strstr(links.items[2].why, "order of axes"));
    sdc_name_links_release(&links);
}

/* ---- rules ---- */

static void test_rules(void **state) {
    (void)state;
    struct list a = {0}, b = {0};
    ADD(&a, "model/conv1.weight", 6, 1, 5, 5);
    ADD(&a, "model/conv2.weight", 16, 6, 5, 5);
    ADD(&a, "model/fc.weight", 10, 84);
    ADD(&a, "model/fc.bias", 10);
    ADD(&a, "a b*", 4);
    ADD(&a, "axb", 4);
    ADD(&a, "gone", 4);
    ADD(&a, "lost", 4);
    ADD(&b, "layers/c1/vars/0", 5, 5, 1, 6);
    ADD(&b, "layers/c2/vars/0", 5, 5, 6, 16);
    ADD(&b, "layers/fc/vars/0", 84, 10);
    ADD(&b, "layers/fc/vars/1", 10);
    ADD(&b, "layers/odd name", 4);
    ADD(&b, "layers/axb", 4);
    ADD(&a, "y.z", 3);
    ADD(&b, "z-z/y", 3);
    static const char text[] = "# a comment\n"
                               "\n"
                               "conv*.weight -> layers/c*/vars/0  axes=2,3,1,0 # more\n"
                               "fc.weight -> layers/fc/vars/0 transpose\r\n"
                               "model/fc.bias -> layers/fc/vars/1\n"
                               "\"a b*\" -> \"layers/odd name\"\n"
                               "a* -> layers/a*\n"
                               "gone -> -\n"
                               "lost -> nowhere\n"
                               "*.* -> {2}-{2}/{1}";
    struct sdc_name_links links = resolve(text, NULL, &a, &b);
    for (size_t i = 0; i < 6; i++)
        assert_to(&links, i, i);
    assert_why(&links, 6, "test.map line 8 leaves it out");
    assert_true(links.items[6].left_out && !links.items[7].left_out);
    assert_true(links.items[0].ruled && links.items[6].ruled && links.items[7].ruled);
    assert_why(&links, 7, "test.map line 9: no tensor is named 'nowhere'");
    assert_to(&links, 8, 6);
    /* [3,2,1,4] of (16,6,5,5) is element 504 of C order; there [1,4,2,3] of (5,5,6,16): 899 */
    assert_int_equal(sdc_name_link_elem(&links.items[1], ((3 * 6 + 2) * 5 + 1) * 5 + 4),
                     ((1 * 5 + 4) * 6 + 2) * 16 + 3);
    assert_int_equal(sdc_name_link_elem(&links.items[2], 7 * 84 + 80), 80 * 10 + 7);
    for (size_t i = 0; i < 3; i++)
        for (uint64_t e = 0; e < a.descs[i].n_elems; e++)
            assert_int_equal(
                sdc_name_link_elem_back(&links.items[i], sdc_name_link_elem(&links.items[i], e)),
                e);
    sdc_name_links_release(&links);
}

/* The first dense layer after a flattened map: PyTorch flattens (C, H, W), Keras (H, W, C). */
static void test_view(void **state) {
    (void)state;
    struct list a = {0}, b = {0};
    ADD(&a, "fc1.weight", 120, 400);
    ADD(&a, "flat.weight", 2, 3, 4);
    ADD(&b, "dense/kernel", 400, 120);
    ADD(&b, "flat", 24);
    struct sdc_name_links links =
        resolve("fc1.weight -> dense/kernel view=-1,16,5,5 axes=oihw-hwio\n"
                "flat.weight -> flat view=-1\n",
                NULL, &a, &b);
    assert_to(&links, 0, 0);
    /* output 7 of channel 3, row 1, column 4: (7, 3*25+1*5+4) and ((1*5+4)*16+3, 7) */
    assert_int_equal(sdc_name_link_elem(&links.items[0], 7 * 400 + 3 * 25 + 1 * 5 + 4),
                     ((1 * 5 + 4) * 16 + 3) * 120 + 7);
    assert_int_equal(sdc_name_link_elem_back(&links.items[0], ((1 * 5 + 4) * 16 + 3) * 120 + 7),
                     7 * 400 + 3 * 25 + 1 * 5 + 4);
    assert_to(&links, 1, 1);
    assert_int_equal(sdc_name_link_elem(&links.items[1], 23), 23);
    sdc_name_links_release(&links);
    links = resolve("fc1.weight -> dense/kernel view=-1,7,5,5 axes=2,3,1,0\n"
                    "flat.weight -> dense/kernel view=2,12\n",
                    NULL, &a, &b);
    assert_why(&links, 0, "view of the map does not hold its 48000 elements");
    assert_why(&links, 1, "[2,3,4] becomes [2,12], but dense/kernel has [400,120]");
    sdc_name_links_release(&links);
}

/* A record names index and element, no shape: the target's tells it. */
static void test_unknown_shape(void **state) {
    (void)state;
    struct list a = {0}, b = {0};
    ADD(&a, "conv2.weight", 16, 6, 5, 5);
    ADD(&a, "fc.weight", 1, 1, 1);
    ADD(&b, "conv2/kernel", 5, 5, 6, 16);
    ADD(&b, "fc/kernel", 4, 4);
    for (size_t i = 0; i < a.n; i++)
        a.descs[i].shape = NULL;
    struct sdc_name_links links = resolve("*.weight -> */kernel axes=2,3,1,0\n", NULL, &a, &b);
    assert_to(&links, 0, 0);
    assert_int_equal(sdc_name_link_elem(&links.items[0], ((3 * 6 + 2) * 5 + 1) * 5 + 4),
                     ((1 * 5 + 4) * 6 + 2) * 16 + 3);
    assert_why(&links, 1, "it has 3 axes, but fc/kernel has 2");
    sdc_name_links_release(&links);
}

static void test_doubles(void **state) {
    (void)state;
    struct list a = {0}, b = {0};
    ADD(&a, "x", 3);
    ADD(&a, "y", 3);
    ADD(&a, "z", 3);
    ADD(&b, "t", 3);
    ADD(&b, "z", 3);
    struct sdc_name_links links = resolve("x -> t\ny -> t\n", NULL, &a, &b);
    assert_why(&links, 0, "t is also the counterpart of y");
    assert_why(&links, 1, "t is also the counterpart of x");
    assert_to(&links, 2, 1);
    sdc_name_links_release(&links);
}

static void test_wrong_texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"a b", "test.map line 1: expected '->' after 'a'"},
        {"\n\na ->", "line 3: expected a name or '-'"},
        {"a -> b c", "expected axes=, transpose or view=, each at most once, found 'c'"},
        {"a -> b axes=0,0", "expected each of 0 to 1 once, found '0,0'"},
        {"a -> b axes=0,2", "expected each of 0 to 1 once"},
        {"a -> b axes=oi-oj", "found 'oi-oj'"},
        {"a -> b axes=oo-oo", "found 'oo-oo'"},
        {"a -> b axes=", "found ''"},
        {"a -> b axes=1,0 transpose", "found 'transpose'"},
        {"a -> b view=-1,-1", "of which one may be -1"},
        {"a -> b view=2,-2", "of which one may be -1"},
        {"a -> b*", "'b*' asks for 1 '*' but 'a' has 0"},
        {"a* -> b{2}", "'b{2}' asks for 2 '*' but 'a*' has 1"},
        {"\"a -> b", "a name in quotes has no end"},
        {"\"\" -> b", "a name is empty"},
        {"layer a -> b transpose", "a rule for layers ends with the name"},
        {"layer", "expected a layer's name"},
    };
    struct sdc_name_map *map;
    assert_ok(sdc_name_map_new(&map, &err));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_status(SDC_INVALID, sdc_name_map_add_text(map, wrong[i].text, strlen(wrong[i].text),
                                                         "test.map", &err));
        assert_message_has(wrong[i].message);
    }
    assert_status(SDC_INVALID, sdc_name_map_add_text(map, "a\0b", 3, "test.map", &err));
    assert_status(SDC_NOT_FOUND, sdc_name_map_add(map, "no-such.map", &err));
    assert_message_has("neither a built-in map (torch-keras, keras-torch) nor a file");
    /* a tensor may be called so */
    assert_ok(sdc_name_map_add_text(map, "layer -> x", 10, "test.map", &err));
    sdc_name_map_free(map);
}

/* ---- built-in maps ---- */

static void lenet_torch(struct list *l) {
    ADD(l, "bn1.bias", 6);
    SCALAR(l, "bn1.num_batches_tracked");
    ADD(l, "bn1.running_mean", 6);
    ADD(l, "bn1.running_var", 6);
    ADD(l, "bn1.weight", 6);
    ADD(l, "conv1.bias", 6);
    ADD(l, "conv1.weight", 6, 1, 5, 5);
    ADD(l, "fc1.bias", 10);
    ADD(l, "fc1.weight", 10, 84);
}

static void assert_lenet(const struct sdc_name_links *links) {
    assert_to(links, 0, 1);
    assert_why(links, 1, "no tensor has its name");
    assert_to(links, 2, 2);
    assert_to(links, 3, 3);
    assert_to(links, 4, 0);
    assert_to(links, 5, 5);
    assert_to(links, 6, 4);
    assert_to(links, 7, 7);
    assert_to(links, 8, 6);
    assert_int_equal(sdc_name_link_elem(&links->items[6], ((3 * 1 + 0) * 5 + 1) * 5 + 4),
                     ((1 * 5 + 4) * 1 + 0) * 6 + 3);
    assert_int_equal(sdc_name_link_elem(&links->items[8], 7 * 84 + 80), 80 * 10 + 7);
    assert_null(links->items[7].axes);
}

static void test_builtin_by_layer_name(void **state) {
    (void)state;
    struct list torch = {0}, keras2 = {0}, keras3 = {0};
    lenet_torch(&torch);
    ADD(&keras2, "model_weights/bn1/net/bn1/gamma:0", 6);
    ADD(&keras2, "model_weights/bn1/net/bn1/beta:0", 6);
    ADD(&keras2, "model_weights/bn1/net/bn1/moving_mean:0", 6);
    ADD(&keras2, "model_weights/bn1/net/bn1/moving_variance:0", 6);
    ADD(&keras2, "model_weights/conv1/conv1/kernel:0", 5, 5, 1, 6);
    ADD(&keras2, "model_weights/conv1/conv1/bias:0", 6);
    ADD(&keras2, "model_weights/fc1/fc1/kernel:0", 84, 10);
    ADD(&keras2, "model_weights/fc1/fc1/bias:0", 10);
    struct sdc_name_links links = resolve(NULL, "torch-keras", &torch, &keras2);
    assert_lenet(&links);
    sdc_name_links_release(&links);
    ADD(&keras3, "layers/bn1/vars/0", 6);
    ADD(&keras3, "layers/bn1/vars/1", 6);
    ADD(&keras3, "layers/bn1/vars/2", 6);
    ADD(&keras3, "layers/bn1/vars/3", 6);
    ADD(&keras3, "layers/conv1/vars/0", 5, 5, 1, 6);
    ADD(&keras3, "layers/conv1/vars/1", 6);
    ADD(&keras3, "layers/fc1/vars/0", 84, 10);
    ADD(&keras3, "layers/fc1/vars/1", 10);
    links = resolve(NULL, "torch-keras", &torch, &keras3);
    assert_lenet(&links);
    sdc_name_links_release(&links);
    links = resolve(NULL, "keras-torch", &keras3, &torch);
    assert_to(&links, 0, 4);
    assert_to(&links, 4, 6);
    assert_to(&links, 6, 8);
    assert_int_equal(sdc_name_link_elem(&links.items[4], ((1 * 5 + 4) * 1 + 0) * 6 + 3),
                     ((3 * 1 + 0) * 5 + 1) * 5 + 4);
    assert_int_equal(sdc_name_link_elem(&links.items[6], 80 * 10 + 7), 7 * 84 + 80);
    sdc_name_links_release(&links);
}

/* Layers named by class and number correspond where their shapes tell them apart. */
static void test_builtin_by_shape(void **state) {
    (void)state;
    struct list torch = {0}, keras = {0};
    ADD(&torch, "conv1.weight", 6, 1, 5, 5);
    ADD(&torch, "conv2.weight", 16, 6, 5, 5);
    ADD(&torch, "fc1.weight", 84, 84);
    ADD(&torch, "fc2.weight", 84, 84);
    ADD(&torch, "fc3.weight", 10, 84);
    ADD(&keras, "layers/conv2d/vars/0", 5, 5, 1, 6);
    ADD(&keras, "layers/conv2d_1/vars/0", 5, 5, 6, 16);
    ADD(&keras, "layers/dense/vars/0", 84, 84);
    ADD(&keras, "layers/dense_1/vars/0", 84, 84);
    ADD(&keras, "layers/dense_2/vars/0", 84, 10);
    struct sdc_name_links links = resolve(NULL, "torch-keras", &torch, &keras);
    assert_to(&links, 0, 0);
    assert_to(&links, 1, 1);
    assert_why(&links, 2, "2 layers there have the shapes of layer fc1 (dense ...) and 2 here");
    assert_why(&links, 3, "'layer fc2 -> dense'");
    assert_to(&links, 4, 4);
    sdc_name_links_release(&links);
    /* naming one of two alike settles both */
    links = resolve("layer fc2 -> dense_1\n", "torch-keras", &torch, &keras);
    assert_to(&links, 2, 2);
    assert_to(&links, 3, 3);
    sdc_name_links_release(&links);
    links = resolve("layer fc2 -> dens\nlayer fc1 -> -\nconv1.weight -> layers/conv2d/vars/0 "
                    "axes=oihw-hwio",
                    "torch-keras", &torch, &keras);
    assert_to(&links, 0, 0);
    assert_why(&links, 2, "a rule leaves layer fc1 out");
    assert_true(links.items[2].left_out && links.items[2].ruled);
    assert_why(&links, 3, "there is no layer dens");
    sdc_name_links_release(&links);
}

/* groups = in: output channel in * multiplier + k in PyTorch is (in, k) in Keras. */
static void test_builtin_kernels(void **state) {
    (void)state;
    struct list torch = {0}, keras = {0};
    ADD(&torch, "dw.weight", 12, 1, 3, 5);
    ADD(&torch, "c1.weight", 7, 2, 3);
    ADD(&torch, "c3.weight", 7, 2, 3, 4, 5);
    ADD(&torch, "emb.weight", 50, 8);
    ADD(&keras, "dw/depthwise_kernel", 3, 5, 4, 3);
    ADD(&keras, "c1/kernel", 3, 2, 7);
    ADD(&keras, "c3/kernel", 3, 4, 5, 2, 7);
    ADD(&keras, "emb/embeddings", 50, 8);
    struct sdc_name_links links = resolve(NULL, "torch-keras", &torch, &keras);
    for (size_t i = 0; i < 4; i++)
        assert_to(&links, i, i);
    /* in 2, multiplier index 1, row 1, column 4 */
    uint64_t there = ((1 * 5 + 4) * 4 + 2) * 3 + 1, here = ((2 * 3 + 1) * 3 + 1) * 5 + 4;
    assert_int_equal(sdc_name_link_elem(&links.items[0], here), there);
    assert_int_equal(sdc_name_link_elem(&links.items[1], (5 * 2 + 1) * 3 + 2), (2 * 2 + 1) * 7 + 5);
    assert_int_equal(sdc_name_link_elem(&links.items[2], (((5 * 2 + 1) * 3 + 2) * 4 + 3) * 5 + 4),
                     (((2 * 4 + 3) * 5 + 4) * 2 + 1) * 7 + 5);
    assert_null(links.items[3].axes);
    sdc_name_links_release(&links);
    links = resolve(NULL, "keras-torch", &keras, &torch);
    for (size_t i = 0; i < 4; i++)
        assert_to(&links, i, i);
    assert_int_equal(sdc_name_link_elem(&links.items[0], there), here);
    sdc_name_links_release(&links);
    keras.descs[0].shape = NULL;
    links = resolve(NULL, "keras-torch", &keras, &torch);
    assert_why(&links, 0, "its shape is not known, and its kernel is depthwise");
    sdc_name_links_release(&links);
}

static void test_builtin_optimizer(void **state) {
    (void)state;
    struct list torch = {0}, keras = {0};
    ADD(&torch, "model/fc1.weight", 10, 84);
    ADD(&torch, "optimizer/fc1.bias/momentum", 10);
    ADD(&torch, "optimizer/fc1.weight/momentum", 10, 84);
    ADD(&keras, "model_weights/fc1/fc1/kernel:0", 84, 10);
    ADD(&keras, "optimizer_weights/SGD/m/fc1/bias:0", 10);
    ADD(&keras, "optimizer_weights/SGD/m/fc1/kernel:0", 84, 10);
    struct sdc_name_links links = resolve(NULL, "torch-keras", &torch, &keras);
    for (size_t i = 0; i < 3; i++)
        assert_to(&links, i, i);
    assert_int_equal(sdc_name_link_elem(&links.items[2], 7 * 84 + 80), 80 * 10 + 7);
    sdc_name_links_release(&links);
}

/* Every allocation may fail: an error, nothing lost, the next call works. */
static void test_no_memory(void **state) {
    (void)state;
    struct list torch = {0}, keras = {0};
    lenet_torch(&torch);
    ADD(&torch, "fc2.weight", 3, 4);
    ADD(&keras, "layers/conv2d/vars/0", 5, 5, 1, 6);
    ADD(&keras, "layers/conv2d/vars/1", 6);
    ADD(&keras, "model/fc2.weight", 3, 4);
    static const char text[] = "layer bn* -> b*\nfc1.* -> nothing/*\n";
    uint64_t before = sdc__alloc_count();
    struct sdc_name_links links = resolve(text, "torch-keras", &torch, &keras);
    uint64_t n = sdc__alloc_count() - before;
    sdc_name_links_release(&links);
    for (uint64_t k = 1; k <= n; k++) {
        struct sdc_name_map *map = NULL;
        sdc__alloc_fail_at(k);
        enum sdc_status st = sdc_name_map_new(&map, &err);
        if (st == SDC_OK)
            st = sdc_name_map_add_text(map, text, strlen(text), "test.map", &err);
        if (st == SDC_OK)
            st = sdc_name_map_add(map, "torch-keras", &err);
        if (st == SDC_OK)
            st = sdc_name_map_resolve(map, torch.pointers, torch.n, keras.pointers, keras.n, &links,
                                      &err);
        sdc__alloc_fail_at(0);
        assert_int_equal(st, SDC_NO_MEMORY);
        sdc_name_map_free(map);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_ambiguous_and_shapes),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_unknown_shape),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_wrong_texts),
        cmocka_unit_test(test_builtin_by_layer_name),
        cmocka_unit_test(test_builtin_by_shape),
        cmocka_unit_test(test_builtin_kernels),
        cmocka_unit_test(test_builtin_optimizer),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
