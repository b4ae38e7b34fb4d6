/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks the fields of one protocol buffer message in memory (the wire format of
 * protobuf.dev/programming-guides/encoding). No schema, no allocation, nothing copied: the caller
 * takes the field numbers it knows and passes over the rest. Groups, which nothing that we read
 * has, are refused.
 *
 *     struct sdc_proto p = sdc__proto(data, len);
 *     struct sdc_proto_field f;
 *     while ((r = sdc__proto_next(&p, &f)) == SDC_PROTO_FIELD)
 *         if (f.number == 4 && f.wire == SDC_PROTO_VARINT)
 *             offset = f.value;
 *     if (r == SDC_PROTO_BAD) ...
 */
#ifndef SDC_CKPT_PROTO_H
#define SDC_CKPT_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sdc_proto_wire {
    SDC_PROTO_VARINT = 0,
    SDC_PROTO_FIXED64 = 1,
    SDC_PROTO_BYTES = 2,
    SDC_PROTO_FIXED32 = 5
};

enum sdc_proto_result {
    SDC_PROTO_FIELD, /* *f is filled */
    SDC_PROTO_END,   /* the message ended where a field may end */
    SDC_PROTO_BAD    /* not a message, from p->at on; stays so */
};

struct sdc_proto {
    const unsigned char *data; /* borrowed */
    size_t len, at;
};

struct sdc_proto_field {
    uint32_t number; /* 1 to 2^29 - 1 */
    enum sdc_proto_wire wire;
    uint64_t value;             /* of a varint or fixed field; 0 for bytes */
    const unsigned char *bytes; /* of a bytes field (borrowed), else NULL */
    size_t len;                 /* of bytes */
    size_t at;                  /* place of the value in the message, behind tag and length */
};

struct sdc_proto sdc__proto(const void *data, size_t len);
enum sdc_proto_result sdc__proto_next(struct sdc_proto *p, struct sdc_proto_field *f);

/* A base-128 number of at most max_bytes bytes at *at, which moves behind it; false if it runs past
 * the end or over 64 bits. Also the numbers of an SSTable. */
bool sdc__varint(const unsigned char *data, size_t len, size_t *at, unsigned max_bytes,
                 uint64_t *value);

#endif
