/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault choice: which sites, what happens to them. The same words on the command line, in campaign
 * specs and in run descriptions. Holds and parses the choice; drawing sites is sdc/fault.h.
 *
 * Life cycle: sdc_choice_init, set members or parse words into it, sdc_choice_check, use,
 * sdc_choice_release.
 */
#ifndef SDC_CHOICE_H
#define SDC_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/num.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sdc_choice_mode {
    SDC_CHOICE_FLIPS,      /* n distinct sites drawn */
    SDC_CHOICE_EXHAUSTIVE, /* every site of the support */
    SDC_CHOICE_AT,         /* the listed sites */
    SDC_CHOICE_RATE        /* each site with a probability, independently */
};

/* How sites are drawn; without replacement, so that n distinct ones come of it, but for attempts.
 */
enum sdc_sample {
    SDC_SAMPLE_BITS,     /* uniform over all bits of the support */
    SDC_SAMPLE_TENSORS,  /* tensor first, then element, then bit */
    SDC_SAMPLE_ELEMENTS, /* uniform over elements, then over the element's bits */
    SDC_SAMPLE_BYTES,    /* uniform over the bytes that hold a chosen bit, then over its bits; of a
                            type under 8 bits a byte holds several elements */
    /* Strata are tensors times bit classes: sign, top exponent bit, other exponent bits, mantissa,
     * integer. Each gets as many draws as any other (or all its sites, if it has fewer; what is
     * left over, and all if there are fewer draws than strata, goes to strata drawn at random).
     * The weight of a drawn site is the number of sites of its stratum by that of its draws, times
     * strata by draws where there are fewer draws than strata: weighted sums are then unbiased. */
    SDC_SAMPLE_STRATIFIED,
    /* As hdf5_corrupter (2020 to 2022) draws: `flips` attempts, each of which happens with
     * probability `rate` and then takes a tensor, an element and a bit, whatever was taken before.
     * A bit that is flipped twice is as it was. */
    SDC_SAMPLE_ATTEMPTS
};

enum sdc_op {
    SDC_OP_FLIP,  /* `count` different bits of an element; with one, the site is the bit */
    SDC_OP_VALUE, /* the element becomes a given value; the site is the element */
    SDC_OP_SET0,  /* the bit is 0 after (stuck at 0) */
    SDC_OP_SET1,  /* the bit is 1 after */
    SDC_OP_MASK,  /* flips the bits of `mask`, which lies as it is or, with `mask_length`, at the
                     drawn bit. Types that do not hold the mask are not in the support */
    SDC_OP_BURST, /* flips `count` bits from the drawn one upward, as far as the element has bits */
    SDC_OP_SCALE, /* times `value` as a double, rounded to the type; a NaN stays as it is */
    SDC_OP_RANDOM, /* any other bit pattern of the type, each alike */
    SDC_OP_SWAP    /* the old value of another element of the tensor, each alike; a tensor of one
                      element is not in the support */
};
#define SDC_OP_COUNT 9
SDC_API const char *sdc_op_name(enum sdc_op op); /* "flip", ..., without what follows =; static */

enum sdc_checksum {
    SDC_CHECKSUM_MEND, /* stored checksums are made to fit */
    SDC_CHECKSUM_STALE /* and left as they are */
};

enum sdc_compat {
    SDC_COMPAT_NONE,
    /* sample attempts; --bits are for floats only, of integers any bit is taken */
    SDC_COMPAT_HDF5_CORRUPTER
};

/* Bits as written: numbered from one end, or a field that depends on the type. */
enum sdc_bits_kind {
    SDC_BITS_ANY,
    SDC_BITS_SIGN,
    SDC_BITS_EXPONENT,
    SDC_BITS_MANTISSA,
    SDC_BITS_TOP_EXPONENT,
    SDC_BITS_LSB, /* first to last counted from the least significant bit, 0 */
    SDC_BITS_MSB  /* counted from the most significant bit, 0 = the sign of a float */
};

struct sdc_bits_item {
    enum sdc_bits_kind kind;
    unsigned first, last; /* for LSB and MSB, inclusive */
};

#define SDC_MAX_BITS_ITEMS 16

/* A site as written: TENSOR[i,j,...]@lsb:30, parsed from the right since names hold any character.
 * Without @bits the operator must not need a bit. */
struct sdc_at {
    char *tensor; /* owned */
    uint64_t index[32];
    unsigned n_index; /* 0 with TENSOR[] or TENSOR: a scalar */
    bool has_bit;
    struct sdc_bits_item bit; /* LSB or MSB with first == last, SIGN or TOP_EXPONENT */
};

struct sdc_choice {
    enum sdc_choice_mode mode;
    uint64_t flips;    /* for SDC_CHOICE_FLIPS; 0 is allowed and changes nothing */
    double rate;       /* for SDC_CHOICE_RATE and attempts, 0 to 1 */
    struct sdc_at *at; /* owned */
    size_t n_at;

    enum sdc_sample sample;

    /* the support: all of these must hold; empty lists allow everything */
    char **tensors; /* globs over whole names (or exact names), any may match; owned */
    size_t n_tensors;
    char **not_tensors; /* none may match; owned */
    size_t n_not_tensors;
    uint32_t roles;  /* 1 << enum sdc_role; 0 = any */
    uint32_t parts;  /* 1 << enum sdc_part; 0 = any */
    uint32_t dtypes; /* 1 << enum sdc_dtype; 0 = any */
    struct sdc_bits_item bits[SDC_MAX_BITS_ITEMS];
    size_t n_bits; /* 0 = any */

    uint32_t not_result; /* 1 << SDC_CLASS_NAN, 1 << SDC_CLASS_INF: sites whose value would become
                            such are not in the support */

    enum sdc_op op;
    double value;         /* for VALUE, rounded to the type of the element; the factor of SCALE */
    uint64_t mask;        /* for MASK, not 0 */
    unsigned mask_length; /* 0: where it is */
    unsigned count;       /* for FLIP and BURST, 1 to 64 */

    enum sdc_checksum checksum;
    enum sdc_compat compat;

    bool flips_given, sample_given, rate_given; /* by sdc_choice_set, so that check sees
                                                   contradictions */
};

SDC_API void
sdc_choice_init(struct sdc_choice *c); /* mode FLIPS with flips 1, everything else any */
SDC_API void sdc_choice_release(struct sdc_choice *c);
SDC_API enum sdc_status sdc_choice_copy(struct sdc_choice *to, const struct sdc_choice *from,
                                        struct sdc_error *err) SDC_MUST_CHECK;

/* Parses one word of the choice. key is the option's name without dashes:
 *
 *     flips N, rate R, exhaustive true|false, at SITE (adds one)
 *     sample bits|tensors|elements|bytes|stratified|attempts
 *     tensors GLOB, not-tensors GLOB (each adds one); role, part, dtype: comma lists, added
 *     bits LIST; not-result nan,inf (none: neither)
 *     op flip, flip=K, set0, set1, mask=HEX, mask=HEX/LENGTH, burst=K, scale=F, random, swap,
 *        value=X with X 0, nan, inf, -inf or a number
 *     checksum mend|stale; compat none|hdf5-corrupter (which sets sample attempts)
 *
 * Underscores count as dashes. SDC_USAGE with what was found and what is allowed; unknown keys
 * suggest the nearest. After a failure the choice is as before. */
SDC_API enum sdc_status sdc_choice_set(struct sdc_choice *c, const char *key, const char *value,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* Combinations that make no sense: SDC_USAGE. Sites listed by `at` come with neither flips,
 * exhaustive, rate, sample nor bits, each has its bit if the operator needs one and none if it
 * takes whole elements; exhaustive comes with neither flips, rate nor sample, and rate with
 * neither flips nor sample (but for attempts); bits do not go with operators that take whole
 * elements, nor not-result with swap. */
SDC_API enum sdc_status sdc_choice_check(const struct sdc_choice *c,
                                         struct sdc_error *err) SDC_MUST_CHECK;
/* True where a site is an element and not a bit of one: flip=K, value, mask without length, scale,
 * random, swap. */
SDC_API bool sdc_choice_takes_elements(const struct sdc_choice *c);
/* The bits of an element of this type that the choice names (also where the site is the element):
 * for flip, set0, set1 and burst those of `bits`, for a mask with length its possible places. 0
 * where the choice leaves the type out. */
SDC_API uint64_t sdc_choice_bits(const struct sdc_choice *c, enum sdc_dtype dtype);
/* Sites of one element of this type: bits, or 1 if the site is the element; 0 where the choice
 * leaves the type out. */
SDC_API unsigned sdc_choice_sites(const struct sdc_choice *c, enum sdc_dtype dtype);
/* "any", "top-exponent", "lsb:0-22,msb:0", ... into at most SDC_MAX_BITS_ITEMS items. SDC_USAGE. */
SDC_API enum sdc_status sdc_bits_parse(const char *text, struct sdc_bits_item items[],
                                       size_t *n_items, struct sdc_error *err) SDC_MUST_CHECK;
/* The bits of a type that the items name, as a mask; 0 where they name none of it. */
SDC_API uint64_t sdc_bits_mask(const struct sdc_bits_item items[], size_t n_items,
                               enum sdc_dtype dtype);
/* True if the tensor's name, role, part and type pass the filters and it is alterable. Tensors that
 * share their bytes with others are left out unless sites are listed by `at`. */
SDC_API bool sdc_choice_admits(const struct sdc_choice *c, const struct sdc_tensor_desc *t);

/* One JSON object with sorted keys and every default filled in, for records and descriptions; and
 * back, unknown keys refused and missing ones as by default, into an uninitialised choice. The
 * values are the words that sdc_choice_set takes; flips and rate are null where they do not count.
 * json is NUL-terminated; free with sdc_text_free. SDC_INVALID for wrong texts. */
SDC_API enum sdc_status sdc_choice_to_json(const struct sdc_choice *c, char **json,
                                           struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_choice_from_json(const char *json, size_t len, struct sdc_choice *c,
                                             struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
