/* SPDX-License-Identifier: Apache-2.0
 *
 * Python pickles, protocols 0 to 5, as a tree of nodes. Nothing is executed, imported or called:
 * a call in the pickle becomes a node that names the callable and holds its arguments. Source:
 * CPython 3.11, Lib/pickle.py and Lib/pickletools.py.
 *
 *     struct sdc_pk *pk;
 *     struct sdc_pk_source source = {.file = file, .offset = at, .size = n};
 *     SDC_TRY(sdc__pk_parse(&source, &pk, &end, err));
 *     struct sdc_pk_iter it = sdc__pk_items(pk, sdc__pk_root(pk));
 *     while (sdc__pk_next_pair(&it, &key, &value))
 *         ...
 *     sdc__pk_free(pk);
 *
 * Nodes are numbers that are valid until free. A tree may be shared (the same node at several
 * places) and may contain cycles: whoever walks it bounds depth and visits. Memory is proportional
 * to the bytes read, whatever those say, and below the limits of base/limits.h. One thread per
 * object while parsing; reading a tree is thread-safe.
 */
#ifndef SDC_CKPT_PICKLE_H
#define SDC_CKPT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "sdc/status.h"

enum sdc_pk_kind {
    SDC_PK_NONE,
    SDC_PK_BOOL,
    SDC_PK_INT,  /* that fits 64 bits */
    SDC_PK_LONG, /* a longer one: its text is "0x..." of the two's complement's bytes */
    SDC_PK_FLOAT,
    SDC_PK_STR,   /* also the byte strings of Python 2, as they are */
    SDC_PK_BYTES, /* and bytearray */
    SDC_PK_TUPLE,
    SDC_PK_LIST,
    SDC_PK_DICT,
    SDC_PK_SET, /* and frozenset */
    SDC_PK_GLOBAL,
    SDC_PK_CALL,   /* REDUCE: callee(*args), then items and state */
    SDC_PK_OBJECT, /* NEWOBJ, NEWOBJ_EX, INST, OBJ: an object of class callee, then the same */
    SDC_PK_PERSID, /* a persistent id, its args */
    SDC_PK_OPAQUE  /* extension codes, out-of-band buffers */
};

/* The bytes of a file, or memory that stays valid until parse returns. */
struct sdc_pk_source {
    const struct sdc_file *file; /* NULL: memory */
    uint64_t offset;             /* of the pickle in the file */
    uint64_t size;               /* that may be read; the pickle ends by itself */
    const void *memory;
    const char *name; /* for messages; NULL: the file's path */
};

struct sdc_pk;

/* end: bytes read, to the one after STOP; may be NULL. SDC_INVALID with the offset in the file
 * ("truncated" where the bytes end), SDC_UNSUPPORTED for a later protocol, SDC_LIMIT. */
enum sdc_status sdc__pk_parse(const struct sdc_pk_source *source, struct sdc_pk **pk, uint64_t *end,
                              struct sdc_error *err) SDC_MUST_CHECK;
void sdc__pk_free(struct sdc_pk *pk); /* accepts NULL */

uint32_t sdc__pk_root(const struct sdc_pk *pk);
uint32_t sdc__pk_nodes(const struct sdc_pk *pk); /* ids are below this number */
int sdc__pk_protocol(const struct sdc_pk *pk);   /* of its first opcode; 0 where there is none */
enum sdc_pk_kind sdc__pk_kind(const struct sdc_pk *pk, uint32_t id);
const char *sdc__pk_kind_name(enum sdc_pk_kind kind); /* "dict" */

/* Of INT and BOOL; false for all others. */
bool sdc__pk_int(const struct sdc_pk *pk, uint32_t id, int64_t *value);
/* The same, 0 and above only. */
bool sdc__pk_size(const struct sdc_pk *pk, uint32_t id, uint64_t *value);
bool sdc__pk_float(const struct sdc_pk *pk, uint32_t id, double *value); /* FLOAT and INT */
/* Of STR, BYTES and LONG, NUL-terminated (and may hold NULs); NULL for all others and for texts
 * over SDC_MAX_PICKLE_TEXT, of which only the place is known. len may be NULL. */
const char *sdc__pk_text(const struct sdc_pk *pk, uint32_t id, size_t *len);
/* Where the contents of a STR or BYTES are in the source, and how many bytes there; false where
 * they are none as they are (texts with escapes) and for other kinds. */
bool sdc__pk_place(const struct sdc_pk *pk, uint32_t id, uint64_t *place, uint64_t *len);

/* "torch._utils._rebuild_tensor_v2" of a GLOBAL; NULL for all others. */
const char *sdc__pk_global(const struct sdc_pk *pk, uint32_t id);
/* The same of what a CALL calls or an OBJECT's class; NULL where that is no global. */
const char *sdc__pk_callee(const struct sdc_pk *pk, uint32_t id);
/* Arguments of CALL and OBJECT (a tuple, or what stands in its place), the id of a PERSID; false
 * for all others. */
bool sdc__pk_args(const struct sdc_pk *pk, uint32_t id, uint32_t *args);
/* What BUILD gave to a CALL or an OBJECT. */
bool sdc__pk_state(const struct sdc_pk *pk, uint32_t id, uint32_t *state);

/* Elements of TUPLE, LIST, SET; pairs of DICT; either of CALL and OBJECT (pairs says which). None
 * of all others. */
struct sdc_pk_iter {
    const struct sdc_pk_run *run;
    const uint32_t *at;
    uint32_t left; /* of this run */
    bool pairs;
};
struct sdc_pk_iter sdc__pk_items(const struct sdc_pk *pk, uint32_t id);
bool sdc__pk_next(struct sdc_pk_iter *it, uint32_t *item);
bool sdc__pk_next_pair(struct sdc_pk_iter *it, uint32_t *key, uint32_t *value);
/* Elements or pairs. */
uint64_t sdc__pk_count(const struct sdc_pk *pk, uint32_t id);
/* Element i of a TUPLE, in constant time; of a LIST by walking. */
bool sdc__pk_at(const struct sdc_pk *pk, uint32_t id, uint64_t i, uint32_t *item);
/* The value of this text key in the pairs of a DICT, CALL or OBJECT, the last one where there are
 * several; by walking. */
bool sdc__pk_get(const struct sdc_pk *pk, uint32_t id, const char *key, uint32_t *value);

/* Every global that the pickle names, once each, in order of appearance. */
size_t sdc__pk_globals(const struct sdc_pk *pk);
const char *sdc__pk_global_at(const struct sdc_pk *pk, size_t i);

#endif
