/* SPDX-License-Identifier: Apache-2.0 */
#include "base/set.h"

#include "base/alloc.h"

enum sdc_status sdc__set_init(struct sdc_set *set, uint64_t max, struct sdc_error *err) {
    uint64_t size = 4;
    while (size / 2 < max && size < UINT64_MAX / 2)
        size *= 2;
    *set = (struct sdc_set){.slots = sdc__calloc(size, sizeof *set->slots), .mask = size - 1};
    sdc__alloc_dense(set->slots, size, sizeof *set->slots);
    return set->slots ? SDC_OK : SDC_NOMEM(err, "a set of numbers");
}

void sdc__set_release(struct sdc_set *set) {
    sdc__free(set->slots);
    *set = (struct sdc_set){0};
}

static uint64_t place(uint64_t value) {
    uint64_t i = value * 0x9E3779B97F4A7C15u;
    return i ^ i >> 32;
}

void sdc__set_prefetch(const struct sdc_set *set, uint64_t value) {
    __builtin_prefetch(&set->slots[place(value) & set->mask], 1);
}

bool sdc__set_insert(struct sdc_set *set, uint64_t value) {
    for (uint64_t i = place(value);; i++) {
        uint64_t *slot = &set->slots[i & set->mask];
        if (*slot == value + 1)
            return false;
        if (*slot == 0) {
            *slot = value + 1;
            return true;
        }
    }
}
