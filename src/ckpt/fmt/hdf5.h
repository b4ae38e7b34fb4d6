/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the HDF5 format share. libhdf5's state is global to the process; it is used
 * under the calling thread's error stack, whose printing is switched off for the time of each call
 * and then restored, so that a host program's own settings stay.
 */
#ifndef SDC_CKPT_FMT_HDF5_H
#define SDC_CKPT_FMT_HDF5_H

#define H5_USE_110_API /* H5O_info_t with addresses, under later libraries too */
#include <hdf5.h>

#include "ckpt/fmt.h"

struct sdc_h5_quiet {
    H5E_auto2_t func;
    void *data;
};
struct sdc_h5_quiet sdc__h5_quiet(void);
void sdc__h5_loud(const struct sdc_h5_quiet *q);
/* "PATH: WHAT: <innermost message of libhdf5's error stack>"; clears the stack. */
enum sdc_status sdc__h5_fail(struct sdc_error *err, enum sdc_status status, const char *path,
                             const char *what);

/* Superblock checks that libhdf5 makes too late or too vaguely: truncation with both sizes, open
 * flags left set. *base: offset of the signature, to which addresses are relative. */
enum sdc_status sdc__h5_superblock(const struct sdc_file *file, uint64_t *base,
                                   struct sdc_error *err);
bool sdc__h5_signature(const struct sdc_file *file, uint64_t *base);

/* Sets dtype, dtype_known, dtype_text, big_endian, and locks what is none of ours. */
enum sdc_status sdc__h5_classify_type(hid_t type, const char *path, struct sdc_ckpt_entry *e,
                                      struct sdc_error *err);
/* A new type for writing, or negative. */
hid_t sdc__h5_make_type(enum sdc_dtype dtype);

/* priv of an open checkpoint. */
struct sdc_h5_state {
    hid_t file;
    uint64_t base;       /* of the signature */
    bool probed;         /* chunk_base is known */
    uint64_t chunk_base; /* what to add to chunk addresses; see sdc__h5_locate */
};

/* Storage, size and place of the elements; locks what has no place of its own. */
enum sdc_status sdc__h5_locate(struct sdc_ckpt *ckpt, hid_t dataset, hid_t type,
                               struct sdc_ckpt_entry *e, struct sdc_error *err);
enum sdc_status sdc__h5_map(struct sdc_ckpt *ckpt, const struct sdc_ckpt_entry *e, uint64_t elem,
                            struct sdc_span *span, struct sdc_error *err);

#endif
