/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the TensorBundle format: which files make up a bundle
 * (tensorbundle_set.c), its entries (tensorbundle.c), checksums of strings
 * (tensorbundle_strings.c), names from the object graph (tensorbundle_graph.c).
 */
#ifndef SDC_CKPT_FMT_TENSORBUNDLE_H
#define SDC_CKPT_FMT_TENSORBUNDLE_H

#include "ckpt/fmt.h"
#include "ckpt/sstable.h"

struct sdc_tb_set {
    char *folder; /* that members are named relative to; owned */
    char *prefix; /* relative to it, such as "ckpt-1" or "variables/variables"; owned */
    bool saved_model;
};

/* Does the path stand for a bundle: its index, a data file, the prefix, a folder? */
bool sdc__tb_sniff(const struct sdc_ckpt_source *source);
/* Which one. SDC_USAGE, naming all, where a folder holds several and none is marked. */
enum sdc_status sdc__tb_find(struct sdc_ckpt *ckpt, const struct sdc_ckpt_source *source,
                             struct sdc_tb_set *set, struct sdc_error *err) SDC_MUST_CHECK;
void sdc__tb_set_release(struct sdc_tb_set *set);
/* Adds a file of the set by its name relative to the folder. */
enum sdc_status sdc__tb_member(struct sdc_ckpt *ckpt, const struct sdc_tb_set *set,
                               const char *name, unsigned *index,
                               struct sdc_error *err) SDC_MUST_CHECK;
/* Adds what a copy of the set needs beside index and data: the marker, the program of a
 * SavedModel. */
enum sdc_status sdc__tb_companions(struct sdc_ckpt *ckpt, const struct sdc_tb_set *set,
                                   struct sdc_error *err) SDC_MUST_CHECK;

/* What the checksum of a tensor of strings needs, kept until someone asks for checksums. */
struct sdc_tb_strings {
    char *what; /* owned */
    uint64_t n; /* strings */
    unsigned file;
    uint64_t offset, size, crc_at; /* crc_at: in member 0 */
};

struct sdc_tb_state { /* ckpt->priv */
    struct sdc_tb_strings *strings;
    size_t n, cap;
};

/* Adds the checksums of tensors of strings (find_sums). SDC_INVALID where lengths are damaged. */
enum sdc_status sdc__tb_find_sums(struct sdc_ckpt *ckpt, struct sdc_error *err);
enum sdc_status sdc__tb_keep_strings(struct sdc_ckpt *ckpt, const struct sdc_tb_strings *strings,
                                     struct sdc_error *err) SDC_MUST_CHECK; /* what is copied */
void sdc__tb_close(struct sdc_ckpt *ckpt);

/* Gives tensors the names that the object graph holds for their keys as aliases. `entry_of` maps
 * entries of the index to tensors (SIZE_MAX: none). Damage becomes a note. */
enum sdc_status sdc__tb_graph_names(struct sdc_ckpt *ckpt, const struct sdc_sst *index,
                                    const size_t *entry_of, const void *graph, size_t len,
                                    struct sdc_error *err) SDC_MUST_CHECK;

#endif
