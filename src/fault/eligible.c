/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sites give a result that the choice refuses.
 */
#include <string.h>

#include "base/guard.h"
#include "fault/support.h"
#include "num/special.h"

struct sdc_fault sdc__fault_of(const struct sdc_rule *rule, enum sdc_dtype dtype, unsigned b) {
    const uint64_t all = sdc__low_bits(sdc_dtype_bits(dtype));
    struct sdc_fault f = {.op = rule->op};
    switch (rule->op) {
    case SDC_OP_FLIP: /* of several, drawn later */
    case SDC_OP_SET0:
    case SDC_OP_SET1:
        f.bits = rule->elements ? 0 : (uint64_t)1 << b;
        break;
    case SDC_OP_BURST:
        f.bits = sdc__low_bits(rule->count) << b & all;
        break;
    case SDC_OP_MASK:
        f.bits = rule->elements ? rule->mask : rule->mask << b;
        break;
    case SDC_OP_VALUE:
        f.value = sdc_num_from_double(dtype, rule->value);
        break;
    case SDC_OP_SCALE:
        memcpy(&f.value, &rule->value, sizeof f.value);
        break;
    case SDC_OP_RANDOM:
    case SDC_OP_SWAP:
        break;
    }
    return f;
}

bool sdc__refused(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t raw) {
    return rule->not_result >> sdc_num_class(dtype, raw) & 1;
}

/* The bits that the operator changes at bit 0, counted from there. */
static uint64_t pattern_of(const struct sdc_rule *rule) {
    if (rule->op == SDC_OP_BURST)
        return sdc__low_bits(rule->count);
    return rule->op == SDC_OP_MASK ? rule->mask : 1;
}

unsigned sdc__reach(const struct sdc_rule *rule) {
    return 64 - (unsigned)__builtin_clzll(pattern_of(rule));
}

uint64_t sdc__allowed_bits(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t mask,
                           uint64_t raw) {
    uint64_t special_mask, special, suspect = mask;
    if (!sdc__num_special(dtype, &special_mask, &special))
        return mask;
    const uint64_t all = sdc__low_bits(sdc_dtype_bits(dtype)), pattern = pattern_of(rule);
    const bool sets = rule->op == SDC_OP_SET0 || rule->op == SDC_OP_SET1;
    /* An infinity or NaN comes of it where what changes is, of the special mask, just the bits that
     * are missing; so the pattern has to reach from the first of them to the last. */
    const uint64_t missing = (raw ^ special) & special_mask;
    if (missing) {
        unsigned low = (unsigned)__builtin_ctzll(missing),
                 high = 63 - (unsigned)__builtin_clzll(missing);
        unsigned length = sdc__reach(rule);
        if (high - low >= length)
            return mask;
        unsigned first = high + 1 > length ? high + 1 - length : 0;
        suspect &= sdc__low_bits(low + 1) & ~sdc__low_bits(first);
    }
    for (; suspect; suspect &= suspect - 1) {
        unsigned b = (unsigned)__builtin_ctzll(suspect);
        if (!sets && (pattern << b & all & special_mask) != missing)
            continue;
        struct sdc_fault f = sdc__fault_of(rule, dtype, b);
        if (sdc__refused(rule, dtype, sdc_fault_apply(&f, dtype, raw, 0)))
            mask &= ~((uint64_t)1 << b);
    }
    return mask;
}

/* An infinity or NaN of which flips of some of the named bits make nothing else: is there one that
 * is not refused? count is less than the named bits. */
static bool some_special_allowed(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t named,
                                 uint64_t raw, uint64_t special) {
    bool no_nan = rule->not_result >> SDC_CLASS_NAN & 1,
         no_inf = rule->not_result >> SDC_CLASS_INF & 1;
    bool has_inf = sdc_num_class(dtype, special) == SDC_CLASS_INF;
    if (!no_nan || no_inf || !has_inf)
        return !no_nan; /* of at least two ways to flip one makes a NaN */
    /* an infinity: every set mantissa bit is flipped, and no other of them */
    uint64_t mantissa = sdc_num_field_mask(dtype, SDC_FIELD_MANTISSA), set = raw & mantissa;
    unsigned n_set = (unsigned)__builtin_popcountll(set);
    return !(set & ~named) && n_set <= rule->count &&
           rule->count - n_set <= (unsigned)__builtin_popcountll(named & ~mantissa);
}

/* Is there a choice of `count` of the named bits whose result is not refused? */
static bool some_flips_allowed(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t named,
                               uint64_t raw) {
    uint64_t special_mask, special;
    if (!sdc__num_special(dtype, &special_mask, &special))
        return true;
    if ((unsigned)__builtin_popcountll(named) == rule->count)
        return !sdc__refused(rule, dtype, raw ^ named);
    /* Flips lead to infinity or NaN where they are, of the special mask, just the bits that are
     * missing. A finite value comes of leaving one of these as it is, or of flipping another. */
    uint64_t missing = (raw ^ special) & special_mask;
    if (missing || named & special_mask)
        return true;
    return some_special_allowed(rule, dtype, named, raw, special);
}

bool sdc__allowed_element(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t named,
                          uint64_t raw) {
    if (rule->op == SDC_OP_FLIP)
        return some_flips_allowed(rule, dtype, named, raw);
    if (rule->op == SDC_OP_RANDOM) /* every type holds another finite value */
        return true;
    struct sdc_fault f = sdc__fault_of(rule, dtype, 0);
    return !sdc__refused(rule, dtype, sdc_fault_apply(&f, dtype, raw, 0));
}
