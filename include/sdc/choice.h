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
    SDC_CHOICE_AT          /* the listed sites */
};

enum sdc_sample {
    SDC_SAMPLE_BITS,   /* uniform over all bits of the support, without replacement */
    SDC_SAMPLE_TENSORS /* tensor first, then element, then bit: the published injector's way */
};

enum sdc_op {
    SDC_OP_FLIP,
    SDC_OP_VALUE /* the element becomes a given value; the site is the element */
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

    enum sdc_op op;
    double value; /* for SDC_OP_VALUE; rounded to the type of the element */

    bool flips_given, sample_given; /* by sdc_choice_set, so that check sees contradictions */
};

SDC_API void
sdc_choice_init(struct sdc_choice *c); /* mode FLIPS with flips 1, everything else any */
SDC_API void sdc_choice_release(struct sdc_choice *c);
SDC_API enum sdc_status sdc_choice_copy(struct sdc_choice *to, const struct sdc_choice *from,
                                        struct sdc_error *err) SDC_MUST_CHECK;

/* Parses one word of the choice. key is the option's name without dashes: flips, exhaustive (value
 * "true" or "false"), at (adds one), sample, tensors (adds one glob), not-tensors (adds one), role,
 * part, dtype (comma lists, added), bits, op (flip, or value=X with X 0, nan, inf, -inf or a
 * number). Underscores count as dashes. SDC_USAGE with what was found and what is allowed; unknown
 * keys suggest the nearest; words of the full set that are not implemented say "not supported yet".
 * After a failure the choice is as before. */
SDC_API enum sdc_status sdc_choice_set(struct sdc_choice *c, const char *key, const char *value,
                                       struct sdc_error *err) SDC_MUST_CHECK;
/* Combinations that make no sense: SDC_USAGE. Sites listed by `at` come with neither flips,
 * exhaustive, sample nor bits, each has its bit if the operator is flip and none if it is value;
 * exhaustive comes with neither flips nor sample; bits do not go with op value. */
SDC_API enum sdc_status sdc_choice_check(const struct sdc_choice *c,
                                         struct sdc_error *err) SDC_MUST_CHECK;
/* "any", "top-exponent", "lsb:0-22,msb:0", ... into at most SDC_MAX_BITS_ITEMS items. SDC_USAGE. */
SDC_API enum sdc_status sdc_bits_parse(const char *text, struct sdc_bits_item items[],
                                       size_t *n_items, struct sdc_error *err) SDC_MUST_CHECK;
/* The bits of a type that the items name, as a mask; 0 where they name none of it. */
SDC_API uint64_t sdc_bits_mask(const struct sdc_bits_item items[], size_t n_items,
                               enum sdc_dtype dtype);
/* True if the tensor's name, role, part and type pass the filters and it is alterable. */
SDC_API bool sdc_choice_admits(const struct sdc_choice *c, const struct sdc_tensor_desc *t);

/* One JSON object with sorted keys and every default filled in, for records and descriptions; and
 * back, unknown keys refused, into an uninitialised choice. The values are the words that
 * sdc_choice_set takes; flips is null where sites are listed or exhaustive. json is NUL-terminated;
 * free with sdc_text_free. SDC_INVALID for wrong texts. */
SDC_API enum sdc_status sdc_choice_to_json(const struct sdc_choice *c, char **json,
                                           struct sdc_error *err) SDC_MUST_CHECK;
SDC_API enum sdc_status sdc_choice_from_json(const char *json, size_t len, struct sdc_choice *c,
                                             struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
