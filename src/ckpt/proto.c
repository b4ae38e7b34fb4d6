/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/proto.h"

#include "sdc/num.h"

struct sdc_proto sdc__proto(const void *data, size_t len) {
    return (struct sdc_proto){.data = data, .len = len};
}

bool sdc__varint(const unsigned char *data, size_t len, size_t *at, unsigned max_bytes,
                 uint64_t *value) {
    uint64_t v = 0;
    size_t i = *at;
    for (unsigned k = 0; k < max_bytes && i < len; k++, i++) {
        uint64_t bits = data[i] & 0x7f;
        if (k == 9 && bits > 1)
            return false;
        v |= bits << 7 * k;
        if (!(data[i] & 0x80)) {
            *at = i + 1;
            *value = v;
            return true;
        }
    }
    return false;
}

enum sdc_proto_result sdc__proto_next(struct sdc_proto *p, struct sdc_proto_field *f) {
    uint64_t tag, len;
    size_t at = p->at;
    if (at == p->len)
        return SDC_PROTO_END;
    if (!sdc__varint(p->data, p->len, &at, 5, &tag) || tag >> 32 || tag >> 3 == 0)
        return SDC_PROTO_BAD;
    *f = (struct sdc_proto_field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case SDC_PROTO_VARINT:
        f->at = at;
        if (!sdc__varint(p->data, p->len, &at, 10, &f->value))
            return SDC_PROTO_BAD;
        break;
    case SDC_PROTO_FIXED64:
    case SDC_PROTO_FIXED32: {
        size_t size = (tag & 7) == SDC_PROTO_FIXED64 ? 8 : 4;
        f->at = at;
        if (p->len - at < size)
            return SDC_PROTO_BAD;
        f->value = sdc_num_load(size == 8 ? SDC_DTYPE_U64 : SDC_DTYPE_U32, p->data + at, false);
        at += size;
        break;
    }
    case SDC_PROTO_BYTES:
        if (!sdc__varint(p->data, p->len, &at, 10, &len) || len > p->len - at)
            return SDC_PROTO_BAD;
        f->at = at;
        f->bytes = p->data + at;
        f->len = (size_t)len;
        at += f->len;
        break;
    default:
        return SDC_PROTO_BAD;
    }
    f->wire = (enum sdc_proto_wire)(tag & 7);
    p->at = at;
    return SDC_PROTO_FIELD;
}
