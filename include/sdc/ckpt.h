/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: which tensors, where each element's bytes are, reading and creating. Never
 * changes an existing file; that is sdc/alter.h.
 *
 *     struct sdc_ckpt *ckpt;
 *     sdc_ckpt_open("a.h5", &ckpt, &err);
 *     for (size_t i = 0; i < sdc_ckpt_count(ckpt); i++)
 *         puts(sdc_ckpt_tensor(ckpt, i)->name);
 *     sdc_ckpt_close(ckpt);
 *
 * Every size and offset that comes from a file is checked before use. One thread per object.
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

/* Recognises the format by content, never by name. SDC_NOT_FOUND, SDC_IO, SDC_INVALID (truncated or
 * damaged, with offset), SDC_UNSUPPORTED (names what it is and what is supported). */
SDC_API enum sdc_status sdc_ckpt_open(const char *path, struct sdc_ckpt **ckpt,
                                      struct sdc_error *err) SDC_MUST_CHECK;
SDC_API void sdc_ckpt_close(struct sdc_ckpt *ckpt); /* accepts NULL */

SDC_API const char *sdc_ckpt_path(const struct sdc_ckpt *ckpt);
SDC_API const char *sdc_ckpt_format(const struct sdc_ckpt *ckpt); /* "hdf5", "safetensors" */
SDC_API uint64_t sdc_ckpt_file_size(const struct sdc_ckpt *ckpt);
SDC_API size_t sdc_ckpt_count(const struct sdc_ckpt *ckpt);
/* Sorted by name, bytewise. Borrowed until close. */
SDC_API const struct sdc_tensor_desc *sdc_ckpt_tensor(const struct sdc_ckpt *ckpt, size_t i);
/* Index of the tensor of this exact name (an alias counts too); false if there is none. */
SDC_API bool sdc_ckpt_find(const struct sdc_ckpt *ckpt, const char *name, size_t *i);
/* Other names of the same tensor (hard and soft links); n may be 0. Borrowed. */
SDC_API const char *const *sdc_ckpt_aliases(const struct sdc_ckpt *ckpt, size_t i, size_t *n);
/* Storage in a few words, such as "contiguous" or "chunked 10x10"; borrowed. */
SDC_API const char *sdc_ckpt_storage(const struct sdc_ckpt *ckpt, size_t i);
/* Bytes from the file that hold this tensor's elements. */
SDC_API uint64_t sdc_ckpt_stored_size(const struct sdc_ckpt *ckpt, size_t i);

/* Where one element is. */
struct sdc_span {
    uint64_t offset; /* of its first byte in the file */
    unsigned size;   /* bytes */
    bool big_endian;
};
/* SDC_UNSUPPORTED with the reason if the tensor is locked or this element has no storage; SDC_USAGE
 * if elem is out of range. The span always lies inside the file. */
SDC_API enum sdc_status sdc_ckpt_map(struct sdc_ckpt *ckpt, size_t tensor, uint64_t elem,
                                     struct sdc_span *span, struct sdc_error *err) SDC_MUST_CHECK;

/* n elements from `first` on, in C order, native byte order, into memory of n * element bytes.
 * Works for locked tensors where the format can still be read; else SDC_UNSUPPORTED. */
SDC_API enum sdc_status sdc_ckpt_read(struct sdc_ckpt *ckpt, size_t tensor, uint64_t first,
                                      uint64_t n, void *elements,
                                      struct sdc_error *err) SDC_MUST_CHECK;

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
