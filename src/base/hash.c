/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/str.h"

uint64_t sdc__xxh3_64(const void *data, size_t len) {
    return XXH3_64bits(data, len);
}

uint32_t sdc__hash32(const void *data, size_t len) {
    return (uint32_t)XXH3_64bits(data, len);
}

static struct sdc_digest canonical(XXH128_hash_t hash) {
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, hash);
    struct sdc_digest d;
    memcpy(d.bytes, c.digest, sizeof d.bytes);
    return d;
}

struct sdc_digest sdc__xxh3_128(const void *data, size_t len) {
    return canonical(XXH3_128bits(data, len));
}

struct sdc_hasher *sdc__hasher_new(void) {
    XXH3_state_t *state = XXH3_createState();
    if (state)
        XXH3_128bits_reset(state);
    return (struct sdc_hasher *)(void *)state;
}

void sdc__hasher_update(struct sdc_hasher *h, const void *data, size_t len) {
    XXH3_128bits_update((XXH3_state_t *)(void *)h, data, len);
}

struct sdc_digest sdc__hasher_finish(struct sdc_hasher *h) {
    XXH3_state_t *state = (XXH3_state_t *)(void *)h;
    struct sdc_digest d = canonical(XXH3_128bits_digest(state));
    XXH3_freeState(state);
    return d;
}

void sdc__digest_text(const struct sdc_digest *d, char text[SDC_DIGEST_TEXT_SIZE]) {
    sdc__hex_encode(d->bytes, sizeof d->bytes, text);
}

static void print_version(char *text, size_t size, unsigned v) {
    snprintf(text, size, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
}

void sdc__hash_library(char *text, size_t size) {
    char built[32], running[32];
    print_version(built, sizeof built, XXH_VERSION_NUMBER);
    print_version(running, sizeof running, XXH_versionNumber());
    snprintf(text, size, "xxHash built %s, running %s", built, running);
}
