/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass over the elements of many tensors on several threads. Tensors are cut into chunks of a
 * fixed size; what was found in each is handed over in order, so results do not depend on the
 * number of threads, and memory not on the size of the tensors.
 */
#ifndef SDC_AUDIT_WALK_H
#define SDC_AUDIT_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/ckpt.h"

/* Bytes of a chunk (a multiple of SDC_WALK_READ), and of what is read at a time: the latter fits a
 * second-level cache together with what is kept beside it. */
#define SDC_WALK_CHUNK ((uint64_t)4 * 1024 * 1024)
#define SDC_WALK_READ  ((size_t)256 * 1024)

struct sdc_walk {
    struct sdc_ckpt *ckpt;
    const size_t *tensors; /* indices of tensors whose type is known; visited in this order */
    size_t n;
    unsigned threads; /* 0: one for each processor */
    void *user;
    /* One state for each thread; owned by the walk. */
    size_t slot_size;
    enum sdc_status (*slot_init)(void *user, void *slot, struct sdc_error *err);
    void (*slot_release)(void *user, void *slot);
    /* A chunk begins: forget the last one. */
    void (*begin)(void *user, void *slot, size_t k);
    /* n elements of tensors[k], the first of which has this index. */
    void (*elements)(void *user, void *slot, size_t k, uint64_t first, uint64_t n,
                     const void *elements);
    /* In order: the chunk is complete; last: it was the tensor's last one. A tensor without
     * elements has one chunk without any. */
    enum sdc_status (*chunk)(void *user, void *slot, size_t k, bool last, struct sdc_error *err);
    /* In order: the tensor could not be read any further; there are no more chunks of it. */
    enum sdc_status (*unreadable)(void *user, size_t k, const struct sdc_error *found,
                                  struct sdc_error *err);
};

/* Number of chunks of a tensor of known type, at least 1. A shape without storage may be of any
 * size: one that cannot be read has one chunk. */
uint64_t sdc__walk_chunks(struct sdc_ckpt *ckpt, size_t tensor);
/* A tensor that gives this status when read is a finding about it, not a failure of the machine. */
bool sdc__walk_is_finding(enum sdc_status st);

/* A failing disk or memory ends the walk; a tensor that cannot be read does not. */
enum sdc_status sdc__walk(const struct sdc_walk *walk, struct sdc_error *err) SDC_MUST_CHECK;

#endif
