/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a NumPy array (.npy), wherever it stands: in a file of its own or in a member of a
 * zip archive. Pure functions over memory; the entries of a checkpoint are made from their result.
 *
 * Layout (numpy/lib/_format_impl.py): "\x93NUMPY", major u8, minor u8, length of the text u16
 * (version 1) or u32 (2 and 3), the text: a Python dict literal with exactly the keys descr,
 * fortran_order and shape; then the elements.
 *
 * Not for text of our own: the literal parser knows what NumPy writes and nothing else.
 */
#ifndef SDC_CKPT_FMT_NPY_H
#define SDC_CKPT_FMT_NPY_H

#include "base/limits.h"
#include "ckpt/fmt.h"

#define SDC_NPY_MAX_RANK (SDC_MAX_RANK + 1) /* and the parts of a complex number */

/* ---- Python literals ---- */

enum sdc_pylit_type {
    SDC_PYLIT_DICT,
    SDC_PYLIT_LIST,
    SDC_PYLIT_TUPLE,
    SDC_PYLIT_STR,
    SDC_PYLIT_INT,
    SDC_PYLIT_BOOL,
    SDC_PYLIT_NONE
};

/* A value. Children of a dict are key, value, key, value; UINT32_MAX ends a list of siblings. */
struct sdc_pylit_node {
    enum sdc_pylit_type type;
    unsigned n; /* children */
    uint32_t first, next;
    uint32_t column;  /* of its first character, from 1 on */
    int64_t number;   /* of an int or a bool */
    const char *text; /* of a string: UTF-8 and NUL-terminated */
};

struct sdc_pylit {
    struct sdc_pylit_node *nodes; /* nodes[0] is the value */
    size_t n, cap;
    struct sdc_buf texts;
    bool called; /* an int was wrapped in a call, such as np.int64(3): not a literal, but clear */
};

/* Dicts, lists, tuples, strings, ints (a trailing L too), True, False, None. latin1: bytes above
 * 0x7f are characters, else the text is UTF-8. SDC_INVALID ("not a literal at column n"). Release
 * in either case. */
enum sdc_status sdc__pylit_parse(const char *text, size_t len, bool latin1, const char *what,
                                 struct sdc_pylit *lit, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__pylit_release(struct sdc_pylit *lit);
/* The value of this key of a dict, or NULL. */
const struct sdc_pylit_node *sdc__pylit_get(const struct sdc_pylit *lit,
                                            const struct sdc_pylit_node *dict, const char *key);

/* ---- the header ---- */

/* One number in each element: the element itself, or a field of it. */
struct sdc_npy_field {
    char *name;  /* "a", "a:b" of nested types; "" of a plain array */
    char *descr; /* as in the file: "<f4" */
    char kind;   /* f, i, u, b, c, S, U, V, O, M, m, ... */
    bool big_endian;
    uint64_t size;   /* bytes of one; of complex numbers: of both parts */
    uint64_t offset; /* in the element */
    unsigned rank;   /* of subarrays, outermost first */
    uint64_t dims[SDC_NPY_MAX_RANK], strides[SDC_NPY_MAX_RANK]; /* strides in bytes */
};

struct sdc_npy {
    uint64_t data;     /* offset of the elements from the beginning of the array's bytes */
    uint64_t itemsize; /* bytes of an element */
    uint64_t size;     /* bytes of all of them */
    bool fortran;      /* the first index is the fastest */
    bool has_object;   /* the elements are a pickle */
    bool called;       /* see sdc_pylit */
    unsigned rank;
    uint64_t shape[SDC_NPY_MAX_RANK];
    struct sdc_npy_field *fields;
    size_t n_fields;
};

#define SDC_NPY_START 12 /* bytes that tell how long the header is */

bool sdc__npy_is(const unsigned char *head, size_t n);
/* Length of all before the elements; head: the first n bytes, SDC_NPY_START unless the array is
 * shorter, of `total` in all; max: bytes of text accepted, 0 for the limit. SDC_INVALID (no array,
 * truncated), SDC_UNSUPPORTED (version), SDC_LIMIT. */
enum sdc_status sdc__npy_header_len(const unsigned char *head, size_t n, uint64_t total,
                                    uint64_t max, const char *what, uint64_t *len,
                                    struct sdc_error *err) SDC_MUST_CHECK;
/* head: all len bytes of it. Release in either case. */
enum sdc_status sdc__npy_parse(const unsigned char *head, size_t len, const char *what,
                               struct sdc_npy *npy, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__npy_release(struct sdc_npy *npy);

/* ---- its tensors ---- */

/* Where the bytes of an array are: in a file, or only in what something inflates to. */
struct sdc_npy_place {
    bool in_file;
    unsigned file;
    uint64_t start;                /* of the array's bytes in the file */
    uint64_t total;                /* bytes of it, header included */
    uint64_t key;                  /* for the entries */
    const char *storage, *recoded; /* for the entries; recoded may be NULL */
};

/* Adds one entry for each field: name, or name:field. A field that is no number is locked. Each
 * entry's layout is a struct sdc_npy_walk, of bytes from the array's beginning on. SDC_INVALID if
 * the elements are not all there. */
enum sdc_status sdc__npy_add(struct sdc_ckpt *ckpt, const char *name, const struct sdc_npy *npy,
                             const struct sdc_npy_place *place,
                             struct sdc_error *err) SDC_MUST_CHECK;

/* How a tensor's elements lie among the array's bytes. */
struct sdc_npy_walk {
    uint64_t start;                     /* of the first, from the array's beginning on */
    unsigned rank;                      /* of the tensor */
    bool packed;                        /* in C order without gaps */
    uint64_t strides[SDC_NPY_MAX_RANK]; /* in bytes */
};
uint64_t sdc__npy_offset(const struct sdc_npy_walk *walk, const struct sdc_ckpt_entry *e,
                         uint64_t elem);

#endif
