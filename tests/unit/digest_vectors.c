/* SPDX-License-Identifier: Apache-2.0
 *
 * digest_vectors: reads tensors from standard input, a line "NAME TYPE RANK SIZE... HEX" each (the
 * elements' bytes as they lie in memory), and prints the digest of their state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "sdc/tensor.h"

enum { MAX_TENSORS = 64, MAX_TEXT = 1 << 16, MAX_RANK = 8 };

static char names[MAX_TENSORS][256], hex[MAX_TEXT];
static unsigned char bytes[MAX_TENSORS][MAX_TEXT / 2];
static uint64_t shapes[MAX_TENSORS][MAX_RANK];

int main(void) {
    static struct sdc_tensor_view views[MAX_TENSORS];
    size_t n = 0;
    char type[16];
    unsigned rank;
    while (n < MAX_TENSORS && scanf("%255s %15s %u", names[n], type, &rank) == 3) {
        struct sdc_tensor_desc *t = &views[n].desc;
        t->name = names[n];
        t->dtype_known = sdc_dtype_parse(type, &t->dtype);
        t->rank = rank;
        t->shape = shapes[n];
        t->n_elems = 1;
        for (unsigned d = 0; d < rank && d < MAX_RANK; d++) {
            unsigned long long size;
            if (scanf("%llu", &size) != 1)
                return 2;
            shapes[n][d] = size;
            t->n_elems *= size;
        }
        if (scanf("%65535s", hex) != 1)
            return 2;
        size_t len = (size_t)t->n_elems * sdc_dtype_bytes(t->dtype);
        if (!sdc__hex_decode(strcmp(hex, "-") == 0 ? "" : hex, len, bytes[n]))
            return 2;
        views[n].data = bytes[n];
        n++;
    }
    struct sdc_state_digest digest;
    struct sdc_error err;
    if (sdc_state_digest(views, n, &digest, &err) != SDC_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    char text[SDC_STATE_DIGEST_TEXT];
    sdc_state_digest_text(&digest, text);
    puts(text);
    return fflush(stdout) ? 1 : 0;
}
