/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_FROM ((size_t)32 << 20) /* bytes of a block that is worth larger pages */
#define PAGE      ((uintptr_t)4096)
#include <sys/mman.h>

static _Thread_local uint64_t n_allocs;
static _Thread_local uint64_t fail_at;

/* Counts one allocation; says whether this is the one that a test asked to fail. */
static int must_fail(void) {
    n_allocs++;
    if (fail_at == 0)
        return 0;
    return --fail_at == 0;
}

/* Lists of millions of sites take a fifth of their time for faults on small pages. Whole pages of
 * the block's mapping, so that it stays one mapping that realloc can move. */
static void *advised(void *block, size_t bytes) {
    if (block && bytes >= HUGE_FROM) {
        uintptr_t from = (uintptr_t)block & ~(PAGE - 1);
        uintptr_t end = ((uintptr_t)block + bytes + PAGE - 1) & ~(PAGE - 1);
        (void)madvise((char *)block - ((uintptr_t)block - from), end - from, MADV_HUGEPAGE);
    }
    return block;
}

void *sdc__alloc(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || __builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return advised(malloc(bytes ? bytes : 1), bytes);
}

void *sdc__calloc(size_t n, size_t size) {
    if (must_fail())
        return NULL;
    return calloc(n ? n : 1, size ? size : 1);
}

void *sdc__realloc(void *block, size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || __builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return advised(realloc(block, bytes ? bytes : 1), bytes);
}

void *sdc__alloc_tensor(size_t n, size_t size) {
    size_t bytes;
    if (must_fail() || __builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - 63)
        return NULL;
    bytes = bytes ? (bytes + 63) / 64 * 64 : 64;
    void *block = aligned_alloc(64, bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void sdc__free(void *block) {
    free(block);
}

char *sdc__strdup(const char *s) {
    return sdc__strndup(s, strlen(s));
}

char *sdc__strndup(const char *s, size_t len) {
    char *copy = sdc__alloc(len + 1, 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

void sdc__alloc_fail_at(uint64_t n) {
    fail_at = n;
}

uint64_t sdc__alloc_count(void) {
    return n_allocs;
}

void sdc__alloc_dense(void *memory, size_t n, size_t size) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = (uintptr_t)1 << 21;
    uintptr_t from = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)memory + n * size) & ~(page - 1);
    if (memory && from < end && madvise((void *)from, end - from, MADV_HUGEPAGE) != 0)
        return; /* it works without */
#else
    (void)memory;
    (void)n;
    (void)size;
#endif
}
