/* SPDX-License-Identifier: Apache-2.0
 *
 * Every limit that parsers of foreign files apply, in one place.
 */
#ifndef SDC_BASE_LIMITS_H
#define SDC_BASE_LIMITS_H

#define SDC_MAX_RANK          32                    /* dimensions of a tensor (HDF5's own limit) */
#define SDC_MAX_NAME          4096                  /* bytes of a tensor name */
#define SDC_MAX_TENSORS       4000000               /* tensors in one file */
#define SDC_MAX_MEMBERS       100000                /* files of one checkpoint */
#define SDC_MAX_JSON          (256u * 1024 * 1024)  /* bytes of one JSON document */
#define SDC_MAX_JSON_LINE     (16u * 1024 * 1024)   /* bytes of one line of JSON lines */
#define SDC_MAX_SPEC          (1024u * 1024)        /* bytes of a campaign spec */
#define SDC_MAX_ST_HEADER     100000000u            /* safetensors header, the reference reader's */
#define SDC_MAX_NPY_HEADER    (16u * 1024 * 1024)   /* bytes of the header of a NumPy array */
#define SDC_MAX_SST_BLOCK     (256u * 1024 * 1024)  /* bytes of one block of an SSTable */
#define SDC_MAX_ZIP_MEMBERS   4000000               /* members of a zip archive */
#define SDC_MAX_ZIP_DIRECTORY (1024u * 1024 * 1024) /* bytes of its directory */
#define SDC_MAX_PICKLE_NODES  134217728u            /* objects of one pickle, 16 bytes each */
#define SDC_MAX_PICKLE_TEXT   65536u                /* bytes of a text in a pickle that are kept */
#define SDC_MAX_PICKLE_DEPTH  256                   /* containers in containers that are searched */
#define SDC_MAX_RANKS         64                    /* ranks of a run */

#endif
