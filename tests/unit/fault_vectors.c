/* SPDX-License-Identifier: Apache-2.0
 *
 * fault_vectors TYPE OP BITS: raw values as 64-bit words from standard input, what the operator
 * makes of them (BITS "-": of whole elements) as 64-bit words to standard output.
 */
#include <stdio.h>
#include <string.h>

#include "sdc/fault.h"

#define MAX 70000

int main(int argc, char *argv[]) {
    static uint64_t raw[MAX];
    struct sdc_error err;
    struct sdc_choice choice;
    struct sdc_support *support = NULL;
    struct sdc_fault_list list = {0};
    struct sdc_rng rng;
    uint64_t n = fread(raw, sizeof *raw, MAX, stdin);
    struct sdc_tensor_desc t = {.name = "t",
                                .dtype_known = true,
                                .dtype_text = argc > 1 ? argv[1] : "",
                                .rank = 1,
                                .shape = &n,
                                .n_elems = n};
    const struct sdc_tensor_desc *descs[] = {&t};
    sdc_choice_init(&choice);
    if (argc != 4 || !sdc_dtype_parse(argv[1], &t.dtype) ||
        sdc_choice_set(&choice, "op", argv[2], &err) != SDC_OK ||
        sdc_choice_set(&choice, "exhaustive", "true", &err) != SDC_OK ||
        (strcmp(argv[3], "-") != 0 && sdc_choice_set(&choice, "bits", argv[3], &err) != SDC_OK) ||
        sdc_choice_check(&choice, &err) != SDC_OK)
        return 2;
    sdc_rng_init(&rng, 1, SDC_RNG_TEST, 0, 0);
    if (sdc_support_new(descs, 1, &choice, &support, &err) != SDC_OK ||
        sdc_fault_list_draw(support, &choice, &rng, &list, &err) != SDC_OK)
        return 1;
    for (size_t i = 0; i < list.n; i++) {
        const struct sdc_fault *f = &list.faults[i];
        uint64_t is =
            sdc_fault_apply(f, t.dtype, raw[f->elem], f->op == SDC_OP_SWAP ? raw[f->value] : 0);
        fwrite(&is, sizeof is, 1, stdout);
    }
    sdc_fault_list_release(&list);
    sdc_support_free(support);
    sdc_choice_release(&choice);
    return fflush(stdout) ? 1 : 0;
}
