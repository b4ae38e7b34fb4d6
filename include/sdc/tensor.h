/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tensor of a training state is called, what it holds and what it is for. Not where it is
 * stored: that is sdc/ckpt.h.
 *
 * Parts of the state: model, optimizer, loop (counters, RNG, data cursor). Names follow PyTorch's
 * state dict under the part: "model/layer1.0.conv1.weight",
 * "optimizer/layer1.0.conv1.weight/momentum", "loop/step".
 */
#ifndef SDC_TENSOR_H
#define SDC_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/num.h"
#include "sdc/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SDC_PART_MAP(X) X(MODEL, "model") X(OPTIMIZER, "optimizer") X(LOOP, "loop") X(NONE, "none")

enum sdc_part {
#define SDC_PART_ENUM(name, text) SDC_PART_##name,
    SDC_PART_MAP(SDC_PART_ENUM)
#undef SDC_PART_ENUM
        SDC_PART_COUNT
};

#define SDC_ROLE_MAP(X)                                                                            \
    X(WEIGHT, "weight")                                                                            \
    X(BIAS, "bias")                                                                                \
    X(NORM_SCALE, "norm-scale")                                                                    \
    X(NORM_SHIFT, "norm-shift")                                                                    \
    X(RUNNING_MEAN, "running-mean")                                                                \
    X(RUNNING_VAR, "running-var")                                                                  \
    X(MOMENTUM, "momentum")                                                                        \
    X(ADAM_M, "adam-m")                                                                            \
    X(ADAM_V, "adam-v")                                                                            \
    X(COUNTER, "counter")                                                                          \
    X(RNG, "rng")                                                                                  \
    X(CURSOR, "cursor")                                                                            \
    X(OTHER, "other")

enum sdc_role {
#define SDC_ROLE_ENUM(name, text) SDC_ROLE_##name,
    SDC_ROLE_MAP(SDC_ROLE_ENUM)
#undef SDC_ROLE_ENUM
        SDC_ROLE_COUNT
};

SDC_API const char *sdc_part_name(enum sdc_part part);
SDC_API const char *sdc_role_name(enum sdc_role role);
SDC_API bool sdc_part_parse(const char *name, enum sdc_part *part); /* not "none" */
SDC_API bool sdc_role_parse(const char *name, enum sdc_role *role);

struct sdc_tensor_desc {
    const char *name;       /* owned by whatever lists it; UTF-8, NUL-terminated */
    enum sdc_dtype dtype;   /* meaningless if dtype_known is false */
    bool dtype_known;       /* false: the format's type is none of ours; listed, never altered */
    const char *dtype_text; /* the format's own word for the type, never NULL; as owned as name */
    unsigned rank;          /* 0: a scalar, one element */
    const uint64_t *shape;  /* rank sizes, slowest dimension first (C order) */
    uint64_t n_elems;       /* product of shape */
    enum sdc_part part;
    enum sdc_role role;
    const char *locked; /* NULL: alterable; else why not, in a few words; as owned as name */
    const char *shared; /* not NULL: its bytes are (also) those of another tensor or element, such
                           as "view of fc.weight"; left out where sites are drawn, unless it is
                           chosen by name, so that no bit counts twice; as owned as name */
    const char *const *aliases; /* other names of the same tensor; as owned as name */
    size_t n_aliases;
};

/* Is one of its names, aliases included, one of the n patterns, or does it match one? A pattern is
 * an exact name or a glob over whole names. Thread-safe, as the next two. */
SDC_API bool sdc_tensor_matches(const struct sdc_tensor_desc *t, const char *const *patterns,
                                size_t n);
/* Is one of its names one of the n, to the letter? */
SDC_API bool sdc_tensor_is_named(const struct sdc_tensor_desc *t, const char *const *names,
                                 size_t n);
/* The first of the patterns that no tensor matches, or NULL. */
SDC_API const char *sdc_tensor_unmatched(const struct sdc_tensor_desc *const descs[],
                                         size_t n_descs, const char *const *patterns, size_t n);
/* Likewise, of those that are names and not globs. */
SDC_API const char *sdc_tensor_missing(const struct sdc_tensor_desc *const descs[], size_t n_descs,
                                       const char *const *patterns, size_t n);

/* Part and role from the name, type and rank alone. Known are names of PyTorch state dicts, of
 * PyTorch optimizer state by running number ("optimizer/state/0/exp_avg"), of Keras 2 and 3 HDF5
 * files, of TensorFlow's object-based and name-based checkpoints, of Flax, and of the native
 * trainer. A name without a part prefix counts as model if its
 * last component is a known parameter or buffer name (weight, bias, kernel, gamma, beta,
 * running_mean, running_var, moving_mean, moving_variance, num_batches_tracked; weight_ih_l0 and
 * the like), as optimizer if it is exp_avg, exp_avg_sq or momentum_buffer. A rank-1 "weight" is a
 * norm scale where the module's name says norm, bn, ln or gn, or is a residual network's
 * "downsample.1" or "shortcut.1", else a weight; its "bias" accordingly. Thread-safe. */
SDC_API void sdc_tensor_classify(const char *name, enum sdc_dtype dtype, unsigned rank,
                                 enum sdc_part *part, enum sdc_role *role);

/* The module a tensor belongs to, for "propagation per layer": "conv1" of "model/conv1.weight" and
 * of "optimizer/conv1.weight/momentum"; the whole name where there is no such structure. Writes at
 * most size bytes with NUL. */
SDC_API void sdc_tensor_layer(const char *name, char *layer, size_t size);

/* Flat C-order index from one index per dimension; SDC_USAGE naming the dimension out of range. */
SDC_API enum sdc_status sdc_tensor_flat_index(const struct sdc_tensor_desc *t,
                                              const uint64_t *index, unsigned n, uint64_t *elem,
                                              struct sdc_error *err) SDC_MUST_CHECK;
/* "[2,0,4]" of a flat index, "[]" for a scalar; returns its length, with what does not fit cut. */
SDC_API size_t sdc_tensor_index_text(const struct sdc_tensor_desc *t, uint64_t elem, char *text,
                                     size_t size);

/* ---- digest of a state (128 bits) ----
 *
 * XXH3-128 over the tensors sorted by name (bytewise): name, NUL, type as safetensors spells it,
 * NUL, rank and shape as u64, elements in C order, all little-endian; elements under 8 bits one a
 * byte. The name keeps its part ("model/fc.weight") and loses wrappers' prefixes at its start or
 * right after the part: "module." (PyTorch's parallel wrappers) and "_orig_mod." (torch.compile).
 */

struct sdc_state_digest {
    unsigned char bytes[16];
};

struct sdc_tensor_view {
    struct sdc_tensor_desc desc;
    const void *data; /* n_elems elements in C order, native byte order */
};

#define SDC_STATE_DIGEST_TEXT 33 /* 32 hex digits and NUL */

/* Views may come in any order. SDC_UNSUPPORTED if a type is not known; SDC_NO_MEMORY. */
SDC_API enum sdc_status sdc_state_digest(const struct sdc_tensor_view *views, size_t n,
                                         struct sdc_state_digest *digest,
                                         struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_state_digest_text(const struct sdc_state_digest *d,
                                   char text[SDC_STATE_DIGEST_TEXT]);
SDC_API bool sdc_state_digest_parse(const char *text, struct sdc_state_digest *d);

#ifdef __cplusplus
}
#endif
#endif
