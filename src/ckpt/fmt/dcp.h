/* SPDX-License-Identifier: Apache-2.0
 *
 * A distributed checkpoint of PyTorch while it is opened. For dcp*.c alone.
 */
#ifndef SDC_CKPT_FMT_DCP_H
#define SDC_CKPT_FMT_DCP_H

#include "base/str.h"
#include "ckpt/fmt/torch.h"

struct sdc_dcp_slot { /* of storage_data, sorted by hash */
    uint64_t hash;
    uint32_t key, value;
};

struct sdc_dcp_blob { /* an archive in a data file; kept until the checkpoint is closed */
    uint64_t offset, length;
    unsigned file;
};

struct sdc_dcp_state { /* ckpt->priv */
    struct sdc_dcp_blob *blobs;
    size_t n, cap;
};

struct sdc_dcp {
    struct sdc_ckpt *ckpt;
    char *folder;
    struct sdc_pk *pk;
    uint32_t tensors, storage, planner; /* dicts of the metadata */
    bool has_planner;
    struct sdc_dcp_slot *slots;
    size_t n_slots;
    struct sdc_torch paths; /* names of data files, as its storages; file k is member 1 + k */
    struct sdc_buf objects; /* names of items that are no tensors, for the note */
    size_t n_objects;
};

/* Where the bytes of an item are. */
struct sdc_dcp_info {
    unsigned file;
    uint64_t offset, length;
    char transform[64]; /* not empty: they are encoded */
};

/* ---- dcp_meta.c ---- */
/* Reads .metadata (member 0) and adds all data files as members. */
enum sdc_status sdc__dcp_read_metadata(struct sdc_dcp *d, struct sdc_error *err) SDC_MUST_CHECK;
/* A field of a dataclass; false if there is none. */
bool sdc__dcp_field(const struct sdc_pk *pk, uint32_t object, const char *name, uint32_t *value);
/* Numbers of a torch.Size or tuple; at most SDC_MAX_RANK. */
bool sdc__dcp_numbers(const struct sdc_pk *pk, uint32_t id, uint64_t *values, unsigned *n);
/* rank SDC_MAX_RANK + 1: an item that is no tensor. false: it is not in storage_data. */
bool sdc__dcp_find(const struct sdc_dcp *d, const char *fqn, unsigned rank, const uint64_t *offsets,
                   uint32_t *info);
enum sdc_status sdc__dcp_info(const struct sdc_dcp *d, const char *fqn, uint32_t id,
                              struct sdc_dcp_info *info, struct sdc_error *err) SDC_MUST_CHECK;

#endif
