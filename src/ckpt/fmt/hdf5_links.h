/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects of an HDF5 file and all their names.
 *
 * Objects form a graph in which groups may contain each other. Each group is entered once; datasets
 * are told apart by address, and every path to one is a name of it: hard links also through groups
 * that are linked several times (as long as no group is entered within itself), soft links where
 * they stand. External and user-defined links are told in notes and never followed.
 */
#ifndef SDC_CKPT_FMT_HDF5_LINKS_H
#define SDC_CKPT_FMT_HDF5_LINKS_H

#include "ckpt/fmt/hdf5.h"

struct sdc_h5_node {
    uint64_t addr;
    unsigned char kind;              /* enum sdc_h5_kind */
    bool chunked, labelled, entered; /* labelled: its type may be named by an attribute */
    bool later;                      /* in a form that HDF5 2.0 brought */
    uint32_t parent;                 /* group it was first found in */
    uint32_t first, n;               /* its links, if it is a group */
    uint32_t n_in;                   /* hard links to it */
    size_t path;                     /* where its first path is in the texts */
    size_t label;                    /* of the attribute "dtype" in the texts */
    uint64_t n_chunks, stored;       /* as libhdf5 counts them, of a chunked dataset */
};

enum sdc_h5_kind { SDC_H5_NODE_OTHER, SDC_H5_NODE_GROUP, SDC_H5_NODE_SET };

struct sdc_h5_link {
    size_t name, target; /* in the texts */
    uint32_t node;       /* of a hard link */
    unsigned char type;  /* enum sdc_wire_link */
};

struct sdc_h5_name { /* of a dataset */
    char *path;      /* without the leading slash; owned */
    uint32_t node;
    bool soft;
};

struct sdc_h5_names { /* a list of names in an attribute of a group, as Keras keeps them */
    uint32_t node;
    unsigned char list; /* enum sdc_wire_names */
    size_t texts;       /* n texts, each NUL-terminated, in a row */
    size_t n;
};

struct sdc_h5_tree {
    struct sdc_buf texts; /* "" first */
    struct sdc_h5_node *nodes;
    size_t n_nodes, cap_nodes;
    uint32_t *by_addr; /* open addressing, index + 1; a power of two */
    size_t cap_by_addr;
    struct sdc_h5_link *links; /* those of one group in a row */
    size_t n_links, cap_links;
    struct sdc_h5_names *lists;
    size_t n_lists, cap_lists;
    struct sdc_h5_name *names; /* sorted: of one dataset in a row, hard ones first, by path */
    size_t n_names, cap_names;
    bool incomplete; /* too many ways through groups: names are missing, none of a first path */
};

/* Asks the helper, whose root group is at this address. */
enum sdc_status sdc__h5_tree_read(struct sdc_h5_file *f, struct sdc_h5_proc *proc, uint64_t root,
                                  struct sdc_h5_tree *tree, struct sdc_error *err);
/* Fills names. */
enum sdc_status sdc__h5_tree_name(const struct sdc_h5_file *f, struct sdc_h5_tree *tree,
                                  struct sdc_error *err);
/* What is worth a note: links out of the file, soft links to nothing, Keras lists that name what is
 * not there. */
enum sdc_status sdc__h5_tree_notes(struct sdc_ckpt *ckpt, const struct sdc_h5_tree *tree,
                                   struct sdc_error *err);
/* The object at a path below a group; false if there is none. Soft links are followed. */
bool sdc__h5_tree_find(const struct sdc_h5_tree *tree, uint32_t group, const char *path,
                       uint32_t *node);
void sdc__h5_tree_release(struct sdc_h5_tree *tree);

#endif
