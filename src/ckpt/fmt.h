/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint format implements, and the list of tensors that every format fills. Not for
 * users of checkpoints: those include sdc/ckpt.h.
 *
 * Opening: the first format whose sniff says yes gets open, which adds entries (sdc__ckpt_add and
 * the setters) and keeps its own state in ckpt->priv. ckpt.c then sorts, classifies and checks. A
 * new format joins the table in formats.c and the conformance suite in tests/conform.
 */
#ifndef SDC_CKPT_FMT_H
#define SDC_CKPT_FMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/ckpt.h"

struct sdc_ckpt_entry {
    struct sdc_tensor_desc desc; /* its pointers are those below */
    char *name, *dtype_text, *locked, *storage;
    uint64_t *shape;
    char **aliases;
    size_t n_aliases;
    uint64_t stored_size; /* bytes of the file that hold elements */
    uint64_t offset;      /* of the first element, where all lie in one piece; else undefined */
    uint64_t key;         /* the format's own handle, such as an object address */
    bool in_one_piece;
    bool big_endian;
    bool unreadable; /* locked, and sdc_ckpt_read refuses too, with the same reason */
    void *layout;    /* the format's own map of this tensor in one block of sdc__alloc, or NULL */
};

struct sdc_ckpt_name {
    const char *name;
    size_t entry;
};

struct sdc_ckpt {
    const struct sdc_ckpt_fmt_ops *ops;
    struct sdc_file file;
    struct sdc_ckpt_entry *entries;
    size_t n, cap;
    struct sdc_ckpt_name *names; /* all names and aliases, sorted */
    size_t n_names;
    void *priv;
};

struct sdc_ckpt_fmt_ops {
    const char *name;
    const char *summary;
    /* By content only; head holds the first n_head bytes (64 at most). */
    bool (*sniff)(const struct sdc_file *file, const unsigned char *head, size_t n_head);
    enum sdc_status (*open)(struct sdc_ckpt *ckpt, struct sdc_error *err);
    /* Tensors that are neither locked nor in one piece; elem is in range. NULL if there are none.
     */
    enum sdc_status (*map)(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t elem,
                           uint64_t *offset, struct sdc_error *err);
    /* Raw elements in the file's byte order; tensors in one piece never come here. NULL if there
     * are none. */
    enum sdc_status (*read)(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t first,
                            uint64_t n, void *elements, struct sdc_error *err);
    void (*close)(struct sdc_ckpt *ckpt); /* priv only, may be NULL; the rest is ckpt.c's */
};

/* ---- filling the list ---- */

/* Adds an entry with this name (copied; length checked, bytes that are not UTF-8 are shown as \xNN
 * and lock the tensor). Valid until the next add. */
enum sdc_status sdc__ckpt_add(struct sdc_ckpt *ckpt, const char *name,
                              struct sdc_ckpt_entry **entry, struct sdc_error *err) SDC_MUST_CHECK;
/* Checks rank and the product; sets n_elems. */
enum sdc_status sdc__entry_set_shape(struct sdc_ckpt_entry *e, const char *path, unsigned rank,
                                     const uint64_t *shape, struct sdc_error *err) SDC_MUST_CHECK;
/* Printf into one of the texts, replacing what it held; SDC_NO_MEMORY. */
enum sdc_status sdc__entry_text(char **text, struct sdc_error *err, const char *fmt, ...)
    SDC_PRINTF(3, 4) SDC_MUST_CHECK;
/* Locks with this reason unless it is locked already. */
enum sdc_status sdc__entry_lock(struct sdc_ckpt_entry *e, struct sdc_error *err, const char *fmt,
                                ...) SDC_PRINTF(3, 4) SDC_MUST_CHECK;
enum sdc_status sdc__entry_alias(struct sdc_ckpt_entry *e, const char *name,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__entry_release(struct sdc_ckpt_entry *e);

bool sdc__utf8_valid(const char *s, size_t len);
/* product *= factor; false on overflow. */
bool sdc__mul_u64(uint64_t *product, uint64_t factor);
/* Is [offset, offset + len) inside total? By subtraction, so that nothing overflows. */
bool sdc__range_inside(uint64_t offset, uint64_t len, uint64_t total);
/* Reverses the bytes of each of n elements of this size. */
void sdc__swap_elements(void *elements, uint64_t n, unsigned size);
bool sdc__host_big_endian(void);

/* Names what a file is that no format recognised: a Git LFS pointer, HTML, zeros, another known
 * format. Always fails. */
enum sdc_status sdc__ckpt_unrecognised(const struct sdc_file *file, const unsigned char *head,
                                       size_t n_head, struct sdc_error *err);

/* ---- creating ---- */

struct sdc_ckpt_put {
    char *name;
    enum sdc_dtype dtype;
    unsigned rank;
    uint64_t *shape;
    uint64_t n_elems;
    size_t size; /* bytes of data */
    void *data;  /* native order */
};

struct sdc_ckpt_writer_ops {
    const char *name; /* as in sdc_ckpt_fmt_ops */
    /* Refuses a name that the format cannot hold; SDC_USAGE. path is for messages. */
    enum sdc_status (*check_name)(const char *path, const char *name, struct sdc_error *err);
    /* puts: sorted by name, distinct. Equal puts give equal bytes. */
    enum sdc_status (*write)(struct sdc_file *file, const char *path,
                             const struct sdc_ckpt_put *puts, size_t n, struct sdc_error *err);
};

/* ---- the tables ---- */

extern const struct sdc_ckpt_fmt_ops sdc__fmt_hdf5, sdc__fmt_safetensors;
extern const struct sdc_ckpt_writer_ops sdc__writer_hdf5, sdc__writer_safetensors;

const struct sdc_ckpt_fmt_ops *const *sdc__ckpt_fmt_table(size_t *n);
const struct sdc_ckpt_writer_ops *sdc__ckpt_writer_find(const char *format); /* or NULL */

/* "HDF5 built VERSION, running VERSION" of the library behind this file. */
void sdc__hdf5_library(char *text, size_t size);

#endif
