# SPDX-License-Identifier: Apache-2.0
"""Writes PyTorch's containers byte by byte, for what no library writes: pickles by opcodes, zip
archives with every field as asked, streams of the legacy kind, distributed checkpoints.
"""
import io
import os
import pickle
import struct
import zlib


# ---- pickles ----

class Raw(bytes):
    """Opcodes that leave one object on the stack."""


def G(name):
    module, _, attribute = name.rpartition(".")
    return Raw(f"c{module}\n{attribute}\n".encode())


def put(x):
    """Opcodes for a value; tuples, lists and dicts may hold Raw."""
    if isinstance(x, Raw):
        return bytes(x)
    if x is None or x is True or x is False:
        return {None: b"N", True: b"\x88", False: b"\x89"}[x]
    if isinstance(x, int):
        return pickle.dumps(x, 2)[2:-1]
    if isinstance(x, float):
        return b"G" + struct.pack(">d", x)
    if isinstance(x, str):
        return b"X" + struct.pack("<I", len(x.encode())) + x.encode()
    if isinstance(x, bytes):
        return b"B" + struct.pack("<I", len(x)) + x
    if isinstance(x, tuple):
        return b"(" + b"".join(map(put, x)) + b"t"
    if isinstance(x, list):
        return b"](" + b"".join(map(put, x)) + b"e"
    return b"}(" + b"".join(put(k) + put(v) for k, v in x.items()) + b"u"


def call(name, *args, state=None):
    return Raw(put(G(name)) + put(args) + b"R" + (put(state) + b"b" if state is not None else b""))


def new(name, state):
    return Raw(put(G(name)) + b")\x81" + put(state) + b"b")


def storage(key, numel, cls="torch.FloatStorage", **more):
    return Raw(put(("storage", G(cls), key, "cpu", numel) + ((more["view"],) if "view" in more else ())) + b"Q")


def tensor(key, numel, shape, stride=None, offset=0, cls="torch.FloatStorage"):
    if stride is None:
        stride, step = (), 1
        for s in reversed(shape):
            stride, step = (step,) + stride, step * s
    return call("torch._utils._rebuild_tensor_v2", storage(key, numel, cls), offset, tuple(shape), tuple(stride), False,
                call("collections.OrderedDict"))


def dumps(x, protocol=2):
    return bytes([0x80, protocol]) + put(x) + b"."


# ---- zip ----

def write_zip(path, members, align=64, crc=True, folder="archive", prefix=b"", comment=b"", descriptor64=False):
    """As PyTorch's writer (miniz) does: stored, descriptors, padding by an extra field, zip64 end records.
    members: {name: bytes}. Returns {name: offset of its data}."""
    out, central, places = io.BytesIO(), io.BytesIO(), {}
    out.write(prefix)
    for name, data in members.items():
        full = f"{folder}/{name}".encode()
        at = out.tell() - len(prefix)
        pad = -(at + 30 + len(full) + 4) % align
        sum_ = zlib.crc32(data) if crc else 0
        flags = 0x0808 if data else 0x0800
        out.write(struct.pack("<4s5H3I2H", b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(full), 4 + pad))
        out.write(full + b"FB" + struct.pack("<H", pad) + b"Z" * pad)
        places[name] = out.tell()
        out.write(data)
        if data:
            out.write(b"PK\7\10" + struct.pack("<I2Q" if descriptor64 else "<3I", sum_, len(data), len(data)))
        central.write(struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, flags, 0, 0, 0, sum_, len(data), len(data), len(full),
                                  0, 0, 0, 0, 0, at) + full)
    start, size, n = out.tell() - len(prefix), central.tell(), len(members)
    out.write(central.getvalue())
    end64 = out.tell() - len(prefix)
    out.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, size, start))
    out.write(struct.pack("<4sIQI", b"PK\6\7", 0, end64, 1))
    out.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n, n, size, start, len(comment)) + comment)
    if path:
        with open(path, "wb") as f:
            f.write(out.getvalue())
    return places if path else out.getvalue()


def write_sparse_zip(path, members, folder="archive"):
    """The same with members that are bytes, or a number: a hole of so many bytes, with a CRC of 0. Sizes and
    offsets of 4 GiB and more are in zip64 fields, only those; their descriptors have 64-bit sizes."""
    places, central = {}, b""
    full = 0xFFFFFFFF
    with open(path, "wb") as f:
        for name, data in members.items():
            long, at = f"{folder}/{name}".encode(), f.tell()
            size = data if isinstance(data, int) else len(data)
            sum_ = 0 if isinstance(data, int) else zlib.crc32(data)
            f.write(struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0x0808, 0, 0, 0, 0, 0, 0, len(long), 0) + long)
            places[name] = f.tell()
            f.seek(size, os.SEEK_CUR) if isinstance(data, int) else f.write(data)
            f.write(b"PK\7\10" + struct.pack("<I2Q" if max(size, at) >= full else "<3I", sum_, size, size))
            extra = b"".join(struct.pack("<Q", x) for x in (size, size, at) if x >= full)
            extra = struct.pack("<2H", 1, len(extra)) + extra if extra else b""
            central += struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, 0x0808, 0, 0, 0, sum_, min(size, full), min(size, full),
                                   len(long), len(extra), 0, 0, 0, 0, min(at, full)) + long + extra
        start, n = f.tell(), len(members)
        f.write(central + struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, len(central), start))
        f.write(struct.pack("<4sIQI", b"PK\6\7", 0, start + len(central), 1))
        f.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n, n, len(central), min(start, full), 0))
    return places


def write_torch(path, obj, storages, order=None, **how):
    """An archive of torch.save: obj as opcodes, storages {key: bytes}."""
    members = {"data.pkl": obj if isinstance(obj, bytes) and not isinstance(obj, Raw) else dumps(obj)}
    if order:
        members["byteorder"] = order
    for key, data in storages.items():
        members[f"data/{key}"] = data
    members["version"] = b"3\n"
    return write_zip(path, members, **how)


# ---- legacy ----

MAGIC = 0x1950A86A20F9469CFC6C


def write_legacy(path, obj, storages, little=True, order="<", protocol=2, holes=None, rest=b""):
    """storages: {key: (count, bytes)}; holes: bytes to skip after a key's data (a sparse file)."""
    with open(path, "wb") as f:
        f.write(pickle.dumps(MAGIC, protocol) + pickle.dumps(1001, protocol))
        f.write(pickle.dumps({"protocol_version": 1001, "little_endian": little, "type_sizes": {"int": 4}}, protocol))
        f.write(dumps(obj, protocol) + pickle.dumps(list(storages), protocol))
        places = {}
        for key, (count, data) in storages.items():
            f.write(struct.pack(order + "q", count))
            places[key] = f.tell()
            f.write(data)
            f.seek((holes or {}).get(key, 0), os.SEEK_CUR)
        f.write(rest)
        f.truncate()
    return places


# ---- distributed checkpoints ----

META = "torch.distributed.checkpoint.metadata."


def size(*n):
    return call("torch.Size", tuple(n))


def chunk(offsets, sizes):
    return new(META + "ChunkStorageMetadata", {"offsets": size(*offsets), "sizes": size(*sizes)})


def tensor_metadata(dtype, shape, chunks):
    props = new(META + "TensorProperties", (G("torch." + dtype), call("torch.serialization._get_layout", "torch.strided"),
                                            False, call(META + "_MEM_FORMAT_ENCODING", 0), False))
    return new(META + "TensorStorageMetadata",
               {"properties": props, "size": size(*shape), "chunks": [chunk(*c) for c in chunks]})


def index(fqn, offset=None):
    return new(META + "MetadataIndex", {"fqn": fqn, "offset": None if offset is None else size(*offset), "index": 0})


def info(path, offset, length, transforms=None):
    state = {"relative_path": path, "offset": offset, "length": length}
    if transforms:
        state["transform_descriptors"] = transforms
    return new("torch.distributed.checkpoint.filesystem._StorageInfo", state)


def pairs(items):
    """A dict whose keys are opcodes."""
    return Raw(b"}(" + b"".join(put(k) + put(v) for k, v in items) + b"u")


def metadata(tensors, storages, planner=None, more=None):
    state = {"state_dict_metadata": tensors, "planner_data": planner or {}, "storage_data": pairs(storages),
             "storage_meta": None}
    return dumps(new(META + "Metadata", {**state, **(more or {})}), 4)
