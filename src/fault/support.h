/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of a support: its tensors, the groups of sites that draws go by, and what is left of them.
 * The order of sites is part of the results of a seed: changing it changes what every seed draws.
 *
 * A site has two numbers. Its *place* counts all sites that the filters let through: by tensor in
 * the order of descs, then by element in C order, then by bit from the least significant of those
 * that the choice names; where the operator takes whole elements, an element is one site. Its
 * *number* counts those that are left, by group: a tensor is one group, or one for each byte of its
 * elements (sample bytes) or for each class of their bits (stratified), lowest bits first. Numbers
 * are what is drawn; places are what a list is made of.
 */
#ifndef SDC_FAULT_SUPPORT_H
#define SDC_FAULT_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "sdc/fault.h"

/* What decides about a result, without the lists of the choice. */
struct sdc_rule {
    enum sdc_op op;
    bool elements; /* a site is an element */
    bool listed;   /* sites are listed, none are drawn */
    uint32_t not_result;
    double value;
    uint64_t mask;
    unsigned count;
};

struct sdc_group {
    uint32_t tensor;  /* index into tensors of the support */
    uint64_t mask;    /* its bits of an element; 0 where whole elements are sites */
    unsigned width;   /* sites of one element, at least 1 */
    uint64_t first;   /* number of its first site */
    uint64_t sites;   /* that are left */
    uint64_t *before; /* of a reduced support: sites left before each block; owned by the support */
};

struct sdc_support_tensor {
    uint32_t tensor; /* index into descs */
    uint64_t first;  /* place of its first site */
    uint64_t n_elems;
    uint64_t mask;  /* bits of an element that are sites; 0 where whole elements are */
    uint64_t named; /* bits that the choice names, also where whole elements are sites */
    unsigned width; /* sites of one element, at least 1 */
    size_t first_group, n_groups;
    uint64_t block; /* elements of a block, but for the last */
};

struct sdc_support {
    const struct sdc_tensor_desc *const *descs; /* borrowed */
    size_t n_descs;
    struct sdc_rule rule;
    struct sdc_support_tensor *tensors; /* owned; none of them empty */
    size_t n_tensors;
    struct sdc_group *groups; /* owned; of a reduced support none is empty */
    size_t n_groups;
    uint64_t *counts; /* of every `before`; owned */
    uint64_t sites, removed;
    bool reduced;
    sdc_fault_read *read;
    void *user;
};

/* The position of the k-th set bit of mask, counted from 0; mask has more than k. */
unsigned sdc__bit_at(uint64_t mask, unsigned k);
/* The n lowest bits; n may be 64. */
uint64_t sdc__low_bits(unsigned n);

/* ---- results (eligible.c) ---- */

/* The fault that a site is: bit b of an element, or the element (b is not looked at). */
struct sdc_fault sdc__fault_of(const struct sdc_rule *rule, enum sdc_dtype dtype, unsigned b);
/* Those bits of mask, sites all of them, whose result is none that the rule refuses. */
uint64_t sdc__allowed_bits(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t mask,
                           uint64_t raw);
/* Bits from the first to the last that the operator changes at one site, 1 to 64. */
unsigned sdc__reach(const struct sdc_rule *rule);
/* The same for an element as a site; of operators with something random in them: can there be such
 * a result? named: the bits that flip=K draws from. */
bool sdc__allowed_element(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t named,
                          uint64_t raw);
/* Does the rule refuse this value as a result? */
bool sdc__refused(const struct sdc_rule *rule, enum sdc_dtype dtype, uint64_t raw);

/* ---- reading values (support_values.c) ---- */

/* Elements of one tensor, read in blocks. */
struct sdc_values {
    const struct sdc_support *support;
    size_t desc;
    enum sdc_dtype dtype;
    unsigned char *memory; /* owned */
    uint64_t first, n;     /* what is in memory */
};
enum sdc_status sdc__values_init(struct sdc_values *v, const struct sdc_support *support,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__values_release(struct sdc_values *v);
/* Raw value of an element; quick if elements are asked for in ascending order. n_elems: of the
 * tensor. */
enum sdc_status sdc__values_get(struct sdc_values *v, size_t desc, uint64_t elem, uint64_t *raw,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* ---- steps of a draw ---- */

/* Numbers of n sites, ascending (with repetitions for attempts), into numbers[n]; room has space
 * for as many. draws: for stratified samples how many of each group, else not touched. */
enum sdc_status sdc__sample(const struct sdc_support *s, const struct sdc_choice *choice,
                            struct sdc_rng *rng, uint64_t *numbers, size_t n, uint64_t *draws,
                            struct sdc_error *err) SDC_MUST_CHECK;
/* Each site with the probability; *numbers is allocated here, ascending. SDC_LIMIT over max. */
enum sdc_status sdc__sample_rate(const struct sdc_support *s, double rate, struct sdc_rng *rng,
                                 size_t max, uint64_t **numbers, size_t *n,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Numbers, ascending, to places in their stead, in the same order. */
enum sdc_status sdc__locate(const struct sdc_support *s, uint64_t *numbers, size_t n,
                            struct sdc_error *err) SDC_MUST_CHECK;
/* The sites that choice->at lists. */
enum sdc_status sdc__resolve_at(const struct sdc_support *s, const struct sdc_choice *choice,
                                struct sdc_fault_list *list, struct sdc_error *err) SDC_MUST_CHECK;
/* What operators draw besides sites, for the faults of a list in its order. */
struct sdc_drawing {
    const struct sdc_support *s; /* borrowed */
    struct sdc_rng rng;
    struct sdc_values values; /* owned; of `look` */
    size_t tensor;            /* of the support, that of the last fault */
    bool needed;              /* does the operator draw anything? else adding does nothing */
    bool several, look;
};
/* sites: the stream of the sites, as it was before them. */
enum sdc_status sdc__drawing_init(struct sdc_drawing *d, const struct sdc_support *s,
                                  const struct sdc_rng *sites,
                                  struct sdc_error *err) SDC_MUST_CHECK;
void sdc__drawing_release(struct sdc_drawing *d);
/* The next n faults. */
enum sdc_status sdc__drawing_add(struct sdc_drawing *d, struct sdc_fault *faults, size_t n,
                                 struct sdc_error *err) SDC_MUST_CHECK;

#endif
