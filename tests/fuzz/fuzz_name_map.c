/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a name map, used on two small networks: a pair that is found must be one to one,
 * element by element.
 */
#include <stdlib.h>

#include "fuzz.h"
#include "sdc/name_map.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

struct row {
    const char *name;
    unsigned rank;
    uint64_t shape[4];
};

static const struct row torch_rows[] = {
    {"conv1.weight", 4, {6, 1, 5, 5}},
    {"conv1.bias", 1, {6}},
    {"bn1.weight", 1, {6}},
    {"dw.weight", 4, {12, 1, 3, 3}},
    {"fc1.weight", 2, {20, 400}},
    {"fc1.bias", 1, {20}},
    {"fc2.weight", 2, {20, 20}},
    {"optimizer/fc2.weight/momentum", 2, {20, 20}},
    {"empty", 2, {0, 3}},
    {"loop/step", 0, {0}},
};
static const struct row keras_rows[] = {
    {"layers/conv1/vars/0", 4, {5, 5, 1, 6}},
    {"layers/conv1/vars/1", 1, {6}},
    {"layers/bn1/vars/0", 1, {6}},
    {"layers/dw/vars/0", 4, {3, 3, 6, 2}},
    {"layers/dense/vars/0", 2, {400, 20}},
    {"layers/dense/vars/1", 1, {20}},
    {"layers/dense_1/vars/0", 2, {20, 20}},
    {"optimizer_weights/SGD/m/fc2/kernel:0", 2, {20, 20}},
    {"model/empty", 2, {3, 0}},
    {"step", 0, {0}},
};

static void describe(const struct row *rows, size_t n, struct sdc_tensor_desc *descs,
                     const struct sdc_tensor_desc **pointers) {
    for (size_t i = 0; i < n; i++) {
        struct sdc_tensor_desc *t = &descs[i];
        *t = (struct sdc_tensor_desc){.name = rows[i].name,
                                      .dtype = SDC_DTYPE_F32,
                                      .dtype_known = true,
                                      .dtype_text = "F32",
                                      .rank = rows[i].rank,
                                      .shape = rows[i].shape,
                                      .n_elems = 1};
        for (unsigned d = 0; d < t->rank; d++)
            t->n_elems *= t->shape[d];
        sdc_tensor_classify(t->name, t->dtype, t->rank, &t->part, &t->role);
        pointers[i] = t;
    }
}

static void check(const struct sdc_name_link *link, const struct sdc_tensor_desc *from,
                  const struct sdc_tensor_desc *to) {
    if (!link->why == (link->to == SDC_NAME_NONE))
        abort();
    for (uint64_t e = 0; !link->why && e < from->n_elems; e++) {
        uint64_t there = sdc_name_link_elem(link, e);
        if (there >= to->n_elems || sdc_name_link_elem_back(link, there) != e)
            abort();
    }
    if (!link->why && from->n_elems != to->n_elems)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sdc_tensor_desc a[N(torch_rows)], b[N(keras_rows)];
    const struct sdc_tensor_desc *from[N(torch_rows)], *to[N(keras_rows)];
    struct sdc_name_map *map;
    struct sdc_name_links links;
    describe(torch_rows, N(torch_rows), a, from);
    describe(keras_rows, N(keras_rows), b, to);
    if (sdc_name_map_new(&map, NULL) != SDC_OK)
        return 0;
    if (sdc_name_map_add_text(map, (const char *)data, size, "fuzz", NULL) == SDC_OK &&
        sdc_name_map_add(map, "torch-keras", NULL) == SDC_OK &&
        sdc_name_map_resolve(map, from, N(from), to, N(to), &links, NULL) == SDC_OK) {
        for (size_t i = 0; i < links.n; i++) {
            size_t there = links.items[i].to;
            check(&links.items[i], from[i], to[there == SDC_NAME_NONE ? 0 : there]);
        }
        sdc_name_links_release(&links);
    }
    sdc_name_map_free(map);
    return 0;
}
