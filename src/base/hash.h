/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3 digests (xxHash behind this file alone). Not cryptographic: they find accidents, not
 * attackers.
 */
#ifndef SDC_BASE_HASH_H
#define SDC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

/* 128 bits in xxHash's canonical form (big-endian), so that equal digests print equally everywhere.
 */
struct sdc_digest {
    unsigned char bytes[16];
};

#define SDC_DIGEST_TEXT_SIZE 33 /* 32 hex digits and NUL */

uint64_t sdc__xxh3_64(const void *data, size_t len);
/* 32 bits for keys such as the block of random streams: the low half of XXH3-64. */
uint32_t sdc__hash32(const void *data, size_t len);
struct sdc_digest sdc__xxh3_128(const void *data, size_t len);

/* Streaming: new, update..., finish (which frees). NULL from new: no memory. One thread per object.
 */
struct sdc_hasher;
struct sdc_hasher *sdc__hasher_new(void) SDC_MUST_CHECK;
void sdc__hasher_update(struct sdc_hasher *h, const void *data, size_t len);
struct sdc_digest sdc__hasher_finish(struct sdc_hasher *h);

void sdc__digest_text(const struct sdc_digest *d, char text[SDC_DIGEST_TEXT_SIZE]);

/* "xxHash built VERSION, running VERSION" of the library behind this file. */
void sdc__hash_library(char *text, size_t size);

#endif
