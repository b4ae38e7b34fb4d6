/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as words of a fault choice, one "key value" a line: each is taken or refused. A choice
 * that makes sense survives a trip through JSON, and what is drawn with it stays inside the tensors
 * and their types, with the same result each time.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "sdc/fault.h"

#define N_TENSORS 4

static const uint64_t shapes[N_TENSORS][2] = {{3, 2}, {7, 1}, {5, 1}, {1, 1}};
#define DESC(i, name_, type, rank_, n)                                                             \
    {                                                                                              \
        .name = name_, .dtype = SDC_DTYPE_##type, .dtype_known = true, .dtype_text = #type,        \
        .rank = rank_, .shape = shapes[i], .n_elems = n, .role = SDC_ROLE_WEIGHT                   \
    }
static const struct sdc_tensor_desc descs[N_TENSORS] = {
    DESC(0, "a.weight", F32, 2, 6), DESC(1, "b", F8_E4M3, 1, 7), DESC(2, "c", F4, 1, 5),
    DESC(3, "d", I64, 1, 1)};
static const struct sdc_tensor_desc *const all[N_TENSORS] = {&descs[0], &descs[1], &descs[2],
                                                             &descs[3]};

static enum sdc_status read_values(void *user, size_t tensor, uint64_t first, uint64_t n,
                                   void *elements, struct sdc_error *err) {
    static const unsigned char bytes[48] = {0, 0,    0x80, 0x3f, 0,    0,    0x80, 0x7f, 1,
                                            0, 0xc0, 0x7f, 0xcd, 0xcc, 0xcc, 0x3d, 0x7e, 0x77};
    (void)user;
    (void)err;
    size_t size = sdc_dtype_bytes(descs[tensor].dtype);
    memcpy(elements, bytes + first * size, (size_t)n * size);
    return SDC_OK;
}

static enum sdc_status draw(const struct sdc_choice *c, struct sdc_fault_list *list) {
    struct sdc_support *support;
    struct sdc_rng rng;
    enum sdc_status st = sdc_support_new(all, N_TENSORS, c, &support, NULL);
    if (st != SDC_OK)
        return st;
    sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
    if (c->not_result)
        st = sdc_support_reduce(support, read_values, NULL, NULL);
    if (st == SDC_OK)
        st = sdc_fault_list_draw(support, c, &rng, list, NULL);
    sdc_support_free(support);
    return st;
}

static void check_fault(const struct sdc_fault *f) {
    if (f->tensor >= N_TENSORS || f->elem >= descs[f->tensor].n_elems)
        abort();
    unsigned bits = sdc_dtype_bits(descs[f->tensor].dtype);
    if (f->op == SDC_OP_SWAP && (f->value >= descs[f->tensor].n_elems || f->value == f->elem))
        abort();
    uint64_t is = sdc_fault_apply(f, descs[f->tensor].dtype, 1, 1);
    if (bits < 64 && (is >> bits || f->bits >> bits))
        abort();
}

static void draw_twice(const struct sdc_choice *c) {
    struct sdc_fault_list a = {0}, b = {0};
    enum sdc_status st = draw(c, &a);
    if (draw(c, &b) != st || a.n != b.n || a.n_sites != b.n_sites)
        abort();
    for (size_t i = 0; i < a.n; i++) {
        const struct sdc_fault *f = &a.faults[i];
        check_fault(f);
        if (f->elem != b.faults[i].elem || f->bits != b.faults[i].bits ||
            f->value != b.faults[i].value)
            abort();
        if (i > 0 &&
            !(f[-1].tensor < f->tensor || (f[-1].tensor == f->tensor && f[-1].elem < f->elem)))
            abort();
    }
    sdc_fault_list_release(&a);
    sdc_fault_list_release(&b);
}

static void there_and_back(const struct sdc_choice *c) {
    char *json, *again;
    struct sdc_choice back;
    if (sdc_choice_to_json(c, &json, NULL) != SDC_OK)
        return; /* text that is no UTF-8 */
    if (sdc_choice_from_json(json, strlen(json), &back, NULL) == SDC_OK) {
        if (sdc_choice_to_json(&back, &again, NULL) != SDC_OK || strcmp(json, again) != 0)
            abort();
        sdc_text_free(again);
        sdc_choice_release(&back);
    }
    sdc_text_free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[2048];
    struct sdc_choice c;
    if (size >= sizeof text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    sdc_choice_init(&c);
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *value = strchr(line, ' ');
        if (value)
            *value++ = '\0';
        if (sdc_choice_set(&c, line, value ? value : "", NULL) != SDC_OK)
            continue; /* it is as it was */
    }
    if (sdc_choice_check(&c, NULL) == SDC_OK) {
        there_and_back(&c);
        if (c.flips <= 2000)
            draw_twice(&c);
    }
    sdc_choice_release(&c);
    return 0;
}
