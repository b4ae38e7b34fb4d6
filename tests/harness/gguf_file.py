# SPDX-License-Identifier: Apache-2.0
"""A GGUF writer that can break each rule of the format, with nothing but the standard library."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


class File:
    """pairs: (key, type, value), an array's value is (type, items). tensors: (name, shape with the
    slowest dimension first, type number, bytes)."""

    def __init__(self, pairs=(), tensors=(), version=3, big_endian=False, alignment=32):
        self.pairs, self.tensors, self.version = list(pairs), list(tensors), version
        self.order, self.alignment = ">" if big_endian else "<", alignment
        self.offsets = {}   # name -> offset to write instead of the right one
        self.counts = None  # (tensors, pairs) to write instead of the right ones

    def number(self, kind, value):
        return struct.pack(self.order + kind, value)

    def string(self, s):
        s = s.encode() if isinstance(s, str) else s
        return self.number("Q", len(s)) + s

    def value(self, kind, value):
        if kind == STRING:
            return self.string(value)
        if kind == ARRAY:
            inner, items = value
            return self.number("I", inner) + self.number("Q", len(items)) + b"".join(self.value(inner, i) for i in items)
        return self.number(FORMATS[kind], value)

    def header(self):
        n_tensors, n_pairs = self.counts or (len(self.tensors), len(self.pairs))
        out = b"GGUF" + self.number("I", self.version) + self.number("Q", n_tensors) + self.number("Q", n_pairs)
        for key, kind, value in self.pairs:
            out += self.string(key) + self.number("I", kind) + self.value(kind, value)
        at = 0
        for name, shape, kind, data in self.tensors:
            out += self.string(name) + self.number("I", len(shape))
            out += b"".join(self.number("Q", n) for n in reversed(shape))
            out += self.number("I", kind) + self.number("Q", self.offsets.get(name, at))
            at += len(data) + -len(data) % self.alignment
        return out

    def bytes(self):
        out = self.header()
        out += bytes(-len(out) % self.alignment)
        for _, _, _, data in self.tensors:
            out += data + bytes(-len(data) % self.alignment)
        return out

    def save(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())
        return path
