/* SPDX-License-Identifier: Apache-2.0
 *
 * num_vectors to-double|from-double|text TYPE: applies the function to every 64-bit word of
 * standard input (raw values, or the bits of doubles) and writes 64-bit words, or lines of text.
 */
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "sdc/num.h"

int main(int argc, char *argv[]) {
    enum sdc_dtype dtype;
    if (argc != 3 || !sdc_dtype_parse(argv[2], &dtype))
        return 2;
    uint64_t word;
    while (fread(&word, sizeof word, 1, stdin) == 1) {
        double value;
        char text[64];
        if (strcmp(argv[1], "to-double") == 0) {
            value = sdc_num_to_double(dtype, word);
            fwrite(&value, sizeof value, 1, stdout);
        } else if (strcmp(argv[1], "from-double") == 0) {
            memcpy(&value, &word, sizeof value);
            uint64_t raw = sdc_num_from_double(dtype, value);
            fwrite(&raw, sizeof raw, 1, stdout);
        } else {
            sdc_num_text(dtype, word, text, sizeof text);
            puts(text);
        }
    }
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
