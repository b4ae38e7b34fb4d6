/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a pickle: a tree that can be walked, or a refusal. Entry point of libFuzzer, also
 * called by fuzz_driver.c.
 */
#include <stdlib.h>
#include <string.h>

#include "ckpt/pickle.h"
#include "fuzz.h"

/* Every node there is, which is more than can be reached from the root. */
static void look(const struct sdc_pk *pk, uint64_t size) {
    for (uint32_t id = 0; id < sdc__pk_nodes(pk); id++) {
        uint64_t place, len, n = 0;
        uint32_t item, key;
        size_t text_len;
        const char *text = sdc__pk_text(pk, id, &text_len);
        if (text && strlen(text) > text_len)
            abort();
        if (sdc__pk_place(pk, id, &place, &len) && (len > size || place > size - len))
            abort();
        struct sdc_pk_iter it = sdc__pk_items(pk, id);
        if (it.pairs)
            while (sdc__pk_next_pair(&it, &key, &item))
                n++;
        else
            while (sdc__pk_next(&it, &item))
                n++;
        if (n != sdc__pk_count(pk, id) || (n && item >= sdc__pk_nodes(pk)))
            abort();
        if (sdc__pk_args(pk, id, &item) && item >= sdc__pk_nodes(pk))
            abort();
        if (sdc__pk_state(pk, id, &item) && item >= sdc__pk_nodes(pk))
            abort();
        (void)sdc__pk_callee(pk, id);
        (void)sdc__pk_get(pk, id, "k", &item);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sdc_pk *pk = NULL;
    const struct sdc_pk_source source = {.memory = data, .size = size};
    uint64_t end;
    if (sdc__pk_parse(&source, &pk, &end, NULL) == SDC_OK) {
        if (end == 0 || end > size || sdc__pk_nodes(pk) > 1000 + size)
            abort(); /* nodes are made by opcodes, one or two each */
        look(pk, size);
    }
    sdc__pk_free(pk);
    return 0;
}
