/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: which tensors, where each element's bits are, which checksums cover them; reading
 * and creating. Never changes an existing file; that is sdc/alter.h.
 *
 *     struct sdc_ckpt *ckpt;
 *     sdc_ckpt_open("a.h5", NULL, &ckpt, &err);
 *     for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
 *         puts(sdc_ckpt_tensor(ckpt, i)->name);
 *     sdc_ckpt_close(ckpt);
 *
 * A checkpoint is one file or a set of files (shards behind an index, a folder). Every size and
 * offset that comes from a file is checked before use.
 *
 * Names: a tensor is called as in its file; parts of stored elements are tensors of their own,
 * NAME:PART (fields of structured types, scales and quants of quantised blocks). Complex numbers
 * are listed as their components, with a last axis of length 2.
 *
 * One thread per object, but sdc_ckpt_read and sdc_ckpt_map may be called from several threads at a
 * time, and so may all functions that take a const pointer.
 */
#ifndef SDC_CKPT_H
#define SDC_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdc/status.h"
#include "sdc/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sdc_ckpt;

/* ---- opening ---- */

/* A type for tensors whose file does not say it ("--as bf16"): those whose name matches glob and
 * whose elements have this size. */
struct sdc_ckpt_as {
    const char *glob;
    enum sdc_dtype dtype;
};

struct sdc_ckpt_options {
    const struct sdc_ckpt_as *as; /* the first that matches counts */
    size_t n_as;
    uint64_t max_header; /* bytes of header accepted; 0: of safetensors the reference reader's
                            limit, of NumPy's arrays 16 MiB */
    bool allow_unclean;  /* HDF5: look at a file whose writer did not close it */
};

/* path: a file, an index of a set, the prefix of one, or the folder of one. Recognises the format
 * by content, never by name. options may be NULL. SDC_NOT_FOUND, SDC_IO, SDC_INVALID (truncated or
 * damaged, with offset; a set of which a file is missing), SDC_UNSUPPORTED (names what it is and
 * what is supported). */
SDC_API enum sdc_status sdc_ckpt_open(const char *path, const struct sdc_ckpt_options *options,
                                      struct sdc_ckpt **ckpt, struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_ckpt_close(struct sdc_ckpt *ckpt); /* accepts NULL */

SDC_API const char *sdc_ckpt_path(const struct sdc_ckpt *ckpt); /* as given to open */
/* What names of files that go with it begin with (NAME.seal, NAME.sdc.jsonl): its path, ended by a
 * name (that of the folder, where the path is "."); of a set one and the same however it was named:
 * its folder; the prefix of a TensorFlow checkpoint; the first part of a GGUF model; the index
 * of Keras' shards, or where the folder has several. Borrowed. */
SDC_API const char *sdc_ckpt_name(const struct sdc_ckpt *ckpt);
SDC_API const char *sdc_ckpt_format(const struct sdc_ckpt *ckpt); /* "hdf5", "safetensors", ... */

/* The files that the checkpoint consists of. One file: number 0, named by its base name. A set:
 * names relative to the set's folder, the index first if there is one. */
struct sdc_ckpt_file {
    const char *name; /* relative; borrowed */
    const char *path; /* to open it; borrowed */
    uint64_t size;
    bool
        links_out; /* of a set: a symbolic link out of its folder, which is never written through */
};
SDC_API size_t sdc_ckpt_files(const struct sdc_ckpt *ckpt);
SDC_API struct sdc_ckpt_file sdc_ckpt_file(const struct sdc_ckpt *ckpt, size_t i);
SDC_API bool sdc_ckpt_is_set(const struct sdc_ckpt *ckpt);        /* opened by more than one file */
SDC_API uint64_t sdc_ckpt_file_size(const struct sdc_ckpt *ckpt); /* of all files together */

/* Findings that are no errors. */
enum sdc_note_kind {
    SDC_NOTE_INFO,    /* worth knowing: a storage holds bytes of no tensor */
    SDC_NOTE_WARNING, /* deviates from what writers do: trailing bytes, a wrong total_size */
    SDC_NOTE_SECURITY /* could do harm to a trusting reader: links out of the file, unknown globals
                       */
};
struct sdc_ckpt_note {
    enum sdc_note_kind kind;
    const char *text; /* borrowed */
};
SDC_API size_t sdc_ckpt_notes(const struct sdc_ckpt *ckpt);
SDC_API struct sdc_ckpt_note sdc_ckpt_note(const struct sdc_ckpt *ckpt, size_t i);

/* ---- tensors ---- */

SDC_API size_t sdc_ckpt_count(const struct sdc_ckpt *ckpt);
/* Sorted by name, bytewise. Borrowed until close. */
SDC_API const struct sdc_tensor_desc *sdc_ckpt_tensor(const struct sdc_ckpt *ckpt, size_t i);
/* Index of the tensor of this exact name (an alias counts too); false if there is none. */
SDC_API bool sdc_ckpt_find(const struct sdc_ckpt *ckpt, const char *name, size_t *i);
/* Other names of the same tensor (links, tied weights); n may be 0. Borrowed. */
SDC_API const char *const *sdc_ckpt_aliases(const struct sdc_ckpt *ckpt, size_t i, size_t *n);
/* Storage in a few words, such as "contiguous" or "chunked 10x10"; borrowed. */
SDC_API const char *sdc_ckpt_storage(const struct sdc_ckpt *ckpt, size_t i);
/* NULL where elements can be patched in place; else how they are stored ("gzip", "deflate"):
 * altering them writes their storage anew, on a copy that replaces the file. Borrowed. */
SDC_API const char *sdc_ckpt_recoded(const struct sdc_ckpt *ckpt, size_t i);
/* The number of the file whose storage that is; 0 where recoded says NULL. */
SDC_API unsigned sdc_ckpt_recoded_file(const struct sdc_ckpt *ckpt, size_t i);
/* Writes the storage of n elements anew in the file `to`, a whole copy of file number `file` of the
 * checkpoint, so that they get these values. Stored checksums of that storage are mended, or with
 * `stale` left as they were, and *n_stale of them are wrong then (SDC_UNSUPPORTED where that cannot
 * be). Edits: sorted by tensor and element, of recoded tensors
 * of that file. Where other elements are in `to` is for a new sdc_ckpt_open to say. */
struct sdc_ckpt_edit {
    size_t tensor;
    uint64_t elem, raw;
};
SDC_API enum sdc_status sdc_ckpt_recode(struct sdc_ckpt *ckpt, unsigned file,
                                        const struct sdc_ckpt_edit *edits, size_t n, const char *to,
                                        bool stale, uint64_t *n_stale,
                                        struct sdc_error *err) SDC_MUST_CHECK;
/* Bytes of the files that hold this tensor's elements. */
SDC_API uint64_t sdc_ckpt_stored_size(const struct sdc_ckpt *ckpt, size_t i);

/* Where one element is. Its raw value is the value of `size` bytes at offset, in the given order,
 * shifted right by `shift` and cut to the bits of its type. */
struct sdc_span {
    unsigned file;   /* number of the file */
    uint64_t offset; /* of its first byte in that file */
    unsigned size;   /* bytes, 1 to 8 */
    unsigned shift;  /* 0 but for types under 8 bits */
    bool big_endian;
};
/* SDC_UNSUPPORTED with the reason if the tensor is locked or recoded or this element has no
 * storage; SDC_USAGE if elem is out of range. The span always lies inside the file. */
SDC_API enum sdc_status sdc_ckpt_map(struct sdc_ckpt *ckpt, size_t tensor, uint64_t elem,
                                     struct sdc_span *span, struct sdc_error *err) SDC_MUST_CHECK;

/* n elements from `first` on, in C order, native byte order, into memory of n * sdc_dtype_bytes
 * (types under 8 bits: one element a byte, in its low bits).
 * Works for locked tensors where the format can still be read; else SDC_UNSUPPORTED. */
SDC_API enum sdc_status sdc_ckpt_read(struct sdc_ckpt *ckpt, size_t tensor, uint64_t first,
                                      uint64_t n, void *elements,
                                      struct sdc_error *err) SDC_MUST_CHECK;

/* ---- stored checksums ---- */

enum sdc_sum_kind {
    SDC_SUM_CRC32,         /* of a zip member */
    SDC_SUM_CRC32C,        /* plain */
    SDC_SUM_CRC32C_MASKED, /* LevelDB's and TensorFlow's masking */
    SDC_SUM_FLETCHER32,    /* as HDF5 computes and stores it */
    SDC_SUM_LOOKUP3        /* of HDF5 metadata */
};
SDC_API const char *sdc_sum_kind_name(enum sdc_sum_kind kind); /* "CRC-32", ... */

/* A stored checksum, the bytes it covers and where it is stored. What a sum covers may contain the
 * stored value of another: that one then has a lower level and is to be mended first. */
struct sdc_ckpt_sum {
    enum sdc_sum_kind kind;
    const char *what;      /* the object it belongs to, such as "member data/0"; "tensor NAME" where
                              it is one whole tensor; borrowed */
    unsigned file;         /* that holds the covered bytes */
    uint64_t offset, size; /* of the covered bytes */
    bool deflated;         /* covers what these bytes inflate to, of inflated_size bytes */
    uint64_t inflated_size;
    unsigned n_places; /* 1 or 2 where the 4 bytes are stored, little-endian; 0: nowhere */
    struct {
        unsigned file;
        uint64_t offset;
    } places[2];
    bool unknown;     /* the writer left it out (stored as 0): neither checked nor mended */
    uint32_t initial; /* of CRC kinds: the CRC of what goes before the covered bytes (lengths that
                         the writer summed in another form than it stored); 0: nothing */
    unsigned level;
};
/* All sums of the checkpoint. Some formats only look for those of mapped elements until this is
 * called. */
SDC_API enum sdc_status sdc_ckpt_find_sums(struct sdc_ckpt *ckpt,
                                           struct sdc_error *err) SDC_MUST_CHECK;
/* Those known by now: of every element that was mapped, and all others after
 * sdc_ckpt_find_sums. Borrowed until the next map or find. */
SDC_API size_t sdc_ckpt_sums(const struct sdc_ckpt *ckpt);
SDC_API const struct sdc_ckpt_sum *sdc_ckpt_sum(const struct sdc_ckpt *ckpt, size_t i);

/* ---- creating ----
 *
 * new, put every tensor, then commit (which reports) or abandon (for clean-up after a failure,
 * which cannot fail and leaves nothing behind). The file appears under its name only at commit:
 * temporary name, sync, rename. An existing file is replaced only if `replace`, else SDC_EXISTS at
 * new. Tensors are sorted by name, so that equal states give byte-identical files in any order of
 * puts; they are held in memory until commit. */
struct sdc_ckpt_writer;

/* format: "hdf5" or "safetensors". */
SDC_API enum sdc_status sdc_ckpt_writer_new(const char *path, const char *format, bool replace,
                                            struct sdc_ckpt_writer **writer,
                                            struct sdc_error *err) SDC_MUST_CHECK;
/* desc: name, dtype, rank, shape are used. data: elements in C order, native order; copied. */
SDC_API enum sdc_status sdc_ckpt_writer_put(struct sdc_ckpt_writer *writer,
                                            const struct sdc_tensor_desc *desc, const void *data,
                                            struct sdc_error *err) SDC_MUST_CHECK;
/* Frees the writer on success only: after a failure of put or commit, abandon it. */
SDC_API enum sdc_status sdc_ckpt_writer_commit(struct sdc_ckpt_writer *writer, bool sync,
                                               struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_ckpt_writer_abandon(struct sdc_ckpt_writer *writer); /* accepts NULL */

/* Format names in order of recognition, for help texts; n of them. */
SDC_API const char *const *sdc_ckpt_formats(size_t *n);

#ifdef __cplusplus
}
#endif
#endif
