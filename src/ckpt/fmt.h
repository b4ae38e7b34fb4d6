/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint format implements, and the list of tensors that every format fills. Not for
 * users of checkpoints: those include sdc/ckpt.h.
 *
 * Opening: the first format whose sniff says yes gets open, which adds files (a set), entries
 * (sdc__ckpt_add and the setters), sums and notes, and keeps its own state in ckpt->priv. ckpt.c
 * then sorts, classifies and checks every piece against the size of its file. A new format joins
 * the table in formats.c and the conformance suite in tests/conform.
 *
 * Where elements are: most formats say it by pieces (layout.c maps and reads those). A format whose
 * storage is none (chunks behind an index, compressed members) gives map and read.
 */
#ifndef SDC_CKPT_FMT_H
#define SDC_CKPT_FMT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/ckpt.h"

/* A box of a tensor, or all of it, whose elements lie at regular distances in one file.
 *
 * Element k of the box in C order has coordinates over dims (which may split or merge the tensor's
 * own dimensions; their product is the number of elements of the box) and begins at bit
 * `bit + sum of coordinate * stride`. Bit b of a file is bit b % 8, from the least significant, of
 * byte b / 8. Strides may be 0, never negative. Elements of 8 bits and more begin at whole bytes;
 * smaller ones never cross a byte. */
struct sdc_ckpt_piece {
    unsigned file;
    uint64_t bit; /* of the first element */
    unsigned n_dims;
    const uint64_t *dims, *strides; /* n_dims each; strides in bits */
    const uint64_t *begin, *size;   /* the box: one each per dimension of the tensor; NULL: all */
};

struct sdc_ckpt_entry {
    struct sdc_tensor_desc desc; /* its pointers are those below */
    char *name, *dtype_text, *locked, *shared, *storage, *recoded;
    uint64_t *shape;
    char **aliases;
    size_t n_aliases;
    struct sdc_ckpt_piece *pieces; /* each with its arrays in one block; none: ops->map and read */
    size_t n_pieces;
    struct sdc_ckpt_cells *cells; /* which of many boxes; NULL: few, or look at each; owned */
    bool packed; /* one piece, C order without gaps, elements of whole bytes; set by finish */
    uint64_t stored_size; /* bytes of the files that hold elements */
    uint64_t key, key2;   /* the format's own handles, such as an object address */
    bool big_endian;
    bool unreadable; /* locked, and sdc_ckpt_read refuses too, with the same reason */
    void *layout;    /* the format's own map of this tensor in one block of sdc__alloc, or NULL */
};

struct sdc_ckpt_name {
    const char *name;
    size_t entry;
};

struct sdc_ckpt_member { /* a file of the checkpoint */
    char *name, *path;
    struct sdc_file file; /* opened when first asked for */
    uint64_t size;
    bool links_out; /* a symbolic link out of the set's folder */
};

struct sdc_ckpt {
    const struct sdc_ckpt_fmt_ops *ops;
    char *path; /* as given */
    char *name; /* of the set, one for all ways to name it; set by open, else by finish; owned */
    const struct sdc_file *file; /* of member 0, open; NULL while there is none */
    struct sdc_file_pool *pool;  /* of the members of a set; NULL: there are none */
    struct sdc_ckpt_member **members;
    size_t n_members;
    const struct sdc_ckpt_options *options; /* during open only; never NULL then */
    struct sdc_ckpt_entry *entries;
    size_t n, cap;
    struct sdc_ckpt_name *names; /* all names and aliases, sorted */
    size_t n_names;
    struct sdc_ckpt_sum *sums;
    size_t n_sums, cap_sums;
    bool all_sums;
    bool keep_sums; /* recode leaves stored checksums as they are, and counts them */
    uint64_t n_kept_sums;
    struct sdc_ckpt_note *notes;
    size_t n_notes, cap_notes;
    pthread_mutex_t lock;        /* held around ops->map, read and find_sums */
    pthread_mutex_t member_lock; /* held around the opening of members; taken after lock */
    void *priv;
};

/* What open was pointed at. */
struct sdc_ckpt_source {
    const char *path;
    bool is_folder;
    const struct sdc_file *file; /* NULL: a folder, or nothing of this name (a prefix of a set) */
    const unsigned char *head;   /* its first bytes */
    size_t n_head;               /* 64 at most */
};

struct sdc_ckpt_fmt_ops {
    const char *name;
    const char *summary;
    /* false: member 0 is the file that was sniffed, open. true: open adds all members. */
    bool is_set;
    bool (*sniff)(const struct sdc_ckpt_source *source);
    enum sdc_status (*open)(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                            struct sdc_error *err);
    /* Elements of entries without pieces that are neither locked nor recoded; elem is in range.
     * span: file and offset are to be set. Registers the sums of what it maps (once each). NULL if
     * there are none. Under ckpt->lock. */
    enum sdc_status (*map)(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t elem,
                           struct sdc_span *span, struct sdc_error *err);
    /* Raw elements in the file's byte order of entries without pieces. NULL if there are none.
     * Under ckpt->lock. */
    enum sdc_status (*read)(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t first,
                            uint64_t n, void *elements, struct sdc_error *err);
    /* Registers the sums that open and map left out; NULL: there are none. */
    enum sdc_status (*find_sums)(struct sdc_ckpt *ckpt, struct sdc_error *err);
    /* Applies edits of recoded tensors of one member to `to`, which is a whole copy of that member
     * (open for reading and writing, its path is a file's of its own); may rewrite it from the
     * ground. Edits: sorted by (tensor, element). Stored
     * checksums are right afterwards unless ckpt->keep_sums. NULL: no
     * recoded tensors. */
    enum sdc_status (*recode)(struct sdc_ckpt *ckpt, unsigned member,
                              const struct sdc_ckpt_edit *edits, size_t n, struct sdc_file *to,
                              struct sdc_error *err);
    /* Which member holds a recoded tensor; NULL: member 0. */
    unsigned (*member_of)(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e);
    void (*close)(struct sdc_ckpt *ckpt); /* priv only, may be NULL; the rest is ckpt.c's */
};

/* ---- filling the list ---- */

/* Names the set: by the folder, or, if `name` is not empty, by that file or prefix in it. */
enum sdc_status sdc__ckpt_set_name(struct sdc_ckpt *ckpt, const char *folder, const char *name,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* Adds a member of a set: name relative to the set's folder (never absolute, no ".." part:
 * SDC_INVALID "unsafe path"), path to open it. Its size is asked for now, it is opened when needed.
 * SDC_INVALID "incomplete set" if it is missing. *index may be NULL. */
enum sdc_status sdc__ckpt_add_member(struct sdc_ckpt *ckpt, const char *name, const char *path,
                                     unsigned *index, struct sdc_error *err) SDC_MUST_CHECK;
/* The file of a member; borrowed until close. Of a set no more are open at a time than the limit on
 * descriptors allows. */
enum sdc_status sdc__ckpt_member(struct sdc_ckpt *ckpt, unsigned index,
                                 const struct sdc_file **file,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* Adds an entry with this name (copied; length checked, bytes that are not UTF-8 are shown as \xNN
 * and lock the tensor). Valid until the next add. */
enum sdc_status sdc__ckpt_add(struct sdc_ckpt *ckpt, const char *name,
                              struct sdc_ckpt_entry **entry, struct sdc_error *err) SDC_MUST_CHECK;
/* Checks rank and the product; sets n_elems. */
enum sdc_status sdc__entry_set_shape(struct sdc_ckpt_entry *e, const char *path, unsigned rank,
                                     const uint64_t *shape, struct sdc_error *err) SDC_MUST_CHECK;
/* Sets dtype, dtype_known and, unless it is set, dtype_text. */
enum sdc_status sdc__entry_set_dtype(struct sdc_ckpt_entry *e, enum sdc_dtype dtype,
                                     struct sdc_error *err) SDC_MUST_CHECK;
/* A type that options->as gives to this name and element size in bits, if any. */
bool sdc__ckpt_as(const struct sdc_ckpt *ckpt, const char *name, unsigned bits,
                  enum sdc_dtype *dtype);
/* Adds a piece; arrays are copied. */
enum sdc_status sdc__entry_piece(struct sdc_ckpt_entry *e, const struct sdc_ckpt_piece *piece,
                                 struct sdc_error *err) SDC_MUST_CHECK;
/* All elements in C order without gaps from this byte on; shape and type must be set. */
enum sdc_status sdc__entry_contiguous(struct sdc_ckpt_entry *e, unsigned file, uint64_t offset,
                                      struct sdc_error *err) SDC_MUST_CHECK;
/* Printf into one of the texts, replacing what it held; SDC_NO_MEMORY. */
enum sdc_status sdc__entry_text(char **text, struct sdc_error *err, const char *fmt, ...)
    SDC_PRINTF(3, 4) SDC_MUST_CHECK;
/* Locks with this reason unless it is locked already. */
enum sdc_status sdc__entry_lock(struct sdc_ckpt_entry *e, struct sdc_error *err, const char *fmt,
                                ...) SDC_PRINTF(3, 4) SDC_MUST_CHECK;
enum sdc_status sdc__entry_alias(struct sdc_ckpt_entry *e, const char *name,
                                 struct sdc_error *err) SDC_MUST_CHECK;
void sdc__entry_release(struct sdc_ckpt_entry *e);

/* Adds a sum (what is copied; ranges and places are checked against the members' sizes). */
enum sdc_status sdc__ckpt_add_sum(struct sdc_ckpt *ckpt, const struct sdc_ckpt_sum *sum,
                                  struct sdc_error *err) SDC_MUST_CHECK;
enum sdc_status sdc__ckpt_add_note(struct sdc_ckpt *ckpt, enum sdc_note_kind kind,
                                   struct sdc_error *err, const char *fmt, ...)
    SDC_PRINTF(4, 5) SDC_MUST_CHECK;

/* ---- pieces (layout.c) ---- */

/* Checks all pieces against type, shape and files; sets packed. */
enum sdc_status sdc__layout_check(const struct sdc_ckpt *ckpt, struct sdc_ckpt_entry *e,
                                  struct sdc_error *err) SDC_MUST_CHECK;
/* layout_index.c: a table of the boxes of many pieces, where they are a grid or nearly so, and the
 * first box that holds the element with these coordinates by it; NULL: none. */
enum sdc_status sdc__layout_index(struct sdc_ckpt_entry *e, struct sdc_error *err) SDC_MUST_CHECK;
const struct sdc_ckpt_piece *sdc__layout_box(const struct sdc_ckpt_entry *e, const uint64_t *coord);
void sdc__layout_cells_free(struct sdc_ckpt_cells *cells); /* accepts NULL */
/* elem is in range. SDC_UNSUPPORTED where no piece holds it. */
enum sdc_status sdc__layout_map(const struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                uint64_t elem, struct sdc_span *span,
                                struct sdc_error *err) SDC_MUST_CHECK;
/* In the file's byte order, small types one a byte; thread-safe. */
enum sdc_status sdc__layout_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e,
                                 uint64_t first, uint64_t n, void *elements,
                                 struct sdc_error *err) SDC_MUST_CHECK;

/* Is it "STEM-00002-of-00003" and suffix (or "STEM_00002-of-00003")? Then the length of STEM and
 * the two numbers, 1 <= no <= count. */
bool sdc__shard_name(const char *name, const char *suffix, size_t *stem, uint64_t *no,
                     uint64_t *count);
/* Does the beginning of the file say that it is an index of shards, a JSON object with
 * "weight_map", and does it hold this word, if one is given? */
bool sdc__is_weight_map(const struct sdc_file *f, const char *word);
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
enum sdc_status sdc__ckpt_unrecognised(const struct sdc_ckpt_source *source, struct sdc_error *err);

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

extern const struct sdc_ckpt_fmt_ops sdc__fmt_hdf5, sdc__fmt_keras, sdc__fmt_keras_shards,
    sdc__fmt_tensorbundle, sdc__fmt_gguf, sdc__fmt_safetensors;
extern const struct sdc_ckpt_fmt_ops sdc__fmt_torch, sdc__fmt_torch_legacy, sdc__fmt_dcp;
extern const struct sdc_ckpt_fmt_ops sdc__fmt_npy, sdc__fmt_npz, sdc__fmt_safetensors_set;
extern const struct sdc_ckpt_writer_ops sdc__writer_hdf5, sdc__writer_safetensors;

const struct sdc_ckpt_fmt_ops *const *sdc__ckpt_fmt_table(size_t *n);
const struct sdc_ckpt_writer_ops *sdc__ckpt_writer_find(const char *format); /* or NULL */

/* "HDF5 built VERSION, running VERSION" of the library behind this file. */
void sdc__hdf5_library(char *text, size_t size);

#endif
