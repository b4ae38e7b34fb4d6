/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at checkpoints without changing them: comparing two of them, distances of a state from
 * another.
 */
#ifndef SDC_AUDIT_H
#define SDC_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/ckpt.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sdc_diff_site {
    uint64_t elem;
    uint64_t a, b; /* raw values */
};

struct sdc_diff_tensor {
    char *name; /* owned */
    enum sdc_part part;
    enum sdc_role role;
    enum sdc_dtype dtype;
    bool dtype_known;
    bool only_a, only_b; /* the other file has no such tensor */
    bool incomparable;   /* other type or shape, or unreadable; why says */
    bool unreadable; /* its values could not be looked at, so nobody knows whether they differ */
    char *why;       /* owned, may be NULL */
    uint64_t n_elems;
    uint64_t n_differ;       /* elements whose bits differ */
    uint64_t n_bits;         /* bits that differ */
    uint64_t bit_counts[64]; /* how many elements differ in bit i */
    uint64_t max_ulps;       /* over elements where neither is NaN */
    uint64_t n_nonfinite_a, n_nonfinite_b;
    double distance; /* ||b - a||2 / ||a||2 in double; 0 where identical, +inf where a difference
                        is non-finite or ||a|| is 0 and b differs in value. Elements with equal bits
                        add nothing to the difference, non-finite ones nothing to ||a|| */
    double sum_sq_diff, sum_sq_a; /* the parts of it, for adding up over tensors of a layer; +inf
                                     where a square sum is beyond double or a difference non-finite.
                                     sum_sq_a is 0 for a tensor found identical unless all was
                                     asked */
    double max_relative;          /* |b - a| / |a| over elements, +inf likewise */
    struct sdc_diff_site *sites;  /* the first max_sites differing elements */
    size_t n_sites;
};

struct sdc_diff {
    struct sdc_diff_tensor
        *tensors; /* sorted by name; only those that differ unless all was asked */
    size_t n;
    uint64_t n_tensors_a, n_tensors_b;
    uint64_t n_tensors;        /* names in either file */
    uint64_t n_differ_tensors; /* without the unreadable ones */
    uint64_t n_unreadable_tensors;
    uint64_t n_differ_elems, n_differ_bits;
    bool same_values;    /* no tensor differs or is missing or incomparable */
    bool same_container; /* the files are byte-identical */
};

struct sdc_diff_options {
    bool all;                 /* list tensors without a difference too */
    size_t max_sites;         /* sites kept per tensor */
    const char *const *globs; /* only tensors whose name matches one; n_globs may be 0 */
    size_t n_globs;
    const struct sdc_ckpt_options *open; /* how both are opened; may be NULL */
};

/* Tensors are matched by name, aliases included; values are compared bit by bit, so -0 differs from
 * +0 and NaN equals the same NaN. A tensor that cannot be read (see sdc_ckpt_read) is incomparable;
 * an unreadable file is an error. Byte-identical files are told by their bytes alone, in one pass,
 * unless all was asked. diff is to be released after success only. */
SDC_API enum sdc_status sdc_diff_files(const char *path_a, const char *path_b,
                                       const struct sdc_diff_options *options,
                                       struct sdc_diff *diff, struct sdc_error *err) SDC_MUST_CHECK;
/* Two arrays of the same type and length, native order; replaces counts, distances and sites of t
 * (sites it held are not freed) and leaves name, part, role and why alone. */
SDC_API enum sdc_status sdc_diff_arrays(enum sdc_dtype dtype, const void *a, const void *b,
                                        uint64_t n, size_t max_sites, struct sdc_diff_tensor *t,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_diff_tensor_release(struct sdc_diff_tensor *t); /* name, why, sites */
SDC_API void sdc_diff_release(struct sdc_diff *diff);

#ifdef __cplusplus
}
#endif
#endif
