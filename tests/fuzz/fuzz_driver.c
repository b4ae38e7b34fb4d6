/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without libFuzzer: every seed file as it is, then a fixed number of mutations
 * of each, the same ones every time.
 *
 *     fuzz_TARGET ROUNDS SEED-FILE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "fuzz.h"
#include "io/io.h"

#define MAX_SEED (1u << 20)

/* splitmix64: quality is no matter here, being the same everywhere is */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void mutate(struct sdc_buf *b, uint64_t *rng) {
    static const char *const words[] = {"0",
                                        "-1",
                                        "9223372036854775807",
                                        "18446744073709551615",
                                        "[]",
                                        "{}",
                                        "null",
                                        "\"\"",
                                        "1e9",
                                        "\\u0000",
                                        "[[[[[["};
    for (uint64_t n = 1 + next(rng) % 4; n > 0 && b->len > 0; n--) {
        size_t at = (size_t)(next(rng) % b->len), len = (size_t)(next(rng) % 16);
        if (len > b->len - at)
            len = b->len - at;
        switch (next(rng) % 5) {
        case 0: /* a bit */
            b->data[at] = (char)(b->data[at] ^ (1 << next(rng) % 8));
            break;
        case 1: /* a byte */
            b->data[at] = (char)next(rng);
            break;
        case 2: /* cut something out */
            memmove(b->data + at, b->data + at + len, b->len - at - len);
            b->len -= len;
            break;
        case 3: /* overwrite with another part */
            memmove(b->data + at, b->data + next(rng) % (b->len - len + 1), len);
            break;
        default: { /* put a word in, and say so in a length field at the front half the time */
            const char *word = words[next(rng) % (sizeof words / sizeof *words)];
            size_t n_word = strlen(word), rest = b->len - at;
            sdc__buf_puts(b, word); /* room */
            if (b->failed)
                return;
            memmove(b->data + at + n_word, b->data + at, rest);
            memcpy(b->data + at, word, n_word);
            if (next(rng) % 2)
                b->data[0] = (char)(b->data[0] + (char)n_word);
        }
        }
    }
}

int main(int argc, char **argv) {
    unsigned long long rounds;
    uint64_t rng = 1, runs = 0;
    if (argc < 3 || !sdc__parse_u64(argv[1], &rounds)) {
        fprintf(stderr, "usage: %s ROUNDS SEED-FILE...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        struct sdc_buf seed = SDC_BUF_INIT, b = SDC_BUF_INIT;
        struct sdc_error err;
        if (sdc__read_whole(argv[i], MAX_SEED, &seed, &err) != SDC_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        (void)LLVMFuzzerTestOneInput((const uint8_t *)seed.data, seed.len);
        for (unsigned long long r = 0; r < rounds; r++, runs++) {
            sdc__buf_clear(&b);
            sdc__buf_append(&b, seed.data, seed.len);
            mutate(&b, &rng);
            (void)LLVMFuzzerTestOneInput((const uint8_t *)b.data, b.len);
        }
        sdc__buf_release(&b);
        sdc__buf_release(&seed);
    }
    printf("%llu inputs from %d seeds\n", (unsigned long long)runs, argc - 2);
    return 0;
}
