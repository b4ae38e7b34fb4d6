/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at checkpoints without changing them: comparing two of them, statistics of their values,
 * what flipped bits would do, whether they are damaged.
 */
#ifndef SDC_AUDIT_H
#define SDC_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/choice.h"
#include "sdc/ckpt.h"
#include "sdc/name_map.h"
#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sdc_diff_site {
    uint64_t elem;
    uint64_t a, b; /* raw values */
};

/* Three levels: the bytes of the files; the bits of the elements; their values, where every NaN
 * equals every other and -0 equals +0. */
enum sdc_diff_level { SDC_DIFF_BITS, SDC_DIFF_VALUES, SDC_DIFF_CONTAINER };

struct sdc_diff_tensor {
    char *name;   /* owned */
    char *name_b; /* in the second checkpoint, if it differs, else NULL; owned */
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
    uint64_t first_elem;     /* the first of them, where n_differ is not 0 */
    uint64_t n_values;       /* elements whose values differ */
    uint64_t n_nan_bits;     /* NaN in both, with different bits */
    uint64_t n_zero_signs;   /* -0 against +0 */
    uint64_t n_beyond;       /* elements whose values differ by more than the tolerance */
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
    double max_absolute;          /* |b - a| over elements, +inf likewise */
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
    uint64_t n_differ_values;  /* elements */
    uint64_t n_value_tensors;  /* without the unreadable ones: those whose values differ */
    uint64_t n_beyond;         /* elements */
    uint64_t n_beyond_tensors; /* also those missing or incomparable */
    bool same_bits;            /* no tensor differs or is missing or incomparable */
    bool same_values;          /* the same, by values */
    bool within;               /* the same, by values and tolerance */
    bool same_container; /* the files are byte-identical: as many, with the same names in a set */
    uint64_t size_a, size_b; /* of all files together */
    bool has_first_byte;     /* the files were compared and differ at this place: */
    char *first_file;        /* name in the first checkpoint; owned, may be NULL */
    uint64_t first_byte;     /* may be the size of the shorter file */
};

struct sdc_diff_options {
    bool all;                 /* list tensors without a difference too */
    size_t max_sites;         /* sites kept per tensor */
    const char *const *globs; /* only tensors that have one of these names, aliases
                                 included, or match one; SDC_USAGE for one that fits
                                 nothing; n_globs may be 0 */
    size_t n_globs;
    const struct sdc_ckpt_options *open; /* how both are opened; may be NULL */
    unsigned threads;  /* 0: one for each processor; does not change any bit of the result */
    double rtol, atol; /* an element is within tolerance if |b - a| <= atol + rtol * |a| */
    /* Which tensors correspond, NULL: by name; see sdc/name_map.h. */
    const struct sdc_name_map *map;
};

/* Tensors are matched by name, aliases included; those left over on both sides as a name map does,
 * that is by name without what wrappers and formats add. With a map its rules go first: a tensor
 * that a rule fits is compared with the rule's target or with none, never by its own name, and one
 * that a rule leaves out ('-') is not missing, nor is one of its name in the second. Where axes
 * change places the second tensor is held in memory. The tolerance is that of
 * numpy.testing.assert_allclose(b, a): NaN equals NaN, an infinity only itself. A tensor that
 * cannot be read (see sdc_ckpt_read) is incomparable; an unreadable file is an error.
 * Byte-identical files are told by their bytes alone, in one pass, unless all was asked. diff is to
 * be released after success only. */
SDC_API enum sdc_status sdc_diff_files(const char *path_a, const char *path_b,
                                       const struct sdc_diff_options *options,
                                       struct sdc_diff *diff, struct sdc_error *err) SDC_MUST_CHECK;
/* Two arrays of the same type and length, native order; replaces counts, distances and sites of t
 * (sites it held are not freed) and leaves names, part, role and why alone. No tolerance. */
SDC_API enum sdc_status sdc_diff_arrays(enum sdc_dtype dtype, const void *a, const void *b,
                                        uint64_t n, size_t max_sites, struct sdc_diff_tensor *t,
                                        struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_diff_tensor_release(struct sdc_diff_tensor *t); /* names, why, sites */
SDC_API void sdc_diff_release(struct sdc_diff *diff);

/* ---- scan: what the values of each tensor look like ---- */

struct sdc_scan_site {
    uint64_t elem, raw;
    bool suspicious; /* NaN, infinite, or beyond the limit */
    uint64_t bits;   /* of a suspicious one: those whose flip alone would make it ordinary */
};

/* Orders of magnitude: floor(log2 |x|) of floats, the number of bits of integers. */
struct sdc_scan_scale {
    bool known;    /* false: fewer than four finite values other than zero */
    int low, high; /* of the tenth and the ninetieth percentile of finite values but zero */
    int limit;     /* above this an element is suspicious: high + max(8, 2 (high - low)) */
};

struct sdc_scan_tensor {
    size_t tensor;    /* index in the checkpoint */
    char *unreadable; /* not NULL: why; then only n_elems is known; owned */
    uint64_t n_elems;
    uint64_t n_nan, n_inf, n_zero, n_subnormal;
    uint64_t n_finite; /* that the following are about; 0: they are 0 */
    uint64_t min, max; /* raw */
    double mean, std;  /* of the population: divided by n, not n - 1 */
    double l2;         /* Euclidean norm; +inf where it is beyond double */
    struct sdc_scan_scale scale;
    uint64_t n_suspicious; /* NaN, infinity, or beyond the limit */
    /* Finite ones, largest magnitude first, then by index. */
    struct sdc_scan_site *largest;
    size_t n_largest;
    struct sdc_scan_site *nonfinite; /* NaN and infinities, the first ones by index */
    size_t n_nonfinite;
};

struct sdc_scan {
    struct sdc_scan_tensor *tensors; /* in the order of the checkpoint, those asked for */
    size_t n;
    uint64_t n_elems, n_nan, n_inf, n_suspicious;
    uint64_t n_unreadable; /* tensors */
    char **notes;          /* on files whose last 4096 bytes and more are zero */
    size_t n_notes;
};

struct sdc_scan_options {
    const char *const *globs; /* only tensors that have one of these names, aliases
                                 included, or match one; SDC_USAGE for one that fits
                                 nothing; n_globs may be 0 */
    size_t n_globs;
    size_t max_sites; /* elements kept of each list of a tensor, at most 100,000 */
    unsigned threads; /* 0: one for each processor; does not change any bit of the result */
};

/* One pass over all elements. Sums are made in double in a fixed order over blocks, deviations from
 * the block's mean, so that mean and std are good to about 1e-12 relative to the largest magnitude.
 * An element is suspicious if it is NaN or infinite, or if its order of magnitude is above the
 * limit that the tensor's own values set; one that became smaller cannot be told from a small one.
 * A bit makes it ordinary if the value is then finite and its order of magnitude lies between
 * low - (limit - high) and limit. scan is to be released after success only. */
SDC_API enum sdc_status sdc_scan(struct sdc_ckpt *ckpt, const struct sdc_scan_options *options,
                                 struct sdc_scan *scan, struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_scan_release(struct sdc_scan *scan);

/* ---- predict: what each bit would do ---- */

/* What flipping one bit of one element makes of its value. Each (element, bit) is in exactly one
 * class: the first that holds. Relative change is |new - old| / |old|. */
#define SDC_EFFECT_MAP(X)                                                                          \
    X(INTEGER, "integer", "integers and booleans, whatever becomes of them")                       \
    X(KEPT_NONFINITE, "kept-nonfinite", "NaN or Inf that stays NaN or Inf")                        \
    X(MADE_FINITE, "made-finite", "NaN or Inf that becomes a number")                              \
    X(TO_NAN, "to-nan", "a number becomes NaN")                                                    \
    X(TO_INF, "to-inf", "a number becomes infinite")                                               \
    X(SIGN, "sign", "only the sign changes")                                                       \
    X(TO_EXTREME, "to-extreme", "becomes larger than anything of its role, by far")                \
    X(FROM_ZERO, "from-zero", "was zero or subnormal")                                             \
    X(TO_ZERO, "to-zero", "becomes zero or subnormal")                                             \
    X(GROW, "grow", "relative change above 1: more than doubled")                                  \
    X(CHANGE_1, "change-1", "relative change in (1/8, 1]")                                         \
    X(CHANGE_8TH, "change-1/8", "relative change in (2^-7, 1/8]")                                  \
    X(CHANGE_2_7, "change-2^-7", "relative change in (2^-11, 2^-7]")                               \
    X(CHANGE_2_11, "change-2^-11", "relative change of at most 2^-11")

enum sdc_effect {
#define SDC_EFFECT_ENUM(name, text, meaning) SDC_EFFECT_##name,
    SDC_EFFECT_MAP(SDC_EFFECT_ENUM)
#undef SDC_EFFECT_ENUM
        SDC_EFFECT_COUNT
};
SDC_API const char *sdc_effect_name(enum sdc_effect effect);
SDC_API const char *sdc_effect_meaning(enum sdc_effect effect);

struct sdc_predict_counts {
    uint64_t sites[SDC_EFFECT_COUNT];
};

struct sdc_predict_tensor {
    size_t tensor; /* index in the checkpoint */
    enum sdc_dtype dtype;
    enum sdc_role role;
    char *unreadable; /* not NULL: why, and its sites are in no class; owned */
    uint64_t sites;   /* of its part of the support */
    struct sdc_predict_counts counts;
};

/* One bit of the elements of one type. */
struct sdc_predict_bit {
    enum sdc_dtype dtype;
    unsigned bit;
    struct sdc_predict_counts counts;
};

struct sdc_predict_role {
    enum sdc_role role;
    uint64_t sites;
    int extreme;      /* 2^extreme is the magnitude from which on a value of this role is extreme */
    bool has_extreme; /* false: integers only */
    struct sdc_predict_counts counts;
};

struct sdc_predict {
    uint64_t sites;      /* of the support: the counts add up to it, but for unreadable tensors */
    uint64_t unreadable; /* sites of unreadable tensors */
    struct sdc_predict_counts counts;
    struct sdc_predict_tensor *tensors; /* of the support, in the order of the checkpoint */
    size_t n_tensors;
    struct sdc_predict_bit *bits; /* by type, then from the highest bit down */
    size_t n_bits;
    struct sdc_predict_role *roles; /* those that occur */
    size_t n_roles;
};

struct sdc_predict_options {
    unsigned extreme; /* log2 of the factor over the largest magnitude of a role; 0: 20 */
    unsigned threads; /* 0: one for each processor */
};

/* Classifies every bit of the support of the choice (operator flip, one bit), in one pass over its
 * elements; not_result is not looked at, since it is about what is predicted here.
 * Extreme is a magnitude of at least 2^(e + 1 + extreme), where 2^e <= largest finite magnitude of
 * the role's tensors in the support < 2^(e + 1), but at least 2^extreme, as where all are zero.
 * predict is to be released after success only. */
SDC_API enum sdc_status sdc_predict(struct sdc_ckpt *ckpt, const struct sdc_choice *choice,
                                    const struct sdc_predict_options *options,
                                    struct sdc_predict *predict,
                                    struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_predict_release(struct sdc_predict *predict);

/* ---- seal and verify: is it what it was ---- */

struct sdc_seal_options {
    const char *output; /* NULL: sdc_ckpt_name with ".seal" after it */
    bool replace;       /* an existing seal may be replaced; else SDC_EXISTS */
    bool no_sync;
    unsigned threads;                    /* 0: one for each processor */
    const struct sdc_ckpt_options *open; /* may be NULL */
};

struct sdc_seal_result {
    char *path; /* of the seal; free with sdc_text_free */
    uint64_t n_files, n_bytes, n_tensors;
    uint64_t n_unreadable; /* tensors that have no digest of their own */
};

/* Writes sdclab.seal/1 (schemas/seal-1.json): size and XXH3-128 of each file, and of each tensor
 * XXH3-128 of its elements in C order, little-endian (types under 8 bits: one element a byte), with
 * digests of up to 256 equal blocks of it, so that damage can be placed. The same checkpoint gives
 * the same seal. A file that cannot be opened or a tensor whose stored form is damaged is not
 * sealed. The seal appears complete or not at all. result is untouched on failure. */
SDC_API enum sdc_status sdc_seal(const char *path, const struct sdc_seal_options *options,
                                 struct sdc_seal_result *result,
                                 struct sdc_error *err) SDC_MUST_CHECK;

enum sdc_finding_kind {
    SDC_FINDING_DAMAGE,
    SDC_FINDING_NOT_CHECKED, /* nothing there to check it against */
    SDC_FINDING_NONFINITE,   /* a tensor holds NaN or infinity, where this was asked */
    SDC_FINDING_NOTE         /* worth knowing, no damage */
};

struct sdc_finding {
    enum sdc_finding_kind kind;
    char *object; /* tensor, member or file; NULL: the whole; owned */
    char *text;   /* owned */
    bool has_elem;
    uint64_t first_elem, last_elem; /* where in the tensor: at the first, or in between */
};

enum sdc_seal_state {
    SDC_SEAL_NONE,    /* there is none */
    SDC_SEAL_MATCHES, /* all files are those sealed, byte for byte */
    SDC_SEAL_DIFFERS
};

struct sdc_verify {
    bool opened;  /* false: the structure is damaged, and a finding says how */
    char *format; /* NULL if not opened; owned */
    uint64_t n_files, n_tensors;
    uint64_t n_sums, n_sums_wrong, n_sums_unknown; /* stored checksums */
    enum sdc_seal_state seal;
    char *seal_path;    /* where it is or would be; owned */
    uint64_t n_covered; /* tensors under the seal or a stored checksum that was checked, and those
                           without elements */
    struct sdc_finding *findings; /* in the order in which they were found; owned */
    size_t n_findings;
    uint64_t n_damage, n_not_checked, n_nonfinite; /* findings of these kinds */
};

struct sdc_verify_options {
    /* NULL: sdc_ckpt_name with ".seal" after it; where a set has none there, one beside or in its
     * folder that names its files */
    const char *seal;
    bool finite;                         /* look for NaN and infinities */
    unsigned threads;                    /* 0: one for each processor */
    const struct sdc_ckpt_options *open; /* may be NULL */
};

/* Opens the checkpoint, recomputes all stored checksums, reads what is stored behind filters
 * and indices, and compares it with the seal: file by file, and where those differ tensor by
 * tensor. Damage is a result: SDC_OK with findings, also where the file is truncated or makes no
 * sense. Errors are what prevents looking: SDC_NOT_FOUND (a given seal too), SDC_IO,
 * SDC_UNSUPPORTED, SDC_LIMIT, SDC_NO_MEMORY. Nothing is ever changed. verify is to be released
 * after success only. */
SDC_API enum sdc_status sdc_verify(const char *path, const struct sdc_verify_options *options,
                                   struct sdc_verify *verify, struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_verify_release(struct sdc_verify *verify);

#ifdef __cplusplus
}
#endif
#endif
