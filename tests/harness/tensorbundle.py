# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's checkpoint format written and checked anew in Python, so that tests have a second
computation of it and can build what TensorFlow itself would not: SSTable, protocol buffers, masked
CRC32C, snappy, ordered code. Nothing here is shared with the C side."""
import struct

MAGIC = 0xDB4775248B80FB57
DTYPES = {"F32": 1, "F64": 2, "I32": 3, "U8": 4, "I16": 5, "I8": 6, "STRING": 7, "C64": 8, "I64": 9, "BOOL": 10,
          "BF16": 14, "U16": 17, "C128": 18, "F16": 19, "RESOURCE": 20, "VARIANT": 21, "U32": 22, "U64": 23,
          "F8_E5M2": 24, "F8_E4M3": 25}

_TABLE = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for b in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ b) & 255]
    return crc ^ 0xFFFFFFFF


def mask(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def masked(data):
    return mask(crc32c(data))


# ---- numbers and messages ----

def varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(data, at):
    value = shift = 0
    while True:
        b = data[at]
        at += 1
        value |= (b & 127) << shift
        shift += 7
        if not b & 128:
            return value, at


def f_varint(number, value, always=False):
    """A field as proto3 writes it: nothing at all for zero."""
    return varint(number << 3) + varint(value) if value or always else b""


def f_bytes(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def f_fixed32(number, value, always=False):
    return varint(number << 3 | 5) + struct.pack("<I", value) if value or always else b""


def fields(data):
    """(number, wire type, value, place of the value) of each field."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            place = at
            value, at = read_varint(data, at)
        elif wire == 2:
            n, place = read_varint(data, at)
            value, at = data[place:place + n], place + n
        else:
            place, n = at, 8 if wire == 1 else 4
            value, at = int.from_bytes(data[at:at + n], "little"), at + n
        yield tag >> 3, wire, value, place


# ---- snappy ----

def snappy(data):
    """Literals, and copies with a 2-byte offset where the last 64 KiB hold the next 8 bytes."""
    out, at, literal = bytearray(varint(len(data))), 0, bytearray()

    def flush():
        while literal:
            part = bytes(literal[:60])
            del literal[:60]
            out.append(len(part) - 1 << 2)
            out.extend(part)
    while at < len(data):
        found = data.rfind(data[at:at + 8], max(0, at - 65535), at) if at + 8 <= len(data) else -1
        if found < 0:
            literal.append(data[at])
            at += 1
            continue
        n = 8
        while n < 64 and at + n < len(data) and data[found + n] == data[at + n] and found + n < at:
            n += 1
        flush()
        out.append(n - 1 << 2 | 2)
        out.extend(struct.pack("<H", at - found))
        at += n
    flush()
    return bytes(out)


def unsnappy(data):
    total, at = read_varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            n = (tag >> 2) + 1
            out += data[at:at + n]
            at += n
        else:
            assert tag & 3 == 2, "this reader knows what the writer above writes"
            n, back = (tag >> 2) + 1, struct.unpack_from("<H", data, at)[0]
            at += 2
            for _ in range(n):
                out.append(out[-back])
    assert len(out) == total
    return bytes(out)


# ---- table ----

def make_block(entries, restart_interval=16):
    out, restarts, last = bytearray(), [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % restart_interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    for r in restarts or [0]:
        out += struct.pack("<I", r)
    return bytes(out + struct.pack("<I", len(restarts or [0])))


class Table:
    """restart_interval, block_size and compress as the table format's options."""

    def __init__(self, restart_interval=16, block_size=262144, compress=False):
        self.restart_interval, self.block_size, self.compress = restart_interval, block_size, compress

    def _put(self, out, block):
        kind = 0
        if self.compress:
            block, kind = snappy(block), 1
        place = (len(out), len(block))
        out += block + bytes([kind]) + struct.pack("<I", masked(block + bytes([kind])))
        return place

    def write(self, entries):
        out, index, part, size = bytearray(), [], [], 0
        entries = sorted(dict(entries).items())
        for i, (key, value) in enumerate(entries):
            part.append((key, value))
            size += len(key) + len(value) + 3
            if size >= self.block_size or i == len(entries) - 1:
                offset, n = self._put(out, make_block(part, self.restart_interval))
                index.append((key, varint(offset) + varint(n)))
                part, size = [], 0
        meta = self._put(out, make_block([]))
        main = self._put(out, make_block(index, 1))
        footer = b"".join(varint(x) for x in meta + main)
        out += footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)
        return bytes(out)


def read_block(data, offset, size, check=True):
    """(plain bytes, was it compressed); checks the trailer."""
    raw, kind = data[offset:offset + size], data[offset + size]
    stored = struct.unpack_from("<I", data, offset + size + 1)[0]
    if check and stored != masked(data[offset:offset + size + 1]):
        raise ValueError(f"block at {offset}: checksum")
    return (unsnappy(raw), True) if kind == 1 else (raw, False)


def block_entries(block):
    end = len(block) - 4 - 4 * struct.unpack_from("<I", block, len(block) - 4)[0]
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        unshared, at = read_varint(block, at)
        n, at = read_varint(block, at)
        key = key[:shared] + block[at:at + unshared]
        at += unshared
        yield key, block[at:at + n], at
        at += n


def read_table(data, check=True):
    """(key, value, offset of the value in the file or None, (block offset, block size)) of each entry."""
    assert struct.unpack_from("<Q", data, len(data) - 8)[0] == MAGIC
    at, handle = len(data) - 48, []
    for _ in range(4):
        value, at = read_varint(data, at)
        handle.append(value)
    read_block(data, *handle[:2], check)
    index, _ = read_block(data, *handle[2:], check)
    for _, value, _ in block_entries(index):
        offset, at = read_varint(value, 0)
        size, _ = read_varint(value, at)
        block, packed = read_block(data, offset, size, check)
        for key, v, place in block_entries(block):
            yield key, v, None if packed else offset + place, (offset, size)


# ---- bundle ----

def shape_proto(shape):
    return b"".join(f_bytes(2, f_varint(1, d)) for d in shape)


def entry_proto(dtype, shape, shard=0, offset=0, size=0, crc=None, slices=(), crc_always=False):
    return (f_varint(1, dtype) + f_bytes(2, shape_proto(shape)) + f_varint(3, shard) + f_varint(4, offset)
            + f_varint(5, size) + (f_fixed32(6, crc, crc_always) if crc is not None else b"")
            + b"".join(f_bytes(7, slice_proto(s)) for s in slices))


def slice_proto(extents):
    """extents: (start, length), or None for a whole axis."""
    return b"".join(f_bytes(1, b"" if e is None else f_varint(1, e[0]) + f_varint(2, e[1], always=True))
                    for e in extents)


def header_proto(shards=1, big_endian=False):
    return f_varint(1, shards) + f_varint(2, int(big_endian)) + f_bytes(3, f_varint(1, 1))


def ordered_signed(v):
    x = ~v if v < 0 else v
    if x < 64:
        return bytes([0x80 ^ v & 255])
    n = x.bit_length() // 7 + 1
    out = bytearray((v & (1 << 8 * n) - 1).to_bytes(n, "big"))
    head = (0xFFFF << 16 - n & 0xFFFF).to_bytes(2, "big")
    out[0] ^= head[0]
    out[1] ^= head[1]
    return bytes(out)


def ordered_u64(n):
    raw = n.to_bytes((n.bit_length() + 7) // 8, "big")
    return bytes([len(raw)]) + raw


def slice_key(name, extents):
    text = name.replace(b"\xff", b"\xff\x00").replace(b"\x00", b"\x00\xff") + b"\x00\x01"
    out = ordered_u64(0) + text + ordered_u64(len(extents))
    for e in extents:
        start, length = (0, -1) if e is None else e
        out += ordered_signed(start) + ordered_signed(length)
    return out


class Bundle:
    def __init__(self, shards=1, big_endian=False, align=1):
        self.header = header_proto(shards, big_endian)
        self.data = [bytearray() for _ in range(shards)]
        self.entries, self.align = {}, align

    def place(self, data, shard=0):
        out = self.data[shard]
        out += bytes(-len(out) % self.align)
        offset = len(out)
        out += data
        return offset

    def add(self, name, dtype, shape, data, shard=0, crc=True, key=None):
        offset = self.place(data, shard)
        name = name.encode() if isinstance(name, str) else name
        self.entries[key or name] = entry_proto(DTYPES[dtype], shape, shard, offset, len(data),
                                                masked(data) if crc is True else crc)

    def add_sliced(self, name, dtype, shape, parts):
        """parts: (extents, data, shard)."""
        self.entries[name.encode()] = entry_proto(DTYPES[dtype], shape, slices=[p[0] for p in parts])
        for extents, data, shard in parts:
            part_shape = [n if e is None else e[1] for n, e in zip(shape, extents)]
            self.add(name, dtype, part_shape, data, shard, key=slice_key(name.encode(), extents))

    def add_strings(self, name, strings, shape=None):
        lengths = b"".join(varint(len(s)) for s in strings)
        sums = b"".join(struct.pack("<I", len(s)) for s in strings)
        inner = masked(sums)
        data = lengths + struct.pack("<I", inner) + b"".join(strings)
        # the sum over all counts each length as the u32 that was summed, not as the varint
        outer = mask(crc32c(b"".join(strings), crc32c(struct.pack("<I", inner), crc32c(sums))))
        self.add(name, "STRING", [len(strings)] if shape is None else shape, data, crc=outer)

    def save(self, prefix, table=None):
        for i, data in enumerate(self.data):
            with open(f"{prefix}.data-{i:05d}-of-{len(self.data):05d}", "wb") as f:
                f.write(data)
        with open(f"{prefix}.index", "wb") as f:
            f.write((table or Table()).write({b"": self.header, **self.entries}))


def read_bundle(prefix, check=True):
    """name -> (dtype number, shape, bytes) of every entry that has bytes; every checksum of tables and
    of numeric tensors is recomputed. Raises ValueError("NAME: checksum") as TensorFlow would DataLoss."""
    with open(f"{prefix}.index", "rb") as f:
        table = f.read()
    out, shards = {}, 1
    for key, value, _, _ in read_table(table, check):
        got = {n: v for n, _, v, _ in fields(value)}
        if key == b"":
            shards = got.get(1, 0)
            continue
        if 7 in got:
            continue
        shape = [dict((n, v) for n, _, v, _ in fields(d)).get(1, 0) for n, _, d, _ in fields(got.get(2, b"")) if n == 2]
        with open(f"{prefix}.data-{got.get(3, 0):05d}-of-{shards:05d}", "rb") as f:
            f.seek(got.get(4, 0))
            data = f.read(got.get(5, 0))
        if check and got.get(1) != DTYPES["STRING"] and masked(data) != got.get(6, 0):
            raise ValueError(f"{key!r}: checksum")
        out[key] = (got.get(1, 0), shape, data)
    return out


def read_tensors(prefix, check=True):
    """name -> (dtype number, shape, bytes) of whole tensors: slices are put together."""
    import numpy as np
    raw, out = read_bundle(prefix, check), {}
    with open(f"{prefix}.index", "rb") as f:
        table = f.read()
    for key, value, _, _ in read_table(table, check):
        if key == b"" or key[:1] == b"\0":
            continue
        got = list(fields(value))
        slices = [v for n, _, v, _ in got if n == 7]
        if not slices:
            out[key.decode()] = raw[key]
            continue
        dims = [v for n, _, v, _ in got if n == 2][0]
        shape = [dict((n, v) for n, _, v, _ in fields(d)).get(1, 0) for n, _, d, _ in fields(dims) if n == 2]
        whole = None
        for s in slices:
            extents = []
            for _, _, e, _ in fields(s):
                d = dict((n, v) for n, _, v, _ in fields(e))
                extents.append((d.get(1, 0), d[2]) if 2 in d else None)
            dtype, part_shape, data = raw[slice_key(key, extents)]
            size = len(data) // int(np.prod(part_shape))
            if whole is None:
                whole = np.zeros(shape + [size], np.uint8)
            at = tuple(slice(None) if e is None else slice(e[0], e[0] + e[1]) for e in extents)
            whole[at] = np.frombuffer(data, np.uint8).reshape(part_shape + [size])
        out[key.decode()] = (dtype, shape, whole.tobytes())
    return out
