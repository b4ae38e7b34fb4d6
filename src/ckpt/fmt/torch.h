/* SPDX-License-Identifier: Apache-2.0
 *
 * What PyTorch's containers have in common: a pickle that says which tensors there are, as views
 * of storages whose bytes are elsewhere. For torch*.c and dcp*.c alone.
 *
 *     struct sdc_torch t = {.ckpt = ckpt};
 *     sdc__torch_walk(&t, pk, err);          tensors and storages that the pickle names
 *     ... place each t.storages[i] ...
 *     sdc__torch_finish(&t, err);            entries, aliases, views, notes
 *     sdc__torch_release(&t);
 *
 * Sources: pytorch 2.9, torch/_utils.py, torch/_tensor.py, torch/serialization.py,
 * torch/storage.py, torch/_weights_only_unpickler.py; numpy 1.24, numpy/core/multiarray.py.
 */
#ifndef SDC_CKPT_FMT_TORCH_H
#define SDC_CKPT_FMT_TORCH_H

#include "ckpt/fmt.h"
#include "ckpt/pickle.h"
#include "ckpt/zip.h"

#define SDC_TORCH_NOWHERE SIZE_MAX

struct sdc_torch_type {
    const char *text;     /* PyTorch's word */
    enum sdc_dtype dtype; /* of a component */
    bool known;
    unsigned bits;       /* of an element */
    unsigned components; /* 2: complex numbers, pairs of 4-bit floats; they are a last axis */
};

struct sdc_torch_storage {
    char *key;
    uint64_t numel; /* elements of its class, as the pickle says */
    unsigned item;  /* bytes of one */
    uint64_t size;  /* numel * item */
    bool placed;
    unsigned file;
    uint64_t at;   /* of its first byte in the file; 0 where it is deflated */
    uint64_t have; /* bytes there */
    bool deflated; /* in member zip_member, to be inflated */
    size_t zip_member;
    const char *why; /* not placed: why not; static */
};

struct sdc_torch_tensor {
    char *name;
    struct sdc_torch_type type;
    size_t storage;  /* SDC_TORCH_NOWHERE: inline, or without bytes */
    uint64_t offset; /* elements in the storage; bytes in the pickle where it is inline */
    bool is_inline, big_endian;
    unsigned rank;
    uint64_t *shape, *strides; /* one block; strides in elements */
    const char *why;           /* it has no bytes that can be patched: why; static */
    size_t alias_of;           /* the tensor of the same layout that is listed; itself: none */
    char *shared;
    size_t entry; /* its place in ckpt->entries before they are sorted */
};

struct sdc_torch {
    struct sdc_ckpt *ckpt;
    bool big_endian;         /* of storages */
    unsigned pickle_file;    /* where inline data are; with pickle_at */
    uint64_t pickle_at;      /* of the pickle's first byte */
    bool pickle_deflated;    /* inline data cannot be reached */
    const char *tensor_name; /* of a tensor that is all there is; NULL: "tensor" */
    struct sdc_torch_storage *storages;
    size_t n_storages, cap_storages;
    uint32_t *slots; /* hash table of keys, 1 + index; n_slots is a power of two */
    size_t n_slots;
    struct sdc_torch_tensor *tensors;
    size_t n, cap;
    char *optimizer;    /* where the state of an optimizer is; or NULL */
    uint64_t n_params;  /* of its groups, numbered from 0 on over all of them */
    char **param_names; /* n_params of them, as the optimizer's groups say; NULL: they do not */
};

/* A tensor whose elements are in a deflated member: entry.layout. Bits in the storage. */
struct sdc_torch_layout {
    size_t zip_member;
    uint64_t bit;
    unsigned n_dims;
    uint64_t dims_strides[]; /* n_dims each */
};

/* ---- torch_walk.c ---- */
/* May be called for several pickles of one file; prefix goes in front of the names ("" or
 * "constants/"). */
enum sdc_status sdc__torch_walk(struct sdc_torch *t, const struct sdc_pk *pk, const char *prefix,
                                struct sdc_error *err) SDC_MUST_CHECK;

/* Adds the storages that the pickle names anywhere, those of no tensor too. */
enum sdc_status sdc__torch_storages(struct sdc_torch *t, const struct sdc_pk *pk,
                                    struct sdc_error *err) SDC_MUST_CHECK;

/* ---- torch_types.c ---- */
/* "torch.FloatStorage", "torch.cuda.FloatStorage"; untyped storages are bytes. */
bool sdc__torch_storage_class(const char *global, struct sdc_torch_type *type);
/* "torch.float32" */
bool sdc__torch_dtype(const char *global, struct sdc_torch_type *type);
/* NumPy's "<f4"; false for what holds no numbers. */
bool sdc__torch_numpy_type(const char *descr, char order, struct sdc_torch_type *type,
                           bool *big_endian);
/* A note on globals that no state of a training needs. */
enum sdc_status sdc__torch_note_globals(struct sdc_ckpt *ckpt, const struct sdc_pk *pk,
                                        const char *what, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- torch_list.c ---- */
/* Index of the storage of this key, added if it is new. SDC_INVALID if its size changed. */
enum sdc_status sdc__torch_storage(struct sdc_torch *t, const char *key, uint64_t numel,
                                   unsigned item, size_t *index,
                                   struct sdc_error *err) SDC_MUST_CHECK;
bool sdc__torch_find_storage(const struct sdc_torch *t, const char *key, size_t *index);
/* A zeroed tensor with room for rank dimensions; name is copied. Valid until the next. */
enum sdc_status sdc__torch_add(struct sdc_torch *t, const char *name, unsigned rank,
                               struct sdc_torch_tensor **tensor,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Bits of the file or storage: the tensor's layout with components as a last axis. dims and strides
 * have room for rank + 1. Returns the number of dimensions. */
unsigned sdc__torch_layout(const struct sdc_torch_tensor *x, uint64_t *dims, uint64_t *strides);
/* SDC_INVALID "out of bounds" if an element is outside its storage. */
enum sdc_status sdc__torch_check(const struct sdc_torch *t, const struct sdc_torch_tensor *x,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* Makes entries of all tensors once storages are placed. */
enum sdc_status sdc__torch_finish(struct sdc_torch *t, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__torch_drop_names(struct sdc_torch *t); /* param_names */
void sdc__torch_release(struct sdc_torch *t);

/* ---- torch_names.c ---- */
/* Names of an optimizer's state by parameter, "optimizer/fc.weight/exp_avg" of
 * "optimizer/state/0/exp_avg", as aliases of its entries, where the file tells which parameter has
 * which number: one group, and as many parameters of a model of the same shapes in order. */
enum sdc_status sdc__torch_name_states(struct sdc_torch *t, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- torch_share.c ---- */
/* Sets alias_of and shared of tensors that have bytes in common, and notes storages of which bytes
 * belong to no tensor. */
enum sdc_status sdc__torch_share(struct sdc_torch *t, struct sdc_error *err) SDC_MUST_CHECK;

/* ---- torch.c, for dcp.c ---- */
/* Registers the CRC of a member; level 0. what is the member's name. */
enum sdc_status sdc__torch_zip_sum(struct sdc_ckpt *ckpt, unsigned file,
                                   const struct sdc_zip_member *m, const char *what,
                                   struct sdc_error *err) SDC_MUST_CHECK;
/* Parses a member as a pickle, inflating it first if need be. */
enum sdc_status sdc__torch_zip_pickle(const struct sdc_file *file, const struct sdc_zip_member *m,
                                      struct sdc_pk **pk, struct sdc_error *err) SDC_MUST_CHECK;
/* The member of this name behind the first '/'; NULL: none. */
const struct sdc_zip_member *sdc__torch_zip_find(const struct sdc_zip *zip, const char *name);
/* The record "byteorder". */
enum sdc_status sdc__torch_zip_order(const struct sdc_file *file, const struct sdc_zip *zip,
                                     bool *big_endian, struct sdc_error *err) SDC_MUST_CHECK;
/* Places all storages that the archive holds under folder ("archive/data/"). */
enum sdc_status sdc__torch_zip_place(struct sdc_torch *t, const struct sdc_file *file,
                                     unsigned index, const struct sdc_zip *zip, const char *folder,
                                     struct sdc_error *err) SDC_MUST_CHECK;

#endif
