/* SPDX-License-Identifier: Apache-2.0
 *
 * The only caller of malloc and friends. Sizes are overflow-checked; nothing here aborts: NULL
 * means no memory, and callers return SDC_NO_MEMORY. Thread-safe.
 */
#ifndef SDC_BASE_ALLOC_H
#define SDC_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"

/* n elements of size bytes, not zeroed. n or size of 0 gives a valid pointer. NULL on failure. */
void *sdc__alloc(size_t n, size_t size) SDC_MUST_CHECK;
/* The same, zeroed. */
void *sdc__calloc(size_t n, size_t size) SDC_MUST_CHECK;
/* Resizes a block of this allocator; on NULL the old block stays valid and owned by the caller. */
void *sdc__realloc(void *block, size_t n, size_t size) SDC_MUST_CHECK;
/* n elements of size bytes aligned to 64 bytes, zeroed; free with sdc__free. */
void *sdc__alloc_tensor(size_t n, size_t size) SDC_MUST_CHECK;
/* Accepts NULL. */
void sdc__free(void *block);

char *sdc__strdup(const char *s) SDC_MUST_CHECK;
char *sdc__strndup(const char *s, size_t len) SDC_MUST_CHECK;

/* For tests: after this call the n-th allocation (1 = next) of this thread fails, once; 0 = never.
 */
void sdc__alloc_fail_at(uint64_t n);
/* Allocations made by this thread so far. */
uint64_t sdc__alloc_count(void);

#define SDC_NOMEM(err, what) SDC_ERR((err), SDC_NO_MEMORY, "no memory for %s", (what))

/* Says that much of a large allocation will be used and in no order, so that the system may back it
 * by large pages. Only a hint. */
void sdc__alloc_dense(void *memory, size_t n, size_t size);

#endif
