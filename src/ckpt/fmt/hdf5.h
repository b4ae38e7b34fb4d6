/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the HDF5 format share. Object headers of datasets are read by our own bounded
 * parser (hdf5_header.c, hdf5_message.c, hdf5_type.c); groups, chunk indexes and the rarer filters
 * by libhdf5, in a helper process (hdf5_proc.h). This library does not link libhdf5.
 */
#ifndef SDC_CKPT_FMT_HDF5_H
#define SDC_CKPT_FMT_HDF5_H

#include "base/limits.h"
#include "ckpt/fmt.h"
#include "ckpt/fmt/hdf5_proc.h"

#define SDC_H5_UNDEFINED UINT64_MAX /* an address of all ones, whatever its width */

/* ---- the range of a file that is an HDF5 file (hdf5_super.c) ---- */

struct sdc_h5_file {
    const struct sdc_file *file; /* member 0, or what a member of it inflates to */
    const char *path;            /* for messages */
    uint64_t start, size;        /* the range; start is 0 but inside an archive */
    uint64_t base;      /* of the superblock in the range: what addresses are relative to */
    unsigned version;   /* of the superblock */
    unsigned O, L;      /* bytes of an address, of a length */
    uint64_t end;       /* end-of-file address as stored, in the range; 0: not known */
    uint64_t extension; /* address of the superblock's extension, or undefined */
    bool unclean;       /* marked as open for writing; clean is then how it would look */
    unsigned char clean[48];
    uint64_t budget; /* bytes of metadata that may still be read: a bound for hostile files */
    /* what was read last */
    unsigned char *window;
    uint64_t window_at;
    size_t n_window;
};

bool sdc__h5_signature(const struct sdc_file *file, uint64_t start, uint64_t size, uint64_t *base);
/* Fills f but for file, path, start, size, which are set. Refuses what libhdf5 refuses too late or
 * too vaguely: truncation with both sizes, open flags left set unless allow_unclean, drivers of
 * several files. */
enum sdc_status sdc__h5_superblock(struct sdc_h5_file *f, bool allow_unclean,
                                   struct sdc_error *err);
void sdc__h5_file_release(struct sdc_h5_file *f);
/* len bytes at this address (relative to base); SDC_INVALID if they are not inside. */
enum sdc_status sdc__h5_bytes(struct sdc_h5_file *f, uint64_t addr, void *out, size_t len,
                              struct sdc_error *err);
/* Position in member 0 of an address; false if [addr, addr + len) is not inside the range. */
bool sdc__h5_position(const struct sdc_h5_file *f, uint64_t addr, uint64_t len, uint64_t *at);
/* A little-endian number; all ones of n bytes give SDC_H5_UNDEFINED. */
uint64_t sdc__h5_little(const unsigned char *p, unsigned n);

/* ---- object headers (hdf5_header.c) ---- */

enum sdc_h5_message_type {
    SDC_H5_DATASPACE = 0x01,
    SDC_H5_LINK_INFO = 0x02,
    SDC_H5_DATATYPE = 0x03,
    SDC_H5_OLD_FILL = 0x04,
    SDC_H5_FILL = 0x05,
    SDC_H5_EXTERNAL = 0x07,
    SDC_H5_LAYOUT = 0x08,
    SDC_H5_GROUP_INFO = 0x0a,
    SDC_H5_FILTERS = 0x0b,
    SDC_H5_CONTINUATION = 0x10,
    SDC_H5_SYMBOL_TABLE = 0x11,
    SDC_H5_DRIVER_INFO = 0x14
};

struct sdc_h5_message {
    unsigned type, flags;
    unsigned block; /* of the header, that it is in */
    size_t at, len; /* its bytes in the header's text */
};

struct sdc_h5_block {    /* one of the pieces of a header */
    uint64_t addr, size; /* size with the checksum */
    size_t at;           /* of its first byte in the text */
};

/* One header, held until the next is read. */
struct sdc_h5_header {
    uint64_t addr;
    unsigned version;    /* 2: each block ends in a checksum, which was right */
    unsigned char *text; /* the blocks, one after the other */
    size_t len, cap;
    struct sdc_h5_block *blocks;
    size_t n_blocks, cap_blocks;
    struct sdc_h5_message *messages;
    size_t n_messages, cap_messages;
};

/* Replaces what h held. SDC_INVALID, with the address. */
enum sdc_status sdc__h5_header_read(struct sdc_h5_file *f, uint64_t addr, struct sdc_h5_header *h,
                                    struct sdc_error *err);
void sdc__h5_header_release(struct sdc_h5_header *h);
/* The first of this type, or NULL. */
const struct sdc_h5_message *sdc__h5_find(const struct sdc_h5_header *h, unsigned type);

/* ---- datatypes (hdf5_type.c) ---- */

enum sdc_h5_class {
    SDC_H5_INTEGER,
    SDC_H5_FLOAT,
    SDC_H5_TIME,
    SDC_H5_STRING,
    SDC_H5_BITFIELD,
    SDC_H5_OPAQUE,
    SDC_H5_COMPOUND,
    SDC_H5_REFERENCE,
    SDC_H5_ENUM,
    SDC_H5_VARIABLE,
    SDC_H5_ARRAY,
    SDC_H5_COMPLEX,
    SDC_H5_CLASSES
};

/* One leaf of a type: where it is in an element and what it holds. */
struct sdc_h5_field {
    char *name;      /* "a:b" of nested compounds; NULL: the element itself; owned */
    uint64_t offset; /* bytes from the element's first */
    unsigned rank;   /* axes of its own (arrays, complex numbers), behind those of the dataset */
    uint64_t dims[SDC_MAX_RANK], strides[SDC_MAX_RANK]; /* strides in bytes */
    uint64_t count;                                     /* product of dims */
    uint64_t size;                                      /* bytes of one value */
    enum sdc_h5_class class;
    bool known; /* dtype is right */
    enum sdc_dtype dtype;
    bool big_endian;
    bool retype; /* an --as may name its type: opaque, unsigned, unknown floats */
    char text[64];
};

struct sdc_h5_fields {
    uint64_t size; /* bytes of an element of the dataset */
    enum sdc_h5_class class;
    struct sdc_h5_field *all;
    size_t n, cap;
};

/* The leaves of a datatype message; strings and the like are leaves of unknown type. */
enum sdc_status sdc__h5_type(const struct sdc_h5_file *f, const unsigned char *data, size_t len,
                             struct sdc_h5_fields *fields, struct sdc_error *err);
void sdc__h5_fields_release(struct sdc_h5_fields *fields);

/* ---- datasets (hdf5_message.c) ---- */

enum sdc_h5_layout { SDC_H5_COMPACT, SDC_H5_CONTIGUOUS, SDC_H5_CHUNKED, SDC_H5_VIRTUAL };

#define SDC_H5_MAX_FILTERS 32
#define SDC_H5_MAX_VALUES  8

struct sdc_h5_filter {
    unsigned id, flags, n_values;
    uint32_t values[SDC_H5_MAX_VALUES]; /* the first ones */
    char name[32];
};

struct sdc_h5_segment { /* of external storage */
    char *name;
    uint64_t offset, size;
};

/* What the header of a dataset says. */
struct sdc_h5_set {
    uint64_t addr;
    bool is_null; /* a null dataspace: no elements, not even none */
    unsigned rank;
    uint64_t dims[SDC_MAX_RANK], n_elems;
    struct sdc_h5_fields fields;
    enum sdc_h5_layout layout;
    uint64_t data_addr, data_size; /* contiguous: address or undefined; size 0: not said */
    uint64_t compact_at;           /* compact: position in member 0 */
    unsigned compact_block;
    uint64_t chunk[SDC_MAX_RANK];
    bool plain_edges; /* chunks that stick out over an edge are stored without filters */
    struct sdc_h5_filter *filters;
    unsigned n_filters;
    struct sdc_h5_segment *segments;
    size_t n_segments;
    unsigned char *fill; /* of one element, or NULL: zeros */
    char unknown[128];   /* why it cannot be read, or "" */
};

/* Is it the header of a dataset, of a group? */
bool sdc__h5_is_set(const struct sdc_h5_header *h);
bool sdc__h5_is_group(const struct sdc_h5_header *h);
/* SDC_INVALID where the header contradicts itself; what is only unknown is said in set->unknown. */
enum sdc_status sdc__h5_set_read(struct sdc_h5_file *f, const struct sdc_h5_header *h,
                                 struct sdc_h5_set *set, struct sdc_error *err);
void sdc__h5_set_release(struct sdc_h5_set *set);

/* ---- an open checkpoint ---- */

/* Where a chunk is. */
struct sdc_h5_place {
    uint64_t at, size; /* position in member 0, or one of those below */
    uint32_t mask;     /* bit n: filter n was left out */
    bool summed;       /* its Fletcher-32 is among the sums */
};
#define SDC_H5_NOT_ASKED  UINT64_MAX
#define SDC_H5_NOT_STORED (UINT64_MAX - 1)

enum sdc_h5_coding {
    SDC_H5_RAW,      /* chunks are stored as they are */
    SDC_H5_FLETCHER, /* the same, and a Fletcher-32 behind */
    SDC_H5_DECODED,  /* through filters that we undo and redo */
    SDC_H5_ASKED,    /* through filters that libhdf5 alone undoes */
    SDC_H5_UNKNOWN   /* through a filter that is not here */
};
enum sdc_h5_coding sdc__h5_coding(const struct sdc_h5_set *set);

/* A dataset whose elements are not told by pieces. */
struct sdc_h5_kept {
    struct sdc_h5_set set;
    enum sdc_h5_coding coding;
    uint64_t chunk_bytes; /* of a chunk without filters */
    uint64_t grid[SDC_MAX_RANK], n_chunks;
    struct sdc_h5_place *places; /* by chunk in C order of the grid; NULL until one is asked for */
    unsigned *members;           /* of external files, one for each segment */
    uint64_t at;                 /* all elements in C order from here on in s->f.file; 0: not so */
    char *name;                  /* for messages */
};

/* Which part of a dataset's element an entry is: entry.layout. */
struct sdc_h5_part {
    size_t kept;
    uint64_t offset, count;
    unsigned rank;
    uint64_t dims[SDC_MAX_RANK], strides[SDC_MAX_RANK];
};

struct sdc_h5_cached {
    size_t kept;
    uint64_t chunk;
    unsigned char *bytes;
    size_t size;
    uint64_t used;
    bool raw; /* as stored in a file that may change in place */
};

#define SDC_H5_CACHED 64

/* priv of an open checkpoint. */
struct sdc_h5_state {
    struct sdc_h5_file f;
    struct sdc_h5_proc *proc; /* NULL: not started or ended */
    bool in_archive;          /* recoding would change the size of a member of an archive */
    struct sdc_file inflated; /* open if the HDF5 file is a deflated member: f.file is this one */
    struct sdc_h5_kept *kept;
    size_t n_kept, cap_kept;
    uint64_t *sets; /* addresses of all datasets */
    size_t n_sets;
    uint64_t *summed; /* addresses of header blocks whose checksum is among the sums, sorted */
    size_t n_summed, cap_summed;
    struct sdc_h5_cached cache[SDC_H5_CACHED];
    size_t cached_bytes;
    uint64_t clock;
    unsigned char *scratch; /* of sdc__h5_read */
};

/* Adds the entries of a dataset (hdf5_sets.c). */
struct sdc_h5_found {
    const struct sdc_h5_header *header;
    struct sdc_h5_set *set; /* taken over if it is kept */
    const char *label;      /* of its attribute "dtype", or "" */
    uint64_t n_chunks, stored;
    bool beyond;              /* libhdf5 is too old for it */
    const char *const *names; /* the first is the entry's */
    size_t n_names;
};
enum sdc_status sdc__h5_add_set(struct sdc_ckpt *ckpt, struct sdc_h5_found *found,
                                struct sdc_error *err);

/* ---- chunks (hdf5_chunk.c) ---- */

/* The place of a chunk; also asks for up to `ahead` that follow, if it has to ask. */
enum sdc_status sdc__h5_place(struct sdc_ckpt *ckpt, size_t kept, uint64_t chunk, unsigned ahead,
                              struct sdc_h5_place **place, struct sdc_error *err);
/* Its filters that were left out, one bit each, partial edges considered. */
uint32_t sdc__h5_mask(const struct sdc_h5_kept *k, uint64_t chunk, const struct sdc_h5_place *p);
/* The first element of a chunk. */
void sdc__h5_corner(const struct sdc_h5_kept *k, uint64_t chunk, uint64_t *corner);
/* "tensor NAME, chunk [0,1]" */
void sdc__h5_chunk_text(const struct sdc_h5_kept *k, uint64_t chunk, char *text, size_t size);
/* Chunk and byte in it of a dataset's element. */
void sdc__h5_inside(const struct sdc_h5_kept *k, uint64_t elem, uint64_t *chunk, uint64_t *byte);
/* Bytes from the first of a dataset's element to value `sub` of a part. */
uint64_t sdc__h5_sub_offset(const struct sdc_h5_part *part, uint64_t sub);
/* The chunk as stored, decoded into fresh memory of k->chunk_bytes (sdc__free). */
enum sdc_status sdc__h5_load(struct sdc_ckpt *ckpt, const struct sdc_h5_kept *k, uint64_t chunk,
                             const struct sdc_h5_place *p, unsigned char **bytes,
                             struct sdc_error *err);

/* ---- filters (hdf5_filter.c) ---- */

#define SDC_H5_DEFLATE     1u
#define SDC_H5_SHUFFLE     2u
#define SDC_H5_FLETCHER32  3u
#define SDC_H5_SZIP        4u
#define SDC_H5_NBIT        5u
#define SDC_H5_SCALEOFFSET 6u
#define SDC_H5_LZF         32000u

/* "gzip", "lzf", or "NAME (id N)". */
const char *sdc__h5_filter_name(const struct sdc_h5_filter *f, char *text, size_t size);
/* Undoes the filters of a chunk. in is taken over; *out has exactly chunk_bytes. */
enum sdc_status sdc__h5_decode(const struct sdc_h5_set *set, uint32_t mask, unsigned char *in,
                               size_t n, size_t chunk_bytes, unsigned char **out, const char *what,
                               struct sdc_error *err);
/* Applies them again, as libhdf5 would: *mask gets the bits of optional filters that did not make
 * the chunk smaller. in is taken over. */
enum sdc_status sdc__h5_encode(const struct sdc_h5_set *set, uint32_t *mask, unsigned char *in,
                               size_t n, unsigned char **out, size_t *n_out, const char *what,
                               struct sdc_error *err);

/* Opens the HDF5 file in [start, start + size) of member 0 into entries, sums and notes.
 * in_archive: it is a member of an archive. inflated: NULL, or the HDF5 file itself (start 0),
 * which is taken over; all its tensors are locked. */
enum sdc_status sdc__h5_open(struct sdc_ckpt *ckpt, uint64_t start, uint64_t size, bool in_archive,
                             struct sdc_file *inflated, struct sdc_error *err);
enum sdc_status sdc__h5_map(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t elem,
                            struct sdc_span *span, struct sdc_error *err);
enum sdc_status sdc__h5_read(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t first,
                             uint64_t n, void *elements, struct sdc_error *err);
enum sdc_status sdc__h5_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err);
enum sdc_status sdc__h5_recode(struct sdc_ckpt *ckpt, unsigned member,
                               const struct sdc_ckpt_edit *edits, size_t n, struct sdc_file *to,
                               struct sdc_error *err);
void sdc__h5_close(struct sdc_ckpt *ckpt);

#endif
